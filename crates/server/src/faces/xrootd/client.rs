//! Who a client is: by a token that it logs in with, by the account that it says it runs as where that is believed, by the
//! address that it comes from, or nobody.

use std::net::IpAddr;

use exacat_catalogue::Caller;
use exacat_model::{Error, ErrorKind, Result};
use exacat_wire::xrootd::Credentials;

use super::Face;
use crate::service::{Asker, Checked, Service};

/// Subjects of accounts that stand for an account elsewhere begin with this,
const UNIX: &str = "unix:";
/// and those that stand for an address.
const HOST: &str = "host:";

/// What was shown, and is looked at again now and then.
#[derive(Clone)]
enum Shown {
    Token(String),
    Subject(String),
    Nothing,
}

/// A client that is known.
pub(super) struct Known {
    pub asker: Asker,
    pub checked: Checked,
    shown: Shown,
}

impl Known {
    async fn open(service: &Service, shown: Shown) -> Result<Self> {
        let checked = service.checking();
        let caller = caller(service, &shown).await?;
        Ok(Known { asker: service.asker(caller), checked, shown })
    }

    /// By what it shows.
    pub async fn by_credentials(face: &Face, credentials: Credentials<'_>, peer: IpAddr) -> Result<Self> {
        let refused = |why: String| Error::new(ErrorKind::Unauthenticated, why);
        match credentials {
            Credentials::Token(token) => Known::open(&face.service, Shown::Token(token.to_owned())).await,
            Credentials::Unix(user) if is_trusted(face, peer) => {
                Known::open(&face.service, Shown::Subject(format!("{UNIX}{user}"))).await
            }
            Credentials::Unix(_) => {
                Err(refused(format!("accounts are not believed of {peer}: show a token")))
            }
            Credentials::Host => match Known::by_place(face, peer).await? {
                Some(known) => Ok(known),
                None => Err(refused(format!("nobody is known by the address {peer}: show a token"))),
            },
            Credentials::Other(name) => Err(refused(format!("the protocol {name:.20?} is not spoken here"))),
        }
    }

    /// By where it comes from: the account of that address, or anybody if those who are not known may read.
    pub async fn by_place(face: &Face, peer: IpAddr) -> Result<Option<Self>> {
        let subject = format!("{HOST}{}", peer.to_canonical());
        match Known::open(&face.service, Shown::Subject(subject)).await {
            Ok(known) => Ok(Some(known)),
            Err(error) if error.kind != ErrorKind::Unauthenticated => Err(error),
            Err(_) if face.service.anonymous_reads => {
                Known::open(&face.service, Shown::Nothing).await.map(Some)
            }
            Err(_) => Ok(None),
        }
    }

    /// Looks at the same again: what it allows may have changed, or nothing at all any more.
    pub async fn check_again(&mut self, service: &Service) -> Result<()> {
        let checked = service.checking();
        let caller = caller(service, &self.shown).await?;
        if caller != *self.asker.caller {
            self.asker = service.asker(caller);
        }
        self.checked = checked;
        Ok(())
    }

    /// Whom it is taken for.
    pub fn name(&self) -> &str {
        self.asker.caller.name().map_or("", |name| name.as_str())
    }
}

/// Is the account that a client says it runs as believed?
pub(super) fn is_trusted(face: &Face, peer: IpAddr) -> bool {
    face.settings.trusted.iter().any(|network| network.contains(peer))
}

/// Whoever shows this token, with one request.
pub(super) async fn by_token(service: &Service, token: &str) -> Result<Asker> {
    Ok(service.asker(service.catalogue.authenticate(token).await?))
}

async fn caller(service: &Service, shown: &Shown) -> Result<Caller> {
    match shown {
        Shown::Token(token) => service.catalogue.authenticate(token).await,
        Shown::Subject(subject) => service.catalogue.caller_of_subject(subject).await,
        Shown::Nothing => Ok(Caller::anonymous()),
    }
}
