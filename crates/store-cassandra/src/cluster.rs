//! Connection to the cluster: statements prepared once, with their consistency, and their rows.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use exacat_activity::{RequestState, on};
use exacat_model::{Error, ErrorKind, Result, Revision};
use futures::StreamExt;
use parking_lot::RwLock;
use scylla::client::execution_profile::{ExecutionProfile, ExecutionProfileHandle};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind as SetupError, DbError,
    MetadataError, NewSessionError,
};
use scylla::policies::load_balancing::DefaultPolicy;
use scylla::policies::retry::DefaultRetryPolicy;
use scylla::response::PagingState;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};
use scylla::value::{CqlValue, Row as CqlRow};

use crate::limits::{
    ALIVE_EVERY, ALIVE_WITHIN, CONDITIONAL_ELSEWHERE_AFTER_MAX, CONDITIONAL_ELSEWHERE_AFTER_MIN,
    ELSEWHERE_AFTER_MAX, ELSEWHERE_AFTER_MIN, READ_ATTEMPTS_MAX, SLICE_ROWS, STATEMENT_TIMEOUT,
    STATEMENTS_IN_FLIGHT,
};
use crate::metrics::{Metrics, Sent};
use crate::nodes::Nodes;
use crate::retry::Attempts;
use crate::routing::{AroundUnresponsive, Patience};
use crate::settings::CassandraSettings;
use crate::statement::Text;
use crate::tables::{Bound, Columns, Values};

/// Fate of a statement, chosen by a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Sent, and answered.
    Answered,
    /// Lost before it arrives.
    LostBefore,
    /// Carried out; its answer is lost.
    LostAfter,
}

/// Kind of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// A read.
    Read,
    /// A write to the tables, or of the position up to which they are complete.
    Write,
    /// A conditional batch: an append to the log.
    Conditional,
}

/// Fault injection for tests, between this store and the cluster.
pub trait Faults: Send + Sync + 'static {
    /// Decides the fate of the next statement.
    fn fate(&self, kind: StatementKind) -> Fate;
}

/// Session in the catalogue's keyspace.
pub(crate) struct Cluster {
    pub session: Session,
    /// Profile of conditional batches.
    conditional: ExecutionProfileHandle,
    faults: Option<Arc<dyn Faults>>,
    prepared: RwLock<HashMap<Text, PreparedStatement>>,
    preparing: tokio::sync::Mutex<()>,
    pub metrics: Arc<Metrics>,
    pub nodes: Arc<Nodes>,
}

/// Makes the error of a statement that the cluster refused or did not answer.
pub(crate) fn failed(what: &str, error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the cluster could not {what}: {error}"))
}

fn profile(conditional: bool, datacenter: Option<&str>, nodes: &Arc<Nodes>) -> ExecutionProfileHandle {
    // Conditional writes of one partition go to the same node first. Alternating coordinators would
    // outbid each other's Paxos rounds.
    let mut policy = DefaultPolicy::builder().enable_shuffling_replicas(false);
    if let Some(datacenter) = datacenter {
        policy = policy.prefer_datacenter(datacenter.to_owned());
    }
    let policy = AroundUnresponsive::new(policy.build(), nodes.clone(), !conditional);
    let (least, most) = match conditional {
        true => (CONDITIONAL_ELSEWHERE_AFTER_MIN, CONDITIONAL_ELSEWHERE_AFTER_MAX),
        false => (ELSEWHERE_AFTER_MIN, ELSEWHERE_AFTER_MAX),
    };
    // Every statement of this store is repeatable, see `conditional`. An unresponsive node or a
    // broken connection therefore costs a moment only.
    let elsewhere = Patience { nodes: nodes.clone(), least, most };
    let profile = ExecutionProfile::builder()
        .consistency(Consistency::Quorum)
        .serial_consistency(Some(SerialConsistency::Serial))
        .request_timeout(Some(STATEMENT_TIMEOUT))
        .retry_policy(Arc::new(DefaultRetryPolicy::new()))
        .speculative_execution_policy(Some(Arc::new(elsewhere)))
        .load_balancing_policy(policy)
        .build();
    profile.into_handle()
}

/// Makes the error of a failed connection. Wrong credentials get a kind of their own, because a
/// retry will not help.
fn not_let_in(error: NewSessionError) -> Error {
    if let NewSessionError::MetadataError(MetadataError::ConnectionPoolError(ConnectionPoolError::Broken {
        last_connection_error: ConnectionError::ConnectionSetupRequestError(setup),
    })) = &error
        && let SetupError::MissingAuthentication
        | SetupError::DbError(DbError::AuthenticationError | DbError::Unauthorized, _) = setup.get_error()
    {
        let why = format!("the cluster requires a valid user and password: {setup}");
        return Error::new(ErrorKind::Unauthenticated, why);
    }
    failed("be reached", error)
}

/// Opens a session without a keyspace.
pub(crate) async fn connect(settings: &CassandraSettings) -> Result<Session> {
    connect_seeing(settings, &Arc::default()).await
}

/// Opens a session that records statistics of nodes.
async fn connect_seeing(settings: &CassandraSettings, nodes: &Arc<Nodes>) -> Result<Session> {
    let datacenter = settings.datacenter.as_deref();
    let mut builder = SessionBuilder::new()
        .known_nodes(&settings.hosts)
        .default_execution_profile_handle(profile(false, datacenter, nodes))
        .tls_context(settings.access.tls()?)
        .keepalive_interval(ALIVE_EVERY)
        .keepalive_timeout(ALIVE_WITHIN)
        // Token metadata of this keyspace only: a cluster may have thousands of tables.
        .keyspaces_to_fetch([settings.keyspace.as_str()])
        .fetch_schema_metadata(true);
    if let Some((user, password)) = settings.access.user_and_password()? {
        builder = builder.user(user, password);
    }
    builder.build().await.map_err(not_let_in)
}

/// Page of a slice: its rows, and the paging state after it.
pub(crate) struct Slice {
    pub rows: Vec<CqlRow>,
    pub next: Option<PagingState>,
}

/// Rows of a statement, page by page.
pub(crate) struct Pages<B> {
    bound: B,
    rows: i32,
    /// Paging state of the next page; none at the end.
    from: Option<Option<PagingState>>,
}

impl<B: Borrow<Bound>> Pages<B> {
    /// Reads pages of `rows` rows.
    pub(crate) fn of(bound: B, rows: i32) -> Self {
        Pages { bound, rows, from: Some(None) }
    }

    /// Returns the next page; none at the end.
    pub(crate) async fn next(&mut self, cluster: &Cluster) -> Result<Option<Vec<CqlRow>>> {
        let Some(from) = self.from.take() else { return Ok(None) };
        let page = cluster.slice_of(self.bound.borrow(), from, self.rows).await?;
        self.from = page.next.map(Some);
        Ok(Some(page.rows))
    }

    pub(crate) fn ended(&self) -> bool {
        self.from.is_none()
    }
}

impl Cluster {
    pub(crate) async fn open(settings: &CassandraSettings, faults: Option<Arc<dyn Faults>>) -> Result<Self> {
        let nodes = Arc::default();
        let session = connect_seeing(settings, &nodes).await?;
        let keyspace = settings.keyspace.as_str();
        if session.get_cluster_state().get_keyspace(keyspace).is_none() {
            let why = format!("the cluster has no keyspace {keyspace}: exacat schema create makes one");
            return Err(Error::not_found(why));
        }
        let used = session.use_keyspace(keyspace, true).await;
        used.map_err(|error| failed("open the keyspace", error))?;
        Ok(Cluster {
            session,
            conditional: profile(true, settings.datacenter.as_deref(), &nodes),
            faults,
            prepared: RwLock::default(),
            preparing: tokio::sync::Mutex::default(),
            metrics: Arc::default(),
            nodes,
        })
    }

    /// Sends a statement, or loses it or its answer, as the test wants.
    async fn sent<T>(
        &self,
        kind: StatementKind,
        statement: impl Future<Output = std::result::Result<T, impl std::fmt::Display>>,
    ) -> Result<T> {
        use RequestState::{ClusterAppend, ClusterRead};
        let (what, counted, state) = match kind {
            StatementKind::Read => ("read", Sent::Read, ClusterRead),
            StatementKind::Write => ("write", Sent::Write, ClusterAppend),
            StatementKind::Conditional => ("append to the log", Sent::Conditional, ClusterAppend),
        };
        let fate = self.faults.as_ref().map_or(Fate::Answered, |faults| faults.fate(kind));
        if fate == Fate::LostBefore {
            return Err(failed(what, "a test lost the statement"));
        }
        self.metrics.sent(counted);
        let began = Instant::now();
        let answer = on(state, statement).await;
        self.metrics.took(counted, began.elapsed());
        let answer = answer.map_err(|error| failed(what, error))?;
        match fate {
            Fate::LostAfter => Err(failed(what, "a test lost the answer")),
            Fate::Answered | Fate::LostBefore => Ok(answer),
        }
    }

    /// Returns a statement, prepared once. The driver prepares it on all nodes, and would wait for
    /// an unresponsive one until it gives the connection up. So each attempt has a time limit.
    async fn prepared(&self, text: Text) -> Result<PreparedStatement> {
        let found = || self.prepared.read().get(&text).cloned();
        if let Some(statement) = found() {
            return Ok(statement);
        }
        // One at a time: many callers of one statement would each prepare it on all nodes.
        let _one = self.preparing.lock().await;
        let mut attempts = Attempts::of(READ_ATTEMPTS_MAX);
        loop {
            if let Some(statement) = found() {
                return Ok(statement);
            }
            let error =
                match tokio::time::timeout(STATEMENT_TIMEOUT, self.session.prepare(text.as_str())).await {
                    Ok(Ok(mut statement)) => {
                        statement.set_page_size(SLICE_ROWS);
                        statement.set_is_idempotent(true);
                        statement.set_history_listener(self.nodes.clone());
                        self.prepared.write().insert(text, statement.clone());
                        return Ok(statement);
                    }
                    Ok(Err(error)) => failed("prepare a statement", error),
                    Err(_) => failed("prepare a statement", "a node does not answer"),
                };
            attempts.after(error).await?;
        }
    }

    /// Prepares a statement for later callers.
    pub(crate) async fn prepare(&self, text: Text) -> Result<()> {
        self.prepared(text).await.map(drop)
    }

    /// Reads all rows of a statement that is known to have few.
    pub(crate) async fn read(&self, bound: &Bound) -> Result<Vec<CqlRow>> {
        let mut pages = Pages::of(bound, SLICE_ROWS);
        let mut rows = Vec::new();
        while let Some(more) = pages.next(self).await? {
            rows.extend(more);
        }
        Ok(rows)
    }

    /// Reads one page.
    pub(crate) async fn slice(&self, bound: &Bound, from: Option<PagingState>) -> Result<Slice> {
        let statement = self.prepared(bound.text).await?;
        self.page(&statement, &bound.values, from).await
    }

    /// Reads one page of at most `rows` rows: for large rows.
    pub(crate) async fn slice_of(
        &self,
        bound: &Bound,
        from: Option<PagingState>,
        rows: i32,
    ) -> Result<Slice> {
        let mut statement = self.prepared(bound.text).await?;
        statement.set_page_size(rows);
        self.page(&statement, &bound.values, from).await
    }

    /// Reads one page, again if the cluster fails: a repeated read does no harm.
    async fn page(
        &self,
        statement: &PreparedStatement,
        values: &Values,
        from: Option<PagingState>,
    ) -> Result<Slice> {
        let mut attempts = Attempts::of(READ_ATTEMPTS_MAX);
        loop {
            match self.page_once(statement, values, from.clone()).await {
                Err(error) if error.kind == ErrorKind::Unavailable => {
                    attempts.after(error).await?;
                    self.metrics.read_again();
                }
                other => return other,
            }
        }
    }

    async fn page_once(
        &self,
        statement: &PreparedStatement,
        values: &Values,
        from: Option<PagingState>,
    ) -> Result<Slice> {
        let from = from.unwrap_or_else(PagingState::start);
        let question = self.session.execute_single_page(statement, values, from);
        let (result, paging) = self.sent(StatementKind::Read, question).await?;
        let result = result.into_rows_result().map_err(|error| failed("read", error))?;
        let rows = result.rows::<CqlRow>().map_err(|error| failed("read", error))?;
        let rows = rows.collect::<std::result::Result<Vec<_>, _>>().map_err(|error| failed("read", error))?;
        let next = match paging.into_paging_control_flow() {
            std::ops::ControlFlow::Break(()) => None,
            std::ops::ControlFlow::Continue(state) => Some(state),
        };
        Ok(Slice { rows, next })
    }

    /// Reads one row, by a serial read if `serial`.
    pub(crate) async fn read_one(&self, bound: &Bound, serial: bool) -> Result<Option<Columns>> {
        let mut statement = self.prepared(bound.text).await?;
        if serial {
            statement.set_consistency(Consistency::Serial);
        }
        let slice = self.page(&statement, &bound.values, None).await?;
        Ok(slice.rows.into_iter().next().map(Columns::new))
    }

    /// Reads one row from as many replicas as this level requires.
    pub(crate) async fn read_one_at(
        &self,
        bound: &Bound,
        level: exacat_model::Consistency,
    ) -> Result<Option<Columns>> {
        let mut statement = self.prepared(bound.text).await?;
        statement.set_consistency(match level {
            exacat_model::Consistency::One => Consistency::One,
            exacat_model::Consistency::LocalQuorum => Consistency::LocalQuorum,
            exacat_model::Consistency::Quorum | exacat_model::Consistency::Latest => Consistency::Quorum,
        });
        let slice = self.page(&statement, &bound.values, None).await?;
        Ok(slice.rows.into_iter().next().map(Columns::new))
    }

    /// Writes at this moment of the log. Of two writes of a row the later moment wins, in whatever
    /// order they arrive, and however often.
    pub(crate) async fn write(&self, bound: &Bound, moment: i64) -> Result<()> {
        let mut statement = self.prepared(bound.text).await?;
        statement.set_timestamp(Some(moment));
        let write = self.session.execute_unpaged(&statement, &bound.values);
        self.sent(StatementKind::Write, write).await.map(drop)
    }

    /// Writes rows of one partition together, at this moment.
    pub(crate) async fn write_together(&self, bounds: &[Bound], moment: i64) -> Result<()> {
        if let [one] = bounds {
            return self.write(one, moment).await;
        }
        let mut batch = Batch::new(BatchType::Unlogged);
        batch.set_is_idempotent(true);
        batch.set_history_listener(self.nodes.clone());
        batch.set_timestamp(Some(moment));
        for bound in bounds {
            batch.append_statement(self.prepared(bound.text).await?);
        }
        let values: Vec<&Values> = bounds.iter().map(|bound| &bound.values).collect();
        self.sent(StatementKind::Write, self.session.batch(&batch, values)).await.map(drop)
    }

    /// Sends one conditional batch and says whether it was applied. An error leaves that open. So
    /// does false: the driver may have sent the batch twice, and lost the answer of the first,
    /// applied one. It is never applied twice, because its condition no longer holds afterwards.
    pub(crate) async fn conditional(&self, bounds: &[Bound]) -> Result<bool> {
        let mut batch = Batch::new(BatchType::Unlogged);
        batch.set_is_idempotent(true);
        batch.set_execution_profile_handle(Some(self.conditional.clone()));
        batch.set_history_listener(self.nodes.clone());
        for bound in bounds {
            batch.append_statement(self.prepared(bound.text).await?);
        }
        let values: Vec<&Values> = bounds.iter().map(|bound| &bound.values).collect();
        let result = self.sent(StatementKind::Conditional, self.session.batch(&batch, values)).await?;
        let result = result.into_rows_result().map_err(|error| failed("append to the log", error))?;
        // By name: the other columns differ between servers and outcomes.
        let place = result.column_specs().iter().position(|column| column.name() == "[applied]");
        let row: CqlRow = result.first_row().map_err(|error| failed("append to the log", error))?;
        match place.and_then(|place| row.columns.into_iter().nth(place)).flatten() {
            Some(CqlValue::Boolean(applied)) => Ok(applied),
            _ => Err(failed("append to the log", "it did not say whether it did")),
        }
    }

    /// Returns the number of nodes, and those that this server is not connected to.
    pub(crate) fn nodes_away(&self) -> (u64, Vec<String>) {
        let state = self.session.get_cluster_state();
        let nodes = state.get_nodes_info();
        let away = nodes.iter().filter(|node| !node.is_connected()).map(|node| node.address.to_string());
        (nodes.len() as u64, away.collect())
    }

    /// Runs many reads at once, `STATEMENTS_IN_FLIGHT` (64) in flight. Results keep the order.
    pub(crate) async fn all<T, F: Future<Output = Result<T>>>(
        work: impl IntoIterator<Item = F>,
    ) -> Result<Vec<T>> {
        Self::some_of(STATEMENTS_IN_FLIGHT, work).await
    }

    /// Runs futures with at most `in_flight` at once. Results keep the order.
    pub(crate) async fn some_of<T, F: Future<Output = Result<T>>>(
        in_flight: usize,
        work: impl IntoIterator<Item = F>,
    ) -> Result<Vec<T>> {
        let mut results = futures::stream::iter(work).buffered(in_flight);
        let mut all = Vec::new();
        while let Some(result) = results.next().await {
            all.push(result?);
        }
        Ok(all)
    }
}

/// CQL timestamp of rows written by the group that ends with this change. Deletions of whole
/// partitions have one less, so that rows which the same group puts there again stay.
pub(crate) fn moment(last: Revision, whole_partition: bool) -> i64 {
    let moment = last.0.saturating_mul(2).saturating_add(u64::from(!whole_partition));
    i64::try_from(moment).unwrap_or(i64::MAX)
}
