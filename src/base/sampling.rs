//! How the next token is chosen: the words that the wire, the chat pane and the generator share.

use serde::{Deserialize, Serialize};

/// Decoding settings. The order of application is: repetition penalty, temperature, top-k, top-p, draw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Softmax temperature; 0 takes the most likely token (greedy).
    pub temperature: f32,
    /// Keep only the k most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep the smallest set of tokens whose probability reaches p; 1 keeps all.
    pub top_p: f32,
    /// Divide positive and multiply negative logits of tokens seen so far (Keskar et al. 2019); 1 changes nothing.
    pub repetition_penalty: f32,
    /// Stop after this many new tokens.
    pub max_new_tokens: usize,
    /// Seed of the draws; the same seed, prompt and checkpoint give the same text.
    pub seed: u64,
    /// Stop when one of these strings appears in the new text.
    pub stop: Vec<String>,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            temperature: 0.8,
            top_k: 0,
            top_p: 1.0,
            repetition_penalty: 1.0,
            max_new_tokens: 200,
            seed: 1337,
            stop: Vec::new(),
        }
    }
}
