//! Settings of a writer and of its streams.

use std::fmt;
use std::time::Duration;

use exacat_model::{Lfn, TagKey};
use exacat_wire::writer::Description;
use exacat_wire::writer::limits::{
    BLOCK_BYTES, LABEL_BYTES_MAX, NAME_BYTES_MAX, SERVICES_MAX, TAG_VALUE_BYTES_MAX, TAGS_MAX,
    TOKEN_BYTES_MAX,
};
use exacat_writer::FileNames;
use exacat_writer::limits::{BUFFER_BYTES_MIN, STREAM_BUFFERS_MIN};

use crate::error::{Error, Result};
use crate::security::Security;

/// Settings of a writer.
#[derive(Clone)]
pub struct WriterSettings {
    /// Addresses of services, `HOST:PORT`. One that answers is enough: it knows the others.
    pub seeds: Vec<String>,
    /// Protection of the connections.
    pub security: Security,
    /// Name of the program, for logs.
    pub name: String,
    /// Token of the catalogue. It counts before a certificate in `security`.
    pub token: Option<String>,
    /// Memory for events that are not durable: the bound for all streams together.
    pub memory_bytes: usize,
    /// True to allocate and touch all of it at the connection. Otherwise the first use of each part takes
    /// longer.
    pub prepare_memory: bool,
    /// Memory in which a chunk is filled: 64 KiB to 1 MiB, a power of two. Each stream needs two of them, so
    /// that less makes room for more streams.
    pub buffer_bytes: usize,
    /// Age at which events are sent that fill no chunk.
    pub linger: Duration,
    /// Time for a connection to be made, and for the first service to answer.
    pub connect_timeout: Duration,
    /// Silence after which a service is left. Also the longest stall when one hangs.
    pub silence_timeout: Duration,
    /// Pause after a service has failed, before it is tried again.
    pub retry_pause: Duration,
    /// Time in which [`crate::Stream::append`] waits for memory.
    pub append_timeout: Duration,
    /// Time in which [`crate::Stream::flush`] waits for the disks.
    pub flush_timeout: Duration,
    /// Time in which a close waits for certificates.
    pub close_timeout: Duration,
    /// Threads for the connections.
    pub threads: usize,
}

impl fmt::Debug for WriterSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seeds, name) = (&self.seeds, &self.name);
        f.debug_struct("WriterSettings").field("seeds", seeds).field("name", name).finish_non_exhaustive()
    }
}

impl WriterSettings {
    /// Returns the usual settings for these seeds.
    pub fn new(seeds: impl IntoIterator<Item = impl Into<String>>, security: Security) -> Self {
        WriterSettings {
            seeds: seeds.into_iter().map(Into::into).collect(),
            security,
            name: "writer".to_owned(),
            token: None,
            memory_bytes: 256 << 20,
            prepare_memory: false,
            buffer_bytes: BLOCK_BYTES,
            linger: Duration::from_millis(5),
            connect_timeout: Duration::from_secs(2),
            silence_timeout: Duration::from_secs(2),
            retry_pause: Duration::from_millis(500),
            append_timeout: Duration::from_secs(30),
            flush_timeout: Duration::from_secs(30),
            close_timeout: Duration::from_secs(60),
            threads: 1,
        }
    }

    /// Checks the settings.
    pub(crate) fn check(&self) -> Result<()> {
        let is_size = self.buffer_bytes.is_power_of_two();
        let is_within = (BUFFER_BYTES_MIN..=BLOCK_BYTES).contains(&self.buffer_bytes);
        let faults = [
            (self.seeds.is_empty(), "a writer needs the address of a service"),
            (self.seeds.len() > SERVICES_MAX, "a writer has at most 64 seeds"),
            (!is_size || !is_within, "buffer_bytes is a power of two from 64 KiB to 1 MiB"),
            (
                self.memory_bytes < STREAM_BUFFERS_MIN * self.buffer_bytes,
                "memory_bytes is at least two times buffer_bytes",
            ),
            (self.name.len() > NAME_BYTES_MAX, "the name of a writer has at most 255 bytes"),
            (
                self.token.as_ref().is_some_and(|of| of.len() > TOKEN_BYTES_MAX),
                "a token has at most 4096 bytes",
            ),
            (self.silence_timeout.is_zero() || self.connect_timeout.is_zero(), "a time-out is longer than 0"),
        ];
        match faults.into_iter().find(|(is_fault, _)| *is_fault) {
            Some((_, reason)) => Err(Error::Settings(reason.to_owned())),
            None => Ok(()),
        }
    }
}

/// Settings of a stream.
#[derive(Clone, Debug)]
pub struct StreamSettings {
    /// Run of the data taking.
    pub run: String,
    /// Name of the stream.
    pub stream: String,
    /// Name of its files in the catalogue; [`FileNames`] says what comes behind it.
    pub lfn: String,
    /// Tags of its files: keys and values.
    pub tags: Vec<(String, String)>,
    /// Names of its files.
    pub names: FileNames,
    /// Bytes after which a file ends.
    pub file_bytes_max: u64,
    /// Events after which a file ends.
    pub file_events_max: u64,
    /// Age at which a file ends.
    pub file_age_max: Duration,
}

impl StreamSettings {
    /// Returns the usual settings: numbered files of at most 4 GiB and one hour.
    pub fn new(run: impl Into<String>, stream: impl Into<String>, lfn: impl Into<String>) -> Self {
        StreamSettings {
            run: run.into(),
            stream: stream.into(),
            lfn: lfn.into(),
            tags: Vec::new(),
            names: FileNames::Numbered(1),
            file_bytes_max: 4 << 30,
            file_events_max: u64::MAX,
            file_age_max: Duration::from_secs(3600),
        }
    }

    /// Checks the settings, and returns those of the packer.
    pub(crate) fn checked(&self, linger: Duration) -> Result<exacat_writer::StreamSettings> {
        let wrong = |what: &str, error: &dyn fmt::Display| Error::Settings(format!("{what}: {error}"));
        let labels = [&self.run, &self.stream];
        let values = self.tags.iter().map(|(_, value)| value);
        let faults = [
            (labels.iter().any(|of| of.len() > LABEL_BYTES_MAX), "a run and a stream have at most 64 bytes"),
            (self.tags.len() > TAGS_MAX, "a file has at most 32 tags"),
            (
                values.clone().any(|of| of.len() > TAG_VALUE_BYTES_MAX),
                "the value of a tag has at most 1024 bytes",
            ),
            (self.file_bytes_max == 0 || self.file_events_max == 0, "a file has at least one event"),
            (self.file_age_max.is_zero(), "the age of a file is longer than 0"),
        ];
        if let Some((_, reason)) = faults.into_iter().find(|(is_fault, _)| *is_fault) {
            return Err(Error::Settings(reason.to_owned()));
        }
        let lfn = Lfn::parse(&self.lfn).map_err(|error| wrong(&self.lfn, &error))?;
        if let FileNames::Numbered(_) = self.names {
            let longest = format!("{lfn}.{}", u64::MAX);
            Lfn::parse(&longest).map_err(|error| wrong("the name with a number behind it", &error))?;
        }
        let tag = |(key, value): &(String, String)| {
            let key = TagKey::parse(key).map_err(|error| wrong(key, &error))?;
            Ok((key, value.clone()))
        };
        let tags = self.tags.iter().map(tag).collect::<Result<Vec<_>>>()?;
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
        Ok(exacat_writer::StreamSettings {
            description: Description { run: self.run.clone(), stream: self.stream.clone(), lfn, tags },
            names: self.names,
            file_bytes_max: self.file_bytes_max,
            file_events_max: self.file_events_max,
            file_ms_max: milliseconds(self.file_age_max),
            linger_ms: milliseconds(linger),
        })
    }
}
