//! Listings: a file, its format, and the meaning of its columns, determined from the options, its
//! first rows and its name.
//!
//! Exports describe themselves: their first lines are a [`Preamble`], one JSON object per line
//! after `#exacat ` (in JSON lines, under the key `#exacat`).

use std::borrow::Cow;
use std::io;
use std::path::Path;

use exacat_model::SeName;
use serde_json::Value;

use crate::columns::{self, Columns, Layout, Role};
use crate::error::Error;
use crate::input::{BytesRead, Compression, Input, refuse_utf16};
use crate::limits::COLUMNS_MAX;
use crate::options::{ListingOptions, Rest};
use crate::records::{Fields, Flaw, Format, Record, Records};
use crate::reject::{Complaint, Reason};
use crate::row::{Assembler, Draft, Row};
use crate::seen::Seen;

/// Description of an export before its rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preamble {
    /// Objects in order: the first describes the export, the others the items that its rows refer
    /// to.
    pub objects: Vec<serde_json::Map<String, Value>>,
}

/// Key, or start of the line, of a preamble's object.
pub const PREAMBLE_KEY: &str = "#exacat";
/// Version of exports that this crate writes, and the latest that it reads.
pub const EXPORT_VERSION: u64 = 1;

impl Preamble {
    /// Returns the object of one line, if it is one.
    fn object_of(raw: &[u8], format: Format) -> Option<Value> {
        let text = std::str::from_utf8(raw).ok()?;
        if format == Format::JsonLines {
            if !text.starts_with("{\"#exacat\"") {
                return None;
            }
            return serde_json::from_str::<Value>(text).ok()?.get_mut(PREAMBLE_KEY).map(Value::take);
        }
        serde_json::from_str(text.strip_prefix(PREAMBLE_KEY)?.strip_prefix(' ')?).ok()
    }

    /// Checks that it is an export of a version that this crate reads.
    fn check(&self) -> Result<(), Error> {
        match self.objects.first().and_then(|first| first.get("export")).and_then(Value::as_u64) {
            Some(1..=EXPORT_VERSION) => Ok(()),
            Some(version) => Err(Error::options(format!(
                "the export is of version {version}, this program reads up to {EXPORT_VERSION}: use a newer one"
            ))),
            None => Err(Error::options("the export's first line does not say its version")),
        }
    }

    fn columns(&self) -> Result<Option<Columns>, Error> {
        let Some(named) = self.objects.first().and_then(|first| first.get("columns")) else {
            return Ok(None);
        };
        let roles = named.as_array().map(|names| {
            names
                .iter()
                .map(|name| Role::parse(name.as_str().unwrap_or_default()))
                .collect::<Result<Vec<_>, _>>()
        });
        roles
            .transpose()?
            .map(Columns::InOrder)
            .map(Some)
            .ok_or_else(|| Error::options("the export's columns are no list"))
    }
}

/// Assignment of fields to roles.
#[derive(Clone, Debug)]
enum Plan {
    /// By position.
    Text(Layout),
    /// By key; paths of keys have priority.
    Json { mapped: Vec<(Vec<String>, Role)>, auto: bool },
}

/// An opened listing, which can be read any number of times (a pipe: once).
#[derive(Clone, Debug)]
pub struct Listing {
    input: Input,
    format: Format,
    delimiter: u8,
    escapes: bool,
    rest: Rest,
    plan: Plan,
    preamble: Option<Preamble>,
    /// Number of rows before the data: preamble and header.
    rows_before: u64,
    assembler: Assembler,
    options: ListingOptions,
}

/// Opens a listing as [`Listing::open`] does, on a thread that may block, because a FIFO waits for
/// its writer.
pub async fn open(path: &Path, options: &ListingOptions) -> Result<Listing, Error> {
    let (path, options) = (path.to_owned(), options.clone());
    let opened = tokio::task::spawn_blocking(move || Listing::open(&path, options));
    opened.await.map_err(|_| Error::Broken("opening a listing"))?
}

impl Listing {
    /// Opens a file and determines the options without a value.
    pub fn open(path: &Path, options: ListingOptions) -> Result<Self, Error> {
        let input = Input::open(path, options.compression)?;
        Listing::of_input(input, options)
    }

    /// Opens the output of a reader, which can be read once.
    pub fn of_reader(
        name: &Path,
        reader: Box<dyn io::Read + Send>,
        options: ListingOptions,
    ) -> Result<Self, Error> {
        let input = Input::of_reader(name, reader, options.compression)?;
        Listing::of_input(input, options)
    }

    fn of_input(input: Input, options: ListingOptions) -> Result<Self, Error> {
        let path = input.path();
        let head = input.content_head()?;
        refuse_utf16(path, &head)?;
        let format = options.format.unwrap_or_else(|| detect_format(&head, path, options.columns.as_ref()));
        let delimiter = options.delimiter.unwrap_or(format.delimiter());
        if matches!(delimiter, b'\n' | b'\r' | b'"' | 0x80..) {
            return Err(Error::options("the delimiter is one ASCII character, not a quote or a line end"));
        }
        let cannot = |error| Error::file("read", path, error);
        let mut records = Records::new(Box::new(io::Cursor::new(head)), format, delimiter).map_err(cannot)?;
        let mut preamble = Preamble::default();
        let mut first = None;
        while let Some(record) = records.next_record().map_err(cannot)? {
            match Preamble::object_of(record.raw, format) {
                Some(Value::Object(object)) => preamble.objects.push(object),
                _ => {
                    first = Some(record.raw.to_vec());
                    break;
                }
            }
        }
        let mut rows_before = preamble.objects.len() as u64;
        let preamble = (!preamble.objects.is_empty()).then_some(preamble);
        if let Some(preamble) = &preamble {
            preamble.check()?;
        }
        let escapes = options.escapes.unwrap_or(preamble.is_some());
        let plan = if format == Format::JsonLines {
            json_plan(&options)?
        } else {
            let first = first.unwrap_or_default();
            let (layout, header) = text_plan(&options, format, delimiter, &first, preamble.as_ref())?;
            rows_before += u64::from(header);
            Plan::Text(layout)
        };
        let assembler = Assembler::new(&options, preamble.is_some(), plan.places());
        let rest = options.rest;
        Ok(Listing {
            input,
            format,
            delimiter,
            escapes,
            rest,
            plan,
            preamble,
            rows_before,
            assembler,
            options,
        })
    }

    /// Returns the file.
    pub fn input(&self) -> &Input {
        &self.input
    }

    /// Returns the format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the options that it was opened with.
    pub fn options(&self) -> &ListingOptions {
        &self.options
    }

    /// Returns the preamble, if it is an export.
    pub fn preamble(&self) -> Option<&Preamble> {
        self.preamble.as_ref()
    }

    /// Sets the registered SEs. Rows that name others are rejected; with `se_auto` the others are
    /// new SEs.
    pub fn know_ses(&mut self, ses: impl IntoIterator<Item = SeName>) {
        self.assembler.know(ses);
    }

    /// Reads its data rows from the start.
    pub(crate) fn records(&self, count: &BytesRead) -> Result<Records, Error> {
        let cannot = |error| Error::file("read", self.input.path(), error);
        let mut records =
            Records::new(self.input.reader(count)?, self.format, self.delimiter).map_err(cannot)?;
        for _ in 0..self.rows_before {
            records.next_record().map_err(cannot)?;
        }
        Ok(records)
    }

    /// Parses one row.
    pub(crate) fn row(&self, record: Record<'_>, fields: &mut Fields) -> Result<Row, Complaint> {
        match record.flaw {
            Some(Flaw::TooLong) => {
                return Err(Complaint::new(
                    Reason::RowTooLong,
                    format!("more than {} bytes", crate::limits::ROW_BYTES_MAX),
                ));
            }
            Some(Flaw::OpenQuote) => {
                return Err(Complaint::new(Reason::BadRow, "a quote is opened here and never closed"));
            }
            None => {}
        }
        let text = std::str::from_utf8(record.raw).map_err(|error| {
            Complaint::new(Reason::BadRow, format!("not UTF-8 from byte {} on", error.valid_up_to()))
        })?;
        match &self.plan {
            Plan::Text(layout) => self.text_row(layout, text, fields),
            Plan::Json { mapped, auto } => self.json_row(mapped, *auto, text, fields),
        }
    }

    fn text_row(&self, layout: &Layout, text: &str, fields: &mut Fields) -> Result<Row, Complaint> {
        let cut = match self.format {
            Format::Csv => fields.cut_csv(text, self.delimiter),
            _ => fields.cut_tsv(text, self.delimiter, self.escapes),
        };
        cut.map_err(|why| Complaint::new(Reason::BadRow, why))?;
        if fields.len() > layout.columns.len() {
            return Err(Complaint::new(
                Reason::BadRow,
                format!("{} fields, but {} columns", fields.len(), layout.columns.len()),
            ));
        }
        let mut draft = Draft::new(&fields.memo);
        for (index, column) in layout.columns.iter().enumerate() {
            let field = fields.get(text, index);
            if field.is_empty() {
                continue;
            }
            match column {
                Ok(role) => draft.take(role, Cow::Borrowed(field), self.escapes)?,
                Err(name) if self.rest == Rest::Tags => draft.take_rest_text(name, field),
                Err(_) => {}
            }
        }
        self.assembler.finish(&mut draft)
    }

    fn json_row(
        &self,
        mapped: &[(Vec<String>, Role)],
        auto: bool,
        text: &str,
        fields: &Fields,
    ) -> Result<Row, Complaint> {
        let value: Value = serde_json::from_str(text)
            .map_err(|error| Complaint::new(Reason::BadRow, format!("not JSON: {error}")))?;
        let Value::Object(members) = &value else {
            return Err(Complaint::new(Reason::BadRow, "not a JSON object"));
        };
        let mut draft = Draft::new(&fields.memo);
        for (path, role) in mapped {
            let found = path.iter().try_fold(&value, |value, key| value.get(key));
            if let Some(found) = found {
                draft.take_json(role, found)?;
            }
        }
        for (key, member) in members {
            if mapped.iter().any(|(path, _)| path.len() == 1 && path[0] == *key) {
                continue;
            }
            let role = if auto { Role::of_key(key) } else { None };
            match role.filter(|role| !mapped.iter().any(|(_, given)| given == role)) {
                Some(role) => draft.take_json(&role, member)?,
                None if self.rest == Rest::Tags => draft.take_rest(key, member),
                None => {}
            }
        }
        self.assembler.finish(&mut draft)
    }
}

impl Plan {
    /// Says whether any column gives the location of files.
    fn places(&self) -> bool {
        let placing = |role: &Role| matches!(role, Role::Pfn | Role::Pfns | Role::Replicas | Role::Se);
        match self {
            Plan::Text(layout) => layout.columns.iter().flatten().any(placing),
            // Keys vary from row to row, so only the user's assignments count.
            Plan::Json { mapped, .. } => mapped.iter().any(|(_, role)| placing(role)),
        }
    }
}

fn json_plan(options: &ListingOptions) -> Result<Plan, Error> {
    let mapped = match &options.columns {
        None => Vec::new(),
        Some(Columns::Named(assigned)) => assigned
            .iter()
            .map(|(name, role)| (name.split('.').map(str::to_owned).collect(), role.clone()))
            .collect(),
        Some(Columns::InOrder(_)) => {
            return Err(Error::options("the keys of JSON have no order: say --columns KEY=role"));
        }
    };
    if !options.auto_columns && !mapped.iter().any(|(_, role)| *role == Role::Lfn) {
        return Err(Error::options("no key is the LFN: say --columns KEY=lfn"));
    }
    Ok(Plan::Json { mapped, auto: options.auto_columns })
}

/// Returns the layout, and whether there is a header row.
fn text_plan(
    options: &ListingOptions,
    format: Format,
    delimiter: u8,
    first: &[u8],
    preamble: Option<&Preamble>,
) -> Result<(Layout, bool), Error> {
    let text = String::from_utf8_lossy(first);
    let mut fields = Fields::default();
    let cut = match format {
        Format::Csv => fields.cut_csv(&text, delimiter),
        _ => fields.cut_tsv(&text, delimiter, false),
    };
    let names: Vec<&str> = match cut {
        Ok(()) => (0..fields.len()).map(|index| fields.get(&text, index)).collect(),
        Err(_) => Vec::new(),
    };
    if names.len() > COLUMNS_MAX {
        return Err(Error::options(format!(
            "the listing has {} columns, the limit is {COLUMNS_MAX}",
            names.len()
        )));
    }
    let of_export = preamble.map(Preamble::columns).transpose()?.flatten();
    let columns = options.columns.as_ref().or(of_export.as_ref());
    let by_name = match columns {
        Some(Columns::Named(assigned)) => {
            assigned.iter().any(|(name, _)| names.iter().any(|field| field.trim() == name))
        }
        _ => false,
    };
    let header =
        options.header.unwrap_or_else(|| by_name || preamble.is_some() || columns::looks_like_header(&names));
    if columns.is_none() && !header && names.len() <= 1 {
        // Only a list of names.
        return Ok((Layout { columns: vec![Ok(Role::Lfn)] }, false));
    }
    let layout = columns::layout(columns, header.then_some(&names[..]), options.auto_columns)?;
    Ok((layout, header))
}

/// Detects the format: JSON by its first byte, then by the file's name. Else it is CSV under two
/// conditions: the first line has commas and no tab, and it is a header or has as many fields as
/// there are columns. Else it is TSV.
fn detect_format(head: &[u8], path: &Path, columns: Option<&Columns>) -> Format {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    if head.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{') {
        return Format::JsonLines;
    }
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_ascii_lowercase();
    let name = Compression::NAME_ENDS.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
    match name.rsplit('.').next() {
        Some("csv") => return Format::Csv,
        Some("jsonl" | "ndjson") => return Format::JsonLines,
        Some("tsv") => return Format::Tsv,
        _ => {}
    }
    let first = head.split(|byte| *byte == b'\n').find(|line| !line.starts_with(PREAMBLE_KEY.as_bytes()));
    let first = String::from_utf8_lossy(first.unwrap_or_default());
    let fields: Vec<&str> = first.trim_end().split(',').map(|field| field.trim_matches('"')).collect();
    if first.contains('\t') || fields.len() < 2 {
        return Format::Tsv;
    }
    let fits = match columns {
        Some(Columns::InOrder(roles)) => roles.len() == fields.len(),
        Some(Columns::Named(assigned)) => assigned.iter().any(|(name, _)| fields.contains(&name.as_str())),
        None => false,
    };
    if fits || columns::looks_like_header(&fields) { Format::Csv } else { Format::Tsv }
}

/// Result of reading a listing without a catalogue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examined {
    /// Number of rows.
    pub rows: u64,
    /// Number of rows that an import could send.
    pub accepted: u64,
    /// Rejected rows and parts left out, by reason.
    pub rejects: Vec<(Reason, u64)>,
}

impl Listing {
    /// Reads all rows and counts those that an import would reject without the catalogue.
    pub fn examine(&self) -> Result<Examined, Error> {
        let mut examined = Examined::default();
        let mut seen = Seen::new(self.options.repeats);
        let mut fields = Fields::default();
        let mut counts = [0u64; Reason::ALL.len()];
        let mut records = self.records(&BytesRead::default())?;
        while let Some(record) =
            records.next_record().map_err(|error| Error::file("read", self.input.path(), error))?
        {
            examined.rows += 1;
            match self.row(record, &mut fields).and_then(|row| seen.take(&row.item).map(|_| row)) {
                Ok(row) => {
                    examined.accepted += 1;
                    for dropped in row.dropped {
                        counts[dropped.reason as usize] += 1;
                    }
                }
                Err(complaint) => counts[complaint.reason as usize] += 1,
            }
        }
        let met = |reason: &Reason| counts[*reason as usize] > 0;
        examined.rejects =
            Reason::ALL.into_iter().filter(met).map(|reason| (reason, counts[reason as usize])).collect();
        Ok(examined)
    }
}
