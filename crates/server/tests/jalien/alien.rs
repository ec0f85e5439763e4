//! Client of the JAliEn face, for tests.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use exacat_model::operation::UserSettings;
use exacat_server::{JalienSettings, ServerSettings};
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error as WebSocketError, Message};

use crate::client::{localhost, trusting};
use crate::world::{World, lfn};

/// Longest wait of a test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub certificate: String,
    pub key: String,
}

impl Pair {
    pub(crate) fn read(certificate: &Path, key: &Path) -> Self {
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        Pair { certificate: read(certificate), key: read(key) }
    }

    /// Reads the administrator's token, which the server writes at its start.
    pub(crate) fn admin(world: &World) -> Self {
        let place = world.data().join("jalien");
        Pair::read(&place.join("admin.crt"), &place.join("admin.key"))
    }
}

/// Starts a server that speaks the protocol.
pub(crate) async fn world() -> World {
    world_with(|_| {}).await
}

/// Starts a server with other settings.
pub(crate) async fn world_with(set: impl FnOnce(&mut ServerSettings)) -> World {
    World::with(|settings| {
        settings.jalien = Some(JalienSettings::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))));
        set(settings);
    })
    .await
}

/// Adds a user with a home of its own.
pub(crate) async fn new_user(world: &World, name: &str, set: impl FnOnce(&mut UserSettings)) {
    let home = format!("/alice/cern.ch/user/{}/{name}", &name[..1]);
    world
        .user(name, |user| {
            user.home = Some(lfn(&home));
            set(user);
        })
        .await;
    let mut admin = Alien::admin(world).await;
    admin.done("mkdir", &["-p", &home]).await;
    admin.done("chown", &[&format!("{name}.{name}"), &home]).await;
}

/// A connection.
pub(crate) struct Alien {
    pub websocket: WebSocketStream<TlsStream<TcpStream>>,
}

/// HTTP status of a refused connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotLetIn(pub u16);

/// Connects with TLS, and sends nothing.
pub(crate) async fn secure(world: &World, pair: Option<&Pair>) -> TlsStream<TcpStream> {
    let shows = pair.map(|pair| (pair.certificate.as_str(), pair.key.as_str()));
    let connector = trusting(&world.server.addresses.certificate, shows);
    let stream = TcpStream::connect(world.server.addresses.jalien.unwrap()).await.unwrap();
    connector.connect(localhost(), stream).await.unwrap()
}

impl Alien {
    /// Connects like a program that starts: requests the commands first. An error if the server
    /// refuses it.
    pub(crate) async fn connect(world: &World, pair: Option<&Pair>) -> Result<Self, NotLetIn> {
        let mut alien = Alien::reconnect(world, pair).await?;
        alien.done("commandlist", &["-nomsg"]).await;
        Ok(alien)
    }

    /// Connects like a client whose connection broke: without a first request.
    pub(crate) async fn reconnect(world: &World, pair: Option<&Pair>) -> Result<Self, NotLetIn> {
        let stream = secure(world, pair).await;
        match tokio_tungstenite::client_async("wss://localhost/websocket/json", stream).await {
            Ok((websocket, _)) => Ok(Alien { websocket }),
            Err(WebSocketError::Http(response)) => Err(NotLetIn(response.status().as_u16())),
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) async fn admin(world: &World) -> Self {
        Alien::connect(world, Some(&Pair::admin(world))).await.unwrap()
    }

    /// Connects as a user, with a token that the administrator requested for that user.
    pub(crate) async fn user(world: &World, name: &str) -> Self {
        let pair = Alien::token(world, name).await;
        Alien::connect(world, Some(&pair)).await.unwrap()
    }

    /// Returns a token of the administrator that acts as a user.
    pub(crate) async fn token(world: &World, name: &str) -> Pair {
        let answer = Alien::admin(world).await.done("token", &["-u", name]).await;
        let text = |field: &str| answer["results"][0][field].as_str().unwrap().to_owned();
        Pair { certificate: text("tokencert"), key: text("tokenkey") }
    }

    pub(crate) fn request(command: &str, options: &[&str]) -> String {
        json!({"command": command, "options": options}).to_string()
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.websocket.send(Message::text(text)).await.unwrap();
    }

    /// Returns the next message that is no answer to a ping.
    pub(crate) async fn receive(&mut self) -> Option<Message> {
        loop {
            let message =
                tokio::time::timeout(PATIENCE, self.websocket.next()).await.expect("an answer in time");
            match message {
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(message)) => return Some(message),
                Some(Err(_)) | None => return None,
            }
        }
    }

    pub(crate) async fn answer(&mut self) -> Value {
        match self.receive().await {
            Some(Message::Text(text)) => serde_json::from_str(&text).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Waits for the end of the connection; returns the server's code, if there is one.
    pub(crate) async fn end(&mut self) -> Option<u16> {
        loop {
            match self.receive().await {
                None | Some(Message::Close(None)) => return None,
                Some(Message::Close(Some(CloseFrame { code, .. }))) => return Some(code.into()),
                Some(_) => {}
            }
        }
    }

    pub(crate) async fn call(&mut self, command: &str, options: &[&str]) -> Value {
        self.send(&Alien::request(command, options)).await;
        self.answer().await
    }

    /// Runs a command that must succeed.
    pub(crate) async fn done(&mut self, command: &str, options: &[&str]) -> Value {
        let answer = self.call(command, options).await;
        assert_eq!(answer["metadata"]["exitcode"], "0", "{command} {options:?}: {answer}");
        answer
    }

    /// Runs a command that must fail; returns the number of its error.
    pub(crate) async fn fails(&mut self, command: &str, options: &[&str]) -> i32 {
        let answer = self.call(command, options).await;
        let number: i32 = answer["metadata"]["exitcode"].as_str().unwrap().parse().unwrap();
        assert_ne!(number, 0, "{command} {options:?}: {answer}");
        assert!(!answer["metadata"]["error"].as_str().unwrap().is_empty());
        number
    }

    /// Returns the texts of a command's results.
    pub(crate) async fn texts(&mut self, command: &str, options: &[&str]) -> Vec<String> {
        let answer = self.done(command, options).await;
        let results = answer["results"].as_array().unwrap();
        results.iter().filter_map(|one| one["message"].as_str()).map(str::to_owned).collect()
    }

    /// Returns a field of each result.
    pub(crate) async fn fields(&mut self, field: &str, command: &str, options: &[&str]) -> Vec<String> {
        let answer = self.done(command, options).await;
        let results = answer["results"].as_array().unwrap();
        results.iter().filter_map(|one| one[field].as_str()).map(str::to_owned).collect()
    }
}
