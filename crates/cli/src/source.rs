//! Source of an export or a digest: a server, or a data directory on this machine, or a snapshot in
//! it.

use std::sync::Arc;

use exacat_exchange::catalogue::Catalogue;
use exacat_exchange::local::Local;
use exacat_model::{Answer, Error, Operation};
use exacat_store::Store;
use exacat_store_embedded::LoadSettings;
use futures::Stream;
use futures::future::Either;

use crate::args::{CatalogueSource, Connection};
use crate::failure::Failure;
use crate::offline::Offline;

/// A catalogue that is read as a whole.
pub(crate) enum Source {
    /// Behind a server.
    Server(exacat_client::Client),
    /// Opened in this process.
    Here {
        /// The open store, for closing.
        offline: Offline,
        /// The catalogue over it.
        local: Arc<Local>,
    },
}

impl Source {
    /// Opens the source that `place` names.
    pub(crate) async fn open(connection: &Connection, place: &CatalogueSource) -> Result<Self, Failure> {
        let offline = match &place.snapshot {
            Some(name) => Offline::snapshot(connection, name).await?,
            None => {
                Offline::open_to_read(connection, "without --offline it is asked; or stop it first").await?
            }
        };
        let store = Arc::clone(&offline.store);
        let local = Local::open(store, Arc::clone(&offline.clock), LoadSettings::default())
            .await
            .map_err(|error| offline.about(error))?;
        Ok(Source::Here { offline, local })
    }

    /// Id of the catalogue, as its server shows it to clients; none if no server was ever started
    /// on the data directory.
    pub(crate) fn catalogue_id(&self) -> Option<String> {
        match self {
            Source::Server(client) => Some(client.server().catalogue.to_string()),
            Source::Here { offline, .. } => offline.catalogue_id(),
        }
    }

    /// Closes the source.
    pub(crate) async fn close(self) -> Result<(), Failure> {
        match self {
            Source::Server(_) => Ok(()),
            Source::Here { offline, .. } => offline.store.close().await.map_err(|error| offline.about(error)),
        }
    }
}

impl Catalogue for Source {
    async fn call(&self, operation: Operation) -> Result<Answer, Error> {
        match self {
            Source::Server(client) => Catalogue::call(client, operation).await,
            Source::Here { local, .. } => local.call(operation).await,
        }
    }

    fn stream(&self, operation: Operation) -> impl Stream<Item = Result<Answer, Error>> + Send {
        match self {
            Source::Server(client) => Either::Left(Catalogue::stream(client, operation)),
            Source::Here { local, .. } => Either::Right(local.stream(operation)),
        }
    }
}
