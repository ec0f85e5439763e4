//! Endpoints of change feeds, below `/feeds`.

use exacat_feed::limits::{BYTES_DEFAULT, DAYS_DEFAULT, ROOM_DEFAULT};
use exacat_model::{AfterRestore, FeedAction, FeedName, FeedSpec, Lfn, Operation, Result};
use exacat_wire::json;

use super::arguments::Arguments;
use super::endpoints::{Endpoint, Run, View, body, endpoint, items, one};

fn name(arguments: &Arguments) -> Result<FeedName> {
    FeedName::parse(arguments.text()?)
}

fn control(arguments: &Arguments, action: FeedAction) -> Result<Operation> {
    Ok(Operation::FeedControl { name: name(arguments)?, action: Box::new(action) })
}

fn spec(new: json::FeedIn) -> Result<FeedSpec> {
    Ok(FeedSpec {
        sink: new.sink,
        under: new.under.as_deref().map(Lfn::parse).transpose()?,
        kinds: new.kinds,
        start: json::feed_start(new.from.as_deref().unwrap_or("now"))?,
        days: new.days.unwrap_or(DAYS_DEFAULT),
        bytes: new.bytes.unwrap_or(BYTES_DEFAULT),
        room: new.room.unwrap_or(ROOM_DEFAULT),
        copy_when_lost: new.copy_when_lost,
        after_restore: AfterRestore::new(new.undone_when_parted, new.copy_when_parted.unwrap_or(true)),
        allow_private: new.allow_private,
        secret: new.secret_file,
    })
}

/// Returns the endpoints of feeds.
pub(super) fn feed_endpoints() -> Vec<Endpoint> {
    vec![
        endpoint!("GET" "/feeds" listFeeds "Lists the change feeds of this server, for an operator.",
            &[], None, items::<json::FeedOut<'_>>(), |_| Ok(Operation::FeedList { name: None })),
        endpoint!("GET" "/feeds/{name}" getFeed "Returns a change feed of this server, for an operator.",
            &[], None, one::<json::FeedOut<'_>>(),
            |arguments| Ok(Operation::FeedList { name: Some(name(arguments)?) })),
        endpoint!("PUT" "/feeds/{name}" makeFeed
        "Makes a change feed on this server: it delivers events to a directory, webhook or topic.",
        &[], body::<json::FeedIn>(), one::<json::DoneOut<'_>>(),
        |arguments| {
            let spec = Box::new(spec(arguments.json()?)?);
            Ok(Operation::FeedCreate { name: name(arguments)?, spec })
        }),
        endpoint!("DELETE" "/feeds/{name}" dropFeed "Forgets a change feed; its sink keeps what it got.",
            &[], None, one::<json::DoneOut<'_>>(), |arguments| control(arguments, FeedAction::Drop)),
        endpoint!("POST" "/feeds/{name}/pause" pauseFeed "Stops a change feed until it is resumed.",
            &[], None, one::<json::DoneOut<'_>>(), |arguments| control(arguments, FeedAction::Pause)),
        endpoint!("POST" "/feeds/{name}/resume" resumeFeed "Lets a paused or failed change feed go on.",
            &[], None, one::<json::DoneOut<'_>>(), |arguments| control(arguments, FeedAction::Resume)),
        endpoint!("POST" "/feeds/{name}/rewind" rewindFeed "Lets a change feed go on from another position.",
        &[], body::<json::RewindIn>(), one::<json::DoneOut<'_>>(),
        |arguments| {
            let json::RewindIn { to } = arguments.json()?;
            control(arguments, FeedAction::Rewind(json::feed_start(&to)?))
        }),
    ]
}
