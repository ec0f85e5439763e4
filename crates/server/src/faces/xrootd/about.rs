//! Requests about the server, and about space.

use exacat_model::answer::QuotaInfo;
use exacat_model::operation::Owner;
use exacat_model::{Answer, ChecksumAlgorithm, Lfn, Operation, SeStatus};
use exacat_wire::xrootd::numbers::{SERVER_VERSION, request};

use super::request::{Outcome, RequestContext, Response, unexpected};

/// Returns the configuration: a line for each name, the name itself if it has no meaning here.
pub(super) fn config(context: &RequestContext, names: &[&str]) -> String {
    let line = |name: &&str| match *name {
        "version" => SERVER_VERSION.to_owned(),
        "role" => "manager".to_owned(),
        "chksum" => {
            let kinds = ChecksumAlgorithm::ALL.into_iter().enumerate();
            kinds.map(|(place, kind)| format!("{place}:{}", kind.name())).collect::<Vec<_>>().join(",")
        }
        "sitename" => context.with.face.settings.name.clone().unwrap_or_else(|| "sitename".to_owned()),
        // The server reads no file contents, binds no connections, keeps no attributes, and has no
        // open files.
        "bind_max" | "pio_max" | "readv_ior_max" | "readv_iov_max" | "tpc" | "fattr" => "0".to_owned(),
        other => other.to_owned(),
    };
    names.iter().map(line).collect::<Vec<_>>().join("\n") + "\n"
}

/// Returns the reason why a request is not supported, and the alternative.
pub(super) fn not_done(number: u16) -> &'static str {
    match number {
        request::TRUNCATE => "the content of a file never changes: write a new file, and remove the old one",
        request::PREPARE => {
            "nothing is staged by the catalogue: open the file, and its storage element does that"
        }
        request::FATTR => "extended attributes are not kept: tags are, by `exacat tag`",
        request::GPFILE => "a file is opened, and read or written where its bytes are",
        request::BIND => "a session has one connection here: further ones are for the servers with the bytes",
        _ => "nothing has to be signed here, so nothing that is signed is taken",
    }
}

/// Returns the number of writable storage elements. Their space is not known.
pub(super) fn file_system(context: &RequestContext) -> Response {
    let ses = context.with.face.service.catalogue.storage_elements();
    let online = ses.iter().filter(|se| se.status == SeStatus::Online).count();
    Response::Text(format!("{online} 0 0 0 0 0"))
}

/// Returns the usage below a directory, and the free part of the caller's quota.
pub(super) async fn space(context: &RequestContext, lfn: Lfn) -> Outcome {
    let used = match context.ask(Operation::Du { lfns: vec![lfn] }).await? {
        Answer::Usages(mut usages) => usages.pop().ok_or_else(unexpected)??.replica_bytes,
        _ => return Err(unexpected()),
    };
    let left = if context.is_somebody() { quota_left(context).await? } else { None };
    // Clients read 0 as unknown, and -1 as no quota.
    let (quota, free) = match left {
        Some((quota, free)) => (quota.to_string(), free),
        None => ("-1".to_owned(), 0),
    };
    let space = if left.is_some() { used.saturating_add(u128::from(free)) } else { 0 };
    Ok(Response::Text(format!(
        "oss.cgroup=public&oss.space={space}&oss.free={free}&oss.maxf={free}&oss.used={used}&oss.quota={quota}"
    )))
}

/// Returns the caller's own limit on bytes of replicas, and the free part of it.
async fn quota_left(context: &RequestContext) -> Outcome<Option<(u64, u64)>> {
    let Answer::Quotas(quotas) = context.ask(Operation::QuotaGet { owners: Vec::new() }).await? else {
        return Err(unexpected());
    };
    let own =
        |quota: &&QuotaInfo| matches!(&quota.owner, Owner::User(name) if name.as_str() == context.user());
    let Some(quota) = quotas.iter().find(own) else { return Ok(None) };
    let Some(limit) = quota.replica_bytes else { return Ok(None) };
    let taken = quota.used.replica_bytes.saturating_add(quota.reserved.replica_bytes);
    let free = u128::from(limit).saturating_sub(taken);
    Ok(Some((limit, u64::try_from(free).unwrap_or(u64::MAX))))
}
