//! Axes: ranges that snap to round numbers, so that a picture stands still while its data grows, and ticks with short labels.

use crate::base::human;

/// How values become heights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    #[default]
    Linear,
    /// Values of zero and less are not shown.
    Log,
}

/// A closed range of values with round ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Axis {
    pub low: f64,
    pub high: f64,
    /// Distance of ticks; 0 where they are `digits` times powers of ten.
    step: f64,
    digits: &'static [f64],
    scale: Scale,
    unit: Unit,
}

/// What one on the axis stands for, and the letter behind its labels.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Unit {
    size: f64,
    letter: &'static str,
}

const ONE: Unit = Unit {
    size: 1.0,
    letter: "",
};

/// Binary units of bytes, largest first.
const BYTES: [Unit; 3] = [
    Unit {
        size: 1_073_741_824.0,
        letter: "G",
    },
    Unit {
        size: 1_048_576.0,
        letter: "M",
    },
    Unit {
        size: 1_024.0,
        letter: "K",
    },
];

/// Units of milliseconds: seconds from where a reading has them.
const SECONDS: Unit = Unit {
    size: 1_000.0,
    letter: "s",
};
const MILLIS: Unit = Unit {
    size: 1.0,
    letter: "ms",
};

/// Shares are shown in percent, as their readings are.
const PERCENT: Unit = Unit {
    size: 0.01,
    letter: "%",
};

/// Height of a range beside its values: below it, ticks would share a label of six columns.
const FINEST: f64 = 1e-3;

/// Share of its height that data must fill for an axis to stay.
const FILLED: f64 = 0.35;

/// What ticks of a logarithmic axis begin with, the densest first: short ranges have many, long ones only decades.
const DIGITS: [&[f64]; 4] = [
    &[1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0],
    &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
    &[1.0, 2.0, 5.0],
    &[1.0],
];
/// Up to this ratio of its ends a logarithmic axis is nearly linear: its ticks are.
const NEARLY_LINEAR: f64 = 1.6;

impl Axis {
    /// The round range around `low..=high` with at most `max_ticks` intervals. A range without height gets some.
    fn snapped(low: f64, high: f64, max_ticks: usize, scale: Scale) -> Self {
        match scale {
            Scale::Log if high > 0.0 => Self::log(low, high, max_ticks.max(4)),
            _ => Self::linear(low, high, max_ticks.max(1)),
        }
    }

    /// A linear axis of bytes: round in KiB, MiB or GiB.
    fn of_bytes(low: f64, high: f64, max_ticks: usize) -> Self {
        let unit = BYTES.into_iter().find(|u| high >= u.size).unwrap_or(ONE);
        let axis = Self::linear(low / unit.size, high / unit.size, max_ticks.max(1));
        Axis {
            low: axis.low * unit.size,
            high: axis.high * unit.size,
            step: axis.step * unit.size,
            unit,
            ..axis
        }
    }

    /// An axis of milliseconds, in the unit that [`human::reading`] has for its highest value.
    fn of_millis(low: f64, high: f64, max_ticks: usize, scale: Scale) -> Self {
        let unit = match human::reading(high, "ms").ends_with("ms") {
            true => MILLIS,
            false => SECONDS,
        };
        // A thousand is a power of ten: what is round in milliseconds is round in seconds.
        let axis = Self::snapped(low, high, max_ticks, scale);
        Axis { unit, ..axis }
    }

    /// An axis of shares, labelled in percent: what is round in hundredths is round.
    fn of_shares(low: f64, high: f64, max_ticks: usize, scale: Scale) -> Self {
        let axis = Self::snapped(low, high, max_ticks, scale);
        Axis {
            unit: PERCENT,
            ..axis
        }
    }

    /// The axis that suits a metric's unit: bytes, times and shares have letters behind their labels.
    pub fn of_unit(unit: &str, low: f64, high: f64, max_ticks: usize, scale: Scale) -> Self {
        match (unit, scale) {
            ("bytes", Scale::Linear) => Self::of_bytes(low, high, max_ticks),
            ("ms", _) => Self::of_millis(low, high, max_ticks, scale),
            ("share", _) => Self::of_shares(low, high, max_ticks, scale),
            _ => Self::snapped(low, high, max_ticks, scale),
        }
    }

    fn linear(mut low: f64, mut high: f64, max_ticks: usize) -> Self {
        let size = low.abs().max(high.abs());
        if size == 0.0 {
            // Of zeros alone nobody knows how far they go; few readings go below.
            high = 1.0;
        } else if high - low <= size * 1e-6 {
            let pad = size * 0.1;
            (low, high) = (low - pad, high + pad);
        } else if high - low < size * FINEST {
            let middle = (low + high) / 2.0;
            (low, high) = (middle - size * FINEST / 2.0, middle + size * FINEST / 2.0);
        }
        // Steps of 2.5 take a digit more, which beside a value a thousand times as large a label has no room for.
        let steps = |x: f64| match x < size * FINEST {
            true => round_up_125(x),
            false => round_up(x),
        };
        // The snapped range may need one interval more than the raw one: widen the step until it fits.
        let mut step = steps((high - low) / max_ticks as f64);
        loop {
            let (from, to) = (
                (low / step + 1e-9).floor() * step,
                (high / step - 1e-9).ceil() * step,
            );
            if ((to - from) / step).round() as usize <= max_ticks || !step.is_finite() {
                return Axis {
                    low: from,
                    high: to,
                    step,
                    digits: &[],
                    scale: Scale::Linear,
                    unit: ONE,
                };
            }
            step = steps(step * 1.01);
        }
    }

    fn log(low: f64, high: f64, max_ticks: usize) -> Self {
        let low = if low > 0.0 { low } else { high * 1e-6 };
        if high / low < NEARLY_LINEAR {
            let axis = Self::linear(low, high, max_ticks);
            if axis.low > 0.0 {
                let scale = Scale::Log;
                return Axis { scale, ..axis };
            }
        }
        let around = |digits: &'static [f64]| {
            let from = digit_below(low * 1.000_001, digits);
            let to = digit_above(high * 0.999_999, digits);
            Axis {
                low: from,
                high: if to > from { to } else { from * 10.0 },
                step: 0.0,
                digits,
                scale: Scale::Log,
                unit: ONE,
            }
        };
        let [dense, middle, coarse, decades] = DIGITS;
        let mut axes = [dense, middle, coarse].into_iter().map(around);
        let fits = axes.find(|axis| axis.ticks().len() <= max_ticks + 1);
        fits.unwrap_or_else(|| Axis {
            digits: decades,
            ..around(coarse)
        })
    }

    /// True while data from `low` to `high` fill enough of this axis and lie inside it.
    pub fn suits(&self, low: f64, high: f64, scale: Scale) -> bool {
        let (from, to) = (self.place(low), self.place(high));
        let slack = 1e-9;
        let finest = self.high - self.low <= 4.0 * FINEST * low.abs().max(high.abs());
        let filled = to - from >= FILLED || finest;
        self.scale == scale && from >= -slack && to <= 1.0 + slack && filled
    }

    /// Height of a value: 0 at the low end, 1 at the high end; outside of that beyond them. NaN where it has none.
    pub fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log if value <= 0.0 => f64::NEG_INFINITY,
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        }
    }

    /// Round values inside the range, lowest first, with their labels.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        if self.step > 0.0 {
            let n = ((self.high - self.low) / self.step).round() as usize;
            let at = |i: usize| self.low + self.step * i as f64;
            return (0..=n.min(64))
                .map(|i| (at(i), self.label(at(i), self.step)))
                .collect();
        }
        let mut ticks = Vec::new();
        let mut tick = digit_above(self.low * 0.999_999, self.digits);
        while tick <= self.high * 1.000_001 && ticks.len() < 64 {
            let power = 10f64.powf((tick.log10() + 1e-9).floor());
            let finest = if is_whole(tick / power) {
                power
            } else {
                power / 10.0
            };
            ticks.push((tick, self.label(tick, finest)));
            tick = digit_above(tick * 1.01, self.digits);
        }
        ticks
    }

    /// Every k-th tick, among them zero where it is inside: their labels need no more digits than a step of k needs. Axes of powers
    /// of ten have none but [`Axis::ticks`].
    pub fn coarser(&self, k: usize) -> Vec<(f64, String)> {
        if self.step <= 0.0 {
            return Vec::new();
        }
        let k = k.max(1) as f64;
        let (step, first) = (self.step * k, (self.low / self.step).round());
        // As a whole number of steps: sums of fractions drift.
        let first = (first / k).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last)
            .take(65)
            .map(|i| (step * i as f64, self.label(step * i as f64, step)))
            .collect()
    }

    fn label(&self, value: f64, finest: f64) -> String {
        let Unit { size, letter } = self.unit;
        let label = label(value / size, finest / size);
        if label == "0" { label } else { label + letter }
    }
}

/// The smallest 1, 2, 2.5 or 5 times a power of ten that is not below `x`.
fn round_up(x: f64) -> f64 {
    round(x, &[1.0, 2.0, 2.5, 5.0, 10.0])
}

fn round_up_125(x: f64) -> f64 {
    round(x, &[1.0, 2.0, 5.0, 10.0])
}

fn round(x: f64, steps: &[f64]) -> f64 {
    let power = 10f64.powf(x.log10().floor());
    let found = steps.iter().find(|s| **s * power >= x * (1.0 - 1e-9));
    found.copied().unwrap_or(10.0) * power
}

/// The smallest of `digits` times a power of ten that is not below `x`.
fn digit_above(x: f64, digits: &[f64]) -> f64 {
    let power = 10f64.powf(x.log10().floor());
    let found = digits.iter().find(|d| **d * power >= x * (1.0 - 1e-9));
    found.copied().unwrap_or(10.0) * power
}

/// The largest of `digits` times a power of ten that is not above `x`.
fn digit_below(x: f64, digits: &[f64]) -> f64 {
    let power = 10f64.powf(x.log10().floor());
    let found = digits
        .iter()
        .rev()
        .find(|d| **d * power <= x * (1.0 + 1e-9));
    found.copied().unwrap_or(1.0) * power
}

/// `1.5`, `400`, `20k`, `5e-4`: all digits that tell it from its neighbours in a distance of `step`, mostly in six columns.
fn label(value: f64, step: f64) -> String {
    if value.abs() < step * 1e-6 {
        return "0".into();
    }
    let size = value.abs().max(step);
    if size >= 1e4 {
        return large(value, step);
    }
    if step < 9.9e-4 && size < 0.1 {
        return scientific(value, step);
    }
    format!("{value:.*}", decimals(step))
}

/// Most decimals of a label.
const DECIMALS: usize = 6;

/// Decimals that tell multiples of `step` in full.
fn decimals(step: f64) -> usize {
    let whole = |d: &usize| is_whole(step * 10f64.powi(*d as i32));
    (0..DECIMALS).find(whole).unwrap_or(DECIMALS)
}

/// `20k`, `1.25M`
fn large(value: f64, step: f64) -> String {
    const UNITS: [(f64, &str); 4] = [(1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")];
    // What rounds up to a unit has it.
    let size = value.abs() * (1.0 + 1e-9);
    let unit = UNITS.iter().find(|(unit, _)| size >= *unit);
    let (unit, letter) = unit.copied().unwrap_or((1.0, ""));
    let text = format!("{:.*}{letter}", decimals(step / unit), value / unit);
    trimmed(&text)
}

fn is_whole(x: f64) -> bool {
    (x - x.round()).abs() < 1e-6
}

/// `20.0k` → `20k`, `1.50M` → `1.5M`
fn trimmed(text: &str) -> String {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let suffix = &text[digits.len()..];
    if !digits.contains('.') {
        return text.into();
    }
    format!(
        "{}{suffix}",
        digits.trim_end_matches('0').trim_end_matches('.')
    )
}

fn scientific(value: f64, step: f64) -> String {
    let exponent = (value.abs().log10() + 1e-9).floor() as i32;
    let mantissa = value / 10f64.powi(exponent);
    let least = usize::from(step < 10f64.powi(exponent - 1) * (1.0 - 1e-9));
    let decimals = decimals(mantissa).max(least);
    format!("{mantissa:.decimals$}e{exponent}")
}

/// Steps that a chart spans at least.
const FIRST_STEPS: u64 = 48;
/// The same, where nobody knows how many there will be.
const FEWEST_STEPS: u64 = 10;

/// The steps that a chart of a running run spans: round, at least half full once it is past its beginning, and the whole
/// schedule from a quarter of it on, so that the picture is squeezed a few times in a run and not in every frame. A log of
/// unknown length fills its chart up to a tenth.
pub fn step_range(step: u64, max_steps: Option<u64>) -> (f64, f64) {
    let reach = round_up_125((step.max(FIRST_STEPS) as f64) * 1.02);
    let high = match max_steps.filter(|max| *max > 0) {
        Some(max) if reach >= max as f64 * 0.4 => (max.max(step)) as f64,
        Some(_) => reach,
        None if step == 0 => reach,
        None => {
            let unit = 10_u64.pow(step.ilog10().saturating_sub(1));
            step.next_multiple_of(unit).max(FEWEST_STEPS) as f64
        }
    };
    (0.0, high)
}

/// Ticks of an axis of whole numbers, at least `spacing` columns apart on `width` columns: (column, label).
pub fn step_ticks(
    from: f64,
    to: f64,
    width: usize,
    spacing: usize,
    label: impl Fn(f64) -> String,
) -> Vec<(usize, String)> {
    if width == 0 || to <= from {
        return Vec::new();
    }
    let step = round_up(((to - from) * spacing as f64 / width as f64).max(1.0)).ceil();
    let first = (from / step).ceil() * step;
    let mut ticks = Vec::new();
    let mut at = first;
    while at <= to && ticks.len() <= width {
        let column = ((at - from) / (to - from) * width as f64) as usize;
        ticks.push((column.min(width - 1), label(at)));
        at += step;
    }
    ticks
}

/// `1,500`, `20k`
pub fn step_label(step: f64) -> String {
    if step < 10_000.0 {
        return human::grouped(step as u64);
    }
    trimmed(&human::short(step))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(axis: Axis) -> Vec<String> {
        axis.ticks().into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn shares_are_labelled_in_percent_as_they_are_read() {
        let of = |high: f64, scale| labels(Axis::of_unit("share", 0.0, high, 4, scale));
        assert_eq!(of(1.0, Scale::Linear), ["0", "25%", "50%", "75%", "100%"]);
        assert_eq!(
            of(0.002, Scale::Linear),
            ["0", "0.05%", "0.10%", "0.15%", "0.20%"]
        );
        let log = labels(Axis::of_unit("share", 0.01, 1.0, 4, Scale::Log));
        assert!(
            log.contains(&"1%".into()) && log.contains(&"100%".into()),
            "{log:?}"
        );
    }

    #[test]
    fn ranges_are_round_and_labels_short() {
        let axis = Axis::snapped(1.43, 4.17, 4, Scale::Linear);
        assert_eq!((axis.low, axis.high), (1.0, 5.0));
        assert_eq!(labels(axis), ["1", "2", "3", "4", "5"]);
        assert_eq!(
            labels(Axis::snapped(0.0, 1e-3, 4, Scale::Linear)),
            ["0", "2.5e-4", "5e-4", "7.5e-4", "1e-3"]
        );
        assert_eq!(
            labels(Axis::snapped(0.0, 21_300.0, 3, Scale::Linear)),
            ["0", "10k", "20k", "30k"]
        );
        assert_eq!(
            labels(Axis::snapped(0.3, 0.52, 4, Scale::Linear)),
            ["0.3", "0.4", "0.5", "0.6"]
        );
        // Standard deviations of 0 stood on an axis from -1 to 1.
        let zeros = Axis::snapped(0.0, 0.0, 4, Scale::Linear);
        assert_eq!((zeros.low, zeros.high), (0.0, 1.0));
        assert_eq!(
            labels(Axis::snapped(1.6, 4.2, 6, Scale::Log)),
            ["1.5", "2", "2.5", "3", "4", "5"]
        );
        assert_eq!(
            labels(Axis::snapped(1.6, 4.2, 4, Scale::Log)),
            ["1.5", "2", "3", "5"]
        );
        assert_eq!(
            labels(Axis::snapped(2.45, 3.1, 6, Scale::Log)),
            ["2.4", "2.6", "2.8", "3.0", "3.2"]
        );
        assert_eq!(
            labels(Axis::snapped(2e-5, 0.9, 0, Scale::Log)),
            ["1e-4", "0.001", "0.01", "0.1", "1"]
        );
    }

    #[test]
    fn labels_of_a_narrow_range_tell_ticks_apart() {
        for (low, high) in [
            (4.133, 4.1339),
            (1.0001, 1.0002),
            (0.25, 0.2501),
            (12.34, 12.341),
        ] {
            let labels = labels(Axis::snapped(low, high, 4, Scale::Linear));
            let different: std::collections::BTreeSet<&String> = labels.iter().collect();
            assert!(
                labels.len() > 1 && different.len() == labels.len(),
                "{labels:?}"
            );
            assert!(labels.iter().all(|l| l.len() <= 6), "{labels:?}");
        }
    }

    /// What a label says is the value of its tick.
    #[test]
    fn labels_are_the_values_of_their_ticks() {
        assert_eq!(
            labels(Axis::snapped(0.0, 1.2e-4, 5, Scale::Linear)),
            ["0", "2.5e-5", "5e-5", "7.5e-5", "1e-4", "1.25e-4"]
        );
        let rate = Axis::snapped(12_340.0, 12_341.0, 4, Scale::Linear);
        let different: std::collections::BTreeSet<String> = labels(rate).into_iter().collect();
        assert_eq!(different.len(), rate.ticks().len(), "{different:?}");
        let axis = Axis::snapped(0.0, 0.0175, 8, Scale::Linear);
        assert_eq!(axis.ticks().len(), 8);
        let coarse: Vec<String> = axis.coarser(2).into_iter().map(|tick| tick.1).collect();
        assert_eq!(coarse, ["0", "0.005", "0.010", "0.015"]);
        let around_zero = Axis::snapped(-0.0025, 0.005, 4, Scale::Linear);
        let coarse: Vec<String> = around_zero
            .coarser(2)
            .into_iter()
            .map(|tick| tick.1)
            .collect();
        assert_eq!(coarse, ["0", "0.005"]);
    }

    #[test]
    fn bytes_are_round_in_their_own_units() {
        let gib = 1_073_741_824.0;
        assert_eq!(
            labels(Axis::of_bytes(0.0, 1.2 * gib, 4)),
            ["0", "0.5G", "1.0G", "1.5G"]
        );
        assert_eq!(
            labels(Axis::of_bytes(0.0, 78.0 * 1_048_576.0, 4)),
            ["0", "20M", "40M", "60M", "80M"]
        );
    }

    #[test]
    fn times_are_in_the_unit_that_a_reading_has() {
        let axis = |high, scale| labels(Axis::of_unit("ms", 0.0, high, 4, scale));
        assert_eq!(axis(240.0, Scale::Linear), ["0", "100ms", "200ms", "300ms"]);
        assert_eq!(axis(3_030.0, Scale::Linear), ["0", "1s", "2s", "3s", "4s"]);
        assert_eq!(axis(60_000.0, Scale::Linear), ["0", "20s", "40s", "60s"]);
        let log = labels(Axis::of_unit("ms", 300.0, 4_000.0, 8, Scale::Log));
        assert!(
            log.contains(&"0.5s".into()) && log.contains(&"2s".into()),
            "{log:?}"
        );
        assert!(log.iter().all(|label| label.len() <= 6), "{log:?}");
    }

    #[test]
    fn flat_and_empty_data_get_a_range() {
        for value in [0.0, 1e-9, -3.0, 1e12] {
            let axis = Axis::snapped(value, value, 4, Scale::Linear);
            // Zero stands on its axis, as a count of nothing does.
            let below = axis.low < value || value == 0.0 && axis.low == 0.0;
            assert!(below && axis.high > value, "{value} {axis:?}");
        }
        let axis = Axis::snapped(2.0, 2.0, 4, Scale::Log);
        assert!(axis.low <= 2.0 && axis.high > axis.low);
    }

    proptest! {
        #[test]
        fn every_axis_holds_its_data(low in -1e6..1e6f64, span in 0.0..1e6f64, n in 1usize..8, log in any::<bool>()) {
            let scale = if log { Scale::Log } else { Scale::Linear };
            let (low, high) = if log { (low.abs() + 1e-6, low.abs() + span + 1e-6) } else { (low, low + span) };
            let axis = Axis::snapped(low, high, n, scale);
            prop_assert!(axis.place(low) >= -1e-6 && axis.place(high) <= 1.0 + 1e-6, "{:?}", axis);
            let ticks = axis.ticks();
            prop_assert!(!ticks.is_empty());
            prop_assert!(log || ticks.len() <= n + 1, "{:?}", ticks);
            prop_assert!(ticks.iter().all(|(_, l)| l.len() <= 9), "{:?}", ticks);
        }
    }

    #[test]
    fn the_step_axis_grows_a_few_times_only() {
        let mut ranges: Vec<f64> = (0..=2000).map(|s| step_range(s, Some(2000)).1).collect();
        ranges.dedup();
        assert_eq!(ranges, [50.0, 100.0, 200.0, 500.0, 2000.0]);
        assert_eq!(step_range(2000, Some(2000)).1, 2000.0);
        assert_eq!(
            step_range(2100, Some(2000)).1,
            2100.0,
            "a run may go past its plan"
        );
        // Without a plan what is there fills the chart.
        assert_eq!(step_range(101, None).1, 110.0);
        for step in [10, 48, 101, 999, 1_001, 5_000, 123_456] {
            let reach = step_range(step, Some(0)).1;
            assert!(
                (1.0..=1.1).contains(&(reach / step as f64)),
                "{step}: {reach}"
            );
        }
    }

    #[test]
    fn step_ticks_keep_their_distance() {
        let ticks = step_ticks(0.0, 2000.0, 60, 8, step_label);
        assert_eq!(
            ticks.iter().map(|t| t.1.as_str()).collect::<Vec<_>>(),
            ["0", "500", "1,000", "1,500", "2,000"]
        );
        assert!(ticks.windows(2).all(|t| t[1].0 - t[0].0 >= 8));
        assert!(step_ticks(5.0, 5.0, 10, 4, step_label).is_empty());
        assert_eq!(step_ticks(0.0, 3e6, 40, 10, step_label)[1].1, "1M");
    }
}
