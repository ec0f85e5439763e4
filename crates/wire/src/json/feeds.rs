//! Feeds: what `exacat feed` prints, and how their starts are written.

use exacat_model::{Error, Feed, FeedStart, LogPosition, Result, Revision, TimeMs};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Shown, texts};

/// A feed with its progress.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Feed)]
pub struct FeedOut<'a> {
    /// Name.
    pub name: &'a str,
    /// `dir:/PATH` on the server's machine, or the URL of a webhook.
    pub sink: &'a str,
    /// Directory of its entries; left out for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under: Option<&'a str>,
    /// Effects that it shows; empty for all.
    pub kinds: &'a [String],
    /// `running`, `paused`, `lost` or `failed`.
    pub state: &'static str,
    /// Reason of the state, or the present trouble with the sink; left out if all is well.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: &'a str,
    /// True while a copy or undone changes are sent, and until the changes made meanwhile have followed.
    pub copying: bool,
    /// The sink has everything up to this revision.
    pub revision: u64,
    /// Timeline of that revision.
    pub timeline: String,
    /// Changes of the catalogue after that revision.
    pub lag_changes: u64,
    /// Age of the oldest of them.
    pub lag_seconds: f64,
    /// Estimated bytes of their events.
    pub lag_bytes: u64,
    /// Events that the sink acknowledged since the server started.
    pub events: u64,
    /// Failed attempts to deliver since the server started.
    pub failures: u64,
    /// User that made it.
    pub owner: &'a str,
    /// Time it was made.
    #[schema(value_type = String, format = "date-time")]
    pub created: Shown<TimeMs>,
    /// Age in days of an undelivered change at which it is lost.
    pub days: u32,
    /// Estimated bytes of undelivered events at which it is lost.
    pub bytes: u64,
    /// Bytes of segments in its directory at which it waits.
    pub room: u64,
    /// True if it starts again with a copy when it is lost.
    pub copy_when_lost: bool,
    /// True if it sends a copy after a restore.
    pub copy_when_parted: bool,
    /// True if it sends the changes that a restore undid.
    pub undone_when_parted: bool,
}

/// Converts a feed.
pub fn feed(feed: &Feed) -> FeedOut<'_> {
    let spec = &feed.spec;
    FeedOut {
        name: feed.name.as_str(),
        sink: &spec.sink,
        under: spec.under.as_ref().map(exacat_model::Lfn::as_str),
        kinds: &spec.kinds,
        state: feed.state.name(),
        reason: &feed.reason,
        copying: feed.copying,
        revision: feed.revision.0,
        timeline: feed.timeline.to_string(),
        lag_changes: feed.lag_changes,
        lag_seconds: feed.lag_ms as f64 / 1000.0,
        lag_bytes: feed.lag_bytes,
        events: feed.events,
        failures: feed.failures,
        owner: &feed.owner,
        created: Shown(feed.created),
        days: spec.days,
        bytes: spec.bytes,
        room: spec.room,
        copy_when_lost: spec.copy_when_lost,
        copy_when_parted: spec.after_restore.copies(),
        undone_when_parted: spec.after_restore.sends_undone(),
    }
}

/// Description of a new feed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewFeed, examples(json!({"sink": "dir:/srv/feed/mirror", "under": "/demo", "from": "copy"})))]
pub struct FeedIn {
    /// `dir:/PATH` on the server's machine, or the URL of a webhook.
    #[schema(value_type = texts::FeedSink)]
    pub sink: String,
    /// Only entries in this directory.
    #[schema(value_type = Option<texts::Lfn>)]
    pub under: Option<String>,
    /// Only these effects; all if left out.
    #[serde(default)]
    #[schema(value_type = Vec<texts::Effect>)]
    pub kinds: Vec<String>,
    /// `now` (if left out), `copy`, `start`, or a position `REVISION` or `REVISION.TIMELINE`.
    #[schema(value_type = Option<texts::FeedStart>)]
    pub from: Option<String>,
    /// Age in days of an undelivered change at which the feed is lost.
    #[schema(minimum = 1)]
    pub days: Option<u32>,
    /// Estimated bytes of undelivered events at which the feed is lost.
    #[schema(minimum = 1)]
    pub bytes: Option<u64>,
    /// Bytes of segments in its directory at which it waits.
    #[schema(minimum = 1)]
    pub room: Option<u64>,
    /// True to start again with a copy when it is lost.
    #[serde(default)]
    pub copy_when_lost: bool,
    /// False to only tell after a restore, without a copy.
    pub copy_when_parted: Option<bool>,
    /// True to send the changes that a restore undid, before a copy.
    #[serde(default)]
    pub undone_when_parted: bool,
    /// True to permit a webhook on a loopback, private or link-local address.
    #[serde(default)]
    pub allow_private: bool,
    /// File on the server's machine with the secret that signs requests to a webhook.
    #[schema(value_type = Option<texts::ServerPath>)]
    pub secret_file: Option<String>,
}

/// Position that a feed goes to.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = FeedPosition, examples(json!({"to": "copy"})))]
pub struct RewindIn {
    /// `now`, `copy`, `start`, or a position `REVISION` or `REVISION.TIMELINE`.
    #[schema(value_type = texts::FeedStart)]
    pub to: String,
}

/// Reads the start of a feed: `now`, `copy`, `start`, or a position in the history.
///
/// # Errors
/// Refuses other texts.
pub fn feed_start(text: &str) -> Result<FeedStart> {
    Ok(match text {
        "now" => FeedStart::Now,
        "copy" => FeedStart::Copy,
        "start" => FeedStart::After(Revision(0).into()),
        position => FeedStart::After(position.parse::<LogPosition>().map_err(|_| {
            Error::invalid(format!(
                "{position:.60?} is no start of a feed: give now, copy, start, or a revision (2315 or 2315.3f9a1c)"
            ))
        })?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_of_feeds_are_words_or_positions() {
        assert_eq!(feed_start("now").unwrap(), FeedStart::Now);
        assert_eq!(feed_start("copy").unwrap(), FeedStart::Copy);
        assert_eq!(feed_start("start").unwrap(), feed_start("0").unwrap());
        assert!(matches!(feed_start("2315.3f9a1c").unwrap(), FeedStart::After(at) if at.timeline.is_some()));
        for bad in ["", "Now", "-1", "2315.", "2315.zz", "18446744073709551616"] {
            let error = feed_start(bad).unwrap_err();
            assert!(error.message.contains("give now, copy, start"), "{bad} {error}");
        }
    }
}
