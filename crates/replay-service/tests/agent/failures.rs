//! Ends of accesses that failed: their classes and numbers.

use std::sync::Arc;
use std::time::Duration;

use exacat_replay::run::outcome::{AccessResult, Outcome};
use exacat_replay::run::shapes::ReplayItem;
use exacat_replay_service::agent::{AgentSettings, ReadMethod};
use exacat_wire::xrootd::numbers::{error, request};
use exacat_wire::xrootd::pages::write_pages;
use exacat_wire::xrootd::response::{write_error, write_ok};
use tokio::net::TcpListener;

use crate::server::{Action, Asked, Script, Server, ServerOf, answer};
use crate::world::{item, result_of, results_of};

const NAME: &str = "/a";
const SIZE: u64 = 5000;

async fn with(
    script: impl Fn(&Asked<'_>) -> Option<Action> + Send + Sync + 'static,
    set: impl FnOnce(&mut AgentSettings),
) -> (AccessResult, Server) {
    let server = Server::scripted(script).await;
    (result_of(&server.url(), item(1, NAME, SIZE), set).await, server)
}

fn end(result: &AccessResult) -> (Outcome, u32) {
    (result.outcome, result.number)
}

/// Property: the error of a server has its class and number, at the open, the read and the close. The
/// connection serves the next access.
#[tokio::test]
async fn errors_of_a_server_have_their_numbers() {
    for (number, text, outcome) in [
        (error::NOT_FOUND, "no such file", Outcome::NotFound),
        (error::NOT_AUTHORIZED, "not for you", Outcome::Denied),
        (error::NOT_AUTHORIZED, "Token expired at 12", Outcome::Expired),
        (error::IO_ERROR, "", Outcome::Server),
        (7, "odd", Outcome::Server),
    ] {
        let server = Server::scripted(move |asked| {
            (asked.kind() == request::OPEN && asked.earlier == 0)
                .then(|| answer(|out| write_error(out, asked.stream(), number, text)))?
        })
        .await;
        let items = vec![item(1, NAME, SIZE), item(2, NAME, SIZE)];
        let results = results_of(&server.url(), items, |settings| settings.in_flight = 1).await;
        assert_eq!(end(&results[0]), (outcome, number), "{text}");
        assert_eq!((end(&results[1]), server.connections()), ((Outcome::Ok, 0), 1));
        assert_eq!((results[0].bytes, results[0].first_byte_us), (0, None));
    }
    for kind in [request::READ, request::CLOSE] {
        let (result, _) = with(
            move |asked| {
                (asked.kind() == kind)
                    .then(|| answer(|out| write_error(out, asked.stream(), error::IO_ERROR, "bad disk")))?
            },
            |_| {},
        )
        .await;
        assert_eq!(end(&result), (Outcome::Server, error::IO_ERROR));
    }
}

/// Property: a file that is shorter than it should be is found out by every way of reading, and closed.
#[tokio::test]
async fn short_file_is_found_out() {
    for (method, reads) in
        [(ReadMethod::Plain, "-"), (ReadMethod::Pages, "-"), (ReadMethod::Plain, "0+9,4990+10")]
    {
        let server = Server::start(ServerOf { size: 4000, ..ServerOf::default() }).await;
        let one = ReplayItem { reads: reads.to_owned(), ..item(1, NAME, SIZE) };
        let result = result_of(&server.url(), one, |settings| settings.cache.method = method).await;
        assert_eq!(result.outcome, Outcome::Short, "{method:?} {reads}");
        assert_eq!(result.bytes, if reads == "-" { 4000 } else { 0 });
        assert_eq!(server.count(request::CLOSE), 1, "{method:?}");
    }
}

/// Property: a wrong checksum of the file, of a page, and other bytes are found out.
#[tokio::test]
async fn wrong_bytes_are_found_out() {
    let server = Server::start(ServerOf::default()).await;
    let wrong = ReplayItem { adler32: Some(5), ..item(1, NAME, SIZE) };
    let result = result_of(&server.url(), wrong, |_| {}).await;
    assert_eq!(
        (result.outcome, result.bytes, result.adler32),
        (Outcome::Checksum, SIZE, item(1, NAME, SIZE).adler32)
    );
    // Without content to compare and without a checksum any bytes are right.
    let zeros = |asked: &Asked<'_>| {
        (asked.kind() == request::READ).then(|| answer(|out| write_ok(out, asked.stream(), &[0; 5000])))?
    };
    let unknown = || ReplayItem { adler32: None, ..item(1, NAME, SIZE) };
    let server = Server::scripted(zeros).await;
    let result = result_of(&server.url(), unknown(), |settings| settings.cache.verify_content = false).await;
    assert_eq!(result.outcome, Outcome::Ok);
    let result = result_of(&server.url(), unknown(), |_| {}).await;
    assert_eq!(result.outcome, Outcome::Checksum);
    let server = Server::scripted(|asked| {
        (asked.kind() == request::PGREAD).then(|| {
            let mut out = Vec::new();
            write_pages(&mut out, asked.stream(), true, 0, &[1; 5000]);
            *out.last_mut().unwrap() = 2;
            Action::Answer(out)
        })
    })
    .await;
    let result = result_of(&server.url(), unknown(), |settings| {
        settings.cache.verify_content = false;
        settings.cache.method = ReadMethod::Pages;
    })
    .await;
    assert_eq!(end(&result), (Outcome::Checksum, error::CHECKSUM_ERROR));
}

/// Property: silence at any request ends with the time of the access, and not before.
#[tokio::test]
async fn silence_ends_with_the_time_of_the_access() {
    for kind in [request::OPEN, request::READ, request::CLOSE] {
        let (result, _) = with(
            move |asked| (asked.kind() == kind).then_some(Action::Silence),
            |settings| settings.access_time.base = Duration::from_millis(200),
        )
        .await;
        assert_eq!(end(&result), (Outcome::Timeout, 0), "{kind}");
        assert!(result.duration_us >= 200_000, "{}", result.duration_us);
        assert_eq!(result.bytes, if kind == request::CLOSE { SIZE } else { 0 });
    }
}

/// Property: bytes that are not of the protocol end the access with their class, whenever they come.
#[tokio::test]
async fn garbage_is_of_no_protocol() {
    for kind in [request::PROTOCOL, request::LOGIN, request::OPEN, request::READ, request::CLOSE] {
        for garbage in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &[0xff; 64]] {
            let (result, _) =
                with(move |asked| (asked.kind() == kind).then(|| Action::Answer(garbage.to_vec())), |_| {})
                    .await;
            assert_eq!(result.outcome, Outcome::Protocol, "{kind}");
        }
    }
    // Answers to other requests, answers that are too long, and bodies of other requests.
    let other = |asked: &Asked<'_>| {
        let stream = exacat_wire::xrootd::StreamId([0xee, 0xee]);
        (asked.kind() == request::READ).then(|| answer(|out| write_ok(out, stream, b"x")))?
    };
    let long = |asked: &Asked<'_>| {
        (asked.kind() == request::READ).then(|| answer(|out| write_ok(out, asked.stream(), &[0; 5001])))?
    };
    let no_open = |asked: &Asked<'_>| {
        (asked.kind() == request::OPEN).then(|| answer(|out| write_ok(out, asked.stream(), b"abc")))?
    };
    let endless = |asked: &Asked<'_>| {
        (asked.kind() == request::OPEN).then(|| answer(|out| write_ok(out, asked.stream(), &[0; 70_000])))?
    };
    let pages = |asked: &Asked<'_>| {
        (asked.kind() == request::READ)
            .then(|| answer(|out| write_pages(out, asked.stream(), true, 9, b"x")))?
    };
    let scripts: [Script; 5] =
        [Arc::new(other), Arc::new(long), Arc::new(no_open), Arc::new(endless), Arc::new(pages)];
    for (number, script) in scripts.into_iter().enumerate() {
        let server = Server::start(ServerOf { script, ..ServerOf::default() }).await;
        let result = result_of(&server.url(), item(1, NAME, SIZE), |settings| {
            settings.cache.verify_content = false;
        })
        .await;
        assert_eq!(result.outcome, Outcome::Protocol, "{number}");
    }
}

/// Property: a connection that breaks, or cannot be made, has its class.
#[tokio::test]
async fn broken_connections_have_their_class() {
    for kind in [request::PROTOCOL, request::LOGIN, request::OPEN, request::READ, request::CLOSE] {
        let (result, _) =
            with(move |asked| (asked.kind() == kind).then(|| Action::AnswerAndClose(Vec::new())), |_| {})
                .await;
        assert_eq!(result.outcome, Outcome::Connection, "{kind}");
    }
    // In the middle of an answer.
    let (result, _) = with(
        |asked| {
            (asked.kind() == request::READ).then(|| {
                let mut out = Vec::new();
                write_ok(&mut out, asked.stream(), &[0; 5000]);
                out.truncate(1000);
                Action::AnswerAndClose(out)
            })
        },
        |settings| settings.cache.verify_content = false,
    )
    .await;
    assert_eq!((result.outcome, result.bytes), (Outcome::Connection, 992));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("root://{}", listener.local_addr().unwrap());
    drop(listener);
    let result = result_of(&url, item(1, NAME, SIZE), |_| {}).await;
    assert_eq!(result.outcome, Outcome::Connection);
}

/// Property: names and reads that nobody can ask for end at once, and nothing is sent.
#[tokio::test]
async fn items_that_cannot_be_asked_for_are_the_agents_failure() {
    let server = Server::start(ServerOf::default()).await;
    let items = vec![
        item(1, "/a?b", 1),
        item(2, "", 1),
        item(3, "/a\nb", 1),
        ReplayItem { reads: "1+".to_owned(), ..item(4, NAME, 1) },
    ];
    let results = results_of(&server.url(), items, |_| {}).await;
    assert!(results.iter().all(|result| result.outcome == Outcome::Agent));
    assert_eq!(server.connections(), 0);
}
