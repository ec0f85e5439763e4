//! Clauses A1 to A9: applying.

use std::sync::Arc;

use exacat_model::codec::Encode;
use exacat_model::limits::{
    BATCH_BYTES_MAX, BATCH_MUTATIONS_MAX, DEPTH_MAX, LFN_BYTES_MAX, OPERATION_AGE_MAX_MS,
    OPERATIONS_REMEMBERED,
};
use exacat_model::{
    DirId, Edit, EntryId, Expect, Fingerprint, GroupId, Lfn, Mode, Mutation, OperationId, Revision, SeNumber,
    UserId,
};
use exacat_store::{ApplyError, Clock, Outcome, Refusal, Request, Store, UsageOf};

use crate::factory::{StoreEnd, StoreFactory, all_changes};
use crate::random::outcome_name;
use crate::scene::*;

/// Goal: one outcome per mutation, in order; a refused one does not stop the others.
pub async fn a1_each_mutation_has_its_outcome_in_order(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let outcomes = scene
        .apply(vec![
            create(new_directory(top("a"))),
            create(new_directory(top("a"))),
            edit(top("a"), Edit::Mode(Mode::DIRECTORY)),
            remove(top("b")),
            create(new_directory(top("b"))),
        ])
        .await;
    let names: Vec<_> = outcomes.iter().map(outcome_name).collect();
    assert_eq!(names, ["Applied", "Exists", "Unchanged", "NotFound", "Applied"]);
    assert!(scene.apply(Vec::new()).await.is_empty());
}

/// Goal: each mutation is decided on the state that those before it in the request left.
pub async fn a1_mutations_see_what_those_before_them_did(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    // The next directory has number 2: only the root is there (N1).
    let outcomes = scene
        .apply(vec![
            create(new_directory(top("a"))),
            create(new_file(at(DirId(2), "f"), guid(1), Some(5), &[1])),
            rename(top("a"), top("b")),
            remove(top("a")),
            edit(at(DirId(2), "f"), Edit::SetTag(tag("run", 1))),
            remove(top("b")),
            edit(at(DirId(2), "f"), Edit::SetTag(tag("run", 2))),
        ])
        .await;
    let names: Vec<_> = outcomes.iter().map(outcome_name).collect();
    assert_eq!(names, ["Applied", "Applied", "Applied", "NotFound", "Applied", "Applied", "ParentGone"]);
}

/// Goal: the outcome names the entry that was made or touched, and the change.
pub async fn a1_an_outcome_names_the_entry_and_the_change(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let before = scene.revision().await.0;
    let outcomes = scene
        .apply(vec![
            create(new_directory(top("a"))),
            create(new_file(top("f"), guid(1), Some(5), &[])),
            rename(top("f"), top("g")),
            remove(top("g")),
            reserve(reservation(guid(2), &[1])),
            set(group(9, "nine")),
        ])
        .await;
    let directory = EntryId::Directory(DirId(2));
    let ids = [Some(directory), Some(object(1)), Some(object(1)), Some(object(1)), Some(object(2)), None];
    for ((outcome, id), revision) in outcomes.iter().zip(ids).zip(before + 1..) {
        assert_eq!(*outcome, Outcome::Applied { revision: Revision(revision), id });
    }
}

/// Goal: requests that are sent together are decided one after the other, each under its own id. A
/// repeated one gets its answer, one that is too large is refused by itself, and each can be
/// repeated alone.
pub async fn a1_requests_that_come_together_are_each_their_own(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let store = scene.store();
    let first = scene.request(vec![create(new_directory(top("a")))]);
    let before = scene.revision().await.0;
    let too_many = vec![remove(top("none")); BATCH_MUTATIONS_MAX + 1];
    let together = vec![
        first.clone(),
        scene.request(vec![create(new_directory(top("a")))]),
        scene.request(too_many),
        scene.request(Vec::new()),
        first.clone(),
        scene.request(vec![create(new_directory(top("b"))), remove(top("a"))]),
        scene.request(vec![create(new_directory(top("a")))]),
    ];
    let answers = store.apply_each(together.clone()).await;
    let names = |answer: &Result<Vec<Outcome>, ApplyError>| match answer {
        Ok(outcomes) => outcomes.iter().map(outcome_name).collect::<Vec<_>>().join(" "),
        Err(ApplyError::TooLarge(_)) => "TooLarge".to_owned(),
        Err(error) => error.to_string(),
    };
    let came: Vec<String> = answers.iter().map(names).collect();
    assert_eq!(came, ["Applied", "Exists", "TooLarge", "", "Applied", "Applied Applied", "Applied"]);
    assert_eq!(answers[0], answers[4]);
    assert_eq!(scene.revision().await.0, before + 4);
    assert!(store.apply_each(Vec::new()).await.is_empty());
    // The first name is taken again, and refused requests stay refused.
    for (request, answer) in together.into_iter().zip(answers) {
        assert_eq!(store.apply(request).await.is_ok(), answer.is_ok());
    }
    assert_eq!(scene.revision().await.0, before + 4);
}

/// Goal: an update whose last edit is refused leaves nothing of those before it.
pub async fn a2_an_update_is_done_with_all_its_edits_or_none(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    scene.file(DirId::ROOT, "f", 1, &[1]).await;
    let before = scene.dump().await;
    let edits = vec![
        Edit::Owner(UserId(2)),
        Edit::SetTag(tag("run", 1)),
        Edit::DropReplica { se: SeNumber(1), delete: true },
        Edit::PutReplica(replica(2)),
        Edit::Size(7),
    ];
    scene.refused("Mismatch", update(top("f"), edits)).await;
    assert_eq!(before.difference("before", &scene.dump().await, "after ").map(|d| d.to_string()), None);
}

/// Goal: no reader sees a part of a mutation. Method: one task moves a file between two
/// directories, and updates owner and tag of another together. Readers check the sums of both
/// directories, and owner and tag.
pub async fn a2_readers_see_whole_mutations(factory: &dyn StoreFactory) {
    const MUTATIONS: u64 = 300;
    let scene = Arc::new(Scene::new(factory).await);
    let a = scene.directory(DirId::ROOT, "a").await;
    let b = scene.directory(DirId::ROOT, "b").await;
    scene.file(a, "f", 1, &[1]).await;
    scene.file(DirId::ROOT, "g", 2, &[1]).await;
    scene
        .applied(update(
            top("g"),
            vec![Edit::SetTag(tag("n", 1)), Edit::Owner(UserId(1)), Edit::Mode(Mode::DIRECTORY)],
        ))
        .await;
    let writer = {
        let scene = scene.clone();
        tokio::spawn(async move {
            for turn in 0..MUTATIONS {
                let (from, to) = if turn % 2 == 0 { (a, b) } else { (b, a) };
                scene.applied(rename(at(from, "f"), at(to, "f"))).await;
                let owner = 2 - (turn % 2) as u32;
                let edits = vec![Edit::Owner(UserId(owner)), Edit::SetTag(tag("n", i64::from(owner)))];
                scene.applied(update(top("g"), edits)).await;
            }
        })
    };
    let store = scene.store();
    while !writer.is_finished() {
        let sums = store.usage(&[UsageOf::Directory(a), UsageOf::Directory(b)]).await.expect("usage");
        assert_eq!(sums[0].usage.files + sums[1].usage.files, 1, "the file is in one of them");
        let owners = store.usage(&[UsageOf::User(UserId(1)), UsageOf::User(UserId(2))]).await.expect("usage");
        assert_eq!(owners[0].usage.files + owners[1].usage.files, 2);
        let entry = scene.at(&top("g")).await;
        assert_eq!(entry.tags, [tag("n", i64::from(entry.owner.0))], "owner and tag change together");
        tokio::task::yield_now().await;
    }
    writer.await.expect("the writer");
}

/// Goal: of all that want one name or GUID (creates, moves, restores, commits) one gets it.
pub async fn a3_of_all_that_want_a_name_one_gets_it(factory: &dyn StoreFactory) {
    for turn in 0..5 {
        let scene = Arc::new(Scene::new(factory).await);
        scene.file(DirId::ROOT, "moved", 1, &[]).await;
        scene.file(DirId::ROOT, "removed", 2, &[]).await;
        let trash = scene.trash(top("removed")).await;
        scene.applied(reserve(reservation(guid(3), &[1]))).await;
        let mut mutations = vec![
            rename(top("moved"), top("wanted")),
            restore(trash, top("wanted")),
            commit(guid(3), 1, top("wanted")),
            create(new_directory(top("wanted"))),
        ];
        mutations.extend((10..16).map(|number| create(new_file(top("wanted"), guid(number), None, &[]))));
        mutations.rotate_left(turn);
        let tasks: Vec<_> = mutations
            .into_iter()
            .map(|mutation| {
                let scene = scene.clone();
                tokio::spawn(async move { scene.one(mutation).await })
            })
            .collect();
        let outcomes: Vec<_> = futures::future::join_all(tasks)
            .await
            .into_iter()
            .map(|outcome| outcome.expect("a task"))
            .collect();
        let winner = scene.at(&top("wanted")).await;
        let won = outcomes.iter().filter(|outcome| outcome_name(outcome) == "Applied").count();
        assert_eq!(won, 1, "{outcomes:?}");
        for outcome in &outcomes {
            match outcome {
                Outcome::Applied { id, .. } => assert_eq!(*id, Some(winner.id())),
                other => assert_eq!(*other, Outcome::Refused(Refusal::Exists(winner.id()))),
            }
        }
    }
}

/// Goal: the same for a GUID, wanted by files, collections, links and upload reservations of many
/// users; and for a record's name.
pub async fn a3_of_all_that_want_a_guid_or_a_record_name_one_gets_it(factory: &dyn StoreFactory) {
    let scene = Arc::new(Scene::new(factory).await);
    let mut mutations: Vec<_> =
        (0..8).map(|number| create(new_file(top(&format!("f{number}")), guid(1), None, &[]))).collect();
    mutations.push(create(new_collection(top("c"), guid(1))));
    mutations.push(create(new_link(top("l"), guid(1))));
    // A file's own GUID may be reserved, for further replicas; so files do not compete with upload
    // reservations here.
    let reserved = reservation(guid(2), &[1]);
    let others: Vec<_> = vec![
        reserve(reserved.clone()),
        reserve(exacat_model::Reservation { owner: UserId(2), ..reserved }),
        create(new_collection(top("c2"), guid(2))),
        create(new_link(top("l2"), guid(2))),
    ];
    let records = (10..20).map(|id| set(group(id, "wanted")));
    let run = |mutation: Mutation| {
        let scene = scene.clone();
        tokio::spawn(async move { scene.one(mutation).await })
    };
    let guids: Vec<_> = mutations.into_iter().map(run).collect();
    let others: Vec<_> = others.into_iter().map(run).collect();
    let names: Vec<_> = records.map(run).collect();
    for (tasks, refusal) in [(guids, "GuidInUse"), (others, "GuidInUse"), (names, "InUse")] {
        let mut won = 0;
        for outcome in futures::future::join_all(tasks).await {
            match outcome_name(&outcome.expect("a task")) {
                "Applied" => won += 1,
                other => assert_eq!(other, refusal),
            }
        }
        assert_eq!(won, 1);
    }
}

/// Goal: revisions increase by one with each applied mutation, also across concurrent requests.
pub async fn a4_revisions_increase_in_the_order_of_application(factory: &dyn StoreFactory) {
    let scene = Arc::new(Scene::new(factory).await);
    let first = scene.revision().await.0 + 1;
    let tasks: Vec<_> = (0..20)
        .map(|task| {
            let scene = scene.clone();
            tokio::spawn(async move {
                let mut seen = Vec::new();
                for number in 0..10 {
                    let name = format!("{task}-{number}");
                    seen.push(scene.applied(create(new_directory(top(&name)))).await.0);
                }
                assert!(seen.is_sorted_by(|one, next| one < next), "later is later: {seen:?}");
                seen
            })
        })
        .collect();
    let mut all: Vec<u64> = Vec::new();
    for task in tasks {
        all.extend(task.await.expect("a task"));
    }
    all.sort_unstable();
    assert_eq!(all, (first..first + 200).collect::<Vec<_>>());
}

/// Goal: answered changes are there when the store is opened again, however it ended.
pub async fn a5_what_was_answered_is_there_when_opened_again(factory: &dyn StoreFactory) {
    let mut scene = Scene::new(factory).await;
    for (turn, end) in
        [StoreEnd::Close, StoreEnd::Drop, StoreEnd::Drop, StoreEnd::Close].into_iter().enumerate()
    {
        let number = turn as u8 * 10;
        let name = format!("d{turn}");
        let directory = scene.directory(DirId::ROOT, &name).await;
        scene.file(directory, "f", number, &[1, 2]).await;
        scene.file(directory, "g", number + 1, &[3]).await;
        scene.applied(create(new_collection(at(directory, "c"), guid(number + 2)))).await;
        scene.applied(edit(at(directory, "c"), Edit::AddMember(guid(number)))).await;
        scene.applied(edit(at(directory, "f"), Edit::DropReplica { se: SeNumber(2), delete: true })).await;
        scene.applied(edit(at(directory, "g"), Edit::Expires(Some(scene.clock.now())))).await;
        scene.trash(at(directory, "g")).await;
        scene.applied(reserve(reservation(guid(number + 3), &[1, 2]))).await;
        let before = scene.dump().await;
        scene.reopen(end).await;
        let difference = before.difference("before", &scene.dump().await, "after ");
        assert!(difference.is_none(), "after {end:?}:\n{}", difference.expect("some"));
    }
    let next = scene.directory(DirId::ROOT, "next").await;
    assert_eq!(next, DirId(6), "numbers of directories are never used again");
}

fn sent(number: u8, mutations: Vec<Mutation>) -> Request {
    Request::new(OperationId([number; 16]), UserId(1), mutations)
}

async fn send(store: &dyn Store, request: &Request) -> Vec<Outcome> {
    store.apply(request.clone()).await.expect("the request is answered")
}

/// Goal: a repeated request gets its first answer and changes nothing again, even if it would be
/// refused by now.
pub async fn a6_a_request_asked_again_gets_its_answer(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let store = scene.store();
    let request = sent(
        7,
        vec![
            create(new_directory(top("a"))),
            create(new_file(top("f"), guid(1), Some(1), &[1])),
            remove(top("f")),
        ],
    );
    let first = send(&*store, &request).await;
    scene.applied(remove(top("a"))).await;
    let revision = scene.revision().await;
    assert_eq!(send(&*store, &request).await, first);
    assert_eq!(scene.revision().await, revision, "nothing was done");
    // The same under another id is another request.
    let other = send(&*store, &sent(8, request.mutations)).await;
    let names: Vec<_> = other.iter().map(outcome_name).collect();
    assert_eq!(names, ["Applied", "GuidInUse", "NotFound"]);
}

/// Goal: refused or unchanged mutations are decided anew, applied ones are not, whatever their
/// order.
pub async fn a6_what_was_not_applied_is_decided_anew(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let store = scene.store();
    let request = sent(
        7,
        vec![
            edit(top("f"), Edit::Mode(Mode::DIRECTORY)),
            create(new_file(top("f"), guid(1), Some(1), &[1])),
            edit(top("f"), Edit::Mode(Mode::FILE)),
        ],
    );
    let first = send(&*store, &request).await;
    let names: Vec<_> = first.iter().map(outcome_name).collect();
    assert_eq!(names, ["NotFound", "Applied", "Unchanged"]);
    let again = send(&*store, &request).await;
    let names: Vec<_> = again.iter().map(outcome_name).collect();
    assert_eq!(names, ["Applied", "Applied", "Applied"]);
    assert_eq!(again[1], first[1]);
    // By now everything was applied, in two requests: all of it is remembered.
    assert_eq!(send(&*store, &request).await, again);
    // Changes name their request and the index of their mutation in it.
    let changes = all_changes(&*store).await;
    let ours: Vec<_> = changes
        .iter()
        .filter(|change| change.operation == request.operation)
        .map(|change| change.index)
        .collect();
    assert_eq!(ours, [1, 0, 2]);
}

/// Goal: answers are remembered when the store is opened again.
pub async fn a6_answers_are_remembered_when_opened_again(factory: &dyn StoreFactory) {
    let mut scene = Scene::new(factory).await;
    for (number, end) in [(7, StoreEnd::Close), (8, StoreEnd::Drop)] {
        let name = format!("d{number}");
        let request = sent(number, vec![create(new_directory(top(&name))), remove(top("nothing"))]);
        let first = send(&*scene.store(), &request).await;
        scene.reopen(end).await;
        assert_eq!(send(&*scene.store(), &request).await, first, "after {end:?}");
    }
}

/// Goal: an id with other content, or from another user, is a conflict, and nothing is done. This
/// holds alone and together with others, and after the store was opened again.
pub async fn a6_an_id_used_for_another_request_is_a_conflict(factory: &dyn StoreFactory) {
    let mut scene = Scene::new(factory).await;
    let first = sent(7, vec![create(new_directory(top("a")))]).with(Fingerprint(1));
    let other = sent(7, vec![create(new_directory(top("b")))]).with(Fingerprint(2));
    let made = send(&*scene.store(), &first).await;
    for end in [StoreEnd::Close, StoreEnd::Drop] {
        let store = scene.store();
        let before = scene.revision().await;
        let refused = store.apply(other.clone()).await;
        assert!(matches!(refused, Err(ApplyError::Conflict(_))), "{refused:?}");
        // Also with mutations that the first one did not have.
        let mut longer = other.clone();
        longer.mutations.push(create(new_directory(top("c"))));
        let beside = scene.request(vec![remove(top("nothing"))]);
        let answers = store.apply_each(vec![longer, beside, first.clone()]).await;
        assert!(matches!(answers[0], Err(ApplyError::Conflict(_))), "{answers:?}");
        assert_eq!(answers[1], Ok(vec![Outcome::Refused(Refusal::NotFound)]));
        assert_eq!(answers[2].as_ref(), Ok(&made), "the same request gets its answer");
        // A store cannot compare an unknown fingerprint.
        let unknown = first.clone().with(Fingerprint::UNKNOWN);
        assert_eq!(send(&*store, &unknown).await, made);
        assert_eq!(scene.revision().await, before, "nothing was done");
        for name in ["b", "c"] {
            assert!(scene.entry(&top(name)).await.is_none(), "{name}");
        }
        drop(store);
        if !scene.keeps_fingerprints() {
            break;
        }
        scene.reopen(end).await;
    }
    // A request that did nothing is not remembered: the other one is carried out, and answers so.
    let nothing = sent(8, vec![remove(top("nothing"))]).with(Fingerprint(1));
    send(&*scene.store(), &nothing).await;
    let other = sent(8, vec![create(new_directory(top("b")))]).with(Fingerprint(2));
    assert_eq!(outcome_name(&send(&*scene.store(), &other).await[0]), "Applied");
    // In one group, where the first is not in the log yet.
    let first = sent(9, vec![create(new_directory(top("c")))]).with(Fingerprint(1));
    let other = sent(9, vec![create(new_directory(top("d")))]).with(Fingerprint(2));
    let answers = scene.store().apply_each(vec![first, other]).await;
    assert!(matches!(answers[..], [Ok(_), Err(ApplyError::Conflict(_))]), "{answers:?}");
}

/// Goal: a request is known until its id is too old to be taken, however many others came
/// meanwhile: more than are kept in memory. Method: a removal whose answer was lost, the name
/// registered anew, more than a million other requests, and the removal again. Only in the long
/// form of the tests.
pub async fn a6_a_request_is_known_until_its_id_is_too_old(factory: &dyn StoreFactory) {
    if crate::rounds() == 1 {
        return;
    }
    let scene = Arc::new(Scene::new(factory).await);
    let store = scene.store();
    scene.applied(create(new_file(top("x"), guid(1), Some(1), &[]))).await;
    let removal = scene.request(vec![remove(top("x"))]);
    let removed = send(&*store, &removal).await;
    scene.applied(create(new_file(top("x"), guid(2), Some(2), &[]))).await;
    let more = OPERATIONS_REMEMBERED + 10_000;
    let clients = 64;
    let tasks: Vec<_> = (0..clients)
        .map(|client: usize| {
            let scene = scene.clone();
            tokio::spawn(async move {
                for turn in 0..more / clients {
                    if turn % 25 == 0 {
                        // In all, some minutes pass.
                        scene.clock.turn(1);
                    }
                    let name = format!("group-{client}-{turn}");
                    scene.applied(set(group(100 + client as u32, &name))).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a task");
    }
    let age = scene.clock.now().0 - removal.operation.made().0;
    assert!((10_000..OPERATION_AGE_MAX_MS).contains(&age), "{age}");
    let revision = scene.revision().await;
    assert_eq!(send(&*store, &removal).await, removed);
    assert_eq!(scene.revision().await, revision, "nothing was done");
    let there = scene.entry(&top("x")).await.expect("the new file");
    assert_eq!(there.id(), object(2));
}

/// Goal: a closed store does nothing more and says so. Opened again, it has not done it later.
pub async fn a7_after_unavailable_nothing_was_done(factory: &dyn StoreFactory) {
    let mut scene = Scene::new(factory).await;
    let before = scene.dump().await;
    let store = scene.store();
    store.close().await.expect("close");
    let answer = store.apply(scene.request(vec![create(new_directory(top("a")))])).await;
    assert!(matches!(answer, Err(ApplyError::Unavailable(_))), "{answer:?}");
    store.close().await.expect("closing again is no error");
    drop(store);
    scene.reopen(StoreEnd::Close).await;
    let difference = before.difference("before", &scene.dump().await, "after ");
    assert!(difference.is_none(), "{}", difference.expect("some"));
}

/// Goal: a request with the most allowed mutations is accepted. One with one more is not, and
/// nothing of it is done.
pub async fn a8_a_request_has_at_most_so_many_mutations(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let mut mutations = vec![release(guid(1), None); BATCH_MUTATIONS_MAX];
    let outcomes = scene.apply(mutations.clone()).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Refused(Refusal::NotFound)));
    mutations.insert(0, create(new_directory(top("a"))));
    let answer = scene.store().apply(scene.request(mutations)).await;
    assert!(matches!(answer, Err(ApplyError::TooLarge(_))), "{answer:?}");
    assert!(scene.entry(&top("a")).await.is_none());
}

/// Goal: the same for the bytes of a request.
pub async fn a8_a_request_has_at_most_so_many_bytes(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    let of_length = |bytes: usize| {
        // Names of at most 255 bytes, and at least one.
        let text: String = (0..bytes).map(|index| if index % 200 == 0 { '/' } else { 'x' }).collect();
        Mutation::Remove {
            at: top("nothing"),
            expect: Expect::ANY,
            only_empty: false,
            lfn: Lfn::parse(&text).expect("an LFN"),
        }
    };
    let mut mutations = vec![create(new_directory(top("a")))];
    let mut request = scene.request(mutations.clone());
    let one = of_length(LFN_BYTES_MAX).to_bytes().len();
    let many = (BATCH_BYTES_MAX - request.to_bytes().len() - LFN_BYTES_MAX) / one;
    mutations.extend(std::iter::repeat_n(of_length(LFN_BYTES_MAX), many));
    // The last but one leaves room for a last one of some 300 to 3000 bytes.
    request.mutations = mutations;
    let left = BATCH_BYTES_MAX - request.to_bytes().len();
    let (first, second) = (left / 2, left - left / 2);
    let with = |first: usize, second: usize| {
        let mut request = request.clone();
        request.mutations.extend([of_length(first), of_length(second)]);
        request
    };
    let excess = with(first, second).to_bytes().len() - BATCH_BYTES_MAX;
    let fits = with(first, second - excess);
    let too_large = with(first, second - excess + 1);
    assert_eq!(fits.to_bytes().len(), BATCH_BYTES_MAX);
    assert_eq!(too_large.to_bytes().len(), BATCH_BYTES_MAX + 1);
    let answer = scene.store().apply(too_large).await;
    assert!(matches!(answer, Err(ApplyError::TooLarge(_))), "{answer:?}");
    assert!(scene.entry(&top("a")).await.is_none(), "nothing was done");
    let outcomes = scene.store().apply(fits).await.expect("it fits");
    assert_eq!(outcome_name(&outcomes[0]), "Applied");
}

/// Goal: where several refusals are due, the first in the row is given. Method: for each row, a
/// mutation that violates all preconditions, corrected one by one in the row's order. The files of
/// the rows have more.
pub async fn a9_the_first_refusal_of_a_row_is_given(factory: &dyn StoreFactory) {
    let scene = Scene::new(factory).await;
    scene.applied(set(quota(exacat_model::QuotaOf::User(UserId(1)), [Some(2), None, None]))).await;
    scene.file(DirId::ROOT, "there", 1, &[1]).await;
    scene.file(DirId::ROOT, "other", 2, &[1]).await;
    let mut deep = DirId::ROOT;
    let mut path = Vec::new();
    for depth in 1..=DEPTH_MAX {
        path.push(create(new_directory(at(deep, "d"))));
        // Numbers go up by one from 2.
        deep = DirId(1 + depth as u64);
    }
    let made = scene.apply(path).await;
    assert!(made.iter().all(|outcome| outcome_name(outcome) == "Applied"), "the deepest there may be");
    let mut new = new_file(at(DirId(99_999), "there"), guid(1), Some(1), &[9]);
    new.group = GroupId(2);
    new.tags = vec![tag("b", 1), tag("a", 1)];
    scene.refused("Invalid", create(new.clone())).await;
    new.tags.clear();
    scene.refused("ParentGone", create(new.clone())).await;
    new.at.parent = deep;
    scene.refused("Limit", create(new.clone())).await;
    new.at.parent = DirId::ROOT;
    scene.refused("Exists", create(new.clone())).await;
    new.at = top("new");
    scene.refused("GuidInUse", create(new.clone())).await;
    let with = |ses: &[u16]| new_file(top("new"), guid(3), Some(1), ses);
    scene.refused("NoSuchSe", create(with(&[9]))).await;
    scene.refused("Quota", create(with(&[1]))).await;
    let mut by_another = with(&[1]);
    by_another.owner = UserId(2);
    scene.applied(create(by_another)).await;

    let expect = Expect { id: Some(object(9)), revision: None };
    let moved = |from, expect, to| Mutation::Move { from, expect, to };
    let inside = at(DirId(3), "x");
    scene.refused("ParentGone", moved(at(DirId(99_999), "x"), expect, at(DirId(99_999), "y"))).await;
    scene.refused("NotFound", moved(top("x"), expect, at(DirId(99_999), "y"))).await;
    scene.refused("Stale", moved(top("d"), expect, top("d"))).await;
    scene.unchanged(moved(top("d"), Expect::ANY, top("d"))).await;
    scene.refused("Invalid", moved(top("d"), Expect::ANY, at(DirId(99_999), "/"))).await;
    scene.refused("ParentGone", moved(top("d"), Expect::ANY, at(DirId(99_999), "y"))).await;
    scene.refused("Limit", moved(top("d"), Expect::ANY, at(deep, "y"))).await;
    scene.refused("Loop", moved(top("d"), Expect::ANY, inside)).await;
    // Below itself, at a name that is taken.
    scene.refused("Loop", moved(top("d"), Expect::ANY, at(DirId(2), "d"))).await;
    scene.refused("Exists", moved(top("d"), Expect::ANY, top("there"))).await;
}
