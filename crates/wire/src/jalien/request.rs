//! Requests of JAliEn's protocol: a JSON object with a command and its options. All commands share
//! some of them.

use serde_json::Value;

use super::limits::{NAME_SHOWN_BYTES_MAX, OPTIONS_MAX, REQUEST_BYTES_MAX};

/// Parts of an answer that a client wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Omits texts for people (`-nomsg`).
    pub no_message: bool,
    /// Omits fields for programs (`-nokeys`).
    pub no_keys: bool,
}

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The command.
    pub command: String,
    /// Options of the command, without those that all commands share.
    pub options: Vec<String>,
    /// Parts of the answer that the client wants.
    pub style: Style,
    /// Answer with the usage of the command instead (`-h`).
    pub help: bool,
    /// Change to this directory first (`-pwd=`).
    pub directory: Option<String>,
}

/// Reason why a text is no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// The text is too long.
    #[error("the request has {got} bytes, the limit is {REQUEST_BYTES_MAX}")]
    TooLong {
        /// Bytes of the text.
        got: usize,
    },
    /// The text is no JSON.
    #[error("Incoming JSON is not ok: {0}")]
    NotJson(String),
    /// The text is JSON, but no request.
    #[error("Incoming JSON is not ok: {0}")]
    NotARequest(&'static str),
    /// The request has too many options.
    #[error("the request has {got} options, the limit is {OPTIONS_MAX}")]
    TooManyOptions {
        /// Number of options.
        got: usize,
    },
}

impl Request {
    /// Reads a request.
    pub fn parse(text: &str) -> Result<Self, BadRequest> {
        if text.len() > REQUEST_BYTES_MAX {
            return Err(BadRequest::TooLong { got: text.len() });
        }
        let value: Value =
            serde_json::from_str(text).map_err(|error| BadRequest::NotJson(error.to_string()))?;
        let Value::Object(mut members) = value else {
            return Err(BadRequest::NotARequest("an object is expected"));
        };
        let Some(Value::String(command)) = members.remove("command") else {
            return Err(BadRequest::NotARequest("its member \"command\" is no text"));
        };
        let options = match members.remove("options") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(options)) => options,
            Some(_) => return Err(BadRequest::NotARequest("its member \"options\" is no list")),
        };
        if options.len() > OPTIONS_MAX {
            return Err(BadRequest::TooManyOptions { got: options.len() });
        }
        let mut request = Request { command, ..Request::default() };
        let mut literal = false;
        for option in options {
            let option = match option {
                Value::String(text) => text,
                // Clients send sizes as numbers.
                Value::Number(number) => number.to_string(),
                Value::Bool(truth) => truth.to_string(),
                _ => return Err(BadRequest::NotARequest("an option is neither text nor a number")),
            };
            literal = literal || option == "--";
            if literal || !request.take_common(&option) {
                request.options.push(option);
            }
        }
        Ok(request)
    }

    /// Takes an option that all commands share; false if it is none.
    fn take_common(&mut self, option: &str) -> bool {
        match option {
            "-nomsg" => self.style.no_message = true,
            "-nokeys" => self.style.no_keys = true,
            "-h" | "--h" | "-help" | "--help" => self.help = true,
            "-silent" => {}
            _ => {
                if let Some(directory) = option.strip_prefix("-pwd=") {
                    self.directory = Some(directory.to_owned());
                } else {
                    return option.strip_prefix("-debug=").is_some_and(|level| level.parse::<u32>().is_ok());
                }
            }
        }
        true
    }

    /// Returns the command's name, shortened for an error.
    pub fn shown_command(&self) -> &str {
        let mut end = self.command.len().min(NAME_SHOWN_BYTES_MAX);
        while !self.command.is_char_boundary(end) {
            end -= 1;
        }
        &self.command[..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_alien_py_sends_is_read() {
        let request = Request::parse(
            r#"{"command": "access", "options": ["-nomsg", "-s", 11, "-m", "3e83", "write", "/a/h.txt", "disk:2"]}"#,
        )
        .unwrap();
        assert_eq!(request.command, "access");
        assert_eq!(request.options, ["-s", "11", "-m", "3e83", "write", "/a/h.txt", "disk:2"]);
        assert_eq!(request.style, Style { no_message: true, no_keys: false });
        assert!(!request.help);
    }

    #[test]
    fn options_for_all_commands_stand_anywhere_but_after_two_dashes() {
        let request =
            Request::parse(r#"{"command":"ls","options":["-l","-h","-pwd=/a/","-debug=3","-nokeys","x"]}"#)
                .unwrap();
        assert_eq!((request.help, request.directory.as_deref()), (true, Some("/a/")));
        assert_eq!(request.options, ["-l", "x"]);
        let literal = Request::parse(r#"{"command":"rm","options":["--","-h","-nokeys"]}"#).unwrap();
        assert!(!literal.help && literal.style == Style::default());
        assert_eq!(literal.options, ["--", "-h", "-nokeys"]);
        let debug = Request::parse(r#"{"command":"ls","options":["-debug=x"]}"#).unwrap();
        assert_eq!(debug.options, ["-debug=x"]);
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for text in [
            "",
            "{",
            "[]",
            "7",
            "\"ls\"",
            "{}",
            r#"{"command":7}"#,
            r#"{"command":"ls","options":"x"}"#,
            r#"{"command":"ls","options":[["x"]]}"#,
            r#"{"command":"ls","options":[null]}"#,
        ] {
            assert!(Request::parse(text).is_err(), "{text}");
        }
        assert_eq!(Request::parse(r#"{"command":"pwd"}"#).unwrap().options.len(), 0);
        let nested =
            format!(r#"{{"command":"ls","options":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert!(Request::parse(&nested).is_err());
    }

    #[test]
    fn the_limits_hold_at_their_edges() {
        let filler = REQUEST_BYTES_MAX - r#"{"command":""}"#.len();
        let longest = format!(r#"{{"command":"{}"}}"#, "x".repeat(filler));
        assert_eq!(longest.len(), REQUEST_BYTES_MAX);
        let request = Request::parse(&longest).unwrap();
        assert_eq!(request.shown_command().len(), NAME_SHOWN_BYTES_MAX);
        let longer = format!("{longest} ");
        assert_eq!(Request::parse(&longer), Err(BadRequest::TooLong { got: REQUEST_BYTES_MAX + 1 }));
        let many = |count: usize| format!(r#"{{"command":"rm","options":[{}]}}"#, vec!["1"; count].join(","));
        assert_eq!(Request::parse(&many(OPTIONS_MAX)).unwrap().options.len(), OPTIONS_MAX);
        assert_eq!(
            Request::parse(&many(OPTIONS_MAX + 1)),
            Err(BadRequest::TooManyOptions { got: OPTIONS_MAX + 1 })
        );
        let umlauts = Request { command: "ä".repeat(NAME_SHOWN_BYTES_MAX), ..Request::default() };
        assert_eq!(umlauts.shown_command(), "ä".repeat(NAME_SHOWN_BYTES_MAX / 2));
    }
}
