//! What a server knows: rows exactly as they are at the head of the log.
//!
//! Rows get in by being fetched, and by the images of every group of the log, which this server wrote or read. As every image
//! gets in, what is known stays exact. So a row that was fetched counts only if nothing about it is known already, and only once
//! the log was read up to a head that was asked for after the row was fetched. When rows are forgotten, to bound memory, the *epoch*
//! changes: what was fetched before is thrown away, for an image of it may have been among them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use exacat_model::{Record, RecordKey, Revision, SeNumber, UserId};

use crate::rows::{Image, Key, Row};
use crate::working::{Changed, member_bounds};

struct Slot {
    row: Option<Arc<Row>>,
    /// The last change of the group that it is of; 0 if it was fetched.
    revision: Revision,
}

/// Consecutive changes that went into the log together, and what they did to rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub first: Revision,
    pub last: Revision,
    pub images: Vec<Image>,
}

/// Rows as they are at the head.
pub(crate) struct Known {
    rows: BTreeMap<Key, Slot>,
    head: Revision,
    /// The first change of the last group: what it did may not be in the tables yet.
    unsettled: Revision,
    epoch: u64,
    queues: BTreeSet<SeNumber>,
    rows_max: usize,
}

impl Known {
    pub fn new(head: Revision, rows_max: usize) -> Self {
        Known {
            rows: BTreeMap::new(),
            head,
            unsettled: Revision(head.0 + 1),
            epoch: 0,
            queues: BTreeSet::new(),
            rows_max,
        }
    }

    /// The last change of the log that is known.
    pub fn head(&self) -> Revision {
        self.head
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// None if nothing is known of it; otherwise what it is, if it is.
    pub fn get(&self, key: &Key) -> Option<Option<Arc<Row>>> {
        if let Some(slot) = self.rows.get(key) {
            return Some(slot.row.clone());
        }
        match key {
            // All of them are.
            Key::Record(_) => Some(None),
            Key::Member { collection, .. } if self.rows.contains_key(&Key::Members(*collection)) => {
                Some(None)
            }
            _ => None,
        }
    }

    pub fn records(&self) -> impl Iterator<Item = (RecordKey, &Record)> {
        let from = Key::Record(RecordKey::User(UserId(0)));
        let records = self.rows.range(from..).take_while(|(key, _)| matches!(key, Key::Record(_)));
        records.filter_map(|(key, slot)| match (key, slot.row.as_deref()) {
            (Key::Record(key), Some(Row::Record { record, .. })) => Some((*key, record)),
            _ => None,
        })
    }

    pub fn has_queue(&self, se: SeNumber) -> bool {
        self.queues.contains(&se)
    }

    /// What is known of the keys from the one to the other.
    pub fn range(&self, from: &Key, until: &Key) -> Changed {
        if from > until {
            return Changed::new();
        }
        let range = self.rows.range(from.clone()..=until.clone());
        range.map(|(key, slot)| (key.clone(), slot.row.clone())).collect()
    }

    /// Takes in rows that were fetched since `epoch`, after which the log was read up to what the head was then.
    pub fn fetched(&mut self, epoch: u64, rows: Vec<(Key, Option<Row>)>) {
        if epoch != self.epoch {
            return;
        }
        // Before, not after: what an answer needs must stay until it is given.
        if self.rows.len() > self.rows_max {
            return self.shrink();
        }
        for (key, row) in rows {
            if self.get(&key).is_none() {
                self.rows.insert(key, Slot { row: row.map(Arc::new), revision: Revision(0) });
            }
        }
    }

    /// The same, all of an SE's queue.
    pub fn fetched_queue(&mut self, epoch: u64, se: SeNumber, rows: Vec<(Key, Option<Row>)>) {
        if epoch == self.epoch {
            self.fetched(epoch, rows);
            if epoch == self.epoch {
                self.queues.insert(se);
            }
        }
    }

    /// Records, which are always known, as they were fetched at the beginning.
    pub fn insert_record(&mut self, key: Key, row: Row) {
        self.rows.entry(key).or_insert(Slot { row: Some(Arc::new(row)), revision: Revision(0) });
    }

    /// Takes in the next group of the log; one that is known already changes nothing. False if groups before it are missing.
    pub fn install(&mut self, group: &Group) -> bool {
        if group.last <= self.head {
            return true;
        }
        if group.first.0 != self.head.0 + 1 {
            return false;
        }
        for image in &group.images {
            if let Key::Members(collection) = image.key {
                let (from, until) = member_bounds(collection);
                let members: Vec<Key> = self.rows.range(from..=until).map(|(key, _)| key.clone()).collect();
                for key in members {
                    self.rows.insert(key, Slot { row: None, revision: group.last });
                }
            }
        }
        for Image { key, row } in &group.images {
            let row = row.clone().map(Arc::new);
            self.rows.insert(key.clone(), Slot { row, revision: group.last });
        }
        self.head = group.last;
        self.unsettled = group.first;
        self.shrink();
        true
    }

    /// Forgets, if there is too much, what is neither a record nor of the last group.
    fn shrink(&mut self) {
        if self.rows.len() <= self.rows_max {
            return;
        }
        let unsettled = self.unsettled;
        self.rows.retain(|key, slot| match key {
            Key::Record(_) => slot.row.is_some() || slot.revision >= unsettled,
            _ => slot.revision >= unsettled,
        });
        self.queues.clear();
        self.epoch += 1;
    }
}
