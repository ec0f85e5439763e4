//! Index of a volume: its parts with their durable chunks, and the stages of its files.

use std::collections::BTreeMap;

use exacat_wire::writer::{ChunkRecord, Close, FileId};

use crate::certified::CertifiedRecord;
use crate::item::{FileStage, Item, SealedBy};
use crate::origin::{PartKey, PartOrigin};

/// A part in the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedPart {
    /// Its producer and content.
    pub origin: PartOrigin,
    /// Its durable chunks, in order. None are here of a part that was sealed in order: these are
    /// beside its bytes.
    pub chunks: Vec<ChunkRecord>,
    /// Reason why nothing is added any more; none while it is open.
    pub sealed: Option<SealedBy>,
}

/// A file in the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedFile {
    /// The producer's close; none if it came to another service.
    pub close: Option<Close>,
    /// Stage.
    pub stage: FileStage,
    /// Reason of the stage, for a person.
    pub reason: String,
}

impl Default for IndexedFile {
    fn default() -> Self {
        IndexedFile { close: None, stage: FileStage::Open, reason: String::new() }
    }
}

/// A certified file in the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedCertified {
    /// The file.
    pub record: CertifiedRecord,
    /// Stage: certified, staged or removed.
    pub stage: FileStage,
}

/// The index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// Parts of files that are not certified.
    pub parts: BTreeMap<PartKey, IndexedPart>,
    /// Files that are more than open, and not certified.
    pub files: BTreeMap<FileId, IndexedFile>,
    /// Certified files.
    pub certified: BTreeMap<FileId, IndexedCertified>,
}

impl Index {
    /// Applies an item. An item that does not fit the ones before is damage.
    pub fn apply(&mut self, item: &Item) -> Result<(), &'static str> {
        match item {
            Item::Opened { part, origin } => {
                let new = IndexedPart { origin: origin.clone(), chunks: Vec::new(), sealed: None };
                if self.certified.contains_key(&part.file) {
                    return Err("a part of a certified file begins");
                }
                if self.parts.insert(*part, new).is_some() {
                    return Err("a part begins twice");
                }
            }
            Item::Durable { part, chunks } => {
                let known = self.parts.get_mut(part).ok_or("chunks of an unknown part")?;
                if known.sealed.is_some() {
                    return Err("chunks of a sealed part");
                }
                known.chunks.extend_from_slice(chunks);
            }
            Item::Sealed { part, by } => {
                let known = self.parts.get_mut(part).ok_or("the end of an unknown part")?;
                known.sealed = Some(*by);
                if *by == SealedBy::Order {
                    known.chunks = Vec::new();
                }
            }
            // The close came before the certificate, and to another volume.
            Item::Closed(close) if self.certified.contains_key(&close.file) => {}
            Item::Closed(close) => {
                let file = self.files.entry(close.file).or_default();
                file.stage = file.stage.max(FileStage::Closed);
                file.close = Some(close.clone());
            }
            Item::Stage { file, stage, reason } => match self.certified.get_mut(file) {
                Some(certified) => certified.stage = certified.stage.max(*stage),
                None => {
                    let file = self.files.entry(*file).or_default();
                    file.stage = *stage;
                    file.reason.clone_from(reason);
                }
            },
            Item::Certified(record) => {
                let file = record.unpack().ok_or("a certified file that cannot be read")?.file;
                for part in self.parts_of(file) {
                    self.parts.remove(&part);
                }
                self.files.remove(&file);
                // A record may be replaced by one that knows of more parts.
                let stage = self.certified.get(&file).map_or(FileStage::Certified, |known| known.stage);
                self.certified.insert(file, IndexedCertified { record: record.clone(), stage });
            }
            Item::Forgotten(file) => {
                self.certified.remove(file);
            }
        }
        Ok(())
    }

    fn parts_of(&self, file: FileId) -> Vec<PartKey> {
        let (first, last) = PartKey::bounds(file);
        self.parts.range(first..=last).map(|(part, _)| *part).collect()
    }

    /// Says whether a part is in the index.
    pub fn has_part(&self, part: PartKey) -> bool {
        let of_certified = || self.certified.get(&part.file)?.record.unpack();
        self.parts.contains_key(&part) || of_certified().is_some_and(|file| file.epochs.contains(&part.epoch))
    }

    /// Returns items that make the same index.
    pub fn items(&self) -> Vec<Item> {
        let mut items = Vec::new();
        for (part, known) in &self.parts {
            items.push(Item::Opened { part: *part, origin: known.origin.clone() });
            if !known.chunks.is_empty() {
                items.push(Item::Durable { part: *part, chunks: known.chunks.clone() });
            }
            items.extend(known.sealed.map(|by| Item::Sealed { part: *part, by }));
        }
        for (file, known) in &self.files {
            items.extend(known.close.clone().map(Item::Closed));
            let (stage, reason) = (known.stage, known.reason.clone());
            items.push(Item::Stage { file: *file, stage, reason });
        }
        for (file, known) in &self.certified {
            items.push(Item::Certified(known.record.clone()));
            if known.stage > FileStage::Certified {
                items.push(Item::Stage { file: *file, stage: known.stage, reason: String::new() });
            }
        }
        items
    }
}
