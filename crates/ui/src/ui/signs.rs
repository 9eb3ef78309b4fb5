//! What no key does and no word on the screen explains: the mouse, and the signs below charts. Help and docs/keys.md have both.

use super::action::Context;
use super::glyphs::Glyphs;
use super::widgets::line_chart::mark_glyph;
use crate::run::state::MarkKind;

/// What the mouse does.
const MOUSE: [(&str, &str); 5] = [
    (
        "click",
        "On a tab, a row, an answer or a key of the last line: go there, select it, do it.",
    ),
    (
        "wheel",
        "Move in a list or scroll a text; on a chart, show fewer or more steps.",
    ),
    (
        "click, drag",
        "On a chart: select it and show values under a cursor.",
    ),
    ("right click", "On a chart: remove the cursor."),
    (
        "shift+drag",
        "Select text to copy it, a command for example: most terminals then leave the mouse to you (Terminal and iTerm2 on macOS: fn or option).",
    ),
];

/// What stands below a chart at the step at which it happened.
const MARKS: [(MarkKind, &str); 7] = [
    (MarkKind::Checkpoint, "A checkpoint was saved."),
    (MarkKind::Resumed, "The run was resumed."),
    (
        MarkKind::Note,
        "A note, yours or the engine's; its text is in the log.",
    ),
    (
        MarkKind::Adjusted,
        "A setting was changed while it trained.",
    ),
    (MarkKind::Skipped, "An update was skipped."),
    (MarkKind::Rescued, "A rescue, or its undoing."),
    (MarkKind::Warning, "A warning; its text is in the log."),
];

type GlyphOf = fn(&Glyphs) -> &'static str;

/// What stands in front of a number: in the line `health`, and behind an evaluation in the title of a chart.
const BESIDE: [(GlyphOf, &str); 5] = [
    (
        |glyphs| glyphs.above,
        "In the line `health`: above the band of most runs, which is no warning by itself.",
    ),
    (
        |glyphs| glyphs.below,
        "In the line `health`: below that band.",
    ),
    (
        |glyphs| glyphs.warn,
        "A warning: what is wrong stands on Health.",
    ),
    (
        |glyphs| glyphs.up,
        "In a chart's title: higher than at the evaluation before; the colour says whether that is better.",
    ),
    (
        |glyphs| glyphs.down,
        "In a chart's title: lower than at the evaluation before.",
    ),
];

/// A heading, and rows of a sign and what it means.
pub type Section = (&'static str, Vec<(&'static str, &'static str)>);

/// What belongs behind the keys of a context.
pub fn behind(context: Context, ascii: bool) -> Option<Section> {
    match context {
        Context::Global => Some(("Mouse", MOUSE.to_vec())),
        Context::Run => {
            let marks = MARKS.iter();
            let below = marks.map(|(kind, words)| (mark_glyph(*kind, ascii), *words));
            let glyphs = Glyphs::of(ascii);
            let beside = BESIDE.iter().map(|(mark, words)| (mark(glyphs), *words));
            Some((
                "Marks below charts and beside numbers",
                below.chain(beside).collect(),
            ))
        }
        _ => None,
    }
}
