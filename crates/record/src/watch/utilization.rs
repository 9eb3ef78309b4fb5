//! Model FLOPs utilization of one log, as a share of 1: nanoGPT and nanochat log it in percent without saying so.

use super::Item;
use super::names::{Mapping, Role};
use crate::wire::id;
use crate::wire::id::MFU;

/// The unit that a log has, as far as it was read.
#[derive(Debug, Default)]
pub struct Utilization {
    /// Its values are percents, those of less than 1 % too.
    in_percent: bool,
}

impl Utilization {
    /// Looks at readings before they are translated: one value above 1 decides for all of them.
    pub fn look(&mut self, items: &[Item], mapping: &Mapping) {
        if self.in_percent {
            return;
        }
        self.in_percent = items.iter().any(|item| match item {
            Item::Readings { values, .. } => values
                .iter()
                .any(|(name, x)| is_utilization(name, mapping) && is_percent(*x, values)),
            _ => false,
        });
    }

    /// A value as reported, `factor` being that of its name; `None` where it says nothing: nanoGPT logs -100 until it has
    /// measured one.
    pub fn value(&self, id: &str, x: f64, factor: f64) -> Option<f64> {
        let own_unit = factor == 1.0 && self.in_percent;
        match id {
            MFU if x < 0.0 => None,
            MFU if own_unit => Some(x / 100.0),
            _ => Some(x * factor),
        }
    }
}

fn is_utilization(name: &str, mapping: &Mapping) -> bool {
    // Translating every name twice would take as long as all the rest.
    let ends = name.get(name.len().saturating_sub(MFU.len())..);
    (ends.is_some_and(|end| end.eq_ignore_ascii_case(MFU)) || mapping.is_mapped(name))
        && mapping.role(name) == Role::Metric(MFU.into(), 1.0)
}

/// Whether a value beside these others is in percent.
fn is_percent(x: f64, values: &[(String, f64)]) -> bool {
    let has = |wanted: &str| values.iter().any(|(name, _)| name == wanted);
    let is_of_nanogpt = has("iter") && has(id::VAL_LOSS);
    let is_of_nanochat = has("train/lrm");
    x > 1.0 || x <= -100.0 || is_of_nanogpt || is_of_nanochat
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(records: &[&[(&str, f64)]]) -> Vec<Option<f64>> {
        let items: Vec<Item> = records
            .iter()
            .map(|values| Item::Readings {
                step: Some(1),
                t: None,
                values: values
                    .iter()
                    .map(|(name, x)| ((*name).into(), *x))
                    .collect(),
            })
            .collect();
        let mut utilization = Utilization::default();
        utilization.look(&items, &Mapping::default());
        let all = records.iter().flat_map(|values| values.iter());
        let all = all.filter(|(name, _)| name.ends_with(MFU));
        all.map(|(_, x)| utilization.value(MFU, *x, 1.0)).collect()
    }

    #[test]
    fn one_value_above_one_makes_all_of_the_log_percents() {
        let shares = read(&[&[("mfu", 0.45)], &[("mfu", 1.0)], &[("mfu", 0.009)]]);
        assert_eq!(shares, [Some(0.45), Some(1.0), Some(0.009)]);
        let near = read(&[&[("mfu", 0.9)], &[("train/mfu", 1.1)], &[("mfu", 1.0)]]);
        assert_eq!(near, [Some(0.9 / 100.0), Some(1.1 / 100.0), Some(0.01)]);
        assert_eq!(
            read(&[&[("mfu", -100.0)], &[("mfu", 0.5)]]),
            [None, Some(0.005)]
        );
        let nanogpt = read(&[&[("iter", 5.0), ("val/loss", 3.0), ("mfu", 0.8)]]);
        assert_eq!(nanogpt, [Some(0.008)]);
        assert_eq!(
            read(&[&[("train/lrm", 1.0), ("train/mfu", 0.8)]]),
            [Some(0.008)]
        );
    }

    #[test]
    fn a_name_with_a_unit_keeps_it_and_other_metrics_are_left_alone() {
        let utilization = Utilization { in_percent: true };
        assert_eq!(utilization.value(MFU, 45.0, 0.01), Some(0.45));
        assert_eq!(utilization.value("tflops", 45.2, 1.0), Some(45.2));
        assert_eq!(utilization.value("step_ms", 2.0, 1e3), Some(2e3));
        assert_eq!(Utilization::default().value(MFU, 0.45, 1.0), Some(0.45));
    }
}
