//! Texts of all statements of this store.

use std::collections::BTreeSet;

/// Text of a statement. Only [`cql`] makes one, and lists it for preparation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Text(&'static str);

inventory::collect!(Text);

impl Text {
    /// For [`cql`].
    pub(crate) const fn listed(text: &'static str) -> Self {
        Text(text)
    }

    pub(crate) fn as_str(self) -> &'static str {
        self.0
    }
}

/// Makes the text of a statement, and puts it into the list of all.
macro_rules! cql {
    ($text:literal) => {{
        inventory::submit! { $crate::statement::Text::listed($text) }
        $crate::statement::Text::listed($text)
    }};
}
pub(crate) use cql;

/// Lists all statements.
pub(crate) fn texts() -> BTreeSet<Text> {
    inventory::iter::<Text>.into_iter().copied().collect()
}
