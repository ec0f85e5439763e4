//! Names of parts, and their producers and content.

use exacat_model::canonical_struct;
use exacat_model::codec::{Decode, DecodeError, Encode, Reader};
use exacat_model::limits::ACCOUNT_NAME_BYTES_MAX;
use exacat_wire::writer::{Description, FileId, Open, WriterId};

/// Name of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartKey {
    /// The file.
    pub file: FileId,
    /// Epoch of the part.
    pub epoch: u32,
}

canonical_struct!(PartKey { file, epoch });

impl PartKey {
    /// Returns the bounds of the parts of a file.
    pub(crate) fn bounds(file: FileId) -> (Self, Self) {
        (PartKey { file, epoch: 0 }, PartKey { file, epoch: u32::MAX })
    }

    /// Reads the name of a part's data file.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (file, epoch) = name.split_once('-')?;
        let file = FileId(u128::from_str_radix(file, 16).ok()?.to_be_bytes());
        let part = PartKey { file, epoch: u32::from_str_radix(epoch, 16).ok()? };
        // Only the very name: no sign, no capital digits.
        (part.file_name() == name).then_some(part)
    }

    /// Returns the name of the part's data file.
    pub fn file_name(&self) -> String {
        format!("{}-{:08x}", self.file, self.epoch)
    }
}

/// Producer and content of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartOrigin {
    /// The producer.
    pub writer: WriterId,
    /// Its number for the stream.
    pub stream: u32,
    /// Account of the catalogue that will own the file.
    pub owner: String,
    /// Time at which the part began, in milliseconds of the service's clock.
    pub begun: u64,
    /// Content of the file.
    pub description: Description,
}

impl PartOrigin {
    /// Makes the origin of a part from its open.
    pub(crate) fn of(open: &Open, writer: WriterId, owner: String, begun: u64) -> Self {
        PartOrigin { writer, stream: open.stream, owner, begun, description: open.description.clone() }
    }
}

impl Encode for PartOrigin {
    fn encode(&self, out: &mut Vec<u8>) {
        self.writer.encode(out);
        self.stream.encode(out);
        self.owner.encode(out);
        self.begun.encode(out);
        self.description.encode(out);
    }
}

impl Decode for PartOrigin {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (writer, stream) = (Decode::decode(reader)?, Decode::decode(reader)?);
        let (owner, begun) = (account(reader)?, Decode::decode(reader)?);
        Ok(PartOrigin { writer, stream, owner, begun, description: Decode::decode(reader)? })
    }
}

/// Reads the name of an account.
pub(crate) fn account(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    let name = String::decode(reader)?;
    if name.len() > ACCOUNT_NAME_BYTES_MAX {
        return Err(reader.error("the name of an account is too long"));
    }
    Ok(name)
}
