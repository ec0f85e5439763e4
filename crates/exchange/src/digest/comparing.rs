//! Compares the digests of two catalogues, directory by directory, both in their own order.

use std::cmp::Ordering;

use exacat_model::Lfn;

use super::Subtree;

/// Difference of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Its entries differ: here, there.
    Entries(Subtree, Subtree),
    /// Only here, with everything below it.
    OnlyHere(Subtree),
    /// Only there, with everything below it.
    OnlyThere(Subtree),
}

impl Difference {
    /// Returns the directory.
    pub fn lfn(&self) -> &Lfn {
        match self {
            Difference::Entries(subtree, _)
            | Difference::OnlyHere(subtree)
            | Difference::OnlyThere(subtree) => &subtree.lfn,
        }
    }
}

/// Result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Differences, without those inside a directory that is on one side only.
    pub differences: Vec<Difference>,
    /// Number of compared directories on both sides.
    pub directories: u64,
}

/// Compares paths in the order of [`digest`](super::digest): depth first, the content of a
/// directory before the directory itself.
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

/// Compares the directories of two catalogues, both in the order of [`digest`](super::digest).
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
    /// Records a directory that is on one side only. Replaces those below it, which came before.
    fn only(&mut self, found: Difference) {
        let root = found.lfn().clone();
        while self.differences.last().is_some_and(|last| is_below(last.lfn(), &root)) {
            self.differences.pop();
        }
        self.differences.push(found);
    }
}
