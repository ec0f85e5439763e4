//! Subject of a certificate, in the grid form: `/C=ch/O=Somewhere/CN=Jane Doe`.

use exacat_model::limits::SUBJECT_BYTES_MAX;
use exacat_model::{Error, ErrorKind, Result, TimeMs};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The subject of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The subject as text.
    pub text: String,
    /// Its parts: name and value.
    pub parts: Vec<(&'static str, String)>,
    /// Time from which the certificate is no longer valid.
    pub expires: TimeMs,
}

/// Names of the parts of a subject, by object identifier, as in OpenSSL.
const CALLED: [(&str, &str); 12] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.42", "GN"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// Reads the subject. Refuses one that cannot be written as text.
pub fn read(certificate: &[u8]) -> Result<Subject> {
    let bad =
        |why: &str| Error::new(ErrorKind::Unauthenticated, format!("the certificate cannot be read: {why}"));
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(|error| bad(&error.to_string()))?;
    let mut text = String::new();
    let mut parts = Vec::new();
    for part in certificate.subject().iter_attributes() {
        let kind = part.attr_type().to_id_string();
        let called = CALLED
            .iter()
            .find(|(number, _)| *number == kind)
            .map(|(_, called)| *called)
            .ok_or_else(|| bad(&format!("its subject has a part of the unknown kind {kind}")))?;
        let value = part.as_str().map_err(|_| bad(&format!("the {called} of its subject is no text")))?;
        if value.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err(bad(&format!("the {called} of its subject has control characters")));
        }
        text.push('/');
        text.push_str(called);
        text.push('=');
        text.push_str(value);
        parts.push((called, value.to_owned()));
    }
    if text.is_empty() {
        return Err(bad("it has no subject"));
    }
    if text.len() > SUBJECT_BYTES_MAX {
        return Err(Error::limit("the length of a certificate's subject", text.len(), SUBJECT_BYTES_MAX));
    }
    let seconds = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
    Ok(Subject { text, parts, expires: TimeMs(seconds.saturating_mul(1000)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    #[test]
    fn a_subject_is_written_as_grids_do() {
        let mut name = DistinguishedName::new();
        name.push(DnType::CountryName, "ch");
        name.push(DnType::OrganizationName, "Somewhere");
        name.push(DnType::CustomDnType(vec![0, 9, 2342, 19_200_300, 100, 1, 25]), "cern");
        name.push(DnType::CommonName, "Jane Döe");
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = name;
        parameters.not_after = rcgen::date_time_ymd(2040, 1, 1);
        let certificate = parameters.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let subject = read(certificate.der()).unwrap();
        assert_eq!(subject.text, "/C=ch/O=Somewhere/DC=cern/CN=Jane Döe");
        assert_eq!(subject.expires, TimeMs(2_208_988_800_000));
        assert!(read(b"no certificate").is_err());
        let mut nobody = CertificateParams::default();
        nobody.distinguished_name = DistinguishedName::new();
        let nobody = nobody.self_signed(&KeyPair::generate().unwrap()).unwrap();
        assert!(read(nobody.der()).is_err());
    }
}
