//! Commands: arguments in, operations to the server, answers out. They have no rules of the
//! catalogue.

mod accounts;
mod attributes;
mod biography;
mod by_se;
mod compare;
mod control;
mod copy;
mod cp;
mod diff;
mod digest;
mod during;
mod elements;
mod exchange;
mod feeds;
mod find;
mod follow;
mod fsck;
mod history;
mod issuer;
mod listing;
mod lookup;
mod moving;
mod promote;
mod reference;
mod register;
mod replay;
mod report;
mod requests;
mod schema;
mod serve;
mod service;
mod sets;
mod snapshots;
mod storage;
mod tags;
mod top;
mod trash;
mod upload;
mod writer;

use futures::future::LocalBoxFuture;

use crate::advice::Advised;
use crate::args::{Cli, Command, Global, HistoryCommand, SeCommand, SnapshotCommand};
use crate::connect::Session;
use crate::context::Context;
use crate::failure::{Failure, report, status_of};
use crate::output::{Out, Style};
use crate::source::Source;

/// Runs a command and returns its exit status.
pub(crate) async fn run(cli: Cli) -> Result<u8, Failure> {
    let global = &cli.global;
    let mut style = Style {
        json: global.json,
        null: global.null,
        units: global.units,
        verbose: global.verbose,
        quiet: global.quiet,
    };
    match cli.command {
        // These need no server, or are one.
        Command::Completions(args) => return service::completions(&args),
        Command::Reference(args) => return boxed(async move { reference::reference(&args).await }).await,
        Command::Serve(args) => return boxed(serve::serve(*args, &global.connection, style)).await,
        Command::Follow(args) => return boxed(follow::follow(*args, &global.connection, style)).await,
        Command::Promote => return boxed(promote::promote(&global.connection, style)).await,
        Command::Writer(command) => return boxed(writer::writer(*command, global, style)).await,
        Command::Replay(command) => return boxed(replay::replay(*command, global, style)).await,
        Command::Issuer(command) => return issuer::issuer(command, &global.connection, style),
        Command::Schema(command) => return boxed(schema::schema(command, style)).await,
        Command::Copy(args) => return boxed(copy::copy(args, global, style)).await,
        Command::Bench(args) => return boxed(service::bench(args, style)).await,
        Command::Snapshot(
            ref command @ (SnapshotCommand::Ls { offline: true }
            | SnapshotCommand::Verify { offline: true, .. }),
        ) => return snapshots::offline(command, &global.connection, style),
        Command::Clone(args) => return boxed(snapshots::clone(args, &global.connection, style)).await,
        Command::Restore(args) => return boxed(snapshots::restore(args, global, style)).await,
        Command::Backup(ref args) if args.ls || args.verify => {
            return boxed(snapshots::backups(args, global, style)).await;
        }
        Command::History(HistoryCommand::Adopt(args)) => {
            return boxed(elements::adopt::adopt(args, &global.connection, style)).await;
        }
        // It reads a server, a data directory, or snapshots.
        Command::Se(SeCommand::Compare(args)) => {
            return boxed(compare::compare(*args, global, style)).await;
        }
        Command::Fsck(args) if args.offline => {
            return boxed(fsck::offline(args, global, style)).await;
        }
        Command::Import(args) if args.offline => {
            return boxed(exchange::import_offline(args, global, style)).await;
        }
        Command::Export(ref args) if args.check.is_some() && !args.place.is_here() => {
            return boxed(exchange::tables::check_alone(args, global, style)).await;
        }
        Command::Export(ref args) if args.place.is_here() => {
            return boxed(whole(cli.command, cli.global, style)).await;
        }
        Command::Digest(ref args) if args.place.is_here() => {
            return boxed(whole(cli.command, cli.global, style)).await;
        }
        Command::Generate(args) if args.listing.is_some() => {
            return boxed(exchange::generate_listing(args, global, style)).await;
        }
        Command::Ls(ref args) => style.units |= args.short_units,
        Command::Du(ref args) => style.units |= args.short_units,
        _ => {}
    }
    let session = Session::open(&global.connection).await?;
    if let Some(position) = &global.connection.at_least {
        session.wait_for(position).await?;
    }
    let advised = Advised::of(&cli.command);
    let mut context = Context::new(session, Out::new(style), advised);
    let ended = dispatch(&mut context, cli.command, &cli.global).await;
    // Earlier output must precede an error.
    let flushed = context.out.flush();
    let status = context.status();
    if !(style.quiet || style.json) {
        context.session.tell_distance();
    }
    context.session.close().await;
    ended.map_err(|failure| failure.advised(advised))?;
    flushed?;
    Ok(status)
}

/// Boxes the future of a command: the compiler takes minutes for the sum of them all.
fn boxed<'a, T>(work: impl Future<Output = T> + 'a) -> LocalBoxFuture<'a, T> {
    Box::pin(work)
}

/// Exports or digests a catalogue on this machine.
async fn whole(command: Command, global: Global, style: Style) -> Result<u8, Failure> {
    let place = match &command {
        Command::Export(args) => &args.place,
        Command::Digest(args) => &args.place,
        _ => return Err(Failure::local("this takes a server")),
    };
    let source = Source::open(&global.connection, place).await?;
    let mut out = Out::new(style);
    let done = match command {
        Command::Export(args) => exchange::export(&source, &mut out, args, &global).await.map(|()| None),
        Command::Digest(args) => digest::digest(&source, &mut out, args, &global).await,
        _ => Ok(None),
    };
    let closed = source.close().await;
    out.flush()?;
    let differs = done?;
    closed?;
    Ok(differs.map_or(0, |(lfn, error)| {
        report(Some(lfn.as_str()), &error, None);
        status_of(error.kind)
    }))
}

async fn dispatch(context: &mut Context, command: Command, global: &Global) -> Result<(), Failure> {
    let work: LocalBoxFuture<'_, Result<(), Failure>> = match command {
        Command::Ls(args) => boxed(listing::ls(context, args)),
        Command::Stat(args) => boxed(listing::stat(context, args)),
        Command::Whereis(args) => boxed(lookup::whereis(context, args)),
        Command::Lfn(args) => boxed(lookup::lfn(context, args)),
        Command::Find(args) => boxed(find::find(context, args)),
        Command::Du(args) => boxed(lookup::du(context, args)),
        Command::Cp(args) => boxed(async move { cp::cp(context, &args, global).await }),
        Command::Mkdir(args) => boxed(moving::mkdir(context, args)),
        Command::Mv(args) => boxed(moving::mv(context, args)),
        Command::Rm(args) => boxed(moving::rm(context, args)),
        Command::Rmdir(args) => boxed(moving::rmdir(context, args)),
        Command::Ln(args) => boxed(moving::ln(context, args)),
        Command::Chmod(args) => boxed(attributes::chmod(context, args)),
        Command::Chown(args) => boxed(attributes::chown(context, args)),
        Command::Chgrp(args) => boxed(attributes::chgrp(context, args)),
        Command::Touch(args) => boxed(register::touch(context, args)),
        Command::Expire(args) => boxed(attributes::expire(context, args)),
        Command::Register(args) => boxed(register::register(context, args)),
        Command::Replica(command) => boxed(register::replica(context, command)),
        Command::Upload(command) => boxed(upload::upload(context, command)),
        Command::Tag(command) => boxed(tags::tag(context, command)),
        Command::Collection(command) => boxed(sets::collection(context, command)),
        Command::Archive(command) => boxed(sets::archive(context, command)),
        Command::Trash(command) => boxed(trash::trash(context, command)),
        Command::Log(args) => boxed(history::log(context, args)),
        Command::Diff(args) => boxed(diff::diff(context, args)),
        Command::Changes(args) => boxed(history::changes(context, args)),
        Command::History(command) => boxed(elements::history(context, command)),
        Command::Se(command) => boxed(storage::se(context, command)),
        Command::Quota(command) => boxed(accounts::quota(context, command)),
        Command::User(command) => boxed(accounts::user(context, command)),
        Command::Group(command) => boxed(accounts::group(context, command)),
        Command::Token(command) => boxed(accounts::token(context, command)),
        Command::Whoami(_) => boxed(accounts::whoami(context)),
        Command::Import(args) => boxed(exchange::import(context, args, global)),
        Command::Verify(args) => boxed(exchange::verify(context, args, global)),
        Command::Export(args) => boxed(async move {
            let source = Source::Server(context.session.client().clone());
            exchange::export(&source, &mut context.out, args, global).await
        }),
        Command::Digest(args) => boxed(async move {
            let source = Source::Server(context.session.client().clone());
            if let Some((lfn, error)) = digest::digest(&source, &mut context.out, args, global).await? {
                context.fail(lfn.as_str(), &error);
            }
            Ok(())
        }),
        Command::Generate(args) => boxed(exchange::generate(context, args, global)),
        Command::Fsck(_) => boxed(service::fsck(context)),
        Command::Status(_) => boxed(service::status(context)),
        Command::Sessions(args) => boxed(requests::sessions(context, args)),
        Command::Top(args) => boxed(top::top(context, args)),
        Command::Report(args) => boxed(report::report(context, args)),
        Command::Throttle(command) => boxed(control::throttle(context, command)),
        Command::Feed(command) => boxed(feeds::feed(context, command)),
        Command::Drain(args) => boxed(control::drain(context, args)),
        Command::Slow(_) => boxed(requests::slow(context)),
        Command::Clock(command) => boxed(service::clock(context, command)),
        Command::Snapshot(command) => boxed(snapshots::snapshot(context, command)),
        Command::Backup(args) => boxed(async move { snapshots::backup(context, &args, global).await }),
        Command::Serve(_)
        | Command::Follow(_)
        | Command::Promote
        | Command::Writer(_)
        | Command::Replay(_)
        | Command::Schema(_)
        | Command::Copy(_)
        | Command::Bench(_)
        | Command::Clone(_)
        | Command::Restore(_)
        | Command::Issuer(_)
        | Command::Completions(_)
        | Command::Reference(_) => return Err(Failure::local("this command takes no server")),
    };
    work.await
}
