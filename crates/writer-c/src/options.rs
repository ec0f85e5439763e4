//! Options by name, for writers and streams.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use exacat_writer_client::{ClientCertificate, FileNames, Security, StreamSettings, WriterSettings};

use crate::status::Failure;

/// Names of options. One that ends with a dot takes any name behind it.
const NAMES: [&str; 27] = [
    "seeds",
    "plain",
    "ca_file",
    "certificate_file",
    "key_file",
    "name",
    "token",
    "token_file",
    "memory_bytes",
    "prepare_memory",
    "buffer_bytes",
    "linger_ms",
    "connect_ms",
    "silence_ms",
    "retry_ms",
    "append_ms",
    "flush_ms",
    "close_ms",
    "threads",
    "run",
    "stream",
    "lfn",
    "tag.",
    "file_bytes_max",
    "file_events_max",
    "file_age_ms",
    "first_number",
];

/// Options of a writer or a stream.
#[derive(Debug, Default)]
pub struct Options(BTreeMap<String, String>);

impl Options {
    /// Sets an option.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        let is_known = name == "single"
            || NAMES.iter().any(|known| *known == name || known.ends_with('.') && name.starts_with(known));
        if !is_known {
            return Err(Failure::argument(format!("no option is called {name}")));
        }
        self.0.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn is_yes(&self, name: &str) -> Result<bool, Failure> {
        match self.text(name) {
            None | Some("no") => Ok(false),
            Some("yes") => Ok(true),
            Some(other) => Err(Failure::argument(format!("{name} is yes or no, not {other}"))),
        }
    }

    fn number<T: FromStr>(&self, name: &str, into: &mut T) -> Result<(), Failure> {
        if let Some(text) = self.text(name) {
            *into = text.parse().map_err(|_| Failure::argument(format!("{name} is a number, not {text}")))?;
        }
        Ok(())
    }

    fn time(&self, name: &str, into: &mut Duration) -> Result<(), Failure> {
        let mut milliseconds = u64::try_from(into.as_millis()).unwrap_or(u64::MAX);
        self.number(name, &mut milliseconds)?;
        *into = Duration::from_millis(milliseconds);
        Ok(())
    }

    fn security(&self) -> Result<Security, Failure> {
        let certificate = match (self.text("certificate_file"), self.text("key_file")) {
            (Some(chain), Some(key)) => Some(ClientCertificate { chain: chain.into(), key: key.into() }),
            (None, None) => None,
            _ => return Err(Failure::argument("set both certificate_file and key_file, or none of them")),
        };
        match (self.text("ca_file"), self.is_yes("plain")?) {
            (None, true) if certificate.is_some() => {
                Err(Failure::argument("a certificate_file needs TLS: set ca_file, and not plain"))
            }
            (None, true) => Ok(Security::Plain),
            (Some(path), false) => Security::tls(Path::new(path), certificate.as_ref())
                .map_err(|error| Failure::argument(error.to_string())),
            _ => Err(Failure::argument("set either ca_file, for TLS, or plain to yes")),
        }
    }

    fn token(&self) -> Result<Option<String>, Failure> {
        match (self.text("token"), self.text("token_file")) {
            (token, None) => Ok(token.map(str::to_owned)),
            (None, Some(path)) => {
                let read = std::fs::read_to_string(path);
                let token = read.map_err(|error| Failure::argument(format!("{path}: {error}")))?;
                Ok(Some(token.trim().to_owned()))
            }
            _ => Err(Failure::argument("set either token or token_file")),
        }
    }

    /// Returns the settings of a writer.
    pub(crate) fn writer(&self) -> Result<WriterSettings, Failure> {
        let seeds = self.text("seeds").unwrap_or_default();
        let seeds = seeds.split(',').map(str::trim).filter(|seed| !seed.is_empty());
        let mut settings = WriterSettings::new(seeds, self.security()?);
        settings.token = self.token()?;
        if let Some(name) = self.text("name") {
            name.clone_into(&mut settings.name);
        }
        self.number("memory_bytes", &mut settings.memory_bytes)?;
        settings.prepare_memory = self.is_yes("prepare_memory")?;
        self.number("buffer_bytes", &mut settings.buffer_bytes)?;
        self.number("threads", &mut settings.threads)?;
        self.time("linger_ms", &mut settings.linger)?;
        self.time("connect_ms", &mut settings.connect_timeout)?;
        self.time("silence_ms", &mut settings.silence_timeout)?;
        self.time("retry_ms", &mut settings.retry_pause)?;
        self.time("append_ms", &mut settings.append_timeout)?;
        self.time("flush_ms", &mut settings.flush_timeout)?;
        self.time("close_ms", &mut settings.close_timeout)?;
        Ok(settings)
    }

    /// Returns the settings of a stream.
    pub(crate) fn stream(&self) -> Result<StreamSettings, Failure> {
        let text = |name| self.text(name).unwrap_or_default();
        let mut settings = StreamSettings::new(text("run"), text("stream"), text("lfn"));
        let tags = self.0.iter().filter_map(|(name, value)| Some((name.strip_prefix("tag.")?, value)));
        settings.tags = tags.map(|(key, value)| (key.to_owned(), value.clone())).collect();
        let mut first = 1;
        self.number("first_number", &mut first)?;
        settings.names = if self.is_yes("single")? { FileNames::Single } else { FileNames::Numbered(first) };
        self.number("file_bytes_max", &mut settings.file_bytes_max)?;
        self.number("file_events_max", &mut settings.file_events_max)?;
        self.time("file_age_ms", &mut settings.file_age_max)?;
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: every option reaches the settings; unknown names, wrong numbers and an unsaid protection
    /// are errors.
    #[test]
    fn options_become_settings() {
        let mut options = Options::default();
        assert!(options.set("no_such", "1").is_err() && options.set("tag", "1").is_err());
        options.set("seeds", "a:1, b:2").unwrap();
        assert!(options.writer().is_err(), "neither TLS nor plain");
        options.set("plain", "yes").unwrap();
        options.set("linger_ms", "7").unwrap();
        let settings = options.writer().unwrap();
        assert_eq!(
            (settings.seeds, settings.linger),
            (vec!["a:1".to_owned(), "b:2".to_owned()], Duration::from_millis(7))
        );
        options.set("certificate_file", "no.pem").unwrap();
        assert!(options.writer().is_err(), "no key");
        options.set("key_file", "no.key").unwrap();
        assert!(options.writer().is_err(), "a certificate without TLS");
        options.set("plain", "no").unwrap();
        options.set("ca_file", "no.ca").unwrap();
        assert!(options.writer().is_err(), "files that are not there");
        for name in ["certificate_file", "key_file", "ca_file"] {
            options.0.remove(name);
        }
        options.set("plain", "yes").unwrap();
        options.set("memory_bytes", "much").unwrap();
        assert!(options.writer().is_err());
        options.set("tag.detector", "muon").unwrap();
        options.set("first_number", "5").unwrap();
        let stream = options.stream().unwrap();
        assert_eq!(stream.tags, [("detector".to_owned(), "muon".to_owned())]);
        assert_eq!(stream.names, FileNames::Numbered(5));
    }
}
