//! Rows of a detector: names, times and values, made anew from their numbers.

use std::io::Write as _;

use exacat_bench::scatter;

/// Time of the first row of a run that is not steady: 2025-11-13.
pub(crate) const START_MS: u64 = 1_763_000_000_000;

/// Times of the rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    /// Time of step 0.
    pub start_ms: u64,
    /// Time between two rows of an element.
    pub interval_us: u64,
}

impl Rows {
    /// Returns the time of an element's row.
    pub(crate) fn time_ms(&self, element: u64, step: u64) -> u64 {
        self.start_ms + step * self.interval_us / 1000 + element % (self.interval_us / 1000).max(1)
    }
}

/// Writes the name of an element.
pub(crate) fn put_name(out: &mut Vec<u8>, element: u64) {
    let sub = ["hv", "lv", "gas", "temp"][(element % 4) as usize];
    write!(out, "SYS1:dcs/det{}/{sub}/ch{element:06}.actual.vMon", element % 18).unwrap();
}

/// Writes the value of a row.
fn put_value(out: &mut Vec<u8>, element: u64, step: u64, random: u64) {
    let wrote = match element % 20 {
        // A random walk in steps of 0.01: the sum of few random bits is near enough.
        0..10 => write!(
            out,
            "{:.2}",
            800.0
                + element as f64 % 97.0
                + (0..8).map(|bit| scatter(element ^ (step >> bit) << 20) % 3).sum::<u64>() as f64 / 100.0
        ),
        10..13 => write!(out, "{}", 2048 + random % 16),
        13..16 => write!(out, "{}", step * 7 + element),
        16..18 => write!(out, "{}", (scatter(element ^ (step / 40)) % 4)),
        _ => write!(out, "{}", f64::from_bits(0x3fe0_0000_0000_0000 | random >> 12)),
    };
    wrote.unwrap();
}

impl Rows {
    /// Writes a row in InfluxDB's line protocol, with the time in milliseconds.
    pub(crate) fn put_line(&self, out: &mut Vec<u8>, element: u64, step: u64) {
        let random = scatter((element << 24) ^ step);
        out.extend_from_slice(b"ev,e=");
        put_name(out, element);
        out.extend_from_slice(b" v=");
        put_value(out, element, step, random);
        let (quality, time) = (u8::from(random.is_multiple_of(2000)), self.time_ms(element, step));
        writeln!(out, ",q={quality}i {time}").unwrap();
    }

    /// Writes a row for PostgreSQL's COPY: number of the element, time, value, quality.
    pub(crate) fn put_copied(&self, out: &mut Vec<u8>, element: u64, step: u64) {
        let random = scatter((element << 24) ^ step);
        write!(out, "{element}\t{}\t", self.time_ms(element, step)).unwrap();
        put_value(out, element, step, random);
        writeln!(out, "\t{}", u8::from(random.is_multiple_of(2000))).unwrap();
    }
}
