//! Which interfaces are up? Training needs no network.

use super::{Check, Finding};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "network",
    title: "Network",
    rule: "Reported, not judged: training needs no network.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    if machine.networks.is_empty() {
        return Finding::not_applicable("no interface found; training needs none");
    }
    let up: Vec<String> = machine
        .networks
        .iter()
        .filter(|n| n.up)
        .map(|n| match n.speed_mbps {
            Some(speed) => format!("{} ({} Gbit/s)", n.name, speed as f64 / 1000.0),
            None => n.name.clone(),
        })
        .collect();
    match up.is_empty() {
        true => Finding::pass("no interface is up; training needs none"),
        false => Finding::pass(format!("{} up", up.join(", "))),
    }
}
