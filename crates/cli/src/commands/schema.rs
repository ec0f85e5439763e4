//! `schema`: the tables of a catalogue on a cluster.

use exacat_store_cassandra::{CassandraSettings, SchemaStatus, check_schema, create_schema, upgrade_schema};
use serde::Serialize;
use utoipa::ToSchema;

use crate::args::SchemaCommand;
use crate::failure::Failure;
use crate::output::{Out, Style};

/// `exacat schema`
pub(crate) async fn schema(command: SchemaCommand, style: Style) -> Result<u8, Failure> {
    let mut out = Out::new(style);
    let about = |cluster: &CassandraSettings, error| Failure::about(cluster.to_string(), error);
    let (cluster, done) = match command {
        SchemaCommand::Create { cluster, replication, reach } => {
            let cluster = reach.reaching(&cluster);
            create_schema(&cluster, &replication).await.map_err(|error| about(&cluster, error))?;
            (cluster, "made")
        }
        SchemaCommand::Check { cluster, reach } => (reach.reaching(&cluster), "checked"),
        SchemaCommand::Upgrade { cluster, reach } => {
            let cluster = reach.reaching(&cluster);
            upgrade_schema(&cluster).await.map_err(|error| about(&cluster, error))?;
            (cluster, "up to date")
        }
    };
    let status = check_schema(&cluster).await.map_err(|error| about(&cluster, error))?;
    show(&mut out, &cluster, &status, done)?;
    out.flush()?;
    status.usable(&cluster).map_err(|error| about(&cluster, error))?;
    Ok(0)
}

/// Schema of a cluster.
#[derive(Serialize, ToSchema)]
#[schema(as = Schema)]
pub(crate) struct SchemaView<'a> {
    /// Keyspace.
    keyspace: &'a str,
    /// Version of its tables; null if there is no catalogue.
    #[schema(required)]
    found: Option<u32>,
    /// Highest version that this program can serve.
    known: u32,
    /// Id of the catalogue.
    #[schema(required)]
    catalogue: Option<String>,
}

fn show(
    out: &mut Out,
    cluster: &CassandraSettings,
    status: &SchemaStatus,
    done: &str,
) -> Result<(), Failure> {
    if out.style.json {
        return out.json(&SchemaView {
            keyspace: &cluster.keyspace,
            found: status.found,
            known: status.known,
            catalogue: status.catalogue.map(|id| id.to_string()),
        });
    }
    let found = status.found.map_or("no catalogue".to_owned(), |version| format!("schema version {version}"));
    out.line(format!(
        "{}: {found}, {done}; this program knows up to version {}",
        cluster.keyspace, status.known
    ))
}
