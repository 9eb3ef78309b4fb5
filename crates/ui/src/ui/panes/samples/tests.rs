//! The pane as it is used: what stands side by side, what the keys change.

use super::super::bench::TestContext;
use super::*;
use crate::base::clock::UnixMillis;
use crate::metrics::id;
use crate::ui::store::OpenRun;
use crate::ui::tape;
use crate::wire::{Envelope, Event};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

/// A run of the standard tape, with further samples.
fn around(samples: &[(u64, &str, &str)]) -> TestContext {
    let mut around = TestContext::new();
    let mut held = OpenRun::opening(Slot(1), "tape".into(), Default::default());
    held.state = RunState::from_events(&tape::until(1, 1_240));
    held.state.samples.clear();
    for (step, prompt, text) in samples {
        let envelope = Envelope {
            v: 1,
            seq: held.state.last_seq + 1,
            t: UnixMillis(1),
            event: Event::Sampled {
                step: *step,
                prompt: prompt.to_string(),
                text: text.to_string(),
                thought: None,
                seconds: 0.1,
            },
        };
        held.state.apply(&envelope);
    }
    around.store.held = Some(held);
    around
}

fn screen(pane: &mut SamplesPane, around: &mut TestContext, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| pane.draw(frame, frame.area(), &mut around.context()))
        .unwrap();
    terminal.backend().to_string()
}

const ROMEO: &str = "ROMEO:\n";

fn four() -> TestContext {
    around(&[
        (100, ROMEO, "xq zt\nkw"),
        (200, ROMEO, "the the\nand"),
        (600, ROMEO, "My lord,\nI say"),
        (1_200, ROMEO, "My gracious lord,\nhow fares the king?"),
    ])
}

#[test]
fn texts_stand_side_by_side_with_their_line_breaks_and_their_steps_on_the_loss() {
    let (mut pane, mut around) = (SamplesPane::fresh(None), four());
    let text = screen(&mut pane, &mut around, 120, 34);
    for phrase in ["A step 100", "B step 200", "C step 1,200", "My gracious lord,", "4 samples"] {
        assert!(text.contains(phrase), "{phrase}:\n{text}");
    }
    assert!(!text.contains("step 600"), "{text}");
    let row = |words: &str| text.lines().position(|line| line.contains(words)).unwrap();
    assert_eq!(row("My gracious lord,") + 1, row("how fares the king?"));
    // Two at 80 columns: the first and the newest.
    let text = screen(&mut pane, &mut around, 80, 22);
    assert!(text.contains("A step 100") && text.contains("B step 1,200"), "{text}");
    assert!(!text.contains("C step"), "{text}");
}

#[test]
fn a_column_stays_at_its_step_while_earlier_samples_are_thinned() {
    let (mut pane, mut around) = (SamplesPane::fresh(None), four());
    screen(&mut pane, &mut around, 80, 22);
    pane.act(Action::SampleEarlier, &mut around.context());
    let text = screen(&mut pane, &mut around, 80, 22);
    assert!(text.contains("B step 600"), "{text}");
    around.store.held.as_mut().unwrap().state.samples.remove(1);
    let text = screen(&mut pane, &mut around, 80, 22);
    assert!(text.contains("A step 100") && text.contains("B step 600"), "{text}");
}

#[test]
fn keys_walk_through_the_history_and_show_one_text_alone() {
    let (mut pane, mut around) = (SamplesPane::fresh(None), four());
    screen(&mut pane, &mut around, 80, 22);
    pane.act(Action::SampleEarlier, &mut around.context());
    let text = screen(&mut pane, &mut around, 80, 22);
    assert!(text.contains("B step 600"), "{text}");
    pane.act(Action::FullText, &mut around.context());
    let text = screen(&mut pane, &mut around, 80, 22);
    assert!(text.contains("step 600") && !text.contains("step 100"), "{text}");
    pane.act(Action::Cancel, &mut around.context());
    let text = screen(&mut pane, &mut around, 80, 22);
    assert!(text.contains("A step 100") && text.contains("B step 1,200"), "{text}");
    pane.act(Action::NextText, &mut around.context());
    pane.act(Action::SampleLater, &mut around.context());
    let text = screen(&mut pane, &mut around, 80, 22);
    assert!(text.contains("A step 200"), "{text}");
}

#[test]
fn of_a_chat_template_the_question_stands_above() {
    let prompt = "<|im_start|>system\nYou are a helpful AI assistant.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n";
    let (mut pane, mut around) = (SamplesPane::fresh(None), around(&[(100, prompt, "So.")]));
    let text = screen(&mut pane, &mut around, 80, 24);
    let head = text.lines().next().unwrap();
    assert!(head.contains("the model answers Why?"), "{text}");
}

#[test]
fn each_prompt_has_its_own_page_and_long_texts_scroll() {
    let long: String = (0..60).map(|i| format!("line {i}\n")).collect();
    let mut around = around(&[
        (100, ROMEO, "xq"),
        (100, "Name a colour.", "Blue."),
        (200, ROMEO, &long),
    ]);
    let mut pane = SamplesPane::fresh(None);
    let text = screen(&mut pane, &mut around, 80, 22);
    assert!(text.contains("prompt 1 of 2") && text.contains("more"), "{text}");
    pane.act(Action::Bottom, &mut around.context());
    let text = screen(&mut pane, &mut around, 80, 22);
    assert!(text.contains("line 59"), "{text}");
    pane.act(Action::OtherPrompt, &mut around.context());
    let text = screen(&mut pane, &mut around, 80, 22);
    assert!(text.contains("Name a colour.") && text.contains("Blue."), "{text}");
}

#[test]
fn before_the_first_sample_it_says_when_one_comes() {
    let (mut pane, mut around) = (SamplesPane::fresh(None), around(&[]));
    let text = screen(&mut pane, &mut around, 80, 22);
    assert!(text.contains("The first sample is due at step"), "{text}");
}

#[test]
fn no_samples_are_promised_of_a_run_that_another_program_trains() {
    let mut around = around(&[]);
    let held = around.store.held.as_mut().unwrap();
    (held.state.pid, held.state.engine) = (0, "csv".into());
    let shown = screen(&mut SamplesPane::default(), &mut around, 100, 20);
    assert!(shown.contains("its log has no samples"), "{shown}");
}

/// A cold start leaves a loss that says nothing of the answers after it.
#[test]
fn samples_of_a_policy_stand_below_its_reward_also_after_a_cold_start() {
    let mut around = four();
    let held = around.store.held.as_mut().unwrap();
    for id in [id::TRAIN_LOSS, id::VAL_LOSS] {
        held.state.series.get_mut(id).unwrap().truncate_after(150);
    }
    let mut reward = crate::run::series::Series::new();
    for step in 151..=1_200 {
        reward.push(step, 0.62);
    }
    held.state.series.insert("reward".into(), reward);
    let text = screen(&mut SamplesPane::fresh(None), &mut around, 120, 34);
    assert!(text.contains(" reward ") && text.contains("reward 0.62"), "{text}");
    let sample = |letter| text.lines().find(|line| line.contains(letter)).unwrap();
    assert!(sample("A step 100").contains("loss "), "{text}");
}

/// Keys that do nothing are not offered, and the way back from a whole screen is.
#[test]
fn hints_name_the_keys_that_have_an_effect() {
    let words = |pane: &SamplesPane, around: &TestContext| -> Vec<&'static str> {
        let own = pane.hints(&around.store).own;
        own.iter().map(|(_, word)| *word).collect()
    };
    let trains = |around: &mut TestContext| {
        let held = around.store.held.as_mut().unwrap();
        held.link = crate::ui::store::LinkState::Live;
    };
    let (mut pane, mut around) = (SamplesPane::fresh(None), four());
    screen(&mut pane, &mut around, 120, 34);
    assert_eq!(words(&pane, &around)[..2], ["full", "ask it"]);
    trains(&mut around);
    assert_eq!(words(&pane, &around)[..2], ["full", "sample"]);
    assert!(words(&pane, &around).contains(&"next"));
    pane.act(Action::FullText, &mut around.context());
    assert_eq!(words(&pane, &around)[0], "back");
    let (mut pane, mut one) = (SamplesPane::fresh(None), self::around(&[(100, ROMEO, "xq zt")]));
    screen(&mut pane, &mut one, 120, 34);
    trains(&mut one);
    assert_eq!(words(&pane, &one), ["full", "sample", "save"]);
}

/// `a` on a run that is over told only that it is over, and the letters of the prompt were keys of the pane.
#[test]
fn a_run_that_is_over_is_asked_through_its_checkpoint() {
    let mut around = four();
    let held = around.store.held.as_mut().unwrap();
    held.state = RunState::from_events(&tape::until(1, 1_240));
    held.link = crate::ui::store::LinkState::Ended(None);
    held.path = Some("runs/x".into());
    assert!(!held.state.checkpoints.is_empty());
    let mut pane = SamplesPane::fresh(None);
    let asked = pane.act(Action::AskSample, &mut around.context());
    assert!(
        matches!(&asked[..], [Request::Show(pane), Request::SendAnswer(topic, Answer::Path(_))]
            if **pane == chat::ENTRY && *topic == chat::WITH_RUN),
        "{asked:?}"
    );
}
