//! How the next token is chosen: the words that the wire, the chat pane and the generator share.

use serde::{Deserialize, Serialize};

/// What happens when a text has filled the model's context.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ContextLimit {
    /// Chat stops, samples of a run in training roll.
    #[default]
    Auto,
    /// The text ends there, and the end says so.
    Stop,
    /// The newer half of the text is read again from the first position, and the text goes on; what stood before is
    /// forgotten.
    Roll,
}

/// Decoding settings. They apply in the order of transformers' logits processors: repetition penalty, temperature, top-k,
/// top-p, min-p, then the draw. Temperature 0 takes the most likely token after the penalty; the cuts mean nothing then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Softmax temperature; 0 takes the most likely token (greedy).
    pub temperature: f32,
    /// Keep only the k most likely tokens, and those as likely as the k-th; 0 keeps all.
    pub top_k: usize,
    /// Keep the smallest set of tokens whose probability reaches p (Holtzman et al. 2020); 1 keeps all.
    pub top_p: f32,
    /// Keep tokens at least this fraction as likely as the likeliest (Nguyen et al. 2024); 0 keeps all.
    pub min_p: f32,
    /// Divide positive and multiply negative logits of tokens seen so far, the prompt's included (Keskar et al. 2019);
    /// 1 changes nothing.
    pub repetition_penalty: f32,
    /// Stop after this many new tokens.
    pub max_new_tokens: usize,
    /// Seed of the draws; the same seed, prompt and checkpoint give the same text.
    pub seed: u64,
    /// Stop when one of these strings appears in the new text.
    pub stop: Vec<String>,
    /// What happens when the context is full: `stop`, `roll`, or `auto` (chat stops, samples in training roll).
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
