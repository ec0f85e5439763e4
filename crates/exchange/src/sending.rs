//! Sends batches to the catalogue, and processes the result of each row.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use exacat_model::operation::{Existing, NewFile, Registered, SeSettings};
use exacat_model::se::UNKNOWN_PLACE;
use exacat_model::{Answer, Error as ModelError, ErrorKind, FileRef, Lfn, Operation, SeName, SeStatus};
use parking_lot::Mutex;

use crate::batches::{Batch, FileGroup, RowAt};
use crate::catalogue::Catalogue;
use crate::counts::Counts;
use crate::error::Error;
use crate::item::Item;
use crate::limits::{RETRIES_MAX, RETRY_DELAY_MS};
use crate::listing::Listing;
use crate::records::Fields;
use crate::reject::{Complaint, Reason, Reject};
use crate::seen;

/// State that the batches of one import share.
pub(crate) struct Sender<C> {
    pub(crate) catalogue: Arc<C>,
    pub(crate) listing: Arc<Listing>,
    pub(crate) existing: Existing,
    /// Collections known to exist.
    pub(crate) collections: Mutex<HashSet<u128>>,
}

/// Result of a batch.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    pub(crate) counts: Counts,
    /// Rejects in the order of their lines.
    pub(crate) rejects: Vec<Reject>,
}

/// Makes the error for an answer that does not suit the operation.
pub(crate) fn unexpected(asked: &str) -> ModelError {
    ModelError::new(ErrorKind::Internal, format!("the catalogue's answer to {asked} is none to that"))
}

/// Returns one outcome for each of `count` items.
pub(crate) fn each_done(
    answer: Answer,
    count: usize,
    asked: &str,
) -> Result<Vec<Result<(), ModelError>>, ModelError> {
    match answer {
        Answer::EachDone(items) if items.len() == count => Ok(items),
        Answer::Done { .. } => Ok(vec![Ok(()); count]),
        _ => Err(unexpected(asked)),
    }
}

/// Waits before a retry; fails after [`RETRIES_MAX`] retries.
async fn before_retry(attempt: &mut u32, error: ModelError) -> Result<(), ModelError> {
    *attempt += 1;
    if *attempt > RETRIES_MAX {
        return Err(error);
    }
    tokio::time::sleep(Duration::from_millis(RETRY_DELAY_MS << (*attempt - 1))).await;
    Ok(())
}

/// Calls an operation that may safely be repeated, with a bounded number of retries.
pub(crate) async fn call_with_retries(
    catalogue: &impl Catalogue,
    operation: Operation,
) -> Result<Answer, ModelError> {
    let mut attempt = 0;
    loop {
        match catalogue.call(operation.clone()).await {
            Err(error) if error.kind.is_retryable() => before_retry(&mut attempt, error).await?,
            answer => return answer,
        }
    }
}

impl<C: Catalogue> Sender<C> {
    /// Calls an operation that may safely be repeated.
    pub(crate) async fn ask(&self, operation: Operation) -> Result<Answer, ModelError> {
        call_with_retries(&*self.catalogue, operation).await
    }

    /// Calls an operation that creates something. An unknown outcome is an error: a retry that
    /// finds the entry could not know whether this import made it. The next run, which knows,
    /// resumes there.
    async fn ask_to_make(&self, operation: Operation) -> Result<Answer, ModelError> {
        let mut attempt = 0;
        loop {
            match self.catalogue.call(operation.clone()).await {
                Err(error) if matches!(error.kind, ErrorKind::Busy | ErrorKind::Unavailable) => {
                    before_retry(&mut attempt, error).await?;
                }
                answer => return answer,
            }
        }
    }

    /// Registers the SEs that the batch names for the first time; returns the number of new ones.
    ///
    /// Their addresses are unknown. So their prefix is `unknown://NAME`, which allows replicas
    /// without a PFN, and they are read-only, so that they get no uploads. An operator who knows
    /// better sets both.
    pub(crate) async fn register_ses(&self, ses: &[SeName]) -> Result<u64, ModelError> {
        let mut registered = 0;
        for name in ses {
            let settings = SeSettings {
                name: name.clone(),
                number: None,
                prefix: Some(format!("{UNKNOWN_PLACE}{name}")),
                qos: None,
                status: Some(SeStatus::ReadOnly),
                distances: Vec::new(),
                https: None,
                only_new: true,
            };
            match self.ask(Operation::SeSet(settings)).await {
                Ok(_) => registered += 1,
                // Another client registered it, or this one did and lost the answer.
                Err(error) if error.kind == ErrorKind::Exists => {}
                Err(error) => return Err(error),
            }
        }
        Ok(registered)
    }

    /// Sends the part of the batch that may be in flight beside other batches. `again` says that an
    /// interrupted run may have sent it before.
    pub(crate) async fn send(&self, mut batch: Batch, again: bool) -> Result<Sent, Error> {
        let mut sent = Sent { rejects: std::mem::take(&mut batch.rejects), ..Sent::default() };
        let mut memberships = Vec::new();
        for group in std::mem::take(&mut batch.groups).into_iter().filter(|group| !group.files.is_empty()) {
            self.register(&batch, group, again, &mut sent, &mut memberships).await?;
        }
        for (row, collection, file) in std::mem::take(&mut batch.members) {
            memberships.push((row, collection, file));
        }
        self.add_members(&batch, memberships, &mut sent).await?;
        let others = std::mem::take(&mut batch.others);
        self.make_others(&batch, others, again, &mut sent).await?;
        sent.rejects.sort_by_key(|reject| reject.line);
        Ok(sent)
    }

    async fn register(
        &self,
        batch: &Batch,
        group: FileGroup,
        again: bool,
        sent: &mut Sent,
        memberships: &mut Vec<(RowAt, Lfn, FileRef)>,
    ) -> Result<(), Error> {
        let FileGroup { files, rows, collections } = group;
        let existing = match (self.existing, again) {
            (Existing::Refuse, true) => Existing::Same,
            (existing, _) => existing,
        };
        let outcomes = self.register_all(batch, &rows, files, existing).await?;
        for ((outcome, row), collection) in outcomes.into_iter().zip(rows).zip(collections) {
            let guid = match outcome {
                Ok(Registered::Created(guid)) => {
                    sent.counts.created += 1;
                    guid
                }
                Ok(Registered::Unchanged(guid)) => {
                    sent.counts.unchanged += 1;
                    guid
                }
                Ok(Registered::Merged(guid)) => {
                    sent.counts.merged += 1;
                    guid
                }
                Err(error) => {
                    sent.rejects.push(batch.reject(&row, refusal(&error)));
                    continue;
                }
            };
            if let Some(collection) = collection {
                memberships.push((row, collection, FileRef::Guid(guid)));
            }
        }
        Ok(())
    }

    /// Registers files, with retries for those with an unknown outcome. That is safe, because the
    /// retry's policy accepts existing entries with equal fields.
    async fn register_all(
        &self,
        batch: &Batch,
        rows: &[RowAt],
        files: Vec<NewFile>,
        existing: Existing,
    ) -> Result<Vec<Result<Registered, ModelError>>, Error> {
        let mut outcomes: Vec<Option<Result<Registered, ModelError>>> = vec![None; rows.len()];
        let mut work: Vec<Vec<usize>> = vec![(0..rows.len()).collect()];
        let mut first = Some(files);
        let mut existing = existing;
        let mut attempt = 0;
        while let Some(wanted) = work.pop() {
            let files = match first.take() {
                Some(files) => files,
                None => self.files_again(batch, rows, &wanted)?,
            };
            let answer = self.catalogue.call(Operation::Register { files, parents: true, existing }).await;
            let mut unknown = Vec::new();
            match answer {
                Ok(Answer::Registered(items)) if items.len() == wanted.len() => {
                    let mut why = None;
                    for (index, item) in wanted.into_iter().zip(items) {
                        match item {
                            Err(error) if error.kind.is_retryable() => {
                                unknown.push(index);
                                why = Some(error);
                            }
                            item => outcomes[index] = Some(item),
                        }
                    }
                    if let Some(error) = why {
                        before_retry(&mut attempt, error).await?;
                    }
                }
                Ok(_) => return Err(unexpected("register").into()),
                Err(error) if error.kind.is_retryable() => {
                    before_retry(&mut attempt, error).await?;
                    unknown = wanted;
                }
                // More files than the catalogue accepts at once, by its own limit.
                Err(error) if error.kind == ErrorKind::Limit && wanted.len() > 1 => {
                    let (low, high) = wanted.split_at(wanted.len() / 2);
                    work.push(high.to_vec());
                    work.push(low.to_vec());
                    continue;
                }
                Err(error) if error.kind == ErrorKind::Limit => {
                    for index in wanted {
                        outcomes[index] = Some(Err(error.clone()));
                    }
                }
                Err(error) => return Err(error.into()),
            }
            if !unknown.is_empty() {
                if existing == Existing::Refuse {
                    existing = Existing::Same;
                }
                work.push(unknown);
            }
        }
        outcomes.into_iter().map(|outcome| outcome.ok_or(Error::Broken("a batch of files"))).collect()
    }

    /// Parses the files of these rows once more, because the call before consumed them.
    fn files_again(&self, batch: &Batch, rows: &[RowAt], wanted: &[usize]) -> Result<Vec<NewFile>, Error> {
        let mut fields = Fields::default();
        wanted
            .iter()
            .map(|index| {
                match self.listing.row(batch.record(&rows[*index]), &mut fields).map(|row| row.item) {
                    Ok(Item::File(file, _)) => Ok(*file),
                    _ => Err(Error::Broken("reading a row again")),
                }
            })
            .collect()
    }

    /// Adds files to collections, one call for each collection. Makes missing collections.
    async fn add_members(
        &self,
        batch: &Batch,
        memberships: Vec<(RowAt, Lfn, FileRef)>,
        sent: &mut Sent,
    ) -> Result<(), Error> {
        let mut by_collection: HashMap<Lfn, Vec<(RowAt, FileRef)>> = HashMap::new();
        for (row, collection, file) in memberships {
            by_collection.entry(collection).or_default().push((row, file));
        }
        for (collection, members) in by_collection {
            let made = match self.ensure_collection(&collection).await {
                Ok(made) => made,
                Err(error) if stops(&error) => return Err(error.into()),
                Err(error) => {
                    for (row, _) in &members {
                        sent.rejects.push(batch.reject(row, not_member(&collection, &error)));
                    }
                    continue;
                }
            };
            sent.counts.collections_made += u64::from(made);
            let add: Vec<FileRef> = members.iter().map(|(_, file)| file.clone()).collect();
            let edit = Operation::CollectionEdit { lfn: collection.clone(), add, remove: Vec::new() };
            match self.ask(edit).await {
                Ok(Answer::CollectionEdited { added, refused, .. }) => {
                    sent.counts.members_added += added;
                    for (row, file) in &members {
                        if let Some((_, error)) = refused.iter().find(|(refused, _)| refused == file) {
                            sent.rejects.push(batch.reject(row, not_member(&collection, error)));
                        }
                    }
                    let taken = members.len().saturating_sub(refused.len()) as u64;
                    sent.counts.members_unchanged += taken.saturating_sub(added);
                }
                Ok(_) => return Err(unexpected("collection-edit").into()),
                Err(error) if stops(&error) => return Err(error.into()),
                Err(error) => {
                    for (row, _) in &members {
                        sent.rejects.push(batch.reject(row, not_member(&collection, &error)));
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes a collection if it is missing; true if it was made.
    async fn ensure_collection(&self, lfn: &Lfn) -> Result<bool, ModelError> {
        let name = seen::hash(lfn.as_str());
        if self.collections.lock().contains(&name) {
            return Ok(false);
        }
        let create = Operation::CollectionCreate { lfn: lfn.clone(), tags: Vec::new() };
        let mut attempt = 0;
        let mut unknown = false;
        let made = loop {
            match self.ask_with_parent(create.clone(), lfn).await {
                Ok(_) => break true,
                Err(error) if error.kind == ErrorKind::Exists => break unknown,
                // An existing one serves as well as a new one.
                Err(error) if error.kind == ErrorKind::Unknown => {
                    unknown = true;
                    before_retry(&mut attempt, error).await?;
                }
                Err(error) => return Err(error),
            }
        };
        self.collections.lock().insert(name);
        Ok(made)
    }

    /// Calls an operation that makes `lfn`. If its directory is missing, makes that and retries.
    pub(crate) async fn ask_with_parent(
        &self,
        operation: Operation,
        lfn: &Lfn,
    ) -> Result<Answer, ModelError> {
        match self.ask_to_make(operation.clone()).await {
            Err(error) if error.kind == ErrorKind::NotFound => {
                let Some(parent) = lfn.parent() else { return Err(error) };
                let answer =
                    self.ask(Operation::Mkdir { lfns: vec![parent], parents: true, mode: None }).await?;
                each_done(answer, 1, "mkdir")?.into_iter().collect::<Result<(), _>>()?;
                self.ask_to_make(operation).await
            }
            answer => answer,
        }
    }
}

/// Says whether this error concerns the whole import rather than one row.
pub(crate) fn stops(error: &ModelError) -> bool {
    matches!(
        error.kind,
        ErrorKind::Busy
            | ErrorKind::Unavailable
            | ErrorKind::Unknown
            | ErrorKind::Corrupt
            | ErrorKind::Internal
            | ErrorKind::Unauthenticated
    )
}

/// Makes the complaint for a row that the catalogue refused.
pub(crate) fn refusal(error: &ModelError) -> Complaint {
    Complaint::new(Reason::of_refusal(error.kind), error.message.clone())
}

fn not_member(collection: &Lfn, error: &ModelError) -> Complaint {
    Complaint::new(Reason::NotMember, format!("{collection}: {}", error.message))
}
