//! Driver of the protocol of XRootD: open, read, close, on a connection that one access has for itself.
//!
//! A job has a connection of its own, and servers handle the requests of a connection one behind another. So
//! accesses share no connection: one that waits for the origin would hold up the others, and the times would
//! be those of the agent.

mod file;
mod pool;
mod session;

use exacat_model::Result;
use exacat_replay::run::outcome::Outcome;
use exacat_wire::xrootd::client::answer::OpenAnswer;
use exacat_wire::xrootd::client::request::write_open;
use exacat_wire::xrootd::numbers::{error, open, role};

use super::access::{Access, Failure, Reading, Verifier};
use super::limits::IDLE_PER_ACCESS;
use super::place::{CacheAddress, Place, TokenPolicy};
use super::settings::CacheSettings;
use super::work::Driver;
use file::OpenFile;
use pool::Pool;
use session::{Identity, Session, Short, nonsense};

/// Options of an open, as those of `xrdcp`.
const OPEN_OPTIONS: u16 = open::READ | open::ASYNC | open::RETURN_STAT;

/// Driver of the protocol of XRootD.
pub(crate) struct XrootdDriver {
    address: CacheAddress,
    settings: CacheSettings,
    identity: Identity,
    verifier: Verifier,
    pool: Pool,
}

/// Answer to an open.
enum Opened {
    File(Session, OpenAnswer),
    Elsewhere { port: i32, place: String, is_manager: bool },
}

impl XrootdDriver {
    /// Makes the driver of a cache. `in_flight` is the number of accesses at once.
    ///
    /// # Errors
    /// The address is none of a server of XRootD.
    pub(crate) fn new(settings: &CacheSettings, in_flight: usize) -> Result<Self> {
        let address = CacheAddress::parse(&settings.address)?;
        let server = address.server();
        let token = TokenPolicy::new(settings, &server.host, server.secure);
        Ok(XrootdDriver {
            identity: Identity { tls: settings.tls.clone(), token },
            verifier: Verifier::new(settings.verify_content),
            pool: Pool::new(if settings.is_connected_anew { 0 } else { in_flight * IDLE_PER_ACCESS }),
            address,
            settings: settings.clone(),
        })
    }

    /// Opens a file at a place.
    async fn open(&self, place: &Place) -> std::result::Result<Opened, Failure> {
        let path = self.identity.token.path(place);
        loop {
            let mut session = match self.pool.take(&place.server) {
                Some(session) => session,
                None => Session::begin(&place.server, &self.identity).await?,
            };
            match session.short(|out, stream| write_open(out, stream, OPEN_OPTIONS, &path)).await {
                Ok(Short::Body(body)) => {
                    let file = OpenAnswer::read(&body).ok_or_else(|| nonsense("an answer to no open"))?;
                    return Ok(Opened::File(session, file));
                }
                Ok(Short::Redirect { port, place: to }) => {
                    let is_manager = session.roles & role::MANAGER != 0;
                    self.pool.give(&place.server, session);
                    return Ok(Opened::Elsewhere { port, place: to, is_manager });
                }
                // The server had ended a session that nobody used.
                Err(failure)
                    if failure.outcome == Outcome::Connection && session.is_used && !session.has_answered => {
                }
                Err(failure) => {
                    if failure.number != 0 {
                        self.pool.give(&place.server, session);
                    }
                    return Err(failure);
                }
            }
        }
    }

    /// Opens a file, and follows redirections. A manager is asked again if the server fails that it named.
    async fn find(
        &self,
        place: Place,
        reading: &mut Reading,
    ) -> std::result::Result<(Place, Session, OpenAnswer), Failure> {
        let (mut place, mut manager) = (place, None::<Place>);
        // The failure of a server counts, not the answer of its manager that there is no other one.
        let mut first = None::<Failure>;
        loop {
            let failure = match self.open(&place).await {
                Ok(Opened::File(session, file)) => return Ok((place, session, file)),
                Ok(Opened::Elsewhere { port, place: to, is_manager }) => {
                    if reading.redirects >= self.settings.redirects_max {
                        let why = format!("more than {} redirections", self.settings.redirects_max);
                        return Err(Failure::new(Outcome::Server, why));
                    }
                    reading.redirects += 1;
                    let next = place.redirected(port, &to)?;
                    if is_manager {
                        manager = Some(place);
                    }
                    place = next;
                    continue;
                }
                Err(failure) => failure,
            };
            match (manager.take(), tried_reason(&failure)) {
                (Some(manager), Some(reason)) if manager.server != place.server => {
                    place = manager.with_tried(&place.server.host, reason);
                    first.get_or_insert(failure);
                }
                _ => {
                    return Err(match first {
                        None => failure,
                        Some(first) => {
                            let why = format!("{}; asked for another server: {}", first.why, failure.why);
                            Failure { why, ..first }
                        }
                    });
                }
            }
        }
    }
}

/// Returns the reason for which a manager is asked for another server, as the reference client names it.
fn tried_reason(failure: &Failure) -> Option<&'static str> {
    match (failure.outcome, failure.number) {
        (Outcome::Connection | Outcome::Handshake, _) => Some("srverr"),
        (_, error::NOT_FOUND) => Some("enoent"),
        (_, error::IO_ERROR) => Some("ioerr"),
        (_, error::FS_ERROR) => Some("fserr"),
        (_, error::SERVER_ERROR | error::OVERLOADED | error::NO_MEMORY) => Some("srverr"),
        _ => None,
    }
}

impl Driver for XrootdDriver {
    async fn read(&self, access: &Access, reading: &mut Reading) -> std::result::Result<(), Failure> {
        let place = self.address.place(&access.name)?;
        let (place, session, file) = self.find(place, reading).await?;
        let mut file = OpenFile::new(session, file, access, &self.settings, &self.verifier);
        let read = file.read(reading).await;
        if read.is_err() && !file.is_quiet() {
            // Answers are still under way: the connection ends, and the file with it.
            return read;
        }
        match file.close().await {
            Ok(session) => {
                self.pool.give(&place.server, session);
                read
            }
            Err(failure) => read.and(Err(failure)),
        }
    }
}
