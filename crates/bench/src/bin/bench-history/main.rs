//! `make bench-history`: values of elements a second, durable, and the time of reads beside them.
//!
//! ```text
//! bench-history --url http://127.0.0.1:8086 [--pid PID] [--reader rest|influx|victoria] [options]
//! bench-history --sql HOST:PORT [--pid PID] [options]
//! bench-history --in-process DIRECTORY [options]
//! ```
//!
//! | option | default | meaning |
//! |---|---|---|
//! | `--elements N` | 10000 | elements; those of all clients together |
//! | `--rows N` | 3000000 | rows in all |
//! | `--batch N` | 1000 | rows of a request |
//! | `--connections N` | 50 | clients, each with one request at a time |
//! | `--span SECONDS` | 3600 | time from the first to the last row of an element |
//! | `--marks N,N` | elements, rows | rows after which figures are shown |
//! | `--reads N` | 0 | reads of a latest value, and of 300 rows, at each mark |
//! | `--partition` | | each client has a group and elements of its own |
//! | `--steady SECONDS` | | rows at a fixed rate instead, at the time of now, with readers beside |
//! | `--rate N` | 150000 | rows a second of a steady run |
//! | `--json` | | one JSON document a line |
//!
//! The same generator drives any server that takes InfluxDB's line protocol at `/write`, and PostgreSQL
//! through `psql`. Values are those of a detector: half random walks, then noise of a converter, counters,
//! states, and numbers with all their bits.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program for those who work on this, which tells figures"
)]

mod figures;
mod fill;
mod http;
mod reads;
mod rows;
mod sql;
mod steady;
mod within;

use std::path::PathBuf;

use crate::http::Http;
use crate::reads::{Read, Reader};
use crate::rows::Rows;
use crate::sql::Sql;
use crate::within::Within;

/// Options of the command line.
#[derive(Clone, Debug)]
struct Asked {
    url: Option<String>,
    sql: Option<String>,
    in_process: Option<PathBuf>,
    reader: Reader,
    pid: Option<u32>,
    elements: u64,
    rows: u64,
    batch: u64,
    connections: u64,
    span_s: u64,
    marks: Vec<u64>,
    reads: u64,
    partition: bool,
    steady_s: u64,
    rate: u64,
    json: bool,
}

fn asked() -> Asked {
    let mut asked = Asked {
        url: None,
        sql: None,
        in_process: None,
        reader: Reader::Influx,
        pid: None,
        elements: 10_000,
        rows: 3_000_000,
        batch: 1000,
        connections: 50,
        span_s: 3600,
        marks: Vec::new(),
        reads: 0,
        partition: false,
        steady_s: 0,
        rate: 150_000,
        json: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--json" => asked.json = true,
            "--partition" => asked.partition = true,
            _ => {
                let value = words.next().unwrap_or_else(|| panic!("{word} needs a value"));
                let number = || value.parse().unwrap_or_else(|_| panic!("{word} needs a number"));
                match word.as_str() {
                    "--url" => asked.url = Some(value),
                    "--sql" => asked.sql = Some(value),
                    "--in-process" => asked.in_process = Some(value.into()),
                    "--reader" => asked.reader = Reader::named(&value),
                    "--pid" => asked.pid = Some(number() as u32),
                    "--elements" => asked.elements = number(),
                    "--rows" => asked.rows = number(),
                    "--batch" => asked.batch = number(),
                    "--connections" => asked.connections = number(),
                    "--span" => asked.span_s = number(),
                    "--marks" => asked.marks = value.split(',').map(|mark| mark.parse().unwrap()).collect(),
                    "--reads" => asked.reads = number(),
                    "--steady" => asked.steady_s = number(),
                    "--rate" => asked.rate = number(),
                    _ => panic!("unknown option {word}"),
                }
            }
        }
    }
    asked
}

/// Client of a server: sends batches of rows, and reads.
trait Client: Send {
    /// Writes a batch in the form that the server takes.
    fn put(&self, rows: &Rows, batch: &[(u64, u64)], out: &mut Vec<u8>);

    /// Sends a batch; false if the server is busy.
    fn send(&mut self, body: &[u8]) -> bool;

    /// Makes what was written visible, where an answer does not say that it is.
    fn settle(&mut self) {}

    /// Reads, and returns the number of rows.
    fn read(&mut self, read: &Read) -> u64;
}

/// Makes the client of a connection.
type Connect<'a> = &'a (dyn Fn(u64) -> Box<dyn Client> + Sync);

fn main() {
    let asked = asked();
    // A thread that ends in the middle would leave the others with figures that mean nothing.
    let shows = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        shows(panic);
        std::process::exit(101);
    }));
    let group = |connection: u64| match asked.partition {
        true => format!("bench{connection}"),
        false => "bench".to_owned(),
    };
    let groups = if asked.partition { asked.connections } else { 1 };
    if let Some(directory) = &asked.in_process {
        let within = Within::open(directory.clone(), asked.span_s);
        run(&asked, &|_| Box::new(within.clone()));
        println!("flush of the rest {:.2} s", within.flush());
    } else if let Some(address) = &asked.sql {
        run(&asked, &|_| Box::new(Sql::connect(address)));
    } else {
        let url = asked.url.clone().unwrap_or_else(|| panic!("--url, --sql or --in-process is missing"));
        for number in 0..groups {
            Http::open(&url, asked.reader, group(number)).create();
        }
        run(&asked, &|connection| Box::new(Http::open(&url, asked.reader, group(connection))));
    }
}

fn run(asked: &Asked, connect: Connect<'_>) {
    if asked.steady_s > 0 { steady::run(asked, connect) } else { fill::run(asked, connect) }
}
