//! MariaDB with the AliEn catalogue's tables, as JAliEn uses them: what a site has today.

mod schema;
mod server;
mod session;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_bench::process::{own_cpu_s, process_cpu_s};
use exacat_model::Result;
use parking_lot::{Mutex, RwLock};

use crate::disk::bytes_in;
use crate::peer::{Form, Measure, Peer, Session, Sizes, Workload, failed};
use crate::report::MARIADB;
use crate::served::CONNECTIONS;
use crate::tree::{FileId, Layout};
pub use server::Programs;
use server::{Server, ServerSettings};
use session::{AS_JALIEN, MariaSession, Numbers, ONE_STATEMENT, ONE_TRANSACTION};

/// Connections on which groups are sent.
const WRITERS: usize = 8;
/// The redo log.
const REDO_BYTES: u64 = 4 << 30;
/// Pages a second that it writes when it is to become quiet.
const QUIETING: [&str; 3] = [
    "SET GLOBAL innodb_io_capacity_max = 20000",
    "SET GLOBAL innodb_io_capacity = 20000",
    "SET GLOBAL innodb_max_dirty_pages_pct = 0",
];
/// And else.
const QUIET: [&str; 3] = [
    "SET GLOBAL innodb_max_dirty_pages_pct = 90",
    "SET GLOBAL innodb_io_capacity = 2000",
    "SET GLOBAL innodb_io_capacity_max = 4000",
];
/// Dirty pages that its own threads make again and again.
const DIRTY_PAGES_LEFT: u64 = 100;
/// Old row versions that it never takes away by itself.
const HISTORY_LEFT: u64 = 100;

/// MariaDB.
pub struct Maria {
    server: Server,
    programs: Programs,
    settings: ServerSettings,
    directory: PathBuf,
    numbers: Arc<RwLock<Numbers>>,
    /// For what is asked beside the load.
    control: Mutex<mysql::Conn>,
    version: String,
}

impl Maria {
    /// A new one in this directory.
    pub async fn start(programs: Programs, directory: &Path, buffer_pool_bytes: u64) -> Result<Maria> {
        let settings = ServerSettings { buffer_pool_bytes, redo_bytes: REDO_BYTES };
        let server = Server::start(&programs, directory, &settings).await?;
        session::run(&mut server.connect(None)?, &schema::TABLES)?;
        Maria::over(server, programs, settings, directory, Arc::default())
    }

    fn over(
        server: Server,
        programs: Programs,
        settings: ServerSettings,
        directory: &Path,
        numbers: Arc<RwLock<Numbers>>,
    ) -> Result<Maria> {
        let mut control = server.connect(Some(schema::DATABASE))?;
        let version = session::version(&mut control)?;
        let control = Mutex::new(control);
        Ok(Maria { server, programs, settings, directory: directory.to_owned(), numbers, control, version })
    }

    fn session(&self, form: Form) -> Result<MariaSession> {
        let connection = self.server.connect(Some(schema::DATABASE))?;
        Ok(MariaSession::new(connection, form, Arc::clone(&self.numbers)))
    }
}

impl Peer for Maria {
    type Session = MariaSession;
    const BLOCKING: bool = true;
    const IN_PROCESS: bool = false;

    fn name(&self) -> &'static str {
        MARIADB
    }

    fn settings(&self) -> Vec<String> {
        vec![
            format!(
                "{} with the AliEn tables (L, G, G_PFN; latin1, InnoDB), Unix socket, prepared statements, persistent connections: \
                 groups on {WRITERS}, all else on {CONNECTIONS}; unique keys check names and GUIDs, no permissions, no usage, no history",
                self.version
            ),
            self.settings.options().join(" "),
        ]
    }

    fn forms(&self, measure: Measure) -> &'static [Form] {
        match measure {
            Measure::CreateSingle => &[AS_JALIEN, ONE_TRANSACTION],
            Measure::LookUpHot | Measure::LookUpUniform | Measure::ByGuid => &[AS_JALIEN, ONE_STATEMENT],
            // The slow one gives directories new numbers: it comes last.
            Measure::Rename => &[ONE_STATEMENT, AS_JALIEN],
            _ => &[""],
        }
    }

    async fn set_up(&self, layout: &Layout) -> Result<()> {
        self.session("")?.set_up(layout.runs())
    }

    async fn sessions(&self, measure: Measure, form: Form) -> Result<Vec<MariaSession>> {
        let count = match measure {
            Measure::CreateGroups | Measure::MakeDirectories => WRITERS,
            Measure::Rename | Measure::Scan | Measure::Usage => 1,
            _ => CONNECTIONS,
        };
        if measure == Measure::LookUpHot {
            let mut control = self.control.lock();
            if !session::uses_the_index(&mut control, &FileId { directory: 0, number: 0 }.lfn())? {
                return Err(failed("MariaDB reads a whole table for a look-up: this would measure nothing"));
            }
        }
        (0..count).map(|_| self.session(form)).collect()
    }

    fn cpu_s(&self) -> f64 {
        own_cpu_s() + process_cpu_s(&self.server.pid().to_string())
    }

    async fn flush(&self) -> Result<()> {
        session::run(&mut self.control.lock(), &QUIETING)
    }

    async fn is_busy(&self) -> Result<bool> {
        let mut control = self.control.lock();
        let dirty = session::figure(&mut control, "Innodb_buffer_pool_pages_dirty")?;
        let history = session::figure(&mut control, "Innodb_history_list_length")?;
        Ok(dirty > DIRTY_PAGES_LEFT || history > HISTORY_LEFT)
    }

    fn is_quiet(&self) -> Result<()> {
        session::run(&mut self.control.lock(), &QUIET)
    }

    fn sizes(&self) -> Result<Sizes> {
        let data = self.directory.join("data");
        let table =
            |name: &str| name.strip_suffix(".ibd").is_some_and(|table| schema::TABLE_NAMES.contains(&table));
        Ok(Sizes {
            data: bytes_in(&data.join(schema::DATABASE), table)?,
            log: bytes_in(&data, |name| name.starts_with("ib_logfile"))?,
        })
    }

    fn notes(&self, measure: Measure) -> Vec<String> {
        match measure {
            Measure::Miss => vec!["a miss is one statement, in either way".to_owned()],
            _ => Vec::new(),
        }
    }

    async fn kill_and_open(self, file: FileId) -> Result<(Maria, Duration)> {
        let Maria { server, programs, settings, directory, numbers, control, .. } = self;
        drop(control);
        // SIGKILL, and waits for the end.
        drop(server);
        let start = Instant::now();
        let server = Server::start(&programs, &directory, &settings).await?;
        let maria = Maria::over(server, programs, settings, &directory, numbers)?;
        let mut session = maria.session(ONE_STATEMENT)?;
        let question = session.prepare(&Workload::LookUp(vec![file]))?;
        session.perform(question).await?;
        Ok((maria, start.elapsed()))
    }
}
