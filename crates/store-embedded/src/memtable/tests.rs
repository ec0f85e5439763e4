//! Compares memtables with a map.

use exacat_model::{DirId, Entry, Guid, Revision};

use super::Memtable;
use crate::page::tests::{Model, Random, check_row, entry};
use crate::page::{Row, RowRoom};

/// Goal: the last row of a name is found by name, by GUID and in order, whatever was there before.
#[test]
fn what_was_put_last_is_found() {
    for seed in 0..8 {
        let random = &mut Random(seed);
        let (mut memtable, mut model, mut room) = (Memtable::new(seed), Model::new(), RowRoom::default());
        for step in 0..6000u64 {
            let parent = 5 + random.next(20);
            let name = format!("f{:03}", random.next(60));
            let key = (parent, name.clone().into_bytes());
            let old = model.get(&key).cloned().flatten();
            if random.next(4) == 0 {
                memtable.put(&Row::gone(DirId(parent), name.as_bytes(), Revision(parent))).unwrap();
                model.insert(key, None);
            } else {
                let mut new = entry(random, parent, &name);
                // Half of them are a changed version of the same file.
                if let (Some(Entry { body, .. }), true) = (old, step % 2 == 0) {
                    new.body = body;
                }
                memtable.put(&room.row(&new)).unwrap();
                model.insert(key, Some(new));
            }
            if step % 500 != 499 {
                continue;
            }
            assert_eq!(memtable.rows(), model.len());
            let mut all = memtable.from(DirId(0), b"", false);
            for (key, entry) in &model {
                check_row(&all.next().unwrap().unwrap(), key, entry);
                let found = memtable.find(DirId(key.0), &key.1).unwrap().unwrap();
                check_row(&found, key, entry);
                if let Some(guid) = entry.as_ref().and_then(Entry::guid) {
                    check_row(&memtable.find_guid(guid).unwrap().unwrap(), key, entry);
                }
            }
            assert!(all.next().is_none());
            for _ in 0..200 {
                let (parent, name) = (4 + random.next(23), format!("f{:03}x", random.next(60)));
                let name = &name.as_bytes()[..4 + random.next(2) as usize];
                let key = (parent, name.to_vec());
                assert_eq!(memtable.find(DirId(parent), name).unwrap().is_some(), model.contains_key(&key));
                for after in [false, true] {
                    let wanted =
                        model.iter().find(|(other, _)| if after { **other > key } else { **other >= key });
                    match (memtable.from(DirId(parent), name, after).next(), wanted) {
                        (None, None) => {}
                        (Some(row), Some((key, entry))) => check_row(&row.unwrap(), key, entry),
                        (row, wanted) => panic!("{row:?} instead of {wanted:?}"),
                    }
                }
            }
            assert!(memtable.find_guid(Guid([1; 16])).unwrap().is_none());
        }
        assert!(memtable.bytes() > 100 * model.len() as u64);
    }
}
