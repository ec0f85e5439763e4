//! Rows and fields, compared with tables and, for CSV, with the csv crate.

use std::io::Cursor;

use super::*;

fn rows(text: &[u8], format: Format) -> Vec<(u64, Vec<u8>, Option<Flaw>)> {
    // A reader that returns few bytes at a time finds faults that depend on where a read ends.
    struct Dribble(Cursor<Vec<u8>>);
    impl Read for Dribble {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let few = buffer.len().min(5);
            self.0.read(&mut buffer[..few])
        }
    }
    let all = |reader: Box<dyn Read + Send>| {
        let mut records = Records::new(reader, format, format.delimiter()).unwrap();
        let mut found = Vec::new();
        while let Some(record) = records.next_record().unwrap() {
            found.push((record.line, record.raw.to_vec(), record.flaw));
        }
        found
    };
    let whole = all(Box::new(Cursor::new(text.to_vec())));
    if text.len() < 4096 {
        assert_eq!(whole, all(Box::new(Dribble(Cursor::new(text.to_vec())))));
    }
    whole
}

fn good(line: u64, text: &str) -> (u64, Vec<u8>, Option<Flaw>) {
    (line, text.as_bytes().to_vec(), None)
}

#[test]
fn lines_are_rows_whatever_ends_them() {
    assert_eq!(rows(b"a\tb\nc\n", Format::Tsv), [good(1, "a\tb"), good(2, "c")]);
    assert_eq!(rows(b"a\r\n\r\n\nb", Format::Tsv), [good(1, "a"), good(4, "b")]);
    assert_eq!(rows(b"\xef\xbb\xbflfn\n/a\n", Format::Tsv), [good(1, "lfn"), good(2, "/a")]);
    assert_eq!(rows(b"", Format::Tsv), []);
    assert_eq!(rows(b"\n\n", Format::Tsv), []);
    assert_eq!(rows(b"\"a\n\"b\n", Format::Tsv), [good(1, "\"a"), good(2, "\"b")]);
}

#[test]
fn a_quoted_row_goes_over_lines() {
    assert_eq!(rows(b"a,\"b\nc\"\nd\n", Format::Csv), [good(1, "a,\"b\nc\""), good(3, "d")]);
    assert_eq!(rows(b"a\"b\nc\n", Format::Csv), [good(1, "a\"b"), good(2, "c")]);
    assert_eq!(rows(b"\"a\"\"\n\",b\nc", Format::Csv), [good(1, "\"a\"\"\n\",b"), good(3, "c")]);
}

#[test]
fn an_open_quote_costs_one_line() {
    let open = (2, b"\"b".to_vec(), Some(Flaw::OpenQuote));
    assert_eq!(rows(b"a\n\"b\nc\nd\n", Format::Csv), [good(1, "a"), open, good(3, "c"), good(4, "d")]);
}

#[test]
fn a_row_too_long_is_skipped_alone() {
    for format in [Format::Tsv, Format::Csv] {
        let longest = "x".repeat(ROW_BYTES_MAX);
        let text = format!("a\n{longest}\nb\n{longest}y\nc\n");
        let found = rows(text.as_bytes(), format);
        assert_eq!(found.len(), 5);
        assert_eq!(found[1], good(2, &longest));
        assert_eq!((found[3].0, found[3].1.len()), (4, ROW_BYTES_MAX));
        // A row without a quote is too long, not open; CSV cannot distinguish where its line ends
        // from its start.
        assert!(found[3].2.is_some());
        assert_eq!(found[4], good(5, "c"));
    }
}

fn csv_fields(raw: &str) -> Result<Vec<String>, &'static str> {
    let mut fields = Fields::default();
    fields.cut_csv(raw, b',')?;
    Ok((0..fields.len()).map(|index| fields.get(raw, index).to_owned()).collect())
}

#[test]
fn csv_fields_are_what_the_csv_crate_reads() {
    for raw in [
        "a",
        "a,b",
        ",",
        "\"a\"",
        "\"a,b\",c",
        "\"a\"\"b\",\"\"",
        "a\"b,c",
        "\"x\ny\",",
        "\"\"\"\"",
        " \"a\"",
    ] {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(raw.as_bytes());
        let record = reader.records().next().unwrap().unwrap();
        assert_eq!(csv_fields(raw).unwrap(), record.iter().collect::<Vec<_>>(), "{raw}");
    }
    assert!(csv_fields("\"a\"b").is_err());
    assert!(csv_fields("\"a").is_err());
}

#[test]
fn csv_written_reads_back() {
    for text in ["", "plain", "a,b", "say \"hi\"", "two\nlines", "\r", " blank ", "żółć"] {
        let mut out = Vec::new();
        push_csv_field(&mut out, text, b',');
        out.push(b',');
        push_csv_field(&mut out, text, b',');
        let raw = String::from_utf8(out).unwrap();
        assert_eq!(csv_fields(&raw).unwrap(), [text, text]);
        if !raw.starts_with(',') {
            assert_eq!(rows(raw.as_bytes(), Format::Csv), [good(1, &raw)]);
        }
    }
}

#[test]
fn tsv_fields_are_bytes_between_tabs() {
    let mut fields = Fields::default();
    let raw = "a\t\t\"b\\t\"\t";
    fields.cut_tsv(raw, b'\t', false).unwrap();
    let all: Vec<_> = (0..fields.len()).map(|index| fields.get(raw, index)).collect();
    assert_eq!(all, ["a", "", "\"b\\t\"", ""]);
    assert_eq!(fields.get(raw, 9), "");
    fields.cut_tsv(raw, b'\t', true).unwrap();
    assert_eq!(fields.get(raw, 2), "\"b\t\"");
    assert!(fields.cut_tsv("a\\q", b'\t', true).is_err());
}
