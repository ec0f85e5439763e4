//! Contents of small files: search, read as a list of names, store as a collection.

use std::sync::Arc;
use std::time::Duration;

use exacat_model::answer::{ReplicaAt, Stat, Upload, UploadTarget, Whereis};
use exacat_model::operation::{FileRef, SeChoice};
use exacat_model::{AccountName, Answer, Checksum, ChecksumAlgorithm, Checksums, Lfn, Operation};
use exacat_wire::jalien::{Item, errno};
use md5::{Digest, Md5};

use super::expand::paths_of;
use super::replicas::{member, places};
use super::{missing, options};
use crate::data_server;
use crate::envelopes::{Access, Subject, is_own_place};
use crate::faces::jalien::shell::{Command, Failure, Outcome, STATS_AT_ONCE, Shell, unexpected};

pub(super) const COMMANDS: &[Command] = &[Command {
    name: "grep",
    usage: "[-i] [-v] [-c] [-l] [-n] [-F] PATTERN LFN…\nTells the lines of files that a regular expression matches.\n  \
            -i upper and lower case are the same  -v lines that do not match  -c count them  -l names of files only\n  \
            -n line numbers  -F PATTERN is plain text\n  Files have 16 MiB at most: copy larger ones.",
    run: |s, o| Box::pin(grep(s, o)),
}];

/// Most bytes of a file that a command works on.
pub(super) const CONTENT_BYTES_MAX: usize = 16 << 20;
/// Most files in memory at once, of all connections.
pub(in crate::faces::jalien) const CONTENTS_AT_ONCE: usize = 4;
/// Longest time to read or write a file.
const CONTENT_TIME: Duration = Duration::from_secs(60);
/// Most bytes of a compiled pattern.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// Most bytes of a reported line.
const LINE_BYTES_MAX: usize = 4 << 10;
/// Quality of service of storage elements for stored collections.
const LABEL: &str = "disk";

/// Takes one of the seats for content in memory; dropping the permit frees it.
pub(super) async fn seat(shell: &Shell) -> Outcome<tokio::sync::OwnedSemaphorePermit> {
    let seats = Arc::clone(&shell.face.contents);
    let closed = |_| Failure::new(errno::EAGAIN, "the server stops");
    match tokio::time::timeout(CONTENT_TIME, seats.acquire_owned()).await {
        Ok(seat) => seat.map_err(closed),
        Err(_) => Err(Failure::new(errno::EAGAIN, "too many files are worked on: try again")),
    }
}

/// Returns the URL field with an envelope; empty for a place that gets no envelopes.
fn shown(shell: &Shell, access: Access, subject: &Subject<'_>, prefix: &str) -> Outcome<String> {
    match is_own_place(subject.pfn, prefix, subject.guid) {
        true => Ok(format!("authz=Bearer%20{}", shell.face.envelopes.seal(shell.user(), access, subject)?)),
        false => Ok(String::new()),
    }
}

fn md5_of(content: &[u8]) -> Outcome<Checksum> {
    let digits: String = Md5::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Checksum::parse(&format!("md5:{digits}"))?)
}

/// Returns the whole content of a file, from any of its replicas.
pub(super) async fn fetch(shell: &mut Shell, stat: &Stat) -> Outcome<Vec<u8>> {
    let lfn = &stat.lfn;
    let Some(guid) = stat.entry.file().map(|file| file.guid) else {
        return Err(Failure::invalid(format!("{lfn} is not a file")));
    };
    if member(stat).is_some() {
        return Err(Failure::invalid(format!("{lfn} is inside an archive: copy it (cp), and look there")));
    }
    let whereis = places(shell, FileRef::Guid(guid)).await?;
    let Some(size) = whereis.size else {
        return Err(Failure::new(errno::ENODATA, format!("{lfn}: its size is not known")));
    };
    if size > CONTENT_BYTES_MAX as u64 {
        let why =
            format!("{lfn} has {size} bytes, more than {CONTENT_BYTES_MAX}: copy it (cp), and look there");
        return Err(Failure::invalid(why));
    }
    let mut last = "it has no replicas".to_owned();
    for replica in &whereis.replicas {
        match fetch_replica(shell, lfn, &whereis, replica, size).await? {
            Ok(content) => return Ok(content),
            Err(why) => last = why,
        }
    }
    Err(Failure::new(errno::EBADFD, format!("No read PFNs for {lfn}: {last}")))
}

/// Returns the content from one replica, or the reason why it was not read.
async fn fetch_replica(
    shell: &mut Shell,
    lfn: &Lfn,
    whereis: &Whereis,
    replica: &ReplicaAt,
    size: u64,
) -> Outcome<Result<Vec<u8>, String>> {
    let Some(se) = &replica.se else { return Ok(Err("it is on no storage element".to_owned())) };
    let ses = shell.ses().await?;
    let prefix = ses.iter().find(|known| known.se.name == *se).map_or("", |se| se.se.prefix.as_str());
    let md5 = whereis.checksums.get(ChecksumAlgorithm::Md5);
    let subject = Subject { lfn, guid: whereis.guid, se, pfn: &replica.pfn, size, md5 };
    let shown = shown(shell, Access::Read, &subject, prefix)?;
    let reading = data_server::read(&replica.pfn, &shown, size);
    let content = match tokio::time::timeout(CONTENT_TIME, reading).await {
        Ok(Ok(content)) => content,
        Ok(Err(why)) => return Ok(Err(format!("{se}: {why}"))),
        Err(_) => return Ok(Err(format!("{se}: not read within {CONTENT_TIME:?}"))),
    };
    if let Some(md5) = md5
        && md5_of(&content)? != *md5
    {
        return Ok(Err(format!("{se}: the MD5 of the replica is another")));
    }
    Ok(Ok(content))
}

/// Stores a new file.
pub(super) async fn store(shell: &mut Shell, lfn: &Lfn, content: &[u8]) -> Outcome {
    let checksums = Checksums::one(md5_of(content)?);
    let reserve = Operation::UploadReserve {
        lfn: lfn.clone(),
        guid: None,
        size: content.len() as u64,
        checksums: checksums.clone(),
        job: None,
        choice: Box::new(SeChoice {
            wanted: Vec::new(),
            qos: vec![(AccountName::parse(LABEL)?, 1)],
            excluded: Vec::new(),
            site: shell.site(),
        }),
        lifetime_seconds: None,
    };
    let Answer::Upload(upload) = shell.ask(reserve).await? else { return Err(unexpected()) };
    let Some(target) = upload.targets.first() else { return Err(unexpected()) };
    let guid = upload.reservation.guid;
    if let Err(failure) = write(shell, &upload, target, content).await {
        let abort = Operation::UploadAbort { guid, se: Some(target.se.clone()) };
        // If the abort fails, the reservation ends at its expiry.
        let _ = shell.ask(abort).await;
        return Err(failure);
    }
    let size = content.len() as u64;
    let commit = Operation::UploadCommit { guid, se: target.se.clone(), size, checksums };
    shell.ask(commit).await.map(|_| ())
}

async fn write(shell: &mut Shell, upload: &Upload, target: &UploadTarget, content: &[u8]) -> Outcome {
    let reservation = &upload.reservation;
    let ses = shell.ses().await?;
    let prefix = ses.iter().find(|known| known.se.name == target.se).map_or("", |se| se.se.prefix.as_str());
    let subject = Subject {
        lfn: &reservation.lfn,
        guid: reservation.guid,
        se: &target.se,
        pfn: &target.pfn,
        size: reservation.size,
        md5: reservation.checksums.get(ChecksumAlgorithm::Md5),
    };
    let shown = shown(shell, Access::Write, &subject, prefix)?;
    let failed = |why: String| {
        Failure::new(
            errno::EREMOTEIO,
            format!("{} cannot be stored on {}: {why}", reservation.lfn, target.se),
        )
    };
    match tokio::time::timeout(CONTENT_TIME, data_server::write(&target.pfn, &shown, content)).await {
        Ok(done) => done.map_err(failed),
        Err(_) => Err(failed(format!("not written within {CONTENT_TIME:?}"))),
    }
}

async fn grep(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&["i", "v", "c", "l", "n", "F", "E"], &[], given)?;
    let [pattern, texts @ ..] = options.rest.as_slice() else { return Err(missing("grep")) };
    if texts.is_empty() {
        return Err(missing("grep"));
    }
    let text = if options.has("F") { regex::escape(pattern) } else { pattern.clone() };
    let built = regex::RegexBuilder::new(&text)
        .case_insensitive(options.has("i"))
        .size_limit(PATTERN_BYTES_MAX)
        .build();
    let expression = built.map_err(|error| Failure::invalid(format!("bad pattern: {error}")))?;
    let lfns = paths_of(shell, texts).await?;
    let many = lfns.len() > 1;
    let seat = seat(shell).await?;
    for some in lfns.chunks(STATS_AT_ONCE) {
        for found in shell.stats(some.to_vec(), true).await? {
            let Some(stat) = shell.note(found) else { continue };
            let content = fetch(shell, &stat).await;
            let Some(content) = shell.note(content) else { continue };
            let lfn = stat.lfn.as_str();
            let mut count = 0u64;
            for (number, line) in (1u64..).zip(lines(&content)) {
                let line = String::from_utf8_lossy(line);
                if expression.is_match(&line) == options.has("v") {
                    continue;
                }
                count += 1;
                if options.has("l") {
                    break;
                }
                if options.has("c") {
                    continue;
                }
                let told = &line[..line.floor_char_boundary(LINE_BYTES_MAX)];
                let mut text = if many { format!("{lfn}:") } else { String::new() };
                if options.has("n") {
                    text.push_str(&format!("{number}:"));
                }
                text.push_str(told);
                let item = Item::new().with("lfn", lfn).with("line", number.to_string()).saying(text);
                shell.say(item).await?;
            }
            if options.has("l") && count > 0 {
                shell.say(Item::new().with("lfn", lfn).saying(lfn)).await?;
            } else if options.has("c") {
                let text = if many { format!("{lfn}:{count}") } else { count.to_string() };
                shell.say(Item::new().with("lfn", lfn).with("count", count.to_string()).saying(text)).await?;
            }
        }
    }
    drop(seat);
    Ok(())
}

/// Returns the lines of a content, without their ends.
fn lines(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    let content = content.strip_suffix(b"\n").unwrap_or(content);
    let empty = content.is_empty();
    content
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .filter(move |_| !empty)
}

/// Returns the names in a list file: one a line, without empty lines and those that start with `#`.
pub(super) async fn names_in(shell: &mut Shell, text: &str) -> Outcome<Vec<String>> {
    let lfn = shell.path(text)?;
    let stat = shell.stat(&lfn, true).await?;
    let content = fetch(shell, &stat).await?;
    let bad = |_| Failure::invalid(format!("{lfn} is no list of names: it is no UTF-8"));
    let content = String::from_utf8(content).map_err(bad)?;
    let names = content.lines().map(str::trim).filter(|name| !name.is_empty() && !name.starts_with('#'));
    Ok(names.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_split_into_lines_without_their_ends() {
        let told = |content: &'static [u8]| lines(content).collect::<Vec<_>>();
        assert_eq!(told(b"a\r\n\nb"), [&b"a"[..], b"", b"b"]);
        assert_eq!(told(b"a\n"), [b"a"]);
        assert!(told(b"").is_empty() && told(b"\n").is_empty());
    }
}
