//! Queries and their statements.

use exacat_model::limits::{INFLUX_QUERY_BYTES_MAX, INFLUX_STATEMENTS_MAX};

use super::condition::filter;
use super::parameters::Parameters;
use super::reader::{Read, Reader};
use super::select::select;
use super::statement::{Clause, Filter, Key, Policy, Source, Statement};
use super::token::{QueryError, Token};

/// First words of statements.
const STATEMENTS: [&str; 5] = ["SELECT", "SHOW", "CREATE", "DROP", "ALTER"];

/// Reads the statements of a query without parameters, at least one. They are separated by `;`.
pub fn parse(text: &str) -> Result<Vec<Statement>, QueryError> {
    parse_with(text, &Parameters::default())
}

/// Reads the statements of a query, at least one, with the values of its parameters.
pub fn parse_with(text: &str, parameters: &Parameters) -> Result<Vec<Statement>, QueryError> {
    if text.len() > INFLUX_QUERY_BYTES_MAX {
        return Err(QueryError::too_long(text.len()));
    }
    parameters.check(text)?;
    let mut reader = Reader::new(text, parameters);
    let mut statements = Vec::new();
    let mut is_separated = true;
    loop {
        let (token, place) = reader.peek();
        match token {
            Token::Fixed(";") => {
                reader.next();
                is_separated = true;
            }
            Token::Fixed("EOF") if !statements.is_empty() => return Ok(statements),
            token if !is_separated => return Err(reader.unexpected(&token, &[";"], place)),
            _ if statements.len() == INFLUX_STATEMENTS_MAX => {
                let message = format!("a query has at most {INFLUX_STATEMENTS_MAX} statements");
                return Err(reader.error(&message, place));
            }
            _ => {
                statements.push(statement(&mut reader)?);
                is_separated = false;
            }
        }
    }
}

fn statement(reader: &mut Reader<'_>) -> Read<Statement> {
    match reader.next() {
        (Token::Fixed("SELECT"), _) => Ok(Statement::Select(Box::new(select(reader)?))),
        (Token::Fixed("SHOW"), _) => show(reader),
        (Token::Fixed("CREATE"), _) => create(reader),
        (Token::Fixed("DROP"), _) => drop_statement(reader),
        (Token::Fixed("ALTER"), _) => alter(reader),
        (token, place) => Err(reader.unexpected(&token, &STATEMENTS, place)),
    }
}

fn show(reader: &mut Reader<'_>) -> Read<Statement> {
    match reader.next() {
        (Token::Fixed("DATABASES"), _) => Ok(Statement::ShowDatabases),
        (Token::Fixed("RETENTION"), _) => {
            reader.expect("POLICIES")?;
            Ok(Statement::ShowRetentionPolicies { database: reader.optional_name("ON")? })
        }
        (Token::Fixed("MEASUREMENTS"), _) => {
            let database = reader.optional_name("ON")?;
            let with = if reader.take("WITH") {
                reader.expect("MEASUREMENT")?;
                match reader.next() {
                    (Token::Fixed("=" | "=~"), _) => Some(reader.source()?),
                    (token, place) => return Err(reader.unexpected(&token, &["=", "=~"], place)),
                }
            } else {
                None
            };
            let filter = filter(reader)?;
            let clause =
                Clause { database, from: Vec::new(), filter, limits: reader.limits("LIMIT", "OFFSET")? };
            Ok(Statement::ShowMeasurements { with, clause })
        }
        (Token::Fixed("TAG"), _) => match reader.next() {
            (Token::Fixed("KEYS"), _) => Ok(Statement::ShowTagKeys(clause(reader, true)?)),
            (Token::Fixed("VALUES"), _) => {
                let (database, from) = place(reader)?;
                let key = key(reader)?;
                let filter = filter(reader)?;
                let clause = Clause { database, from, filter, limits: reader.limits("LIMIT", "OFFSET")? };
                Ok(Statement::ShowTagValues { key, clause })
            }
            (token, place) => Err(reader.unexpected(&token, &["KEYS", "VALUES"], place)),
        },
        (Token::Fixed("FIELD"), _) => {
            reader.expect("KEYS")?;
            Ok(Statement::ShowFieldKeys(clause(reader, false)?))
        }
        (Token::Fixed("SERIES"), _) => Ok(Statement::ShowSeries(clause(reader, true)?)),
        (token, place) => {
            let expected = ["DATABASES", "FIELD", "MEASUREMENTS", "RETENTION", "SERIES", "TAG"];
            Err(reader.unexpected(&token, &expected, place))
        }
    }
}

/// Reads `[ON database] [FROM …]`.
fn place(reader: &mut Reader<'_>) -> Read<(Option<String>, Vec<Source>)> {
    let database = reader.optional_name("ON")?;
    let from = if reader.take("FROM") { reader.sources()? } else { Vec::new() };
    Ok((database, from))
}

/// Reads the parts that statements beginning with `SHOW` share.
fn clause(reader: &mut Reader<'_>, has_filter: bool) -> Read<Clause> {
    let (database, from) = place(reader)?;
    let filter = if has_filter { filter(reader)? } else { Filter::default() };
    Ok(Clause { database, from, filter, limits: reader.limits("LIMIT", "OFFSET")? })
}

/// Reads `WITH KEY …`.
fn key(reader: &mut Reader<'_>) -> Read<Key> {
    reader.expect("WITH")?;
    reader.expect("KEY")?;
    match reader.next() {
        (Token::Fixed("IN"), _) => {
            reader.expect("(")?;
            let keys = reader.list(Reader::name)?;
            reader.expect(")")?;
            Ok(Key::In(keys))
        }
        (Token::Fixed("="), _) => Ok(Key::In(vec![reader.name()?])),
        (Token::Fixed("!="), _) => Ok(Key::IsNot(reader.name()?)),
        (Token::Fixed("=~"), _) => Ok(Key::Matches(reader.required_pattern()?)),
        (Token::Fixed("!~"), _) => Ok(Key::DoesNotMatch(reader.required_pattern()?)),
        (token, place) => Err(reader.unexpected(&token, &["IN", "=", "=~"], place)),
    }
}

fn create(reader: &mut Reader<'_>) -> Read<Statement> {
    match reader.next() {
        (Token::Fixed("DATABASE"), _) => create_database(reader),
        (Token::Fixed("RETENTION"), _) => {
            reader.expect("POLICY")?;
            let name = Some(reader.name()?);
            reader.expect("ON")?;
            let database = reader.name()?;
            reader.expect("DURATION")?;
            let duration = Some(reader.retention()?);
            reader.expect("REPLICATION")?;
            let replication = Some(copies(reader)?);
            let shard_duration = if reader.take("SHARD") { Some(shard_duration(reader)?) } else { None };
            let is_default = reader.take("DEFAULT");
            let policy = Policy { name, duration, replication, shard_duration, is_default };
            Ok(Statement::CreateRetentionPolicy { database, policy })
        }
        (token, place) => Err(reader.unexpected(&token, &["DATABASE", "RETENTION"], place)),
    }
}

fn create_database(reader: &mut Reader<'_>) -> Read<Statement> {
    let name = reader.name()?;
    let mut policy = Policy::default();
    if reader.take("WITH") {
        let (token, place) = reader.peek();
        if !matches!(token, Token::Fixed("DURATION" | "NAME" | "REPLICATION" | "SHARD")) {
            return Err(reader.unexpected(&token, &["DURATION", "NAME", "REPLICATION", "SHARD"], place));
        }
        if reader.take("DURATION") {
            policy.duration = Some(reader.retention()?);
        }
        if reader.take("REPLICATION") {
            policy.replication = Some(copies(reader)?);
        }
        if reader.take("SHARD") {
            policy.shard_duration = Some(shard_duration(reader)?);
        }
        policy.name = reader.optional_name("NAME")?;
    }
    Ok(Statement::CreateDatabase { name, policy })
}

/// Reads a number of copies.
fn copies(reader: &mut Reader<'_>) -> Read<u32> {
    let place = reader.peek().1;
    let copies = reader.integer()?;
    let fitting = u32::try_from(copies).ok().filter(|copies| (1..=i32::MAX as u32).contains(copies));
    fitting.ok_or_else(|| {
        reader.error(&format!("invalid value {copies}: must be 1 <= n <= {}", i32::MAX), place)
    })
}

/// Reads `DURATION …` behind `SHARD`.
fn shard_duration(reader: &mut Reader<'_>) -> Read<i64> {
    reader.expect("DURATION")?;
    if let (Token::Fixed("INF"), place) = reader.peek() {
        return Err(reader.error("invalid duration INF for shard duration", place));
    }
    reader.retention()
}

fn alter(reader: &mut Reader<'_>) -> Read<Statement> {
    reader.expect("RETENTION")?;
    reader.expect("POLICY")?;
    let name = Some(if reader.take("DEFAULT") { "default".into() } else { reader.name()? });
    reader.expect("ON")?;
    let database = reader.name()?;
    let mut policy = Policy { name, ..Policy::default() };
    loop {
        let (token, place) = reader.peek();
        let is_repeated = match token {
            Token::Fixed("DURATION") => {
                reader.next();
                policy.duration.replace(reader.retention()?).is_some()
            }
            Token::Fixed("REPLICATION") => {
                reader.next();
                policy.replication.replace(copies(reader)?).is_some()
            }
            Token::Fixed("SHARD") => {
                reader.next();
                policy.shard_duration.replace(shard_duration(reader)?).is_some()
            }
            Token::Fixed("DEFAULT") => {
                reader.next();
                std::mem::replace(&mut policy.is_default, true)
            }
            _ if policy == (Policy { name: policy.name.clone(), ..Policy::default() }) => {
                let expected = ["DURATION", "REPLICATION", "SHARD", "DEFAULT"];
                return Err(reader.unexpected(&token, &expected, place));
            }
            _ => return Ok(Statement::AlterRetentionPolicy { database, policy }),
        };
        if is_repeated {
            return Err(reader.error(&format!("found duplicate {} option", token.shown()), place));
        }
    }
}

fn drop_statement(reader: &mut Reader<'_>) -> Read<Statement> {
    match reader.next() {
        (Token::Fixed("DATABASE"), _) => Ok(Statement::DropDatabase { name: reader.name()? }),
        (Token::Fixed("RETENTION"), _) => {
            reader.expect("POLICY")?;
            let name = reader.name()?;
            reader.expect("ON")?;
            Ok(Statement::DropRetentionPolicy { database: reader.name()?, name })
        }
        (token, place) => Err(reader.unexpected(&token, &["DATABASE", "RETENTION"], place)),
    }
}
