//! Collections as XML, in the form that analyses read.

use exacat_model::answer::Stat;
use exacat_model::{Lfn, Name};
use exacat_wire::jalien::{Item, errno};
use tokio::sync::OwnedSemaphorePermit;

use super::content::{self, CONTENT_BYTES_MAX};
use super::expand::expand;
use super::{missing, options};
use crate::faces::jalien::shell::{Command, Failure, Outcome, Shell};
use crate::faces::jalien::texts::{self, xml};

pub(super) const COMMANDS: &[Command] = &[Command {
    name: "toXml",
    usage: "[-i] [-x LFN] [-l LFN] LFN…\nWrites files as a collection in XML; -i leaves out missing names.\n  \
            -x stores it under a new name  -l takes the names from a file, one a line",
    run: |s, o| Box::pin(to_xml(s, o)),
}];

/// Returns the text before the files.
pub(super) fn head(name: &str) -> String {
    format!("<?xml version=\"1.0\"?>\n<alien>\n  <collection name=\"{}\">", xml(name))
}

/// Returns the text of one file.
pub(super) fn event(number: u64, stat: &Stat) -> String {
    let lfn = xml(stat.lfn.as_str());
    let expires = stat.entry.expires.map(texts::plain_time).unwrap_or_default();
    let job = texts::job_of(stat).map(|job| job.to_string()).unwrap_or_default();
    format!(
        "    <event name=\"{number}\">\n      <file name=\"{name}\" aclId=\"\" broken=\"0\" ctime=\"{ctime}\" dir=\"{dir}\" \
         entryId=\"0\" expiretime=\"{expires}\" gowner=\"{group}\" guid=\"{guid}\" guidtime=\"\" jobid=\"{job}\" lfn=\"{lfn}\" \
         md5=\"{md5}\" owner=\"{owner}\" perm=\"{perm}\" replicated=\"0\" size=\"{size}\" turl=\"alien://{lfn}\" type=\"{kind}\" />\n    \
         </event>",
        name = xml(stat.entry.at.name.as_str()),
        ctime = texts::plain_time(stat.entry.modified),
        dir = stat.entry.at.parent.0,
        group = stat.group,
        guid = texts::guid_of(stat),
        md5 = texts::md5_of(stat),
        owner = stat.owner,
        perm = stat.entry.mode,
        size = texts::size(stat),
        kind = texts::kind_letter(stat.entry.kind()),
    )
}

/// Returns the text after the files.
pub(super) fn tail(shell: &Shell, command: &str) -> String {
    let now = shell.now();
    format!(
        "    <info command=\"{}\" creator=\"{}\" date=\"{}\" timestamp=\"{}\" />\n  </collection>\n</alien>",
        xml(command),
        shell.user(),
        texts::long_time(now),
        now.0
    )
}

async fn to_xml(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&["i", "a"], &["x", "l"], given)?;
    if options.has("a") {
        return Err(Failure::invalid("-a: a file that is there does not change: give a new name to -x"));
    }
    let mut given = options.rest.clone();
    if let Some(list) = options.value("l") {
        let seat = content::seat(shell).await?;
        given.append(&mut content::names_in(shell, list).await?);
        drop(seat);
    }
    if given.is_empty() {
        return Err(missing("toXml"));
    }
    let mut lfns = Vec::new();
    for text in &given {
        match expand(shell, text).await {
            Ok(mut found) => lfns.append(&mut found),
            Err(failure) if options.has("i") && failure.number == errno::ENOENT => {}
            Err(failure) => return Err(failure),
        }
    }
    let mut stats = Vec::new();
    for found in shell.stats(lfns, true).await? {
        match found {
            Ok(stat) if stat.entry.directory().is_none() => stats.push(stat),
            Ok(stat) if options.has("i") => drop(stat),
            Ok(stat) => return Err(Failure::new(errno::EISDIR, stat.lfn.as_str())),
            Err(_) if options.has("i") => {}
            Err(error) => return Err(error.into()),
        }
    }
    if stats.is_empty() {
        return Err(Failure::new(errno::ENODATA, "no file is there"));
    }
    let tail = tail(shell, &options.rest.join(" "));
    if let Some(target) = options.value("x") {
        let target = shell.path(target)?;
        let mut collection = Stored::begin(shell, &target).await?;
        for (number, stat) in (1..).zip(&stats) {
            collection.push(&event(number, stat))?;
        }
        return collection.store(shell, &target, &tail).await;
    }
    shell.say(Item::text(head("tempCollection"))).await?;
    for (number, stat) in (1..).zip(&stats) {
        shell.say(Item::text(event(number, stat))).await?;
    }
    shell.say(Item::text(tail)).await
}

/// A collection that is stored as a file.
pub(super) struct Stored {
    text: String,
    /// Its seat in memory.
    seat: OwnedSemaphorePermit,
}

impl Stored {
    /// Starts a collection with this name.
    pub(crate) async fn begin(shell: &Shell, target: &Lfn) -> Outcome<Self> {
        let seat = content::seat(shell).await?;
        Ok(Stored { text: head(target.file_name().as_ref().map_or("", Name::as_str)), seat })
    }

    /// Adds a file.
    pub(crate) fn push(&mut self, event: &str) -> Outcome {
        if self.text.len() + event.len() > CONTENT_BYTES_MAX {
            let why = format!("the collection has more than {CONTENT_BYTES_MAX} bytes: give fewer files");
            return Err(Failure::invalid(why));
        }
        self.text.push('\n');
        self.text.push_str(event);
        Ok(())
    }

    /// Stores it under a free name.
    pub(crate) async fn store(mut self, shell: &mut Shell, target: &Lfn, tail: &str) -> Outcome {
        self.push(tail)?;
        self.text.push('\n');
        content::store(shell, target, self.text.as_bytes()).await?;
        drop(self.seat);
        shell.say(Item::new().with("lfn", target.as_str()).saying(format!("stored as {target}"))).await
    }
}
