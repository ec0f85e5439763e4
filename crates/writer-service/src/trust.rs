//! Trust between writer services: certificates of one authority that name a service, or a plain network.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use exacat_model::{Error, Result};
use exacat_wire::writer::limits::SERVICES_MAX;
use exacat_wire::writer::{Hello, Role};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::ClientCertVerifier;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
};

use crate::certificates::{OwnFiles, asking, authorities, provider};

/// Files of a service's identity, in PEM, and the names of all services.
#[derive(Clone, Debug)]
pub struct IdentityFiles {
    /// Certificate of this service, then those between it and the authority.
    pub chain: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Certificates of the authorities of services.
    pub authorities: PathBuf,
    /// Names of the services. The certificate of each has one of them.
    pub names: Vec<String>,
}

/// Predicate of addresses between which services need no certificate.
pub type PlainNetworks = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// Decides which peers are services.
#[derive(Clone)]
pub struct Trust {
    identity: Option<Identity>,
    plain: PlainNetworks,
}

#[derive(Clone)]
struct Identity {
    accepting: Arc<ServerConfig>,
    connecting: Arc<ClientConfig>,
    clients: Arc<dyn ClientCertVerifier>,
    names: Arc<[ServerName<'static>]>,
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.identity.as_ref().map(|identity| &identity.names);
        f.debug_struct("Trust").field("names", &names).finish_non_exhaustive()
    }
}

impl Trust {
    /// Loads the identity of this service; without one it knows services of plain networks only.
    pub fn load(files: Option<&IdentityFiles>, plain: PlainNetworks) -> Result<Trust> {
        Ok(Trust { identity: files.map(Identity::load).transpose()?, plain })
    }

    /// Returns the TLS configuration for accepted connections; none without an identity. It asks clients
    /// for certificates, and accepts any or none: the client proves only that the key is its own.
    /// [`Trust::judge_service`] judges the certificate, once the client claims to be a service.
    pub fn accepting(&self) -> Option<Arc<ServerConfig>> {
        self.identity.as_ref().map(|identity| Arc::clone(&identity.accepting))
    }

    /// Judges a peer that says it is a service. `certificates` are those that it showed, none over plain
    /// TCP.
    ///
    /// A hello with the identity of this service passes: a service connects to itself where it finds its
    /// own address.
    pub fn judge_service(
        &self,
        hello: &Hello,
        certificates: Option<&[CertificateDer<'_>]>,
        address: IpAddr,
    ) -> std::result::Result<(), String> {
        let Role::Service(service) = hello.role else {
            return Err("the peer is a producer, not a service".to_owned());
        };
        let address = address.to_canonical();
        if (self.plain)(address) {
            return Ok(());
        }
        let fault = match (&self.identity, certificates.and_then(<[_]>::split_first)) {
            (None, _) => "this service has no certificate".to_owned(),
            (_, None) => "it shows no certificate".to_owned(),
            (Some(identity), Some((leaf, between))) => match identity.judge(leaf, between) {
                Ok(()) => return Ok(()),
                Err(fault) => fault,
            },
        };
        Err(format!("service {service} at {address} is not trusted: {fault}, and its network is not plain"))
    }

    /// Returns the TLS configuration for connections to an address; none for plain TCP.
    pub(crate) fn way_to(&self, address: IpAddr) -> std::result::Result<Option<Arc<ClientConfig>>, String> {
        if (self.plain)(address.to_canonical()) {
            return Ok(None);
        }
        match &self.identity {
            Some(identity) => Ok(Some(Arc::clone(&identity.connecting))),
            None => Err("the network is not plain, and this service has no certificate".to_owned()),
        }
    }
}

impl Identity {
    fn load(files: &IdentityFiles) -> Result<Identity> {
        if files.names.is_empty() || files.names.len() > SERVICES_MAX {
            let reason = format!("the list of names of services has 1 to {SERVICES_MAX} names");
            return Err(Error::invalid(reason));
        }
        let named = |name: &String| {
            let bad = |_| Error::invalid(format!("{name:?} is no name of a host, and no IP address"));
            ServerName::try_from(name.clone()).map_err(bad)
        };
        let names: Arc<[ServerName<'static>]> = files.names.iter().map(named).collect::<Result<_>>()?;
        let (roots, clients) = authorities(&files.authorities)?;
        let own = OwnFiles { chain: &files.chain, key: &files.key };
        let accepting = asking(own)?;
        let (chain, key) = own.read()?;
        let services = Services { provider: provider(), roots, names: Arc::clone(&names) };
        let connecting = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| own.bad(&error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(services))
            .with_client_auth_cert(chain, key)
            .map_err(|error| own.bad(&error))?;
        Ok(Identity { accepting, connecting: Arc::new(connecting), clients, names })
    }

    /// Judges the certificate of a peer that connected.
    fn judge(
        &self,
        leaf: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
    ) -> std::result::Result<(), String> {
        let judged = self.clients.verify_client_cert(leaf, between, UnixTime::now());
        judged.and_then(|_| judge_name(leaf, &self.names)).map_err(|error| error.to_string())
    }
}

/// Says whether a certificate has one of the names.
fn judge_name(
    leaf: &CertificateDer<'_>,
    names: &[ServerName<'static>],
) -> std::result::Result<(), rustls::Error> {
    let parsed = ParsedCertificate::try_from(leaf)?;
    if names.iter().any(|name| verify_server_name(&parsed, name).is_ok()) {
        Ok(())
    } else {
        Err(rustls::Error::General("its certificate has none of the names of the services".to_owned()))
    }
}

/// Verifier of services by a connecting service. The address proves nothing, so the name that the
/// certificate must have is any of the services'.
#[derive(Debug)]
struct Services {
    provider: Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    names: Arc<[ServerName<'static>]>,
}

impl Services {
    fn algorithms(&self) -> &WebPkiSupportedAlgorithms {
        &self.provider.signature_verification_algorithms
    }
}

impl ServerCertVerifier for Services {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let parsed = ParsedCertificate::try_from(leaf)?;
        let algorithms = self.algorithms().all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, between, now, algorithms)?;
        judge_name(leaf, &self.names)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, leaf, signature, self.algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms().supported_schemes()
    }
}
