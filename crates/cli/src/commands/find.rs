//! `find`: searches below a directory.

use exacat_catalogue::during::During;
use exacat_exchange::catalogue::Catalogue;
use exacat_model::answer::Stat;
use exacat_model::{
    AccountName, Answer, Cursor, Error, Filter, GroupId, Kind, Lfn, Operation, Pattern, SeName,
    TagExpression, Usage, UserId,
};
use exacat_wire::json;

use super::during::during;
use super::listing::{self, Named};
use crate::args::{Conditions, FindArgs};
use crate::connect::Pages;
use crate::context::{Context, PAGE_ITEMS};
use crate::failure::Failure;
use crate::parse::{self, Direction};
use exacat_wire::json::SeNames;

/// `exacat find`
pub(crate) async fn find(context: &mut Context, args: FindArgs) -> Result<(), Failure> {
    let directory = parse::lfn(&args.directory).map_err(|error| Failure::about(&args.directory, error))?;
    context.at(&args.past).await?;
    let mut filter = filter(&context.session, args.pattern.as_deref(), &args.conditions).await?;
    let during = match &args.during {
        None => None,
        Some(text) => Some(during(context, text, args.during_by.into(), &mut filter).await?),
    };
    let mut sorted = listing::sorted(&args.order);
    // The first in another order may come last.
    let limit = if sorted.is_some() && !args.count { None } else { args.order.limit };
    let mut found = FoundEntries::below(context, directory, filter, limit);
    found.during = during;
    if args.count {
        return count(context, found).await;
    }
    while let Some(items) = found.next(context).await? {
        let named: Vec<Named> = items.into_iter().map(|stat| (stat.lfn.to_string(), stat)).collect();
        match &mut sorted {
            Some(sorted) => sorted.add(named)?,
            None => listing::show(context, named, args.long).await?,
        }
        // Flush now: a find may read much and show little.
        context.out.flush()?;
    }
    listing::show_sorted(context, sorted, args.long).await
}

async fn count(context: &mut Context, mut found: FoundEntries) -> Result<(), Failure> {
    let mut total = Usage::default();
    while let Some(items) = found.next(context).await? {
        for stat in &items {
            total.add(&Usage::of(&stat.entry));
        }
    }
    if context.out.style.json {
        return context.out.json(&json::usage(&total));
    }
    let entries = total.objects() + total.directories;
    let bytes = context.out.size(total.bytes + total.member_bytes);
    context.out.line(format!("{entries} {bytes}"))
}

/// Entries found, page by page.
pub(crate) struct FoundEntries {
    directory: Lfn,
    pages: Pages,
    left: u64,
    /// Times of the entries; none for any.
    during: Option<During>,
}

impl FoundEntries {
    /// Searches below this directory, for at most `limit` entries.
    pub(crate) fn below(context: &Context, directory: Lfn, filter: Filter, limit: Option<u64>) -> Self {
        let left = limit.unwrap_or(u64::MAX);
        let page = u32::try_from(left.clamp(1, u64::from(PAGE_ITEMS))).unwrap_or(PAGE_ITEMS);
        let pages = context.pages(Operation::Find {
            lfn: directory.clone(),
            filter: Box::new(filter),
            cursor: Cursor::default(),
            limit: page,
        });
        FoundEntries { directory, pages, left, during: None }
    }

    /// Returns the next page. An empty page is not the end.
    pub(crate) async fn next(&mut self, context: &mut Context) -> Result<Option<Vec<Stat>>, Failure> {
        if self.left == 0 {
            return Ok(None);
        }
        match self.pages.next().await {
            Ok(Some(Answer::Entries { mut items, ses, .. })) => {
                context.learn(&ses);
                items.retain(|stat| self.during.as_ref().is_none_or(|during| during.has(&stat.entry)));
                items.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
                self.left -= items.len() as u64;
                Ok(Some(items))
            }
            Ok(Some(other)) => Err(Failure::unexpected(&other)),
            Ok(None) => Ok(None),
            Err(error) => Err(Failure::about(self.directory.as_str(), error)),
        }
    }
}

/// Parses the conditions; asks the server for the numbers of names.
pub(crate) async fn filter<C: Catalogue>(
    catalogue: &C,
    pattern: Option<&str>,
    conditions: &Conditions,
) -> Result<Filter, Failure> {
    let mut filter = Filter::default();
    if let Some(text) = pattern {
        let pattern =
            if conditions.regex { Pattern::Regex(text.to_owned()) } else { Pattern::Glob(text.to_owned()) };
        // Refuse a bad pattern before any request.
        pattern.compile()?;
        filter.pattern = Some(pattern);
    }
    for text in &conditions.kinds {
        let kind = Kind::parse(text)?;
        if !filter.kinds.contains(&kind) {
            filter.kinds.push(kind);
        }
    }
    for text in &conditions.size {
        if text == "unknown" {
            filter.size_unknown = true;
            continue;
        }
        let (min, max) = parse::size_range(text)?;
        filter.size_min = filter.size_min.max(min);
        filter.size_max = match (filter.size_max, max) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
    let time =
        |text: &Option<String>| text.as_deref().map(|text| parse::time(text, Direction::Past)).transpose();
    filter.modified_from = time(&conditions.newer)?;
    filter.modified_before = time(&conditions.older)?;
    filter.created_from = time(&conditions.created_after)?;
    filter.created_before = time(&conditions.created_before)?;
    no_empty_range("--size", filter.size_min, filter.size_max.map(|max| max.saturating_add(1)))?;
    no_empty_range("--newer, --older", filter.modified_from, filter.modified_before)?;
    no_empty_range("--created-after, --created-before", filter.created_from, filter.created_before)?;
    if filter.size_unknown && (filter.size_min.is_some() || filter.size_max.is_some()) {
        return Err(Error::invalid("--size: no size is unknown and in a range").into());
    }
    filter.job = conditions.job;
    filter.depth_max = conditions.depth;
    filter.tags = match conditions.tags.as_slice() {
        [] => None,
        [one] => Some(TagExpression::parse(one)?),
        several => {
            // Each must be an expression by itself, so that no bracket closes another's.
            several.iter().try_for_each(|text| TagExpression::parse(text).map(drop))?;
            let all: Vec<String> = several.iter().map(|text| format!("({text})")).collect();
            Some(TagExpression::parse(&all.join(" and "))?)
        }
    };
    if let Some(name) = &conditions.owner {
        filter.owner = Some(UserId(number_of_user(catalogue, &AccountName::parse(name)?).await?));
    }
    if let Some(name) = &conditions.group {
        filter.group = Some(GroupId(number_of_group(catalogue, &AccountName::parse(name)?).await?));
    }
    if let Some(name) = &conditions.se {
        let name = SeName::parse(name)?;
        let answer = catalogue.call(Operation::SeList).await?;
        let Answer::Ses(ses) = answer else { return Err(Failure::unexpected(&answer)) };
        let mut names = SeNames::default();
        names.learn_all(&ses);
        let number = names.number(&name);
        filter.se = Some(number.ok_or_else(|| Error::not_found(format!("there is no SE {name}")))?);
    }
    Ok(filter)
}

/// Refuses conditions that no entry can meet.
fn no_empty_range<T: PartialOrd>(options: &str, from: Option<T>, before: Option<T>) -> Result<(), Error> {
    match from.zip(before) {
        Some((from, before)) if from >= before => {
            Err(Error::invalid(format!("{options}: nothing is in this range, which ends before it begins")))
        }
        _ => Ok(()),
    }
}

async fn number_of_user<C: Catalogue>(catalogue: &C, name: &AccountName) -> Result<u32, Failure> {
    // Every user may see the own account; the list of all may be forbidden.
    if let Answer::Whoami { user: Some(user), .. } = catalogue.call(Operation::Whoami).await?
        && user.name == *name
    {
        return Ok(user.id);
    }
    let answer = catalogue.call(Operation::AccountList).await?;
    let Answer::Accounts { users, .. } = answer else { return Err(Failure::unexpected(&answer)) };
    let found = users.iter().find(|user| user.name == *name).map(|user| user.id);
    Ok(found.ok_or_else(|| Error::not_found(format!("there is no user {name}")))?)
}

async fn number_of_group<C: Catalogue>(catalogue: &C, name: &AccountName) -> Result<u32, Failure> {
    let answer = catalogue.call(Operation::AccountList).await?;
    let Answer::Accounts { groups, .. } = answer else { return Err(Failure::unexpected(&answer)) };
    let found = groups.iter().find(|(_, known)| known == name).map(|(number, _)| *number);
    Ok(found.ok_or_else(|| Error::not_found(format!("there is no group {name}")))?)
}
