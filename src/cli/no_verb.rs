//! A preset, a file, a run or another tool's word that stands where a subcommand belongs: which one was probably meant.

use super::exit::Exit;
use crate::base::ssh::shell_quote;
use crate::base::text::one_line;
use crate::data::source::is_data_file;
use crate::spec::{SpecSources, alias::own_name, option_elsewhere, setting_named};
use crate::{models, pipeline, plan, run};
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::path::Path;

/// Prints a usage error, and what to write instead where that is known. Help and version go to standard output and
/// succeed; a usage error is a user error.
pub fn usage(error: &mut clap::Error, typed: &[String], sources: &SpecSources) -> Exit {
    let meant = as_settings(error, typed)
        .or_else(|| resume_of_none(error, typed))
        .or_else(|| verb(error).and_then(|word| meant(word, sources)));
    let elsewhere = elsewhere(error, typed);
    if meant.is_some() || !elsewhere.is_empty() {
        // `-- --lr` would make a preset of it, and `sft` is not like `stop`.
        error.remove(ContextKind::Suggested);
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::SuggestedSubcommand);
    }
    let _ = error.print();
    if !error.use_stderr() {
        return Exit::Done;
    }
    if let Some(meant) = meant {
        errln!("\n  try: {}", one_line(&meant));
    }
    if !elsewhere.is_empty() {
        errln!();
    }
    for (option, hint) in elsewhere {
        errln!("  {}: {}", one_line(&option), one_line(&hint));
    }
    Exit::UserError
}

/// Options of other trainers (`--output_dir out`) that are no settings here, each with what to write instead.
fn elsewhere(error: &clap::Error, typed: &[String]) -> Vec<(String, String)> {
    if error.kind() != ErrorKind::UnknownArgument {
        return Vec::new();
    }
    let verb = verb_of(typed);
    let options = typed.iter().skip(1).filter_map(|word| {
        let name = named_elsewhere(word, &verb)?;
        Some((format!("--{name}"), option_elsewhere(name)?))
    });
    options.collect()
}

/// The name of an option that the verb does not have, and no setting has.
fn named_elsewhere<'a>(word: &'a str, verb: &clap::Command) -> Option<&'a str> {
    let name = word.strip_prefix("--")?;
    let name = name.split_once('=').map_or(name, |(name, _)| name);
    let is_own = verb.get_arguments().any(|arg| arg.get_long() == Some(name));
    let other = !is_own && setting_of(name).is_none();
    (other && option_elsewhere(name).is_some()).then_some(name)
}

/// The subcommand that a command line names.
fn verb_of(typed: &[String]) -> clap::Command {
    let mut verb = super::Cli::command();
    for word in typed.iter().skip(1) {
        if let Some(sub) = verb.find_subcommand(word) {
            verb = sub.clone();
        }
    }
    verb
}

/// The command with `--resume auto` where its value is missing: the newest run that can be resumed.
fn resume_of_none(error: &clap::Error, typed: &[String]) -> Option<String> {
    let named = error.get(ContextKind::InvalidArg)?.to_string();
    let is_missing = match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => value.is_empty(),
        _ => true,
    };
    let is_it = error.kind() == ErrorKind::InvalidValue && named.starts_with("--resume");
    if !is_it || !is_missing {
        return None;
    }
    let words = typed.iter().skip(1).map(|word| match word.as_str() {
        "--resume" | "--resume-from-checkpoint" => "--resume auto".to_string(),
        word => shell_quote(word),
    });
    let words: Vec<String> = std::iter::once("llmtui".to_string()).chain(words).collect();
    Some(words.join(" "))
}

/// Options of other trainers that name a section here: the setting that is meant.
const SECTIONS: &[(&str, &str)] = &[
    ("data", "data.path"),
    ("data_path", "data.path"),
    ("dataset_path", "data.path"),
    ("model", "train.from"),
    ("bs", "train.micro_batch_size"),
];

/// The setting that an option of another trainer names, by its name here.
fn setting_of(key: &str) -> Option<String> {
    let plain = key.replace('-', "_");
    let section = SECTIONS.iter().find(|(theirs, _)| *theirs == plain);
    let section = section.map(|(_, setting)| (*setting).to_string());
    section.or_else(|| Some(own_name(&setting_named(key)?)))
}

/// The command with settings of a spec where they were written as options (`--lr 1e-3`) or alone (`lr=1e-3`): each behind its
/// own `-s`.
fn as_settings(error: &clap::Error, typed: &[String]) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let root = super::Cli::command();
    let mut verb = &root;
    let mut words = vec!["llmtui".to_string()];
    let mut rest = typed.iter().skip(1).peekable();
    let mut changed = false;
    while let Some(word) = rest.next() {
        if let Some(sub) = verb.find_subcommand(word) {
            verb = sub;
        }
        match setting(word, rest.peek().copied(), verb) {
            Some((setting, used_next)) => {
                words.extend(["-s".to_string(), shell_quote(&setting)]);
                if used_next {
                    rest.next();
                }
                changed = true;
            }
            // Named below, with what to do instead.
            None if named_elsewhere(word, verb).is_some() => {
                let has_value = |next: &&String| !next.starts_with('-') && !word.contains('=');
                if rest.peek().is_some_and(has_value) {
                    rest.next();
                }
            }
            None => {
                words.push(shell_quote(word));
                // The next word is the option's value.
                if takes_value(word, verb)
                    && let Some(value) = rest.next()
                {
                    words.push(shell_quote(value));
                }
            }
        }
    }
    let sets = verb
        .get_arguments()
        .any(|arg| arg.get_long() == Some("set"));
    (sets && changed).then(|| words.join(" "))
}

/// `key=value` of a word that names a setting and no option of the verb, and whether its value is the word behind it.
fn setting(word: &str, next: Option<&String>, verb: &clap::Command) -> Option<(String, bool)> {
    let name = word.strip_prefix("--");
    let (key, value) = match name.unwrap_or(word).split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (name?, None),
    };
    if name.is_some() && verb.get_arguments().any(|arg| arg.get_long() == Some(key)) {
        return None;
    }
    let key = setting_of(key)?;
    match (value, next) {
        (Some(value), _) => Some((format!("{key}={value}"), false)),
        (None, Some(next)) if !next.starts_with("--") => Some((format!("{key}={next}"), true)),
        // A switch of other tools.
        (None, _) => Some((format!("{key}=true"), false)),
    }
}

/// Whether a word is an option of the verb, or of all verbs, whose value is the next word.
fn takes_value(word: &str, verb: &clap::Command) -> bool {
    let root = super::Cli::command();
    let is_it = |arg: &clap::Arg| {
        let long = word
            .strip_prefix("--")
            .is_some_and(|name| arg.get_long() == Some(name));
        let short = word.strip_prefix('-').and_then(|name| {
            let mut letters = name.chars();
            Some((letters.next()?, letters.next()))
        });
        let short =
            short.is_some_and(|(letter, more)| more.is_none() && arg.get_short() == Some(letter));
        (long || short) && arg.get_action().takes_values()
    };
    verb.get_arguments().chain(root.get_arguments()).any(is_it)
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
    let (path, said) = (Path::new(word), shell_quote(word));
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
    other
        .map(|(_, command)| (*command).to_string())
        .or_else(|| of_a_method(word, sources))
}

/// `grpo`: a preset of a method that has none of its own name.
fn of_a_method(word: &str, sources: &SpecSources) -> Option<String> {
    let all = crate::spec::presets(sources).into_iter();
    let mut named = all.filter(|preset| {
        let rest = preset.name.strip_prefix(word);
        rest.is_some_and(|rest| rest.starts_with('-'))
    });
    let first = named.next().filter(|_| word.len() > 2)?;
    Some(format!("llmtui train {}", first.name))
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
        &["api", "vllm-serve"],
        "llmtui serve MODEL: OpenAI's HTTP API",
    ),
    (
        &["ui", "tui", "webui", "studio", "dashboard", "home"],
        "llmtui without arguments opens the workbench",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_written_as_options_lead_to_the_command_with_s() {
        use clap::Parser;
        let meant = |line: &str| {
            let typed: Vec<String> = line.split(' ').map(String::from).collect();
            let error = super::super::Cli::try_parse_from(&typed).unwrap_err();
            as_settings(&error, &typed)
        };
        for (typed, expected) in [
            (
                "llmtui train quickstart --lr 1e-3",
                "llmtui train quickstart -s lr=1e-3",
            ),
            (
                "llmtui train quickstart --max-steps=5 --headless",
                "llmtui train quickstart -s max_steps=5 --headless",
            ),
            (
                "llmtui train quickstart max_steps=5 --train.threads 2",
                "llmtui train quickstart -s max_steps=5 -s train.threads=2",
            ),
            (
                "llmtui train quickstart -s seed=3 --name mine",
                "llmtui train quickstart -s seed=3 -s name=mine",
            ),
            (
                "llmtui plan quickstart micro_batch_size=4",
                "llmtui plan quickstart -s micro_batch_size=4",
            ),
            (
                "llmtui train sft --model org/name --data=a.jsonl",
                "llmtui train sft -s train.from=org/name -s data.path=a.jsonl",
            ),
            (
                "llmtui train quickstart --learning-rate=1e-3",
                "llmtui train quickstart -s lr=1e-3",
            ),
        ] {
            assert_eq!(meant(typed).as_deref(), Some(expected), "{typed}");
        }
        assert_eq!(
            meant("llmtui train quickstart --loss-curve 3"),
            None,
            "no setting"
        );
        assert_eq!(meant("llmtui stop mine --lr 1e-3"), None, "takes no -s");
    }

    /// `--output_dir` was answered with `-- --output_dir`, which makes a preset of it.
    #[test]
    fn options_of_other_trainers_are_answered_with_the_word_here() {
        use clap::Parser;
        let line = "llmtui train sft --output_dir out --learning_rate 1e-4 --report_to=none --per_device_train_batch_size 2 --do_train";
        let typed: Vec<String> = line.split(' ').map(String::from).collect();
        let error = super::super::Cli::try_parse_from(&typed).unwrap_err();
        let command = as_settings(&error, &typed).unwrap();
        let expected = "llmtui train sft -s lr=1e-4 -s micro_batch_size=2";
        assert!(command.starts_with(expected), "{command}");
        assert!(!command.contains("out"), "{command}");
        let said = elsewhere(&error, &typed);
        let of = |option: &str| {
            said.iter()
                .find(|(name, _)| name == option)
                .map(|(_, hint)| hint.as_str())
        };
        assert!(
            of("--output_dir").unwrap().contains("--runs-dir DIR"),
            "{said:?}"
        );
        assert!(of("--report_to").is_some(), "{said:?}");
        assert_eq!(of("--learning_rate"), None);
        // It was answered twice.
        assert_eq!(named_elsewhere("--bs", &verb_of(&typed)), None);
    }

    #[test]
    fn a_resume_of_nothing_leads_to_the_newest_run() {
        use clap::Parser;
        let meant = |line: &str| {
            let typed: Vec<String> = line.split(' ').map(String::from).collect();
            let error = super::super::Cli::try_parse_from(&typed).unwrap_err();
            resume_of_none(&error, &typed)
        };
        assert_eq!(
            meant("llmtui train --resume").as_deref(),
            Some("llmtui train --resume auto")
        );
        assert_eq!(
            meant("llmtui train my.yaml --headless --resume-from-checkpoint").as_deref(),
            Some("llmtui train my.yaml --headless --resume auto")
        );
        assert_eq!(meant("llmtui train --stop-after"), None);
        assert_eq!(meant("llmtui train --stop-after x"), None);
    }

    #[test]
    fn words_of_other_tools_lead_to_commands_that_there_are() {
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
        for (word, command) in [("sft", "llmtui train sft"), ("rloo", "llmtui train rloo-")] {
            let meant = meant(word, &SpecSources::default()).unwrap_or_default();
            assert!(meant.starts_with(command), "{word}: {meant}");
        }
    }
}
