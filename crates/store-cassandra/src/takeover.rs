//! The history of another catalogue taken over, change by change: so a catalogue comes here from another store, with everything in it as it
//! was. What the changes are is not decided again; that each follows the one before, and fits what is there, is looked at.
//!
//! It can be cut off at any point: the log says how far it came.

use std::sync::Arc;

use exacat_model::{Change, Error, ErrorKind, Result, Revision};
use exacat_store::Clock;

use crate::cluster::Cluster;
use crate::engine::Engine;
use crate::known::Known;
use crate::schema::status_of;
use crate::settings::CassandraSettings;
use crate::settler::Settler;

/// Takes changes over into a catalogue on a cluster, that nobody else changes meanwhile.
pub struct TakeOver {
    engine: Arc<Engine>,
    settler: Settler,
}

impl TakeOver {
    /// Opens the catalogue in a keyspace.
    pub async fn open(settings: &CassandraSettings, clock: Arc<dyn Clock>) -> Result<Self> {
        let cluster = Cluster::open(settings, None).await?;
        status_of(&cluster.session, &settings.keyspace).await?.usable(settings)?;
        let engine = Arc::new(Engine::open(cluster, settings, clock).await?);
        // What there is: looked through before anything is taken over, so that what is new need not be asked for.
        engine.clone().fill_filter().await;
        Ok(TakeOver { settler: Settler::new(engine.clone()), engine })
    }

    /// The last change that is there.
    pub fn head(&self) -> Revision {
        self.engine.known(Known::head)
    }

    /// Takes over what follows it. Once this returns it is in the log.
    pub async fn take(&mut self, changes: &[Change]) -> Result<()> {
        let head = self.head();
        if let Some(first) = changes.first()
            && first.revision.0 != head.0 + 1
        {
            let why = format!("change {} does not follow change {}, the last one", first.revision.0, head.0);
            return Err(Error::new(ErrorKind::Conflict, why));
        }
        let mut left = changes;
        while !left.is_empty() {
            let taken = self.engine.clone().take_over(left, &mut self.settler).await?;
            if taken == 0 {
                return Err(Error::new(ErrorKind::Internal, "changes are taken over, and none is"));
            }
            left = left.get(taken..).unwrap_or_default();
        }
        Ok(())
    }

    /// Waits until all of it is in the tables.
    pub async fn finish(mut self) -> Result<()> {
        self.settler.finish().await
    }
}
