//! `writer produce`: a load of events, and what the services do with it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use exacat_writer::FileNames;
use exacat_writer_client::{Outcome, Stream, StreamSettings, Writer, WriterSettings};
use hdrhistogram::Histogram;
use serde::Serialize;
use utoipa::ToSchema;

use super::services;
use crate::args::{Connection, WriterProduceArgs};
use crate::failure::{Failure, say};
use crate::output::{Align, Out, Style, Table};
use crate::parse;

/// Bytes of the beginning of an event that says which it is.
const HEAD_BYTES: usize = 16;
/// Events between two looks at what all producers have done.
const CLAIM_EVENTS: u64 = 64;

/// Load of one producer.
#[derive(Clone)]
struct Load {
    producer: u16,
    streams: u16,
    smallest: u64,
    largest: u64,
    /// Time between two events of this producer.
    every: Option<Duration>,
    time: Option<Duration>,
    of: StreamSettings,
}

/// Events and bytes that may still be made, of all producers together.
struct Left {
    events: AtomicU64,
    bytes: AtomicU64,
}

impl Left {
    fn claim(from: &AtomicU64, wanted: u64) -> u64 {
        let taken =
            from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left - left.min(wanted)));
        taken.unwrap_or(0).min(wanted)
    }
}

/// Times in milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
#[schema(as = AnswerTimes)]
pub(crate) struct TimesView {
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

/// Result of a load, as JSON.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = ProducedLoad)]
pub(crate) struct ProducedView {
    events: u64,
    bytes: u64,
    /// From the first event, once all producers are connected, to the last certificate.
    seconds: f64,
    files: u64,
    certified: u64,
    failed: u64,
    /// Files whose outcome is not known.
    unknown: u64,
    /// Chunks that were durable at more than one service.
    duplicates: u64,
    /// Events that were not taken, for want of memory.
    shed: u64,
    ack_ms: TimesView,
    /// Longest time in which a producer could append nothing.
    stall_ms_max: f64,
    /// Most bytes of events that a producer held at once, summed over producers.
    memory_bytes_max: u64,
    /// Times that an address failed: a connection that was lost or could not be made.
    reconnects: u64,
}

/// `exacat writer produce`
pub(super) async fn produce(
    args: WriterProduceArgs,
    connection: &Connection,
    style: Style,
) -> Result<u8, Failure> {
    let settings = services::settings(&args.to, connection, "exacat writer produce")?;
    let produced = tokio::task::spawn_blocking(move || run(&args, &settings));
    let produced = produced.await.map_err(|error| Failure::local(error.to_string()))??;
    let mut out = Out::new(style);
    if style.json {
        out.json(&produced)?;
    } else {
        show(&mut out, &produced)?;
    }
    out.flush()?;
    if produced.failed > 0 {
        return Err(Failure::local(format!("{} of {} files failed", produced.failed, produced.files)));
    }
    match produced.unknown {
        0 => Ok(0),
        unknown => {
            let what =
                format!("{unknown} of {} files are not certified yet, and may still be", produced.files);
            Err(exacat_model::Error::new(exacat_model::ErrorKind::Unknown, what).into())
        }
    }
}

fn sizes(text: &str) -> Result<(u64, u64), Failure> {
    let size = |text: &str| parse::bytes(text).map_err(|error| Failure::local(format!("--size: {error}")));
    let (smallest, largest) = match text.split_once("..") {
        Some((smallest, largest)) => (size(smallest)?, size(largest)?),
        None => (size(text)?, size(text)?),
    };
    let max = exacat_writer::limits::EVENT_BYTES_MAX as u64;
    if smallest == 0 || smallest > largest || largest > max {
        return Err(Failure::local(format!("--size: 1 to {max} bytes, the smaller one first, not {text}")));
    }
    Ok((smallest, largest))
}

fn run(args: &WriterProduceArgs, settings: &WriterSettings) -> Result<ProducedView, Failure> {
    let (smallest, largest) = sizes(&args.size)?;
    let bytes = args.bytes.as_deref().map(parse::bytes).transpose()?;
    if args.events.is_none() && bytes.is_none() && args.seconds.is_none() {
        return Err(Failure::local("say how much: --events, --bytes or --seconds"));
    }
    let left = Arc::new(Left {
        events: AtomicU64::new(args.events.unwrap_or(u64::MAX)),
        bytes: AtomicU64::new(bytes.unwrap_or(u64::MAX)),
    });
    let producers = u64::from(args.producers);
    let every = args.rate.map(|rate| Duration::from_nanos(1_000_000_000 * producers / rate.max(1)));
    let time = args.seconds.map(Duration::from_secs);
    // Runs of this command have files of their own, also those of one millisecond.
    let run_id = format!("{}-{:04x}", parse::now().0, fastrand::u16(..));
    // All begin at once, when they are connected.
    let begin = Arc::new(Barrier::new(usize::from(args.producers) + 1));
    let threads: Vec<_> = (0..args.producers)
        .map(|producer| {
            let base = format!("{}/{}-{run_id}-{producer}", args.below.trim_end_matches('/'), args.to.run);
            let mut of = StreamSettings::new(args.to.run.as_str(), "", base);
            of.names = FileNames::Numbered(1);
            of.file_bytes_max = parse::bytes(&args.file_bytes)?;
            of.file_events_max = args.file_events.unwrap_or(u64::MAX);
            let load = Load { producer, streams: args.streams, smallest, largest, every, time, of };
            let (settings, left, begin) = (settings.clone(), Arc::clone(&left), Arc::clone(&begin));
            Ok(std::thread::spawn(move || load.run(settings, &left, &begin)))
        })
        .collect::<Result<_, Failure>>()?;
    begin.wait();
    let begun = Instant::now();
    let mut all = ProducedView::default();
    let mut acknowledged: Option<Histogram<u64>> = None;
    let mut fault = None;
    for thread in threads {
        match thread.join() {
            Ok(Ok((one, latencies))) => {
                all.add(&one);
                match &mut acknowledged {
                    Some(all) => all.add(&latencies).map_err(|error| Failure::local(error.to_string()))?,
                    None => acknowledged = Some(latencies),
                }
            }
            Ok(Err(error)) => fault = Some(error),
            Err(_) => fault = Some(Failure::local("a producer broke off")),
        }
    }
    if let Some(fault) = fault {
        return Err(fault);
    }
    all.seconds = begun.elapsed().as_secs_f64();
    let acknowledged = acknowledged.ok_or_else(|| Failure::local("there was no producer"))?;
    let ms = |share: f64| acknowledged.value_at_quantile(share) as f64 / 1000.0;
    all.ack_ms = TimesView { p50: ms(0.5), p99: ms(0.99), p999: ms(0.999), max: ms(1.0) };
    Ok(all)
}

impl ProducedView {
    fn add(&mut self, one: &ProducedView) {
        self.events += one.events;
        self.bytes += one.bytes;
        self.files += one.files;
        self.certified += one.certified;
        self.failed += one.failed;
        self.unknown += one.unknown;
        self.duplicates += one.duplicates;
        self.shed += one.shed;
        self.reconnects += one.reconnects;
        self.stall_ms_max = self.stall_ms_max.max(one.stall_ms_max);
        self.memory_bytes_max += one.memory_bytes_max;
    }
}

impl Load {
    fn run(
        self,
        mut settings: WriterSettings,
        left: &Left,
        begin: &Barrier,
    ) -> Result<(ProducedView, Histogram<u64>), Failure> {
        let failed = |error: exacat_writer_client::Error| Failure::local(error.to_string());
        settings.name = format!("{} {}", settings.name, self.producer);
        settings.prepare_memory = true;
        let connected = Writer::connect(settings);
        // One that failed as well: the others wait for it.
        begin.wait();
        let writer = connected.map_err(failed)?;
        let mut streams = Vec::new();
        for stream in 0..self.streams {
            let mut of = self.of.clone();
            of.stream = format!("{}-{stream}", self.producer);
            of.lfn = format!("{}-{stream}", of.lfn);
            streams.push(writer.open_stream(of).map_err(failed)?);
        }
        let mut done = self.append(&streams, left)?;
        for stream in streams {
            for file in stream.close() {
                done.files += 1;
                match file.outcome {
                    Outcome::Certified { duplicates, .. } => {
                        done.certified += 1;
                        done.duplicates += duplicates;
                    }
                    Outcome::Failed { reason } => {
                        done.failed += 1;
                        say(&format!("exacat: {}: {reason}", file.lfn));
                    }
                    Outcome::Unknown { reason } => {
                        done.unknown += 1;
                        say(&format!("exacat: {}: unknown: {reason}", file.lfn));
                    }
                }
            }
        }
        let (status, latencies) = (writer.status(), writer.latencies());
        done.shed = status.shed.events;
        done.reconnects = status.troubles.len() as u64;
        done.memory_bytes_max = status.memory_peak as u64;
        writer.close();
        Ok((done, latencies))
    }

    /// Appends events, to the streams in turn.
    fn append(&self, streams: &[Stream], left: &Left) -> Result<ProducedView, Failure> {
        let mut done = ProducedView::default();
        let mut random = fastrand::Rng::with_seed(u64::from(self.producer));
        let pattern: Vec<u8> =
            (0..self.largest as usize + 256).map(|at| (at as u8).wrapping_mul(31)).collect();
        let mut event = pattern.clone();
        let mut numbers = vec![0_u64; streams.len()];
        let (mut claimed, begun) = (0, Instant::now());
        let until = self.time.map(|time| begun + time);
        for turn in 0_u64.. {
            if until.is_some_and(|until| Instant::now() >= until) {
                break;
            }
            if claimed == 0 {
                claimed = Left::claim(&left.events, CLAIM_EVENTS);
            }
            let size = self.size(&mut random);
            if claimed == 0 || Left::claim(&left.bytes, size) < size {
                break;
            }
            claimed -= 1;
            if let Some(every) = self.every {
                let due = begun + every * u32::try_from(turn).unwrap_or(u32::MAX);
                std::thread::park_timeout(due.saturating_duration_since(Instant::now()));
            }
            let at = (turn % streams.len() as u64) as usize;
            let from = (numbers[at] % 256) as usize;
            let bytes = &mut event[from..from + size as usize];
            if let Some(head) = bytes.first_chunk_mut::<HEAD_BYTES>() {
                head[..4].copy_from_slice(&(size as u32).to_le_bytes());
                head[4..6].copy_from_slice(&self.producer.to_le_bytes());
                head[6..8].copy_from_slice(&(at as u16).to_le_bytes());
                head[8..].copy_from_slice(&numbers[at].to_le_bytes());
            }
            let asked = Instant::now();
            streams[at].append(bytes).map_err(|error| Failure::local(error.to_string()))?;
            done.stall_ms_max = done.stall_ms_max.max(asked.elapsed().as_secs_f64() * 1000.0);
            // The head belongs to this event alone.
            let end = from + HEAD_BYTES.min(size as usize);
            event[from..end].copy_from_slice(&pattern[from..end]);
            numbers[at] += 1;
            done.events += 1;
            done.bytes += size;
        }
        Ok(done)
    }

    fn size(&self, random: &mut fastrand::Rng) -> u64 {
        if self.smallest == self.largest {
            return self.smallest;
        }
        // Each power of two as often.
        let (low, high) = ((self.smallest as f64).ln(), (self.largest as f64).ln());
        ((low + random.f64() * (high - low)).exp() as u64).clamp(self.smallest, self.largest)
    }
}

fn show(out: &mut Out, produced: &ProducedView) -> Result<(), Failure> {
    let seconds = produced.seconds.max(f64::MIN_POSITIVE);
    let times = produced.ack_ms;
    let mut table = Table::new([Align::Left, Align::Left]);
    let mut row = |name: &str, text: String| table.row([name.to_owned(), text]);
    row(
        "events",
        format!("{} in {:.1} s, {:.0} a second", produced.events, seconds, produced.events as f64 / seconds),
    );
    row(
        "bytes",
        format!(
            "{}, {:.1} MB a second",
            out.size(produced.bytes.into()),
            produced.bytes as f64 / seconds / 1e6
        ),
    );
    row(
        "files",
        format!(
            "{}: {} certified, {} failed, {} unknown",
            produced.files, produced.certified, produced.failed, produced.unknown
        ),
    );
    row(
        "acknowledged after",
        format!("{:.1} ms (p50), {:.1} ms (p99), {:.1} ms at most", times.p50, times.p99, times.max),
    );
    row("longest stall", format!("{:.1} ms", produced.stall_ms_max));
    row("memory for events", out.size(produced.memory_bytes_max.into()));
    row("chunks twice on disk", produced.duplicates.to_string());
    row("events shed", produced.shed.to_string());
    row("connections lost", produced.reconnects.to_string());
    out.table(&table)
}
