//! Identity of a server towards the others: a number, and a self-made certificate whose key it
//! alone has. Both are in a table of the catalogue. Anyone who may write that table may write the
//! catalogue, so servers trust each other by it, and an operator configures nothing.

use std::net::SocketAddr;
use std::sync::Arc;

use exacat_model::{Error, ErrorKind, Result, TimeMs};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    ClientConfig, CommonState, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig,
    SignatureScheme, version::TLS13,
};

use crate::cluster::{Cluster, failed};
use crate::limits::SERVER_LISTED_FOR;
use crate::log::FOREVER;
use crate::statement::cql;
use crate::tables::{Bound, big, blob, int, text};

/// Subject name of all certificates. Servers compare certificates by their bytes.
pub(super) const NAME: &str = "exacat";

/// Random bits of a server's number; the other bits are its time.
const RANDOM_BITS: u32 = 21;

/// This server, with its key.
pub(super) struct Identity {
    pub id: u64,
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
}

/// Entry of a server in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerRecord {
    pub id: u64,
    pub address: SocketAddr,
    certificate: Vec<u8>,
}

fn internal(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Internal, format!("TLS between servers: {what}"))
}

/// Makes the number of a server that is opened now. A server opened earlier has a smaller one.
pub(super) fn new_id(now: TimeMs) -> Result<u64> {
    let mut random = [0; 4];
    getrandom::fill(&mut random).map_err(|error| failed("be opened: no randomness", error))?;
    // Until the year 2109. After that the order of numbers means nothing, and some number is still
    // the smallest.
    let time = now.0 & (u64::MAX >> (RANDOM_BITS + 1));
    Ok(time << RANDOM_BITS | u64::from(u32::from_be_bytes(random) >> (32 - RANDOM_BITS)))
}

impl Identity {
    pub(crate) fn new(id: u64) -> Result<Self> {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).map_err(internal)?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        Ok(Identity { id, certificate: made.cert.der().clone(), key })
    }

    /// TLS configuration for connections from other servers.
    pub(crate) fn accepting(&self) -> Result<Arc<ServerConfig>> {
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(internal)?
            .with_client_cert_verifier(Arc::new(Any(provider)))
            .with_single_cert(vec![self.certificate.clone()], self.key())
            .map_err(internal)?;
        Ok(Arc::new(config))
    }

    /// TLS configuration for connections to that server, and to no other.
    pub(crate) fn connecting(&self, record: &ServerRecord) -> Result<Arc<ClientConfig>> {
        // The certificate is self-signed, so it is its own root.
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(record.certificate.clone())).map_err(internal)?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .map_err(internal)?
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![self.certificate.clone()], self.key())
            .map_err(internal)?;
        Ok(Arc::new(config))
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.key.clone_key())
    }

    /// This server's entry for the table, with the address where others reach it.
    pub(crate) fn record(&self, address: SocketAddr) -> ServerRecord {
        ServerRecord { id: self.id, address, certificate: self.certificate.to_vec() }
    }
}

impl ServerRecord {
    /// Puts it into the table, for `SERVER_LISTED_FOR` (2 days). Only its server writes its row, so
    /// a counter orders the writes.
    pub(crate) async fn publish(&self, cluster: &Cluster, number: i64) -> Result<()> {
        let bound = Bound {
            text: cql!("INSERT INTO servers (id, address, certificate) VALUES (?, ?, ?) USING TTL ?"),
            values: vec![
                big(self.id),
                text(&self.address.to_string()),
                blob(self.certificate.clone()),
                int(u32::try_from(SERVER_LISTED_FOR.as_secs()).unwrap_or(u32::MAX)),
            ],
        };
        cluster.write(&bound, number).await
    }

    /// Removes it from the table for good: `FOREVER` outranks any later entry.
    pub(crate) async fn withdraw(&self, cluster: &Cluster) -> Result<()> {
        let bound = Bound { text: cql!("DELETE FROM servers WHERE id = ?"), values: vec![big(self.id)] };
        cluster.write(&bound, FOREVER).await
    }

    /// Reads the entry of a server, if it serves.
    pub(crate) async fn find(cluster: &Cluster, id: u64) -> Result<Option<ServerRecord>> {
        let bound = Bound {
            text: cql!("SELECT address, certificate FROM servers WHERE id = ?"),
            values: vec![big(id)],
        };
        let Some(mut row) = cluster.read_one(&bound, false).await? else { return Ok(None) };
        let address = row.text()?;
        let address =
            address.parse().map_err(|_| failed("be read", format!("server {id} is at {address:?}")))?;
        let certificate = row.blob()?;
        Ok(Some(ServerRecord { id, address, certificate }))
    }

    /// Says whether the other side of a connection showed this certificate, and has its key.
    pub(crate) fn is_shown(&self, connection: &CommonState) -> bool {
        let shown = connection.peer_certificates().and_then(<[_]>::first);
        shown.is_some_and(|shown| shown.as_ref() == self.certificate)
    }
}

/// Accepts any client that has the key of its certificate. `authenticate` then looks up whose it is.
#[derive(Debug)]
struct Any(Arc<CryptoProvider>);

impl ClientCertVerifier for Any {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> std::result::Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("servers speak TLS 1.3".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, shown, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
