//! Generated samples: complete, equal for equal seeds, equal by way of a listing, and unchanged by
//! a second run.

use crate::support::{Direct, Fixture, assert_same_lines, lfn};
use exacat_exchange::generate::{generate, generate_listing};
use exacat_exchange::tree::TreeSettings;
use exacat_model::{Answer, Operation};
use std::sync::Arc;

fn settings(entries: u64) -> TreeSettings {
    TreeSettings { seed: 3, entries, root: lfn("/demo") }
}

#[tokio::test]
async fn a_sample_is_made_once_and_the_listing_of_it_is_the_same() {
    let catalogue = Direct::new().await;
    let mut seen = Vec::new();
    let made =
        generate(Arc::clone(&catalogue), &settings(2500), |progress| seen.push(progress.rows)).await.unwrap();
    assert_eq!((made.entries, made.created, made.unchanged), (2500, 2500, 0));
    assert_eq!(seen, [1000, 2000, 2500]);
    assert!(made.members > 10 && made.files > 1000, "{made:?}");
    catalogue.check().await;
    let again = generate(Arc::clone(&catalogue), &settings(2500), |_| {}).await.unwrap();
    assert_eq!((again.entries, again.created, again.unchanged, again.members), (2500, 0, 2500, 0));
    match catalogue.ask(Operation::QuotaGet { owners: Vec::new() }).await {
        Answer::Quotas(_) => {}
        other => panic!("{other:?}"),
    }

    let mut listing = Vec::new();
    let written = generate_listing(&settings(2500), &mut listing, |_| {}).unwrap();
    assert_eq!((written.entries, written.files, written.members), (2500, made.files, made.members));
    let fixture = Fixture::new("sample.jsonl", &listing);
    let options = fixture.options(|options| options.restore = true);
    let verified = fixture.verify(&catalogue, &options).await;
    assert!(verified.holds() && verified.rejected == 0, "{verified:?}");
    let copy = Direct::new().await;
    let report = fixture.import(&copy, &options).await;
    assert_eq!((report.rejected, report.partial), (0, 0), "{:?}", report.rejects_shown);
    assert_same_lines(&copy.dump_given().await, &catalogue.dump_given().await, &"by listing");
}

#[tokio::test]
async fn second_sample_that_does_not_fit_the_first_says_which_options_help() {
    let catalogue = Direct::new().await;
    generate(Arc::clone(&catalogue), &settings(1500), |_| {}).await.unwrap();
    for other in [
        TreeSettings { seed: 4, ..settings(1500) },
        // The same files, and so the same GUIDs, below another name.
        TreeSettings { root: lfn("/other"), ..settings(1500) },
    ] {
        let error = generate(Arc::clone(&catalogue), &other, |_| {}).await.unwrap_err().to_string();
        assert!(["--seed", "--prefix"].iter().all(|part| error.contains(part)), "{error}");
    }
}
