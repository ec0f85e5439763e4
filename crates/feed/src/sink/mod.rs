//! Sinks: directories, webhooks, and topics of Kafka.

mod address;
mod cloud;
mod directory;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "kafka")]
mod kafka_address;
#[cfg(feature = "kafka")]
mod kafka_login;
#[cfg(feature = "kafka")]
mod kafka_records;
mod reach;
mod secret;
mod trouble;
mod webhook;

use std::path::{Component, Path, PathBuf};

use exacat_model::{Error, Guid, Result, Revision, TimeMs};
use tokio::time::Instant;

use crate::batch::Batch;
use crate::cursor::Cursor;
use crate::limits::{Pace, SINK_BYTES_MAX};
use address::WebhookUrl;
use directory::DirectorySink;
pub(crate) use directory::{Opened, claim, next_generation};
#[cfg(feature = "kafka")]
use kafka::KafkaSink;
#[cfg(feature = "kafka")]
use kafka_address::KafkaAddress;
#[cfg(feature = "kafka")]
pub(crate) use kafka_login::login;
pub use reach::TlsSource;
pub(crate) use trouble::Trouble;
use webhook::WebhookSink;
pub(crate) use webhook::secret;

/// Address of a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SinkAddress {
    Directory(PathBuf),
    Webhook(WebhookUrl),
    #[cfg(feature = "kafka")]
    Kafka(KafkaAddress),
}

#[cfg(feature = "kafka")]
fn kafka(text: &str) -> Result<SinkAddress> {
    KafkaAddress::parse(text).map(SinkAddress::Kafka)
}

#[cfg(not(feature = "kafka"))]
fn kafka(_text: &str) -> Result<SinkAddress> {
    Err(Error::invalid("this build has no Kafka sink: build with --features kafka"))
}

impl SinkAddress {
    /// Reads `dir:/PATH` or a URL.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        if text.len() > SINK_BYTES_MAX {
            return Err(Error::limit("the length of a sink's address in bytes", text.len(), SINK_BYTES_MAX));
        }
        if let Some(path) = text.strip_prefix("dir:") {
            let path = Path::new(path);
            let plain = path.components().all(|one| matches!(one, Component::RootDir | Component::Normal(_)));
            if !path.is_absolute() || !plain || path.parent().is_none() || text.contains('\0') {
                return Err(Error::invalid(format!(
                    "{text:.100?} is no directory for a feed: give dir:/PATH, absolute and without .."
                )));
            }
            return Ok(SinkAddress::Directory(path.components().collect()));
        }
        if text.starts_with("http://") || text.starts_with("https://") {
            return WebhookUrl::parse(text).map(SinkAddress::Webhook);
        }
        if text.starts_with("kafka://") || text.starts_with("kafkas://") {
            return kafka(text);
        }
        Err(Error::invalid(format!(
            "{text:.100?} is no sink: give dir:/PATH, the http(s):// URL of a webhook, or \
             kafka(s)://HOST/TOPIC"
        )))
    }
}

/// Context of all sinks of a server.
#[derive(Clone)]
pub(crate) struct SinkContext {
    pub catalogue: Guid,
    pub pace: Pace,
    pub tls: TlsSource,
}

/// The sink of a feed.
pub(crate) enum Sink {
    Directory(Box<DirectorySink>),
    Webhook(Box<WebhookSink>),
    #[cfg(feature = "kafka")]
    Kafka(Box<KafkaSink>),
}

impl Sink {
    /// Opens the sink of a feed.
    pub(crate) fn open(
        cursor: &Cursor,
        context: &SinkContext,
    ) -> std::result::Result<(Self, Opened), Trouble> {
        let (revision, window) = (cursor.revision, cursor.window);
        let opened = Opened { revision, window, generation: cursor.generation };
        match SinkAddress::parse(&cursor.spec.sink)? {
            SinkAddress::Directory(path) => {
                let (sink, opened) = DirectorySink::open(&path, cursor, context.catalogue, context.pace)?;
                Ok((Sink::Directory(Box::new(sink)), opened))
            }
            SinkAddress::Webhook(url) => {
                let tls = context.tls.clone();
                let sink = WebhookSink::open(url, cursor, context.catalogue, tls)?;
                Ok((Sink::Webhook(Box::new(sink)), opened))
            }
            #[cfg(feature = "kafka")]
            SinkAddress::Kafka(address) => {
                let tls = context.tls.clone();
                let sink = KafkaSink::open(address, cursor, context.catalogue, tls)?;
                Ok((Sink::Kafka(Box::new(sink)), opened))
            }
        }
    }

    /// Notes up to which revision a mirror may lack entries that change.
    pub(crate) fn note_window(&mut self, window: Revision) {
        if let Sink::Directory(sink) = self {
            sink.note_window(window);
        }
    }

    /// Takes events. `whole` is the last revision whose request ends in or before them. Returns the
    /// revision up to which the sink has everything durably, if that has grown.
    pub(crate) async fn put(
        &mut self,
        batch: &Batch,
        whole: Option<Revision>,
        now: TimeMs,
    ) -> std::result::Result<Option<Revision>, Trouble> {
        match self {
            Sink::Directory(sink) => sink.put(batch, whole),
            Sink::Webhook(sink) => {
                sink.put(batch, now.0 / 1000).await?;
                Ok(whole)
            }
            #[cfg(feature = "kafka")]
            Sink::Kafka(sink) => {
                sink.put(batch).await?;
                Ok(whole)
            }
        }
    }

    /// Says that no event is left up to a revision. Returns true if the sink has everything before.
    pub(crate) fn pass(&mut self, whole: Revision) -> bool {
        match self {
            Sink::Directory(sink) => sink.pass(whole),
            _ => true,
        }
    }

    /// Returns the time at which events that wait in the sink become durable.
    pub(crate) fn due(&self) -> Option<Instant> {
        match self {
            Sink::Directory(sink) => sink.due(),
            _ => None,
        }
    }

    /// Makes events that wait in the sink durable.
    pub(crate) fn publish(&mut self) -> std::result::Result<Option<Revision>, Trouble> {
        match self {
            Sink::Directory(sink) => sink.publish(),
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sinks_are_read_and_bad_ones_are_refused() {
        let directory = SinkAddress::parse("dir:/var/lib/feed/").unwrap();
        assert_eq!(directory, SinkAddress::Directory("/var/lib/feed".into()));
        assert!(matches!(SinkAddress::parse("https://h/x").unwrap(), SinkAddress::Webhook(_)));
        for bad in ["", "dir:", "dir:/", "dir:a", "dir:/a/../b", "kafka://h", "/a", "dir:/a\0"] {
            assert!(SinkAddress::parse(bad).is_err(), "{bad}");
        }
        let kafka = SinkAddress::parse("kafka://h/topic");
        #[cfg(feature = "kafka")]
        assert!(matches!(kafka.unwrap(), SinkAddress::Kafka(_)));
        #[cfg(not(feature = "kafka"))]
        assert!(kafka.unwrap_err().message.contains("build with --features kafka"));
        let long = format!("dir:/{}", "x".repeat(SINK_BYTES_MAX));
        assert_eq!(SinkAddress::parse(&long).unwrap_err().kind, exacat_model::ErrorKind::Limit);
        assert!(SinkAddress::parse(&long[..SINK_BYTES_MAX]).is_ok());
    }
}
