//! The readings of probes at a step.

use crate::wire::{Num, Values};
use std::collections::BTreeMap;

/// Digits of a value on the wire: a list for each block must stay short.
const DIGITS: usize = 5;

/// Readings of one step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// One value each.
    pub values: Values,
    /// A value for each block each.
    pub layers: BTreeMap<String, Vec<Num>>,
}

impl Report {
    pub fn set(&mut self, id: &str, value: f64) {
        self.values.insert(id.into(), Num(rounded(value)));
    }

    /// A list for the metric `id`, whose name ends in `/layer`.
    pub fn set_layers(&mut self, id: &str, values: impl IntoIterator<Item = f64>) {
        let values = values.into_iter().map(|x| Num(rounded(x))).collect();
        self.layers.insert(id.into(), values);
    }
}

/// Rounds to few digits; non-finite values stay.
fn rounded(x: f64) -> f64 {
    if !x.is_finite() || x == 0.0 {
        return x;
    }
    format!("{x:.*e}", DIGITS - 1).parse().unwrap_or(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_short_and_non_finite_ones_survive() {
        assert_eq!(rounded(0.000123456789), 0.00012346);
        assert_eq!(rounded(-98765.4321), -98765.0);
        assert_eq!((rounded(0.0), rounded(f64::INFINITY)), (0.0, f64::INFINITY));
        assert!(rounded(f64::NAN).is_nan());
    }
}
