//! Bodies of requests: PROPFIND and PROPPATCH. Unknown elements are ignored, as RFC 4918 demands;
//! malformed XML is refused.

use exacat_model::{Error, Result};

use super::document::{Document, Element, Node};
use super::limits::{PROPERTIES_MAX, VALUE_BYTES_MAX};
use super::property::{PropertyName, Value, fragment};
use super::xml::{push_attribute, push_text};

/// Properties that a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Propfind {
    /// All properties that are cheap to find, and these.
    All {
        /// Names of further properties.
        include: Vec<PropertyName>,
    },
    /// Names of all properties, without values.
    Names,
    /// Properties of these names.
    Properties(Vec<PropertyName>),
}

/// Change of one property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// Set it to this value.
    Set(PropertyName, Value),
    /// Remove it.
    Remove(PropertyName),
}

impl Update {
    /// Returns the name of the property.
    pub fn name(&self) -> &PropertyName {
        match self {
            Update::Set(name, _) | Update::Remove(name) => name,
        }
    }
}

/// Reads the body of PROPFIND. An empty one asks for all properties.
pub fn propfind(body: &[u8]) -> Result<Propfind> {
    if body.is_empty() {
        return Ok(Propfind::All { include: Vec::new() });
    }
    let mut document = Document::of_body(body)?;
    document.root("propfind")?;
    let mut asked = None;
    let mut include = None;
    while let Some(element) = document.child()? {
        let found = match element.dav() {
            Some("allprop") => Propfind::All { include: Vec::new() },
            Some("propname") => Propfind::Names,
            Some("prop") => Propfind::Properties(names(&mut document)?),
            Some("include") => {
                if include.replace(names(&mut document)?).is_some() {
                    return Err(Error::invalid("'propfind' has 'include' twice"));
                }
                continue;
            }
            _ => {
                document.skip()?;
                continue;
            }
        };
        if !matches!(found, Propfind::Properties(_)) {
            document.skip()?;
        }
        if asked.replace(found).is_some() {
            return Err(Error::invalid("'propfind' has more than one of 'allprop', 'propname' and 'prop'"));
        }
    }
    document.finish()?;
    match (asked, include) {
        (Some(Propfind::All { .. }), Some(include)) => Ok(Propfind::All { include }),
        (Some(_), Some(_)) => Err(Error::invalid("'propfind' has 'include' without 'allprop'")),
        (Some(asked), None) => Ok(asked),
        (None, _) => Err(Error::invalid("'propfind' has none of 'allprop', 'propname' and 'prop'")),
    }
}

fn check_count(count: usize) -> Result<()> {
    if count > PROPERTIES_MAX {
        return Err(Error::invalid(format!("the body names more than {PROPERTIES_MAX} properties")));
    }
    Ok(())
}

fn property_name(element: Element) -> PropertyName {
    PropertyName { namespace: element.namespace, name: element.local }
}

/// Reads the rest of an element whose children name properties. A name that comes twice counts once.
fn names(document: &mut Document<'_>) -> Result<Vec<PropertyName>> {
    let mut names = Vec::new();
    while let Some(element) = document.child()? {
        document.skip()?;
        let name = property_name(element);
        if !names.contains(&name) {
            names.push(name);
            check_count(names.len())?;
        }
    }
    Ok(names)
}

/// Reads the body of PROPPATCH: changes in the order in which they apply.
pub fn proppatch(body: &[u8]) -> Result<Vec<Update>> {
    let mut document = Document::of_body(body)?;
    document.root("propertyupdate")?;
    let mut updates = Vec::new();
    while let Some(element) = document.child()? {
        let is_set = element.is_dav("set");
        if !is_set && !element.is_dav("remove") {
            document.skip()?;
            continue;
        }
        while let Some(element) = document.child()? {
            if !element.is_dav("prop") {
                document.skip()?;
                continue;
            }
            while let Some(element) = document.child()? {
                let name = property_name(element);
                updates.push(if is_set {
                    Update::Set(name, value(&mut document)?)
                } else {
                    document.skip()?;
                    Update::Remove(name)
                });
                check_count(updates.len())?;
            }
        }
    }
    document.finish()?;
    if updates.is_empty() {
        return Err(Error::invalid("'propertyupdate' sets and removes no property"));
    }
    Ok(updates)
}

/// XML of a value, rebuilt from its parts. An element directly in the value declares the prefixes that
/// it uses and that elements around the value declare, so that it can stand anywhere.
struct Markup {
    xml: Vec<u8>,
    /// Names of the open elements.
    open: Vec<String>,
    /// Place for declarations, in the tag of the first open element.
    declare_at: usize,
    /// Declarations for that place.
    declarations: Vec<u8>,
    /// Prefixes that these declare.
    declared: Vec<String>,
    /// Depth of the element that has the value.
    outside: usize,
    has_elements: bool,
}

impl Markup {
    fn open(&mut self, document: &Document<'_>, element: &Element) {
        self.has_elements = true;
        self.xml.push(b'<');
        let name = element.written();
        self.xml.extend_from_slice(name.as_bytes());
        if self.open.is_empty() {
            self.declare_at = self.xml.len();
        }
        self.open.push(name);
        self.declare(document, &element.prefix);
        for (name, value) in &element.attributes {
            if let Some((prefix, _)) = name.split_once(':')
                && prefix != "xmlns"
            {
                self.declare(document, prefix);
            }
            self.xml.push(b' ');
            self.xml.extend_from_slice(name.as_bytes());
            self.xml.extend_from_slice(b"=\"");
            push_attribute(&mut self.xml, value);
            self.xml.push(b'"');
        }
        self.xml.push(b'>');
    }

    fn declare(&mut self, document: &Document<'_>, prefix: &str) {
        let Some((namespace, depth)) = document.declared(prefix) else { return };
        let is_known = prefix == "xml" || self.declared.iter().any(|known| known == prefix);
        if depth > self.outside || is_known || namespace.is_empty() {
            return;
        }
        self.declared.push(prefix.to_owned());
        self.declarations.extend_from_slice(b" xmlns");
        if !prefix.is_empty() {
            self.declarations.push(b':');
            self.declarations.extend_from_slice(prefix.as_bytes());
        }
        self.declarations.extend_from_slice(b"=\"");
        push_attribute(&mut self.declarations, namespace);
        self.declarations.push(b'"');
    }

    /// Closes the last open element. Says whether there was one.
    fn close(&mut self) -> bool {
        let Some(name) = self.open.pop() else { return false };
        self.xml.extend_from_slice(b"</");
        self.xml.extend_from_slice(name.as_bytes());
        self.xml.push(b'>');
        if self.open.is_empty() {
            self.xml.splice(self.declare_at..self.declare_at, self.declarations.drain(..));
            self.declared.clear();
        }
        true
    }
}

/// Reads the rest of an element as a value.
fn value(document: &mut Document<'_>) -> Result<Value> {
    let mut text = String::new();
    let mut markup = Markup {
        xml: Vec::new(),
        open: Vec::new(),
        declare_at: 0,
        declarations: Vec::new(),
        declared: Vec::new(),
        outside: document.depth(),
        has_elements: false,
    };
    while let Some(node) = document.next()? {
        match node {
            Node::Text(piece) => {
                push_text(&mut markup.xml, &piece);
                text.push_str(&piece);
            }
            Node::Start(element) => markup.open(document, &element),
            Node::End if markup.close() => {}
            Node::End => break,
        }
        let bytes =
            if markup.has_elements { markup.xml.len() + markup.declarations.len() } else { text.len() };
        if bytes > VALUE_BYTES_MAX {
            return Err(Error::limit("the length of a property's value in bytes", bytes, VALUE_BYTES_MAX));
        }
    }
    if !markup.has_elements {
        return Ok(Value::Text(text));
    }
    // Declarations were added, so the limits may be exceeded now. Such a value would not read back.
    String::from_utf8(markup.xml)
        .ok()
        .filter(|xml| fragment(xml).is_some())
        .map(Value::Xml)
        .ok_or_else(|| Error::invalid("the value of a property needs too many namespace declarations"))
}
