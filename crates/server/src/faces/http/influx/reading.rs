//! Context of a statement that reads: its groups and its time; and how a statement fails.

use std::sync::Arc;

use exacat_history::Group;
use exacat_model::Error;

/// A statement that failed: its text in the answer.
pub(super) struct Failed(pub String);

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Failed(error.message)
    }
}

/// Outcome of a statement.
pub(super) type Done = Result<(), Failed>;

/// Groups that a statement reads.
pub(super) struct Reading {
    /// Its groups, in the order of their databases in the statement.
    pub groups: Vec<Arc<Group>>,
    /// Nanoseconds of now.
    pub now: i64,
    /// Database of the request.
    pub database: String,
}

impl Reading {
    /// Returns the group of a database; that of the request without a name.
    pub(super) fn group(&self, database: Option<&str>) -> Result<&Arc<Group>, Failed> {
        let name = database.unwrap_or(&self.database);
        let found = self.groups.iter().find(|group| group.settings().name.as_str() == name);
        found
            .or(if self.groups.len() == 1 { self.groups.first() } else { None })
            .ok_or_else(|| Failed(format!("database not found: {name}")))
    }
}
