//! State of the live view: table, order, filter, pause; and what keys do to it.

use exacat_server::report::{Section, sections, short_time};
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};

use super::{INTERVAL_S, Reading};

/// Characters of a filter.
const FILTER_CHARACTERS_MAX: usize = 60;

/// Effect of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Draw again.
    Draw,
    /// Read again.
    Renew,
    /// End.
    End,
}

/// State of the view.
pub(super) struct View {
    pub reading: Option<Reading>,
    /// All tables of the reading.
    pub tables: Vec<Section>,
    /// Title of the chosen table, which may be absent from a reading.
    pub title: String,
    /// Column to sort by, and whether the largest comes first; none for the order of the server.
    pub sort: Option<(usize, bool)>,
    pub filter: String,
    pub is_typing: bool,
    pub is_paused: bool,
    pub is_help: bool,
    /// Seconds between readings.
    pub interval: u64,
    /// First row shown.
    pub scrolled: usize,
    pub error: Option<String>,
}

/// Returns the tables of a reading: those of a report, and the requests in progress.
pub(super) fn tables(reading: &Reading) -> Vec<Section> {
    let mut tables = sections(&reading.period, None);
    let columns = ["ID", "OPERATION", "USER", "CLIENT", "TIME", "STATE", "PATH"];
    let columns = columns.map(|name| (name.to_owned(), matches!(name, "ID" | "TIME")));
    let rows = reading.requests.iter().map(|request| {
        vec![
            request.id.to_string(),
            request.operation.clone(),
            request.user.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
            if request.client.is_empty() { "-".to_owned() } else { request.client.clone() },
            short_time(request.life_us),
            request.state.clone(),
            request.subject.clone(),
        ]
    });
    let requests = Section {
        title: "Requests",
        note: "In progress now, the oldest first.",
        columns: columns.into(),
        rows: rows.collect(),
    };
    // After load, states and operations.
    tables.insert(tables.len().min(3), requests);
    tables
}

/// Returns the number that a cell shows, for sorting; none for text.
fn value(cell: &str) -> Option<f64> {
    let digits = cell.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-')).unwrap_or(cell.len());
    let number: f64 = cell[..digits].parse().ok()?;
    let factor = match cell[digits..].trim() {
        "" | "us" | "%" => 1.0,
        "ms" | "k" => 1e3,
        "s" | "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        _ => return None,
    };
    Some(number * factor)
}

impl View {
    pub(super) fn new(interval: u64) -> Self {
        View {
            reading: None,
            tables: Vec::new(),
            title: "Where the time went".to_owned(),
            sort: None,
            filter: String::new(),
            is_typing: false,
            is_paused: false,
            is_help: false,
            interval,
            scrolled: 0,
            error: None,
        }
    }

    /// Takes a new reading.
    pub(super) fn show(&mut self, reading: Reading) {
        self.tables = tables(&reading);
        self.reading = Some(reading);
        self.error = None;
    }

    /// Keeps the last reading, and shows why there is no newer one.
    pub(super) fn fail(&mut self, error: &str) {
        self.error = Some(error.to_owned());
    }

    /// Returns the chosen table, with its rows filtered and sorted.
    pub(super) fn table(&self) -> Option<Section> {
        let mut table = self.tables.iter().find(|table| table.title == self.title)?.clone();
        let wanted = self.filter.to_lowercase();
        table.rows.retain(|row| row.iter().any(|cell| cell.to_lowercase().contains(&wanted)));
        if let Some((column, is_descending)) = self.sort {
            table.rows.sort_by(|a, b| {
                let (a, b) =
                    (a.get(column).map_or("", String::as_str), b.get(column).map_or("", String::as_str));
                let order = match (value(a), value(b)) {
                    (Some(a), Some(b)) => a.total_cmp(&b),
                    _ => a.cmp(b),
                };
                if is_descending { order.reverse() } else { order }
            });
        }
        Some(table)
    }

    fn choose(&mut self, number: usize) {
        if let Some(table) = self.tables.get(number) {
            self.title = table.title.to_owned();
            self.sort = None;
            self.scrolled = 0;
        }
    }

    fn chosen(&self) -> usize {
        self.tables.iter().position(|table| table.title == self.title).unwrap_or(0)
    }

    fn sort_by(&mut self, step: isize) {
        let columns = self.table().map_or(1, |table| table.columns.len().max(1));
        let is_number = |view: &Self, column: usize| {
            view.table()
                .and_then(|table| table.columns.get(column).map(|(_, is_number)| *is_number))
                .unwrap_or(false)
        };
        let column = match self.sort {
            None => 0,
            Some((column, _)) => (column as isize + step).rem_euclid(columns as isize) as usize,
        };
        // The largest number first, the first name first.
        self.sort = Some((column, is_number(self, column)));
    }

    /// Carries out a key.
    pub(super) fn event(&mut self, event: &Event) -> Action {
        let Event::Key(KeyEvent { code, modifiers, .. }) = event else { return Action::Draw };
        if *code == KeyCode::Char('c') && modifiers.contains(KeyModifiers::CONTROL) {
            return Action::End;
        }
        if self.is_typing {
            match code {
                KeyCode::Enter => self.is_typing = false,
                KeyCode::Esc => {
                    self.is_typing = false;
                    self.filter.clear();
                }
                KeyCode::Backspace => drop(self.filter.pop()),
                KeyCode::Char(c) if self.filter.chars().count() < FILTER_CHARACTERS_MAX => {
                    self.filter.push(*c)
                }
                _ => {}
            }
            self.scrolled = 0;
            return Action::Draw;
        }
        if self.is_help {
            self.is_help = false;
            return Action::Draw;
        }
        match code {
            KeyCode::Char('q') => return Action::End,
            KeyCode::Char('r') => return Action::Renew,
            KeyCode::Char('?' | 'h') => self.is_help = true,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char(' ' | 'P') => self.is_paused = !self.is_paused,
            KeyCode::Char('+') => self.interval = (self.interval + 1).min(*INTERVAL_S.end()),
            KeyCode::Char('-') => self.interval = (self.interval - 1).max(*INTERVAL_S.start()),
            KeyCode::Char(digit @ '1'..='9') => self.choose(*digit as usize - '1' as usize),
            KeyCode::Tab => self.choose((self.chosen() + 1) % self.tables.len().max(1)),
            KeyCode::BackTab => {
                self.choose((self.chosen() + self.tables.len().max(1) - 1) % self.tables.len().max(1))
            }
            KeyCode::Char('<') | KeyCode::Left => self.sort_by(-1),
            KeyCode::Char('>') | KeyCode::Right => self.sort_by(1),
            KeyCode::Char('S') => {
                self.sort = self.sort.map(|(column, is_descending)| (column, !is_descending))
            }
            KeyCode::Down | KeyCode::Char('j') => self.scrolled += 1,
            KeyCode::Up | KeyCode::Char('k') => self.scrolled = self.scrolled.saturating_sub(1),
            KeyCode::PageDown => self.scrolled += 10,
            KeyCode::PageUp => self.scrolled = self.scrolled.saturating_sub(10),
            KeyCode::Home => self.scrolled = 0,
            _ => {}
        }
        Action::Draw
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use exacat_model::TimeMs;
    use exacat_model::period::{OperationPeriod, Period, RequestShown, StatePeriod};

    /// A reading with two operations, two states and two requests.
    pub(in super::super) fn reading() -> Reading {
        let operation = |name: &str, requests, p99_us| OperationPeriod {
            name: name.to_owned(),
            requests,
            p99_us,
            life_us: 100,
            states: vec![("execute".to_owned(), 100)],
            ..OperationPeriod::default()
        };
        let state = |state: &str, class: &str, time_us| StatePeriod {
            state: state.to_owned(),
            class: class.to_owned(),
            requests: 7,
            time_us,
            ..StatePeriod::default()
        };
        let request = |id, subject: &str| RequestShown {
            id,
            operation: "find".to_owned(),
            subject: subject.to_owned(),
            life_us: 1500,
            state: "page_read".to_owned(),
            ..RequestShown::default()
        };
        let period = Period {
            from: TimeMs(1_000),
            to: TimeMs(3_000),
            samples: 2,
            operations: vec![operation("register", 900, 12_000), operation("stat", 3_000, 800)],
            states: vec![state("log_sync", "commit", 750_000), state("execute", "cpu", 250_000)],
            ..Period::default()
        };
        Reading { period, requests: vec![request(1, "/alice/data"), request(2, "/bob/\u{1b}[31mred")] }
    }

    fn view() -> View {
        let mut view = View::new(2);
        view.show(reading());
        view
    }

    fn press(view: &mut View, keys: &str) -> Action {
        keys.chars().fold(Action::Draw, |_, key| view.event(&Event::Key(KeyCode::Char(key).into())))
    }

    fn first_cells(view: &View) -> Vec<String> {
        view.table().unwrap().rows.iter().map(|row| row[0].clone()).collect()
    }

    /// Columns of numbers sort by their values, whatever the unit, the largest first.
    #[test]
    fn rows_sort_by_the_values_of_a_column() {
        let mut view = view();
        press(&mut view, "3");
        assert_eq!(view.title, "Operations");
        assert_eq!(first_cells(&view), ["register", "stat"]);
        press(&mut view, ">>");
        assert_eq!((view.sort, first_cells(&view)[0].as_str()), (Some((1, true)), "stat"));
        press(&mut view, ">>>>");
        assert_eq!((view.sort, first_cells(&view)[0].as_str()), (Some((5, true)), "register"));
        press(&mut view, "S");
        assert_eq!(first_cells(&view)[0], "stat");
        press(&mut view, "<<<<<<");
        assert_eq!(view.sort, Some((7, false)), "columns go round");
    }

    #[test]
    fn filter_keeps_rows_that_contain_it() {
        let mut view = view();
        press(&mut view, "4/ALICE");
        assert_eq!(first_cells(&view), ["1"]);
        assert!(view.is_typing);
        // While the user types, keys are text.
        assert_eq!(press(&mut view, "q"), Action::Draw);
        assert!(first_cells(&view).is_empty());
        view.event(&Event::Key(KeyCode::Esc.into()));
        assert_eq!(first_cells(&view), ["1", "2"]);
        press(&mut view, "/");
        press(&mut view, &"x".repeat(100));
        assert_eq!(view.filter.len(), FILTER_CHARACTERS_MAX);
    }

    #[test]
    fn keys_choose_pause_and_end() {
        let mut view = view();
        assert_eq!(press(&mut view, " "), Action::Draw);
        assert!(view.is_paused);
        assert_eq!(press(&mut view, "r"), Action::Renew);
        press(&mut view, "-------");
        assert_eq!(view.interval, 1);
        press(&mut view, "9");
        assert_eq!(view.title, "Where the time went", "there is no ninth table");
        for _ in 0..view.tables.len() {
            view.event(&Event::Key(KeyCode::Tab.into()));
        }
        assert_eq!(view.title, "Where the time went");
        assert_eq!(press(&mut view, "q"), Action::End);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(view.event(&Event::Key(control_c)), Action::End);
    }
}
