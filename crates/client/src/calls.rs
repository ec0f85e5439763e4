//! Frequent operations as typed calls, each a thin translation. [`Client::call`] takes all others.

use exacat_model::answer::{Stat, StatusPart, TagInForce, Upload, UserInfo, Whereis};
use exacat_model::operation::{Existing, FileRef, NewFile, Registered};
use exacat_model::{
    AccountName, Answer, Cursor, Error, ErrorKind, Filter, Guid, Lfn, LogPosition, OnTimeline, Operation,
    Result, Revision, TrashId, Usage,
};

use crate::client::Client;
use crate::pages::AnswerStream;

/// Identity that the server accepts for the caller.
#[derive(Clone, Debug, PartialEq)]
pub struct Caller {
    /// The user; none if anonymous.
    pub user: Option<UserInfo>,
    /// Subtree to which the caller is limited.
    pub scope: Lfn,
    /// True if the caller may make changes.
    pub write: bool,
}

fn unfit(operation: &'static str) -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("internal error: the answer of the server does not fit {operation}"),
    )
}

/// Returns the one answer for the one requested item.
fn only<T>(operation: &'static str, answers: Vec<Result<T>>) -> Result<T> {
    let mut answers = answers.into_iter();
    match (answers.next(), answers.next()) {
        (Some(answer), None) => answer,
        _ => Err(unfit(operation)),
    }
}

/// Checks that there is one answer for each requested item.
fn each<T>(operation: &'static str, asked: usize, answers: Vec<Result<T>>) -> Result<Vec<Result<T>>> {
    if answers.len() == asked { Ok(answers) } else { Err(unfit(operation)) }
}

/// Calls an operation and destructures its answer.
macro_rules! ask {
    ($client:expr, $operation:expr, $pattern:pat => $value:expr) => {{
        let operation = $operation;
        let name = operation.name();
        match $client.call(operation).await? {
            $pattern => Ok($value),
            _ => Err(unfit(name)),
        }
    }};
}

impl Client {
    /// Returns the caller's identity and rights.
    pub async fn whoami(&self) -> Result<Caller> {
        ask!(self, Operation::Whoami, Answer::Whoami { user, scope, write } => {
            let user = user.map(|user| *user);
            Caller { user, scope, write }
        })
    }

    /// Returns the metadata of an entry; follows a link at the end of the path if `follow`.
    pub async fn stat(&self, lfn: Lfn, follow: bool) -> Result<Stat> {
        ask!(self, Operation::Stat { lfns: vec![lfn], follow }, Answer::Stats(stats) => only("stat", stats)?)
    }

    /// Returns the metadata of entries, one result each.
    pub async fn stats(&self, lfns: Vec<Lfn>, follow: bool) -> Result<Vec<Result<Stat>>> {
        let asked = lfns.len();
        ask!(self, Operation::Stat { lfns, follow }, Answer::Stats(stats) => each("stat", asked, stats)?)
    }

    /// Locates the replicas of a file, best first, nearest to `site` first.
    pub async fn whereis(&self, file: FileRef, site: Option<AccountName>) -> Result<Whereis> {
        let operation = Operation::Whereis { files: vec![file], site };
        ask!(self, operation, Answer::Whereis(found) => only("whereis", found)?)
    }

    /// Locates the replicas of files, one result each.
    pub async fn whereis_each(
        &self,
        files: Vec<FileRef>,
        site: Option<AccountName>,
    ) -> Result<Vec<Result<Whereis>>> {
        let asked = files.len();
        ask!(self, Operation::Whereis { files, site }, Answer::Whereis(found) => each("whereis", asked, found)?)
    }

    /// Returns the LFN of the file of this GUID.
    pub async fn lfn(&self, guid: Guid) -> Result<Lfn> {
        ask!(self, Operation::Lfns { guids: vec![guid] }, Answer::Lfns(lfns) => only("lfns", lfns)?)
    }

    /// Lists the children of a directory, page by page.
    pub fn list(&self, lfn: Lfn) -> AnswerStream {
        let limit = self.settings().page_items;
        self.stream(Operation::List { lfn, cursor: Cursor::default(), limit })
    }

    /// Finds entries below a directory that satisfy a filter, page by page.
    pub fn find(&self, lfn: Lfn, filter: Filter) -> AnswerStream {
        let limit = self.settings().page_items;
        self.stream(Operation::Find { lfn, filter: Box::new(filter), cursor: Cursor::default(), limit })
    }

    /// Returns the usage of an entry with everything below it.
    pub async fn du(&self, lfn: Lfn) -> Result<Usage> {
        ask!(self, Operation::Du { lfns: vec![lfn] }, Answer::Usages(usages) => only("du", usages)?)
    }

    /// Makes a directory. With `parents`, makes missing parents too and accepts an existing
    /// directory.
    pub async fn mkdir(&self, lfn: Lfn, parents: bool) -> Result<()> {
        let operation = Operation::Mkdir { lfns: vec![lfn], parents, mode: None };
        ask!(self, operation, Answer::EachDone(done) => only("mkdir", done)?)
    }

    /// Registers files, one result each.
    pub async fn register(
        &self,
        files: Vec<NewFile>,
        parents: bool,
        existing: Existing,
    ) -> Result<Vec<Result<Registered>>> {
        let asked = files.len();
        let operation = Operation::Register { files, parents, existing };
        ask!(self, operation, Answer::Registered(done) => each("register", asked, done)?)
    }

    /// Moves or renames an entry.
    pub async fn move_(&self, from: Lfn, to: Lfn) -> Result<Revision> {
        ask!(self, Operation::Move { from, to }, Answer::Done { revision } => revision)
    }

    /// Moves an entry to the trash; a directory with entries only if `recursive`.
    pub async fn remove(&self, lfn: Lfn, recursive: bool) -> Result<OnTimeline<TrashId>> {
        let operation = Operation::Remove { lfn, recursive, directory: false };
        ask!(self, operation, Answer::Removed { id } => id)
    }

    /// Lists the trash, page by page.
    pub fn trash(&self) -> AnswerStream {
        self.stream(Operation::TrashList { cursor: Cursor::default(), limit: self.settings().page_items })
    }

    /// Restores an item of the trash, to its former place or to `to`.
    pub async fn restore(&self, id: OnTimeline<TrashId>, to: Option<Lfn>) -> Result<Revision> {
        ask!(self, Operation::TrashRestore { id, to }, Answer::Done { revision } => revision)
    }

    /// Returns the tags in force for an entry, with the source of each; only its own tags if `own`.
    pub async fn tags(&self, lfn: Lfn, own: bool) -> Result<Vec<TagInForce>> {
        ask!(self, Operation::TagGet { lfns: vec![lfn], own }, Answer::Tags(tags) => only("tag-get", tags)?)
    }

    /// Lists upload reservations, page by page.
    pub fn uploads(&self) -> AnswerStream {
        self.stream(Operation::UploadList { cursor: Cursor::default(), limit: self.settings().page_items })
    }

    /// Makes an upload reservation from an [`Operation::UploadReserve`].
    pub async fn reserve(&self, reservation: Operation) -> Result<Upload> {
        if !matches!(reservation, Operation::UploadReserve { .. }) {
            return Err(Error::invalid(format!("{} makes no upload reservation", reservation.name())));
        }
        ask!(self, reservation, Answer::Upload(upload) => *upload)
    }

    /// Returns the history after a place in it, page by page up to now: all of it, or of entries
    /// below a directory. If the place has a timeline on which its revision was replaced, the
    /// answer is a `conflict`. So it is for a bare revision that several timelines may have
    /// assigned.
    pub fn changes(&self, after: impl Into<LogPosition>, under: Option<Lfn>) -> AnswerStream {
        let (after, limit) = (after.into(), self.settings().page_items);
        self.stream(Operation::Changes { after, under, limit, wait: false })
    }

    /// Returns the history after a place in it and then new changes, page by page without an end. A
    /// page may be empty. After a restore it ends with `conflict`.
    pub fn follow(&self, after: impl Into<LogPosition>, under: Option<Lfn>) -> AnswerStream {
        let (after, limit) = (after.into(), self.settings().page_items);
        AnswerStream::new(self.inner.clone(), Operation::Changes { after, under, limit, wait: true }, true)
    }

    /// Returns metrics for an operator.
    pub async fn status(&self) -> Result<Vec<StatusPart>> {
        ask!(self, Operation::Status, Answer::Status(parts) => parts)
    }
}
