//! Rank and scale of adapters against width and data.

use super::{Subject, poor};
use crate::base::finding::Finding;
use crate::base::human::short;
use crate::models::is_gguf;
use crate::nn::AdapterConfig;
use crate::nn::adapter::{Lora, RankAlpha, Whole};
use crate::spec::{Growth, PresetGroup, RunSpec};

/// Tokens of text that adapters of a small rank cannot take in.
const MUCH: u64 = 50_000_000;
/// The rank that is recommended for them.
pub const HIGH_RANK: usize = 64;

pub fn review(subject: &Subject<'_>) -> Vec<Finding> {
    let (spec, mut list) = (subject.spec, Vec::new());
    let Some(AdapterConfig::Lora(lora)) = &spec.adapter else {
        return list;
    };
    // A demo says of itself that it has no base.
    if subject.begins_at_random() && spec.group != PresetGroup::Demo {
        list.push(poor(
            "adapter",
            "the weights under the adapters are random and stay random".into(),
            "name a trained model with -s train.from=MODEL".into(),
            "Hu et al. 2021, arXiv 2106.09685: adapters fine-tune a trained model",
        ));
    }
    let quantized = spec.train.from.as_deref().filter(|from| is_gguf(from));
    if let (Some(_), true, false) = (
        quantized,
        spec.model.is_reward_model(),
        spec.train.dequantize,
    ) {
        list.push(poor(
            "train.from",
            "a reward model needs f32 weights: the base of this file is dequantized to f32, in memory and in every checkpoint".into(),
            "confirm with -s train.dequantize=true; the plan counts its memory".into(),
            "docs/models.md, QLoRA: quantized weights are only for methods that train language models",
        ));
    }
    list.extend(new_tokens(spec, lora));
    list.extend(sizes(spec, lora));
    let rank = lora.ranks().1;
    let much = subject
        .sizes
        .pass_tokens
        .is_some_and(|tokens| tokens > MUCH);
    if much && spec.method.entry().id == "pretrain" && rank < HIGH_RANK {
        list.push(poor(
            "adapter",
            format!(
                "rank {rank} for {} tokens of new text: adapters of that size lack the capacity",
                short(subject.sizes.pass_tokens.unwrap_or_default() as f64)
            ),
            format!("-s adapter.lora.rank={HIGH_RANK}"),
            "Biderman et al. 2024, arXiv 2405.09673: LoRA learns less from large corpora; Schulman et al. 2025, LoRA without regret",
        ));
    }
    list
}

/// Rows of new tokens that stay what they begin as: nothing trains them.
fn new_tokens(spec: &RunSpec, lora: &Lora) -> Option<Finding> {
    let growth = Growth::of(spec)?;
    let trains = |whole| lora.modules_to_save.contains(&whole);
    let head_stays = growth.has_head && !trains(Whole::Head);
    let frozen = match (!trains(Whole::Embeddings), head_stays) {
        (true, true) => "embeddings and head",
        (true, false) => "the embeddings",
        (false, true) => "the head",
        (false, false) => return None,
    };
    let new = growth.to - growth.from;
    Some(poor(
        "adapter.lora.modules_to_save",
        format!(
            "{new} rows for new tokens in {frozen} are frozen under the adapters: they stay at the mean of the others, so the new tokens \
             are not learned"
        ),
        format!("-s adapter.lora.modules_to_save={}", growth.tables()),
        "PEFT, developer guide on LoRA: embeddings that gained tokens train beside the adapters",
    ))
}

/// Rank and scale of all modules, and of the first whose own is out of range.
fn sizes(spec: &RunSpec, lora: &Lora) -> Vec<Finding> {
    let width = spec.model.d_model;
    let common = RankAlpha {
        rank: lora.rank,
        alpha: lora.alpha,
    };
    let own = match lora.rank_pattern.is_empty() && lora.alpha_pattern.is_empty() {
        true => Vec::new(),
        false => lora.modules_of(&spec.model),
    };
    // With patterns for all of them the common size is nobody's.
    let mut each: Vec<(Option<&str>, RankAlpha)> = own
        .iter()
        .map(|module| (Some(module.as_str()), lora.size_of(module)))
        .collect();
    if own.is_empty() {
        each.push((None, common));
    }
    let of = |module: Option<&str>| module.map_or(String::new(), |module| format!(" of {module}"));
    let mut list = Vec::new();
    if let Some((module, size)) = each.iter().find(|(_, size)| 2 * size.rank > width) {
        let least = (width / 8).max(1);
        list.push(poor(
            "adapter",
            format!(
                "rank {}{} is more than half of the width {width}: the two factors have more parameters than the matrix",
                size.rank,
                of(*module)
            ),
            match size.rank == lora.rank {
                true => format!("-s adapter.lora.rank={least}, or train all weights"),
                false => format!("a rank of about {least} for it in adapter.lora.rank_pattern, or train all weights"),
            },
            "Hu et al. 2021, arXiv 2106.09685: ranks from 1 to 64 are enough",
        ));
    }
    let far = |size: RankAlpha| !(0.2..=8.0).contains(&lora.scale_of(size));
    if let Some((module, size)) = each.iter().find(|(_, size)| far(*size)) {
        let word = if lora.rslora {
            "alpha / √rank"
        } else {
            "alpha / rank"
        };
        list.push(poor(
            "adapter",
            format!(
                "{word}{} is {:.2}: it scales the effective learning rate of the adapter",
                of(*module),
                lora.scale_of(*size)
            ),
            match *size == common {
                true => format!("-s adapter.lora.alpha={}", 2 * lora.rank),
                false => format!("an alpha of about {} for it in adapter.lora.alpha_pattern", 2 * size.rank),
            },
            "alpha = rank to 2 · rank: PEFT, QLoRA (arXiv 2305.14314); keep the ratio when the rank changes",
        ));
    }
    list
}
