//! Errors that name the next command, and wildcards in arguments, at a real server process.
use crate::service::Service;

/// Status of an error kind: 10 and the kind's number.
const NOT_FOUND: i32 = 11;
const EXISTS: i32 = 12;
const NOT_EMPTY: i32 = 15;
const UNAUTHENTICATED: i32 = 17;
const QUOTA: i32 = 20;

fn tree() -> Service {
    let service = Service::start();
    service.ok("se add VO::NEAR::DISK --prefix root://near//data");
    service.ok("mkdir -p /demo/a/deep /demo/b /demo/c");
    service.ok("register /demo/a/f1.root /demo/a/f2.root /demo/b/f1.root --size 10 --se VO::NEAR::DISK");
    service
}

/// Runs the command that the advice shows behind `: `.
fn follow(service: &Service, said: &str) {
    let advice = said.lines().last().unwrap();
    let (_, command) = advice.rsplit_once(": exacat ").unwrap_or_else(|| panic!("no command in {said}"));
    service.ok(command);
}

#[test]
fn error_with_a_way_on_names_the_command_and_the_command_works() {
    let service = tree();
    let said = service.fails("mkdir /x/y/z", NOT_FOUND);
    assert!(said.contains("mkdir -p /x/y/z"), "{said}");
    follow(&service, &said);

    let said = service.fails("register /new/dir/f --size 1", NOT_FOUND);
    assert!(said.contains("--parents"), "{said}");
    follow(&service, &said);
    service.ok("register /new/dir/f --size 1");

    let said = service.fails("register /demo/a/f1.root --size 1", EXISTS);
    assert!(said.contains("exacat stat /demo/a/f1.root") && said.contains("--existing"), "{said}");

    let said = service.fails("register /demo/a/g --size 1 --se VO::NONE::SE", NOT_FOUND);
    assert!(said.contains("exacat se add VO::NONE::SE --prefix root://HOST//PATH"), "{said}");
    service.ok("se add VO::NONE::SE --prefix root://host//path");
    service.ok("register /demo/a/g --size 1 --se VO::NONE::SE");

    let said = service.fails("replica rm /demo/a/f1.root VO::NONE::SE", NOT_FOUND);
    assert!(said.contains("no replica on VO::NONE::SE"), "{said}");
    assert!(said.contains("exacat whereis /demo/a/f1.root"), "{said}");
    let said = service.fails("replica state /demo/a/f1.root VO::NONE::SE lost", NOT_FOUND);
    assert!(said.contains("no replica on VO::NONE::SE"), "{said}");

    let said = service.fails("rm /demo/a", NOT_EMPTY);
    assert!(said.contains("rm -r /demo/a"), "{said}");
    follow(&service, &said);
    service.fails("stat /demo/a", NOT_FOUND);
}

#[test]
fn quota_refusal_names_the_user_and_group() {
    let service = tree();
    service.ok("user add alice");
    service.ok("quota set user:alice --files 1");
    service.ok("register /demo/b/one --size 1 --owner alice");
    let said = service.fails("register /demo/b/two --size 1 --owner alice", QUOTA);
    assert!(said.contains("the quota of user alice is 1 files"), "{said}");
    assert!(said.contains("exacat quota get"), "{said}");
}

#[test]
fn untrusted_certificate_is_answered_with_the_two_options() {
    let service = Service::start();
    let fingerprint = "00".repeat(32);
    let ran = service.over_tls(None, &format!("--fingerprint {fingerprint} ls /"));
    let said = ran.fails(UNAUTHENTICATED);
    assert!(said.contains("--ca FILE") && said.contains("--fingerprint HEX"), "{said}");
}

#[test]
fn wildcards_stand_for_the_entries_that_are_there() {
    let service = tree();
    assert_eq!(service.ok("ls -d /demo/*"), "/demo/a\n/demo/b\n/demo/c\n");
    assert_eq!(service.ok("ls /demo/*/f1.root"), "/demo/a/f1.root\n/demo/b/f1.root\n");
    assert_eq!(service.ok("ls -d /demo/*/"), "/demo/a\n/demo/b\n/demo/c\n");
    assert_eq!(service.ok("ls -d /demo/a/*/"), "/demo/a/deep\n");
    assert_eq!(service.ok("ls /demo/a/f?.root"), "/demo/a/f1.root\n/demo/a/f2.root\n");
    assert_eq!(service.ok("whereis -1 /demo/a/f[12].root").lines().count(), 2);
    assert_eq!(service.ok("-q du /demo/[ab]").lines().count(), 2);
    let said = service.fails("ls /demo/*.none", NOT_FOUND);
    assert!(said.contains("no entry has a name that matches"), "{said}");

    // The literal name counts, so that such an entry can be removed alone.
    service.run(&["register", "/demo/c/*", "/demo/c/other", "--size", "1"]).ok();
    service.run(&["rm", "/demo/c/*"]).ok();
    assert_eq!(service.ok("ls /demo/c"), "other\n");

    service.ok("mv /demo/a/f*.root /demo/c");
    assert_eq!(service.ok("ls /demo/c"), "f1.root\nf2.root\nother\n");
    service.ok("rm /demo/c/*");
    assert_eq!(service.ok("ls /demo/c"), "");
}

#[test]
fn names_from_standard_input_are_not_expanded() {
    let service = tree();
    service.run_with(&["rm", "-"], "/demo/a/f*.root\n").fails(NOT_FOUND);
    assert_eq!(service.ok("ls /demo/a"), "deep\nf1.root\nf2.root\n");
}
