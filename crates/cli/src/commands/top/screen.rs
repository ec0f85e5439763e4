//! Draws the live view.

use exacat_server::report::{Section, classes, heading, load_figures};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table, Wrap};

use super::view::View;
use crate::quoting::Shown;

/// Widest column but the last, in characters.
const COLUMN_MAX: u16 = 26;
/// The same of a column of names before numbers only, such as those of metrics.
const NAMES_MAX: u16 = 42;
/// Colours of classes in the bar.
const COLOURS: [Color; 6] =
    [Color::Cyan, Color::Yellow, Color::Magenta, Color::Green, Color::Blue, Color::Red];
/// Signs of classes in the bar, for terminals without colour.
const SIGNS: [char; 6] = ['#', '=', '+', '*', 'o', '.'];
const HELP: &str = "\
1-9, Tab   choose the table
arrows, jk scroll
< >        choose the column to sort by; S turns the order round
/          filter the rows; Esc ends it
space, P   pause
r          read again now
+ -        change the interval
q          end

Any key closes this help.";

/// True if the user wants no colours.
fn is_plain() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

fn coloured(colour: Color) -> Style {
    if is_plain() { Style::new() } else { Style::new().fg(colour) }
}

/// Escapes control characters, which could change the terminal.
fn harmless(text: &str) -> String {
    Shown { text, escape: true }.to_string()
}

/// Draws the view.
pub(super) fn draw(frame: &mut Frame<'_>, view: &mut View) {
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(2),
        Constraint::Length(2),
        Constraint::Length(2),
        Constraint::Min(1),
        Constraint::Length(1),
    ]);
    let [head, load, bar, tabs, table, foot] = areas.areas(frame.area());
    draw_head(frame, head, view);
    draw_load(frame, load, view);
    draw_bar(frame, bar, view);
    draw_tabs(frame, tabs, view);
    draw_table(frame, table, view);
    draw_foot(frame, foot, view);
    if view.is_help {
        let area = centred(frame.area(), 62, 12);
        frame.render_widget(Clear, area);
        frame.render_widget(Paragraph::new(HELP).block(Block::bordered().title("Help")), area);
    }
}

fn centred(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height }
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let about = view.reading.as_ref().map_or_else(|| "reading …".to_owned(), |one| heading(&one.period));
    let paused = if view.is_paused { "  PAUSED" } else { "" };
    let line = Line::from(vec![
        Span::styled("exacat top ", Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(about),
        Span::styled(paused, Style::new().add_modifier(Modifier::REVERSED)),
    ]);
    frame.render_widget(line, area);
}

fn draw_load(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let Some(reading) = &view.reading else { return };
    let figures = load_figures(&reading.period);
    let shown: Vec<String> = figures.iter().map(|(name, value)| format!("{name} {value}")).collect();
    frame.render_widget(Paragraph::new(shown.join("  ")).wrap(Wrap { trim: true }), area);
}

/// Draws the time by class as a bar, with its legend.
fn draw_bar(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let Some(reading) = &view.reading else { return };
    let classes = classes(&reading.period);
    let (mut bar, mut legend) = (Vec::new(), Vec::new());
    for (number, class) in classes.iter().enumerate() {
        let (style, sign) = (coloured(COLOURS[number % COLOURS.len()]), SIGNS[number % SIGNS.len()]);
        let cells = |thousandths: u64| (thousandths * u64::from(area.width) / 1000) as usize;
        let width = cells(class.x + class.width) - cells(class.x);
        bar.push(Span::styled(sign.to_string().repeat(width), style));
        legend.push(Span::styled(format!("{sign} {} {}  ", class.class, class.percent), style));
    }
    let lines = if classes.is_empty() {
        vec![Line::raw("no request ended")]
    } else {
        vec![Line::from(bar), Line::from(legend)]
    };
    frame.render_widget(Paragraph::new(lines), area);
}

fn draw_tabs(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let mut lines = vec![Line::default()];
    for (number, table) in view.tables.iter().enumerate() {
        let style = if table.title == view.title {
            Style::new().add_modifier(Modifier::REVERSED)
        } else {
            Style::new()
        };
        let tab = Span::styled(format!("{} {}", number + 1, short(table.title)), style);
        let full = lines.last().is_some_and(|line| line.width() + tab.width() > usize::from(area.width));
        if full {
            lines.push(Line::default());
        }
        if let Some(line) = lines.last_mut() {
            line.push_span(tab);
            line.push_span("  ");
        }
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// Returns a title in a word, so that all fit two lines of 80 characters.
fn short(title: &str) -> &str {
    match title {
        "Where the time went" => "States",
        "Engine and server" => "Engine",
        "Slowest requests" => "Slow",
        "Directories" => "Dirs",
        "Operations" => "Ops",
        "Stretches of threads" => "Stretches",
        other => other,
    }
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, view: &mut View) {
    let Some(table) = view.table() else {
        frame.render_widget(Paragraph::new("nothing of this kind in the last reading"), area);
        return;
    };
    let rows_shown = usize::from(area.height.saturating_sub(1)).max(1);
    view.scrolled = view.scrolled.min(table.rows.len().saturating_sub(rows_shown));
    let heading = table.columns.iter().enumerate().map(|(column, (name, is_number))| {
        let mark = match view.sort {
            Some((sorted, is_descending)) if sorted == column => {
                if is_descending {
                    "v"
                } else {
                    "^"
                }
            }
            _ => "",
        };
        aligned(&format!("{name}{mark}"), *is_number)
    });
    let heading = Row::new(heading.collect::<Vec<_>>()).style(Style::new().add_modifier(Modifier::BOLD));
    let row = |row: &Vec<String>| {
        let cells =
            row.iter().zip(&table.columns).map(|(cell, (_, is_number))| aligned(&harmless(cell), *is_number));
        Row::new(cells.collect::<Vec<_>>())
    };
    let rows = table.rows.iter().skip(view.scrolled).take(rows_shown).map(row);
    let shown = Table::new(rows, widths(&table)).header(heading).column_spacing(2);
    frame.render_widget(shown, area);
}

fn aligned(text: &str, is_number: bool) -> Cell<'static> {
    let line = Line::raw(text.to_owned());
    Cell::from(if is_number { line.right_aligned() } else { line })
}

/// Returns the widths of the columns: what they need, the last one all that is left.
fn widths(table: &Section) -> Vec<Constraint> {
    let last = table.columns.len().saturating_sub(1);
    let needed = |column: usize| {
        let cells = table.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        let longest = cells.chain([table.columns[column].0.len() + 1]).max().unwrap_or(0);
        let is_before_numbers = table.columns.iter().skip(1).all(|(_, is_number)| *is_number);
        let most = if column == 0 && is_before_numbers { NAMES_MAX } else { COLUMN_MAX };
        u16::try_from(longest).unwrap_or(most).min(most)
    };
    (0..=last)
        .map(|column| if column == last { Constraint::Fill(1) } else { Constraint::Length(needed(column)) })
        .collect()
}

fn draw_foot(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let line = if view.is_typing {
        Line::raw(format!("filter: {}_", harmless(&view.filter)))
    } else if let Some(error) = &view.error {
        Line::styled(harmless(&format!("not renewed: {error}")), coloured(Color::Red))
    } else if view.filter.is_empty() {
        Line::raw(format!("every {} s  ? help  q end  / filter  < > sort  space pause", view.interval))
    } else {
        Line::raw(format!("only rows with {:?}; Esc shows all", harmless(&view.filter)))
    };
    frame.render_widget(line, area);
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::reading;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{Event, KeyCode};

    fn text(view: &mut View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
    }

    fn view() -> View {
        let mut view = View::new(2);
        view.show(reading());
        view
    }

    /// The screen has the load, the classes by their part of the width, and the chosen table.
    #[test]
    fn screen_shows_load_classes_and_table() {
        let screen = text(&mut view(), 80, 20);
        for part in [
            "requests/s 1.9k",
            "# commit 75 %  = cpu 25 %",
            "log_sync",
            "750.0ms",
            "1 Load  2 States",
            "q end",
        ] {
            assert!(screen.contains(part), "{part}\n{screen}");
        }
        let bar = screen.lines().find(|line| line.starts_with("##")).unwrap();
        assert_eq!((bar.matches('#').count(), bar.matches('=').count()), (60, 20));
    }

    /// Nothing breaks at any size, on any table, before the first reading, and with an error.
    #[test]
    fn every_size_is_drawn() {
        for (width, height) in [(1, 1), (10, 3), (40, 10), (80, 24), (300, 100)] {
            let mut view = View::new(2);
            text(&mut view, width, height);
            view.show(reading());
            for _ in 0..=view.tables.len() {
                view.event(&Event::Key(KeyCode::Tab.into()));
                view.scrolled = 1000;
                text(&mut view, width, height);
            }
            view.fail("the server is away");
            view.event(&Event::Key(KeyCode::Char('?').into()));
            text(&mut view, width, height);
        }
    }

    /// Tabs of all tables that a reading can have are on a screen of 80 columns.
    #[test]
    fn tabs_of_all_tables_fit_80_columns() {
        let titles = [
            "Load",
            "Where the time went",
            "Operations",
            "Requests",
            "Users",
            "Clients",
            "Directories",
            "Threads",
            "Stretches of threads",
            "Disk",
            "Engine and server",
            "Slowest requests",
        ];
        let mut view = view();
        view.tables = titles.map(|title| Section { title, ..Default::default() }).to_vec();
        let screen = text(&mut view, 80, 20);
        for (number, title) in titles.iter().enumerate() {
            let tab = format!("{} {}", number + 1, short(title));
            assert!(screen.contains(&tab), "{tab}: {screen}");
        }
    }

    /// Names cannot control the terminal, and an error leaves the last reading on the screen.
    #[test]
    fn names_are_harmless_and_errors_are_told() {
        let mut view = view();
        view.event(&Event::Key(KeyCode::Char('4').into()));
        view.fail("the server is away");
        let screen = text(&mut view, 100, 20);
        assert!(!screen.contains('\u{1b}'), "{screen:?}");
        assert!(screen.contains("red") && screen.contains("/alice/data"), "{screen}");
        assert!(screen.contains("not renewed: the server is away"), "{screen}");
    }
}
