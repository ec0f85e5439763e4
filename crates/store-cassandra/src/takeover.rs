//! Copies the history of another catalogue into this store, change by change and unaltered. It does
//! not decide the changes again. It checks that each follows the one before and fits the rows.
//!
//! A copy can be interrupted at any point: the log shows its progress.

use std::sync::Arc;

use exacat_model::{Change, Error, ErrorKind, Result, Revision};
use exacat_store::Clock;

use crate::appender::Appender;
use crate::cluster::Cluster;
use crate::follower::Follower;
use crate::maintenance::Maintenance;
use crate::reader::Reader;
use crate::row_cache::RowCache;
use crate::schema::status_of;
use crate::settings::CassandraSettings;

/// Copies changes into a catalogue on a cluster. No other program may change it meanwhile.
pub struct TakeOver {
    follower: Arc<Follower>,
    appender: Appender,
}

impl TakeOver {
    /// Opens the catalogue in a keyspace.
    pub async fn open(settings: &CassandraSettings, clock: Arc<dyn Clock>) -> Result<Self> {
        let cluster = Cluster::open(settings, None).await?;
        status_of(&cluster.session, &settings.keyspace).await?.usable(settings)?;
        let follower = Arc::new(Follower::open(cluster, settings, clock).await?);
        let maintenance = Arc::new(Maintenance::new(follower.clone()));
        // The filter is filled before the first change, so that new keys need no read.
        maintenance.fill_filter().await;
        let appender = Appender::new(Arc::new(Reader::new(follower.clone())), maintenance);
        Ok(TakeOver { follower, appender })
    }

    /// Last change in the catalogue.
    pub fn head(&self) -> Revision {
        self.follower.cache(RowCache::head)
    }

    /// Appends the changes that follow the head. They are in the log when this returns.
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
            let taken = self.appender.take_over(left).await?;
            if taken == 0 {
                return Err(Error::new(ErrorKind::Internal, "changes are taken over, and none is"));
            }
            left = left.get(taken..).unwrap_or_default();
        }
        Ok(())
    }

    /// Waits until all changes are in the tables.
    pub async fn finish(mut self) -> Result<()> {
        self.appender.finish().await
    }
}
