//! Identity of a client: by its login token, by the account that it names (where trusted), by its
//! address, or anonymous.

use std::net::IpAddr;

use exacat_catalogue::Caller;
use exacat_model::{Error, ErrorKind, Result};
use exacat_wire::xrootd::Credentials;

use super::Face;
use crate::service::{Checked, Requester, Service};

/// Prefix of the subjects of accounts for a user name elsewhere.
const UNIX: &str = "unix:";
/// Prefix of the subjects of accounts for an address.
const HOST: &str = "host:";

/// Credentials that the client showed; the server checks them again at intervals.
#[derive(Clone)]
enum Shown {
    Token(String),
    Subject(String),
    Nothing,
}

/// An authenticated client.
pub(super) struct KnownClient {
    pub requester: Requester,
    pub checked: Checked,
    shown: Shown,
}

impl KnownClient {
    async fn open(service: &Service, shown: Shown, peer: IpAddr) -> Result<Self> {
        let checked = service.checking();
        let caller = caller(service, &shown).await?;
        Ok(KnownClient { requester: service.requester(caller).at(peer), checked, shown })
    }

    /// Authenticates a client by its credentials.
    pub(crate) async fn by_credentials(
        face: &Face,
        credentials: Credentials<'_>,
        peer: IpAddr,
    ) -> Result<Self> {
        let refused = |why: String| Error::new(ErrorKind::Unauthenticated, why);
        match credentials {
            Credentials::Token(token) => {
                KnownClient::open(&face.service, Shown::Token(token.to_owned()), peer).await
            }
            Credentials::Unix(user) if is_trusted(face, peer) => {
                KnownClient::open(&face.service, Shown::Subject(format!("{UNIX}{user}")), peer).await
            }
            Credentials::Unix(_) => {
                Err(refused(format!("{peer} is not trusted to name accounts: show a token")))
            }
            Credentials::Host => match KnownClient::by_place(face, peer).await? {
                Some(known) => Ok(known),
                None => Err(refused(format!("no account has the address {peer}: show a token"))),
            },
            Credentials::Other(name) => Err(refused(format!("the protocol {name:.20?} is not spoken here"))),
        }
    }

    /// Authenticates a client by its address: the account of that address, or anonymous if
    /// anonymous reads are allowed.
    pub(crate) async fn by_place(face: &Face, peer: IpAddr) -> Result<Option<Self>> {
        let subject = format!("{HOST}{}", peer.to_canonical());
        match KnownClient::open(&face.service, Shown::Subject(subject), peer).await {
            Ok(known) => Ok(Some(known)),
            Err(error) if error.kind != ErrorKind::Unauthenticated => Err(error),
            Err(_) if face.service.anonymous_reads => {
                KnownClient::open(&face.service, Shown::Nothing, peer).await.map(Some)
            }
            Err(_) => Ok(None),
        }
    }

    /// Checks the same credentials again, because their rights may have changed or ended.
    pub(crate) async fn check_again(&mut self, service: &Service) -> Result<()> {
        let checked = service.checking();
        let caller = caller(service, &self.shown).await?;
        if caller != *self.requester.caller {
            let host = self.requester.host;
            self.requester = Requester { host, ..service.requester(caller) };
        }
        self.checked = checked;
        Ok(())
    }

    /// Returns the name of the client's account.
    pub(crate) fn name(&self) -> &str {
        self.requester.caller.name().map_or("", |name| name.as_str())
    }
}

/// True if the server trusts the account that a client names.
pub(super) fn is_trusted(face: &Face, peer: IpAddr) -> bool {
    face.settings.trusted.iter().any(|network| network.contains(peer))
}

/// Returns the caller of a token that came with one request.
pub(super) async fn by_token(service: &Service, token: &str) -> Result<Requester> {
    Ok(service.requester(service.catalogue.authenticate(token).await?))
}

async fn caller(service: &Service, shown: &Shown) -> Result<Caller> {
    match shown {
        Shown::Token(token) => service.catalogue.authenticate(token).await,
        Shown::Subject(subject) => service.catalogue.caller_of_subject(subject).await,
        Shown::Nothing => Ok(Caller::anonymous()),
    }
}
