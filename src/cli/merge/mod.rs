//! `llmtui merge`: add adapters to the weights of their base, or make one model of several.

mod models;

use super::Context;
use super::args::dtype;
use super::exit::{Exit, Failure};
use super::model_ref;
use crate::base::human;
use crate::base::text::{one_line, shown};
use crate::engine::export::{ExportError, Written};
use crate::engine::merge::{self, Compared, MergeError, Order};
use crate::hf::{self, Dtype};
use crate::models::Parts;
use std::path::{Path, PathBuf};

/// Add adapters (LoRA, rsLoRA, DoRA) to the weights of their base, W + weight · scale · B A; or merge several models into one
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui merge --base SmolLM2 --adapter my-sft-run --to out/merged
  llmtui merge --base SmolLM2 --adapter sft:0.7 --adapter style:0.3 --to out/both
  llmtui merge my-lora-run --to out/merged                            # a checkpoint knows base and adapter
  llmtui merge --base my-sft-run --adapter my-dpo-run --to out/merged # an adapter on an adapter
  llmtui merge --base model-q4.gguf --adapter my-qlora-run --dequantize --to out/merged
  llmtui merge run@400 run@500 run@600 --to out/mean                  # the mean of three checkpoints
  llmtui merge my-sft my-math-run --method slerp --t 0.4 --to out/between
  llmtui merge chat:0.6 code:0.4 --base SmolLM2 --method ties --density 0.5 --to out/both")]
pub struct Args {
    /// One model is a base of adapters; a run with adapters needs nothing else. Several are merged by --method; append `:weight`
    #[arg(value_name = "MODEL", required_unless_present = "base")]
    pub models: Vec<String>,
    /// The model that adapters, or the models of ties and the like, were trained from: a folder, a GGUF file, a run or a hub id.
    /// Its own adapters, and those below them, are merged first
    #[arg(long, value_name = "MODEL", required_unless_present = "models")]
    pub base: Option<String>,
    /// How models are merged: linear (the default without --base), slerp, task_arithmetic, ties, dare_linear, dare_ties
    #[arg(long, value_name = "METHOD")]
    pub method: Option<String>,
    /// slerp: the place between the first model, 0, and the second, 1 [default: 0.5]
    #[arg(long, value_parser = share)]
    pub t: Option<f64>,
    /// ties, dare: the share of a model's changes that is kept [default: 1]
    #[arg(long, value_parser = density)]
    pub density: Option<f64>,
    /// task_arithmetic, ties, dare: multiplies the sum of the changes [default: 1]
    #[arg(long, value_name = "FACTOR", value_parser = finite, allow_negative_numbers = true)]
    pub lambda: Option<f64>,
    /// Divide by the sum of the weights [default: true for linear and ties]
    #[arg(long, value_name = "BOOL")]
    pub normalize: Option<bool>,
    /// dare: of the changes that are dropped [default: 0]
    #[arg(long)]
    pub seed: Option<u64>,
    /// A PEFT adapter folder, or a run (its best checkpoint); append `:weight` to scale it. If it was trained on a model with
    /// an adapter, that one is merged too. Default: only the base's own
    #[arg(long = "adapter", value_name = "DIR[:weight]")]
    pub adapters: Vec<String>,
    /// Output folder; must be absent or empty
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// Dtype of the merged weights; they are computed in f32
    #[arg(long, value_name = "DTYPE", default_value = "f32", value_parser = dtype())]
    pub dtype: Dtype,
    /// Dequantize a GGUF base to floats; always done under a run's adapter
    #[arg(long)]
    pub dequantize: bool,
    /// Merge even if the adapter was trained on other weights of the same shapes
    #[arg(long)]
    pub any_base: bool,
    /// Compare logits before and after on this text; may be repeated
    #[arg(long = "prompt", value_name = "P")]
    pub prompts: Vec<String>,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    if models::is_meant(args) {
        return models::run(args, cx);
    }
    refuse_settings_of_models(args)?;
    let adapters: Result<Vec<_>, _> = args.adapters.iter().map(|word| adapter(word, cx)).collect();
    let base = match (&args.base, args.models.first()) {
        (Some(_), Some(model)) => {
            let what = format!("{} and --base: how are they to be merged?", one_line(model));
            let fix =
                "--adapter DIR names an adapter, --method task_arithmetic or ties merges models";
            return Err(Failure::user_error(what, fix).into());
        }
        // The parser asks for one of them.
        (base, model) => base.as_ref().or(model).map_or("", String::as_str),
    };
    let order = Order {
        base: model_ref::find(base, Parts::Everything, cx)?,
        adapters: adapters?,
        to: args.to.clone(),
        dtype: args.dtype,
        dequantize: args.dequantize,
        any_base: args.any_base,
        prompts: args.prompts.clone(),
    };
    let merged = merge::merge(&order).map_err(|e| failed(&e))?;
    written(&args.to, &merged.written)?;
    // What was merged besides what was named.
    if merged.base != order.base || merged.adapters.len() > order.adapters.len().max(1) {
        let adapters = merged.adapters.iter().map(|path| shown(path));
        let adapters: Vec<String> = adapters.collect();
        outln!("{} + {}", shown(&merged.base), adapters.join(" + "))?;
    }
    // Of one score nothing is the most probable.
    let agree = |found: &Compared| match merged.scores {
        true => String::new(),
        false => format!(
            "; the most probable token is the same for {} of {}",
            found.agree, found.tokens
        ),
    };
    let values = if merged.scores { "scores" } else { "logits" };
    match &merged.check {
        Ok(found) => outln!(
            "checked on {} tokens: merged {values} differ by at most {:.1e} from base + adapter, which moves them by up to {}{}",
            found.tokens,
            found.off,
            human::number(f64::from(found.moved)),
            agree(found)
        )?,
        Err(why) => {
            outln!("not checked: the adapter cannot be applied to these weights unmerged: {why}")?
        }
    }
    if let Some(found) = &merged.rounded {
        outln!(
            "rounded to {}: {values} of the written weights differ by at most {:.1e} from those of the sum in f32{}",
            order.dtype.word(),
            found.off,
            agree(found)
        )?;
    }
    Ok(Exit::Done)
}

/// What only merges of models read.
fn refuse_settings_of_models(args: &Args) -> Result<(), Failure> {
    let given = [
        ("t", args.t.is_some()),
        ("density", args.density.is_some()),
        ("lambda", args.lambda.is_some()),
        ("normalize", args.normalize.is_some()),
        ("seed", args.seed.is_some()),
    ];
    match given.iter().find(|(_, is)| *is) {
        None => Ok(()),
        Some((name, _)) => Err(Failure::user_error(
            format!("--{name}: adapters are added to their base without it"),
            "`--adapter DIR:0.5` scales an adapter; --method merges models",
        )),
    }
}

/// The files of the new folder.
fn written(to: &Path, files: &[Written]) -> anyhow::Result<()> {
    outln!("{}", shown(to))?;
    for file in files {
        outln!("  {:>10}  {}", human::bytes(file.bytes), file.name)?;
        for note in &file.notes {
            outln!("              {note}")?;
        }
    }
    Ok(())
}

fn finite(word: &str) -> Result<f64, String> {
    let number = word.parse().ok().filter(|x: &f64| x.is_finite());
    number.ok_or_else(|| "expected a number".into())
}

fn share(word: &str) -> Result<f64, String> {
    let number = finite(word).ok().filter(|x| (0.0..=1.0).contains(x));
    number.ok_or_else(|| "expected a number from 0 to 1".into())
}

fn density(word: &str) -> Result<f64, String> {
    let number = share(word).ok().filter(|x| *x > 0.0);
    number.ok_or_else(|| "expected a number above 0, up to 1".into())
}

/// A folder, or a run's best checkpoint, and what it counts.
fn adapter(word: &str, cx: &Context) -> anyhow::Result<(PathBuf, f64)> {
    let (name, weight) = match word.rsplit_once(':') {
        Some((name, weight)) if !Path::new(word).exists() => {
            let number: Option<f64> = weight.parse().ok().filter(|x: &f64| x.is_finite());
            let number = number.ok_or_else(|| {
                let what = format!(
                    "--adapter {}: `{}` is not a number",
                    one_line(word),
                    one_line(weight)
                );
                Failure::user_error(what, "DIR:0.5 scales an adapter by a half")
            })?;
            if number == 0.0 {
                errln!(
                    "note: --adapter {}: a weight of 0 leaves it out",
                    one_line(word)
                );
            }
            (name, number)
        }
        _ => (word, 1.0),
    };
    let path = Path::new(name);
    if path.is_dir() && !path.join("run.json").is_file() {
        return Ok((path.into(), weight));
    }
    if !path.exists() && crate::run::index::resolve(&cx.runs_dir, name).is_err() {
        let what = format!(
            "--adapter {}: there is no such folder or run",
            one_line(name)
        );
        let hint = format!(
            "name a folder with {}, or a run; llmtui runs lists runs",
            hf::ADAPTER_CONFIG
        );
        return Err(Failure::user_error(what, hint).into());
    }
    Ok((model_ref::find(name, Parts::Everything, cx)?, weight))
}

fn failed(error: &MergeError) -> Failure {
    let what = one_line(&error.to_string());
    match error {
        MergeError::Export(ExportError::Io { source, .. } | ExportError::Unread { source, .. }) => {
            Failure::unwritten(what, source, error.hint())
        }
        _ => Failure::user_error(what, error.hint()),
    }
}
