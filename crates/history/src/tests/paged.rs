//! Pages of requests, compared with a plain map.

use std::collections::BTreeSet;

use exacat_model::Cursor;
use exacat_model::element::{AggregateBy, ElementCourse, ElementInterval};
use exacat_testkit::rounds;
use exacat_testkit::simulated::Random;

use super::model::random_line;
use super::*;

/// Writes random lines, some of them to runs. Returns what is there.
fn random_history(random: &mut Random, disk: &SimulatedDisk) -> (History, Arc<Group>, Values) {
    let history = open(disk).unwrap();
    let group = make_group(&history, "g");
    let mut values = Values::new();
    for _ in 0..30 {
        let mut body = String::new();
        for _ in 0..random.next(60) {
            random_line(random, &mut body, &mut values);
        }
        write(&history, &group, &body).unwrap();
        if random.chance(4) {
            history.flush().unwrap();
        }
    }
    (history, group, values)
}

/// Collects all pages that `ask` answers. Each cursor leads on.
fn all_pages<T>(mut ask: impl FnMut(&Cursor) -> (Vec<T>, Option<Cursor>)) -> Vec<T> {
    let (mut all, mut cursor) = (Vec::new(), Cursor::default());
    for _ in 0..100_000 {
        let (items, next) = ask(&cursor);
        all.extend(items);
        match next {
            Some(next) => {
                assert_ne!(next, cursor, "the page begins where it began");
                cursor = next;
            }
            None => return all,
        }
    }
    panic!("the pages do not end");
}

/// Pages of rows, of elements and of values have each row, element and value of the map once, whatever
/// the limit, the pattern and the fields.
#[test]
fn pages_have_everything_once() {
    for seed in 0..2 * rounds() {
        let mut random = Random(seed);
        let disk = SimulatedDisk::new();
        let (_history, group, values) = random_history(&mut random, &disk);
        let limit = 1 + random.next(30) as usize;
        let (from, to) = if random.chance(2) { (i64::MIN, i64::MAX) } else { (0, 40) };
        for (pattern, begin) in [("", ""), ("m0,*", "m0,"), ("m1,e=7", "m1,e=7"), ("m?,e=1*", "m")] {
            let fits = |key: &str| match pattern {
                "m1,e=7" => key == pattern,
                "m?,e=1*" => key[2..].starts_with(",e=1"),
                _ => key.starts_with(begin),
            };
            for (fields, has) in
                [(vec!["*".to_owned()], ["v", "q", "u", "on", "t", "w"].as_slice()), (vec![], &["v", "q"])]
            {
                let wanted: Values = values
                    .iter()
                    .filter(|((key, field, time), _)| {
                        fits(key) && has.contains(&field.as_str()) && (from..=to).contains(time)
                    })
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect();
                let mut found = Values::new();
                let ask =
                    |cursor: &Cursor| match group.row_page(pattern, (from, to), &fields, (cursor, limit)) {
                        Ok(page) => page,
                        // No element of this name was written.
                        Err(error) => {
                            assert_eq!(error.kind, exacat_model::ErrorKind::NotFound);
                            (Vec::new(), None)
                        }
                    };
                for rows in all_pages(ask) {
                    assert!(rows.times.len() <= limit && rows.times.is_sorted());
                    for (at, time) in rows.times.iter().enumerate() {
                        assert!(rows.row(at).count() > 0);
                        for (field, value) in rows.row(at) {
                            let known =
                                found.insert((rows.key.clone(), field.to_owned(), *time), value.to_value());
                            assert_eq!(known, None, "{} {field} {time} is there twice", rows.key);
                        }
                    }
                }
                assert!(found == wanted, "seed {seed}: {:?}", first_difference(&found, &wanted));
                let known = group.row_fields(pattern, &fields).unwrap_or_default();
                let distinct: BTreeSet<_> = known.iter().map(|(name, kind)| (name, kind.number())).collect();
                assert!(
                    distinct.len() == known.len() && known.iter().all(|(name, _)| has.contains(&&**name))
                );
                for ((_, field, _), value) in &wanted {
                    assert!(
                        distinct.contains(&(field, value.borrow().kind().number())),
                        "{pattern}: {field}"
                    );
                }
            }
        }
        let keys: BTreeSet<String> = values.keys().map(|(key, _, _)| key.clone()).collect();
        let elements = all_pages(|cursor| group.element_page("*", cursor, limit).unwrap());
        let listed: Vec<String> = elements.into_iter().map(|element| element.key).collect();
        assert_eq!(listed.len(), keys.len());
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), keys);
        let time = random.next(60) as i64;
        let all = ["*".to_owned()];
        let states = all_pages(|cursor| group.value_page("*", Some(time), &all, (cursor, limit)).unwrap());
        let mut wanted = BTreeMap::new();
        for ((key, field, of), value) in values.iter().filter(|((_, _, of), _)| *of <= time) {
            wanted.insert((key.clone(), field.clone()), (*of, value.clone()));
        }
        let mut found = BTreeMap::new();
        for state in states {
            for value in state.values {
                found.insert((state.key.clone(), value.field), (value.time, value.value));
            }
        }
        assert!(found == wanted, "at {time}: {:?}", first_difference(&found, &wanted));
    }
}

/// Days that are read in windows have the rows of one merge, in its order, whatever the elements, times,
/// sources of a window and rows that are held.
#[test]
fn days_in_windows_are_those_of_one_merge() {
    for seed in 0..8 * rounds() {
        let mut random = Random(seed);
        let disk = SimulatedDisk::new();
        let (history, group, _) = random_history(&mut random, &disk);
        // Days with few and with many rows, in runs of several flushes and in memory.
        for flush in 0..3 {
            let mut lines = String::new();
            for _ in 0..random.next(400) {
                let (element, day) = (random.next(40), random.next(12) as i64);
                let element = if random.chance(3) { 7 } else { element };
                let time = day * 86_400_000_000_000 + random.next(50) as i64;
                lines += &format!("m0,e={element} v={flush} {time}\n");
            }
            write(&history, &group, &lines).unwrap();
            if random.chance(2) {
                history.flush().unwrap();
            }
        }
        for _ in 0..4 {
            let elements = match random.next(3) {
                0 => Elements::All,
                1 => Elements::Range(random.next(10) as u32..=random.next(60) as u32),
                _ => Elements::Set((0..60).filter(|_| random.chance(3)).collect()),
            };
            let day = 86_400_000_000_000;
            let times = match random.chance(2) {
                true => i64::MIN..=i64::MAX,
                false => random.next(5) as i64 * day + 3..=random.next(12) as i64 * day,
            };
            let wanted = Wanted { elements, times, fields: Fields::All };
            let all = |sources_max, held_max| {
                let mut scan = group.scan_within(&wanted, sources_max, held_max).unwrap();
                let mut rows = Vec::new();
                while let Some(part) = scan.next_rows().unwrap() {
                    for row in 0..part.rows() {
                        let values: Vec<_> =
                            part.row(row).map(|(field, value)| (field, value.to_value())).collect();
                        rows.push((part.key(row), format!("{values:?}")));
                    }
                }
                rows
            };
            let merged = all(usize::MAX, usize::MAX);
            assert!(merged.is_sorted_by(|one, other| one.0 < other.0));
            for (sources_max, held_max) in [(1, 1), (1, 30), (3, 200), (2, 100_000)] {
                assert_eq!(
                    all(sources_max, held_max),
                    merged,
                    "seed {seed}: {wanted:?} {sources_max} {held_max}"
                );
            }
        }
    }
}

/// Columns of a table are the shown fields, each name and type once.
#[test]
fn columns_are_the_shown_fields() {
    let disk = SimulatedDisk::new();
    let history = History::open_on(disk.shared(), settings()).unwrap();
    let group = make_group(&history, "g");
    write(&history, &group, "a,e=1 v=1,q=0i,note=\"x\" 1\nb,e=1 v=2i 1\nc,e=1 v=3,q=1i 1\n").unwrap();
    let columns = |fields: &[&str]| -> String {
        let fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
        let columns = group.row_fields("*", &fields).unwrap();
        columns.iter().map(|(name, kind)| format!("{name}:{kind}")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(columns(&[]), "v:float v:integer q:integer");
    assert_eq!(columns(&["*"]), "v:float v:integer q:integer note:string");
    assert_eq!(columns(&["note", "none"]), "note:string");
    let of_b = group.row_fields("b,e=1", &[]).unwrap();
    assert_eq!(of_b, [("v".to_owned(), exacat_model::FieldType::Integer)]);
}

/// Aggregates in pages are those of one page, and those of the rows: count, ends, mean, and the integral of
/// a value that holds until the next one.
#[test]
fn aggregates_in_pages_are_those_of_the_rows() {
    for seed in 0..2 * rounds() {
        let mut random = Random(seed);
        let disk = SimulatedDisk::new();
        let (_history, group, values) = random_history(&mut random, &disk);
        let every = 1 + random.next(20) as i64;
        let (from, to) = (random.next(20) as i64, 20 + random.next(60) as i64);
        let by = AggregateBy { field: Some("v".to_owned()), every, origin: 3, course: ElementCourse::Holds };
        let limit = 1 + random.next(9) as usize;
        let of = |limit| {
            let mut all: BTreeMap<String, Vec<ElementInterval>> = Default::default();
            for one in
                all_pages(|cursor| group.aggregate_page("*", (from, to), &by, (cursor, limit)).unwrap())
            {
                assert!(one.intervals.len() <= limit);
                all.entry(one.key).or_default().extend(one.intervals);
            }
            all
        };
        let (whole, paged) = (of(10_000), of(limit));
        assert_eq!(whole.len(), paged.len());
        for (key, intervals) in &whole {
            let starts =
                |of: &[ElementInterval]| of.iter().map(|one| (one.start, one.count)).collect::<Vec<_>>();
            assert_eq!(starts(intervals), starts(&paged[key]), "seed {seed}: {key}");
            let rows: Vec<(i64, f64)> = values
                .iter()
                .filter(|((of, field, _), _)| of == key && field == "v")
                .filter_map(|((_, _, time), value)| match value {
                    FieldValue::Float(value) => Some((*time, *value)),
                    _ => None,
                })
                .collect();
            let held = |time: i64| rows.iter().rev().find(|(of, _)| *of <= time).map(|(_, value)| *value);
            for (one, other) in intervals.iter().zip(&paged[key]) {
                assert!((one.integral - other.integral).abs() < 1e-12);
                let (start, end) = (one.start.max(from), (one.start + every - 1).min(to));
                let inside: Vec<f64> = rows
                    .iter()
                    .filter(|(of, _)| (start..=end).contains(of))
                    .map(|(_, value)| *value)
                    .collect();
                assert_eq!(one.count, inside.len() as u64, "seed {seed}: {key} from {start}");
                let mean = (!inside.is_empty()).then(|| inside.iter().sum::<f64>() / inside.len() as f64);
                assert!(one.mean.zip(mean).is_none_or(|(one, other)| (one - other).abs() < 1e-9));
                // Each nanosecond has the value that holds then.
                let integral: f64 = (start..=end).filter_map(held).sum::<f64>() * 1e-9;
                assert!(
                    (one.integral - integral).abs() < 1e-12,
                    "{key} {start}: {} {integral}",
                    one.integral
                );
            }
        }
        assert!(!whole.is_empty());
    }
}

/// A boolean or a text has the count, the first and the last value of each interval with a value, and nothing
/// else. Long texts end a page early, and no interval is lost or doubled.
#[test]
fn texts_are_counted_by_interval() {
    let disk = SimulatedDisk::new();
    let history = open(&disk).unwrap();
    let group = make_group(&history, "g");
    write(&history, &group, "m,e=1 t=\"x\",on=true 1\nm,e=1 t=\"y\" 3\nm,e=1 t=\"z\",on=false 12\n").unwrap();
    let by = |field: Option<&str>| AggregateBy {
        field: field.map(str::to_owned),
        every: 10,
        origin: 0,
        course: ElementCourse::Holds,
    };
    let ask = |element: &str, by: &AggregateBy, cursor: &Cursor| {
        group.aggregate_page(element, (0, 9_999), by, (cursor, 10_000)).unwrap()
    };
    let counted = |field: &str| {
        let (items, next) = ask("m,e=1", &by(Some(field)), &Cursor::default());
        assert_eq!(next, None);
        let intervals = items[0].intervals.iter();
        assert!(intervals.clone().all(|one| (&one.min, one.mean, one.covered_seconds) == (&None, None, 0.0)));
        intervals.map(|one| (one.start, one.count, one.first.clone(), one.last.clone())).collect::<Vec<_>>()
    };
    let text = |time: i64, text: &str| Some((time, FieldValue::Text(text.into())));
    let boolean = |time: i64, on: bool| Some((time, FieldValue::Boolean(on)));
    assert_eq!(counted("t"), [(0, 2, text(1, "x"), text(3, "y")), (10, 1, text(12, "z"), text(12, "z"))]);
    assert_eq!(
        counted("on"),
        [(0, 1, boolean(1, true), boolean(1, true)), (10, 1, boolean(12, false), boolean(12, false))]
    );
    let bad = AggregateBy { every: 0, ..by(None) };
    let refused = group.aggregate_page("*", (0, 9), &bad, (&Cursor::default(), 10)).unwrap_err();
    assert!(refused.message.contains("a positive interval"), "{refused}");
    let long = "x".repeat(60_000);
    let lines: String =
        (0..200).map(|row| format!("n,e=long t=\"{long}{row}\" {}\n", row * 10 + 5)).collect();
    write(&history, &group, &lines).unwrap();
    let (mut starts, mut pages, mut cursor) = (Vec::new(), 0, Cursor::default());
    loop {
        let (items, next) = ask("n,e=long", &by(None), &cursor);
        starts.extend(items.iter().flat_map(|of| &of.intervals).map(|one| one.start));
        pages += 1;
        let Some(next) = next else { break };
        cursor = next;
    }
    assert_eq!(starts, (0..200).map(|row| row * 10).collect::<Vec<_>>());
    assert!(pages > 2, "{pages} pages");
}
