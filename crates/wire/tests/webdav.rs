//! Requests of WebDAV: bodies, headers and paths. Arbitrary bytes cause no panic; each rule and each
//! limit is tested at its edge.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use exacat_model::limits::{NAME_BYTES_MAX, TAG_KEY_BYTES_MAX, TAG_TEXT_BYTES_MAX};
use exacat_model::{Checksum, ChecksumAlgorithm, Checksums, ErrorKind, Lfn, TagKey, TagValue, TimeMs};
use exacat_wire::webdav::headers::{
    Depth, depth, digest_header, overwrite, repr_digest_header, want_digest, want_repr_digest,
};
use exacat_wire::webdav::limits::{
    ATTRIBUTES_MAX, BODY_BYTES_MAX, DECLARATIONS_MAX, ELEMENT_DEPTH_MAX, ELEMENT_NAME_BYTES_MAX,
    NAMESPACE_BYTES_MAX, PROPERTIES_MAX, VALUE_BYTES_MAX,
};
use exacat_wire::webdav::path::{decode, encode};
use exacat_wire::webdav::property::{DAV, EXACAT, TAGS};
use exacat_wire::webdav::request::{propfind, proppatch};
use exacat_wire::webdav::{
    Destination, Live, PropertyName, Propfind, Update, Value, dead_property_key, property_of_key,
};

mod random;

use random::Random;

fn name(namespace: &str, name: &str) -> PropertyName {
    PropertyName::new(namespace, name)
}

fn find(body: &str) -> exacat_model::Result<Propfind> {
    propfind(body.as_bytes())
}

/// Wraps the content of a property in a request that sets it.
fn setting(property: &str) -> String {
    format!(
        r#"<D:propertyupdate xmlns:D="DAV:" xmlns:o="urn:outer"><D:set><D:prop>{property}</D:prop></D:set></D:propertyupdate>"#
    )
}

/// Returns the only value that a request sets.
fn value(property: &str) -> Value {
    match proppatch(setting(property).as_bytes()).unwrap().as_slice() {
        [Update::Set(_, value)] => value.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn propfind_asks_for_all_for_names_or_for_some() {
    assert_eq!(propfind(b"").unwrap(), Propfind::All { include: vec![] });
    assert_eq!(
        find(r#"<propfind xmlns="DAV:"><allprop/></propfind>"#).unwrap(),
        Propfind::All { include: vec![] }
    );
    assert_eq!(find(r#"<D:propfind xmlns:D="DAV:"><D:propname/></D:propfind>"#).unwrap(), Propfind::Names);
    assert_eq!(
        find(r#"<propfind xmlns="DAV:"><include><a/><a xmlns="urn:x"/></include><allprop/></propfind>"#)
            .unwrap(),
        Propfind::All { include: vec![name(DAV, "a"), name("urn:x", "a")] }
    );
    assert_eq!(find("<propfind xmlns='DAV:'><prop/></propfind>").unwrap(), Propfind::Properties(vec![]));
}

/// Goal: the bodies that real clients send are read: davix, litmus, gvfs.
#[test]
fn bodies_of_real_clients_are_read() {
    let davix = r#"<?xml version="1.0" encoding="utf-8" ?><D:propfind xmlns:D="DAV:" xmlns:L="LCGDM:"><D:prop>
        <D:displayname/><D:getlastmodified/><D:creationdate/><D:getcontentlength/><D:quota-used-bytes/>
        <D:resourcetype><D:collection/></D:resourcetype><L:mode/><D:owner></D:owner><D:group></D:group>
        </D:prop></D:propfind>"#;
    let Propfind::Properties(names) = find(davix).unwrap() else { panic!("not a list") };
    let live: Vec<_> = names.iter().map(Live::of).collect();
    assert_eq!(live[5..], [Some(Live::ResourceType), Some(Live::LcgdmMode), None, None]);
    assert_eq!(names.len(), 9);

    let litmus = "<?xml version=\"1.0\" encoding=\"utf-8\" ?>\r\n<propfind xmlns=\"DAV:\"><prop>\r\n\
        <prop0 xmlns=\"http://webdav.org/neon/litmus/\"/>\r\n<nonamespace xmlns=\"\"/>\r\n</prop></propfind>\r\n";
    let expected = vec![name("http://webdav.org/neon/litmus/", "prop0"), name("", "nonamespace")];
    assert_eq!(find(litmus).unwrap(), Propfind::Properties(expected));

    let with_mark = "\u{FEFF}<?xml version='1.0' encoding='UTF-8' standalone='yes'?><!-- - --><?php a?>\
        <D:propfind\n xmlns:D='D&#x41;V&#58;' ><D:allprop /></D:propfind\t> <!---->";
    assert_eq!(find(with_mark).unwrap(), Propfind::All { include: vec![] });
}

#[test]
fn unknown_elements_are_ignored() {
    let body = r#"<D:propfind xmlns:D="DAV:" xmlns:e="urn:e" e:a="1" D:b="2">text<e:leave-out><D:propname/></e:leave-out>
        <D:later/><prop/><D:propname><D:x>y</D:x></D:propname></D:propfind>"#;
    assert_eq!(find(body).unwrap(), Propfind::Names);
    let body = r#"<propertyupdate xmlns="DAV:"><x/><remove><y><prop><z/></prop></y><prop><a>b</a></prop></remove>
        </propertyupdate>"#;
    assert_eq!(proppatch(body.as_bytes()).unwrap(), [Update::Remove(name(DAV, "a"))]);
}

#[test]
fn a_name_that_comes_twice_counts_once() {
    let found = find(r#"<propfind xmlns="DAV:"><prop><a/><b/><a/></prop></propfind>"#).unwrap();
    assert_eq!(found, Propfind::Properties(vec![name(DAV, "a"), name(DAV, "b")]));
}

#[test]
fn updates_come_in_their_order() {
    let body = r#"<?xml version="1.0"?><D:propertyupdate xmlns:D="DAV:" xmlns:Z="urn:z">
        <D:set><D:prop><Z:a>1 &lt; 2 &amp;<![CDATA[ <&]]> &#x17C;</Z:a><b/></D:prop></D:set>
        <D:remove><D:prop><Z:a>ignored<Z:c/></Z:a></D:prop></D:remove>
        <D:set><D:prop><Z:a> x
 y</Z:a></D:prop></D:set></D:propertyupdate>"#;
    assert_eq!(
        proppatch(body.as_bytes()).unwrap(),
        [
            Update::Set(name("urn:z", "a"), Value::Text("1 < 2 & <& ż".into())),
            Update::Set(name("", "b"), Value::Text(String::new())),
            Update::Remove(name("urn:z", "a")),
            Update::Set(name("urn:z", "a"), Value::Text(" x\n y".into())),
        ]
    );
}

#[test]
fn values_with_elements_stay_xml_and_declare_what_they_use() {
    let xml = |text: &str| Value::Xml(text.to_owned());
    for (property, expected) in [
        ("<o:p><foo xmlns='http://bar'/></o:p>", r#"<foo xmlns="http://bar"></foo>"#),
        ("<o:p><o:a><o:b/></o:a></o:p>", r#"<o:a xmlns:o="urn:outer"><o:b></o:b></o:a>"#),
        (
            "<o:p><a><o:b D:c='&lt;\"&#10;&amp;'/></a>t&lt;<D:d/></o:p>",
            "<a xmlns:o=\"urn:outer\" xmlns:D=\"DAV:\"><o:b D:c=\"&lt;&quot;&#10;&amp;\"></o:b></a>t&lt;\
             <D:d xmlns:D=\"DAV:\"></D:d>",
        ),
        ("<p xmlns='urn:d'><a><b xmlns=''/></a></p>", r#"<a xmlns="urn:d"><b xmlns=""></b></a>"#),
        ("<p xmlns:q='a&amp;b'><q:a/></p>", r#"<q:a xmlns:q="a&amp;b"></q:a>"#),
        (
            "<p><o:a xmlns:o='urn:own'/><o:a/></p>",
            "<o:a xmlns:o=\"urn:own\"></o:a><o:a xmlns:o=\"urn:outer\"></o:a>",
        ),
        ("<p><a xml:lang='pl'>x<!-- no --><?no no?></a></p>", r#"<a xml:lang="pl">x</a>"#),
    ] {
        assert_eq!(value(property), xml(expected), "{property}");
        // Goal: the value can stand anywhere, so it reads the same as a value of its own.
        assert_eq!(value(&format!("<q>{expected}</q>")), xml(expected));
    }
}

/// Bodies that are refused, with a part of the reason.
const HOSTILE: &[(&str, &str)] = &[
    (" ", "has no element"),
    ("x", "outside of its root"),
    ("<foo>", "the root element"),
    ("<propfind xmlns='DAV:'><allprop></propfind>", "not well-formed"),
    ("<propfind xmlns='DAV:'><allprop/>", "ends inside"),
    ("<propfind xmlns='DAV:'><allprop/></propfind></x>", "not well-formed"),
    ("</propfind>", "not well-formed"),
    ("<propfind xmlns='DAV:'><allprop/></propfind><propfind xmlns='DAV:'/>", "two root elements"),
    ("<propfind xmlns='DAV:'><allprop/></propfind>x", "outside of its root"),
    ("<propfind xmlns='DAV:'><allprop/></propfind>&#32;", "outside of its root"),
    ("<propfind xmlns='DAV:'><allprop/></propfind><![CDATA[]]>", "outside of its root"),
    ("<propfind xmlns='DAV:'><allprop/></propfind><", "not well-formed"),
    ("<allprop xmlns='DAV:'/>", "the root element"),
    ("<propfind><allprop/></propfind>", "the root element"),
    ("<propfind xmlns='dav:'><allprop/></propfind>", "the root element"),
    ("<propfind xmlns='DAV'><allprop/></propfind>", "the root element"),
    ("<propfind xmlns='DAV:'/>", "none of"),
    ("<propfind xmlns='DAV:'><e:expired-props xmlns:e='urn:e'/></propfind>", "none of"),
    ("<propfind xmlns='DAV:'><include/></propfind>", "none of"),
    ("<propfind xmlns='DAV:'><prop/><include/></propfind>", "without 'allprop'"),
    ("<propfind xmlns='DAV:'><allprop/><include/><include/></propfind>", "twice"),
    ("<propfind xmlns='DAV:'><allprop/><prop/></propfind>", "more than one"),
    ("<propfind xmlns='DAV:'><propname/><propname/></propfind>", "more than one"),
    ("<D:propfind><D:allprop/></D:propfind>", "without declaring"),
    ("<propfind xmlns='DAV:'><prop><x:a/></prop></propfind>", "without declaring"),
    ("<propfind xmlns='DAV:'><prop><a x:b=''/></prop></propfind>", "without declaring"),
    ("<propfind xmlns='DAV:'><prop><x:a xmlns:x='urn:x'/><x:a/></prop></propfind>", "without declaring"),
    ("<propfind xmlns='DAV:'><prop><x:a xmlns:x=''/></prop></propfind>", "as empty"),
    ("<propfind xmlns='DAV:'><prop><ns1:a xmlns:ns1=\"\"/></prop></propfind>", "as empty"),
    ("<propfind xmlns='DAV:' xmlns:xml='urn:x'><allprop/></propfind>", "against the rules"),
    ("<propfind xmlns='DAV:' xmlns:xmlns='urn:x'><allprop/></propfind>", "against the rules"),
    (
        "<propfind xmlns='DAV:' xmlns:a='http://www.w3.org/XML/1998/namespace'><allprop/></propfind>",
        "against",
    ),
    ("<propfind xmlns='DAV:' xmlns:a='http://www.w3.org/2000/xmlns/'><allprop/></propfind>", "against"),
    ("<xmlns:propfind xmlns='DAV:'/>", "prefix 'xmlns'"),
    ("<propfind xmlns='DAV:' a='1' a='2'><allprop/></propfind>", "twice"),
    ("<propfind xmlns='DAV:' xmlns='DAV:'><allprop/></propfind>", "twice"),
    ("<propfind xmlns='DAV:' xmlns:a='u' xmlns:b='u' a:x='' b:x=''><allprop/></propfind>", "twice"),
    ("<propfind xmlns='DAV:' a='1'b='2'><allprop/></propfind>", "white space"),
    ("<propfind xmlns='DAV:' a=1><allprop/></propfind>", "not well-formed"),
    ("<propfind xmlns='DAV:' a><allprop/></propfind>", "not well-formed"),
    ("<propfind xmlns='DAV:' a='<'><allprop/></propfind>", "contains '<'"),
    ("<propfind xmlns='DAV:' a='&'><allprop/></propfind>", "not escaped"),
    ("<propfind xmlns='DAV:' a='&amp'><allprop/></propfind>", "not escaped"),
    ("<propfind xmlns='DAV:' a='&b;'><allprop/></propfind>", "the entity"),
    ("<propfind xmlns='DAV:' a='><allprop/></propfind>", "not well-formed"),
    ("<propfind xmlns='DAV:'><prop><1a/></prop></propfind>", "no name"),
    ("<propfind xmlns='DAV:'><prop><a:b:c/></prop></propfind>", "no name"),
    ("<propfind xmlns='DAV:'><prop>< a/></prop></propfind>", "no name"),
    ("<propfind xmlns='DAV:'><prop><></></prop></propfind>", "no name"),
    ("<propfind xmlns='DAV:'><prop><:a/></prop></propfind>", "no name"),
    ("<propfind xmlns='DAV:'><prop><a:/></prop></propfind>", "no name"),
    ("<propfind xmlns='DAV:'><prop><a/ ></prop></propfind>", "no name"),
    ("<propfind xmlns='DAV:' xmlns:='u'><allprop/></propfind>", "no name"),
    ("<propfind xmlns='DAV:'>&nbsp;<allprop/></propfind>", "the entity"),
    ("<propfind xmlns='DAV:'>&;<allprop/></propfind>", "the entity"),
    ("<propfind xmlns='DAV:'>a & b<allprop/></propfind>", "not well-formed"),
    ("<propfind xmlns='DAV:'>&#0;<allprop/></propfind>", "no character"),
    ("<propfind xmlns='DAV:'>&#x1;<allprop/></propfind>", "no character"),
    ("<propfind xmlns='DAV:'>&#xD800;<allprop/></propfind>", "no character"),
    ("<propfind xmlns='DAV:'>&#xFFFE;<allprop/></propfind>", "no character"),
    ("<propfind xmlns='DAV:'>&#x110000;<allprop/></propfind>", "no character"),
    ("<propfind xmlns='DAV:'>&#99999999999999999999;<allprop/></propfind>", "no character"),
    ("<propfind xmlns='DAV:'>&#+65;<allprop/></propfind>", "no character"),
    ("<propfind xmlns='DAV:'>&#X41;<allprop/></propfind>", "no character"),
    ("<propfind xmlns='DAV:'>&#;<allprop/></propfind>", "no character"),
    ("<propfind xmlns='DAV:'>]]><allprop/></propfind>", "']]>'"),
    ("<propfind xmlns='DAV:'>\u{1}<allprop/></propfind>", "which XML forbids"),
    ("<propfind xmlns='DAV:'>\u{0}<allprop/></propfind>", "which XML forbids"),
    ("<propfind xmlns='DAV:'>\u{FFFF}<allprop/></propfind>", "which XML forbids"),
    ("<propfind xmlns='DAV:'><!-- -- --><allprop/></propfind>", "not well-formed"),
    ("<propfind xmlns='DAV:'><!-- a ---><allprop/></propfind>", "not well-formed"),
    ("<propfind xmlns='DAV:'><!- a --><allprop/></propfind>", "not well-formed"),
    ("<propfind xmlns='DAV:'><![CDATA[ ]]<allprop/></propfind>", "not well-formed"),
    ("<propfind xmlns='DAV:'><? a?><allprop/></propfind>", "processing instruction"),
    ("<propfind xmlns='DAV:'><?XML a?><allprop/></propfind>", "processing instruction"),
    ("<propfind xmlns='DAV:'><?xml version='1.0'?><allprop/></propfind>", "not at the start"),
    (" <?xml version='1.0'?><propfind xmlns='DAV:'><allprop/></propfind>", "not at the start"),
    ("<?xml?><propfind xmlns='DAV:'><allprop/></propfind>", "version 1.0"),
    ("<?xml version='1.1'?><propfind xmlns='DAV:'><allprop/></propfind>", "version 1.0"),
    ("<?xml encoding='utf-8' version='1.0'?><propfind xmlns='DAV:'><allprop/></propfind>", "version 1.0"),
    ("<?xml version='1.0' encoding='iso-8859-1'?><propfind xmlns='DAV:'><allprop/></propfind>", "encoding"),
    ("<?xml version='1.0' encoding='UTF-16'?><propfind xmlns='DAV:'><allprop/></propfind>", "encoding"),
    ("<?xml version='1.0' foo='bar'?><propfind xmlns='DAV:'><allprop/></propfind>", "XML declaration"),
    (
        "<?xml version='1.0' standalone='maybe'?><propfind xmlns='DAV:'><allprop/></propfind>",
        "XML declaration",
    ),
    (
        "<?xml version='1.0' encoding='utf-8' x?><propfind xmlns='DAV:'><allprop/></propfind>",
        "not well-formed",
    ),
    ("<!DOCTYPE propfind><propfind xmlns='DAV:'><allprop/></propfind>", "DOCTYPE"),
    ("<!DOCTYPE x [<!ENTITY a 'b'>]><propfind xmlns='DAV:'>&a;<allprop/></propfind>", "DOCTYPE"),
    ("<!DOCTYPE x SYSTEM 'file:///etc/passwd'><propfind xmlns='DAV:'><allprop/></propfind>", "DOCTYPE"),
    ("<propfind xmlns='DAV:'><!ENTITY a 'b'><allprop/></propfind>", "not well-formed"),
];

#[test]
fn malformed_and_hostile_bodies_are_refused_with_the_reason() {
    for (body, reason) in HOSTILE {
        let error = find(body).expect_err(body);
        assert_eq!(error.kind, ErrorKind::Invalid, "{body}");
        assert!(error.message.contains(reason), "{body}: {error}");
        // The same document is no better as an update.
        assert_eq!(proppatch(body.as_bytes()).expect_err(body).kind, ErrorKind::Invalid);
    }
    for body in [b"<propfind xmlns='DAV:'>\xFF</propfind>".as_slice(), b"\xFF\xFE<\0p\0", b"\0<\0p"] {
        assert_eq!(propfind(body).unwrap_err().kind, ErrorKind::Invalid);
    }
    for body in [
        "",
        "<propertyupdate xmlns='DAV:'/>",
        "<propertyupdate xmlns='DAV:'><set/></propertyupdate>",
        "<propertyupdate xmlns='DAV:'><remove><prop/></remove></propertyupdate>",
        "<propfind xmlns='DAV:'><allprop/></propfind>",
    ] {
        assert_eq!(proppatch(body.as_bytes()).expect_err(body).kind, ErrorKind::Invalid);
    }
}

#[test]
fn messages_repeat_only_the_start_of_what_a_client_sends() {
    let long = "x".repeat(100_000);
    for body in [
        format!("<propfind xmlns='DAV:'>&{long};</propfind>"),
        format!("<propfind xmlns='DAV:'><{long}></propfind>"),
        format!("<propfind xmlns='DAV:'></{long}>"),
        format!("<?xml version='1.0' encoding='{long}'?><a/>"),
        format!("<propfind xmlns='DAV:' xmlns:{long}=''/>"),
        format!("<a xmlns='{long}'/>"),
        format!("<{long}/>"),
    ] {
        assert!(find(&body).unwrap_err().message.len() < 1000, "{}", &body[..50]);
    }
    assert!(decode(&format!("/{long}%"), "").unwrap_err().message.len() < 1000);
    assert!(Destination::parse(&long, "a", "").unwrap_err().message.len() < 1000);
    assert!(depth(Some(&long)).unwrap_err().message.len() < 1000);
    assert!(overwrite(Some(&long)).unwrap_err().message.len() < 1000);
}

#[test]
fn limits_of_bodies_hold_at_their_edges() {
    let fits = |body: &str| find(body).map(drop).map_err(|error| error.kind);
    let around = |inner: &str| format!("<propfind xmlns='DAV:'>{inner}<allprop/></propfind>");
    let filler = |bytes: usize| around(&" ".repeat(bytes - around("").len()));
    assert_eq!(fits(&filler(BODY_BYTES_MAX)), Ok(()));
    assert_eq!(fits(&filler(BODY_BYTES_MAX + 1)), Err(ErrorKind::Limit));

    let nested = |depth: usize| around(&format!("{}{}", "<a>".repeat(depth - 1), "</a>".repeat(depth - 1)));
    assert_eq!(fits(&nested(ELEMENT_DEPTH_MAX)), Ok(()));
    assert_eq!(fits(&nested(ELEMENT_DEPTH_MAX + 1)), Err(ErrorKind::Invalid));
    assert_eq!(fits(&around(&"<a>".repeat(50_000))), Err(ErrorKind::Invalid));

    let attributes = |count: usize| {
        around(&format!("<a {}/>", (0..count).map(|n| format!("a{n}='' ")).collect::<String>()))
    };
    assert_eq!(fits(&attributes(ATTRIBUTES_MAX)), Ok(()));
    assert_eq!(fits(&attributes(ATTRIBUTES_MAX + 1)), Err(ErrorKind::Invalid));
    assert_eq!(fits(&attributes(20_000)), Err(ErrorKind::Invalid));

    // One declaration is that of the root.
    let declared = |count: usize| {
        let tag = |range: std::ops::Range<usize>| {
            format!("<a {}>", range.map(|n| format!("xmlns:p{n}='u' ")).collect::<String>())
        };
        let (first, second) = (tag(0..count / 2), tag(count / 2..count - 1));
        around(&format!("{first}{second}</a></a>"))
    };
    assert_eq!(fits(&declared(DECLARATIONS_MAX)), Ok(()));
    assert_eq!(fits(&declared(DECLARATIONS_MAX + 1)), Err(ErrorKind::Invalid));

    let namespace = |bytes: usize| around(&format!("<a xmlns='{}'/>", "n".repeat(bytes)));
    assert_eq!(fits(&namespace(NAMESPACE_BYTES_MAX)), Ok(()));
    assert_eq!(fits(&namespace(NAMESPACE_BYTES_MAX + 1)), Err(ErrorKind::Invalid));

    let long_name = |bytes: usize| around(&format!("<{}/>", "n".repeat(bytes)));
    assert_eq!(fits(&long_name(ELEMENT_NAME_BYTES_MAX)), Ok(()));
    assert_eq!(fits(&long_name(ELEMENT_NAME_BYTES_MAX + 1)), Err(ErrorKind::Invalid));

    let names = |count: usize| (0..count).map(|n| format!("<a{n}/>")).collect::<String>();
    let asked = |count: usize| format!("<propfind xmlns='DAV:'><prop>{}</prop></propfind>", names(count));
    assert_eq!(fits(&asked(PROPERTIES_MAX)), Ok(()));
    assert_eq!(fits(&asked(PROPERTIES_MAX + 1)), Err(ErrorKind::Invalid));
    let set = |count: usize| proppatch(setting(&names(count)).as_bytes()).map(|updates| updates.len());
    assert_eq!(set(PROPERTIES_MAX), Ok(PROPERTIES_MAX));
    assert_eq!(set(PROPERTIES_MAX + 1).unwrap_err().kind, ErrorKind::Invalid);

    // A value declares the outer prefixes that it uses, which counts as well.
    let used = |count: usize| {
        let each = |text: &str| (0..count).map(|n| text.replace('#', &n.to_string())).collect::<String>();
        let tag = format!("<a {}/>", each("p#:x='' "));
        proppatch(setting(&format!("<p {}>{tag}</p>", each("xmlns:p#='urn:#' "))).as_bytes())
    };
    assert!(used(ATTRIBUTES_MAX / 2).is_ok());
    assert_eq!(used(ATTRIBUTES_MAX / 2 + 1).unwrap_err().kind, ErrorKind::Invalid);

    let text = |bytes: usize| proppatch(setting(&format!("<p>{}</p>", "&gt;".repeat(bytes))).as_bytes());
    assert!(text(VALUE_BYTES_MAX).is_ok(), "escapes of text do not count");
    assert_eq!(text(VALUE_BYTES_MAX + 1).unwrap_err().kind, ErrorKind::Limit);
    let xml =
        |bytes: usize| proppatch(setting(&format!("<p><a>{}</a></p>", "x".repeat(bytes - 7))).as_bytes());
    assert!(xml(VALUE_BYTES_MAX).is_ok());
    assert_eq!(xml(VALUE_BYTES_MAX + 1).unwrap_err().kind, ErrorKind::Limit);
}

/// Goal: no bytes make a reader panic.
#[test]
fn spoilt_bodies_cause_no_panic() {
    const PIECES: &[&str] = &[
        "<",
        ">",
        "/",
        "=",
        "'",
        "\"",
        "&",
        ";",
        "#",
        "x",
        ":",
        " ",
        "xmlns",
        "a",
        "!",
        "-",
        "[",
        "]",
        "?",
        "\u{1}",
        "<!--",
        "-->",
        "<![CDATA[",
        "]]>",
        "<?xml",
        "?>",
        "DAV:",
        "<a>",
        "</a>",
        "<D:prop>",
        "</D:prop>",
        "ż",
        "&lt;",
    ];
    let seeds = [
        setting("<o:p x='1'>a<b xmlns='c'>&#65;</b></o:p>"),
        "<?xml version='1.0'?><D:propfind xmlns:D='DAV:'><D:prop><D:a/><b/></D:prop></D:propfind>".to_owned(),
    ];
    let mut random = Random(7);
    for round in 0..20_000_usize {
        let mut body = seeds[round % seeds.len()].clone().into_bytes();
        for _ in 0..=random.below(3) {
            let at = usize::try_from(random.below(body.len() as u64 + 1)).unwrap();
            let piece = PIECES[usize::try_from(random.below(PIECES.len() as u64)).unwrap()];
            let end = (at + usize::try_from(random.below(4)).unwrap()).min(body.len());
            body.splice(at..end, piece.bytes());
        }
        let _ = propfind(&body);
        if let Ok(updates) = proppatch(&body) {
            for update in updates {
                if let Update::Set(_, value) = update {
                    assert_eq!(Value::of_tag(&value.to_tag().unwrap()), value);
                }
            }
        }
    }
}

#[test]
fn paths_decode_once_and_name_entries_below_the_prefix() {
    for (path, prefix, lfn) in [
        ("/", "", "/"),
        ("/dav", "/dav", "/"),
        ("/dav/", "/dav", "/"),
        ("/dav/a/b", "/dav", "/a/b"),
        ("/dav/a", "/dav/", "/a"),
        ("/d%61v/%C5%BC", "/dav", "/ż"),
        ("/a%2Fb%2fc", "", "/a/b/c"),
        ("/%2561", "", "/%61"),
        ("/a+b&c;d=e", "", "/a+b&c;d=e"),
        ("/%E2%80%8F%0A%09%22%27%3C%3E%26", "", "/\u{200F}\n\t\"'<>&"),
        ("/...", "", "/..."),
    ] {
        let found = decode(path, prefix).unwrap();
        assert_eq!((found.as_str(), found.must_be_directory()), (lfn, false), "{path}");
    }
    for path in ["/a/b/", "/a%2Fb%2F", "/a/b%2f"] {
        let found = decode(path, "").unwrap();
        assert_eq!((found.as_str(), found.must_be_directory()), ("/a/b", true), "{path}");
    }
}

#[test]
fn paths_that_are_ambiguous_or_spoilt_are_refused() {
    for (path, reason) in [
        ("//", "empty component"),
        ("//a", "empty component"),
        ("/a//b", "empty component"),
        ("/a//", "empty component"),
        ("/a/%2Fb", "empty component"),
        ("/a%2F%2F", "empty component"),
        ("/.", "'.' and '..'"),
        ("/a/..", "'.' and '..'"),
        ("/%2e%2E/a", "'.' and '..'"),
        ("/a/./b", "'.' and '..'"),
        ("/a/../", "'.' and '..'"),
        ("/a%", "incomplete"),
        ("/a%4", "incomplete"),
        ("/a%zz", "two hex digits"),
        ("/a%+1", "two hex digits"),
        ("/a%1ż", "two hex digits"),
        ("/a%00", "NUL"),
        ("/a\0", "NUL"),
        ("/%FF", "not UTF-8"),
        ("/%C5", "not UTF-8"),
        ("/%ED%A0%80", "not UTF-8"),
        ("/%C0%AF", "not UTF-8"),
        ("/a?b", "query or fragment"),
        ("/a#b", "query or fragment"),
    ] {
        let error = decode(path, "").unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{path}");
        assert!(error.message.contains(reason), "{path}: {error}");
        assert!(decode(&format!("/dav{path}"), "/dav").is_err());
    }
    for path in ["", "a", "/da", "/davx", "/dav2/a", "/x/dav/a"] {
        assert!(decode(path, "/dav").unwrap_err().message.contains("not below"), "{path}");
    }
    assert!(decode("", "").unwrap().is_root());
    assert_eq!(decode(&format!("/{}", "%61".repeat(256)), "").unwrap_err().kind, ErrorKind::Limit);
}

/// Names with characters that need care somewhere.
fn odd_names() -> Vec<String> {
    let mut names: Vec<String> = (1..=0xFFu32)
        .chain([0x200F, 0x202E, 0x2028, 0xFEFF, 0xFFFD, 0xFFFE, 0xFFFF, 0x10FFFF])
        .filter_map(char::from_u32)
        .filter(|letter| !matches!(letter, '/' | '.'))
        .map(String::from)
        .collect();
    names.extend(
        ["a\nb\tc\r", "\"q\" 'r' <s> &amp; %41 ]]>", "...", "a.b", " ", "%2F", "%", "a?b#c"]
            .map(str::to_owned),
    );
    names.push("x".repeat(NAME_BYTES_MAX));
    names.push("\u{202E}".repeat(NAME_BYTES_MAX / 3));
    names
}

#[test]
fn encoded_paths_decode_to_themselves() {
    for name in odd_names() {
        let lfn = Lfn::from_names(["d", name.as_str()]);
        for (prefix, is_directory) in [("", false), ("/dav", true), ("/a b/ż/", false)] {
            let path = encode(&lfn, prefix, is_directory);
            assert!(
                path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~/%".contains(&byte)),
                "{path}"
            );
            let back = decode(&path, prefix).unwrap();
            assert_eq!(back, lfn, "{path}");
            assert_eq!(back.must_be_directory(), is_directory, "{path}");
        }
    }
    assert_eq!(encode(&Lfn::root(), "", true), "/");
    assert_eq!(encode(&Lfn::root(), "/dav", true), "/dav/");
    assert_eq!(encode(&Lfn::parse("/a/x y=%").unwrap(), "/dav", false), "/dav/a/x%20y%3D%25");
}

#[test]
fn destinations_are_here_or_elsewhere() {
    let here = |path: &str| Ok(Destination::Here(Lfn::parse(path).unwrap()));
    for (header, host, expected) in [
        ("/dav/a%20b", "h", here("/a b")),
        ("http://h/dav/a", "h", here("/a")),
        ("HTTP://H/dav/a/", "h", here("/a")),
        ("http://h:80/dav/a", "h", here("/a")),
        ("https://h/dav/a", "h:443", here("/a")),
        ("davs://h:8443/dav/a", "H:8443", here("/a")),
        ("https://h:/dav/a", "h", here("/a")),
        ("http://[::1]:8080/dav", "[::1]:8080", here("/")),
        ("http://[::1]/dav", "[::1]:80", here("/")),
        (" http://h/dav/a?authz=x ", "h", here("/a")),
        ("http://h/other", "h", Ok(Destination::Elsewhere)),
        ("/other", "h", Ok(Destination::Elsewhere)),
        ("http://h:81/dav/a", "h", Ok(Destination::Elsewhere)),
        ("https://h/dav/a", "h:80", Ok(Destination::Elsewhere)),
        ("http://h2/dav/a", "h", Ok(Destination::Elsewhere)),
        ("http://[::2]/dav/a", "[::1]", Ok(Destination::Elsewhere)),
        ("root://h//dav/a", "h", Ok(Destination::Elsewhere)),
        ("gsiftp://h/dav/a", "h", Ok(Destination::Elsewhere)),
    ] {
        assert_eq!(Destination::parse(header, host, "/dav"), expected, "{header}");
    }
    for bad in [
        "",
        "a",
        "dav/a",
        "//h/dav/a",
        "http://",
        "http:///dav/a",
        "http://h",
        "http://h?x",
        "http://u@h/dav/a",
        "http://u:p@h/dav/a",
        "http://h/dav/a#b",
        "http://h/dav//a",
        "http://h/dav/..",
        "/dav/%",
        "1x://h/dav",
        "://h/a",
    ] {
        let error = Destination::parse(bad, "h", "/dav").expect_err(bad);
        assert_eq!(error.kind, ErrorKind::Invalid, "{bad}");
    }
}

#[test]
fn depth_and_overwrite_have_their_values() {
    assert_eq!(depth(None), Ok(None));
    assert_eq!(depth(Some("0")), Ok(Some(Depth::Zero)));
    assert_eq!(depth(Some(" 1 ")), Ok(Some(Depth::One)));
    assert_eq!(depth(Some("Infinity")), Ok(Some(Depth::Infinity)));
    for bad in ["", "2", "-1", "01", "1,noroot", "infinite"] {
        assert_eq!(depth(Some(bad)).unwrap_err().kind, ErrorKind::Invalid, "{bad}");
    }
    assert_eq!(overwrite(None), Ok(true));
    assert_eq!(overwrite(Some("T")), Ok(true));
    assert_eq!(overwrite(Some("f ")), Ok(false));
    for bad in ["", "true", "TF"] {
        assert_eq!(overwrite(Some(bad)).unwrap_err().kind, ErrorKind::Invalid, "{bad}");
    }
}

#[test]
fn wanted_digests_are_ordered_and_unknown_ones_ignored() {
    use ChecksumAlgorithm::{Adler32, Crc32c, Md5, Sha1, Sha256};
    for (header, expected) in [
        ("ADLER32", vec![Adler32]),
        ("adler32", vec![Adler32]),
        ("SHA-512;q=1, SHA-256;q=1, SHA;q=0.1", vec![Sha256, Sha1]),
        ("md5;q=0.3,crc32c ; q=0.301 , sha;q=0", vec![Crc32c, Md5]),
        ("md5,md5;q=0.1,adler", vec![Md5, Adler32]),
        ("md5;q=2, sha;q=x, crc32c;q=1.001, adler32;q=0.1234, sha256;q=", vec![]),
        ("md5;x=y;Q=1.000", vec![Md5]),
        ("", vec![]),
        (",;,=;q,🦀", vec![]),
    ] {
        assert_eq!(want_digest(header), expected, "{header}");
    }
    for (header, expected) in [
        ("adler=5, sha-256=3", vec![Adler32, Sha256]),
        ("sha-256=3,adler32=10;x=y", vec![Adler32, Sha256]),
        ("md5=0, sha=1, crc32c=1, sha-512=10", vec![Sha1, Crc32c]),
        ("md5=11, sha=-1, adler, crc32c=1.5, sha-256=a", vec![]),
        ("", vec![]),
    ] {
        assert_eq!(want_repr_digest(header), expected, "{header}");
    }
}

#[test]
fn digests_print_as_clients_read_them() {
    let mut sums = Checksums::none();
    for text in [
        "adler32:a1af2bf",
        "crc32c:1",
        "md5:d41d8cd98f00b204e9800998ecf8427e",
        "sha1:da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    ] {
        sums.add(Checksum::parse(text).unwrap()).unwrap();
    }
    assert_eq!(
        digest_header(&sums, &ChecksumAlgorithm::ALL).unwrap(),
        "adler32=0a1af2bf,crc32c=00000001,md5=1B2M2Y8AsgTpgAmY7PhCfg==,sha=2jmj7l5rSw0yVb/vlWAYkK/YBwk=,\
         sha-256=47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
    );
    assert_eq!(
        repr_digest_header(&sums, &[ChecksumAlgorithm::Md5, ChecksumAlgorithm::Adler32]).unwrap(),
        "md5=:1B2M2Y8AsgTpgAmY7PhCfg==:, adler=:Chryvw==:"
    );
    let one = Checksums::one(Checksum::parse("adler32:0a1af2bf").unwrap());
    assert_eq!(digest_header(&one, &[ChecksumAlgorithm::Md5]), None);
    assert_eq!(digest_header(&one, &[]), None);
    assert_eq!(repr_digest_header(&Checksums::none(), &ChecksumAlgorithm::ALL), None);
}

#[test]
fn property_names_map_to_keys_of_tags_and_back() {
    for (namespace, local, key) in [
        ("http://webdav.org/neon/litmus/", "prop0", "dav._hwebdav.org_sneon_slitmus_s_eprop0"),
        ("http://example.com/neon/litmus/", "nspace", "dav._hexample.com_sneon_slitmus_s_enspace"),
        (
            "urn:schemas-microsoft-com:",
            "Win32LastModifiedTime",
            "dav._uschemas-microsoft-com_c_eWin32LastModifiedTime",
        ),
        ("https://a/b#", "c_d", "dav._ta_sb_n_ec__d"),
        ("", "nonamespace", "dav._enonamespace"),
        ("ż\"<>& \n", "a-b.c", "dav._xc5_xbc_x22_x3c_x3e_x26_x20_x0a_ea-b.c"),
        ("a_e", "ż", "dav.a__e_e_xc5_xbc"),
        ("LCGDM:", "guid", "dav.LCGDM_c_eguid"),
        (TAGS, "campaign", "campaign"),
        (TAGS, "dav.x", "dav.x"),
    ] {
        let property = name(namespace, local);
        assert_eq!(dead_property_key(&property).unwrap().as_str(), key);
        assert_eq!(property_of_key(&TagKey::parse(key).unwrap()), property);
    }
    for property in [
        name(DAV, "displayname"),
        name(DAV, "anything"),
        name(EXACAT, "owner"),
        name(EXACAT, "anything"),
        name("LCGDM:", "mode"),
        name("urn:x", "not a name"),
        name("urn:x", "a:b"),
        name("urn:x", ""),
        name("urn:\u{1}", "a"),
        name(TAGS, "ż"),
        // Its key would be the one of a property without a namespace.
        name(TAGS, "dav._eprop"),
        name("http://www.w3.org/2000/xmlns/", "a"),
    ] {
        assert_eq!(dead_property_key(&property).unwrap_err().kind, ErrorKind::Invalid, "{property}");
    }
    // "dav._u" and "_e" surround both parts.
    let longest = |bytes: usize| name("urn:", &"x".repeat(bytes - 8));
    assert_eq!(dead_property_key(&longest(TAG_KEY_BYTES_MAX)).unwrap().as_str().len(), TAG_KEY_BYTES_MAX);
    assert_eq!(dead_property_key(&longest(TAG_KEY_BYTES_MAX + 1)).unwrap_err().kind, ErrorKind::Limit);
}

/// Goal: no two properties share a tag, and every tag appears as a property that names it.
#[test]
fn every_key_appears_as_a_property_that_maps_to_it() {
    const PIECES: &[&str] = &[
        "_", "e", "_e", "_x", "_h", "_s", "__", "3c", "c3", "C3", "a", "0", "-", ".", "_xc5_xbc", "_uexacat",
    ];
    let mut random = Random(3);
    for round in 0..200_000_u64 {
        let mut text = if round % 4 == 0 { "_" } else { "dav." }.to_owned();
        for _ in 0..random.below(6) {
            text.push_str(PIECES[usize::try_from(random.below(PIECES.len() as u64)).unwrap()]);
        }
        let key = TagKey::parse(&text).unwrap();
        let property = property_of_key(&key);
        assert_eq!(dead_property_key(&property).unwrap(), key, "{property}");
    }
    for odd in odd_names() {
        for property in [name(&odd, "a"), name("urn:x", &odd)] {
            if let Ok(key) = dead_property_key(&property) {
                assert_eq!(property_of_key(&key), property);
            }
        }
    }
}

#[test]
fn values_survive_as_tags() {
    for value in [
        Value::Text(String::new()),
        Value::Text("12".into()),
        Value::Text("<a> & \"b\"\n".into()),
        Value::Text("xml:<a".into()),
        Value::Text("xml:<a></a>".into()),
        Value::Text("xml:".into()),
        Value::Xml("<a xmlns=\"urn:x\"></a>".into()),
        Value::Xml("t &amp; <a></a>".into()),
    ] {
        assert_eq!(Value::of_tag(&value.to_tag().unwrap()), value);
    }
    assert_eq!(Value::Text("a<b".into()).to_tag().unwrap(), TagValue::Text("a<b".into()));
    // Tags that other protocols set.
    for (tag, text) in [
        (TagValue::Integer(-7), "-7"),
        (TagValue::Real(1.5), "1.5"),
        (TagValue::Boolean(true), "true"),
        (TagValue::Time(TimeMs(0)), "1970-01-01T00:00:00Z"),
        (TagValue::Text("xml:<broken".into()), "xml:<broken"),
        (TagValue::Text("xml:<p:a/>".into()), "xml:<p:a/>"),
        (TagValue::Text("xml:</x><x>".into()), "xml:</x><x>"),
        (TagValue::Text("xml:<!DOCTYPE a><b/>".into()), "xml:<!DOCTYPE a><b/>"),
        (TagValue::Text("xml:\u{1}<b/>".into()), "xml:\u{1}<b/>"),
    ] {
        assert_eq!(Value::of_tag(&tag), Value::Text(text.into()));
    }
    assert!(Value::Text("x".repeat(TAG_TEXT_BYTES_MAX)).to_tag().is_ok());
    assert_eq!(Value::Text("x".repeat(TAG_TEXT_BYTES_MAX + 1)).to_tag().unwrap_err().kind, ErrorKind::Limit);
}
