//! Exports as tables: what is in them, that they are proven, and that damage is noticed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_analytics::{Checked, Table, TablesOptions, TablesReport, check, export};
use exacat_columnar::{TableReader, TableRows};
use exacat_exchange::Catalogue;
use exacat_exchange::digest::digest;
use exacat_exchange::generate::generate;
use exacat_exchange::local::Local;
use exacat_exchange::output_directory::OutputDirectory;
use exacat_exchange::tree::TreeSettings;
use exacat_model::operation::{Attribute, Existing, NewFile, NewReplica, ReplicaEdit};
use exacat_model::{
    Answer, Checksum, FileRef, Filter, Guid, Lfn, LogPosition, Operation, OperationId, Pfn, ReplicaState,
    Revision, SeName, Tag, TagKey, TagValue, TimeMs,
};
use exacat_store::SystemClock;
use exacat_store_embedded::{EmbeddedSettings, EmbeddedStore, LoadSettings};

fn lfn(path: &str) -> Lfn {
    Lfn::parse(path).unwrap()
}

/// A catalogue on disk, opened in this process.
struct OnDisk {
    place: tempfile::TempDir,
    local: Arc<Local>,
}

impl OnDisk {
    async fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let settings =
            EmbeddedSettings { archive: false, ..EmbeddedSettings::at(place.path().join("store")) };
        let store = EmbeddedStore::open(settings, Arc::new(SystemClock)).unwrap();
        let local = Local::open(store, Arc::new(SystemClock), LoadSettings::default()).await.unwrap();
        OnDisk { place, local }
    }

    async fn ask(&self, operation: Operation) -> Answer {
        let answer = self
            .local
            .call(operation.clone())
            .await
            .unwrap_or_else(|error| panic!("{error} of {operation:?}"));
        if let Answer::EachDone(items) = &answer {
            assert!(items.iter().all(Result::is_ok), "{items:?} of {operation:?}");
        }
        answer
    }

    /// Makes entries of every kind, with the values that are hard to keep.
    async fn fill(&self) {
        let settings = TreeSettings { seed: 3, entries: 1500, root: lfn("/demo") };
        generate(Arc::clone(&self.local), &settings, |_| {}).await.unwrap();
        let se = SeName::parse("DEMO::FZK::SE").unwrap();
        let mut files = Vec::new();
        for (index, name) in
            ["plain", "tab\there", "new\nline", "\u{202e}right", "quote\"'`"].iter().enumerate()
        {
            let directory = lfn("/odd").join(&exacat_model::Name::parse(name).unwrap());
            let mut file = NewFile::named(directory.join(&exacat_model::Name::parse(name).unwrap()));
            file.guid = Some(Guid([index as u8 + 1; 16]));
            file.size = (index != 1).then_some((1 << 60) >> (12 * index));
            file.job = (index == 2).then_some(u64::MAX - 1);
            file.checksums.add(Checksum::parse("adler32:00000001").unwrap()).unwrap();
            file.checksums.add(Checksum::parse("md5:d41d8cd98f00b204e9800998ecf8427e").unwrap()).unwrap();
            let pfn = Some(Pfn::parse("root://other.example.org//x?y=z").unwrap()).filter(|_| index % 2 == 0);
            file.replicas.push(NewReplica { se: se.clone(), pfn, state: ReplicaState::Suspect });
            file.tags = vec![
                Tag { key: TagKey::parse("int").unwrap(), value: TagValue::Integer(i64::MIN) },
                Tag { key: TagKey::parse("real").unwrap(), value: TagValue::Real(-0.0) },
                Tag { key: TagKey::parse("text").unwrap(), value: TagValue::Text("12".to_owned()) },
                Tag { key: TagKey::parse("time").unwrap(), value: TagValue::Time(TimeMs(1_414_153_225_001)) },
            ];
            file.expires = Some(TimeMs(u64::MAX)).filter(|_| index == 3);
            files.push(file);
        }
        let register = Operation::Register { files, parents: true, existing: Existing::Refuse };
        let Answer::Registered(items) = self.ask(register).await else { panic!() };
        assert!(items.iter().all(Result::is_ok), "{items:?}");
        self.ask(Operation::CollectionCreate { lfn: lfn("/0 set"), tags: Vec::new() }).await;
        self.ask(Operation::CollectionCreate { lfn: lfn("/zz empty"), tags: Vec::new() }).await;
        let add = (1..=4).map(|number| FileRef::Guid(Guid([number; 16]))).collect();
        self.ask(Operation::CollectionEdit { lfn: lfn("/0 set"), add, remove: Vec::new() }).await;
        self.ask(Operation::Link { lfn: lfn("/dangling"), target: lfn("/no\twhere") }).await;
        self.ask(Operation::Mkdir { lfns: vec![lfn("/empty/below")], parents: true, mode: None }).await;
    }

    fn out(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    async fn export(&self, name: &str, options: &TablesOptions) -> TablesReport {
        let output = OutputDirectory::create(&self.out(name)).unwrap();
        let report = export(&*self.local, &output, options, |_| {}).await.unwrap();
        output.finish().unwrap();
        report
    }
}

fn options(tables: &[Table]) -> TablesOptions {
    TablesOptions {
        under: Lfn::root(),
        filter: Filter::default(),
        tables: tables.to_vec(),
        after: LogPosition::from(Revision(0)),
        catalogue: Some("the-catalogue".to_owned()),
    }
}

/// Calls `each` with the rows of a table.
fn each_row(directory: &Path, table: Table, mut each: impl FnMut(&TableRows, usize)) {
    let mut reader = TableReader::open(&directory.join(table.file_name()), table.columns()).unwrap();
    while let Some(rows) = reader.next_rows().unwrap() {
        (0..rows.len()).for_each(|row| each(&rows, row));
    }
}

fn column(table: Table, name: &str) -> usize {
    table.columns().iter().position(|column| column.name == name).unwrap()
}

/// An export is proven: its digest is that of the catalogue, and a check computes it from the rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn export_has_the_digest_of_the_catalogue() {
    let catalogue = OnDisk::new().await;
    catalogue.fill().await;
    for under in ["/", "/odd", "/demo/data", "/empty"] {
        let wanted = digest(&*catalogue.local, &lfn(under), |_| Ok(()), |_| {}).await.unwrap();
        let name = format!("of{}", under.replace('/', "-"));
        let report =
            catalogue.export(&name, &TablesOptions { under: lfn(under), ..options(&Table::ALL) }).await;
        assert_eq!(
            (report.digest, report.entries),
            (Some(wanted.root.whole), wanted.root.entries),
            "{under}"
        );
        assert_eq!(report.position.revision, report.end);
        let checked = check(&catalogue.out(&name)).unwrap();
        assert_eq!(checked.problems, Vec::<String>::new(), "{under}");
        assert_eq!(checked.digest, report.digest, "{under}");
        assert_eq!(checked.under, Some(lfn(under)));
        assert_eq!(checked.catalogue.as_deref(), Some("the-catalogue"));
        assert_eq!(checked.revision, Some(report.position.revision.0));
        let rows: Vec<(Table, u64)> = report.tables.iter().map(|(table, file)| (*table, file.rows)).collect();
        assert_eq!(checked.tables, rows, "{under}");
    }
}

/// The table of usage has what `du` answers, for every directory, and it adds up to its accounts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_is_that_of_du() {
    let catalogue = OnDisk::new().await;
    catalogue.fill().await;
    catalogue.export("out", &options(&[Table::Usage])).await;
    let mut found = BTreeMap::new();
    each_row(&catalogue.out("out"), Table::Usage, |rows, row| {
        let key = (rows.text(0, row).unwrap().to_owned(), rows.text(1, row).unwrap().to_owned());
        let counts: Vec<i128> = (2..7).map(|at| i128::from(rows.long(at, row).unwrap())).collect();
        let bytes = (7..10).map(|at| rows.large(at, row).unwrap());
        assert!(found.insert(key, counts.into_iter().chain(bytes).collect::<Vec<i128>>()).is_none());
    });
    let directories: Vec<Lfn> =
        found.keys().filter(|(of, _)| of == "directory").map(|(_, name)| lfn(name)).collect();
    assert!(directories.len() > 20, "{directories:?}");
    for batch in directories.chunks(100) {
        let Answer::Usages(usages) = catalogue.ask(Operation::Du { lfns: batch.to_vec() }).await else {
            panic!()
        };
        for (name, usage) in batch.iter().zip(usages) {
            let usage = usage.unwrap();
            let counts = [usage.directories, usage.files, usage.members, usage.others, usage.replicas];
            let bytes = [usage.bytes, usage.member_bytes, usage.replica_bytes];
            let wanted: Vec<i128> =
                counts.map(i128::from).into_iter().chain(bytes.map(|bytes| bytes as i128)).collect();
            assert_eq!(found[&("directory".to_owned(), name.as_str().to_owned())], wanted, "{name}");
        }
    }
    let sum = |of: &str, at: usize| -> i128 {
        found.iter().filter(|((kind, _), _)| kind == of).map(|(_, counts)| counts[at]).sum()
    };
    let root = &found[&("directory".to_owned(), "/".to_owned())];
    for (at, total) in root.iter().enumerate() {
        assert_eq!((sum("user", at), sum("group", at)), (*total, *total), "column {at}");
    }
    assert_eq!((sum("se", 4), sum("se", 7)), (root[4], root[7]));
}

/// An export of a filtered part is complete and proven as such.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filtered_export_is_proven_as_filtered() {
    let catalogue = OnDisk::new().await;
    catalogue.fill().await;
    let filter = Filter { kinds: vec![exacat_model::Kind::File], ..Filter::default() };
    let report = catalogue.export("out", &TablesOptions { filter, ..options(&Table::ALL[..4]) }).await;
    let checked = check(&catalogue.out("out")).unwrap();
    assert!(checked.holds() && checked.is_filtered, "{:?}", checked.problems);
    assert_eq!(checked.digest, report.digest);
    let mut kinds = BTreeMap::<String, u64>::new();
    each_row(&catalogue.out("out"), Table::Entries, |rows, row| {
        *kinds.entry(rows.text(2, row).unwrap().to_owned()).or_default() += 1;
    });
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), [("file".to_owned(), report.entries)]);
}

/// With a filter, a directory's row sums what was selected below it, also below directories that were not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_of_a_filtered_export_sums_what_was_selected() {
    let catalogue = OnDisk::new().await;
    let mkdir = |path: &str| Operation::Mkdir { lfns: vec![lfn(path)], parents: true, mode: None };
    for path in ["/x1/y/x2", "/x1/y/x3/y", "/x1/x4", "/y/x5"] {
        catalogue.ask(mkdir(path)).await;
    }
    let filter = Filter { pattern: Some(exacat_model::Pattern::Glob("x*".to_owned())), ..Filter::default() };
    catalogue.export("out", &TablesOptions { filter, ..options(&Table::ALL[..4]) }).await;
    let mut found = BTreeMap::new();
    each_row(&catalogue.out("out"), Table::Usage, |rows, row| {
        if rows.text(0, row) == Some("directory") {
            found.insert(rows.text(1, row).unwrap().to_owned(), rows.long(2, row).unwrap());
        }
    });
    let wanted = [("/", 5), ("/x1", 3), ("/x1/x4", 0), ("/x1/y/x2", 0), ("/x1/y/x3", 0), ("/y/x5", 0)];
    assert_eq!(found, wanted.map(|(name, count)| (name.to_owned(), count)).into());
    assert!(check(&catalogue.out("out")).unwrap().holds());
}

/// Each change has a row, in order, with both places of a move and who removed what.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_have_a_row_each() {
    let catalogue = OnDisk::new().await;
    catalogue.fill().await;
    let before = exacat_exchange::walk::end_of_history(&*catalogue.local).await.unwrap();
    catalogue.ask(Operation::Move { from: lfn("/odd/plain"), to: lfn("/empty/moved") }).await;
    let attributes = vec![Attribute::Mode(exacat_model::Mode::new(0o600).unwrap())];
    catalogue.ask(Operation::SetAttributes { lfns: vec![lfn("/empty/moved/plain")], attributes }).await;
    let lost = ReplicaEdit::State(SeName::parse("DEMO::FZK::SE").unwrap(), ReplicaState::Lost);
    let edits = vec![(FileRef::Lfn(lfn("/empty/moved/plain")), vec![lost])];
    catalogue.ask(Operation::SetReplicas { edits }).await;
    catalogue.ask(Operation::Remove { lfn: lfn("/empty/moved"), recursive: true, directory: false }).await;
    let report =
        catalogue.export("out", &TablesOptions { after: before, ..options(&[Table::Changes]) }).await;
    let (mut effects, mut revisions, mut told) = (Vec::new(), Vec::new(), String::new());
    let at = |name: &str| column(Table::Changes, name);
    each_row(&catalogue.out("out"), Table::Changes, |rows, row| {
        let text = |name: &str| rows.text(at(name), row).unwrap_or("-").to_owned();
        effects.push(text("effect"));
        revisions.push(rows.long(at("revision"), row).unwrap() as u64);
        assert_eq!(text("who"), "admin");
        match text("effect").as_str() {
            "moved" => assert_eq!((text("old_name"), text("name")), ("plain".to_owned(), "moved".to_owned())),
            "removed" => assert_eq!(text("lfn"), "/empty/moved"),
            _ => {}
        }
        told.push_str(&format!("{} {}\n", text("before"), text("after")));
    });
    assert_eq!(effects, ["moved", "updated", "updated", "removed"]);
    assert_eq!(revisions, (before.revision.0 + 1..=report.end.0).collect::<Vec<_>>());
    assert!(told.contains("{\"mode\":\"644\"} {\"mode\":\"600\"}"), "{told}");
    assert!(told.contains("\"replica:DEMO::FZK::SE\":{") && told.contains("\"state\":\"lost\""), "{told}");
    assert!(check(&catalogue.out("out")).unwrap().holds());
    // All of the history, and a part that does not exist.
    let whole = catalogue.export("all", &options(&[Table::Changes])).await;
    assert_eq!(whole.tables[0].1.rows, report.end.0);
    let after_all = TablesOptions { after: whole.position, ..options(&[Table::Changes]) };
    assert_eq!(catalogue.export("none", &after_all).await.tables[0].1.rows, 0);
}

/// Damage of any kind is noticed: a flipped bit anywhere that counts, a file that is cut off, missing, of
/// another export, or no such table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_export_does_not_hold() {
    let catalogue = OnDisk::new().await;
    catalogue.fill().await;
    let good = catalogue.out("good");
    catalogue.export("good", &options(&Table::ALL)).await;
    catalogue.ask(Operation::Mkdir { lfns: vec![lfn("/later")], parents: false, mode: None }).await;
    catalogue.export("later", &options(&Table::ALL)).await;
    let damaged = catalogue.out("damaged");
    let with = |damage: &dyn Fn(&Path)| -> Checked {
        let _not_there_at_first = std::fs::remove_dir_all(&damaged);
        std::fs::create_dir(&damaged).unwrap();
        for table in Table::ALL {
            std::fs::copy(good.join(table.file_name()), damaged.join(table.file_name())).unwrap();
        }
        damage(&damaged);
        check(&damaged).unwrap()
    };
    assert!(with(&|_| {}).holds());
    for table in Table::ALL {
        let name = table.file_name();
        let missing = with(&|place| std::fs::remove_file(place.join(&name)).unwrap());
        assert!(missing.problems.iter().any(|why| why.contains("it is missing")), "{:?}", missing.problems);
        let swapped = with(&|place| {
            std::fs::copy(catalogue.out("later").join(&name), place.join(&name)).unwrap();
        });
        assert!(!swapped.holds(), "{name}");
        let bytes = std::fs::read(good.join(&name)).unwrap();
        for cut in [0, 3, bytes.len() / 2, bytes.len() - 1] {
            let cut_off = with(&|place| std::fs::write(place.join(&name), &bytes[..cut]).unwrap());
            assert!(!cut_off.holds(), "{name} cut off at {cut}");
        }
        // Bits that no reader uses may flip, such as those of statistics; rows never change unnoticed.
        let (mut noticed, mut tried) = (0, 0);
        for at in (0..bytes.len()).step_by(bytes.len() / 23 + 1) {
            let flipped = with(&|place| {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << (at % 8);
                std::fs::write(place.join(&name), bytes).unwrap();
            });
            tried += 1;
            noticed += u32::from(!flipped.holds());
        }
        assert!(noticed * 2 > tried, "{name}: {noticed} of {tried} flipped bits are noticed");
        let other = with(&|place| std::fs::write(place.join(&name), "lfn\tsize\n").unwrap());
        assert!(
            other.problems.iter().any(|why| why.contains("no whole Parquet file")),
            "{:?}",
            other.problems
        );
    }
    std::fs::remove_dir_all(&damaged).unwrap();
    std::fs::create_dir(&damaged).unwrap();
    assert!(check(&damaged).unwrap_err().message.contains("no export is here"));
    assert!(check(&damaged.join("none")).is_err());
}

/// An export that is dropped in the middle leaves nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_export_leaves_nothing() {
    let catalogue = OnDisk::new().await;
    catalogue.fill().await;
    let place = tempfile::tempdir().unwrap();
    let output = OutputDirectory::create(&place.path().join("out")).unwrap();
    let options = options(&Table::ALL);
    let (sender, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let exported = export(&*catalogue.local, &output, &options, |_| {
        let _nobody_waits_at_the_end = sender.send(());
    });
    let first = tokio::select! {
        _ = exported => None,
        progress = seen.recv() => progress,
    };
    drop(output);
    // Whether the export was done before it was dropped is chance; what remains is not.
    let left = std::fs::read_dir(place.path()).unwrap().count();
    assert_eq!(left, 0, "{first:?}");
}

/// Measures the processor time for each entry. Prints; asserts nothing about the speed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: run it in a release build, on a quiet machine"]
#[allow(clippy::print_stdout, reason = "a measurement prints")]
async fn processor_time_of_an_export() {
    let catalogue = OnDisk::new().await;
    let entries =
        std::env::var("EXACAT_BENCH_ENTRIES").ok().and_then(|text| text.parse().ok()).unwrap_or(200_000);
    let settings = TreeSettings { seed: 1, entries, root: lfn("/demo") };
    generate(Arc::clone(&catalogue.local), &settings, |_| {}).await.unwrap();
    let sets: [&[Table]; 5] =
        [&Table::ALL[..4], &[Table::Entries], &[Table::Replicas], &[Table::Usage], &[Table::Changes]];
    for tables in sets {
        let name = format!("out-{}-{}", tables.len(), tables[0].name());
        let (before, started) = (processor_ms(), std::time::Instant::now());
        let report = catalogue.export(&name, &options(tables)).await;
        let (cpu, wall) = (processor_ms() - before, started.elapsed());
        let rows: u64 = report.tables.iter().map(|(_, file)| file.rows).sum();
        let bytes: u64 = report.tables.iter().map(|(_, file)| file.bytes).sum();
        let base = if report.entries > 0 { report.entries } else { rows };
        println!(
            "{tables:?}: {base} entries or changes, {rows} rows, {:.2} µs of a processor each, {:.0}/s on the \
             clock, {:.1} bytes each",
            cpu * 1000.0 / base as f64,
            base as f64 / wall.as_secs_f64(),
            bytes as f64 / base as f64
        );
    }
    let (before, started) = (processor_ms(), std::time::Instant::now());
    assert!(check(&catalogue.out("out-4-entries")).unwrap().holds());
    println!(
        "check: {:.0} ms of a processor, {:.0} ms on the clock",
        processor_ms() - before,
        started.elapsed().as_millis()
    );
}

/// Returns the processor time of this process so far, in milliseconds.
fn processor_ms() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    // User and system time, in hundredths of a second on every Linux.
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) * 10.0
}

/// An operation id prints without the blanks of a structure: it is a column of the changes.
#[test]
fn operation_id_prints_as_one_word() {
    let shown = format!("{:?}", OperationId([7; 16]));
    assert!(!shown.contains([' ', '{', '(']), "{shown}");
}
