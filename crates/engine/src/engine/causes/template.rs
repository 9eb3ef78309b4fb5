//! Whether conversations are rendered with the template that the start model was trained with.

use super::{Cause, Subject};
use crate::base::child::Child;
use crate::base::finding::Finding;
use crate::base::text::one_line;
use crate::data::chat::{GenerationPrompt, Template};
use crate::data::{Message, tokenizer};
use crate::engine::EngineError;
use crate::models::ModelSource;

pub const CAUSE: Cause = Cause {
    id: "template",
    title: "template",
    run,
};

/// The word for the template that a tokenizer brings.
const OWN: &str = "auto";
/// Characters that are shown of each.
const SHOWN: usize = 120;

fn run(subject: &Subject<'_>) -> Result<Finding, EngineError> {
    let Some(place) = &subject.spec.train.from else {
        return Ok(Finding::not_applicable("no start model"));
    };
    let gone = |e: String| EngineError::Setup(format!("train.from: {e}"));
    let source = ModelSource::open(place).map_err(|e| gone(e.to_string()))?;
    if !source.has_chat_template() {
        return Ok(Finding::not_applicable(
            "the start model has no chat template",
        ));
    }
    let child = Child::of_this_program();
    let theirs =
        tokenizer::load(source.tokenizer_path(), &child).map_err(|e| gone(e.to_string()))?;
    let theirs = Template::choose(OWN, &theirs, &child)?;
    let said = &subject.spec.data.template;
    let ours = Template::choose(said, &subject.data.tokenizer, &child)?;
    let (Some(theirs), Some(ours)) = (theirs, ours) else {
        return Ok(Finding::not_applicable("one of the two has no template"));
    };
    Ok(judge(&rendered(&ours)?, &rendered(&theirs)?))
}

fn rendered(template: &Template) -> Result<String, EngineError> {
    let turns = [
        Message::new("user", "Are you there?"),
        Message::new("assistant", "I am."),
        Message::new("user", "Good."),
    ];
    Ok(template.render(&turns, None, GenerationPrompt::Without)?)
}

fn judge(ours: &str, theirs: &str) -> Finding {
    if ours == theirs {
        return Finding::pass("the run and its start model render conversations identically");
    }
    let shown = |text: &str| one_line(text).chars().take(SHOWN).collect::<String>();
    let evidence = format!(
        "the run renders {:?}, the start model {:?}",
        shown(ours),
        shown(theirs)
    );
    let cause = "the model was trained with other turn markers: it must learn them again, and other programs use its own template";
    Finding::warn(
        evidence,
        cause,
        "data.template: auto uses the start model's",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::finding::Status;

    #[test]
    fn another_template_is_shown_beside_the_model_s() {
        let (chatml, llama) = (
            rendered(&Template::builtin("chatml").unwrap()).unwrap(),
            rendered(&Template::builtin("llama3").unwrap()).unwrap(),
        );
        assert_eq!(judge(&chatml, &chatml).status, Status::Pass);
        let found = judge(&chatml, &llama);
        assert_eq!(found.status, Status::Warn);
        let evidence = found.evidence.to_string();
        assert!(
            evidence.contains("<|im_start|>") && evidence.contains("start_header"),
            "{evidence}"
        );
    }
}
