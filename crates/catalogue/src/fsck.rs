//! Check of the whole catalogue, and its metrics.
//!
//! The store proves its indices and counters from its entries. This module checks what the store
//! does not know: everything that entries and records refer to exists, and nothing in use waits for
//! deletion.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use exacat_model::answer::StatusPart;
use exacat_model::limits::{ACTIVITY_PARTS_MAX, PAGE_ITEMS_MAX, READ_BATCH_MAX};
use exacat_model::operation::Owner;
use exacat_model::{
    Answer, Audit, Deletion, DeletionId, DirId, Entry, EntryId, Error, GroupId, Location, Name, QuotaOf,
    Record, RecordKey, RecordKind, Reservation, Result, Revision, Se, SeNumber, SeStatus, TimeMs, Usage,
    UserId,
};
use exacat_store::UsageOf;
use futures::FutureExt;
use futures::future::join_all;

use crate::Catalogue;
use crate::accounts::is_gone;
use crate::caller::Caller;
use crate::registry::Names;

/// Directories listed at once.
const LISTINGS_AT_ONCE: usize = 8;
/// Most upload reservations to release and entries to expire that are counted, because each must be
/// read.
const DUE_COUNTED_MAX: usize = 1000;
/// Wait of a status for the sums of the last state, whose changes may not be durable yet.
const SUMS_TIME: Duration = Duration::from_secs(1);

/// Sums of the tree, and of storage elements.
#[derive(Clone, Debug)]
pub struct Sums {
    /// Everything in the tree.
    pub tree: Usage,
    /// Storage elements by number.
    pub ses: Vec<SeSums>,
}

/// Sums of a storage element.
#[derive(Clone, Debug)]
pub struct SeSums {
    /// The storage element.
    pub se: Arc<Se>,
    /// Replicas that take space.
    pub replicas: Usage,
    /// Its deletion queue.
    pub deletions: Usage,
}

impl Catalogue {
    pub(crate) async fn fsck(&self, caller: &Caller) -> Result<Answer> {
        caller.check_operator("to check the catalogue")?;
        let mut audit = self.store.audit().await?;
        self.registry.refresh(&*self.store).await?;
        let mut check = Check { catalogue: self, names: self.registry.names(), members: 0, lost: 0 };
        check.records(&mut audit).await?;
        // A part of a catalogue has no queues, and its entries may name others that are elsewhere.
        if self.store.under().is_none() {
            check.reservations(&mut audit).await?;
            check.deletions(&mut audit).await?;
            check.entries(&mut audit).await?;
        }
        Ok(Answer::Fsck(audit))
    }

    /// Returns the sums of the tree and of at most so many storage elements, for metrics.
    pub async fn sums(&self, ses_max: usize) -> Result<Sums> {
        let names = self.registry.names();
        let ses = names.ses.values().filter(|se| !is_gone(se.name.as_str()));
        let ses: Vec<Arc<Se>> = ses.take(ses_max).cloned().collect();
        let mut of = vec![UsageOf::Directory(DirId::ROOT)];
        of.extend(ses.iter().flat_map(|se| [UsageOf::Se(se.number), UsageOf::Deletions(se.number)]));
        let mut usage = Vec::new();
        for some in of.chunks(READ_BATCH_MAX) {
            usage.extend(self.store.usage(some).await?.into_iter().map(|account| account.usage));
        }
        let mut usage = usage.into_iter();
        let mut next = || usage.next().unwrap_or_default();
        let tree = next();
        let ses = ses.into_iter().map(|se| SeSums { se, replicas: next(), deletions: next() });
        Ok(Sums { tree, ses: ses.collect() })
    }

    pub(crate) async fn status(&self, caller: &Caller) -> Result<Answer> {
        caller.check_operator("to see the catalogue's metrics")?;
        let names = self.registry.names();
        // An operator looks here to see why a change waits, so the sums of the last state hold nobody up.
        let sums = async {
            let tree = self.store.usage(&[UsageOf::Directory(DirId::ROOT)]).await?;
            let due = self.store.due(self.clock.trusted(), DUE_COUNTED_MAX).await?;
            Ok::<_, Error>((tree, self.deletions_waiting().await?, due))
        };
        let sums = tokio::time::timeout(SUMS_TIME, sums).await.ok().transpose()?;
        let small = |value: u128| u64::try_from(value).unwrap_or(u64::MAX);
        let shown = |name: &str| !is_gone(name);
        let ses: Vec<_> = names.ses.values().filter(|se| shown(se.name.as_str())).collect();
        let online = ses.iter().filter(|se| se.status == SeStatus::Online).count();
        let mut metrics = named([
            ("users", names.users.values().filter(|user| shown(user.name.as_str())).count() as u64),
            ("groups", names.groups.values().filter(|group| shown(group.name.as_str())).count() as u64),
            ("storage_elements", ses.len() as u64),
            ("storage_elements_online", online as u64),
        ]);
        let timelines = self.store.timelines();
        let mut notes = vec![match timelines.all().last().and_then(|timeline| timeline.parted) {
            None => format!("timeline {}", timelines.current()),
            Some((before, after)) => {
                format!("timeline {}, parted from {before} after revision {}", timelines.current(), after.0)
            }
        }];
        if self.settings.anonymous_reads {
            notes.push("anonymous callers may read what modes give to others".to_owned());
        }
        if !ses.is_empty() && online == 0 {
            notes.push("no storage element is online: no upload can be reserved".to_owned());
        }
        if let Some((tree, deletions, due)) = &sums {
            let tree = tree.first().copied().unwrap_or_default().usage;
            metrics.extend(named([
                ("directories", tree.directories),
                ("files", tree.files),
                ("archive_members", tree.members),
                ("collections_and_links", tree.others),
                ("replicas", tree.replicas),
                ("logical_bytes", small(tree.bytes + tree.member_bytes)),
                ("replica_bytes", small(tree.replica_bytes)),
                ("deletions_waiting", deletions.replicas),
                ("deletions_waiting_bytes", small(deletions.replica_bytes)),
                ("reservations_to_release", due.reservations.len() as u64),
                ("entries_to_expire", due.entries.len() as u64),
            ]));
            for (count, what) in [
                (due.reservations.len(), "reservations_to_release"),
                (due.entries.len(), "entries_to_expire"),
            ] {
                if count >= DUE_COUNTED_MAX {
                    notes.push(format!("{what}: {DUE_COUNTED_MAX} or more, they are counted so far only"));
                }
            }
        } else {
            notes.push(format!(
                "sums are left out: they have changes that are not durable after {SUMS_TIME:?}"
            ));
        }
        let catalogue = StatusPart { part: "catalogue".to_owned(), metrics, notes };
        let store = self.store.status().await?;
        let mut metrics = named([("revision", store.revision.0), ("entries", store.entries)]);
        metrics.extend(store.named());
        let mut notes = vec![format!("the store is of kind {}", store.kind)];
        notes.extend(store.warnings);
        let store = StatusPart { part: "store".to_owned(), metrics, notes };
        Ok(Answer::Status(vec![catalogue, store, self.clock_part()]))
    }
}

/// Permits to see the requests of the server, which has them: a catalogue by itself has none.
pub(crate) fn requests_seen(caller: &Caller, what: &str) -> Result<Answer> {
    caller.check_operator(what)?;
    Ok(Answer::Requests(Vec::new()))
}

/// Permits to see where the time of the server went, which the server knows.
pub(crate) fn activity_seen(
    caller: &Caller,
    (from, to): (Option<TimeMs>, Option<TimeMs>),
    parts: u32,
) -> Result<Answer> {
    caller.check_operator("reading the activity of the server")?;
    if parts == 0 || parts > ACTIVITY_PARTS_MAX {
        return Err(Error::invalid(format!("{parts} parts: give 1 to {ACTIVITY_PARTS_MAX}")));
    }
    if let (Some(from), Some(to)) = (from, to)
        && from > to
    {
        return Err(Error::invalid(format!("the period ends at {to}, before it begins, at {from}")));
    }
    Ok(Answer::Activity(Vec::new()))
}

/// Permits to cancel a request of the server. Without a server there is none: it answers instead.
pub(crate) fn request_cancelled(caller: &Caller, id: u64) -> Result<Answer> {
    caller.check_operator("cancelling a request")?;
    Err(Error::not_found(format!("request {id}: it is not in progress on this server")))
}

/// Permits to see the throttles of the server, which the server knows.
pub(crate) fn throttles_seen(caller: &Caller) -> Result<Answer> {
    caller.check_operator("listing the throttles of the server")?;
    Ok(Answer::Throttles(Vec::new()))
}

/// Permits to see the feeds of the server, which the server knows.
pub(crate) fn feeds_seen(caller: &Caller) -> Result<Answer> {
    caller.check_operator("listing the feeds of the server")?;
    Ok(Answer::Feeds(Vec::new()))
}

impl Catalogue {
    /// Permits to make or control a feed, which the server then does. A feed writes on the server's
    /// machine, or sends everybody's changes elsewhere.
    pub(crate) fn feed_changed(&self, caller: &Caller) -> Result<Answer> {
        caller.check_admin("changing the feeds of the server")?;
        Ok(Answer::Done { revision: self.store.seen_revision() })
    }

    /// Permits to set a throttle of the server, which the server then does.
    pub(crate) fn throttle_set(
        &self,
        caller: &Caller,
        owner: Option<&Owner>,
        items_per_second: Option<u32>,
    ) -> Result<Answer> {
        caller.check_operator("throttling users")?;
        match (owner, items_per_second) {
            (_, Some(0)) => {
                return Err(Error::invalid("0 items a second: give at least 1, or drain the server"));
            }
            (Some(owner), Some(_)) => drop(self.account_of(owner)?),
            // A throttle of an account that is gone can be ended.
            _ => {}
        }
        Ok(Answer::Done { revision: self.store.seen_revision() })
    }

    /// Permits to drain the server, which the server then does.
    pub(crate) fn drained(&self, caller: &Caller) -> Result<Answer> {
        caller.check_operator("draining the server")?;
        Ok(Answer::Done { revision: self.store.seen_revision() })
    }
}

fn named<const N: usize>(metrics: [(&str, u64); N]) -> Vec<(String, u64)> {
    metrics.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A running check. It reads a catalogue in use. So it reads each suspect item again before it
/// reports a fault: the item may have been corrected or removed meanwhile.
struct Check<'a> {
    catalogue: &'a Catalogue,
    names: Arc<Names>,
    /// Archive members seen; `lost` counts those without an archive.
    members: u64,
    lost: u64,
}

impl Check<'_> {
    async fn user(&self, id: UserId) -> Result<bool> {
        Ok(self.names.users.contains_key(&id) || self.is_recorded(RecordKey::User(id)).await?)
    }

    async fn group(&self, id: GroupId) -> Result<bool> {
        Ok(self.names.groups.contains_key(&id) || self.is_recorded(RecordKey::Group(id)).await?)
    }

    async fn se(&self, number: SeNumber) -> Result<bool> {
        Ok(self.names.ses.contains_key(&number) || self.is_recorded(RecordKey::Se(number)).await?)
    }

    /// True if the record exists now; it may be newer than the check.
    async fn is_recorded(&self, key: RecordKey) -> Result<bool> {
        Ok(self.catalogue.store.record(key).await?.is_some())
    }

    /// True if the record is still the same.
    async fn is_unchanged(&self, record: &Record) -> Result<bool> {
        Ok(self.catalogue.store.record(record.key()).await?.is_some_and(|(now, _)| now == *record))
    }

    /// True if the condition still holds for the upload reservation.
    async fn is_reserved(
        &self,
        reservation: &Reservation,
        so: impl Fn(&Reservation) -> bool,
    ) -> Result<bool> {
        Ok(self.catalogue.store.reservation(reservation.guid).await?.is_some_and(|now| so(&now)))
    }

    /// True if the condition still holds for the entry, wherever it is.
    async fn is_entry(&self, entry: &Entry, so: impl Fn(&Entry) -> bool) -> Result<bool> {
        let now = self.catalogue.store.locate(&[entry.id()]).await?.pop().flatten();
        Ok(now.is_some_and(|now| so(&now.entry)))
    }

    /// True if both users have the subject at one time.
    async fn have_both(&self, subject: &str, users: [UserId; 2]) -> Result<bool> {
        // Read the first user twice, to prove that it did not change while the second was read.
        let mut revisions = [None; 3];
        for (revision, user) in revisions.iter_mut().zip([users[0], users[1], users[0]]) {
            if let Some((Record::User(user), since)) =
                self.catalogue.store.record(RecordKey::User(user)).await?
                && user.subjects.iter().any(|one| one == subject)
            {
                *revision = Some(since);
            }
        }
        Ok(revisions[0].is_some() && revisions[1].is_some() && revisions[0] == revisions[2])
    }

    /// Checks that records refer to existing records.
    async fn records(&self, audit: &mut Audit) -> Result<()> {
        for kind in RecordKind::ALL {
            let mut checked = 0;
            let mut after = None;
            let mut subjects: HashMap<String, UserId> = HashMap::new();
            loop {
                let page = self.catalogue.store.records(kind, after, PAGE_ITEMS_MAX).await?;
                after = page.items.last().map(|item| item.key);
                checked += page.items.len() as u64;
                for item in &page.items {
                    self.record(audit, &item.record, &mut subjects).await?;
                }
                if !page.more || after.is_none() {
                    break;
                }
            }
            audit.checked.push((format!("records: {}", kind.name()), checked));
        }
        Ok(())
    }

    async fn record(
        &self,
        audit: &mut Audit,
        record: &Record,
        subjects: &mut HashMap<String, UserId>,
    ) -> Result<()> {
        match record {
            Record::User(user) => {
                for group in user.groups.iter().chain([&user.group]) {
                    if !self.group(*group).await? && self.is_unchanged(record).await? {
                        audit.find("user's group", &user.name, format!("the group {} is not there", group.0));
                    }
                }
                for subject in &user.subjects {
                    if let Some(other) = subjects.insert(subject.clone(), user.id)
                        && self.have_both(subject, [other, user.id]).await?
                    {
                        audit.find(
                            "subject",
                            subject,
                            format!("the users {} and {} have it", other.0, user.id.0),
                        );
                    }
                }
            }
            Record::Se(se) => {
                if let Err(error) = se.check() {
                    audit.find("storage element", &se.name, error);
                }
            }
            Record::Quota(quota) => {
                let (known, whose) = match quota.of {
                    QuotaOf::User(id) => (self.user(id).await?, format!("user {}", id.0)),
                    QuotaOf::Group(id) => (self.group(id).await?, format!("group {}", id.0)),
                };
                if !known && self.is_unchanged(record).await? {
                    audit.find("quota", whose, "is not there");
                }
            }
            Record::Token(token) => {
                if !self.user(token.user).await? && self.is_unchanged(record).await? {
                    audit.find("token", format!("{:016x}", token.id.0), "its user is not there");
                }
            }
            Record::Group(_) => {}
        }
        Ok(())
    }

    /// Checks that upload reservations refer to existing accounts and storage elements.
    async fn reservations(&self, audit: &mut Audit) -> Result<()> {
        let now = self.catalogue.clock.trusted();
        let (mut checked, mut expired) = (0, 0);
        let mut after = None;
        loop {
            let page = self.catalogue.store.reservations(after, PAGE_ITEMS_MAX).await?;
            after = page.items.last().map(|reservation| reservation.guid);
            for reservation in &page.items {
                checked += 1;
                expired += u64::from(reservation.expires <= now);
                self.reservation(audit, reservation).await?;
            }
            if !page.more || after.is_none() {
                break;
            }
        }
        audit.checked.push(("reservations".to_owned(), checked));
        audit.checked.push(("reservations expired and not released yet".to_owned(), expired));
        Ok(())
    }

    async fn reservation(&self, audit: &mut Audit, reservation: &Reservation) -> Result<()> {
        let (owner, group) = (reservation.owner, reservation.group);
        if !(self.user(owner).await? && self.group(group).await?)
            && self.is_reserved(reservation, |now| (now.owner, now.group) == (owner, group)).await?
        {
            audit.find("reservation", reservation.guid, "its owner or group is not there");
        }
        for pending in &reservation.pending {
            let on_it = |now: &Reservation| now.pending.iter().any(|other| other.se == pending.se);
            if !self.se(pending.se).await? && self.is_reserved(reservation, on_it).await? {
                audit.find(
                    "reservation",
                    reservation.guid,
                    format!("the storage element {} is not there", pending.se.0),
                );
            }
        }
        Ok(())
    }

    /// Checks that no file in use waits for deletion.
    async fn deletions(&self, audit: &mut Audit) -> Result<()> {
        let names = self.names.clone();
        let mut checked = 0;
        for se in names.ses.values() {
            let mut after = None;
            loop {
                let page = self.catalogue.store.deletions(se.number, after, PAGE_ITEMS_MAX).await?;
                after = page.items.last().map(|deletion| deletion.id);
                checked += page.items.len() as u64;
                let in_use = self.catalogue.deletions_in_use(se, &page.items).await?;
                for (deletion, _) in page.items.iter().zip(in_use).filter(|(_, in_use)| *in_use) {
                    if !self.is_queued_in_use(deletion, se.number).await? {
                        continue;
                    }
                    let detail = format!(
                        "a copy in use waits for deletion on {}: it is not given out; acknowledge {}.{} to end it",
                        se.name, deletion.id.revision.0, deletion.id.index
                    );
                    audit.find("deletion", deletion.guid, detail);
                }
                tokio::task::yield_now().await;
                if !page.more || after.is_none() {
                    break;
                }
            }
        }
        audit.checked.push(("deletions".to_owned(), checked));
        Ok(())
    }

    /// True if the copy is in use and, read after that, still queued. A copy that is wanted again
    /// leaves the queue and never returns. So both were true at one time.
    async fn is_queued_in_use(&self, deletion: &Deletion, se: SeNumber) -> Result<bool> {
        let store = &self.catalogue.store;
        let Some((Record::Se(now), _)) = store.record(RecordKey::Se(se)).await? else { return Ok(false) };
        if self.catalogue.deletions_in_use(&now, std::slice::from_ref(deletion)).await? != [true] {
            return Ok(false);
        }
        let queue = store.deletions(se, before(deletion.id), 1).await?.items;
        Ok(queue.first().is_some_and(|first| first.id == deletion.id))
    }

    /// Checks that entries, in the tree and in the trash, refer to existing accounts and storage
    /// elements.
    async fn entries(&mut self, audit: &mut Audit) -> Result<()> {
        let mut checked = self.below(audit, DirId::ROOT).await?;
        let mut after = None;
        loop {
            let page = self.catalogue.store.trash(after, PAGE_ITEMS_MAX).await?;
            after = page.items.last().map(|item| item.id);
            for item in &page.items {
                checked += 1;
                self.entry(audit, &item.entry).await?;
                self.archives(std::slice::from_ref(&item.entry)).await?;
                if let Some(directory) = item.entry.directory() {
                    checked += self.below(audit, directory).await?;
                }
            }
            if !page.more || after.is_none() {
                break;
            }
        }
        audit.checked.push(("entries: what they refer to".to_owned(), checked));
        audit.checked.push(("archive members".to_owned(), self.members));
        // A user may remove an archive before its members, so this is no fault of the catalogue.
        audit.checked.push(("archive members whose archive is gone".to_owned(), self.lost));
        Ok(())
    }

    /// Checks all entries below a directory, depth first, several directories at a time, because
    /// each listing may be a round trip to a cluster. It holds one position for each directory on
    /// the way, and the directories of one page.
    async fn below(&mut self, audit: &mut Audit, directory: DirId) -> Result<u64> {
        let store = Arc::clone(&self.catalogue.store);
        let list = |directory: DirId, after: Option<Name>| {
            let store = Arc::clone(&store);
            async move { (directory, store.list(directory, after.as_ref(), PAGE_ITEMS_MAX).await) }.boxed()
        };
        let mut checked = 0;
        let mut waiting = vec![(directory, None)];
        while !waiting.is_empty() {
            let now = waiting.split_off(waiting.len().saturating_sub(LISTINGS_AT_ONCE));
            // Finish all listings before the next request: an abandoned listing may hold a resource
            // that others wait for.
            let pages = join_all(now.into_iter().map(|(directory, after)| list(directory, after))).await;
            for (directory, page) in pages {
                let Some(page) = page? else { continue };
                for entry in &page.items {
                    checked += 1;
                    self.entry(audit, entry).await?;
                }
                self.archives(&page.items).await?;
                if let (true, Some(last)) = (page.more, page.items.last()) {
                    waiting.push((directory, Some(last.at.name.clone())));
                }
                // Last in, first out: the directories of a page come before the next page.
                waiting.extend(page.items.iter().filter_map(Entry::directory).map(|below| (below, None)));
            }
            tokio::task::yield_now().await;
        }
        Ok(checked)
    }

    async fn entry(&self, audit: &mut Audit, entry: &Entry) -> Result<()> {
        if !self.user(entry.owner).await? && self.is_entry(entry, |now| now.owner == entry.owner).await? {
            audit.find("owner", show(entry), format!("the user {} is not there", entry.owner.0));
        }
        if !self.group(entry.group).await? && self.is_entry(entry, |now| now.group == entry.group).await? {
            audit.find("group", show(entry), format!("the group {} is not there", entry.group.0));
        }
        for replica in entry.file().into_iter().flat_map(|file| &file.replicas) {
            let on_it = |now: &Entry| now.file().is_some_and(|file| file.replica(replica.se).is_some());
            if !replica.is_member() && !self.se(replica.se).await? && self.is_entry(entry, on_it).await? {
                let detail = format!("no storage element has the number {}", replica.se.0);
                audit.find("replica", show(entry), detail);
            }
        }
        Ok(())
    }

    /// Counts archive members, and those whose archive is gone.
    async fn archives(&mut self, entries: &[Entry]) -> Result<()> {
        let archives: Vec<EntryId> = entries
            .iter()
            .filter_map(Entry::file)
            .flat_map(|file| &file.replicas)
            .filter_map(|replica| match &replica.location {
                Location::Member { archive, .. } => Some(EntryId::Object(*archive)),
                _ => None,
            })
            .collect();
        if archives.is_empty() {
            return Ok(());
        }
        self.members += archives.len() as u64;
        let lost = &mut self.lost;
        self.catalogue.locate_each(&archives, |_, found| *lost += u64::from(found.is_none())).await
    }
}

/// Returns the id before this one in any queue; none if it is the first possible.
fn before(id: DeletionId) -> Option<DeletionId> {
    match (id.revision.0, id.index.checked_sub(1)) {
        (_, Some(index)) => Some(DeletionId { index, ..id }),
        (revision, None) => {
            let revision = Revision(revision.checked_sub(1)?);
            Some(DeletionId { revision, index: u32::MAX })
        }
    }
}

fn show(entry: &Entry) -> String {
    format!("{:?} ({} in directory {})", entry.id(), entry.at.name, entry.at.parent.0)
}
