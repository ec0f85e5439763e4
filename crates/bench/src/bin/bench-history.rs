//! `make bench-history`: durable values a second, over HTTP in line protocol or in this process.
//!
//! ```text
//! bench-history --url http://127.0.0.1:8086 --pid PID [--elements 10000] [--rows 3000000]
//!     [--batch 1000] [--connections 50]
//! bench-history --in-process DIRECTORY [the same]
//! ```
//! The same generator drives any server that takes InfluxDB's line protocol at `/write?db=bench`. Values
//! are those of a detector: half random walks, then noise of a converter, counters, states, and numbers
//! with all their bits. The first hour has new elements only; each further hour has known ones.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program for those who work on this, which tells figures"
)]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use exacat_bench::process::{own_cpu_s, process_cpu_s};
use exacat_bench::scatter;
use exacat_history::{History, HistorySettings, Ingest, Refused};
use exacat_model::{GroupName, GroupSettings, TimeMs};
use exacat_wire::influx::Precision;
use hdrhistogram::Histogram;
use parking_lot::Mutex;

/// Time of the first row: 2025-11-13.
const START_MS: u64 = 1_763_000_000_000;
/// Longest wait for an answer.
const ANSWER_TIME: Duration = Duration::from_secs(120);

/// Options of the command line.
#[derive(Clone, Debug)]
struct Asked {
    url: Option<String>,
    in_process: Option<PathBuf>,
    pid: Option<u32>,
    elements: u64,
    rows: u64,
    batch: u64,
    connections: u64,
    json: bool,
}

fn asked() -> Asked {
    let mut asked = Asked {
        url: None,
        in_process: None,
        pid: None,
        elements: 10_000,
        rows: 3_000_000,
        batch: 1000,
        connections: 50,
        json: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--json" {
            asked.json = true;
            continue;
        }
        let value = words.next().unwrap_or_else(|| panic!("{word} needs a value"));
        let number = || value.parse().unwrap_or_else(|_| panic!("{word} needs a number"));
        match word.as_str() {
            "--url" => asked.url = Some(value),
            "--in-process" => asked.in_process = Some(value.into()),
            "--pid" => asked.pid = Some(number() as u32),
            "--elements" => asked.elements = number(),
            "--rows" => asked.rows = number(),
            "--batch" => asked.batch = number(),
            "--connections" => asked.connections = number(),
            _ => panic!("unknown option {word}"),
        }
    }
    asked
}

/// Writes the line of an element at a step.
fn put_line(out: &mut Vec<u8>, element: u64, step: u64, interval_ms: u64) {
    let random = scatter((element << 24) ^ step);
    let sub = ["hv", "lv", "gas", "temp"][(element % 4) as usize];
    let time = START_MS + step * interval_ms + element % interval_ms.max(1);
    let quality = u8::from(random.is_multiple_of(2000));
    write!(out, "ev,e=SYS1:dcs/det{}/{sub}/ch{element:06}.actual.vMon v=", element % 18).unwrap();
    let wrote = match element % 20 {
        // A random walk in steps of 0.01: the sum of few random bits is near enough.
        0..10 => write!(
            out,
            "{:.2}",
            800.0
                + element as f64 % 97.0
                + (0..8).map(|bit| scatter(element ^ (step >> bit) << 20) % 3).sum::<u64>() as f64 / 100.0
        ),
        10..13 => write!(out, "{}", 2048 + random % 16),
        13..16 => write!(out, "{}", step * 7 + element),
        16..18 => write!(out, "{}", (scatter(element ^ (step / 40)) % 4)),
        _ => write!(out, "{}", f64::from_bits(0x3fe0_0000_0000_0000 | random >> 12)),
    };
    wrote.unwrap();
    writeln!(out, ",q={quality}i {time}").unwrap();
}

/// Writes a batch: rows from `first` on, element by element, then the next step.
fn batch_of(out: &mut Vec<u8>, first: u64, asked: &Asked) {
    out.clear();
    let steps = asked.rows.div_ceil(asked.elements).max(1);
    let interval_ms = 3_600_000 / steps;
    for row in first..(first + asked.batch).min(asked.rows) {
        put_line(out, row % asked.elements, row / asked.elements, interval_ms);
    }
}

/// A connection that sends batches and waits for each answer.
struct Http {
    stream: TcpStream,
    host: String,
    answer: Vec<u8>,
}

impl Http {
    fn open(url: &str) -> Self {
        let host = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let stream = TcpStream::connect(&host).unwrap_or_else(|error| panic!("{host}: {error}"));
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(ANSWER_TIME)).unwrap();
        Http { stream, host, answer: vec![0; 4096] }
    }

    fn post(&mut self, path: &str, body: &[u8]) -> u16 {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n{}\r\n",
            self.host,
            body.len(),
            authorization()
        );
        self.stream.write_all(head.as_bytes()).unwrap();
        self.stream.write_all(body).unwrap();
        let mut have = 0;
        loop {
            let read = self.stream.read(&mut self.answer[have..]).unwrap();
            assert!(read > 0, "the server closed the connection");
            have += read;
            let text = String::from_utf8_lossy(&self.answer[..have]).into_owned();
            if let Some(end) = text.find("\r\n\r\n") {
                let length = text[..end].to_ascii_lowercase();
                let length =
                    length.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
                let length: usize = length.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
                if have >= end + 4 + length {
                    let status = text.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
                    assert!(status < 300 || status == 503, "{text}");
                    return status;
                }
            }
        }
    }
}

fn authorization() -> String {
    match std::env::var("EXACAT_TOKEN") {
        Ok(token) => format!("Authorization: Bearer {token}\r\n"),
        Err(_) => String::new(),
    }
}

/// Result of a part of the run.
struct Measured {
    what: String,
    rows: u64,
    wall_s: f64,
    generator_s: f64,
    server_s: f64,
    refused: u64,
    times: Histogram<u64>,
}

fn show(asked: &Asked, one: &Measured) {
    let rate = one.rows as f64 / one.wall_s;
    let us = |seconds: f64| seconds * 1e6 / one.rows as f64;
    let ms = |quantile| one.times.value_at_quantile(quantile) as f64 / 1000.0;
    if asked.json {
        println!(
            "{{\"what\":\"{}\",\"rows\":{},\"rows_s\":{rate:.0},\"server_us\":{:.3},\"generator_us\":{:.3},\"p50_ms\":{:.2},\
             \"p99_ms\":{:.2},\"max_ms\":{:.2},\"refused\":{}}}",
            one.what,
            one.rows,
            us(one.server_s),
            us(one.generator_s),
            ms(0.5),
            ms(0.99),
            ms(1.0),
            one.refused
        );
        return;
    }
    println!(
        "{:<34} {:>9.0} rows/s  server {:>5.2} us  generator {:>5.2} us  p50 {:>6.1} p99 {:>6.1} max {:>6.1} ms{}",
        one.what,
        rate,
        us(one.server_s),
        us(one.generator_s),
        ms(0.5),
        ms(0.99),
        ms(1.0),
        if one.refused > 0 { format!("  refused {}", one.refused) } else { String::new() }
    );
}

/// Sends a batch; false if the server was busy.
type Sending = Box<dyn FnMut(&[u8]) -> bool + Send>;

/// Sends the rows `from..to` by `send`, from as many threads as there are connections.
fn drive(
    asked: &Asked,
    what: &str,
    (from, to): (u64, u64),
    connect: &(dyn Fn() -> Sending + Sync),
) -> Measured {
    let next = AtomicU64::new(from);
    let times = Mutex::new(Histogram::<u64>::new(3).unwrap());
    let refused = AtomicU64::new(0);
    let pid = asked.pid.map(|pid| pid.to_string());
    let (start, own, server) = (Instant::now(), own_cpu_s(), pid.as_deref().map_or(0.0, process_cpu_s));
    std::thread::scope(|scope| {
        for _ in 0..asked.connections {
            scope.spawn(|| {
                let mut send = connect();
                let (mut body, mut mine) = (Vec::new(), Histogram::<u64>::new(3).unwrap());
                loop {
                    let first = next.fetch_add(asked.batch, Ordering::Relaxed);
                    if first >= to {
                        break;
                    }
                    batch_of(&mut body, first, asked);
                    let begun = Instant::now();
                    while !send(&body) {
                        refused.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    mine.record(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX)).unwrap();
                }
                times.lock().add(mine).unwrap();
            });
        }
    });
    let wall_s = start.elapsed().as_secs_f64();
    let own = own_cpu_s() - own;
    let server = pid.as_deref().map_or(0.0, process_cpu_s) - server;
    let (generator_s, server_s) = if asked.in_process.is_some() { (0.0, own) } else { (own, server) };
    let refused = refused.into_inner();
    Measured {
        what: what.to_owned(),
        rows: to - from,
        wall_s,
        generator_s,
        server_s,
        refused,
        times: times.into_inner(),
    }
}

fn main() {
    let asked = asked();
    let new = asked.elements.min(asked.rows);
    let parts = [("new elements", (0, new)), ("known elements", (new, asked.rows))];
    if let Some(directory) = asked.in_process.clone() {
        let now = Arc::new(|| TimeMs(START_MS + 7_200_000));
        let history = Arc::new(History::open(HistorySettings::new(directory, now)).unwrap());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let settings = GroupSettings {
            name: GroupName::parse("bench").unwrap(),
            owner: None,
            readers: Vec::new(),
            writers: Vec::new(),
            retention_days: 0,
            elements_max: 2_000_000,
            created: TimeMs(0),
        };
        let group = runtime.block_on(history.set_group(settings)).unwrap();
        for (what, range) in parts {
            let connect = || {
                let (history, group, handle) =
                    (Arc::clone(&history), Arc::clone(&group), runtime.handle().clone());
                Box::new(move |body: &[u8]| {
                    let mut ingest = Ingest::new(&group, (START_MS + 7_200_000) as i64 * 1_000_000);
                    let mut refused = Refused::default();
                    let place = ingest.lines(body, 0, Precision::Milliseconds, &mut refused);
                    let batch = ingest.finish();
                    assert_eq!((refused.message(u64::from(batch.count())), place), (None, body.len()));
                    handle.block_on(history.commit(batch)).is_ok()
                }) as Sending
            };
            if range.0 < range.1 {
                show(&asked, &drive(&asked, what, range, &connect));
            }
        }
        let begun = Instant::now();
        history.flush().unwrap();
        println!("flush of the rest {:.2} s", begun.elapsed().as_secs_f64());
        return;
    }
    let url = asked.url.clone().unwrap_or_else(|| panic!("--url or --in-process is missing"));
    Http::open(&url).post("/query?q=CREATE+DATABASE+%22bench%22", b"");
    for (what, range) in parts {
        let connect = || {
            let mut http = Http::open(&url);
            Box::new(move |body: &[u8]| http.post("/write?db=bench&precision=ms", body) != 503) as Sending
        };
        if range.0 < range.1 {
            show(&asked, &drive(&asked, what, range, &connect));
        }
    }
}
