//! Kills of producers in the simulated world: their memory is gone, and they start again with new ids.

use exacat_wire::writer::{ByteRange, FileId, WriterId};

use super::World;

/// File of a producer that was killed.
pub(super) struct LostFile {
    /// Number of the producer, which is its account.
    pub source: usize,
    pub writer: WriterId,
    /// Bytes and number of events that were appended.
    pub bytes: Vec<u8>,
    pub events: u64,
    /// Ranges that the producer was told to be durable.
    pub acknowledged: Vec<ByteRange>,
}

impl World {
    /// Kills a producer. What is on its way may arrive, up to the middle of a chunk; what it has in memory is
    /// lost. Another one with new ids writes the rest of the events.
    pub(super) fn kill_producer(&mut self) {
        let at = self.random.next(self.sources.len() as u64) as usize;
        for (number, wire) in &mut self.wires {
            if wire.source == at && !wire.is_lost {
                (wire.is_lost, wire.producer_hears) = (true, false);
                self.network.cut(*number, self.now, &mut self.random);
            }
        }
        self.dials.retain(|dial| dial.1 != at);
        self.kills += 1;
        let new = self.source(at, self.kills);
        let old = std::mem::replace(&mut self.sources[at], new);
        self.sources[at].events_left = old.events_left;
        self.sources[at].next_event = old.next_event;
        let mut acknowledged = old.acknowledged;
        for (file, (bytes, events)) in old.written {
            let acknowledged = acknowledged.remove(&file).unwrap_or_default();
            self.lost.insert(file, LostFile { source: at, writer: old.writer, bytes, events, acknowledged });
        }
        assert!(acknowledged.is_empty(), "seed {}: nothing is acknowledged that was not written", self.seed);
    }

    /// Returns the bytes that were written to a file.
    pub(super) fn written(&self, file: FileId) -> Option<&[u8]> {
        let of_source = self.sources.iter().find_map(|source| source.written.get(&file));
        let written = of_source.map(|(bytes, _)| bytes);
        written.or_else(|| self.lost.get(&file).map(|lost| &lost.bytes)).map(Vec::as_slice)
    }

    /// Returns the numbers of files of killed producers: of those that are certified, and of the others with
    /// acknowledged bytes.
    pub(crate) fn lost_files(&self) -> (usize, usize) {
        let is_certified = |file: &FileId| self.catalogue.contains_key(file);
        let certified = self.lost.keys().filter(|file| is_certified(file)).count();
        let listed =
            |(file, lost): &(&FileId, &LostFile)| !is_certified(file) && !lost.acknowledged.is_empty();
        (certified, self.lost.iter().filter(listed).count())
    }
}
