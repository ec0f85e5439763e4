//! Columns of a table: their kinds, and how they are stored.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;

use crate::limits::{DICTIONARY_BYTES, PAGE_ROWS, ROW_GROUP_BYTES, ROW_GROUP_ROWS, STATISTICS_BYTES};

/// Digits of a large number.
const LARGE_DIGITS: u8 = 38;
/// Largest number of such a column; sums of bytes end far below it.
pub const LARGE_MAX: i128 = 10i128.pow(LARGE_DIGITS as u32) - 1;

/// Names inside a map, as the Parquet specification gives them.
pub(crate) const MAP_ENTRIES: &str = "key_value";
pub(crate) const MAP_KEY: &str = "key";
pub(crate) const MAP_VALUE: &str = "value";

/// Kind of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Text with few distinct values: a name of an account, a kind.
    Word,
    /// Text that is mostly another one in each row.
    Text,
    /// Text that mostly begins as the one of the row before: a path in sorted order.
    Path,
    /// Whole number with 64 bits.
    Long,
    /// Moment, in microseconds since 1970, UTC.
    Time,
    /// Whole number with 38 decimal digits.
    Large,
    /// Texts by keys.
    Map,
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnSpec {
    /// Its name.
    pub name: &'static str,
    /// Kind of its values.
    pub kind: ColumnKind,
    /// True if a row may have no value.
    pub nullable: bool,
}

impl ColumnSpec {
    /// Makes a column with a value in each row.
    pub const fn always(name: &'static str, kind: ColumnKind) -> Self {
        ColumnSpec { name, kind, nullable: false }
    }

    /// Makes a column that may have no value.
    pub const fn maybe(name: &'static str, kind: ColumnKind) -> Self {
        ColumnSpec { name, kind, nullable: true }
    }

    pub(crate) fn data_type(&self) -> DataType {
        match self.kind {
            ColumnKind::Word | ColumnKind::Text | ColumnKind::Path => DataType::Utf8,
            ColumnKind::Long => DataType::Int64,
            ColumnKind::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            ColumnKind::Large => DataType::Decimal128(LARGE_DIGITS, 0),
            ColumnKind::Map => {
                let inside = vec![
                    Field::new(MAP_KEY, DataType::Utf8, false),
                    Field::new(MAP_VALUE, DataType::Utf8, false),
                ];
                let entries = Field::new(MAP_ENTRIES, DataType::Struct(inside.into()), false);
                DataType::Map(Arc::new(entries), false)
            }
        }
    }

    /// Adds the way of storing it.
    fn stored(&self, properties: WriterPropertiesBuilder) -> WriterPropertiesBuilder {
        let path = ColumnPath::from(self.name);
        let plain =
            |properties: WriterPropertiesBuilder, encoding: Encoding, statistics: EnabledStatistics| {
                properties
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_encoding(path.clone(), encoding)
                    .set_column_statistics_enabled(path.clone(), statistics)
            };
        match self.kind {
            ColumnKind::Word | ColumnKind::Large => properties,
            // Keys are few. Most values, those of checksums, are other ones in each row.
            ColumnKind::Map => {
                let names = [self.name, MAP_ENTRIES, MAP_VALUE].map(str::to_owned);
                properties.set_column_dictionary_enabled(ColumnPath::new(names.to_vec()), false)
            }
            ColumnKind::Text => plain(properties, Encoding::PLAIN, EnabledStatistics::None),
            ColumnKind::Path => plain(properties, Encoding::DELTA_BYTE_ARRAY, EnabledStatistics::Chunk),
            ColumnKind::Long | ColumnKind::Time => {
                plain(properties, Encoding::DELTA_BINARY_PACKED, EnabledStatistics::Chunk)
            }
        }
    }
}

/// Returns the columns as the library has them.
pub(crate) fn schema_of(columns: &[ColumnSpec]) -> SchemaRef {
    let field = |column: &ColumnSpec| Field::new(column.name, column.data_type(), column.nullable);
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

/// Returns the way of writing a table.
pub(crate) fn properties_of(columns: &[ColumnSpec]) -> WriterProperties {
    let properties = WriterProperties::builder()
        .set_created_by(format!("exacat {}", env!("CARGO_PKG_VERSION")))
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_max_row_group_bytes(Some(ROW_GROUP_BYTES))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_dictionary_page_size_limit(DICTIONARY_BYTES)
        .set_statistics_truncate_length(Some(STATISTICS_BYTES))
        .set_statistics_enabled(EnabledStatistics::None);
    columns.iter().fold(properties, |properties, column| column.stored(properties)).build()
}
