//! Which CPUs are near which GPU?

use super::{Check, Finding};
use super::{answering, each};
use crate::hardware::machine::Machine;
use std::collections::BTreeSet;

pub const CHECK: Check = Check {
    id: "numa",
    title: "Memory near the GPU",
    rule: "With several NUMA nodes, this process may run near each GPU.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    if machine.cpu.nodes <= 1 {
        return Finding::not_applicable("one NUMA node");
    }
    let Ok(gpus) = answering(machine) else {
        return Finding::pass(format!("{} NUMA nodes, no GPU", machine.cpu.nodes));
    };
    let nodes = machine.cpu.nodes;
    let allowed = cpus(&machine.cpu.allowed_list);
    let far = each(&gpus, |gpu| {
        let near = cpus(&gpu.near_cpus);
        let apart = !near.is_empty() && !allowed.is_empty() && near.is_disjoint(&allowed);
        apart.then(|| format!("near CPUs {}", gpu.near_cpus))
    });
    if let Some(words) = far {
        return Finding::warn(
            format!(
                "{nodes} NUMA nodes; {words}, but this process may only run on {}",
                machine.cpu.allowed_list
            ),
            "transfers to such a GPU cross the link between the sockets: 10 to 30 % slower",
            "bind it near its GPU: `numactl --cpunodebind=N --membind=N`, or choose a near GPU with CUDA_VISIBLE_DEVICES",
        );
    }
    let near = each(&gpus, |gpu| {
        (!gpu.near_cpus.is_empty()).then(|| format!("near CPUs {}", gpu.near_cpus))
    });
    match near {
        Some(words) => Finding::pass(format!("{nodes} NUMA nodes; {words}")),
        None => Finding::unknown(format!("{nodes} NUMA nodes"), "nvidia-smi topo -m"),
    }
}

/// `0-2,8` → 0, 1, 2, 8; empty for an invalid list.
fn cpus(list: &str) -> BTreeSet<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse::<u32>().ok()?.min(LARGEST))
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// No machine has more processors.
const LARGEST: u32 = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::Gpu;
    use crate::hardware::doctor::Status;

    #[test]
    fn a_process_far_from_its_gpu_gets_a_warning() {
        assert_eq!(cpus("0-2,8").into_iter().collect::<Vec<_>>(), [0, 1, 2, 8]);
        assert!(cpus("x").is_empty() && cpus("").is_empty());
        let mut machine = Machine::default();
        machine.cpu.nodes = 2;
        machine.gpus = vec![Gpu {
            near_cpus: "32-63".into(),
            ..Gpu::default()
        }];
        assert_eq!(judge(&machine).status, Status::Pass);
        machine.cpu.allowed_list = "0-31".into();
        let verdict = judge(&machine);
        assert_eq!(verdict.status, Status::Warn);
        let evidence = verdict.evidence.to_string();
        assert!(evidence.contains("only run on 0-31"), "{evidence}");
        machine.cpu.allowed_list = "0-32".into();
        assert_eq!(judge(&machine).status, Status::Pass);
    }
}
