//! Identity from client certificates, checked against the operator's trusted authorities and our
//! own.
//!
//! The TLS handshake only proves that the client has the key of its certificate. The server checks
//! the certificate after the handshake. So a rejected client gets a reason (401) instead of a
//! closed connection.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_catalogue::{Caller, Catalogue};
use exacat_model::{AccountName, Error, ErrorKind, Result, TimeMs};
use exacat_wire::subject;
use parking_lot::{Mutex, RwLock};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};

use super::authority::{Authority, Holder, unauthenticated};
use crate::directory::failed;
use crate::tls::provider;

/// Interval at which authorities, revocations and the map of users are read again, because they
/// change while a server runs.
const READ_AGAIN: Duration = Duration::from_secs(600);
/// Most bytes of one file of authorities, revocations or users.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Most files read in a directory of authorities.
const FILES_MAX: usize = 10_000;
/// Most certificates from a client: its own and those between it and an authority.
const CHAIN_MAX: usize = 10;

/// Contents of a valid certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// Subject, in the grid form: `/DC=org/CN=Jane Doe`.
    pub subject: String,
    /// Time from which it is no longer valid.
    pub expires: TimeMs,
    /// Holder, if it is one of our own tokens.
    pub(super) holder: Option<Holder>,
    /// SHA-256 of the certificate.
    pub digest: [u8; 32],
}

/// The trusted authorities and users, as last read.
struct Trusted {
    authorities: Option<Arc<dyn ClientCertVerifier>>,
    users: HashMap<String, AccountName>,
}

/// Checks certificates.
pub(crate) struct Certificates {
    authorities: Option<PathBuf>,
    map: Option<PathBuf>,
    authority: Arc<Authority>,
    trusted: RwLock<Arc<Trusted>>,
    read: Mutex<Instant>,
}

impl Certificates {
    /// Reads the trusted files. A file that cannot be read is an error now; a later refresh keeps
    /// the old state.
    pub(super) fn open(
        authorities: Option<PathBuf>,
        map: Option<PathBuf>,
        authority: Arc<Authority>,
    ) -> Result<Self> {
        let trusted = Trusted::read(authorities.as_deref(), map.as_deref())?;
        Ok(Certificates {
            authorities,
            map,
            authority,
            trusted: RwLock::new(Arc::new(trusted)),
            read: Mutex::new(Instant::now()),
        })
    }

    /// Returns our own authority.
    pub(super) fn authority(&self) -> &Arc<Authority> {
        &self.authority
    }

    /// Reads the trusted files again, if that is due.
    pub(crate) async fn refresh(&self) {
        {
            let mut read = self.read.lock();
            if read.elapsed() < READ_AGAIN {
                return;
            }
            *read = Instant::now();
        }
        let (authorities, map) = (self.authorities.clone(), self.map.clone());
        let read =
            tokio::task::spawn_blocking(move || Trusted::read(authorities.as_deref(), map.as_deref())).await;
        match read {
            Ok(Ok(trusted)) => *self.trusted.write() = Arc::new(trusted),
            Ok(Err(error)) => {
                tracing::warn!(%error, "the new files of authorities cannot be used: the old ones stay in force")
            }
            Err(error) => {
                tracing::warn!(%error, "the new files of authorities cannot be used: the old ones stay in force")
            }
        }
    }

    /// Returns the contents of a client's certificate, if it is valid.
    pub(crate) fn judge(&self, chain: &[CertificateDer<'_>], now: TimeMs) -> Result<Shown> {
        let [own, between @ ..] = chain else {
            return Err(unauthenticated("present a certificate: none was sent"));
        };
        if chain.len() > CHAIN_MAX {
            return Err(unauthenticated("the chain of certificates is too long"));
        }
        let time = UnixTime::since_unix_epoch(Duration::from_millis(now.0));
        let subject = subject::read(own)?;
        let holder = match self.authority.verifier().verify_client_cert(own, between, time) {
            Ok(_) => Some(Holder::of(&subject)?),
            Err(_) => {
                let trusted = Arc::clone(&self.trusted.read());
                let bad = |why: String| {
                    unauthenticated(&format!("the certificate of {} is not accepted: {why}", subject.text))
                };
                let authorities = trusted
                    .authorities
                    .as_ref()
                    .ok_or_else(|| bad("this server trusts its own tokens only".to_owned()))?;
                authorities.verify_client_cert(own, between, time).map_err(|error| bad(error.to_string()))?;
                None
            }
        };
        Ok(Shown { expires: subject.expires, subject: subject.text, holder, digest: sha256(own) })
    }

    /// Returns the caller that a valid certificate stands for.
    pub(crate) async fn caller(&self, catalogue: &Catalogue, shown: &Shown) -> Result<Caller> {
        if let Some(holder) = &shown.holder {
            let caller = catalogue.caller_named(&holder.account).await.map_err(as_stranger)?;
            return match holder.role == holder.account {
                true => Ok(caller),
                false => catalogue.become_user(&caller, &holder.role).await.map_err(as_stranger),
            };
        }
        match catalogue.caller_of_subject(&shown.subject).await {
            Err(error) if error.kind == ErrorKind::Unauthenticated => {
                let trusted = Arc::clone(&self.trusted.read());
                match trusted.users.get(&shown.subject) {
                    Some(account) => catalogue.caller_named(account).await.map_err(as_stranger),
                    None => Err(error),
                }
            }
            other => other,
        }
    }
}

/// Treats a missing or forbidden account like no account.
fn as_stranger(error: Error) -> Error {
    match error.kind {
        ErrorKind::NotFound | ErrorKind::Denied => unauthenticated(&error.message),
        _ => error,
    }
}

fn sha256(certificate: &CertificateDer<'_>) -> [u8; 32] {
    use sha2::Digest;
    sha2::Sha256::digest(certificate.as_ref()).into()
}

impl Trusted {
    fn read(authorities: Option<&Path>, map: Option<&Path>) -> Result<Self> {
        let authorities = authorities.map(verifier_of).transpose()?;
        let users = match map {
            Some(path) => read_map(&read_file(path)?, path)?,
            None => HashMap::new(),
        };
        Ok(Trusted { authorities, users })
    }
}

fn read_file(path: &Path) -> Result<String> {
    let bytes = std::fs::metadata(path).map_err(|error| failed("read", path, &error))?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(Error::invalid(format!(
            "{} has {bytes} bytes, the limit is {FILE_BYTES_MAX}",
            path.display()
        )));
    }
    let bytes = std::fs::read(path).map_err(|error| failed("read", path, &error))?;
    // Comments in files of authorities may have any encoding.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Parses a map in the grid form: each line a subject in quotes, and a user.
fn read_map(text: &str, path: &Path) -> Result<HashMap<String, AccountName>> {
    let mut users = HashMap::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let bad = |why: &str| Error::invalid(format!("{}: line {}: {why}", path.display(), index + 1));
        let (subject, user) = line
            .strip_prefix('"')
            .and_then(|rest| rest.split_once('"'))
            .ok_or_else(|| bad("\"SUBJECT\" USER is expected"))?;
        let user = user.trim().split([' ', '\t', ',']).next().unwrap_or_default();
        let user = AccountName::parse(user).map_err(|error| bad(&error.message))?;
        users.insert(subject.to_owned(), user);
    }
    Ok(users)
}

/// Loads the authorities in a file, or in the files of a grid directory, with the revocations
/// beside them.
fn verifier_of(path: &Path) -> Result<Arc<dyn ClientCertVerifier>> {
    let mut roots = RootCertStore::empty();
    let mut revocations: Vec<CertificateRevocationListDer<'static>> = Vec::new();
    let mut seen: BTreeSet<Vec<u8>> = BTreeSet::new();
    for file in files_of(path)? {
        let text = match read_file(&file) {
            Ok(text) => text,
            // A dangling link is no reason to refuse everybody.
            Err(error) => {
                tracing::warn!(%error, "an authority is left out");
                continue;
            }
        };
        for certificate in CertificateDer::pem_slice_iter(text.as_bytes()).flatten() {
            if seen.insert(certificate.to_vec())
                && let Err(error) = roots.add(certificate)
            {
                tracing::warn!(file = %file.display(), %error, "an authority is left out");
            }
        }
        for list in CertificateRevocationListDer::pem_slice_iter(text.as_bytes()).flatten() {
            if seen.insert(list.to_vec()) {
                revocations.push(list);
            }
        }
    }
    let roots = Arc::new(roots);
    let build = |lists: Vec<CertificateRevocationListDer<'static>>| {
        WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider())
            .with_crls(lists)
            .allow_unknown_revocation_status()
            .build()
    };
    let nothing = |error: &dyn std::fmt::Display| {
        Error::invalid(format!("{}: no authority to trust: {error}", path.display()))
    };
    build(Vec::new()).map_err(|error| nothing(&error))?;
    // Drop each unreadable list: one of them would make all others fail.
    revocations.retain(|list| match build(vec![list.clone()]) {
        Ok(_) => true,
        Err(error) => {
            tracing::warn!(%error, "a list of revocations is left out");
            false
        }
    });
    let verifier = build(revocations).map_err(|error| nothing(&error))?;
    Ok(verifier)
}

fn files_of(path: &Path) -> Result<Vec<PathBuf>> {
    let unreadable = |error: std::io::Error| failed("read", path, &error);
    if !std::fs::metadata(path).map_err(unreadable)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        // Hashed names end in a number; those of revocations in `r` and a number.
        let digits = ending.strip_prefix('r').unwrap_or(ending);
        let hashed = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if hashed || matches!(ending, "pem" | "crt" | "crl") {
            files.push(file);
        }
        if files.len() > FILES_MAX {
            return Err(Error::invalid(format!("{} has more than {FILES_MAX} files", path.display())));
        }
    }
    files.sort();
    Ok(files)
}

/// Requests a certificate in the handshake and checks only that the client has its key; the module
/// gives the reason.
#[derive(Debug)]
pub(crate) struct KeyHolder(Arc<CryptoProvider>);

impl KeyHolder {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(KeyHolder(provider()))
    }
}

impl ClientCertVerifier for KeyHolder {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _own: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> std::result::Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_of_users_is_read_as_grids_write_it() {
        let path = Path::new("map");
        let text = "# who is who\n\n\"/DC=org/CN=Jane Doe\" jdoe\n\t\"/CN=two\" x,y\n";
        let users = read_map(text, path).unwrap();
        assert_eq!(users["/DC=org/CN=Jane Doe"].as_str(), "jdoe");
        assert_eq!(users["/CN=two"].as_str(), "x");
        for bad in ["/CN=x jdoe", "\"/CN=x jdoe", "\"/CN=x\"", "\"/CN=x\" -bad"] {
            let error = read_map(bad, path).unwrap_err();
            assert!(error.message.contains("line 1"), "{bad}: {error}");
        }
    }
}
