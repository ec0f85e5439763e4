//! Identity of a volume, and the service that it belongs to: the file `VOLUME`.

use std::path::Path;

use exacat_disk::{Disk, cannot_read, cannot_write, corrupt, read_text, replace_small};
use exacat_model::Result;
use exacat_wire::writer::ServiceId;

use crate::stored::VolumeId;

/// File with the identity of a volume.
pub const IDENTITY: &str = "VOLUME";
/// First line of that file, without its version.
const IDENTITY_TITLE: &str = "exacat writer volume";
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
        let (id, service) = (u128::from_be_bytes(self.id), self.service);
        let body = format!("{IDENTITY_TITLE}, layout {LAYOUT_VERSION}\nid {id:032x}\nservice {service}\n");
        format!("{body}crc {:08x}\n", crc32fast::hash(body.as_bytes()))
    }

    fn parse(text: &str) -> std::result::Result<Self, &'static str> {
        let (first, rest) = text.split_once('\n').ok_or("the file is cut off")?;
        let version = first.strip_prefix(IDENTITY_TITLE).and_then(|rest| rest.strip_prefix(", layout "));
        let version: u32 =
            version.and_then(|text| text.parse().ok()).ok_or("this is no volume of a writer")?;
        if version > LAYOUT_VERSION {
            return Err("the layout is that of a newer release: use it");
        }
        let mut lines = rest.lines();
        let mut number = |name: &str| {
            let digits = lines.next()?.strip_prefix(name)?;
            u128::from_str_radix(digits, 16).ok().map(u128::to_be_bytes)
        };
        let id = number("id ").ok_or("the id is missing")?;
        let service = ServiceId(number("service ").ok_or("the service is missing")?);
        let identity = VolumeIdentity { id, service };
        // Compared as a whole: no byte may change unnoticed.
        if identity.text() == text { Ok(identity) } else { Err("the content fails its checksum") }
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
