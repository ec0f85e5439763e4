//! `writer serve`: runs a writer service.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use exacat_disk::{Disk, RealDisk, replace_small};
use exacat_model::SeName;
use exacat_server::{CertificateFiles, Network, certificate_config, trusting};
use exacat_writer_service::{
    Catalogue, CatalogueSettings, ClientCatalogue, IdentityFiles, LinkSettings, Listeners, MulticastSettings,
    PlainNetworks, ProducerAuthorities, Server, ServerSettings, SharedVolumes, StageOut, Takeover, Trust,
    carrier_of,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::services::{PLACE, token_of};
use crate::args::{self, Connection, WriterServeArgs};
use crate::commands::serve::{LOOPBACK, Signals};
use crate::connect::{certificate, credentials, data_directory, target};
use crate::failure::{Failure, say};
use crate::log::ServiceLog;
use crate::output::{Align, Out, Style, Table};
use crate::parse;

/// Time for an answer of the catalogue.
const CATALOGUE_TIME: Duration = Duration::from_secs(20);
/// Bytes of a block of the service.
const BLOCK_BYTES: u64 = 1 << 20;

/// Addresses of a service: printed, and in a file of the data directory for commands on this machine.
#[derive(Serialize, ToSchema)]
#[schema(as = WriterAddresses)]
pub(crate) struct WriterView {
    service: String,
    address: String,
    /// URL of its HTTP; null if it has none.
    http: Option<String>,
    volumes: Vec<String>,
}

/// `exacat writer serve`
pub(super) async fn serve(
    args: WriterServeArgs,
    connection: &Connection,
    style: Style,
) -> Result<u8, Failure> {
    let mut settings = settings(&args)?;
    let scheme = if settings.tls.is_some() { "https" } else { "http" };
    let log = ServiceLog::start(&args.logging)?;
    // It ends with the process.
    tokio::spawn(log.follow_rotations());
    let mut signals = Signals::new()?;
    let connection = Connection {
        server: args.catalogue.clone().or_else(|| connection.server.clone()),
        ..connection.clone()
    };
    trust_https(&mut settings, &args, &connection)?;
    let target = target(&connection)?;
    let listeners = Listeners::bind(&settings).await?;
    let credentials = credentials(&connection, &target)?;
    let catalogue = CatalogueSettings {
        target,
        se: SeName::parse(&args.se)?,
        pfn_prefix: pfn_prefix(&args, scheme, listeners.http_url(&settings)),
        deadline: CATALOGUE_TIME,
        booking_seconds: None,
    };
    let catalogue = ClientCatalogue::connect(catalogue, credentials).await?;
    let catalogue = catalogue.with_token(token_of(&connection)?);
    let (disk, catalogue): (Arc<dyn Disk>, Arc<dyn Catalogue>) = (Arc::new(RealDisk), Arc::new(catalogue));
    let of = settings.clone();
    let server = Server::start_on(listeners, settings, Arc::clone(&disk), Arc::clone(&catalogue)).await?;
    let takeover = Takeover::start(&server, &of, disk, catalogue);
    let addresses = addresses(&server, &args, scheme);
    let place = Place::write(&data_directory(&connection)?, &addresses)?;
    announce(&addresses, style)?;
    let name = signals.next().await;
    if !style.quiet {
        say(&format!("exacat: {name}: writing what has come; a second signal ends the service at once"));
    }
    place.remove();
    tokio::select! {
        () = ended(server, takeover) => Ok(0),
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
    settings.http = args::listener(&args.http).map_err(|error| Failure::local(format!("--http: {error}")))?;
    settings.adopt = args.adopt;
    if let Some(directory) = &args.shared {
        let after = parse::some_time_ms(&args.takeover_after);
        let after = Duration::from_millis(after.map_err(|error| named("--takeover-after", error))?);
        settings.shared = Some(SharedVolumes { directory: absolute(directory)?, after });
        settings.volumes = args.volume.iter().map(|volume| absolute(volume)).collect::<Result<_, _>>()?;
    }
    if let (Some(chain), Some(key)) = (&args.certificate, &args.key) {
        let files = CertificateFiles { chain: chain.clone(), key: key.clone() };
        settings.tls = Some(certificate_config(&files)?);
        let producers = args.client_ca.as_deref();
        let producers = producers.map(|from| ProducerAuthorities::load(from, chain, key));
        settings.producers = producers.transpose()?;
    }
    let network = |text: &str| -> Result<Network, Failure> {
        text.parse().map_err(|error| Failure::local(format!("--plain: {error}")))
    };
    let plain: Vec<Network> = LOOPBACK
        .into_iter()
        .chain(args.plain.iter().map(String::as_str))
        .map(network)
        .collect::<Result<_, _>>()?;
    let is_plain: PlainNetworks =
        Arc::new(move |address| plain.iter().any(|network| network.contains(address)));
    settings.plain_from = Arc::clone(&is_plain);
    settings.links = links(args, is_plain)?;
    settings.gone_ms = parse::some_time_ms(&args.gone).map_err(|error| named("--gone", error))?;
    settings.http_url = args.http_url.clone();
    let after = args.remove_after.as_deref().map(parse::some_time_ms).transpose();
    settings.removal.after_ms = after.map_err(|error| named("--remove-after", error))?;
    if let Some(below) = &args.remove_below {
        settings.removal.free_bytes_low =
            parse::bytes(below).map_err(|error| named("--remove-below", error))?;
    }
    settings.stage_out = stage_out(args)?;
    if args.listen.ip().is_unspecified() && args.address.is_none() {
        return Err(Failure::local("--listen on all addresses needs --address HOST:PORT for the producers"));
    }
    Ok(settings)
}

/// Ends the services that run here, those of other machines first.
async fn ended(server: Server, takeover: Option<Takeover>) {
    if let Some(takeover) = takeover {
        takeover.stop().await;
    }
    server.stop().await;
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::local(format!("{}: {error}", path.display())))
}

/// Lets a service with TLS read parts from others, which have TLS as well.
fn trust_https(
    settings: &mut ServerSettings,
    args: &WriterServeArgs,
    connection: &Connection,
) -> Result<(), Failure> {
    if settings.tls.is_some()
        && let Some(file) = args.service_ca.clone().or_else(|| certificate(connection))
    {
        settings.http_trust = Some(Arc::new(trusting(&file)?));
    }
    Ok(())
}

/// Returns where other services are looked for; none if they are not.
fn links(args: &WriterServeArgs, plain: PlainNetworks) -> Result<Option<LinkSettings>, Failure> {
    if args.seeds.is_empty() && args.group.is_none() {
        return Ok(None);
    }
    let files = match (&args.certificate, &args.key, &args.service_ca) {
        (Some(chain), Some(key), Some(authorities)) => Some(IdentityFiles {
            chain: chain.clone(),
            key: key.clone(),
            authorities: authorities.clone(),
            names: args.service_name.clone(),
        }),
        _ => None,
    };
    Ok(Some(LinkSettings {
        trust: Trust::load(files.as_ref(), plain)?,
        cluster: args.cluster.clone(),
        multicast: args.group.map(|group| MulticastSettings { group, interface: args.interface }),
        seeds: args.seeds.clone(),
    }))
}

/// Returns the copies to another storage element; none if there are none.
fn stage_out(args: &WriterServeArgs) -> Result<Option<StageOut>, Failure> {
    let (Some(se), Some(prefix)) = (&args.stage_out, &args.stage_prefix) else { return Ok(None) };
    let carrier = carrier_of(prefix).map_err(|error| Failure::local(format!("--stage-prefix: {error}")))?;
    let rate = args.stage_rate.as_deref().map(parse::bytes).transpose();
    Ok(Some(StageOut {
        se: SeName::parse(se)?.to_string(),
        prefix: prefix.clone(),
        carrier,
        files_at_once: usize::from(args.stage_files),
        bytes_per_second: rate.map_err(|error| Failure::local(format!("--stage-rate: {error}")))?,
    }))
}

/// Returns the beginning of the PFN of a file: the path of its content.
fn pfn_prefix(args: &WriterServeArgs, scheme: &str, http: Option<String>) -> String {
    // Without HTTP nobody reads the file there; the PFN still says where it is.
    let url = http.unwrap_or_else(|| format!("{scheme}://{}", args.listen));
    format!("{}/api/v1/writer/content/", url.trim_end_matches('/'))
}

fn addresses(server: &Server, args: &WriterServeArgs, scheme: &str) -> WriterView {
    let address = args.address.clone().unwrap_or_else(|| server.address().to_string());
    let volumes = args.volume.iter().map(|path| path.display().to_string()).collect();
    let http = server.http_address().map(|address| format!("{scheme}://{address}"));
    WriterView { service: server.service().to_string(), address, http, volumes }
}

/// The file with the addresses of the service that runs on this machine.
struct Place(PathBuf);

impl Place {
    fn write(directory: &Path, addresses: &WriterView) -> Result<Place, Failure> {
        let path = directory.join(PLACE);
        let failed =
            |error: std::io::Error| Failure::local(format!("cannot write {}: {error}", path.display()));
        let text = serde_json::to_vec(addresses).map_err(|error| failed(error.into()))?;
        RealDisk.create_directory(directory).map_err(failed)?;
        replace_small(&RealDisk, directory, PLACE, &text).map_err(failed)?;
        Ok(Place(path))
    }

    fn remove(&self) {
        // Of no use any more; a later service replaces it.
        let _ = RealDisk.remove(&self.0);
    }
}

fn announce(addresses: &WriterView, style: Style) -> Result<(), Failure> {
    let mut out = Out::new(style);
    let written = if style.json {
        out.json(addresses)
    } else if style.quiet {
        return Ok(());
    } else {
        let mut table = Table::new([Align::Left, Align::Left]);
        table.row(["writing", &addresses.volumes.join(" ")].map(str::to_owned));
        table.row(["  service", &addresses.service].map(str::to_owned));
        table.row(["  producers", &addresses.address].map(str::to_owned));
        if let Some(http) = &addresses.http {
            table.row(["  http", http].map(str::to_owned));
        }
        out.table(&table)
    };
    match written.and_then(|()| out.flush()) {
        Err(Failure::OutputClosed) => Ok(()),
        other => other,
    }
}
