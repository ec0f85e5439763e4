//! `history import`: lines, CSV or Parquet to rows, sent in batches.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use exacat_history_archive::{Gathered, ImportedRows, ParquetRows, key_of_element};
use exacat_model::limits::HISTORY_LINE_BYTES_MAX;
use exacat_model::{Answer, Error, FieldType, FieldValue, GroupName, Operation, TimeNs};
use exacat_wire::influx::{Lines, Precision};
use serde::Serialize;
use utoipa::ToSchema;

use super::group_name;
use crate::args::{ElementFormat, HistoryImportArgs};
use crate::context::Context;
use crate::failure::{Failure, say};
use crate::output::human::plural;
use crate::parse;

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
        let ends_in = |wanted: &str| file.extension().is_some_and(|one| one.eq_ignore_ascii_case(wanted));
        let by_name = || match (ends_in("csv"), ends_in("parquet")) {
            (true, _) => ElementFormat::Csv,
            (_, true) => ElementFormat::Parquet,
            _ => ElementFormat::Lines,
        };
        let mut sender = Sender { context, group: &group, rows: Gathered::default(), done: Done::default() };
        let outcome = match args.format.unwrap_or_else(by_name) {
            ElementFormat::Csv => csv(file, &args.measurement, &mut sender).await,
            ElementFormat::Parquet => parquet(file, &args.measurement, &mut sender).await,
            ElementFormat::Lines => {
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

    fn count(&mut self, rows: u64, refused: u64, reason: Option<String>) {
        self.rows += rows;
        self.refused += refused;
        self.reason = self.reason.take().or(reason);
    }
}

/// Sends rows to the group.
struct Sender<'a> {
    context: &'a mut Context,
    group: &'a GroupName,
    rows: Gathered,
    done: Done,
}

impl Sender<'_> {
    /// Sends the gathered rows.
    async fn send(&mut self) -> Result<(), Failure> {
        match self.rows.take() {
            Some(rows) => self.put(rows).await,
            None => Ok(()),
        }
    }

    /// Sends rows, and counts them with those that none can have.
    async fn put(&mut self, of: ImportedRows) -> Result<(), Failure> {
        self.done.count(0, of.refused, of.reason);
        if of.rows.is_empty() {
            return Ok(());
        }
        let operation = Operation::ElementWrite { group: self.group.clone(), rows: of.rows };
        match self.context.call_about(self.group.as_str(), operation).await? {
            Answer::ElementsWritten { rows, refused, reason } => {
                self.done.count(rows, refused, reason);
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
                Ok(line) => sender.rows.add(
                    line.series,
                    line.time.unwrap_or(now),
                    line.fields().map(|(field, value)| (field, value.to_value())),
                ),
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
    Key,
    Element,
    Field(String, FieldType),
}

fn role(heading: &str) -> Result<Role, Failure> {
    let (name, kind) = heading.rsplit_once(':').unwrap_or((heading, "float"));
    Ok(match heading {
        "time" => Role::Time,
        "key" => Role::Key,
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

async fn parquet(file: &Path, measurement: &str, sender: &mut Sender<'_>) -> Result<(), Failure> {
    if file.as_os_str() == "-" {
        return Err(Failure::local("a Parquet file is read from its end: name the file instead of -"));
    }
    for rows in ParquetRows::open(file, measurement)? {
        sender.put(rows?).await?;
    }
    Ok(())
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
    let key = roles.iter().position(|role| matches!(role, Role::Key));
    let element = match key {
        Some(key) => key,
        None => place(|role| matches!(role, Role::Element), "element")?,
    };
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(failed)? {
        let line = record.position().map_or(0, csv::Position::line);
        let row = (|| {
            let TimeNs(time) = TimeNs::parse(&record[time]).map_err(|error| error.message)?;
            let key = match (key, &record[element]) {
                (Some(_), key) if !key.is_empty() => key.to_owned(),
                (_, name) => key_of_element(measurement, name)?,
            };
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
                sender.rows.add(&key, time, values.into_iter());
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
        assert_eq!(key_of_element("hv", "a b").as_deref(), Ok(r"hv,element=a\ b"));
        assert_eq!(key_of_element("hv", "hv,name=a").as_deref(), Ok("hv,name=a"));
        assert!(key_of_element("hv", "").is_err());
    }
}
