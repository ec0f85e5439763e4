//! A catalogue opened in this process: called without a network, and loaded in bulk if its data
//! directory is used by no server.

use std::sync::Arc;

use exacat_catalogue::{Caller, Catalogue as Rules, DirectoryCache, Settings};
use exacat_model::operation::NewFile;
use exacat_model::{AccountName, Answer, Error, ErrorKind, Operation, UserId};
use exacat_store::{Clock, Store, SystemClock};
use exacat_store_embedded::{EmbeddedStore, LoadSettings, Loader};
use futures::Stream;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::bulk::Bulk;
use crate::catalogue::{Catalogue, again, following};
use crate::limits::LOCAL_PAGES_AHEAD_MAX;

/// The catalogue in a store, called as an admin.
pub struct StoreCatalogue {
    rules: Arc<Rules>,
    caller: Caller,
}

impl StoreCatalogue {
    /// Opens the catalogue in this store.
    pub async fn open(store: &Arc<dyn Store>) -> Result<Arc<Self>, Error> {
        Self::at(Arc::clone(store), Arc::new(SystemClock)).await.map(Arc::new)
    }

    async fn at(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let rules = Rules::open(store, clock, Settings::default()).await?;
        let caller = rules.caller_named(&AccountName::parse("admin")?).await?;
        Ok(StoreCatalogue { rules, caller })
    }
}

/// The catalogue in an embedded store, called as an admin.
pub struct Local {
    store: Arc<EmbeddedStore>,
    catalogue: StoreCatalogue,
    settings: LoadSettings,
    directories: DirectoryCache,
    /// The load in progress.
    loader: Mutex<Option<Arc<Loader>>>,
}

impl Local {
    /// Opens the catalogue in this store. `settings` bound its loads.
    pub async fn open(
        store: Arc<EmbeddedStore>,
        clock: Arc<dyn Clock>,
        settings: LoadSettings,
    ) -> Result<Arc<Self>, Error> {
        let catalogue = StoreCatalogue::at(Arc::clone(&store) as Arc<dyn Store>, clock).await?;
        let (directories, loader) = (DirectoryCache::default(), Mutex::new(None));
        Ok(Arc::new(Local { store, catalogue, settings, directories, loader }))
    }

    fn loader(&self) -> Result<Arc<Loader>, Error> {
        let mut loader = self.loader.lock();
        if let Some(loader) = &*loader {
            return Ok(Arc::clone(loader));
        }
        let begun = Arc::new(self.store.loader(self.settings)?);
        *loader = Some(Arc::clone(&begun));
        Ok(begun)
    }
}

impl Catalogue for StoreCatalogue {
    async fn call(&self, operation: Operation) -> Result<Answer, Error> {
        self.rules.execute(&self.caller, self.rules.new_operation_id()?, operation).await
    }

    /// Prepares further pages while the caller uses one.
    fn stream(&self, operation: Operation) -> impl Stream<Item = Result<Answer, Error>> + Send {
        let (sender, pages) = mpsc::channel(LOCAL_PAGES_AHEAD_MAX);
        let (rules, caller) = (Arc::clone(&self.rules), self.caller.clone());
        tokio::spawn(async move {
            let mut next = Some(operation);
            while let Some(operation) = next {
                let again = again(&operation);
                let answer = match rules.new_operation_id() {
                    Ok(id) => rules.execute(&caller, id, operation).await,
                    Err(error) => Err(error),
                };
                next = following(again, &answer);
                if sender.send(answer).await.is_err() {
                    // The caller dropped the stream.
                    return;
                }
            }
        });
        futures::stream::unfold(pages, |mut pages| async move { Some((pages.recv().await?, pages)) })
    }
}

impl Catalogue for Local {
    async fn call(&self, operation: Operation) -> Result<Answer, Error> {
        self.catalogue.call(operation).await
    }

    fn stream(&self, operation: Operation) -> impl Stream<Item = Result<Answer, Error>> + Send {
        self.catalogue.stream(operation)
    }
}

impl Bulk for Local {
    async fn take(&self, files: &[NewFile], which: &[(usize, u64)]) -> Result<Vec<bool>, Error> {
        let places: Vec<usize> = which.iter().map(|(place, _)| *place).collect();
        let new = self
            .catalogue
            .rules
            .files_to_load(
                &self.catalogue.caller,
                self.catalogue.rules.new_operation_id()?,
                files,
                &places,
                &self.directories,
            )
            .await?;
        let mut taken: Vec<bool> = new.iter().map(Option::is_some).collect();
        let numbered = which.iter().zip(new).filter_map(|((_, line), new)| Some((*line, new?)));
        let took = self.loader()?.take(numbered)?;
        taken.iter_mut().filter(|taken| **taken).zip(took).for_each(|(taken, took)| *taken = took);
        Ok(taken)
    }

    async fn load(&self, left: impl FnMut(u64) + Send + 'static) -> Result<u64, Error> {
        let Some(loader) = self.loader.lock().take() else { return Ok(0) };
        let held = || Error::new(ErrorKind::Internal, "files are still being taken for a load");
        let loader = Arc::into_inner(loader).ok_or_else(held)?;
        self.store.load(loader, self.catalogue.caller.user().unwrap_or(UserId::ADMIN), left).await
    }
}
