//! Metrics and health. They reveal nothing of the catalogue's contents and change nothing, so they
//! need no credentials.

use std::time::Duration;

use hyper::{Method, Response, StatusCode};

use super::answers::{Body, TEXT, not_allowed, text};
use crate::scrape::{self, Format};
use crate::service::Service;

/// Time in which the store must answer for the server to be ready.
const READY_TIME: Duration = Duration::from_secs(2);
/// The paths.
pub(super) const PATHS: [&str; 4] = ["/metrics", "/healthz", "/livez", "/readyz"];

/// Answers a request for a path of monitoring; none for any other path.
pub(super) async fn answer(
    service: &Service,
    method: &Method,
    path: &str,
    accept: &str,
) -> Option<Response<Body>> {
    if !PATHS.contains(&path) {
        return None;
    }
    if method != Method::GET && method != Method::HEAD {
        return Some(not_allowed("GET, HEAD"));
    }
    Some(match path {
        "/metrics" => {
            let format = Format::accepted(accept);
            match scrape::text(service.samples().await, format) {
                Ok(metrics) => text(StatusCode::OK, format.content_type(), metrics),
                Err(error) => {
                    tracing::error!(%error, "metrics cannot be written");
                    text(StatusCode::INTERNAL_SERVER_ERROR, TEXT, "metrics cannot be written\n".into())
                }
            }
        }
        "/healthz" => match healthy(service).await {
            Ok(()) => text(StatusCode::OK, TEXT, "healthy\n".into()),
            Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("not healthy: {why}\n")),
        },
        "/livez" => text(StatusCode::OK, TEXT, "alive\n".into()),
        "/readyz" => match ready(service).await {
            Ok(()) => text(StatusCode::OK, TEXT, "ready\n".into()),
            Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("not ready: {why}\n")),
        },
        _ => return None,
    })
}

/// Returns the reason if the server is unhealthy. A server whose log failed still serves reads, but
/// needs a restart.
pub(super) async fn healthy(service: &Service) -> Result<(), &'static str> {
    if service.catalogue.store().failure().is_some() {
        return Err("the log failed: changes are refused and reads are answered; start the server again");
    }
    ready(service).await
}

/// Returns the reason if the server would not serve a request now. The reason reveals nothing that
/// a stranger may not know.
async fn ready(service: &Service) -> Result<(), &'static str> {
    if !service.is_serving() {
        return Err("the server stops");
    }
    if service.is_drained() {
        return Err("the server is drained");
    }
    match tokio::time::timeout(READY_TIME, service.catalogue.store().revision()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => {
            tracing::warn!(%error, "not ready");
            Err("the store refuses")
        }
        Err(_) => Err("the store does not answer"),
    }
}
