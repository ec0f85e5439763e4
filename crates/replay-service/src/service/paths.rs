//! Paths of the service's HTTP, and their answers.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use exacat_http::answers::{Body, answer, json, metrics_answer, not_allowed, problem, set, text};
use exacat_http::limits::BODY_TIME_MAX;
use exacat_http::{ConnectionEvent, ConnectionLimits, Query, Site};
use exacat_model::{Error, ErrorKind, Result};
use exacat_replay::run::live::RunCommand;
use exacat_replay::run::settings::RunSettings;
use exacat_replay::run::shapes::{API, CinfoRequest, ItemsRequest, ResultsRequest};
use exacat_store::metric_text;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::WWW_AUTHENTICATE;
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use super::access::{Access, Right};
use super::held_run::HeldRun;
use super::metrics::Counts;
use super::reports::Reports;
use super::runs::Runs;
use super::shapes::{ReplayRunView, ReplayRuns};
use super::{metric_table, metrics, stress_test};
use crate::limits::{
    HTTP_BODIES_MAX, HTTP_BODY_BYTES_MAX, HTTP_CONNECTIONS_MAX, HTTP_CONNECTIONS_PER_ADDRESS_MAX,
};

/// Content type of pages.
const HTML: &str = "text/html; charset=utf-8";

/// See the module.
pub(crate) struct Paths {
    runs: Arc<Runs>,
    reports: Arc<Reports>,
    access: Access,
    bodies: Semaphore,
    counts: Counts,
}

impl Paths {
    pub(crate) fn new(runs: Arc<Runs>, reports: Arc<Reports>, access: Access) -> Self {
        let bodies = Semaphore::new(HTTP_BODIES_MAX);
        Paths { runs, reports, access, bodies, counts: Counts::default() }
    }

    async fn answer(&self, from: IpAddr, parts: &Parts, body: Incoming) -> Result<Response<Body>> {
        let path: Vec<&str> = parts.uri.path().trim_start_matches('/').split('/').collect();
        if path == ["livez"] {
            return Ok(text(StatusCode::OK, "alive\n".to_owned()));
        }
        self.access.check(&parts.headers, right_of(&path))?;
        match path.as_slice() {
            ["stress_test"] | ["stress_test", ""] => {
                reading(parts)?;
                stress_test::next(&self.runs, from).await
            }
            ["stress_result", id, code, duration] => {
                reading(parts)?;
                stress_test::result(&self.runs, from, [*id, *code, *duration]).await
            }
            ["metrics"] => {
                reading(parts)?;
                let samples = metrics::samples(&self.runs, self.reports.sides(), &self.counts);
                Ok(metrics_answer(metric_text(metric_table::METRICS, &samples)))
            }
            [""] => {
                reading(parts)?;
                Ok(page(self.reports.index(&self.runs)))
            }
            ["runs", name] => {
                reading(parts)?;
                Ok(page(self.reports.page(&self.runs, name).await?))
            }
            _ => match parts.uri.path().strip_prefix(API) {
                Some(rest) => self.api(parts, &rest.split('/').collect::<Vec<_>>(), body).await,
                None => Err(unknown_path()),
            },
        }
    }

    async fn api(&self, parts: &Parts, path: &[&str], body: Incoming) -> Result<Response<Body>> {
        let is_post = parts.method == Method::POST;
        match path {
            ["runs"] if is_post => {
                let settings: RunSettings = self.body(body).await?;
                let runs = Arc::clone(&self.runs);
                let created = tokio::task::spawn_blocking(move || runs.create(&settings)).await;
                let run = created.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))??;
                Ok(json(&view(&run)))
            }
            ["runs"] => {
                reading(parts)?;
                let runs = self.runs.all();
                Ok(json(&ReplayRuns { runs: runs.iter().map(|(_, run)| view(run)).collect() }))
            }
            ["runs", name] => {
                reading(parts)?;
                Ok(json(&view(&*self.runs.get(name)?)))
            }
            ["runs", name, "report"] => {
                reading(parts)?;
                Query::read(parts.uri.query(), &[])?;
                Ok(json(&*self.reports.report(&self.runs, name).await?))
            }
            ["runs", name, command] => {
                let run = self.runs.get(name)?;
                if !is_post {
                    return Ok(not_allowed("POST"));
                }
                if *command == "cinfo" {
                    let request: CinfoRequest = self.body(body).await?;
                    self.reports.sides().take_files(name, &run, request)?;
                    return Ok(json(&view(&run)));
                }
                self.run_command((name, &run), command, body).await
            }
            _ => Err(unknown_path()),
        }
    }

    async fn run_command(
        &self,
        (name, run): (&str, &HeldRun),
        command: &str,
        body: Incoming,
    ) -> Result<Response<Body>> {
        let command = match command {
            "items" => {
                let request: ItemsRequest = self.body(body).await?;
                return Ok(json(
                    &run.change(|live, now, journal| live.hand_out(&request, false, now, journal)).await?,
                ));
            }
            "results" => {
                let request: ResultsRequest = self.body(body).await?;
                return Ok(json(
                    &run.change(|live, now, journal| live.take_results(request, now, journal)).await?,
                ));
            }
            "start" => {
                self.reports.sides().begin(&self.runs, name, run).await;
                RunCommand::Start
            }
            "pause" => RunCommand::Pause,
            "resume" => RunCommand::Resume,
            "stop" => RunCommand::Stop,
            _ => return Err(unknown_path()),
        };
        run.change(|live, now, journal| live.command(command, now, journal)).await?;
        Ok(json(&view(run)))
    }

    /// Reads a body of JSON. Only some are in memory at once.
    async fn body<T: DeserializeOwned>(&self, body: Incoming) -> Result<T> {
        let whole = async {
            let _place = self.bodies.acquire().await;
            let body = Limited::new(body, HTTP_BODY_BYTES_MAX).collect().await;
            let bytes: Bytes = body.map(|body| body.to_bytes()).map_err(|_| {
                let what = format!("a body has at most {HTTP_BODY_BYTES_MAX} bytes: send fewer results");
                Error::new(ErrorKind::Limit, what)
            })?;
            serde_json::from_slice(&bytes).map_err(|error| Error::invalid(format!("the body: {error}")))
        };
        let late = || Error::new(ErrorKind::Unavailable, "the body did not come in time: send it again");
        tokio::time::timeout(BODY_TIME_MAX, whole).await.unwrap_or_else(|_| Err(late()))
    }
}

impl Site for Paths {
    async fn respond(&self, from: IpAddr, request: Request<Incoming>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let mut response = match self.answer(from.to_canonical(), &parts, body).await {
            Ok(response) => response,
            Err(error) => {
                let mut response = problem(&error);
                // Browsers ask a person for the token then, as a password.
                if error.kind == ErrorKind::Unauthenticated {
                    set(&mut response, WWW_AUTHENTICATE, "Basic realm=\"exacat replay\"");
                }
                response
            }
        };
        if parts.method == Method::HEAD {
            *response.body_mut() = Body::Whole(None);
        }
        response
    }

    fn speaks_plain(&self, from: IpAddr) -> bool {
        self.access.speaks_plain(from)
    }

    fn connection_limits(&self) -> ConnectionLimits {
        ConnectionLimits { all: HTTP_CONNECTIONS_MAX, per_address: HTTP_CONNECTIONS_PER_ADDRESS_MAX }
    }

    fn note(&self, event: ConnectionEvent) {
        match event {
            ConnectionEvent::Began => self.counts.connections.fetch_add(1, Ordering::Relaxed),
            ConnectionEvent::Ended => self.counts.connections.fetch_sub(1, Ordering::Relaxed),
            ConnectionEvent::Refused => {
                tracing::warn!("too many connections: one was refused");
                self.counts.refused.fetch_add(1, Ordering::Relaxed)
            }
        };
    }
}

/// Returns the right that a path needs.
fn right_of(path: &[&str]) -> Right {
    match path {
        ["stress_test", ..] | ["stress_result", ..] => Right::Agent,
        ["api", "v1", "runs", _, "items" | "results" | "cinfo"] => Right::Agent,
        _ => Right::Operator,
    }
}

fn view(run: &HeldRun) -> ReplayRunView {
    let now = run.clock().now();
    run.read(|live| ReplayRunView::of(live, now))
}

fn page(html: String) -> Response<Body> {
    answer(StatusCode::OK, HTML, Body::Whole(Some(html.into())))
}

fn reading(parts: &Parts) -> Result<()> {
    match parts.method {
        Method::GET | Method::HEAD => Ok(()),
        _ => Err(Error::invalid("this path takes GET and HEAD")),
    }
}

fn unknown_path() -> Error {
    Error::new(ErrorKind::NotFound, "no such path: docs/reference/replay-http.md lists them")
}
