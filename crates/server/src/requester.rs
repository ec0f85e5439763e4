//! The caller of a connection, with its share of the server and its host.

use std::net::IpAddr;
use std::sync::Arc;

use exacat_catalogue::Caller;
use tracing::field::DisplayValue;

use crate::admission::UserShare;

/// The caller of a connection, with its share of the server.
#[derive(Clone)]
pub(crate) struct Requester {
    pub caller: Arc<Caller>,
    pub share: Arc<UserShare>,
    /// Its host; none for a process on the server's machine, and for the server itself.
    pub host: Option<IpAddr>,
    /// Trace of the client that its request belongs to.
    #[cfg(feature = "otel")]
    pub trace: Option<crate::traces::TraceContext>,
}

impl Requester {
    /// Notes the host.
    pub(crate) fn at(self, host: IpAddr) -> Self {
        Requester { host: Some(host), ..self }
    }

    /// Returns the user's name, for the log.
    pub(crate) fn user(&self) -> &str {
        self.caller.name().map_or("", |name| name.as_str())
    }

    /// Returns the client's host, for the log.
    pub(crate) fn client(&self) -> Option<DisplayValue<IpAddr>> {
        self.host.map(tracing::field::display)
    }
}
