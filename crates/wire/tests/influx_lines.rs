//! Line protocol: the requests of known clients, the rules and errors of InfluxDB 1.8, and lines made from
//! random values.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test reports")]

mod random;

use exacat_model::limits::{
    HISTORY_FIELDS_MAX, HISTORY_KEY_BYTES_MAX, HISTORY_LINE_BYTES_MAX, HISTORY_TEXT_BYTES_MAX,
};
use exacat_model::{FieldRef, FieldValue};
use exacat_wire::influx::{Lines, Precision, Reason, canonical_series, series_of, split_series};
use random::Random;

/// A line with everything in it owned.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    series: String,
    fields: Vec<(String, FieldValue)>,
    time: Option<i64>,
}

/// Scans a body: rows, or texts of errors.
fn scan(body: &[u8], precision: Precision) -> Vec<Result<Row, String>> {
    let mut lines = Lines::new(body, precision);
    let mut rows = Vec::new();
    while let Some(line) = lines.next_line() {
        rows.push(match line {
            Err(error) => Err(error.to_string()),
            Ok(line) => {
                let mut series = String::new();
                canonical_series(line.series, &mut series)
                    .map_err(|reason| line.error(reason).to_string())
                    .map(|()| {
                        let fields =
                            line.fields().map(|(name, value)| (name.to_owned(), value.to_value())).collect();
                        Row { series, fields, time: line.time }
                    })
            }
        });
    }
    rows
}

fn row(series: &str, fields: &[(&str, FieldRef<'_>)], time: Option<i64>) -> Result<Row, String> {
    let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), value.to_value())).collect();
    Ok(Row { series: series.into(), fields, time })
}

const NS: Precision = Precision::Nanoseconds;

/// WinCC OA's archive writes this line (documentation of its InfluxDB backend).
#[test]
fn line_of_wincc_oa_is_read() {
    let body = br"EVENT,name=System1:dcs/det2/hv/ch009522.actual.vMon,variabletype=3,alias=HV\ crate valuetype=3i,original_value_float=829.02,_status64=281474976710913i,_manager=16777217i,_user=0i 1763000000001000000";
    let series = r"EVENT,alias=HV\ crate,name=System1:dcs/det2/hv/ch009522.actual.vMon,variabletype=3";
    let fields = [
        ("valuetype", FieldRef::Integer(3)),
        ("original_value_float", FieldRef::Float(829.02)),
        ("_status64", FieldRef::Integer(281_474_976_710_913)),
        ("_manager", FieldRef::Integer(16_777_217)),
        ("_user", FieldRef::Integer(0)),
    ];
    assert_eq!(scan(body, NS), [row(series, &fields, Some(1_763_000_000_001_000_000))]);
    let special = b"EVENT,name=a original_value_float_special=\"NaN\",_comment=\"off, \\\"why\\\"\" 5";
    let fields = [
        ("original_value_float_special", FieldRef::Text("NaN")),
        ("_comment", FieldRef::Text("off, \"why\"")),
    ];
    assert_eq!(scan(special, NS), [row("EVENT,name=a", &fields, Some(5))]);
}

/// Telegraf sends tags in order, many fields, and a newline behind each line.
#[test]
fn batch_of_telegraf_is_read() {
    let body = b"cpu,cpu=cpu-total,host=a usage_idle=98.5,usage_user=1 1763000000000000000\n\
        disk,device=sda1,fstype=ext4,host=a,mode=rw,path=/ free=10i,used_percent=12.25 1763000000000000000\n\
        system,host=a uptime_format=\"12 days,  3:01\" 1763000000000000000\n\
        mem,host=a total=33i,huge=18446744073709551615u,swap=false 1763000000000000000\n";
    let time = Some(1_763_000_000_000_000_000);
    let expected = [
        row(
            "cpu,cpu=cpu-total,host=a",
            &[("usage_idle", FieldRef::Float(98.5)), ("usage_user", FieldRef::Float(1.0))],
            time,
        ),
        row(
            "disk,device=sda1,fstype=ext4,host=a,mode=rw,path=/",
            &[("free", FieldRef::Integer(10)), ("used_percent", FieldRef::Float(12.25))],
            time,
        ),
        row("system,host=a", &[("uptime_format", FieldRef::Text("12 days,  3:01"))], time),
        row(
            "mem,host=a",
            &[
                ("total", FieldRef::Integer(33)),
                ("huge", FieldRef::Unsigned(u64::MAX)),
                ("swap", FieldRef::Boolean(false)),
            ],
            time,
        ),
    ];
    assert_eq!(scan(body, NS), expected);
}

/// The Python clients send no final newline. The one of version 1 may send NaN: the good lines are kept.
#[test]
fn bodies_of_the_python_clients_are_read() {
    let body = b"ev,e=a q=0i,v=1.5 1763000000001\nev,e=b q=0i,v=nan 1763000000001\nev,e=c v=-3 1763000000002";
    let good = |series, fields: &[_], time| row(series, fields, Some(time));
    let expected = [
        good(
            "ev,e=a",
            &[("q", FieldRef::Integer(0)), ("v", FieldRef::Float(1.5))],
            1_763_000_000_001_000_000,
        ),
        Err("unable to parse 'ev,e=b q=0i,v=nan 1763000000001': invalid number".into()),
        good("ev,e=c", &[("v", FieldRef::Float(-3.0))], 1_763_000_000_002_000_000),
    ];
    assert_eq!(scan(body, Precision::Milliseconds), expected);
}

/// Measured answers of InfluxDB 1.8.10, and the refusals of its own tests.
#[test]
fn errors_are_those_of_influxdb() {
    for (line, reason) in [
        ("bad line here x", "invalid field format"),
        ("ev v=nan", "invalid number"),
        ("cpu_load_short,host=server01,region=us-west", "missing fields"),
        ("cpu", "missing fields"),
        ("cpu,host==", "missing fields"),
        ("=", "missing fields"),
        ("cpu,a=1,a=2", "missing fields"),
        ("cpu,host=serverA value=\"test", "unbalanced quotes"),
        ("cpu,host=serverA value=\"test\"\"", "unbalanced quotes"),
        (",a=b v=1", "missing measurement"),
        ("cpu, value=1", "missing tag key"),
        ("cpu,,,", "missing tag key"),
        ("cpu,host=serverA,=us-east value=1i", "missing tag key"),
        ("cpu, =serverA value=1i", "missing tag key"),
        ("cpu,host", "missing tag value"),
        ("cpu,host value=1i", "missing tag value"),
        ("cpu,host=serverA,region= value=1i", "missing tag value"),
        ("cpu,host=f=o,", "invalid tag format"),
        ("cpu,b=2,c=3,b=1 value=1i 1000000000", "duplicate tags"),
        ("cpu,a=b =", "missing field key"),
        ("cpu,a=b =123i", "missing field key"),
        ("cpu,a=b value=123i,=456i", "missing field key"),
        ("cpu,a=b value=", "missing field value"),
        ("cpu,a=b value= 1000000000i", "missing field value"),
        ("cpu,a=b value=,value2=1i", "missing field value"),
        ("cpu,a=b 1434055562000000000i", "invalid field format"),
        ("cpu,a=b value=1i,b", "invalid field format"),
        ("cpu,a=b value=1i,", "invalid field format"),
        ("cpu,a=b b,value=1i", "invalid field format"),
        ("cpu,a=b value=1i, b=2", "invalid field format"),
        ("m f=\"blah\"=123,r 1531703600000000000", "invalid field format"),
        ("cpu v=a", "invalid boolean"),
        ("cpu v=inf", "invalid boolean"),
        ("cpu v=tRue", "invalid boolean"),
        ("cpu v=1e400", "invalid float"),
        (
            "cpu v=9223372036854775808i",
            "unable to parse integer 9223372036854775808: strconv.ParseInt: parsing \"9223372036854775808\": value \
             out of range",
        ),
        ("a v=1 0\\", "bad timestamp"),
        ("cpu value=1 -", "strconv.ParseInt: parsing \"-\": invalid syntax"),
        ("cpu v=1 9223372036854775807", "time outside range -9223372036854775806 - 9223372036854775806"),
        ("cpu value=1 9223372036854775806 12", "point is invalid"),
        // exacat's own: InfluxDB drops the last character.
        ("cpu v=\"a\"b", "invalid field format"),
        ("cpu v=\"a\"=\"b\"", "invalid field format"),
        ("cpu v=\"a\"\\,w=\"b\"", "invalid field format"),
        ("cpu a,v=\"b", "invalid field format"),
        ("cpu a\\\\=1", "invalid field format"),
    ] {
        let expected = Err(format!("unable to parse '{line}': {reason}"));
        assert_eq!(scan(line.as_bytes(), NS), [expected], "{line}");
    }
}

/// A refused line takes none of its neighbours with it.
#[test]
fn scan_goes_on_behind_a_refused_line() {
    let body = b"ev v=1 1\nbad line here x\nev v=2 2\n\xff v=1 3\nev v=3 3";
    let found = scan(body, NS);
    let times: Vec<_> = found.iter().map(|one| one.as_ref().ok().and_then(|row| row.time)).collect();
    assert_eq!(times, [Some(1), None, Some(2), None, Some(3)]);
    assert_eq!(found[3].as_ref().unwrap_err(), "unable to parse '\u{fffd} v=1 3': invalid UTF-8");
}

/// Names and texts come without their escapes: examples of InfluxDB's own tests.
#[test]
fn escapes_are_resolved() {
    for (line, name, value) in [
        (r"cpu,regions=east value\,ms=1.0", "value,ms", FieldRef::Float(1.0)),
        (r"cpu value\ ms=1.0", "value ms", FieldRef::Float(1.0)),
        (r"cpu a\ =123i", "a ", FieldRef::Integer(123)),
        (r"cpu a\==123i", "a=", FieldRef::Integer(123)),
        (r"cpu \a=1i", r"\a", FieldRef::Integer(1)),
        (r#"cpu a"b=1i"#, "a\"b", FieldRef::Integer(1)),
        (r#"cpu v="1,0""#, "v", FieldRef::Text("1,0")),
        (r#"cpu v="""#, "v", FieldRef::Text("")),
        (r#"cpu v="foo\,bar" 1"#, "v", FieldRef::Text(r"foo\,bar")),
        (r#"cpu v="foo \" bar" 1"#, "v", FieldRef::Text("foo \" bar")),
        (r#"cpu v="{Hello\"{,}\" World}" 1"#, "v", FieldRef::Text("{Hello\"{,}\" World}")),
        (r#"cpu v="test\\\"" 1"#, "v", FieldRef::Text("test\\\"")),
        (r#"cpu v="test\\" 1"#, "v", FieldRef::Text("test\\")),
        (r#"cpu v="foo=bar" 1"#, "v", FieldRef::Text("foo=bar")),
        ("cpu v=\"foo\nbar\" 1", "v", FieldRef::Text("foo\nbar")),
        ("cpu v=\"foo\r\nbar\" 1", "v", FieldRef::Text("foo\r\nbar")),
        (r#"cpu v="say "hi" now" 1"#, "v", FieldRef::Text("say \"hi\" now")),
        ("cpu v=\"wè\" 1", "v", FieldRef::Text("wè")),
    ] {
        let found = scan(line.as_bytes(), NS);
        let fields = &found[0].as_ref().unwrap_or_else(|error| panic!("{error}")).fields;
        assert_eq!((found.len(), fields), (1, &vec![(name.to_owned(), value.to_value())]), "{line}");
    }
    let body = b"cpu true=true,t=t,T=T,TRUE=TRUE,True=True,false=false,f=f,F=F,FALSE=FALSE,False=False 1";
    let fields = scan(body, NS).remove(0).unwrap().fields;
    assert!(fields.iter().all(|(name, value)| *value == FieldValue::Boolean(name.starts_with(['t', 'T']))));
}

/// Blanks, comments, empty lines and every end of a line are as InfluxDB takes them, or better.
#[test]
fn blanks_comments_and_ends_of_lines_are_no_data() {
    let one = row("cpu", &[("v", FieldRef::Float(1.0))], Some(7));
    for body in [
        "cpu v=1 7",
        "cpu v=1 7\n",
        "cpu v=1 7\r\n",
        "cpu v=1 7\r",
        "  \t cpu v=1 7",
        "cpu   v=1    7  ",
        "\n\ncpu v=1 7\n\n",
        "# c\ncpu v=1 7\n#",
        "  # c=\"\ncpu v=1 7",
        "\r\n\r\ncpu v=1 7\r\n",
        "\0cpu v=1 7\n \t\0\n",
        "cpu \t v=1 \t 7",
        "# a quote \" and x=\"\ncpu v=1 7",
    ] {
        assert_eq!(scan(body.as_bytes(), NS), std::slice::from_ref(&one), "{body:?}");
    }
    for body in ["", " ", "\n", "\r\n", "#", "# c\n#d\n", "\t\n \n"] {
        assert_eq!(scan(body.as_bytes(), NS), [], "{body:?}");
    }
    assert_eq!(
        scan(b"cpu v=1\ncpu v=1 ", NS).iter().filter(|one| one.as_ref().unwrap().time.is_none()).count(),
        2
    );
    let body = b"cpu,path=C:\\\ncpu v=1 7\ncpu v=1 7\\\n";
    assert_eq!(scan(body, NS).iter().map(Result::is_ok).collect::<Vec<_>>(), [false, true, false]);
    // A quote in a tag begins no text, so that the line ends.
    let body = b"baz,mytag=\"a x=1 1441103862125\nbaz,mytag=a z=1 1441103862126";
    assert_eq!(scan(body, NS).iter().filter(|one| one.is_ok()).count(), 2);
}

/// A line of each largest size is read, and one more is refused.
#[test]
fn lines_are_bounded() {
    let reason = |line: &str| {
        let mut lines = Lines::new(line.as_bytes(), NS);
        lines.next_line().unwrap().map(|_| ()).map_err(|error| error.reason)
    };
    let text = |bytes| format!("m v=\"{}\" 1", "x".repeat(bytes));
    assert_eq!(reason(&text(HISTORY_TEXT_BYTES_MAX)), Ok(()));
    assert_eq!(
        reason(&text(HISTORY_TEXT_BYTES_MAX + 1)),
        Err(Reason::TextTooLong(HISTORY_TEXT_BYTES_MAX + 1))
    );
    let fields = |count| {
        let fields: Vec<String> = (0..count).map(|n| format!("f{n}=1")).collect();
        format!("m {}", fields.join(","))
    };
    assert_eq!(reason(&fields(HISTORY_FIELDS_MAX)), Ok(()));
    assert_eq!(reason(&fields(HISTORY_FIELDS_MAX + 1)), Err(Reason::TooManyFields));
    let line = |bytes: usize| {
        let texts = vec![format!("v=\"{}\"", "x".repeat(60_000)); 17].join(",");
        let start = format!("m {texts},w=\"");
        format!("{start}{}\"", "x".repeat(bytes - start.len() - 1))
    };
    assert_eq!(reason(&line(HISTORY_LINE_BYTES_MAX)), Ok(()));
    let too_long = HISTORY_LINE_BYTES_MAX + 1;
    assert_eq!(reason(&line(too_long)), Err(Reason::LineTooLong(too_long)));
    // The key of the element, the name of a field, and four bytes have one limit together.
    let key = |bytes: usize| format!("m,a={} vv=1", "x".repeat(bytes - 4));
    assert_eq!(reason(&key(HISTORY_KEY_BYTES_MAX - 6)), Ok(()));
    assert_eq!(reason(&key(HISTORY_KEY_BYTES_MAX - 5)), Err(Reason::KeyTooLong(HISTORY_KEY_BYTES_MAX + 1)));
    assert_eq!(reason(&key(HISTORY_KEY_BYTES_MAX + 1)), Err(Reason::KeyTooLong(HISTORY_KEY_BYTES_MAX + 1)));
}

/// Makes a text of characters that have a meaning in line protocol, and others.
fn any_text(random: &mut Random, longest: u64) -> String {
    const CHARS: [char; 20] = [
        'a',
        'b',
        'Z',
        '0',
        '9',
        ',',
        ' ',
        '=',
        '"',
        '\\',
        '#',
        '\n',
        '\r',
        '\t',
        'é',
        '\u{1F600}',
        '.',
        '/',
        ':',
        '-',
    ];
    (0..random.below(longest + 1)).map(|_| CHARS[random.below(20) as usize]).collect()
}

fn any_value(random: &mut Random) -> FieldValue {
    const FLOATS: [f64; 8] = [0.0, -0.0, 5e-324, -5e-324, f64::MAX, f64::MIN, f64::MIN_POSITIVE, 0.1];
    match random.below(8) {
        0 => FieldValue::Float(FLOATS[random.below(8) as usize]),
        1 => FieldValue::Float(
            Some(f64::from_bits(random.next())).filter(|value| value.is_finite()).unwrap_or(1.5),
        ),
        2 => FieldValue::Float(random.below(1_000_000) as f64 / 1000.0),
        3 => FieldValue::Integer([0, -1, i64::MAX, i64::MIN][random.below(4) as usize]),
        4 => FieldValue::Integer(random.next() as i64 >> random.below(64)),
        5 => FieldValue::Unsigned(if random.below(2) == 0 {
            u64::MAX
        } else {
            random.next() >> random.below(64)
        }),
        6 => FieldValue::Boolean(random.below(2) == 0),
        _ => FieldValue::Text(any_text(random, 20).into()),
    }
}

/// Writes a value as a client may.
fn written(random: &mut Random, value: &FieldValue) -> String {
    let spelling = |names: [&str; 5], random: &mut Random| names[random.below(5) as usize].to_owned();
    match value {
        FieldValue::Float(value) if random.below(2) == 0 => format!("{value:e}"),
        FieldValue::Float(value) => format!("{value}"),
        FieldValue::Integer(value) => format!("{value}i"),
        FieldValue::Unsigned(value) => format!("{value}u"),
        FieldValue::Boolean(true) => spelling(["t", "T", "true", "True", "TRUE"], random),
        FieldValue::Boolean(false) => spelling(["f", "F", "false", "False", "FALSE"], random),
        FieldValue::Text(text) => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}

/// Makes the name of a field that a line can carry: no newline, no backslash before another meaning, and no
/// blank at the start that is left out.
fn any_name(random: &mut Random) -> String {
    let name = any_text(random, 8).replace(['\n', '\\'], "");
    let name = name.trim_start_matches('\t');
    if name.is_empty() { "v".into() } else { name.into() }
}

/// Makes a line and what it means.
fn any_line(random: &mut Random) -> Option<(String, Row)> {
    let tags: Vec<(String, String)> =
        (0..random.below(4)).map(|n| (format!("{n}{}", any_text(random, 6)), any_text(random, 8))).collect();
    let series = series_of(&any_text(random, 8), &tags).ok()?;
    let mut line = series.clone();
    let mut fields = Vec::new();
    for n in 0..=random.below(4) {
        let (name, value) = (any_name(random), any_value(random));
        line.push(if n == 0 { ' ' } else { ',' });
        for char in name.chars() {
            if matches!(char, ',' | ' ' | '=') {
                line.push('\\');
            }
            line.push(char);
        }
        line.push('=');
        line.push_str(&written(random, &value));
        fields.push((name, value));
    }
    let time = (random.below(3) > 0)
        .then(|| (random.next() as i64 >> random.below(64)).clamp(i64::MIN + 2, i64::MAX - 1));
    if let Some(time) = time {
        line.push_str(&format!(" {time}"));
    }
    Some((line, Row { series, fields, time }))
}

/// A body that was made from values means these values, whatever they are.
#[test]
fn lines_made_from_values_mean_these_values() {
    let mut random = Random(1);
    for round in 0..3000 {
        let lines: Vec<_> = (0..5).filter_map(|_| any_line(&mut random)).collect();
        let ends = ["\n", "\r\n", "\n\n", "\n# \"=\\\n", " \n"];
        let mut body = String::new();
        let mut expected = Vec::new();
        for (line, row) in lines {
            body.push_str(&line);
            body.push_str(ends[random.below(5) as usize]);
            expected.push(Ok(row));
        }
        assert_eq!(scan(body.as_bytes(), NS), expected, "round {round}: {body:?}");
    }
}

/// No mutation of a body makes the scanner panic, loop, or give a key that is not canonical.
#[test]
fn mutated_bodies_never_panic() {
    let mut random = Random(2);
    for _ in 0..3000 {
        let lines = (0..3).filter_map(|_| any_line(&mut random));
        let mut body: Vec<u8> = lines.flat_map(|(line, _)| (line + "\n").into_bytes()).collect();
        for _ in 0..=random.below(6) {
            let place = random.below(body.len() as u64 + 1) as usize;
            let byte = *b",= \"\\\n\r#\t\0-.eiutfN0\xff".get(random.below(21) as usize).unwrap_or(&b'x');
            match random.below(3) {
                0 => body.insert(place, byte),
                1 if place < body.len() => body[place] = byte,
                _ if place < body.len() => drop(body.remove(place)),
                _ => {}
            }
        }
        let found = scan(&body, Precision::Seconds);
        assert!(found.len() <= 1 + body.iter().filter(|byte| **byte == b'\n').count());
        for row in found.into_iter().flatten() {
            let (measurement, tags) = split_series(&row.series).unwrap();
            assert_eq!(series_of(&measurement, &tags), Ok(row.series.clone()), "{body:?}");
        }
    }
}
