//! The interface of InfluxDB 1.8, without its transport: bodies of writes, queries, answers. The texts
//! of its errors are InfluxDB's, because clients search them.
//!
//! - [`Lines`] scans a body in line protocol. [`canonical_series`] checks the name and tags of a line
//!   that is seen for the first time, and gives the key of its element.
//! - [`query::parse`] reads the closed list of InfluxQL statements; the text of another is an error.
//! - [`AnswerWriter`] writes the answer of a query as JSON or CSV.

mod answers;
mod layout;
mod line;
mod number;
mod precision;
pub mod query;
mod reason;
mod series;

pub(crate) use answers::csv_text;
pub use answers::{AnswerWriter, Cell, Format, error_body};
pub use line::{Fields, Line, Lines};
pub use precision::{InvalidPrecision, Precision};
pub use reason::{LineError, Reason};
pub use series::{Series, canonical_series, series_of, split_series};
