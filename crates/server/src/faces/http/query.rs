//! Queries of URLs, and the texts of cursors in them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use exacat_model::{Cursor, Error, Result};
use ring::digest::{SHA256, digest};

use super::call::decoded;

/// Bytes in the text of a cursor that tell whether it is one.
const CHECK_BYTES: usize = 4;
/// Most parameters of a query or of a form.
pub(super) const PARAMETERS_MAX: usize = 64;

/// Decodes the parameters of a query or of a form, in their order.
pub(super) fn pairs(query: &str) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        if all.len() >= PARAMETERS_MAX {
            return Err(Error::limit("the number of parameters", all.len() + 1, PARAMETERS_MAX));
        }
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        all.push((decoded(key, true)?, decoded(value, true)?));
    }
    Ok(all)
}

/// Returns the text of a cursor of a list, which has a name.
pub(super) fn cursor_text(list: &str, cursor: &Cursor) -> String {
    URL_SAFE_NO_PAD.encode([check_of(list, &cursor.0).as_slice(), &cursor.0].concat())
}

/// Returns the cursor in a text. Only a text that [`cursor_text`] made for the same list has one.
pub(super) fn cursor_of(list: &str, text: Option<&str>) -> Result<Cursor> {
    let Some(text) = text else { return Ok(Cursor::default()) };
    let bytes = URL_SAFE_NO_PAD.decode(text).ok();
    let cursor = bytes.and_then(|bytes| {
        let (check, cursor) = bytes.split_first_chunk::<CHECK_BYTES>()?;
        (*check == check_of(list, cursor)).then(|| Cursor(cursor.to_vec()))
    });
    cursor.ok_or_else(|| Error::not_found("no page has this cursor: take the next of a page as it is"))
}

/// Returns the check of a cursor: it finds mistakes, and is no secret.
fn check_of(list: &str, cursor: &[u8]) -> [u8; CHECK_BYTES] {
    let whole = digest(&SHA256, &[list.as_bytes(), b"\0", cursor].concat());
    let mut check = [0; CHECK_BYTES];
    check.copy_from_slice(&whole.as_ref()[..CHECK_BYTES]);
    check
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: a cursor is accepted by its own list and unchanged only.
    #[test]
    fn cursor_of_another_list_or_changed_is_refused() {
        let text = cursor_text("a", &Cursor(vec![1, 2, 3]));
        assert_eq!(cursor_of("a", Some(&text)).unwrap().0, [1, 2, 3]);
        assert_eq!(cursor_of("a", None).unwrap(), Cursor::default());
        let changed = format!("{}A", &text[..text.len() - 1]);
        for (list, text) in [("b", text.as_str()), ("a", &changed), ("a", ""), ("a", "AAAA"), ("a", "!")] {
            let refused = cursor_of(list, Some(text)).unwrap_err();
            assert_eq!(refused.kind, exacat_model::ErrorKind::NotFound, "{text}");
        }
    }

    /// Property: a query has at most `PARAMETERS_MAX` parameters.
    #[test]
    fn parameters_beyond_their_number_are_refused() {
        let query = |count| vec!["a=b"; count].join("&");
        assert_eq!(pairs(&query(PARAMETERS_MAX)).unwrap().len(), PARAMETERS_MAX);
        let refused = pairs(&query(PARAMETERS_MAX + 1)).unwrap_err();
        assert_eq!(refused.kind, exacat_model::ErrorKind::Limit);
        assert_eq!(pairs("a%3D=+&&b").unwrap(), [("a=".into(), " ".into()), ("b".into(), String::new())]);
    }
}
