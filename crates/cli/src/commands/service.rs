//! `fsck` of a running service, `status`, `completions`: maintains the service.

use exacat_model::{Answer, Audit, ErrorKind, Operation};
use exacat_wire::json;

use crate::args::{BenchArgs, ClockCommand, CompletionsArgs};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::human::{self, plural};
use crate::output::{Align, Out, Table};

/// `exacat fsck`
pub(crate) async fn fsck(context: &mut Context) -> Result<(), Failure> {
    match context.session.call_long(Operation::Fsck).await? {
        Answer::Fsck(audit) => show_audit(&mut context.out, &audit),
        other => Err(Failure::unexpected(&other)),
    }
}

/// Prints the counts and findings of an audit as text.
pub(crate) fn audit_text(out: &mut Out, audit: &Audit) -> Result<(), Failure> {
    let mut table = Table::new([Align::Right, Align::Left]);
    for (what, count) in &audit.checked {
        table.row([count.to_string(), what.clone()]);
    }
    out.table(&table)?;
    for item in &audit.findings {
        let line = format!("WRONG {}: {}: {}", item.what, out.name(&item.which), out.name(&item.detail));
        out.line(line)?;
    }
    Ok(())
}

/// Shows an audit; returns an error if something is wrong.
fn show_audit(out: &mut Out, audit: &Audit) -> Result<(), Failure> {
    if out.style.json {
        out.json(&json::audit(audit))?;
    } else {
        audit_text(out, audit)?;
    }
    if audit.findings_total > 0 {
        let wrong = plural(audit.findings_total, "finding");
        let message = format!("{wrong} at revision {}: stored data contradict each other", audit.revision.0);
        return Err(exacat_model::Error::new(ErrorKind::Corrupt, message).into());
    }
    if !out.style.json && !out.style.quiet {
        out.line(format!("everything agrees at revision {}", audit.revision.0))?;
    }
    Ok(())
}

/// Characters of a line of a note, without its indentation.
const NOTE_LINE_MAX: usize = 78;

/// `exacat status`
pub(crate) async fn status(context: &mut Context) -> Result<(), Failure> {
    let answer = context.call(Operation::Status).await?;
    let Answer::Status(parts) = answer else { return Err(Failure::unexpected(&answer)) };
    if context.out.style.json {
        return parts.iter().try_for_each(|part| context.out.json(&json::status(part)));
    }
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            context.out.line("")?;
        }
        context.out.line(format!("{}:", part.part))?;
        let table = by_thing(&context.out, &part.metrics).unwrap_or_else(|| {
            let mut table = Table::new([Align::Left, Align::Right]);
            for (name, value) in &part.metrics {
                table.row([format!("  {name}"), figure(&context.out, name, *value)]);
            }
            table
        });
        context.out.table(&table)?;
        for note in &part.notes {
            let shown = context.out.name(note).to_string();
            for line in human::folded(shown.split(' '), NOTE_LINE_MAX) {
                context.out.line(format!("  {line}"))?;
            }
        }
    }
    Ok(())
}

/// `exacat clock`
pub(crate) async fn clock(context: &mut Context, command: ClockCommand) -> Result<(), Failure> {
    if let ClockCommand::Confirm = command {
        context.call(Operation::ClockConfirm).await?;
    }
    let answer = context.call(Operation::Status).await?;
    let Answer::Status(parts) = answer else { return Err(Failure::unexpected(&answer)) };
    for part in parts.iter().filter(|part| part.part == "clock") {
        if context.out.style.json {
            context.out.json(&json::status(part))?;
            continue;
        }
        for note in &part.notes {
            let line = context.out.name(note).to_string();
            context.out.line(line)?;
        }
    }
    Ok(())
}

fn figure(out: &Out, name: &str, value: u64) -> String {
    if name.ends_with("bytes") {
        return out.size(u128::from(value));
    }
    if name.ends_with("_us") { human::microseconds(value) } else { value.to_string() }
}

/// Formats metrics that are the same measures of several things (`list_p50_us`, `find_p50_us` …) as
/// a table with a row for each thing.
fn by_thing(out: &Out, metrics: &[(String, u64)]) -> Option<Table> {
    let split: Vec<(&str, &str, u64)> = metrics
        .iter()
        .map(|(name, value)| name.split_once('_').map(|(thing, measure)| (thing, measure, *value)))
        .collect::<Option<_>>()?;
    let first = split.first()?.0;
    let measures: Vec<&str> =
        split.iter().take_while(|(thing, ..)| *thing == first).map(|(_, measure, _)| *measure).collect();
    if measures.len() < 2 || split.len() == measures.len() || !split.len().is_multiple_of(measures.len()) {
        return None;
    }
    let mut columns = vec![Align::Left];
    columns.extend(vec![Align::Right; measures.len()]);
    let mut table = Table::new(columns);
    let mut heading = vec![String::new()];
    // The unit is in the values, which leaves room for eight columns.
    heading.extend(measures.iter().map(|measure| measure.trim_end_matches("_us").to_uppercase()));
    table.row(heading);
    for group in split.chunks_exact(measures.len()) {
        let thing = group[0].0;
        let same =
            group.iter().zip(&measures).all(|((of, measure, _), wanted)| *of == thing && measure == wanted);
        if !same {
            return None;
        }
        let mut row = vec![format!("  {thing}")];
        row.extend(group.iter().map(|(_, measure, value)| figure(out, measure, *value)));
        table.row(row);
    }
    Some(table)
}

/// `exacat completions`
pub(crate) fn completions(args: &CompletionsArgs) -> Result<u8, Failure> {
    let script = crate::completion::script(args.shell)?;
    let mut out = Out::new(crate::output::Style::default());
    out.text(&script)?;
    out.flush()?;
    Ok(0)
}

/// `exacat bench`
pub(crate) async fn bench(args: BenchArgs, style: crate::output::Style) -> Result<u8, Failure> {
    if let (Some(address), Some(bytes)) = (args.bare_http, args.bare_bytes) {
        exacat_bench::bare_http::serve(address, bytes).await?;
    }
    if let Some(socket) = &args.echo {
        exacat_bench::echo::serve(socket).await?;
    }
    let settings = exacat_bench::BenchSettings {
        entries: crate::parse::count(&args.entries)?,
        engine: args.engine,
        cache_bytes: args.cache.as_deref().map(crate::parse::bytes).transpose()?,
        directory: args.directory,
        network_only: args.network,
        in_process_only: args.in_process,
        only: args.only,
        beside: args.beside,
        json: style.json,
    };
    exacat_bench::run(&settings, &mut std::io::stdout()).await?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_measures_of_several_things_become_a_table() {
        let out = Out::new(crate::output::Style::default());
        let metrics = |names: &[&str]| -> Vec<(String, u64)> {
            names.iter().map(|name| ((*name).to_owned(), 1)).collect()
        };
        assert!(
            by_thing(&out, &metrics(&["ls_count", "ls_p50_us", "tag-get_count", "tag-get_p50_us"])).is_some()
        );
        assert!(by_thing(&out, &metrics(&["ls_count", "ls_p50_us"])).is_none());
        assert!(by_thing(&out, &metrics(&["ls_count", "ls_p50_us", "rm_count", "mv_p50_us"])).is_none());
        assert!(by_thing(&out, &metrics(&["revision", "entries"])).is_none());
        assert!(by_thing(&out, &[]).is_none());
    }
}
