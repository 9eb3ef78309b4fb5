//! Before a run: memory, time and cost. Pure arithmetic on a [`Request`]; requests are built from presets, spec files
//! and reference models in [`target`]. Nothing here measures, trains or prints.
//!
//! Two estimators share one interface: the general formulas of the literature (a typical GPU trainer, all methods)
//! and this program's own engine on a CPU, counted from its allocations.

mod advice;
pub mod anatomy;
pub mod arch;
pub mod calibration;
pub mod changes;
pub mod data_bytes;
mod engine;
pub mod engines;
mod facts;
mod faults;
pub mod general;
pub mod gpus;
mod host;
pub mod idle_gpu;
mod ledger;
pub mod measured;
mod method;
pub mod models;
pub mod passes;
pub mod power_law;
pub mod probe;
pub mod quantity;
mod rank_activations;
pub mod ranks;
pub mod reference;
pub mod request;
pub mod room;
pub mod scaling;
pub mod scheme;
pub mod small_runs;
pub mod solve;
pub mod start;
pub mod target;
pub mod work;
pub mod writing;

pub use arch::{Arch, Params};
pub use facts::{FACTS, Facts, MethodId};
pub use ledger::{Component, Ledger, Part};
pub use reference::reference_request;
pub use request::{Device, Estimator, Request};
pub use work::Work;

use crate::base::finding::Finding;
use crate::spec::Kept;
use scaling::BESIROGLU;

/// Safety margin on top of the sum, and that of the engine, whose buffers are counted exactly.
const MARGIN: f64 = 1.15;
const ENGINE_MARGIN: f64 = 1.10;

/// Whether a request fits its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// With its margin.
    Fits,
    /// Without its margin.
    Tight,
    TooLarge,
}

/// The answer to a [`Request`].
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub request: Request,
    pub params: Params,
    pub n_active: u64,
    pub n_trainable: u64,
    /// Bytes of one device.
    pub memory: Ledger,
    /// Bytes of main memory, where ranks of PyTorch train on GPUs.
    pub host: Option<Ledger>,
    pub work: Work,
    pub tokens_per_param: f64,
    /// Predicted loss by Besiroglu's fit; `None` if nothing is pretrained.
    pub predicted_loss: Option<f64>,
    /// One checkpoint on disk, and all that are kept.
    pub checkpoint_bytes: u64,
    pub disk_bytes: u64,
    pub advice: Vec<Finding>,
}

/// Plans a request.
pub fn plan(request: &Request) -> Plan {
    let arch = &request.arch;
    let checkpoint = work::checkpoint(request);
    let tokens = request.tokens as f64;
    let mut plan = Plan {
        params: arch.params(),
        n_active: arch.n_active(),
        n_trainable: request.n_trainable(),
        memory: match request.estimator {
            Estimator::General => general::ledger(request),
            Estimator::Engine => engine::ledger(request),
        },
        host: host::ledger(request),
        work: work::work(request),
        tokens_per_param: tokens / arch.n_active().max(1) as f64,
        predicted_loss: request
            .is_from_scratch()
            .then(|| BESIROGLU.loss(arch.n_active() as f64, tokens))
            .filter(|loss| *loss < scaling::GUESSING),
        disk_bytes: checkpoint.at_once(kept(request)),
        checkpoint_bytes: checkpoint.total(),
        request: request.clone(),
        advice: Vec::new(),
    };
    plan.advice = advice::advise(&plan);
    plan
}

fn kept(request: &Request) -> Kept {
    Kept::of(request.extras.saves.as_ref())
}

impl Plan {
    /// Checkpoints that are on the disk at once.
    pub fn n_checkpoints(&self) -> u64 {
        kept(&self.request).checkpoints
    }

    /// The sum of the parts, bytes.
    pub fn p50_bytes(&self) -> u64 {
        self.memory.total()
    }

    /// The 90th percentile.
    pub fn p90_bytes(&self) -> u64 {
        let margin = match self.request.estimator {
            Estimator::General => MARGIN,
            Estimator::Engine => ENGINE_MARGIN,
        };
        (self.memory.total() as f64 * margin) as u64
    }

    /// The sum corrected by earlier runs on this machine; `None` before there are enough of them.
    pub fn corrected_bytes(&self) -> Option<u64> {
        let excess = self.request.device.memory_excess?;
        Some((self.memory.total() as f64 + excess).max(0.0) as u64)
    }

    /// `None` if the device's memory is unknown.
    pub fn verdict(&self) -> Option<Verdict> {
        let limit = self.request.device.memory?;
        Some(match () {
            () if self.p90_bytes() <= limit => Verdict::Fits,
            () if self.p50_bytes() <= limit => Verdict::Tight,
            () => Verdict::TooLarge,
        })
    }
}

#[cfg(test)]
mod tests;
