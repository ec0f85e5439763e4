//! Keys of the metadata in each file, by which an export is proven.

use exacat_columnar::RowsDigest;
use exacat_exchange::digest::Digest;
use exacat_model::{Lfn, LogPosition, Revision};

use crate::table::Table;

/// Version of the tables.
pub(crate) const VERSION: &str = "1";

pub(crate) const KEY_VERSION: &str = "exacat.tables";
pub(crate) const KEY_TABLE: &str = "exacat.table";
pub(crate) const KEY_TABLES: &str = "exacat.tables_written";
pub(crate) const KEY_CATALOGUE: &str = "exacat.catalogue";
pub(crate) const KEY_TIMELINE: &str = "exacat.timeline";
pub(crate) const KEY_REVISION: &str = "exacat.revision";
pub(crate) const KEY_REVISION_END: &str = "exacat.revision_end";
pub(crate) const KEY_UNDER: &str = "exacat.under";
pub(crate) const KEY_FILTERED: &str = "exacat.filtered";
pub(crate) const KEY_DIGEST: &str = "exacat.digest";
pub(crate) const KEY_AFTER: &str = "exacat.after";
pub(crate) const KEY_ROWS: &str = "exacat.rows";
pub(crate) const KEY_ROWS_DIGEST: &str = "exacat.rows_digest";

/// Facts about an export that all its files have.
#[derive(Clone, Debug)]
pub(crate) struct Proof {
    /// Id of the catalogue, if it is known.
    pub(crate) catalogue: Option<String>,
    /// End of the history when the export began.
    pub(crate) position: LogPosition,
    /// End of the history when the last entry was read.
    pub(crate) end: Revision,
    /// The base directory.
    pub(crate) under: Lfn,
    /// True if a filter selected the entries.
    pub(crate) is_filtered: bool,
    /// Digest of the entries; none if no entries were read.
    pub(crate) digest: Option<Digest>,
    /// Revision after which the changes begin.
    pub(crate) after: Revision,
    /// Tables of the export, so that a missing file is noticed.
    pub(crate) tables: Vec<Table>,
}

impl Proof {
    /// Returns the metadata of a table with these rows.
    pub(crate) fn metadata(&self, table: Table, rows: &RowsDigest) -> Vec<(String, String)> {
        let names: Vec<&str> = self.tables.iter().map(|table| table.name()).collect();
        let mut pairs = vec![
            (KEY_TABLES, names.join(",")),
            (KEY_VERSION, VERSION.to_owned()),
            (KEY_TABLE, table.name().to_owned()),
            (KEY_REVISION, self.position.revision.0.to_string()),
            (KEY_REVISION_END, self.end.0.to_string()),
            (KEY_ROWS, rows.rows().to_string()),
            (KEY_ROWS_DIGEST, rows.digest()),
        ];
        let optional = [
            (KEY_CATALOGUE, self.catalogue.clone()),
            (KEY_TIMELINE, self.position.timeline.map(|timeline| timeline.to_string())),
        ];
        pairs.extend(optional.into_iter().filter_map(|(key, value)| Some((key, value?))));
        if table == Table::Changes {
            pairs.push((KEY_AFTER, self.after.0.to_string()));
        } else {
            pairs.push((KEY_UNDER, self.under.as_str().to_owned()));
            pairs.push((KEY_FILTERED, self.is_filtered.to_string()));
            pairs.extend(self.digest.map(|digest| (KEY_DIGEST, digest.to_string())));
        }
        pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}
