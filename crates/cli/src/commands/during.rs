//! `find --during`: the times in which an element had a value, and the runs of those times.

use exacat_catalogue::during::{ConditionTimes, During, DuringBy, ElementCondition, RUN_ELEMENT, RunTimes};
use exacat_model::element::{ElementRows, ElementsOf};
use exacat_model::{Answer, Cursor, Error, Filter, GroupName, Operation};

use crate::context::{Context, PAGE_ITEMS};
use crate::failure::Failure;

/// Rows of an element that a search reads.
const ROWS_MAX: usize = 1_000_000;

/// Reads the rows of one element, in the order of time.
async fn read(
    context: &Context,
    (group, element): (&GroupName, &str),
    mut each: impl FnMut(&[ElementRows]) -> Result<(), Error>,
) -> Result<(), Failure> {
    let of = Box::new(ElementsOf { group: group.clone(), pattern: element.to_owned() });
    let (times, fields, cursor) = ((i64::MIN, i64::MAX), Vec::new(), Cursor::default());
    let mut pages = context.pages(Operation::ElementRows { of, times, fields, cursor, limit: PAGE_ITEMS });
    let about = |error| Failure::about(format!("{group}:{element}"), error);
    while let Some(page) = pages.next().await.map_err(about)? {
        let Answer::ElementRows { items, .. } = page else { return Err(Failure::unexpected(&page)) };
        each(&items).map_err(about)?;
    }
    Ok(())
}

/// Reads the history, and narrows the filter to the times or runs of the condition.
pub(crate) async fn during(
    context: &Context,
    text: &str,
    by: DuringBy,
    filter: &mut Filter,
) -> Result<During, Failure> {
    let condition = ElementCondition::parse(text)?;
    let (group, element) = (condition.group.clone(), condition.element.clone());
    let mut times = ConditionTimes::new(condition, ROWS_MAX);
    read(context, (&group, &element), |rows| times.add(rows)).await?;
    let mut runs = RunTimes::new(ROWS_MAX);
    if by == DuringBy::Run {
        read(context, (&group, RUN_ELEMENT), |rows| runs.add(rows)).await?;
    }
    Ok(During::narrow(&times, by, &runs, filter)?)
}
