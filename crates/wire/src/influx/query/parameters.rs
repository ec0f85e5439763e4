//! Parameters of a query: values that its text names as `$name`.

use std::collections::HashMap;

use exacat_model::limits::{INFLUX_PARAMETERS_BYTES_MAX, INFLUX_QUERY_BYTES_MAX};
use serde_json::Value;

use super::token::{QueryError, Token};

/// Values by their names. A text, a number or a boolean stands for itself. An object with one member stands
/// for a `duration`, an `identifier`, a `string`, an `integer` or a `float`.
#[derive(Clone, Debug, Default)]
pub struct Parameters(HashMap<String, Token>);

/// Refused parameters. Its text is the one that InfluxDB answers with status 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("error parsing query parameters: {0}")]
pub struct ParametersError(String);

impl Parameters {
    /// Reads the parameter `params` of `/query`: a JSON object. An empty text has none.
    pub fn from_json(text: &str) -> Result<Self, ParametersError> {
        if text.is_empty() {
            return Ok(Parameters::default());
        }
        if text.len() > INFLUX_QUERY_BYTES_MAX {
            let message = format!("they have {} bytes, more than {INFLUX_QUERY_BYTES_MAX}", text.len());
            return Err(ParametersError(message));
        }
        let values: HashMap<String, Value> =
            serde_json::from_str(text).map_err(|error| ParametersError(error.to_string()))?;
        let tokens = values.into_iter().map(|(name, value)| match token(&value) {
            Some(token) => Ok((name, token)),
            None => Err(ParametersError(format!("unable to bind the value of {name:.100?}"))),
        });
        tokens.collect::<Result<_, _>>().map(Parameters)
    }

    /// Returns the value of a name.
    pub(super) fn get(&self, name: &str) -> Option<&Token> {
        self.0.get(name)
    }

    /// Refuses a query that would grow too much: each of its `$` may stand for the longest value.
    pub(super) fn check(&self, query: &str) -> Result<(), QueryError> {
        let longest = self.0.values().map(|token| token.text().len()).max().unwrap_or_default();
        if query.matches('$').count() * longest > INFLUX_PARAMETERS_BYTES_MAX {
            let message = format!("the parameters may add more than {INFLUX_PARAMETERS_BYTES_MAX} bytes");
            return Err(QueryError::new(message));
        }
        Ok(())
    }
}

/// Returns the token that a value stands for; none if it stands for none.
fn token(value: &Value) -> Option<Token> {
    Some(match value {
        Value::String(text) => Token::Text(text.clone()),
        Value::Number(number) if number.is_f64() => Token::Number(number.to_string()),
        Value::Number(number) => Token::Integer(number.to_string()),
        Value::Bool(true) => Token::Fixed("TRUE"),
        Value::Bool(false) => Token::Fixed("FALSE"),
        Value::Object(object) if object.len() == 1 => match object.iter().next()? {
            (kind, Value::String(text)) => match kind.as_str() {
                "string" => Token::Text(text.clone()),
                "ident" | "identifier" => Token::Name(text.clone()),
                "duration" => Token::Duration(text.clone()),
                _ => return None,
            },
            (kind, Value::Number(number)) => match kind.as_str() {
                "int" | "integer" => Token::Integer(number.to_string()),
                "float" | "number" => Token::Number(number.to_string()),
                "duration" => Token::Duration(format!("{}ns", number.as_u64()?)),
                _ => return None,
            },
            _ => return None,
        },
        _ => return None,
    })
}
