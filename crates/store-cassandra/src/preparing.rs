//! List of all statements of this store. A server prepares them when it opens, before any request
//! needs them.
//!
//! The driver prepares a statement on all nodes and waits for all of them, also for an unresponsive
//! one. The first request would otherwise wait until that node is given up.

use std::collections::BTreeSet;

use crate::cluster::Cluster;

/// Text of a statement. Only [`cql`] makes one, and lists it for preparation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Text(&'static str);

inventory::collect!(Text);

impl Text {
    /// For [`cql`].
    pub const fn listed(text: &'static str) -> Self {
        Text(text)
    }

    pub fn as_str(self) -> &'static str {
        self.0
    }
}

/// Makes the text of a statement, and puts it into the list of all.
macro_rules! cql {
    ($text:literal) => {{
        inventory::submit! { $crate::preparing::Text::listed($text) }
        $crate::preparing::Text::listed($text)
    }};
}
pub(crate) use cql;

/// Lists all statements.
fn texts() -> BTreeSet<Text> {
    inventory::iter::<Text>.into_iter().copied().collect()
}

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
