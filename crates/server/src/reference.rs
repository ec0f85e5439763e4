//! Facts about the server for the pages of the reference: metrics, and the document of the REST API.

use std::sync::Arc;

use exacat_activity::{Class, RequestState};
use exacat_catalogue::Catalogue;
use exacat_model::{Error, ErrorKind, Result};

use crate::service::Service;

/// A family of metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Name at `/metrics`.
    pub name: String,
    /// Type for Prometheus.
    pub kind: String,
    /// Meaning.
    pub meaning: String,
}

/// Returns the metrics of a server of this catalogue, in the order of `/metrics`.
pub async fn metrics(catalogue: Arc<Catalogue>) -> Result<Vec<Metric>> {
    let text = Service::alone(catalogue).scrape().await.text();
    let text = text.map_err(|error| Error::new(ErrorKind::Internal, format!("metrics: {error}")))?;
    let mut metrics: Vec<Metric> = Vec::new();
    for line in text.lines() {
        let described = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' '));
        if let Some((name, meaning)) = described {
            let meaning = meaning.trim_end_matches('.').to_owned();
            metrics.push(Metric { name: name.to_owned(), kind: String::new(), meaning });
        }
        let typed = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '));
        if let Some((name, kind)) = typed
            && let Some(metric) = metrics.iter_mut().find(|metric| metric.name == name)
        {
            kind.clone_into(&mut metric.kind);
        }
    }
    Ok(metrics)
}

/// Returns the page of the states of requests: a table of names, classes, meanings and remedies.
pub fn states_page() -> String {
    let mut page = String::from(
        "# States of requests\n\nA request is in exactly one state at any moment: on a processor in a named phase, or in a \
         named wait.\nThe times of its states add up to its life, from its receipt to its end. Look-ups that a connection\n\
         carries out together count once.\n\n\
         `exacat_request_state_seconds_total` at `/metrics` has the time of ended requests in each state, by\noperation. \
         `exacat_wait_seconds` has the distribution of each wait, and `exacat_requests_in_state` the\nrequests that are in \
         each state now.\n\n\
         A wait ends when the thread runs again. Delay by the scheduler is therefore part of each wait: if\nall waits grow \
         together, look at the load of the processors first.\n",
    );
    for class in Class::ALL {
        page.push_str(&format!("\n## Class `{}`\n\n{}\n\n", class.name(), class.meaning()));
        page.push_str("| state | meaning | remedy |\n|---|---|---|\n");
        for state in RequestState::ALL.iter().filter(|state| state.class() == *class) {
            page.push_str(&format!("| `{}` | {} | {} |\n", state.name(), state.meaning(), state.remedy()));
        }
    }
    page
}

/// Returns the OpenAPI document of the REST API.
pub fn api_document() -> String {
    crate::faces::http::document()
}
