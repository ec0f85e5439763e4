//! Admission of clients: identity, roles, expiry.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    KeyUsagePurpose,
};

use crate::alien::{Alien, NotLetIn, Pair, new_user, world, world_with};
use crate::world::account;

/// Makes a grid authority.
fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::OrganizationName, "Grid");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap()
}

/// Issues a certificate.
fn issued(authority: &CertifiedIssuer<'static, KeyPair>, parts: &[(DnType, &str)]) -> Pair {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    for (kind, text) in parts {
        parameters.distinguished_name.push(kind.clone(), *text);
    }
    let key = KeyPair::generate().unwrap();
    let certificate = parameters.signed_by(&key, authority).unwrap();
    Pair { certificate: certificate.pem(), key: key.serialize_pem() }
}

const STRANGER: NotLetIn = NotLetIn(401);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_are_known_are_let_in_and_others_are_told_no() {
    let place = tempfile::tempdir().unwrap();
    let grid = authority();
    std::fs::write(place.path().join("grid.pem"), grid.pem()).unwrap();
    std::fs::write(place.path().join("readme.txt"), "nothing to trust").unwrap();
    let map = place.path().join("map");
    std::fs::write(&map, "\"/O=Grid/CN=Mapped\" mapped\n\"/O=Grid/CN=Nobody\" nobody\n").unwrap();
    let world = world_with(|settings| {
        let jalien = settings.jalien.as_mut().unwrap();
        jalien.authorities = Some(place.path().to_owned());
        jalien.map = Some(map.clone());
    })
    .await;
    new_user(&world, "jdoe", |user| user.subjects = Some(vec!["/O=Grid/CN=Jane Doe".to_owned()])).await;
    new_user(&world, "mapped", |_| {}).await;
    let of = |name: &str| issued(&grid, &[(DnType::OrganizationName, "Grid"), (DnType::CommonName, name)]);

    let mut jane = Alien::connect(&world, Some(&of("Jane Doe"))).await.unwrap();
    assert_eq!(jane.texts("whoami", &[]).await, ["jdoe"]);
    assert_eq!(jane.texts("pwd", &[]).await, ["/alice/cern.ch/user/j/jdoe/"]);
    assert_eq!(jane.fields("certificate_dn", "whoami", &["-v"]).await, ["/O=Grid/CN=Jane Doe"]);
    let mut mapped = Alien::connect(&world, Some(&of("Mapped"))).await.unwrap();
    assert_eq!(mapped.texts("whoami", &[]).await, ["mapped"]);

    for (who, why) in [("John Doe", "no account"), ("Nobody", "an account that is not there")] {
        assert_eq!(Alien::connect(&world, Some(&of(who))).await.err(), Some(STRANGER), "{why}");
    }
    assert_eq!(Alien::connect(&world, None).await.err(), Some(STRANGER), "no certificate");
    let elsewhere =
        issued(&authority(), &[(DnType::OrganizationName, "Grid"), (DnType::CommonName, "Jane Doe")]);
    assert_eq!(Alien::connect(&world, Some(&elsewhere)).await.err(), Some(STRANGER), "another authority");
    // A subject like those of our tokens, from an authority that is trusted for other subjects.
    let common_name = DnType::CustomDnType(vec![2, 5, 4, 3]);
    let forged = issued(
        &grid,
        &[
            (DnType::OrganizationName, "exacat"),
            (DnType::CommonName, "Users"),
            (common_name, "admin"),
            (DnType::OrganizationalUnitName, "admin"),
        ],
    );
    assert_eq!(Alien::connect(&world, Some(&forged)).await.err(), Some(STRANGER), "a forged token");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_of_the_one_who_asked_and_no_longer_than_its_certificate() {
    let world = world().await;
    new_user(&world, "jdoe", |_| {}).await;
    world.user("prod", |_| {}).await;
    world.user("jdoe", |user| user.may_become = Some(vec![account("prod")])).await;
    let mut admin = Alien::admin(&world).await;
    // The administrator may act as any user, and its token names both.
    let pair = Alien::token(&world, "jdoe").await;
    let mut jdoe = Alien::connect(&world, Some(&pair)).await.unwrap();
    assert_eq!(jdoe.texts("whoami", &[]).await, ["jdoe"]);
    let dn = jdoe.fields("certificate_dn", "whoami", &["-v"]).await;
    assert_eq!(dn, ["/O=exacat/CN=Users/CN=admin/OU=jdoe"]);

    let expires = |answer: Vec<String>| answer[0].parse::<u64>().unwrap();
    let own = expires(admin.fields("certificate_expires", "whoami", &["-v"]).await);
    let answer = admin.done("token", &["-v", "10000"]).await;
    let text = |field: &str| answer["results"][0][field].as_str().unwrap().to_owned();
    assert!(text("tokenkey").starts_with("-----BEGIN RSA PRIVATE KEY-----"));
    let long = Pair { certificate: text("tokencert"), key: text("tokenkey") };
    let mut again = Alien::connect(&world, Some(&long)).await.unwrap();
    assert!(expires(again.fields("certificate_expires", "whoami", &["-v"]).await) <= own);
    for options in [&["-v", "0"][..], &["-v", "x"], &["-t", "host"], &["-u", "nobody"], &["x"]] {
        admin.fails("token", options).await;
    }
    // The token expires by the clock.
    world.clock.turn(3 * 24 * 3_600_000);
    assert_eq!(Alien::connect(&world, Some(&pair)).await.err(), Some(STRANGER));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_acts_as_whom_one_may_and_as_oneself_again() {
    let place = tempfile::tempdir().unwrap();
    let grid = authority();
    let file = place.path().join("grid.pem");
    std::fs::write(&file, grid.pem()).unwrap();
    let world = world_with(|settings| {
        settings.jalien.as_mut().unwrap().authorities = Some(file);
        settings.limits.revalidate = std::time::Duration::ZERO;
    })
    .await;
    world.user("prod", |_| {}).await;
    new_user(&world, "jdoe", |user| {
        user.subjects = Some(vec!["/CN=Jane".to_owned()]);
        user.may_become = Some(vec![account("prod")]);
    })
    .await;
    let pair = issued(&grid, &[(DnType::CommonName, "Jane")]);
    let mut jane = Alien::connect(&world, Some(&pair)).await.unwrap();
    let answer = jane.done("user", &["prod"]).await;
    assert_eq!(answer["metadata"]["user"], "prod");
    assert_eq!(answer["results"][0]["homedir"], "/alice/cern.ch/user/p/prod/");
    assert_eq!(jane.fields("username", "whoami", &[]).await, ["jdoe"]);
    // A token for a role can only renew itself for the same role and account.
    let answer = jane.done("token", &[]).await;
    let text = |field: &str| answer["results"][0][field].as_str().unwrap().to_owned();
    let token = Pair { certificate: text("tokencert"), key: text("tokenkey") };
    let mut role = Alien::connect(&world, Some(&token)).await.unwrap();
    assert_eq!(role.texts("whoami", &[]).await, ["prod"]);
    role.fails("user", &["admin"]).await;
    role.fails("token", &["-u", "jdoe"]).await;
    let answer = role.done("token", &[]).await;
    let text = |field: &str| answer["results"][0][field].as_str().unwrap().to_owned();
    let renewed = Pair { certificate: text("tokencert"), key: text("tokenkey") };
    let mut again = Alien::connect(&world, Some(&renewed)).await.unwrap();
    assert_eq!(
        again.fields("certificate_dn", "whoami", &["-v"]).await,
        ["/O=exacat/CN=Users/CN=jdoe/OU=prod"]
    );
    jane.fails("user", &["admin"]).await;
    assert_eq!(jane.done("user", &["jdoe"]).await["metadata"]["user"], "jdoe");
    jane.done("user", &["prod"]).await;

    // A lost right ends the connections that use it.
    world.user("jdoe", |user| user.may_become = Some(Vec::new())).await;
    assert_eq!(jane.fails("pwd", &[]).await, libc::EPERM);
    assert_eq!(jane.end().await, Some(1008));
    assert_eq!(role.fails("pwd", &[]).await, libc::EPERM);
    for token in [&token, &renewed] {
        assert_eq!(Alien::connect(&world, Some(token)).await.err(), Some(STRANGER));
    }
    let mut jane = Alien::connect(&world, Some(&pair)).await.unwrap();
    world.user("jdoe", |user| user.disabled = Some(true)).await;
    assert_eq!(jane.fails("pwd", &[]).await, libc::EPERM);
    assert_eq!(Alien::connect(&world, Some(&pair)).await.err(), Some(STRANGER));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_was_revoked_lets_nobody_in() {
    let place = tempfile::tempdir().unwrap();
    let grid = authority();
    std::fs::write(place.path().join("grid.pem"), grid.pem()).unwrap();
    let parts = [(DnType::CommonName, "Jane")];
    let (good, bad) = (issued(&grid, &parts), issued(&grid, &parts));
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    let der = CertificateDer::from_pem_slice(bad.certificate.as_bytes()).unwrap();
    let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
    let list = rcgen::CertificateRevocationListParams {
        this_update: rcgen::date_time_ymd(2026, 1, 1),
        next_update: rcgen::date_time_ymd(2026, 2, 1),
        crl_number: rcgen::SerialNumber::from(1u64),
        issuing_distribution_point: None,
        revoked_certs: vec![rcgen::RevokedCertParams {
            serial_number: rcgen::SerialNumber::from_slice(parsed.raw_serial()),
            revocation_time: rcgen::date_time_ymd(2026, 1, 1),
            reason_code: None,
            invalidity_date: None,
        }],
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&grid).unwrap().pem().unwrap();
    std::fs::write(place.path().join("deadbeef.r0"), list).unwrap();
    std::fs::write(
        place.path().join("broken.r1"),
        "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n",
    )
    .unwrap();
    let authorities = place.path().to_owned();
    let world =
        world_with(|settings| settings.jalien.as_mut().unwrap().authorities = Some(authorities)).await;
    new_user(&world, "jdoe", |user| user.subjects = Some(vec!["/CN=Jane".to_owned()])).await;
    assert!(Alien::connect(&world, Some(&good)).await.is_ok());
    assert_eq!(Alien::connect(&world, Some(&bad)).await.err(), Some(STRANGER));
}
