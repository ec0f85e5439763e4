//! The client program of XRootD: its start, its credentials, and its error messages.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use exacat_model::{Error, ErrorKind, Lfn};
use exacat_wire::xrootd::path::escaped;
use tokio::process::{Child, Command};

use crate::failure::Failure;

/// Settings that give an unresponsive server up after a while, unless the environment has them:
/// there are other replicas.
const PATIENCE: [(&str, &str); 4] = [
    ("XRD_CONNECTIONWINDOW", "15"),
    ("XRD_CONNECTIONRETRY", "1"),
    ("XRD_STREAMERRORWINDOW", "30"),
    ("XRD_REQUESTTIMEOUT", "300"),
];
/// Environment variable of XRootD clients for the directory of trusted certificates.
const CERTIFICATES: &str = "X509_CERT_DIR";
/// Interval of looks at its progress.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Bytes of its output that are kept.
const SAID_BYTES_MAX: usize = 64 << 10;

/// See the module.
pub(crate) struct Program {
    xrdcp: PathBuf,
    /// `root://HOST:PORT`.
    root: String,
    token: String,
    /// Directory with the server's certificate, as clients of XRootD look for it.
    certificates: Option<tempfile::TempDir>,
}

impl Program {
    /// Makes the program with a token, and the certificate of a server that no authority signed.
    pub(crate) async fn new(xrdcp: PathBuf, root: String, token: String, certificate: Option<&Path>) -> Self {
        let certificates = match certificate {
            Some(certificate) if std::env::var_os(CERTIFICATES).is_none() => hashed(certificate).await,
            _ => None,
        };
        Program { xrdcp, root, token, certificates }
    }

    /// Returns the URL of an LFN, with fields.
    pub(crate) fn url(&self, lfn: &Lfn, fields: &[(&str, &str)]) -> String {
        let mut fields: Vec<String> =
            fields.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        let mut path = lfn.as_str();
        if path.contains('?') {
            // For the client the path would end there, so the name goes into the fields.
            fields.push(format!("exacat.lfn={}", escaped(path)));
            fields.push("tried=-".to_owned());
            path = "/";
        }
        let mark = if fields.is_empty() { "" } else { "?" };
        format!("{}/{path}{mark}{}", self.root, fields.join("&"))
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        for (name, value) in PATIENCE {
            if std::env::var_os(name).is_none() {
                command.env(name, value);
            }
        }
        if let Some(certificates) = &self.certificates {
            command.env(CERTIFICATES, certificates.path());
        }
        command.env("BEARER_TOKEN", &self.token);
        command
    }

    /// Copies; reports the number of bytes done as far as it can be seen. An error has the reason.
    pub(crate) async fn copy(
        &self,
        options: &[&str],
        from: OsString,
        to: OsString,
        mut done: impl FnMut(&Child),
    ) -> Result<Result<(), Error>, Failure> {
        let mut command = self.command(&self.xrdcp);
        command.arg("-N").args(options).arg(from).arg(to);
        let child = command.spawn().map_err(|error| {
            Failure::local(format!(
                "{}: {error}: exacat cp needs the client of XRootD (Debian: xrootd-client); --xrdcp says where it is",
                self.xrdcp.display()
            ))
        })?;
        let mut child = child;
        let out = child.stdout.take();
        let err = child.stderr.take();
        let said = tokio::spawn(async move { [said(out).await, said(err).await].concat() });
        let status = loop {
            tokio::select! {
                status = child.wait() => break status,
                () = tokio::time::sleep(LOOK_EVERY) => done(&child),
            }
        };
        let status = status.map_err(|error| Failure::local(format!("xrdcp: {error}")))?;
        let said = said.await.unwrap_or_default();
        Ok(if status.success() { Ok(()) } else { Err(why(&said, status.code())) })
    }

    /// Asks the server to check whether a written file is whole. The result shows in the catalogue.
    pub(crate) async fn nudge(&self, lfn: &Lfn) {
        let program = self.xrdcp.with_file_name("xrdfs");
        let mut command = self.command(&program);
        command.arg(&self.root).arg("stat").arg(lfn.as_str());
        // The server checks by itself too, a little later.
        let _ = command.output().await;
    }
}

/// Reads the program's output to the end, and keeps a part of it.
async fn said(from: Option<impl tokio::io::AsyncRead + Unpin>) -> String {
    use tokio::io::AsyncReadExt;
    let mut kept = Vec::new();
    if let Some(mut from) = from {
        let mut buffer = [0; 4096];
        while let Ok(some) = from.read(&mut buffer).await {
            if some == 0 {
                break;
            }
            kept.extend_from_slice(&buffer[..some]);
            if kept.len() > SAID_BYTES_MAX {
                kept.drain(..kept.len() - SAID_BYTES_MAX);
            }
        }
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// Makes an error from the last line of the output.
fn why(said: &str, code: Option<i32>) -> Error {
    let said = said.replace('\0', "");
    let line = said.split(['\r', '\n']).rfind(|line| !line.trim().is_empty()).unwrap_or("").trim();
    let line = line.strip_prefix("Run: ").unwrap_or(line);
    let number = line.split('[').skip(1).find_map(|rest| rest.split(']').next()?.parse::<u32>().ok());
    let kind = match number {
        Some(3011) => ErrorKind::NotFound,
        Some(3018) => ErrorKind::Exists,
        Some(3010 | 3030 | 3028) => ErrorKind::Denied,
        Some(3021) => ErrorKind::Quota,
        Some(3013 | 3000 | 3001) => ErrorKind::Invalid,
        Some(3032) => ErrorKind::Conflict,
        _ => ErrorKind::Unavailable,
    };
    let line = match line.split_once("] ") {
        _ if line.is_empty() => format!("xrdcp ended with status {}", code.unwrap_or(-1)),
        // The client's message for an unreachable host.
        Some(("[FATAL", cause)) => format!("the host cannot be reached: {cause} (xrdcp)"),
        Some(("[ERROR", cause)) => match cause.split_once(&format!("[{}] ", number.unwrap_or_default())) {
            Some((_, cause)) => cause.to_owned(),
            None => cause.to_owned(),
        },
        _ => line.to_owned(),
    };
    Error::new(kind, line)
}

/// Makes a directory with a certificate under the hash of its subject; none if no program here can
/// make that hash.
async fn hashed(certificate: &Path) -> Option<tempfile::TempDir> {
    let asked = Command::new("openssl")
        .args(["x509", "-noout", "-hash", "-in"])
        .arg(certificate)
        .stdin(Stdio::null())
        .output()
        .await
        .ok()?;
    let hash = String::from_utf8(asked.stdout).ok()?;
    let hash = hash.trim();
    if !asked.status.success() || hash.is_empty() || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let place = tempfile::tempdir().ok()?;
    std::fs::copy(certificate, place.path().join(format!("{hash}.0"))).ok()?;
    Some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_says_becomes_an_error() {
        let error = why(
            "[0B/0B][100%]\rRun: [ERROR] Server responded with an error: [3018] /d/x exists\n\n",
            Some(54),
        );
        assert_eq!(error.kind, ErrorKind::Exists);
        assert_eq!(error.message, "/d/x exists");
        assert_eq!(why("", Some(51)).kind, ErrorKind::Unavailable);
        let unreachable = why("Run: [FATAL] Connection error: connect failed\0\n", None);
        assert_eq!(
            unreachable.message,
            "the host cannot be reached: Connection error: connect failed (xrdcp)"
        );
        assert_eq!(why("Run: [ERROR] Operation expired", None).message, "Operation expired");
    }

    #[tokio::test]
    async fn urls_say_the_name_whatever_it_is() {
        let program = Program::new("xrdcp".into(), "root://h:1".into(), String::new(), None).await;
        let url = |path: &str, fields: &[(&str, &str)]| program.url(&Lfn::parse(path).unwrap(), fields);
        assert_eq!(url("/a/b c", &[]), "root://h:1//a/b c");
        assert_eq!(url("/a", &[("exacat.se", "A::B,C")]), "root://h:1//a?exacat.se=A::B%2CC");
        assert_eq!(url("/a?b", &[]), "root://h:1//?exacat.lfn=/a%3Fb&tried=-");
    }
}
