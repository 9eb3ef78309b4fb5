//! The few values that matter for these answers; all others are the preset's.

use crate::advisor::wizard::answers::Begin;
use crate::advisor::wizard::question::{Ask, Explanation, Row, note};
use crate::advisor::wizard::{Outcome, Step, Wizard};
use crate::spec::{Issue, shown};

pub(in crate::advisor::wizard) struct Settings;

impl Ask for Settings {
    fn word(&self) -> &'static str {
        "settings"
    }

    fn title(&self) -> &'static str {
        "Settings that matter here"
    }

    fn rows(&self, wizard: &Wizard) -> Vec<Row> {
        let Some(made) = wizard.made() else {
            return Vec::new();
        };
        let (draft, wrong, issues) = (&made.draft, &made.wrong, &made.issues);
        wizard
            .knobs()
            .into_iter()
            .map(|knob| {
                let full = draft.resolve_wildcard(knob.path).unwrap_or_default();
                let typed = wizard.answers.settings.get(knob.path);
                let text = typed.cloned().unwrap_or_else(|| shown(&draft.value(&full)));
                let own_fault = wrong
                    .iter()
                    .find(|(path, _)| path == knob.path)
                    .map(|(_, i)| i);
                let fault = own_fault.or_else(|| issues.iter().find(|i| i.path == full));
                let changed = draft.value(&full) != draft.parent_value(&full);
                let word = knob.word();
                let mut row = Row::input(word, &text, "the preset's");
                if let Some(input) = &mut row.input {
                    input.own = typed.is_some();
                }
                row.detail = match (typed.is_some(), changed) {
                    (true, _) => "yours".into(),
                    (false, true) if wizard.answers.begin == Begin::Config => {
                        "from the config".into()
                    }
                    (false, true) => "from your data".into(),
                    _ => String::new(),
                };
                row.fault = fault.map(issue_words);
                row
            })
            .collect()
    }

    fn explain(&self, wizard: &Wizard, rows: &[Row]) -> Explanation {
        let knobs = wizard.knobs();
        let (Some(knob), Some(made)) = (knobs.get(wizard.selected()), wizard.made()) else {
            return Explanation::default();
        };
        let draft = &made.draft;
        let full = draft.resolve_wildcard(knob.path).unwrap_or_default();
        let node = crate::spec::schema::root().at(&full);
        let mut notes = Vec::new();
        if let Some(fault) = rows.get(wizard.selected()).and_then(|r| r.fault.clone()) {
            notes.push(note("Wrong", fault));
        }
        if let Some(node) = node {
            notes.push(note("Means", node.doc.clone()));
            notes.push(note("Takes", node.expected()));
        }
        notes.extend(wizard.absent_base().map(|why| note("Base model", why)));
        notes.push(note("Typical", knob.typical));
        notes.push(note("Effect", knob.why));
        let parent = shown(&draft.parent_value(&full));
        notes.push(note(
            "Default",
            match draft.target() {
                "" => format!("{parent} (the program's)"),
                preset => format!("{parent} (preset {preset})"),
            },
        ));
        let changes = draft.changes();
        if let Some(change) = changes.iter().find(|c| c.path == full && !c.why.is_empty()) {
            notes.push(note("Here", change.why.clone()));
        }
        (notes, Vec::new())
    }

    fn answer(&self, wizard: &Wizard) -> Option<String> {
        Some(match wizard.answers.settings.len() {
            0 => "as recommended".into(),
            1 => "1 of your own".into(),
            n => format!("{n} of your own"),
        })
    }

    fn type_in(&self, wizard: &mut Wizard, text: &str) {
        let knob = wizard.knobs().get(wizard.selected()).copied();
        if let Some(knob) = knob {
            wizard.set(knob.path, text);
        }
    }

    fn enter(&self, wizard: &mut Wizard) -> Outcome {
        let Some(made) = wizard.made() else {
            return wizard.refuse("choose a model first");
        };
        let draft = &made.draft;
        let typed = made.wrong.iter().map(|(path, issue)| (path, issue));
        let mut faults = typed.chain(made.issues.iter().map(|issue| (&issue.path, issue)));
        let first = faults.next();
        let Some((path, words)) = first.map(|(path, i)| (path.clone(), issue_words(i))) else {
            return wizard.advance();
        };
        let knobs = wizard.knobs();
        let row = knobs.iter().position(|k| {
            k.path == path || draft.resolve_wildcard(k.path).as_deref() == Some(path.as_str())
        });
        if let Some(row) = row {
            wizard.cursor[Step::Settings as usize] = row;
        }
        wizard.refuse(format!("{path}: {words}"))
    }
}

fn issue_words(issue: &Issue) -> String {
    match issue.hint.as_str() {
        "" => issue.what.clone(),
        hint => format!("{}; {hint}", issue.what),
    }
}
