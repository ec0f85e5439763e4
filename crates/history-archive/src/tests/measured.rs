//! Rate and size of the archive, for the values that `bench-history` writes.

use std::time::Instant;

use exacat_disk::{Disk, InMemory, RealDisk};
use exacat_history::columns::Columns;
use exacat_history::merge::Merge;
use exacat_history::run::{COMPACTION_LEVEL, Elements, Run, RunHead, RunWriter, day_of};
use exacat_model::FieldRef;

use super::*;

/// Rows of a measurement.
const ROWS: u64 = 3_000_000;
/// Time of the first row: 2025-11-13T00:00:00Z.
const START_NS: i64 = 1_762_992_000_000_000_000;

fn scatter(number: u64) -> u64 {
    let mixed = (number ^ number >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mixed = (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ mixed >> 33
}

/// Returns the value of an element at a step: as `bench-history` has it.
fn value_of(element: u64, step: u64) -> f64 {
    let random = scatter((element << 24) ^ step);
    match element % 20 {
        0..10 => {
            let walk = (0..8).map(|bit| scatter(element ^ (step >> bit) << 20) % 3).sum::<u64>();
            ((800 + element % 97) * 100 + walk) as f64 / 100.0
        }
        10..13 => (2048 + random % 16) as f64,
        13..16 => (step * 7 + element) as f64,
        16..18 => (scatter(element ^ (step / 40)) % 4) as f64,
        _ => f64::from_bits(0x3fe0_0000_0000_0000 | random >> 12),
    }
}

/// Returns the nanoseconds that this thread has been on a processor.
fn processor_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Returns the largest memory of this process so far, in MiB.
fn peak_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

/// Processor time and time by the clock that something takes, in seconds.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64, f64) {
    let (clock, processor) = (Instant::now(), processor_ns());
    let done = work();
    (done, (processor_ns() - processor) as f64 / 1e9, clock.elapsed().as_secs_f64())
}

/// Packs rows to a run in memory, as a compaction does.
fn run_of(batches: Vec<Columns>) -> Arc<Run> {
    let directory = tempfile::tempdir().unwrap();
    let (path, day) = (directory.path().join("run"), day_of(START_NS));
    let file = RealDisk.create(&path).unwrap();
    let head = RunHead { group: 1, day, salt: 7 };
    let mut writer = RunWriter::new(&path, &*file, head, COMPACTION_LEVEL).unwrap();
    writer.append_all(&mut batches.into_iter()).unwrap();
    writer.finish().unwrap();
    let bytes = Arc::new(InMemory::new(std::fs::read(&path).unwrap()));
    Arc::new(Run::open("run", bytes, 1, day).unwrap())
}

/// Returns the rows of two runs, each of which has half of the steps.
fn runs(elements: u64) -> [Arc<Run>; 2] {
    let steps = ROWS / elements;
    let interval_ms = 3_600_000 / steps;
    [0, 1].map(|half| {
        let (mut batches, mut rows) = (Vec::new(), Columns::default());
        for element in 0..elements {
            for step in (0..steps).filter(|step| step * 2 / steps == half) {
                let time = START_NS + ((step * interval_ms + element % interval_ms) * 1_000_000) as i64;
                let quality = i64::from(scatter((element << 24) ^ step).is_multiple_of(2000));
                let values = [(0, FieldRef::Float(value_of(element, step))), (1, FieldRef::Integer(quality))];
                rows.push((element as u32, time), values).unwrap();
            }
            if rows.rows() >= 4096 {
                batches.push(std::mem::take(&mut rows));
            }
        }
        batches.push(rows);
        run_of(batches)
    })
}

/// Makes a group with the names that `bench-history` has.
fn named_group(history: &History, elements: u64) -> Arc<Group> {
    let wide = GroupSettings { elements_max: 2_000_000, ..group_settings("det") };
    let group = wait(history.set_group(wide)).unwrap();
    let mut lines = String::new();
    for element in 0..elements {
        let sub = ["hv", "lv", "gas", "temp"][(element % 4) as usize];
        let detector = element % 18;
        lines.push_str(&format!("ev,e=SYS1:dcs/det{detector}/{sub}/ch{element:06}.actual.vMon v=1,q=0i 1\n"));
        if lines.len() > 1 << 20 {
            write(history, &group, &lines).unwrap();
            lines.clear();
        }
    }
    write(history, &group, &lines).unwrap();
    group
}

/// Prints rows a second and bytes a row, names included: reading and merging two runs, all of writing a day
/// (with that reading, and reading the files back), one commit of the Delta log, and reads of the files.
#[test]
#[ignore = "a measurement: cargo test --release -p exacat-history-archive measured -- --ignored --nocapture"]
fn archive_is_measured() {
    let directory = tempfile::tempdir().unwrap();
    for elements in [10_000u64, 1_000_000] {
        let settings = HistorySettings {
            memtable_bytes: 1 << 30,
            ..HistorySettings::new(directory.path().join(elements.to_string()), Arc::new(|| TimeMs(NOW_MS)))
        };
        let history = History::open(settings).unwrap();
        let group = named_group(&history, elements);
        let runs = runs(elements);
        let source =
            || Merge::new(runs.iter().map(|run| Box::new(run.scan(Wanted::all())) as Box<dyn SortedRows>));
        let rate = |seconds: f64| ROWS as f64 / seconds / 1e6;
        let mut all = Vec::new();
        for _ in 0..3 {
            let store = Arc::new(object_store::memory::InMemory::new());
            let archive = ParquetArchive::new(Place::of(store, "", "memory").unwrap());
            archive.claim(&owner(1), &[]).unwrap();
            let (_, merging, _) = timed(|| drain(&mut source()));
            let (files, writing, clock) =
                timed(|| archive.write(&named(&group), day_of(START_NS), None, &mut source()).unwrap());
            let (_, publishing, _) = timed(|| archive.publish(&owner(1), TimeMs(1), &files).unwrap());
            let (_, reading, _) = timed(|| drain(&mut *archive.scan(&named(&group), &files, &Wanted::all())));
            let one = Wanted { elements: Elements::one(elements as u32 / 2), ..Wanted::all() };
            let (_, _, one) = timed(|| drain(&mut *archive.scan(&named(&group), &files, &one)));
            let bytes: u64 = files.iter().map(|file| file.bytes).sum();
            println!(
                "{elements} elements: {:.2} M rows/s of a core ({:.2} by the clock), {:.2} B a row, {} files; \
                 ns a row: {:.0} merging, {:.0} all of writing; commit {:.1} ms; {:.2} M rows/s read; \
                 one element {:.1} ms; memory {} MiB",
                rate(writing),
                rate(clock),
                bytes as f64 / ROWS as f64,
                files.len(),
                merging / ROWS as f64 * 1e9,
                writing / ROWS as f64 * 1e9,
                publishing * 1e3,
                rate(reading),
                one * 1e3,
                peak_mib()
            );
            all.push((writing * 1e9 / ROWS as f64) as u64);
        }
        all.sort_unstable();
        println!("{elements} elements: median {:.2} M rows/s of a core", 1e3 / all[1] as f64);
    }
}

fn drain(source: &mut dyn SortedRows) {
    while source.next_rows().unwrap().is_some() {}
}
