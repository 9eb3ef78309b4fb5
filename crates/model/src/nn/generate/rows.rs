//! Texts that are written side by side and come and go: each takes a row, and all that are being written share the passes over
//! the weights. Prompts are prefilled in chunks, one between two steps of the others.
//!
//! A text has the same bits alone and beside others: single tokens of any number of texts go through one pass, whose kernels
//! compute each row by itself, and a chunk of a prompt goes through a pass of its own. (The portable matmul of other machines does
//! not promise this: [`Rows::are_independent`].)

use super::prompt::{self, PromptToken};
use super::{Continuing, Finish, Generated, Prompt, Step, Text, WhenFull, draw, room_of};
use crate::base::sampling::Sampling;
use crate::kernels::{matmul, quant};
use crate::nn::Model;
use crate::nn::composite::Past;
use crate::nn::decoding::{Caches, Decoding};
use crate::nn::kv_cache::{CHUNK, KvCache, PrefixCache};
use crate::nn::sampler::{Alternative, Constraint};
use candle_core::{Result, bail};
use std::ops::ControlFlow;

/// Texts that are written side by side, at most: those of more rows have other bits with sixteen-bit weights.
pub const MAX_ROWS: usize = quant::FEW;
/// Tokens before a prompt's end: more than a chat template adds behind the last message.
const PROMPT_END: usize = 64;
/// Tokens of a prompt that are prefilled at once where other texts may wait for it.
const SLICE: usize = 128;
/// A row's cache is used for a prompt that shares at least one token in so many with it; otherwise that which was left longest ago.
const ALIKE: usize = 10;

/// A text to be written.
pub struct Asked {
    pub prompt: Vec<u32>,
    pub sampling: Sampling,
    /// Tokens that end it.
    pub ends: Vec<u32>,
    pub when_full: WhenFull,
    /// So many of the most likely tokens come with each token.
    pub top: usize,
    /// Which tokens may come next.
    pub constraint: Option<Box<dyn Constraint>>,
    /// The prompt's tokens are scored first.
    pub scores_prompt: bool,
    /// Its whole prompt is computed: keys and values of an earlier text are rounded otherwise.
    pub afresh: bool,
}

/// What happened in a pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Progress<'a> {
    /// Of the text in this row. A break ends it.
    Row(usize, Step<'a>),
    /// Between two passes. A break returns to the caller, and the texts can be written on later.
    Between,
}

/// Rows for texts that are written side by side. They belong to one model, whose weights must not change meanwhile.
pub struct Rows {
    rows: Vec<Row>,
    caches: Caches,
    /// Tokens of a prompt that are prefilled at once.
    chunk: usize,
    /// The row whose prompt is read next.
    turn: usize,
    /// Texts that have left so far.
    left: u64,
}

/// A row, with what is kept of the text before where it is free.
#[derive(Default)]
struct Row {
    kept: PrefixCache,
    /// The number of the last text that left here.
    last: u64,
    writing: Option<Writing>,
}

/// A text in its row.
struct Writing {
    text: Text,
    ends: Vec<u32>,
    /// Tokens that came out of a cache.
    kept: usize,
    /// Whether it was said how many did.
    told: bool,
    /// The prompt, where it is to be scored, and its tokens that are.
    unscored: Option<(Vec<u32>, usize)>,
    top: usize,
    failed: Option<candle_core::Error>,
}

impl Rows {
    /// For at most `n` texts at once.
    pub fn new(n: usize) -> Rows {
        let mut rows = Rows {
            rows: (0..n.max(1)).map(|_| Row::default()).collect(),
            caches: Caches::default(),
            chunk: if n > 1 { SLICE } else { CHUNK },
            turn: 0,
            left: 0,
        };
        rows.forget();
        rows
    }

    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// Whether this machine's kernels compute a text with the same bits alone and beside others.
    pub fn are_independent() -> bool {
        matmul::rows_are_independent()
    }

    /// Forgets all texts: the weights are other ones.
    pub fn forget(&mut self) {
        let n = self.rows.len();
        self.rows.iter_mut().for_each(|row| *row = Row::default());
        self.caches = Caches {
            held: (0..n).map(|_| KvCache::none()).collect(),
            pasts: vec![Past::default(); n],
        };
    }

    /// Puts a text into a free row, if there is one, and returns that.
    ///
    /// # Errors
    /// An empty prompt, ids outside the vocabulary, a prompt beyond the context.
    pub fn join(&mut self, model: &Model, asked: Asked) -> Result<Option<usize>> {
        let how = Continuing {
            sampling: &asked.sampling,
            ends: &asked.ends,
            when_full: asked.when_full,
        };
        let tokens = room_of(model, &asked.prompt, how)?;
        let (len, limit) = (asked.prompt.len(), model.shape().seq_len);
        if asked.scores_prompt && len > limit {
            bail!("the prompt has {len} tokens, more than the context of {limit} tokens holds")
        }
        let prompt = Prompt {
            tokens: &asked.prompt,
            number: 0,
        };
        let mut text = Text::of(model, prompt, how);
        text.sampler = text.sampler.with(asked.top, asked.constraint);
        let Some(at) = self.place(&text.window, asked.afresh) else {
            return Ok(None);
        };
        if !asked.scores_prompt {
            text.same_as = self.reader_of(&text.window, asked.afresh);
        }
        let row = &mut self.rows[at];
        if asked.afresh || asked.scores_prompt || text.same_as.is_some() {
            row.kept = PrefixCache::default();
        }
        let cache = model.cache_for(&mut row.kept, (&text.window, tokens));
        text.read = cache.len;
        if let Some(held) = self.caches.held.get_mut(at) {
            *held = cache;
        }
        if let Some(past) = self.caches.pasts.get_mut(at) {
            *past = Past::default();
            text.read = 0;
        }
        row.writing = Some(Writing {
            kept: text.read,
            text,
            ends: asked.ends,
            told: false,
            unscored: asked.scores_prompt.then_some((asked.prompt, 0)),
            top: asked.top,
            failed: None,
        });
        Ok(Some(at))
    }

    /// The free row whose cache begins most like the text, or else the one that was left longest ago.
    fn place(&self, window: &[u32], afresh: bool) -> Option<usize> {
        let free = self.rows.iter().enumerate();
        let free = free.filter(|(_, row)| row.writing.is_none());
        let alike = |row: &Row| match row.kept.shared(window) {
            shared if !afresh && shared * ALIKE >= window.len() => shared,
            _ => 0,
        };
        free.max_by_key(|(_, row)| (alike(row), std::cmp::Reverse(row.last)))
            .map(|(at, _)| at)
    }

    /// The row in which the same prompt is being prefilled. A prompt that goes on from a cache, or is scored, is rounded otherwise.
    fn reader_of(&self, window: &[u32], afresh: bool) -> Option<usize> {
        self.rows.iter().position(|row| {
            row.writing.as_ref().is_some_and(|other| {
                let text = &other.text;
                let is_reading = text.new.is_empty() && text.same_as.is_none() && !other.is_over();
                let is_afresh = other.kept == 0 && other.unscored.is_none();
                is_reading && text.window == window && (is_afresh || !afresh)
            })
        })
    }

    /// Ends the text of a row, which becomes free. What is cached of it stays for one with the same beginning.
    pub fn leave(&mut self, at: usize) -> Option<Result<Generated>> {
        let writing = self.rows[at].writing.take()?;
        self.left += 1;
        self.rows[at].last = self.left;
        // The first of those that wait for its prompt reads that, and the others wait for it.
        let mut next = None;
        for (number, row) in self.rows.iter_mut().enumerate() {
            if let Some(other) = &mut row.writing
                && other.text.same_as == Some(at)
            {
                other.text.same_as = next;
                next = next.or(Some(number));
            }
        }
        if let Some(held) = self.caches.held.get_mut(at) {
            let cache = std::mem::replace(held, KvCache::none());
            self.rows[at].kept.remember(cache, &writing.text.window);
        }
        Some(match writing.failed {
            Some(error) => Err(error),
            None => Ok(writing.text.generated()),
        })
    }

    /// Writes on, until a text has ended or `hear` breaks between two passes. Returns the texts that ended, with their rows, which
    /// are free again. What fails alone (a form that cannot be followed) ends that text alone.
    ///
    /// # Errors
    /// Damaged weights: then all texts are gone.
    pub fn write(
        &mut self,
        model: &mut Model,
        hear: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Vec<(usize, Result<Generated>)>> {
        let (rows, chunk, turn) = (&mut self.rows, self.chunk, &mut self.turn);
        let done = model.decode_on(&mut self.caches, |decoding| {
            let mut passes = Passes {
                rows,
                decoding,
                chunk,
                turn,
                hear,
                logits: Vec::new(),
            };
            passes.all()
        });
        if let Err(error) = done {
            self.forget();
            return Err(error);
        }
        let is_over = |row: &Row| row.writing.as_ref().is_some_and(Writing::is_over);
        let over: Vec<usize> = (0..self.rows.len())
            .filter(|at| is_over(&self.rows[*at]))
            .collect();
        let ended = over
            .into_iter()
            .filter_map(|at| Some((at, self.leave(at)?)));
        Ok(ended.collect())
    }
}

impl Writing {
    fn is_over(&self) -> bool {
        let is_finished = self.text.finish.is_some() && self.unscored.is_none();
        is_finished || self.failed.is_some()
    }

    /// Its prompt, or a window that rolled, is not prefilled but for the last token.
    fn is_reading(&self) -> bool {
        let is_waiting = self.is_over() || self.text.same_as.is_some();
        !is_waiting && (!self.told || self.unscored.is_some() || self.text.unread().len() > 1)
    }

    fn is_writing(&self) -> bool {
        !self.is_over() && !self.is_reading() && self.text.same_as.is_none()
    }

    fn stop(&mut self) {
        self.text.finish = Some(Finish::Stopped);
        self.unscored = None;
    }
}

/// The passes over the weights between two changes of the rows.
struct Passes<'a, 'm> {
    rows: &'a mut [Row],
    decoding: &'a mut Decoding<'m>,
    chunk: usize,
    turn: &'a mut usize,
    hear: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
    logits: Vec<f32>,
}

impl Passes<'_, '_> {
    fn all(&mut self) -> Result<()> {
        while self.texts().next().is_some() && !self.texts().any(Writing::is_over) {
            if let Some(at) = self.next_reader() {
                self.read(at)?;
            }
            self.write()?;
            if (self.hear)(Progress::Between).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn texts(&self) -> impl Iterator<Item = &Writing> {
        self.rows.iter().filter_map(|row| row.writing.as_ref())
    }

    /// Rows whose prompts are not prefilled take turns.
    fn next_reader(&mut self) -> Option<usize> {
        let n = self.rows.len();
        let is_reading = |at: &usize| {
            let writing = self.rows[*at].writing.as_ref();
            writing.is_some_and(Writing::is_reading)
        };
        let next = (0..n).map(|i| (*self.turn + i) % n).find(is_reading)?;
        *self.turn = (next + 1) % n;
        Some(next)
    }

    /// Prefills the next chunk of a row's prompt, or scores it.
    fn read(&mut self, at: usize) -> Result<()> {
        let Some(writing) = &mut self.rows[at].writing else {
            return Ok(());
        };
        if writing.unscored.is_some() {
            return self.score(at);
        }
        let (kept, hear) = (writing.kept, &mut self.hear);
        let mut tell = |tokens| hear(Progress::Row(at, Step::Read { tokens, kept }));
        if !writing.told {
            writing.told = true;
            if tell(kept).is_break() {
                writing.stop();
                return Ok(());
            }
        }
        let text = &mut writing.text;
        let (read, len) = (text.read, text.window.len());
        // Another text with this prompt, or the same once more, goes on from the states before its last token; shortly before that
        // they are kept for texts in which the prompt's end is another: the next turn where a chat template marks only the newest
        // answer, or a question that is asked in other words.
        let cuts = match self.decoding.has_states() {
            true => [len.saturating_sub(1 + PROMPT_END), len - 1],
            false => [0, 0],
        };
        if cuts.contains(&read) {
            self.decoding.take_snapshot(at);
        }
        if len - read == 1 {
            // It goes through the next pass of all.
            return Ok(());
        }
        let cut = cuts.into_iter().find(|cut| *cut > read).unwrap_or(len);
        let end = cut.min(read + self.chunk);
        let piece = (at, &text.window[read..end]);
        let mut go_on = |_, _| ControlFlow::Continue(());
        let _ = self
            .decoding
            .read_batch(&[piece], &mut self.logits, &mut go_on)?;
        if end == len {
            return self.next_tokens(&[at]);
        }
        text.read = end;
        if cuts.contains(&end) {
            self.decoding.take_snapshot(at);
        }
        if tell(end).is_break() {
            writing.stop();
        }
        Ok(())
    }

    /// Scores the next tokens of a prompt; all of it but the last token is prefilled then.
    fn score(&mut self, at: usize) -> Result<()> {
        let Some(writing) = &mut self.rows[at].writing else {
            return Ok(());
        };
        let Some((prompt, scored)) = &mut writing.unscored else {
            return Ok(());
        };
        let last = prompt.len() - 1;
        let (from, end) = (*scored, last.min(*scored + self.chunk));
        let mut tokens = Vec::new();
        if from == 0 {
            self.decoding.restart(at);
            tokens.push(PromptToken {
                id: prompt[0],
                logprob: None,
                top: Vec::new(),
            });
        }
        if end > from {
            let pair = (&prompt[from..end], &prompt[from + 1..=end]);
            tokens.extend(prompt::score(self.decoding, at, pair, writing.top)?);
        }
        *scored = end;
        let is_break = (self.hear)(Progress::Row(at, Step::Scored(&tokens))).is_break();
        if end == last {
            writing.unscored = None;
            // The composite backend begins again.
            writing.text.read = self.decoding.held(at);
            writing.kept = writing.text.read;
            if writing.kept == 0 {
                self.decoding.restart(at);
            }
        }
        if is_break {
            writing.stop();
        }
        Ok(())
    }

    /// The next token of every text that is being written.
    fn write(&mut self) -> Result<()> {
        let mut pieces = Vec::new();
        for (at, row) in self.rows.iter().enumerate() {
            if let Some(writing) = row.writing.as_ref().filter(|w| w.is_writing()) {
                pieces.push((at, writing.text.unread()));
            }
        }
        if pieces.is_empty() {
            return Ok(());
        }
        let mut go_on = |_, _| ControlFlow::Continue(());
        let _ = self
            .decoding
            .read_batch(&pieces, &mut self.logits, &mut go_on)?;
        let at: Vec<usize> = pieces.iter().map(|(at, _)| *at).collect();
        self.next_tokens(&at)
    }

    /// Draws a token from each row of logits, for the text there and for those that wait for the same prompt: they get its keys and
    /// values.
    fn next_tokens(&mut self, at: &[usize]) -> Result<()> {
        let logits = self.logits.chunks_exact(self.logits.len() / at.len());
        let mut drawing = Vec::new();
        for (number, row) in self.rows.iter_mut().enumerate() {
            let Some(writing) = &mut row.writing else {
                continue;
            };
            let text = &mut writing.text;
            if let Some(read) = text.same_as.filter(|read| at.contains(read)) {
                text.same_as = None;
                self.decoding.copy(read, number);
                writing.told = true;
                writing.kept = text.window.len();
                drawing.push((number, read, writing));
            } else if at.contains(&number) {
                drawing.push((number, number, writing));
            }
        }
        let of = |read: usize| at.iter().position(|at| *at == read);
        let logits: Vec<&[f32]> = logits.collect();
        let mut draws: Vec<(&mut Text, &[f32])> = Vec::with_capacity(drawing.len());
        for (_, read, writing) in &mut drawing {
            if let Some(row) = of(*read) {
                draws.push((&mut writing.text, logits[row]));
            }
        }
        draw(&mut draws);
        for (number, read, writing) in drawing {
            let Writing {
                text, ends, kept, ..
            } = writing;
            let hear = &mut self.hear;
            let mut tell = |step: Step| hear(Progress::Row(number, step));
            if number != read {
                let (tokens, kept) = (*kept, *kept);
                if tell(Step::Read { tokens, kept }).is_break() {
                    writing.stop();
                    continue;
                }
            }
            let mut on_token = |token, top: &[Alternative]| tell(Step::Token(token, top));
            match text.take_over(ends, &mut on_token) {
                Ok(_) => text.settle(number, self.decoding),
                Err(error) => writing.failed = Some(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
