//! Tells a person who is not at the screen that a run has ended or goes wrong: the shell command in `LLMTUI_NOTIFY`, with the
//! news in its environment.

use crate::base::clock::{Clock, SystemClock, pause};
use crate::base::finding::{Finding, Status};
use crate::base::human;
use crate::base::paths::Env;
use crate::base::text::one_line;
use crate::diagnosis::VERDICT;
use crate::run::state::outcome_word;
use crate::wire::{Event, Outcome};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long the end of a process waits for its commands: a batch system ends them with it.
const PATIENCE: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(50);

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
struct News {
    /// The outcome's word in the log, or `verdict`.
    event: String,
    /// One sentence with the run's name.
    message: String,
}

/// The news of one engine. Dropping it waits for the commands that still run, up to [`PATIENCE`].
#[derive(Debug)]
pub struct Notifier {
    command: Option<String>,
    /// The run's id.
    run: String,
    name: String,
    /// The last verdict that was reported: a verdict is reported once until another one comes.
    verdict: String,
    running: Vec<Child>,
    /// Where a command that failed is reported.
    complain: fn(&str),
}

impl Notifier {
    /// `run`: its id.
    pub fn new(env: &Env, run: &str, complain: fn(&str)) -> Notifier {
        Notifier {
            command: env.notify.clone(),
            name: run.into(),
            run: run.into(),
            verdict: String::new(),
            running: Vec::new(),
            complain,
        }
    }

    /// Runs the command if the event is news, and does not wait for it.
    pub fn on_event(&mut self, event: &Event) {
        let news = self.news(event);
        let (Some(command), Some(news)) = (&self.command, news) else {
            return;
        };
        let child = Command::new("sh")
            .args(["-c", command])
            .env("LLMTUI_RUN", &self.run)
            .env("LLMTUI_EVENT", news.event)
            .env("LLMTUI_MESSAGE", &news.message)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match child {
            Ok(child) => self.running.push(child),
            Err(e) => (self.complain)(&format!("LLMTUI_NOTIFY was not run: sh: {e}")),
        }
        self.reap();
    }

    fn news(&mut self, event: &Event) -> Option<News> {
        match event {
            Event::Started { name, .. } => {
                self.name = one_line(name);
                None
            }
            Event::Diagnosed { step, finding } if finding.id == VERDICT => {
                let known = std::mem::replace(&mut self.verdict, finding.title.clone());
                let bad = finding.status == Status::Fail && known != finding.title;
                bad.then(|| News {
                    event: "verdict".into(),
                    message: format!(
                        "{} at step {}: {}",
                        self.name,
                        human::grouped(*step),
                        verdict_words(finding),
                    ),
                })
            }
            Event::Finished {
                outcome,
                step,
                val_loss,
                message,
                ..
            } => {
                let step = human::grouped(*step);
                let loss = val_loss.map_or_else(String::new, |loss| {
                    format!(", validation loss {:.4}", loss.0)
                });
                let why = match message.is_empty() {
                    true => String::new(),
                    false => format!(": {}", one_line(message)),
                };
                let word = outcome_word(*outcome);
                Some(News {
                    event: word_of(*outcome),
                    message: format!("{} {word} at step {step}{loss}{why}", self.name),
                })
            }
            _ => None,
        }
    }

    /// Forgets the commands that have ended; says which failed.
    fn reap(&mut self) {
        let complain = self.complain;
        self.running.retain_mut(|child| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) if status.success() => false,
            Ok(Some(status)) => {
                complain(&format!("the command in LLMTUI_NOTIFY failed: {status}"));
                false
            }
            Err(_) => false,
        });
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        let clock = SystemClock::new();
        loop {
            self.reap();
            if self.running.is_empty() {
                return;
            }
            if clock.elapsed() > PATIENCE {
                (self.complain)("the command in LLMTUI_NOTIFY still runs and is left behind");
                return;
            }
            pause(TICK);
        }
    }
}

/// The evidence and the remedy behind the word.
fn verdict_words(finding: &Finding) -> String {
    let mut words = one_line(&finding.title);
    for (mark, part) in [
        (": ", finding.evidence.to_string()),
        ("; try ", finding.fix.clone()),
    ] {
        if !part.is_empty() {
            words.push_str(mark);
            words.push_str(&one_line(&part));
        }
    }
    words
}

/// The outcome as it is in the log.
fn word_of(outcome: Outcome) -> String {
    let value = serde_json::to_value(outcome).unwrap_or_default();
    value.as_str().unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Num;

    const ID: &str = "2026-01-01-000000-tiny-abcd";

    fn notifier(command: &str) -> Notifier {
        let env = Env {
            notify: Some(command.into()),
            ..Env::default()
        };
        Notifier::new(&env, ID, |why| panic!("{why}"))
    }

    fn finished(outcome: Outcome, message: &str) -> Event {
        Event::Finished {
            outcome,
            step: 2000,
            tokens: 0,
            val_loss: Some(Num(1.90058)),
            best: None,
            train_loss: None,
            seconds: 1.0,
            message: message.into(),
        }
    }

    fn verdict(title: &str, finding: Finding) -> Event {
        Event::Diagnosed {
            step: 300,
            finding: Box::new(Finding {
                id: VERDICT.into(),
                title: title.into(),
                ..finding
            }),
        }
    }

    #[test]
    fn the_end_and_a_bad_verdict_reach_the_command_and_nothing_else_does() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("news");
        let command = format!(
            r#"echo "$LLMTUI_RUN $LLMTUI_EVENT: $LLMTUI_MESSAGE" >> '{}'"#,
            out.display()
        );
        let mut notifier = notifier(&command);
        let said = || std::fs::read_to_string(&out).unwrap_or_default();
        let wait = |lines: usize| {
            while said().lines().count() < lines {
                pause(TICK);
            }
        };
        let diverged = || verdict("DIVERGED", Finding::fail("loss 9.1", "", "-s lr=1e-4"));
        notifier.on_event(&verdict("LEARNING", Finding::pass("loss falls")));
        notifier.on_event(&diverged());
        wait(1);
        notifier.on_event(&diverged());
        notifier.on_event(&finished(Outcome::Completed, ""));
        drop(notifier);
        let id = ID;
        assert_eq!(
            said(),
            format!(
                "{id} verdict: {id} at step 300: DIVERGED: loss 9.1; try -s lr=1e-4\n\
                 {id} completed: {id} finished at step 2,000, validation loss 1.9006\n"
            )
        );
    }

    #[test]
    fn a_message_is_never_read_as_shell() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("news");
        let command = format!(r#"printf %s "$LLMTUI_MESSAGE" > '{}'"#, out.display());
        let mut notifier = notifier(&command);
        let trap = "$(touch gone) `touch gone`; 'x' \"y\"";
        notifier.on_event(&finished(Outcome::Failed, trap));
        drop(notifier);
        assert!(std::fs::read_to_string(out).unwrap().ends_with(trap));
    }
}
