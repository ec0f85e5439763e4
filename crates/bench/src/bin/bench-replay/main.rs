//! Items that a replay service hands out, and results that it takes, a second: `make bench-replay`.
//!
//! ```text
//! bench-replay --url http://127.0.0.1:27790 --run NAME [--pid PID] [options]
//! ```
//!
//! | option | default | meaning |
//! |---|---|---|
//! | `--clients N` | 8 | agents, each with a kept connection and one request at a time |
//! | `--batch N` | 500 | items of a request, and results of one |
//! | `--items N` | all | items after which the agents stop asking |
//! | `--pid PID` | | process of the service, for its CPU time and memory |
//! | `--json` | | one JSON document |
//!
//! Agents read nothing: each item gets a result at once, with times that vary. The run must be running, with
//! its items due. Results come back durable, each once, or the program fails.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program for those who work on this, which tells figures"
)]

mod agent;

use std::sync::atomic::AtomicU64;
use std::time::Instant;

use exacat_bench::process::{own_cpu_s, process_cpu_s, process_memory_bytes};
use hdrhistogram::Histogram;

use crate::agent::{Agent, Taken};

/// Options of the command line.
#[derive(Clone, Debug)]
struct Asked {
    url: String,
    run: String,
    token: Option<String>,
    pid: Option<String>,
    clients: u64,
    batch: usize,
    items: u64,
    json: bool,
}

fn asked() -> Asked {
    let mut asked = Asked {
        url: String::new(),
        run: String::new(),
        token: std::env::var("EXACAT_TOKEN").ok(),
        pid: None,
        clients: 8,
        batch: 500,
        items: u64::MAX,
        json: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--json" {
            asked.json = true;
            continue;
        }
        let value = words.next().unwrap_or_else(|| panic!("{word} needs a value"));
        let number = || value.parse::<u64>().unwrap_or_else(|_| panic!("{word} needs a number"));
        match word.as_str() {
            "--url" => asked.url = value,
            "--run" => asked.run = value,
            "--pid" => asked.pid = Some(number().to_string()),
            "--clients" => asked.clients = number().max(1),
            "--batch" => asked.batch = number().max(1) as usize,
            "--items" => asked.items = number(),
            _ => panic!("unknown option {word}"),
        }
    }
    assert!(!asked.url.is_empty() && !asked.run.is_empty(), "--url and --run are needed");
    asked
}

fn main() {
    let asked = asked();
    // A thread that ends in the middle would leave the others with figures that mean nothing.
    let shows = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        shows(panic);
        std::process::exit(101);
    }));
    let agents: Vec<Agent> = (0..asked.clients).map(|number| Agent::connect(&asked, number)).collect();
    let left = AtomicU64::new(asked.items);
    let service = |asked: &Asked| asked.pid.as_deref().map_or(0.0, process_cpu_s);
    let (begun, own, of_service) = (Instant::now(), own_cpu_s(), service(&asked));
    let taken = std::thread::scope(|scope| {
        let threads: Vec<_> = agents.into_iter().map(|agent| scope.spawn(|| agent.work(&left))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).fold(Taken::default(), Taken::with)
    });
    let wall_s = begun.elapsed().as_secs_f64();
    show(&asked, &taken, [wall_s, own_cpu_s() - own, service(&asked) - of_service]);
}

fn show(asked: &Asked, taken: &Taken, [wall_s, own_s, service_s]: [f64; 3]) {
    let us = |seconds: f64| seconds * 1e6 / taken.items.max(1) as f64;
    let ms = |times: &Histogram<u64>, share: f64| times.value_at_quantile(share) as f64 / 1000.0;
    let memory = asked.pid.as_deref().map_or(0, process_memory_bytes) >> 20;
    let (handed, stored) = (&taken.item_times, &taken.result_times);
    if asked.json {
        let line = serde_json::json!({
            "items": taken.items, "wall_s": wall_s, "items_s": taken.items as f64 / wall_s,
            "service_us": us(service_s), "generator_us": us(own_s), "empty": taken.empty,
            "items_p50_ms": ms(handed, 0.5), "items_p99_ms": ms(handed, 0.99), "items_max_ms": ms(handed, 1.0),
            "results_p50_ms": ms(stored, 0.5), "results_p99_ms": ms(stored, 0.99),
            "results_max_ms": ms(stored, 1.0), "memory_mib": memory,
        });
        println!("{line}");
        return;
    }
    println!(
        "{:.0} items/s, service {:.1} us, generator {:.1} us, {memory} MiB, {} empty answers\n  \
         items p50 {:.1} p99 {:.1} max {:.1} ms, results p50 {:.1} p99 {:.1} max {:.1} ms",
        taken.items as f64 / wall_s,
        us(service_s),
        us(own_s),
        taken.empty,
        ms(handed, 0.5),
        ms(handed, 0.99),
        ms(handed, 1.0),
        ms(stored, 0.5),
        ms(stored, 0.99),
        ms(stored, 1.0)
    );
}
