//! Text forms of values, for people and programs of this protocol.

use exacat_model::answer::Stat;
use exacat_model::{Body, ChecksumAlgorithm, Checksums, Kind, TimeMs};
use exacat_wire::jalien::path;

use crate::envelopes::md5_text;

fn moment(time: TimeMs) -> jiff::Timestamp {
    let ms = i64::try_from(time.0).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX)
}

/// Returns a time as `Nov 21 18:40`, in UTC.
pub(super) fn short_time(time: TimeMs) -> String {
    moment(time).strftime("%b %d %H:%M").to_string()
}

/// Returns a time as `2026-11-21 18:40:10`, in UTC.
pub(super) fn plain_time(time: TimeMs) -> String {
    moment(time).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// Returns a time as `Sat Nov 21 18:40:24 2026`, in UTC.
pub(super) fn long_time(time: TimeMs) -> String {
    moment(time).strftime("%a %b %d %H:%M:%S %Y").to_string()
}

/// Returns the letter of a kind, for programs.
pub(super) fn kind_letter(kind: Kind) -> &'static str {
    match kind {
        Kind::Directory => "d",
        Kind::File => "f",
        Kind::Collection => "c",
        Kind::Link => "l",
    }
}

/// Returns the permissions as `drwxr-xr-x`.
pub(super) fn permissions(stat: &Stat) -> String {
    format!("{}{}", stat.entry.kind().letter(), stat.entry.mode.text())
}

/// Returns the path of an entry; a directory has a trailing slash.
pub(super) fn path_text(stat: &Stat) -> String {
    match stat.entry.kind() {
        Kind::Directory => path::directory_text(&stat.lfn),
        _ => stat.lfn.as_str().to_owned(),
    }
}

/// Returns the bytes of a file; 0 for other entries and unknown sizes.
pub(super) fn size(stat: &Stat) -> u64 {
    stat.entry.size().unwrap_or(0)
}

/// Returns the digits of an MD5; empty if it is not known.
pub(super) fn md5(checksums: &Checksums) -> String {
    checksums.get(ChecksumAlgorithm::Md5).map(md5_text).unwrap_or_default()
}

/// Returns the MD5 of an entry; empty if it is not known.
pub(super) fn md5_of(stat: &Stat) -> String {
    stat.entry.file().map(|file| md5(&file.checksums)).unwrap_or_default()
}

/// Returns the GUID of an entry; empty for a directory.
pub(super) fn guid_of(stat: &Stat) -> String {
    stat.entry.guid().map(|guid| guid.to_string()).unwrap_or_default()
}

/// Returns the job that made a file.
pub(super) fn job_of(stat: &Stat) -> Option<u64> {
    match &stat.entry.body {
        Body::File(file) => file.job,
        _ => None,
    }
}

/// Returns one line of a long listing, without the name.
pub(super) fn long_line(stat: &Stat, human: bool) -> String {
    let bytes = if human { human_size(size(stat)) } else { size(stat).to_string() };
    format!(
        "{}   {:>8} {:>8} {bytes:>12} {}",
        permissions(stat),
        stat.owner.as_str(),
        stat.group.as_str(),
        short_time(stat.entry.modified)
    )
}

/// Returns a size as `1.5 GB`: powers of 1024, in JAliEn's form.
pub(super) fn human_size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KB", "MB", "GB", "TB", "PB", "EB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.4} {}", UNITS[unit]) }
}

/// Escapes a text for an XML attribute.
pub(super) fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML 1.0 cannot express the other control characters.
            character if (character as u32) < 0x20 => out.push_str(&format!("&#{};", character as u32)),
            character => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_written_as_clients_know_them() {
        let time = TimeMs(1_795_286_424_669);
        assert_eq!(short_time(time), "Nov 21 18:40");
        assert_eq!(plain_time(time), "2026-11-21 18:40:24");
        assert_eq!(long_time(time), "Sat Nov 21 18:40:24 2026");
        assert_eq!(human_size(1023), "1023 B");
        assert_eq!(human_size(1536), "1.5000 KB");
        assert_eq!(human_size(u64::MAX), "16.0000 EB");
        assert!(!short_time(TimeMs(u64::MAX)).is_empty());
        assert_eq!(xml("a<b>&\"c\"\n"), "a&lt;b&gt;&amp;&quot;c&quot;&#10;");
    }
}
