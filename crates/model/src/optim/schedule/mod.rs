//! Learning-rate schedules: the factor on the peak learning rate as a function of the step. A function of the step alone,
//! so a resumed run needs no schedule state.

mod constant;
mod cosine;
mod inverse_sqrt;
mod linear;
mod none;
mod polynomial;
mod wsd;

/// A learning-rate schedule.
pub trait Schedule {
    /// Steps of linear warm-up.
    fn warmup_steps(&self) -> u64;
    /// No effect on schedules without a warm-up.
    fn set_warmup_steps(&mut self, steps: u64);
    /// The learning rate at the end, or the lower bound, if one is set.
    fn min_lr(&self) -> Option<f64> {
        None
    }
    /// The learning rate of update number `step` (from 0) in a run of `max_steps` with peak `lr`.
    fn lr_at(&self, step: u64, max_steps: u64, lr: f64) -> f64;
}

crate::base::registry! {
    /// How the learning rate changes over the run.
    pub enum ScheduleConfig: dyn Schedule {
        cosine: Cosine,
        linear: Linear,
        constant: Constant,
        wsd: Wsd,
        polynomial: Polynomial,
        inverse_sqrt: InverseSqrt = "inverse_sqrt",
        none: Unscheduled = "none",
    }
}

/// The warm-up of a schedule whose field `warmup_steps` it is.
macro_rules! warm_up {
    () => {
        fn warmup_steps(&self) -> u64 {
            self.warmup_steps
        }

        fn set_warmup_steps(&mut self, steps: u64) {
            self.warmup_steps = steps;
        }
    };
}
use warm_up;

/// The fraction of warm-up reached at `step`, nanoGPT's convention: (step + 1) / (warmup + 1), so that the first update
/// is not wasted on a rate of zero. `None` once warm-up is over.
fn warmup_factor(step: u64, warmup_steps: u64) -> Option<f64> {
    (step < warmup_steps).then(|| (step + 1) as f64 / (warmup_steps as f64 + 1.0))
}

/// Warm-up, then `shape(lr, min_lr, progress)` with progress in [0, 1]. `min_lr` defaults to a tenth of the peak `lr`.
fn decay(
    (step, warmup_steps, max_steps): (u64, u64, u64),
    lr: f64,
    min_lr: Option<f64>,
    shape: impl Fn(f64, f64, f64) -> f64,
) -> f64 {
    if let Some(factor) = warmup_factor(step, warmup_steps) {
        return lr * factor;
    }
    let span = max_steps.saturating_sub(warmup_steps).max(1) as f64;
    let progress = ((step - warmup_steps) as f64 / span).min(1.0);
    shape(lr, min_lr.unwrap_or(lr / 10.0), progress)
}

#[cfg(test)]
mod tests {
    use super::ScheduleConfig;

    /// transformers 5.23 at steps 10, 11, 50, 90, 99 and 100 of 100, peak 1e-3, after a warm-up of 10 (other programs warm
    /// up by step / warmup, from 0).
    #[test]
    fn rates_after_the_warm_up_match_transformers() {
        let known = [
            (
                r#"{"polynomial": {"warmup_steps": 10, "min_lr": 1e-4}}"#,
                [
                    1e-3,
                    9.801111111e-4,
                    3.777777778e-4,
                    1.111111111e-4,
                    1.001111111e-4,
                    1e-4,
                ],
            ),
            (
                r#"{"wsd": {"warmup_steps": 10, "decay_fraction": 0.2}}"#,
                [1e-3, 1e-3, 1e-3, 5.5e-4, 1.45e-4, 1e-4],
            ),
            (
                r#"{"wsd": {"warmup_steps": 10, "decay_fraction": 0.2, "shape": "cosine"}}"#,
                [1e-3, 1e-3, 1e-3, 5.5e-4, 1.055402467e-4, 1e-4],
            ),
            (
                r#"{"wsd": {"warmup_steps": 10, "decay_fraction": 0.2, "shape": "sqrt"}}"#,
                [1e-3, 1e-3, 1e-3, 3.636038969e-4, 1.227885090e-4, 1e-4],
            ),
            (
                r#"{"inverse_sqrt": {"warmup_steps": 10}}"#,
                [
                    1e-3,
                    9.534625892e-4,
                    4.472135955e-4,
                    3.333333333e-4,
                    3.178208631e-4,
                    3.162277660e-4,
                ],
            ),
            (
                r#"{"inverse_sqrt": {}}"#,
                [
                    9.995003747e-4,
                    9.994504533e-4,
                    9.975093361e-4,
                    9.955301490e-4,
                    9.950864531e-4,
                    9.950371902e-4,
                ],
            ),
            (
                r#"{"cosine": {"warmup_steps": 10, "min_lr": 0}}"#,
                [
                    1e-3,
                    9.996954135e-4,
                    5.868240888e-4,
                    3.015368960e-5,
                    3.045864905e-7,
                    0.0,
                ],
            ),
            (
                r#"{"linear": {"warmup_steps": 10, "min_lr": 0}}"#,
                [
                    1e-3,
                    9.888888889e-4,
                    5.555555556e-4,
                    1.111111111e-4,
                    1.111111111e-5,
                    0.0,
                ],
            ),
            (r#"{"constant": {"warmup_steps": 10}}"#, [1e-3; 6]),
            (r#"{"none": {}}"#, [1e-3; 6]),
        ];
        for (config, rates) in known {
            let schedule: ScheduleConfig = serde_json::from_str(config).unwrap();
            for (step, rate) in [10, 11, 50, 90, 99, 100].into_iter().zip(rates) {
                let found = schedule.lr_at(step, 100, 1e-3);
                assert!(
                    (found - rate).abs() < 1e-12,
                    "{config} {step}: {found} for {rate}"
                );
            }
        }
    }

    #[test]
    fn every_schedule_but_none_warms_up_to_the_peak() {
        for entry in ScheduleConfig::ENTRIES {
            let settings = match entry.id {
                "none" => serde_json::json!({}),
                _ => serde_json::json!({"warmup_steps": 4}),
            };
            let config = serde_json::json!({entry.id: settings});
            let schedule: ScheduleConfig = serde_json::from_value(config).unwrap();
            let rates: Vec<f64> = (0..5).map(|s| schedule.lr_at(s, 100, 1.0)).collect();
            assert_eq!(rates[4], 1.0, "{}", entry.id);
            assert_eq!(rates[0] < 1.0, entry.id != "none", "{rates:?}");
            assert!(rates.windows(2).all(|w| w[0] <= w[1]), "{rates:?}");
        }
    }
}
