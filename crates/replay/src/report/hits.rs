//! Hits, by quantity and by view. There is no one hit rate: three quantities, each as up to four views
//! know it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::first_byte::Split;
use super::tally::Totals;
use super::views::{CacheView, ExpectedView, OriginView};

/// Quantity of which hits are a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayHitQuantity)]
#[serde(rename_all = "snake_case")]
pub enum HitQuantity {
    /// Accesses: the share whose data the cache had.
    Requests,
    /// Bytes asked for: the share that the cache had.
    BytesAsked,
    /// Bytes fetched: the share of the bytes asked for that did not have to be fetched. It is negative if
    /// more is fetched than asked for.
    BytesFetched,
}

impl HitQuantity {
    /// Returns its name, for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            HitQuantity::Requests => "requests",
            HitQuantity::BytesAsked => "bytes asked",
            HitQuantity::BytesFetched => "bytes fetched",
        }
    }
}

/// Source of a figure about hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayHitView)]
#[serde(rename_all = "snake_case")]
pub enum HitView {
    /// The trace: what a cache of this size that removes the least recently used file must reach.
    Trace,
    /// The plan: files that were read before in the run. A cold cache of any size reaches at most this.
    Plan,
    /// Clients: first bytes that came early. An estimate.
    Clients,
    /// Records of the caches that clients read from.
    Cache,
    /// Bytes that origins sent.
    Origin,
}

impl HitView {
    /// Returns its name, for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            HitView::Trace => "trace",
            HitView::Plan => "plan",
            HitView::Clients => "clients",
            HitView::Cache => "cache",
            HitView::Origin => "origin",
        }
    }
}

/// Share of hits, of one quantity and in one view.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayHits)]
pub struct HitShare {
    /// Quantity.
    pub quantity: HitQuantity,
    /// View.
    pub view: HitView,
    /// Hits: accesses or bytes; of bytes fetched those that were fetched.
    pub part: u64,
    /// Number of which these are a share.
    pub of: u64,
    /// Share of hits; at most 1.
    pub share: f64,
    /// Says whether it is an estimate.
    pub is_estimate: bool,
    /// Definition of part and whole.
    pub definition: String,
}

/// Shares in the making.
struct Rows(Vec<HitShare>);

impl Rows {
    /// Adds a share; nothing without a whole.
    fn push(&mut self, (quantity, view): (HitQuantity, HitView), (part, of): (u64, u64), definition: &str) {
        if of == 0 {
            return;
        }
        let share = part as f64 / of as f64;
        self.0.push(HitShare {
            quantity,
            view,
            part,
            of,
            share: if quantity == HitQuantity::BytesFetched { 1.0 - share } else { share },
            is_estimate: view == HitView::Clients,
            definition: definition.to_owned(),
        });
    }
}

/// Sums a number of some caches; none if one of them does not have it.
pub(crate) fn sum_known<'a>(
    caches: impl IntoIterator<Item = &'a CacheView>,
    of: impl Fn(&CacheView) -> Option<u64>,
) -> Option<u64> {
    let mut is_any = false;
    let sum = caches.into_iter().try_fold(0_u64, |sum, cache| {
        is_any = true;
        Some(sum.saturating_add(of(cache)?))
    });
    sum.filter(|_| is_any)
}

/// Returns all shares of hits that can be computed.
pub(crate) fn hits(
    (totals, split, expected): (&Totals, &Split, Option<&ExpectedView>),
    caches: &[CacheView],
    origins: &[OriginView],
) -> Vec<HitShare> {
    use HitQuantity::{BytesAsked, BytesFetched, Requests};
    use HitView::{Cache, Clients, Origin, Plan, Trace};
    let mut rows = Rows(Vec::new());
    let told = split.hits.accesses.saturating_add(split.misses.accesses);
    let told_bytes = split.hits.bytes.saturating_add(split.misses.bytes);
    let first = || caches.iter().filter(|cache| cache.place == 0);
    let sum = |of: fn(&CacheView) -> u64| sum_known(first(), |cache| Some(of(cache))).unwrap_or(0);
    let (records, empty) = (sum(|cache| cache.records), sum(|cache| cache.records_empty));
    if let Some(of) = expected {
        rows.push(
            (Requests, Trace),
            (of.hits, of.accesses),
            "accesses whose file a cache of this size has, of all",
        );
    }
    rows.push(
        (Requests, Plan),
        (totals.again, totals.accesses),
        "accesses to files that were read before in the run, of all that ended",
    );
    rows.push(
        (Requests, Clients),
        (split.hits.accesses, told),
        "accesses with an early first byte, of those that can be told apart",
    );
    rows.push(
        (Requests, Cache),
        (sum(|cache| cache.records_hit), records.saturating_sub(empty)),
        "records without a byte missed, of those with a byte read; clients may share a record",
    );
    if let Some(of) = expected {
        rows.push(
            (BytesAsked, Trace),
            (of.hit_bytes, of.bytes_asked),
            "bytes that these accesses ask for, of all",
        );
    }
    rows.push(
        (BytesAsked, Plan),
        (totals.bytes_asked_again, totals.bytes_asked),
        "bytes asked of files that were read before in the run, of all that ended",
    );
    rows.push(
        (BytesAsked, Clients),
        (split.hits.bytes, told_bytes),
        "bytes of accesses with an early first byte, of those that can be told apart",
    );
    let asked = sum(CacheView::bytes_asked);
    rows.push(
        (BytesAsked, Cache),
        (sum(|cache| cache.bytes_hit), asked),
        "bytes hit, of bytes hit, missed and passed by; a prefetched byte counts as hit",
    );
    if let Some(fetched) = sum_known(first(), |cache| cache.bytes_fetched) {
        rows.push((BytesFetched, Cache), (fetched, asked), "1 - bytes fetched / bytes asked, by records");
    }
    let out = origins.iter().fold(0_u64, |sum, origin| sum.saturating_add(origin.bytes_out));
    if !origins.is_empty() {
        rows.push(
            (BytesFetched, Origin),
            (out, totals.bytes),
            "1 - bytes that origins sent / bytes that came to clients",
        );
    }
    rows.0
}

/// Returns a share of some quantity: that of the first view in a list that has one.
pub(crate) fn share_of(rows: &[HitShare], wanted: &[(HitQuantity, HitView)]) -> Option<f64> {
    wanted.iter().find_map(|(quantity, view)| {
        rows.iter().find(|row| (row.quantity, row.view) == (*quantity, *view)).map(|row| row.share)
    })
}
