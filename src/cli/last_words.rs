//! The final message when an allocation fails: in the log of a run, and on standard error. The exit code is that of a machine
//! that failed, not of a bug.

use super::exit::Exit;
use crate::base::human;
use crate::kernels::allocations::failure::{self, Words};
use crate::link::Host;
use rustix::process::{Resource, getrlimit};

/// What helps most often.
const FIX: &str = "a smaller train.micro_batch_size, model.seq_len or model, fewer train.threads, or a higher limit (ulimit -v)";

/// From now on an allocation that fails ends this process with a message and exit code 3.
pub fn arm() {
    if failure::arm(Exit::Machine.code()).is_err() {
        return;
    }
    // For the life of the process.
    std::mem::forget(Words::new(|bytes| {
        crate::ui::give_back_terminal();
        tell!("llmtui: {}\n  try: {FIX}", what_failed(bytes));
    }));
}

/// The same for the log of a run, while it is held.
pub fn of_run<T: Send + 'static>(host: &Host<T>) -> Words {
    let word = host.last_word();
    Words::new(move |bytes| {
        word.say(&format!("{}; try {FIX}", what_failed(bytes)));
    })
}

/// With the numbers that tell a limit from a machine that is full.
fn what_failed(bytes: usize) -> String {
    let [mapped, resident] = ["VmSize", "VmRSS"].map(|key| {
        let bytes = crate::hardware::own_memory(key);
        bytes.map_or_else(|| "unknown".into(), human::bytes)
    });
    let limit = getrlimit(Resource::As).current;
    let limit = limit.map_or_else(
        || "no limit".into(),
        |limit| format!("limit {}", human::bytes(limit)),
    );
    let free = human::bytes(crate::hardware::memory().available);
    format!(
        "out of memory: an allocation of {} failed; address space mapped {mapped} ({limit}), resident {resident}, \
         available on this machine {free}",
        human::bytes(bytes as u64)
    )
}
