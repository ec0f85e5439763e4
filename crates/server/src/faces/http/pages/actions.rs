//! Actions of operators: a page asks for confirmation, a form carries it out, and the log has a line. The
//! catalogue judges who may.

use askama::Template;
use exacat_model::operation::SeSettings;
use exacat_model::{Answer, Error, Operation, Result, SeStatus, TokenId};
use exacat_wire::json;
use exacat_wire::json::requests::{Parse, throttled};
use hyper::body::Incoming;
use hyper::{Method, Response, StatusCode};

use super::super::answers::Body;
use super::frame::{Frame, Link, Section, page};
use super::table::{Cell, NUMBER, Table};
use super::tables::TablesPage;
use super::text::visible;
use super::visit::{Fields, Visit, unfitting};

/// Start of the paths.
pub(super) const PREFIX: &str = "/action/";

/// An action.
struct Action {
    /// Name in its path.
    name: &'static str,
    title: &'static str,
    /// Question before it; `{}` stands for the subject.
    question: &'static str,
    verb: &'static str,
    /// Label of the field for its subject; empty if a link names the subject, or it has none.
    input: &'static str,
    /// Choices beside the subject.
    choices: &'static [&'static str],
    /// Label of a number beside the subject; empty without one.
    number: &'static str,
    /// True if it loses something.
    loses: bool,
    /// The page that leads here.
    back: &'static str,
    make: fn(&Fields) -> Result<Operation>,
}

const ACTIONS: [Action; 12] = [
    Action {
        name: "snapshot-take",
        title: "Take a snapshot",
        question: "A snapshot keeps the present catalogue under a name.",
        verb: "Take it",
        input: "Name of the snapshot",
        choices: &[],
        number: "",
        loses: false,
        back: "/snapshots",
        make: |fields| Ok(Operation::SnapshotCreate { name: fields.required("of")? }),
    },
    Action {
        name: "snapshot-drop",
        title: "Drop a snapshot",
        question: "Drop the snapshot {}? It does not come back.",
        verb: "Drop it",
        input: "",
        choices: &[],
        number: "",
        loses: true,
        back: "/snapshots",
        make: |fields| Ok(Operation::SnapshotDrop { name: fields.required("of")? }),
    },
    Action {
        name: "snapshot-verify",
        title: "Check a snapshot",
        question: "Read the whole of the snapshot {}, and check it? It takes a while.",
        verb: "Check it",
        input: "",
        choices: &[],
        number: "",
        loses: false,
        back: "/snapshots",
        make: |fields| Ok(Operation::SnapshotVerify { name: fields.required("of")? }),
    },
    Action {
        name: "check",
        title: "Check the catalogue",
        question: "Compute every counter and index again, and compare? It takes a while; the service goes on.",
        verb: "Check it",
        input: "",
        choices: &[],
        number: "",
        loses: false,
        back: "/overview",
        make: |_| Ok(Operation::Fsck),
    },
    Action {
        name: "clock-confirm",
        title: "Confirm the clock",
        question: "Accept the machine's clock although it is ahead of the trusted time?",
        verb: "Accept it",
        input: "",
        choices: &[],
        number: "",
        loses: true,
        back: "/overview",
        make: |_| Ok(Operation::ClockConfirm),
    },
    Action {
        name: "request-kill",
        title: "Cancel a request",
        question: "Cancel the request {}? A read ends at once; a change that was begun goes on to its end.",
        verb: "Cancel the request",
        input: "",
        choices: &[],
        number: "",
        loses: true,
        back: "/requests",
        make: |fields| {
            let text = fields.get("of").unwrap_or_default();
            let bad = |_| Error::invalid(format!("not the number of a request: {text:.60?}"));
            Ok(Operation::SessionKill { id: text.parse().map_err(bad)? })
        },
    },
    Action {
        name: "throttle-set",
        title: "Throttle users",
        question: "The server lets requests wait beyond so many items a second, and refuses them beyond 10 s of \
                   waiting. A group and everybody share the items. Operators are not part of everybody. The \
                   throttle lasts until the server ends.",
        verb: "Throttle them",
        input: "user:NAME, group:NAME, or everybody",
        choices: &[],
        number: "Items a second",
        loses: true,
        back: "/throttles",
        make: |fields| {
            let owner = throttled(fields.get("of").unwrap_or_default())?;
            let text = fields.get("number").unwrap_or_default();
            let bad = |_| Error::invalid(format!("not a number of items a second: {text:.60?}"));
            Ok(Operation::ThrottleSet { owner, items_per_second: Some(text.parse().map_err(bad)?) })
        },
    },
    Action {
        name: "throttle-clear",
        title: "End a throttle",
        question: "End the throttle of {}?",
        verb: "End it",
        input: "",
        choices: &[],
        number: "",
        loses: false,
        back: "/throttles",
        make: |fields| {
            let owner = throttled(fields.get("of").unwrap_or_default())?;
            Ok(Operation::ThrottleSet { owner, items_per_second: None })
        },
    },
    Action {
        name: "drain",
        title: "Drain the server",
        question: "The server finishes the requests in progress, and refuses new ones of clients, until you resume \
                   it or it ends. Clients with other servers use those. Pages of operators and the \
                   administrator's socket stay open.",
        verb: "Drain it",
        input: "",
        choices: &[],
        number: "",
        loses: true,
        back: "/overview",
        make: |_| Ok(Operation::Drain { resume: false }),
    },
    Action {
        name: "drain-resume",
        title: "Resume the server",
        question: "Accept requests of clients again?",
        verb: "Resume it",
        input: "",
        choices: &[],
        number: "",
        loses: false,
        back: "/overview",
        make: |_| Ok(Operation::Drain { resume: true }),
    },
    Action {
        name: "token-revoke",
        title: "Revoke a token",
        question: "Revoke the token {}? It is invalid at once, and does not come back.",
        verb: "Revoke it",
        input: "",
        choices: &[],
        number: "",
        loses: true,
        back: "/tokens",
        make: |fields| {
            let text = fields.get("of").unwrap_or_default();
            let bad = || Error::invalid(format!("not the id of a token, 16 hex digits: {text:.60?}"));
            let number = u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16).ok_or_else(bad)?;
            Ok(Operation::TokenRevoke { id: TokenId(number) })
        },
    },
    Action {
        name: "se-status",
        title: "Change the use of a storage element",
        question: "Choose the permitted use of {}. With read-only it gets no new replicas, with offline none is read.",
        verb: "Change it",
        input: "",
        choices: &["online", "read-only", "offline"],
        number: "",
        loses: false,
        back: "/storage",
        make: |fields| {
            let choice = fields.get("as").unwrap_or_default();
            Ok(Operation::SeSet(SeSettings {
                name: fields.required("of")?,
                number: None,
                prefix: None,
                qos: None,
                status: Some(SeStatus::parse_text(choice)?),
                distances: Vec::new(),
                https: None,
                only_new: false,
            }))
        },
    },
];

/// Page that asks for confirmation.
#[derive(Template)]
#[template(path = "confirm.html")]
struct ConfirmPage {
    frame: Frame,
    question: String,
    action: String,
    hidden: Vec<(&'static str, String)>,
    input: &'static str,
    choices: &'static [&'static str],
    number: &'static str,
    class: &'static str,
    verb: &'static str,
    back: &'static str,
}

/// Asks for confirmation of an action, or carries it out.
pub(super) async fn action(
    mut visit: Visit<'_>,
    body: &mut Option<Incoming>,
    name: &str,
) -> Result<Response<Body>> {
    let action = ACTIONS.iter().find(|action| action.name == name);
    let action = action.ok_or_else(|| Error::not_found("no such action"))?;
    visit.call.caller().name().ok_or_else(|| {
        Error::new(exacat_model::ErrorKind::Unauthenticated, "actions are for people who signed in")
    })?;
    if visit.head.method != Method::POST {
        let of = visit.query.get("of").unwrap_or_default();
        if action.question.contains("{}") && of.is_empty() {
            return Err(Error::invalid("the action has no subject"));
        }
        let shown = ConfirmPage {
            frame: visit.frame.titled(action.title, action.back),
            question: action.question.replace("{}", &visible(of)),
            action: format!("{PREFIX}{name}"),
            hidden: if of.is_empty() { Vec::new() } else { vec![("of", of.to_owned())] },
            input: action.input,
            choices: action.choices,
            number: action.number,
            class: if action.loses { "bad" } else { "" },
            verb: action.verb,
            back: action.back,
        };
        return page(StatusCode::OK, &shown, None);
    }
    let fields = visit.form(body).await?;
    let of = fields.get("of").unwrap_or_default();
    let operation = (action.make)(&fields)?;
    let outcome = visit.call.ask(operation).await;
    let ended = outcome.as_ref().map_or_else(|error| error.kind.name(), |_| "done");
    let requester = visit.call.requester();
    tracing::info!(
        request = visit.call.number(),
        user = requester.user(),
        client = requester.client(),
        action = name,
        of,
        with = fields.get("as").or(fields.get("number")),
        outcome = ended,
        "action of a page"
    );
    let (done, parts) = told(outcome?)?;
    TablesPage {
        frame: visit.frame.titled(action.title, action.back),
        done,
        links: vec![Link::new("Back", action.back)],
        parts,
        ..TablesPage::default()
    }
    .answer(&visit, None)
}

/// Returns the outcome of an action in words, and its findings.
fn told(answer: Answer) -> Result<(String, Vec<Section>)> {
    Ok(match answer {
        Answer::Done { .. } => ("Done.".to_owned(), Vec::new()),
        Answer::Snapshot(snapshot) => {
            (format!("The snapshot {} has revision {}.", snapshot.name, snapshot.revision.0), Vec::new())
        }
        Answer::SnapshotChecked(check) => {
            let mut table = Table::new("Faults", &[("Fault", "")]);
            check.problems.iter().for_each(|problem| table.push([Cell::text(problem)]));
            let faults = check.problems.len();
            let told = format!("Read {} rows and {} changes; {faults} faults.", check.rows, check.changes);
            (told, if faults == 0 { Vec::new() } else { vec![Section::new("Faults", table)] })
        }
        Answer::Fsck(audit) => {
            let audit = json::audit(&audit);
            let mut checked = Table::new("Checked", &[("Kind", ""), ("Number", NUMBER)]);
            audit
                .checked
                .iter()
                .for_each(|(kind, number)| checked.push([Cell::text(kind), Cell::count(*number)]));
            let mut found = Table::new("Findings", &[("Kind", ""), ("Subject", ""), ("Detail", "")]);
            found.empty = "Nothing was found.";
            for one in &audit.findings {
                found.push([Cell::text(one.what), Cell::text(one.which), Cell::text(one.detail)]);
            }
            let told = format!("Checked revision {}; {} findings.", audit.revision, audit.findings_total);
            (told, vec![Section::new("Findings", found), Section::new("Checked", checked)])
        }
        _ => return Err(unfitting()),
    })
}
