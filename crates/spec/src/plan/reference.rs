//! A plan for a model by itself, without a spec: the usual trainer defaults.

use super::arch::Arch;
use super::models::ReferenceModel;
use super::request::{
    AttentionKind, BaseFormat, Checkpointing, Device, EngineExtras, Estimator, Logits, Method,
    Request, ValueSource,
};
use super::scaling::TOKENS_PER_PARAM;
use super::scheme::{Precision, UpdateState};
use super::work::usual_mfu;

/// Default sequence length in tokens: that of fine-tuning recipes.
const SEQ_LEN: u64 = 2048;
/// Rows per chunk of the loss.
pub const CHUNK: u64 = 1024;
/// Completions sampled at once by a rollout method.
pub(super) const ROLLOUTS: u64 = 16;
/// Default number of fine-tuning examples.
const EXAMPLES: u64 = 10_000;

/// Full AdamW in mixed precision on one device: flash attention, activation checkpointing, a chunked loss, one sequence of
/// 2,048 tokens at once.
pub fn reference_request(model: &ReferenceModel) -> Request {
    model_request(model.name, model.arch.clone())
}

/// The same for any model.
pub fn model_request(name: &str, arch: Arch) -> Request {
    Request {
        name: name.into(),
        estimator: Estimator::General,
        method: Method::Pretrain,
        precision: Precision::Mixed,
        update: UpdateState::AdamW,
        lora: None,
        adapter: None,
        frozen: Vec::new(),
        base: BaseFormat::Whole,
        reference: Default::default(),
        checkpointing: Checkpointing::Full,
        logits: Logits::Chunked(CHUNK),
        attention: AttentionKind::Flash,
        n_devices: 1,
        zero: 0,
        micro_batch: 1,
        grad_accum: 1,
        seq_len: SEQ_LEN.min(arch.max_len()),
        rollouts: ROLLOUTS,
        tokens: (TOKENS_PER_PARAM * arch.n_active() as f64) as u64,
        tokens_source: ValueSource::Assumed,
        batch_ramp: Vec::new(),
        mfu: usual_mfu(Checkpointing::Full, arch.n_layer()),
        mfu_source: ValueSource::Assumed,
        device: Device::limit("no device set", None),
        extras: EngineExtras::default(),
        arch,
        settings: Vec::new(),
        torch_refuses: None,
        rates_in_8_bits: String::new(),
    }
}

impl Request {
    /// Fills in derived values: tokens by method, the typical MFU.
    pub fn assume(&mut self) {
        if self.tokens_source == ValueSource::Assumed {
            self.tokens = match self.method {
                Method::Pretrain if self.lora.is_none() => {
                    (TOKENS_PER_PARAM * self.arch.n_active() as f64) as u64
                }
                method => EXAMPLES * method.sequences() * self.seq_len,
            };
        }
        if self.mfu_source == ValueSource::Assumed && self.estimator == Estimator::General {
            self.mfu = usual_mfu(self.checkpointing, self.arch.n_layer());
        }
    }
}
