//! Files on their way: opening of parts, chunks within the limit, acknowledgements, closes.

use exacat_wire::writer::limits::PARTS_MAX;
use exacat_wire::writer::{
    Ack, ByteRange, Certified, ChunkHead, Close, FileId, Frame, Open, PartOwner, Refusal, RefusalClass,
    ServiceId,
};

use super::state::{Closed, Event, LinkState, Place, Producer, ProducerOutput};

impl Producer {
    /// Sends what may be sent now.
    pub(super) fn pump(&mut self, now: u64) {
        let ids: Vec<FileId> = self.files.keys().copied().collect();
        for id in ids {
            self.pump_file(id, now);
        }
    }

    fn pump_file(&mut self, id: FileId, now: u64) {
        let Some(file) = self.files.get(&id) else { return };
        // A file without an event has nothing to certify.
        if file.is_closed && file.length == 0 {
            self.files.remove(&id);
            return;
        }
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
        let Some(file) = self.files.get_mut(&id) else { return };
        if file.place != Place::Open {
            return;
        }
        while let Some(chunk) = file.kept.get(file.sent)
            && chunk.end() <= file.limit
        {
            let head = ChunkHead {
                writer: self.settings.writer,
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
            self.output.push_back(ProducerOutput::SendChunk(connection, head, chunk.bytes.clone()));
            file.sent += 1;
        }
        if file.is_closed && file.kept.is_empty() && !file.is_close_sent {
            file.is_close_sent = true;
            let close = Close {
                file: id,
                epoch: file.epoch,
                length: file.length,
                chunks: file.next_sequence,
                events: file.events,
                adler32: file.adler32,
                parts: file.parts.clone(),
            };
            self.send(connection, Frame::Close(close));
        }
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
            file.opens = 0;
            file.parts.push(PartOwner { epoch: file.epoch, service });
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
        self.free(ack);
        self.pump(now);
    }

    /// Takes an acknowledgement.
    pub(super) fn acknowledged(&mut self, service: ServiceId, ack: &Ack, now: u64) {
        let Some(file) = self.files.get_mut(&ack.file) else { return };
        if file.service == Some(service) && file.epoch == ack.epoch && file.place == Place::Open {
            file.limit = file.limit.max(ack.limit);
        }
        self.free(ack);
        self.pump(now);
    }

    /// Frees the chunks that are durable.
    fn free(&mut self, ack: &Ack) {
        let Some(file) = self.files.get_mut(&ack.file) else { return };
        let is_durable = |chunk: &super::state::KeptChunk| {
            ack.ranges.iter().any(|range| range.from <= chunk.offset && chunk.end() <= range.to)
        };
        let mut freed = Vec::new();
        let mut at = 0;
        while at < file.kept.len() {
            if !is_durable(&file.kept[at]) {
                at += 1;
                continue;
            }
            if let Some(chunk) = file.kept.remove(at) {
                self.memory = self.memory.saturating_sub(chunk.bytes.len());
                file.sent -= usize::from(at < file.sent);
                freed.push(ByteRange { from: chunk.offset, to: chunk.end() });
            }
        }
        for range in freed {
            self.news(Event::Durable(ack.file, range));
        }
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
        self.pump(now);
    }

    /// Leaves the service of a file: the next part begins at another one, or at the same.
    pub(super) fn leave(&mut self, id: FileId, now: u64) {
        let retry_ms = self.settings.retry_ms;
        let services = self.table.to_table().0.len() as u32;
        let Some(file) = self.files.get_mut(&id) else { return };
        file.place = Place::Nowhere;
        file.limit = 0;
        file.failures += 1;
        // Parts are bounded: once all services have refused, they get time.
        if file.failures % services.max(1) == 0 {
            file.retry_at = now + retry_ms;
        }
    }

    pub(super) fn fail_file(&mut self, id: FileId, reason: String) {
        let Some(file) = self.files.remove(&id) else { return };
        let kept: usize = file.kept.iter().map(|chunk| chunk.bytes.len()).sum();
        self.memory = self.memory.saturating_sub(kept + file.filling.len());
        if let Some(stream) = self.streams.get_mut(&file.stream) {
            stream.file = stream.file.filter(|of| *of != id);
        }
        self.news(Event::File(id, Closed::Failed(reason)));
    }

    /// Takes the news that a file is certified.
    pub(super) fn certified(&mut self, certified: Certified) {
        let Some(file) = self.files.get(&certified.file) else { return };
        let is_this = file.is_closed && file.kept.is_empty() && file.length == certified.length;
        let id = certified.file;
        if !is_this || file.adler32 != certified.adler32 || file.events != certified.events {
            self.fail_file(id, "a different file was certified under its id".to_owned());
            return;
        }
        self.files.remove(&id);
        self.news(Event::File(id, Closed::Certified(certified)));
    }
}
