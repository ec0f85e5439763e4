//! Digests in a file: a first line that identifies it, then one line for each directory. A line has
//! whole, own, entries and LFN, with tabs between, in the order of the digest.

use std::io::{self, BufRead, Write};

use exacat_model::Lfn;
use serde_json::{Value, json};

use super::{Digest, Subtree};
use crate::error::Error;
use crate::escape;
use crate::limits::ROW_BYTES_MAX;
use crate::listing::PREAMBLE_KEY;

/// Version of the file format.
const VERSION: u64 = 1;

/// Writes the first line.
pub fn write_head(out: &mut impl Write, under: &Lfn) -> io::Result<()> {
    writeln!(out, "{PREAMBLE_KEY} {}", json!({ "digests": VERSION, "under": under.as_str() }))
}

/// Writes a directory.
pub fn write_subtree(out: &mut impl Write, subtree: &Subtree) -> io::Result<()> {
    let mut line = format!("{}\t{}\t{}\t", subtree.whole, subtree.own, subtree.entries).into_bytes();
    escape::push_field(&mut line, subtree.lfn.as_str());
    line.push(b'\n');
    out.write_all(&line)
}

/// Reader of such a file.
pub struct Reader<R> {
    input: R,
    /// Base directory of the digests.
    pub under: Lfn,
    line: u64,
}

impl<R: BufRead> Reader<R> {
    /// Reads the first line.
    pub fn open(input: R) -> Result<Self, Error> {
        let mut reader = Reader { input, under: Lfn::root(), line: 0 };
        let head = reader.next_line()?.unwrap_or_default();
        let object =
            head.strip_prefix(PREAMBLE_KEY).and_then(|rest| serde_json::from_str::<Value>(rest).ok());
        let object = object.ok_or_else(|| reader.bad("this is no file of digests"))?;
        if object["digests"] != VERSION {
            return Err(reader.bad("digests of a version that is not known here"));
        }
        let under = object["under"].as_str().and_then(|under| Lfn::parse(under).ok());
        reader.under = under.ok_or_else(|| reader.bad("which directory it is of cannot be read"))?;
        Ok(reader)
    }

    fn bad(&self, what: &str) -> Error {
        Error::options(format!("line {}: {what}", self.line))
    }

    fn next_line(&mut self) -> Result<Option<String>, Error> {
        self.line += 1;
        let mut line = Vec::new();
        let limit = ROW_BYTES_MAX as u64 + 1;
        let mut bounded = io::Read::take(&mut self.input, limit);
        let read = bounded.read_until(b'\n', &mut line);
        read.map_err(|error| Error::file("read", std::path::Path::new("the digests"), error))?;
        if line.pop_if(|last| *last == b'\n').is_none() {
            return if line.is_empty() {
                Ok(None)
            } else {
                Err(self.bad("it does not end: the file is cut off"))
            };
        }
        String::from_utf8(line).map(Some).map_err(|_| self.bad("it is no text"))
    }

    fn subtree(&self, line: &str) -> Option<Subtree> {
        let mut fields = line.split('\t');
        let whole = fields.next()?.parse::<Digest>().ok()?;
        let own = fields.next()?.parse::<Digest>().ok()?;
        let entries = fields.next()?.parse().ok()?;
        let lfn = escape::read_field(fields.next()?).ok()?;
        let lfn = Lfn::parse(&lfn).ok()?;
        fields.next().is_none().then_some(Subtree { lfn, own, whole, entries })
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Subtree, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.next_line() {
            Ok(Some(line)) => {
                Some(self.subtree(&line).ok_or_else(|| self.bad("this is no digest of a directory")))
            }
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        }
    }
}
