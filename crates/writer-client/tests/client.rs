//! The client against services in this process: everything that is acknowledged is certified once and in
//! order, whatever happens to the services; memory and waits are bounded.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod rig;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use exacat_writer_client::{
    EVENT_BYTES_MAX, Error, FileNames, FileOutcome, Outcome, Security, StreamSettings, Writer, WriterSettings,
};

use rig::{EVENT_HEAD, PATIENCE, Rig, count_events, event, wait_for};

fn settings(rig: &Rig, services: usize) -> WriterSettings {
    let seeds = (0..services).map(|at| rig.address(at));
    WriterSettings {
        memory_bytes: 32 << 20,
        silence_timeout: Duration::from_millis(800),
        retry_pause: Duration::from_millis(200),
        append_timeout: PATIENCE,
        flush_timeout: PATIENCE,
        ..WriterSettings::new(seeds, Security::Plain)
    }
}

fn all_certified(outcomes: &[FileOutcome]) -> u64 {
    let events = outcomes.iter().map(|of| match &of.outcome {
        Outcome::Certified { events, .. } => *events,
        other => panic!("{}: {other:?}", of.lfn),
    });
    events.sum()
}

/// Property: events of all sizes that a stream takes come back from the certified files, in order; those
/// beyond the limits are errors and change nothing.
#[test]
fn events_of_all_sizes_are_certified() {
    let rig = Rig::new(1);
    let writer = Writer::connect(settings(&rig, 1)).unwrap();
    let stream = writer.open_stream(StreamSettings::new("1", "physics", "/run/1/physics")).unwrap();
    assert_eq!(stream.append(&[]), Err(Error::EmptyEvent));
    let too_large = vec![0; EVENT_BYTES_MAX + 1];
    let error = Error::EventTooLarge { bytes: EVENT_BYTES_MAX + 1, most: EVENT_BYTES_MAX };
    assert_eq!(stream.append(&too_large), Err(error));
    for (number, length) in [EVENT_HEAD, 100, EVENT_BYTES_MAX, 1 << 20, 3_000_000, 77].into_iter().enumerate()
    {
        stream.append(&event(1, number as u64, length)).unwrap();
    }
    stream.flush().unwrap();
    let (appended, settled) = stream.positions();
    assert_eq!((appended, appended.events), (settled, 6));
    let outcomes = stream.close();
    assert_eq!(all_certified(&outcomes), 6);
    assert_eq!(outcomes[0].lfn, "/run/1/physics.000001");
    assert_eq!(count_events(&rig.certified())[&1], 6);
    assert_eq!(stream.append(b"late"), Err(Error::Closed("stream")));
    let status = writer.status();
    assert_eq!((status.appended.events, status.settled.events, status.memory_bytes.0), (6, 6, 0));
    assert!((1..=status.memory_bytes.1).contains(&status.memory_peak), "{}", status.memory_peak);
    assert!(status.files.is_empty() && status.latencies.count > 0 && status.services[0].1, "{status:?}");
    assert!(writer.close().is_empty());
}

/// Property: when one of two services is killed under load, every event is in the certified files once, in
/// the order of its thread, and every flush that returned tells the truth. The stall is short.
#[test]
fn killed_service_loses_and_doubles_no_event() {
    let rig = Rig::new(2);
    let writer = Writer::connect(settings(&rig, 2)).unwrap();
    let is_over = AtomicBool::new(false);
    let flushed = AtomicU64::new(0);
    let longest = std::thread::scope(|scope| {
        let work = |thread: u64| {
            let (writer, is_over, flushed) = (&writer, &is_over, &flushed);
            move || {
                let name = format!("/run/2/stream{thread}");
                let of =
                    StreamSettings { file_bytes_max: 3 << 20, ..StreamSettings::new("2", "physics", name) };
                let stream = writer.open_stream(of).unwrap();
                let (mut number, mut longest) = (0, Duration::ZERO);
                while !is_over.load(Ordering::Relaxed) || number < 50 {
                    let length = [60, 900, 20_000, 200_000][(number % 4) as usize];
                    stream.append(&event(thread, number, length)).unwrap();
                    number += 1;
                    if number % 8 == 0 {
                        let begun = Instant::now();
                        stream.flush().unwrap();
                        longest = longest.max(begun.elapsed());
                        flushed.fetch_add(1, Ordering::Relaxed);
                    }
                }
                let outcomes = stream.close();
                assert_eq!(all_certified(&outcomes), number);
                (thread, number, longest)
            }
        };
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(work(thread))).collect();
        let goes_on = |more: u64| {
            let wanted = flushed.load(Ordering::Relaxed) + more;
            wait_for("the writers go on", || flushed.load(Ordering::Relaxed) >= wanted);
        };
        goes_on(20);
        for killed in [0, 1] {
            rig.kill(killed);
            goes_on(20);
            rig.revive(killed);
            goes_on(20);
        }
        is_over.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let counted = count_events(&rig.certified());
    for (thread, number, stall) in longest {
        assert_eq!(counted[&thread], number, "thread {thread}");
        println!("thread {thread}: {number} events, longest flush {stall:?}");
        assert!(stall < Duration::from_secs(20), "{stall:?}");
    }
    assert!(writer.close().is_empty());
}

/// Property: a service that hangs is left after the silence time-out, and its events go to the other one.
#[test]
fn hung_service_is_left_after_the_silence_timeout() {
    let rig = Rig::new(2);
    let writer = Writer::connect(settings(&rig, 2)).unwrap();
    let stream = writer.open_stream(StreamSettings::new("3", "physics", "/run/3/physics")).unwrap();
    stream.append(&event(1, 0, 1000)).unwrap();
    stream.flush().unwrap();
    let hung = (0..2).find(|at| writer.status().files[0].reason.contains(&format!("0{}0{}", at + 1, at + 1)));
    let hung = hung.expect("the file is at one of them");
    rig.hang(hung, true);
    let begun = Instant::now();
    stream.append(&event(1, 1, 1000)).unwrap();
    stream.flush().unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(200), "{:?}", begun.elapsed());
    println!("a flush took {:?} past a service that hangs", begun.elapsed());
    // Its first bytes are there: the certificate needs them.
    rig.hang(hung, false);
    assert_eq!(all_certified(&stream.close()), 2);
    assert_eq!(count_events(&rig.certified())[&1], 2);
}

/// Property: when no service takes bytes, memory stays within its bound. An append waits for its time and
/// fails, a try sheds and counts, a flush is unknown; afterwards everything that was taken is certified.
#[test]
fn memory_is_bounded_while_services_hang() {
    let rig = Rig::new(1);
    let of = WriterSettings { memory_bytes: 4 << 20, buffer_bytes: 256 << 10, ..settings(&rig, 1) };
    let writer = Writer::connect(of).unwrap();
    let stream = writer.open_stream(StreamSettings::new("4", "physics", "/run/4/physics")).unwrap();
    rig.hang(0, true);
    let mut number = 0;
    let refused = loop {
        match stream.append_within(&event(1, number, 30_000), Duration::from_millis(50)) {
            Ok(()) => number += 1,
            Err(error) => break error,
        }
        assert!(number < 1000);
    };
    assert_eq!(refused, Error::MemoryFull { waited: Duration::from_millis(50), memory_bytes: 4 << 20 });
    assert!(number > 70, "most of the memory is used: {number} events of 30 kB");
    assert_eq!(stream.try_append(&event(1, number, 30_000)), Ok(false));
    assert_eq!((stream.shed().events, stream.shed().bytes), (1, 30_000));
    let flush = stream.flush_within(Duration::from_millis(20));
    assert!(
        matches!(flush, Err(Error::FlushTimeout { left_events, .. }) if left_events == number),
        "{flush:?}"
    );
    let unknown = stream.close_within(Duration::from_millis(20));
    assert!(
        matches!(unknown[0].outcome, Outcome::Unknown { .. }) && unknown[0].lfn == "/run/4/physics.000001"
    );
    let status = writer.status();
    assert!(status.memory_bytes.0 <= status.memory_bytes.1, "{status:?}");
    assert_eq!(status.shed.events, 1);
    rig.hang(0, false);
    assert_eq!(all_certified(&writer.close()), number);
    assert_eq!(count_events(&rig.certified())[&1], number);
}

/// Property: many threads may append to one stream, and to many, at once. Each event is whole, and those of
/// one thread are in order. Streams beyond the memory are refused.
#[test]
fn many_threads_append_at_once() {
    let rig = Rig::new(2);
    let of = WriterSettings { buffer_bytes: 64 << 10, memory_bytes: 1 << 20, ..settings(&rig, 2) };
    let writer = Writer::connect(of).unwrap();
    let stream = |at: u64| {
        let name = format!("/run/5/stream{at}");
        StreamSettings { file_events_max: 500, ..StreamSettings::new("5", "physics", name) }
    };
    let streams: Vec<_> = (0..8).map(|at| writer.open_stream(stream(at)).unwrap()).collect();
    assert!(matches!(writer.open_stream(stream(9)), Err(Error::Settings(_))), "memory for 8 streams");
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let stream = &streams[if thread < 8 { 0 } else { thread as usize - 8 }];
            scope.spawn(move || {
                for number in 0..1000 {
                    stream.append(&event(thread, number, 40 + (number % 300) as usize)).unwrap();
                }
            });
        }
    });
    let events: u64 = streams.iter().map(|stream| all_certified(&stream.close())).sum();
    assert_eq!(events, 16_000);
    let counted = count_events(&rig.certified());
    assert!((0..16).all(|thread| counted[&thread] == 1000), "{counted:?}");
    let latencies = writer.status().latencies;
    assert!(latencies.count > 0 && latencies.p50 <= latencies.p99 && latencies.p99 <= latencies.max);
}

/// Property: a file that the catalogue refuses is told with the reason, by flush and close.
#[test]
fn refused_file_is_told_with_the_reason() {
    let rig = Rig::new(1);
    rig.refuse_files("not below your directory");
    let writer = Writer::connect(settings(&rig, 1)).unwrap();
    let single = StreamSettings { names: FileNames::Single, ..StreamSettings::new("6", "s", "/run/6/file") };
    let stream = writer.open_stream(single).unwrap();
    stream.append(b"event").unwrap();
    match stream.flush() {
        Err(Error::Lost { lost, reason }) => {
            assert_eq!((lost.events, lost.bytes), (1, 5));
            assert_eq!(reason, "not below your directory");
        }
        other => panic!("{other:?}"),
    }
    let outcomes = stream.close();
    assert_eq!(outcomes.len(), 1);
    assert_eq!(outcomes[0].lfn, "/run/6/file");
    assert_eq!(outcomes[0].outcome, Outcome::Failed { reason: "not below your directory".to_owned() });
    assert!(rig.certified().is_empty());
}

/// Property: a writer without a service says for each seed why; one seed that answers is enough, and the
/// other services are learnt from it.
#[test]
fn one_seed_that_answers_is_enough() {
    let rig = Rig::new(2);
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let of = WriterSettings::new([closed.clone()], Security::Plain);
    let of = WriterSettings { connect_timeout: Duration::from_millis(300), ..of };
    match Writer::connect(of.clone()).err() {
        Some(Error::NoService { reasons, .. }) => assert!(reasons.contains(&closed), "{reasons}"),
        other => panic!("{other:?}"),
    }
    let writer = Writer::connect(WriterSettings { seeds: vec![closed, rig.address(1)], ..of }).unwrap();
    wait_for("both services are known", || writer.status().services.len() == 2);
    assert!(matches!(
        Writer::connect(WriterSettings::new(Vec::<String>::new(), Security::Plain)),
        Err(Error::Settings(_))
    ));
}
