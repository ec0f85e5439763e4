//! Formats entries, sizes and times for people.

use exacat_model::answer::Stat;
use exacat_model::{Body, Entry, Tag, TimeMs, Usage};

use super::{Align, Out, Table};

/// Stands for an unknown value.
pub(crate) const UNKNOWN: &str = "-";

const UNITS: [&str; 10] = ["k", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q"];

/// Formats bytes with a unit in powers of 1000, in three digits: `999`, `1.0k`, `12M`, `345G`.
pub(crate) fn size(bytes: u128) -> String {
    if bytes < 1000 {
        return bytes.to_string();
    }
    let mut unit = 0;
    let mut divisor = 1000u128;
    // Take the next unit where rounding would give four digits.
    while unit + 1 < UNITS.len() && (bytes + divisor / 2) / divisor >= 1000 {
        divisor *= 1000;
        unit += 1;
    }
    let tenths = (bytes * 10 + divisor / 2) / divisor;
    if tenths < 100 {
        format!("{}.{}{}", tenths / 10, tenths % 10, UNITS[unit])
    } else {
        format!("{}{}", (bytes + divisor / 2) / divisor, UNITS[unit])
    }
}

/// Formats a time to the minute, UTC: `2026-11-21 10:00`.
pub(crate) fn minute(time: TimeMs) -> String {
    shortened(time, 16)
}

/// Formats a time to the second, UTC: `2026-11-21 10:00:07`.
pub(crate) fn second(time: TimeMs) -> String {
    shortened(time, 19)
}

fn shortened(time: TimeMs, characters: usize) -> String {
    let text = time.to_string();
    match text.get(..characters) {
        Some(start) if text.as_bytes().get(10) == Some(&b'T') => start.replacen('T', " ", 1),
        _ => text,
    }
}

/// Folds words into lines of `width` characters; never breaks a word.
pub(crate) fn folded<'a>(words: impl IntoIterator<Item = &'a str>, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Formats a duration in its largest fitting unit: `3d`, `5h`, `20m`, `7s`.
pub(crate) fn duration(ms: u64) -> String {
    match ms / 1000 {
        seconds if seconds >= 2 * 86_400 => format!("{}d", seconds / 86_400),
        seconds if seconds >= 2 * 3_600 => format!("{}h", seconds / 3_600),
        seconds if seconds >= 2 * 60 => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}

/// Formats a short time in its largest fitting unit: `850us`, `12.5ms`, `3.2s`.
pub(crate) fn microseconds(us: u64) -> String {
    exacat_server::report::short_time(us)
}

/// Columns of a long listing; the last is the name.
pub(crate) const LONG: [Align; 7] =
    [Align::Left, Align::Right, Align::Left, Align::Left, Align::Right, Align::Left, Align::Left];

/// Makes a row of a long listing: mode, replicas (or members), owner, group, size, time, `name`.
pub(crate) fn long_row(out: &Out, stat: &Stat, name: &str) -> Vec<String> {
    let entry = &stat.entry;
    let (count, size) = match &entry.body {
        Body::File(file) => (
            file.replicas.len().to_string(),
            file.size.map_or(UNKNOWN.into(), |bytes| out.size(u128::from(bytes))),
        ),
        Body::Collection { members, .. } => (members.to_string(), UNKNOWN.into()),
        Body::Directory(_) | Body::Link { .. } => (UNKNOWN.into(), UNKNOWN.into()),
    };
    let mut shown = out.name(name).to_string();
    if let Body::Link { target, .. } = &entry.body {
        shown.push_str(" -> ");
        shown.push_str(&out.name(target.as_str()).to_string());
    }
    vec![
        format!("{}{}", entry.kind().letter(), entry.mode.text()),
        count,
        stat.owner.to_string(),
        stat.group.to_string(),
        size,
        minute(entry.modified),
        shown,
    ]
}

/// Makes the table of a long listing.
pub(crate) fn long_table() -> Table {
    Table::new(LONG)
}

/// Formats usage in a few words: `12 files, 3.4G, 2 directories`.
pub(crate) fn usage(out: &Out, usage: &Usage) -> String {
    let mut parts = vec![plural(usage.objects(), "file"), out.size(usage.bytes + usage.member_bytes)];
    if usage.directories > 0 {
        parts.push(plural(usage.directories, "directory"));
    }
    parts.join(", ")
}

/// Formats a number and its noun.
pub(crate) fn plural(count: u64, noun: &str) -> String {
    if count == 1 {
        return format!("1 {noun}");
    }
    match noun.strip_suffix('y') {
        Some(stem) if !noun.ends_with("ay") && !noun.ends_with("ey") => format!("{count} {stem}ies"),
        _ if noun.ends_with('s') => format!("{count} {noun}es"),
        _ => format!("{count} {noun}s"),
    }
}

/// Formats a tag as [`Tag::parse`] reads it back.
pub(crate) fn tag(tag: &Tag) -> String {
    format!("{}={}", tag.key, tag.value)
}

/// Describes an entry in short, for the trash and the history.
pub(crate) fn brief(out: &Out, entry: &Entry) -> String {
    match (&entry.body, entry.size()) {
        (Body::File(_), Some(bytes)) => format!("file, {}", out.size(u128::from(bytes))),
        (Body::Collection { members, .. }, _) => format!("collection, {}", plural(*members, "member")),
        (Body::Link { target, .. }, _) => format!("link to {}", out.name(target.as_str())),
        _ => entry.kind().name().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_figures() {
        for (bytes, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1.0k"),
            (1049, "1.0k"),
            (1050, "1.1k"),
            (9_949, "9.9k"),
            (9_950, "10k"),
            (999_499, "999k"),
            (999_500, "1.0M"),
            (2_500_000_000, "2.5G"),
            (1 << 60, "1.2E"),
            (u128::from(u64::MAX) * 1000, "18Z"),
        ] {
            assert_eq!(size(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn times_and_counts_read_well() {
        assert_eq!(minute(TimeMs(1_414_153_225_123)), "2014-10-24 12:20");
        assert_eq!(second(TimeMs(1_414_153_225_123)), "2014-10-24 12:20:25");
        assert_eq!(minute(TimeMs(u64::MAX)), format!("{}ms", u64::MAX));
        assert_eq!(duration(7_000), "7s");
        assert_eq!(duration(26 * 3_600_000), "26h");
        assert_eq!([850, 12_570, 3_200_000].map(microseconds), ["850us", "12.5ms", "3.2s"]);
        assert_eq!(plural(1, "entry"), "1 entry");
        assert_eq!(plural(2, "entry"), "2 entries");
        assert_eq!(plural(0, "file"), "0 files");
    }
}
