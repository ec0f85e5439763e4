//! Clause R9: pages and reads of keys are bounded by the memory of what they return.

use exacat_model::limits::{PAGE_MEMORY_MAX, READ_MEMORY_MAX, TAG_TEXT_BYTES_MAX, TAGS_PER_ENTRY_MAX};
use exacat_model::{
    At, DirId, Edit, Entry, EntryId, ErrorKind, Guid, Location, Measured, Mutation, NewEntry, Pfn, Record,
    RecordKind, Reservation, Revision, SeNumber, Tag, TagKey, TagValue,
};
use exacat_store::{Page, TrailEnd};

use crate::clock::TestClock;
use crate::factory::StoreFactory;
use crate::scene::*;

/// Items requested of each page: more than there are.
const LIMIT: usize = 1000;
/// Large files: more than two pages of them.
const FILES: u16 = 20;

fn guid_of(number: u16) -> Guid {
    let mut bytes = [0x22; 16];
    bytes[..2].copy_from_slice(&number.to_be_bytes());
    Guid(bytes)
}

/// Returns as many tags as an entry may have, each as long as it may be: 1 MiB.
fn tags(fill: &str) -> Vec<Tag> {
    let tag = |number| Tag {
        key: TagKey::parse(&format!("k{number:03}")).expect("a key"),
        value: TagValue::Text(fill.repeat(TAG_TEXT_BYTES_MAX)),
    };
    (0..TAGS_PER_ENTRY_MAX).map(tag).collect()
}

/// Makes a PFN of nearly the greatest length.
fn long_pfn(number: u16) -> String {
    format!("root://host//{number:05}/{}", "p".repeat(4000))
}

fn large_file(at: At, number: u16) -> NewEntry {
    let expires = Some(TestClock::START.plus_ms(1000));
    NewEntry { tags: tags("v"), expires, ..new_file_with(at, guid_of(number), vec![replica(1)]) }
}

fn bytes<T: Measured>(items: &[T]) -> usize {
    items.iter().map(Measured::bytes).sum()
}

/// One listing, page by page.
#[derive(Default)]
struct Listing {
    seen: Vec<String>,
    pages: usize,
}

impl Listing {
    /// Checks a page that may have [`LIMIT`] items; true if another follows.
    fn take<T: Measured>(&mut self, page: &Page<T>, name: impl Fn(&T) -> String) -> bool {
        let before_last = page.items.split_last().map_or(0, |(_, before)| bytes(before));
        assert!(before_last < PAGE_MEMORY_MAX, "the page ends with the item that fills it");
        if page.more {
            assert!(bytes(&page.items) >= PAGE_MEMORY_MAX, "a page that is not full has all");
        }
        self.seen.extend(page.items.iter().map(name));
        self.pages += 1;
        page.more
    }

    /// Checks that the listing had each item once, on several pages.
    fn end(self, what: &str, count: usize) {
        assert!(self.pages > 1, "{what}: all on one page");
        self.end_anyhow(what, count);
    }

    /// Checks that the listing had each item once.
    fn end_anyhow(mut self, what: &str, count: usize) {
        assert_eq!(self.seen.len(), count, "{what}: {:?}", self.seen);
        self.seen.sort();
        self.seen.dedup();
        assert_eq!(self.seen.len(), count, "{what}: something came twice");
    }
}

fn name_of(entry: &Entry) -> String {
    entry.at.name.to_string()
}

/// Goal: every listing of large entries comes in pages of bounded memory, which lose and double
/// nothing.
pub async fn r9_pages_of_large_entries_end_early(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let directory = scene.directory(DirId::ROOT, "d").await;
    let place = |number: u16| at(directory, &format!("f{number:02}"));
    for numbers in (0..FILES).collect::<Vec<u16>>().chunks(4) {
        let made = numbers.iter().map(|number| create(large_file(place(*number), *number)));
        scene.apply(made.collect()).await;
    }
    let (store, count) = (scene.store(), usize::from(FILES));

    let (mut listing, mut after) = (Listing::default(), None);
    loop {
        let page = store.list(directory, after.as_ref(), LIMIT).await.expect("list").expect("there");
        after = page.items.last().map(|entry| entry.at.name.clone()).or(after);
        if !listing.take(&page, name_of) {
            break;
        }
    }
    listing.end("children", count);

    let (mut listing, mut cursor) = (Listing::default(), Vec::new());
    loop {
        let (page, next) = store.replicas_on(SeNumber(1), &cursor, LIMIT).await.expect("replicas on an SE");
        cursor = next;
        if !listing.take(&page, |replica| replica.guid.to_string()) {
            break;
        }
    }
    // A replica does not have what makes its entry large.
    listing.end_anyhow("replicas on an SE", count);

    let due = store.due(TestClock::START.plus_ms(2000), LIMIT).await.expect("due").entries;
    assert!(!due.is_empty() && due.len() < count, "{} of {count} are due at once", due.len());

    // A store may count the bytes of its log, a record at a time.
    let (mut after, mut pages, mut created) = (Revision(0), 0, 0);
    loop {
        let page = store.changes(after, LIMIT).await.expect("changes");
        if page.changes.is_empty() {
            break;
        }
        assert!(bytes(&page.changes) < 3 * PAGE_MEMORY_MAX);
        assert!(page.changes.iter().all(|change| change.revision > after));
        after = page.up_to;
        created +=
            page.changes.iter().filter(|change| bytes(std::slice::from_ref(*change)) > 1 << 20).count();
        pages += 1;
    }
    assert!(pages > 1 && created == count, "{created} of {count} on {pages} pages");

    for number in 0..FILES {
        scene.trash(place(number)).await;
    }
    let (mut listing, mut after) = (Listing::default(), None);
    loop {
        let page = store.trash(after, LIMIT).await.expect("trash");
        after = page.items.last().map(|item| item.id).or(after);
        if !listing.take(&page, |item| name_of(&item.entry)) {
            break;
        }
    }
    listing.end("trash", count);
}

/// Goal: the same for reservations, records and deletions, whose items are smaller.
pub async fn r9_pages_of_other_items_end_early(factory: &dyn StoreFactory) {
    const COUNT: u16 = 150;
    let scene = Scene::new(factory).await;
    let ses: Vec<u16> = (1..=16).collect();
    scene.apply(ses.iter().map(|number| set(se(*number, exacat_model::SeStatus::Online))).collect()).await;
    let reserved = |number: u16| {
        let mut reserved: Reservation = reservation(guid_of(number), &ses);
        for pending in &mut reserved.pending {
            pending.location = Location::Explicit(Pfn::parse(&long_pfn(number)).expect("a PFN"));
        }
        reserve(reserved)
    };
    let known = |number: u16| {
        let id = 100 + u32::from(number);
        let Record::User(mut user) = user(id, &format!("u{id}")) else { unreachable!() };
        user.group = exacat_model::GroupId(1);
        user.subjects = (0..64).map(|line| format!("{line:02}{}", "s".repeat(1000))).collect();
        set(Record::User(user))
    };
    for numbers in (0..COUNT).collect::<Vec<u16>>().chunks(50) {
        scene.apply(numbers.iter().map(|number| reserved(*number)).collect()).await;
        scene.apply(numbers.iter().map(|number| known(*number)).collect()).await;
    }
    scene.file(DirId::ROOT, "f", 1, &[]).await;
    const DELETIONS: u16 = 2200;
    for numbers in (0..DELETIONS).collect::<Vec<u16>>().chunks(200) {
        let edits = numbers.iter().flat_map(|number| {
            let drop = Edit::DropReplica { se: SeNumber(1), delete: true };
            [Edit::PutReplica(replica_at(1, &long_pfn(*number))), drop]
        });
        scene.applied(update(top("f"), edits.collect())).await;
    }
    let store = scene.store();

    let (mut listing, mut after) = (Listing::default(), None);
    loop {
        let page = store.reservations(after, LIMIT).await.expect("reservations");
        after = page.items.last().map(|one| one.guid).or(after);
        if !listing.take(&page, |one| one.guid.to_string()) {
            break;
        }
    }
    listing.end("reservations", COUNT.into());
    let due = store.due(TestClock::START.plus_ms(100_000), LIMIT).await.expect("due").reservations;
    assert!(!due.is_empty() && due.len() < COUNT.into(), "{} of {COUNT} are due at once", due.len());

    let (mut listing, mut after) = (Listing::default(), None);
    loop {
        let page = store.records(RecordKind::User, after, LIMIT).await.expect("records");
        after = page.items.last().map(|one| one.key).or(after);
        if !listing.take(&page, |one| format!("{:?}", one.key)) {
            break;
        }
    }
    // The users of the scene, and the admin.
    listing.end("records", usize::from(COUNT) + 3);

    let (mut listing, mut after) = (Listing::default(), None);
    loop {
        let page = store.deletions(SeNumber(1), after, 10_000).await.expect("deletions");
        after = page.items.last().map(|one| one.id).or(after);
        if !listing.take(&page, |one| format!("{:?}", one.id)) {
            break;
        }
    }
    listing.end("deletions", DELETIONS.into());
}

/// Goal: a trail of large changes comes in parts of bounded memory.
pub async fn r9_a_trail_of_large_changes_ends_early(factory: &dyn StoreFactory) {
    const CHANGES: usize = 6;
    let scene = Scene::new(factory).await;
    scene.applied(create(large_file(top("f"), 1))).await;
    let mut last = Revision(0);
    for change in 1..CHANGES {
        // Nearly all: a store may keep a change with both sets of tags, and have a bound of 3 MiB.
        let edits = tags(&change.to_string()).into_iter().skip(8).map(Edit::SetTag);
        last = scene.applied(update(top("f"), edits.collect())).await;
    }
    let (store, id) = (scene.store(), EntryId::Object(guid_of(1)));
    let (mut seen, mut parts) = (Vec::new(), 0);
    loop {
        let trail = store.trail(id, last, LIMIT).await.expect("trail");
        let revisions: Vec<Revision> = trail.changes.iter().map(|change| change.revision).collect();
        let before_last = trail.changes.split_last().map_or(0, |(_, before)| bytes(before));
        assert!(before_last < 2 * PAGE_MEMORY_MAX && !revisions.is_empty());
        seen.extend(revisions);
        parts += 1;
        match trail.end {
            TrailEnd::More(earlier) => last = earlier,
            end => break assert_eq!(end, TrailEnd::Beginning),
        }
    }
    assert!(parts > 1 && seen.len() == CHANGES, "{seen:?} in {parts} parts");
    assert!(seen.is_sorted_by(|one, next| one > next), "{seen:?}");
}

/// Goal: a read of keys that finds too many bytes is refused, exactly from the limit on. One key is
/// never too much.
pub async fn r9_reads_of_many_large_entries_are_refused(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let ses: Vec<u16> = (1..=60).collect();
    scene.apply(ses.iter().map(|number| set(se(*number, exacat_model::SeStatus::Online))).collect()).await;
    let replicas = ses.iter().map(|number| replica_at(*number, &long_pfn(*number))).collect();
    let file = NewEntry { tags: tags("v"), ..new_file_with(top("f"), guid_of(1), replicas) };
    scene.applied(Mutation::Create(Box::new(file))).await;
    let (store, entry) = (scene.store(), scene.at(&top("f")).await);
    let fit = READ_MEMORY_MAX / entry.bytes();
    assert!(fit > 1, "the largest entry fits many times");
    for count in [1, fit, fit + 1] {
        let paths = vec![lfn("/f"); count];
        let resolved = store.resolve(&paths).await.map(|found| found.len());
        let located = store.locate(&vec![entry.id(); count]).await.map(|found| found.len());
        let standing = store.standing(&vec![top("f"); count]).await.map(|found| found.len());
        for found in [resolved, located, standing] {
            match count <= fit {
                true => assert_eq!(found.expect("within the limit"), count),
                false => assert_eq!(found.expect_err("beyond the limit").kind, ErrorKind::Limit),
            }
        }
    }
    // The replicas alone: a store need not count the tags, which the answer has not.
    let file = entry.file().expect("a file").bytes();
    let paths = vec![lfn("/f"); READ_MEMORY_MAX / file + 1];
    assert_eq!(store.files(&paths).await.expect_err("beyond the limit").kind, ErrorKind::Limit);
    assert_eq!(store.files(&paths[..fit]).await.expect("within the limit").found.len(), fit);
}
