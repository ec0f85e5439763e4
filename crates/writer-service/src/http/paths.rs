//! The paths of a service's HTTP, and their answers.

use std::net::IpAddr;
use std::sync::Arc;

use exacat_http::answers::{Body, json, metrics_answer, not_allowed, problem, text};
use exacat_http::limits::BODY_TIME_MAX;
use exacat_http::{ConnectionEvent, ConnectionLimits, Query, Site};
use exacat_model::{Error, ErrorKind, Result};
use exacat_store::metric_text;
use exacat_wire::writer::FileId;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};

use super::access::Access;
use super::content::Files;
use crate::content::Content;
use crate::limits::{
    FILES_PAGE_MAX, HTTP_BODY_BYTES_MAX, HTTP_CONNECTIONS_MAX, HTTP_CONNECTIONS_PER_ADDRESS_MAX,
};
use crate::measures::Measures;
use crate::metrics;
use crate::shapes::{API, WriterFile, file_id_of, stage_of};
use crate::stage_out::Mover;
use crate::view::View;

/// See the module.
pub(crate) struct Paths {
    view: View,
    access: Access,
    files: Files,
    mover: Arc<Mover>,
}

impl Site for Paths {
    async fn respond(&self, from: IpAddr, request: Request<Incoming>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        // An answer to HEAD has the headers of one to GET, and no pieces are taken.
        let is_head = parts.method == Method::HEAD;
        // Nothing here takes a body. A small one is read, so that the connection can go on.
        let body = Limited::new(body, HTTP_BODY_BYTES_MAX);
        let mut response = match tokio::time::timeout(BODY_TIME_MAX, body.collect()).await {
            Ok(Ok(_)) => self.answer(from, &parts).await.unwrap_or_else(|error| problem(&error)),
            _ => {
                let what = format!("a body has at most {HTTP_BODY_BYTES_MAX} bytes, and comes at once");
                problem(&Error::new(ErrorKind::Limit, what))
            }
        };
        let class = usize::from(response.status().as_u16() / 100).clamp(1, 5) - 1;
        self.measures().http.answers[class].add(1);
        if is_head {
            *response.body_mut() = Body::Whole(None);
        }
        response
    }

    fn speaks_plain(&self, from: IpAddr) -> bool {
        self.access.is_trusted(from)
    }

    fn connection_limits(&self) -> ConnectionLimits {
        ConnectionLimits { all: HTTP_CONNECTIONS_MAX, per_address: HTTP_CONNECTIONS_PER_ADDRESS_MAX }
    }

    fn note(&self, event: ConnectionEvent) {
        let measures = &self.measures().http;
        match event {
            ConnectionEvent::Began => measures.connections.add(1),
            ConnectionEvent::Ended => measures.connections.sub(1),
            ConnectionEvent::Refused => measures.refused_connections.add(1),
        }
    }
}

impl Paths {
    pub(crate) fn new(view: View, access: Access, content: Arc<Content>, mover: Arc<Mover>) -> Self {
        Paths { view, access, files: Files::new(content), mover }
    }

    fn measures(&self) -> &Measures {
        self.view.hub.measures()
    }

    async fn answer(&self, from: IpAddr, request: &Parts) -> Result<Response<Body>> {
        let path = request.uri.path();
        match path {
            "/livez" | "/readyz" | "/metrics" => self.monitor(from, request).await,
            _ => match path.strip_prefix(API) {
                Some(rest) => self.api(from, request, &rest.split('/').collect::<Vec<_>>()).await,
                None => Err(unknown_path()),
            },
        }
    }

    async fn monitor(&self, from: IpAddr, request: &Parts) -> Result<Response<Body>> {
        if !is_reading(&request.method) {
            return Ok(not_allowed("GET, HEAD"));
        }
        self.access.may_monitor(from, &request.headers).await?;
        Ok(match request.uri.path() {
            "/livez" => text(StatusCode::OK, "alive\n".to_owned()),
            "/readyz" => match self.view.table_state() {
                "up" => text(StatusCode::OK, "ready\n".to_owned()),
                state => {
                    text(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: the service is {state}\n"))
                }
            },
            _ => {
                let samples =
                    metrics::samples(&self.view.status(), &self.view.table(), self.view.hub.measures());
                metrics_answer(metric_text(crate::metric_table::METRICS, &samples))
            }
        })
    }

    async fn api(&self, from: IpAddr, request: &Parts, path: &[&str]) -> Result<Response<Body>> {
        let (methods, is_right) = match path {
            ["drain" | "resume"] | ["files", _, "remove" | "staged" | "stage-out"] => {
                ("POST", request.method == Method::POST)
            }
            ["status" | "table" | "files" | "content"] | ["content" | "files", _] | ["parts", _, _] => {
                ("GET, HEAD", is_reading(&request.method))
            }
            _ => return Err(unknown_path()),
        };
        if !is_right {
            return Ok(not_allowed(methods));
        }
        match path {
            ["content"] => return self.files.file(&self.access, request, None).await,
            ["content", id] => return self.files.file(&self.access, request, Some(id)).await,
            ["parts", id, epoch] => return self.files.part(&self.access, request, id, epoch).await,
            _ => {}
        }
        let fields: &[&str] = match path {
            ["files"] => &["stage", "after", "limit"],
            ["files", _, "stage-out"] => &["se"],
            _ => &[],
        };
        let query = Query::read(request.uri.query(), fields)?;
        match path {
            ["status"] => {
                self.access.may_monitor(from, &request.headers).await?;
                Ok(json(&self.view.status()))
            }
            ["table"] => {
                self.access.may_monitor(from, &request.headers).await?;
                Ok(json(&self.view.table()))
            }
            _ => {
                // Names of files, and commands.
                self.access.may_operate(&request.headers).await?;
                match path {
                    ["files", id, "stage-out"] => {
                        let none = || Error::invalid("name the storage element: stage-out?se=NAME");
                        let se = query.get("se").ok_or_else(none)?;
                        Ok(json(&self.mover.order(file_id_of(id)?, se).await?))
                    }
                    _ => self.operate(path, &query),
                }
            }
        }
    }

    fn file(&self, file: FileId) -> Result<WriterFile> {
        let none = || Error::new(ErrorKind::NotFound, format!("the service has nothing of the file {file}"));
        self.view.file(file).ok_or_else(none)
    }

    fn operate(&self, path: &[&str], query: &Query) -> Result<Response<Body>> {
        match path {
            ["files"] => {
                let stage = query.get("stage").map(stage_of).transpose()?;
                let after = query.get("after").map(file_id_of).transpose()?;
                let limit = query.number("limit")?.unwrap_or(FILES_PAGE_MAX as u64);
                let limit = usize::try_from(limit).unwrap_or(usize::MAX);
                if limit == 0 || limit > FILES_PAGE_MAX {
                    return Err(Error::invalid(format!("the limit is 1 to {FILES_PAGE_MAX}")));
                }
                Ok(json(&self.view.files(stage, after, limit)))
            }
            ["files", id] => Ok(json(&self.file(file_id_of(id)?)?)),
            ["files", id, command] => {
                let file = file_id_of(id)?;
                // Unknown ones first: the other refusals are conflicts.
                self.file(file)?;
                let noted = self.view.hub.with(|service, now| match *command {
                    "remove" => service.remove(file, now),
                    _ => service.staged(file, now),
                });
                noted.map_err(|reason| Error::new(ErrorKind::Conflict, reason))?;
                Ok(json(&self.file(file)?))
            }
            [command @ ("drain" | "resume")] => {
                self.view.hub.with(|service, now| service.drain(*command == "drain", now));
                Ok(json(&self.view.status()))
            }
            _ => Err(unknown_path()),
        }
    }
}

fn is_reading(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

fn unknown_path() -> Error {
    Error::new(ErrorKind::NotFound, "no such path: docs/reference/writer-http.md lists them")
}
