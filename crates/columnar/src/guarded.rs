//! Calls of the library on bytes that may be damaged.

use std::panic::{AssertUnwindSafe, catch_unwind};

use exacat_model::{Error, ErrorKind, Result};
use parquet::errors::ParquetError;

/// Calls the library. A panic of it on damaged bytes is an error like others. `name` is the file.
pub fn guarded<T>(name: &str, call: impl FnOnce() -> std::result::Result<T, ParquetError>) -> Result<T> {
    let why = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(done)) => return Ok(done),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the library stopped at its bytes".to_owned(),
    };
    Err(unreadable(name, &why))
}

/// Makes the error of a file that the library cannot read.
pub(crate) fn unreadable(name: &str, why: &str) -> Error {
    let message = match why.contains("Disabled feature at compile time") {
        true => format!("{name}: its compression is not supported: write it with zstd, snappy, gzip or lz4"),
        false => format!("{name}: it is no whole Parquet file: {why}; copy or write it again"),
    };
    Error::new(ErrorKind::Invalid, message)
}
