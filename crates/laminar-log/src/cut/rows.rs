//! The furthest index up to which there are no more than so many rows.

use laminar_core::ids::LogIndex;

use super::{Edge, Span};
use crate::error::LogError;

/// Every so many guesses one halves what is left, because guesses from the counts can be bad for ever.
const HALVE_EVERY: u32 = 3;

/// Moves the upper edges of the spans to the index. There are more rows than `rows_max` up to `at`.
pub(super) fn furthest(
    spans: &mut [&mut Span<'_>],
    at: LogIndex,
    rows_max: u64,
) -> Result<LogIndex, LogError> {
    let first = spans.iter().map(|span| span.low.entry).min().unwrap_or(at);
    let mut low = Bound::new(spans, first)?;
    // At least one commit, also if it is too large.
    if low.rows >= rows_max || first >= at {
        low.set_high(spans);
        return Ok(first);
    }
    low.set_low(spans);
    let mut high = Bound { index: at, rows: spans.iter().map(|span| span.rows()).sum(), edges: Vec::new() };
    let mut guesses = 0;
    while high.index.0 - low.index.0 > 1 && low.rows < rows_max {
        guesses += 1;
        let guess = guess(&low, &high, rows_max, guesses % HALVE_EVERY == 0);
        let found = Bound::new(spans, guess)?;
        if found.rows <= rows_max {
            found.set_low(spans);
            low = found;
        } else {
            found.set_high(spans);
            high = found;
        }
    }
    spans.iter_mut().for_each(|span| span.high = span.low);
    Ok(low.index)
}

/// An index, and what there is up to it.
struct Bound {
    index: LogIndex,
    rows: u64,
    edges: Vec<Edge>,
}

impl Bound {
    fn new(spans: &mut [&mut Span<'_>], index: LogIndex) -> Result<Self, LogError> {
        let edges = spans.iter_mut().map(|span| span.edge(index)).collect::<Result<Vec<_>, _>>()?;
        let rows = spans.iter().zip(&edges).map(|(span, edge)| span.rows_before(*edge)).sum();
        Ok(Self { index, rows, edges })
    }

    fn set_low(&self, spans: &mut [&mut Span<'_>]) {
        spans.iter_mut().zip(&self.edges).for_each(|(span, edge)| span.low = *edge);
    }

    fn set_high(&self, spans: &mut [&mut Span<'_>]) {
        spans.iter_mut().zip(&self.edges).for_each(|(span, edge)| span.high = *edge);
    }
}

/// An index between two: where the rows would be if they came evenly, or the middle.
fn guess(low: &Bound, high: &Bound, rows_max: u64, halve: bool) -> LogIndex {
    let (width, rows) = (high.index.0 - low.index.0, high.rows - low.rows);
    let step = if halve {
        width / 2
    } else {
        let step = u128::from(width) * u128::from(rows_max - low.rows) / u128::from(rows.max(1));
        u64::try_from(step).unwrap_or(u64::MAX)
    };
    LogIndex(low.index.0 + step.clamp(1, width - 1))
}
