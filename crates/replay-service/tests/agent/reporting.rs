//! Results and a service that fails: each result reaches it, also behind lost answers and absences.

use std::time::Duration;

use exacat_model::ErrorKind;
use exacat_replay::run::outcome::Outcome;
use exacat_replay_service::agent::{Agent, AgentSummary};
use exacat_wire::xrootd::numbers::request;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::server::{Action, Server, ServerOf};
use crate::service::{Fault, Service};
use crate::world::{item, run, settings};

const SIZE: u64 = 100;

async fn server() -> Server {
    Server::start(ServerOf { size: SIZE, ..ServerOf::default() }).await
}

async fn service_with(count: u64) -> Service {
    Service::start((0..count).map(|number| item(number, &format!("/{number}"), SIZE)).collect()).await
}

/// Property: a message whose answer is lost comes again unchanged, and the service tells that it knows the
/// results. The token of the agent goes along.
#[tokio::test]
async fn message_whose_answer_is_lost_comes_again() {
    let (server, service) = (server().await, service_with(3).await);
    service.book.lock().result_faults = vec![Fault::AnswerLost, Fault::AnswerLost];
    service.book.lock().wanted = 4;
    let mut settings = settings(&service, &server.url());
    settings.token = Some("t1".to_owned());
    let book = std::sync::Arc::clone(&service.book);
    settings.progress_every = Duration::from_millis(10);
    settings.progress = Some(std::sync::Arc::new(move |summary: &AgentSummary| {
        // The run ends as soon as the service acknowledged all.
        book.lock().is_stopped |= summary.known == 3;
    }));
    let summary = run(settings).await.unwrap();
    let book = service.book.lock();
    assert_eq!((summary.accepted, summary.known, summary.service_retries), (0, 3, 2));
    assert_eq!((book.results.len(), book.messages.len()), (3, 3));
    assert!(book.messages.iter().all(|message| *message == book.messages[0]));
    assert!(book.tokens.iter().all(|token| token.as_deref() == Some("Bearer t1")));
    assert_eq!(server.count(request::OPEN), 3, "no access was made twice");
}

/// Property: while the service is away the agent makes the accesses that it has, and reports all later.
#[tokio::test]
async fn agent_goes_on_while_the_service_is_away() {
    let (server, service) = (server().await, service_with(2500).await);
    {
        let mut book = service.book.lock();
        book.item_faults = vec![Fault::Away, Fault::Status(503)];
        book.result_faults = vec![Fault::Away, Fault::Status(500), Fault::Away];
    }
    let summary = run(settings(&service, &server.url())).await.unwrap();
    assert_eq!((summary.accesses, summary.ok(), summary.accepted), (2500, 2500, 2500), "{summary:?}");
    assert_eq!((summary.service_retries, summary.unreported), (5, 0));
    let book = service.book.lock();
    assert_eq!(book.results.len(), 2500);
    assert!(book.messages.iter().all(|message| message.results.len() <= 1000));
    assert!(book.requests.iter().all(|request| request.count <= 1000 && request.driver == "xrootd"));
    assert!(book.results.values().all(|result| result.outcome == Outcome::Ok));
}

/// Property: a service that does not answer for too long ends the agent, which says how many results it has.
#[tokio::test]
async fn service_that_stays_away_ends_the_agent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let (server, service) = (server().await, service_with(1).await);
    let mut one = settings(&service, &server.url());
    one.service_patience = Duration::from_millis(300);
    one.service = gone;
    let error = run(one.clone()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    one.service = service.url();
    service.book.lock().result_faults = vec![Fault::Away; 1000];
    let error = run(one).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("1 results are not reported"), "{error}");
}

/// Property: a service that refuses the agent, or knows no such run, ends it at once.
#[tokio::test]
async fn refusal_of_the_service_ends_the_agent() {
    let server = server().await;
    for (status, kind) in
        [(401, ErrorKind::Unauthenticated), (403, ErrorKind::Denied), (404, ErrorKind::NotFound)]
    {
        let service = service_with(1).await;
        service.book.lock().item_faults = vec![Fault::Status(status)];
        assert_eq!(run(settings(&service, &server.url())).await.unwrap_err().kind, kind);
        let service = service_with(1).await;
        service.book.lock().result_faults = vec![Fault::Status(status); 2];
        assert_eq!(run(settings(&service, &server.url())).await.unwrap_err().kind, kind);
    }
}

/// Property: an agent that is stopped reports what ended, gives up the rest, and ends soon.
#[tokio::test]
async fn stopped_agent_reports_what_ended() {
    let server = Server::scripted(|asked| {
        (asked.kind() == request::OPEN && asked.path() == "/1").then_some(Action::Silence)
    })
    .await;
    let service = Service::start(vec![item(0, "/0", 5000), item(1, "/1", 5000), item(2, "/2", 5000)]).await;
    let mut settings = settings(&service, &server.url());
    settings.in_flight = 2;
    settings.cache.is_connected_anew = true;
    let later = exacat_replay::run::shapes::ReplayItem { due_us: 3_000_000_000, ..item(3, "/3", 1) };
    service.book.lock().items.push(later);
    let (stop, stopped) = watch::channel(false);
    let (server, stop) = (std::sync::Arc::new(server), std::sync::Arc::new(stop));
    let sender = std::sync::Arc::clone(&stop);
    settings.progress_every = Duration::from_millis(10);
    settings.progress = Some(std::sync::Arc::new(move |summary: &AgentSummary| {
        if summary.accesses == 2 {
            let _ = sender.send(true);
        }
    }));
    let summary = Agent::run(settings, stopped).await.unwrap();
    assert_eq!((summary.accesses, summary.abandoned, summary.unreported), (2, 2, 0), "{summary:?}");
    let book = service.book.lock();
    assert_eq!(book.results.keys().map(|(item, _)| *item).collect::<Vec<_>>(), [0, 2]);
    drop(server);
}

/// Property: an agent that is stopped while the service is away ends in its time, and says what is missing.
#[tokio::test]
async fn stopped_agent_does_not_wait_for_a_service_that_is_away() {
    let (server, service) = (server().await, service_with(3).await);
    service.book.lock().result_faults = vec![Fault::Away; 1000];
    let mut settings = settings(&service, &server.url());
    settings.finish_time = Duration::from_millis(200);
    let (stop, stopped) = watch::channel(false);
    settings.progress_every = Duration::from_millis(10);
    settings.progress = Some(std::sync::Arc::new(move |summary: &AgentSummary| {
        if summary.accesses == 3 {
            let _ = stop.send(true);
        }
    }));
    let running = tokio::spawn(Agent::run(settings, stopped));
    let summary = running.await.unwrap().unwrap();
    assert_eq!((summary.accesses, summary.unreported), (3, 3));
}
