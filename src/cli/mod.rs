//! The command line: one file per subcommand. Only this room prints. A subcommand is a `pub struct Args` and a
//! `pub fn run(args, cx) -> anyhow::Result<Exit>`; errors become exit codes in `exit`.

#[macro_use]
mod out;

mod allocation_failure;
mod args;
mod attach;
mod bench;
mod branch;
mod card;
mod chat;
mod completions;
mod control;
mod data;
mod diagnose;
mod doctor;
mod dry_run;
mod engine_cmd;
mod engine_install;
mod engine_node;
mod engine_script;
mod eval;
mod exit;
mod export;
mod extend;
mod finding;
mod fleet;
mod gc;
mod guide;
mod headless;
mod home;
mod import;
mod init;
mod inspect;
mod ladder;
mod logs;
mod memorization;
mod memory;
mod merge;
mod metrics;
mod model;
mod model_ref;
mod new;
mod no_verb;
mod notify;
mod open_files;
mod parse_child;
mod pause;
mod pipeline;
mod plan;
mod preflight;
mod presets;
mod probe;
mod progress;
mod quantize;
mod queue;
mod release;
mod report;
mod resume;
mod reward;
mod rm;
mod run_ref;
mod run_spec;
mod runs;
mod sandbox_child;
mod score;
mod serve;
mod spec_changes;
mod stop;
mod subject;
mod sweep;
mod target;
mod tokenizer;
mod train;
mod trials;
mod undo;
mod watch;
mod workbench;

use crate::base::{clock::SystemClock, paths::Env};
use crate::hardware::Recording;
use clap::Parser;
use exit::Exit;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

/// Settings shared by all subcommands, passed in rather than looked up.
pub struct Context {
    pub env: Env,
    pub clock: SystemClock,
    /// `--runs-dir`, default `./runs`.
    pub runs_dir: PathBuf,
    /// `--ascii`: the workbench draws ASCII only.
    pub ascii: bool,
    /// `--theme`: the workbench's colours.
    pub theme: Option<String>,
    /// `--hardware`: a recorded machine instead of this one.
    pub hardware: Option<PathBuf>,
    pub stdin_is_terminal: bool,
    pub stdout_is_terminal: bool,
}

impl Context {
    /// The recorded machine of `--hardware`.
    ///
    /// # Errors
    /// The file is not a recording; the message gives location and fix.
    pub fn recording(&self) -> anyhow::Result<Option<Recording>> {
        let read = |file: &PathBuf| {
            Recording::read(file).map_err(|e| {
                exit::Failure::user_error(e.to_string(), "llmtui doctor --record FILE writes one")
            })
        };
        Ok(self.hardware.as_ref().map(read).transpose()?)
    }

    /// Columns of the terminal behind standard output; a pipe gets full lines.
    pub fn columns(&self) -> Option<usize> {
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
        let columns = usize::from(size.ws_col);
        (self.stdout_is_terminal && columns >= 40).then_some(columns)
    }

    /// Whether the terminal gets plain letters alone.
    pub fn plain(&self) -> bool {
        self.ascii || !self.env.utf8
    }

    /// Words as the terminal can show them: in a locale without UTF-8, and with `--ascii`, signs are plain letters.
    pub fn words(&self, text: String) -> String {
        match self.plain() {
            true => out::ascii(&text),
            false => text,
        }
    }

    /// Where specs are searched: the user's configuration folder and the working directory.
    pub fn spec_sources(&self) -> crate::spec::SpecSources {
        spec_sources(&self.env)
    }
}

fn spec_sources(env: &Env) -> crate::spec::SpecSources {
    crate::spec::SpecSources {
        config_dir: env.config_dir.clone(),
        project_dir: ".".into(),
        hub_cache: crate::hub::HubConfig::from_env(env).cache,
        home: env.home.clone(),
        kept_reference: None,
    }
}

/// Where runs are unless `--runs-dir` says otherwise.
const RUNS_DIR: &str = "runs";

/// Train a language model from a terminal, and know whether it is learning.
///
/// Without a subcommand, a terminal opens the workbench; in a pipe the quickstart is trained headless.
#[derive(Debug, Parser)]
#[command(name = "llmtui", version, max_term_width = 100, after_help = exit::HELP)]
pub struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Runs directory
    #[arg(long, global = true, value_name = "DIR", default_value = RUNS_DIR)]
    runs_dir: PathBuf,
    /// Draw the workbench in ASCII
    #[arg(long, global = true)]
    ascii: bool,
    /// Colour theme: ansi, dark, light, okabe-ito, mono or the name of your own
    #[arg(long, global = true, value_name = "NAME")]
    theme: Option<String>,
    /// Use a recorded machine instead of this one (see `llmtui doctor --record`)
    #[arg(long, global = true, value_name = "FILE")]
    hardware: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Train(train::Args),
    Attach(attach::Args),
    Watch(watch::Args),
    Runs(runs::Args),
    Fleet(fleet::Args),
    Logs(logs::Args),
    Metrics(metrics::Args),
    Pause(pause::Args),
    Resume(resume::Args),
    Stop(stop::Args),
    Undo(undo::Args),
    Rm(rm::Args),
    Gc(gc::Args),
    Diagnose(diagnose::Args),
    Guide(guide::Args),
    Report(report::Args),
    Chat(chat::Args),
    Model(model::Args),
    Inspect(inspect::Args),
    Export(export::Args),
    Quantize(quantize::Args),
    Merge(merge::Args),
    Score(score::Args),
    Serve(serve::Args),
    Memorization(memorization::Args),
    Eval(eval::Args),
    Card(card::Args),
    Release(release::Args),
    New(new::Args),
    Import(import::Args),
    Init(init::Args),
    Presets(presets::Args),
    Plan(Box<plan::Args>),
    Sweep(sweep::Args),
    Ladder(Box<ladder::Args>),
    Preflight(preflight::Args),
    Reward(reward::Args),
    Data(data::Args),
    Tokenizer(tokenizer::Args),
    Doctor(doctor::Args),
    Bench(bench::Args),
    Completions(completions::Args),
    Engine(engine_cmd::Args),
    #[command(hide = true)]
    ParseChild(parse_child::Args),
    #[command(hide = true)]
    SandboxChild(sandbox_child::Args),
}

/// The whole program behind `main`: parse, run, map every outcome to an exit code.
pub fn main(env: Env) -> ExitCode {
    crate::kernels::allocations::limit_arenas();
    if let Some(exit) = completions::answer(&env) {
        return exit.into();
    }
    exit::report_panics(&env.runtime_dir);
    if let Ok(launcher) = crate::link::launch::Launcher::this_program(&env) {
        crate::base::child::this_program_is(launcher.program);
    }
    let ending = std::panic::catch_unwind(move || match Cli::try_parse() {
        Ok(cli) => exit::report_and_exit_code(run(cli, env).map_err(allocation_failure::named)),
        Err(mut usage) => {
            let typed = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
            let typed: Vec<String> = typed.collect();
            no_verb::usage(&mut usage, &typed, &spec_sources(&env))
        }
    });
    ending.unwrap_or_else(|_| exit::after_panic()).into()
}

fn run(cli: Cli, env: Env) -> anyhow::Result<Exit> {
    let dumb = env.term == "dumb";
    let cx = Context {
        env,
        clock: SystemClock::new(),
        runs_dir: cli.runs_dir,
        ascii: cli.ascii,
        theme: cli.theme,
        hardware: cli.hardware,
        stdin_is_terminal: std::io::stdin().is_terminal(),
        // A dumb terminal shows lines and no screens.
        stdout_is_terminal: std::io::stdout().is_terminal() && !dumb,
    };
    if !matches!(
        cli.verb,
        Some(Verb::ParseChild(_) | Verb::SandboxChild(_) | Verb::Completions(_))
    ) {
        open_files::check()?;
        crate::link::signals::ignore_sigxfsz();
    }
    // What is wrong with a global option is said before anything starts, also by verbs that do not use it.
    cx.recording()?;
    if let Some(theme) = &cx.theme {
        crate::ui::check_theme(theme, &cx.env, &cx.spec_sources())
            .map_err(|what| exit::Failure::user_error(what, ""))?;
    }
    let Some(verb) = cli.verb else {
        allocation_failure::install(true);
        return home::run(&cx);
    };
    // The parent of a child knows the words of a plain abort; the guard of a sandbox must not have a second thread.
    if !matches!(verb, Verb::ParseChild(_) | Verb::SandboxChild(_)) {
        allocation_failure::install(trains(&verb));
    }
    dispatch(verb, &cx)
}

fn dispatch(verb: Verb, cx: &Context) -> anyhow::Result<Exit> {
    match verb {
        Verb::Train(args) => train::run(args, cx),
        Verb::Attach(args) => attach::run(args, cx),
        Verb::Watch(args) => watch::run(args, cx),
        Verb::Runs(args) => runs::run(args, cx),
        Verb::Fleet(args) => fleet::run(&args, cx),
        Verb::Logs(args) => logs::run(&args, cx),
        Verb::Metrics(args) => metrics::run(&args, cx),
        Verb::Pause(args) => pause::run(&args, cx),
        Verb::Resume(args) => resume::run(&args, cx),
        Verb::Stop(args) => stop::run(&args, cx),
        Verb::Undo(args) => undo::run(&args, cx),
        Verb::Rm(args) => rm::run(&args, cx),
        Verb::Gc(args) => gc::run(&args, cx),
        Verb::Diagnose(args) => diagnose::run(&args, cx),
        Verb::Guide(args) => guide::run(&args, cx),
        Verb::Report(args) => report::run(&args, cx),
        Verb::Chat(args) => chat::run(args, cx),
        Verb::Model(args) => model::run(&args, cx),
        Verb::Inspect(args) => inspect::run(&args, cx),
        Verb::Export(args) => export::run(&args, cx),
        Verb::Quantize(args) => quantize::run(&args, cx),
        Verb::Merge(args) => merge::run(&args, cx),
        Verb::Score(args) => score::run(&args, cx),
        Verb::Serve(args) => serve::run(args, cx),
        Verb::Memorization(args) => memorization::run(&args, cx),
        Verb::Eval(args) => eval::run(&args, cx),
        Verb::Card(args) => card::run(&args, cx),
        Verb::Release(args) => release::run(&args, cx),
        Verb::New(args) => new::run(args, cx),
        Verb::Import(args) => import::run(args, cx),
        Verb::Init(args) => init::run(&args, cx),
        Verb::Presets(args) => presets::run(args, cx),
        Verb::Sweep(args) => sweep::run(&args, cx),
        Verb::Ladder(args) => ladder::run(&args, cx),
        Verb::Plan(args) => plan::run(&args, cx),
        Verb::Preflight(args) => preflight::run(args, cx),
        Verb::Reward(args) => reward::run(&args, cx),
        Verb::Data(args) => data::run(&args, cx),
        Verb::Tokenizer(args) => tokenizer::run(&args, cx),
        Verb::Doctor(args) => doctor::run(args, cx),
        Verb::Bench(args) => bench::run(args, cx),
        Verb::Completions(args) => completions::run(args),
        Verb::Engine(args) => engine_cmd::run(args, cx),
        Verb::ParseChild(args) => parse_child::run(&args, cx),
        Verb::SandboxChild(args) => sandbox_child::run(&args, cx),
    }
}

/// Whether a verb trains, or a process of a run does: what helps against too little memory is another thing.
fn trains(verb: &Verb) -> bool {
    match verb {
        Verb::Engine(args) => args.infer.is_none(),
        Verb::Train(_)
        | Verb::Resume(_)
        | Verb::Preflight(_)
        | Verb::Sweep(_)
        | Verb::Ladder(_)
        | Verb::Bench(_) => true,
        _ => false,
    }
}
