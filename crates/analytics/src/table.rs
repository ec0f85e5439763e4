//! The tables and their columns. docs/operating/analytics.md describes them for users.

use exacat_columnar::ColumnKind::{Large, Long, Map, Path, Text, Time, Word};
use exacat_columnar::ColumnSpec;
use exacat_model::{Error, Result};

/// A table of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// A row for each entry.
    Entries,
    /// A row for each replica.
    Replicas,
    /// A row for each member of a collection.
    Members,
    /// A row for each directory, user, group and storage element, with what they use.
    Usage,
    /// A row for each change of the history.
    Changes,
}

const ENTRIES: &[ColumnSpec] = &[
    ColumnSpec::always("lfn", Path),
    ColumnSpec::always("parent", Word),
    ColumnSpec::always("kind", Word),
    ColumnSpec::maybe("guid", Text),
    ColumnSpec::maybe("directory", Long),
    ColumnSpec::maybe("size", Long),
    ColumnSpec::always("owner", Word),
    ColumnSpec::always("group_name", Word),
    ColumnSpec::always("mode", Word),
    ColumnSpec::maybe("created", Time),
    ColumnSpec::maybe("modified", Time),
    ColumnSpec::maybe("expires", Time),
    ColumnSpec::always("revision", Long),
    ColumnSpec::maybe("job", Long),
    ColumnSpec::maybe("copies", Long),
    ColumnSpec::always("checksums", Map),
    ColumnSpec::always("tags", Map),
    ColumnSpec::maybe("target", Text),
    ColumnSpec::maybe("members", Long),
    ColumnSpec::maybe("beyond", Word),
];

const REPLICAS: &[ColumnSpec] = &[
    ColumnSpec::always("guid", Text),
    ColumnSpec::maybe("se", Word),
    ColumnSpec::maybe("site", Word),
    ColumnSpec::always("state", Word),
    ColumnSpec::always("location", Word),
    ColumnSpec::always("pfn", Text),
    ColumnSpec::maybe("size", Long),
    ColumnSpec::maybe("created", Time),
];

const MEMBERS: &[ColumnSpec] = &[
    ColumnSpec::always("collection", Path),
    ColumnSpec::always("collection_guid", Word),
    ColumnSpec::always("guid", Text),
    ColumnSpec::maybe("lfn", Path),
];

const USAGE: &[ColumnSpec] = &[
    ColumnSpec::always("of", Word),
    ColumnSpec::always("name", Path),
    ColumnSpec::always("directories", Long),
    ColumnSpec::always("files", Long),
    ColumnSpec::always("members", Long),
    ColumnSpec::always("others", Long),
    ColumnSpec::always("replicas", Long),
    ColumnSpec::always("bytes", Large),
    ColumnSpec::always("member_bytes", Large),
    ColumnSpec::always("replica_bytes", Large),
];

const CHANGES: &[ColumnSpec] = &[
    ColumnSpec::always("revision", Long),
    ColumnSpec::maybe("time", Time),
    ColumnSpec::maybe("who", Word),
    ColumnSpec::always("operation", Word),
    ColumnSpec::always("part", Long),
    ColumnSpec::always("effect", Word),
    ColumnSpec::maybe("kind", Word),
    ColumnSpec::maybe("lfn", Text),
    ColumnSpec::maybe("guid", Text),
    ColumnSpec::maybe("directory", Long),
    ColumnSpec::maybe("parent", Long),
    ColumnSpec::maybe("name", Text),
    ColumnSpec::maybe("old_parent", Long),
    ColumnSpec::maybe("old_name", Text),
    ColumnSpec::maybe("size", Long),
    ColumnSpec::maybe("owner", Word),
    ColumnSpec::maybe("se", Word),
    ColumnSpec::maybe("trash", Long),
    ColumnSpec::maybe("before", Text),
    ColumnSpec::maybe("after", Text),
];

/// Places of the columns that a check reads.
pub(crate) mod at {
    pub(crate) const LFN: usize = 0;
    pub(crate) const KIND: usize = 2;
    pub(crate) const GUID: usize = 3;
    pub(crate) const DIRECTORY: usize = 4;
    pub(crate) const SIZE: usize = 5;
    pub(crate) const OWNER: usize = 6;
    pub(crate) const GROUP: usize = 7;
    pub(crate) const MODE: usize = 8;
    pub(crate) const MODIFIED: usize = 10;
    pub(crate) const EXPIRES: usize = 11;
    pub(crate) const JOB: usize = 13;
    pub(crate) const CHECKSUMS: usize = 15;
    pub(crate) const TAGS: usize = 16;
    pub(crate) const TARGET: usize = 17;
    pub(crate) const BEYOND: usize = 19;

    pub(crate) const REPLICA_GUID: usize = 0;
    pub(crate) const REPLICA_SE: usize = 1;
    pub(crate) const REPLICA_STATE: usize = 3;
    pub(crate) const REPLICA_LOCATION: usize = 4;
    pub(crate) const REPLICA_PFN: usize = 5;

    pub(crate) const MEMBER_COLLECTION: usize = 0;
    pub(crate) const MEMBER_GUID: usize = 2;
    pub(crate) const MEMBER_LFN: usize = 3;
}

impl Table {
    /// All tables.
    pub const ALL: [Table; 5] =
        [Table::Entries, Table::Replicas, Table::Members, Table::Usage, Table::Changes];

    /// Returns the name, also of its file.
    pub fn name(self) -> &'static str {
        match self {
            Table::Entries => "entries",
            Table::Replicas => "replicas",
            Table::Members => "members",
            Table::Usage => "usage",
            Table::Changes => "changes",
        }
    }

    /// Returns the name of its file.
    pub fn file_name(self) -> String {
        format!("{}.parquet", self.name())
    }

    /// Returns the table of that name.
    pub fn parse(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|table| table.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Table::name).join(", ");
            Error::invalid(format!("not a table ({names}): {text:.100?}"))
        })
    }

    /// Returns its columns, in order.
    pub fn columns(self) -> &'static [ColumnSpec] {
        match self {
            Table::Entries => ENTRIES,
            Table::Replicas => REPLICAS,
            Table::Members => MEMBERS,
            Table::Usage => USAGE,
            Table::Changes => CHANGES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each place that a check reads is that of the column which it means.
    #[test]
    fn places_of_columns_are_those_of_the_tables() {
        let name = |table: Table, at: usize| table.columns()[at].name;
        let of_entries = [
            (at::LFN, "lfn"),
            (at::KIND, "kind"),
            (at::GUID, "guid"),
            (at::DIRECTORY, "directory"),
            (at::SIZE, "size"),
            (at::OWNER, "owner"),
            (at::GROUP, "group_name"),
            (at::MODE, "mode"),
            (at::MODIFIED, "modified"),
            (at::EXPIRES, "expires"),
            (at::JOB, "job"),
            (at::CHECKSUMS, "checksums"),
            (at::TAGS, "tags"),
            (at::TARGET, "target"),
            (at::BEYOND, "beyond"),
        ];
        of_entries.iter().for_each(|(place, wanted)| assert_eq!(name(Table::Entries, *place), *wanted));
        let of_replicas = [
            (at::REPLICA_GUID, "guid"),
            (at::REPLICA_SE, "se"),
            (at::REPLICA_STATE, "state"),
            (at::REPLICA_LOCATION, "location"),
            (at::REPLICA_PFN, "pfn"),
        ];
        of_replicas.iter().for_each(|(place, wanted)| assert_eq!(name(Table::Replicas, *place), *wanted));
        let of_members =
            [(at::MEMBER_COLLECTION, "collection"), (at::MEMBER_GUID, "guid"), (at::MEMBER_LFN, "lfn")];
        of_members.iter().for_each(|(place, wanted)| assert_eq!(name(Table::Members, *place), *wanted));
    }

    /// A table is found by its name, and an unknown name by none.
    #[test]
    fn tables_have_names() {
        for table in Table::ALL {
            assert_eq!(Table::parse(table.name()), Ok(table));
        }
        let error = Table::parse("entry").unwrap_err().message;
        assert!(error.contains("entries, replicas, members, usage, changes"), "{error}");
    }
}
