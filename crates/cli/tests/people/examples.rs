//! Examples of `--help`, of the README and of `make run`: each runs as it stands, on the sample
//! catalogue of `make run`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::service::{EXACAT, Ran, Service, exacat, signal};

/// Columns of a terminal.
const WIDTH: usize = 80;
/// The beginning of the sample that `make run` generates; a longer one begins the same.
const SAMPLE_ENTRIES: &str = "8000";
/// Time limit for the output of an example.
const WAIT: Duration = Duration::from_secs(60);
/// Pause between two changes that `changes --follow` could show.
const CHANGES_APART: Duration = Duration::from_millis(200);

/// Beginnings of examples that do not run here, and the reasons.
const ELSEWHERE: [(&str, &str); 32] = [
    ("exacat serve   ", "listens at the standard port, where another server may be"),
    ("exacat serve\n", "listens at the standard port, where another server may be"),
    ("exacat serve --listen 0.0.0.0", "listens to the network, at the standard port"),
    ("exacat serve --http 0.0.0.0", "listens to the network, at the standard port"),
    ("exacat serve --jalien 0.0.0.0", "listens to the network, and needs certificates of a grid"),
    ("exacat serve --xrootd 0.0.0.0", "listens to the network, at the standard port"),
    ("exacat serve --store cassandra:", "needs a cluster"),
    ("exacat follow http", "needs another server, whose token it takes"),
    ("exacat promote --data", "needs a follower"),
    ("exacat schema create cassandra:", "needs a cluster"),
    ("exacat schema check cassandra:", "needs a cluster"),
    ("exacat --json schema check cassandra:", "needs a cluster"),
    ("exacat schema upgrade cassandra:", "needs a cluster"),
    ("exacat copy --from embedded:/srv/exacat --to cassandra:", "needs a cluster"),
    ("exacat copy --from cassandra:", "needs a cluster"),
    ("exacat cp /demo/x.root", "needs a storage element, another machine"),
    ("exacat cp file:", "needs a storage element, another machine"),
    ("exacat --json cp file:", "needs a storage element, another machine"),
    ("exacat trash restore 1234.3f9a1c --path", "needs entries of another user"),
    ("exacat sessions kill", "needs a request that goes on"),
    ("exacat --data /srv/exacat history adopt", "needs a history that was restored, and its archive"),
    ("systemd-run", "needs root"),
    ("exacat replay serve --trace like.trace.zst\n", "listens at the standard port"),
    ("exacat replay serve --trace month.zst", "listens to the network, at the standard port"),
    ("exacat replay agent", "needs a cache, another machine"),
    ("exacat replay origin", "listens at the standard port"),
    ("exacat replay cinfo", "needs the disk of a cache"),
    ("exacat replay run wait", "needs agents that end the run"),
    ("exacat writer rm", "needs the id of a file that is there"),
    ("exacat writer serve --volume ~/daq --se DEMO::DAQ::WRITER\n", "listens at the standard port"),
    ("exacat writer serve --volume /daq1", "listens to the network, at the standard port"),
    ("exacat writer put /data/raw/f1", "needs a service on another machine, and a certificate"),
];

/// Commands in an order in which their examples work one after the other.
const ORDER: &[&str] = &[
    "",
    "ls",
    "stat",
    "whereis",
    "lfn",
    "find",
    "du",
    "log",
    "changes",
    "history set",
    "history import",
    "history ls",
    "history stat",
    "history latest",
    "history at",
    "history get",
    "history rm",
    "history adopt",
    "snapshot create",
    "snapshot ls",
    "snapshot diff",
    "diff",
    "snapshot drop",
    "snapshot verify",
    "clone",
    "export",
    "digest",
    "import",
    "verify",
    "mkdir",
    "register",
    "touch",
    "ln",
    "replica add",
    "replica rm",
    "replica state",
    "upload reserve",
    "upload commit",
    "upload abort",
    "upload ls",
    "tag set",
    "tag get",
    "tag rm",
    "tag find",
    "collection create",
    "collection add",
    "collection rm",
    "collection ls",
    "archive ls",
    "chmod",
    "chown",
    "chgrp",
    "expire",
    "mv",
    "rm",
    "rmdir",
    "trash ls",
    "trash restore",
    "se add",
    "se set",
    "se rm",
    "se ls",
    "se usage",
    "se files",
    "se deletions",
    "se deleted",
    "se compare",
    "trash purge",
    "quota set",
    "quota get",
    "user add",
    "user set",
    "user rm",
    "user ls",
    "group add",
    "group rm",
    "group ls",
    "token issue",
    "token revoke",
    "token ls",
    "issuer add",
    "issuer ls",
    "issuer rm",
    "whoami",
    "generate",
    "fsck",
    "status",
    "sessions",
    "sessions kill",
    "slow",
    "throttle set",
    "throttle ls",
    "throttle clear",
    "feed create",
    "feed ls",
    "feed show",
    "feed pause",
    "feed resume",
    "feed rewind",
    "feed drop",
    "drain",
    "top",
    "report",
    "clock show",
    "clock confirm",
    "completions",
    "backup",
    "replay import",
    "replay generate",
    "replay show",
    "replay serve",
    "replay origin",
    "replay cinfo",
    "replay run create",
    "replay run ls",
    "replay run show",
    "replay run start",
    "replay run pause",
    "replay run resume",
    "replay agent",
    "replay report",
    "replay run wait",
    "replay run stop",
    "serve",
    "follow",
    "promote",
    "writer serve",
    "writer put",
    "writer produce",
    "writer status",
    "writer table",
    "writer files",
    "writer cat",
    "writer merge",
    "writer stage-out",
    "writer rm",
    "writer drain",
    "writer resume",
    "writer fsck",
    "writer adopt",
    "bench",
    "cp",
    "schema create",
    "schema check",
    "schema upgrade",
    "copy",
    "restore",
];

/// Returns the help of a command.
fn help(path: &str, option: &str) -> String {
    let mut command = exacat();
    command.args(path.split_whitespace()).arg(option);
    Ran::of(command, b"").ok()
}

/// Returns the help of every command that is a leaf, and of the program, by the command's path.
fn helps() -> BTreeMap<String, String> {
    let mut helps = BTreeMap::new();
    let mut open = vec![String::new()];
    while let Some(path) = open.pop() {
        let text = help(&path, "--help");
        let below = text.split_once("\nCommands:\n").map(|(_, rest)| rest);
        for line in below.into_iter().flat_map(str::lines).take_while(|line| line.starts_with("  ")) {
            // Further lines of descriptions are indented more.
            let Some(name) = line.strip_prefix("  ").filter(|line| !line.starts_with(' ')) else { continue };
            let name = name.split(' ').next().unwrap();
            if name != "help" {
                open.push(format!("{path} {name}").trim_start().to_owned());
            }
        }
        // A command whose subcommands are optional does something by itself.
        if path.is_empty() || below.is_none() || text.contains(" [COMMAND]\n") {
            helps.insert(path, text);
        }
    }
    helps
}

/// Returns the examples of a help, each with its further lines.
fn examples(help: &str) -> Vec<String> {
    let Some((_, part)) = help.split_once("\nExamples:\n") else { return Vec::new() };
    let mut found: Vec<String> = Vec::new();
    for line in part.lines() {
        let line = line.strip_prefix("  ").unwrap_or_else(|| panic!("not an example: {line:?}"));
        match found.last_mut() {
            Some(last) if line.starts_with(' ') => {
                last.push('\n');
                last.push_str(line);
            }
            _ => found.push(line.to_owned()),
        }
    }
    found
}

/// A user's machine: a home directory with some listings in it, and the server's data directory in
/// the usual place.
struct Machine {
    service: Service,
    home: PathBuf,
    /// URL of the replay service, once it runs.
    replay: Option<String>,
    _place: tempfile::TempDir,
}

impl Machine {
    fn with_sample() -> Machine {
        let place = tempfile::tempdir().unwrap();
        let home = place.path().join("home");
        for directory in [".local/share", ".zfunc", ".config/fish/completions"] {
            std::fs::create_dir_all(home.join(directory)).unwrap();
        }
        std::os::unix::fs::symlink(place.path().join("data"), home.join(".local/share/exacat")).unwrap();
        let service = Service::start_in(place.path(), &["--history"]);
        service.ok(&format!("generate --entries {SAMPLE_ENTRIES}"));
        let machine = Machine { service, home, replay: None, _place: place };
        machine.service.ok("history set dcs");
        machine.file("beam.lines", "lhc,element=beam value=\"STABLE\" 1795000000000000000\n");
        machine.service.ok(&format!("history import dcs {}/beam.lines", machine.home.display()));
        // A part of the sample of `make run`.
        machine.service.ok("history set demo");
        // Without a time it is of now.
        machine.file("demo.lines", "values,element=demo/hv1.vMon v=829.5\n");
        machine.service.ok(&format!("history import demo {}/demo.lines", machine.home.display()));
        let file = "/demo/sim/2026/LHC26a1/560123-0/001/AOD.root";
        let guid = machine.service.json1(&format!("stat {file}"))["guid"].as_str().unwrap().to_owned();
        machine.file("guids.tsv", format!("{guid}\tAOD.root\n"));
        let rows = "/in/a\t5\tadler32:00000001\troot://se.example.org//a\n";
        machine.file("files.tsv.zst", zstd::encode_all(rows.as_bytes(), 0).unwrap());
        machine.file("files.tsv", "lfn\tsize\n/in/b\t5\n");
        let accesses = "time\tname\tsize\tsite\n1700000000\t/a\t500\tA\n1700000001.5\t/b\t7\tA\n";
        machine.file("accesses.tsv", accesses);
        machine.file("fzk.dump", dump_of(&machine.service, "DEMO::FZK::SE"));
        machine.file("reads.csv", "start,url,size\n1700000000,root://h:1094//a/b,\n");
        machine.file("more.tsv", "lfn\tsize\n/in/more\t7\n");
        machine.file("files.csv", "path,bytes\n/in/c,6\n");
        machine.file("transfers.tsv", "name\tdst\n/t/a\tSITE_ONE\n/t/a\tSITE_TWO\n");
        machine.file("sets.jsonl", "{\"id\":\"/sets/one\",\"title\":\"One\"}\n");
        machine.file("values.lines", "hv,element=crate1 v=829.5,q=0i 1795000000000000000\n");
        machine.file("values.csv", "time,element,v,q:integer\n2026-11-20T03:14:07Z,crate3,830.5,0\n");
        machine.file("files.jsonl", "{\"lfn\":\"/demo/lines/a\",\"size\":1}\n");
        machine
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.home.join(name), content).unwrap();
    }

    /// Returns a shell that runs this in the home directory.
    fn shell(&self, script: &str) -> Command {
        let binaries = Path::new(EXACAT).parent().unwrap();
        let path = std::env::var("PATH").unwrap();
        // Only the test's settings: the commands are those of a user without any.
        let clean = exacat();
        let mut command = Command::new("bash");
        for (name, value) in clean.get_envs() {
            assert!(value.is_none());
            command.env_remove(name);
        }
        command
            .args(["--norc", "-c", script])
            .current_dir(&self.home)
            .env("HOME", &self.home)
            .env("PATH", format!("{}:{path}", binaries.display()));
        if let Some(url) = &self.replay {
            command.env("EXACAT_REPLAY", url);
        }
        command
    }

    /// Runs an example; returns its output.
    fn run(&self, example: &str) -> String {
        let ran = Ran::of(self.shell(&format!("set -eo pipefail\n{example}")), b"");
        assert_eq!(ran.status, Some(0), "{example}\n{}{}", ran.out, ran.err);
        ran.out
    }

    /// Starts a writer service for the examples that need one.
    fn writer(&self) -> Child {
        let serve = "exec exacat writer serve --volume ~/writer --se DEMO::DAQ::WRITER --listen 127.0.0.1:0 \
                     --http 127.0.0.1:0 --free-min 1MiB";
        let mut command = self.shell(serve);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        lines_of(&mut child).recv_timeout(WAIT).unwrap();
        child
    }

    /// Starts a replay service for the examples that need one.
    fn replay(&mut self) -> Child {
        let serve = "exec exacat --json replay serve --trace like.trace.zst --listen 127.0.0.1:0";
        let mut command = self.shell(serve);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let line = lines_of(&mut child).recv_timeout(WAIT).unwrap();
        let view: serde_json::Value = serde_json::from_str(&line).unwrap();
        self.replay = Some(view["url"].as_str().unwrap().to_owned());
        child
    }

    /// Runs an example until it is interrupted; it must print something.
    fn run_endless(&self, example: &str) {
        let mut command = self.shell(&format!("exec {example}"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = lines_of(&mut child);
        let until = Instant::now() + WAIT;
        for number in 0.. {
            match lines.recv_timeout(CHANGES_APART) {
                Ok(_) => break,
                Err(RecvTimeoutError::Disconnected) => {
                    let ended = child.wait_with_output().unwrap();
                    panic!("{example} ended: {}", String::from_utf8_lossy(&ended.stderr));
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() > until => {
                    let _ = child.kill();
                    panic!("{example} prints nothing");
                }
                Err(RecvTimeoutError::Timeout) if example.contains("--follow") => {
                    self.service.ok(&format!("mkdir /followed-{number}"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        signal(child.id(), "TERM");
        let ended = child.wait_with_output().unwrap();
        let serves = example.starts_with("exacat serve") || example.starts_with("exacat writer serve");
        let expected = if serves { 0 } else { 128 + 15 };
        assert_eq!(
            ended.status.code(),
            Some(expected),
            "{example}: {}",
            String::from_utf8_lossy(&ended.stderr)
        );
    }
}

/// Returns the dump of a storage element that has all copies: the path of each.
fn dump_of(service: &Service, se: &str) -> String {
    let replicas = |entry: serde_json::Value| entry["replicas"].as_array().cloned().unwrap_or_default();
    let entries = service.json(&format!("se files {se}")).into_iter().flat_map(replicas);
    let paths = entries.filter(|replica| replica["se"] == se);
    paths.map(|replica| format!("{}\n", replica["pfn"].as_str().unwrap())).collect()
}

/// Returns the lines of a child's standard output, as they come.
fn lines_of(child: &mut Child) -> Receiver<String> {
    let (send, receive) = channel();
    let stdout = child.stdout.take().unwrap();
    std::thread::spawn(move || {
        BufReader::new(stdout).lines().map_while(Result::ok).all(|line| send.send(line).is_ok())
    });
    receive
}

/// Says whether an example works on the data directory itself, which takes a stopped server.
fn is_offline(path: &str, example: &str) -> bool {
    matches!(path, "copy" | "restore") || (example.contains("--offline") && !path.starts_with("snapshot"))
}

#[test]
fn help_fits_a_terminal() {
    for (path, text) in helps() {
        for text in [
            text,
            help(&path, "--help"),
            if path == "ls" || path == "du" { String::new() } else { help(&path, "-h") },
        ] {
            for line in text.lines() {
                assert!(line.chars().count() <= WIDTH, "exacat {path}: {line}");
            }
        }
    }
}

#[test]
fn every_example_runs_on_the_sample_catalogue() {
    let helps = helps();
    let mut machine = Machine::with_sample();
    let mut listed: Vec<&str> = Vec::new();
    let mut later = Vec::new();
    assert_eq!(
        helps.keys().map(String::as_str).collect::<Vec<_>>(),
        {
            let mut paths = ORDER.to_vec();
            paths.sort_unstable();
            paths
        },
        "the order has every command"
    );
    let (mut writer, mut replay) = (None, None);
    for path in ORDER {
        if *path == "replay run create" {
            replay = Some(machine.replay());
        }
        if *path == "writer put" {
            writer = Some(machine.writer());
        }
        let examples = examples(&helps[*path]);
        assert!(!examples.is_empty(), "exacat {path} has no example");
        for example in examples {
            let whole = format!("{example}\n");
            if let Some((begin, _)) = ELSEWHERE.iter().find(|(begin, _)| whole.starts_with(begin)) {
                listed.push(*begin);
            } else if is_offline(path, &example) {
                later.push(example);
            } else if example.starts_with("exacat serve")
                || example.starts_with("exacat writer serve")
                || example.contains("--follow")
            {
                machine.run_endless(&example);
            } else {
                machine.run(&example);
            }
        }
    }
    for (begin, _) in ELSEWHERE {
        assert!(listed.contains(&begin), "no example begins with {begin:?}");
    }
    for service in [writer, replay] {
        let mut service = service.unwrap();
        signal(service.id(), "TERM");
        assert_eq!(service.wait().unwrap().code(), Some(0));
    }
    assert_eq!(machine.service.stop(), Some(0));
    assert!(later.len() > 8, "{later:?}");
    for example in later {
        machine.run(&example);
    }
}

#[test]
fn readme_and_hints_of_make_run_work_as_printed() {
    let machine = Machine::with_sample();
    let readme = include_str!("../../../../README.md");
    let (_, part) = readme.split_once("## First five minutes").unwrap();
    let (part, _) = part.split_once("Import your own").unwrap();
    let lines: Vec<&str> = part.lines().filter_map(|line| line.strip_prefix("    exacat ")).collect();
    assert!(lines.len() >= 6, "{lines:?}");
    let hints = include_str!("../../../../scripts/run.sh");
    let hints: Vec<&str> = hints.lines().filter_map(|line| line.strip_prefix("  exacat ")).collect();
    assert!(hints.len() >= 6, "{hints:?}");
    for line in lines.into_iter().chain(hints) {
        // A here-document of the script has the dollar escaped.
        let line = line.replace("\\$", "$");
        let out = machine.run(&format!("exacat {line}"));
        assert!(!out.is_empty() || line.starts_with("trash restore"), "exacat {line} prints nothing");
        if line.starts_with("whereis") {
            assert!(out.contains("root://"), "{out}");
        }
    }
}
