//! Carriers: put the content of a file at another place, and prove that it arrived.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use bytes::Bytes;
use exacat_disk::{Disk, DiskFile, RealDisk};
use exacat_model::{Error, ErrorKind, Result};
use exacat_wire::writer::FileId;
use exacat_writer::sums::{ADLER32_OF_NOTHING, adler32, adler32_of_both};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use crate::limits::{CARRIER_SAID_BYTES_MAX, CARRIER_STALL_MAX, PIECE_BYTES_MAX};

/// Content of a file on its way to another place.
pub struct Load {
    /// The file.
    pub file: FileId,
    /// Bytes.
    pub size: u64,
    /// Adler-32 of all bytes.
    pub adler32: u32,
    /// The bytes in order. An error, or too few bytes, is a failure of the source.
    pub pieces: mpsc::Receiver<io::Result<Bytes>>,
}

/// Way to a kind of storage.
pub trait Carrier: Send + Sync + 'static {
    /// Says whether the target has the file already, by its size and checksum. A repeated copy ends here.
    fn holds<'a>(&'a self, target: &'a str, size: u64, adler32: u32) -> BoxFuture<'a, Result<bool>>;

    /// Writes the file, and reads its checksum back. It succeeds only if everything is there, durably.
    fn put<'a>(&'a self, load: Load, target: &'a str) -> BoxFuture<'a, Result<()>>;
}

/// Returns the way to the place that PFNs with this beginning name: `file:///DIRECTORY`, or
/// `root://HOST:PORT//DIRECTORY` by the client of XRootD.
///
/// # Errors
/// *Invalid* if it is neither.
pub fn carrier_of(prefix: &str) -> Result<Arc<dyn Carrier>> {
    let sample = format!("{}/file", prefix.trim_end_matches('/'));
    if path_of(&sample).is_ok() && prefix.starts_with("file:") {
        return Ok(Arc::new(DirectoryCarrier::new(Arc::new(RealDisk))));
    }
    let other = |_| {
        let places = "file:///DIRECTORY, or root://HOST:PORT//DIRECTORY (by xrdcp)";
        Error::invalid(format!("{prefix}: copies go to {places}"))
    };
    root_of(prefix).map_err(other)?;
    Ok(Arc::new(ProgramCarrier { xrdcp: PathBuf::from("xrdcp"), token: None }))
}

/// Sum and length of bytes that pass.
struct Tally {
    bytes: u64,
    adler32: u32,
}

impl Tally {
    fn new() -> Self {
        Tally { bytes: 0, adler32: ADLER32_OF_NOTHING }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.adler32 = adler32_of_both(self.adler32, adler32(bytes), bytes.len() as u64);
        self.bytes += bytes.len() as u64;
    }

    fn is(&self, size: u64, adler32: u32) -> bool {
        self.bytes == size && self.adler32 == adler32
    }
}

fn differs(target: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{target}: the copy fails its checksum"))
}

/// Directory on a file system of this machine.
pub struct DirectoryCarrier {
    disk: Arc<dyn Disk>,
}

impl DirectoryCarrier {
    /// Makes a carrier over a disk.
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        DirectoryCarrier { disk }
    }
}

/// Returns the path of a target: `file://PATH`, `file:PATH` or a path, absolute.
fn path_of(target: &str) -> Result<PathBuf> {
    let rest = target.strip_prefix("file://").or_else(|| target.strip_prefix("file:")).unwrap_or(target);
    let path = Path::new(rest);
    let is_plain = path.components().all(|part| !matches!(part, std::path::Component::ParentDir));
    let bad = || Error::invalid(format!("{target}: a directory's target is file:///PATH"));
    if path.is_absolute() && is_plain && path.file_name().is_some() {
        Ok(path.to_owned())
    } else {
        Err(bad())
    }
}

fn failed(path: &Path, error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::Quota,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, format!("{}: {error}", path.display()))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let stopped = |_| Error::new(ErrorKind::Internal, "internal error: a copy stopped");
    tokio::task::spawn_blocking(work).await.map_err(stopped)
}

/// Reads a file, and returns its length and sum.
fn tally_of(disk: &dyn Disk, path: &Path) -> io::Result<Tally> {
    let file = disk.open_to_read(path)?;
    let mut piece = vec![0; usize::try_from(PIECE_BYTES_MAX).unwrap_or(1 << 20)];
    let mut tally = Tally::new();
    loop {
        match file.read_at(&mut piece, tally.bytes)? {
            0 => return Ok(tally),
            read => tally.add(&piece[..read]),
        }
    }
}

impl DirectoryCarrier {
    async fn written(&self, load: &mut Load, unfinished: &Path) -> Result<()> {
        let (disk, path) = (Arc::clone(&self.disk), unfinished.to_owned());
        let created = blocking(move || {
            if let Some(directory) = path.parent() {
                disk.create_directory(directory).map_err(|error| failed(directory, &error))?;
            }
            disk.create(&path).map(Arc::from).map_err(|error| failed(&path, &error))
        });
        let file: Arc<dyn DiskFile> = created.await??;
        let mut tally = Tally::new();
        while let Some(piece) = load.pieces.recv().await {
            let piece = piece.map_err(|error| Error::new(ErrorKind::Unavailable, error.to_string()))?;
            tally.add(&piece);
            let (file, at) = (Arc::clone(&file), tally.bytes - piece.len() as u64);
            let written = blocking(move || file.write_at(&piece, at)).await?;
            written.map_err(|error| failed(unfinished, &error))?;
        }
        if !tally.is(load.size, load.adler32) {
            return Err(Error::new(ErrorKind::Corrupt, "the source sent other bytes than it announced"));
        }
        blocking(move || file.sync()).await?.map_err(|error| failed(unfinished, &error))
    }
}

impl Carrier for DirectoryCarrier {
    fn holds<'a>(&'a self, target: &'a str, size: u64, adler32: u32) -> BoxFuture<'a, Result<bool>> {
        async move {
            let (path, disk) = (path_of(target)?, Arc::clone(&self.disk));
            // The name is made durable again: the copy before may have ended between rename and sync.
            blocking(move || match tally_of(&*disk, &path) {
                Ok(tally) if tally.is(size, adler32) => {
                    let directory = path.parent().unwrap_or(&path);
                    disk.sync_directory(directory).map(|()| true).map_err(|error| failed(directory, &error))
                }
                Ok(_) => Ok(false),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                Err(error) => Err(failed(&path, &error)),
            })
            .await?
        }
        .boxed()
    }

    fn put<'a>(&'a self, mut load: Load, target: &'a str) -> BoxFuture<'a, Result<()>> {
        async move {
            let path = path_of(target)?;
            let mut unfinished = path.clone().into_os_string();
            unfinished.push(".unfinished");
            let unfinished = PathBuf::from(unfinished);
            let written = self.written(&mut load, &unfinished).await;
            let disk = Arc::clone(&self.disk);
            let (size, adler32, shown) = (load.size, load.adler32, target.to_owned());
            blocking(move || {
                if let Err(error) = written {
                    // Its space is needed: a full target stays full otherwise.
                    let _ = disk.remove(&unfinished);
                    return Err(error);
                }
                // Read back before it has its name: a wrong copy never looks like a right one.
                let tally = tally_of(&*disk, &unfinished).map_err(|error| failed(&unfinished, &error))?;
                if !tally.is(size, adler32) {
                    let _ = disk.remove(&unfinished);
                    return Err(differs(&shown));
                }
                let directory = path.parent().unwrap_or(&path);
                disk.rename(&unfinished, &path).map_err(|error| failed(&path, &error))?;
                disk.sync_directory(directory).map_err(|error| failed(directory, &error))?;
                match directory.parent() {
                    // The directory itself may be new.
                    Some(above) => disk.sync_directory(above).map_err(|error| failed(above, &error)),
                    None => Ok(()),
                }
            })
            .await?
        }
        .boxed()
    }
}

/// The client programs of XRootD: `xrdcp`, and `xrdfs` beside it.
#[derive(Clone, Debug)]
pub struct ProgramCarrier {
    /// Path of `xrdcp`.
    pub xrdcp: PathBuf,
    /// Token for the target.
    pub token: Option<String>,
}

/// Settings that give an unresponsive server up after a while, unless the environment has them.
const PATIENCE: [(&str, &str); 4] = [
    ("XRD_CONNECTIONWINDOW", "15"),
    ("XRD_CONNECTIONRETRY", "1"),
    ("XRD_STREAMERRORWINDOW", "30"),
    ("XRD_REQUESTTIMEOUT", "300"),
];

/// Splits `root://HOST:PORT//PATH` into `root://HOST:PORT` and `/PATH`.
fn root_of(target: &str) -> Result<(String, String)> {
    let bad = || Error::invalid(format!("{target}: the target is root://HOST:PORT//PATH"));
    let (scheme, rest) = target.split_once("://").ok_or_else(bad)?;
    let (host, path) = rest.split_once('/').ok_or_else(bad)?;
    let is_right =
        matches!(scheme, "root" | "roots" | "xroot" | "xroots") && !host.is_empty() && !path.is_empty();
    let path = format!("/{}", path.trim_start_matches('/'));
    if is_right && !target.contains(['\0', '\n', '?']) {
        Ok((format!("{scheme}://{host}"), path))
    } else {
        Err(bad())
    }
}

/// Reads the output of a program to its end, and keeps the last bytes.
async fn said(from: Option<impl tokio::io::AsyncRead + Unpin>) -> String {
    let mut kept = Vec::new();
    if let Some(mut from) = from {
        let mut buffer = [0; 4096];
        while let Ok(some @ 1..) = from.read(&mut buffer).await {
            kept.extend_from_slice(&buffer[..some]);
            if kept.len() > CARRIER_SAID_BYTES_MAX {
                kept.drain(..kept.len() - CARRIER_SAID_BYTES_MAX);
            }
        }
    }
    String::from_utf8_lossy(&kept).into_owned()
}

impl ProgramCarrier {
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        for (name, value) in PATIENCE {
            if std::env::var_os(name).is_none() {
                command.env(name, value);
            }
        }
        if let Some(token) = &self.token {
            command.env("BEARER_TOKEN", token);
        }
        command
    }

    fn started(&self, command: &mut Command) -> Result<Child> {
        command.spawn().map_err(|error| {
            let what =
                format!("{}: {error}: install the client of XRootD, or name xrdcp", self.xrdcp.display());
            Error::new(ErrorKind::Unavailable, what)
        })
    }

    /// Returns the checksum that the server has of a file; none if it has no checksums.
    async fn checksum(&self, root: &str, path: &str) -> Result<Option<u32>> {
        let mut command = self.command(&self.xrdcp.with_file_name("xrdfs"));
        let output = command.arg(root).args(["query", "checksum", path]).output();
        let output = tokio::time::timeout(CARRIER_STALL_MAX, output).await;
        let Ok(Ok(output)) = output else { return Ok(None) };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let sum = text.trim().strip_prefix("adler32").map(str::trim);
        Ok(sum.filter(|_| output.status.success()).and_then(|sum| u32::from_str_radix(sum, 16).ok()))
    }

    /// Reads a file back, and returns its length and sum.
    async fn read_back(&self, target: &str) -> Result<Tally> {
        let mut command = self.command(&self.xrdcp);
        let mut child = self.started(command.args(["-s", "-N", target, "-"]))?;
        let (out, errors) = (child.stdout.take(), tokio::spawn(said(child.stderr.take())));
        let mut tally = Tally::new();
        if let Some(mut out) = out {
            let mut piece = vec![0; usize::try_from(PIECE_BYTES_MAX).unwrap_or(1 << 20)];
            loop {
                let read = tokio::time::timeout(CARRIER_STALL_MAX, out.read(&mut piece)).await;
                match read
                    .map_err(|_| Error::new(ErrorKind::Unavailable, format!("{target}: nothing comes")))?
                {
                    Ok(0) | Err(_) => break,
                    Ok(read) => tally.add(&piece[..read]),
                }
            }
        }
        ended(child, errors, target).await.map(|()| tally)
    }

    async fn is_right(&self, target: &str, size: u64, adler32: u32) -> Result<bool> {
        let (root, path) = root_of(target)?;
        match self.checksum(&root, &path).await? {
            Some(sum) => Ok(sum == adler32),
            None => Ok(self.read_back(target).await?.is(size, adler32)),
        }
    }
}

/// Waits for the end of a program, and makes an error of the last line that it printed.
async fn ended(mut child: Child, errors: tokio::task::JoinHandle<String>, target: &str) -> Result<()> {
    let status = tokio::time::timeout(CARRIER_STALL_MAX, child.wait()).await;
    let late = || Error::new(ErrorKind::Unavailable, format!("{target}: xrdcp does not end"));
    let status = status.map_err(|_| late())?;
    let text = errors.await.unwrap_or_default().replace('\0', "");
    let line =
        text.split(['\r', '\n']).rfind(|line| !line.trim().is_empty()).unwrap_or("no reason given").trim();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) if line.contains("[3021]") || line.contains("No space left") => {
            Err(Error::new(ErrorKind::Quota, format!("{target}: {line}")))
        }
        _ => Err(Error::new(ErrorKind::Unavailable, format!("{target}: {line}"))),
    }
}

impl Carrier for ProgramCarrier {
    fn holds<'a>(&'a self, target: &'a str, size: u64, adler32: u32) -> BoxFuture<'a, Result<bool>> {
        async move {
            let (root, path) = root_of(target)?;
            let sum = self.checksum(&root, &path).await?;
            // A file without a checksum is copied again: reading it back costs as much.
            Ok(size > 0 && sum == Some(adler32))
        }
        .boxed()
    }

    fn put<'a>(&'a self, mut load: Load, target: &'a str) -> BoxFuture<'a, Result<()>> {
        async move {
            root_of(target)?;
            let mut command = self.command(&self.xrdcp);
            command.stdin(Stdio::piped()).args(["-s", "-N", "-f", "-", target]);
            let mut child = self.started(&mut command)?;
            let errors = tokio::spawn(said(child.stderr.take()));
            let mut tally = Tally::new();
            let input = child.stdin.take();
            if let Some(mut input) = input {
                while let Some(piece) = load.pieces.recv().await {
                    // Without all bytes the program is killed with `child`, and the target has a torso.
                    let piece =
                        piece.map_err(|error| Error::new(ErrorKind::Unavailable, error.to_string()))?;
                    tally.add(&piece);
                    match tokio::time::timeout(CARRIER_STALL_MAX, input.write_all(&piece)).await {
                        Ok(Ok(())) => {}
                        // The program has ended: its message says why.
                        Ok(Err(_)) => break,
                        Err(_) => {
                            let what = format!("{target}: xrdcp takes nothing more");
                            return Err(Error::new(ErrorKind::Unavailable, what));
                        }
                    }
                }
                let is_whole = tally.is(load.size, load.adler32);
                drop(input);
                ended(child, errors, target).await?;
                if !is_whole {
                    return Err(Error::new(
                        ErrorKind::Corrupt,
                        "the source sent other bytes than it announced",
                    ));
                }
            }
            if self.is_right(target, load.size, load.adler32).await? { Ok(()) } else { Err(differs(target)) }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_and_tricks_are_refused() {
        assert_eq!(path_of("file:///a/b").unwrap(), Path::new("/a/b"));
        assert_eq!(path_of("file:/a/b").unwrap(), Path::new("/a/b"));
        assert_eq!(path_of("/a/b").unwrap(), Path::new("/a/b"));
        for bad in ["a", "file://host/a/../b", "/a/../b", "/", "", "file://"] {
            assert!(path_of(bad).is_err() || bad == "file://host/a", "{bad}");
        }
        for good in ["file:///a", "file:/a/", "root://h:1//a", "roots://h//a/"] {
            assert!(carrier_of(good).is_ok(), "{good}");
        }
        for bad in ["", "/a", "file://host", "file:///a/../b", "http://h/a", "root://h", "root://h//a?b"] {
            assert_eq!(carrier_of(bad).err().unwrap().kind, ErrorKind::Invalid, "{bad}");
        }
        let root = root_of("root://h:1//a/b").unwrap();
        assert_eq!((root.0.as_str(), root.1.as_str()), ("root://h:1", "/a/b"));
        for bad in ["root://h", "http://h/a", "root:///a", "/a", "root://h//a?b", "root://h/"] {
            assert!(root_of(bad).is_err(), "{bad}");
        }
    }
}
