//! The binary: reads the environment once, hands everything else to [`llmtui::cli`].

use llmtui::base::paths::Env;
use llmtui::kernels::allocations::Counting;
use std::process::ExitCode;

/// `llmtui bench` reports how often a training step allocates.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    llmtui::cli::main(Env::from_process())
}
