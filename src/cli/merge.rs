//! `llmtui merge`: add adapters to the weights of their base.

use super::Context;
use super::exit::{Exit, Failure};
use super::model_ref;
use crate::base::human;
use crate::base::text::{one_line, shown};
use crate::engine::export::ExportError;
use crate::engine::merge::{self, Compared, MergeError, Order};
use crate::hf;
use crate::models::Parts;
use std::path::{Path, PathBuf};

/// Add adapters (LoRA, rsLoRA, DoRA) to the weights of their base: W + weight · scale · B A
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui merge --base SmolLM2 --adapter my-sft-run --to out/merged
  llmtui merge --base SmolLM2 --adapter sft:0.7 --adapter style:0.3 --to out/both
  llmtui merge my-lora-run --to out/merged                            # a checkpoint knows base and adapter
  llmtui merge --base my-sft-run --adapter my-dpo-run --to out/merged # an adapter on an adapter
  llmtui merge --base model-q4.gguf --adapter my-qlora-run --dequantize --to out/merged")]
pub struct Args {
    /// Same as --base; a run with adapters needs nothing else
    #[arg(value_name = "MODEL", conflicts_with = "base")]
    pub model: Option<String>,
    /// The model that the adapters were trained on: a folder, a GGUF file, a run or a hub id. Its own adapters, and those
    /// below them, are merged first
    #[arg(long, value_name = "MODEL", required_unless_present = "model")]
    pub base: Option<String>,
    /// A PEFT adapter folder, or a run (its best checkpoint); append `:weight` to scale it. If it was trained on a model with
    /// an adapter, that one is merged too. Default: only the base's own
    #[arg(long = "adapter", value_name = "DIR[:weight]")]
    pub adapters: Vec<String>,
    /// Output folder; must be absent or empty
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// Dtype of the merged weights; sums are computed in f32
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = ["f32", "f16", "bf16"])]
    pub dtype: String,
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
    let adapters: Result<Vec<_>, _> = args.adapters.iter().map(|word| adapter(word, cx)).collect();
    // The parser asks for one of them.
    let base = args.base.as_ref().or(args.model.as_ref());
    let base = base.map_or("", String::as_str);
    let order = Order {
        base: model_ref::find(base, Parts::Everything, cx)?,
        adapters: adapters?,
        to: args.to.clone(),
        dtype: args.dtype.clone(),
        dequantize: args.dequantize,
        any_base: args.any_base,
        prompts: args.prompts.clone(),
    };
    let merged = merge::merge(&order).map_err(|e| failed(&e))?;
    outln!("{}", shown(&args.to))?;
    for file in &merged.written {
        outln!("  {:>10}  {}", human::bytes(file.bytes), file.name)?;
        for note in &file.notes {
            outln!("              {note}")?;
        }
    }
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
            order.dtype,
            found.off,
            agree(found)
        )?;
    }
    Ok(Exit::Done)
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
