//! Protection of the connections, and the certificate of the producer.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::error::{Error, Result};

/// Protection of the connections.
#[derive(Clone)]
pub enum Security {
    /// None: events and tokens can be read on the network.
    Plain,
    /// TLS. The name in a service's certificate is that of the host in its address.
    Tls(Arc<ClientConfig>),
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Security::Plain => "Plain",
            Security::Tls(_) => "Tls",
        })
    }
}

/// Files of a producer's certificate, in PEM. It proves the producer where there is no token.
#[derive(Clone, Debug)]
pub struct ClientCertificate {
    /// The certificate, then those between it and its authority.
    pub chain: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Security {
    /// Reads the settings of TLS: a PEM file with the authorities of the services' certificates, and the
    /// certificate of the producer if it has one.
    pub fn tls(authorities: &Path, certificate: Option<&ClientCertificate>) -> Result<Security> {
        let mut roots = RootCertStore::empty();
        for authority in certificates(authorities)? {
            // A file of a system may have authorities of kinds that rustls does not know.
            let _ = roots.add(authority);
        }
        if roots.is_empty() {
            return Err(bad(authorities, &"no authority in it"));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| bad(authorities, &error))?
            .with_root_certificates(roots);
        let config = match certificate {
            None => config.with_no_client_auth(),
            Some(ClientCertificate { chain, key }) => {
                let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| bad(key, &error))?;
                config
                    .with_client_auth_cert(certificates(chain)?, secret)
                    .map_err(|error| bad(chain, &format!("it does not fit {}: {error}", key.display())))?
            }
        };
        Ok(Security::Tls(Arc::new(config)))
    }
}

fn bad(path: &Path, error: &dyn fmt::Display) -> Error {
    Error::Settings(format!("{}: {error}", path.display()))
}

/// Returns the certificates in a file; at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_file_iter(path).map_err(|error| bad(path, &error))?;
    let all: Vec<_> = all.collect::<std::result::Result<_, _>>().map_err(|error| bad(path, &error))?;
    if all.is_empty() { Err(bad(path, &"no certificate in it")) } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: files are read together or refused with the name of the one that is wrong.
    #[test]
    fn files_that_do_not_fit_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let pair = |name: &str| {
            let key = rcgen::KeyPair::generate().unwrap();
            let own = rcgen::CertificateParams::new([name.to_owned()]).unwrap().self_signed(&key).unwrap();
            let chain = write(&format!("{name}.crt"), &own.pem());
            ClientCertificate { chain, key: write(&format!("{name}.key"), &key.serialize_pem()) }
        };
        let (one, two) = (pair("one"), pair("two"));
        let (empty, missing) = (write("empty", ""), directory.path().join("missing"));
        assert!(matches!(Security::tls(&one.chain, None), Ok(Security::Tls(_))));
        assert!(matches!(Security::tls(&one.chain, Some(&two)), Ok(Security::Tls(_))));
        let with = |chain: &Path, key: &Path| ClientCertificate { chain: chain.into(), key: key.into() };
        for (authorities, certificate, named) in [
            (&empty, None, "empty: no certificate"),
            (&missing, None, "missing"),
            (&one.chain, Some(with(&empty, &one.key)), "empty: no certificate"),
            (&one.chain, Some(with(&one.chain, &empty)), "empty"),
            (&one.chain, Some(with(&missing, &one.key)), "missing"),
            (&one.chain, Some(with(&one.chain, &two.key)), "does not fit"),
        ] {
            let error = Security::tls(authorities, certificate.as_ref()).unwrap_err().to_string();
            assert!(error.contains(named), "{named}: {error}");
        }
    }
}
