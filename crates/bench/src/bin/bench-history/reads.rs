//! Reads of an element, in the language of each server, and their times.

use std::time::Instant;

use exacat_bench::scatter;
use exacat_model::TimeNs;
use hdrhistogram::Histogram;

use crate::Client;
use crate::figures::{ReadTimes, histogram, micros};
use crate::rows::{Rows, put_name};

/// Rows of a range that is read.
pub(crate) const RANGE_ROWS: u64 = 300;

/// A read of one element.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Read {
    /// Its latest value.
    Latest { element: u64 },
    /// Its rows between two times, both included.
    Range { element: u64, from_ms: u64, to_ms: u64 },
}

/// Language of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// REST interface of exacat.
    Rest,
    /// InfluxQL.
    Influx,
    /// Interface of VictoriaMetrics.
    Victoria,
}

impl Reader {
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "rest" => Reader::Rest,
            "influx" => Reader::Influx,
            "victoria" => Reader::Victoria,
            _ => panic!("--reader {name}: rest, influx or victoria"),
        }
    }

    /// Returns the path that asks for it.
    pub(crate) fn path(self, group: &str, read: &Read) -> String {
        match (self, *read) {
            (Reader::Rest, Read::Latest { element }) => {
                format!("/api/v1/history/{group}/values?element=ev%2Ce%3D{}&field=v", escaped(element))
            }
            (Reader::Rest, Read::Range { element, from_ms, to_ms }) => format!(
                "/api/v1/history/{group}/rows?element=ev%2Ce%3D{}&from={}&to={}&field=v&limit=1000",
                escaped(element),
                TimeNs(from_ms as i64 * 1_000_000),
                TimeNs(to_ms as i64 * 1_000_000)
            ),
            (Reader::Influx, Read::Latest { element }) => format!(
                "/query?db={group}&epoch=ms&q=SELECT+last(v)+FROM+ev+WHERE+e%3D%27{}%27",
                escaped(element)
            ),
            (Reader::Influx, Read::Range { element, from_ms, to_ms }) => format!(
                "/query?db={group}&epoch=ms&q=SELECT+v+FROM+ev+WHERE+e%3D%27{}%27+AND+time+%3E%3D+{from_ms}ms+AND+time+%3C%3D+{to_ms}ms",
                escaped(element)
            ),
            (Reader::Victoria, Read::Latest { element }) => format!(
                "/api/v1/query?query=last_over_time(ev_v%7Be%3D%22{}%22%7D%5B10y%5D)",
                escaped(element)
            ),
            (Reader::Victoria, Read::Range { element, from_ms, to_ms }) => format!(
                "/api/v1/export?match%5B%5D=ev_v%7Be%3D%22{}%22%7D&start={}&end={}",
                escaped(element),
                from_ms as f64 / 1000.0,
                to_ms as f64 / 1000.0
            ),
        }
    }

    /// Returns the number of rows in an answer.
    pub(crate) fn rows(self, body: &[u8]) -> u64 {
        let text = String::from_utf8_lossy(body);
        let count = |what: &str| text.matches(what).count() as u64;
        match self {
            Reader::Rest => count("\"time\":"),
            // Rows are lists within the list of values.
            Reader::Influx => count("],[") + count("\"values\":[["),
            Reader::Victoria => {
                let times = text.split_once("\"timestamps\":[").map(|(_, rest)| rest.split(']').next());
                times.flatten().map_or_else(|| count("\"value\":"), |times| times.split(',').count() as u64)
            }
        }
    }
}

fn escaped(element: u64) -> String {
    let mut name = Vec::new();
    put_name(&mut name, element);
    String::from_utf8_lossy(&name).replace('/', "%2F").replace(':', "%3A")
}

/// Returns the last rows of an element, up to a step.
pub(crate) fn last_rows(rows: &Rows, element: u64, step: u64) -> Read {
    Read::Range {
        element,
        from_ms: rows.time_ms(element, step.saturating_sub(RANGE_ROWS - 1)),
        to_ms: rows.time_ms(element, step),
    }
}

/// Reads latest values and ranges of random elements, one after the other. `steps` is the number of rows
/// that each element has.
pub(crate) fn measure(
    client: &mut dyn Client,
    rows: &Rows,
    elements: u64,
    (steps, count): (u64, u64),
) -> ReadTimes {
    let (mut latest, mut range) = (histogram(), histogram());
    let (mut rows_read, expected) = (0, steps.min(RANGE_ROWS));
    client.settle();
    // The first reads fill caches.
    for number in 0..count + count / 10 {
        let element = scatter(number ^ steps << 20) % elements;
        let warm = number >= count / 10;
        let mut timed = |read: &Read, times: &mut Histogram<u64>| {
            let begun = Instant::now();
            let read = client.read(read);
            if warm {
                times.record(micros(begun.elapsed())).unwrap();
            }
            read
        };
        assert_eq!(timed(&Read::Latest { element }, &mut latest), 1, "element {element}");
        rows_read = timed(&last_rows(rows, element, steps - 1), &mut range);
        assert_eq!(rows_read, expected, "element {element} up to step {steps}");
    }
    ReadTimes { latest, range, rows: rows_read }
}
