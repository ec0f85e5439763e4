//! Looks up many names together.
//!
//! Nearly all of a look-up's time is waiting for memory: a catalogue does not fit into a
//! processor's caches. The batch therefore loads one kind of data for all names, in a loop that
//! does nothing else, then the next kind. The processor then waits for many loads at a time.
//!
//! ```text
//! memtables   index · row                               missing names go on to the runs
//! runs        filters of all of them                    the newest run that may have the name,
//!             index of pages · slot · page's head · row  then the next one
//! ```

use std::hint::black_box;
use std::sync::Arc;

use exacat_model::DirId;

use super::View;
use crate::defect::Defect;
use crate::page::{Damaged, Row};
use crate::run::{PageAt, Run};

/// Number of runs whose filters are checked together: one bit for each.
const RUNS_TOGETHER: usize = u64::BITS as usize;

/// Key of an entry.
pub(crate) type Key<'k> = (DirId, &'k [u8]);

/// A name without an answer yet.
#[derive(Clone, Copy)]
struct Open {
    /// Index among the requested names.
    key: usize,
    hash: u64,
    /// Bit set of the runs checked together that may have it.
    runs: u64,
}

/// A page that may have a name.
#[derive(Clone, Copy)]
struct PageRequest<'v> {
    open: Open,
    run: &'v Arc<Run>,
    page: usize,
}

impl PageRequest<'_> {
    fn damaged(&self, damaged: Damaged) -> Defect {
        self.run.damaged(self.page, damaged).into()
    }
}

/// A look-up of keys in a view; `take` gets the results.
struct Batch<'b, 'v, T> {
    view: View<'v>,
    keys: &'b [Key<'b>],
    take: T,
    /// Set if a page is not in memory: then that and the other missing pages are noted.
    missing: bool,
}

impl View<'_> {
    /// Looks up each of these names. `take` gets the index of the name and its row, or none, in any
    /// order.
    pub(crate) fn find_many(
        &self,
        keys: &[Key<'_>],
        mut take: impl FnMut(usize, Option<&Row<'_>>) -> Result<(), Defect>,
    ) -> Result<(), Defect> {
        if let [(directory, name)] = keys {
            return self.find(*directory, name, |row| take(0, row))?;
        }
        let mut batch = Batch { view: *self, keys, take, missing: false };
        let mut open: Vec<usize> = (0..keys.len()).collect();
        batch.in_memory(&mut open)?;
        let open = batch.in_runs(open)?;
        open.into_iter().try_for_each(|key| (batch.take)(key, None))?;
        if batch.missing { Err(Defect::NotInMemory) } else { Ok(()) }
    }
}

impl<'v, T: FnMut(usize, Option<&Row<'_>>) -> Result<(), Defect>> Batch<'_, 'v, T> {
    fn give(&mut self, key: usize, row: &Row<'_>) -> Result<(), Defect> {
        (self.take)(key, (!row.is_gone()).then_some(row))
    }

    /// Leaves in `open` the names that are in no memtable.
    fn in_memory(&mut self, open: &mut Vec<usize>) -> Result<(), Defect> {
        let mut hashes = vec![0; self.keys.len()];
        for memtable in self.view.memtables().filter(|memtable| memtable.rows() > 0) {
            let mut touched = 0;
            for key in &*open {
                let (directory, name) = self.keys[*key];
                hashes[*key] = memtable.name_hash(directory, name);
                touched ^= memtable.touch_index(hashes[*key]);
            }
            for key in &*open {
                touched ^= memtable.touch_row(hashes[*key]);
            }
            black_box(touched);
            let mut left = Vec::with_capacity(open.len());
            for key in open.drain(..) {
                let (directory, name) = self.keys[key];
                match memtable.find_hashed(hashes[key], directory, name)? {
                    Some(row) => self.give(key, &row)?,
                    None => left.push(key),
                }
            }
            *open = left;
        }
        Ok(())
    }

    /// Returns the names that are in no run.
    fn in_runs(&mut self, keys: Vec<usize>) -> Result<Vec<usize>, Defect> {
        let version = self.view.version;
        let Some(hashes) = version.runs.first().map(|run| run.hashes()) else { return Ok(keys) };
        let mut open: Vec<Open> = keys
            .into_iter()
            .map(|key| Open { key, hash: hashes.name(self.keys[key].0, self.keys[key].1), runs: 0 })
            .collect();
        for runs in version.runs.chunks(RUNS_TOGETHER) {
            for (number, run) in runs.iter().enumerate() {
                black_box(open.iter().fold(0, |touched, open| touched ^ run.touch_filter(open.hash)));
                for open in &mut open {
                    open.runs |= u64::from(run.may_have(open.hash)) << number;
                }
            }
            let mut nowhere = Vec::with_capacity(open.len());
            loop {
                let mut asked = Vec::with_capacity(open.len());
                for mut open in open.drain(..) {
                    match runs.get(open.runs.trailing_zeros() as usize) {
                        Some(run) => {
                            open.runs &= open.runs - 1;
                            asked.push(PageRequest { open, run, page: 0 });
                        }
                        None => nowhere.push(open),
                    }
                }
                if asked.is_empty() {
                    break;
                }
                self.ask(asked, &mut open)?;
            }
            open = nowhere;
        }
        Ok(open.into_iter().map(|open| open.key).collect())
    }

    /// Looks up each name in the run chosen for it. Names that are not there return to `open`.
    fn ask(&mut self, mut asked: Vec<PageRequest<'v>>, open: &mut Vec<Open>) -> Result<(), Defect> {
        let reading = self.view.reading;
        let mut touched = 0;
        self.choose_pages(&mut asked);
        for asked in &asked {
            touched ^= reading.touch(asked.run, asked.page);
        }
        // Names in one page fetch it together.
        let mut pages: Vec<(&[PageRequest<'v>], PageAt<'v>)> = Vec::with_capacity(asked.len());
        for alike in asked.chunk_by(|one, other| one.page == other.page && Arc::ptr_eq(one.run, other.run)) {
            match alike[0].run.page(reading, alike[0].page) {
                Ok(bytes) => pages.push((alike, bytes)),
                Err(Defect::NotInMemory) => self.missing = true,
                Err(other) => return Err(other),
            }
        }
        // A loop of its own: in the loop above, each load would wait for the lock of the one
        // before.
        pages.iter().for_each(|(_, bytes)| touched ^= bytes.touch());
        let mut views = Vec::with_capacity(pages.len());
        let mut likely = Vec::with_capacity(asked.len());
        for (place, (alike, bytes)) in pages.iter().enumerate() {
            let page = bytes.view().map_err(|damaged| alike[0].damaged(damaged))?;
            for asked in *alike {
                match page.likely(asked.open.hash, 0).map_err(|damaged| asked.damaged(damaged))? {
                    Some(row) => {
                        touched ^= page.touch(row);
                        likely.push((asked, place, row));
                    }
                    None => open.push(asked.open),
                }
            }
            views.push(page);
        }
        likely.iter().for_each(|(_, place, row)| touched ^= views[*place].touch_name(*row));
        black_box(touched);
        for (asked, place, row) in likely {
            let (page, (directory, name)) = (&views[place], self.keys[asked.open.key]);
            let row = page.find_from(row, directory, name, asked.open.hash);
            let row = row.and_then(|row| row.map(|row| page.row(row, directory, name)).transpose());
            match row.map_err(|damaged| asked.damaged(damaged))? {
                Some(row) => self.give(asked.open.key, &row)?,
                None => open.push(asked.open),
            }
        }
        Ok(())
    }

    /// Chooses the page that may have each name. If one name is on the page of the one before, the
    /// next name tries that page first.
    fn choose_pages(&self, asked: &mut [PageRequest<'v>]) {
        let mut before: Option<(&Arc<Run>, usize)> = None;
        let mut near = true;
        for asked in asked {
            let (directory, name) = self.keys[asked.open.key];
            let same = before.filter(|(run, _)| near && Arc::ptr_eq(run, asked.run));
            let page = same.map(|(_, page)| page).filter(|page| asked.run.is_page_of(*page, directory, name));
            asked.page = match page {
                Some(page) => page,
                // None: the key comes before all pages, so it is not on the first one either.
                None => asked.run.page_of(directory, name).unwrap_or(0),
            };
            near = before.is_none_or(|(run, page)| page == asked.page || !Arc::ptr_eq(run, asked.run));
            before = Some((asked.run, asked.page));
        }
    }
}
