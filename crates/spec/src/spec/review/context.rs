//! A context that is longer than the start model's: how far its scaling reaches, what rows train of it, how long, and which weights.

use super::{Subject, poor};
use crate::base::finding::Finding;
use crate::base::human::grouped;
use crate::nn::AdapterConfig;
use crate::nn::adapter::Whole;
use crate::nn::position::ScalingConfig;
use crate::spec::base;

const YARN: &str = "YaRN's authors: 400 steps of 64 rows as long as the new context for 16 times Llama 2's, full fine-tuning at lr 2e-5 (Peng et al. 2023, arXiv 2309.00071, section 4.1)";
const LONG_LORA: &str = "Chen et al. 2023, arXiv 2309.12307 (LongLoRA): LoRA of attention comes close to full fine-tuning with trainable embeddings and norms, and not without";
/// The fewest steps: Position Interpolation is near its final perplexity after 200 (arXiv 2306.15595, section 3.3).
const FEWEST: u64 = 200;
const USUAL: u64 = 400;

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let spec = subject.spec;
    let model = &spec.model;
    let scaling = model.position.rope().and_then(|rope| rope.scaling.as_ref());
    let (Some(scaling), Some(from)) = (scaling, &spec.train.from) else {
        return Vec::new();
    };
    let Ok(start) = base::base_model(from) else {
        return Vec::new();
    };
    if !start.config().is_stretched_in(model) {
        return Vec::new();
    }
    let original = match scaling {
        ScalingConfig::Linear(_) | ScalingConfig::Ntk(_) => start.config().original_context(),
        other => other.original_context(model.context()),
    };
    let (rows, context) = (model.seq_len, model.context());
    let mut found = Vec::new();
    // Llama 3.1 itself was trained beyond its factor, and LongRoPE has none.
    let has_reach = !matches!(
        scaling,
        ScalingConfig::Llama3(_) | ScalingConfig::Longrope(_)
    );
    let reached = (original as f64 * scaling.factor()).round() as usize;
    let kind = scaling.entry().id;
    if has_reach && context > reached {
        let needed = context as f64 / original as f64;
        found.push(poor(
            "model.position.rope.scaling",
            format!(
                "factor {} stretches {} tokens to {}, and the context is {}: positions behind turn further than any that the start model has seen",
                scaling.factor(),
                grouped(original as u64),
                grouped(reached as u64),
                grouped(context as u64)
            ),
            format!("-s model.position.rope.scaling.{kind}.factor={needed}"),
            scaling.entry().source,
        ));
    }
    if rows < context && rows <= original {
        found.push(poor(
            "model.seq_len",
            format!(
                "rows of {} tokens train none of the positions from {} to {}",
                grouped(rows as u64),
                grouped(original as u64),
                grouped(context as u64)
            ),
            format!("-s model.seq_len={context}"),
            YARN,
        ));
    }
    let steps = spec.train.max_steps;
    if subject.is_a_language_model() && steps < FEWEST {
        found.push(poor(
            "train.max_steps",
            format!("{steps} steps are few for new positions; 200 to 1,000 are usual, fewer tokens for a small factor"),
            format!("-s train.max_steps={USUAL}"),
            YARN,
        ));
    }
    if let Some(AdapterConfig::Lora(lora)) = &spec.adapter
        && subject.is_a_language_model()
        && spec.packed_base().is_none()
        && !lora.modules_to_save.contains(&Whole::Embeddings)
    {
        found.push(poor(
            "adapter.lora.modules_to_save",
            "a longer context is learned worse by adapters alone: all weights (-s adapter=null), or embeddings beside the adapters"
                .into(),
            "-s adapter.lora.modules_to_save=[embeddings]".into(),
            LONG_LORA,
        ));
    }
    found
}
