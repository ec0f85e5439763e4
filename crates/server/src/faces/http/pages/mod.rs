//! Web pages for people: browse, search, trash, operations. A page runs operations of the catalogue
//! through the same admission, deadlines and rights as the REST API, and has no rules of its own.

mod accounts;
mod actions;
mod assets;
mod browse;
mod compare;
mod contents;
mod cookies;
mod download;
mod entry;
mod figures;
mod filling;
mod form_page;
mod frame;
mod oidc;
mod overview;
mod plot;
mod relations;
mod requests;
mod search;
mod secrets;
mod servers;
mod sessions;
mod sign_in;
mod snapshots;
mod steps;
mod storage;
mod table;
mod tables;
mod text;
mod throttles;
mod trash;
mod usage;
mod visit;
mod waits;

use std::sync::Arc;

use exacat_model::{Error, ErrorKind, Lfn, Result};
use exacat_wire::percent;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};

use super::Conversation;
use super::answers::{Body, not_allowed};
use crate::faces::errors::http_status;
use frame::{Frame, error_page, guard, redirect};
pub(super) use sessions::Sessions;
use visit::{Visit, here};

/// Methods of a page that changes nothing.
const READS: &str = "GET, HEAD";
/// Methods of a page with a form.
const FORMS: &str = "GET, HEAD, POST";

/// A page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Asset,
    SignIn,
    Issuer,
    Back,
    SignOut,
    Home,
    Browse,
    Entry,
    Usage,
    Download,
    Search,
    Trash,
    Restore,
    Compare,
    Overview,
    Events,
    Requests,
    Slow,
    Waits,
    Reports,
    Servers,
    Contents,
    Throttles,
    Storage,
    Snapshots,
    Clone,
    Repair,
    Quotas,
    Users,
    Tokens,
    Account,
    Action,
}

/// Pages with one path, and their methods.
const PATHS: [(&str, &str, Page); 26] = [
    ("/", READS, Page::Home),
    (sign_in::PATH, FORMS, Page::SignIn),
    (sign_in::ISSUER_PATH, "GET", Page::Issuer),
    (oidc::BACK, "GET", Page::Back),
    ("/sign-out", "POST", Page::SignOut),
    ("/search", READS, Page::Search),
    ("/trash", READS, Page::Trash),
    ("/trash/restore", "POST", Page::Restore),
    ("/compare", READS, Page::Compare),
    ("/overview", READS, Page::Overview),
    ("/overview/events", "GET", Page::Events),
    (requests::ACTIVE, READS, Page::Requests),
    (requests::SLOW, READS, Page::Slow),
    (waits::WAITS, READS, Page::Waits),
    (waits::REPORTS, READS, Page::Reports),
    (servers::PATH, READS, Page::Servers),
    (contents::PATH, READS, Page::Contents),
    (throttles::PATH, READS, Page::Throttles),
    ("/storage", READS, Page::Storage),
    ("/snapshots", READS, Page::Snapshots),
    (steps::CLONE, READS, Page::Clone),
    (steps::REPAIR, READS, Page::Repair),
    ("/quotas", READS, Page::Quotas),
    ("/users", READS, Page::Users),
    ("/tokens", READS, Page::Tokens),
    ("/account", READS, Page::Account),
];

/// Pages about an entry, whose path follows.
const ENTRIES: [(&str, Page); 4] = [
    ("/browse", Page::Browse),
    ("/entry", Page::Entry),
    ("/usage", Page::Usage),
    ("/download", Page::Download),
];

/// Returns the page of a path, its methods, and the rest of the path: that of the entry that it is about,
/// still encoded, or the name of an action.
fn find(path: &str) -> Option<(Page, &'static str, &str)> {
    if path.starts_with(assets::PREFIX) {
        return Some((Page::Asset, READS, ""));
    }
    if let Some(action) = path.strip_prefix(actions::PREFIX) {
        return Some((Page::Action, FORMS, action));
    }
    if let Some((_, methods, page)) = PATHS.iter().find(|(known, ..)| *known == path) {
        return Some((*page, methods, ""));
    }
    ENTRIES.iter().find_map(|(known, page)| {
        let lfn = path.strip_prefix(known)?;
        (lfn.is_empty() || lfn.starts_with('/')).then_some((*page, READS, lfn))
    })
}

/// True for pages by which operators look at a server and resume it, so that a drained server has them.
pub(super) fn is_of_operators(path: &str) -> bool {
    use Page::{
        Action, Asset, Back, Events, Issuer, Overview, Repair, Requests, Servers, SignIn, SignOut, Slow,
        Throttles, Waits,
    };
    matches!(
        find(path),
        Some((
            Asset
                | SignIn
                | Issuer
                | Back
                | SignOut
                | Overview
                | Events
                | Requests
                | Slow
                | Waits
                | Servers
                | Throttles
                | Repair
                | Action,
            ..
        ))
    )
}

/// Answers a request for a page; none for a path that has no page.
pub(super) async fn answer(
    conversation: &Arc<Conversation>,
    head: &Parts,
    body: &mut Option<Incoming>,
) -> Option<Response<Body>> {
    let (page, methods, lfn) = find(head.uri.path())?;
    let mut response = if !methods.split(", ").any(|method| method == head.method.as_str()) {
        not_allowed(methods)
    } else if page == Page::Asset {
        assets::find(head.uri.path()).unwrap_or_else(|| {
            error_page(&Frame::default(), StatusCode::NOT_FOUND, &Error::not_found("no such file"))
        })
    } else {
        let (lfn, body) = (lfn.to_owned(), body);
        answer_page(conversation, head, body, (page, &lfn)).await
    };
    guard(&mut response);
    Some(response)
}

async fn answer_page(
    conversation: &Arc<Conversation>,
    head: &Parts,
    body: &mut Option<Incoming>,
    (page, lfn): (Page, &str),
) -> Response<Body> {
    let mut frame = Frame { here: here(head), ..Frame::default() };
    let mut key = None;
    let answered = match page {
        Page::SignIn => sign_in::sign_in(conversation, head, body).await,
        Page::Issuer => oidc::start(conversation, head).await,
        Page::Back => oidc::finish(conversation, head).await,
        _ => match Visit::open(conversation, head).await {
            Ok(visit) => {
                (frame, key) = (visit.frame.clone(), visit.key);
                run(visit, body, (page, lfn)).await
            }
            Err(error) => Err(error),
        },
    };
    let error = match answered {
        Ok(response) => return response,
        Err(error) => error,
    };
    if error.kind == ErrorKind::Unauthenticated {
        if let Some(key) = key {
            conversation.face.sessions.end(&key);
        }
        if head.method != Method::POST {
            return redirect(&text::with(sign_in::PATH.to_owned(), "next", &frame.here));
        }
    }
    let status = StatusCode::from_u16(http_status(error.kind)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    error_page(&frame, status, &error)
}

async fn run(
    visit: Visit<'_>,
    body: &mut Option<Incoming>,
    (page, rest): (Page, &str),
) -> Result<Response<Body>> {
    let lfn = || if rest.is_empty() { Ok(Lfn::root()) } else { percent::lfn(rest) };
    match page {
        Page::Home => browse::browse(visit, &Lfn::root()).await,
        Page::Browse => browse::browse(visit, &lfn()?).await,
        Page::Entry => entry::entry(visit, &lfn()?).await,
        Page::Usage => usage::usage(visit, &lfn()?).await,
        Page::Download => download::download(visit, &lfn()?).await,
        Page::Search => search::search(visit).await,
        Page::Trash => trash::trash(visit).await,
        Page::Restore => trash::restore(visit, body).await,
        Page::Compare => compare::compare(visit).await,
        Page::Overview => overview::overview(visit).await,
        Page::Events => overview::events(visit).await,
        Page::Requests => requests::active(visit).await,
        Page::Slow => requests::slow(visit).await,
        Page::Waits => waits::waits(visit).await,
        Page::Reports => waits::reports(visit).await,
        Page::Servers => servers::servers(visit).await,
        Page::Contents => contents::contents(visit).await,
        Page::Throttles => throttles::throttles(visit).await,
        Page::Storage => storage::storage(visit).await,
        Page::Snapshots => snapshots::snapshots(visit).await,
        Page::Clone => steps::clone(visit).await,
        Page::Repair => steps::repair(visit).await,
        Page::Quotas => accounts::quotas(visit).await,
        Page::Users => accounts::users(visit).await,
        Page::Tokens => accounts::tokens(visit).await,
        Page::Account => accounts::account(visit).await,
        Page::Action => actions::action(visit, body, rest).await,
        Page::SignOut => sign_in::sign_out(visit, body).await,
        Page::SignIn | Page::Issuer | Page::Back | Page::Asset => Err(visit::unfitting()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: a path has a page only if it is one, or names an entry below one.
    #[test]
    fn paths_of_pages_are_exact() {
        assert_eq!(find("/"), Some((Page::Home, READS, "")));
        assert_eq!(find("/browse"), Some((Page::Browse, READS, "")));
        assert_eq!(find("/browse/a/%2e"), Some((Page::Browse, READS, "/a/%2e")));
        assert!(is_of_operators("/overview") && is_of_operators("/action/drain-resume"));
        assert!(
            !is_of_operators("/")
                && !is_of_operators("/browse/overview")
                && !is_of_operators("/api/v1/status")
        );
        for none in ["/browsex", "/trash/", "/Search", "/api", "", "/metrics", "//"] {
            assert_eq!(find(none), None, "{none}");
        }
    }
}
