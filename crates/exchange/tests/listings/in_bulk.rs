//! Bulk imports: the same result as the ordinary way, for any listing, policy and earlier content.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::{Direct, Fixture, Ticking, real_data};
use exacat_exchange::bulk::{Bulk, OneByOne};
use exacat_exchange::local::Local;
use exacat_exchange::options::Repeats;
use exacat_exchange::tree::TreeSettings;
use exacat_exchange::{Catalogue, ImportOptions, ImportReport, Preset, import, import_in_bulk};
use exacat_model::operation::{Existing, Owner, SeSettings};
use exacat_model::{
    AccountName, Body, DirId, EntryId, Guid, Lfn, Operation, Revision, SeNumber, TimeMs, UserId,
};
use exacat_store::{Clock, ResolutionEnd, Store, UsageOf};
use exacat_store_embedded::{EmbeddedSettings, EmbeddedStore, LoadSettings};
use exacat_testkit::settings;

/// Times from here on come from the clock.
const CLOCK_MS: u64 = 1_700_000_000_000;

/// A catalogue on disk, opened in this process.
struct OnDisk {
    directory: tempfile::TempDir,
    store: Arc<EmbeddedStore>,
    local: Arc<Local>,
}

/// Little memory and short sorted runs, so that there are several of each.
const SMALL: LoadSettings = LoadSettings { sort_bytes: 20 << 10, run_rows: 150 };

impl OnDisk {
    async fn new() -> Self {
        Self::open(tempfile::tempdir().unwrap(), SMALL).await
    }

    async fn open(directory: tempfile::TempDir, bounds: LoadSettings) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(Ticking::default());
        let settings = EmbeddedSettings { archive: false, ..EmbeddedSettings::at(directory.path()) };
        let store = EmbeddedStore::open(settings, Arc::clone(&clock)).unwrap();
        let local = Local::open(Arc::clone(&store), clock, bounds).await.unwrap();
        OnDisk { directory, store, local }
    }

    async fn import(&self, fixture: &Fixture, options: &ImportOptions) -> ImportReport {
        let (catalogue, bulk) = (Arc::clone(&self.local), Arc::clone(&self.local));
        import_in_bulk(catalogue, bulk, &fixture.listing, options, |_| {}).await.unwrap()
    }

    /// Reopens the store, so that everything is read from disk again.
    async fn opened_again(self) -> Self {
        let OnDisk { directory, store, local } = self;
        drop((store, local));
        Self::open(directory, SMALL).await
    }
}

/// Returns the content of a store by path, without data that depends on times or the order of
/// changes. Omits GUIDs that the catalogue made up.
async fn content(store: &dyn Store, guids_given: bool) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![(Lfn::root(), DirId::ROOT)];
    let mut paths: BTreeMap<EntryId, String> = BTreeMap::new();
    let mut by_se: BTreeMap<SeNumber, Vec<String>> = BTreeMap::new();
    while let Some((lfn, id)) = waiting.pop() {
        let usage = store.usage(&[UsageOf::Directory(id)]).await.unwrap();
        found.insert(format!("below {lfn}"), format!("{usage:?}"));
        let mut after = None;
        loop {
            let page = store.list(id, after.as_ref(), 100).await.unwrap().unwrap();
            after = page.items.last().map(|entry| entry.at.name.clone());
            for mut entry in page.items {
                let path = lfn.join(&entry.at.name);
                let located = store.locate(&[entry.id()]).await.unwrap().remove(0).unwrap();
                assert_eq!(located.entry, entry, "{path} is found by what it is");
                let resolution = store.resolve(std::slice::from_ref(&path)).await.unwrap().remove(0);
                assert!(
                    matches!(resolution.end, ResolutionEnd::Found(there) if *there == entry),
                    "{path} is found"
                );
                paths.insert(entry.id(), path.to_string());
                if let Some(file) = entry.file() {
                    for replica in file.replicas.iter().filter(|replica| replica.se != SeNumber::NONE) {
                        by_se.entry(replica.se).or_default().push(path.to_string());
                    }
                }
                entry.at.parent = DirId(0);
                entry.revision = Revision(0);
                entry.created = TimeMs(0);
                if entry.modified.0 >= CLOCK_MS {
                    entry.modified = TimeMs(0);
                }
                match &mut entry.body {
                    Body::Directory(id) => {
                        waiting.push((path.clone(), *id));
                        *id = DirId(0);
                    }
                    Body::File(file) if !guids_given => file.guid = Guid([0; 16]),
                    Body::File(_) => {}
                    Body::Collection { guid, .. } => {
                        let members = store.members(*guid, None, 1000).await.unwrap().unwrap().items;
                        found.insert(format!("members {path}"), members.len().to_string());
                        *guid = Guid([0; 16]);
                    }
                    Body::Link { guid, .. } => *guid = Guid([0; 16]),
                }
                found.insert(path.to_string(), format!("{entry:?}"));
            }
            if !page.more {
                break;
            }
        }
    }
    for number in 0..40 {
        let of = [
            UsageOf::User(UserId(number)),
            UsageOf::Group(exacat_model::GroupId(number)),
            UsageOf::Se(SeNumber(number as u16)),
            UsageOf::Deletions(SeNumber(number as u16)),
        ];
        found.insert(format!("account {number}"), format!("{:?}", store.usage(&of).await.unwrap()));
    }
    for (se, mut wanted) in by_se {
        let (mut on, mut cursor) = (Vec::new(), Vec::new());
        loop {
            let (page, next) = store.replicas_on(se, &cursor, 100).await.unwrap();
            on.extend(
                page.items.iter().filter_map(|replica| paths.get(&EntryId::Object(replica.guid)).cloned()),
            );
            cursor = next;
            if !page.more {
                break;
            }
        }
        on.sort();
        wanted.sort();
        assert_eq!(on, wanted, "what is on {se:?}");
    }
    found
}

/// Returns rejects in the order of their lines; those of the second reading are last in the file.
fn rejects(fixture: &Fixture) -> Vec<String> {
    let text = std::fs::read_to_string(&fixture.rejects).unwrap();
    let mut lines: Vec<(u64, String)> = text
        .lines()
        .skip(1)
        .map(|line| {
            let mut fields: Vec<&str> = line.split('\t').collect();
            // Stores have their own texts for an exceeded quota.
            if fields[1] == "quota" {
                fields.remove(2);
            }
            (fields[0].parse().unwrap(), fields.join("\t"))
        })
        .collect();
    lines.sort();
    lines.into_iter().map(|(_, line)| line).collect()
}

/// Makes the content that both catalogues have at first.
async fn prepare(catalogue: &impl Catalogue) {
    for name in ["S1", "S2", "S3"] {
        let settings = SeSettings { prefix: Some(format!("root://{name}//x")), ..settings::se(name) };
        catalogue.call(Operation::SeSet(settings)).await.unwrap();
    }
    for name in ["alice", "limited"] {
        catalogue.call(Operation::UserSet(Box::new(settings::user(name)))).await.unwrap();
    }
    let quota = Operation::QuotaSet {
        owner: Owner::User(AccountName::parse("limited").unwrap()),
        files: Some(5),
        bytes: None,
        replica_bytes: None,
    };
    catalogue.call(quota).await.unwrap();
}

/// Imports a listing both ways, repeatedly with each policy, and compares the results.
async fn compare(
    name: &str,
    before: &[&str],
    listing: &[u8],
    change: impl Fn(&mut ImportOptions),
    guids: bool,
) {
    for existing in [Existing::Same, Existing::Merge, Existing::Refuse] {
        let about = format!("{name} {existing:?}");
        let (online, on_disk) = (Direct::new().await, OnDisk::new().await);
        prepare(&*online).await;
        prepare(&*on_disk.local).await;
        for listing in before {
            let fixture = Fixture::new("before.tsv", listing);
            fixture.import(&online, &ImportOptions::default()).await;
            import(Arc::clone(&on_disk.local), &fixture.listing, &ImportOptions::default(), |_| {})
                .await
                .unwrap();
        }
        let (mut on_disk, mut loaded) = (on_disk, 0);
        for round in 0..2 {
            let (one, other) = (Fixture::new(name, listing), Fixture::new(name, listing));
            let options = |fixture: &Fixture| {
                fixture.options(|options| {
                    options.existing = existing;
                    change(options);
                })
            };
            let wanted = one.import(&online, &options(&one)).await;
            let found = on_disk.import(&other, &options(&other)).await;
            let counts = |report: &ImportReport| {
                let ImportReport { rows, counts, rejected, partial, rejects, .. } = report.clone();
                (rows, counts, rejected, partial, rejects)
            };
            assert_eq!(counts(&found), counts(&wanted), "{about} {round}");
            assert_eq!(rejects(&other), rejects(&one), "{about} {round}");
            assert!(!other.state().exists(), "{about}: nothing is left to go on with");
            let (found, wanted) =
                (content(&*on_disk.store, guids).await, content(&**online.store(), guids).await);
            let differ = found.iter().find(|(key, value)| wanted.get(*key) != Some(value));
            assert_eq!(differ.map(|(key, value)| (value, wanted.get(key))), None, "{about} {round}");
            assert_eq!(found.len(), wanted.len(), "{about} {round}");
            let audit = on_disk.store.audit().await.unwrap();
            assert_eq!(audit.findings, [], "{about} {round}");
            loaded += on_disk.store.status().await.unwrap().named_one("loaded_total").unwrap();
            on_disk = on_disk.opened_again().await;
            let again = content(&*on_disk.store, guids).await;
            assert_eq!(
                again.iter().find(|(key, value)| found.get(*key) != Some(value)),
                None,
                "{about}: opened again"
            );
        }
        assert!(loaded > 0, "{about}: something was loaded in bulk");
    }
}

/// Goal: the same result for a listing with everything that a catalogue has: directories with
/// attributes, archives with their members, collections, tags, replicas of every state.
#[tokio::test]
async fn a_generated_catalogue_comes_out_the_same() {
    for seed in [1, 2] {
        let settings = TreeSettings { seed, entries: 1500, root: Lfn::parse("/demo").unwrap() };
        let mut listing = Vec::new();
        exacat_exchange::generate::generate_listing(&settings, &mut listing, |_| {}).unwrap();
        compare("tree.jsonl", &[], &listing, |options| options.restore = true, true).await;
    }
}

/// Goal: the same result and the same rejects for rows that are wrong in every way, or conflict
/// with existing entries or with each other.
#[tokio::test]
async fn hostile_listings_come_out_the_same() {
    let guid = |number: u64| format!("{number:08}-0000-7000-8000-000000000000");
    let before = [
        "lfn\tguid\tsize\tse\n/old/same\t00000900-0000-7000-8000-000000000000\t5\tS1\n/old/other\t00000901-0000-7000-8000-000000000000\t6\tS1\n/old/file/in\t00000902-0000-7000-8000-000000000000\t6\t\n",
        "lfn\n/old/leaf\n",
    ];
    let mut rows: Vec<String> = [
        "/old/same\t00000900-0000-7000-8000-000000000000\t5\tS1\t\t",
        "/old/other\t00000901-0000-7000-8000-000000000000\t7\tS1\t\t",
        "/old/leaf/below\t\t7\tS1\t\t",
        "/old/file\t\t7\tS1\t\t",
        "/old/new\t00000900-0000-7000-8000-000000000000\t5\tS2\t\t",
        "/a/unknown-owner\t\t5\tS1\tnobody\t",
        "/a/unknown-se\t\t5\tS77\t\t",
        "/a/bad-size\t\tx\tS1\t\t",
        "/a/tag-dropped\t\t5\tS1\talice\tok=1;1bad=2",
        "/a/dup\t\t5\tS1\talice\tn=1",
        "/a/dup\t\t6\tS2\talice\tn=1",
        "/a/dup/below\t\t6\tS2\talice\t",
        "/b/c/d\t\t6\tS2|S1\talice\t",
        "/b/c\t\t6\tS2\talice\t",
        "relative\t\t6\tS2\talice\t",
        "/control\u{7}\t\t6\tS2\talice\t",
    ]
    .map(str::to_owned)
    .to_vec();
    // One GUID in two rows: the first one counts.
    rows.push(format!("/g/1\t{}\t1\tS1\t\t", guid(500)));
    rows.push(format!("/g/2\t{}\t1\tS1\t\t", guid(500)));
    // More than the quota allows: the first ones count.
    rows.extend((0..9).map(|number| format!("/q/{number}\t{}\t1\tS1\tlimited\t", guid(600 + number))));
    // In scattered order, across several sorted runs and parts.
    let scattered = |number: u64| number * 7919 % 1200;
    rows.extend((0..1200).map(scattered).map(|number| {
        format!(
            "/many/{}/f{number}\t{}\t{number}\tS{}\talice\t",
            number % 37,
            guid(2000 + number),
            1 + number % 3
        )
    }));
    let listing = format!("lfn\tguid\tsize\tse\towner\ttags\n{}\n", rows.join("\n"));
    for repeats in [Repeats::Reject, Repeats::Keep] {
        let change = |options: &mut ImportOptions| options.listing.repeats = repeats;
        compare("hostile.tsv", &before, listing.as_bytes(), change, false).await;
    }
}

/// Goal: real listings have the same result.
#[tokio::test]
#[ignore = "needs real listings: EXACAT_REAL_DATA=DIR make test-real"]
async fn real_listings_come_out_the_same() {
    for (file, preset) in [("lfn_lists.tsv.zst", "lfn-list"), ("dune_transfers.tsv.zst", "dune-transfers")] {
        let path = real_data(file);
        let mut text = String::new();
        let mut reader = zstd::Decoder::new(std::fs::File::open(path).unwrap()).unwrap();
        std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
        let lines: Vec<&str> = text.lines().take(800).collect();
        let listing = lines.join("\n");
        let change = |options: &mut ImportOptions| {
            let (existing, rejects) = (options.existing, options.rejects.take());
            *options = Preset::named(preset).unwrap().options().unwrap();
            (options.existing, options.rejects) = (existing, rejects);
        };
        compare("real.tsv", &[], listing.as_bytes(), change, false).await;
    }
}

/// Goal: the same import, in bulk or not, completes an interrupted load and refuses none of its own
/// files as another's.
#[tokio::test]
async fn an_interrupted_load_is_completed() {
    struct Interrupted(Arc<Local>);
    impl Bulk for Interrupted {
        async fn take(
            &self,
            files: &[exacat_model::operation::NewFile],
            which: &[(usize, u64)],
        ) -> Result<Vec<bool>, exacat_model::Error> {
            self.0.take(files, which).await
        }
        async fn load(&self, left: impl FnMut(u64) + Send + 'static) -> Result<u64, exacat_model::Error> {
            self.0.load(left).await?;
            Err(exacat_model::Error::new(exacat_model::ErrorKind::Internal, "the test stops here"))
        }
    }
    let rows: String = (0..500).map(|number| format!("/d{}/f{number}\t{number}\n", number % 7)).collect();
    let listing = format!("lfn\tsize\n{rows}/d1/f1\t3\n");
    for in_bulk in [true, false] {
        let (on_disk, fixture) = (OnDisk::new().await, Fixture::new("listing.tsv", &listing));
        let options = fixture.options(|options| options.existing = Existing::Refuse);
        let (catalogue, bulk) =
            (Arc::clone(&on_disk.local), Arc::new(Interrupted(Arc::clone(&on_disk.local))));
        let stopped = import_in_bulk(catalogue, bulk, &fixture.listing, &options, |_| {}).await;
        assert!(stopped.is_err() && fixture.state().exists());
        let report = match in_bulk {
            true => on_disk.import(&fixture, &options).await,
            false => import(Arc::clone(&on_disk.local), &fixture.listing, &options, |_| {}).await.unwrap(),
        };
        assert_eq!((report.counts.unchanged, report.counts.created, report.rejected), (500, 0, 1));
        assert_eq!(fixture.rejected(), ["502 duplicate"]);
        assert!(!fixture.state().exists());
        assert_eq!(on_disk.store.audit().await.unwrap().findings, []);
    }
}

/// Goal: an input that cannot be read twice is refused before anything is done; a bulk load that
/// takes nothing changes nothing.
#[tokio::test]
async fn a_pipe_is_refused_and_nothing_taken_is_no_load() {
    let on_disk = OnDisk::new().await;
    let local = &on_disk.local;
    let options = ImportOptions::default();
    let fifo = std::path::Path::new("/dev/null");
    let refused = import_in_bulk(Arc::clone(local), Arc::clone(local), fifo, &options, |_| {}).await;
    assert!(refused.unwrap_err().to_string().contains("give a file, not a pipe"));
    let fixture = Fixture::new("listing.tsv", "/a/1\n/a/2\n");
    let report = import_in_bulk(Arc::clone(local), Arc::new(OneByOne), &fixture.listing, &options, |_| {})
        .await
        .unwrap();
    assert_eq!(report.counts.created, 2);
    assert_eq!(local.load(|_| ()).await.unwrap(), 0);
}
