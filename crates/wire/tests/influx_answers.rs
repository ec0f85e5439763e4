//! Answers of queries: byte for byte those of InfluxDB 1.8, as far as it can give them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test reports")]

use exacat_model::FieldRef;
use exacat_wire::influx::{AnswerWriter, Cell, Format, Precision, error_body};

const JSON: Format = Format::Json { is_pretty: false };

fn text(value: &str) -> Cell<'_> {
    Cell::Value(FieldRef::Text(value))
}

fn float(value: f64) -> Cell<'static> {
    Cell::Value(FieldRef::Float(value))
}

fn integer(value: i64) -> Cell<'static> {
    Cell::Value(FieldRef::Integer(value))
}

fn finished(writer: AnswerWriter) -> String {
    String::from_utf8(writer.finish()).unwrap()
}

/// Writes a result of one series.
fn series(
    writer: &mut AnswerWriter,
    name: &str,
    tags: &[(&str, &str)],
    columns: &[&str],
    rows: &[&[Cell<'_>]],
) {
    writer.begin_series(name, tags, columns);
    rows.iter().for_each(|row| writer.row(row));
    writer.end_series(false);
}

/// Answers that were captured from InfluxDB 1.8.10.
#[test]
fn captured_answers_are_written() {
    let mut writer = AnswerWriter::new(JSON, None);
    writer.begin_result(0);
    writer.end_result(false, None);
    assert_eq!(finished(writer), "{\"results\":[{\"statement_id\":0}]}\n");

    let mut writer = AnswerWriter::new(JSON, None);
    writer.begin_result(0);
    series(&mut writer, "databases", &[], &["name"], &[&[text("d")]]);
    writer.end_result(false, None);
    assert_eq!(
        finished(writer),
        "{\"results\":[{\"statement_id\":0,\"series\":[{\"name\":\"databases\",\"columns\":[\"name\"],\"values\":[[\"d\"]]}]}]}\n"
    );

    let mut writer = AnswerWriter::new(JSON, Some(Precision::Milliseconds));
    writer.begin_result(0);
    let ms = |ms: i64| Cell::Time(ms * 1_000_000);
    let rows: [&[_]; 2] =
        [&[ms(1_763_000_000_000), float(1.0), integer(0)], &[ms(1_763_000_001_000), float(2.0), Cell::Null]];
    series(&mut writer, "ev", &[], &["time", "v", "q"], &rows);
    writer.end_result(false, None);
    assert_eq!(
        finished(writer),
        "{\"results\":[{\"statement_id\":0,\"series\":[{\"name\":\"ev\",\"columns\":[\"time\",\"v\",\"q\"],\"values\":\
         [[1763000000000,1,0],[1763000001000,2,null]]}]}]}\n"
    );

    let mut writer = AnswerWriter::new(JSON, None);
    writer.begin_result(0);
    let row: &[_] =
        &[text("autogen"), text("0s"), text("168h0m0s"), integer(1), Cell::Value(FieldRef::Boolean(true))];
    series(&mut writer, "", &[], &["name", "duration", "shardGroupDuration", "replicaN", "default"], &[row]);
    writer.end_result(false, None);
    assert_eq!(
        finished(writer),
        "{\"results\":[{\"statement_id\":0,\"series\":[{\"columns\":[\"name\",\"duration\",\"shardGroupDuration\",\
         \"replicaN\",\"default\"],\"values\":[[\"autogen\",\"0s\",\"168h0m0s\",1,true]]}]}]}\n"
    );

    let mut writer = AnswerWriter::new(JSON, None);
    writer.begin_result(0);
    writer.end_result(false, Some("database not found: nope"));
    assert_eq!(
        finished(writer),
        "{\"results\":[{\"statement_id\":0,\"error\":\"database not found: nope\"}]}\n"
    );

    let body = error_body(JSON, "database is required");
    assert_eq!(String::from_utf8(body).unwrap(), "{\"error\":\"database is required\"}\n");
}

/// Tags, several series and results, and what is partial.
#[test]
fn series_and_results_follow_each_other() {
    let mut writer = AnswerWriter::new(JSON, Some(Precision::Seconds));
    writer.begin_result(0);
    series(&mut writer, "ev", &[("e", "a")], &["time", "mean"], &[&[Cell::Time(10_000_000_000), Cell::Null]]);
    writer.begin_series("ev", &[("e", "b"), ("f", "")], &["time", "mean"]);
    writer.end_series(true);
    writer.end_result(true, None);
    writer.begin_result(1);
    writer.end_result(false, None);
    let start = writer.take();
    assert_eq!((writer.pending(), start.last()), (0, Some(&b'}')));
    let whole = [start, writer.finish()].concat();
    assert_eq!(
        String::from_utf8(whole).unwrap(),
        "{\"results\":[{\"statement_id\":0,\"series\":[{\"name\":\"ev\",\"tags\":{\"e\":\"a\"},\"columns\":[\"time\",\
         \"mean\"],\"values\":[[10,null]]},{\"name\":\"ev\",\"tags\":{\"e\":\"b\",\"f\":\"\"},\"columns\":[\"time\",\
         \"mean\"],\"partial\":true}],\"partial\":true},{\"statement_id\":1}]}\n"
    );
}

/// Times are texts to the nanosecond, or numbers in each unit. Numbers that JSON has not are null.
#[test]
fn values_of_every_type_are_written() {
    let written = |epoch, cells: &[Cell<'_>]| {
        let mut writer = AnswerWriter::new(JSON, epoch);
        writer.begin_result(0);
        series(&mut writer, "m", &[], &["c"], &[cells]);
        writer.end_result(false, None);
        let text = finished(writer);
        let start = text.find("[[").unwrap() + 2;
        text[start..text.find("]]").unwrap()].to_owned()
    };
    for (time, text) in [
        (0, "1970-01-01T00:00:00Z"),
        (1_763_000_000_000_000_000, "2025-11-13T02:13:20Z"),
        (1_763_000_000_001_000_000, "2025-11-13T02:13:20.001Z"),
        (1_763_000_000_000_000_120, "2025-11-13T02:13:20.00000012Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
        (i64::MAX, "2262-04-11T23:47:16.854775807Z"),
        (i64::MIN, "1677-09-21T00:12:43.145224192Z"),
    ] {
        assert_eq!(written(None, &[Cell::Time(time)]), format!("\"{text}\""));
    }
    let time = [Cell::Time(7_200_000_000_000)];
    for (epoch, number) in [
        (Precision::Nanoseconds, "7200000000000"),
        (Precision::Microseconds, "7200000000"),
        (Precision::Milliseconds, "7200000"),
        (Precision::Seconds, "7200"),
        (Precision::Minutes, "120"),
        (Precision::Hours, "2"),
    ] {
        assert_eq!(written(Some(epoch), &time), number);
    }
    let cells = [
        float(f64::NAN),
        float(f64::INFINITY),
        float(1e21),
        integer(i64::MIN),
        Cell::Value(FieldRef::Unsigned(u64::MAX)),
        Cell::Value(FieldRef::Boolean(false)),
        text("a\"<b>\n"),
    ];
    let expected =
        "null,null,1e+21,-9223372036854775808,18446744073709551615,false,\"a\\\"\\u003cb\\u003e\\n\"";
    assert_eq!(written(None, &cells), expected);
}

/// With pretty=true the text is indented as Go indents it.
#[test]
fn pretty_answers_are_indented() {
    let mut writer = AnswerWriter::new(Format::Json { is_pretty: true }, Some(Precision::Nanoseconds));
    writer.begin_result(0);
    series(&mut writer, "cpu", &[("a", "b")], &["time", "v"], &[&[Cell::Time(1), float(2.5)]]);
    writer.end_result(false, None);
    let expected = r#"{
    "results": [
        {
            "statement_id": 0,
            "series": [
                {
                    "name": "cpu",
                    "tags": {
                        "a": "b"
                    },
                    "columns": [
                        "time",
                        "v"
                    ],
                    "values": [
                        [
                            1,
                            2.5
                        ]
                    ]
                }
            ]
        }
    ]
}
"#;
    assert_eq!(finished(writer), expected);
    let body = error_body(Format::Json { is_pretty: true }, "x");
    assert_eq!(String::from_utf8(body).unwrap(), "{\n    \"error\": \"x\"\n}\n");
}

/// The example of InfluxDB's own test of CSV.
#[test]
fn csv_of_influxdb_is_written() {
    let mut writer = AnswerWriter::new(Format::Csv, None);
    writer.begin_result(0);
    let rows: [&[_]; 7] = [
        &[Cell::Time(10), float(2.5)],
        &[Cell::Time(20), integer(5)],
        &[Cell::Time(30), Cell::Null],
        &[Cell::Time(40), text("foobar")],
        &[Cell::Time(50), Cell::Value(FieldRef::Boolean(true))],
        &[Cell::Time(60), Cell::Value(FieldRef::Boolean(false))],
        &[Cell::Time(70), Cell::Value(FieldRef::Unsigned(1 << 63))],
    ];
    series(&mut writer, "cpu", &[("host", "server01"), ("region", "uswest")], &["time", "value"], &rows);
    series(&mut writer, "cpu", &[("host", ""), ("region", "")], &["time", "value"], &rows[..1]);
    writer.end_result(false, None);
    let expected = r#"name,tags,time,value
cpu,"host=server01,region=uswest",10,2.5
cpu,"host=server01,region=uswest",20,5
cpu,"host=server01,region=uswest",30,
cpu,"host=server01,region=uswest",40,foobar
cpu,"host=server01,region=uswest",50,true
cpu,"host=server01,region=uswest",60,false
cpu,"host=server01,region=uswest",70,9223372036854775808
cpu,,10,2.5
"#;
    assert_eq!(finished(writer), expected);
}

/// A blank line stands between tables; a result without series leaves no trace; quotes are Go's.
#[test]
fn tables_of_csv_are_separated() {
    let mut writer = AnswerWriter::new(Format::Csv, Some(Precision::Milliseconds));
    writer.begin_result(0);
    writer.end_result(false, None);
    writer.begin_result(1);
    series(&mut writer, "a", &[], &["time", "v"], &[&[Cell::Time(5_000_000), float(f64::NAN)]]);
    series(&mut writer, "b,c", &[("k =", "x\"y")], &["time", "w"], &[&[Cell::Time(-1), text(" a\nb")]]);
    writer.end_result(false, None);
    writer.begin_result(2);
    series(&mut writer, "a", &[], &["time", "w"], &[&[Cell::Time(0), float(f64::NEG_INFINITY)]]);
    writer.end_result(false, None);
    writer.begin_result(3);
    writer.end_result(false, Some("no, sorry"));
    let expected = "name,tags,time,v\na,,5,NaN\n\nname,tags,time,w\n\"b,c\",\"k\\ \\==x\"\"y\",0,\" a\nb\"\n\n\
        name,tags,time,w\na,,0,-Inf\n\nerror\n\"no, sorry\"\n";
    assert_eq!(finished(writer), expected);
    assert_eq!(String::from_utf8(error_body(Format::Csv, "x")).unwrap(), "error\nx\n");
}
