//! The file of a feed: its description, and how far its sink has got.

use std::path::Path;

use exacat_disk::{TitledLines, hex_of, titled_text};
use exacat_model::{
    AfterRestore, Error, ErrorKind, FeedName, FeedSpec, FeedStart, FeedState, Lfn, Result, Revision, TimeMs,
    TimelineId,
};

use crate::limits::UNDONE_MAX;

/// Title of the file.
const TITLE: &str = "exacat feed, layout";
/// Version of its lines.
const VERSION: u32 = 1;
/// Version with undone changes that are still to be sent. Earlier releases would leave them out.
const VERSION_UNDONE: u32 = 2;

/// Changes that a restore undid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Undone {
    /// Timeline on which they were.
    pub timeline: TimelineId,
    /// Those up to this revision were sent, or were never undone.
    pub after: Revision,
    /// The sink had the timeline up to this revision.
    pub up_to: Revision,
}

/// Durable state of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub name: FeedName,
    /// Random, so that a feed that is made again is another one.
    pub id: [u8; 16],
    pub spec: FeedSpec,
    pub owner: String,
    pub created: TimeMs,
    /// Number of the present run of revisions in the sink; a rewind or restore begins the next one.
    pub generation: u64,
    /// The sink has everything up to this revision.
    pub revision: Revision,
    pub timeline: TimelineId,
    /// Up to this revision a mirror may lack entries that change.
    pub window: Revision,
    /// A copy must be sent before further changes.
    pub must_copy: bool,
    /// Undone changes that must be sent before anything else, of one restore after the other.
    pub undone: Vec<Undone>,
    pub state: FeedState,
    pub reason: String,
}

/// Formats text for a line: quoted, because names may have line breaks.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn unquoted(text: &str) -> std::result::Result<String, &'static str> {
    serde_json::from_str(text).map_err(|_| "a line has no text in quotes")
}

/// Formats a text that may be missing.
fn optional(text: Option<&str>) -> String {
    text.map_or_else(|| "-".to_owned(), quoted)
}

fn from_optional(text: &str) -> std::result::Result<Option<String>, &'static str> {
    if text == "-" { Ok(None) } else { unquoted(text).map(Some) }
}

fn undone_of(text: &str) -> std::result::Result<Vec<Undone>, &'static str> {
    let one = |text: &str| {
        let mut parts = text.split(':');
        let timeline = TimelineId(u128::from_str_radix(parts.next()?, 16).ok()?.to_be_bytes());
        let mut revision = || Some(Revision(parts.next()?.parse().ok()?));
        Some(Undone { timeline, after: revision()?, up_to: revision()? })
    };
    text.split(' ').map(one).collect::<Option<_>>().ok_or("a line has no timelines and revisions")
}

impl Cursor {
    /// Returns the text of the file.
    pub(crate) fn text(&self) -> String {
        let spec = &self.spec;
        let (sink, reason, owner) = (quoted(&spec.sink), quoted(&self.reason), quoted(&self.owner));
        let kinds = if spec.kinds.is_empty() { "all".to_owned() } else { spec.kinds.join(",") };
        let (under, secret) =
            (optional(spec.under.as_ref().map(Lfn::as_str)), optional(spec.secret.as_deref()));
        let flag = |truth: bool| u64::from(truth);
        let after_restore = flag(spec.after_restore.copies()) + 2 * flag(spec.after_restore.sends_undone());
        let one = |one: &Undone| format!("{}:{}:{}", hex_of(one.timeline.0), one.after.0, one.up_to.0);
        let undone = self.undone.iter().map(one).collect::<Vec<_>>().join(" ");
        let (version, has_undone) = match self.undone.is_empty() {
            true => (VERSION, None),
            false => (VERSION_UNDONE, Some(("undone", &undone as &dyn std::fmt::Display))),
        };
        let lines: [(&str, &dyn std::fmt::Display); 21] = [
            ("name", &self.name),
            ("id", &hex_of(self.id)),
            ("sink", &sink),
            ("under", &under),
            ("kinds", &kinds),
            ("owner", &owner),
            ("created", &self.created.0),
            ("days", &spec.days),
            ("bytes", &spec.bytes),
            ("room", &spec.room),
            ("copy-when-lost", &flag(spec.copy_when_lost)),
            ("copy-when-parted", &after_restore),
            ("allow-private", &flag(spec.allow_private)),
            ("secret", &secret),
            ("generation", &self.generation),
            ("revision", &self.revision.0),
            ("timeline", &hex_of(self.timeline.0)),
            ("window", &self.window.0),
            ("must-copy", &flag(self.must_copy)),
            ("state", &self.state.name()),
            ("reason", &reason),
        ];
        let lines: Vec<_> = lines.into_iter().chain(has_undone).collect();
        titled_text(TITLE, version, &lines)
    }

    /// Reads the text of the file.
    ///
    /// # Errors
    /// Says what is wrong, for a message that names the file.
    pub(crate) fn parse(text: &str) -> std::result::Result<Self, &'static str> {
        let mut lines = TitledLines::of(text, TITLE, VERSION_UNDONE)?;
        let name = FeedName::parse(lines.next("name")?).map_err(|_| "a line has no name of a feed")?;
        let id = lines.id("id")?;
        let sink = unquoted(lines.next("sink")?)?;
        let under = from_optional(lines.next("under")?)?;
        let under = under.map(|text| Lfn::parse(&text)).transpose().map_err(|_| "a line has no LFN")?;
        let kinds = match lines.next("kinds")? {
            "all" => Vec::new(),
            kinds => kinds.split(',').map(str::to_owned).collect(),
        };
        let owner = unquoted(lines.next("owner")?)?;
        let created = TimeMs(lines.number("created")?);
        let days = u32::try_from(lines.number("days")?).map_err(|_| "a line has too large a number")?;
        let (bytes, room) = (lines.number("bytes")?, lines.number("room")?);
        let copy_when_lost = lines.number("copy-when-lost")? != 0;
        let after_restore = lines.number("copy-when-parted")?;
        let after_restore = AfterRestore::new(after_restore & 2 != 0, after_restore & 1 != 0);
        let allow_private = lines.number("allow-private")? != 0;
        let secret = from_optional(lines.next("secret")?)?;
        let generation = lines.number("generation")?;
        let revision = Revision(lines.number("revision")?);
        let timeline = TimelineId(lines.id("timeline")?);
        let window = Revision(lines.number("window")?);
        let must_copy = lines.number("must-copy")? != 0;
        let state = FeedState::parse(lines.next("state")?).ok_or("a line has no state of a feed")?;
        let reason = unquoted(lines.next("reason")?)?;
        let undone = lines.next("undone").map_or_else(|_| Ok(Vec::new()), undone_of)?;
        let spec = FeedSpec {
            sink,
            under,
            kinds,
            start: FeedStart::Now,
            days,
            bytes,
            room,
            copy_when_lost,
            after_restore,
            allow_private,
            secret,
        };
        Ok(Cursor {
            name,
            id,
            spec,
            owner,
            created,
            generation,
            revision,
            timeline,
            window,
            must_copy,
            undone,
            state,
            reason,
        })
    }

    /// Notes undone changes that must be sent; forgets the oldest ones of too many restores.
    pub(crate) fn must_send(&mut self, undone: Undone) {
        if self.undone.len() >= UNDONE_MAX {
            self.undone.remove(0);
        }
        self.undone.push(undone);
    }

    /// Writes the file durably in place of the one before.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        write_durably(path, self.text().as_bytes(), 0o600)
    }
}

/// Makes the error of a failed action on a file.
pub(crate) fn failed(what: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot {what} {}: {error}", path.display()))
}

/// Puts bytes durably into a file in place of the one before: all of them, or none.
pub(crate) fn write_durably(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let unfinished = path.with_extension("unfinished");
    let write = || {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(mode).open(&unfinished)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&unfinished, path)?;
        sync_directory(path)
    };
    write().map_err(|error| failed("write", path, &error))
}

/// Makes the names in the directory of a file durable.
pub(crate) fn sync_directory(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        Some(parent) => std::fs::File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::CURSOR_BYTES_MAX;

    fn cursor() -> Cursor {
        Cursor {
            name: FeedName::parse("mirror").unwrap(),
            id: [7; 16],
            spec: FeedSpec {
                sink: "dir:/a \"b\"\nc".to_owned(),
                under: Some(Lfn::parse("/data/a\nb").unwrap()),
                kinds: vec!["created".to_owned(), "moved".to_owned()],
                start: FeedStart::Now,
                days: u32::MAX,
                bytes: u64::MAX,
                room: 1,
                copy_when_lost: true,
                after_restore: AfterRestore::Undone,
                allow_private: true,
                secret: Some("-".to_owned()),
            },
            owner: "-".to_owned(),
            created: TimeMs(9),
            generation: 3,
            revision: Revision(12),
            timeline: TimelineId([0xab; 16]),
            window: Revision(14),
            must_copy: true,
            undone: vec![
                Undone { timeline: TimelineId([0xcd; 16]), after: Revision(20), up_to: Revision(31) },
                Undone { timeline: TimelineId([0xef; 16]), after: Revision(12), up_to: Revision(13) },
            ],
            state: FeedState::Lost,
            reason: "changes before 7 are gone\nreally".to_owned(),
        }
    }

    /// Property: a cursor comes back as it was written, whatever is in its texts; and a file with any
    /// byte changed, or cut anywhere, is refused.
    #[test]
    fn cursor_comes_back_and_damage_is_refused() {
        let mut one = cursor();
        let text = one.text();
        assert_eq!(Cursor::parse(&text), Ok(one.clone()));
        for at in 0..text.len() {
            let mut damaged = text.clone().into_bytes();
            damaged[at] ^= 1;
            assert!(Cursor::parse(&String::from_utf8(damaged).unwrap_or_default()).is_err(), "byte {at}");
            assert!(Cursor::parse(&text[..at]).is_err(), "cut at {at}");
        }
        one.undone.clear();
        assert!(one.text().starts_with("exacat feed, layout 1\n"), "earlier releases read it");
        one.spec = FeedSpec { under: None, kinds: Vec::new(), secret: None, ..one.spec };
        assert_eq!(Cursor::parse(&one.text()), Ok(one));
    }

    /// Limit: undone changes of so many restores wait for the sink, and of one more the first are left out.
    #[test]
    fn undone_changes_of_the_last_restores_are_kept() {
        let mut one = Cursor { undone: Vec::new(), ..cursor() };
        let undone = |number| Undone { after: Revision(number), ..cursor().undone[0] };
        for number in 1..=UNDONE_MAX as u64 {
            one.must_send(undone(number));
        }
        assert_eq!((one.undone.len(), one.undone[0]), (UNDONE_MAX, undone(1)));
        one.must_send(undone(99));
        assert_eq!((one.undone.len(), one.undone[0]), (UNDONE_MAX, undone(2)));
        assert_eq!(one.undone.last(), Some(&undone(99)));
        assert!((one.text().len() as u64) < CURSOR_BYTES_MAX / 8, "the other lines have room");
    }

    /// Property: the file of a cursor is only its owner's, and the one before stays if the new one cannot
    /// be written.
    #[test]
    fn file_of_a_cursor_is_replaced_as_a_whole() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mirror.feed");
        cursor().write(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let later = Cursor { revision: Revision(99), ..cursor() };
        std::fs::create_dir(path.with_extension("unfinished")).unwrap();
        assert!(later.write(&path).is_err());
        assert_eq!(Cursor::parse(&std::fs::read_to_string(&path).unwrap()), Ok(cursor()));
    }
}
