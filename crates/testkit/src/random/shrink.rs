//! Shortens a failing sequence: removes as much as possible while it still fails.

use super::{Step, execute};
use crate::factory::StoreFactory;

/// Maximum runs spent on it: a person must be able to read a sequence; it need not be minimal.
const RUNS_MAX: usize = 400;

/// Returns the shortest failing sequence found, and its failure.
pub(super) async fn shrink(
    factory: &dyn StoreFactory,
    steps: Vec<Step>,
    what: String,
) -> (Vec<Step>, String) {
    let mut best = Best { factory, steps, what, runs_left: RUNS_MAX };
    best.drop_chunks().await;
    best.drop_mutations().await;
    best.drop_chunks().await;
    (best.steps, best.what)
}

struct Best<'a> {
    factory: &'a dyn StoreFactory,
    steps: Vec<Step>,
    what: String,
    runs_left: usize,
}

impl Best<'_> {
    /// Keeps `steps` as the best if they fail too.
    async fn try_these(&mut self, steps: Vec<Step>) -> bool {
        if self.runs_left == 0 {
            return false;
        }
        self.runs_left -= 1;
        match execute(self.factory, &steps).await {
            Ok(_) => false,
            Err(what) => {
                (self.steps, self.what) = (steps, what);
                true
            }
        }
    }

    /// Drops halves, quarters … single steps, from the end backwards: steps after the failure go
    /// first.
    async fn drop_chunks(&mut self) {
        let mut size = self.steps.len().div_ceil(2).max(1);
        loop {
            let mut end = self.steps.len();
            while end > 0 {
                let start = end.saturating_sub(size);
                let mut fewer = self.steps.clone();
                fewer.drain(start..end.min(fewer.len()));
                self.try_these(fewer).await;
                end = start.min(self.steps.len());
            }
            if size == 1 {
                return;
            }
            size /= 2;
        }
    }

    /// Drops single mutations from requests of several.
    async fn drop_mutations(&mut self) {
        let mut step = 0;
        while step < self.steps.len() {
            let mut index = 0;
            while let Step::Apply(request) = &self.steps[step]
                && request.mutations.len() > 1
                && index < request.mutations.len()
            {
                let mut fewer = self.steps.clone();
                if let Step::Apply(request) = &mut fewer[step] {
                    request.mutations.remove(index);
                }
                if !self.try_these(fewer).await {
                    index += 1;
                }
            }
            step += 1;
        }
    }
}
