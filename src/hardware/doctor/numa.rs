//! Which cores are near which GPU?

use super::{answering, each};
use super::{Check, Verdict};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "numa",
    title: "Memory near the GPU",
    rule: "Told where there are several NUMA nodes; nothing to pass.",
    judge,
};

fn judge(machine: &Machine) -> Verdict {
    if machine.cpu.nodes <= 1 {
        return Verdict::not_applicable("one NUMA node");
    }
    let Ok(gpus) = answering(machine) else {
        return Verdict::pass(format!("{} NUMA nodes, no GPU", machine.cpu.nodes));
    };
    let near = each(&gpus, |gpu| {
        (!gpu.near_cpus.is_empty()).then(|| format!("near CPUs {}", gpu.near_cpus))
    });
    match near {
        Some(words) => Verdict::pass(format!("{} NUMA nodes; {words}", machine.cpu.nodes)),
        None => Verdict::unknown(
            format!("{} NUMA nodes", machine.cpu.nodes),
            "nvidia-smi topo -m",
        ),
    }
}
