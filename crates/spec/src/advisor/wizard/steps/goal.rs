//! The question about the model's purpose; or a config of another tool, which answers everything at once.

use crate::advisor::choose;
use crate::advisor::wizard::answers::Begin;
use crate::advisor::wizard::question::{Ask, Explanation, Row, note};
use crate::advisor::wizard::{InspectRequest, Outcome, Step, Wizard};
use crate::base::paths::unquoted;
use crate::base::text::one_line;
use crate::spec::import::{KeyOutcome, METHODS};

/// The row of the config, and the one of its method where its tool leaves it open.
const CONFIG: usize = choose::Goal::ALL.len();
const METHOD: usize = CONFIG + 1;

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
        let open = wizard.config_facts().and_then(|facts| facts.as_ref().ok());
        let open = open.filter(|facts| facts.takes_a_method());
        let method = open.map(|facts| {
            let placeholder = match facts.doubt {
                Some(_) => format!("{}, a guess; or {}", facts.method, METHODS.join(", ")),
                None => format!("{}; or {}", facts.method, METHODS.join(", ")),
            };
            let said = &wizard.answers.config_method;
            Row::input("its training method", said, &placeholder)
        });
        goals.chain([config]).chain(method).collect()
    }

    fn explain(&self, wizard: &Wizard, _: &[Row]) -> Explanation {
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
            choose::Goal::Compress => {
                "Fine-tuning a small model on a large one's answers, or distillation: its whole distributions, where it is at hand."
            }
        };
        (vec![note("This means", words)], Vec::new())
    }

    fn answer(&self, wizard: &Wizard) -> Option<String> {
        wizard.answers.goal.map(|g| g.title().to_string())
    }

    fn chosen(&self, wizard: &Wizard) -> Option<usize> {
        let goal = wizard.answers.goal;
        match wizard.answers.begin {
            Begin::Config => Some(CONFIG),
            Begin::Questions => choose::Goal::ALL.iter().position(|g| Some(*g) == goal),
        }
    }

    fn type_in(&self, wizard: &mut Wizard, text: &str) {
        if wizard.selected() == METHOD {
            wizard.answers.config_method = text.to_string();
            return;
        }
        // A method is said of one file.
        if wizard.answers.config_path.trim() != text.trim() {
            wizard.answers.config_method.clear();
        }
        wizard.answers.config_path = unquoted(text, wizard.home());
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
            return wizard.refuse("which file? Type the path of the YAML");
        }
        let method = wizard.answers.config_method.trim().to_lowercase();
        if !method.is_empty() && !METHODS.contains(&&*method) {
            let why = format!(
                "`{}` is not a TRL method: {}",
                one_line(&method),
                METHODS.join(", ")
            );
            return wizard.refuse(why);
        }
        let method = Some(method).filter(|method| !method.is_empty());
        match &wizard.config {
            Some((known, Ok(facts))) if *known == path && facts.said == method => {
                wizard.answers.begin = Begin::Config;
                wizard.step = Step::Settings;
                wizard.place_cursor();
                Outcome::Moved
            }
            _ => Outcome::Look(InspectRequest::Config {
                path: path.into(),
                method,
                hub_cache: wizard.context.hub_cache.clone(),
            }),
        }
    }
}

/// What became of the keys of another tool's config, once it was read.
fn config_notes(wizard: &Wizard) -> Explanation {
    let Some(Ok(facts)) = wizard.config_facts() else {
        let words = "Converts a LLaMA-Factory, Axolotl or TRL config to a spec as far as possible. You first see how each key was mapped; nothing is dropped silently.";
        return (vec![note("This means", words)], Vec::new());
    };
    let found = format!("{}: {}", facts.tool, facts.summary());
    let mut notes = vec![note("Found", found), note("Next", "enter imports it")];
    notes.extend(facts.doubt.as_deref().map(|_| {
        let words = format!(
            "{} is a guess: no key of the file names its TRL trainer; set it in the row below the path",
            facts.method
        );
        note("Method", words)
    }));
    notes.extend(facts.absent_base().map(|why| note("Base model", why)));
    for outcome in KeyOutcome::ALL {
        for line in facts.lines.iter().filter(|l| l.outcome == outcome) {
            let words: Vec<String> = [&line.theirs, &line.ours, &line.words]
                .into_iter()
                .filter(|w| !w.is_empty())
                .map(|w| one_line(w))
                .collect();
            notes.push(note(outcome_label(outcome), words.join(" · ")));
        }
    }
    (notes, Vec::new())
}

/// A short name for the column of labels.
fn outcome_label(outcome: KeyOutcome) -> &'static str {
    match outcome {
        KeyOutcome::Mapped => "same",
        KeyOutcome::Differs => "differs",
        KeyOutcome::Default => "default",
        KeyOutcome::NoEqual => "no equal",
        KeyOutcome::Needless => "not needed",
        KeyOutcome::Unknown => "unknown",
    }
}
