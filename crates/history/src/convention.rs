//! Conventions of names: which field of a row is its value, and which its quality; the name of an element
//! for people.

/// Fields that hold a quality, the most telling first.
pub const QUALITY_FIELDS: [&str; 3] = ["quality", "q", "_status64"];

/// Says whether a field of this name holds a quality.
pub fn is_quality(field: &str) -> bool {
    QUALITY_FIELDS.contains(&field)
}

/// Returns the place of the field that holds the value of a row, among the names of the row's fields. None
/// if several fields could: then none is more the value than the others.
pub fn value_field<'a>(fields: impl Iterator<Item = &'a str> + Clone) -> Option<usize> {
    let named = |wanted: &str| fields.clone().position(|name| name == wanted);
    let of_wincc = || fields.clone().position(|name| name.starts_with("original_value_"));
    let only = || {
        let mut others = fields.clone().enumerate().filter(|(_, name)| !is_quality(name));
        let (place, _) = others.next()?;
        others.next().is_none().then_some(place)
    };
    named("value").or_else(|| named("v")).or_else(of_wincc).or_else(only)
}

/// Returns the name of an element for people: the value of its tag `name`, else of its tag `element`, else
/// its key. A value with an escape stays escaped, as in the key.
pub fn element_name(key: &str) -> &str {
    let tag = |wanted: &str| {
        tags(key).find_map(|tag| tag.strip_prefix(wanted).and_then(|rest| rest.strip_prefix('=')))
    };
    tag("name").or_else(|| tag("element")).filter(|name| !name.is_empty()).unwrap_or(key)
}

/// Returns the tags of a key, split at commas that are not escaped.
fn tags(key: &str) -> impl Iterator<Item = &str> {
    let mut is_escaped = false;
    let mut parts = key.split(move |letter| {
        let ends = letter == ',' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        ends
    });
    parts.next();
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value is `value`, else `v`, else the first of WinCC OA's, else the only field that is no quality.
    #[test]
    fn value_of_a_row_is_found_by_its_fields() {
        let value = |fields: &[&str]| value_field(fields.iter().copied());
        assert_eq!(value(&["q", "v", "value"]), Some(2));
        assert_eq!(value(&["q", "v", "w"]), Some(1));
        assert_eq!(value(&["_status64", "_user", "original_value_int", "original_value_x"]), Some(2));
        assert_eq!(value(&["quality", "current"]), Some(1));
        assert_eq!(value(&["usage_user", "usage_system"]), None);
        assert_eq!(value(&["q"]), None);
        assert_eq!(value(&[]), None);
    }

    /// The name is that of a tag, and escapes do not end it.
    #[test]
    fn name_of_an_element_is_found_in_its_key() {
        assert_eq!(element_name("EVENT,alias=HV\\ crate,name=System1:dcs/x,z=1"), "System1:dcs/x");
        assert_eq!(element_name("ev,element=a"), "a");
        assert_eq!(element_name("ev,element=a,name=b"), "b");
        assert_eq!(element_name("ev,e=a"), "ev,e=a");
        assert_eq!(element_name("ev\\,name=x,name=a\\,b"), "a\\,b");
        assert_eq!(element_name("ev"), "ev");
    }
}
