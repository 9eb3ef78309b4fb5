//! `llmtui model show`: layer table, parameters, FLOPs and memory of a model, without its weights.

use super::super::Context;
use super::super::exit::{Exit, Failure};
use super::super::model_ref;
use crate::base::human;
use crate::base::text::one_line;
use crate::hf;
use crate::models::{self, ModelSource, Parts};
use crate::nn::ModelConfig;
use crate::plan::anatomy::{Anatomy, Step, anatomy};
use crate::plan::target;
use serde_json::json;
use std::fmt::Write as _;
use std::path::Path;

/// Show a model's layers, parameters by part, FLOPs and memory
///
/// Loads no weights and computes nothing, so any size can be inspected before it exists. Of a hub id it downloads config.json and the
/// tokenizer, or all of a GGUF file, which holds its description with its weights.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  llmtui model show quickstart
  llmtui model show size-1b
  llmtui model show my.yaml -s model.n_layer=8
  llmtui model show runs/…/checkpoints/step-001000
  llmtui model show Qwen/Qwen2.5-0.5B --json")]
pub struct Args {
    /// A preset, a spec file, a checkpoint or model folder, a .gguf file, a run, or a hub id
    #[arg(value_name = "SPEC|FOLDER|FILE.gguf|HUB-ID")]
    pub target: String,
    /// Override a value of a spec; may be repeated
    #[arg(short = 's', long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// The report.
struct Shown {
    config: ModelConfig,
    vocab_size: usize,
    step: Step,
    place: String,
    /// Of transformers.
    class: Option<&'static str>,
    /// What of its files is left out or not read.
    notes: Vec<String>,
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let shown = look_up(args, cx)?;
    let anatomy = anatomy(&shown.config, shown.vocab_size, shown.step);
    if args.json {
        let shape = shown.config.shape(shown.vocab_size);
        let value = json!({
            "place": shown.place,
            "class": shown.class,
            "model": shown.config,
            "vocab_size": shape.vocab_size,
            "anatomy": anatomy,
        });
        outln!("{}", crate::cli::out::json(&value)?)?;
        return Ok(Exit::Done);
    }
    let class = shown
        .class
        .unwrap_or("no transformers class implements it: stored in llmtui's own format");
    std::io::Write::write_all(
        &mut std::io::stdout(),
        cx.words(text(&shown, class, &anatomy)).as_bytes(),
    )?;
    Ok(Exit::Done)
}

fn look_up(args: &Args, cx: &Context) -> anyhow::Result<Shown> {
    let sources = cx.spec_sources();
    if target::is_spec(&args.target, &sources) {
        let set = model_ref::with_runs(&args.set, cx)?;
        model_ref::pull_for_spec(&args.target, &set, cx)?;
        let spec = crate::spec::load(&args.target, &set, &sources)?.spec;
        let data = target::measure(&spec)
            .map_err(|e| Failure::user_error(one_line(&e.to_string()), e.hint()))?;
        return Ok(Shown {
            vocab_size: data.vocab_size,
            step: Step {
                rows: spec.train.micro_batch_size,
                checkpointing: spec.train.activation_checkpointing,
            },
            class: hf::family_of(&spec.model).map(|family| family.class_of(&spec.model)),
            config: spec.model.clone(),
            place: args.target.clone(),
            notes: Vec::new(),
        });
    }
    if !args.set.is_empty() {
        let what = "-s overrides values of a spec, but this is a model";
        return Err(Failure::user_error(what, "write a spec with train.from, or drop -s").into());
    }
    let place = model_ref::find(&args.target, Parts::Description, cx)?;
    let source = ModelSource::open(&place)
        .map_err(|e| Failure::user_error(one_line(&e.to_string()), e.hint()))?;
    Ok(of_model(source.config().clone(), source.class(), &place))
}

fn of_model(config: ModelConfig, class: Option<&'static str>, place: &Path) -> Shown {
    Shown {
        class,
        vocab_size: config.vocab_size.unwrap_or_default(),
        step: Step {
            rows: 1,
            checkpointing: Default::default(),
        },
        config,
        notes: models::notes(place),
        place: place.display().to_string(),
    }
}

fn text(shown: &Shown, class: &str, anatomy: &Anatomy) -> String {
    let mut out = String::new();
    let config = &shown.config;
    let shape = config.shape(shown.vocab_size);
    let _ = writeln!(out, "{}\n{class}", one_line(&shown.place));
    for note in &shown.notes {
        let _ = writeln!(out, "{}", one_line(note));
    }
    let _ = writeln!(out);
    let _ = writeln!(
        out,
        "{}, width {}, {} of {} ({} key/value), feed-forward {}, context {}, vocabulary {}",
        human::counted(shape.n_layer as u64, "layer"),
        shape.d_model,
        human::counted(shape.n_head as u64, "head"),
        shape.head_dim,
        shape.n_kv_head,
        shape.d_ff,
        human::grouped(shape.seq_len as u64),
        human::grouped(shape.vocab_size as u64)
    );
    let _ = writeln!(
        out,
        "position {}{}, norm {}, feed-forward {}{}{}{}\n",
        config.position.entry().id,
        config
            .position
            .rope()
            .and_then(|rope| rope.nope_every)
            .map_or(String::new(), |n| format!(" (none in one block of {n})")),
        config.norm.entry().id,
        config.mlp.entry().id,
        config.moe.as_ref().map_or(String::new(), |moe| format!(
            ", {} experts, {} active per token{}{}",
            moe.n_expert,
            moe.top_k,
            match moe.shared_d_ff {
                Some(_) => " beside a shared one",
                None => "",
            },
            match config.expert_blocks() {
                n if n == shape.n_layer => String::new(),
                n => format!(" in {n} of {} layers", shape.n_layer),
            }
        )),
        config.mla.as_ref().map_or(String::new(), |mla| format!(
            ", latent attention of {} + {} numbers per token",
            mla.kv_rank, mla.rope_dim
        )),
        config.mixer.as_ref().map_or(String::new(), |mixer| format!(
            ", {} in {} of {} layers",
            mixer.entry().id,
            shape.n_layer - config.attention_layers().count(),
            shape.n_layer
        )),
    );
    table(&mut out, anatomy);
    parts(&mut out, anatomy);
    let flops = anatomy.flops_per_token;
    let _ = writeln!(
        out,
        "\n{} FLOPs per training token (forward and backward, full context)\n",
        human::short(flops)
    );
    memory(&mut out, anatomy);
    out
}

fn table(out: &mut String, anatomy: &Anatomy) {
    let name = anatomy.rows.iter().map(|r| r.name.len()).max();
    let name = name.unwrap_or(0).max(6);
    let _ = writeln!(
        out,
        "{:name$}  {:>16} {:>7} {:>18}",
        "tensor", "shape", "times", "parameters"
    );
    for row in &anatomy.rows {
        let shape: Vec<String> = row.shape.iter().map(usize::to_string).collect();
        let _ = writeln!(
            out,
            "{:name$}  {:>16} {:>7} {:>18}",
            row.name,
            shape.join(" × "),
            row.count,
            human::grouped(row.params)
        );
    }
}

fn parts(out: &mut String, anatomy: &Anatomy) {
    let _ = writeln!(out);
    for (part, params) in &anatomy.parts {
        let share = 100.0 * *params as f64 / anatomy.total.max(1) as f64;
        let (title, params) = (part.title(), human::grouped(*params));
        let _ = writeln!(out, "{title:<18} {params:>18} {share:>6.1} %");
    }
    let total = human::grouped(anatomy.total);
    let _ = writeln!(out, "{:<18} {total:>18}", "all");
    if anatomy.active != anatomy.total {
        let active = human::grouped(anatomy.active);
        let _ = writeln!(out, "{:<18} {active:>18}", "active per token");
    }
}

fn memory(out: &mut String, anatomy: &Anatomy) {
    let m = &anatomy.memory;
    let sequences = match m.rows {
        1 => "one sequence".to_string(),
        n => format!("{n} sequences"),
    };
    let length = human::grouped(m.seq_len as u64);
    // States are as large whatever the length is.
    let kept = match m.kv_context > m.kv_per_token * m.seq_len as u64 {
        true => "KV cache and states",
        false => "KV cache",
    };
    let lines = [
        ("weights, f32".to_string(), m.weights),
        ("weights, bf16 in files".to_string(), m.weights_bf16),
        ("gradients, f32".to_string(), m.gradients),
        ("AdamW moments, f32".to_string(), m.moments),
        (
            format!("activations, {sequences} × {length} tokens"),
            m.activations,
        ),
        (format!("{kept} in f32, {length} tokens"), m.kv_context),
    ];
    let wide = lines
        .iter()
        .map(|(title, _)| title.len())
        .max()
        .unwrap_or(0);
    for (title, bytes) in lines {
        let _ = writeln!(out, "{title:<wide$}  {:>10}", human::bytes(bytes));
    }
}
