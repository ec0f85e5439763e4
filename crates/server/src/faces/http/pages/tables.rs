//! A page of tables, each under its heading; one of them may be asked for as CSV.

use askama::Template;
use exacat_model::{Error, Result};
use hyper::{Response, StatusCode};

use super::super::answers::Body;
use super::frame::{Frame, Link, Section, csv, page};
use super::text::with;
use super::visit::Visit;
use crate::admission::Room;

/// Name of the parameter with the name of the table that is wanted as CSV.
const CSV: &str = "csv";

/// A page of tables.
#[derive(Template, Default)]
#[template(path = "tables.html")]
pub(super) struct TablesPage {
    pub frame: Frame,
    /// Word about an action that was done.
    pub done: String,
    pub intro: String,
    pub links: Vec<Link>,
    /// The tables, each with its name in the URL of its CSV.
    pub parts: Vec<Section>,
}

impl TablesPage {
    /// Answers with the page, or with one of its tables as CSV.
    pub(crate) fn answer(mut self, visit: &Visit<'_>, room: Option<Room>) -> Result<Response<Body>> {
        if let Some(answer) = as_csv(visit, &self.parts) {
            return answer;
        }
        link_csv(visit, &mut self.parts);
        page(StatusCode::OK, &self, room)
    }
}

/// Sets the URLs of the CSV of named tables.
pub(super) fn link_csv(visit: &Visit<'_>, parts: &mut [Section]) {
    for part in parts.iter_mut().filter(|part| !part.name.is_empty() && !part.table.rows.is_empty()) {
        part.csv = with(visit.frame.here.clone(), CSV, part.name);
    }
}

/// Answers with the table that the query names; none if it names no table.
pub(super) fn as_csv(visit: &Visit<'_>, parts: &[Section]) -> Option<Result<Response<Body>>> {
    let name = visit.query.get(CSV)?;
    let part = parts.iter().find(|part| part.name == name);
    Some(match part {
        Some(part) => Ok(csv(&part.table, part.name)),
        None => Err(Error::not_found(format!("no table of this page is named {name:.60?}"))),
    })
}
