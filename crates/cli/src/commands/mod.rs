//! Commands: arguments in, operations to the server, answers out. They have no rules of the
//! catalogue.

mod accounts;
mod attributes;
mod by_se;
mod copy;
mod cp;
mod digest;
mod exchange;
mod find;
mod fsck;
mod history;
mod issuer;
mod listing;
mod lookup;
mod moving;
mod register;
mod schema;
mod serve;
mod service;
mod sets;
mod snapshots;
mod storage;
mod tags;
mod trash;
mod upload;

use futures::future::LocalBoxFuture;

use crate::advice::Advised;
use crate::args::{Cli, Command, Global, SnapshotCommand};
use crate::connect::Session;
use crate::context::Context;
use crate::failure::{Failure, report, status_of};
use crate::output::{Out, Style};
use crate::source::Source;

/// Runs a command and returns its exit status.
pub async fn run(cli: Cli) -> Result<u8, Failure> {
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
        Command::Serve(args) => return apart(serve::serve(*args, &global.connection, style)).await,
        Command::Issuer(command) => return issuer::issuer(command, &global.connection, style),
        Command::Schema(command) => return apart(schema::schema(command, style)).await,
        Command::Copy(args) => return apart(copy::copy(args, global, style)).await,
        Command::Bench(args) => return apart(service::bench(args, style)).await,
        Command::Snapshot(
            ref command @ (SnapshotCommand::Ls { offline: true }
            | SnapshotCommand::Verify { offline: true, .. }),
        ) => return snapshots::offline(command, &global.connection, style),
        Command::Clone(args) => return apart(snapshots::clone(args, &global.connection, style)).await,
        Command::Restore(args) => return apart(snapshots::restore(args, global, style)).await,
        Command::Backup(ref args) if args.ls || args.verify => {
            return apart(snapshots::backups(args, global, style)).await;
        }
        Command::Fsck(args) if args.offline => {
            return apart(fsck::offline(args, global, style)).await;
        }
        Command::Import(args) if args.offline => {
            return apart(exchange::import_offline(args, global, style)).await;
        }
        Command::Export(ref args) if args.place.is_here() => {
            return apart(whole(cli.command, cli.global, style)).await;
        }
        Command::Digest(ref args) if args.place.is_here() => {
            return apart(whole(cli.command, cli.global, style)).await;
        }
        Command::Generate(args) if args.listing.is_some() => {
            return apart(exchange::generate_listing(args, global, style)).await;
        }
        Command::Ls(ref args) => style.units |= args.short_units,
        Command::Du(ref args) => style.units |= args.short_units,
        _ => {}
    }
    let session = Session::open(&global.connection).await?;
    let advised = Advised::of(&cli.command);
    let mut context = Context::new(session, Out::new(style), advised);
    let ended = dispatch(&mut context, cli.command, &cli.global).await;
    // Earlier output must precede an error.
    let flushed = context.out.flush();
    let status = context.status();
    context.session.close().await;
    ended.map_err(|failure| failure.advised(advised))?;
    flushed?;
    Ok(status)
}

/// Boxes the future of a command: the compiler takes minutes for the sum of them all.
fn apart<'a, T>(work: impl Future<Output = T> + 'a) -> LocalBoxFuture<'a, T> {
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
        Command::Ls(args) => apart(listing::ls(context, args)),
        Command::Stat(args) => apart(listing::stat(context, args)),
        Command::Whereis(args) => apart(lookup::whereis(context, args)),
        Command::Lfn(args) => apart(lookup::lfn(context, args)),
        Command::Find(args) => apart(find::find(context, args)),
        Command::Du(args) => apart(lookup::du(context, args)),
        Command::Cp(args) => apart(async move { cp::cp(context, &args, global).await }),
        Command::Mkdir(args) => apart(moving::mkdir(context, args)),
        Command::Mv(args) => apart(moving::mv(context, args)),
        Command::Rm(args) => apart(moving::rm(context, args)),
        Command::Rmdir(args) => apart(moving::rmdir(context, args)),
        Command::Ln(args) => apart(moving::ln(context, args)),
        Command::Chmod(args) => apart(attributes::chmod(context, args)),
        Command::Chown(args) => apart(attributes::chown(context, args)),
        Command::Chgrp(args) => apart(attributes::chgrp(context, args)),
        Command::Touch(args) => apart(register::touch(context, args)),
        Command::Expire(args) => apart(attributes::expire(context, args)),
        Command::Register(args) => apart(register::register(context, args)),
        Command::Replica(command) => apart(register::replica(context, command)),
        Command::Upload(command) => apart(upload::upload(context, command)),
        Command::Tag(command) => apart(tags::tag(context, command)),
        Command::Collection(command) => apart(sets::collection(context, command)),
        Command::Archive(command) => apart(sets::archive(context, command)),
        Command::Trash(command) => apart(trash::trash(context, command)),
        Command::Log(args) => apart(history::log(context, args)),
        Command::Changes(args) => apart(history::changes(context, args)),
        Command::Se(command) => apart(storage::se(context, command)),
        Command::Quota(command) => apart(accounts::quota(context, command)),
        Command::User(command) => apart(accounts::user(context, command)),
        Command::Group(command) => apart(accounts::group(context, command)),
        Command::Token(command) => apart(accounts::token(context, command)),
        Command::Whoami(_) => apart(accounts::whoami(context)),
        Command::Import(args) => apart(exchange::import(context, args, global)),
        Command::Verify(args) => apart(exchange::verify(context, args, global)),
        Command::Export(args) => apart(async move {
            let source = Source::Server(context.session.client().clone());
            exchange::export(&source, &mut context.out, args, global).await
        }),
        Command::Digest(args) => apart(async move {
            let source = Source::Server(context.session.client().clone());
            if let Some((lfn, error)) = digest::digest(&source, &mut context.out, args, global).await? {
                context.fail(lfn.as_str(), &error);
            }
            Ok(())
        }),
        Command::Generate(args) => apart(exchange::generate(context, args, global)),
        Command::Fsck(_) => apart(service::fsck(context)),
        Command::Status(_) => apart(service::status(context)),
        Command::Clock(command) => apart(service::clock(context, command)),
        Command::Snapshot(command) => apart(snapshots::snapshot(context, command)),
        Command::Backup(args) => apart(async move { snapshots::backup(context, &args, global).await }),
        Command::Serve(_)
        | Command::Schema(_)
        | Command::Copy(_)
        | Command::Bench(_)
        | Command::Clone(_)
        | Command::Restore(_)
        | Command::Issuer(_)
        | Command::Completions(_) => return Err(Failure::local("this command takes no server")),
    };
    work.await
}
