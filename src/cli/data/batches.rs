//! `llmtui data batches`: the rows of a training step, or of the validation split, as the model reads them, and the loss of
//! each token: what a step learned from can be looked at, and checked against any other program.

use super::batch_rows::{LEGEND, Sheet};
use crate::base::human::{grouped, short};
use crate::base::ssh::shell_quote;
use crate::base::text::one_line;
use crate::cli::args::SpecArgs;
use crate::cli::exit::{Exit, Failure};
use crate::cli::target::print_notes;
use crate::cli::{Context, run_ref};
use crate::data::DataEnv;
use crate::engine::EngineError;
use crate::engine::checkpoint::{CheckpointError, Fault};
use crate::engine::revisit::{Revisit, Weights, before};
use crate::plan::target::is_spec;
use crate::run::revisit::{Row, mean_loss};
use crate::run::{RunDir, index};
use crate::spec::RunSpec;
use std::io::Write;
use std::path::Path;

/// Show the rows of a training step: text, which tokens are supervised, the loss of each, token ids
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui data batches quickstart --step 100
  llmtui data batches --run shakespeare --step 1240 --loss
  llmtui data batches my.yaml --held-out --json > val.jsonl

--loss uses the latest checkpoint before the step, without dropout or noise: the mean equals the logged loss only if the step started \
from that checkpoint. Without an earlier checkpoint it uses the initial weights.")]
pub struct Args {
    #[command(flatten)]
    pub spec: SpecArgs,
    /// Show a run's batches: its own spec, without the batches that rescues skipped
    #[arg(long, value_name = "RUN", conflicts_with = "spec")]
    pub run: Option<String>,
    /// First step to show, counted from 1
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub step: u64,
    /// Number of steps to show
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: u64,
    /// Show the rows of the whole validation split instead, in order
    #[arg(long, conflicts_with_all = ["step", "steps"])]
    pub held_out: bool,
    /// Show each token's loss under the latest checkpoint before the step
    #[arg(long)]
    pub loss: bool,
    /// With --loss: use the checkpoint of this step instead; 0: the initial weights
    #[arg(long, value_name = "STEP", requires = "loss")]
    pub checkpoint: Option<u64>,
    /// Show each row's token ids
    #[arg(long)]
    pub ids: bool,
    /// Print one JSON object per row: ids, targets, mask, text, losses
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let run = args.run.as_ref().map(|word| run_ref::named(word, cx));
    let run = run.transpose()?;
    let spec = match &run {
        Some(run) => run_ref::spec_of(run)?,
        None => {
            not_a_run(args, cx)?;
            let loaded = args.spec.load(cx)?;
            print_notes(&loaded);
            loaded.spec
        }
    };
    // What epochs come to is known once the data are read.
    if !args.held_out && spec.train.epochs.is_none() {
        drawn_from_data(args, &spec)?;
    }
    let data = spec
        .open_data(&DataEnv::from_env(&cx.env))
        .map_err(|e| Failure::data(&e))?;
    let pass = data.micro_steps_per_epoch(spec.train.micro_batch_size);
    let spec = spec.on_data(pass);
    if !args.held_out {
        drawn_from_data(args, &spec)?;
    }
    let revisit = match &run {
        Some(run) => Revisit::of_run(run, &spec, &data)?,
        None => Revisit::of_spec(&spec, &data),
    };
    let mut weights = match args.loss {
        true => weights(args, run.as_ref(), &revisit)?,
        false => None,
    };
    let sheet = Sheet {
        tokenizer: &data.tokenizer,
        ids: args.ids,
    };
    let mut out = std::io::stdout().lock();
    if weights.is_some() && !args.json {
        writeln!(out, "{LEGEND}")?;
    }
    if args.held_out {
        let mut first = 0;
        loop {
            let rows = revisit.held_out(first, weights.as_mut())?;
            if rows.is_empty() {
                return Ok(Exit::Done);
            }
            // Both answers of a pair are rows of one example.
            first += rows.len() / spec.method.needs().unit.sequences();
            write_rows(&mut out, &rows, &sheet, args.json)?;
        }
    }
    for step in args.step..args.step.saturating_add(args.steps) {
        let rows = revisit.rows(step, weights.as_mut())?;
        write_rows(&mut out, &rows, &sheet, args.json)?;
        if let (Some(mean), Some(weights), false) = (mean_loss(&rows), &weights, args.json) {
            writeln!(
                out,
                "step {}: loss {mean:.4} with the weights of step {}",
                grouped(step),
                grouped(weights.step)
            )?;
        }
    }
    Ok(Exit::Done)
}

/// Refuses steps that the run does not have, and those that learn from the model's own answers: the data's rows of that number
/// were never trained on.
fn drawn_from_data(args: &Args, spec: &RunSpec) -> Result<(), Failure> {
    let (first, last) = (args.step, args.step.saturating_add(args.steps - 1));
    let steps = spec.train.max_steps;
    if first == 0 || last > steps {
        let what = match first {
            0 => "--step 0: steps are counted from 1".into(),
            _ => format!("no step {}", grouped(last)),
        };
        let length = match spec.train.epochs {
            Some(epochs) => format!("epochs {}", short(epochs)),
            None => "max_steps".into(),
        };
        let fix = format!("choose a step from 1 to {} ({length})", grouped(steps));
        return Err(Failure::user_error(what, fix));
    }
    let cold = spec.rollout.cold_start_steps;
    if spec.method.on_policy().is_some() && last > cold {
        let what = format!(
            "step {} trains on the model's own completions, not on rows of the data",
            grouped(first.max(cold + 1))
        );
        let fix = match cold {
            0 => "a run's completions are in its folder `rollouts` and in the Examples pane"
                .to_owned(),
            _ => format!(
                "steps 1 to {} (rollout.cold_start_steps) do; the completions of later ones are in the run's folder `rollouts` and in the Examples pane",
                grouped(cold)
            ),
        };
        return Err(Failure::user_error(what, fix));
    }
    Ok(())
}

/// A run in a spec's place: its own spec is meant, with what happened to it.
fn not_a_run(args: &Args, cx: &Context) -> Result<(), Failure> {
    let Some(word) = args.spec.target() else {
        return Ok(());
    };
    let is_run = Path::new(word).join("run.json").is_file()
        || !is_spec(word, &cx.spec_sources()) && index::resolve(&cx.runs_dir, word).is_ok();
    match is_run {
        true => Err(Failure::user_error(
            format!("{} is a run, not a spec", one_line(word)),
            format!(
                "llmtui data batches --run {} --step {}",
                shell_quote(word),
                args.step
            ),
        )),
        false => Ok(()),
    }
}

/// The weights that rows are scored with; `None`, with a note, where tokens have no loss.
fn weights(
    args: &Args,
    run: Option<&RunDir>,
    revisit: &Revisit,
) -> anyhow::Result<Option<Weights>> {
    if let Some(why) = revisit.without_losses() {
        errln!("note: no per-token loss: {why}");
        return Ok(None);
    }
    let kept = run.map(RunDir::checkpoints).unwrap_or_default();
    let from = match args.checkpoint {
        Some(0) => None,
        Some(step) if run.is_none() => {
            let what = format!("a spec has no checkpoint at step {step}");
            return Err(Failure::user_error(what, "--run RUN names a run").into());
        }
        Some(step) => {
            let found = kept.iter().find(|entry| entry.step == step).cloned();
            let found = found.ok_or_else(|| {
                let steps: Vec<String> = kept.iter().map(|entry| entry.step.to_string()).collect();
                let id = run.map_or("the run", RunDir::id);
                let what = format!("{id} has no checkpoint at step {step}");
                Failure::user_error(what, format!("it keeps {}", steps.join(", ")))
            })?;
            Some(found)
        }
        // Of held-out rows those of now.
        None if args.held_out => kept.last().cloned(),
        None => run.and_then(|run| before(run, args.step)),
    };
    let weights = revisit.weights(from.as_ref()).map_err(|e| match e {
        EngineError::Checkpoint(CheckpointError::Broken(fault)) => {
            Failure::user_error(one_line(&fault.to_string()), Fault::HINT).into()
        }
        e => anyhow::Error::from(e),
    })?;
    Ok(Some(weights))
}

fn write_rows(
    out: &mut impl Write,
    rows: &[Row],
    sheet: &Sheet,
    as_json: bool,
) -> anyhow::Result<()> {
    if !as_json {
        write!(out, "{}", sheet.rows(rows))?;
        return Ok(());
    }
    for row in rows {
        writeln!(out, "{}", crate::cli::out::json_line(row)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::micro_step_of;
    use crate::spec::{SpecSources, TrainConfig, load};

    #[test]
    fn batches_that_a_rescue_passed_over_are_not_those_of_a_step() {
        let train = TrainConfig {
            grad_accum_steps: 2,
            ..TrainConfig::default()
        };
        let first_of = |step, skips| micro_step_of(step, &train, skips);
        let plain: Vec<u64> = (1..=4).map(|step| first_of(step, &[])).collect();
        assert_eq!(plain, [0, 2, 4, 6]);
        // Back to step 2, on without the batches of steps 3 and 4; later without that of one more.
        let skips = [(4, 8), (10, 12)];
        let after: Vec<u64> = (1..=5).map(|step| first_of(step, &skips)).collect();
        assert_eq!(after, [0, 2, 8, 12, 14]);
    }

    #[test]
    fn a_row_is_what_the_step_learns_from() {
        let words = ["train.micro_batch_size=3".to_string()];
        let spec = load("quickstart", &words, &SpecSources::default()).unwrap();
        let spec = spec.spec;
        let data = spec.open_data(&Default::default()).unwrap();
        let batch = data.train_batch(spec.seed, 41, 3);
        let rows = Revisit::of_spec(&spec, &data).rows(42, None).unwrap();
        let row = &rows[2];
        assert_eq!(row.ids, batch.inputs[2 * batch.seq_len..]);
        assert_eq!(row.targets[0], row.ids[1]);
        assert_eq!((row.supervised, row.row), (64, 2));
        assert_eq!(data.tokenizer.encode(&row.text).unwrap(), row.ids);
        // The corpus from the window's start on.
        let start = row.start.unwrap();
        let corpus = crate::embed::text("assets/corpora/tinyshakespeare.txt").unwrap();
        assert_eq!(&corpus[start..start + 64], row.text);
    }
}
