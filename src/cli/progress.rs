//! Progress lines of a run, for pipes and terminals without the workbench. Decides what deserves a line; prints nothing.

use super::diagnose::verdict_line;
use super::finding;
use super::run_ref::command;
use crate::base::clock::UnixMillis;
use crate::base::finding::Finding;
use crate::base::human;
use crate::base::text::{one_line, sanitize, shown};
use crate::base::turns::question;
use crate::diagnosis::{VERDICT, diagnose};
use crate::plan::target::of_run;
use crate::run::RunState;
use crate::run::spent;
use crate::run::state::outcome_word;
use crate::wire::{Envelope, Event, Outcome, Values, id};
use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

/// Least time between two step lines, by the engine's clock.
const PACE: Duration = Duration::from_secs(1);
/// Characters of a sample that are shown.
const SAMPLE_CHARS: usize = 500;

/// Folds a run's events into progress lines.
#[derive(Debug, Default)]
pub struct Progress {
    state: RunState,
    last_line: UnixMillis,
    /// The step of the last step line.
    last_step: u64,
    /// Notes that have been reported: a resume reads the data again, and notes the same of them.
    noted: HashSet<String>,
}

impl Progress {
    pub fn new() -> Progress {
        Progress::default()
    }

    /// The run state so far.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// Consumes an event; returns the lines to print, usually none.
    pub fn tell(&mut self, envelope: &Envelope) -> Vec<String> {
        // In the words of the log view.
        let line = self.state.line_of(&envelope.event);
        self.state.apply(envelope);
        match &envelope.event {
            Event::Started { .. } => self.started(),
            Event::Stepped { step, .. } => self.stepped(*step, envelope.t),
            Event::Evaluated { step, values, .. } => evaluated(*step, values),
            Event::Checked { finding, .. } => found("check", finding),
            Event::Diagnosed { finding, .. } if finding.id != VERDICT => {
                found("diagnosis", finding)
            }
            Event::Sampled {
                step, prompt, text, ..
            } => sampled(*step, prompt, text),
            Event::Checkpointed {
                path,
                bytes,
                best,
                by,
                ..
            } => {
                let by = by.as_ref().and_then(|by| by.not_by_loss());
                let best = match (best, by) {
                    (false, _) => String::new(),
                    (true, None) => ", best so far".into(),
                    (true, Some(words)) => format!(", best so far by {words}"),
                };
                vec![format!(
                    "checkpoint {} ({}){best}",
                    one_line(path),
                    human::bytes(*bytes)
                )]
            }
            Event::Noted { text, .. } => self.noted(text),
            Event::Warned { message, hint, .. } => {
                let mut lines = vec![format!("warning: {}", one_line(message))];
                lines.extend((!hint.is_empty()).then(|| format!("  try: {}", one_line(hint))));
                lines
            }
            Event::Rescued { .. } => {
                let rescue = self.state.rescued.as_ref();
                rescue
                    .map(|rescue| vec![rescue.words()])
                    .unwrap_or_default()
            }
            // Settings changed on the way, pauses and what goes on behind them, requests that were refused.
            Event::Adjusted { .. }
            // Where steps are given up; a resume from the last one gives up none.
            | Event::RolledBack { .. }
            | Event::PhaseChanged { .. }
            | Event::Skipped { .. }
            | Event::Rejected { .. }
            | Event::RescueUndone { .. } => line.into_iter().collect(),
            Event::Finished { .. } => self.finished(),
            _ => Vec::new(),
        }
    }

    /// As in a dry run.
    fn noted(&mut self, text: &str) -> Vec<String> {
        match self.noted.insert(text.to_string()) {
            true => vec![format!("note    {}", one_line(text))],
            false => Vec::new(),
        }
    }

    fn started(&self) -> Vec<String> {
        let Some(head) = &self.state.head else {
            return Vec::new();
        };
        let from = match head.resumed_from {
            Some(step) => format!(", resumed from step {step}"),
            None => String::new(),
        };
        // Only adapters make it a part.
        let trained = match head.spec["adapter"].is_null() {
            true => None,
            false => of_run(head),
        };
        let trained = trained.map_or_else(String::new, |request| {
            trained_words(request.n_trainable(), head.n_params)
        });
        // Another program's log may say none of these.
        let mut known = Vec::new();
        if head.n_params > 0 {
            let n = human::short(head.n_params as f64);
            known.push(format!("{n} parameters{trained}"));
        }
        let steps = human::grouped(head.max_steps);
        match (head.max_steps, head.batch_tokens) {
            (0, _) => {}
            (_, 0) => known.push(format!("{steps} steps")),
            (_, n) => {
                let ramps = head.spec["train"]["batch_ramp"].as_array();
                let upto = match ramps.is_some_and(|stages| !stages.is_empty()) {
                    true => "up to ",
                    false => "",
                };
                let tokens = human::grouped(n);
                known.push(format!("{steps} steps of {upto}{tokens} tokens"));
            }
        }
        let known = match known.is_empty() {
            true => String::new(),
            false => format!(": {}", known.join(", ")),
        };
        let (name, method) = (one_line(&head.name), one_line(&head.method));
        vec![format!("{name} ({method}){known}{from}")]
    }

    /// `step 120/2,000  loss 2.534  val 2.601  grad 0.812  lr 1.00e-3  epoch 0.34  21.0k tok/s  eta 1:30`
    fn stepped(&mut self, step: u64, t: UnixMillis) -> Vec<String> {
        let max_steps = self.state.head.as_ref().map_or(0, |head| head.max_steps);
        let due = self.last_step == 0 || step == max_steps || t.since(self.last_line) >= PACE;
        if !due {
            return Vec::new();
        }
        self.last_line = t;
        self.last_step = step;
        vec![self.step_line(step, max_steps)]
    }

    fn step_line(&self, step: u64, max_steps: u64) -> String {
        // Another program's log may not say where it ends.
        let of = match max_steps {
            0 => String::new(),
            n => format!("/{}", human::grouped(n)),
        };
        let mut line = format!("step {}{of}", human::grouped(step));
        // Once answers are learned from, the loss of a cold start is that of an earlier step.
        let answers = self.state.latest(id::REWARD).is_some();
        let first = match answers {
            true => [("reward", id::REWARD), ("pass@1", id::PASS_AT_1)],
            false => [("loss", id::TRAIN_LOSS), ("val", id::VAL_LOSS)],
        };
        // Methods on pairs and judged answers; others report none of these.
        let preferences = [
            ("accuracy", id::ACCURACIES),
            ("margin", id::MARGINS),
        ];
        let others = [("grad", id::GRAD_NORM), ("lr", id::LR)];
        for (word, id) in first.into_iter().chain(preferences).chain(others) {
            if let Some(x) = self.state.latest(id) {
                line.push_str(&format!("  {word} {}", human::number(x)));
            }
        }
        if let Some(epochs) = self.state.latest(id::EPOCHS) {
            line.push_str(&format!("  epoch {}", human::epochs(epochs)));
        }
        if let Some(rate) = self.state.tok_per_sec() {
            line.push_str(&format!("  {} tok/s", human::short(rate)));
        }
        if let Some(left) = self.state.remaining() {
            line.push_str(&format!("  eta {}", human::duration(left)));
        }
        line
    }

    fn finished(&self) -> Vec<String> {
        if let Some(refused) = &self.state.refused {
            return vec![format!("not resumed: {}", refused.message)];
        }
        let Some(finish) = &self.state.finished else {
            return Vec::new();
        };
        let mut line = format!(
            "{} at step {}",
            outcome_word(finish.outcome),
            human::grouped(self.state.step)
        );
        if let Some(loss) = finish.val_loss {
            line.push_str(&format!(", val loss {}", human::loss(loss)));
        }
        let took = spent::words(finish.seconds, self.state.seconds);
        line.push_str(&format!(", after {took}"));
        let mut lines = vec![line];
        lines.extend((!finish.message.is_empty()).then(|| format!("  {}", finish.message)));
        // Of a run that failed before its first step there is nothing to judge.
        if self.state.step == 0 && finish.outcome != Outcome::Completed {
            return lines;
        }
        let diagnosis = diagnose(&self.state);
        lines.push(format!("verdict {}", verdict_line(&diagnosis)));
        lines
    }

    /// Where the run is and what to type next.
    pub fn next_steps(&self, run: &Path, runs_dir: &Path) -> Vec<String> {
        let command = |verb: &str| command(verb, run, runs_dir);
        let mut lines = vec![format!("run {}", shown(run))];
        if !self.state.checkpoints.is_empty() {
            let head = self.state.head.as_ref();
            let judges = head.is_some_and(|head| head.method == "reward");
            lines.push(match judges {
                true => format!("score: {} FILE", command("score")),
                false => format!("chat: {}", command("chat")),
            });
        }
        lines.push(format!("view: {}", command("attach")));
        let done = self.state.progress() == Some(1.0);
        if self.state.finished.is_some() && !done && !self.state.checkpoints.is_empty() {
            lines.push(format!("resume: {}", command("train --resume")));
        }
        lines
    }
}

fn evaluated(step: u64, values: &Values) -> Vec<String> {
    let word = |id: &str| match id {
        id::VAL_LOSS => Some("val loss".to_string()),
        id::VAL_ACCURACIES => Some("val accuracy".to_string()),
        id::VAL_MARGINS => Some("val margin".to_string()),
        id if id.starts_with(id::EXTRA) => {
            Some(format!("loss on {}", one_line(&id[id::EXTRA.len()..])))
        }
        // What answers are worth, and tasks by their names.
        id => id.strip_prefix(id::EVAL).map(one_line),
    };
    let told = values.iter().filter_map(|(id, value)| {
        let value = human::number(value.0);
        Some(format!(
            "step {}  {} {value}",
            human::grouped(step),
            word(id)?
        ))
    });
    told.collect()
}

/// `check ok: title: evidence`, and below what to do.
fn found(kind: &str, found: &Finding) -> Vec<String> {
    let (title, seen) = (one_line(&found.title), found.evidence.to_string());
    let mut lines = vec![format!(
        "{kind} {}: {title}: {}",
        finding::word(found.status),
        one_line(&seen)
    )];
    let advice = found.advice();
    lines.extend((!advice.is_empty()).then(|| format!("  try: {}", one_line(&advice))));
    lines
}

fn sampled(step: u64, prompt: &str, text: &str) -> Vec<String> {
    // A template's first lines would leave no room for the answer.
    let whole = match question(prompt) {
        Some(asked) => format!("{asked}\n→ {}", text.trim()),
        None => format!("{prompt}{text}"),
    };
    let whole = sanitize(&whole);
    let shown: String = whole
        .trim_matches('\n')
        .chars()
        .take(SAMPLE_CHARS)
        .collect();
    let mut lines = vec![format!("sample at step {}:", human::grouped(step))];
    let mut blank = false;
    for line in shown.lines() {
        // A model that writes line ends alone fills no screen with them.
        let empty = line.trim().is_empty();
        if !(empty && blank) {
            lines.push(format!("  | {line}"));
        }
        blank = empty;
    }
    lines
}

/// `, of which 81.9k train (8.75 %)`, of adapters and what trains beside them; nothing where all weights train.
pub fn trained_words(trained: u64, all: u64) -> String {
    if trained == all {
        return String::new();
    }
    let share = 100.0 * trained as f64 / all.max(1) as f64;
    format!(
        ", of which {} train ({share:.2} %)",
        human::short(trained as f64)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Num, Phase, VERSION};

    #[test]
    fn line_ends_alone_fill_no_screen() {
        let lines = super::sampled(60, "k", "\n\n\n\n \n\nk\n\nx");
        assert_eq!(lines[1..], ["  | k", "  | ", "  | k", "  | ", "  | x"]);
    }

    #[test]
    fn a_roll_back_is_told_where_it_gives_up_steps() {
        let resumed = |step| {
            let events = [
                started(20),
                stepped(1),
                stepped(8),
                Event::RolledBack { step },
            ];
            let events = events.into_iter().map(|event| (0, event)).collect();
            told(events).1.join("\n")
        };
        assert!(!resumed(8).contains("rolled back"), "{}", resumed(8));
        let told = resumed(5);
        assert!(
            told.contains("rolled back to step 5: 3 steps discarded"),
            "{told}"
        );
    }

    fn told(events: Vec<(u64, Event)>) -> (Progress, Vec<String>) {
        let mut progress = Progress::new();
        let mut lines = Vec::new();
        for (i, (t, event)) in events.into_iter().enumerate() {
            lines.extend(progress.tell(&Envelope {
                v: VERSION,
                seq: i as u64 + 1,
                t: UnixMillis(t),
                event,
            }));
        }
        (progress, lines)
    }

    fn started(max_steps: u64) -> Event {
        Event::Started {
            name: "demo".into(),
            method: "pretrain".into(),
            spec: serde_json::Value::Null,
            n_params: 804_096,
            vocab_size: 65,
            max_steps,
            batch_tokens: 768,
            epoch_tokens: 1000,
            resumed_from: None,
            precision: None,
            unigram_entropy: None,
        }
    }

    fn stepped(step: u64) -> Event {
        Event::Stepped {
            step,
            tokens: step,
            values: [("train/loss".to_string(), Num(2.5))].into(),
        }
    }

    #[test]
    fn steps_are_told_once_a_second_and_the_last_one_always() {
        let mut events = vec![(0, started(100))];
        events.extend((1..=100).map(|step| (step * 50, stepped(step))));
        let (_, lines) = told(events);
        assert!(lines[0].contains("804k parameters"), "{}", lines[0]);
        let steps: Vec<&String> = lines.iter().filter(|l| l.starts_with("step")).collect();
        assert!((5..=7).contains(&steps.len()), "{steps:#?}");
        assert!(
            steps
                .last()
                .unwrap()
                .starts_with("step 100/100  loss 2.500")
        );
    }

    /// What people did to a run from another terminal stands in its lines too.
    #[test]
    fn changes_pauses_and_refusals_are_told() {
        let phase = |phase, step| Event::PhaseChanged { phase, step };
        let adjusted = Event::Adjusted {
            step: 40,
            key: "lr\x1b".into(),
            old: Num(1e-3),
            new: Num(2e-3),
        };
        let refused = Event::Rejected {
            id: 7,
            why: "step 41 could not be saved: Not a directory".into(),
        };
        let (_, lines) = told(vec![
            (0, started(100)),
            (1, phase(Phase::Training, 0)),
            (2, stepped(40)),
            (3, adjusted),
            (4, phase(Phase::Paused, 41)),
            (5, refused),
            // A sample while it is paused begins no other pause.
            (5, phase(Phase::Sampling, 41)),
            (5, phase(Phase::Paused, 41)),
            (6, phase(Phase::Training, 41)),
            (7, phase(Phase::Evaluating, 41)),
            (8, phase(Phase::Training, 41)),
            (9, phase(Phase::Paused, 42)),
        ]);
        assert_eq!(
            lines[2..],
            [
                // A control character is shown as a dot.
                "lr· 1.00e-3 → 2.00e-3 from step 40 on",
                "paused at step 41",
                "refused: step 41 could not be saved: Not a directory",
                "training resumed at step 41",
                "paused at step 42",
            ]
        );
    }

    #[test]
    fn notes_are_told_once() {
        let note = |text: &str| Event::Noted {
            step: 0,
            text: text.into(),
        };
        let (cut, other) = (note("book.txt: truncated\x1b"), note("mix: two"));
        let (_, lines) = told(vec![(0, cut.clone()), (1, other), (2, cut)]);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            lines[0].starts_with("note    book.txt: truncated"),
            "{lines:?}"
        );
        assert!(!lines[0].contains('\x1b'));
    }

    #[test]
    fn a_run_of_unknown_length_is_told_without_its_end() {
        let (_, lines) = told(vec![(0, started(0)), (2_000, stepped(1_240))]);
        let line = lines.last().unwrap();
        assert!(line.starts_with("step 1,240  loss"), "{line}");
    }

    #[test]
    fn what_a_log_does_not_say_is_left_out_of_its_first_line() {
        let first = |max_steps: u64, tokens: u64, n: u64| {
            let mut event = started(max_steps);
            if let Event::Started {
                batch_tokens,
                n_params,
                ..
            } = &mut event
            {
                (*batch_tokens, *n_params) = (tokens, n);
            }
            let (_, lines) = told(vec![(0, event)]);
            lines[0].split_once(')').unwrap().1.to_string()
        };
        assert_eq!(first(30, 0, 0), ": 30 steps");
        assert_eq!(first(0, 0, 0), "");
        let all = first(30, 64, 1_000);
        assert!(all.ends_with(" parameters, 30 steps of 64 tokens"), "{all}");
    }

    #[test]
    fn the_epoch_stands_behind_the_readings_where_it_is_logged() {
        let values = [("train/loss", 2.5), ("epochs", 1.256)];
        let step = Event::Stepped {
            step: 3,
            tokens: 3,
            values: values.map(|(id, x)| (id.to_string(), Num(x))).into(),
        };
        let (_, lines) = told(vec![(0, started(9)), (2_000, step)]);
        let line = lines.last().unwrap();
        assert!(
            line.starts_with("step 3/9  loss 2.500  epoch 1.26"),
            "{line}"
        );
    }

    #[test]
    fn preferences_are_told_by_accuracy_and_margin() {
        let values = |ids: [&str; 2]| ids.map(|id| (id.to_string(), Num(0.75))).into();
        let pairs = Event::Stepped {
            step: 2,
            tokens: 2,
            values: values(["rewards/accuracies", "rewards/margins"]),
        };
        let evaluated = Event::Evaluated {
            step: 2,
            tokens: 2,
            values: values(["val/rewards/accuracies", "val/rewards/margins"]),
            n_windows: 8,
            whole: false,
            seconds: 0.0,
        };
        let (_, lines) = told(vec![(0, started(2)), (1, pairs), (2, evaluated)]);
        let text = lines.join("\n");
        assert!(text.contains("accuracy 0.7500  margin 0.7500"), "{text}");
        assert!(text.contains("step 2  val accuracy 0.7500"), "{text}");
        assert!(text.contains("step 2  val margin 0.7500"), "{text}");
    }

    /// The loss of a cold start says nothing of the answers after it.
    #[test]
    fn learning_from_answers_is_told_by_reward_and_pass_at_1() {
        let answers = Event::Stepped {
            step: 2,
            tokens: 2,
            values: [("reward".to_string(), Num(0.5))].into(),
        };
        let evaluated = Event::Evaluated {
            step: 1,
            tokens: 1,
            values: [("eval/pass@1".to_string(), Num(0.25))].into(),
            n_windows: 8,
            whole: false,
            seconds: 0.0,
        };
        let log = vec![
            (0, started(2)),
            (1, stepped(1)),
            (2, evaluated),
            (9_000, answers),
        ];
        let (_, lines) = told(log);
        assert!(
            lines.contains(&"step 1  pass@1 0.2500".to_string()),
            "{lines:#?}"
        );
        let last = lines.last().unwrap();
        assert!(
            last.starts_with("step 2/2  reward 0.5000  pass@1 0.2500"),
            "{last}"
        );
    }

    #[test]
    fn a_sample_cannot_steer_the_terminal_nor_flood_it() {
        let (_, lines) = told(vec![(
            0,
            Event::Sampled {
                step: 5,
                prompt: "\n".into(),
                text: format!("a\x1b[2Jb\n{}", "x".repeat(5_000)),
                seconds: 0.1,
            },
        )]);
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|l| !l.contains('\x1b') && l.len() < 600));
    }

    #[test]
    fn of_a_chat_the_question_and_the_answer_are_shown() {
        let system = format!("<|im_start|>system\n{}<|im_end|>\n", "help ".repeat(200));
        let (_, lines) = told(vec![(
            0,
            Event::Sampled {
                step: 5,
                prompt: format!(
                    "{system}<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"
                ),
                text: "Because.".into(),
                seconds: 0.1,
            },
        )]);
        assert_eq!(lines[1..], ["  | Why?", "  | → Because."]);
    }

    #[test]
    fn the_end_says_what_happened_and_what_to_type() {
        let (progress, lines) = told(vec![
            (0, started(100)),
            (1, stepped(10)),
            (
                2,
                Event::Checkpointed {
                    step: 10,
                    path: "checkpoints/step-000010".into(),
                    bytes: 1 << 20,
                    seconds: 0.1,
                    best: true,
                    val_loss: None,
                    by: None,
                },
            ),
            (
                3,
                Event::Finished {
                    outcome: Outcome::Stopped,
                    step: 10,
                    tokens: 1,
                    val_loss: Some(Num(1.9)),
                    best: None,
                    train_loss: None,
                    seconds: 61.0,
                    message: String::new(),
                },
            ),
        ]);
        assert_eq!(
            lines[lines.len() - 2..],
            [
                "stopped at step 10, val loss 1.9000, after 1:01",
                "verdict TOO EARLY  too few steps for a verdict"
            ]
        );
        let next = progress.next_steps(Path::new("elsewhere/demo-x"), Path::new("elsewhere"));
        assert!(next[1].contains("chat demo-x --runs-dir elsewhere"));
        assert!(next[3].contains("--resume demo-x"), "{next:?}");
    }
}
