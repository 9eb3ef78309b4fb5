//! The range of a branch, and titles that are too long for their chart.

use super::*;

/// A branch from step 500 of 560 filled a tenth of the width.
#[test]
fn the_charts_of_a_branch_begin_at_its_checkpoint() {
    let events = |max: u64| {
        let mut events = tape::until(5, 40);
        for envelope in &mut events {
            match &mut envelope.event {
                Event::Started {
                    max_steps,
                    resumed_from,
                    ..
                } => {
                    (*max_steps, *resumed_from) = (max, Some(500));
                }
                Event::Stepped { step, tokens, .. } | Event::Evaluated { step, tokens, .. } => {
                    *step += 500;
                    *tokens += 7_000;
                }
                _ => {}
            }
        }
        events
    };
    let state = RunState::from_events(&events(560));
    assert_eq!((state.base_step, state.step), (500, 540));
    // The run before had smaller batches: its tokens are not those of 500 steps of this one.
    assert_eq!(state.base_tokens, 7_000);
    assert_eq!(whole_range(&state), (500.0, 560.0));
    assert_eq!(RunState::from_events(&tape::until(5, 40)).base_tokens, 0);
    assert_eq!(
        whole_range(&RunState::from_events(&events(9_000))),
        (500.0, 550.0)
    );
    let (dashboard, _) = after(
        &[
            Action::ZoomIn,
            Action::PanLeft,
            Action::PanLeft,
            Action::PanLeft,
        ],
        &state,
        SMALL,
    );
    assert_eq!(dashboard.range(&state), (500.0, 530.0));
    // A resume is no branch.
    let mut resumed = tape::until(5, 1);
    resumed.retain(|envelope| matches!(envelope.event, Event::Started { .. }));
    for envelope in &mut resumed {
        if let Event::Started { resumed_from, .. } = &mut envelope.event {
            *resumed_from = Some(1_000);
        }
    }
    let resumed = live_and(resumed.into_iter().map(|envelope| envelope.event).collect());
    assert_eq!((resumed.base_step, whole_range(&resumed).0), (0, 0.0));
}

/// Of `Log-probability of chosen train -24.60…` the number was cut off.
#[test]
fn a_title_loses_its_name_before_its_readings() {
    use crate::ui::theme::Meaning as M;
    use crate::ui::widgets::text::{self, word};
    let title = |width: usize| {
        let mut words = vec![
            word(" ", M::Title),
            word("Log-probability of chosen ", M::Title),
            word("train ", M::Muted),
            word("-24.60 ", M::Train),
        ];
        frame::shorten(&mut words, width, &Theme::ansi());
        assert!(text::width(&words) + 2 <= width.max(23), "{words:?}");
        words
            .iter()
            .map(|word| word.text.as_str())
            .collect::<String>()
    };
    assert_eq!(title(50), " Log-probability of chosen train -24.60 ");
    assert_eq!(title(40), " Log-probability of cho… train -24.60 ");
    assert_eq!(title(10), " Log-p… train -24.60 ");
}
