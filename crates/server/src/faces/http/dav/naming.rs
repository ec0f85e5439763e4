//! Changes of names and properties: MKCOL, DELETE, MOVE, COPY, PROPPATCH.

use exacat_model::answer::Stat;
use exacat_model::operation::FileRef;
use exacat_model::{
    Answer, Body as EntryBody, Cursor, Error, ErrorKind, Kind, Lfn, Operation, Result, TagKey,
};
use exacat_wire::webdav::headers::{Depth, depth, overwrite};
use exacat_wire::webdav::limits::BODY_BYTES_MAX;
use exacat_wire::webdav::path::encode;
use exacat_wire::webdav::property::dead_property_key;
use exacat_wire::webdav::request::proppatch as read;
use exacat_wire::webdav::status::proppatch as write;
use exacat_wire::webdav::{Destination, PropertyName, Update};
use hyper::StatusCode;

use super::super::answers::{answer, empty};
use super::transfer::{self, Mode};
use super::{Outcome, PREFIX, Refused, Request, content, upload};

/// Most entries that one COPY of a directory makes.
const COPIED_ENTRIES_MAX: u64 = 1000;
/// Items of a page while a directory is copied.
const PAGE_ITEMS: u32 = 1000;

/// Answers MKCOL.
pub(super) async fn make(mut request: Request<'_>) -> Outcome {
    let (body, _held) = request.whole(BODY_BYTES_MAX).await?;
    if !body.is_empty() {
        return Err(Refused::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "MKCOL takes no body here"));
    }
    let lfns = vec![request.lfn.clone()];
    match request.change(Operation::Mkdir { lfns, parents: false, mode: None }).await {
        Ok(()) => Ok(empty(StatusCode::CREATED)),
        Err(error) if error.kind == ErrorKind::Exists => {
            Err(Refused { error, status: Some(StatusCode::METHOD_NOT_ALLOWED) })
        }
        Err(error) => Err(Refused::with(error, ErrorKind::NotFound, StatusCode::CONFLICT)),
    }
}

/// Answers DELETE: a directory goes to the trash with everything below it.
pub(super) async fn remove(mut request: Request<'_>) -> Outcome {
    if !matches!(depth(request.header("depth")?)?, None | Some(Depth::Infinity)) {
        return Err(Refused::new(StatusCode::BAD_REQUEST, "DELETE takes Depth: infinity only"));
    }
    let lfn = request.lfn.clone();
    let user = request.call.caller().name().map_or("", |name| name.as_str()).to_owned();
    let name = lfn.clone().of_anything();
    // The client cleans up after itself: what was there before is not its own.
    if upload::end_all(&mut request, &name).await? {
        return Ok(empty(StatusCode::NO_CONTENT));
    }
    let has_failed = request.conversation.face.failed_puts.take(&user, &name);
    if has_failed && request.stat(&name, false).await.is_ok() {
        return Err(Refused::new(
            StatusCode::CONFLICT,
            format!(
                "{name}: a PUT of it failed just now, and it was there before: send DELETE again to remove it"
            ),
        ));
    }
    request.call.ask(Operation::Remove { lfn, recursive: true, directory: false }).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

fn destination(request: &Request<'_>) -> Result<Destination> {
    let given = request.header("destination")?;
    let given = given.ok_or_else(|| Error::invalid("the header Destination is missing"))?;
    Destination::parse(given, &request.host()?, PREFIX)
}

/// The target of MOVE or COPY.
struct Target {
    lfn: Lfn,
    /// The entry there, to be replaced.
    existing: Option<Stat>,
}

impl Target {
    /// Reads the destination; refuses one that exists and may not be replaced.
    async fn of(request: &mut Request<'_>) -> std::result::Result<Self, Refused> {
        let lfn = match destination(request)? {
            Destination::Here(lfn) => lfn.of_anything(),
            Destination::Elsewhere => {
                return Err(Refused::new(StatusCode::BAD_GATEWAY, "the destination is on another server"));
            }
        };
        let source = request.lfn.clone().of_anything();
        if source == lfn || source.contains(&lfn) {
            return Err(Refused::new(StatusCode::FORBIDDEN, "the destination is the source, or inside it"));
        }
        let existing = match request.stat(&lfn, false).await {
            Ok(stat) => Some(stat),
            Err(error) if error.kind == ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let may_replace = overwrite(request.header("overwrite")?)?;
        if existing.is_some() && !may_replace {
            return Err(Refused::new(
                StatusCode::PRECONDITION_FAILED,
                "the destination exists: Overwrite is F",
            ));
        }
        Ok(Target { lfn, existing })
    }

    /// Moves the entry that is there to the trash.
    async fn clear(&self, request: &mut Request<'_>) -> Result<()> {
        if self.existing.is_some() {
            let lfn = self.lfn.clone();
            request.call.ask(Operation::Remove { lfn, recursive: true, directory: false }).await?;
        }
        Ok(())
    }

    fn done(&self) -> hyper::Response<super::Body> {
        empty(if self.existing.is_some() { StatusCode::NO_CONTENT } else { StatusCode::CREATED })
    }
}

/// Answers MOVE. A replaced entry goes to the trash first, as RFC 4918 demands.
pub(super) async fn rename(mut request: Request<'_>) -> Outcome {
    let from = request.lfn.clone().of_anything();
    request.stat(&from, false).await?;
    let target = Target::of(&mut request).await?;
    target.clear(&mut request).await?;
    let to = target.lfn.clone();
    let moved = request.call.ask(Operation::Move { from, to }).await;
    moved.map_err(|error| Refused::with(error, ErrorKind::NotFound, StatusCode::CONFLICT))?;
    Ok(target.done())
}

/// Answers COPY: of directories, links and collections, and of files. Storage elements copy a large
/// file, or any if the client understands their markers; the server copies others itself.
pub(super) async fn copy(mut request: Request<'_>) -> Outcome {
    if request.head.headers.contains_key("source") {
        return transfer::pull(request).await;
    }
    let depth = depth(request.header("depth")?)?.unwrap_or(Depth::Infinity);
    let from = request.lfn.clone().of_anything();
    let se = transfer::se_of(request.header("destination")?.unwrap_or_default())?;
    match destination(&request)? {
        Destination::Elsewhere => return transfer::push(request).await,
        // Another replica of the same file.
        Destination::Here(to) if to.clone().of_anything() == from => {
            let stat = request.stat(&from, true).await?;
            if stat.entry.kind() == Kind::File {
                let plan = transfer::plan(&mut request, &stat, &from, se, Mode::Push).await?;
                return transfer::run(request, plan).await;
            }
        }
        Destination::Here(_) => {}
    }
    let source = request.stat(&from, false).await?;
    let target = Target::of(&mut request).await?;
    let parent = target.lfn.parent().unwrap_or_else(Lfn::root);
    let missing = request.stat(&parent, true).await.err();
    if let Some(error) = missing {
        return Err(Refused::with(error, ErrorKind::NotFound, StatusCode::CONFLICT));
    }
    let by_others = check_copy(&source).is_err() || transfer::wants_markers(&request);
    if source.entry.kind() == Kind::File && by_others && target.existing.is_none() {
        let plan = transfer::plan(&mut request, &source, &target.lfn, se, Mode::Push).await?;
        return transfer::run(request, plan).await;
    }
    let is_directory = source.entry.kind() == Kind::Directory;
    let mut below = Vec::new();
    if is_directory && depth == Depth::Infinity {
        below = everything(&mut request, &from).await?;
    }
    // Everything is checked before the replaced entry goes.
    for stat in std::iter::once(&source).chain(&below) {
        check_copy(stat)?;
    }
    target.clear(&mut request).await?;
    copy_one(&mut request, &source, target.lfn.clone()).await?;
    for stat in &below {
        let rest = stat.lfn.as_str().strip_prefix(from.as_str()).unwrap_or_default();
        let to = Lfn::parse(&format!("{}{rest}", target.lfn.as_str().trim_end_matches('/')))?;
        copy_one(&mut request, stat, to).await?;
    }
    Ok(target.done())
}

/// Returns all entries below a directory, each directory before its content.
async fn everything(request: &mut Request<'_>, lfn: &Lfn) -> std::result::Result<Vec<Stat>, Refused> {
    let mut all: Vec<Stat> = Vec::new();
    let mut cursor = Cursor::default();
    loop {
        let find = Operation::Find { lfn: lfn.clone(), filter: Box::default(), cursor, limit: PAGE_ITEMS };
        let Answer::Entries { items, next, .. } = request.call.ask(find).await? else {
            return Err(super::unfitting().into());
        };
        all.extend(items);
        if all.len() as u64 > COPIED_ENTRIES_MAX {
            return Err(Refused::new(
                StatusCode::INSUFFICIENT_STORAGE,
                format!("more than {COPIED_ENTRIES_MAX} entries are below it: copy its parts"),
            ));
        }
        match next {
            Some(next) => cursor = next,
            None => return Ok(all),
        }
    }
}

async fn copy_one(request: &mut Request<'_>, stat: &Stat, to: Lfn) -> std::result::Result<(), Refused> {
    let tags = stat.entry.tags.clone();
    match &stat.entry.body {
        EntryBody::Directory(_) => {
            let mode = Some(stat.entry.mode);
            request.change(Operation::Mkdir { lfns: vec![to.clone()], parents: false, mode }).await?;
        }
        EntryBody::Link { target, .. } => {
            request.change(Operation::Link { lfn: to.clone(), target: target.clone() }).await?;
        }
        EntryBody::Collection { .. } => {
            request.change(Operation::CollectionCreate { lfn: to.clone(), tags: tags.clone() }).await?;
            copy_members(request, &stat.lfn, &to).await?;
            return Ok(());
        }
        EntryBody::File(_) => copy_file(request, stat, &to).await?,
    }
    if !tags.is_empty() {
        request.change(Operation::TagSet { lfns: vec![to], set: tags, unset: Vec::new() }).await?;
    }
    Ok(())
}

/// Refuses the copy of a file that is too large to be read and written again.
fn check_copy(stat: &Stat) -> std::result::Result<(), Refused> {
    let Some(file) = stat.entry.file() else { return Ok(()) };
    if file.size.is_some_and(|size| size <= content::RELAY_BYTES_MAX) {
        return Ok(());
    }
    Err(Refused::new(
        StatusCode::INSUFFICIENT_STORAGE,
        format!(
            "{}: files of more than {} bytes are not copied with others: copy it alone",
            stat.lfn,
            content::RELAY_BYTES_MAX
        ),
    ))
}

/// Copies a file: reads it, and writes it as a new one.
async fn copy_file(request: &mut Request<'_>, stat: &Stat, to: &Lfn) -> std::result::Result<(), Refused> {
    let whereis = content::places(request, &stat.lfn).await?;
    let bytes = content::relayed(&request.storage(), &stat.lfn, &whereis).await?;
    let checksums = content::checksums_of(&bytes)?;
    upload::store(request, to, bytes.into(), checksums).await
}

async fn copy_members(request: &mut Request<'_>, from: &Lfn, to: &Lfn) -> Result<()> {
    let mut cursor = Cursor::default();
    loop {
        let members = Operation::CollectionMembers { lfn: from.clone(), cursor, limit: PAGE_ITEMS };
        let Answer::Members { items, next } = request.call.ask(members).await? else {
            return Err(super::unfitting());
        };
        let add: Vec<FileRef> = items.iter().map(|member| FileRef::Guid(member.guid)).collect();
        if !add.is_empty() {
            let edit = Operation::CollectionEdit { lfn: to.clone(), add, remove: Vec::new() };
            request.call.ask(edit).await?;
        }
        match next {
            Some(next) => cursor = next,
            None => return Ok(()),
        }
    }
}

/// Answers PROPPATCH: all its changes, or none.
pub(super) async fn proppatch(mut request: Request<'_>) -> Outcome {
    let (body, _held) = request.whole(BODY_BYTES_MAX).await?;
    let updates = read(&body)?;
    let lfn = request.lfn.clone().of_anything();
    let stat = request.stat(&lfn, false).await?;
    let mut outcomes: Vec<(PropertyName, u16)> = Vec::new();
    let (mut set, mut unset): (Vec<exacat_model::Tag>, Vec<TagKey>) = (Vec::new(), Vec::new());
    for update in updates {
        let name = update.name().clone();
        let status = match change_of(&update) {
            Ok((key, value)) => {
                // The last one of several changes of a property holds.
                set.retain(|tag| tag.key != key);
                unset.retain(|other| *other != key);
                match value {
                    Some(value) => set.push(exacat_model::Tag { key, value }),
                    None => unset.push(key),
                }
                200
            }
            Err(error) if error.kind == ErrorKind::Limit => StatusCode::INSUFFICIENT_STORAGE.as_u16(),
            Err(_) => StatusCode::FORBIDDEN.as_u16(),
        };
        outcomes.push((name, status));
    }
    // Removing a property that is not there succeeds.
    unset.retain(|key| stat.entry.tags.iter().any(|tag| tag.key == *key));
    let all_good = outcomes.iter().all(|(_, status)| *status < 300);
    if all_good && !(set.is_empty() && unset.is_empty()) {
        request.change(Operation::TagSet { lfns: vec![lfn.clone()], set, unset }).await?;
    }
    let mut out = Vec::new();
    let is_directory = stat.entry.kind() == Kind::Directory;
    write(&mut out, &encode(&lfn, PREFIX, is_directory), &outcomes);
    Ok(answer(StatusCode::MULTI_STATUS, "application/xml; charset=utf-8", out))
}

/// Returns the tag of a property and its new value; none removes it.
fn change_of(update: &Update) -> Result<(TagKey, Option<exacat_model::TagValue>)> {
    let key = dead_property_key(update.name())?;
    match update {
        Update::Set(_, value) => Ok((key, Some(value.to_tag()?))),
        Update::Remove(_) => Ok((key, None)),
    }
}
