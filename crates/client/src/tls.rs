//! Trust of certificates: those in a given file, those signed by one in it, or the one of a given
//! fingerprint. The client ignores the authorities that the system trusts.

use std::io::Read;
use std::sync::Arc;

use exacat_model::{Error, Result};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256};

use crate::settings::limits::CERTIFICATE_FILE_BYTES_MAX;
use crate::target::Trust;

/// Makes the configuration of all connections of a client; none without trust.
pub(crate) fn client_config(trust: &Trust) -> Result<Option<Arc<ClientConfig>>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = match trust {
        Trust::Nothing => return Ok(None),
        Trust::Fingerprint(fingerprint) => {
            Verifier { provider: provider.clone(), known: TrustedAs::Fingerprint(*fingerprint), signed: None }
        }
        Trust::Certificates(pem) => Verifier::of_certificates(provider.clone(), pem)
            .map_err(|why| Error::invalid(format!("certificates to trust: {why}")))?,
        Trust::CertificateFile(path) => {
            let mut pem = Vec::new();
            std::fs::File::open(path)
                .and_then(|file| file.take(CERTIFICATE_FILE_BYTES_MAX).read_to_end(&mut pem))
                .map_err(|error| Error::invalid(format!("cannot read {}: {error}", path.display())))?;
            Verifier::of_certificates(provider.clone(), &pem)
                .map_err(|why| Error::invalid(format!("certificates of {}: {why}", path.display())))?
        }
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::invalid(format!("TLS: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(Some(Arc::new(config)))
}

/// Certificates trusted as they are, for any name, because the caller chose them.
#[derive(Debug)]
enum TrustedAs {
    Certificates(Vec<CertificateDer<'static>>),
    Fingerprint([u8; 32]),
}

#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    known: TrustedAs,
    /// Trusts certificates signed by a known one, for the name in them.
    signed: Option<Arc<WebPkiServerVerifier>>,
}

impl Verifier {
    fn of_certificates(provider: Arc<CryptoProvider>, pem: &[u8]) -> std::result::Result<Self, String> {
        let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(pem)
            .collect::<std::result::Result<_, _>>()
            .map_err(|error| format!("not PEM: {error:?}"))?;
        if certificates.is_empty() {
            return Err("there is none".to_owned());
        }
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            roots.add(certificate.clone()).map_err(|error| error.to_string())?;
        }
        let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Verifier { provider, known: TrustedAs::Certificates(certificates), signed: Some(signed) })
    }

    fn knows(&self, certificate: &CertificateDer<'_>) -> bool {
        match &self.known {
            TrustedAs::Certificates(certificates) => certificates.iter().any(|known| known == certificate),
            TrustedAs::Fingerprint(fingerprint) => {
                Sha256::digest(certificate.as_ref()).as_slice() == fingerprint.as_slice()
            }
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        if self.knows(end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        match &self.signed {
            Some(signed) => {
                signed.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            None => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
