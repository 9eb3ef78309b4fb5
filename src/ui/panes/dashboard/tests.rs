//! The dashboard on the standard tape: pictures at real sizes, every size without a panic, keys and mouse, bytes.

use super::*;

use crate::ui::tape;

/// The rows of a frame, trailing blanks cut.
fn picture(
    dashboard: &mut Dashboard,
    state: &RunState,
    theme: &Theme,
    (w, h): (u16, u16),
) -> String {
    let mut buffer = Buffer::empty(Rect::new(0, 0, w, h));
    dashboard.render(
        &mut buffer,
        Rect::new(0, 0, w, h),
        state,
        theme,
        state.last_t,
    );
    let row = |y| (0..w).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..h)
        .map(|y| row(y).trim_end().to_string())
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn every_size_draws_without_a_panic() {
    let states = [
        RunState::new(),
        RunState::from_events(&tape::until(1, 0)),
        RunState::from_events(&tape::until(5, 1_240)),
        RunState::from_events(&tape::standard(5)),
    ];
    let theme = Theme::ansi();
    for (w, h) in (1..=210)
        .step_by(11)
        .flat_map(|w| (1..=65).step_by(3).map(move |h| (w, h)))
    {
        for state in &states {
            let mut dashboard = Dashboard::new();
            picture(&mut dashboard, state, &theme, (w, h));
            dashboard.full = true;
            dashboard.cursor = Some(700);
            picture(&mut dashboard, state, &theme, (w, h));
        }
    }
}
