//! `exacat cp`, with a program in place of xrdcp that returns what a test sets. Covers the replica
//! that is read, the treatment of a wrong one, and what stays behind. `make test-clients` tries the
//! real xrdcp.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod service;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use service::{Ran, Service};

/// Writes the file of the storage element that it must read from; notes its arguments.
const FAKE: &str = r#"#!/bin/sh
echo "$BEARER_TOKEN $*" >> "$FAKE/asked"
for word; do from=$to; to=$word; done
se=$(echo "$from" | sed -n 's/.*exacat.se=VO::\([A-Z0-9]*\)::SE.*/\1/p')
if [ ! -f "$FAKE/$se" ]; then
    echo "Run: [ERROR] Server responded with an error: [3011] no such file" >&2
    exit 54
fi
cat "$FAKE/$se" > "$to"
"#;

struct Copies {
    service: Service,
    fake: PathBuf,
}

impl Copies {
    fn new() -> Self {
        let service = Service::start_with(&["--xrootd", "127.0.0.1:0"]);
        let fake = service.place().join("fake");
        std::fs::create_dir(&fake).unwrap();
        std::fs::write(fake.join("xrdcp"), FAKE).unwrap();
        std::fs::set_permissions(fake.join("xrdcp"), PermissionsExt::from_mode(0o755)).unwrap();
        for number in 1..=3 {
            service.ok(&format!("se add VO::S{number}::SE --prefix root://se{number}.example//data"));
        }
        service.ok(
            "register -p /d/x --size 11 --checksum adler32:1a0b045d --se VO::S1::SE --se VO::S2::SE --se VO::S3::SE",
        );
        Copies { service, fake }
    }

    fn holds(&self, se: u32, content: &str) {
        std::fs::write(self.fake.join(format!("S{se}")), content).unwrap();
    }

    fn run(&self, args: &[&str]) -> Ran {
        let mut command = self.service.command(args);
        command.env("EXACAT_XRDCP", self.fake.join("xrdcp")).env("FAKE", &self.fake);
        command.current_dir(self.service.place());
        Ran::of(command, b"")
    }

    fn asked(&self) -> usize {
        std::fs::read_to_string(self.fake.join("asked")).map_or(0, |text| text.lines().count())
    }

    /// Number of files that are neither the test's nor wanted.
    fn unfinished(&self) -> usize {
        let files = std::fs::read_dir(self.service.place()).unwrap();
        files
            .filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().contains("unfinished"))
            .count()
    }
}

#[test]
fn the_next_replica_is_read_when_one_is_gone_or_wrong() {
    let copies = Copies::new();
    copies.run(&["cp", "/d/x", "file:x"]).fails(11);
    assert_eq!((copies.asked(), copies.unfinished()), (3, 0), "each was tried, and nothing is left");
    copies.holds(1, "hello wurld");
    copies.holds(2, "hello");
    let said = copies.run(&["cp", "/d/x", "file:x"]).err;
    assert!(said.contains("its checksum is adler32:"), "{said}");
    assert!(!copies.service.place().join("x").exists(), "what is wrong does not get the name");
    copies.holds(3, "hello world");
    let told = copies.run(&["--json", "cp", "/d/x", "file:x"]).json().remove(0);
    assert_eq!((told["se"].as_str(), told["size"].as_u64()), (Some("VO::S3::SE"), Some(11)));
    assert_eq!(std::fs::read_to_string(copies.service.place().join("x")).unwrap(), "hello world");
    assert_eq!(copies.unfinished(), 0);
    let before = copies.asked();
    copies.run(&["cp", "/d/x", "file:x"]).fails(1);
    assert_eq!(copies.asked(), before, "a file that is there is not even tried");
    copies.run(&["cp", "-f", "/d/x", "file:x"]).ok();
    copies.run(&["cp", "/d/x", "/d/x", "file:x"]).fails(1);
    // On the socket it showed a token of its own, which is revoked by now.
    let asked = std::fs::read_to_string(copies.fake.join("asked")).unwrap();
    assert!(asked.lines().all(|line| line.starts_with("exa_")), "{asked}");
    assert!(!copies.service.ok("token ls").contains("exacat cp"));
}

#[test]
fn what_cannot_be_copied_is_said_plainly() {
    let copies = Copies::new();
    let said = copies.run(&["cp", "--xrdcp", "/nope/xrdcp", "/d/x", "file:x"]).fails(1);
    assert!(said.contains("needs the client of XRootD"), "{said}");
    for (words, status) in [
        (["cp", "/d/x", "/d/y"], 1),
        (["cp", "file:a", "file:b"], 1),
        (["cp", "x", "file:b"], 1),
        (["cp", "/d/none", "file:b"], 11),
        (["cp", "/d/x@disk:2", "file:b"], 1),
        (["cp", "file:none", "/d/new"], 1),
        (["cp", "file:/", "/d/new"], 1),
    ] {
        copies.run(&words).fails(status);
    }
    copies.service.file("other", "another one");
    let said = copies.run(&["cp", "file:other", "/d/x"]).fails(12);
    assert!(said.contains("with another content"), "{said}");
    assert_eq!(copies.asked(), 0);
    // A write names all that is known of the file. A failed copy leaves no reservation.
    copies.run(&["cp", "file:other", "/d/new@VO::S2::SE,!VO::S1::SE"]).fails(11);
    let asked = std::fs::read_to_string(copies.fake.join("asked")).unwrap();
    for field in
        ["//d/new?", "oss.asize=11", "exacat.se=VO::S2::SE", "exacat.not=VO::S1::SE", "exacat.guid=", "md5:"]
    {
        assert!(asked.contains(field), "{field}: {asked}");
    }
    assert_eq!(copies.service.ok("upload ls"), "");
    let service = Service::start();
    service.ok("register -p /d/x --size 1");
    let said = service.fails("cp /d/x file:x", 1);
    assert!(said.contains("--xrootd"), "{said}");
}
