//! The weighted mean of models (model soups: Wortsman et al. 2022, arXiv 2203.05482).

use super::{Method, Setting, Settings, Tensors};

pub(super) const LINEAR: Method = Method {
    word: "linear",
    summary: "the weighted mean",
    has_base: false,
    normalizes: true,
    reads: &[Setting::Normalize],
    merge,
};

fn merge(tensors: &Tensors, settings: &Settings, out: &mut [f32]) {
    let total: f64 = settings.weights.iter().sum();
    let divisor = match settings.normalize {
        true => total,
        false => 1.0,
    };
    for (values, weight) in tensors.models.iter().zip(&settings.weights) {
        let share = (weight / divisor) as f32;
        for (out, value) in out.iter_mut().zip(values) {
            *out += share * value;
        }
    }
}
