//! Figures of the service for the overview, from its status: as text, as tables, as a picture of the
//! engine's tiers.

use std::fmt::Write as _;
use std::time::Instant;

use exacat_model::answer::StatusPart;

use super::frame::Section;
use super::table::{Cell, NUMBER, Table, WIDE_NUMBER};
use super::text::{bytes, count, span};

/// Most runs of a tier that the picture shows one by one.
const BLOCKS_MAX: u64 = 24;
/// Sizes of the picture.
const WIDTH: u64 = 1000;
const LANE: u64 = 34;
/// Space for the name of a tier.
const LEGEND: u64 = 420;

/// A status, and ways to find metrics in it.
#[derive(Clone, Copy)]
pub(super) struct Status<'a>(pub &'a [StatusPart]);

impl<'a> Status<'a> {
    /// Returns a metric of any part.
    fn get(self, name: &str) -> Option<u64> {
        let mut metrics = self.0.iter().flat_map(|part| &part.metrics);
        metrics.find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// Returns the metrics of a part.
    fn part(self, name: &str) -> &'a [(String, u64)] {
        self.0.iter().find(|part| part.part == name).map_or(&[], |part| part.metrics.as_slice())
    }

    /// Returns the sum of the metrics of all operations with this ending.
    fn of_operations(self, ending: &str) -> u64 {
        self.part("operations")
            .iter()
            .filter(|(name, _)| name.ends_with(ending))
            .map(|(_, value)| value)
            .sum()
    }

    /// Returns the notes of all parts.
    pub(crate) fn notes(self) -> impl Iterator<Item = String> + use<'a> {
        self.0.iter().flat_map(|part| part.notes.iter().map(move |note| format!("{}: {note}", part.part)))
    }
}

/// Counters at one moment, for rates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    at: Instant,
    requests: u64,
    failed: u64,
    items: u64,
    sent: u64,
}

impl Sample {
    /// Reads the counters.
    pub(crate) fn of(status: Status<'_>) -> Self {
        Sample {
            at: Instant::now(),
            requests: status.of_operations("_requests"),
            failed: status.of_operations("_failed"),
            items: status.of_operations("_items"),
            sent: status.get("sent_bytes").unwrap_or(0),
        }
    }
}

/// A figure.
pub(super) struct Figure {
    pub name: &'static str,
    pub label: &'static str,
    pub text: String,
}

fn rate(now: u64, before: u64, seconds: f64) -> u128 {
    // A rate fits: the counters have 64 bits.
    (now.saturating_sub(before) as f64 / seconds.max(0.001)) as u128
}

/// Returns the figures. Rates are those since `before`, or since the start.
pub(super) fn figures(status: Status<'_>, before: Option<Sample>) -> Vec<Figure> {
    let now = Sample::of(status);
    let up = status.get("up_seconds").unwrap_or(0);
    let (seconds, from) = match before {
        Some(before) => (now.at.duration_since(before.at).as_secs_f64(), before),
        None => (up as f64, Sample { at: now.at, requests: 0, failed: 0, items: 0, sent: 0 }),
    };
    let number =
        |name: &str| status.get(name).map_or_else(|| "none".to_owned(), |value| count(u128::from(value)));
    let size =
        |name: &str| status.get(name).map_or_else(|| "none".to_owned(), |value| bytes(u128::from(value)));
    let figure = |name, label, text| Figure { name, label, text };
    vec![
        figure("requests", "Requests a second", count(rate(now.requests, from.requests, seconds))),
        figure("items", "Items a second", count(rate(now.items, from.items, seconds))),
        figure("failed", "Refused or failed a second", count(rate(now.failed, from.failed, seconds))),
        figure("sent", "Sent to clients a second", bytes(rate(now.sent, from.sent, seconds))),
        figure("held", "Requests in progress", number("held_requests")),
        figure("connections", "Connections", number("held_connections")),
        figure("waiting", "Long reads that wait", number("lane_waiting_heavy")),
        figure("revision", "Revision", number("revision")),
        figure("files", "Files", number("files")),
        figure("directories", "Directories", number("directories")),
        figure("content", "Content", size("logical_bytes")),
        figure("replicas", "Replicas", size("replica_bytes")),
        figure("deletions", "Deletions that wait", number("deletions_waiting")),
        figure("free", "Free on the server's disk", size("disk_free_bytes")),
        figure("up", "Up", span(up)),
    ]
}

/// Returns the table of operations: numbers and latencies.
pub(super) fn operations(status: Status<'_>) -> Section {
    let columns = [
        ("Operation", ""),
        ("Requests", NUMBER),
        ("Failed", NUMBER),
        ("Items", WIDE_NUMBER),
        ("p50 (\u{b5}s)", NUMBER),
        ("p99 (\u{b5}s)", NUMBER),
        ("p99.9 (\u{b5}s)", WIDE_NUMBER),
        ("Longest (\u{b5}s)", WIDE_NUMBER),
    ];
    let mut table = Table::new("Operations since the start", &columns);
    table.empty = "No operation was requested yet.";
    let metrics = status.part("operations");
    for (name, requests) in metrics {
        let Some(operation) = name.strip_suffix("_requests") else { continue };
        let of = |what: &str| {
            let wanted = format!("{operation}_{what}");
            let found = metrics.iter().find(|(name, _)| *name == wanted);
            found.map_or_else(Cell::default, |(_, value)| Cell::count(*value))
        };
        table.push([
            Cell::text(operation),
            Cell::count(*requests),
            of("failed"),
            of("items"),
            of("p50_us"),
            of("p99_us"),
            of("p999_us"),
            of("max_us"),
        ]);
    }
    Section::new("Operations", table).named("operations")
}

/// A tier of the engine, or its memory.
struct Lane {
    name: String,
    /// Sorted runs, or memtables.
    runs: u64,
    rows: u64,
    /// Runs that are being merged, or memtables that become runs.
    moving: u64,
}

impl Lane {
    /// Draws it: a block for each run, up to a bound, those on the move in another colour and with a frame.
    fn draw(&self, picture: &mut String, top: u64, moves: &str) {
        let Lane { name, runs, rows, moving } = self;
        let moves = if *moving > 0 { format!(", {moving} {moves}") } else { String::new() };
        let _ = write!(
            picture,
            "<text x=\"8\" y=\"{}\">{name}: {runs} with {} rows{moves}</text>",
            top + LANE / 2 + 5,
            count(u128::from(*rows))
        );
        let blocks = (*runs).clamp(1, BLOCKS_MAX);
        let of_blocks = (moving * blocks).div_ceil((*runs).max(1)).min(blocks);
        let step = (WIDTH - LEGEND) / blocks;
        for block in 0..blocks {
            let _ = write!(
                picture,
                "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"3\"/>",
                if block < of_blocks { "block moving" } else { "block" },
                LEGEND + block * step,
                top + 5,
                step.saturating_sub(4),
                LANE - 10
            );
        }
    }
}

/// Returns the tiers of the embedded engine with the merges that run now, as a picture and as a table; none
/// for another store.
pub(super) fn tiers(status: Status<'_>) -> Option<Section> {
    let tiers = status.part("store").iter().filter_map(|(name, runs)| {
        let tier: u32 = name.strip_prefix("tier_")?.strip_suffix("_runs")?.parse().ok()?;
        let of = |what: &str| status.get(&format!("tier_{tier}_{what}")).unwrap_or(0);
        Some(Lane { name: format!("Tier {tier}"), runs: *runs, rows: of("rows"), moving: of("merging") })
    });
    let rows = status.get("rows_in_memory")?;
    let frozen = status.get("memtables_being_written").unwrap_or(0);
    let memory = Lane { name: "In memory".to_owned(), runs: 1 + frozen, rows, moving: frozen };
    let lanes: Vec<Lane> = std::iter::once(memory).chain(tiers).collect();
    let columns = [("Tier", ""), ("Runs", NUMBER), ("Rows", NUMBER), ("Being merged", NUMBER)];
    let mut table = Table::new("Tiers", &columns);
    let height = LANE * lanes.len() as u64;
    let mut picture = format!(
        "<svg class=\"picture\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"Sorted runs of each tier and their merges, also in the table below\">"
    );
    for (number, lane) in lanes.into_iter().enumerate() {
        let moves = if number == 0 { "become a run" } else { "being merged" };
        lane.draw(&mut picture, LANE * number as u64, moves);
        table.push([
            Cell::text(lane.name),
            Cell::count(lane.runs),
            Cell::count(lane.rows),
            Cell::count(lane.moving),
        ]);
    }
    picture.push_str("</svg>");
    let pace = match status.get("compaction_debt_runs").unwrap_or(0) {
        0 => "compaction keeps up".to_owned(),
        runs => format!("compaction is {runs} runs behind"),
    };
    let now = match status.get("compactions_running").unwrap_or(0) {
        0 => "no merge is running".to_owned(),
        1 => "one merge is running".to_owned(),
        merges => format!("{merges} merges are running"),
    };
    Some(Section { picture, ..Section::new(format!("Engine: {pace}; {now}"), table).named("tiers") })
}

/// Returns the nodes of a cluster, with their sum and average; none without a cluster.
pub(super) fn nodes(status: Status<'_>) -> Option<Section> {
    let metrics = status.part("store");
    let columns = [
        ("Node", ""),
        ("Statements", NUMBER),
        ("Failed", NUMBER),
        ("p50 (\u{b5}s)", NUMBER),
        ("p99 (\u{b5}s)", NUMBER),
    ];
    let mut table = Table::new("Nodes of the cluster", &columns);
    let mut sums = [0_u64; 4];
    for (name, statements) in metrics {
        let Some(node) = name.strip_prefix("node_").and_then(|rest| rest.strip_suffix("_statements")) else {
            continue;
        };
        let of = |what: &str| status.get(&format!("node_{node}_{what}")).unwrap_or(0);
        let row = [*statements, of("failed"), of("us_p50"), of("us_p99")];
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum = sum.saturating_add(value));
        let mut cells = vec![Cell::text(node.replace('_', "."))];
        cells.extend(row.map(Cell::count));
        table.push(cells);
    }
    let nodes = table.rows.len() as u64;
    if nodes == 0 {
        return None;
    }
    let [statements, failed, p50, p99] = sums;
    let summary = [statements, failed, p50 / nodes, p99 / nodes];
    let mut cells = vec![Cell::text("Sum, and average of times")];
    cells.extend(summary.map(Cell::count));
    table.push(cells);
    Some(Section::new("Cluster", table).named("nodes"))
}

/// Returns every metric of the status.
pub(super) fn all(status: Status<'_>) -> Section {
    let mut table = Table::new("Every metric", &[("Metric", ""), ("Part", ""), ("Value", NUMBER)]);
    for part in status.0.iter().filter(|part| part.part != "operations") {
        for (name, value) in &part.metrics {
            table.push([Cell::text(name), Cell::text(&part.part), Cell::count(*value)]);
        }
    }
    Section::new("Every metric", table).named("metrics")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, metrics: &[(&str, u64)]) -> StatusPart {
        let metrics = metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        StatusPart { part: name.to_owned(), metrics, notes: Vec::new() }
    }

    /// Property: the picture of tiers has a block for each run, up to its bound, and marks those that are
    /// being merged; the table says the same.
    #[test]
    fn picture_and_table_of_tiers_agree() {
        let store = part(
            "store",
            &[
                ("rows_in_memory", 7),
                ("tier_3_runs", 2),
                ("tier_3_rows", 2000),
                ("tier_9_runs", 99),
                ("tier_9_rows", 5),
                ("tier_9_merging", 8),
                ("memtables_being_written", 2),
                ("compactions_running", 1),
            ],
        );
        let section = tiers(Status(&[store])).unwrap();
        assert_eq!(section.picture.matches("<rect").count() as u64, 3 + 2 + BLOCKS_MAX);
        // 8 of 99 runs are two of 24 blocks.
        assert_eq!(section.picture.matches("block moving").count(), 2 + 2);
        assert!(section.picture.contains("99 with 5 rows, 8 being merged<"), "{}", section.picture);
        assert!(section.picture.contains("3 with 7 rows, 2 become a run<"), "{}", section.picture);
        assert_eq!(section.heading, "Engine: compaction keeps up; one merge is running");
        assert_eq!(section.table.rows.len(), 3);
        assert!(section.table.csv().contains("\"Tier 9\",\"99\",\"5\",\"8\""), "{}", section.table.csv());
        assert!(tiers(Status(&[part("store", &[])])).is_none());
    }

    /// Property: the last row of a cluster has sums of counts, and averages of times.
    #[test]
    fn cluster_has_sums_and_averages() {
        let store = part(
            "store",
            &[
                ("node_10_0_0_1_statements", 10),
                ("node_10_0_0_1_failed", 1),
                ("node_10_0_0_1_us_p50", 100),
                ("node_10_0_0_1_us_p99", 300),
                ("node_10_0_0_2_statements", 30),
                ("node_10_0_0_2_us_p50", 200),
            ],
        );
        let csv = nodes(Status(&[store])).unwrap().table.csv();
        assert!(csv.contains("\"10.0.0.1\",\"10\",\"1\",\"100\",\"300\""), "{csv}");
        assert!(csv.ends_with("\"Sum, and average of times\",\"40\",\"1\",\"150\",\"150\"\r\n"), "{csv}");
    }

    /// Property: rates are of the time between two samples; before a second sample, of the time since the
    /// start.
    #[test]
    fn rates_are_of_the_time_between_samples() {
        let parts = [part("server", &[("up_seconds", 10)]), part("operations", &[("stat_requests", 500)])];
        let shown = |before| figures(Status(&parts), before)[0].text.clone();
        assert_eq!(shown(None), "50");
        let at = Instant::now() - std::time::Duration::from_secs(4);
        let text = shown(Some(Sample { at, requests: 100, failed: 0, items: 0, sent: 0 }));
        assert!(["99", "100"].contains(&text.as_str()), "{text}");
    }
}
