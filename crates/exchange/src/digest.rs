//! Digests of subtrees: they prove that two catalogues hold the same below a directory, and name
//! the differences.
//!
//! A directory has two digests:
//!
//! - *Own* covers the entries in it: name, kind, GUID, size, checksums, owner, group, mode, times,
//!   job, replicas, tags, targets of links, members of collections. All are by name; numbers that
//!   only one catalogue knows are left out.
//! - *Whole* covers own and the whole digests of the directories in it.
//!
//! So two subtrees are the same exactly if their whole digests are (SHA-256). If they differ, the
//! own digests show in which directories.
//!
//! Digests omit the same data as exports: when entries were added, owners and times of links, GUIDs
//! of collections and links, history, trash, upload reservations, quotas, roles, tokens.

mod comparing;
pub mod file;

use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::{Duration, Instant};

use exacat_model::answer::Stat;
use exacat_model::codec::Encode;
use exacat_model::{Body, Cursor, Filter, Guid, Kind, Lfn, Operation, Replica};
use futures::pin_mut;
use sha2::{Digest as _, Sha256};

use crate::catalogue::Catalogue;
use crate::cells::Ses;
use crate::error::Error;
use crate::export::{known_ses, members_of, next_entries, next_members};
use crate::limits::EXPORT_PAGE_ITEMS;
use crate::progress::Progress;

pub use comparing::{Comparison, Difference, compare};

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let bad = "a digest has 64 hex digits";
        let mut digest = Digest::default();
        if text.len() != 2 * digest.0.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(bad);
        }
        for (byte, place) in digest.0.iter_mut().zip(0..) {
            *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16).map_err(|_| bad)?;
        }
        Ok(digest)
    }
}

/// Digests of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subtree {
    /// Its path.
    pub lfn: Lfn,
    /// Digest of the entries in it.
    pub own: Digest,
    /// Digest of everything below it.
    pub whole: Digest,
    /// Number of entries below it, at any depth.
    pub entries: u64,
}

/// Result of a digest.
#[derive(Clone, Debug, PartialEq)]
pub struct DigestReport {
    /// The base directory.
    pub root: Subtree,
    /// Number of directories, including the base.
    pub directories: u64,
    /// Members of collections.
    pub members: u64,
    /// Duration of the run.
    pub elapsed: Duration,
}

/// Digests everything below a directory. Calls `each` for each directory after everything below it.
pub async fn digest<C: Catalogue>(
    catalogue: &C,
    under: &Lfn,
    mut each: impl FnMut(&Subtree) -> io::Result<()> + Send,
    mut progress: impl FnMut(&Progress) + Send,
) -> Result<DigestReport, Error> {
    let started = Instant::now();
    let mut ses = known_ses(catalogue).await?;
    let (mut fold, mut members) = (Fold::new(under.clone()), 0);
    let cannot = |error| Error::file("write", std::path::Path::new("the digests"), error);
    let find = Operation::Find {
        lfn: under.clone(),
        filter: Box::new(Filter::default()),
        cursor: Cursor::default(),
        limit: EXPORT_PAGE_ITEMS,
    };
    let pages = catalogue.stream(find);
    pin_mut!(pages);
    while let Some((items, page_ses)) = next_entries(&mut pages).await? {
        if page_ses.iter().any(|number| !ses.contains_key(number)) {
            ses = known_ses(catalogue).await?;
        }
        for stat in &items {
            let of_members = match stat.entry.kind() {
                Kind::Collection => {
                    let (sum, count) = digest_of_members(catalogue, &stat.lfn).await?;
                    members += count;
                    Some(sum)
                }
                _ => None,
            };
            fold.entry(stat, of_members, &ses, &mut each).map_err(cannot)?;
        }
        progress(&Progress {
            rows: fold.seen,
            rows_now: fold.seen,
            elapsed: started.elapsed(),
            ..Progress::default()
        });
    }
    let directories = fold.directories;
    let root = fold.end(&mut each).map_err(cannot)?;
    Ok(DigestReport { root, directories, members, elapsed: started.elapsed() })
}

/// Returns the sum of the digests of a collection's members.
async fn digest_of_members<C: Catalogue>(catalogue: &C, lfn: &Lfn) -> Result<(Digest, u64), Error> {
    let mut sum = MembersSum::default();
    let listing = catalogue.stream(members_of(lfn.clone()));
    pin_mut!(listing);
    while let Some(items) = next_members(&mut listing).await? {
        items.iter().for_each(|member| sum.add(member.stat.as_ref().map(|stat| &stat.lfn), member.guid));
    }
    Ok((sum.digest(), sum.count))
}

/// Sum of the digests of a collection's members. A sum is needed because members come in the order of
/// GUIDs, and GUIDs of collections differ between catalogues.
#[derive(Clone, Debug, Default)]
pub struct MembersSum {
    lanes: [u64; 4],
    /// Number of members.
    pub count: u64,
    bytes: Vec<u8>,
}

impl MembersSum {
    /// Adds a member by its path, or by its GUID if the path is hidden.
    pub fn add(&mut self, lfn: Option<&Lfn>, guid: Guid) {
        self.bytes.clear();
        match lfn {
            Some(lfn) => lfn.encode(&mut self.bytes),
            None => guid.encode(&mut self.bytes),
        }
        let one: [u8; 32] = Sha256::digest(&self.bytes).into();
        for (lane, part) in self.lanes.iter_mut().zip(one.as_chunks().0) {
            *lane = lane.wrapping_add(u64::from_le_bytes(*part));
        }
        self.count += 1;
    }

    /// Returns the sum.
    pub fn digest(&self) -> Digest {
        let mut sum = Digest::default();
        for (lane, part) in self.lanes.iter().zip(sum.0.as_chunks_mut().0) {
            *part = lane.to_le_bytes();
        }
        sum
    }
}

/// A directory in progress.
struct Level {
    lfn: Lfn,
    own: Sha256,
    below: Sha256,
    entries: u64,
}

/// Combines entries, in the order of a find, to digests of directories.
pub struct Fold {
    /// Open directories, the base first.
    levels: Vec<Level>,
    bytes: Vec<u8>,
    seen: u64,
    directories: u64,
}

impl Fold {
    /// Begins with the base directory.
    pub fn new(under: Lfn) -> Self {
        let mut fold = Fold { levels: Vec::new(), bytes: Vec::new(), seen: 0, directories: 0 };
        fold.open(under);
        fold
    }

    fn open(&mut self, lfn: Lfn) {
        self.directories += 1;
        self.levels.push(Level { lfn, own: Sha256::new(), below: Sha256::new(), entries: 0 });
    }

    /// Takes the next entry in the order of a find; a collection with the sum of its members. Calls `each`
    /// for directories that end before it.
    pub fn entry(
        &mut self,
        stat: &Stat,
        members: Option<Digest>,
        ses: &Ses,
        each: &mut impl FnMut(&Subtree) -> io::Result<()>,
    ) -> io::Result<()> {
        let parent = stat.lfn.split_last().map_or("/", |(parent, _)| parent);
        while self.levels.len() > 1 && self.levels.last().is_some_and(|level| level.lfn.as_str() != parent) {
            self.close(each)?;
        }
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        self.bytes.clear();
        push_entry(&mut self.bytes, stat, ses);
        if let Some(members) = members {
            self.bytes.extend_from_slice(&members.0);
        }
        level.own.update(&self.bytes);
        level.entries += 1;
        self.seen += 1;
        if stat.entry.kind() == Kind::Directory {
            self.open(stat.lfn.clone());
        }
        Ok(())
    }

    /// Closes a directory whose entries were all seen.
    fn close(&mut self, each: &mut impl FnMut(&Subtree) -> io::Result<()>) -> io::Result<Option<Subtree>> {
        let Some(level) = self.levels.pop() else { return Ok(None) };
        let own = Digest(level.own.finalize().into());
        let whole = Sha256::new().chain_update(own.0).chain_update(level.below.finalize());
        let whole = Digest(whole.finalize().into());
        let subtree = Subtree { lfn: level.lfn, own, whole, entries: level.entries };
        each(&subtree)?;
        if let (Some(above), Some((_, name))) = (self.levels.last_mut(), subtree.lfn.split_last()) {
            self.bytes.clear();
            push_text(&mut self.bytes, name);
            self.bytes.extend_from_slice(&whole.0);
            above.below.update(&self.bytes);
            above.entries += subtree.entries;
        }
        Ok(Some(subtree))
    }

    /// Ends the open directories, and returns the base.
    pub fn end(mut self, each: &mut impl FnMut(&Subtree) -> io::Result<()>) -> io::Result<Subtree> {
        loop {
            let closed = self.close(each)?;
            if let (true, Some(root)) = (self.levels.is_empty(), closed) {
                return Ok(root);
            }
        }
    }
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    (text.len() as u32).encode(out);
    out.extend_from_slice(text.as_bytes());
}

/// Appends the fields of an entry that do not depend on its catalogue.
fn push_entry(out: &mut Vec<u8>, stat: &Stat, ses: &Ses) {
    let entry = &stat.entry;
    push_text(out, stat.lfn.split_last().map_or("", |(_, name)| name));
    push_text(out, entry.kind().name());
    // An attribute set on a link is set on its target.
    if let Body::Link { target, .. } = &entry.body {
        return push_text(out, target.as_str());
    }
    push_text(out, stat.owner.as_str());
    push_text(out, stat.group.as_str());
    entry.mode.encode(out);
    entry.modified.encode(out);
    entry.expires.encode(out);
    entry.tags.encode(out);
    if let Body::File(file) = &entry.body {
        file.guid.encode(out);
        file.size.encode(out);
        file.checksums.encode(out);
        file.job.encode(out);
        (file.replicas.len() as u32).encode(out);
        let mut replicas: Vec<(&str, &Replica)> = file
            .replicas
            .iter()
            .map(|replica| (ses.get(&replica.se.0).map_or("", |se| se.name.as_str()), replica))
            .collect();
        // Numbers of SEs differ between catalogues, and so does their order by number.
        replicas.sort_unstable_by(|a, b| a.0.cmp(b.0));
        for (se, replica) in replicas {
            push_text(out, se);
            replica.state.encode(out);
            replica.location.encode(out);
        }
    }
}
