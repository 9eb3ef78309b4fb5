//! The facts of a machine that planning needs.

use super::cuda_visible;
use super::machine::Machine;

/// The facts needed for planning.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// The processor's name; may be empty.
    pub cpu: String,
    /// Cores available to this process, after affinity and cgroup quota.
    pub cores: usize,
    /// Most bytes this process can use: the smaller of RAM and the cgroup's limit.
    pub ram_bytes: u64,
    /// The GPUs that CUDA would expose to this process, in its order.
    pub gpus: Vec<GpuSummary>,
}

/// One GPU (or MIG device) in a [`Summary`].
#[derive(Debug, Clone, PartialEq)]
pub struct GpuSummary {
    pub name: String,
    pub memory_bytes: u64,
}

impl Machine {
    /// The facts needed for planning.
    pub fn summary(&self) -> Summary {
        Summary {
            cpu: self.cpu.model.clone(),
            cores: self.cpu.usable(),
            ram_bytes: self.memory.usable(),
            gpus: cuda_visible::visible(self)
                .into_iter()
                .map(|device| GpuSummary {
                    name: device.name,
                    memory_bytes: device.memory_total,
                })
                .collect(),
        }
    }
}
