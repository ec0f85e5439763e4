//! Reads of the memory store, each a scan of its one state.

use std::ops::Bound;

use exacat_model::{
    At, Deletion, DeletionId, DirId, Entry, EntryId, Error, Guid, Lfn, Name, RecordKey, RecordKind,
    Reservation, Result, Revision, SeNumber, TimeMs, TrashId, TrashItem, Usage,
};
use exacat_store::rules::Trashed;
use exacat_store::{
    Account, ChangePage, Due, Located, Page, ReadBytes, RecordEntry, ReplicasPage, Resolution, StoreStatus,
    StoredReplica, Trace, Traces, UsageOf, within_batch,
};

use super::rules;
use super::state::State;

/// Returns the range of keys after `key`.
fn after<K>(key: Option<K>) -> (Bound<K>, Bound<K>) {
    (key.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
}

pub(super) fn resolve(state: &State, paths: &[Lfn]) -> Result<Vec<Resolution>> {
    within_batch(paths.len())?;
    let mut bytes = ReadBytes::default();
    let resolve = |path| {
        let resolution = rules::resolve(state, path);
        bytes.add(resolution.end.entry()).map(|()| resolution)
    };
    paths.iter().map(resolve).collect()
}

pub(super) fn locate(state: &State, ids: &[EntryId]) -> Result<Vec<Option<Located>>> {
    within_batch(ids.len())?;
    let mut bytes = ReadBytes::default();
    let locate = |id: &EntryId| {
        let located = rules::locate(state, *id);
        bytes.add(located.as_ref().map(|located| &located.entry)).map(|()| located)
    };
    ids.iter().map(locate).collect()
}

pub(super) fn list(
    state: &State,
    directory: DirId,
    after_name: Option<&Name>,
    limit: usize,
) -> Option<Page<Entry>> {
    state.find(EntryId::Directory(directory))?;
    let later = state.children(directory).filter(|entry| after_name.is_none_or(|name| entry.at.name > *name));
    Some(Page::of(later.cloned(), limit))
}

pub(super) fn usage(state: &State, of: &[UsageOf]) -> Result<Vec<Account>> {
    within_batch(of.len())?;
    Ok(of.iter().map(|of| usage_one(state, *of)).collect())
}

fn usage_one(state: &State, of: UsageOf) -> Account {
    let mut account = Account::default();
    match of {
        UsageOf::Directory(directory) => account.usage = state.usage_below(directory),
        UsageOf::User(user) => {
            account.usage = state.usage_where(|entry| entry.owner == user);
            account.reserved = state.reserved_where(|reservation| reservation.owner == user);
        }
        UsageOf::Group(group) => {
            account.usage = state.usage_where(|entry| entry.group == group);
            account.reserved = state.reserved_where(|reservation| reservation.group == group);
        }
        UsageOf::Se(se) => {
            for file in state.all().filter_map(Entry::file) {
                for replica in file.replicas.iter().filter(|replica| replica.se == se) {
                    account.usage.add(&Usage::of_replica(replica, file.size));
                }
            }
        }
        UsageOf::Deletions(se) => {
            for ((_, _), deletion) in state.deletions.iter().filter(|((of, _), _)| *of == se) {
                let size = u128::from(deletion.size.unwrap_or(0));
                account.usage.add(&Usage {
                    files: 1,
                    replicas: 1,
                    bytes: size,
                    replica_bytes: size,
                    ..Usage::default()
                });
            }
        }
    }
    account
}

/// Orders by GUID; the cursor is the last one's GUID.
pub(super) fn replicas_on(state: &State, se: SeNumber, cursor: &[u8], limit: usize) -> Result<ReplicasPage> {
    let after_guid = match cursor {
        [] => None,
        bytes => {
            Some(Guid(bytes.try_into().map_err(|_| Error::invalid("not a cursor of a listing of replicas"))?))
        }
    };
    let there = state.all().filter(|_| se != SeNumber::NONE);
    let mut replicas: Vec<_> = there.filter_map(|entry| StoredReplica::of(entry.clone(), se)).collect();
    replicas.sort_by_key(|replica| replica.guid);
    let later = replicas.into_iter().filter(|replica| Some(replica.guid) > after_guid);
    let page = Page::of(later, limit);
    let next = page.items.last().map_or(cursor.to_vec(), |replica| replica.guid.0.to_vec());
    Ok((page, next))
}

pub(super) fn members(
    state: &State,
    collection: Guid,
    after_guid: Option<Guid>,
    limit: usize,
) -> Option<Page<Guid>> {
    Some(Page::of(state.members.get(&collection)?.range(after(after_guid)).copied(), limit))
}

fn item(state: &State, id: TrashId, trashed: &Trashed) -> TrashItem {
    let mut usage = Usage::of(&trashed.entry);
    if let Some(directory) = trashed.entry.directory() {
        usage.add(&state.usage_below(directory));
    }
    TrashItem {
        id,
        lfn: trashed.lfn.clone(),
        entry: trashed.entry.clone(),
        removed_by: trashed.removed_by,
        removed: trashed.removed,
        usage,
    }
}

pub(super) fn trash(state: &State, after_id: Option<TrashId>, limit: usize) -> Page<TrashItem> {
    Page::of(state.trash.range(after(after_id)).map(|(id, trashed)| item(state, *id, trashed)), limit)
}

pub(super) fn trash_item(state: &State, id: TrashId) -> Option<TrashItem> {
    state.trash.get(&id).map(|trashed| item(state, id, trashed))
}

pub(super) fn deletions(
    state: &State,
    se: SeNumber,
    after_id: Option<DeletionId>,
    limit: usize,
) -> Page<Deletion> {
    let queue = state.deletions.iter().filter(|((of, id), _)| *of == se && Some(*id) > after_id);
    Page::of(queue.map(|(_, deletion)| deletion.clone()), limit)
}

pub(super) fn reservations(state: &State, after_guid: Option<Guid>, limit: usize) -> Page<Reservation> {
    Page::of(state.reservations.range(after(after_guid)).map(|(_, reservation)| reservation.clone()), limit)
}

pub(super) fn due(state: &State, now: TimeMs, limit: usize) -> Due {
    let mut reservations: Vec<&Reservation> =
        state.reservations.values().filter(|reservation| reservation.expires <= now).collect();
    reservations.sort_by_key(|reservation| (reservation.expires, reservation.guid));
    let expired = |entry: &&Entry| entry.expires.is_some_and(|expires| expires <= now);
    let mut entries: Vec<&Entry> = state
        .placed()
        .chain([&state.root])
        .filter(expired)
        .filter(|entry| state.alive(entry.at.parent))
        .collect();
    entries.sort_by_key(|entry| (entry.expires, entry.id()));
    Due {
        reservations: Page::of(reservations.into_iter().cloned(), limit).items,
        entries: Page::of(entries.into_iter().cloned(), limit).items,
    }
}

pub(super) fn records(
    state: &State,
    kind: RecordKind,
    after_key: Option<RecordKey>,
    limit: usize,
) -> Page<RecordEntry> {
    let later = state.records.range(after(after_key)).filter(|(key, _)| key.kind() == kind);
    Page::of(
        later.map(|(key, (record, revision))| RecordEntry {
            key: *key,
            record: record.clone(),
            revision: *revision,
        }),
        limit,
    )
}

pub(super) fn changes(state: &State, after_revision: Revision, limit: usize) -> ChangePage {
    let later = state.changes.iter().filter(|change| change.revision > after_revision);
    let page = Page::of(later.cloned(), limit);
    let up_to = page.items.last().map_or(state.revision.min(after_revision), |change| change.revision);
    ChangePage { changes: page.items, up_to, oldest: Revision(1) }
}

pub(super) fn traces(state: &State, of: &[Trace]) -> Result<Traces> {
    within_batch(of.len())?;
    let leads_to = |trace: &Trace| {
        let last =
            state.changes.iter().rev().find(|change| Trace::of(&change.effect).any(|left| left == *trace));
        last.map(|change| change.revision)
    };
    Ok(Traces { found: of.iter().map(leads_to).collect(), since: Revision(0) })
}

exacat_store::metrics! {
    TRASH_ITEMS Gauge Count "exacat_store_trash_items" [] "trash_items" "Items in the trash";
    RESERVATIONS Gauge Count "exacat_store_reservations" [] "reservations" "Upload reservations";
    DELETIONS Gauge Count "exacat_store_deletions" [] "deletions" "Replicas in the deletion queues";
    RECORDS Gauge Count "exacat_store_records" [] "records" "Accounts, storage elements, tokens and other records";
}

pub(super) fn status(state: &State) -> StoreStatus {
    let count = |number: usize| number as u64;
    StoreStatus {
        kind: "memory".to_owned(),
        revision: state.revision,
        entries: count(state.all().count()),
        metrics: vec![
            TRASH_ITEMS.is(count(state.trash.len())),
            RESERVATIONS.is(count(state.reservations.len())),
            DELETIONS.is(count(state.deletions.len())),
            RECORDS.is(count(state.records.len())),
        ],
        warnings: Vec::new(),
    }
}

/// Formats the place of an entry for a finding.
pub(super) fn place_text(at: &At) -> String {
    format!("{} in directory {}", at.name, at.parent.0)
}
