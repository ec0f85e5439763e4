//! Permission matrix: every operation, by every kind of caller, on targets with every kind of mode.
//! The result is a golden file for people to read: it shows each change of a permission.
//! `EXACAT_BLESS=1` rewrites it.

use std::fmt::Write;

use crate::fixture::{Fixture, lfn};
use crate::operations::{Target, World, operation, outcome};
use exacat_catalogue::{Caller, Settings};
use exacat_model::{Answer, Operation};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rules/permission_matrix.golden.txt");

/// Modes of the target's directory and of its contents.
const TARGETS: [Target; 5] = [
    Target { directory_mode: 0o755, file_mode: 0o644 },
    Target { directory_mode: 0o755, file_mode: 0o600 },
    Target { directory_mode: 0o775, file_mode: 0o664 },
    Target { directory_mode: 0o700, file_mode: 0o644 },
    Target { directory_mode: 0o777, file_mode: 0o666 },
];

/// Operations independent of the target: run on the first only.
const WITHOUT_TARGET: [&str; 51] = [
    "whoami",
    "position",
    "trash-list",
    "trash-parts",
    "upload-list",
    "se-set",
    "se-drop",
    "se-list",
    "se-files",
    "se-deletions",
    "se-deleted",
    "user-set",
    "user-drop",
    "group-add",
    "group-drop",
    "account-list",
    "token-issue",
    "token-revoke",
    "token-list",
    "quota-set",
    "quota-get",
    "fsck",
    "status",
    "sessions",
    "session-kill",
    "slow-requests",
    "activity",
    "throttle-set",
    "throttle-list",
    "drain",
    "element-groups",
    "element-group-set",
    "element-group-drop",
    "element-list",
    "element-values",
    "element-rows",
    "element-aggregates",
    "element-write",
    "feed-create",
    "feed-list",
    "feed-control",
    "clock-confirm",
    "snapshot-create",
    "snapshot-list",
    "snapshot-drop",
    "snapshot-verify",
    "snapshot-diff",
    "backup",
    "trash-purge",
    "upload-abort",
    "changes",
];

/// The columns: the caller, and whether anonymous callers may read.
const ROLES: [(&str, bool); 10] = [
    ("anonymous", false),
    ("anon+reads", true),
    ("other", false),
    ("group", false),
    ("owner", false),
    ("operator", false),
    ("admin", false),
    ("read-only", false),
    ("elsewhere", false),
    ("admin-else", false),
];

async fn caller(fixture: &Fixture, role: &str) -> Caller {
    match role {
        "anonymous" | "anon+reads" => fixture.anonymous.clone(),
        "other" => fixture.bob.clone(),
        "group" => fixture.carol.clone(),
        "owner" => fixture.alice.clone(),
        "operator" => fixture.op.clone(),
        "admin" => fixture.admin.clone(),
        "read-only" => fixture.scoped("alice", "/", false),
        "elsewhere" => fixture.scoped("alice", "/alice", true),
        "admin-else" => {
            let issue = Operation::TokenIssue {
                user: None,
                scope: lfn("/alice"),
                write: true,
                lifetime_seconds: 3600,
                note: String::new(),
            };
            match fixture.get(&fixture.admin, issue).await {
                Answer::TokenIssued { secret, .. } => fixture.catalogue.authenticate(&secret).await.unwrap(),
                answer => panic!("{answer:?}"),
            }
        }
        other => panic!("no such role: {other}"),
    }
}

const HEADING: &str = "\
# Who may do what. Each line: an operation, the mode of the target's directory and of what is in it, and what comes of
# it for: someone without credentials; the same where anonymous reads are configured; another user; a member of the
# target's group; the owner; an operator; an admin; the owner's token for reading only; the owner's token for another
# subtree; an admin's token for another subtree. A number is how many items are shown.
";

#[tokio::test]
async fn the_permission_matrix_is_as_written() {
    let mut text = HEADING.to_owned();
    let _ = write!(text, "{:<19} {:<8}", "operation", "modes");
    for (role, _) in ROLES {
        let _ = write!(text, " {role:<15}");
    }
    text = text.trim_end().to_owned() + "\n";
    for name in Operation::NAMES {
        let targets = if WITHOUT_TARGET.contains(&name) { &TARGETS[..1] } else { &TARGETS[..] };
        for target in targets {
            let modes = match WITHOUT_TARGET.contains(&name) {
                true => "-".to_owned(),
                false => format!("{:o}/{:o}", target.directory_mode, target.file_mode),
            };
            let _ = write!(text, "{name:<19} {modes:<8}");
            for (role, anonymous_reads) in ROLES {
                let settings = Settings { anonymous_reads, changes_wait_ms: 50, ..Settings::default() };
                let world = World::new(Fixture::with(settings).await, *target).await;
                let asked = operation(&world, name);
                let f = &world.fixture;
                let caller = caller(f, role).await;
                let before = f.catalogue.store().revision().await.unwrap();
                let answer = f.ask(&caller, asked.clone()).await;
                let after = f.catalogue.store().revision().await.unwrap();
                let word = outcome(&answer);
                // Refused operations and reads change nothing.
                if !word.starts_with("ok") || !asked.writes() {
                    assert_eq!(before, after, "{name} by {role} changed something");
                } else {
                    assert!(after > before, "{name} by {role} says {word} and changed nothing");
                }
                f.audit().await;
                let _ = write!(text, " {word:<15}");
            }
            text = text.trim_end().to_owned() + "\n";
        }
    }
    if std::env::var_os("EXACAT_BLESS").is_some() {
        std::fs::write(GOLDEN, &text).unwrap();
    }
    let golden = std::fs::read_to_string(GOLDEN).unwrap_or_default();
    for (line, (is, was)) in text.lines().zip(golden.lines()).enumerate() {
        assert_eq!(is, was, "line {} of {GOLDEN}", line + 1);
    }
    assert_eq!(text, golden, "{GOLDEN} has other lines: EXACAT_BLESS=1 writes it anew");
}
