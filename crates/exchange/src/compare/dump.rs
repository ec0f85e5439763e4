//! Lines of storage dumps in the forms that sites deliver: paths, columns, listings of `xrdfs`, `eos`
//! and of dCache's namespace.

use std::borrow::Cow;

use exacat_model::{Checksum, ChecksumAlgorithm, limits::PFN_BYTES_MAX};

use crate::columns::{Columns, Role};
use crate::error::Error;
use crate::records::Fields;

/// Form of the lines of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A path is a line.
    Paths,
    /// Fields separated by tabs, or by another character.
    Tsv,
    /// Fields of RFC 4180.
    Csv,
    /// `xrdfs HOST ls -l -R PATH`, with checksums with `-C`.
    Xrdfs,
    /// `eos find --size --checksum PATH`, and other lines of `key=value`.
    Eos,
    /// `chimera-list`: path, pnfsid, checksum, size, access time, pool; also condensed, with a line for
    /// each directory.
    Chimera,
    /// Replica dump of Rucio: RSE, scope, name, checksum, size, date, path, date, state.
    Rucio,
}

impl Form {
    /// All forms.
    pub const ALL: [Form; 7] =
        [Form::Paths, Form::Tsv, Form::Csv, Form::Xrdfs, Form::Eos, Form::Chimera, Form::Rucio];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Form::Paths => "paths",
            Form::Tsv => "tsv",
            Form::Csv => "csv",
            Form::Xrdfs => "xrdfs",
            Form::Eos => "eos",
            Form::Chimera => "chimera",
            Form::Rucio => "rucio",
        }
    }

    /// Returns the form of that name.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|form| form.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|form| form.name()).collect();
            Error::options(format!("not a form of a dump ({}): {text:.100?}", names.join(", ")))
        })
    }
}

/// Options for the lines of a dump.
#[derive(Clone, Debug, Default)]
pub struct DumpOptions {
    /// Form of the lines; none to detect it.
    pub form: Option<Form>,
    /// Separator of fields; none for the form's own.
    pub delimiter: Option<u8>,
    /// Roles of columns, as an import has them; none to detect them.
    pub columns: Option<Columns>,
}

/// Content of a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DumpLine<'a> {
    /// Path as the dump has it.
    pub(crate) path: Cow<'a, str>,
    /// Bytes.
    pub(crate) size: Option<u64>,
    /// Checksum.
    pub(crate) checksum: Option<Checksum>,
}

/// Result of reading a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read<'a> {
    /// A file.
    File(DumpLine<'a>),
    /// A directory.
    Directory,
    /// A comment or a header.
    Nothing,
    /// A broken line.
    Bad(Flaw),
}

/// Reason why a line cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Flaw {
    /// The line is no UTF-8, so that no PFN has this path.
    NotUtf8,
    /// The path has control characters, which no PFN has.
    ControlCharacters,
    /// The line has no path.
    NoPath,
    /// The path is longer than any PFN.
    PathTooLong,
    /// The line is longer than the limit of rows.
    RowTooLong,
    /// The size is no whole number of bytes.
    BadSize,
    /// The checksum is malformed.
    BadChecksum,
    /// The line does not have the form of the others.
    OtherForm,
}

impl Flaw {
    /// Returns the name in reject files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Flaw::NotUtf8 => "not-utf8",
            Flaw::ControlCharacters => "control-characters",
            Flaw::NoPath => "no-path",
            Flaw::PathTooLong => "path-too-long",
            Flaw::RowTooLong => "row-too-long",
            Flaw::BadSize => "bad-size",
            Flaw::BadChecksum => "bad-checksum",
            Flaw::OtherForm => "other-form",
        }
    }
}

/// Places of the fields that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Places {
    path: usize,
    size: Option<usize>,
    checksum: Option<usize>,
    /// Algorithm of checksums without a name, if the header names it.
    algorithm: Option<ChecksumAlgorithm>,
}

/// Reader of the lines of one dump.
pub(crate) struct DumpReader {
    form: Form,
    delimiter: u8,
    places: Places,
    /// The header, a line to skip.
    header: Option<Vec<u8>>,
    fields: Fields,
    /// Directory of the lines that follow, in a condensed listing of dCache.
    directory: String,
}

impl DumpReader {
    /// Determines the form by the first lines of a dump, where the options leave it open.
    pub(crate) fn detect(head: &[u8], options: &DumpOptions) -> Result<Self, Error> {
        let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
        let mut lines = head
            .split(|byte| *byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
            .filter(|line| !line.is_empty() && !line.starts_with(b"#"))
            .map(String::from_utf8_lossy);
        let first = lines.next().unwrap_or_default();
        let second = lines.next().unwrap_or_default();
        if first.starts_with("<?xml") || first.trim_start().starts_with("<SE:") {
            return Err(Error::options(
                "the dump is XML (syncat), which is not read: convert it to lines of path and size first, such as \
                 with xmlstarlet",
            ));
        }
        let columns_given = options.columns.is_some() || options.delimiter.is_some();
        let form = options.form.unwrap_or_else(|| detected(&first, &second, columns_given));
        let delimiter = options.delimiter.unwrap_or(match form {
            Form::Csv => b',',
            Form::Tsv if !first.contains('\t') && first.contains('|') => b'|',
            _ => b'\t',
        });
        let mut reader = DumpReader {
            form,
            delimiter,
            places: Places::default(),
            header: None,
            fields: Fields::default(),
            directory: String::new(),
        };
        reader.place(&first, options)?;
        Ok(reader)
    }

    /// Determines the columns.
    fn place(&mut self, first: &str, options: &DumpOptions) -> Result<(), Error> {
        self.places = match self.form {
            Form::Chimera => Places { path: 0, size: Some(3), checksum: Some(2), algorithm: None },
            Form::Rucio => Places { path: 6, size: Some(4), checksum: Some(3), algorithm: None },
            Form::Tsv | Form::Csv => {
                let names = self.split_all(first);
                let by_header = placed_by_header(&names);
                let named = |name: &String| match &options.columns {
                    Some(Columns::Named(assigned)) => assigned.iter().any(|(known, _)| known == name),
                    _ => false,
                };
                if by_header.is_some() || names.iter().any(named) {
                    self.header = Some(first.as_bytes().to_vec());
                }
                match (&options.columns, by_header) {
                    (Some(columns), _) => placed_by_option(columns, &names)?,
                    (None, Some(places)) => places,
                    (None, None) => placed_by_content(&names),
                }
            }
            _ if options.columns.is_some() => {
                return Err(Error::options("--columns is for dumps of the forms tsv and csv"));
            }
            _ => Places::default(),
        };
        Ok(())
    }

    fn split_all(&mut self, line: &str) -> Vec<String> {
        if self.cut(line).is_err() {
            return Vec::new();
        }
        (0..self.fields.len()).map(|at| self.fields.get(line, at).trim().to_owned()).collect()
    }

    fn cut(&mut self, line: &str) -> Result<(), &'static str> {
        match self.form {
            Form::Csv => self.fields.cut_csv(line, self.delimiter),
            _ => self.fields.cut_tsv(line, self.delimiter, false),
        }
    }

    /// Returns the form.
    pub(crate) fn form(&self) -> Form {
        self.form
    }

    /// Returns the separator of fields.
    pub(crate) fn delimiter(&self) -> u8 {
        self.delimiter
    }

    /// Reads a line.
    pub(crate) fn read<'a>(&'a mut self, raw: &'a [u8]) -> Read<'a> {
        if raw.starts_with(b"#") || self.header.as_deref() == Some(raw) {
            return Read::Nothing;
        }
        let Ok(line) = std::str::from_utf8(raw) else { return Read::Bad(Flaw::NotUtf8) };
        let read = match self.form {
            Form::Paths => Ok(Some(DumpLine { path: Cow::Borrowed(line), size: None, checksum: None })),
            Form::Xrdfs => of_xrdfs(line),
            Form::Eos => of_eos(line),
            Form::Tsv | Form::Csv | Form::Rucio | Form::Chimera => self.of_fields(line),
        };
        match read {
            Err(flaw) => Read::Bad(flaw),
            Ok(None) => Read::Directory,
            Ok(Some(line)) if line.path.is_empty() => Read::Bad(Flaw::NoPath),
            Ok(Some(line)) if line.path.ends_with('/') => Read::Directory,
            Ok(Some(line)) if line.path.len() > PFN_BYTES_MAX => Read::Bad(Flaw::PathTooLong),
            // No early exit, so that the compiler checks many bytes in one step.
            Ok(Some(line))
                if line.path.bytes().fold(false, |found, byte| found | (byte < b' ') | (byte == 0x7f)) =>
            {
                Read::Bad(Flaw::ControlCharacters)
            }
            Ok(Some(line)) => Read::File(line),
        }
    }

    fn of_fields<'a>(&'a mut self, line: &'a str) -> Result<Option<DumpLine<'a>>, Flaw> {
        if self.form == Form::Chimera && !line.contains('\t') {
            line.clone_into(&mut self.directory);
            return if line.starts_with('/') { Ok(None) } else { Err(Flaw::OtherForm) };
        }
        self.cut(line).map_err(|_| Flaw::OtherForm)?;
        let places = self.places;
        if self.fields.len() <= places.path || (self.form == Form::Rucio && self.fields.len() < 9) {
            return Err(Flaw::OtherForm);
        }
        let fields = &self.fields;
        let get = |place: Option<usize>| place.map_or("", |place| fields.get(line, place).trim());
        let size = size_of(get(places.size))?;
        let checksum = checksum_of(get(places.checksum), places.algorithm)?;
        let path = fields.get(line, places.path);
        let path = match self.form {
            Form::Chimera if !path.starts_with('/') => Cow::Owned(format!("{}/{path}", self.directory)),
            _ => Cow::Borrowed(path),
        };
        Ok(Some(DumpLine { path, size, checksum }))
    }
}

fn detected(first: &str, second: &str, columns_given: bool) -> Form {
    if columns_given {
        return if first.contains('\t') || !first.contains(',') { Form::Tsv } else { Form::Csv };
    }
    if first.starts_with("path=") || first.starts_with("keylength.file=") || first.starts_with("fid=") {
        return Form::Eos;
    }
    if is_xrdfs(first) {
        return Form::Xrdfs;
    }
    let is_pnfs_id = |line: &str| {
        line.split('\t')
            .nth(1)
            .is_some_and(|id| matches!(id.len(), 24 | 36) && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    if is_pnfs_id(first) || (first.starts_with('/') && !first.contains('\t') && is_pnfs_id(second)) {
        return Form::Chimera;
    }
    let tabs: Vec<&str> = first.split('\t').collect();
    if tabs.len() == 9 && tabs[4].bytes().all(|byte| byte.is_ascii_digit()) && !tabs[0].contains('/') {
        return Form::Rucio;
    }
    if tabs.len() > 1 {
        return Form::Tsv;
    }
    let is_row = |separator: char| {
        let fields: Vec<String> = first.split(separator).map(|field| field.trim().to_owned()).collect();
        let is_size = |field: &String| !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_digit());
        fields.len() > 1 && (placed_by_header(&fields).is_some() || fields.iter().any(is_size))
    };
    if is_row(',') {
        return Form::Csv;
    }
    if is_row('|') { Form::Tsv } else { Form::Paths }
}

/// Returns the places of columns whose header names them.
fn placed_by_header(names: &[String]) -> Option<Places> {
    let find = |known: &[&str]| {
        names.iter().position(|name| known.contains(&name.trim_matches('"').to_ascii_lowercase().as_str()))
    };
    if names.iter().any(|name| name.starts_with('/')) {
        return None;
    }
    let path =
        find(&["path", "pfn", "pfns", "url", "surl", "file", "filename", "physical_name", "name", "lfn"])?;
    let by_algorithm = ChecksumAlgorithm::ALL
        .into_iter()
        .find_map(|algorithm| Some((find(&[algorithm.name()])?, algorithm)));
    let checksum = find(&["checksum", "checksums", "cksum", "xs"]).or(by_algorithm.map(|(place, _)| place));
    let algorithm =
        by_algorithm.filter(|(place, _)| Some(*place) == checksum).map(|(_, algorithm)| algorithm);
    let size = find(&["size", "bytes", "filesize", "length"]);
    // A single word is a path, not a header, unless other columns are named beside it.
    (names.len() == 1 || size.is_some() || checksum.is_some()).then_some(Places {
        path,
        size,
        checksum,
        algorithm,
    })
}

fn placed_by_option(columns: &Columns, header: &[String]) -> Result<Places, Error> {
    let find = |wanted: &[Role]| match columns {
        Columns::InOrder(roles) => roles.iter().position(|role| wanted.contains(role)),
        Columns::Named(assigned) => {
            let (name, _) = assigned.iter().find(|(_, role)| wanted.contains(role))?;
            let number = name.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
            header.iter().position(|known| known == name).or(number)
        }
    };
    let path = find(&[Role::Pfn, Role::Lfn])
        .ok_or_else(|| Error::options("--columns names no column of paths: give it the role path"))?;
    Ok(Places { path, size: find(&[Role::Size]), checksum: find(&[Role::Checksum]), algorithm: None })
}

/// Returns the places of columns by the fields of the first row.
fn placed_by_content(fields: &[String]) -> Places {
    let path = fields.iter().position(|field| field.contains('/')).unwrap_or(0);
    let others = || fields.iter().enumerate().filter(move |(at, _)| *at != path);
    let is_size = |field: &str| !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_digit());
    let size = others().find(|(_, field)| is_size(field)).map(|(at, _)| at);
    let is_checksum = |field: &str| matches!(checksum_of(field, None), Ok(Some(_)));
    let checksum = others()
        .find(|(at, field)| Some(*at) != size && is_checksum(field))
        // The first row may have none.
        .or_else(|| others().find(|(at, _)| size.is_some_and(|size| *at == size + 1)))
        .map(|(at, _)| at);
    Places { path, size, checksum, algorithm: None }
}

fn size_of(text: &str) -> Result<Option<u64>, Flaw> {
    match text {
        "" | "-" | "?" | "null" | "None" | "\\N" => Ok(None),
        text if text.bytes().all(|byte| byte.is_ascii_digit()) => {
            text.parse().map(Some).map_err(|_| Flaw::BadSize)
        }
        _ => Err(Flaw::BadSize),
    }
}

/// Reads a checksum; without a name, its length tells the algorithm. Storage systems write zeros where
/// they have none.
fn checksum_of(text: &str, algorithm: Option<ChecksumAlgorithm>) -> Result<Option<Checksum>, Flaw> {
    if matches!(text, "" | "-" | "?" | "none" | "None" | "null" | "\\N" | "unknown") {
        return Ok(None);
    }
    let mut digest = [0u8; 4];
    if algorithm.is_none_or(|algorithm| algorithm == ChecksumAlgorithm::Adler32)
        && let Some(digits) = text.as_bytes().first_chunk::<8>().filter(|_| text.len() == 8)
        && read_hex(digits, &mut digest)
    {
        return Ok(of_digest(ChecksumAlgorithm::Adler32, digest));
    }
    if let Some(digits) =
        text.strip_prefix("adler32:").and_then(|text| <&[u8; 8]>::try_from(text.as_bytes()).ok())
        && read_hex(digits, &mut digest)
    {
        return Ok(of_digest(ChecksumAlgorithm::Adler32, digest));
    }
    let bare = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let named = match algorithm {
        Some(algorithm) if bare => Cow::Owned(format!("{}:{text}", algorithm.name())),
        None if bare && text.len() <= 8 => Cow::Owned(format!("adler32:{text}")),
        _ => Cow::Borrowed(text),
    };
    let checksum = Checksum::parse(&named).map_err(|_| Flaw::BadChecksum)?;
    Ok(Some(checksum).filter(|checksum| checksum.digest().iter().any(|byte| *byte != 0)))
}

fn of_digest(algorithm: ChecksumAlgorithm, digest: [u8; 4]) -> Option<Checksum> {
    (digest != [0; 4]).then(|| Checksum::new(algorithm, &digest).ok()).flatten()
}

fn read_hex(digits: &[u8; 8], out: &mut [u8; 4]) -> bool {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    };
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        let (Some(high), Some(low)) = (value(pair[0]), value(pair[1])) else { return false };
        *byte = high << 4 | low;
    }
    true
}

/// Splits off the first word, and the blanks before it.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start_matches(' ');
    match memchr::memchr(b' ', text.as_bytes()) {
        Some(at) => text.split_at(at),
        None => (text, ""),
    }
}

fn is_date(text: &str) -> bool {
    text.len() == 10
        && text.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}

fn is_xrdfs(line: &str) -> bool {
    line.starts_with(['-', 'd']) && of_xrdfs(line).is_ok()
}

/// Reads `-rw-r--r-- owner group size [checksum] date time path`, and `-rw- date time size path` of
/// servers that show less.
fn of_xrdfs(line: &str) -> Result<Option<DumpLine<'_>>, Flaw> {
    let (mode, rest) = word(line);
    if !(4..=11).contains(&mode.len()) || !mode.starts_with(['-', 'd']) {
        return Err(Flaw::OtherForm);
    }
    let (first, after_first) = word(rest);
    let (size, checksum, path) = if is_date(first) {
        let (_time, rest) = word(after_first);
        let (size, rest) = word(rest);
        (size, "", rest)
    } else {
        let (_group, rest) = word(after_first);
        let (size, rest) = word(rest);
        let (third, after_third) = word(rest);
        let (checksum, date, rest) = match is_date(third) {
            true => ("", third, after_third),
            false => {
                let (date, rest) = word(after_third);
                (third, date, rest)
            }
        };
        if !is_date(date) {
            return Err(Flaw::OtherForm);
        }
        let (_time, rest) = word(rest);
        (size, checksum, rest)
    };
    let path = path.strip_prefix(' ').ok_or(Flaw::NoPath)?;
    if mode.starts_with('d') {
        return Ok(None);
    }
    let (size, checksum) = (size_of(size)?, checksum_of(checksum, None)?);
    Ok(Some(DumpLine { path: Cow::Borrowed(path), size, checksum }))
}

/// Reads `path=… size=… checksum=…`; a path in quotes, or up to the next key.
fn of_eos(line: &str) -> Result<Option<DumpLine<'_>>, Flaw> {
    let (mut path, mut size, mut checksum, mut algorithm) = (None, "", "", None);
    let mut rest = line;
    loop {
        rest = rest.trim_start_matches(' ');
        if rest.is_empty() {
            break;
        }
        let (key, after) = rest.split_once('=').ok_or(Flaw::OtherForm)?;
        if key.contains(' ') {
            return Err(Flaw::OtherForm);
        }
        let is_path = matches!(key, "path" | "file");
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').ok_or(Flaw::OtherForm)?,
            None if is_path => after.split_at(path_end(after)),
            None => after.split_at(memchr::memchr(b' ', after.as_bytes()).unwrap_or(after.len())),
        };
        match key {
            "path" | "file" => path = Some(value),
            "size" => size = value,
            "checksum" | "xs" => checksum = value,
            "xstype" | "checksumtype" => algorithm = Some(value),
            "cid" | "nfiles" | "ndirectories" | "container" => return Ok(None),
            _ => {}
        }
        rest = next;
    }
    let algorithm = match algorithm {
        None | Some("none" | "") => None,
        Some("adler") => Some(ChecksumAlgorithm::Adler32),
        Some("sha") => Some(ChecksumAlgorithm::Sha1),
        Some(name) => ChecksumAlgorithm::ALL.into_iter().find(|known| known.name() == name),
    };
    let (size, checksum) = (size_of(size)?, checksum_of(checksum, algorithm)?);
    let path = path.ok_or(Flaw::NoPath)?;
    Ok(Some(DumpLine { path: Cow::Borrowed(path), size, checksum }))
}

/// Returns the end of a path: the blank before the next key, or the end of the line.
fn path_end(text: &str) -> usize {
    for at in memchr::memchr_iter(b' ', text.as_bytes()) {
        let next = &text[at + 1..];
        let key = next
            .bytes()
            .take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte == b'.')
            .count();
        if key > 0 && next.as_bytes().get(key) == Some(&b'=') {
            return at;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests;
