//! The settings that findings advise, one key from a run that has them: changed in the run itself where that goes, else in a
//! branch from a checkpoint, with what differs shown before it starts.

use super::from_here::{checkpoints, discarded, kept};
use super::{BatchPane, topic};
use crate::base::finding::{Finding, Signal, Status};
use crate::base::human::grouped;
use crate::base::num::Num;
use crate::diagnosis::Verdict;
use crate::run::state::{Level, RunState};
use crate::ui::effect::Effect;
use crate::ui::msg::{Asked, BranchPlan, Holder};
use crate::ui::overlays::{Choice, Item, Picker};
use crate::ui::panes::run;
use crate::ui::request::{Answer, Request};
use crate::ui::store::{OpenRun, Store};
use crate::wire::Command;

/// What can change while a run trains.
const LIVE: [&str; 2] = ["lr", "clip_norm"];

/// Keys, or beginnings of them, of which a checkpoint holds what they were: a branch that begins at one cannot change them.
const FROM_THE_START: [&str; 8] = [
    "data.",
    "model.",
    "adapter.",
    "method",
    "seed",
    "seq_len",
    "tokenizer",
    "train.from",
];

/// The list of what findings advise for the run on the screen.
pub fn advice(held: &OpenRun, findings: &[Finding]) -> Vec<Request> {
    let toast = |words: &str| vec![Request::Toast(Level::Info, words.into())];
    if held.holder == Holder::Foreign {
        return toast("another program trains this run: it can only be watched");
    }
    let wrong = findings.iter().filter(|f| matches!(f.status, Status::Fail | Status::Warn));
    let mut items = Vec::new();
    for finding in wrong {
        for settings in finding.ways() {
            if is_refuted(&held.state, &settings) {
                continue;
            }
            for item in of_finding(held, findings, finding, &settings) {
                add(&mut items, item);
            }
        }
    }
    if items.is_empty() {
        return toast("no finding suggests a setting; llmtui diagnose shows all findings");
    }
    let picker = Picker::new("follow the advice of a finding", "", items).about(topic("advice"));
    vec![Request::Open(Box::new(picker))]
}

/// What two findings advise stands once, with the reasons of both.
fn add(items: &mut Vec<Item>, item: Item) {
    match items.iter_mut().find(|known| known.choice == item.choice) {
        Some(known) => known.detail = format!("{}; {}", known.detail, item.detail),
        None => items.push(item),
    }
}

/// One way of a finding, in this run and in others. Titles begin with where: rows of the same settings differ in nothing else, and
/// the end of a row is cut.
fn of_finding(held: &OpenRun, all: &[Finding], finding: &Finding, list: &[String]) -> Vec<Item> {
    let settings = list.join(" ");
    let item = |title: String, detail: String, word: String| Item {
        title,
        detail,
        right: String::new(),
        choice: Choice::Answer(topic("advice"), Answer::Text(word)),
    };
    let mut items = Vec::new();
    let live = held.live() && live_settings(&settings).is_some();
    if live && limit(held, all, finding).is_none() {
        let title = format!("in this run, now: {settings}");
        items.push(item(title, reason(finding), format!("set {settings}")));
    }
    // What failed is in the weights: another rate brings nothing back that they have lost.
    let back = before(held, finding, |to| live && to < held.state.step);
    if let (Some(to), Status::Fail) = (back, finding.status) {
        let kept = kept(held);
        let title = format!("roll back to {}, then {settings}", grouped(to));
        let lost = discarded(to, held.state.step, &kept);
        let detail = format!("{lost}; {}", reason(finding));
        items.push(item(title, detail, format!("back {to} {settings}")));
    }
    for (word, step) in starts(held, all, finding, list) {
        let title = match step {
            0 => format!("from the start: {settings}"),
            step => format!("branch from {} ({word}): {settings}", grouped(step)),
        };
        items.push(item(title, reason(finding), format!("branch {step} {settings}")));
    }
    items
}

/// The first step at which the finding saw something; `None` where it has seen only how the run is now, not since when. What is
/// not finite was not so a step before.
fn seen(held: &OpenRun, finding: &Finding) -> Option<u64> {
    let finite = |signal: &Signal| signal.value.is_some_and(|Num(value)| value.is_finite());
    let dated = |signal: &&Signal| !finite(signal) || signal.step < Some(held.state.step);
    finding.evidence.0.iter().filter(dated).filter_map(|signal| signal.step).min()
}

/// The newest checkpoint from before what the finding saw, among those that will do.
fn before(held: &OpenRun, finding: &Finding, will_do: impl Fn(u64) -> bool) -> Option<u64> {
    let seen = seen(held, finding)?;
    kept(held).into_iter().filter(|step| *step < seen && will_do(*step)).max()
}

/// The step from which on checkpoints are broken, by the finding itself or another that failed and is about the weights; 0 where
/// it cannot be dated. `None` where nothing failed.
fn limit(held: &OpenRun, all: &[Finding], finding: &Finding) -> Option<u64> {
    let of_weights = |id: &str| [Verdict::Diverged, Verdict::NotLearning].iter().any(|v| v.rules().contains(&id));
    let failed = |f: &&Finding| f.status == Status::Fail;
    let others = all.iter().filter(|other| of_weights(&other.id));
    let failed = others.chain([finding]).filter(failed);
    failed.map(|f| seen(held, f).unwrap_or(0)).min()
}

/// Why it is advised: its cause, or what was measured.
fn reason(finding: &Finding) -> String {
    let why = match finding.cause.is_empty() {
        true => finding.evidence.to_string(),
        false => finding.cause.clone(),
    };
    match why.is_empty() {
        true => finding.title.clone(),
        false => format!("{}: {why}", finding.title),
    }
}

/// Whether a branch from a checkpoint could not take a setting, or would not feel it: a warm-up is over by then.
fn needs_the_start(setting: &str) -> bool {
    let key = setting.split('=').next().unwrap_or(setting);
    let fixed = FROM_THE_START.iter().any(|begin| key.starts_with(begin));
    key.contains("warmup") || fixed && !key.ends_with("dropout")
}

/// The last step that settings ask for, where they say one.
pub fn last_step(settings: &[String]) -> Option<u64> {
    let steps = |setting: &String| {
        let (key, value) = setting.split_once('=')?;
        let of_steps = key == "max_steps" || key.ends_with(".max_steps");
        value.replace('_', "").parse().ok().filter(|_| of_steps)
    };
    settings.iter().find_map(steps)
}

/// Whether the run itself refutes settings that end it earlier: it was at its best after that.
pub fn is_refuted(state: &RunState, settings: &[String]) -> bool {
    let of_method = state.finished.as_ref().and_then(|finish| finish.best.as_ref());
    let of_method = of_method.map(|best| best.step).filter(|step| *step > 0);
    let best = of_method.or_else(|| state.best_evaluation().map(|lowest| lowest.step));
    last_step(settings).zip(best).is_some_and(|(last, best)| last < best)
}

/// The steps that a branch with other settings can begin at, most useful first: the newest checkpoint from before what the
/// finding saw, the best and the newest one; 0 is the start. A checkpoint of the last step under those settings leaves nothing to
/// train, and what any finding calls broken, or asks for from the first step on, begins anew: never at a checkpoint that has it.
pub fn starts(held: &OpenRun, all: &[Finding], finding: &Finding, settings: &[String]) -> Vec<(&'static str, u64)> {
    if settings.iter().any(|setting| needs_the_start(setting)) {
        return vec![("start", 0)];
    }
    let marks = checkpoints(held);
    let planned = held.state.head.as_ref().map_or(0, |head| head.max_steps);
    let last = last_step(settings).unwrap_or(planned);
    let leaves_some = |step: u64| last == 0 || step < last;
    let limit = limit(held, all, finding);
    let sound = |step: u64| limit.is_none_or(|broken| step < broken);
    let open = || marks.iter().rev().filter(|mark| leaves_some(mark.step));
    let before = before(held, finding, |step| leaves_some(step) && sound(step));
    let before = before.map(|step| ("before it", step));
    let good = || open().filter(|mark| sound(mark.step));
    // An older one was the best when it was saved, and is not any more.
    let best = marks.iter().rev().find(|mark| mark.best).map(|mark| mark.step);
    let best = good().find(|mark| best == Some(mark.step)).map(|mark| ("best", mark.step));
    let newest = good().next().map(|mark| match marks.last() {
        Some(last) if last.step == mark.step => ("newest", mark.step),
        _ => ("earlier", mark.step),
    });
    let start = Some(("start", 0));
    let anew = limit.is_some() || finding.id == "preflight";
    let order = match anew {
        true => [before, start, best, newest],
        false => [before, best, newest, start],
    };
    let mut list: Vec<(&str, u64)> = Vec::new();
    for (word, step) in order.into_iter().flatten() {
        if list.iter().all(|(_, known)| *known != step) {
            list.push((word, step));
        }
    }
    list
}

/// Keys and values, where all of them can change while the run trains.
fn live_settings(settings: &str) -> Option<Vec<(&'static str, f64)>> {
    let one = |setting: &str| {
        let (key, value) = setting.split_once('=')?;
        let name = key.rsplit('.').next()?;
        let live = LIVE.into_iter().find(|live| *live == name)?;
        Some((live, value.parse().ok()?))
    };
    settings.split_whitespace().map(one).collect()
}

/// Settings that change while the run trains, one command each.
fn adjusted(settings: &str, store: &Store) -> Vec<Request> {
    let settings = live_settings(settings).unwrap_or_default().into_iter();
    let adjust = |(key, value): (&str, f64)| {
        let command = Command::Adjust {
            key: key.into(),
            value,
        };
        run::command(store, Asked::Adjust, command)
    };
    settings.flat_map(adjust).collect()
}

impl BatchPane {
    /// Does what was chosen of [`advice`].
    pub(super) fn follow_advice(&mut self, text: &str, store: &Store) -> Vec<Request> {
        let Some((verb, rest)) = text.split_once(' ') else {
            return Vec::new();
        };
        if verb == "set" {
            return adjusted(rest, store);
        }
        let mut words = rest.split_whitespace();
        let step = words.next().and_then(|step| step.parse().ok());
        if let (Some(step), "back") = (step, verb) {
            // In this order: a roll-back restores the settings of its checkpoint as well.
            let back = run::command(store, Asked::Rollback, Command::Rollback { step });
            let settings: Vec<&str> = words.collect();
            return back.into_iter().chain(adjusted(&settings.join(" "), store)).collect();
        }
        let (Some(step), Some(run_dir)) = (step, self.run.clone()) else {
            return Vec::new();
        };
        let plan = BranchPlan {
            step,
            settings: words.map(str::to_string).collect(),
        };
        self.branch = Some(plan.clone());
        vec![Request::Do(Effect::PlanBranch { run_dir, plan })]
    }
}
