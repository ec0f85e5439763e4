//! Driver of the program `xrdcp`: a process for each access, which reads the whole file into nothing.

use std::path::PathBuf;
use std::process::Stdio;

use exacat_model::Result;
use exacat_replay::run::outcome::Outcome;
use exacat_wire::xrootd::RootUrl;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use super::access::{Access, Failure, Reading};
use super::limits::MESSAGES_BYTES_MAX;
use super::place::{CacheAddress, TokenPolicy};
use super::settings::{CacheSettings, TokenUse};
use super::work::Driver;

/// Code of `xrdcp` for any error that a server answers with. Its messages have the number.
const SERVER_ERROR: i32 = 54;
/// Smallest and largest number of an error of a server.
const ERROR_NUMBERS: std::ops::RangeInclusive<u32> = 3000..=3999;

/// Driver of `xrdcp`.
pub(crate) struct XrdcpDriver {
    program: PathBuf,
    address: CacheAddress,
    policy: TokenPolicy,
    /// Token in the environment of the program, which shows it in logins.
    token: Option<String>,
}

impl XrdcpDriver {
    /// Makes the driver of a cache.
    ///
    /// # Errors
    /// The address is none of a server of XRootD.
    pub(crate) fn new(settings: &CacheSettings) -> Result<Self> {
        let address = CacheAddress::parse(&settings.address)?;
        let server = address.server();
        let policy = TokenPolicy::new(settings, &server.host, server.secure);
        let token = settings.token.clone().filter(|_| settings.token_use == TokenUse::Login);
        Ok(XrdcpDriver { program: settings.program.clone(), address, policy, token })
    }

    fn command(&self, access: &Access) -> std::result::Result<Command, Failure> {
        let place = self.address.place(&access.name)?;
        let path = self.policy.path(&place);
        let scheme = if place.server.secure { "roots" } else { "root" };
        let url = format!("{scheme}://{}/{path}", place.server);
        // A name that the program would read in another way, such as one with '#', is not tried.
        if RootUrl::parse(&url).is_none_or(|read| read.path != place.path) {
            return Err(Failure::new(Outcome::Agent, "the program has no way to ask for this name"));
        }
        let mut command = Command::new(&self.program);
        command.args(["-f", "-N", "-d", "0"]);
        if let Some(adler32) = access.adler32 {
            command.arg("--cksum").arg(format!("adler32:{adler32:08x}"));
        }
        command.arg(url).arg("/dev/null");
        if let Some(token) = &self.token {
            command.env("BEARER_TOKEN", token);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        Ok(command)
    }
}

/// Reads the messages of a program to their end. Returns the last bytes.
async fn messages(mut from: impl AsyncRead + Unpin) -> String {
    let (mut kept, mut piece) = (Vec::new(), [0; 1024]);
    while let Ok(count @ 1..) = from.read(&mut piece).await {
        kept.extend_from_slice(&piece[..count]);
        let surplus = kept.len().saturating_sub(MESSAGES_BYTES_MAX);
        kept.drain(..surplus);
    }
    String::from_utf8_lossy(&kept).chars().filter(|one| !one.is_control() || *one == '\n').collect()
}

/// Returns the number of a server's error in messages: `[3011]`.
fn number_in(messages: &str) -> Option<u32> {
    let inside = messages.rsplit('[').filter_map(|rest| rest.split(']').next()?.parse().ok());
    inside.into_iter().find(|number| ERROR_NUMBERS.contains(number))
}

/// Makes the failure of a program that ended with a code.
fn failure(code: i32, messages: &str) -> Failure {
    let last = messages.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let number = u32::try_from(code).unwrap_or_default();
    match number_in(messages) {
        Some(server) if code == SERVER_ERROR => Failure::of_xrootd(server, last),
        _ => Failure::numbered(Outcome::of_xrdcp(number), number, format!("exit code {code}: {last}")),
    }
}

impl Driver for XrdcpDriver {
    /// Reads the whole file, also if the access reads ranges of it: the program can do no other. A process
    /// whose access is given up is killed.
    async fn read(&self, access: &Access, reading: &mut Reading) -> std::result::Result<(), Failure> {
        let program = self.program.display();
        let broken = |error: std::io::Error| Failure::new(Outcome::Agent, format!("{program}: {error}"));
        let mut child = self.command(access)?.spawn().map_err(broken)?;
        let told = match child.stderr.take() {
            Some(stderr) => messages(stderr).await,
            None => String::new(),
        };
        let status = child.wait().await.map_err(broken)?;
        match status.code() {
            Some(0) => {
                reading.bytes = access.size;
                reading.adler32 = access.adler32;
                Ok(())
            }
            Some(code) => Err(failure(code, &told)),
            None => Err(Failure::new(Outcome::Agent, format!("{program} was ended by a signal: {status}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: codes have their classes; an error of a server has the server's number.
    #[test]
    fn codes_of_the_program_have_their_classes() {
        let of = |code, text: &str| {
            let failure = failure(code, text);
            (failure.outcome, failure.number)
        };
        let missing = "Run: [ERROR] Server responded with an error: [3011] Unable to open file [x]; \
                       No such file or directory (source)\n\n";
        assert_eq!(of(54, missing), (Outcome::NotFound, 3011));
        assert_eq!(of(54, "[ERROR] [3010] token expired"), (Outcome::Expired, 3010));
        assert_eq!(of(54, ""), (Outcome::Server, 54));
        assert_eq!(of(51, missing), (Outcome::Connection, 51));
        assert_eq!(of(53, "checksum"), (Outcome::Checksum, 53));
        assert_eq!((of(52, ""), of(50, "")), ((Outcome::Handshake, 52), (Outcome::Agent, 50)));
        assert!(failure(54, missing).why.contains("No such file"));
    }

    #[tokio::test]
    async fn messages_of_a_program_are_bounded() {
        let long = "x".repeat(MESSAGES_BYTES_MAX) + "y";
        let kept = messages(long.as_bytes()).await;
        assert_eq!((kept.len(), kept.ends_with('y')), (MESSAGES_BYTES_MAX, true));
        assert_eq!(messages(&b"a\x1b\nb"[..]).await, "a\nb");
    }

    /// Property: the program gets the name as it is, or the name is not asked for.
    #[test]
    fn program_gets_the_name_as_it_is() {
        let mut settings = CacheSettings::new("root://c:1");
        settings.token = Some("t".to_owned());
        settings.token_use = TokenUse::Path;
        let access = |name: &str| Access {
            name: name.into(),
            size: 1,
            adler32: Some(0xab),
            reads: exacat_replay::trace::reads::Reads::Whole,
        };
        let driver = XrdcpDriver::new(&settings).unwrap();
        let command = driver.command(&access("/a+b")).unwrap();
        let args: Vec<_> = command.as_std().get_args().map(|arg| arg.to_str().unwrap()).collect();
        let url = "root://c:1//a+b?authz=Bearer%20t";
        assert_eq!(args, ["-f", "-N", "-d", "0", "--cksum", "adler32:000000ab", url, "/dev/null"]);
        for bad in ["/a b", "/a#b", "/a?b"] {
            assert!(driver.command(&access(bad)).is_err(), "{bad}");
        }
    }
}
