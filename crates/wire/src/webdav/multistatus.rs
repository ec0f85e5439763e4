//! Answers to PROPFIND, row by row. Tags are prepared once for each request, so a row is a few copies
//! of bytes and the escaping of its texts.

use exacat_model::answer::Stat;
use exacat_model::{Checksums, Kind, Tag, TagKey, TimeMs};

use super::date::{push_http_date, push_rfc3339_date};
use super::document::DAV;
use super::headers::push_checksums;
use super::property::{
    DCACHE, EXACAT, LCGDM, Live, PropertyName, TAGS, dead_property_key, property_of_key, push_value,
};
use super::request::Propfind;
use super::xml::{DECLARATION, XML_NAMESPACE, is_name, push_attribute, push_number, push_text};
use crate::percent::push_encoded;

/// Namespaces that the root element declares, with their prefixes.
const PREFIXES: [(&str, &str); 5] = [("D", DAV), ("X", EXACAT), ("T", TAGS), ("C", DCACHE), ("L", LCGDM)];

/// Bits of `st_mode` for the kind of an entry.
const MODE_DIRECTORY: u16 = 0o040_000;
const MODE_FILE: u16 = 0o100_000;

/// Entry in an answer.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Start of its URL's path, encoded: of a directory that is listed, with a slash at the end.
    pub base: &'a str,
    /// Rest of its URL's path, not encoded: a name, or an LFN after the prefix of the server.
    pub path: &'a str,
    /// Name to show.
    pub name: &'a str,
    /// True for a directory; its path ends in a slash.
    pub is_directory: bool,
    /// Bytes of a file, if known.
    pub size: Option<u64>,
    /// Time of modification.
    pub modified: TimeMs,
    /// Time of creation.
    pub created: TimeMs,
    /// Entity tag without its quotes; empty for none.
    pub etag: &'a str,
    /// Bytes used, if known and asked for.
    pub quota_used: Option<u64>,
    /// Bytes that the quota leaves, if known and asked for.
    pub quota_available: Option<u64>,
    /// Name of the owner.
    pub owner: &'a str,
    /// Name of the group.
    pub group: &'a str,
    /// Permission bits.
    pub mode: u16,
    /// Checksums of a file.
    pub checksums: Option<&'a Checksums>,
    /// Tags that appear as properties, sorted by key.
    pub tags: &'a [Tag],
}

impl<'a> Row<'a> {
    /// Returns the row of an entry, without quotas.
    pub fn of_stat(base: &'a str, path: &'a str, etag: &'a str, stat: &'a Stat) -> Self {
        let entry = &stat.entry;
        Row {
            base,
            path,
            name: stat.lfn.split_last().map_or("/", |(_, name)| name),
            is_directory: entry.kind() == Kind::Directory,
            size: entry.size(),
            modified: entry.modified,
            created: entry.created,
            etag,
            quota_used: None,
            quota_available: None,
            owner: stat.owner.as_str(),
            group: stat.group.as_str(),
            mode: entry.mode.bits(),
            checksums: entry.file().map(|file| &file.checksums),
            tags: &entry.tags,
        }
    }

    fn has(&self, live: Live) -> bool {
        match live {
            Live::ContentLength => self.size.is_some() && !self.is_directory,
            Live::Etag => !self.etag.is_empty(),
            Live::QuotaUsed => self.quota_used.is_some(),
            Live::QuotaAvailable => self.quota_available.is_some(),
            Live::Checksums => self.checksums.is_some_and(|checksums| !checksums.is_empty()),
            _ => true,
        }
    }

    fn push(&self, out: &mut Vec<u8>, live: Live) {
        match live {
            Live::DisplayName => push_text(out, self.name),
            Live::ResourceType if self.is_directory => out.extend_from_slice(b"<D:collection/>"),
            Live::ResourceType => {}
            Live::ContentLength => push_number(out, self.size.unwrap_or_default()),
            Live::LastModified => push_http_date(out, self.modified),
            Live::CreationDate => push_rfc3339_date(out, self.created),
            Live::Etag => {
                out.push(b'"');
                push_text(out, self.etag);
                out.push(b'"');
            }
            Live::ContentType if self.is_directory => out.extend_from_slice(b"httpd/unix-directory"),
            Live::ContentType => out.extend_from_slice(b"application/octet-stream"),
            Live::QuotaUsed => push_number(out, self.quota_used.unwrap_or_default()),
            Live::QuotaAvailable => push_number(out, self.quota_available.unwrap_or_default()),
            Live::Owner => push_text(out, self.owner),
            Live::Group => push_text(out, self.group),
            Live::Mode | Live::LcgdmMode => self.push_mode(out),
            Live::Checksums => {
                if let Some(checksums) = self.checksums {
                    push_checksums(out, checksums);
                }
            }
        }
    }

    fn push_mode(&self, out: &mut Vec<u8>) {
        let mode = self.mode & 0o7777 | if self.is_directory { MODE_DIRECTORY } else { MODE_FILE };
        for place in (0..6).rev() {
            out.push(b'0' + (mode >> (3 * place) & 7) as u8);
        }
    }

    fn tag(&self, key: &TagKey) -> Option<&'a Tag> {
        let place = self.tags.binary_search_by(|tag| tag.key.cmp(key)).ok()?;
        self.tags.get(place)
    }
}

/// Source of a property.
#[derive(Debug)]
enum Source {
    Live(Live),
    /// A tag; none if no tag can have the name.
    Tag(Option<TagKey>),
}

/// Property that the client asks for, with its tags.
#[derive(Debug)]
struct Column {
    source: Source,
    start: Vec<u8>,
    end: Vec<u8>,
    empty: Vec<u8>,
    /// True if the client names it, so that an answer says when it is missing.
    is_named: bool,
}

impl Column {
    fn new(source: Source, prefix: &str, name: &str) -> Self {
        let name = match prefix {
            "" => element_name(name).to_owned(),
            prefix => format!("{prefix}:{}", element_name(name)),
        };
        Column {
            source,
            start: format!("<{name}>").into_bytes(),
            end: format!("</{name}>").into_bytes(),
            empty: format!("<{name}/>").into_bytes(),
            is_named: true,
        }
    }

    fn live(live: Live) -> Self {
        let (namespace, name) = live.name();
        Column::new(Source::Live(live), known_prefix(namespace).unwrap_or_default(), name)
    }

    /// Makes the column of a property that is left out of the rows that lack it.
    fn unnamed(live: Live) -> Self {
        Column { is_named: false, ..Column::live(live) }
    }

    /// Makes the column of a name. Adds an unknown namespace to those that the document declares.
    fn of(name: &PropertyName, namespaces: &mut Vec<String>) -> Self {
        if let Some(live) = Live::of(name) {
            return Column::live(live);
        }
        let source = Source::Tag(dead_property_key(name).ok());
        if let Some(prefix) = known_prefix(&name.namespace) {
            return Column::new(source, prefix, &name.name);
        }
        let place = namespaces.iter().position(|known| *known == name.namespace).unwrap_or_else(|| {
            namespaces.push(name.namespace.clone());
            namespaces.len() - 1
        });
        Column::new(source, &format!("N{place}"), &name.name)
    }

    fn key(&self) -> Option<&TagKey> {
        match &self.source {
            Source::Tag(key) => key.as_ref(),
            Source::Live(_) => None,
        }
    }
}

/// Writer of the answers to one request.
///
/// Call [`begin`](Self::begin), then [`response`](Self::response) for each entry, then
/// [`end`](Self::end). The caller may send and clear `out` between any two calls.
#[derive(Debug)]
pub struct Multistatus {
    columns: Vec<Column>,
    /// Namespaces that the document declares for these, as `N0`, `N1` and so on. A declaration in each
    /// row would let a short request cause a long answer.
    namespaces: Vec<String>,
    /// Keys of tags that have a column, sorted; none unless all tags are in the answer.
    column_keys: Option<Vec<TagKey>>,
    /// True for names without values.
    names_only: bool,
    /// Empty elements of the properties that the current row lacks.
    missing: Vec<u8>,
}

impl Multistatus {
    /// Prepares the answers to a request.
    pub fn new(request: &Propfind) -> Self {
        let mut namespaces = Vec::new();
        let mut columns: Vec<Column> = match request {
            Propfind::Properties(_) => Vec::new(),
            Propfind::Names => Live::ALL.into_iter().map(Column::unnamed).collect(),
            Propfind::All { .. } => {
                Live::ALL.into_iter().filter(|live| live.is_in_allprop()).map(Column::unnamed).collect()
            }
        };
        let column_keys = match request {
            Propfind::Properties(names) => {
                columns.extend(names.iter().map(|name| Column::of(name, &mut namespaces)));
                None
            }
            Propfind::Names => Some(Vec::new()),
            Propfind::All { include } => {
                let is_new = |name: &&PropertyName| !Live::of(name).is_some_and(Live::is_in_allprop);
                columns.extend(include.iter().filter(is_new).map(|name| Column::of(name, &mut namespaces)));
                let mut keys: Vec<TagKey> = columns.iter().filter_map(Column::key).cloned().collect();
                keys.sort();
                Some(keys)
            }
        };
        let names_only = matches!(request, Propfind::Names);
        Multistatus { columns, namespaces, column_keys, names_only, missing: Vec::new() }
    }

    /// Says whether the answers may contain a property, so that the caller can save finding it.
    pub fn wants(&self, wanted: Live) -> bool {
        self.columns.iter().any(|column| matches!(column.source, Source::Live(live) if live == wanted))
    }

    /// Says whether the answers may contain tags.
    pub fn wants_tags(&self) -> bool {
        self.column_keys.is_some() || self.columns.iter().any(|column| column.key().is_some())
    }

    /// Appends the start of the document.
    pub fn begin(&self, out: &mut Vec<u8>) {
        push_root(out, &self.namespaces);
    }

    /// Appends the end of the document.
    pub fn end(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"</D:multistatus>\n");
    }

    /// Appends the answer for one entry.
    pub fn response(&mut self, out: &mut Vec<u8>, row: &Row<'_>) {
        self.missing.clear();
        out.extend_from_slice(b"<D:response><D:href>");
        push_text(out, row.base);
        push_encoded(out, row.path);
        if row.is_directory && !out.ends_with(b"/") {
            out.push(b'/');
        }
        out.extend_from_slice(b"</D:href>");
        let before = out.len();
        out.extend_from_slice(b"<D:propstat><D:prop>");
        let first = out.len();
        for column in &self.columns {
            let tag = column.key().and_then(|key| row.tag(key));
            let is_present = match column.source {
                Source::Live(live) => row.has(live),
                Source::Tag(_) => tag.is_some(),
            };
            if !is_present {
                if column.is_named {
                    self.missing.extend_from_slice(&column.empty);
                }
                continue;
            }
            if self.names_only {
                out.extend_from_slice(&column.empty);
                continue;
            }
            out.extend_from_slice(&column.start);
            if let Source::Live(live) = column.source {
                row.push(out, live);
            } else if let Some(tag) = tag {
                push_value(out, &tag.value);
            }
            out.extend_from_slice(&column.end);
        }
        if let Some(column_keys) = &self.column_keys {
            self.push_tags(out, row, column_keys);
        }
        if out.len() > first || self.missing.is_empty() {
            out.extend_from_slice(b"</D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat>");
        } else {
            out.truncate(before);
        }
        if !self.missing.is_empty() {
            out.extend_from_slice(b"<D:propstat><D:prop>");
            out.extend_from_slice(&self.missing);
            out.extend_from_slice(b"</D:prop><D:status>HTTP/1.1 404 Not Found</D:status></D:propstat>");
        }
        out.extend_from_slice(b"</D:response>\n");
    }

    /// Appends the tags that no column has.
    fn push_tags(&self, out: &mut Vec<u8>, row: &Row<'_>, column_keys: &[TagKey]) {
        for tag in row.tags {
            if column_keys.binary_search(&tag.key).is_ok() {
                continue;
            }
            let name = property_of_key(&tag.key);
            if self.names_only {
                push_empty(out, &name);
            } else {
                push_open(out, &name);
                out.push(b'>');
                push_value(out, &tag.value);
                out.extend_from_slice(b"</");
                push_name(out, &name);
                out.push(b'>');
            }
        }
    }
}

/// Returns the prefix of a namespace in every document; empty for no namespace.
fn known_prefix(namespace: &str) -> Option<&'static str> {
    match namespace {
        // No default namespace is in scope.
        "" => Some(""),
        XML_NAMESPACE => Some("xml"),
        _ => PREFIXES.into_iter().find(|(_, known)| *known == namespace).map(|(prefix, _)| prefix),
    }
}

/// Returns the name, or a substitute if XML forbids it. Readers of requests accept none of those.
fn element_name(name: &str) -> &str {
    if is_name(name) { name } else { "unnamed" }
}

/// Appends the start of a multistatus that declares further namespaces as `N0`, `N1` and so on.
pub(super) fn push_root(out: &mut Vec<u8>, namespaces: &[String]) {
    out.extend_from_slice(DECLARATION);
    out.extend_from_slice(b"<D:multistatus");
    for (prefix, namespace) in PREFIXES {
        push_declaration(out, prefix, namespace);
    }
    for (place, namespace) in namespaces.iter().enumerate() {
        push_declaration(out, &format!("N{place}"), namespace);
    }
    out.extend_from_slice(b">\n");
}

fn push_declaration(out: &mut Vec<u8>, prefix: &str, namespace: &str) {
    out.extend_from_slice(b" xmlns:");
    out.extend_from_slice(prefix.as_bytes());
    out.extend_from_slice(b"=\"");
    push_attribute(out, namespace);
    out.push(b'"');
}

/// Appends the name of an element with its prefix; `N` if the element declares it itself.
fn push_name(out: &mut Vec<u8>, name: &PropertyName) {
    let prefix = known_prefix(&name.namespace).unwrap_or("N");
    if !prefix.is_empty() {
        out.extend_from_slice(prefix.as_bytes());
        out.push(b':');
    }
    out.extend_from_slice(element_name(&name.name).as_bytes());
}

fn push_open(out: &mut Vec<u8>, name: &PropertyName) {
    out.push(b'<');
    push_name(out, name);
    if known_prefix(&name.namespace).is_none() {
        push_declaration(out, "N", &name.namespace);
    }
}

/// Appends the empty element of a property.
pub(super) fn push_empty(out: &mut Vec<u8>, name: &PropertyName) {
    push_open(out, name);
    out.extend_from_slice(b"/>");
}
