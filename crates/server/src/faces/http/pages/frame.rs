//! The frame of pages: title, navigation, the person; and the headers of every page.

use askama::Template;
use exacat_model::{Cursor, Error, ErrorKind, Lfn, Result};
use hyper::header::{CACHE_CONTROL, HeaderName, LOCATION};
use hyper::{Response, StatusCode};

use super::super::answers::{Body, answer, empty, in_room, set};
use super::super::query::cursor_text;
use super::assets::{ICON, SCRIPT, STYLE};
use super::table::Table;
use super::text::{url, visible, with};
use crate::admission::Room;

/// Content type of pages.
const HTML: &str = "text/html; charset=utf-8";
/// Content type of CSV.
const CSV: &str = "text/csv; charset=utf-8";
/// The only contents that a page may load or send, all from this server.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
    connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
/// Headers of every answer to a page. A browser tells other servers nothing about the page that it was on.
const HEADERS: [(HeaderName, &str); 5] = [
    (hyper::header::CONTENT_SECURITY_POLICY, POLICY),
    (hyper::header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (hyper::header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// A link.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub text: String,
    pub href: String,
}

impl Link {
    /// Makes a link.
    pub(crate) fn new(text: impl Into<String>, href: impl Into<String>) -> Self {
        Link { text: text.into(), href: href.into() }
    }
}

/// The frame of a page.
#[derive(Clone, Debug, Default)]
pub(super) struct Frame {
    pub title: String,
    /// Start of the paths of its part of the site.
    pub section: &'static str,
    /// Name of the person; none without a session.
    pub user: Option<String>,
    /// Secret for the forms of the person's session.
    pub csrf: String,
    /// True if the person, or everybody, may read here.
    pub can_read: bool,
    /// True for operators, who see more links. The catalogue judges their rights.
    pub is_operator: bool,
    /// Path and query of the page, to come back to after a sign-in.
    pub here: String,
    /// Directories above the entry that the page is about.
    pub crumbs: Vec<Link>,
}

impl Frame {
    /// Returns the same frame for another page.
    pub(crate) fn titled(&self, title: impl Into<String>, section: &'static str) -> Self {
        Frame { title: title.into(), section, ..self.clone() }
    }

    /// Adds the directories above an entry.
    pub(crate) fn about(mut self, lfn: &Lfn) -> Self {
        self.crumbs.push(Link::new("root", url("/browse", &Lfn::root())));
        let mut above: Vec<Lfn> = std::iter::successors(lfn.parent(), Lfn::parent).collect();
        above.reverse();
        for directory in above.iter().filter(|directory| !directory.is_root()) {
            let name = directory.split_last().map_or("", |(_, name)| name);
            self.crumbs.push(Link::new(visible(name), url("/browse", directory)));
        }
        self
    }

    pub(crate) fn heading(&self) -> &str {
        &self.title
    }

    pub(crate) fn style(&self) -> &'static str {
        &STYLE.path
    }

    pub(crate) fn script(&self) -> &'static str {
        &SCRIPT.path
    }

    pub(crate) fn icon(&self) -> &'static str {
        &ICON.path
    }

    pub(crate) fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    pub(crate) fn sign_in(&self) -> String {
        with("/sign-in".to_owned(), "next", &self.here)
    }

    pub(crate) fn links(&self) -> Vec<Link> {
        let everybody = [("Browse", "/browse/"), ("Search", "/search"), ("Compare", "/compare")];
        let known = [("Trash", "/trash"), ("Quotas", "/quotas"), ("Tokens", "/tokens")];
        let operators = [
            ("Overview", "/overview"),
            ("Requests", "/requests"),
            ("Waits", "/waits"),
            ("Servers", "/servers"),
            ("Contents", "/contents"),
            ("Storage", "/storage"),
            ("Snapshots", "/snapshots"),
            ("Users", "/users"),
        ];
        let known = known.into_iter().filter(|_| self.user.is_some());
        let operators = operators.into_iter().filter(|_| self.is_operator);
        everybody
            .into_iter()
            .chain(known)
            .chain(operators)
            .map(|(text, href)| Link::new(text, href))
            .collect()
    }
}

/// A part of a page: a table under a heading.
#[derive(Clone, Debug, Default)]
pub(super) struct Section {
    pub heading: String,
    /// Name in the URL of its CSV; empty without one.
    pub name: &'static str,
    /// URL of its CSV.
    pub csv: String,
    /// A picture in SVG, which the table says too.
    pub picture: String,
    pub table: Table,
    pub pager: Pager,
}

impl Section {
    /// Makes a part without a picture.
    pub(crate) fn new(heading: impl Into<String>, table: Table) -> Self {
        Section { heading: heading.into(), table, ..Section::default() }
    }

    /// Names the table, so that it can be asked for as CSV.
    pub(crate) fn named(self, name: &'static str) -> Self {
        Section { name, ..self }
    }
}

/// Links to the first and the next page of a list.
#[derive(Clone, Debug, Default, Template)]
#[template(path = "pager.html")]
pub(super) struct Pager {
    first: String,
    next: String,
}

impl Pager {
    /// Makes the links of a page of a list. `here` is the URL of its first page, `parameter` the name of
    /// the cursor in it, `at` the cursor of this page.
    pub(crate) fn new(here: &str, list: (&str, &str), at: &Cursor, next: Option<&Cursor>) -> Self {
        let (list, parameter) = list;
        let next = next.map(|next| with(here.to_owned(), parameter, &cursor_text(list, next)));
        Pager {
            first: if at.0.is_empty() { String::new() } else { here.to_owned() },
            next: next.unwrap_or_default(),
        }
    }
}

/// Page of an error.
#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage {
    frame: Frame,
    detail: String,
    hint: &'static str,
}

/// Makes a page; `room` is the room of a long one.
pub(super) fn page(status: StatusCode, page: &impl Template, room: Option<Room>) -> Result<Response<Body>> {
    let html = page
        .render()
        .map_err(|error| Error::new(ErrorKind::Internal, format!("a page cannot be made: {error}")))?
        .into_bytes();
    Ok(match room {
        Some(room) => answer(status, HTML, in_room(html, room)),
        None => answer(status, HTML, html),
    })
}

/// Makes an answer of CSV, for a file of this name.
pub(super) fn csv(table: &Table, name: &str) -> Response<Body> {
    let mut response = answer(StatusCode::OK, CSV, table.csv());
    set(&mut response, hyper::header::CONTENT_DISPOSITION, &format!("attachment; filename=\"{name}.csv\""));
    response
}

/// Sends the browser to another page of this server, with GET.
pub(super) fn redirect(to: &str) -> Response<Body> {
    let mut response = empty(StatusCode::SEE_OTHER);
    set(&mut response, LOCATION, to);
    response
}

/// Makes the page of an error.
pub(super) fn error_page(frame: &Frame, status: StatusCode, error: &Error) -> Response<Body> {
    let (title, hint) = words(error.kind);
    let frame = frame.titled(title, "");
    let detail = visible(&error.message);
    page(status, &ErrorPage { frame, detail, hint }, None).unwrap_or_else(|_| empty(status))
}

/// Sets the headers that every page has.
pub(super) fn guard(response: &mut Response<Body>) {
    for (name, value) in &HEADERS {
        set(response, name.clone(), value);
    }
    if !response.headers().contains_key(CACHE_CONTROL) {
        set(response, CACHE_CONTROL, "no-store");
    }
}

/// Returns the title of an error, and the next step.
fn words(kind: ErrorKind) -> (&'static str, &'static str) {
    match kind {
        ErrorKind::NotFound => ("Not found", "Check the name, or browse from the directory above."),
        ErrorKind::Exists => ("Exists already", "Take another name."),
        ErrorKind::NotDirectory => ("Not a directory", "Name a directory."),
        ErrorKind::NotFile => ("Not a file", "Name a file."),
        ErrorKind::NotEmpty => ("Not empty", "Remove its content first."),
        ErrorKind::Denied => ("Permission denied", "The owner or an operator can change the rights."),
        ErrorKind::Unauthenticated => ("Not signed in", "Sign in, or get a new token."),
        ErrorKind::Invalid => ("Invalid request", "Correct the request."),
        ErrorKind::Conflict => ("Conflict", "Load the page again, and look at the present state."),
        ErrorKind::Quota => ("Quota exceeded", "Remove files, or ask an operator for a larger quota."),
        ErrorKind::Limit => ("Limit exceeded", "Ask for less at once."),
        ErrorKind::Busy | ErrorKind::Unavailable => ("Unavailable", "Load the page again in a while."),
        ErrorKind::Unknown => ("Unknown outcome", "Look at the present state before you try again."),
        ErrorKind::Corrupt | ErrorKind::Internal => {
            ("Internal error", "Tell the operator; the server's log has the detail.")
        }
    }
}
