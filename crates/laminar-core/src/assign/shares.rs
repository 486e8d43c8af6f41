//! How many partitions a node should have: its share, the band around it and the cap above it.
//!
//! ```text
//!     0 ---- low ---- floor(share) -- share -- ceil(share) ---- high ---- cap
//!            |<------------------ the band ------------------->|
//! ```
//!
//! The share is exact (a fraction of whole numbers), so every platform draws the same band.

/// The share of a node and the limits around it, in partitions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Band {
    /// What the node would have if partitions could be divided: by cores and weight, unless it has room for less. For show; decisions use the exact fraction.
    pub share: f64,
    /// Below this a node is given partitions of others: the lesser of the share rounded down and 90 % rounded up.
    pub low: u32,
    /// Above this a node gives partitions away: the greater of the share rounded up and 110 % rounded down, but no more
    /// than there is room for.
    pub high: u32,
    /// Never more than this.
    pub cap: u32,
}

/// A band with its exact share, `numerator / denominator`. The denominator is the same for all nodes of a plan, so
/// that shares can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Quota {
    numerator: u128,
    denominator: u128,
    pub(super) low: u32,
    pub(super) floor: u32,
    pub(super) ceil: u32,
    pub(super) high: u32,
    pub(super) cap: u32,
}

impl Quota {
    fn new(numerator: u128, denominator: u128, cap: Option<u32>) -> Self {
        // Only 1.5 times a share of billions can be too large, and then it is no limit.
        let narrow = |value: u128| u32::try_from(value).unwrap_or(u32::MAX);
        let floor = narrow(numerator / denominator);
        let ceil = narrow(numerator.div_ceil(denominator));
        let cap = cap.unwrap_or_else(|| narrow((3 * numerator).div_ceil(2 * denominator)));
        Quota {
            numerator,
            denominator,
            low: floor.min(narrow((9 * numerator).div_ceil(10 * denominator))),
            floor,
            ceil,
            high: ceil.max(narrow(11 * numerator / (10 * denominator))).min(cap),
            cap,
        }
    }

    /// How far `count` is above the share, in units that are the same for all nodes of a plan.
    pub(super) fn excess(&self, count: u32) -> i128 {
        let signed = |value: u128| i128::try_from(value).expect("partitions times capacity fits");
        signed(u128::from(count) * self.denominator) - signed(self.numerator)
    }

    /// By how many partitions `count` is outside the band.
    pub(super) fn violation(&self, count: u32) -> u32 {
        self.low.saturating_sub(count) + count.saturating_sub(self.high)
    }

    pub(super) fn band(&self) -> Band {
        Band {
            share: self.numerator as f64 / self.denominator as f64,
            low: self.low,
            high: self.high,
            cap: self.cap,
        }
    }
}

/// The quota of each node by its capacity, or `None` if there is not room for all partitions.
///
/// A node has room for `cap` partitions and for as many as are `fitting` into its memory. Where that is below its
/// share, its share is what it has room for, and the others divide the rest by capacity.
pub(super) fn quotas(
    partitions: u32,
    capacities: &[u128],
    cap: Option<u32>,
    fitting: &[u32],
) -> Option<Vec<Quota>> {
    let room: Vec<u128> =
        fitting.iter().map(|fitting| u128::from(cap.unwrap_or(u32::MAX).min(*fitting))).collect();
    let mut rest = u128::from(partitions);
    if rest > room.iter().sum() {
        return None;
    }
    let mut units: u128 = capacities.iter().sum();
    let mut full = vec![false; capacities.len()];
    loop {
        let over: Vec<usize> = (0..full.len())
            .filter(|&node| !full[node] && rest * capacities[node] > room[node] * units)
            .collect();
        if over.is_empty() {
            break;
        }
        for node in over {
            full[node] = true;
            rest -= room[node];
            units -= capacities[node];
        }
    }
    let quota = |node: usize| {
        let quota = if full[node] {
            let at_room = Quota::new(room[node], 1, cap);
            Quota { numerator: room[node] * units, denominator: units, ..at_room }
        } else {
            Quota::new(rest * capacities[node], units, cap)
        };
        Quota { high: quota.high.min(fitting[node]), ..quota }
    };
    Some((0..full.len()).map(quota).collect())
}
