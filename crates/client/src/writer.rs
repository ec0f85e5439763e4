//! The writer of a connection: puts what waits into as few frames and writes as possible.

use std::collections::VecDeque;
use std::sync::Arc;

use exacat_wire::native::{
    BatchWriter, RequestOptions, encode_cancel, encode_credit, encode_goodbye, encode_ping, encode_pong,
    encode_request,
};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::connection::{Command, Control, Life, Shared, remaining_ms};
use crate::pending::{Pending, Reply};
use crate::settings::limits::{QUEUE_CALLS_MAX, WRITE_BYTES};

type Small = (Arc<exacat_model::Operation>, Instant, Reply);

/// Writes until the connection ends, one way or the other.
pub(crate) async fn run<W: AsyncWrite + Unpin>(
    shared: Arc<Shared>,
    mut writer: W,
    mut queue: mpsc::Receiver<Command>,
) {
    let mut life = shared.life.subscribe();
    let mut taken = Taken::default();
    let written = tokio::select! {
        biased;
        _ = life.wait_for(|life| *life == Life::Closed) => Ok(()),
        written = write(&shared, &mut writer, &mut queue, &mut taken) => written,
    };
    shared.fail(match written {
        Err(error) => shared.lost(error),
        Ok(()) => shared.lost("it was closed"),
    });
    drop(writer);
    // What was taken off the queue and what is still in it was not sent, and those who wait for it are to know.
    let lose = |pending: Pending| {
        // It takes nothing any more: this tells them.
        shared.table.lock().register(shared.new_request(), pending, None);
    };
    taken.smalls.into_iter().for_each(|(_, _, reply)| lose(Pending::One(reply)));
    taken.commands.into_iter().for_each(|command| lose(command.pending()));
    queue.close();
    // To the end: whoever has a place in it may be about to take it.
    while let Some(command) = queue.recv().await {
        lose(command.pending());
    }
}

/// What was taken off the queue, and is not in the table of what is asked yet.
#[derive(Default)]
struct Taken {
    commands: VecDeque<Command>,
    smalls: VecDeque<Small>,
}

struct Output<'a, W> {
    shared: &'a Shared,
    writer: &'a mut W,
    buffer: Vec<u8>,
}

impl<W: AsyncWrite + Unpin> Output<'_, W> {
    async fn write(&mut self) -> std::io::Result<()> {
        if !self.buffer.is_empty() {
            self.writer.write_all(&self.buffer).await?;
            self.buffer.clear();
            // One long batch is no reason to keep its memory.
            self.buffer.shrink_to(2 * WRITE_BYTES);
            self.shared.note_sent();
        }
        Ok(())
    }

    async fn write_if_long(&mut self) -> std::io::Result<()> {
        if self.buffer.len() >= WRITE_BYTES { self.write().await } else { Ok(()) }
    }

    async fn write_now(&mut self) -> std::io::Result<()> {
        self.write().await?;
        self.writer.flush().await
    }
}

async fn write<W: AsyncWrite + Unpin>(
    shared: &Shared,
    writer: &mut W,
    queue: &mut mpsc::Receiver<Command>,
    taken: &mut Taken,
) -> std::io::Result<()> {
    let mut out = Output { shared, writer, buffer: Vec::new() };
    let Taken { commands, smalls } = taken;
    let mut received = Vec::new();
    let mut queue_open = true;
    let period = shared.ping_after / 2;
    let mut tick = interval_at(Instant::now() + period, period);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pings = 0;
    loop {
        tokio::select! {
            count = queue.recv_many(&mut received, QUEUE_CALLS_MAX), if queue_open => {
                queue_open = count > 0;
                commands.extend(received.drain(..));
            }
            () = shared.control_waits.notified() => {}
            _ = tick.tick() => {
                let forgotten = shared.table.lock().forgotten(Instant::now());
                if let Some(request) = forgotten {
                    let why = format!("the server never ended request {request}");
                    return Err(std::io::Error::new(std::io::ErrorKind::TimedOut, why));
                }
                if shared.is_silent() {
                    pings += 1;
                    encode_ping(&mut out.buffer, pings);
                }
            }
        }
        for control in shared.take_controls() {
            match control {
                Control::Credit { request, parts } => encode_credit(&mut out.buffer, request, parts),
                // What is answered, or not sent yet, has nothing to cancel.
                Control::Cancel { request } => {
                    let overdue = shared.overdue(Instant::now());
                    if shared.table.lock().cancel(request, overdue) {
                        encode_cancel(&mut out.buffer, request);
                    }
                }
                Control::Pong { echo } => encode_pong(&mut out.buffer, echo),
            }
        }
        while let Some(command) = commands.pop_front() {
            match command {
                Command::Small { operation, deadline, reply } => {
                    if !reply.is_abandoned() {
                        smalls.push_back((operation, deadline, reply));
                    }
                }
                Command::Frame { request, bytes, pending, deadline, queued } => {
                    let overdue = deadline.map(|deadline| shared.overdue(deadline));
                    if !shared.table.lock().register(request, pending, overdue) {
                        continue;
                    }
                    if bytes.len() < WRITE_BYTES {
                        out.buffer.extend_from_slice(&bytes);
                    } else {
                        out.write().await?;
                        out.buffer = bytes;
                        out.write().await?;
                    }
                    drop(queued);
                    out.write_if_long().await?;
                }
            }
        }
        coalesce(shared, smalls, &mut out).await?;
        // What is in flight may still need credit, so goodbye is said when nothing is.
        if *shared.life.borrow() != Life::Open && queue.is_empty() && shared.table.lock().is_empty() {
            encode_goodbye(&mut out.buffer, "the client has nothing more to ask");
            out.write_now().await?;
            return out.writer.shutdown().await;
        }
        out.write_now().await?;
    }
}

/// Sends look-ups that came together as batches; a single one as it is.
async fn coalesce<W: AsyncWrite + Unpin>(
    shared: &Shared,
    smalls: &mut VecDeque<Small>,
    out: &mut Output<'_, W>,
) -> std::io::Result<()> {
    while let Some((operation, _, _)) = smalls.front() {
        let request = shared.new_request();
        let buffer = &mut out.buffer;
        let start = buffer.len();
        let together = smalls.len().min(shared.coalesced_calls_max);
        // The one who waits longest sets the deadline; the others stop waiting by themselves.
        let now = Instant::now();
        let deadline =
            smalls.iter().take(together).fold(now, |latest, (_, deadline, _)| latest.max(*deadline));
        let deadline_ms = Some(remaining_ms(deadline));
        let (taken, encoded) = if together == 1 {
            let consistency = shared.consistency;
            let options = RequestOptions { deadline_ms, consistency, ..RequestOptions::default() };
            (1, encode_request(buffer, shared.frame_bytes_max, request, &options, operation))
        } else {
            let mut batch =
                BatchWriter::new(buffer, shared.frame_bytes_max, request, deadline_ms, shared.consistency);
            let pushed =
                smalls.iter().take(together).try_for_each(|(operation, ..)| batch.push(None, operation));
            let taken = batch.operations();
            batch.finish();
            // Where not all fit, the rest comes into the next one; what fits into none is refused.
            if taken == 0 { (1, pushed) } else { (taken, Ok(())) }
        };
        let mut replies = smalls.drain(..taken).map(|(_, _, reply)| reply);
        let pending = match (replies.next(), encoded) {
            (Some(reply), Err(error)) => {
                reply.answer(Err(error));
                continue;
            }
            (Some(reply), Ok(())) if together == 1 => Pending::One(reply),
            (first, _) => {
                let replies: Vec<Reply> = first.into_iter().chain(replies).collect();
                Pending::Coalesced { replies: replies.into_iter(), answered: 0 }
            }
        };
        if !shared.table.lock().register(request, pending, Some(shared.overdue(deadline))) {
            out.buffer.truncate(start);
        }
        out.write_if_long().await?;
    }
    Ok(())
}
