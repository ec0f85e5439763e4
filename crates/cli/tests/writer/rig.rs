//! Writer services as processes beside a catalogue.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::service::{Service, exacat, signal};

/// Storage element of the tests.
pub(crate) const SE: &str = "TEST::DAQ::WRITER";
/// Longest wait for a change of state.
const PATIENCE: Duration = Duration::from_secs(60);

/// A writer service on a volume.
pub(crate) struct Writer {
    pub child: Option<Child>,
    data: PathBuf,
    pub volume: PathBuf,
    /// Volumes of another service that it has adopted.
    pub adopted: Vec<PathBuf>,
    pub address: String,
    pub http: String,
    /// Further options.
    options: Vec<String>,
}

impl Writer {
    pub(crate) fn start(service: &Service, place: &Path, name: &str) -> Writer {
        Writer::start_with(service.data(), place.join(name), Vec::new())
    }

    pub(crate) fn start_with(data: &Path, volume: PathBuf, options: Vec<String>) -> Writer {
        let mut writer = Writer {
            child: None,
            data: data.to_owned(),
            volume,
            adopted: Vec::new(),
            address: "127.0.0.1:0".to_owned(),
            http: "127.0.0.1:0".to_owned(),
            options,
        };
        writer.restart();
        writer
    }

    /// Starts it again, at the same address.
    pub(crate) fn restart(&mut self) {
        let mut command = exacat();
        command.args(["--json", "writer", "serve", "--se", SE, "--memory", "96MiB", "--free-min", "1MiB"]);
        command.args(["--http", "127.0.0.1:0", "--listen", &self.address]).args(&self.options);
        // An adopted volume may come first: the service stays the same.
        for volume in self.adopted.iter().chain([&self.volume]) {
            command.arg("--volume").arg(volume);
        }
        command.arg("--data").arg(&self.data).stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.address = told["address"].as_str().unwrap().to_owned();
        self.http = told["http"].as_str().unwrap().to_owned();
        self.child = Some(child);
    }

    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Ends it with SIGTERM; returns its exit status.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        let mut child = self.child.take().unwrap();
        signal(child.id(), "TERM");
        child.wait().unwrap().code()
    }

    /// Returns the bytes of all parts of a file, if it has one part.
    pub(crate) fn bytes_of(&self, guid: &str) -> Vec<u8> {
        let id = guid.replace('-', "").to_lowercase();
        std::fs::read(self.volume.join(format!("parts/{id}-00000001"))).unwrap()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(crate) fn ready() -> Service {
    let service = Service::start();
    service.ok(&format!("se add {SE} --prefix http://127.0.0.1:1/content"));
    service.ok("mkdir /daq");
    service
}

/// Polls until a condition holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(std::time::Instant::now() < until, "not in time: {what}");
        std::thread::park_timeout(Duration::from_millis(50));
    }
}
