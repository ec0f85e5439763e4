//! Random writes, flushes, merges and openings, compared with a plain map.

use exacat_testkit::rounds;
use exacat_testkit::simulated::Random;

use super::*;
use crate::run::DAY_NANOSECONDS;

/// Fields with their types: values of each kind, and sets of fields that vary.
const FIELDS: [&str; 6] = ["v", "q", "u", "on", "t", "w"];

fn random_value(random: &mut Random, field: &str) -> (String, FieldValue) {
    let number = random.next(1000) as i64 - 500;
    match field {
        "v" | "w" => (format!("{}", number as f64 / 8.0), FieldValue::Float(number as f64 / 8.0)),
        "q" => (format!("{number}i"), FieldValue::Integer(number)),
        "u" => (format!("{}u", number.unsigned_abs()), FieldValue::Unsigned(number.unsigned_abs())),
        "on" => (format!("{}", number > 0), FieldValue::Boolean(number > 0)),
        _ => (format!("\"text {number}\""), FieldValue::Text(format!("text {number}").into())),
    }
}

/// Adds a random line to `body`, and its values to the map.
pub(super) fn random_line(random: &mut Random, body: &mut String, values: &mut Values) {
    let element = format!("m{},e={}", random.next(2), random.next(40));
    // Few times, so that many rows meet; some days, some of them before 1970.
    let time = (random.next(4) as i64 - 2) * DAY_NANOSECONDS + random.next(60) as i64;
    let fields: Vec<&str> = match random.next(4) {
        0 => FIELDS.iter().copied().filter(|_| random.chance(2)).collect(),
        _ => vec!["v", "q"],
    };
    if fields.is_empty() {
        return;
    }
    let mut sent = Vec::new();
    for field in fields {
        let (text, value) = random_value(random, field);
        sent.push(format!("{field}={text}"));
        values.insert((element.clone(), field.to_owned(), time), value);
    }
    body.push_str(&format!("{element} {} {time}\n", sent.join(",")));
}

/// All values, latest values and values at instants are those of a plain map, whatever is flushed,
/// merged and opened again.
#[test]
fn history_is_that_of_a_plain_map() {
    for seed in 0..4 * rounds() {
        let mut random = Random(seed);
        let disk = SimulatedDisk::new();
        let mut history = open(&disk).unwrap();
        let mut group = make_group(&history, "g");
        let mut values = Values::new();
        for _ in 0..60 {
            let mut body = String::new();
            for _ in 0..random.next(60) {
                random_line(&mut random, &mut body, &mut values);
            }
            let refused = write(&history, &group, &body).unwrap();
            assert_eq!(refused, Refused::default());
            match random.next(8) {
                0 => history.flush().unwrap(),
                1 => {
                    drop(group);
                    drop(history);
                    history = open(&disk).unwrap();
                    group = history.group(&GroupName::parse("g").unwrap()).unwrap();
                }
                2 => check_at(
                    &group,
                    &values,
                    (random.next(4) as i64 - 2) * DAY_NANOSECONDS + random.next(60) as i64,
                ),
                _ => {}
            }
        }
        assert!(read(&group) == values, "seed {seed}: {:?}", first_difference(&read(&group), &values));
        check_latest(&group, &values);
        history.flush().unwrap();
        // A second one, of no rows: no day is being filled.
        history.flush().unwrap();
        history.shared.merge_all().unwrap();
        assert!(
            read(&group) == values,
            "merged, seed {seed}: {:?}",
            first_difference(&read(&group), &values)
        );
        check_at(&group, &values, 30);
    }
}
