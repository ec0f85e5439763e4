//! The closed list of InfluxQL: statements of known clients, and the errors of InfluxDB's own tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test reports")]

mod random;

use exacat_model::limits::{
    INFLUX_NESTING_MAX, INFLUX_PARAMETERS_BYTES_MAX, INFLUX_PATTERNS_MAX, INFLUX_QUERY_BYTES_MAX,
    INFLUX_STATEMENTS_MAX,
};
use exacat_wire::influx::query::{
    Argument, Bound, Clause, Column, ColumnKind, Condition, Fill, Function, Group, Instant, Interval, Key,
    Limits, Parameters, Policy, Select, SourceName, Statement, TagTest, parse, parse_with,
};
use random::Random;

const SECOND: i64 = 1_000_000_000;

fn one(text: &str) -> Statement {
    let mut statements = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(statements.len(), 1, "{text}");
    statements.remove(0)
}

fn select(text: &str) -> Select {
    match one(text) {
        Statement::Select(select) => *select,
        other => panic!("{other:?}"),
    }
}

fn refused(text: &str) -> String {
    match parse(text) {
        Ok(statements) => panic!("{text}: {statements:?}"),
        Err(error) => error.to_string().strip_prefix("error parsing query: ").unwrap().to_owned(),
    }
}

fn names(clause: &Clause) -> Vec<&str> {
    let names = clause.from.iter().map(|source| match &source.name {
        SourceName::Is(name) => name.as_str(),
        SourceName::Matches(pattern) => pattern.as_str(),
    });
    names.collect()
}

fn tag(key: &str, value: &str) -> Condition {
    Condition::Tag { key: key.into(), test: TagTest::Is(value.into()) }
}

fn aggregate(function: Function, field: &str) -> Column {
    Column { kind: ColumnKind::Aggregate { function, of: Argument::Field(field.into()) }, alias: None }
}

/// Telegraf's and the Python client's statements at their start.
#[test]
fn statements_about_databases_are_read() {
    assert_eq!(one("SHOW DATABASES"), Statement::ShowDatabases);
    let create = |policy| Statement::CreateDatabase { name: "telegraf".into(), policy };
    assert_eq!(one("CREATE DATABASE \"telegraf\""), create(Policy::default()));
    let policy = Policy {
        name: Some("autogen".into()),
        duration: Some(30 * 86_400 * SECOND),
        replication: Some(1),
        shard_duration: Some(3600 * SECOND),
        is_default: false,
    };
    let text = "create database telegraf with duration 30d replication 1 shard duration 1h name autogen";
    assert_eq!(one(text), create(policy.clone()));
    assert_eq!(one("DROP DATABASE \"d\""), Statement::DropDatabase { name: "d".into() });
    let show =
        |database: Option<&str>| Statement::ShowRetentionPolicies { database: database.map(Into::into) };
    assert_eq!(one("SHOW RETENTION POLICIES on \"d\""), show(Some("d")));
    assert_eq!(one("SHOW RETENTION POLICIES"), show(None));
    let text =
        "CREATE RETENTION POLICY \"autogen\" ON \"d\" DURATION 30d REPLICATION 1 SHARD DURATION 1h DEFAULT";
    let policy = Policy { is_default: true, ..policy };
    assert_eq!(one(text), Statement::CreateRetentionPolicy { database: "d".into(), policy });
    let policy =
        Policy { name: Some("autogen".into()), duration: Some(0), replication: Some(2), ..Policy::default() };
    let text = "ALTER RETENTION POLICY \"autogen\" ON \"d\" REPLICATION 2 DURATION INF";
    assert_eq!(one(text), Statement::AlterRetentionPolicy { database: "d".into(), policy });
    let drop = Statement::DropRetentionPolicy { database: "d".into(), name: "autogen".into() };
    assert_eq!(one("DROP RETENTION POLICY \"autogen\" ON \"d\""), drop);
}

/// Grafana's statements for its health check, its builder and its variables.
#[test]
fn statements_about_names_are_read() {
    let Statement::ShowMeasurements { with: None, clause } = one("SHOW measurements") else { panic!() };
    assert_eq!(clause, Clause::default());
    let text = "SHOW MEASUREMENTS ON \"d\" WITH MEASUREMENT =~ /(?i)cp\\/u/ WHERE \"host\" = 'a' LIMIT 100";
    let Statement::ShowMeasurements { with: Some(with), clause } = one(text) else { panic!() };
    assert!(matches!(with.name, SourceName::Matches(pattern) if pattern.as_str() == "(?i)cp/u"));
    assert_eq!((clause.database.as_deref(), clause.limits.limit), (Some("d"), Some(100)));
    assert_eq!(clause.filter.tags, Some(tag("host", "a")));
    let Statement::ShowTagKeys(clause) = one("SHOW TAG KEYS FROM \"autogen\".\"cpu\", mem LIMIT 5 OFFSET 2")
    else {
        panic!()
    };
    assert_eq!(names(&clause), ["cpu", "mem"]);
    assert_eq!(clause.from[0].policy.as_deref(), Some("autogen"));
    assert_eq!(clause.limits, Limits { limit: Some(5), offset: 2 });
    let values = |text| match one(text) {
        Statement::ShowTagValues { key, clause } => (key, clause),
        other => panic!("{other:?}"),
    };
    let (key, clause) = values("SHOW TAG VALUES FROM ev WITH KEY=e");
    assert_eq!((key, names(&clause)), (Key::In(vec!["e".into()]), vec!["ev"]));
    let (key, clause) = values(
        "SHOW TAG VALUES ON \"d\" WITH KEY IN (\"a\", b) WHERE \"x\" = 'y' AND time > now() - 1h LIMIT 3",
    );
    assert_eq!(key, Key::In(vec!["a".into(), "b".into()]));
    assert_eq!((clause.filter.tags, clause.filter.times.len()), (Some(tag("x", "y")), 1));
    assert!(
        matches!(values("SHOW TAG VALUES WITH KEY =~ /^a/").0, Key::Matches(pattern) if pattern.matches("ab"))
    );
    assert!(matches!(values("SHOW TAG VALUES WITH KEY !~ /^a/").0, Key::DoesNotMatch(_)));
    assert_eq!(values("SHOW TAG VALUES WITH KEY != a").0, Key::IsNot("a".into()));
    let Statement::ShowFieldKeys(clause) = one("SHOW FIELD KEYS FROM \"ev\"") else { panic!() };
    assert_eq!(names(&clause), ["ev"]);
    let Statement::ShowSeries(clause) = one("SHOW SERIES FROM /^e/ WHERE a = 'b' LIMIT 1") else { panic!() };
    assert_eq!(names(&clause), ["^e"]);
}

/// The query of Grafana's builder.
#[test]
fn query_of_grafana_is_read() {
    let text = "SELECT mean(\"v\") AS \"value\", max(v) FROM \"autogen\".\"ev\" WHERE (\"e\"::tag =~ /^(a|b)$/ AND \
        \"s\" != 'x') AND time >= 1763000000000ms and time <= 1763003600000ms GROUP BY time(10s), \"e\"::tag fill(null) \
        ORDER BY time DESC LIMIT 10 OFFSET 1 SLIMIT 2 SOFFSET 3 tz('UTC')";
    let select = select(text);
    let mean = Column { alias: Some("value".into()), ..aggregate(Function::Mean, "v") };
    assert_eq!(select.columns, [mean, aggregate(Function::Max, "v")]);
    let Some(Condition::All(parts)) = &select.filter.tags else { panic!("{:?}", select.filter) };
    assert!(matches!(&parts[0], Condition::Tag { key, test: TagTest::Matches(pattern) }
        if key == "e" && pattern.matches("a") && !pattern.matches("ab")));
    assert!(matches!(&parts[1], Condition::Tag { test: TagTest::IsNot(text), .. } if text == "x"));
    assert_eq!(select.filter.range(0), (1_763_000_000 * SECOND, 1_763_003_600 * SECOND));
    assert_eq!(select.interval, Some(Interval { every: 10 * SECOND, offset: 0 }));
    assert_eq!(select.group, [Group::Tag("e".into())]);
    assert!(select.is_aggregate() && select.is_descending && select.fill == Fill::Null);
    assert_eq!(select.limits, Limits { limit: Some(10), offset: 1 });
    assert_eq!(select.series_limits, Limits { limit: Some(2), offset: 3 });
}

/// Columns, functions and groups in all their forms.
#[test]
fn columns_and_groups_are_read() {
    let kinds = |text| select(text).columns.into_iter().map(|column| column.kind).collect::<Vec<_>>();
    let of = |name: &str| ColumnKind::Named(name.into());
    assert_eq!(kinds("select v,q from ev"), [of("v"), of("q")]);
    assert_eq!(kinds("SELECT * FROM ev"), [ColumnKind::All]);
    assert_eq!(kinds("SELECT *::field, *::tag FROM ev"), [ColumnKind::AllFields, ColumnKind::AllTags]);
    assert_eq!(kinds("SELECT time, \"a b\"::field FROM ev"), [ColumnKind::Field("a b".into())]);
    for (name, function) in [
        ("count", Function::Count),
        ("SUM", Function::Sum),
        ("mean", Function::Mean),
        ("min", Function::Min),
        ("max", Function::Max),
        ("first", Function::First),
        ("Last", Function::Last),
        ("spread", Function::Spread),
        ("integral", Function::Integral { unit: SECOND }),
    ] {
        let found = select(&format!("SELECT {name}(\"v\") FROM ev")).columns;
        assert_eq!(found, [aggregate(function, "v")]);
        assert_eq!(found[0].kind.name(), name.to_lowercase());
    }
    let unit = Function::Integral { unit: 60 * SECOND };
    assert_eq!(select("SELECT integral(v, 1m) FROM ev").columns, [aggregate(unit, "v")]);
    let all = ColumnKind::Aggregate { function: Function::Count, of: Argument::AllFields };
    assert_eq!(kinds("SELECT count(*) FROM ev"), [all]);
    let text =
        "SELECT last(v) FROM /^e/, \"d\".\"rp\".\"m\", \"d\"..m, d.rp./x/ GROUP BY *, /a.*/, time(1m, -10s)";
    let select = select(text);
    assert_eq!(select.interval, Some(Interval { every: 60 * SECOND, offset: 50 * SECOND }));
    assert!(matches!(&select.group[..], [Group::AllTags, Group::Matches(_)]));
    let places: Vec<_> =
        select.from.iter().map(|source| (source.database.as_deref(), source.policy.as_deref())).collect();
    assert_eq!(places, [(None, None), (Some("d"), Some("rp")), (Some("d"), None), (Some("d"), Some("rp"))]);
    for (text, fill) in [
        ("none", Fill::None),
        ("NULL", Fill::Null),
        ("previous", Fill::Previous),
        ("linear", Fill::Linear),
        ("0", Fill::Number(0.0)),
        ("-1.5", Fill::Number(-1.5)),
    ] {
        let text = format!("SELECT mean(v) FROM ev GROUP BY time(1m) fill({text})");
        let Statement::Select(select) = one(&text) else { panic!() };
        assert_eq!(select.fill, fill, "{text}");
    }
}

/// Times in all their forms, and the bounds that they make.
#[test]
fn times_are_read() {
    let now = 1_763_000_000 * SECOND;
    let hour = 3600 * SECOND;
    for (text, range) in [
        ("time > now() - 1h", (now - hour + 1, i64::MAX)),
        ("time >= now()-1h30m AND time < now()", (now - hour * 3 / 2, now - 1)),
        ("time >= '2025-11-13T02:13:20Z' AND time <= '2025-11-13 03:13:20'", (now, now + hour)),
        ("time = 5", (5, 5)),
        ("time >= -5 AND time < 10s", (-5, 10 * SECOND - 1)),
        ("TIME >= '2025-11-13' + 2h - 1s + 1801s", (now + 1000 * SECOND, i64::MAX)),
        ("(time > 1ms AND (time < 1h))", (1_000_001, hour - 1)),
        ("time > now() AND time < now()", (now + 1, now - 1)),
    ] {
        let filter = select(&format!("SELECT v FROM ev WHERE {text}")).filter;
        assert_eq!((filter.range(now), filter.tags), (range, None), "{text}");
    }
    let filter = select("SELECT v FROM ev WHERE a = 'b' AND time > now() - 1h").filter;
    assert_eq!(filter.times, [Bound::From(Instant::FromNow(1 - hour))]);
}

/// AND binds closer than OR; parentheses and comments are where they may be.
#[test]
fn conditions_are_read() {
    let tags = |text: &str| select(&format!("SELECT v FROM ev WHERE {text}")).filter.tags.unwrap();
    let (a, b, c) = (tag("a", "1"), tag("b", "2"), tag("c", "3"));
    let any = Condition::Any(vec![a.clone(), Condition::All(vec![b.clone(), c.clone()])]);
    assert_eq!(tags("a = '1' OR b = '2' AND c = '3'"), any);
    let all = Condition::All(vec![Condition::Any(vec![a.clone(), b]), c]);
    assert_eq!(tags("(a = '1' or \"b\" = '2') /* x */ and c = '3' -- end"), all);
    assert_eq!(tags("time > 0 AND (a = '1' AND time < 5)"), a);
    let quoted = Condition::Tag { key: "a\"b".into(), test: TagTest::IsNot("it's\n\\".into()) };
    assert_eq!(tags(r#""a\"b" <> 'it\'s\n\\'"#), quoted);
}

/// The values that the Python client binds stand where the text names them, and are never read as text of
/// the query.
#[test]
fn parameters_stand_for_their_values() {
    let json = r#"{"a": "x' OR 'y", "t": -5, "l": 7, "d": {"duration": "1h30m"}, "n": {"duration": 5},
        "f": {"identifier": "a b"}, "x": 1.5, "y": true, "s": {"string": ""}, "i": {"integer": 3}}"#;
    let parameters = Parameters::from_json(json).unwrap();
    let text = "SELECT mean($f) FROM m WHERE a = $a AND b != $s AND time > $t AND time < now() - $d + $n \
        GROUP BY time($d) fill($x) LIMIT $l OFFSET $i";
    let Statement::Select(select) = parse_with(text, &parameters).unwrap().remove(0) else { panic!() };
    assert_eq!(select.columns, [aggregate(Function::Mean, "a b")]);
    let empty = Condition::Tag { key: "b".into(), test: TagTest::IsNot(String::new()) };
    assert_eq!(select.filter.tags, Some(Condition::All(vec![tag("a", "x' OR 'y"), empty])));
    assert_eq!(select.filter.range(0), (-4, 5 - 5400 * SECOND - 1));
    assert_eq!((select.fill, select.limits), (Fill::Number(1.5), Limits { limit: Some(7), offset: 3 }));
    let error = |text| parse_with(text, &parameters).unwrap_err().to_string();
    assert!(error("SELECT v FROM m WHERE a = $y").contains("found TRUE, expected string"));
    assert!(error("SELECT v FROM m WHERE a = $z").contains("found $z, expected string"));
    assert!(error("SELECT v FROM m LIMIT $t").contains("unable to parse integer"));
    for (json, part) in [
        ("[]", "error parsing query parameters: "),
        ("{\"a\": [1]}", "unable to bind the value of \"a\""),
        ("{\"a\": {\"regex\": \"x\"}}", "unable to bind the value of \"a\""),
        ("{\"a\": null}", "unable to bind the value of \"a\""),
    ] {
        let error = Parameters::from_json(json).unwrap_err().to_string();
        assert!(error.contains(part), "{json}: {error}");
    }
    assert!(Parameters::from_json("").is_ok());
    let lowest = Parameters::from_json(&format!("{{\"t\": {}}}", i64::MIN)).unwrap();
    assert!(parse_with("SELECT v FROM m WHERE time > -$t", &lowest).is_ok());
}

/// Several statements, with empty ones between them.
#[test]
fn statements_are_separated() {
    let text = ";SHOW DATABASES;; SHOW MEASUREMENTS -- c\n;\nselect v from ev;";
    assert_eq!(parse(text).unwrap().len(), 3);
    assert_eq!(refused("SHOW DATABASES SHOW DATABASES"), "found SHOW, expected ; at line 1, char 16");
}

/// Texts of errors are InfluxDB's, with the words that exacat accepts.
#[test]
fn errors_are_those_of_influxdb() {
    let statements = "SELECT, SHOW, CREATE, DROP, ALTER";
    for (text, error) in [
        ("", format!("found EOF, expected {statements} at line 1, char 1")),
        ("blah blah", format!("found blah, expected {statements} at line 1, char 1")),
        ("DELETE FROM ev", format!("found DELETE, expected {statements} at line 1, char 1")),
        ("$SHOW$DATABASES", format!("found $SHOW, expected {statements} at line 1, char 1")),
        (
            "SHOW FOO",
            "found FOO, expected DATABASES, FIELD, MEASUREMENTS, RETENTION, SERIES, TAG at line 1, char 6"
                .into(),
        ),
    ] {
        assert_eq!(refused(text), error);
    }
    for (text, error) in [
        ("SELECT", "found EOF, expected identifier, string, number, bool at line 1, char 8"),
        ("SELECT field1 X", "found X, expected FROM at line 1, char 15"),
        ("SELECT field1 FROM myseries GROUP", "found EOF, expected BY at line 1, char 35"),
        ("SELECT field1 FROM myseries LIMIT", "found EOF, expected integer at line 1, char 35"),
        ("SELECT field1 FROM myseries LIMIT 10.5", "found 10.5, expected integer at line 1, char 35"),
        ("SELECT field1 FROM myseries OFFSET", "found EOF, expected integer at line 1, char 36"),
        ("SELECT field1 FROM myseries OFFSET 10.5", "found 10.5, expected integer at line 1, char 36"),
        ("SELECT field1 FROM myseries ORDER", "found EOF, expected BY at line 1, char 35"),
        (
            "SELECT field1 FROM myseries ORDER BY",
            "found EOF, expected identifier, ASC, DESC at line 1, char 38",
        ),
        (
            "SELECT field1 FROM myseries ORDER BY /",
            "found /, expected identifier, ASC, DESC at line 1, char 38",
        ),
        (
            "SELECT field1 FROM myseries ORDER BY 1",
            "found 1, expected identifier, ASC, DESC at line 1, char 38",
        ),
        (
            "SELECT field1 FROM myseries ORDER BY time ASC,",
            "found EOF, expected identifier at line 1, char 47",
        ),
        ("SELECT field1 FROM myseries ORDER BY time, field1", "only ORDER BY time supported at this time"),
        ("SELECT field1 AS", "found EOF, expected identifier at line 1, char 18"),
        ("SELECT field1 FROM 12", "found 12, expected identifier at line 1, char 20"),
        (
            "SELECT field1 from myseries WHERE host =~ 'asd' LIMIT 1",
            "found asd, expected regex at line 1, char 42",
        ),
        ("SHOW RETENTION", "found EOF, expected POLICIES at line 1, char 16"),
        ("SHOW RETENTION ON", "found ON, expected POLICIES at line 1, char 16"),
        ("SHOW RETENTION POLICIES ON", "found EOF, expected identifier at line 1, char 28"),
        ("CREATE DATABASE", "found EOF, expected identifier at line 1, char 17"),
        (
            "CREATE DATABASE \"testdb\" WITH",
            "found EOF, expected DURATION, NAME, REPLICATION, SHARD at line 1, char 31",
        ),
        ("CREATE DATABASE \"testdb\" WITH DURATION", "found EOF, expected duration at line 1, char 40"),
        ("CREATE DATABASE \"testdb\" WITH REPLICATION", "found EOF, expected integer at line 1, char 43"),
        ("CREATE DATABASE \"testdb\" WITH NAME", "found EOF, expected identifier at line 1, char 36"),
        ("CREATE DATABASE \"testdb\" WITH SHARD", "found EOF, expected DURATION at line 1, char 37"),
        ("DROP DATABASE", "found EOF, expected identifier at line 1, char 15"),
        ("DROP RETENTION", "found EOF, expected POLICY at line 1, char 16"),
        ("DROP RETENTION POLICY \"1h.cpu\"", "found EOF, expected ON at line 1, char 31"),
        (
            "CREATE RETENTION POLICY policy1 ON testdb DURATION bad",
            "found bad, expected duration at line 1, char 52",
        ),
        (
            "CREATE RETENTION POLICY policy1 ON testdb DURATION 1h REPLICATION 0",
            "invalid value 0: must be 1 <= n <= 2147483647 at line 1, char 67",
        ),
        (
            "CREATE RETENTION POLICY policy1 ON testdb DURATION 1h REPLICATION 2 SHARD DURATION INF",
            "invalid duration INF for shard duration at line 1, char 84",
        ),
        ("ALTER", "found EOF, expected RETENTION at line 1, char 7"),
        (
            "ALTER RETENTION POLICY policy1 ON testdb",
            "found EOF, expected DURATION, REPLICATION, SHARD, DEFAULT at line 1, char 42",
        ),
        (
            "ALTER RETENTION POLICY policy1 ON testdb REPLICATION 1 REPLICATION 2",
            "found duplicate REPLICATION option at line 1, char 56",
        ),
        (
            "ALTER RETENTION POLICY policy1 ON testdb DURATION 15251w",
            "overflowed duration 15251w: choose a smaller duration or INF at line 1, char 51",
        ),
        ("SELECT mean(value) FROM cpu FILL + value", "fill must be a function call"),
        ("SELECT mean(v) FROM m\nWHERE\n  time > 'x'", "invalid timestamp string at line 3, char 9"),
        ("SELECT v FROM m WHERE a =~ /(/", "error parsing regexp: unclosed group at line 1, char 28"),
        ("SELECT v FROM m WHERE a =~ /b", "bad regex: b at line 1, char 28"),
        ("SELECT v FROM m WHERE a = 'b", "found b, expected string at line 1, char 26"),
    ] {
        assert_eq!(refused(text), error, "{text}");
    }
}

/// Statements that InfluxDB has and exacat has not are refused, never half read.
#[test]
fn other_statements_are_refused() {
    for (text, part) in [
        ("SELECT v * 2 FROM ev", "found *, expected FROM"),
        ("SELECT mean(v) + 1 FROM ev", "found +, expected FROM"),
        ("SELECT v FROM (SELECT v FROM ev)", "found (, expected identifier"),
        ("SELECT v INTO x FROM ev", "found INTO, expected FROM"),
        ("SELECT median(v) FROM ev", "undefined function median()"),
        ("SELECT mean(max(v)) FROM ev", "found (, expected )"),
        ("SELECT count(distinct(v)) FROM ev", "expected field argument in count()"),
        ("SELECT /v/ FROM ev", "found /, expected identifier"),
        ("SELECT v FROM ev WHERE v > 3", "found >, expected =, !=, =~, !~"),
        ("SELECT v FROM ev WHERE v = 3", "found 3, expected string"),
        ("SELECT v FROM ev WHERE v::field = 'x'", "found FIELD, expected TAG"),
        ("SELECT v FROM ev WHERE time > 0 OR a = 'b'", "a time cannot be combined with OR"),
        ("SELECT v FROM ev WHERE a = 'b' OR (time > 0)", "a time cannot be combined with OR"),
        ("SELECT v FROM ev WHERE time != 0", "invalid time comparison operator: !="),
        ("SELECT v FROM ev WHERE time > now() - 5", "found 5, expected duration"),
        ("SELECT v FROM ev WHERE a = $b", "found $b, expected string"),
        ("SELECT v FROM ev GROUP BY time(10s)", "GROUP BY requires at least one aggregate function"),
        ("SELECT v FROM ev fill(none)", "fill(none) must be used with a function"),
        ("SELECT v, mean(v) FROM ev", "mixing aggregate and non-aggregate queries is not supported"),
        ("SELECT a::tag FROM ev", "at least 1 non-time field must be queried"),
        ("SELECT time FROM ev", "at least 1 non-time field must be queried"),
        ("SELECT mean(v) FROM ev GROUP BY time(0s)", "time dimension must have duration argument"),
        ("SELECT mean(v) FROM ev GROUP BY time(1s), time(2s)", "multiple time dimensions not allowed"),
        ("SELECT mean(v) FROM ev GROUP BY time(1s, now())", "time dimension offset must be duration"),
        ("SELECT mean(v) FROM ev GROUP BY x(1s)", "only time() calls allowed in dimensions"),
        ("SELECT mean(v) FROM ev GROUP BY time(1s) fill(x)", "expected number argument in fill()"),
        ("SELECT integral(v, 0s) FROM ev", "duration argument must be positive"),
        ("SELECT v FROM ev tz('Europe/Zurich')", "time zone Europe/Zurich is not supported, only UTC"),
        ("SELECT v FROM a.b.c.d", "too many segments"),
        ("SELECT v FROM ev LIMIT 99999999999999999999", "unable to parse integer"),
        ("SHOW USERS", "found USERS, expected DATABASES"),
        ("SHOW SERIES CARDINALITY", "found CARDINALITY, expected ;"),
        ("SHOW TAG VALUES FROM ev", "found EOF, expected WITH"),
        ("DROP MEASUREMENT ev", "found MEASUREMENT, expected DATABASE, RETENTION"),
        ("SHOW DATABASES /* no end", "found /, expected ;"),
    ] {
        let error = refused(text);
        assert!(error.starts_with(part), "{text}: {error}");
    }
}

/// A query of each largest size is read, and one more is refused.
#[test]
fn queries_are_bounded() {
    let padded = |bytes: usize| "SHOW DATABASES".to_owned() + &" ".repeat(bytes - 14);
    assert!(parse(&padded(INFLUX_QUERY_BYTES_MAX)).is_ok());
    assert!(refused(&padded(INFLUX_QUERY_BYTES_MAX + 1)).contains("more than 65536"));
    let many = |count| "SHOW DATABASES;".repeat(count);
    assert_eq!(parse(&many(INFLUX_STATEMENTS_MAX)).unwrap().len(), INFLUX_STATEMENTS_MAX);
    assert!(refused(&many(INFLUX_STATEMENTS_MAX + 1)).contains("at most 64 statements"));
    let nested =
        |depth: usize| format!("SELECT v FROM m WHERE {}a = 'b'{}", "(".repeat(depth), ")".repeat(depth));
    assert!(parse(&nested(INFLUX_NESTING_MAX)).is_ok());
    assert!(refused(&nested(INFLUX_NESTING_MAX + 1)).contains("nest deeper than 32"));
    assert!(refused(&nested(30_000)).contains("nest deeper"));
    let patterns = |count| format!("SHOW SERIES FROM {}", vec!["/a/"; count].join(","));
    assert!(parse(&patterns(INFLUX_PATTERNS_MAX)).is_ok());
    assert!(refused(&patterns(INFLUX_PATTERNS_MAX + 1)).contains("at most 64 regular expressions"));
    let value = |bytes| format!("{{\"a\":\"{}\"}}", "x".repeat(bytes));
    assert!(Parameters::from_json(&value(INFLUX_QUERY_BYTES_MAX - 8)).is_ok());
    assert!(
        Parameters::from_json(&value(INFLUX_QUERY_BYTES_MAX - 7)).unwrap_err().to_string().contains("65537")
    );
    let parameters = Parameters::from_json(&value(INFLUX_PARAMETERS_BYTES_MAX / 32)).unwrap();
    let many = |count| format!("SELECT v FROM m WHERE {}", vec!["a=$a"; count].join(" OR "));
    assert!(parse_with(&many(32), &parameters).is_ok());
    assert!(parse_with(&many(33), &parameters).unwrap_err().to_string().contains("more than 1048576"));
    // A message has the start of what it found only.
    assert!(refused(&format!("SELECT v {}", "x".repeat(60_000))).len() < 300);
}

/// No text makes the parser panic: words of the language in any order, cut off and mutated.
#[test]
fn any_words_never_panic() {
    const WORDS: [&str; 52] = [
        "SELECT",
        "SHOW",
        "FROM",
        "WHERE",
        "GROUP",
        "BY",
        "time",
        "(",
        ")",
        "now",
        ",",
        "10s",
        "'x'",
        "\"q\"",
        "/re/",
        "=~",
        "=",
        "!=",
        "AND",
        "OR",
        "ORDER",
        "LIMIT",
        "5",
        "fill",
        "null",
        "mean",
        "*",
        "::",
        "tag",
        "field",
        "TAG",
        "VALUES",
        "WITH",
        "KEY",
        "IN",
        "ON",
        "CREATE",
        "DATABASE",
        ";",
        "-",
        "+",
        ".",
        "'2025-11-13'",
        "é",
        "\\",
        "'",
        "\"",
        "/",
        "--",
        "/*",
        "\r\n",
        "1.5",
    ];
    let mut random = Random(3);
    let mut read = 0;
    for _ in 0..60_000 {
        let mut text = String::from(if random.below(2) == 0 { "SELECT v FROM m " } else { "" });
        for _ in 0..random.below(12) {
            text.push_str(WORDS[random.below(52) as usize]);
            text.push_str(if random.below(4) == 0 { "" } else { " " });
        }
        match parse(&text) {
            Ok(statements) => read += statements.len(),
            Err(error) => assert!(error.to_string().len() < 700, "{text}: {error}"),
        }
    }
    assert!(read > 100, "{read}");
}
