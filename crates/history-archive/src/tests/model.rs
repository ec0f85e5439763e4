//! Random writes, flushes, archivings and openings over weeks, compared with a plain map.

use exacat_history::run::{Elements, Fields};
use exacat_testkit::rounds;
use exacat_testkit::simulated::Random;

use super::*;

/// Adds a random line to `body`, and its values to the map.
pub(super) fn random_line(random: &mut Random, clock: &Clock, body: &mut String, values: &mut Values) {
    let element = match random.next(3) {
        0 => format!("cpu,host=h{}", random.next(9)),
        1 => format!("EVENT,name=System1:x/{}", random.next(9)),
        _ => format!("ev,e={}", random.next(20)),
    };
    // Few times, so that many rows meet; whole microseconds, and others.
    let nanoseconds = [0, 1000, 1_000_000, 7, 999][random.next(5) as usize];
    let time = clock.days_ago(random.next(9) as i64) + random.next(40) as i64 * 1_000_000 + nanoseconds;
    let number = random.next(1000) as i64 - 500;
    let large = i64::MAX - number.abs();
    let mut fields: Vec<(&str, String, FieldValue)> = Vec::new();
    let mut add = |name, text: String, value| fields.push((name, text, value));
    let float = |value: f64| (format!("{value}"), FieldValue::Float(value));
    let integer = |value: i64| (format!("{value}i"), FieldValue::Integer(value));
    let text = |value: &str| {
        (format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")), FieldValue::Text(value.into()))
    };
    if element.starts_with("cpu") {
        // Several fields, none of which is the value.
        for name in ["idle", "system", "user"] {
            if random.chance(2) {
                let (text, value) = float(number as f64 / 3.0);
                add(name, text, value);
            }
        }
    } else if element.starts_with("EVENT") {
        let (one, value) = integer(if random.chance(3) { large } else { number });
        add("original_value_int", one, value);
        let (one, value) = integer(281_474_976_710_913 + number);
        add("_status64", one, value);
        let (one, value) = text(["", "a \"b\"\\", "ä,}"][random.next(3) as usize]);
        add("_comment", one, value);
        add("_big", format!("{}u", u64::MAX), FieldValue::Unsigned(u64::MAX));
    } else {
        match random.next(5) {
            0 | 1 => {
                let (text, value) = float(if number < -300 { -0.0 } else { number as f64 / 8.0 });
                add("v", text, value);
            }
            2 => add(
                "big",
                format!("{}u", u64::MAX - number.unsigned_abs()),
                FieldValue::Unsigned(u64::MAX - number.unsigned_abs()),
            ),
            3 => {
                let (text, value) = text(&format!("text {number}"));
                add("t", text, value);
            }
            _ => add("on", format!("{}", number > 0), FieldValue::Boolean(number > 0)),
        }
        if random.chance(3) {
            let (text, value) = integer(number);
            fields.push(("q", text, value));
        }
    }
    if fields.is_empty() {
        return;
    }
    let sent: Vec<String> = fields.iter().map(|(name, text, _)| format!("{name}={text}")).collect();
    body.push_str(&format!("{element} {} {time}\n", sent.join(",")));
    for (name, _, value) in fields {
        values.insert((element.clone(), name.to_owned(), time), value);
    }
}

/// Compares all reads of a group with the map.
pub(super) fn check(group: &Arc<Group>, values: &Values, random: &mut Random, clock: &Clock, seed: u64) {
    let found = read(group, &Wanted::all()).unwrap();
    let differs = found.iter().find(|(key, value)| values.get(key) != Some(value));
    assert_eq!(differs, None, "seed {seed}");
    let missing = values.keys().find(|key| !found.contains_key(key));
    assert_eq!(missing, None, "seed {seed}");
    // One element, a range of times, a set of fields.
    let Some(count) = Some(group.names().element_count() as u32).filter(|count| *count > 0) else { return };
    let element = random.next(u64::from(count)) as u32;
    let (from, to) = (clock.days_ago(random.next(9) as i64), clock.days_ago(random.next(9) as i64));
    let fields: Vec<u32> = (0..group.names().fields().len() as u32).filter(|_| random.chance(2)).collect();
    let key = group.names().key(element).to_owned();
    let of_fields: Vec<(u32, String)> = {
        let names = group.names();
        fields.iter().map(|field| (*field, names.fields()[*field as usize].name.to_string())).collect()
    };
    let measurement = group.names().measurement_of(element);
    let is_wanted = |name: &str| {
        of_fields.iter().any(|(field, of)| {
            of == name && group.names().fields()[*field as usize].measurement == measurement
        })
    };
    let wanted =
        Wanted { elements: Elements::one(element), times: from..=to, fields: Fields::Set(fields.into()) };
    let found = read(group, &wanted).unwrap();
    let expected: Values = values
        .iter()
        .filter(|((of, name, time), _)| *of == key && (from..=to).contains(time) && is_wanted(name))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    assert!(found == expected, "seed {seed}, element {key}, {from} to {to}");
    let at = group.at_instant(to).of(element, |_| true).unwrap();
    for value in at {
        let name = group.names().fields()[value.field as usize].name.to_string();
        let range = (key.clone(), name.clone(), i64::MIN)..=(key.clone(), name, to);
        let (last, expected) = values.range(range).next_back().unwrap();
        assert_eq!((last.2, expected), (value.time, &value.value), "seed {seed}, {last:?} at {to}");
    }
}

/// All values, ranges and values at instants are those of a plain map, whatever is archived, comes late, is
/// archived again and opened again.
#[test]
fn history_with_an_archive_is_that_of_a_plain_map() {
    for seed in 0..6 * rounds() {
        let mut random = Random(seed);
        let rig = Rig::new();
        let mut history = rig.open().unwrap();
        let mut group = make_group(&history, "g");
        let mut values = Values::new();
        let mut archived = 0;
        for _ in 0..40 {
            let mut body = String::new();
            for _ in 0..random.next(60) {
                random_line(&mut random, &rig.clock, &mut body, &mut values);
            }
            write(&history, &group, &body).unwrap();
            match random.next(8) {
                0 => history.flush().unwrap(),
                1 => {
                    drop(group);
                    drop(history);
                    history = rig.open().unwrap();
                    group = group_of(&history, "g");
                }
                2 | 3 => {
                    history.archive_days().unwrap();
                    archived = archived.max(rig.live().len());
                }
                4 => rig.clock.pass_days(1),
                _ => check(&group, &values, &mut random, &rig.clock, seed),
            }
        }
        history.flush().unwrap();
        history.archive_days().unwrap();
        assert!(archived.max(rig.live().len()) > 1, "seed {seed}: nothing was archived");
        check(&group, &values, &mut random, &rig.clock, seed);
        drop(group);
        drop(history);
        let history = rig.open().unwrap();
        check(&group_of(&history, "g"), &values, &mut random, &rig.clock, seed);
    }
}
