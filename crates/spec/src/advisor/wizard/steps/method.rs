//! How it learns: every method, best first, with the reasons.

use crate::advisor::choose::{self, Advice, MethodId, Verdict};
use crate::advisor::wizard::question::{About, Ask, Row, note};
use crate::advisor::wizard::{Outcome, Step, Wizard};
use crate::base::human;

pub(in crate::advisor::wizard) struct Method;

impl Ask for Method {
    fn word(&self) -> &'static str {
        "method"
    }

    fn title(&self) -> &'static str {
        "How should it learn?"
    }

    fn rows(&self, wizard: &Wizard) -> Vec<Row> {
        let row = |advice: Advice| {
            let why = advice.why.first().map_or("", |(_, why)| why.as_str());
            let suits = advice.verdict != Verdict::Unfit;
            let detail = match (suits, advice.fit.need(), advice.available) {
                (false, ..) => why.to_string(),
                (true, _, false) if advice.facts.trained_copies() > 0.0 => {
                    format!("not in this build yet · {why}")
                }
                (true, Some(need), _) => format!("states {} · {why}", human::bytes(need)),
                (true, ..) => why.to_string(),
            };
            Row {
                open: suits && advice.available,
                ..Row::choice(advice.title(), detail)
            }
        };
        wizard.advice().into_iter().map(row).collect()
    }

    fn about(&self, wizard: &Wizard, _: &[Row]) -> About {
        let list = wizard.advice();
        let Some(advice) = list.get(wizard.selected()) else {
            return About::default();
        };
        let facts = advice.facts;
        let why: Vec<&str> = advice.why.iter().map(|(_, why)| why.as_str()).collect();
        let mut notes = vec![note("Why", why.join("; "))];
        notes.push(note(
            "Needs",
            format!("{} ({})", facts.needs, facts.typical),
        ));
        notes.push(note("Cost", facts.cost));
        if !facts.cheaper.is_empty() {
            notes.push(note("Cheaper", facts.cheaper));
        }
        notes.push(note("Risks", facts.risks.join("; ")));
        notes.push(note("Watch", facts.watch));
        if !facts.lr.is_empty() {
            notes.push(note("Usual lr", facts.lr));
        }
        notes.push(note("Source", facts.source));
        (notes, Vec::new())
    }

    fn answer(&self, wizard: &Wizard) -> Option<String> {
        wizard.chosen_advice().map(|advice| advice.title())
    }

    /// The chosen method while it still suits; else the best trainable one, else the best one.
    fn chosen(&self, wizard: &Wizard) -> Option<usize> {
        let list = wizard.advice();
        let suits = |a: &Advice| a.available && a.verdict != Verdict::Unfit;
        let answers = &wizard.answers;
        let same = |a: &Advice| answers.adapter.is_none_or(|form| form == a.adapter);
        let chosen = |a: &Advice| Some(a.facts.id) == answers.method && same(a) && suits(a);
        list.iter()
            .position(chosen)
            .or_else(|| list.first().filter(|a| !a.available).map(|_| 0))
            .or_else(|| list.iter().position(suits))
    }

    fn enter(&self, wizard: &mut Wizard) -> Outcome {
        let list = wizard.advice();
        let Some(advice) = list.get(wizard.selected()) else {
            return Outcome::Stay;
        };
        if advice.facts.id == MethodId::NoTraining {
            return wizard
                .refuse("nothing to train: this needs a model and a good prompt, not a run");
        }
        let title = advice.title();
        if advice.verdict == Verdict::Unfit {
            let why = advice.why.last().map_or("", |(_, why)| why.as_str());
            return wizard.refuse(format!("{title} does not fit: {why}"));
        }
        if advice.available {
            wizard.answers.method = Some(advice.facts.id);
            wizard.answers.adapter = Some(advice.adapter);
            wizard.answers.method_for = wizard.method_subject();
            return wizard.advance();
        }
        let nearest = choose::nearest_available(&list);
        let words = match nearest {
            Some(near) if near.verdict != Verdict::Unfit => {
                format!(
                    "the closest one it trains is now selected: {}",
                    near.title()
                )
            }
            Some(near) => format!(
                "the closest one it trains is {}, which needs {}: go back to data and start",
                near.title(),
                near.facts.needs
            ),
            None => String::new(),
        };
        let usable = nearest.filter(|near| near.verdict != Verdict::Unfit);
        let same = |a: &choose::Advice, near: &choose::Advice| {
            (a.facts.id, a.adapter) == (near.facts.id, near.adapter)
        };
        let row = usable.and_then(|near| list.iter().position(|a| same(a, near)));
        if let Some(row) = row {
            wizard.cursor[Step::Method as usize] = row;
        }
        wizard.refuse(format!("this build does not train {title} yet; {words}"))
    }
}
