//! The credential that each producer showed first: nobody else writes under its identity. Its identity is
//! public once a file of it is certified.

use std::collections::{HashMap, HashSet};

use exacat_wire::writer::WriterId;
use exacat_writer::limits::CONNECTIONS_MAX;

use crate::catalogue::Credential;
use crate::limits::SHOWN_MAX;

// So there is room for one more producer once only those that are connected are remembered.
const _: () = assert!(SHOWN_MAX > CONNECTIONS_MAX);

/// Credentials by the identity of their producers.
#[derive(Debug, Default)]
pub(crate) struct ShownCredentials(HashMap<WriterId, Credential>);

impl ShownCredentials {
    /// Remembers the credential of a producer. False if another one was shown under this identity.
    ///
    /// At [`SHOWN_MAX`] it forgets producers that are not connected. So nobody who shows many identities can
    /// take that of a producer that writes.
    pub(crate) fn admit(
        &mut self,
        writer: WriterId,
        credential: &Credential,
        connected: impl FnOnce() -> HashSet<WriterId>,
    ) -> bool {
        if let Some(first) = self.0.get(&writer) {
            return first.is_same_as(credential);
        }
        if self.0.len() >= SHOWN_MAX {
            let connected = connected();
            self.0.retain(|writer, _| connected.contains(writer));
        }
        self.0.insert(writer, credential.clone());
        true
    }
}

#[cfg(test)]
mod tests {
    use exacat_model::TimeMs;

    use super::*;
    use crate::catalogue::CertificateHolder;

    fn writer(number: usize) -> WriterId {
        WriterId((number as u128).to_le_bytes())
    }

    fn token(text: &str) -> Credential {
        Credential::Token(text.to_owned())
    }

    fn certificate(subject: &str, expires: u64) -> Credential {
        Credential::Certificate(CertificateHolder { subject: subject.to_owned(), expires: TimeMs(expires) })
    }

    /// Property: an identity belongs to the credential that was shown first, of any kind. A renewed
    /// certificate with the same subject is the same.
    #[test]
    fn identity_with_another_credential_is_refused() {
        let mut shown = ShownCredentials::default();
        let nobody = HashSet::new;
        let all = [token("a"), certificate("/CN=a", 1), Credential::None];
        for (number, first) in all.iter().enumerate() {
            assert!(shown.admit(writer(number), first, nobody) && shown.admit(writer(number), first, nobody));
            for other in all.iter().filter(|other| *other != first) {
                assert!(!shown.admit(writer(number), other, nobody), "{first:?} and {other:?}");
            }
        }
        assert!(!shown.admit(writer(0), &token("b"), nobody));
        assert!(!shown.admit(writer(1), &certificate("/CN=b", 1), nobody));
        assert!(!shown.admit(writer(1), &token("/CN=a"), nobody));
        assert!(shown.admit(writer(1), &certificate("/CN=a", 2), nobody));
    }

    /// Property: with too many producers those that are not connected are forgotten, and no others. The
    /// number that is remembered has a bound.
    #[test]
    fn producers_that_are_not_connected_are_forgotten_first() {
        let mut shown = ShownCredentials::default();
        let connected = || (0..CONNECTIONS_MAX).map(writer).collect::<HashSet<_>>();
        for number in 0..SHOWN_MAX {
            let not_yet = || -> HashSet<WriterId> { panic!("there is room for {number}") };
            assert!(shown.admit(writer(number), &token("first"), not_yet));
        }
        assert!(shown.admit(writer(SHOWN_MAX), &token("first"), connected));
        assert_eq!(shown.0.len(), CONNECTIONS_MAX + 1);
        for number in 0..CONNECTIONS_MAX {
            assert!(!shown.admit(writer(number), &token("second"), connected), "{number} is connected");
        }
        assert!(shown.admit(writer(CONNECTIONS_MAX), &token("second"), connected), "it is forgotten");
        for number in 0..2 * SHOWN_MAX {
            shown.admit(writer(SHOWN_MAX + number), &token("third"), connected);
            assert!(shown.0.len() <= SHOWN_MAX);
        }
        assert!(!shown.admit(writer(0), &token("second"), connected));
    }
}
