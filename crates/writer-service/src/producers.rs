//! Authorities of producers, and the credential that a certificate of theirs is.

use std::path::Path;
use std::sync::Arc;

use exacat_model::Result;
use exacat_wire::subject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::{CertificateError, ServerConfig};

use crate::catalogue::{CertificateHolder, Credential};
use crate::certificates::{OwnFiles, asking, authorities};
use crate::limits::SHOWN_CERTIFICATES_MAX;

/// Authorities whose certificates prove producers.
#[derive(Clone)]
pub struct ProducerAuthorities {
    accepting: Arc<ServerConfig>,
    clients: Arc<dyn ClientCertVerifier>,
}

impl ProducerAuthorities {
    /// Loads the authorities in a PEM file, for a service with the certificate in `chain` and its key.
    pub fn load(from: &Path, chain: &Path, key: &Path) -> Result<Self> {
        let (_, clients) = authorities(from)?;
        Ok(ProducerAuthorities { accepting: asking(OwnFiles { chain, key })?, clients })
    }

    /// Returns the TLS of the data path. It asks producers for certificates, and accepts any or none.
    pub(crate) fn accepting(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.accepting)
    }

    /// Returns the credential of a producer with these certificates, its own first; or the reason why they
    /// prove nothing.
    pub fn judge(&self, shown: &[CertificateDer<'_>]) -> std::result::Result<Credential, String> {
        let Some((own, between)) = shown.split_first() else { return Ok(Credential::None) };
        if shown.len() > SHOWN_CERTIFICATES_MAX {
            return Err(format!("a producer shows at most {SHOWN_CERTIFICATES_MAX} certificates"));
        }
        let subject = subject::read(own).map_err(|error| error.to_string())?;
        match self.clients.verify_client_cert(own, between, UnixTime::now()) {
            Ok(_) => {
                let holder = CertificateHolder { subject: subject.text, expires: subject.expires };
                Ok(Credential::Certificate(holder))
            }
            Err(error) => {
                Err(format!("the certificate of {} is not accepted: {}", subject.text, reason(&error)))
            }
        }
    }
}

/// Says why a certificate does not verify, and the remedy.
fn reason(error: &rustls::Error) -> String {
    use CertificateError::{
        Expired, ExpiredContext, InvalidPurpose, InvalidPurposeContext, NotValidYet, NotValidYetContext,
        UnknownIssuer,
    };
    let reason = match error {
        rustls::Error::InvalidCertificate(Expired | ExpiredContext { .. }) => "it has expired: renew it",
        rustls::Error::InvalidCertificate(NotValidYet | NotValidYetContext { .. }) => {
            "it is not valid yet: compare the clocks"
        }
        rustls::Error::InvalidCertificate(UnknownIssuer) => {
            "its authority is not one of those that this service accepts (--client-ca)"
        }
        rustls::Error::InvalidCertificate(InvalidPurpose | InvalidPurposeContext { .. }) => {
            "its extended key usage lacks clientAuth: take one for clients"
        }
        other => return other.to_string(),
    };
    reason.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
        ExtendedKeyUsagePurpose, IsCa, KeyPair,
    };

    type Authority = CertifiedIssuer<'static, KeyPair>;

    fn authority(name: &str) -> (CertificateParams, KeyPair) {
        let mut parameters = named(name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (parameters, KeyPair::generate().unwrap())
    }

    fn root(name: &str) -> Authority {
        let (parameters, key) = authority(name);
        CertifiedIssuer::self_signed(parameters, key).unwrap()
    }

    fn named(name: &str) -> CertificateParams {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = DistinguishedName::new();
        parameters.distinguished_name.push(DnType::OrganizationName, "Site");
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters
    }

    /// Makes a certificate of a producer, with changes.
    fn shown(by: &Authority, change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
        let mut parameters = named("daq");
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut parameters);
        parameters.signed_by(&KeyPair::generate().unwrap(), by).unwrap().der().clone()
    }

    fn accepted(of: &[&Authority]) -> ProducerAuthorities {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        let authorities: String = of.iter().map(|one| one.pem()).collect();
        ProducerAuthorities::load(
            &write("authorities.pem", authorities),
            &write("chain.pem", own.pem()),
            &write("key.pem", key.serialize_pem()),
        )
        .unwrap()
    }

    /// Property: a certificate of any accepted authority, also through one between, is the credential of its
    /// subject until it expires. No certificate is no credential.
    #[test]
    fn certificate_of_an_accepted_authority_is_its_subject() {
        let (one, two) = (root("one"), root("two"));
        let accepted = accepted(&[&one, &two]);
        let until = |parameters: &mut CertificateParams| {
            parameters.not_after = rcgen::date_time_ymd(2040, 1, 1);
        };
        let (parameters, key) = authority("between");
        let between = CertifiedIssuer::signed_by(parameters, key, &two).unwrap();
        let chains = [
            vec![shown(&one, until)],
            vec![shown(&two, until)],
            vec![shown(&between, until), between.der().clone()],
        ];
        for chain in chains {
            let Ok(Credential::Certificate(holder)) = accepted.judge(&chain) else { panic!("{chain:?}") };
            assert_eq!(holder.subject, "/O=Site/CN=daq");
            assert_eq!(holder.expires.0, 2_208_988_800_000);
        }
        assert!(matches!(accepted.judge(&[]), Ok(Credential::None)));
        let without = accepted.judge(&[shown(&between, until)]);
        assert!(without.is_err_and(|reason| reason.contains("--client-ca")), "the one between is missing");
    }

    /// Property: a certificate that is over, not yet valid, for servers only, of another authority, without a
    /// subject, or no certificate at all is refused with its reason.
    #[test]
    fn certificate_that_does_not_verify_is_refused_with_a_reason() {
        let (ours, others) = (root("ours"), root("others"));
        let accepted = accepted(&[&ours]);
        let year = |year| rcgen::date_time_ymd(year, 1, 1);
        let expired = shown(&ours, |of| (of.not_before, of.not_after) = (year(2020), year(2021)));
        let early = shown(&ours, |of| (of.not_before, of.not_after) = (year(2090), year(2091)));
        let of_server = shown(&ours, |of| of.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
        let nameless = shown(&ours, |of| of.distinguished_name = DistinguishedName::new());
        let long = vec![shown(&ours, |_| {}); SHOWN_CERTIFICATES_MAX + 1];
        for (chain, expected) in [
            (vec![expired], "/O=Site/CN=daq is not accepted: it has expired"),
            (vec![early], "not valid yet"),
            (vec![of_server], "clientAuth"),
            (vec![shown(&others, |_| {})], "--client-ca"),
            (vec![nameless], "no subject"),
            (vec![CertificateDer::from(vec![1, 2, 3])], "cannot be read"),
            (long, "at most"),
        ] {
            let reason = accepted.judge(&chain).err().unwrap_or_default();
            assert!(reason.contains(expected), "{expected}: {reason}");
        }
    }
}
