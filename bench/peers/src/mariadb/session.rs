//! A connection to MariaDB, and each kind of work in SQL: as JAliEn does it, and as SQL does it best.

use std::collections::HashMap;
use std::sync::Arc;

use exacat_model::{Guid, Result};
use mysql::prelude::Queryable;
use mysql::{Conn, Params, Row, Statement, Value};
use parking_lot::RwLock;

use super::schema;
use crate::peer::{Form, Session, Workload, failed, while_doing};
use crate::tree::{self, FileId};

/// JAliEn's way where there is a better one: statement by statement, each a transaction of its own.
pub const AS_JALIEN: Form = "as JAliEn, statement by statement";
/// SQL's way: one statement.
pub const ONE_STATEMENT: Form = "one statement";
/// The statements of one file in one transaction.
pub const ONE_TRANSACTION: Form = "one transaction";

/// The entryIds of directories: the load generator knows them, as JAliEn does from the look-up before.
#[derive(Default)]
pub struct Numbers {
    /// Ids of directories of runs.
    pub runs: Vec<u64>,
    /// Ids of directories.
    pub directories: Vec<u64>,
}

/// A connection.
pub struct MariaSession {
    connection: Conn,
    form: Form,
    numbers: Arc<RwLock<Numbers>>,
    /// Prepared once, by their text (in short: what, and rows).
    statements: HashMap<(Kind, usize), Statement>,
}

/// Statements that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    InsertFiles,
    InsertGuids,
    InsertPfns,
    InsertDirectories,
    FindLfn,
    FindGuid,
    FindPfns,
    JoinLfns,
    JoinGuid,
    List,
    Usage,
    RenameAll,
    FindDirectory,
    Children,
    CopyEntry,
    DeleteEntry,
}

impl Kind {
    fn text(self, rows: usize) -> String {
        match self {
            Kind::InsertFiles => schema::insert_files(rows),
            Kind::InsertGuids => schema::insert_guids(rows),
            Kind::InsertPfns => schema::insert_pfns(rows),
            Kind::InsertDirectories => schema::insert_directories(rows),
            Kind::JoinLfns => schema::join_lfns(rows),
            Kind::FindLfn => schema::FIND_LFN.to_owned(),
            Kind::FindGuid => schema::FIND_GUID.to_owned(),
            Kind::FindPfns => schema::FIND_PFNS.to_owned(),
            Kind::JoinGuid => schema::JOIN_GUID.to_owned(),
            Kind::List => schema::LIST.to_owned(),
            Kind::Usage => schema::USAGE.to_owned(),
            Kind::RenameAll => schema::RENAME_ALL.to_owned(),
            Kind::FindDirectory => schema::FIND_DIRECTORY.to_owned(),
            Kind::Children => schema::CHILDREN.to_owned(),
            Kind::CopyEntry => schema::COPY_ENTRY.to_owned(),
            Kind::DeleteEntry => schema::DELETE_ENTRY.to_owned(),
        }
    }
}

/// Workload in its form.
pub enum Prepared {
    /// Rows of the three tables, and how many files they are. The GUIDs' numbers are not known yet.
    Create {
        /// Number of files.
        files: usize,
        /// Values of the LFN table.
        lfns: Vec<Value>,
        /// Values of the GUID table.
        guids: Vec<Value>,
        /// PFN and storage element of two replicas each.
        pfns: Vec<(String, u16)>,
    },
    /// Directories: the first's number, their LFNs and those they are in.
    MakeDirectories(u64, Vec<Value>),
    /// LFNs, and the files that are there.
    LookUp(Vec<FileId>, Vec<String>),
    /// Anything else is as it is.
    Plain(Workload, Option<String>),
}

/// Returns an LFN as the tables have it: without the slash at its beginning.
fn relative(lfn: &str) -> String {
    lfn.trim_start_matches('/').to_owned()
}

/// The prefix of everything in a directory of runs, which is its own LFN as well.
fn run_prefix(name: &str) -> String {
    format!("data/{name}/")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sql<E: std::fmt::Display>(error: E) -> exacat_model::Error {
    while_doing("MariaDB")(error)
}

impl MariaSession {
    /// Over this connection.
    pub fn new(connection: Conn, form: Form, numbers: Arc<RwLock<Numbers>>) -> Self {
        MariaSession { connection, form, numbers, statements: HashMap::new() }
    }

    fn statement(&mut self, kind: Kind, rows: usize) -> Result<Statement> {
        if let Some(known) = self.statements.get(&(kind, rows)) {
            return Ok(known.clone());
        }
        let statement = self.connection.prep(kind.text(rows)).map_err(sql)?;
        self.statements.insert((kind, rows), statement.clone());
        Ok(statement)
    }

    fn change(&mut self, kind: Kind, rows: usize, params: Vec<Value>) -> Result<()> {
        let statement = self.statement(kind, rows)?;
        self.connection.exec_drop(&statement, Params::Positional(params)).map_err(sql)
    }

    fn rows(&mut self, kind: Kind, rows: usize, params: Vec<Value>) -> Result<Vec<Row>> {
        let statement = self.statement(kind, rows)?;
        self.connection.exec(&statement, Params::Positional(params)).map_err(sql)
    }

    /// GUIDs of one statement get numbers without a gap, and the server tells the first.
    fn insert_guids_and_pfns(
        &mut self,
        files: usize,
        guids: Vec<Value>,
        pfns: Vec<(String, u16)>,
    ) -> Result<()> {
        self.change(Kind::InsertGuids, files, guids)?;
        let first = self.connection.last_insert_id();
        let mut params = Vec::with_capacity(3 * pfns.len());
        let replicas = pfns.len();
        for (index, (pfn, se)) in pfns.into_iter().enumerate() {
            params.push(Value::UInt(first + index as u64 / 2));
            params.push(Value::Bytes(pfn.into_bytes()));
            params.push(Value::UInt(se.into()));
        }
        self.change(Kind::InsertPfns, replicas, params)
    }

    fn create(
        &mut self,
        files: usize,
        lfns: Vec<Value>,
        guids: Vec<Value>,
        pfns: Vec<(String, u16)>,
    ) -> Result<()> {
        let whole = files > 1 || self.form == ONE_TRANSACTION;
        if whole {
            self.connection.query_drop("START TRANSACTION").map_err(sql)?;
        }
        // JAliEn's order: the GUID, its replicas, the name.
        self.insert_guids_and_pfns(files, guids, pfns)?;
        self.change(Kind::InsertFiles, files, lfns)?;
        if whole {
            self.connection.query_drop("COMMIT").map_err(sql)?;
        }
        Ok(())
    }

    fn make_directories(&mut self, first: u64, params: Vec<Value>) -> Result<()> {
        let rows = params.len() / 2;
        self.change(Kind::InsertDirectories, rows, params)?;
        let first_id = self.connection.last_insert_id();
        let mut numbers = self.numbers.write();
        let end = first as usize + rows;
        if numbers.directories.len() < end {
            numbers.directories.resize(end, 0);
        }
        for place in 0..rows {
            numbers.directories[first as usize + place] = first_id + place as u64;
        }
        Ok(())
    }

    /// whereis as JAliEn does it: the LFN, its GUID, its replicas.
    fn look_up_in_steps(&mut self, file: FileId, lfn: &str) -> Result<()> {
        let named: Vec<Value> = vec![lfn.into(), lfn.into()];
        let found = self.rows(Kind::FindLfn, 1, named)?;
        let guid: Vec<u8> = column(found.first(), "guid")?;
        self.guid_in_steps(file, guid)
    }

    fn guid_in_steps(&mut self, file: FileId, guid: Vec<u8>) -> Result<()> {
        let found = self.rows(Kind::FindGuid, 1, vec![Value::Bytes(guid)])?;
        let (number, size): (u64, u64) = (column(found.first(), "guidId")?, column(found.first(), "size")?);
        let replicas = self.rows(Kind::FindPfns, 1, vec![number.into()])?;
        check(file, size, &replicas)
    }

    fn look_up_at_once(&mut self, files: Vec<FileId>, lfns: Vec<String>) -> Result<()> {
        let params = lfns.iter().map(|lfn| Value::from(lfn.as_str())).collect();
        let found = self.rows(Kind::JoinLfns, lfns.len(), params)?;
        if let ([file], [_]) = (files.as_slice(), lfns.as_slice()) {
            return check(*file, column(found.first(), "size")?, &found);
        }
        // Rows come in an order of the server's own: two for each file.
        let mut by_lfn: HashMap<String, Vec<Row>> = HashMap::with_capacity(files.len());
        for row in found {
            by_lfn.entry(column(Some(&row), "lfn")?).or_default().push(row);
        }
        for (file, lfn) in files.into_iter().zip(lfns) {
            let rows = by_lfn.get(&lfn).ok_or_else(|| failed(format!("{lfn} is gone")))?;
            check(file, column(rows.first(), "size")?, rows)?;
        }
        Ok(())
    }

    fn by_guid_at_once(&mut self, file: FileId) -> Result<()> {
        let found = self.rows(Kind::JoinGuid, 1, vec![Value::Bytes(file.guid().to_vec())])?;
        check(file, column(found.first(), "size")?, &found)
    }

    fn list(&mut self, directory: u64, files: u64) -> Result<()> {
        let number = self.numbers.read().directories.get(directory as usize).copied();
        let number = number.ok_or_else(|| failed(format!("directory {directory} is not made yet")))?;
        let statement = self.statement(Kind::List, 1)?;
        let mut listed = 0;
        let rows = self.connection.exec_iter(&statement, (number,)).map_err(sql)?;
        for row in rows {
            let row = row.map_err(sql)?;
            let _: String = column(Some(&row), "lfn")?;
            listed += 1;
        }
        if listed == files { Ok(()) } else { Err(failed(format!("{listed} of {files} are listed"))) }
    }

    fn usage(&mut self, run: u64, files: u64) -> Result<()> {
        let prefix = run_prefix(&tree::run_name(run));
        let found = self.rows(Kind::Usage, 1, vec![prefix.into()])?;
        let counted: u64 = column(found.first(), "files")?;
        if counted == files { Ok(()) } else { Err(failed(format!("{counted} of {files} are counted"))) }
    }

    /// One statement, atomic, whose time grows with what is below.
    fn rename_at_once(&mut self, from: &str, to: &str) -> Result<()> {
        let params = vec![to.into(), (from.len() as u64 + 1).into(), from.into()];
        self.change(Kind::RenameAll, 1, params)
    }

    /// As JAliEn: for each entry an insert under the new name and a delete of the old one, each on its own.
    fn rename_in_steps(&mut self, from: &str, to: &str) -> Result<()> {
        let found = self.rows(Kind::FindDirectory, 1, vec![from.into()])?;
        let root: u64 = column(found.first(), "entryId")?;
        let data = self.rows(Kind::FindDirectory, 1, vec!["data/".into()])?;
        let above: u64 = column(data.first(), "entryId")?;
        let mut waiting = vec![(root, self.copy_entry(root, to, above)?)];
        let mut emptied = vec![root];
        while let Some((old, new)) = waiting.pop() {
            for child in self.rows(Kind::Children, 1, vec![old.into()])? {
                let (number, lfn): (u64, String) =
                    (column(Some(&child), "entryId")?, column(Some(&child), "lfn")?);
                let kind: String = column(Some(&child), "type")?;
                let below = lfn.strip_prefix(from).ok_or_else(|| failed(format!("{lfn} is elsewhere")))?;
                let copy = self.copy_entry(number, &format!("{to}{below}"), new)?;
                if kind == "d" {
                    waiting.push((number, copy));
                    emptied.push(number);
                } else {
                    self.change(Kind::DeleteEntry, 1, vec![number.into()])?;
                }
            }
        }
        // Directories go last, the deepest first.
        emptied
            .into_iter()
            .rev()
            .try_for_each(|number| self.change(Kind::DeleteEntry, 1, vec![number.into()]))
    }

    fn copy_entry(&mut self, number: u64, lfn: &str, directory: u64) -> Result<u64> {
        self.change(Kind::CopyEntry, 1, vec![lfn.into(), directory.into(), number.into()])?;
        Ok(self.connection.last_insert_id())
    }

    /// Makes `/data` and the directories of runs.
    pub fn set_up(&mut self, runs: u64) -> Result<()> {
        let insert = |session: &mut Self, lfn: String, above: Value| {
            session.change(Kind::InsertDirectories, 1, vec![lfn.into(), above])?;
            Ok(session.connection.last_insert_id())
        };
        let data = insert(self, "data/".to_owned(), Value::NULL)?;
        let made = (0..runs)
            .map(|run| insert(self, run_prefix(&tree::run_name(run)), data.into()))
            .collect::<Result<_>>()?;
        self.numbers.write().runs = made;
        Ok(())
    }

    fn prepare_create(&self, files: &[FileId]) -> Result<Prepared> {
        let numbers = self.numbers.read();
        let (mut lfns, mut guids) =
            (Vec::with_capacity(8 * files.len()), Vec::with_capacity(6 * files.len()));
        let mut pfns = Vec::with_capacity(2 * files.len());
        for file in files {
            let directory = numbers.directories.get(file.directory as usize).copied();
            let directory = directory
                .filter(|number| *number != 0)
                .ok_or_else(|| failed(format!("directory {} is not made yet", file.directory)))?;
            let (guid, seconds) = (file.guid(), Value::UInt(file.created_ms() / 1000));
            let md5 = hex(&file.md5());
            let ses = file.ses();
            lfns.extend([
                relative(&file.lfn()).into(),
                seconds.clone(),
                hex(&guid[4..8]).into(),
                file.job().into(),
                file.size().into(),
                directory.into(),
                Value::Bytes(guid.to_vec()),
                md5.as_str().into(),
            ]);
            guids.extend([
                seconds,
                file.job().into(),
                format!(",{},{},", ses[0], ses[1]).into(),
                file.size().into(),
                Value::Bytes(guid.to_vec()),
                md5.into(),
            ]);
            let path = Guid(guid).storage_path();
            pfns.extend(ses.map(|se| (format!("{}{}", tree::se_prefix(se), path.as_str()), se)));
        }
        Ok(Prepared::Create { files: files.len(), lfns, guids, pfns })
    }
}

/// A column of a row that must be there.
fn column<T: mysql::prelude::FromValue>(row: Option<&Row>, name: &str) -> Result<T> {
    let value = row.and_then(|row| row.get_opt(name));
    value.ok_or_else(|| failed(format!("MariaDB gave no {name}")))?.map_err(sql)
}

/// Two replicas, on the right storage elements, of the right size.
fn check(file: FileId, size: u64, replicas: &[Row]) -> Result<()> {
    let mut ses = Vec::with_capacity(replicas.len());
    for row in replicas {
        let pfn: String = column(Some(row), "pfn")?;
        let se: u16 = column(Some(row), "seNumber")?;
        if !pfn.starts_with("root://") {
            return Err(failed(format!("{} has a replica at {pfn}", file.lfn())));
        }
        ses.push(se);
    }
    let mut expected = file.ses();
    expected.sort_unstable();
    ses.sort_unstable();
    if size == file.size() && ses == expected {
        return Ok(());
    }
    Err(failed(format!("{} is found, but has {size} bytes on {ses:?}", file.lfn())))
}

impl Session for MariaSession {
    type Prepared = Prepared;

    fn prepare(&self, work: &Workload) -> Result<Prepared> {
        Ok(match work {
            Workload::MakeDirectories(directories) => {
                let numbers = self.numbers.read();
                let mut params = Vec::new();
                for directory in directories.clone() {
                    let run = numbers.runs.get(tree::run_of(directory) as usize).copied();
                    let run = run.ok_or_else(|| failed("a directory of runs is not made yet"))?;
                    params.push(format!("{}/", relative(&tree::directory_path(directory))).into());
                    params.push(run.into());
                }
                Prepared::MakeDirectories(directories.start, params)
            }
            Workload::Create(files) => self.prepare_create(files)?,
            Workload::LookUp(files) => {
                Prepared::LookUp(files.clone(), files.iter().map(|file| relative(&file.lfn())).collect())
            }
            Workload::Miss(file) => Prepared::Plain(work.clone(), Some(relative(&file.lfn()))),
            other => Prepared::Plain(other.clone(), None),
        })
    }

    async fn perform(&mut self, prepared: Prepared) -> Result<()> {
        let in_steps = self.form == AS_JALIEN;
        match prepared {
            Prepared::Create { files, lfns, guids, pfns } => self.create(files, lfns, guids, pfns),
            Prepared::MakeDirectories(first, params) => self.make_directories(first, params),
            Prepared::LookUp(files, lfns) => match (files.as_slice(), lfns.as_slice()) {
                ([file], [lfn]) if in_steps => self.look_up_in_steps(*file, lfn),
                _ => self.look_up_at_once(files, lfns),
            },
            Prepared::Plain(Workload::ByGuid(file), _) if in_steps => {
                self.guid_in_steps(file, file.guid().to_vec())
            }
            Prepared::Plain(Workload::ByGuid(file), _) => self.by_guid_at_once(file),
            Prepared::Plain(Workload::Miss(_), Some(lfn)) => {
                let found = self.rows(Kind::FindLfn, 1, vec![lfn.as_str().into(), lfn.as_str().into()])?;
                if found.is_empty() { Ok(()) } else { Err(failed(format!("{lfn} is found"))) }
            }
            Prepared::Plain(Workload::List { directory, files }, _) => self.list(directory, files),
            Prepared::Plain(Workload::Usage { run, files }, _) => self.usage(run, files),
            Prepared::Plain(Workload::Rename { run, back }, _) => {
                let (plain, moved) =
                    (run_prefix(&tree::run_name(run)), run_prefix(&tree::run_name_moved(run)));
                let (from, to) = if back { (moved, plain) } else { (plain, moved) };
                if in_steps { self.rename_in_steps(&from, &to) } else { self.rename_at_once(&from, &to) }
            }
            Prepared::Plain(other, _) => Err(failed(format!("not prepared: {other:?}"))),
        }
    }
}

/// Runs statements that give nothing.
pub fn run(connection: &mut Conn, statements: &[&str]) -> Result<()> {
    statements.iter().try_for_each(|statement| connection.query_drop(statement).map_err(sql))
}

/// A figure of the server's own.
pub fn figure(connection: &mut Conn, name: &str) -> Result<u64> {
    // Not a statement that can be prepared; the names are the bench's own.
    let found: Option<(String, u64)> =
        connection.query_first(format!("SHOW GLOBAL STATUS LIKE '{name}'")).map_err(sql)?;
    found.map(|(_, value)| value).ok_or_else(|| failed(format!("MariaDB has no {name}")))
}

/// The server's version.
pub fn version(connection: &mut Conn) -> Result<String> {
    let found: Option<String> = connection.query_first("SELECT VERSION()").map_err(sql)?;
    found.ok_or_else(|| failed("MariaDB has no version"))
}

/// Does it look LFNs up by the index? A table that is read as a whole would measure something else.
pub fn uses_the_index(connection: &mut Conn, lfn: &str) -> Result<bool> {
    let asked = schema::join_lfns(1).replace('?', &format!("'{}'", relative(lfn)));
    let steps: Vec<Row> = connection.query(format!("EXPLAIN {asked}")).map_err(sql)?;
    let mut whole_tables = 0;
    for step in &steps {
        let kind: Option<String> = column(Some(step), "type")?;
        whole_tables += usize::from(matches!(kind.as_deref(), Some("ALL" | "index")));
    }
    Ok(whole_tables == 0 && !steps.is_empty())
}
