//! Samples of the requests in progress, with all else that the server keeps of one minute.

use std::collections::HashMap;
use std::sync::Arc;

use exacat_model::period::RequestShown;
use exacat_model::{TimeMs, canonical_struct};

use super::moment::{Moment, Run};

/// Requests that one sample has. Of more, it has as many at equal steps, each with its weight.
pub(crate) const SAMPLED_MAX: usize = 500;
/// Slow requests that are kept of a minute.
pub(crate) const SLOW_KEPT_MAX: usize = 100;

/// A request in progress at the time of a sample. The texts are numbers of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SampledRequest {
    /// Milliseconds since the beginning of the minute.
    pub after_ms: u32,
    pub operation: u32,
    pub state: u32,
    pub user: u32,
    pub client: u32,
    pub directory: u32,
    /// Time since its receipt.
    pub life_ms: u32,
    /// Requests that it stands for.
    pub weight: u32,
}

canonical_struct!(SampledRequest { after_ms, operation, state, user, client, directory, life_ms, weight });

/// Activity of a minute.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Minute {
    pub from: TimeMs,
    /// The sums at its end.
    pub end: Arc<Moment>,
    /// Operations, states, users, clients and directories.
    pub names: Vec<String>,
    pub requests: Vec<SampledRequest>,
    /// Slow requests that ended in it.
    pub slow: Vec<RequestShown>,
}

canonical_struct!(Minute { from, end, names, requests, slow });

impl Minute {
    /// Returns a name by its number.
    pub(crate) fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", String::as_str)
    }

    /// Returns about the bytes that it takes in memory.
    pub(crate) fn memory(&self) -> usize {
        let names: usize = self.names.iter().map(|name| name.len() + size_of::<String>()).sum();
        let slow: usize =
            self.slow.iter().map(|one| size_of::<RequestShown>() + one.subject.len() + 1000).sum();
        let operations = self.end.operations.len() * 2000 + self.end.metrics.len() * 60;
        names + slow + operations + self.requests.len() * size_of::<SampledRequest>() + size_of::<Self>()
    }
}

/// A request in progress, as the sampler sees it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen<'a> {
    pub operation: &'a str,
    pub state: &'a str,
    pub user: &'a str,
    pub client: &'a str,
    pub directory: &'a str,
    pub life_ms: u64,
}

/// The minute that goes on.
#[derive(Default)]
pub(crate) struct OpenMinute {
    pub minute: Minute,
    numbers: HashMap<String, u32>,
}

impl OpenMinute {
    /// Begins a minute.
    pub(crate) fn new(from: TimeMs, run: Run) -> Self {
        let end = Arc::new(Moment { at: from, ..Moment::start(run) });
        OpenMinute { minute: Minute { from, end, ..Minute::default() }, numbers: HashMap::new() }
    }

    /// Adds a request that a sample has.
    pub(crate) fn add(&mut self, now: TimeMs, seen: Seen<'_>, weight: u32) {
        let short = |time: u64| u32::try_from(time).unwrap_or(u32::MAX);
        let request = SampledRequest {
            after_ms: short(now.0.saturating_sub(self.minute.from.0)),
            operation: self.number(seen.operation),
            state: self.number(seen.state),
            user: self.number(seen.user),
            client: self.number(seen.client),
            directory: self.number(seen.directory),
            life_ms: short(seen.life_ms),
            weight,
        };
        self.minute.requests.push(request);
    }

    fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.minute.names.len() as u32;
        self.minute.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }
}
