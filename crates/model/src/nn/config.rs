//! The architecture of a decoder, as given in a spec. Which values are incompatible is in `faults`.

use super::{
    mixer::MixerConfig,
    mla::MlaConfig,
    mlp::MlpConfig,
    moe::MoeConfig,
    norm::NormConfig,
    position::{PositionConfig, RopeConfig, ScalingConfig},
};
use crate::kernels::attention::Heads;
use serde::{Deserialize, Serialize};

/// A decoder-only transformer. Defaults are the quickstart's: a small GPT-2 style model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// Number of transformer blocks.
    #[schemars(range(min = 1, max = 1000))]
    pub n_layer: usize,
    /// Query heads; must divide d_model, unless head_dim is given.
    #[schemars(range(min = 1, max = 1024))]
    pub n_head: usize,
    /// Key/value heads; must divide n_head. Equal to n_head is multi-head, 1 is multi-query, between is grouped-query
    /// attention. Default: n_head.
    #[schemars(range(min = 1, max = 1024))]
    pub n_kv_head: Option<usize>,
    /// The kind of attention by name: n_kv_head is checked against it, and `mqa` by itself sets n_kv_head 1. Default:
    /// from n_kv_head.
    pub attention_type: Option<AttentionType>,
    /// Features of one head. Default: d_model / n_head.
    #[schemars(range(min = 1, max = 1024))]
    pub head_dim: Option<usize>,
    /// Width of the residual stream.
    #[schemars(range(min = 1, max = 131072))]
    pub d_model: usize,
    /// Width inside the feed-forward block. Default: 4 × d_model, or 8/3 × d_model rounded up to a multiple of 64 for
    /// gated blocks.
    #[schemars(range(min = 1, max = 1048576))]
    pub d_ff: Option<usize>,
    /// Length of training sequences in tokens, and the longest context unless `context_len` is longer. Beyond the context of a
    /// start model with RoPE position.rope.scaling stretches its positions.
    #[schemars(range(min = 1, max = 1048576))]
    pub seq_len: usize,
    /// Context in tokens that checkpoints and exports declare. Default: with `train.from` and RoPE the start model's, else
    /// seq_len.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1048576))]
    pub context_len: Option<usize>,
    /// Vocabulary size. Default: from the tokenizer.
    #[schemars(range(min = 2, max = 10000000))]
    pub vocab_size: Option<usize>,
    /// Multi-head latent attention: keys and values of all heads come from one latent vector of each token (DeepSeek-V2 and V3).
    /// Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mla: Option<MlaConfig>,
    /// What blocks without attention have in its place, in hybrid models (LFM2, Qwen 3.5, Granite 4). Default: all blocks have
    /// attention.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mixer: Option<MixerConfig>,
    /// With a mixer: every n-th block has attention (Qwen 3.5: 4). Default: none, unless attention_blocks names some.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub attention_every: Option<usize>,
    /// With a mixer: the blocks that have attention, counted from 0 (LFM2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_blocks: Option<Vec<usize>>,
    /// Position encoding.
    pub position: PositionConfig,
    /// Sliding-window attention: a token attends to at most this many tokens up to itself (Mistral). Default: all.
    #[schemars(range(min = 1, max = 1048576))]
    pub sliding_window: Option<usize>,
    /// With a sliding window: every n-th block has none (Gemma 2: 2, Gemma 3: 6). Default: all blocks have the window.
    #[schemars(range(min = 1, max = 1000))]
    pub global_every: Option<usize>,
    /// Of every `global_every` blocks the first has no window, in place of the last (GPT-Neo).
    #[serde(skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub global_first: bool,
    /// Normalize queries and keys by RMSNorm before RoPE (Qwen3, OLMo 2); `qk_norm_over` says what one norm is over.
    pub qk_norm: bool,
    /// What one norm of `qk_norm` is over.
    #[serde(skip_serializing_if = "QkNormOver::is_head")]
    #[schemars(extend("default" = "head"))]
    pub qk_norm_over: QkNormOver,
    /// Multiply the output of attention by sigmoid(gate(x)), a linear layer of the block's input with a feature for each
    /// of its own (Qwen 3.5; Qiu et al. 2025, arXiv 2505.06708).
    #[serde(skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub attention_gate: bool,
    /// A learned score of each query head joins those of the keys in the softmax, without a value: a head may attend to little
    /// (gpt-oss, arXiv 2508.10925).
    #[serde(skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub attention_sinks: bool,
    /// Scale of the attention scores. Default: 1 / √head_dim.
    #[schemars(range(min = 1e-6, max = 1000.0))]
    pub attention_scale: Option<f64>,
    /// Attention scores s become c · tanh(s / c), so |s| stays below c (Gemma 2: 50). Default: no cap.
    #[schemars(range(min = 1e-3, max = 1e6))]
    pub attention_softcap: Option<f64>,
    /// The same for the logits of the vocabulary (Gemma 2: 30). Default: no cap.
    #[schemars(range(min = 1e-3, max = 1e6))]
    pub logit_softcap: Option<f64>,
    /// Multiplier of the token embeddings (Gemma: √d_model). Default: 1.
    #[schemars(range(min = 1e-6, max = 1e6))]
    pub embedding_scale: Option<f64>,
    /// Multiplier of what attention and feed-forward blocks add to the residual stream (Granite). Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1e-6, max = 1000.0))]
    pub residual_scale: Option<f64>,
    /// Multiplier of the logits, before logit_softcap (Granite: 1 / logits_scaling). Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1e-6, max = 1e6))]
    pub logit_scale: Option<f64>,
    /// Normalization of the residual stream.
    pub norm: NormConfig,
    /// Where a block normalizes.
    pub norm_placement: NormPlacement,
    /// Attention and the feed-forward block read the same residual stream x and are added to it together: x +
    /// attention(norm1(x)) + mlp(norm2(x)) (GPT-NeoX, Black et al. 2022). Otherwise the feed-forward block reads it
    /// after attention.
    #[serde(skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub parallel_residual: bool,
    /// The feed-forward block.
    pub mlp: MlpConfig,
    /// Many feed-forward blocks, of which each token passes a few. Default: one block for all.
    pub moe: Option<MoeConfig>,
    /// Dropout probability in training: of the embeddings, and of what attention and feed-forward blocks add to the
    /// residual stream.
    #[schemars(range(min = 0.0, max = 0.95))]
    pub dropout: f64,
    /// Bias vectors in all linear layers and layer norms.
    pub bias: bool,
    /// Bias vectors in attention, where `bias` is off; with `output` where it is on, too.
    pub attention_bias: AttentionBias,
    /// The output head shares the token embedding's weights.
    pub tie_embeddings: bool,
    /// Output head. Default: from the method.
    #[serde(skip_serializing_if = "HeadKind::is_vocabulary")]
    #[schemars(extend("default" = "vocabulary"))]
    pub head: HeadKind,
    /// Adds a value head: a critic on the policy's own trunk. Default: from the method (`method.ppo.critic:
    /// shared`).
    #[serde(skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub value_head: bool,
    /// Standard deviation of initial weights; projections into the residual stream get init_std / √(2 · n_layer)
    /// (GPT-2).
    #[schemars(range(min = 0.0, max = 1.0))]
    pub init_std: f64,
    /// The `model_type` of transformers that checkpoints and exports have, where several compute the same. Default: with
    /// `train.from` the start model's, else the first of docs/models.md that does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
}

/// Kinds of attention by their key/value heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AttentionType {
    /// Multi-head: every query head has keys and values of its own (Vaswani et al. 2017).
    Mha,
    /// Grouped-query: query heads share them in groups (Ainslie et al. 2023, arXiv 2305.13245).
    Gqa,
    /// Multi-query: all query heads share them (Shazeer 2019, arXiv 1911.02150).
    Mqa,
}

/// Which linear layers of attention have a bias.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum AttentionBias {
    /// None of them.
    #[default]
    None,
    /// Queries, keys and values (Qwen2).
    Qkv,
    /// Those and the projection out (Llama's attention_bias).
    All,
    /// The projection out alone, whatever `bias` is (GPT-Neo).
    Output,
}

/// What one norm of queries or keys is over.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum QkNormOver {
    /// One head, with one gain of head_dim for all query heads and one for all key heads (Qwen3).
    #[default]
    Head,
    /// All heads of a token as one vector, with a gain for each of their features: n_head · head_dim for queries, n_kv_head ·
    /// head_dim for keys (OLMo 2).
    AllHeads,
}

impl QkNormOver {
    fn is_head(&self) -> bool {
        *self == QkNormOver::Head
    }
}

/// What the hidden states become.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum HeadKind {
    /// Logits of the vocabulary: the model writes.
    #[default]
    Vocabulary,
    /// One number: a reward model, which judges answers and writes none.
    Score,
}

fn is_false(x: &bool) -> bool {
    !x
}

impl HeadKind {
    fn is_vocabulary(&self) -> bool {
        *self == HeadKind::Vocabulary
    }
}

/// Where a block normalizes. With f attention or the feed-forward block:
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum NormPlacement {
    /// x + f(norm(x)), and once more after the last block: GPT-2, Llama and most since.
    #[default]
    Pre,
    /// norm(x + f(x)), as the first transformer (Vaswani et al. 2017); nothing after the last block.
    Post,
    /// x + norm(f(norm(x))), and once more after the last block: Gemma 2 and 3.
    Both,
    /// x + norm(f(x)), and once more after the last block: OLMo 2 and 3 (reordered norm, arXiv 2501.00656), and before them
    /// Swin v2 (res-post-norm, arXiv 2111.09883).
    Reordered,
}

impl NormPlacement {
    /// Whether a norm is between a sub-layer and the sum with the residual stream.
    pub(crate) fn is_before_sum(self) -> bool {
        matches!(self, NormPlacement::Both | NormPlacement::Reordered)
    }
}

impl Default for ModelConfig {
    fn default() -> Self {
        ModelConfig {
            n_layer: 4,
            n_head: 4,
            n_kv_head: None,
            attention_type: None,
            context_len: None,
            head_dim: None,
            d_model: 128,
            d_ff: None,
            seq_len: 64,
            vocab_size: None,
            mla: None,
            mixer: None,
            attention_every: None,
            attention_blocks: None,
            position: PositionConfig::Learned(Default::default()),
            sliding_window: None,
            global_every: None,
            global_first: false,
            qk_norm: false,
            qk_norm_over: QkNormOver::Head,
            attention_gate: false,
            attention_sinks: false,
            attention_scale: None,
            attention_softcap: None,
            logit_softcap: None,
            embedding_scale: None,
            residual_scale: None,
            logit_scale: None,
            norm: NormConfig::LayerNorm(Default::default()),
            norm_placement: NormPlacement::Pre,
            parallel_residual: false,
            mlp: MlpConfig::Gelu(Default::default()),
            moe: None,
            dropout: 0.0,
            bias: false,
            attention_bias: AttentionBias::None,
            tie_embeddings: true,
            head: HeadKind::Vocabulary,
            value_head: false,
            init_std: 0.02,
            family: None,
        }
    }
}

/// The sizes of a [`ModelConfig`] with every default filled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelShape {
    pub n_layer: usize,
    pub n_head: usize,
    pub n_kv_head: usize,
    pub head_dim: usize,
    pub d_model: usize,
    /// Width inside a feed-forward block; with experts, of one expert.
    pub d_ff: usize,
    pub seq_len: usize,
    pub vocab_size: usize,
}

impl ModelShape {
    /// The heads of one token's queries, keys and values.
    pub(crate) fn heads(&self) -> Heads {
        Heads {
            n_head: self.n_head,
            n_kv_head: self.n_kv_head,
            head_dim: self.head_dim,
        }
    }
}

impl ModelConfig {
    /// Fills in the derived sizes; `vocab_size` is the tokenizer's, used if the config has none.
    pub fn shape(&self, vocab_size: usize) -> ModelShape {
        let d_ff = self.d_ff.unwrap_or_else(|| {
            if self.mlp.gated() {
                (8 * self.d_model).div_ceil(3).next_multiple_of(64)
            } else {
                4 * self.d_model
            }
        });
        ModelShape {
            n_layer: self.n_layer,
            n_head: self.n_head,
            n_kv_head: self.kv_heads(),
            head_dim: self.head_width(),
            d_model: self.d_model,
            d_ff,
            seq_len: self.seq_len,
            vocab_size: self.vocab_size.unwrap_or(vocab_size),
        }
    }

    /// The config for model files: shorter training sequences do not shorten the model's context, and a value head is left out,
    /// because model files have none.
    pub fn in_files(&self) -> ModelConfig {
        ModelConfig {
            seq_len: self.context(),
            context_len: None,
            value_head: false,
            ..self.clone()
        }
    }

    /// The longest text in tokens, also where the rows of training are shorter.
    pub fn context(&self) -> usize {
        self.context_len.unwrap_or(self.seq_len).max(self.seq_len)
    }

    /// The context before rotary positions were scaled.
    pub fn original_context(&self) -> usize {
        let scaling = self.position.rope().and_then(|rope| rope.scaling.as_ref());
        let context = self.context();
        scaling.map_or(context, |scaling| scaling.original_context(context))
    }

    /// Whether `other`, of the same model, has other rotations or a longer context.
    pub fn is_stretched_in(&self, other: &ModelConfig) -> bool {
        let both = self.position.rope().zip(other.position.rope());
        both.is_some_and(|(ours, theirs)| {
            let turns = |config: &ModelConfig, rope: &RopeConfig| {
                rope.rotation(config.rope_head_dim(), config.context())
            };
            let (ours, theirs) = (turns(self, ours), turns(other, theirs));
            !ours.is_about(&theirs) || self.context() < other.context()
        })
    }

    /// Whether the same weights work at another context length: there are no positions but distances, or rotations independent of it.
    pub fn keeps_context(&self) -> bool {
        if let PositionConfig::None(_) | PositionConfig::Alibi(_) = &self.position {
            return true;
        }
        self.position
            .rope()
            .is_some_and(|rope| match &rope.scaling {
                None
                | Some(
                    ScalingConfig::Linear(_) | ScalingConfig::Ntk(_) | ScalingConfig::Llama3(_),
                ) => true,
                Some(ScalingConfig::Yarn(yarn)) => yarn.original_len.is_some(),
                Some(ScalingConfig::Longrope(_)) => false,
            })
    }

    /// Whether the output head is the table of token embeddings: a score has its own vector.
    pub fn ties_head(&self) -> bool {
        self.tie_embeddings && self.head == HeadKind::Vocabulary
    }

    /// Whether it is a reward model instead of a language model.
    pub fn is_reward_model(&self) -> bool {
        self.head == HeadKind::Score
    }

    /// What logits are divided by, 1 / logit_scale, as Granite's files have it: a whole number if it is one up to rounding.
    pub fn logit_divisor(&self) -> f64 {
        let divisor = 1.0 / self.logit_scale.unwrap_or(1.0);
        match (divisor - divisor.round()).abs() <= 1e-9 * divisor {
            true => divisor.round(),
            false => divisor,
        }
    }

    /// Features of one head; with latent attention, in attention's kernels.
    pub fn head_width(&self) -> usize {
        if let Some(mla) = &self.mla {
            return mla.head_dim();
        }
        self.head_dim
            .unwrap_or_else(|| self.d_model / self.n_head.max(1))
    }

    /// Key/value heads.
    pub fn kv_heads(&self) -> usize {
        let by_name = match self.attention_type {
            Some(AttentionType::Mqa) if self.mla.is_none() => 1,
            _ => self.n_head,
        };
        self.n_kv_head
            .filter(|_| self.mla.is_none())
            .unwrap_or(by_name)
    }

    /// Which linear layers of attention have a bias, `bias` included.
    pub fn attention_biases(&self) -> AttentionBias {
        match self.attention_bias {
            AttentionBias::Output => AttentionBias::Output,
            _ if self.bias => AttentionBias::All,
            other => other,
        }
    }

    /// How many tokens up to itself a token attends to in block `layer`, counted from 0; `None`: all.
    pub fn window(&self, layer: usize) -> Option<usize> {
        let at = layer + usize::from(!self.global_first);
        let sees_all = self
            .global_every
            .is_some_and(|n| at.is_multiple_of(n.max(1)));
        self.sliding_window.filter(|_| !sees_all)
    }

    /// What block `layer`, counted from 0, has in place of attention; `None`: it has attention.
    pub fn mixer(&self, layer: usize) -> Option<&MixerConfig> {
        let every = self.attention_every;
        let is_nth = every.is_some_and(|n| (layer + 1).is_multiple_of(n.max(1)));
        let named = self.attention_blocks.as_ref();
        let has_attention = is_nth || named.is_some_and(|blocks| blocks.contains(&layer));
        self.mixer.as_ref().filter(|_| !has_attention)
    }

    /// The blocks that have attention.
    pub fn attention_layers(&self) -> impl Iterator<Item = usize> {
        (0..self.n_layer).filter(|layer| self.mixer(*layer).is_none())
    }

    /// Whether queries and keys of block `layer`, counted from 0, are rotated.
    pub fn rotates(&self, layer: usize) -> bool {
        let rope = self.position.rope();
        rope.is_some_and(|rope| rope.rotates(layer))
    }

    /// Keys that a query of a row of `seq_len` is scored against, summed over blocks with attention: the whole row, causal or
    /// not, as PaLM counts it, and no more than a sliding window.
    pub fn scored_keys(&self, seq_len: f64) -> f64 {
        let keys = |layer| {
            self.window(layer)
                .map_or(seq_len, |w| seq_len.min(w as f64))
        };
        self.attention_layers().map(keys).sum()
    }

    /// FLOPs of a token's forward with the states of all blocks.
    pub fn state_flops(&self) -> usize {
        let mixers = (0..self.n_layer).filter_map(|layer| self.mixer(layer));
        mixers.map(|mixer| mixer.state_flops()).sum()
    }

    /// Blocks that have experts.
    pub fn expert_blocks(&self) -> usize {
        let blocks = (0..self.n_layer).filter(|layer| self.experts(*layer).is_some());
        blocks.count()
    }

    /// Whether a block has a feed-forward block that every token passes: its only one, or a shared expert.
    pub fn has_common_mlp(&self) -> bool {
        let has_shared = |moe: &MoeConfig| moe.shared_d_ff.is_some();
        (0..self.n_layer).any(|layer| self.experts(layer).is_none_or(has_shared))
    }

    /// The experts of block `layer`, if it has any.
    pub fn experts(&self, layer: usize) -> Option<&MoeConfig> {
        self.moe.as_ref().filter(|moe| moe.has_experts(layer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn written(says: Value) -> Value {
        let config: ModelConfig = serde_json::from_value(says).unwrap();
        serde_json::to_value(config).unwrap()
    }

    #[test]
    fn a_model_with_a_norm_per_head_is_written_without_the_key_for_other_norms() {
        for has_norm in [true, false] {
            let written = written(json!({"qk_norm": has_norm}));
            assert_eq!(written["qk_norm"], has_norm);
            assert_eq!(written.get("qk_norm_over"), None);
        }
        let written = written(json!({"qk_norm": true, "qk_norm_over": "all_heads"}));
        assert_eq!(written["qk_norm_over"], "all_heads");
    }

    #[test]
    fn what_norms_are_over_is_rejected_where_there_are_none() {
        let says = |qk_norm: bool| {
            let says = json!({"qk_norm": qk_norm, "qk_norm_over": "all_heads"});
            let config: ModelConfig = serde_json::from_value(says).unwrap();
            config.faults()
        };
        assert_eq!(says(true), []);
        let faults = says(false);
        assert_eq!(faults[0].keys, ["qk_norm_over", "qk_norm"]);
        assert!(faults[0].hint.contains("qk_norm: true"));
    }
}
