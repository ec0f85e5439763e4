//! Output: an aligned table during the measurements, then the comparison with exacat; or JSON lines.

use std::io::Write;

use exacat_bench::rounded;
use exacat_model::Result;
use serde::Serialize;

use crate::measure::Measured;
use crate::peer::{Form, Measure, Sizes, while_doing};

/// The embedded engine, in process.
pub const ENGINE: &str = "exacat engine";
/// `exacat serve`, over its socket.
pub const SERVED: &str = "exacat served";
/// RocksDB, in process.
pub const ROCKSDB: &str = "RocksDB";
/// MariaDB, over its socket.
pub const MARIADB: &str = "MariaDB";

/// Whom each peer is compared with: what is reached the same way.
const COUNTERPARTS: [(&str, &str); 2] = [(ROCKSDB, ENGINE), (MARIADB, SERVED)];
/// CPU time is counted in ticks of 1/100 s: less than this says nothing.
const CPU_S_MIN: f64 = 0.1;

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The peer.
    pub peer: &'static str,
    /// The measurement.
    pub measure: Measure,
    /// In which way, if there is more than one.
    pub form: Form,
    /// Items done: files, look-ups, entries listed.
    pub items: u64,
    /// Calls they were done in.
    pub calls: u64,
    /// Wall time, seconds.
    pub wall_s: f64,
    /// CPU time of load generator and peer, without making the questions, seconds.
    pub cpu_s: f64,
    /// Single calls, microseconds.
    pub p50_us: f64,
    /// See `p50_us`.
    pub p99_us: f64,
    /// See `p50_us`.
    pub p999_us: f64,
    /// See `p50_us`.
    pub max_us: f64,
    /// Bytes on disk, of the measurement that is about them.
    pub sizes: Option<Sizes>,
}

impl Line {
    /// Makes the line of a measurement.
    pub fn new(peer: &'static str, measure: Measure, form: Form, measured: &Measured) -> Line {
        let latency = &measured.latency;
        let quantile = |quantile| latency.value_at_quantile(quantile) as f64 / 1e3;
        Line {
            peer,
            measure,
            form,
            items: measured.items,
            calls: latency.len(),
            wall_s: measured.wall.as_secs_f64(),
            cpu_s: measured.cpu_s,
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            max_us: latency.max() as f64 / 1e3,
            sizes: None,
        }
    }

    /// Makes the line of the bytes on disk of so many files.
    pub fn sized(peer: &'static str, files: u64, sizes: Sizes) -> Line {
        Line {
            peer,
            measure: Measure::Bytes,
            form: "",
            items: files,
            calls: 0,
            wall_s: 0.0,
            cpu_s: 0.0,
            p50_us: 0.0,
            p99_us: 0.0,
            p999_us: 0.0,
            max_us: 0.0,
            sizes: Some(sizes),
        }
    }

    /// Items a second of wall time.
    fn rate(&self) -> f64 {
        self.items as f64 / self.wall_s.max(1e-9)
    }

    /// CPU time per item, microseconds; none if too little was counted.
    fn cpu_us(&self) -> Option<f64> {
        (self.cpu_s >= CPU_S_MIN).then(|| self.cpu_s * 1e6 / self.items.max(1) as f64)
    }

    /// Bytes a file, without the log.
    fn bytes_each(&self) -> Option<f64> {
        self.sizes.map(|sizes| sizes.data as f64 / self.items.max(1) as f64)
    }

    fn what(&self) -> String {
        match self.form {
            "" => self.measure.name().to_owned(),
            form => format!("{}: {form}", self.measure.name()),
        }
    }
}

/// Factor by which exacat is better in one measurement; below 1 it is worse.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    /// The measurement.
    pub measure: Measure,
    /// exacat, as it was reached.
    pub ours: &'static str,
    /// Its way of doing it.
    pub our_form: Form,
    /// The peer.
    pub peer: &'static str,
    /// Its way of doing it.
    pub form: Form,
    /// Factor of items a second.
    pub rate: Option<f64>,
    /// Factor of CPU time.
    pub cpu: Option<f64>,
    /// Factor of the times of single calls.
    pub p50: Option<f64>,
    /// See `p50`.
    pub p99: Option<f64>,
    /// See `p50`.
    pub p999: Option<f64>,
    /// Factor of bytes on disk.
    pub bytes: Option<f64>,
}

impl Ratio {
    fn new(ours: &Line, theirs: &Line) -> Ratio {
        let times = |theirs: f64, ours: f64| (ours > 0.0).then(|| theirs / ours);
        let of = |theirs: Option<f64>, ours: Option<f64>| Some(theirs? / ours?);
        Ratio {
            measure: ours.measure,
            ours: ours.peer,
            our_form: ours.form,
            peer: theirs.peer,
            form: theirs.form,
            rate: (ours.wall_s > 0.0 && theirs.wall_s > 0.0).then(|| ours.rate() / theirs.rate()),
            cpu: of(theirs.cpu_us(), ours.cpu_us()),
            p50: times(theirs.p50_us, ours.p50_us),
            p99: times(theirs.p99_us, ours.p99_us),
            p999: times(theirs.p999_us, ours.p999_us),
            bytes: of(theirs.bytes_each(), ours.bytes_each()),
        }
    }
}

/// Compares every peer with exacat reached the same way; by more than one way, each of the peer's with our
/// first, and our others with the peer's fastest.
pub fn ratios(lines: &[Line]) -> Vec<Ratio> {
    let of = |peer: &str, measure: Measure| -> Vec<&Line> {
        lines.iter().filter(|line| line.peer == peer && line.measure == measure).collect()
    };
    let mut ratios = Vec::new();
    for (peer, counterpart) in COUNTERPARTS {
        let mut measures: Vec<Measure> =
            lines.iter().filter(|line| line.peer == peer).map(|line| line.measure).collect();
        measures.sort();
        measures.dedup();
        for measure in measures {
            let theirs = of(peer, measure);
            let mut ours = of(counterpart, measure);
            if ours.is_empty() && measure == Measure::Bytes {
                // What is served is kept by the same engine.
                ours = of(ENGINE, measure);
            }
            let Some((first, others)) = ours.split_first() else { continue };
            ratios.extend(theirs.iter().map(|line| Ratio::new(first, line)));
            let fastest = theirs.iter().max_by(|one, other| one.rate().total_cmp(&other.rate()));
            ratios.extend(others.iter().filter_map(|line| Some(Ratio::new(line, fastest?))));
        }
    }
    ratios
}

/// Destination of measurements.
pub struct Report<'o> {
    out: &'o mut (dyn Write + Send),
    json: bool,
    lines: Vec<Line>,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum JsonLine<'l> {
    Measured(&'l Line),
    Note { peer: &'l str, text: &'l str },
    Ratio(&'l Ratio),
}

impl<'o> Report<'o> {
    /// Prints to `out`, as JSON lines or for people.
    pub fn new(out: &'o mut (dyn Write + Send), json: bool) -> Self {
        Report { out, json, lines: Vec::new() }
    }

    fn print(&mut self, text: &str) -> Result<()> {
        writeln!(self.out, "{text}").and_then(|()| self.out.flush()).map_err(while_doing("cannot print"))
    }

    fn print_json(&mut self, line: &JsonLine<'_>) -> Result<()> {
        let text = serde_json::to_string(line).map_err(while_doing("cannot print"))?;
        self.print(&text)
    }

    /// Something in words about a peer, or (with an empty name) about the run.
    pub fn note(&mut self, peer: &str, text: &str) -> Result<()> {
        if self.json {
            return self.print_json(&JsonLine::Note { peer, text });
        }
        self.print(&if peer.is_empty() { text.to_owned() } else { format!("  {peer}: {text}") })
    }

    /// An empty line, for people.
    pub fn gap(&mut self) -> Result<()> {
        if self.json { Ok(()) } else { self.print("") }
    }

    /// The heads of the columns.
    pub fn head(&mut self) -> Result<()> {
        if self.json {
            return Ok(());
        }
        self.print(&format!(
            "\n{:<14} {:<66} {:>10} {:>11} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "who", "what", "items", "items/s", "CPU µs/it", "p50 µs", "p99 µs", "p99.9 µs", "max µs"
        ))
    }

    /// One line of the table.
    pub fn show(&mut self, line: Line) -> Result<()> {
        if self.json {
            self.print_json(&JsonLine::Measured(&line))?;
        } else if let Some(sizes) = line.sizes {
            let each = |bytes: u64| bytes as f64 / line.items.max(1) as f64;
            let text = format!(
                "{:<14} {:<66} {:>10} {:>11.1}   and {:.1} of log",
                line.peer,
                line.what(),
                line.items,
                each(sizes.data),
                each(sizes.log)
            );
            self.print(&text)?;
        } else {
            let text = format!(
                "{:<14} {:<66} {:>10} {:>11} {:>9} {:>9} {:>9} {:>9} {:>9}",
                line.peer,
                line.what(),
                line.items,
                rounded(line.rate()),
                line.cpu_us().map_or("-".to_owned(), |us| format!("{us:.2}")),
                micros(line.p50_us),
                micros(line.p99_us),
                micros(line.p999_us),
                micros(line.max_us)
            );
            self.print(&text)?;
        }
        self.lines.push(line);
        Ok(())
    }

    /// Prints the comparison of exacat in all measurements.
    pub fn compare(&mut self) -> Result<()> {
        let ratios = ratios(&self.lines);
        if self.json {
            return ratios.iter().try_for_each(|ratio| self.print_json(&JsonLine::Ratio(ratio)));
        }
        if ratios.is_empty() {
            return self.print("\nNothing to compare: exacat and a peer must have been measured.");
        }
        let mut pair = ("", "");
        for ratio in &ratios {
            if pair != (ratio.peer, ratio.ours) {
                pair = (ratio.peer, ratio.ours);
                self.print(&format!(
                    "\n{:<90} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
                    format!("how many times better than {} {} is (below 1: worse)", pair.0, pair.1),
                    "rate",
                    "CPU",
                    "p50",
                    "p99",
                    "p99.9",
                    "bytes"
                ))?;
            }
            let forms = match (ratio.our_form, ratio.form) {
                ("", "") => String::new(),
                (ours, "") => format!(": {ours}"),
                ("", theirs) => format!(": against {theirs}"),
                (ours, theirs) => format!(": {ours} against {theirs}"),
            };
            let columns: String = [ratio.rate, ratio.cpu, ratio.p50, ratio.p99, ratio.p999, ratio.bytes]
                .into_iter()
                .map(|times| format!(" {:>8}", times.map_or("-".to_owned(), times_better)))
                .collect();
            self.print(&format!("{:<90}{columns}", format!("{}{forms}", ratio.measure.name())))?;
        }
        Ok(())
    }
}

/// A call's time: short ones with a digit more.
fn micros(us: f64) -> String {
    if us < 100.0 { format!("{us:.1}") } else { format!("{us:.0}") }
}

/// Two digits are all that two runs have in common.
fn times_better(times: f64) -> String {
    if times >= 10.0 { format!("{times:.0}") } else { format!("{times:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(peer: &'static str, form: Form, wall_s: f64) -> Line {
        Line {
            form,
            items: 1000,
            wall_s,
            cpu_s: wall_s,
            p50_us: wall_s * 100.0,
            ..Line::sized(peer, 0, Sizes::default())
        }
    }

    fn look_up(mut line: Line) -> Line {
        line.measure = Measure::LookUpHot;
        line.sizes = None;
        line
    }

    /// Engines are compared with the engine, servers with the server: each of their forms with our first
    /// form, our others with their fastest; and a number above 1 is in exacat's favour.
    #[test]
    fn like_is_compared_with_like() {
        let lines = [
            look_up(line(ENGINE, "", 1.0)),
            look_up(line(SERVED, "", 2.0)),
            look_up(line(SERVED, "pipelined", 1.0)),
            look_up(line(ROCKSDB, "", 3.0)),
            look_up(line(MARIADB, "slow", 20.0)),
            look_up(line(MARIADB, "fast", 10.0)),
        ];
        let ratios = ratios(&lines);
        let seen: Vec<(&str, &str, &str, &str, f64)> = ratios
            .iter()
            .map(|ratio| {
                let rate = ratio.rate.unwrap();
                assert_eq!((ratio.cpu, ratio.p50), (Some(rate), Some(rate)));
                (ratio.ours, ratio.our_form, ratio.peer, ratio.form, rate)
            })
            .collect();
        assert_eq!(
            seen,
            [
                (ENGINE, "", ROCKSDB, "", 3.0),
                (SERVED, "", MARIADB, "slow", 10.0),
                (SERVED, "", MARIADB, "fast", 5.0),
                (SERVED, "pipelined", MARIADB, "fast", 10.0),
            ]
        );
    }

    /// Bytes of a server are those of its engine; what was counted too briefly is not compared.
    #[test]
    fn bytes_are_compared_with_the_engine() {
        let sized = |peer, data| Line::sized(peer, 10, Sizes { data, log: 5 });
        let ratios = ratios(&[sized(ENGINE, 600), sized(MARIADB, 6000)]);
        assert_eq!(ratios.len(), 1);
        assert_eq!((ratios[0].bytes, ratios[0].rate, ratios[0].cpu), (Some(10.0), None, None));
    }
}
