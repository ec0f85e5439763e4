//! Answers of the catalogue as JSON, one object for each item.

use exacat_model::answer::Stat;
use exacat_model::operation::FileRef;
use exacat_model::{Answer, Error, ErrorKind, Guid, HasRevision, Lfn, Measured, Operation, Result, Revision};
use exacat_wire::json::{self, SeNames};
use serde::Serialize;

use super::super::answers::Problem;
use super::super::call::{Call, ROW_ROOM_BYTES, rows_at_once};
use super::endpoints::View;

/// One of so many bytes of a list is spare, because its objects differ in length.
const SPARE: usize = 8;
/// Most bytes of space that an object gets beforehand.
const OBJECT_BYTES_EXPECTED_MAX: usize = 2 * ROW_ROOM_BYTES;

/// The names in a request, which answers repeat.
#[derive(Clone, Debug)]
pub(super) enum Names {
    Lfns(Vec<Lfn>),
    Files(Vec<FileRef>),
    Guids(Vec<Guid>),
    /// The one subject.
    Subject(String),
    /// Source and destination of a move.
    Move(Lfn, Lfn),
}

impl Names {
    /// Returns the names in an operation.
    pub(crate) fn of(operation: &Operation) -> Self {
        let subject = |text: &dyn ToString| Names::Subject(text.to_string());
        match operation {
            Operation::Stat { lfns, .. }
            | Operation::Du { lfns }
            | Operation::Mkdir { lfns, .. }
            | Operation::SetAttributes { lfns, .. }
            | Operation::TagSet { lfns, .. }
            | Operation::TagGet { lfns, .. } => Names::Lfns(lfns.clone()),
            Operation::Register { files, .. } => {
                Names::Lfns(files.iter().map(|file| file.lfn.clone()).collect())
            }
            Operation::Whereis { files, .. } => Names::Files(files.clone()),
            Operation::SetReplicas { edits } => {
                Names::Files(edits.iter().map(|(file, _)| file.clone()).collect())
            }
            Operation::Lfns { guids } => Names::Guids(guids.clone()),
            Operation::Move { from, to } => Names::Move(from.clone(), to.clone()),
            Operation::TrashRestore { id, .. }
            | Operation::TrashRestorePart { id, .. }
            | Operation::TrashPurge { id, .. } => subject(id),
            Operation::UploadCommit { guid, .. } | Operation::UploadAbort { guid, .. } => subject(guid),
            Operation::SeSet(settings) => subject(&settings.name),
            Operation::SeDrop { name }
            | Operation::SeFiles { name, .. }
            | Operation::SeDeletions { name, .. }
            | Operation::SeDeleted { name, .. } => subject(name),
            Operation::UserSet(settings) => subject(&settings.name),
            Operation::UserDrop { name } | Operation::GroupAdd { name } | Operation::GroupDrop { name } => {
                subject(name)
            }
            Operation::TokenRevoke { id } => Names::Subject(json::token_id(*id)),
            Operation::QuotaSet { owner, .. } => Names::Subject(json::owner(owner)),
            Operation::SnapshotCreate { name }
            | Operation::SnapshotDrop { name }
            | Operation::SnapshotVerify { name }
            | Operation::SnapshotDiff { before: name, .. } => subject(name),
            Operation::Backup { directory, .. } => subject(directory),
            Operation::ArchiveMembers { archive, .. } => Names::Files(vec![archive.clone()]),
            Operation::SessionKill { id } => subject(id),
            Operation::FeedCreate { name, .. } | Operation::FeedControl { name, .. } => subject(name),
            Operation::ElementGroupSet { group, .. }
            | Operation::ElementGroupDrop { group }
            | Operation::ElementWrite { group, .. } => subject(group),
            Operation::ElementList { of, .. }
            | Operation::ElementValues { of, .. }
            | Operation::ElementRows { of, .. }
            | Operation::ElementAggregates { of, .. } => subject(&of.group),
            Operation::ThrottleSet { owner, .. } => Names::Subject(json::throttled(owner.as_ref())),
            other => match other.subject() {
                Some(lfn) => subject(lfn),
                None => subject(&other.name()),
            },
        }
    }

    /// Returns the name of the item `index`.
    pub(crate) fn text(&self, index: usize) -> String {
        match self {
            Names::Lfns(lfns) => lfns.get(index).map(ToString::to_string),
            Names::Files(files) => files.get(index).map(|file| match file {
                FileRef::Lfn(lfn) => lfn.to_string(),
                FileRef::Guid(guid) => guid.to_string(),
            }),
            Names::Guids(guids) => guids.get(index).map(ToString::to_string),
            Names::Subject(text) => Some(text.clone()),
            Names::Move(from, _) => Some(from.to_string()),
        }
        .unwrap_or_default()
    }
}

/// The error of one item, in place of its object.
#[derive(Serialize)]
struct Failed {
    error: Problem,
}

/// JSON objects, one after the other.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub bytes: Vec<u8>,
    /// Number of objects.
    pub count: usize,
    /// True for a comma between two of them; otherwise each ends with a line end.
    commas: bool,
    /// Start of each object, if it is an event.
    event: Option<String>,
}

impl Objects {
    /// Starts a list of lines.
    pub(crate) fn lines() -> Self {
        Objects::default()
    }

    /// Starts a list with commas.
    pub(crate) fn with_commas() -> Self {
        Objects { commas: true, ..Objects::default() }
    }

    /// Starts a list of server-sent events.
    pub(crate) fn events() -> Self {
        Objects { event: Some(String::new()), ..Objects::default() }
    }

    /// Sets the id of the following event.
    pub(crate) fn next_event(&mut self, id: &str) {
        if let Some(event) = &mut self.event {
            *event = format!("id: {id}\nevent: change\ndata: ");
        }
    }

    /// Adds an object.
    pub(crate) fn push(&mut self, object: &impl Serialize) -> Result<()> {
        if self.commas && self.count > 0 {
            self.bytes.push(b',');
        }
        if let Some(event) = &self.event {
            self.bytes.extend_from_slice(event.as_bytes());
        }
        json::write(&mut self.bytes, object)
            .map_err(|error| Error::new(ErrorKind::Internal, format!("an answer has no JSON: {error}")))?;
        if self.event.is_some() {
            self.bytes.extend_from_slice(b"\n\n");
        } else if !self.commas {
            self.bytes.push(b'\n');
        }
        self.count += 1;
        Ok(())
    }

    /// Makes space for so many more objects of the size of those so far, and some spare.
    fn expect(&mut self, more: usize) {
        let each = self.bytes.len() / self.count.max(1);
        self.bytes.reserve(more * (each + each / SPARE).min(OBJECT_BYTES_EXPECTED_MAX));
    }

    /// Adds the error of an item.
    pub(crate) fn fail(&mut self, error: &Error, subject: String) -> Result<()> {
        if let Some(event) = &mut self.event {
            "event: error\ndata: ".clone_into(event);
        }
        self.push(&Failed { error: Problem::of(error, Some(subject)) })
    }
}

/// The errors of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failures {
    /// The first one is the error of the request.
    Request,
    /// Each is an item.
    Items,
}

/// Converts an answer.
pub(super) struct Renderer<'a> {
    pub names: &'a Names,
    pub view: View,
    pub failures: Failures,
    pub ses: &'a SeNames,
}

impl Renderer<'_> {
    fn each<T>(
        &self,
        out: &mut Objects,
        items: Vec<Result<T>>,
        mut show: impl FnMut(usize, &T, &mut Objects) -> Result<()>,
    ) -> Result<()> {
        let more = items.len().saturating_sub(1);
        for (index, item) in items.into_iter().enumerate() {
            match item {
                Ok(item) => show(index, &item, out)?,
                Err(error) if self.failures == Failures::Request => return Err(error),
                Err(error) => out.fail(&error, self.names.text(index))?,
            }
            if index == 0 {
                out.expect(more);
            }
        }
        Ok(())
    }

    fn entries(&self, items: &[Stat], out: &mut Objects) -> Result<()> {
        items.iter().try_for_each(|stat| out.push(&json::entry(stat, self.ses)))
    }

    /// Adds the objects of a page. A long one takes a turn, and lets other requests go on in between.
    pub(super) async fn render_page(&self, call: &Call, answer: Answer, out: &mut Objects) -> Result<()> {
        let bytes = answer.bytes();
        let Answer::Entries { items, .. } = answer else { return self.render(answer, out) };
        let at_once = rows_at_once(items.len(), bytes);
        let turn = call.turn(items.len(), at_once).await;
        for (number, part) in items.chunks(at_once).enumerate() {
            self.entries(part, out)?;
            if number == 0 {
                out.expect(items.len() - part.len());
            }
            if turn.is_some() {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    fn done(&self, index: usize, out: &mut Objects) -> Result<()> {
        out.push(&json::DoneOut { item: &self.names.text(index), done: true })
    }

    /// Adds the objects of an answer.
    pub(crate) fn render(&self, answer: Answer, out: &mut Objects) -> Result<()> {
        let ses = self.ses;
        match answer {
            Answer::Done { revision } => match self.names {
                Names::Move(from, to) => {
                    let (from, to) = (from.as_str(), to.as_str());
                    out.push(&json::MovedOut { from, to, revision: revision.0 })
                }
                _ => self.done(0, out),
            },
            Answer::EachDone(items) => self.each(out, items, |index, (), out| self.done(index, out)),
            Answer::Whoami { user, scope, write } => out.push(&json::whoami(user.as_deref(), &scope, write)),
            Answer::Stats(items) => self.each(out, items, |_, stat, out| out.push(&json::entry(stat, ses))),
            Answer::Whereis(items) => match self.names {
                Names::Files(files) => self.each(out, items, |index, found, out| match files.get(index) {
                    Some(file) => out.push(&json::whereis(file, found)),
                    None => Err(unfitting()),
                }),
                _ => Err(unfitting()),
            },
            Answer::Lfns(items) => match self.names {
                Names::Guids(guids) => self.each(out, items, |index, lfn, out| match guids.get(index) {
                    Some(guid) => out.push(&json::LfnOut { guid: json::Shown(*guid), lfn: lfn.as_str() }),
                    None => Err(unfitting()),
                }),
                _ => Err(unfitting()),
            },
            Answer::Entries { items, .. } => self.entries(&items, out),
            Answer::Usages(items) => self.each(out, items, |index, usage, out| {
                out.push(&json::DuOut { lfn: &self.names.text(index), usage: json::usage(usage) })
            }),
            Answer::Registered(items) => self.each(out, items, |index, result, out| {
                let (result, guid) = json::registered(*result);
                out.push(&json::RegisteredOut {
                    lfn: &self.names.text(index),
                    result,
                    guid: json::Shown(guid),
                })
            }),
            Answer::Removed { id } => {
                out.push(&json::RemovedOut { lfn: &self.names.text(0), trash: id.to_string() })
            }
            Answer::Trash { items, timeline, .. } => {
                items.iter().try_for_each(|(item, who)| out.push(&json::trash(item, who, timeline.tag())))
            }
            Answer::Purged { entries, .. } => out.push(&json::PurgedOut { id: &self.names.text(0), entries }),
            Answer::Tags(items) => match self.names {
                Names::Lfns(lfns) => self.each(out, items, |index, tags, out| {
                    let lfn = lfns.get(index).ok_or_else(unfitting)?;
                    tags.iter().try_for_each(|found| out.push(&json::tag(lfn, found)))
                }),
                _ => Err(unfitting()),
            },
            Answer::CollectionEdited { added, removed, refused } => {
                if let Some((_, error)) = refused.into_iter().next() {
                    return Err(error);
                }
                out.push(&json::EditedOut { lfn: &self.names.text(0), added, removed })
            }
            Answer::Members { items, .. } => {
                items.iter().try_for_each(|member| out.push(&json::member(member, ses)))
            }
            Answer::Upload(upload) => out.push(&json::upload(&upload)),
            Answer::Uploads { items, .. } => {
                items.iter().try_for_each(|upload| out.push(&json::upload(upload)))
            }
            Answer::Ses(items) => items.iter().try_for_each(|se| out.push(&json::se(se))),
            Answer::Deletions { items, .. } => {
                items.iter().try_for_each(|item| out.push(&json::deletion(item)))
            }
            Answer::Accounts { users, groups } => {
                if self.view == View::Groups {
                    return groups
                        .iter()
                        .try_for_each(|(id, name)| out.push(&json::group(*id, name, &users)));
                }
                users.iter().try_for_each(|user| out.push(&json::user(user)))
            }
            Answer::TokenIssued { token, secret } => {
                out.push(&json::TokenOut { secret: Some(&secret), ..json::token(&token) })
            }
            Answer::Tokens(items) => items.iter().try_for_each(|token| out.push(&json::token(token))),
            Answer::Quotas(items) => items.iter().try_for_each(|info| out.push(&json::quota(info))),
            Answer::Changes { up_to, timeline, .. } if self.view == View::Position => {
                let position = up_to.on(timeline.tag()).to_string();
                out.push(&json::PositionOut { revision: up_to.0, timeline: timeline.to_string(), position })
            }
            Answer::Changes { items, timeline, .. } => items.iter().try_for_each(|item| {
                out.next_event(&item.change.revision.on(timeline.tag()).to_string());
                out.push(&json::change(item, timeline, ses))
            }),
            Answer::Fsck(audit) => out.push(&json::audit(&audit)),
            Answer::Status(parts) => parts.iter().try_for_each(|part| out.push(&json::status(part))),
            Answer::Requests(items) => items.iter().try_for_each(|item| out.push(&json::request(item))),
            Answer::Throttles(items) => items.iter().try_for_each(|item| out.push(&json::throttle(item))),
            Answer::Feeds(items) => items.iter().try_for_each(|item| out.push(&json::feed(item))),
            Answer::ElementGroups(items) => {
                items.iter().try_for_each(|item| out.push(&json::element_group(item)))
            }
            Answer::Elements { items, .. } => {
                items.iter().try_for_each(|item| out.push(&json::element(item)))
            }
            Answer::ElementValues { items, .. } => {
                items.iter().try_for_each(|item| out.push(&json::element_state(item)))
            }
            Answer::ElementRows { items, .. } => {
                items.iter().flat_map(json::element_rows).try_for_each(|row| out.push(&row))
            }
            Answer::ElementAggregates { items, .. } => {
                items.iter().flat_map(json::element_aggregates).try_for_each(|one| out.push(&one))
            }
            Answer::ElementsWritten { rows, refused, reason } => {
                out.push(&json::ElementsWrittenOut { rows, refused, reason: reason.as_deref() })
            }
            Answer::Activity(items) => items.iter().try_for_each(|item| out.push(&json::period(item))),
            Answer::Snapshot(snapshot) => out.push(&json::snapshot(&snapshot)),
            Answer::Snapshots(items) => items.iter().try_for_each(|item| out.push(&json::snapshot(item))),
            Answer::SnapshotChecked(check) => out.push(&json::snapshot_check(&self.names.text(0), &check)),
            Answer::Differences { items, .. } => {
                items.iter().filter_map(json::difference).try_for_each(|item| out.push(&item))
            }
            Answer::BackedUp { progress, .. } => out.push(&json::backup(&self.names.text(0), &progress)),
        }
    }

    /// Adds the result of a restore from the trash, which answers a revision only.
    pub(crate) fn restored(&self, revision: Revision, out: &mut Objects) -> Result<()> {
        out.push(&json::RestoredOut { item: &self.names.text(0), revision: revision.0 })
    }
}

fn unfitting() -> Error {
    Error::new(ErrorKind::Internal, "an answer that does not fit the request")
}
