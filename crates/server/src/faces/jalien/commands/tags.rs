//! Commands for tags: exacat's tags in the form of JAliEn's command.

use exacat_model::{Answer, Error, Operation, Tag, TagKey};
use exacat_wire::jalien::Item;

use super::expand::expand_all;
use super::{missing, options};
use crate::faces::jalien::shell::{Command, Outcome, Shell, unexpected};

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "showTagValue",
        usage: "[-t KEY,…] [-c COLUMN,…] [-l] PATH…\nTells the tags in force, inherited ones too; -t only these, -l only their keys.",
        run: |s, o| Box::pin(show(s, o)),
    },
    Command {
        name: "tag",
        usage: "get PATH… | set PATH KEY=VALUE… | unset PATH KEY…\nTells, sets and takes away tags. They hold for all that is below, too.",
        run: |s, o| Box::pin(tag(s, o)),
    },
];

async fn show(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&["l"], &["t", "c"], given)?;
    if options.rest.is_empty() {
        return Err(missing("showTagValue"));
    }
    let wanted: Vec<&str> = options.values("t").flat_map(|keys| keys.split(',')).collect();
    tell(shell, &options.rest, &wanted, options.has("l")).await
}

async fn tell(shell: &mut Shell, paths: &[String], wanted: &[&str], keys_only: bool) -> Outcome {
    for text in paths {
        let lfns = expand_all(shell, std::slice::from_ref(text)).await?;
        for lfn in lfns {
            let get = Operation::TagGet { lfns: vec![lfn.clone()], own: false };
            let Answer::Tags(mut found) = shell.ask(get).await? else { return Err(unexpected()) };
            let Some(tags) = found.pop() else { return Err(unexpected()) };
            let Some(tags) = shell.note(tags) else { continue };
            let name =
                if exacat_model::expansion::has_wildcard(text) { lfn.to_string() } else { text.clone() };
            let mut head = Some(name.clone());
            for tag in &tags {
                let key = tag.tag.key.as_str();
                if !wanted.is_empty() && !wanted.contains(&key) {
                    continue;
                }
                let value = tag.tag.value.to_string();
                let line = if keys_only { format!("  {key}") } else { format!("  {key} = {value}") };
                let line = match head.take() {
                    Some(name) => format!("{name}\n{line}"),
                    None => line,
                };
                let mut item = Item::new().with("fileName", name.clone()).with("tagName", key);
                if !keys_only {
                    item = item.with("column", "value").with("value", value);
                }
                shell.say(item.with("from", tag.from.as_str()).saying(line)).await?;
            }
            if let Some(name) = head {
                shell.say(Item::text(format!("{name}\n  no tags defined for this path"))).await?;
            }
        }
    }
    Ok(())
}

async fn tag(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&[], &[], given)?;
    let [what, rest @ ..] = options.rest.as_slice() else { return Err(missing("tag")) };
    let (set, unset, path) = match (what.as_str(), rest) {
        ("get", [_, ..]) => return tell(shell, rest, &[], false).await,
        ("set", [path, tags @ ..]) if !tags.is_empty() => {
            let tags: Vec<Tag> = tags.iter().map(|text| Tag::parse(text)).collect::<Result<_, Error>>()?;
            (tags, Vec::new(), path)
        }
        ("unset", [path, keys @ ..]) if !keys.is_empty() => {
            let keys: Vec<TagKey> =
                keys.iter().map(|text| TagKey::parse(text)).collect::<Result<_, Error>>()?;
            (Vec::new(), keys, path)
        }
        _ => return Err(missing("tag")),
    };
    let lfns = expand_all(shell, std::slice::from_ref(path)).await?;
    if lfns.is_empty() {
        return Ok(());
    }
    let Answer::EachDone(done) = shell.ask(Operation::TagSet { lfns, set, unset }).await? else {
        return Err(unexpected());
    };
    for done in done {
        shell.note(done);
    }
    Ok(())
}
