//! The contents of a report, independent of its format: rows of facts and of findings, and which curves are drawn.

use super::{PipelineReport, Price, RunReport};
use crate::base::human;
use crate::base::text::one_line;
use crate::pipeline::{StageState, State};
use crate::run::state::{Evaluation, MarkKind};
use crate::run::{RunState, Series};
use crate::tasks::Kept;
use crate::wire::{Best, id};
use serde_json::Value;
use std::path::Path;

/// A name and what it is.
pub(super) type Fact = (String, String);

/// Curves of one chart: title, unit, (name, metric).
pub(super) struct Curves {
    pub title: String,
    pub unit: String,
    pub series: Vec<(String, String)>,
}

/// Curves that belong in one chart.
const LOSSES: [(&str, &str); 2] = [("train", id::TRAIN_LOSS), ("validation", id::VAL_LOSS)];
/// Drawn first, in this order.
const FIRST: [&str; 4] = [id::GRAD_NORM, id::ENTROPY, id::LR, id::TOK_PER_SEC];
/// Of each source of a mix: straight lines, whose ends stand among the facts of the data.
const SOURCE_TOKENS: &str = "tokens/";
const SOURCE_EPOCHS: &str = "epochs/";
/// At most so many charts.
const MAX_CHARTS: usize = 24;

fn fact(name: &str, value: impl Into<String>) -> Fact {
    (name.into(), value.into())
}

/// Columns of findings, of evaluations, and of a pipeline's stages.
pub(super) const FINDINGS: [&str; 4] = ["status", "rule", "evidence", "cause and fix"];
pub(super) const RESULTS: [&str; 4] = ["model", "task", "metric", "value ± standard error"];
pub(super) const STAGES: [&str; 4] = ["stage", "state", "time", "made"];

/// The stages of a pipeline, but for the one that writes the report.
pub(super) fn stages(state: &State) -> Vec<[String; 4]> {
    let shown = state.stages.iter().filter(|stage| stage.kind != "report");
    let row = |stage: &StageState| {
        let made = stage
            .made
            .as_deref()
            .and_then(Path::file_name)
            .unwrap_or_default();
        let made = match &stage.run {
            Some(run) => format!("{run} {}", made.to_string_lossy()),
            None => made.to_string_lossy().into_owned(),
        };
        let what = format!("{} ({})", stage.name, stage.kind);
        [
            what,
            stage.status.word().into(),
            human::seconds(stage.seconds),
            one_line(format!("{} {}", made.trim(), stage.message).trim()),
        ]
    };
    shown.map(row).collect()
}

/// Time and cost of all stages together.
pub(super) fn whole(album: &PipelineReport) -> Vec<Fact> {
    let seconds = album
        .state
        .stages
        .iter()
        .map(|stage| stage.seconds.max(0.0));
    let seconds: f64 = seconds.sum();
    let price = album.sheets.iter().find_map(|sheet| sheet.price.as_ref());
    let mut facts = vec![fact("time of all stages", human::seconds(seconds))];
    facts.extend(cost(seconds, price));
    facts
}

/// The run in a few rows.
pub(super) fn overview(sheet: &RunReport) -> Vec<Fact> {
    let state = sheet.state;
    let mut facts = vec![
        fact("run", one_line(&state.run)),
        fact(
            "verdict",
            format!(
                "{}: {}",
                sheet.diagnosis.verdict.word(),
                one_line(&sheet.diagnosis.summary)
            ),
        ),
        fact("state", state.word()),
    ];
    facts.extend(size(sheet));
    facts.extend(best_loss(state));
    facts.extend(best_checkpoint(state));
    // A run on its own answers has such a loss of its cold start alone.
    if let Some(loss) = state.newest_loss() {
        let name = match state.latest(id::REWARD) {
            Some(_) => "training loss of the newest steps of the cold start",
            None => "training loss of the newest steps",
        };
        facts.push(fact(name, human::loss(loss)));
    }
    if let Some(reward) = state.latest(id::REWARD) {
        facts.push(fact("last mean reward", human::number(reward)));
    }
    if let Some(finished) = state.finished.as_ref().filter(|f| !f.message.is_empty()) {
        facts.push(fact("ended", one_line(&finished.message)));
    }
    facts
}

/// What is trained, and how long.
fn size(sheet: &RunReport) -> Vec<Fact> {
    let state = sheet.state;
    let mut facts = Vec::new();
    let Some(head) = &state.head else {
        return facts;
    };
    match state.foreign_format() {
        Some(format) => facts.push(fact("log of another program", format)),
        None => facts.push(fact("method", head.method.clone())),
    }
    // Logs of other programs do not tell all of it.
    if head.n_params > 0 {
        let trained = sheet.trained.as_deref().map_or_else(String::new, one_line);
        let n = human::grouped(head.n_params);
        facts.push(fact("parameters", format!("{n}{trained}")));
    }
    if head.vocab_size > 0 {
        facts.push(fact(
            "vocabulary",
            format!("{} tokens", human::grouped(head.vocab_size)),
        ));
    }
    let of = match head.max_steps {
        0 => String::new(),
        n => format!(" of {}", human::grouped(n)),
    };
    facts.push(fact("steps", human::grouped(state.step) + &of));
    // What was read, not what a step may hold: rows are padded, answers end early, batches grow.
    let per_step = match state.tokens.checked_div(state.step) {
        None | Some(0) => String::new(),
        Some(n) if n * state.step == state.tokens => format!(", {} a step", human::grouped(n)),
        Some(n) => format!(", {} a step on average", human::grouped(n)),
    };
    if state.tokens > 0 {
        facts.push(fact("tokens", human::grouped(state.tokens) + &per_step));
    }
    if let Some(precision) = &head.precision {
        facts.push(fact("precision", precision.clone()));
    }
    facts
}

fn best_loss(state: &RunState) -> Option<Fact> {
    let best = state
        .best_evaluation()
        .filter(|best| best.val_loss().is_finite())?;
    let loss = best.val_loss();
    // Of a preference or a reward it means nothing, and was not measured.
    let perplexity = match state.measures_perplexity() {
        true => format!(" (perplexity {})", human::perplexity(loss)),
        false => String::new(),
    };
    let at = format!(" at step {}", human::grouped(best.step));
    let other = state.best_on_other_rows();
    let other = other.filter(|other| other.best.metric == id::VAL_LOSS);
    let other = other.map_or_else(String::new, |other| {
        let last = human::grouped(other.step);
        let same = other.last_on_same.map_or_else(String::new, |value| {
            format!("{} on the same rows, ", human::loss(value))
        });
        format!(
            ", on {}; at step {last}: {same}{} on {}",
            other.of(other.rows),
            human::loss(other.last),
            other.of(other.last_rows)
        )
    });
    let words = human::loss(loss) + &perplexity + &at + &other;
    Some(fact("best validation loss", words))
}

/// The checkpoint that counts as the best, and by which reading.
fn best_checkpoint(state: &RunState) -> Option<Fact> {
    let best = state.checkpoints.iter().rev().find(|saved| saved.best)?;
    let name = best.path.rsplit('/').next().unwrap_or(&best.path);
    let by = match &best.by {
        Some(by) => format!(", by {} {}", by.metric, reading_of(state, by)),
        None => String::new(),
    };
    Some(fact("best checkpoint", one_line(&format!("{name}{by}"))))
}

/// The reading that chose a checkpoint. The last evaluation of a run may read the whole split: its loss is then another than
/// that of the rows on which checkpoints are compared.
fn reading_of(state: &RunState, by: &Best) -> String {
    let value = by.value.0;
    if by.metric != id::VAL_LOSS {
        return human::number(value);
    }
    let mut here = state.evaluations.iter().rev();
    let whole = here
        .find(|e| e.step == by.step && e.whole)
        .map(Evaluation::val_loss);
    let loss = human::loss(value);
    match whole.map(human::loss).filter(|whole| *whole != loss) {
        Some(whole) => {
            format!("{loss} on the rows of all evaluations ({whole} on the whole validation split)")
        }
        None => loss,
    }
}

/// Time, speed and memory.
pub(super) fn timings(sheet: &RunReport) -> Vec<Fact> {
    let state = sheet.state;
    let mut facts = Vec::new();
    let engines = state.seconds;
    if engines > 0.0 {
        facts.push(fact("training time", human::seconds(engines)));
    }
    facts.extend(cost(engines, sheet.price.as_ref()));
    if let Some(rate) = state.mean_tok_per_sec() {
        facts.push(fact(
            "tokens per second of the steps, mean",
            human::grouped(rate.round() as u64),
        ));
    }
    if let Some(mfu) = mean(state, id::MFU) {
        facts.push(fact("model FLOPs utilization, mean", format!("{mfu:.3}")));
    }
    let checkpoints = &state.checkpoints;
    if let Some(last) = checkpoints.last() {
        let seconds: f64 = checkpoints.iter().map(|c| c.seconds).sum();
        facts.push(fact(
            "checkpoints",
            format!(
                "{} in {seconds:.1} s, {} each",
                checkpoints.len(),
                human::bytes(last.bytes)
            ),
        ));
    }
    if let Some(predicted) = sheet.predicted_bytes {
        facts.push(fact("memory, predicted", human::bytes(predicted)));
    }
    facts.extend(peak_memory(state, sheet.predicted_bytes));
    facts
}

/// Main memory at its peak, with the processes that the run started; the prediction is of the training process alone.
fn peak_memory(state: &RunState, predicted: Option<u64>) -> Option<Fact> {
    let own = peak(state, id::machine::RSS)?;
    let bytes = |bytes: f64| human::bytes(bytes as u64);
    let share = predicted.filter(|p| *p > 0).map(|predicted| {
        let more = 100.0 * (own / predicted as f64 - 1.0);
        format!("{more:+.1} % of the prediction")
    });
    let words = match (peak_of_all(state).filter(|all| *all > own), share) {
        (None, None) => bytes(own),
        (None, Some(share)) => format!("{} ({share})", bytes(own)),
        (Some(all), share) => {
            let share = share.map_or(String::new(), |share| format!(", {share}"));
            format!(
                "{} (the training process {}{share})",
                bytes(all),
                bytes(own)
            )
        }
    };
    Some(fact("peak memory", words))
}

/// Parts of a run in each of which two peaks count as one moment's.
const MOMENTS: usize = 2_000;

/// The peak of the sum that the dashboard shows; `None` of a run that started no processes.
fn peak_of_all(state: &RunState) -> Option<f64> {
    let own = state.series.get(id::machine::RSS)?;
    let started = state.series.get(id::machine::STARTED)?;
    let (from, to) = own.steps()?;
    let columns = |series: &Series| series.columns(from as f64, to as f64 + 1.0, MOMENTS);
    let sums = columns(own)
        .into_iter()
        .zip(columns(started))
        .filter_map(|(own, started)| Some(own?.max + started.map_or(0.0, |b| b.max)));
    sums.filter(|x| x.is_finite()).reduce(f64::max)
}

/// What so many seconds of the machine cost.
pub(super) fn cost(seconds: f64, price: Option<&Price>) -> Option<Fact> {
    let price = price.filter(|_| seconds > 0.0)?;
    let hours = seconds / 3600.0;
    let source = match price.source.is_empty() {
        true => String::new(),
        false => format!("; {}", one_line(&price.source)),
    };
    let words = format!(
        "${:.2}: {hours:.3} hours at ${:.2}{source}",
        hours * price.dollars,
        price.dollars
    );
    Some(fact("cost", words))
}

/// At most so many rows, the newest ones.
const MAX_DONE: usize = 100;

/// What the engine and people did while the run went on, by step: settings changed, rescues, updates left out, notes.
pub(super) fn done(state: &RunState) -> Vec<Fact> {
    let word = |kind: MarkKind| match kind {
        MarkKind::Adjusted => Some("changed"),
        MarkKind::Rescued => Some("rescue"),
        MarkKind::Skipped => Some("update skipped"),
        MarkKind::Resumed => Some("resumed"),
        MarkKind::Warning => Some("warning"),
        MarkKind::Note => Some("note"),
        MarkKind::Evaluated | MarkKind::Checkpoint => None,
    };
    let shown = state.marks.iter().filter_map(|mark| {
        let words = [word(mark.kind)?, mark.text.as_str()];
        let words = words.iter().filter(|words| !words.is_empty());
        let words: Vec<&str> = words.copied().collect();
        let step = format!("step {}", human::grouped(mark.step));
        Some(fact(&step, one_line(&words.join(": "))))
    });
    let all: Vec<Fact> = shown.collect();
    all[all.len().saturating_sub(MAX_DONE)..].to_vec()
}

fn mean(state: &RunState, id: &str) -> Option<f64> {
    let series = state.series.get(id)?;
    let (from, to) = series.steps()?;
    series
        .columns(from as f64, to as f64 + 1.0, 1)
        .pop()??
        .mean()
}

fn peak(state: &RunState, id: &str) -> Option<f64> {
    let series = state.series.get(id)?;
    let (from, to) = series.steps()?;
    let bucket = series.columns(from as f64, to as f64 + 1.0, 1).pop()??;
    bucket.mean().is_some().then_some(bucket.max)
}

/// The machine, as it described itself: what is a plain value.
pub(super) fn machine(state: &RunState) -> Vec<Fact> {
    let mut facts = Vec::new();
    if state.foreign_format().is_none() {
        let program = format!("llmtui {}", one_line(&state.engine));
        facts.push(fact("program", program));
    }
    let Some(machine) = &state.machine else {
        return facts;
    };
    let text = |value: &Value| one_line(value.as_str().unwrap_or_default());
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let cpu = &machine["cpu"];
    let features = cpu["features"].as_array().into_iter().flatten();
    let features: Vec<String> = features.map(text).collect();
    let memory = &machine["memory"];
    let mut add = |name: &str, value: String| {
        if !value.is_empty() {
            facts.push(fact(name, value));
        }
    };
    add("host", text(&machine["host"]));
    add("system", text(&machine["os"]));
    add("processor", text(&cpu["model"]));
    let cores = (number(&cpu["allowed"]), number(&cpu["logical"]));
    if cores.1 > 0 {
        add("cores", format!("{} of {} available", cores.0, cores.1));
    }
    add("instruction sets", features.join(", "));
    if number(&memory["total"]) > 0 {
        add("memory", human::bytes(number(&memory["total"])));
    }
    if number(&memory["cgroup_limit"]) > 0 {
        let limit = human::bytes(number(&memory["cgroup_limit"]));
        add("memory limit of the cgroup", limit);
    }
    for gpu in machine["gpus"].as_array().into_iter().flatten() {
        let memory = human::bytes(number(&gpu["memory_total"]));
        add("GPU", format!("{}, {memory}", text(&gpu["name"])));
    }
    facts
}

/// The sources of a mix: both of their metrics are declared. A run of another program may have one such name for something else.
fn sources(state: &RunState) -> impl Iterator<Item = &str> {
    let names = state
        .metrics
        .iter()
        .filter_map(|info| info.id.strip_prefix(SOURCE_EPOCHS));
    names.filter(|name| state.metric(&format!("{SOURCE_TOKENS}{name}")).is_some())
}

/// Data, by the keys of the spec.
pub(super) fn data(state: &RunState) -> Vec<Fact> {
    let mut facts = Vec::new();
    if let Some(head) = &state.head {
        let mut data = head.spec["data"].clone();
        // The built-in text is read where nothing else is named.
        let others = ["path", "sources", "synthetic"];
        if others.iter().any(|key| is_said(&data[*key]))
            && let Some(data) = data.as_object_mut()
        {
            data.shift_remove("corpus");
        }
        flatten("", &data, &mut facts);
        if head.epoch_tokens > 0 {
            facts.push(fact(
                "tokens of an epoch",
                human::grouped(head.epoch_tokens),
            ));
        }
    }
    if let Some(epochs) = state.epochs() {
        facts.push(fact("epochs", format!("{epochs:.2}")));
    }
    for name in sources(state) {
        let id = format!("{SOURCE_EPOCHS}{name}");
        if let Some(passes) = state.series.get(&id).and_then(|s| s.last()) {
            let name = format!("epochs of {}", one_line(name));
            facts.push((name, format!("{:.2}", passes.value)));
        }
    }
    facts
}

fn is_said(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        _ => true,
    }
}

/// Nested values as `a.b.c`; of lists the first few.
fn flatten(path: &str, value: &Value, facts: &mut Vec<Fact>) {
    const MAX: usize = 80;
    let inner = |key: &str| match path {
        "" => key.to_string(),
        path => format!("{path}.{key}"),
    };
    if facts.len() >= MAX {
        return;
    }
    match value {
        Value::Null => {}
        Value::Object(map) => map
            .iter()
            .for_each(|(key, value)| flatten(&inner(key), value, facts)),
        Value::Array(items) => {
            let few = items.iter().take(8).enumerate();
            few.for_each(|(at, value)| flatten(&inner(&at.to_string()), value, facts));
        }
        Value::String(text) if text.is_empty() => {}
        Value::String(text) => facts.push((one_line(path), one_line(text))),
        other => facts.push((one_line(path), other.to_string())),
    }
}

/// What the run declared: a loss of preferences or rewards is no number of nats per token.
fn unit_of_loss(state: &RunState) -> String {
    let of = |id: &str| state.metrics.iter().find(|m| m.id == id);
    let declared = LOSSES.iter().find_map(|(_, id)| of(id));
    declared.map_or(String::new(), |metric| metric.unit.clone())
}

/// Which curves are drawn: losses together, then the well-known ones, then all others that the run declared.
pub(super) fn curves(state: &RunState) -> Vec<Curves> {
    let has = |id: &str| state.series.get(id).is_some_and(|s| s.len() > 1);
    let mut charts = Vec::new();
    let losses: Vec<(String, String)> = LOSSES
        .iter()
        .filter(|(_, id)| has(id))
        .map(|(name, id)| ((*name).to_string(), (*id).to_string()))
        .collect();
    if !losses.is_empty() {
        charts.push(Curves {
            title: "Loss".into(),
            unit: unit_of_loss(state),
            series: losses,
        });
    }
    let declared = state
        .metrics
        .iter()
        .filter(|m| !m.per_layer)
        .map(|m| m.id.as_str());
    let mut ids: Vec<&str> = FIRST.to_vec();
    ids.extend(declared.filter(|id| !FIRST.contains(id)));
    ids.push(id::machine::RSS);
    let mut seen: Vec<&str> = LOSSES.iter().map(|(_, id)| *id).collect();
    for id in ids {
        let source = id
            .strip_prefix(SOURCE_TOKENS)
            .or_else(|| id.strip_prefix(SOURCE_EPOCHS));
        let is_straight = source.is_some_and(|name| sources(state).any(|other| other == name));
        let is_of_host = id.starts_with(id::machine::HOST) && id != id::machine::RSS;
        if seen.contains(&id) || !has(id) || is_of_host || is_straight {
            continue;
        }
        seen.push(id);
        let info = state.metric(id);
        charts.push(Curves {
            title: info.map_or_else(|| one_line(id), |info| one_line(&info.title)),
            unit: info.map_or_else(String::new, |info| one_line(&info.unit)),
            series: vec![(one_line(id), id.to_string())],
        });
    }
    charts.truncate(MAX_CHARTS);
    charts
}

/// Status, title, evidence, cause and fix of each finding.
pub(super) fn findings(sheet: &RunReport) -> Vec<[String; 4]> {
    let rows = sheet.diagnosis.findings.iter().map(|finding| {
        let mut why = one_line(&finding.cause);
        if !finding.fix.is_empty() {
            why = format!("{why} → {}", one_line(&finding.fix));
        }
        [
            finding.status.word().to_string(),
            one_line(&finding.title),
            one_line(&finding.evidence.to_string()),
            why.trim_start_matches(" → ").to_string(),
        ]
    });
    rows.collect()
}

/// `arc_easy v1, 2 worked examples, only 100 items`: what tells results of the same task apart.
fn asked(kept: &Kept) -> String {
    let summary = &kept.summary;
    let shots = match summary.shots {
        0 => String::new(),
        n => format!(", {}", human::counted(n as u64, "worked example")),
    };
    let items = human::counted(summary.items as u64, "item");
    let items = match kept.limited {
        true => format!("only {items} (--limit)"),
        false => items,
    };
    let task = one_line(&summary.task);
    format!("{task} v{}{shots}, {items}", summary.version)
}

/// Checkpoint, task, metric, value of each result.
pub(super) fn results(sheet: &RunReport) -> Vec<[String; 4]> {
    let mut rows = Vec::new();
    for kept in &sheet.results {
        let summary = &kept.summary;
        for reading in summary.readings.iter().filter(|r| r.group.is_none()) {
            rows.push([
                one_line(&kept.model),
                asked(kept),
                one_line(&reading.metric),
                human::with_error(reading.value, reading.stderr),
            ]);
        }
    }
    rows
}
