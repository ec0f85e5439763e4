//! `quota`, `user`, `group`, `token`, `whoami`: accounts, their rights and limits.

use std::io::Write;

use exacat_model::answer::{QuotaInfo, TokenInfo, UserInfo};
use exacat_model::operation::UserSettings;
use exacat_model::{AccountName, Answer, Error, Lfn, Operation, Role, TokenId};
use exacat_wire::json;

use crate::args::{GroupCommand, QuotaCommand, TokenCommand, UserCommand, UserOptions};
use crate::context::Context;
use crate::failure::{Failure, OnInterrupt, say};
use crate::output::human::{UNKNOWN, folded, minute};
use crate::output::{Align, Table};
use crate::parse;

/// `exacat quota`
pub(crate) async fn quota(context: &mut Context, command: QuotaCommand) -> Result<(), Failure> {
    match command {
        QuotaCommand::Get { owners } => {
            let owners = owners.iter().map(|text| parse::owner(text)).collect::<Result<_, _>>()?;
            let list = quotas(context, owners).await?;
            show_quotas(context, &list)
        }
        QuotaCommand::Set { owner, files, bytes, replica_bytes } => {
            if files.is_none() && bytes.is_none() && replica_bytes.is_none() {
                return Err(Failure::local("nothing to set: give --files, --bytes or --replica-bytes"));
            }
            let text = owner;
            let owner = parse::owner(&text)?;
            let wanted = |given: &Option<String>, read: fn(&str) -> exacat_model::Result<u64>| {
                given.as_deref().map(|text| parse::limit(text, read)).transpose()
            };
            let (files, bytes, replica_bytes) = (
                wanted(&files, parse::count)?,
                wanted(&bytes, parse::bytes)?,
                wanted(&replica_bytes, parse::bytes)?,
            );
            // The server sets all limits together, so the others keep their present values.
            let known = quotas(context, vec![owner.clone()]).await.map_err(|failure| match failure {
                Failure::Catalogue { error, .. } => Failure::about(&text, error),
                other => other,
            })?;
            let known = known.first();
            let set = Operation::QuotaSet {
                owner,
                files: files.unwrap_or_else(|| known.and_then(|info| info.files)),
                bytes: bytes.unwrap_or_else(|| known.and_then(|info| info.bytes)),
                replica_bytes: replica_bytes.unwrap_or_else(|| known.and_then(|info| info.replica_bytes)),
            };
            context.change(&text, set).await?;
            Ok(())
        }
    }
}

async fn quotas(
    context: &Context,
    owners: Vec<exacat_model::operation::Owner>,
) -> Result<Vec<QuotaInfo>, Failure> {
    match context.call(Operation::QuotaGet { owners }).await? {
        Answer::Quotas(list) => Ok(list),
        other => Err(Failure::unexpected(&other)),
    }
}

fn show_quotas(context: &mut Context, list: &[QuotaInfo]) -> Result<(), Failure> {
    if context.out.style.json {
        return list.iter().try_for_each(|info| context.out.json(&json::quota(info)));
    }
    let mut table = Table::headed([
        ("OWNER", Align::Left),
        ("WHAT", Align::Left),
        ("USED", Align::Right),
        ("RESERVED", Align::Right),
        ("LIMIT", Align::Right),
    ]);
    for info in list {
        let (used, reserved) = (&info.used, &info.reserved);
        let size = |bytes: u128| context.out.size(bytes);
        let rows = [
            (
                "files",
                used.objects().to_string(),
                reserved.objects().to_string(),
                info.files.map(|limit| limit.to_string()),
            ),
            (
                "bytes",
                size(used.bytes + used.member_bytes),
                size(reserved.bytes + reserved.member_bytes),
                info.bytes.map(|limit| size(u128::from(limit))),
            ),
            (
                "replica-bytes",
                size(used.replica_bytes),
                size(reserved.replica_bytes),
                info.replica_bytes.map(|limit| size(u128::from(limit))),
            ),
        ];
        for (what, used, reserved, limit) in rows {
            let limit = limit.unwrap_or_else(|| UNKNOWN.to_owned());
            table.row([json::owner(&info.owner), what.to_owned(), used, reserved, limit]);
        }
    }
    context.out.table(&table)
}

async fn accounts(context: &Context) -> Result<(Vec<UserInfo>, Vec<(u32, AccountName)>), Failure> {
    match context.call(Operation::AccountList).await? {
        Answer::Accounts { users, groups } => Ok((users, groups)),
        other => Err(Failure::unexpected(&other)),
    }
}

fn user_settings(
    text: &str,
    options: &UserOptions,
    disabled: Option<bool>,
    only_new: bool,
) -> exacat_model::Result<UserSettings> {
    // An empty list removes all.
    let names = |list: &Option<Vec<String>>| {
        list.as_ref()
            .map(|list| {
                list.iter().filter(|name| !name.is_empty()).map(|name| AccountName::parse(name)).collect()
            })
            .transpose()
    };
    let roles = options.roles.as_ref().map(|list| {
        list.iter()
            .filter(|name| !name.is_empty())
            .map(|name| Role::parse(name))
            .collect::<Result<Vec<_>, _>>()
    });
    Ok(UserSettings {
        name: AccountName::parse(text)?,
        group: options.group.as_deref().map(AccountName::parse).transpose()?,
        groups: names(&options.groups)?,
        roles: roles.transpose()?,
        may_become: names(&options.may_become)?,
        subjects: options.subject.clone(),
        home: options.home.as_deref().map(parse::lfn).transpose()?,
        disabled,
        only_new,
    })
}

/// `exacat user`
pub(crate) async fn user(context: &mut Context, command: UserCommand) -> Result<(), Failure> {
    match command {
        UserCommand::Add { name, options } => {
            let settings = user_settings(&name, &options, None, true)?;
            context.change(&name, Operation::UserSet(Box::new(settings))).await?;
        }
        UserCommand::Set { name, options, disable, enable } => {
            let disabled = if disable { Some(true) } else { enable.then_some(false) };
            let settings = user_settings(&name, &options, disabled, false)?;
            let (users, _) = accounts(context).await?;
            if !users.iter().any(|user| user.name == settings.name) {
                // Setting would create it.
                let error = Error::not_found("there is no such user; 'exacat user add' makes one");
                return Err(Failure::about(&name, error));
            }
            context.change(&name, Operation::UserSet(Box::new(settings))).await?;
        }
        UserCommand::Rm { name } => {
            context.change(&name, Operation::UserDrop { name: AccountName::parse(&name)? }).await?;
        }
        UserCommand::Ls => {
            let (users, _) = accounts(context).await?;
            if context.out.style.json {
                return users.iter().try_for_each(|user| context.out.json(&json::user(user)));
            }
            let mut table = Table::headed([
                ("USER", Align::Left),
                ("ID", Align::Right),
                ("GROUP", Align::Left),
                ("GROUPS", Align::Left),
                ("ROLES", Align::Left),
                ("STATE", Align::Left),
                ("HOME", Align::Left),
            ]);
            for user in &users {
                table.row(user_row(context, user));
            }
            context.out.table(&table)?;
        }
    }
    Ok(())
}

fn user_row(context: &Context, user: &UserInfo) -> Vec<String> {
    let joined = |names: Vec<&str>| if names.is_empty() { UNKNOWN.to_owned() } else { names.join(",") };
    vec![
        user.name.to_string(),
        user.id.to_string(),
        user.group.to_string(),
        joined(user.groups.iter().map(AccountName::as_str).collect()),
        joined(user.roles.iter().map(|role| role.name()).collect()),
        if user.disabled { "disabled" } else { "enabled" }.to_owned(),
        user.home.as_ref().map_or(UNKNOWN.into(), |home| context.out.name(home.as_str()).to_string()),
    ]
}

/// `exacat group`
pub(crate) async fn group(context: &mut Context, command: GroupCommand) -> Result<(), Failure> {
    match command {
        GroupCommand::Add { name } => {
            context.change(&name, Operation::GroupAdd { name: AccountName::parse(&name)? }).await?;
        }
        GroupCommand::Rm { name } => {
            context.change(&name, Operation::GroupDrop { name: AccountName::parse(&name)? }).await?;
        }
        GroupCommand::Ls => {
            let (users, groups) = accounts(context).await?;
            let mut table =
                Table::headed([("GROUP", Align::Left), ("ID", Align::Right), ("USERS", Align::Left)]);
            for (number, name) in &groups {
                let group = json::group(*number, name, &users);
                if context.out.style.json {
                    context.out.json(&group)?;
                } else {
                    let mut lines = folded(group.users, NAMES_LINE_MAX).into_iter();
                    let first = lines.next().unwrap_or_default();
                    table.row([name.to_string(), number.to_string(), first]);
                    lines.for_each(|line| table.row([String::new(), String::new(), line]));
                }
            }
            if !context.out.style.json {
                context.out.table(&table)?;
            }
        }
    }
    Ok(())
}

/// Characters of a line of names.
const NAMES_LINE_MAX: usize = 50;

/// `exacat token`
pub(crate) async fn token(context: &mut Context, command: TokenCommand) -> Result<(), Failure> {
    match command {
        TokenCommand::Issue { user, scope, write, lifetime, note, out } => {
            let issue = Operation::TokenIssue {
                user: user.as_deref().map(AccountName::parse).transpose()?,
                scope: parse::lfn(&scope).map_err(|error| Failure::about(&scope, error))?,
                write,
                lifetime_seconds: parse::seconds(&lifetime)?,
                note,
            };
            issue_token(context, issue, out.as_deref()).await?;
        }
        TokenCommand::Revoke { ids } => {
            let mut names = context.names(&ids);
            while let Some(batch) = names.next_batch().await? {
                let tokens = tokens(context).await?;
                for text in batch {
                    let revoked = match token_named(&tokens, &text) {
                        Ok(id) => context.call(Operation::TokenRevoke { id }).await,
                        Err(error) => Err(error),
                    };
                    match revoked {
                        Ok(_) => context.show_done(&text)?,
                        Err(error) => context.fail(&text, &error),
                    }
                }
            }
        }
        TokenCommand::Ls => {
            let tokens = tokens(context).await?;
            if context.out.style.json {
                return tokens.iter().try_for_each(|token| context.out.json(&json::token(token)));
            }
            let mut table = Table::headed([
                ("ID", Align::Left),
                ("USER", Align::Left),
                ("MAY", Align::Left),
                ("EXPIRES", Align::Left),
                ("SCOPE", Align::Left),
                ("NOTE", Align::Left),
            ]);
            for token in &tokens {
                table.row([
                    short_id(&tokens, token.id),
                    token.user.to_string(),
                    if token.write { "write" } else { "read" }.to_owned(),
                    minute(token.expires),
                    context.out.name(token.scope.as_str()).to_string(),
                    context.out.name(&token.note).to_string(),
                ]);
            }
            context.out.table(&table)?;
        }
    }
    Ok(())
}

async fn tokens(context: &Context) -> Result<Vec<TokenInfo>, Failure> {
    match context.call(Operation::TokenList).await? {
        Answer::Tokens(tokens) => Ok(tokens),
        other => Err(Failure::unexpected(&other)),
    }
}

/// Minimum digits of a token's id in output.
pub(crate) const ID_DIGITS_SHOWN: usize = 8;
/// Minimum digits that name a token: fewer are a typing error rather than an id.
const ID_DIGITS_MIN: usize = 4;

/// Returns the shortest beginning of a token's id that no other token has.
fn short_id(tokens: &[TokenInfo], id: TokenId) -> String {
    let whole = json::token_id(id);
    let taken = |digits: usize| {
        tokens.iter().any(|other| other.id != id && json::token_id(other.id).starts_with(&whole[..digits]))
    };
    let digits = (ID_DIGITS_SHOWN..whole.len()).find(|digits| !taken(*digits)).unwrap_or(whole.len());
    whole[..digits].to_owned()
}

/// Finds the token with this id, or the only one whose id begins so. Earlier versions showed
/// decimal ids.
fn token_named(tokens: &[TokenInfo], text: &str) -> exacat_model::Result<TokenId> {
    if let Some(token) =
        tokens.iter().find(|token| json::token_id(token.id) == text || token.id.0.to_string() == text)
    {
        return Ok(token.id);
    }
    let wanted = text.to_ascii_lowercase();
    let mut found = tokens.iter().filter(|token| json::token_id(token.id).starts_with(&wanted));
    match (found.next(), found.next()) {
        _ if text.len() < ID_DIGITS_MIN => {
            Err(Error::not_found(format!("no token is named by fewer than {ID_DIGITS_MIN} digits of its id")))
        }
        (Some(token), None) => Ok(token.id),
        (Some(_), Some(_)) => Err(Error::invalid("several tokens have ids that begin so: give more digits")),
        (None, _) => {
            Err(Error::not_found("no such token, as far as you may see; 'exacat token ls' lists them"))
        }
    }
}

fn may(write: bool) -> &'static str {
    if write { "read,write" } else { "read" }
}

async fn issue_token(
    context: &mut Context,
    issue: Operation,
    file: Option<&std::path::Path>,
) -> Result<(), Failure> {
    // The file first: a secret that cannot be written would be lost.
    let file = match file {
        Some(path) => Some((path, super::exchange::open_secret(path).await?)),
        None => None,
    };
    let interrupted = OnInterrupt::say(
        "the token may have been issued: 'exacat token ls' shows it, 'exacat token revoke' ends it",
    );
    let answer = context.call(issue).await;
    interrupted.over();
    // Without an answer the empty file is removed again.
    let answer = answer?;
    let Answer::TokenIssued { token, secret } = answer else { return Err(Failure::unexpected(&answer)) };
    if let Some((path, file)) = file {
        let mut writer = file.writer().map_err(super::exchange::failure)?;
        let written =
            writeln!(writer, "{secret}").map_err(|error| exacat_exchange::Error::file("write", path, error));
        written.and_then(|()| file.finish()).map_err(|error| super::exchange::of_output(error, path))?;
        if context.out.style.json {
            return context.out.json(&json::token(&token));
        }
    } else if context.out.style.json {
        return context.out.json(&json::TokenOut { secret: Some(&secret), ..json::token(&token) });
    } else {
        context.out.line(&secret)?;
        context.out.flush()?;
    }
    if !context.out.style.quiet {
        let scope = crate::quoting::quoted(token.scope.as_str());
        say(&format!(
            "token {} of {}: {} below {scope} until {}",
            &json::token_id(token.id)[..ID_DIGITS_SHOWN],
            token.user,
            may(token.write),
            token.expires
        ));
    }
    Ok(())
}

/// `exacat whoami`
pub(crate) async fn whoami(context: &mut Context) -> Result<(), Failure> {
    let answer = context.call(Operation::Whoami).await?;
    let Answer::Whoami { user, scope, write } = answer else { return Err(Failure::unexpected(&answer)) };
    if context.out.style.json {
        return context.out.json(&json::whoami(user.as_deref(), &scope, write));
    }
    let mut table = Table::new([Align::Left, Align::Left]);
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    match &user {
        None => row("user", "anonymous".to_owned()),
        Some(user) => {
            let shown = user_row(context, user);
            for (name, value) in ["user", "id", "group", "groups", "roles"].into_iter().zip(shown) {
                row(name, value);
            }
        }
    }
    row("may", may(write).to_owned());
    if scope != Lfn::root() {
        row("below", context.out.name(scope.as_str()).to_string());
    }
    context.out.table(&table)
}
