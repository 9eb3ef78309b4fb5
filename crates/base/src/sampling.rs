//! Sampling settings, shared by the wire, the chat pane and the generator.

use serde::{Deserialize, Serialize};

/// What happens when the context is full.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ContextLimit {
    /// Conversations stop; base models and samples during training roll.
    #[default]
    Auto,
    /// Generation ends, and the result says so.
    Stop,
    /// The newer half of the text is prefilled again from position 0 and generation continues; the older half is
    /// dropped.
    Roll,
}

/// Sampling settings. They apply in the order of transformers' logits processors: repetition penalty, temperature, top-k,
/// top-p, min-p, then the draw. Temperature 0 takes the top-1 token after the penalty; the cutoffs have no effect then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Softmax temperature; 0 takes the most likely token (greedy).
    pub temperature: f32,
    /// Keep only the k most likely tokens, including ties with the k-th; 0 keeps all.
    pub top_k: usize,
    /// Keep the smallest set of tokens whose probability reaches p (Holtzman et al. 2020); 1 keeps all.
    pub top_p: f32,
    /// Keep tokens with at least this fraction of the top-1 probability (Nguyen et al. 2024); 0 keeps all.
    pub min_p: f32,
    /// Divide positive and multiply negative logits of tokens already in the context, prompt included (Keskar et al. 2019);
    /// 1 turns it off.
    pub repetition_penalty: f32,
    /// Generate at most this many tokens.
    pub max_new_tokens: usize,
    /// Sampling seed; the same seed, prompt and checkpoint give the same text.
    pub seed: u64,
    /// Stop when one of these strings is generated.
    pub stop: Vec<String>,
    /// What happens when the context is full: `stop`, `roll`, or `auto` (conversations drop their oldest turns; base models and samples
    /// during training roll).
    pub context: ContextLimit,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            temperature: 0.8,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            max_new_tokens: 200,
            seed: 1337,
            stop: Vec::new(),
            context: ContextLimit::Auto,
        }
    }
}
