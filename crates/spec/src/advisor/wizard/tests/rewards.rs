//! The question about the reward.

use super::*;
use crate::advisor::wizard::RewardAnswer;

/// A wizard at the question about the reward, with rows like this one.
fn asked(dir: &std::path::Path, row: &str) -> Wizard {
    let mut wizard = with_rows(dir, row);
    wizard.answers.goal = Some(Goal::Reasoning);
    until(&mut wizard, Step::Start);
    wizard.select(2);
    wizard.type_in(&model_folder(dir));
    until(&mut wizard, Step::Reward);
    wizard
}

fn row_of(answer: RewardAnswer) -> usize {
    let at = RewardAnswer::ALL.iter().position(|other| *other == answer);
    at.unwrap()
}

fn rewards(wizard: &Wizard) -> String {
    let (draft, wrong) = wizard.draft().unwrap();
    assert!(wrong.is_empty(), "{wrong:?}");
    let spec = draft.spec().unwrap();
    let kinds = spec.rewards.iter().map(|reward| reward.name.clone());
    kinds.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_reward_that_is_proposed_is_that_of_the_data() {
    for (row, answer, first) in [
        (
            r#"{"question": "What is 3 + 4?", "answer": "7"}"#,
            RewardAnswer::Number,
            "number",
        ),
        (
            r##"{"question": "How many?", "answer": "So it is #### 1,200"}"##,
            RewardAnswer::Number,
            "number",
        ),
        (
            r#"{"question": "Which capital?", "answer": "Paris"}"#,
            RewardAnswer::Exact,
            "exact",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut wizard = asked(dir.path(), row);
        assert_eq!(wizard.selected(), row_of(answer), "{row}");
        until(&mut wizard, Step::Settings);
        assert!(
            rewards(&wizard).starts_with(first),
            "{row}: {}",
            rewards(&wizard)
        );
        // The recipe's penalty stays behind it.
        assert!(rewards(&wizard).contains("length"), "{}", rewards(&wizard));
        assert_eq!(wizard.back(), Outcome::Moved);
        assert_eq!(wizard.step(), Step::Reward);
        // What the rows lack is refused with what it is.
        wizard.select(row_of(RewardAnswer::Python));
        wizard.enter();
        assert!(wizard.error().unwrap().contains("column `tests`"));
    }
}

#[test]
fn a_program_and_a_reward_model_are_asked_for_what_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let mut wizard = asked(
        dir.path(),
        r#"{"question": "Which capital?", "answer": "Paris"}"#,
    );
    wizard.select(row_of(RewardAnswer::Model));
    wizard.enter();
    assert!(wizard.error().unwrap().contains("which reward model?"));
    wizard.type_in(&dir.path().join("none").display().to_string());
    wizard.enter();
    assert!(
        wizard.error().unwrap().contains("none"),
        "{:?}",
        wizard.error()
    );
    wizard.select(row_of(RewardAnswer::Command));
    wizard.enter();
    assert!(wizard.error().unwrap().contains("which program?"));
    wizard.type_in("python3 score.py --x 'a, b'");
    until(&mut wizard, Step::Settings);
    assert!(
        rewards(&wizard).starts_with("command"),
        "{}",
        rewards(&wizard)
    );
    let yaml = wizard.yaml().unwrap();
    assert!(yaml.contains("score.py"), "{yaml}");
    // Another file has another reference: its reward is asked anew.
    let kept = Answers::from_json(&wizard.to_remember());
    assert_eq!(kept.reward, Some(RewardAnswer::Command));
    let other = Answers {
        data_path: "other.jsonl".into(),
        ..kept
    };
    let other = Wizard::new(context(), other);
    assert_ne!(other.reward_subject(), other.answers().reward_for);
}

#[test]
fn methods_without_completions_of_their_own_are_not_asked() {
    let mut wizard = wizard();
    until(&mut wizard, Step::Settings);
    assert!(wizard.steps().all(|step| step != Step::Reward));
    assert_eq!(wizard.number(Step::Plan), 7);
}

/// "No method here trains on them" was said of prompts that a program's rewards are enough for.
#[test]
fn prompts_without_answers_are_scored_by_a_program() {
    let dir = tempfile::tempdir().unwrap();
    let mut wizard = asked(dir.path(), r#"{"prompt": "Write a line with many e"}"#);
    assert_eq!(wizard.selected(), row_of(RewardAnswer::Command));
    wizard.enter();
    assert!(wizard.error().unwrap().contains("which program?"));
    wizard.type_in("python3 score.py");
    until(&mut wizard, Step::Settings);
    assert!(
        rewards(&wizard).starts_with("command"),
        "{}",
        rewards(&wizard)
    );
}
