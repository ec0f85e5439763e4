//! Commands that JAliEn lacks: trash, snapshots, history.

use exacat_model::{Answer, Cursor, HasRevision, OnTimeline, Operation, TrashId};
use exacat_wire::jalien::Item;

use super::{missing, options};
use crate::faces::jalien::shell::{Command, Failure, Outcome, Shell, unexpected};
use crate::faces::jalien::texts;

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "trash",
        usage: "[ls] | restore ID [LFN] | purge ID…\nLists the trash, restores an item, or purges it.",
        run: |s, o| Box::pin(trash(s, o)),
    },
    Command {
        name: "snapshot",
        usage: "[ls]\nTells the snapshots of the catalogue.",
        run: |s, o| Box::pin(snapshot(s, o)),
    },
    Command {
        name: "log",
        usage: "PATH\nTells the history of a name, the oldest first.",
        run: |s, o| Box::pin(log(s, o)),
    },
];

fn trash_id(text: &str) -> Outcome<OnTimeline<TrashId>> {
    text.parse().map_err(|error: exacat_model::Error| Failure::invalid(error.message))
}

async fn trash(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&[], &[], given)?;
    let words: Vec<&str> = options.rest.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["ls"] => trash_list(shell).await,
        ["restore", id] => restore(shell, id, None).await,
        ["restore", id, to] => restore(shell, id, Some(to)).await,
        ["purge", ids @ ..] if !ids.is_empty() => {
            for id in ids {
                let mut next = Some(Operation::TrashPurge { id: trash_id(id)?, cursor: Cursor::default() });
                while shell.exact_page(&mut next).await?.is_some() {}
            }
            Ok(())
        }
        _ => Err(missing("trash")),
    }
}

async fn trash_list(shell: &mut Shell) -> Outcome {
    let mut next = Some(Operation::TrashList { cursor: Cursor::default(), limit: 0 });
    while let Some(answer) = shell.page(&mut next).await? {
        let Answer::Trash { items, timeline, .. } = answer else { return Err(unexpected()) };
        for (item, who) in items {
            let id = item.id.on(timeline.tag()).to_string();
            let text = format!("{id:>12} {} {who:>8}    {}", texts::plain_time(item.removed), item.lfn);
            let told = Item::new()
                .with("id", id)
                .with("lfn", item.lfn.as_str())
                .with("removed", item.removed.0.to_string())
                .with("by", who)
                .with("files", item.usage.objects().to_string())
                .with("size", item.usage.bytes.to_string());
            shell.say(told.saying(text)).await?;
        }
    }
    Ok(())
}

async fn restore(shell: &mut Shell, id: &str, to: Option<&str>) -> Outcome {
    let to = to.map(|text| shell.path(text)).transpose()?;
    match shell.ask(Operation::TrashRestore { id: trash_id(id)?, to }).await? {
        Answer::Done { .. } => Ok(()),
        _ => Err(unexpected()),
    }
}

async fn snapshot(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&[], &[], given)?;
    if !options.rest.is_empty() && options.rest != ["ls"] {
        return Err(missing("snapshot"));
    }
    let Answer::Snapshots(snapshots) = shell.ask(Operation::SnapshotList).await? else {
        return Err(unexpected());
    };
    for snapshot in snapshots {
        let text = format!(
            "{}    {} entries    {}",
            texts::plain_time(snapshot.time),
            snapshot.entries,
            snapshot.name
        );
        let item = Item::new()
            .with("name", snapshot.name.as_str())
            .with("time", snapshot.time.0.to_string())
            .with("revision", snapshot.revision.0.to_string())
            .with("entries", snapshot.entries.to_string())
            .with("size", snapshot.bytes.to_string());
        shell.say(item.saying(text)).await?;
    }
    Ok(())
}

async fn log(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&[], &[], given)?;
    let [text] = options.rest.as_slice() else { return Err(missing("log")) };
    let lfn = shell.path(text)?;
    let mut next = Some(Operation::Log { lfn, cursor: Cursor::default(), limit: 0 });
    while let Some(answer) = shell.page(&mut next).await? {
        let Answer::Changes { items, .. } = answer else { return Err(unexpected()) };
        for item in items {
            let change = &item.change;
            let what = change.effect.name();
            let text = format!(
                "{:>12} {} {:>8} {what:<10}",
                change.revision.0,
                texts::plain_time(change.time),
                item.who
            );
            let told = Item::new()
                .with("revision", change.revision.0.to_string())
                .with("time", change.time.0.to_string())
                .with("who", item.who.clone())
                .with("what", what);
            shell.say(told.saying(text)).await?;
        }
    }
    Ok(())
}
