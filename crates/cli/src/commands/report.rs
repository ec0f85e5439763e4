//! `report`: where the time of a server went between two moments, or in two periods side by side.

use std::io::Write;
use std::path::Path;

use exacat_model::limits::ACTIVITY_PARTS_MAX;
use exacat_model::period::Period;
use exacat_model::{Answer, Error, Operation, TimeMs};
use exacat_server::report::{Section, heading, html, sections};
use exacat_wire::json;

use super::exchange::{of_output, open_output};
use crate::args::ReportArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::human::folded;
use crate::output::{Align, Out, Table};
use crate::parse::{Direction, time};

/// Columns of a terminal, for text.
const WIDTH: usize = 80;

/// `exacat report`
pub(crate) async fn report(context: &mut Context, args: ReportArgs) -> Result<(), Failure> {
    let past = |text: &str| time(text, Direction::Past);
    let mut periods = Vec::new();
    if args.periods.is_empty() {
        periods.push(period(context, (past(&args.from)?, past(&args.to)?)).await?);
    }
    for text in &args.periods {
        let Some((from, to)) = text.split_once("..") else {
            return Err(Error::invalid(format!("not a period (FROM..TO, as 20m..10m): {text:.80?}")).into());
        };
        periods.push(period(context, (past(from)?, past(to)?)).await?);
    }
    let (first, second) = match &periods[..] {
        [first] => (first, None),
        [first, second] => (first, Some(second)),
        _ => return Err(Failure::local("give no period, or two")),
    };
    if let Some(file) = &args.html {
        return write_page(&mut context.out, file, first, second).await;
    }
    let out = &mut context.out;
    if out.style.json {
        return periods.iter().try_for_each(|period| out.json(&json::period(period)));
    }
    show(out, first, second)
}

async fn period(context: &mut Context, (from, to): (TimeMs, TimeMs)) -> Result<Period, Failure> {
    let mut periods = activity(context, Some(from), Some(to), 1).await?;
    periods.pop().ok_or_else(|| Failure::local("the server told no period"))
}

/// Asks for periods; without a beginning for the last second.
pub(crate) async fn activity(
    context: &Context,
    from: Option<TimeMs>,
    to: Option<TimeMs>,
    parts: u32,
) -> Result<Vec<Period>, Failure> {
    debug_assert!((1..=ACTIVITY_PARTS_MAX).contains(&parts));
    match context.call(Operation::Activity { from, to, seconds: 2, parts }).await? {
        Answer::Activity(periods) => Ok(periods),
        other => Err(Failure::unexpected(&other)),
    }
}

async fn write_page(
    out: &mut Out,
    file: &Path,
    first: &Period,
    second: Option<&Period>,
) -> Result<(), Failure> {
    let page = html(first, second).map_err(Failure::local)?;
    let output = open_output(file).await?;
    let written = output.writer().and_then(|mut writer| {
        let written = writer.write_all(page.as_bytes());
        written.map_err(|error| exacat_exchange::Error::file("write", file, error))
    });
    written.and_then(|()| output.finish()).map_err(|error| of_output(error, file))?;
    if out.style.quiet {
        return Ok(());
    }
    if out.style.json {
        return out.json(&json::DoneOut { item: &file.display().to_string(), done: true });
    }
    out.line(format!("wrote {}", file.display()))
}

fn show(out: &mut Out, first: &Period, second: Option<&Period>) -> Result<(), Failure> {
    let named = |name: &str, period: &Period| format!("{name}{}", heading(period));
    match second {
        None => out.line(named("", first))?,
        Some(second) => {
            out.line(named("A: ", first))?;
            out.line(named("B: ", second))?;
        }
    }
    for period in [Some(first), second].into_iter().flatten() {
        for finding in &period.findings {
            for (number, line) in folded(finding.split(' '), WIDTH - 2).into_iter().enumerate() {
                out.line(format!("{}{line}", if number == 0 { "* " } else { "  " }))?;
            }
        }
    }
    show_sections(out, &sections(first, second))
}

/// Prints tables, each under its title.
pub(crate) fn show_sections(out: &mut Out, sections: &[Section]) -> Result<(), Failure> {
    for section in sections {
        out.line("")?;
        out.line(section.title)?;
        for line in folded(section.note.split_whitespace(), WIDTH) {
            out.line(line)?;
        }
        show_section(out, section)?;
    }
    Ok(())
}

fn show_section(out: &mut Out, section: &Section) -> Result<(), Failure> {
    let align = |is_number: bool| if is_number { Align::Right } else { Align::Left };
    let columns: Vec<Align> = section.columns.iter().map(|(_, is_number)| align(*is_number)).collect();
    let mut table = Table::new(columns);
    table.row(section.columns.iter().map(|(heading, _)| heading.clone()).collect::<Vec<_>>());
    for row in &section.rows {
        table.row(row.iter().map(|cell| out.name(cell).to_string()).collect::<Vec<_>>());
    }
    out.table(&table)
}
