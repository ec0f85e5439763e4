//! Items that the rows of an export refer to: SEs, users and groups. An export writes them before
//! the rows; an import makes them on request.
//!
//! Exports keep only the data of users that rows need: no roles, subjects, tokens or quotas.

use exacat_model::operation::{SeSettings, UserSettings};
use exacat_model::{AccountName, Answer, ErrorKind, Lfn, Operation, Se, SeName, SeStatus};
use serde_json::{Map, Value, json};

use crate::catalogue::Catalogue;
use crate::counts::Counts;
use crate::error::Error;
use crate::listing::Preamble;
use crate::sending::unexpected;

/// Returns the objects for SEs, groups and users. Leaves out accounts that the caller may not see.
pub(crate) async fn describe<C: Catalogue>(catalogue: &C, ses: &[Se]) -> Result<Vec<Value>, Error> {
    let mut objects = Vec::new();
    let mut ses: Vec<&Se> = ses.iter().collect();
    ses.sort_by(|a, b| a.name.cmp(&b.name));
    for se in ses {
        let qos: Vec<&str> = se.qos.iter().map(AccountName::as_str).collect();
        let mut distances: Vec<(&str, u32)> =
            se.distances.iter().map(|(site, distance)| (site.as_str(), *distance)).collect();
        distances.sort_unstable();
        let mut object = json!({
            "name": se.name.as_str(), "prefix": se.prefix, "qos": qos, "status": se.status.name(),
            "distances": distances,
        });
        if !se.https.is_empty() {
            object["https"] = json!(se.https);
        }
        objects.push(json!({ "se": object }));
    }
    match catalogue.call(Operation::AccountList).await {
        Ok(Answer::Accounts { mut users, groups }) => {
            let mut names: Vec<AccountName> = groups.into_iter().map(|(_, name)| name).collect();
            names.sort();
            objects.extend(names.iter().map(|name| json!({ "group": name.as_str() })));
            users.sort_by(|a, b| a.name.cmp(&b.name));
            for user in users {
                let mut groups: Vec<&str> = user.groups.iter().map(AccountName::as_str).collect();
                groups.sort_unstable();
                objects.push(json!({ "user": {
                    "name": user.name.as_str(), "group": user.group.as_str(), "groups": groups,
                    "home": user.home.as_ref().map(Lfn::as_str),
                }}));
            }
        }
        Ok(_) => return Err(unexpected("account-list").into()),
        Err(error) if matches!(error.kind, ErrorKind::Denied | ErrorKind::Unauthenticated) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(objects)
}

/// Makes missing items; existing ones stay as they are.
pub(crate) async fn restore<C: Catalogue>(
    catalogue: &C,
    preamble: &Preamble,
    counts: &mut Counts,
) -> Result<(), Error> {
    for object in preamble.objects.iter().skip(1) {
        let bad = |what: &str| Error::options(format!("the export's {what} cannot be read: {object:?}"));
        let (operation, count) = if let Some(se) = object.get("se").and_then(Value::as_object) {
            let settings = se_settings(se).ok_or_else(|| bad("SE"))?;
            (Operation::SeSet(settings), &mut counts.ses_registered)
        } else if let Some(group) = object.get("group") {
            let name =
                group.as_str().and_then(|name| AccountName::parse(name).ok()).ok_or_else(|| bad("group"))?;
            (Operation::GroupAdd { name }, &mut counts.accounts_made)
        } else if let Some(user) = object.get("user").and_then(Value::as_object) {
            let settings = user_settings(user).ok_or_else(|| bad("user"))?;
            (Operation::UserSet(Box::new(settings)), &mut counts.accounts_made)
        } else {
            continue;
        };
        match catalogue.call(operation).await {
            Ok(_) => *count += 1,
            Err(error) if error.kind == ErrorKind::Exists => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn names(value: Option<&Value>) -> Option<Vec<AccountName>> {
    value?.as_array()?.iter().map(|name| AccountName::parse(name.as_str()?).ok()).collect()
}

fn se_settings(se: &Map<String, Value>) -> Option<SeSettings> {
    let distances = se.get("distances")?.as_array()?.iter().map(|pair| {
        let distance = u32::try_from(pair.get(1)?.as_u64()?).ok()?;
        Some((AccountName::parse(pair.get(0)?.as_str()?).ok()?, distance))
    });
    Some(SeSettings {
        name: SeName::parse(se.get("name")?.as_str()?).ok()?,
        number: None,
        prefix: Some(se.get("prefix")?.as_str()?.to_owned()),
        qos: Some(names(se.get("qos"))?),
        status: Some(SeStatus::parse(se.get("status")?.as_str()?).ok()?),
        distances: distances.collect::<Option<_>>()?,
        https: match se.get("https") {
            None => None,
            Some(https) => Some(https.as_str()?.to_owned()),
        },
        only_new: true,
    })
}

fn user_settings(user: &Map<String, Value>) -> Option<UserSettings> {
    let home = match user.get("home") {
        Some(Value::String(home)) => Some(Lfn::parse(home).ok()?),
        _ => None,
    };
    Some(UserSettings {
        name: AccountName::parse(user.get("name")?.as_str()?).ok()?,
        group: Some(AccountName::parse(user.get("group")?.as_str()?).ok()?),
        groups: Some(names(user.get("groups"))?),
        roles: None,
        may_become: None,
        subjects: None,
        home,
        disabled: None,
        only_new: true,
    })
}
