//! Our own certificate authority. It issues the tokens that `alien.py` uses after its first
//! connection. A token is a certificate of limited life; its subject names the account and the
//! role.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use exacat_model::{AccountName, Error, ErrorKind, Result, TimeMs};
use exacat_wire::subject::Subject;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData, SignatureAlgorithm,
};
use rsa::RsaPrivateKey;
use rsa::pkcs1::{EncodeRsaPrivateKey, EncodeRsaPublicKey, LineEnding};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use tokio::sync::Semaphore;

use crate::directory::{read, write_private, write_public};
use crate::tls::provider;

/// Bits of a token's RSA key. The client requires RSA, by the first line of the key file.
const KEY_BITS: usize = 2048;
/// Lifetime of the authority's own certificate, in milliseconds.
const AUTHORITY_MS: u64 = 30 * 366 * 24 * 3_600_000;
/// Last moment that a certificate can contain, in milliseconds: the year 9000.
const MOMENT_MS_MAX: u64 = 221_845_392_000_000;
/// Most keys made at once, because each takes a processor for a while.
const KEYS_AT_ONCE: usize = 1;
/// Most requests that wait for a key.
const KEYS_WAITING_MAX: usize = 64;
/// Validity of a token before its time of issue, in milliseconds, because clocks differ.
const CLOCKS_DIFFER_MS: u64 = 300_000;
/// First part of all subjects of tokens.
const ORGANISATION: &str = "exacat";
const USERS: &str = "Users";
/// Object identifier of "common name", which occurs twice in a token's subject.
const COMMON_NAME: [u64; 4] = [2, 5, 4, 3];

/// Error for a certificate that proves no identity.
pub(super) fn unauthenticated(message: &str) -> Error {
    Error::new(ErrorKind::Unauthenticated, message)
}

/// Holder of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    /// The account that the token was issued to.
    pub account: AccountName,
    /// The account that it acts as.
    pub role: AccountName,
}

impl Holder {
    /// Returns the holder in a token's subject. Only for certificates of our own authority.
    pub(crate) fn of(subject: &Subject) -> Result<Self> {
        let parts: Vec<(&str, &str)> =
            subject.parts.iter().map(|(called, value)| (*called, value.as_str())).collect();
        match parts.as_slice() {
            [("O", ORGANISATION), ("CN", USERS), ("CN", account), ("OU", role)] => {
                Ok(Holder { account: AccountName::parse(account)?, role: AccountName::parse(role)? })
            }
            _ => Err(unauthenticated(&format!("{} is no subject of a token", subject.text))),
        }
    }

    fn name(&self) -> DistinguishedName {
        let mut name = DistinguishedName::new();
        name.push(DnType::OrganizationName, ORGANISATION);
        name.push(DnType::CommonName, USERS);
        name.push(DnType::CustomDnType(COMMON_NAME.to_vec()), self.account.as_str());
        name.push(DnType::OrganizationalUnitName, self.role.as_str());
        name
    }
}

/// A token, as PEM texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CertificateToken {
    /// The token's certificate, and that of the authority.
    pub certificate: String,
    /// The token's key.
    pub key: String,
}

/// The authority.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    verifier: Arc<dyn ClientCertVerifier>,
    keys: Arc<Semaphore>,
    waiting: Arc<crate::admission::Bounded>,
}

impl Authority {
    /// Loads the authority's certificate and key from these files; makes them if they are missing.
    pub(crate) fn open(certificate: PathBuf, key: PathBuf, now: TimeMs) -> Result<Self> {
        let (certificate_pem, key_pem) = match (read(&certificate)?, read(&key)?) {
            (Some(certificate), Some(key)) => (certificate, key),
            (None, None) => {
                let (certificate_pem, key_pem) = make(now)?;
                write_private(&key, key_pem.as_bytes())?;
                write_public(&certificate, certificate_pem.as_bytes())?;
                tracing::info!(certificate = %certificate.display(), "made an authority for tokens");
                (certificate_pem, key_pem)
            }
            // The first start was interrupted between the two files: no token was issued yet.
            (None, Some(_)) => {
                let (certificate_pem, key_pem) = make(now)?;
                write_private(&key, key_pem.as_bytes())?;
                write_public(&certificate, certificate_pem.as_bytes())?;
                (certificate_pem, key_pem)
            }
            (Some(_), None) => {
                return Err(Error::invalid(format!(
                    "{} is there, its key {} is not: put the key back, or remove both and have all tokens issued anew",
                    certificate.display(),
                    key.display()
                )));
            }
        };
        let bad = |error: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Corrupt, format!("{}: {error}", certificate.display()))
        };
        let key = KeyPair::from_pem(&key_pem).map_err(|error| bad(&error))?;
        let issuer = Issuer::from_ca_cert_pem(&certificate_pem, key).map_err(|error| bad(&error))?;
        let mut roots = RootCertStore::empty();
        let der = CertificateDer::from_pem_slice(certificate_pem.as_bytes()).map_err(|error| bad(&error))?;
        roots.add(der).map_err(|error| bad(&error))?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(|error| bad(&error))?;
        Ok(Authority {
            issuer,
            certificate: certificate_pem,
            verifier,
            keys: Arc::new(Semaphore::new(KEYS_AT_ONCE)),
            waiting: crate::admission::Bounded::new(KEYS_WAITING_MAX),
        })
    }

    /// Returns a verifier that accepts only certificates of this authority.
    pub(crate) fn verifier(&self) -> &Arc<dyn ClientCertVerifier> {
        &self.verifier
    }

    /// Issues a token that is valid until `expires`.
    pub(crate) async fn issue(
        &self,
        holder: &Holder,
        now: TimeMs,
        expires: TimeMs,
    ) -> Result<CertificateToken> {
        let waits = self.waiting.take(1).ok_or_else(|| crate::admission::busy("tokens being issued"))?;
        let closed = |_| Error::new(ErrorKind::Unavailable, "the server stops");
        let permit = Arc::clone(&self.keys).acquire_owned().await.map_err(closed)?;
        let made = tokio::task::spawn_blocking(move || {
            let made = RsaPrivateKey::new(&mut rsa::rand_core::OsRng, KEY_BITS);
            drop(permit);
            made
        });
        let failed = |error: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Internal, format!("a token's key: {error}"))
        };
        let key = made.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
        drop(waits);
        let public = key.to_public_key().to_pkcs1_der().map_err(|error| failed(&error))?;
        let public = RsaPublic(public.as_bytes().to_vec());
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = holder.name();
        set_life(&mut parameters, now, expires)?;
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        parameters.use_authority_key_identifier_extension = true;
        let certificate = parameters.signed_by(&public, &self.issuer).map_err(|error| failed(&error))?.pem();
        let key = key.to_pkcs1_pem(LineEnding::LF).map_err(|error| failed(&error))?.to_string();
        Ok(CertificateToken { certificate: format!("{certificate}{}", self.certificate), key })
    }
}

/// The public half of a token's key.
struct RsaPublic(Vec<u8>);

impl PublicKeyData for RsaPublic {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_RSA_SHA256
    }
}

fn make(now: TimeMs) -> Result<(String, String)> {
    let bad = |error: rcgen::Error| Error::new(ErrorKind::Internal, format!("an authority: {error}"));
    let key = KeyPair::generate().map_err(bad)?;
    let mut parameters = CertificateParams::default();
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, ORGANISATION);
    name.push(DnType::CommonName, "exacat token authority");
    parameters.distinguished_name = name;
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_life(&mut parameters, now, now.plus_ms(AUTHORITY_MS))?;
    let certificate = parameters.self_signed(&key).map_err(bad)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// Sets a certificate's validity, from a little before `now` until `expires`.
fn set_life(parameters: &mut CertificateParams, now: TimeMs, expires: TimeMs) -> Result<()> {
    if expires.0 > MOMENT_MS_MAX || expires <= now {
        return Err(Error::invalid("a certificate cannot be good until then"));
    }
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    parameters.not_before = epoch + Duration::from_millis(now.0.saturating_sub(CLOCKS_DIFFER_MS));
    parameters.not_after = epoch + Duration::from_millis(expires.0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use exacat_wire::subject;
    use rustls::pki_types::UnixTime;

    const NOW: TimeMs = TimeMs(1_795_000_000_000);
    const HOUR_MS: u64 = 3_600_000;

    fn holder(account: &str, role: &str) -> Holder {
        Holder { account: AccountName::parse(account).unwrap(), role: AccountName::parse(role).unwrap() }
    }

    #[tokio::test]
    async fn tokens_are_told_from_others_and_say_whose_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Authority::open(directory.path().join("a.crt"), directory.path().join("a.key"), NOW);
        let jdoe = holder("jdoe", "prod");
        let token = open().unwrap().issue(&jdoe, NOW, NOW.plus_ms(HOUR_MS)).await.unwrap();
        assert!(token.key.starts_with("-----BEGIN RSA PRIVATE KEY-----"));
        let chain: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(token.certificate.as_bytes()).map(|one| one.unwrap()).collect();
        assert_eq!(chain.len(), 2);
        // Opens the same authority, as after a restart.
        let again = open().unwrap();
        let judge = |authority: &Authority, at: TimeMs| {
            let time = UnixTime::since_unix_epoch(Duration::from_millis(at.0));
            authority.verifier().verify_client_cert(&chain[0], &chain[1..], time).is_ok()
        };
        assert!(judge(&again, NOW) && judge(&again, NOW.plus_ms(HOUR_MS - 2000)));
        assert!(!judge(&again, NOW.plus_ms(HOUR_MS + 2000)), "it has expired");
        let read = subject::read(&chain[0]).unwrap();
        assert_eq!(read.text, "/O=exacat/CN=Users/CN=jdoe/OU=prod");
        assert_eq!(Holder::of(&read).unwrap(), jdoe);
        // Opens another authority of the same name.
        let elsewhere = tempfile::tempdir().unwrap();
        let other =
            Authority::open(elsewhere.path().join("a.crt"), elsewhere.path().join("a.key"), NOW).unwrap();
        assert!(!judge(&other, NOW));
    }

    #[test]
    fn an_authority_without_its_key_is_not_made_anew() {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = (directory.path().join("a.crt"), directory.path().join("a.key"));
        let open = || Authority::open(certificate.clone(), key.clone(), NOW);
        open().unwrap();
        std::fs::remove_file(&key).unwrap();
        assert_eq!(open().err().unwrap().kind, ErrorKind::Invalid);
    }
}
