//! What each command does: arguments in, operations to the server, answers out. No rules of the catalogue here.

mod accounts;
mod attributes;
mod exchange;
mod find;
mod fsck;
mod history;
mod listing;
mod lookup;
mod moving;
mod register;
mod serve;
mod service;
mod sets;
mod snapshots;
mod storage;
mod tags;
mod trash;
mod upload;

use crate::args::{Cli, Command, SnapshotCommand};
use crate::connect::Session;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Out, Style};

/// Runs a command and gives its exit status.
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
        Command::Serve(args) => return serve::serve(args, &global.connection, style).await,
        Command::Bench(args) => return service::bench(args, style).await,
        Command::Snapshot(
            ref command @ (SnapshotCommand::Ls { offline: true }
            | SnapshotCommand::Verify { offline: true, .. }),
        ) => return snapshots::offline(command, &global.connection, style),
        Command::Clone(args) => return snapshots::clone(args, &global.connection, style).await,
        Command::Restore(args) => return snapshots::restore(args, global, style).await,
        Command::Backup(ref args) if args.ls || args.verify => {
            return snapshots::backups(args, global, style).await;
        }
        Command::Fsck(args) if args.offline => return fsck::offline(args, global, style).await,
        Command::Generate(ref args) if let Some(path) = &args.listing => {
            return exchange::generate_listing(args, path, global, style);
        }
        Command::Ls(ref args) => style.units |= args.short_units,
        Command::Du(ref args) => style.units |= args.short_units,
        _ => {}
    }
    let session = Session::open(&global.connection).await?;
    let mut context = Context::new(session, Out::new(style));
    let ended = dispatch(&mut context, cli.command, &cli.global).await;
    // What was printed before an error comes before it.
    let flushed = context.out.flush();
    let status = context.status();
    context.session.close().await;
    ended?;
    flushed?;
    Ok(status)
}

async fn dispatch(
    context: &mut Context,
    command: Command,
    global: &crate::args::Global,
) -> Result<(), Failure> {
    match command {
        Command::Ls(args) => listing::ls(context, args).await,
        Command::Stat(args) => listing::stat(context, args).await,
        Command::Whereis(args) => lookup::whereis(context, args).await,
        Command::Lfn(args) => lookup::lfn(context, args).await,
        Command::Find(args) => find::find(context, args).await,
        Command::Du(args) => lookup::du(context, args).await,
        Command::Mkdir(args) => moving::mkdir(context, args).await,
        Command::Mv(args) => moving::mv(context, args).await,
        Command::Rm(args) => moving::rm(context, args).await,
        Command::Rmdir(args) => moving::rmdir(context, args).await,
        Command::Ln(args) => moving::ln(context, args).await,
        Command::Chmod(args) => attributes::chmod(context, args).await,
        Command::Chown(args) => attributes::chown(context, args).await,
        Command::Chgrp(args) => attributes::chgrp(context, args).await,
        Command::Touch(args) => register::touch(context, args).await,
        Command::Expire(args) => attributes::expire(context, args).await,
        Command::Register(args) => register::register(context, args).await,
        Command::Replica(command) => register::replica(context, command).await,
        Command::Upload(command) => upload::upload(context, command).await,
        Command::Tag(command) => tags::tag(context, command).await,
        Command::Collection(command) => sets::collection(context, command).await,
        Command::Archive(command) => sets::archive(context, command).await,
        Command::Trash(command) => trash::trash(context, command).await,
        Command::Log(args) => history::log(context, args).await,
        Command::Changes(args) => history::changes(context, args).await,
        Command::Se(command) => storage::se(context, command).await,
        Command::Quota(command) => accounts::quota(context, command).await,
        Command::User(command) => accounts::user(context, command).await,
        Command::Group(command) => accounts::group(context, command).await,
        Command::Token(command) => accounts::token(context, command).await,
        Command::Whoami(_) => accounts::whoami(context).await,
        Command::Import(args) => exchange::import(context, args, global).await,
        Command::Verify(args) => exchange::verify(context, args, global).await,
        Command::Export(args) => exchange::export(context, args, global).await,
        Command::Generate(args) => exchange::generate(context, args, global).await,
        Command::Fsck(_) => service::fsck(context).await,
        Command::Status(_) => service::status(context).await,
        Command::Snapshot(command) => snapshots::snapshot(context, command).await,
        Command::Backup(args) => snapshots::backup(context, &args, global).await,
        Command::Serve(_)
        | Command::Bench(_)
        | Command::Clone(_)
        | Command::Restore(_)
        | Command::Completions(_) => Err(Failure::local("this command takes no server")),
    }
}
