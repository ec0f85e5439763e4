//! A client of PostgreSQL: a `psql` process that copies batches, each a transaction of its own.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::Client;
use crate::reads::Read;
use crate::rows::Rows;

/// A session of `psql`.
pub(crate) struct Sql {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// Line that ends an answer.
const END: &str = "--- end";

impl Sql {
    /// Connects to the database `bench` of the user postgres.
    pub(crate) fn connect(address: &str) -> Self {
        let (host, port) = address.split_once(':').unwrap_or_else(|| panic!("--sql HOST:PORT"));
        let mut child = Command::new("psql")
            .args([
                "-X",
                "-q",
                "-A",
                "-t",
                "-v",
                "ON_ERROR_STOP=1",
                "-h",
                host,
                "-p",
                port,
                "-U",
                "postgres",
                "bench",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Sql { child, input, output }
    }

    /// Returns the lines up to the end of the answer.
    fn lines(&mut self) -> u64 {
        let (mut count, mut line) = (0, String::new());
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "psql ended");
            if line.trim_end() == END {
                return count;
            }
            count += 1;
        }
    }
}

impl Client for Sql {
    fn put(&self, rows: &Rows, batch: &[(u64, u64)], out: &mut Vec<u8>) {
        out.extend_from_slice(b"COPY ev FROM STDIN;\n");
        for (element, step) in batch {
            rows.put_copied(out, *element, *step);
        }
        writeln!(out, "\\.\n\\echo '{END}'").unwrap();
    }

    fn send(&mut self, body: &[u8]) -> bool {
        self.input.write_all(body).unwrap();
        self.input.flush().unwrap();
        self.lines();
        true
    }

    fn read(&mut self, read: &Read) -> u64 {
        let question = match *read {
            Read::Latest { element } => {
                format!("SELECT t, v FROM ev WHERE e = {element} ORDER BY t DESC LIMIT 1;")
            }
            Read::Range { element, from_ms, to_ms } => {
                format!(
                    "SELECT t, v FROM ev WHERE e = {element} AND t BETWEEN {from_ms} AND {to_ms} ORDER BY t;"
                )
            }
        };
        writeln!(self.input, "{question}\n\\echo '{END}'").unwrap();
        self.input.flush().unwrap();
        self.lines()
    }
}

impl Drop for Sql {
    fn drop(&mut self) {
        let _ended = writeln!(self.input, "\\q");
        let _ended = self.input.flush();
        let _ended = self.child.wait();
    }
}
