//! What the model is for; or a config of another tool, which answers everything at once.

use crate::advisor::choose;
use crate::advisor::wizard::answers::Begin;
use crate::advisor::wizard::question::{About, Ask, Row, note};
use crate::advisor::wizard::{Look, Outcome, Step, Wizard};
use crate::base::text::one_line;
use crate::spec::import::Fate;

pub(in crate::advisor::wizard) struct Goal;

impl Ask for Goal {
    fn word(&self) -> &'static str {
        "goal"
    }

    fn title(&self) -> &'static str {
        "What should the model do?"
    }

    fn rows(&self, wizard: &Wizard) -> Vec<Row> {
        let goals = choose::Goal::ALL
            .iter()
            .map(|g| Row::choice(g.title(), g.about()));
        let config = Row::input(
            "import an existing config",
            &wizard.answers.config_path,
            "its path: LLaMA-Factory, Axolotl or TRL",
        );
        goals.chain([config]).collect()
    }

    fn about(&self, wizard: &Wizard, _: &[Row]) -> About {
        let Some(goal) = choose::Goal::ALL.get(wizard.selected()) else {
            return config_notes(wizard);
        };
        let words = match goal {
            choose::Goal::NewModel => {
                "Pretraining on plain text. On a CPU: a one-million-parameter model in a minute or two that imitates its text."
            }
            choose::Goal::Instructions => {
                "Supervised fine-tuning (SFT) on good answers, starting from a pretrained model."
            }
            choose::Goal::Knowledge => {
                "Continued pretraining for large amounts of text; for little or changing text, retrieval is more reliable."
            }
            choose::Goal::Style => {
                "Preferences: DPO on pairs, KTO on thumbs. From a model that already answers."
            }
            choose::Goal::Reasoning => {
                "Reinforcement learning with verifiable answers (GRPO, RLOO), after an SFT cold start."
            }
            choose::Goal::Classify => {
                "Fine-tuning on labelled examples; a few hundred good ones are enough."
            }
            choose::Goal::Compress => "Fine-tuning a small model on a large one's answers.",
        };
        (vec![note("This means", words)], Vec::new())
    }

    fn answer(&self, wizard: &Wizard) -> Option<String> {
        wizard.answers.goal.map(|g| g.title().to_string())
    }

    fn chosen(&self, wizard: &Wizard) -> Option<usize> {
        let goal = wizard.answers.goal;
        match wizard.answers.begin {
            Begin::Config => Some(choose::Goal::ALL.len()),
            Begin::Questions => choose::Goal::ALL.iter().position(|g| Some(*g) == goal),
        }
    }

    fn type_in(&self, wizard: &mut Wizard, text: &str) {
        wizard.answers.config_path = text.to_string();
    }

    fn enter(&self, wizard: &mut Wizard) -> Outcome {
        if let Some(goal) = choose::Goal::ALL.get(wizard.selected()) {
            if !wizard.begun {
                let answers = wizard.context.offered(wizard.earlier.of_goal(*goal));
                wizard.accepted = answers.clone();
                wizard.answers = answers;
            }
            wizard.answers.goal = Some(*goal);
            wizard.answers.begin = Begin::Questions;
            return wizard.advance();
        }
        let path = wizard.answers.config_path.trim().to_string();
        if path.is_empty() {
            return wizard.refuse("which file? Type the path of its YAML");
        }
        match &wizard.config {
            Some((known, Ok(_))) if *known == path => {
                wizard.answers.begin = Begin::Config;
                wizard.step = Step::Settings;
                wizard.place_cursor();
                Outcome::Moved
            }
            _ => Outcome::Look(Look::Config {
                path: path.into(),
                hub_cache: wizard.context.hub_cache.clone(),
            }),
        }
    }
}

/// What became of the keys of another tool's config, once it was read.
fn config_notes(wizard: &Wizard) -> About {
    let Some(Ok(facts)) = wizard.config_facts() else {
        let words = "Converts a LLaMA-Factory, Axolotl or TRL config to a spec as far as possible. You first see what became of each key; nothing is dropped silently.";
        return (vec![note("This means", words)], Vec::new());
    };
    let found = format!("{}: {}", facts.tool, facts.summary());
    let mut notes = vec![note("Found", found), note("Next", "enter imports it")];
    notes.extend(facts.absent_base().map(|why| note("Base model", why)));
    for fate in Fate::ALL {
        for line in facts.lines.iter().filter(|l| l.fate == fate) {
            let words: Vec<String> = [&line.theirs, &line.ours, &line.words]
                .into_iter()
                .filter(|w| !w.is_empty())
                .map(|w| one_line(w))
                .collect();
            notes.push(note(fate_label(fate), words.join(" · ")));
        }
    }
    (notes, Vec::new())
}

/// A short name for the column of labels.
fn fate_label(fate: Fate) -> &'static str {
    match fate {
        Fate::Mapped => "same",
        Fate::Differs => "differs",
        Fate::Default => "default",
        Fate::NoEqual => "no equal",
        Fate::Needless => "not needed",
        Fate::Unknown => "unknown",
    }
}
