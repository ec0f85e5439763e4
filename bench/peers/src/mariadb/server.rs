//! A MariaDB server of the bench's own: in a temporary directory, on a Unix socket, ended by its process.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use exacat_model::Result;
use mysql::{Conn, OptsBuilder};

use crate::peer::{failed, while_doing};

/// Debian's directory of programs outside of the path of ordinary users.
const SBIN: &str = "/usr/sbin";
/// Maximum time until it answers: after a kill it reads its log.
const START_WITHIN: Duration = Duration::from_secs(1800);
/// Interval of the attempts.
const START_EVERY: Duration = Duration::from_millis(10);
/// Last lines of its output that are shown when it does not start.
const LAST_LINES: usize = 5;

/// The programs of MariaDB that are needed, found.
#[derive(Clone, Debug)]
pub struct Programs {
    server: PathBuf,
    install: PathBuf,
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.push(SBIN.into());
    places.into_iter().map(|place| place.join(name)).find(|program| program.is_file())
}

impl Programs {
    /// None if one is missing.
    pub fn find() -> Option<Programs> {
        // What installs it asks for this one, and Debian has it in another package.
        find("my_print_defaults")?;
        Some(Programs { server: find("mariadbd")?, install: find("mariadb-install-db")? })
    }
}

/// Settings of the server.
#[derive(Clone, Copy, Debug)]
pub struct ServerSettings {
    /// Memory for pages.
    pub buffer_pool_bytes: u64,
    /// The redo log.
    pub redo_bytes: u64,
}

impl ServerSettings {
    /// As options of the server.
    pub fn options(&self) -> Vec<String> {
        let mut options: Vec<String> = [
            "innodb_flush_method=O_DIRECT",
            "innodb_flush_log_at_trx_commit=1",
            "innodb_io_capacity=2000",
            "innodb_autoinc_lock_mode=2",
            "skip-log-bin",
            "query_cache_type=0",
            "performance_schema=OFF",
            "max_connections=300",
        ]
        .map(str::to_owned)
        .to_vec();
        options.push(format!("innodb_buffer_pool_size={}", self.buffer_pool_bytes));
        options.push(format!("innodb_log_file_size={}", self.redo_bytes));
        options
    }
}

/// The running server; ends with it, without warning.
pub struct Server {
    child: Child,
    directory: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ended already, if it ended by itself; an error says just that.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Is this process root? MariaDB then wants to be told that it may be.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|about| about.uid() == 0)
}

impl Server {
    /// Starts it in `directory`, which may hold the data of one before, and waits until it answers.
    pub async fn start(programs: &Programs, directory: &Path, settings: &ServerSettings) -> Result<Server> {
        let data = directory.join("data");
        if !data.exists() {
            install(programs, &data)?;
        }
        let doing = format!("cannot start {}", programs.server.display());
        let log = std::fs::File::create(directory.join("log")).map_err(while_doing(&doing))?;
        let mut command = Command::new(&programs.server);
        command
            .arg("--no-defaults")
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--socket={}", directory.join("socket").display()))
            .arg(format!("--pid-file={}", directory.join("pid").display()))
            .arg("--skip-networking")
            .args(settings.options().iter().map(|option| format!("--{option}")));
        if is_root() {
            command.arg("--user=root");
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(while_doing(&doing))?;
        let mut server = Server { child, directory: directory.to_owned() };
        let start = Instant::now();
        while let Err(error) = server.connect(None) {
            let ended = server.child.try_wait().map_err(while_doing(&doing))?;
            if ended.is_some() || start.elapsed() > START_WITHIN {
                return Err(failed(format!("{doing}: {error}\n{}", server.last_lines())));
            }
            tokio::time::sleep(START_EVERY).await;
        }
        Ok(server)
    }

    /// A connection that speaks the tables' character set, so that an LFN is compared by the index.
    pub fn connect(&self, database: Option<&str>) -> Result<Conn> {
        let socket = self.directory.join("socket").to_string_lossy().into_owned();
        let options = OptsBuilder::new()
            .socket(Some(socket))
            .user(Some("root"))
            .db_name(database)
            .init(vec!["SET NAMES latin1 COLLATE latin1_general_cs"]);
        Conn::new(options).map_err(while_doing("cannot connect to MariaDB"))
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn last_lines(&self) -> String {
        let log = std::fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
    }
}

fn install(programs: &Programs, data: &Path) -> Result<()> {
    let doing = format!("{} failed", programs.install.display());
    let mut command = Command::new(&programs.install);
    command
        .arg("--no-defaults")
        .arg(format!("--datadir={}", data.display()))
        .args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
    if is_root() {
        command.arg("--user=root");
    }
    let done = command.stdin(Stdio::null()).output().map_err(while_doing(&doing))?;
    if done.status.success() {
        return Ok(());
    }
    let said = [done.stdout, done.stderr].concat();
    Err(failed(format!("{doing}: {}", String::from_utf8_lossy(&said))))
}
