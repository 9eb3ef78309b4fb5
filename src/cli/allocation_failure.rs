//! The final message when an allocation fails: in the log of a run, and on standard error. The exit code is that of a machine
//! that failed, not of a bug.

use super::exit::{Exit, Failure};
use crate::base::human;
use crate::kernels::allocations::failure::{self, FailureHook};
use crate::link::{FinalEventWriter, message};
use rustix::process::{Resource, getrlimit};
use std::sync::atomic::{AtomicBool, Ordering};

/// How the message begins.
const OUT_OF_MEMORY: &str = "out of memory";

/// What helps most often: where a model is trained, and where one is read.
const FIX: &str = "lower train.micro_batch_size, model.seq_len or train.threads, use a smaller model, or raise the limit (ulimit -v)";
const FIX_OF_READERS: &str =
    "use a smaller model or less data at once, or raise the limit (ulimit -v)";
/// How errors of the system and of libraries begin or end that are about memory.
const SIGNS: [&str; 3] = [
    "out of memory",
    "Cannot allocate memory",
    "memory allocation failed",
];

/// Whether this process trains.
static TRAINS: AtomicBool = AtomicBool::new(false);

fn fix() -> &'static str {
    match TRAINS.load(Ordering::Relaxed) {
        true => FIX,
        false => FIX_OF_READERS,
    }
}

/// From now on an allocation that fails ends this process with a message and exit code 3.
pub fn install(trains: bool) {
    TRAINS.store(trains, Ordering::Relaxed);
    if failure::install(Exit::Machine.code()).is_err() {
        return;
    }
    // For the life of the process.
    std::mem::forget(FailureHook::new(|bytes| {
        crate::ui::give_back_terminal();
        errln!("llmtui: {}\n  try: {}", what_failed(bytes as u64), fix());
    }));
}

/// An error that memory was refused for, whatever verb and library it came through, is reported as the end by an allocation is, and
/// has its class.
pub fn named(error: anyhow::Error) -> anyhow::Error {
    let told: Vec<String> = error.chain().map(ToString::to_string).collect();
    let refused = crate::base::mapped::refused().max(failure::refused() as u64);
    let about = |sign: &&str| told.iter().any(|words| words.contains(*sign));
    match refused > 0 && SIGNS.iter().any(about) {
        true => Failure::machine(what_failed(refused), fix()).into(),
        false => error,
    }
}

/// The same of a process that ended with these words on its standard error: the program's own come last.
pub fn of_child(words: &str) -> Option<Failure> {
    let (what, hint) = message::parts(words)?;
    what.starts_with(OUT_OF_MEMORY)
        .then(|| Failure::machine(what, hint))
}

/// The same for the log of a run, while it is held.
pub fn of_run(word: FinalEventWriter) -> FailureHook {
    FailureHook::new(move |bytes| {
        word.write(&message::line(&what_failed(bytes as u64), FIX));
    })
}

/// With the numbers that tell a limit from a machine that is full.
fn what_failed(bytes: u64) -> String {
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
        "{OUT_OF_MEMORY}: an allocation of {} failed; address space mapped {mapped} ({limit}), resident {resident}, \
         available on this machine {free}",
        human::bytes(bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_words_of_a_child_stand_behind_those_of_the_library() {
        let words = "memory allocation of 552960 bytes failed\nllmtui: out of memory: an allocation of 540 KiB failed\n  try: a smaller model";
        let failure = of_child(words).unwrap();
        assert_eq!(failure.exit, Exit::Machine);
        assert_eq!(
            failure.what,
            "out of memory: an allocation of 540 KiB failed"
        );
        assert_eq!(failure.hint, "a smaller model");
        assert!(of_child("llmtui: m.gguf does not exist").is_none());
    }
}
