//! `writer stage-out`: copies to a directory and to a data server of XRootD, faults, and repeated calls.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::rig::{Writer, eventually, ready};
use crate::service::{Ran, Service};

const DISK: &str = "TEST::DAQ::DISK";

fn put(service: &Service, lfn: &str, content: &[u8]) {
    Ran::of(service.command(&["writer", "put", lfn, "-"]), content).ok();
}

fn content(seed: u32, length: u32) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251 + seed) as u8).collect()
}

/// Runs the command for all files, or for some.
fn stage_out(service: &Service, to: &str, files: &[&str]) -> Ran {
    let words = [&["--json", "writer", "stage-out", "--to", to], files].concat();
    Ran::of(service.command(&words), b"")
}

/// Returns the results by the names of the files, and the exit status.
fn results(ran: &Ran) -> (Option<i32>, Vec<(String, String)>) {
    let lines = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut found: Vec<(String, String)> = lines
        .map(|of| {
            (of["lfn"].as_str().unwrap_or_default().to_owned(), of["result"].as_str().unwrap().to_owned())
        })
        .collect();
    found.sort();
    (ran.status, found)
}

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(name, result)| ((*name).to_owned(), (*result).to_owned())).collect()
}

/// Returns the path of the copy of a file in the catalogue, which is in a directory.
fn copy_of(service: &Service, lfn: &str) -> String {
    let replicas = service.json1(&format!("whereis {lfn}"))["replicas"].as_array().unwrap().clone();
    let at: Vec<&Value> = replicas.iter().filter(|of| of["se"] == DISK).collect();
    assert_eq!(at.len(), 1, "{lfn}: {replicas:?}");
    at[0]["pfn"].as_str().unwrap().strip_prefix("file://").unwrap().to_owned()
}

/// Property: one file, a directory or all are copied, verified and registered once; a repeated call finds
/// them. What is not certified, and what is not there, is named with its reason.
#[test]
fn files_are_copied_to_a_directory_by_order() {
    let (service, place) = (ready(), tempfile::tempdir().unwrap());
    service.ok(&format!("se add {DISK} --prefix file://{}/disk", place.path().display()));
    let mut writer = Writer::start(&service, place.path(), "volume");
    let names = ["/daq/a/one", "/daq/a/two", "/daq/ab", "/daq/z"];
    let contents: Vec<Vec<u8>> = (0..4).map(|seed| content(seed, 200_000 + seed)).collect();
    for (name, content) in names.iter().zip(&contents) {
        put(&service, name, content);
    }
    let (one, below) = (stage_out(&service, DISK, &["/daq/z"]), stage_out(&service, DISK, &["/daq/a"]));
    assert_eq!(results(&one), (Some(0), pairs(&[("/daq/z", "copied")])), "{one:?}");
    let expected = pairs(&[("/daq/a/one", "copied"), ("/daq/a/two", "copied")]);
    assert_eq!(results(&below), (Some(0), expected), "{below:?}");
    let all = stage_out(&service, DISK, &[]);
    assert_eq!(results(&all), (Some(0), pairs(&[("/daq/ab", "copied")])), "{all:?}");
    assert_eq!(results(&stage_out(&service, DISK, &[])), (Some(0), Vec::new()), "nothing is left to do");
    let again = stage_out(&service, DISK, &["/daq"]);
    assert_eq!(results(&again), (Some(0), pairs(&names.map(|name| (name, "there")))), "{again:?}");
    for (name, content) in names.iter().zip(&contents) {
        assert!(std::fs::read(copy_of(&service, name)).unwrap() == *content, "{name}");
    }
    // A copy that is damaged is replaced.
    let copy = copy_of(&service, "/daq/z");
    std::fs::write(&copy, b"torso").unwrap();
    let mended = stage_out(&service, DISK, &["/daq/z"]);
    assert_eq!(results(&mended), (Some(0), pairs(&[("/daq/z", "copied")])), "{mended:?}");
    assert!(std::fs::read(&copy).unwrap() == contents[3]);
    let shown = service.ok(&format!("writer stage-out --to {DISK} /daq/z"));
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    assert!(shown.ends_with("0 files (0) copied to TEST::DAQ::DISK, 1 there, 0 failed, 0 left\n"), "{shown}");
    assert_eq!(writer.stop(), Some(0));
}

/// Property: a wrong argument changes nothing, names what is wrong, and has its exit status; the other files
/// of the call are copied.
#[test]
fn what_cannot_be_copied_is_told() {
    let (service, place) = (ready(), tempfile::tempdir().unwrap());
    let disk = place.path().join("disk");
    service.ok(&format!("se add {DISK} --prefix file://{}", disk.display()));
    service.ok("se add TEST::DAQ::WEB --prefix http://127.0.0.1:1/data");
    let mut writer = Writer::start(&service, place.path(), "volume");
    put(&service, "/daq/f.raw", &content(1, 100_000));
    let said = stage_out(&service, "TEST::DAQ::NOWHERE", &["/daq/f.raw"]);
    assert_eq!(results(&said), (Some(11), pairs(&[("/daq/f.raw", "failed")])), "{said:?}");
    assert!(said.out.contains("no such storage element"), "{said:?}");
    let said = stage_out(&service, "TEST::DAQ::WEB", &[]);
    assert_eq!(results(&said), (Some(1), pairs(&[("/daq/f.raw", "failed")])), "{said:?}");
    assert!(said.out.contains("copies go to file:///DIRECTORY, or root://"), "{said:?}");
    stage_out(&service, "no name", &[]).fails(1);
    // A directory that cannot be made: the place is a file.
    std::fs::write(&disk, b"a file").unwrap();
    let said = stage_out(&service, DISK, &[]);
    assert_eq!(results(&said), (Some(23), pairs(&[("/daq/f.raw", "failed")])), "{said:?}");
    std::fs::remove_file(&disk).unwrap();

    let said = stage_out(&service, DISK, &["/daq/f.ra", "/daq/f.raw", &"7".repeat(32), "/daq/f.raw/"]);
    assert_eq!(results(&said), (Some(11), pairs(&[("/daq/f.raw", "copied")])), "{said:?}");
    assert!(said.err.contains("/daq/f.ra\"") && said.err.contains(&"7".repeat(32)), "{said:?}");
    assert!(stage_out(&service, DISK, &["f.raw"]).fails(1).contains("32 hexadecimal digits"));

    // A file that its producer writes is left, and fails the call only if it was named.
    let mut produce = service.command(&["writer", "produce", "--below", "/daq/open", "--rate", "50"]);
    produce.args(["--size", "10kB", "--events", "500"]).stdin(Stdio::null()).stdout(Stdio::null());
    let mut producing = produce.stderr(Stdio::null()).spawn().unwrap();
    let is_open = || !service.json("writer files --stage open").is_empty();
    eventually("a file is being written", is_open);
    let open = service.json("writer files --stage open").remove(0);
    let lfn = open["lfn"].as_str().unwrap();
    let left = stage_out(&service, DISK, &["/daq/open"]);
    assert_eq!(results(&left), (Some(19), pairs(&[(lfn, "left")])), "{left:?}");
    assert!(left.out.contains("open: being written"), "{left:?}");
    let by_id = stage_out(&service, DISK, &[open["file"].as_str().unwrap()]);
    assert_eq!(results(&by_id), (Some(19), pairs(&[(lfn, "left")])), "{by_id:?}");
    assert_eq!(results(&stage_out(&service, DISK, &[])), (Some(0), pairs(&[(lfn, "left")])));
    assert!(producing.wait().unwrap().success());
    let done = stage_out(&service, DISK, &["/daq/open"]);
    assert_eq!(results(&done), (Some(0), pairs(&[(lfn, "copied")])), "{done:?}");

    service.ok("user add shifter");
    let token = service.json1("token issue --user shifter --write --lifetime 1d")["secret"].clone();
    let mut by_shifter = service.command(&["writer", "stage-out", "--to", DISK]);
    by_shifter.env("EXACAT_TOKEN", token.as_str().unwrap());
    assert!(Ran::of(by_shifter, b"").fails(16).contains("administrator or operator"));
    assert_eq!(writer.stop(), Some(0));
}

/// Property: a service that is killed in the middle of copies loses nothing, and leaves no wrong copy. The
/// command says so; the same call ends the work once the service is back.
#[test]
fn kill_of_the_service_in_the_middle_is_mended_by_the_same_call() {
    let (service, place) = (ready(), tempfile::tempdir().unwrap());
    let disk = format!("file://{}/disk", place.path().display());
    service.ok(&format!("se add {DISK} --prefix {disk}"));
    let content = content(1, 8_000_000);
    let options = ["--stage-out", DISK, "--stage-prefix", &disk, "--stage-rate", "1MB"];
    let mut writer =
        Writer::start_with(service.data(), place.path().join("volume"), options.map(str::to_owned).to_vec());
    put(&service, "/daq/f.raw", &content);
    let mut command = service.command(&["--json", "writer", "stage-out", "--to", DISK]);
    let ordered = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ordered = ordered.spawn().unwrap();
    let unfinished = || files_below(&place.path().join("disk")).iter().any(|(_, bytes)| *bytes > 0);
    eventually("a copy has begun", unfinished);
    writer.kill();
    let ended = ordered.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(23), "{ended:?}");
    let there = files_below(&place.path().join("disk"));
    assert!(there.iter().all(|(name, _)| name.ends_with(".unfinished")), "{there:?}");
    let replicas = service.json1("whereis /daq/f.raw")["replicas"].as_array().unwrap().clone();
    assert!(replicas.iter().all(|of| of["se"] != DISK), "{replicas:?}");
    writer.restart();
    let again = stage_out(&service, DISK, &["/daq/f.raw"]);
    assert_eq!(results(&again), (Some(0), pairs(&[("/daq/f.raw", "copied")])), "{again:?}");
    assert!(std::fs::read(copy_of(&service, "/daq/f.raw")).unwrap() == content);
    assert_eq!(files_below(&place.path().join("disk")).len(), 1);
    // The other storage element is not that of the service.
    service.ok("se add TEST::DAQ::OTHER --prefix file:///tmp/other");
    let other = stage_out(&service, "TEST::DAQ::OTHER", &["/daq/f.raw"]);
    assert_eq!(results(&other), (Some(19), pairs(&[("/daq/f.raw", "failed")])), "{other:?}");
    assert!(other.out.contains(&format!("this service copies to {DISK}")), "{other:?}");
    assert_eq!(writer.stop(), Some(0));
}

/// Returns the files two levels below a directory, with their lengths; none if there is no directory.
fn files_below(directory: &Path) -> Vec<(String, u64)> {
    let Ok(above) = std::fs::read_dir(directory) else { return Vec::new() };
    let below = above.flat_map(|of| std::fs::read_dir(of.unwrap().path()).unwrap());
    below
        .map(|of| {
            let of = of.unwrap();
            (of.file_name().into_string().unwrap(), of.metadata().map_or(0, |of| of.len()))
        })
        .collect()
}

/// Data server of XRootD. It does not run as root.
struct DataServer {
    child: Child,
    port: u16,
    place: tempfile::TempDir,
}

/// User and group of a data server that root starts: nobody.
const NOBODY: u32 = 65_534;

impl DataServer {
    /// Starts one; none if XRootD is not installed.
    fn start() -> Option<DataServer> {
        let has = |program: &str| {
            Command::new(program).arg("-h").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
        };
        if !["xrootd", "xrdcp", "xrdfs"].iter().all(|program| has(program)) {
            return None;
        }
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        std::fs::create_dir_all(root.join("files/data")).unwrap();
        let at = root.display();
        let lines = [
            format!("all.adminpath {at}"),
            format!("all.pidpath {at}"),
            format!("oss.localroot {at}/files"),
            "all.export /data".to_owned(),
            "xrootd.chksum adler32".to_owned(),
            format!("xrd.port {port}"),
        ];
        std::fs::write(root.join("xrootd.cf"), lines.join("\n") + "\n").unwrap();
        let mut command = Command::new("xrootd");
        command.arg("-c").arg(root.join("xrootd.cf")).arg("-l").arg(root.join("log")).args(["-n", "test"]);
        let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(root).unwrap());
        if owner == 0 {
            for path in ["", "files", "files/data"] {
                std::os::unix::fs::chown(root.join(path), Some(NOBODY), Some(NOBODY)).unwrap();
            }
            command.uid(NOBODY).gid(NOBODY);
        }
        command.current_dir(root).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = DataServer { child: command.spawn().unwrap(), port, place };
        eventually("the data server listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(server)
    }

    fn url(&self) -> String {
        format!("root://127.0.0.1:{}//data", self.port)
    }
}

impl Drop for DataServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Property: a real data server gets the bytes, its checksum is compared, and a repeated call copies nothing.
/// While the server is away the file stays here, and the call fails.
#[test]
fn files_are_copied_to_a_data_server() {
    let Some(mut server) = DataServer::start() else {
        eprintln!("skipped: XRootD is not installed (Debian: xrootd-server xrootd-client)");
        return;
    };
    let (service, place) = (ready(), tempfile::tempdir().unwrap());
    service.ok(&format!("se add {DISK} --prefix {}", server.url()));
    let mut writer = Writer::start(&service, place.path(), "volume");
    let contents = [content(1, 3_000_000), content(2, 1)];
    put(&service, "/daq/a", &contents[0]);
    put(&service, "/daq/b", &contents[1]);
    let all = stage_out(&service, DISK, &[]);
    assert_eq!(results(&all), (Some(0), pairs(&[("/daq/a", "copied"), ("/daq/b", "copied")])), "{all:?}");
    let again = stage_out(&service, DISK, &["/daq"]);
    assert_eq!(results(&again), (Some(0), pairs(&[("/daq/a", "there"), ("/daq/b", "there")])), "{again:?}");
    for (name, content) in ["/daq/a", "/daq/b"].iter().zip(&contents) {
        let replicas = service.json1(&format!("whereis {name}"))["replicas"].as_array().unwrap().clone();
        let pfn = replicas.iter().find(|of| of["se"] == DISK).unwrap()["pfn"].as_str().unwrap().to_owned();
        let path = pfn.strip_prefix(&format!("root://127.0.0.1:{}/", server.port)).unwrap().to_owned();
        let there = server.place.path().join("files").join(path.trim_start_matches('/'));
        assert!(std::fs::read(there).unwrap() == *content, "{name}");
        let back = place.path().join("back");
        let copied = Command::new("xrdcp").args(["-s", "-N", "-f", &pfn]).arg(&back).output().unwrap();
        assert!(copied.status.success(), "{copied:?}");
        assert!(std::fs::read(&back).unwrap() == *content, "{name}");
    }
    put(&service, "/daq/c", b"one more");
    let _ = server.child.kill();
    let _ = server.child.wait();
    let away = stage_out(&service, DISK, &[]);
    assert_eq!(results(&away), (Some(23), pairs(&[("/daq/c", "failed")])), "{away:?}");
    assert_eq!(service.json("writer files --stage certified").len(), 1, "it stays");
    assert_eq!(writer.stop(), Some(0));
}
