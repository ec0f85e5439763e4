//! The page of JSON objects: those that each command prints, and those of the REST API.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::LazyLock;

use exacat_model::{Error, ErrorKind, Result};
use exacat_wire::json;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{cell, for_each_command, paragraph, whole};
use crate::commands::{
    attributes, by_se, compare, copy, cp, digest, elements, exchange, fsck, issuer, moving, promote, replay,
    schema, serve, snapshots, top, trash, writer,
};
use crate::failure::Reported;

/// Beginning of the page.
const INTRODUCTION: &str = include_str!("json-introduction.md");

/// Examples of the objects that only commands print, by their name.
static EXAMPLES: LazyLock<Map<String, Value>> =
    LazyLock::new(|| serde_json::from_str(include_str!("json-examples.json")).unwrap_or_default());

/// Schemas by name.
type Schemas = Map<String, Value>;
/// Adds the schemas of a type, and returns its name.
type Object = fn(&mut Schemas) -> String;
/// Objects of commands, each with the condition under which they print it.
type Printed = &'static [(&'static str, Object)];

const DONE: Printed = &[("", object::<json::DoneOut<'_>>)];
const ENTRY: Printed = &[("", object::<json::EntryOut<'_>>)];
const STATUS: Printed = &[("", object::<json::StatusOut<'_>>)];

/// Objects of each command.
const COMMANDS: [(&[&str], Printed); 89] = [
    (&["ls", "stat", "archive ls", "se files"], ENTRY),
    (
        &["find", "tag find"],
        &[("", object::<json::EntryOut<'_>>), ("with `--count`", object::<json::UsageOut>)],
    ),
    (&["whereis"], &[("", object::<json::WhereisOut<'_>>)]),
    (&["lfn"], &[("", object::<json::LfnOut<'_>>)]),
    (
        &["du"],
        &[
            ("", object::<json::DuOut<'_>>),
            ("with `--by-se`, for each storage element", object::<by_se::SeUsageView<'_>>),
        ],
    ),
    (
        &["cp"],
        &[
            ("to this machine", object::<cp::DownloadView<'_>>),
            ("from this machine", object::<cp::UploadView<'_>>),
        ],
    ),
    (&["mkdir", "ln", "touch"], DONE),
    (&["mv"], &[("", object::<json::MovedOut<'_>>)]),
    (
        &["rm"],
        &[("", object::<json::RemovedOut<'_>>), ("with `--dry-run`", object::<moving::WouldRemoveView<'_>>)],
    ),
    (&["rmdir"], &[("", object::<json::RemovedOut<'_>>)]),
    (&["chmod", "chown", "chgrp", "expire"], &[("", object::<attributes::SetView>)]),
    (&["register"], &[("", object::<json::RegisteredOut<'_>>)]),
    (&["replica add", "replica rm", "replica state"], DONE),
    (&["upload reserve", "upload ls"], &[("", object::<json::UploadOut<'_>>)]),
    (&["upload commit", "upload abort"], DONE),
    (&["tag get"], &[("", object::<json::TagOut<'_>>)]),
    (&["tag set", "tag rm", "collection create"], DONE),
    (&["collection ls"], &[("", object::<json::MemberOut<'_>>)]),
    (&["collection add", "collection rm"], &[("", object::<json::EditedOut<'_>>)]),
    (&["trash ls"], &[("", object::<json::TrashOut>)]),
    (&["trash restore"], &[("", object::<json::RestoredOut<'_>>)]),
    (
        &["trash purge"],
        &[("", object::<json::PurgedOut<'_>>), ("with `--dry-run`", object::<trash::WouldPurgeView<'_>>)],
    ),
    (&["log", "changes"], &[("", object::<json::ChangeOut>)]),
    (&["se ls", "se usage"], &[("", object::<json::SeOut>)]),
    (&["se add", "se set", "se rm"], DONE),
    (&["se deletions"], &[("", object::<json::DeletionOut<'_>>)]),
    (
        &["se deleted"],
        &[("", object::<json::DoneOut<'_>>), ("with `--dry-run`", object::<json::DeletionOut<'_>>)],
    ),
    (&["se compare"], &[("", object::<compare::CompareView<'_>>)]),
    (&["quota get"], &[("", object::<json::QuotaOut>)]),
    (&["quota set"], DONE),
    (&["user ls"], &[("", object::<json::UserOut<'_>>)]),
    (&["user add", "user set", "user rm"], DONE),
    (&["group ls"], &[("", object::<json::GroupOut<'_>>)]),
    (&["group add", "group rm"], DONE),
    (&["token issue", "token ls"], &[("", object::<json::TokenOut<'_>>)]),
    (&["token revoke"], DONE),
    (&["issuer ls"], &[("", object::<issuer::IssuerView<'_>>)]),
    (&["issuer add", "issuer rm"], DONE),
    (&["whoami"], &[("", object::<json::WhoamiOut<'_>>)]),
    (
        &["import"],
        &[
            ("", object::<exchange::views::ImportView<'_>>),
            ("with `--dry-run`", object::<exchange::views::ExaminedView<'_>>),
        ],
    ),
    (&["verify"], &[("", object::<exchange::views::VerifyView<'_>>)]),
    (
        &["export"],
        &[
            ("with `-o`", object::<exchange::views::ExportView<'_>>),
            ("with `--format parquet`", object::<exchange::tables::TablesView<'_>>),
            ("with `--check`", object::<exchange::tables::CheckedView<'_>>),
        ],
    ),
    (
        &["digest"],
        &[
            ("for each directory shown", object::<digest::SubtreeView<'_>>),
            ("with `--against`, for each difference", object::<digest::DifferenceView<'_>>),
        ],
    ),
    (&["generate"], &[("", object::<exchange::views::GeneratedView<'_>>)]),
    (
        &["fsck"],
        &[
            ("", object::<json::AuditOut<'_>>),
            ("with `--offline`", object::<fsck::InspectionView<'_>>),
            ("with `--offline --repair`", object::<fsck::RepairedView<'_>>),
        ],
    ),
    (&["status", "clock show", "clock confirm"], STATUS),
    (&["sessions", "slow"], &[("", object::<json::RequestOut<'_>>)]),
    (&["sessions kill", "throttle set", "throttle clear", "drain"], DONE),
    (&["feed create", "feed pause", "feed resume", "feed rewind", "feed drop"], DONE),
    (&["feed ls", "feed show"], &[("", object::<json::FeedOut<'_>>)]),
    (&["throttle ls"], &[("", object::<json::ThrottleOut>)]),
    (
        &["history ls"],
        &[
            ("without a group", object::<json::ElementGroupOut<'_>>),
            ("with a group", object::<json::ElementOut<'_>>),
        ],
    ),
    (&["history stat"], &[("", object::<json::ElementGroupOut<'_>>)]),
    (&["history latest", "history at"], &[("", object::<json::ElementStateOut<'_>>)]),
    (
        &["history get"],
        &[
            ("", object::<json::ElementRowOut<'_>>),
            ("with `--every`", object::<json::ElementAggregateOut<'_>>),
        ],
    ),
    (&["history set", "history rm"], DONE),
    (&["history import"], &[("", object::<elements::import::ImportedView<'_>>)]),
    (&["history adopt"], &[("", object::<elements::adopt::AdoptedView<'_>>)]),
    (&["report"], &[("", object::<json::PeriodOut<'_>>)]),
    (&["top"], &[("", object::<top::ReadingOut<'_>>)]),
    (&["snapshot create", "snapshot ls"], &[("", object::<json::SnapshotOut<'_>>)]),
    (&["snapshot diff", "diff"], &[("", object::<json::DifferenceOut<'_>>)]),
    (&["snapshot drop"], &[("", object::<snapshots::DroppedView<'_>>)]),
    (&["snapshot verify"], &[("", object::<json::SnapshotCheckOut<'_>>)]),
    (&["clone"], &[("", object::<snapshots::CloneView<'_>>)]),
    (&["restore"], &[("", object::<snapshots::RestoredView>)]),
    (
        &["backup"],
        &[
            ("", object::<json::BackupOut<'_>>),
            ("with `--ls`", object::<snapshots::BackupView<'_>>),
            ("with `--verify`", object::<snapshots::VerifiedView<'_>>),
        ],
    ),
    (&["serve", "follow"], &[("once it is ready", object::<serve::AddressesView>)]),
    (&["promote"], &[("", object::<promote::PromotedView>)]),
    (&["replay import", "replay generate"], &[("", object::<replay::MadeTraceView>)]),
    (&["replay show"], &[("", object::<exacat_replay::summary::Summary>)]),
    (&["replay serve"], &[("once it is ready", object::<replay::ReplayView>)]),
    (&["replay origin"], &[("once it is ready", object::<replay::OriginView>)]),
    (&["replay agent"], &[("", object::<replay::AgentView>)]),
    (
        &["replay cinfo"],
        &[
            ("", object::<exacat_replay::both_sides::cinfo::CinfoSums>),
            ("with `--files`", object::<replay::CachedFileView>),
        ],
    ),
    (
        &[
            "replay run create",
            "replay run ls",
            "replay run show",
            "replay run start",
            "replay run pause",
            "replay run resume",
            "replay run stop",
            "replay run wait",
        ],
        &[("", object::<exacat_replay_service::service::ReplayRunView>)],
    ),
    (
        &["replay report"],
        &[
            ("", object::<exacat_replay::report::shapes::Report>),
            ("with `--compare`", object::<exacat_replay::report::shapes::Comparison>),
        ],
    ),
    (&["writer serve"], &[("once it is ready", object::<writer::WriterView>)]),
    (
        &["writer status", "writer drain", "writer resume"],
        &[("", object::<exacat_writer_service::shapes::WriterStatus>)],
    ),
    (&["writer table"], &[("", object::<exacat_writer_service::shapes::WriterService>)]),
    (&["writer merge"], &[("", object::<writer::MergedView>)]),
    (&["writer files", "writer rm"], &[("", object::<exacat_writer_service::shapes::WriterFile>)]),
    (&["writer stage-out"], &[("for each file", object::<writer::StagedOutView>)]),
    (&["writer put"], &[("", object::<writer::WrittenView>)]),
    (&["writer produce"], &[("", object::<writer::ProducedView>)]),
    (&["writer fsck"], &[("for each volume", object::<writer::CheckedVolumeView>)]),
    (&["writer adopt"], &[("", object::<writer::AdoptedView>)]),
    (&["copy"], &[("", object::<copy::CopyView>)]),
    (&["schema create", "schema check", "schema upgrade"], &[("", object::<schema::SchemaView<'_>>)]),
];

/// Commands without objects: the output of the first is for people, or is a line of figures.
const WITHOUT_OBJECTS: [&str; 3] = ["bench", "completions", "writer cat"];

/// Adds the schemas of `T`.
fn object<T: ToSchema>(schemas: &mut Schemas) -> String {
    let name = T::name().into_owned();
    let mut all = Vec::new();
    T::schemas(&mut all);
    all.push((name.clone(), T::schema()));
    for (name, schema) in all {
        // The document of the REST API has its own with an example.
        schemas.entry(name).or_insert_with(|| serde_json::to_value(schema).unwrap_or_default());
    }
    name
}

fn defect(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Internal, format!("internal error: the page of JSON objects: {what}"))
}

/// Returns the page.
pub(super) fn page() -> Result<String> {
    let mut document: Value =
        serde_json::from_str(&exacat_server::reference::api_document()).map_err(defect)?;
    let Value::Object(mut schemas) = document["components"]["schemas"].take() else {
        return Err(defect("the document of the REST API has no schemas"));
    };
    let mut page = INTRODUCTION.to_owned();
    let mut printed = BTreeSet::from([object::<Reported<'_>>(&mut schemas)]);
    let mut without = BTreeSet::new();
    for_each_command(&whole(), "", &mut |words, _| {
        without.insert(words.trim().to_owned());
    });
    page.push_str("\n## Commands\n\n| command | object |\n|---|---|\n");
    for (commands, objects) in COMMANDS {
        let mut names = Vec::new();
        for command in commands {
            if !without.remove(*command) {
                return Err(defect(format_args!("there is no command {command}, or it is listed twice")));
            }
            names.push(format!("`{command}`"));
        }
        let mut cells = Vec::new();
        for (when, object) in objects {
            let name = object(&mut schemas);
            let link = link(&name);
            cells.push(if when.is_empty() { link } else { format!("{when}: {link}") });
            printed.insert(name);
        }
        let _ = writeln!(page, "| {} | {} |", names.join(", "), cells.join("; "));
    }
    if without.iter().ne(&WITHOUT_OBJECTS) {
        return Err(defect(format_args!("commands without an object: {without:?}")));
    }
    page.push_str("\n## Objects\n");
    for name in schemas.keys() {
        describe(&mut page, name, &schemas);
        let Some(schema) = schemas.get(name).filter(|_| printed.contains(name)) else { continue };
        let example = EXAMPLES.get(name).or_else(|| schema["examples"].get(0));
        let example = example.ok_or_else(|| defect(format_args!("{name} has no example")))?;
        check(name, example, &schemas)?;
        let _ = write!(page, "\n```json\n{example:#}\n```\n");
    }
    Ok(page)
}

fn link(name: &str) -> String {
    format!("[{name}](#{})", name.to_lowercase())
}

/// Appends the description of an object.
fn describe(page: &mut String, name: &str, schemas: &Schemas) {
    let _ = write!(page, "\n### {name}\n");
    let Some(schema) = schemas.get(name) else { return };
    if let Some(about) = schema["description"].as_str() {
        let _ = write!(page, "\n{}\n", paragraph(about));
    }
    let fields = fields_of(schema, schemas);
    if fields.is_empty() {
        let _ = write!(page, "\n{}\n", paragraph(&format!("Type: {}.", type_of(schema))));
        return;
    }
    page.push_str("\n| field | type | present | meaning |\n|---|---|---|---|\n");
    for Field { name, schema, always } in fields {
        let presence = if always { "always" } else { "" };
        let mut of = type_of(schema);
        if always && is_nullable(schema) {
            of.push_str(" or null");
        }
        let _ = writeln!(page, "| `{name}` | {of} | {presence} | {} |", cell(meaning_of(schema)));
    }
}

/// Field of an object.
struct Field<'a> {
    name: &'a str,
    schema: &'a Value,
    always: bool,
}

/// Returns the fields of an object, with those of objects that it includes.
fn fields_of<'a>(schema: &'a Value, schemas: &'a Schemas) -> Vec<Field<'a>> {
    if let Some(parts) = schema["allOf"].as_array() {
        return parts.iter().flat_map(|part| fields_of(part, schemas)).collect();
    }
    if let Some(named) = schema["$ref"].as_str().and_then(|name| schemas.get(last_word(name))) {
        return fields_of(named, schemas);
    }
    // Fields of an object that may be left out as a whole.
    let choices = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array());
    if let Some(named) = choices.into_iter().flatten().find(|choice| choice["$ref"].is_string()) {
        return fields_of(named, schemas).into_iter().map(|field| Field { always: false, ..field }).collect();
    }
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let fields = schema["properties"].as_object().into_iter().flatten();
    fields.map(|(name, schema)| Field { name, schema, always: required.contains(&name.as_str()) }).collect()
}

/// Checks that an example has the fields of its object.
fn check(name: &str, example: &Value, schemas: &Schemas) -> Result<()> {
    let fields = schemas.get(name).map(|schema| fields_of(schema, schemas)).unwrap_or_default();
    let given = example.as_object().ok_or_else(|| defect(format_args!("the example of {name}")))?;
    let unknown = given.keys().find(|given| !fields.iter().any(|field| field.name == *given));
    let missing = fields.iter().find(|field| field.always && !given.contains_key(field.name));
    match unknown.map(String::as_str).or(missing.map(|field| field.name)) {
        Some(field) => Err(defect(format_args!("the example of {name} and its field {field}"))),
        None => Ok(()),
    }
}

fn last_word(reference: &str) -> &str {
    reference.rsplit('/').next().unwrap_or_default()
}

fn is_nullable(schema: &Value) -> bool {
    let types = schema["type"].as_array().into_iter().flatten();
    let choices = schema["oneOf"].as_array().into_iter().flatten().map(|choice| &choice["type"]);
    types.chain(choices).any(|name| name == "null")
}

/// Returns the description of a field. The one of an object that may be left out stands beside its
/// reference.
fn meaning_of(schema: &Value) -> &str {
    let choices = schema["oneOf"].as_array().into_iter().flatten();
    std::iter::once(schema)
        .chain(choices)
        .find_map(|choice| choice["description"].as_str())
        .unwrap_or_default()
}

/// Returns the name of a schema's type.
fn type_of(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str() {
        return link(last_word(name));
    }
    for key in ["oneOf", "anyOf", "allOf"] {
        if let Some(choices) = schema[key].as_array() {
            let names: Vec<String> = choices.iter().map(type_of).filter(|name| name != "null").collect();
            return names.join(" or ");
        }
    }
    let one = |name: &str| match name {
        "array" => format!("array of {}", type_of(&schema["items"])),
        name => match schema["enum"].as_array() {
            Some(values) => {
                let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
                values.join(", ").replace('"', "")
            }
            None => schema["format"].as_str().map_or(name.to_owned(), |format| format!("{name} ({format})")),
        },
    };
    match &schema["type"] {
        Value::String(name) => one(name),
        Value::Array(names) => {
            let names = names.iter().filter_map(Value::as_str).filter(|name| *name != "null");
            names.map(one).collect::<Vec<_>>().join(" or ")
        }
        _ => "any".to_owned(),
    }
}
