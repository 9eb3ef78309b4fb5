//! Mixture of experts, as said in a spec: a router sends each token to a few of many feed-forward blocks.

use crate::kernels::experts::Router;
use serde::{Deserialize, Serialize};

/// Many feed-forward blocks of the kind that `mlp` says (Shazeer et al. 2017, arXiv 1701.06538; Jiang et al. 2024, Mixtral,
/// arXiv 2401.04088). No token is dropped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MoeConfig {
    /// Experts of a block.
    #[schemars(range(min = 1, max = 1024))]
    pub n_expert: usize,
    /// Experts per token: those with the highest probabilities.
    #[schemars(range(min = 1, max = 64))]
    pub top_k: usize,
    /// Width inside one expert. Default: the model's d_ff.
    #[schemars(range(min = 1, max = 1048576))]
    pub d_ff: Option<usize>,
    /// Normalize the chosen experts' probabilities to sum to 1 (Mixtral).
    pub norm_topk: bool,
    /// Weight in the loss of E · Σ f_e P_e: f_e the share of tokens that expert e gets (each of the top_k counts as one), P_e
    /// its mean probability. top_k if balanced. It is the mean over blocks, each balanced on its own (Fedus et al. 2021,
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
}

/// How the load of experts is balanced.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Balancing {
    /// The auxiliary loss alone.
    Loss {},
    /// A bias on each expert's probability, for the choice alone: after each step it rises where an expert got less than the
    /// mean, and falls where it got more (DeepSeek-V3, arXiv 2412.19437). Goes with any aux_loss_coef, 0 included.
    Bias {
        /// Change per step.
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
            aux_loss_coef: 0.01,
            z_loss_coef: 1e-3,
            balancing: Balancing::default(),
            every: 1,
        }
    }
}

impl MoeConfig {
    pub(crate) fn router(&self) -> Router {
        Router {
            n_expert: self.n_expert,
            top_k: self.top_k,
            norm_topk: self.norm_topk,
        }
    }

    /// Whether block `layer`, counted from 0, has experts.
    pub fn has_experts(&self, layer: usize) -> bool {
        (layer + 1).is_multiple_of(self.every.max(1))
    }
}
