//! `find --during`: the times in which an element had a value, and the runs of those times.

use exacat_catalogue::during::{During, DuringBounds, DuringBy, DuringReading, ElementCondition};
use exacat_model::Filter;

use crate::context::{Context, PAGE_ITEMS};
use crate::failure::Failure;

/// Page of the reading, and rows of an element that a search reads.
const BOUNDS: DuringBounds = DuringBounds { page: PAGE_ITEMS, rows_max: 1_000_000 };

/// Reads the history, and narrows the filter to the times or runs of the condition.
pub(crate) async fn during(
    context: &Context,
    text: &str,
    by: DuringBy,
    filter: &mut Filter,
) -> Result<During, Failure> {
    let mut reading = DuringReading::new(ElementCondition::parse(text)?, by, filter, BOUNDS);
    while let Some(operation) = reading.wanted() {
        let taken = context.call(operation.clone()).await.and_then(|answer| reading.take(answer));
        taken.map_err(|error| Failure::about(reading.element(), error))?;
    }
    Ok(reading.narrow(filter)?)
}
