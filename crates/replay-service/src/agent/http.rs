//! Driver of HTTP and HTTPS: reads whole files, and ranges one behind another, on connections that are used
//! again.

use bytes::Bytes;
use exacat_model::{Error, Result};
use exacat_replay::run::outcome::Outcome;
use exacat_replay::trace::reads::{ReadRange, Reads};
use exacat_wire::percent::push_encoded;
use hashbrown::HashMap;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_RANGE, HOST, LOCATION, RANGE};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use simd_adler32::Adler32;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::access::{Access, Failure, Reading, Verifier};
use super::dial::{Both, secured, tcp};
use super::limits::{CONNECT_TIME_MAX, IDLE_MAX, IDLE_PER_ACCESS, REFUSAL_BYTES_MAX};
use super::place::{Server, TokenPolicy};
use super::settings::CacheSettings;
use super::work::Driver;

/// Connection to a server; its task ends with it.
struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    task: JoinHandle<()>,
    is_used: bool,
    idle_since: Instant,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Place of a file: server, and the target of a request, encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WebPlace {
    server: Server,
    target: String,
}

/// Driver of HTTP.
pub(crate) struct HttpDriver {
    server: Server,
    prefix: String,
    token: TokenPolicy,
    settings: CacheSettings,
    verifier: Verifier,
    idle: Mutex<HashMap<Server, Vec<Connection>>>,
    idle_max: usize,
}

/// Returns the server of a URL; none if it is not of HTTP.
fn server_of(uri: &Uri) -> Option<Server> {
    let secure = match uri.scheme_str()? {
        "http" | "dav" => false,
        "https" | "davs" => true,
        _ => return None,
    };
    let host = uri.host().filter(|host| !host.is_empty())?.to_owned();
    Some(Server { secure, host, port: uri.port_u16().unwrap_or(if secure { 443 } else { 80 }) })
}

impl WebPlace {
    /// Returns the place to which a server redirects. It never leaves TLS.
    fn redirected(&self, location: &str) -> std::result::Result<WebPlace, Failure> {
        let unusable = |why: &str| {
            let shown: String = location.chars().filter(|one| !one.is_control()).take(100).collect();
            Failure::new(Outcome::Protocol, format!("a redirection {why}: {shown:?}"))
        };
        if location.starts_with('/') && !location.starts_with("//") {
            return Ok(WebPlace { server: self.server.clone(), target: location.to_owned() });
        }
        let uri: Uri = location.parse().map_err(|_| unusable("to no URL"))?;
        let server = server_of(&uri).ok_or_else(|| unusable("to no URL of HTTP"))?;
        if self.server.secure && !server.secure {
            return Err(unusable("from HTTPS to HTTP"));
        }
        let target = uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
        Ok(WebPlace { server, target })
    }
}

impl HttpDriver {
    /// Makes the driver of a cache. `in_flight` is the number of accesses at once.
    ///
    /// # Errors
    /// The address is none of HTTP, or asks for TLS without trust.
    pub(crate) fn new(settings: &CacheSettings, in_flight: usize) -> Result<Self> {
        let address = &settings.address;
        let bad = || {
            Error::invalid(format!(
                "{address:?}: the address of a cache is http://HOST:PORT or https://HOST:PORT"
            ))
        };
        let uri: Uri = address.parse().map_err(|_| bad())?;
        let server = server_of(&uri).filter(|_| uri.query().is_none()).ok_or_else(bad)?;
        if server.secure && settings.tls.is_none() {
            return Err(Error::invalid("https needs authorities to trust: name them"));
        }
        Ok(HttpDriver {
            prefix: uri.path().trim_end_matches('/').to_owned(),
            token: TokenPolicy::new(settings, &server.host, server.secure),
            verifier: Verifier::new(settings.verify_content),
            settings: settings.clone(),
            idle: Mutex::default(),
            idle_max: if settings.is_connected_anew { 0 } else { in_flight * IDLE_PER_ACCESS },
            server,
        })
    }

    fn place(&self, name: &str) -> std::result::Result<WebPlace, Failure> {
        let mut target = self.prefix.clone().into_bytes();
        if !name.starts_with('/') {
            target.push(b'/');
        }
        push_encoded(&mut target, name);
        let target = String::from_utf8(target)
            .map_err(|_| Failure::new(Outcome::Agent, "a name that is no path of a URL"))?;
        Ok(WebPlace { server: self.server.clone(), target })
    }

    async fn connect(&self, server: &Server) -> std::result::Result<Connection, Failure> {
        let refused = |error: std::io::Error| Failure::new(Outcome::Connection, format!("{server}: {error}"));
        let connecting = async {
            let stream = tcp(&server.host, server.port).await.map_err(refused)?;
            let stream: Box<dyn Both> = match (&self.settings.tls, server.secure) {
                (_, false) => Box::new(stream),
                (None, true) => {
                    let why = "a redirection to HTTPS: name the authorities to trust";
                    return Err(Failure::new(Outcome::Handshake, why));
                }
                (Some(config), true) => {
                    let failed = |error| Failure::new(Outcome::Handshake, format!("{server}: TLS: {error}"));
                    Box::new(secured(config, &server.host, stream).await.map_err(failed)?)
                }
            };
            // XRootD 5 compares names of headers with their case.
            let (sender, connection) = Builder::new()
                .title_case_headers(true)
                .handshake(TokioIo::new(stream))
                .await
                .map_err(broken)?;
            let task = tokio::spawn(async move {
                let _ = connection.await;
            });
            Ok(Connection { sender, task, is_used: false, idle_since: Instant::now() })
        };
        let late = |_| {
            Failure::new(Outcome::Connection, format!("{server}: no connection within {CONNECT_TIME_MAX:?}"))
        };
        tokio::time::timeout(CONNECT_TIME_MAX, connecting).await.map_err(late)?
    }

    fn take(&self, server: &Server) -> Option<Connection> {
        let mut idle = self.idle.lock();
        let connections = idle.get_mut(server)?;
        let is_usable = |one: &Connection| !one.sender.is_closed() && one.idle_since.elapsed() < IDLE_MAX;
        let usable = std::iter::from_fn(|| connections.pop()).find(is_usable);
        if connections.is_empty() {
            idle.remove(server);
        }
        usable
    }

    /// Takes a connection back whose answer was read to its end.
    async fn give(&self, server: &Server, mut connection: Connection) {
        if connection.sender.ready().await.is_err() {
            return;
        }
        (connection.is_used, connection.idle_since) = (true, Instant::now());
        let mut idle = self.idle.lock();
        if idle.values().map(Vec::len).sum::<usize>() < self.idle_max {
            idle.entry(server.clone()).or_default().push(connection);
        }
    }

    /// Sends a request to one server.
    async fn ask(
        &self,
        place: &WebPlace,
        range: Option<ReadRange>,
    ) -> std::result::Result<(Connection, Response<Incoming>), Failure> {
        loop {
            let mut connection = match self.take(&place.server) {
                Some(connection) => connection,
                None => self.connect(&place.server).await?,
            };
            let mut request = Request::get(&place.target).header(HOST, place.server.to_string());
            if let Some(token) = self.token.token_for(&place.server.host, place.server.secure) {
                request = request.header(AUTHORIZATION, format!("Bearer {token}"));
            }
            if let Some(ReadRange { offset, length }) = range {
                request = request.header(RANGE, format!("bytes={offset}-{}", offset + length - 1));
            }
            let request = request
                .body(Empty::new())
                .map_err(|_| Failure::new(Outcome::Agent, "the name or token cannot be sent over HTTP"))?;
            match connection.sender.send_request(request).await {
                Ok(response) => return Ok((connection, response)),
                // The server had ended a connection that nobody used.
                Err(error) if connection.is_used && !error.is_parse() => {}
                Err(error) => return Err(broken(error)),
            }
        }
    }

    /// Reads a range, or the whole file, and follows redirections. `place` is the last one afterwards.
    async fn fetch(
        &self,
        place: &mut WebPlace,
        range: Option<ReadRange>,
        access: &Access,
        reading: &mut Reading,
    ) -> std::result::Result<u32, Failure> {
        loop {
            let (connection, response) = self.ask(place, range).await?;
            let status = response.status();
            let next = match response.headers().get(LOCATION).and_then(|location| location.to_str().ok()) {
                Some(location) if status.is_redirection() => Some(place.redirected(location)?),
                _ => None,
            };
            if let Some(next) = next {
                if reading.redirects >= self.settings.redirects_max {
                    let why = format!("more than {} redirections", self.settings.redirects_max);
                    return Err(Failure::new(Outcome::Server, why));
                }
                reading.redirects += 1;
                self.refusal(place, connection, response).await;
                *place = next;
                continue;
            }
            let expected = if range.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
            if status != expected {
                let failure = match (status, range) {
                    (StatusCode::OK, Some(_)) => {
                        let why = "the server answers a request for a range with the whole file";
                        Failure::numbered(Outcome::Protocol, 200, why)
                    }
                    _ => Failure::of_http(status.as_u16()),
                };
                if status.is_success() {
                    // The rest of the content is not waited for.
                    return Err(failure);
                }
                let text = self.refusal(place, connection, response).await;
                let is_expired = failure.outcome == Outcome::Denied && super::access::is_about_expiry(&text);
                let outcome = if is_expired { Outcome::Expired } else { failure.outcome };
                let why = if text.is_empty() { failure.why } else { format!("{}: {text}", failure.why) };
                return Err(Failure { outcome, why, ..failure });
            }
            if let Some(range) = range {
                check_range(&response, range)?;
            }
            let sum = self.content(response.into_body(), range, access, reading).await?;
            self.give(&place.server, connection).await;
            return Ok(sum);
        }
    }

    /// Reads the text of an answer that is no content, and keeps the connection if it is short.
    async fn refusal(
        &self,
        place: &WebPlace,
        connection: Connection,
        response: Response<Incoming>,
    ) -> String {
        match Limited::new(response.into_body(), REFUSAL_BYTES_MAX).collect().await {
            Ok(body) => {
                self.give(&place.server, connection).await;
                let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
                text.chars().filter(|one| !one.is_control()).take(200).collect()
            }
            Err(_) => String::new(),
        }
    }

    /// Reads content, and returns its Adler-32.
    async fn content(
        &self,
        mut body: Incoming,
        range: Option<ReadRange>,
        access: &Access,
        reading: &mut Reading,
    ) -> std::result::Result<u32, Failure> {
        let (first, length) = range.map_or((0, access.size), |range| (range.offset, range.length));
        let (mut sum, mut came) = (Adler32::new(), 0);
        while let Some(frame) = body.frame().await {
            let Ok(bytes) = frame.map_err(broken)?.into_data() else { continue };
            if bytes.len() as u64 > length - came {
                return Err(match range {
                    Some(_) => Failure::new(Outcome::Protocol, "more bytes than asked for"),
                    None => {
                        let why = format!("the file has more than {length} bytes");
                        Failure::new(Outcome::Checksum, why)
                    }
                });
            }
            self.verifier.check(&access.name, first + came, &bytes)?;
            if range.is_none() {
                sum.write(&bytes);
            }
            reading.came(bytes.len());
            came += bytes.len() as u64;
        }
        if came < length {
            return Err(Failure::new(
                Outcome::Short,
                format!("the content ends after {came} of {length} bytes"),
            ));
        }
        Ok(sum.finish())
    }
}

fn broken(error: hyper::Error) -> Failure {
    let outcome = if error.is_parse() { Outcome::Protocol } else { Outcome::Connection };
    Failure::new(outcome, error.to_string())
}

/// Refuses the content of another range than asked for.
fn check_range(response: &Response<Incoming>, range: ReadRange) -> std::result::Result<(), Failure> {
    let told = response.headers().get(CONTENT_RANGE).and_then(|told| told.to_str().ok()).unwrap_or_default();
    let begin = told.strip_prefix("bytes ").and_then(|told| told.split('-').next()?.parse::<u64>().ok());
    match begin == Some(range.offset) {
        true => Ok(()),
        false => Err(Failure::new(Outcome::Protocol, format!("the content of another range: {told:.100?}"))),
    }
}

impl Driver for HttpDriver {
    async fn read(&self, access: &Access, reading: &mut Reading) -> std::result::Result<(), Failure> {
        let mut place = self.place(&access.name)?;
        if access.reads == Reads::Whole {
            let sum = self.fetch(&mut place, None, access, reading).await?;
            return reading.compare(access, sum);
        }
        for range in access.reads.ranges(access.size) {
            self.fetch(&mut place, Some(range), access, reading).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver(address: &str) -> Result<HttpDriver> {
        HttpDriver::new(&CacheSettings::new(address), 1)
    }

    /// Property: names are encoded behind the address; addresses of other protocols are refused.
    #[test]
    fn names_are_encoded_behind_the_address() {
        let place = driver("http://c:8080/pre/").unwrap().place("/a b?#%").unwrap();
        assert_eq!(place.target, "/pre/a%20b%3F%23%25");
        assert_eq!(place.server, Server { secure: false, host: "c".to_owned(), port: 8080 });
        assert_eq!(driver("http://c").unwrap().place("a").unwrap().target, "/a");
        for bad in ["", "c:1", "root://c:1", "https://c:1", "http://c/?x=1", "http://"] {
            assert!(driver(bad).is_err(), "{bad}");
        }
    }

    /// Property: a redirection stays within HTTP, and within TLS.
    #[test]
    fn redirection_stays_within_http_and_tls() {
        let place = |secure| WebPlace {
            server: Server { secure, host: "a".to_owned(), port: 1 },
            target: "/x".to_owned(),
        };
        let to =
            |secure, location: &str| place(secure).redirected(location).ok().map(|to| (to.server, to.target));
        let server = |secure, host: &str, port| Server { secure, host: host.to_owned(), port };
        assert_eq!(to(true, "/y?z"), Some((server(true, "a", 1), "/y?z".to_owned())));
        assert_eq!(to(false, "https://b/y?z"), Some((server(true, "b", 443), "/y?z".to_owned())));
        assert_eq!(to(false, "http://[::1]:8"), Some((server(false, "[::1]", 8), "/".to_owned())));
        assert_eq!(to(true, "http://a:1/x"), None);
        for bad in ["", "//b/y", "y", "root://b//y", "http://", "http://b/ y"] {
            assert_eq!(to(false, bad), None, "{bad}");
        }
    }
}
