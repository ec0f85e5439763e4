//! Endpoints of the first replay: an old loop of `curl` and `xrdcp` runs against them unchanged.
//!
//! `GET /stress_test` gives one item of the first running run, `GET /stress_result/ID/CODE/SECONDS` takes its
//! result. Both work on the same queue as the agents.

use std::net::IpAddr;
use std::sync::Arc;

use exacat_http::answers::{Body, json, set, text};
use exacat_model::{Error, Result};
use exacat_replay::run::outcome::{AccessResult, Outcome};
use exacat_replay::run::shapes::{ItemsRequest, ResultsRequest, RunState};
use hyper::header::RETRY_AFTER;
use hyper::{Response, StatusCode};

use super::held_run::HeldRun;
use super::runs::Runs;
use super::shapes::StressTestItem;

/// Way in which such clients read.
const DRIVER: &str = "xrdcp";

/// Name of all loops of one address.
fn agent_of(from: IpAddr) -> String {
    format!("stress_test {from}")
}

/// Answers that nothing is due now.
fn nothing(state: &'static str, seconds: u64) -> Response<Body> {
    let mut response = text(StatusCode::NO_CONTENT, String::new());
    set(&mut response, RETRY_AFTER, &seconds.to_string());
    set(&mut response, hyper::header::HeaderName::from_static("exacat-replay"), state);
    response
}

fn running(runs: &Runs) -> Option<(String, Arc<HeldRun>)> {
    let mut all = runs.all();
    all.retain(|(_, run)| run.read(|live| live.state().0 == RunState::Running));
    all.into_iter().min_by_key(|(_, run)| run.read(|live| live.began_us()))
}

/// Gives out the next item.
pub(crate) async fn next(runs: &Runs, from: IpAddr) -> Result<Response<Body>> {
    // Told apart: a loop that ends at the end of the trace, and one that waits.
    let Some((name, run)) = running(runs) else { return Ok(nothing("ended", 60)) };
    let request = ItemsRequest {
        agent: agent_of(from),
        cache: String::new(),
        driver: DRIVER.to_owned(),
        count: 1,
        number: None,
    };
    let answer = run.change(|live, now, journal| live.hand_out(&request, true, now, journal)).await?;
    let Some(item) = answer.items.into_iter().next() else {
        return Ok(nothing("waiting", answer.again_ms.div_ceil(1000).max(1)));
    };
    let timestamp = run.read(|live| live.queue().access(item.item).map_or(0, |access| access.time_us / 1000));
    Ok(json(&StressTestItem {
        _id: format!("{name}.{}.{}", item.item, item.attempt),
        filename: item.name.rsplit('/').next().unwrap_or_default().to_owned(),
        filesize: item.size,
        path: item.name,
        adler32: item.adler32.map(|sum| format!("{sum:08x}")).unwrap_or_default(),
        status: "in queue".to_owned(),
        timestamp,
    }))
}

/// Reads the return code of a loop: that of xrdcp, or a word of the old one.
fn outcome_of(code: &str) -> Result<(Outcome, u32)> {
    match code {
        "Done" => Ok((Outcome::Ok, 0)),
        "Timeout" => Ok((Outcome::Timeout, 124)),
        _ => {
            let bad = || Error::invalid("the return code is a number from 0 to 255, Done or Timeout");
            let number: u8 = code.parse().map_err(|_| bad())?;
            Ok((Outcome::of_xrdcp(number.into()), number.into()))
        }
    }
}

/// Takes a result.
pub(crate) async fn result(
    runs: &Runs,
    from: IpAddr,
    [id, code, duration]: [&str; 3],
) -> Result<Response<Body>> {
    let bad_id = || Error::invalid("the id is that of an item that GET /stress_test gave out");
    let mut words = id.rsplitn(3, '.');
    let (attempt, item, name) = (words.next(), words.next(), words.next());
    let attempt: u32 = attempt.and_then(|text| text.parse().ok()).ok_or_else(bad_id)?;
    let item: u64 = item.and_then(|text| text.parse().ok()).ok_or_else(bad_id)?;
    let run = runs.get(name.ok_or_else(bad_id)?)?;
    let (outcome, number) = outcome_of(code)?;
    let seconds: f64 = duration.parse().unwrap_or(f64::NAN);
    if !(0.0..=86_400.0).contains(&seconds) {
        return Err(Error::invalid("the duration is a number of seconds, at most a day"));
    }
    let asked = run.read(|live| {
        let trace = live.queue().trace();
        live.queue().access(item).map_or(0, |access| trace.file(access.file).size)
    });
    let bytes = if outcome == Outcome::Ok { asked } else { 0 };
    let duration_us = (seconds * 1e6) as u64;
    let result =
        AccessResult { item, attempt, outcome, number, duration_us, bytes, ..AccessResult::default() };
    let request = ResultsRequest { agent: agent_of(from), results: vec![result] };
    let answer = run.change(|live, now, journal| live.take_results(request, now, journal)).await?;
    match answer.refused.into_iter().next() {
        Some(refused) => Err(Error::invalid(format!("{id:.128}: {}", refused.reason))),
        None => Ok(text(StatusCode::OK, "OK".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn return_codes_are_those_of_xrdcp_and_of_the_old_loop() {
        for (code, expected) in [
            ("0", (Outcome::Ok, 0)),
            ("Done", (Outcome::Ok, 0)),
            ("124", (Outcome::Timeout, 124)),
            ("Timeout", (Outcome::Timeout, 124)),
            ("51", (Outcome::Connection, 51)),
            ("54", (Outcome::Server, 54)),
            ("1", (Outcome::Agent, 1)),
        ] {
            assert_eq!(outcome_of(code).unwrap(), expected, "{code}");
        }
        for bad in ["", "-1", "256", "x", "0 "] {
            assert!(outcome_of(bad).is_err(), "{bad}");
        }
    }
}
