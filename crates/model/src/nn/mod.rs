//! Model parts and the decoder made of them. Methods pass in token batches and get log-probabilities back; losses and weight
//! updates are elsewhere.

pub mod adapter;
mod checkpointing;
mod composite;
mod config;
pub mod continuations;
mod decoding;
mod faults;
mod flops;
pub mod footprint;
pub mod freeze;
mod fused;
pub mod generate;
mod kv_cache;
mod layout;
mod limits;
pub mod mixer;
mod mla;
pub mod mlp;
mod model;
mod moe;
pub mod norm;
pub mod oracle;
mod params;
pub mod position;
mod precision;
mod profile;
pub mod role;
mod sampler;
mod step_position;
mod tables;
pub mod tap;
mod tape;
mod weights;

pub use crate::kernels::errors::error_text;
pub use adapter::AdapterConfig;
pub use checkpointing::ActivationCheckpointing;
pub use config::{
    AttentionBias, AttentionType, HeadKind, ModelConfig, ModelShape, NormPlacement, QkNormOver,
};
pub use faults::Fault;
pub use flops::{frozen_matmul_params, state_flops};
pub use freeze::{TrainableSet, param_infos, param_infos_of};
pub use layout::Naming;
pub use mla::MlaConfig;
pub use model::{
    Backend, DistilledGradient, Divergence, ExpertLoad, Model, Regularizers, Teacher,
    TeacherScores, TeacherValues, TokenBatch, TokenOutputs, TokenValues, Upstream, grown,
};
pub use moe::{Balancing, MoeConfig, Scoring};
pub use params::{Init, ParamInfo, Params, module_name};
pub use precision::{KvPrecision, Precision, PrecisionError, compute_dtype_name, storage_name};
pub use profile::Part;
pub use role::Role;
pub use step_position::StepPosition;
pub use tables::rotations;
pub use weights::{StoredTensor, Table};
