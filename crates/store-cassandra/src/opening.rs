//! Reads that a server makes once, when it opens: the rows that are always cached, and the keys of
//! the filter.

use exacat_model::Result;

use crate::cluster::{Cluster, Pages};
use crate::limits::SLICE_ROWS;
use crate::rows::{Key, Row};
use crate::statement::cql;
use crate::tables::{self, Bound, Columns, int, text};

/// Reads all records, all layouts and the totals from the tables.
pub(crate) async fn permanent_rows(cluster: &Cluster) -> Result<Vec<(Key, Row)>> {
    let mut all = Vec::new();
    for kind in exacat_model::RecordKind::ALL {
        let bound = Bound {
            text: cql!("SELECT kind, key, revision, record FROM records WHERE kind = ?"),
            values: vec![text(kind.name())],
        };
        for row in cluster.read(&bound).await? {
            all.push(tables::record_of(Columns::new(row))?);
        }
    }
    let layouts =
        Bound { text: cql!("SELECT directory, level FROM layouts WHERE id = ?"), values: vec![int(0)] };
    for row in cluster.read(&layouts).await? {
        all.push(tables::layout_of(Columns::new(row))?);
    }
    for bound in tables::select(&Key::Totals, 0).unwrap_or_default() {
        for row in cluster.read(&bound).await? {
            all.push((Key::Totals, tables::row_of(&Key::Totals, Columns::new(row))?));
        }
    }
    Ok(all)
}

/// Passes on every key of the tables that the filter holds, page by page.
pub(crate) async fn each_key(cluster: &Cluster, mut then: impl FnMut(&[Key])) -> Result<()> {
    for (text, key) in tables::FILTERED_KEYS {
        let bound = Bound { text, values: Vec::new() };
        let mut pages = Pages::of(bound, SLICE_ROWS);
        while let Some(rows) = pages.next(cluster).await? {
            let keys: Result<Vec<Key>> = rows.into_iter().map(|row| key(Columns::new(row))).collect();
            then(&keys?);
        }
    }
    Ok(())
}
