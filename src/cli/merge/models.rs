//! `llmtui merge A B --method ties`: whole models of one architecture into a new one.

use super::super::Context;
use super::super::exit::{Exit, Failure};
use super::{Args, failed, written};
use crate::base::text::{one_line, shown};
use crate::engine::merge_models::{self, Order};
use crate::merging::{self, METHODS, Method, Setting, Settings};
use crate::models::Parts;
use std::path::Path;

/// Whether it is models that are merged.
pub fn is_meant(args: &Args) -> bool {
    args.method.is_some() || args.models.len() > 1
}

pub fn run(args: &Args, cx: &Context) -> anyhow::Result<Exit> {
    let method = method(args)?;
    let models: Vec<(&str, f64)> = args.models.iter().map(|word| weighed(word)).collect();
    check(args, method, models.len())?;
    let settings = settings(
        args,
        method,
        models.iter().map(|(_, weight)| *weight).collect(),
    )?;
    let find = |name: &str| super::super::model_ref::find(name, Parts::Everything, cx);
    let order = Order {
        method,
        base: args.base.as_deref().map(find).transpose()?,
        models: models
            .iter()
            .map(|(name, _)| find(name))
            .collect::<Result<_, _>>()?,
        settings,
        to: args.to.clone(),
        dtype: args.dtype,
        dequantize: args.dequantize,
    };
    let merged = merge_models::merge(&order).map_err(|e| failed(&e))?;
    for why in &merged.unknown {
        errln!("note: not known whether the tokenizers agree: {why}");
    }
    written(&args.to, &merged.written)?;
    let to = shown(&args.to);
    outln!(
        "tokenizer and chat template of {}",
        shown(&merged.tokenizer)
    )?;
    outln!("compare it with what it was made of: llmtui eval {to} MODEL …, llmtui chat {to}")?;
    Ok(Exit::Done)
}

/// A model and its weight. A colon may also stand before the file of a hub id.
fn weighed(word: &str) -> (&str, f64) {
    let number = |weight: &str| weight.parse().ok().filter(|x: &f64| x.is_finite());
    let parts = word.rsplit_once(':').filter(|_| !Path::new(word).exists());
    let weighed = parts.and_then(|(name, weight)| Some((name, number(weight)?)));
    weighed.unwrap_or((word, 1.0))
}

fn method(args: &Args) -> Result<&'static Method, Failure> {
    let word = match (args.method.as_deref(), &args.base) {
        (Some(word), _) => word,
        (None, None) => "linear",
        (None, Some(_)) => {
            let what = "--base: several models need a method";
            return Err(Failure::user_error(
                what,
                format!("one of these with a base:\n{}", list(true)),
            ));
        }
    };
    merging::method(word).ok_or_else(|| {
        let what = format!("--method {}: there is no such method", one_line(word));
        Failure::user_error(what, format!("methods:\n{}{}", list(false), list(true)))
    })
}

/// The methods with a base, or without, a row each.
fn list(has_base: bool) -> String {
    let of = METHODS.iter().filter(|method| method.has_base == has_base);
    of.map(|method| format!("  {:<16}{}\n", method.word, method.summary))
        .collect()
}

fn check(args: &Args, method: &Method, n: usize) -> Result<(), Failure> {
    let word = method.word;
    let error = |what: String, fix: &str| Err(Failure::user_error(what, fix));
    if !args.adapters.is_empty() {
        let fix = "merge the adapter into its own base first: llmtui merge --base MODEL --adapter DIR --to DIR";
        return error(
            "--adapter: adapters and models are merged one after the other".into(),
            fix,
        );
    }
    if args.any_base || !args.prompts.is_empty() {
        let name = if args.any_base { "any-base" } else { "prompt" };
        let fix = "leave it out: it checks adapters against their base";
        return error(format!("--{name}: merges of models do not read it"), fix);
    }
    match (method.has_base, &args.base) {
        (true, None) => {
            let fix = "name the model that all of them were trained from with --base";
            return error(format!("{word} needs a base"), fix);
        }
        (false, Some(_)) => {
            let fix = "name it among the models, or choose task_arithmetic, ties, dare_linear or dare_ties";
            return error(format!("{word} has no base"), fix);
        }
        _ => {}
    }
    match (word, n) {
        ("slerp", n) if n != 2 => {
            let fix = "name two; the place between them is --t";
            error(format!("slerp merges two models, found {n}"), fix)
        }
        ("linear", 1) => error("there is one model only".into(), "name two or more"),
        (_, 0) => error(
            "there is no model to merge".into(),
            "name one or more before the options",
        ),
        _ => Ok(()),
    }
}

fn settings(args: &Args, method: &Method, weights: Vec<f64>) -> Result<Settings, Failure> {
    let given = [
        (Setting::T, args.t.is_some()),
        (Setting::Density, args.density.is_some()),
        (Setting::Scale, args.lambda.is_some()),
        (Setting::Normalize, args.normalize.is_some()),
        (Setting::Seed, args.seed.is_some()),
    ];
    if let Some((setting, _)) = given
        .iter()
        .find(|(setting, is)| *is && !method.reads.contains(setting))
    {
        let reads: Vec<String> = method
            .reads
            .iter()
            .map(|s| format!("--{}", s.word()))
            .collect();
        let what = format!("--{}: {} does not read it", setting.word(), method.word);
        return Err(Failure::user_error(
            what,
            format!("it reads {}", reads.join(", ")),
        ));
    }
    if method.reads == [Setting::T] && weights.iter().any(|weight| *weight != 1.0) {
        let what = format!("{} has no weights", method.word);
        return Err(Failure::user_error(
            what,
            "--t is the place between the two models",
        ));
    }
    let mut settings = Settings::new(method, weights);
    settings.t = args.t.unwrap_or(settings.t);
    settings.density = args.density.unwrap_or(settings.density);
    settings.scale = args.lambda.unwrap_or(settings.scale);
    settings.normalize = args.normalize.unwrap_or(settings.normalize);
    settings.seed = args.seed.unwrap_or(settings.seed);
    let total: f64 = settings.weights.iter().sum();
    // Shares of an infinite sum are zero, and so would be the model.
    let all = settings.weights.iter().map(|w| w.abs()).sum::<f64>();
    if all > f64::from(f32::MAX) {
        let what = "the weights are too large to be summed";
        return Err(Failure::user_error(what, "weights of about 1 are usual"));
    }
    if method.word == "linear" && settings.normalize && total.abs() < 1e-8 {
        let what = "the weights sum to 0, by which a mean would be divided";
        return Err(Failure::user_error(
            what,
            "change them, or --normalize false sums without dividing",
        ));
    }
    Ok(settings)
}
