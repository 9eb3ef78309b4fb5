//! What a draft would cost, for the step before the start: size, tokens, passes, memory. Figures that need a model of this
//! machine's speed are the plan room's.

use crate::advisor::look::DataFacts;
use crate::base::human;
use crate::nn::ModelConfig;
use crate::spec::{Draft, RunSpec};

/// Bytes of f32 weights, gradients and two moments for each parameter.
const STATES: u64 = 16;

/// Parameters of a draft's model; the vocabulary comes from the data where the tokenizer is made from it.
pub fn n_params(draft: &Draft, data: Option<&DataFacts>) -> Option<u64> {
    let spec = draft.spec().ok()?;
    Some(count(&spec.model, vocab_size(&spec, data)))
}

fn vocab_size(spec: &RunSpec, data: Option<&DataFacts>) -> usize {
    let distinct = data.and_then(|d| d.distinct).unwrap_or(65);
    spec.data.tokenizer.vocab_size().unwrap_or(distinct)
}

/// The decoder's parameters: embeddings, attention with grouped heads, feed-forward, norms.
fn count(model: &ModelConfig, vocab_size: usize) -> u64 {
    let s = model.shape(vocab_size);
    let (d, kv) = (s.d_model as u64, (s.n_kv_head * s.head_dim) as u64);
    let bias = u64::from(model.bias);
    let matrices = if model.mlp.gated() { 3 } else { 2 };
    let d_ff = s.d_ff as u64;
    let attention = 2 * d * d + 2 * d * kv + bias * (2 * d + 2 * kv);
    let mlp = matrices * d * d_ff + bias * ((matrices - 1) * d_ff + d);
    let norm = match model.norm.entry().id {
        "layernorm" => d * (1 + bias),
        _ => d,
    };
    let learned = model.position.entry().id == "learned";
    let positions = if learned { s.seq_len as u64 * d } else { 0 };
    let heads = if model.tie_embeddings { 1 } else { 2 };
    s.vocab_size as u64 * d * heads
        + positions
        + s.n_layer as u64 * (attention + mlp + 2 * norm)
        + norm
}

/// Lines of the plan: a word and what stands behind it.
pub(super) fn lines(
    spec: &RunSpec,
    data: Option<&DataFacts>,
    memory: Option<u64>,
) -> Vec<(&'static str, String)> {
    let vocab = vocab_size(spec, data);
    let n = count(&spec.model, vocab);
    let tokens = spec.batch_tokens() * spec.train.max_steps;
    let m = &spec.model;
    let mut lines = vec![
        (
            "model",
            format!(
                "{} parameters: {} layers of {}, {} tokens of context, vocabulary {}",
                human::short(n as f64),
                m.n_layer,
                m.d_model,
                human::grouped(m.seq_len as u64),
                human::grouped(vocab as u64)
            ),
        ),
        (
            "steps",
            format!(
                "{} of {} tokens each, {} in all",
                human::grouped(spec.train.max_steps),
                human::grouped(spec.batch_tokens()),
                human::short(tokens as f64)
            ),
        ),
    ];
    if let Some(chars) = data.and_then(|d| d.chars) {
        let by_char = spec.data.tokenizer.entry().id == "char";
        let held = chars as f64 * (1.0 - spec.data.val_fraction);
        let (passes, about) = match by_char {
            true => (tokens as f64 / held, ""),
            false => (tokens as f64 / (held / 2.5), "about "),
        };
        lines.push((
            "data",
            format!(
                "{about}{passes:.1} passes over {} characters of training text",
                human::short(held)
            ),
        ));
    }
    let states = STATES * n;
    let of = memory.map_or(String::new(), |m| format!(" of {}", human::bytes(m)));
    lines.push((
        "memory",
        format!(
            "{}{of} for weights, gradients and moments; activations come on top",
            human::bytes(states)
        ),
    ));
    let kept = spec.checkpoint.keep_last as u64 + 1;
    lines.push((
        "disk",
        format!(
            "{} for up to {kept} checkpoints",
            human::bytes(kept * n * 12)
        ),
    ));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::SpecSources;

    #[test]
    fn parameters_are_counted_as_the_model_counts_them() {
        for preset in ["quickstart", "smoke", "shakespeare-bpe"] {
            let draft = Draft::open(preset, &SpecSources::default()).unwrap();
            let spec = draft.spec().unwrap();
            let vocab = spec.data.tokenizer.vocab_size().unwrap_or(65);
            let device = &candle_core::Device::Cpu;
            let model = crate::nn::Model::new(&spec.model, vocab, device).unwrap();
            let counted = n_params(&draft, None);
            assert_eq!(counted, Some(model.n_params() as u64), "{preset}");
        }
    }
}
