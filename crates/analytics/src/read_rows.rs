//! Makes entries of rows again, as far as the digest of the state covers them.

use std::collections::HashMap;

use exacat_columnar::{TableReader, TableRows};
use exacat_exchange::walk::SesByNumber;
use exacat_model::answer::Stat;
use exacat_model::{
    AccountName, At, Body, Checksum, Checksums, DirId, Entry, Error, File, GroupId, Guid, Kind, Lfn,
    Location, Mode, Name, Pfn, Replica, ReplicaState, Result, Revision, Se, SeName, SeNumber, SeStatus, Tag,
    TagKey, TagValue, TimeMs, UserId,
};
use serde_json::Value;

use crate::rows_of_entries::{DERIVED, EXPLICIT, MEMBER};
use crate::table::at;

/// Cursor over the rows of a table.
pub(crate) struct RowCursor {
    reader: TableReader,
    rows: Option<TableRows>,
    row: usize,
    /// Rows before the present one.
    pub(crate) passed: u64,
}

impl RowCursor {
    pub(crate) fn new(reader: TableReader) -> Self {
        RowCursor { reader, rows: None, row: 0, passed: 0 }
    }

    /// Returns the present row; none at the end.
    pub(crate) fn present(&mut self) -> Result<Option<(&TableRows, usize)>> {
        while self.rows.as_ref().is_none_or(|rows| self.row >= rows.len()) {
            self.row = 0;
            self.rows = self.reader.next_rows()?;
            if self.rows.is_none() {
                return Ok(None);
            }
        }
        Ok(self.rows.as_ref().map(|rows| (rows, self.row)))
    }

    pub(crate) fn advance(&mut self) {
        self.row += 1;
        self.passed += 1;
    }

    /// Returns the reader, for its metadata and its digest.
    pub(crate) fn reader(&self) -> &TableReader {
        &self.reader
    }
}

fn damaged(what: &str) -> Error {
    Error::invalid(format!("its {what} is not valid"))
}

/// Storage elements by the numbers that this reading gave them.
#[derive(Default)]
pub(crate) struct ReadSes {
    pub(crate) ses: SesByNumber,
    numbers: HashMap<String, SeNumber>,
}

impl ReadSes {
    fn number(&mut self, name: Option<&str>) -> Result<SeNumber> {
        let Some(name) = name else { return Ok(SeNumber::NONE) };
        if let Some(number) = self.numbers.get(name) {
            return Ok(*number);
        }
        let count = u16::try_from(self.numbers.len() + 1).map_err(|_| damaged("storage element"))?;
        let number = SeNumber(count);
        let se = Se {
            number,
            name: SeName::parse(name).map_err(|_| damaged("storage element"))?,
            prefix: String::new(),
            qos: Vec::new(),
            status: SeStatus::Online,
            distances: Vec::new(),
            https: String::new(),
        };
        self.ses.insert(number.0, se);
        self.numbers.insert(name.to_owned(), number);
        Ok(number)
    }
}

/// Makes a replica of its row.
pub(crate) fn replica(rows: &TableRows, row: usize, ses: &mut ReadSes) -> Result<(Guid, Replica)> {
    let text = |column: usize| rows.text(column, row).unwrap_or_default();
    let guid = Guid::parse(text(at::REPLICA_GUID)).map_err(|_| damaged("GUID"))?;
    let pfn = text(at::REPLICA_PFN);
    let location = match text(at::REPLICA_LOCATION) {
        DERIVED => Location::Derived,
        EXPLICIT => Location::Explicit(Pfn::parse(pfn).map_err(|_| damaged("PFN"))?),
        MEMBER => {
            let inside = pfn.strip_prefix("guid:///").and_then(|rest| rest.split_once("?ZIP="));
            let (archive, member) = inside.ok_or_else(|| damaged("PFN"))?;
            let archive = Guid::parse(archive).map_err(|_| damaged("PFN"))?;
            Location::Member { archive, member: member.to_owned() }
        }
        _ => return Err(damaged("location")),
    };
    let state = ReplicaState::parse(text(at::REPLICA_STATE)).map_err(|_| damaged("state"))?;
    Ok((guid, Replica { se: ses.number(rows.text(at::REPLICA_SE, row))?, state, location }))
}

/// Number of a column, or the one that the column could not hold.
fn wide(beyond: &Value, name: &str, column: Option<u64>) -> Option<u64> {
    column.or_else(|| beyond[name].as_u64())
}

/// Makes an entry of its row, without replicas.
pub(crate) fn entry(rows: &TableRows, row: usize) -> Result<Stat> {
    let text = |column: usize| rows.text(column, row);
    let required = |column: usize, what: &str| text(column).ok_or_else(|| damaged(what));
    let account =
        |column: usize, what: &str| AccountName::parse(required(column, what)?).map_err(|_| damaged(what));
    let beyond = match text(at::BEYOND) {
        Some(numbers) => serde_json::from_str(numbers).map_err(|_| damaged("beyond"))?,
        None => Value::Null,
    };
    let long = |column: usize, name: &str, what: &str| match rows.long(column, row) {
        Some(number) => u64::try_from(number).map(Some).map_err(|_| damaged(what)),
        None => Ok(wide(&beyond, name, None)),
    };
    let time = |column: usize, name: &str| match rows.time(column, row) {
        Some(micros) => u64::try_from(micros / 1000).map(Some).map_err(|_| damaged(name)),
        None => Ok(wide(&beyond, name, None)),
    };
    let path = required(at::LFN, "lfn")?;
    // A path may be longer than a request may give.
    let lfn = Lfn::from_names(path.split('/').skip(1));
    if lfn.as_str() != path {
        return Err(damaged("lfn"));
    }
    let name = lfn.split_last().map(|(_, name)| Name::parse(name)).transpose();
    let name = name.map_err(|_| damaged("lfn"))?.ok_or_else(|| damaged("lfn"))?;
    let guid = || Guid::parse(required(at::GUID, "guid")?).map_err(|_| damaged("guid"));
    let body = match Kind::parse(required(at::KIND, "kind")?).map_err(|_| damaged("kind"))? {
        Kind::Directory => {
            Body::Directory(DirId(long(at::DIRECTORY, "directory", "directory")?.unwrap_or_default()))
        }
        Kind::File => {
            let mut checksums = Checksums::none();
            rows.map(at::CHECKSUMS, row, |algorithm, digest| {
                let checksum = Checksum::parse(&format!("{algorithm}:{digest}"));
                checksum.and_then(|checksum| checksums.add(checksum)).map_err(|_| damaged("checksum"))
            })?;
            let (size, job) = (long(at::SIZE, "size", "size")?, long(at::JOB, "job", "job")?);
            Body::File(File { guid: guid()?, size, checksums, job, replicas: Vec::new() })
        }
        Kind::Collection => Body::Collection { guid: guid()?, members: 0 },
        Kind::Link => {
            let target = required(at::TARGET, "target")?;
            Body::Link { guid: guid()?, target: Lfn::from_names(target.split('/').skip(1)) }
        }
    };
    let mut tags = Vec::new();
    rows.map(at::TAGS, row, |key, value| {
        let tag = TagKey::parse(key).and_then(|key| Ok(Tag { key, value: TagValue::parse(value)? }));
        tags.push(tag.map_err(|_| damaged("tags"))?);
        Ok::<(), Error>(())
    })?;
    let entry = Entry {
        at: At { parent: DirId(0), name },
        owner: UserId(0),
        group: GroupId(0),
        mode: Mode::parse(required(at::MODE, "mode")?).map_err(|_| damaged("mode"))?,
        created: TimeMs(0),
        modified: TimeMs(time(at::MODIFIED, "modified")?.unwrap_or_default()),
        revision: Revision(0),
        expires: time(at::EXPIRES, "expires")?.map(TimeMs),
        tags,
        body,
    };
    let (owner, group) = (account(at::OWNER, "owner")?, account(at::GROUP, "group")?);
    Ok(Stat { lfn, owner, group, entry })
}
