//! Pages of what a page cannot do: the commands to run on the server's machine, and why.

use askama::Template;
use exacat_model::{Answer, Error, Operation, Result, SnapshotName};
use hyper::{Response, StatusCode};

use super::super::answers::Body;
use super::figures::{Status, nodes};
use super::frame::{Frame, Link, page};
use super::text::visible;
use super::visit::{Visit, unfitting};

/// Paths of the pages.
pub(super) const REPAIR: &str = "/repair";
pub(super) const CLONE: &str = "/clone";

/// A step: words, and a command.
struct Step {
    text: &'static str,
    command: String,
}

/// The page.
#[derive(Template)]
#[template(path = "steps.html")]
struct StepsPage {
    frame: Frame,
    intro: &'static str,
    notes: Vec<String>,
    steps: Vec<Step>,
    links: Vec<Link>,
}

fn steps<const N: usize>(all: [(&'static str, &str); N]) -> Vec<Step> {
    all.map(|(text, command)| Step { text, command: command.to_owned() }).into()
}

/// Answers with the way to repair this catalogue. A repair replaces files that a running server has open.
pub(super) async fn repair(mut visit: Visit<'_>) -> Result<Response<Body>> {
    let Answer::Status(parts) = visit.call.ask(Operation::Status).await? else { return Err(unfitting()) };
    let status = Status(&parts);
    let store = visit.call.service.catalogue.store();
    let (intro, all) = if nodes(status).is_some() {
        (
            "The entries are in a cluster, whose nodes repair their copies. The server goes on meanwhile. KEYSPACE \
             stands for the keyspace of the catalogue.",
            steps([
                ("On every node, one after the other:", "nodetool repair -pr KEYSPACE"),
                ("Then compare every index and counter with the entries:", "exacat fsck"),
            ]),
        )
    } else if store.as_snapshots().is_some() {
        (
            "A repair replaces files of the catalogue, so the server must be stopped, and no page can do it. DIR \
             stands for the data directory of this server, BACKUPS for a directory of backups.",
            steps([
                ("Check the running catalogue first:", "exacat fsck"),
                ("Stop the server, and copy its data directory:", "cp -a DIR DIR.damaged"),
                ("List the damage:", "exacat --data DIR fsck --offline"),
                (
                    "Repair it. Damaged parts come from snapshots and from the log; a part that cannot be \
                     recovered changes nothing, and is listed:",
                    "exacat --data DIR fsck --offline --repair",
                ),
                (
                    "If a part is listed as lost, take it from backups:",
                    "exacat --data DIR fsck --offline --repair --from BACKUPS",
                ),
                ("Check again, and start the server:", "exacat --data DIR fsck --offline"),
            ]),
        )
    } else {
        (
            "This server serves a state that does not change. Repair the catalogue that it came from.",
            Vec::new(),
        )
    };
    let shown = StepsPage {
        frame: visit.frame.titled("Repair the catalogue", "/overview"),
        intro,
        notes: status.notes().map(|note| visible(&note)).collect(),
        steps: all,
        links: vec![
            Link::new("Check the catalogue now", "/action/check"),
            Link::new("Drain the server", "/action/drain"),
            Link::new("Overview", "/overview"),
        ],
    };
    page(StatusCode::OK, &shown, None)
}

/// Answers with the way to clone a snapshot. A clone is a data directory, made with the rights of the person
/// on the machine.
pub(super) async fn clone(mut visit: Visit<'_>) -> Result<Response<Body>> {
    let name: SnapshotName = visit.query.required("of")?;
    let Answer::Snapshots(all) = visit.call.ask(Operation::SnapshotList).await? else {
        return Err(unfitting());
    };
    if !all.iter().any(|snapshot| snapshot.name == name) {
        return Err(Error::not_found(format!("there is no snapshot {name}")));
    }
    let shown = StepsPage {
        frame: visit.frame.titled(format!("Clone the snapshot {name}"), "/snapshots"),
        intro: "A clone is a catalogue of its own on the files of the snapshot, made in a moment. It is a data \
                directory on the server's machine, so no page can make it: run these commands there, as the user of \
                the server, while it runs. DIR stands for its data directory, NEW for an empty or missing directory \
                on the same file system.",
        notes: Vec::new(),
        steps: vec![
            Step { text: "Make the clone:", command: format!("exacat --data DIR clone {name} NEW") },
            Step {
                text: "Serve it at addresses of its own:",
                command: "exacat --data NEW serve --listen 127.0.0.1:0 --http 127.0.0.1:0".to_owned(),
            },
        ],
        links: vec![Link::new("Snapshots", "/snapshots")],
    };
    page(StatusCode::OK, &shown, None)
}
