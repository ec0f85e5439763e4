//! Time of the server's requests in its states, over a run.

use std::time::{Duration, Instant};

use exacat_model::period::Period;
use exacat_model::{Answer, Error, ErrorKind, Operation, TimeMs};
use serde::Serialize;

use super::Report;
use super::target::Target;

/// Largest part of the time of requests that may have no name, or be missing in the states.
const UNACCOUNTED_SHARE_MAX: f64 = 0.05;

/// Wait for the sums of the last second, and the time between two looks.
const SUMS_WAIT_MAX: Duration = Duration::from_secs(30);
const SUMS_POLL_EVERY: Duration = Duration::from_millis(50);

/// Time of all requests of a run.
#[derive(Debug, PartialEq, Serialize)]
struct States {
    /// Microseconds from receipt to end; requests carried out together count once.
    life_us: u64,
    /// Microseconds in all states.
    states_us: u64,
    /// Microseconds of these without a name.
    unaccounted_us: u64,
    /// Part of the life that has no name, or is in no state.
    unaccounted_share: f64,
}

impl States {
    /// Adds up a period; none if no request ended in it, or the server measures none.
    fn of(period: &Period) -> Option<Self> {
        let life_us: u64 = period.operations.iter().map(|one| one.life_us).sum();
        let states_us = period.operations.iter().flat_map(|one| &one.states).map(|(_, us)| us).sum();
        let unnamed = period.states.iter().filter(|one| one.class == "unaccounted");
        let unaccounted_us = unnamed.map(|one| one.time_us).sum();
        let unaccounted_share = (unaccounted_us + life_us.abs_diff(states_us)) as f64 / life_us.max(1) as f64;
        (life_us > 0).then_some(States { life_us, states_us, unaccounted_us, unaccounted_share })
    }

    /// Refuses a run in which too much time has no name.
    fn check(&self) -> Result<(), Error> {
        if self.unaccounted_share <= UNACCOUNTED_SHARE_MAX {
            return Ok(());
        }
        let [share, most] = [self.unaccounted_share, UNACCOUNTED_SHARE_MAX].map(|share| share * 100.0);
        let why = format!(
            "internal error: {share:.1} % of the time of requests has no name, at most {most:.0} % may: a wait of the \
             server has no state (exacat report shows the operations)"
        );
        Err(Error::new(ErrorKind::Internal, why))
    }
}

async fn period(target: &Target, from: Option<TimeMs>) -> Result<Period, Error> {
    let operation = Operation::Activity { from, to: None, seconds: 1, parts: 1 };
    match target.call(0, operation).await? {
        Answer::Activity(mut periods) if periods.len() == 1 => Ok(periods.remove(0)),
        _ => Err(Error::new(ErrorKind::Internal, "an activity without its period")),
    }
}

/// Returns the time of the server at which a run begins.
pub(crate) async fn begin(target: &Target) -> Result<TimeMs, Error> {
    Ok(period(target, None).await?.to)
}

/// Shows the time of the requests since then. Fails if too much of it has no name.
pub(crate) async fn show(target: &Target, from: TimeMs, report: &mut Report<'_>) -> Result<(), Error> {
    let (last, asked) = (period(target, None).await?.to, Instant::now());
    // The server adds up each second: the last requests are in its next sums.
    let whole = loop {
        let so_far = period(target, Some(from)).await?;
        if so_far.to > last {
            break so_far;
        }
        if asked.elapsed() > SUMS_WAIT_MAX {
            return Err(Error::new(ErrorKind::Internal, "the server adds up its requests no more"));
        }
        tokio::time::sleep(SUMS_POLL_EVERY).await;
    };
    let Some(states) = States::of(&whole) else { return Ok(()) };
    if report.settings.json {
        report.json(&states)?;
    }
    let (life, share) = (states.life_us as f64 / 1e6, states.unaccounted_share * 100.0);
    let most = UNACCOUNTED_SHARE_MAX * 100.0;
    report
        .line(&format!("time of requests {life:.1} s, without a name {share:.2} % (at most {most:.0} %)"))?;
    states.check()
}

#[cfg(test)]
mod tests {
    use super::*;
    use exacat_model::period::{OperationPeriod, StatePeriod};

    fn period(life_us: u64, named_us: u64, unaccounted_us: u64) -> Period {
        let states = vec![("execute".to_owned(), named_us), ("unaccounted".to_owned(), unaccounted_us)];
        let state =
            |class: &str, time_us| StatePeriod { class: class.to_owned(), time_us, ..StatePeriod::default() };
        Period {
            operations: vec![OperationPeriod { life_us, states, ..OperationPeriod::default() }],
            states: vec![state("cpu", named_us), state("unaccounted", unaccounted_us)],
            ..Period::default()
        }
    }

    /// 5 % without a name is the most; time that is in no state, or in two, counts as well.
    #[test]
    fn time_without_a_name_is_bounded() {
        for (life, named, unaccounted, is_good) in [
            (1000, 1000, 0, true),
            (1000, 950, 50, true),
            (1000, 949, 51, false),
            (1000, 940, 0, false),
            (1000, 1060, 0, false),
            (1000, 0, 1000, false),
        ] {
            let states = States::of(&period(life, named, unaccounted)).unwrap();
            assert_eq!(states.check().is_ok(), is_good, "{states:?}");
        }
        assert_eq!(States::of(&Period::default()), None, "a server that measures nothing");
    }
}
