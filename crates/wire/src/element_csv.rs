//! CSV of elements: rows, values and aggregates, for spreadsheets and scripts.
//!
//! ```text
//! element,key,time,v:float,q:integer
//! hv1,"ev,name=hv1",2026-11-26T03:14:07.5Z,829.02,0
//! ```
//! `element` is the name for people. Rows have the form that `exacat history import` takes. A cell without a
//! value is empty, and so is an empty text: the two are one in CSV.

use std::io::Write as _;

use exacat_model::element::{ElementAggregates, ElementRows, ElementState};
use exacat_model::{FieldRef, FieldType, FieldValue, TimeNs};

use crate::influx::csv_text;

/// Columns of a table of rows after element, key and time: a field and its type.
pub type Columns = [(String, FieldType)];

/// Writes the header of rows.
pub fn head_of_rows(columns: &Columns, out: &mut Vec<u8>) {
    out.extend_from_slice(b"element,key,time");
    for (field, kind) in columns {
        out.push(b',');
        csv_text(out, &format!("{field}:{kind}"));
    }
    out.push(b'\n');
}

/// Writes rows. Values of fields that have no column are left out.
pub fn put_rows(columns: &Columns, rows: &ElementRows, out: &mut Vec<u8>) {
    let places = columns_of(columns, rows);
    let mut begin = Vec::new();
    put_element(&rows.key, &rows.name, &mut begin);
    for (row, time) in rows.times.iter().enumerate() {
        let values = places.iter().map(|place| rows.columns[(*place)?].values.get(row)?.as_ref());
        if values.clone().all(|value| value.is_none()) {
            continue;
        }
        out.extend_from_slice(&begin);
        put(out, format_args!("{}", TimeNs(*time)));
        for value in values {
            out.push(b',');
            put_value(value.map(FieldValue::borrow), out);
        }
        out.push(b'\n');
    }
}

/// Returns for each column of a table its place among the columns of an element's rows.
pub fn columns_of(columns: &Columns, rows: &ElementRows) -> Vec<Option<usize>> {
    let kind = |values: &[Option<FieldValue>]| values.iter().flatten().next().map(FieldValue::kind);
    let place = |(field, of): &(String, FieldType)| {
        rows.columns.iter().position(|one| one.field == *field && kind(&one.values) == Some(*of))
    };
    columns.iter().map(place).collect()
}

/// Writes the header of values.
pub fn head_of_values(out: &mut Vec<u8>) {
    out.extend_from_slice(b"element,key,field,time,value\n");
}

/// Writes the values of an element, one in each line.
pub fn put_values(state: &ElementState, out: &mut Vec<u8>) {
    for value in &state.values {
        put_element(&state.key, &state.name, out);
        csv_text(out, &value.field);
        put(out, format_args!(",{},", TimeNs(value.time)));
        put_value(Some(value.value.borrow()), out);
        out.push(b'\n');
    }
}

/// Writes the header of aggregates.
pub fn head_of_aggregates(out: &mut Vec<u8>) {
    out.extend_from_slice(
        b"element,key,field,start,count,first,last,min,max,mean,mean_over_time,integral,covered_seconds\n",
    );
}

/// Writes the aggregates of an element, an interval in each line.
pub fn put_aggregates(of: &ElementAggregates, out: &mut Vec<u8>) {
    for one in &of.intervals {
        put_element(&of.key, &of.name, out);
        csv_text(out, &of.field);
        put(out, format_args!(",{},{}", TimeNs(one.start), one.count));
        let first = one.first.as_ref().map(|(_, value)| value.borrow());
        let last = one.last.as_ref().map(|(_, value)| value.borrow());
        let number = |number: Option<f64>| number.map(FieldRef::Float);
        let cells = [
            first,
            last,
            one.min.as_ref().map(FieldValue::borrow),
            one.max.as_ref().map(FieldValue::borrow),
            number(one.mean),
            number(one.mean_over_time),
            number(Some(one.integral)),
            number(Some(one.covered_seconds)),
        ];
        for cell in cells {
            out.push(b',');
            put_value(cell, out);
        }
        out.push(b'\n');
    }
}

fn put_element(key: &str, name: &str, out: &mut Vec<u8>) {
    csv_text(out, name);
    out.push(b',');
    csv_text(out, key);
    out.push(b',');
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // A vector takes everything.
    let _ = out.write_fmt(text);
}

fn put_value(value: Option<FieldRef<'_>>, out: &mut Vec<u8>) {
    match value {
        None => {}
        // Digits of the smallest and largest numbers would fill lines.
        Some(FieldRef::Float(value)) if value != 0.0 && !(1e-5..1e16).contains(&value.abs()) => {
            put(out, format_args!("{value:e}"));
        }
        Some(FieldRef::Float(value)) => put(out, format_args!("{value}")),
        Some(FieldRef::Integer(value)) => put(out, format_args!("{value}")),
        Some(FieldRef::Unsigned(value)) => put(out, format_args!("{value}")),
        Some(FieldRef::Boolean(value)) => put(out, format_args!("{value}")),
        Some(FieldRef::Text(value)) => csv_text(out, value),
    }
}

#[cfg(test)]
mod tests {
    use exacat_model::element::{ElementColumn, ElementValue};

    use super::*;

    fn column(field: &str, values: &[Option<FieldValue>]) -> ElementColumn {
        ElementColumn { field: field.to_owned(), values: values.to_vec() }
    }

    fn text(out: Vec<u8>) -> String {
        String::from_utf8(out).unwrap()
    }

    /// Each value is in the column of its field and type, and a number comes back as it was.
    #[test]
    fn rows_are_in_their_columns() {
        let float = |value| Some(FieldValue::Float(value));
        let rows = ElementRows {
            key: "ev,name=a\\ \"b\"".to_owned(),
            name: "a \"b\"".to_owned(),
            times: vec![0, 1_500_000_000, -1, 7],
            columns: vec![
                column("q", &[Some(FieldValue::Integer(-1)), None, None, None]),
                column("v", &[float(0.1), float(-0.0), float(f64::NAN), None]),
                column("w", &[float(1e300), None, None, None]),
            ],
        };
        let columns = [
            ("v".to_owned(), FieldType::Float),
            ("v".to_owned(), FieldType::Text),
            ("q".to_owned(), FieldType::Integer),
        ];
        let mut out = Vec::new();
        head_of_rows(&columns, &mut out);
        put_rows(&columns, &rows, &mut out);
        let element = "\"a \"\"b\"\"\",\"ev,name=a\\ \"\"b\"\"\"";
        assert_eq!(
            text(out),
            format!(
                "element,key,time,v:float,v:string,q:integer\n{element},1970-01-01T00:00:00Z,0.1,,-1\n\
                 {element},1970-01-01T00:00:01.5Z,-0,,\n{element},1969-12-31T23:59:59.999999999Z,NaN,,\n"
            )
        );
    }

    /// Numbers of each size parse back to their bits.
    #[test]
    fn numbers_come_back() {
        for number in [0.0, -0.0, 5e-324, 1e-5, 0.1, 1e15 + 0.5, 1e16, -1.797e308, f64::INFINITY] {
            let mut out = Vec::new();
            put_value(Some(FieldRef::Float(number)), &mut out);
            let text = text(out);
            assert_eq!(text.parse::<f64>().unwrap().to_bits(), number.to_bits(), "{text}");
            assert!(text.len() <= 24, "{text}");
        }
    }

    /// Values have a line each, and a text with a line end stays in its cell.
    #[test]
    fn values_have_a_line_each() {
        let state = ElementState {
            key: "ev".to_owned(),
            name: "ev".to_owned(),
            values: vec![ElementValue {
                field: "s".to_owned(),
                time: 0,
                value: FieldValue::Text("a\nb,".into()),
            }],
        };
        let mut out = Vec::new();
        head_of_values(&mut out);
        put_values(&state, &mut out);
        assert_eq!(text(out), "element,key,field,time,value\nev,ev,s,1970-01-01T00:00:00Z,\"a\nb,\"\n");
    }
}
