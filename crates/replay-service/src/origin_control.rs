//! Control of an origin over HTTP: its counters, and orders to go away and come back.
//!
//! `GET /api/v1/origin` has the counters, `POST /api/v1/origin/gone?seconds=S` lets it go away for a time,
//! `POST /api/v1/origin/back` lets it come back.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use exacat_http::answers::{Body, json, not_allowed, problem};
use exacat_http::{ConnectionEvent, ConnectionLimits, Query, Site};
use exacat_model::{Error, ErrorKind, Result};
use exacat_replay::run::shapes::API;
use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};
use tokio::task::{AbortHandle, JoinHandle};

use crate::limits::{CONTROL_CONNECTIONS_MAX, GONE_SECONDS_MAX};
use crate::origin::Origin;

/// Paths of the control.
struct Paths {
    origin: Arc<Origin>,
    /// Return that was ordered.
    coming_back: Mutex<Option<AbortHandle>>,
}

/// Origin with its control.
pub struct OriginControl {
    origin: Arc<Origin>,
    address: Option<SocketAddr>,
    end: watch::Sender<bool>,
    task: Option<JoinHandle<()>>,
}

impl OriginControl {
    /// Begins to serve the control of an origin; nothing without an address.
    ///
    /// # Errors
    /// The address is in use.
    pub async fn start(origin: Origin, listen: Option<SocketAddr>) -> Result<Self> {
        let origin = Arc::new(origin);
        let (end, is_ending) = watch::channel(false);
        let (mut address, mut task) = (None, None);
        if let Some(listen) = listen {
            let cannot = |error: std::io::Error| {
                Error::new(ErrorKind::Unavailable, format!("cannot listen at {listen}: {error}"))
            };
            let listener = TcpListener::bind(listen).await.map_err(cannot)?;
            address = Some(listener.local_addr().map_err(cannot)?);
            let paths = Paths { origin: Arc::clone(&origin), coming_back: Mutex::default() };
            task = Some(tokio::spawn(exacat_http::serve(Arc::new(paths), listener, None, is_ending)));
        }
        Ok(OriginControl { origin, address, end, task })
    }

    /// Returns the address of the control.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Returns the origin.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Stops both.
    pub async fn stop(self) {
        self.end.send_replace(true);
        if let Some(task) = self.task {
            let _ = task.await;
        }
        // An ordered return may still hold it; the process ends then.
        if let Some(origin) = Arc::into_inner(self.origin) {
            origin.stop().await;
        }
    }
}

impl Paths {
    async fn answer(&self, request: &Request<Incoming>) -> Result<Response<Body>> {
        let path = request.uri().path().strip_prefix(API).unwrap_or_default();
        match (path, request.method()) {
            ("origin", &Method::GET) => Ok(json(&self.origin.counters())),
            ("origin/gone", &Method::POST) => {
                let query = Query::read(request.uri().query(), &["seconds"])?;
                let seconds = query.number("seconds")?;
                if seconds.is_some_and(|seconds| seconds == 0 || seconds > GONE_SECONDS_MAX) {
                    return Err(Error::invalid(format!("it can be gone for 1 to {GONE_SECONDS_MAX} s")));
                }
                self.order(true, seconds).await?;
                Ok(json(&self.origin.counters()))
            }
            ("origin/back", &Method::POST) => {
                self.order(false, None).await?;
                Ok(json(&self.origin.counters()))
            }
            ("origin", _) => Ok(not_allowed("GET")),
            ("origin/gone" | "origin/back", _) => Ok(not_allowed("POST")),
            _ => Err(Error::not_found(format!(
                "no such path: {API}origin, {API}origin/gone, {API}origin/back"
            ))),
        }
    }

    /// Lets the origin go or come. The last order counts.
    async fn order(&self, is_gone: bool, seconds: Option<u64>) -> Result<()> {
        let mut coming_back = self.coming_back.lock().await;
        if let Some(earlier) = coming_back.take() {
            earlier.abort();
        }
        self.origin.set_gone(is_gone).await?;
        if let Some(seconds) = seconds {
            let origin = Arc::clone(&self.origin);
            let task = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                if let Err(error) = origin.set_gone(false).await {
                    tracing::error!(%error, "the origin cannot come back: order it again");
                }
            });
            *coming_back = Some(task.abort_handle());
        }
        Ok(())
    }
}

impl Site for Paths {
    async fn respond(&self, _from: IpAddr, request: Request<Incoming>) -> Response<Body> {
        self.answer(&request).await.unwrap_or_else(|error| problem(&error))
    }

    fn speaks_plain(&self, _from: IpAddr) -> bool {
        true
    }

    fn connection_limits(&self) -> ConnectionLimits {
        ConnectionLimits { all: CONTROL_CONNECTIONS_MAX, per_address: CONTROL_CONNECTIONS_MAX }
    }

    fn note(&self, _event: ConnectionEvent) {}
}
