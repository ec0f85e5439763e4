//! Children of one directory in a memtable, in the order of their names' bytes: four bytes each and
//! some slack.
//!
//! A few children are one sorted list. Many are a list of sorted chunks, so that an insertion moves
//! a chunk at most. Names that come in order, as run and file numbers do, fill chunks completely.

use super::arena::Handle;

const CHUNK_MAX: usize = 512;

/// Handles of entries, sorted by name. It does not know the names: the caller passes them.
pub(crate) enum Children {
    Few(Vec<Handle>),
    Many(Vec<Vec<Handle>>),
}

impl Default for Children {
    fn default() -> Self {
        Children::Few(Vec::new())
    }
}

/// Returns the place of a name in a sorted list: the number of names before it.
fn rank<'a>(list: &[Handle], name: &[u8], name_of: &impl Fn(Handle) -> &'a [u8]) -> usize {
    match list.last() {
        Some(last) if name_of(*last) < name => list.len(),
        _ => list.partition_point(|other| name_of(*other) < name),
    }
}

/// Returns the chunk of a name: the last that begins at or before it.
fn chunk_of<'a>(chunks: &[Vec<Handle>], name: &[u8], name_of: &impl Fn(Handle) -> &'a [u8]) -> usize {
    let begins_at_or_before =
        |chunk: &Vec<Handle>| chunk.first().is_some_and(|first| name_of(*first) <= name);
    match chunks.last() {
        Some(last) if begins_at_or_before(last) => chunks.len() - 1,
        _ => chunks.partition_point(begins_at_or_before).saturating_sub(1),
    }
}

impl Children {
    /// Adds a new child.
    pub(crate) fn insert<'a>(&mut self, handle: Handle, name: &[u8], name_of: impl Fn(Handle) -> &'a [u8]) {
        if let Children::Few(list) = self {
            let at = rank(list, name, &name_of);
            list.insert(at, handle);
            if list.len() > CHUNK_MAX {
                let chunk = std::mem::take(list);
                *self = Children::Many(split(chunk, at));
            }
            return;
        }
        let Children::Many(chunks) = self else { return };
        let index = chunk_of(chunks, name, &name_of);
        let chunk = &mut chunks[index];
        let at = rank(chunk, name, &name_of);
        chunk.insert(at, handle);
        if chunk.len() > CHUNK_MAX {
            let chunk = std::mem::take(chunk);
            chunks.splice(index..=index, split(chunk, at));
        }
    }

    /// Replaces one handle by another of the same name. True if it was there.
    pub(crate) fn replace<'a>(
        &mut self,
        old: Handle,
        new: Handle,
        name: &[u8],
        name_of: impl Fn(Handle) -> &'a [u8],
    ) -> bool {
        let list = match self {
            Children::Few(list) => list,
            Children::Many(chunks) => {
                let index = chunk_of(chunks, name, &name_of);
                &mut chunks[index]
            }
        };
        let at = rank(list, name, &name_of);
        match list.get_mut(at) {
            Some(place) if *place == old => {
                *place = new;
                true
            }
            _ => false,
        }
    }

    /// Returns the children whose names come after `after`, in order; all if it is none.
    pub(crate) fn after<'s, 'a, F: Fn(Handle) -> &'a [u8]>(
        &'s self,
        after: Option<&[u8]>,
        name_of: F,
    ) -> impl Iterator<Item = Handle> + use<'s, 'a, F> {
        let (chunks, index): (&[Vec<Handle>], usize) = match self {
            Children::Few(list) => (std::slice::from_ref(list), 0),
            Children::Many(chunks) => (chunks, after.map_or(0, |name| chunk_of(chunks, name, &name_of))),
        };
        let skip = match (after, chunks.get(index)) {
            (Some(name), Some(chunk)) => chunk.partition_point(|other| name_of(*other) <= name),
            _ => 0,
        };
        chunks[index..].iter().flatten().skip(skip).copied()
    }
}

/// Splits a chunk that is too long. If the last insertion was at its end, more will come there, so
/// the first half stays full.
fn split(mut chunk: Vec<Handle>, inserted_at: usize) -> Vec<Vec<Handle>> {
    let at = if inserted_at == chunk.len() - 1 { chunk.len() - 1 } else { chunk.len() / 2 };
    let tail = chunk[at..].to_vec();
    chunk.truncate(at);
    chunk.shrink_to_fit();
    vec![chunk, tail]
}

#[cfg(test)]
mod tests {
    use super::super::arena::Arena;
    use super::*;
    use std::collections::BTreeMap;

    /// Goal: order, presence and paging hold through any inserts and replacements, across the
    /// change from few to many. Method: against a map, names in order, in reverse and mixed.
    #[test]
    fn children_stay_sorted_whatever_comes() {
        for pattern in 0..3u64 {
            let mut arena = Arena::default();
            let mut children = Children::default();
            let mut model = BTreeMap::new();
            let key = |step: u64| match pattern {
                0 => step,
                1 => 1_000_000 - step,
                _ => step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20,
            };
            for step in 0..4000 {
                let name = format!("{:020}", key(step)).into_bytes();
                let handle = arena.insert(&name).unwrap();
                children.insert(handle, &name, |other| arena.get(other));
                assert!(model.insert(name, handle).is_none());
            }
            let check = |children: &Children, model: &BTreeMap<Vec<u8>, Handle>, arena: &Arena| {
                let all: Vec<Handle> = children.after(None, |other| arena.get(other)).collect();
                assert_eq!(all, model.values().copied().collect::<Vec<_>>());
                for after in model.keys().step_by(97) {
                    let next = children.after(Some(after), |other| arena.get(other)).next();
                    let wanted = model.range(after.clone()..).nth(1).map(|(_, handle)| *handle);
                    assert_eq!(next, wanted);
                }
                assert_eq!(children.after(Some(b"zzz"), |other| arena.get(other)).next(), None);
                let first = children.after(Some(b""), |other| arena.get(other)).next();
                assert_eq!(first, model.values().next().copied());
            };
            check(&children, &model, &arena);
            let names: Vec<Vec<u8>> = model.keys().cloned().collect();
            for (index, name) in names.iter().enumerate() {
                let handle = model[name];
                if index % 7 == 3 {
                    let new = arena.insert(name).unwrap();
                    assert!(children.replace(handle, new, name, |other| arena.get(other)));
                    assert!(!children.replace(handle, new, name, |other| arena.get(other)));
                    model.insert(name.clone(), new);
                }
            }
            check(&children, &model, &arena);
        }
    }
}
