//! One operation of every kind, on a given directory and file, in a world with an object for each.
//!
//! [`operation`] has a case for every name in `Operation::NAMES` and fails for an unknown one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use exacat_model::element::{AggregateBy, ElementsOf};
use exacat_model::operation::{
    Attribute, Existing, NewFile, NewReplica, Owner, ReplicaEdit, SeChoice, SeSettings, UserSettings,
};
use exacat_model::{
    AfterRestore, Answer, Checksums, Cursor, DeletionId, Edit, FeedAction, FeedName, FeedSpec, FeedStart,
    FileRef, Filter, GroupId, GroupName, Guid, Lfn, NewBody, OnTimeline, Operation, ReplicaState, Result,
    Revision, SeName, Tag, TagKey, TagValue, TokenId, TrashId,
};
use exacat_testkit::settings;

use crate::fixture::{Fixture, account, derived, lfn, mode, se_name, snapshot_name};

/// Modes of the target: a file of alice's in a directory of hers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub directory_mode: u16,
    pub file_mode: u16,
}

/// A world with one target, and an object for every operation.
pub(crate) struct World {
    pub fixture: Fixture,
    pub file: Guid,
    pub archive: Guid,
    pub uploaded: Guid,
    pub trashed: OnTimeline<TrashId>,
    /// Item removed by an admin, with a file of the owner in it.
    pub others: OnTimeline<TrashId>,
    pub token: TokenId,
    pub deletion: OnTimeline<DeletionId>,
}

/// Path of the target's directory.
pub(crate) const DIRECTORY: &str = "/place/here";

pub(crate) fn under(name: &str) -> Lfn {
    lfn(&format!("{DIRECTORY}/{name}"))
}

fn text_tag(key: &str, value: &str) -> Tag {
    Tag { key: TagKey::parse(key).unwrap(), value: TagValue::Text(value.to_owned()) }
}

fn new_se(name: &str) -> Operation {
    let prefix = Some("root://new//d".to_owned());
    Operation::SeSet(SeSettings { prefix, only_new: true, ..settings::se(name) })
}

fn new_user(name: &str) -> Operation {
    Operation::UserSet(Box::new(UserSettings { only_new: true, ..settings::user(name) }))
}

pub(crate) fn reserve(lfn: Lfn, size: u64, wanted: &[&str]) -> Operation {
    let wanted = wanted.iter().map(|name| se_name(name)).collect();
    Operation::UploadReserve {
        lfn,
        guid: None,
        size,
        checksums: Checksums::none(),
        job: None,
        choice: Box::new(SeChoice { wanted, ..SeChoice::default() }),
        lifetime_seconds: None,
    }
}

const DISK: &str = "X::CERN::DISK";

fn disk() -> SeName {
    se_name(DISK)
}

impl World {
    pub(crate) async fn new(fixture: Fixture, target: Target) -> World {
        let f = &fixture;
        f.plant("/place", 0, 0o755, NewBody::Directory).await;
        f.plant(DIRECTORY, 1, 0o777, NewBody::Directory).await;
        let available = ReplicaState::Available;
        let name = |name: &str| format!("{DIRECTORY}/{name}");
        let file = f.plant_file(&name("file"), 1, target.file_mode, 10, vec![derived(1, available)]).await;
        let archive = f.plant_file(&name("zip"), 1, target.file_mode, 10, vec![derived(1, available)]).await;
        f.plant_file(&name("gone"), 1, target.file_mode, 10, vec![derived(1, available)]).await;
        f.plant_file(&name("shrunk"), 1, target.file_mode, 10, vec![derived(1, available)]).await;
        let mut member = NewFile::named(under("member"));
        member.member_of = Some((FileRef::Guid(archive), "in/zip".to_owned()));
        member.mode = Some(mode(target.file_mode));
        let files = vec![member];
        f.get(&f.alice, Operation::Register { files, parents: false, existing: Existing::Refuse }).await;
        f.get(&f.alice, Operation::CollectionCreate { lfn: under("set"), tags: Vec::new() }).await;
        let add = vec![FileRef::Guid(file)];
        f.get(&f.alice, Operation::CollectionEdit { lfn: under("set"), add, remove: Vec::new() }).await;
        let trashed = f.remove(&f.alice, &name("gone")).await.unwrap();
        f.plant("/place/others", 0, 0o755, NewBody::Directory).await;
        f.plant_file("/place/others/mine", 1, target.file_mode, 10, vec![]).await;
        let others = f.remove(&f.admin, "/place/others").await.unwrap();
        f.edit(&name("shrunk"), vec![Edit::DropReplica { se: exacat_model::SeNumber(1), delete: true }])
            .await;
        let Answer::Upload(upload) = f.get(&f.alice, reserve(under("uploaded"), 10, &[DISK])).await else {
            panic!()
        };
        let issue = Operation::TokenIssue {
            user: None,
            scope: Lfn::root(),
            write: true,
            lifetime_seconds: 3600,
            note: "to revoke".to_owned(),
        };
        let Answer::TokenIssued { token, .. } = f.get(&f.alice, issue).await else { panic!() };
        f.get(&f.admin, new_se("X::EMPTY::DISK")).await;
        f.get(&f.admin, new_user("idle")).await;
        f.get(&f.admin, Operation::GroupAdd { name: account("empty") }).await;
        let deletions = Operation::SeDeletions { name: disk(), cursor: Cursor::default(), limit: 0 };
        let Answer::Deletions { items, .. } = f.get(&f.op, deletions).await else { panic!() };
        // The target is of the group physics. Its modes come last, because they may bar the way.
        for path in [name("file"), name("zip"), name("member"), name("set"), DIRECTORY.to_owned()] {
            f.edit(&path, vec![Edit::Group(GroupId(10))]).await;
        }
        f.edit(&name("set"), vec![Edit::Mode(mode(0o777)), Edit::Mode(mode(target.file_mode))]).await;
        if target.directory_mode != 0o777 {
            f.edit(DIRECTORY, vec![Edit::Mode(mode(target.directory_mode))]).await;
        }
        World {
            file,
            archive,
            uploaded: upload.reservation.guid,
            trashed,
            others,
            token: token.id,
            deletion: items[0].id,
            fixture,
        }
    }
}

/// Returns the operation with this name, on the world's target.
pub(crate) fn operation(world: &World, name: &str) -> Operation {
    let cursor = Cursor::default;
    let directory = || lfn(DIRECTORY);
    let file = || under("file");
    let built = match name {
        "whoami" => Operation::Whoami,
        "stat" => Operation::Stat { lfns: vec![file()], follow: false },
        "whereis" => Operation::Whereis { files: vec![FileRef::Lfn(file())], site: None },
        "lfns" => Operation::Lfns { guids: vec![world.file] },
        "list" => Operation::List { lfn: directory(), cursor: cursor(), limit: 0 },
        "find" => Operation::Find {
            lfn: directory(),
            filter: Box::new(Filter::default()),
            cursor: cursor(),
            limit: 0,
        },
        "du" => Operation::Du { lfns: vec![directory()] },
        "mkdir" => Operation::Mkdir { lfns: vec![under("new")], parents: false, mode: None },
        "register" => {
            let mut new = NewFile::named(under("new"));
            new.size = Some(5);
            new.replicas = vec![NewReplica { se: disk(), pfn: None, state: ReplicaState::Available }];
            Operation::Register { files: vec![new], parents: false, existing: Existing::Refuse }
        }
        "link" => Operation::Link { lfn: under("new"), target: file() },
        "set-attributes" => {
            Operation::SetAttributes { lfns: vec![file()], attributes: vec![Attribute::Mode(mode(0o640))] }
        }
        "set-replicas" => {
            let put = NewReplica { se: se_name("X::FNAL::DISK"), pfn: None, state: ReplicaState::Available };
            Operation::SetReplicas { edits: vec![(FileRef::Lfn(file()), vec![ReplicaEdit::Put(put)])] }
        }
        "move" => Operation::Move { from: file(), to: under("new") },
        "remove" => Operation::Remove { lfn: file(), recursive: false, directory: false },
        "trash-list" => Operation::TrashList { cursor: cursor(), limit: 0 },
        "trash-restore" => Operation::TrashRestore { id: world.trashed, to: None },
        "trash-parts" => Operation::TrashParts { cursor: cursor(), limit: 0 },
        "trash-restore-part" => Operation::TrashRestorePart {
            id: world.others,
            lfn: lfn("/place/others/mine"),
            to: Some(under("back")),
        },
        "trash-purge" => Operation::TrashPurge { id: world.trashed, cursor: cursor() },
        "tag-set" => {
            Operation::TagSet { lfns: vec![file()], set: vec![text_tag("run", "7")], unset: Vec::new() }
        }
        "tag-get" => Operation::TagGet { lfns: vec![file()], own: false },
        "collection-create" => Operation::CollectionCreate { lfn: under("new"), tags: Vec::new() },
        "collection-edit" => Operation::CollectionEdit {
            lfn: under("set"),
            add: vec![FileRef::Guid(world.archive)],
            remove: Vec::new(),
        },
        "collection-members" => {
            Operation::CollectionMembers { lfn: under("set"), cursor: cursor(), limit: 0 }
        }
        "archive-members" => Operation::ArchiveMembers {
            archive: FileRef::Lfn(under("zip")),
            under: directory(),
            cursor: cursor(),
            limit: 0,
        },
        "upload-reserve" => reserve(under("new"), 5, &[DISK]),
        "upload-commit" => Operation::UploadCommit {
            guid: world.uploaded,
            se: disk(),
            size: 10,
            checksums: Checksums::none(),
        },
        "upload-abort" => Operation::UploadAbort { guid: world.uploaded, se: None },
        "upload-list" => Operation::UploadList { cursor: cursor(), limit: 0 },
        "se-set" => new_se("X::NEW::DISK"),
        "se-drop" => Operation::SeDrop { name: se_name("X::EMPTY::DISK") },
        "se-list" => Operation::SeList,
        "se-files" => Operation::SeFiles { name: disk(), cursor: cursor(), limit: 0 },
        "se-deletions" => Operation::SeDeletions { name: disk(), cursor: cursor(), limit: 0 },
        "se-deleted" => Operation::SeDeleted { name: disk(), done: vec![world.deletion] },
        "user-set" => new_user("dave"),
        "user-drop" => Operation::UserDrop { name: account("idle") },
        "group-add" => Operation::GroupAdd { name: account("another") },
        "group-drop" => Operation::GroupDrop { name: account("empty") },
        "account-list" => Operation::AccountList,
        "token-issue" => Operation::TokenIssue {
            user: None,
            scope: directory(),
            write: false,
            lifetime_seconds: 60,
            note: "new".to_owned(),
        },
        "token-revoke" => Operation::TokenRevoke { id: world.token },
        "token-list" => Operation::TokenList,
        "quota-set" => Operation::QuotaSet {
            owner: Owner::User(account("alice")),
            files: Some(1000),
            bytes: None,
            replica_bytes: None,
        },
        "quota-get" => Operation::QuotaGet { owners: vec![Owner::User(account("alice"))] },
        "log" => Operation::Log { lfn: file(), cursor: cursor(), limit: 0 },
        "changes" => {
            Operation::Changes { after: Revision(0).into(), under: Some(directory()), limit: 0, wait: false }
        }
        "fsck" => Operation::Fsck,
        "status" => Operation::Status,
        "sessions" => Operation::Sessions,
        "session-kill" => Operation::SessionKill { id: 7 },
        "slow-requests" => Operation::SlowRequests,
        "activity" => Operation::Activity { from: None, to: None, seconds: 60, parts: 1 },
        "throttle-set" => Operation::ThrottleSet { owner: None, items_per_second: Some(100) },
        "throttle-list" => Operation::ThrottleList,
        "feed-create" => Operation::FeedCreate { name: feed_name(), spec: Box::new(feed_spec()) },
        "feed-list" => Operation::FeedList { name: None },
        "feed-control" => Operation::FeedControl { name: feed_name(), action: Box::new(FeedAction::Pause) },
        "drain" => Operation::Drain { resume: false },
        "element-groups" => Operation::ElementGroups,
        "element-group-set" => Operation::ElementGroupSet { group: element_group(), change: Box::default() },
        "element-group-drop" => Operation::ElementGroupDrop { group: element_group() },
        "element-list" => Operation::ElementList { of: elements(), cursor: cursor(), limit: 0 },
        "element-values" => Operation::ElementValues {
            of: elements(),
            at: None,
            fields: Vec::new(),
            cursor: cursor(),
            limit: 0,
        },
        "element-rows" => Operation::ElementRows {
            of: elements(),
            times: (0, 1),
            fields: Vec::new(),
            cursor: cursor(),
            limit: 0,
        },
        "element-aggregates" => Operation::ElementAggregates {
            of: elements(),
            times: (0, 1),
            by: Box::new(AggregateBy { field: None, every: 1, origin: 0, course: Default::default() }),
            cursor: cursor(),
            limit: 0,
        },
        "element-write" => Operation::ElementWrite { group: element_group(), rows: Vec::new() },
        "clock-confirm" => Operation::ClockConfirm,
        "position" => Operation::Position { after: Revision(0).into() },
        "snapshot-create" => Operation::SnapshotCreate { name: snapshot_name("new") },
        "snapshot-list" => Operation::SnapshotList,
        "snapshot-drop" => Operation::SnapshotDrop { name: snapshot_name("old") },
        "snapshot-verify" => Operation::SnapshotVerify { name: snapshot_name("old") },
        "snapshot-diff" => {
            Operation::SnapshotDiff { before: snapshot_name("old"), after: None, cursor: cursor(), limit: 0 }
        }
        "backup" => Operation::Backup { directory: "/backups".to_owned(), cursor: cursor() },
        other => panic!("no example of the operation {other}: add one"),
    };
    assert_eq!(built.name(), name, "the example is of another operation");
    built
}

/// Returns the outcome in a word: `ok`, the number of items where that differs, or the kind of
/// error.
pub(crate) fn outcome(answer: &Result<Answer>) -> String {
    fn each<T>(items: &[Result<T>]) -> String {
        match items {
            [Ok(_)] => "ok".to_owned(),
            [Err(error)] => error.kind.name().to_owned(),
            items => panic!("not one item: {}", items.len()),
        }
    }
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return error.kind.name().to_owned(),
    };
    match answer {
        Answer::EachDone(items) => each(items),
        Answer::Stats(items) => each(items),
        Answer::Whereis(items) => each(items),
        Answer::Lfns(items) => each(items),
        Answer::Usages(items) => each(items),
        Answer::Registered(items) => each(items),
        Answer::Tags(items) => each(items),
        Answer::CollectionEdited { added, refused, .. } => match refused.first() {
            Some((_, error)) => error.kind.name().to_owned(),
            None => format!("ok {added}"),
        },
        Answer::Entries { items, .. } => format!("ok {}", items.len()),
        Answer::Trash { items, .. } => format!("ok {}", items.len()),
        Answer::Members { items, .. } => {
            format!("ok {}", items.iter().filter(|member| member.stat.is_some()).count())
        }
        Answer::Uploads { items, .. } => format!("ok {}", items.len()),
        Answer::ElementGroups(items) => format!("ok {}", items.len()),
        Answer::Elements { items, .. } => format!("ok {}", items.len()),
        Answer::ElementValues { items, .. } => format!("ok {}", items.len()),
        Answer::ElementRows { items, .. } => format!("ok {}", items.len()),
        Answer::ElementAggregates { items, .. } => format!("ok {}", items.len()),
        Answer::ElementsWritten { rows, .. } => format!("ok {rows}"),
        Answer::Ses(items) => format!("ok {}", items.len()),
        Answer::Deletions { items, .. } => format!("ok {}", items.len()),
        Answer::Accounts { users, .. } => format!("ok {}", users.len()),
        Answer::Tokens(items) => format!("ok {}", items.len()),
        Answer::Quotas(items) => format!("ok {}", items.len()),
        Answer::Changes { items, .. } => format!("ok {}", if items.is_empty() { "none" } else { "some" }),
        Answer::Purged { next: None, .. } => "ok".to_owned(),
        Answer::Purged { .. } => "ok, more".to_owned(),
        Answer::Fsck(audit) => format!("ok {}", audit.findings_total),
        Answer::Status(parts) => format!("ok {}", parts.len()),
        Answer::Requests(items) => format!("ok {}", items.len()),
        Answer::Activity(items) => format!("ok {}", items.len()),
        Answer::Throttles(items) => format!("ok {}", items.len()),
        Answer::Feeds(items) => format!("ok {}", items.len()),
        Answer::Snapshots(items) => format!("ok {}", items.len()),
        Answer::SnapshotChecked(check) => format!("ok {}", check.problems.len()),
        Answer::Differences { items, .. } => format!("ok {}", items.len()),
        Answer::BackedUp { next: None, .. } => "ok".to_owned(),
        Answer::BackedUp { .. } => "ok, more".to_owned(),
        Answer::Done { .. }
        | Answer::Whoami { .. }
        | Answer::Removed { .. }
        | Answer::Upload(_)
        | Answer::Snapshot(_)
        | Answer::TokenIssued { .. } => "ok".to_owned(),
    }
}

fn feed_name() -> FeedName {
    FeedName::parse("mirror").unwrap()
}

fn feed_spec() -> FeedSpec {
    FeedSpec {
        sink: "dir:/feeds/mirror".to_owned(),
        under: None,
        kinds: Vec::new(),
        start: FeedStart::Now,
        days: 30,
        bytes: 1 << 30,
        room: 1 << 30,
        copy_when_lost: false,
        after_restore: AfterRestore::Copy,
        allow_private: false,
        secret: None,
    }
}

fn element_group() -> GroupName {
    GroupName::parse("dcs").unwrap()
}

fn elements() -> Box<ElementsOf> {
    Box::new(ElementsOf { group: element_group(), pattern: String::new() })
}
