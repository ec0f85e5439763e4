//! Clause A10: no physical copy that is in use is queued for deletion.

use exacat_model::{
    Deletion, DeletionId, Edit, Location, Mutation, Pfn, QuotaOf, Record, Replica, ReplicaState, Reservation,
    SeNumber, UserId,
};
use exacat_store::{Clock, UsageOf};

use crate::factory::{StoreEnd, StoreFactory};
use crate::scene::*;

async fn queue(scene: &Scene, se: u16) -> Vec<Deletion> {
    scene.store().deletions(SeNumber(se), None, 100).await.expect("deletions").items
}

fn drop_replica(file: &str, se: u16) -> Mutation {
    edit(top(file), Edit::DropReplica { se: SeNumber(se), delete: true })
}

fn put(file: &str, replica: Replica) -> Mutation {
    edit(top(file), Edit::PutReplica(replica))
}

/// Makes the replica at a derived location, with its PFN said explicitly.
fn in_words(number: u8, se: u16) -> Replica {
    let mut pfn = "root://host//data".to_owned();
    pfn.push_str(guid(number).storage_path().as_str());
    replica_at(se, &pfn)
}

fn reserve_at(number: u8, replica: &Replica) -> Mutation {
    let mut wish = reservation(guid(number), &[replica.se.0]);
    wish.pending[0].location = replica.location.clone();
    reserve(wish)
}

async fn assert_sound(scene: &Scene) {
    let audit = scene.store().audit().await.expect("an audit");
    assert!(audit.findings.is_empty(), "{:?}", audit.findings);
}

/// Goal: any mutation that brings a copy into use removes its deletion from the queue, and only
/// that. Method: each such mutation, for each form of the location, with other deletions beside;
/// then the store is opened again.
pub async fn a10_a_copy_that_is_wanted_again_is_not_deleted(factory: &dyn StoreFactory) {
    // Form of the location when it was queued, and when it is wanted again. All by file 1 but the
    // last two.
    let same_copy = [
        (replica(1), replica(1), 1),
        (replica_at(1, "root://h/x"), replica_at(1, "root://h/x"), 1),
        (replica(1), in_words(1, 1), 1),
        (in_words(1, 1), replica(1), 1),
        (replica(1), in_words(1, 1), 2),
        (replica_at(1, "root://h/x"), replica_at(1, "root://h/x"), 2),
    ];
    for (was, is, number) in same_copy {
        for way in ["create", "put", "state", "reserve", "commit"] {
            let what = format!("{way}, {was:?}, {is:?} of file {number}");
            let mut scene = Scene::new(factory).await;
            // Deletions that stay: another file's, the same PFN on another SE.
            scene.file(exacat_model::DirId::ROOT, "other", 9, &[1, 2]).await;
            scene.applied(drop_replica("other", 1)).await;
            let elsewhere = Replica { se: SeNumber(2), ..was.clone() };
            scene.applied(create(new_file_with(top("old"), guid(1), vec![was.clone(), elsewhere]))).await;
            scene.applied(drop_replica("old", 2)).await;
            let item = scene.trash(top("old")).await;
            scene.applied(purge(item)).await;
            assert_eq!((queue(&scene, 1).await.len(), queue(&scene, 2).await.len()), (2, 1), "{what}");

            let new = |replicas: Vec<Replica>| create(new_file_with(top("new"), guid(number), replicas));
            match way {
                "create" => drop(scene.applied(new(vec![is.clone()])).await),
                "put" => {
                    scene.applied(new(vec![])).await;
                    scene.applied(put("new", is.clone())).await;
                }
                "state" => {
                    scene.applied(new(vec![Replica { state: ReplicaState::Lost, ..is.clone() }])).await;
                    assert_eq!(queue(&scene, 1).await.len(), 2, "a lost one is not wanted: {what}");
                    let state = ReplicaState::Suspect;
                    scene.applied(edit(top("new"), Edit::ReplicaState { se: SeNumber(1), state })).await;
                }
                "reserve" => drop(scene.applied(reserve_at(number, &is)).await),
                _ => {
                    // Another file had it between reservation and commit.
                    scene.applied(reserve_at(number, &is)).await;
                    scene.applied(create(new_file_with(top("brief"), guid(7), vec![]))).await;
                    let Location::Explicit(pfn) = in_words(number, 1).location else { panic!("explicit") };
                    let pfn = match &is.location {
                        Location::Explicit(pfn) => pfn.clone(),
                        _ => pfn,
                    };
                    scene.applied(put("brief", replica_at(1, pfn.as_str()))).await;
                    scene.applied(drop_replica("brief", 1)).await;
                    assert_eq!(queue(&scene, 1).await.len(), 2, "{what}");
                    scene.applied(commit(guid(number), 1, top("new"))).await;
                }
            }
            let left = queue(&scene, 1).await;
            assert_eq!(left.iter().map(|one| one.guid).collect::<Vec<_>>(), [guid(9)], "{what}");
            assert_eq!(scene.usage(UsageOf::Deletions(SeNumber(1))).await.replicas, 1, "{what}");
            assert_eq!(queue(&scene, 2).await.len(), 1, "{what}");
            assert_sound(&scene).await;
            if number == 2 {
                let before = scene.dump().await;
                scene.reopen(StoreEnd::Drop).await;
                let difference = before.difference("before", &scene.dump().await, "after ");
                assert!(difference.is_none(), "{what}:\n{}", difference.expect("some"));
            }
        }
    }
}

/// Goal: only the end result of one update counts: it queues the copies that it removes, not those
/// that it leaves with the file.
pub async fn a10_an_update_queues_what_it_leaves_unused(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    scene.file(exacat_model::DirId::ROOT, "f", 1, &[1]).await;
    let drop = || Edit::DropReplica { se: SeNumber(1), delete: true };
    let put = |state| Edit::PutReplica(Replica { state, ..replica(1) });
    scene.applied(update(top("f"), vec![drop(), put(ReplicaState::Suspect)])).await;
    assert_eq!(queue(&scene, 1).await, [], "it is there again");
    scene.applied(update(top("f"), vec![drop(), put(ReplicaState::Lost)])).await;
    assert_eq!(queue(&scene, 1).await.len(), 1, "what may be left of it is not wanted");
    let again = scene.applied(update(top("f"), vec![put(ReplicaState::Copying), drop()])).await;
    let ids: Vec<_> = queue(&scene, 1).await.iter().map(|one| one.id.revision).collect();
    assert_eq!(ids, [again], "once, though it was queued before");
    let moved = vec![Edit::PutReplica(replica_at(1, "root://h/elsewhere"))];
    scene.applied(update(top("f"), moved)).await;
    assert_eq!(queue(&scene, 1).await.len(), 1, "a copy at another place is another copy");
    assert_sound(&scene).await;
}

/// Goal: a mutation that gives a copy up does not queue it while the file or an upload reservation
/// of the GUID still has it.
pub async fn a10_what_is_in_use_is_not_queued(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    // A registration overtakes an upload; the upload is given up.
    scene.file(exacat_model::DirId::ROOT, "f", 1, &[2]).await;
    scene.applied(reserve(reservation(guid(1), &[1, 3]))).await;
    scene.applied(put("f", replica(1))).await;
    scene.applied(release(guid(1), None)).await;
    assert_eq!(queue(&scene, 1).await, [], "the file has it");
    assert_eq!(queue(&scene, 3).await.len(), 1);
    // The same with the other form of the location; a lost one is not in use.
    scene.applied(drop_replica("f", 1)).await;
    scene.applied(reserve(reservation(guid(1), &[1]))).await;
    assert_eq!(queue(&scene, 1).await, []);
    scene.applied(put("f", in_words(1, 1))).await;
    scene.applied(release(guid(1), None)).await;
    assert_eq!(queue(&scene, 1).await, []);
    scene.applied(drop_replica("f", 1)).await;
    scene.applied(reserve(reservation(guid(1), &[1]))).await;
    scene.applied(put("f", Replica { state: ReplicaState::Lost, ..replica(1) })).await;
    scene.applied(release(guid(1), None)).await;
    assert_eq!(queue(&scene, 1).await.len(), 1);
    // A file gives up a reserved copy: dropped, and purged. Then the end of the reservation queues
    // it.
    scene.applied(edit(top("f"), Edit::DropReplica { se: SeNumber(1), delete: false })).await;
    for by_purge in [false, true] {
        scene.applied(reserve(reservation(guid(1), &[1]))).await;
        scene.applied(put("f", replica(1))).await;
        if by_purge {
            let item = scene.trash(top("f")).await;
            scene.applied(purge(item)).await;
        } else {
            scene.applied(drop_replica("f", 1)).await;
        }
        assert_eq!(queue(&scene, 1).await, [], "it is reserved: {by_purge}");
        assert_sound(&scene).await;
        let revision = scene.applied(release(guid(1), None)).await;
        let ids: Vec<_> = queue(&scene, 1).await.iter().map(|one| one.id.revision).collect();
        assert_eq!(ids, [revision], "{by_purge}");
    }
    assert_sound(&scene).await;
}

/// Goal: a replacement of an upload reservation queues the copies that only the old one had
/// pending. So nothing that may have been written is forgotten. It queues nothing in use, and a
/// refused one does nothing.
pub async fn a10_a_reservation_in_place_of_another_queues_what_it_leaves(factory: &dyn StoreFactory) {
    let mut scene = Scene::new(factory).await;
    let mut first = reservation(guid(1), &[3, 1, 2]);
    first.pending[0].location = replica_at(3, "root://h/first").location;
    scene.applied(reserve(first.clone())).await;
    // Refused: the upload reservation stays as it was, and so do the queues.
    scene.applied(set(quota(QuotaOf::User(UserId(1)), [None, Some(100), None]))).await;
    scene.refused("Quota", reserve(Reservation { size: 101, ..reservation(guid(1), &[2]) })).await;
    scene.refused("GuidInUse", reserve(Reservation { owner: UserId(2), ..reservation(guid(1), &[2]) })).await;
    let kept = scene.store().reservation(guid(1)).await.expect("reservation").expect("there");
    assert_eq!(kept.pending.iter().map(|pending| pending.se.0).collect::<Vec<_>>(), [1, 2, 3]);
    for se in SES {
        assert_eq!(queue(&scene, se).await, [], "{se}");
    }
    // SE 2 is reserved again, in the other form; SE 3 at another place; SE 1 not.
    let mut second = Reservation { size: 7, ..reservation(guid(1), &[2, 3]) };
    second.pending[0].location = in_words(1, 2).location;
    let revision = scene.applied(reserve(second)).await;
    let queued = |index, location: &Location| Deletion {
        id: DeletionId { revision, index },
        guid: guid(1),
        size: Some(100),
        location: location.clone(),
        queued: scene.clock.now(),
    };
    assert_eq!(queue(&scene, 1).await, [queued(0, &Location::Derived)]);
    assert_eq!(queue(&scene, 2).await, []);
    assert_eq!(queue(&scene, 3).await, [queued(2, &first.pending[0].location)]);
    assert_eq!(scene.usage(UsageOf::Deletions(SeNumber(1))).await.replica_bytes, 100);
    assert_sound(&scene).await;
    let before = scene.dump().await;
    scene.reopen(StoreEnd::Drop).await;
    let difference = before.difference("before", &scene.dump().await, "after ");
    assert!(difference.is_none(), "{}", difference.expect("some"));
    // The same again queues nothing; one that is restored is wanted again.
    scene.applied(reserve(reservation(guid(1), &[2, 3]))).await;
    assert_eq!((queue(&scene, 2).await.len(), queue(&scene, 3).await.len()), (0, 1));
    scene.applied(reserve(reservation(guid(1), &[1, 2, 3]))).await;
    assert_eq!((queue(&scene, 1).await.len(), queue(&scene, 2).await.len()), (0, 0));
    // Committed meanwhile, or registered: the file has it.
    scene.applied(commit(guid(1), 1, top("f"))).await;
    scene.applied(put("f", replica(2))).await;
    let revision = scene.applied(reserve_at(1, &replica_at(3, "root://h/third"))).await;
    let ids: Vec<_> = queue(&scene, 3).await.iter().map(|one| (one.id.revision, one.id.index)).collect();
    assert_eq!(ids.last(), Some(&(revision, 1)));
    assert_eq!((queue(&scene, 1).await.len(), queue(&scene, 2).await.len()), (0, 0));
    assert_sound(&scene).await;
}

/// Goal: a change of the prefix does not turn a deletion into one of a copy in use.
pub async fn a10_a_change_of_prefix_queues_nothing_in_use(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    scene.file(exacat_model::DirId::ROOT, "f", 1, &[1]).await;
    scene.file(exacat_model::DirId::ROOT, "g", 2, &[1]).await;
    scene.apply(vec![drop_replica("f", 1), drop_replica("g", 1)]).await;
    let mut pfn = "root://new".to_owned();
    pfn.push_str(guid(1).storage_path().as_str());
    let location = Location::Explicit(Pfn::parse(&pfn).expect("a PFN"));
    scene.applied(put("f", Replica { location, ..replica(1) })).await;
    assert_eq!(queue(&scene, 1).await.len(), 2);
    let Record::Se(mut moved) = se(1, exacat_model::SeStatus::Online) else { panic!("an SE") };
    moved.prefix = "root://new".to_owned();
    scene.applied(set(Record::Se(moved))).await;
    let left: Vec<_> = queue(&scene, 1).await.iter().map(|one| one.guid).collect();
    assert_eq!(left, [guid(2)]);
    assert_sound(&scene).await;
}
