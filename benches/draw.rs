//! What a viewer pays for a frame of the dashboard, at the smallest and the largest usual size.

use criterion::{Criterion, criterion_group, criterion_main};
use llmtui::base::clock::UnixMillis;
use llmtui::run::RunState;
use llmtui::ui::panes::dashboard::Dashboard;
use llmtui::ui::theme::Theme;
use llmtui::{base, run, wire};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

#[path = "../tests/support/tape.rs"]
#[allow(dead_code)]
mod tape;

fn draw(c: &mut Criterion) {
    assert_eq!(wire::VERSION, 1);
    let state = RunState::from_events(&tape::until(1, 1_240));
    let theme = Theme::ansi();
    for (w, h) in [(80, 24), (200, 50)] {
        let area = Rect::new(0, 0, w, h);
        let mut buffer = Buffer::empty(area);
        let mut dashboard = Dashboard::new();
        let mut now: base::clock::UnixMillis = UnixMillis(0);
        c.bench_function(&format!("draw/dashboard {w}x{h}"), |b| {
            b.iter(|| {
                now.0 += 100;
                buffer.reset();
                dashboard.render(&mut buffer, area, &state, &theme, now);
            })
        });
    }
}

criterion_group!(benches, draw);
criterion_main!(benches);
