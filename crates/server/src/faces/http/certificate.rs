//! The certificate that a client showed in the handshake: it stands for an account as in JAliEn's
//! protocol.

use std::sync::Arc;

use exacat_catalogue::{Caller, Catalogue};
use exacat_model::{Result, TimeMs};
use rustls::pki_types::CertificateDer;

use crate::faces::jalien::{Certificates, Shown};

/// A client's certificate, or the reason why it is not accepted.
pub(super) struct ClientCertificate {
    certificates: Arc<Certificates>,
    shown: Result<Shown>,
}

impl ClientCertificate {
    /// Judges a certificate and those between it and an authority.
    pub(crate) async fn judge(
        certificates: &Arc<Certificates>,
        chain: &[CertificateDer<'_>],
        now: TimeMs,
    ) -> Self {
        certificates.refresh().await;
        ClientCertificate { certificates: Arc::clone(certificates), shown: certificates.judge(chain, now) }
    }

    /// Returns the caller that it stands for, until it expires.
    pub(crate) async fn caller(&self, catalogue: &Catalogue) -> Result<Caller> {
        let shown = self.shown.as_ref().map_err(Clone::clone)?;
        let caller = self.certificates.caller(catalogue, shown).await?;
        Ok(caller.granted(None, shown.expires))
    }
}
