//! Sums of files that came into one directory together, so that each counter changes once for many
//! files.

use exacat_model::{DirId, GroupId, Revision, SeNumber, TimeMs, Usage, UserId};

use super::State;
use crate::defect::Defect;
use crate::load::Placed;

/// Sum of new files of one directory.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    usage: Usage,
    owners: Vec<(UserId, GroupId, Usage)>,
    ses: Vec<OnSe>,
}

/// Part of the sum on one SE.
#[derive(Debug)]
struct OnSe {
    se: SeNumber,
    /// Number of files with a replica there, in any state.
    files: u32,
    usage: Usage,
}

impl Gathered {
    /// Adds a file.
    pub(crate) fn add(&mut self, file: &Placed<'_>) {
        let usage = file.usage();
        self.usage.add(&usage);
        let (owner, group) = (file.owner(), file.group());
        match self.owners.iter_mut().rev().find(|(of, and, _)| (*of, *and) == (owner, group)) {
            Some((.., total)) => total.add(&usage),
            None => self.owners.push((owner, group, usage)),
        }
        let size = u128::from(file.size());
        for (se, takes_space) in file.places() {
            let on = match self.ses.iter_mut().position(|on| on.se == se) {
                Some(at) => &mut self.ses[at],
                None => {
                    self.ses.push(OnSe { se, files: 0, usage: Usage::default() });
                    let last = self.ses.len() - 1;
                    &mut self.ses[last]
                }
            };
            on.files += 1;
            if takes_space {
                on.usage.add(&Usage {
                    files: 1,
                    replicas: 1,
                    bytes: size,
                    replica_bytes: size,
                    ..Usage::default()
                });
            }
        }
    }
}

impl State {
    /// Counts the sum of new files of a directory, and clears it.
    pub(crate) fn count_files(&mut self, directory: DirId, gathered: &mut Gathered) -> Result<(), Defect> {
        if gathered.usage.is_empty() {
            return Ok(());
        }
        let Gathered { usage, owners, ses } = gathered;
        self.add_up(directory, usage)?;
        for (owner, group, usage) in owners.drain(..) {
            self.accounts.add_use(owner, group, &usage);
        }
        for OnSe { se, files, usage } in ses.drain(..) {
            let account = self.accounts.ses.entry(se).or_default();
            account.usage.add(&usage);
            if self.directories.get_mut(directory)?.add_files(se, files)? {
                account.directories.insert(directory);
            }
        }
        *usage = Usage::default();
        Ok(())
    }

    /// Notes the last of `entries` new entries; `digest` is the sum of theirs.
    pub(crate) fn came(&mut self, revision: Revision, time: TimeMs, entries: u64, digest: u128) {
        (self.revision, self.time) = (revision, time);
        self.entries += entries;
        self.digest.set(self.digest.value().wrapping_add(digest));
    }

    /// Says whether there are upload reservations.
    pub(crate) fn has_reservations(&self) -> bool {
        !self.reservations.is_empty()
    }
}
