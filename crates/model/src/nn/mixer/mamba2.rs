//! Mamba 2, a state space model: each head keeps a matrix S (state_dim × head_dim) that forgets by a factor and takes in what a token
//! writes:
//!
//! ```text
//! S ← exp(dt · A) · S + dt · B xᵀ;  y = Sᵀ C + D · x
//! dt = softplus(dt + dt_bias) within limits,  A = −exp(A_log)
//! ```
//!
//! x, B and C pass a causal convolution with SiLU, heads of a group share B and C, and RMSNorm(y ∘ SiLU(z)) over each group goes to
//! the output projection.

use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "mamba2",
    title: "Mamba 2",
    summary: "A state space model by the state-space duality; the Granite 4 choice, for nine of ten blocks.",
    source: "Dao & Gu 2024, arXiv 2405.21060",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Heads, each with a state of its own. Their width, n_head · head_dim, is usually twice d_model.
    #[schemars(range(min = 1, max = 1024))]
    pub n_head: usize,
    /// Features of a head.
    #[schemars(range(min = 1, max = 1024))]
    pub head_dim: usize,
    /// Features of B and C: what a state holds for each feature of a head.
    #[schemars(range(min = 1, max = 1024))]
    pub state_dim: usize,
    /// Groups of heads that share B and C, and that the norm is over; must divide n_head.
    #[schemars(range(min = 1, max = 1024))]
    pub n_group: usize,
    /// Tokens that the convolution of x, B and C reads, the current one included.
    #[schemars(range(min = 1, max = 64))]
    pub conv_len: usize,
    /// Bias vectors in the convolution.
    pub conv_bias: bool,
    /// Bias vectors in the two projections.
    pub bias: bool,
    /// The least step of time, after softplus.
    #[schemars(range(min = 0, max = 1000))]
    pub dt_min: f64,
    /// The largest step of time. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub dt_max: Option<f64>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            n_head: 8,
            head_dim: 32,
            state_dim: 64,
            n_group: 1,
            conv_len: 4,
            conv_bias: true,
            bias: false,
            dt_min: 0.0,
            dt_max: None,
        }
    }
}

impl Config {
    /// Width of all heads.
    pub fn inner(&self) -> usize {
        self.n_head * self.head_dim
    }

    /// Heads and sizes as the kernel takes them.
    pub fn sizes(&self) -> crate::kernels::mamba2::Sizes {
        crate::kernels::mamba2::Sizes {
            n_head: self.n_head,
            head_dim: self.head_dim,
            n_group: self.n_group,
            state_dim: self.state_dim,
            conv_len: self.conv_len,
        }
    }
}

impl super::Mixer for Config {
    fn conv_channels(&self, _d_model: usize) -> usize {
        self.sizes().channels()
    }

    fn conv_len(&self) -> usize {
        self.conv_len
    }

    /// Padded as the kernel keeps it.
    fn state_len(&self) -> usize {
        self.sizes().state()
    }

    /// It is added to, and multiplied with C.
    fn state_flops(&self) -> usize {
        4 * self.inner() * self.state_dim
    }
}
