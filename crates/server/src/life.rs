//! Life of a server: starts all parts, listens, runs, and stops in an order that loses nothing.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use exacat_catalogue::Catalogue;
use exacat_history::{History as Elements, HistorySettings};
use exacat_model::{AccountName, Answer, Error, ErrorKind, Guid, Lfn, Operation, Result};
use exacat_store::{Clock, Store};
use exacat_store_cassandra::{CassandraStore, check_schema};
use exacat_store_embedded::{Companion, EmbeddedSettings, EmbeddedStore};
use futures::future::BoxFuture;
use rustls::server::danger::ClientCertVerifier;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;
use tokio_rustls::TlsAcceptor;

use crate::activity::{Bounds, History, SAMPLE_EVERY, Sampler};
use crate::contents::{self, Contents};
use crate::data_disk::DataDisk;
use crate::data_server::WebClient;
use crate::directory::{self, DataDirectory, failed};
use crate::envelopes::Envelopes;
use crate::faces::{http, jalien, native, xrootd};
use crate::feeds;
use crate::issuers::Issuers;
use crate::places::Places;
use crate::server_states::show_state;
use crate::servers::Servers;
use crate::service::{Phase, Service, UploadChecks};
use crate::settings::{ServerSettings, StoreChoice};
use crate::tls;
use crate::uploads::{self, Uploads};
use crate::workers::WorkerBook;

/// Time for connections to report the stop and close, after the time for requests in flight.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Interval at which a running server saves the trusted time.
const TIME_KEPT_EVERY: Duration = Duration::from_secs(600);
/// Pause after a sample of the contents that could not be taken.
const CONTENTS_AGAIN: Duration = Duration::from_secs(600);
/// Most bytes of a Unix socket's path in the kernel.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Addresses that a server listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Native protocol over TLS.
    pub native: Option<SocketAddr>,
    /// Native protocol over a Unix socket.
    pub socket: Option<PathBuf>,
    /// HTTP: the REST API, metrics and health.
    pub http: Option<SocketAddr>,
    /// JAliEn's protocol over TLS.
    pub jalien: Option<SocketAddr>,
    /// XRootD's protocol.
    pub xrootd: Option<SocketAddr>,
    /// The certificate that clients must trust.
    pub certificate: PathBuf,
    /// A token of the account `admin`, written at the first start.
    pub admin_token: PathBuf,
}

/// Starts servers.
pub struct Server;

/// A running server. Dropping it stops the server without waiting for the end.
pub struct RunningServer {
    /// The addresses it listens on.
    pub addresses: Addresses,
    service: Arc<Service>,
    ended: Option<JoinHandle<Result<()>>>,
}

/// Stops a server from elsewhere, as on a signal.
#[derive(Clone)]
pub struct StopHandle {
    service: Arc<Service>,
}

impl StopHandle {
    /// Stops the server: see [`RunningServer::shutdown`].
    pub fn shutdown(&self) {
        self.service.enter_phase(Phase::Stopping);
    }
}

/// Bound listeners, before the server accepts connections.
struct Listeners {
    native: Option<(TcpListener, TlsAcceptor)>,
    local: Option<UnixListener>,
    http: Option<(TcpListener, TlsAcceptor)>,
    jalien: Option<(TcpListener, TlsAcceptor)>,
    xrootd: Option<(TcpListener, TlsAcceptor)>,
}

impl Server {
    /// Makes all parts of a server, opens its catalogue, and serves. The caller needs a runtime
    /// with several threads.
    // Boxed, as `start_over`, so that the compiler builds the future here instead of at each caller.
    pub fn start(settings: ServerSettings) -> BoxFuture<'static, Result<RunningServer>> {
        Box::pin(async move {
            settings.limits.check()?;
            let directory = match &settings.snapshot {
                None => DataDirectory::open(&settings.directory, settings.socket_access())?,
                Some(name) => {
                    // Check first, before anything is created there.
                    EmbeddedStore::has_snapshot(&settings.directory.join("store"), name)?;
                    DataDirectory::open_view(&settings.directory, name, settings.socket_access())?
                }
            };
            if settings.snapshot.is_none() {
                settings.clock.keep_in(&directory.clock());
            }
            let store = open_store(&settings, &directory).await?;
            Self::start_in(settings, directory, store).await
        })
    }

    /// Starts a server over a store that the caller opened, whatever the settings say of the store.
    /// The server closes the store.
    pub fn start_over(
        settings: ServerSettings,
        store: Arc<dyn Store>,
    ) -> BoxFuture<'static, Result<RunningServer>> {
        Box::pin(async move {
            settings.limits.check()?;
            let directory = DataDirectory::open(&settings.directory, settings.socket_access())?;
            settings.clock.keep_in(&directory.clock());
            Self::start_in(settings, directory, store).await
        })
    }

    async fn start_in(
        settings: ServerSettings,
        directory: DataDirectory,
        store: Arc<dyn Store>,
    ) -> Result<RunningServer> {
        match start_on(Arc::clone(&store), settings, directory).await {
            Ok(server) => Ok(server),
            Err(error) => {
                if let Err(closing) = store.close().await {
                    tracing::error!(error = %closing, "the store does not close");
                }
                Err(error)
            }
        }
    }
}

async fn open_store(settings: &ServerSettings, directory: &DataDirectory) -> Result<Arc<dyn Store>> {
    let clock = Arc::clone(&settings.clock);
    match &settings.store {
        StoreChoice::Cassandra(cluster) => Ok(CassandraStore::open((**cluster).clone(), clock).await?),
        StoreChoice::Embedded => {
            directory.not_of_a_cluster()?;
            let (history, cache_bytes, standbys) =
                (settings.history, settings.cache_bytes, settings.standbys);
            let companion: Arc<dyn Companion> = Arc::clone(&directory.beside) as _;
            let embedded = EmbeddedSettings {
                history,
                cache_bytes,
                standbys,
                companion: Some(companion),
                ..EmbeddedSettings::at(directory.store())
            };
            let snapshot = settings.snapshot.clone();
            let opened = tokio::task::spawn_blocking(move || match snapshot {
                None => EmbeddedStore::open(embedded, clock),
                Some(name) => EmbeddedStore::open_snapshot(embedded, &name, clock),
            })
            .await;
            let store = opened.map_err(|error| {
                Error::new(ErrorKind::Internal, format!("the store could not be opened: {error}"))
            })??;
            Ok(store)
        }
    }
}

async fn start_on(
    store: Arc<dyn Store>,
    settings: ServerSettings,
    directory: DataDirectory,
) -> Result<RunningServer> {
    let clock = Arc::clone(&settings.clock);
    let catalogue = Catalogue::open(store, clock, settings.catalogue.clone()).await?;
    let catalogue_id = first_start(&catalogue, &settings, &directory).await?;
    let (listeners, addresses) = listen(&settings, &directory).await?;
    let workers = WorkerBook::new();
    let kept = match settings.limits.activity_bytes_max {
        0 => None,
        bytes_max => {
            let bounds = Bounds { bytes_max, whole_for: settings.limits.activity_whole_for };
            Some((directory.activity()?, bounds))
        }
    };
    let service = Service::new(
        Arc::clone(&catalogue),
        Arc::new(settings.limits.clone()),
        Arc::new(History::new(settings.clock.trusted(), kept)),
        Arc::clone(&workers),
        catalogue_id,
        settings.catalogue.anonymous_reads,
    );
    if let Some(end) = tls::certificate_end(&settings, &directory) {
        service.instruments.certificate_end.store(end, std::sync::atomic::Ordering::Relaxed);
    }
    let _first = service.issuers.set(Issuers::new(directory.issuers()));
    let _first = service.log_lines_lost.set(Arc::clone(&settings.log_lines_lost));
    if let Some(log) = settings.look_ups.clone() {
        let _first = service.look_ups.set(log);
    }
    if settings.elements {
        let elements = open_elements(&settings, &directory).await?;
        directory.beside.opened(&elements, directory.elements());
        let _first = service.elements.set(elements);
    } else if catalogue.store().read_only().is_none() && directory.elements().is_dir() {
        tracing::warn!(
            "the history of elements in this directory is closed: without --history, snapshots have no values"
        );
    }
    let port = addresses.native.or(addresses.http).or(addresses.xrootd).or(addresses.jalien);
    // The store's files may be on a disk of their own.
    let data_disk = DataDisk::of(&directory.store()).or_else(|| DataDisk::of(&settings.directory));
    let servers = Servers::new(settings.directory.clone(), port.map(|address| address.port()), data_disk);
    let _first = service.servers.set(servers);
    if settings.limits.activity_bytes_max > 0 && catalogue.store().read_only().is_none() {
        let _first = service.contents.set(Arc::new(Contents::new(directory.contents()?)));
    }
    if let Some(feeds) = feeds::open(&settings, directory.feeds(), &catalogue, catalogue_id)? {
        let _first = service.feeds.set(feeds);
    }
    if let Some(state) = &settings.follow {
        let _first = service.follow.set(Arc::clone(state));
    }
    let exporting = trace(&settings, &service)?;
    let places = Places::open(settings.networks.clone())?;
    let envelopes = match addresses.jalien.or(addresses.xrootd).or(addresses.http) {
        Some(address) => {
            let clock = Arc::clone(&settings.clock);
            Some(Envelopes::open(directory.jalien()?, clock, &settings.envelopes, address)?)
        }
        None => None,
    };
    let jalien = match (&settings.jalien, listeners.jalien, &envelopes) {
        (Some(jalien), Some((listener, acceptor)), Some(envelopes)) => {
            let clock = Arc::clone(&settings.clock);
            let (envelopes, places) = (Arc::clone(envelopes), Arc::clone(&places));
            let service = Arc::clone(&service);
            let face = jalien::Face::open(service, clock, jalien.clone(), envelopes, places, &directory)?;
            // A snapshot has the tokens of its catalogue.
            if catalogue.store().read_only().is_none() {
                face.write_admin_token(&directory).await?;
            }
            Some((face, listener, acceptor))
        }
        _ => None,
    };
    let web = WebClient::new(settings.storage_ca.as_deref())?;
    let certificates = match (&settings.http, &jalien) {
        (Some(http), _) if http.authorities.is_some() => {
            let (authorities, map) = (http.authorities.clone(), http.map.clone());
            Some(jalien::judge_of_certificates(authorities, map, &directory, settings.clock.now())?)
        }
        (_, jalien) => jalien.as_ref().map(|(face, ..)| Arc::clone(&face.certificates)),
    };
    let uploads = match &envelopes {
        Some(envelopes) if catalogue.store().read_only().is_none() => {
            let checksums = settings.xrootd.as_ref().map(|xrootd| xrootd.checksums.clone());
            let (envelopes, clock) = (Arc::clone(envelopes), Arc::clone(&settings.clock));
            let (place, checksums) = (directory.uploads()?, checksums.unwrap_or_default());
            let context = uploads::VisitContext { envelopes, clock, web: Arc::clone(&web), checksums };
            let uploads = Uploads::open(Arc::clone(&service), context, place)?;
            let checks: Weak<dyn UploadChecks> = Arc::<Uploads>::downgrade(&uploads);
            let _first = service.uploads.set(checks);
            Some(uploads)
        }
        _ => None,
    };
    let xrootd = match (&settings.xrootd, listeners.xrootd, &envelopes) {
        (Some(xrootd), Some((listener, acceptor)), Some(envelopes)) => {
            let (service, places) = (Arc::clone(&service), Arc::clone(&places));
            let (envelopes, uploads) = (Arc::clone(envelopes), uploads.clone());
            let face = xrootd::Face::new(service, xrootd.clone(), envelopes, places, acceptor, uploads);
            Some((face, listener))
        }
        _ => None,
    };
    if let Some(followed) = catalogue.store().as_followed() {
        followed.require_standbys();
    }
    write_addresses(&directory, &addresses, catalogue_id)?;

    let (alive, all_ended) = mpsc::channel(1);
    let mut faces = JoinSet::new();
    if let Some((face, listener, acceptor)) = jalien {
        faces.spawn(jalien::serve(face, listener, acceptor, alive.clone()));
    }
    if let Some(uploads) = &uploads {
        // It ends by itself when the server stops.
        faces.spawn(Arc::clone(uploads).work(alive.clone()));
    }
    if let Some((face, listener)) = xrootd {
        faces.spawn(xrootd::serve(face, listener, alive.clone()));
    }
    let watchers = match (&settings.http, listeners.http, envelopes) {
        (Some(http), Some((listener, acceptor)), Some(envelopes)) => {
            let shared =
                http::Shared { service: Arc::clone(&service), envelopes, places, uploads, web, certificates };
            let face = http::Face::new(shared, http, acceptor);
            Some(tokio::spawn(http::serve(face, listener, alive.clone())))
        }
        _ => None,
    };
    let listening = native::Listening::new(Arc::clone(&service), alive);
    if let Some((listener, acceptor)) = listeners.native {
        faces.spawn(native::serve_tls(listening.clone(), listener, acceptor));
    }
    if let Some(listener) = listeners.local {
        faces.spawn(native::serve_local(listening.clone(), listener));
    }
    drop(listening);
    let mut working = JoinSet::new();
    if catalogue.store().read_only().is_none() {
        working = workers.start(&catalogue, &settings.workers, &service.phase());
    }
    working.spawn(keep_time(Arc::clone(&settings.clock), Arc::clone(&service)));
    working.spawn(keep_contents(Arc::clone(&settings.clock), Arc::clone(&service)));
    working.spawn(show_state(Arc::clone(&service)));
    working.spawn(keep_activity(Arc::clone(&settings.clock), Arc::clone(&service)));
    tracing::info!(
        native = addresses.native.map(tracing::field::display),
        socket = addresses.socket.as_ref().map(|path| tracing::field::display(path.display().to_string())),
        http = addresses.http.map(tracing::field::display),
        jalien = addresses.jalien.map(tracing::field::display),
        xrootd = addresses.xrootd.map(tracing::field::display),
        "serving"
    );
    let taking_down = TakingDown {
        exit_on_log_failure: settings.exit_on_log_failure,
        service: Arc::clone(&service),
        faces,
        watchers,
        exporting,
        working,
        all_ended,
        directory,
        socket: addresses.socket.clone(),
    };
    let ended = tokio::spawn(taking_down.when_stopped());
    Ok(RunningServer { addresses, service, ended: Some(ended) })
}

/// Opens the history of elements.
async fn open_elements(settings: &ServerSettings, directory: &DataDirectory) -> Result<Arc<Elements>> {
    if settings.snapshot.is_some() {
        return Err(Error::invalid("a server of a snapshot has no history of elements: leave --history out"));
    }
    let clock = Arc::clone(&settings.clock);
    let elements = HistorySettings {
        archive: settings.elements_archive.clone(),
        log_ahead: settings.elements_log_ahead,
        ..HistorySettings::new(directory.elements(), Arc::new(move || clock.trusted()))
    };
    let disk = Arc::clone(&settings.elements_disk);
    let opened = tokio::task::spawn_blocking(move || Elements::open_on(disk, elements)).await;
    let opened = opened.map_err(|error| {
        Error::new(ErrorKind::Internal, format!("the history of elements could not be opened: {error}"))
    })?;
    opened.map(Arc::new)
}

/// Starts traces, if they are configured. Returns the task that sends them.
#[cfg(feature = "otel")]
fn trace(settings: &ServerSettings, service: &Arc<Service>) -> Result<Option<JoinHandle<()>>> {
    let Some(traces) = &settings.traces else { return Ok(None) };
    let (traces, exporting) =
        crate::traces::Traces::start(traces, Arc::clone(&service.instruments), service.phase())?;
    let _first = service.board.traces.set(traces);
    Ok(Some(exporting))
}

/// Refuses traces, which this program was built without.
#[cfg(not(feature = "otel"))]
fn trace(settings: &ServerSettings, _service: &Arc<Service>) -> Result<Option<JoinHandle<()>>> {
    match &settings.traces {
        None => Ok(None),
        Some(_) => {
            Err(Error::invalid("this program was built without traces: build it with --features otel"))
        }
    }
}

/// Keeps the activity of the server each second, and once more when it stops.
async fn keep_activity(clock: Arc<dyn Clock>, service: Arc<Service>) {
    let mut sampler = Sampler::default();
    let mut ticks = tokio::time::interval(SAMPLE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // Before the sums are read: a stop that comes meanwhile is followed by one more reading.
        let is_last = !service.is_serving();
        if sampler.store_is_due() && !is_last {
            let (began, at) = (Instant::now(), clock.trusted());
            sampler.store(began, at, service.store_metrics().await);
        }
        let now = clock.trusted();
        service.history.sample(now, &service.board);
        let moment = service.moment(&mut sampler, now);
        if let Some(minute) = service.history.moment(moment, &service.board, is_last) {
            let history = Arc::clone(&service.history);
            let _ended = tokio::task::spawn_blocking(move || history.write(&minute)).await;
        }
        if is_last {
            return;
        }
        tokio::select! {
            () = service.reached(Phase::Stopping) => {}
            _ = ticks.tick() => {}
        }
    }
}

/// Keeps the contents of the catalogue each hour.
async fn keep_contents(clock: Arc<dyn Clock>, service: Arc<Service>) {
    let Some(contents) = service.contents.get() else { return };
    loop {
        let (due, now) = (Arc::clone(contents), clock.trusted());
        let due = tokio::task::spawn_blocking(move || due.due_in(now)).await;
        tokio::select! {
            () = service.reached(Phase::Stopping) => return,
            () = tokio::time::sleep(due.unwrap_or(contents::SAMPLE_EVERY)) => {}
        }
        let taken = async {
            let sample = service.contents_now(clock.trusted()).await?;
            let contents = Arc::clone(contents);
            let writing = tokio::task::spawn_blocking(move || contents.write(&sample));
            let written =
                writing.await.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
            written.map_err(|error| Error::new(ErrorKind::Unavailable, error.to_string()))
        };
        if let Err(error) = taken.await {
            tracing::warn!(%error, "no sample of the contents is kept; the catalogue goes on");
            // Without a sample the next one is due at once.
            tokio::select! {
                () = service.reached(Phase::Stopping) => return,
                () = tokio::time::sleep(CONTENTS_AGAIN) => {}
            }
        }
    }
}

/// Saves the trusted time at intervals while the server runs, and once when it stops.
async fn keep_time(clock: Arc<dyn Clock>, service: Arc<Service>) {
    loop {
        // Before the time is read: a stop that comes meanwhile is followed by one more save.
        let is_last = !service.is_serving();
        let keeping = Arc::clone(&clock);
        let kept = tokio::task::spawn_blocking(move || keeping.keep()).await;
        if let Ok(Err(error)) = kept {
            tracing::warn!(%error, "the time cannot be kept for the next start");
        }
        if is_last {
            return;
        }
        tokio::select! {
            () = service.reached(Phase::Stopping) => {}
            () = tokio::time::sleep(TIME_KEPT_EVERY) => {}
        }
    }
}

/// Issues a token for the administrator, at the first start. Without it there is no way in.
/// The catalogue's id is written last, because it marks the end of the first start.
async fn first_start(
    catalogue: &Catalogue,
    settings: &ServerSettings,
    directory: &DataDirectory,
) -> Result<Guid> {
    let is_first = !directory.is_started()?;
    // A snapshot cannot issue tokens; its own are valid.
    if is_first && catalogue.store().read_only().is_none() {
        let admin = catalogue.caller_named(&AccountName::parse("admin")?).await?;
        let issue = Operation::TokenIssue {
            user: None,
            scope: Lfn::root(),
            write: true,
            lifetime_seconds: settings.catalogue.token_seconds_max,
            note: "made at the first start".to_owned(),
        };
        match catalogue.execute(&admin, catalogue.new_operation_id()?, issue).await? {
            Answer::TokenIssued { secret, .. } => {
                let path = directory.admin_token();
                directory::write_private(&path, format!("{secret}\n").as_bytes())?;
                tracing::info!(path = %path.display(), "wrote a token of the administrator");
            }
            _ => return Err(Error::new(ErrorKind::Internal, "no token was issued")),
        }
    }
    if let StoreChoice::Cassandra(cluster) = &settings.store {
        // All servers of the catalogue share the id: a client may repeat at one server a request to
        // another.
        let id = check_schema(cluster).await?.catalogue;
        let id = id.ok_or_else(|| Error::not_found("the catalogue on the cluster has no id"))?;
        return directory.keep_cluster(id, &cluster.to_string());
    }
    directory.catalogue_id(&*settings.clock)
}

async fn listen(settings: &ServerSettings, directory: &DataDirectory) -> Result<(Listeners, Addresses)> {
    let certificate =
        settings.certificate.as_ref().map_or_else(|| directory.certificate(), |files| files.chain.clone());
    let mut addresses = Addresses {
        native: None,
        socket: None,
        http: None,
        jalien: None,
        xrootd: None,
        certificate,
        admin_token: directory.admin_token(),
    };
    let mut listeners = Listeners { native: None, local: None, http: None, jalien: None, xrootd: None };
    if let Some(address) = settings.native {
        let acceptor = tls::acceptor(settings, directory)?;
        let (listener, actual) = bind(address, "the native protocol").await?;
        addresses.native = Some(actual);
        listeners.native = Some((listener, acceptor));
    }
    if settings.socket {
        let path = directory.socket();
        listeners.local = Some(bind_local(&path, settings.socket_mode)?);
        addresses.socket = Some(path);
    }
    if let Some(http) = &settings.http {
        let takes_certificates = http.authorities.is_some() || settings.jalien.is_some();
        let verifier = takes_certificates.then(|| jalien::KeyHolder::new() as Arc<dyn ClientCertVerifier>);
        let acceptor = tls::acceptor_of_http(settings, directory, verifier)?;
        let (listener, actual) = bind(http.address, "HTTP").await?;
        addresses.http = Some(actual);
        listeners.http = Some((listener, acceptor));
    }
    if let Some(jalien) = &settings.jalien {
        let acceptor = tls::acceptor_of_certificates(settings, directory, jalien::KeyHolder::new())?;
        let (listener, actual) = bind(jalien.address, "the protocol of JAliEn").await?;
        addresses.jalien = Some(actual);
        listeners.jalien = Some((listener, acceptor));
    }
    if let Some(xrootd) = &settings.xrootd {
        let acceptor = tls::acceptor_of_xrootd(settings, directory)?;
        let (listener, actual) = bind(xrootd.address, "the protocol of XRootD").await?;
        addresses.xrootd = Some(actual);
        listeners.xrootd = Some((listener, acceptor));
    }
    Ok((listeners, addresses))
}

async fn bind(address: SocketAddr, what: &str) -> Result<(TcpListener, SocketAddr)> {
    let refused = |error: std::io::Error| {
        Error::new(ErrorKind::Unavailable, format!("cannot listen on {address} for {what}: {error}"))
    };
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let actual = listener.local_addr().map_err(refused)?;
    Ok((listener, actual))
}

/// Binds the local socket. The directory is locked, so an existing socket belongs to a killed
/// server.
fn bind_local(path: &Path, mode: u32) -> Result<UnixListener> {
    let bytes = path.as_os_str().len();
    if bytes > SOCKET_PATH_BYTES_MAX {
        return Err(Error::limit(
            &format!("the length of the path {} of the local socket in bytes", path.display()),
            bytes,
            SOCKET_PATH_BYTES_MAX,
        ));
    }
    directory::remove(path)?;
    let listener = UnixListener::bind(path).map_err(|error| failed("listen on", path, &error))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .map_err(|error| failed("set the mode of", path, &error))?;
    Ok(listener)
}

fn write_addresses(directory: &DataDirectory, addresses: &Addresses, catalogue: Guid) -> Result<()> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let json = serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "catalogue": catalogue.to_string(),
        "native": addresses.native.map(|address| address.to_string()),
        "socket": addresses.socket.as_deref().map(text),
        "http": addresses.http.map(|address| address.to_string()),
        "jalien": addresses.jalien.map(|address| address.to_string()),
        "xrootd": addresses.xrootd.map(|address| address.to_string()),
        "certificate": text(&addresses.certificate),
    });
    directory::write_public(&directory.addresses(), format!("{json:#}\n").as_bytes())
}

/// The parts needed to stop a server.
struct TakingDown {
    /// Ends with an error when the log fails, instead of continuing to serve reads.
    exit_on_log_failure: bool,
    service: Arc<Service>,
    faces: JoinSet<()>,
    watchers: Option<JoinHandle<()>>,
    /// Sends traces, and the last ones when all requests have ended.
    exporting: Option<JoinHandle<()>>,
    working: JoinSet<()>,
    all_ended: mpsc::Receiver<()>,
    directory: DataDirectory,
    socket: Option<PathBuf>,
}

impl TakingDown {
    /// Waits for the stop. Then accepts nothing new, finishes requests in flight, and closes the
    /// store.
    async fn when_stopped(mut self) -> Result<()> {
        let store = Arc::clone(self.service.catalogue.store());
        tokio::select! {
            () = self.service.reached(Phase::Stopping) => {}
            why = store.failed(), if self.exit_on_log_failure => {
                tracing::error!(why, "the server ends, for its log failed");
                self.service.enter_phase(Phase::Stopping);
            }
        }
        tracing::info!("stopping");
        if let Some(socket) = &self.socket
            && let Err(error) = directory::remove(socket)
        {
            tracing::warn!(%error, "the socket stays behind");
        }
        let finished = tokio::time::timeout(self.service.limits.stop_time, self.finish()).await.is_ok();
        self.service.enter_phase(Phase::Ended);
        if !finished {
            tracing::warn!(
                requests = self.service.admission.requests.now(),
                connections = self.service.admission.connections.now(),
                "not everything was finished in time"
            );
            // The store completes writes that began; a client may repeat them with the same id.
            let _ = tokio::time::timeout(LAST_WORDS, self.finish()).await;
        }
        self.faces.shutdown().await;
        self.working.shutdown().await;
        if let Some(watchers) = &self.watchers {
            watchers.abort();
        }
        if let Some(exporting) = self.exporting.take() {
            let _ = tokio::time::timeout(LAST_WORDS, exporting).await;
        }
        if let Some(feeds) = self.service.feeds.get() {
            feeds.close().await;
        }
        if let Some(elements) = self.service.elements.get().cloned() {
            let _closed = tokio::task::spawn_blocking(move || elements.close()).await;
        }
        let closed = self.service.catalogue.store().close().await;
        if let Err(error) = directory::remove(&self.directory.addresses()) {
            tracing::warn!(%error, "the addresses stay behind");
        }
        match &closed {
            Ok(()) => tracing::info!("stopped"),
            Err(error) => tracing::error!(%error, "the store did not close well"),
        }
        match store.failure() {
            // Report it to the supervisor, whatever stopped the server.
            Some(why) => Err(Error::new(
                ErrorKind::Unavailable,
                format!("the log failed: {why}; check the disk and start the server again"),
            )),
            None => closed,
        }
    }

    /// Returns when all connections, their tasks and the workers have ended.
    async fn finish(&mut self) {
        while self.faces.join_next().await.is_some() {}
        while self.working.join_next().await.is_some() {}
        // No message is ever sent: this returns when the last sender is dropped.
        let _ = self.all_ended.recv().await;
    }
}

impl RunningServer {
    /// Stops the server: it accepts nothing new, finishes requests in flight within the bound, and
    /// closes the store. Returns at once; [`wait`](Self::wait) reports the end.
    pub fn shutdown(&self) {
        self.service.enter_phase(Phase::Stopping);
    }

    /// Returns a handle that stops the server from elsewhere.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle { service: Arc::clone(&self.service) }
    }

    /// Returns when the server has stopped, with the result of closing the store.
    pub async fn wait(mut self) -> Result<()> {
        match self.ended.take() {
            None => Ok(()),
            Some(ended) => ended.await.unwrap_or_else(|error| {
                Err(Error::new(ErrorKind::Internal, format!("taking the server down failed: {error}")))
            }),
        }
    }

    /// Enables a background worker, or stops it after its current step.
    pub fn enable_worker(&self, name: &str, enabled: bool) -> Result<()> {
        self.service.workers.enable(name, enabled)
    }

    /// Returns the names of the background workers.
    pub fn worker_names(&self) -> Vec<&'static str> {
        self.service.workers.names().collect()
    }

    /// Returns the catalogue beneath, for tests and tools in the same process.
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.service.catalogue
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.service.enter_phase(Phase::Stopping);
    }
}
