//! Pipelines as tables.

use super::plan::Planned;
use super::stages::unusable_reason;
use crate::base::human;
use crate::base::text::{self, one_line};
use crate::cli::out::columns;
use crate::pipeline::{Pipeline, PipelineDir, StageState, State, Status, Work};
use crate::plan::request::Method;
use crate::run::index::{self, RunStatus};
use std::path::Path;

/// What is going to be done, with the memory, the time and on GPUs the price of each training.
pub fn planned(pipeline: &Pipeline, planned: &[Planned]) -> String {
    let priced = planned.iter().any(|p| p.gpus.is_some());
    let mut head = vec![
        "stage",
        "what",
        "parameters",
        "steps",
        "tokens",
        if priced { "memory of each" } else { "memory" },
        "time",
    ];
    if priced {
        head.push("cost");
    }
    let mut rows = vec![head.into_iter().map(String::from).collect::<Vec<_>>()];
    for stage in &pipeline.stages {
        let of = planned.iter().find(|p| p.stage == stage.name);
        rows.push(match (&stage.work, of) {
            (_, Some(of)) => training(of, priced),
            (Work::Train(_), None) => vec![stage.name.clone(), "skipped".into()],
            (work, None) => vec![stage.name.clone(), work.word().into()],
        });
    }
    let times: Option<Vec<f64>> = planned.iter().map(|p| p.seconds).collect();
    let about = match planned.iter().any(|p| p.at_most) {
        true => "at most",
        false => "about",
    };
    let whole = times.map_or(String::new(), |all| {
        format!(", {about} {} of training", human::seconds(all.iter().sum()))
    });
    let peak = planned.iter().map(|p| p.bytes).max().unwrap_or(0);
    format!(
        "{}\n\n{}\nat most {} of memory{}{whole}{}\n{}",
        match one_line(&pipeline.about).as_str() {
            "" => pipeline.name.clone(),
            about => format!("{}: {about}", pipeline.name),
        },
        columns(&rows),
        human::bytes(peak),
        if priced { " on each GPU" } else { "" },
        costs(planned).map_or(String::new(), |all| format!(", about {}", dollars(all))),
        notes(pipeline, planned),
    )
}

/// The row of a training stage.
fn training(planned: &Planned, priced: bool) -> Vec<String> {
    let unknown = || "?".to_string();
    let steps = planned.length.map(|(steps, _)| human::grouped(steps));
    let at_most = if planned.at_most { "at most " } else { "" };
    let time = planned
        .seconds
        .map(|time| format!("{at_most}{}", human::seconds(time)));
    let mut row = vec![
        planned.stage.clone(),
        planned.method.clone(),
        human::short(planned.n_params as f64),
        steps.unwrap_or_else(unknown),
        tokens(planned),
        human::bytes(planned.bytes),
        time.unwrap_or_else(unknown),
    ];
    if priced {
        let cost = planned.gpus.as_ref().and_then(|gpus| gpus.cost);
        row.push(cost.map_or_else(unknown, dollars));
    }
    row
}

fn dollars(amount: f64) -> String {
    match amount < 10.0 {
        true => format!("${amount:.2}"),
        false => format!("${amount:.0}"),
    }
}

/// Tokens of data that a stage trains on; completions do not count.
fn tokens(planned: &Planned) -> String {
    let generates = Method::by_word(&planned.method).is_some_and(Method::rolls_out);
    match planned.length {
        _ if generates => "-".into(),
        Some((_, tokens)) => human::short(tokens as f64),
        None => "?".into(),
    }
}

/// Of all stages; `None` where one has no price.
fn costs(planned: &[Planned]) -> Option<f64> {
    let all: Option<Vec<f64>> = planned.iter().map(|p| p.gpus.as_ref()?.cost).collect();
    all.filter(|all| !all.is_empty())
        .map(|all| all.iter().sum())
}

/// What the numbers stand on, and what they leave out.
fn notes(pipeline: &Pipeline, planned: &[Planned]) -> String {
    let mut notes = String::new();
    if let Some(gpus) = planned.iter().find_map(|p| p.gpus.as_ref()) {
        notes.push_str(&match (gpus.memory, &gpus.elsewhere) {
            (Some(memory), _) => format!(
                "on {} × {} of {}, at {} of their peak (assumed)",
                gpus.count,
                one_line(&gpus.name),
                human::bytes(memory),
                human::percent(gpus.mfu, 0)
            ),
            (None, Some(ranks)) => format!(
                "{}; their GPUs are not known here: --hardware FILE plans for a recorded machine (llmtui doctor --record FILE)",
                one_line(ranks)
            ),
            (None, None) => format!(
                "for {}; this machine has none: --hardware FILE plans for a recorded one (llmtui doctor --record FILE)",
                human::counted(gpus.count, "GPU")
            ),
        });
        notes.push('\n');
        if let Some(price) = &gpus.price {
            notes.push_str(&format!("price {price}\n"));
        }
        let others: Vec<&str> = pipeline
            .stages
            .iter()
            .filter(|stage| matches!(stage.work, Work::Eval(_) | Work::Tokenizer(_)))
            .map(|stage| stage.name.as_str())
            .collect();
        if !others.is_empty() {
            notes.push_str(&format!(
                "not in it: downloads and {}, which this program does on the processor\n",
                others.join(", ")
            ));
        }
    }
    let names = |of: &dyn Fn(&Planned) -> bool| {
        let names = planned.iter().filter(|p| of(p)).map(|p| p.stage.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let unread = names(&|p| p.unread && p.length.is_some());
    if !unread.is_empty() {
        notes.push_str(&format!(
            "planned from their steps, their data at the hub were not read: {unread}\n"
        ));
    }
    let unknown = names(&|p| p.length.is_none());
    if !unknown.is_empty() {
        notes.push_str(&format!(
            "epochs over data that were not read, so steps and time are unknown: {unknown}; set them with -s STAGE.max_steps=N\n"
        ));
    }
    for stage in planned {
        for advice in &stage.advice {
            notes.push_str(&format!("advice  {}: {advice}\n", stage.stage));
        }
    }
    notes
}

/// How each stage stands and what it made; `live` while a process drives them.
pub fn stages(state: &State, live: bool, runs_dir: &Path) -> String {
    let mut rows = vec![
        ["stage", "what", "state", "time", "made"]
            .map(String::from)
            .to_vec(),
    ];
    for stage in &state.stages {
        let trained_on = trained_on(stage, live, runs_dir);
        let made = match (&stage.message, &stage.made) {
            // Why it failed is past where its run has trained on.
            (message, _) if !message.is_empty() && trained_on.is_none() => one_line(message),
            (_, Some(made)) => shown(made),
            (_, None) => stage.run.clone().unwrap_or_default(),
        };
        rows.push(vec![
            stage.name.clone(),
            stage.kind.clone(),
            trained_on.map_or_else(
                || stands(stage, live, runs_dir),
                |status| status.word().into(),
            ),
            human::seconds(stage.spent(runs_dir)),
            made,
        ]);
    }
    columns(&rows)
}

/// The status of the run of a stage that was stopped or failed, where it has trained on without its pipeline.
fn trained_on(stage: &StageState, live: bool, runs_dir: &Path) -> Option<RunStatus> {
    let ended = matches!(stage.status, Status::Stopped | Status::Failed) && !live;
    let run = stage.current_run(runs_dir).filter(|_| ended)?;
    matches!(run.status, RunStatus::Live | RunStatus::Finished).then_some(run.status)
}

/// The status of a stage. A run continues to its end even if the process that drives the pipeline died, so the run's own status
/// counts then. A completed run with an unusable model shows its verdict: `done, DIVERGED`.
fn stands(stage: &StageState, live: bool, runs_dir: &Path) -> String {
    let run = || stage.current_run(runs_dir);
    match stage.status {
        Status::Running if !live => run().map_or("crashed", |run| run.status.word()).into(),
        Status::Done => match run().and_then(|run| unusable_reason(&run)) {
            Some(verdict) => format!("{}, {verdict}", Status::Done.word()),
            None => Status::Done.word().into(),
        },
        status => status.word().into(),
    }
}

/// What to do about a pipeline that nobody drives and that is not over.
fn advice(dir: &PipelineDir, state: &State, runs_dir: &Path) -> Option<String> {
    if dir.is_live() || state.is_finished() {
        return None;
    }
    let id = one_line(&state.id);
    let options = index::option(runs_dir);
    let resume = format!("llmtui train --resume {id}{options}");
    let running = state.stages.iter().rfind(|s| s.status == Status::Running);
    Some(match running {
        Some(stage) => format!(
            "the process that drove it has died; {resume} continues with stage {}",
            stage.name
        ),
        None => format!("{resume} continues"),
    })
}

/// Relative to the working directory where it lies below it.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    text::shown(path.strip_prefix(&here).unwrap_or(path))
}

/// Every pipeline below a runs directory with its stages, the newest first; empty where there is none.
pub fn list(runs_dir: &Path) -> String {
    let one = |(dir, state): &(PipelineDir, State)| {
        let done = state.stages.iter().filter(|s| s.status == Status::Done);
        let table = stages(state, dir.is_live(), runs_dir);
        let rows = table.lines().skip(1).map(String::from);
        let rows = rows.chain(advice(dir, state, runs_dir));
        format!(
            "{}  {}, {} of {} stages\n{}",
            one_line(&state.id),
            state.word(dir.is_live()),
            done.count(),
            state.stages.len(),
            rows.map(|row| format!("  {row}\n")).collect::<String>()
        )
    };
    let all: Vec<String> = PipelineDir::list(runs_dir).iter().map(one).collect();
    all.join("\n")
}

/// The same for programs, an object each.
pub fn objects(runs_dir: &Path) -> Vec<serde_json::Value> {
    let one = |(dir, state): &(PipelineDir, State)| {
        let mut stages = serde_json::json!(state.stages);
        for (value, stage) in stages
            .as_array_mut()
            .into_iter()
            .flatten()
            .zip(&state.stages)
        {
            value["seconds"] = serde_json::json!(stage.spent(runs_dir));
        }
        serde_json::json!({
            "pipeline": state.id,
            "name": state.name,
            "path": crate::base::json::path(dir.path()),
            "status": state.word(dir.is_live()),
            "created": state.created,
            "stages": stages,
        })
    };
    PipelineDir::list(runs_dir).iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::super::plan::Gpus;
    use super::*;
    use crate::base::clock::ManualClock;
    use crate::run::RunDir;

    fn stage(name: &str, at_most: bool, gpus: Option<Gpus>) -> Planned {
        Planned {
            stage: name.into(),
            method: if at_most { "grpo" } else { "pretrain" }.into(),
            n_params: 900,
            length: Some((300, 4_000)),
            bytes: 1 << 20,
            seconds: Some(60.0),
            at_most,
            gpus,
            unread: false,
            advice: vec!["train: 16 epochs; fewer".into()],
        }
    }

    fn told(stages: &[Planned]) -> String {
        let pipeline = Pipeline::parse(
            "mine.yaml",
            "mine",
            "name: mine\nstages:\n  - {name: base, train: smoke}\n  - {name: rl, train: grpo-sort}\n",
        );
        planned(&pipeline.unwrap(), stages)
    }

    /// The plan of an RL stage was 4 times its time: how soon they end is not known.
    #[test]
    fn the_time_of_answers_is_told_as_what_it_is_at_most() {
        let text = told(&[stage("base", false, None), stage("rl", true, None)]);
        assert!(text.contains("-       1 MiB   at most 1:00"), "{text}");
        assert!(text.contains(", at most 2:00 of training"), "{text}");
        assert!(
            text.contains("advice  rl: train: 16 epochs; fewer\n"),
            "{text}"
        );
        let text = told(&[stage("base", false, None)]);
        assert!(text.contains(", about 1:00 of training"), "{text}");
    }

    /// "for 1 GPUs; this machine has none" was said of two other machines.
    #[test]
    fn machines_elsewhere_are_named() {
        let gpus = |elsewhere: Option<&str>| Gpus {
            elsewhere: elsewhere.map(String::from),
            count: 1,
            name: "a GPU".into(),
            memory: None,
            mfu: 0.4,
            cost: None,
            price: None,
        };
        let ranks = "a rank for each GPU on 2 machines: gpu1, gpu2";
        let text = told(&[stage("base", false, Some(gpus(Some(ranks))))]);
        assert!(
            text.contains(&format!("{ranks}; their GPUs are not known here")),
            "{text}"
        );
        assert!(!text.contains("this machine has none"), "{text}");
        let text = told(&[stage("base", false, Some(gpus(None)))]);
        assert!(text.contains("for 1 GPU; this machine has none"), "{text}");
    }

    /// The pipeline called the stage stopped whose run its own list called finished: it was resumed without the pipeline.
    #[test]
    fn a_stopped_stage_whose_run_trained_on_stands_as_its_run_does() {
        let (runs, clock) = (tempfile::tempdir().unwrap(), ManualClock::at(0));
        let text = "stages: [{name: a, train: quickstart}]";
        let pipeline = Pipeline::parse("mine.yaml", "mine", text).unwrap();
        let dir = PipelineDir::create(runs.path(), &pipeline, text, &clock).unwrap();
        let run = RunDir::create(runs.path(), "a", "", "", &clock).unwrap();
        let mut state = dir.state().unwrap();
        (state.stages[0].status, state.stages[0].run) = (Status::Failed, Some(run.id().into()));
        state.stages[0].message = "no room".into();
        let told = |state: &State| stages(state, false, runs.path());
        assert!(told(&state).contains("failed") && told(&state).contains("no room"));
        let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tapes/standard.jsonl");
        std::fs::copy(log, run.events_path()).unwrap();
        for status in [Status::Failed, Status::Stopped] {
            state.stages[0].status = status;
            let table = told(&state);
            assert!(
                table.contains("finished") && !table.contains("no room"),
                "{table}"
            );
            assert!(stages(&state, true, runs.path()).contains(status.word()));
        }
    }

    /// A state file is written by hand or damaged: its times are shown, whatever they are.
    #[test]
    fn times_that_are_none_are_shown_as_none() {
        let state = |seconds: &str| -> State {
            let stage = format!(
                "{{\"name\":\"a\",\"kind\":\"eval\",\"status\":\"done\",\"seconds\":{seconds}}}"
            );
            let text = format!(
                "{{\"format\":1,\"id\":\"p\",\"name\":\"p\",\"about\":\"\",\"created\":0,\"stages\":[{stage}]}}"
            );
            serde_json::from_str(&text).unwrap()
        };
        let runs = tempfile::tempdir().unwrap();
        for seconds in ["-3.5", "1e300"] {
            let table = stages(&state(seconds), false, runs.path());
            assert!(table.contains("0:00"), "{table}");
        }
    }
}
