//! `/query`: the statements of InfluxQL that clients send, each judged and answered by itself.

use std::sync::Arc;

use exacat_catalogue::ElementAccess;
use exacat_history::Group;
use exacat_history::run::DAY_NANOSECONDS;
use exacat_model::element::GroupChange;
use exacat_model::{Error, GroupName};
use exacat_wire::influx::query::{Parameters as ParameterValues, Policy, Statement, parse_with};
use exacat_wire::influx::{AnswerWriter, Format, Precision};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::{Method, Response, StatusCode};

use super::super::answers::{Body, JSON, answer as made, in_room};
use super::super::call::{Call, whole};
use super::super::query::pairs;
use super::reading::{Done, Failed, Reading};
use super::{Asked, Parameters, READ, Refusal, counted, select, show};
use crate::admission::{Share, Turn};
use crate::elements::{apart, drop_group, set_group};

/// Bytes of a form with a query.
const FORM_BYTES_MAX: usize = 1 << 20;
/// Content type of CSV.
const CSV: &str = "text/csv";
impl Asked<'_> {
    /// Answers the statements of a query.
    pub(super) async fn query(&self, body: &mut Option<Incoming>) -> Result<Response<Body>, Refusal> {
        let mut parameters = self.parameters()?;
        let is_form = self.head.headers.get(CONTENT_TYPE).is_some_and(|value| {
            value.as_bytes().to_ascii_lowercase().starts_with(b"application/x-www-form-urlencoded")
        });
        match (&self.head.method, body.take()) {
            (&Method::GET | &Method::HEAD, _) => {}
            (&Method::POST, Some(form)) => {
                let (bytes, _room) = whole(&self.conversation.face.service, form, FORM_BYTES_MAX).await?;
                if is_form {
                    let text = std::str::from_utf8(&bytes).map_err(|_| not_text())?;
                    parameters.0.extend(pairs(text)?);
                }
            }
            (&Method::POST, None) => {}
            _ => return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "a query is GET or POST")),
        }
        let bad = |text: String| Refusal::new(StatusCode::BAD_REQUEST, text);
        let text = parameters.get("q").unwrap_or_default();
        if text.trim().is_empty() {
            return Err(bad("missing required parameter \"q\"".to_owned()));
        }
        let values = ParameterValues::from_json(parameters.get("params").unwrap_or_default());
        let values = values.map_err(|error| bad(error.to_string()))?;
        let statements = parse_with(text, &values).map_err(|error| bad(error.to_string()))?;
        let call = self.call(&parameters, Share::Catalogue).await?;
        let count = statements.len() as u64;
        let work = async { (count, self.answers(&call, &parameters, statements).await) };
        counted(&call, READ, work).await
    }

    /// Answers each of the statements.
    async fn answers(
        &self,
        call: &Call,
        parameters: &Parameters,
        statements: Vec<Statement>,
    ) -> Result<Response<Body>, Refusal> {
        let format = format_of(self, parameters);
        let epoch = parameters.get("epoch").and_then(Precision::of_epoch);
        let database = parameters.get("db").unwrap_or_default().to_owned();
        let now = self.history.now_ns();
        let mut writer = AnswerWriter::new(format, epoch);
        for (number, statement) in statements.into_iter().enumerate() {
            writer.begin_result(number);
            let done = if changes(&statement) {
                self.change(call, &database, statement).await
            } else {
                match self.context(call, &database, &statement)? {
                    Err(failed) => Err(failed),
                    Ok(groups) => {
                        let reading = Reading { groups, now, database: database.clone() };
                        let done;
                        call.throttled(1).await?;
                        let turn = call.long_read().await?;
                        (writer, done) = read_apart(turn, reading, statement, writer).await?;
                        done
                    }
                }
            };
            writer.end_result(false, done.err().as_ref().map(|failed| failed.0.as_str()));
        }
        let bytes = writer.finish();
        let room = call.room_of_whole(bytes.len())?;
        let body = match room {
            Some(room) => in_room(bytes, room),
            None => bytes.into(),
        };
        Ok(made(StatusCode::OK, if format == Format::Csv { CSV } else { JSON }, body))
    }

    /// Finds the groups that a statement reads, as far as the client may read them.
    fn context(
        &self,
        call: &Call,
        database: &str,
        statement: &Statement,
    ) -> Result<Result<Vec<Arc<Group>>, Failed>, Refusal> {
        let catalogue = &call.service.catalogue;
        let may_read = |group: &Arc<Group>| {
            catalogue.check_elements(call.caller(), &group.settings(), ElementAccess::Read)
        };
        if *statement == Statement::ShowDatabases {
            return Ok(Ok(self
                .history
                .groups()
                .into_iter()
                .filter(|group| may_read(group).is_ok())
                .collect()));
        }
        let mut names = show::databases(statement);
        if names.is_empty() {
            names.push(database.to_owned());
        }
        let mut groups = Vec::new();
        for name in names {
            if name.is_empty() {
                return Ok(Err(Failed("database name required".to_owned())));
            }
            let Some(group) = self.find(&name) else {
                return Ok(Err(Failed(format!("database not found: {name}"))));
            };
            may_read(&group)?;
            groups.push(group);
        }
        Ok(Ok(groups))
    }

    /// Does a statement that changes groups.
    async fn change(&self, call: &Call, database: &str, statement: Statement) -> Done {
        let catalogue = &call.service.catalogue;
        match statement {
            Statement::CreateDatabase { name, policy } => {
                let name = GroupName::parse(&name)?;
                if let Ok(group) = self.history.group(&name) {
                    // It is there already: clients send this at each start.
                    catalogue.check_elements(call.caller(), &group.settings(), ElementAccess::Read)?;
                    return Ok(());
                }
                let change = GroupChange { retention_days: days_of(&policy)?, ..GroupChange::default() };
                set_group(catalogue, &self.history, call.caller(), name, change).await?;
                Ok(())
            }
            Statement::DropDatabase { name } => {
                let name = GroupName::parse(&name)?;
                let Ok(group) = self.history.group(&name) else { return Ok(()) };
                catalogue.check_elements(call.caller(), &group.settings(), ElementAccess::Own)?;
                Ok(drop_group(&self.history, call.caller(), name).await?)
            }
            Statement::CreateRetentionPolicy { database, policy }
            | Statement::AlterRetentionPolicy { database, policy } => {
                self.set_policy(call, &database, &policy).await
            }
            Statement::DropRetentionPolicy { name, .. } => {
                Err(Failed(format!("{name}: a database has one retention policy here, which stays")))
            }
            _ => Err(Failed(format!("internal error: no change of {database}"))),
        }
    }

    async fn set_policy(&self, call: &Call, database: &str, policy: &Policy) -> Done {
        let not_found = || Failed(format!("database not found: {database}"));
        let group = self.find(database).ok_or_else(not_found)?;
        let name = group.settings().name;
        let retention_days = days_of(policy)?;
        if retention_days.is_none() {
            // Nothing to change, for one who might.
            let catalogue = &call.service.catalogue;
            return Ok(catalogue.check_elements(call.caller(), &group.settings(), ElementAccess::Own)?);
        }
        let change = GroupChange { retention_days, ..GroupChange::default() };
        set_group(&call.service.catalogue, &self.history, call.caller(), name, change).await?;
        Ok(())
    }
}

/// Answers a statement that reads, on a thread that may wait for the disk.
async fn read_apart(
    turn: Turn,
    reading: Reading,
    statement: Statement,
    mut writer: AnswerWriter,
) -> exacat_model::Result<(AnswerWriter, Done)> {
    let work = move || {
        let done = match &statement {
            Statement::Select(select) => select::select(&reading, select, &mut writer),
            other => show::show(&reading, other, &mut writer),
        };
        // The slot is free when the work ends, not when the client goes away.
        drop(turn);
        Ok((writer, done))
    };
    apart(work).await
}

fn changes(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::CreateDatabase { .. }
            | Statement::DropDatabase { .. }
            | Statement::CreateRetentionPolicy { .. }
            | Statement::AlterRetentionPolicy { .. }
            | Statement::DropRetentionPolicy { .. }
    )
}

/// Returns the days of a retention; none if it has no duration. Parts of a day count as one.
fn days_of(policy: &Policy) -> Result<Option<u32>, Failed> {
    let Some(duration) = policy.duration else { return Ok(None) };
    let days = duration.max(0).div_euclid(DAY_NANOSECONDS) + i64::from(duration.max(0) % DAY_NANOSECONDS > 0);
    u32::try_from(days).map(Some).map_err(|_| Failed("the retention is too long".to_owned()))
}

fn format_of(asked: &Asked<'_>, parameters: &Parameters) -> Format {
    let accept = asked.head.headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accept.contains("application/csv") || accept.contains(CSV) {
        return Format::Csv;
    }
    Format::Json { is_pretty: parameters.get("pretty") == Some("true") }
}

fn not_text() -> Error {
    Error::invalid("the form of the query is not UTF-8")
}
