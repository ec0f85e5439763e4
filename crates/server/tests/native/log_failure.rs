//! A server whose log fails: it reports that, reads durable state, and ends with an error if
//! configured.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use exacat_disk::{Disk, DiskFile, RealDisk};
use exacat_model::{Answer, ErrorKind, Operation};
use exacat_server::{RunningServer, Server, ServerSettings};
use exacat_store::SystemClock;
use exacat_store_embedded::{EmbeddedSettings, EmbeddedStore};

use crate::client::soon;
use crate::metrics::http_at;
use crate::world::{account, lfn};

/// A disk that cannot sync the log from some moment on.
struct Failing {
    now: Arc<AtomicBool>,
}

struct File {
    file: Box<dyn DiskFile>,
    /// None if it is no segment of the log.
    fails: Option<Arc<AtomicBool>>,
}

impl Failing {
    fn file(&self, path: &Path, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        let is_log = path.parent().is_some_and(|directory| directory.ends_with("log"));
        Box::new(File { file, fails: is_log.then(|| Arc::clone(&self.now)) })
    }
}

impl Disk for Failing {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_directory(path)
    }
    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(directory)
    }
    fn open_to_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        RealDisk.open_to_read(path)
    }
    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.file(path, RealDisk.open_to_write(path)?))
    }
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.file(path, RealDisk.create(path)?))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.hard_link(from, to)
    }
    fn names_of(&self, path: &Path) -> io::Result<u64> {
        RealDisk.names_of(path)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_directory(path)
    }
    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        RealDisk.sync_directory(directory)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        RealDisk.lock(path)
    }
    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        RealDisk.free_bytes(directory)
    }
}

impl DiskFile for File {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(into, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        match &self.fails {
            Some(now) if now.load(Ordering::SeqCst) => Err(io::Error::other("the disk is broken")),
            _ => self.file.sync(),
        }
    }
    fn preallocate(&self, length: u64) -> io::Result<()> {
        self.file.preallocate(length)
    }
    fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_length(length)
    }
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }
}

async fn start(place: &Path, exit_on_log_failure: bool, now: &Arc<AtomicBool>) -> RunningServer {
    let mut settings = ServerSettings::new(place.join("data"));
    settings.http.as_mut().unwrap().plain = vec!["127.0.0.0/8".parse().unwrap()];
    settings.exit_on_log_failure = exit_on_log_failure;
    let disk: Arc<dyn Disk> = Arc::new(Failing { now: Arc::clone(now) });
    let embedded = EmbeddedSettings { segment_bytes: 1 << 20, ..EmbeddedSettings::at(place.join("store")) };
    let opened =
        tokio::task::spawn_blocking(move || EmbeddedStore::open_on(disk, embedded, Arc::new(SystemClock)));
    Server::start_over(settings, opened.await.unwrap().unwrap()).await.unwrap()
}

async fn execute(server: &RunningServer, operation: Operation) -> exacat_model::Result<Answer> {
    let admin = server.catalogue().caller_named(&account("admin")).await?;
    let id = server.catalogue().new_operation_id()?;
    server.catalogue().execute(&admin, id, operation).await
}

fn mkdir(name: &str) -> Operation {
    Operation::Mkdir { lfns: vec![lfn(name)], parents: false, mode: None }
}

/// Goal: a supervisor and an operator notice a failed log, and readers do not. Method: a disk that
/// fails to sync the log; one server that continues, and one that ends.
#[tokio::test(flavor = "multi_thread")]
async fn server_with_failed_log_reads_and_says_so_or_ends_with_an_error() {
    for exits in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let now = Arc::new(AtomicBool::new(false));
        let server = start(place.path(), exits, &now).await;
        let metrics = server.addresses.http.unwrap();
        execute(&server, mkdir("/kept")).await.unwrap();
        assert_eq!(http_at(metrics, "GET", "/healthz").await, (200, "healthy\n".to_owned()));
        now.store(true, Ordering::SeqCst);
        let unknown = execute(&server, mkdir("/lost")).await.unwrap_err();
        assert_eq!(unknown.kind, ErrorKind::Unknown, "{unknown}");
        if exits {
            let ended = soon("the end", server.wait()).await.unwrap_err();
            assert!(ended.message.contains("the log failed"), "{ended}");
            continue;
        }
        let (status, body) = http_at(metrics, "GET", "/healthz").await;
        assert!(status == 503 && body.contains("the log failed"), "{status} {body}");
        let stat = Operation::Stat { lfns: vec![lfn("/kept"), lfn("/lost")], follow: true };
        let answer = soon("reads to be answered", async {
            loop {
                match execute(&server, stat.clone()).await {
                    Ok(answer) => return answer,
                    Err(error) => assert_eq!(error.kind, ErrorKind::Unavailable, "{error}"),
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
        let Answer::Stats(found) = answer else { panic!("{answer:?}") };
        assert!(found[0].is_ok() && found[1].is_err(), "{found:?}");
        let refused = execute(&server, mkdir("/later")).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Unavailable, "{refused}");
        let warnings = server.catalogue().store().status().await.unwrap().warnings;
        assert!(warnings.iter().any(|warning| warning.contains("the disk is broken")), "{warnings:?}");
        server.shutdown();
        assert!(soon("the end", server.wait()).await.is_err(), "the status of the process tells it too");
    }
}
