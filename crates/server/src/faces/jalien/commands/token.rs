//! Command for tokens, the certificates of our own authority.

use exacat_model::{AccountName, Error};
use exacat_wire::jalien::Item;

use super::{missing, options};
use crate::faces::jalien::authority::Holder;
use crate::faces::jalien::shell::{Command, Failure, Outcome, Shell};

pub(super) const COMMANDS: &[Command] = &[Command {
    name: "token",
    usage: "[-u USER] [-v DAYS] [-t user]\nIssues a token: a certificate to connect with, for you or for a USER that you may act as. It is good for \
            DAYS, and not for longer than the certificate you are connected with.",
    run: |s, o| Box::pin(token(s, o)),
}];

const DAY_MS: u64 = 24 * 3_600_000;
/// Default lifetime of a token, in days.
const DAYS: u64 = 2;

async fn token(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&[], &["u", "v", "t", "jobid", "hostname"], given)?;
    if let Some(kind) = options.value("t").filter(|kind| *kind != "user") {
        return Err(Failure::invalid(format!("tokens of users only are issued here, not of: {kind:.100}")));
    }
    if !options.rest.is_empty() {
        return Err(missing("token"));
    }
    let face = std::sync::Arc::clone(&shell.face);
    let current = shell.caller().name().cloned().ok_or_else(|| Error::denied("nobody gets no token"))?;
    let role = match options.value("u") {
        None => current,
        Some(text) => AccountName::parse(text)?,
    };
    let catalogue = &face.service.catalogue;
    // A token names its account and the role it acts as. A token for a role can only renew itself
    // for the same role and account. So the right to the role bounds it, however often it is
    // renewed.
    let (account, caller) = match &shell.shown.holder {
        Some(holder) if holder.role != holder.account => {
            if role != holder.role {
                let why = format!("this token is for the role {} only", holder.role);
                return Err(Error::denied(why).into());
            }
            (holder.account.clone(), catalogue.caller_named(&holder.account).await?)
        }
        _ => {
            let name = shell.base.name().cloned();
            (name.ok_or_else(|| Error::denied("nobody gets no token"))?, (*shell.base).clone())
        }
    };
    if role != account {
        catalogue.become_user(&caller, &role).await?;
    }
    let days = match options.value("v") {
        None => DAYS,
        Some(text) => text
            .parse()
            .ok()
            .filter(|days| *days > 0)
            .ok_or_else(|| Failure::invalid(format!("not a number of days: {text:.100}")))?,
    };
    let longest_ms = shell.face.settings.token_seconds_max.saturating_mul(1000);
    let lasts_ms = days.saturating_mul(DAY_MS).min(longest_ms);
    let now = shell.now();
    let expires = now.plus_ms(lasts_ms).min(shell.shown.expires);
    let token = face.authority.issue(&Holder { account, role }, now, expires).await?;
    let text = format!("{}{}", token.certificate, token.key);
    shell.say(Item::new().with("tokencert", token.certificate).with("tokenkey", token.key).saying(text)).await
}
