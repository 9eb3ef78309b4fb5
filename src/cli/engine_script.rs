//! `llmtui engine script`: a file for SLURM or SkyPilot that trains a spec or goes on with a run; and `llmtui engine state`, which such
//! a file asks.

use super::args::SpecArgs;
use super::exit::{Exit, Failure};
use super::target::print_notes;
use super::{Context, model_ref, run_ref};
use crate::base::files::write_new;
use crate::base::text::{one_line, shown};
use crate::data::source::Origin;
use crate::plan::start;
use crate::plan::target::is_spec;
use crate::run::RunDir;
use crate::run::index::{self, RunStatus};
use crate::spec::RunSpec;
use crate::workers::job::{self, Goal, Job, Sky, Slurm, shell_quote, slurm_seconds};
use crate::workers::torch::{Device, Launcher};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Write a job for SLURM or SkyPilot that trains a spec or resumes a run
///
/// The job trains headless. A signal before the time limit makes it save a checkpoint; it is then requeued and resumes until the
/// run is complete. Nothing is submitted.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("kind").required(true).args(["slurm", "skypilot"])))]
#[command(after_help = "Examples:
  llmtui engine script my.yaml --slurm --gpus 4 --time 08:00:00 -s engine=torch --to job.sh && sbatch job.sh
  llmtui engine script my.yaml --slurm --nodes 4 --gpus 8 -s engine=torch -s engine.torch.shard=fsdp2 --to job.sh
  llmtui engine script my-run --slurm --time 04:00:00 | sbatch
  llmtui engine script my.yaml --skypilot --gpu H100 -s engine=torch --bucket s3://mine/runs --to job.yaml")]
pub struct ScriptArgs {
    /// A preset, a spec file, or a run
    #[arg(value_name = "SPEC|RUN")]
    target: String,
    /// Change one value of a spec; may be repeated
    #[arg(short = 's', long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Write a script for SLURM's sbatch (or use --skypilot)
    #[arg(long)]
    slurm: bool,
    /// Write a task for SkyPilot, as YAML (or use --slurm)
    #[arg(long)]
    skypilot: bool,
    /// Output file, which must not exist; default: standard output
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// With --slurm and engine=torch: number of nodes; srun starts ranks on each
    #[arg(long, value_name = "N", requires = "slurm", value_parser = clap::value_parser!(u64).range(1..=128))]
    nodes: Option<u64>,
    /// GPUs per node; with engine=torch one process per GPU. Default with engine=torch: engine.torch.ranks, or 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    gpus: Option<u64>,
    /// CPU cores. Default: 4 per GPU; without GPUs train.threads, or 8
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    cpus: Option<u64>,
    /// With --slurm: time limit of one allocation (HH:MM:SS, D-HH:MM:SS, minutes)
    #[arg(long, value_name = "TIME", conflicts_with = "skypilot")]
    time: Option<String>,
    /// With --slurm: partition to submit to, as listed by sinfo; default: the cluster's default
    #[arg(long, value_name = "NAME", conflicts_with = "skypilot", value_parser = word)]
    partition: Option<String>,
    /// With --slurm: another option of sbatch, such as account=NAME, qos=NAME, constraint=a100, mail-type=END or mem=64G; may be repeated
    #[arg(long, value_name = "OPTION=VALUE", conflicts_with = "skypilot", value_parser = sbatch_option)]
    sbatch: Vec<String>,
    /// GPU type: SkyPilot's name (H100, A100-80GB, L4; `sky show-gpus` lists them), or the SLURM cluster's own (`sinfo -o %G` shows
    /// it)
    #[arg(long, value_name = "NAME", value_parser = word)]
    gpu: Option<String>,
    /// With --skypilot: bucket that stores the runs, s3://… or gs://…; without one they are lost with the rented machine
    #[arg(long, value_name = "URL", conflicts_with = "slurm", value_parser = bucket)]
    bucket: Option<String>,
}

/// Print a run's state in one word: live, finished, stopped, failed, crashed, empty
#[derive(Debug, clap::Args)]
pub struct StateArgs {
    /// A run's directory, id or name
    #[arg(value_name = "RUN")]
    run: String,
}

/// A time limit in one of SLURM's forms, which are many: an error lists them all.
fn time(text: &str) -> Result<String, Failure> {
    match slurm_seconds(text) {
        Some(_) => Ok(text.into()),
        None => Err(Failure::user_error(
            format!("--time {} is not a SLURM time limit", one_line(text)),
            "HH:MM:SS (08:00:00), D-HH:MM:SS (1-12:00:00), D-HH:MM, D-HH, MM:SS or minutes (90), above 0; \
             minutes and seconds are at most 59",
        )),
    }
}

fn word(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._,-".contains(c);
    match !text.is_empty() && !text.starts_with('-') && text.chars().all(plain) {
        true => Ok(text.into()),
        false => Err("letters, digits, dots, commas and dashes".into()),
    }
}

/// What the script itself asks for, and needs as it is.
const OWN_OPTIONS: [&str; 9] = [
    "nodes",
    "ntasks",
    "ntasks-per-node",
    "array",
    "signal",
    "requeue",
    "no-requeue",
    "wrap",
    "open-mode",
];

/// An option of sbatch, with dashes in front or without.
fn sbatch_option(text: &str) -> Result<String, String> {
    let plain = text.trim_start_matches('-');
    let (name, value) = match plain.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (plain, None),
    };
    let is_name = |c: char| c.is_ascii_lowercase() || c == '-';
    if name.is_empty() || !name.chars().all(is_name) {
        return Err("a long option of sbatch: account=NAME, mem=64G, exclusive".into());
    }
    if OWN_OPTIONS.contains(&name) {
        return Err(format!("the script sets --{name} itself"));
    }
    let is_value = |c: char| c.is_ascii_graphic() && !"\"'`\\#".contains(c);
    match value.is_none_or(|value| !value.is_empty() && value.chars().all(is_value)) {
        true => Ok(plain.into()),
        false => Err("a value without spaces, quotes and #".into()),
    }
}

fn bucket(text: &str) -> Result<String, String> {
    match text.split_once("://") {
        Some((scheme, rest)) if !scheme.is_empty() && !rest.is_empty() => Ok(text.into()),
        _ => Err("write its URL: s3://bucket/folder".into()),
    }
}

pub fn state(args: &StateArgs, cx: &Context) -> anyhow::Result<Exit> {
    let run = run_ref::named(&args.run, cx)?;
    outln!("{}", index::summarize(&run)?.status.word())?;
    Ok(Exit::Done)
}

pub fn script(args: &ScriptArgs, cx: &Context) -> anyhow::Result<Exit> {
    let time = args.time.as_deref().map(time).transpose()?;
    let folder = std::env::current_dir()?;
    let (spec, goal) = match run_of(args, cx)? {
        Some(run) => {
            let path = folder.join(run.path());
            (run_ref::spec_of(&run)?, Goal::Run(words(&path)?))
        }
        None => spec_of(args, &folder, cx)?,
    };
    let nodes = args.nodes.map_or(1, |n| n as usize);
    let gpus = gpus(args, &spec, nodes)?;
    let cpus = args
        .cpus
        .map_or_else(|| cpus(&spec, gpus, nodes), |n| n as usize);
    let goal = on_nodes(goal, &spec, nodes, gpus)?;
    let job = Job {
        name: spec.name.clone(),
        goal,
        nodes,
        gpus,
        cpus,
    };
    let llmtui = words(&std::env::current_exe()?)?;
    let text = if args.slurm {
        let slurm = Slurm {
            time,
            partition: args.partition.clone(),
            gpu: kind_of_gpu(args, gpus)?,
            memory: start::job_memory(&spec, gpus),
            options: args.sbatch.clone(),
            llmtui,
            folder: words(&folder)?,
            runs_dir: words(&folder.join(&cx.runs_dir))?,
        };
        job::script(&job, &slurm)
    } else {
        sky_task(args, &job, &spec, llmtui, &folder)?
    };
    if let Some(bucket) = &args.bucket {
        fit("--bucket", bucket)?;
    }
    for option in &args.sbatch {
        fit("--sbatch", option)?;
    }
    write_out(args, &text)?;
    Ok(Exit::Done)
}

/// With a note on each file that the machine would not have.
fn sky_task(
    args: &ScriptArgs,
    job: &Job,
    spec: &RunSpec,
    llmtui: String,
    folder: &Path,
) -> anyhow::Result<String> {
    for path in outside(spec, folder) {
        errln!(
            "note: {} is outside {}, and only that folder is uploaded to the machine: copy it there, or add it to the task's file_mounts",
            shown(&path),
            shown(folder)
        );
    }
    let sky = Sky {
        accelerator: accelerator(args, job.gpus)?,
        bucket: args.bucket.clone(),
        llmtui,
        folder: words(folder)?,
        installs_torch: match spec.engine.torch() {
            Some(torch) => torch.python.is_none(),
            None => spec.engine.is_open() && job.gpus > 0,
        },
    };
    Ok(job::task(job, &sky))
}

/// Writes the script to its file, with the command that starts it, or to standard output.
fn write_out(args: &ScriptArgs, text: &str) -> anyhow::Result<()> {
    let Some(file) = &args.to else {
        std::io::stdout().lock().write_all(text.as_bytes())?;
        return Ok(());
    };
    write_script(file, text)?;
    let file = shell_quote(&file.to_string_lossy());
    let start = if args.slurm {
        "sbatch"
    } else {
        "sky jobs launch"
    };
    errln!("start it with: {start} {file}");
    Ok(())
}

/// The run that is meant, with steps left; `None` where the word is a spec.
fn run_of(args: &ScriptArgs, cx: &Context) -> anyhow::Result<Option<RunDir>> {
    if is_spec(&args.target, &cx.spec_sources()) {
        return Ok(None);
    }
    let run = index::resolve(&cx.runs_dir, &args.target).map_err(|e| {
        if run_ref::names_a_pipeline(&args.target, cx) {
            return run_ref::is_a_pipeline(&args.target);
        }
        let hint = "llmtui presets list · llmtui runs";
        Failure::user_error(format!("no preset or file has this name, and {e}"), hint)
    })?;
    let id = run.folder();
    let command = |verb: &str| run_ref::command(verb, run.path(), &cx.runs_dir);
    if args.skypilot {
        let what = format!("{id} is on this machine, but a SkyPilot job starts on another");
        let hint = "use its spec: copy RUN/spec.yaml into the working directory; or use --slurm if the machines share a disk";
        return Err(Failure::user_error(what, hint).into());
    }
    if !args.set.is_empty() {
        let what = format!("{id} keeps its settings: -s applies to a spec");
        let hint = format!(
            "{} -s KEY=VALUE --no-start creates a run with other settings",
            command("train --branch")
        );
        return Err(Failure::user_error(what, hint).into());
    }
    let summary = index::summarize(&run)?;
    if summary.status == RunStatus::Finished {
        let why = match summary.has_steps_left() {
            true => "ended early, by eval.patience",
            false => "has completed all its steps",
        };
        let hint = format!(
            "train it longer: {} -s max_steps=N",
            command("train --resume")
        );
        return Err(Failure::user_error(format!("{id} {why}"), hint).into());
    }
    Ok(Some(run))
}

/// The spec, read as it will be there, and how the job names it.
fn spec_of(args: &ScriptArgs, folder: &Path, cx: &Context) -> anyhow::Result<(RunSpec, Goal)> {
    for setting in &args.set {
        fit(
            &format!("-s {}", setting.split('=').next().unwrap_or_default()),
            setting,
        )?;
    }
    // A run's name may mean another one when the job is requeued: its own, for one.
    let set = model_ref::with_runs(&args.set, cx)?;
    let loaded = SpecArgs {
        spec: Some(args.target.clone()),
        config: None,
        set: set.clone(),
    }
    .load(cx)?;
    print_notes(&loaded);
    let file = folder.join(&args.target);
    let mut spec = args.target.clone();
    if args.skypilot && file.is_file() {
        let there = std::fs::canonicalize(&file)?;
        let inside = there.strip_prefix(std::fs::canonicalize(folder)?);
        let inside = inside.map_err(|_| {
            let what = format!(
                "{} is outside the working directory, and only that is uploaded",
                args.target
            );
            Failure::user_error(what, "copy it here, with its data")
        })?;
        spec = words(inside)?;
    }
    fit("the spec's name", &spec)?;
    Ok((loaded.spec, Goal::Spec { spec, set }))
}

/// Ranks on every node of a job of several, which srun starts there.
fn on_nodes(goal: Goal, spec: &RunSpec, nodes: usize, gpus: usize) -> anyhow::Result<Goal> {
    let torch = spec.engine.torch();
    let by_srun = torch.is_some_and(|torch| torch.launcher == Launcher::Srun);
    if nodes == 1 && !by_srun {
        return Ok(goal);
    }
    let Some(torch) = torch else {
        let what = format!("engine: candle runs on one machine: {nodes} nodes cannot share a run");
        return Err(Failure::user_error(what, "-s engine=torch").into());
    };
    let ranks = match (gpus, torch.ranks) {
        (0, Some(ranks)) => ranks,
        (0, None) => nodes,
        (gpus, _) => gpus * nodes,
    };
    if ranks % nodes != 0 {
        let what = format!("engine.torch.ranks {ranks} cannot be split over {nodes} nodes");
        let hint = format!("-s engine.torch.ranks={}", ranks.div_ceil(nodes) * nodes);
        return Err(Failure::user_error(what, hint).into());
    }
    match goal {
        Goal::Spec { spec, mut set } => {
            set.push("engine.torch.launcher=srun".into());
            set.push(format!("engine.torch.ranks={ranks}"));
            Ok(Goal::Spec { spec, set })
        }
        Goal::Run(run) if by_srun && torch.ranks.is_none_or(|own| own == ranks) => {
            Ok(Goal::Run(run))
        }
        Goal::Run(run) => {
            let what = format!("{run} was created for other machines than {nodes} SLURM nodes");
            let hint = format!(
                "llmtui train --branch {run} -s engine.torch.launcher=srun -s engine.torch.ranks={ranks} --no-start creates a branch that continues there"
            );
            Err(Failure::user_error(what, hint).into())
        }
    }
}

/// Cores to ask for on each node: four a GPU feed it; without one, every process computes on its threads.
fn cpus(spec: &RunSpec, gpus: usize, nodes: usize) -> usize {
    let threads = spec.train.threads.unwrap_or(8);
    let ranks = spec.engine.torch().and_then(|t| t.ranks).unwrap_or(1);
    match gpus {
        0 => threads * ranks.div_ceil(nodes),
        n => 4 * n,
    }
}

/// GPUs of each node, for the engine that the spec names.
fn gpus(args: &ScriptArgs, spec: &RunSpec, nodes: usize) -> anyhow::Result<usize> {
    if spec.engine.is_open() {
        return Ok(args.gpus.map_or(0, |n| n as usize));
    }
    let Some(torch) = spec.engine.torch().filter(|t| t.device != Device::Cpu) else {
        let Some(n) = args.gpus else { return Ok(0) };
        let what = match spec.engine.torch() {
            Some(_) => format!("engine.torch.device is cpu: {n} GPUs would be idle"),
            None => format!("engine: candle runs on the CPU: {n} GPUs would be idle"),
        };
        let hint = "add -s engine=torch to train on GPUs; otherwise drop --gpus";
        return Err(Failure::user_error(what, hint).into());
    };
    let own = torch.ranks.map(|ranks| ranks.div_ceil(nodes));
    let n = args.gpus.map_or(own.unwrap_or(1), |n| n as usize);
    let all = n * nodes;
    if let Some(ranks) = torch.ranks.filter(|ranks| *ranks != all) {
        let on_nodes = match nodes {
            1 => String::new(),
            _ => format!(" on each of {nodes} nodes"),
        };
        let what = format!(
            "engine.torch.ranks is {ranks}, but --gpus is {n}{on_nodes}: each process needs one GPU"
        );
        let hint = format!(
            "--gpus {}, or -s engine.torch.ranks={all}",
            ranks.div_ceil(nodes)
        );
        return Err(Failure::user_error(what, hint).into());
    }
    let rows = spec.train.micro_batch_size;
    if rows < all {
        let what =
            format!("train.micro_batch_size {rows} is shared by {all} GPUs: some would get no row");
        return Err(Failure::user_error(
            what,
            format!("-s train.micro_batch_size={all} or more, or fewer GPUs"),
        )
        .into());
    }
    Ok(n)
}

/// What a spec reads of this machine that does not lie in the folder that is sent.
fn outside(spec: &RunSpec, folder: &Path) -> Vec<PathBuf> {
    let sources = spec
        .data
        .all_sources()
        .into_iter()
        .map(|source| source.origin);
    let named = sources.filter_map(|origin| match origin {
        Origin::Path(path) | Origin::Named(path) => Some(PathBuf::from(path)),
        Origin::Hub(_) | Origin::Synthetic(_) => None,
    });
    let from = spec.train.from.clone();
    let here = folder.canonicalize().unwrap_or_else(|_| folder.into());
    let away = |path: &PathBuf| {
        let full = folder.join(path).canonicalize();
        full.is_ok_and(|full| !full.starts_with(&here))
    };
    named.chain(from).filter(away).collect()
}

/// The kind of GPU that was asked for.
fn kind_of_gpu(args: &ScriptArgs, gpus: usize) -> anyhow::Result<Option<String>> {
    match (&args.gpu, gpus) {
        (Some(gpu), 0) => {
            let what = format!("--gpu {gpu}, but this spec trains on the CPU");
            Err(Failure::user_error(what, "-s engine=torch").into())
        }
        (gpu, _) => Ok(gpu.clone()),
    }
}

/// The same where it has to be named.
fn accelerator(args: &ScriptArgs, gpus: usize) -> anyhow::Result<Option<String>> {
    let kind = kind_of_gpu(args, gpus)?;
    if kind.is_none() && gpus > 0 {
        let hint = "--gpu H100; sky show-gpus names them";
        return Err(Failure::user_error("SkyPilot needs a GPU type", hint).into());
    }
    Ok(kind)
}

/// A path as text that may stand in the file.
fn words(path: &Path) -> anyhow::Result<String> {
    let Some(text) = path.to_str() else {
        let what = format!("{} is not UTF-8, and a job file must be", shown(path));
        return Err(Failure::user_error(what, "rename it").into());
    };
    fit("a path", text)?;
    Ok(text.into())
}

fn fit(what: &str, text: &str) -> anyhow::Result<()> {
    let Some(fault) = job::unfit(text) else {
        return Ok(());
    };
    // The value itself is not repeated: it may be the secret.
    let hint = "keep secrets in the environment (HF_TOKEN), and names on one line";
    Err(Failure::user_error(
        format!("{what} contains {fault}, which is not allowed in a job file"),
        hint,
    )
    .into())
}

/// Writes a file that must be new, for its owner to run.
fn write_script(path: &Path, text: &str) -> anyhow::Result<()> {
    write_new(path, text.as_bytes(), 0o755).map_err(|e| Failure::not_written(path, &e).into())
}
