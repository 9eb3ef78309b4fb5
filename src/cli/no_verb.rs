//! A preset, a file, a run or another tool's word that stands where a subcommand belongs: which one was probably meant.

use super::exit::Exit;
use crate::base::ssh::quoted;
use crate::base::text::one_line;
use crate::data::source::is_data_file;
use crate::spec::SpecSources;
use crate::{models, pipeline, plan, run};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::path::Path;

/// Prints a usage error, and what to write instead where that is known. Help and version go to standard output and
/// succeed; a usage error is a user error.
pub fn usage(error: &clap::Error, sources: &SpecSources) -> Exit {
    let _ = error.print();
    if !error.use_stderr() {
        return Exit::Done;
    }
    if let Some(meant) = verb(error).and_then(|word| meant(word, sources)) {
        tell!("\n  try: {}", one_line(&meant));
    }
    Exit::Yours
}

/// What stands in place of this program's own subcommand.
fn verb(error: &clap::Error) -> Option<&str> {
    let own = || {
        let usage = error.get(ContextKind::Usage).map(ToString::to_string);
        usage.is_some_and(|usage| usage.contains("llmtui [OPTIONS]"))
    };
    match error.get(ContextKind::InvalidSubcommand)? {
        ContextValue::String(word) if error.kind() == ErrorKind::InvalidSubcommand && own() => {
            Some(word)
        }
        _ => None,
    }
}

fn meant(word: &str, sources: &SpecSources) -> Option<String> {
    let (path, said) = (Path::new(word), quoted(word));
    let is_run = || {
        let runs = Path::new(super::RUNS_DIR);
        path.join("run.json").is_file() || run::index::resolve(runs, word).is_ok()
    };
    if models::kind(path).is_ok() {
        return Some(format!("llmtui chat {said}"));
    }
    if plan::target::is_spec(word, sources) && !is_data_file(path)
        || pipeline::find(word, sources).is_ok_and(|found| found.is_some())
    {
        return Some(format!("llmtui train {said}"));
    }
    if path.exists() && is_data_file(path) {
        return Some(format!("llmtui train quickstart -s data.path={said}"));
    }
    if is_run() {
        return Some(format!("llmtui attach {said}"));
    }
    let other = OTHERS.iter().find(|(words, _)| words.contains(&word));
    other.map(|(_, command)| (*command).to_string())
}

/// Subcommands of other trainers (LLaMA-Factory, Axolotl, TRL, torchtune, LitGPT, Unsloth) and of shells, and what does it here.
const OTHERS: &[(&[&str], &str)] = &[
    (&["compare", "diff"], "llmtui runs --compare RUN RUN"),
    (
        &["list", "ls", "ps", "status", "list-checkpoints"],
        "llmtui runs",
    ),
    (
        &["finetune", "fine-tune", "finetune_lora", "finetune_full"],
        "llmtui train sft-lora -s train.from=MODEL -s data.path=FILE",
    ),
    (&["pretrain"], "llmtui train quickstart -s data.path=FILE"),
    (
        &["generate", "inference", "infer", "sample", "run"],
        "llmtui chat MODEL --prompt TEXT",
    ),
    (&["evaluate", "lm-eval", "test"], "llmtui eval MODEL"),
    (&["perplexity", "ppl"], "llmtui score MODEL FILE"),
    (&["validate", "check"], "llmtui train SPEC --dry-run"),
    (
        &["merge-lora", "merge_lora"],
        "llmtui merge --base MODEL --adapter DIR --to DIR",
    ),
    (
        &["convert"],
        "llmtui export MODEL, llmtui data convert FILE or llmtui import CONFIG",
    ),
    (&["download", "fetch", "pull"], "llmtui model pull ID"),
    (&["env", "info"], "llmtui doctor"),
    (&["version"], "llmtui --version"),
    (&["preprocess", "tokenize"], "llmtui data inspect FILE"),
    (&["delete", "remove"], "llmtui rm RUN"),
    (&["kill", "cancel"], "llmtui stop RUN"),
    (&["config", "wizard"], "llmtui new"),
    (&["benchmark"], "llmtui bench train"),
    (
        &["serve", "api", "vllm-serve"],
        "llmtui export MODEL --format gguf --to FILE.gguf: llama.cpp and others serve that file",
    ),
    (
        &["ui", "tui", "webui", "studio", "dashboard", "home"],
        "llmtui: alone it opens the workbench",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_other_tools_lead_to_commands_that_there_are() {
        use clap::CommandFactory;
        let own = super::super::Cli::command();
        let own: Vec<&str> = own.get_subcommands().map(|c| c.get_name()).collect();
        let mut seen = Vec::new();
        for (words, command) in OTHERS {
            let verb = command.split(' ').nth(1).unwrap_or_default();
            let known = own.contains(&verb)
                || verb == "--version"
                || *command == OTHERS[OTHERS.len() - 1].1;
            assert!(known, "{command}");
            for word in *words {
                // A word that is a subcommand would never come here; one in two rows would hide the second.
                assert!(!own.contains(word) && !seen.contains(word), "{word}");
                seen.push(word);
            }
        }
        assert_eq!(
            meant("compare", &SpecSources::default()).as_deref(),
            Some("llmtui runs --compare RUN RUN")
        );
    }
}
