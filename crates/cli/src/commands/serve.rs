//! `serve`: runs the service.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use exacat_history::ArchiveSettings;
use exacat_history_archive::{ParquetArchive, Place};
use exacat_model::{AccountName, Lfn, Mode, SnapshotName};
use exacat_server::{
    Addresses, CertificateFiles, ChecksumServer, HttpSettings, JalienSettings, Network, RunningServer,
    Server, ServerSettings, StoreChoice, TraceSettings, XrootdSettings, connections_within, raise_open_files,
};
use exacat_store::{CLOCK_JUMP_RANGE, WatchedClock};
use exacat_store_cassandra::CassandraSettings;
use exacat_store_embedded::HistoryKept;
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};
use utoipa::ToSchema;

use crate::args::{self, Connection, ServeArgs, StoreArg};
use crate::connect::data_directory;
use crate::failure::{Failure, say};
use crate::log::ServiceLog;
use crate::output::{Align, Out, Style, Table};
use crate::parse;

/// Networks of this machine alone.
pub(crate) const LOOPBACK: [&str; 2] = ["127.0.0.0/8", "::1/128"];

/// Opens the place of the archive of the history of elements.
fn elements_archive(args: &ServeArgs) -> Result<Option<ArchiveSettings>, Failure> {
    let Some(place) = &args.history_archive else { return Ok(None) };
    let place = Place::open(place).map_err(|error| Failure::local(format!("--history-archive: {error}")))?;
    let archive = Arc::new(ParquetArchive::new(place));
    Ok(Some(ArchiveSettings { archive, after_days: args.history_archive_after }))
}

/// `exacat serve`
pub(crate) async fn serve(args: ServeArgs, connection: &Connection, style: Style) -> Result<u8, Failure> {
    let directory = data_directory(connection)?;
    let mut settings = settings(&args, connection, &directory)?;
    let mut log = ServiceLog::start(&args.logging)?;
    settings.log_lines_lost = log.lines_lost();
    settings.look_ups = args.look_up_log.as_deref().map(|file| log.keep_look_ups(file)).transpose()?;
    // It ends with the process.
    tokio::spawn(log.follow_rotations());
    let mut signals = Signals::new()?;
    let server = tokio::select! {
        started = Server::start(settings) => started.map_err(|error| Failure::about(shown(&directory), error))?,
        // Opening a large catalogue takes time; giving it up loses nothing.
        name = signals.next() => {
            say(&format!("exacat: {name} before it was serving"));
            return Ok(0);
        }
    };
    announce(&server.addresses, &directory, style)?;
    until_ended(server, &mut signals, style).await
}

/// Waits until a server has ended, by itself or by a signal.
pub(crate) async fn until_ended(
    server: RunningServer,
    signals: &mut Signals,
    style: Style,
) -> Result<u8, Failure> {
    let stop = server.stop_handle();
    let ended = server.wait();
    tokio::pin!(ended);
    tokio::select! {
        ended = &mut ended => return finish(ended),
        name = signals.next() => {
            if !style.quiet {
                say(&format!("exacat: {name}: finishing requests in flight; a second signal ends the server at once"));
            }
            stop.shutdown();
        }
    }
    tokio::select! {
        ended = ended => finish(ended),
        name = signals.next() => {
            // Answered changes are durable; the next start replays them.
            say(&format!("exacat: {name} again: ended at once"));
            Ok(crate::failure::STATUS_INTERRUPTED)
        }
    }
}

pub(crate) fn finish(ended: exacat_model::Result<()>) -> Result<u8, Failure> {
    ended?;
    Ok(0)
}

pub(crate) fn shown(directory: &Path) -> String {
    directory.display().to_string()
}

/// SIGINT and SIGTERM.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(crate) fn new() -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::local(format!("cannot watch for signals: {error}"));
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
        })
    }

    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

pub(crate) fn settings(
    args: &ServeArgs,
    connection: &Connection,
    directory: &Path,
) -> Result<ServerSettings, Failure> {
    let mut settings = ServerSettings::new(directory);
    settings.native =
        args::listener(&args.listen).map_err(|error| Failure::local(format!("--listen: {error}")))?;
    settings.http = http(args)?;
    settings.jalien = jalien(args)?;
    settings.xrootd = xrootd(args)?;
    settings.networks = args.networks.clone();
    settings.storage_ca = args.storage_ca.clone();
    settings.envelopes.issuer = args.envelope_issuer.clone();
    settings.envelopes.seconds = parse::seconds(&args.envelope_lifetime)?;
    settings.store = match &args.store {
        StoreArg::Embedded => StoreChoice::Embedded,
        StoreArg::Cassandra(cluster) => StoreChoice::Cassandra(Box::new(args.reach.reaching(cluster))),
    };
    if matches!(args.store, StoreArg::Cassandra(_)) && args.snapshot.is_some() {
        return Err(Failure::local("--snapshot is of the embedded store: a cluster has none"));
    }
    settings.cache_bytes =
        parse::bytes(&args.cache).map_err(|error| Failure::local(format!("--cache: {error}")))?;
    settings.elements = args.history;
    settings.elements_log_ahead = !args.no_history_preallocation;
    settings.elements_archive = elements_archive(args)?;
    settings.history = parse::history_kept(&args.history_keep)
        .map_err(|error| Failure::local(format!("--history-keep: {error}")))?;
    if let StoreChoice::Cassandra(cluster) = &mut settings.store {
        let filter =
            parse::bytes(&args.filter).map_err(|error| Failure::local(format!("--filter: {error}")))?;
        cluster.filter_bytes = usize::try_from(filter)
            .ok()
            .filter(|bytes| *bytes <= CassandraSettings::FILTER_BYTES_MAX)
            .ok_or_else(|| Failure::local("--filter: at most 64GiB"))?;
        cluster.audit_rows_per_second = args.fsck_rows;
        cluster.peers = args.peers;
        cluster.work_directory = Some(directory.to_owned());
        cluster.history_kept_ms = match settings.history {
            HistoryKept::All => None,
            HistoryKept::Days(days) => Some(u64::from(days) * parse::DAY_MS),
            HistoryKept::Bytes(_) => {
                return Err(Failure::local(
                    "--history-keep: on a cluster it is all, or a number of days or weeks",
                ));
            }
        };
    }
    settings.standbys.acks = usize::from(args.standby_acks);
    let go_on = args.standby_go_on.as_deref().map(parse::duration_ms).transpose()?;
    settings.standbys.go_on = go_on.map(Duration::from_millis);
    settings.snapshot = args.snapshot.as_deref().map(SnapshotName::parse).transpose()?;
    settings.socket = !args.no_socket;
    settings.exit_on_log_failure = args.exit_on_log_failure.unwrap_or_else(is_under_systemd);
    settings.socket_mode = u32::from(Mode::parse(&args.socket_mode)?.bits());
    if let (Some(chain), Some(key)) = (&args.certificate, &args.key) {
        settings.certificate = Some(CertificateFiles { chain: chain.clone(), key: key.clone() });
    }
    settings.names = args.name.clone();
    settings.catalogue.anonymous_reads = args.anonymous_reads;
    settings.catalogue.consistency = connection.consistency.unwrap_or_default();
    settings.catalogue.trash_seconds = match args.trash_keep.as_str() {
        "never" => None,
        text => Some(parse::duration_ms(text)? / 1000),
    };
    let jump = parse::duration_ms(&args.clock_jump)?;
    if !CLOCK_JUMP_RANGE.contains(&jump) {
        return Err(Failure::local("--clock-jump: give a duration from 1m to 365d"));
    }
    settings.clock = Arc::new(WatchedClock::of_system(jump));
    settings.catalogue.reservation_seconds = parse::seconds(&args.reservation_lifetime)?;
    settings.catalogue.reservation_seconds_max =
        settings.catalogue.reservation_seconds_max.max(settings.catalogue.reservation_seconds);
    settings.catalogue.token_seconds_max = parse::seconds(&args.token_lifetime_max)?;
    let connections = match raise_open_files() {
        Some(files) => connections_within(files, args.connections, settings.limits.connections_max)
            .map_err(|error| Failure::local(format!("--connections: {error}")))?,
        None => args.connections.unwrap_or(settings.limits.connections_max),
    };
    settings.limits.connections_max = connections;
    settings.limits.connections_unauthenticated_max = args.unauthenticated;
    settings.limits.connections_unauthenticated_per_address_max = args.unauthenticated_per_address;
    settings.limits.handshake_time = Duration::from_millis(parse::duration_ms(&args.handshake_time)?);
    if let Some(url) = &args.traces {
        if !(0.0..=1.0).contains(&args.trace_ratio) {
            return Err(Failure::local("--trace-ratio: a number from 0 to 1"));
        }
        settings.traces = Some(TraceSettings { url: url.clone(), ratio: args.trace_ratio });
    }
    let unread = parse::bytes(&args.unread).map_err(|error| Failure::local(format!("--unread: {error}")))?;
    settings.limits.unread_bytes_max = usize::try_from(unread).unwrap_or(usize::MAX);
    for text in &args.weight {
        let (user, weight): (AccountName, u32) = parse::counted(text, None)?;
        settings.limits.user_weights.insert(user, weight);
    }
    settings.limits.stop_time = Duration::from_millis(parse::duration_ms(&args.stop_time)?);
    if settings.native.is_none() && !settings.socket && settings.jalien.is_none() && settings.xrootd.is_none()
    {
        return Err(Failure::local("with --listen none and --no-socket nobody could connect"));
    }
    Ok(settings)
}

/// Says whether systemd started the process. It restarts a service that ends with an error.
fn is_under_systemd() -> bool {
    ["INVOCATION_ID", "NOTIFY_SOCKET"].iter().any(|name| std::env::var_os(name).is_some())
}

fn jalien(args: &ServeArgs) -> Result<Option<JalienSettings>, Failure> {
    let address =
        args::listener(&args.jalien).map_err(|error| Failure::local(format!("--jalien: {error}")))?;
    let Some(address) = address else { return Ok(None) };
    // Check it with a sample user: a bad path would show at the first connection only.
    let sample = args.jalien_home.replace("{initial}", "u").replace("{user}", "user");
    Lfn::parse(&sample).map_err(|error| Failure::local(format!("--jalien-home: {error}")))?;
    Ok(Some(JalienSettings {
        authorities: args.jalien_ca.clone(),
        map: args.jalien_map.clone(),
        home: args.jalien_home.clone(),
        token_seconds_max: parse::seconds(&args.jalien_token_lifetime_max)?,
        ..JalienSettings::new(address)
    }))
}

fn http(args: &ServeArgs) -> Result<Option<HttpSettings>, Failure> {
    let address = args::listener(&args.http).map_err(|error| Failure::local(format!("--http: {error}")))?;
    let Some(address) = address else {
        return match &args.http_plain {
            Some(_) => Err(Failure::local("--http-plain: there is no --http")),
            None => Ok(None),
        };
    };
    let network = |text: &str| -> Result<Network, Failure> {
        text.parse().map_err(|error| Failure::local(format!("--http-plain: {error}")))
    };
    let mut plain = Vec::new();
    if let Some(named) = &args.http_plain {
        let named = named.iter().map(String::as_str).filter(|text| !text.is_empty());
        for text in LOOPBACK.into_iter().chain(named) {
            plain.push(network(text)?);
        }
    }
    for origin in &args.http_origin {
        let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
        if !host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '?', '#', '@', '*', ' '])) {
            return Err(Failure::local(format!("--http-origin: {origin:?} is not https://HOST[:PORT]")));
        }
    }
    Ok(Some(HttpSettings {
        plain,
        origins: args.http_origin.clone(),
        authorities: args.http_ca.clone(),
        map: args.http_map.clone(),
        ..HttpSettings::new(address)
    }))
}

fn xrootd(args: &ServeArgs) -> Result<Option<XrootdSettings>, Failure> {
    let address =
        args::listener(&args.xrootd).map_err(|error| Failure::local(format!("--xrootd: {error}")))?;
    let Some(address) = address else { return Ok(None) };
    let trusted = |text: &String| -> Result<Network, Failure> {
        text.parse().map_err(|error| Failure::local(format!("--xrootd-trust: {error}")))
    };
    let trusted = args.xrootd_trust.iter().map(trusted).collect::<Result<_, _>>()?;
    let checksums = |text: &String| -> Result<ChecksumServer, Failure> {
        text.parse().map_err(|error| Failure::local(format!("--xrootd-checksums: {error}")))
    };
    let checksums = args.xrootd_checksums.iter().map(checksums).collect::<Result<_, _>>()?;
    let name = args.xrootd_name.clone();
    Ok(Some(XrootdSettings { name, trusted, checksums, ..XrootdSettings::new(address) }))
}

/// Addresses of a service that has started.
#[derive(Serialize, ToSchema)]
#[schema(as = Addresses)]
pub(crate) struct AddressesView {
    /// Data directory.
    data: String,
    /// URL for clients over TLS.
    #[schema(required)]
    native: Option<String>,
    /// URL for clients on this machine.
    #[schema(required)]
    socket: Option<String>,
    /// URL of the HTTP interface.
    #[schema(required)]
    http: Option<String>,
    /// URL for alien.py.
    #[schema(required)]
    jalien: Option<String>,
    /// URL for clients of XRootD.
    #[schema(required)]
    xrootd: Option<String>,
    /// File of the certificate.
    certificate: String,
    /// File of the admin token.
    admin_token: String,
}

/// Prints the addresses. The starter of the service may have closed the output: then nobody needs
/// them.
pub(crate) fn announce(addresses: &Addresses, directory: &Path, style: Style) -> Result<(), Failure> {
    let mut out = Out::new(style);
    let native = addresses.native.map(|address| format!("exacat://{address}"));
    let socket = addresses.socket.as_ref().map(|path| format!("unix:{}", path.display()));
    let http = addresses.http.map(|address| format!("https://{address}"));
    let jalien = addresses.jalien.map(|address| format!("wss://{address}/websocket/json"));
    let xrootd = addresses.xrootd.map(|address| format!("root://{address}"));
    let written = if style.json {
        out.json(&AddressesView {
            data: shown(directory),
            native,
            socket,
            http,
            jalien,
            xrootd,
            certificate: shown(&addresses.certificate),
            admin_token: shown(&addresses.admin_token),
        })
    } else if style.quiet {
        return Ok(());
    } else {
        let mut table = Table::new([Align::Left, Align::Left]);
        table.row(["serving".to_owned(), shown(directory)]);
        for (name, place) in [
            ("socket", socket),
            ("network", native),
            ("http", http),
            ("alien.py", jalien),
            ("xrootd", xrootd),
        ] {
            if let Some(place) = place {
                table.row([format!("  {name}"), place]);
            }
        }
        table.row(["  admin token".to_owned(), shown(&addresses.admin_token)]);
        table.row(["  certificate".to_owned(), shown(&addresses.certificate)]);
        out.table(&table)
    };
    match written.and_then(|()| out.flush()) {
        Err(Failure::OutputClosed) => Ok(()),
        other => other,
    }
}
