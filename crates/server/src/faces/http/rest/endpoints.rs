//! The table of endpoints: method, path, arguments, operation, answer. The router and the OpenAPI
//! document come from it.

use exacat_model::operation::{FileRef, Owner};
use exacat_model::{
    Cursor, Error, Guid, Lfn, LogPosition, Mode, OnTimeline, Operation, Result, SeName, SnapshotName,
    TokenId, TrashId,
};
use exacat_wire::json;
use exacat_wire::json::requests::{self, NewFileIn, Parse as _, ReplicaEditsIn, throttled};
use exacat_wire::json::search::FindIn;
use utoipa::ToSchema;

use super::PAGE_ITEMS_MAX;
use super::arguments::Arguments;
use super::schemas::{Schema, schema};
use crate::admission::Share;

/// Seconds of activity that a client gets without telling their number.
const ACTIVITY_SECONDS: u32 = 3600;

/// A parameter of a query.
#[derive(Debug)]
pub(super) struct Parameter {
    pub name: &'static str,
    /// Type in JSON schema.
    pub kind: &'static str,
    pub about: &'static str,
}

/// The form of an answer.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// One object.
    One(Schema),
    /// Several objects: `{"items": […]}`, or JSON lines.
    Items(Schema),
    /// As [`Shape::Items`], in pages with a cursor.
    Pages(Schema),
    /// As [`Shape::Pages`], and as a table.
    Tables(Schema),
    /// JSON lines: for each line of the request one.
    Lines(Schema),
    /// JSON of no fixed schema.
    Free,
}

/// Selection of the items of an answer that an endpoint shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum View {
    /// All.
    #[default]
    All,
    /// Users among accounts.
    Users,
    /// Groups among accounts.
    Groups,
    /// The position after the last change.
    Position,
}

/// The work of an endpoint.
pub(super) enum Run {
    /// One operation, or the pages of one.
    Operation(fn(&Arguments) -> Result<Operation>),
    /// A find: its conditions may name accounts and storage elements.
    Find,
    /// Changes, with all their forms.
    Changes,
    /// For each line of the body an item of an operation.
    Lines(Lines),
    /// A new operation id.
    NewId,
    /// The OpenAPI document.
    Document,
}

/// Bulk operations by the type of their lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lines {
    Stat,
    Whereis,
    Names,
    Usage,
    Register,
    Replicas,
}

/// An endpoint.
pub(super) struct Endpoint {
    pub method: &'static str,
    /// Below the prefix of the API. `{lfn}` takes the rest of the path.
    pub path: &'static str,
    /// Name of the operation in the document.
    pub name: &'static str,
    pub about: &'static str,
    pub query: &'static [Parameter],
    /// Schema of the body, or of a line of it; and whether it may be left out.
    pub body: Option<(Schema, bool)>,
    pub answer: Shape,
    pub view: View,
    pub run: Run,
}

/// Name of the endpoint that writes values of elements.
const WRITE_ELEMENT_ROWS: &str = "writeElementRows";

impl Endpoint {
    /// Returns the share that its requests count towards.
    pub(crate) fn share(&self) -> Share {
        if self.name == WRITE_ELEMENT_ROWS { Share::Elements } else { Share::Catalogue }
    }

    /// Says whether it may change anything.
    pub(crate) fn writes(&self) -> bool {
        match self.run {
            Run::Find => false,
            Run::Lines(lines) => matches!(lines, Lines::Register | Lines::Replicas),
            _ => self.method != "GET",
        }
    }

    /// Says whether it reads past states, too.
    pub(crate) fn has_past(&self) -> bool {
        self.query.iter().any(|parameter| parameter.about == AT.about)
    }

    /// Says whether its answer has an ETag.
    pub(crate) fn has_tag(&self) -> bool {
        matches!(self.name, "getEntry" | "getTags" | "locateFile")
    }

    /// Says whether `If-Match` applies.
    pub(crate) fn is_conditional(&self) -> bool {
        matches!(
            self.name,
            "setAttributes" | "removeEntry" | "setTags" | "setReplicas" | "editCollection" | "move"
        )
    }

    /// Says whether `If-None-Match: *` applies.
    pub(crate) fn is_creation(&self) -> bool {
        matches!(self.name, "registerFile" | "makeDirectory" | "makeLink" | "makeCollection")
    }
}

pub(super) const fn parameter(name: &'static str, kind: &'static str, about: &'static str) -> Parameter {
    Parameter { name, kind, about }
}

pub(super) const LIMIT: Parameter =
    parameter("limit", "integer", "Most items of the page, 1 to 10000; 1000 if left out.");
pub(super) const CURSOR: Parameter = parameter("cursor", "string", "The `next` of the page before.");
const PAGES: &[Parameter] = &[LIMIT, CURSOR];
/// Past state that a read is about.
pub(super) const AT: Parameter = parameter(
    "at",
    "string",
    "Past state to read, `REVISION`, `REVISION.TIMELINE` or a time; the present one if left out.",
);
const PAGES_AT: &[Parameter] = &[LIMIT, CURSOR, AT];
const FOLLOW: Parameter = parameter("follow", "boolean", "Follow a link at the end of the path.");
const SITE: Parameter =
    parameter("site", "string", "Order replicas by distance from this site, nearest first.");
const PARENTS: Parameter = parameter("parents", "boolean", "Make missing parents.");
const EXISTING: Parameter = parameter(
    "existing",
    "string",
    "Treatment of a file that exists: `refuse` (default), `same` (accept an equal one), `merge` (add replicas, \
     checksums and tags).",
);

/// An endpoint of one operation.
macro_rules! endpoint {
    ($method:literal $path:literal $name:ident $about:literal, $query:expr, $body:expr, $answer:expr, $view:expr, $run:expr) => {
        Endpoint {
            method: $method,
            path: $path,
            name: stringify!($name),
            about: $about,
            query: const { $query },
            body: $body,
            answer: $answer,
            view: $view,
            run: $run,
        }
    };
    ($method:literal $path:literal $name:ident $about:literal, $query:expr, $body:expr, $answer:expr, $run:expr) => {
        endpoint!(
            $method $path $name $about, $query, $body, $answer, View::All, Run::Operation($run)
        )
    };
}
pub(super) use endpoint;

pub(super) fn body<T: ToSchema>() -> Option<(Schema, bool)> {
    Some((schema::<T>, false))
}

fn optional<T: ToSchema>() -> Option<(Schema, bool)> {
    Some((schema::<T>, true))
}

pub(super) fn one<T: ToSchema>() -> Shape {
    Shape::One(schema::<T>)
}

pub(super) fn items<T: ToSchema>() -> Shape {
    Shape::Items(schema::<T>)
}

pub(super) fn pages<T: ToSchema>() -> Shape {
    Shape::Pages(schema::<T>)
}

pub(super) fn tables<T: ToSchema>() -> Shape {
    Shape::Tables(schema::<T>)
}

fn lines<T: ToSchema>() -> Shape {
    Shape::Lines(schema::<T>)
}

/// Returns the requested limit of a page; 0 if it is left out.
pub(super) fn limit(arguments: &Arguments) -> Result<u32> {
    match arguments.number::<u32>("limit")? {
        Some(limit) if limit == 0 || limit > PAGE_ITEMS_MAX => {
            Err(Error::invalid(format!("the parameter limit is from 1 to {PAGE_ITEMS_MAX}, not {limit}")))
        }
        limit => Ok(limit.unwrap_or(0)),
    }
}

fn guid(arguments: &Arguments) -> Result<Guid> {
    arguments.name()
}

/// Reads the number of a request.
fn request(text: &str) -> Result<u64> {
    text.parse().map_err(|_| Error::invalid(format!("not the number of a request: {text:.60?}")))
}

/// Reads the id of a token.
fn token(text: &str) -> Result<TokenId> {
    let bad = || Error::invalid(format!("not the id of a token, 16 hex digits: {text:.60?}"));
    if text.len() != 16 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(bad());
    }
    Ok(TokenId(u64::from_str_radix(text, 16).map_err(|_| bad())?))
}

/// Returns the place in the history that a request starts after.
pub(super) fn position(text: Option<&str>) -> Result<LogPosition> {
    text.unwrap_or("0").parse()
}

/// Returns the endpoints of the catalogue and the server.
pub(super) fn catalogue_endpoints() -> Vec<Endpoint> {
    let mut all = entries();
    all.extend(files());
    all.extend(sets());
    all.extend(registry());
    all.extend(service());
    all
}

fn entries() -> Vec<Endpoint> {
    vec![
        endpoint!("GET" "/entries/{lfn}" getEntry "Returns an entry. Its ETag is its revision.",
            &[FOLLOW, AT], None, one::<json::EntryOut<'_>>(),
            |arguments| Ok(Operation::Stat { lfns: vec![arguments.lfn()?], follow: arguments.flag("follow")? })),
        endpoint!("PATCH" "/entries/{lfn}" setAttributes "Sets attributes of an entry.",
        &[], body::<requests::AttributesIn>(), one::<json::DoneOut<'_>>(),
        |arguments| {
            let attributes = arguments.json::<requests::AttributesIn>()?.attributes()?;
            Ok(Operation::SetAttributes { lfns: vec![arguments.lfn()?], attributes })
        }),
        endpoint!("DELETE" "/entries/{lfn}" removeEntry "Moves an entry to the trash.",
        &[
            parameter("recursive", "boolean", "Remove a directory with everything below it."),
            parameter("directory", "boolean", "Require a directory."),
        ],
        None, one::<json::RemovedOut<'_>>(),
        |arguments| Ok(Operation::Remove {
            lfn: arguments.lfn()?,
            recursive: arguments.flag("recursive")?,
            directory: arguments.flag("directory")?,
        })),
        endpoint!("POST" "/entries" getEntries "Returns the entry of each line. A line: `{\"lfn\": \"…\"}`.",
            &[FOLLOW, AT], body::<requests::LfnIn>(), lines::<json::EntryOut<'_>>(), View::All, Run::Lines(Lines::Stat)),
        endpoint!("GET" "/children/{lfn}" listDirectory
        "Lists the children of a directory, by name; of any other entry, the entry itself.",
        PAGES_AT, None, pages::<json::EntryOut<'_>>(),
        |arguments| Ok(Operation::List {
            lfn: arguments.lfn()?, cursor: arguments.cursor()?, limit: limit(arguments)?
        })),
        endpoint!("POST" "/find" find
            "Finds entries below a directory that satisfy conditions, each directory before its content.",
            PAGES_AT, body::<FindIn>(), pages::<json::EntryOut<'_>>(), View::All, Run::Find),
        endpoint!("GET" "/usage/{lfn}" getUsage "Returns the usage of an entry, with everything below it.",
            &[AT], None, one::<json::DuOut<'_>>(),
            |arguments| Ok(Operation::Du { lfns: vec![arguments.lfn()?] })),
        endpoint!("POST" "/usage" getUsages "Returns the usage of each line. A line: `{\"lfn\": \"…\"}`.",
            &[AT], body::<requests::LfnIn>(), lines::<json::DuOut<'_>>(), View::All, Run::Lines(Lines::Usage)),
        endpoint!("PUT" "/directories/{lfn}" makeDirectory "Makes a directory.",
        &[
            parameter("parents", "boolean", "Make missing parents, and accept an existing directory."),
            parameter("mode", "string", "Octal permissions; 755 if left out."),
        ],
        None, one::<json::DoneOut<'_>>(),
        |arguments| Ok(Operation::Mkdir {
            lfns: vec![arguments.lfn()?],
            parents: arguments.flag("parents")?,
            mode: arguments.parsed::<Mode>("mode")?,
        })),
        endpoint!("PUT" "/links/{lfn}" makeLink "Makes a link.",
        &[], body::<requests::LinkIn>(), one::<json::DoneOut<'_>>(),
        |arguments| Ok(Operation::Link {
            lfn: arguments.lfn()?, target: arguments.json::<requests::LinkIn>()?.target.0
        })),
        endpoint!("POST" "/move" move
        "Moves or renames an entry, in one change. An existing destination is refused.",
        &[], body::<requests::MoveIn>(), one::<json::MovedOut<'_>>(),
        |arguments| {
            let requests::MoveIn { from, to } = arguments.json()?;
            Ok(Operation::Move { from: from.0, to: to.0 })
        }),
        endpoint!("GET" "/tags/{lfn}" getTags "Returns the tags in force on an entry.",
            &[parameter("own", "boolean", "Leave out inherited tags.")],
            None, items::<json::TagOut<'_>>(),
            |arguments| Ok(Operation::TagGet { lfns: vec![arguments.lfn()?], own: arguments.flag("own")? })),
        endpoint!("PATCH" "/tags/{lfn}" setTags "Sets and removes tags of an entry.",
        &[], body::<requests::TagEditsIn>(), one::<json::DoneOut<'_>>(),
        |arguments| {
            let (set, unset) = arguments.json::<requests::TagEditsIn>()?.edits()?;
            Ok(Operation::TagSet { lfns: vec![arguments.lfn()?], set, unset })
        }),
        endpoint!("GET" "/log/{lfn}" getLog
        "Returns the history of the entry at a path, or of the last one there, oldest first.",
        PAGES, None, pages::<json::ChangeOut>(),
        |arguments| Ok(Operation::Log {
            lfn: arguments.lfn()?, cursor: arguments.cursor()?, limit: limit(arguments)?
        })),
    ]
}

fn files() -> Vec<Endpoint> {
    vec![
        endpoint!("PUT" "/files/{lfn}" registerFile
        "Registers a file. `If-None-Match: *` refuses one that exists.",
        &[PARENTS, EXISTING], body::<NewFileIn>(), one::<json::RegisteredOut<'_>>(),
        |arguments| {
            let file = arguments.json::<NewFileIn>()?.file(Some(arguments.lfn()?))?;
            let existing = requests::existing(arguments.given("existing")?.unwrap_or("refuse"))?;
            Ok(Operation::Register { files: vec![file], parents: arguments.flag("parents")?, existing })
        }),
        endpoint!("POST" "/files" registerFiles
            "Registers the file of each line. Each line has a result of its own.",
            &[PARENTS, EXISTING], body::<NewFileIn>(), lines::<json::RegisteredOut<'_>>(), View::All,
            Run::Lines(Lines::Register)),
        endpoint!("GET" "/replicas/{lfn}" locateFile "Returns the replicas of a file, best first.",
        &[SITE, AT], None, one::<json::WhereisOut<'_>>(),
        |arguments| Ok(Operation::Whereis {
            files: vec![FileRef::Lfn(arguments.lfn()?)], site: arguments.parsed("site")?
        })),
        endpoint!("POST" "/replicas" locateFiles
            "Returns the replicas of the file of each line. A line: `{\"lfn\": \"…\"}` or `{\"guid\": \"…\"}`.",
            &[SITE, AT], body::<requests::FileIn>(), lines::<json::WhereisOut<'_>>(), View::All,
            Run::Lines(Lines::Whereis)),
        endpoint!("PATCH" "/replicas/{lfn}" setReplicas "Changes the replicas of a file, in one change.",
        &[], body::<ReplicaEditsIn>(), one::<json::DoneOut<'_>>(),
        |arguments| {
            let edits = arguments.json::<ReplicaEditsIn>()?.edits(Some(arguments.lfn()?))?;
            Ok(Operation::SetReplicas { edits: vec![edits] })
        }),
        endpoint!("PATCH" "/replicas" setReplicasOfFiles "Changes the replicas of the file of each line.",
            &[], body::<ReplicaEditsIn>(), lines::<json::DoneOut<'_>>(), View::All, Run::Lines(Lines::Replicas)),
        endpoint!("POST" "/names" findNames "Returns the LFN of each line. A line: `{\"guid\": \"…\"}`.",
            &[], body::<requests::GuidIn>(), lines::<json::LfnOut<'_>>(), View::All, Run::Lines(Lines::Names)),
        endpoint!("GET" "/uploads" listUploads
            "Lists upload reservations: the caller's own, for an operator all.",
            PAGES, None, pages::<json::UploadOut<'_>>(),
            |arguments| Ok(Operation::UploadList { cursor: arguments.cursor()?, limit: limit(arguments)? })),
        endpoint!("POST" "/uploads" reserveUpload "Reserves an upload, and chooses the places to write to.",
            &[], body::<requests::UploadIn>(), one::<json::UploadOut<'_>>(),
            |arguments| arguments.json::<requests::UploadIn>()?.operation()),
        endpoint!("POST" "/uploads/{guid}/commit" commitUpload "Makes a written replica visible.",
            &[], body::<requests::CommitIn>(), one::<json::DoneOut<'_>>(),
            |arguments| arguments.json::<requests::CommitIn>()?.operation(guid(arguments)?)),
        endpoint!("DELETE" "/uploads/{guid}" releaseUpload
            "Releases an upload reservation, or one replica of it.",
            &[parameter("se", "string", "Release only the replica on this storage element.")],
            None, one::<json::DoneOut<'_>>(),
            |arguments| Ok(Operation::UploadAbort { guid: guid(arguments)?, se: arguments.parsed("se")? })),
    ]
}

fn sets() -> Vec<Endpoint> {
    vec![
        endpoint!("PUT" "/collections/{lfn}" makeCollection "Makes a collection.",
        &[], optional::<requests::CollectionIn>(), one::<json::DoneOut<'_>>(),
        |arguments| {
            let tags = arguments.json_or_default::<requests::CollectionIn>()?.tags;
            Ok(Operation::CollectionCreate { lfn: arguments.lfn()?, tags: requests::tags_of(tags)? })
        }),
        endpoint!("PATCH" "/collections/{lfn}" editCollection "Adds files to a collection, and removes files.",
        &[], body::<requests::CollectionEditsIn>(), one::<json::EditedOut<'_>>(),
        |arguments| {
            let (add, remove) = arguments.json::<requests::CollectionEditsIn>()?.edits()?;
            Ok(Operation::CollectionEdit { lfn: arguments.lfn()?, add, remove })
        }),
        endpoint!("GET" "/collections/{lfn}" listCollection "Lists the members of a collection.",
        PAGES, None, pages::<json::MemberOut<'_>>(),
        |arguments| Ok(Operation::CollectionMembers {
            lfn: arguments.lfn()?, cursor: arguments.cursor()?, limit: limit(arguments)?
        })),
        endpoint!("GET" "/archives/{lfn}" listArchive "Lists the members of an archive that are registered.",
        &[parameter("under", "string", "Search below this directory; the root if left out."), LIMIT, CURSOR],
        None, pages::<json::EntryOut<'_>>(),
        |arguments| Ok(Operation::ArchiveMembers {
            archive: FileRef::Lfn(arguments.lfn()?),
            under: arguments.parsed("under")?.unwrap_or_else(Lfn::root),
            cursor: arguments.cursor()?,
            limit: limit(arguments)?,
        })),
        endpoint!("GET" "/trash" listTrash "Lists the trash: the caller's own items, for an operator all.",
            PAGES, None, pages::<json::TrashOut>(),
            |arguments| Ok(Operation::TrashList { cursor: arguments.cursor()?, limit: limit(arguments)? })),
        endpoint!("GET" "/trash-inside" listTrashInside
            "Lists the caller's entries inside directories that others removed.",
            PAGES, None, pages::<json::TrashOut>(),
            |arguments| Ok(Operation::TrashParts { cursor: arguments.cursor()?, limit: limit(arguments)? })),
        endpoint!("POST" "/trash/{id}/restore" restoreTrash
        "Restores an item from the trash, or an entry inside a removed directory.",
        &[], optional::<requests::RestoreIn>(), one::<json::RestoredOut<'_>>(),
        |arguments| {
            let requests::RestoreIn { lfn, to } = arguments.json_or_default()?;
            let (id, to) = (arguments.name::<OnTimeline<TrashId>>()?, to.map(|to| to.0));
            Ok(match lfn {
                None => Operation::TrashRestore { id, to },
                Some(lfn) => Operation::TrashRestorePart { id, lfn: lfn.0, to },
            })
        }),
        endpoint!("DELETE" "/trash/{id}" purgeTrash "Purges an item of the trash for good.",
            &[], None, one::<json::PurgedOut<'_>>(),
            |arguments| Ok(Operation::TrashPurge { id: arguments.name()?, cursor: Cursor::default() })),
    ]
}

fn registry() -> Vec<Endpoint> {
    vec![
        endpoint!("GET" "/ses" listStorageElements "Lists all storage elements, with their usage.",
            &[], None, items::<json::SeOut>(), |_| Ok(Operation::SeList)),
        endpoint!("PUT" "/ses/{name}" setStorageElement "Adds or changes a storage element.",
        &[], body::<requests::SeIn>(), one::<json::DoneOut<'_>>(),
        |arguments| {
            Ok(Operation::SeSet(arguments.json::<requests::SeIn>()?.settings(arguments.name::<SeName>()?)?))
        }),
        endpoint!("DELETE" "/ses/{name}" dropStorageElement "Drops a storage element; it must hold nothing.",
            &[], None, one::<json::DoneOut<'_>>(),
            |arguments| Ok(Operation::SeDrop { name: arguments.name()? })),
        endpoint!("GET" "/ses/{name}/files" listStorageElementFiles
        "Lists files with a replica on a storage element.",
        PAGES, None, pages::<json::EntryOut<'_>>(),
        |arguments| Ok(Operation::SeFiles {
            name: arguments.name()?, cursor: arguments.cursor()?, limit: limit(arguments)?
        })),
        endpoint!("GET" "/ses/{name}/deletions" listDeletions
        "Lists physical copies that a storage element is to delete.",
        PAGES, None, pages::<json::DeletionOut<'_>>(),
        |arguments| Ok(Operation::SeDeletions {
            name: arguments.name()?, cursor: arguments.cursor()?, limit: limit(arguments)?
        })),
        endpoint!("POST" "/ses/{name}/deleted" reportDeletions "Reports completed deletions.",
        &[], body::<requests::DeletedIn>(), one::<json::DoneOut<'_>>(),
        |arguments| {
            let done = arguments.json::<requests::DeletedIn>()?.ids();
            Ok(Operation::SeDeleted { name: arguments.name()?, done })
        }),
        endpoint!("GET" "/users" listUsers "Lists all users.",
            &[], None, items::<json::UserOut<'_>>(), View::Users, Run::Operation(|_| Ok(Operation::AccountList))),
        endpoint!("PUT" "/users/{name}" setUser "Adds or changes a user.",
        &[], body::<requests::UserIn>(), one::<json::DoneOut<'_>>(),
        |arguments| {
            let settings = arguments.json::<requests::UserIn>()?.settings(arguments.name()?);
            Ok(Operation::UserSet(Box::new(settings)))
        }),
        endpoint!("DELETE" "/users/{name}" dropUser "Drops a user; it must own nothing.",
            &[], None, one::<json::DoneOut<'_>>(),
            |arguments| Ok(Operation::UserDrop { name: arguments.name()? })),
        endpoint!("GET" "/groups" listGroups "Lists all groups.",
            &[], None, items::<json::GroupOut<'_>>(), View::Groups, Run::Operation(|_| Ok(Operation::AccountList))),
        endpoint!("PUT" "/groups/{name}" addGroup "Adds a group.",
            &[], None, one::<json::DoneOut<'_>>(),
            |arguments| Ok(Operation::GroupAdd { name: arguments.name()? })),
        endpoint!("DELETE" "/groups/{name}" dropGroup "Drops a group; it must own nothing and have no users.",
            &[], None, one::<json::DoneOut<'_>>(),
            |arguments| Ok(Operation::GroupDrop { name: arguments.name()? })),
        endpoint!("GET" "/tokens" listTokens "Lists tokens: the caller's own, for an admin all.",
            &[], None, items::<json::TokenOut<'_>>(), |_| Ok(Operation::TokenList)),
        endpoint!("POST" "/tokens" issueToken "Issues a token. Only this answer has its secret.",
            &[], body::<requests::TokenIn>(), one::<json::TokenOut<'_>>(),
            |arguments| Ok(arguments.json::<requests::TokenIn>()?.operation())),
        endpoint!("DELETE" "/tokens/{id}" revokeToken "Revokes a token at once.",
            &[], None, one::<json::DoneOut<'_>>(),
            |arguments| Ok(Operation::TokenRevoke { id: token(arguments.text()?)? })),
        endpoint!("GET" "/quotas" getQuotas "Returns limits and usage.",
        &[parameter("owner", "string",
            "`user:NAME` or `group:NAME`, any number of them; the caller and its groups if left out.")],
        None, items::<json::QuotaOut>(),
        |arguments| {
            Ok(Operation::QuotaGet { owners: arguments.each("owner").map(Owner::parse_text).collect::<Result<_>>()? })
        }),
        endpoint!("PUT" "/quotas/{owner}" setQuota "Sets limits of `user:NAME` or `group:NAME`.",
        &[], body::<requests::QuotaIn>(), one::<json::DoneOut<'_>>(),
        |arguments| {
            let requests::QuotaIn { files, bytes, replica_bytes } = arguments.json()?;
            Ok(Operation::QuotaSet { owner: Owner::parse_text(arguments.text()?)?, files, bytes, replica_bytes })
        }),
        endpoint!("GET" "/whoami" whoami "Returns the client's identity and rights.",
            &[], None, one::<json::WhoamiOut<'_>>(), |_| Ok(Operation::Whoami)),
    ]
}

fn service() -> Vec<Endpoint> {
    vec![
        endpoint!("GET" "/changes" getChanges
            "Returns the history from a revision on. As server-sent events or with `wait` it goes on for ever.",
            &[
                parameter("after", "string", "Start after this revision, `REVISION` or `REVISION.TIMELINE`."),
                parameter("under", "string", "Only changes of entries that are below this directory now."),
                parameter("kinds", "string", "Only these kinds of change, with commas between. A page may be empty."),
                parameter("wait", "boolean", "At the end wait for further changes, for ever if streamed."),
                LIMIT,
            ],
            None, Shape::Pages(schema::<json::ChangeOut>), View::All, Run::Changes),
        endpoint!("GET" "/position" getPosition
            "Returns the place after the last change, and checks that `after` belongs to this history.",
            &[parameter("after", "string", "The place to check.")],
            None, Shape::One(schema::<json::PositionOut>), View::Position, Run::Operation(
            |arguments| Ok(Operation::Position { after: position(arguments.given("after")?)? }))),
        endpoint!("GET" "/status" getStatus "Returns metrics of the service, for an operator.",
            &[], None, items::<json::StatusOut<'_>>(), |_| Ok(Operation::Status)),
        endpoint!("GET" "/requests" listRequests
            "Lists the requests that this server works on, the oldest first, for an operator.",
            &[], None, items::<json::RequestOut<'_>>(), |_| Ok(Operation::Sessions)),
        endpoint!("DELETE" "/requests/{id}" cancelRequest
            "Cancels a request that this server works on; a change that was begun goes on to its end.",
            &[], None, one::<json::DoneOut<'_>>(), |arguments| Ok(Operation::SessionKill { id: request(arguments.text()?)? })),
        endpoint!("GET" "/slow-requests" listSlowRequests
            "Lists requests of this server that took long, the last first, for an operator.",
            &[], None, items::<json::RequestOut<'_>>(), |_| Ok(Operation::SlowRequests)),
        endpoint!("GET" "/throttles" listThrottles "Lists the throttles of this server, for an operator.",
            &[], None, items::<json::ThrottleOut>(), |_| Ok(Operation::ThrottleList)),
        endpoint!("PUT" "/throttles/{owner}" setThrottle
        "Limits the items a second of `user:NAME`, `group:NAME` or `everybody` on this server, until it ends.",
        &[], body::<requests::ThrottleIn>(), one::<json::DoneOut<'_>>(),
        |arguments| {
            let requests::ThrottleIn { items_per_second } = arguments.json()?;
            let owner = throttled(arguments.text()?)?;
            Ok(Operation::ThrottleSet { owner, items_per_second: Some(items_per_second) })
        }),
        endpoint!("DELETE" "/throttles/{owner}" endThrottle "Ends a throttle of this server.",
            &[], None, one::<json::DoneOut<'_>>(),
            |arguments| Ok(Operation::ThrottleSet { owner: throttled(arguments.text()?)?, items_per_second: None })),
        endpoint!("PUT" "/drain" drainServer
            "Drains this server: it refuses new requests of clients, except for the end of the drain.",
            &[], None, one::<json::DoneOut<'_>>(), |_| Ok(Operation::Drain { resume: false })),
        endpoint!("DELETE" "/drain" resumeServer "Lets this server accept requests again.",
            &[], None, one::<json::DoneOut<'_>>(), |_| Ok(Operation::Drain { resume: true })),
        endpoint!("GET" "/activity" getActivity
        "Returns where the time of this server went, between two moments or in equal parts, for an operator.",
        &[
            parameter("from", "string", "Beginning; without it, `seconds` before the end."),
            parameter("to", "string", "End; without it, now."),
            parameter("seconds", "integer", "Length without `from`, 3600 by default."),
            parameter("parts", "integer", "Number of equal parts, from 1 to 240; 1 by default."),
        ],
        None, items::<json::PeriodOut<'_>>(), |arguments| Ok(Operation::Activity {
            from: arguments.parsed("from")?,
            to: arguments.parsed("to")?,
            seconds: arguments.number("seconds")?.unwrap_or(ACTIVITY_SECONDS),
            parts: arguments.number("parts")?.unwrap_or(1),
        })),
        endpoint!("POST" "/fsck" checkCatalogue "Recomputes every counter and index, and compares.",
            &[], None, one::<json::AuditOut<'_>>(), |_| Ok(Operation::Fsck)),
        endpoint!("POST" "/clock/confirm" confirmClock
            "Accepts the machine's clock although it is ahead of the trusted time.",
            &[], None, one::<json::DoneOut<'_>>(), |_| Ok(Operation::ClockConfirm)),
        endpoint!("GET" "/snapshots" listSnapshots "Lists all snapshots.",
            &[], None, items::<json::SnapshotOut<'_>>(), |_| Ok(Operation::SnapshotList)),
        endpoint!("PUT" "/snapshots/{name}" takeSnapshot "Keeps the present catalogue under a name.",
            &[], None, one::<json::SnapshotOut<'_>>(),
            |arguments| Ok(Operation::SnapshotCreate { name: arguments.name()? })),
        endpoint!("DELETE" "/snapshots/{name}" dropSnapshot "Drops a snapshot.",
            &[], None, one::<json::DoneOut<'_>>(),
            |arguments| Ok(Operation::SnapshotDrop { name: arguments.name()? })),
        endpoint!("POST" "/snapshots/{name}/verify" verifySnapshot "Reads the whole of a snapshot, and checks it.",
            &[], None, one::<json::SnapshotCheckOut<'_>>(),
            |arguments| Ok(Operation::SnapshotVerify { name: arguments.name()? })),
        endpoint!("GET" "/snapshots/{name}/differences" compareSnapshot
        "Lists the differences between the entries of a snapshot and of a later state.",
        &[
            parameter("against", "string", "The later snapshot; the catalogue of now if left out."),
            LIMIT,
            CURSOR,
        ],
        None, pages::<json::DifferenceOut<'_>>(),
        |arguments| Ok(Operation::SnapshotDiff {
            before: arguments.name::<SnapshotName>()?,
            after: arguments.parsed("against")?,
            cursor: arguments.cursor()?,
            limit: limit(arguments)?,
        })),
        endpoint!("POST" "/backups" makeBackup "Copies the present catalogue to a directory of backups.",
        &[], body::<requests::BackupIn>(), one::<json::BackupOut<'_>>(),
        |arguments| {
            let requests::BackupIn { directory } = arguments.json()?;
            Ok(Operation::Backup { directory, cursor: Cursor::default() })
        }),
        endpoint!("GET" "/operation-id" newOperationId
            "Returns a new operation id, for the header `Idempotency-Key`.",
            &[], None, one::<json::NewIdOut>(), View::All, Run::NewId),
        endpoint!("GET" "/openapi.json" getDocument "Returns the OpenAPI document.",
            &[], None, Shape::Free, View::All, Run::Document),
    ]
}
