//! Begin of parts: the catalogue's permission, the judgement of an open, and what is durable already.

use exacat_model::limits::ACCOUNT_NAME_BYTES_MAX;
use exacat_wire::writer::limits::RANGES_MAX;
use exacat_wire::writer::{Ack, FileId, Frame, Open, Opened, RefusalClass, WriterId};

use super::settings::{ConnectionId, Output};
use super::state::{PartRef, Peer, PendingOpen, Service};
use super::writing::refused;
use crate::chunks::range_of;
use crate::limits::{AUTHORIZATION_MS_MAX, AUTHORIZATIONS_MAX, PART_BLOCKS_MIN};
use crate::origin::{PartKey, PartOrigin};
use crate::part::{Ending, OpenPart};
use crate::ranges::Ranges;

impl Service {
    /// Takes an open. The first one of a file here waits for the permission of the catalogue.
    pub(super) fn open(&mut self, connection: ConnectionId, writer: WriterId, open: Open, now: u64) {
        if let Some(certified) = self.certified_frame(open.file) {
            self.send(connection, certified);
            return;
        }
        if let Err((class, reason)) = self.judge_open(writer, &open) {
            self.refuse_open(connection, &open, class, reason);
            return;
        }
        // Judged above: the parts here are of this producer.
        match self.origin_of(open.file).map(|origin| origin.owner.clone()) {
            Some(owner) => self.begin_or_resume(connection, PartOrigin::of(&open, writer, owner, now), &open),
            None => self.ask_permission(connection, open, now),
        }
    }

    fn refuse_open(&mut self, connection: ConnectionId, open: &Open, class: RefusalClass, reason: &str) {
        self.send(connection, refused(class, PartKey { file: open.file, epoch: open.epoch }, reason));
    }

    /// Asks the catalogue, once for each file of a connection. A later open of the file takes the place of
    /// the one that waits.
    fn ask_permission(&mut self, connection: ConnectionId, open: Open, now: u64) {
        if let Some(pending) = self.authorizing.get_mut(&(connection, open.file)) {
            if pending.open.epoch > open.epoch {
                let reason = "a later part of the file has begun: this epoch is over";
                self.refuse_open(connection, &open, RefusalClass::Conflict, reason);
            } else {
                pending.open = open;
            }
            return;
        }
        if self.authorizing.len() >= AUTHORIZATIONS_MAX {
            let reason = "too many files wait for the catalogue's permission";
            self.refuse_open(connection, &open, RefusalClass::RetryElsewhere, reason);
            return;
        }
        self.output.push_back(Output::Authorize { connection, open: Box::new(open.clone()) });
        self.authorizing.insert((connection, open.file), PendingOpen { open, since: now });
    }

    /// Takes the answer to [`Output::Authorize`]: the account that will own the file, or a refusal for its
    /// producer. An answer that nobody waits for any more changes nothing.
    pub fn authorized(
        &mut self,
        connection: ConnectionId,
        file: FileId,
        answer: Result<String, (RefusalClass, String)>,
        now: u64,
    ) {
        let Some(PendingOpen { open, .. }) = self.authorizing.remove(&(connection, file)) else { return };
        let Some(Peer::Producer(writer)) = self.connections.get(&connection).map(|known| known.peer) else {
            return;
        };
        let answer = match answer {
            Ok(owner) if owner.len() > ACCOUNT_NAME_BYTES_MAX => {
                Err((RefusalClass::BadRequest, "the name of the account is too long".to_owned()))
            }
            other => other,
        };
        match answer {
            Ok(owner) => {
                // Judged again: time has passed.
                match self.judge_open(writer, &open) {
                    _ if self.certified_frame(file).is_some() => self.open(connection, writer, open, now),
                    Ok(()) => {
                        self.begin_or_resume(connection, PartOrigin::of(&open, writer, owner, now), &open)
                    }
                    Err((class, reason)) => self.refuse_open(connection, &open, class, reason),
                }
            }
            Err((class, reason)) => self.refuse_open(connection, &open, class, &reason),
        }
        self.pump(now);
    }

    /// Forgets the opens of a connection that has ended.
    pub(super) fn forget_opens(&mut self, connection: ConnectionId) {
        let bounds = (connection, FileId([0; 16]))..=(connection, FileId([u8::MAX; 16]));
        let files: Vec<FileId> = self.authorizing.range(bounds).map(|((_, file), _)| *file).collect();
        for file in files {
            self.authorizing.remove(&(connection, file));
        }
    }

    /// Refuses opens that the catalogue did not answer in time.
    pub(super) fn expire_opens(&mut self, now: u64) {
        let is_late = |pending: &PendingOpen| now.saturating_sub(pending.since) >= AUTHORIZATION_MS_MAX;
        let late: Vec<(ConnectionId, FileId)> =
            self.authorizing.iter().filter(|(_, pending)| is_late(pending)).map(|(key, _)| *key).collect();
        for key in late {
            if let Some(PendingOpen { open, .. }) = self.authorizing.remove(&key) {
                let reason = "the catalogue does not answer";
                self.refuse_open(key.0, &open, RefusalClass::RetryElsewhere, reason);
            }
        }
    }

    fn begin_or_resume(&mut self, connection: ConnectionId, origin: PartOrigin, open: &Open) {
        let key = PartKey { file: open.file, epoch: open.epoch };
        if self.part(key).is_none() {
            let Some(volume) = self.volume_for_part() else {
                let reason = "no volume of the service can be written";
                self.refuse_open(connection, open, RefusalClass::RetryElsewhere, reason);
                return;
            };
            self.seal_parts(open.file);
            let from = self.durable_from(open.file, open.from);
            let part = OpenPart::new(key, origin, volume, from);
            self.open.insert(key, Box::new(part));
            self.counters.parts += 1;
            // A file that the catalogue has already needs no further part.
            self.pending.insert(open.file);
        }
        self.grant(key);
        let ranges = self.durable_ranges(open.file).as_slice().iter().take(RANGES_MAX).copied().collect();
        let limit = self.open.get(&key).map_or(0, |part| part.limit());
        let ack = Ack { file: open.file, epoch: open.epoch, ranges, limit };
        self.send(connection, Frame::Opened(Opened(ack)));
    }

    /// Judges an open: a resumption, or the begin of a part.
    fn judge_open(&self, writer: WriterId, open: &Open) -> Result<(), (RefusalClass, &'static str)> {
        if let Some((key, part)) = self.last_part(open.file) {
            if part.origin().writer != writer {
                return Err((RefusalClass::BadRequest, "the file is another producer's"));
            }
            if key.epoch > open.epoch {
                return Err((
                    RefusalClass::Conflict,
                    "a later part of the file has begun: this epoch is over",
                ));
            }
            if key.epoch == open.epoch {
                let is_open = matches!(part, PartRef::Open(part) if part.ending == Ending::Open);
                let ended = (RefusalClass::RetryElsewhere, "the part has ended: begin the next one");
                return if is_open { Ok(()) } else { Err(ended) };
            }
        }
        if self.is_draining {
            return Err((RefusalClass::RetryElsewhere, "the service takes no more files"));
        }
        if self.open_parts() >= (self.pool.count() - self.rooms) / PART_BLOCKS_MIN {
            return Err((RefusalClass::RetryElsewhere, "the service has as many files as it has memory for"));
        }
        Ok(())
    }

    /// Returns everything of a file that is durable here.
    fn durable_ranges(&self, file: FileId) -> Ranges {
        self.parts_of(file).flat_map(|(_, part)| part.durable()).map(range_of).collect()
    }

    /// Returns the first place from `from` on that is not durable here.
    fn durable_from(&self, file: FileId, from: u64) -> u64 {
        let ranges = self.durable_ranges(file);
        let covering = ranges.as_slice().iter().find(|range| range.from <= from && from < range.to);
        covering.map_or(from, |range| range.to)
    }
}
