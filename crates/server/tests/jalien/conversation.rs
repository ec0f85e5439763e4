//! The conversation: order, pings, long answers, ends, and clients that reconnect.

use std::time::Duration;

use exacat_testkit::waiting::found;
use futures::{SinkExt, StreamExt};
use tokio_tungstenite::tungstenite::Message;

use crate::alien::{Alien, PATIENCE, Pair, new_user, world, world_with};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_sent_in_one_go_are_answered_in_their_order() {
    let world = world().await;
    let mut alien = Alien::admin(&world).await;
    alien.done("mkdir", &["-p", "/a", "/b"]).await;
    const ROUNDS: usize = 200;
    for round in 0..ROUNDS {
        let directory = if round % 2 == 0 { "/a" } else { "/b" };
        alien.websocket.feed(Message::text(Alien::request("cd", &[directory]))).await.unwrap();
        alien.websocket.feed(Message::text(Alien::request("pwd", &["-nokeys"]))).await.unwrap();
    }
    alien.websocket.flush().await.unwrap();
    for round in 0..ROUNDS {
        let directory = if round % 2 == 0 { "/a/" } else { "/b/" };
        assert_eq!(alien.answer().await["metadata"]["currentdir"], directory);
        assert_eq!(alien.answer().await["results"][0]["message"], directory);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pings_are_answered_while_a_command_is_carried_out() {
    let world = world().await;
    let mut alien = Alien::admin(&world).await;
    world.hooks.hold_lists.send_replace(true);
    alien.send(&Alien::request("ls", &["/"])).await;
    alien.websocket.send(Message::Ping(b"there?".to_vec().into())).await.unwrap();
    let pong = tokio::time::timeout(PATIENCE, alien.websocket.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(pong, Message::Pong(b"there?".to_vec().into()));
    world.hooks.hold_lists.send_replace(false);
    assert_eq!(alien.answer().await["metadata"]["exitcode"], "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_answer_comes_in_parts_and_is_whole() {
    const FILES: usize = 20_000;
    let world = world().await;
    world.files("/many", FILES).await;
    let mut alien = Alien::admin(&world).await;
    let names = alien.fields("name", "ls", &["-l", "/many"]).await;
    assert_eq!(names.len(), FILES);
    assert!(names.is_sorted());
    let found = alien.fields("lfn", "find", &["/many", "*"]).await;
    assert_eq!(found.len(), FILES);
    assert_eq!(alien.texts("find", &["-nokeys", "-l", "3", "-o", "2", "/many", "*"]).await, found[2..5]);
    // Only a few parts wait for the client, not the whole: the next answer follows normally.
    assert_eq!(alien.texts("pwd", &[]).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_fails_in_the_middle_says_so_at_its_end() {
    let world = world().await;
    world.files("/many", 5000).await;
    let mut alien = Alien::admin(&world).await;
    let answer = alien.call("ls", &["-l", "/many", "/nope"]).await;
    assert_eq!(answer["metadata"]["exitcode"], "2");
    assert_eq!(answer["results"].as_array().unwrap().len(), 5000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quiet_connections_and_old_ones_end_in_words() {
    let short = Duration::from_millis(300);
    let idle = world_with(|settings| settings.limits.jalien_idle_time = short).await;
    let mut alien = Alien::admin(&idle).await;
    assert_eq!(alien.end().await, Some(1013));
    let old = world_with(|settings| settings.limits.jalien_session_time = short).await;
    let mut alien = Alien::admin(&old).await;
    assert_eq!(alien.end().await, Some(1013));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_finishes_what_was_asked_and_says_goodbye() {
    let world = world().await;
    let mut alien = Alien::admin(&world).await;
    world.hooks.hold_applies.send_replace(true);
    alien.send(&Alien::request("mkdir", &["/made"])).await;
    alien.send(&Alien::request("pwd", &[])).await;
    while world.hooks.applies_begun.load(std::sync::atomic::Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    // The answer to a ping sent after them proves that the server has read both.
    alien.websocket.send(Message::Ping(Vec::new().into())).await.unwrap();
    assert!(matches!(alien.websocket.next().await, Some(Ok(Message::Pong(_)))));
    world.server.shutdown();
    world.hooks.hold_applies.send_replace(false);
    assert_eq!(alien.answer().await["metadata"]["exitcode"], "0");
    assert_eq!(alien.answer().await["metadata"]["exitcode"], "0");
    assert_eq!(alien.end().await, Some(1012));
    world.server.wait().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_whose_connection_broke_comes_back_and_nothing_is_done_twice() {
    let world = world().await;
    new_user(&world, "jdoe", |_| {}).await;
    let pair = Alien::token(&world, "jdoe").await;
    let connect = || async { Alien::connect(&world, Some(&pair)).await.unwrap() };
    let mut alien = connect().await;
    alien.done("commandlist", &["-nomsg"]).await;
    alien.done("mkdir", &["d"]).await;
    alien.done("cd", &["d"]).await;
    alien.done("touch", &["x"]).await;
    // The answer is lost while the request runs.
    world.hooks.hold_applies.send_replace(true);
    let begun = world.hooks.applies_begun.load(std::sync::atomic::Ordering::SeqCst);
    let request = Alien::request("mv", &["x", "y"]);
    alien.send(&request).await;
    while world.hooks.applies_begun.load(std::sync::atomic::Ordering::SeqCst) == begun {
        tokio::task::yield_now().await;
    }
    let (stream, _) = alien.websocket.get_mut().get_mut();
    // Closed without a message, as when a network fails.
    stream.set_zero_linger().unwrap();
    drop(alien);
    // The server may notice the break only after the client's next connection, so the test retries.
    let reconnect = || async { Alien::reconnect(&world, Some(&pair)).await.unwrap() };
    let mut again = reconnect().await;
    world.hooks.hold_applies.send_replace(false);
    let mut answer = again.call("mv", &["x", "y"]).await;
    let mut tries = 0;
    while answer["metadata"]["exitcode"] != "0" && tries < 50 {
        tries += 1;
        again = reconnect().await;
        answer = again.call("mv", &["x", "y"]).await;
    }
    assert_eq!(answer["metadata"]["exitcode"], "0", "{answer}");
    assert_eq!(answer["metadata"]["currentdir"], "/alice/cern.ch/user/j/jdoe/d/", "it is where it was");
    assert_eq!(again.texts("ls", &["-nokeys"]).await, ["y"]);
    assert!(world.figure("server", "jalien_resumed").await >= 1);
    // Another program of the same user starts anew.
    let mut other = connect().await;
    assert_eq!(
        other.done("commandlist", &["-nomsg"]).await["metadata"]["currentdir"],
        "/alice/cern.ch/user/j/jdoe/"
    );
    assert_eq!(other.fails("mv", &["x", "y"]).await, libc::ENOENT);
}

/// Goal: a relative path has only the meaning that its user intended. Method: the answer to `rm x`
/// in a directory is lost, because the server restarts. The client sends it again on its new
/// connection, which starts at home, where there is an `x` too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewed_connection_changes_nothing_by_a_relative_path() {
    let world = world().await;
    new_user(&world, "jdoe", |_| {}).await;
    let pair = Alien::token(&world, "jdoe").await;
    let home = "/alice/cern.ch/user/j/jdoe";
    let mut alien = Alien::connect(&world, Some(&pair)).await.unwrap();
    alien.done("touch", &["x", "y"]).await;
    alien.done("mkdir", &["d"]).await;
    alien.done("cd", &["d"]).await;
    alien.done("touch", &["x"]).await;
    alien.done("rm", &["x"]).await;
    drop(alien);
    let world = world.restarted().await;
    let mut again = Alien::reconnect(&world, Some(&pair)).await.unwrap();
    for _ in 0..2 {
        let answer = again.call("rm", &["x"]).await;
        assert_eq!(answer["metadata"]["exitcode"], libc::ESTALE.to_string(), "{answer}");
        let error = answer["metadata"]["error"].as_str().unwrap();
        assert!(error.contains("nothing was done") && error.contains(home), "{error}");
    }
    // A relative path is still unsafe here; reads and full paths are not.
    again.done("cd", &["d"]).await;
    again.done("cd", &[".."]).await;
    assert_eq!(again.texts("ls", &["-nokeys"]).await, ["d", "x", "y"]);
    for (command, options) in [("touch", ["z"].as_slice()), ("mv", &["x", "/tmp"]), ("mkdir", &["-p", "./e"])]
    {
        assert_eq!(again.fails(command, options).await, libc::ESTALE, "{command}");
    }
    again.done("rm", &["~/y"]).await;
    again.done("touch", &[&format!("{home}/y")]).await;
    assert_eq!(again.texts("ls", &["-nokeys"]).await, ["d", "x", "y"]);
    // A client that names its directory may continue.
    again.done("cd", &[&format!("{home}/d")]).await;
    assert_eq!(again.fails("rm", &["x"]).await, libc::ENOENT);
    again.done("touch", &["x"]).await;
    let mut third = Alien::reconnect(&world, Some(&pair)).await.unwrap();
    assert_eq!(third.fails("rm", &["x"]).await, libc::ESTALE);
    third.done("cd", &[]).await;
    third.done("rm", &["x"]).await;
    assert_eq!(third.texts("ls", &["-nokeys"]).await, ["d", "y"]);
    // A program that starts knows that it is at home.
    let mut other = Alien::connect(&world, Some(&pair)).await.unwrap();
    other.done("rm", &["y"]).await;
}

/// Goal: a repeated command with wildcards does the rest. Method: `rm` of three files, whose
/// connection breaks after the first of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_command_with_wildcards_does_the_rest() {
    let world = world().await;
    new_user(&world, "jdoe", |_| {}).await;
    let pair = Alien::token(&world, "jdoe").await;
    let mut alien = Alien::connect(&world, Some(&pair)).await.unwrap();
    alien.done("mkdir", &["d"]).await;
    alien.done("cd", &["d"]).await;
    alien.done("touch", &["a.x", "b.x", "c.x", "d.x"]).await;
    world.hooks.hold_applies.send_replace(true);
    let begun = world.hooks.applies_begun.load(std::sync::atomic::Ordering::SeqCst);
    alien.send(&Alien::request("rm", &["*.x"])).await;
    while world.hooks.applies_begun.load(std::sync::atomic::Ordering::SeqCst) == begun {
        tokio::task::yield_now().await;
    }
    let (stream, _) = alien.websocket.get_mut().get_mut();
    stream.set_zero_linger().unwrap();
    drop(alien);
    world.hooks.hold_applies.send_replace(false);
    let stale = libc::ESTALE.to_string();
    // The server refuses until it has noticed that the connection broke.
    let (mut again, answer) = found("the end of the old connection", async || {
        let mut again = Alien::reconnect(&world, Some(&pair)).await.unwrap();
        let answer = again.call("rm", &["*.x"]).await;
        (answer["metadata"]["exitcode"] != stale.as_str()).then_some((again, answer))
    })
    .await;
    let done = answer["metadata"]["exitcode"] == "0" || answer["metadata"]["exitcode"] == "2";
    assert!(done, "{answer}");
    assert_eq!(again.texts("ls", &["-nokeys"]).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keys_of_envelopes_are_told_to_anybody() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let world = world().await;
    let get = |path: &'static str| {
        let world = &world;
        async move {
            let mut stream = crate::alien::secure(world, None).await;
            let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            // The connection may end without a TLS goodbye.
            let _ = stream.read_to_end(&mut answer).await;
            String::from_utf8(answer).unwrap()
        }
    };
    let keys = get("/.well-known/jwks.json").await;
    assert!(keys.starts_with("HTTP/1.1 200") && keys.contains("\"crv\":\"P-256\""), "{keys}");
    assert!(!keys.contains("\"d\""), "no secret");
    let configuration = get("/.well-known/openid-configuration").await;
    assert!(configuration.contains("/.well-known/jwks.json"), "{configuration}");
    assert!(get("/elsewhere").await.starts_with("HTTP/1.1 404"));
    assert!(get("/websocket/json").await.starts_with("HTTP/1.1 400"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_are_counted_and_operations_measured() {
    let world = world().await;
    let mut alien = Alien::connect(&world, Some(&Pair::admin(&world))).await.unwrap();
    alien.done("pwd", &[]).await;
    alien.fails("stat", &["/nope"]).await;
    assert!(world.figure("server", "jalien_commands").await >= 2);
    assert!(world.figure("server", "jalien_commands_failed").await >= 1);
    assert!(world.figure("operations", "stat_requests").await >= 1);
    alien.done("time", &["3", "pwd"]).await;
    assert_eq!(alien.fails("time", &["3", "time", "1", "pwd"]).await, libc::ENOENT);
    alien.done("timing", &["on"]).await;
    assert!(alien.call("pwd", &[]).await["metadata"]["timing_ms"].is_string());
}

/// A drained server closes idle connections so that their clients go elsewhere, and lets no new one in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drained_server_sends_clients_away() {
    let world = world().await;
    let mut admin = crate::client::Client::admin(&world).await;
    let mut alien = Alien::admin(&world).await;
    alien.done("pwd", &[]).await;
    let drain = |resume| exacat_model::Operation::Drain { resume };
    admin.call(drain(false)).await.unwrap();
    assert_eq!(alien.end().await, Some(1012), "restart");
    assert!(Alien::connect(&world, Some(&Pair::admin(&world))).await.is_err());
    admin.call(drain(true)).await.unwrap();
    Alien::admin(&world).await.done("pwd", &[]).await;
}
