//! The question about the preset: the size from scratch, or the recipe for the start model.

use crate::advisor::wizard::question::{Ask, Explanation, Row, note};
use crate::advisor::wizard::{Outcome, Wizard, estimate, sizing};
use crate::base::human;

pub(in crate::advisor::wizard) struct Model;

impl Ask for Model {
    fn word(&self) -> &'static str {
        "model"
    }

    fn title(&self) -> &'static str {
        "Which size and recipe?"
    }

    fn rows(&self, wizard: &Wizard) -> Vec<Row> {
        let data = wizard.chosen_data();
        wizard
            .fitting_presets()
            .into_iter()
            .map(|preset| {
                let draft = wizard.recipe(preset);
                let size = match wizard.start_model() {
                    Some(_) => "the start model, by this recipe".into(),
                    None => estimate::n_params(&draft, data).map_or(String::new(), |n| {
                        format!("{} parameters", human::short(n as f64))
                    }),
                };
                let length = match draft.value("train.epochs").as_f64() {
                    Some(1.0) => "1 epoch".into(),
                    Some(epochs) => format!("{epochs} epochs"),
                    None => {
                        let steps = draft.value("train.max_steps").as_u64().unwrap_or(0);
                        format!("{} steps", human::grouped(steps))
                    }
                };
                let row = format!("{size} · {length}");
                Row::choice(&preset.name, row)
            })
            .collect()
    }

    fn explain(&self, wizard: &Wizard, _: &[Row]) -> Explanation {
        let presets = wizard.fitting_presets();
        let Some(preset) = presets.get(wizard.selected()) else {
            return Explanation::default();
        };
        let mut notes = vec![note("About", wizard.about_recipe(&preset.about))];
        let data = wizard.chosen_data();
        let draft = wizard.recipe(preset);
        if let Ok(spec) = draft.spec() {
            let lines = estimate::lines(&spec, data, &wizard.context.machine);
            let wanted = ["Model", "Steps", "Data", "Memory", "Time"];
            let chosen = lines
                .into_iter()
                .filter(|(label, _)| wanted.contains(label));
            notes.extend(chosen.map(|(label, text)| note(label, text)));
        }
        let n = estimate::n_params(&draft, data).unwrap_or(1).max(1);
        let tokens = data.and_then(|facts| {
            let word = sizing::tokenizer_word(&preset.draft, facts);
            let tokens = estimate::tokens(facts, word)?;
            Some(estimate::training_tokens(tokens, &draft.spec().ok()?))
        });
        if let Some(tokens) = tokens
            && wizard.start_model().is_none()
        {
            let each = tokens as f64 / n as f64;
            notes.push(note(
                "Your data",
                format!("about {each:.2} tokens per parameter in one pass; 20 are compute-optimal (Hoffmann et al. 2022), and below 1 the model soon memorizes the text"),
            ));
        }
        (notes, Vec::new())
    }

    fn answer(&self, wizard: &Wizard) -> Option<String> {
        wizard.answers.preset.clone()
    }

    fn chosen(&self, wizard: &Wizard) -> Option<usize> {
        let name = wizard.answers.preset.as_deref();
        let presets = wizard.fitting_presets();
        presets.iter().position(|p| Some(p.name.as_str()) == name)
    }

    fn enter(&self, wizard: &mut Wizard) -> Outcome {
        let name = wizard
            .fitting_presets()
            .get(wizard.selected())
            .map(|p| p.name.clone());
        match name {
            Some(name) => {
                wizard.answers.preset = Some(name);
                wizard.advance()
            }
            None => wizard.refuse("no preset supports this yet"),
        }
    }
}
