//! Servers of the catalogue and their machines: a row for each, then sums and averages.

use exacat_model::{Answer, Operation, Result};
use hyper::Response;

use super::super::answers::Body;
use super::frame::{Link, Section};
use super::table::{Cell, NUMBER, Table, WIDE, WIDE_NUMBER};
use super::tables::TablesPage;
use super::text::span;
use super::visit::{Visit, unfitting};
use crate::servers::ServerState;

/// Path of the page.
pub(super) const PATH: &str = "/servers";

/// Form of a number.
#[derive(Clone, Copy)]
enum Form {
    Count,
    Bytes,
    /// Thousandths, with one decimal.
    Milli,
    /// Thousandths, in percent.
    Share,
    Seconds,
    /// Milliseconds, in seconds with one decimal.
    Age,
}

impl Form {
    fn cell(self, number: u64) -> Cell {
        let tenths = |thousandths: u64| format!("{}.{}", thousandths / 1000, thousandths % 1000 / 100);
        match self {
            Form::Count => Cell::count(number),
            Form::Bytes => Cell::bytes(number),
            Form::Milli => {
                let exact = format!("{}.{:03}", number / 1000, number % 1000);
                Cell::text(tenths(number)).exactly(exact)
            }
            Form::Share => Cell::text(format!("{}.{} %", number / 10, number % 10)),
            Form::Seconds => Cell::text(span(number)).exactly(number.to_string()),
            Form::Age => Cell::text(format!("{} s", tenths(number))),
        }
    }
}

/// Value of a column.
enum Value {
    Text(fn(&ServerState) -> &str),
    /// A number whose sum means something.
    Sum(fn(&ServerState) -> u64, Form),
    /// A number that has an average only.
    Mean(fn(&ServerState) -> u64, Form),
}

type Columns<'a> = &'a [(&'static str, &'static str, Value)];

/// Makes a table with a row for each server, and those of sums and averages.
fn table(caption: &'static str, servers: &[ServerState], columns: Columns<'_>) -> Table {
    let names: Vec<_> = columns.iter().map(|(name, class, _)| (*name, *class)).collect();
    let mut table = Table::new(caption, &[[("Server", "")].as_slice(), &names].concat());
    table.empty = "The server has not shown its state yet.";
    for server in servers {
        let mut row = vec![Cell::text(&server.name)];
        row.extend(columns.iter().map(|(_, _, value)| match value {
            Value::Text(of) => Cell::text(of(server)),
            Value::Sum(of, form) | Value::Mean(of, form) => form.cell(of(server)),
        }));
        table.push(row);
    }
    let count = servers.len() as u128;
    if count == 0 {
        return table;
    }
    let sum =
        |of: &fn(&ServerState) -> u64| servers.iter().map(|server| u128::from(of(server))).sum::<u128>();
    let small = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
    let mut sums = vec![Cell::text("Total")];
    sums.extend(columns.iter().map(|(_, _, value)| match value {
        Value::Sum(of, form) => form.cell(small(sum(of))),
        Value::Text(_) | Value::Mean(..) => Cell::default(),
    }));
    let mut means = vec![Cell::text("Average")];
    means.extend(columns.iter().map(|(_, _, value)| match value {
        Value::Sum(of, form) | Value::Mean(of, form) => form.cell(small(sum(of) / count)),
        Value::Text(_) => Cell::default(),
    }));
    table.push(sums);
    table.push(means);
    table
}

/// Answers with all servers.
pub(super) async fn servers(mut visit: Visit<'_>) -> Result<Response<Body>> {
    // The rights are those of the status.
    let Answer::Status(_) = visit.call.ask(Operation::Status).await? else { return Err(unfitting()) };
    let servers = visit.call.service.states().await;
    use Form::{Age, Bytes, Count, Milli, Seconds, Share};
    use Value::{Mean, Sum, Text};
    let rates: Columns<'_> = &[
        ("State", "", Text(|one| &one.is)),
        ("Up", NUMBER, Mean(|one| one.up_seconds, Seconds)),
        ("Requests/s", NUMBER, Sum(|one| one.requests_milli, Milli)),
        ("Reads/s", NUMBER, Sum(|one| one.reads_milli, Milli)),
        ("Changes/s", NUMBER, Sum(|one| one.changes_milli, Milli)),
        ("p99 (\u{b5}s)", NUMBER, Mean(|one| one.p99_us, Count)),
        ("Revision", WIDE_NUMBER, Mean(|one| one.revision, Count)),
        ("Its age", WIDE_NUMBER, Mean(|one| one.revision_age_ms, Age)),
        ("Version", WIDE, Text(|one| &one.version)),
    ];
    let machines: Columns<'_> = &[
        ("Up", NUMBER, Mean(|one| one.machine_up_seconds, Seconds)),
        ("Load", NUMBER, Sum(|one| one.load_milli, Milli)),
        ("CPUs", NUMBER, Sum(|one| one.processors, Count)),
        ("MHz", WIDE_NUMBER, Mean(|one| one.mhz, Count)),
        ("Kernel", WIDE, Text(|one| &one.kernel)),
        ("System", WIDE, Text(|one| &one.system)),
        ("Model", WIDE, Text(|one| &one.model)),
    ];
    let processors: Columns<'_> = &[
        ("In use", NUMBER, Mean(ServerState::busy, Share)),
        ("User", NUMBER, Mean(|one| one.cpu[0], Share)),
        ("System", NUMBER, Mean(|one| one.cpu[2], Share)),
        ("I/O wait", NUMBER, Mean(|one| one.cpu[4], Share)),
        ("Interrupts", WIDE_NUMBER, Mean(|one| one.cpu[5], Share)),
        ("Soft interrupts", WIDE_NUMBER, Mean(|one| one.cpu[6], Share)),
        ("Stolen", WIDE_NUMBER, Mean(|one| one.cpu[7], Share)),
        ("Nice", WIDE_NUMBER, Mean(|one| one.cpu[1], Share)),
        ("Idle", NUMBER, Mean(|one| one.cpu[3], Share)),
    ];
    let memory: Columns<'_> = &[
        ("Memory", NUMBER, Sum(|one| one.memory_bytes, Bytes)),
        ("Used", NUMBER, Sum(ServerState::memory_used, Bytes)),
        ("Buffers", WIDE_NUMBER, Sum(|one| one.memory_buffers_bytes, Bytes)),
        ("Cached", WIDE_NUMBER, Sum(|one| one.memory_cached_bytes, Bytes)),
        ("Free", NUMBER, Sum(|one| one.memory_free_bytes, Bytes)),
        ("Disk", NUMBER, Sum(|one| one.disk_bytes, Bytes)),
        ("Free on it", NUMBER, Sum(|one| one.disk_free_bytes, Bytes)),
    ];
    let section =
        |heading, name, columns| Section::new(heading, table(heading, &servers, columns)).named(name);
    let parts = vec![
        section("Rates of the servers", "rates", rates),
        section("Machines", "machines", machines),
        section("Use of the processors", "processors", processors),
        section("Memory and disk of the data", "memory", memory),
    ];
    let intro = "Rates and shares are those of about the last 10 seconds. On a cluster, each server shows its \
                 state to the others every 10 seconds, and is left out a minute after it showed nothing.";
    TablesPage {
        frame: visit.frame.titled("Servers", PATH),
        intro: intro.to_owned(),
        links: vec![Link::new("Overview", "/overview")],
        parts,
        ..TablesPage::default()
    }
    .answer(&visit, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: each server has a row, sums are of numbers that add up only, and averages of all numbers.
    #[test]
    fn rows_end_with_sums_and_averages() {
        let server = |name: &str, load_milli, mhz, shares| ServerState {
            name: name.to_owned(),
            load_milli,
            mhz,
            cpu: shares,
            ..ServerState::default()
        };
        let servers = [
            server("a", 1500, 1000, [100, 0, 0, 900, 0, 0, 0, 0]),
            server("b", 500, 3000, [300, 0, 0, 700, 0, 0, 0, 0]),
        ];
        let columns: Columns<'_> = &[
            ("Load", NUMBER, Value::Sum(|one| one.load_milli, Form::Milli)),
            ("MHz", NUMBER, Value::Mean(|one| one.mhz, Form::Count)),
            ("In use", NUMBER, Value::Mean(ServerState::busy, Form::Share)),
            ("Kernel", "", Value::Text(|one| &one.kernel)),
        ];
        let csv = table("Machines", &servers, columns).csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(
            lines[1..],
            [
                "\"a\",\"1.500\",\"1000\",\"10.0 %\",\"\"",
                "\"b\",\"0.500\",\"3000\",\"30.0 %\",\"\"",
                "\"Total\",\"2.000\",\"\",\"\",\"\"",
                "\"Average\",\"1.000\",\"2000\",\"20.0 %\",\"\"",
            ]
        );
        assert_eq!(table("Machines", &[], columns).rows.len(), 0);
    }
}
