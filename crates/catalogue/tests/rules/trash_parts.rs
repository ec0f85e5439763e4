//! Goal: owners of entries inside a directory that another user removes see them and restore them,
//! and nobody else's. Method: a shared tree with open and closed directories; pages of every size.

use exacat_catalogue::{Caller, Settings};
use exacat_model::{Answer, Cursor, ErrorKind, OnTimeline, Operation, TrashId};
use exacat_store::{Store, UsageOf};

use crate::fixture::{Fixture, derived, lfn};

fn parts(limit: u32) -> Operation {
    Operation::TrashParts { cursor: Cursor::default(), limit }
}

fn take(id: OnTimeline<TrashId>, path: &str, to: Option<&str>) -> Operation {
    Operation::TrashRestorePart { id, lfn: lfn(path), to: to.map(lfn) }
}

/// Makes a directory of alice's with entries of others, and removes it as alice. Returns the item.
async fn plant(f: &Fixture) -> OnTimeline<TrashId> {
    let replicas = || vec![derived(1, exacat_model::ReplicaState::Available)];
    f.plant_directory("/pub", 1, 0o755).await;
    f.plant_directory("/pub/m", 1, 0o777).await;
    f.plant_file("/pub/m/alices", 1, 0o644, 1, replicas()).await;
    f.plant_directory("/pub/m/bobs", 2, 0o755).await;
    f.plant_file("/pub/m/bobs/f", 2, 0o644, 2, replicas()).await;
    f.plant_file("/pub/m/bobs/alices", 1, 0o644, 4, replicas()).await;
    f.plant_directory("/pub/m/closed", 1, 0o700).await;
    f.plant_file("/pub/m/closed/f", 2, 0o644, 8, replicas()).await;
    f.plant_directory("/pub/m/open", 1, 0o777).await;
    f.plant_directory("/pub/m/open/deep", 1, 0o711).await;
    f.plant_file("/pub/m/open/deep/f", 2, 0o644, 16, replicas()).await;
    f.plant_file("/pub/m/open/deep/g", 4, 0o644, 32, replicas()).await;
    f.plant_file("/pub/m/z", 2, 0o600, 64, replicas()).await;
    f.remove(&f.alice, "/pub/m").await.unwrap()
}

/// Returns the LFNs and the bytes of all parts, by pages.
async fn seen(f: &Fixture, caller: &Caller, limit: u32) -> Vec<(String, u128)> {
    let mut seen = Vec::new();
    f.pages(caller, parts(limit), |answer| {
        let Answer::Trash { items, .. } = answer else { panic!("{answer:?}") };
        seen.extend(items.into_iter().map(|(item, who)| {
            assert_eq!(who, "alice");
            (item.lfn.to_string(), item.usage.bytes)
        }));
    })
    .await;
    seen
}

#[tokio::test]
async fn owners_see_their_topmost_entries_in_items_of_others() {
    for (scan, limit) in [(1, 1), (2, 1), (3, 100), (1000, 2), (1000, 0)] {
        let f = Fixture::with(Settings { find_scan_entries: scan, ..Settings::default() }).await;
        let item = plant(&f).await;
        let when = format!("{scan} looks, {limit} a page");
        let of_bob: Vec<(String, u128)> = [("/pub/m/bobs", 6), ("/pub/m/open/deep/f", 16), ("/pub/m/z", 64)]
            .map(|(lfn, n)| (lfn.to_owned(), n))
            .into();
        assert_eq!(seen(&f, &f.bob, limit).await, of_bob, "{when}");
        assert_eq!(seen(&f, &f.carol, limit).await, [("/pub/m/open/deep/g".to_owned(), 32)], "{when}");
        assert_eq!(seen(&f, &f.alice, limit).await, [], "she sees the item itself; {when}");
        assert_eq!(seen(&f, &f.op, limit).await, [], "{when}");
        let scoped = f.scoped("bob", "/pub/m/open", true);
        assert_eq!(seen(&f, &scoped, limit).await, [of_bob[1].clone()], "{when}");
        // A caller who may no longer reach the directory learns nothing.
        f.edit("/pub", vec![exacat_model::Edit::Mode(crate::fixture::mode(0o700))]).await;
        assert_eq!(seen(&f, &f.bob, limit).await, [], "{when}");
        let to = Some("/bob/z");
        assert_eq!(f.refusal(&f.bob, take(item, "/pub/m/z", to)).await, ErrorKind::NotFound);
    }
}

#[tokio::test]
async fn owners_take_their_entries_out_of_items_of_others() {
    let f = Fixture::new().await;
    let item = plant(&f).await;
    let usage =
        async |user| f.store.usage(&[UsageOf::User(exacat_model::UserId(user))]).await.unwrap().remove(0);
    let before = (usage(1).await, usage(2).await, usage(4).await);
    let refused = [
        (&f.bob, "/pub/m", ErrorKind::NotFound),
        (&f.bob, "/pub/m/alices", ErrorKind::NotFound),
        (&f.bob, "/pub/m/closed/f", ErrorKind::NotFound),
        (&f.bob, "/pub/m/nosuch", ErrorKind::NotFound),
        (&f.bob, "/pub/m/z/below", ErrorKind::NotFound),
        (&f.bob, "/pub/mz", ErrorKind::NotFound),
        (&f.carol, "/pub/m/z", ErrorKind::NotFound),
        (&f.anonymous, "/pub/m/z", ErrorKind::Unauthenticated),
    ];
    for (caller, path, kind) in refused {
        assert_eq!(f.refusal(caller, take(item, path, Some("/bob/x"))).await, kind, "{path}");
    }
    let read_only = f.scoped("bob", "/", false);
    assert_eq!(f.refusal(&read_only, take(item, "/pub/m/z", Some("/bob/x"))).await, ErrorKind::Denied);
    // Its directory is gone; and some destinations are not writable.
    assert_eq!(f.refusal(&f.bob, take(item, "/pub/m/z", None)).await, ErrorKind::NotFound);
    assert_eq!(f.refusal(&f.bob, take(item, "/pub/m/z", Some("/alice/z"))).await, ErrorKind::Denied);
    f.plant_file("/bob/taken", 2, 0o644, 1, vec![]).await;
    assert_eq!(f.refusal(&f.bob, take(item, "/pub/m/z", Some("/bob/taken"))).await, ErrorKind::Exists);

    f.get(&f.bob, take(item, "/pub/m/z", Some("/bob/mine"))).await;
    let f2 = f.entry("/bob/mine").await.unwrap();
    assert_eq!(f2.file().unwrap().size, Some(64));
    // A directory is restored whole, into an existing directory under its own name.
    f.get(&f.bob, take(item, "/pub/m/bobs", Some("/bob"))).await;
    assert!(f.is_there("/bob/bobs/f").await && f.is_there("/bob/bobs/alices").await);
    assert_eq!(f.refusal(&f.bob, take(item, "/pub/m/bobs", Some("/bob/again"))).await, ErrorKind::NotFound);
    // An operator takes out anything; to its former path, once that directory exists again.
    f.plant_directory("/pub/m", 1, 0o777).await;
    f.plant_directory("/pub/m/closed", 1, 0o777).await;
    f.get(&f.op, take(item, "/pub/m/closed/f", None)).await;
    f.get(&f.carol, take(item, "/pub/m/open/deep/g", Some("/pub/m/"))).await;
    let after = (usage(1).await, usage(2).await, usage(4).await);
    assert_eq!((after.0.usage.bytes, after.2), (before.0.usage.bytes, before.2));
    assert_eq!(after.1.usage.bytes, before.1.usage.bytes + 1, "only the file that was planted");
    f.audit().await;
    // The rest still belongs to the item, for its owner.
    f.get(&f.alice, Operation::TrashRestore { id: item, to: Some(lfn("/alice/m")) }).await;
    assert!(f.is_there("/alice/m/open/deep/f").await && !f.is_there("/alice/m/z").await);
    f.audit().await;
}
