//! Fields behind the `?` of a request's target.

use exacat_model::{Error, Result};

/// Fields by name. Each name is there at most once.
#[derive(Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads fields, all of which must be among `known`.
    pub fn read(text: Option<&str>, known: &[&str]) -> Result<Query> {
        let mut fields: Vec<(String, String)> = Vec::new();
        for field in text.unwrap_or_default().split('&').filter(|field| !field.is_empty()) {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            let (name, value) = (decoded(name)?, decoded(value)?);
            if !known.contains(&name.as_str()) {
                return Err(Error::invalid(format!("unknown field: this path takes {}", known.join(", "))));
            }
            if fields.iter().any(|(other, _)| *other == name) {
                return Err(Error::invalid(format!("the field {name} is there twice")));
            }
            fields.push((name, value));
        }
        Ok(Query(fields))
    }

    /// Returns the value of a field.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Returns the value of a field that is a whole number.
    pub fn number(&self, name: &str) -> Result<Option<u64>> {
        let read = |value: &str| {
            value.parse().map_err(|_| Error::invalid(format!("the field {name} is a whole number")))
        };
        self.get(name).map(read).transpose()
    }

    /// Says whether a field is `true`.
    pub fn is_true(&self, name: &str) -> Result<bool> {
        match self.get(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(Error::invalid(format!("the field {name} is true or false"))),
        }
    }
}

/// Decodes `%XX` and `+`.
fn decoded(text: &str) -> Result<String> {
    let bad = || Error::invalid("a field is not UTF-8 with escapes of the form %XX");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
                let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
                    return Err(bad());
                };
                u8::try_from(high * 16 + low).map_err(|_| bad())?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_decoded_and_bad_ones_are_refused() {
        let query =
            Query::read(Some("lfn=%2Fa%20b%2Bc+d&open=true&limit=7"), &["lfn", "open", "limit"]).unwrap();
        assert_eq!(query.get("lfn"), Some("/a b+c d"));
        assert!(query.is_true("open").unwrap() && query.number("limit").unwrap() == Some(7));
        for bad in ["x=1", "lfn=%", "lfn=%2", "lfn=%zz", "lfn=%ff", "lfn=1&lfn=2"] {
            assert!(Query::read(Some(bad), &["lfn"]).is_err(), "{bad}");
        }
        let query = Query::read(Some("open=1&limit=-1"), &["open", "limit"]).unwrap();
        assert!(query.is_true("open").is_err() && query.number("limit").is_err());
    }
}
