//! Is the PCIe link as wide and fast as possible? It may drop when idle.

use super::{Check, Finding};
use super::{answering, each};
use crate::hardware::gpu::Gpu;
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "pcie",
    title: "PCIe link",
    rule: "Full generation and width under load.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    let gpus = match answering(machine) {
        Ok(gpus) => gpus,
        Err(none) => return *none,
    };
    if let Some(evidence) = each(&gpus, |gpu| gpu.loaded().then(|| narrow(gpu))?) {
        return Finding::warn(
            evidence,
            "a riser, a slot with fewer lanes, a BIOS setting or a bad contact",
            "move the card to a full slot, check riser and BIOS; `dmesg | grep 'limited by'` shows the cause",
        );
    }
    // The width hardly ever drops when idle; the generation always does.
    if let Some(evidence) = each(&gpus, |gpu| thin(gpu).then(|| narrow(gpu))?) {
        return Finding::unknown(format!("{evidence}, idle"), "check again during training");
    }
    match each(&gpus, |gpu| {
        gpu.pcie
            .map(|p| format!("gen {} x{}", p.max_generation, p.max_width))
    }) {
        Some(evidence) => Finding::pass(evidence),
        None => Finding::unknown("the driver does not report it", "nvidia-smi -q"),
    }
}

fn thin(gpu: &Gpu) -> bool {
    gpu.pcie.is_some_and(|p| p.width < p.max_width)
}

fn narrow(gpu: &Gpu) -> Option<String> {
    let p = gpu.pcie?;
    let full = p.generation >= p.max_generation && p.width >= p.max_width;
    (!full).then(|| {
        format!(
            "gen {} x{} of gen {} x{}",
            p.generation, p.width, p.max_generation, p.max_width
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::doctor::Status;
    use crate::hardware::gpu::Pcie;

    #[test]
    fn an_idle_link_may_slow_down() {
        let judged = |generation, width, utilization| {
            let gpu = Gpu {
                utilization: Some(utilization),
                pcie: Some(Pcie {
                    generation,
                    width,
                    max_generation: 5,
                    max_width: 16,
                }),
                ..Gpu::default()
            };
            judge(&Machine {
                gpus: vec![gpu],
                ..Machine::default()
            })
            .status
        };
        assert_eq!(judged(1, 16, 0), Status::Pass);
        assert_eq!(judged(1, 8, 0), Status::Unknown);
        assert_eq!(judged(5, 8, 99), Status::Warn);
        assert_eq!(judged(5, 16, 99), Status::Pass);
    }
}
