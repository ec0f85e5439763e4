//! Links to services: made when a file needs them, watched, and replaced.

use exacat_wire::writer::{FileId, Frame, Hello, Role, ServiceId, Table};

use super::state::{Link, LinkState, Place, Producer, ProducerOutput};

impl Producer {
    /// Begins a link to a service, unless there is one.
    pub(super) fn link_to(&mut self, service: ServiceId, now: u64) {
        if self.links.contains_key(&service) {
            return;
        }
        self.session += 1;
        let connection = self.session;
        self.links
            .insert(service, Link { connection, state: LinkState::Connecting, heard: now, pinged: now });
        self.output.push_back(ProducerOutput::Connect(connection, service));
    }

    fn service_of(&self, connection: u64) -> Option<ServiceId> {
        self.links.iter().find(|(_, link)| link.connection == connection).map(|(service, _)| *service)
    }

    /// Takes a connection that was made: it sends the greeting.
    pub fn connected(&mut self, connection: u64) {
        if self.service_of(connection).is_none() {
            self.output.push_back(ProducerOutput::End(connection));
            return;
        }
        let settings = &self.settings;
        let role = Role::Producer { writer: settings.writer, session: connection };
        let hello = Hello::new(role, settings.name.clone(), settings.token.clone());
        self.send(connection, Frame::Hello(hello));
    }

    /// Takes the end of a connection, or the failure to make it.
    pub fn disconnected(&mut self, connection: u64, now: u64) {
        if let Some(service) = self.service_of(connection) {
            self.break_link(service, now);
        }
        self.pump(now);
    }

    /// Ends a link. A part that was open is resumed once at the same service; otherwise the file goes to
    /// the next one.
    fn break_link(&mut self, service: ServiceId, now: u64) {
        let Some(link) = self.links.remove(&service) else { return };
        self.output.push_back(ProducerOutput::End(link.connection));
        let was_ready = link.state == LinkState::Ready;
        if !was_ready {
            self.resting.insert(service, now + self.settings.retry_ms);
        }
        let of_service = |(id, file): (&FileId, &super::state::OutFile)| {
            (file.service == Some(service) && file.place != Place::Nowhere).then_some(*id)
        };
        let ids: Vec<FileId> = self.files.iter().filter_map(of_service).collect();
        let has_files = !ids.is_empty();
        for id in ids {
            if was_ready {
                if let Some(file) = self.files.get_mut(&id) {
                    file.place = Place::Chosen;
                }
                self.changed.insert(id);
            } else {
                self.leave(id, now);
            }
        }
        if was_ready && has_files {
            self.link_to(service, now);
        }
    }

    /// Takes a frame of a service.
    pub fn message(&mut self, connection: u64, frame: Frame, now: u64) {
        let Some(service) = self.service_of(connection) else { return };
        if let Some(link) = self.links.get_mut(&service) {
            link.heard = now;
        }
        match frame {
            Frame::HelloAck(ack) if ack.service == service => {
                if let Some(link) = self.links.get_mut(&service) {
                    link.state = LinkState::Ready;
                }
                self.resting.remove(&service);
                let here = self.files.iter().filter(|(_, file)| file.service == Some(service));
                self.changed.extend(here.map(|(id, _)| *id));
                self.pump(now);
            }
            Frame::HelloAck(_) => {
                self.break_link(service, now);
                self.pump(now);
            }
            Frame::Table(table) => self.table.merge(&table, now),
            Frame::Opened(opened) => self.opened(service, &opened.0, now),
            Frame::Ack(ack) => self.acknowledged(service, &ack, now),
            Frame::Certified(certified) => self.certified(certified),
            Frame::Refusal(refusal) if refusal.part.is_some() => self.refused(service, &refusal, now),
            Frame::Refusal(_) | Frame::Goodbye { .. } => {
                self.break_link(service, now);
                self.pump(now);
            }
            Frame::Ping(number) => self.send(connection, Frame::Pong(number)),
            _ => {}
        }
    }

    /// Takes a table from elsewhere: from discovery, or a list of seeds.
    pub fn merge_table(&mut self, table: &Table, now: u64) {
        self.table.merge(table, now);
    }

    /// Lets time pass: every few milliseconds.
    pub fn tick(&mut self, now: u64) {
        let (silence_ms, connect_ms) = (self.settings.silence_ms, self.settings.connect_ms);
        let mut broken = Vec::new();
        let mut pings = Vec::new();
        for (service, link) in &mut self.links {
            let silence = now.saturating_sub(link.heard);
            let bound = if link.state == LinkState::Ready { silence_ms } else { connect_ms };
            if silence >= bound {
                broken.push((*service, link.state));
            } else if link.state == LinkState::Ready && now.saturating_sub(link.pinged) >= silence_ms / 3 {
                link.pinged = now;
                pings.push(link.connection);
            }
        }
        for (service, state) in broken {
            // A service that is silent hangs: nothing is resumed there.
            if state == LinkState::Ready
                && let Some(link) = self.links.get_mut(&service)
            {
                link.state = LinkState::Connecting;
            }
            self.break_link(service, now);
        }
        pings.into_iter().for_each(|connection| self.send(connection, Frame::Ping(now)));
        self.changed.extend(&self.homeless);
        self.pump(now);
    }
}
