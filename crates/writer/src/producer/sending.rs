//! Files on their way: opening of parts, chunks within the limit, acknowledgements, closes.

use exacat_wire::writer::limits::PARTS_MAX;
use exacat_wire::writer::{
    Ack, ByteRange, Certified, ChunkHead, Close, Description, FileId, Frame, Open, PartOwner, Refusal,
    RefusalClass, ServiceId,
};

use crate::limits::{FRUITLESS_DOUBLINGS_MAX, PART_CHUNKS_MAX};

use super::memory::FileRoom;
use super::packing::{Chunk, FileEnd, Packed};
use super::state::{Closed, Event, Fate, KeptChunk, LinkState, OutFile, Place, Producer, ProducerOutput};

impl Producer {
    /// Takes what a packer of a stream has packed. False if the file has failed: the packer must end it, and
    /// the bytes count as lost.
    pub fn take(&mut self, stream: u32, packed: Packed, now: u64) -> bool {
        let id = match packed {
            Packed::Begin(id, description, room) => {
                self.begin(id, stream, description, room);
                id
            }
            Packed::Chunk(chunk) => {
                let id = chunk.file;
                if !self.keep(stream, chunk) {
                    return false;
                }
                id
            }
            Packed::Flush(id) => {
                let Some(file) = self.files.get_mut(&id) else { return false };
                file.flush_to = Some(file.length);
                id
            }
            Packed::End(end) => {
                let id = end.file;
                self.end(end);
                id
            }
        };
        self.pump_file(id, now);
        true
    }

    fn begin(&mut self, id: FileId, stream: u32, description: Description, room: FileRoom) {
        self.streams.entry(stream).or_default();
        let file = OutFile {
            stream,
            description,
            _room: room,
            place: Place::Nowhere,
            service: None,
            epoch: 1,
            is_epoch_used: false,
            opens: 0,
            parts: Vec::new(),
            kept: Default::default(),
            sent: 0,
            part_chunks: 0,
            limit: 0,
            length: 0,
            flush_to: None,
            end: None,
            is_close_sent: false,
            retry_at: 0,
            failures: 0,
            fruitless: 0,
            refusal: String::new(),
        };
        self.files.insert(id, file);
        self.homeless.insert(id);
    }

    fn keep(&mut self, stream: u32, chunk: Chunk) -> bool {
        let of = self.streams.entry(stream).or_default();
        let Some(file) = self.files.get_mut(&chunk.file) else {
            of.add(&chunk, Fate::Lost);
            self.settle(stream);
            return false;
        };
        let number = of.add(&chunk, Fate::Kept);
        file.length = chunk.end();
        file.kept.push_back(KeptChunk { chunk, number });
        true
    }

    fn end(&mut self, end: FileEnd) {
        if let Some(file) = self.files.get_mut(&end.file) {
            // What is left is a part of a block, and nothing follows that would fill it.
            file.flush_to = Some(file.length);
            file.end = Some(end);
        }
    }

    /// Sends what may be sent now, of the files that something has happened to.
    pub(super) fn pump(&mut self, now: u64) {
        while let Some(id) = self.changed.pop_first() {
            self.pump_file(id, now);
        }
    }

    fn pump_file(&mut self, id: FileId, now: u64) {
        let Some(file) = self.files.get(&id) else { return };
        if file.place == Place::Nowhere && now >= file.retry_at {
            self.choose(id, now);
        }
        let Some(file) = self.files.get(&id) else { return };
        let Some(service) = file.service else { return };
        let connection = match self.links.get(&service) {
            Some(link) if link.state == LinkState::Ready => link.connection,
            _ => return,
        };
        if file.place == Place::Chosen {
            self.open(id, service, connection);
        }
        if self.files.get(&id).is_some_and(|file| file.place == Place::Open) {
            self.send_chunks(id, connection);
            self.follow_full_part(id, service, connection);
            self.send_close(id, connection);
        }
    }

    /// Begins the next part at the same service once a part is full and all of it is durable. The service
    /// would refuse the next chunk, and the file would go to another service for no reason.
    fn follow_full_part(&mut self, id: FileId, service: ServiceId, connection: u64) {
        let Some(file) = self.files.get_mut(&id) else { return };
        if file.part_chunks >= PART_CHUNKS_MAX && file.sent == 0 && !file.kept.is_empty() {
            file.epoch += 1;
            file.is_epoch_used = false;
            self.open(id, service, connection);
        }
    }

    fn send_chunks(&mut self, id: FileId, connection: u64) {
        let Producer { files, output, settings, .. } = self;
        let Some(file) = files.get_mut(&id) else { return };
        while file.part_chunks < PART_CHUNKS_MAX
            && let Some(KeptChunk { chunk, .. }) = file.kept.get(file.sent)
            && chunk.end() <= file.limit
        {
            let head = ChunkHead {
                writer: settings.writer,
                file: id,
                sequence: chunk.sequence,
                offset: chunk.offset,
                stream: file.stream,
                epoch: file.epoch,
                length: chunk.bytes.len() as u32,
                events: chunk.events,
                crc32c: chunk.crc32c,
                adler32: chunk.adler32,
            };
            output.push_back(ProducerOutput::SendChunk(connection, head, chunk.bytes.clone()));
            file.sent += 1;
            file.part_chunks += 1;
        }
        // A flush follows the last chunk that it concerns.
        let next = file.kept.get(file.sent).map_or(file.length, |kept| kept.chunk.offset);
        if file.flush_to.take_if(|to| *to <= next).is_some() && !file.kept.is_empty() {
            output.push_back(ProducerOutput::Send(connection, Frame::Flush { file: id }));
        }
    }

    fn send_close(&mut self, id: FileId, connection: u64) {
        let Some(file) = self.files.get_mut(&id) else { return };
        let Some(end) = &file.end else { return };
        if !file.kept.is_empty() || file.is_close_sent {
            return;
        }
        file.is_close_sent = true;
        let close = Close {
            file: id,
            epoch: file.epoch,
            length: end.length,
            chunks: end.chunks,
            events: end.events,
            adler32: end.adler32,
            parts: file.parts.clone(),
        };
        self.send(connection, Frame::Close(close));
    }

    /// Chooses a service: by load for a new file, the next of the table for one whose service failed.
    fn choose(&mut self, id: FileId, now: u64) {
        let resting: Vec<ServiceId> =
            self.resting.iter().filter(|(_, until)| now < **until).map(|(service, _)| *service).collect();
        let Some(file) = self.files.get(&id) else { return };
        let present = self.streams.get(&file.stream).and_then(|stream| stream.service);
        let chosen = match file.service {
            None => {
                let by_load = self.table.choose(&mut self.random, present, &resting);
                by_load.or_else(|| self.table.next_after(None, &resting))
            }
            last => self.table.next_after(last, &resting),
        };
        let Some(file) = self.files.get_mut(&id) else { return };
        let Some(service) = chosen else {
            file.retry_at = now + self.settings.retry_ms / 4;
            return;
        };
        file.service = Some(service);
        file.place = Place::Chosen;
        self.homeless.remove(&id);
        if file.is_epoch_used {
            file.epoch += 1;
            file.is_epoch_used = false;
        }
        if let Some(stream) = self.streams.get_mut(&file.stream) {
            stream.service = Some(service);
        }
        self.link_to(service, now);
    }

    fn open(&mut self, id: FileId, service: ServiceId, connection: u64) {
        let Some(file) = self.files.get_mut(&id) else { return };
        if !file.is_epoch_used {
            if file.parts.len() >= PARTS_MAX {
                self.fail_file(id, "the file has as many parts as it may have".to_owned());
                return;
            }
            file.is_epoch_used = true;
            (file.opens, file.part_chunks) = (0, 0);
            file.parts.push(PartOwner { epoch: file.epoch, service });
            file.fruitless += 1;
        }
        file.place = Place::Opening;
        file.opens += 1;
        (file.sent, file.is_close_sent) = (0, false);
        let (stream, epoch, from) = (file.stream, file.epoch, file.first_kept());
        let open = Open { file: id, stream, epoch, from, description: file.description.clone() };
        self.send(connection, Frame::Open(open));
    }

    /// Takes the answer to an open: frees what is durable, and sends the rest.
    pub(super) fn opened(&mut self, service: ServiceId, ack: &Ack, now: u64) {
        let Some(file) = self.files.get_mut(&ack.file) else { return };
        if file.service != Some(service) || file.epoch != ack.epoch || file.place != Place::Opening {
            return;
        }
        file.place = Place::Open;
        file.limit = ack.limit;
        file.failures = 0;
        file.refusal.clear();
        self.free(ack);
        self.pump_file(ack.file, now);
    }

    /// Takes an acknowledgement.
    pub(super) fn acknowledged(&mut self, service: ServiceId, ack: &Ack, now: u64) {
        let Some(file) = self.files.get_mut(&ack.file) else { return };
        if file.service == Some(service) && file.epoch == ack.epoch && file.place == Place::Open {
            file.limit = file.limit.max(ack.limit);
        }
        self.free(ack);
        self.pump_file(ack.file, now);
    }

    /// Frees the chunks that are durable.
    fn free(&mut self, ack: &Ack) {
        let Producer { files, streams, output, .. } = self;
        let Some(file) = files.get_mut(&ack.file) else { return };
        let stream = file.stream;
        let Some(of) = streams.get_mut(&stream) else { return };
        for range in &ack.ranges {
            let from = file.kept.partition_point(|kept| kept.chunk.offset < range.from);
            let to = file.kept.partition_point(|kept| kept.chunk.end() <= range.to);
            if from >= to {
                continue;
            }
            file.sent -= file.sent.clamp(from, to) - from;
            file.fruitless = 0;
            for KeptChunk { chunk, number } in file.kept.drain(from..to) {
                of.note(number, Fate::Durable);
                let durable = ByteRange { from: chunk.offset, to: chunk.end() };
                output.push_back(ProducerOutput::News(Event::Durable(ack.file, durable)));
            }
        }
        self.settle(stream);
    }

    /// Takes a refusal that concerns a part.
    pub(super) fn refused(&mut self, service: ServiceId, refusal: &Refusal, now: u64) {
        let Some((id, epoch)) = refusal.part else { return };
        let Some(file) = self.files.get_mut(&id) else { return };
        // An answer to an earlier part says nothing about this one.
        if file.service != Some(service) || file.epoch != epoch || file.place == Place::Nowhere {
            return;
        }
        match refusal.class {
            RefusalClass::RetryElsewhere => {
                file.refusal.clone_from(&refusal.reason);
                // The answer to the only open of this epoch: the service has no such part.
                if file.place == Place::Opening && file.opens == 1 {
                    file.parts.pop();
                }
                self.leave(id, now);
            }
            RefusalClass::Conflict | RefusalClass::BadRequest => {
                self.fail_file(id, refusal.reason.clone());
            }
        }
        self.pump_file(id, now);
    }

    /// Leaves the service of a file: the next part begins at another one, or at the same.
    pub(super) fn leave(&mut self, id: FileId, now: u64) {
        let retry_ms = self.settings.retry_ms;
        let services = self.table.len() as u32;
        let Some(file) = self.files.get_mut(&id) else { return };
        file.place = Place::Nowhere;
        file.limit = 0;
        file.failures += 1;
        // Parts are bounded: once all services have failed, they get time, and more with each part in vain.
        if file.failures.max(file.fruitless) % services.max(1) == 0 {
            let doublings = (file.fruitless / services.max(1)).min(FRUITLESS_DOUBLINGS_MAX);
            file.retry_at = now + (retry_ms << doublings);
        }
        self.homeless.insert(id);
        self.changed.insert(id);
    }

    /// Gives a file up. Its events that are not durable are lost, and those that follow.
    pub(super) fn fail_file(&mut self, id: FileId, reason: String) {
        let Some(file) = self.files.remove(&id) else { return };
        self.homeless.remove(&id);
        if let Some(stream) = self.streams.get_mut(&file.stream) {
            file.kept.iter().for_each(|kept| stream.note(kept.number, Fate::Lost));
        }
        // The reason comes before the news of the loss.
        self.news(Event::File(file.stream, id, Closed::Failed(reason)));
        self.settle(file.stream);
    }

    /// Takes the news that a file is certified.
    pub(super) fn certified(&mut self, certified: Certified) {
        let Some(file) = self.files.get(&certified.file) else { return };
        let id = certified.file;
        let is_this = file.kept.is_empty()
            && file.end.as_ref().is_some_and(|end| {
                (end.length, end.adler32, end.events)
                    == (certified.length, certified.adler32, certified.events)
            });
        if !is_this {
            self.fail_file(id, "a different file was certified under its id".to_owned());
            return;
        }
        let stream = file.stream;
        self.files.remove(&id);
        self.news(Event::File(stream, id, Closed::Certified(certified)));
    }
}
