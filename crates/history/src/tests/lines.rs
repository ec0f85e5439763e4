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
        let (mut ingest, mut refused) = (Ingest::new(&group, NOW), Refused::default());
        ingest.lines(body.as_bytes(), 0, Precision::Nanoseconds, &mut refused);
        let batch = ingest.finish();
        let message = refused.message(u64::from(batch.count()));
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
    assert_eq!(
        told("ev,time=x v=1 9").unwrap(),
        "partial write: invalid tag key: input tag \"time\" on measurement \"ev\" is invalid dropped=1"
    );
    let many: Vec<String> = (0..1001).map(|number| format!("many,n={number} v=1 1")).collect();
    assert_eq!(
        told(&many.join("\n")).unwrap(),
        "partial write: max-series-per-database limit exceeded: (1000) dropped=2"
    );
    assert_eq!(told("ev,e=a time=1,v=9 9"), None);
    assert_eq!(read(&group).len(), 3 + 999 + 1);
}

/// New names are bounded by their bytes too: a group of few elements with long names does not fill the
/// memory. Known names go on, and the bound grows with the elements that the group may have.
#[test]
fn bytes_of_names_are_bounded() {
    let disk = SimulatedDisk::new();
    let history = open(&disk).unwrap();
    let settings = |elements_max| GroupSettings { elements_max, ..group_settings("g") };
    let group = wait(history.set_group(settings(2000))).unwrap();
    let max = crate::limits::NAME_BYTES_LEAST;
    let long = "x".repeat(60_000);
    let line = |number: u32| format!("ev,e={long}{number} v=1 1\n");
    write(&history, &group, "ev v=1 1").unwrap();
    let mut taken = 0;
    let reason = loop {
        let body: String = (taken..taken + 60).map(line).collect();
        let refused = write(&history, &group, &body).unwrap();
        taken += 60 - refused.dropped_count as u32;
        if let Some(reason) = refused.dropped {
            break reason;
        }
    };
    assert_eq!(reason, format!("max-series-per-database limit exceeded: ({max} bytes of names)"));
    let bytes = group.names.read().bytes();
    assert!(taken > 1000 && bytes <= max && bytes + line(taken).len() > max, "{taken} names, {bytes} bytes");
    let field = format!("ev {long}-longer-than-the-names-before=1 2");
    assert_eq!(write(&history, &group, &field).unwrap().dropped, Some(reason));
    assert_eq!(write(&history, &group, &line(0)).unwrap(), Refused::default());
    let group = wait(history.set_group(settings(1_000_000))).unwrap();
    assert_eq!(write(&history, &group, &line(taken)).unwrap(), Refused::default());
}

/// A group is told to be nearly full from 90 % of its elements on, before values are refused.
#[test]
fn nearly_full_group_is_told() {
    let disk = SimulatedDisk::new();
    let history = open(&disk).unwrap();
    let settings = |elements_max| GroupSettings { elements_max, ..group_settings("g") };
    let group = wait(history.set_group(settings(20))).unwrap();
    let body = |count: u32| (0..count).map(|number| format!("ev,e={number} v=1 1\n")).collect::<String>();
    assert_eq!(write(&history, &group, &body(17)).unwrap(), Refused::default());
    assert_eq!(history.figures().nearly_full, Vec::<String>::new());
    assert_eq!(write(&history, &group, &body(18)).unwrap(), Refused::default());
    let told = history.figures().nearly_full;
    assert!(told.len() == 1 && told[0].contains("group g") && told[0].contains("90 %"), "{told:?}");
    wait(history.set_group(settings(40))).unwrap();
    assert_eq!(history.figures().nearly_full, Vec::<String>::new());
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

/// Days that the retention has ended are not shown, and their files are removed. Opening does not bring
/// them back.
#[test]
fn days_beyond_the_retention_are_removed() {
    let disk = SimulatedDisk::new();
    let history = open(&disk).unwrap();
    let group = make_group(&history, "g");
    let day = 86_400_000_000_000;
    let body: String = (0..5).map(|age| format!("ev v={age} {}\n", NOW - age * day)).collect();
    write(&history, &group, &body).unwrap();
    history.flush().unwrap();
    wait(history.set_group(GroupSettings { retention_days: 2, ..group_settings("g") })).unwrap();
    history.shared.retain().unwrap();
    let kept = |group: &Arc<Group>| read(group).into_values().collect::<Vec<_>>();
    let wanted: Vec<FieldValue> = [2.0, 1.0, 0.0].map(FieldValue::Float).into();
    assert_eq!(kept(&group), wanted);
    assert_eq!(history.shared.files.lock().manifest.groups[0].runs.len(), 3);
    let refused = write(&history, &group, &format!("ev v=9 {}", NOW - 3 * day)).unwrap();
    assert_eq!(refused.dropped.as_deref(), Some("points beyond retention policy"));
    drop(group);
    drop(history);
    let history = open(&disk).unwrap();
    assert_eq!(kept(&history.group(&GroupName::parse("g").unwrap()).unwrap()), wanted);
}

/// A body of more rows than a batch has is written in several batches, each line once.
#[test]
fn long_body_makes_several_batches() {
    let disk = SimulatedDisk::new();
    let history = History::open_on(
        disk.shared(),
        HistorySettings { segment_bytes: 1 << 20, memtable_bytes: 64 << 20, ..settings() },
    )
    .unwrap();
    let group = make_group(&history, "g");
    // A short line has a longer row.
    let count = crate::limits::BATCH_BYTES / 25 + 1000;
    let body: String = (0..count).map(|number| format!("m f=1 {number}\n")).collect();
    write(&history, &group, &body).unwrap();
    assert_eq!(history.metrics().batches.load(std::sync::atomic::Ordering::Relaxed), 2);
    assert_eq!(read(&group).len(), count);
}

/// Each of several changes of a group begins with the settings that the one before has made.
#[test]
fn changes_of_a_group_keep_those_of_others() {
    let disk = SimulatedDisk::new();
    let history = open(&disk).unwrap();
    let group = make_group(&history, "g");
    let name = group.settings().name;
    let change = |set: fn(&mut GroupSettings)| {
        history.change_group(&name, move |known| {
            let mut settings = known.unwrap();
            set(&mut settings);
            Ok(settings)
        })
    };
    let (one, other) = wait(async {
        tokio::join!(
            change(|settings| settings.retention_days = 7),
            change(|settings| settings.elements_max = 5)
        )
    });
    assert!(one.is_ok() && other.is_ok());
    let settings = group.settings();
    assert_eq!((settings.retention_days, settings.elements_max), (7, 5));
}
