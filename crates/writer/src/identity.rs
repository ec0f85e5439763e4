//! Identity of a volume, and the service that it belongs to: the file `VOLUME`.

use std::path::Path;

use exacat_disk::{
    Disk, TitledLines, cannot_read, cannot_write, corrupt, hex_of, read_text, replace_small, titled_text,
};
use exacat_model::Result;
use exacat_wire::writer::ServiceId;

use crate::stored::VolumeId;

/// File with the identity of a volume.
pub const IDENTITY: &str = "VOLUME";
/// First line of that file, before its version.
const IDENTITY_TITLE: &str = "exacat writer volume, layout";
/// Version of the layout of a volume's directory.
const LAYOUT_VERSION: u32 = 1;

/// Identity of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VolumeIdentity {
    /// The volume.
    pub id: VolumeId,
    /// Service that it belongs to.
    pub service: ServiceId,
}

impl VolumeIdentity {
    fn text(self) -> String {
        let (id, service) = (hex_of(self.id), self.service);
        titled_text(IDENTITY_TITLE, LAYOUT_VERSION, &[("id", &id), ("service", &service)])
    }

    fn parse(text: &str) -> std::result::Result<Self, &'static str> {
        let mut lines = TitledLines::of(text, IDENTITY_TITLE, LAYOUT_VERSION)?;
        Ok(VolumeIdentity { id: lines.id("id")?, service: ServiceId(lines.id("service")?) })
    }

    /// Reads the identity of the volume in a directory; none if there is no volume.
    pub(crate) fn read(disk: &dyn Disk, root: &Path) -> Result<Option<Self>> {
        let name = root.join(IDENTITY).display().to_string();
        let text = read_text(disk, &root.join(IDENTITY)).map_err(|error| cannot_read(&name, &error))?;
        text.map(|text| Self::parse(&text).map_err(|what| corrupt(&name, 0, what))).transpose()
    }

    /// Replaces the identity of the volume in a directory, durably.
    pub(crate) fn write(self, disk: &dyn Disk, root: &Path) -> Result<()> {
        replace_small(disk, root, IDENTITY, self.text().as_bytes())
            .map_err(|error| cannot_write(&root.join(IDENTITY), &error))
    }
}

/// Returns the service that the volume in a directory belongs to; none if there is no volume yet.
pub fn owner_of(disk: &dyn Disk, root: &Path) -> Result<Option<ServiceId>> {
    Ok(VolumeIdentity::read(disk, root)?.map(|identity| identity.service))
}
