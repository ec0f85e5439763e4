//! Rate and size of the archive, for the values that `bench-history` writes.

use std::time::Instant;

use exacat_history::columns::Columns;
use exacat_history::run::Elements;
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

/// Prints rows a second of one core and bytes a row, with names, and with reading each file back.
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
        let wide = GroupSettings { elements_max: 2_000_000, ..group_settings("det") };
        let group = wait(history.set_group(wide)).unwrap();
        let mut lines = String::new();
        for element in 0..elements {
            let sub = ["hv", "lv", "gas", "temp"][(element % 4) as usize];
            let detector = element % 18;
            lines.push_str(&format!(
                "ev,e=SYS1:dcs/det{detector}/{sub}/ch{element:06}.actual.vMon v=1,q=0i 1\n"
            ));
            if lines.len() > 1 << 20 {
                write(&history, &group, &lines).unwrap();
                lines.clear();
            }
        }
        write(&history, &group, &lines).unwrap();
        let steps = ROWS / elements;
        let interval_ms = 3_600_000 / steps;
        let (mut batches, mut rows) = (Vec::new(), Columns::default());
        for element in 0..elements {
            for step in 0..steps {
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
        for _ in 0..3 {
            let store = Arc::new(object_store::memory::InMemory::new());
            let archive = ParquetArchive::new(Place::of(store, "", "memory").unwrap());
            let mut source = batches.clone().into_iter();
            let begun = Instant::now();
            let day = exacat_history::run::day_of(START_NS);
            let files = archive.write(&named(&group), day, &mut source).unwrap();
            let seconds = begun.elapsed().as_secs_f64();
            let begun = Instant::now();
            let mut scan = archive.scan(&named(&group), &files, &Wanted::all());
            while scan.next_rows().unwrap().is_some() {}
            let reading = begun.elapsed().as_secs_f64();
            let begun = Instant::now();
            let wanted = Wanted { elements: Elements::one(elements as u32 / 2), ..Wanted::all() };
            let mut scan = archive.scan(&named(&group), &files, &wanted);
            while scan.next_rows().unwrap().is_some() {}
            let one = begun.elapsed().as_secs_f64();
            let bytes: u64 = files.iter().map(|file| file.bytes).sum();
            println!(
                "{elements} elements: {:.2} M rows/s written and read back, {:.2} B a row, {} files; \
                 {:.2} M rows/s read; one element {:.1} ms",
                ROWS as f64 / seconds / 1e6,
                bytes as f64 / ROWS as f64,
                files.len(),
                ROWS as f64 / reading / 1e6,
                one * 1e3
            );
        }
    }
}
