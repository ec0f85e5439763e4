//! Reads of whole files and of parts, by each kind of request; bytes and checksums are those of the file.

use exacat_replay::content::Content;
use exacat_replay::run::outcome::Outcome;
use exacat_replay::run::shapes::ReplayItem;
use exacat_replay_service::agent::ReadMethod;
use exacat_wire::xrootd::numbers::{request, role};

use crate::server::{Server, ServerOf};
use crate::world::{item, result_of, results_of};

async fn server_of(size: u64) -> Server {
    Server::start(ServerOf { size, ..ServerOf::default() }).await
}

/// Property: a whole file is read once, whatever its size and the way of reading; its checksum is right.
#[tokio::test]
async fn whole_file_is_read_once_by_each_method() {
    for size in [0, 1, 4096, 1 << 20, (5 << 20) + 17] {
        for (method, roles) in [
            (ReadMethod::Plain, role::SERVER | role::PAGES),
            (ReadMethod::Pages, role::SERVER | role::PAGES),
            (ReadMethod::Pages, role::SERVER),
        ] {
            let server = Server::start(ServerOf { size, roles, ..ServerOf::default() }).await;
            let result =
                result_of(&server.url(), item(1, "/a", size), |settings| settings.cache.method = method)
                    .await;
            assert_eq!((result.outcome, result.bytes, result.number), (Outcome::Ok, size, 0), "{size}");
            assert_eq!(result.adler32, Some(Content::default().adler32("/a", size)));
            assert_eq!(result.first_byte_us.is_some(), size > 0);
            assert!(result.first_byte_us.unwrap_or_default() <= result.duration_us);
            let reads = usize::try_from(size.div_ceil(1 << 20)).unwrap();
            let is_paged = method == ReadMethod::Pages && roles & role::PAGES != 0;
            let expected = if is_paged { (0, reads) } else { (reads, 0) };
            assert_eq!((server.count(request::READ), server.count(request::PGREAD)), expected, "{size}");
            assert_eq!((server.count(request::OPEN), server.count(request::CLOSE)), (1, 1));
        }
    }
}

/// Property: ranges are read by one vector read, a single one by plain reads, and no other bytes.
#[tokio::test]
async fn ranges_are_read_and_no_other_bytes() {
    let size = 20 << 20;
    for (reads, bytes, vectors) in [
        ("5+1", 1, 0),
        ("5+3000000", 3_000_000, 0),
        ("5+1,0+3,5+1", 5, 1),
        ("20971519+9,4+1", 2, 1),
        // Longer than one segment may be, and than one vector read.
        ("1+3000000,4000000+9", 3_000_009, 1),
        ("0+9000000,9000000+1", 9_000_001, 2),
        ("1000/100000", 210_000, 1),
        ("30000000+5", 0, 0),
    ] {
        let server = server_of(size).await;
        let one = ReplayItem { reads: reads.to_owned(), ..item(1, "/a", size) };
        let result = result_of(&server.url(), one, |_| {}).await;
        assert_eq!((result.outcome, result.bytes, result.adler32), (Outcome::Ok, bytes, None), "{reads}");
        assert_eq!(server.count(request::READV), vectors, "{reads}");
        assert_eq!((server.count(request::OPEN), server.count(request::CLOSE)), (1, 1));
    }
}

/// Property: a server may send a part of a read only; the agent asks for the rest.
#[tokio::test]
async fn rest_of_a_short_answer_is_asked_for() {
    use exacat_wire::xrootd::numbers::request::READ;
    use exacat_wire::xrootd::response::write_ok;
    let content = Content::default();
    let server = Server::scripted(move |asked| {
        if asked.kind() != READ {
            return None;
        }
        let offset = u64::from_be_bytes(asked.header.body[4..12].try_into().unwrap());
        let mut bytes = vec![0; (5000 - offset).min(1500) as usize];
        content.fill("/a", offset, &mut bytes);
        crate::server::answer(|out| write_ok(out, asked.stream(), &bytes))
    })
    .await;
    let result = result_of(&server.url(), item(1, "/a", 5000), |_| {}).await;
    assert_eq!((result.outcome, result.bytes, server.count(READ)), (Outcome::Ok, 5000, 4));
}

/// Property: answers may come in any order, and between each other.
#[tokio::test]
async fn answers_in_another_order_give_the_same_checksum() {
    use exacat_wire::xrootd::numbers::{request::READ, status};
    use exacat_wire::xrootd::response::write;
    let content = Content::default();
    let waiting = parking_lot::Mutex::new(Vec::new());
    let server = Server::start(ServerOf {
        size: 4 << 20,
        script: std::sync::Arc::new(move |asked| {
            if asked.kind() != READ {
                return None;
            }
            let mut waiting = waiting.lock();
            waiting.push((asked.stream(), u64::from_be_bytes(asked.header.body[4..12].try_into().unwrap())));
            if waiting.len() < 4 {
                return Some(crate::server::Action::Silence);
            }
            waiting.reverse();
            let mut out = Vec::new();
            for kind in [status::OKSOFAR, status::OK] {
                for (stream, offset) in waiting.iter() {
                    let mut bytes = vec![0; 1 << 19];
                    let from = if kind == status::OK { offset + (1 << 19) } else { *offset };
                    content.fill("/a", from, &mut bytes);
                    write(&mut out, *stream, kind, &bytes);
                }
            }
            waiting.clear();
            Some(crate::server::Action::Answer(out))
        }),
        ..ServerOf::default()
    })
    .await;
    let result = result_of(&server.url(), item(1, "/a", 4 << 20), |_| {}).await;
    assert_eq!((result.outcome, result.bytes), (Outcome::Ok, 4 << 20));
}

/// Property: a connection is used again, or each access has a new one; a closed one does no harm.
#[tokio::test]
async fn connections_are_used_again_unless_each_access_has_its_own() {
    let items = || (0..20).map(|number| item(number, "/a", 5000)).collect();
    let server = server_of(5000).await;
    let one_by_one = |settings: &mut exacat_replay_service::agent::AgentSettings| settings.in_flight = 1;
    results_of(&server.url(), items(), one_by_one).await;
    assert_eq!((server.connections(), server.count(request::OPEN)), (1, 20));
    let server = server_of(5000).await;
    results_of(&server.url(), items(), |settings| {
        settings.in_flight = 1;
        settings.cache.is_connected_anew = true;
    })
    .await;
    assert_eq!((server.connections(), server.count(request::OPEN)), (20, 20));
    // The server ends the connection behind each file.
    let server = Server::scripted(|asked| {
        (asked.kind() == request::CLOSE).then(|| {
            let mut out = Vec::new();
            exacat_wire::xrootd::response::write_ok(&mut out, asked.stream(), b"");
            crate::server::Action::AnswerAndClose(out)
        })
    })
    .await;
    let results = results_of(&server.url(), items(), one_by_one).await;
    assert!(results.iter().all(|result| result.outcome == Outcome::Ok));
    assert_eq!((server.connections(), server.count(request::OPEN)), (20, 20));
}
