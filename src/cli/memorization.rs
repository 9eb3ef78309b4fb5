//! `llmtui memorization`: whether a model memorized texts, or was trained on a set.

use super::exit::{Exit, Failure};
use super::{Context, model_ref, score};
use crate::base::human;
use crate::base::stats::median;
use crate::base::text::{one_line, shown};
use crate::engine::export::Source;
use crate::engine::memorization::{Known, Text, auc, codec, measure};
use crate::metrics::{Metric, texts};
use crate::models::Parts;
use serde_json::json;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Measure whether texts were memorized or a set was trained on: CoDeC, zlib ratio, Min-K %
///
/// Definitions, bands and sources: docs/metrics.md. Pass texts of the same kind that the model cannot have seen as --control:
/// zlib ratio and Min-K % are only meaningful against them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui memorization runs/…/checkpoints/step-001000 train.txt --control held-out.txt
  llmtui memorization Qwen/Qwen2.5-0.5B benchmark.jsonl --json")]
pub struct Args {
    /// A checkpoint folder, a run (its best checkpoint), a Hugging Face model folder, a GGUF file or a hub id
    #[arg(value_name = "MODEL")]
    pub model: String,
    /// Texts: a .txt file (cut into pieces), or rows in any format that training reads
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Held-out texts of the same kind
    #[arg(long, value_name = "FILE")]
    pub control: Option<PathBuf>,
    /// Maximum number of texts per file, evenly spread
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(2..=100_000))]
    pub texts: u64,
    /// Chat template for conversations: auto (the model's own), a built-in name or a .jinja file
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub template: String,
    /// Seed for drawing the text placed before another
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What was found of a file.
struct Set {
    known: Vec<Known>,
    codec: Option<(f64, f64)>,
    zlib: Vec<f64>,
    min_k: Vec<f64>,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let path = model_ref::find(&args.model, Parts::Everything, cx)?;
    let mut source = Source::open_for_inference(&path).map_err(|e| {
        Failure::user_error(one_line(&e.to_string()), "llmtui runs lists what is here")
    })?;
    let mut measure = |file: &Path| -> anyhow::Result<Set> {
        // Long enough for zlib, whatever the tokens are.
        let most = (source.model.shape().seq_len / 2).max(1024);
        let texts = spread(
            score::texts(&path, file, &args.template, most)?,
            args.texts as usize,
        );
        if texts.len() < 2 {
            let what = format!("{}: at least two texts are needed", shown(file));
            return Err(Failure::user_error(
                what,
                "a .txt file is split into pieces of 1,024 tokens or half the model's context; each row counts as one",
            )
            .into());
        }
        let known = measure(&mut source.model, &texts, args.seed)?;
        Ok(Set {
            codec: codec(&known.iter().filter_map(|k| k.change).collect::<Vec<_>>()),
            zlib: known.iter().filter_map(|k| k.zlib).collect(),
            min_k: known.iter().map(|k| k.min_k).collect(),
            known,
        })
    };
    let set = measure(&args.file)?;
    let control = args.control.as_deref().map(&mut measure).transpose()?;
    let text = match args.json {
        true => format!(
            "{}\n",
            super::out::json(&value(args, &set, control.as_ref()))?
        ),
        false => table(&set, control.as_ref()),
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Exit::Done)
}

/// At most `n` of them, evenly spread.
fn spread(texts: Vec<Text>, n: usize) -> Vec<Text> {
    let all = texts.len();
    let keep = |at: usize| all <= n || (at * n / all) != ((at + 1) * n / all);
    texts
        .into_iter()
        .enumerate()
        .filter(|(at, _)| keep(*at))
        .map(|(_, text)| text)
        .collect()
}

/// How well zlib ratio and Min-K % tell the set from the control: (zlib, min_k).
fn separation(set: &Set, control: Option<&Set>) -> (Option<f64>, Option<f64>) {
    let Some(control) = control else {
        return (None, None);
    };
    // Known texts have the lower ratio and the higher least probabilities.
    (
        auc(&set.zlib, &control.zlib),
        auc(&control.min_k, &set.min_k),
    )
}

fn value(args: &Args, set: &Set, control: Option<&Set>) -> serde_json::Value {
    let (zlib_auc, min_k_auc) = separation(set, control);
    let of = |set: &Set| {
        json!({
            "texts": set.known.len(),
            "median_mean_logp": median(&set.known.iter().map(|k| k.mean).collect::<Vec<_>>()),
            "codec": {"estimator": "codec", "value": set.codec.map(|c| c.0), "stderr": set.codec.map(|c| c.1)},
            "zlib_ratio": {"estimator": "bits_ratio", "value": median(&set.zlib), "texts": set.zlib.len()},
            "min_k_prob": {"estimator": "min_k_20", "value": median(&set.min_k)},
        })
    };
    json!({
        "model": args.model,
        "file": crate::base::json::path(&args.file),
        "seed": args.seed,
        "set": of(set),
        "control": control.map(of),
        "zlib_auc": zlib_auc,
        "min_k_auc": min_k_auc,
    })
}

/// A row of the table.
struct Row {
    metric: &'static Metric,
    value: Option<f64>,
    /// The value with its error.
    shown: String,
    /// What it says.
    words: String,
}

fn rows(set: &Set, control: Option<&Set>) -> Vec<Row> {
    let (zlib_auc, min_k_auc) = separation(set, control);
    let number = |x: Option<f64>| x.map_or("–".into(), |x| format!("{x:.3}"));
    let row = |metric: &&'static Metric| {
        let (value, shown, words) = match metric.id {
            id if id == texts::CODEC.id => {
                let (share, error) = set.codec?;
                let words = match share {
                    x if metric.judge(x).is_some() => "outside its band: see below".into(),
                    x if x > texts::CODEC_UNSURE => {
                        "0.6 to 0.8: compare with other models and other sets".into()
                    }
                    _ => "context helps, or has no effect: no sign of training on the set".into(),
                };
                (Some(share), format!("{share:.2} ± {error:.2}"), words)
            }
            id if id == texts::ZLIB.id => {
                let words = match set.zlib.is_empty() {
                    true => "needs texts of at least 500 bytes".into(),
                    false => separated(zlib_auc),
                };
                (median(&set.zlib), number(median(&set.zlib)), words)
            }
            _ => {
                let value = median(&set.min_k);
                (value, number(value), separated(min_k_auc))
            }
        };
        Some(Row {
            metric,
            value,
            shown,
            words,
        })
    };
    texts::OF_TEXTS.iter().filter_map(row).collect()
}

/// What the separation from the control says.
fn separated(auc: Option<f64>) -> String {
    match auc {
        None => "add --control FILE for a comparison".into(),
        Some(x) if x > texts::AUC_MANY => {
            format!("AUC {x:.2} against the control: strong memorization (above 0.8)")
        }
        Some(x) if x > texts::AUC_SOME => {
            format!("AUC {x:.2} against the control: some memorization (above 0.6)")
        }
        Some(x) => format!("AUC {x:.2} against the control: no better than chance"),
    }
}

fn table(set: &Set, control: Option<&Set>) -> String {
    let mut text = String::new();
    let n = set.known.len();
    let _ = writeln!(
        text,
        "{}{}\n",
        human::counted(n as u64, "text"),
        control.map_or(String::new(), |c| format!(", {} of control", c.known.len()))
    );
    let rows = rows(set, control);
    let width = |of: &dyn Fn(&Row) -> usize| rows.iter().map(of).max().unwrap_or(0);
    let title = width(&|row| row.metric.title.chars().count());
    let shown = width(&|row| row.shown.chars().count());
    for row in &rows {
        let _ = writeln!(
            text,
            "{:<title$}  {:<shown$}  {}",
            row.metric.title, row.shown, row.words
        );
    }
    for row in &rows {
        if let Some(advice) = row.value.and_then(|x| row.metric.judge(x)) {
            let _ = writeln!(text, "\n{}: {advice}", row.metric.title);
        }
    }
    text.push_str("\nDefinitions, bands and sources: docs/metrics.md\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(codec: f64, zlib: f64) -> Set {
        Set {
            known: Vec::new(),
            codec: Some((codec, 0.01)),
            zlib: vec![zlib],
            min_k: vec![-2.0],
        }
    }

    #[test]
    fn what_lies_outside_its_band_is_told_with_what_to_do() {
        let normal = table(&set(0.4, 0.3), None);
        assert!(
            normal.contains("no sign of training on the set"),
            "{normal}"
        );
        assert!(!normal.contains(texts::CODEC.advice), "{normal}");
        assert!(!normal.contains(texts::ZLIB.advice), "{normal}");
        let unsure = table(&set(0.7, 0.3), None);
        assert!(unsure.contains("0.6 to 0.8: compare"), "{unsure}");
        let known = table(&set(0.9, 0.04), Some(&set(0.4, 0.3)));
        assert!(known.contains(texts::CODEC.advice), "{known}");
        assert!(known.contains(texts::ZLIB.advice), "{known}");
        assert!(known.contains("strong memorization"), "{known}");
    }
}
