//! `writer serve`: runs a writer service.

use std::sync::Arc;
use std::time::Duration;

use exacat_disk::RealDisk;
use exacat_model::SeName;
use exacat_server::{CertificateFiles, Network, certificate_config};
use exacat_writer_service::{CatalogueSettings, ClientCatalogue, Server, ServerSettings};
use serde::Serialize;
use utoipa::ToSchema;

use crate::args::{Connection, WriterServeArgs};
use crate::commands::serve::{LOOPBACK, Signals};
use crate::connect::{credentials, target};
use crate::failure::{Failure, say};
use crate::log::ServiceLog;
use crate::output::{Align, Out, Style, Table};
use crate::parse;

/// Time for an answer of the catalogue.
const CATALOGUE_TIME: Duration = Duration::from_secs(20);
/// Bytes of a block of the service.
const BLOCK_BYTES: u64 = 1 << 20;

/// Addresses of a service, as JSON.
#[derive(Serialize, ToSchema)]
struct WriterView {
    service: String,
    address: String,
    volumes: Vec<String>,
}

/// `exacat writer serve`
pub(super) async fn serve(
    args: WriterServeArgs,
    connection: &Connection,
    style: Style,
) -> Result<u8, Failure> {
    let settings = settings(&args)?;
    let log = ServiceLog::start(&args.logging)?;
    // It ends with the process.
    tokio::spawn(log.follow_rotations());
    let mut signals = Signals::new()?;
    let connection = Connection {
        server: args.catalogue.clone().or_else(|| connection.server.clone()),
        ..connection.clone()
    };
    let target = target(&connection)?;
    let over_socket =
        target.endpoints().iter().all(|endpoint| matches!(endpoint, exacat_client::Endpoint::Unix(_)));
    let catalogue = CatalogueSettings {
        target,
        se: SeName::parse(&args.se)?,
        pfn_prefix: format!("http://{}/content/", args.listen),
        deadline: CATALOGUE_TIME,
        booking_seconds: None,
    };
    let catalogue = ClientCatalogue::connect(catalogue, credentials(&connection, over_socket)?).await?;
    let server = Server::start(settings, Arc::new(RealDisk), Arc::new(catalogue)).await?;
    announce(&server, &args, style)?;
    let name = signals.next().await;
    if !style.quiet {
        say(&format!("exacat: {name}: writing what has come; a second signal ends the service at once"));
    }
    tokio::select! {
        () = server.stop() => Ok(0),
        name = signals.next() => {
            // What is acknowledged is on disk; producers send the rest again.
            say(&format!("exacat: {name} again: ended at once"));
            Ok(crate::failure::STATUS_INTERRUPTED)
        }
    }
}

fn settings(args: &WriterServeArgs) -> Result<ServerSettings, Failure> {
    let named = |name: &str, error: exacat_model::Error| Failure::local(format!("{name}: {error}"));
    let mut settings = ServerSettings::new(args.listen, args.volume.clone());
    let memory = parse::bytes(&args.memory).map_err(|error| named("--memory", error))?;
    settings.blocks = usize::try_from(memory / BLOCK_BYTES).unwrap_or(usize::MAX);
    settings.flush_ms = parse::some_time_ms(&args.flush).map_err(|error| named("--flush", error))?;
    settings.free_bytes_min = parse::bytes(&args.free_min).map_err(|error| named("--free-min", error))?;
    settings.orphan_ms = parse::some_time_ms(&args.orphan).map_err(|error| named("--orphan", error))?;
    settings.address = args.address.clone();
    settings.adopt = args.adopt;
    if let (Some(chain), Some(key)) = (&args.certificate, &args.key) {
        let files = CertificateFiles { chain: chain.clone(), key: key.clone() };
        settings.tls = Some(certificate_config(&files)?);
    }
    let network = |text: &str| -> Result<Network, Failure> {
        text.parse().map_err(|error| Failure::local(format!("--plain: {error}")))
    };
    let plain: Vec<Network> = LOOPBACK
        .into_iter()
        .chain(args.plain.iter().map(String::as_str))
        .map(network)
        .collect::<Result<_, _>>()?;
    settings.plain_from = Arc::new(move |address| plain.iter().any(|network| network.contains(address)));
    Ok(settings)
}

fn announce(server: &Server, args: &WriterServeArgs, style: Style) -> Result<(), Failure> {
    let mut out = Out::new(style);
    let (service, address) = (server.service().to_string(), server.address().to_string());
    let volumes: Vec<String> = args.volume.iter().map(|path| path.display().to_string()).collect();
    let written = if style.json {
        out.json(&WriterView { service, address, volumes })
    } else if style.quiet {
        return Ok(());
    } else {
        let mut table = Table::new([Align::Left, Align::Left]);
        table.row(["writing", &volumes.join(" ")].map(str::to_owned));
        table.row(["  service".to_owned(), service]);
        table.row(["  producers".to_owned(), address]);
        out.table(&table)
    };
    match written.and_then(|()| out.flush()) {
        Err(Failure::OutputClosed) => Ok(()),
        other => other,
    }
}
