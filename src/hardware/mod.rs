//! The machine: what it is made of, how busy it is, and whether it is healthy. A [`Provider`] brings a [`Machine`]: the live
//! one asks NVML and the kernel's files, the recorded one reads a JSON file. The [`doctor`] judges a [`Machine`] and never
//! touches anything. What a model needs of a machine is not told here.

pub mod cuda_visible;
pub mod doctor;
pub mod gpu;
mod host;
pub mod live;
pub mod machine;
mod nvml;
pub mod recorded;
pub mod sampler;
pub mod throttle;

pub use gpu::Gpu;
pub use live::Live;
pub use machine::{Cpu, Machine, Memory};
pub use recorded::{Recorded, Recording};

use crate::base::paths::Env;
use crate::wire::Values;
use std::path::Path;

/// A source of readings.
pub trait Provider: Send {
    /// Everything that is known; takes some tens of milliseconds.
    fn machine(&mut self) -> Machine;
    /// What changes from second to second, keyed like metrics (`host/cpu_percent`, `gpu/0/util`); cheap.
    fn sample(&mut self) -> Values;
}

/// The few facts that planning needs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// The processor's name; may be empty.
    pub cpu: String,
    /// Cores that this process may use: affinity and cgroup quota counted in.
    pub cores: usize,
    /// Bytes that this process may have at most: the smaller of RAM and the cgroup's limit.
    pub ram_bytes: u64,
    /// The GPUs that CUDA would show to this process, in its order.
    pub gpus: Vec<GpuSummary>,
}

/// One GPU (or MIG device) in a [`Summary`].
#[derive(Debug, Clone, PartialEq)]
pub struct GpuSummary {
    pub name: String,
    pub memory_bytes: u64,
    pub memory_used_bytes: u64,
}

/// What this machine, or the recorded one, has for a training run.
///
/// # Errors
/// The file cannot be read or is not a recording; says where and what to correct.
pub fn summary(file: Option<&Path>, env: &Env) -> Result<Summary, recorded::RecordingError> {
    Ok(provider(file, env)?.machine().summary())
}

/// The live machine, or the recorded one of a file.
///
/// # Errors
/// The file cannot be read or is not a recording; says where and what to correct.
pub fn provider(
    file: Option<&Path>,
    env: &Env,
) -> Result<Box<dyn Provider>, recorded::RecordingError> {
    Ok(match file {
        Some(file) => Box::new(Recorded::new(Recording::read(file)?)),
        None => Box::new(Live::new(env)),
    })
}
