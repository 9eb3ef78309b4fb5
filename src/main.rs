//! The binary: reads the environment once, hands everything else to [`llmtui::cli`].

use llmtui::base::paths::Env;
use std::process::ExitCode;

fn main() -> ExitCode {
    llmtui::cli::main(Env::from_process())
}
