//! The one task that lets time pass, and gives outputs of the producer to connections and callers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use exacat_wire::writer::{Frame, ServiceId, chunk_header, encode};
use exacat_writer::{Event, ProducerOutput};
use tokio::task::{AbortHandle, JoinSet};

use crate::connection::{Connection, serve};
use crate::outgoing::Outgoing;
use crate::shared::Shared;

/// Outputs that are taken under one lock of the producer.
const OUTPUTS_AT_ONCE: usize = 64;
/// Shortest and longest time between two looks at the clock.
const TICKS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

struct Link {
    outgoing: Arc<Outgoing>,
    task: AbortHandle,
}

struct Driver {
    shared: Arc<Shared>,
    links: HashMap<u64, Link>,
    tasks: JoinSet<()>,
    outputs: Vec<ProducerOutput>,
}

/// Drives a writer until its runtime ends.
pub(crate) async fn drive(shared: Arc<Shared>) {
    let mut driver = Driver {
        shared,
        links: HashMap::new(),
        tasks: JoinSet::new(),
        outputs: Vec::with_capacity(OUTPUTS_AT_ONCE),
    };
    let tick = (driver.shared.settings.linger / 2).clamp(TICKS[0], TICKS[1]);
    let mut next = Instant::now();
    loop {
        driver.distribute();
        let is_idle = driver.shared.streams.lock().is_empty() && driver.shared.memory.files() == 0;
        tokio::select! {
            () = driver.shared.wake.notified() => {}
            () = tokio::time::sleep_until(next.into()) => {}
            Some(_) = driver.tasks.join_next() => {}
        }
        // Also under load, where the wake comes always first.
        let now = Instant::now();
        if now >= next {
            driver.tick();
            next = now + if is_idle { TICKS[1] } else { tick };
        }
    }
}

impl Driver {
    fn tick(&mut self) {
        let now = self.shared.now();
        for stream in self.shared.all_streams() {
            let mut packer = stream.packer.lock();
            packer.tick(now);
            self.shared.hand_over(&stream, &mut packer);
        }
        self.shared.producer.lock().tick(now);
    }

    /// Gives away all outputs.
    fn distribute(&mut self) {
        loop {
            let mut outputs = std::mem::take(&mut self.outputs);
            {
                let mut producer = self.shared.producer.lock();
                while outputs.len() < OUTPUTS_AT_ONCE
                    && let Some(output) = producer.next_output()
                {
                    outputs.push(output);
                }
            }
            let is_last = outputs.len() < OUTPUTS_AT_ONCE;
            outputs.drain(..).for_each(|output| self.give(output));
            self.outputs = outputs;
            if is_last {
                return;
            }
        }
    }

    fn give(&mut self, output: ProducerOutput) {
        match output {
            ProducerOutput::Connect(number, service) => self.connect(number, service),
            ProducerOutput::Send(number, frame) => self.send(number, &frame),
            ProducerOutput::SendChunk(number, head, bytes) => {
                if let Some(link) = self.links.get(&number) {
                    link.outgoing.push([Bytes::copy_from_slice(&chunk_header(&head)), bytes]);
                }
            }
            ProducerOutput::End(number) => {
                if let Some(link) = self.links.remove(&number) {
                    link.task.abort();
                }
            }
            ProducerOutput::News(event) => self.tell(event),
        }
    }

    fn connect(&mut self, number: u64, service: ServiceId) {
        let of_table = self.shared.producer.lock().address(service).filter(|address| !address.is_empty());
        let of_seed = self.shared.seeds.lock().get(&service).cloned();
        let mut addresses: Vec<String> = of_table.into_iter().chain(of_seed).collect();
        addresses.dedup();
        let outgoing = Arc::new(Outgoing::default());
        let connection = Connection { number, addresses, outgoing: outgoing.clone() };
        let task = self.tasks.spawn(serve(self.shared.clone(), connection));
        self.links.insert(number, Link { outgoing, task });
    }

    fn send(&mut self, number: u64, frame: &Frame) {
        if let Some(link) = self.links.get(&number) {
            let mut bytes = Vec::new();
            encode(&mut bytes, frame);
            link.outgoing.push([Bytes::from(bytes)]);
        }
    }

    fn tell(&self, event: Event) {
        let number = match &event {
            Event::Settled(number, _) | Event::File(number, _, _) => *number,
            Event::Durable(..) => return,
        };
        let Some(stream) = self.shared.streams.lock().get(&number).cloned() else { return };
        let mut progress = stream.progress.lock();
        match event {
            Event::Settled(_, settled) => {
                progress.settled = settled;
                let (now, mut latencies) = (Instant::now(), self.shared.latencies.lock());
                while let Some(latency) = progress.next_latency(now) {
                    latencies.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
                }
            }
            Event::File(_, file, closed) => progress.file_ended(file, closed),
            Event::Durable(..) => {}
        }
        drop(progress);
        stream.changed.notify_all();
        self.shared.forget_ended(&stream);
    }
}
