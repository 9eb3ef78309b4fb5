//! The question about the start model.

use crate::advisor::choose::{self, DataKind, MethodId, Verdict};
use crate::advisor::inspection::ModelFacts;
use crate::advisor::wizard::answers::DataAnswer;
use crate::advisor::wizard::question::{Ask, Explanation, Row, note};
use crate::advisor::wizard::{InspectRequest, Outcome, Wizard};
use crate::base::human;
use crate::base::paths::unquoted;

pub(in crate::advisor::wizard) struct Start;

impl Ask for Start {
    fn word(&self) -> &'static str {
        "start"
    }

    fn title(&self) -> &'static str {
        "What should it start from?"
    }

    fn rows(&self, wizard: &Wizard) -> Vec<Row> {
        let hint = "a run, a model folder or a .gguf file; empty: advice on the method only";
        let row = |title, start| {
            let path = wizard.start_path(start);
            let known = wizard.model.as_ref().filter(|(known, _)| known == path);
            let facts = known.and_then(|(_, facts)| facts.as_ref().ok());
            let mut row = Row::input(title, path, hint);
            row.detail = facts.map_or(String::new(), ModelFacts::summary);
            row
        };
        vec![
            Row::choice(
                "nothing: random weights",
                "trains from scratch; small models only",
            ),
            row("a base model", choose::Start::Base),
            row("an instruct model", choose::Start::Instruct),
        ]
    }

    fn explain(&self, wizard: &Wizard, _: &[Row]) -> Explanation {
        let mut notes = vec![note(
            "Runs here",
            "From scratch, from a run (its best checkpoint; RUN@STEP is another one), from a Hugging Face model folder or a .gguf file (docs/models.md lists the families), or from the hub by its id (org/name, org/name:Q4_K_M) after `llmtui model pull ID`.",
        )];
        if wizard.selected() > 0
            && let Some((known, Ok(facts))) = &wizard.model
            && known == wizard.answers.start_path.trim()
        {
            notes.insert(0, note("Found", facts.summary()));
        } else if wizard.selected() > 0
            && let Some(offer) = wizard.context.offer(wizard.answers.start_path.trim())
        {
            let words = format!(
                "{}: the best checkpoint of the newest run that is known to have learned and can read the data; any other run can be named",
                run_of(&offer.path)
            );
            notes.push(note("Offered", words));
        }
        (notes, Vec::new())
    }

    fn answer(&self, wizard: &Wizard) -> Option<String> {
        let size = wizard.start_model().and_then(|m| m.n_params);
        let size = size.map_or(String::new(), |n| format!(", {}", human::short(n as f64)));
        Some(match wizard.answers.start? {
            choose::Start::Scratch => "from nothing".into(),
            choose::Start::Base => format!("a base model{size}"),
            choose::Start::Instruct => format!("an instruct model{size}"),
        })
    }

    fn chosen(&self, wizard: &Wizard) -> Option<usize> {
        // A model from scratch has no base, whatever another goal had.
        if wizard.answers.goal == Some(choose::Goal::NewModel) {
            return Some(choose::Start::Scratch as usize);
        }
        let start = wizard.answers.start.or_else(|| usual(wizard));
        start.map(|start| start as usize)
    }

    fn type_in(&self, wizard: &mut Wizard, text: &str) {
        wizard.answers.start_path = unquoted(text, wizard.home());
    }

    fn enter(&self, wizard: &mut Wizard) -> Outcome {
        let starts = [
            choose::Start::Scratch,
            choose::Start::Base,
            choose::Start::Instruct,
        ];
        let Some(start) = starts.get(wizard.selected()).copied() else {
            return Outcome::Stay;
        };
        wizard.answers.start = Some(start);
        let path = wizard.start_path(start).to_string();
        if start == choose::Start::Scratch || path.is_empty() {
            return leave(wizard);
        }
        let sample = wizard
            .chosen_data()
            .map(|facts| facts.sample.clone())
            .unwrap_or_default();
        // What was found with other data says nothing of these.
        let read = |model: &ModelFacts| {
            let reading = model.reading.as_ref();
            reading.is_none_or(|reading| reading.sample == sample)
        };
        match &wizard.model {
            Some((known, Ok(model))) if *known == path && read(model) => leave(wizard),
            Some((known, Err(why))) if *known == path => {
                let why = format!("{why}; leave it empty for advice only");
                wizard.model = None;
                wizard.refuse(why)
            }
            _ => Outcome::Look(InspectRequest::Model {
                path: path.into(),
                sample,
            }),
        }
    }
}

/// What a goal starts from as a rule, where nobody chose: random weights follow no instructions. An offered checkpoint goes before
/// a model that has yet to be named.
fn usual(wizard: &Wizard) -> Option<choose::Start> {
    use choose::{Goal, Start};
    let usual = match wizard.answers.goal? {
        Goal::NewModel => Start::Scratch,
        Goal::Knowledge | Goal::Classify => Start::Base,
        Goal::Instructions | Goal::Style | Goal::Reasoning | Goal::Compress => Start::Instruct,
    };
    let named = |start| !wizard.start_path(start).is_empty();
    match usual == Start::Instruct && !named(usual) && named(Start::Base) {
        true => Some(Start::Base),
        false => Some(usual),
    }
}

/// `my-run, step-000300` of the path of a run's checkpoint: the path is longer than its row.
fn run_of(checkpoint: &str) -> String {
    let path = std::path::Path::new(checkpoint);
    let name =
        |path: Option<&std::path::Path>| Some(path?.file_name()?.to_string_lossy().into_owned());
    match (name(path.ancestors().nth(2)), name(Some(path))) {
        (Some(run), Some(step)) => format!("{run}, {step}"),
        _ => checkpoint.to_string(),
    }
}

/// What the next question could only refuse is refused here: real data that nothing learns from with this start.
fn leave(wizard: &mut Wizard) -> Outcome {
    match unfit_model(wizard).or_else(|| no_method(wizard)) {
        Some(why) => wizard.refuse(why),
        None => wizard.advance(),
    }
}

/// Why the model itself is no start.
fn unfit_model(wizard: &Wizard) -> Option<String> {
    let model = wizard.start_model()?;
    if !model.unfit.is_empty() {
        let why = &model.unfit;
        return Some(format!("this build cannot train this model: {why}"));
    }
    let unreadable = model.reading.as_ref().map(|reading| &reading.unreadable);
    let unreadable = unreadable.filter(|why| !why.is_empty())?;
    Some(format!("this model cannot read the data: {unreadable}"))
}

/// Why no method trains this start on these data.
fn no_method(wizard: &Wizard) -> Option<String> {
    let list = wizard.advice();
    // Pretraining is advised before preferences, on other data than these.
    let reads = |id| match wizard.chosen_data().map(|facts| facts.kind) {
        Some(DataKind::Text | DataKind::Demos) | None => true,
        Some(_) => id != MethodId::Pretrain,
    };
    let open = |a: &choose::Advice| {
        a.available
            && a.verdict != Verdict::Unfit
            && a.facts.trained_copies() > 0.0
            && reads(a.facts.id)
    };
    // What suits the data, and was refused for its memory alone.
    let large = |a: &&choose::Advice| {
        let refused = a.available && a.fit == choose::Fit::TooLarge;
        (refused || a.quantize_first) && a.why.len() > 1 && reads(a.facts.id)
    };
    if wizard.start_model().is_some()
        && !list.iter().any(open)
        && let Some(large) = list.iter().find(large)
    {
        let why = large.why.last().map_or("", |(_, why)| why.as_str());
        return Some(format!("{} of this model: {why}", large.title()));
    }
    if let Some(facts) = wizard.chosen_data()
        && wizard.answers.data == Some(DataAnswer::Path)
        && !list.iter().any(open)
    {
        let kind = match facts.checkable {
            true => "prompts with reference answers",
            false => facts.kind.title(),
        };
        let prompts = facts.kind == choose::DataKind::Prompts;
        let why = match wizard.answers.start {
            Some(choose::Start::Scratch) => {
                "random weights cannot learn from them: name a model".into()
            }
            _ if prompts && wizard.answers.goal != Some(choose::Goal::Reasoning) => format!(
                "only methods with rewards train on them: choose the goal \"{}\", or name the column of answers `completion` for SFT",
                choose::Goal::Reasoning.title()
            ),
            _ => "no method here trains on them: go back to data".into(),
        };
        return Some(format!("the data is {kind}, and {why}"));
    }
    None
}
