//! Sums of what is below each directory, and of each user, group and storage element.

use std::collections::{BTreeMap, HashMap};
use std::io;

use exacat_columnar::TableWriter;
use exacat_exchange::walk::SesByNumber;
use exacat_model::answer::Stat;
use exacat_model::{Kind, Lfn, Usage};

/// Kinds of names that entries are counted for, beside directories.
const OWNING: [&str; 3] = ["user", "group", "se"];
/// Places in that list.
const USER: usize = 0;
const GROUP: usize = 1;
const SE: usize = 2;

/// Sums of entries that come in the order of a find. Memory grows with depth and with the number of
/// accounts.
pub(crate) struct UsageFold {
    /// Open directories, the base first, each with what is below it.
    levels: Vec<(Lfn, Usage)>,
    /// Sums by name, for each kind of them.
    owning: [HashMap<String, Usage>; OWNING.len()],
}

fn push(out: &mut TableWriter, of: &str, name: &str, usage: &Usage) -> io::Result<()> {
    out.text(Some(of));
    out.text(Some(name));
    for count in [usage.directories, usage.files, usage.members, usage.others, usage.replicas] {
        // No catalogue has 2⁶³ entries.
        out.long(Some(i64::try_from(count).unwrap_or(i64::MAX)));
    }
    for bytes in [usage.bytes, usage.member_bytes, usage.replica_bytes] {
        out.large(bytes);
    }
    out.end_row()
}

impl UsageFold {
    pub(crate) fn new(under: Lfn) -> Self {
        UsageFold { levels: vec![(under, Usage::default())], owning: Default::default() }
    }

    /// Writes the last directory, whose entries were all seen, and adds it to the one above.
    fn close(&mut self, out: &mut TableWriter) -> io::Result<()> {
        let Some((lfn, usage)) = self.levels.pop() else { return Ok(()) };
        push(out, "directory", lfn.as_str(), &usage)?;
        if let Some((_, above)) = self.levels.last_mut() {
            above.add(&usage);
        }
        Ok(())
    }

    fn owned(&mut self, of: usize, name: &str, usage: &Usage) {
        match self.owning[of].get_mut(name) {
            Some(sum) => sum.add(usage),
            None => _ = self.owning[of].insert(name.to_owned(), *usage),
        }
    }

    /// Adds an entry.
    pub(crate) fn entry(&mut self, stat: &Stat, ses: &SesByNumber, out: &mut TableWriter) -> io::Result<()> {
        // A filter may leave out the directories between.
        while self.levels.len() > 1 && self.levels.last().is_some_and(|(lfn, _)| !lfn.contains(&stat.lfn)) {
            self.close(out)?;
        }
        let usage = Usage::of(&stat.entry);
        if let Some((_, sum)) = self.levels.last_mut() {
            sum.add(&usage);
        }
        self.owned(USER, stat.owner.as_str(), &usage);
        self.owned(GROUP, stat.group.as_str(), &usage);
        if let Some(file) = stat.entry.file() {
            for replica in file.replicas.iter().filter(|replica| replica.takes_space()) {
                let name = ses.get(&replica.se.0).map_or("", |se| se.name.as_str());
                self.owned(SE, name, &Usage::of_replica(replica, file.size));
            }
        }
        if stat.entry.kind() == Kind::Directory {
            self.levels.push((stat.lfn.clone(), Usage::default()));
        }
        Ok(())
    }

    /// Writes the open directories and the accounts.
    pub(crate) fn end(mut self, out: &mut TableWriter) -> io::Result<()> {
        while !self.levels.is_empty() {
            self.close(out)?;
        }
        for (of, sums) in OWNING.iter().zip(self.owning) {
            let sorted: BTreeMap<String, Usage> = sums.into_iter().collect();
            sorted.iter().try_for_each(|(name, usage)| push(out, of, name, usage))?;
        }
        Ok(())
    }
}
