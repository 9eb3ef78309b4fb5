//! Arguments shared by several subcommands.

use super::{Context, exit::Failure, run_ref};
use crate::base::near::{did_you_mean, nearest};
use crate::base::sampling::{ContextLimit, Sampling};
use crate::base::text::one_line;
use crate::engine::infer::MAX_PARALLEL;
use crate::nn::KvPrecision;
use crate::pipeline;
use crate::spec::{self, Loaded, SpecSources};
use std::path::PathBuf;

/// Which spec to load: a preset's name or a file, plus overrides.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct SpecArgs {
    /// A preset's name (see `llmtui presets list`) or the path of a YAML file
    #[arg(value_name = "SPEC|PRESET")]
    pub spec: Option<String>,
    /// The same as the positional argument
    #[arg(
        short = 'c',
        long = "config",
        value_name = "FILE",
        conflicts_with = "spec"
    )]
    pub config: Option<String>,
    /// Change one value: a path (`train.max_steps=500`) or a short name (`lr=1e-3`); may be repeated
    #[arg(short = 's', long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// A word that `ssh` takes for a machine.
pub fn destination(word: &str) -> Result<String, String> {
    crate::base::ssh::is_destination(word).map(|()| word.into())
}

impl SpecArgs {
    /// The preset or path, from either argument.
    pub fn target(&self) -> Option<&str> {
        self.spec.as_deref().or(self.config.as_deref())
    }

    /// Loads and validates the spec with every `-s` applied.
    pub fn load(&self, cx: &Context) -> anyhow::Result<Loaded> {
        let target = self.target().ok_or_else(|| {
            Failure::user_error("which spec? Name a preset or a file", "llmtui presets list")
        })?;
        let set = super::model_ref::with_runs(&self.set, cx)?;
        let set = super::model_ref::from_a_run(target, set, cx)?;
        super::model_ref::pull_for_spec(target, &set, cx)?;
        let sources = cx.spec_sources();
        if pipeline::text_of(target, &sources).is_some()
            && spec::preset_text(target, &sources).is_none()
        {
            return Err(run_ref::is_a_pipeline(target).into());
        }
        let loaded =
            spec::load(target, &set, &sources).map_err(|errors| {
                match mistyped_pipeline(target, &sources) {
                    Some(failure) => failure.into(),
                    None => anyhow::Error::from(errors),
                }
            })?;
        super::eval::known(&loaded.spec.eval.tasks, cx)?;
        Ok(loaded)
    }
}

/// A word that names nothing and looks like a pipeline's name more than like any preset's.
fn mistyped_pipeline(word: &str, sources: &SpecSources) -> Option<Failure> {
    let taken = sources.project_dir.join(word).exists() || word.contains(['/', '.']);
    if taken || spec::preset_text(word, sources).is_some() {
        return None;
    }
    let pipelines = pipeline::names(sources);
    let presets = spec::presets(sources);
    let presets = presets.iter().map(|preset| preset.name.as_str());
    // Of equals the first: a preset.
    let near = nearest(word, presets.chain(pipelines.keys().map(String::as_str)))?;
    let is_pipeline = pipelines.contains_key(near) && spec::preset_text(near, sources).is_none();
    is_pipeline.then(|| {
        let what = format!("no preset and no pipeline is called `{}`", one_line(word));
        Failure::user_error(what, did_you_mean(near))
    })
}

/// Sampling settings; absent values keep the defaults.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct SamplingArgs {
    /// Generate at most this many tokens
    #[arg(long, value_name = "N")]
    pub max_new_tokens: Option<usize>,
    /// Softmax temperature; 0 takes the most likely token
    #[arg(long, value_name = "T", value_parser = at_least_zero)]
    pub temperature: Option<f32>,
    /// Keep only the K most likely tokens; 0 keeps all
    #[arg(long, value_name = "K")]
    pub top_k: Option<usize>,
    /// Keep the smallest set of tokens whose probability reaches P; 1 keeps all
    #[arg(long, value_name = "P", value_parser = probability)]
    pub top_p: Option<f32>,
    /// Keep tokens with at least P times the top token's probability; 0 keeps all
    #[arg(long, value_name = "P", value_parser = fraction)]
    pub min_p: Option<f32>,
    /// Penalize tokens already in the context; 1 turns it off
    #[arg(long, value_name = "R", value_parser = positive)]
    pub repetition_penalty: Option<f32>,
    /// Sampling seed
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// Stop when this text is generated; may be repeated
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub stop: Vec<String>,
    /// When the context is full: stop, or roll (drop the oldest tokens). Default: conversations drop their oldest turns, base models roll
    #[arg(long, value_name = "WORD", value_parser = ["stop", "roll"])]
    pub context: Option<String>,
}

impl SamplingArgs {
    /// The defaults with the given values applied.
    pub fn sampling(&self) -> Sampling {
        let d = Sampling::default();
        Sampling {
            temperature: self.temperature.unwrap_or(d.temperature),
            top_k: self.top_k.unwrap_or(d.top_k),
            top_p: self.top_p.unwrap_or(d.top_p),
            min_p: self.min_p.unwrap_or(d.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(d.repetition_penalty),
            max_new_tokens: self.max_new_tokens.unwrap_or(d.max_new_tokens),
            seed: self.seed.unwrap_or(d.seed),
            stop: self.stop.clone(),
            context: match self.context.as_deref() {
                Some("roll") => ContextLimit::Roll,
                Some(_) => ContextLimit::Stop,
                None => d.context,
            },
        }
    }
}

/// Where `--resume` resumes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resume {
    /// The newest run that can be resumed (of this spec, when one is given).
    Auto,
    /// A run's directory, name or unambiguous prefix.
    Run(PathBuf),
}

impl std::str::FromStr for Resume {
    type Err = std::convert::Infallible;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        // `true` is what other tools' --resume-from-checkpoint takes for "the newest".
        Ok(match word {
            "auto" | "true" => Resume::Auto,
            run => Resume::Run(run.into()),
        })
    }
}

/// Parses a number format of the KV cache.
pub fn kv_precision(word: &str) -> Result<KvPrecision, String> {
    let unknown = || {
        format!(
            "the number formats of the KV cache are {}",
            KvPrecision::WORDS
        )
    };
    KvPrecision::by_word(word).ok_or_else(unknown)
}

/// Answers that are written at once; none: as many as there is memory for, of a few.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parallel(pub Option<usize>);

impl std::fmt::Display for Parallel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(n) => write!(f, "{n}"),
            None => f.write_str("auto"),
        }
    }
}

/// Parses a number of answers that are written at once.
pub fn parallel(word: &str) -> Result<Parallel, String> {
    if word == "auto" {
        return Ok(Parallel(None));
    }
    let n = word.parse().ok().filter(|n| (1..=MAX_PARALLEL).contains(n));
    let n = n.ok_or_else(|| format!("auto, or a number from 1 to {MAX_PARALLEL}"))?;
    Ok(Parallel(Some(n)))
}

fn number(text: &str) -> Result<f32, String> {
    text.parse::<f32>()
        .ok()
        .filter(|x| x.is_finite())
        .ok_or_else(|| "not a number".to_string())
}

fn at_least_zero(text: &str) -> Result<f32, String> {
    match number(text)? {
        x if x >= 0.0 => Ok(x),
        _ => Err("must be 0 or more".into()),
    }
}

fn positive(text: &str) -> Result<f32, String> {
    match number(text)? {
        x if x > 0.0 => Ok(x),
        _ => Err("must be more than 0".into()),
    }
}

fn fraction(text: &str) -> Result<f32, String> {
    match number(text)? {
        x if (0.0..=1.0).contains(&x) => Ok(x),
        _ => Err("must be from 0 to 1".into()),
    }
}

fn probability(text: &str) -> Result<f32, String> {
    match number(text)? {
        x if x > 0.0 && x <= 1.0 => Ok(x),
        _ => Err("must be more than 0 and at most 1".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resume_knows_auto_and_other_tools_true() {
        assert_eq!("auto".parse(), Ok(Resume::Auto));
        assert_eq!("true".parse(), Ok(Resume::Auto));
        assert_eq!("runs/x".parse(), Ok(Resume::Run("runs/x".into())));
    }

    #[test]
    fn probabilities_are_bounded() {
        assert!(probability("0").is_err() && probability("1.1").is_err());
        assert!(probability("nan").is_err() && positive("inf").is_err());
        assert_eq!(probability("1"), Ok(1.0));
        assert_eq!(at_least_zero("0"), Ok(0.0));
    }
}
