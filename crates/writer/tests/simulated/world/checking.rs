//! The checker of the simulated world: what producers were told, against the catalogue and the disks.

use exacat_wire::writer::{ByteRange, FileId, WriterId};
use exacat_writer::sums::adler32;
use exacat_writer::{FileStage, Packer, PartKey, Position};

use super::World;
use super::leaving::LostFile;

impl World {
    /// Compares the certified files, read from the disks, with the events of the producers. What a killed
    /// producer was told to be durable is certified, or listed by its services.
    pub(super) fn check(&self) {
        let seed = self.seed;
        let mut files = 0;
        for (at, source) in self.sources.iter().enumerate() {
            let appended: Vec<Position> = source.packers.iter().map(Packer::appended).collect();
            let settled: Vec<Position> = source.settled.iter().map(|settled| settled.through).collect();
            assert_eq!(settled, appended, "seed {seed}: every event is told to be durable");
            assert_eq!(source.memory.used(), 0, "seed {seed}: all memory is free");
            for (file, (bytes, events)) in &source.written {
                files += 1;
                self.check_certified(*file, bytes, *events, (at, source.writer));
            }
        }
        for (file, lost) in &self.lost {
            match self.catalogue.contains_key(file) {
                true => {
                    files += 1;
                    self.check_certified(*file, &lost.bytes, lost.events, (lost.source, lost.writer));
                }
                false => self.check_listed(*file, lost),
            }
        }
        assert_eq!(files, self.catalogue.len(), "seed {seed}: no file that nobody wrote");
    }

    fn check_certified(&self, file: FileId, bytes: &[u8], events: u64, (at, writer): (usize, WriterId)) {
        let seed = self.seed;
        let certificate = &self.catalogue[&file];
        assert_eq!(certificate.length, bytes.len() as u64, "seed {seed}: {file}");
        assert_eq!((certificate.events, certificate.adler32), (events, adler32(bytes)), "seed {seed}");
        let account = format!("account {at}");
        assert_eq!((&certificate.owner, certificate.writer), (&account, writer), "seed {seed}");
        if self.copied.contains(&file) {
            // Its bytes were compared when they were copied, and are gone.
            return;
        }
        let mut read = Vec::new();
        for segment in &certificate.segments {
            assert_eq!(segment.range.from, read.len() as u64, "seed {seed}: in order, without gap");
            let node = self.home_of(segment.part.service);
            let (volumes, service) = node.running.as_ref().unwrap();
            let part = PartKey { file, epoch: segment.part.epoch };
            let volume = service.volume_of(part).expect("the part is there");
            let bytes = volumes[volume].read(part, segment.range);
            read.extend(bytes.unwrap_or_else(|error| panic!("seed {seed}: {error}")));
        }
        assert!(read == bytes, "seed {seed}: {file} has other bytes");
    }

    /// Checks that services list a file, and have the bytes that were acknowledged.
    fn check_listed(&self, file: FileId, lost: &LostFile) {
        let seed = self.seed;
        let (mut is_listed, mut durable): (bool, Vec<ByteRange>) = (false, Vec::new());
        for (volumes, service) in self.nodes.iter().filter_map(|node| node.running.as_ref()) {
            let Some(status) = service.file(file, self.now) else { continue };
            assert!(status.stage < FileStage::Certified, "seed {seed}: {status:?}");
            is_listed = true;
            for segment in service.segments(file).map(|of| of.segments).unwrap_or_default() {
                let part = PartKey { file, epoch: segment.part.epoch };
                let read = volumes[segment.volume.expect("the part is here")].read(part, segment.range);
                let read = read.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                let range = segment.range.from as usize..segment.range.to as usize;
                assert!(read == lost.bytes[range], "seed {seed}: {file} has other bytes");
                durable.push(segment.range);
            }
        }
        durable.sort_by_key(|range| range.from);
        for range in &lost.acknowledged {
            let mut end = range.from;
            for has in durable.iter().filter(|has| has.to > range.from) {
                if has.from <= end {
                    end = end.max(has.to);
                }
            }
            assert!(is_listed && end >= range.to, "seed {seed}: {file} lacks {range:?}: {durable:?}");
        }
    }
}
