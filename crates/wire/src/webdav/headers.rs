//! Headers of requests, and the headers with checksums that answer them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use exacat_model::{Checksum, ChecksumAlgorithm, Checksums, Error, Result};

use super::shown;

/// Part of the tree that a request covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The entry only.
    Zero,
    /// The entry and the names in it.
    One,
    /// The entry and everything below it.
    Infinity,
}

/// Reads the header `Depth`; none if it is missing.
pub fn depth(header: Option<&str>) -> Result<Option<Depth>> {
    let Some(header) = header else { return Ok(None) };
    match header.trim() {
        "0" => Ok(Some(Depth::Zero)),
        "1" => Ok(Some(Depth::One)),
        text if text.eq_ignore_ascii_case("infinity") => Ok(Some(Depth::Infinity)),
        text => Err(Error::invalid(format!("the header Depth is {:?}, not 0, 1 or infinity", shown(text)))),
    }
}

/// Reads the header `Overwrite`: whether COPY and MOVE may replace an entry. They may if it is
/// missing.
pub fn overwrite(header: Option<&str>) -> Result<bool> {
    match header.map(str::trim) {
        None | Some("T" | "t") => Ok(true),
        Some("F" | "f") => Ok(false),
        Some(text) => Err(Error::invalid(format!("the header Overwrite is {:?}, not T or F", shown(text)))),
    }
}

/// Returns the algorithm that a digest header names, in any case and spelling in use.
fn algorithm(name: &str) -> Option<ChecksumAlgorithm> {
    let is = |names: &[&str]| names.iter().any(|known| name.eq_ignore_ascii_case(known));
    ChecksumAlgorithm::ALL.into_iter().find(|algorithm| match algorithm {
        ChecksumAlgorithm::Adler32 => is(&["adler32", "adler", "adler-32"]),
        ChecksumAlgorithm::Crc32c => is(&["crc32c"]),
        ChecksumAlgorithm::Md5 => is(&["md5"]),
        ChecksumAlgorithm::Sha1 => is(&["sha", "sha-1", "sha1"]),
        ChecksumAlgorithm::Sha256 => is(&["sha-256", "sha256"]),
    })
}

/// Orders algorithms by falling weight, then by place. Weight 0 means unwanted; an algorithm counts
/// once, with its first weight.
fn ordered(found: impl Iterator<Item = (ChecksumAlgorithm, u16)>) -> Vec<ChecksumAlgorithm> {
    let mut wanted: Vec<(ChecksumAlgorithm, u16)> = Vec::new();
    for (algorithm, weight) in found {
        if wanted.iter().all(|(known, _)| *known != algorithm) {
            wanted.push((algorithm, weight));
        }
    }
    wanted.retain(|(_, weight)| *weight > 0);
    wanted.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
    wanted.into_iter().map(|(algorithm, _)| algorithm).collect()
}

/// Reads the header `Want-Digest` (RFC 3230), as in `adler32, md5;q=0.5`: algorithms that the catalogue
/// knows, the most wanted first. Ignores everything else.
pub fn want_digest(header: &str) -> Vec<ChecksumAlgorithm> {
    ordered(header.split(',').filter_map(|item| {
        let mut parts = item.split(';').map(str::trim);
        let algorithm = algorithm(parts.next()?)?;
        let weight = parts.find_map(|part| {
            let (name, value) = part.split_once('=')?;
            name.trim().eq_ignore_ascii_case("q").then_some(value.trim())
        });
        Some((algorithm, weight.map_or(Some(1000), thousandths)?))
    }))
}

/// Reads a weight from 0 to 1 with up to three decimals.
fn thousandths(text: &str) -> Option<u16> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if !matches!(whole, "0" | "1")
        || decimals.len() > 3
        || !decimals.bytes().all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let weight: u16 = format!("{whole}{decimals:0<3}").parse().ok()?;
    (weight <= 1000).then_some(weight)
}

/// Reads the header `Want-Repr-Digest` (RFC 9530), as in `adler=5, sha-256=3`, like [`want_digest`].
pub fn want_repr_digest(header: &str) -> Vec<ChecksumAlgorithm> {
    ordered(header.split(',').filter_map(|item| {
        let member = item.split(';').next()?;
        let (name, weight) = member.split_once('=')?;
        let weight: u16 = weight.trim().parse().ok()?;
        (weight <= 10).then_some((algorithm(name.trim())?, weight))
    }))
}

/// Appends the item of one checksum in the form of RFC 3230: hex digits for 32-bit numbers, base64 for
/// the others.
fn push_digest(text: &mut String, checksum: &Checksum) {
    let digest = checksum.digest();
    let (name, is_number) = match checksum.algorithm() {
        ChecksumAlgorithm::Adler32 => ("adler32", true),
        ChecksumAlgorithm::Crc32c => ("crc32c", true),
        ChecksumAlgorithm::Md5 => ("md5", false),
        ChecksumAlgorithm::Sha1 => ("sha", false),
        ChecksumAlgorithm::Sha256 => ("sha-256", false),
    };
    // davix finds an item only directly after a comma, so no blank separates items.
    if !text.is_empty() {
        text.push(',');
    }
    text.push_str(name);
    text.push('=');
    if is_number {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        for byte in digest {
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    } else {
        STANDARD.encode_string(digest, text);
    }
}

/// Returns the header `Digest` (RFC 3230) with the known ones among the wanted checksums, as in
/// `adler32=0a1af2bf`; none if none is known.
pub fn digest_header(checksums: &Checksums, wanted: &[ChecksumAlgorithm]) -> Option<String> {
    let mut text = String::new();
    for checksum in wanted.iter().filter_map(|algorithm| checksums.get(*algorithm)) {
        push_digest(&mut text, checksum);
    }
    (!text.is_empty()).then_some(text)
}

/// Reads the header `Digest` (RFC 3230), as in `adler32=0a1af2bf`: the checksums that the catalogue knows.
/// Ignores everything else.
pub fn read_digest(header: &str) -> Vec<Checksum> {
    let items = header.split(',').filter_map(|item| item.trim().split_once('='));
    let checksums = items.filter_map(|(name, value)| {
        let (algorithm, value) = (algorithm(name.trim())?, value.trim());
        if matches!(algorithm, ChecksumAlgorithm::Adler32 | ChecksumAlgorithm::Crc32c) {
            // XRootD drops leading zeros in some versions.
            let digits = (!value.is_empty()).then(|| format!("{}:{value:0>8}", algorithm.name()))?;
            return Checksum::parse(&digits).ok();
        }
        Checksum::new(algorithm, &STANDARD.decode(value).ok()?).ok()
    });
    checksums.collect()
}

/// Reads the header `Repr-Digest` (RFC 9530), as in `adler=:Chryvw==:`, like [`read_digest`].
pub fn read_repr_digest(header: &str) -> Vec<Checksum> {
    let items = header.split(',').filter_map(|item| item.split(';').next()?.trim().split_once('='));
    let checksums = items.filter_map(|(name, value)| {
        let bytes = value.trim().strip_prefix(':')?.strip_suffix(':')?;
        Checksum::new(algorithm(name.trim())?, &STANDARD.decode(bytes).ok()?).ok()
    });
    checksums.collect()
}

/// Appends all checksums in the form of the header `Digest`, as dCache's property has them.
pub(super) fn push_checksums(out: &mut Vec<u8>, checksums: &Checksums) {
    let mut text = String::new();
    for checksum in checksums.iter() {
        push_digest(&mut text, checksum);
    }
    out.extend_from_slice(text.as_bytes());
}

/// Returns the header `Repr-Digest` (RFC 9530) with the known ones among the wanted checksums, as in
/// `adler=:Chryvw==:`; none if none is known.
pub fn repr_digest_header(checksums: &Checksums, wanted: &[ChecksumAlgorithm]) -> Option<String> {
    let mut text = String::new();
    for checksum in wanted.iter().filter_map(|algorithm| checksums.get(*algorithm)) {
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(match checksum.algorithm() {
            ChecksumAlgorithm::Adler32 => "adler",
            ChecksumAlgorithm::Crc32c => "crc32c",
            ChecksumAlgorithm::Md5 => "md5",
            ChecksumAlgorithm::Sha1 => "sha",
            ChecksumAlgorithm::Sha256 => "sha-256",
        });
        text.push_str("=:");
        STANDARD.encode_string(checksum.digest(), &mut text);
        text.push(':');
    }
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_read_as_they_are_written() {
        let mut checksums = Checksums::none();
        for text in ["adler32:0a1af2bf", "crc32c:00000001", "md5:5eb63bbbe01eeed093cb22bb8f5acdc3"] {
            checksums.add(Checksum::parse(text).unwrap()).unwrap();
        }
        let all: Vec<Checksum> = checksums.iter().cloned().collect();
        let wanted: Vec<_> = all.iter().map(Checksum::algorithm).collect();
        assert_eq!(read_digest(&digest_header(&checksums, &wanted).unwrap()), all);
        assert_eq!(read_repr_digest(&repr_digest_header(&checksums, &wanted).unwrap()), all);
        assert_eq!(
            read_digest("ADLER32=a1af2bf, foo=1,, md5=no"),
            [Checksum::parse("adler32:0a1af2bf").unwrap()]
        );
        for nothing in ["", "adler32", "adler32=", "adler32=zz", "adler32=123456789", "=", "md5=Zg=="] {
            assert!(read_digest(nothing).is_empty(), "{nothing}");
        }
        for nothing in ["", "adler", "adler=1", "adler=:!:", "adler=:Zg==:", "unknown=:Zg==:"] {
            assert!(read_repr_digest(nothing).is_empty(), "{nothing}");
        }
    }
}
