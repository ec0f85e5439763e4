//! Files of traces. `docs/reference/traces.md` has the format.
//!
//! ```text
//! # exacat trace 1
//! # {"made":"generated","seed":7}
//! 1543622400000000 ⇥ /atlas/f.root ⇥ 2147483648 ⇥ 0a1b2c3d ⇥ MWT2 ⇥ mc16 ⇥ -
//! # end 1
//! ```
//! The last line tells a whole trace from one that was cut off.

use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use exacat_exchange::error::{Error, Result};
use exacat_exchange::input::{BytesRead, Compression, Input};
use exacat_exchange::output::OutputFile;
use exacat_exchange::records::{Format, Records};

use super::reads::Reads;
use super::{AccessRow, Trace};
use crate::limits::{COMPRESSION_LEVEL, DESCRIPTION_BYTES_MAX, LINE_BYTES_MAX};

/// First line, without its version.
const TITLE: &str = "# exacat trace ";
/// Version of the format.
const VERSION: u32 = 1;
/// Begin of the last line.
const END: &str = "# end ";

/// Says whether the content of a file begins as a trace does.
pub fn is_trace(head: &[u8]) -> bool {
    head.starts_with(TITLE.as_bytes())
}

fn push_line(out: &mut Vec<u8>, row: &AccessRow<'_>) -> io::Result<()> {
    let AccessRow { time_us, name, size, site, dataset, reads, .. } = row;
    let or_dash = |text: &'_ str| if text.is_empty() { "-" } else { text }.to_owned();
    write!(out, "{time_us}\t{name}\t{size}\t")?;
    match row.adler32 {
        Some(sum) => write!(out, "{sum:08x}")?,
        None => out.push(b'-'),
    }
    writeln!(out, "\t{}\t{}\t{reads}", or_dash(site), or_dash(dataset))
}

/// Reads a line of a trace.
///
/// # Errors
/// Says what is wrong with it.
pub fn parse_line(line: &str) -> std::result::Result<AccessRow<'_>, &'static str> {
    let mut fields = line.split('\t');
    let mut next = || fields.next().ok_or("a line has 7 fields");
    let (time_us, name, size) = (next()?, next()?, next()?);
    let (adler32, site, dataset, reads) = (next()?, next()?, next()?, next()?);
    if fields.next().is_some() {
        return Err("a line has 7 fields");
    }
    let known = |text: &'_ str| text != "-";
    let sum = |text: &str| u32::from_str_radix(text, 16).map_err(|_| "the checksum has 8 hexadecimal digits");
    Ok(AccessRow {
        time_us: time_us.parse().map_err(|_| "the time is no number of microseconds")?,
        name,
        size: size.parse().map_err(|_| "the size is no number of bytes")?,
        adler32: Some(adler32).filter(|text| known(text)).map(sum).transpose()?,
        site: Some(site).filter(|text| known(text)).unwrap_or_default(),
        dataset: Some(dataset).filter(|text| known(text)).unwrap_or_default(),
        reads: Reads::parse(reads)?,
    })
}

/// Writes a trace to a file. One that was there stays until the new one is whole.
///
/// # Errors
/// The file cannot be written.
pub fn write(trace: &Trace, path: &Path) -> Result<()> {
    let compression = Compression::of_name(path);
    if !matches!(compression, Compression::Plain | Compression::Zstd) {
        return Err(Error::options("a trace is plain text, or compressed with Zstandard: name it NAME.zst"));
    }
    let file = OutputFile::create(path)?;
    let cannot = |error| Error::file("write", path, error);
    let out = BufWriter::with_capacity(1 << 20, file.writer()?);
    match compression {
        Compression::Zstd => {
            let mut encoder = zstd::Encoder::new(out, COMPRESSION_LEVEL).map_err(cannot)?;
            encoder.include_checksum(true).map_err(cannot)?;
            let mut out = write_to(trace, encoder).and_then(zstd::Encoder::finish).map_err(cannot)?;
            out.flush().map_err(cannot)?;
        }
        _ => {
            let mut out = write_to(trace, out).map_err(cannot)?;
            out.flush().map_err(cannot)?;
        }
    }
    file.finish()
}

fn write_to<W: Write>(trace: &Trace, mut out: W) -> io::Result<W> {
    let mut lines = format!("{TITLE}{VERSION}\n# {}\n", trace.description).into_bytes();
    for access in trace.accesses() {
        push_line(&mut lines, &trace.row(access))?;
        if lines.len() >= 64 << 10 {
            out.write_all(&lines)?;
            lines.clear();
        }
    }
    writeln!(lines, "{END}{}", trace.accesses().len())?;
    out.write_all(&lines)?;
    Ok(out)
}

/// Reads a trace. `count` counts the bytes of the file that were read.
///
/// # Errors
/// The file cannot be read, is no trace, or is damaged.
pub fn read(path: &Path, count: &BytesRead) -> Result<Trace> {
    let input = Input::open(path, None)?;
    read_from(input.reader(count)?, input.path())
}

fn read_from(reader: Box<dyn Read + Send>, path: &Path) -> Result<Trace> {
    let cannot = |error| Error::file("read", path, error);
    let bad = |line: u64, what: &str| Error::options(format!("{}, line {line}: {what}", path.display()));
    let mut records = Records::new(reader, Format::JsonLines, b'\t').map_err(cannot)?;
    let mut trace = Trace::new();
    let (mut line, mut has_ended) = (0, false);
    while let Some(record) = records.next_record().map_err(cannot)? {
        line = record.line;
        if record.flaw.is_some() || record.raw.len() > LINE_BYTES_MAX.max(DESCRIPTION_BYTES_MAX) {
            return Err(bad(line, "it is longer than a line of a trace"));
        }
        let text = std::str::from_utf8(record.raw).map_err(|_| bad(line, "it is not UTF-8"))?;
        if has_ended {
            return Err(bad(line, "there is more behind the end of the trace"));
        }
        match line {
            1 => {
                let version = text.strip_prefix(TITLE).and_then(|version| version.parse::<u32>().ok());
                match version {
                    Some(version) if version <= VERSION => {}
                    Some(_) => return Err(bad(line, "the trace is of a newer release: use it")),
                    None => return Err(bad(line, "this is no trace: make one with exacat replay import")),
                }
            }
            2 => {
                let described = text.strip_prefix("# ").and_then(|text| serde_json::from_str(text).ok());
                trace.description = described.ok_or_else(|| bad(line, "it does not describe a trace"))?;
            }
            _ => match text.strip_prefix(END) {
                Some(number) => {
                    if number.parse() != Ok(trace.accesses().len()) {
                        return Err(bad(line, "the trace has another number of accesses than it says"));
                    }
                    has_ended = true;
                }
                None => {
                    let row = parse_line(text).map_err(|what| bad(line, what))?;
                    trace.add(&row).map_err(|flaw| bad(line, &flaw.to_string()))?;
                    if trace.out_of_order > 0 {
                        return Err(bad(line, "it is earlier than the line before"));
                    }
                }
            },
        }
    }
    if has_ended { Ok(trace) } else { Err(bad(line, "the trace is cut off: copy or make it again")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> Trace {
        let mut trace = Trace::new();
        trace.description = serde_json::json!({"made": "by hand", "text": "a\nb"});
        let row =
            AccessRow { time_us: 7, name: "/a b", size: 5, adler32: Some(0xab), ..AccessRow::default() };
        trace.add(&row).unwrap();
        let reads = Reads::parse("0+2,3+1").unwrap();
        trace.add(&AccessRow { time_us: 8, site: "S", dataset: "d", reads, ..row.clone() }).unwrap();
        trace.add(&AccessRow { name: "/c", adler32: None, ..row }).unwrap();
        trace.sort();
        trace
    }

    fn of_text(text: &[u8]) -> Result<Trace> {
        read_from(Box::new(io::Cursor::new(text.to_vec())), Path::new("trace"))
    }

    /// Property: a trace is read as it was written; cut off or changed anywhere in its structure it is
    /// refused.
    #[test]
    fn traces_come_back_or_are_refused() {
        let text = write_to(&trace(), Vec::new()).unwrap();
        let read = of_text(&text).unwrap();
        assert_eq!(write_to(&read, Vec::new()).unwrap(), text);
        assert_eq!((read.accesses().len(), read.files().len()), (3, 2));
        for at in 0..text.len() - 1 {
            assert!(of_text(&text[..at]).is_err(), "cut at {at}");
        }
        let told = |from: &str, to: &str| {
            let text = String::from_utf8(text.clone()).unwrap().replacen(from, to, 1);
            of_text(text.as_bytes()).err().map(|error| error.to_string()).unwrap_or_default()
        };
        for (from, to, says) in [
            ("trace 1", "trace 2", "newer release"),
            ("# exacat", "# other", "this is no trace"),
            ("\n7\t", "\n9\t", "line 4: it is earlier"),
            ("\t5\t", "\t0\t", "line 3: the file has no size"),
            ("000000ab", "xyz", "hexadecimal"),
            ("# end 3", "# end 4", "another number"),
            ("\t-\n", "\n", "7 fields"),
            ("# end 3\n", "# end 3\nx\n", "behind the end"),
        ] {
            assert!(told(from, to).contains(says), "{from:?} {to:?}: {}", told(from, to));
        }
    }

    /// Property: a compressed trace with any byte changed is refused or the same.
    #[test]
    fn files_are_compressed_and_checked() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["t.tsv", "t.zst"] {
            let path = directory.path().join(name);
            write(&trace(), &path).unwrap();
            assert_eq!(read(&path, &BytesRead::default()).unwrap().accesses(), trace().accesses(), "{name}");
        }
        for name in ["t.gz", "t.bz2"] {
            assert!(write(&trace(), &directory.path().join(name)).is_err());
        }
        let path = directory.path().join("t.zst");
        let bytes = std::fs::read(&path).unwrap();
        let plain = write_to(&trace(), Vec::new()).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            std::fs::write(&path, &changed).unwrap();
            if let Ok(read) = read(&path, &BytesRead::default()) {
                assert_eq!(write_to(&read, Vec::new()).unwrap(), plain, "byte {at}");
            }
        }
    }
}
