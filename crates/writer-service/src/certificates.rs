//! Certificates and keys in PEM files, and TLS that asks clients for certificates.

use std::path::Path;
use std::sync::Arc;

use exacat_model::{Error, Result};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme};

/// Files of a certificate, in PEM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnFiles<'a> {
    /// The certificate, then those between it and the authority.
    pub(crate) chain: &'a Path,
    /// Its key.
    pub(crate) key: &'a Path,
}

/// A certificate with those between it and its authority, and its key.
pub(crate) type Own = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl OwnFiles<'_> {
    /// Reads the files.
    pub(crate) fn read(&self) -> Result<Own> {
        let key = pem(self.key, PrivateKeyDer::from_pem_file(self.key))?;
        Ok((certificates(self.chain)?, key))
    }

    /// Returns the error of files that do not fit.
    pub(crate) fn bad(&self, error: &rustls::Error) -> Error {
        Error::invalid(format!("{} and {}: {error}", self.chain.display(), self.key.display()))
    }
}

/// Authorities of a file, and the verifier of the clients' certificates that they issued.
pub(crate) type Authorities = (Arc<RootCertStore>, Arc<dyn ClientCertVerifier>);

/// Reads the authorities in a file.
pub(crate) fn authorities(path: &Path) -> Result<Authorities> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(path)? {
        let bad = |error| Error::invalid(format!("{}: {error}", path.display()));
        roots.add(authority).map_err(bad)?;
    }
    let roots = Arc::new(roots);
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider())
        .build()
        .map_err(|error| Error::invalid(format!("{}: {error}", path.display())))?;
    Ok((roots, clients))
}

/// Returns the TLS of a listener that asks clients for certificates, and accepts any or none: the client
/// proves only that the key is its own.
pub(crate) fn asking(files: OwnFiles<'_>) -> Result<Arc<ServerConfig>> {
    let (chain, key) = files.read()?;
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| files.bad(&error))?
        .with_client_cert_verifier(Arc::new(Deferred(provider())))
        .with_single_cert(chain, key)
        .map_err(|error| files.bad(&error))?;
    Ok(Arc::new(config))
}

/// Returns the cryptography of all TLS connections.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn pem<T>(path: &Path, found: std::result::Result<T, rustls::pki_types::pem::Error>) -> Result<T> {
    found.map_err(|error| Error::invalid(format!("{}: {error}", path.display())))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let all = pem(path, CertificateDer::pem_file_iter(path))?;
    let all = pem(path, all.collect::<std::result::Result<Vec<_>, _>>())?;
    if all.is_empty() {
        return Err(Error::invalid(format!("{}: no certificate in it", path.display())));
    }
    Ok(all)
}

/// Verifier of clients that asks for a certificate, and leaves the judgement to the hello: producers may
/// have a token instead, and one with a bad certificate gets a reason.
#[derive(Debug)]
struct Deferred(Arc<CryptoProvider>);

impl ClientCertVerifier for Deferred {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
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
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, leaf, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, leaf, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
