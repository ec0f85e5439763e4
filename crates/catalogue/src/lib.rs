//! Every rule of the catalogue, written once, over any store: paths, permissions, accounts, bulk registration,
//! moves, trash and purge, tags, collections, uploads and quotas, find, usage, expiry, history, fsck.
//!
//! Start with [`Catalogue::execute`]: one operation in, one answer out, checked against who asks. It knows no
//! protocol, no connection and no store in particular. What must hold at the instant of commit is decided by the
//! store; everything that may be judged a moment before is judged here.

mod caller;
mod cursor;
mod execute;
mod judgement;
mod registry;
mod repeat;
mod resolve;
pub mod settings;

mod accounts;
mod attributes;
mod collections;
mod directories;
mod find;
mod fsck;
mod history;
mod listing;
mod loading;
mod log;
mod moving;
mod quota;
mod register;
mod snapshots;
mod steps;
mod storage;
mod tags;
mod timing;
mod tokens;
mod trailing;
mod trash;
mod trash_parts;
mod upload;
mod whereis;
pub mod workers;

use std::sync::Arc;

use exacat_model::{
    Consistency, Error, ErrorKind, Guid, Mutation, Operation, OperationId, Result, Revision, Se, SeName,
    SeNumber, TimeMs,
};
use exacat_store::{Clock, Outcome, Refusal, Request, Store};

pub use caller::Caller;
pub use loading::KnownDirectories;
pub use repeat::fingerprint;
pub use settings::Settings;
pub use whereis::EachWhereis;

use registry::Registry;

/// The catalogue over a store. Shared by all faces and workers.
pub struct Catalogue {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    registry: Arc<Registry>,
    settings: Settings,
    /// The same catalogue, for answers that may be older than the question.
    relaxed: Vec<(Consistency, Catalogue)>,
    /// Do other servers change the state as well?
    is_shared: bool,
}

impl Catalogue {
    /// The catalogue that is in `store`.
    pub async fn open(store: Arc<dyn Store>, clock: Arc<dyn Clock>, settings: Settings) -> Result<Arc<Self>> {
        let registry = Arc::new(Registry::load(&*store).await?);
        let relaxed = |level: Consistency| {
            let (clock, registry, settings) = (clock.clone(), registry.clone(), settings.clone());
            let store = store.relaxed(level)?;
            Some((
                level,
                Catalogue { store, clock, registry, settings, relaxed: Vec::new(), is_shared: true },
            ))
        };
        let weaker = Consistency::ALL.into_iter().filter(|level| *level != Consistency::Latest);
        let relaxed: Vec<_> = weaker.filter_map(relaxed).collect();
        let is_shared = !relaxed.is_empty();
        Ok(Arc::new(Catalogue { store, clock, registry, settings, relaxed, is_shared }))
    }

    /// The store beneath, for what is not the catalogue's matter (closing, status).
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The catalogue as an operation is carried out on that says it wants this consistency, or nothing: then the settings say. What writes, and what checks
    /// everything, is of the last state whatever is asked.
    pub fn at(&self, level: Option<Consistency>, operation: &Operation) -> &Catalogue {
        if operation.writes() || matches!(operation, Operation::Fsck | Operation::Status) {
            return self;
        }
        self.relaxed_to(level)
    }

    /// The same for what only looks up.
    pub fn relaxed_to(&self, level: Option<Consistency>) -> &Catalogue {
        let level = level.unwrap_or(self.settings.consistency);
        self.relaxed.iter().find(|(this, _)| *this == level).map_or(self, |(_, catalogue)| catalogue)
    }

    /// Names and numbers of users, groups and storage elements as they are now.
    fn names(&self) -> Arc<registry::Names> {
        self.registry.names()
    }

    /// The storage element of that name, for a face that has to know what is beyond a PFN. None of it is told to clients who
    /// may not see it.
    pub fn storage_element(&self, name: &SeName) -> Option<Arc<Se>> {
        self.registry.names().se(name).ok().cloned()
    }

    /// The storage element of that number.
    pub fn storage_element_numbered(&self, number: SeNumber) -> Option<Arc<Se>> {
        self.registry.names().ses.get(&number).cloned()
    }

    /// All storage elements, in the order of their numbers.
    pub fn storage_elements(&self) -> Vec<Arc<Se>> {
        self.registry.names().ses.values().cloned().collect()
    }

    /// The same, with what other servers changed of them, as far as the last look at the store told: that of the answer, if it has read what it is of.
    async fn names_seen(&self) -> Result<Arc<registry::Names>> {
        self.registry.current(&*self.store).await
    }

    /// Sees to it that names are those of now, as the store's consistency has it, before an operation begins that is about them, or changes something.
    async fn look_for_names(&self) -> Result<()> {
        if self.is_shared {
            self.store.revision().await?;
            self.names_seen().await?;
        }
        Ok(())
    }

    /// The time here, by which operation ids are made and judged. It is that of changes, so it stays
    /// behind a clock that jumped ahead.
    pub fn now(&self) -> TimeMs {
        self.clock.trusted()
    }

    /// The id of an operation that nobody asked for before.
    pub fn new_operation_id(&self) -> Result<OperationId> {
        let mut random = [0; 10];
        fill_random(&mut random)?;
        Ok(OperationId::new(self.clock.trusted(), random))
    }

    /// A new GUID of this moment.
    fn new_guid(&self) -> Result<Guid> {
        let mut random = [0u8; 10];
        fill_random(&mut random)?;
        Ok(Guid::v7(self.clock.trusted(), random))
    }

    /// Applies mutations under one operation id on behalf of `caller`.
    async fn apply(
        &self,
        caller: &Caller,
        operation: OperationId,
        mutations: Vec<Mutation>,
    ) -> Result<Vec<Outcome>> {
        let request = Request::new(operation, caller.acting_user(), mutations).with(caller.asks());
        self.apply_request(caller, request.judged(caller.judged())).await
    }

    /// Applies one request, and counts what it did towards the operation that is being carried out.
    async fn apply_request(&self, caller: &Caller, request: Request) -> Result<Vec<Outcome>> {
        let outcomes = self.store.apply(request).await?;
        if outcomes.contains(&Outcome::Refused(Refusal::Outdated)) {
            caller.set_outdated();
        }
        steps::count(&outcomes);
        Ok(outcomes)
    }

    /// The revision an outcome left: its own, or the current one if it changed nothing.
    async fn revision_of(&self, outcome: &Outcome) -> Result<Revision> {
        match outcome {
            Outcome::Applied { revision, .. } => Ok(*revision),
            _ => self.store.revision().await,
        }
    }
}

/// Fills `bytes` from the system's source of randomness.
fn fill_random(bytes: &mut [u8]) -> Result<()> {
    getrandom::fill(bytes).map_err(|error| {
        Error::new(ErrorKind::Unavailable, format!("the system gives no random bytes: {error}"))
    })
}

/// The id of a further request that belongs to operation `id`: steps of one operation that need requests of
/// their own each get an id that is the same when the operation is asked again.
fn step_id(id: OperationId, step: u64) -> OperationId {
    use sha2::Digest;
    let mut hash = sha2::Sha256::new();
    hash.update(id.0);
    hash.update(step.to_le_bytes());
    let digest = hash.finalize();
    let mut bytes = [0; 10];
    bytes.copy_from_slice(&digest[..10]);
    id.derived(bytes)
}
