//! The service of a machine: opens its volumes, listens, and ends in order.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use exacat_disk::Disk;
use exacat_model::{Error, ErrorKind, Result};
use exacat_wire::writer::ServiceId;
use exacat_writer::limits::CONNECTIONS_MAX;
use exacat_writer::{Done, Service, ServiceSettings, Volume, VolumeSettings};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::catalogue::{Catalogue, Credential};
use crate::clock::{Clock, wall_time};
use crate::connection::{Caller, serve};
use crate::content::{Content, Others};
use crate::discovery::{Discovery, DiscoverySettings};
use crate::disks::Disks;
use crate::http::{Access, HttpPaths};
use crate::hub::Hub;
use crate::identity::{count_start, service_of, starts_of};
use crate::limits::{FREE_SPACE_EVERY, RECEIVED_FRAMES_MAX, TICK, TLS_TIME_MAX};
use crate::measured_disk::MeasuredDisk;
use crate::measures::Measures;
use crate::opening::open_volume;
use crate::peers::{Peers, PeersSettings};
use crate::producers::ProducerAuthorities;
use crate::settings::{LinkSettings, ServerSettings};
use crate::stage_out::Mover;
use crate::trust::Trust;
use crate::view::{Nameplate, Takeovers, View};

/// A running service.
pub struct Server {
    hub: Arc<Hub>,
    volumes: Arc<Vec<Volume>>,
    service: ServiceId,
    address: SocketAddr,
    /// Address that producers get, and the services of other machines that run beside this one.
    shown: (String, Takeovers),
    http: Option<SocketAddr>,
    ending: watch::Sender<bool>,
    tasks: JoinSet<()>,
    links: Option<Links>,
    /// True once another process has the volumes.
    is_fenced: Arc<AtomicBool>,
}

/// Links to other services, and what looks for them.
struct Links {
    peers: Peers,
    discovery: Discovery,
}

impl Server {
    /// Starts a service. It listens when this returns.
    pub async fn start(
        settings: ServerSettings,
        disk: Arc<dyn Disk>,
        catalogue: Arc<dyn Catalogue>,
    ) -> Result<Server> {
        let listeners = Listeners::bind(&settings).await?;
        Server::start_on(listeners, settings, disk, catalogue).await
    }

    /// Starts a service on listeners that are bound.
    pub async fn start_on(
        listeners: Listeners,
        settings: ServerSettings,
        disk: Arc<dyn Disk>,
        catalogue: Arc<dyn Catalogue>,
    ) -> Result<Server> {
        if settings.volumes.is_empty() {
            return Err(Error::invalid("a writer service needs a volume: give it a directory"));
        }
        if let Some(shared) = &settings.shared {
            shared.check(&settings.volumes, settings.links.is_some())?;
        }
        let measures = Arc::new(Measures::default());
        let disk: Arc<dyn Disk> = Arc::new(MeasuredDisk::new(disk, Arc::clone(&measures.disk)));
        let service = service_of(&*disk, &settings.volumes)?;
        let (mut volumes, mut recovered) = (Vec::new(), Vec::new());
        for root in &settings.volumes {
            let of = VolumeSettings {
                root: root.clone(),
                service,
                adopt: settings.adopt,
                segment_bytes: settings.segment_bytes,
            };
            let (volume, found) = open_volume(&disk, &of, settings.shared.is_some()).await?;
            if let Some(reason) = &found.read_only {
                tracing::error!(volume = %root.display(), reason, "a volume can only be read");
            }
            for name in &found.unknown {
                tracing::warn!(volume = %root.display(), file = name, "a file that the index does not name is now in unknown/");
            }
            volumes.push(volume);
            recovered.push(found);
        }
        let starts = count_start(&*disk, &settings.volumes)?;
        let (shown, http_url) = (listeners.address(&settings), listeners.http_url(&settings));
        let takeovers = Takeovers::default();
        let shown_address = shown.clone();
        let owned = (Arc::clone(&disk), settings.volumes.clone(), starts);
        let Listeners { producers: (listener, address), http } = listeners;
        let clock = Clock::new();
        let http_address = http.as_ref().map(|(_, address)| *address);
        let of = ServiceSettings {
            service,
            name: settings.name.clone(),
            http: http_url.unwrap_or_default(),
            address: shown,
            blocks: settings.blocks,
            flush_ms: settings.flush_ms,
            idle_ms: settings.idle_ms,
            orphan_ms: settings.orphan_ms,
            part_wait_ms: 2_000,
            ask_every_ms: 1_000,
            table_every_ms: 500,
            gone_ms: settings.gone_ms,
            free_bytes_min: settings.free_bytes_min,
            first_version: starts << 32,
            removal: settings.removal,
        };
        let disks = Disks::new(volumes.len());
        let mut machine = Service::new(of, recovered, clock.now());
        machine.drain(!settings.takes_files, clock.now());
        let machine = (service, machine);
        let hub = Arc::new(Hub::new(machine, clock, disks, Arc::clone(&catalogue), measures));
        let volumes = Arc::new(volumes);
        let weak = Arc::downgrade(&hub);
        let done: Arc<dyn Fn(usize, Done) + Send + Sync> = Arc::new(move |volume, done| {
            if let Some(hub) = weak.upgrade() {
                hub.with(|service, now| service.work_done(volume, done, now));
            }
        });
        hub.disks().start(&volumes, &done)?;
        let (ending, is_ending) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let links = match &settings.links {
            Some(links) => Some(link(
                &hub,
                (service, address, starts),
                &settings.name,
                links,
                (&mut tasks, is_ending.clone()),
            )?),
            None => None,
        };
        let trust = settings.links.as_ref().map(|links| links.trust.clone());
        let producers = settings.producers.clone();
        // The certificate of a service is that for its producers, too.
        let tls = trust.as_ref().and_then(Trust::accepting);
        let tls = tls.or_else(|| producers.as_ref().map(ProducerAuthorities::accepting));
        let tls = tls.or_else(|| settings.tls.clone()).map(TlsAcceptor::from);
        let entrance = Entrance { tls, plain_from: Arc::clone(&settings.plain_from), trust, producers };
        tasks.spawn(listen(Arc::clone(&hub), listener, entrance, is_ending.clone()));
        tasks.spawn(tick(Arc::clone(&hub), is_ending.clone()));
        tasks.spawn(watch_space(Arc::clone(&hub), Arc::clone(&volumes), is_ending.clone()));
        let is_fenced = Arc::new(AtomicBool::new(false));
        tasks.spawn(watch_owner(Arc::clone(&hub), owned, Arc::clone(&is_fenced), is_ending.clone()));
        let others = Others { tls: settings.http_trust.clone() };
        let content = Arc::new(Content::new(Arc::clone(&hub), Arc::clone(&volumes), others));
        let mover = Mover::new(settings.stage_out.clone(), Arc::clone(&content), Arc::clone(&catalogue));
        if let Some((listener, _)) = http {
            let view =
                View { hub: Arc::clone(&hub), plate: Arc::new(nameplate(&settings, takeovers.clone())) };
            let access = Access::new(catalogue, Arc::clone(&settings.plain_from));
            let paths = Arc::new(HttpPaths::new(view, access, content, Arc::clone(&mover)));
            tasks.spawn(exacat_http::serve(paths, listener, settings.tls.clone(), is_ending.clone()));
        }
        tasks.spawn(mover.run(is_ending));
        let http = http_address;
        let shown = (shown_address, takeovers);
        Ok(Server { hub, volumes, service, address, shown, http, ending, tasks, links, is_fenced })
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address of its HTTP.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Returns the identity of the service.
    pub fn service(&self) -> ServiceId {
        self.service
    }

    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Returns the address that producers get.
    pub(crate) fn shown_address(&self) -> &str {
        &self.shown.0
    }

    /// Returns the services of other machines that run beside this one.
    pub(crate) fn takeovers(&self) -> &Takeovers {
        &self.shown.1
    }

    /// Says whether another process has the volumes: this one writes nothing more.
    pub(crate) fn is_fenced(&self) -> bool {
        self.is_fenced.load(Ordering::Relaxed)
    }

    /// Ends the service: no more connections, and all works done that are on their way.
    pub async fn stop(mut self) {
        let _ = self.ending.send(true);
        if let Some(Links { peers, discovery }) = &self.links {
            discovery.stop();
            peers.stop().await;
        }
        self.hub.disconnect_all();
        while self.tasks.join_next().await.is_some() {}
        let (hub, volumes) = (Arc::clone(&self.hub), Arc::clone(&self.volumes));
        let stopped = tokio::task::spawn_blocking(move || {
            hub.disks().stop();
            for volume in volumes.iter() {
                if let Err(error) = volume.checkpoint(wall_time()) {
                    tracing::warn!(%error, "no checkpoint of an index; the next start reads its log");
                }
            }
        });
        let _ = stopped.await;
    }
}

/// Begins to look for other services, and to keep links to them.
fn link(
    hub: &Arc<Hub>,
    (service, address, starts): (ServiceId, SocketAddr, u64),
    name: &str,
    links: &LinkSettings,
    (tasks, mut is_ending): (&mut JoinSet<()>, watch::Receiver<bool>),
) -> Result<Links> {
    let (sink, mut received) = tokio::sync::mpsc::channel(RECEIVED_FRAMES_MAX);
    let of = PeersSettings { service, name: name.to_owned(), trust: links.trust.clone() };
    let peers = Peers::start(of, sink);
    let of = DiscoverySettings {
        service,
        cluster: links.cluster.clone(),
        incarnation: starts,
        address,
        multicast: links.multicast,
        seeds: links.seeds.clone(),
    };
    let finder = peers.clone();
    let discovery = Discovery::start(of, move |found| finder.found(found))
        .map_err(|error| Error::invalid(format!("cannot look for other services: {error}")))?;
    hub.set_neighbours(peers.clone());
    let hub = Arc::downgrade(hub);
    tasks.spawn(async move {
        loop {
            let received = tokio::select! {
                received = received.recv() => received,
                _ = is_ending.changed() => return,
            };
            let (Some((from, frame)), Some(hub)) = (received, hub.upgrade()) else { return };
            hub.with(|service, now| service.peer_message(from, frame, now));
        }
    });
    Ok(Links { peers, discovery })
}

/// Addresses that are taken, before anything is opened.
#[derive(Debug)]
pub struct Listeners {
    producers: (TcpListener, SocketAddr),
    http: Option<(TcpListener, SocketAddr)>,
}

impl Listeners {
    /// Takes the addresses of the settings.
    pub async fn bind(settings: &ServerSettings) -> Result<Listeners> {
        let http = match settings.http {
            Some(http) => Some(bound(http).await?),
            None => None,
        };
        Ok(Listeners { producers: bound(settings.listen).await?, http })
    }

    /// Returns the host and port that producers connect to.
    fn address(&self, settings: &ServerSettings) -> String {
        settings.address.clone().unwrap_or_else(|| self.producers.1.to_string())
    }

    /// Returns the ports for producers and of HTTP.
    pub(crate) fn ports(&self) -> (u16, Option<u16>) {
        (self.producers.1.port(), self.http.as_ref().map(|(_, address)| address.port()))
    }

    /// Returns the URL at which others find the HTTP; none if there is none.
    pub fn http_url(&self, settings: &ServerSettings) -> Option<String> {
        let (_, http) = self.http.as_ref()?;
        if let Some(url) = &settings.http_url {
            return Some(url.clone());
        }
        let has_tls = settings.tls.is_some()
            || settings.links.as_ref().is_some_and(|of| of.trust.accepting().is_some());
        let scheme = if has_tls { "https" } else { "http" };
        Some(match (http.ip().is_unspecified(), self.address(settings).rsplit_once(':')) {
            (true, Some((host, _))) => format!("{scheme}://{host}:{}", http.port()),
            _ => format!("{scheme}://{http}"),
        })
    }
}

/// Binds a listener.
async fn bound(to: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(to)
        .await
        .map_err(|error| Error::new(ErrorKind::Unavailable, format!("cannot listen on {to}: {error}")))?;
    let address = listener.local_addr().map_err(|error| {
        Error::new(ErrorKind::Internal, format!("the address of the listener is unknown: {error}"))
    })?;
    Ok((listener, address))
}

fn nameplate(settings: &ServerSettings, takeovers: Takeovers) -> Nameplate {
    Nameplate {
        name: settings.name.clone(),
        volumes: settings.volumes.iter().map(|path| path.display().to_string()).collect(),
        begun: std::time::Instant::now(),
        stage_out: settings.stage_out.as_ref().map(|of| of.se.clone()),
        takeovers,
    }
}

/// Rules for the connections that come in.
#[derive(Clone)]
struct Entrance {
    tls: Option<TlsAcceptor>,
    plain_from: Arc<dyn Fn(IpAddr) -> bool + Send + Sync>,
    trust: Option<Trust>,
    producers: Option<ProducerAuthorities>,
}

async fn listen(
    hub: Arc<Hub>,
    listener: TcpListener,
    entrance: Entrance,
    mut is_ending: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = is_ending.changed() => break,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((_, from)) if connections.len() >= CONNECTIONS_MAX => {
                tracing::warn!(%from, "a connection is refused: there are {CONNECTIONS_MAX}");
            }
            Ok((stream, from)) => {
                connections.spawn(accept(Arc::clone(&hub), stream, from, entrance.clone()));
            }
            Err(error) => {
                // Out of file descriptors: those who are connected go on, and others wait.
                tracing::warn!(%error, "cannot take a connection");
                tokio::time::sleep(TICK).await;
            }
        }
    }
    hub.disconnect_all();
    while connections.join_next().await.is_some() {}
}

/// Says whether the first bytes of a connection are those of TLS. The length of a hello has zeros where a
/// record of TLS has its version.
fn is_tls(first: [u8; 3]) -> bool {
    first[0] == 0x16 && first[1] == 3 && first[2] != 0
}

/// Returns the first bytes of a connection, which stay unread; none if they do not come.
async fn first_bytes(stream: &TcpStream) -> Option<[u8; 3]> {
    let mut first = [0; 3];
    let peeked = async {
        loop {
            match stream.peek(&mut first).await {
                Ok(0) | Err(_) => return false,
                Ok(3) => return true,
                // The rest of so few bytes follows at once, or never.
                Ok(_) => tokio::time::sleep(TICK).await,
            }
        }
    };
    tokio::time::timeout(TLS_TIME_MAX, peeked).await.ok().filter(|came| *came).map(|_| first)
}

async fn accept(hub: Arc<Hub>, stream: TcpStream, from: SocketAddr, entrance: Entrance) {
    let _ = stream.set_nodelay(true);
    let Some(first) = first_bytes(&stream).await else { return };
    let shown = Ok(Credential::None);
    let mut caller = Caller { address: from.ip(), certificates: None, trust: entrance.trust, shown };
    match entrance.tls {
        Some(tls) if is_tls(first) => match tokio::time::timeout(TLS_TIME_MAX, tls.accept(stream)).await {
            Ok(Ok(stream)) => {
                let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
                if let Some(producers) = &entrance.producers {
                    caller.shown = producers.judge(shown);
                }
                caller.certificates = Some(shown.iter().map(|one| one.clone().into_owned()).collect());
                let (reader, writer) = tokio::io::split(stream);
                serve(hub, caller, reader, writer).await;
            }
            Ok(Err(error)) => tracing::debug!(%from, %error, "a TLS handshake failed"),
            Err(_) => tracing::debug!(%from, "a TLS handshake took too long"),
        },
        _ if (entrance.plain_from)(from.ip().to_canonical()) => {
            let (reader, writer) = stream.into_split();
            serve(hub, caller, reader, writer).await;
        }
        _ => {
            tracing::warn!(%from, "a connection without TLS is refused: allow its network, or let it use TLS")
        }
    }
}

async fn tick(hub: Arc<Hub>, mut is_ending: watch::Receiver<bool>) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = interval.tick() => hub.with(|service, now| service.tick(now)),
            _ = is_ending.changed() => return,
        }
    }
}

async fn watch_space(hub: Arc<Hub>, volumes: Arc<Vec<Volume>>, mut is_ending: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(FREE_SPACE_EVERY) => {}
            _ = is_ending.changed() => return,
        }
        for at in 0..volumes.len() {
            let volumes = Arc::clone(&volumes);
            let asked = tokio::task::spawn_blocking(move || volumes.get(at).map(Volume::free_bytes)).await;
            match asked {
                Ok(Some(Ok(bytes))) => hub.with(|service, _| service.free_bytes(at, bytes)),
                Ok(Some(Err(error))) => {
                    tracing::warn!(volume = at, %error, "the free space of a volume is unknown")
                }
                _ => {}
            }
        }
    }
}

/// Looks whether the volumes are still this process's: a later start of the service has counted itself there.
/// The lock of a volume prevents that, unless its file system has taken the lock away.
async fn watch_owner(
    hub: Arc<Hub>,
    (disk, volumes, starts): (Arc<dyn Disk>, Vec<PathBuf>, u64),
    is_fenced: Arc<AtomicBool>,
    mut is_ending: watch::Receiver<bool>,
) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(FREE_SPACE_EVERY) => {}
            _ = is_ending.changed() => return,
        }
        let (disk, volumes) = (Arc::clone(&disk), volumes.clone());
        let asked = tokio::task::spawn_blocking(move || starts_of(&*disk, &volumes)).await;
        if let Ok(Ok(counted)) = asked
            && counted > starts
        {
            let reason = "another process runs this service on its volumes: end one of them";
            tracing::error!(reason, "nothing more is written");
            is_fenced.store(true, Ordering::Relaxed);
            hub.with(|service, now| service.fence(reason, now));
            return;
        }
    }
}
