//! Rejects: the rows that did not go in, with line and reason, and the file they are written to.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use exacat_model::ErrorKind;

use crate::error::Error;
use crate::escape::push_field;
use crate::limits::{REJECT_ROW_BYTES_MAX, REJECTS_SHOWN_MAX};
use crate::output;

macro_rules! reasons {
    ($( $(#[$doc:meta])* $variant:ident $name:literal ),* $(,)?) => {
        /// Why a row was rejected.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason { $( $(#[$doc])* $variant, )* }

        impl Reason {
            /// All reasons.
            pub const ALL: [Reason; [$($name),*].len()] = [$(Reason::$variant),*];

            /// Its name in reject files and reports.
            pub fn name(self) -> &'static str {
                match self { $( Reason::$variant => $name, )* }
            }
        }
    };
}

reasons! {
    /// The row cannot be cut into fields: not UTF-8, not JSON, an open quote, more fields than columns.
    BadRow "bad-row",
    /// The row is longer than the importer's limit.
    RowTooLong "row-too-long",
    /// It has no LFN.
    NoLfn "no-lfn",
    /// The LFN is relative and no prefix was given, or has `.` or `..` in it.
    BadLfn "bad-lfn",
    /// The LFN has control characters.
    ControlCharacters "control-characters",
    /// The LFN, a name in it, or its depth is beyond the catalogue's limits.
    LfnTooLong "lfn-too-long",
    /// The same LFN stands in an earlier row.
    Duplicate "duplicate",
    /// A part of its path is a file, or it is a directory, in the listing or in the catalogue.
    ParentIsFile "parent-is-file",
    /// The size is no whole number of bytes, or beyond the limit.
    BadSize "bad-size",
    /// A checksum cannot be normalised, or two of one algorithm differ.
    BadChecksum "bad-checksum",
    /// A PFN is too long or has control characters.
    BadPfn "bad-pfn",
    /// The GUID is none.
    BadGuid "bad-guid",
    /// The owner's or group's name is no name.
    BadAccount "bad-account",
    /// The mode is no octal number up to 777.
    BadMode "bad-mode",
    /// A time cannot be read.
    BadTime "bad-time",
    /// The job is no number.
    BadJob "bad-job",
    /// The kind of row is not known, or what the row says does not go with its kind.
    BadKind "bad-kind",
    /// A replica's SE or state has no valid name.
    BadReplica "bad-replica",
    /// A PFN's SE cannot be told: no rule, no `--se`, no host.
    NoSe "no-se",
    /// The SE is not registered.
    UnknownSe "unknown-se",
    /// Several PFNs of the file are on one SE: the row went in with one of them.
    SeTwice "se-twice",
    /// More replicas than a file may have.
    TooManyReplicas "too-many-replicas",
    /// A link's or a member's target is no LFN.
    BadTarget "bad-target",
    /// The collection's LFN is none.
    BadCollection "bad-collection",
    /// The catalogue has an entry of that name that differs, or any under the policy that refuses it.
    Exists "exists",
    /// The archive, member, SE or account it names is not in the catalogue.
    NotFound "not-found",
    /// The catalogue does not let the caller.
    Denied "denied",
    /// A quota is used up.
    Quota "quota",
    /// A limit of the catalogue.
    Limit "limit",
    /// The file went in, but did not become a member of its collection.
    NotMember "not-member",
    /// The catalogue refused it for a reason of its own.
    Refused "refused",
    /// A part of it has to be read a second time, and the input is a pipe.
    NeedsFile "needs-file",
    /// The row went in without this tag: its key or value is none the catalogue takes.
    TagDropped "tag-dropped",
    /// The row went in without tags beyond the limit of an entry.
    TooManyTags "too-many-tags",
}

impl Reason {
    /// Did the row go in all the same, without a part?
    pub fn is_partial(self) -> bool {
        matches!(self, Reason::SeTwice | Reason::TagDropped | Reason::TooManyTags)
    }

    /// The reason behind the catalogue's refusal of an entry.
    pub fn of_refusal(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Exists | ErrorKind::Conflict => Reason::Exists,
            ErrorKind::NotDirectory | ErrorKind::NotFile => Reason::ParentIsFile,
            ErrorKind::NotFound => Reason::NotFound,
            ErrorKind::Denied | ErrorKind::Unauthenticated => Reason::Denied,
            ErrorKind::Quota => Reason::Quota,
            ErrorKind::Limit => Reason::Limit,
            _ => Reason::Refused,
        }
    }
}

/// One rejected row, or one part of a row that did not go in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The line it begins on.
    pub line: u64,
    /// Why.
    pub reason: Reason,
    /// What about it, for a person.
    pub detail: String,
    /// The row as found; cut at the limit.
    pub row: Vec<u8>,
}

/// A reject without its row yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// Why.
    pub reason: Reason,
    /// What about it.
    pub detail: String,
}

impl Complaint {
    /// Why, and what about it.
    pub fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Complaint { reason, detail: detail.into() }
    }

    /// With the row.
    pub fn of_row(self, line: u64, row: &[u8]) -> Reject {
        let row = row[..row.len().min(REJECT_ROW_BYTES_MAX)].to_vec();
        Reject { line, reason: self.reason, detail: self.detail, row }
    }
}

/// Where rejects go: counted by reason, the first ones kept, all written to a file if there is one.
///
/// The file is a TSV listing with a header: `line`, `reason`, `detail`, `row`. Tabs, line ends and backslashes
/// in the detail and the row are written as `\t`, `\n`, `\r`, `\\`; bytes that are not UTF-8 as `\xHH`.
#[derive(Debug)]
pub struct RejectSink {
    file: Option<(PathBuf, BufWriter<File>)>,
    bytes: u64,
    counts: [u64; Reason::ALL.len()],
    shown: Vec<Reject>,
}

const HEADER: &[u8] = b"line\treason\tdetail\trow\n";

impl RejectSink {
    /// Counts only.
    pub fn counting() -> Self {
        RejectSink { file: None, bytes: 0, counts: [0; Reason::ALL.len()], shown: Vec::new() }
    }

    /// Writes to a new file; what was there is replaced. The file is there from the start, empty but for its
    /// header, so that no old one is taken for this run's.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let mut writer = BufWriter::new(output::create_growing(path)?);
        writer.write_all(HEADER).map_err(|error| Error::file("write", path, error))?;
        Ok(RejectSink {
            file: Some((path.to_owned(), writer)),
            bytes: HEADER.len() as u64,
            ..RejectSink::counting()
        })
    }

    /// Goes on with the file of an interrupted import: what was written after `bytes` is of rows that will
    /// come again, and is taken off.
    pub fn resume(path: &Path, bytes: u64) -> Result<Self, Error> {
        let file = output::resume_growing(path, bytes)?;
        Ok(RejectSink {
            file: Some((path.to_owned(), BufWriter::new(file))),
            bytes,
            ..RejectSink::counting()
        })
    }

    /// Counts from an interrupted import.
    pub fn restore_counts(&mut self, counts: &[(String, u64)]) {
        for (name, count) in counts {
            if let Some(reason) = Reason::ALL.into_iter().find(|reason| reason.name() == name) {
                self.counts[reason as usize] = *count;
            }
        }
    }

    /// Takes one.
    pub fn push(&mut self, reject: Reject) -> Result<(), Error> {
        self.counts[reject.reason as usize] += 1;
        if let Some((path, writer)) = &mut self.file {
            let mut line = Vec::with_capacity(reject.row.len() + reject.detail.len() + 64);
            line.extend_from_slice(reject.line.to_string().as_bytes());
            line.push(b'\t');
            line.extend_from_slice(reject.reason.name().as_bytes());
            line.push(b'\t');
            push_field(&mut line, &reject.detail);
            line.push(b'\t');
            push_bytes(&mut line, &reject.row);
            line.push(b'\n');
            writer.write_all(&line).map_err(|error| Error::file("write", path, error))?;
            self.bytes += line.len() as u64;
        }
        if self.shown.len() < REJECTS_SHOWN_MAX {
            self.shown.push(reject);
        }
        Ok(())
    }

    /// Writes what is held back. With `durable` it survives the machine.
    pub fn flush(&mut self, durable: bool) -> Result<(), Error> {
        let Some((path, writer)) = &mut self.file else { return Ok(()) };
        writer
            .flush()
            .and_then(|()| if durable { output::sync(writer.get_ref()) } else { Ok(()) })
            .map_err(|error| Error::file("write", path, error))
    }

    /// Bytes of the file so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many of each reason, none that did not occur.
    pub fn counts(&self) -> Vec<(Reason, u64)> {
        Reason::ALL
            .into_iter()
            .map(|reason| (reason, self.counts[reason as usize]))
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    /// Rows that did not go in.
    pub fn rejected(&self) -> u64 {
        self.counts().iter().filter(|(reason, _)| !reason.is_partial()).map(|(_, count)| count).sum()
    }

    /// Parts left out of rows that did.
    pub fn partial(&self) -> u64 {
        self.counts().iter().filter(|(reason, _)| reason.is_partial()).map(|(_, count)| count).sum()
    }

    /// The first ones.
    pub fn shown(&self) -> &[Reject] {
        &self.shown
    }
}

/// Appends bytes as a TSV field; those that are not UTF-8 as `\xHH`.
fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        push_field(out, chunk.valid());
        for byte in chunk.invalid() {
            out.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reject(line: u64, reason: Reason, row: &[u8]) -> Reject {
        Complaint::new(reason, "what\tit is").of_row(line, row)
    }

    #[test]
    fn reasons_have_names_of_their_own() {
        let mut names: Vec<&str> = Reason::ALL.iter().map(|reason| reason.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Reason::ALL.len());
        for (index, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
    }

    #[test]
    fn a_reject_file_is_cut_back_and_gone_on_with() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rejects.tsv");
        let mut sink = RejectSink::create(&path).unwrap();
        sink.push(reject(2, Reason::BadSize, b"/a\tx\n\\\xff")).unwrap();
        sink.flush(true).unwrap();
        let durable = sink.bytes();
        sink.push(reject(3, Reason::NoLfn, b"lost")).unwrap();
        sink.flush(false).unwrap();
        drop(sink);
        let mut sink = RejectSink::resume(&path, durable).unwrap();
        sink.restore_counts(&[("bad-size".into(), 1)]);
        sink.push(reject(4, Reason::TagDropped, b"/b")).unwrap();
        sink.flush(false).unwrap();
        assert_eq!((sink.rejected(), sink.partial()), (1, 1));
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            "line\treason\tdetail\trow\n2\tbad-size\twhat\\tit is\t/a\\tx\\n\\\\\\xff\n\
             4\ttag-dropped\twhat\\tit is\t/b\n"
        );
        assert_eq!(sink.bytes(), text.len() as u64);
        assert!(RejectSink::resume(&path, 1 << 20).is_err());
    }

    #[test]
    fn rows_kept_and_rejects_shown_are_bounded() {
        let row = vec![b'x'; REJECT_ROW_BYTES_MAX + 1];
        assert_eq!(reject(1, Reason::BadRow, &row).row.len(), REJECT_ROW_BYTES_MAX);
        let mut sink = RejectSink::counting();
        for line in 0..100 {
            sink.push(reject(line, Reason::BadRow, b"x")).unwrap();
        }
        assert_eq!((sink.shown().len(), sink.rejected()), (REJECTS_SHOWN_MAX, 100));
    }
}
