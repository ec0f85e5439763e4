//! A trace: accesses to files, in the order of time.

pub mod names;
pub mod reads;
pub mod store;

use std::fmt;

use hashbrown::HashMap;
use serde_json::Value;

use crate::limits::{
    ACCESSES_MAX, FILES_MAX, LABEL_BYTES_MAX, NAME_BYTES_MAX, SITES_MAX, SIZE_MAX, TIME_US_MAX,
};
use names::Names;
use reads::Reads;

/// One access, as it stands in a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessRow<'a> {
    /// Time in microseconds since 1970.
    pub time_us: u64,
    /// Name of the file.
    pub name: &'a str,
    /// Bytes of the file.
    pub size: u64,
    /// Adler-32 of the file, if it is known.
    pub adler32: Option<u32>,
    /// Place of the client; empty if it is not known.
    pub site: &'a str,
    /// Dataset of the file; empty if it is not known.
    pub dataset: &'a str,
    /// Bytes that are read.
    pub reads: Reads,
}

/// A file of a trace, without its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// Bytes.
    pub size: u64,
    /// Adler-32, if it is known.
    pub adler32: Option<u32>,
    /// Number of the dataset.
    pub dataset: u32,
}

/// An access of a trace in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Time in microseconds since 1970.
    pub time_us: u64,
    /// Number of the file.
    pub file: u32,
    /// Number of what is read.
    pub reads: u32,
    /// Number of the site.
    pub site: u16,
}

/// Reason why a row is no access of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// It has no name, or one that no file can have.
    Name(&'static str),
    /// Its size is missing, 0 or too large.
    Size(&'static str),
    /// Its time cannot be a time of an access.
    Time(&'static str),
    /// Another value cannot stand in a trace.
    Value(&'static str),
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Flaw::Name(what) | Flaw::Size(what) | Flaw::Time(what) | Flaw::Value(what)) = self;
        f.write_str(what)
    }
}

/// A trace in memory. An access takes 24 bytes, a file 24 and its name.
#[derive(Default)]
pub struct Trace {
    /// Origin.
    pub description: Value,
    names: Names,
    files: Vec<FileFacts>,
    sites: Names,
    datasets: Names,
    reads: Vec<Reads>,
    reads_known: HashMap<Reads, u32>,
    accesses: Vec<Access>,
    is_sorted: bool,
    /// Accesses that came before an earlier one.
    pub out_of_order: u64,
    /// Accesses whose file has another size or checksum in an earlier row.
    pub differing: u64,
}

fn label(text: &str) -> Result<&str, Flaw> {
    match text.len() > LABEL_BYTES_MAX || text.chars().any(char::is_control) {
        true => Err(Flaw::Value("the name of a site or dataset is too long, or has control characters")),
        false => Ok(text),
    }
}

impl Trace {
    /// Makes an empty trace.
    pub fn new() -> Self {
        let mut trace = Trace { is_sorted: true, ..Trace::default() };
        trace.number_of(Reads::Whole);
        trace
    }

    fn number_of(&mut self, reads: Reads) -> u32 {
        if let Some(known) = self.reads_known.get(&reads) {
            return *known;
        }
        let number = u32::try_from(self.reads.len()).unwrap_or(u32::MAX);
        self.reads.push(reads.clone());
        self.reads_known.insert(reads, number);
        number
    }

    /// Checks that a row can stand in a trace.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn check(row: &AccessRow<'_>) -> Result<(), Flaw> {
        match row.name {
            "" => return Err(Flaw::Name("the file has no name")),
            name if name.len() > NAME_BYTES_MAX => {
                return Err(Flaw::Name("the name of the file is too long"));
            }
            name if name.chars().any(char::is_control) => {
                return Err(Flaw::Name("the name of the file has control characters"));
            }
            _ => {}
        }
        if row.size == 0 {
            return Err(Flaw::Size("the file has no size, or no bytes"));
        }
        if row.size > SIZE_MAX {
            return Err(Flaw::Size("the file is larger than 16 TiB"));
        }
        if row.time_us > TIME_US_MAX {
            return Err(Flaw::Time("the time is behind the year 9999"));
        }
        label(row.site).and_then(|_| label(row.dataset)).map(|_| ())
    }

    /// Adds an access. A file keeps the size and checksum that it had first; others are counted.
    ///
    /// # Errors
    /// Says what is wrong with the row, which is left out then.
    pub fn add(&mut self, row: &AccessRow<'_>) -> Result<(), Flaw> {
        Trace::check(row)?;
        if self.accesses.len() >= ACCESSES_MAX || self.files.len() >= FILES_MAX {
            return Err(Flaw::Value("the trace has as many accesses or files as it may have"));
        }
        let (site, is_new) = self.sites.add(row.site);
        let site = u16::try_from(site).ok().filter(|site| usize::from(*site) < SITES_MAX || !is_new);
        let site = site.ok_or(Flaw::Value("the trace has as many sites as it may have"))?;
        let (file, is_new) = self.names.add(row.name);
        match self.files.get_mut(file as usize) {
            Some(known) if !is_new => {
                let differs = |sum: u32| known.adler32.is_some_and(|known| known != sum);
                if known.size != row.size || row.adler32.is_some_and(differs) {
                    self.differing += 1;
                }
                known.adler32 = known.adler32.or(row.adler32);
            }
            _ => {
                let (dataset, _) = self.datasets.add(row.dataset);
                self.files.push(FileFacts { size: row.size, adler32: row.adler32, dataset });
            }
        }
        let reads = self.number_of(row.reads.clone());
        if self.accesses.last().is_some_and(|last| last.time_us > row.time_us) {
            self.is_sorted = false;
            self.out_of_order += 1;
        }
        self.accesses.push(Access { time_us: row.time_us, file, reads, site });
        Ok(())
    }

    /// Brings the accesses into the order of time. Those of one time stay in the order in which they came.
    pub fn sort(&mut self) {
        if !self.is_sorted {
            self.accesses.sort_by_key(|access| access.time_us);
            self.is_sorted = true;
        }
    }

    /// Lets everything happen so many times as fast. The first time stays.
    pub fn speed_up(&mut self, factor: f64) {
        let Some(first) = self.accesses.iter().map(|access| access.time_us).min() else { return };
        if factor > 0.0 && factor != 1.0 {
            for access in &mut self.accesses {
                let after = (access.time_us - first) as f64 / factor;
                access.time_us = first.saturating_add(after.round() as u64).min(TIME_US_MAX);
            }
        }
    }

    /// Gives files other sizes and checksums, and leaves out accesses to files without. `facts` has those of
    /// each file, by its number. Returns the number of accesses that were left out.
    pub fn take_files(&mut self, facts: &[Option<(u64, Option<u32>)>]) -> u64 {
        for (file, facts) in self.files.iter_mut().zip(facts) {
            if let Some((size, adler32)) = facts {
                (file.size, file.adler32) = (*size, *adler32);
            }
        }
        let before = self.accesses.len();
        self.accesses.retain(|access| facts.get(access.file as usize).is_some_and(Option::is_some));
        (before - self.accesses.len()) as u64
    }

    /// Returns the accesses, in the order of time after [`Trace::sort`].
    pub fn accesses(&self) -> &[Access] {
        &self.accesses
    }

    /// Returns the files by their numbers.
    pub fn files(&self) -> &[FileFacts] {
        &self.files
    }

    /// Returns a file.
    pub fn file(&self, number: u32) -> FileFacts {
        self.files.get(number as usize).copied().unwrap_or(FileFacts { size: 0, adler32: None, dataset: 0 })
    }

    /// Returns the name of a file.
    pub fn name(&self, file: u32) -> &str {
        self.names.get(file)
    }

    /// Returns the name of a site.
    pub fn site(&self, site: u16) -> &str {
        self.sites.get(site.into())
    }

    /// Returns the number of sites.
    pub fn sites(&self) -> usize {
        self.sites.len()
    }

    /// Returns the name of a dataset.
    pub fn dataset(&self, dataset: u32) -> &str {
        self.datasets.get(dataset)
    }

    /// Returns the number of datasets.
    pub fn datasets(&self) -> usize {
        self.datasets.len()
    }

    /// Returns what an access reads.
    pub fn reads(&self, access: &Access) -> &Reads {
        self.reads.get(access.reads as usize).unwrap_or(&Reads::Whole)
    }

    /// Returns the bytes that an access asks for.
    pub fn bytes_asked(&self, access: &Access) -> u64 {
        self.reads(access).bytes(self.file(access.file).size)
    }

    /// Returns an access as a row.
    pub fn row(&self, access: &Access) -> AccessRow<'_> {
        let file = self.file(access.file);
        AccessRow {
            time_us: access.time_us,
            name: self.name(access.file),
            size: file.size,
            adler32: file.adler32,
            site: self.site(access.site),
            dataset: self.dataset(file.dataset),
            reads: self.reads(access).clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn row(time_us: u64, name: &str, size: u64) -> AccessRow<'_> {
        AccessRow { time_us, name, size, ..AccessRow::default() }
    }

    /// Property: accesses are in the order of time, and those of one time in the order of the input.
    #[test]
    fn accesses_are_sorted_and_files_stored_once() {
        let mut trace = Trace::new();
        for (time, name) in [(5, "/b"), (3, "/a"), (5, "/a"), (3, "/c")] {
            trace.add(&row(time, name, 10)).unwrap();
        }
        trace.add(&row(9, "/a", 11)).unwrap();
        trace.sort();
        let names: Vec<&str> = trace.accesses().iter().map(|access| trace.name(access.file)).collect();
        assert_eq!(names, ["/a", "/c", "/b", "/a", "/a"]);
        assert_eq!((trace.files().len(), trace.out_of_order, trace.differing), (3, 2, 1));
        assert_eq!(trace.row(&trace.accesses()[4]).size, 10, "the first size counts");
    }

    /// Property: files get what others know of them, and those that nobody knows are read no more.
    #[test]
    fn files_take_the_facts_of_others() {
        let mut trace = Trace::new();
        for (time, name) in [(1, "/a"), (2, "/b"), (3, "/a"), (4, "/c")] {
            trace.add(&row(time, name, 10)).unwrap();
        }
        assert_eq!(trace.take_files(&[Some((7, Some(9))), None, Some((10, None))]), 1);
        let rows: Vec<_> = trace.accesses().iter().map(|access| trace.row(access)).collect();
        let shown: Vec<_> = rows.iter().map(|row| (row.name, row.size, row.adler32)).collect();
        assert_eq!(shown, [("/a", 7, Some(9)), ("/a", 7, Some(9)), ("/c", 10, None)]);
    }

    /// Property: a faster trace begins at the same time, in the same order.
    #[test]
    fn time_is_scaled_from_the_first_access() {
        let mut trace = Trace::new();
        for time in [100, 160, 100, 400] {
            trace.add(&row(time, "/a", 1)).unwrap();
        }
        trace.speed_up(3.0);
        let times: Vec<u64> = trace.accesses().iter().map(|access| access.time_us).collect();
        assert_eq!(times, [100, 120, 100, 200]);
        trace.speed_up(1e-300);
        assert!(trace.accesses().iter().all(|access| access.time_us <= TIME_US_MAX));
    }

    /// Property: a row that cannot stand in a trace changes nothing.
    #[test]
    fn limits_of_rows_hold_at_their_edges() {
        let mut trace = Trace::new();
        let long = format!("/{}", "x".repeat(NAME_BYTES_MAX - 1));
        let site = "s".repeat(LABEL_BYTES_MAX);
        let good = AccessRow { size: SIZE_MAX, site: &site, dataset: &site, ..row(TIME_US_MAX, &long, 1) };
        assert_eq!(trace.add(&good), Ok(()));
        let (longer, other) = (format!("{long}x"), format!("{site}s"));
        let bad = [
            AccessRow { name: &longer, ..good.clone() },
            AccessRow { name: "", ..good.clone() },
            AccessRow { name: "/a\tb", ..good.clone() },
            AccessRow { size: SIZE_MAX + 1, ..good.clone() },
            AccessRow { size: 0, ..good.clone() },
            AccessRow { time_us: TIME_US_MAX + 1, ..good.clone() },
            AccessRow { site: &other, ..good.clone() },
            AccessRow { dataset: "a\nb", ..good.clone() },
        ];
        for row in bad {
            assert!(trace.add(&row).is_err(), "{row:?}");
        }
        assert_eq!((trace.accesses().len(), trace.files().len(), trace.sites()), (1, 1, 1));
    }

    #[test]
    fn sites_are_bounded() {
        let mut trace = Trace::new();
        for number in 0..SITES_MAX {
            let site = number.to_string();
            trace.add(&AccessRow { site: &site, ..row(0, "/a", 1) }).unwrap();
        }
        assert!(trace.add(&AccessRow { site: "one more", ..row(0, "/a", 1) }).is_err());
        assert_eq!(trace.add(&AccessRow { site: "7", ..row(0, "/a", 1) }), Ok(()));
    }
}
