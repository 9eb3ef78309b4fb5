//! The role of a parameter. The layout sets it where the parameter is created, so no name has to be parsed.

/// The part that a parameter plays in a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Token embeddings, which are also the output head if the two are tied.
    Embedding,
    /// Learned vectors of positions.
    Position,
    /// A matrix of attention.
    Attention(AttentionRole),
    /// A parameter of a token mixer other than attention.
    Mixer(MixerRole),
    /// A matrix of a feed-forward block, or of one expert.
    Mlp(MlpRole),
    /// The gain of a norm.
    Norm,
    /// The bias of a linear layer or of a norm.
    Bias(Site),
    /// The router: its matrix, and the balancing biases; the gate of a shared expert.
    Router,
    /// The output head, unless tied to the embeddings.
    Head,
    /// A factor of a low-rank adapter.
    Adapter(AdapterRole),
    /// The value head: the vector that maps a hidden state to a value.
    Value,
}

/// The matrices of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionRole {
    Query,
    Key,
    Value,
    /// Queries, keys and values in one matrix (GPT-2's `c_attn`).
    QueryKeyValue,
    /// The gate of attention's output.
    Gate,
    /// The sinks of all query heads: a vector.
    Sink,
    Output,
}

/// The parameters of token mixers, but for the gains of their norms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MixerRole {
    /// A projection of the block's input.
    In,
    /// The weights of the causal convolution, (channels, taps).
    Conv,
    /// A vector that sets how fast a state is forgotten.
    Decay,
    /// A vector that scales what passes by a state.
    Skip,
    /// The projection out.
    Output,
}

/// The matrices of a feed-forward block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MlpRole {
    /// The gate projection of gated blocks.
    Gate,
    Up,
    Down,
}

/// The factors of an adapter s · B A: A is (rank, in), B is (out, rank); and DoRA's magnitudes (out).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdapterRole {
    A,
    B,
    Magnitude,
}

/// The parameter that a bias belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    Attention,
    Mixer,
    Mlp,
    Router,
    Norm,
}

impl Role {
    /// The role of the bias that belongs to a matrix of this role.
    pub fn bias(self) -> Role {
        Role::Bias(match self {
            Role::Attention(_) => Site::Attention,
            Role::Mixer(_) => Site::Mixer,
            Role::Mlp(_) => Site::Mlp,
            Role::Router => Site::Router,
            _ => Site::Norm,
        })
    }

    /// Whether this is a factor of an adapter.
    pub fn is_adapter(self) -> bool {
        matches!(self, Role::Adapter(_))
    }
}
