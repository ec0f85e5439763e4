//! All rules of the catalogue, for any store: paths, permissions, accounts, registration, moves,
//! trash, tags, collections, uploads, quotas, find, usage, expiry, history, fsck.
//!
//! Start with [`Catalogue::execute`]: it takes one operation, checks it against the caller, and
//! returns one answer. It knows no protocol, no connection and no particular store. The store
//! decides what must hold at the instant of commit. This crate judges everything that may be judged
//! a moment earlier.

mod caller;
mod cursor;
mod execute;
mod grants;
mod judgement;
mod registry;
mod repeat;
mod resolve;
pub mod settings;

mod accounts;
mod attributes;
mod collections;
mod directories;
pub mod during;
mod elements;
mod find;
mod fsck;
mod history;
mod listing;
mod loading;
mod log;
pub mod moments;
mod moving;
mod past;
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

pub use caller::{Caller, ElementAccess};
pub use collections::members_from;
pub use fsck::{SeSums, Sums};
pub use grants::{Activity, Grant};
pub use register::DirectoryCache;
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
    /// The same catalogue at each consistency level below `latest`.
    bounded: Vec<(Consistency, Catalogue)>,
    /// True if other servers change the state as well, or only another one does.
    is_shared: bool,
}

impl Catalogue {
    /// Opens the catalogue in `store`.
    pub async fn open(store: Arc<dyn Store>, clock: Arc<dyn Clock>, settings: Settings) -> Result<Arc<Self>> {
        let registry = Arc::new(Registry::load(&*store).await?);
        let bounded = |level: Consistency| {
            let (clock, registry, settings) = (clock.clone(), registry.clone(), settings.clone());
            let store = store.with_bounded_staleness(level)?;
            Some((
                level,
                Catalogue { store, clock, registry, settings, bounded: Vec::new(), is_shared: true },
            ))
        };
        let weaker = Consistency::ALL.into_iter().filter(|level| *level != Consistency::Latest);
        let bounded: Vec<_> = weaker.filter_map(bounded).collect();
        let is_shared = !bounded.is_empty() || store.following().is_some();
        Ok(Arc::new(Catalogue { store, clock, registry, settings, bounded, is_shared }))
    }

    /// Returns the store beneath, for tasks outside the rules (closing, status).
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Returns the catalogue for an operation at consistency `level`; without one the settings
    /// decide. Writes, `Fsck` and `Status` always use the latest state.
    pub fn at(&self, level: Option<Consistency>, operation: &Operation) -> &Catalogue {
        if operation.writes() || matches!(operation, Operation::Fsck | Operation::Status) {
            return self;
        }
        self.bounded_to(level)
    }

    /// Returns the catalogue for reads at consistency `level`; without one the settings decide.
    pub fn bounded_to(&self, level: Option<Consistency>) -> &Catalogue {
        let level = level.unwrap_or(self.settings.consistency);
        self.bounded.iter().find(|(this, _)| *this == level).map_or(self, |(_, catalogue)| catalogue)
    }

    /// Returns the current names and numbers of users, groups and storage elements.
    fn names(&self) -> Arc<registry::Names> {
        self.registry.names()
    }

    /// Returns the storage element with this name. For a face that must know what lies beyond a
    /// PFN; it shows none of this to clients who may not see it.
    pub fn storage_element(&self, name: &SeName) -> Option<Arc<Se>> {
        self.registry.names().se(name).ok().cloned()
    }

    /// Returns the storage element with this number.
    pub fn storage_element_numbered(&self, number: SeNumber) -> Option<Arc<Se>> {
        self.registry.names().ses.get(&number).cloned()
    }

    /// Returns all storage elements, in the order of their numbers.
    pub fn storage_elements(&self) -> Vec<Arc<Se>> {
        self.registry.names().ses.values().cloned().collect()
    }

    /// Returns the names with the changes of other servers, up to the last read of the log head.
    /// After an operation has read what its answer needs, that is the state of the answer.
    async fn names_seen(&self) -> Result<Arc<registry::Names>> {
        self.registry.current(&*self.store).await
    }

    /// Reads the log head and refreshes the names, as far as the store's consistency level demands.
    /// Called before an operation that changes something or depends on names.
    async fn refresh_names(&self) -> Result<()> {
        if self.is_shared {
            self.store.revision().await?;
            self.names_seen().await?;
        }
        Ok(())
    }

    /// Returns the trusted time, which also makes and judges operation ids. Changes carry the same
    /// time, so it stays behind a clock that jumped ahead.
    pub fn now(&self) -> TimeMs {
        self.clock.trusted()
    }

    /// Makes an operation id that nobody used before.
    pub fn new_operation_id(&self) -> Result<OperationId> {
        let mut random = [0; 10];
        fill_random(&mut random)?;
        Ok(OperationId::new(self.clock.trusted(), random))
    }

    /// Makes a new GUID from the current time.
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

    /// Applies one request, and counts its changes for the operation that is in progress.
    async fn apply_request(&self, caller: &Caller, request: Request) -> Result<Vec<Outcome>> {
        let outcomes = self.store.apply(request).await?;
        if outcomes.contains(&Outcome::Refused(Refusal::Outdated)) {
            caller.set_outdated();
        }
        steps::count(&outcomes);
        Ok(outcomes)
    }

    /// Returns the revision of an outcome: its own, or the current one if it changed nothing.
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

/// Derives the id of a further request of operation `id`. Some operations need several requests;
/// each request gets the same id again when the client repeats the operation.
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
