//! Export, import into an empty catalogue, export again: the same bytes, whatever the names.

use std::sync::Arc;

use crate::support::{Direct, Fixture, assert_same_lines, lfn, se_name};
use exacat_exchange::ImportOptions;
use exacat_exchange::columns::Columns;
use exacat_exchange::export::{ExportOptions, export_file};
use exacat_exchange::input::Compression;
use exacat_exchange::records::Format;
use exacat_model::operation::{Attribute, Existing, NewFile, NewReplica, ReplicaEdit};
use exacat_model::{
    AccountName, Answer, Checksum, FileRef, Filter, Guid, Kind, Mode, Operation, Pfn, ReplicaState, Tag,
    TagKey, TagValue, TimeMs,
};

/// Names that some format, escape or decoder could damage.
fn odd_names() -> Vec<String> {
    let mut names: Vec<String> = [
        " ",
        " leading and trailing ",
        "tab\there",
        "new\nline",
        "carriage\rreturn",
        "crlf\r\n",
        "back\\slash",
        "\\t",
        "\\",
        "\"quoted\"",
        "\"",
        "a,b",
        ",",
        "a|b",
        "a;b=c",
        "%3f",
        "%",
        "?C=D;O=A&x#y",
        "żółć-łódź",
        "e\u{301}",
        "\u{e9}",
        "\u{1F980}",
        "\u{feff}bom",
        "\u{1}\u{1f}\u{7f}\u{85}",
        "#exacat {}",
        "{\"lfn\":1}",
        "lfn",
        "...",
        "-",
        "=",
        "null",
        "guid:",
        "'single'",
        "`$(x)`",
    ]
    .map(str::to_owned)
    .into();
    names.push("x".repeat(255));
    names.push("ż".repeat(127));
    names
}

/// Makes a catalogue that contains everything that an export can hold.
pub(crate) async fn rich() -> Arc<Direct> {
    let catalogue = Direct::with_ses(&["VO::SITE::A", "B", "C"]).await;
    catalogue.user("alice").await;
    let mut files = Vec::new();
    for (index, name) in odd_names().into_iter().enumerate() {
        let directory = lfn("/odd").join(&exacat_model::Name::parse(&name).unwrap());
        let mut file = NewFile::named(directory.join(&exacat_model::Name::parse(&name).unwrap()));
        file.guid = Some(Guid([index as u8 + 1; 16]));
        file.size = (index % 3 != 0).then_some(1 << index);
        if index % 2 == 0 {
            file.checksums.add(Checksum::parse("adler32:00000001").unwrap()).unwrap();
            file.checksums.add(Checksum::parse("md5:d41d8cd98f00b204e9800998ecf8427e").unwrap()).unwrap();
        }
        file.replicas.push(NewReplica { se: se_name("B"), pfn: None, state: ReplicaState::Available });
        if let Ok(pfn) = Pfn::parse(&format!("root://c//{name}")) {
            file.replicas.push(NewReplica { se: se_name("C"), pfn: Some(pfn), state: ReplicaState::Suspect });
        }
        file.tags = vec![
            Tag { key: TagKey::parse("int").unwrap(), value: TagValue::Integer(index as i64 - 5) },
            Tag { key: TagKey::parse("name").unwrap(), value: TagValue::Text(name.clone()) },
            Tag { key: TagKey::parse("real").unwrap(), value: TagValue::Real(0.1 * index as f64) },
            Tag { key: TagKey::parse("time").unwrap(), value: TagValue::Time(TimeMs(1_414_153_225_001)) },
            Tag { key: TagKey::parse("truth").unwrap(), value: TagValue::Boolean(index % 2 == 0) },
            Tag { key: TagKey::parse("typed").unwrap(), value: TagValue::Text("12".into()) },
        ];
        file.owner = (index % 4 == 1).then(|| AccountName::parse("alice").unwrap());
        file.mode = Some(Mode::new(0o600 + index as u16 % 8).unwrap());
        file.modified = Some(TimeMs(1_000_000_000_000 + index as u64));
        file.expires = (index % 5 == 0).then_some(TimeMs(4_000_000_000_000));
        file.job = (index % 7 == 0).then_some(u64::MAX - 1);
        files.push(file);
    }
    // Archives come after, between and before their members.
    for (archive, member, number) in
        [("/z/archive.zip", "/a/in z", 201), ("/m/m.zip", "/m/a", 202), ("/a.zip", "/b", 203)]
    {
        let mut file = NewFile::named(lfn(archive));
        file.guid = Some(Guid([number; 16]));
        file.size = Some(1000);
        file.replicas.push(NewReplica { se: se_name("B"), pfn: None, state: ReplicaState::Available });
        files.push(file);
        let mut file = NewFile::named(lfn(member));
        file.guid = Some(Guid([number + 10; 16]));
        file.member_of = Some((FileRef::Lfn(lfn(archive)), format!("dir/{number}|;\\ name?ZIP=x")));
        files.push(file);
    }
    let answer =
        catalogue.ask(Operation::Register { files, parents: true, existing: Existing::Refuse }).await;
    let Answer::Registered(items) = answer else { panic!("{answer:?}") };
    assert!(items.iter().all(Result::is_ok), "{items:?}");

    let lost = ReplicaEdit::State(se_name("B"), ReplicaState::Lost);
    catalogue
        .ask(Operation::SetReplicas { edits: vec![(FileRef::Lfn(lfn("/odd/lfn/lfn")), vec![lost])] })
        .await;
    catalogue.ask(Operation::Mkdir { lfns: vec![lfn("/empty/below")], parents: true, mode: None }).await;
    let attributes = vec![
        Attribute::Owner(AccountName::parse("alice").unwrap()),
        Attribute::Group(AccountName::parse("alice").unwrap()),
        Attribute::Mode(Mode::new(0o700).unwrap()),
        Attribute::Modified(TimeMs(5)),
        Attribute::Expires(Some(TimeMs(5_000_000_000_000))),
    ];
    catalogue.ask(Operation::SetAttributes { lfns: vec![lfn("/empty")], attributes }).await;
    let tag = |text: &str| Tag::parse(text).unwrap();
    catalogue
        .ask(Operation::TagSet { lfns: vec![lfn("/odd")], set: vec![tag("k=v;w|x")], unset: vec![] })
        .await;
    // Collections before and after their members; links to existing and missing targets.
    for collection in ["/0 collection", "/zz", "/zzz empty"] {
        catalogue.ask(Operation::CollectionCreate { lfn: lfn(collection), tags: vec![tag("n=1")] }).await;
    }
    for collection in ["/0 collection", "/zz"] {
        let add = vec![
            FileRef::Lfn(lfn("/odd/\"/\"")),
            FileRef::Lfn(lfn("/a/in z")),
            FileRef::Lfn(lfn("/odd/lfn/lfn")),
        ];
        let answer =
            catalogue.ask(Operation::CollectionEdit { lfn: lfn(collection), add, remove: vec![] }).await;
        assert!(matches!(answer, Answer::CollectionEdited { added: 3, .. }), "{answer:?}");
    }
    catalogue.ask(Operation::Link { lfn: lfn("/link"), target: lfn("/odd/lfn") }).await;
    catalogue.ask(Operation::Link { lfn: lfn("/dangling"), target: lfn("/no\twhere") }).await;
    catalogue
}

#[tokio::test]
async fn an_export_gives_everything_back_in_every_format() {
    let catalogue = rich().await;
    for format in Format::ALL {
        for compression in Compression::ALL {
            let options = ExportOptions { format, compression, ..ExportOptions::default() };
            let fixture = Fixture::new("none", "").into_file(&format!("export.{}", format.name()));
            let report = export_file(&*catalogue, &fixture.listing, &options, |_| {}).await.unwrap();
            assert_eq!(report.members, 6);

            let copy = Direct::new().await;
            let restore = fixture.options(|options| {
                options.restore = true;
                options.batch_rows = 7;
            });
            let imported = fixture.import(&copy, &restore).await;
            assert_eq!(imported.rejected + imported.partial, 0, "{format:?}: {:?}", imported.rejects_shown);
            assert_eq!(imported.rows, report.entries + report.members);
            assert_same_lines(&copy.dump().await, &catalogue.dump().await, &(format, compression));
            copy.check().await;

            let verified = fixture.verify(&copy, &restore).await;
            assert!(verified.holds() && verified.same == imported.rows, "{format:?}: {:?}", verified.shown);
            let again = fixture.import(&copy, &restore).await;
            assert!(again.changed_nothing(), "{format:?}: {again:?}");
        }
    }
}

impl Fixture {
    fn into_file(self, name: &str) -> Fixture {
        let listing = self.path(name);
        Fixture { listing, ..self }
    }
}

#[tokio::test]
async fn an_export_is_in_the_order_of_find_and_of_what_is_asked_for() {
    let catalogue = Direct::new().await;
    let fixture = Fixture::new("listing", "/b/1\n/a/z\n/a/b/c\n/a.x\n/a b\n");
    fixture.import(&catalogue, &ImportOptions::default()).await;
    let plain = ExportOptions {
        full: false,
        header: false,
        columns: Some(crate::support::columns_of("lfn")),
        ..ExportOptions::default()
    };
    // Depth first, names by their bytes: the content of /a comes before /a.x.
    let (text, report) = catalogue.export(&plain).await;
    assert_eq!(text, "/a/\n/a/b/\n/a/b/c\n/a/z\n/a b\n/a.x\n/b/\n/b/1\n");
    assert_eq!((report.entries, report.files, report.bytes), (8, 5, text.len() as u64));
    let files = ExportOptions {
        under: lfn("/a"),
        header: true,
        filter: Filter { kinds: vec![Kind::File], ..Filter::default() },
        ..plain.clone()
    };
    assert_eq!(catalogue.export(&files).await.0, "lfn\n/a/b/c\n/a/z\n");
    // A list of only names can be imported without columns.
    let copy = Direct::new().await;
    let fixture = Fixture::new(
        "names",
        catalogue.export(&ExportOptions { under: lfn("/"), header: false, ..files }).await.0,
    );
    assert_eq!(fixture.import(&copy, &ImportOptions::default()).await.counts.created, 5);
    for bad in ["collection", "ignore"] {
        let options = ExportOptions { columns: Some(crate::support::columns_of(bad)), ..plain.clone() };
        let refused =
            exacat_exchange::export::export(&*catalogue, Box::new(Vec::new()), &options, |_| {}).await;
        assert!(refused.is_err());
    }
}

#[tokio::test]
async fn a_listing_comes_back_as_it_went_in() {
    let listing = "lfn\tsize\tchecksum\tpfn\n/eos/a/1\t5\tadler32:00000001\t=\n/eos/a/2\t\t\troot://eos.example:1094//eos/a/2\n/eos/b\t7\tsha1:fd7b1361307ab21b6cc2ca3434471fb6c21b56b6\t=\n";
    let catalogue = Direct::new().await;
    let fixture = Fixture::new("listing.tsv", listing);
    let options = fixture.options(|options| {
        options.listing.se = Some(se_name("EOS"));
        options.listing.se_auto = true;
        options.listing.pfn_same = Some("root://eos.example/".into());
    });
    let report = fixture.import(&catalogue, &options).await;
    assert_eq!((report.counts.created, report.counts.ses_registered, report.rejected), (3, 1, 0));
    let back = ExportOptions {
        full: false,
        columns: Some(crate::support::columns_of("lfn,size,checksum,pfn")),
        filter: Filter { kinds: vec![Kind::File], ..Filter::default() },
        pfn_same: Some("root://eos.example/".into()),
        ..ExportOptions::default()
    };
    assert_eq!(catalogue.export(&back).await.0, listing);
    let wrong = listing
        .replace("sha1:fd7b", "sha1:0d7b")
        .replace("\t5\t", "\t6\t")
        .replace("/eos/a/2\t", "/eos/a/3\t");
    let fixture = Fixture::new("listing.tsv", wrong);
    let verified = fixture.verify(&catalogue, &options).await;
    let what: Vec<_> = verified.shown.iter().map(|difference| (difference.line, difference.what)).collect();
    assert_eq!(what, [(2, "size"), (3, "missing"), (4, "checksum")]);
    assert_eq!((verified.same, verified.different, verified.missing), (0, 2, 1));
}

#[tokio::test]
async fn what_a_verification_finds_is_written_down() {
    let catalogue = Direct::with_ses(&["A", "B"]).await;
    let before = "kind\tlfn\tsize\treplicas\ttags\tmode\ttarget\nfile\t/f\t5\tA=root://a/1|B/lost\tx=1\t600\t\nlink\t/l\t\t\t\t\t/f\ncollection\t/c\t\t\t\t\t\n";
    let after = "kind\tlfn\tsize\treplicas\ttags\tmode\ttarget\tcollection\nfile\t/f\t\tA=root://a/2|B\tx=2;y=1\t644\t\t/c\nlink\t/l\t\t\t\t\t/g\t\ncollection\t/d\t\t\t\t\t\t\ndirectory\t/f\t\t\t\t\t\t\n";
    Fixture::new("before.tsv", before).import(&catalogue, &ImportOptions::default()).await;
    let fixture = Fixture::new("after.tsv", after);
    let differences = fixture.path("differences.tsv");
    let options = exacat_exchange::ListingOptions::default();
    let report = exacat_exchange::verify(
        Arc::clone(&catalogue),
        &fixture.listing,
        &options,
        Some(&differences),
        |_| {},
    )
    .await
    .unwrap();
    assert_eq!((report.same, report.different, report.missing, report.rejected), (0, 2, 1, 1));
    assert_eq!(
        std::fs::read_to_string(differences).unwrap(),
        "line\tlfn\twhat\tgiven\tfound\n\
         2\t/f\tmode\t644\t600\n\
         2\t/f\ttag\tx=2\tx=1\n\
         2\t/f\tpfn\troot://a/2\troot://a/1\n\
         2\t/f\tstate\tB available\tlost\n\
         2\t/f\tmember\t/c\tno member\n\
         2\t/f\ttag\ty=1\t\n\
         3\t/l\ttarget\t/g\t/f\n\
         4\t/d\tmissing\tan entry\t/d is not there\n"
    );
}

/// Random rows read back as written.
#[tokio::test]
async fn rows_written_are_the_rows_read() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let odd = odd_names();
    for round in 0..6 {
        let catalogue = Direct::with_ses(&["A", "B"]).await;
        let mut files = Vec::new();
        let mut names = std::collections::HashSet::new();
        for _ in 0..60 {
            let name: String = (0..1 + random(3)).map(|_| odd[random(odd.len() - 2)].as_str()).collect();
            let mut file = NewFile::named(lfn("/r").join(&exacat_model::Name::parse(&name).unwrap()));
            if !names.insert(name) {
                continue;
            }
            file.size = (random(2) == 0).then(|| random(1 << 40) as u64);
            for text in [&odd[random(odd.len())], &odd[random(odd.len())]] {
                let pfn = Pfn::parse(&format!("x://{text}")).ok();
                let se = se_name(["A", "B"][file.replicas.len().min(1)]);
                file.replicas.push(NewReplica { se, pfn, state: ReplicaState::ALL[random(4)] });
                let key = TagKey::parse(&format!("k{}", file.tags.len())).unwrap();
                file.tags.push(Tag { key, value: TagValue::Text((*text).clone()) });
            }
            files.push(file);
        }
        let count = files.len() as u64;
        let answer =
            catalogue.ask(Operation::Register { files, parents: true, existing: Existing::Refuse }).await;
        let Answer::Registered(items) = answer else { panic!("{answer:?}") };
        assert!(items.iter().all(Result::is_ok), "{items:?}");
        let format = Format::ALL[round % 3];
        let options = ExportOptions { format, ..ExportOptions::default() };
        let fixture = Fixture::new("rows", catalogue.export(&options).await.0);
        let copy = Direct::new().await;
        let options = fixture.options(|options| options.restore = true);
        let report = fixture.import(&copy, &options).await;
        assert_eq!((report.counts.created, report.rejected), (count + 1, 0), "{:?}", report.rejects_shown);
        assert_same_lines(&copy.dump().await, &catalogue.dump().await, &(round, format));
    }
}

#[tokio::test]
async fn an_export_that_fails_leaves_nothing_behind() {
    let catalogue = Direct::new().await;
    let fixture = Fixture::new("listing", "/a\n");
    fixture.import(&catalogue, &ImportOptions::default()).await;
    let target = fixture.path("export.tsv");
    let options = ExportOptions { under: lfn("/nowhere"), ..ExportOptions::default() };
    assert!(export_file(&*catalogue, &target, &options, |_| {}).await.is_err());
    assert!(!target.exists() && std::fs::read_dir(fixture.directory.path()).unwrap().count() == 1);
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::Error::new(std::io::ErrorKind::StorageFull, "no space"))
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let refused =
        exacat_exchange::export::export(&*catalogue, Box::new(Full), &ExportOptions::default(), |_| {}).await;
    assert!(refused.unwrap_err().to_string().contains("no space"));
    // A plain export can be imported with its columns named.
    let options = ExportOptions { full: false, header: false, ..ExportOptions::default() };
    let (text, _) = catalogue.export(&options).await;
    let copy = Direct::new().await;
    let fixture = Fixture::new("plain", text);
    let named: Vec<String> =
        "kind,lfn,guid,size,checksum,owner,group,mode,mtime,expires,job,replicas,tags,target"
            .split(',')
            .map(str::to_owned)
            .collect();
    let options = fixture.options(|options| {
        options.listing.columns = Some(Columns::parse(&named.join(",")).unwrap());
        options.listing.escapes = Some(true);
    });
    assert_eq!(fixture.import(&copy, &options).await.counts.created, 1);
    assert_same_lines(&copy.dump().await, &catalogue.dump().await, &"plain");
}

#[tokio::test]
async fn plain_export_comes_back_as_files_and_directories_and_says_what_it_leaves_out() {
    let catalogue = Direct::with_ses(&["Z", "A"]).await;
    let listing = "kind\tlfn\tsize\treplicas\ttarget\n\
        directory\t/empty\t\t\t\nfile\t/d/f\t5\tZ=root://z//f|A=root://a//f|\t\n\
        file\t/d/lost\t6\tA/lost=root://a//lost\t\nlink\t/link\t\t\t/d/f\ncollection\t/set\t\t\t\n";
    Fixture::new("in.tsv", listing).import(&catalogue, &ImportOptions::default()).await;
    let plain = |columns: &str| ExportOptions {
        full: false,
        columns: Some(crate::support::columns_of(columns)),
        ..ExportOptions::default()
    };
    let (text, report) = catalogue.export(&plain("lfn,size,checksum,pfn")).await;
    assert_eq!(
        text,
        "lfn\tsize\tchecksum\tpfn\n/d/\t\t\t\n/d/f\t5\t\troot://a//f\n/d/lost\t6\t\t\n/empty/\t\t\t\n"
    );
    assert_eq!((report.entries, report.notes.len()), (4, 4), "{:?}", report.notes);
    for (note, part) in report.notes.iter().zip(["1 link", "1 collection", "have more replicas", "lost"]) {
        assert!(note.contains(part), "{note}");
    }
    let copy = Direct::with_ses(&["A"]).await;
    let fixture = Fixture::new("out.tsv", &text);
    let options = fixture.options(|options| options.listing.se = Some(se_name("A")));
    let imported = fixture.import(&copy, &options).await;
    assert_eq!((imported.counts.created, imported.rejected), (4, 0), "{:?}", imported.rejects_shown);
    assert_eq!(copy.export(&plain("lfn,size,checksum,pfn")).await.0, text);
    assert_eq!(copy.stat("/empty").await.unwrap().entry.kind(), Kind::Directory);

    // A user who filters by kind, or has the columns for it, gets the entries.
    let (text, report) = catalogue.export(&plain("kind,lfn,replicas,target")).await;
    assert!(text.contains("link\t/link\t\t/d/f\n") && text.contains("directory\t/d\t"), "{text}");
    assert_eq!(report.notes, Vec::<String>::new());
    let links =
        ExportOptions { filter: Filter { kinds: vec![Kind::Link], ..Filter::default() }, ..plain("lfn") };
    assert_eq!(catalogue.export(&links).await.0, "lfn\n/link\n");
}

/// The order of the registration of storage elements decides their numbers, and nothing in an
/// export.
#[tokio::test]
async fn export_of_an_imported_export_is_the_same_whatever_order_ses_were_registered_in() {
    let catalogue = Direct::with_ses(&["Z", "M", "A"]).await;
    let listing = "lfn\treplicas\n/f\tZ|A=root://a//1|M/lost\n";
    Fixture::new("in.tsv", listing).import(&catalogue, &ImportOptions::default()).await;
    for format in Format::ALL {
        let options = ExportOptions { format, ..ExportOptions::default() };
        let (text, _) = catalogue.export(&options).await;
        let copy = Direct::new().await;
        let fixture = Fixture::new(&format!("out.{}", format.name()), &text);
        let restore = fixture.options(|options| options.restore = true);
        assert_eq!(fixture.import(&copy, &restore).await.rejected, 0);
        assert_same_lines(&copy.export(&options).await.0, &text, &format);
    }
    assert!(catalogue.dump().await.contains("A=root://a//1|M/lost|Z"));
}
