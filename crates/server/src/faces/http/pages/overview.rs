//! The overview for operators: health in words, figures that live on by server-sent events, operations,
//! the engine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use exacat_model::answer::StatusPart;
use exacat_model::{Answer, Error, ErrorKind, Operation, Result};
use hyper::header::CONTENT_TYPE;
use hyper::{Response, StatusCode};
use tokio::sync::mpsc;

use super::super::answers::{Body, BodyPart, CancelOnDrop, EVENTS, empty, set};
use super::super::call::Call;
use super::super::health;
use super::figures::{Figure, Sample, Status, all, figures, nodes, operations, tiers};
use super::frame::{Frame, Link, Section, page};
use super::steps::REPAIR;
use super::tables::{as_csv, link_csv};
use super::text::visible;
use super::visit::{Visit, unfitting};
use crate::admission::busy;
use crate::service::Phase;

/// Interval of live figures.
const LIVE_TIME: Duration = Duration::from_secs(3);
/// Events between the server and a browser that does not read.
const EVENTS_AHEAD: usize = 1;

/// The page.
#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    health: String,
    health_class: &'static str,
    notes: Vec<String>,
    links: Vec<Link>,
    figures: Vec<Figure>,
    parts: Vec<Section>,
}

async fn status(call: &mut Call) -> Result<Vec<StatusPart>> {
    match call.ask(Operation::Status).await? {
        Answer::Status(parts) => Ok(parts),
        _ => Err(unfitting()),
    }
}

/// Answers with the overview.
pub(super) async fn overview(mut visit: Visit<'_>) -> Result<Response<Body>> {
    let parts = status(&mut visit.call).await?;
    let status = Status(&parts);
    let mut sections = vec![operations(status)];
    sections.extend(tiers(status));
    sections.extend(nodes(status));
    sections.push(all(status));
    if let Some(answer) = as_csv(&visit, &sections) {
        return answer;
    }
    link_csv(&visit, &mut sections);
    let (health, health_class) = match health::healthy(&visit.call.service).await {
        Ok(()) => ("The service is healthy.".to_owned(), "well"),
        Err(why) => (format!("The service is not healthy: {why}."), "problem"),
    };
    let shown = OverviewPage {
        frame: visit.frame.titled("Overview", "/overview"),
        health,
        health_class,
        notes: status.notes().map(|note| visible(&note)).collect(),
        links: vec![
            Link::new("Check the catalogue", "/action/check"),
            Link::new("Take a snapshot", "/action/snapshot-take"),
            Link::new("Confirm the clock", "/action/clock-confirm"),
            Link::new("Throttles", "/throttles"),
            Link::new("Repair the catalogue", REPAIR),
            match visit.call.service.is_drained() {
                true => Link::new("Resume the server", "/action/drain-resume"),
                false => Link::new("Drain the server", "/action/drain"),
            },
        ],
        figures: figures(status, None),
        parts: sections,
    };
    page(StatusCode::OK, &shown, None)
}

/// Answers with the figures as server-sent events, as long as the browser reads them, the session lasts,
/// and its person may.
pub(super) async fn events(visit: Visit<'_>) -> Result<Response<Body>> {
    let (face, key) = (Arc::clone(&visit.conversation.face), visit.key);
    let mut call = visit.call;
    let held = face.service.admission.waits.take(1);
    let held = held.ok_or_else(|| busy("requests that wait for a change"))?;
    let mut before = Sample::of(Status(&status(&mut call).await?));
    let (sender, parts) = mpsc::channel(EVENTS_AHEAD);
    let mut response = empty(StatusCode::OK);
    *response.body_mut() = Body::Parts { parts, _cancel: CancelOnDrop(Arc::clone(&call.cancel)) };
    set(&mut response, CONTENT_TYPE, EVENTS);
    tokio::spawn(async move {
        let _held = held;
        let stopping = face.service.reached(Phase::Stopping);
        tokio::pin!(stopping);
        loop {
            tokio::select! {
                () = tokio::time::sleep(LIVE_TIME) => {}
                () = sender.closed() => return,
                () = &mut stopping => break,
            }
            let now = face.service.catalogue.now();
            if !key.is_none_or(|key| face.sessions.is_open(&key, now)) {
                break;
            }
            call.prolong();
            let Ok(parts) = status(&mut call).await else { break };
            let status = Status(&parts);
            let event = event(status, before);
            before = Sample::of(status);
            let Ok(event) = event else { break };
            if sender.send(BodyPart::Bytes(event.into())).await.is_err() {
                return;
            }
        }
        // The browser must not ask again by itself: the person may have signed out.
        let last = BodyPart::Bytes("event: end\ndata: {}\n\n".into());
        if sender.send(last).await.is_ok() {
            let _ = sender.send(BodyPart::End).await;
        }
    });
    Ok(response)
}

fn event(status: Status<'_>, before: Sample) -> Result<String> {
    let figures = figures(status, Some(before));
    let figures: BTreeMap<&str, &str> =
        figures.iter().map(|figure| (figure.name, figure.text.as_str())).collect();
    let json = serde_json::to_string(&figures)
        .map_err(|error| Error::new(ErrorKind::Internal, format!("figures have no JSON: {error}")))?;
    Ok(format!("event: figures\ndata: {json}\n\n"))
}
