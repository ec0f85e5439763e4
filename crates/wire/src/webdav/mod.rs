//! WebDAV, as a name server speaks it: paths of URLs, bodies and headers of requests, bodies of
//! answers. Everything works on bytes in memory, so it can be tested and fuzzed on its own.
//!
//! Namespaces of properties: `DAV:`, `urn:exacat` for owner, group and mode, dCache's for checksums.
//! Other properties are tags of the catalogue ([`property`]).

mod date;
mod document;
pub mod headers;
pub mod limits;
pub mod metalink;
pub mod multistatus;
pub mod path;
pub mod property;
pub mod request;
pub mod status;
mod xml;

pub use date::{http_date, rfc3339_date};
pub use metalink::Metalink;
pub use multistatus::{Multistatus, Row};
pub use path::Destination;
pub use property::{Live, PropertyName, Value, dead_property_key, property_of_key};
pub use request::{Propfind, Update};

/// Returns the start of a client's text, for a message.
fn shown(text: &str) -> &str {
    &text[..text.floor_char_boundary(limits::SHOWN_BYTES_MAX)]
}
