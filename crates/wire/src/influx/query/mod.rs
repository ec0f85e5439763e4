//! The closed list of InfluxQL statements that clients of InfluxDB 1.8 send: Grafana with InfluxQL,
//! Telegraf, the Python client `influxdb`, command lines. Everything else is an error in InfluxDB's form.
//!
//! Not in the list, although InfluxDB has it: subqueries, arithmetic, conditions on fields, regular
//! expressions as columns, bound parameters, `INTO`, time zones other than UTC, users, continuous queries.

mod condition;
mod duration;
mod lexer;
mod parser;
mod reader;
mod select;
mod statement;

pub use lexer::QueryError;
pub use parser::parse;
pub use statement::{
    Argument, Bound, Clause, Column, ColumnKind, Condition, Fill, Filter, Function, Group, Instant, Interval,
    Key, Limits, Pattern, Policy, Select, Source, SourceName, Statement, TagTest, column_names,
};
