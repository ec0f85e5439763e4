//! Every statement of this store, and that all of them are prepared when a server opens, before anything needs them: each is prepared on all
//! nodes, and the driver waits for all of them, also for one that is stuck. What was first needed then would wait until the node is given up.

use std::collections::BTreeSet;

use crate::cluster::Cluster;

/// A statement's words. Only [`cql`] makes one, and what it makes is prepared.
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

/// A statement's words, wherever they stand, and a place for them in the list of all.
macro_rules! cql {
    ($text:literal) => {{
        inventory::submit! { $crate::preparing::Text::listed($text) }
        $crate::preparing::Text::listed($text)
    }};
}
pub(crate) use cql;

/// All there are.
fn texts() -> BTreeSet<Text> {
    inventory::iter::<Text>.into_iter().copied().collect()
}

/// Prepares them. What cannot be prepared now is when it is needed.
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

    /// Goal: statements of all the files are in the list, whatever they do.
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
