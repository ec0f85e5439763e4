//! Schemas of texts that the model parses, and of objects whose names are such texts.

use serde_json::{Value, json};
use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

fn text(about: &str, pattern: &str, example: &str) -> RefOr<Schema> {
    let text = ObjectBuilder::new().schema_type(Type::String).description(Some(about));
    text.pattern(Some(pattern)).examples([json!(example)]).into()
}

fn choice(about: &str, values: &[&str]) -> RefOr<Schema> {
    let text = ObjectBuilder::new().schema_type(Type::String).description(Some(about));
    text.enum_values(Some(values.iter().map(|value| json!(value)))).into()
}

/// Makes types that only have a schema.
macro_rules! texts {
    ($( $name:ident $about:literal => $schema:expr ),* $(,)?) => { $(
        #[doc = $about]
        #[derive(Debug)]
        pub struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                ($schema)($about)
            }
        }

        impl ToSchema for $name {}
    )* };
}

/// Pattern of names of accounts, groups, sites and qualities of service.
pub const ACCOUNT: &str = "^[A-Za-z0-9._@+][A-Za-z0-9._@+-]*$";
/// Pattern of names of storage elements.
pub const SE: &str = "^[A-Za-z0-9._:][A-Za-z0-9._:-]*$";
/// Pattern of names of snapshots.
pub const SNAPSHOT: &str = "^[A-Za-z0-9_][A-Za-z0-9._-]*$";
/// Pattern of keys of tags.
pub const TAG_KEY: &str = "^[A-Za-z_][A-Za-z0-9_.-]*$";
/// Pattern of LFNs: no component is `.` or `..`, and none has NUL.
pub const LFN: &str = "^(/+([^/.\\x00][^/\\x00]*|\\.[^/.\\x00][^/\\x00]*|\\.\\.[^/\\x00]+))*/+$|\
    ^(/+([^/.\\x00][^/\\x00]*|\\.[^/.\\x00][^/\\x00]*|\\.\\.[^/\\x00]+))+$";
/// Pattern of octal permissions.
pub const MODE: &str = "^0*[01]?[0-7]{1,3}$";
/// Pattern of ids of deletions: a revision, a number, a timeline.
const DELETION: &str = "^[0-9]{1,18}\\.[0-9]{1,9}\\.[0-9a-f]{6,32}$";
/// Pattern of absolute paths on the server's machine.
const PATH: &str = "^/[^\\x00]*$";
/// Pattern of checksums.
const CHECKSUM: &str = "^((adler32|crc32c):[0-9a-fA-F]{8}|md5:[0-9a-fA-F]{32}|sha1:[0-9a-fA-F]{40}|\
    sha256:[0-9a-fA-F]{64})$";
/// Pattern of PFNs: no control characters.
const PFN: &str = "^[^\\x00-\\x1f\\x7f]+$";
/// Pattern of moments: seconds since 1970, a date, or RFC 3339.
pub const TIME: &str = "^([0-9]{1,11}|[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])\
    (T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-5][0-9]))?)$";
/// Pattern of sinks of feeds: a directory, or the URL of a webhook.
const FEED_SINK: &str = "^(dir:/[^\\x00]*[^/\\x00][^\\x00]*|https?://[^\\x00]+)$";
/// Pattern of positions where a feed begins.
const FEED_START: &str = "^(now|copy|start|[0-9]{1,18}(\\.[0-9a-fA-F]{6,32})?)$";
/// Pattern of users and groups.
pub const OWNER: &str = "^(user|group):[A-Za-z0-9._@+][A-Za-z0-9._@+-]*$";
/// Pattern of names of groups of elements.
pub const ELEMENT_GROUP: &str =
    "^[^\\s\\x00-\\x1f\\x7f-\\x9f/\\\\\"'`:.-][^\\s\\x00-\\x1f\\x7f-\\x9f/\\\\\"'`:]*$";

texts! {
    Lfn "Path in the catalogue." => |about| text(about, LFN, "/demo/data/run1/f1.root"),
    Account "Name of a user, a group, a site or a quality of service." => |about| text(about, ACCOUNT, "demo"),
    OwnerName "A user or group." => |about| text(about, OWNER, "group:demo"),
    Moment "Time, down to the nanosecond." => |about| text(about, TIME, "2026-11-26T03:14:07Z"),
    SeName "Name of a storage element." => |about| text(about, SE, "DEMO::DISK::SE1"),
    Mode "Octal permissions." => |about| text(about, MODE, "640"),
    Checksum "Checksum, `algorithm:hex`." => |about| text(about, CHECKSUM, "adler32:0a1af2bf"),
    Pfn "URL of a physical copy." => |about| text(about, PFN, "root://se.example.org:1094//data/f1.root"),
    TagKey "Key of a tag." => |about| text(about, TAG_KEY, "run"),
    DeletionId "Id of a deletion." => |about| text(about, DELETION, "2266.0.3f9a1c"),
    ServerPath "Absolute path on the server's machine." => |about| text(about, PATH, "/var/backups/exacat"),
    ReplicaState "State of a replica." => |about| choice(about, &["available", "copying", "suspect", "lost"]),
    SeStatus "Permitted use of a storage element." => |about| choice(about, &["online", "read-only", "offline"]),
    Kind "Kind of an entry." => |about| choice(about, &["directory", "file", "collection", "link"]),
    Role "Role of a user." => |about| choice(about, &["admin", "operator"]),
    Tags "Tags by key: text, number, true, false, or `{\"time\": \"2026-…\"}`." => tags,
    FeedSink "Sink of a feed." => |about| text(about, FEED_SINK, "dir:/srv/feed/mirror"),
    FeedStart "Position where a feed begins." => |about| text(about, FEED_START, "2315.3f9a1c"),
    Effect "Effect of a change." => |about| choice(about, &exacat_model::Effect::NAMES),
    Counts "Numbers by name of a site or a quality of service." => counts,
}

fn names(pattern: &str) -> Schema {
    ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern)).into()
}

fn of_type(kind: Type) -> Schema {
    ObjectBuilder::new().schema_type(kind).into()
}

fn tags(about: &str) -> RefOr<Schema> {
    let time = ObjectBuilder::new()
        .property(
            "time",
            ObjectBuilder::new().schema_type(Type::String).examples([json!("2026-01-02T03:04:05Z")]),
        )
        .required("time")
        .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false)));
    let value = OneOfBuilder::new()
        .item(of_type(Type::String))
        .item(of_type(Type::Number))
        .item(of_type(Type::Boolean))
        .item(time);
    let tags = ObjectBuilder::new().description(Some(about)).property_names(Some(names(TAG_KEY)));
    let example: Value = json!({"campaign": "mc26", "run": 12});
    tags.additional_properties(Some(Schema::from(value))).examples([example]).into()
}

fn counts(about: &str) -> RefOr<Schema> {
    let count = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).maximum(Some(u32::MAX));
    let counts = ObjectBuilder::new().description(Some(about)).property_names(Some(names(ACCOUNT)));
    counts.additional_properties(Some(count)).into()
}
