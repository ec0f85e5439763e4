//! Makes a sample catalogue: the invented [`Tree`] with its storage elements, users, group and
//! quotas. It is made in a catalogue, or written as a listing.
//!
//! A second run changes nothing: the same seed gives the same entries, GUIDs included.

use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_model::codec::Encode;
use exacat_model::operation::{Attribute, Existing, NewFile, Owner, Registered, UserSettings};
use exacat_model::{
    AccountName, Answer, Error as ModelError, ErrorKind, FileRef, Lfn, Operation, ReplicaState, Tag,
};
use futures::StreamExt;
use serde_json::{Map, Value, json};
use tokio::task::JoinHandle;

use crate::catalogue::Catalogue;
use crate::error::Error;
use crate::json_tags;
use crate::limits::{BATCH_ROWS_MAX, BATCHES_IN_FLIGHT_MAX, CALLS_IN_FLIGHT_MAX};
use crate::listing::{EXPORT_VERSION, PREAMBLE_KEY};
use crate::progress::Progress;
use crate::sending::{call_with_retries, each_done, unexpected};
use crate::tree::{Tree, TreeItem, TreeSettings, storage_elements, users};

/// Group of all invented users.
pub const GROUP: &str = "demo";
/// Minimum quota of a user in bytes, beside the part that grows with the tree.
const QUOTA_BYTES_LEAST: u64 = 10_000_000_000_000;
/// Quota of a user in bytes for each entry of the tree. Users' files use a tenth of that, and are a
/// tenth of all.
const QUOTA_BYTES_PER_ENTRY: u64 = 200_000_000;
/// Minimum quota of a user in files.
const QUOTA_FILES_LEAST: u64 = 100_000;

/// Result of a generation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generated {
    /// Number of entries, new or existing.
    pub entries: u64,
    /// Number of files among them.
    pub files: u64,
    /// Members of collections.
    pub members: u64,
    /// Number of entries created.
    pub created: u64,
    /// Number of entries that existed.
    pub unchanged: u64,
    /// Duration of the run.
    pub elapsed: Duration,
}

impl Generated {
    fn add(&mut self, other: &Generated) {
        self.files += other.files;
        self.members += other.members;
        self.created += other.created;
        self.unchanged += other.unchanged;
    }
}

/// Items that are made together, by kind.
#[derive(Default)]
struct Chunk {
    directories: Vec<(Lfn, Option<AccountName>, Vec<Tag>)>,
    files: Vec<NewFile>,
    /// Files inside archives, which must exist first.
    inside: Vec<NewFile>,
    collections: Vec<(Lfn, Vec<Tag>, Vec<FileRef>)>,
}

impl Chunk {
    /// Takes the next items of the tree; returns their number too.
    fn take(tree: &mut Tree) -> Result<(Chunk, usize), Error> {
        let mut chunk = Chunk::default();
        let mut count = 0;
        for item in tree.take(BATCH_ROWS_MAX) {
            count += 1;
            match item? {
                TreeItem::Directory { lfn, owner, tags } => chunk.directories.push((lfn, owner, tags)),
                TreeItem::File(file) if file.member_of.is_some() => chunk.inside.push(*file),
                TreeItem::File(file) => chunk.files.push(*file),
                TreeItem::Collection { lfn, tags, members } => chunk.collections.push((lfn, tags, members)),
            }
        }
        Ok((chunk, count))
    }
}

/// Makes the tree, which needs an administrator. Existing entries must equal those of the tree.
pub async fn generate<C: Catalogue>(
    catalogue: Arc<C>,
    settings: &TreeSettings,
    progress: impl FnMut(&Progress) + Send,
) -> Result<Generated, Error> {
    let made = make(catalogue, settings, progress).await;
    made.map_err(|error| match error {
        Error::Catalogue(error) if matches!(error.kind, ErrorKind::Exists | ErrorKind::Conflict) => {
            let message = format!(
                "{} does not fit the sample that is there: give the --seed it was made with, or another \
                 --prefix and --seed, or remove it first ('exacat rm -r {}', then 'exacat trash purge'): {}",
                settings.root, settings.root, error.message
            );
            Error::Catalogue(ModelError::new(error.kind, message))
        }
        error => error,
    })
}

async fn make<C: Catalogue>(
    catalogue: Arc<C>,
    settings: &TreeSettings,
    mut progress: impl FnMut(&Progress) + Send,
) -> Result<Generated, Error> {
    let started = Instant::now();
    let maker = Arc::new(Maker { catalogue });
    maker.accounts(settings).await?;
    let mut tree = Tree::new(settings.clone())?;
    let mut report = Generated::default();
    let mut first: Flights<(Generated, Chunk)> = VecDeque::new();
    let mut second: Flights<Generated> = VecDeque::new();
    let mut ended = false;
    // Directories are made in order, and files beside those of other chunks. Items that refer to
    // files wait for the files of their chunk and of all before it.
    while !ended || !first.is_empty() || !second.is_empty() {
        if !ended && first.len() < BATCHES_IN_FLIGHT_MAX {
            let (chunk, count) = Chunk::take(&mut tree)?;
            ended = count < BATCH_ROWS_MAX;
            report.add(&maker.directories(&chunk.directories).await?);
            let maker = Arc::clone(&maker);
            first.push_back((count, tokio::spawn(async move { maker.files(chunk).await })));
            continue;
        }
        if let Some((count, task)) = first.pop_front() {
            let (made, chunk) = task.await.map_err(|_| Error::Broken("making files"))??;
            report.add(&made);
            let maker = Arc::clone(&maker);
            second.push_back((count, tokio::spawn(async move { maker.references(chunk).await })));
        }
        if second.len() >= BATCHES_IN_FLIGHT_MAX || first.is_empty() {
            let Some((count, task)) = second.pop_front() else { continue };
            report.add(&task.await.map_err(|_| Error::Broken("making collections"))??);
            report.entries += count as u64;
            progress(&progress_of(&report, settings, started));
        }
    }
    report.elapsed = started.elapsed();
    Ok(report)
}

fn progress_of(report: &Generated, settings: &TreeSettings, started: Instant) -> Progress {
    Progress {
        rows: report.entries,
        rows_now: report.entries,
        rows_total: Some(settings.entries),
        elapsed: started.elapsed(),
        ..Progress::default()
    }
}

type Flights<T> = VecDeque<(usize, JoinHandle<Result<T, Error>>)>;

struct Maker<C> {
    catalogue: Arc<C>,
}

impl<C: Catalogue> Maker<C> {
    /// Calls an operation with retries; all operations here may be repeated.
    async fn ask(&self, operation: Operation) -> Result<Answer, ModelError> {
        call_with_retries(&*self.catalogue, operation).await
    }

    /// Calls an operation that creates; true if the item is new, false if it existed.
    async fn ask_new(&self, operation: Operation) -> Result<bool, ModelError> {
        match self.ask(operation).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind == ErrorKind::Exists => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes storage elements, the group, users with the names of their homes, and quotas.
    async fn accounts(&self, settings: &TreeSettings) -> Result<(), Error> {
        for mut se in storage_elements()? {
            se.only_new = true;
            self.ask_new(Operation::SeSet(se)).await?;
        }
        self.ask_new(Operation::GroupAdd { name: AccountName::parse(GROUP)? }).await?;
        for name in users()? {
            self.ask_new(Operation::UserSet(Box::new(user(&name, &settings.root)?))).await?;
            let bytes = QUOTA_BYTES_LEAST.max(settings.entries.saturating_mul(QUOTA_BYTES_PER_ENTRY));
            self.ask(Operation::QuotaSet {
                owner: Owner::User(name),
                files: Some(QUOTA_FILES_LEAST.max(settings.entries)),
                bytes: Some(bytes),
                replica_bytes: Some(bytes.saturating_mul(2)),
            })
            .await?;
        }
        Ok(())
    }

    async fn directories(
        &self,
        directories: &[(Lfn, Option<AccountName>, Vec<Tag>)],
    ) -> Result<Generated, Error> {
        let mut made = Generated::default();
        if directories.is_empty() {
            return Ok(made);
        }
        let lfns: Vec<Lfn> = directories.iter().map(|(lfn, ..)| lfn.clone()).collect();
        let Answer::Stats(stats) = self.ask(Operation::Stat { lfns, follow: false }).await? else {
            return Err(unexpected("stat").into());
        };
        let mut fresh = Vec::new();
        for (directory, stat) in directories.iter().zip(stats) {
            match stat {
                Ok(_) => made.unchanged += 1,
                Err(error) if error.kind == ErrorKind::NotFound => fresh.push(directory),
                Err(error) => return Err(error.into()),
            }
        }
        made.created += fresh.len() as u64;
        if fresh.is_empty() {
            return Ok(made);
        }
        let lfns = fresh.iter().map(|(lfn, ..)| lfn.clone()).collect();
        self.all(Operation::Mkdir { lfns, parents: true, mode: None }, fresh.len()).await?;
        let mut by_tags: HashMap<Vec<u8>, (Vec<Tag>, Vec<Lfn>)> = HashMap::new();
        let mut by_owner: HashMap<&AccountName, Vec<Lfn>> = HashMap::new();
        for (lfn, owner, tags) in fresh {
            if !tags.is_empty() {
                by_tags.entry(tags.to_bytes()).or_insert((tags.clone(), Vec::new())).1.push(lfn.clone());
            }
            if let Some(owner) = owner {
                by_owner.entry(owner).or_default().push(lfn.clone());
            }
        }
        let tagged =
            by_tags.into_values().map(|(set, lfns)| Operation::TagSet { lfns, set, unset: Vec::new() });
        let owned = by_owner.into_iter().map(|(owner, lfns)| {
            // Every invented user has a group of its own name.
            let attributes = vec![Attribute::Owner(owner.clone()), Attribute::Group(owner.clone())];
            Operation::SetAttributes { lfns, attributes }
        });
        let asked: Vec<Operation> = tagged.chain(owned).collect();
        let calls = asked.into_iter().map(|operation| {
            let count = match &operation {
                Operation::TagSet { lfns, .. } | Operation::SetAttributes { lfns, .. } => lfns.len(),
                _ => 0,
            };
            self.all(operation, count)
        });
        let mut calls = futures::stream::iter(calls).buffer_unordered(CALLS_IN_FLIGHT_MAX);
        while let Some(done) = calls.next().await {
            done?;
        }
        Ok(made)
    }

    /// Calls an operation that must succeed for each item.
    async fn all(&self, operation: Operation, count: usize) -> Result<(), Error> {
        let name = operation.name();
        let done = each_done(self.ask(operation).await?, count, name)?;
        Ok(done.into_iter().collect::<Result<(), ModelError>>()?)
    }

    /// Makes the files that refer to no others; returns the rest of the chunk.
    async fn files(&self, mut chunk: Chunk) -> Result<(Generated, Chunk), Error> {
        let made = self.register(std::mem::take(&mut chunk.files)).await?;
        Ok((made, chunk))
    }

    async fn register(&self, files: Vec<NewFile>) -> Result<Generated, Error> {
        let mut made = Generated { files: files.len() as u64, ..Generated::default() };
        if files.is_empty() {
            return Ok(made);
        }
        let register = Operation::Register { files, parents: true, existing: Existing::Same };
        let Answer::Registered(items) = self.ask(register).await? else {
            return Err(unexpected("register").into());
        };
        for item in items {
            match item? {
                Registered::Created(_) => made.created += 1,
                Registered::Unchanged(_) | Registered::Merged(_) => made.unchanged += 1,
            }
        }
        Ok(made)
    }

    /// Makes files inside archives, and collections.
    async fn references(&self, chunk: Chunk) -> Result<Generated, Error> {
        let mut made = self.register(chunk.inside).await?;
        let calls = chunk.collections.into_iter().map(|(lfn, tags, add)| async move {
            let new = self.ask_new(Operation::CollectionCreate { lfn: lfn.clone(), tags }).await?;
            match self.ask(Operation::CollectionEdit { lfn, add, remove: Vec::new() }).await? {
                Answer::CollectionEdited { added, refused, .. } => match refused.into_iter().next() {
                    None => Ok((new, added)),
                    Some((_, error)) => Err(error),
                },
                _ => Err(unexpected("collection-edit")),
            }
        });
        let mut calls = futures::stream::iter(calls).buffer_unordered(CALLS_IN_FLIGHT_MAX);
        while let Some(done) = calls.next().await {
            let (new, added) = done?;
            made.members += added;
            made.created += u64::from(new);
            made.unchanged += u64::from(!new);
        }
        Ok(made)
    }
}

fn user(name: &AccountName, root: &Lfn) -> Result<UserSettings, ModelError> {
    let letter: String = name.as_str().chars().take(1).collect();
    let top = if root.is_root() { "" } else { root.as_str() };
    Ok(UserSettings {
        name: name.clone(),
        group: None,
        groups: Some(vec![AccountName::parse(GROUP)?]),
        roles: None,
        may_become: None,
        subjects: None,
        home: Some(Lfn::parse(&format!("{top}/user/{letter}/{name}"))?),
        disabled: None,
        only_new: true,
    })
}

/// Writes the tree as a listing in JSON lines that can be imported (with `restore` for the accounts
/// and SEs of its rows). It has no quotas.
pub fn generate_listing(
    settings: &TreeSettings,
    out: &mut impl Write,
    mut progress: impl FnMut(&Progress),
) -> Result<Generated, Error> {
    let started = Instant::now();
    let cannot = |error| Error::file("write", std::path::Path::new("the listing"), error);
    let mut report = Generated::default();
    let mut line = Vec::new();
    for object in preamble(settings)? {
        writeln!(out, "{}", json!({ PREAMBLE_KEY: object })).map_err(cannot)?;
    }
    for item in Tree::new(settings.clone())? {
        line.clear();
        for row in rows(&item?, &mut report) {
            line.extend_from_slice(Value::Object(row).to_string().as_bytes());
            line.push(b'\n');
        }
        out.write_all(&line).map_err(cannot)?;
        report.entries += 1;
        if report.entries % BATCH_ROWS_MAX as u64 == 0 {
            progress(&progress_of(&report, settings, started));
        }
    }
    out.flush().map_err(cannot)?;
    report.elapsed = started.elapsed();
    Ok(report)
}

fn preamble(settings: &TreeSettings) -> Result<Vec<Value>, ModelError> {
    let mut objects = vec![json!({ "export": EXPORT_VERSION, "under": settings.root.as_str() })];
    for se in storage_elements()? {
        let qos: Vec<&str> = se.qos.iter().flatten().map(AccountName::as_str).collect();
        let distances: Vec<(&str, u32)> =
            se.distances.iter().map(|(site, far)| (site.as_str(), *far)).collect();
        let status = se.status.map_or("online", |status| status.name());
        objects.push(json!({ "se": {
            "name": se.name.as_str(), "prefix": se.prefix, "qos": qos, "status": status, "distances": distances,
        }}));
    }
    objects.push(json!({ "group": GROUP }));
    for name in users()? {
        let user = user(&name, &settings.root)?;
        // The user creates the group of its own name. The listing names the group, so the group
        // must come first.
        objects.push(json!({ "group": name.as_str() }));
        objects.push(json!({ "user": {
            "name": name.as_str(), "group": name.as_str(), "groups": [GROUP],
            "home": user.home.as_ref().map(Lfn::as_str),
        }}));
    }
    Ok(objects)
}

/// Returns the rows of an item: one, and for a collection one more for each member.
fn rows(item: &TreeItem, report: &mut Generated) -> Vec<Map<String, Value>> {
    let row = |kind: &str, lfn: &Lfn, tags: &[Tag]| {
        let mut row = Map::new();
        row.insert("kind".to_owned(), Value::from(kind));
        row.insert("lfn".to_owned(), Value::from(lfn.as_str()));
        if !tags.is_empty() {
            let tags = tags.iter().map(|tag| (tag.key.to_string(), json_tags::to_json(&tag.value))).collect();
            row.insert("tags".to_owned(), Value::Object(tags));
        }
        row
    };
    match item {
        TreeItem::Directory { lfn, owner, tags } => {
            let mut row = row("directory", lfn, tags);
            if let Some(owner) = owner {
                row.insert("owner".to_owned(), Value::from(owner.as_str()));
                row.insert("group".to_owned(), Value::from(owner.as_str()));
            }
            vec![row]
        }
        TreeItem::File(file) => {
            report.files += 1;
            let mut row = row("file", &file.lfn, &file.tags);
            fill_file(&mut row, file);
            vec![row]
        }
        TreeItem::Collection { lfn, tags, members } => {
            let mut rows = vec![row("collection", lfn, tags)];
            for member in members {
                report.members += 1;
                let mut row = row("member", lfn, &[]);
                match member {
                    FileRef::Lfn(file) => row.insert("target".to_owned(), Value::from(file.as_str())),
                    FileRef::Guid(guid) => row.insert("guid".to_owned(), Value::from(guid.to_string())),
                };
                rows.push(row);
            }
            rows
        }
    }
}

fn fill_file(row: &mut Map<String, Value>, file: &NewFile) {
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            row.insert(key.to_owned(), value);
        }
    };
    put("guid", file.guid.map(|guid| Value::from(guid.to_string())));
    put("size", file.size.map(Value::from));
    let checksums: Vec<String> = file.checksums.iter().map(ToString::to_string).collect();
    put("checksum", (!checksums.is_empty()).then(|| Value::from(checksums.join("|"))));
    put("owner", file.owner.as_ref().map(|owner| Value::from(owner.as_str())));
    put("group", file.group.as_ref().map(|group| Value::from(group.as_str())));
    put("mode", file.mode.map(|mode| Value::from(mode.to_string())));
    put("mtime", file.modified.map(|time| Value::from(time.to_string())));
    put("expires", file.expires.map(|time| Value::from(time.to_string())));
    put("job", file.job.map(Value::from));
    let mut replicas: Vec<Value> = file
        .replicas
        .iter()
        .map(|replica| {
            let mut object = Map::new();
            object.insert("se".to_owned(), Value::from(replica.se.as_str()));
            if let Some(pfn) = &replica.pfn {
                object.insert("pfn".to_owned(), Value::from(pfn.as_str()));
            }
            if replica.state != ReplicaState::Available {
                object.insert("state".to_owned(), Value::from(replica.state.name()));
            }
            Value::Object(object)
        })
        .collect();
    if let Some((FileRef::Guid(archive), member)) = &file.member_of {
        replicas.push(Value::from(format!("guid:///{archive}?ZIP={member}")));
    }
    put("replicas", (!replicas.is_empty()).then_some(Value::Array(replicas)));
}
