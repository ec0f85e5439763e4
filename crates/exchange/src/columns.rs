//! Roles of the columns of a listing, given by the user, the header, or the export's preamble.

use exacat_model::TagKey;

use crate::error::Error;
use crate::limits::COLUMNS_MAX;

/// Meaning of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The logical name. A name without leading slash needs a prefix.
    Lfn,
    /// Bytes.
    Size,
    /// Checksums, as [`Checksum::parse`](exacat_model::Checksum::parse) reads each; several
    /// separated by `|`, `,` or `;`.
    Checksum,
    /// One PFN, on the SE of the same row, or the one from the SE map or `--se`.
    Pfn,
    /// Several PFNs separated by `|`, each on the SE from the SE map or `--se-auto`.
    Pfns,
    /// Several replicas separated by `|` or `,`: `SE`, `SE=PFN`, or either with `/state` after the
    /// SE's name.
    Replicas,
    /// The SE of the PFN, or of a replica whose PFN follows from the GUID.
    Se,
    /// The identity.
    Guid,
    /// The owner.
    Owner,
    /// The group.
    Group,
    /// The mode, octal.
    Mode,
    /// Time its content was made.
    Mtime,
    /// Time at which it goes to the trash.
    Expires,
    /// Job that made it.
    Job,
    /// The value of the tag of this key.
    Tag(TagKey),
    /// Several tags separated by `;`: `key=value`.
    Tags,
    /// Collection that the file becomes a member of.
    Collection,
    /// Kind of the row: file, directory, collection, link, member.
    Kind,
    /// For a link, its target path; for a member, the file.
    Target,
    /// No meaning.
    Ignore,
}

/// Roles without a parameter: the name in exports, then other names in headers.
const NAMES: [(Role, &[&str]); 19] = [
    (Role::Lfn, &["lfn", "path", "logical_name"]),
    (Role::Size, &["size", "filesize"]),
    (Role::Checksum, &["checksum", "checksums", "cksum"]),
    (Role::Pfn, &["pfn", "url", "surl"]),
    (Role::Pfns, &["pfns", "urls"]),
    (Role::Replicas, &["replicas"]),
    (Role::Se, &["se", "rse", "storage_element"]),
    (Role::Guid, &["guid", "uuid"]),
    (Role::Owner, &["owner"]),
    (Role::Group, &["group"]),
    (Role::Mode, &["mode"]),
    (Role::Mtime, &["mtime", "modified"]),
    (Role::Expires, &["expires"]),
    (Role::Job, &["job"]),
    (Role::Tags, &["tags"]),
    (Role::Collection, &["collection"]),
    (Role::Kind, &["kind"]),
    (Role::Target, &["target"]),
    (Role::Ignore, &["ignore", "-"]),
];

impl Role {
    /// Returns the role of a name; `tag:KEY` for a tag.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if let Some(key) = text.strip_prefix("tag:") {
            return TagKey::parse(key).map(Role::Tag).map_err(|error| Error::options(error.message));
        }
        Role::named(text).ok_or_else(|| {
            let known: Vec<&str> = NAMES.iter().map(|(_, names)| names[0]).collect();
            Error::options(format!("not the role of a column ({}, tag:KEY): {text:.100?}", known.join(", ")))
        })
    }

    /// Returns the role that a header of that name means, in either case.
    fn named(text: &str) -> Option<Self> {
        let lower = text.trim().to_ascii_lowercase();
        NAMES.iter().find(|(_, names)| names.contains(&lower.as_str())).map(|(role, _)| role.clone())
    }

    /// Returns the role that a key of JSON means.
    pub(crate) fn of_key(key: &str) -> Option<Self> {
        Role::of_header(key)
    }

    fn of_header(text: &str) -> Option<Self> {
        match text.trim().strip_prefix("tag:") {
            Some(key) => TagKey::parse(key).ok().map(Role::Tag),
            None => Role::named(text).filter(|role| *role != Role::Ignore),
        }
    }

    /// Returns the name.
    pub fn name(&self) -> String {
        match self {
            Role::Tag(key) => format!("tag:{key}"),
            other => NAMES
                .iter()
                .find(|(role, _)| role == other)
                .map_or_else(String::new, |(_, names)| names[0].to_owned()),
        }
    }
}

/// Columns that the user named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Columns {
    /// All of them, by position: `lfn,size,checksum,pfn`.
    InOrder(Vec<Role>),
    /// Some, by the header's name or by number from 1: `name=lfn,dst=se` or `2=lfn`. In JSON, a
    /// name with dots is a path.
    Named(Vec<(String, Role)>),
}

impl Columns {
    /// Reads the value of `--columns`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let items: Vec<&str> = text.split(',').map(str::trim).collect();
        if items.len() > COLUMNS_MAX {
            return Err(Error::options(format!("more than {COLUMNS_MAX} columns")));
        }
        if !text.contains('=') {
            return Ok(Columns::InOrder(items.into_iter().map(Role::parse).collect::<Result<_, _>>()?));
        }
        let assigned = items.into_iter().map(|item| match item.rsplit_once('=') {
            Some((name, role)) if !name.is_empty() => Ok((name.to_owned(), Role::parse(role)?)),
            _ => Err(Error::options(format!(
                "columns are either all roles in order (lfn,size) or all NAME=role (path=lfn): {item:.100?}"
            ))),
        });
        Ok(Columns::Named(assigned.collect::<Result<_, _>>()?))
    }
}

/// Roles of the columns of one listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Columns by position; a column without a role has the header's name, if there is a header.
    pub columns: Vec<Result<Role, String>>,
}

/// Says whether the first row of a listing is a header: one of its fields is a role's name, and
/// none begins with a slash.
pub fn looks_like_header(fields: &[&str]) -> bool {
    fields.iter().any(|field| Role::of_header(field).is_some())
        && !fields.iter().any(|field| field.starts_with('/'))
}

/// Assigns a role to each column. With `auto`, header names that are roles count if the user named
/// no other.
pub fn layout(columns: Option<&Columns>, header: Option<&[&str]>, auto: bool) -> Result<Layout, Error> {
    let by_name = |name: &str| if auto { Role::of_header(name) } else { None };
    let columns = match (columns, header) {
        (Some(Columns::InOrder(roles)), _) => roles.iter().cloned().map(Ok).collect(),
        (Some(Columns::Named(assigned)), header) => named_layout(assigned, header, by_name)?,
        (None, Some(header)) => {
            header.iter().map(|name| by_name(name).ok_or_else(|| (*name).to_owned())).collect()
        }
        (None, None) => {
            return Err(Error::options(
                "the listing has no header: name its columns, for example --columns lfn,size,checksum,pfn",
            ));
        }
    };
    check(Layout { columns })
}

fn named_layout(
    assigned: &[(String, Role)],
    header: Option<&[&str]>,
    by_name: impl Fn(&str) -> Option<Role>,
) -> Result<Vec<Result<Role, String>>, Error> {
    let mut columns: Vec<Result<Role, String>> =
        header.unwrap_or_default().iter().map(|name| Err((*name).to_owned())).collect();
    let mut taken = vec![false; columns.len()];
    for (name, role) in assigned {
        let at = match header.and_then(|header| header.iter().position(|field| field.trim() == name)) {
            Some(at) => at,
            None => name
                .parse::<usize>()
                .ok()
                .filter(|number| (1..=COLUMNS_MAX).contains(number))
                .map(|number| number - 1)
                .ok_or_else(|| {
                    let has = header.map_or("it has no header".to_owned(), |header| header.join(", "));
                    Error::options(format!("the listing has no column {name:?} ({has:.300})"))
                })?,
        };
        while columns.len() <= at {
            columns.push(Ok(Role::Ignore));
            taken.push(false);
        }
        columns[at] = Ok(role.clone());
        taken[at] = true;
    }
    for (column, taken) in columns.iter_mut().zip(&taken) {
        if let (Err(name), false) = (&*column, taken)
            && let Some(role) = by_name(name)
            && !assigned.iter().any(|(_, given)| *given == role)
        {
            *column = Ok(role);
        }
    }
    Ok(columns)
}

/// Checks that one column is the LFN, and that no role occurs twice.
fn check(layout: Layout) -> Result<Layout, Error> {
    let roles: Vec<&Role> = layout.columns.iter().flatten().collect();
    if !roles.contains(&&Role::Lfn) {
        let has: Vec<&str> =
            layout.columns.iter().flat_map(|column| column.as_ref().err()).map(String::as_str).collect();
        return Err(Error::options(format!(
            "no column is the LFN: say which one is, for example --columns NAME=lfn (columns without a role: {:.300})",
            has.join(", ")
        )));
    }
    for (index, role) in roles.iter().enumerate() {
        if **role != Role::Ignore && roles[..index].contains(role) {
            return Err(Error::options(format!("two columns have the role {}", role.name())));
        }
    }
    Ok(layout)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(columns: Option<&str>, header: Option<&[&str]>) -> Result<Vec<String>, String> {
        let columns = columns.map(|text| Columns::parse(text).unwrap());
        let layout = layout(columns.as_ref(), header, true).map_err(|error| error.to_string())?;
        Ok(layout
            .columns
            .iter()
            .map(|column| column.as_ref().map_or_else(|name| format!("?{name}"), Role::name))
            .collect())
    }

    #[test]
    fn headers_speak_for_themselves() {
        let header = ["lfn", "size", "checksum", "pfn", "exp", "dataset"];
        assert!(looks_like_header(&header));
        assert_eq!(
            roles(None, Some(&header)).unwrap(),
            ["lfn", "size", "checksum", "pfn", "?exp", "?dataset"]
        );
        assert_eq!(roles(None, Some(&["PATH", " RSE ", "tag:run"])).unwrap(), ["lfn", "se", "tag:run"]);
        assert!(!looks_like_header(&["/a/b", "12"]));
        assert!(!looks_like_header(&["name", "dst"]));
        assert!(!looks_like_header(&["/lfn", "size"]));
    }

    #[test]
    fn the_user_overrides_the_header() {
        let header = ["start", "name", "size", "src", "dst"];
        assert_eq!(
            roles(Some("name=lfn,dst=se"), Some(&header)).unwrap(),
            ["?start", "lfn", "size", "?src", "se"]
        );
        assert_eq!(roles(Some("2=lfn,5=se"), Some(&header)).unwrap()[1], "lfn");
        assert_eq!(roles(Some("ignore,lfn"), Some(&header)).unwrap(), ["ignore", "lfn"]);
        assert_eq!(roles(Some("3=lfn"), None).unwrap(), ["ignore", "ignore", "lfn"]);
        // The user's column for a role overrides a header of that name.
        assert_eq!(roles(Some("start=size,name=lfn"), Some(&header)).unwrap()[2], "?size");
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_to_do() {
        for (columns, header, says) in [
            (None, None, "--columns"),
            (Some("size"), None, "no column is the LFN"),
            (Some("lfn,lfn"), None, "two columns"),
            (Some("x=lfn"), Some(&["a", "b"][..]), "no column \"x\" (a, b)"),
            (Some("x=lfn"), None, "no header"),
            (None, Some(&["a"][..]), "no column is the LFN"),
        ] {
            let error = roles(columns, header).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        let many = |count: usize| vec!["ignore"; count].join(",");
        assert!(
            Columns::parse(&many(COLUMNS_MAX)).is_ok() && Columns::parse(&many(COLUMNS_MAX + 1)).is_err()
        );
        assert!(roles(Some(&format!("{COLUMNS_MAX}=lfn")), None).is_ok());
        assert!(roles(Some(&format!("{}=lfn", COLUMNS_MAX + 1)), None).is_err());
        for bad in ["", "lfn,,size", "nonsense", "a=lfn,size", "lfn=", "=lfn", "tag:1"] {
            assert!(Columns::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_of_roles_read_back() {
        for (role, names) in &NAMES {
            assert_eq!(Role::parse(&role.name()).unwrap(), *role);
            for name in *names {
                assert_eq!(Role::parse(name).unwrap(), *role);
            }
        }
        assert_eq!(Role::parse("tag:run").unwrap().name(), "tag:run");
    }
}
