//! `history`: groups of elements and their values.

pub(crate) mod adopt;
pub(crate) mod import;

use exacat_model::element::{
    AggregateBy, ElementAggregates, ElementCourse, ElementGroup, ElementRows, ElementState, ElementsOf,
    GroupChange,
};
use exacat_model::operation::Owner;
use exacat_model::{AccountName, Answer, Cursor, Error, FieldValue, GroupName, Operation, TimeMs, TimeNs};
use exacat_wire::influx::query::parse_duration;
use exacat_wire::json;

use crate::args::{CourseArg, HistoryCommand, HistoryGetArgs, HistorySetArgs};
use crate::context::{Context, PAGE_ITEMS};
use crate::failure::Failure;
use crate::output::human::{self, UNKNOWN};
use crate::output::{Align, Table};
use crate::parse::{self, Direction};

const LEFT: Align = Align::Left;
const RIGHT: Align = Align::Right;
/// Nanoseconds of a millisecond.
const MILLISECOND: i64 = 1_000_000;
/// Digits behind the point of a number in a table.
const DIGITS: usize = 6;

/// `exacat history`
pub(crate) async fn history(context: &mut Context, command: HistoryCommand) -> Result<(), Failure> {
    match command {
        HistoryCommand::Ls { of: None } => {
            let groups = groups(context, None).await?;
            show_groups(context, &groups)
        }
        HistoryCommand::Ls { of: Some(of) } => list(context, &of).await,
        HistoryCommand::Latest { of, fields } => values(context, &of, None, fields.fields).await,
        HistoryCommand::At { time, of, fields } => {
            let at = self::time(&time)?;
            values(context, &of, Some(at), fields.fields).await
        }
        HistoryCommand::Get(args) => get(context, args).await,
        HistoryCommand::Stat { group } => {
            let groups = groups(context, group.as_deref()).await?;
            show_settings(context, &groups)
        }
        HistoryCommand::Set(args) => set(context, args).await,
        HistoryCommand::Rm { group } => {
            let name = group_name(&group)?;
            context.change(&group, Operation::ElementGroupDrop { group: name }).await
        }
        HistoryCommand::Import(args) => import::import(context, args).await,
        HistoryCommand::Adopt(_) => Err(Failure::local("this takes no server")),
    }
}

pub(super) fn group_name(text: &str) -> Result<GroupName, Failure> {
    GroupName::parse(text).map_err(|error| Failure::about(text, error))
}

/// Reads `GROUP` or `GROUP:ELEMENT`.
fn elements_of(text: &str) -> Result<Box<ElementsOf>, Failure> {
    let (group, pattern) = text.split_once(':').unwrap_or((text, ""));
    Ok(Box::new(ElementsOf { group: group_name(group)?, pattern: pattern.to_owned() }))
}

/// Reads a time, which may be a duration ago.
fn time(text: &str) -> Result<i64, Failure> {
    if let Ok(TimeNs(time)) = TimeNs::parse(text) {
        return Ok(time);
    }
    let TimeMs(ms) = parse::time(text, Direction::Past).map_err(|error| Failure::about(text, error))?;
    Ok(i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(MILLISECOND))
}

async fn groups(context: &Context, only: Option<&str>) -> Result<Vec<ElementGroup>, Failure> {
    let only = only.map(group_name).transpose()?;
    let answer = context.call(Operation::ElementGroups).await?;
    let Answer::ElementGroups(groups) = answer else { return Err(Failure::unexpected(&answer)) };
    let Some(only) = only else { return Ok(groups) };
    let found: Vec<_> = groups.into_iter().filter(|group| group.settings.name == only).collect();
    match found.is_empty() {
        true => Err(Failure::about(only.as_str(), Error::not_found("there is no such group of elements"))),
        false => Ok(found),
    }
}

fn show_groups(context: &mut Context, groups: &[ElementGroup]) -> Result<(), Failure> {
    if context.out.style.json {
        return groups.iter().try_for_each(|group| context.out.json(&json::element_group(group)));
    }
    let mut table = Table::headed([
        ("ELEMENTS", RIGHT),
        ("ROWS", RIGHT),
        ("SIZE", RIGHT),
        ("DAYS KEPT", RIGHT),
        ("OWNER", LEFT),
        ("GROUP", LEFT),
    ]);
    for group in groups {
        let settings = &group.settings;
        table.row([
            group.elements.to_string(),
            (group.rows + group.rows_in_memory).to_string(),
            context.out.size(u128::from(group.bytes)),
            if settings.retention_days == 0 { "all".to_owned() } else { settings.retention_days.to_string() },
            settings.owner.as_ref().map_or_else(|| UNKNOWN.to_owned(), ToString::to_string),
            settings.name.to_string(),
        ]);
    }
    context.out.table(&table)
}

fn show_settings(context: &mut Context, groups: &[ElementGroup]) -> Result<(), Failure> {
    if context.out.style.json {
        return groups.iter().try_for_each(|group| context.out.json(&json::element_group(group)));
    }
    for group in groups {
        let settings = &group.settings;
        let names = |owners: &[Owner], none: &str| match owners.is_empty() {
            true => none.to_owned(),
            false => owners.iter().map(json::owner).collect::<Vec<_>>().join(", "),
        };
        let day = |day: i64| json::day(day);
        let mut table = Table::new([LEFT, LEFT]);
        let kept = match settings.retention_days {
            0 => "for ever".to_owned(),
            days => human::plural(u64::from(days), "day"),
        };
        for (what, text) in [
            ("group", settings.name.to_string()),
            ("created", settings.created.to_string()),
            ("owner", settings.owner.as_ref().map_or_else(|| UNKNOWN.to_owned(), ToString::to_string)),
            ("readers", names(&settings.readers, "everybody")),
            ("writers", names(&settings.writers, "owner and operators only")),
            ("values kept", kept),
            ("elements", format!("{} of {} at most", group.elements, settings.elements_max)),
            ("fields", group.fields.to_string()),
            ("rows in files", group.rows.to_string()),
            ("rows in memory", group.rows_in_memory.to_string()),
            ("files", format!("{}, {}", group.files, context.out.size(u128::from(group.bytes)))),
            (
                "days",
                group.days.map_or_else(
                    || UNKNOWN.to_owned(),
                    |(first, last)| format!("{} to {}", day(first), day(last)),
                ),
            ),
        ] {
            table.row([format!("{what}:"), text]);
        }
        context.out.table(&table)?;
    }
    Ok(())
}

async fn list(context: &mut Context, text: &str) -> Result<(), Failure> {
    let of = elements_of(text)?;
    let mut pages =
        context.pages(Operation::ElementList { of, cursor: Cursor::default(), limit: PAGE_ITEMS });
    let mut headed = false;
    while let Some(page) = pages.next().await.map_err(|error| Failure::about(text, error))? {
        let Answer::Elements { items, .. } = page else { return Err(Failure::unexpected(&page)) };
        if context.out.style.json {
            items.iter().try_for_each(|item| context.out.json(&json::element(item)))?;
            continue;
        }
        let columns = [("NEWEST", LEFT), ("FIELDS", RIGHT), ("ELEMENT", LEFT)];
        let mut table = Table::headed(columns).headed_once(&mut headed);
        for item in items {
            table.row([
                item.newest.map_or_else(|| UNKNOWN.to_owned(), |time| TimeNs(time).to_string()),
                item.fields.len().to_string(),
                context.out.name(&item.name).to_string(),
            ]);
        }
        context.out.table(&table)?;
    }
    Ok(())
}

/// Returns a value as a person reads it.
fn shown(value: &FieldValue) -> String {
    match value {
        FieldValue::Float(value) => value.to_string(),
        FieldValue::Integer(value) => value.to_string(),
        FieldValue::Unsigned(value) => value.to_string(),
        FieldValue::Boolean(value) => value.to_string(),
        FieldValue::Text(text) => text.escape_debug().to_string(),
    }
}

/// Returns a computed number with few digits.
fn rounded(value: Option<f64>) -> String {
    let Some(value) = value else { return UNKNOWN.to_owned() };
    let text = format!("{value:.DIGITS$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

async fn values(
    context: &mut Context,
    text: &str,
    at: Option<i64>,
    fields: Vec<String>,
) -> Result<(), Failure> {
    let (of, cursor) = (elements_of(text)?, Cursor::default());
    let operation = Operation::ElementValues { of, at, fields, cursor, limit: PAGE_ITEMS };
    let mut pages = context.pages(operation);
    let mut headed = false;
    while let Some(page) = pages.next().await.map_err(|error| Failure::about(text, error))? {
        let Answer::ElementValues { items, .. } = page else { return Err(Failure::unexpected(&page)) };
        show_states(context, &items, &mut headed)?;
    }
    Ok(())
}

fn show_states(context: &mut Context, states: &[ElementState], headed: &mut bool) -> Result<(), Failure> {
    if context.out.style.json {
        return states.iter().try_for_each(|state| context.out.json(&json::element_state(state)));
    }
    let columns = [("SINCE", LEFT), ("VALUE", RIGHT), ("FIELD", LEFT), ("ELEMENT", LEFT)];
    let mut table = Table::headed(columns).headed_once(headed);
    for state in states {
        for value in &state.values {
            table.row([
                TimeNs(value.time).to_string(),
                shown(&value.value),
                context.out.name(&value.field).to_string(),
                context.out.name(&state.name).to_string(),
            ]);
        }
    }
    context.out.table(&table)
}

async fn get(context: &mut Context, args: HistoryGetArgs) -> Result<(), Failure> {
    let of = elements_of(&args.of)?;
    let from = args.from.as_deref().map(time).transpose()?.unwrap_or(i64::MIN);
    let now = || time("now");
    let to = match (&args.to, &args.every) {
        (Some(text), _) => time(text)?,
        // Intervals have an end.
        (None, Some(_)) => now()?,
        (None, None) => i64::MAX,
    };
    if from > to {
        return Err(Failure::local("the range of times ends before it begins"));
    }
    let (times, cursor, limit) = ((from, to), Cursor::default(), PAGE_ITEMS);
    let operation = match &args.every {
        None => Operation::ElementRows { of, times, fields: args.fields.fields, cursor, limit },
        Some(every) => {
            let mut fields = args.fields.fields.into_iter();
            let field = fields.next();
            if fields.next().is_some() {
                return Err(Failure::local("aggregates are of one field: give --field once"));
            }
            let every =
                parse_duration(every).map_err(|why| Failure::local(format!("--every {every}: {why}")))?;
            let course = match args.course {
                CourseArg::Holds => ElementCourse::Holds,
                CourseArg::Line => ElementCourse::Line,
                CourseArg::Samples => ElementCourse::Samples,
            };
            let by = Box::new(AggregateBy { field, every, origin: 0, course });
            Operation::ElementAggregates { of, times, by, cursor, limit }
        }
    };
    let mut pages = context.pages(operation);
    let mut headed = false;
    while let Some(page) = pages.next().await.map_err(|error| Failure::about(&args.of, error))? {
        match page {
            Answer::ElementRows { items, .. } => show_rows(context, &items, &mut headed)?,
            Answer::ElementAggregates { items, .. } => show_aggregates(context, &items, &mut headed)?,
            other => return Err(Failure::unexpected(&other)),
        }
    }
    Ok(())
}

fn show_rows(context: &mut Context, items: &[ElementRows], headed: &mut bool) -> Result<(), Failure> {
    if context.out.style.json {
        return items.iter().flat_map(json::element_rows).try_for_each(|row| context.out.json(&row));
    }
    let columns = [("TIME", LEFT), ("VALUE", RIGHT), ("FIELD", LEFT), ("ELEMENT", LEFT)];
    let mut table = Table::headed(columns).headed_once(headed);
    for rows in items {
        for (at, time) in rows.times.iter().enumerate() {
            for (field, value) in rows.row(at) {
                table.row([
                    TimeNs(*time).to_string(),
                    shown(&value.to_value()),
                    context.out.name(field).to_string(),
                    context.out.name(&rows.name).to_string(),
                ]);
            }
        }
    }
    context.out.table(&table)
}

fn show_aggregates(
    context: &mut Context,
    items: &[ElementAggregates],
    headed: &mut bool,
) -> Result<(), Failure> {
    if context.out.style.json {
        return items.iter().flat_map(json::element_aggregates).try_for_each(|one| context.out.json(&one));
    }
    let mut table = Table::headed([
        ("FROM", LEFT),
        ("ROWS", RIGHT),
        ("MIN", RIGHT),
        ("MEAN", RIGHT),
        ("MAX", RIGHT),
        ("LAST", RIGHT),
        ("INTEGRAL", RIGHT),
        ("ELEMENT", LEFT),
    ])
    .headed_once(headed);
    for of in items {
        for one in &of.intervals {
            let known = |value: Option<&FieldValue>| value.map_or_else(|| UNKNOWN.to_owned(), shown);
            table.row([
                TimeNs(one.start).to_string(),
                one.count.to_string(),
                known(one.min.as_ref()),
                rounded(one.mean_over_time.or(one.mean)),
                known(one.max.as_ref()),
                known(one.last.as_ref().map(|(_, value)| value)),
                rounded((one.covered_seconds > 0.0).then_some(one.integral)),
                context.out.name(&of.name).to_string(),
            ]);
        }
    }
    context.out.table(&table)
}

/// Reads users and groups, separated by commas; `none` is the word for nobody in particular.
fn owners(text: &str, none: &str) -> Result<Vec<Owner>, Failure> {
    if text == none {
        return Ok(Vec::new());
    }
    text.split(',').map(|name| parse::owner(name).map_err(|error| Failure::about(name, error))).collect()
}

async fn set(context: &mut Context, args: HistorySetArgs) -> Result<(), Failure> {
    let change = GroupChange {
        owner: args.owner.as_deref().map(AccountName::parse).transpose()?,
        readers: args.readers.as_deref().map(|text| owners(text, json::EVERYBODY)).transpose()?,
        writers: args.writers.as_deref().map(|text| owners(text, "nobody")).transpose()?,
        retention_days: args.retention,
        elements_max: args.max_elements,
    };
    let group = group_name(&args.group)?;
    context.change(&args.group, Operation::ElementGroupSet { group, change: Box::new(change) }).await
}
