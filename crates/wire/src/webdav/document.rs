//! Strict reader of small XML documents, over quick-xml. It adds the rules that quick-xml leaves to its
//! caller: characters, names, namespaces, one root, and limits. It never fetches or expands anything.

use std::borrow::Cow;

use exacat_model::{Error, Result};
use quick_xml::Reader;
use quick_xml::events::attributes::Attributes;
use quick_xml::events::{BytesDecl, BytesStart, Event};

use super::limits::{
    ATTRIBUTES_MAX, BODY_BYTES_MAX, DECLARATIONS_MAX, ELEMENT_DEPTH_MAX, ELEMENT_NAME_BYTES_MAX,
    NAMESPACE_BYTES_MAX,
};
use super::shown;
use super::xml::{XML_NAMESPACE, XMLNS_NAMESPACE, is_blank, is_char, is_name};

/// Namespace of WebDAV.
pub const DAV: &str = "DAV:";

/// Part of a document. Comments and processing instructions are left out.
#[derive(Debug)]
pub(super) enum Node<'a> {
    Start(Element),
    End,
    /// A piece of text; the text of one element may come in several.
    Text(Cow<'a, str>),
}

/// Start of an element.
#[derive(Debug)]
pub(super) struct Element {
    /// Name of its namespace; empty for none.
    pub namespace: String,
    /// Prefix that the document uses; empty for none.
    pub prefix: String,
    /// Name in the namespace.
    pub local: String,
    /// Attributes as written, namespace declarations included, with unescaped values.
    pub attributes: Vec<(String, String)>,
}

/// Declaration of a prefix.
struct Declaration {
    /// Depth of the element that has it.
    depth: usize,
    /// The prefix; empty for the default namespace.
    prefix: String,
    /// The namespace; empty for none.
    namespace: String,
}

/// Document that is being read. After an error it must not be read further.
pub(super) struct Document<'a> {
    reader: Reader<&'a [u8]>,
    depth: usize,
    is_begun: bool,
    has_root: bool,
    declarations: Vec<Declaration>,
}

fn malformed(why: impl std::fmt::Display) -> Error {
    Error::invalid(format!("the body is not well-formed XML: {}", shown(&why.to_string())))
}

impl<'a> Document<'a> {
    /// Begins to read a body of bytes.
    pub(crate) fn of_body(body: &'a [u8]) -> Result<Self> {
        if body.len() > BODY_BYTES_MAX {
            return Err(Error::limit("the length of a body in bytes", body.len(), BODY_BYTES_MAX));
        }
        let text = std::str::from_utf8(body)
            .map_err(|_| Error::invalid("the body is not UTF-8, the only encoding accepted"))?;
        Document::of_text(text)
    }

    /// Begins to read a text.
    pub(crate) fn of_text(text: &'a str) -> Result<Self> {
        if let Some(letter) = text.chars().find(|letter| !is_char(*letter)) {
            return Err(malformed(format_args!("it has the character {letter:?}, which XML forbids")));
        }
        let mut reader = Reader::from_str(text);
        let config = reader.config_mut();
        config.expand_empty_elements = true;
        config.check_comments = true;
        Ok(Document { reader, depth: 0, is_begun: false, has_root: false, declarations: Vec::new() })
    }

    /// Returns the number of open elements.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// Returns the namespace of a prefix, and the depth of the element that declares it.
    pub(crate) fn declared(&self, prefix: &str) -> Option<(&str, usize)> {
        if prefix == "xml" {
            return Some((XML_NAMESPACE, 0));
        }
        let declaration = self.declarations.iter().rev().find(|known| known.prefix == prefix)?;
        Some((&declaration.namespace, declaration.depth))
    }

    /// Returns the next part; none at the end of the document.
    pub(crate) fn next(&mut self) -> Result<Option<Node<'a>>> {
        loop {
            let is_first = !std::mem::replace(&mut self.is_begun, true);
            let text = match self.reader.read_event().map_err(malformed)? {
                Event::Start(tag) | Event::Empty(tag) => return self.open(&tag).map(Node::Start).map(Some),
                Event::End(_) => {
                    while self.declarations.last().is_some_and(|known| known.depth >= self.depth) {
                        self.declarations.pop();
                    }
                    self.depth = self.depth.saturating_sub(1);
                    return Ok(Some(Node::End));
                }
                Event::Text(text) if text.contains("]]>") => {
                    return Err(malformed("text contains ']]>'"));
                }
                Event::Text(text) if self.depth == 0 && text.bytes().all(is_blank) => continue,
                Event::Text(text) => text.xml10_content(),
                Event::CData(text) => text.xml10_content(),
                Event::GeneralRef(name) => Cow::Owned(reference(&name)?.to_string()),
                Event::Comment(_) => continue,
                Event::PI(instruction) => {
                    if !is_name(instruction.target()) || instruction.target().eq_ignore_ascii_case("xml") {
                        return Err(malformed("a processing instruction has no valid name"));
                    }
                    continue;
                }
                Event::Decl(declaration) if is_first => {
                    check_declaration(&declaration)?;
                    continue;
                }
                Event::Decl(_) => return Err(malformed("an XML declaration is not at the start")),
                Event::DocType(_) => {
                    return Err(Error::invalid("the body has a DOCTYPE, which the server does not accept"));
                }
                Event::Eof if self.depth > 0 => return Err(malformed("it ends inside an element")),
                Event::Eof if !self.has_root => return Err(malformed("it has no element")),
                Event::Eof => return Ok(None),
            };
            if self.depth == 0 {
                return Err(malformed("it has text outside of its root element"));
            }
            return Ok(Some(Node::Text(text)));
        }
    }

    /// Reads the root element, which must have this name in the namespace `DAV:`.
    pub(crate) fn root(&mut self, name: &str) -> Result<()> {
        match self.next()? {
            Some(Node::Start(root)) if root.is_dav(name) => Ok(()),
            Some(Node::Start(root)) => Err(Error::invalid(format!(
                "the root element of the body is {:?} in namespace {:?}, not {name:?} in \"DAV:\"",
                root.local,
                shown(&root.namespace)
            ))),
            _ => Err(malformed("it has no element")),
        }
    }

    /// Returns the next child of the current element, or reads its end and returns none. Ignores
    /// text.
    pub(crate) fn child(&mut self) -> Result<Option<Element>> {
        loop {
            match self.next()? {
                Some(Node::Start(element)) => return Ok(Some(element)),
                Some(Node::Text(_)) => {}
                Some(Node::End) | None => return Ok(None),
            }
        }
    }

    /// Reads the rest of the current element.
    pub(crate) fn skip(&mut self) -> Result<()> {
        let outside = self.depth.saturating_sub(1);
        while self.depth > outside && self.next()?.is_some() {}
        Ok(())
    }

    /// Checks that nothing but comments and white space follows the root element.
    pub(crate) fn finish(mut self) -> Result<()> {
        while self.next()?.is_some() {}
        Ok(())
    }

    fn open(&mut self, tag: &BytesStart<'_>) -> Result<Element> {
        if self.depth == 0 && self.has_root {
            return Err(malformed("it has two root elements"));
        }
        if self.depth >= ELEMENT_DEPTH_MAX {
            return Err(Error::invalid(format!(
                "elements of the body are nested deeper than {ELEMENT_DEPTH_MAX}"
            )));
        }
        self.has_root = true;
        self.depth += 1;
        let name = tag.name();
        let (prefix, local) = qualified(name.into_inner())?;
        if prefix == "xmlns" {
            return Err(malformed("an element has the prefix 'xmlns'"));
        }
        let attributes = attributes(tag.attributes(), tag.attributes_raw())?;
        for (name, value) in &attributes {
            match name.strip_prefix("xmlns") {
                Some("") => self.declare("", value)?,
                Some(rest) if rest.starts_with(':') => self.declare(&rest[1..], value)?,
                _ => {}
            }
        }
        self.check_attributes(&attributes)?;
        let namespace = self.namespace(prefix)?.to_owned();
        Ok(Element { namespace, prefix: prefix.to_owned(), local: local.to_owned(), attributes })
    }

    fn namespace(&self, prefix: &str) -> Result<&str> {
        match self.declared(prefix) {
            Some((namespace, _)) => Ok(namespace),
            None if prefix.is_empty() => Ok(""),
            None => Err(Error::invalid(format!("the body uses the prefix {prefix:?} without declaring it"))),
        }
    }

    fn declare(&mut self, prefix: &str, namespace: &str) -> Result<()> {
        let bad =
            |why: &str| Error::invalid(format!("the body declares the namespace prefix {prefix:?} {why}"));
        if namespace.len() > NAMESPACE_BYTES_MAX {
            return Err(bad(&format!("with more than {NAMESPACE_BYTES_MAX} bytes")));
        }
        match (prefix, namespace) {
            ("xml", XML_NAMESPACE) => return Ok(()),
            ("xml" | "xmlns", _) | (_, XML_NAMESPACE | XMLNS_NAMESPACE) => {
                return Err(bad("against the rules for 'xml' and 'xmlns'"));
            }
            ("", _) => {}
            (_, "") => return Err(bad("as empty")),
            _ => {}
        }
        if self.declarations.len() >= DECLARATIONS_MAX {
            return Err(bad(&format!("as one of more than {DECLARATIONS_MAX} in scope")));
        }
        self.declarations.push(Declaration {
            depth: self.depth,
            prefix: prefix.to_owned(),
            namespace: namespace.to_owned(),
        });
        Ok(())
    }

    /// Checks that prefixes of attributes are declared, and that no two of them mean the same.
    fn check_attributes(&self, attributes: &[(String, String)]) -> Result<()> {
        let mut seen: Vec<(&str, &str)> = Vec::new();
        for (name, _) in attributes {
            let (prefix, local) = qualified(name)?;
            if prefix.is_empty() || prefix == "xmlns" {
                continue;
            }
            let expanded = (self.namespace(prefix)?, local);
            if seen.contains(&expanded) {
                return Err(malformed("an element has an attribute twice"));
            }
            seen.push(expanded);
        }
        Ok(())
    }
}

impl Element {
    /// Says whether this is the element of that name in the namespace `DAV:`.
    pub(crate) fn is_dav(&self, name: &str) -> bool {
        self.dav() == Some(name)
    }

    /// Returns the name if the namespace is `DAV:`.
    pub(crate) fn dav(&self) -> Option<&str> {
        (self.namespace == DAV).then_some(self.local.as_str())
    }

    /// Returns the name as the document writes it, with its prefix.
    pub(crate) fn written(&self) -> String {
        match self.prefix.as_str() {
            "" => self.local.clone(),
            prefix => format!("{prefix}:{}", self.local),
        }
    }
}

/// Splits a qualified name into prefix and local name, and checks both.
fn qualified(name: &str) -> Result<(&str, &str)> {
    if name.len() > ELEMENT_NAME_BYTES_MAX {
        return Err(Error::invalid(format!(
            "a name in the body has {} bytes, the limit is {ELEMENT_NAME_BYTES_MAX}",
            name.len()
        )));
    }
    let (prefix, local) = name.split_once(':').unwrap_or(("", name));
    if !is_name(local) || (local.len() < name.len() && !is_name(prefix)) {
        return Err(malformed(format_args!("{name:?} is no name of an element or attribute")));
    }
    Ok((prefix, local))
}

/// Reads the attributes of a tag.
fn attributes(mut list: Attributes<'_>, raw: &str) -> Result<Vec<(String, String)>> {
    if !has_gaps(raw) {
        return Err(malformed("no white space is between two attributes"));
    }
    // This function looks for duplicates itself, because it limits the number first.
    list.with_checks(false);
    let mut found: Vec<(String, String)> = Vec::new();
    for attribute in list {
        let attribute = attribute.map_err(malformed)?;
        let name = attribute.key.into_inner();
        qualified(name)?;
        if found.len() >= ATTRIBUTES_MAX {
            return Err(Error::invalid(format!(
                "an element of the body has more than {ATTRIBUTES_MAX} attributes"
            )));
        }
        if found.iter().any(|(known, _)| known == name) {
            return Err(malformed("an element has an attribute twice"));
        }
        found.push((name.to_owned(), attribute_value(&attribute.value)?));
    }
    Ok(found)
}

/// Says whether white space or the end follows each quoted value.
fn has_gaps(raw: &str) -> bool {
    let mut quote = None;
    let mut is_closed = false;
    for byte in raw.bytes() {
        match quote {
            Some(open) if open == byte => (quote, is_closed) = (None, true),
            Some(_) => {}
            None if is_closed && !is_blank(byte) => return false,
            None => {
                is_closed = false;
                quote = matches!(byte, b'"' | b'\'').then_some(byte);
            }
        }
    }
    true
}

/// Unescapes the value of an attribute. White space becomes blanks, as XML demands.
fn attribute_value(raw: &str) -> Result<String> {
    if raw.contains('<') {
        return Err(malformed("the value of an attribute contains '<'"));
    }
    let with_blanks = |text: &str| text.replace("\r\n", " ").replace(['\t', '\n', '\r'], " ");
    let mut value = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((before, behind)) = rest.split_once('&') {
        value.push_str(&with_blanks(before));
        let (name, after) = behind.split_once(';').ok_or_else(|| malformed("'&' is not escaped"))?;
        value.push(reference(name)?);
        rest = after;
    }
    value.push_str(&with_blanks(rest));
    Ok(value)
}

/// Returns the character that a reference stands for: the text between `&` and `;`.
fn reference(name: &str) -> Result<char> {
    let number = |digits: &str, radix: u32| {
        let good = digits.chars().all(|digit| digit.is_digit(radix));
        good.then(|| u32::from_str_radix(digits, radix).ok()).flatten().and_then(char::from_u32)
    };
    let letter = match name {
        "lt" => Some('<'),
        "gt" => Some('>'),
        "amp" => Some('&'),
        "apos" => Some('\''),
        "quot" => Some('"'),
        _ => match (name.strip_prefix("#x"), name.strip_prefix('#')) {
            (Some(digits), _) => number(digits, 16),
            (None, Some(digits)) => number(digits, 10),
            (None, None) => {
                return Err(Error::invalid(format!(
                    "the body refers to the entity {:?}, which the server does not accept",
                    shown(name)
                )));
            }
        },
    };
    letter.filter(|letter| is_char(*letter)).ok_or_else(|| malformed("a reference names no character of XML"))
}

/// Checks the XML declaration: version 1.0, and UTF-8 if it names an encoding.
fn check_declaration(declaration: &BytesDecl<'_>) -> Result<()> {
    let raw = declaration.strip_prefix("xml").unwrap_or_default();
    let found = attributes(Attributes::new(raw, 0), raw)?;
    let mut rest = found.as_slice();
    match rest.split_first() {
        Some(((name, version), behind)) if name == "version" && version == "1.0" => rest = behind,
        _ => return Err(Error::invalid("the body does not declare version 1.0 of XML")),
    }
    if let Some(((name, encoding), behind)) = rest.split_first()
        && name == "encoding"
    {
        if !encoding.eq_ignore_ascii_case("utf-8") {
            return Err(Error::invalid(format!(
                "the body declares the encoding {:?}; send UTF-8, the only one accepted",
                shown(encoding)
            )));
        }
        rest = behind;
    }
    match rest {
        [] => Ok(()),
        [(name, value)] if name == "standalone" && matches!(value.as_str(), "yes" | "no") => Ok(()),
        _ => Err(malformed("its XML declaration has an unknown or misplaced part")),
    }
}
