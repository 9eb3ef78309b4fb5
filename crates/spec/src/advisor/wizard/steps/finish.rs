//! Start, save, or edit every value.

use crate::advisor::wizard::checks::Checks;
use crate::advisor::wizard::question::{Ask, Explanation, Row};
use crate::advisor::wizard::{Outcome, Wizard};

pub(in crate::advisor::wizard) struct Finish;

impl Ask for Finish {
    fn word(&self) -> &'static str {
        "go"
    }

    fn title(&self) -> &'static str {
        "Ready"
    }

    fn rows(&self, wizard: &Wizard) -> Vec<Row> {
        let blocked = wizard.not_runnable().map(|(_, why)| why);
        let absent = wizard.absent_base();
        let start = match blocked.as_deref().or(absent) {
            None => "preflight checks it first and shows the results".to_string(),
            Some(why) => why.to_string(),
        };
        let mut rows = vec![
            Row::choice("start training now", start),
            Row::input("save it as", &wizard.answers.save_as, &wizard.save_path()),
            Row::choice("edit every value", "the editor: search, undo, the YAML"),
        ];
        for row in &mut rows {
            row.open = blocked.is_none();
        }
        // Without its base model a spec can be saved, but not started.
        rows[0].open &= absent.is_none();
        rows
    }

    fn explain(&self, wizard: &Wizard, _: &[Row]) -> Explanation {
        let yaml = wizard.yaml().unwrap_or_default();
        (Vec::new(), yaml.lines().map(String::from).collect())
    }

    fn type_in(&self, wizard: &mut Wizard, text: &str) {
        wizard.answers.save_as = text.to_string();
    }

    fn enter(&self, wizard: &mut Wizard) -> Outcome {
        let (Some(yaml), Some((draft, _))) = (wizard.yaml(), wizard.draft()) else {
            return wizard.refuse("choose a model first");
        };
        if let Some((_, why)) = wizard.not_runnable() {
            return wizard.refuse(why);
        }
        let absent = wizard.absent_base().map(String::from);
        match wizard.selected() {
            0 if absent.is_some() => wizard.refuse(absent.unwrap_or_default()),
            0 => {
                wizard.checks = Checks::default();
                wizard.advance();
                Outcome::Check {
                    name: draft.run_name(),
                    yaml,
                }
            }
            1 => {
                let path = wizard.save_path();
                Outcome::Save {
                    path: path.into(),
                    yaml,
                }
            }
            _ => Outcome::Edit,
        }
    }
}
