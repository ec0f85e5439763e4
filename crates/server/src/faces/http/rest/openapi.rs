//! The OpenAPI 3.1 document, made from the table of endpoints and the schemas of their types.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema as AnySchema};

use super::super::answers::{EVENTS, JSON, LINES, PROBLEM, Problem};
use super::endpoints::{Endpoint, Run, Shape, endpoints};
use super::{PREFIX, variables};

/// Schemas by name.
type Schemas = BTreeMap<String, RefOr<AnySchema>>;
/// Adds the schemas of a type, and returns its name.
pub(super) type Schema = fn(&mut Schemas) -> String;

/// Adds the schemas of `T`.
pub(super) fn schema<T: ToSchema>(schemas: &mut Schemas) -> String {
    let name = T::name().into_owned();
    if !schemas.contains_key(&name) {
        schemas.insert(name.clone(), T::schema());
        let mut nested = Vec::new();
        T::schemas(&mut nested);
        schemas.extend(nested);
    }
    name
}

/// Returns the document.
pub(super) fn document() -> String {
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
            "schemas": schemas,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "headers": {
                "Exacat-Revision": {
                    "description": "Revision of the catalogue that the answer shows at least.",
                    "schema": {"type": "integer", "minimum": 0},
                },
            },
        },
    });
    format!("{document:#}\n")
}

fn operation(endpoint: &Endpoint, schemas: &mut Schemas) -> Value {
    let mut parameters: Vec<Value> = variables(endpoint.path).map(path_parameter).collect();
    parameters.extend(endpoint.query.iter().map(|parameter| {
        let mut schema = json!({"type": parameter.kind});
        if parameter.name == "limit" {
            schema["minimum"] = json!(1);
            schema["maximum"] = json!(10_000);
        }
        if parameter.name == "cursor" {
            schema["pattern"] = json!("^[A-Za-z0-9_-]*$");
        }
        if parameter.name == "owner" {
            schema = json!({"type": "array", "items": {"type": "string"}});
        }
        json!({"name": parameter.name, "in": "query", "description": parameter.about, "schema": schema})
    }));
    let writes = endpoint.method != "GET" && !matches!(endpoint.run, Run::Find);
    if writes {
        parameters.push(json!({
            "name": "Idempotency-Key", "in": "header",
            "schema": {
                "type": "string",
                "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$",
            },
            "description": "UUID of version 7: a repeated request with it has one effect. \
                GET /api/v1/operation-id makes one.",
        }));
    }
    let mut operation = json!({
        "operationId": endpoint.name,
        "summary": endpoint.about,
        "parameters": parameters,
        "responses": responses(endpoint, schemas),
    });
    if let Some((body, optional)) = endpoint.body {
        let is_lines = matches!(endpoint.run, Run::Lines(_));
        let name = body(schemas);
        let schema = if is_lines { json!({"type": "string"}) } else { reference(&name) };
        let kind = if is_lines { LINES } else { JSON };
        let mut media = json!({"schema": schema});
        if is_lines {
            media["itemSchema"] = reference(&name);
            if let Some(example) = example(schemas, &name) {
                media["example"] = json!(format!("{example}\n"));
            }
        }
        operation["requestBody"] = json!({"required": !optional, "content": {kind: media}});
    }
    operation
}

fn path_parameter(name: &str) -> Value {
    let (about, example) = match name {
        "lfn" => ("LFN without its first slash, its components percent-encoded.", "demo/data"),
        "guid" => ("GUID of the reservation.", "01a20b0c-cdad-75f4-af3d-5016166cc5bd"),
        "id" => ("Id, as listed.", "17.3f9a1c"),
        "owner" => ("`user:NAME` or `group:NAME`.", "user:demo"),
        _ => ("Name.", "demo"),
    };
    let mut schema = json!({"type": "string", "minLength": 1, "examples": [example]});
    if name == "guid" {
        schema["format"] = json!("uuid");
    }
    json!({"name": name, "in": "path", "required": true, "description": about, "schema": schema})
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn example(schemas: &Schemas, name: &str) -> Option<Value> {
    let schema = serde_json::to_value(schemas.get(name)?).ok()?;
    schema.get("examples")?.get(0).cloned()
}

fn responses(endpoint: &Endpoint, schemas: &mut Schemas) -> Value {
    let content = match endpoint.answer {
        Shape::One(of) => json!({JSON: {"schema": reference(&of(schemas))}}),
        Shape::Items(of) | Shape::Pages(of) => {
            let item = reference(&of(schemas));
            let mut page = json!({
                "type": "object", "required": ["items"],
                "properties": {"items": {"type": "array", "items": item}},
            });
            if matches!(endpoint.answer, Shape::Pages(_)) {
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
    let headers = json!({"Exacat-Revision": {"$ref": "#/components/headers/Exacat-Revision"}});
    let problem = json!({PROBLEM: {"schema": reference("Problem")}});
    let mut responses = json!({
        "200": {"description": "Done.", "content": content, "headers": headers},
        "default": {"description": "Refused; the problem document has the reason.", "content": problem},
    });
    for (status, about) in [
        ("400", "Invalid request: nothing was changed."),
        ("401", "No credentials, or invalid ones."),
        ("403", "Permission denied."),
        ("404", "Not found."),
        (
            "409",
            "Exists already, is of another kind or not empty, or the operation id was used for another request.",
        ),
        ("412", "The entry is not as `If-Match` or `If-None-Match` demands."),
        ("413", "Beyond a limit."),
        ("429", "Busy: send it again after `Retry-After` seconds."),
        ("503", "Unavailable: nothing was changed; send it again after `Retry-After` seconds."),
        ("504", "The outcome is unknown: send it again with the same `Idempotency-Key`."),
        ("507", "Quota exceeded."),
    ] {
        responses[status] = json!({"description": about, "content": problem});
    }
    if endpoint.name == "getEntry" {
        responses["304"] = json!({"description": "The entry is still as `If-None-Match` says."});
    }
    responses
}

#[cfg(test)]
mod tests {
    use super::*;

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
