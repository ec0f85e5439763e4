//! Differences between the bytes of clients, caches and origins, with their known causes.
//!
//! The bytes go through stages: origins send them, caches fetch them, clients ask for them. Between two
//! stages the sums differ, and for most of that there is a reason with a number.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::hits::sum_known;
use super::tally::Totals;
use super::views::{CacheView, HandingOut, OriginView};
use crate::units::plural;

/// Cause of a difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayCause)]
pub struct Cause {
    /// Name.
    pub name: String,
    /// Bytes that it adds to the second number, or takes from it; none if nobody can know them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<i64>,
    /// Number of cases: records, datagrams, accesses; none if nobody can know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Says whether the bytes are an estimate.
    pub is_estimate: bool,
    /// Explanation.
    pub text: String,
}

/// Difference between two sums of bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayDifference)]
pub struct Difference {
    /// First number, in words.
    pub first: String,
    /// Second number, in words.
    pub second: String,
    /// First number.
    pub first_bytes: u64,
    /// Second number.
    pub second_bytes: u64,
    /// Second less first.
    pub difference_bytes: i64,
    /// Causes. Those that cannot be, with a count of 0, are left out.
    pub causes: Vec<Cause>,
    /// Difference less the bytes of all causes that have them.
    pub unexplained_bytes: i64,
}

/// Narrows a difference of bytes.
fn narrow(bytes: i128) -> i64 {
    i64::try_from(bytes).unwrap_or(if bytes < 0 { i64::MIN } else { i64::MAX })
}

/// Causes in the making.
#[derive(Default)]
struct Causes(Vec<Cause>);

impl Causes {
    /// Adds a cause; nothing if there is no case of it.
    fn push(&mut self, name: &str, (bytes, count): (Option<i128>, Option<u64>), text: String) {
        let is_none = count == Some(0) || (count.is_none() && bytes == Some(0));
        if !is_none {
            let (name, bytes) = (name.to_owned(), bytes.map(narrow));
            self.0.push(Cause { name, bytes, count, is_estimate: false, text });
        }
    }

    /// Says that the bytes of the last cause are an estimate.
    fn estimated(&mut self, is_pushed: bool) {
        if let Some(last) = self.0.last_mut().filter(|_| is_pushed) {
            last.is_estimate = true;
        }
    }

    fn between(self, (first, first_bytes): (&str, u64), (second, second_bytes): (&str, u64)) -> Difference {
        let difference = i128::from(second_bytes) - i128::from(first_bytes);
        let explained: i128 = self.0.iter().filter_map(|cause| cause.bytes).map(i128::from).sum();
        Difference {
            first: first.to_owned(),
            second: second.to_owned(),
            first_bytes,
            second_bytes,
            difference_bytes: narrow(difference),
            causes: self.0,
            unexplained_bytes: narrow(difference - explained),
        }
    }
}

/// Sums of the caches of one place in a chain.
struct Stage<'a> {
    caches: Vec<&'a CacheView>,
}

impl Stage<'_> {
    fn sum(&self, of: impl Fn(&CacheView) -> u64) -> u64 {
        self.caches.iter().fold(0, |sum, cache| sum.saturating_add(of(cache)))
    }

    fn known(&self, of: impl Fn(&CacheView) -> Option<u64>) -> Option<u64> {
        sum_known(self.caches.iter().copied(), of)
    }

    fn name(&self) -> String {
        match self.caches.as_slice() {
            [one] => one.name.clone(),
            all => format!("{} caches", all.len()),
        }
    }

    /// Adds the causes that let records tell less than clients read.
    fn push_missing_records(&self, causes: &mut Causes) {
        let (lost, datagrams) = (self.sum(|cache| cache.lost_datagrams), self.sum(|cache| cache.datagrams));
        let each = u128::from(self.sum(CacheView::bytes_asked)).checked_div(u128::from(datagrams));
        let bytes = each.and_then(|each| i128::try_from(each * u128::from(lost)).ok()).map(|bytes| -bytes);
        causes.push(
            "lost datagrams",
            (bytes, Some(lost)),
            format!(
                "{} of records did not come; the bytes are those of the others on average",
                plural(lost, "datagram")
            ),
        );
        causes.estimated(lost > 0);
        let bad = self.sum(|cache| cache.bad_datagrams);
        causes.push(
            "unreadable records",
            (None, Some(bad)),
            "datagrams or lines could not be read".to_owned(),
        );
        let open = self.known(|cache| cache.open_files);
        let text = "files that are still open have no record yet: one comes when the last client closes";
        causes.push("records not yet closed", (None, open), text.to_owned());
        let restarts = self.sum(|cache| cache.restarts);
        let text = "files that were open when the cache ended have no record";
        causes.push("restarts of the cache", (None, Some(restarts)), text.to_owned());
    }
}

/// From clients to the caches that these read from.
fn clients_to_caches(totals: &Totals, handing_out: &HandingOut, stage: &Stage<'_>) -> Difference {
    let mut causes = Causes::default();
    causes.push(
        "results of earlier attempts",
        (Some(i128::from(handing_out.late_result_bytes)), Some(handing_out.late_results)),
        "the cache moved bytes for attempts that are not the final ones of their items".to_owned(),
    );
    causes.push(
        "attempts without a result",
        (None, Some(handing_out.leases_expired)),
        "leases ended: the cache moved bytes that no agent reported".to_owned(),
    );
    causes.push(
        "accesses in flight",
        (None, Some(handing_out.in_flight)),
        "agents report bytes at the end of an access, the cache at the close".to_owned(),
    );
    causes.push(
        "failed accesses",
        (None, Some(totals.errors)),
        "the cache may have sent bytes that the client did not take".to_owned(),
    );
    causes.push(
        "redirects",
        (None, Some(totals.redirects)),
        "bytes that came from another server than the cache are not in its records".to_owned(),
    );
    stage.push_missing_records(&mut causes);
    let shared = totals.accesses.saturating_sub(stage.sum(|cache| cache.records));
    causes.push(
        "shared records",
        (Some(0), Some(shared)),
        "accesses without a record of their own: clients that have one file open share one, and an open that \
         fails has none; no bytes are missing for that"
            .to_owned(),
    );
    let asked = stage.sum(CacheView::bytes_asked);
    if asked > totals.bytes {
        let text = "clients that are none of this run read through the cache, too: nobody counts them apart";
        causes.push("other clients", (None, None), text.to_owned());
    }
    let name = format!("asked of {}", stage.name());
    causes.between(("read by clients", totals.bytes), (&name, asked))
}

/// From what was asked of caches to what these fetched.
fn asked_to_fetched(totals: &Totals, stage: &Stage<'_>, is_first: bool) -> Option<Difference> {
    let fetched = stage.known(|cache| cache.bytes_fetched)?;
    let mut causes = Causes::default();
    let hit = stage.sum(|cache| cache.bytes_hit);
    causes.push(
        "hits",
        (Some(-i128::from(hit)), None),
        "bytes that were in the cache when they were asked for".to_owned(),
    );
    let prefetched = stage.known(|cache| cache.bytes_prefetched);
    let text = match prefetched {
        Some(_) => "bytes that were fetched ahead of clients, used or not",
        None => "the cache does not tell what it fetches ahead of clients (XRootD from 5.7.2 on does)",
    };
    causes.push("prefetch", (prefetched.map(i128::from), None), text.to_owned());
    if is_first {
        let text =
            "caches fetch whole blocks: bytes around those asked for, at the first access to each file";
        causes.push("block rounding", (Some(i128::from(totals.rounding)), None), text.to_owned());
        causes.estimated(totals.rounding > 0);
    }
    if stage.caches.iter().any(|cache| cache.is_fetched_from_blocks) {
        let text = "bytes fetched are computed from the growth of blocks: blocks that were removed and fetched \
                    again between two records are not in it";
        causes.push("counted by blocks", (None, None), text.to_owned());
    }
    let name = stage.name();
    let asked = (format!("asked of {name}"), stage.sum(CacheView::bytes_asked));
    Some(causes.between((&asked.0, asked.1), (&format!("fetched by {name}"), fetched)))
}

/// From what caches fetched to what the next stage gave out.
fn fetched_to_next(
    stage: &Stage<'_>,
    next: (&str, u64),
    next_causes: impl FnOnce(&mut Causes),
) -> Option<Difference> {
    let fetched = stage.known(|cache| cache.bytes_fetched)?;
    let mut causes = Causes::default();
    let lost = stage.sum(|cache| cache.lost_datagrams);
    let bytes = u128::from(fetched).checked_div(u128::from(stage.sum(|cache| cache.datagrams)));
    let bytes = bytes.and_then(|each| i128::try_from(each * u128::from(lost)).ok());
    causes.push("lost datagrams", (bytes, Some(lost)), "records of what was fetched did not come".to_owned());
    causes.estimated(lost > 0);
    let open = stage.known(|cache| cache.open_files);
    let text = "what was fetched for files that are still open is in no record yet";
    causes.push("records not yet closed", (None, open), text.to_owned());
    next_causes(&mut causes);
    if next.1 > fetched {
        let text = "clients that are none of these caches read there, too: nobody counts them apart";
        causes.push("other readers", (None, None), text.to_owned());
    }
    Some(causes.between((&format!("fetched by {}", stage.name()), fetched), next))
}

/// Returns the differences from clients to origins, stage by stage.
pub(crate) fn differences(
    (totals, handing_out): (&Totals, &HandingOut),
    caches: &[CacheView],
    origins: &[OriginView],
) -> Vec<Difference> {
    let mut places: Vec<u32> = caches.iter().map(|cache| cache.place).collect();
    places.sort_unstable();
    places.dedup();
    let at = |place: &u32| caches.iter().filter(|cache| cache.place == *place).collect();
    let stages: Vec<Stage<'_>> = places.iter().map(|place| Stage { caches: at(place) }).collect();
    let mut all = Vec::new();
    let out = origins.iter().fold(0_u64, |sum, origin| sum.saturating_add(origin.bytes_out));
    for (number, stage) in stages.iter().enumerate() {
        if number == 0 {
            all.push(clients_to_caches(totals, handing_out, stage));
        }
        all.extend(asked_to_fetched(totals, stage, number == 0));
        match stages.get(number + 1) {
            Some(next) => {
                let name = format!("asked of {}", next.name());
                let asked = next.sum(CacheView::bytes_asked);
                all.extend(fetched_to_next(stage, (&name, asked), |causes| {
                    next.push_missing_records(causes)
                }));
            }
            None if origins.is_empty() => {}
            None => all.extend(fetched_to_next(stage, ("sent by origins", out), |causes| {
                if origins.iter().any(|origin| origin.has_protocol_bytes) {
                    let text = "the origin counts the bytes of the protocol, too: some 0.1 to 2 %";
                    causes.push("protocol", (None, None), text.to_owned());
                }
                let errors = origins.iter().fold(0_u64, |sum, origin| sum.saturating_add(origin.errors));
                let text = "the origin refused or broke off requests: parts were sent that caches threw away";
                causes.push("errors of the origin", (None, Some(errors)), text.to_owned());
            })),
        }
    }
    if stages.is_empty() && !origins.is_empty() {
        let mut causes = Causes::default();
        let text = "no cache told what it did: hits, prefetch and block rounding cannot be told apart";
        causes.push("no records of caches", (None, None), text.to_owned());
        all.push(causes.between(("read by clients", totals.bytes), ("sent by origins", out)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn cache(place: u32, (hit, miss): (u64, u64), fetched: Option<u64>) -> CacheView {
        CacheView {
            name: format!("cache{place}"),
            place,
            records: 9,
            bytes_hit: hit,
            bytes_miss: miss,
            bytes_fetched: fetched,
            datagrams: 10,
            ..CacheView::default()
        }
    }

    fn bytes_of(difference: &Difference, name: &str) -> Option<i64> {
        difference.causes.iter().find(|cause| cause.name == name).and_then(|cause| cause.bytes)
    }

    /// Property: with prefetch, rounding, lost datagrams and earlier attempts that are all known, nothing
    /// stays unexplained; the numbers add up at every stage.
    #[test]
    fn known_causes_explain_everything() {
        let totals = Totals { accesses: 12, bytes: 100 * MB, rounding: 3 * MB, ..Totals::default() };
        let handing_out = HandingOut { late_results: 2, late_result_bytes: 10 * MB, ..HandingOut::default() };
        let mut first = cache(0, (60 * MB, 40 * MB), Some(48 * MB));
        (first.lost_datagrams, first.bytes_prefetched) = (1, Some(5 * MB));
        let origin = OriginView { bytes_out: 48 * MB + 4_800_000, ..OriginView::default() };
        let all = differences((&totals, &handing_out), &[first], &[origin]);
        assert_eq!(all.len(), 3);
        assert_eq!((all[0].difference_bytes, all[0].unexplained_bytes), (0, 0), "{:#?}", all[0]);
        assert_eq!(bytes_of(&all[0], "lost datagrams"), Some(-10 * MB as i64));
        assert_eq!(bytes_of(&all[0], "results of earlier attempts"), Some(10 * MB as i64));
        assert_eq!(
            (all[1].difference_bytes, all[1].unexplained_bytes),
            (-52 * MB as i64, 0),
            "{:#?}",
            all[1]
        );
        assert_eq!((all[2].difference_bytes, all[2].unexplained_bytes), (4_800_000, 0), "{:#?}", all[2]);
        let shared = all[0].causes.iter().find(|cause| cause.name == "shared records").unwrap();
        assert_eq!((shared.count, shared.bytes), (Some(3), Some(0)));
        for difference in &all {
            let sum: i64 = difference.causes.iter().filter_map(|cause| cause.bytes).sum();
            assert_eq!(sum + difference.unexplained_bytes, difference.difference_bytes);
        }
    }

    /// Property: in a chain each stage is compared with the next, and no byte is counted twice.
    #[test]
    fn chain_of_caches_is_compared_stage_by_stage() {
        let totals = Totals { accesses: 9, bytes: 100, ..Totals::default() };
        let caches = [cache(1, (25, 15), Some(15)), cache(0, (60, 40), Some(40))];
        let origin = OriginView { bytes_out: 15, ..OriginView::default() };
        let all = differences((&totals, &HandingOut::default()), &caches, &[origin]);
        let names: Vec<(&str, &str)> = all.iter().map(|of| (of.first.as_str(), of.second.as_str())).collect();
        assert_eq!(
            names,
            [
                ("read by clients", "asked of cache0"),
                ("asked of cache0", "fetched by cache0"),
                ("fetched by cache0", "asked of cache1"),
                ("asked of cache1", "fetched by cache1"),
                ("fetched by cache1", "sent by origins"),
            ]
        );
        assert!(all.iter().all(|of| of.unexplained_bytes == 0), "{all:#?}");
    }

    /// Property: a cache that does not tell what it fetched is not compared by it.
    #[test]
    fn unknown_numbers_are_not_compared() {
        let totals = Totals { accesses: 9, bytes: 100, ..Totals::default() };
        let origins = [OriginView { bytes_out: 40, ..OriginView::default() }];
        let all = differences((&totals, &HandingOut::default()), &[cache(0, (60, 40), None)], &origins);
        assert_eq!(all.len(), 1);
        let all = differences((&totals, &HandingOut::default()), &[], &origins);
        assert_eq!((all.len(), all[0].difference_bytes, all[0].causes.len()), (1, -60, 1));
        assert!(differences((&totals, &HandingOut::default()), &[], &[]).is_empty());
        let huge = Totals { bytes: u64::MAX, ..Totals::default() };
        let all = differences((&huge, &HandingOut::default()), &[cache(0, (0, 0), None)], &[]);
        assert_eq!(all[0].difference_bytes, i64::MIN);
    }
}
