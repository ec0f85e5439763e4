//! Ways to a file: redirections, waits, late answers, and servers that fail behind a manager.

use exacat_replay::run::outcome::Outcome;
use exacat_wire::xrootd::StreamId;
use exacat_wire::xrootd::limits::PATH_BYTES_MAX;
use exacat_wire::xrootd::numbers::{error, request, role, status};
use exacat_wire::xrootd::response::{
    write, write_error, write_redirect_host, write_redirect_url, write_wait,
};

use crate::server::{Action, Asked, Server, ServerOf, answer, opened};
use crate::world::{item, result_of, results_of};

const NAME: &str = "/a";
const SIZE: u64 = 5000;

fn is_open(asked: &Asked<'_>) -> bool {
    asked.kind() == request::OPEN
}

/// Returns the paths of the opens that a server saw.
fn opens(server: &Server) -> Vec<String> {
    let seen = server.seen().into_iter().filter(|seen| seen.kind == request::OPEN);
    seen.map(|seen| String::from_utf8(seen.carried).unwrap()).collect()
}

/// Property: both forms of a redirection are followed; fields go along, and a URL replaces the path.
#[tokio::test]
async fn redirections_are_followed_with_their_fields() {
    let server = Server::start(ServerOf::default()).await;
    let port = server.address.port();
    let second = Server::scripted(move |asked| {
        is_open(asked).then(|| {
            answer(|out| {
                write_redirect_url(out, asked.stream(), &format!("root://127.0.0.1:{port}//a?z=3&x=4"))
            })
        })?
    })
    .await;
    let port = second.address.port();
    let first = Server::scripted(move |asked| {
        is_open(asked)
            .then(|| answer(|out| write_redirect_host(out, asked.stream(), "127.0.0.1", port, "y=2")))?
    })
    .await;
    let url = format!("{}//?x=1", first.url());
    let results = results_of(&url, vec![item(1, NAME, SIZE), item(2, NAME, SIZE)], |settings| {
        settings.in_flight = 1;
    })
    .await;
    assert!(results.iter().all(|result| (result.outcome, result.redirects) == (Outcome::Ok, 2)));
    assert_eq!(opens(&first), ["/a?x=1"; 2]);
    assert_eq!(opens(&second), ["/a?x=1&y=2"; 2]);
    assert_eq!(opens(&server), ["/a?y=2&z=3&x=4"; 2]);
    assert_eq!([&first, &second, &server].map(Server::connections), [1; 3]);
}

/// Property: a circle of redirections ends at the limit, at its edge; a redirection to no place is of no
/// protocol.
#[tokio::test]
async fn redirections_are_bounded() {
    let server = Server::start(ServerOf::default()).await;
    let end = server.address.port();
    for (count, outcome) in [(3, Outcome::Ok), (4, Outcome::Server)] {
        let chain = chain_of(count, end).await;
        let result = result_of(&chain[0].url(), item(1, NAME, SIZE), |settings| {
            settings.cache.redirects_max = 3;
        })
        .await;
        assert_eq!((result.outcome, result.redirects), (outcome, 3), "{count}");
    }
    for place in ["https://h/a", "", "root://", &"x".repeat(PATH_BYTES_MAX + 1)] {
        let place = place.to_owned();
        let server = Server::scripted(move |asked| {
            is_open(asked).then(|| answer(|out| write_redirect_url(out, asked.stream(), &place)))?
        })
        .await;
        let result = result_of(&server.url(), item(1, NAME, SIZE), |_| {}).await;
        assert_eq!(result.outcome, Outcome::Protocol);
    }
}

/// Starts servers that redirect one to the next, and the last one to a port.
async fn chain_of(count: usize, end: u16) -> Vec<Server> {
    let mut chain: Vec<Server> = Vec::new();
    for _ in 0..count {
        let port = chain.last().map_or(end, |server| server.address.port());
        let server = Server::scripted(move |asked| {
            is_open(asked)
                .then(|| answer(|out| write_redirect_host(out, asked.stream(), "localhost", port, "")))?
        });
        chain.push(server.await);
    }
    chain.reverse();
    chain
}

/// Property: a manager is asked again if the server fails to which it redirected, with the host that failed;
/// a server that is no manager is not.
#[tokio::test]
async fn manager_is_asked_again_for_another_server() {
    let good = Server::start(ServerOf::default()).await;
    let bad = Server::scripted(|asked| {
        is_open(asked).then(|| answer(|out| write_error(out, asked.stream(), error::NOT_FOUND, "gone")))?
    })
    .await;
    for (roles, outcome, opened) in [(role::MANAGER, Outcome::Ok, 2), (role::SERVER, Outcome::NotFound, 1)] {
        let (good, bad) = (good.address.port(), bad.address.port());
        let manager = Server::start(ServerOf {
            roles,
            script: std::sync::Arc::new(move |asked| {
                let port = if asked.earlier == 0 { bad } else { good };
                is_open(asked).then(|| {
                    answer(|out| write_redirect_host(out, asked.stream(), "127.0.0.1", port, "n=1"))
                })?
            }),
            ..ServerOf::default()
        })
        .await;
        let result = result_of(&manager.url(), item(1, NAME, SIZE), |_| {}).await;
        assert_eq!((result.outcome, opens(&manager).len()), (outcome, opened));
        if opened == 2 {
            assert_eq!(opens(&manager)[1], "/a?tried=127.0.0.1&triedrc=enoent");
        }
    }
}

/// Property: a server that asks to wait is asked again, at the open, at a read and at the close.
#[tokio::test]
async fn waits_are_kept() {
    let server = Server::scripted(|asked| {
        let is_first = asked.earlier == 0;
        (matches!(asked.kind(), request::LOGIN | request::OPEN | request::READ | request::CLOSE) && is_first)
            .then(|| answer(|out| write_wait(out, asked.stream(), 0, "later")))?
    })
    .await;
    let result = result_of(&server.url(), item(1, NAME, SIZE), |_| {}).await;
    assert_eq!((result.outcome, result.bytes), (Outcome::Ok, SIZE));
    assert!(result.duration_us >= 400_000, "four waits of the shortest time: {}", result.duration_us);
    for kind in [request::OPEN, request::READ, request::CLOSE] {
        assert_eq!(server.count(kind), 2);
    }
    // A wait beyond the time of the access ends with that time.
    let server = Server::scripted(|asked| {
        is_open(asked).then(|| answer(|out| write_wait(out, asked.stream(), u32::MAX, "for ever")))?
    })
    .await;
    let result = result_of(&server.url(), item(1, NAME, SIZE), |settings| {
        settings.access_time.base = std::time::Duration::from_millis(150);
    })
    .await;
    assert_eq!(result.outcome, Outcome::Timeout);
}

/// Writes an answer that comes unasked for.
fn write_late(out: &mut Vec<u8>, stream: StreamId, kind: u16, body: &[u8]) {
    let mut late = Vec::new();
    late.extend_from_slice(&5008u32.to_be_bytes());
    late.extend_from_slice(&[0; 4]);
    write(&mut late, stream, kind, body);
    write(out, StreamId([0, 0]), status::ATTN, &late);
}

/// Property: an answer that was promised for later is taken, also if other messages come before it.
#[tokio::test]
async fn late_answers_are_taken() {
    let promise = |out: &mut Vec<u8>, asked: &Asked<'_>| {
        write(out, asked.stream(), status::WAITRESP, &5u32.to_be_bytes());
        // A message for the user.
        write(out, StreamId([0, 0]), status::ATTN, b"\0\0\x13\x8a\0\0\0\0hello");
    };
    let server = Server::scripted(move |asked| {
        let mut out = Vec::new();
        promise(&mut out, asked);
        match asked.kind() {
            request::OPEN => write_late(&mut out, asked.stream(), status::OK, &opened(0, 2)),
            request::READ => {
                write_late(&mut out, asked.stream(), status::OKSOFAR, b"a");
                write_late(&mut out, asked.stream(), status::OK, b"b");
            }
            request::CLOSE => write_late(&mut out, asked.stream(), status::OK, b""),
            _ => return None,
        }
        Some(Action::Answer(out))
    })
    .await;
    let mut one = item(1, NAME, 2);
    one.adler32 = Some(0x0126_00c4);
    let result = result_of(&server.url(), one, |settings| settings.cache.verify_content = false).await;
    assert_eq!((result.outcome, result.bytes, result.adler32), (Outcome::Ok, 2, Some(0x0126_00c4)));
    let server = Server::scripted(move |asked| {
        let mut out = Vec::new();
        promise(&mut out, asked);
        write_late(&mut out, asked.stream(), status::ERROR, b"\0\0\x0b\xc3gone\0");
        is_open(asked).then_some(Action::Answer(out))
    })
    .await;
    let result = result_of(&server.url(), item(1, NAME, SIZE), |_| {}).await;
    assert_eq!((result.outcome, result.number), (Outcome::NotFound, error::NOT_FOUND));
}

/// Property: the login names the program and the version of the reference client.
#[tokio::test]
async fn login_names_the_program() {
    let server = Server::start(ServerOf::default()).await;
    result_of(&server.url(), item(1, NAME, SIZE), |_| {}).await;
    let login = server.seen().into_iter().find(|seen| seen.kind == request::LOGIN).unwrap();
    assert_eq!(String::from_utf8(login.carried).unwrap(), "xrd.appname=exacat&xrd.rn=v5.5.3");
}
