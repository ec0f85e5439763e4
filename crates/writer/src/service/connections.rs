//! Connections: greetings, opens and closes of files, and the passing of time.

use exacat_model::TimeMs;
use exacat_wire::writer::{
    Close, Frame, Hello, HelloAck, PROTOCOL_VERSION, Refusal, RefusalClass, Role, WriterId,
};

use super::settings::{ConnectionId, Output};
use super::state::{Connection, Effect, FileEntry, PartRef, Peer, Service};
use super::writing::refused;
use crate::block::Block;
use crate::item::{FileStage, Item, SealedBy};
use crate::limits::{CONNECTIONS_MAX, PART_BLOCKS_MIN};
use crate::origin::PartKey;
use crate::part::Ending;
use crate::sums::SummedChunk;

/// Looks at all connections for silent ones, in the idle time.
const SILENCE_CHECKS: u64 = 16;

impl Service {
    /// Takes a new connection. The caller has judged who may connect.
    pub fn connected(&mut self, connection: ConnectionId, now: u64) {
        if self.connections.len() >= CONNECTIONS_MAX {
            self.refuse(
                connection,
                RefusalClass::RetryElsewhere,
                "the service has too many connections",
                now,
            );
            return;
        }
        self.connections.insert(connection, Connection { peer: Peer::Unknown, heard: now, has_room: false });
    }

    /// Refuses a connection, and ends it.
    fn refuse(&mut self, connection: ConnectionId, class: RefusalClass, reason: &str, now: u64) {
        self.send(connection, Frame::Refusal(Refusal { class, part: None, reason: reason.to_owned() }));
        self.end(connection, now);
    }

    fn end(&mut self, connection: ConnectionId, now: u64) {
        self.output.push_back(Output::End(connection));
        self.leave(connection, now);
    }

    fn forget(&mut self, connection: ConnectionId) -> Option<Peer> {
        self.forget_opens(connection);
        let known = self.connections.remove(&connection)?;
        if known.has_room {
            self.give_up_room();
        }
        Some(known.peer)
    }

    /// Reserves a block for what a producer sends.
    fn reserve_room(&mut self) -> bool {
        let Service { pool, open, .. } = self;
        let mut has_room = pool.reserve(1);
        for part in open.values_mut() {
            if has_room {
                break;
            }
            // A file keeps what it needs.
            part.grant(pool, PART_BLOCKS_MIN);
            has_room = pool.reserve(1);
        }
        self.rooms += usize::from(has_room);
        has_room
    }

    fn give_up_room(&mut self) {
        self.pool.release(1);
        self.rooms = self.rooms.saturating_sub(1);
    }

    /// Lends a block to a connection of a producer: it receives the bytes of chunks there. None if it has
    /// one, or is no producer.
    pub fn lend_block(&mut self, connection: ConnectionId) -> Option<Block> {
        let known = self.connections.get_mut(&connection).filter(|known| known.has_room)?;
        let block = self.pool.take()?;
        known.has_room = false;
        Some(block)
    }

    /// Takes a lent block back, after the end of its connection.
    pub fn return_block(&mut self, block: Block, now: u64) {
        self.pool.put(block);
        self.give_up_room();
        self.pump(now);
    }

    /// Forgets a connection, and notes that its producer is away.
    fn leave(&mut self, connection: ConnectionId, now: u64) {
        if let Some(Peer::Producer(writer)) = self.forget(connection)
            && let Some((_, of)) = self.writers.get_mut(&writer)
            && *of == Some(connection)
        {
            *of = None;
            self.attended.insert(writer, now);
            let Service { open, pool, hungry, .. } = self;
            for (key, part) in open.iter_mut().filter(|(_, part)| part.origin.writer == writer) {
                part.withdraw(pool);
                hungry.remove(key);
            }
        }
    }

    /// Takes the end of a connection.
    pub fn disconnected(&mut self, connection: ConnectionId, now: u64) {
        self.leave(connection, now);
        self.pump(now);
    }

    /// Takes a frame.
    pub fn message(&mut self, connection: ConnectionId, frame: Frame, now: u64) {
        let Some(known) = self.connections.get_mut(&connection) else { return };
        known.heard = now;
        match (known.peer, frame) {
            (Peer::Unknown, Frame::Hello(hello)) => self.greet(connection, &hello, now),
            (Peer::Producer(writer), Frame::Open(open)) => self.open(connection, writer, open, now),
            (Peer::Producer(writer), Frame::Close(close)) => self.close(connection, writer, close, now),
            (Peer::Producer(_), Frame::Flush { file }) => {
                let (first, last) = PartKey::bounds(file);
                for (key, part) in self.open.range_mut(first..=last) {
                    part.wants_flush = part.dirty_since.is_some();
                    self.changed.insert(*key);
                }
            }
            (Peer::Service(_), Frame::Ping(number)) => self.send(connection, Frame::Pong(number)),
            (Peer::Service(service), frame) => self.peer_message(service, frame, now),
            (Peer::Producer(_), Frame::Ping(number)) => self.send(connection, Frame::Pong(number)),
            (Peer::Producer(_), Frame::Pong(_) | Frame::Goodbye { .. }) => {}
            _ => self.refuse(connection, RefusalClass::BadRequest, "a message at the wrong moment", now),
        }
        self.pump(now);
    }

    /// Takes a chunk. Wrong sums end the connection: the next bytes may be wrong as well.
    pub fn chunk(&mut self, connection: ConnectionId, chunk: SummedChunk<'_>, now: u64) {
        let SummedChunk { head, memory, is_whole } = chunk;
        let Some(known) = self.connections.get_mut(&connection) else { return };
        known.heard = now;
        let is_writer = known.peer == Peer::Producer(head.writer);
        if !is_writer {
            self.refuse(connection, RefusalClass::BadRequest, "a chunk of another producer", now);
        } else if !is_whole {
            self.refuse(connection, RefusalClass::BadRequest, "a chunk fails its checksums", now);
        } else if let Some(answer) = self.take_chunk(head, memory, now) {
            self.send(connection, answer);
        }
        self.pump(now);
    }

    fn greet(&mut self, connection: ConnectionId, hello: &Hello, now: u64) {
        if !hello.is_understood() {
            let reason = format!(
                "this service speaks version {PROTOCOL_VERSION} of the protocol, and the other side {} to {}: upgrade \
                 the older one",
                hello.version_min, hello.version_max
            );
            self.refuse(connection, RefusalClass::BadRequest, &reason, now);
            return;
        }
        let peer = match hello.role {
            Role::Service(service) => Peer::Service(service),
            Role::Producer { writer, session } => {
                let (latest, of) = self.writers.get(&writer).copied().unwrap_or((0, None));
                if latest > session {
                    self.refuse(
                        connection,
                        RefusalClass::Conflict,
                        "the producer has a later connection",
                        now,
                    );
                    return;
                }
                // Bytes of the earlier connection that are still on their way count for nothing. It ends
                // first: a producer that comes back may need its memory.
                if let Some(earlier) = of.filter(|earlier| *earlier != connection) {
                    self.end(earlier, now);
                }
                if !self.reserve_room() {
                    let reason = "the service has as many producers and files as it has memory for";
                    self.refuse(connection, RefusalClass::RetryElsewhere, reason, now);
                    return;
                }
                if let Some(known) = self.connections.get_mut(&connection) {
                    known.has_room = true;
                }
                self.writers.insert(writer, (session, Some(connection)));
                Peer::Producer(writer)
            }
        };
        if let Some(known) = self.connections.get_mut(&connection) {
            known.peer = peer;
        }
        let ack = HelloAck {
            version: PROTOCOL_VERSION,
            service: self.settings.service,
            name: self.settings.name.clone(),
            idle_ms_max: self.settings.idle_ms,
            time: TimeMs(now),
        };
        self.send(connection, Frame::HelloAck(ack));
        let table = self.table();
        self.send(connection, Frame::Table(table));
    }

    fn close(&mut self, connection: ConnectionId, writer: WriterId, close: Close, now: u64) {
        let key = PartKey { file: close.file, epoch: close.epoch };
        if let Some(certified) = self.certified_frame(close.file) {
            self.send(connection, certified);
            return;
        }
        let refusal = |class, reason: &str| refused(class, key, reason);
        let part = self.part(key);
        let volume = part.map_or(0, PartRef::volume);
        let is_read_only = self.volumes.get(volume).is_none_or(|volume| volume.read_only.is_some());
        let is_fenced = |part| match part {
            PartRef::Open(of) => matches!(of.ending, Ending::Fenced(_)),
            // Its begin may not be in the index.
            PartRef::Sealed(of) => of.by != SealedBy::Order && of.chunks.is_empty(),
        };
        let answer = match part {
            None => Some((RefusalClass::RetryElsewhere, "the part is not here: begin the next one")),
            Some(part) if part.origin().writer != writer => {
                Some((RefusalClass::BadRequest, "the file is another producer's"))
            }
            Some(_) if self.highest_epoch(close.file) > Some(close.epoch) => {
                Some((RefusalClass::Conflict, "a later part of the file has begun: this epoch is over"))
            }
            Some(part) if is_read_only || is_fenced(part) => {
                Some((RefusalClass::RetryElsewhere, "the volume cannot be written: begin the next part"))
            }
            Some(_) => None,
        };
        if let Some((class, reason)) = answer {
            self.send(connection, refusal(class, reason));
            return;
        }
        let entry = self.files.entry(close.file).or_insert_with(|| FileEntry::new(volume, now));
        if entry.close.as_ref() == Some(&close) || entry.certified.is_some() {
            if entry.stage == FileStage::Failed {
                let frame = refusal(RefusalClass::Conflict, &entry.reason.clone());
                self.send(connection, frame);
            }
            return;
        }
        entry.stage = FileStage::Closed;
        entry.volume = volume;
        (entry.closed_at, entry.is_close_durable) = (now, false);
        entry.close = Some(close.clone());
        self.seal(key);
        // The begin of a part without chunks would come with its seal. A close without a part is nobody's.
        let opened = self.open.get_mut(&key).and_then(|part| part.begin_item());
        let items = opened.into_iter().chain([Item::Closed(close)]).collect();
        self.commit(volume, items, Effect::Closed(key.file));
    }

    /// Takes no more files, or takes them again.
    pub fn drain(&mut self, is_draining: bool, now: u64) {
        self.is_draining = is_draining;
        self.note_self(now);
    }

    /// Lets time pass: every few milliseconds.
    pub fn tick(&mut self, now: u64) {
        self.end_rests(now);
        self.end_silent(now);
        self.seal_orphans(now);
        self.expire_opens(now);
        self.flush_old(now);
        self.share_memory();
        self.look_again(now);
        self.tick_kept(now);
        if now.saturating_sub(self.table_at) >= self.settings.table_every_ms {
            self.note_self(now);
            self.table.expire(now, self.settings.gone_ms);
            let table = self.table();
            self.output.push_back(Output::Gossip(table.clone()));
            let producers: Vec<ConnectionId> =
                self.writers.values().filter_map(|(_, connection)| *connection).collect();
            producers.into_iter().for_each(|connection| self.send(connection, Frame::Table(table.clone())));
        }
        self.pump(now);
    }

    /// Ends silent connections. All are looked at together, several times in the idle time.
    fn end_silent(&mut self, now: u64) {
        let idle_ms = u64::from(self.settings.idle_ms);
        if now.saturating_sub(self.silence_checked_at) < idle_ms / SILENCE_CHECKS {
            return;
        }
        self.silence_checked_at = now;
        let silent = |connection: &Connection| now.saturating_sub(connection.heard) >= idle_ms;
        let ended: Vec<ConnectionId> =
            self.connections.iter().filter(|(_, of)| silent(of)).map(|(connection, _)| *connection).collect();
        ended.into_iter().for_each(|connection| self.end(connection, now));
    }

    /// Seals parts whose producer has been away for long, and forgets such producers.
    fn seal_orphans(&mut self, now: u64) {
        let orphan_ms = self.settings.orphan_ms;
        let away: Vec<WriterId> = self
            .attended
            .iter()
            .filter(|(writer, since)| {
                self.connection_of(**writer).is_some() || now.saturating_sub(**since) >= orphan_ms
            })
            .map(|(writer, _)| *writer)
            .collect();
        for writer in away {
            self.attended.remove(&writer);
            if self.connection_of(writer).is_some() {
                continue;
            }
            self.writers.remove(&writer);
            let of_writer = self.open.iter().filter(|(_, part)| part.origin.writer == writer);
            let keys: Vec<PartKey> = of_writer.map(|(key, _)| *key).collect();
            keys.into_iter().for_each(|key| self.seal(key));
        }
    }

    /// Hands out what the last input has made possible.
    pub(super) fn pump(&mut self, now: u64) {
        self.certify_pending(now);
        self.hand_out();
    }
}
