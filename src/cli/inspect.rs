//! `llmtui inspect`: the health of a model at rest, matrix by matrix, beside another one's.

use super::Context;
use super::exit::{Exit, Failure};
use super::model_ref;
use crate::base::finding::{Finding, Signal};
use crate::base::human;
use crate::base::text::{one_line, shown};
use crate::engine::checkpoint::Manifest;
use crate::engine::export::ExportError;
use crate::llama_cpp::GgufModel;
use crate::models::{ModelSource, Parts};
use crate::nn::{Model, ParamInfo};
use crate::probes::spectra::{self, Matrix};
use serde_json::json;
use std::fmt::Write as _;

/// Inspect the weights of a model: spectra, power-law exponents, norms, dead rows, NaN
///
/// Any checkpoint, Hugging Face folder or GGUF file, of which one matrix at a time is dequantized; an adapter is inspected merged
/// into its base. Trains nothing and needs no data. Definitions: docs/metrics.md.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui inspect runs/…/checkpoints/step-001000
  llmtui inspect base-model fine-tuned-model
  llmtui inspect model model-Q4_K_M.gguf
  llmtui inspect Qwen/Qwen2.5-0.5B --json")]
pub struct Args {
    /// A checkpoint or model folder, a .gguf file, a run (its best checkpoint), or a hub id
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
    weights: Weights,
    /// Rows of queries, keys and values.
    heads: [usize; 3],
    matrices: Vec<Matrix>,
    /// Of each matrix, where a file says it.
    formats: Vec<Option<&'static str>>,
    findings: Vec<Finding>,
}

/// Where the values of the matrices are.
enum Weights {
    /// In memory, in f32.
    Whole(Box<Model>),
    /// In a file, whose matrices are dequantized one at a time.
    File(Box<GgufModel>, Vec<ParamInfo>),
}

impl Weights {
    fn infos(&self) -> &[ParamInfo] {
        match self {
            Weights::Whole(model) => model.params().base(),
            Weights::File(_, infos) => infos,
        }
    }

    fn n_params(&self) -> usize {
        match self {
            Weights::Whole(model) => model.n_params(),
            Weights::File(_, infos) => infos.iter().map(|info| info.len).sum(),
        }
    }

    fn with<R>(&self, info: &ParamInfo, read: impl FnOnce(&[f32]) -> R) -> anyhow::Result<R> {
        Ok(match self {
            Weights::Whole(model) => model
                .params()
                .read_weights(|all| read(&all[info.offset..info.offset + info.len]))?,
            Weights::File(file, _) => read(&file.read_values(info)?),
        })
    }

    fn format(&self, info: &ParamInfo) -> Option<&'static str> {
        match self {
            Weights::Whole(_) => None,
            Weights::File(file, _) => file.format_of(info),
        }
    }

    fn are_quantized(&self) -> bool {
        matches!(self, Weights::File(file, _) if file.is_quantized())
    }
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
    let unread =
        |what: String| Failure::user_error(one_line(&what), "docs/models.md lists what is read");
    let source = Manifest::open_verified::<ExportError>(&folder)
        .map_err(|e| Failure::user_error(one_line(&e.to_string()), e.hint()))?;
    let place = match source.adapter() {
        Some(_) => format!("{} (its adapter merged into its base)", shown(&folder)),
        None => shown(&folder),
    };
    let config = source.config();
    let shape = config.shape(config.vocab_size.unwrap_or_default());
    let kv = shape.n_kv_head * shape.head_dim;
    let heads = [shape.n_head * shape.head_dim, kv, kv];
    let weights = match source {
        ModelSource::Gguf(file) => {
            let infos = file.parameters().map_err(|e| unread(e.to_string()))?;
            Weights::File(file, infos)
        }
        // Of an adapter the weights that it makes of its base.
        folder => Weights::Whole(Box::new(folder.load().map_err(|e| unread(e.to_string()))?)),
    };
    let (mut matrices, mut formats) = (Vec::new(), Vec::new());
    for info in weights.infos() {
        let [_, cols] = &*info.shape else { continue };
        weights.with(info, |values| {
            for (suffix, rows) in spectra::parts(info, heads) {
                let part = &values[rows.start * cols..rows.end * cols];
                matrices.push(Matrix::of(info, suffix, part, *cols));
                formats.push(weights.format(info));
            }
        })?;
    }
    let findings = findings(&matrices);
    Ok(Inspected {
        place,
        weights,
        heads,
        matrices,
        formats,
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
    let (a, b) = (one.weights.infos(), other.weights.infos());
    let same = |(a, b): (&ParamInfo, &ParamInfo)| a.name == b.name && a.shape == b.shape;
    if a.len() != b.len() || !a.iter().zip(b).all(same) {
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
    let mut found = Vec::new();
    for (info, twin) in a.iter().zip(b) {
        let [_, cols] = &*info.shape else { continue };
        let changes = one.weights.with(info, |old| {
            other.weights.with(twin, |new| {
                let parts = spectra::parts(info, one.heads).into_iter();
                let parts = parts.map(|(_, rows)| rows.start * cols..rows.end * cols);
                let changes = parts.map(|part| change(&old[part.clone()], &new[part]));
                changes.collect::<Vec<f64>>()
            })
        })??;
        found.extend(changes);
    }
    Ok(found)
}

fn change(old: &[f32], new: &[f32]) -> f64 {
    let pairs = || old.iter().zip(new);
    let moved: f64 = pairs()
        .map(|(a, b)| (f64::from(*b) - f64::from(*a)).powi(2))
        .sum();
    let size: f64 = pairs().map(|(a, _)| f64::from(*a).powi(2)).sum();
    (moved / size.max(1e-24)).sqrt()
}

fn value(inspected: &Inspected) -> serde_json::Value {
    let matrix = |(m, format): (&Matrix, &Option<&str>)| {
        let mut value = json!({
            "name": m.name, "layer": m.layer, "shape": [m.rows, m.cols],
            "values": spectra::numbers(m),
        });
        if let Some(format) = format {
            value["format"] = json!(format);
        }
        value
    };
    let matrices = inspected.matrices.iter().zip(&inspected.formats);
    json!({
        "place": inspected.place,
        "n_params": inspected.weights.n_params(),
        "quantized": inspected.weights.are_quantized(),
        "estimators": {"alpha": "ww_ks", "alpha_hill_mid": "hill_mid", "singular_entropy": "kl_sigma", "singular_entropy_energy": "kl_energy"},
        "matrices": matrices.map(matrix).collect::<Vec<_>>(),
        "findings": inspected.findings,
    })
}

fn number(x: Option<f64>) -> String {
    x.map_or("–".into(), human::number)
}

/// Rounding errors of a block are nearly independent: their spectrum is that of a random matrix.
const NOISE: &str = "Quantized weights: rounding adds noise like a small random matrix, a floor under the singular values. Those below it say nothing of the\nmodel, so compare alpha, entropy and × random among files of one format.\n";

/// The number format of each matrix; with another model both. Empty where no file says any.
fn formats(one: &Inspected, other: Option<&Inspected>) -> Vec<String> {
    let known = |inspected: &Inspected| inspected.formats.iter().any(Option::is_some);
    if !known(one) && !other.is_some_and(known) {
        return Vec::new();
    }
    let word = |format: Option<&&str>| format.copied().unwrap_or("–").to_string();
    let formats = one.formats.iter().enumerate();
    let cell = |(at, format): (usize, &Option<&str>)| match other {
        None => word(format.as_ref()),
        Some(other) => {
            let twin = other.formats.get(at).and_then(Option::as_ref);
            format!("{} → {}", word(format.as_ref()), word(twin))
        }
    };
    formats.map(cell).collect()
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
    let n_params = human::grouped(one.weights.n_params() as u64);
    let _ = writeln!(
        out,
        "{n_params} parameters, {} matrices\n",
        one.matrices.len()
    );
    let name = one.matrices.iter().map(|m| m.name.len()).max().unwrap_or(6);
    let width = if other.is_some() { 19 } else { 13 };
    let formats = formats(one, other);
    let wide = formats.iter().map(|cell| cell.chars().count()).max();
    let wide = wide
        .filter(|wide| *wide > 0)
        .map(|wide| wide.max("format".len()));
    let _ = write!(out, "{:name$} {:>13}", "matrix", "shape");
    if let Some(wide) = wide {
        let _ = write!(out, " {:>wide$}", "format");
    }
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
        if let (Some(wide), Some(format)) = (wide, formats.get(at)) {
            let _ = write!(out, " {format:>wide$}");
        }
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
    let both = || [Some(one), other].into_iter().flatten();
    if both().any(|inspected| inspected.weights.are_quantized()) {
        out.push_str(NOISE);
    }
    for inspected in both() {
        for found in &inspected.findings {
            out.push_str(&super::finding::rows(found, 10, ""));
        }
    }
    out
}
