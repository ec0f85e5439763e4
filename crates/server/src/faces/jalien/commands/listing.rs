//! Commands that list entries: names, kinds, sizes.

use exacat_model::answer::Stat;
use exacat_model::query::Pattern;
use exacat_model::{Answer, Body, Cursor, Filter, Kind, Lfn, Operation, Usage};
use exacat_wire::jalien::{Item, Options, errno};

use super::expand::{expand, expand_all, paths_of};
use super::{missing, options, replicas, xml};
use crate::faces::jalien::shell::{Command, Failure, Outcome, STATS_AT_ONCE, Shell, unexpected};
use crate::faces::jalien::texts;

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "ls",
        usage: "[-laFbcH] [PATH]…\nLists directories.\n  -l long  -a also names that begin with a dot  -F a slash behind directories\n  \
                -b GUIDs  -c whole paths  -H sizes for people",
        run: |s, o| Box::pin(ls(s, o)),
    },
    Command {
        name: "stat",
        usage: "[-v] LFN|GUID…\nShows entries; -v replicas too.",
        run: |s, o| Box::pin(stat(s, o)),
    },
    Command {
        name: "type",
        usage: "LFN…\nTells whether it is a file, a directory or a collection.",
        run: |s, o| Box::pin(kind(s, o)),
    },
    Command {
        name: "find",
        usage: "[OPTION]… DIR PATTERN\nFinds files below DIR whose path has PATTERN in it; * stands for anything, ? for one character.\n  \
                -r PATTERN is a regular expression\n  -d directories too  -w long  -wh sizes for people  -f all fields  -c count them\n  -l N at most N  \
                -o N leave out the first N  -j JOB of that job  -e PATTERN not those  -x - as XML, -x LFN stored under that name\n  -a -s -y -S SITE are accepted",
        run: |s, o| Box::pin(find(s, o)),
    },
    Command {
        name: "du",
        usage: "[-n] [-c] [-s] PATH…\nShows the usage below, exact and at once.",
        run: |s, o| Box::pin(du(s, o)),
    },
    Command { name: "df", usage: "\nNot there: see listSEs, fquota and du.", run: |s, o| Box::pin(df(s, o)) },
];

async fn ls(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&["l", "a", "F", "b", "c", "H", "bulk", "n"], &[], given)?;
    let paths = if options.rest.is_empty() { vec![".".to_owned()] } else { options.rest.clone() };
    for text in &paths {
        let expanded = expand(shell, text).await;
        let Some(lfns) = shell.note(expanded) else { continue };
        for lfn in lfns {
            let listed = list(shell, &options, &lfn).await;
            shell.note(listed);
        }
    }
    Ok(())
}

async fn list(shell: &mut Shell, options: &Options, lfn: &Lfn) -> Outcome {
    let mut next = Some(Operation::List { lfn: lfn.clone(), cursor: Cursor::default(), limit: 0 });
    while let Some(answer) = shell.page(&mut next).await? {
        let Answer::Entries { items, .. } = answer else { return Err(unexpected()) };
        for stat in items {
            let itself = stat.lfn == *lfn;
            let hidden = stat.entry.at.name.as_str().starts_with('.') && !itself;
            if hidden && !options.has("a") {
                continue;
            }
            if let Some(item) = listed(options, &stat) {
                shell.say(item).await?;
            }
        }
    }
    Ok(())
}

fn listed(options: &Options, stat: &Stat) -> Option<Item> {
    let is_directory = stat.entry.kind() == Kind::Directory;
    let slash = if options.has("F") && is_directory { "/" } else { "" };
    let name = format!("{}{slash}", stat.entry.at.name);
    let path = format!("{}{slash}", stat.lfn);
    let mut item = Item::new();
    if options.has("b") {
        if is_directory {
            return None;
        }
        let guid = texts::guid_of(stat).to_uppercase();
        let text = format!("{guid}   {path}");
        return Some(item.with("guid", guid).with("path", path).saying(text));
    }
    let shown = if options.has("c") { &path } else { &name };
    let text = if options.has("l") || options.has("H") {
        item = item
            .with("permissions", texts::permissions(stat))
            .with("user", stat.owner.as_str())
            .with("group", stat.group.as_str())
            .with("size", texts::size(stat).to_string())
            .with("ctime", stat.entry.modified.0.to_string());
        format!("{}    {shown}", texts::long_line(stat, options.has("H")))
    } else {
        shown.clone()
    };
    Some(item.with("name", name).with("path", path).saying(text))
}

async fn stat(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&["v"], &[], given)?;
    if options.rest.is_empty() {
        return Err(missing("stat"));
    }
    let lfns = paths_of(shell, &options.rest).await?;
    for some in lfns.chunks(STATS_AT_ONCE) {
        for found in shell.stats(some.to_vec(), true).await? {
            let Some(stat) = shell.note(found) else { continue };
            let mut item = stated(&stat);
            if options.has("v") {
                item = replicas::verbose(shell, &stat, item).await?;
            }
            shell.say(item).await?;
        }
    }
    Ok(())
}

fn stated(stat: &Stat) -> Item {
    let entry = &stat.entry;
    let path = texts::path_text(stat);
    let kind = texts::kind_letter(entry.kind());
    let mut text = format!(
        "File: {path}\nType: {kind}\nOwner: {}:{}\nPermissions: {}\nLast change: {}",
        stat.owner, stat.group, entry.mode, entry.modified.0
    );
    let mut item = Item::new()
        .with("lfn", path)
        .with("type", kind)
        .with("owner", stat.owner.as_str())
        .with("gowner", stat.group.as_str())
        .with("perm", entry.mode.to_string())
        .with("ctime", entry.modified.0.to_string());
    if entry.kind() != Kind::Directory {
        let (size, md5, guid) = (texts::size(stat), texts::md5_of(stat), texts::guid_of(stat));
        text.push_str(&format!("\nSize: {size}\nMD5: {md5}\nGUID: {guid}"));
        item = item
            .with("size", size.to_string())
            .with("md5", md5)
            .with("guid", guid)
            .with("mtime", entry.modified.0.to_string());
    }
    if let Some(expires) = entry.expires {
        text.push_str(&format!("\nExpires: {expires}"));
        item = item.with("expiretime", (expires.0 / 1000).to_string());
    }
    if let Some(job) = texts::job_of(stat) {
        text.push_str(&format!("\nJob: {job}"));
        item = item.with("jobid", job.to_string());
    }
    item.saying(text)
}

async fn kind(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&[], &[], given)?;
    if options.rest.is_empty() {
        return Err(missing("type"));
    }
    let lfns = expand_all(shell, &options.rest).await?;
    for some in lfns.chunks(STATS_AT_ONCE) {
        for found in shell.stats(some.to_vec(), true).await? {
            let Some(stat) = shell.note(found) else { continue };
            let kind = stat.entry.kind().name();
            let item = Item::new().with("lfn", texts::path_text(&stat)).with("type", kind).saying(kind);
            shell.say(item).await?;
        }
    }
    Ok(())
}

/// Most entries of a find, unless the request has a limit.
const FOUND_MAX: u64 = u64::MAX;

/// A parsed find command.
struct Wanted {
    directory: Lfn,
    filter: Filter,
    without: Vec<regex::Regex>,
    skip: u64,
    most: u64,
}

/// Returns a pattern of this protocol as a regular expression: `*` for any text, `?` for one
/// character.
fn expression(pattern: &str) -> String {
    let mut text = String::new();
    for piece in pattern.split_inclusive(['*', '?']) {
        let (literal, wildcard) = match piece.char_indices().next_back() {
            Some((at, last @ ('*' | '?'))) => (&piece[..at], last),
            _ => (piece, ' '),
        };
        text.push_str(&regex::escape(literal));
        match wildcard {
            '*' => text.push_str(".*"),
            '?' => text.push('.'),
            _ => {}
        }
    }
    text
}

/// Returns the start of a regular expression for paths below `directory`.
fn below(directory: &Lfn) -> String {
    let base = if directory.is_root() { "" } else { directory.as_str() };
    format!("^{}/", regex::escape(base))
}

impl Wanted {
    fn read(shell: &mut Shell, options: &Options) -> Outcome<Self> {
        let (directory, pattern) = match options.rest.as_slice() {
            [directory, pattern] => (directory.clone(), pattern.clone()),
            // `find DIR/*.root`: the pattern starts after the last slash before the star.
            [both] if both.contains('*') => {
                let star = both.find('*').unwrap_or(0);
                let slash = both[..star].rfind('/').map_or(0, |at| at + 1);
                let directory = if slash == 0 { "." } else { &both[..slash] };
                (directory.to_owned(), both[slash..].to_owned())
            }
            _ => return Err(missing("find")),
        };
        let directory = shell.path(&directory)?;
        let number = |name: &str| {
            options.value(name).map(|text| {
                text.parse::<u64>()
                    .map_err(|_| Failure::invalid(format!("-{name}: not a number: {text:.100}")))
            })
        };
        let mut filter = Filter::default();
        if !options.has("d") {
            filter.kinds = vec![Kind::File, Kind::Collection, Kind::Link];
        }
        filter.job = number("j").transpose()?;
        let prefix = below(&directory);
        let pattern = match (options.has("r"), pattern.as_str()) {
            (false, "*" | "") | (true, ".*") => None,
            (true, pattern) => Some(format!("{prefix}(?:{pattern})")),
            (false, pattern) => Some(format!("{prefix}.*{}", expression(pattern))),
        };
        filter.pattern = pattern.map(Pattern::Regex);
        let mut without = Vec::new();
        for pattern in options.values("e") {
            let text = format!("{prefix}.*{}", expression(pattern));
            let built = regex::RegexBuilder::new(&text).size_limit(1 << 20).build();
            without.push(built.map_err(|error| Failure::invalid(format!("-e: bad pattern: {error}")))?);
        }
        let skip = number("o").transpose()?.unwrap_or(0);
        let most = number("l").transpose()?.unwrap_or(FOUND_MAX);
        Ok(Wanted { directory, filter, without, skip, most })
    }
}

async fn find(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(
        &["a", "s", "c", "d", "w", "wh", "n", "r", "f", "y", "xml"],
        &["x", "j", "l", "o", "S", "e", "q"],
        given,
    )?;
    let mut wanted = Wanted::read(shell, &options)?;
    let as_xml = options.value("x").is_some();
    let target = match options.value("x").filter(|file| *file != "-") {
        Some(text) => Some(shell.path(text)?),
        None => None,
    };
    let stat = shell.stat(&wanted.directory, true).await?;
    if stat.entry.directory().is_none() {
        return Err(Failure::new(errno::ENOTDIR, wanted.directory.as_str()));
    }
    let mut stored = match &target {
        Some(target) => Some(xml::Stored::begin(shell, target).await?),
        None => None,
    };
    if as_xml && stored.is_none() {
        shell.say(Item::text(xml::head("tempCollection"))).await?;
    }
    let find = Operation::Find {
        lfn: wanted.directory.clone(),
        filter: Box::new(wanted.filter.clone()),
        cursor: Cursor::default(),
        limit: 0,
    };
    let mut next = Some(find);
    let mut count = 0u64;
    'pages: while let Some(answer) = shell.page(&mut next).await? {
        let Answer::Entries { mut items, .. } = answer else { return Err(unexpected()) };
        if as_xml || ["f", "w", "wh"].iter().any(|told| options.has(told)) {
            with_targets(shell, &mut items).await?;
        }
        for stat in items {
            if wanted.without.iter().any(|without| without.is_match(stat.lfn.as_str())) {
                continue;
            }
            if wanted.skip > 0 {
                wanted.skip -= 1;
                continue;
            }
            if count >= wanted.most {
                break 'pages;
            }
            count += 1;
            match &mut stored {
                Some(stored) => stored.push(&xml::event(count, &stat))?,
                None if as_xml => shell.say(Item::text(xml::event(count, &stat))).await?,
                None => shell.say(found(&options, &stat)).await?,
            }
        }
    }
    let tail = as_xml.then(|| xml::tail(shell, "find"));
    match (stored, target, tail) {
        (Some(stored), Some(target), Some(tail)) => stored.store(shell, &target, &tail).await?,
        (_, _, Some(tail)) => shell.say(Item::text(tail)).await?,
        _ => {}
    }
    if options.has("c") {
        // JAliEn's own spelling: clients may look for it.
        shell.say(Item::text(format!("Found {count} maching entries"))).await?;
    }
    Ok(())
}

/// Gives links the content of their targets, because clients copy them as that. A dangling link
/// stays as it is.
async fn with_targets(shell: &mut Shell, items: &mut [Stat]) -> Outcome {
    let links: Vec<usize> =
        (0..items.len()).filter(|place| items[*place].entry.kind() == Kind::Link).collect();
    let lfns: Vec<Lfn> = links.iter().map(|place| items[*place].lfn.clone()).collect();
    for (place, found) in links.into_iter().zip(shell.stats(lfns, true).await?) {
        if let Ok(target) = found
            && matches!(target.entry.body, Body::File(_))
        {
            items[place].entry.body = target.entry.body;
            items[place].entry.modified = target.entry.modified;
        }
    }
    Ok(())
}

fn found(options: &Options, stat: &Stat) -> Item {
    let path = texts::path_text(stat);
    let entry = &stat.entry;
    let mut item = Item::new().with("lfn", path.clone());
    let long = options.has("w") || options.has("wh");
    if long || options.has("f") {
        item = item
            .with("perm", entry.mode.to_string())
            .with("owner", stat.owner.as_str())
            .with("gowner", stat.group.as_str())
            .with("size", texts::size(stat).to_string())
            .with("ctime", entry.modified.0.to_string())
            .with("guid", texts::guid_of(stat));
    }
    if options.has("f") {
        let expires = entry.expires.map(|time| (time.0 / 1000).to_string()).unwrap_or_default();
        item = item
            .with("name", entry.at.name.as_str())
            .with("aclId", "")
            .with("broken", "0")
            .with("dir", entry.at.parent.0.to_string())
            .with("entryId", "0")
            .with("expiretime", expires)
            .with("guidtime", "")
            .with("md5", texts::md5_of(stat))
            .with("jobid", texts::job_of(stat).unwrap_or(0).to_string())
            .with("replicated", "0")
            .with("type", texts::kind_letter(entry.kind()));
    }
    match long {
        true => item.saying(format!("{}     {path}", texts::long_line(stat, options.has("wh")))),
        false => item.saying(path),
    }
}

async fn du(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&["n", "c", "s"], &[], given)?;
    if options.rest.is_empty() {
        return Err(missing("du"));
    }
    let lfns = expand_all(shell, &options.rest).await?;
    let mut sum = Usage::default();
    let many = lfns.len() > 1;
    for some in lfns.chunks(exacat_model::limits::READ_BATCH_MAX) {
        let Answer::Usages(usages) = shell.ask(Operation::Du { lfns: some.to_vec() }).await? else {
            return Err(unexpected());
        };
        for (lfn, usage) in some.iter().zip(usages) {
            let Some(usage) = shell.note(usage) else { continue };
            sum.add(&usage);
            if !(options.has("s") && many) {
                used(shell, lfn.as_str(), &usage).await?;
            }
        }
    }
    if options.has("s") && many {
        used(shell, "all of them", &sum).await?;
    }
    Ok(())
}

async fn used(shell: &mut Shell, entry: &str, usage: &Usage) -> Outcome {
    let files = usage.files + usage.members;
    let mut text = format!(
        "{entry}\n  Folders: {}\n  Files: {files} of an apparent size of {}, of which:\n  - physical files: {} files of {} with {} replicas, \
         size of one replica: {}",
        usage.directories,
        usage.bytes + usage.member_bytes,
        usage.files,
        usage.replica_bytes,
        usage.replicas,
        usage.bytes
    );
    if usage.members > 0 {
        text.push_str(&format!("\n  - archive members: {} files of {}", usage.members, usage.member_bytes));
    }
    let item = Item::new()
        .with("entry", entry)
        .with("folders", usage.directories.to_string())
        .with("physical_files_count", usage.files.to_string())
        .with("physical_files_size", usage.replica_bytes.to_string())
        .with("physical_files_replicas", usage.replicas.to_string())
        .with("physical_files_one_replica_size", usage.bytes.to_string())
        .with("logical_files_count", usage.members.to_string())
        .with("logical_files_size", usage.member_bytes.to_string());
    shell.say(Item::text(text)).await?;
    shell.say(item).await
}

async fn df(_shell: &mut Shell, _given: Vec<String>) -> Outcome {
    Err(Failure::new(errno::ENOSYS, "df: see listSEs, fquota and du"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_in_jalien() {
        for (pattern, path, yes) in [
            ("*.txt", "/d/a/x.txt", true),
            (".log", "/d/stdout.log", true),
            (".log", "/d/stdoutXlog", false),
            ("a*b", "/d/xxaYYbzz", true),
            ("a?b", "/d/a/b", true),
            ("a_b", "/d/axb", false),
            ("x", "/e/x", false),
        ] {
            let text = format!("{}.*{}", below(&Lfn::parse("/d").unwrap()), expression(pattern));
            assert_eq!(regex::Regex::new(&text).unwrap().is_match(path), yes, "{pattern} {path}");
        }
        assert_eq!(below(&Lfn::root()), "^/");
    }
}
