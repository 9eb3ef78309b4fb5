//! `llmtui inspect`: the health of a model at rest, matrix by matrix, beside another one's.

use super::Context;
use super::exit::{Exit, Failure};
use super::model_ref;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::text::{one_line, shown};
use crate::engine::checkpoint::Manifest;
use crate::engine::export::ExportError;
use crate::llama_cpp::is_gguf;
use crate::models::Parts;
use crate::nn::{Model, ParamInfo};
use crate::probes::spectra::{self, Matrix};
use serde_json::json;
use std::fmt::Write as _;

/// Inspect the weights of a model: spectra, power-law exponents, norms, dead rows, NaN
///
/// Any checkpoint or Hugging Face folder; an adapter is inspected merged into its base. Trains nothing and needs no data.
/// Definitions: docs/metrics.md.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui inspect runs/…/checkpoints/step-001000
  llmtui inspect base-model fine-tuned-model
  llmtui inspect Qwen/Qwen2.5-0.5B --json")]
pub struct Args {
    /// A checkpoint or model folder, a run (its best checkpoint), or a hub id
    #[arg(value_name = "MODEL")]
    pub model: String,
    /// Another model of the same shape, to compare with
    #[arg(value_name = "OTHER")]
    pub other: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// A model and what was found of it.
struct Inspected {
    place: String,
    model: Model,
    matrices: Vec<Matrix>,
    findings: Vec<Finding>,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let one = inspect(&args.model, cx)?;
    let other = args
        .other
        .as_ref()
        .map(|word| inspect(word, cx))
        .transpose()?;
    let changes = match &other {
        Some(other) => Some(changes(&one, other)?),
        None => None,
    };
    if args.json {
        let models: Vec<_> = [Some(&one), other.as_ref()]
            .into_iter()
            .flatten()
            .map(value)
            .collect();
        let value = json!({ "models": models, "relative_change": changes });
        outln!("{}", super::out::json(&value)?)?;
    } else {
        let text = cx.words(table(&one, other.as_ref(), changes.as_deref()));
        outln!("{}", text.trim_end())?;
    }
    let failed = |inspected: &Inspected| {
        inspected
            .findings
            .iter()
            .any(|f| f.status == crate::base::finding::Status::Fail)
    };
    let broken = failed(&one) || other.as_ref().is_some_and(failed);
    Ok(if broken { Exit::Training } else { Exit::Done })
}

fn inspect(word: &str, cx: &Context) -> anyhow::Result<Inspected> {
    let folder = model_ref::find(word, Parts::Everything, cx)?;
    if is_gguf(&folder) {
        let what = format!(
            "{}: the weights of a GGUF file are not inspected",
            shown(&folder)
        );
        let fix =
            "`llmtui export FILE.gguf --dequantize --to DIR` writes a folder that can be inspected";
        return Err(Failure::user_error(what, fix).into());
    }
    let unread =
        |what: String| Failure::user_error(one_line(&what), "docs/models.md lists what is read");
    let source = Manifest::open_verified::<ExportError>(&folder)
        .map_err(|e| Failure::user_error(one_line(&e.to_string()), e.hint()))?;
    // Of an adapter the weights that it makes of its base.
    let model = source.load().map_err(|e| unread(e.to_string()))?;
    let shape = model.shape();
    let (q, kv) = (
        shape.n_head * shape.head_dim,
        shape.n_kv_head * shape.head_dim,
    );
    let mut matrices = Vec::new();
    model.params().read_weights(|weights| {
        for info in model.params().base() {
            let [_, cols] = &*info.shape else { continue };
            let values = &weights[info.offset..info.offset + info.len];
            for (suffix, rows) in spectra::parts(info, [q, kv, kv]) {
                let part = &values[rows.start * cols..rows.end * cols];
                matrices.push(Matrix::of(info, suffix, part, *cols));
            }
        }
    })?;
    let findings = findings(&matrices);
    let place = match source.adapter() {
        Some(_) => format!("{} (its adapter merged into its base)", shown(&folder)),
        None => shown(&folder),
    };
    Ok(Inspected {
        place,
        model,
        matrices,
        findings,
    })
}

/// What is wrong, the worst first; bands are those of `ww_ks`.
fn findings(matrices: &[Matrix]) -> Vec<Finding> {
    let mut found = Vec::new();
    for m in matrices.iter().filter(|m| m.non_finite > 0) {
        let text = format!(
            "{} values of {} are NaN or infinite",
            human::grouped(m.non_finite as u64),
            m.name
        );
        found.push(
            Finding::fail(
                Signal::of("non_finite", m.non_finite as f64, text),
                "training diverged, or the file is damaged",
                "use an earlier checkpoint",
            )
            .named("non_finite", "weights"),
        );
    }
    for m in matrices
        .iter()
        .filter(|m| m.dead_rows > 0 && m.layer.is_some())
    {
        let text = format!(
            "{} of {} rows of {} are zero",
            m.dead_rows,
            human::grouped(m.rows as u64),
            m.name
        );
        found.push(
            Finding::warn(
                Signal::of("dead_rows", m.dead_rows as f64, text),
                "these outputs are always 0",
                "pruned on purpose, or dead units: see dead_units of the run",
            )
            .named("dead_rows", "dead rows"),
        );
    }
    for m in matrices
        .iter()
        .filter(|m| m.layer.is_some() && m.rows.min(m.cols) >= 8)
    {
        if let Some(s) = m.spectrum.filter(|s| s.stable_rank < 2.0) {
            let text = format!("stable rank {:.2} in {}", s.stable_rank, m.name);
            found.push(
                Finding::warn(
                    Signal::of("stable_rank", s.stable_rank, text),
                    "one direction dominates the matrix",
                    "lower learning rate, weight decay, more varied data",
                )
                .named("rank_collapse", "rank"),
            );
        }
    }
    found
}

/// ‖ΔW‖ / ‖W‖ of each matrix of two models.
fn changes(one: &Inspected, other: &Inspected) -> anyhow::Result<Vec<f64>> {
    let (a, b) = (one.model.params(), other.model.params());
    let shapes = |p: &[ParamInfo]| {
        p.iter()
            .map(|i| (i.name.clone(), i.shape.clone()))
            .collect::<Vec<_>>()
    };
    if shapes(a.base()) != shapes(b.base()) {
        let what = format!(
            "{} and {} have different parameters",
            one.place, other.place
        );
        return Err(Failure::user_error(
            what,
            "name two models of the same architecture and size, or inspect each on its own",
        )
        .into());
    }
    let weights = |model: &Model| model.params().read_weights(<[f32]>::to_vec);
    let (old, new) = (weights(&one.model)?, weights(&other.model)?);
    let shape = one.model.shape();
    let (q, kv) = (
        shape.n_head * shape.head_dim,
        shape.n_kv_head * shape.head_dim,
    );
    let mut found = Vec::new();
    for info in a.base() {
        let [_, cols] = &*info.shape else { continue };
        for (_, rows) in spectra::parts(info, [q, kv, kv]) {
            let range = info.offset + rows.start * cols..info.offset + rows.end * cols;
            let pairs = || old[range.clone()].iter().zip(&new[range.clone()]);
            let moved: f64 = pairs()
                .map(|(a, b)| (f64::from(*b) - f64::from(*a)).powi(2))
                .sum();
            let size: f64 = pairs().map(|(a, _)| f64::from(*a).powi(2)).sum();
            found.push((moved / size.max(1e-24)).sqrt());
        }
    }
    Ok(found)
}

fn value(inspected: &Inspected) -> serde_json::Value {
    let matrix = |m: &Matrix| {
        json!({
            "name": m.name, "layer": m.layer, "shape": [m.rows, m.cols],
            "values": spectra::numbers(m),
        })
    };
    json!({
        "place": inspected.place,
        "n_params": inspected.model.n_params(),
        "estimators": {"alpha": "ww_ks", "alpha_hill_mid": "hill_mid", "singular_entropy": "kl_sigma", "singular_entropy_energy": "kl_energy"},
        "matrices": inspected.matrices.iter().map(matrix).collect::<Vec<_>>(),
        "findings": inspected.findings,
    })
}

fn number(x: Option<f64>) -> String {
    x.map_or("–".into(), human::number)
}

/// One row a matrix; with another model its numbers stand behind an arrow.
fn table(one: &Inspected, other: Option<&Inspected>, changes: Option<&[f64]>) -> String {
    type Column = (&'static str, fn(&Matrix) -> Option<f64>);
    let columns: [Column; 7] = [
        ("alpha", |m| m.alpha.map(|f| f.alpha)),
        ("KS dist", |m| m.alpha.map(|f| f.distance)),
        ("stable rank", |m| m.spectrum.map(|s| s.stable_rank)),
        ("sing. entropy", |m| m.spectrum.map(|s| s.kl_sigma)),
        ("× random", |m| m.energy_to_random),
        ("spectral norm", |m| m.spectrum.map(|s| s.spectral_norm)),
        ("std", |m| Some(m.std)),
    ];
    // Beside another model: what distinguishes the two.
    let shown: Vec<&Column> = match other {
        None => columns.iter().collect(),
        Some(_) => [0, 2, 5].iter().map(|i| &columns[*i]).collect(),
    };
    let mut out = format!("{}\n", one.place);
    if let Some(other) = other {
        let _ = writeln!(out, "→ {}", other.place);
    }
    let n_params = human::grouped(one.model.n_params() as u64);
    let _ = writeln!(
        out,
        "{n_params} parameters, {} matrices\n",
        one.matrices.len()
    );
    let name = one.matrices.iter().map(|m| m.name.len()).max().unwrap_or(6);
    let width = if other.is_some() { 19 } else { 13 };
    let _ = write!(out, "{:name$} {:>13}", "matrix", "shape");
    for (title, _) in &shown {
        let _ = write!(out, " {title:>width$}");
    }
    out.push_str(if changes.is_some() {
        "      change\n"
    } else {
        "\n"
    });
    for (at, m) in one.matrices.iter().enumerate() {
        let shape = format!("{} × {}", m.rows, m.cols);
        let _ = write!(out, "{:name$} {shape:>13}", m.name);
        for (_, get) in &shown {
            let cell = match other.and_then(|other| other.matrices.get(at)) {
                Some(twin) => format!("{} → {}", number(get(m)), number(get(twin))),
                None => number(get(m)),
            };
            let _ = write!(out, " {cell:>width$}");
        }
        if let Some(change) = changes.and_then(|all| all.get(at)) {
            let _ = write!(out, " {:>11}", human::number(*change));
        }
        out.push('\n');
    }
    out.push_str("\nalpha by ww_ks: 2 to 6 is usual in trained models (WeightWatcher); fits with KS distance above 0.1 are unreliable. × random: singular entropy of\nenergies over that of a random matrix of this shape; 1 is untrained. Definitions: docs/metrics.md.\n");
    for inspected in [Some(one), other].into_iter().flatten() {
        for found in &inspected.findings {
            out.push_str(&super::finding::rows(found, 10, ""));
        }
    }
    out
}
