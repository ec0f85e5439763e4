//! Rejects: the refused rows with line and reason, and the file for them.

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
        /// Reason why a row was rejected.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason { $( $(#[$doc])* $variant, )* }

        impl Reason {
            /// All reasons.
            pub const ALL: [Reason; [$($name),*].len()] = [$(Reason::$variant),*];

            /// Returns the name in reject files and reports.
            pub fn name(self) -> &'static str {
                match self { $( Reason::$variant => $name, )* }
            }
        }
    };
}

reasons! {
    /// The row cannot be split into fields: not UTF-8, not JSON, an open quote, more fields than
    /// columns.
    BadRow "bad-row",
    /// The row is longer than the importer's limit.
    RowTooLong "row-too-long",
    /// The row has no LFN.
    NoLfn "no-lfn",
    /// The LFN is relative and no prefix was given, or has `.` or `..` in it.
    BadLfn "bad-lfn",
    /// The LFN has control characters.
    ControlCharacters "control-characters",
    /// The LFN, a name in it, or its depth is beyond the catalogue's limits.
    LfnTooLong "lfn-too-long",
    /// The same LFN is in an earlier row.
    Duplicate "duplicate",
    /// A part of its path is a file, or it is a directory, in the listing or in the catalogue.
    ParentIsFile "parent-is-file",
    /// The size is no whole number of bytes, or beyond the limit.
    BadSize "bad-size",
    /// A checksum cannot be normalised, or two of one algorithm differ.
    BadChecksum "bad-checksum",
    /// A PFN is too long or has control characters.
    BadPfn "bad-pfn",
    /// The GUID is malformed.
    BadGuid "bad-guid",
    /// The name of the owner or group is malformed.
    BadAccount "bad-account",
    /// The mode is no octal number up to 777.
    BadMode "bad-mode",
    /// A time cannot be read.
    BadTime "bad-time",
    /// The job is no number.
    BadJob "bad-job",
    /// The kind of row is not known, or its fields do not suit its kind.
    BadKind "bad-kind",
    /// The name of a replica's SE or state is not valid.
    BadReplica "bad-replica",
    /// The SE of a PFN cannot be determined: no rule, no `--se`, no host.
    NoSe "no-se",
    /// The SE is not registered.
    UnknownSe "unknown-se",
    /// Several PFNs of the file are on one SE: the row was accepted with one of them.
    SeTwice "se-twice",
    /// More replicas than a file may have.
    TooManyReplicas "too-many-replicas",
    /// The target of a link or member is no LFN.
    BadTarget "bad-target",
    /// The LFN of the collection is malformed.
    BadCollection "bad-collection",
    /// The catalogue has an entry of that name that differs, or has any and the policy refuses
    /// that.
    Exists "exists",
    /// The archive, member, SE or account that the row names is not in the catalogue.
    NotFound "not-found",
    /// The caller lacks permission.
    Denied "denied",
    /// A quota is used up.
    Quota "quota",
    /// A limit of the catalogue is exceeded.
    Limit "limit",
    /// The file was accepted, but did not become a member of its collection.
    NotMember "not-member",
    /// The catalogue refused it for another reason.
    Refused "refused",
    /// A part must be read a second time, and the input is a pipe.
    NeedsFile "needs-file",
    /// The row was accepted without this tag: the catalogue refuses its key or value.
    TagDropped "tag-dropped",
    /// The row was accepted without tags beyond the limit of an entry.
    TooManyTags "too-many-tags",
}

impl Reason {
    /// Says whether the row was accepted without a part.
    pub fn is_partial(self) -> bool {
        matches!(self, Reason::SeTwice | Reason::TagDropped | Reason::TooManyTags)
    }

    /// Returns the reason for the catalogue's refusal of an entry.
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

/// A rejected row, or a left-out part of an accepted one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    /// First line of the row.
    pub line: u64,
    /// The reason.
    pub reason: Reason,
    /// Details for a person.
    pub detail: String,
    /// The row as found, cut at the limit.
    pub row: Vec<u8>,
}

/// A reject without its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The reason.
    pub reason: Reason,
    /// Details for a person.
    pub detail: String,
}

impl Complaint {
    /// Makes a complaint with a reason and details.
    pub fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Complaint { reason, detail: detail.into() }
    }

    /// Adds the row.
    pub fn of_row(self, line: u64, row: &[u8]) -> Reject {
        let row = row[..row.len().min(REJECT_ROW_BYTES_MAX)].to_vec();
        Reject { line, reason: self.reason, detail: self.detail, row }
    }
}

/// Collector of rejects: counts them by reason, keeps the first ones, and writes all to a file if
/// there is one.
///
/// The file is a TSV listing with a header: `line`, `reason`, `detail`, `row`. Tabs, line ends and
/// backslashes in the detail and the row are written as `\t`, `\n`, `\r`, `\\`; bytes that are not
/// UTF-8 as `\xHH`.
#[derive(Debug)]
pub struct RejectSink {
    file: Option<(PathBuf, BufWriter<File>)>,
    bytes: u64,
    counts: [u64; Reason::ALL.len()],
    shown: Vec<Reject>,
}

const HEADER: &[u8] = b"line\treason\tdetail\trow\n";

impl RejectSink {
    /// Makes a collector that only counts.
    pub fn counting() -> Self {
        RejectSink { file: None, bytes: 0, counts: [0; Reason::ALL.len()], shown: Vec::new() }
    }

    /// Writes to a new file and replaces an old one. The file exists from the start, with only its
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

    /// Continues the file of an interrupted import. Cuts off the part after `bytes`, whose rows
    /// will come again.
    pub fn resume(path: &Path, bytes: u64) -> Result<Self, Error> {
        let file = output::resume_growing(path, bytes)?;
        Ok(RejectSink {
            file: Some((path.to_owned(), BufWriter::new(file))),
            bytes,
            ..RejectSink::counting()
        })
    }

    /// Restores the counts of an interrupted import.
    pub fn restore_counts(&mut self, counts: &[(String, u64)]) {
        for (name, count) in counts {
            if let Some(reason) = Reason::ALL.into_iter().find(|reason| reason.name() == name) {
                self.counts[reason as usize] = *count;
            }
        }
    }

    /// Takes a reject.
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

    /// Writes buffered rejects. With `durable` they survive a crash of the machine.
    pub fn flush(&mut self, durable: bool) -> Result<(), Error> {
        let Some((path, writer)) = &mut self.file else { return Ok(()) };
        writer
            .flush()
            .and_then(|()| if durable { output::sync(writer.get_ref()) } else { Ok(()) })
            .map_err(|error| Error::file("write", path, error))
    }

    /// Returns the bytes of the file so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of rejects by reason, without zeros.
    pub fn counts(&self) -> Vec<(Reason, u64)> {
        Reason::ALL
            .into_iter()
            .map(|reason| (reason, self.counts[reason as usize]))
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    /// Returns the number of rejected rows.
    pub fn rejected(&self) -> u64 {
        self.counts().iter().filter(|(reason, _)| !reason.is_partial()).map(|(_, count)| count).sum()
    }

    /// Returns the number of parts left out of accepted rows.
    pub fn partial(&self) -> u64 {
        self.counts().iter().filter(|(reason, _)| reason.is_partial()).map(|(_, count)| count).sum()
    }

    /// Returns the first rejects.
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

/// A value, or the reason why the row cannot have it.
pub(crate) type Checked<T> = Result<T, Complaint>;

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
