//! Which values a chart's axis spans: all of the data but far outliers, held while it still suits them.

use super::LineChart;
use super::trace::Columns;
use crate::ui::widgets::axis::{Axis, Scale};

/// A value further above the bulk than this many times the bulk's height is cut off and marked.
const OUTLIER: f64 = 3.0;
/// Share of the data's height that an outgrown axis is extended by.
const ROOM: f64 = 0.6;
/// Share of the smallest value that an axis of positive values is extended by downwards.
const ROOM_BELOW: f64 = 0.1;
/// Rows up to which a chart has none to spare.
const FEW_ROWS: u16 = 8;
/// Columns from which on there is a bulk to be far from.
const MANY: usize = 20;

impl LineChart<'_> {
    /// The range of the values shown; `None` when there is nothing finite to show.
    pub(super) fn axis(&self, columns: &[Columns], rows: u16) -> Option<Axis> {
        let usable = |x: &f64| self.scale == Scale::Linear || *x > 0.0;
        let mut lows = Vec::new();
        let mut highs = Vec::new();
        for bucket in columns
            .iter()
            .flat_map(|c| c.buckets.iter().flatten())
            .filter(|b| b.n > 0)
        {
            lows.extend(
                Some(bucket.min)
                    .filter(usable)
                    .or(Some(bucket.max).filter(usable)),
            );
            highs.extend(Some(bucket.max).filter(usable));
        }
        lows.sort_by(f64::total_cmp);
        highs.sort_by(f64::total_cmp);
        let (mut low, mut high) = (*lows.first()?, *highs.last()?);
        if self.scale == Scale::Linear {
            high = high.min(without_outliers(&highs, low)).max(low);
            low = if self.from_zero && low > 0.0 {
                0.0
            } else {
                low
            };
            // Nothing but zeros lies on the floor, not in the middle of a range around it.
            if low == 0.0 && high == 0.0 {
                high = 1.0;
            }
        }
        if self
            .held
            .is_some_and(|axis| axis.suits(low, high, self.scale))
        {
            return self.held;
        }
        if let Some(axis) = self.held.filter(|_| self.scale == Scale::Linear) {
            // Outgrown: leave room for more of the same on that side.
            // Room below never crosses zero: no norm, rate or loss will go there. What falls towards it falls ever slower,
            // so that a chart of few rows spares them.
            let room = (high - low) * ROOM;
            let room_below = match low >= 0.0 {
                true if rows <= FEW_ROWS => low * ROOM_BELOW,
                true => room.min(low),
                false => room,
            };
            low -= if low < axis.low { room_below } else { 0.0 };
            let whole = self.unit == "share" && high <= 1.0;
            high += if high > axis.high { room } else { 0.0 };
            if whole {
                high = high.min(1.0);
            }
        }
        // Few rows get a tight range with few labels rather than a wide range.
        let intervals = usize::from(rows).clamp(4, 8);
        Some(Axis::of_unit(self.unit, low, high, intervals, self.scale))
    }
}

/// The largest value that the axis must hold: far outliers, at most a fiftieth of the columns, do not squeeze the rest.
fn without_outliers(highs: &[f64], low: f64) -> f64 {
    if highs.len() < MANY {
        return f64::INFINITY;
    }
    let bulk = highs[highs.len().saturating_sub(2 + highs.len() / 50)];
    let next_below_outliers = bulk + (bulk - low) * OUTLIER;
    if highs[highs.len() - 1] > next_below_outliers {
        bulk + (bulk - low) * 0.25
    } else {
        f64::INFINITY
    }
}
