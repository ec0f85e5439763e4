//! The protocol of JAliEn's central services, which `alien.py` speaks. `docs/compat/jalien.md`
//! describes its supported part and the differences.
//!
//! [`http`] admits clients by their certificates ([`certificates`], [`authority`]). [`connection`]
//! serves one client, [`shell`] runs its commands, [`commands`] defines them. Clients that read and
//! write files elsewhere get [`envelopes`](crate::envelopes).

mod authority;
mod certificates;
mod commands;
mod connection;
mod http;
mod messages;
mod repeats;
mod shell;
mod texts;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_model::answer::SeUsage;
use exacat_model::{AccountName, Lfn, Result, TimeMs};
use exacat_store::Clock;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;

use crate::admission::Entrance;
use crate::directory::{DataDirectory, write_private, write_public};
use crate::envelopes::Envelopes;
use crate::places::Places;
use crate::service::Service;
use crate::settings::JalienSettings;
use authority::{Authority, Holder};
pub(crate) use certificates::{Certificates, KeyHolder, Shown};
use repeats::Repeats;

/// Age up to which names and labels of storage elements are reused.
const SES_KEPT: Duration = Duration::from_secs(5);
/// Lifetime of the administrator's own token, made at each start, in milliseconds.
const ADMIN_TOKEN_MS: u64 = 7 * 24 * 3_600_000;
/// The account made with the catalogue.
const ADMIN: &str = "admin";

/// Storage elements, with the time of reading.
type SesAt = (Instant, Arc<Vec<SeUsage>>);

/// The common state of all connections.
pub(crate) struct Face {
    service: Arc<Service>,
    clock: Arc<dyn Clock>,
    settings: JalienSettings,
    envelopes: Arc<Envelopes>,
    places: Arc<Places>,
    pub certificates: Arc<Certificates>,
    authority: Arc<Authority>,
    repeats: Repeats,
    ses: Mutex<Option<SesAt>>,
    /// Seats for contents of files in memory.
    contents: Arc<Semaphore>,
}

impl Face {
    /// Opens the face, and makes its files in the data directory.
    pub(crate) fn open(
        service: Arc<Service>,
        clock: Arc<dyn Clock>,
        settings: JalienSettings,
        envelopes: Arc<Envelopes>,
        places: Arc<Places>,
        directory: &DataDirectory,
    ) -> Result<Arc<Self>> {
        let (authorities, map) = (settings.authorities.clone(), settings.map.clone());
        let certificates = judge_of_certificates(authorities, map, directory, clock.now())?;
        let authority = Arc::clone(certificates.authority());
        Ok(Arc::new(Face {
            service,
            clock,
            settings,
            envelopes,
            places,
            certificates,
            authority,
            repeats: Repeats::default(),
            ses: Mutex::new(None),
            contents: Arc::new(Semaphore::new(commands::CONTENTS_AT_ONCE)),
        }))
    }

    /// Writes a token of the administrator, so that there is a way in before other accounts exist.
    pub(crate) async fn write_admin_token(&self, directory: &DataDirectory) -> Result<()> {
        let admin = AccountName::parse(ADMIN)?;
        let holder = Holder { account: admin.clone(), role: admin };
        let now = self.clock.now();
        let token = self.authority.issue(&holder, now, now.plus_ms(ADMIN_TOKEN_MS)).await?;
        let place = directory.jalien()?;
        write_private(&place.join("admin.key"), token.key.as_bytes())?;
        write_public(&place.join("admin.crt"), token.certificate.as_bytes())
    }

    /// Returns the default home of an account.
    fn home_of(&self, account: &AccountName) -> Result<Lfn> {
        let initial = account.as_str().chars().next().map_or_else(String::new, |first| first.to_string());
        let text = self.settings.home.replace("{initial}", &initial).replace("{user}", account.as_str());
        Lfn::parse(&text)
    }
}

/// Opens the judge of clients' certificates, those of our own authority among them.
pub(crate) fn judge_of_certificates(
    authorities: Option<PathBuf>,
    map: Option<PathBuf>,
    directory: &DataDirectory,
    now: TimeMs,
) -> Result<Arc<Certificates>> {
    let place = directory.jalien()?;
    let authority = Arc::new(Authority::open(place.join("authority.crt"), place.join("authority.key"), now)?);
    Ok(Arc::new(Certificates::open(authorities, map, authority)?))
}

/// Serves connections until the server stops; returns when the last of them has ended.
pub(crate) async fn serve(
    face: Arc<Face>,
    listener: TcpListener,
    acceptor: TlsAcceptor,
    alive: mpsc::Sender<()>,
) {
    let service = Arc::clone(&face.service);
    let begin = move |(stream, address)| {
        let entrance = super::entered(&face.service, face.service.admission.connections.enter(address))?;
        let (face, acceptor, alive) = (Arc::clone(&face), acceptor.clone(), alive.clone());
        Some(async move {
            secure(face, stream, address, acceptor, entrance).await;
            drop(alive);
        })
    };
    super::serve(&service, "jalien", move |context| listener.poll_accept(context), begin).await;
}

async fn secure(
    face: Arc<Face>,
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: TlsAcceptor,
    entrance: Entrance,
) {
    if let Some(stream) = super::secured(&face.service, &acceptor, stream, &peer).await {
        match entrance {
            Entrance::Taken(slot) => http::converse(face, stream, peer, slot).await,
            Entrance::Refused(slot) => {
                http::refuse(stream, peer).await;
                drop(slot);
            }
        }
    }
}
