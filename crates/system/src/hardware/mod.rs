//! The machine: its components, load and health. A [`Provider`] supplies a [`Machine`]: the live one queries NVML and
//! the kernel's files, the recorded one reads a JSON file. The [`doctor`] judges a [`Machine`] and is
//! read-only. A model's requirements are decided elsewhere.

pub mod cuda_visible;
pub mod doctor;
pub mod gpu;
mod host;
pub mod live;
pub mod machine;
mod nvml;
pub mod recorded;
pub mod sampler;
mod summary;
pub mod throttle;

pub use gpu::Gpu;
pub use live::Live;
pub use machine::{Cpu, Machine, Memory};
pub use recorded::{Recorded, Recording};
pub use summary::{GpuSummary, Summary};

use crate::base::paths::Env;
use crate::wire::Values;
use std::path::Path;

/// A source of readings.
pub trait Provider: Send {
    /// Everything known; takes some tens of milliseconds.
    fn machine(&mut self) -> Machine;
    /// Fast-changing readings, keyed like metrics (`host/cpu_percent`, `gpu/0/util`); cheap.
    fn sample(&mut self) -> Values;
}

/// The resources of this machine, or of the recorded one, for a training run.
///
/// # Errors
/// The file cannot be read or is not a recording; the message gives location and fix.
pub fn summary(file: Option<&Path>, env: &Env) -> Result<Summary, recorded::RecordingError> {
    Ok(provider(file, env)?.machine().summary())
}

/// Main memory as it is now, and this process's share of it; cheap.
pub fn memory() -> Memory {
    host::memory_of(&host::Root::live())
}

/// Bytes of this process by the kernel's key: `VmSize` (mapped), `VmRSS` (resident), `VmHWM` (its peak).
pub fn own_memory(key: &str) -> Option<u64> {
    let kib = host::Root::live().kib("proc/self/status", key)?;
    Some(kib << 10)
}

/// This machine's host name; empty if it has none.
pub fn host_name() -> String {
    sysinfo::System::host_name().unwrap_or_default()
}

/// The network interface that has this address, if any.
pub fn interface_of(address: std::net::IpAddr) -> Option<String> {
    let all = sysinfo::Networks::new_with_refreshed_list().ok()?;
    let has = |data: &sysinfo::NetworkData| {
        let mut own = data.ip_networks().iter();
        own.any(|network| network.addr == address)
    };
    let mut found = all.iter().filter(|(_, data)| has(data));
    found.next()?.0.to_str().map(String::from)
}

/// The live machine, or a recorded one from a file.
///
/// # Errors
/// The file cannot be read or is not a recording; the message gives location and fix.
pub fn provider(
    file: Option<&Path>,
    env: &Env,
) -> Result<Box<dyn Provider>, recorded::RecordingError> {
    Ok(match file {
        Some(file) => Box::new(Recorded::new(Recording::read(file)?)),
        None => Box::new(Live::new(env)),
    })
}
