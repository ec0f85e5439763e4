//! Client of a replay service, for the command line.

use bytes::Bytes;
use exacat_http::HttpClient;
use exacat_model::Result;
use exacat_replay::report::shapes::Report;
use exacat_replay::run::settings::RunSettings;
use exacat_replay::run::shapes::{API, CinfoRequest};
use hyper::Method;

use super::shapes::{ReplayRunView, ReplayRuns};

/// See the module.
#[derive(Clone)]
pub struct ReplayRemote(HttpClient);

impl ReplayRemote {
    /// Makes one on a client of the service.
    pub fn new(client: HttpClient) -> Self {
        ReplayRemote(client)
    }

    fn path(name: &str) -> String {
        format!("{API}runs/{}", HttpClient::escaped(name).replace('/', "%2F"))
    }

    /// Returns all runs.
    ///
    /// # Errors
    /// Those of the service; *unavailable* if it does not answer.
    pub async fn runs(&self) -> Result<ReplayRuns> {
        self.0.json(Method::GET, &format!("{API}runs")).await
    }

    /// Returns a run.
    ///
    /// # Errors
    /// See [`ReplayRemote::runs`].
    pub async fn run(&self, name: &str) -> Result<ReplayRunView> {
        self.0.json(Method::GET, &Self::path(name)).await
    }

    /// Creates a run.
    ///
    /// # Errors
    /// See [`ReplayRemote::runs`]. The same settings can be sent again.
    pub async fn create(&self, settings: &RunSettings) -> Result<ReplayRunView> {
        self.0.send_json(Method::POST, &format!("{API}runs"), settings).await
    }

    /// Sends a command: `start`, `pause`, `resume`, `stop`.
    ///
    /// # Errors
    /// See [`ReplayRemote::runs`]. The command can be sent again.
    pub async fn command(&self, name: &str, command: &str) -> Result<ReplayRunView> {
        self.0.json(Method::POST, &format!("{}/{command}", Self::path(name))).await
    }

    /// Sends the states of the files of a cache. Returns the run.
    ///
    /// # Errors
    /// See [`ReplayRemote::runs`]. The states can be sent again.
    pub async fn send_files(&self, name: &str, files: &CinfoRequest) -> Result<ReplayRunView> {
        self.0.send_json(Method::POST, &format!("{}/cinfo", Self::path(name)), files).await
    }

    /// Returns the report of a run.
    ///
    /// # Errors
    /// See [`ReplayRemote::runs`].
    pub async fn report(&self, name: &str) -> Result<Report> {
        self.0.json(Method::GET, &format!("{}/report", Self::path(name))).await
    }

    /// Returns the report of a run as the service has it.
    ///
    /// # Errors
    /// See [`ReplayRemote::runs`].
    pub async fn report_bytes(&self, name: &str) -> Result<Bytes> {
        self.0.bytes(Method::GET, &format!("{}/report", Self::path(name))).await
    }
}
