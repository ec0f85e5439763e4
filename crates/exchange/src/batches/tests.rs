//! Division of rows into batches by number, by bytes and by pass; and resumed reading.

use std::path::Path;

use super::*;
use crate::limits::BATCH_ROWS_MAX;
use crate::options::ListingOptions;

/// Returns all messages that the thread sends for a listing.
fn all(content: &str, options: ListingOptions, reading: Reading) -> Vec<Read> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("listing.tsv");
    std::fs::write(&path, content).unwrap();
    let listing = Arc::new(Listing::open(&path, options).unwrap());
    let mut receiver = read(listing, reading, BytesRead::default()).unwrap();
    std::iter::from_fn(|| receiver.blocking_recv()).collect()
}

fn batches(reads: Vec<Read>) -> Vec<Batch> {
    reads
        .into_iter()
        .filter_map(|read| match read {
            Read::Batch(batch) => Some(*batch),
            Read::Passed(..) => None,
            Read::Failed(error) => panic!("{error}"),
        })
        .collect()
}

fn names(batch: &Batch) -> Vec<Vec<&str>> {
    batch.groups.iter().map(|group| group.files.iter().map(|file| file.lfn.as_str()).collect()).collect()
}

const READING: Reading =
    Reading { from: (Pass::First, 0), two_passes: true, batch_rows: BATCH_ROWS_MAX, left: None };

#[test]
fn batches_have_as_many_rows_as_they_may_and_follow_each_other() {
    let rows = 2 * BATCH_ROWS_MAX + 1;
    let text: String = (0..rows).map(|row| format!("/d/{row:09}\n")).collect();
    let found = batches(all(&text, ListingOptions::default(), READING));
    let ranges: Vec<_> = found.iter().map(|batch| (batch.rows.start, batch.rows.end)).collect();
    let rows = rows as u64;
    assert_eq!(ranges, [(0, rows / 2), (rows / 2, rows - 1), (rows - 1, rows)]);
    assert!(found.iter().all(|batch| batch.bytes_read > 0 && batch.rejects.is_empty()));
}

#[test]
fn batches_are_bounded_in_bytes_whether_rows_are_good_or_bad() {
    // Tags make a good row long; a bad row is kept whole up to a limit.
    let long = "t=".to_owned() + &"x".repeat(8000) + ";";
    let many = "/d/".to_owned() + &"x".repeat(250) + "\t" + &long.repeat(20);
    let rows: String = (0..40).map(|row| format!("{}{row}\n", many)).collect();
    for header in ["lfn\ttags\n", "size\tlfn\n"] {
        let found = batches(all(&format!("{header}{rows}"), ListingOptions::default(), READING));
        assert!(found.len() > 1, "{header}");
        for batch in &found {
            assert!(batch.bytes < BATCH_BYTES_MAX + 2 * many.len(), "{}", batch.bytes);
        }
    }
}

#[test]
fn a_name_that_is_repeated_stands_in_a_later_group() {
    let text = "/b\n/a\n/b\n/b\n/c\n/a\n";
    let options = ListingOptions { repeats: Repeats::Keep, ..ListingOptions::default() };
    let found = batches(all(text, options, READING));
    assert_eq!(names(&found[0]), [vec!["/a", "/b", "/c"], vec!["/a", "/b"], vec!["/b"]]);
    assert_eq!(found[0].names.len(), 6);
    let lines: Vec<u64> = found[0].groups[0].rows.iter().map(|row| row.line).collect();
    assert_eq!(lines, [2, 1, 5], "each file keeps its row");
    assert_eq!(found[0].raw(&found[0].groups[2].rows[0]), b"/b");
}

#[test]
fn what_refers_to_others_comes_in_the_second_pass_and_is_judged_once() {
    let text = "kind\tlfn\ttarget\tpfn\nmember\t/c\t/a\t\nmember\t/c\t/a\t\nfile\t/in\t\tguid:///017f22e279b07cc398c4dc0c0c07398f?ZIP=x\nfile\t/a\t\t\nbad\t/x\t\t\nfile\t/in\t\t\n";
    let reads = all(text, ListingOptions::default(), READING);
    let passes: Vec<_> = reads
        .iter()
        .filter_map(|read| match read {
            Read::Passed(pass, rows) => Some((*pass, *rows)),
            _ => None,
        })
        .collect();
    assert_eq!(passes, [(Pass::First, 6), (Pass::Second, 6)]);
    let found = batches(reads);
    assert_eq!(names(&found[0]), [["/a"]]);
    let rejects: Vec<_> = found[0].rejects.iter().map(|reject| (reject.line, reject.reason)).collect();
    assert_eq!(rejects, [(3, Reason::Duplicate), (6, Reason::BadKind), (7, Reason::Duplicate)]);
    assert_eq!((names(&found[1]), found[1].members.len()), (vec![vec!["/in"]], 1));
    assert!(found[1].rejects.is_empty());
    // Without passes all rows come in order.
    let reading = Reading { two_passes: false, ..READING };
    assert_eq!(batches(all(text, ListingOptions::default(), reading)).len(), 1);
}

#[test]
fn reading_goes_on_where_it_stopped_and_still_knows_what_came_before() {
    let text = "/a\n/b\nbad\n/a\n/c\nbad\n/b/x\n/d\n";
    let reading = Reading { from: (Pass::First, 4), batch_rows: 2, ..READING };
    let found = batches(all(text, ListingOptions::default(), reading));
    let all_names: Vec<String> =
        found.iter().flat_map(|batch| names(batch).concat()).map(str::to_owned).collect();
    assert_eq!(all_names, ["/c", "/d"]);
    let rejects: Vec<_> =
        found.iter().flat_map(|batch| &batch.rejects).map(|reject| (reject.line, reject.reason)).collect();
    assert_eq!(rejects, [(6, Reason::BadLfn), (7, Reason::ParentIsFile)]);
    let reading = Reading { from: (Pass::Second, 0), ..READING };
    let found = batches(all(text, ListingOptions::default(), reading));
    assert!(found.iter().all(|batch| batch.items == 0 && batch.rejects.is_empty()));
}

#[test]
fn a_listing_that_cannot_be_read_to_its_end_fails() {
    let whole = zstd::encode_all("/a\n".repeat(1000).as_bytes(), 1).unwrap();
    let cut = whole[..whole.len() - 5].to_vec();
    let listing =
        Listing::of_reader(Path::new("pipe"), Box::new(std::io::Cursor::new(cut)), ListingOptions::default());
    let mut receiver = read(Arc::new(listing.unwrap()), READING, BytesRead::default()).unwrap();
    let reads: Vec<Read> = std::iter::from_fn(|| receiver.blocking_recv()).collect();
    assert!(matches!(reads.last(), Some(Read::Failed(_))));
}
