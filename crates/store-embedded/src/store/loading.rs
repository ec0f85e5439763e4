//! Bulk loads into an open store.

use std::sync::Arc;

use exacat_disk::{cannot_write, remove_tree};
use exacat_model::{Error, ErrorKind, Result, UserId};

use super::EmbeddedStore;
use crate::command::Command;
use crate::load::{LoadSettings, LoadWork, Loader};

impl EmbeddedStore {
    /// Begins to gather files for a load. There can be only one at a time.
    pub fn loader(&self, settings: LoadSettings) -> Result<Loader> {
        if settings.run_rows == 0 {
            return Err(Error::invalid("a run of a load has no room for a row"));
        }
        if self.is_read_only() {
            return Err(Error::new(ErrorKind::Unavailable, "this is a snapshot, it cannot be changed"));
        }
        let (disk, directory) = (Arc::clone(&self.shared().disk), self.service().layout().load());
        remove_tree(&*disk, &directory)
            .and_then(|()| disk.create_directory(&directory))
            .map_err(|error| cannot_write(&directory, &error))?;
        Ok(Loader::new(disk, directory, settings))
    }

    /// Loads the taken files as changes of `who`, and returns how many are now in the catalogue.
    /// `left` gets the numbers of the others. Nothing was done about those: the ordinary path loads
    /// or refuses them.
    ///
    /// Meanwhile the store answers no other request. After an error a part may be done: the log has
    /// only whole files of it. Repeating the load leaves that part to the ordinary path.
    pub async fn load(
        &self,
        loader: Loader,
        who: UserId,
        left: impl FnMut(u64) + Send + 'static,
    ) -> Result<u64> {
        self.ask(|reply| Command::Load(Box::new(LoadWork { loader, who, left: Box::new(left), reply })))
            .await?
    }
}
