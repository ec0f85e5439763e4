//! Digests: equal for equal content, different after any change that an export holds, with the
//! differences named.

use std::sync::Arc;

use crate::exporting::rich;
use crate::support::{Direct, Fixture, lfn, se_name};
use exacat_exchange::digest::{Comparison, Difference, DigestReport, Subtree, compare, digest, file};
use exacat_exchange::export::{ExportOptions, export_file};
use exacat_model::operation::{Attribute, Existing, NewFile, NewReplica, ReplicaEdit};
use exacat_model::{
    AccountName, Checksum, FileRef, Guid, Mode, Operation, ReplicaState, Tag, TagKey, TagValue, TimeMs,
};

async fn digests(catalogue: &Arc<Direct>, under: &str) -> (DigestReport, Vec<Subtree>) {
    let mut all = Vec::new();
    let keep = |subtree: &Subtree| {
        all.push(subtree.clone());
        Ok(())
    };
    let report = digest(&**catalogue, &lfn(under), keep, |_| {}).await.unwrap();
    assert_eq!(all.last(), Some(&report.root));
    assert_eq!(all.len() as u64, report.directories);
    (report, all)
}

fn compared(here: &[Subtree], there: &[Subtree]) -> Comparison {
    fn each(all: &[Subtree]) -> impl Iterator<Item = Result<Subtree, ()>> {
        all.iter().cloned().map(Ok)
    }
    compare(each(here), each(there)).unwrap()
}

fn named(comparison: &Comparison) -> Vec<String> {
    let named = |difference: &Difference| match difference {
        Difference::Entries(here, _) => format!("~{}", here.lfn),
        Difference::OnlyHere(here) => format!("+{}", here.lfn),
        Difference::OnlyThere(there) => format!("-{}", there.lfn),
    };
    comparison.differences.iter().map(named).collect()
}

/// Goal: an export imported elsewhere, where every number differs, has the same digest.
#[tokio::test]
async fn a_copy_has_the_same_digest() {
    let catalogue = rich().await;
    let (report, all) = digests(&catalogue, "/").await;
    assert_eq!((report.members, report.root.lfn.as_str()), (6, "/"));
    let fixture = Fixture::new("none", "");
    let saved = fixture.path("saved.tsv");
    let exported = export_file(&*catalogue, &saved, &ExportOptions::default(), |_| {}).await.unwrap();
    assert_eq!(report.root.entries, exported.entries);
    let copy = Direct::new().await;
    // Here other storage elements and users came first.
    copy.se("Z", "root://z").await;
    copy.user("zoe").await;
    let fixture = Fixture { listing: saved, ..fixture };
    let imported = fixture.import(&copy, &fixture.options(|options| options.restore = true)).await;
    assert_eq!(imported.rejected, 0);
    let (of_copy, all_of_copy) = digests(&copy, "/").await;
    assert_eq!(named(&compared(&all, &all_of_copy)), [""; 0]);
    assert_eq!(of_copy.root, report.root);
    // The place of a tree does not matter.
    let (below, _) = digests(&catalogue, "/odd").await;
    catalogue.ask(Operation::Move { from: lfn("/odd"), to: lfn("/elsewhere") }).await;
    let (moved, _) = digests(&catalogue, "/elsewhere").await;
    assert_eq!((below.root.whole, below.root.entries), (moved.root.whole, moved.root.entries));
    assert_ne!(digests(&catalogue, "/").await.0.root.whole, report.root.whole);
}

/// Goal: for any change of an entry, its directory is named, and no other.
#[tokio::test]
async fn every_change_is_seen_and_named() {
    let catalogue = Direct::with_ses(&["A", "B"]).await;
    catalogue.user("alice").await;
    let mut files = Vec::new();
    for (path, number) in [("/d/e/f", 1), ("/d/e/g", 2), ("/d/x/y", 3), ("/d-e/f", 4)] {
        let mut new = NewFile::named(lfn(path));
        new.guid = Some(Guid([number; 16]));
        new.replicas.push(NewReplica { se: se_name("A"), pfn: None, state: ReplicaState::Available });
        files.push(new);
    }
    catalogue.ask(Operation::Register { files, parents: true, existing: Existing::Refuse }).await;
    catalogue.ask(Operation::CollectionCreate { lfn: lfn("/d/x/c"), tags: Vec::new() }).await;
    let file = || vec![FileRef::Lfn(lfn("/d/e/f"))];
    let set = |attribute| Operation::SetAttributes { lfns: vec![lfn("/d/e/f")], attributes: vec![attribute] };
    let replica = |edit| Operation::SetReplicas { edits: vec![(file()[0].clone(), vec![edit])] };
    let tag = |value| Tag { key: TagKey::parse("k").unwrap(), value };
    let alice = AccountName::parse("alice").unwrap();
    let tagged =
        |value| Operation::TagSet { lfns: vec![lfn("/d/e/f")], set: vec![tag(value)], unset: vec![] };
    let on_b = NewReplica { se: se_name("B"), pfn: None, state: ReplicaState::Available };
    let steps: Vec<(Operation, &[&str])> = vec![
        (set(Attribute::Owner(alice.clone())), &["~/d/e"]),
        (set(Attribute::Group(alice)), &["~/d/e"]),
        (set(Attribute::Mode(Mode::new(0o600).unwrap())), &["~/d/e"]),
        (set(Attribute::Modified(TimeMs(77))), &["~/d/e"]),
        (set(Attribute::Expires(Some(TimeMs(4_000_000_000_000)))), &["~/d/e"]),
        (set(Attribute::Size(5)), &["~/d/e"]),
        (set(Attribute::Checksum(Checksum::parse("adler32:00000001").unwrap())), &["~/d/e"]),
        (set(Attribute::Job(Some(9))), &["~/d/e"]),
        (tagged(TagValue::Integer(1)), &["~/d/e"]),
        (tagged(TagValue::Text("1".into())), &["~/d/e"]),
        (replica(ReplicaEdit::Put(on_b)), &["~/d/e"]),
        (replica(ReplicaEdit::State(se_name("B"), ReplicaState::Suspect)), &["~/d/e"]),
        (Operation::CollectionEdit { lfn: lfn("/d/x/c"), add: file(), remove: Vec::new() }, &["~/d/x"]),
        (Operation::Link { lfn: lfn("/d/l"), target: lfn("/d") }, &["~/d"]),
        (Operation::Move { from: lfn("/d/e/g"), to: lfn("/d/e/h") }, &["~/d/e"]),
        (
            Operation::Mkdir { lfns: vec![lfn("/d/new/below")], parents: true, mode: None },
            &["-/d/new", "~/d"],
        ),
        (Operation::Move { from: lfn("/d/x"), to: lfn("/z") }, &["+/d/x", "~/d", "-/z", "~/"]),
        (Operation::Remove { lfn: lfn("/d-e"), recursive: true, directory: false }, &["+/d-e", "~/"]),
    ];
    let mut before = digests(&catalogue, "/").await.1;
    for (operation, expected) in steps {
        let text = format!("{operation:?}");
        catalogue.ask(operation).await;
        let after = digests(&catalogue, "/").await.1;
        assert_eq!(named(&compared(&before, &after)), expected, "{text}");
        assert_ne!(before.last(), after.last(), "{text}");
        before = after;
    }
}

/// Goal: a file of digests reads back as written, and any other file is refused.
#[tokio::test]
async fn digests_are_kept_in_files() {
    let catalogue = rich().await;
    let (report, all) = digests(&catalogue, "/odd").await;
    let mut bytes = Vec::new();
    file::write_head(&mut bytes, &report.root.lfn).unwrap();
    all.iter().for_each(|subtree| file::write_subtree(&mut bytes, subtree).unwrap());
    let reader = file::Reader::open(&bytes[..]).unwrap();
    assert_eq!(reader.under, lfn("/odd"));
    let read: Vec<Subtree> = reader.map(Result::unwrap).collect();
    assert_eq!(read, all);
    let text = String::from_utf8(bytes).unwrap();
    let cut = &text[..text.len() - 3];
    assert!(file::Reader::open(cut.as_bytes()).unwrap().any(|subtree| subtree.is_err()));
    for bad in ["", "nothing", "#exacat {\"digests\":2,\"under\":\"/\"}\n", "#exacat {\"digests\":1}\n"] {
        assert!(file::Reader::open(bad.as_bytes()).is_err(), "{bad}");
    }
    for bad in ["x\n", "00\t00\t1\t/a\n"] {
        let text = format!("#exacat {{\"digests\":1,\"under\":\"/\"}}\n{bad}");
        assert!(file::Reader::open(text.as_bytes()).unwrap().all(|subtree| subtree.is_err()), "{bad}");
    }
}
