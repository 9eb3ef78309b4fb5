//! Choosing small runs that predict a large one: the target scaled down along one axis, everything else equal.

use super::request::Request;
use super::solve::scaled;
use crate::spec::{RunSpec, TrainConfig};

/// Runs needed to fit three constants.
pub const FEWEST: usize = 3;
/// Below this many steps a loss reflects the initial drop more than the trend.
pub const FEWEST_STEPS: u64 = 200;
/// The largest run has at least this many times the steps of the smallest.
const SPREAD: f64 = 1.5;

/// What is scaled down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// Fewer steps of the same model, each run with its own complete schedule.
    Tokens,
    /// A smaller model of the same proportions on the same tokens.
    Size,
}

impl Axis {
    pub const ALL: [(&str, Axis); 2] = [("tokens", Axis::Tokens), ("size", Axis::Size)];

    pub fn word(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, a)| *a == self)
            .map_or("", |(word, _)| word)
    }

    /// A request's position on the axis: tokens, or parameters in matmuls per token.
    pub fn of(self, request: &Request) -> f64 {
        match self {
            Axis::Tokens => request.tokens as f64,
            Axis::Size => request.arch.n_matmul() as f64,
        }
    }
}

/// One small run.
#[derive(Debug, Clone, PartialEq)]
pub struct SmallRun {
    /// `-s` overrides that turn the target into it.
    pub settings: Vec<String>,
    pub request: Request,
    pub steps: u64,
}

/// Why no small runs can be chosen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TooSmall {
    #[error(
        "the target has {0} steps: shorter runs of fewer than {FEWEST_STEPS} steps predict little, and longer ones cost as much as the target"
    )]
    Steps(u64),
    #[error("the target has {0} heads: there are no {1} smaller models with its proportions")]
    Heads(u64, usize),
}

/// `n` runs, smallest first. Along tokens each has about half the steps of the next one and the largest an eighth of the
/// target's, but none fewer than [`FEWEST_STEPS`]; a short target's largest run then has up to half of its steps.
///
/// # Errors
/// The target is too small for so many smaller ones.
pub fn choose(
    spec: &RunSpec,
    target: &Request,
    axis: Axis,
    n: usize,
) -> Result<Vec<SmallRun>, TooSmall> {
    // What epochs come to is known to the plan, whose data were counted.
    let counted = spec.train.epochs.map(|_| {
        // A step's tokens are a mean, so its number is one nearly.
        let steps = target.tokens as f64 / target.batch_tokens().max(1) as f64;
        let train = &spec.train;
        let steps = match train.batch_ramp.is_empty() {
            true => steps.round() as u64,
            // The first steps are smaller.
            false => train.steps_of((steps * train.grad_accum_steps as f64).round() as u64),
        };
        spec.clone().in_steps().to_step(steps.max(1))
    });
    let spec = counted.as_ref().unwrap_or(spec);
    let runs = match axis {
        Axis::Tokens => by_tokens(spec, target, n)?,
        Axis::Size => by_size(spec, target, n)?,
    };
    let quiet = [
        // What is compared is one evaluation of the whole split at the end.
        "eval.every=0",
        "sample.every=0",
        "checkpoint.every=0",
    ];
    // Runs that count in steps read the data in the order of a target that counts in epochs.
    let order = counted
        .as_ref()
        .filter(|_| axis == Axis::Tokens)
        .and_then(|spec| {
            let order = spec.to_value()["data"]["order"].as_str().map(String::from);
            order.map(|order| format!("data.order={order}"))
        });
    Ok(runs
        .into_iter()
        .enumerate()
        .map(|(i, mut run)| {
            run.settings.extend(order.clone());
            let short: String = spec.name.chars().take(48).collect();
            run.settings
                .push(format!("name={short}-{}-{}", axis.word(), i + 1));
            run.settings.extend(quiet.map(String::from));
            run
        })
        .collect())
}

fn by_tokens(spec: &RunSpec, target: &Request, n: usize) -> Result<Vec<SmallRun>, TooSmall> {
    let most = spec.train.max_steps;
    let doublings = (1_u64 << (n - 1)) as f64;
    let eighth = most as f64 / 8.0;
    let first = (eighth / doublings).max(FEWEST_STEPS as f64);
    let last = eighth.max(first * doublings).min(most as f64 / 2.0);
    if last < SPREAD * first {
        return Err(TooSmall::Steps(most));
    }
    let ratio = (last / first).powf(1.0 / (n - 1) as f64);
    Ok((0..n)
        .map(|i| {
            let steps = (first * ratio.powi(i as i32)).round() as u64;
            let train = ramped(&spec.train, steps);
            let mut settings = vec![format!("train.max_steps={steps}")];
            settings.extend(warmup(spec, steps));
            settings.extend(ramp(&spec.train, &train));
            let mut request = target.clone();
            let [small, whole] = [train.micro_steps(steps), spec.train.micro_steps(most)];
            let tokens = u128::from(target.tokens) * u128::from(small) / u128::from(whole.max(1));
            request.tokens = u64::try_from(tokens).unwrap_or(u64::MAX);
            SmallRun {
                settings,
                request,
                steps,
            }
        })
        .collect())
}

/// A warm-up scaled to the run.
fn warmup(spec: &RunSpec, run: u64) -> Option<String> {
    let id = spec.schedule.entry().id;
    let steps = spec.to_value()["schedule"][id]["warmup_steps"].as_u64()?;
    let share = steps * run / spec.train.max_steps.max(1);
    Some(format!("schedule.{id}.warmup_steps={share}"))
}

/// A ramp of the batch size that ends at the same share of the run; stages that are shorter than a step then are gone.
fn ramped(train: &TrainConfig, run: u64) -> TrainConfig {
    let mut small = train.clone();
    let mut before = 0;
    small.batch_ramp.retain_mut(|stage| {
        let share = stage.until_step as f64 / train.max_steps.max(1) as f64;
        stage.until_step = (share * run as f64).round() as u64;
        let stays = stage.until_step > before;
        before = before.max(stage.until_step);
        stays
    });
    small
}

/// The setting of a run's own ramp, where the target has one.
fn ramp(target: &TrainConfig, small: &TrainConfig) -> Option<String> {
    let stages = serde_json::to_string(&small.batch_ramp).ok()?;
    (!target.batch_ramp.is_empty()).then(|| format!("train.batch_ramp={stages}"))
}

fn by_size(spec: &RunSpec, target: &Request, n: usize) -> Result<Vec<SmallRun>, TooSmall> {
    let heads = target.arch.n_head();
    let refuse = || TooSmall::Heads(heads, n);
    let mut runs: Vec<SmallRun> = Vec::new();
    let mut next = heads;
    for i in 0..n {
        let wanted = target.arch.n_matmul() as f64 / f64::from(8_u32 << i);
        let distance = |h: &u64| {
            let size = scaled(&target.arch, *h).n_matmul() as f64;
            ((size / wanted).ln().abs() * 1e6) as u64
        };
        // Small targets have few widths: leave one for each remaining run.
        let left = (n - 1 - i) as u64;
        let h = (left + 1..next).min_by_key(distance).ok_or_else(refuse)?;
        next = h;
        let arch = scaled(&target.arch, h);
        let settings = vec![
            format!("model.n_head={h}"),
            format!("model.n_kv_head={}", arch.shape().n_kv_head),
            format!("model.d_model={}", arch.d_model()),
            format!("model.d_ff={}", arch.shape().d_ff),
            format!("model.n_layer={}", arch.n_layer()),
        ];
        let request = Request {
            arch,
            ..target.clone()
        };
        runs.push(SmallRun {
            settings,
            request,
            steps: spec.train.max_steps,
        });
    }
    runs.reverse();
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{target, work};
    use crate::spec;

    fn quickstart() -> (RunSpec, Request) {
        let spec = spec::load("quickstart", &[], &Default::default())
            .unwrap()
            .spec;
        (
            spec,
            target::resolve("quickstart", &[], &Default::default()).unwrap(),
        )
    }

    #[test]
    fn every_run_is_a_valid_spec_that_is_smaller_than_the_next() {
        let (spec, request) = quickstart();
        for (_, axis) in Axis::ALL {
            let runs = choose(&spec, &request, axis, 3).unwrap();
            assert_eq!(runs.len(), 3);
            let mut before = 0.0;
            for run in &runs {
                let loaded = spec::load("quickstart", &run.settings, &Default::default()).unwrap();
                assert_eq!(loaded.spec.train.max_steps, run.steps);
                let planned = target::of_spec(
                    &loaded.spec,
                    target::DataSize {
                        vocab_size: 65,
                        ..Default::default()
                    },
                );
                assert_eq!(
                    (&planned.arch, planned.tokens),
                    (&run.request.arch, run.request.tokens)
                );
                assert!(axis.of(&run.request) > before);
                before = axis.of(&run.request);
            }
            assert!(before < axis.of(&request));
        }
    }

    #[test]
    fn runs_along_tokens_are_long_enough_to_say_something_and_cheap_where_the_target_is_long() {
        let (_, request) = quickstart();
        let chosen = |max_steps: u64, n| {
            let set = [format!("max_steps={max_steps}")];
            let spec = spec::load("quickstart", &set, &Default::default())
                .unwrap()
                .spec;
            let mut request = request.clone();
            request.tokens = max_steps * 768;
            choose(&spec, &request, Axis::Tokens, n)
        };
        let steps = |max_steps, n| -> Vec<u64> {
            let runs = chosen(max_steps, n).unwrap();
            runs.iter().map(|run| run.steps).collect()
        };
        assert_eq!(steps(64_000, 3), [2_000, 4_000, 8_000]);
        assert_eq!(steps(2_000, 3), [200, 400, 800]);
        assert_eq!(steps(2_000, 4), [200, 342, 585, 1_000]);
        assert_eq!(chosen(500, 3), Err(TooSmall::Steps(500)));
        // Epochs count as what they come to.
        let set = ["epochs=3".to_string()];
        let epochs = spec::load("quickstart", &set, &Default::default());
        let mut counted = request.clone();
        counted.tokens = 64_000 * 768;
        let runs = choose(&epochs.unwrap().spec, &counted, Axis::Tokens, 3).unwrap();
        let steps_of: Vec<u64> = runs.iter().map(|run| run.steps).collect();
        assert_eq!(steps_of, [2_000, 4_000, 8_000]);
        let order = "data.order=shuffled".to_string();
        assert!(runs.iter().all(|run| run.settings.contains(&order)));
        let runs = chosen(64_000, 3).unwrap();
        assert!(runs.iter().all(|run| !run.settings.contains(&order)));
        let cost: f64 = runs.iter().map(|r| work::work(&r.request).flops).sum();
        let mut whole = request.clone();
        whole.tokens = 64_000 * 768;
        assert!(cost < 0.25 * work::work(&whole).flops);
        let warmup = "schedule.cosine.warmup_steps=3".to_string();
        assert!(runs[0].settings.contains(&warmup), "{runs:?}");
    }

    /// Every rung trained with the small batch of the target's beginning, and was fitted at tokens that it never read.
    #[test]
    fn a_ramp_of_the_batch_size_is_scaled_with_the_run() {
        let load = |words: &[String]| {
            let loaded = spec::load("quickstart", words, &Default::default());
            loaded.unwrap().spec
        };
        let target_words = [
            "max_steps=4000".to_string(),
            "grad_accum_steps=4".into(),
            "train.batch_ramp=[{until_step: 4, grad_accum_steps: 1}, {until_step: 1500, grad_accum_steps: 2}]".into(),
        ];
        let target = load(&target_words);
        let (_, mut request) = quickstart();
        request.tokens = target.run_tokens();
        let runs = choose(&target, &request, Axis::Tokens, 3).unwrap();
        for run in &runs {
            let words = [&target_words[..], &run.settings].concat();
            let small = load(&words);
            assert_eq!(small.run_tokens(), run.request.tokens, "{run:?}");
            let ends: Vec<u64> = small
                .train
                .batch_ramp
                .iter()
                .map(|s| s.until_step)
                .collect();
            let end = run.steps * 1500 / 4000;
            // The first stage is shorter than a step of the smallest run.
            assert!(ends == [end] || ends == [1, end], "{ends:?}");
        }
        let first = "train.batch_ramp=[{\"grad_accum_steps\":2,\"until_step\":75}]".to_string();
        assert!(runs[0].settings.contains(&first), "{runs:?}");
        let plain = choose(&quickstart().0, &request, Axis::Tokens, 3).unwrap();
        assert!(!plain[0].settings.iter().any(|word| word.contains("ramp")));
    }

    #[test]
    fn a_target_that_is_small_itself_is_refused() {
        let (mut spec, request) = quickstart();
        assert!(choose(&spec, &request, Axis::Size, 4).is_err());
        spec = spec::load("quickstart", &["max_steps=100".into()], &Default::default())
            .unwrap()
            .spec;
        assert_eq!(
            choose(&spec, &request, Axis::Tokens, 3),
            Err(TooSmall::Steps(100))
        );
    }
}
