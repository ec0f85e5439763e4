//! The history of elements: values by name and time, written at hundreds of thousands a second, kept
//! for decades.

pub mod aggregate;
pub mod columns;
pub mod merge;
pub mod row;
pub mod run;
pub mod sorted;

#[cfg(test)]
mod test_rows;
