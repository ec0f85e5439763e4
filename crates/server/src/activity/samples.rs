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

/// Requests of samples, one after the other, of which a thinned minute has one.
const THINNED_STEP: usize = 10;
/// Slow requests that a thinned minute has: as many as a report shows of all.
const SLOW_THINNED_MAX: usize = 10;

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

    /// Thins the samples: of each `THINNED_STEP` one stays, with the weight of all. The sum of the weights
    /// stays. They are taken in the order of users, clients and directories, so that the weight of each user
    /// changes by less than two steps. The sums at the end of the minute stay, and its slowest requests.
    pub(crate) fn thinned(&self) -> Self {
        let mut ordered = self.requests.clone();
        ordered
            .sort_by_key(|one| (one.user, one.client, one.directory, one.state, one.operation, one.after_ms));
        let groups = ordered.chunks(THINNED_STEP).filter_map(|group| {
            let weight = group.iter().fold(0u32, |sum, one| sum.saturating_add(one.weight));
            // That in the middle, so that neither the first nor the last user of a group is preferred.
            group.get(group.len() / 2).map(|one| SampledRequest { weight, ..*one })
        });
        let mut requests: Vec<SampledRequest> = groups.collect();
        requests.sort_by_key(|one| one.after_ms);
        let (mut names, mut numbers) = (Vec::new(), HashMap::new());
        for one in &mut requests {
            for number in
                [&mut one.operation, &mut one.state, &mut one.user, &mut one.client, &mut one.directory]
            {
                *number = *numbers.entry(*number).or_insert_with(|| {
                    names.push(self.name(*number).to_owned());
                    names.len() as u32 - 1
                });
            }
        }
        let slow = self.slow.iter().take(SLOW_THINNED_MAX).cloned().collect();
        Minute { from: self.from, end: Arc::clone(&self.end), names, requests, slow }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use exacat_model::codec::Encode;

    /// A minute of samples, each of so many requests of users with so many directories each.
    fn minute(requests: u64, users: u64, directories: u64) -> Minute {
        let mut open = OpenMinute::new(TimeMs(0), Run(1));
        for second in 0..60 {
            for request in 0..requests {
                let user = (request * 7 + second) % users;
                let seen = Seen {
                    operation: "whereis",
                    state: "execute",
                    user: &format!("user{user}"),
                    client: &format!("10.0.0.{}", user % 50),
                    directory: &format!("/alice/{user}/{}", (request + second * 3) % directories),
                    life_ms: second,
                };
                open.add(TimeMs(second * 1000), seen, 3);
            }
        }
        let slow = |life_us| RequestShown { life_us, ..RequestShown::default() };
        open.minute.slow = (0..SLOW_KEPT_MAX as u64).rev().map(slow).collect();
        open.minute
    }

    fn by_user(minute: &Minute) -> BTreeMap<&str, i64> {
        let mut weights = BTreeMap::new();
        for one in &minute.requests {
            *weights.entry(minute.name(one.user)).or_default() += i64::from(one.weight);
        }
        weights
    }

    /// A thinned minute has a tenth of the samples, and all of their weight; users keep theirs to less than
    /// two steps, and the slowest requests and the sums stay.
    #[test]
    fn thinned_minute_keeps_the_weights() {
        for (requests, users, directories) in
            [(1, 1, 1), (3, 2, 5), (10, 10, 1), (500, 40, 200), (500, 500, 500)]
        {
            let whole = minute(requests, users, directories);
            let thinned = whole.thinned();
            assert_eq!(thinned.requests.len(), whole.requests.len().div_ceil(THINNED_STEP));
            let weights = [&whole, &thinned].map(|one| by_user(one));
            assert_eq!(weights[0].values().sum::<i64>(), weights[1].values().sum::<i64>());
            for (user, weight) in &weights[0] {
                let kept = weights[1].get(user).copied().unwrap_or(0);
                assert!((kept - weight).abs() < 2 * 3 * THINNED_STEP as i64, "{user}: {kept} of {weight}");
            }
            for one in &thinned.requests {
                assert_eq!(thinned.name(one.operation), "whereis");
                assert!(thinned.name(one.directory).starts_with("/alice/"), "{one:?}");
            }
            assert_eq!((thinned.slow.len(), thinned.slow[0].life_us), (SLOW_THINNED_MAX, 99));
            assert_eq!((thinned.from, &thinned.end), (whole.from, &whole.end));
            let bytes = |minute: &Minute| {
                let mut out = Vec::new();
                minute.encode(&mut out);
                zstd::encode_all(&out[..], 3).unwrap().len()
            };
            assert!(bytes(&thinned) <= bytes(&whole), "{requests} {users} {directories}");
            println!("{requests} of {users} users: {} bytes, thinned {}", bytes(&whole), bytes(&thinned));
        }
        let none = OpenMinute::new(TimeMs(0), Run(1)).minute;
        assert_eq!(none.thinned(), none);
        // The weight of a thinned minute is bounded too.
        let mut heavy = minute(1, 1, 1);
        heavy.requests.iter_mut().for_each(|one| one.weight = u32::MAX);
        assert_eq!(heavy.thinned().requests[0].weight, u32::MAX);
    }
}
