//! The operations of a decoder. Each file implements one operation twice: a *composite* in plain candle (any device,
//! any float type, differentiable by candle: the oracle of the gradient checks) and a *fused* forward and
//! backward on slices of f32, or of bf16 between matmuls (the fast CPU path). Models, parameter layouts and optimizer settings are

//! in the crates above.
pub mod activation;
pub mod adafactor;
pub mod adamw;
pub mod adamw8bit;
pub mod aligned;
pub mod allocations;
#[cfg(target_arch = "x86_64")]
mod amx;
pub mod attention;
pub mod bandwidth;
pub mod causal_conv;
#[cfg(test)]
mod check;
pub mod distribution;
pub mod dropout;
pub mod embedding;
pub mod errors;
pub mod experts;
mod fetch;
pub mod flat;
pub mod gate;
pub mod gated_delta;
mod lanes;
pub mod latent;
pub mod linear;
pub mod lion;
pub mod logprob;
pub mod low_rank;
pub mod mamba2;
pub mod math;
pub mod matmul;
pub mod matrix;
pub mod muon;
pub mod norm;
pub mod numbers;
pub mod pages;
mod pointers;
pub mod positions;
pub mod qk_norm;
pub mod quant;
pub mod reduce;
pub mod rotary;
pub mod row_gate;
pub mod schedule_free;
pub mod score;
pub mod short_conv;
pub mod simd;
pub mod skinny;
pub mod soap;
pub mod softcap;
mod softmax;
pub mod sophia;
pub mod spectrum;
mod team;
pub mod tensors;
pub mod threads;
pub mod update;

/// Tests of memory budgets need this allocator.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;
