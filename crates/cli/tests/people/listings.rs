//! Listings in and out, and the sample catalogue, at a real server process.

use serde_json::{Value, json};

use crate::service::{Ran, Service, exacat};

#[test]
fn listings_in_and_out() {
    let service = Service::start();
    service.ok("se add VO::NEAR::DISK --prefix root://near//data");
    let listing = service.file(
        "files.tsv",
        "lfn\tsize\tchecksum\tpfn\n\
         /in/a.root\t100\tadler32:67b54f3\troot://near//a.root\n\
         /in/b ł,%3f?C=D;O=A'\"&.root\t200\tmd5:d41d8cd98f00b204e9800998ecf8427e\troot://near//b?x=1\n\
         /in/no-size\t\t\t\n\
         \t5\t\t\n\
         /in/bad-sum\t5\talder32:\t\n\
         /in/a.root\t100\t\t\n\
         /in/a.root/below\t1\t\t\n\
         relative\t1\t\t\n",
    );
    let rejects = service.place().join("rejects.tsv");
    let rejects = rejects.to_str().unwrap();
    let import = ["import", &listing, "--se", "VO::NEAR::DISK", "--rejects", rejects];
    let ran = service.run(&import);
    assert!(
        ran.out.contains("8 rows: 3 created, 0 unchanged") && ran.out.contains("5 rejected"),
        "{}",
        ran.out
    );
    let error = ran.fails(18);
    assert!(error.contains("5 rows rejected"), "{error}");
    let rejected = std::fs::read_to_string(rejects).unwrap();
    for line in [5, 6, 7, 8, 9] {
        assert!(rejected.contains(&format!("\n{line}\t")), "line {line}: {rejected}");
    }
    assert_eq!(service.ok("ls /in"), "a.root\nb ł,%3f?C=D;O=A'\"&.root\nno-size\n");
    let stat = service.run(&["--json", "stat", "/in/b ł,%3f?C=D;O=A'\"&.root"]).json();
    assert_eq!(stat[0]["replicas"][0]["pfn"], "root://near//b?x=1");

    // A repeated import changes nothing, and reports that.
    let revision = service.json("changes").len();
    let ran = service.run(&import);
    assert!(ran.out.contains("0 created, 3 unchanged") && ran.out.contains("nothing changed"), "{}", ran.out);
    assert_eq!(service.json("changes").len(), revision);
    let verify = ["verify", &listing, "--se", "VO::NEAR::DISK"];
    let verified = service.run(&verify).ok();
    assert!(verified.contains("3 as given, 0 different, 0 missing"), "{verified}");

    // Differences are found.
    service.ok("replica rm /in/a.root VO::NEAR::DISK");
    service.ok("rm /in/no-size");
    let ran = service.run(&["--json", "verify", &listing, "--se", "VO::NEAR::DISK"]);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (&report["same"], &report["different"], &report["missing"]),
        (&json!(1), &json!(1), &json!(1))
    );
    ran.fails(19);
    service.ok("trash restore /in/no-size");
    service.ok("replica add /in/a.root VO::NEAR::DISK=root://near//a.root");
    service.run(&verify).ok();

    // An export returns the rows, and makes the same catalogue elsewhere.
    let plain = service.ok("export /in --columns lfn,size,checksum,pfn --type f");
    let mut rows: Vec<&str> = plain.lines().collect();
    rows.sort_unstable();
    assert_eq!(
        rows,
        [
            "/in/a.root\t100\tadler32:067b54f3\troot://near//a.root",
            "/in/b ł,%3f?C=D;O=A'\"&.root\t200\tmd5:d41d8cd98f00b204e9800998ecf8427e\troot://near//b?x=1",
            "/in/no-size\t\t\t",
            "lfn\tsize\tchecksum\tpfn",
        ]
    );
    service.ok("collection create /in/set --tag year=2026");
    service.ok("collection add /in/set /in/a.root");
    service.ok("ln /in/a.root /in/link");
    for name in ["saved.tsv.zst", "saved.jsonl", "saved.csv.gz"] {
        let saved = service.place().join(name);
        let saved = saved.to_str().unwrap();
        service.run(&["export", "/", "-o", saved]).ok();
        let copy = Service::start();
        copy.run(&["import", saved, "--restore"]).ok();
        copy.run(&["verify", saved]).ok();
        let again = copy.run(&["--json", "import", saved, "--restore"]).json();
        assert_eq!(again[0]["changed"], false, "{name}");
        let fields = |service: &Service| {
            let mut entries = service.json("find /");
            for entry in &mut entries {
                for own in ["created", "revision", "directory"] {
                    entry.as_object_mut().unwrap().remove(own);
                }
                // Only entries with content keep their times and identity.
                if entry["kind"] != "file" {
                    entry.as_object_mut().unwrap().remove("modified");
                    entry.as_object_mut().unwrap().remove("guid");
                }
            }
            entries
        };
        assert_eq!(fields(&copy), fields(&service), "{name}");
        assert_eq!(copy.ok("collection ls /in/set"), "/in/a.root\n");
        assert!(copy.ok("fsck").contains("everything agrees"));
    }
    service.fails("import /nonexistent.tsv", 1);
    service.run(&["import", &listing, "--preset", "nonsense"]).fails(1);
}

#[test]
fn a_sample_catalogue() {
    let service = Service::start();
    let made = service.json1("generate --entries 3000 --seed 5");
    assert_eq!((&made["entries"], &made["created"]), (&json!(3000), &json!(3000)));
    assert_eq!(service.ok("find / --count").split(' ').next(), Some("3000"));
    // The entries of the first five minutes exist.
    let listed = service.ok("ls /demo");
    assert!(listed.lines().count() > 2, "{listed}");
    let roots = service.ok("find /demo *.root --limit 5");
    assert_eq!(roots.lines().count(), 5);
    assert!(!service.ok(&format!("whereis {}", roots.lines().next().unwrap())).is_empty());
    assert!(!service.ok("find /demo AOD*.root").is_empty());
    assert!(!service.ok("find /demo --tag year=2026 --type f --limit 1").is_empty());
    assert!(!service.ok("find / --type c --limit 1").is_empty());
    assert!(service.ok("se usage -H").lines().count() > 5);
    assert!(service.ok("fsck").contains("everything agrees"));
    let again = service.json1("generate --entries 3000 --seed 5");
    assert_eq!((&again["created"], &again["unchanged"]), (&json!(0), &json!(3000)));

    // The same as a listing, into another catalogue.
    let listing = service.place().join("sample.jsonl");
    let listing = listing.to_str().unwrap();
    let mut command = exacat();
    command.args(["--json", "generate", "--entries", "3000", "--seed", "5", "--listing", listing]);
    assert_eq!(Ran::of(command, b"").json()[0]["entries"], 3000);
    // A repeated export keeps the old file whole until its end; a failed one leaves nothing behind.
    let first = service.place().join("first.jsonl");
    std::fs::hard_link(listing, &first).unwrap();
    let before = std::fs::read(&first).unwrap();
    let generate = |to: &str| {
        let mut command = exacat();
        command.args(["generate", "--entries", "3000", "--seed", "5", "--listing", to]);
        Ran::of(command, b"")
    };
    generate(listing).ok();
    assert_eq!(std::fs::read(listing).unwrap(), before);
    let inode = |path: &str| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
    assert_ne!(inode(listing), inode(first.to_str().unwrap()), "it was made beside the one before");
    let directory = service.place().join("directory");
    std::fs::create_dir(&directory).unwrap();
    generate(directory.to_str().unwrap()).fails(1);
    assert!(!service.place().join("directory.partial").exists());
    let copy = Service::start();
    let imported = copy.run(&["--json", "import", "--restore", listing]).json();
    assert_eq!(imported[0]["rejected"], 0, "{}", imported[0]);
    assert_eq!(copy.ok("find /demo"), service.ok("find /demo"));
    assert_eq!(copy.json1("du /demo")["usage"], service.json1("du /demo")["usage"]);
    assert_eq!(service.run(&["--json", "verify", listing]).json()[0]["holds"], true);
}
