//! Claims and scopes of a token allow what they say, to whom, when and where, and nothing beyond.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use exacat_model::Lfn;
use exacat_wire::jwt::limits::{
    GROUP_BYTES_MAX, GROUPS_MAX, ISSUER_BYTES_MAX, SCOPES_MAX, SUBJECT_BYTES_MAX,
};
use exacat_wire::jwt::{Activity, Grant, Issuer, Profile, Refusal, peek_issuer, verify};
use serde_json::{Value, json};

mod jwt_issuer;

use jwt_issuer::{
    AUDIENCE, ISSUER, NOW, SKEW, claims, ed25519, header, issuer, key_set, verify_claims, verify_now, with,
    without,
};

const PROFILES: [Profile; 3] = [Profile::Wlcg, Profile::SciTokens, Profile::Oidc];

fn lfn(text: &str) -> Lfn {
    Lfn::parse(text).unwrap()
}

/// Verifies the usual claims with one changed.
fn changed(name: &str, value: impl Into<Value>, profile: Profile) -> Result<(), Refusal> {
    verify_claims(&with(claims(), name, value), &issuer(profile)).map(drop)
}

#[test]
fn token_without_a_required_claim_is_refused() {
    for profile in PROFILES {
        let missing = |name: &str| verify_claims(&without(claims(), name), &issuer(profile)).map(drop);
        for name in ["iss", "sub", "exp"] {
            assert!(matches!(missing(name), Err(Refusal::Malformed(_))), "{profile:?} {name}");
        }
        assert!(matches!(missing("aud"), Err(Refusal::WrongAudience { .. })), "{profile:?}");
        for name in ["nbf", "jti", "scope"] {
            assert_eq!(missing(name), Ok(()), "{profile:?} {name}");
        }
        assert_eq!(missing("iat").is_err(), profile == Profile::Wlcg, "{profile:?}");
        let version = matches!(missing("wlcg.ver"), Err(Refusal::Version { claim: "wlcg.ver", .. }));
        assert_eq!(version, profile == Profile::Wlcg, "{profile:?}");
        let version = matches!(missing("ver"), Err(Refusal::Version { claim: "ver", .. }));
        assert_eq!(version, profile == Profile::SciTokens, "{profile:?}");
    }
}

#[test]
fn claim_of_a_wrong_type_is_refused() {
    for (name, values) in [
        ("iss", vec![json!(1), json!([ISSUER]), json!(""), Value::Null]),
        ("sub", vec![json!(1), json!(["jdoe"]), json!(""), Value::Null]),
        ("exp", vec![json!("1900000000"), json!(-1), json!(-0.5), json!([NOW + 600]), Value::Null]),
        ("iat", vec![json!("0"), json!(-1), Value::Null]),
        ("nbf", vec![json!("0"), json!(-1), json!({}), Value::Null]),
        ("aud", vec![json!(1), json!({}), Value::Null, json!([AUDIENCE, 1]), json!([1, AUDIENCE])]),
        ("wlcg.groups", vec![json!("/vo"), json!([1]), json!([""]), json!(["/v\no"]), json!({})]),
    ] {
        for value in values {
            let refusal = changed(name, value.clone(), Profile::Wlcg).unwrap_err();
            assert!(matches!(refusal, Refusal::Malformed(_)), "{name} {value}: {refusal:?}");
        }
    }
    for value in [json!(1), json!(["storage.read:/a"]), Value::Null] {
        assert!(matches!(changed("scope", value, Profile::Wlcg), Err(Refusal::BadScope(_))));
    }
}

/// The skew widens the time of validity at both ends, by exactly its seconds.
#[test]
fn token_is_valid_from_start_to_expiry() {
    let signer = ed25519(1);
    let keys = key_set(&[with(signer.jwk(), "kid", "one")]);
    for skew in [0, SKEW] {
        let issuer = Issuer { skew_seconds: skew, ..issuer(Profile::Wlcg) };
        let at = |claims: &Value, now: u64| {
            let text = signer.token(&header("EdDSA", "one"), &claims.to_string());
            verify(&text, &issuer, &keys, now)
        };
        let times = with(with(with(claims(), "iat", 1000), "nbf", 1000), "exp", 2000);
        assert_eq!(at(&times, 1000 - skew).unwrap().expires, 2000);
        assert_eq!(at(&times, 1000 - skew - 1), Err(Refusal::NotYetValid { seconds: skew + 1 }));
        assert!(at(&times, 1999 + skew).is_ok());
        assert_eq!(at(&times, 2000 + skew), Err(Refusal::Expired { seconds: skew }));
        assert!(matches!(at(&times, u64::MAX), Err(Refusal::Expired { .. })));
        assert!(matches!(at(&times, 0), Err(Refusal::NotYetValid { .. })));
        for late in ["iat", "nbf"] {
            let times = with(times.clone(), late, 1500);
            assert!(at(&times, 1500 - skew).is_ok(), "{late}");
            assert!(matches!(at(&times, 1499 - skew), Err(Refusal::NotYetValid { .. })), "{late}");
        }
    }
    assert_eq!(changed("exp", NOW as f64 + 600.5, Profile::Wlcg), Ok(()), "fractions of a second");
    assert_eq!(changed("exp", u64::MAX, Profile::Wlcg), Ok(()));
    assert_eq!(changed("exp", 1e300, Profile::Wlcg), Ok(()));
    assert!(matches!(changed("nbf", 1e300, Profile::Wlcg), Err(Refusal::NotYetValid { .. })));
    assert!(matches!(changed("exp", 0, Profile::Wlcg), Err(Refusal::Expired { .. })));
}

#[test]
fn audience_must_equal_a_configured_one() {
    let any = "https://wlcg.cern.ch/jwt/v1/any";
    for bad in [
        json!("https://other.example.org"),
        json!("https://catalogue.example.org/"),
        json!("https://catalogue.example.org:443"),
        json!("HTTPS://catalogue.example.org"),
        json!("catalogue.example.org"),
        json!(""),
        json!([]),
        json!(["https://other.example.org", any]),
        json!(any),
        json!("ANY"),
        json!("*"),
    ] {
        for profile in PROFILES {
            let refusal = changed("aud", bad.clone(), profile).unwrap_err();
            assert_eq!(refusal, Refusal::WrongAudience { expected: AUDIENCE.to_owned() }, "{bad}");
            assert!(refusal.to_string().contains(AUDIENCE), "it says what to request");
        }
    }
    assert_eq!(changed("aud", json!(["https://other.example.org", AUDIENCE]), Profile::Wlcg), Ok(()));
    let listed = |audience: &str, profile| Issuer {
        audiences: vec![AUDIENCE.to_owned(), audience.to_owned()],
        ..issuer(profile)
    };
    assert!(verify_claims(&with(claims(), "aud", any), &listed(any, Profile::Wlcg)).is_ok());
    assert!(verify_claims(&with(claims(), "aud", "ANY"), &listed("ANY", Profile::SciTokens)).is_ok());
    assert!(verify_claims(&with(claims(), "aud", "any"), &listed("ANY", Profile::SciTokens)).is_err());
    let nothing = Issuer { audiences: Vec::new(), ..issuer(Profile::Wlcg) };
    assert!(verify_claims(&claims(), &nothing).is_err(), "an issuer without audiences");
}

/// Two issuers may share a key, as two VOs of one service.
#[test]
fn token_of_another_issuer_with_the_same_key_is_refused() {
    for other in [
        "https://iam.example.org/other",
        "https://iam.example.org/vo/",
        "https://iam.example.org/VO",
        "https://iam.example.org",
        "http://iam.example.org/vo",
        "https://iam.example.org/vo\0",
    ] {
        let refusal = changed("iss", other, Profile::Wlcg).unwrap_err();
        assert_eq!(refusal, Refusal::WrongIssuer { expected: ISSUER.to_owned() }, "{other:?}");
    }
    let long = |bytes: usize| format!("https://h/{}", "x".repeat(bytes - 10));
    let (longest, longer) = (long(ISSUER_BYTES_MAX), long(ISSUER_BYTES_MAX + 1));
    let trusted = Issuer { url: longest.clone(), ..issuer(Profile::Wlcg) };
    assert!(verify_claims(&with(claims(), "iss", longest), &trusted).is_ok());
    let text = ed25519(1).token(&header("EdDSA", "one"), &with(claims(), "iss", longer).to_string());
    assert!(matches!(peek_issuer(&text), Err(Refusal::Limit { max: ISSUER_BYTES_MAX, .. })));
}

/// The caller loads the keys again for [`Refusal::UnknownKey`] only, which needs the right issuer.
#[test]
fn foreign_issuer_is_refused_before_its_key_is_unknown() {
    let signer = ed25519(7);
    let keys = key_set(&[]);
    let text = signer.token(&header("EdDSA", "x"), &claims().to_string());
    assert_eq!(verify_now(&text, &issuer(Profile::Wlcg), &keys), Err(Refusal::UnknownKey));
    let foreign = with(claims(), "iss", "https://other.example.org").to_string();
    let refusal = verify_now(&signer.token(&header("EdDSA", "x"), &foreign), &issuer(Profile::Wlcg), &keys);
    assert!(matches!(refusal, Err(Refusal::WrongIssuer { .. })));
}

#[test]
fn version_of_the_profile_is_checked() {
    for good in ["1.0", "1.1", "1.3", "1.17"] {
        assert_eq!(changed("wlcg.ver", good, Profile::Wlcg), Ok(()), "{good}");
    }
    for bad in
        [json!("2.0"), json!("0.1"), json!("10.0"), json!("1"), json!("1."), json!("1.x"), json!("1.0.0")]
            .into_iter()
            .chain([json!(1.0), json!(""), json!(" 1.0"), json!("01.0"), Value::Null])
    {
        let refusal = changed("wlcg.ver", bad.clone(), Profile::Wlcg).unwrap_err();
        assert!(matches!(refusal, Refusal::Version { claim: "wlcg.ver", .. }), "{bad}");
        assert_eq!(changed("wlcg.ver", bad, Profile::Oidc), Ok(()));
    }
    for good in ["scitoken:2.0", "scitokens:2.0", "scitoken:1.0", "scitokens:1.0"] {
        assert_eq!(changed("ver", good, Profile::SciTokens), Ok(()), "{good}");
    }
    for bad in
        [json!("scitoken:3.0"), json!("2.0"), json!(2.0), json!(""), json!("scitoken:2.0 "), Value::Null]
    {
        let refusal = changed("ver", bad.clone(), Profile::SciTokens).unwrap_err();
        assert!(matches!(refusal, Refusal::Version { claim: "ver", .. }), "{bad}");
    }
}

#[test]
fn subject_is_bounded_printable_ascii() {
    let longest = "x".repeat(SUBJECT_BYTES_MAX);
    let verified = verify_claims(&with(claims(), "sub", longest.as_str()), &issuer(Profile::Wlcg)).unwrap();
    assert_eq!(verified.subject, longest);
    let refusal = changed("sub", format!("{longest}x"), Profile::Wlcg).unwrap_err();
    assert!(matches!(refusal, Refusal::Limit { got: 256, max: SUBJECT_BYTES_MAX, .. }));
    for bad in ["a\nb", "a\0", "\u{7f}", "żółć", "\u{202e}root"] {
        assert!(matches!(changed("sub", bad, Profile::Wlcg), Err(Refusal::Malformed(_))), "{bad:?}");
    }
    assert_eq!(changed("sub", "host:a.example.org / x@y", Profile::Oidc), Ok(()));
}

#[test]
fn groups_are_as_asserted() {
    let groups = json!(["/vo", "/vo/production"]);
    let both = with(with(claims(), "wlcg.groups", groups), "groups", json!(["admins"]));
    for (profile, expected) in [
        (Profile::Wlcg, vec!["/vo", "/vo/production"]),
        (Profile::Oidc, vec!["admins"]),
        (Profile::SciTokens, vec![]),
    ] {
        assert_eq!(verify_claims(&both, &issuer(profile)).unwrap().groups, expected);
        assert!(verify_claims(&claims(), &issuer(profile)).unwrap().groups.is_empty());
    }
    assert_eq!(changed("wlcg.groups", json!(vec!["/g"; GROUPS_MAX]), Profile::Wlcg), Ok(()));
    let refusal = changed("wlcg.groups", json!(vec!["/g"; GROUPS_MAX + 1]), Profile::Wlcg).unwrap_err();
    assert!(matches!(refusal, Refusal::Limit { max: GROUPS_MAX, .. }));
    assert_eq!(changed("wlcg.groups", json!(["x".repeat(GROUP_BYTES_MAX)]), Profile::Wlcg), Ok(()));
    assert!(changed("wlcg.groups", json!(["x".repeat(GROUP_BYTES_MAX + 1)]), Profile::Wlcg).is_err());
}

/// Returns the grants of a scope, below a base path.
fn granted(scope: &str, profile: Profile, base: &str) -> Result<Option<Vec<Grant>>, Refusal> {
    let issuer = Issuer { base_path: lfn(base), ..issuer(profile) };
    verify_claims(&with(claims(), "scope", scope), &issuer).map(|verified| verified.grants)
}

#[test]
fn scope_grants_its_activity_below_the_base_path() {
    use Activity::{Create, Modify, Read, Stage};
    for (scope, profile, base, expected) in [
        ("storage.read:/", Profile::Wlcg, "/", vec![(Read, "/")]),
        ("storage.read:/", Profile::Wlcg, "/users/cms", vec![(Read, "/users/cms")]),
        ("storage.read:/", Profile::Wlcg, "/users/cms/", vec![(Read, "/users/cms")]),
        ("storage.read:/a", Profile::Wlcg, "/", vec![(Read, "/a")]),
        ("storage.read:/a/b", Profile::Wlcg, "/users/cms", vec![(Read, "/users/cms/a/b")]),
        ("storage.read:/a/", Profile::Wlcg, "/users", vec![(Read, "/users/a")]),
        (
            "storage.create:/a storage.modify:/b storage.stage:/c",
            Profile::Wlcg,
            "/",
            vec![(Create, "/a"), (Modify, "/b"), (Stage, "/c")],
        ),
        (
            "storage.create:/a storage.create:/b",
            Profile::Oidc,
            "/x",
            vec![(Create, "/x/a"), (Create, "/x/b")],
        ),
        ("storage.poll:/a", Profile::Wlcg, "/", vec![]),
        ("storage.poll:/a", Profile::Oidc, "/", vec![]),
        ("storage.future:/a", Profile::Oidc, "/", vec![]),
        ("read:/a", Profile::SciTokens, "/u", vec![(Read, "/u/a")]),
        ("write:/a", Profile::SciTokens, "/u", vec![(Create, "/u/a"), (Modify, "/u/a"), (Stage, "/u/a")]),
        ("storage.read:/a queue:/b", Profile::SciTokens, "/", vec![(Read, "/a")]),
        // Only SciTokens have these; elsewhere they are scopes of other kinds.
        ("read:/a write:/a read write", Profile::Wlcg, "/", vec![]),
        ("openid compute.read Storage.read:/a storage:/a", Profile::Wlcg, "/", vec![]),
        ("", Profile::Wlcg, "/", vec![]),
        ("openid", Profile::SciTokens, "/", vec![]),
        // Paths are decoded once.
        ("storage.read:/a%20b/%c5%BC", Profile::Wlcg, "/", vec![(Read, "/a b/ż")]),
        ("storage.read:/a:b?c#d", Profile::Wlcg, "/", vec![(Read, "/a:b?c#d")]),
        ("storage.read:/100%25", Profile::Wlcg, "/", vec![(Read, "/100%")]),
        ("storage.read:/.../.a/a..", Profile::Wlcg, "/", vec![(Read, "/.../.a/a..")]),
    ] {
        let expected: Vec<_> =
            expected.into_iter().map(|(activity, path)| Grant { activity, path: lfn(path) }).collect();
        assert_eq!(granted(scope, profile, base), Ok(Some(expected)), "{scope} {profile:?}");
    }
}

#[test]
fn token_without_storage_scopes_allows_nothing_or_is_the_users_own() {
    for claims in [without(claims(), "scope"), with(claims(), "scope", "openid profile read write read:/a")] {
        for profile in [Profile::Wlcg, Profile::Oidc] {
            let grants = verify_claims(&claims, &issuer(profile)).unwrap().grants;
            assert_eq!(grants.is_none(), profile == Profile::Oidc);
            assert_eq!(grants.unwrap_or_default(), []);
        }
    }
    let grants = verify_claims(&without(claims(), "scope"), &issuer(Profile::SciTokens)).unwrap().grants;
    assert_eq!(grants, Some(Vec::new()));
}

/// One bad scope refuses the whole token, wherever it stands. No path is ever normalised
/// (GHSA-3x2w-63fp-3qvw).
#[test]
fn token_with_a_bad_storage_scope_is_refused() {
    let paths = [
        "",
        "home",
        "./home",
        "../home",
        "%2Fhome",
        "//",
        "//home",
        "/home//user1",
        "/home//",
        "/.",
        "/..",
        "/./home",
        "/home/user1/..",
        "/home/user1/../user2",
        "/home/../",
        "/home/%2e%2e",
        "/home/%2E%2E/user2",
        "/home/.%2e",
        "/home/%2e",
        "/home/a%2eroot",
        "/home/%252e%252e",
        "/home/%252e",
        "/home/%25252e",
        "/home/%252F",
        "/home/a%2Fb",
        "/home/a%2fb",
        "/home/%2f",
        "/home/..%2f..",
        "/home/a%2520b",
        "/home/a%00b",
        "/home/%00",
        "/home/%",
        "/home/%2",
        "/home/%zz",
        "/home/%+1",
        "/home/%ff",
        "/home/%c0%ae%c0%ae",
        "/home/\0",
        "/home/a\tb",
        "/home/a\nb",
        "/home/ż",
        "https://host/home",
    ];
    for path in paths {
        for scope in [
            format!("storage.read:{path}"),
            format!("storage.poll:{path}"),
            format!("storage.future:{path}"),
            format!("openid storage.read:/ok storage.modify:{path} storage.read:/ok"),
        ] {
            for profile in PROFILES {
                let refusal = granted(&scope, profile, "/base").unwrap_err();
                assert!(matches!(refusal, Refusal::BadScope(_)), "{scope:?} {refusal:?}");
            }
        }
        for name in ["read", "write"] {
            assert!(granted(&format!("{name}:{path}"), Profile::SciTokens, "/").is_err(), "{name}:{path:?}");
        }
    }
    let without_path = ["storage.read", "storage.create", "storage.modify", "storage.stage", "storage.poll"];
    for scope in without_path {
        assert!(matches!(granted(scope, Profile::Oidc, "/"), Err(Refusal::BadScope(_))), "{scope}");
    }
    assert!(granted("read", Profile::SciTokens, "/").is_err());
    for spaces in ["storage.read:/a  storage.read:/b", " storage.read:/a", "storage.read:/a ", " ", "  "] {
        assert!(matches!(granted(spaces, Profile::Wlcg, "/"), Err(Refusal::BadScope(_))), "{spaces:?}");
    }
    let long = format!("storage.read:/{}", "x".repeat(256));
    assert!(matches!(granted(&long, Profile::Wlcg, "/"), Err(Refusal::BadScope(_))), "a long name");
    let long = format!("storage.read:{}", "/xxxxxxx".repeat(512));
    assert!(granted(&long, Profile::Wlcg, "/").is_ok());
    assert!(matches!(granted(&long, Profile::Wlcg, "/b"), Err(Refusal::BadScope(_))), "long with its base");
}

#[test]
fn scopes_are_limited() {
    let scopes = |count: usize| vec!["storage.read:/a"; count].join(" ");
    assert_eq!(granted(&scopes(SCOPES_MAX), Profile::Wlcg, "/").unwrap().unwrap().len(), SCOPES_MAX);
    for profile in PROFILES {
        for scope in [scopes(SCOPES_MAX + 1), vec!["openid"; SCOPES_MAX + 1].join(" ")] {
            let refusal = granted(&scope, profile, "/").unwrap_err();
            assert!(matches!(refusal, Refusal::Limit { got: 65, max: SCOPES_MAX, .. }));
        }
    }
}

/// Prefixes of text once allowed `/johnathan` to `/john` (CVE-2026-32716).
#[test]
fn grant_covers_whole_components_only() {
    let grants = granted("storage.read:/john", Profile::Wlcg, "/home").unwrap().unwrap();
    let [grant] = grants.as_slice() else { panic!("{grants:?}") };
    for inside in ["/home/john", "/home/john/", "/home/john/a", "/home/john/a/b"] {
        assert!(grant.covers(&lfn(inside)) && grant.covers_file(&lfn(inside)), "{inside}");
    }
    for outside in ["/", "/home", "/home/johnathan", "/home/joh", "/home/john.", "/john", "/home/John"] {
        assert!(!grant.covers(&lfn(outside)) && !grant.covers_file(&lfn(outside)), "{outside}");
    }
    let root = granted("storage.read:/", Profile::Wlcg, "/").unwrap().unwrap();
    assert!(root.iter().all(|grant| grant.covers(&lfn("/a/b")) && grant.covers(&Lfn::root())));
    let base = granted("storage.read:/", Profile::Wlcg, "/home").unwrap().unwrap();
    assert!(base.iter().all(|grant| grant.covers(&lfn("/home/a")) && !grant.covers(&lfn("/homes"))));
}

/// A slash at the end of a scope's path means a directory (WLCG profile 1.3, section 2.2.1).
#[test]
fn scope_that_ends_in_a_slash_covers_no_file_of_that_name() {
    let grants = granted("storage.create:/foo/bar/", Profile::Wlcg, "/").unwrap().unwrap();
    let [grant] = grants.as_slice() else { panic!("{grants:?}") };
    assert!(grant.path.must_be_directory());
    assert!(grant.covers(&lfn("/foo/bar")) && !grant.covers_file(&lfn("/foo/bar")));
    assert!(grant.covers_file(&lfn("/foo/bar/qux")));
    assert!(!grant.covers(&lfn("/foo/bargain")) && !grant.covers(&lfn("/foo")));
}

#[test]
fn modify_includes_create_and_nothing_else_includes_another() {
    use Activity::{Create, Modify, Read, Stage};
    for has in [Read, Create, Modify, Stage] {
        for wanted in [Read, Create, Modify, Stage] {
            assert_eq!(has.includes(wanted), has == wanted || (has, wanted) == (Modify, Create));
        }
    }
}
