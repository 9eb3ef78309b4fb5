//! The machine that this program runs on.

use super::host::{self, Root};
use super::machine::{Machine, Session};
use super::nvml::Library;
use super::{Provider, sampler};
use crate::base::clock::{Clock, SystemClock};
use crate::base::paths::Env;
use crate::wire::Values;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Bytes written to measure write speed.
const SPEED_BYTES: usize = 256 << 20;
const SPEED_CHUNK: usize = 4 << 20;
/// Free space that must remain afterwards.
const SPEED_FREE_SPACE: u64 = 4 * SPEED_BYTES as u64;

/// Queries the kernel and NVML.
pub struct Live {
    root: Root,
    env: Env,
    runs_dir: PathBuf,
    terminal: Option<bool>,
    library: Library,
    sampler: sampler::HostSampler,
}

impl Live {
    pub fn new(env: &Env) -> Live {
        let root = Root::live();
        Live {
            sampler: sampler::HostSampler::new(&root),
            root,
            env: env.clone(),
            runs_dir: PathBuf::from("."),
            terminal: None,
            library: Library::new(),
        }
    }

    /// Where runs will be written: that file system is checked in more detail.
    pub fn with_runs_in(mut self, runs_dir: &Path) -> Live {
        self.runs_dir = runs_dir.to_path_buf();
        self
    }

    /// Whether there is an interactive terminal.
    pub fn with_terminal(mut self, terminal: bool) -> Live {
        self.terminal = Some(terminal);
        self
    }

    /// Write speed of the runs' file system in bytes per second, including sync; `None` if it is not writable or
    /// nearly full. The file is deleted afterwards.
    pub fn write_speed(&self, machine: &Machine) -> Option<f64> {
        let room = machine.runs_disk().map_or(0, |disk| disk.space.free);
        if room < SPEED_FREE_SPACE {
            return None;
        }
        let absolute = std::path::absolute(&self.runs_dir).ok()?;
        let folder = absolute.ancestors().find(|folder| folder.is_dir())?;
        let path = folder.join(format!(".llmtui-speed-{}", std::process::id()));
        let speed = write_and_sync(&path);
        let _ = std::fs::remove_file(&path);
        speed.ok()
    }
}

fn write_and_sync(path: &Path) -> std::io::Result<f64> {
    // Not all zeros: some file systems would write nothing.
    let chunk: Vec<u8> = (0..SPEED_CHUNK).map(|i| (i * 31 % 251) as u8).collect();
    let mut file = std::fs::File::create_new(path)?;
    let clock = SystemClock::new();
    for _ in 0..SPEED_BYTES / SPEED_CHUNK {
        file.write_all(&chunk)?;
    }
    file.sync_all()?;
    Ok(SPEED_BYTES as f64 / clock.elapsed().as_secs_f64().max(1e-6))
}

impl Provider for Live {
    fn machine(&mut self) -> Machine {
        let mut machine = Machine::default();
        host::read(&self.root, &self.runs_dir, &mut machine);
        if machine.cpu.logical == 0 {
            elsewhere(&mut machine);
        }
        self.library.describe(&mut machine.nvidia);
        machine.gpus = self.library.gpus();
        for gpu in &mut machine.gpus {
            let pci = short_address(&gpu.pci);
            gpu.near_cpus = self
                .root
                .read(&format!("sys/bus/pci/devices/{pci}/local_cpulist"))
                .map(|list| list.trim().to_string())
                .unwrap_or_default();
            for process in &mut gpu.processes {
                process.command = host::command_of(&self.root, process.pid);
                process.user = host::user_of(&self.root, process.pid);
            }
        }
        let nvidia = &mut machine.nvidia;
        nvidia.cuda_visible_devices = self.env.cuda_visible_devices.clone();
        nvidia.cuda_device_order = self.env.cuda_device_order.clone();
        nvidia.nvcc = nvcc(&self.env.path);
        machine.session = session(&self.env, self.terminal);
        machine
    }

    fn sample(&mut self) -> Values {
        let mut values = self.sampler.sample(&self.root);
        sampler::gpus(&mut self.library, &mut values);
        values
    }
}

/// NVML prints eight digits of a PCI domain, the kernel four: `00000000:3B:00.0` → `0000:3b:00.0`.
fn short_address(pci: &str) -> String {
    let lower = pci.to_ascii_lowercase();
    match lower.split_once(':') {
        Some((domain, rest)) if domain.len() > 4 => {
            format!("{}:{rest}", &domain[domain.len() - 4..])
        }
        _ => lower,
    }
}

/// A system without `/proc`: the few facts a library provides.
fn elsewhere(machine: &mut Machine) {
    let Ok(mut system) = sysinfo::System::new() else {
        return;
    };
    system.refresh_memory();
    system.refresh_cpu_usage();
    machine.host = super::host_name();
    machine.cpu.logical = system.cpus().len();
    machine.cpu.allowed = machine.cpu.logical;
    machine.cpu.model = system
        .cpus()
        .first()
        .map(|cpu| cpu.brand().trim().to_string())
        .unwrap_or_default();
    machine.memory.total = system.total_memory();
    machine.memory.available = system.available_memory();
    machine.memory.swap_total = system.total_swap();
    machine.memory.swap_used = system.used_swap();
}

/// The CUDA compiler on the search path, else in the default location.
fn nvcc(path: &[PathBuf]) -> Option<String> {
    let usual = PathBuf::from("/usr/local/cuda/bin");
    path.iter()
        .chain([&usual])
        .map(|folder| folder.join("nvcc"))
        .find(|file| file.is_file())
        .map(|file| file.display().to_string())
}

fn session(env: &Env, terminal: Option<bool>) -> Session {
    Session {
        terminal,
        term: env.term.clone(),
        truecolor: matches!(env.colorterm.as_str(), "truecolor" | "24bit"),
        utf8: env.utf8,
        ssh: env.ssh,
        multiplexer: env.tmux,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_plausible() {
        let mut live = Live::new(&Env::default());
        let machine = live.machine();
        assert!(machine.cpu.usable() >= 1 && machine.memory.usable() > 1 << 20);
        assert!(machine.memory.available <= machine.memory.total);
        live.sample();
        let values = live.sample();
        let get = |id: &str| values[id].0;
        assert!(get("host/rss_bytes") > 1e5 && get("host/rss_bytes") < get("host/ram_total_bytes"));
    }

    #[test]
    fn addresses_are_written_as_the_kernel_does() {
        assert_eq!(short_address("00000000:3B:00.0"), "0000:3b:00.0");
        assert_eq!(short_address("0000:af:00.0"), "0000:af:00.0");
    }

    #[test]
    fn measuring_write_speed_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let live = Live::new(&Env::default()).with_runs_in(&folder.path().join("runs"));
        let mut machine = Machine::default();
        assert_eq!(live.write_speed(&machine), None, "free space is unknown");
        machine.disks.push(crate::hardware::machine::Disk {
            holds_runs: true,
            space: crate::hardware::machine::Space {
                free: u64::MAX,
                ..Default::default()
            },
            ..Default::default()
        });
        let speed = live.write_speed(&machine);
        assert!(speed.is_none_or(|s| s > 0.0));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
