//! Access to a file: the bytes it reads, the bytes that came, and the reason of its failure.

use std::sync::Arc;
use std::time::Duration;

use exacat_replay::content::Content;
use exacat_replay::run::outcome::Outcome;
use exacat_replay::trace::reads::Reads;
use exacat_wire::xrootd::numbers::error;
use tokio::time::Instant;

/// Access to a file.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    /// Name of the file.
    pub name: Arc<str>,
    /// Bytes of the file.
    pub size: u64,
    /// Adler-32 of the file, if it is known.
    pub adler32: Option<u32>,
    /// Bytes to read.
    pub reads: Reads,
}

/// Reason why an access failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Class.
    pub outcome: Outcome,
    /// Number of the error, 0 for none.
    pub number: u32,
    /// Text, for people.
    pub why: String,
}

impl Failure {
    pub(crate) fn new(outcome: Outcome, why: impl Into<String>) -> Self {
        Failure { outcome, number: 0, why: why.into() }
    }

    /// Makes a failure with a number.
    pub(crate) fn numbered(outcome: Outcome, number: u32, why: impl Into<String>) -> Self {
        Failure { outcome, number, why: why.into() }
    }

    /// Classifies an error of a server of XRootD.
    pub(crate) fn of_xrootd(number: u32, text: &str) -> Self {
        let outcome = match number {
            error::NOT_FOUND => Outcome::NotFound,
            // The number is the same for a right that is missing and for a token that is too old.
            error::NOT_AUTHORIZED | error::AUTH_FAILED if is_about_expiry(text) => Outcome::Expired,
            error::NOT_AUTHORIZED | error::AUTH_FAILED => Outcome::Denied,
            error::CHECKSUM_ERROR => Outcome::Checksum,
            error::REQUEST_TIMED_OUT => Outcome::Timeout,
            error::TLS_REQUIRED => Outcome::Handshake,
            _ => Outcome::Server,
        };
        Failure::numbered(outcome, number, text)
    }

    /// Classifies a status of HTTP.
    pub(crate) fn of_http(status: u16) -> Self {
        let outcome = match status {
            404 | 410 => Outcome::NotFound,
            401 | 403 => Outcome::Denied,
            408 | 504 => Outcome::Timeout,
            416 => Outcome::Short,
            _ => Outcome::Server,
        };
        Failure::numbered(outcome, u32::from(status), format!("HTTP status {status}"))
    }
}

/// Says whether an error tells of a token or certificate that is too old.
pub(crate) fn is_about_expiry(text: &str) -> bool {
    text.to_ascii_lowercase().contains("expired")
}

/// Bytes that came of an access so far. It outlives an access that is given up.
#[derive(Debug)]
pub(crate) struct Reading {
    begun: Instant,
    /// Time from the begin to the first byte.
    pub first_byte: Option<Duration>,
    /// Bytes that came.
    pub bytes: u64,
    /// Redirections that were followed.
    pub redirects: u32,
    /// Adler-32 of the whole file, if it was read whole.
    pub adler32: Option<u32>,
}

impl Reading {
    /// Begins now.
    pub(crate) fn new(begun: Instant) -> Self {
        Reading { begun, first_byte: None, bytes: 0, redirects: 0, adler32: None }
    }

    /// Adds bytes that came.
    pub(crate) fn came(&mut self, bytes: usize) {
        if bytes > 0 && self.first_byte.is_none() {
            self.first_byte = Some(self.begun.elapsed());
        }
        self.bytes += bytes as u64;
    }

    /// Compares the checksum of a file that was read whole.
    pub(crate) fn compare(&mut self, access: &Access, adler32: u32) -> Result<(), Failure> {
        self.adler32 = Some(adler32);
        match access.adler32 {
            Some(expected) if expected != adler32 => {
                let why = format!("adler32 is {adler32:08x}, expected {expected:08x}");
                Err(Failure::new(Outcome::Checksum, why))
            }
            _ => Ok(()),
        }
    }
}

/// Bytes between two comparisons with the known content.
const COMPARED_BYTES: usize = 64 << 10;

/// Comparison with content that follows from name and size.
#[derive(Clone)]
pub(crate) struct Verifier(Option<Arc<Content>>);

impl Verifier {
    /// Compares nothing, or all bytes.
    pub(crate) fn new(is_wanted: bool) -> Self {
        Verifier(is_wanted.then(|| Arc::new(Content::default())))
    }

    /// Refuses bytes that are not those of the file at a place.
    pub(crate) fn check(&self, name: &str, offset: u64, bytes: &[u8]) -> Result<(), Failure> {
        let Some(content) = &self.0 else { return Ok(()) };
        let mut expected = vec![0; bytes.len().min(COMPARED_BYTES)];
        let mut at = offset;
        for piece in bytes.chunks(COMPARED_BYTES) {
            let expected = &mut expected[..piece.len()];
            content.fill(name, at, expected);
            if expected != piece {
                let why = format!(
                    "other bytes than those of the file between {at} and {}",
                    at + piece.len() as u64
                );
                return Err(Failure::new(Outcome::Checksum, why));
            }
            at += piece.len() as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_servers_have_their_classes() {
        let class = |number, text| Failure::of_xrootd(number, text).outcome;
        assert_eq!(class(3011, ""), Outcome::NotFound);
        assert_eq!(class(3010, "denied"), Outcome::Denied);
        assert_eq!(class(3030, "token Expired"), Outcome::Expired);
        assert_eq!(class(3028, ""), Outcome::Handshake);
        assert_eq!((class(3007, ""), class(1, "")), (Outcome::Server, Outcome::Server));
        let class = |status| Failure::of_http(status).outcome;
        assert_eq!(
            (class(404), class(403), class(503)),
            (Outcome::NotFound, Outcome::Denied, Outcome::Server)
        );
        assert_eq!(Failure::of_http(503).number, 503);
    }

    /// Property: bytes of another place are found out, whatever the length of the pieces.
    #[test]
    fn other_bytes_than_those_of_the_file_are_found_out() {
        let content = Content::default();
        let mut bytes = vec![0; 3 << 20];
        content.fill("/a", 5, &mut bytes);
        let verifier = Verifier::new(true);
        assert!(verifier.check("/a", 5, &bytes).is_ok() && verifier.check("/a", 5, &bytes[..1]).is_ok());
        assert!(verifier.check("/a", 6, &bytes).is_err() && verifier.check("/b", 5, &bytes).is_err());
        *bytes.last_mut().unwrap() ^= 1;
        assert_eq!(verifier.check("/a", 5, &bytes).unwrap_err().outcome, Outcome::Checksum);
        assert!(Verifier::new(false).check("/a", 5, &bytes).is_ok() && verifier.check("/a", 9, &[]).is_ok());
    }
}
