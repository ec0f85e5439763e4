//! Reads the file with the user and password of a Kafka sink.

use std::path::Path;

use exacat_model::{Error, Result};
use rskafka::client::{Credentials, SaslConfig};

use super::secret::secret_bytes;

/// Returns the login in a file of one line, `MECHANISM:USER:PASSWORD`.
pub(crate) fn login(path: &Path, is_tls: bool) -> Result<SaslConfig> {
    let bad = |why: &str| {
        Error::invalid(format!(
            "{} is no login of Kafka ({why}): its one line is scram-sha-512:USER:PASSWORD, with \
             scram-sha-512, scram-sha-256 or plain",
            path.display()
        ))
    };
    let text = String::from_utf8(secret_bytes(path)?).map_err(|_| bad("it is no UTF-8"))?;
    if text.chars().any(char::is_control) {
        return Err(bad("it has more than one line"));
    }
    let mut fields = text.splitn(3, ':');
    let (Some(mechanism), Some(user), Some(password)) = (fields.next(), fields.next(), fields.next()) else {
        return Err(bad("it has too few fields"));
    };
    if user.is_empty() || password.is_empty() {
        return Err(bad("its user or password is empty"));
    }
    let credentials = Credentials::new(user.to_owned(), password.to_owned());
    match mechanism {
        "plain" if !is_tls => Err(bad("plain sends the password itself, so it needs kafkas://")),
        "plain" => Ok(SaslConfig::Plain(credentials)),
        "scram-sha-256" => Ok(SaslConfig::ScramSha256(credentials)),
        "scram-sha-512" => Ok(SaslConfig::ScramSha512(credentials)),
        _ => Err(bad("its mechanism is unknown")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Property: each mechanism is read, a password may have colons, and everything else is refused with the
    /// form of the file.
    #[test]
    fn login_is_read_and_bad_ones_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("login");
        let read = |text: &str, is_tls: bool| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            login(&path, is_tls)
        };
        match read("scram-sha-512:exacat:a:b\n", false).unwrap() {
            SaslConfig::ScramSha512(found) => {
                assert_eq!((found.username.as_str(), found.password.as_str()), ("exacat", "a:b"));
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(read("scram-sha-256:exacat:pw", false), Ok(SaslConfig::ScramSha256(_))));
        assert!(matches!(read("plain:exacat:password", true), Ok(SaslConfig::Plain(_))));
        assert!(read("plain:exacat:password", false).unwrap_err().message.contains("kafkas://"));
        for bad in [
            "exacat:0123456789abcdef",
            "SCRAM:exacat:password",
            "scram-sha-512::password",
            "plain:exacat:pw\nx",
        ] {
            assert!(read(bad, true).unwrap_err().message.contains("USER:PASSWORD"), "{bad}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(login(&path, true).unwrap_err().message.contains("chmod 600"));
    }
}
