//! The OpenAPI 3.1 document, made from the table of endpoints and the schemas of their types.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use exacat_model::limits::ACTIVITY_PARTS_MAX;
use exacat_model::{Consistency, Error, ErrorKind};
use exacat_wire::json::texts;
use serde_json::{Map, Value, json};

use super::super::answers::{EVENTS, JSON, LINES, PROBLEM, Problem};
use super::endpoints::{AT, Endpoint, Parameter, Run, Shape};
use super::schemas::{Schemas, schema};
use super::table::endpoints;
use super::tables::{ARROW, CSV};
use super::{PAGE_ITEMS_MAX, PREFIX, variables};

/// Statuses of refusals that any request can have: kind of an error with it, and its meaning.
const REFUSALS: [(&str, ErrorKind, &str); 12] = [
    ("400", ErrorKind::Invalid, "Invalid request: nothing was changed."),
    ("401", ErrorKind::Unauthenticated, "No credentials, or invalid ones."),
    ("403", ErrorKind::Denied, "Permission denied, or a scope of the token does not allow it."),
    ("404", ErrorKind::NotFound, "Not found."),
    (
        "409",
        ErrorKind::Conflict,
        "Exists already, is of another kind or not empty, or the operation id was used for another request.",
    ),
    ("412", ErrorKind::Conflict, "The entry is not as `If-Match` or `If-None-Match` demands."),
    ("413", ErrorKind::Limit, "Beyond a limit."),
    ("415", ErrorKind::Invalid, "The body is of another media type."),
    ("429", ErrorKind::Busy, "Busy: send it again after `Retry-After` seconds."),
    (
        "503",
        ErrorKind::Unavailable,
        "Unavailable: nothing was changed; send it again after `Retry-After` seconds.",
    ),
    ("504", ErrorKind::Unknown, "The outcome is unknown: send it again with the same `Idempotency-Key`."),
    ("507", ErrorKind::Quota, "Quota exceeded."),
];

/// Pattern of entity tags.
const TAG: &str = "^\"[0-9]{1,19}(\\.[0-9a-f]{16})?\"$";
/// Pattern of `If-Match`: any tag, or a list of tags as RFC 9110 has them.
const TAGS: &str = "^(\\*|(W/)?\"[!#-+\\--~]*\"( *, *(W/)?\"[!#-+\\--~]*\")*)$";
/// Pattern of places in the history.
const POSITION: &str = "^[0-9]{1,18}(\\.[0-9a-f]{6,32})?$";
/// Pattern of points of past states: positions, and times that every calendar and clock can name.
const PAST: &str = "^([0-9]{1,18}(\\.[0-9a-f]{6,32})?|(19[89][0-9]|[2-8][0-9]{3})-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|\
    2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)(T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?\
    (Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]))?)$";
/// Examples of answers by the name of their schema.
static EXAMPLES: LazyLock<Map<String, Value>> =
    LazyLock::new(|| serde_json::from_str(include_str!("examples.json")).unwrap_or_default());

/// Returns the document.
pub(crate) fn document() -> String {
    let mut schemas = Schemas::new();
    schema::<Problem>(&mut schemas);
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for endpoint in endpoints() {
        let operation = operation(&endpoint, &mut schemas);
        let path = format!("{PREFIX}{}", endpoint.path);
        paths.entry(path).or_default().insert(endpoint.method.to_lowercase(), operation);
    }
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "exacat",
            "version": env!("CARGO_PKG_VERSION"),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "description": "REST API of the exacat file catalogue. An LFN is part of the path: its components are \
                percent-encoded, and `/` stays. The objects are those of `exacat --json`.",
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {}],
        "paths": paths,
        "components": {
            "schemas": components(&schemas),
            "securitySchemes": {"bearer": {
                "type": "http", "scheme": "bearer",
                "description": "A token of this catalogue (`exacat token issue`), or of a configured issuer.",
            }},
            "headers": headers(),
            "parameters": parameters(),
        },
    });
    format!("{document:#}\n")
}

/// Returns the schemas, with the rules and examples that their types cannot carry.
fn components(schemas: &Schemas) -> Value {
    let mut all = serde_json::to_value(schemas).unwrap_or_default();
    for (name, schema) in all.as_object_mut().into_iter().flatten() {
        bound_numbers(schema);
        if let Some(example) = EXAMPLES.get(name) {
            schema["examples"] = json!([example]);
        }
        // An edit has exactly one field; types of several variants cannot say that.
        if name == "ReplicaEdit" {
            let edits = schema["oneOf"].as_array_mut().into_iter().flatten();
            edits.for_each(|edit| edit["additionalProperties"] = json!(false));
        }
        // A file is named in exactly one way.
        if name == "FileRef" {
            let only = |name: &str, other: &str| json!({"required": [name], "properties": {name: {"type": "string"}, other: {"type": "null"}}});
            schema["oneOf"] = json!([only("lfn", "guid"), only("guid", "lfn")]);
        }
    }
    all
}

/// Bounds whole numbers by the range of their type.
fn bound_numbers(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let max = match (fields.get("format").and_then(Value::as_str), fields.contains_key("minimum")) {
                (Some("int64"), true) => Some(json!(u64::MAX)),
                (Some("int32"), true) => Some(json!(u32::MAX)),
                _ => None,
            };
            if let Some(max) = max {
                fields.entry("maximum").or_insert(max);
            }
            fields.values_mut().for_each(bound_numbers);
        }
        Value::Array(items) => items.iter_mut().for_each(bound_numbers),
        _ => {}
    }
}

fn headers() -> Value {
    let text = |about: &str| json!({"description": about, "schema": {"type": "string"}});
    let number = |about: &str| json!({"description": about, "schema": {"type": "integer", "minimum": 0}});
    json!({
        "Exacat-Revision": number("Revision of the catalogue that the answer shows at least."),
        "ETag": {
            "description": "Revision of the entry, with a digest of the answer if it shows more than the entry.",
            "schema": {"type": "string", "pattern": TAG},
        },
        "Link": text("The next page, as `rel=\"next\"`."),
        "Retry-After": number("Seconds to wait."),
        "WWW-Authenticate": text("The accepted scheme, `Bearer`."),
    })
}

fn parameters() -> Value {
    let header = |name: &str, about: &str, schema: Value| json!({"name": name, "in": "header", "description": about, "schema": schema});
    let uuid = "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$";
    json!({
        "Idempotency-Key": header(
            "Idempotency-Key",
            "UUID of version 7: a repeated request with it has one effect. GET /api/v1/operation-id makes one.",
            json!({"type": "string", "format": "uuid", "minLength": 36, "maxLength": 36, "pattern": uuid}),
        ),
        "If-Match": header(
            "If-Match",
            "Change the entry only if it has this ETag. Compared at the commit.",
            json!({"type": "string", "pattern": TAGS, "examples": ["\"2315\""]}),
        ),
        "If-None-Match": header(
            "If-None-Match",
            "The ETag that the client has: the answer has no body while the entry is unchanged.",
            json!({"type": "string", "examples": ["\"2315\""]}),
        ),
        "If-New": header("If-None-Match", "`*` refuses a name that exists.", json!({"const": "*"})),
        "Exacat-At-Least": header(
            "Exacat-At-Least",
            "Wait until the catalogue has this revision, at most 30 s.",
            json!({"type": "string", "pattern": POSITION, "examples": ["0"]}),
        ),
        "Exacat-Act-As": header(
            "Exacat-Act-As",
            "User to act as, if the account may.",
            json!({"type": "string", "pattern": texts::ACCOUNT}),
        ),
        "Exacat-Consistency": header(
            "Exacat-Consistency",
            "Consistency of a read on a cluster.",
            json!({"type": "string", "enum": Consistency::ALL.map(Consistency::name)}),
        ),
        "Last-Event-ID": header(
            "Last-Event-ID",
            "The last server-sent event that the client saw, in place of `after`.",
            json!({"type": "string", "pattern": POSITION}),
        ),
    })
}

fn operation(endpoint: &Endpoint, schemas: &mut Schemas) -> Value {
    let mut parameters: Vec<Value> =
        variables(endpoint.path).map(|name| path_parameter(endpoint, name)).collect();
    parameters.extend(endpoint.query.iter().map(|parameter| {
        let schema = query_schema(parameter);
        json!({"name": parameter.name, "in": "query", "description": parameter.about, "schema": schema})
    }));
    let public = matches!(endpoint.run, Run::Document);
    let mut names = vec!["Exacat-At-Least", "Exacat-Act-As"];
    if endpoint.writes() {
        names.push("Idempotency-Key");
    } else {
        names.push("Exacat-Consistency");
    }
    if endpoint.is_conditional() {
        names.push("If-Match");
    }
    if endpoint.has_tag() {
        names.push("If-None-Match");
    } else if endpoint.is_creation() {
        names.push("If-New");
    }
    if matches!(endpoint.run, Run::Changes) {
        names.push("Last-Event-ID");
    }
    if !public {
        let named = |name: &&str| json!({"$ref": format!("#/components/parameters/{name}")});
        parameters.extend(names.iter().map(named));
    }
    let mut operation = json!({
        "operationId": endpoint.name,
        "summary": endpoint.about,
        "tags": [endpoint.path.split('/').nth(1).unwrap_or_default()],
        "parameters": parameters,
        "responses": responses(endpoint, schemas),
    });
    if public {
        operation["security"] = json!([]);
    }
    if let Some((body, optional)) = endpoint.body {
        let is_lines = matches!(endpoint.run, Run::Lines(_));
        let name = body(schemas);
        let schema = if is_lines { json!({"type": "string"}) } else { body_schema(endpoint, schemas, &name) };
        let kind = if is_lines { LINES } else { JSON };
        let mut media = json!({"schema": schema});
        if is_lines {
            media["itemSchema"] = reference(&name);
        }
        if let Some(example) = body_example(endpoint, schemas, &name) {
            media["example"] = if is_lines { json!(format!("{example}\n")) } else { example };
        }
        operation["requestBody"] = json!({"required": !optional, "content": {kind: media}});
    }
    operation
}

/// Returns the schema of a body. Where the URL names the file, the body does not.
fn body_schema(endpoint: &Endpoint, schemas: &Schemas, name: &str) -> Value {
    let is_named = endpoint.path.ends_with("{lfn}") && matches!(name, "NewFile" | "ReplicaEdits");
    if !is_named {
        return reference(name);
    }
    let mut schema =
        schemas.get(name).and_then(|schema| serde_json::to_value(schema).ok()).unwrap_or_default();
    bound_numbers(&mut schema);
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.remove("lfn");
        // The identity of a new file may be given.
        if name == "ReplicaEdits" {
            properties.remove("guid");
        }
    }
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("examples");
    }
    schema
}

/// Returns an example of a body, as its endpoint takes it.
pub(super) fn body_example(endpoint: &Endpoint, schemas: &Schemas, name: &str) -> Option<Value> {
    let schema = serde_json::to_value(schemas.get(name)?).ok()?;
    let own = schema.get("examples").and_then(|all| all.get(0));
    let mut example = own.or_else(|| EXAMPLES.get(name))?.clone();
    let is_lines = matches!(endpoint.run, Run::Lines(_));
    if is_lines && name == "ReplicaEdits" {
        example["lfn"] = json!("/demo/data/run1/f1.root");
    } else if !is_lines && name == "NewFile" {
        example.as_object_mut()?.remove("lfn");
    }
    Some(example)
}

/// Returns the pattern and an example of a variable part of a path.
pub(super) fn path_text(
    endpoint: &Endpoint,
    name: &str,
) -> (&'static str, Option<&'static str>, &'static str) {
    let first = endpoint.path.split('/').nth(1).unwrap_or_default();
    match (name, first) {
        ("lfn", "collections") => {
            ("LFN without its first slash, its components percent-encoded.", None, "demo/c")
        }
        ("lfn", _) => ("LFN without its first slash, its components percent-encoded.", None, "demo/data"),
        ("guid", _) => ("GUID of the reservation.", None, "01a20b0c-cdad-75f4-af3d-5016166cc5bd"),
        ("id", "tokens") => ("Id, as listed.", Some("^[0-9a-fA-F]{16}$"), "3f9a1c00d2e14b6f"),
        ("id", "requests") => ("Number, as listed.", Some("^[0-9]{1,18}$"), "1234"),
        ("id", _) => ("Id, as listed.", Some("^[0-9]{1,18}\\.[0-9a-f]{6,32}$"), "17.3f9a1c"),
        ("owner", _) => ("`user:NAME` or `group:NAME`.", Some(texts::OWNER), "user:demo"),
        (_, "ses") => ("Name of the storage element.", Some(texts::SE), "DEMO::DISK::SE1"),
        (_, "history") => ("Name of the group of elements.", Some(texts::ELEMENT_GROUP), "dcs"),
        (_, "feeds") => ("Name of the feed.", Some(texts::SNAPSHOT), "mirror"),
        (_, "snapshots") => ("Name of the snapshot.", Some(texts::SNAPSHOT), "demo"),
        _ => ("Name.", Some(texts::ACCOUNT), "demo"),
    }
}

fn path_parameter(endpoint: &Endpoint, name: &str) -> Value {
    let (about, pattern, example) = path_text(endpoint, name);
    let mut schema = json!({"type": "string", "minLength": 1, "examples": [example]});
    if let Some(pattern) = pattern {
        schema["pattern"] = json!(pattern);
    }
    if name == "guid" {
        schema["format"] = json!("uuid");
    }
    json!({"name": name, "in": "path", "required": true, "description": about, "schema": schema})
}

fn query_schema(parameter: &Parameter) -> Value {
    let text = |pattern: &str| json!({"type": "string", "pattern": pattern});
    match parameter.name {
        "limit" => json!({"type": "integer", "minimum": 1, "maximum": PAGE_ITEMS_MAX}),
        "cursor" => text("^[A-Za-z0-9_-]+$"),
        "owner" => json!({"type": "array", "items": text(texts::OWNER)}),
        "existing" => json!({"type": "string", "enum": ["refuse", "same", "merge"]}),
        "site" => text(texts::ACCOUNT),
        "se" => text(texts::SE),
        "against" => text(texts::SNAPSHOT),
        "mode" => text(texts::MODE),
        "under" => text(texts::LFN),
        "after" => text(POSITION),
        "kinds" => {
            let kinds = exacat_model::Effect::NAMES.join("|");
            text(&format!("^({kinds})(,({kinds}))*$"))
        }
        "every" => text("^([1-9][0-9]{0,9}(ns|u|ms|s|m|h|d|w))+$"),
        "course" => json!({"type": "string", "enum": ["holds", "line", "samples"]}),
        "field" => json!({"type": "array", "items": {"type": "string"}}),
        "at" if parameter.about == AT.about => text(PAST),
        "from" | "to" | "at" => text(texts::TIME),
        "seconds" => json!({"type": "integer", "minimum": 0, "maximum": u32::MAX}),
        "parts" => json!({"type": "integer", "minimum": 1, "maximum": ACTIVITY_PARTS_MAX}),
        _ => json!({"type": parameter.kind}),
    }
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn responses(endpoint: &Endpoint, schemas: &mut Schemas) -> Value {
    let content = match endpoint.answer {
        Shape::One(of) => json!({JSON: {"schema": reference(&of(schemas))}}),
        Shape::Items(of) | Shape::Pages(of) | Shape::Tables(of) => {
            let item = reference(&of(schemas));
            let mut page = json!({
                "type": "object", "required": ["items"],
                "properties": {"items": {"type": "array", "items": item}},
            });
            if matches!(endpoint.answer, Shape::Pages(_) | Shape::Tables(_)) {
                page["properties"]["next"] = json!({
                    "type": "string", "description": "Cursor of the next page; left out at the end."
                });
            }
            if matches!(endpoint.run, Run::Changes) {
                page["properties"]["position"] = json!({
                    "type": "string", "description": "Place after this page, for `after`."
                });
            }
            let mut content = json!({
                JSON: {"schema": page},
                LINES: {"schema": {"type": "string"}, "itemSchema": item},
            });
            if matches!(endpoint.answer, Shape::Tables(_)) {
                content[CSV] = json!({"schema": {"type": "string"}});
                if endpoint.name == "getElementRows" {
                    content[ARROW] = json!({"schema": {"type": "string", "format": "binary"}});
                }
            }
            if matches!(endpoint.run, Run::Changes) {
                content[EVENTS] = json!({"schema": {"type": "string"}});
            }
            content
        }
        Shape::Lines(of) => {
            json!({LINES: {"schema": {"type": "string"}, "itemSchema": reference(&of(schemas))}})
        }
        Shape::Free => json!({JSON: {"schema": {"type": "object"}}}),
    };
    let header = |name: &str| json!({"$ref": format!("#/components/headers/{name}")});
    let mut headers = json!({"Exacat-Revision": header("Exacat-Revision")});
    if endpoint.has_tag() {
        headers["ETag"] = header("ETag");
    }
    if matches!(endpoint.answer, Shape::Pages(_) | Shape::Tables(_)) {
        headers["Link"] = header("Link");
    }
    let mut responses = json!({"200": {"description": "Done.", "content": content, "headers": headers}});
    let refusal = |about: &str, document: Option<Problem>| {
        let mut content = json!({"schema": reference("Problem")});
        if let Some(document) = document {
            content["example"] = json!(document);
        }
        json!({"description": about, "content": {PROBLEM: content}})
    };
    for (status, kind, about) in REFUSALS {
        let document = Problem {
            status: status.parse().unwrap_or_default(),
            ..Problem::of(&Error::new(kind, about), None)
        };
        responses[status] = refusal(about, Some(document));
    }
    for status in ["429", "503"] {
        responses[status]["headers"] = json!({"Retry-After": header("Retry-After")});
    }
    responses["401"]["headers"] = json!({"WWW-Authenticate": header("WWW-Authenticate")});
    responses["default"] = refusal("Refused; the problem document has the reason.", None);
    if endpoint.has_tag() {
        responses["304"] = json!({
            "description": "The answer is still as `If-None-Match` says.", "headers": {"ETag": header("ETag")},
        });
    }
    responses
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every body and every answer has an example, which has the fields of its schema.
    #[test]
    fn example_of_every_body_and_answer_has_the_fields_of_its_schema() {
        let mut schemas = Schemas::new();
        for endpoint in endpoints() {
            let body = endpoint.body.map(|(body, _)| body(&mut schemas));
            if let Some(name) = body {
                assert!(body_example(&endpoint, &schemas, &name).is_some(), "{}: {name}", endpoint.name);
            }
            if let Shape::One(of)
            | Shape::Items(of)
            | Shape::Pages(of)
            | Shape::Tables(of)
            | Shape::Lines(of) = endpoint.answer
            {
                let name = of(&mut schemas);
                assert!(EXAMPLES.contains_key(&name), "{}: {name}", endpoint.name);
            }
        }
        let known = components(&schemas);
        for (name, example) in &*EXAMPLES {
            let schema = &known[name];
            let mut properties = schema["properties"].as_object().cloned().unwrap_or_default();
            let mut required = schema["required"].as_array().cloned().unwrap_or_default();
            for part in schema["allOf"].as_array().into_iter().flatten() {
                properties.extend(part["properties"].as_object().cloned().unwrap_or_default());
                required.extend(part["required"].as_array().cloned().unwrap_or_default());
            }
            let fields = example.as_object().unwrap();
            let is_part = schema["allOf"].is_array() || schema["oneOf"].is_array();
            for field in fields.keys() {
                assert!(is_part || properties.contains_key(field), "{name}: {field} is not in {schema}");
            }
            for field in required {
                assert!(fields.contains_key(field.as_str().unwrap()), "{name}: {field} is missing");
            }
        }
    }

    #[test]
    fn every_reference_in_the_document_is_defined_and_every_name_is_used_once() {
        let document: Value = serde_json::from_str(&document()).unwrap();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
            match value {
                Value::Object(fields) => {
                    found.extend(fields.get("$ref").and_then(Value::as_str));
                    fields.values().for_each(|value| references(value, found));
                }
                Value::Array(items) => items.iter().for_each(|value| references(value, found)),
                _ => {}
            }
        }
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 100, "{}", found.len());
        for reference in found {
            let Some(name) = reference.strip_prefix("#/components/schemas/") else { continue };
            assert!(schemas.contains_key(name), "{name}");
        }
        let mut names: Vec<&str> = endpoints().iter().map(|endpoint| endpoint.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
