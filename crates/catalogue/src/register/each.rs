//! Single-file registrations from separate requests, planned and passed to the store together.
//!
//! Each file gets the result that [`Catalogue::execute`] would give its request. Only the common
//! case is combined: a new file in an existing directory. The others run one by one.

use exacat_model::operation::{Existing, NewFile, Registered};
use exacat_model::{Answer, EntryId, Fingerprint, Mutation, Operation, OperationId, Result};
use exacat_store::{Outcome, Refusal, Request};
use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::call::{Call, PartIds, Plan};
use crate::Catalogue;
use crate::caller::Caller;
use crate::execute::boxed;
use crate::repeat::{check_id, fingerprint};
use crate::steps;

impl Catalogue {
    /// Carries out one operation per file, each under its own id. Returns the result of each.
    pub fn register_each<'a>(
        &'a self,
        caller: &'a Caller,
        files: Vec<(OperationId, NewFile)>,
        parents: bool,
        existing: Existing,
    ) -> BoxFuture<'a, Vec<Result<Answer>>> {
        boxed(self.each_registered(caller, files, parents, existing))
    }

    async fn each_registered(
        &self,
        caller: &Caller,
        files: Vec<(OperationId, NewFile)>,
        parents: bool,
        existing: Existing,
    ) -> Vec<Result<Answer>> {
        let (mut ids, mut asks) = (Vec::with_capacity(files.len()), Vec::with_capacity(files.len()));
        let mut new = Vec::with_capacity(files.len());
        for (id, file) in files {
            let operation = Operation::Register { files: vec![file], parents, existing };
            ids.push(id);
            asks.push(fingerprint(caller, &operation));
            if let Operation::Register { files, .. } = operation {
                new.extend(files);
            }
        }
        let files: Vec<NewFile> = new;
        let admitted = match self.admit_writer(caller) {
            Ok(()) => self.refresh_names().await,
            refused => refused,
        };
        let together = match admitted {
            Ok(()) => {
                let judging = caller.judging(self.store.seen_revision());
                self.create_together(&judging, &ids, &asks, &files, existing).await
            }
            Err(error) => return ids.iter().map(|_| Err(error.clone())).collect(),
        };
        let mut answers = Vec::with_capacity(files.len());
        for (((id, ask), file), result) in ids.into_iter().zip(asks).zip(files).zip(together) {
            answers.push(match result {
                Some(answer) => answer,
                None => {
                    let operation = Operation::Register { files: vec![file], parents, existing };
                    boxed(steps::truthful(self.write(caller.asking(ask), id, operation))).await
                }
            });
        }
        answers
    }

    /// Creates the new files whose directories exist. Returns none for the others, and changes
    /// nothing for them.
    async fn create_together(
        &self,
        caller: &Caller,
        ids: &[OperationId],
        asks: &[Fingerprint],
        files: &[NewFile],
        existing: Existing,
    ) -> Vec<Option<Result<Answer>>> {
        let mut results: Vec<Option<Result<Answer>>> = files.iter().map(|_| None).collect();
        let ways = Mutex::default();
        let names = self.names();
        let call = Call { caller, files, parents: false, existing, names, cache: None, ways: Some(&ways) };
        let Some(first) = ids.first() else { return results };
        // These ids stay unused, because no directory is made and nothing merged.
        let unused = PartIds { create: *first, merge: *first, parents: *first };
        let now = self.clock.trusted();
        for (id, result) in ids.iter().zip(&mut results) {
            *result = check_id(*id, now).err().map(Err);
        }
        let part: Vec<usize> = (0..files.len()).filter(|place| results[*place].is_none()).collect();
        // If the plan as a whole fails, each file gets its reason from the ordinary path.
        let Ok(plans) = self.plan(&call, &unused, &part).await else { return results };
        let (mut places, mut requests) = (Vec::with_capacity(files.len()), Vec::with_capacity(files.len()));
        for (place, plan) in part.into_iter().zip(plans) {
            if let Plan::Create(new) = plan {
                let ancestors = ways.lock().get(&new.at.parent).cloned().unwrap_or_default();
                let request = Request::new(ids[place], caller.acting_user(), vec![Mutation::Create(new)]);
                requests.push(request.with(asks[place]).judged(caller.judged_for(&ancestors)));
                places.push(place);
            }
        }
        for (place, outcomes) in places.into_iter().zip(self.store.apply_each(requests).await) {
            let registered = match outcomes.map(|mut outcomes| outcomes.pop()) {
                Ok(Some(Outcome::Applied { id: Some(EntryId::Object(guid)), .. })) => {
                    Ok(Registered::Created(guid))
                }
                Ok(Some(Outcome::Refused(Refusal::Exists(_)))) if existing != Existing::Refuse => continue,
                // The ordinary path judges it again.
                Ok(Some(Outcome::Refused(Refusal::Outdated))) => continue,
                Ok(Some(Outcome::Refused(refusal))) => {
                    Err(self.not_created(caller, &files[place], refusal).await)
                }
                // The ordinary path reports what is wrong.
                Ok(_) => continue,
                Err(error) => {
                    results[place] = Some(Err(error.into()));
                    continue;
                }
            };
            results[place] = Some(Ok(Answer::Registered(vec![registered])));
        }
        results
    }
}
