//! `history import`: lines or CSV to rows, sent in batches.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use exacat_model::element::{ElementColumn, ElementRows};
use exacat_model::limits::HISTORY_LINE_BYTES_MAX;
use exacat_model::{Answer, Error, FieldRef, FieldType, FieldValue, GroupName, Measured, Operation, TimeNs};
use exacat_wire::influx::{Lines, Precision, series_of};
use serde::Serialize;
use utoipa::ToSchema;

use super::group_name;
use crate::args::{ElementFormat, HistoryImportArgs};
use crate::context::Context;
use crate::failure::{Failure, say};
use crate::output::human::plural;
use crate::parse;

/// Rows of a request.
const ROWS_AT_ONCE: usize = 10_000;
/// Bytes of keys, texts and values of a request.
const BYTES_AT_ONCE: usize = 2 << 20;

/// Bytes of lines that are read together.
const BLOCK_BYTES: usize = 64 << 10;

/// Result of an import.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ElementsImported)]
pub(crate) struct ImportedView<'a> {
    /// File; `-` for standard input.
    file: &'a str,
    /// Rows that were written, and are durable.
    rows: u64,
    /// Rows that were refused.
    refused: u64,
    /// The reason why the first of them was.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

/// `exacat history import`
pub(crate) async fn import(context: &mut Context, args: HistoryImportArgs) -> Result<(), Failure> {
    let group = group_name(&args.group)?;
    for file in &args.files {
        let name = file.display().to_string();
        let is_csv = match args.format {
            Some(format) => format == ElementFormat::Csv,
            None => file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv")),
        };
        let mut sender = Sender { context, group: &group, rows: Rows::default(), done: Done::default() };
        let outcome = match is_csv {
            true => csv(file, &args.measurement, &mut sender).await,
            false => {
                let precision = Precision::of_v2(&args.precision)
                    .map_err(|error| Failure::local(format!("--precision: {error}")))?;
                lines(file, precision, &mut sender).await
            }
        };
        outcome?;
        sender.send().await?;
        let Done { rows, refused, reason } = sender.done;
        let reason = reason.as_deref();
        if context.out.style.json {
            context.out.json(&ImportedView { file: &name, rows, refused, reason })?;
        } else if !context.out.style.quiet {
            say(&format!("{name}: {} written", plural(rows, "row")));
        }
        if let Some(reason) = reason {
            let text = format!("{} refused; the first: {reason}", plural(refused, "row"));
            context.rejected(&name, &Error::invalid(text));
        }
    }
    Ok(())
}

/// Counts of an import.
#[derive(Default)]
struct Done {
    rows: u64,
    refused: u64,
    reason: Option<String>,
}

impl Done {
    fn refuse(&mut self, line: u64, reason: impl std::fmt::Display) {
        self.refused += 1;
        self.reason.get_or_insert_with(|| format!("line {line}: {reason}"));
    }
}

/// Rows of a request, by the key of their element.
#[derive(Default)]
struct Rows {
    places: HashMap<String, usize>,
    rows: Vec<ElementRows>,
    count: usize,
    bytes: usize,
}

impl Rows {
    fn add<'v>(&mut self, key: &str, time: i64, values: impl Iterator<Item = (&'v str, FieldRef<'v>)>) {
        let place = *self.places.entry(key.to_owned()).or_insert_with(|| {
            self.bytes += key.len();
            self.rows.push(ElementRows {
                key: key.to_owned(),
                name: String::new(),
                times: Vec::new(),
                columns: Vec::new(),
            });
            self.rows.len() - 1
        });
        let rows = &mut self.rows[place];
        let before = rows.times.len();
        rows.times.push(time);
        self.count += 1;
        for (field, value) in values {
            let known = rows.columns.iter().position(|column| column.field == field);
            let column = known.unwrap_or_else(|| {
                rows.columns.push(ElementColumn { field: field.to_owned(), values: Vec::new() });
                rows.columns.len() - 1
            });
            let column = &mut rows.columns[column].values;
            column.resize(before, None);
            let value = value.to_value();
            self.bytes += value.bytes();
            column.push(Some(value));
        }
        rows.columns.iter_mut().for_each(|column| column.values.resize(before + 1, None));
    }

    fn is_full(&self) -> bool {
        self.count >= ROWS_AT_ONCE || self.bytes >= BYTES_AT_ONCE || self.rows.len() >= ROWS_AT_ONCE
    }
}

/// Sends rows to the group.
struct Sender<'a> {
    context: &'a mut Context,
    group: &'a GroupName,
    rows: Rows,
    done: Done,
}

impl Sender<'_> {
    async fn send(&mut self) -> Result<(), Failure> {
        let Rows { rows, count, .. } = std::mem::take(&mut self.rows);
        if count == 0 {
            return Ok(());
        }
        let operation = Operation::ElementWrite { group: self.group.clone(), rows };
        match self.context.call_about(self.group.as_str(), operation).await? {
            Answer::ElementsWritten { rows, refused, reason } => {
                self.done.rows += rows;
                self.done.refused += refused;
                self.done.reason = self.done.reason.take().or(reason);
                Ok(())
            }
            other => Err(Failure::unexpected(&other)),
        }
    }
}

fn open(path: &Path) -> Result<Box<dyn BufRead + Send>, Failure> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = File::open(path).map_err(|error| Failure::local(format!("{}: {error}", path.display())))?;
    Ok(Box::new(BufReader::with_capacity(1 << 20, file)))
}

/// Reads a line, which may be as long as line protocol permits. False at the end.
fn next_line(reader: &mut dyn BufRead, line: &mut Vec<u8>, file: &Path) -> Result<bool, Failure> {
    line.clear();
    let failed = |error: io::Error| Failure::local(format!("{}: {error}", file.display()));
    let most = HISTORY_LINE_BYTES_MAX as u64 + 1;
    let mut limited = io::Read::take(reader, most);
    limited.read_until(b'\n', line).map_err(failed)?;
    if line.len() as u64 == most && line.last() != Some(&b'\n') {
        let error = Error::limit("the length of a line in bytes", line.len(), HISTORY_LINE_BYTES_MAX);
        return Err(Failure::about(file.display().to_string(), error));
    }
    Ok(!line.is_empty())
}

async fn lines(file: &Path, precision: Precision, sender: &mut Sender<'_>) -> Result<(), Failure> {
    let mut reader = open(file)?;
    let now = i64::try_from(parse::now().0).unwrap_or(i64::MAX).saturating_mul(1_000_000);
    let (mut text, mut part, mut number) = (Vec::new(), Vec::new(), 0);
    loop {
        let is_end = !next_line(&mut *reader, &mut part, file)?;
        text.extend_from_slice(&part);
        if !is_end && text.len() < BLOCK_BYTES {
            continue;
        }
        let mut parsed = Lines::new(&text, precision);
        let mut rest = text.len();
        loop {
            let start = parsed.place();
            let Some(line) = parsed.next_line() else { break };
            number += 1;
            match line {
                Ok(line) => sender.rows.add(line.series, line.time.unwrap_or(now), line.fields()),
                Err(error) => {
                    let message = error.to_string();
                    let length = text.len() - start;
                    // A text may have line ends, so the last line may go on in the next block.
                    if parsed.place() == text.len() && !is_end && length < HISTORY_LINE_BYTES_MAX {
                        (rest, number) = (start, number - 1);
                        break;
                    }
                    sender.done.refuse(number, message);
                }
            }
        }
        text.drain(..rest);
        if sender.rows.is_full() {
            sender.send().await?;
        }
        if is_end {
            return Ok(());
        }
    }
}

/// A column of CSV.
enum Role {
    Time,
    Element,
    Field(String, FieldType),
}

fn role(heading: &str) -> Result<Role, Failure> {
    let (name, kind) = heading.rsplit_once(':').unwrap_or((heading, "float"));
    Ok(match heading {
        "time" => Role::Time,
        "element" | "name" => Role::Element,
        _ => {
            let kind = FieldType::ALL.into_iter().find(|one| one.name() == kind);
            let kind = kind.ok_or_else(|| {
                Failure::local(format!(
                    "the column {heading:?}: a type is float, integer, unsigned, boolean or string"
                ))
            })?;
            Role::Field(name.to_owned(), kind)
        }
    })
}

fn cell(text: &str, kind: FieldType) -> Result<FieldValue, String> {
    let bad = || format!("{text:.60?} is no value of the type {kind}");
    Ok(match kind {
        FieldType::Float => FieldValue::Float(text.parse().map_err(|_| bad())?),
        FieldType::Integer => FieldValue::Integer(text.parse().map_err(|_| bad())?),
        FieldType::Unsigned => FieldValue::Unsigned(text.parse().map_err(|_| bad())?),
        FieldType::Boolean => FieldValue::Boolean(text.parse().map_err(|_| bad())?),
        FieldType::Text => FieldValue::Text(text.into()),
    })
}

/// Returns the key of the element in a cell: the cell itself if it is a key, else that of a name.
fn key_of(measurement: &str, cell: &str) -> Result<String, String> {
    match cell {
        "" => Err("a row without an element".to_owned()),
        key if key.contains(',') => Ok(key.to_owned()),
        name => series_of(measurement, &[("element", name)]).map_err(|error| error.to_string()),
    }
}

async fn csv(file: &Path, measurement: &str, sender: &mut Sender<'_>) -> Result<(), Failure> {
    let mut reader = csv::ReaderBuilder::new().flexible(false).from_reader(open(file)?);
    let failed = |error: csv::Error| Failure::local(format!("{}: {error}", file.display()));
    let roles: Vec<Role> = reader.headers().map_err(failed)?.iter().map(role).collect::<Result<_, _>>()?;
    let place = |wanted: fn(&Role) -> bool, what: &str| {
        roles
            .iter()
            .position(wanted)
            .ok_or_else(|| Failure::local(format!("{}: the header has no column {what:?}", file.display())))
    };
    let time = place(|role| matches!(role, Role::Time), "time")?;
    let element = place(|role| matches!(role, Role::Element), "element")?;
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(failed)? {
        let line = record.position().map_or(0, csv::Position::line);
        let row = (|| {
            let TimeNs(time) = TimeNs::parse(&record[time]).map_err(|error| error.message)?;
            let key = key_of(measurement, &record[element])?;
            let mut values = Vec::new();
            for (role, text) in roles.iter().zip(&record) {
                if let (Role::Field(name, kind), false) = (role, text.is_empty()) {
                    values.push((name.as_str(), cell(text, *kind)?));
                }
            }
            match values.is_empty() {
                true => Err("a row without a value".to_owned()),
                false => Ok((key, time, values)),
            }
        })();
        match row {
            Ok((key, time, values)) => {
                let values = values.iter().map(|(name, value)| (*name, value.borrow()));
                sender.rows.add(&key, time, values);
            }
            Err(reason) => sender.done.refuse(line, reason),
        }
        if sender.rows.is_full() {
            sender.send().await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cell without an element names none: the measurement alone is another element.
    #[test]
    fn cell_without_an_element_is_refused() {
        assert_eq!(key_of("hv", "a b").as_deref(), Ok(r"hv,element=a\ b"));
        assert_eq!(key_of("hv", "hv,name=a").as_deref(), Ok("hv,name=a"));
        assert!(key_of("hv", "").is_err());
    }

    /// Rows of one element are together, and a row without a field has none of its values.
    #[test]
    fn rows_are_gathered_by_element() {
        let mut rows = Rows::default();
        rows.add("m,e=1", 1, [("v", FieldRef::Float(1.0))].into_iter());
        rows.add("m,e=2", 1, [("v", FieldRef::Float(2.0))].into_iter());
        rows.add("m,e=1", 2, [("q", FieldRef::Integer(3))].into_iter());
        assert_eq!(rows.rows.len(), 2);
        let first = &rows.rows[0];
        assert_eq!(first.times, [1, 2]);
        assert_eq!(first.columns[0].values, [Some(FieldValue::Float(1.0)), None]);
        assert_eq!(first.columns[1].values, [None, Some(FieldValue::Integer(3))]);
    }
}
