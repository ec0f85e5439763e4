//! Commands of an operator whose catalogue is on a cluster, with several servers of the real
//! binary. `make test-cluster` starts a ring for the tests that need one.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it skipped"
)]

mod service;

use serde_json::Value;
use service::{Ran, Service, exacat, signal};

fn ran(args: &[&str]) -> Ran {
    let mut command = exacat();
    command.args(args);
    Ran::of(command, b"")
}

/// Address of a keyspace of this test's own, and the replication for the ring.
fn keyspace(name: &str) -> (String, String) {
    let hosts = std::env::var("EXACAT_CASSANDRA").expect("EXACAT_CASSANDRA names a ring: make test-cluster");
    let copies = hosts.split(',').count().min(3);
    // A new directory has a unique name.
    let directory = tempfile::tempdir().unwrap();
    let unique = directory.path().file_name().unwrap().as_encoded_bytes().to_vec();
    let unique: String = unique.iter().map(|byte| format!("{byte:02x}")).collect();
    let address = format!("cassandra://{hosts}/{name}_{unique}");
    (address, format!("{{'class': 'NetworkTopologyStrategy', 'datacenter1': {copies}}}"))
}

fn figure(status: &[Value], name: &str) -> u64 {
    let store = status.iter().find(|part| part["part"] == "store").expect("a store");
    store["metrics"][name].as_u64().unwrap_or_else(|| panic!("no metric {name}: {store}"))
}

/// Goal: a bad address is refused before any work, with advice.
#[test]
fn a_bad_address_is_told() {
    for address in ["cassandra://", "cassandra://h", "cassandra://h/Upper", "cassandra://a,,b/k"] {
        let said = ran(&["schema", "check", address]);
        assert_eq!(said.status, Some(1), "{address}: {said:?}");
        assert!(said.err.contains("cassandra://host1,host2/keyspace"), "{}", said.err);
    }
    for store in ["sqlite", "memory"] {
        let said = ran(&["serve", "--store", store]);
        assert_eq!(said.status, Some(1));
        let choices = format!("embedded or cassandra://HOST,HOST/KEYSPACE, not {store:?}");
        assert!(said.err.contains(&choices), "{}", said.err);
    }
    // Nobody listens there.
    let said = ran(&["schema", "check", "cassandra://127.0.0.1:1/k"]);
    assert!(said.fails(23).contains("cassandra://127.0.0.1:1/k"));
}

/// Goal: tables are made once, checked, and never served at an unknown version.
#[test]
#[ignore = "needs a ring: make test-cluster"]
fn tables_are_made_and_checked() {
    let (address, replication) = keyspace("exacat_schema");
    assert!(ran(&["schema", "check", &address]).err.contains("exacat schema create"));
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let serve = ["serve", "--listen", "none", "--store", &address, "--data", data.to_str().unwrap()];
    let said = ran(&serve);
    assert!(said.status != Some(0) && said.err.contains("exacat schema create"), "{said:?}");
    let said = ran(&["schema", "create", &address, "--replication", "3"]);
    assert!(said.status != Some(0) && said.err.contains("NetworkTopologyStrategy"), "{said:?}");
    assert!(ran(&["schema", "create", &address, "--replication", &replication]).ok().contains("made"));
    let again = ran(&["schema", "create", &address, "--replication", &replication]);
    assert!(again.status != Some(0) && again.err.contains("has a catalogue already"), "{again:?}");
    let found = ran(&["--json", "schema", "check", &address]).json().remove(0);
    assert!(found["found"].as_u64() > Some(1));
    assert_eq!(found["found"], found["known"]);
    assert_eq!(ran(&["--json", "schema", "upgrade", &address]).json().remove(0)["found"], found["known"]);
}

/// Goal: two servers are one catalogue. A killed one is not missed. A data directory of one
/// catalogue is never used for another.
#[test]
#[ignore = "needs a ring: make test-cluster"]
fn two_servers_are_one_catalogue() {
    let (address, replication) = keyspace("exacat_serve");
    ran(&["schema", "create", &address, "--replication", &replication]).ok();
    let mut one = Service::start_with(&["--store", &address]);
    let two = Service::start_with(&["--store", &address]);
    one.ok("se add VO::NEAR::DISK --prefix root://near//data --number 7");
    one.ok("mkdir -p /a/b");
    two.ok("register /a/b/f --size 100 --se VO::NEAR::DISK");
    assert_eq!(one.ok("ls /a/b"), "f\n");
    one.ok("mv /a/b /a/c");
    assert_eq!(two.ok("ls /a/c"), "f\n");
    two.fails("ls /a/b", 11);
    // Both know the token of the administrator that one of them issued.
    let token = std::fs::read_to_string(one.data().join("admin.token")).unwrap();
    assert!(two.over_tls(Some(token.trim()), "whoami").ok().contains("admin"));
    for number in 0..10 {
        let server = if number % 2 == 0 { &one } else { &two };
        server.ok(&format!("register /a/c/g{number} --size 1 --se VO::NEAR::DISK"));
    }
    one.kill();
    two.ok("rm -r /a/c");
    assert_eq!(two.json("trash ls").len(), 1);
    two.ok("register /a/h --size 5");
    one.restart_with(&["--store", &address]);
    assert_eq!(one.ok("ls /a"), "h\n");
    assert_eq!(one.json1("du /a")["usage"]["bytes"], 5);
    assert_eq!(one.json1("digest /"), two.json1("digest /"));
    let checked = one.json1("fsck");
    assert_eq!(checked["findings_total"], 0, "{checked}");
    let status = one.json("status");
    assert!(figure(&status, "nodes") >= 1 && figure(&status, "nodes_away") == 0);
    assert!(figure(&status, "statements") > 0 && figure(&status, "answer_us_p99") > 0);
    // The embedded store does not open under the id of the catalogue on the cluster, nor another
    // cluster's.
    one.kill();
    let mut other = exacat();
    other.args(["serve", "--listen", "none", "--data"]).arg(one.data());
    assert!(Ran::of(other, b"").err.contains("is on a cluster"));
    let embedded = Service::start();
    let data = embedded.data().to_owned();
    let mut embedded = embedded;
    embedded.stop();
    let mut other = exacat();
    other.args(["serve", "--listen", "none", "--store", &address, "--data"]).arg(&data);
    assert!(Ran::of(other, b"").err.contains("this directory is of catalogue"));
}

/// Goal: of two servers the later one forwards changes to the earlier one. While that is
/// unresponsive it makes them itself, each once. The rest of the unresponsive server's requests do
/// nothing once it continues.
#[test]
#[ignore = "needs a ring: make test-cluster"]
fn a_server_that_is_stuck_is_not_waited_for() {
    let (address, replication) = keyspace("exacat_stuck");
    ran(&["schema", "create", &address, "--replication", &replication]).ok();
    let one = Service::start_with(&["--store", &address]);
    let two = Service::start_with(&["--store", &address, "--peers", "auto"]);
    one.ok("mkdir /a");
    let mut number = 0;
    let mut make = |server: &Service| {
        number += 1;
        server.ok(&format!("register /a/f{number} --size 1"));
        number
    };
    // The first change it makes itself, and sees a server to forward to. That one accepts it by a
    // later change.
    let handed_over = |server: &Service| figure(&server.json("status"), "requests_forwarded_out");
    for _ in 0..50 {
        make(&two);
        make(&one);
        if handed_over(&two) > 0 {
            break;
        }
    }
    assert!(handed_over(&two) > 0 && handed_over(&one) == 0);
    signal(one.pid(), "STOP");
    for _ in 0..3 {
        make(&two);
    }
    signal(one.pid(), "CONT");
    for _ in 0..3 {
        make(&two);
        make(&one);
    }
    let made = make(&two);
    for server in [&one, &two] {
        assert_eq!(server.ok("ls /a").lines().count(), made);
    }
    assert_eq!(two.json1("du /a")["usage"]["files"], made);
    let checked = one.json1("fsck");
    assert_eq!(checked["findings_total"], 0, "{checked}");
    let unconnected =
        ["serve", "--listen", "none", "--peers", "0.0.0.0:4100", "--store", &address, "--data", "/nowhere"];
    assert!(ran(&unconnected).err.contains("servers reach each other"));
}

/// Goal: a catalogue is copied whole from one machine to a cluster and back: digest, trash,
/// history, accounts, and valid tokens. Another run copies later changes. A target with another
/// history is left alone.
#[test]
#[ignore = "needs a ring: make test-cluster"]
fn a_catalogue_is_copied_to_the_ring_and_back() {
    let (address, replication) = keyspace("exacat_copy");
    ran(&["schema", "create", &address, "--replication", &replication]).ok();
    let mut source = Service::start();
    source.ok("generate --entries 600 --prefix /demo");
    source.ok("mkdir -p /old/things");
    source.ok("rm -r /old");
    source.ok("user add alice --group admin");
    let token = std::fs::read_to_string(source.data().join("admin.token")).unwrap();
    let digest = source.json1("digest /");
    let from = format!("embedded:{}", source.data().display());
    let copy = |from: &str, to: &str| ran(&["--json", "copy", "--from", from, "--to", to]);
    assert!(copy(&from, &address).fails(23).contains("stop it first"));
    source.stop();
    let copied = copy(&from, &address).json().remove(0);
    assert_eq!(copied["digest"], digest["digest"], "{copied}");
    assert_eq!(copied["before"], 0);
    // Later changes are copied alone.
    source.restart();
    source.ok("mkdir /more");
    let changes = source.json("changes").len();
    source.stop();
    let again = copy(&from, &address).json().remove(0);
    assert_eq!(again["before"], copied["revision"]);
    assert!(again["changes"].as_u64().unwrap() >= 1, "{again}");
    let mut served = Service::start_with(&["--store", &address]);
    assert_eq!(
        served.json("changes").len() as u64,
        again["revision"].as_u64().unwrap() + 1,
        "and its own token"
    );
    assert!(served.json("changes").len() > changes - 1);
    assert_eq!(served.json("trash ls").len(), 1);
    assert!(served.ok("user ls").contains("alice"));
    assert!(served.over_tls(Some(token.trim()), "whoami").ok().contains("admin"));
    assert_eq!(served.json1("fsck")["findings_total"], 0);
    let digest = served.json1("digest /")["digest"].clone();
    served.stop();
    let directory = tempfile::tempdir().unwrap();
    let back = format!("embedded:{}", directory.path().join("data").display());
    assert_eq!(copy(&address, &back).json().remove(0)["digest"], digest);
    let service = Service::start_in(directory.path(), &[]);
    assert_eq!(service.json1("digest /")["digest"], digest);
    assert!(service.over_tls(Some(token.trim()), "whoami").ok().contains("admin"));
    assert_eq!(service.json1("fsck")["findings_total"], 0);
    // Another catalogue's history is not put behind this one's.
    let mut other = Service::start();
    other.ok("mkdir /other");
    other.stop();
    let other = format!("embedded:{}", other.data().display());
    assert!(copy(&other, &address).fails(19).contains("are not those of the source"));
}

/// Goal: each request can set the age of its answer, and the server has a default.
#[test]
#[ignore = "needs a ring: make test-cluster"]
fn a_request_says_how_old_its_answer_may_be() {
    let said = ran(&["--consistency", "two", "ls", "/"]);
    assert_eq!(said.status, Some(1));
    assert!(said.err.contains("one, local-quorum, quorum, latest"), "{}", said.err);
    // On one machine every answer is of the last state.
    let alone = Service::start_with(&["--consistency", "quorum"]);
    alone.ok("mkdir /a");
    assert_eq!(alone.ok("--consistency one ls /"), "a\n");
    let (address, replication) = keyspace("exacat_levels");
    ran(&["schema", "create", &address, "--replication", &replication]).ok();
    let one = Service::start_with(&["--store", &address]);
    let two = Service::start_with(&["--store", &address, "--consistency", "local-quorum"]);
    one.ok("mkdir -p /a/b");
    let before = figure(&two.json("status"), "answers_local_quorum");
    assert_eq!(two.ok("--consistency latest ls /a"), "b\n");
    for (level, name) in
        [("one", "answers_one"), ("local-quorum", "answers_local_quorum"), ("quorum", "answers_quorum")]
    {
        let before = figure(&one.json("status"), name);
        assert_eq!(one.json1(&format!("--consistency {level} stat /a/b"))["lfn"], "/a/b");
        assert!(figure(&one.json("status"), name) > before, "{level}");
    }
    two.ok("stat /a/b");
    assert!(figure(&two.json("status"), "answers_local_quorum") > before, "what it takes by itself");
    one.ok("mv /a/b /a/c");
    assert_eq!(two.ok("--consistency latest ls /a"), "c\n");
    // Changes are decided on the last state, whatever the level; also by a server with a weaker
    // default.
    one.ok("se add VO::FAR::DISK --prefix root://far//data --number 9");
    two.ok("--consistency one register /a/c/f --size 3 --se VO::FAR::DISK");
    one.fails("--consistency one mkdir /a/c", 12);
    one.ok("se set VO::FAR::DISK --prefix root://farther//data");
    assert!(two.ok("--consistency latest whereis /a/c/f").contains("root://farther//data"));
    let status = two.json("status");
    assert!(figure(&status, "stale_max_ms") > 0 && figure(&status, "head_age_ms") < 60_000);
}

/// Goal: missing and readable credentials are refused before any connection.
#[test]
fn bad_credentials_of_a_secure_cluster_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (ca, password) = (directory.path().join("ca.pem"), directory.path().join("password"));
    std::fs::write(&password, "secret\n").unwrap();
    let nowhere = "cassandra://127.0.0.1:1/k";
    let said = ran(&["schema", "check", nowhere, "--store-user", "exacat"]);
    assert_eq!(said.status, Some(1));
    let said = ran(&["schema", "check", nowhere, "--store-ca", ca.to_str().unwrap()]);
    assert!(said.fails(1).contains("ca.pem"));
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&password, std::fs::Permissions::from_mode(0o644)).unwrap();
    let with = ["--store-user", "exacat", "--store-password-file", password.to_str().unwrap()];
    let said = ran(&[&["schema", "check", nowhere], &with[..]].concat());
    assert!(said.fails(1).contains("chmod 600"));
}

/// Goal: the commands work on a cluster with access control.
#[test]
#[ignore = "needs a ring with access control: make test-cluster-secure"]
fn catalogue_on_secure_cluster_serves_with_credentials() {
    let secure =
        std::env::var_os("EXACAT_CASSANDRA_SECURE").expect("EXACAT_CASSANDRA_SECURE names credentials");
    let directory = tempfile::tempdir().unwrap();
    let (address, replication) = keyspace("exacat_secure");
    let file = |name: &str| std::path::Path::new(&secure).join(name).to_str().unwrap().to_owned();
    let (ca, chain, key, password) =
        (file("authority.pem"), file("client.pem"), file("client.key"), file("password"));
    let tls = ["--store-ca", &ca, "--store-certificate", &chain, "--store-key", &key];
    let user = ["--store-user", "cassandra", "--store-password-file", &password];
    let all = [&tls[..], &user[..]].concat();
    assert!(ran(&["schema", "check", &address]).fails(23).contains("could not be reached"));
    ran(&[&["schema", "create", &address, "--replication", &replication], &all[..]].concat()).ok();
    let mut service = Service::start_with(&[&["--store", &address], &all[..]].concat());
    service.ok("mkdir -p /a/b");
    assert_eq!(service.ok("ls /a"), "b\n");
    let digest = service.json1("digest /")["digest"].clone();
    service.stop();
    let back = format!("embedded:{}", directory.path().join("data").display());
    let copied = ran(&[&["--json", "copy", "--from", &address, "--to", &back], &all[..]].concat());
    assert_eq!(copied.json().remove(0)["digest"], digest);
    assert!(
        ran(&[&["schema", "check", &address], &tls[..]].concat()).status != Some(0),
        "without a password"
    );
}
