//! Many creators want one name: exactly one gets it.

use std::sync::Arc;

use exacat_model::{DirId, EntryId, Guid, OperationId, UserId};
use exacat_store::{Outcome, Refusal, Request, Store};
use tokio::sync::Barrier;

use crate::scene::{at, create, new_file};

/// Number of creators that want a name at once.
pub const CREATORS: usize = 64;

fn bytes(name: usize, creator: usize) -> [u8; 16] {
    let mut bytes = [0x77; 16];
    bytes[..8].copy_from_slice(&(name as u64).to_be_bytes());
    bytes[8..12].copy_from_slice(&(creator as u32).to_be_bytes());
    bytes
}

/// Lets [`CREATORS`] creators want each of `names` names in `directory` at the same time. Panics
/// unless exactly one gets each, all others are told which, and that is the one in the store.
pub async fn run(store: Arc<dyn Store>, directory: DirId, names: usize) {
    let start = Arc::new(Barrier::new(CREATORS));
    let creators: Vec<_> = (0..CREATORS)
        .map(|creator| {
            let (store, start) = (store.clone(), start.clone());
            tokio::spawn(async move {
                let mut seen = Vec::with_capacity(names);
                for name in 0..names {
                    let place = at(directory, &format!("wanted{name:06}"));
                    let new = new_file(place, Guid(bytes(name, creator)), Some(1), &[]);
                    let id = OperationId(bytes(name, creator));
                    let request = Request::new(id, UserId::ADMIN, vec![create(new)]);
                    start.wait().await;
                    let outcome = store.apply(request).await.expect("answered").remove(0);
                    seen.push(match outcome {
                        Outcome::Applied { id: Some(id), .. } => (true, id),
                        Outcome::Refused(Refusal::Exists(id)) => (false, id),
                        other => panic!("{other:?} of name {name}"),
                    });
                }
                seen
            })
        })
        .collect();
    let mut all = Vec::new();
    for creator in creators {
        all.push(creator.await.expect("a creator"));
    }
    let mut there = Vec::new();
    let mut after = None;
    loop {
        let page = store.list(directory, after.as_ref(), 1000).await.expect("list").expect("the directory");
        after = page.items.last().map(|entry| entry.at.name.clone());
        there.extend(page.items.iter().map(exacat_model::Entry::id));
        if !page.more {
            break;
        }
    }
    assert_eq!(there.len(), names, "every name is there, once");
    for (name, id) in there.iter().enumerate() {
        let winners: Vec<usize> = (0..CREATORS).filter(|creator| all[*creator][name].0).collect();
        assert_eq!(winners.len(), 1, "name {name} was won by {winners:?}");
        assert_eq!(*id, EntryId::Object(Guid(bytes(name, winners[0]))), "the winner's is there");
        assert!(all.iter().all(|seen| seen[name].1 == *id), "name {name}: all are told of the same");
    }
}
