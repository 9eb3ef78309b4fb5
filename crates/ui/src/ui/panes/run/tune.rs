//! Tuning a live run: the form, and the question before a learning rate so much higher that an exponent may be missing.

use super::{RunPane, command, topic};
use crate::base::human;
use crate::ui::msg::Asked;
use crate::ui::overlays::{Field, Form, Question};
use crate::ui::request::Request;
use crate::ui::store::{OpenRun, Store};
use crate::wire::Command;

pub const ABOUT: &str = "tune";
pub const SURE: &str = "tune-sure";

/// What can be tuned, in the order of the form.
const KEYS: [&str; 2] = ["lr", "clip_norm"];
/// A learning rate is asked about from this many times the one before: it may destroy the weights within a few steps.
const MANY: f64 = 10.0;

/// The form with what can be tuned; empty fields stay as they are.
pub fn form(held: &OpenRun) -> Form {
    fn check_lr(text: &str) -> Option<String> {
        match text.parse::<f64>() {
            _ if text.is_empty() => None,
            Ok(x) if x.is_finite() && x > 0.0 => None,
            Ok(0.0) => Some("at a learning rate of 0 nothing is learned".into()),
            _ => Some(format!("`{text}` is not a number above 0, such as 3e-4")),
        }
    }
    fn check(text: &str) -> Option<String> {
        match text.parse::<f64>() {
            _ if text.is_empty() => None,
            Ok(x) if x.is_finite() && x >= 0.0 => None,
            _ => Some(format!("`{text}` is not a number of at least 0, such as 1")),
        }
    }
    let now = |key: &str| {
        let value = held.state.settings.get(key).copied();
        value.map_or(String::new(), |x| format!(" (now {})", human::number(x)))
    };
    let lr = format!(
        "peak learning rate{}; the schedule scales with it; empty keeps it",
        now("lr")
    );
    let clip = format!(
        "clip gradients above this norm{}; 0 turns it off; empty keeps it",
        now("clip_norm")
    );
    let fields = vec![
        Field::new("lr", &lr, "", check_lr),
        Field::new("clip_norm", &clip, "", check),
    ];
    Form::new(topic(ABOUT), "tune the live run", fields)
}

impl RunPane {
    /// Sends what was typed, or asks first.
    pub(super) fn tune(&mut self, store: &Store, values: Vec<String>) -> Vec<Request> {
        match question(store, &values) {
            Some(question) => {
                self.typed = values;
                vec![Request::Open(Box::new(question))]
            }
            None => send(store, &values),
        }
    }
}

/// One command for each value.
pub fn send(store: &Store, values: &[String]) -> Vec<Request> {
    let mut requests = Vec::new();
    for (key, text) in KEYS.into_iter().zip(values) {
        if let Ok(value) = text.trim().parse::<f64>() {
            let adjust = Command::Adjust {
                key: key.into(),
                value,
            };
            requests.extend(command(store, Asked::Adjust, adjust));
        }
    }
    requests
}

/// Whether a far higher learning rate is meant.
fn question(store: &Store, values: &[String]) -> Option<Question> {
    let old = *store.held.as_ref()?.state.settings.get("lr")?;
    let typed = values.first()?.trim();
    let times = typed.parse::<f64>().ok()? / old;
    if old <= 0.0 || times <= MANY {
        return None;
    }
    let reasons = vec![
        format!(
            "{typed} is {} times the learning rate of now, {}.",
            human::grouped(times.round() as u64),
            human::number(old)
        ),
        "Too high a rate destroys the weights within a few steps; a lower one does not bring them back.".into(),
    ];
    let answers = ["set it", "keep the learning rate"];
    Some(Question::new("a far higher learning rate", reasons, answers, topic(SURE)))
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use crate::ui::panes::bench::TestContext;
    use crate::ui::request::Answer;

    fn sent(requests: &[Request]) -> Vec<Command> {
        let command = |request: &Request| match request {
            Request::Do(Effect::Send { command, .. }) => Some(command.clone()),
            _ => None,
        };
        requests.iter().filter_map(command).collect()
    }

    /// 5 for 5e-4 destroyed a run without a question.
    #[test]
    fn a_far_higher_learning_rate_is_asked_about_once() {
        let mut around = TestContext::new();
        let mut held = OpenRun::opening(Slot(1), "x".into(), Default::default());
        held.link = LinkState::Live;
        held.state.settings.insert("lr".into(), 1e-3);
        around.store.held = Some(held);
        let mut pane = RunPane::default();
        let mut tuned = |lr: &str| {
            let values = Answer::Values(vec![lr.into(), "0.5".into()]);
            pane.answered(tune::ABOUT, values, &mut around.context())
        };
        let adjust = |key: &str, value| Command::Adjust {
            key: key.into(),
            value,
        };
        assert_eq!(sent(&tuned("5e-3")), [adjust("lr", 5e-3), adjust("clip_norm", 0.5)]);
        assert_eq!(sent(&tuned("")), [adjust("clip_norm", 0.5)]);
        let asked = tuned("5");
        let words = format!("{asked:?}");
        assert!(matches!(&asked[..], [Request::Open(_)]), "{words}");
        assert!(words.contains("5 is 5,000 times the learning rate of now, 1.00e-3."), "{words}");
        let sure = pane.answered(tune::SURE, Answer::Text(YES.into()), &mut around.context());
        assert_eq!(sent(&sure), [adjust("lr", 5.0), adjust("clip_norm", 0.5)]);
    }
}
