//! What may be left out, done again or changed: a stage whose model another one takes is not left out alone.

use super::Request;
use crate::cli::Context;
use crate::cli::exit::Failure;
use crate::pipeline::{Pipeline, Stage, StageModel, Work};

/// A stage that would have to do without a model.
struct Lack<'a> {
    stage: &'a str,
    what: String,
    hint: String,
}

/// Refuses to leave out a model that a stage takes. `left_out` are stages without a model, `over` those that take no more.
///
/// # Errors
/// The stage, and the model that it would have to do without.
pub fn check(
    pipeline: &Pipeline,
    left_out: &[String],
    over: &[String],
    cx: &Context,
) -> Result<(), Failure> {
    match lack(pipeline, left_out, over, cx) {
        Some(lack) => Err(Failure::user_error(lack.what, lack.hint)),
        None => Ok(()),
    }
}

/// ` --skip bad --skip hf`: everything that has to be left out with a stage.
pub fn skips(pipeline: &Pipeline, stage: &str, over: &[String], cx: &Context) -> String {
    let mut all = vec![stage.to_string()];
    // Each pass adds a stage.
    while let Some(lack) = lack(pipeline, &all, over, cx) {
        all.push(lack.stage.to_string());
    }
    let words: Vec<String> = all.iter().map(|name| format!("--skip {name}")).collect();
    words.join(" ")
}

fn lack<'a>(
    pipeline: &'a Pipeline,
    left_out: &[String],
    over: &[String],
    cx: &Context,
) -> Option<Lack<'a>> {
    let is_out = |name: &String| left_out.contains(name);
    let stages = pipeline.stages.iter().enumerate();
    let mut taking =
        stages.filter(|(_, stage)| !is_out(&stage.name) && !over.contains(&stage.name));
    taking.find_map(|(at, stage)| {
        let as_well = format!("--skip {} as well", stage.name);
        let judges = pipeline.judges_of(at, &cx.spec_sources());
        if let Some(judge) = judges.iter().find(|judge| is_out(&judge.name)) {
            return Some(Lack {
                stage: &stage.name,
                what: format!(
                    "stage {} needs the reward model of {}, which is skipped",
                    stage.name, judge.name
                ),
                hint: as_well,
            });
        }
        let lacks = |name: &str, hint: String| Lack {
            stage: &stage.name,
            what: format!(
                "stage {} needs the model of {name}, which is skipped",
                stage.name
            ),
            hint,
        };
        let before = pipeline.stages[..at].iter().filter(trains);
        let before = before.map(|stage| &stage.name);
        let (out, there): (Vec<&String>, Vec<&String>) = before.partition(|name| is_out(name));
        let named = models_of(stage)?;
        // Where none is named it takes what there is.
        if named.is_empty() {
            let out: Vec<&str> = out.into_iter().map(String::as_str).collect();
            return (there.is_empty() && !out.is_empty())
                .then(|| lacks(&out.join(" or "), as_well));
        }
        let gone = named.iter().find(|name| is_out(name))?;
        let left = named.iter().filter(|name| !is_out(name));
        let left: Vec<&str> = left.map(String::as_str).collect();
        let hint = match (&stage.work, there.last()) {
            (Work::Eval(_), _) if !left.is_empty() => {
                let left = left.join(",");
                format!("{as_well}, or -s {}.models=[{left}]", stage.name)
            }
            (Work::Export(_), Some(other)) => {
                format!("{as_well}, or -s {}.model={other}", stage.name)
            }
            _ => as_well,
        };
        Some(lacks(gone, hint))
    })
}

/// The stages whose models a stage takes by name, none where it takes what there is; `None` of one that takes no model of a stage.
fn models_of(stage: &Stage) -> Option<&[String]> {
    match &stage.work {
        Work::Train(train) => match &train.from {
            StageModel::Stage(name) => Some(std::slice::from_ref(name)),
            StageModel::Spec => None,
        },
        Work::Eval(config) => Some(&config.models),
        Work::Export(config) => Some(config.model.as_slice()),
        Work::Tokenizer(_) | Work::Report(_) => None,
    }
}

fn trains(stage: &&Stage) -> bool {
    matches!(stage.work, Work::Train(_))
}

/// # Errors
/// A stage is to be left out and done again.
pub fn agree(args: &Request) -> Result<(), Failure> {
    match args.skip.iter().find(|name| args.redo.contains(name)) {
        Some(name) => {
            let what = format!("--skip {name} and --redo {name} contradict each other");
            Err(Failure::user_error(what, "remove one of them"))
        }
        None => Ok(()),
    }
}

/// `skip` are stages that are left out now, `skipped` those that were before.
///
/// # Errors
/// A value of `-s` for one of them: nothing would come of it.
pub fn values(set: &[String], skip: &[String], skipped: &[String]) -> Result<(), Failure> {
    for word in set {
        let stage = word.split_once('.').map_or("", |(stage, _)| stage.trim());
        let is_in = |names: &[String]| names.iter().any(|name| name == stage);
        let hint = match (is_in(skip), is_in(skipped)) {
            (true, _) => format!("without --skip {stage}, or without the value"),
            (false, true) => format!("--redo {stage} runs it with that value"),
            (false, false) => continue,
        };
        let what = format!("-s {word}: stage {stage} is skipped, so its values have no effect");
        return Err(Failure::user_error(what, hint));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_a_stage_that_is_left_out_is_refused() {
        let set = ["rl.lr=1e-4".to_string(), "base.max_steps=3".into()];
        let refused = |skip: &[&str], skipped: &[&str]| {
            let names = |of: &[&str]| of.iter().map(ToString::to_string).collect::<Vec<_>>();
            values(&set, &names(skip), &names(skipped)).err()
        };
        assert!(refused(&[], &[]).is_none());
        assert!(refused(&["gguf"], &["report"]).is_none());
        let now = refused(&["base"], &[]).unwrap();
        assert!(now.what.contains("stage base is skipped"), "{}", now.what);
        assert!(now.hint.contains("without --skip base"), "{}", now.hint);
        let before = refused(&[], &["rl"]).unwrap();
        assert!(before.hint.contains("--redo rl"), "{}", before.hint);
    }
}
