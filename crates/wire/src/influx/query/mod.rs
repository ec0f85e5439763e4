//! The closed list of InfluxQL statements that clients of InfluxDB 1.8 send: Grafana with InfluxQL,
//! Telegraf, the Python client `influxdb`, command lines. Everything else is an error in InfluxDB's form.
//!
//! Not in the list, although InfluxDB has it: subqueries, arithmetic, conditions on fields, regular
//! expressions as columns and parameters, `INTO`, time zones other than UTC, users, continuous queries.

mod condition;
mod duration;
mod lexer;
mod parameters;
mod parser;
mod reader;
mod select;
mod statement;
mod token;

pub use duration::duration as parse_duration;
pub use parameters::{Parameters, ParametersError};
pub use parser::{parse, parse_with};
pub use statement::{
    Argument, Bound, Clause, Column, ColumnKind, Condition, Fill, Filter, Function, Group, Instant, Interval,
    Key, Limits, Pattern, Policy, Select, Source, SourceName, Statement, TagTest, column_names,
};
pub use token::QueryError;
