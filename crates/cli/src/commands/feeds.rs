//! `feed`: the change feeds of a server.

use exacat_model::{AfterRestore, Answer, Feed, FeedAction, FeedName, FeedSpec, HasRevision, Operation};
use exacat_wire::json;

use crate::args::{FeedCommand, FeedCreateArgs};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::human::{duration, second};
use crate::output::{Align, Table};
use crate::parse;

/// `exacat feed`
pub(crate) async fn feed(context: &mut Context, command: FeedCommand) -> Result<(), Failure> {
    match command {
        FeedCommand::Create(args) => create(context, *args).await,
        FeedCommand::Ls {} => {
            let all = listed(context, None).await?;
            if context.out.style.json {
                return all.iter().try_for_each(|one| context.out.json(&json::feed(one)));
            }
            table(context, &all)
        }
        FeedCommand::Show { name } => {
            let all = listed(context, Some(FeedName::parse(&name)?)).await?;
            if context.out.style.json {
                return all.iter().try_for_each(|one| context.out.json(&json::feed(one)));
            }
            all.iter().try_for_each(|one| show(context, one))
        }
        FeedCommand::Pause { name } => control(context, &name, FeedAction::Pause).await,
        FeedCommand::Resume { name } => control(context, &name, FeedAction::Resume).await,
        FeedCommand::Rewind { name, to } => {
            control(context, &name, FeedAction::Rewind(json::feed_start(&to)?)).await
        }
        FeedCommand::Drop { name } => control(context, &name, FeedAction::Drop).await,
    }
}

async fn create(context: &mut Context, args: FeedCreateArgs) -> Result<(), Failure> {
    let spec = FeedSpec {
        sink: args.sink,
        under: args.under.as_deref().map(parse::lfn).transpose()?,
        kinds: args.kinds,
        start: json::feed_start(&args.from)?,
        days: args.days,
        bytes: parse::bytes(&args.bytes)?,
        room: parse::bytes(&args.room)?,
        copy_when_lost: args.when_lost == "copy",
        after_restore: AfterRestore::new(args.undone, args.when_restored == "copy"),
        allow_private: args.allow_private,
        secret: args.secret_file,
    };
    let name = FeedName::parse(&args.name)?;
    let make = Operation::FeedCreate { name, spec: Box::new(spec) };
    context.call(make).await.map_err(|error| Failure::about(&args.name, error))?;
    context.show_done(&args.name)
}

async fn control(context: &mut Context, name: &str, action: FeedAction) -> Result<(), Failure> {
    let operation = Operation::FeedControl { name: FeedName::parse(name)?, action: Box::new(action) };
    context.call(operation).await.map_err(|error| Failure::about(name, error))?;
    context.show_done(name)
}

async fn listed(context: &mut Context, name: Option<FeedName>) -> Result<Vec<Feed>, Failure> {
    match context.call(Operation::FeedList { name }).await? {
        Answer::Feeds(all) => Ok(all),
        other => Err(Failure::unexpected(&other)),
    }
}

fn table(context: &mut Context, all: &[Feed]) -> Result<(), Failure> {
    let (left, right) = (Align::Left, Align::Right);
    let columns = [("FEED", left), ("STATE", left), ("REVISION", right), ("BEHIND", right), ("AGE", right)];
    let [feed, state, revision, behind, age] = columns;
    let mut table = Table::headed([feed, state, revision, behind, age, ("EVENTS", right), ("SINK", left)]);
    for one in all {
        table.row([
            one.name.to_string(),
            one.state.name().to_owned(),
            one.revision.0.to_string(),
            one.lag_changes.to_string(),
            duration(one.lag_ms),
            one.events.to_string(),
            context.out.name(&one.spec.sink).to_string(),
        ]);
    }
    context.out.table(&table)?;
    for one in all.iter().filter(|one| !one.reason.is_empty()) {
        let reason = context.out.name(&one.reason).to_string();
        context.out.line(format_args!("{}: {reason}", one.name))?;
    }
    Ok(())
}

fn show(context: &mut Context, one: &Feed) -> Result<(), Failure> {
    let spec = &one.spec;
    let out = &mut context.out;
    let shown = |text: &str| text.to_owned();
    let kinds = if spec.kinds.is_empty() { "all".to_owned() } else { spec.kinds.join(",") };
    let under = spec.under.as_ref().map_or("/", exacat_model::Lfn::as_str);
    let position = one.revision.on(one.timeline.tag()).to_string();
    let lines = [
        ("feed", one.name.to_string()),
        ("state", one.state.name().to_owned()),
        ("reason", shown(&one.reason)),
        ("sink", out.name(&spec.sink).to_string()),
        ("under", out.name(under).to_string()),
        ("kinds", kinds),
        ("position", position),
        ("behind", format!("{} changes, {}", one.lag_changes, duration(one.lag_ms))),
        ("copying", (if one.copying { "yes" } else { "no" }).to_owned()),
        ("events", format!("{}, {} failures", one.events, one.failures)),
        ("lost after", format!("{} days or {}", spec.days, out.size(u128::from(spec.bytes)))),
        ("room", out.size(u128::from(spec.room))),
        ("when lost", (if spec.copy_when_lost { "copy" } else { "stop" }).to_owned()),
        ("when restored", after_restore(spec.after_restore).to_owned()),
        ("made", format!("{} by {}", second(one.created), one.owner)),
    ];
    let mut table = Table::new([Align::Left, Align::Left]);
    for (name, value) in lines {
        if !value.is_empty() {
            table.row([name.to_owned(), value]);
        }
    }
    out.table(&table)
}

fn after_restore(what: AfterRestore) -> &'static str {
    match what {
        AfterRestore::Tell => "tell",
        AfterRestore::Copy => "copy",
        AfterRestore::Undone => "undone changes",
        AfterRestore::UndoneAndCopy => "undone changes, copy",
    }
}
