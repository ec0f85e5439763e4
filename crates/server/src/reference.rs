//! Facts about the server for the pages of the reference: metrics, and the document of the REST API.

use exacat_activity::{Class, RequestState};
use exacat_store::Metric;

use crate::status_metrics::tables;

/// Returns the tables of metrics: those of the server, and of each store.
pub fn metrics() -> [(&'static str, Vec<&'static Metric>); 3] {
    tables()
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

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use exacat_store::MetricKind;

    use super::*;

    /// Every metric has help and a name by the rules of Prometheus, which ends in its base unit. A name
    /// stands for one metric, in a table and among the stores.
    #[test]
    fn tables_of_metrics_follow_the_rules() {
        let mut known: BTreeMap<&str, &Metric> = BTreeMap::new();
        let mut shown = BTreeSet::new();
        for (of, table) in metrics() {
            let mut names = BTreeSet::new();
            for metric in table {
                let name = metric.name;
                assert!(names.insert(name), "{of}: {name} is there twice");
                let words = name.split('_').all(|word| {
                    !word.is_empty()
                        && word.chars().all(|one| one.is_ascii_lowercase() || one.is_ascii_digit())
                });
                assert!(words && !metric.help.is_empty() && !metric.help.ends_with('.'), "{name}");
                let unit = metric.unit.base().map(|(unit, _)| unit);
                for base in ["seconds", "bytes"] {
                    let ends = name.ends_with(&format!("_{base}"));
                    assert_eq!(unit == Some(base), ends, "{name}: {unit:?}");
                }
                let reserved = ["_total", "_count", "_sum", "_bucket"];
                assert!(reserved.iter().all(|end| !name.ends_with(end)), "{name}");
                assert!(
                    metric.labels.iter().all(|label| !["le", "quantile", "job"].contains(label)),
                    "{name}"
                );
                assert!(!metric.status.contains("{}") || !metric.labels.is_empty(), "{name}");
                assert!(metric.status.is_empty() || shown.insert((of, metric.status)), "{}", metric.status);
                let is_store = name.starts_with("exacat_store_");
                assert!(of == "the server" || is_store, "{name} is no metric of a store");
                // Stores that count the same count it under the same description, but for the help.
                if let Some(same) = known.insert(name, metric) {
                    let facts = |metric: &Metric| (metric.kind, metric.unit, metric.labels.to_vec());
                    assert_eq!(facts(same), facts(metric), "{name}");
                }
            }
        }
        assert!(known.values().any(|metric| metric.kind == MetricKind::Histogram));
    }
}
