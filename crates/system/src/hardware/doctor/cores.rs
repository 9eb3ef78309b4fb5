//! How many cores may this process use?

use super::{Check, Finding};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "cores",
    title: "Processor cores",
    rule: "At least two for this process, and not all of them busy with other programs.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    let cpu = &machine.cpu;
    if cpu.logical == 0 {
        return Finding::unknown("the number of cores could not be read", "nproc");
    }
    let mut evidence = format!("{} of {}", cpu.usable(), cpu.logical);
    if let Some(quota) = cpu.quota {
        evidence.push_str(&format!(", a cgroup quota of {quota:.1}"));
    }
    if cpu.allowed < cpu.logical {
        evidence.push_str(&format!(", affinity allows {}", cpu.allowed));
    }
    if cpu.usable() == 1 && cpu.logical > 1 {
        return Finding::warn(
            evidence,
            "training, data loading and UI share one core",
            "raise the container's CPU limit (`--cpus`), or `taskset`",
        );
    }
    // As many threads as cores want to run without those of a training.
    if let Some(load) = cpu.load.filter(|load| *load >= cpu.logical as f64) {
        let busy = cpu.busy.iter();
        let busy: Vec<String> = busy.map(|(name, n)| format!("{name} × {n}")).collect();
        let of = match busy.is_empty() {
            true => String::new(),
            false => format!(": {}", busy.join(", ")),
        };
        return Finding::warn(
            format!("{evidence}; load average {load:.1}{of}"),
            "other programs want all cores: training takes a multiple of its planned time",
            "wait for them, or stop them",
        );
    }
    Finding::pass(evidence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Status;
    use crate::hardware::machine::Cpu;

    #[test]
    fn a_busy_machine_is_a_warning_with_what_runs_on_it() {
        let judged = |load: Option<f64>| {
            judge(&Machine {
                cpu: Cpu {
                    logical: 8,
                    allowed: 8,
                    load,
                    busy: vec![("rustc".into(), 9)],
                    ..Cpu::default()
                },
                ..Machine::default()
            })
        };
        for calm in [None, Some(0.0), Some(7.9)] {
            assert_eq!(judged(calm).status, Status::Pass, "{calm:?}");
        }
        let found = judged(Some(12.4));
        assert_eq!(found.status, Status::Warn);
        let evidence = found.evidence.to_string();
        assert!(evidence.contains("12.4: rustc × 9"), "{evidence}");
    }
}
