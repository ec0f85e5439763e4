//! The writer service as a process beside a catalogue: files by its commands, kills under load, restarts.
//! Each file in the catalogue has every event once, in order.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod rig;
#[path = "../service/mod.rs"]
mod service;
mod stage_out;

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use exacat_client::{Credentials, Target};
use exacat_model::{Lfn, SeName};
use exacat_wire::writer::{Description, FileId, Open, RefusalClass, WriterId};
use exacat_writer::Certificate;
use exacat_writer_service::{Catalogue, CatalogueSettings, ClientCatalogue, Credential};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, date_time_ymd,
};
use rig::{SE, Writer, eventually, ready};
use serde_json::Value;
use service::{Ran, Service, exacat, signal};

/// Attempts until a service has seen a change of the catalogue.
const TRIES_MAX: usize = 100;

/// Property: a file is in the catalogue with the bytes that were put, its checksum, owner, replica and tags,
/// and its parts have these bytes on the disk of the service.
#[test]
fn file_that_is_put_is_in_the_catalogue() {
    let (service, place) = (ready(), tempfile::tempdir().unwrap());
    let mut writer = Writer::start(&service, place.path(), "volume");
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at * 7 + at / 251) as u8).collect();
    let put = ["--json", "writer", "put", "/daq/f.raw", "-", "--run", "17", "--tag", "detector=hv"];
    let put = Ran::of(service.command(&put), &content).json().remove(0);
    assert_eq!((&put["bytes"], &put["events"], &put["parts"]), (&3_000_000.into(), &3.into(), &1.into()));
    let stat = service.json1("stat /daq/f.raw");
    assert_eq!(stat["size"], 3_000_000);
    let adler32 = format!("adler32:{:08x}", simd_adler32::adler32(&content.as_slice()));
    assert_eq!(stat["checksums"][0], adler32.as_str(), "{stat}");
    assert_eq!(stat["replicas"][0]["se"], SE, "{stat}");
    assert_eq!(writer.bytes_of(stat["guid"].as_str().unwrap()), content);
    for (tag, found) in [("run=17", true), ("detector=hv", true), ("events=3", true), ("run=18", false)] {
        let out = service.ok(&format!("find /daq --tag {tag}"));
        assert_eq!(out.contains("/daq/f.raw"), found, "{tag}: {out}");
    }
    assert_eq!(writer.stop(), Some(0));
}

/// Property: what nobody may write is refused with the reason, and leaves nothing behind.
#[test]
fn file_is_refused_where_its_producer_may_not_write() {
    let (service, place) = (ready(), tempfile::tempdir().unwrap());
    let _writer = Writer::start(&service, place.path(), "volume");
    service.ok("user add shifter");
    let token = service.json1("token issue --user shifter --write --lifetime 1d")["secret"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut by_shifter = service.command(&["writer", "put", "/daq/f.raw", "-"]);
    by_shifter.env("EXACAT_TOKEN", &token);
    let said = Ran::of(by_shifter, b"bytes").fails(1);
    assert!(said.contains("/daq/f.raw") && said.contains("no w"), "{said}");
    let mut by_nobody = service.command(&["writer", "put", "/daq/f.raw", "-"]);
    by_nobody.env("EXACAT_TOKEN", "wrong");
    Ran::of(by_nobody, b"bytes").fails(1);
    service.ok("mkdir /daq/taken");
    let said = Ran::of(service.command(&["writer", "put", "/daq/taken", "-"]), b"bytes").fails(1);
    assert!(said.contains("exists"), "{said}");
    assert_eq!(service.ok("find /daq --type f"), "");
    // With the right, the same name is taken.
    service.ok("chown shifter /daq");
    let mut by_shifter = service.command(&["writer", "put", "/daq/f.raw", "-"]);
    by_shifter.env("EXACAT_TOKEN", &token);
    Ran::of(by_shifter, b"bytes").ok();
    assert_eq!(service.json1("stat /daq/f.raw")["owner"], "shifter");
    // Directories that are missing are the producer's as well: the next file goes there, too.
    for name in ["/daq/run7/a/one", "/daq/run7/a/two"] {
        let mut by_shifter = service.command(&["writer", "put", name, "-"]);
        by_shifter.env("EXACAT_TOKEN", &token);
        Ran::of(by_shifter, b"bytes").ok();
    }
    assert_eq!(service.json1("stat /daq/run7")["owner"], "shifter");
}

/// Property: a service starts while the catalogue is away, and takes files once it is back.
#[test]
fn service_starts_without_its_catalogue() {
    let (mut service, place) = (ready(), tempfile::tempdir().unwrap());
    let mut writer = Writer::start(&service, place.path(), "volume");
    Ran::of(service.command(&["writer", "put", "/daq/before", "-"]), b"one").ok();
    assert_eq!(writer.stop(), Some(0));
    assert_eq!(service.stop(), Some(0));
    writer.restart();
    service.restart();
    Ran::of(service.command(&["writer", "put", "/daq/after", "-"]), b"two").ok();
    assert_eq!(service.ok("find /daq --type f"), "/daq/after\n/daq/before\n");
}

/// Property: files that a producer has closed are certified by the service after a kill, each once, with all
/// events in order; `cat` reads them from all their parts.
#[test]
fn files_survive_kills_of_their_service() {
    let (service, place) = (ready(), tempfile::tempdir().unwrap());
    let mut writer = Writer::start(&service, place.path(), "volume");
    let mut produce =
        service.command(&["--json", "writer", "produce", "--below", "/daq/kills", "--run", "5"]);
    produce.args(["--producers", "2", "--streams", "2", "--size", "16..256KiB", "--rate", "400"]);
    produce.args(["--events", "1600", "--file-events", "150"]);
    let producing = produce.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    for _ in 0..3 {
        // No condition says when a kill is worst: any moment may be.
        std::thread::park_timeout(Duration::from_millis(700));
        writer.kill();
        writer.restart();
    }
    let ended = producing.wait_with_output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let told: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!((&told["events"], &told["failed"]), (&1600.into(), &0.into()), "{told}");
    let names = service.ok("find /daq/kills --type f --tag run=5");
    assert_eq!(Some(names.lines().count() as u64), told["certified"].as_u64(), "{told}");
    check_events(&service, &names, &[&writer.http], 1600);
}

/// Reads files from services, and checks that they have so many events, each stream's in order.
fn check_events(service: &Service, names: &str, at: &[&str], expected: u64) {
    let mut events: std::collections::BTreeMap<String, u64> = std::collections::BTreeMap::new();
    let mut all = 0;
    // The names have the number of the file behind that of the stream, so they are in its order.
    for name in names.lines() {
        let cat = |at: &&str| service.command(&["writer", "cat", name, "--at", at]).output().unwrap();
        // The service that certified a file knows its parts.
        let read: Vec<std::process::Output> = at.iter().map(cat).collect();
        let bytes = read.iter().find(|bytes| bytes.status.success());
        let bytes = bytes.unwrap_or_else(|| panic!("{name}: {read:?}"));
        let (stream, _) = name.rsplit_once('.').unwrap();
        let next = events.entry(stream.to_owned()).or_default();
        let mut rest = bytes.stdout.as_slice();
        while !rest.is_empty() {
            let length = rest.first_chunk::<4>().map_or(0, |head| u32::from_le_bytes(*head)) as usize;
            assert!(
                length >= 16 && length <= rest.len(),
                "{name}: an event of {length} of {} bytes",
                rest.len()
            );
            assert_eq!(u64::from_le_bytes(rest[8..16].try_into().unwrap()), *next, "{name}");
            (*next, all) = (*next + 1, all + 1);
            rest = &rest[length..];
        }
        let sum = format!("adler32:{:08x}", simd_adler32::adler32(&bytes.stdout.as_slice()));
        assert_eq!(service.json1(&format!("stat {name}"))["checksums"][0], sum.as_str(), "{name}");
    }
    assert_eq!(all, expected, "{events:?}");
}

/// Property: a service that is killed under load never comes back, another one adopts its volume, and every
/// acknowledged event is certified once, in order, and read from there. Nothing is changed without --yes, or
/// while a service has the volume open.
#[test]
fn volume_of_a_lost_service_is_adopted() {
    let (service, place) = (ready(), tempfile::tempdir().unwrap());
    let options = |seeds: &str| {
        let socket = service.addresses["socket"].as_str().unwrap().to_owned();
        let token = service.data().join("admin.token").display().to_string();
        ["--seeds", seeds, "--server", &socket, "--token-file", &token].map(str::to_owned).to_vec()
    };
    let start = |name: &str, seeds: &str| {
        let data = place.path().join(format!("{name}.data"));
        Writer::start_with(&data, place.path().join(name), options(seeds))
    };
    let mut lost = start("lost", "127.0.0.1:1");
    let mut heir = start("heir", &lost.address);
    knows_all(&service, &[&lost.http, &heir.http]);
    let services = format!("{},{}", lost.address, heir.address);
    let mut produce = service.command(&["--json", "writer", "produce", "--below", "/daq/lost", "--run", "6"]);
    produce.args(["--producers", "2", "--streams", "8", "--size", "16..64KiB", "--rate", "400"]);
    produce.args(["--events", "1200", "--file-events", "25", "--service", &services]);
    let producing = produce.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let volume = lost.volume.display().to_string();
    let adopt = |options: &[&str]| {
        let mut command = exacat();
        command.args(["--json", "writer", "adopt", "--volume", &volume, "--service-of"]);
        command.arg(place.path().join("heir")).args(options);
        Ran::of(command, b"")
    };
    has_bytes(&service, &lost);
    assert!(adopt(&["--yes"]).fails(23).contains("has this volume open"));
    lost.kill();
    std::thread::park_timeout(Duration::from_millis(1500));
    let identity = || std::fs::read_to_string(lost.volume.join("VOLUME")).unwrap();
    // A root adopts for a service that is not root.
    let root = std::fs::metadata(place.path()).unwrap().uid();
    let owner = if root == 0 { 65_534 } else { root };
    chown(lost.volume.join("VOLUME"), Some(owner), None).unwrap();
    let before = identity();
    assert!(adopt(&[]).fails(1).contains("--yes"));
    assert_eq!(identity(), before);
    let adopted = adopt(&["--yes"]).json().remove(0);
    assert_eq!(adopted["adopted"], true, "{adopted}");
    let of_stages = adopted["content"].as_object().unwrap().values();
    assert!(of_stages.map(|stage| stage["files"].as_u64().unwrap()).sum::<u64>() > 0, "{adopted}");
    assert_eq!(adopt(&["--yes"]).json().remove(0)["adopted"], false, "it is done");
    assert_eq!(std::fs::metadata(lost.volume.join("VOLUME")).unwrap().uid(), owner, "its owner is the same");
    heir.kill();
    heir.adopted.push(lost.volume.clone());
    heir.restart();
    let ended = producing.wait_with_output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let told: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!((&told["events"], &told["failed"]), (&1200.into(), &0.into()), "{told}");
    let names = service.ok("find /daq/lost --type f --tag run=6");
    assert_eq!(Some(names.lines().count() as u64), told["certified"].as_u64(), "{told}");
    check_events(&service, &names, &[&heir.http], 1200);
    assert_eq!(heir.stop(), Some(0));
    for volume in [&lost.volume, &heir.volume] {
        let mut fsck = exacat();
        fsck.args(["--json", "writer", "fsck", "--read", "--volume"]).arg(volume);
        let checked = Ran::of(fsck, b"").json().remove(0);
        assert_eq!(checked["faults_total"], 0, "{checked}");
    }
}

/// Property: a check of a volume finds a changed byte and a missing part, with the name of the file. It ends
/// with the status of damage then. A volume that a service has open is not checked.
#[test]
fn check_names_what_is_wrong_on_a_volume() {
    let (service, place) = (ready(), tempfile::tempdir().unwrap());
    let mut writer = Writer::start(&service, place.path(), "volume");
    Ran::of(service.command(&["writer", "put", "/daq/f.raw", "-"]), &[7; 300_000]).ok();
    let volume = writer.volume.display().to_string();
    let fsck = |options: &[&str]| {
        let mut command = exacat();
        command.args(options).args(["writer", "fsck", "--volume", &volume]);
        command
    };
    let said = Ran::of(fsck(&[]), b"").fails(23);
    assert!(said.contains("has this volume open") && said.contains("exacat writer status"), "{said}");
    assert_eq!(writer.stop(), Some(0));
    let out = Ran::of(fsck(&[]), b"").ok();
    assert_eq!(out, format!("{volume}: 1 part, bytes not read, 0 faults, 0 files not in the index\n"));
    let read = |json: bool| {
        let mut command = fsck(if json { &["--json"] } else { &[] });
        command.arg("--read");
        Ran::of(command, b"")
    };
    let checked = read(true).json().remove(0);
    assert_eq!((&checked["parts"], &checked["bytes"]), (&1.into(), &300_000.into()), "{checked}");
    let file = service.json1("stat /daq/f.raw")["guid"].as_str().unwrap().replace('-', "").to_lowercase();
    let part = writer.volume.join(format!("parts/{file}-00000001"));
    let mut bytes = std::fs::read(&part).unwrap();
    bytes[250_000] ^= 1;
    std::fs::write(&part, &bytes).unwrap();
    Ran::of(fsck(&[]), b"").ok();
    let ran = read(false);
    assert_eq!(ran.status, Some(25), "{ran:?}");
    for word in [file.as_str(), "/daq/f.raw", "damaged-bytes", "bytes 0 to 300000", "certified", "1 fault,"] {
        assert!(ran.out.contains(word), "{word}: {ran:?}");
    }
    let ran = read(true);
    let checked: Value = serde_json::from_str(&ran.out).unwrap();
    let fault = &checked["faults"][0];
    assert_eq!((&fault["kind"], &fault["lfn"]), (&"damaged-bytes".into(), &"/daq/f.raw".into()), "{checked}");
    std::fs::remove_file(&part).unwrap();
    let ran = Ran::of(fsck(&[]), b"");
    assert_eq!(ran.status, Some(25), "{ran:?}");
    assert!(ran.out.contains("missing-part") && ran.err.contains("1 fault on 1 volume"), "{ran:?}");
    let mut nowhere = exacat();
    nowhere.args(["writer", "fsck", "--volume"]).arg(place.path().join("nowhere"));
    assert!(Ran::of(nowhere, b"").fails(11).contains("no volume is here"));
}

/// Property: a check needs no right to write, neither to the volume nor to a file of it.
#[test]
fn volume_that_cannot_be_written_is_checked() {
    let (service, place) = (ready(), tempfile::tempdir().unwrap());
    let mut writer = Writer::start(&service, place.path(), "volume");
    Ran::of(service.command(&["writer", "put", "/daq/f.raw", "-"]), &[7; 300_000]).ok();
    assert_eq!(writer.stop(), Some(0));
    let set_modes = |directory_mode: u32, file_mode: u32| {
        let mut directories = vec![writer.volume.clone()];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()) {
                match entry.is_dir() {
                    true => directories.push(entry),
                    false => std::fs::set_permissions(&entry, PermissionsExt::from_mode(file_mode)).unwrap(),
                }
            }
            std::fs::set_permissions(&directory, PermissionsExt::from_mode(directory_mode)).unwrap();
        }
    };
    set_modes(0o500, 0o400);
    let mut fsck = exacat();
    fsck.args(["--json", "writer", "fsck", "--read", "--volume"]).arg(&writer.volume);
    let ran = Ran::of(fsck, b"");
    set_modes(0o700, 0o600);
    let checked = ran.json().remove(0);
    assert_eq!((&checked["bytes"], &checked["faults_total"]), (&300_000.into(), &0.into()), "{checked}");
}

/// Property: a file that another service has committed is booked again, though its name is taken: the news of
/// the commit may have been lost. Another file gets no place under this name.
#[test]
fn committed_file_is_booked_again() {
    let service = ready();
    let secret = std::fs::read_to_string(service.data().join("admin.token")).unwrap().trim().to_owned();
    let settings = CatalogueSettings {
        target: Target::parse(service.local_url()).unwrap(),
        se: SeName::parse(SE).unwrap(),
        pfn_prefix: "http://127.0.0.1:1/content/".to_owned(),
        deadline: Duration::from_secs(20),
        booking_seconds: None,
    };
    let description = Description {
        run: "1".to_owned(),
        stream: "raw".to_owned(),
        lfn: Lfn::parse("/daq/f.raw").unwrap(),
        tags: Vec::new(),
    };
    let open = |file| Open { file, stream: 1, epoch: 1, from: 0, description: description.clone() };
    let file = FileId([5; 16]);
    let certificate = Certificate {
        file,
        writer: WriterId([9; 16]),
        owner: "admin".to_owned(),
        description: description.clone(),
        length: 10,
        events: 2,
        adler32: 7,
        duplicates: 0,
        segments: Vec::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let own = Credentials::token(secret.clone());
        let catalogue = ClientCatalogue::connect(settings, own).await.unwrap();
        let producer = Credential::Token(secret);
        let owner = catalogue.book(&producer, &open(file)).await.unwrap();
        let certificate = Certificate { owner: owner.clone(), ..certificate };
        catalogue.commit(&certificate).await.unwrap();
        assert_eq!(catalogue.book(&producer, &open(file)).await, Ok(owner));
        catalogue.commit(&certificate).await.unwrap();
        let refused = catalogue.book(&producer, &open(FileId([6; 16]))).await.unwrap_err();
        assert_eq!(refused.0, RefusalClass::Conflict, "{refused:?}");
        assert!(refused.1.contains("exists"), "{refused:?}");
    });
    assert_eq!(service.json1("stat /daq/f.raw")["size"], 10);
}

/// Property: producers write with TLS, and trust only the authority that they were told. Nothing of a
/// producer that does not trust the service is written.
#[test]
fn file_is_put_over_tls() {
    let (service, place) = (ready(), tempfile::tempdir().unwrap());
    // The certificate of the catalogue is for this machine as well.
    let (certificate, key) = (service.data().join("server.crt"), service.data().join("server.key"));
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let options = vec!["--certificate".to_owned(), text(&certificate), "--key".to_owned(), text(&key)];
    let mut writer = Writer::start_with(service.data(), place.path().join("volume"), options);
    let put = |lfn: &str, authority: &Path| {
        let address = writer.address.as_str();
        let authority = authority.to_str().unwrap();
        let words = ["--json", "writer", "put", lfn, "-", "--service", address, "--service-ca", authority];
        Ran::of(service.command(&words), &[7_u8; 100_000])
    };
    let done = put("/daq/tls.raw", &certificate).json().remove(0);
    assert_eq!(done["bytes"], 100_000, "{done}");
    let stat = service.json1("stat /daq/tls.raw");
    assert_eq!(writer.bytes_of(stat["guid"].as_str().unwrap()), [7; 100_000]);
    let other = Service::start();
    let refused = put("/daq/untrusted.raw", &other.data().join("server.crt"));
    assert!(refused.status != Some(0) && refused.err.contains("certificate"), "{refused:?}");
    service.fails("stat /daq/untrusted.raw", 11);
    assert_eq!(writer.stop(), Some(0));
}

/// Waits until a service has bytes of its own, and any time longer. A stream takes either service by chance:
/// with many streams, each service has some of them.
fn has_bytes(service: &Service, at: &Writer) {
    eventually("bytes are durable at this service", || {
        let status = service.command(&["--json", "writer", "status", "--at", &at.http]);
        Ran::of(status, b"").json()[0]["durable_bytes"].as_u64() > Some(0)
    });
    // No condition says when a kill is worst: any moment may be.
    std::thread::park_timeout(Duration::from_millis(fastrand::u64(0..1000)));
}

/// Returns the options of a service whose volumes are in a shared directory.
fn shared_options(service: &Service, directory: &Path, seeds: &str) -> Vec<String> {
    let socket = service.addresses["socket"].as_str().unwrap();
    let token = service.data().join("admin.token").display().to_string();
    let directory = directory.display().to_string();
    let times = ["--takeover-after", "1s", "--gone", "1s"];
    let others = ["--shared", &directory, "--seeds", seeds, "--server", socket, "--token-file", &token];
    others.into_iter().chain(times).map(str::to_owned).collect()
}

/// Returns the services that a service runs for other machines, once there are so many.
fn takeovers(service: &Service, at: &Writer, count: usize) -> Vec<Value> {
    let mut found = Vec::new();
    eventually("so many takeovers", || {
        let status = service.command(&["--json", "writer", "status", "--at", &at.http]);
        found = Ran::of(status, b"").json().remove(0)["takeovers"].as_array().unwrap().clone();
        found.len() == count
    });
    found
}

/// Waits until each service knows the others at their present addresses.
fn knows_all(service: &Service, at: &[&str]) {
    for one in at {
        eventually("the services know each other", || {
            let table = Ran::of(service.command(&["--json", "writer", "table", "--at", one]), b"").json();
            let is_there = |http: &&str| table.iter().any(|of| of["http"] == **http && of["state"] != "gone");
            at.iter().all(is_there)
        });
    }
}

/// Property: with shared volumes, files of a service that is killed under load are certified, once and with
/// all events in order, while its machine stays away. When it is back, it gets its volumes and files again.
#[test]
fn service_that_is_gone_runs_on_another_machine() {
    let (service, place) = (ready(), tempfile::tempdir().unwrap());
    let start = |name: &str, seeds: &str| {
        let (data, volume) =
            (place.path().join(format!("{name}.data")), place.path().join("shared").join(name));
        Writer::start_with(&data, volume, shared_options(&service, &place.path().join("shared"), seeds))
    };
    let mut lost = start("lost", "127.0.0.1:1");
    let mut other = start("other", &lost.address);
    knows_all(&service, &[&lost.http, &other.http]);
    let services = format!("{},{}", lost.address, other.address);
    let mut produce = service.command(&["--json", "writer", "produce", "--below", "/daq/over", "--run", "8"]);
    produce.args(["--producers", "2", "--streams", "8", "--size", "16..64KiB", "--rate", "400"]);
    produce.args(["--events", "1200", "--file-events", "25", "--service", &services]);
    let producing = produce.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    has_bytes(&service, &lost);
    lost.kill();
    let ended = producing.wait_with_output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let told: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!((&told["events"], &told["failed"]), (&1200.into(), &0.into()), "{told}");
    let names = service.ok("find /daq/over --type f --tag run=8");
    assert_eq!(Some(names.lines().count() as u64), told["certified"].as_u64(), "{told}");
    let run = takeovers(&service, &other, 1).remove(0);
    let shown = Ran::of(service.command(&["writer", "status", "--at", &other.http]), b"").ok();
    assert!(shown.contains("runs for a lost machine"), "{shown}");
    let over = format!("http://{}", run["http"].as_str().unwrap());
    knows_all(&service, &[&other.http, &over]);
    check_events(&service, &names, &[&other.http, &over], 1200);

    lost.restart();
    takeovers(&service, &other, 0);
    knows_all(&service, &[&other.http, &lost.http]);
    check_events(&service, &names, &[&other.http, &lost.http], 1200);
    Ran::of(service.command(&["writer", "put", "/daq/over/again", "-", "--service", &lost.address]), b"x")
        .ok();
    assert_eq!((lost.stop(), other.stop()), (Some(0), Some(0)));
    for volume in [&lost.volume, &other.volume] {
        assert!(!volume.join("WANTED").exists());
        let mut fsck = exacat();
        fsck.args(["--json", "writer", "fsck", "--read", "--volume"]).arg(volume);
        let checked = Ran::of(fsck, b"").json().remove(0);
        assert_eq!(checked["faults_total"], 0, "{checked}");
    }
}

/// Property: a service that hangs keeps its volumes, because nobody can know that it will not write. A
/// service whose volumes another process has counts no file as written any more.
#[test]
fn volumes_of_a_process_that_hangs_are_not_taken_over() {
    let (service, place) = (ready(), tempfile::tempdir().unwrap());
    let start = |name: &str, seeds: &str| {
        let (data, volume) =
            (place.path().join(format!("{name}.data")), place.path().join("shared").join(name));
        Writer::start_with(&data, volume, shared_options(&service, &place.path().join("shared"), seeds))
    };
    let hanging = start("hanging", "127.0.0.1:1");
    let other = start("other", &hanging.address);
    let put =
        |name: &str, at: &Writer| service.command(&["writer", "put", name, "-", "--service", &at.address]);
    Ran::of(put("/daq/before", &hanging), b"x").ok();
    let process = hanging.child.as_ref().unwrap().id();
    signal(process, "STOP");
    let table = || {
        let table = service.command(&["--json", "writer", "table", "--at", &other.http]);
        Ran::of(table, b"").json()
    };
    eventually("it counts as gone", || table().iter().any(|of| of["state"] == "gone"));
    // Longer than a takeover takes: it must not happen.
    std::thread::park_timeout(Duration::from_secs(4));
    takeovers(&service, &other, 0);
    signal(process, "CONT");
    eventually("it is back", || table().iter().all(|of| of["state"] == "up"));
    Ran::of(put("/daq/after", &hanging), b"x").ok();

    // As if its file system had given the lock to another machine.
    std::fs::write(hanging.volume.join("STARTS"), "99\n").unwrap();
    let status = || Ran::of(service.command(&["writer", "status", "--at", &hanging.http]), b"").ok();
    eventually("it writes nothing more", || status().contains("another process runs this service"));
    Ran::of(put("/daq/fenced", &other), b"x").ok();
    assert!(service.ok("stat /daq/fenced").contains("/daq/fenced"));
}

/// Property: options that would leave volumes where no other service finds them are refused.
#[test]
fn shared_volumes_lie_in_one_directory() {
    let (service, place) = (ready(), tempfile::tempdir().unwrap());
    let serve = |volume: &str, more: &[&str]| {
        let mut command = exacat();
        command.args([
            "writer",
            "serve",
            "--se",
            SE,
            "--http",
            "none",
            "--listen",
            "127.0.0.1:0",
            "--volume",
        ]);
        command.arg(place.path().join(volume)).arg("--shared").arg(place.path().join("shared")).args(more);
        command.arg("--data").arg(service.data());
        Ran::of(command, b"").fails(1)
    };
    assert!(serve("elsewhere", &["--seeds", "127.0.0.1:1"]).contains("is not a directory in"));
    assert!(serve("shared/a", &[]).contains("need links to other services"));
}

/// Property: a service with TLS that has nothing of a file finds the one that has it, and `cat` and `merge`
/// follow there.
#[test]
fn file_is_read_from_any_service_over_tls() {
    let (service, place) = (ready(), tempfile::tempdir().unwrap());
    let data = |name: &str| service.data().join(name).display().to_string();
    let start = |name: &str, seeds: &str| {
        let socket = service.addresses["socket"].as_str().unwrap();
        let (certificate, key, token) = (data("server.crt"), data("server.key"), data("admin.token"));
        let options = [
            ["--certificate", &certificate],
            ["--key", &key],
            ["--ca", &certificate],
            ["--seeds", seeds],
            ["--server", socket],
            ["--token-file", &token],
        ];
        let options = options.into_iter().flatten().map(str::to_owned).collect();
        Writer::start_with(&place.path().join(format!("{name}.data")), place.path().join(name), options)
    };
    let one = start("one", "127.0.0.1:1");
    let two = start("two", &one.address);
    let content: Vec<u8> = (0..200_000_u32).map(|at| (at * 7 + at / 251) as u8).collect();
    let put = ["writer", "put", "/daq/f.raw", "-", "--service", &one.address, "--service-ca"];
    let mut put = service.command(&put);
    put.arg(data("server.crt"));
    Ran::of(put, &content).ok();
    let is_known = || {
        let table = Ran::of(service.command(&["--json", "writer", "table", "--at", &two.http]), b"");
        table
            .json()
            .iter()
            .filter(|of| of["http"].as_str().is_some_and(|url| url.starts_with("https:")))
            .count()
            == 2
    };
    eventually("the services find each other", is_known);
    for writer in [&one, &two] {
        let cat = service.command(&["writer", "cat", "/daq/f.raw", "--at", &writer.http]).output().unwrap();
        assert!(cat.status.success(), "{}", String::from_utf8_lossy(&cat.stderr));
        assert!(cat.stdout == content, "{} bytes", cat.stdout.len());
    }
    let copy = place.path().join("copy").display().to_string();
    let merge = ["writer", "merge", "/daq/f.raw", &copy, "--at", &two.http];
    Ran::of(service.command(&merge), b"").ok();
    assert!(std::fs::read(&copy).unwrap() == content);
}

/// Authority of producers.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Authority {
        let mut parameters = named(name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap())
    }

    /// Writes a certificate of `/O=Site/CN=NAME` that ends with a year, and its key.
    fn issue(&self, service: &Service, name: &str, year: i32) -> [String; 2] {
        let mut parameters = named(name);
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        (parameters.not_before, parameters.not_after) =
            (date_time_ymd(2020, 1, 1), date_time_ymd(year, 1, 1));
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.0).unwrap();
        let write = |ending: &str, text: String| service.file(&format!("{name}-{year}.{ending}"), text);
        [write("pem", certificate.pem()), write("key", key.serialize_pem())]
    }
}

fn named(name: &str) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::OrganizationName, "Site");
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters
}

/// Property: a producer with a certificate of an accepted authority writes as the account with its subject,
/// and only where this account may write. One that is over, of another authority, or of no account is
/// refused with the reason. A token counts before any certificate.
#[test]
fn producer_with_a_certificate_writes_as_its_account() {
    let (service, place) = (ready(), tempfile::tempdir().unwrap());
    service.ok("user add daq --subject /O=Site/CN=daq");
    service.ok("mkdir /daq/raw");
    service.ok("chown daq /daq/raw");
    service.ok("user add shifter");
    service.ok("mkdir /daq/shift");
    service.ok("chown shifter /daq/shift");
    let issued = service.json1("token issue --user shifter --write --lifetime 1d");
    let token = issued["secret"].as_str().unwrap();
    let (ours, others) = (Authority::new("producers"), Authority::new("others"));
    let authorities = service.file("producers.pem", ours.0.pem());
    let own = |name: &str| service.data().join(name).display().to_string();
    let (certificate, key) = (own("server.crt"), own("server.key"));
    let options = ["--certificate", &certificate, "--key", &key, "--client-ca", &authorities];
    let mut writer =
        Writer::start_with(service.data(), place.path().join("volume"), options.map(str::to_owned).to_vec());
    let address = writer.address.clone();
    let put = |lfn: &str, shown: Option<&[String; 2]>, token: Option<&str>| {
        let words = ["writer", "put", lfn, "-", "--service", &address, "--service-ca", &certificate];
        let mut command = service.command(&words);
        if let Some([chain, key]) = shown {
            command.args(["--client-certificate", chain, "--client-key", key]);
        }
        if let Some(token) = token {
            command.env("EXACAT_TOKEN", token);
        }
        Ran::of(command, &[7_u8; 100_000])
    };
    let good = ours.issue(&service, "daq", 2099);
    put("/daq/raw/run1/f.raw", Some(&good), None).ok();
    for name in ["/daq/raw/run1", "/daq/raw/run1/f.raw"] {
        assert_eq!(service.json1(&format!("stat {name}"))["owner"], "daq", "{name}");
    }
    // The rights are those of the account, not of the service.
    let said = put("/daq/elsewhere.raw", Some(&good), None).fails(1);
    assert!(said.contains("/daq/elsewhere.raw") && said.contains("no w"), "{said}");
    let renewed = ours.issue(&service, "daq", 2098);
    put("/daq/raw/renewed.raw", Some(&renewed), None).ok();
    let stranger = ours.issue(&service, "stranger", 2099);
    let refused = [
        (ours.issue(&service, "daq", 2021), "/O=Site/CN=daq is not accepted: it has expired"),
        (others.issue(&service, "daq", 2097), "--client-ca"),
        (stranger.clone(), "no account of the catalogue has the subject"),
    ];
    for (number, (shown, reason)) in refused.iter().enumerate() {
        let said = put("/daq/raw/refused.raw", Some(shown), None).fails(1);
        assert!(said.contains(reason), "{reason}: {said}");
        // The same with a token is the holder of the token.
        let name = format!("/daq/shift/{number}.raw");
        put(&name, Some(shown), Some(token)).ok();
        assert_eq!(service.json1(&format!("stat {name}"))["owner"], "shifter");
    }
    let said = put("/daq/raw/refused.raw", Some(&good), Some(token)).fails(1);
    assert!(said.contains("no w"), "the token counts: {said}");
    put("/daq/raw/refused.raw", Some(&good), Some("wrong")).fails(1);
    // An account gets the subject that was unknown. The service may look for it once a second only.
    service.ok("user set shifter --subject /O=Site/CN=stranger");
    let put_by_subject = || put("/daq/shift/by-subject.raw", Some(&stranger), None);
    assert!((0..TRIES_MAX).any(|_| put_by_subject().status == Some(0)));
    let below = ["--json", "writer", "produce", "--below", "/daq/raw/load", "--events", "20"];
    let mut produce = service.command(&below);
    produce.args(["--service", &address, "--service-ca", &certificate]);
    produce.args(["--client-certificate", &good[0], "--client-key", &good[1]]);
    assert_eq!(Ran::of(produce, b"").json()[0]["certified"], 1);
    assert_eq!(service.json1("stat /daq/raw/load")["owner"], "daq");
    service.fails("stat /daq/raw/refused.raw", 11);
    service.fails("stat /daq/elsewhere.raw", 11);
    assert_eq!(writer.stop(), Some(0));
}
