//! `llmtui score` with a reward model: one number for each text or answer, and how pairs come out.

use super::{Args, Labelled, longer_share};
use crate::base::human::percent;
use crate::base::text::{one_line, shown};
use crate::cli::exit::Failure;
use crate::engine::checkpoint::{Fault, Manifest};
use crate::models::RewardModel;
use serde_json::json;
use std::fmt::Write as _;
use std::path::Path;

/// Texts that are read at once.
const AT_ONCE: usize = 16;

struct Judged {
    place: String,
    label: &'static str,
    tokens: usize,
    score: f32,
}

/// Scores the texts of `documents` with the reward model at `path`, and says so as text or JSON.
///
/// # Errors
/// A model or a text that cannot be read.
pub(super) fn score(args: &Args, path: &Path, documents: Vec<Labelled>) -> anyhow::Result<String> {
    let user_error =
        |what: String, hint: &str| Failure::user_error(one_line(&what), hint.to_string());
    Manifest::verify_if_any(path).map_err(|e| user_error(e.to_string(), Fault::HINT))?;
    let mut model = RewardModel::open(path).map_err(|e| user_error(e.to_string(), e.hint()))?;
    if documents.iter().all(|text| text.document.ids.is_empty()) {
        let what = format!("{}: nothing to score", shown(&args.file));
        return Err(user_error(what, "a text needs one token").into());
    }
    let texts: Vec<Vec<u32>> = documents.iter().map(|d| d.document.ids.clone()).collect();
    let scores = model
        .scores(&texts, AT_ONCE)
        .map_err(|e| user_error(e.to_string(), e.hint()))?;
    let judged: Vec<Judged> = documents
        .into_iter()
        .zip(scores)
        .map(|(text, score)| Judged {
            place: text.place,
            label: text.label,
            tokens: text.document.ids.len(),
            score,
        })
        .collect();
    let longest = judged.iter().map(|text| text.tokens).max().unwrap_or(0);
    let cut = longest > model.context();
    match args.json {
        true => as_json(args, &judged),
        false => Ok(as_text(args, &judged, cut.then(|| model.context()))),
    }
}

/// Of pairs: the share whose chosen answer scores higher, the mean margin, and the share whose chosen answer is the longer
/// one, ties counting half.
fn ranked(judged: &[Judged]) -> Option<[f64; 3]> {
    let is_pair = |pair: &&[Judged]| pair[0].label == "chosen" && pair[1].label == "rejected";
    let pairs: Vec<&[Judged]> = judged.chunks_exact(2).filter(is_pair).collect();
    if pairs.is_empty() {
        return None;
    }
    let mean = |of: &dyn Fn(&Judged, &Judged) -> f64| {
        let sum: f64 = pairs.iter().map(|pair| of(&pair[0], &pair[1])).sum();
        sum / pairs.len() as f64
    };
    let flag = |right: bool| f64::from(u8::from(right));
    Some([
        mean(&|a, b| flag(a.score > b.score)),
        mean(&|a, b| f64::from(a.score) - f64::from(b.score)),
        longer_share(pairs.iter().map(|pair| (pair[0].tokens, pair[1].tokens))),
    ])
}

fn as_json(args: &Args, judged: &[Judged]) -> anyhow::Result<String> {
    let one = |text: &Judged| {
        json!({
            "place": text.place, "label": text.label, "tokens": text.tokens, "score": text.score,
        })
    };
    let mut value = json!({
        "model": args.model,
        "file": args.file.display().to_string(),
        "texts": judged.iter().map(one).collect::<Vec<_>>(),
    });
    if let Some([accuracy, margin, longer]) = ranked(judged) {
        value["accuracy"] = json!(accuracy);
        value["margin"] = json!(margin);
        value["length_accuracy"] = json!(longer);
    }
    Ok(format!("{}\n", crate::cli::out::json(&value)?))
}

fn as_text(args: &Args, judged: &[Judged], cut: Option<usize>) -> String {
    let mut out = format!(
        "{:<28} {:<11} {:>7} {:>10}\n",
        "place", "", "tokens", "score"
    );
    for text in judged {
        let (place, label) = (one_line(&text.place), text.label);
        let _ = writeln!(
            out,
            "{place:<28} {label:<11} {:>7} {:>10.4}",
            text.tokens, text.score
        );
    }
    let sum: f64 = judged.iter().map(|text| f64::from(text.score)).sum();
    let mean = sum / judged.len().max(1) as f64;
    let _ = writeln!(
        out,
        "\n{}: {} scored by a reward model, mean {mean:.4}",
        shown(&args.file),
        judged.len()
    );
    if let Some(context) = cut {
        let _ = writeln!(
            out,
            "texts above {context} tokens were truncated to their end"
        );
    }
    if let Some([accuracy, margin, longer]) = ranked(judged) {
        let _ = writeln!(
            out,
            "pairs             chosen scores higher in {}, by {margin:.4} on average; length alone gets {}",
            percent(accuracy, 1),
            percent(longer, 1)
        );
    }
    out
}
