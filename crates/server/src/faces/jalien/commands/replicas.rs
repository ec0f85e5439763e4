//! Commands for file locations: replicas, GUIDs, archives and collections.

use exacat_model::answer::{Stat, Whereis};
use exacat_model::operation::{FileRef, ReplicaEdit};
use exacat_model::{
    Answer, Cursor, Error, ErrorKind, Guid, Kind, Lfn, Location, Operation, SeName, SeNumber,
};
use exacat_wire::jalien::{Item, errno};

use super::expand::{expand_all, paths_of};
use super::{missing, options};
use crate::faces::jalien::shell::{Command, Failure, Outcome, STATS_AT_ONCE, Shell, unexpected};
use crate::faces::jalien::texts;

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "whereis",
        usage: "[-r] [-g] [-l] LFN|GUID…\nTells where the replicas of files are, the best first; -r of members of archives where the archive is.",
        run: |s, o| Box::pin(whereis(s, o)),
    },
    Command {
        name: "md5sum",
        usage: "LFN|GUID…\nTells the MD5 of files.",
        run: |s, o| Box::pin(md5sum(s, o)),
    },
    Command {
        name: "lfn2guid",
        usage: "LFN…\nTells the GUID of files.",
        run: |s, o| Box::pin(lfn2guid(s, o)),
    },
    Command {
        name: "guid2lfn",
        usage: "GUID…\nTells the LFN of GUIDs; they may be part of a longer text, as of a URL.",
        run: |s, o| Box::pin(guid2lfn(s, o)),
    },
    Command {
        name: "deleteMirror",
        usage: "[-g] LFN|GUID SE\nTakes a replica away; the storage element deletes it.",
        run: |s, o| Box::pin(delete_mirror(s, o)),
    },
    Command {
        name: "archiveList",
        usage: "LFN|GUID…\nTells the members of archives that have names below the archive's directory.",
        run: |s, o| Box::pin(archive_list(s, o)),
    },
    Command {
        name: "listFilesFromCollection",
        usage: "[-z] [-v] LFN\nLists the members of a collection; -v sizes and MD5 too, -z members without a name too.",
        run: |s, o| Box::pin(collection(s, o)),
    },
];

/// Returns a line for one replica.
fn replica_line(se: &str, pfn: &str) -> String {
    format!("\t SE => {se:<24} pfn => {pfn}")
}

/// Returns the locations of one file.
pub(super) async fn places(shell: &mut Shell, file: FileRef) -> Outcome<Whereis> {
    let site = shell.site();
    match shell.ask(Operation::Whereis { files: vec![file], site }).await? {
        Answer::Whereis(mut found) => match found.pop() {
            Some(found) => Ok(found?),
            None => Err(unexpected()),
        },
        _ => Err(unexpected()),
    }
}

/// Returns the number of a storage element, as text.
pub(super) async fn number(shell: &mut Shell, name: Option<&SeName>) -> Outcome<String> {
    let Some(name) = name else { return Ok("0".to_owned()) };
    let ses = shell.ses().await?;
    let found = ses.iter().find(|se| se.se.name == *name);
    Ok(found.map_or(0, |se| se.se.number.0).to_string())
}

/// Returns the archive that contains a file, and the file's name in it.
pub(super) fn member(stat: &Stat) -> Option<(Guid, &str)> {
    stat.entry.file()?.replicas.iter().find_map(|replica| match &replica.location {
        Location::Member { archive, member } => Some((*archive, member.as_str())),
        _ => None,
    })
}

async fn whereis(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&["g", "r", "l"], &[], given)?;
    if options.rest.is_empty() {
        return Err(missing("whereis"));
    }
    let lfns = paths_of(shell, &options.rest).await?;
    for some in lfns.chunks(STATS_AT_ONCE) {
        for found in shell.stats(some.to_vec(), true).await? {
            let Some(stat) = shell.note(found) else { continue };
            let told = where_one(shell, &stat, options.has("r") || options.has("l"), options.has("l")).await;
            shell.note(told);
        }
    }
    Ok(())
}

async fn where_one(shell: &mut Shell, stat: &Stat, resolve: bool, name: bool) -> Outcome {
    let Some(guid) = stat.entry.file().map(|file| file.guid) else {
        return Err(Failure::invalid(format!("{} is not a file", stat.lfn)));
    };
    let mut head = format!("the file {} is in\n\n", stat.entry.at.name);
    let inside = member(stat).map(|(archive, member)| (archive, member.to_owned()));
    if let (Some((archive, member)), false) = (&inside, resolve) {
        let pfn = format!("guid:///{archive}?ZIP={member}");
        let item = Item::new()
            .with("seNumber", "0")
            .with("seName", "ArchiveMember")
            .with("pfn", pfn.clone())
            .saying(format!("{head}{}", replica_line("ArchiveMember", &pfn)));
        return shell.say(item).await;
    }
    if let (Some((archive, _)), true) = (&inside, name)
        && let Answer::Lfns(mut found) = shell.ask(Operation::Lfns { guids: vec![*archive] }).await?
        && let Some(Ok(lfn)) = found.pop()
    {
        head = format!("the file {} is in the archive {lfn}, in\n\n", stat.entry.at.name);
    }
    let whereis = places(shell, FileRef::Guid(guid)).await?;
    if whereis.replicas.is_empty() {
        let number = if inside.is_some() { errno::EBADFD } else { errno::ENOLINK };
        return Err(Failure::new(number, format!("{} has no replicas", stat.lfn)));
    }
    for replica in &whereis.replicas {
        let se = replica.se.as_ref().map_or("", SeName::as_str);
        let item = Item::new()
            .with("seNumber", number(shell, replica.se.as_ref()).await?)
            .with("seName", se)
            .with("pfn", replica.pfn.clone())
            .saying(format!("{head}{}", replica_line(se, &replica.pfn)));
        head.clear();
        shell.say(item).await?;
    }
    Ok(())
}

/// Adds the replicas, for `stat -v`.
pub(super) async fn verbose(shell: &mut Shell, stat: &Stat, item: Item) -> Outcome<Item> {
    let Some(file) = stat.entry.file() else { return Ok(item) };
    let ses = shell.ses().await?;
    let mut replicas = Vec::new();
    for replica in &file.replicas {
        let se = ses.iter().find(|se| se.se.number == replica.se).map(|se| &se.se);
        let name = match replica.se {
            SeNumber::NONE => "ZIP".to_owned(),
            _ => se.map_or_else(|| replica.se.0.to_string(), |se| se.name.to_string()),
        };
        replicas.push((name, replica.pfn(file.guid, se)));
    }
    Ok(item.with("hostIndex", "").with("tableName", "").with_map("replicas", replicas))
}

async fn md5sum(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&[], &[], given)?;
    if options.rest.is_empty() {
        return Err(missing("md5sum"));
    }
    for text in &options.rest {
        let lfns = paths_of(shell, std::slice::from_ref(text)).await?;
        for some in lfns.chunks(STATS_AT_ONCE) {
            for found in shell.stats(some.to_vec(), true).await? {
                let Some(stat) = shell.note(found) else { continue };
                let md5 = texts::md5_of(&stat);
                if md5.is_empty() {
                    shell.fail_later(Failure::new(errno::ENODATA, format!("{}: no MD5 is known", stat.lfn)));
                    continue;
                }
                // Show the path as requested, unless it matched several entries.
                let shown = if exacat_model::expansion::has_wildcard(text) {
                    stat.lfn.to_string()
                } else {
                    text.clone()
                };
                let item = Item::new()
                    .with("md5", md5.clone())
                    .with("lfn", stat.lfn.as_str())
                    .saying(format!("{md5}\t{shown}"));
                shell.say(item).await?;
            }
        }
    }
    Ok(())
}

async fn lfn2guid(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&[], &[], given)?;
    if options.rest.is_empty() {
        return Err(missing("lfn2guid"));
    }
    let lfns = expand_all(shell, &options.rest).await?;
    for some in lfns.chunks(STATS_AT_ONCE) {
        for found in shell.stats(some.to_vec(), true).await? {
            let Some(stat) = shell.note(found) else { continue };
            let Some(guid) = stat.entry.guid() else {
                shell.fail_later(Failure::new(errno::EISDIR, stat.lfn.as_str()));
                continue;
            };
            let item = Item::new()
                .with("lfn", stat.lfn.as_str())
                .with("type", texts::kind_letter(stat.entry.kind()))
                .with("guid", guid.to_string())
                .saying(format!("{:<80}{guid}", stat.lfn.as_str()));
            shell.say(item).await?;
        }
    }
    Ok(())
}

/// Returns the GUID in a text such as a URL.
fn guid_in(text: &str) -> Option<Guid> {
    let bytes = text.as_bytes();
    (0..bytes.len().checked_sub(Guid::TEXT_BYTES - 1)?)
        .rev()
        .filter_map(|at| text.get(at..at + Guid::TEXT_BYTES))
        .find_map(|piece| Guid::parse(piece).ok())
}

async fn guid2lfn(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&[], &[], given)?;
    if options.rest.is_empty() {
        return Err(missing("guid2lfn"));
    }
    for text in &options.rest {
        let Some(guid) = guid_in(text) else {
            shell.say(Item::new().with("guid", text.clone()).with("error", "No GUID")).await?;
            shell.fail_later(Failure::invalid(format!("not a GUID: {text:.100}")));
            continue;
        };
        let Answer::Lfns(mut found) = shell.ask(Operation::Lfns { guids: vec![guid] }).await? else {
            return Err(unexpected());
        };
        match found.pop() {
            Some(Ok(lfn)) => {
                let item = Item::new().with("guid", guid.to_string()).with("lfn", lfn.as_str());
                shell.say(item.saying(format!("{guid}    {lfn}"))).await?;
            }
            Some(Err(error)) if error.kind == ErrorKind::NotFound => {
                shell.say(Item::new().with("guid", guid.to_string()).with("error", "No LFN")).await?;
                shell.fail_later(Error::not_found(format!("GUID cannot be found in the database: {guid}")));
            }
            Some(Err(error)) => shell.fail_later(error),
            None => return Err(unexpected()),
        }
    }
    Ok(())
}

/// Returns the file for a text, by name or by GUID.
pub(super) fn file_of(shell: &mut Shell, text: &str, by_guid: bool) -> Outcome<FileRef> {
    match (by_guid, Guid::parse(text)) {
        (_, Ok(guid)) => Ok(FileRef::Guid(guid)),
        (true, Err(error)) => Err(error.into()),
        (false, Err(_)) => Ok(FileRef::Lfn(shell.path(text)?)),
    }
}

async fn delete_mirror(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&["g"], &[], given)?;
    let [file, se] = options.rest.as_slice() else { return Err(missing("deleteMirror")) };
    let file = file_of(shell, file, options.has("g"))?;
    let name = SeName::parse(se)?;
    let edits = vec![ReplicaEdit::Drop { se: name.clone(), delete: true }];
    let Answer::EachDone(done) = shell.ask(Operation::SetReplicas { edits: vec![(file, edits)] }).await?
    else {
        return Err(unexpected());
    };
    done.into_iter().collect::<Result<Vec<()>, Error>>()?;
    shell.say(Item::text(format!("Mirror scheduled to be deleted from {name}"))).await
}

async fn archive_list(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&[], &[], given)?;
    if options.rest.is_empty() {
        return Err(missing("archiveList"));
    }
    let lfns = paths_of(shell, &options.rest).await?;
    for some in lfns.chunks(STATS_AT_ONCE) {
        for found in shell.stats(some.to_vec(), true).await? {
            let Some(stat) = shell.note(found) else { continue };
            let Some(guid) = stat.entry.file().map(|file| file.guid) else {
                shell.fail_later(Failure::invalid(format!("{} is not a file", stat.lfn)));
                continue;
            };
            let under = stat.lfn.parent().unwrap_or_else(Lfn::root);
            let members = Operation::ArchiveMembers {
                archive: FileRef::Guid(guid),
                under,
                cursor: Cursor::default(),
                limit: 0,
            };
            let mut next = Some(members);
            while let Some(answer) = shell.page(&mut next).await? {
                let Answer::Entries { items, .. } = answer else { return Err(unexpected()) };
                for file in items {
                    let inside = member(&file).map(|(_, name)| name.to_owned()).unwrap_or_default();
                    let item = Item::new()
                        .with("lfn", file.lfn.as_str())
                        .with("member", inside.clone())
                        .with("guid", texts::guid_of(&file))
                        .with("size", texts::size(&file).to_string())
                        .saying(format!("{inside}\t{}", file.lfn));
                    shell.say(item).await?;
                }
            }
        }
    }
    Ok(())
}

async fn collection(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&["z", "t", "v"], &[], given)?;
    let [text] = options.rest.as_slice() else { return Err(missing("listFilesFromCollection")) };
    let lfn = shell.path(text)?;
    let stat = shell.stat(&lfn, true).await?;
    if stat.entry.kind() != Kind::Collection {
        return Err(Failure::invalid(format!("{lfn} is no collection")));
    }
    let mut next = Some(Operation::CollectionMembers { lfn, cursor: Cursor::default(), limit: 0 });
    while let Some(answer) = shell.page(&mut next).await? {
        let Answer::Members { items, .. } = answer else { return Err(unexpected()) };
        for member in items {
            let mut item = Item::new().with("guid", member.guid.to_string());
            let Some(stat) = &member.stat else {
                if options.has("z") {
                    item = item.with("lfn", "").saying(member.guid.to_string());
                    shell.say(item).await?;
                }
                continue;
            };
            let mut text = stat.lfn.to_string();
            item = item.with("lfn", stat.lfn.as_str());
            if options.has("v") {
                let (size, md5) = (texts::size(stat), texts::md5_of(stat));
                text = format!("{}\t{text}\t{size}\t{md5}", member.guid);
                item = item.with("size", size.to_string()).with("md5", md5);
            }
            shell.say(item.saying(text)).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guid_is_found_in_a_url() {
        let guid = "5d9a8f1e-5607-11ee-90f9-6c02e09897e9";
        for text in [guid.to_owned(), format!("root://h//06/57559/{guid}"), format!("{guid}?x=ä")] {
            assert_eq!(guid_in(&text).unwrap().to_string(), guid, "{text}");
        }
        for text in ["", "x", "ääääääääääääääääääääääääääääääääääääää", &guid[1..]]
        {
            assert_eq!(guid_in(text), None, "{text}");
        }
    }
}
