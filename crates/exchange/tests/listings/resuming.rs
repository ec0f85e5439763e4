//! Interruptions at every point: a resumed import continues where it stopped; nothing is lost,
//! doubled or reported twice.

use crate::support::{Direct, Fault, Fixture, assert_same_lines, no_state};
use exacat_exchange::ImportOptions;
use exacat_exchange::resume::StateAt;
use exacat_model::operation::Existing;
use exacat_model::{Answer, Error, ErrorKind, Operation, Revision, TimelineId, Timelines};

/// Makes a listing of several batches with good rows, bad rows, refused rows, directories,
/// collections and members.
fn listing() -> String {
    let mut text = "kind\tlfn\tsize\treplicas\ttags\tmode\ttarget\tcollection\n".to_owned();
    for directory in 0..4 {
        text.push_str(&format!("directory\t/d{directory}\t\t\tdir={directory}\t750\t\t\n"));
        for file in 0..90 {
            let size = if file % 30 == 7 { "many".to_owned() } else { file.to_string() };
            let collection = if file % 10 == 0 { format!("/c{directory}") } else { String::new() };
            let below = if file == 50 { "/refused/file" } else { "" };
            text.push_str(&format!(
                "file\t{below}/d{directory}/f{file}\t{size}\tS{}\t\t\t\t{collection}\n",
                file % 3
            ));
        }
        text.push_str(&format!("collection\t/k{directory}\t\t\tn={directory}\t\t\t\n"));
        text.push_str(&format!("member\t/k{directory}\t\t\t\t\t/d{}/f3\t\n", 3 - directory));
        text.push_str(&format!("link\t/l{directory}\t\t\t\t\t/d{directory}/f1\t\n"));
    }
    text
}

fn options(fixture: &Fixture, existing: Existing) -> ImportOptions {
    fixture.options(|options| {
        options.listing.se_auto = true;
        options.existing = existing;
        options.batch_rows = 60;
    })
}

async fn catalogue() -> std::sync::Arc<Direct> {
    let catalogue = Direct::new().await;
    Fixture::new("before", "/refused/file\n").import(&catalogue, &ImportOptions::default()).await;
    catalogue
}

#[tokio::test]
async fn an_import_interrupted_anywhere_ends_as_if_it_had_not_been() {
    let fixture = Fixture::new("listing.tsv", listing());
    let whole = catalogue().await;
    whole.set_fault(Fault::None);
    let report = fixture.import(&whole, &options(&fixture, Existing::Same)).await;
    let writes = whole.writes.load(std::sync::atomic::Ordering::SeqCst);
    let wanted = whole.dump_given().await;
    let rejects = std::fs::read(&fixture.rejects).unwrap();
    assert_eq!(report.rejected, 12 + 4);
    assert!(!fixture.state().exists());
    assert!(writes > 20, "{writes}");

    let policies = [Existing::Refuse, Existing::Same, Existing::Merge];
    for at in 0..writes {
        for (index, fault) in [Fault::Stop(at), Fault::LoseAnswerAndStop(at)].into_iter().enumerate() {
            let existing = policies[(at as usize + index) % policies.len()];
            let catalogue = catalogue().await;
            catalogue.set_fault(fault);
            let options = options(&fixture, existing);
            if let Err(error) = fixture.try_import(&catalogue, &options).await {
                assert!(fixture.state().exists(), "{fault:?} {existing:?}: {error}");
            } else {
                // The order of calls in flight is not fixed, so the last may come earlier.
                assert!(at + 1 >= writes, "{fault:?}");
            }
            catalogue.set_fault(Fault::None);
            let report = fixture.import(&catalogue, &options).await;
            assert!(!fixture.state().exists());
            assert_same_lines(&catalogue.dump_given().await, &wanted, &(fault, existing));
            assert_eq!(report.rejected, 16, "{fault:?} {existing:?}: {:?}", report.rejects_shown);
            assert_eq!(std::fs::read(&fixture.rejects).unwrap(), rejects, "{fault:?} {existing:?}");
            let counts = report.counts;
            assert_eq!(report.rows, counts.created + counts.unchanged + counts.merged + report.rejected + 4);
            catalogue.check().await;
        }
    }
}

/// Goal: rows that a state file records as done are in the catalogue of the resumed import.
#[tokio::test]
async fn state_of_another_catalogue_or_of_a_replaced_revision_is_refused() {
    let fixture = Fixture::new("listing.tsv", listing());
    let options = options(&fixture, Existing::Same);
    let first = catalogue().await;
    first.set_fault(Fault::Stop(8));
    fixture.try_import(&first, &options).await.unwrap_err();
    let (state, rejects) =
        (std::fs::read(fixture.state()).unwrap(), std::fs::read(&fixture.rejects).unwrap());
    let done = first.store().revision().await.unwrap();

    let before = TimelineId([1; 16]);
    let restored = |after| {
        let mut timelines = Timelines::new(before);
        timelines.begin(TimelineId([2; 16]), before, after);
        timelines
    };
    for timelines in [Timelines::new(TimelineId([3; 16])), restored(Revision(done.0 - 1))] {
        let other = Direct::on(timelines).await;
        let revision = other.store().revision().await.unwrap();
        let refused = fixture.try_import(&other, &options).await.unwrap_err();
        assert_eq!(refused.kind(), Some(ErrorKind::Conflict), "{refused}");
        assert!(refused.to_string().contains("--restart"), "{refused}");
        assert_eq!(other.store().revision().await.unwrap(), revision, "nothing was changed");
        assert_eq!(std::fs::read(fixture.state()).unwrap(), state);
        assert_eq!(std::fs::read(&fixture.rejects).unwrap(), rejects);
    }

    // A restore to the state's position, or a torn end after it, loses no row.
    let kept = Direct::on(restored(done)).await;
    fixture.import(&kept, &options).await;
    std::fs::write(fixture.state(), &state).unwrap();
    let other = Direct::on(Timelines::new(TimelineId([3; 16]))).await;
    fixture.import(&other, &ImportOptions { restart: true, ..options }).await;
    assert!(!fixture.state().exists());
}

/// A catalogue that is restored to an earlier point after so many calls for its position.
struct RestoredMeanwhile {
    catalogue: std::sync::Arc<Direct>,
    restored: std::sync::Arc<Direct>,
    positions_left: std::sync::atomic::AtomicI64,
}

impl exacat_exchange::Catalogue for RestoredMeanwhile {
    async fn call(&self, operation: Operation) -> Result<Answer, Error> {
        use std::sync::atomic::Ordering;
        let is_position = matches!(operation, Operation::Position { .. });
        let left = self.positions_left.fetch_sub(i64::from(is_position), Ordering::SeqCst);
        let now = if left > 0 { &self.catalogue } else { &self.restored };
        exacat_exchange::Catalogue::call(&**now, operation).await
    }
}

/// Goal: an import fails if a restore undid some of its rows.
#[tokio::test]
async fn import_during_a_restore_is_refused() {
    let fixture = Fixture::new("listing.tsv", listing());
    let options = options(&fixture, Existing::Same);
    let before = TimelineId([1; 16]);
    let mut timelines = Timelines::new(before);
    timelines.begin(TimelineId([2; 16]), before, Revision(1));
    let catalogue = catalogue().await;
    let restored = Direct::on(timelines).await;
    let positions_left = 1.into();
    let meanwhile = std::sync::Arc::new(RestoredMeanwhile { catalogue, restored, positions_left });
    let ended =
        exacat_exchange::import(std::sync::Arc::clone(&meanwhile), &fixture.listing, &options, |_| {});
    let refused = ended.await.unwrap_err();
    assert_eq!(refused.kind(), Some(ErrorKind::Conflict), "{refused}");
    assert!(refused.to_string().contains("restored while the import was running"), "{refused}");
    // The state file makes the next run fail, until the user starts again with `restart`.
    let refused = fixture.try_import(&meanwhile.restored, &options).await.unwrap_err();
    assert_eq!(refused.kind(), Some(ErrorKind::Conflict), "{refused}");
    fixture.import(&meanwhile.restored, &ImportOptions { restart: true, ..options }).await;
}

/// Goal: an import that an earlier version left resumes, and names what that version did not
/// record.
#[tokio::test]
async fn state_of_an_earlier_version_goes_on_with_a_note() {
    let fixture = Fixture::new("listing.tsv", listing());
    let options = options(&fixture, Existing::Same);
    let catalogue = catalogue().await;
    catalogue.set_fault(Fault::Stop(8));
    fixture.try_import(&catalogue, &options).await.unwrap_err();
    catalogue.set_fault(Fault::None);
    let mut state: serde_json::Value =
        serde_json::from_slice(&std::fs::read(fixture.state()).unwrap()).unwrap();
    assert_eq!(state["version"], 2);
    state["version"] = 1.into();
    state.as_object_mut().unwrap().remove("position").unwrap();
    std::fs::write(fixture.state(), state.to_string()).unwrap();
    let report = fixture.import(&catalogue, &options).await;
    assert!(
        report.notes.iter().any(|note| note.contains("does not tell which catalogue")),
        "{:?}",
        report.notes
    );
}

#[tokio::test]
async fn lost_answers_are_asked_for_again() {
    let fixture = Fixture::new("listing.tsv", listing());
    let whole = catalogue().await;
    fixture.import(&whole, &options(&fixture, Existing::Same)).await;
    let wanted = whole.dump_given().await;
    for existing in [Existing::Refuse, Existing::Same, Existing::Merge] {
        for every in [3, 5] {
            let catalogue = catalogue().await;
            catalogue.set_fault(Fault::LoseEvery(every));
            // An unknown outcome ends a run; the next run knows that the entry may exist.
            let mut ended = fixture.try_import(&catalogue, &options(&fixture, existing)).await;
            for _ in 0..100 {
                match &ended {
                    Ok(_) => break,
                    Err(error) => assert_eq!(error.kind(), Some(ErrorKind::Unknown)),
                }
                ended = fixture.try_import(&catalogue, &options(&fixture, existing)).await;
            }
            let report = ended.unwrap();
            catalogue.set_fault(Fault::None);
            assert_same_lines(&catalogue.dump_given().await, &wanted, &(every, existing));
            assert_eq!(report.rejected, 16);
        }
    }
}

#[tokio::test]
async fn a_resumed_import_says_so_and_skips_what_is_done() {
    // More rows than one state covers, so that it is written in between.
    let rows = 3 * exacat_exchange::limits::ROWS_PER_STATE as usize / 2;
    let text: String = (0..rows).map(|row| format!("bad {row}\n")).collect::<String>() + "/good\n";
    let fixture = Fixture::new("listing", text);
    let catalogue = Direct::new().await;
    catalogue.set_fault(Fault::Stop(0));
    let options = options(&fixture, Existing::Same);
    fixture.try_import(&catalogue, &options).await.unwrap_err();
    catalogue.set_fault(Fault::None);
    let report = fixture.import(&catalogue, &options).await;
    assert!(report.resumed_from.is_some_and(|row| row > 0), "{report:?}");
    assert_eq!((report.rejected, report.counts.created), (rows as u64, 1));
    let lines: Vec<String> = (1..=rows).map(|line| format!("{line} bad-lfn")).collect();
    assert!(fixture.rejected() == lines);
}

#[tokio::test]
async fn a_state_of_another_listing_or_other_options_is_not_gone_on_with() {
    let fixture = Fixture::new("listing.tsv", listing());
    let catalogue = catalogue().await;
    catalogue.set_fault(Fault::Stop(0));
    let first = options(&fixture, Existing::Same);
    fixture.try_import(&catalogue, &first).await.unwrap_err();
    catalogue.set_fault(Fault::None);
    let other = options(&fixture, Existing::Merge);
    let error = fixture.try_import(&catalogue, &other).await.unwrap_err().to_string();
    assert!(error.contains("other options"), "{error}");
    std::fs::write(&fixture.listing, listing() + "file\t/more\t\t\t\t\t\t\n").unwrap();
    let error = fixture.try_import(&catalogue, &first).await.unwrap_err().to_string();
    assert!(error.contains("changed since"), "{error}");
    let anew = ImportOptions { restart: true, ..first };
    let report = fixture.import(&catalogue, &anew).await;
    assert!(report.resumed_from.is_none() && report.rejected == 16 && !fixture.state().exists());
}

#[tokio::test]
async fn the_state_file_stands_where_it_can_or_where_it_is_told_to() {
    let catalogue = Direct::new().await;
    let fixture = Fixture::new("listing", "/a\n");
    let elsewhere = fixture.path("state");
    catalogue.set_fault(Fault::Stop(0));
    let told = fixture.options(|options| options.state = StateAt::At(elsewhere.clone()));
    fixture.try_import(&catalogue, &told).await.unwrap_err();
    assert!(elsewhere.exists() && !fixture.state().exists());
    fixture.try_import(&catalogue, &fixture.options(no_state)).await.unwrap_err();
    assert!(!fixture.state().exists());
    let nowhere =
        fixture.options(|options| options.state = StateAt::At(fixture.path("no/such/directory/state")));
    assert!(fixture.try_import(&catalogue, &nowhere).await.unwrap_err().to_string().contains("cannot write"));
    catalogue.set_fault(Fault::None);
    // The name of the state file would be too long. This acts like an unwritable directory, which
    // root, who may run the tests, does not have.
    let long = fixture.path(&"x".repeat(250));
    std::fs::write(&long, "/a\n").unwrap();
    let fixture = Fixture { listing: long, ..fixture };
    let report = fixture.import(&catalogue, &fixture.options(|_| {})).await;
    assert_eq!(report.notes.len(), 1, "{report:?}");
    assert_eq!(report.counts.created, 1);
}

#[cfg(unix)]
#[tokio::test]
async fn a_pipe_is_read_once() {
    let catalogue = Direct::new().await;
    let fixture = Fixture::new("listing.tsv", "");
    let pipe = fixture.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let text = "kind\tlfn\ttarget\ncollection\t/c\t\nmember\t/c\t/f\nfile\t/f\t\n";
    let writer = {
        let pipe = pipe.clone();
        std::thread::spawn(move || {
            std::fs::write(pipe, zstd::encode_all(text.as_bytes(), 1).unwrap()).unwrap()
        })
    };
    let fixture = Fixture { listing: pipe, ..fixture };
    let report = fixture.import(&catalogue, &fixture.options(|_| {})).await;
    writer.join().unwrap();
    assert_eq!((report.rows, report.counts.created, report.rejected, report.notes.len()), (3, 2, 1, 1));
    assert_eq!(fixture.rejected(), ["3 needs-file"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn second_import_with_the_same_state_file_is_refused_and_disturbs_nothing() {
    let catalogue = catalogue().await;
    let fixture = Fixture::new("listing.tsv", listing());
    let state = fixture.path("shared.state");
    let first = fixture.options(|options| {
        options.listing.se_auto = true;
        options.state = StateAt::At(state.clone());
    });
    let other = Fixture::new("other", "/other\n");
    let second = other.options(|options| options.state = StateAt::At(state.clone()));
    // The second begins while the first is running.
    let mut tried = false;
    let import = exacat_exchange::import(std::sync::Arc::clone(&catalogue), &fixture.listing, &first, |_| {
        if !std::mem::replace(&mut tried, true) {
            let begun = std::fs::read(&state).unwrap();
            let refused = tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(other.try_import(&catalogue, &second))
            });
            let error = refused.unwrap_err().to_string();
            assert!(error.contains("another import is using") && error.contains("--state"), "{error}");
            assert_eq!(std::fs::read(&state).unwrap(), begun);
        }
    });
    assert_eq!(import.await.unwrap().rejected, 16);
    assert!(!state.exists() && std::fs::read_dir(fixture.directory.path()).unwrap().count() == 2);
    assert_eq!(other.import(&catalogue, &second).await.counts.created, 1);
}

#[tokio::test]
async fn rejects_named_like_the_listing_are_refused() {
    let fixture = Fixture::new("listing", "/a\nbad\n");
    let catalogue = catalogue().await;
    let options = ImportOptions { rejects: Some(fixture.listing.clone()), ..ImportOptions::default() };
    assert!(
        fixture.try_import(&catalogue, &options).await.unwrap_err().to_string().contains("over the listing")
    );
    assert_eq!(std::fs::read_to_string(&fixture.listing).unwrap(), "/a\nbad\n");
    let options = ImportOptions { rejects: Some("/dev/null".into()), ..ImportOptions::default() };
    assert_eq!(fixture.import(&catalogue, &options).await.rejected, 1);
}
