//! One optimizer update: gradients over the micro-batches, their norm, clipping, the step. Shared by the training loop, the
//! overfit check and the benchmark.

use crate::base::rng::{Rng, Stream};
use crate::data::{ANSWER_PLACES, Batch, Unit};
use crate::methods::policy::SAMPLER_LOGP;
use crate::methods::{Method, micro_step, of_batches};
use crate::metrics::Readings;
use crate::nn::{ExpertLoad, Model, Regularizers, StepPosition};
use crate::optim::{UpdateRule, clip_scale};
use crate::probes::Probes;
use candle_core::Result;
use std::borrow::Cow;

/// The position of an update in its run.
#[derive(Debug, Clone, Copy, Default)]
pub struct At {
    pub seed: u64,
    /// Number of its first micro-step.
    pub micro_step: u64,
}

/// How far an update goes.
#[derive(Debug, Clone, Copy)]
pub struct Rates {
    pub lr: f64,
    /// Global gradient norm above which gradients are scaled down; 0 is off.
    pub clip_norm: f64,
}

/// Results of a step's micro-batches; the gradient is in the model.
#[derive(Debug, Clone, Default)]
pub struct Gradients {
    /// The method's loss over the whole step.
    pub loss: f64,
    pub readings: Readings,
    /// Global L2 norm before clipping.
    pub norm: f64,
    pub experts: Option<ExpertLoad>,
}

impl Gradients {
    /// Whether loss and norm are finite: otherwise the weights must not be updated.
    pub fn are_finite(&self) -> bool {
        self.loss.is_finite() && self.norm.is_finite()
    }
}

/// The passes of a micro-batch: more than one for answers to prompts, in a model whose rows know nothing of each other
/// (experts balance their load over a pass).
fn passes<'a>(model: &Model, batch: &'a Batch) -> Cow<'a, [Batch]> {
    let own = batch.unit == Unit::Prompt && batch.column(SAMPLER_LOGP).is_some();
    let apart = own && model.config().moe.is_none();
    match apart && batch.batch_size * batch.seq_len > ANSWER_PLACES {
        true => Cow::Owned(batch.parts(ANSWER_PLACES)),
        false => Cow::Borrowed(std::slice::from_ref(batch)),
    }
}

/// Sums the gradient over the micro-batches of a step. Each is divided by what the method's normalizer counts in all of
/// them, so that accumulation equals one large batch.
///
/// # Errors
/// A batch that the model or the method refuses.
pub fn gradients(
    method: &dyn Method,
    model: &mut Model,
    batches: &[Batch],
    at: At,
) -> Result<Gradients> {
    gradients_seen(method, model, batches, at, &mut Probes::default())
}

/// The same while `probes` look on.
///
/// # Errors
/// A batch that the model or the method refuses.
pub fn gradients_seen(
    method: &dyn Method,
    model: &mut Model,
    batches: &[Batch],
    at: At,
    probes: &mut Probes,
) -> Result<Gradients> {
    let method = of_batches(method, batches);
    let normalizer = method.normalizer().count(batches).max(1) as f64;
    let mut found = Gradients::default();
    model.begin_step()?;
    for (micro, batch) in batches.iter().enumerate() {
        let mut position = StepPosition {
            seed: at.seed,
            micro_step: at.micro_step + micro as u64,
            first_token: 0,
            share: 1.0 / batches.len() as f64,
        };
        model.set_step_position(position);
        probes.before_micro(micro, model);
        let mut share = 0.0;
        for part in passes(model, batch).iter() {
            model.set_step_position(position);
            position.first_token += part.inputs.len();
            share += micro_step(method, model, part, normalizer, &mut found.readings)?;
        }
        found.loss += share;
        let own = method.normalizer().count(std::slice::from_ref(batch)) as f64;
        let mean = share * normalizer / own.max(1.0);
        probes.after_micro(micro, model, (mean, own / normalizer))?;
    }
    found.experts = model.expert_load();
    found.norm = model.params().grad_norm()?;
    Ok(found)
}

/// Where the update rule wants to know the curvature: the gradient on labels that the model draws itself (Gauss–Newton–Bartlett, Liu et
/// al. 2023, arXiv 2305.14342). Gradients are overwritten; batches stay as they are.
///
/// # Errors
/// A batch that the model or the method refuses.
pub fn curvature(
    method: &dyn Method,
    model: &mut Model,
    optimizer: &mut dyn UpdateRule,
    batches: &[Batch],
    at: At,
) -> Result<()> {
    if !optimizer.wants_curvature() {
        return Ok(());
    }
    let method = of_batches(method, batches);
    let labels = method.normalizer().count(batches).max(1) as f64;
    let own = model.set_regularizers(Regularizers::default());
    model.params_mut().zero_grads()?;
    for (micro, batch) in batches.iter().enumerate() {
        let micro_step = at.micro_step + micro as u64;
        let drawn = with_drawn_labels(model, batch, at.seed, micro_step)?;
        model.set_step_position(StepPosition {
            seed: at.seed,
            micro_step,
            first_token: 0,
            share: 0.0,
        });
        micro_step_of(method, model, &drawn, labels)?;
    }
    model.set_regularizers(own);
    optimizer.take_curvature(model.params(), labels)
}

fn micro_step_of(method: &dyn Method, model: &mut Model, batch: &Batch, labels: f64) -> Result<()> {
    micro_step(method, model, batch, labels, &mut Readings::default()).map(|_| ())
}

/// The batch with targets drawn from what the model expects at each supervised place; texts of packed rows are read apart, as the gradient reads them.
fn with_drawn_labels(model: &mut Model, batch: &Batch, seed: u64, step: u64) -> Result<Batch> {
    let mut drawn = batch.clone();
    for row in 0..batch.batch_size {
        let places = row * batch.seq_len..(row + 1) * batch.seq_len;
        let first = (!batch.first.is_empty()).then(|| &batch.first[places.clone()]);
        let inputs = &batch.inputs[places.clone()];
        let logits = model.logits_of_texts(inputs, first, 1, batch.seq_len)?;
        let logits = logits.flatten_all()?.to_vec1::<f32>()?;
        let vocab = logits.len() / batch.seq_len.max(1);
        let mut rng = Rng::new(seed, Stream::Labels, step, row as u32);
        for (at, logits) in places.zip(logits.chunks_exact(vocab.max(1))) {
            let uniform = rng.uniform_f64();
            if batch.mask.is_empty() || batch.mask[at] {
                drawn.targets[at] = draw(logits, uniform);
            }
        }
    }
    Ok(drawn)
}

/// The token at the share `uniform` of the distribution.
fn draw(logits: &[f32], uniform: f64) -> u32 {
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |x: &f32| f64::from(x - top).exp();
    let mut left = uniform * logits.iter().map(weight).sum::<f64>();
    let reached = logits.iter().position(|x| {
        left -= weight(x);
        left < 0.0
    });
    reached.unwrap_or(logits.len().saturating_sub(1)) as u32
}

/// Clips and updates the weights by the gradient in the model; says whether it was clipped.
///
/// # Errors
/// Those of the optimizer.
pub fn apply(
    model: &mut Model,
    optimizer: &mut dyn UpdateRule,
    norm: f64,
    rates: Rates,
) -> Result<bool> {
    let scale = clip_scale(norm, rates.clip_norm);
    optimizer.step(model.params_mut(), rates.lr, scale)?;
    model.end_step()?;
    Ok(scale < 1.0)
}

/// One whole update. A loss or gradient that is not finite changes no weight: see [`Gradients::are_finite`].
///
/// # Errors
/// A batch that the model or the method refuses.
pub fn update(
    method: &dyn Method,
    model: &mut Model,
    optimizer: &mut dyn UpdateRule,
    batches: &[Batch],
    at: At,
    rates: Rates,
) -> Result<(Gradients, bool)> {
    optimizer.show_average(model.params_mut(), false)?;
    curvature(method, model, optimizer, batches, at)?;
    let found = gradients(method, model, batches, at)?;
    let clipped = found.are_finite() && apply(model, optimizer, found.norm, rates)?;
    Ok((found, clipped))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tests::tiny;

    #[test]
    fn labels_are_drawn_as_often_as_the_model_expects_them() {
        let logits = [0.0_f32, 3_f32.ln(), f32::NEG_INFINITY, 4_f32.ln()];
        let mut counts = [0; 4];
        for i in 0..800 {
            counts[draw(&logits, (f64::from(i) + 0.5) / 800.0) as usize] += 1;
        }
        assert_eq!(counts, [100, 300, 0, 400]);
        assert_eq!(draw(&logits, 1.0), 3, "rounding leads to the last");
    }

    /// Answers that go through the model in parts have the gradient that they have together.
    #[test]
    fn answers_in_parts_have_the_gradient_of_all() {
        in_parts(&[]);
    }

    /// Dropout masks of the parts are those of the whole.
    #[test]
    fn parts_drop_features_as_the_whole_does() {
        in_parts(&["model.dropout=0.3"]);
        in_parts(&["adapter.lora.rank=2", "adapter.lora.dropout=0.5"]);
    }

    fn in_parts(words: &[&str]) {
        let (spec, data) = tiny(words);
        let mut state = crate::engine::TrainState::fresh(&spec, &data).unwrap();
        let model = &mut state.models.policy;
        let mut batch = data.train_batch(1, 0, 3 * ANSWER_PLACES / data.seq_len() + 1);
        let places = batch.inputs.len();
        batch.mask = (0..places).map(|at| at % 3 > 0).collect();
        let mut found = |batch: &Batch| {
            assert_eq!(
                passes(model, batch).len(),
                if batch.unit == Unit::Text { 1 } else { 4 }
            );
            let found = gradients(
                &*spec.method,
                model,
                std::slice::from_ref(batch),
                At::default(),
            );
            (
                found.unwrap(),
                model.params().read_grads(<[f32]>::to_vec).unwrap(),
            )
        };
        let (whole, exact) = found(&batch);
        batch.unit = Unit::Prompt;
        let values = vec![0.0; places];
        batch.columns.push(crate::data::Column {
            name: SAMPLER_LOGP,
            values,
        });
        let (parts, grads) = found(&batch);
        assert!((parts.loss - whole.loss).abs() < 1e-5 * whole.loss.abs());
        let entropy = |found: &Gradients| found.readings.mean("entropy");
        let (a, b) = (entropy(&parts).unwrap(), entropy(&whole).unwrap());
        assert!((a - b).abs() < 1e-5 * b, "{a} {b}");
        let largest = exact.iter().fold(0.0_f32, |top, x| top.max(x.abs()));
        for (a, b) in grads.iter().zip(&exact) {
            assert!((a - b).abs() < 1e-5 * largest, "{a} and {b} of {largest}");
        }
    }

    /// A step that is measured but not applied has no effect on the next: no expert's bias changes.
    #[test]
    fn a_step_that_is_not_applied_leaves_nothing_behind() {
        let (spec, data) = tiny(&["model.moe.n_expert=4", "model.moe.balancing.bias.rate=0.5"]);
        let after = |looks: bool| {
            let mut state = crate::engine::TrainState::fresh(&spec, &data).unwrap();
            let (model, rule) = (&mut state.models.policy, &mut *state.optimizer);
            let at = At::default();
            if looks {
                gradients(&*spec.method, model, &[data.train_batch(9, 0, 16)], at).unwrap();
            }
            let rates = Rates {
                lr: 1e-3,
                clip_norm: 1.0,
            };
            let batches = [data.train_batch(1, 0, 2)];
            let (found, _) = update(&*spec.method, model, rule, &batches, at, rates).unwrap();
            let weights = model.params().read_weights(<[f32]>::to_vec).unwrap();
            (found.experts, weights)
        };
        assert!(after(true) == after(false));
    }

    /// The mean gradient on labels that the model draws is zero, in expectation: it falls as one over the root of their number.
    #[test]
    fn the_gradient_on_drawn_labels_is_noise_around_zero() {
        let (spec, data) = tiny(&["optimizer=sophia", "optimizer.sophia.every=1"]);
        let mut state = crate::engine::TrainState::fresh(&spec, &data).unwrap();
        let model = &mut state.models.policy;
        let norm = |model: &mut Model, rows: usize| {
            let batch = data.train_batch(1, 0, rows);
            let drawn = with_drawn_labels(model, &batch, 1, 7).unwrap();
            assert_eq!(drawn, with_drawn_labels(model, &batch, 1, 7).unwrap());
            assert_ne!(drawn.targets, batch.targets);
            let found = gradients(&*spec.method, model, &[drawn], At::default()).unwrap();
            let own = gradients(&*spec.method, model, &[batch], At::default()).unwrap();
            (found.norm, own.norm)
        };
        let ((few, own), (many, _)) = (norm(model, 4), norm(model, 256));
        assert!(
            (4.0..16.0).contains(&(few / many)),
            "{few} {many}: a factor of 8"
        );
        assert!(many < own / 2.0, "{many} {own}");
    }

    /// Texts in one row do not see each other, nor may the labels that are drawn for them: their gradient was far from 0.
    #[test]
    fn labels_of_packed_texts_are_drawn_as_the_gradient_reads_them() {
        let (spec, data) = tiny(&["optimizer=sophia"]);
        let mut state = crate::engine::TrainState::fresh(&spec, &data).unwrap();
        let model = &mut state.models.policy;
        let mut batch = data.train_batch(1, 0, 1);
        let half = batch.seq_len / 2;
        batch.first = (0..batch.seq_len)
            .map(|at| if at < half { 0 } else { half as u32 })
            .collect();
        let drawn = with_drawn_labels(model, &batch, 1, 7).unwrap();
        let mut other = batch.clone();
        other.inputs[0] = (other.inputs[0] + 1) % 60;
        let beside = with_drawn_labels(model, &other, 1, 7).unwrap();
        assert_eq!(drawn.targets[half..], beside.targets[half..]);
        let all = |batch: &Batch| batch.first.clone();
        assert_eq!(all(&drawn), batch.first);
        // As one text they would differ: the second half reads the first.
        batch.first.clear();
        let logits = |model: &mut Model, first: Option<&[u32]>| {
            let row = model.logits_of_texts(&batch.inputs, first, 1, batch.seq_len);
            row.unwrap()
                .flatten_all()
                .unwrap()
                .to_vec1::<f32>()
                .unwrap()
        };
        assert_ne!(logits(model, None), logits(model, Some(&all(&drawn))));
    }
}
