//! Rows of the history: one for each change, with columns for what queries ask often, and both sides of a
//! change as JSON.

use std::io;

use exacat_columnar::TableWriter;
use exacat_model::answer::ChangeInfo;
use exacat_model::{At, Effect, Entry, EntryId, FieldChange, Lfn, TimelineId, UserId};
use exacat_wire::json::{self, SeNames};
use serde_json::{Map, Value};

use crate::rows_of_entries::micros;

/// Fields of a change that have columns.
#[derive(Default)]
struct Typed<'a> {
    kind: Option<&'static str>,
    size: Option<u64>,
    owner: Option<UserId>,
    se: Option<String>,
    old: Option<&'a At>,
    trash: Option<u64>,
    lfn: Option<&'a Lfn>,
}

impl<'a> Typed<'a> {
    fn of(change: &'a ChangeInfo, ses: &SeNames) -> Self {
        let mut typed = Typed { lfn: change.lfn.as_ref(), ..Typed::default() };
        let mut entry = |entry: &Entry| {
            (typed.kind, typed.size) = (Some(entry.kind().name()), entry.size());
            typed.owner = Some(entry.owner);
        };
        match &change.change.effect {
            Effect::Created { entry: made } => entry(made),
            Effect::Purged { entry: gone, .. } => entry(gone),
            Effect::Updated { fields, .. } => {
                for field in fields {
                    match field {
                        FieldChange::Size { after } => typed.size = Some(*after),
                        FieldChange::Owner { after, .. } => typed.owner = Some(*after),
                        FieldChange::Replica { before, after, .. } => {
                            let replica = after.as_ref().or(before.as_ref());
                            typed.se = replica.map(|replica| ses.name(replica.se).into_owned());
                        }
                        _ => {}
                    }
                }
            }
            Effect::Moved { from, .. } => typed.old = Some(from).filter(|from| !from.is_withheld()),
            // The root stands for a path that the caller may not see.
            Effect::Removed { lfn, .. } => {
                typed.lfn = Some(lfn).filter(|lfn| !lfn.is_root());
                typed.trash = Some(change.change.revision.0);
            }
            Effect::Restored { trash, .. } => typed.trash = Some(trash.0.0),
            Effect::Reserved { reservation, .. } => {
                (typed.size, typed.lfn) = (Some(reservation.size), Some(&reservation.lfn));
                typed.owner = Some(reservation.owner);
            }
            Effect::Released { reservation, se } => {
                (typed.size, typed.lfn) = (Some(reservation.size), Some(&reservation.lfn));
                typed.owner = Some(reservation.owner);
                typed.se = se.map(|se| ses.name(se).into_owned());
            }
            Effect::Committed { replica, created, .. } => {
                if let Some(made) = created {
                    entry(made);
                }
                typed.se = Some(ses.name(replica.se).into_owned());
            }
            Effect::Dequeued { se, .. } => typed.se = Some(ses.name(*se).into_owned()),
            Effect::Recorded { .. } => {}
        }
        typed
    }
}

/// Returns the key of a changed field: its name, and of a tag, replica, member or checksum which one it is.
fn key_of(field: &Value) -> String {
    let name = field["field"].as_str().unwrap_or_default();
    let which = match name {
        "tag" => field["key"].as_str(),
        "member" => field["guid"].as_str(),
        "replica" => field["after"]["se"].as_str().or(field["before"]["se"].as_str()),
        "checksum" => field["after"].as_str().and_then(|sum| sum.split(':').next()),
        _ => None,
    };
    which.map_or_else(|| name.to_owned(), |which| format!("{name}:{which}"))
}

/// Returns both sides of a change, of its description as `exacat changes --json` prints it.
fn sides(shown: &mut Value) -> (Option<Value>, Option<Value>) {
    let mut take = |name: &str| shown.get_mut(name).map(Value::take).filter(|value| !value.is_null());
    let effect = take("effect");
    match effect.as_ref().and_then(Value::as_str).unwrap_or_default() {
        "created" => (None, take("as")),
        "purged" => (take("as"), None),
        "moved" => (take("from"), take("to")),
        "restored" => (None, take("to")),
        "reserved" => (None, take("reserved")),
        "released" => (take("reserved"), None),
        "updated" => {
            let Some(Value::Array(fields)) = take("fields") else { return (None, None) };
            let (mut before, mut after) = (Map::new(), Map::new());
            for mut field in fields {
                let key = key_of(&field);
                match field.get("added").and_then(Value::as_bool) {
                    Some(added) => {
                        before.entry(key.clone()).or_insert(Value::Bool(!added));
                        after.insert(key, Value::Bool(added));
                    }
                    None => {
                        // Several changes of one field are one: the first has what was, the last what is.
                        before.entry(key.clone()).or_insert(field["before"].take());
                        after.insert(key, field["after"].take());
                    }
                }
            }
            (Some(Value::Object(before)), Some(Value::Object(after)))
        }
        "recorded" => {
            let dropped = take("dropped") == Some(Value::Bool(true));
            let record =
                ["record", "name"].into_iter().filter_map(|name| Some((name.to_owned(), take(name)?)));
            let record = Some(Value::Object(record.collect()));
            if dropped { (record, None) } else { (None, record) }
        }
        "dequeued" => (take("deleted"), None),
        _ => (None, None),
    }
}

/// Adds the row of a change.
pub(crate) fn change(
    out: &mut TableWriter,
    info: &ChangeInfo,
    timeline: TimelineId,
    ses: &SeNames,
) -> io::Result<()> {
    let change = &info.change;
    let typed = Typed::of(info, ses);
    let long = |number: Option<u64>| number.and_then(|number| i64::try_from(number).ok());
    let id = change.effect.entry_id();
    let at = change.effect.at().or(match &change.effect {
        Effect::Purged { entry, .. } => Some(&entry.at),
        _ => None,
    });
    let at = at.filter(|at| !at.is_withheld());
    let owner = typed.owner.and_then(|owner| info.users.iter().find(|(id, _)| *id == owner));
    let (before, after) = sides(&mut json::change(info, timeline, ses));
    out.long(long(Some(change.revision.0)));
    out.time(micros(change.time));
    out.text(Some(info.who.as_str()).filter(|who| !who.is_empty()));
    out.shown(format_args!("{:?}", change.operation));
    out.long(Some(i64::from(change.index)));
    out.text(Some(change.effect.name()));
    out.text(typed.kind);
    out.text(typed.lfn.map(Lfn::as_str));
    match id {
        Some(EntryId::Object(guid)) => out.shown(guid),
        _ => out.text(None),
    }
    out.long(long(match id {
        Some(EntryId::Directory(directory)) => Some(directory.0),
        _ => None,
    }));
    out.long(long(at.map(|at| at.parent.0)));
    out.text(at.map(|at| at.name.as_str()));
    out.long(long(typed.old.map(|at| at.parent.0)));
    out.text(typed.old.map(|at| at.name.as_str()));
    out.long(long(typed.size));
    out.text(owner.map(|(_, name)| name.as_str()));
    out.text(typed.se.as_deref());
    out.long(long(typed.trash));
    for side in [before, after] {
        match side {
            Some(side) => out.shown(side),
            None => out.text(None),
        }
    }
    out.end_row()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Both sides of an update have a key for each field; of a field that changed twice, the first value
    /// and the last.
    #[test]
    fn sides_of_an_update_name_each_field_once() {
        let mut shown = json!({"effect": "updated", "fields": [
            {"field": "mode", "before": "644", "after": "600"},
            {"field": "mode", "before": "600", "after": "640"},
            {"field": "tag", "key": "run", "before": null, "after": 7},
            {"field": "replica", "before": {"se": "A"}, "after": null},
            {"field": "checksum", "before": null, "after": "md5:00"},
            {"field": "member", "guid": "g", "added": false},
        ]});
        let (before, after) = sides(&mut shown);
        let before_wanted = json!({"mode": "644", "tag:run": null, "replica:A": {"se": "A"},
            "checksum:md5": null, "member:g": true});
        let after_wanted = json!({"mode": "640", "tag:run": 7, "replica:A": null, "checksum:md5": "md5:00", "member:g": false});
        assert_eq!((before, after), (Some(before_wanted), Some(after_wanted)));
    }

    /// Each effect puts what it says on the side where it was.
    #[test]
    fn sides_of_other_effects() {
        let of = |mut shown: Value| sides(&mut shown);
        let entry = json!({"kind": "file"});
        assert_eq!(of(json!({"effect": "created", "as": entry})), (None, Some(entry.clone())));
        assert_eq!(of(json!({"effect": "purged", "as": entry})), (Some(entry), None));
        let (from, to) = (json!({"name": "a"}), json!({"name": "b"}));
        assert_eq!(of(json!({"effect": "moved", "from": from, "to": to})), (Some(from), Some(to)));
        assert_eq!(of(json!({"effect": "moved", "from": null, "to": null})), (None, None));
        let record = json!({"record": "user", "name": "a"});
        let mut recorded = json!({"effect": "recorded", "record": "user", "name": "a", "dropped": true});
        assert_eq!(of(recorded.clone()), (Some(record.clone()), None));
        recorded["dropped"] = json!(false);
        assert_eq!(of(recorded), (None, Some(record)));
        assert_eq!(of(json!({"effect": "removed"})), (None, None));
        assert_eq!(of(json!({})), (None, None));
    }
}
