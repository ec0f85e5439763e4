//! Limits of WebDAV requests.

/// Bytes of a request's body.
pub const BODY_BYTES_MAX: usize = 256 << 10;
/// Depth of the elements in a body.
pub const ELEMENT_DEPTH_MAX: usize = 32;
/// Attributes of one element, with its namespace declarations.
pub const ATTRIBUTES_MAX: usize = 64;
/// Namespace declarations in scope at once. Bounds the cost of resolving a prefix.
pub const DECLARATIONS_MAX: usize = 128;
/// Bytes of a namespace's name.
pub const NAMESPACE_BYTES_MAX: usize = 1024;
/// Bytes of the name of an element or attribute, prefix included.
pub const ELEMENT_NAME_BYTES_MAX: usize = 255;
/// Properties that one request names.
pub const PROPERTIES_MAX: usize = 256;
/// Bytes of a property's value. A tag holds it, and
/// [`Value::to_tag`](super::Value::to_tag) checks the tag's own limit again.
pub const VALUE_BYTES_MAX: usize = exacat_model::limits::TAG_TEXT_BYTES_MAX;
/// Bytes of a client's text that a message repeats.
pub const SHOWN_BYTES_MAX: usize = 200;
