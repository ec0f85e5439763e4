//! `WHERE`: conditions on tags, and bounds of the time.

use exacat_model::limits::INFLUX_NESTING_MAX;

use super::duration::{duration, time};
use super::reader::{Read, Reader};
use super::statement::{Bound, Condition, Filter, Instant, TagTest};
use super::token::Token;

/// Reads `WHERE …` if it is next.
pub(super) fn filter(reader: &mut Reader<'_>) -> Read<Filter> {
    let mut times = Vec::new();
    let tags = if reader.take("WHERE") { any(reader, &mut times, 0)? } else { None };
    Ok(Filter { tags, times })
}

/// Joins conditions; none if there are none.
fn joined(mut parts: Vec<Condition>, join: fn(Vec<Condition>) -> Condition) -> Option<Condition> {
    if parts.len() > 1 { Some(join(parts)) } else { parts.pop() }
}

/// Reads conditions that `OR` joins.
fn any(reader: &mut Reader<'_>, times: &mut Vec<Bound>, depth: usize) -> Read<Option<Condition>> {
    let before = times.len();
    let mut parts: Vec<Condition> = all(reader, times, depth)?.into_iter().collect();
    while matches!(reader.peek().0, Token::Fixed("OR")) {
        let place = reader.next().1;
        parts.extend(all(reader, times, depth)?);
        // InfluxDB joins such times with AND, whatever the query says.
        if times.len() > before {
            return Err(reader.error("a time cannot be combined with OR", place));
        }
    }
    Ok(joined(parts, Condition::Any))
}

/// Reads conditions that `AND` joins.
fn all(reader: &mut Reader<'_>, times: &mut Vec<Bound>, depth: usize) -> Read<Option<Condition>> {
    let mut parts: Vec<Condition> = one(reader, times, depth)?.into_iter().collect();
    while reader.take("AND") {
        parts.extend(one(reader, times, depth)?);
    }
    Ok(joined(parts, Condition::All))
}

/// Reads a comparison, or conditions in parentheses. None if it is of the time.
fn one(reader: &mut Reader<'_>, times: &mut Vec<Bound>, depth: usize) -> Read<Option<Condition>> {
    let (token, place) = reader.next();
    let key = match token {
        Token::Fixed("(") if depth == INFLUX_NESTING_MAX => {
            let message = format!("conditions nest deeper than {INFLUX_NESTING_MAX}");
            return Err(reader.error(&message, place));
        }
        Token::Fixed("(") => {
            let inner = any(reader, times, depth + 1)?;
            reader.expect(")")?;
            return Ok(inner);
        }
        Token::Name(name) => name,
        token => return Err(reader.unexpected(&token, &["identifier", "("], place)),
    };
    if key.eq_ignore_ascii_case("time") {
        bounds(reader, times)?;
        return Ok(None);
    }
    if reader.take_adjacent("::") {
        reader.expect("TAG")?;
    }
    let (sign, place) = reader.next();
    let test = match sign {
        Token::Fixed("=~") => TagTest::Matches(reader.required_pattern()?),
        Token::Fixed("!~") => TagTest::DoesNotMatch(reader.required_pattern()?),
        Token::Fixed(sign @ ("=" | "!=")) => match reader.next() {
            (Token::Text(text), _) if sign == "=" => TagTest::Is(text),
            (Token::Text(text), _) => TagTest::IsNot(text),
            // A condition on a field.
            (token, place) => return Err(reader.unexpected(&token, &["string"], place)),
        },
        token => return Err(reader.unexpected(&token, &["=", "!=", "=~", "!~"], place)),
    };
    Ok(Some(Condition::Tag { key, test }))
}

/// Reads a comparison of the time behind the word.
fn bounds(reader: &mut Reader<'_>, times: &mut Vec<Bound>) -> Read<()> {
    let (sign, place) = reader.next();
    let Token::Fixed(sign @ ("=" | "!=" | "<" | "<=" | ">" | ">=")) = sign else {
        return Err(reader.unexpected(&sign, &["=", "<", "<=", ">", ">="], place));
    };
    let at = instant(reader)?;
    match sign {
        ">=" => times.push(Bound::From(at)),
        ">" => times.push(Bound::From(moved(at, 1))),
        "<=" => times.push(Bound::To(at)),
        "<" => times.push(Bound::To(moved(at, -1))),
        "=" => times.extend([Bound::From(at), Bound::To(at)]),
        _ => return Err(reader.error(&format!("invalid time comparison operator: {sign}"), place)),
    }
    Ok(())
}

/// Moves an instant, at most to the ends of time.
fn moved(instant: Instant, by: i64) -> Instant {
    match instant {
        Instant::At(time) => Instant::At(time.saturating_add(by)),
        Instant::FromNow(after) => Instant::FromNow(after.saturating_add(by)),
    }
}

/// Reads a number of nanoseconds, a duration since 1970, a time in quotes, or `now()`; and durations to
/// add or subtract.
fn instant(reader: &mut Reader<'_>) -> Read<Instant> {
    let is_negative = reader.take("-");
    let (token, place) = reader.next();
    let nanoseconds = match &token {
        Token::Integer(digits) => {
            digits.parse().map_err(|_| reader.error("unable to parse integer", place))?
        }
        Token::Duration(text) => duration(text).map_err(|error| reader.error(&error, place))?,
        Token::Text(text) if !is_negative => time(text).map_err(|error| reader.error(&error, place))?,
        Token::Name(name) if !is_negative && name.eq_ignore_ascii_case("now") => 0,
        token => return Err(reader.unexpected(token, &["time", "number", "duration", "now()"], place)),
    };
    let mut at = if let Token::Name(_) = token {
        reader.expect("(")?;
        reader.expect(")")?;
        Instant::FromNow(0)
    } else {
        Instant::At(if is_negative { nanoseconds.saturating_neg() } else { nanoseconds })
    };
    loop {
        let sign = if reader.take("+") {
            1
        } else if reader.take("-") {
            -1
        } else {
            return Ok(at);
        };
        at = moved(at, sign * reader.duration()?);
    }
}
