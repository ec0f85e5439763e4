//! Schema of the tables: creates, checks and upgrades it. The files of `schema/` are its versions.

use std::sync::Arc;

use exacat_model::{Body, DirId, Error, ErrorKind, Guid, Result, Revision, Usage};
use exacat_store::{UsageOf, rules};
use scylla::client::session::Session;
use scylla::statement::unprepared::Statement;
use scylla::value::{CqlValue, Row as CqlRow};

use crate::cluster::{Cluster, connect, failed};
use crate::limits::{SCHEMA_ATTEMPTS_MAX, SCHEMA_TIMEOUT};
use crate::retry::Attempts;
use crate::row_cache::Frozen;
use crate::rows::{AfterImage, Counted, Key, Row, Totals, Where};
use crate::settings::CassandraSettings;
use crate::{flush, log};

/// Versions of the tables, with the statements that lead to each from the one before. The first has
/// all tables of its time. Keyspaces of versions before it were never released.
const VERSIONS: [(u32, &str); 3] = [
    (5, include_str!("../schema/5.cql")),
    (6, include_str!("../schema/6.cql")),
    (7, include_str!("../schema/7.cql")),
];
/// Version of this program.
const VERSION: u32 = VERSIONS[VERSIONS.len() - 1].0;

/// Bytes of the replication that an operator may give.
const REPLICATION_BYTES_MAX: usize = 1024;

/// Result of reading a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaStatus {
    /// Version of the tables; none if there is no catalogue.
    pub found: Option<u32>,
    /// Version of this program.
    pub known: u32,
    /// Id of the catalogue, the same for all its servers.
    pub catalogue: Option<Guid>,
}

/// Splits a file at semicolons into statements, without comments.
fn statements(file: &str) -> Vec<String> {
    let lines = file.lines().map(|line| line.split("--").next().unwrap_or_default());
    let text: Vec<&str> = lines.collect();
    let parts = text.join("\n");
    parts.split(';').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

/// Runs a schema statement. It may take long, because all nodes take part.
async fn run(session: &Session, words: &str) -> Result<()> {
    let mut statement = Statement::new(words);
    statement.set_request_timeout(Some(SCHEMA_TIMEOUT));
    let done = session.query_unpaged(statement, ()).await;
    done.map(drop).map_err(|error| failed(&format!("do: {words:.60}…"), error))
}

/// Error texts of Cassandra and ScyllaDB when a column is added a second time, and when one is
/// dropped a second time.
const COLUMN_IS_THERE: [&str; 2] = ["already exists", "conflicts with an existing column"];
const COLUMN_IS_GONE: [&str; 2] = ["was not found", "not found in table"];

/// Says whether the error means that the statement was carried out before.
fn was_done(words: &str, error: &Error) -> bool {
    let said = |texts: [&str; 2]| texts.iter().any(|text| error.message.contains(text));
    words.contains(" ADD ") && said(COLUMN_IS_THERE) || words.contains(" DROP ") && said(COLUMN_IS_GONE)
}

/// Repeats a statement until it succeeds, but not before all nodes agree on the schema. If two
/// nodes create a table at once, each has a table of its own, and rows in one of these are lost.
async fn run_again(session: &Session, words: &str) -> Result<()> {
    let mut attempts = Attempts::of(SCHEMA_ATTEMPTS_MAX);
    loop {
        match run(session, words).await {
            // An earlier attempt did it.
            Err(error) if was_done(words, &error) => return Ok(()),
            Err(error) => {
                tracing::warn!(%error, "a statement about tables failed");
                attempts.after(error).await?;
                agreed(session).await?;
            }
            Ok(()) => return Ok(()),
        }
    }
}

/// Waits until all nodes agree on the schema.
async fn agreed(session: &Session) -> Result<()> {
    let waiting = tokio::time::timeout(SCHEMA_TIMEOUT, session.await_schema_agreement());
    match waiting.await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(failed("agree on its tables", error)),
        Err(_) => Err(failed("agree on its tables", "some nodes do not answer")),
    }
}

async fn version_of(session: &Session, keyspace: &str) -> Result<Option<(u32, Guid)>> {
    let question = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?";
    let found = session.query_unpaged(question, (keyspace, "schema_version")).await;
    let found = found.map_err(|error| failed("be asked for the tables", error))?;
    if found.into_rows_result().map_or(0, |rows| rows.rows_num()) == 0 {
        return Ok(None);
    }
    let question = format!("SELECT version, catalogue FROM \"{keyspace}\".schema_version WHERE id = 0");
    let result =
        session.query_unpaged(question, ()).await.map_err(|error| failed("read the version", error))?;
    let rows = result.into_rows_result().map_err(|error| failed("read the version", error))?;
    let row: Option<CqlRow> = rows.maybe_first_row().map_err(|error| failed("read the version", error))?;
    let mut columns = row.map(|row| row.columns).unwrap_or_default().into_iter().flatten();
    match (columns.next(), columns.next()) {
        (Some(CqlValue::Int(version)), Some(CqlValue::Uuid(id))) => {
            Ok(Some((version as u32, Guid(id.into_bytes()))))
        }
        // The schema was begun, and not finished.
        _ => Ok(None),
    }
}

/// Reads the version of the tables.
pub async fn check_schema(settings: &CassandraSettings) -> Result<SchemaStatus> {
    status_of(&connect(settings).await?, &settings.keyspace).await
}

/// Reads the version over an open session.
pub(crate) async fn status_of(session: &Session, keyspace: &str) -> Result<SchemaStatus> {
    let found = version_of(session, keyspace).await?;
    let version = found.map(|(version, _)| version);
    Ok(SchemaStatus { found: version, known: VERSION, catalogue: found.map(|(_, id)| id) })
}

/// Creates the keyspace and the tables, with the catalogue of clause N1 in it. `replication` is in
/// CQL's form, such as `{'class': 'NetworkTopologyStrategy', 'dc1': 3}`. It completes an attempt
/// that ended halfway.
pub async fn create_schema(settings: &CassandraSettings, replication: &str) -> Result<()> {
    let map = replication.trim();
    let plain = map.len() <= REPLICATION_BYTES_MAX
        && map.starts_with('{')
        && map.ends_with('}')
        && map.chars().all(|one| one.is_ascii_alphanumeric() || " {}':,_-.".contains(one));
    if !plain {
        return Err(Error::invalid(format!(
            "not a replication: {map:.100?}; give it as {{'class': 'NetworkTopologyStrategy', 'DATACENTER': 3}}"
        )));
    }
    let session = connect(settings).await?;
    let keyspace = &settings.keyspace;
    if let Some((version, _)) = version_of(&session, keyspace).await? {
        return Err(Error::new(
            ErrorKind::Exists,
            format!("keyspace {keyspace} has a catalogue already, of schema version {version}"),
        ));
    }
    run_again(
        &session,
        &format!(
            "CREATE KEYSPACE IF NOT EXISTS \"{keyspace}\" WITH replication = {map} AND durable_writes = true"
        ),
    )
    .await?;
    session.use_keyspace(keyspace, true).await.map_err(|error| failed("open the keyspace", error))?;
    for (_, file) in VERSIONS {
        carry_out(&session, file).await?;
    }
    fill(&Cluster::open(settings, None).await?).await?;
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| failed("be given an id: no randomness", error))?;
    let id = Guid(id);
    // Last: a program that finds the version finds all tables. If two programs create the catalogue
    // at once, one of them sets its id.
    run(
        &session,
        &format!(
            "INSERT INTO schema_version (id, version, catalogue) VALUES (0, {VERSION}, {id}) IF NOT EXISTS"
        ),
    )
    .await
}

/// Runs the statements of a version's file. Repeating finished ones does no harm.
async fn carry_out(session: &Session, file: &str) -> Result<()> {
    for statement in statements(file) {
        run_again(session, &statement.replacen("CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ", 1)).await?;
    }
    agreed(session).await
}

/// Writes the rows of a new catalogue, of revision 0.
async fn fill(cluster: &Cluster) -> Result<()> {
    let root = rules::new_root();
    let directories = Usage { directories: 1, ..Usage::default() };
    let account = |of| AfterImage {
        key: Key::Account(of),
        row: Some(Row::Account(Counted { usage: directories, ..Counted::default() })),
    };
    let mut after_images = vec![
        account(UsageOf::User(root.owner)),
        account(UsageOf::Group(root.group)),
        AfterImage { key: Key::Place(root.id()), row: Some(Row::Place(Where::At(root.at.clone()))) },
        AfterImage {
            key: Key::Totals,
            row: Some(Row::Totals(Totals { next_directory: DirId::ROOT.0 + 1, ..Totals::default() })),
        },
    ];
    debug_assert!(matches!(root.body, Body::Directory(DirId::ROOT)));
    after_images.push(AfterImage { key: Key::root(), row: Some(Row::Entry(root)) });
    after_images.extend(rules::new_records().map(|record| AfterImage {
        key: Key::Record(record.key()),
        row: Some(Row::Record { record, revision: Revision(0) }),
    }));
    let rows = after_images
        .into_iter()
        .map(|after_image| (after_image.key, after_image.row.map(Arc::new), 0))
        .collect();
    flush::flush(cluster, &Frozen { up_to: Revision(0), rows }).await?;
    log::begin(cluster, 1, None).await
}

/// Upgrades the tables to this program's version, one version after the other. Returns the status
/// before. It completes an attempt that ended halfway. Servers of either release may continue
/// meanwhile, unless the file of a version excludes that.
pub async fn upgrade_schema(settings: &CassandraSettings) -> Result<SchemaStatus> {
    let session = connect(settings).await?;
    let before = status_of(&session, &settings.keyspace).await?;
    let from = before.upgradable(settings)?;
    session
        .use_keyspace(&settings.keyspace, true)
        .await
        .map_err(|error| failed("open the keyspace", error))?;
    for (number, file) in VERSIONS.into_iter().filter(|(number, _)| *number > from) {
        carry_out(&session, file).await?;
        let was = number - 1;
        run(
            &session,
            &format!("UPDATE schema_version SET version = {number} WHERE id = 0 IF version = {was}"),
        )
        .await?;
    }
    Ok(before)
}

impl SchemaStatus {
    /// Refuses tables of a version that this program cannot use.
    pub fn usable(&self, settings: &CassandraSettings) -> Result<()> {
        let keyspace = &settings.keyspace;
        match self.found {
            None => Err(Error::not_found(format!(
                "there is no catalogue in keyspace {keyspace}: exacat schema create makes one"
            ))),
            Some(found) if found > self.known || found == 0 => Err(Error::invalid(format!(
                "the tables of keyspace {keyspace} are of version {found}, this program knows up to {}: use a later release",
                self.known
            ))),
            Some(found) if found < VERSIONS[0].0 => Err(Error::invalid(format!(
                "the tables of keyspace {keyspace} are of version {found}, which was never released: create a new catalogue \
                 in another keyspace, and import an export into it"
            ))),
            Some(found) if found < self.known => Err(Error::invalid(format!(
                "the tables of keyspace {keyspace} are of version {found}, this program works on version {}: exacat schema upgrade brings them there",
                self.known
            ))),
            Some(_) => Ok(()),
        }
    }

    /// Returns the version found, if this program can upgrade from there.
    fn upgradable(&self, settings: &CassandraSettings) -> Result<u32> {
        match self.found {
            Some(found) if (VERSIONS[0].0..=self.known).contains(&found) => Ok(found),
            _ => self.usable(settings).map(|()| self.known),
        }
    }
}

/// Resets the catalogue for tests: everything in it is lost. After a failure the keyspace is of no
/// use, because a truncation may still take effect late.
pub async fn clear_schema(settings: &CassandraSettings) -> Result<()> {
    let session = connect(settings).await?;
    session
        .use_keyspace(&settings.keyspace, true)
        .await
        .map_err(|error| failed("open the keyspace", error))?;
    let tables: Vec<String> = VERSIONS
        .iter()
        .flat_map(|(_, file)| statements(file))
        .filter(|statement| statement.starts_with("CREATE TABLE "))
        .filter_map(|statement| statement.split_whitespace().nth(2).map(str::to_owned))
        .filter(|table| table != "schema_version")
        .collect();
    // One after the other: each truncation has every node flush its memtables.
    for table in tables.iter().filter(|table| *table != "log") {
        run(&session, &format!("TRUNCATE {table}")).await?;
    }
    // Paxos keeps its state beside the table, and may write it into the truncated table again. So
    // the log is created anew.
    run(&session, "DROP TABLE log").await?;
    agreed(&session).await?;
    let of_log = |one: &String| one.starts_with("CREATE TABLE log ") || one.starts_with("ALTER TABLE log ");
    for statement in VERSIONS.iter().flat_map(|(_, file)| statements(file)).filter(of_log) {
        run(&session, &statement).await?;
    }
    agreed(&session).await?;
    fill(&Cluster::open(settings, None).await?).await
}

/// Drops the keyspace for tests. There is no way back.
pub async fn drop_schema(settings: &CassandraSettings) -> Result<()> {
    let session = connect(settings).await?;
    run_again(&session, &format!("DROP KEYSPACE IF EXISTS \"{}\"", settings.keyspace)).await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn files_are_parted_into_statements() {
        let parts = statements(VERSIONS[0].1);
        assert_eq!(parts.len(), 20);
        for part in parts {
            assert!(
                part.starts_with("CREATE TABLE ") && part.contains("speculative_retry = '10ms'"),
                "{part}"
            );
            // ScyllaDB allows at most 48 characters in a name.
            let name = part.split_whitespace().nth(2).unwrap();
            assert!(name.len() <= 48, "{name}");
        }
    }

    /// Goal: this program works on its own version, upgrades released ones, and refuses all others.
    #[test]
    fn tables_of_other_versions_are_refused() {
        let settings = CassandraSettings::new("h", "k").unwrap();
        let status = |found| SchemaStatus { found, known: VERSION, catalogue: None };
        assert!(status(Some(VERSION)).usable(&settings).is_ok());
        assert_eq!(status(Some(VERSION)).upgradable(&settings).unwrap(), VERSION);
        let bad = [
            (None, ErrorKind::NotFound),
            (Some(0), ErrorKind::Invalid),
            (Some(VERSIONS[0].0 - 1), ErrorKind::Invalid),
            (Some(VERSION + 1), ErrorKind::Invalid),
        ];
        for (found, kind) in bad {
            assert_eq!(status(found).usable(&settings).unwrap_err().kind, kind);
            assert_eq!(status(found).upgradable(&settings).unwrap_err().kind, kind);
        }
        let earlier = VERSIONS[0].0;
        assert!(status(Some(earlier)).usable(&settings).unwrap_err().message.contains("schema upgrade"));
        assert_eq!(status(Some(earlier)).upgradable(&settings).unwrap(), earlier);
        assert!(VERSIONS.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0), "no version is left out");
    }
}
