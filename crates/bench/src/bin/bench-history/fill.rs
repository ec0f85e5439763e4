//! Rows as fast as the server takes them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use exacat_bench::process::{own_cpu_s, process_memory_bytes, tree_cpu_s};
use parking_lot::Mutex;

use crate::figures::{Part, histogram, micros, show};
use crate::rows::{Rows, START_MS};
use crate::{Asked, Client, Connect, reads};

/// Pause before a batch that the server refused is sent again.
pub(crate) const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// Sends all rows, and shows figures at each mark.
pub(crate) fn run(asked: &Asked, connect: Connect<'_>) {
    assert!(!asked.partition || asked.reads == 0, "--reads are of one group, and --partition makes several");
    let steps = asked.rows.div_ceil(asked.elements).max(1);
    let rows = Rows { start_ms: START_MS, interval_us: asked.span_s * 1_000_000 / steps };
    let new = asked.elements.min(asked.rows);
    let marks = match asked.marks.as_slice() {
        [] => vec![("new elements".to_owned(), new), ("known elements".to_owned(), asked.rows)],
        marks => marks.iter().map(|mark| (format!("to {mark}"), *mark)).collect(),
    };
    let mut from = 0;
    for (what, to) in marks {
        let to = to.min(asked.rows);
        if from < to {
            let mut part = drive(asked, (&rows, from, to), connect);
            part.what = what;
            // Reads follow rows of whole steps only.
            if asked.reads > 0 && to >= asked.elements {
                let steps = to / asked.elements;
                let mut client = connect(0);
                let counts = (steps, asked.reads);
                part.reads = Some(reads::measure(&mut *client, &rows, asked.elements, counts));
            }
            show(asked, &part);
        }
        from = to.max(from);
    }
}

/// Sends rows from as many threads as there are connections.
fn drive(asked: &Asked, (rows, from, to): (&Rows, u64, u64), connect: Connect<'_>) -> Part {
    let next = AtomicU64::new(from);
    let times = Mutex::new(histogram());
    let refused = AtomicU64::new(0);
    let pid = asked.pid.map(|pid| pid.to_string());
    let clients: Vec<Box<dyn Client>> = (0..asked.connections).map(connect).collect();
    let (start, own) = (Instant::now(), own_cpu_s());
    let server = pid.as_deref().map_or(0.0, tree_cpu_s);
    std::thread::scope(|scope| {
        for (number, mut client) in (0..).zip(clients) {
            let (next, times, refused) = (&next, &times, &refused);
            scope.spawn(move || {
                let (mut body, mut batch, mut mine) = (Vec::new(), Vec::new(), histogram());
                // With elements of its own, a client has a row in as many as there are clients.
                let (stride, share) = match asked.partition {
                    true => (asked.connections, asked.elements / asked.connections),
                    false => (1, asked.elements),
                };
                let mut own_next = from / stride;
                loop {
                    let first = match asked.partition {
                        true => {
                            own_next += asked.batch;
                            own_next - asked.batch
                        }
                        false => next.fetch_add(asked.batch, Ordering::Relaxed),
                    };
                    let end = (first + asked.batch).min(to / stride);
                    if first >= end {
                        break;
                    }
                    let base = if asked.partition { number * share } else { 0 };
                    batch.clear();
                    batch.extend((first..end).map(|row| (base + row % share, row / share)));
                    body.clear();
                    client.put(rows, &batch, &mut body);
                    let begun = Instant::now();
                    while !client.send(&body) {
                        refused.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(BUSY_PAUSE);
                    }
                    mine.record(micros(begun.elapsed())).unwrap();
                }
                times.lock().add(mine).unwrap();
            });
        }
    });
    let wall_s = start.elapsed().as_secs_f64();
    let own = own_cpu_s() - own;
    let server = pid.as_deref().map_or(0.0, tree_cpu_s) - server;
    let (generator_s, server_s) = if asked.in_process.is_some() { (0.0, own) } else { (own, server) };
    Part {
        what: String::new(),
        rows: to - from,
        wall_s,
        generator_s,
        server_s,
        refused: refused.into_inner(),
        memory_bytes: pid.as_deref().map_or(0, process_memory_bytes),
        times: times.into_inner(),
        reads: None,
    }
}
