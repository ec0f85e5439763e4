//! Bytes over time of several caches or origins, brought together.

use super::series::RateView;

/// Returns the bytes between two times, each point spread evenly.
pub(crate) fn bytes_between(of: &RateView, (from, to): (u64, u64)) -> f64 {
    let width = of.width_us.max(1);
    let first = from / width;
    let mut sum = 0.0;
    for number in first..to.div_ceil(width).min(of.bytes.len() as u64) {
        let begin = number.saturating_mul(width);
        let within = to.min(begin.saturating_add(width)).saturating_sub(from.max(begin));
        sum += of.bytes[number as usize] as f64 * within as f64 / width as f64;
    }
    sum
}

/// Returns the sum of some series, in points of the widest one; none without any.
pub(crate) fn sum<'a>(all: impl Iterator<Item = Option<&'a RateView>>) -> Option<RateView> {
    let all: Vec<&RateView> = all.flatten().filter(|of| !of.bytes.is_empty()).collect();
    let width_us = all.iter().map(|of| of.width_us.max(1)).max()?;
    let end = all.iter().map(|of| (of.bytes.len() as u64).saturating_mul(of.width_us)).max()?;
    let point = |number: u64| {
        let span = (number.saturating_mul(width_us), (number + 1).saturating_mul(width_us));
        all.iter().map(|of| bytes_between(of, span)).sum::<f64>().round() as u64
    };
    Some(RateView { width_us, bytes: (0..end.div_ceil(width_us)).map(point).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: bytes are neither lost nor doubled, whatever the widths.
    #[test]
    fn sums_have_all_bytes() {
        let (narrow, wide) = (
            RateView { width_us: 10, bytes: vec![1, 2, 3, 4, 5] },
            RateView { width_us: 40, bytes: vec![100, 200] },
        );
        let both = sum([Some(&narrow), None, Some(&wide)].into_iter()).unwrap();
        assert_eq!(both, RateView { width_us: 40, bytes: vec![110, 205] });
        assert_eq!(sum([None].into_iter()), None);
        assert_eq!(bytes_between(&wide, (20, 60)), 150.0);
        assert_eq!(bytes_between(&wide, (70, 1000)), 50.0);
        assert_eq!(bytes_between(&wide, (1000, 2000)), 0.0);
        let odd = RateView { width_us: 0, bytes: vec![7] };
        assert_eq!(bytes_between(&odd, (0, 10)), 7.0);
    }
}
