//! The mover of the simulated world: it copies certified files elsewhere, and orders some to be removed.

use std::collections::BTreeSet;
use std::path::Path;

use exacat_disk::Disk as _;
use exacat_wire::writer::FileId;
use exacat_writer::{FileStage, PartKey};

use super::World;

impl World {
    /// Says whether a file is to be copied elsewhere and removed.
    pub(super) fn leaves(file: FileId) -> bool {
        !file.0[3].is_multiple_of(3)
    }

    /// Returns the files that are to be removed, and are not, everywhere.
    pub(super) fn remaining(&self) -> Vec<FileId> {
        let mut names = BTreeSet::new();
        for (node, at) in self.nodes.iter().flat_map(|node| (0..self.plan.volumes).map(move |at| (node, at)))
        {
            let there = node.disk.list(Path::new(&format!("/volume{at}/parts"))).unwrap();
            names.extend(there.iter().map(|name| name[..32].to_owned()));
        }
        let leaving = self.catalogue.keys().filter(|file| Self::leaves(**file));
        let is_left = |file: &&FileId| !self.copied.contains(file) || names.contains(&file.to_string());
        leaving.filter(is_left).copied().collect()
    }

    /// Copies certified files elsewhere, and says so; or orders their removal, which nobody needs to know.
    pub(super) fn stage(&mut self) {
        for at in 0..self.nodes.len() {
            if !self.is_awake(at) || !self.random.chance(20) {
                continue;
            }
            let now = self.now + self.nodes[at].clock;
            let Some((_, service)) = &self.nodes[at].running else { continue };
            let page = service.files_page(None, Some(FileStage::Certified), 1_000, now);
            assert!(page.next.is_none(), "all files are on one page");
            for status in page.files.iter().filter(|status| status.is_certifier) {
                let file = status.file;
                if !Self::leaves(file) || !(self.copied.contains(&file) || self.copy(at, file)) {
                    continue;
                }
                self.copied.insert(file);
                let Some((_, service)) = &mut self.nodes[at].running else { continue };
                // The index may not be able to take it: it is tried again.
                let _outcome = match file.0[2].is_multiple_of(3) {
                    true => service.remove(file, now),
                    false => service.staged(file, now),
                };
            }
            self.drain_service(at);
        }
    }

    /// Reads a file as its service says where it is; false if another service is away.
    fn copy(&self, at: usize, file: FileId) -> bool {
        let Some((_, service)) = &self.nodes[at].running else { return false };
        let readable = service.segments(file).expect("a certified file can be read");
        let mut bytes = Vec::new();
        for segment in &readable.segments {
            let node = self.home_of(segment.part.service);
            let Some((volumes, service)) = &node.running else { return false };
            let part = PartKey { file, epoch: segment.part.epoch };
            // The volume of a lost service is not adopted yet.
            let Some(volume) = service.volume_of(part) else {
                assert!(node.id != segment.part.service, "the part is there");
                return false;
            };
            assert!(segment.volume.is_none_or(|here| here == volume));
            let read = volumes[volume].read(part, segment.range);
            bytes.extend(read.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed)));
        }
        assert!(self.written(file).is_some_and(|written| *written == bytes), "seed {}: {file}", self.seed);
        assert_eq!(readable.length, Some(bytes.len() as u64));
        true
    }

    /// Returns the number of files that were copied elsewhere and removed.
    pub(crate) fn removed_files(&self) -> usize {
        self.copied.len()
    }

    /// Returns the number of opens that the catalogue refused for now.
    pub(crate) fn refused_opens(&self) -> u64 {
        self.refused_opens
    }
}
