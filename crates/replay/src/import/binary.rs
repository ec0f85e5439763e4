//! Datagrams of the f-stream of a server, one behind the other in a file.

use std::io::Read;

use exacat_exchange::error::{Error, Result};
use exacat_exchange::input::{BytesRead, Input};
use exacat_exchange::reject::{Complaint, Reason};
use exacat_wire::xrdmon::fstream::{Head, Record, records};
use hashbrown::HashMap;

use super::cache::reads_of;
use super::{ImportCounts, Taking};
use crate::trace::AccessRow;
use crate::trace::reads::Reads;

/// Opens that are not closed, at most: further ones are taken as reads of the whole file at once.
const OPENS_MAX: usize = 1 << 20;

/// An open file.
struct Opened {
    time: u32,
    size: u64,
    name: String,
}

/// State of an import.
#[derive(Default)]
struct FStream {
    /// Open files, by the start of the server and their number.
    opened: HashMap<(u32, u32), Opened>,
    time: u32,
}

/// Imports the datagrams of a file.
pub(super) fn import(
    input: &Input,
    read: &BytesRead,
    taking: &mut Taking<'_>,
    progress: &mut dyn FnMut(&ImportCounts),
) -> Result<()> {
    let cannot = |error| Error::file("read", input.path(), error);
    let mut reader = std::io::BufReader::with_capacity(1 << 18, input.reader(read)?);
    let (mut state, mut datagram, mut number) = (FStream::default(), Vec::new(), 0);
    loop {
        datagram.clear();
        (&mut reader).take(8).read_to_end(&mut datagram).map_err(cannot)?;
        if datagram.is_empty() {
            break;
        }
        number += 1;
        let length = Head::read(&datagram).map_or(0, |head| u64::from(head.length));
        let rest = length.saturating_sub(8);
        (&mut reader).take(rest).read_to_end(&mut datagram).map_err(cannot)?;
        if length < 8 || datagram.len() as u64 != length {
            // Nothing tells where the next one begins.
            let complaint = Complaint::new(Reason::BadRow, "the datagram is cut off, or this is none");
            taking.take(Err(complaint), 1, (number, &datagram))?;
            break;
        }
        state.take(taking, &datagram, number)?;
        progress(taking.counts);
    }
    // Their bytes were never told.
    for ((_, _), opened) in std::mem::take(&mut state.opened) {
        taking.take(Ok(opened.row(Reads::Whole)), 1, (number, b""))?;
    }
    progress(taking.counts);
    Ok(())
}

impl Opened {
    fn row(&self, reads: Reads) -> AccessRow<'_> {
        let time_us = u64::from(self.time) * 1_000_000;
        AccessRow { time_us, name: &self.name, size: self.size, reads, ..AccessRow::default() }
    }
}

impl FStream {
    fn take(&mut self, taking: &mut Taking<'_>, datagram: &[u8], number: u64) -> Result<()> {
        let Some(head) = Head::read(datagram).filter(|head| head.code == b'f') else {
            taking.counts.rows += 1;
            taking.counts.other += 1;
            return Ok(());
        };
        let bad = |what: &'static str| Complaint::new(Reason::BadRow, what);
        let records = match records(datagram) {
            Ok(records) => records,
            Err(what) => return taking.take(Err(bad(what)), 1, (number, datagram)),
        };
        for record in records {
            match record {
                Err(what) => taking.take(Err(bad(what)), 1, (number, datagram))?,
                Ok(Record::Time { from, .. }) => self.time = from,
                Ok(Record::Open { file, size, writes: false, name: Some(name), .. }) => {
                    let opened = Opened { time: self.time, size, name: name.to_owned() };
                    if self.opened.len() < OPENS_MAX {
                        self.opened.insert((head.started, file), opened);
                    } else {
                        taking.take(Ok(opened.row(Reads::Whole)), 1, (number, b""))?;
                    }
                }
                Ok(Record::Close { file, moved, .. }) => {
                    let Some(opened) = self.opened.remove(&(head.started, file)) else {
                        // It was opened before the begin.
                        taking.counts.rows += 1;
                        taking.counts.other += 1;
                        continue;
                    };
                    let asked = moved.read.saturating_add(moved.readv);
                    if asked == 0 {
                        taking.counts.rows += 1;
                        taking.counts.nothing_read += 1;
                        continue;
                    }
                    // One client: what it read twice is no second access.
                    let (reads, _) = reads_of(asked, opened.size);
                    taking.take(Ok(opened.row(reads)), 1, (number, b""))?;
                }
                Ok(_) => {
                    taking.counts.rows += 1;
                    taking.counts.other += 1;
                }
            }
        }
        Ok(())
    }
}
