//! Is all-reduce as fast as the links? That would take a transfer, and the doctor is read-only.

use super::{Check, Finding, answering};
use crate::hardware::machine::Machine;

pub const CHECK: Check = Check {
    id: "collectives",
    title: "All-reduce measured",
    rule: "Not judged: the doctor only reads. Shows the command that measures it.",
    judge,
};

fn judge(machine: &Machine) -> Finding {
    let gpus = match answering(machine) {
        Ok(gpus) if gpus.len() > 1 => gpus,
        Ok(_) => return Finding::not_applicable("one GPU: no collectives"),
        Err(none) => return *none,
    };
    let fix = format!(
        "nccl-tests: `all_reduce_perf -b 8 -e 1G -f 2 -g {}`; 70 % of the links' bandwidth and more is healthy",
        gpus.len()
    );
    Finding::unknown(
        format!(
            "{} GPUs; measuring uses their memory and time, and the doctor only reads",
            gpus.len()
        ),
        &fix,
    )
}
