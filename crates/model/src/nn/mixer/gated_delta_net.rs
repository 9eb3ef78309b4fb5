//! Gated delta net, a linear attention: each head keeps a matrix S (keys × values) that forgets by a factor, and replaces what
//! it holds under a key by the new value:
//!
//! ```text
//! S ← exp(g) · S;  S ← S + k (β (v − Sᵀ k))ᵀ;  o = Sᵀ q / √key_dim
//! g = −exp(A_log) · softplus(a + dt_bias),  β = sigmoid(b)
//! ```
//!
//! q, k and v pass a causal convolution with SiLU, q and k are normalized to length 1, and RMSNorm(o) ∘ SiLU(z) goes to the output
//! projection.

use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "gated_delta_net",
    title: "Gated delta net",
    summary: "Linear attention with a gated delta rule; the Qwen 3.5 choice, for three of four blocks.",
    source: "Yang, Kautz, Hatamizadeh 2024, arXiv 2412.06464",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Heads of queries and keys; must divide n_value_head.
    #[schemars(range(min = 1, max = 1024))]
    pub n_key_head: usize,
    /// Heads of values, each with a state of its own. Query and key heads are shared by as many in turn.
    #[schemars(range(min = 1, max = 1024))]
    pub n_value_head: usize,
    /// Features of a query or key head.
    #[schemars(range(min = 1, max = 1024))]
    pub key_dim: usize,
    /// Features of a value head.
    #[schemars(range(min = 1, max = 1024))]
    pub value_dim: usize,
    /// Tokens that the convolution of queries, keys and values reads, the current one included.
    #[schemars(range(min = 1, max = 64))]
    pub conv_len: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            n_key_head: 4,
            n_value_head: 4,
            key_dim: 32,
            value_dim: 32,
            conv_len: 4,
        }
    }
}

impl Config {
    /// Width of all queries, or of all keys.
    pub fn keys(&self) -> usize {
        self.n_key_head * self.key_dim
    }

    /// Width of all values.
    pub fn values(&self) -> usize {
        self.n_value_head * self.value_dim
    }
}

impl super::Mixer for Config {
    fn conv_channels(&self, _d_model: usize) -> usize {
        2 * self.keys() + self.values()
    }

    fn conv_len(&self) -> usize {
        self.conv_len
    }

    fn state_len(&self) -> usize {
        self.n_value_head * self.key_dim * self.value_dim
    }

    /// It is multiplied with a key, added to, and multiplied with a query.
    fn state_flops(&self) -> usize {
        6 * self.state_len()
    }
}
