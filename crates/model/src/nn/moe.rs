//! Mixture of experts, as said in a spec: a router sends each token to a few of many feed-forward blocks.

use super::mixer::MAX_BLOCKS;
use crate::kernels::experts::{self, Groups, Router};
use serde::{Deserialize, Serialize};

/// Many feed-forward blocks of the kind that `mlp` says (Shazeer et al. 2017, arXiv 1701.06538; Jiang et al. 2024, Mixtral,
/// arXiv 2401.04088). No token is dropped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MoeConfig {
    /// Experts of a block.
    #[schemars(range(min = 1, max = 1024))]
    pub n_expert: usize,
    /// Experts per token: those with the highest scores.
    #[schemars(range(min = 1, max = 64))]
    pub top_k: usize,
    /// Width inside one expert. Default: the model's d_ff.
    #[schemars(range(min = 1, max = 1048576))]
    pub d_ff: Option<usize>,
    /// Normalize the chosen experts' scores to sum to 1 (Mixtral).
    pub norm_topk: bool,
    /// How the router's logits become the scores that select experts and weight their outputs.
    #[serde(skip_serializing_if = "Scoring::is_softmax")]
    #[schemars(extend("default" = "softmax"))]
    pub scoring: Scoring,
    /// Multiplier of the weights of the experts' outputs (DeepSeek-V3: 2.5). Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1e-3, max = 1000.0))]
    pub gate_scale: Option<f64>,
    /// Bias vectors in the router and in the experts (gpt-oss); without it experts have them where `bias` is on.
    #[serde(skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub bias: bool,
    /// Groups of equally many experts, of which a token reaches those of top_group alone: the groups with the best expert, or with
    /// sigmoid scores with the highest sum of two (DeepSeek-V2, V3: 8). Default: a token reaches all experts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub n_group: Option<usize>,
    /// Groups that a token reaches (DeepSeek-V3: 4).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub top_group: Option<usize>,
    /// Width inside a shared expert: one feed-forward block that every token passes beside its own experts (DeepSeekMoE, Dai et
    /// al. 2024, arXiv 2401.06066). Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1048576))]
    pub shared_d_ff: Option<usize>,
    /// Multiply the shared expert's output by sigmoid(g · x), g a learned vector (Qwen2-MoE).
    #[serde(skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub shared_gate: bool,
    /// Weight in the loss of E · Σ f_e P_e: f_e the share of tokens that expert e gets (each of the top_k counts as one), P_e
    /// its mean probability (with sigmoid scores its mean share of them). top_k if balanced. It is the mean over blocks, each balanced on its own (Fedus et al. 2021,
    /// Switch, arXiv 2101.03961); transformers pools f and P over all blocks first, which is less where blocks prefer
    /// different experts.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub aux_loss_coef: f64,
    /// Weight in the loss of the mean squared log-sum-exp of the router's logits, which keeps them small (Zoph et al. 2022,
    /// ST-MoE, arXiv 2202.08906).
    #[schemars(range(min = 0.0, max = 10.0))]
    pub z_loss_coef: f64,
    /// How the load of experts is balanced.
    pub balancing: Balancing,
    /// Every n-th block has experts, the others one feed-forward block of the model's d_ff.
    #[schemars(range(min = 1, max = 1000))]
    pub every: usize,
    /// Blocks, counted from 0, that have one feed-forward block in any case: the first ones, in DeepSeek's models and LFM2's.
    /// Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dense_blocks: Option<Vec<usize>>,
}

/// How a router's logits become scores.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Scoring {
    /// Their softmax over all experts.
    #[default]
    Softmax,
    /// The sigmoid of each (DeepSeek-V3, arXiv 2412.19437; LFM2).
    Sigmoid,
}

impl Scoring {
    fn is_softmax(&self) -> bool {
        *self == Scoring::Softmax
    }
}

fn is_false(x: &bool) -> bool {
    !x
}

/// How the load of experts is balanced.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Balancing {
    /// The auxiliary loss alone.
    Loss {},
    /// A bias on each expert's score, for the choice alone: after each step it rises where an expert got less than the
    /// mean, and falls where it got more (loss-free balancing, Wang et al. 2024, arXiv 2408.15664; DeepSeek-V3, arXiv
    /// 2412.19437). Goes with any aux_loss_coef, 0 included.
    Bias {
        /// Change per step; 0 leaves the biases as they are.
        #[serde(default = "usual_rate")]
        #[schemars(range(min = 0.0, max = 1.0))]
        rate: f64,
    },
}

fn usual_rate() -> f64 {
    1e-3
}

impl Default for Balancing {
    fn default() -> Self {
        Balancing::Loss {}
    }
}

impl Default for MoeConfig {
    fn default() -> Self {
        MoeConfig {
            n_expert: 8,
            top_k: 2,
            d_ff: None,
            norm_topk: true,
            scoring: Scoring::Softmax,
            gate_scale: None,
            bias: false,
            n_group: None,
            top_group: None,
            shared_d_ff: None,
            shared_gate: false,
            aux_loss_coef: 0.01,
            z_loss_coef: 1e-3,
            balancing: Balancing::default(),
            every: 1,
            dense_blocks: None,
        }
    }
}

impl MoeConfig {
    pub(crate) fn router(&self) -> Router {
        Router {
            n_expert: self.n_expert,
            top_k: self.top_k,
            scoring: match self.scoring {
                Scoring::Softmax => experts::Scoring::Softmax,
                Scoring::Sigmoid => experts::Scoring::Sigmoid,
            },
            norm_topk: self.norm_topk,
            scale: self.gate_scale.unwrap_or(1.0) as f32,
            groups: self.groups(),
        }
    }

    /// Groups of which a token does not reach all.
    fn groups(&self) -> Option<Groups> {
        let (n, top) = (self.n_group?, self.top_group?);
        (top < n).then_some(Groups { n, top })
    }

    /// Whether block `layer`, counted from 0, has experts.
    pub fn has_experts(&self, layer: usize) -> bool {
        let named = self.dense_blocks.as_ref();
        let is_dense = named.is_some_and(|blocks| blocks.contains(&layer));
        (layer + 1).is_multiple_of(self.every.max(1)) && !is_dense
    }

    /// A choice of the `n_layer` blocks as `every` and `dense_blocks`: the first alone if it suffices.
    pub fn blocks_of(
        n_layer: usize,
        has_experts: impl Fn(usize) -> bool,
    ) -> (usize, Option<Vec<usize>>) {
        // A file may say any number: more blocks than a model can have are refused later.
        let has_experts: Vec<bool> = (0..n_layer.min(MAX_BLOCKS)).map(has_experts).collect();
        let follows = |every: usize| {
            let mut blocks = has_experts.iter().enumerate();
            blocks.all(|(layer, has)| *has == (layer + 1).is_multiple_of(every))
        };
        let first = has_experts.iter().position(|has| *has);
        match first.map(|first| first + 1).filter(|every| follows(*every)) {
            Some(every) => (every, None),
            None => {
                let dense = (0..has_experts.len()).filter(|layer| !has_experts[*layer]);
                (1, Some(dense.collect()))
            }
        }
    }

    /// Width inside the feed-forward blocks that a token passes in a block with experts, all together; `d_ff` is the model's.
    pub fn active_width(&self, d_ff: usize) -> usize {
        self.top_k * self.d_ff.unwrap_or(d_ff) + self.shared_d_ff.unwrap_or(0)
    }
}
