//! Columns of the archive's files, for Parquet and for Delta.

use std::sync::{Arc, LazyLock};

use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use exacat_model::{Error, ErrorKind};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use serde_json::{Value, json};

pub(crate) const ELEMENT: &str = "element";
pub(crate) const NAME: &str = "name";
pub(crate) const SERIES: &str = "series";
pub(crate) const TIME: &str = "time";
pub(crate) const TIME_NS: &str = "time_ns";
pub(crate) const FIELD: &str = "field";
pub(crate) const VALUE: &str = "value";
pub(crate) const INTEGER: &str = "integer";
pub(crate) const TEXT: &str = "text";
pub(crate) const QUALITY: &str = "quality";
pub(crate) const FIELDS: &str = "fields";

/// Place of columns in a file.
pub(crate) const ELEMENT_AT: usize = 0;
pub(crate) const TIME_AT: usize = 3;

/// Digits of the column of integers: those of 64 bits without a sign.
pub(crate) const INTEGER_DIGITS: u8 = 20;

/// Records after which a row group ends. It has those of the last batch of rows, too.
pub(crate) const ROW_GROUP_ROWS: usize = 128 << 10;
/// Rows of a page: a read of one element decodes one or two.
pub(crate) const PAGE_ROWS: usize = 8192;
/// Bytes of the distinct values of a column in a row group, beyond which they are stored one by one.
const DICTIONARY_BYTES: usize = 2 << 20;
/// Level of the compression of pages.
pub(crate) const ZSTD_LEVEL: i32 = 1;

/// Key of the metadata with the names and types of fields, as JSON.
pub(crate) const METADATA_FIELDS: &str = "exacat.fields";
/// Key of the metadata with the field of quality of each measurement, as JSON.
pub(crate) const METADATA_QUALITY: &str = "exacat.quality";
/// Key of the metadata with the version of this form.
pub(crate) const METADATA_VERSION: &str = "exacat.version";
/// Key of the record of the history's log up to which the file has all rows of its day. Files of earlier
/// releases have none.
pub(crate) const METADATA_COMPLETE: &str = "exacat.complete";
/// Key of the digests of a file's blocks.
pub(crate) const METADATA_BLOCKS: &str = "exacat.blocks";
/// Version of the form of files.
pub(crate) const VERSION: &str = "2";
/// The same of files without digests of their blocks. They are read, and no longer written.
pub(crate) const VERSION_1: &str = "1";

static ARROW: LazyLock<SchemaRef> = LazyLock::new(|| {
    let texts = || DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    Arc::new(Schema::new(vec![
        Field::new(ELEMENT, DataType::Int64, false),
        Field::new(NAME, texts(), false),
        Field::new(SERIES, texts(), true),
        Field::new(TIME, DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), false),
        Field::new(TIME_NS, DataType::Int64, true),
        Field::new(FIELD, texts(), true),
        Field::new(VALUE, DataType::Float64, true),
        Field::new(INTEGER, DataType::Decimal128(INTEGER_DIGITS, 0), true),
        Field::new(TEXT, DataType::Utf8, true),
        Field::new(QUALITY, DataType::Int64, true),
        Field::new(FIELDS, DataType::Utf8, true),
    ]))
});

/// Returns the columns as Arrow has them.
pub(crate) fn arrow() -> SchemaRef {
    Arc::clone(&ARROW)
}

/// Returns the columns as Delta has them: those of the files, and the two of the folders.
pub(crate) fn delta() -> Value {
    let field = |(name, kind, nullable): (&str, &str, bool)| json!({"name": name, "type": kind, "nullable": nullable, "metadata": {}});
    let fields = [
        (ELEMENT, "long", false),
        (NAME, "string", false),
        (SERIES, "string", true),
        (TIME, "timestamp", false),
        (TIME_NS, "long", true),
        (FIELD, "string", true),
        (VALUE, "double", true),
        (INTEGER, "decimal(20,0)", true),
        (TEXT, "string", true),
        (QUALITY, "long", true),
        (FIELDS, "string", true),
        ("group", "string", true),
        ("day", "date", true),
    ];
    json!({"type": "struct", "fields": fields.map(field)})
}

/// Makes the error of a file that cannot be made. No input causes it.
pub(crate) fn internal(error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Internal, format!("internal error: a file of the archive: {error}"))
}

/// Returns the compression of pages.
pub(crate) fn compression() -> Compression {
    Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL).unwrap_or_default())
}

/// Returns the way of writing files.
pub(crate) fn properties() -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_created_by(format!("exacat {}", env!("CARGO_PKG_VERSION")))
        .set_compression(compression())
        // The writer of a day ends row groups; a rest of a few rows would be one of its own.
        .set_max_row_group_row_count(Some(2 * ROW_GROUP_ROWS))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_dictionary_page_size_limit(DICTIONARY_BYTES)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_sorting_columns(Some(
            [ELEMENT_AT, TIME_AT]
                .map(|at| SortingColumn { column_idx: at as i32, descending: false, nulls_first: false })
                .into(),
        ));
    for column in [ELEMENT, TIME, TIME_NS].map(ColumnPath::from) {
        properties = properties
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
    }
    for column in [ELEMENT, TIME].map(ColumnPath::from) {
        properties = properties.set_column_statistics_enabled(column, EnabledStatistics::Page);
    }
    properties.set_column_statistics_enabled(NAME.into(), EnabledStatistics::Chunk).build()
}
