//! The cost of the run.

use crate::advisor::wizard::question::{Ask, Explanation, Note, Row, note};
use crate::advisor::wizard::{Outcome, Wizard, estimate};

pub(in crate::advisor::wizard) struct Plan;

impl Ask for Plan {
    fn word(&self) -> &'static str {
        "plan"
    }

    fn title(&self) -> &'static str {
        "What it will cost"
    }

    fn explain(&self, wizard: &Wizard, _: &[Row]) -> Explanation {
        if let Some(why) = wizard.absent_base() {
            return (vec![note("No plan", why)], Vec::new());
        }
        let Some((draft, _)) = wizard.draft() else {
            return Explanation::default();
        };
        let Ok(spec) = draft.spec() else {
            return Explanation::default();
        };
        let (data, machine) = (wizard.chosen_data(), &wizard.context.machine);
        let mut notes: Vec<Note> = estimate::lines(&spec, data, machine)
            .into_iter()
            .map(|(label, text)| note(label, text))
            .collect();
        let advice = estimate::advice(&spec, data, machine);
        let none = advice
            .is_empty()
            .then(|| "no setting looks unusual".to_string());
        notes.extend(
            advice
                .into_iter()
                .chain(none)
                .map(|text| note("Advice", text)),
        );
        (notes, Vec::new())
    }

    fn enter(&self, wizard: &mut Wizard) -> Outcome {
        wizard.advance()
    }
}
