//! How long something took, in buckets that never change: an observation is three additions, without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper ends of the buckets, in microseconds: a sync of a fast disk up to a call that nearly ran out of time.
const ENDS_MICROS: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000,
];

/// Times, by bucket.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// One for each end, and one for what is longer than all of them.
    counts: [AtomicU64; ENDS_MICROS.len() + 1],
    nanoseconds: AtomicU64,
}

/// A histogram at one moment.
#[derive(Debug, PartialEq)]
pub(crate) struct Observed {
    /// The upper end of each bucket in seconds, and how many observations lie at it or below.
    pub(crate) buckets: Vec<(f64, u64)>,
    /// How many observations there are.
    pub(crate) count: u64,
    /// What they add up to, in seconds.
    pub(crate) seconds: f64,
}

impl Histogram {
    /// Counts a time.
    pub(crate) fn observe(&self, time: Duration) {
        let end = ENDS_MICROS.partition_point(|end| Duration::from_micros(*end) < time);
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // ORDER: figures stand for themselves; nothing is read because of them.
        self.counts[end].fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// What was observed until now. The count is that of the buckets, whatever comes in meanwhile.
    pub(crate) fn observed(&self) -> Observed {
        let mut count = 0;
        let mut buckets = Vec::with_capacity(ENDS_MICROS.len());
        for (end, bucket) in ENDS_MICROS.iter().zip(&self.counts) {
            count += bucket.load(Ordering::Relaxed);
            buckets.push((*end as f64 / 1e6, count));
        }
        count += self.counts[ENDS_MICROS.len()].load(Ordering::Relaxed);
        Observed { buckets, count, seconds: self.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_at_the_end_of_their_bucket_and_above() {
        let histogram = Histogram::default();
        for micros in [0, 100, 101, 2_500, 11_000_000] {
            histogram.observe(Duration::from_micros(micros));
        }
        let observed = histogram.observed();
        let at = |seconds: f64| observed.buckets.iter().find(|(end, _)| *end == seconds).unwrap().1;
        assert_eq!((at(0.0001), at(0.00025), at(0.001), at(0.0025), at(10.0)), (2, 3, 3, 4, 4));
        assert_eq!((observed.count, observed.seconds), (5, 11.002_701));
    }
}
