//! Takeover of volumes on a shared file system: where a service is gone, another one runs it on its volumes,
//! until it returns. Decision record 0076 has the reasons.
//!
//! The lock of a volume decides who has it: the file system gives it to one process of all machines.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use exacat_disk::{Disk, cannot_read, exists, list_if_there};
use exacat_model::{Error, ErrorKind, Result};
use exacat_wire::writer::{ServiceId, ServiceState};
use exacat_writer::owner_of;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::catalogue::Catalogue;
use crate::clock::wall_time;
use crate::hub::Hub;
use crate::limits::{SHARED_VOLUMES_MAX, TAKEOVER_BLOCKS, TAKEOVER_LOOK_EVERY};
use crate::opening::WANTED;
use crate::server::{Listeners, Server};
use crate::settings::{ServerSettings, SharedVolumes};
use crate::shapes::WriterTakeover;
use crate::view::Takeovers;

/// Returns an address or URL with another port.
fn with_port(of: &str, port: u16) -> String {
    match of.trim_end_matches('/').rsplit_once(':') {
        // Not within the brackets of IPv6, nor behind the scheme of a URL without a port.
        Some((host, old)) if old.bytes().all(|byte| byte.is_ascii_digit()) => format!("{host}:{port}"),
        _ => format!("{}:{port}", of.trim_end_matches('/')),
    }
}

fn any_port(of: SocketAddr) -> SocketAddr {
    SocketAddr::new(of.ip(), 0)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let stopped = |_| Error::new(ErrorKind::Internal, "internal error: a takeover stopped");
    tokio::task::spawn_blocking(work).await.map_err(stopped)?
}

/// A service that is run here for another machine.
struct Running {
    server: Server,
    volumes: Vec<PathBuf>,
}

/// Takeover beside a running service.
pub struct Takeover {
    ending: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Takeover {
    /// Begins to look for services that are gone; none if the volumes of this one are not shared.
    pub fn start(
        server: &Server,
        settings: &ServerSettings,
        disk: Arc<dyn Disk>,
        catalogue: Arc<dyn Catalogue>,
    ) -> Option<Takeover> {
        let looking = Looking {
            settings: settings.clone(),
            shared: settings.shared.clone()?,
            address: server.shown_address().to_owned(),
            disk,
            catalogue,
            hub: Arc::clone(server.hub()),
            takeovers: server.takeovers().clone(),
        };
        let (ending, is_ending) = watch::channel(false);
        Some(Takeover { ending, task: tokio::spawn(looking.run(is_ending)) })
    }

    /// Ends the services of other machines that run here.
    pub async fn stop(self) {
        let _ = self.ending.send(true);
        let _ = self.task.await;
    }
}

/// Looks for volumes whose service is gone.
struct Looking {
    /// Settings of this service.
    settings: ServerSettings,
    shared: SharedVolumes,
    /// Address at which producers find this service.
    address: String,
    disk: Arc<dyn Disk>,
    catalogue: Arc<dyn Catalogue>,
    hub: Arc<Hub>,
    takeovers: Takeovers,
}

impl Looking {
    /// Runs until the service ends.
    async fn run(self, mut is_ending: watch::Receiver<bool>) {
        let mut silent: BTreeMap<ServiceId, Instant> = BTreeMap::new();
        let mut running: BTreeMap<ServiceId, Running> = BTreeMap::new();
        let mut told: BTreeSet<String> = BTreeSet::new();
        loop {
            tokio::select! {
                () = tokio::time::sleep(TAKEOVER_LOOK_EVERY) => {}
                _ = is_ending.changed() => break,
            }
            self.return_wanted(&mut running).await;
            match self.volumes_of_others(&mut told).await {
                Ok(found) => self.take_silent(found, &mut silent, &mut running).await,
                Err(error) => tracing::warn!(%error, "the shared directory cannot be read"),
            }
        }
        for (service, of) in std::mem::take(&mut running) {
            self.end(service, of).await;
        }
    }

    /// Returns the volumes in the shared directory by their services, apart from this one's.
    async fn volumes_of_others(
        &self,
        told: &mut BTreeSet<String>,
    ) -> Result<BTreeMap<ServiceId, Vec<PathBuf>>> {
        let (disk, directory) = (Arc::clone(&self.disk), self.shared.directory.clone());
        let found = blocking(move || {
            let name = directory.display().to_string();
            let mut names = list_if_there(&*disk, &directory).map_err(|error| cannot_read(&name, &error))?;
            names.sort();
            let is_cut = names.len() > SHARED_VOLUMES_MAX;
            names.truncate(SHARED_VOLUMES_MAX);
            let owner = |name: String| {
                let root = directory.join(&name);
                let owner = owner_of(&*disk, &root);
                (root, owner)
            };
            Ok((names.into_iter().map(owner).collect::<Vec<_>>(), is_cut))
        });
        let (found, is_cut) = found.await?;
        if is_cut && told.insert(String::new()) {
            tracing::warn!(
                "the shared directory has more than {SHARED_VOLUMES_MAX} names: some are left out"
            );
        }
        let mut volumes: BTreeMap<ServiceId, Vec<PathBuf>> = BTreeMap::new();
        for (root, owner) in found {
            match owner {
                Ok(Some(service)) if service != self.hub.service() => {
                    volumes.entry(service).or_default().push(root);
                }
                Ok(_) => {}
                // A file beside the volumes is none of them.
                Err(error) if error.kind != ErrorKind::Corrupt => {}
                Err(error) => {
                    if told.insert(root.display().to_string()) {
                        tracing::warn!(%error, "a shared volume has no readable identity: nobody takes it over");
                    }
                }
            }
        }
        Ok(volumes)
    }

    /// Takes over the volumes of services that were silent for long enough.
    async fn take_silent(
        &self,
        found: BTreeMap<ServiceId, Vec<PathBuf>>,
        silent: &mut BTreeMap<ServiceId, Instant>,
        running: &mut BTreeMap<ServiceId, Running>,
    ) {
        let table = self.hub.with(|service, _| service.table());
        let is_live = |service| {
            let mut records = table.0.iter();
            records.any(|record| record.service == service && record.state != ServiceState::Gone)
        };
        silent.retain(|service, _| found.contains_key(service) && !is_live(*service));
        for (service, volumes) in found {
            if running.contains_key(&service) || is_live(service) {
                continue;
            }
            let since = *silent.entry(service).or_insert_with(Instant::now);
            if since.elapsed() < self.shared.after {
                continue;
            }
            // After a failure, also that of another service having been first, the wait begins anew.
            silent.remove(&service);
            match self.take(service, volumes.clone()).await {
                Ok(server) => {
                    tracing::warn!(%service, address = %server.address(), "a service is gone: it runs here until it returns");
                    self.takeovers.0.lock().insert(service, shape(service, &server, &volumes));
                    running.insert(service, Running { server, volumes });
                }
                Err(error) if error.kind == ErrorKind::Unavailable => {
                    tracing::info!(%service, %error, "a silent service is not taken over");
                }
                Err(error) => tracing::error!(%service, %error, "a silent service cannot be taken over"),
            }
        }
    }

    /// Starts a service that is gone, on its volumes. It takes no new files.
    async fn take(&self, service: ServiceId, volumes: Vec<PathBuf>) -> Result<Server> {
        let mut settings = self.settings.clone();
        settings.name = format!("{service}, run by {}", self.hub.service());
        settings.volumes = volumes;
        settings.shared = None;
        settings.adopt = false;
        settings.takes_files = false;
        settings.blocks = TAKEOVER_BLOCKS;
        settings.listen = any_port(settings.listen);
        settings.http = settings.http.map(any_port);
        if let Some(links) = &mut settings.links {
            links.seeds.push(self.address.clone());
        }
        let listeners = Listeners::bind(&settings).await?;
        let (producers, http) = listeners.ports();
        settings.address = settings.address.map(|address| with_port(&address, producers));
        settings.http_url = settings.http_url.zip(http).map(|(url, port)| with_port(&url, port));
        let (disk, catalogue) = (Arc::clone(&self.disk), Arc::clone(&self.catalogue));
        let runtime = tokio::runtime::Handle::current();
        // It reads the indices, which takes a while.
        blocking(move || runtime.block_on(Server::start_on(listeners, settings, disk, catalogue))).await
    }

    /// Ends the services whose machines are back.
    async fn return_wanted(&self, running: &mut BTreeMap<ServiceId, Running>) {
        let mut wanted = Vec::new();
        for (service, of) in &*running {
            let (disk, volumes) = (Arc::clone(&self.disk), of.volumes.clone());
            let asked = move || {
                let mark = |volume: &PathBuf| exists(&*disk, &volume.join(WANTED)).unwrap_or(false);
                Ok(volumes.iter().any(mark))
            };
            if of.server.is_fenced() || blocking(asked).await.unwrap_or(false) {
                wanted.push(*service);
            }
        }
        for service in wanted {
            if let Some(of) = running.remove(&service) {
                self.end(service, of).await;
                tracing::warn!(%service, "the volumes of a service are returned to it");
            }
        }
    }

    async fn end(&self, service: ServiceId, of: Running) {
        of.server.stop().await;
        self.takeovers.0.lock().remove(&service);
    }
}

fn shape(service: ServiceId, server: &Server, volumes: &[PathBuf]) -> WriterTakeover {
    WriterTakeover {
        service: service.to_string(),
        address: server.address().to_string(),
        http: server.http_address().map(|address| address.to_string()).unwrap_or_default(),
        volumes: volumes.iter().map(|path| Path::display(path).to_string()).collect(),
        since: wall_time().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_addresses_and_urls_are_replaced() {
        for (of, expected) in [
            ("daq1:27700", "daq1:9"),
            ("[::1]:27700", "[::1]:9"),
            ("https://daq1:27780", "https://daq1:9"),
            ("https://daq1/", "https://daq1:9"),
        ] {
            assert_eq!(with_port(of, 9), expected);
        }
    }
}
