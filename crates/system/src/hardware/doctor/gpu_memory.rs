//! Which processes already use GPU memory? Never kills anything.

use super::{Check, Finding};
use super::{answering, each};
use crate::base::human;
use crate::hardware::gpu::{Gpu, GpuProcess};
use crate::hardware::machine::Machine;
use std::path::Path;

pub const CHECK: Check = Check {
    id: "gpu_memory",
    title: "GPU memory is free",
    rule: "Other processes use at most 5 % of a GPU's memory.",
    judge,
};

const FREE_ENOUGH: f64 = 0.05;

fn judge(machine: &Machine) -> Finding {
    let gpus = match answering(machine) {
        Ok(gpus) => gpus,
        Err(none) => return *none,
    };
    match each(&gpus, held) {
        Some(evidence) => Finding::warn(
            evidence,
            "other work, or a leftover of a crashed run",
            "ask its owner; end a hung run of your own with `kill PID`; or choose another GPU with CUDA_VISIBLE_DEVICES",
        ),
        None => Finding::pass("no significant use by others"),
    }
}

fn held(gpu: &Gpu) -> Option<String> {
    let others: Vec<&GpuProcess> = gpu.processes.iter().filter(|p| !ours(p)).collect();
    let own: u64 = gpu
        .processes
        .iter()
        .filter(|p| ours(p))
        .filter_map(|p| p.memory)
        .sum();
    let used = gpu.memory_used.saturating_sub(own);
    if used as f64 <= FREE_ENOUGH * gpu.memory_total as f64 {
        return None;
    }
    let who: Vec<String> = others
        .iter()
        .map(|p| format!("{} ({}, process {})", p.command, p.user, p.pid))
        .collect();
    let who = match who.is_empty() {
        true => "processes not visible from here".into(),
        false => who.join(", "),
    };
    Some(format!(
        "{} of {} used by {who}",
        human::bytes(used),
        human::bytes(gpu.memory_total)
    ))
}

/// A run of this program counts as our own.
fn ours(process: &GpuProcess) -> bool {
    let program = process
        .command
        .split_whitespace()
        .next()
        .unwrap_or_default();
    Path::new(program)
        .file_name()
        .is_some_and(|name| name == "llmtui")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_runs_are_not_foreign_processes() {
        let process = |command: &str| GpuProcess {
            pid: 7,
            user: "ana".into(),
            command: command.into(),
            memory: Some(50),
        };
        let mut gpu = Gpu {
            memory_total: 100,
            memory_used: 52,
            processes: vec![process("/usr/bin/llmtui engine x")],
            ..Gpu::default()
        };
        assert_eq!(held(&gpu), None);
        gpu.processes = vec![process("python train.py")];
        assert!(held(&gpu).is_some_and(|w| w.contains("python train.py (ana, process 7)")));
    }
}
