//! Copies to another storage element: kills between the steps, full targets, wrong checksums.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use exacat_disk::{Disk, DiskFile, RealDisk};
use exacat_model::ErrorKind;
use exacat_wire::writer::FileId;
use exacat_writer_service::limits::STAGE_ORDERS_MAX;
use exacat_writer_service::{
    Carrier, DirectoryCarrier, Load, Readable, ServerSettings, StageOut, merge, target_of,
};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::rig::{
    Fake, OPERATOR, OWNER, Producer, Rig, bytes, eventually, raw, request, services, written_on_two,
};

const FILE: FileId = FileId([5; 16]);
const SE: &str = "VO::SITE::TAPE";

/// Disk of a target whose faults a test switches on.
#[derive(Default)]
struct Target {
    disk: RealDisk,
    is_full: AtomicBool,
    /// True to change a byte of what is written.
    lies: AtomicBool,
}

struct TargetFile {
    file: Box<dyn DiskFile>,
    of: Arc<Target>,
}

/// Target, shared by the disk and its files.
struct Shared(Arc<Target>);

/// Returns a disk that has no direct I/O.
pub(crate) fn disk_without_direct_io() -> Arc<dyn Disk> {
    Arc::new(Shared(Arc::default()))
}

impl Disk for Shared {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.0.disk.create_directory(path)
    }
    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.0.disk.list(directory)
    }
    fn open_to_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.0.disk.open_to_read(path)
    }
    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.0.disk.open_to_write(path)
    }
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = self.0.disk.create(path)?;
        Ok(Box::new(TargetFile { file, of: Arc::clone(&self.0) }))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.disk.rename(from, to)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.disk.hard_link(from, to)
    }
    fn names_of(&self, path: &Path) -> io::Result<u64> {
        self.0.disk.names_of(path)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.disk.remove(path)
    }
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.0.disk.remove_directory(path)
    }
    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.0.disk.sync_directory(directory)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.0.disk.lock(path)
    }
    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        self.0.disk.free_bytes(directory)
    }
}

impl DiskFile for TargetFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(into, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.of.is_full.load(Ordering::Relaxed) && offset > 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if self.of.lies.load(Ordering::Relaxed) {
            let mut changed = bytes.to_vec();
            changed[0] ^= 1;
            return self.file.write_at(&changed, offset);
        }
        self.file.write_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync()
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

/// Carrier that counts its copies, and can hang after one: a service that is stopped then has done that step
/// and no later one.
struct Counting {
    carrier: DirectoryCarrier,
    puts: AtomicU64,
    hangs: AtomicBool,
}

impl Carrier for Counting {
    fn holds<'a>(
        &'a self,
        target: &'a str,
        size: u64,
        adler32: u32,
    ) -> BoxFuture<'a, exacat_model::Result<bool>> {
        self.carrier.holds(target, size, adler32)
    }
    fn put<'a>(&'a self, load: Load, target: &'a str) -> BoxFuture<'a, exacat_model::Result<()>> {
        async move {
            self.carrier.put(load, target).await?;
            self.puts.fetch_add(1, Ordering::Relaxed);
            if self.hangs.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
        .boxed()
    }
}

struct Place {
    directory: tempfile::TempDir,
    target: Arc<Target>,
    carrier: Arc<Counting>,
}

impl Place {
    fn new() -> Place {
        let target = Arc::new(Target::default());
        let carrier = DirectoryCarrier::new(Arc::new(Shared(Arc::clone(&target))));
        let carrier = Arc::new(Counting { carrier, puts: AtomicU64::new(0), hangs: AtomicBool::new(false) });
        Place { directory: tempfile::tempdir().unwrap(), target, carrier }
    }

    fn prefix(&self) -> String {
        format!("file://{}", self.directory.path().display())
    }

    /// Lets the catalogue know the place.
    fn register(&self, rig: &Rig) {
        rig.catalogue.prefixes.lock().insert(SE.to_owned(), self.prefix());
    }

    fn set(&self, settings: &mut ServerSettings) {
        settings.stage_out = Some(StageOut {
            se: SE.to_owned(),
            prefix: self.prefix(),
            carrier: Arc::<Counting>::clone(&self.carrier),
            files_at_once: 2,
            bytes_per_second: None,
        });
    }

    fn path(&self, file: FileId) -> String {
        target_of(&self.prefix(), file).strip_prefix("file://").unwrap().to_owned()
    }

    /// Returns the names below the target.
    fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for directory in std::fs::read_dir(self.directory.path()).unwrap() {
            for file in std::fs::read_dir(directory.unwrap().path()).unwrap() {
                names.push(file.unwrap().file_name().into_string().unwrap());
            }
        }
        names.sort();
        names
    }
}

async fn staged(rig: &Rig, count: u64) {
    let remote = rig.remote("");
    eventually("the files are staged", async || remote.status().await.unwrap().files.staged == count).await;
}

async fn failures(rig: &Rig) -> u64 {
    rig.remote("").status().await.unwrap().stage_out.unwrap().failures
}

/// Property: every certified file arrives with its bytes, its replica is in the catalogue, then it is staged.
#[tokio::test]
async fn certified_files_are_copied_and_registered() {
    let place = Place::new();
    let rig = Rig::with(Arc::default(), |settings| place.set(settings)).await;
    let contents: Vec<Vec<u8>> = (1..=5_u8).map(|at| bytes(at, 70_000)).collect();
    for (at, content) in (1..=5).zip(&contents) {
        rig.certified(FileId([at; 16]), &format!("/run/{at}"), std::slice::from_ref(content)).await;
    }
    staged(&rig, 5).await;
    for (at, content) in (1..=5).zip(&contents) {
        let file = FileId([at; 16]);
        assert!(std::fs::read(place.path(file)).unwrap() == *content);
        let replicas = rig.catalogue.replicas.lock();
        assert_eq!(replicas[&file].pfn, target_of(&place.prefix(), file));
        assert_eq!((replicas[&file].size, replicas[&file].se.as_str()), (70_000, SE));
    }
    assert!(!place.names().iter().any(|name| name.ends_with(".unfinished")));
    let status = rig.remote("").status().await.unwrap().stage_out.unwrap();
    assert_eq!((status.files, status.bytes, status.failures, status.waiting), (5, 350_000, 0, 0));
}

/// Property: a file with parts on two services is copied whole by the one that certified it, once. The others
/// refuse the order, and name the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_on_two_services_is_copied_whole() {
    let place = Place::new();
    // All services copy to one target.
    let rigs: [Rig; 3] = services(|_, settings| place.set(settings)).await;
    let chunks: Vec<Vec<u8>> = (0..40).map(|at| bytes(at, 1 << 16)).collect();
    written_on_two((&rigs[0], &rigs[1]), FILE, "/run/5", (&chunks, 17)).await;
    staged(&rigs[1], 1).await;
    let expected = chunks.concat();
    assert!(std::fs::read(place.path(FILE)).unwrap() == expected);
    assert_eq!(place.carrier.puts.load(Ordering::Relaxed), 1);
    assert_eq!(rigs[1].catalogue.replicas.lock()[&FILE].adler32, exacat_writer::sums::adler32(&expected));
    let order = async |at: usize| rigs[at].remote(OPERATOR).stage_out(FILE, SE).await;
    assert_eq!(order(1).await.unwrap().state, "there");
    assert_eq!(place.carrier.puts.load(Ordering::Relaxed), 1);
    let refused = order(0).await.unwrap_err();
    assert!(refused.kind == ErrorKind::Conflict && refused.message.contains("another service"), "{refused}");
    assert_eq!(order(2).await.unwrap_err().kind, ErrorKind::NotFound);
}

/// Property: after a kill behind the copy and before the registration, the copy is found and not made again.
#[tokio::test]
async fn kill_after_the_copy_leads_to_no_second_copy() {
    let place = Place::new();
    place.carrier.hangs.store(true, Ordering::Relaxed);
    let rig = Rig::with(Arc::default(), |settings| place.set(settings)).await;
    rig.certified(FILE, "/run/5", &[bytes(5, 1000)]).await;
    eventually("the copy is there", async || place.carrier.puts.load(Ordering::Relaxed) == 1).await;
    assert!(rig.catalogue.replicas.lock().is_empty());
    place.carrier.hangs.store(false, Ordering::Relaxed);
    let rig = rig.restarted(|settings| place.set(settings)).await;
    staged(&rig, 1).await;
    assert_eq!(place.carrier.puts.load(Ordering::Relaxed), 1, "one copy");
    assert_eq!(rig.catalogue.replicas.lock().len(), 1);
}

/// Property: a torso of a killed copy is replaced by a whole one.
#[tokio::test]
async fn torso_of_an_earlier_copy_is_replaced() {
    let place = Place::new();
    let path = place.path(FILE);
    std::fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
    std::fs::write(&path, b"torso").unwrap();
    std::fs::write(format!("{path}.unfinished"), vec![7; 5000]).unwrap();
    let rig = Rig::with(Arc::default(), |settings| place.set(settings)).await;
    rig.certified(FILE, "/run/5", &[bytes(5, 1000)]).await;
    staged(&rig, 1).await;
    assert!(std::fs::read(&path).unwrap() == bytes(5, 1000));
    assert_eq!(place.names().len(), 1);
}

/// Property: while the catalogue does not take the replica the file is not staged; one copy is made.
#[tokio::test]
async fn file_without_a_registered_replica_is_not_staged() {
    let place = Place::new();
    let catalogue = Arc::new(Fake::default());
    catalogue.takes_no_replicas.store(true, Ordering::Relaxed);
    let rig = Rig::with(Arc::clone(&catalogue), |settings| place.set(settings)).await;
    rig.certified(FILE, "/run/5", &[bytes(5, 1000)]).await;
    eventually("attempts fail", async || failures(&rig).await >= 2).await;
    let status = rig.remote("").status().await.unwrap();
    assert_eq!((status.files.certified, status.files.staged), (1, 0));
    let reason = status.stage_out.unwrap().last_failure;
    assert!(reason.contains("the replica is not registered: no"), "{reason}");
    catalogue.takes_no_replicas.store(false, Ordering::Relaxed);
    staged(&rig, 1).await;
    assert_eq!(place.carrier.puts.load(Ordering::Relaxed), 1);
}

/// Property: a full target gets its space back, and the copy is made once there is space.
#[tokio::test]
async fn full_target_is_tried_again() {
    let place = Place::new();
    place.target.is_full.store(true, Ordering::Relaxed);
    let rig = Rig::with(Arc::default(), |settings| place.set(settings)).await;
    let chunks: Vec<Vec<u8>> = (0..3 * 16).map(|at| bytes(at, 1 << 16)).collect();
    rig.certified(FILE, "/run/5", &chunks).await;
    eventually("an attempt fails", async || failures(&rig).await >= 1).await;
    assert!(place.names().is_empty(), "{:?}", place.names());
    assert!(rig.catalogue.replicas.lock().is_empty());
    place.target.is_full.store(false, Ordering::Relaxed);
    staged(&rig, 1).await;
    assert!(std::fs::read(place.path(FILE)).unwrap() == chunks.concat());
}

/// Property: a copy with another checksum never gets its name, is never registered, and is made again.
#[tokio::test]
async fn wrong_copy_is_never_registered() {
    let place = Place::new();
    place.target.lies.store(true, Ordering::Relaxed);
    let rig = Rig::with(Arc::default(), |settings| place.set(settings)).await;
    rig.certified(FILE, "/run/5", &[bytes(5, 1000)]).await;
    eventually("an attempt fails", async || failures(&rig).await >= 1).await;
    assert!(!Path::new(&place.path(FILE)).exists());
    assert!(rig.catalogue.replicas.lock().is_empty());
    place.target.lies.store(false, Ordering::Relaxed);
    staged(&rig, 1).await;
    assert_eq!(rig.catalogue.replicas.lock().len(), 1);
}

/// Property: a file that is damaged here is never copied; the bytes stay for a person to judge.
#[tokio::test]
async fn damaged_file_is_not_copied() {
    let place = Place::new();
    let rig = Rig::start().await;
    place.register(&rig);
    rig.certified(FILE, "/run/5", &[bytes(5, 1000)]).await;
    let part = rig.directory.path().join(format!("volume/parts/{FILE}-00000001"));
    let mut content = std::fs::read(&part).unwrap();
    content[500] ^= 1;
    std::fs::write(&part, content).unwrap();
    let error = rig.remote(OPERATOR).stage_out(FILE, SE).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Corrupt | ErrorKind::Unavailable), "{error}");
    assert!(place.names().is_empty());
    assert!(rig.catalogue.replicas.lock().is_empty());
}

/// Property: a service without a target of its own copies by order to the place that the catalogue names,
/// once; a repeated order finds the copy, and mends a damaged one.
#[tokio::test]
async fn order_copies_to_the_place_of_the_catalogue() {
    let place = Place::new();
    let rig = Rig::start().await;
    place.register(&rig);
    rig.certified(FILE, "/run/5", &[bytes(5, 70_000)]).await;
    let order = async || rig.remote(OPERATOR).stage_out(FILE, SE).await.unwrap();
    let copy = order().await;
    assert_eq!((copy.state.as_str(), copy.bytes, copy.carried_bytes), ("copied", 70_000, 70_000));
    assert_eq!((copy.se.as_str(), copy.pfn.as_str()), (SE, target_of(&place.prefix(), FILE).as_str()));
    assert_eq!(rig.catalogue.replicas.lock()[&FILE].pfn, copy.pfn);
    staged(&rig, 1).await;
    let copy = order().await;
    assert_eq!((copy.state.as_str(), copy.bytes, copy.carried_bytes), ("there", 70_000, 0));
    std::fs::write(place.path(FILE), b"torso").unwrap();
    assert_eq!(order().await.state, "copied");
    assert!(std::fs::read(place.path(FILE)).unwrap() == bytes(5, 70_000));
    assert_eq!(place.names().len(), 1);
}

/// Property: an order that cannot be carried out is refused with its kind, and changes nothing.
#[tokio::test]
async fn wrong_orders_are_refused() {
    let place = Place::new();
    let rig = Rig::start().await;
    place.register(&rig);
    rig.catalogue.prefixes.lock().insert("VO::SITE::WEB".to_owned(), "http://127.0.0.1:1/data".to_owned());
    rig.certified(FILE, "/run/5", &[bytes(5, 1000)]).await;
    let open = FileId([6; 16]);
    let mut producer = Producer::connect(rig.server.address()).await;
    producer.open(open, 1, 0, "/run/6").await;
    producer.chunks(open, 1, 0, 0, &[bytes(6, 1000)]).await;
    let order = async |token, file, se| rig.remote(token).stage_out(file, se).await.unwrap_err();
    for (error, kind, word) in [
        (order(OWNER, FILE, SE).await, ErrorKind::Denied, "operator"),
        (order(OPERATOR, FileId([7; 16]), SE).await, ErrorKind::NotFound, "nothing of the file"),
        (order(OPERATOR, open, SE).await, ErrorKind::Conflict, "the file is open: being written"),
        (order(OPERATOR, FILE, "VO::SITE::NOWHERE").await, ErrorKind::NotFound, "storage element"),
        (order(OPERATOR, FILE, "VO::SITE::WEB").await, ErrorKind::Invalid, "copies go to file:///"),
        (order(OPERATOR, FILE, "no name").await, ErrorKind::Invalid, ""),
    ] {
        assert!(error.kind == kind && error.message.contains(word), "{word}: {error}");
    }
    let without_se = request("POST", &format!("/api/v1/writer/files/{FILE}/stage-out"), OPERATOR);
    assert!(raw(rig.http(), &without_se).await.contains("name the storage element"));
    rig.remote(OPERATOR).remove(FILE).await.unwrap();
    assert_eq!(order(OPERATOR, FILE, SE).await.kind, ErrorKind::Conflict);
    assert!(place.names().is_empty() && rig.catalogue.replicas.lock().is_empty());
}

/// Property: an order joins the copy that goes on already. After a kill behind the copy the same order finds
/// it. A service with a target of its own takes no orders for another one.
#[tokio::test]
async fn order_joins_a_copy_and_survives_a_kill() {
    let place = Place::new();
    place.carrier.hangs.store(true, Ordering::Relaxed);
    let rig = Rig::with(Arc::default(), |settings| place.set(settings)).await;
    rig.certified(FILE, "/run/5", &[bytes(5, 1000)]).await;
    let orders = futures::future::join_all((0..3).map(|_| async {
        let copy = rig.remote(OPERATOR).stage_out(FILE, SE).await.unwrap();
        (copy.state, copy.bytes, copy.carried_bytes)
    }));
    assert!(orders.await.iter().all(|copy| *copy == ("running".to_owned(), 1000, 1000)));
    assert_eq!(place.carrier.puts.load(Ordering::Relaxed), 1);
    let other = rig.remote(OPERATOR).stage_out(FILE, "VO::SITE::OTHER").await.unwrap_err();
    assert!(other.kind == ErrorKind::Conflict && other.message.contains(SE), "{other}");
    place.carrier.hangs.store(false, Ordering::Relaxed);
    let rig = rig.restarted(|settings| place.set(settings)).await;
    assert_eq!(rig.remote(OPERATOR).stage_out(FILE, SE).await.unwrap().state, "there");
    assert_eq!(place.carrier.puts.load(Ordering::Relaxed), 1, "one copy");
    staged(&rig, 1).await;
}

/// Property: orders beyond the bound are refused as busy, and the others go on.
#[tokio::test]
async fn orders_have_a_bound() {
    let place = Place::new();
    place.carrier.hangs.store(true, Ordering::Relaxed);
    let rig = Rig::with(Arc::default(), |settings| place.set(settings)).await;
    let files: Vec<FileId> = (0..=STAGE_ORDERS_MAX as u8).map(|at| FileId([at + 1; 16])).collect();
    for file in &files {
        rig.certified(*file, &format!("/run/{file}"), &[bytes(5, 100)]).await;
    }
    let orders = files.iter().map(|file| {
        let remote = rig.remote(OPERATOR);
        async move { remote.stage_out(*file, SE).await }
    });
    // HTTP has a bound for one address as well, and connections that end count for a while.
    let ended: Vec<_> =
        futures::StreamExt::collect(futures::StreamExt::buffer_unordered(futures::stream::iter(orders), 24))
            .await;
    let busy = ended.iter().filter_map(|outcome| outcome.as_ref().err());
    assert_eq!(busy.map(|error| error.kind).collect::<Vec<_>>(), [ErrorKind::Busy]);
}

/// Property: a merge writes the whole file once, and never over another one.
#[tokio::test]
async fn merge_writes_a_new_verified_file() {
    let place = Place::new();
    let rig = Rig::start().await;
    rig.certified(FILE, "/run/5", &[bytes(5, 1000), bytes(6, 2000)]).await;
    let to = place.directory.path().join("merged");
    let (remote, what) = (rig.remote(OPERATOR), Readable::File(FILE));
    let merged = merge(&remote, &what, &to, Arc::new(RealDisk)).await.unwrap();
    assert_eq!((merged.file, merged.size), (FILE, 3000));
    assert!(std::fs::read(&to).unwrap() == [bytes(5, 1000), bytes(6, 2000)].concat());
    let again = merge(&remote, &what, &to, Arc::new(RealDisk)).await.unwrap_err();
    assert_eq!(again.kind, ErrorKind::Exists);
    let unknown = Readable::File(FileId([1; 16]));
    let to = place.directory.path().join("other");
    assert_eq!(
        merge(&remote, &unknown, &to, Arc::new(RealDisk)).await.unwrap_err().kind,
        ErrorKind::NotFound
    );
    assert!(!to.exists());
}
