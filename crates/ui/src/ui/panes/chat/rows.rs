//! The rows of one column: turns, answers, figures. Made from the newest back, as far as they are seen.

use super::column::{Column, Conversation, Engine};
use super::heat::{Heat, means};
use super::reply::{Answer, Done, Reply, Thoughts};
use super::said::Said;
use crate::base::human;
use crate::base::text::{one_line, sanitize};
use crate::data::chat::ASK_WITHOUT_TOOLS;
use crate::data::chat::tool_calls::{Call, Part};
use crate::ui::keymap::Keymap;
use crate::ui::layout::{wrap, wrap_ranges};
use crate::ui::theme::{Meaning, Theme};
use crate::wire::StopReason;
use ratatui::text::{Line, Span};
use std::ops::Range;

/// Columns before the arguments of a call, and before the further rows of a long one.
const CALL_INDENT: usize = 4;
const FURTHER: usize = 2;

/// What rows are made with.
#[derive(Clone, Copy)]
pub struct Look<'a> {
    pub theme: &'a Theme,
    pub keymap: &'a Keymap,
    pub width: u16,
    pub heat: Heat,
    /// Show what the model read instead of what was said.
    pub shows_prompt: bool,
    /// Show the thoughts of answers that say something.
    pub shows_thoughts: bool,
}

/// The last `wanted` rows, or all of them when there are fewer.
pub fn rows(
    column: &Column,
    conversation: &Conversation,
    look: Look,
    wanted: usize,
) -> Vec<Line<'static>> {
    let mut rows: Vec<Line> = Vec::new();
    for turn in (0..conversation.said.len()).rev() {
        let said = &conversation.said[turn];
        let mut block = match column.replies.get(turn) {
            Some(reply) => answered(column, conversation, turn, reply, look),
            None => unanswered(column, said, look),
        };
        block.append(&mut rows);
        rows = block;
        if rows.len() >= wanted {
            break;
        }
    }
    rows
}

/// A turn that this model has not come to.
fn unanswered(column: &Column, said: &Said, look: Look) -> Vec<Line<'static>> {
    let mut rows = turn_rows(&said.text(), look);
    let words = match &column.engine {
        Engine::Opening(..) => "waits for the model",
        Engine::Ready(_) => "not asked",
        Engine::Failed(_) => "no answer: the model cannot be used",
    };
    rows.extend(note(words, Meaning::Muted, look));
    rows.push(Line::default());
    rows
}

fn answered(
    column: &Column,
    conversation: &Conversation,
    turn: usize,
    reply: &Reply,
    look: Look,
) -> Vec<Line<'static>> {
    let tools = &conversation.tools.definitions;
    let said = conversation.said[turn].text();
    let mut rows = Vec::new();
    let mut text = Styled::default();
    match (&reply.prompt, column.converses()) {
        (Some((prompt, tokens)), _) if look.shows_prompt => {
            let title = format!("rendered prompt: {}", human::counted(*tokens, "token"));
            rows.extend(note(&title, Meaning::Muted, look));
            text.push(prompt, Meaning::Accent);
            rows.extend(text.rows(look));
            text = Styled::default();
        }
        (_, true) => rows.extend(said_rows(reply, &said, look)),
        // One text: what was said, and what follows.
        (_, false) => text.push(&said, Meaning::Accent),
    }
    // Colours are those of tokens, of which a call has many.
    let by_parts = matches!(look.heat, Heat::Off) && column.converses();
    let thoughts = reply.thoughts(tools).filter(|_| column.converses());
    let folded = thoughts.and_then(|it| it.end).filter(|_| !look.shows_thoughts);
    if let Some(thoughts) = thoughts.filter(|it| it.end.is_some()) {
        rows.extend(fold(thoughts, look));
    }
    let begin = folded.unwrap_or(0);
    let mut from = begin;
    let shown = reply.marks.iter().filter(|mark| !by_parts && mark.end > begin);
    for mark in shown {
        text.push(&reply.text[from..mark.end], look.heat.meaning(mark));
        from = mark.end;
    }
    // None as long as all that is written may be a call.
    let parts = by_parts.then(|| reply.parts(tools));
    for part in parts.into_iter().flatten() {
        match part {
            // More of it may come behind a message.
            Part::Thought(_) if folded.is_some() => {}
            Part::Thought(part) => {
                let is_titled = thoughts.is_some_and(|it| it.end.is_some());
                if !text.ends_as(Meaning::Muted) {
                    if !text.text.trim().is_empty() {
                        rows.extend(text.rows(look));
                    }
                    text = Styled::default();
                    if !is_titled {
                        rows.extend(note("thinking", Meaning::Muted, look));
                    }
                }
                text.push(&part, Meaning::Muted);
            }
            Part::Text(part) => {
                // A thought has rows of its own.
                if text.ends_as(Meaning::Muted) {
                    rows.extend(text.rows(look));
                    rows.push(Line::default());
                    text = Styled::default();
                }
                text.push(&part, Meaning::Text);
            }
            Part::Call(call) => {
                if !text.text.trim().is_empty() {
                    rows.extend(text.rows(look));
                }
                text = Styled::default();
                rows.extend(call_rows(&call, look));
            }
        }
    }
    if reply.streaming() {
        text.push(look.theme.glyphs().caret, Meaning::Text);
    }
    if !text.text.is_empty() {
        rows.extend(text.rows(look));
    }
    rows.extend(foot(column, reply, look));
    rows.push(Line::default());
    rows
}

/// `thought for 3.2 s · 214 tokens; ctrl-f shows it`
fn fold(thoughts: Thoughts, look: Look) -> Vec<Line<'static>> {
    let glyphs = look.theme.glyphs();
    let key = match look.shows_thoughts {
        true => "{thoughts} folds it",
        false => "{thoughts} shows it",
    };
    let seconds = thoughts.millis as f64 / 1000.0;
    let time = match seconds < 60.0 {
        true => format!("{seconds:.1} s"),
        false => human::seconds(seconds),
    };
    let words = format!(
        "thought for {time} {} {}; {}",
        glyphs.separator,
        human::counted(thoughts.tokens, "token"),
        look.keymap.fill(key)
    );
    note(&words, Meaning::Muted, look)
}

/// What the person said; of results also whose they are.
fn said_rows(reply: &Reply, said: &str, look: Look) -> Vec<Line<'static>> {
    let mut rows = Vec::new();
    for turn in &reply.sent {
        if let Some(name) = turn.extra.get("name").and_then(|name| name.as_str()) {
            let words = format!("result of {}: {}", one_line(name), turn.content);
            rows.extend(turn_rows(&words, look));
        }
    }
    match rows.is_empty() {
        true => turn_rows(said, look),
        false => rows,
    }
}

/// `call add`, and the arguments below it.
fn call_rows(call: &Call, look: Look) -> Vec<Line<'static>> {
    let name = format!(" call {}", one_line(&call.name));
    let mut rows = vec![Line::styled(name, look.theme.style(Meaning::Title))];
    for line in call.lines() {
        let text = sanitize(&line.text).replace('\t', " ");
        let indent = CALL_INDENT + line.indent;
        let width = look.width.saturating_sub(2 + indent as u16 + FURTHER as u16);
        for (at, row) in wrap(&text, width).into_iter().enumerate() {
            let further = if at > 0 { FURTHER } else { 0 };
            let indent = " ".repeat(1 + indent + further);
            let style = look.theme.style(Meaning::Text);
            rows.push(Line::styled(format!("{indent}{row}"), style));
        }
    }
    rows
}

/// What the person said, behind a pointer.
fn turn_rows(said: &str, look: Look) -> Vec<Line<'static>> {
    let style = look.theme.style(Meaning::Accent);
    let text = sanitize(said).replace('\t', " ");
    let rows = wrap(&text, look.width.saturating_sub(4));
    let pointer = look.theme.glyphs().pointer;
    rows.into_iter()
        .enumerate()
        .map(|(i, row)| {
            let mark = if i == 0 { pointer } else { " " };
            Line::styled(format!(" {mark} {row}"), style)
        })
        .collect()
}

/// Text of several meanings, one behind the other.
#[derive(Default)]
struct Styled {
    text: String,
    /// Where each part ends.
    parts: Vec<(usize, Meaning)>,
}

impl Styled {
    fn push(&mut self, text: &str, meaning: Meaning) {
        self.text.push_str(&sanitize(text).replace('\t', " "));
        match self.parts.last_mut() {
            Some((end, last)) if *last == meaning => *end = self.text.len(),
            _ => self.parts.push((self.text.len(), meaning)),
        }
    }

    fn ends_as(&self, meaning: Meaning) -> bool {
        self.parts.last().is_some_and(|(_, last)| *last == meaning)
    }

    fn rows(&self, look: Look) -> Vec<Line<'static>> {
        let ranges = wrap_ranges(&self.text, look.width.saturating_sub(2));
        ranges
            .into_iter()
            .map(|range| self.row(range, look.theme))
            .collect()
    }

    fn row(&self, range: Range<usize>, theme: &Theme) -> Line<'static> {
        let mut spans = vec![Span::raw(" ")];
        let mut from = 0;
        for (end, meaning) in &self.parts {
            let (start, stop) = (from.max(range.start), (*end).min(range.end));
            if start < stop {
                spans.push(Span::styled(
                    self.text[start..stop].to_string(),
                    theme.style(*meaning),
                ));
            }
            from = *end;
        }
        Line::from(spans)
    }
}

/// `200 tokens · 812 tok/s · prompt 37 at 2.1k tok/s · at a stop`
fn foot(column: &Column, reply: &Reply, look: Look) -> Vec<Line<'static>> {
    let glyphs = look.theme.glyphs();
    let dot = glyphs.separator;
    let mut words = match &reply.answer {
        Answer::Failed(why) => {
            let clears = why.ends_with(ASK_WITHOUT_TOOLS);
            let mut why = format!("{} {}", glyphs.bad, one_line(why));
            if clears {
                why.push_str(&look.keymap.fill(": {settings}, and empty the field tools"));
            }
            if reply.left_out() && column.converses() {
                why.push_str("; later turns are sent without this one");
            }
            return note(&why, Meaning::Bad, look);
        }
        Answer::Streaming if reply.n_tokens() == 0 => match &reply.prompt {
            Some((_, tokens)) => vec![reading(reply.read, *tokens)],
            None => vec!["asked".into()],
        },
        // It was stopped before the prompt was read to its end.
        Answer::Done(done) if done.n_tokens == 0 && done.reason == StopReason::Cancelled => {
            let words = [human::prompt_read(reply.read, done.prompt_tokens), end_of(done, look.keymap)];
            return note(&words.join(&format!(" {dot} ")), Meaning::Muted, look);
        }
        Answer::Streaming => vec![human::counted(reply.n_tokens(), "token")],
        Answer::Done(done) => vec![human::counted(done.n_tokens, "token")],
    };
    let rate = |rate: f64| format!("{} tok/s", human::short(rate));
    words.extend(reply.reading_rate().or_else(|| reply.decode_rate()).map(rate));
    if let Answer::Done(done) = &reply.answer {
        let context = column.about.as_ref().map_or(u64::MAX, |about| about.context);
        let at = reply.prefill_rate(context).map(|r| format!(" at {}", rate(r)));
        let prompt = human::prompt_read(done.read_tokens(context), done.prompt_tokens);
        words.push(format!("{prompt}{}", at.unwrap_or_default()));
        words.push(end_of(done, look.keymap));
    }
    if look.heat != Heat::Off {
        words.extend(means(&reply.marks, dot));
    }
    note(&words.join(&format!(" {dot} ")), Meaning::Muted, look)
}

/// `reading the prompt: 4,884 tokens`, `reading the prompt: 536 of 4,884 tokens`
fn reading(read: u64, of: u64) -> String {
    let so_far = match read {
        0 => String::new(),
        read => format!("{} of ", human::grouped(read)),
    };
    format!("reading the prompt: {so_far}{}", human::counted(of, "token"))
}

fn end_of(done: &Done, keymap: &Keymap) -> String {
    let words = match done.reason {
        StopReason::Length => "length limit; {send} continues",
        StopReason::Stop => "end of turn",
        StopReason::Context => return format!("{}; set context to roll in the settings", one_line(&done.message)),
        StopReason::Cancelled => "stopped; {send} continues",
        StopReason::Failed => "failed",
    };
    let words = keymap.fill(words);
    match done.message.is_empty() {
        true => words,
        false => format!("{}; {words}", one_line(&done.message)),
    }
}

fn note(words: &str, meaning: Meaning, look: Look) -> Vec<Line<'static>> {
    wrap(words, look.width.saturating_sub(2))
        .into_iter()
        .map(|row| Line::styled(format!(" {row}"), look.theme.style(meaning)))
        .collect()
}
