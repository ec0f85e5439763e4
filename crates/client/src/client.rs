//! The client: retries an operation until the server answers it or its deadline passes.

use std::sync::Arc;
use std::time::Duration;

use exacat_model::{Answer, Error, ErrorKind, Operation, OperationId, Result};
use exacat_wire::native::{Behind, HelloAck, Identity};
use futures::future::BoxFuture;
use tokio::time::{Instant, sleep, timeout_at};

use crate::connection::Connection;
use crate::inner::Inner;
use crate::pages::AnswerStream;
use crate::pool::{ConnectionSlot, Pool};
use crate::retry::{Jitter, OperationIds, RetryState, Verdict};
use crate::settings::ClientSettings;
use crate::slots::Outcome;
use crate::target::{Credentials, Target};

/// Options of one call that override the settings.
#[derive(Clone, Debug, Default)]
pub struct CallOptions {
    /// Time after which the client gives up retries and waiting.
    pub deadline: Option<Duration>,
    /// Operation id of a write: that of an earlier call whose outcome is unknown, or none for a new
    /// one.
    pub operation_id: Option<OperationId>,
}

/// A client of one catalogue. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

// The futures are boxed, so that the compiler builds their bodies here once and not again in every
// caller.
impl Client {
    /// Connects to the first reachable endpoint; tries each once.
    pub fn connect(
        target: Target,
        credentials: Credentials,
        settings: ClientSettings,
    ) -> BoxFuture<'static, Result<Client>> {
        Box::pin(Self::connected(target, credentials, settings))
    }

    async fn connected(target: Target, credentials: Credentials, settings: ClientSettings) -> Result<Client> {
        let jitter = Jitter::new()?;
        let pool = Pool::new(target, credentials, settings)?;
        let connection = pool.connection().await.map_err(|failure| failure.error)?;
        let greeting = connection.shared.greeting.clone();
        let operation_ids = OperationIds::new(pool.clock.clone());
        let inner =
            Inner { pool, jitter, operation_ids, server: greeting.server, identity: greeting.identity };
        Ok(Client { inner: Arc::new(inner) })
    }

    /// Returns the identity that the server accepted when the client connected.
    pub fn identity(&self) -> &Identity {
        &self.inner.identity
    }

    /// Returns the server's description of itself from when the client connected.
    pub fn server(&self) -> &HelloAck {
        &self.inner.server
    }

    /// Returns the distance of the server to its source, as it was told with the last answers: that of the
    /// connection that is farthest behind. None if no follower answered.
    pub fn behind(&self) -> Option<Behind> {
        self.inner.pool.behind()
    }

    /// Returns the settings.
    pub fn settings(&self) -> &ClientSettings {
        self.inner.settings()
    }

    /// Waits for requests in flight, within the bound of the settings, then closes the connections.
    /// Later calls fail.
    pub async fn close(&self) {
        self.inner.pool.close().await;
    }

    /// Calls an operation with the default options.
    pub fn call(&self, operation: Operation) -> BoxFuture<'_, Result<Answer>> {
        self.call_with(operation, CallOptions::default())
    }

    /// Calls an operation with these options.
    pub fn call_with(&self, operation: Operation, options: CallOptions) -> BoxFuture<'_, Result<Answer>> {
        Box::pin(async move { self.called(&operation, options).await })
    }

    async fn called(&self, operation: &Operation, options: CallOptions) -> Result<Answer> {
        let operation_id = self.operation_id(operation, options.operation_id)?;
        let within = options.deadline.unwrap_or(self.settings().deadline);
        let deadline = Instant::now() + within;
        let mut asked = RetryState::new(operation_id);
        // Fast path: there is nearly always a connection, and it answers.
        let slot = self.inner.pool.slot();
        let mut first = Some(slot);
        if let Some(connection) = slot.open()
            && !(operation.writes() && self.holds_back(&connection, &mut asked))
        {
            first = None;
            let outcome = connection.call(operation, operation_id, deadline).await;
            if let Verdict::Done(answered) = self.judged(&mut asked, outcome, &connection) {
                return answered;
            }
        }
        // Boxed, because the parts of further attempts would make the future of every call larger.
        Box::pin(self.called_again(operation, within, deadline, asked, first)).await
    }

    /// Tries at once at `first`, if given, then at the connections in turn, with pauses.
    async fn called_again(
        &self,
        operation: &Operation,
        within: Duration,
        deadline: Instant,
        mut asked: RetryState,
        mut first: Option<&ConnectionSlot>,
    ) -> Result<Answer> {
        let mut backoff = self.inner.backoff();
        loop {
            let slot = match first.take() {
                Some(first) => first,
                None if wait_until(deadline, backoff.pause(&self.inner.jitter)).await => {
                    self.inner.pool.slot()
                }
                None => return Err(asked.give_up(&out_of_time(operation, within))),
            };
            if let Verdict::Done(connection) = self.connection_until(slot, deadline, &mut asked).await?
                && !(operation.writes() && self.holds_back(&connection, &mut asked))
            {
                let outcome = connection.call(operation, asked.operation_id, deadline).await;
                if let Verdict::Done(answered) = self.judged(&mut asked, outcome, &connection) {
                    return answered;
                }
            }
        }
    }

    /// Takes in the outcome of an attempt. Leaves a server that could not carry the call out: another may.
    fn judged(
        &self,
        asked: &mut RetryState,
        outcome: Outcome<Result<Answer>>,
        connection: &Arc<Connection>,
    ) -> Verdict<Result<Answer>> {
        if let Outcome::Answered(Err(error)) = &outcome {
            self.inner.pool.leave_for(error, connection);
        }
        asked.outcome(outcome)
    }

    /// Calls many operations; returns one answer each, in their order. They travel in as few frames
    /// as possible. Each is independent: none waits for another, and a retry repeats only the
    /// operations that need it.
    pub fn call_batch(&self, operations: Vec<Operation>) -> BoxFuture<'_, Result<Vec<Result<Answer>>>> {
        self.call_batch_with(operations, CallOptions::default())
    }

    /// Calls many operations. The operation id of the options must be none: each write gets its
    /// own.
    pub fn call_batch_with(
        &self,
        operations: Vec<Operation>,
        options: CallOptions,
    ) -> BoxFuture<'_, Result<Vec<Result<Answer>>>> {
        Box::pin(self.batch_called(operations, options))
    }

    async fn batch_called(
        &self,
        operations: Vec<Operation>,
        options: CallOptions,
    ) -> Result<Vec<Result<Answer>>> {
        if options.operation_id.is_some() {
            return Err(Error::invalid("the operations of a batch each have their own operation id"));
        }
        let within = options.deadline.unwrap_or(self.settings().deadline);
        let deadline = Instant::now() + within;
        let mut asked = Vec::with_capacity(operations.len());
        for operation in &operations {
            asked.push(RetryState::new(self.operation_id(operation, None)?));
        }
        let mut answers: Vec<Option<Result<Answer>>> = Vec::new();
        answers.resize_with(operations.len(), || None);
        // Indices of the operations without an answer.
        let mut open: Vec<usize> = (0..operations.len()).collect();
        let mut backoff = None;
        while !open.is_empty() {
            let mut again = Vec::new();
            let mut rest = open.as_slice();
            while let Some(first) = rest.first() {
                let slot = self.inner.pool.slot();
                let connection = match self.connection_until(slot, deadline, &mut asked[*first]).await {
                    Ok(Verdict::Done(connection)) => connection,
                    Ok(Verdict::Again) => {
                        again.extend_from_slice(rest);
                        break;
                    }
                    Err(error) => {
                        for place in rest {
                            answers[*place] = Some(Err(asked[*place].refused(error.clone())));
                        }
                        break;
                    }
                };
                if rest.iter().any(|place| operations[*place].writes())
                    && let Some(error) = self.inner.pool.hold_back(&connection)
                {
                    rest.iter().for_each(|place| asked[*place].lost(false, error.clone()));
                    again.extend_from_slice(rest);
                    break;
                }
                let most = connection.batch_operations_max().min(rest.len());
                let batch =
                    rest[..most].iter().map(|place| (&operations[*place], asked[*place].operation_id));
                let outcome = connection.call_batch(batch, deadline).await;
                let (tried, after) = match &outcome {
                    Outcome::Answered(answered) => rest.split_at(answered.len()),
                    Outcome::Lost { .. } => rest.split_at(most),
                };
                rest = after;
                match outcome {
                    Outcome::Answered(answered) => {
                        let errors = answered.iter().filter_map(|answer| answer.as_ref().err());
                        errors.for_each(|error| self.inner.pool.leave_for(error, &connection));
                        for (place, answer) in tried.iter().zip(answered) {
                            match asked[*place].answered(answer) {
                                Verdict::Done(answer) => answers[*place] = Some(answer),
                                Verdict::Again => again.push(*place),
                            }
                        }
                    }
                    Outcome::Lost { sent, error } => {
                        for place in tried {
                            asked[*place].lost(sent, error.clone());
                        }
                        again.extend_from_slice(tried);
                    }
                }
            }
            open = again;
            if open.is_empty() {
                break;
            }
            let pause = backoff.get_or_insert_with(|| self.inner.backoff()).pause(&self.inner.jitter);
            if !wait_until(deadline, pause).await {
                for place in open {
                    let why = out_of_time(&operations[place], within);
                    answers[place] = Some(Err(asked[place].give_up(&why)));
                }
                break;
            }
        }
        let missing =
            || Err(Error::new(ErrorKind::Internal, "internal error: an operation of a batch was not sent"));
        Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect())
    }

    /// Calls an operation with pages, and returns each page once, in order. If the connection is
    /// lost or the server is busy, the stream resumes after the last page taken. A slow reader
    /// slows the server down; dropping the stream ends it.
    pub fn stream(&self, operation: Operation) -> AnswerStream {
        AnswerStream::new(self.inner.clone(), operation, false)
    }

    fn operation_id(&self, operation: &Operation, given: Option<OperationId>) -> Result<Option<OperationId>> {
        match (operation.writes(), given) {
            (true, Some(id)) => Ok(Some(id)),
            (true, None) => self.inner.new_operation_id().map(Some),
            (false, None) => Ok(None),
            (false, Some(_)) => Err(Error::invalid(format!(
                "an operation id was given for {}, which changes nothing",
                operation.name()
            ))),
        }
    }

    /// Says whether a change is held back from this connection: see [`Pool::hold_back`].
    fn holds_back(&self, connection: &Arc<Connection>, asked: &mut RetryState) -> bool {
        let held = self.inner.pool.hold_back(connection);
        held.is_some_and(|error| {
            asked.lost(false, error);
            true
        })
    }

    /// Returns a connection; `Again` if there is none now, an error if there will be none.
    async fn connection_until(
        &self,
        slot: &ConnectionSlot,
        deadline: Instant,
        asked: &mut RetryState,
    ) -> Result<Verdict<Arc<Connection>>> {
        if let Some(connection) = slot.open() {
            return Ok(Verdict::Done(connection));
        }
        match timeout_at(deadline, self.inner.pool.connection_at(slot)).await {
            Ok(Ok(connection)) => return Ok(Verdict::Done(connection)),
            Ok(Err(failure)) if failure.is_final => return Err(asked.refused(failure.error)),
            Ok(Err(failure)) => asked.lost(false, failure.error),
            Err(_) => asked.lost(
                false,
                Error::new(ErrorKind::Unavailable, "no connection to the server within the time limit"),
            ),
        }
        Ok(Verdict::Again)
    }
}

/// Pauses; false without a pause if the deadline would pass.
async fn wait_until(deadline: Instant, pause: Duration) -> bool {
    if Instant::now() + pause >= deadline {
        return false;
    }
    sleep(pause).await;
    true
}

fn out_of_time(operation: &Operation, within: Duration) -> String {
    format!("{} was not answered within {within:?}", operation.name())
}
