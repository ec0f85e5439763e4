//! A page of what a search finds, within a bounded time.

use std::time::{Duration, Instant};

use exacat_model::answer::Stat;
use exacat_model::{Answer, Cursor, Operation, Result};

use super::browse::ROWS;
use super::text::count;
use super::visit::{Visit, unfitting};
use crate::admission::Room;

/// Longest time of a search that fills a page. After it the page has what was found, and a next one.
pub(super) const SEARCH_TIME: Duration = Duration::from_secs(2);

/// A page of a search.
pub(super) struct Filled {
    pub items: Vec<Stat>,
    pub next: Option<Cursor>,
    pub room: Option<Room>,
}

impl Filled {
    /// Tells the number of entries, and whether the search is over.
    pub(crate) fn told(&self) -> String {
        let number = count(self.items.len() as u128);
        match &self.next {
            Some(_) if self.items.is_empty() => "Nothing found so far; the next page searches on.".to_owned(),
            Some(_) => format!("Entries on this page: {number}. The next page searches on."),
            None => format!("Entries: {number}, and no more."),
        }
    }
}

/// Runs a search until the page is full, the search is over, or its time is. `keep` chooses among the
/// entries that the search finds.
pub(super) async fn fill(
    visit: &mut Visit<'_>,
    mut operation: Operation,
    keep: impl Fn(&Stat) -> bool,
) -> Result<Filled> {
    let until = Instant::now() + SEARCH_TIME;
    let (mut items, mut first_room) = (Vec::new(), None);
    let next = loop {
        let (answer, room) = visit.call.page(operation.clone(), ROWS - items.len() as u32).await?;
        let Answer::Entries { items: mut more, next, .. } = answer else { return Err(unfitting()) };
        more.retain(&keep);
        items.extend(more);
        first_room.get_or_insert(room);
        let Some(next) = next else { break None };
        if items.len() >= ROWS as usize || Instant::now() >= until {
            break Some(next);
        }
        operation = operation.resumed(next).ok_or_else(unfitting)?;
    };
    Ok(Filled { items, next, room: first_room })
}
