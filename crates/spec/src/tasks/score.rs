//! Log-likelihoods of choices, continuations and whole texts, several items in one pass.

use super::encode::{EncodeError, Pair};
use super::error::TaskError;
use super::items::{Asked, Item};
use super::record::{Record, Scored};
use super::subject::Subject;
use crate::nn::continuations::{self, Group, Scores};
use std::collections::BTreeMap;

/// Bytes of keys and values that stand side by side.
const MAX_CACHE_BYTES: usize = 256 << 20;
/// Texts side by side.
const MAX_TEXTS: usize = 128;

/// An item in tokens.
pub(super) struct Work<'a> {
    pub item: &'a Item,
    pairs: Vec<Pair>,
}

impl<'a> Work<'a> {
    /// # Errors
    /// Text that the tokenizer refuses, or a continuation that the context cannot hold.
    pub fn new(subject: &Subject, task: &str, item: &'a Item) -> Result<Work<'a>, TaskError> {
        let fail = |misfit: EncodeError| TaskError::item(task, &item.place, misfit.to_string());
        let pair = |(context, continuation): &(String, String)| {
            subject.pair(context, continuation).map_err(fail)
        };
        let pairs = match &item.asked {
            Asked::Choice { pairs, .. } => pairs.iter().map(pair).collect::<Result<_, _>>()?,
            Asked::Continuation {
                context,
                continuation,
            } => vec![pair(&(context.clone(), continuation.clone()))?],
            Asked::Text { text, .. } => subject.windows(text).map_err(|e| fail(e.into()))?,
            Asked::Answer { .. } => Vec::new(),
        };
        Ok(Work { item, pairs })
    }

    /// Tokens that are read, of contexts that are the same once.
    pub fn tokens(&self) -> usize {
        let contexts = (0..self.pairs.len()).filter(|i| !self.repeats(*i));
        let contexts: usize = contexts.map(|i| self.pairs[i].context.len()).sum();
        contexts
            + self
                .pairs
                .iter()
                .map(|p| p.continuation.len())
                .sum::<usize>()
    }

    /// Items that share a beginning stand together when they are sorted by this.
    pub fn order(&self) -> &[u32] {
        self.pairs.first().map_or(&[], |pair| &pair.context)
    }

    fn repeats(&self, at: usize) -> bool {
        at > 0 && self.pairs[at].context == self.pairs[at - 1].context
    }

    fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for (at, pair) in self.pairs.iter().enumerate() {
            match groups.last_mut() {
                Some(group) if self.repeats(at) => {
                    group.continuations.push(pair.continuation.clone())
                }
                _ => groups.push(Group {
                    context: pair.context.clone(),
                    continuations: vec![pair.continuation.clone()],
                }),
            }
        }
        groups
    }

    fn longest(&self) -> usize {
        let tokens = self
            .pairs
            .iter()
            .map(|p| p.context.len() + p.continuation.len());
        tokens.max().unwrap_or(0)
    }
}

/// How many of the first items one pass takes.
pub(super) fn fitting(subject: &Subject, works: &[Work]) -> usize {
    let bytes = |texts, tokens| continuations::cache_bytes(subject.model.config(), texts, tokens);
    let (mut texts, mut longest) = (0, 0);
    let fits = works.iter().take_while(|work| {
        texts += work.pairs.len();
        longest = longest.max(work.longest());
        texts <= MAX_TEXTS && bytes(texts, longest) <= MAX_CACHE_BYTES
    });
    fits.count().max(1).min(works.len())
}

/// Asks the model.
///
/// # Errors
/// The model cannot compute, or computes NaN.
pub(super) fn score(subject: &mut Subject, works: &[Work]) -> Result<Vec<Record>, TaskError> {
    let groups: Vec<Group> = works.iter().flat_map(Work::groups).collect();
    let config = subject.model.config().clone();
    let bytes = |texts, tokens| continuations::cache_bytes(&config, texts, tokens);
    let mut scores = Vec::new();
    let mut rest = groups.as_slice();
    // A text of many windows alone may be more than a pass holds.
    while !rest.is_empty() {
        let (mut texts, mut longest) = (0, 0);
        let fits = rest.iter().take_while(|group| {
            texts += group.continuations.len();
            longest = longest.max(group.tokens());
            texts <= MAX_TEXTS && bytes(texts, longest) <= MAX_CACHE_BYTES
        });
        let (part, others) = rest.split_at(fits.count().max(1));
        let found = subject.model.score(part).map_err(TaskError::Model)?;
        // In a comparison NaN loses silently: the first choice would win.
        if found.iter().flatten().any(is_nan) {
            return Err(TaskError::NotFinite);
        }
        scores.extend(found);
        rest = others;
    }
    let mut scores = scores.into_iter().flatten();
    let records = works.iter().map(|work| {
        let own: Vec<Scores> = scores.by_ref().take(work.pairs.len()).collect();
        record(work, &own)
    });
    Ok(records.collect())
}

fn is_nan(scores: &Scores) -> bool {
    scores.logps.iter().any(|x| x.is_nan())
}

fn sum(scores: &Scores) -> f64 {
    scores.logps.iter().map(|x| f64::from(*x)).sum()
}

fn record(work: &Work, scores: &[Scores]) -> Record {
    let item = work.item;
    let scored = |text: &str, scores: &Scores| Scored {
        text: text.into(),
        logp: sum(scores),
        tokens: scores.logps.len(),
        greedy: scores.greedy == scores.logps.len(),
    };
    let mut record = Record {
        item: item.number,
        place: item.place.clone(),
        group: item.group.clone(),
        prompt: String::new(),
        prompts: Vec::new(),
        scored: Vec::new(),
        gold: None,
        answer: None,
        thought: None,
        unfinished: false,
        found: BTreeMap::new(),
        target: None,
        cut: work.pairs.iter().map(|p| p.cut).max().unwrap_or(0),
        truncated: false,
        scores: BTreeMap::new(),
    };
    let mut put = |name: &str, value: f64| {
        record.scores.insert(name.into(), value);
    };
    match &item.asked {
        Asked::Choice {
            pairs,
            choices,
            gold,
        } => {
            let each = pairs.iter().zip(scores);
            record.scored = each.map(|((_, text), s)| scored(text, s)).collect();
            let one = pairs.windows(2).all(|two| two[0].0 == two[1].0);
            let right = |found: usize| f64::from(u8::from(found == *gold));
            put("acc", right(best(&record.scored, |s, _| s.logp)));
            if one {
                let characters: Vec<f64> =
                    choices.iter().map(|c| c.chars().count() as f64).collect();
                put(
                    "acc_norm",
                    right(best(&record.scored, |s, i| s.logp / characters[i])),
                );
                let by_token = |s: &Scored, _| s.logp / s.tokens as f64;
                put("acc_norm_tokens", right(best(&record.scored, by_token)));
                record.prompt = pairs.first().map_or_else(String::new, |p| p.0.clone());
            } else {
                record.prompts = pairs.iter().map(|p| p.0.clone()).collect();
            }
            record.gold = Some(*gold);
        }
        Asked::Continuation {
            context,
            continuation,
        } => {
            record.prompt = context.clone();
            record.scored = scores.iter().map(|s| scored(continuation, s)).collect();
            let all = record.scored.iter().all(|s| s.greedy);
            put("acc", f64::from(u8::from(all)));
            put("logp", record.scored.iter().map(|s| s.logp).sum());
        }
        Asked::Text { text, bytes } => {
            record.prompt = text.clone();
            put("logp", scores.iter().map(sum).sum());
            put("tokens", scores.iter().map(|s| s.logps.len() as f64).sum());
            put("bytes", bytes.unwrap_or(text.len()) as f64);
        }
        Asked::Answer { .. } => {}
    }
    record
}

/// The first of the largest.
fn best(scored: &[Scored], value: impl Fn(&Scored, usize) -> f64) -> usize {
    let mut best = (0, f64::NEG_INFINITY);
    for (at, scored) in scored.iter().enumerate() {
        let value = value(scored, at);
        if value > best.1 {
            best = (at, value);
        }
    }
    best.0
}
