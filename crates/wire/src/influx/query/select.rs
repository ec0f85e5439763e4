//! Reads `SELECT`: columns, sources, conditions, groups, order and limits.

use super::condition::filter;
use super::reader::{Read, Reader};
use super::statement::{
    Argument, Column, ColumnKind, Fill, Filter, Function, Group, Interval, Limits, Select, Source,
};
use super::token::{QueryError, Token};

/// Unit of an integral that has none.
const INTEGRAL_UNIT: i64 = 1_000_000_000;

/// Reads the statement behind its first word.
pub(super) fn select(reader: &mut Reader<'_>) -> Read<Select> {
    let columns = reader.list(column)?;
    reader.expect("FROM")?;
    let from: Vec<Source> = reader.sources()?;
    let filter: Filter = filter(reader)?;
    let (interval, group) = dimensions(reader)?;
    let fill = fill(reader)?;
    let is_descending = order(reader)?;
    let limits: Limits = reader.limits("LIMIT", "OFFSET")?;
    let series_limits: Limits = reader.limits("SLIMIT", "SOFFSET")?;
    zone(reader)?;
    // The time is the first column of every answer.
    let is_time = |column: &Column| {
        column.alias.is_none()
            && matches!(&column.kind, ColumnKind::Named(name) if name.eq_ignore_ascii_case("time"))
    };
    let columns: Vec<Column> = columns.into_iter().filter(|column| !is_time(column)).collect();
    let select = Select {
        columns,
        from,
        filter,
        interval,
        group,
        fill: fill.unwrap_or_default(),
        is_descending,
        limits,
        series_limits,
    };
    check(&select, fill)?;
    Ok(select)
}

/// Refuses parts that do not go together, in InfluxDB's words.
fn check(select: &Select, fill: Option<Fill>) -> Read<()> {
    let aggregates =
        select.columns.iter().filter(|one| matches!(one.kind, ColumnKind::Aggregate { .. })).count();
    let is_aggregate = aggregates > 0;
    let refused =
        if select.columns.iter().all(|one| matches!(one.kind, ColumnKind::Tag(_) | ColumnKind::AllTags)) {
            "at least 1 non-time field must be queried"
        } else if is_aggregate && aggregates < select.columns.len() {
            "mixing aggregate and non-aggregate queries is not supported"
        } else if !is_aggregate && select.interval.is_some() {
            "GROUP BY requires at least one aggregate function"
        } else if !is_aggregate && fill == Some(Fill::None) {
            "fill(none) must be used with a function"
        } else if !is_aggregate && fill == Some(Fill::Linear) {
            "fill(linear) must be used with a function"
        } else {
            return Ok(());
        };
    Err(QueryError::new(refused))
}

/// Reads a column, with its alias.
fn column(reader: &mut Reader<'_>) -> Read<Column> {
    let (token, place) = reader.next();
    let kind = match token {
        Token::Fixed("*") => match cast(reader)? {
            None => ColumnKind::All,
            Some("FIELD") => ColumnKind::AllFields,
            Some(_) => ColumnKind::AllTags,
        },
        Token::Name(name) if reader.take_adjacent("(") => {
            let name = name.to_ascii_lowercase();
            let Some(function) = function(&name) else {
                return Err(reader.error(&format!("undefined function {name}()"), place));
            };
            aggregate(reader, function)?
        }
        Token::Name(name) => match cast(reader)? {
            None => ColumnKind::Named(name),
            Some("FIELD") => ColumnKind::Field(name),
            Some(_) => ColumnKind::Tag(name),
        },
        token => return Err(reader.unexpected(&token, &["identifier", "string", "number", "bool"], place)),
    };
    Ok(Column { kind, alias: reader.optional_name("AS")? })
}

/// Reads `::field` or `::tag` if it follows.
fn cast(reader: &mut Reader<'_>) -> Read<Option<&'static str>> {
    if !reader.take_adjacent("::") {
        return Ok(None);
    }
    match reader.next() {
        (Token::Fixed(kind @ ("FIELD" | "TAG")), _) => Ok(Some(kind)),
        (token, place) => Err(reader.unexpected(&token, &["field", "tag"], place)),
    }
}

fn function(name: &str) -> Option<Function> {
    Some(match name {
        "count" => Function::Count,
        "sum" => Function::Sum,
        "mean" => Function::Mean,
        "min" => Function::Min,
        "max" => Function::Max,
        "first" => Function::First,
        "last" => Function::Last,
        "spread" => Function::Spread,
        "integral" => Function::Integral { unit: INTEGRAL_UNIT },
        _ => return None,
    })
}

/// Reads the arguments of a function behind the parenthesis.
fn aggregate(reader: &mut Reader<'_>, mut function: Function) -> Read<ColumnKind> {
    let (token, place) = reader.next();
    let of = match token {
        Token::Fixed("*") => Argument::AllFields,
        Token::Name(name) => Argument::Field(name),
        _ => {
            return Err(reader.error(&format!("expected field argument in {}()", function.name()), place));
        }
    };
    if let Some("TAG") = cast(reader)? {
        return Err(reader.error(&format!("expected field argument in {}()", function.name()), place));
    }
    if let Function::Integral { unit } = &mut function
        && reader.take(",")
    {
        let place = reader.peek().1;
        *unit = reader.duration()?;
        if *unit <= 0 {
            return Err(reader.error("duration argument must be positive", place));
        }
    }
    reader.expect(")")?;
    Ok(ColumnKind::Aggregate { function, of })
}

/// Reads `GROUP BY …` if it is next.
fn dimensions(reader: &mut Reader<'_>) -> Read<(Option<Interval>, Vec<Group>)> {
    let (mut interval, mut group) = (None, Vec::new());
    if !reader.take("GROUP") {
        return Ok((interval, group));
    }
    reader.expect("BY")?;
    loop {
        if let Some(pattern) = reader.pattern()? {
            group.push(Group::Matches(pattern));
        } else {
            match reader.next() {
                (Token::Fixed("*"), _) => group.push(Group::AllTags),
                (Token::Name(name), place) if reader.take_adjacent("(") => {
                    if !name.eq_ignore_ascii_case("time") {
                        return Err(reader.error("only time() calls allowed in dimensions", place));
                    }
                    if interval.replace(of_time(reader)?).is_some() {
                        return Err(reader.error("multiple time dimensions not allowed", place));
                    }
                }
                (Token::Name(name), place) => {
                    if cast(reader)? == Some("FIELD") {
                        return Err(reader.error("only time and tag dimensions allowed", place));
                    }
                    group.push(Group::Tag(name));
                }
                (token, place) => {
                    return Err(reader.unexpected(
                        &token,
                        &["identifier", "string", "number", "bool"],
                        place,
                    ));
                }
            }
        }
        if !reader.take(",") {
            return Ok((interval, group));
        }
    }
}

/// Reads the arguments of `time(…)` behind the parenthesis.
fn of_time(reader: &mut Reader<'_>) -> Read<Interval> {
    let place = reader.peek().1;
    let every = match reader.peek().0 {
        Token::Duration(_) => reader.duration()?,
        _ => 0,
    };
    if every <= 0 {
        return Err(reader.error("time dimension must have duration argument", place));
    }
    let mut offset = 0;
    if reader.take(",") {
        let place = reader.peek().1;
        let is_negative = reader.take("-");
        let Token::Duration(_) = reader.peek().0 else {
            return Err(reader.error("time dimension offset must be duration", place));
        };
        let given = reader.duration()?;
        offset = (if is_negative { -given } else { given }).rem_euclid(every);
    }
    reader.expect(")")?;
    Ok(Interval { every, offset })
}

/// Takes the name of a function without a keyword of its own, if it is next.
fn take_function(reader: &mut Reader<'_>, wanted: &str) -> bool {
    let is_next = matches!(reader.peek().0, Token::Name(name) if name.eq_ignore_ascii_case(wanted));
    if is_next {
        reader.next();
    }
    is_next
}

/// Reads `fill(…)` if it is next.
fn fill(reader: &mut Reader<'_>) -> Read<Option<Fill>> {
    if !take_function(reader, "fill") {
        return Ok(None);
    }
    if !reader.take_adjacent("(") {
        return Err(QueryError::new("fill must be a function call"));
    }
    let is_negative = reader.take("-");
    let (token, place) = reader.next();
    let fill = match &token {
        Token::Name(name) if !is_negative => match name.to_ascii_lowercase().as_str() {
            "null" => Some(Fill::Null),
            "none" => Some(Fill::None),
            "previous" => Some(Fill::Previous),
            "linear" => Some(Fill::Linear),
            _ => None,
        },
        Token::Integer(digits) | Token::Number(digits) => {
            let number = digits.parse().ok().filter(|number: &f64| number.is_finite());
            number.map(|number| Fill::Number(if is_negative { -number } else { number }))
        }
        _ => None,
    };
    let Some(fill) = fill else { return Err(reader.error("expected number argument in fill()", place)) };
    reader.expect(")")?;
    Ok(Some(fill))
}

/// Reads `ORDER BY …` if it is next. Returns true for the latest time first.
fn order(reader: &mut Reader<'_>) -> Read<bool> {
    if !reader.take("ORDER") {
        return Ok(false);
    }
    reader.expect("BY")?;
    let only_time = || QueryError::new("only ORDER BY time supported at this time");
    match reader.peek() {
        (Token::Fixed("ASC" | "DESC"), _) => {}
        (Token::Name(name), _) => {
            reader.next();
            if name != "time" {
                return Err(only_time());
            }
        }
        (token, place) => return Err(reader.unexpected(&token, &["identifier", "ASC", "DESC"], place)),
    }
    let is_descending = reader.take("DESC");
    if !is_descending {
        reader.take("ASC");
    }
    if reader.take(",") {
        reader.name()?;
        return Err(only_time());
    }
    Ok(is_descending)
}

/// Reads `tz('UTC')` if it is next.
fn zone(reader: &mut Reader<'_>) -> Read<()> {
    if !take_function(reader, "tz") {
        return Ok(());
    }
    if !reader.take_adjacent("(") {
        return Err(QueryError::new("tz must be a function call"));
    }
    match reader.next() {
        (Token::Text(zone), place) if !matches!(zone.as_str(), "UTC" | "Etc/UTC" | "") => {
            let message = format!("time zone {zone} is not supported, only UTC");
            return Err(reader.error(&message, place));
        }
        (Token::Text(_), _) => {}
        _ => return Err(QueryError::new("expected string argument in tz()")),
    }
    reader.expect(")")
}
