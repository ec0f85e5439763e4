//! A history of random changes, for tests that copy histories.

use std::sync::Arc;

use exacat_model::{Change, Revision};
use exacat_store::{Clock, Store};

use super::{Generator, View, model};
use crate::clock::TestClock;
use crate::memory::MemoryStore;

/// Returns the reference after so many random requests, and all its changes.
pub async fn history(seed: u64, steps: usize, clock: &TestClock) -> (Arc<MemoryStore>, Vec<Change>) {
    let model = model(clock);
    let mut generator = Generator::new(seed);
    let mut requests = generator.beginning();
    for _ in 0..steps {
        let request = match requests.pop() {
            Some(request) => request,
            None => {
                clock.turn(200);
                let view = View::of(&*model).await;
                generator.request(&view, clock.now())
            }
        };
        model.apply(request).await.expect("the reference answers");
    }
    let mut changes = Vec::new();
    loop {
        let after = changes.last().map_or(Revision(0), |change: &Change| change.revision);
        let page = model.changes(after, 1000).await.expect("changes");
        if page.changes.is_empty() {
            return (model, changes);
        }
        changes.extend(page.changes);
    }
}
