//! The real listings, where they are available: every row is parsed or rejected for a known reason,
//! and a part of them is imported and exported. `make test` ignores these tests
//! elsewhere.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::Instant;

use crate::support::{Direct, Fixture, assert_same_lines, real_data};
use exacat_exchange::export::ExportOptions;
use exacat_exchange::listing::{Examined, Listing};
use exacat_exchange::reject::Reason;
use exacat_exchange::{ImportOptions, Preset};
use exacat_model::{Checksum, Filter, Kind, TagValue};

fn preset(name: &str) -> ImportOptions {
    Preset::named(name).unwrap().options().unwrap()
}

/// Reads each row without a catalogue.
fn examine(path: &Path, options: &ImportOptions) -> Examined {
    let started = Instant::now();
    let examined = Listing::open(path, options.listing.clone()).unwrap().examine().unwrap();
    let seconds = started.elapsed().as_secs_f64();
    eprintln!(
        "{}: {} rows, {} accepted, rejected {:?}, {:.0} rows/s",
        path.file_name().unwrap().to_string_lossy(),
        examined.rows,
        examined.accepted,
        examined.rejects,
        examined.rows as f64 / seconds
    );
    examined
}

#[test]
#[ignore = "needs real listings: EXACAT_REAL_DATA=DIR make test-real"]
fn every_row_of_every_real_listing_is_understood() {
    // Rows as the listings' own description counts them. One record of the portal has more than 128
    // tags.
    for (file, options, rows, partial) in [
        ("odp_files.tsv.zst", preset("odp-files"), 925_027, 0),
        ("odp_files.tsv.zst", preset("odp-members"), 925_027, 0),
        ("annex_files.tsv.zst", preset("annex"), 120_861, 0),
        ("lfn_lists.tsv.zst", preset("lfn-list"), 55_402, 0),
        ("dune_transfers.tsv.zst", preset("dune-transfers"), 242_010, 0),
        ("odp_datasets.jsonl.zst", preset("odp-datasets"), 14_761, 1),
    ] {
        let path = real_data(file);
        let examined = examine(&path, &options);
        assert_eq!((examined.rows, examined.accepted), (rows, rows), "{file}: {examined:?}");
        let left_out: Vec<_> = (partial > 0).then_some((Reason::TooManyTags, partial)).into_iter().collect();
        assert_eq!(examined.rejects, left_out, "{file}");
    }
}

/// Returns the lines of a real table, with its header.
fn lines(path: &Path, wanted: impl Fn(usize) -> bool) -> Vec<String> {
    let file = std::fs::File::open(path).unwrap();
    let reader: Box<dyn Read> = match path.extension().and_then(|end| end.to_str()) {
        Some("zst") => Box::new(zstd::Decoder::new(file).unwrap()),
        _ => Box::new(file),
    };
    BufReader::new(reader)
        .lines()
        .enumerate()
        .filter(|(index, _)| wanted(*index))
        .map(|(_, line)| line.unwrap())
        .collect()
}

#[test]
#[ignore = "needs real listings: EXACAT_REAL_DATA=DIR make test-real"]
fn odd_checksums_become_what_they_should() {
    let path = real_data("odp_odd_values.tsv.zst");
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for line in lines(&path, |index| index > 0) {
        let fields: Vec<&str> = line.split('\t').collect();
        let (kind, raw, normal) = (fields[0], fields[2], fields[3]);
        *counts.entry(kind.to_owned()).or_default() += 1;
        match kind {
            "checksum_format" => {
                let read = Checksum::parse(raw).map(|checksum| checksum.to_string());
                match normal {
                    // The rule rejects a misspelt algorithm or a placeholder instead of guessing.
                    _ if raw.starts_with("alder32") => assert!(read.is_err(), "{line}"),
                    "" => assert!(read.is_err(), "{line}"),
                    normal => assert_eq!(read.as_deref().ok(), Some(normal), "{line}"),
                }
            }
            // Two checksums of one file, by different algorithms: a file may have both.
            "two_algorithms" => assert!(raw.split(' ').all(|part| Checksum::parse(part).is_ok()), "{line}"),
            _ => {}
        }
    }
    eprintln!("odd values: {counts:?}");
    assert!(counts["checksum_format"] > 900);
}

/// Makes a listing of every n-th row of a real one.
fn part(file: &str, every: usize) -> Fixture {
    let path = real_data(file);
    let text: String =
        lines(&path, |index| index == 0 || index % every == 3).into_iter().map(|line| line + "\n").collect();
    let name = file.strip_suffix(".zst").unwrap_or(file);
    Fixture::new(name, text)
}

async fn there_and_again(fixture: &Fixture, catalogue: &std::sync::Arc<Direct>, options: &ImportOptions) {
    let options = ImportOptions { rejects: Some(fixture.rejects.clone()), ..options.clone() };
    let report = fixture.import(catalogue, &options).await;
    assert_eq!((report.rejected, report.partial), (0, 0), "{:?}", report.rejects_shown);
    assert!(report.rows > 100, "{report:?}");
    let again = fixture.import(catalogue, &options).await;
    assert!(again.changed_nothing(), "{again:?}");
    let verified = fixture.verify(catalogue, &options).await;
    assert!(verified.holds() && verified.same == report.rows, "{:?}", verified.shown);
}

/// Exports, imports into an empty catalogue, and exports again: the same bytes.
async fn full_circle(catalogue: &Direct) {
    let fixture = Fixture::new("export.tsv", catalogue.dump().await);
    let copy = Direct::new().await;
    let restore = fixture.options(|options| options.restore = true);
    let report = fixture.import(&copy, &restore).await;
    assert_eq!((report.rejected, report.partial), (0, 0), "{:?}", report.rejects_shown);
    assert_same_lines(&copy.dump().await, &catalogue.dump().await, &"full circle");
}

#[tokio::test]
#[ignore = "needs real listings: EXACAT_REAL_DATA=DIR make test-real"]
async fn portal_files_go_in_and_come_back_as_they_were() {
    let fixture = part("odp_files.tsv.zst", 600);
    let catalogue = Direct::new().await;
    there_and_again(&fixture, &catalogue, &preset("odp-files")).await;
    let back = ExportOptions {
        full: false,
        columns: Some(crate::support::columns_of("lfn,size,checksum,pfn")),
        filter: Filter { kinds: vec![Kind::File], ..Filter::default() },
        pfn_same: Some("root://eospublic.cern.ch/".into()),
        ..ExportOptions::default()
    };
    let sorted = |text: &str| {
        let mut rows: Vec<String> = text
            .lines()
            .skip(1)
            .map(|line| line.split('\t').take(4).collect::<Vec<_>>().join("\t"))
            .collect();
        rows.sort();
        rows.join("\n")
    };
    let given = std::fs::read_to_string(&fixture.listing).unwrap();
    assert_same_lines(&sorted(&catalogue.export(&back).await.0), &sorted(&given), &"portal files");

    // Their datasets, with the members.
    let ids: std::collections::HashSet<String> =
        given.lines().skip(1).filter_map(|line| line.split('\t').nth(5).map(str::to_owned)).collect();
    let records = real_data("odp_datasets.jsonl.zst");
    let of_parts = |line: &String| {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        ids.contains(record["id"].as_str().unwrap())
    };
    let text: String =
        lines(&records, |_| true).into_iter().filter(of_parts).map(|line| line + "\n").collect();
    let datasets = Fixture::new("datasets.jsonl", text);
    there_and_again(&datasets, &catalogue, &preset("odp-datasets")).await;
    there_and_again(&fixture, &catalogue, &preset("odp-members")).await;
    let stat = catalogue.stat("/collections/opendata/cod:1107").await;
    if let Ok(stat) = stat {
        assert_eq!(stat.entry.tag("distribution.number_files"), Some(&TagValue::Integer(799)));
    }
    full_circle(&catalogue).await;
    catalogue.check().await;
}

#[tokio::test]
#[ignore = "needs real listings: EXACAT_REAL_DATA=DIR make test-real"]
async fn annex_files_transfers_and_bare_names_go_in() {
    for (file, every, name) in [
        ("annex_files.tsv.zst", 80, "annex"),
        ("dune_transfers.tsv.zst", 150, "dune-transfers"),
        ("lfn_lists.tsv.zst", 100, "lfn-list"),
    ] {
        let fixture = part(file, every);
        let catalogue = Direct::new().await;
        there_and_again(&fixture, &catalogue, &preset(name)).await;
        full_circle(&catalogue).await;
        catalogue.check().await;
    }
}

#[tokio::test]
#[ignore = "needs real listings: EXACAT_REAL_DATA=DIR make test-real"]
async fn the_sample_of_rare_cases_goes_in() {
    let path = real_data("sample.tsv");
    let catalogue = Direct::new().await;
    let fixture = Fixture::new("sample.tsv", std::fs::read(path).unwrap());
    let options = fixture.options(|options| {
        options.listing.se_auto = true;
        // Only this location means that the PFN is the LFN after the server's name.
        options
            .listing
            .se_map
            .add_file("CERN_EOSPUBLIC\tCERN_EOSPUBLIC\troot://eospublic.cern.ch/\n")
            .unwrap();
    });
    let report = fixture.import(&catalogue, &options).await;
    eprintln!("sample: {} rows, {:?}, rejected {:?}", report.rows, report.counts, report.rejects);
    assert_eq!(report.rejected, 0, "{:?}", report.rejects_shown);
    let verified = fixture.verify(&catalogue, &options).await;
    assert!(verified.holds() && verified.same == report.rows, "{:?}", verified.shown);
    full_circle(&catalogue).await;
    catalogue.check().await;
}
