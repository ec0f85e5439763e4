//! Who is at the other end: a token, the user of a local socket, or nobody; and whom it acts as.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use exacat_catalogue::Caller;
use exacat_model::{AccountName, Error, ErrorKind, Result};
use exacat_wire::native::{Authenticate, Credentials, Identity};

use crate::service::{Asker, Service};

/// The account made with the catalogue.
const ADMIN: &str = "admin";

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Somewhere on the network, over TLS.
    Network(SocketAddr),
    /// A process on this machine, over the Unix socket: the uid the kernel says it has.
    Local {
        /// Its uid.
        uid: u32,
    },
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Network(address) => fmt::Display::fmt(address, f),
            Peer::Local { uid } => write!(f, "uid:{uid}"),
        }
    }
}

/// An authenticated client.
pub(crate) struct Session {
    /// Who asks.
    pub asker: Asker,
    /// When the credentials were looked at last.
    pub checked: Instant,
    peer: Peer,
    shown: Authenticate,
}

impl Session {
    /// Looks at the credentials.
    pub async fn open(service: &Service, peer: &Peer, shown: Authenticate) -> Result<Self> {
        let caller = caller(service, *peer, &shown).await?;
        let share = service.admission.user(caller.user(), caller.name());
        Ok(Session {
            asker: Asker { caller: Arc::new(caller), share },
            checked: Instant::now(),
            peer: *peer,
            shown,
        })
    }

    /// Looks at the same credentials again: what they allow may have changed, or nothing at all any more.
    pub async fn check_again(&mut self, service: &Service) -> Result<()> {
        let caller = caller(service, self.peer, &self.shown).await?;
        if caller != *self.asker.caller {
            self.asker = Asker {
                share: service.admission.user(caller.user(), caller.name()),
                caller: Arc::new(caller),
            };
        }
        self.checked = Instant::now();
        Ok(())
    }

    /// Whom the client is taken for.
    pub fn identity(&self) -> Identity {
        let caller = &self.asker.caller;
        Identity { user: caller.name().cloned(), scope: caller.scope().clone(), write: caller.may_write() }
    }
}

async fn caller(service: &Service, peer: Peer, shown: &Authenticate) -> Result<Caller> {
    let caller = match &shown.credentials {
        Credentials::Anonymous => {
            if !service.anonymous_reads {
                return Err(unauthenticated("present a token: anonymous reads are not configured here"));
            }
            Caller::anonymous()
        }
        Credentials::Token(secret) => service.catalogue.authenticate(secret.expose()).await?,
        Credentials::Local => match peer {
            Peer::Network(_) => {
                return Err(unauthenticated(
                    "present a token: only a local socket tells who is at its other end",
                ));
            }
            Peer::Local { uid } if uid == own_uid() => {
                service.catalogue.caller_named(&AccountName::parse(ADMIN)?).await?
            }
            Peer::Local { uid } => service.catalogue.caller_of_subject(&format!("uid:{uid}")).await?,
        },
    };
    match &shown.act_as {
        None => Ok(caller),
        Some(name) => service.catalogue.become_user(&caller, name).await,
    }
}

fn unauthenticated(message: &str) -> Error {
    Error::new(ErrorKind::Unauthenticated, message)
}

/// The uid this process runs as.
pub(crate) fn own_uid() -> u32 {
    // SAFETY: geteuid takes nothing, touches nothing and cannot fail.
    unsafe { libc::geteuid() }
}
