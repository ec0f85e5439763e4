//! Comparing the digests of two catalogues, directory by directory, both in the order in which they are given.

use std::cmp::Ordering;

use exacat_model::Lfn;

use super::Subtree;

/// How a directory differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Its entries do: here, there.
    Entries(Subtree, Subtree),
    /// It is only here, with all that is below it.
    OnlyHere(Subtree),
    /// It is only there, with all that is below it.
    OnlyThere(Subtree),
}

impl Difference {
    /// The directory.
    pub fn lfn(&self) -> &Lfn {
        match self {
            Difference::Entries(subtree, _)
            | Difference::OnlyHere(subtree)
            | Difference::OnlyThere(subtree) => &subtree.lfn,
        }
    }
}

/// What a comparison came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// What differs, and is in no directory that is on one side only.
    pub differences: Vec<Difference>,
    /// Directories that were compared, of both sides.
    pub directories: u64,
}

/// Where `a` comes relative to `b`: as a walk goes, but what is in a directory before the directory itself.
fn order(a: &Lfn, b: &Lfn) -> Ordering {
    let mut parts = (a.components(), b.components());
    loop {
        match (parts.0.next(), parts.1.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Greater,
            (Some(_), None) => return Ordering::Less,
            (Some(a), Some(b)) => match a.as_bytes().cmp(b.as_bytes()) {
                Ordering::Equal => {}
                other => return other,
            },
        }
    }
}

fn is_below(lfn: &Lfn, directory: &Lfn) -> bool {
    let mut names = lfn.components();
    directory.components().all(|name| names.next() == Some(name)) && names.next().is_some()
}

/// Compares what two catalogues have, both in the order in which [`digest`](super::digest) gives directories.
pub fn compare<E>(
    here: impl Iterator<Item = Result<Subtree, E>>,
    there: impl Iterator<Item = Result<Subtree, E>>,
) -> Result<Comparison, E> {
    let (mut here, mut there) = (here.peekable(), there.peekable());
    let mut comparison = Comparison::default();
    loop {
        let which = match (here.peek(), there.peek()) {
            (None, None) => return Ok(comparison),
            (Some(Ok(a)), Some(Ok(b))) => order(&a.lfn, &b.lfn),
            (Some(_), None) | (Some(Err(_)), _) => Ordering::Less,
            (None, Some(_)) | (_, Some(Err(_))) => Ordering::Greater,
        };
        comparison.directories += 1;
        let ours = if which.is_le() { here.next().transpose()? } else { None };
        let theirs = if which.is_ge() { there.next().transpose()? } else { None };
        match (ours, theirs) {
            (Some(ours), Some(theirs)) => {
                if ours.own != theirs.own {
                    comparison.differences.push(Difference::Entries(ours, theirs));
                }
            }
            (Some(ours), None) => comparison.only(Difference::OnlyHere(ours)),
            (None, Some(theirs)) => comparison.only(Difference::OnlyThere(theirs)),
            (None, None) => return Ok(comparison),
        }
    }
}

impl Comparison {
    /// Notes a directory that is on one side only, in place of those below it, which were seen before.
    fn only(&mut self, found: Difference) {
        let root = found.lfn().clone();
        while self.differences.last().is_some_and(|last| is_below(last.lfn(), &root)) {
            self.differences.pop();
        }
        self.differences.push(found);
    }
}
