//! Answers of WebDAV: every document is well-formed whatever is in it, and says what it should.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use exacat_model::answer::Stat;
use exacat_model::{
    AccountName, At, Body, Checksum, Checksums, DirId, Entry, File, GroupId, Guid, Lfn, Mode, Name, Revision,
    Tag, TagKey, TagValue, TimeMs, UserId,
};
use exacat_wire::webdav::property::{DAV, DCACHE, EXACAT, LCGDM, TAGS};
use exacat_wire::webdav::request::propfind;
use exacat_wire::webdav::status::{Precondition, error, failures, proppatch, push_failure};
use exacat_wire::webdav::{
    Live, Metalink, Multistatus, PropertyName, Propfind, Row, dead_property_key, path,
};
use quick_xml::NsReader;
use quick_xml::events::Event;
use quick_xml::name::ResolveResult;

/// Returns a document as lines of `{namespace}name`, indented, with the text behind `=`. Panics if it is
/// not well-formed.
fn outline(document: &[u8]) -> String {
    let text = std::str::from_utf8(document).unwrap();
    let mut reader = NsReader::from_str(text);
    reader.config_mut().check_comments = true;
    reader.config_mut().expand_empty_elements = true;
    let (mut lines, mut depth, mut roots) = (String::new(), 0, 0);
    let mut is_empty = true;
    let push = |lines: &mut String, text: &str, is_empty: &mut bool| {
        if std::mem::take(is_empty) {
            lines.push('=');
        }
        lines.push_str(text);
    };
    loop {
        let event = reader.read_event().unwrap();
        match event {
            Event::Start(tag) => {
                let (namespace, local) = reader.resolver().resolve_element(tag.name());
                let namespace = match namespace {
                    ResolveResult::Bound(namespace) => {
                        quick_xml::escape::unescape(namespace.into_inner()).unwrap().into_owned()
                    }
                    ResolveResult::Unbound => String::new(),
                    ResolveResult::Unknown(prefix) => panic!("the prefix {prefix} is not declared in {text}"),
                };
                roots += usize::from(depth == 0);
                lines.push_str(&format!("\n{}", " ".repeat(depth)));
                if namespace != DAV {
                    lines.push_str(&format!("{{{namespace}}}"));
                }
                lines.push_str(local.into_inner());
                for attribute in tag.attributes().map(Result::unwrap) {
                    if !attribute.key.into_inner().starts_with("xmlns") {
                        let value = attribute.normalized_value(quick_xml::XmlVersion::Explicit1_0).unwrap();
                        lines.push_str(&format!(" {}={value:?}", attribute.key.into_inner()));
                    }
                }
                is_empty = true;
                depth += 1;
            }
            Event::End(_) => depth -= 1,
            Event::Text(text) if depth > 1 => push(&mut lines, &text.xml10_content(), &mut is_empty),
            Event::Text(text) => assert!(text.trim().is_empty(), "{text:?}"),
            Event::GeneralRef(name) => {
                let letter = name.resolve_char_ref().unwrap().map(String::from);
                let known = quick_xml::escape::resolve_xml_entity(&name).map(str::to_owned);
                push(&mut lines, &letter.or(known).unwrap(), &mut is_empty);
            }
            Event::Decl(_) => {}
            Event::Eof => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((depth, roots), (0, 1), "{text}");
    lines.trim_start().to_owned()
}

fn answer(request: &Propfind, rows: &[Row<'_>]) -> String {
    let mut writer = Multistatus::new(request);
    let mut out = Vec::new();
    writer.begin(&mut out);
    for row in rows {
        // Each part goes out on its own, as a server sends it.
        let mut part = Vec::new();
        writer.response(&mut part, row);
        out.extend_from_slice(&part);
    }
    writer.end(&mut out);
    outline(&out)
}

fn names(list: &[(&str, &str)]) -> Propfind {
    Propfind::Properties(list.iter().map(|(namespace, name)| PropertyName::new(*namespace, *name)).collect())
}

const ROW: Row<'static> = Row {
    base: "/dav/d/",
    path: "x y.root",
    name: "x y.root",
    is_directory: false,
    size: Some(1_234_567_890_123),
    modified: TimeMs(1_414_153_225_000),
    created: TimeMs(1_414_153_226_999),
    etag: "7-12",
    quota_used: None,
    quota_available: None,
    owner: "jdoe",
    group: "alice",
    mode: 0o640,
    checksums: None,
    tags: &[],
};

const DIRECTORY: Row<'static> = Row {
    base: "/dav",
    path: "/",
    name: "/",
    is_directory: true,
    size: None,
    mode: 0o1755,
    quota_used: Some(5),
    quota_available: Some(u64::MAX),
    ..ROW
};

fn sums() -> Checksums {
    let mut sums = Checksums::one(Checksum::parse("adler32:0a1af2bf").unwrap());
    sums.add(Checksum::parse("md5:d41d8cd98f00b204e9800998ecf8427e").unwrap()).unwrap();
    sums
}

fn tag(key: &str, value: TagValue) -> Tag {
    Tag { key: TagKey::parse(key).unwrap(), value }
}

fn property_tag(namespace: &str, name: &str, value: &str) -> Tag {
    let key = dead_property_key(&PropertyName::new(namespace, name)).unwrap();
    Tag { key, value: TagValue::Text(value.to_owned()) }
}

fn sorted(mut tags: Vec<Tag>) -> Vec<Tag> {
    tags.sort_by(|a, b| a.key.cmp(&b.key));
    tags
}

#[test]
fn all_properties_are_those_that_are_cheap_and_the_tags() {
    let sums = sums();
    let tags = sorted(vec![
        tag("campaign", TagValue::Integer(7)),
        property_tag("urn:x", "note", "a < b"),
        property_tag("", "plain", "xml:<f xmlns=\"urn:f\"/>"),
    ]);
    let all = Propfind::All { include: vec![] };
    let row = Row { checksums: Some(&sums), tags: &tags, ..ROW };
    assert_eq!(
        answer(&all, &[row]),
        "multistatus
 response
  href=/dav/d/x%20y.root
  propstat
   prop
    displayname=x y.root
    resourcetype
    getcontentlength=1234567890123
    getlastmodified=Fri, 24 Oct 2014 12:20:25 GMT
    creationdate=2014-10-24T12:20:26Z
    getetag=\"7-12\"
    getcontenttype=application/octet-stream
    {urn:exacat}owner=jdoe
    {urn:exacat}group=alice
    {urn:exacat}mode=100640
    {urn:exacat:tags}campaign=7
    {}plain
     {urn:f}f
    {urn:x}note=a < b
   status=HTTP/1.1 200 OK"
    );
    // A directory has no length. Only the answer to a client that names it says so.
    assert!(!answer(&all, &[DIRECTORY]).contains("404"));
    let with_more = Propfind::All {
        include: vec![
            PropertyName::new(DAV, "displayname"),
            PropertyName::new(DCACHE, "Checksums"),
            PropertyName::new("urn:x", "note"),
            PropertyName::new("urn:x", "absent"),
        ],
    };
    let found = answer(&with_more, &[row]);
    assert_eq!(found.matches("displayname").count(), 1);
    assert_eq!(found.matches("}note=a < b").count(), 1);
    assert!(found.contains(
        "{http://www.dcache.org/2013/webdav}Checksums=adler32=0a1af2bf,md5=1B2M2Y8AsgTpgAmY7PhCfg=="
    ));
    assert!(
        found.ends_with("\n  propstat\n   prop\n    {urn:x}absent\n   status=HTTP/1.1 404 Not Found"),
        "{found}"
    );
}

#[test]
fn directories_say_so_and_have_quotas_if_asked() {
    let asked = names(&[
        (DAV, "resourcetype"),
        (DAV, "getcontentlength"),
        (DAV, "getcontenttype"),
        (DAV, "quota-used-bytes"),
        (DAV, "quota-available-bytes"),
        (EXACAT, "mode"),
        (LCGDM, "mode"),
        (DAV, "owner"),
    ]);
    assert_eq!(
        answer(&asked, &[DIRECTORY]),
        "multistatus
 response
  href=/dav/
  propstat
   prop
    resourcetype
     collection
    getcontenttype=httpd/unix-directory
    quota-used-bytes=5
    quota-available-bytes=18446744073709551615
    {urn:exacat}mode=041755
    {LCGDM:}mode=041755
   status=HTTP/1.1 200 OK
  propstat
   prop
    getcontentlength
    owner
   status=HTTP/1.1 404 Not Found"
    );
    for (base, path, href) in [("/dav/a/", "b", "/dav/a/b/"), ("/dav/a/", "", "/dav/a/"), ("", "/a", "/a/")] {
        let found = answer(&names(&[]), &[Row { base, path, ..DIRECTORY }]);
        assert!(found.contains(&format!("href={href}\n")), "{found}");
    }
}

#[test]
fn names_without_values_are_those_of_existing_properties() {
    let tags = [property_tag("urn:x", "note", "secret")];
    let row = Row { size: None, etag: "", tags: &tags, ..ROW };
    let found = answer(&Propfind::Names, &[row]);
    for present in
        ["displayname\n", "resourcetype\n", "getlastmodified\n", "{urn:exacat}owner\n", "{urn:x}note\n"]
    {
        assert!(found.contains(present), "{present}");
    }
    for absent in ["getcontentlength", "getetag", "quota", "Checksums", "404", "secret", "jdoe"] {
        assert!(!found.contains(absent), "{absent}");
    }
}

#[test]
fn a_request_for_nothing_or_for_missing_ones_has_one_propstat() {
    let found = answer(&names(&[]), &[ROW]);
    assert_eq!(found.matches("propstat").count(), 1);
    assert!(found.ends_with("prop\n   status=HTTP/1.1 200 OK"), "{found}");
    let found = answer(&names(&[("urn:x", "a"), ("", "b"), ("urn:x", "c")]), &[ROW, ROW]);
    assert_eq!(found.matches("propstat").count(), 2);
    assert_eq!(
        found.matches("    {urn:x}a\n    {}b\n    {urn:x}c\n   status=HTTP/1.1 404").count(),
        2,
        "{found}"
    );
}

#[test]
fn the_writer_says_what_a_row_needs() {
    let some = Multistatus::new(&names(&[(DAV, "quota-used-bytes"), ("urn:x", "a")]));
    assert!(some.wants(Live::QuotaUsed) && !some.wants(Live::Checksums) && some.wants_tags());
    let all = Multistatus::new(&Propfind::All { include: vec![] });
    assert!(!all.wants(Live::QuotaUsed) && all.wants(Live::Owner) && all.wants_tags());
    assert!(!Multistatus::new(&names(&[(DAV, "getetag")])).wants_tags());
}

/// Goal: a short request does not cause long rows: a namespace is declared once for the document.
#[test]
fn long_namespaces_are_declared_once() {
    let namespace = "n".repeat(1000);
    let list: Vec<(&str, &str)> = ["a", "b", "c"].map(|name| (namespace.as_str(), name)).to_vec();
    let mut writer = Multistatus::new(&names(&list));
    let mut out = Vec::new();
    writer.begin(&mut out);
    let start = out.len();
    writer.response(&mut out, &ROW);
    assert!(start > 1000 && out.len() - start < 300);
    writer.end(&mut out);
    assert!(outline(&out).contains(&format!("{{{namespace}}}b")));
}

/// Names and values with every kind of odd character.
const ODD: &[&str] = &[
    "a\nb\tc\rd",
    "\"'<>&",
    "]]><![CDATA[",
    "<!-- --> <?x?> &amp; &#0;",
    "\u{200F}\u{202E}\u{2066}",
    "\u{1}\u{8}\u{1F}\u{7F}\u{85}\u{FFFE}\u{FFFF}",
    "\u{FEFF}ż\u{10FFFF}",
    "%2F ?#",
];

#[test]
fn documents_are_well_formed_whatever_the_texts() {
    let long = "\u{202E}".repeat(85);
    for text in ODD.iter().copied().chain([long.as_str()]) {
        let kept: String = text
            .chars()
            .map(|letter| {
                let is_forbidden =
                    (letter < ' ' && !"\t\n\r".contains(letter)) || "\u{FFFE}\u{FFFF}".contains(letter);
                if is_forbidden { '\u{FFFD}' } else { letter }
            })
            .collect();
        let tags = sorted(vec![
            tag("t", TagValue::Text(text.to_owned())),
            tag("u", TagValue::Text(format!("xml:{text}"))),
            tag("v", TagValue::Text(format!("xml:<p:a>{text}"))),
        ]);
        let row = Row { path: text, name: text, etag: text, owner: text, group: text, tags: &tags, ..ROW };
        let found = answer(&Propfind::All { include: vec![PropertyName::new("a<&\">", "x")] }, &[row]);
        assert!(found.contains(&format!("displayname={kept}\n")), "{found:?}");
        assert!(found.contains(&format!("{{{TAGS}}}t={kept}\n")), "{found:?}");
        assert!(found.contains("{a<&\">}x"), "{found:?}");
        let href = found.split("href=").nth(1).unwrap().split('\n').next().unwrap();
        assert_eq!(path::decode(href, "/dav").unwrap().split_last(), Some(("/d", text)));
        answer(&Propfind::Names, &[row]);

        let mut out = Vec::new();
        failures(&mut out, &[(text.to_owned(), 423), ("/b".to_owned(), 599)]);
        assert!(outline(&out).contains(&format!("href={kept}\n  status=HTTP/1.1 423 Locked\n")));
        let mut out = Vec::new();
        proppatch(
            &mut out,
            text,
            &[(PropertyName::new(text, text), 200), (PropertyName::new(TAGS, "a"), 200)],
        );
        assert!(outline(&out).contains("{urn:exacat:tags}a"));
        let mut out = Vec::new();
        Metalink { name: text, size: None, checksums: &sums(), urls: &[text.to_owned()] }.write(&mut out);
        outline(&out);
    }
}

#[test]
fn reserved_namespaces_of_xml_are_not_declared_again() {
    const XML: &str = "http://www.w3.org/XML/1998/namespace";
    let asked = propfind(b"<D:propfind xmlns:D='DAV:'><D:prop><xml:a/></D:prop></D:propfind>").unwrap();
    let tags = [property_tag(XML, "b", "v")];
    let mut out = Vec::new();
    for request in [asked, Propfind::All { include: vec![] }] {
        let mut writer = Multistatus::new(&request);
        writer.begin(&mut out);
        writer.response(&mut out, &Row { tags: &tags, ..ROW });
    }
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("<xml:a/>") && text.contains("<xml:b>v</xml:b>") && !text.contains(XML), "{text}");
}

#[test]
fn failures_and_refusals_have_their_bodies() {
    let mut out = Vec::new();
    failures(&mut out, &[("/dav/a%20b".to_owned(), 403), ("/dav/c/".to_owned(), 424)]);
    assert_eq!(
        outline(&out),
        "multistatus
 response
  href=/dav/a%20b
  status=HTTP/1.1 403 Forbidden
 response
  href=/dav/c/
  status=HTTP/1.1 424 Failed Dependency"
    );
    let mut out = Vec::new();
    error(&mut out, Precondition::PropfindFiniteDepth);
    assert_eq!(outline(&out), "error\n propfind-finite-depth");
    // A listing that fails halfway still is a document.
    let mut writer = Multistatus::new(&names(&[]));
    let mut out = Vec::new();
    writer.begin(&mut out);
    writer.response(&mut out, &ROW);
    push_failure(&mut out, "/dav/d/", 507);
    writer.end(&mut out);
    assert!(outline(&out).ends_with(" response\n  href=/dav/d/\n  status=HTTP/1.1 507 Insufficient Storage"));
}

#[test]
fn one_failed_update_fails_the_others() {
    let a = PropertyName::new("urn:x", "a");
    let owner = PropertyName::new(EXACAT, "owner");
    let mut out = Vec::new();
    proppatch(&mut out, "/dav/f", &[(a.clone(), 200), (PropertyName::new("", "b"), 200)]);
    assert_eq!(
        outline(&out),
        "multistatus
 response
  href=/dav/f
  propstat
   prop
    {urn:x}a
    {}b
   status=HTTP/1.1 200 OK"
    );
    let mut out = Vec::new();
    proppatch(&mut out, "/dav/f", &[(a, 200), (owner, 403), (PropertyName::new("urn:x", "c"), 507)]);
    assert_eq!(
        outline(&out),
        "multistatus
 response
  href=/dav/f
  propstat
   prop
    {urn:x}a
   status=HTTP/1.1 424 Failed Dependency
  propstat
   prop
    {urn:exacat}owner
   status=HTTP/1.1 403 Forbidden
   error
    cannot-modify-protected-property
  propstat
   prop
    {urn:x}c
   status=HTTP/1.1 507 Insufficient Storage"
    );
}

#[test]
fn a_metalink_names_the_file_and_its_places() {
    let urls = ["https://a.example/x?authz=1&b=<2>".to_owned(), "root://b.example//x".to_owned()];
    let mut out = Vec::new();
    Metalink { name: "x \"1\"\n.root", size: Some(7), checksums: &sums(), urls: &urls }.write(&mut out);
    assert_eq!(
        outline(&out).replace("{urn:ietf:params:xml:ns:metalink}", ""),
        "metalink
 file name=\"x \\\"1\\\"\\n.root\"
  size=7
  hash type=\"adler32\"=0a1af2bf
  hash type=\"md5\"=d41d8cd98f00b204e9800998ecf8427e
  url priority=\"1\"=https://a.example/x?authz=1&b=<2>
  url priority=\"2\"=root://b.example//x"
    );
    let mut out = Vec::new();
    Metalink { name: "x", size: None, checksums: &Checksums::none(), urls: &[] }.write(&mut out);
    assert!(!outline(&out).contains("size"));
}

#[test]
fn a_stat_becomes_a_row() {
    let stat = |lfn: &str, body: Body| Stat {
        lfn: Lfn::parse(lfn).unwrap(),
        owner: AccountName::parse("jdoe").unwrap(),
        group: AccountName::parse("alice").unwrap(),
        entry: Entry {
            at: At { parent: DirId(1), name: Name::parse("n").unwrap() },
            owner: UserId(1),
            group: GroupId(1),
            mode: Mode::new(0o750).unwrap(),
            created: TimeMs(1),
            modified: TimeMs(2),
            revision: Revision(3),
            expires: None,
            tags: vec![tag("a", TagValue::Boolean(true))],
            body,
        },
    };
    let file = File {
        guid: Guid::v7(TimeMs(0), [7; 10]),
        size: Some(9),
        checksums: sums(),
        job: None,
        replicas: vec![],
    };
    let file = stat("/d/x", Body::File(file));
    let row = Row::of_stat("/d/", "x", "e", &file);
    assert_eq!((row.name, row.is_directory, row.size, row.mode), ("x", false, Some(9), 0o750));
    assert_eq!((row.owner, row.group, row.tags.len()), ("jdoe", "alice", 1));
    assert!(row.checksums.is_some_and(|sums| !sums.is_empty()));
    let root = stat("/", Body::Directory(DirId::ROOT));
    let row = Row::of_stat("", "/", "e", &root);
    assert_eq!((row.name, row.is_directory, row.size), ("/", true, None));
}
