//! Connections: authentication, trust, failover, goodbyes, silence, and a graceful end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::fake::{
    Fake, PATIENCE, done, error, eventually, hello_ack, identity, lfn, limits, outcome, settings,
};
use exacat_client::{CallOptions, Client, ClientSettings, Credentials, Endpoint, Target, Trust};
use exacat_model::{AccountName, Answer, ErrorKind, Guid, Operation, Result};
use exacat_wire::native::{self, Frame, FrameDecoder, Hello, HelloAck, Secret, encode_frame};
use parking_lot::Mutex;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

fn du() -> Operation {
    Operation::Du { lfns: vec![lfn("/d")] }
}

async fn connect(target: Target, credentials: Credentials) -> Result<Client> {
    tokio::time::timeout(PATIENCE, Client::connect(target, credentials, settings())).await.unwrap()
}

#[tokio::test]
async fn credentials_go_as_given_and_a_refusal_is_final() {
    let shown: Arc<Mutex<Vec<native::Authenticate>>> = Arc::default();
    let fake = Fake::serve_with(&shown, |log, _, mut conn| async move {
        let Some((0, Frame::Hello(hello))) = conn.receive().await else { panic!("no hello") };
        assert_eq!(hello, Hello { client: settings().name, ..Hello::new("") });
        conn.send(0, Frame::HelloAck(hello_ack(limits()))).await;
        let Some((0, Frame::Authenticate(authenticate))) = conn.receive().await else {
            panic!("no credentials")
        };
        log.lock().push(authenticate);
        conn.send(0, Frame::Error(error(ErrorKind::Unauthenticated))).await;
    });
    let train = AccountName::parse("alitrain").unwrap();
    for credentials in [
        Credentials::anonymous(),
        Credentials::local().acting_as(train.clone()),
        Credentials::token("s3cret"),
    ] {
        let refused = connect(fake.target(), credentials).await.unwrap_err();
        assert_eq!(refused, error(ErrorKind::Unauthenticated));
    }
    let authenticate = |credentials, act_as| native::Authenticate { credentials, act_as };
    assert_eq!(
        *shown.lock(),
        [
            authenticate(native::Credentials::Anonymous, None),
            authenticate(native::Credentials::Local, Some(train)),
            authenticate(native::Credentials::Token(Secret::new("s3cret")), None),
        ]
    );
    assert_eq!(fake.connections(), 3, "a refusal is not argued with");
}

#[tokio::test]
async fn a_server_that_cannot_be_spoken_to_says_why() {
    for (what, answer, kind) in [
        ("no common version", Frame::Error(error(ErrorKind::Invalid)), ErrorKind::Invalid),
        ("a full house", Frame::Error(error(ErrorKind::Busy)), ErrorKind::Busy),
        (
            "a version not offered",
            Frame::HelloAck(HelloAck { version: 2, ..hello_ack(limits()) }),
            ErrorKind::Invalid,
        ),
        ("a frame out of turn", Frame::Pong(1), ErrorKind::Internal),
    ] {
        let fake = Fake::serve(move |_, mut conn| {
            let answer = answer.clone();
            async move {
                conn.receive().await;
                conn.send(0, answer).await;
                conn.receive().await;
            }
        });
        assert_eq!(connect(fake.target(), Credentials::local()).await.unwrap_err().kind, kind, "{what}");
    }
    // Servers of another protocol, or of none at all.
    for bytes in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &[0; 100], &[0x27, 0, 0], &[]] {
        let fake = Fake::serve(move |_, mut conn| async move {
            conn.receive().await;
            conn.send_bytes(bytes).await;
        });
        let refused = connect(fake.target(), Credentials::local()).await.unwrap_err();
        assert!(matches!(refused.kind, ErrorKind::Internal | ErrorKind::Unavailable), "{refused}");
    }
    let nobody = Target::parse("unix:/nonexistent/socket").unwrap();
    assert_eq!(connect(nobody, Credentials::local()).await.unwrap_err().kind, ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_server_that_does_not_answer_the_handshake_is_not_waited_for() {
    let fake = Fake::serve(|_, mut conn| async move { while conn.receive().await.is_some() {} });
    let settings = ClientSettings { connect_timeout: Duration::from_millis(100), ..settings() };
    let began = Instant::now();
    let refused = Client::connect(fake.target(), Credentials::local(), settings).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unavailable);
    assert!(began.elapsed() < PATIENCE);
}

fn both(first: &Fake, second: &Fake) -> Target {
    let endpoint = |fake: &Fake| Endpoint::Unix(fake.path.clone());
    Target::new(vec![endpoint(first), endpoint(second)]).unwrap()
}

fn answering(revision: u64) -> Fake {
    Fake::serve(move |_, mut conn| async move {
        conn.greet().await;
        conn.answer_all(move |_| Ok(done(revision))).await;
    })
}

#[tokio::test]
async fn the_next_endpoint_is_tried_when_one_is_gone() {
    let one = Fake::serve(|number, mut conn| async move {
        if number == 0 {
            conn.greet().await;
            let (request, ..) = conn.operation().await.unwrap();
            conn.send(request, outcome(Ok(done(1)))).await;
            conn.operation().await;
        }
    });
    let two = answering(2);
    let client = connect(both(&one, &two), Credentials::local()).await.unwrap();
    assert_eq!(client.call(du()).await, Ok(done(1)));
    // The first server dies with the call and does not greet again; the other one answers.
    assert_eq!(client.call(du()).await, Ok(done(2)));
    assert_eq!(client.call(du()).await, Ok(done(2)));
    assert_eq!(two.connections(), 1);
}

/// Another catalogue behind an endpoint would take writes that belong elsewhere.
#[tokio::test]
async fn another_catalogue_is_refused() {
    let one = Fake::serve(|number, mut conn| async move {
        if number == 0 {
            conn.greet().await;
        }
    });
    let two = Fake::serve(|_, mut conn| async move {
        conn.greet_as(HelloAck { catalogue: Guid([8; 16]), ..hello_ack(limits()) }).await;
        assert_eq!(conn.asked().await, None, "nothing is asked of another catalogue");
    });
    let client = connect(both(&one, &two), Credentials::local()).await.unwrap();
    let options = CallOptions { deadline: Some(Duration::from_millis(200)), operation_id: None };
    // The client waits as long as the first may come back. When only the other remains, the error
    // says so.
    assert_eq!(client.call_with(du(), options).await.unwrap_err().kind, ErrorKind::Unavailable);
    std::fs::remove_file(&one.path).unwrap();
    assert!(two.connections() > 0);
}

/// A server that shuts down finishes the requests in flight; new calls use the other server.
#[tokio::test]
async fn after_a_goodbye_calls_go_elsewhere_and_what_is_in_flight_is_finished() {
    let said = Arc::new(AtomicUsize::new(0));
    let (says, finish) = (said.clone(), Arc::new(Notify::new()));
    let finished = finish.clone();
    let one = Fake::serve(move |number, mut conn| {
        let (says, finish) = (says.clone(), finished.clone());
        async move {
            if number > 0 {
                return;
            }
            conn.greet().await;
            let (request, ..) = conn.operation().await.unwrap();
            conn.send(0, Frame::Goodbye { reason: "restart".to_owned() }).await;
            says.fetch_add(1, Ordering::SeqCst);
            finish.notified().await;
            conn.send(request, outcome(Ok(done(1)))).await;
            // Only the client's own goodbye follows.
            assert!(matches!(conn.receive().await, Some((0, Frame::Goodbye { .. }))));
            assert_eq!(conn.receive().await, None);
        }
    });
    let two = answering(2);
    let client = connect(both(&one, &two), Credentials::local()).await.unwrap();
    let early = tokio::spawn({
        let client = client.clone();
        async move { client.call(du()).await }
    });
    eventually("the goodbye is said", || said.load(Ordering::SeqCst) == 1).await;
    // The goodbye may still be on its way. A call before its arrival uses the second server all the
    // same, because the first answers nothing.
    assert_eq!(client.call(du()).await, Ok(done(2)));
    finish.notify_one();
    assert_eq!(early.await.unwrap(), Ok(done(1)));
}

/// The client does not keep asking a server that accepts connections and says goodbye on each.
#[tokio::test]
async fn after_a_goodbye_the_next_endpoint_comes_first() {
    let one = Fake::serve(|_, mut conn| async move {
        conn.greet().await;
        conn.send(0, Frame::Goodbye { reason: "restart".to_owned() }).await;
        while conn.receive().await.is_some() {}
    });
    let two = answering(2);
    let client = connect(both(&one, &two), Credentials::local()).await.unwrap();
    eventually("the goodbye is known", || one.connections() == 1).await;
    for _ in 0..10 {
        assert_eq!(client.call(du()).await, Ok(done(2)));
    }
    assert_eq!((one.connections(), two.connections()), (1, 1));
}

fn impatient() -> ClientSettings {
    ClientSettings {
        ping_after: Duration::from_millis(40),
        dead_after: Duration::from_millis(400),
        ..settings()
    }
}

#[tokio::test]
async fn pings_of_the_server_are_answered() {
    let fake = Fake::serve(|_, mut conn| async move {
        conn.greet().await;
        conn.send(0, Frame::Ping(41)).await;
        assert_eq!(conn.receive().await, Some((0, Frame::Pong(41))));
        conn.answer_all(|_| Ok(done(1))).await;
    });
    let client = fake.client().await;
    assert_eq!(client.call(du()).await, Ok(done(1)));
}

/// The client notices a vanished peer within a bound, and the call continues elsewhere.
#[tokio::test]
async fn a_silent_server_is_taken_for_dead() {
    let fake = Fake::serve(|number, mut conn| async move {
        conn.greet().await;
        if number > 0 {
            return conn.answer_all(|_| Ok(done(2))).await;
        }
        // Accepts everything and sends nothing, not even a pong.
        while conn.receive().await.is_some() {}
    });
    let client = fake.client_with(impatient()).await;
    let answer = tokio::time::timeout(PATIENCE, client.call(du())).await.unwrap();
    assert_eq!(answer, Ok(done(2)));
}

/// A server answers pings but forgets requests; the client recovers their permits.
#[tokio::test]
async fn a_server_that_forgets_requests_is_left() {
    let fake = Fake::serve(|number, mut conn| async move {
        conn.greet().await;
        match number {
            0 => while conn.asked().await.is_some() {},
            _ => conn.answer_all(|_| Ok(done(2))).await,
        }
    });
    let settings = ClientSettings { requests_in_flight_max: 2, ..impatient() };
    let client = fake.client_with(settings).await;
    let options = || CallOptions { deadline: Some(Duration::from_millis(50)), operation_id: None };
    let look_up = Operation::Stat { lfns: vec![lfn("/d")], follow: false };
    for operation in [du(), look_up] {
        let gone = client.call_with(operation, options()).await.unwrap_err();
        assert_eq!(gone.kind, ErrorKind::Unavailable);
    }
    // Both permits are taken; the next call gets one when the client gives the connection up.
    let answer = tokio::time::timeout(PATIENCE, client.call(du())).await.unwrap();
    assert_eq!(answer, Ok(done(2)));
    assert_eq!(fake.connections(), 2);
}

/// A server does not read, so the writer blocks; the client gives the connection up all the same.
#[tokio::test]
async fn a_server_that_reads_nothing_is_taken_for_dead() {
    let fake = Fake::serve(|number, mut conn| async move {
        conn.greet().await;
        match number {
            0 => std::future::pending().await,
            _ => conn.answer_all(|_| Ok(done(2))).await,
        }
    });
    let client = fake.client_with(impatient()).await;
    let long = Operation::Du { lfns: vec![lfn(&format!("/{}", "x".repeat(200))); 4000] };
    let calls = (0..4).map(|_| client.call(long.clone()));
    let answers = tokio::time::timeout(PATIENCE, futures::future::join_all(calls)).await.unwrap();
    assert!(answers.iter().all(|answer| *answer == Ok(done(2))));
}

#[tokio::test]
async fn closing_waits_for_what_is_in_flight_and_says_goodbye() {
    let state = Arc::new((AtomicUsize::new(0), Notify::new(), Notify::new()));
    let fake = Fake::serve_with(&state, |state, _, mut conn| async move {
        let (goodbyes, arrived, closing) = &*state;
        conn.greet().await;
        let (request, ..) = conn.operation().await.unwrap();
        arrived.notify_one();
        closing.notified().await;
        conn.send(request, outcome(Ok(done(1)))).await;
        assert!(matches!(conn.receive().await, Some((0, Frame::Goodbye { .. }))));
        assert_eq!(conn.receive().await, None);
        goodbyes.fetch_add(1, Ordering::SeqCst);
    });
    let (goodbyes, arrived, closing) = &*state;
    let client = fake.client().await;
    let calling = tokio::spawn({
        let client = client.clone();
        async move { client.call(du()).await }
    });
    arrived.notified().await;
    // The answer comes after the first poll of `close`, which begins it.
    tokio::join!(client.close(), async { closing.notify_one() });
    assert_eq!(calling.await.unwrap(), Ok(done(1)));
    eventually("the goodbye", || goodbyes.load(Ordering::SeqCst) == 1).await;
    let closed = tokio::time::timeout(PATIENCE, client.call(du())).await.unwrap().unwrap_err();
    assert_eq!(closed.kind, ErrorKind::Unavailable);
    assert_eq!(fake.connections(), 1);
}

#[tokio::test]
async fn closing_does_not_wait_for_ever() {
    let arrived = Arc::new(Notify::new());
    let fake = Fake::serve_with(&arrived, |arrived, _, mut conn| async move {
        conn.greet().await;
        while conn.asked().await.is_some() {
            arrived.notify_one();
        }
    });
    let settings = ClientSettings { close_timeout: Duration::from_millis(100), ..settings() };
    let client = fake.client_with(settings).await;
    let calling = tokio::spawn({
        let client = client.clone();
        async move { client.call(Operation::Mkdir { lfns: vec![lfn("/d")], parents: false, mode: None }).await }
    });
    arrived.notified().await;
    tokio::time::timeout(PATIENCE, client.close()).await.unwrap();
    // The request was sent, so it may have been done.
    let lost = tokio::time::timeout(PATIENCE, calling).await.unwrap().unwrap().unwrap_err();
    assert_eq!(lost.kind, ErrorKind::Unknown);
}

#[tokio::test]
async fn a_dropped_client_says_goodbye() {
    let goodbyes = Arc::new(AtomicUsize::new(0));
    let fake = Fake::serve_with(&goodbyes, |count, _, mut conn| async move {
        conn.greet().await;
        while let Some((request, frame)) = conn.receive().await {
            match frame {
                Frame::Goodbye { .. } => drop(count.fetch_add(1, Ordering::SeqCst)),
                _ => conn.send(request, outcome(Ok(done(1)))).await,
            }
        }
    });
    let settings = ClientSettings { connections: 3, ..settings() };
    let client = fake.client_with(settings).await;
    for _ in 0..6 {
        client.call(du()).await.unwrap();
    }
    assert_eq!(fake.connections(), 3, "calls go over all connections in turn");
    drop(client);
    eventually("three goodbyes", || goodbyes.load(Ordering::SeqCst) == 3).await;
}

/// Without a server, waiting callers do not each make their own attempt.
#[tokio::test]
async fn many_callers_share_one_attempt_to_connect() {
    let fake = Fake::serve(|number, mut conn| async move {
        if number != 1 {
            conn.greet().await;
            conn.answer_all(|_| Ok(done(1))).await;
        }
        // The second connection is closed before it is greeted.
    });
    let client = fake.client().await;
    let calls = (0..100).map(|_| client.call(du()));
    let answers = futures::future::join_all(calls).await;
    assert!(answers.iter().all(|answer| *answer == Ok(done(1))));
    assert!(fake.connections() <= 2, "{} connections", fake.connections());
}

/// Starts a server over TLS with its own certificate.
async fn tls_server(names: &[&str]) -> (u16, Vec<u8>, String, tokio::task::JoinHandle<()>) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let certificate = made.cert.der().clone();
    let pem = made.cert.pem();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let task = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut decoder = FrameDecoder::new();
                loop {
                    while let Ok(Some(raw)) = decoder.next_frame() {
                        let answer = match raw.decode().unwrap() {
                            Frame::Hello(_) => Frame::HelloAck(hello_ack(limits())),
                            Frame::Authenticate(_) => Frame::Authenticated(identity()),
                            Frame::Request(_) => Frame::Answer(Answer::Ses(vec![])),
                            _ => return,
                        };
                        let mut out = Vec::new();
                        encode_frame(&mut out, 1 << 20, raw.request, &answer).unwrap();
                        stream.write_all(&out).await.unwrap();
                    }
                    match stream.read_buf(decoder.buffer_mut()).await {
                        Ok(0) | Err(_) => return,
                        Ok(_) => {}
                    }
                }
            });
        }
    });
    (port, certificate.to_vec(), pem, task)
}

#[tokio::test]
async fn over_tls_only_what_is_trusted_is_spoken_to() {
    let (port, der, pem, server) = tls_server(&["localhost"]).await;
    let (_, _, other, other_server) = tls_server(&["localhost"]).await;
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let fingerprint: String = Sha256::digest(&der).iter().map(|byte| format!("{byte:02x}")).collect();
    let at = |host: &str, trust: Trust| {
        let target = Target::parse(&format!("exacat://{host}:{port}")).unwrap().trusting(trust);
        async move {
            let client = connect(target, Credentials::token("s3cret")).await?;
            client.call(Operation::SeList).await
        }
    };
    let answered = Ok(Answer::Ses(vec![]));
    assert_eq!(at("localhost", Trust::Certificates(pem.clone().into_bytes())).await, answered);
    assert_eq!(at("localhost", Trust::CertificateFile(file("one", &pem))).await, answered);
    assert_eq!(
        at("localhost", Trust::CertificateFile(file("both", &format!("{other}{pem}")))).await,
        answered
    );
    assert_eq!(at("localhost", Trust::fingerprint(&fingerprint).unwrap()).await, answered);
    // The certificate itself is known, so its name does not matter.
    assert_eq!(at("127.0.0.1", Trust::fingerprint(&fingerprint).unwrap()).await, answered);
    assert_eq!(at("127.0.0.1", Trust::Certificates(pem.clone().into_bytes())).await, answered);

    let kind = |refused: Result<Answer>| refused.unwrap_err().kind;
    let stranger = Trust::Certificates(other.into_bytes());
    assert_eq!(kind(at("localhost", stranger).await), ErrorKind::Unauthenticated);
    assert_eq!(kind(at("localhost", Trust::Fingerprint([0; 32])).await), ErrorKind::Unauthenticated);
    assert_eq!(kind(at("localhost", Trust::Nothing).await), ErrorKind::Invalid);
    assert_eq!(
        kind(at("localhost", Trust::CertificateFile(file("none", "")).clone()).await),
        ErrorKind::Invalid
    );
    let missing = Trust::CertificateFile(directory.path().join("missing"));
    assert_eq!(kind(at("localhost", missing).await), ErrorKind::Invalid);
    server.abort();
    other_server.abort();
}

/// The client trusts a certificate signed by one in the file, for its name.
#[tokio::test]
async fn an_authority_vouches_for_a_name() {
    let mut parameters = rcgen::CertificateParams::new(vec![]).unwrap();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let authority = parameters.self_signed(&authority_key).unwrap();
    let issuer = rcgen::Issuer::new(parameters, authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(vec!["localhost".to_owned()])
        .unwrap()
        .signed_by(&key, &issuer)
        .unwrap();
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![leaf.der().clone()],
                PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
            )
            .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // Only the TLS handshake matters, so the server closes then.
            let _ = acceptor.accept(stream).await;
        }
    });
    let trust = Trust::Certificates(authority.pem().into_bytes());
    for (host, kind) in [("localhost", ErrorKind::Unavailable), ("127.0.0.1", ErrorKind::Unauthenticated)] {
        let target = Target::parse(&format!("exacat://{host}:{port}")).unwrap().trusting(trust.clone());
        assert_eq!(connect(target, Credentials::anonymous()).await.unwrap_err().kind, kind, "{host}");
    }
    server.abort();
}
