//! `llmtui data batches`: the rows of a training step, or of the validation split, as the model reads them: what a step learned
//! from can be checked against any other program.

use crate::base::human::grouped;
use crate::base::text::one_line;
use crate::cli::args::SpecArgs;
use crate::cli::exit::{Exit, Failure};
use crate::cli::{Context, run_ref};
use crate::data::{Batch, Dataset, Surroundings};
use crate::engine::{checkpoint, micro_step_of};
use crate::run::RunDir;
use crate::spec::RunSpec;
use serde_json::{Value, json};
use std::io::Write;

/// Show the rows of a training step: token ids, text, which targets count in the loss
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui data batches quickstart --step 100
  llmtui data batches --run shakespeare --step 1240
  llmtui data batches my.yaml --held-out --json > val.jsonl")]
pub struct Args {
    #[command(flatten)]
    pub spec: SpecArgs,
    /// Of a run: its own spec, without the batches that rescues passed over
    #[arg(long, value_name = "RUN", conflicts_with_all = ["held_out", "spec"])]
    pub run: Option<String>,
    /// The step, counted from 1
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub step: u64,
    /// The rows of the whole validation split instead, in order
    #[arg(long, conflicts_with = "step")]
    pub held_out: bool,
    /// Print one JSON object per row: ids, targets, mask, text
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let (spec, skips) = match &args.run {
        Some(word) => of_run(&run_ref::named(word, cx)?)?,
        None => (args.spec.load(cx)?.spec, Vec::new()),
    };
    let data = spec
        .open_data(&Surroundings::from_env(&cx.env))
        .map_err(|e| Failure::yours(e.to_string(), e.hint()))?;
    let mut out = std::io::stdout().lock();
    let size = spec.train.micro_batch_size;
    if args.held_out {
        for first in (0..data.val_windows()).step_by(size) {
            let batch = data.val_batch(first, size.min(data.val_windows() - first));
            for row in 0..batch.batch_size {
                let place = json!({"held_out": true, "row": first + row});
                write_row(&mut out, (&batch, row), place, &data, args.json)?;
            }
        }
        return Ok(Exit::Done);
    }
    let accum = spec.train.grad_accum_steps as u64;
    let first = micro_step_of(args.step, accum, &skips);
    for micro_step in first..first + accum {
        let batch = data.train_batch(spec.seed, micro_step, size);
        for row in 0..batch.batch_size {
            let place = json!({"step": args.step, "micro_step": micro_step, "row": row});
            write_row(&mut out, (&batch, row), place, &data, args.json)?;
        }
    }
    Ok(Exit::Done)
}

/// A run's spec, and what its newest checkpoint says of batches that were passed over. Without a checkpoint none were.
fn of_run(run: &RunDir) -> anyhow::Result<(RunSpec, Vec<(u64, u64)>)> {
    let spec = run_ref::spec_of(run)?;
    let skips = match run.checkpoints().last() {
        Some(newest) => {
            checkpoint::read_state(&newest.path)
                .map_err(|e| Failure::yours(e.to_string(), checkpoint::Fault::HINT))?
                .progress
                .skips
        }
        None => Vec::new(),
    };
    Ok((spec, skips))
}

fn write_row(
    out: &mut impl Write,
    (batch, row): (&Batch, usize),
    place: Value,
    data: &Dataset,
    as_json: bool,
) -> std::io::Result<()> {
    let object = described(batch, row, place, data);
    if as_json {
        return writeln!(out, "{object}");
    }
    let words: Vec<String> = ["step", "micro_step", "row"]
        .into_iter()
        .filter_map(|key| {
            Some(format!(
                "{} {}",
                key.replace('_', "-"),
                object[key].as_u64()?
            ))
        })
        .collect();
    let supervised = object["supervised"].as_u64().unwrap_or_default();
    writeln!(
        out,
        "{}: {} tokens, {} supervised",
        words.join(", "),
        grouped(batch.seq_len as u64),
        grouped(supervised)
    )?;
    let text = object["text"].as_str().unwrap_or_default();
    writeln!(out, "  {}", one_line(text))
}

/// One row. `targets[t]` follows `ids[t]`; `first[t]` is where the document of a token begins.
fn described(batch: &Batch, row: usize, place: Value, data: &Dataset) -> Value {
    let at = row * batch.seq_len..(row + 1) * batch.seq_len;
    let ids = &batch.inputs[at.clone()];
    let mask: Vec<bool> = match batch.mask.get(at.clone()) {
        Some(mask) => mask.to_vec(),
        None => vec![true; ids.len()],
    };
    let mut object = place;
    object["ids"] = json!(ids);
    object["targets"] = json!(batch.targets[at.clone()]);
    object["supervised"] = json!(mask.iter().filter(|counts| **counts).count());
    object["mask"] = json!(mask);
    object["text"] = json!(data.tokenizer.decode(ids));
    if let Some(first) = batch.first.get(at) {
        object["first"] = json!(first);
    }
    // Of one text: the window's first token in its split.
    if let Some(start) = batch.starts.get(row) {
        object["start"] = json!(start);
    }
    let sources = data.sources();
    if let ([only], true) = (&sources[..], batch.starts.is_empty()) {
        object["source"] = json!(only.name);
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{SpecSources, load};

    #[test]
    fn batches_that_a_rescue_passed_over_are_not_those_of_a_step() {
        let plain: Vec<u64> = (1..=4).map(|step| micro_step_of(step, 2, &[])).collect();
        assert_eq!(plain, [0, 2, 4, 6]);
        // Back to step 2, on without the batches of steps 3 and 4; later without that of one more.
        let skips = [(4, 8), (10, 12)];
        let after: Vec<u64> = (1..=5).map(|step| micro_step_of(step, 2, &skips)).collect();
        assert_eq!(after, [0, 2, 8, 12, 14]);
    }

    #[test]
    fn a_row_is_what_the_step_learns_from() {
        let words = ["train.micro_batch_size=3".to_string()];
        let spec = load("quickstart", &words, &SpecSources::default()).unwrap();
        let spec = spec.spec;
        let data = spec.open_data(&Default::default()).unwrap();
        let batch = data.train_batch(spec.seed, 41, 3);
        let row = described(&batch, 2, json!({"row": 2}), &data);
        let ids: Vec<u32> = serde_json::from_value(row["ids"].clone()).unwrap();
        assert_eq!(ids, batch.inputs[2 * batch.seq_len..]);
        assert_eq!(row["targets"][0], row["ids"][1]);
        assert_eq!(row["supervised"], 64);
        let text = row["text"].as_str().unwrap();
        assert_eq!(data.tokenizer.encode(text).unwrap(), ids);
        // The corpus from the window's start on.
        let start = row["start"].as_u64().unwrap() as usize;
        let corpus = crate::embed::text("assets/corpora/tinyshakespeare.txt").unwrap();
        assert_eq!(&corpus[start..start + 64], text);
    }
}
