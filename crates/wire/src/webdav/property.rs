//! Properties: their names, the ones that the server computes, and the others as tags of an entry.
//!
//! A tag's key has no room for a namespace, so the key of a property is an encoding of both:
//! `dav.`, the namespace, `_e`, the name. `_` begins each escape; the encoding is reversible. A tag
//! whose key is no such encoding appears in the namespace [`TAGS`].

use exacat_model::limits::TAG_KEY_BYTES_MAX;
use exacat_model::{Error, Result, TagKey, TagValue};

pub use super::document::DAV;
use super::document::{Document, Node};
use super::xml::{XMLNS_NAMESPACE, is_char, is_name, push_text};

/// Namespace of the server's own properties.
pub const EXACAT: &str = "urn:exacat";
/// Namespace of tags that have none.
pub const TAGS: &str = "urn:exacat:tags";
/// Namespace of dCache, for checksums.
pub const DCACHE: &str = "http://www.dcache.org/2013/webdav";
/// Namespace in which davix asks for the mode.
pub const LCGDM: &str = "LCGDM:";

/// Name of a property.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PropertyName {
    /// Its namespace; empty for none.
    pub namespace: String,
    /// Its name in the namespace.
    pub name: String,
}

impl PropertyName {
    /// Makes a name.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        PropertyName { namespace: namespace.into(), name: name.into() }
    }

    /// Says whether clients cannot set the property: the server computes it, or the namespace is
    /// reserved.
    pub fn is_protected(&self) -> bool {
        matches!(self.namespace.as_str(), DAV | EXACAT) || Live::of(self).is_some()
    }
}

impl std::fmt::Display for PropertyName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{{{}}}{}", self.namespace, self.name)
    }
}

/// Property that the server computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Live {
    /// Last component of the path.
    DisplayName,
    /// `collection` for a directory, else empty.
    ResourceType,
    /// Bytes of a file, if known.
    ContentLength,
    /// Time of modification.
    LastModified,
    /// Time of creation.
    CreationDate,
    /// Version, in quotes.
    Etag,
    /// Kind of content.
    ContentType,
    /// Bytes used below a directory or by an account.
    QuotaUsed,
    /// Bytes that the quota leaves.
    QuotaAvailable,
    /// Name of the owner.
    Owner,
    /// Name of the group.
    Group,
    /// File type and permission bits in octal, as `st_mode` has them.
    Mode,
    /// The same under the name that davix knows.
    LcgdmMode,
    /// Checksums, in the form of the header `Digest`.
    Checksums,
}

impl Live {
    /// All of them, in the order of answers. davix takes the last one of mode and resource type for the
    /// kind of an entry, so both tell it.
    pub const ALL: [Live; 14] = [
        Live::DisplayName,
        Live::ResourceType,
        Live::ContentLength,
        Live::LastModified,
        Live::CreationDate,
        Live::Etag,
        Live::ContentType,
        Live::QuotaUsed,
        Live::QuotaAvailable,
        Live::Owner,
        Live::Group,
        Live::Mode,
        Live::LcgdmMode,
        Live::Checksums,
    ];

    /// Returns the namespace and the name.
    pub fn name(self) -> (&'static str, &'static str) {
        match self {
            Live::DisplayName => (DAV, "displayname"),
            Live::ResourceType => (DAV, "resourcetype"),
            Live::ContentLength => (DAV, "getcontentlength"),
            Live::LastModified => (DAV, "getlastmodified"),
            Live::CreationDate => (DAV, "creationdate"),
            Live::Etag => (DAV, "getetag"),
            Live::ContentType => (DAV, "getcontenttype"),
            Live::QuotaUsed => (DAV, "quota-used-bytes"),
            Live::QuotaAvailable => (DAV, "quota-available-bytes"),
            Live::Owner => (EXACAT, "owner"),
            Live::Group => (EXACAT, "group"),
            Live::Mode => (EXACAT, "mode"),
            Live::LcgdmMode => (LCGDM, "mode"),
            Live::Checksums => (DCACHE, "Checksums"),
        }
    }

    /// Returns the property of that name.
    pub fn of(name: &PropertyName) -> Option<Live> {
        let wanted = (name.namespace.as_str(), name.name.as_str());
        Live::ALL.into_iter().find(|live| live.name() == wanted)
    }

    /// Says whether a client that asks for all properties gets it. Quotas and checksums cost more to
    /// find, and davix would take the quota for the size.
    pub fn is_in_allprop(self) -> bool {
        !matches!(self, Live::QuotaUsed | Live::QuotaAvailable | Live::LcgdmMode | Live::Checksums)
    }
}

/// Start of a tag key that encodes a namespace and a name.
const KEY_START: &str = "dav.";

/// Abbreviations at the start of a namespace. `urn:` is one of them; none is the start of another.
const STARTS: [(&str, &str); 3] = [("http://", "_h"), ("https://", "_t"), ("urn:", "_u")];

fn push_key(key: &mut String, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for byte in text.bytes() {
        match byte {
            b'_' => key.push_str("__"),
            b'/' => key.push_str("_s"),
            b':' => key.push_str("_c"),
            b'#' => key.push_str("_n"),
            b'-' | b'.' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => key.push(char::from(byte)),
            _ => {
                key.push_str("_x");
                key.push(char::from(HEX[usize::from(byte >> 4)]));
                key.push(char::from(HEX[usize::from(byte & 15)]));
            }
        }
    }
}

fn encoded_key(namespace: &str, name: &str) -> String {
    let mut key = KEY_START.to_owned();
    let short = STARTS.iter().find_map(|(long, short)| Some((namespace.strip_prefix(long)?, short)));
    let rest = match short {
        Some((rest, short)) => {
            key.push_str(short);
            rest
        }
        None => namespace,
    };
    push_key(&mut key, rest);
    key.push_str("_e");
    push_key(&mut key, name);
    key
}

/// Decodes a key of [`encoded_key`], among others that it never makes.
fn decoded_key(key: &str) -> Option<PropertyName> {
    let mut bytes = key.strip_prefix(KEY_START)?.bytes();
    let mut namespace = None;
    let mut text = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte != b'_' {
            text.push(byte);
            continue;
        }
        match bytes.next()? {
            b'_' => text.push(b'_'),
            b's' => text.push(b'/'),
            b'c' => text.push(b':'),
            b'n' => text.push(b'#'),
            b'h' => text.extend_from_slice(b"http://"),
            b't' => text.extend_from_slice(b"https://"),
            b'u' => text.extend_from_slice(b"urn:"),
            b'x' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                text.push(u8::try_from(digit()? << 4 | digit()?).ok()?);
            }
            b'e' if namespace.is_none() => namespace = Some(std::mem::take(&mut text)),
            _ => return None,
        }
    }
    let (namespace, name) = (String::from_utf8(namespace?).ok()?, String::from_utf8(text).ok()?);
    Some(PropertyName { namespace, name })
}

/// Returns the key of the tag that holds a property. Refuses protected properties, and names that do
/// not fit a tag's key.
pub fn dead_property_key(name: &PropertyName) -> Result<TagKey> {
    if name.is_protected() {
        return Err(Error::invalid(format!(
            "the property {name} cannot be set: the server computes it, or its namespace is reserved"
        )));
    }
    let key = match name.namespace.as_str() {
        TAGS => name.name.clone(),
        namespace => encoded_key(namespace, &name.name),
    };
    if key.len() > TAG_KEY_BYTES_MAX {
        return Err(Error::limit(
            &format!("the length of the property {name} as a tag's key in bytes"),
            key.len(),
            TAG_KEY_BYTES_MAX,
        ));
    }
    let key = TagKey::parse(&key)?;
    // A tag without a namespace must not take the key of one that has a namespace, and the name of a
    // property must be one in XML.
    if property_of_key(&key) != *name {
        return Err(Error::invalid(format!("{name} is no name of a property: choose another")));
    }
    Ok(key)
}

/// Returns the property that a tag appears as. The inverse of [`dead_property_key`].
pub fn property_of_key(key: &TagKey) -> PropertyName {
    let reads_back = |name: &PropertyName| {
        !name.is_protected()
            && !matches!(name.namespace.as_str(), TAGS | XMLNS_NAMESPACE)
            && is_name(&name.name)
            && name.namespace.chars().all(is_char)
            && encoded_key(&name.namespace, &name.name) == key.as_str()
    };
    decoded_key(key.as_str()).filter(reads_back).unwrap_or_else(|| PropertyName::new(TAGS, key.as_str()))
}

/// Value of a property that a client sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Text, unescaped.
    Text(String),
    /// Content with elements, as XML that declares its namespaces itself.
    Xml(String),
}

/// Start of a tag's text that holds XML.
const XML_START: &str = "xml:";

impl Value {
    /// Returns the value as a tag. Text stays as it is, so that other protocols read it. XML is
    /// marked by `xml:`, and so is text that begins with that.
    pub fn to_tag(&self) -> Result<TagValue> {
        let value = TagValue::Text(match self {
            Value::Text(text) if !text.starts_with(XML_START) => text.clone(),
            Value::Text(text) => {
                let mut escaped = XML_START.as_bytes().to_vec();
                push_text(&mut escaped, text);
                String::from_utf8_lossy(&escaped).into_owned()
            }
            Value::Xml(xml) => format!("{XML_START}{xml}"),
        });
        value.check()?;
        Ok(value)
    }

    /// Returns the value of a tag. A text that is marked as XML and is none stays text.
    pub fn of_tag(value: &TagValue) -> Value {
        match value {
            TagValue::Text(text) => {
                text.strip_prefix(XML_START).and_then(fragment).unwrap_or_else(|| Value::Text(text.clone()))
            }
            TagValue::Integer(number) => Value::Text(number.to_string()),
            TagValue::Real(number) => Value::Text(number.to_string()),
            TagValue::Time(time) => Value::Text(time.to_string()),
            TagValue::Boolean(truth) => Value::Text(truth.to_string()),
        }
    }
}

/// Reads well-formed content of an element; none if it is anything else. Content without elements
/// is text.
pub(super) fn fragment(xml: &str) -> Option<Value> {
    let document = format!("<x>{xml}</x>");
    let mut reader = Document::of_text(&document).ok()?;
    let (mut text, mut elements) = (String::new(), 0);
    while let Some(node) = reader.next().ok()? {
        match node {
            Node::Start(_) => elements += 1,
            Node::Text(piece) => text.push_str(&piece),
            Node::End => {}
        }
    }
    Some(if elements > 1 { Value::Xml(xml.to_owned()) } else { Value::Text(text) })
}

/// Appends the value of a tag as the content of an element.
pub(super) fn push_value(out: &mut Vec<u8>, value: &TagValue) {
    match value {
        TagValue::Text(text) if !text.starts_with(XML_START) => push_text(out, text),
        other => match Value::of_tag(other) {
            Value::Text(text) => push_text(out, &text),
            Value::Xml(xml) => out.extend_from_slice(xml.as_bytes()),
        },
    }
}
