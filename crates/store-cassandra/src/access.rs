//! Access to a cluster: TLS, trusted authorities, a certificate, a user and a password.
//!
//! Secrets are in files that only their owner may read, never in arguments or the environment.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_model::{Error, ErrorKind, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::limits::{ACCESS_FILE_BYTES_MAX, PASSWORD_BYTES_MAX};

/// Credentials for a cluster that requires them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterAccess {
    /// Trusted authorities (PEM). With them TLS is used. A node is trusted if one of them signed
    /// its certificate for the address it is reached at.
    pub authorities: Option<PathBuf>,
    /// Certificate shown to nodes that request one: its chain and its key (PEM).
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// User, and file with the password.
    pub user: Option<(String, PathBuf)>,
}

fn bad(path: &Path, why: impl std::fmt::Display) -> Error {
    Error::invalid(format!("{}: {why}", path.display()))
}

/// Reads a small file. Others than the owner must not be able to read a secret one.
fn read(path: &Path, bytes_max: u64, secret: bool) -> Result<Vec<u8>> {
    let failed = |error: std::io::Error| bad(path, format!("cannot be read: {error}"));
    let file = std::fs::File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode();
    if secret && mode & 0o077 != 0 {
        return Err(bad(path, format!("others may read it (mode {:o}): chmod 600", mode & 0o777)));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > bytes_max {
        return Err(bad(path, format!("more than {bytes_max} bytes")));
    }
    Ok(bytes)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let pem = read(path, ACCESS_FILE_BYTES_MAX, false)?;
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(|error| bad(path, format!("not PEM: {error}")))?;
    if found.is_empty() { Err(bad(path, "there is no certificate in it")) } else { Ok(found) }
}

impl ClusterAccess {
    /// Makes the TLS configuration; none without TLS.
    pub(crate) fn tls(&self) -> Result<Option<Arc<ClientConfig>>> {
        let Some(authorities) = &self.authorities else {
            return match &self.certificate {
                None => Ok(None),
                Some((chain, _)) => {
                    Err(bad(chain, "a certificate is shown over TLS: name the authorities too"))
                }
            };
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(authorities)? {
            roots.add(certificate).map_err(|error| bad(authorities, error))?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::new(ErrorKind::Internal, format!("TLS: {error}")))?
            .with_root_certificates(roots);
        let config = match &self.certificate {
            None => config.with_no_client_auth(),
            Some((chain, key)) => {
                let pem = read(key, ACCESS_FILE_BYTES_MAX, true)?;
                let secret = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| bad(key, error))?;
                config
                    .with_client_auth_cert(certificates(chain)?, secret)
                    .map_err(|error| bad(chain, error))?
            }
        };
        Ok(Some(Arc::new(config)))
    }

    /// Reads the user and the password; none if no user is set.
    pub(crate) fn user_and_password(&self) -> Result<Option<(String, String)>> {
        let Some((user, path)) = &self.user else { return Ok(None) };
        let text = String::from_utf8(read(path, PASSWORD_BYTES_MAX, true)?);
        let text = text.map_err(|_| bad(path, "the password is not UTF-8"))?;
        let password = text.strip_suffix('\n').unwrap_or(&text);
        let password = password.strip_suffix('\r').unwrap_or(password);
        if password.is_empty() {
            return Err(bad(path, "there is no password in it"));
        }
        if self.authorities.is_none() {
            tracing::warn!(
                user,
                "the password for the cluster goes over the network in the clear: there is no TLS"
            );
        }
        Ok(Some((user.clone(), password.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn file(directory: &Path, name: &str, text: &[u8], mode: u32) -> PathBuf {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn a_password_is_its_owners_alone() {
        let directory = tempfile::tempdir().unwrap();
        let access = |text: &[u8], mode| {
            let path = file(directory.path(), "password", text, mode);
            ClusterAccess { user: Some(("exacat".to_owned(), path)), ..ClusterAccess::default() }
        };
        for mode in [0o600, 0o400] {
            let found = access(b"s3 cret\n", 0o600).user_and_password().unwrap();
            assert_eq!(found, Some(("exacat".to_owned(), "s3 cret".to_owned())), "{mode:o}");
        }
        for mode in [0o640, 0o604, 0o644, 0o660] {
            let refused = access(b"secret", mode).user_and_password().unwrap_err();
            assert!(refused.message.contains("chmod 600"), "{refused}");
        }
        let longest = "p".repeat(PASSWORD_BYTES_MAX as usize);
        assert_eq!(access(longest.as_bytes(), 0o600).user_and_password().unwrap().unwrap().1, longest);
        for bad in [&b""[..], b"\n", b"\xff", format!("{longest}p").as_bytes()] {
            let refused = access(bad, 0o600).user_and_password().unwrap_err();
            assert_eq!(refused.kind, ErrorKind::Invalid);
            assert!(!refused.message.contains("ppp"), "{refused}");
        }
        let gone = ClusterAccess {
            user: Some(("exacat".to_owned(), directory.path().join("none"))),
            ..ClusterAccess::default()
        };
        assert!(gone.user_and_password().unwrap_err().message.contains("none"));
        assert_eq!(ClusterAccess::default().user_and_password().unwrap(), None);
    }

    #[test]
    fn certificates_are_read_and_keys_are_secret() {
        let directory = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["exacat".to_owned()]).unwrap();
        let chain = file(directory.path(), "chain", made.cert.pem().as_bytes(), 0o644);
        let key = file(directory.path(), "key", made.signing_key.serialize_pem().as_bytes(), 0o600);
        assert!(ClusterAccess::default().tls().unwrap().is_none());
        let trusting = ClusterAccess { authorities: Some(chain.clone()), ..ClusterAccess::default() };
        assert!(trusting.tls().unwrap().is_some());
        let shown = Some((chain.clone(), key.clone()));
        assert!(ClusterAccess { certificate: shown.clone(), ..trusting.clone() }.tls().unwrap().is_some());
        let without = ClusterAccess { certificate: shown.clone(), ..ClusterAccess::default() };
        assert!(without.tls().unwrap_err().message.contains("authorities"));
        let none = file(directory.path(), "none", b"nothing", 0o600);
        let bad = ClusterAccess { authorities: Some(none.clone()), ..ClusterAccess::default() };
        assert!(bad.tls().unwrap_err().message.contains("no certificate"));
        let bad = ClusterAccess { certificate: Some((chain.clone(), none)), ..trusting.clone() };
        assert!(bad.tls().is_err());
        file(directory.path(), "key", made.signing_key.serialize_pem().as_bytes(), 0o640);
        let open = ClusterAccess { certificate: shown, ..trusting };
        assert!(open.tls().unwrap_err().message.contains("chmod 600"));
    }
}
