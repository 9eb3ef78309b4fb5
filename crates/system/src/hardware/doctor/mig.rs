//! GPUs with MIG enabled.

use super::{Check, Finding};
use super::{answering, each};
use crate::base::human;
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "mig",
    title: "GPU instances (MIG)",
    rule: "A GPU with MIG enabled has instances.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    let gpus = match answering(machine) {
        Ok(gpus) => gpus,
        Err(none) => return *none,
    };
    let empty = each(&gpus, |gpu| {
        let mig = gpu.mig.as_ref().filter(|m| m.enabled)?;
        mig.devices
            .is_empty()
            .then(|| "MIG is on but there are no instances".into())
    });
    if let Some(evidence) = empty {
        return Finding::fail(
            evidence,
            "such a GPU exposes no device to CUDA",
            "create instances (`sudo nvidia-smi mig -cgi PROFILE -C`), or turn MIG off",
        );
    }
    let cut = each(&gpus, |gpu| {
        let mig = gpu.mig.as_ref().filter(|m| m.enabled)?;
        let words: Vec<String> = mig
            .devices
            .iter()
            .map(|d| format!("{} ({})", d.name, human::bytes(d.memory_total)))
            .collect();
        Some(words.join(", "))
    });
    match cut {
        Some(words) if machine.nvidia.cuda_visible_devices.is_none() => Finding::pass(format!(
            "{words}; without CUDA_VISIBLE_DEVICES the first instance is used"
        )),
        Some(words) => Finding::pass(words),
        None => Finding::not_applicable("MIG is not enabled on any GPU"),
    }
}
