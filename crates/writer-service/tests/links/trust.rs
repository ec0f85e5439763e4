//! Certificates between services.

use std::net::IpAddr;
use std::sync::Arc;

use exacat_testkit::waiting::eventually;
use exacat_wire::writer::{Hello, Role, WriterId};
use exacat_writer_service::{Found, IdentityFiles, Trust};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use tempfile::TempDir;

use crate::node::{Node, id};

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Authority {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap())
    }

    /// Writes the files of a host, which trusts `trusted`.
    fn files(&self, host: &str, trusted: &Authority, names: &[&str]) -> (TempDir, IdentityFiles) {
        use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
        let directory = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new([host.to_owned()]).unwrap();
        parameters.extended_key_usages = vec![ServerAuth, ClientAuth];
        let certificate = parameters.signed_by(&key, &self.0).unwrap();
        let write = |name: &str, text: String| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let files = IdentityFiles {
            chain: write("chain.pem", certificate.pem()),
            key: write("key.pem", key.serialize_pem()),
            authorities: write("authorities.pem", trusted.0.pem()),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        (directory, files)
    }

    fn trust(&self, host: &str, trusted: &Authority, names: &[&str]) -> Trust {
        let (_directory, files) = self.files(host, trusted, names);
        Trust::load(Some(&files), Arc::new(|_: IpAddr| false)).unwrap()
    }
}

const NAMES: [&str; 2] = ["node1.example", "node2.example"];

/// Says why node 1 is not linked to node 2.
async fn refused(trusts: [&Trust; 2]) -> String {
    let one = Node::new(1, trusts[0]).await;
    let two = Node::new(2, trusts[1]).await;
    one.peers.found(Found { address: two.address, service: Some(id(2)) });
    let reason = || one.status_of(id(2)).map(|status| status.reason).unwrap_or_default();
    eventually("a refusal", || reason().contains("127.0.0.1")).await;
    assert!(!one.is_linked(id(2)));
    assert_eq!(one.status_of(id(2)).unwrap().connections, 0);
    reason()
}

/// Property: services with certificates of their authority are linked over TLS. Seeds work as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_of_the_authority_link_services() {
    let authority = Authority::new("services");
    let one = Node::new(1, &authority.trust("node1.example", &authority, &NAMES)).await;
    let two = Node::new(2, &authority.trust("node2.example", &authority, &NAMES)).await;
    one.peers.found(Found { address: two.address, service: Some(id(2)) });
    two.peers.found(Found { address: one.address, service: None });
    one.reaches(&two).await;
    two.reaches(&one).await;
    // Its own address.
    one.peers.found(Found { address: one.address, service: None });
    one.reaches(&two).await;
    assert_eq!(one.peers.status().len(), 1);
}

/// Property: neither side accepts a certificate of another authority, or one with another name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_certificates_are_refused_on_both_sides() {
    let (ours, others) = (Authority::new("ours"), Authority::new("others"));
    let good = ours.trust("node2.example", &ours, &NAMES);
    // The accepting side refuses.
    let foreign = others.trust("node1.example", &ours, &NAMES);
    let reason = refused([&foreign, &good]).await;
    assert!(reason.contains("refused") && reason.contains("not trusted"), "{reason}");
    let user = ours.trust("user.example", &ours, &NAMES);
    let reason = refused([&user, &good]).await;
    assert!(reason.contains("none of the names"), "{reason}");
    // The connecting side refuses.
    let good = ours.trust("node1.example", &ours, &NAMES);
    let foreign = others.trust("node2.example", &ours, &NAMES);
    let reason = refused([&good, &foreign]).await;
    assert!(reason.contains("TLS"), "{reason}");
    let user = ours.trust("user.example", &ours, &NAMES);
    let reason = refused([&good, &user]).await;
    assert!(reason.contains("none of the names"), "{reason}");
}

/// Property: without certificates services are linked on plain networks, and nowhere else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_without_certificates_are_refused_beyond_plain_networks() {
    let closed = Trust::load(None, Arc::new(|_: IpAddr| false)).unwrap();
    let open = Trust::load(None, Arc::new(|_: IpAddr| true)).unwrap();
    let reason = refused([&closed, &open]).await;
    assert!(reason.contains("not plain"), "{reason}");
    let reason = refused([&open, &closed]).await;
    assert!(reason.contains("not trusted") && reason.contains("not plain"), "{reason}");
}

/// Property: the judgement follows the hello, the certificates and the address, each alone.
#[test]
fn hello_of_a_service_is_judged() {
    let (ours, others) = (Authority::new("ours"), Authority::new("others"));
    let hello = |role| Hello::new(role, String::new(), None);
    let service = hello(Role::Service(id(1)));
    let producer = hello(Role::Producer { writer: WriterId([1; 16]), session: 1 });
    let shown = |authority: &Authority, host: &str| {
        let (_directory, files) = authority.files(host, authority, &NAMES);
        use rustls::pki_types::pem::PemObject;
        vec![rustls::pki_types::CertificateDer::from_pem_file(&files.chain).unwrap()]
    };
    let (good, user) = (shown(&ours, "node1.example"), shown(&ours, "user.example"));
    let (near, far): (IpAddr, IpAddr) = ("10.1.0.1".parse().unwrap(), "192.0.2.1".parse().unwrap());
    let (_directory, files) = ours.files("node1.example", &ours, &NAMES);
    let plain: IpAddr = near;
    let trust = Trust::load(Some(&files), Arc::new(move |address| address == plain)).unwrap();
    assert_eq!(trust.judge_service(&service, Some(&good), far), Ok(()));
    assert_eq!(trust.judge_service(&service, None, near), Ok(()));
    let mapped: IpAddr = "::ffff:10.1.0.1".parse().unwrap();
    assert_eq!(trust.judge_service(&service, None, mapped), Ok(()), "the same address in another form");
    for (hello, certificates) in [
        (&service, None),
        (&service, Some(&[][..])),
        (&service, Some(user.as_slice())),
        (&service, Some(shown(&others, "node1.example").as_slice())),
        (&producer, Some(good.as_slice())),
    ] {
        assert!(trust.judge_service(hello, certificates, far).is_err());
    }
}

/// Property: files that cannot serve are refused, and the error names them.
#[test]
fn wrong_identity_files_are_refused() {
    let (ours, others) = (Authority::new("ours"), Authority::new("others"));
    let load = |files: &IdentityFiles| Trust::load(Some(files), Arc::new(|_: IpAddr| false));
    let (_directory, good) = ours.files("node1.example", &ours, &NAMES);
    let (_other_directory, other) = others.files("node1.example", &others, &NAMES);
    load(&good).unwrap();
    let refused = |files: IdentityFiles, reason: &str| {
        let message = load(&files).unwrap_err().message;
        assert!(message.contains(reason), "{message}");
    };
    refused(IdentityFiles { key: other.key, ..good.clone() }, "key.pem");
    refused(IdentityFiles { authorities: good.key.clone(), ..good.clone() }, "no certificate");
    refused(IdentityFiles { chain: "/nowhere/chain.pem".into(), ..good.clone() }, "/nowhere/chain.pem");
    refused(IdentityFiles { names: Vec::new(), ..good.clone() }, "1 to 64 names");
    refused(IdentityFiles { names: vec!["no host".to_owned()], ..good.clone() }, "no host");
    let many = |count: usize| (0..count).map(|at| format!("node{at}.example")).collect();
    load(&IdentityFiles { names: many(64), ..good.clone() }).unwrap();
    refused(IdentityFiles { names: many(65), ..good }, "1 to 64 names");
}
