//! Any text is a list of InfluxQL statements or an error of bounded length; what is read stays within its
//! bounds.
#![no_main]

use std::sync::LazyLock;

use exacat_model::limits::INFLUX_STATEMENTS_MAX;
use exacat_wire::influx::query::{Parameters, Statement, column_names, parse_with};
use libfuzzer_sys::fuzz_target;

/// Values that a text may name as `$a` to `$e`.
static PARAMETERS: LazyLock<Parameters> = LazyLock::new(|| {
    let json = r#"{"a":"x'","b":-9223372036854775808,"c":1.5,"d":{"duration":"1h"},"e":{"identifier":"v"}}"#;
    Parameters::from_json(json).expect("an object of values")
});

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let statements = match parse_with(text, &PARAMETERS) {
        Ok(statements) => statements,
        Err(error) => {
            let text = error.to_string();
            assert!(text.starts_with("error parsing query: ") && text.len() < 1000, "{text}");
            return;
        }
    };
    assert!((1..=INFLUX_STATEMENTS_MAX).contains(&statements.len()));
    for statement in statements {
        let Statement::Select(select) = statement else { continue };
        assert!(!select.columns.is_empty() && !select.from.is_empty());
        assert!(select.is_aggregate() || select.interval.is_none());
        if let Some(interval) = select.interval {
            assert!(interval.every > 0 && (0..interval.every).contains(&interval.offset));
        }
        let columns: Vec<_> =
            select.columns.iter().map(|column| (column.kind.name(), column.alias.as_deref())).collect();
        assert_eq!(column_names(&columns).len(), columns.len());
        if let Some(condition) = &select.filter.tags {
            condition.holds(&|_| "value");
        }
        select.filter.range(0);
    }
});
