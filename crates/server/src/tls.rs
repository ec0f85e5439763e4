//! TLS: the operator's certificate, or a self-signed one made at the first start.

use std::path::Path;
use std::sync::Arc;

use exacat_model::{Error, ErrorKind, Result};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::directory::{DataDirectory, read, write_private, write_public};
use crate::settings::{CertificateFiles, ServerSettings};

/// Names and addresses in a self-signed certificate, beside the host's own name.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// Name of the application protocol in the TLS handshake. A client may omit it.
const APPLICATION_PROTOCOL: &[u8] = b"exacat";
/// Authorities of the system, as Debian and most others have them.
const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Name of HTTP in the TLS handshake.
const HTTP: &[u8] = b"http/1.1";
/// Name of HTTP/2 in the TLS handshake.
pub(crate) const HTTP2: &[u8] = b"h2";

/// Returns the connector for HTTPS to servers whose certificates come from the authorities in a file;
/// none for those of the system.
pub(crate) fn connector(ca: Option<&Path>) -> Result<TlsConnector> {
    trusting(ca.unwrap_or_else(|| Path::new(SYSTEM_AUTHORITIES)))
        .map(|config| TlsConnector::from(Arc::new(config)))
}

/// Returns the configuration of a client that trusts the authorities in a file, and shows no certificate.
pub fn trusting(path: &Path) -> Result<ClientConfig> {
    let bad = |error: &dyn std::fmt::Display| {
        Error::new(ErrorKind::Unavailable, format!("{}: {error}", path.display()))
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| bad(&error))? {
        // A system may have authorities of kinds that rustls does not know.
        let _ = roots.add(certificate.map_err(|error| bad(&error))?);
    }
    if roots.is_empty() {
        return Err(bad(&"no authority in it"));
    }
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(&error))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Returns the cryptography of all TLS connections.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Returns the TLS acceptor of the native protocol. Makes the self-signed certificate if it is
/// needed and missing.
pub(crate) fn acceptor(settings: &ServerSettings, directory: &DataDirectory) -> Result<TlsAcceptor> {
    load(&certificate(settings, directory)?, &[APPLICATION_PROTOCOL], None)
}

/// Returns the TLS acceptor for clients that show certificates and speak HTTP.
pub(crate) fn acceptor_of_certificates(
    settings: &ServerSettings,
    directory: &DataDirectory,
    verifier: Arc<dyn ClientCertVerifier>,
) -> Result<TlsAcceptor> {
    load(&certificate(settings, directory)?, &[HTTP], Some(verifier))
}

/// Returns the TLS acceptor for clients without certificates: XRootD clients, which name no
/// protocol, and readers of keys over HTTP.
pub(crate) fn acceptor_of_xrootd(
    settings: &ServerSettings,
    directory: &DataDirectory,
) -> Result<TlsAcceptor> {
    load(&certificate(settings, directory)?, &[HTTP], None)
}

/// Returns the TLS acceptor of HTTP, in both versions. A verifier asks clients for certificates.
pub(crate) fn acceptor_of_http(
    settings: &ServerSettings,
    directory: &DataDirectory,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<TlsAcceptor> {
    load(&certificate(settings, directory)?, &[HTTP2, HTTP], verifier)
}

/// Returns the end of the server's certificate, in seconds since 1970; none without one.
pub(crate) fn certificate_end(settings: &ServerSettings, directory: &DataDirectory) -> Option<u64> {
    let chain =
        settings.certificate.as_ref().map_or_else(|| directory.certificate(), |files| files.chain.clone());
    let leaf = CertificateDer::pem_file_iter(chain).ok()?.next()?.ok()?;
    let (_, leaf) = X509Certificate::from_der(&leaf).ok()?;
    u64::try_from(leaf.validity().not_after.timestamp()).ok()
}

fn certificate(settings: &ServerSettings, directory: &DataDirectory) -> Result<CertificateFiles> {
    let files = match &settings.certificate {
        Some(files) => files.clone(),
        None => {
            let files = CertificateFiles { chain: directory.certificate(), key: directory.key() };
            match (read(&files.chain)?, read(&files.key)?) {
                (Some(_), Some(_)) => {}
                // One of the two is missing: the first start was interrupted, or the operator
                // removed one to get a new pair.
                _ => make_self_signed(&files, &settings.names)?,
            }
            files
        }
    };
    Ok(files)
}

fn make_self_signed(files: &CertificateFiles, further: &[String]) -> Result<()> {
    let mut names: Vec<String> = LOCAL_NAMES.map(str::to_owned).to_vec();
    names.extend(host_name());
    names.extend_from_slice(further);
    names.dedup();
    let bad = |error: rcgen::Error| {
        Error::invalid(format!("cannot make a certificate for {}: {error}", names.join(", ")))
    };
    let key = rcgen::KeyPair::generate().map_err(bad)?;
    let mut parameters = rcgen::CertificateParams::new(names.clone()).map_err(bad)?;
    let mut subject = rcgen::DistinguishedName::new();
    subject.push(rcgen::DnType::CommonName, "exacat");
    parameters.distinguished_name = subject;
    parameters.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = parameters.self_signed(&key).map_err(bad)?;
    write_private(&files.key, key.serialize_pem().as_bytes())?;
    write_public(&files.chain, certificate.pem().as_bytes())?;
    tracing::info!(certificate = %files.chain.display(), names = names.join(","), "made a self-signed certificate");
    Ok(())
}

/// Returns the host's name, if a certificate can contain it.
fn host_name() -> Option<String> {
    let mut buffer = [0u8; 256];
    // SAFETY: the buffer is valid for its length. The length given leaves room for the terminating
    // NUL.
    let result = unsafe { libc::gethostname(buffer.as_mut_ptr().cast(), buffer.len() - 1) };
    if result != 0 {
        return None;
    }
    let end = buffer.iter().position(|byte| *byte == 0)?;
    let name = std::str::from_utf8(&buffer[..end]).ok()?;
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    (!name.is_empty() && name.bytes().all(good)).then(|| name.to_owned())
}

/// Returns the configuration of a server of any protocol with this certificate.
pub fn certificate_config(files: &CertificateFiles) -> Result<Arc<rustls::ServerConfig>> {
    config_of(files, &[], None)
}

fn load(
    files: &CertificateFiles,
    protocols: &[&[u8]],
    verifier: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<TlsAcceptor> {
    config_of(files, protocols, verifier).map(TlsAcceptor::from)
}

fn config_of(
    files: &CertificateFiles,
    protocols: &[&[u8]],
    verifier: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<Arc<rustls::ServerConfig>> {
    let bad = |path: &Path, error: &dyn std::fmt::Display| {
        Error::new(ErrorKind::Invalid, format!("{}: {error}", path.display()))
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&files.chain)
        .map_err(|error| bad(&files.chain, &error))?
        .collect::<std::result::Result<_, _>>()
        .map_err(|error| bad(&files.chain, &error))?;
    if chain.is_empty() {
        return Err(bad(&files.chain, &"no certificate in it"));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| bad(&files.key, &error))?;
    let config = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(&files.chain, &error))?;
    let config = match verifier {
        None => config.with_no_client_auth(),
        Some(verifier) => config.with_client_cert_verifier(verifier),
    };
    let mut config = config.with_single_cert(chain, key).map_err(|error| bad(&files.chain, &error))?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_made_once_and_again_if_half_of_it_is_gone() {
        let path = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(path.path(), 0).unwrap();
        let settings = ServerSettings::new(path.path());
        acceptor(&settings, &directory).unwrap();
        let made = (read(&directory.certificate()).unwrap(), read(&directory.key()).unwrap());
        acceptor(&settings, &directory).unwrap();
        assert_eq!((read(&directory.certificate()).unwrap(), read(&directory.key()).unwrap()), made);
        std::fs::remove_file(directory.key()).unwrap();
        let in_2026 = 1_767_225_600;
        assert!(certificate_end(&settings, &directory).is_some_and(|end| end > in_2026));
        acceptor(&settings, &directory).unwrap();
        assert_ne!(read(&directory.certificate()).unwrap(), made.0);
    }

    #[test]
    fn files_that_do_not_belong_together_are_refused() {
        let one = tempfile::tempdir().unwrap();
        let two = tempfile::tempdir().unwrap();
        for path in [&one, &two] {
            let directory = DataDirectory::open(path.path(), 0).unwrap();
            acceptor(&ServerSettings::new(path.path()), &directory).unwrap();
        }
        let mixed =
            CertificateFiles { chain: one.path().join("server.crt"), key: two.path().join("server.key") };
        assert!(load(&mixed, &[APPLICATION_PROTOCOL], None).is_err());
        let none =
            CertificateFiles { chain: one.path().join("server.key"), key: two.path().join("server.key") };
        assert_eq!(load(&none, &[APPLICATION_PROTOCOL], None).err().unwrap().kind, ErrorKind::Invalid);
    }
}
