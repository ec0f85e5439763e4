//! `follow`: a read-only copy of a catalogue that keeps up with its source, and serves every face.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_follower::limits::ANSWER_TIME;
use exacat_follower::protocol::Superseded;
use exacat_follower::{
    FilteredFollow, FollowEnd, FollowState, FollowWork, HttpSource, Pauses, Source, check_directory,
    follow as follow_source, receive_copy,
};
use exacat_http::{HttpClient, HttpClientSettings};
use exacat_model::{Error, ErrorKind, Lfn};
use exacat_server::{Addresses, Server, ServerSettings};
use exacat_store_embedded::{EmbeddedSettings, EmbeddedStore, FollowerFiles, Following, on_blocking_thread};

use super::promote;
use super::serve::{self, Signals, finish, shown, until_ended};
use crate::args::{Connection, FollowArgs, StoreArg};
use crate::connect::{data_directory, token};
use crate::failure::{Failure, say};
use crate::log::ServiceLog;
use crate::output::Style;

/// Rows of a first copy after which its progress is told.
const ROWS_TOLD: u64 = 1_000_000;
/// File with the id of the catalogue, which clients know.
const CATALOGUE_ID: &str = "catalogue.id";

/// `exacat follow`
pub(crate) async fn follow(args: FollowArgs, connection: &Connection, style: Style) -> Result<u8, Failure> {
    let directory = data_directory(connection)?;
    let mut settings = serve::settings(&args.serve, connection, &directory)?;
    if matches!(args.serve.store, StoreArg::Cassandra(_)) || args.serve.snapshot.is_some() {
        return Err(Failure::local(
            "a follower has an embedded store of its own: leave --store and --snapshot out",
        ));
    }
    if args.serve.history {
        return Err(Failure::local("a follower has no history of elements: leave --history out"));
    }
    let mut log = ServiceLog::start(&args.serve.logging)?;
    settings.log_lines_lost = log.lines_lost();
    settings.look_ups = args.serve.look_up_log.as_deref().map(|file| log.keep_look_ups(file)).transpose()?;
    tokio::spawn(log.follow_rotations());
    let mut signals = Signals::new()?;
    let locking = exacat_disk::Disk::create_directory(&exacat_disk::RealDisk, &directory);
    locking.map_err(|error| Failure::local(format!("cannot make {}: {error}", shown(&directory))))?;
    let lock = promote::lock(&directory)?;
    let _lock = lock.ok_or_else(|| Failure::local(format!("another follower uses {}", shown(&directory))))?;
    let under = args.under.as_deref().map(directory_of).transpose()?;
    let state = Arc::new(FollowState::new(&args.source));
    settings.follow = Some(Arc::clone(&state));
    settings.clock.keep_in(&directory.join("clock"));
    let follower = Follower {
        source: source(&args, connection)?,
        files: Arc::new(FollowerFiles::at(&directory.join("store"))),
        directory,
        under,
        state,
        style,
    };
    follower.work(settings, &mut signals).await
}

/// Reads the directory of a filtered follower.
fn directory_of(text: &str) -> Result<Lfn, Failure> {
    let lfn = Lfn::parse(text)?.of_anything();
    match lfn.is_root() {
        true => Err(Failure::local("--under / is the whole catalogue: leave it out")),
        false => Ok(lfn),
    }
}

/// Makes the source of a follower.
fn source(args: &FollowArgs, connection: &Connection) -> Result<Source, Failure> {
    let tls = match (&connection.ca, args.source.starts_with("https:")) {
        (Some(ca), true) => Some(Arc::new(exacat_server::trusting(ca)?)),
        (None, true) => {
            return Err(Failure::local("https needs the certificate of the source to trust: --ca FILE"));
        }
        (_, false) => None,
    };
    let (address, token) = (args.source.clone(), token(connection)?);
    Ok(Source::new(HttpClient::new(HttpClientSettings { address, token, tls, time: ANSWER_TIME })?))
}

/// A follower on this machine.
struct Follower {
    directory: PathBuf,
    /// The only directory that it has.
    under: Option<Lfn>,
    source: Source,
    files: Arc<FollowerFiles>,
    state: Arc<FollowState>,
    style: Style,
}

/// Reasons why a server of a follower ended.
enum Ended {
    /// A signal, or the server itself.
    Done(u8),
    /// The follower cannot go on with the store as it was open.
    Followed(FollowEnd),
    /// An operator promoted the follower.
    Promoted,
}

/// Role of a directory.
enum Role {
    Follower(Following),
    /// It was a follower of the same source before, and was promoted.
    Source,
}

impl Follower {
    /// Copies if needed, serves and follows, until a signal.
    async fn work(&self, mut settings: ServerSettings, signals: &mut Signals) -> Result<u8, Failure> {
        let (mut is_first, mut pauses) = (true, Pauses::default());
        loop {
            let opened = tokio::select! {
                opened = self.open(&settings) => opened?,
                name = signals.next() => {
                    say(&format!("exacat: {name} before it was serving"));
                    return Ok(0);
                }
            };
            let Some((store, following)) = opened else {
                return self.serve(settings, signals, is_first).await;
            };
            let server = Server::start_over(settings.clone(), Arc::clone(&store) as _).await;
            let server = server.map_err(|error| Failure::about(shown(&self.directory), error))?;
            if std::mem::take(&mut is_first) {
                serve::announce(&server.addresses, &self.directory, self.style)?;
                keep_ports(&mut settings, &server.addresses);
            }
            let work = FollowWork {
                store,
                files: Arc::clone(&self.files),
                source: self.source.clone(),
                state: Arc::clone(&self.state),
                id: following.id,
            };
            let stop = server.stop_handle();
            let ended = server.wait();
            tokio::pin!(ended);
            let why = tokio::select! {
                end = self.follow(&work) => Ended::Followed(end),
                () = promote::wished(&self.directory), if self.under.is_none() => Ended::Promoted,
                ended = &mut ended => Ended::Done(finish(ended)?),
                name = signals.next() => {
                    if !self.style.quiet {
                        say(&format!("exacat: {name}: finishing requests in flight"));
                    }
                    stop.shutdown();
                    Ended::Done(finish((&mut ended).await)?)
                }
            };
            let end = match why {
                Ended::Done(status) => return Ok(status),
                Ended::Followed(end) => end,
                Ended::Promoted => {
                    // Nothing is appended behind this any more.
                    let last = work.store.log_end().await?.revision;
                    tracing::info!(revision = last.0, "becoming the source");
                    stop.shutdown();
                    drop(work);
                    ended.await?;
                    let files = Arc::clone(&self.files);
                    let timeline = on_blocking_thread(move || files.promote(last)).await?;
                    tracing::warn!(%timeline, "promoted: this server takes changes now");
                    return self.serve(settings, signals, false).await;
                }
            };
            stop.shutdown();
            drop(work);
            let closed = ended.await;
            match end {
                // The cause may last, as a full disk does.
                FollowEnd::Failed => pauses.pause().await,
                _ => closed?,
            }
            self.take(end).await?;
        }
    }

    /// Follows the source until the store must be closed.
    async fn follow(&self, work: &FollowWork) -> FollowEnd {
        if self.under.is_none() {
            return follow_source(work).await;
        }
        self.filtered(&work.store, work.id).run().await;
        FollowEnd::Failed
    }

    /// Returns the work of a filtered follower.
    fn filtered(&self, store: &Arc<EmbeddedStore>, id: [u8; 16]) -> FilteredFollow<HttpSource> {
        FilteredFollow::over_http(Arc::clone(store), self.source.clone(), Arc::clone(&self.state), id)
    }

    /// Serves as the source, and tells the source before.
    async fn serve(
        &self,
        mut settings: ServerSettings,
        signals: &mut Signals,
        is_first: bool,
    ) -> Result<u8, Failure> {
        settings.follow = None;
        let server = Server::start(settings).await;
        let server = server.map_err(|error| Failure::about(shown(&self.directory), error))?;
        if is_first {
            serve::announce(&server.addresses, &self.directory, self.style)?;
        }
        if let Err(error) = std::fs::remove_file(promote::wish(&self.directory))
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "the wish of the promotion stays behind");
        }
        let identity = server.catalogue().store().as_followed().map(|followed| followed.identity());
        let addresses = &server.addresses;
        let by = match (addresses.native, addresses.http) {
            (Some(native), _) => format!("exacat://{native}"),
            (None, Some(http)) => format!("https://{http}"),
            (None, None) => "the-promoted-follower".to_owned(),
        };
        let (source, identity) = (self.source.clone(), identity.unwrap_or_default());
        // It ends with the process.
        tokio::spawn(async move { tell(&source, &Superseded { identity, by }).await });
        until_ended(server, signals, self.style).await
    }

    /// Takes over what the source has, while no store is open.
    async fn take(&self, end: FollowEnd) -> exacat_model::Result<()> {
        let files = Arc::clone(&self.files);
        on_blocking_thread(move || match end {
            FollowEnd::Adopt { identity } => files.adopt(&identity),
            FollowEnd::Copied { files: copied } => files.switch(&copied),
            FollowEnd::Failed => Ok(()),
        })
        .await
    }

    /// Opens the store of the follower, after a first copy if there is none.
    /// None if it was promoted.
    async fn open(
        &self,
        settings: &ServerSettings,
    ) -> Result<Option<(Arc<EmbeddedStore>, Following)>, Failure> {
        let following = match self.begin().await? {
            Role::Follower(following) => following,
            Role::Source => return Ok(None),
        };
        let files = Arc::clone(&self.files);
        if self.under.is_none() && on_blocking_thread(move || files.catalogue()).await?.is_none() {
            self.copy().await?;
        }
        let store = match self.open_store(settings).await {
            Err(error) if error.kind == ErrorKind::Corrupt => {
                tracing::warn!(%error, "the copy here is damaged; it is copied again");
                match self.under {
                    None => self.copy().await?,
                    Some(_) => {
                        let files = Arc::clone(&self.files);
                        on_blocking_thread(move || files.discard()).await?;
                    }
                }
                self.open_store(settings).await
            }
            opened => opened,
        };
        let store = store.map_err(|error| Failure::about(shown(&self.directory), error))?;
        if self.under.is_some() && store.filtered_mark().source == 0 {
            self.copy_rows(&store, following.id).await?;
        }
        Ok(Some((store, following)))
    }

    /// Makes the first copy of a filtered follower. An interrupted one goes on with the rows that it has.
    async fn copy_rows(&self, store: &Arc<EmbeddedStore>, id: [u8; 16]) -> Result<(), Failure> {
        let mut pauses = Pauses::default();
        let mut follow = self.filtered(store, id);
        let mut told = 0;
        loop {
            let mut progress = |rows| {
                if rows >= told + ROWS_TOLD {
                    told = rows;
                    tracing::info!(rows, "copying the directory");
                }
            };
            match follow.copy(&mut progress).await {
                Ok(()) => return Ok(()),
                Err(error) if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Busy) => {
                    tracing::warn!(%error, "the copy was interrupted; trying again");
                    pauses.pause().await;
                }
                Err(error) => return Err(Failure::about(self.source.address().to_owned(), unfit(error))),
            }
        }
    }

    async fn open_store(&self, settings: &ServerSettings) -> exacat_model::Result<Arc<EmbeddedStore>> {
        let embedded = EmbeddedSettings {
            history: settings.history,
            cache_bytes: settings.cache_bytes,
            follows: Some(self.source.address().to_owned()),
            under: self.under.clone(),
            ..EmbeddedSettings::at(self.directory.join("store"))
        };
        let clock = Arc::clone(&settings.clock);
        on_blocking_thread(move || EmbeddedStore::open(embedded, clock)).await
    }

    /// Makes the directory a follower's of this source, unless it is.
    async fn begin(&self) -> Result<Role, Failure> {
        let (files, address) = (Arc::clone(&self.files), self.source.address().to_owned());
        let (following, promoted) = on_blocking_thread(move || {
            files.prepare()?;
            Ok((files.following()?, files.promoted()?))
        })
        .await?;
        if promoted.as_ref() == Some(&address) {
            tracing::warn!("this follower was promoted; it goes on as the source");
            return Ok(Role::Source);
        }
        if let Some(following) = following.filter(|following| following.source == address) {
            return Ok(Role::Follower(following));
        }
        let info = self.source.describe().await;
        let info = info.map_err(|error| Failure::about(address.clone(), unfit(error)))?;
        if let Some(under) = &self.under {
            // Before anything is written: a wrong name must not bind the data directory to it.
            let checked = check_directory(&self.source, under).await;
            checked.map_err(|error| Failure::about(address.clone(), unfit(error)))?;
        }
        let (files, id) = (Arc::clone(&self.files), self.directory.join(CATALOGUE_ID));
        let under = self.under.clone();
        let began = on_blocking_thread(move || {
            if under.is_none() {
                // The store of a filtered follower has an identity of its own.
                files.check_source(&info.identity)?;
            }
            keep_id(&id, &info.catalogue)?;
            files.follow(&address, under.as_ref())
        });
        let following = began.await.map_err(|error| Failure::about(shown(&self.directory), error))?;
        Ok(Role::Follower(following))
    }

    /// Receives a copy, and lets it count. Goes on after everything that can pass.
    async fn copy(&self) -> Result<(), Failure> {
        let mut pauses = Pauses::default();
        loop {
            let mut told = 0;
            let received = receive_copy(&self.source, &self.files, |done, all| {
                let tenth = (10 * done).checked_div(all).unwrap_or(10);
                if tenth > told {
                    told = tenth;
                    tracing::info!(bytes = done, of = all, "copying the source");
                }
            });
            match received.await {
                Ok(copied) => {
                    let files = Arc::clone(&self.files);
                    return Ok(on_blocking_thread(move || files.switch(&copied)).await?);
                }
                Err(error)
                    if matches!(
                        error.kind,
                        ErrorKind::Unavailable | ErrorKind::Busy | ErrorKind::NotFound
                    ) =>
                {
                    tracing::warn!(%error, "the copy was interrupted; trying again");
                    pauses.pause().await;
                }
                Err(error) => return Err(Failure::about(self.source.address().to_owned(), error)),
            }
        }
    }
}

/// Tells the source before that it was replaced, until it hears it.
async fn tell(source: &Source, told: &Superseded) {
    let mut pauses = Pauses::default();
    loop {
        match source.tell(told).await {
            Ok(_) => {
                return tracing::info!(source = source.address(), "the source before takes no more changes");
            }
            Err(error) if error.kind == ErrorKind::Conflict => {
                return tracing::error!(%error, source = source.address(), "the source before goes on by itself");
            }
            Err(error) => {
                tracing::debug!(%error, "the source before does not hear of the promotion; trying again");
                pauses.pause().await;
            }
        }
    }
}

/// Explains an error of a server that is no source.
fn unfit(error: Error) -> Error {
    match error.kind {
        ErrorKind::NotFound => Error::invalid("this server cannot be followed: it is of an older release"),
        _ => error,
    }
}

/// Writes the id of the catalogue, which must be the same as before.
fn keep_id(path: &Path, id: &str) -> exacat_model::Result<()> {
    let failed = |error: std::io::Error| {
        Error::new(ErrorKind::Unavailable, format!("cannot write {}: {error}", path.display()))
    };
    match std::fs::read_to_string(path) {
        Ok(own) if own.trim() == id => Ok(()),
        Ok(own) => Err(Error::new(
            ErrorKind::Conflict,
            format!("{}: this directory is of catalogue {}, not {id}", path.display(), own.trim()),
        )),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let parent = path.parent().unwrap_or(Path::new("."));
            let disk = exacat_disk::RealDisk;
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or(CATALOGUE_ID);
            exacat_disk::replace_small(&disk, parent, name, format!("{id}\n").as_bytes()).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

/// Lets a later server of this process listen at the same ports.
fn keep_ports(settings: &mut ServerSettings, addresses: &Addresses) {
    let keep = |address: &mut SocketAddr, actual: Option<SocketAddr>| *address = actual.unwrap_or(*address);
    settings.native = addresses.native;
    if let Some(http) = &mut settings.http {
        keep(&mut http.address, addresses.http);
    }
    if let Some(jalien) = &mut settings.jalien {
        keep(&mut jalien.address, addresses.jalien);
    }
    if let Some(xrootd) = &mut settings.xrootd {
        keep(&mut xrootd.address, addresses.xrootd);
    }
}
