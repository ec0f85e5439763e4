//! A real server process, and the commands of its users: shared by the tests of the binary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "each test uses its own part of this")]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Path of the program under test.
pub(crate) const EXACAT: &str = env!("CARGO_BIN_EXE_exacat");

mod documented;

/// Environment variables that a test must not inherit.
const VARIABLES: [&str; 15] = [
    "EXACAT_SERVER",
    "EXACAT_DATA",
    "EXACAT_TOKEN",
    "EXACAT_TOKEN_FILE",
    "EXACAT_CA",
    "EXACAT_FINGERPRINT",
    "EXACAT_LOG",
    "EXACAT_CONSISTENCY",
    "EXACAT_STORE_CA",
    "EXACAT_STORE_CERTIFICATE",
    "EXACAT_STORE_KEY",
    "EXACAT_STORE_USER",
    "EXACAT_STORE_PASSWORD_FILE",
    "EXACAT_STORE_DATACENTER",
    "XDG_DATA_HOME",
];

/// Makes the program's command without these variables.
pub(crate) fn exacat() -> Command {
    let mut command = Command::new(EXACAT);
    for variable in VARIABLES {
        command.env_remove(variable);
    }
    command
}

/// Result of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Arguments, for messages.
    pub asked: String,
    args: Vec<String>,
    /// Exit status; none if a signal ended it.
    pub status: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Ran {
    /// Runs a command to its end, with this standard input.
    pub(crate) fn of(mut command: Command, input: &[u8]) -> Ran {
        let args: Vec<String> = command.get_args().map(|arg| arg.to_string_lossy().into_owned()).collect();
        let asked = format!("{args:?}");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let writer = std::thread::spawn(move || {
            // A command that fails early does not read to the end.
            let _ = stdin.write_all(&input);
        });
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        Ran {
            asked,
            args,
            status: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Requires success; returns the output.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.status, Some(0), "{} failed: {}{}", self.asked, self.out, self.err);
        self.out
    }

    /// Requires success; returns the printed JSON, one value a line. Every value must be an object
    /// that is documented for the command.
    #[track_caller]
    pub(crate) fn json(self) -> Vec<Value> {
        let (asked, args) = (self.asked.clone(), self.args.clone());
        let parse = |line: &str| {
            let value: Value = serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("{asked}: not JSON ({error}): {line}"));
            documented::check(&args, &value);
            value
        };
        self.ok().lines().map(parse).collect()
    }

    /// Requires failure with this status; returns standard error.
    #[track_caller]
    pub(crate) fn fails(self, status: i32) -> String {
        assert_eq!(self.status, Some(status), "{}: {}{}", self.asked, self.out, self.err);
        let said = |line: &str| line.starts_with("exacat: ") || line.starts_with("{\"error\":");
        assert!(self.err.lines().all(said), "{}: {}", self.asked, self.err);
        assert!(!self.err.is_empty(), "{} failed without a word", self.asked);
        self.err
    }
}

/// Server process on a data directory.
pub(crate) struct Service {
    child: Option<Child>,
    place: PathBuf,
    data: PathBuf,
    /// Addresses that it listens at.
    pub addresses: Value,
    /// Command of the server with its own arguments.
    verb: Vec<String>,
    _directory: Option<TempDir>,
}

impl Service {
    /// Starts a server on a new data directory, at free ports.
    pub(crate) fn start() -> Service {
        Service::start_with(&[])
    }

    /// Starts a server with further options.
    pub(crate) fn start_with(options: &[&str]) -> Service {
        let directory = tempfile::tempdir().unwrap();
        let mut service = Service::start_in(directory.path(), options);
        service._directory = Some(directory);
        service
    }

    /// Starts a server with its data below a directory of the caller's.
    pub(crate) fn start_in(place: &Path, options: &[&str]) -> Service {
        let mut service = Service {
            child: None,
            place: place.to_owned(),
            data: place.join("data"),
            addresses: Value::Null,
            verb: vec!["serve".to_owned()],
            _directory: None,
        };
        service.restart_with(options);
        service
    }

    /// Starts a follower of a source, with its data below a directory of the caller's.
    pub(crate) fn follow_in(place: &Path, source: &str, token_file: &Path, options: &[&str]) -> Service {
        let token_file = token_file.display().to_string();
        let verb = ["follow", source, "--token-file", &token_file];
        let mut service = Service {
            child: None,
            place: place.to_owned(),
            data: place.join("data"),
            addresses: Value::Null,
            verb: verb.map(str::to_owned).to_vec(),
            _directory: None,
        };
        service.restart_with(options);
        service
    }

    /// Starts it again after it was stopped or killed.
    pub(crate) fn restart(&mut self) {
        self.restart_with(&[]);
    }

    /// Starts it again with further options.
    pub(crate) fn restart_with(&mut self, options: &[&str]) {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.place.join("server.log"))
            .unwrap();
        let mut command = exacat();
        command.arg("--json").args(&self.verb).args(options);
        if !options.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command.arg("--data").arg(&self.data);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        // It prints a line when it serves; if it ends before, the pipe closes.
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.child = Some(child);
        self.addresses = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("the server did not start ({error}): {line}{}", self.log()));
    }

    /// Returns its log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.place.join("server.log")).unwrap_or_default()
    }

    /// Data directory.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// Directory for the test's own files.
    pub(crate) fn place(&self) -> &Path {
        &self.place
    }

    /// Makes a file for the test's own use, with this content.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.place.join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// URL for clients over TLS.
    pub(crate) fn url(&self) -> &str {
        self.addresses["native"].as_str().unwrap()
    }

    /// URL for clients on this machine.
    pub(crate) fn local_url(&self) -> &str {
        self.addresses["socket"].as_str().unwrap()
    }

    /// Makes a command of a user on this machine.
    pub(crate) fn command<A: AsRef<OsStr>>(&self, args: &[A]) -> Command {
        let mut command = exacat();
        command.env("EXACAT_DATA", &self.data).args(args);
        command
    }

    /// Runs a command as a user on this machine.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, args: &[A]) -> Ran {
        Ran::of(self.command(args), b"")
    }

    /// Runs a command with this standard input.
    pub(crate) fn run_with<A: AsRef<OsStr>>(&self, args: &[A], input: impl AsRef<[u8]>) -> Ran {
        Ran::of(self.command(args), input.as_ref())
    }

    /// Runs a command written as one line; for words without blanks.
    #[track_caller]
    pub(crate) fn ok(&self, line: &str) -> String {
        self.run(&words(line)).ok()
    }

    /// Runs a command written as one line, with `--json`.
    #[track_caller]
    pub(crate) fn json(&self, line: &str) -> Vec<Value> {
        let mut args = vec!["--json"];
        args.extend(words(line));
        self.run(&args).json()
    }

    /// Runs a command written as one line, with `--json`, that prints one value.
    #[track_caller]
    pub(crate) fn json1(&self, line: &str) -> Value {
        let mut values = self.json(line);
        assert_eq!(values.len(), 1, "{line}: {values:?}");
        values.remove(0)
    }

    /// Runs a command written as one line, that must fail with this status.
    #[track_caller]
    pub(crate) fn fails(&self, line: &str, status: i32) -> String {
        self.run(&words(line)).fails(status)
    }

    /// Runs a command over TLS with this token.
    pub(crate) fn over_tls(&self, token: Option<&str>, line: &str) -> Ran {
        let mut command = self.command(&words(line));
        command.env("EXACAT_SERVER", self.url());
        if let Some(token) = token {
            command.env("EXACAT_TOKEN", token);
        }
        Ran::of(command, b"")
    }

    /// Id of the process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Ends it as an operator does, and returns the exit status.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        let mut child = self.child.take().unwrap();
        signal(child.id(), "TERM");
        child.wait().unwrap().code()
    }

    /// Starts it and kills it after so long, in whatever state it is.
    pub(crate) fn start_and_kill(&mut self, after: std::time::Duration) {
        let mut command = exacat();
        command.arg("--json").args(&self.verb).args(["--listen", "127.0.0.1:0", "--log", "error", "--data"]);
        command.arg(&self.data);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Not a wait for an event: any moment is as good.
        let (_never, elapsed) = std::sync::mpsc::channel::<()>();
        let _ = elapsed.recv_timeout(after);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Ends it as a power cut does.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends a signal to one process.
pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status().unwrap();
    assert!(status.success());
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}
