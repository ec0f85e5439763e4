//! Prepares all statements of this store when a server opens, before any request needs them.
//!
//! The driver prepares a statement on all nodes and waits for all of them, also for an unresponsive
//! one. The first request would otherwise wait until that node is given up.

use crate::cluster::Cluster;
use crate::statement::texts;

/// Prepares all statements. After a failure the rest are prepared when they are needed.
pub(crate) async fn prepare_all(cluster: &Cluster) {
    for text in texts() {
        if let Err(error) = cluster.prepare(text).await {
            tracing::warn!(%error, "statements could not all be prepared: the first of each kind may be late");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: statements of all files are in the list, whatever they do.
    #[test]
    fn every_statement_is_listed() {
        let texts = texts();
        for part in [
            "UPDATE log SET head = ?, tail = ?, next = ?",
            "SELECT changes FROM log",
            "DELETE FROM log",
            "INSERT INTO children",
            "DELETE FROM children",
            "SELECT parent, name FROM children",
            "INSERT INTO due_days",
            "token(parent, bucket)",
            "INSERT INTO operations",
        ] {
            assert!(texts.iter().any(|text| text.as_str().contains(part)), "{part}");
        }
        assert!(texts.len() > 70, "{}", texts.len());
    }
}
