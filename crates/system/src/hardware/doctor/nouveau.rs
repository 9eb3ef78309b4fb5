//! Is another driver bound to the card?

use super::{Check, Finding};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "nouveau",
    title: "No conflicting driver",
    rule: "The nouveau driver is not bound to the card.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    let nvidia = &machine.nvidia;
    if nvidia.pci_devices == 0 {
        return Finding::not_applicable("no NVIDIA GPU in this machine");
    }
    if nvidia.nouveau {
        return Finding::fail(
            "the kernel module nouveau is loaded",
            "nouveau is bound to the card and cannot run CUDA",
            "blacklist nouveau (`/etc/modprobe.d`), rebuild the initramfs, reboot",
        );
    }
    Finding::pass("nouveau is not loaded")
}
