//! The question about the method: all of them with the reasons, those first that suit best, then by family.

use crate::advisor::choose::{self, Advice, DataKind, MethodId, Verdict};
use crate::advisor::wizard::question::{Ask, Explanation, Row, note};
use crate::advisor::wizard::{Outcome, Step, Wizard};
use crate::base::human;
use crate::base::text::shown;
use std::path::Path;

pub(in crate::advisor::wizard) struct Method;

impl Ask for Method {
    fn word(&self) -> &'static str {
        "method"
    }

    fn title(&self) -> &'static str {
        "How should it learn?"
    }

    fn rows(&self, wizard: &Wizard) -> Vec<Row> {
        let row = |(group, advice): (choose::Group, Advice)| {
            let why = advice.why.first().map_or("", |(_, why)| why.as_str());
            let suits = advice.verdict != Verdict::Unfit;
            let detail = match (suits, advice.fit.need(), advice.available) {
                (false, ..) => why.to_string(),
                _ if advice.quantize_first => format!("quantize the model first · {why}"),
                (true, _, false) if advice.facts.trained_copies() > 0.0 => {
                    format!("not in this build yet · {why}")
                }
                (true, Some(need), _) => format!("states {} · {why}", human::bytes(need)),
                (true, ..) => why.to_string(),
            };
            Row {
                open: suits && advice.available,
                group: Some(group.title()),
                ..Row::choice(advice.title(), detail)
            }
        };
        wizard.grouped_advice().into_iter().map(row).collect()
    }

    fn explain(&self, wizard: &Wizard, _: &[Row]) -> Explanation {
        let list = wizard.advice();
        let Some(advice) = list.get(wizard.selected()) else {
            return Explanation::default();
        };
        let facts = advice.facts;
        let why: Vec<&str> = advice.why.iter().map(|(_, why)| why.as_str()).collect();
        let mut notes = vec![note("Why", why.join("; "))];
        if facts.trained_copies() > 0.0
            && let Some(words) = against(&list)
        {
            notes.insert(0, note("Careful", words));
        }
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

    /// The chosen method while it still suits; else the best one that Enter accepts.
    fn chosen(&self, wizard: &Wizard) -> Option<usize> {
        let list = wizard.advice();
        let answers = &wizard.answers;
        let same = |a: &Advice| answers.adapter.is_none_or(|form| form == a.adapter);
        let chosen = |a: &Advice| Some(a.facts.id) == answers.method && same(a) && suits(a);
        list.iter()
            .position(chosen)
            .or_else(|| list.iter().position(suits))
    }

    fn enter(&self, wizard: &mut Wizard) -> Outcome {
        let list = wizard.advice();
        let Some(advice) = list.get(wizard.selected()) else {
            return Outcome::Stay;
        };
        if advice.facts.id == MethodId::NoTraining {
            let why = untrained(wizard, &list);
            return wizard.refuse(why);
        }
        let title = advice.title();
        if advice.verdict == Verdict::Unfit {
            let why = advice.why.last().map_or("", |(_, why)| why.as_str());
            return wizard.refuse(format!("{title} does not fit: {why}"));
        }
        if advice.quantize_first {
            let why = advice.why.last().map_or("", |(_, why)| why.as_str());
            return wizard.refuse(format!("{title} of this model: {why}"));
        }
        if advice.available {
            wizard.answers.method = Some(advice.facts.id);
            wizard.answers.adapter = Some(advice.adapter);
            wizard.answers.method_for = wizard.method_subject();
            // This was advice: sizes and settings are those of a model, which is asked for before them.
            if let Some(why) = wizard.no_model() {
                wizard.go_to(Step::Start);
                wizard.error = Some(why);
                return Outcome::Moved;
            }
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
        wizard.refuse(format!("{title} is not supported yet; {words}"))
    }
}

/// This build trains it on these answers.
fn suits(advice: &Advice) -> bool {
    advice.available && advice.verdict != Verdict::Unfit
}

/// Why training is not the best that can be done here, where it is not.
fn against(list: &[Advice]) -> Option<String> {
    let best = list.first()?;
    let (_, why) = best.why.first()?;
    (best.facts.id == MethodId::NoTraining)
        .then(|| format!("training is not the first thing to try: {why}"))
}

/// What to do in place of a run, and how to train all the same.
fn untrained(wizard: &Wizard, list: &[Advice]) -> String {
    let model = match wizard.start_model() {
        Some(_) => {
            let path = wizard.start_path(wizard.answers.start.unwrap_or(choose::Start::Base));
            shown(Path::new(path))
        }
        None => "MODEL".into(),
    };
    let first = match wizard.inputs().data {
        DataKind::Text => "retrieve passages of the text and put them into the prompt",
        _ => "put the best examples into the prompt",
    };
    let rest = match list.iter().find(|advice| suits(advice)) {
        Some(best) => format!("to train anyway, choose {}", best.title()),
        None => "no method of this build trains on this data".into(),
    };
    format!("without training there is no run to plan: {first} (llmtui chat {model}); {rest}")
}
