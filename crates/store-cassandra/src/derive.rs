//! Derives accounts, indices and totals from changed rows. It uses only the rows before and after,
//! whatever the mutation was. So one place decides what counts where.

use std::collections::BTreeMap;
use std::sync::Arc;

use exacat_model::{Deletion, DirId, Entry, EntryId, Name, Reservation, SeNumber, Usage};
use exacat_store::UsageOf;

use crate::layout::level_for;
use crate::rows::{Counted, Key, Row, Totals, usage_of_deletion};
use crate::working::{Rows, Working, counted, directories_up, totals};

/// One side of a change of an entry: before or after.
struct Side {
    entry: Entry,
    /// Directories above it; empty for an item of the trash.
    above: Vec<DirId>,
    in_trash: bool,
}

/// A value before and after.
struct Pair<T> {
    before: Option<T>,
    after: Option<T>,
}

impl<T> Default for Pair<T> {
    fn default() -> Self {
        Pair { before: None, after: None }
    }
}

/// Adds to `working` the rows that follow from those it changed.
pub(crate) fn derive(working: &mut Working<'_>) {
    let changed: Vec<(Key, Option<Arc<Row>>)> =
        working.own.iter().map(|(key, row)| (key.clone(), row.clone())).collect();
    let mut entries: BTreeMap<EntryId, Pair<Side>> = BTreeMap::new();
    let mut deletions: Vec<(SeNumber, Pair<Deletion>)> = Vec::new();
    let mut reservations: Vec<Pair<Reservation>> = Vec::new();
    let (mut trash_before, mut trash_after) = (0u64, 0u64);
    for (key, after) in changed {
        match &key {
            Key::Entry(_) | Key::Trash(_) => {
                let before = working.view.get(&key);
                trash_before += u64::from(matches!(before.as_deref(), Some(Row::Trash(_))));
                trash_after += u64::from(matches!(after.as_deref(), Some(Row::Trash(_))));
                if let Some(side) = before.as_deref().and_then(|row| side(&working.view, row)) {
                    let id = side.entry.id();
                    entries.entry(id).or_default().before = Some(side);
                }
                if let Some(side) = after.as_deref().and_then(|row| side(working, row)) {
                    let id = side.entry.id();
                    entries.entry(id).or_default().after = Some(side);
                }
            }
            Key::Deletion { se, .. } => {
                let of = |row: Option<Arc<Row>>| match row.as_deref() {
                    Some(Row::Deletion(deletion)) => Some(deletion.clone()),
                    _ => None,
                };
                deletions.push((*se, Pair { before: of(working.view.get(&key)), after: of(after) }));
            }
            Key::Reservation(_) => {
                let of = |row: Option<Arc<Row>>| match row.as_deref() {
                    Some(Row::Reservation(reservation)) => Some(reservation.clone()),
                    _ => None,
                };
                reservations.push(Pair { before: of(working.view.get(&key)), after: of(after) });
            }
            _ => {}
        }
    }
    let mut sums = Sums::default();
    for (id, pair) in &entries {
        count_entry(working, &mut sums, *id, pair);
        index_entry(working, *id, pair);
        if let (EntryId::Directory(directory), None) = (id, &pair.after)
            && working.row(&Key::Layout(*directory)).is_some()
        {
            working.put(Key::Layout(*directory), None);
        }
    }
    for (se, pair) in &deletions {
        for (deletion, sign) in both(pair) {
            sums.account(UsageOf::Se(*se), |sum| &mut sum.deletions, &usage_of_deletion(deletion), sign);
            sums.totals.deletions += sign;
        }
    }
    for pair in &reservations {
        for (reservation, sign) in both(pair) {
            count_reservation(&mut sums, reservation, sign);
        }
        index_reservation(working, pair);
    }
    sums.totals.trash += trash_after as i64 - trash_before as i64;
    sums.put(working);
}

fn both<T>(pair: &Pair<T>) -> impl Iterator<Item = (&T, i64)> {
    pair.before.iter().map(|one| (one, -1)).chain(pair.after.iter().map(|one| (one, 1)))
}

fn side(rows: &dyn Rows, row: &Row) -> Option<Side> {
    match row {
        Row::Entry(entry) if entry.directory() == Some(DirId::ROOT) => {
            Some(Side { entry: entry.clone(), above: Vec::new(), in_trash: false })
        }
        Row::Entry(entry) => {
            let above = directories_up(rows, entry.at.parent);
            Some(Side { entry: entry.clone(), above, in_trash: false })
        }
        Row::Trash(item) => Some(Side { entry: item.entry.clone(), above: Vec::new(), in_trash: true }),
        _ => None,
    }
}

fn count_entry(working: &Working<'_>, sums: &mut Sums, id: EntryId, pair: &Pair<Side>) {
    for (side, sign) in both(pair) {
        let own = Usage::of(&side.entry);
        sums.account(UsageOf::User(side.entry.owner), |sum| &mut sum.usage, &own, sign);
        sums.account(UsageOf::Group(side.entry.group), |sum| &mut sum.usage, &own, sign);
        for replica in side.entry.file().into_iter().flat_map(|file| &file.replicas) {
            if replica.se != SeNumber::NONE {
                let usage = Usage::of_replica(replica, side.entry.size());
                sums.account(UsageOf::Se(replica.se), |sum| &mut sum.usage, &usage, sign);
                sums.change(UsageOf::Se(replica.se)).replicas += sign;
            }
        }
        if id != EntryId::Directory(DirId::ROOT) {
            sums.totals.entries += sign;
        }
    }
    let parent = |side: &Option<Side>| {
        let side = side.as_ref().filter(|side| !side.in_trash && side.entry.at.name != Name::root());
        side.map(|side| side.entry.at.parent)
    };
    let (left, joined) = (parent(&pair.before), parent(&pair.after));
    if left != joined {
        for (directory, sign) in [(left, -1), (joined, 1)] {
            if let Some(directory) = directory {
                sums.change(UsageOf::Directory(directory)).children += sign;
            }
        }
    }
    // A directory brings everything below it. Where neither ancestors nor usage change, both sides
    // cancel out: then skip reading the counters.
    let above = |side: &Option<Side>| side.as_ref().map(|side| side.above.clone()).unwrap_or_default();
    let usage = |side: &Option<Side>| side.as_ref().map(|side| Usage::of(&side.entry));
    if above(&pair.before) == above(&pair.after) && usage(&pair.before) == usage(&pair.after) {
        return;
    }
    let below = match id {
        EntryId::Directory(directory) => counted(&working.view, UsageOf::Directory(directory)).usage,
        EntryId::Object(_) => Usage::default(),
    };
    for (side, sign) in both(pair) {
        let mut whole = Usage::of(&side.entry);
        whole.add(&below);
        for directory in &side.above {
            sums.account(UsageOf::Directory(*directory), |sum| &mut sum.usage, &whole, sign);
        }
    }
}

fn index_entry(working: &mut Working<'_>, id: EntryId, pair: &Pair<Side>) {
    let ses = |side: &Option<Side>| -> Vec<Key> {
        let file = side.as_ref().and_then(|side| side.entry.file());
        let replicas =
            file.into_iter().flat_map(|file| file.replicas.iter().map(move |one| (one.se, file.guid)));
        replicas.filter(|(se, _)| *se != SeNumber::NONE).map(|(se, guid)| Key::on_se(se, guid)).collect()
    };
    let due = |side: &Option<Side>| -> Vec<Key> {
        let side = side.as_ref().filter(|side| !side.in_trash);
        side.and_then(|side| side.entry.expires).map(|expires| Key::due(expires, id)).into_iter().collect()
    };
    replace(working, ses(&pair.before), ses(&pair.after));
    replace(working, due(&pair.before), due(&pair.after));
}

fn index_reservation(working: &mut Working<'_>, pair: &Pair<Reservation>) {
    let due = |reservation: &Option<Reservation>| -> Vec<Key> {
        reservation.as_ref().map(Key::reservation_due).into_iter().collect()
    };
    replace(working, due(&pair.before), due(&pair.after));
}

fn replace(working: &mut Working<'_>, before: Vec<Key>, after: Vec<Key>) {
    for key in before.iter().filter(|key| !after.contains(key)) {
        working.put(key.clone(), None);
    }
    for key in after.into_iter().filter(|key| !before.contains(key)) {
        working.put(key, Some(Row::There));
    }
}

fn count_reservation(sums: &mut Sums, reservation: &Reservation, sign: i64) {
    let reserved = reservation.reserved();
    sums.account(UsageOf::User(reservation.owner), |sum| &mut sum.reserved, &reserved, sign);
    sums.account(UsageOf::Group(reservation.group), |sum| &mut sum.reserved, &reserved, sign);
    sums.change(UsageOf::User(reservation.owner)).reservations += sign;
    for pending in &reservation.pending {
        sums.change(UsageOf::Se(pending.se)).reservations += sign;
    }
    sums.totals.reservations += sign;
}

/// Changes of one account: additions and subtractions.
#[derive(Default)]
struct Difference {
    usage: [Usage; 2],
    reserved: [Usage; 2],
    deletions: [Usage; 2],
    reservations: i64,
    replicas: i64,
    children: i64,
}

#[derive(Default)]
struct TotalsDifference {
    entries: i64,
    trash: i64,
    reservations: i64,
    deletions: i64,
}

/// Changes of accounts and totals.
#[derive(Default)]
struct Sums {
    accounts: BTreeMap<UsageOf, Difference>,
    totals: TotalsDifference,
}

impl Sums {
    fn change(&mut self, of: UsageOf) -> &mut Difference {
        self.accounts.entry(of).or_default()
    }

    fn account(
        &mut self,
        of: UsageOf,
        which: fn(&mut Difference) -> &mut [Usage; 2],
        usage: &Usage,
        sign: i64,
    ) {
        which(self.change(of))[usize::from(sign < 0)].add(usage);
    }

    fn put(self, working: &mut Working<'_>) {
        for (of, difference) in self.accounts {
            let before = counted(working, of);
            let after = (|| {
                Some(Counted {
                    usage: moved(&before.usage, &difference.usage)?,
                    reserved: moved(&before.reserved, &difference.reserved)?,
                    deletions: moved(&before.deletions, &difference.deletions)?,
                    reservations: before.reservations.checked_add_signed(difference.reservations)?,
                    replicas: before.replicas.checked_add_signed(difference.replicas)?,
                    children: before.children.checked_add_signed(difference.children)?,
                })
            })();
            match after {
                Some(after) if after == before => {}
                Some(after) => {
                    if let UsageOf::Directory(directory) = of {
                        spread(working, directory, after.children);
                    }
                    let row = (after != Counted::default()).then_some(Row::Account(after));
                    working.put(Key::Account(of), row);
                }
                None => working.defect = Some(format!("the counter of {of:?} would go below zero")),
            }
        }
        let before = totals(working);
        let by = &self.totals;
        let after = (|| {
            Some(Totals {
                entries: before.entries.checked_add_signed(by.entries)?,
                trash: before.trash.checked_add_signed(by.trash)?,
                reservations: before.reservations.checked_add_signed(by.reservations)?,
                deletions: before.deletions.checked_add_signed(by.deletions)?,
                ..before
            })
        })();
        match after {
            Some(after) => working.put(Key::Totals, Some(Row::Totals(after))),
            None => working.defect = Some("the totals would go below zero".to_owned()),
        }
    }
}

/// Gives a directory more partitions if its number of children needs them.
fn spread(working: &mut Working<'_>, directory: DirId, children: u64) {
    let now = match working.row(&Key::Layout(directory)).as_deref() {
        Some(Row::Layout(level)) => *level,
        _ => 0,
    };
    let level = level_for(children, now, working.view.cache.bounds().partition_rows);
    if level != now {
        working.put(Key::Layout(directory), Some(Row::Layout(level)));
    }
}

fn moved(before: &Usage, [comes, goes]: &[Usage; 2]) -> Option<Usage> {
    let mut sum = *before;
    sum.add(comes);
    sum.minus(goes)
}
