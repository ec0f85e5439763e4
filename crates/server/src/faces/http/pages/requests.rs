//! Requests in progress, and requests that took long: each with the times of its states, as a bar and as a
//! table.

use std::fmt::Write as _;

use exacat_activity::{Class, RequestState};
use exacat_model::period::RequestShown;
use exacat_model::{Answer, Error, Lfn, Operation, Result};
use hyper::Response;

use super::super::answers::Body;
use super::frame::{Link, Section};
use super::table::{Cell, NUMBER, Piece, Table, WIDE, WIDE_NUMBER, WIDE_TIME};
use super::tables::TablesPage;
use super::text::{count, url, with};
use super::visit::{Visit, unfitting};

/// Paths of the pages.
pub(super) const ACTIVE: &str = "/requests";
pub(super) const SLOW: &str = "/slow";
/// Parameter with the number of one request.
const ID: &str = "id";

async fn requests(visit: &mut Visit<'_>, operation: Operation) -> Result<Vec<RequestShown>> {
    match visit.call.ask(operation).await? {
        Answer::Requests(requests) => Ok(requests),
        _ => Err(unfitting()),
    }
}

/// Answers with the requests in progress, or with one of them.
pub(super) async fn active(mut visit: Visit<'_>) -> Result<Response<Body>> {
    let all = requests(&mut visit, Operation::Sessions).await?;
    if let Some(number) = number(&visit)? {
        return one(visit, all, number).await;
    }
    let frame = visit.frame.titled("Requests in progress", ACTIVE);
    let intro = "The oldest first, at most 1000. A number leads to all states of the request.".to_owned();
    let links = vec![Link::new("Slow requests", SLOW)];
    let parts = vec![
        Section::new("In progress", listed("Requests in progress", &all, true)).named("requests"),
        Section::new("Where their time went", states("Time of these requests by state", &sums(&all)))
            .named("states"),
    ];
    TablesPage { frame, intro, links, parts, ..TablesPage::default() }.answer(&visit, None)
}

/// Answers with the requests that took long, or with one of them.
pub(super) async fn slow(mut visit: Visit<'_>) -> Result<Response<Body>> {
    let all = requests(&mut visit, Operation::SlowRequests).await?;
    if let Some(number) = number(&visit)? {
        return one(visit, all, number).await;
    }
    let frame = visit.frame.titled("Slow requests", ACTIVE);
    let intro =
        "The last ones first, at most 1000 since the start. Waits for the client do not make a request \
                 slow. A number leads to all states of the request."
            .to_owned();
    let links = vec![Link::new("Requests in progress", ACTIVE)];
    let parts = vec![
        Section::new("Slow requests", listed("Slow requests", &all, false)).named("slow"),
        Section::new("Where their time went", states("Time of these requests by state", &sums(&all)))
            .named("states"),
    ];
    TablesPage { frame, intro, links, parts, ..TablesPage::default() }.answer(&visit, None)
}

fn number(visit: &Visit<'_>) -> Result<Option<u64>> {
    let bad = |text: &str| Error::invalid(format!("not the number of a request: {text:.60?}"));
    visit.query.get(ID).map(|text| text.parse().map_err(|_| bad(text))).transpose()
}

/// Answers with one request. One that ended meanwhile may be among the slow ones.
async fn one(mut visit: Visit<'_>, all: Vec<RequestShown>, number: u64) -> Result<Response<Body>> {
    let mut found = all.into_iter().find(|request| request.id == number);
    if found.is_none() {
        let slow = requests(&mut visit, Operation::SlowRequests).await?;
        found = slow.into_iter().find(|request| request.id == number);
    }
    let request = found.ok_or_else(|| {
        Error::not_found(format!("request {number}: it has ended, and is not among the slow ones"))
    })?;
    let mut facts = Table::new("Facts", &[("Fact", ""), ("Value", "")]);
    let mut fact = |name: &str, cell: Cell| facts.push([Cell::text(name), cell]);
    fact("Operation", Cell::text(&request.operation));
    fact("Items", Cell::count(request.items));
    fact("User", Cell::maybe(request.user.as_ref()));
    fact("Client", Cell::text(&request.client));
    fact("Path", subject(&request));
    fact("Received (UTC)", Cell::time(request.began));
    fact("Time", Cell::text(duration(request.life_us)));
    fact("State", Cell::text(&request.state));
    let frame = visit.frame.titled(format!("Request {number}"), ACTIVE);
    let mut links = vec![Link::new("Requests in progress", ACTIVE), Link::new("Slow requests", SLOW)];
    if request.state != ENDED {
        links.push(Link::new("Cancel it", kill(number)));
    }
    let parts = vec![
        Section::new("Facts", facts),
        Section::new("States", states("Time in each state", &request.states)).named("states"),
    ];
    TablesPage { frame, links, parts, ..TablesPage::default() }.answer(&visit, None)
}

/// State of a request that ended.
const ENDED: &str = "ended";

/// Returns the URL of the confirmation before a request is cancelled.
fn kill(number: u64) -> String {
    with("/action/request-kill".to_owned(), "of", &number.to_string())
}

/// Returns a time as people read it.
fn duration(us: u64) -> String {
    match us {
        0..1000 => format!("{us} \u{b5}s"),
        1000..1_000_000 => format!("{}.{} ms", us / 1000, us % 1000 / 100),
        _ => format!("{}.{:02} s", count(u128::from(us / 1_000_000)), us % 1_000_000 / 10_000),
    }
}

fn subject(request: &RequestShown) -> Cell {
    match Lfn::parse(&request.subject) {
        Ok(lfn) => Cell::text(&request.subject).linked(url("/entry", &lfn)),
        Err(_) => Cell::text(&request.subject),
    }
}

/// Makes the table of requests; those in progress have their state, and a link to cancel each.
fn listed(caption: &str, all: &[RequestShown], are_active: bool) -> Table {
    let mut columns = vec![
        ("Request", NUMBER),
        ("Operation", ""),
        ("Time", NUMBER),
        ("States", ""),
        ("User", ""),
        ("Client", WIDE),
        ("Items", WIDE_NUMBER),
        ("Path", WIDE),
        ("Received (UTC)", WIDE_TIME),
    ];
    if are_active {
        columns.extend([("State", ""), ("Cancel", "")]);
    }
    let mut table = Table::new(caption, &columns);
    table.empty = if are_active { "No request is in progress." } else { "No request was slow." };
    for request in all {
        let page = if are_active { ACTIVE } else { SLOW };
        let mut row = vec![
            Cell::text(request.id).linked(with(page.to_owned(), ID, &request.id.to_string())),
            Cell::text(&request.operation),
            Cell::text(duration(request.life_us)).exactly(request.life_us.to_string()),
            bar(request),
            Cell::maybe(request.user.as_ref()),
            Cell::text(&request.client),
            Cell::count(request.items),
            subject(request),
            Cell::time(request.began),
        ];
        if are_active {
            row.extend([Cell::text(&request.state), Cell::text("Cancel").linked(kill(request.id))]);
        }
        table.push(row);
    }
    table
}

/// States that a cell names; the bar has all of them.
const STATES_NAMED: usize = 3;

/// Makes the cell of the states of a request: the longest in words, all as a bar, all as CSV in microseconds.
fn bar(request: &RequestShown) -> Cell {
    let life = request.states.iter().map(|(_, us)| *us).sum::<u64>().max(1);
    let mut longest: Vec<&(String, u64)> = request.states.iter().collect();
    longest.sort_by_key(|(_, us)| std::cmp::Reverse(*us));
    let (mut text, mut exact) = (String::new(), String::new());
    for (number, (state, us)) in longest.iter().enumerate() {
        let separator = if number == 0 { "" } else { ", " };
        if number < STATES_NAMED {
            let _ =
                write!(text, "{separator}{state}\u{a0}{}\u{a0}%", u128::from(*us) * 100 / u128::from(life));
        }
        let _ = write!(exact, "{}{state}={us}", if number == 0 { "" } else { ";" });
    }
    let (mut at, mut pieces) = (0_u64, Vec::new());
    for (state, us) in &request.states {
        let place = |us: u64| u32::try_from(u128::from(us) * 1000 / u128::from(life)).unwrap_or(1000);
        let (start, end) = (place(at), place(at.saturating_add(*us)));
        at = at.saturating_add(*us);
        let class = RequestState::named(state).map_or(Class::Unaccounted, RequestState::class);
        pieces.push(Piece { start, width: end.saturating_sub(start), class: class.name() });
    }
    let mut cell = Cell::text(text).exactly(exact);
    cell.pieces = pieces;
    cell
}

/// Returns the sum of each state over all requests.
fn sums(all: &[RequestShown]) -> Vec<(String, u64)> {
    let of = |name: &str| {
        let all = all.iter().flat_map(|request| &request.states);
        all.filter(|(state, _)| state == name).map(|(_, us)| *us).sum::<u64>()
    };
    let states = RequestState::ALL.iter().map(|state| (state.name().to_owned(), of(state.name())));
    states.filter(|(_, us)| *us > 0).collect()
}

/// Makes the table of the time in each state, the longest first, with what to do about each.
fn states(caption: &str, all: &[(String, u64)]) -> Table {
    let columns = [
        ("State", ""),
        ("Class", ""),
        ("Time", NUMBER),
        ("Share", NUMBER),
        ("Meaning", WIDE),
        ("What to do", WIDE),
    ];
    let mut table = Table::new(caption, &columns);
    table.empty = "No time yet.";
    let sum = all.iter().map(|(_, us)| u128::from(*us)).sum::<u128>();
    let mut all: Vec<&(String, u64)> = all.iter().collect();
    all.sort_by_key(|(_, us)| std::cmp::Reverse(*us));
    for (name, us) in all {
        let state = RequestState::named(name);
        let share = u128::from(*us) * 1000 / sum.max(1);
        table.push([
            Cell::text(name),
            Cell::maybe(state.map(|state| state.class().name())),
            Cell::text(duration(*us)).exactly(us.to_string()),
            Cell::text(format!("{}.{} %", share / 10, share % 10)).barred(u128::from(*us), sum),
            Cell::maybe(state.map(RequestState::meaning)),
            Cell::maybe(state.map(RequestState::remedy)),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: the pieces of a bar have no gap, do not overlap, and end where the bar ends.
    #[test]
    fn bar_is_the_sum_of_its_states() {
        let states = [("decode", 1), ("execute", 333), ("log_sync", u64::from(u32::MAX)), ("new_one", 7)];
        let states = states.map(|(name, us)| (name.to_owned(), us)).into();
        let cell = bar(&RequestShown { states, ..RequestShown::default() });
        let mut at = 0;
        for piece in &cell.pieces {
            assert_eq!(piece.start, at);
            at += piece.width;
        }
        assert_eq!(at, 1000);
        assert_eq!(cell.pieces[2].class, "commit");
        assert_eq!(cell.pieces[3].class, "unaccounted", "a state that is not known here");
        assert!(cell.text.starts_with("log_sync\u{a0}99\u{a0}%, execute\u{a0}0\u{a0}%"), "{}", cell.text);
        assert!(bar(&RequestShown::default()).pieces.is_empty());
        let most = vec![("execute".to_owned(), u64::MAX)];
        assert_eq!(bar(&RequestShown { states: most, ..RequestShown::default() }).pieces[0].width, 1000);
    }

    #[test]
    fn times_are_in_the_unit_that_people_read() {
        for (us, text) in [
            (0, "0 \u{b5}s"),
            (999, "999 \u{b5}s"),
            (1000, "1.0 ms"),
            (999_999, "999.9 ms"),
            (1_000_000, "1.00 s"),
            (3_600_000_000, "3\u{202f}600.00 s"),
        ] {
            assert_eq!(duration(us), text);
        }
    }
}
