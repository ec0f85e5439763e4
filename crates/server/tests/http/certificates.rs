//! Identity by client certificates over HTTPS: accounts as in JAliEn's protocol.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    KeyUsagePurpose,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{localhost, trusting};
use crate::world::World;

pub(crate) type Authority = CertifiedIssuer<'static, KeyPair>;

pub(crate) fn authority() -> Authority {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::OrganizationName, "Grid");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap()
}

/// Issues a certificate; returns it and its key.
pub(crate) fn issued(authority: &Authority, name: &str) -> (String, String) {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::OrganizationName, "Grid");
    parameters.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    (parameters.signed_by(&key, authority).unwrap().pem(), key.serialize_pem())
}

/// Asks for the identity over TLS, and returns the answer.
async fn ask(world: &World, shown: Option<&(String, String)>, headers: &str) -> String {
    send(world, shown, "GET /api/v1/whoami", headers, "").await
}

/// Sends a request over TLS, and returns the answer.
pub(crate) async fn send(
    world: &World,
    shown: Option<&(String, String)>,
    target: &str,
    headers: &str,
    body: &str,
) -> String {
    let shown = shown.map(|(certificate, key)| (certificate.as_str(), key.as_str()));
    let connector = trusting(&world.server.addresses.certificate, shown);
    let stream = TcpStream::connect(world.server.addresses.http.unwrap()).await.unwrap();
    let mut stream = connector.connect(localhost(), stream).await.unwrap();
    let request = format!("{target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n{body}");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(crate::web::PATIENCE, stream.read_to_end(&mut answer)).await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_of_a_trusted_authority_stands_for_its_account() {
    let place = tempfile::tempdir().unwrap();
    let (grid, other) = (authority(), authority());
    let (ca, map) = (place.path().join("grid.pem"), place.path().join("map"));
    std::fs::write(&ca, grid.pem()).unwrap();
    std::fs::write(&map, "\"/O=Grid/CN=Mapped\" mapped\n").unwrap();
    let world = World::with(|settings| {
        let http = settings.http.as_mut().unwrap();
        http.authorities = Some(ca.clone());
        http.map = Some(map.clone());
    })
    .await;
    world.user("jdoe", |user| user.subjects = Some(vec!["/O=Grid/CN=Jane Doe".to_owned()])).await;
    world.user("mapped", |_| {}).await;
    let jane = issued(&grid, "Jane Doe");
    for (shown, expected) in [
        (Some(&jane), "\"user\":\"jdoe\""),
        (Some(&issued(&grid, "Mapped")), "\"user\":\"mapped\""),
        (Some(&issued(&grid, "Nobody")), "HTTP/1.1 401 "),
        (Some(&issued(&other, "Jane Doe")), "is not accepted"),
        (None, "HTTP/1.1 401 "),
    ] {
        let answer = ask(&world, shown, "").await;
        assert!(answer.contains(expected), "{expected}: {answer}");
    }
    // A token counts before the certificate, and a bad one is not replaced by it.
    let token = world.token("mapped", 60).await.1;
    let answer = ask(&world, Some(&jane), &format!("Authorization: Bearer {token}\r\n")).await;
    assert!(answer.contains("\"user\":\"mapped\""), "{answer}");
    let answer = ask(&world, Some(&jane), "Authorization: Bearer exa_bad\r\n").await;
    assert!(answer.contains("HTTP/1.1 401 "), "{answer}");
    // A disabled account ends it.
    world.user("jdoe", |user| user.disabled = Some(true)).await;
    let answer = ask(&world, Some(&jane), "").await;
    assert!(!answer.contains("200 OK"), "{answer}");
}
