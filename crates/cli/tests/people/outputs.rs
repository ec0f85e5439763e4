//! Output files: links, devices, FIFOs and interruptions, at a real server process.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::service::{Ran, Service, signal};

/// Exit status of a usage or local error.
const LOCAL: i32 = 1;
/// Exit status of an import with rejected rows.
const INVALID: i32 = 18;
/// Exit status after SIGINT.
const INTERRUPTED: i32 = 130;

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn outputs_are_written_into_devices_fifos_and_the_targets_of_links() {
    let service = Service::start();
    service.ok("generate --entries 300");
    let place = service.place().join("out");
    std::fs::create_dir(&place).unwrap();
    let path = |name: &str| place.join(name).to_str().unwrap().to_owned();
    for command in ["export /", "digest", "generate --entries 100 --listing"] {
        let to = |target: &str| match command.ends_with("--listing") {
            true => format!("{command} {target}"),
            false => format!("{command} -o {target}"),
        };
        // A device stays one. A failed write is an error.
        let error = service.fails(&to("/dev/full"), LOCAL);
        assert!(error.contains("/dev/full") && error.contains("space"), "{command}: {error}");
        assert!(std::fs::metadata("/dev/full").unwrap().file_type().is_char_device());
        service.ok(&to("/dev/null"));
        // A FIFO gets the bytes, and stays one.
        fifo(Path::new(&path("fifo")));
        let reader = path("fifo");
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            std::fs::File::open(reader).unwrap().read_to_end(&mut bytes).unwrap();
            bytes
        });
        service.ok(&to(&path("fifo")));
        let bytes = reader.join().unwrap();
        assert!(std::fs::metadata(path("fifo")).unwrap().file_type().is_fifo());
        // A link is followed, and the file behind it keeps its mode.
        std::fs::write(path("target"), "before").unwrap();
        std::fs::set_permissions(path("target"), std::fs::Permissions::from_mode(0o640)).unwrap();
        symlink("target", path("link")).unwrap();
        service.ok(&to(&path("link")));
        assert!(std::fs::symlink_metadata(path("link")).unwrap().is_symlink());
        assert_eq!(std::fs::metadata(path("target")).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(std::fs::read(path("target")).unwrap(), bytes, "{command}");
        assert!(bytes.starts_with(b"#exacat") || bytes.starts_with(b"{"), "{command}");
        assert_eq!(names(&place), ["fifo", "link", "target"], "{command}");
        for name in names(&place) {
            std::fs::remove_file(path(&name)).unwrap();
        }
    }
    // Rejects and tokens behave the same.
    let bad = service.file("bad.tsv", "/x/y\nrelative\n");
    symlink("rejects", path("link")).unwrap();
    service.run(&["import", &bad, "--rejects", &path("link")]).fails(INVALID);
    assert!(std::fs::read_to_string(path("rejects")).unwrap().contains("bad-lfn"));
    service.run(&["import", &bad, "--rejects", "/dev/null"]).fails(INVALID);
    let error = service.run(&["import", &bad, "--rejects", "/dev/full"]).fails(LOCAL);
    assert!(error.contains("/dev/full"), "{error}");
    let error = service.run(&["import", &bad, "--rejects", &bad]).fails(LOCAL);
    assert!(error.contains("over the listing"), "{error}");
    symlink("secret", path("token")).unwrap();
    service.run(&["token", "issue", "--lifetime", "1h", "--out", &path("token")]).ok();
    assert_eq!(std::fs::metadata(path("secret")).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(
        service
            .run(&["token", "issue", "--lifetime", "1h", "--out", &path("token")])
            .fails(LOCAL)
            .contains("exists")
    );
    service.run(&["token", "issue", "--lifetime", "1h", "--out", "/dev/null"]).ok();
    let secret = service.run(&["token", "issue", "--lifetime", "1h", "--out", "/dev/stdout"]).ok();
    assert_eq!(secret.lines().count(), 1);
}

/// Begins an export of everything.
fn exporting(service: &Service, target: &Path) -> Child {
    let mut command = service.command(&["export", "/", "-o", target.to_str().unwrap()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Interrupts a command. Returns its exit status and its message.
fn interrupted(mut child: Child) -> (Option<i32>, String) {
    // Until it has its handlers, a command ignores the signal if this test does, as in the background of a
    // script. So the signal is repeated.
    let mut looks = 0;
    while child.try_wait().unwrap().is_none() {
        if looks % 100 == 0 {
            signal(child.id(), "INT");
        }
        looks += 1;
        std::thread::park_timeout(Duration::from_millis(5));
    }
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (child.wait().unwrap().code(), said)
}

#[test]
fn interrupted_output_says_what_is_left_and_leaves_no_partial_file() {
    let service = Service::start();
    service.ok("generate --entries 20000");
    let place = service.place().join("out");
    std::fs::create_dir(&place).unwrap();
    let old = place.join("saved.tsv");
    std::fs::write(&old, "before").unwrap();
    // A reader that takes a little and no more holds the export at that place.
    let through = place.join("fifo");
    fifo(&through);
    let child = exporting(&service, &through);
    let mut reader = BufReader::with_capacity(64, std::fs::File::open(&through).unwrap());
    reader.read_line(&mut String::new()).unwrap();
    let (status, said) = interrupted(child);
    assert_eq!(status, Some(INTERRUPTED), "{said}");
    assert!(said.contains("interrupted") && said.contains("a part of the output"), "{said}");
    drop(reader);
    // A FIFO without a reader. A signal before the export waits for one ends it without a word.
    let said = (1..100).find_map(|n| {
        let child = exporting(&service, &through);
        std::thread::park_timeout(Duration::from_millis(20 * n));
        let (status, said) = interrupted(child);
        assert!(matches!(status, None | Some(INTERRUPTED)), "{status:?}: {said}");
        (!said.is_empty()).then_some(said)
    });
    let said = said.expect("an export that waits is interrupted");
    assert!(said.contains("interrupted") && said.contains("got nothing"), "{said}");
    // A regular file: as soon as the temporary file is visible, the export is under way.
    for (target, word) in [("saved.tsv", "as it was before"), ("new.tsv", "was not written")] {
        let target = place.join(target);
        // A quick export may end before it is seen, or before the signal; then another one is begun.
        let said = (0..100).find_map(|_| {
            std::fs::write(&old, "before").unwrap();
            let _ = std::fs::remove_file(place.join("new.tsv"));
            let mut child = exporting(&service, &target);
            while !names(&place).iter().any(|name| name.ends_with(".partial")) {
                if child.try_wait().unwrap().is_some() {
                    return None;
                }
                std::thread::yield_now();
            }
            let (status, said) = interrupted(child);
            assert!(matches!(status, Some(0 | INTERRUPTED)), "{status:?}: {said}");
            (status == Some(INTERRUPTED)).then_some(said)
        });
        let said = said.expect("an export is interrupted");
        assert!(said.contains("interrupted") && said.contains(word), "{said}");
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "before");
        assert_eq!(names(&place), ["fifo", "saved.tsv"]);
    }
}

#[test]
fn reader_of_a_fifo_that_leaves_early_is_an_error() {
    let service = Service::start();
    service.ok("generate --entries 20000");
    let through = service.place().join("fifo");
    fifo(&through);
    let mut command = service.command(&["export", "/", "-o", through.to_str().unwrap()]);
    command.stdin(Stdio::null());
    let leaving = through.clone();
    let reader = std::thread::spawn(move || {
        let mut reader = BufReader::new(std::fs::File::open(leaving).unwrap());
        reader.read_line(&mut String::new()).unwrap();
    });
    let error = Ran::of(command, b"").fails(LOCAL);
    reader.join().unwrap();
    assert!(error.contains("its reader closed it"), "{error}");
}

#[test]
fn import_tells_the_truth_about_rows_that_did_not_go_in() {
    let service = Service::start();
    let all_bad = service.file("bad.tsv", "relative\nalso relative\n");
    let ran = service.run(&["import", &all_bad]);
    assert_eq!(ran.status, Some(INVALID));
    assert!(ran.out.contains("nothing imported: every row was rejected"), "{}", ran.out);
    assert!(!ran.out.contains("there already"), "{}", ran.out);
    let good = service.file("good.tsv", "/a/b\n");
    service.run(&["import", &good]).ok();
    assert!(service.run(&["import", &good]).ok().contains("everything was there already"));
    let empty = service.file("empty.tsv", "");
    assert!(service.run(&["import", &empty]).ok().contains("no rows"));
    // A typing error in an SE stops it at once.
    service.ok("se add VO::SITE::DISK --prefix root://h//d");
    let error = service.run(&["import", &good, "--se", "VO::SITE::DISC"]).fails(LOCAL);
    assert!(error.contains("is VO::SITE::DISK meant"), "{error}");
    // Entries that the columns cannot hold are reported.
    service.ok("ln /a/b /link");
    let ran = service.run(&["export", "/", "--columns", "lfn,size"]);
    assert_eq!(ran.status, Some(0));
    assert_eq!(ran.out, "lfn\tsize\n/a/\t\n/a/b\t\n");
    assert!(ran.err.contains("1 link(s) left out"), "{}", ran.err);
}
