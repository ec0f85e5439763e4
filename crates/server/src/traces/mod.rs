//! Traces: a span for each sampled request, made from its states at its end, and sent to a collector of
//! OpenTelemetry. A request that is not sampled costs one draw.

mod context;
mod export;
mod span;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exacat_model::Result;
use tokio::sync::mpsc;

use crate::instruments::{Instruments, count};
use crate::phase::Phase;
use crate::randomness;
use crate::settings::TraceSettings;
pub(crate) use context::TraceContext;
use export::Exporter;
pub(crate) use span::EndedSpan;
use span::Span;
use tokio::sync::watch;

/// Most spans between the requests and the exporter. Further ones are lost, and counted.
const SPANS_WAITING_MAX: usize = 2048;

/// Takes ended requests for traces.
pub(crate) struct Traces {
    /// Requests without a trace of their client are sampled if their draw is below it.
    below: u64,
    seed: u64,
    draws: AtomicU64,
    spans: mpsc::Sender<Span>,
    instruments: Arc<Instruments>,
}

impl Traces {
    /// Starts the exporter, which ends with the server. Returns its task too.
    pub(crate) fn start(
        settings: &TraceSettings,
        instruments: Arc<Instruments>,
        phase: watch::Receiver<Phase>,
    ) -> Result<(Self, tokio::task::JoinHandle<()>)> {
        let exporter = Exporter::new(&settings.url, Arc::clone(&instruments))?;
        let (spans, waiting) = mpsc::channel(SPANS_WAITING_MAX);
        let traces = Traces::new(settings.ratio, spans, instruments)?;
        Ok((traces, tokio::spawn(exporter.run(waiting, phase))))
    }

    fn new(ratio: f64, spans: mpsc::Sender<Span>, instruments: Arc<Instruments>) -> Result<Self> {
        Ok(Traces {
            // All of them for 1: no draw reaches the largest number but one in 2^64.
            below: (ratio.clamp(0.0, 1.0) * u64::MAX as f64) as u64,
            seed: u64::from_le_bytes(randomness::bytes()?),
            draws: AtomicU64::new(0),
            spans,
            instruments,
        })
    }

    /// True if a request is sampled: as its client says, or by a draw.
    fn is_sampled(&self, context: Option<TraceContext>) -> bool {
        match context {
            Some(context) => context.is_sampled,
            None => {
                self.below > 0 && draw(self.seed, self.draws.fetch_add(1, Ordering::Relaxed)) <= self.below
            }
        }
    }

    /// Takes a request that ended now.
    pub(crate) fn ended(&self, ended: &EndedSpan<'_>) {
        if !self.is_sampled(ended.context) {
            return;
        }
        let sent = Span::of(ended).is_ok_and(|span| self.spans.try_send(span).is_ok());
        if !sent {
            count(&self.instruments.counts.trace_spans_lost);
        }
    }
}

/// Returns the draw of this number: the function SplitMix64, which spreads numbers evenly.
fn draw(seed: u64, number: u64) -> u64 {
    let mut mixed = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruments::OperationIndex;
    use exacat_activity::RequestState;
    use exacat_model::Operation;
    use std::time::Duration;

    fn traces(ratio: f64, room: usize) -> (Traces, mpsc::Receiver<Span>) {
        let (spans, waiting) = mpsc::channel(room);
        (Traces::new(ratio, spans, Arc::new(Instruments::new())).unwrap(), waiting)
    }

    fn ended(context: Option<TraceContext>) -> EndedSpan<'static> {
        EndedSpan {
            context,
            operation: OperationIndex::of(&Operation::Whoami),
            request: 7,
            items: 1,
            user: "alice",
            client: None,
            outcome: None,
            times: &[0; RequestState::COUNT],
            life: Duration::from_millis(1),
        }
    }

    /// Property: the ratio is that of requests whose client says nothing; what a client says counts.
    #[test]
    fn requests_are_sampled_by_ratio_unless_the_client_decides() {
        let said = |flag| TraceContext::parse(&format!("00-{}-{}-{flag}", "a".repeat(32), "b".repeat(16)));
        for (ratio, least, most) in [(0.0, 0, 0), (0.25, 2200, 2800), (1.0, 10_000, 10_000)] {
            let (traces, _waiting) = traces(ratio, 1);
            let sampled = (0..10_000).filter(|_| traces.is_sampled(None)).count();
            assert!((least..=most).contains(&sampled), "{ratio}: {sampled}");
            assert!(traces.is_sampled(said("01")) && !traces.is_sampled(said("00")));
        }
    }

    /// Property: a collector that takes nothing costs a bounded number of spans; the others are counted.
    #[test]
    fn spans_beyond_the_queue_are_lost_and_counted() {
        let (traces, mut waiting) = traces(1.0, 3);
        (0..5).for_each(|_| traces.ended(&ended(None)));
        assert_eq!(traces.instruments.counts.trace_spans_lost.load(Ordering::Relaxed), 2);
        assert_eq!(std::iter::from_fn(|| waiting.try_recv().ok()).count(), 3);
    }
}
