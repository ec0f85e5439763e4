//! Authentication of a connection's peer: by token, as the user of a local socket, or anonymous;
//! and the account that it acts as.

use exacat_catalogue::Caller;
use exacat_model::{AccountName, Error, ErrorKind, Result};
use exacat_wire::native::{Authenticate, Credentials, Identity};

use crate::peer::Peer;
use crate::service::{Checked, Requester, Service};

/// The account made with the catalogue.
const ADMIN: &str = "admin";

/// An authenticated client.
pub(crate) struct Session {
    /// The caller of its requests.
    pub requester: Requester,
    /// Time of the last check of the credentials.
    pub checked: Checked,
    peer: Peer,
    shown: Authenticate,
}

impl Session {
    /// Checks the credentials and opens a session.
    pub(crate) async fn open(service: &Service, peer: &Peer, shown: Authenticate) -> Result<Self> {
        let checked = service.checking();
        let caller = caller(service, *peer, &shown).await?;
        Ok(Session { requester: requester(service, caller, peer), checked, peer: *peer, shown })
    }

    /// Checks the same credentials again, because their rights may have changed or ended.
    pub(crate) async fn check_again(&mut self, service: &Service) -> Result<()> {
        let checked = service.checking();
        let caller = caller(service, self.peer, &self.shown).await?;
        if caller != *self.requester.caller {
            self.requester = requester(service, caller, &self.peer);
        }
        self.checked = checked;
        Ok(())
    }

    /// Returns the identity of the client, for the handshake.
    pub(crate) fn identity(&self) -> Identity {
        let caller = &self.requester.caller;
        Identity { user: caller.name().cloned(), scope: caller.scope().clone(), write: caller.may_write() }
    }
}

fn requester(service: &Service, caller: Caller, peer: &Peer) -> Requester {
    let requester = service.requester(caller);
    match peer {
        Peer::Network(address) => requester.at(address.ip()),
        Peer::Local { .. } => requester,
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
                    "present a token: only a local socket proves the user at its other end",
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

/// Returns the uid of this process.
pub(crate) fn own_uid() -> u32 {
    // SAFETY: geteuid takes nothing, touches nothing and cannot fail.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use exacat_catalogue::{Catalogue, Settings};
    use exacat_model::Operation;
    use exacat_model::operation::UserSettings;
    use exacat_store::SystemClock;
    use exacat_testkit::memory::MemoryStore;

    async fn service() -> Arc<Service> {
        let clock = Arc::new(SystemClock);
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let catalogue = Catalogue::open(store, clock, Settings::default()).await.unwrap();
        Service::alone(catalogue)
    }

    async fn who(service: &Service, uid: u32, act_as: Option<&str>) -> Result<String> {
        let act_as = act_as.map(|name| AccountName::parse(name).unwrap());
        let shown = Authenticate { credentials: Credentials::Local, act_as };
        let session = Session::open(service, &Peer::Local { uid }, shown).await?;
        Ok(session.identity().user.unwrap().to_string())
    }

    #[tokio::test]
    async fn the_uid_of_the_server_is_the_administrator_and_others_are_whom_they_are_said_to_be() {
        let service = service().await;
        let other = own_uid() + 1;
        assert_eq!(who(&service, own_uid(), None).await.unwrap(), "admin");
        assert_eq!(who(&service, other, None).await.unwrap_err().kind, ErrorKind::Unauthenticated);
        let admin = service.catalogue.caller_named(&AccountName::parse("admin").unwrap()).await.unwrap();
        let alice = UserSettings {
            name: AccountName::parse("alice").unwrap(),
            group: None,
            groups: None,
            roles: None,
            may_become: None,
            subjects: Some(vec![format!("uid:{other}")]),
            home: None,
            disabled: None,
            only_new: true,
        };
        service
            .catalogue
            .execute(
                &admin,
                service.catalogue.new_operation_id().unwrap(),
                Operation::UserSet(Box::new(alice)),
            )
            .await
            .unwrap();
        assert_eq!(who(&service, other, None).await.unwrap(), "alice");
        assert_eq!(who(&service, other, Some("admin")).await.unwrap_err().kind, ErrorKind::Denied);
        assert_eq!(who(&service, own_uid(), Some("alice")).await.unwrap(), "alice");
        assert_eq!(who(&service, other + 1, None).await.unwrap_err().kind, ErrorKind::Unauthenticated);
    }
}
