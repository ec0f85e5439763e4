//! A service in a directory of its own, and a client of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use exacat_http::{HttpClient, HttpClientSettings};
use exacat_model::Result;
use exacat_replay::run::outcome::AccessResult;
use exacat_replay::run::settings::{RunMode, RunSettings};
use exacat_replay::run::shapes::{API, ItemsAnswer, ItemsRequest, ReplayItem, ResultsAnswer, ResultsRequest};
use exacat_replay::trace::{AccessRow, Trace, store};
use exacat_replay_service::service::{ReplayRemote, ReplayServer, ReplayServerSettings};
use hyper::Method;

/// Time for an answer.
const TIME: Duration = Duration::from_secs(30);

/// See the module.
pub(crate) struct Rig {
    pub directory: tempfile::TempDir,
    pub server: Option<ReplayServer>,
    pub client: HttpClient,
    pub remote: ReplayRemote,
}

/// Writes a trace with an access to each of some files, one a microsecond.
pub(crate) fn trace(directory: &Path, files: &[u32]) -> PathBuf {
    let mut trace = Trace::new();
    for (at, file) in files.iter().enumerate() {
        let (name, time_us) = (format!("/data/f{file}"), at as u64);
        let row = AccessRow { time_us, name: &name, size: 1000, adler32: Some(7), ..AccessRow::default() };
        trace.add(&row).unwrap();
    }
    let path = directory.join("t.trace");
    store::write(&trace, &path).unwrap();
    path
}

pub(crate) fn settings(directory: &Path, token: Option<&str>) -> ReplayServerSettings {
    ReplayServerSettings {
        directory: directory.join("replay"),
        trace: Some(directory.join("t.trace")),
        listen: "127.0.0.1:0".parse().unwrap(),
        tls: None,
        token: token.map(str::to_owned),
        agent_token: token.map(|token| format!("{token}-agents")),
        collect: None,
        origins: Vec::new(),
    }
}

pub(crate) fn client(server: &ReplayServer, token: Option<&str>) -> HttpClient {
    let address = format!("http://{}", server.address());
    let settings = HttpClientSettings { address, token: token.map(str::to_owned), tls: None, time: TIME };
    HttpClient::new(settings).unwrap()
}

impl Rig {
    pub(crate) async fn new(files: &[u32]) -> Rig {
        let directory = tempfile::tempdir().unwrap();
        trace(directory.path(), files);
        let server = ReplayServer::start(settings(directory.path(), None)).await.unwrap();
        let client = client(&server, None);
        let remote = ReplayRemote::new(client.clone());
        Rig { directory, server: Some(server), client, remote }
    }

    /// Ends the service, and starts another one in its directory.
    pub(crate) async fn restart(&mut self) {
        self.server.take().unwrap().stop().await;
        let server = ReplayServer::start(settings(self.directory.path(), None)).await.unwrap();
        self.client = client(&server, None);
        self.remote = ReplayRemote::new(self.client.clone());
        self.server = Some(server);
    }

    /// Creates a run with some accesses in flight, and starts it.
    pub(crate) async fn begin(&self, name: &str, accesses: u32) {
        let settings = RunSettings::new(name, RunMode::InFlight { accesses });
        self.remote.create(&settings).await.unwrap();
        self.remote.command(name, "start").await.unwrap();
    }

    pub(crate) async fn items(&self, run: &str, agent: &str, count: u32) -> Result<ItemsAnswer> {
        self.items_after(run, agent, count, None).await
    }

    /// Asks for items as an agent that got the answer with this number last.
    pub(crate) async fn items_after(
        &self,
        run: &str,
        agent: &str,
        count: u32,
        number: Option<u64>,
    ) -> Result<ItemsAnswer> {
        let request = ItemsRequest {
            agent: agent.to_owned(),
            cache: "root://c:1".to_owned(),
            driver: "xrootd".to_owned(),
            count,
            number,
        };
        self.client.send_json(Method::POST, &format!("{API}runs/{run}/items"), &request).await
    }

    pub(crate) async fn results(
        &self,
        run: &str,
        agent: &str,
        results: Vec<AccessResult>,
    ) -> Result<ResultsAnswer> {
        let request = ResultsRequest { agent: agent.to_owned(), results };
        self.client.send_json(Method::POST, &format!("{API}runs/{run}/results"), &request).await
    }
}

/// Makes the result of an item without error.
pub(crate) fn good(item: &ReplayItem) -> AccessResult {
    AccessResult {
        item: item.item,
        attempt: item.attempt,
        duration_us: 5000,
        first_byte_us: Some(1000),
        bytes: item.size,
        ..AccessResult::default()
    }
}
