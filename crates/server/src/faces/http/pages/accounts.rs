//! People: users and groups, quotas, tokens.

use exacat_model::answer::{QuotaInfo, UserInfo};
use exacat_model::operation::Owner;
use exacat_model::{AccountName, Answer, Operation, Result};
use exacat_wire::json;
use hyper::Response;

use super::super::answers::Body;
use super::frame::Section;
use super::table::{CODE, Cell, NUMBER, TIME, Table, WIDE, WIDE_NUMBER, WIDE_TIME};
use super::tables::TablesPage;
use super::text::{url, visible, with};
use super::visit::{Visit, unfitting};

/// Most quotas of a request to the catalogue.
const QUOTAS_AT_ONCE: usize = 500;

fn names(names: &[AccountName]) -> String {
    names.iter().map(AccountName::as_str).collect::<Vec<_>>().join(" ")
}

async fn list(visit: &mut Visit<'_>) -> Result<(Vec<UserInfo>, Vec<(u32, AccountName)>)> {
    match visit.call.ask(Operation::AccountList).await? {
        Answer::Accounts { users, groups } => Ok((users, groups)),
        _ => Err(unfitting()),
    }
}

fn users_table(users: &[UserInfo]) -> Table {
    let columns = [
        ("User", ""),
        ("Group", ""),
        ("Further groups", WIDE),
        ("Roles", ""),
        ("May act as", WIDE),
        ("Subjects", CODE),
        ("Home", WIDE),
        ("State", ""),
    ];
    let mut table = Table::new("Users", &columns);
    for user in users {
        let roles: Vec<&str> = user.roles.iter().map(|role| role.name()).collect();
        table.push([
            Cell::text(&user.name),
            Cell::text(&user.group),
            Cell::text(names(&user.groups)),
            Cell::text(roles.join(" ")),
            Cell::text(names(&user.may_become)),
            Cell::text(user.subjects.join(", ")),
            user.home
                .as_ref()
                .map_or_else(Cell::default, |home| Cell::text(home).linked(url("/browse", home))),
            Cell::text(if user.disabled { "disabled" } else { "enabled" }),
        ]);
    }
    table
}

/// Answers with all users and groups.
pub(super) async fn users(mut visit: Visit<'_>) -> Result<Response<Body>> {
    let (users, groups) = list(&mut visit).await?;
    let mut table = Table::new("Groups", &[("Group", ""), ("Number", NUMBER), ("Users", "")]);
    for (id, name) in &groups {
        let of = json::group(*id, name, &users).users.join(" ");
        table.push([Cell::text(name), Cell::text(id), Cell::text(of)]);
    }
    let parts = vec![
        Section::new("Users", users_table(&users)).named("users"),
        Section::new("Groups", table).named("groups"),
    ];
    let frame = visit.frame.titled("Users and groups", "/users");
    TablesPage { frame, parts, ..TablesPage::default() }.answer(&visit, None)
}

/// Answers with the person's own account and rights.
pub(super) async fn account(mut visit: Visit<'_>) -> Result<Response<Body>> {
    let Answer::Whoami { user, scope, write } = visit.call.ask(Operation::Whoami).await? else {
        return Err(unfitting());
    };
    let mut rights = Table::new("Rights of this session", &[("Right", ""), ("Value", "")]);
    rights.push([Cell::text("Valid below"), Cell::text(&scope).linked(url("/browse", &scope))]);
    rights.push([Cell::text("May make changes"), Cell::text(if write { "yes" } else { "no" })]);
    if let Some(expires) = visit.call.caller().expires() {
        rights.push([Cell::text("Credentials expire (UTC)"), Cell::time(expires)]);
    }
    let mut parts = vec![Section::new("Rights", rights)];
    if let Some(user) = user {
        parts.push(Section::new("Account", users_table(&[*user])));
    }
    let frame = visit.frame.titled("Your account", "/account");
    TablesPage { frame, parts, ..TablesPage::default() }.answer(&visit, None)
}

/// Answers with limits and usage: the person's own, for an operator all.
pub(super) async fn quotas(mut visit: Visit<'_>) -> Result<Response<Body>> {
    let mut owners = Vec::new();
    if visit.frame.is_operator {
        let (users, groups) = list(&mut visit).await?;
        owners.extend(users.into_iter().map(|user| Owner::User(user.name)));
        owners.extend(groups.into_iter().map(|(_, name)| Owner::Group(name)));
    }
    let mut all = Vec::new();
    let asked: Vec<Vec<Owner>> = match owners.is_empty() {
        true => vec![Vec::new()],
        false => owners.chunks(QUOTAS_AT_ONCE).map(<[Owner]>::to_vec).collect(),
    };
    for owners in asked {
        match visit.call.ask(Operation::QuotaGet { owners }).await? {
            Answer::Quotas(some) => all.extend(some),
            _ => return Err(unfitting()),
        }
    }
    let columns = [
        ("Owner", ""),
        ("Files", NUMBER),
        ("of", NUMBER),
        ("Bytes", NUMBER),
        ("of", NUMBER),
        ("Bytes of replicas", WIDE_NUMBER),
        ("of", WIDE_NUMBER),
        ("Reserved", WIDE_NUMBER),
    ];
    let mut table = Table::new("Usage and limits", &columns);
    for QuotaInfo { owner, files, bytes, replica_bytes, used, reserved } in &all {
        // A bar is the share of a limit, reservations included.
        let against = |cell: Cell, used: u128, limit: &Option<u64>| match limit {
            Some(limit) => cell.barred(used, u128::from(*limit)),
            None => cell,
        };
        let limit =
            |limit: &Option<u64>, show: fn(u64) -> Cell| limit.map_or_else(|| Cell::text("no limit"), show);
        let number = used.files + used.members + used.others;
        let content = used.bytes + used.member_bytes;
        table.push([
            Cell::text(json::owner(owner)),
            against(Cell::count(number), u128::from(number + reserved.files), files),
            limit(files, Cell::count),
            against(Cell::bytes(content), content + reserved.bytes, bytes),
            limit(bytes, Cell::bytes),
            against(
                Cell::bytes(used.replica_bytes),
                used.replica_bytes + reserved.replica_bytes,
                replica_bytes,
            ),
            limit(replica_bytes, Cell::bytes),
            Cell::bytes(reserved.bytes),
        ]);
    }
    let intro = "Usage counts the trash until it is purged. A bar is the share of the limit.".to_owned();
    let parts = vec![Section::new("Users and groups", table).named("quotas")];
    let frame = visit.frame.titled("Quotas and usage", "/quotas");
    TablesPage { frame, intro, parts, ..TablesPage::default() }.answer(&visit, None)
}

/// Answers with tokens: the person's own, for an admin all.
pub(super) async fn tokens(mut visit: Visit<'_>) -> Result<Response<Body>> {
    let Answer::Tokens(all) = visit.call.ask(Operation::TokenList).await? else { return Err(unfitting()) };
    let columns = [
        ("Token", ""),
        ("User", ""),
        ("Valid below", CODE),
        ("Writes", WIDE),
        ("Issued (UTC)", WIDE_TIME),
        ("Expires (UTC)", TIME),
        ("Note", ""),
        ("Action", ""),
    ];
    let mut table = Table::new("Tokens", &columns);
    table.empty = "There is no token.";
    for token in &all {
        let id = json::token_id(token.id);
        let revoke = with("/action/token-revoke".to_owned(), "of", &id);
        table.push([
            Cell::text(&id),
            Cell::text(&token.user),
            Cell::text(&token.scope),
            Cell::text(if token.write { "yes" } else { "no" }),
            Cell::time(token.issued),
            Cell::time(token.expires),
            Cell::text(visible(&token.note)),
            Cell::text("Revoke").linked(revoke),
        ]);
    }
    let intro = "'exacat token issue' makes a token. Its secret is shown once, and not here.".to_owned();
    let parts = vec![Section::new("Tokens", table).named("tokens")];
    let frame = visit.frame.titled("Tokens", "/tokens");
    TablesPage { frame, intro, parts, ..TablesPage::default() }.answer(&visit, None)
}
