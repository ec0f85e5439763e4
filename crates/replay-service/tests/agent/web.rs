//! Driver of HTTP against a server that does as the test says.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use exacat_replay::content::Content;
use exacat_replay::run::outcome::Outcome;
use exacat_replay::run::shapes::ReplayItem;
use exacat_replay_service::agent::{AgentSettings, DriverKind};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;

use crate::world::{item, result_of, results_of};

const SIZE: u64 = 300_000;

type Answer = Response<Full<Bytes>>;
/// Answer of a script; none for the content of the file.
type Script = Arc<dyn Fn(&Request<Incoming>) -> Option<Answer> + Send + Sync>;

/// Request that came: number of the connection, target, range, token.
type Seen = (usize, String, Option<String>, Option<String>);

struct Web {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Web {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn header(request: &Request<Incoming>, name: &str) -> Option<String> {
    request.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
}

fn content(request: &Request<Incoming>, size: u64) -> Answer {
    let (from, to, status) = match header(request, "range") {
        Some(range) => {
            let (from, to) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
            (from.parse().unwrap(), to.parse::<u64>().unwrap().min(size - 1) + 1, 206)
        }
        None => (0, size, 200),
    };
    let mut bytes = vec![0; usize::try_from(to - from).unwrap()];
    Content::default().fill("/a b", from, &mut bytes);
    Response::builder()
        .status(status)
        .header("content-range", format!("bytes {from}-{}/{size}", to - 1))
        .body(Full::from(bytes))
        .unwrap()
}

impl Web {
    async fn start(size: u64, script: Script) -> Web {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Vec<_>>>::default();
        let known = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            for number in 0usize.. {
                let (stream, _) = listener.accept().await.unwrap();
                let (script, seen) = (Arc::clone(&script), Arc::clone(&known));
                let serve = service_fn(move |request: Request<Incoming>| {
                    let entry = (
                        number,
                        request.uri().to_string(),
                        header(&request, "range"),
                        header(&request, "authorization"),
                    );
                    seen.lock().push(entry);
                    let answer = script(&request).unwrap_or_else(|| content(&request, size));
                    async move { Ok::<_, std::convert::Infallible>(answer) }
                });
                connections.spawn(async move {
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), serve)
                        .await;
                });
            }
        });
        Web { address, seen, task }
    }

    async fn good() -> Web {
        Web::start(SIZE, Arc::new(|_| None)).await
    }

    fn url(&self) -> String {
        format!("http://localhost:{}", self.address.port())
    }
}

fn over_http(settings: &mut AgentSettings) {
    settings.driver = DriverKind::Http;
    settings.in_flight = 1;
}

fn status(status: u16, text: &'static str) -> Answer {
    Response::builder().status(status).body(Full::from(text)).unwrap()
}

/// Property: whole files and ranges are read on one connection, and the bytes are right.
#[tokio::test]
async fn whole_files_and_ranges_are_read() {
    let web = Web::good().await;
    let items = vec![
        item(1, "/a b", SIZE),
        ReplayItem { reads: "7+5,299990+100,100000+1".to_owned(), ..item(2, "/a b", SIZE) },
        item(3, "/a b", SIZE),
    ];
    let results = results_of(&web.url(), items, over_http).await;
    assert!(results.iter().all(|result| result.outcome == Outcome::Ok), "{results:?}");
    assert_eq!(results.iter().map(|result| result.bytes).collect::<Vec<_>>(), [SIZE, 16, SIZE]);
    assert_eq!(results[0].adler32, item(1, "/a b", SIZE).adler32);
    assert!(results.iter().all(|result| result.first_byte_us.is_some()));
    let seen = web.seen.lock();
    assert!(seen.iter().all(|(connection, target, ..)| *connection == 0 && target == "/a%20b"));
    let ranges: Vec<&str> = seen.iter().filter_map(|(_, _, range, _)| range.as_deref()).collect();
    assert_eq!(ranges, ["bytes=7-11", "bytes=299990-299999", "bytes=100000-100000"]);
}

/// Property: redirections are followed, bounded, and without the token for another host.
#[tokio::test]
async fn redirections_are_followed_without_the_token() {
    let web = Web::good().await;
    let to = format!("http://127.0.0.1:{}/a%20b?x=1", web.address.port());
    let first = Web::start(
        SIZE,
        Arc::new(move |request| {
            let location = if request.uri().path() == "/next" { to.clone() } else { "/next".to_owned() };
            Some(Response::builder().status(307).header("location", location).body(Full::default()).unwrap())
        }),
    )
    .await;
    let with_token = |settings: &mut AgentSettings| {
        over_http(settings);
        settings.cache.token = Some("t1".to_owned());
    };
    let ranged = ReplayItem { reads: "0+9,20+9".to_owned(), ..item(1, "/a b", SIZE) };
    let result = result_of(&first.url(), ranged, with_token).await;
    assert_eq!((result.outcome, result.redirects, result.bytes), (Outcome::Ok, 2, 18));
    assert!(first.seen.lock().iter().all(|(_, _, _, token)| token.as_deref() == Some("Bearer t1")));
    assert!(web.seen.lock().iter().all(|(_, target, _, token)| target == "/a%20b?x=1" && token.is_none()));
    assert_eq!((first.seen.lock().len(), web.seen.lock().len()), (2, 2), "the place is known then");
    let result = result_of(&first.url(), item(1, "/a b", SIZE), |settings| {
        over_http(settings);
        settings.cache.redirects_max = 1;
    })
    .await;
    assert_eq!((result.outcome, result.redirects), (Outcome::Server, 1));
}

/// Property: statuses have their classes and numbers, and the connection serves the next access.
#[tokio::test]
async fn statuses_have_their_classes() {
    for (code, text, outcome) in [
        (404, "", Outcome::NotFound),
        (403, "no", Outcome::Denied),
        (401, "token expired", Outcome::Expired),
        (503, "", Outcome::Server),
        (504, "", Outcome::Timeout),
        (204, "", Outcome::Server),
    ] {
        let web = Web::start(SIZE, Arc::new(move |_| Some(status(code, text)))).await;
        let items = vec![item(1, "/a b", SIZE), item(2, "/a b", SIZE)];
        let results = results_of(&web.url(), items, over_http).await;
        for result in results {
            assert_eq!((result.outcome, result.number), (outcome, u32::from(code)), "{code}");
        }
        assert_eq!(web.seen.lock()[1].0, usize::from(code == 204), "{code}");
    }
}

/// Property: content that is short, long, wrong, or of another range is found out.
#[tokio::test]
async fn wrong_content_is_found_out() {
    let of_size = |size| Web::start(size, Arc::new(|_| None));
    for (size, outcome) in [(SIZE - 1, Outcome::Short), (SIZE + 1, Outcome::Checksum)] {
        let result = result_of(&of_size(size).await.url(), item(1, "/a b", SIZE), over_http).await;
        assert_eq!(result.outcome, outcome, "{size}");
    }
    let web = Web::good().await;
    let wrong = ReplayItem { adler32: Some(1), ..item(1, "/a b", SIZE) };
    assert_eq!(result_of(&web.url(), wrong, over_http).await.outcome, Outcome::Checksum);
    let other = Web::start(SIZE, Arc::new(|_| Some(Response::new(Full::from(vec![0; 300_000]))))).await;
    assert_eq!(result_of(&other.url(), item(1, "/a b", SIZE), over_http).await.outcome, Outcome::Checksum);
    let ranged = || ReplayItem { reads: "5+10".to_owned(), ..item(1, "/a b", SIZE) };
    assert_eq!(result_of(&other.url(), ranged(), over_http).await.outcome, Outcome::Protocol);
    for (range, bytes, outcome) in [
        ("bytes 6-15/300000", 10, Outcome::Protocol),
        ("", 10, Outcome::Protocol),
        ("bytes 5-14/300000", 11, Outcome::Protocol),
        ("bytes 5-14/300000", 9, Outcome::Short),
    ] {
        let web = Web::start(
            SIZE,
            Arc::new(move |_| {
                let answer = Response::builder().status(206).header("content-range", range);
                Some(answer.body(Full::from(vec![0; bytes])).unwrap())
            }),
        )
        .await;
        let result = result_of(&web.url(), ranged(), |settings| {
            over_http(settings);
            settings.cache.verify_content = false;
        })
        .await;
        assert_eq!(result.outcome, outcome, "{range} {bytes}");
    }
}

/// Property: what is no server of HTTP has its class.
#[tokio::test]
async fn what_speaks_no_http_has_its_class() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    for (bytes, outcome) in [(&b"\0\0\0\0\0\0\0\x08"[..], Outcome::Protocol), (b"", Outcome::Connection)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 1000]).await;
                let _ = stream.write_all(bytes).await;
            }
        });
        let result = result_of(&url, item(1, "/a b", SIZE), over_http).await;
        assert_eq!(result.outcome, outcome);
        task.abort();
    }
}
