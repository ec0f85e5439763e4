//! Bodies of requests about elements.

use exacat_model::element::{ElementColumn, ElementRows, GroupChange};
use exacat_model::operation::Owner;
use exacat_model::{AccountName, Error, FieldType, FieldValue, GroupName, Result, TimeNs};
use serde_json::Value;
use utoipa::ToSchema;

use super::requests::{Parse, Parsed, all, bare};
use super::texts;

impl Parse for TimeNs {
    fn parse_text(text: &str) -> Result<Self> {
        TimeNs::parse(text)
    }
}

impl Parse for GroupName {
    fn parse_text(text: &str) -> Result<Self> {
        GroupName::parse(text)
    }
}

/// Settings of a group of elements. Those left out stay as they are; a new group gets its defaults.
#[derive(Debug, Default, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewElementGroup, examples(json!({"retention_days": 3650, "writers": ["group:demo"]})))]
pub struct ElementGroupIn {
    /// The user who may change these settings.
    #[schema(value_type = Option<texts::Account>)]
    pub owner: Option<Parsed<AccountName>>,
    /// Users and groups who may read it, `user:NAME` or `group:NAME`; an empty list is everybody.
    #[schema(value_type = Option<Vec<texts::OwnerName>>)]
    pub readers: Option<Vec<Parsed<Owner>>>,
    /// Users and groups who may write to it.
    #[schema(value_type = Option<Vec<texts::OwnerName>>)]
    pub writers: Option<Vec<Parsed<Owner>>>,
    /// Days that values are kept; 0 for ever.
    pub retention_days: Option<u32>,
    /// Largest number of elements.
    pub elements_max: Option<u32>,
}

impl ElementGroupIn {
    /// Returns the change.
    pub fn change(self) -> GroupChange {
        GroupChange {
            owner: bare(self.owner),
            readers: self.readers.map(all),
            writers: self.writers.map(all),
            retention_days: self.retention_days,
            elements_max: self.elements_max,
        }
    }
}

/// Rows to write.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewRows, examples(json!({"rows": [{"key": "hv,element=crate1", "times": ["2026-11-26T03:14:07Z"],
    "columns": [{"field": "v", "type": "float", "values": [829.5]}]}]})))]
pub struct NewRowsIn {
    /// Rows, a list for each element.
    pub rows: Vec<ElementRowsIn>,
}

/// Rows of one element.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewElementRows)]
pub struct ElementRowsIn {
    /// Measurement and tags, as in line protocol.
    #[schema(min_length = 1)]
    pub key: String,
    /// Times.
    #[schema(value_type = Vec<texts::Moment>)]
    pub times: Vec<Parsed<TimeNs>>,
    /// Values by field: one for each time.
    pub columns: Vec<ColumnIn>,
}

/// Values of a field.
#[derive(Debug, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewColumn)]
pub struct ColumnIn {
    /// Field.
    #[schema(min_length = 1)]
    pub field: String,
    /// Type of the values.
    #[serde(rename = "type")]
    pub kind: KindIn,
    /// Values; null where a row has none. `NaN`, `Infinity` and `-Infinity` are texts.
    pub values: Vec<Value>,
}

/// Type of a field.
#[derive(Clone, Copy, Debug, serde::Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = FieldType)]
pub enum KindIn {
    /// Number with a fraction.
    Float,
    /// Whole number with a sign.
    Integer,
    /// Whole number without a sign.
    Unsigned,
    /// True or false.
    Boolean,
    /// Text.
    String,
}

fn value(kind: KindIn, given: Value) -> Result<Option<FieldValue>> {
    let bad = || {
        let kind = match kind {
            KindIn::Float => FieldType::Float,
            KindIn::Integer => FieldType::Integer,
            KindIn::Unsigned => FieldType::Unsigned,
            KindIn::Boolean => FieldType::Boolean,
            KindIn::String => FieldType::Text,
        };
        Error::invalid(format!("not a value of the type {kind}: {:.60}", given.to_string()))
    };
    Ok(Some(match (kind, &given) {
        (_, Value::Null) => return Ok(None),
        (KindIn::Float, Value::Number(number)) => FieldValue::Float(number.as_f64().ok_or_else(bad)?),
        (KindIn::Float, Value::String(text)) => FieldValue::Float(match text.as_str() {
            "NaN" => f64::NAN,
            "Infinity" => f64::INFINITY,
            "-Infinity" => f64::NEG_INFINITY,
            _ => return Err(bad()),
        }),
        (KindIn::Integer, Value::Number(number)) => FieldValue::Integer(number.as_i64().ok_or_else(bad)?),
        (KindIn::Unsigned, Value::Number(number)) => FieldValue::Unsigned(number.as_u64().ok_or_else(bad)?),
        (KindIn::Boolean, Value::Bool(value)) => FieldValue::Boolean(*value),
        (KindIn::String, Value::String(text)) => FieldValue::Text(text.as_str().into()),
        _ => return Err(bad()),
    }))
}

impl NewRowsIn {
    /// Returns the rows.
    pub fn rows(self) -> Result<Vec<ElementRows>> {
        let column = |ColumnIn { field, kind, values }: ColumnIn| {
            let values: Result<Vec<_>> = values.into_iter().map(|given| value(kind, given)).collect();
            Ok(ElementColumn { field, values: values? })
        };
        let rows = |ElementRowsIn { key, times, columns }: ElementRowsIn| {
            Ok(ElementRows {
                key,
                name: String::new(),
                times: times.into_iter().map(|Parsed(TimeNs(time))| time).collect(),
                columns: columns.into_iter().map(column).collect::<Result<_>>()?,
            })
        };
        self.rows.into_iter().map(rows).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values have the type that their column says, and no other.
    #[test]
    fn values_have_the_type_of_their_column() {
        let of = |text: &str| -> Result<Vec<Option<FieldValue>>> {
            let body = format!(
                "{{\"rows\":[{{\"key\":\"m\",\"times\":[\"2026-11-26\"],\"columns\":[{{\"field\":\"f\",{text}}}]}}]}}"
            );
            let rows = serde_json::from_str::<NewRowsIn>(&body).unwrap().rows()?;
            Ok(rows.into_iter().flat_map(|rows| rows.columns).flat_map(|column| column.values).collect())
        };
        assert_eq!(
            of("\"type\":\"float\",\"values\":[1,2.5,\"NaN\",null]").unwrap(),
            [
                Some(FieldValue::Float(1.0)),
                Some(FieldValue::Float(2.5)),
                Some(FieldValue::Float(f64::NAN)),
                None
            ]
        );
        let most = format!("\"type\":\"unsigned\",\"values\":[{}]", u64::MAX);
        assert_eq!(of(&most).unwrap(), [Some(FieldValue::Unsigned(u64::MAX))]);
        for bad in [
            "\"type\":\"integer\",\"values\":[1.5]",
            "\"type\":\"integer\",\"values\":[9223372036854775808]",
            "\"type\":\"unsigned\",\"values\":[-1]",
            "\"type\":\"boolean\",\"values\":[1]",
            "\"type\":\"string\",\"values\":[1]",
            "\"type\":\"float\",\"values\":[\"x\"]",
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
