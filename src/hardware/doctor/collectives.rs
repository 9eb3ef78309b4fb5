//! Do several GPUs sum as fast as their links are? Nobody knows before something is sent, and the doctor sends nothing.

use super::{Check, Finding, answering};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "collectives",
    title: "All-reduce measured",
    rule: "Never by itself: the doctor only reads. It names the command that measures.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    let gpus = match answering(machine) {
        Ok(gpus) if gpus.len() > 1 => gpus,
        Ok(_) => return Finding::not_applicable("one GPU: nothing to sum over"),
        Err(none) => return *none,
    };
    let fix = format!(
        "nccl-tests: `all_reduce_perf -b 8 -e 1G -f 2 -g {}`; 70 % of the links' bandwidth and more is healthy",
        gpus.len()
    );
    Finding::unknown(
        format!(
            "{} GPUs; a sum over them takes their memory and time, and the doctor only reads",
            gpus.len()
        ),
        &fix,
    )
}
