//! Options for reading a listing: its format, and the treatment of its rows.

use exacat_model::{Lfn, SeName};

use crate::columns::Columns;
use crate::error::Error;
use crate::input::Compression;
use crate::records::Format;
use crate::reject::{Complaint, Reason};
use crate::se_rules::SeMap;

/// Kind of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A collection.
    Collection,
    /// A link.
    Link,
    /// An existing file that becomes a member of a collection.
    Member,
}

impl RowKind {
    /// All of them.
    pub const ALL: [RowKind; 5] =
        [RowKind::File, RowKind::Directory, RowKind::Collection, RowKind::Link, RowKind::Member];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            RowKind::File => "file",
            RowKind::Directory => "directory",
            RowKind::Collection => "collection",
            RowKind::Link => "link",
            RowKind::Member => "member",
        }
    }

    /// Returns the kind of that name.
    pub(crate) fn parse(text: &str) -> Result<Self, Complaint> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            Complaint::new(
                Reason::BadKind,
                format!("not a kind of row (file, directory, collection, link, member): {text:.100?}"),
            )
        })
    }
}

/// Treatment of columns without a role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rest {
    /// Ignores them.
    #[default]
    Ignore,
    /// Makes each a tag under its name; JSON by the rule of [`json_tags`](crate::json_tags).
    Tags,
}

/// Treatment of an LFN that is in more than one row of a listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repeats {
    /// Accepts the first and rejects the others.
    #[default]
    Reject,
    /// Registers each in order, for rows that are replicas of one file.
    Keep,
}

/// Options for reading a listing. Those without a value are determined from the listing.
#[derive(Clone, Debug)]
pub struct ListingOptions {
    /// Format of rows and fields. Default: by the first byte (`{`), then the name, else lines with
    /// tabs.
    pub format: Option<Format>,
    /// Compression. Default: by the first bytes.
    pub compression: Option<Compression>,
    /// Delimiter of fields. Default: a tab, in CSV a comma.
    pub delimiter: Option<u8>,
    /// True if the first row is a header. Default: if it looks like one.
    pub header: Option<bool>,
    /// Meaning of the columns. Default: as in the header.
    pub columns: Option<Columns>,
    /// True if a header (or a JSON key) that is a role's name gives its column the role.
    pub auto_columns: bool,
    /// Treatment of columns without a role.
    pub rest: Rest,
    /// True if backslash escapes are read. Default: only in exports.
    pub escapes: Option<bool>,
    /// Kind of the rows that state none.
    pub kind: RowKind,
    /// Prefix of each LFN.
    pub prefix: Option<Lfn>,
    /// Prefix of each collection.
    pub collection_prefix: Option<Lfn>,
    /// SE of PFNs whose SE is not known otherwise. In a listing without locations, each file has a
    /// replica there.
    pub se: Option<SeName>,
    /// Map of PFNs and locations to SEs.
    pub se_map: SeMap,
    /// Make up names of SEs from hosts and locations, and register missing ones: read-only, and
    /// with the prefix `unknown://NAME` until an operator sets the real one.
    pub se_auto: bool,
    /// Replacement for `=` as a PFN: this, and the LFN as in the row.
    pub pfn_same: Option<String>,
    /// Treatment of repeated LFNs.
    pub repeats: Repeats,
}

impl Default for ListingOptions {
    fn default() -> Self {
        ListingOptions {
            format: None,
            compression: None,
            delimiter: None,
            header: None,
            columns: None,
            auto_columns: true,
            rest: Rest::Ignore,
            escapes: None,
            kind: RowKind::File,
            prefix: None,
            collection_prefix: None,
            se: None,
            se_map: SeMap::default(),
            se_auto: false,
            pfn_same: None,
            repeats: Repeats::Reject,
        }
    }
}

/// Refuses options that name an SE which is not registered and will not be. Otherwise a typing
/// error in one of them would reject every row.
pub(crate) fn check_registered(options: &ListingOptions, known: &[SeName]) -> Result<(), Error> {
    if options.se_auto {
        return Ok(());
    }
    let unknown = |se: &&SeName| !known.contains(se);
    let (option, se) = match options.se.as_ref().filter(unknown) {
        Some(se) => ("--se", se),
        None => match options.se_map.ses().find(unknown) {
            Some(se) => ("--se-map", se),
            None => return Ok(()),
        },
    };
    let meant = known
        .iter()
        .map(|name| (distance(&name.as_str().to_lowercase(), &se.as_str().to_lowercase()), name))
        .filter(|(distance, _)| *distance <= TYPING_ERRORS_MAX)
        .min()
        .map_or_else(String::new, |(_, name)| format!(" (is {name} meant?)"));
    Err(Error::options(format!(
        "{option} names {se}, which is not registered{meant}: add it with 'exacat se add {se} --prefix URL', or have \
         it registered with --se-auto"
    )))
}

/// Maximum letters by which a misspelt name may differ from the intended one.
const TYPING_ERRORS_MAX: usize = 2;

/// Returns the number of letters to insert, remove or replace to turn one text into the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (at, others) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *others);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn unregistered_se_in_options_is_refused_and_the_nearest_name_told() {
        let known = [SeName::parse("CERN::EOS::DISK").unwrap(), SeName::parse("GSI::SE").unwrap()];
        let refused = |change: &dyn Fn(&mut ListingOptions)| {
            let mut options = ListingOptions::default();
            change(&mut options);
            check_registered(&options, &known).err().map(|error| error.to_string())
        };
        assert_eq!(refused(&|_| {}), None);
        assert_eq!(refused(&|o| o.se = Some(SeName::parse("GSI::SE").unwrap())), None);
        let text = refused(&|o| o.se = Some(SeName::parse("cern::eos::disc").unwrap())).unwrap();
        assert!(text.contains("--se names") && text.contains("is CERN::EOS::DISK meant"), "{text}");
        let text = refused(&|o| o.se_map.add_rule("h=NOWHERE").unwrap()).unwrap();
        assert!(text.contains("--se-map names NOWHERE") && !text.contains("meant"), "{text}");
        assert_eq!(
            refused(&|o| {
                o.se_auto = true;
                o.se = Some(SeName::parse("NEW").unwrap());
            }),
            None
        );
        assert_eq!((distance("", "ab"), distance("kitten", "sitting"), distance("a", "a")), (2, 3, 0));
    }
}
