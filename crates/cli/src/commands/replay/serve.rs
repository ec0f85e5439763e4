//! `replay serve`: runs a replay service.

use std::path::PathBuf;

use exacat_http::{HttpClient, HttpClientSettings};
use exacat_replay_service::service::{ORIGIN_TIME, ReplayServer, ReplayServerSettings};
use exacat_server::{CertificateFiles, certificate_config};
use serde::Serialize;
use utoipa::ToSchema;

use super::at::token_in;
use super::catalogue::{self, InCatalogueView};
use crate::args::{Global, ReplayServeArgs};
use crate::commands::serve::Signals;
use crate::connect::data_directory;
use crate::failure::{Failure, say};
use crate::log::ServiceLog;
use crate::output::human::plural;
use crate::output::{Align, Out, Style, Table};

/// Replay service that began.
#[derive(Serialize, ToSchema)]
#[schema(as = ReplayService)]
pub(crate) struct ReplayView {
    /// Directory of its runs.
    runs: String,
    /// URL of its HTTP, for agents, commands and browsers.
    url: String,
    /// Address for the records of caches; null if it takes none.
    collect: Option<String>,
    /// Runs that it found.
    found: u64,
    /// Files of the trace in the catalogue; null without --catalogue.
    in_catalogue: Option<InCatalogueView>,
}

/// `exacat replay serve`
pub(super) async fn serve(args: ReplayServeArgs, global: &Global, style: Style) -> Result<u8, Failure> {
    let token = token_in(args.token_file.as_deref())?;
    if token.is_none() && !args.open && !args.listen.ip().is_loopback() {
        return Err(Failure::local(
            "--listen beyond this machine needs --token-file FILE, or --open to let everybody in",
        ));
    }
    let tls = match (&args.certificate, &args.key) {
        (Some(chain), Some(key)) => {
            let files = CertificateFiles { chain: chain.clone(), key: key.clone() };
            Some(certificate_config(&files)?)
        }
        _ => None,
    };
    let log = ServiceLog::start(&args.logging)?;
    // It ends with the process.
    tokio::spawn(log.follow_rotations());
    let mut signals = Signals::new()?;
    let directory: PathBuf = match &args.runs {
        Some(directory) => directory.clone(),
        None => data_directory(&global.connection)?.join("replay"),
    };
    let origin = |url: &String| {
        let (address, time) = (url.clone(), ORIGIN_TIME);
        HttpClient::new(HttpClientSettings { address, token: None, tls: None, time })
    };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let of_catalogue = match (&args.trace, &args.catalogue) {
        (Some(trace), Some(url)) => Some(catalogue::resolve(&args, (trace, url), &directory, global).await?),
        _ => None,
    };
    let settings = ReplayServerSettings {
        directory: directory.clone(),
        trace: of_catalogue.as_ref().map(|of| of.trace.clone()).or_else(|| args.trace.clone()),
        listen: args.listen,
        tls,
        token,
        agent_token: token_in(args.agent_token_file.as_deref())?,
        collect: args.collect,
        origins: args.origin.iter().map(origin).collect::<Result<_, _>>()?,
    };
    let server = ReplayServer::start(settings).await?;
    let in_catalogue = of_catalogue.map(|of| of.view.clone());
    announce(
        &ReplayView {
            runs: directory.display().to_string(),
            url: format!("{scheme}://{}", server.address()),
            collect: server.collects_at().map(|address| address.to_string()),
            found: server.runs() as u64,
            in_catalogue,
        },
        style,
    )?;
    let name = signals.next().await;
    if !style.quiet {
        say(&format!("exacat: {name}: runs go on at the next start; a second signal ends at once"));
    }
    tokio::select! {
        () = server.stop() => Ok(0),
        // What was answered is on disk.
        _ = signals.next() => Ok(crate::failure::STATUS_INTERRUPTED),
    }
}

fn announce(view: &ReplayView, style: Style) -> Result<(), Failure> {
    let mut out = Out::new(style);
    let written = if style.json {
        out.json(view)
    } else if style.quiet {
        return Ok(());
    } else {
        let mut table = Table::new([Align::Left, Align::Left]);
        table.row(["replaying", &view.runs].map(str::to_owned));
        table.row(["  http", &view.url].map(str::to_owned));
        if let Some(collect) = &view.collect {
            table.row(["  records of caches", collect].map(str::to_owned));
        }
        table.row(["  runs".to_owned(), view.found.to_string()]);
        if let Some(of) = &view.in_catalogue {
            let missing = format!("{} missing, {} left out", of.missing, plural(of.left_out, "access"));
            table.row(["  in the catalogue".to_owned(), format!("{}, {missing}", plural(of.found, "file"))]);
        }
        out.table(&table)
    };
    match written.and_then(|()| out.flush()) {
        Err(Failure::OutputClosed) => Ok(()),
        other => other,
    }
}
