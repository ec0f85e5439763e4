//! The connection to the cluster: statements prepared once, with their consistency, and what comes back as rows.

use std::collections::HashMap;
use std::sync::Arc;

use exacat_model::{Error, ErrorKind, Result, Revision};
use futures::StreamExt;
use parking_lot::RwLock;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::policies::load_balancing::DefaultPolicy;
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::response::PagingState;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};
use scylla::value::{CqlValue, Row as CqlRow};

use crate::figures::Figures;
use crate::limits::{SLICE_ROWS, STATEMENT_TIMEOUT};
use crate::settings::CassandraSettings;
use crate::tables::{Bound, Columns, Values};

/// What becomes of a statement, as a test wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is sent, and its answer comes back.
    Answered,
    /// It never arrives.
    LostBefore,
    /// It is carried out, and its answer is lost.
    LostAfter,
}

/// What a statement does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// It reads.
    Read,
    /// It writes to the tables, or says that this was done.
    Write,
    /// It is a conditional batch: an append to the log.
    Conditional,
}

/// The way to the cluster, as far as a test can make it fail.
pub trait Faults: Send + Sync + 'static {
    /// What becomes of the next statement.
    fn fate(&self, kind: StatementKind) -> Fate;
}

/// A session in the catalogue's keyspace.
pub(crate) struct Cluster {
    session: Session,
    faults: Option<Arc<dyn Faults>>,
    prepared: RwLock<HashMap<&'static str, PreparedStatement>>,
    pub figures: Arc<Figures>,
}

/// What the cluster said to an error.
pub(crate) fn failed(what: &str, error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the cluster could not {what}: {error}"))
}

/// Opens a session, without a keyspace.
pub(crate) async fn connect(settings: &CassandraSettings) -> Result<Session> {
    // Conditional writes of one partition go to the same node first: coordinators that take turns outbid each other.
    let policy = DefaultPolicy::builder().enable_shuffling_replicas(false).build();
    let profile = ExecutionProfile::builder()
        .consistency(Consistency::Quorum)
        .serial_consistency(Some(SerialConsistency::Serial))
        .request_timeout(Some(STATEMENT_TIMEOUT))
        .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
        .load_balancing_policy(policy)
        .build();
    let builder = SessionBuilder::new()
        .known_nodes(&settings.hosts)
        .default_execution_profile_handle(profile.into_handle())
        .fetch_schema_metadata(true);
    builder.build().await.map_err(|error| failed("be reached", error))
}

/// What a page of a slice gives: its rows, and where it goes on.
pub(crate) struct Slice {
    pub rows: Vec<CqlRow>,
    pub next: Option<PagingState>,
}

impl Cluster {
    pub async fn open(settings: &CassandraSettings, faults: Option<Arc<dyn Faults>>) -> Result<Self> {
        let session = connect(settings).await?;
        session
            .use_keyspace(settings.keyspace.as_str(), true)
            .await
            .map_err(|error| failed("open the keyspace (exacat schema create makes one)", error))?;
        Ok(Cluster { session, faults, prepared: RwLock::default(), figures: Arc::default() })
    }

    /// Sends a statement, or loses it or its answer.
    async fn sent<T>(
        &self,
        kind: StatementKind,
        statement: impl Future<Output = std::result::Result<T, impl std::fmt::Display>>,
    ) -> Result<T> {
        let (what, counter): (_, fn(&Figures)) = match kind {
            StatementKind::Read => ("read", Figures::read),
            StatementKind::Write => ("write", Figures::write),
            StatementKind::Conditional => ("append to the log", Figures::conditional),
        };
        let fate = self.faults.as_ref().map_or(Fate::Answered, |faults| faults.fate(kind));
        if fate == Fate::LostBefore {
            return Err(failed(what, "a test lost the statement"));
        }
        counter(&self.figures);
        let answer = statement.await.map_err(|error| failed(what, error))?;
        match fate {
            Fate::LostAfter => Err(failed(what, "a test lost the answer")),
            Fate::Answered | Fate::LostBefore => Ok(answer),
        }
    }

    async fn prepared(&self, text: &'static str) -> Result<PreparedStatement> {
        if let Some(statement) = self.prepared.read().get(text) {
            return Ok(statement.clone());
        }
        let mut statement =
            self.session.prepare(text).await.map_err(|error| failed("prepare a statement", error))?;
        statement.set_page_size(SLICE_ROWS);
        statement.set_is_idempotent(true);
        self.prepared.write().insert(text, statement.clone());
        Ok(statement)
    }

    /// Reads: all rows, for what is known to have few.
    pub async fn read(&self, bound: &Bound) -> Result<Vec<CqlRow>> {
        let mut rows = Vec::new();
        let mut state = None;
        loop {
            let slice = self.slice(bound, state).await?;
            rows.extend(slice.rows);
            state = slice.next;
            if state.is_none() {
                return Ok(rows);
            }
        }
    }

    /// Reads one page.
    pub async fn slice(&self, bound: &Bound, from: Option<PagingState>) -> Result<Slice> {
        let statement = self.prepared(bound.text).await?;
        self.page(&statement, &bound.values, from).await
    }

    async fn page(
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

    /// Reads one row with a statement of this consistency.
    pub async fn read_one(&self, bound: &Bound, serial: bool) -> Result<Option<Columns>> {
        let mut statement = self.prepared(bound.text).await?;
        if serial {
            statement.set_consistency(Consistency::Serial);
        }
        let slice = self.page(&statement, &bound.values, None).await?;
        Ok(slice.rows.into_iter().next().map(Columns::new))
    }

    /// Writes, as of this moment of the log: of two writes of a row the one of the later moment counts, in whatever order they
    /// come, and however often.
    pub async fn write(&self, bound: &Bound, moment: i64) -> Result<()> {
        let mut statement = self.prepared(bound.text).await?;
        statement.set_timestamp(Some(moment));
        let write = self.session.execute_unpaged(&statement, &bound.values);
        self.sent(StatementKind::Write, write).await.map(drop)
    }

    /// Writes rows of one partition together, as of this moment.
    pub async fn write_together(&self, bounds: &[&Bound], moment: i64) -> Result<()> {
        if let [one] = bounds {
            return self.write(one, moment).await;
        }
        let mut batch = Batch::new(BatchType::Unlogged);
        batch.set_is_idempotent(true);
        batch.set_timestamp(Some(moment));
        for bound in bounds {
            batch.append_statement(self.prepared(bound.text).await?);
        }
        let values: Vec<&Values> = bounds.iter().map(|bound| &bound.values).collect();
        self.sent(StatementKind::Write, self.session.batch(&batch, values)).await.map(drop)
    }

    /// One conditional batch. Was it applied? An error says nothing about that.
    pub async fn conditional(&self, bounds: &[Bound]) -> Result<bool> {
        let mut batch = Batch::new(BatchType::Unlogged);
        batch.set_is_idempotent(false);
        for bound in bounds {
            batch.append_statement(self.prepared(bound.text).await?);
        }
        let values: Vec<&Values> = bounds.iter().map(|bound| &bound.values).collect();
        let result = self.sent(StatementKind::Conditional, self.session.batch(&batch, values)).await?;
        let result = result.into_rows_result().map_err(|error| failed("append to the log", error))?;
        // What other columns come along differs between servers and outcomes.
        let place = result.column_specs().iter().position(|column| column.name() == "[applied]");
        let row: CqlRow = result.first_row().map_err(|error| failed("append to the log", error))?;
        match place.and_then(|place| row.columns.into_iter().nth(place)).flatten() {
            Some(CqlValue::Boolean(applied)) => Ok(applied),
            _ => Err(failed("append to the log", "it did not say whether it did")),
        }
    }

    /// Many reads at once, as many in flight as is good; results in the order of the questions.
    pub async fn all<T, F: Future<Output = Result<T>>>(work: impl IntoIterator<Item = F>) -> Result<Vec<T>> {
        let mut results = futures::stream::iter(work).buffered(crate::limits::STATEMENTS_IN_FLIGHT);
        let mut all = Vec::new();
        while let Some(result) = results.next().await {
            all.push(result?);
        }
        Ok(all)
    }
}

/// The moment of rows written by the group that ends with this change. One is left before it for taking away whole partitions, so that what
/// the same group put into them again stays.
pub(crate) fn moment(last: Revision, whole_partition: bool) -> i64 {
    let moment = last.0.saturating_mul(2).saturating_add(u64::from(!whole_partition));
    i64::try_from(moment).unwrap_or(i64::MAX)
}
