//! A cluster with access control: TLS both ways, and a password. `make test-cluster-secure` starts
//! such a ring.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use exacat_model::{DirId, ErrorKind, UserId};
use exacat_store::Store;
use exacat_store_cassandra::{CassandraSettings, ClusterAccess, check_schema};
use exacat_testkit::TestClock;
use exacat_testkit::cassandra::{CassandraFactory, Servers, access, ring};
use exacat_testkit::random::request;
use exacat_testkit::scene::{create, lfn, new_directory, top};

/// Returns the ring, the credentials, and a directory for wrong ones.
fn secure() -> (String, ClusterAccess, tempfile::TempDir) {
    let access = access();
    assert!(access != ClusterAccess::default(), "EXACAT_CASSANDRA_SECURE names the credentials");
    (ring(), access, tempfile::tempdir().expect("a directory"))
}

fn secret(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, text).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    path
}

/// Goal: a catalogue works as ever over TLS, with a certificate and a password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a ring with access control: make test-cluster-secure"]
async fn a_catalogue_works_where_not_everyone_is_let_in() {
    let (hosts, ..) = secure();
    let mut catalogue = Servers::start(&CassandraFactory::on(hosts), &TestClock::new()).await;
    let (one, two) = (catalogue.one_more().await, catalogue.one_more().await);
    let made = one.apply(request(1, UserId::ADMIN, vec![create(new_directory(top("d")))])).await;
    assert_eq!(made.expect("made").len(), 1);
    assert_eq!(two.resolve(&[lfn("/d")]).await.expect("walk")[0].ancestors.len(), 1);
    assert_eq!(two.list(DirId::ROOT, None, 10).await.expect("list").expect("there").items.len(), 1);
}

/// Goal: a server that lacks a credential is not admitted, and a node with another authority's
/// certificate is not trusted; the error has the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a ring with access control: make test-cluster-secure"]
async fn whoever_lacks_something_is_not_let_in() {
    let (hosts, access, directory) = secure();
    let refused = async |access: ClusterAccess| {
        let settings = CassandraSettings::new(&hosts, "exacat_secure").expect("settings");
        let refused = check_schema(&CassandraSettings { access, ..settings }).await;
        refused.expect_err("let in")
    };
    let user = access.user.clone().expect("a user").0;
    let other = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    let stranger = secret(directory.path(), "stranger.pem", &other.cert.pem());
    let key = secret(directory.path(), "stranger.key", &other.signing_key.serialize_pem());
    let wrong = secret(directory.path(), "password", "wrong\n");
    for (what, access, kind) in [
        (
            "no TLS",
            ClusterAccess { authorities: None, certificate: None, ..access.clone() },
            ErrorKind::Unavailable,
        ),
        ("no certificate", ClusterAccess { certificate: None, ..access.clone() }, ErrorKind::Unavailable),
        (
            "a stranger's certificate",
            ClusterAccess { certificate: Some((stranger.clone(), key)), ..access.clone() },
            ErrorKind::Unavailable,
        ),
        (
            "another authority",
            ClusterAccess { authorities: Some(stranger), ..access.clone() },
            ErrorKind::Unavailable,
        ),
        ("nobody", ClusterAccess { user: None, ..access.clone() }, ErrorKind::Unauthenticated),
        (
            "a wrong password",
            ClusterAccess { user: Some((user, wrong)), ..access.clone() },
            ErrorKind::Unauthenticated,
        ),
    ] {
        let error = refused(access).await;
        eprintln!("{what}: {error}");
        assert_eq!(error.kind, kind, "{what}: {error}");
        assert!(!error.message.contains("wrong\n"));
    }
}
