//! Endpoints of the history of elements, below `/history`.

use exacat_model::element::{AggregateBy, ElementCourse, ElementsOf};
use exacat_model::{Error, GroupName, Operation, Result, TimeNs};
use exacat_wire::influx::query::parse_duration;
use exacat_wire::json;
use exacat_wire::json::element_requests::{ElementGroupIn, NewRowsIn};

use super::arguments::Arguments;
use super::endpoints::{
    CURSOR, Endpoint, LIMIT, Parameter, Run, View, body, endpoint, items, limit, one, pages, parameter,
    tables,
};

const ELEMENT: Parameter = parameter(
    "element",
    "string",
    "Name or key of an element, or a pattern of names with `*`, `?`, `[…]` and `{…}`; all if left out.",
);
const FIELD: Parameter = parameter(
    "field",
    "array",
    "Field to show, may be repeated; `*` shows all. Left out: the value and its quality.",
);
const FROM: Parameter = parameter("from", "string", "First time; the oldest value if left out.");
const TO: Parameter = parameter("to", "string", "Last time; now and later if left out.");

/// Length of an interval that a client gets without asking for one.
const EVERY: &str = "1m";

/// Returns the elements that a request is about.
fn elements_of(arguments: &Arguments) -> Result<Box<ElementsOf>> {
    let pattern = arguments.given("element")?.unwrap_or_default().to_owned();
    Ok(Box::new(ElementsOf { group: arguments.name::<GroupName>()?, pattern }))
}

fn fields(arguments: &Arguments) -> Vec<String> {
    arguments.each("field").map(str::to_owned).collect()
}

/// Returns the first and last time.
fn times(arguments: &Arguments) -> Result<(i64, i64)> {
    let time = |name| Ok::<_, Error>(arguments.parsed::<TimeNs>(name)?.map(|TimeNs(time)| time));
    let (from, to) = (time("from")?.unwrap_or(i64::MIN), time("to")?.unwrap_or(i64::MAX));
    if from > to {
        return Err(Error::invalid("the range of times ends before it begins"));
    }
    Ok((from, to))
}

fn aggregate_by(arguments: &Arguments) -> Result<Box<AggregateBy>> {
    let every = arguments.given("every")?.unwrap_or(EVERY);
    let every = parse_duration(every).map_err(|why| Error::invalid(format!("the parameter every: {why}")))?;
    let course = match arguments.given("course")? {
        None | Some("holds") => ElementCourse::Holds,
        Some("line") => ElementCourse::Line,
        Some("samples") => ElementCourse::Samples,
        Some(other) => {
            return Err(Error::invalid(format!("a course is holds, line or samples, not {other:.60?}")));
        }
    };
    Ok(Box::new(AggregateBy {
        field: arguments.given("field")?.map(str::to_owned),
        every,
        origin: 0,
        course,
    }))
}

/// Returns the endpoints.
pub(super) fn element_endpoints() -> Vec<Endpoint> {
    vec![
        endpoint!("GET" "/history" listElementGroups "Lists the groups of elements that you may read.",
            &[], None, items::<json::ElementGroupOut<'_>>(), |_| Ok(Operation::ElementGroups)),
        endpoint!("PUT" "/history/{name}" setElementGroup "Makes a group of elements, or changes its settings.",
            &[], body::<ElementGroupIn>(), one::<json::DoneOut<'_>>(), |arguments| {
            let change = Box::new(arguments.json::<ElementGroupIn>()?.change());
            Ok(Operation::ElementGroupSet { group: arguments.name()?, change })
        }),
        endpoint!("DELETE" "/history/{name}" dropElementGroup "Removes a group of elements with all its values.",
            &[], None, one::<json::DoneOut<'_>>(),
            |arguments| Ok(Operation::ElementGroupDrop { group: arguments.name()? })),
        endpoint!("GET" "/history/{name}/elements" listElements "Lists elements.",
        &[ELEMENT, LIMIT, CURSOR], None, pages::<json::ElementOut<'_>>(),
        |arguments| Ok(Operation::ElementList {
            of: elements_of(arguments)?,
            cursor: arguments.cursor()?,
            limit: limit(arguments)?,
        })),
        endpoint!("GET" "/history/{name}/values" getElementValues
        "Returns the latest values of elements, or those that held at an instant.",
        &[ELEMENT, parameter("at", "string", "The instant; the latest values if left out."), FIELD, LIMIT, CURSOR],
        None, tables::<json::ElementStateOut<'_>>(), |arguments| Ok(Operation::ElementValues {
            of: elements_of(arguments)?,
            at: arguments.parsed::<TimeNs>("at")?.map(|TimeNs(time)| time),
            fields: fields(arguments),
            cursor: arguments.cursor()?,
            limit: limit(arguments)?,
        })),
        endpoint!("GET" "/history/{name}/rows" getElementRows
        "Returns rows of elements, each element's in the order of time. `limit` counts rows.",
        &[ELEMENT, FROM, TO, FIELD, LIMIT, CURSOR],
        None, tables::<json::ElementRowOut<'_>>(), |arguments| Ok(Operation::ElementRows {
            of: elements_of(arguments)?,
            times: times(arguments)?,
            fields: fields(arguments),
            cursor: arguments.cursor()?,
            limit: limit(arguments)?,
        })),
        endpoint!("POST" "/history/{name}/rows" writeElementRows
        "Writes rows. They are durable when the answer comes; a row that is written again changes nothing.",
        &[], body::<NewRowsIn>(), one::<json::ElementsWrittenOut<'_>>(), |arguments| {
            let rows = arguments.json::<NewRowsIn>()?.rows()?;
            Ok(Operation::ElementWrite { group: arguments.name()?, rows })
        }),
        endpoint!("GET" "/history/{name}/aggregates" getElementAggregates
        "Returns count, first, last, smallest, largest, mean and integral of a field by interval.",
        &[
            ELEMENT,
            FROM,
            TO,
            parameter("every", "string", "Length of an interval, such as `10s` or `1h30m`; `1m` if left out."),
            parameter("field", "string", "The field; the value if left out."),
            parameter(
                "course",
                "string",
                "Course of the value between rows: `holds` (default), `line`, or `samples` without integral.",
            ),
            LIMIT,
            CURSOR,
        ],
        None, tables::<json::ElementAggregateOut<'_>>(), |arguments| Ok(Operation::ElementAggregates {
            of: elements_of(arguments)?,
            times: times(arguments)?,
            by: aggregate_by(arguments)?,
            cursor: arguments.cursor()?,
            limit: limit(arguments)?,
        })),
    ]
}
