//! Inspection of a volume that no service has open. It changes nothing; only adoption writes, and only the
//! identity.

use std::path::Path;
use std::sync::Arc;

use exacat_disk::Disk;
use exacat_model::{Error, Result};
use exacat_wire::writer::ServiceId;

use crate::check::{self, CheckReport, VolumeContent};
use crate::identity::VolumeIdentity;
use crate::index::Index;
use crate::journal::read_index;
use crate::volume_files::VolumeFiles;

/// A volume that is read without being opened: no part is sealed, and no file is moved. The caller holds the
/// lock of the volume, [`LOCK_FILE`](crate::LOCK_FILE).
pub struct VolumeInspection {
    stored: VolumeFiles,
    service: ServiceId,
    index: Index,
    is_torn: bool,
}

impl VolumeInspection {
    /// Reads the identity and the index of a volume.
    ///
    /// # Errors
    /// There is no volume, or its index is damaged.
    pub fn read(disk: Arc<dyn Disk>, root: &Path) -> Result<Self> {
        let Some(VolumeIdentity { id, service }) = VolumeIdentity::read(&*disk, root)? else {
            let what = format!("{}: no volume is here; give the directory of --volume", root.display());
            return Err(Error::not_found(what));
        };
        let (index, is_torn) = read_index(&disk, root, id)?;
        let stored = VolumeFiles { disk, root: root.to_owned(), id };
        Ok(VolumeInspection { stored, service, index, is_torn })
    }

    /// Returns the service that the volume belongs to.
    pub fn service(&self) -> ServiceId {
        self.service
    }

    /// Says whether the index ends with a torn write, as after a power cut. The next opening cuts it off.
    pub fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// Returns the content of the volume, by the stages of files.
    pub fn content(&self) -> VolumeContent {
        check::content(&self.stored, &self.index)
    }

    /// Compares all files with the index; with `reads` also every chunk with its checksum. `progress` is
    /// called after each part, and each chunk that was read. It ends the check by false.
    ///
    /// # Errors
    /// The directory of the parts cannot be read.
    pub fn check(&self, reads: bool, progress: &mut dyn FnMut(&CheckReport) -> bool) -> Result<CheckReport> {
        check::check(&self.stored, &self.index, reads, progress)
    }

    /// Gives the volume to another service: the next start of that service may open it.
    ///
    /// # Errors
    /// The identity cannot be written.
    pub fn hand_over(self, to: ServiceId) -> Result<()> {
        let identity = VolumeIdentity { id: self.stored.id, service: to };
        identity.write(&*self.stored.disk, &self.stored.root)
    }
}
