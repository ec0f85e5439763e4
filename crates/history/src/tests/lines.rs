//! Lines of clients: what is taken, what is refused in which words, and what is read back.

use super::*;

fn value(group: &Arc<Group>, element: &str, field: &str, time: i64) -> Option<FieldValue> {
    read(group).get(&(element.to_owned(), field.to_owned(), time)).cloned()
}

/// Lines of known clients are read back with all their fields, and in one element for any order of tags.
#[test]
fn lines_of_clients_are_read_back() {
    let disk = SimulatedDisk::new();
    let history = open(&disk).unwrap();
    let group = make_group(&history, "det2");
    let body = "EVENT,name=System1:dcs/hv,variabletype=3,alias=HV\\ crate valuetype=3i,original_value_float=829.02,\
                _status64=281474976710913i,_manager=16777217i,_user=0i 1763000000001000000\n\
                ev,b=2,a=1 v=1,t=\"a \\\"b\\\"\",u=5u,on=true 10\n\
                # a comment\n\n\
                ev,a=1,b=2 v=2 11";
    let refused = write(&history, &group, body).unwrap();
    assert_eq!(refused, Refused::default());
    assert_eq!(group.names.read().element_count(), 2);
    let key = "EVENT,alias=HV\\ crate,name=System1:dcs/hv,variabletype=3";
    let status = value(&group, key, "_status64", 1_763_000_000_001_000_000);
    assert_eq!(status, Some(FieldValue::Integer(281_474_976_710_913)));
    assert_eq!(value(&group, "ev,a=1,b=2", "t", 10), Some(FieldValue::Text("a \"b\"".into())));
    assert_eq!(value(&group, "ev,a=1,b=2", "u", 10), Some(FieldValue::Unsigned(5)));
    assert_eq!(value(&group, "ev,a=1,b=2", "v", 11), Some(FieldValue::Float(2.0)));
}

/// A later value of the same element, field and time wins; other fields of that time stay.
#[test]
fn repeated_lines_are_harmless_and_later_values_win() {
    let disk = SimulatedDisk::new();
    let history = open(&disk).unwrap();
    let group = make_group(&history, "g");
    for body in ["ev v=1,q=0i 5", "ev v=1,q=0i 5", "ev v=3 5\nev w=7 5", "ev q=9i,q=8i 5"] {
        write(&history, &group, body).unwrap();
    }
    history.flush().unwrap();
    write(&history, &group, "ev v=4 5").unwrap();
    let wanted =
        [("q", FieldValue::Integer(8)), ("v", FieldValue::Float(4.0)), ("w", FieldValue::Float(7.0))];
    let wanted: Values =
        wanted.into_iter().map(|(name, value)| (("ev".into(), name.into(), 5), value)).collect();
    assert_eq!(read(&group), wanted);
    check_latest(&group, &wanted);
}

/// Refusals have InfluxDB's words, and good lines among bad ones are written.
#[test]
fn bad_lines_are_refused_in_influxdbs_words() {
    let disk = SimulatedDisk::new();
    let history = open(&disk).unwrap();
    let group = make_group(&history, "g");
    let told = |body: &str| {
        let mut ingest = Ingest::new(&group, NOW);
        let refused = ingest.lines(body.as_bytes(), Precision::Nanoseconds);
        let batch = ingest.finish();
        let message = refused.message(batch.count());
        wait(history.commit(batch)).unwrap();
        message
    };
    assert_eq!(told("ev,e=a v=1 1"), None);
    assert_eq!(
        told("ev,e=a v=1 1\nbad line here x\nev,e=a v=2 2").unwrap(),
        "partial write: unable to parse 'bad line here x': invalid field format dropped=0"
    );
    assert_eq!(told("ev v=nan").unwrap(), "unable to parse 'ev v=nan': invalid number");
    assert_eq!(
        told("ev,e=a v=3 3\nev,e=a v=\"x\" 4").unwrap(),
        "partial write: field type conflict: input field \"v\" on measurement \"ev\" is type string, already exists as \
         type float dropped=1"
    );
    let late = NOW + 700_000_000_000;
    assert_eq!(
        told(&format!("ev,e=a v=1 {late}")).unwrap(),
        "partial write: points beyond retention policy dropped=1"
    );
    let many: Vec<String> = (0..1001).map(|number| format!("many,n={number} v=1 1")).collect();
    assert_eq!(
        told(&many.join("\n")).unwrap(),
        "partial write: max-series-per-database limit exceeded: (1000) dropped=2"
    );
    assert_eq!(read(&group).len(), 3 + 999);
}

/// A group keeps its settings and its values apart from others, and after it is dropped nothing is left.
#[test]
fn groups_are_apart_and_are_dropped_whole() {
    let disk = SimulatedDisk::new();
    let history = open(&disk).unwrap();
    let (one, other) = (make_group(&history, "one"), make_group(&history, "other"));
    write(&history, &one, "ev v=1 1").unwrap();
    write(&history, &other, "ev v=2i 1").unwrap();
    assert_eq!(value(&other, "ev", "v", 1), Some(FieldValue::Integer(2)));
    wait(history.drop_group(&GroupName::parse("one").unwrap())).unwrap();
    assert!(history.group(&GroupName::parse("one").unwrap()).is_err());
    let again = make_group(&history, "one");
    assert!(read(&again).is_empty());
    drop(history);
    let history = open(&disk).unwrap();
    let names: Vec<String> = history.groups().iter().map(|group| group.settings().name.to_string()).collect();
    assert_eq!(names, ["one", "other"]);
    assert!(read(&history.group(&GroupName::parse("one").unwrap()).unwrap()).is_empty());
    assert_eq!(read(&history.group(&GroupName::parse("other").unwrap()).unwrap()).len(), 1);
}
