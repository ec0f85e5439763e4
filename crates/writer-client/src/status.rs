//! State of a writer, for people and for monitoring.

use std::time::Duration;

use exacat_wire::writer::ServiceRecord;
use exacat_writer::{Position, Uncertified};

use crate::shared::{Shared, add};

/// Times from a full chunk to its acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Number of chunks.
    pub count: u64,
    /// Half of them took no longer.
    pub p50: Duration,
    /// 99 of 100 took no longer.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
}

/// State of a writer.
#[derive(Clone, Debug)]
pub struct Status {
    /// Services that the writer knows, and whether it is connected to each.
    pub services: Vec<(ServiceRecord, bool)>,
    /// Files that are not certified, with the reasons.
    pub files: Vec<Uncertified>,
    /// Memory that is charged, and its bound.
    pub memory_bytes: (usize, usize),
    /// Most bytes of events that were held at once.
    pub memory_peak: usize,
    /// Everything that was appended.
    pub appended: Position,
    /// Everything that is durable, or else lost, from the begin of each stream on without a gap.
    pub settled: Position,
    /// Events of `settled` that are lost with files that failed.
    pub lost: Position,
    /// Everything that was refused because memory was full.
    pub shed: Position,
    /// Times to the acknowledgement, over the life of the writer.
    pub latencies: Latencies,
    /// Last failure of each address: what to look at when nothing moves.
    pub troubles: Vec<(String, String)>,
}

/// Returns the state of a writer.
pub(crate) fn status(shared: &Shared) -> Status {
    let (services, files) = {
        let producer = shared.producer.lock();
        let linked = producer.linked();
        let with_link = |record: ServiceRecord| {
            let is_linked = linked.contains(&record.service);
            (record, is_linked)
        };
        (producer.table().0.into_iter().map(with_link).collect(), producer.uncertified())
    };
    let latencies = {
        let histogram = shared.latencies.lock();
        let at = |quantile| Duration::from_micros(histogram.value_at_quantile(quantile));
        match histogram.len() {
            0 => Latencies::default(),
            count => {
                Latencies { count, p50: at(0.5), p99: at(0.99), max: Duration::from_micros(histogram.max()) }
            }
        }
    };
    let mut status = {
        let ended = shared.ended.lock();
        Status {
            services,
            files,
            memory_bytes: (shared.memory.used(), shared.memory.bytes_max()),
            memory_peak: shared.memory.peak(),
            appended: ended.appended,
            settled: ended.settled,
            lost: ended.lost,
            shed: ended.shed,
            latencies,
            troubles: shared.troubles(),
        }
    };
    for stream in shared.all_streams() {
        add(&mut status.appended, stream.packer.lock().appended());
        let settled = stream.progress.lock().settled;
        add(&mut status.settled, settled.through);
        add(&mut status.lost, settled.lost);
        add(&mut status.shed, stream.shed());
    }
    status
}
