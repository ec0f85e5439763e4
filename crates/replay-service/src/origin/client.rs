//! Requests of one client, and their answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use exacat_model::ChecksumAlgorithm;
use exacat_replay::content::ContentName;
use exacat_wire::xrootd::limits::SEGMENTS_MAX;
use exacat_wire::xrootd::numbers::{SERVER_VERSION, ability, error, flag, open, role};
use exacat_wire::xrootd::response::{self, Stat};
use exacat_wire::xrootd::{
    Chunks, FileHandle, FileRange, FileRequest, RawPath, Request, RequestHeader, StreamId, file_response,
};

use super::answer::{Answer, Run, VectorAnswer};
use super::counts::count;
use super::handles::{Handles, OpenFile};
use super::limits::{FILES_OPEN_MAX, MODIFIED, RANGE_BYTES_MAX};
use super::shared::Shared;

/// Roles of the origin.
const ROLES: u32 = role::SERVER | role::PAGES;

/// Answer to a request, and the time that it waits on order.
pub(super) struct Reply {
    pub answer: Answer,
    pub delay: Duration,
}

/// Failure of a request: a number of the protocol and a sentence.
struct Refusal(u32, String);

type Outcome = Result<Answer, Refusal>;

/// A client.
pub(super) struct Client {
    shared: Arc<Shared>,
    local: SocketAddr,
    handles: Handles,
    is_logged_in: bool,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.counts.files_open.fetch_sub(self.handles.count() as u64, Ordering::Relaxed);
    }
}

fn text(stream: StreamId, text: &str) -> Answer {
    bytes(|out| response::write_text(out, stream, text))
}

fn bytes(write: impl FnOnce(&mut Vec<u8>)) -> Answer {
    let mut out = Vec::new();
    write(&mut out);
    Answer::Bytes(out)
}

fn file_stat(id: u64, size: u64) -> Stat<'static> {
    Stat {
        id,
        size,
        // Without the second flag caches take a file for one that its owner may not read.
        flags: flag::READABLE | flag::WRITABLE,
        modified: MODIFIED,
        created: MODIFIED,
        mode: 0o644,
        owner: "origin",
        group: "origin",
    }
}

fn directory_stat() -> Stat<'static> {
    let flags = flag::EXECUTABLE | flag::DIRECTORY | flag::READABLE | flag::WRITABLE;
    Stat { flags, mode: 0o755, ..file_stat(1, 0) }
}

/// Returns a number of a file that clients can read as one with a sign.
fn id_of(name: &str) -> u64 {
    ContentName::of(name).number() >> 1
}

/// Returns the end of an error for people: the file.
fn about(path: &str) -> String {
    path.chars().filter(|letter| !letter.is_control()).collect()
}

/// Returns the values of settings: a line for each name, the name itself if it has no meaning here.
fn config(names: &[&str]) -> String {
    let value = |name: &&str| match *name {
        "version" => SERVER_VERSION.to_owned(),
        "role" => "server".to_owned(),
        "chksum" => "0:adler32".to_owned(),
        "readv_iov_max" => SEGMENTS_MAX.to_string(),
        "readv_ior_max" => RANGE_BYTES_MAX.to_string(),
        "bind_max" | "pio_max" | "tpc" | "fattr" => "0".to_owned(),
        other => other.to_owned(),
    };
    names.iter().map(value).collect::<Vec<_>>().join("\n") + "\n"
}

impl Client {
    pub(super) fn new(shared: Arc<Shared>, local: SocketAddr) -> Self {
        Client { shared, local, handles: Handles::default(), is_logged_in: false }
    }

    /// Says whether the client has logged in.
    pub(super) fn is_logged_in(&self) -> bool {
        self.is_logged_in
    }

    /// Answers a request.
    pub(super) fn take(&mut self, header: &RequestHeader, carried: &[u8]) -> Reply {
        let stream = header.stream;
        let (outcome, delay) = match FileRequest::parse(header, carried) {
            Ok(Some(request)) if self.is_logged_in => self.of_file(stream, request),
            Ok(Some(_)) => (Err(self.before_login(header)), Duration::ZERO),
            Ok(None) => self.of_path(header, carried),
            Err(error) => (Err(self.bad(&error.message)), Duration::ZERO),
        };
        let answer = outcome.unwrap_or_else(|Refusal(number, sentence)| {
            bytes(|out| response::write_error(out, stream, number, &sentence))
        });
        Reply { answer, delay }
    }

    fn bad(&self, sentence: &str) -> Refusal {
        count(&self.shared.counts.bad_requests);
        Refusal(error::ARG_INVALID, sentence.to_owned())
    }

    fn before_login(&self, header: &RequestHeader) -> Refusal {
        count(&self.shared.counts.bad_requests);
        Refusal(error::INVALID_REQUEST, format!("{} before the login: log in first", header.name()))
    }

    fn no_writing(&self) -> Refusal {
        count(&self.shared.counts.writes);
        let sentence = "an origin without disk stores nothing: its files exist by name and size, to be read";
        Refusal(error::READ_ONLY, sentence.to_owned())
    }

    fn unsupported(&self, sentence: String) -> Refusal {
        count(&self.shared.counts.unsupported);
        Refusal(error::UNSUPPORTED, sentence)
    }

    fn not_found(&self, path: &str) -> Refusal {
        count(&self.shared.counts.not_found);
        Refusal(error::NOT_FOUND, format!("the origin has no file {}", about(path)))
    }

    /// Answers a request about a path, or about the connection.
    fn of_path(&mut self, header: &RequestHeader, carried: &[u8]) -> (Outcome, Duration) {
        let stream = header.stream;
        let request = match Request::parse(header, carried) {
            Ok(request) => request,
            Err(error) => return (Err(self.bad(&error.message)), Duration::ZERO),
        };
        let outcome = match request {
            Request::Protocol { abilities, .. } => {
                Ok(bytes(|out| match abilities & ability::SECURITY_REQUIREMENTS != 0 {
                    true => file_response::write_protocol_unsigned(out, stream, ROLES),
                    false => response::write_protocol(out, stream, ROLES),
                }))
            }
            Request::Login { .. } => {
                count(&self.shared.counts.logins);
                self.is_logged_in = true;
                Ok(bytes(|out| response::write_login(out, stream, self.session(), "")))
            }
            Request::Ping | Request::EndSession | Request::Set => {
                Ok(bytes(|out| response::write_ok(out, stream, &[])))
            }
            _ if !self.is_logged_in => Err(self.before_login(header)),
            Request::Open { options, asked } => {
                return (self.open(stream, options, &asked), self.shared.faults().open_delay);
            }
            Request::Stat { vfs: true, .. } => Ok(text(stream, "0 0 0 0 0 0")),
            Request::Stat { asked: Some(asked), .. } => {
                let delay = self.shared.faults().open_delay;
                return (self.stat(stream, &asked), delay);
            }
            Request::Statx { asked } => self.kinds(stream, &asked),
            Request::Locate { any, asked, .. } => self.locate(stream, any, &asked),
            Request::Checksum(asked) => self.checksum(stream, &asked),
            Request::Config { names } => Ok(text(stream, &config(&names))),
            Request::Space(_) => {
                let none = "oss.cgroup=public&oss.space=0&oss.free=0&oss.maxf=0&oss.used=0&oss.quota=-1";
                Ok(text(stream, none))
            }
            Request::Mkdir { .. } | Request::Rmdir(_) | Request::Rm(_) => Err(self.no_writing()),
            Request::Mv { .. } | Request::Chmod { .. } => Err(self.no_writing()),
            _ => {
                Err(self.unsupported(format!("{} is not supported by an origin without disk", header.name())))
            }
        };
        (outcome, Duration::ZERO)
    }

    /// Returns an id for the login. Nothing is done with it: there is one connection for each login.
    fn session(&self) -> [u8; 16] {
        let mut session = [0; 16];
        session[..8].copy_from_slice(&self.shared.counts.logins.load(Ordering::Relaxed).to_be_bytes());
        session[8..10].copy_from_slice(&self.local.port().to_be_bytes());
        session
    }

    fn open(&mut self, stream: StreamId, options: u16, asked: &RawPath<'_>) -> Outcome {
        if options & open::WRITING != 0 {
            return Err(self.no_writing());
        }
        let shared = Arc::clone(&self.shared);
        let (faults, counts) = (shared.faults(), &shared.counts);
        let number = shared.open_number.fetch_add(1, Ordering::Relaxed);
        if faults.open_fails(number) {
            count(&counts.opens_on_order);
            return Err(Refusal(error::SERVER_ERROR, "this open fails on order".to_owned()));
        }
        let file = shared.files.find(asked.path).filter(|file| !faults.is_absent(&file.name));
        let Some(file) = file else {
            if shared.files.is_directory(asked.path) {
                count(&counts.not_found);
                return Err(Refusal(error::IS_DIRECTORY, format!("{} is a directory", about(asked.path))));
            }
            return Err(self.not_found(asked.path));
        };
        let content = ContentName::of(&file.name);
        let opened = OpenFile {
            content: if faults.is_wrong(&file.name) { content.other() } else { content },
            id: id_of(&file.name),
            size: file.size,
            bytes: shared.by_file.as_ref().map(|by_file| by_file.of(&file.name)),
        };
        let stat = file_stat(opened.id, opened.size);
        let Some(handle) = self.handles.add(opened) else {
            count(&counts.too_many_open);
            let sentence = format!("the connection has {FILES_OPEN_MAX} files open: close some");
            return Err(Refusal(error::OVERLOADED, sentence));
        };
        count(&counts.opens);
        count(&counts.files_open);
        let stat = (options & open::RETURN_STAT != 0).then_some(&stat);
        Ok(bytes(|out| file_response::write_open(out, stream, handle, stat)))
    }

    fn stat(&self, stream: StreamId, asked: &RawPath<'_>) -> Outcome {
        count(&self.shared.counts.stats);
        let faults = self.shared.faults();
        match self.shared.files.find(asked.path).filter(|file| !faults.is_absent(&file.name)) {
            Some(file) => Ok(text(stream, &file_stat(id_of(&file.name), file.size).to_string())),
            None if self.shared.files.is_directory(asked.path) => {
                Ok(text(stream, &directory_stat().to_string()))
            }
            None => Err(self.not_found(asked.path)),
        }
    }

    /// Returns the kinds of paths.
    fn kinds(&self, stream: StreamId, asked: &[RawPath<'_>]) -> Outcome {
        count(&self.shared.counts.stats);
        let faults = self.shared.faults();
        let mut kinds = Vec::with_capacity(asked.len());
        for path in asked {
            match self.shared.files.find(path.path).filter(|file| !faults.is_absent(&file.name)) {
                Some(_) => kinds.push(0),
                None if self.shared.files.is_directory(path.path) => kinds.push(flag::DIRECTORY as u8),
                None => return Err(self.not_found(path.path)),
            }
        }
        Ok(bytes(|out| response::write_ok(out, stream, &kinds)))
    }

    fn locate(&self, stream: StreamId, any: bool, asked: &RawPath<'_>) -> Outcome {
        let is_here = || {
            let faults = self.shared.faults();
            let file = self.shared.files.find(asked.path);
            file.is_some_and(|file| !faults.is_absent(&file.name))
                || self.shared.files.is_directory(asked.path)
        };
        if !any && !is_here() {
            return Err(self.not_found(asked.path));
        }
        let address = SocketAddr::new(self.local.ip().to_canonical(), self.local.port());
        Ok(text(stream, &format!("Sr{address}")))
    }

    /// Returns the checksum that the file should have, also if its bytes are wrong on order.
    fn checksum(&self, stream: StreamId, asked: &RawPath<'_>) -> Outcome {
        let adler32 = ChecksumAlgorithm::Adler32.name();
        if let Some(kind) = asked.fields.get("cks.type").filter(|kind| *kind != adler32) {
            return Err(self.unsupported(format!("checksums {kind:.20?} are not told: {adler32} is")));
        }
        let faults = self.shared.faults();
        let file = self.shared.files.find(asked.path).filter(|file| !faults.is_absent(&file.name));
        let file = file.ok_or_else(|| self.not_found(asked.path))?;
        count(&self.shared.counts.checksums);
        let sum = self.shared.templates.content().adler32(&file.name, file.size);
        Ok(text(stream, &format!("{adler32} {sum:08x}")))
    }

    /// Answers a request about an open file.
    fn of_file(&mut self, stream: StreamId, request: FileRequest<'_>) -> (Outcome, Duration) {
        let outcome = match request {
            FileRequest::Read(range) => self.read(range).map(|run| {
                count(&self.shared.counts.reads);
                Answer::Read { header: Some(stream), run }
            }),
            FileRequest::PageRead(range) if range.length == 0 => Err(self.bad("a read of no pages")),
            FileRequest::PageRead(range) => self.read(range).map(|run| {
                count(&self.shared.counts.page_reads);
                Answer::Pages { stream, run, is_begun: false }
            }),
            FileRequest::VectorRead(chunks) => self.vector_read(stream, &chunks),
            FileRequest::Stat(handle) => {
                count(&self.shared.counts.stats);
                let stat = self.file(handle).map(|file| file_stat(file.id, file.size));
                return (stat.map(|stat| text(stream, &stat.to_string())), Duration::ZERO);
            }
            FileRequest::Close(handle) => return (self.close(stream, handle), Duration::ZERO),
            FileRequest::Write => return (Err(self.no_writing()), Duration::ZERO),
        };
        (outcome, self.shared.faults().read_delay)
    }

    fn close(&mut self, stream: StreamId, handle: FileHandle) -> Outcome {
        if !self.handles.close(handle) {
            return Err(self.not_open());
        }
        count(&self.shared.counts.closes);
        self.shared.counts.files_open.fetch_sub(1, Ordering::Relaxed);
        Ok(bytes(|out| response::write_ok(out, stream, &[])))
    }

    fn not_open(&self) -> Refusal {
        count(&self.shared.counts.not_open);
        Refusal(error::FILE_NOT_OPEN, "the connection has no such open file".to_owned())
    }

    fn file(&self, handle: FileHandle) -> Result<&OpenFile, Refusal> {
        self.handles.get(handle).ok_or_else(|| self.not_open())
    }

    /// Draws the lot of a read.
    fn may_read(&self) -> Result<(), Refusal> {
        let number = self.shared.read_number.fetch_add(1, Ordering::Relaxed);
        if self.shared.faults().read_fails(number) {
            count(&self.shared.counts.reads_on_order);
            return Err(Refusal(error::IO_ERROR, "this read fails on order".to_owned()));
        }
        Ok(())
    }

    fn read(&self, range: FileRange) -> Result<Run, Refusal> {
        let file = self.file(range.handle)?;
        self.may_read()?;
        let left = file.size.saturating_sub(range.offset).min(range.length.into());
        if let Some(bytes) = &file.bytes {
            bytes.fetch_add(left, Ordering::Relaxed);
        }
        Ok(Run { name: file.content, offset: range.offset, left })
    }

    fn vector_read(&self, stream: StreamId, chunks: &Chunks<'_>) -> Outcome {
        let mut ranges = Vec::with_capacity(chunks.count());
        for range in (0..chunks.count()).filter_map(|at| chunks.get(at)) {
            let file = self.file(range.handle)?;
            if range.length > RANGE_BYTES_MAX {
                return Err(self.bad(&format!("a range has more than {RANGE_BYTES_MAX} bytes")));
            }
            if range.offset.checked_add(range.length.into()).is_none_or(|end| end > file.size) {
                return Err(self.bad("a range is behind the end of the file"));
            }
            ranges.push((file.content, range));
        }
        let answer = VectorAnswer::new(stream, ranges);
        let answer = answer.ok_or_else(|| self.bad("the ranges have more than 2 GiB: ask for fewer"))?;
        self.may_read()?;
        for range in (0..chunks.count()).filter_map(|at| chunks.get(at)) {
            if let Some(bytes) = self.handles.get(range.handle).and_then(|file| file.bytes.as_ref()) {
                bytes.fetch_add(range.length.into(), Ordering::Relaxed);
            }
        }
        count(&self.shared.counts.vector_reads);
        self.shared.counts.ranges.fetch_add(chunks.count() as u64, Ordering::Relaxed);
        Ok(Answer::Vector(answer))
    }
}
