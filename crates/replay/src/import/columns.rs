//! Tables of accesses: a header with the names of the columns, then a row for each access.

use exacat_exchange::error::{Error, Result};
use exacat_exchange::records::{Fields, Format};
use exacat_exchange::reject::{Complaint, Reason};

use super::time::parse_time_us;
use super::{Row, Taking};
use crate::trace::AccessRow;
use crate::trace::reads::Reads;

/// Content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Time,
    Name,
    Size,
    Site,
    Dataset,
    Adler32,
    Reads,
}

/// Roles, with the headers that mean them. The first one is the name of the role.
const ROLES: [(Role, &[&str]); 7] = [
    (Role::Time, &["time", "start", "timestamp", "time_us", "time_start", "date"]),
    (Role::Name, &["name", "lfn", "path", "file", "filename", "url", "pfn"]),
    (Role::Size, &["size", "filesize", "bytes"]),
    (Role::Site, &["site", "client_domain", "localsite", "src", "domain"]),
    (Role::Dataset, &["dataset"]),
    (Role::Adler32, &["adler32", "checksum"]),
    (Role::Reads, &["reads"]),
];

/// Names of columns that an operator gave: `COLUMN=role`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnNames(Vec<(String, Role)>);

impl ColumnNames {
    /// Reads `COLUMN=ROLE,…`. A column is a name of the header, or its number from 1.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn parse(text: &str) -> Result<Self> {
        let one = |item: &str| {
            let roles: Vec<&str> = ROLES.iter().map(|(_, names)| names[0]).collect();
            let bad = || {
                let roles = roles.join(", ");
                Error::options(format!("columns are COLUMN=ROLE,… with the roles {roles}: {item:.100?}"))
            };
            let (column, role) = item.rsplit_once('=').ok_or_else(bad)?;
            let role = ROLES.iter().find(|(_, names)| names[0] == role.trim()).ok_or_else(bad)?.0;
            match column.trim() {
                "" => Err(bad()),
                column => Ok((column.to_owned(), role)),
            }
        };
        Ok(ColumnNames(text.split(',').map(one).collect::<Result<_>>()?))
    }
}

/// Reader of a table.
pub(super) struct Columns {
    format: Format,
    fields: Fields,
    /// Column of each role; none before the header.
    places: Option<[Option<usize>; ROLES.len()]>,
}

/// Returns the columns of the roles.
fn places(header: &[&str], named: &ColumnNames) -> Result<[Option<usize>; ROLES.len()]> {
    let mut places = [None; ROLES.len()];
    for (at, (_, names)) in ROLES.iter().enumerate() {
        // In the order of the names: a header may have a name and a URL.
        let found = names
            .iter()
            .find_map(|name| header.iter().position(|field| field.trim().eq_ignore_ascii_case(name)));
        places[at] = found;
    }
    for (column, role) in &named.0 {
        let by_name = header.iter().position(|field| field.trim() == column);
        let by_number = || column.parse::<usize>().ok()?.checked_sub(1).filter(|at| *at < header.len());
        let found = by_name.or_else(by_number).ok_or_else(|| {
            Error::options(format!("the header has no column {column:?}: it has {:.300}", header.join(", ")))
        })?;
        places[*role as usize] = Some(found);
    }
    for role in [Role::Time, Role::Name] {
        if places[role as usize].is_none() {
            let name = ROLES[role as usize].1[0];
            let what = "no column of the header is the";
            let has = header.join(", ");
            return Err(Error::options(format!(
                "{what} {name}: say which one, as --columns COLUMN={name} (the header has {has:.300})"
            )));
        }
    }
    Ok(places)
}

/// Returns the path of a URL; other names as they are.
fn path_of(name: &str) -> &str {
    match name.split_once("://") {
        Some((_, rest)) => match rest.find('/') {
            // `root://HOST//PATH` has the path behind the second slash.
            Some(at) if rest[at..].starts_with("//") => &rest[at + 1..],
            Some(at) => &rest[at..],
            None => "",
        },
        None => name,
    }
}

impl Columns {
    pub(super) fn new(format: Format) -> Self {
        Columns { format, fields: Fields::default(), places: None }
    }

    fn cut(&mut self, text: &str) -> std::result::Result<(), &'static str> {
        match self.format {
            Format::Csv => self.fields.cut_csv(text, b','),
            _ => self.fields.cut_tsv(text, b'\t', false),
        }
    }

    pub(super) fn take(&mut self, taking: &mut Taking<'_>, text: &str, place: (u64, &[u8])) -> Result<()> {
        if let Err(what) = self.cut(text) {
            return taking.take(Err(Complaint::new(Reason::BadRow, what)), 1, place);
        }
        match &self.places {
            None => {
                let header: Vec<&str> = (0..self.fields.len()).map(|at| self.fields.get(text, at)).collect();
                self.places = Some(places(&header, &taking.settings.columns)?);
                taking.counts.other += 1;
                Ok(())
            }
            Some(places) => {
                let row = row(&self.fields, text, places);
                taking.take(row, 1, place)
            }
        }
    }
}

fn row<'a>(fields: &'a Fields, text: &'a str, places: &[Option<usize>; ROLES.len()]) -> Row<'a> {
    let get = |role: Role| places[role as usize].map_or("", |at| fields.get(text, at).trim());
    let name = path_of(get(Role::Name));
    if name.is_empty() {
        return Err(Complaint::new(Reason::NoLfn, "the row names no file"));
    }
    let size = match get(Role::Size) {
        "" => 0,
        size => {
            size.parse().map_err(|_| Complaint::new(Reason::BadSize, "the size is no number of bytes"))?
        }
    };
    let bad_sum = |_| Complaint::new(Reason::BadChecksum, "the checksum has no 8 hexadecimal digits");
    let sum = get(Role::Adler32);
    let sum = sum.strip_prefix("adler32:").unwrap_or(sum);
    // Sums of other algorithms are of no use here.
    let sum = Some(sum).filter(|sum| !sum.is_empty() && !sum.contains(':'));
    Ok(AccessRow {
        time_us: parse_time_us(get(Role::Time)).map_err(|what| Complaint::new(Reason::BadTime, what))?,
        name,
        size,
        adler32: sum.map(|sum| u32::from_str_radix(sum, 16)).transpose().map_err(bad_sum)?,
        site: get(Role::Site),
        dataset: get(Role::Dataset),
        reads: Reads::parse(get(Role::Reads)).map_err(|what| Complaint::new(Reason::BadRow, what))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_found_by_name_number_and_header() {
        let header = ["start", "end", "url", "size", "client_domain"];
        let found = places(&header, &ColumnNames::default()).unwrap();
        assert_eq!(found, [Some(0), Some(2), Some(3), Some(4), None, None, None]);
        let named = ColumnNames::parse("end=time,5=dataset").unwrap();
        assert_eq!(places(&header, &named).unwrap()[..5], [Some(1), Some(2), Some(3), Some(4), Some(4)]);
        assert_eq!(places(&["URL", "Name", "TIME"], &ColumnNames::default()).unwrap()[1], Some(1));
        assert!(places(&["url", "size"], &ColumnNames::default()).is_err());
        for bad in ["", "a", "=time", "a=nothing", "a=time,"] {
            assert!(ColumnNames::parse(bad).is_err(), "{bad}");
        }
        for bad in ["none=time", "0=time", "6=time"] {
            assert!(places(&header, &ColumnNames::parse(bad).unwrap()).is_err(), "{bad}");
        }
    }

    #[test]
    fn urls_become_paths() {
        for (of, expected) in [
            ("root://h:1094//a/b", "/a/b"),
            ("root://h:1096/pnfs/f", "/pnfs/f"),
            ("https://h/x", "/x"),
            ("https://h", ""),
            ("/a/b", "/a/b"),
            ("name.root", "name.root"),
        ] {
            assert_eq!(path_of(of), expected, "{of}");
        }
    }

    #[test]
    fn roles_are_in_the_order_of_their_numbers() {
        for (at, (role, _)) in ROLES.iter().enumerate() {
            assert_eq!(*role as usize, at);
        }
    }
}
