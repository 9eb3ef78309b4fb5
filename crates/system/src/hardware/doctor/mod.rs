//! Is the machine fit to train on? Each check inspects a [`Machine`] and reports what it found, why, and what to do. Nothing
//! is changed, reset or terminated here. A check is one file with a `CHECK`, its `mod` line and one entry in
//! the list below.

mod apple;
mod bf16;
mod capability;
mod clock;
mod clock_skew;
mod collectives;
mod compute_mode;
mod cores;
mod cpu_isa;
mod cuda_compiler;
mod cuda_level;
mod cuda_visible;
mod disk_kind;
mod disk_room;
mod disk_speed;
mod driver;
mod driver_match;
mod ecc;
mod fabric;
mod gpu_lost;
mod gpu_memory;
mod locale;
mod locked_memory;
mod logout;
mod memory;
mod mig;
mod nccl;
mod network;
mod nouveau;
mod numa;
mod nvlink;
mod oom;
mod open_files;
mod pcie;
mod persistence;
mod power_limit;
mod rocm;
mod session;
mod shm;
mod temperature;
mod terminal;
mod throttle;
mod tpu;
mod xid;

use super::gpu::Gpu;
use super::machine::{AcceleratorKind, Machine};
pub use crate::base::finding::{Finding, Status};
pub use temperature::HOT;

/// An accelerator of another vendor: is it present, and does this user have access? `fix` is for missing access.
fn may_be_opened(machine: &Machine, kind: AcceleratorKind, fix: &str) -> Finding {
    let Some(device) = machine.accelerators.iter().find(|a| a.kind == kind) else {
        return Finding::not_applicable("none");
    };
    let evidence = format!("{} {}", device.sign, device.name)
        .trim_end()
        .to_string();
    match device.accessible {
        Some(false) => Finding::warn(
            format!("no access to {evidence}"),
            "this user lacks permission",
            fix,
        ),
        _ => Finding::pass(format!("{evidence}; this build trains on CPU and CUDA")),
    }
}

/// One check.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// The module's name.
    pub id: &'static str,
    /// A short title for a row.
    pub title: &'static str,
    /// One sentence: when it passes.
    pub rule: &'static str,
    pub judge: fn(&Machine) -> Finding,
}

macro_rules! checks {
    ($($name:ident)+) => { &[$($name::CHECK,)+] };
}

/// Every check, in display order.
pub const CHECKS: &[Check] = checks! {
    driver driver_match nouveau cuda_level cuda_compiler cuda_visible gpu_lost xid ecc
    capability bf16 gpu_memory throttle temperature power_limit pcie nvlink nccl collectives numa persistence
    compute_mode mig fabric rocm apple tpu
    cpu_isa cores memory oom shm open_files locked_memory
    disk_room disk_kind disk_speed network clock clock_skew locale terminal session logout
};

/// Every check on a machine, worst first; ties keep the order of the list.
pub fn examine(machine: &Machine) -> Vec<Finding> {
    let mut findings: Vec<Finding> = CHECKS
        .iter()
        .map(|check| Finding {
            expected: check.rule.into(),
            ..(check.judge)(machine).named(check.id, check.title)
        })
        .collect();
    findings.sort_by_key(|finding| finding.status);
    findings
}

/// The GPUs that respond; if there are none, the finding of a check that needs one.
fn answering(machine: &Machine) -> Result<Vec<&Gpu>, Box<Finding>> {
    let gpus: Vec<&Gpu> = machine.gpus.iter().filter(|g| g.lost.is_none()).collect();
    match gpus.is_empty() {
        true => Err(Box::new(Finding::not_applicable("no NVIDIA GPU responds"))),
        false => Ok(gpus),
    }
}

/// `GPU 0, 3: …` or `every GPU: …` for the GPUs that `judge` has a message for; equal messages are merged.
fn each(gpus: &[&Gpu], judge: impl Fn(&Gpu) -> Option<String>) -> Option<String> {
    let mut said: Vec<(String, Vec<String>)> = Vec::new();
    for gpu in gpus {
        let Some(words) = judge(gpu) else { continue };
        let number = gpu.index.to_string();
        match said.iter_mut().find(|(w, _)| *w == words) {
            Some((_, numbers)) => numbers.push(number),
            None => said.push((words, vec![number])),
        }
    }
    let lines: Vec<String> = said
        .into_iter()
        .map(|(words, numbers)| match numbers.len() {
            n if n > 1 && n == gpus.len() => format!("every GPU: {words}"),
            _ => format!("GPU {}: {words}", numbers.join(", ")),
        })
        .collect();
    (!lines.is_empty()).then(|| lines.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_every_check_states_what_passes() {
        let mut ids: Vec<&str> = CHECKS.iter().map(|c| c.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), CHECKS.len());
        for check in CHECKS {
            assert!(
                check.rule.ends_with('.') && check.title.len() <= 28,
                "{}",
                check.id
            );
            assert!(
                check
                    .id
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
                "{}",
                check.id
            );
        }
    }

    #[test]
    fn an_unknown_machine_raises_no_warning() {
        for finding in examine(&Machine::default()) {
            assert!(finding.status > Status::Warn, "{finding:?}");
            assert!(!finding.evidence.is_empty(), "{}", finding.id);
        }
    }

    #[test]
    fn equal_messages_are_merged() {
        let gpus: Vec<Gpu> = (0..3)
            .map(|index| Gpu {
                index,
                ..Gpu::default()
            })
            .collect();
        let gpus: Vec<&Gpu> = gpus.iter().collect();
        let words = each(&gpus, |g| {
            Some(if g.index == 1 { "cold" } else { "hot" }.into())
        });
        assert_eq!(words.unwrap(), "GPU 0, 2: hot; GPU 1: cold");
        assert_eq!(each(&gpus, |_| None), None);
    }
}
