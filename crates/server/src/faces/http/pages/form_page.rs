//! A page of tables with a form that chooses them.

use askama::Template;
use exacat_model::Result;
use hyper::{Response, StatusCode};

use super::super::answers::Body;
use super::frame::{Frame, Link, Section, page};
use super::tables::{as_csv, link_csv};
use super::visit::Visit;

/// A choice: its value, and its name.
pub(super) type Choice = (String, String);

/// Returns choices with fixed names.
pub(super) fn choices(all: &[(&str, &str)]) -> Vec<Choice> {
    all.iter().map(|(value, name)| ((*value).to_owned(), (*name).to_owned())).collect()
}

/// A field of a form.
pub(super) struct Field {
    pub name: &'static str,
    pub label: &'static str,
    pub example: &'static str,
    /// None for free text.
    pub choices: Vec<Choice>,
    pub value: String,
}

/// A form, and what it shows.
#[derive(Template)]
#[template(path = "activity.html")]
pub(super) struct FormPage {
    pub frame: Frame,
    pub action: &'static str,
    pub fields: Vec<Field>,
    pub links: Vec<Link>,
    pub told: String,
    pub findings: Vec<String>,
    pub parts: Vec<Section>,
}

impl FormPage {
    /// Answers with the page, or with one of its tables as CSV.
    pub(crate) fn answer(mut self, visit: &Visit<'_>) -> Result<Response<Body>> {
        if let Some(answer) = as_csv(visit, &self.parts) {
            return answer;
        }
        link_csv(visit, &mut self.parts);
        page(StatusCode::OK, &self, None)
    }
}
