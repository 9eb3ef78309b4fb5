//! Answers that the model generates, greedily and in batches, and what is extracted from them.

use super::config::Kind;
use super::error::TaskError;
use super::ifeval::{self, Instruction};
use super::items::{Asked, Item};
use super::record::Record;
use super::subject::Subject;
use super::task::{Finder, Prepared, Task};
use crate::base::sampling::Sampling;
use crate::data::chat::tool_calls::{Answers, Said, Writing};
use crate::data::tokenizer::stop_at;
use crate::nn::generate::{Continuing, Finish, GenerateError, GeneratedToken, Prompt, WhenFull};
use crate::rewards::Thinking;
use regex::Regex;
use std::collections::BTreeMap;

/// IFEval's metrics, strictly and loosely: prompts of which every instruction is followed, and instructions followed.
pub(super) const IFEVAL: [[&str; 2]; 2] = [
    ["prompt_level_strict_acc", "inst_level_strict_acc"],
    ["prompt_level_loose_acc", "inst_level_loose_acc"],
];
/// How many instructions a prompt has.
pub(super) const INSTRUCTIONS: &str = "instructions";
/// Answers written side by side.
pub(super) const SIDE_BY_SIDE: usize = 16;
/// What stands where nothing was found, as in lm-evaluation-harness.
const NOTHING: &str = "[invalid]";

/// An answer as it was written.
pub(super) struct Written {
    pub record: Record,
    /// What else the model wrote, where some of it is thoughts.
    pub thinking: Option<Thinking>,
    /// The prompt with the chat template around it, where there is one, and what that writes behind an answer.
    pub asked: Option<(String, String)>,
    /// Tokens, those of a stop text and the one that ended it included.
    pub tokens: usize,
    /// It ended by itself, not at its longest length or with the context.
    pub ended: bool,
}

/// What a model wrote besides its final message; none where nothing was set apart.
pub fn thinking(said: &Said, written: &str) -> Option<Thinking> {
    Some(Thinking {
        thought: said.thought.clone()?,
        completion: written.into(),
        is_unfinished: said.is_unfinished,
        alone: said.alone.clone(),
    })
}

/// Lets the model answer some items.
///
/// # Errors
/// Text that the tokenizer refuses; the model cannot compute.
pub(super) fn write(
    subject: &mut Subject,
    task: &Task,
    items: &[&Item],
) -> Result<Vec<Written>, TaskError> {
    let how = &task.config.answer;
    let Encoded {
        prompts,
        cuts,
        turns,
    } = encode(subject, task, items)?;
    let sampling = Sampling {
        temperature: 0.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        repetition_penalty: 1.0,
        max_new_tokens: how.max_new_tokens,
        ..Sampling::default()
    };
    let behind = subject.answer_suffix();
    let Subject {
        model,
        tokenizer,
        ends,
        answers,
        ..
    } = subject;
    let side: Vec<Prompt> = prompts
        .iter()
        .map(|tokens| Prompt { tokens, number: 0 })
        .collect();
    let continuing = Continuing {
        sampling: &sampling,
        ends,
        when_full: WhenFull::Stop,
    };
    // A plain text is continued, not answered.
    let asked = turns.iter().map(|turn| match turn {
        Some(turn) => (*answers, turn.as_str()),
        None => (Answers::default(), ""),
    });
    let mut writings: Vec<Writing> = asked
        .map(|(answers, turn)| Writing::new(answers, turn, tokenizer, &how.until))
        .collect();
    let mut hear = |text: usize, token: GeneratedToken| writings[text].push(token.id);
    let done = model.answer(&side, continuing, &mut hear);
    let done = done.map_err(|error| match error {
        GenerateError::NotFinite(_) => TaskError::NotFinite,
        GenerateError::Other(why) => TaskError::Model(why),
    })?;
    let records = items
        .iter()
        .zip(writings.iter().zip(done))
        .zip(cuts.into_iter().zip(&turns))
        .map(|((item, (writing, done)), (cut, asked))| {
            let whole = writing.finish();
            let ended = whole.is_stopped || matches!(done.finish, Finish::Eos | Finish::Stopped);
            let besides = thinking(&whole.said, &whole.written);
            let mut record = judged(task, item, whole.said, cut);
            record.truncated = !ended;
            Written {
                record,
                thinking: besides,
                asked: asked.clone().map(|asked| (asked, behind.clone())),
                // As in training, the token that ended it counts.
                tokens: writing.ids().len() + usize::from(done.end.is_some()),
                ended,
            }
        });
    Ok(records.collect())
}

/// Prompts as tokens, in the order of their items.
#[derive(Default)]
struct Encoded {
    prompts: Vec<Vec<u32>>,
    /// How many tokens were cut from the beginning of each.
    cuts: Vec<usize>,
    /// With the chat template around it, where there is one.
    turns: Vec<Option<String>>,
}

fn encode(subject: &Subject, task: &Task, items: &[&Item]) -> Result<Encoded, TaskError> {
    let context = subject.model.shape().seq_len;
    // Room that even a long prompt leaves; in front of a short one an answer has more.
    let least = task.config.answer.max_new_tokens.min(context / 2).max(1);
    let mut encoded = Encoded::default();
    for item in items {
        let Asked::Answer { prompt, prefix, .. } = &item.asked else {
            continue;
        };
        let fail = |what: String| TaskError::item(&task.config.name, &item.place, what);
        let turn = match task.config.chat {
            true => Some(subject.as_turn(prompt, prefix.as_deref()).map_err(fail)?),
            false => None,
        };
        // What begins a conversation is written by its template, as in training and in chat.
        let ids = match &turn {
            Some(turn) => subject.tokenizer.encode(turn),
            None => subject.tokenizer.encode_begun(prompt),
        };
        let mut ids = ids.map_err(|e| fail(e.to_string()))?;
        if ids.is_empty() {
            ids.extend(subject.prefix);
        }
        let cut = ids.len().saturating_sub(context - least);
        encoded.cuts.push(cut);
        encoded.prompts.push(ids.split_off(cut));
        encoded.turns.push(turn);
    }
    Ok(encoded)
}

/// Judges answers that were written elsewhere, one for each item, in their order.
///
/// # Errors
/// A task that asks for no answers, another number of them, a sandbox that broke.
pub fn judge(prepared: &Prepared, answers: Vec<String>) -> Result<Vec<Record>, TaskError> {
    let (task, items) = (&prepared.task, &prepared.items);
    let wrong = |what: String| TaskError::File {
        place: task.config.name.clone(),
        what,
    };
    if task.config.kind != Kind::Answer {
        return Err(wrong("it scores texts and generates no answers".into()));
    }
    if answers.len() != items.len() {
        let (there, wanted) = (answers.len(), items.len());
        return Err(wrong(format!(
            "{wanted} items need as many answers, in order, but the file has {there}"
        )));
    }
    let until = |answer: &mut String| {
        if let Some(at) = stop_at(answer, &task.config.answer.until) {
            answer.truncate(at);
        }
    };
    let pairs = items.iter().zip(answers);
    let written = pairs.map(|(item, answer)| {
        let mut said = Said::of_text(&answer);
        let space = said.text.len() - said.text.trim_start().len();
        match said.thought {
            // Stop texts count in the final message.
            Some(_) => {
                let mut text = said.text.split_off(space);
                until(&mut text);
                said.text = text;
            }
            None => until(&mut said.text),
        }
        Written {
            // Without a tokenizer, words stand for tokens.
            tokens: answer.split_whitespace().count(),
            thinking: thinking(&said, &answer),
            ended: !said.is_unfinished,
            record: judged(task, item, said, 0),
            asked: None,
        }
    });
    let written = written.collect();
    prepared.judged(&items.iter().collect::<Vec<_>>(), written)
}

/// Judges a final message; without one nothing is right.
pub(super) fn judged(task: &Task, item: &Item, said: Said, cut: usize) -> Record {
    let answer = said.text;
    let (mut found, mut scores) = (BTreeMap::new(), BTreeMap::new());
    let (prompt, target) = match &item.asked {
        Asked::Answer {
            prompt,
            target,
            patterns,
            instructions,
            ..
        } => {
            count(task, patterns, &answer, &mut scores);
            if !instructions.is_empty() {
                check(instructions, &answer, &mut found, &mut scores);
            }
            // Where a pattern is absent, or an instruction forbids something, silence would be right.
            let kept = |name: &String| name == INSTRUCTIONS;
            let silent = scores.iter_mut().filter(|_| said.is_unfinished);
            silent.for_each(|(name, score)| *score *= f64::from(u8::from(kept(name))));
            (prompt.clone(), target.clone())
        }
        _ => Default::default(),
    };
    let wanted = normal(task, &target);
    for finder in &task.finders {
        let text = find(finder, &answer);
        let right = !said.is_unfinished && normal(task, &text) == wanted;
        scores.insert(finder.name.clone(), f64::from(u8::from(right)));
        found.insert(finder.name.clone(), text);
    }
    Record {
        item: item.number,
        place: item.place.clone(),
        group: item.group.clone(),
        prompt,
        prompts: Vec::new(),
        scored: Vec::new(),
        gold: None,
        answer: Some(answer),
        thought: said.thought,
        unfinished: said.is_unfinished,
        found,
        target: task.target.is_some().then_some(target),
        cut,
        truncated: false,
        scores,
    }
}

/// Whether each pattern is there, or is not where its absence counts.
fn count(task: &Task, patterns: &[String], answer: &str, scores: &mut BTreeMap<String, f64>) {
    for (counter, source) in task.counters.iter().zip(patterns) {
        let there = Regex::new(source).is_ok_and(|pattern| pattern.is_match(answer));
        let counts = there != counter.absent;
        scores.insert(counter.name.clone(), f64::from(u8::from(counts)));
    }
}

/// Which instructions are followed, in words; and the numbers that [`super::summary`] adds up.
fn check(
    instructions: &[Instruction],
    answer: &str,
    found: &mut BTreeMap<String, String>,
    scores: &mut BTreeMap<String, f64>,
) {
    let judged = ifeval::judge(instructions, answer);
    for (at, (instruction, [strict, loose])) in instructions.iter().zip(&judged).enumerate() {
        let word = match (strict, loose) {
            (true, _) => "followed",
            (false, true) => "followed loosely",
            (false, false) => "not followed",
        };
        found.insert(format!("{} {}", at + 1, instruction.id), word.into());
    }
    for (way, [prompt, all]) in IFEVAL.into_iter().enumerate() {
        let followed = judged.iter().filter(|both| both[way]).count();
        let whole = followed == judged.len();
        scores.insert(prompt.into(), f64::from(u8::from(whole)));
        scores.insert(all.into(), followed as f64);
    }
    scores.insert(INSTRUCTIONS.into(), judged.len() as f64);
}

/// The part of an answer that counts: of the match the first group that has something in it, else all of it.
fn find(finder: &Finder, answer: &str) -> String {
    let Some(pattern) = &finder.pattern else {
        return answer.trim().to_string();
    };
    let mut matches = pattern.captures_iter(answer);
    let found = match finder.last {
        true => matches.last(),
        false => matches.next(),
    };
    let Some(found) = found else {
        return NOTHING.into();
    };
    let mut groups = found.iter().skip(1).flatten().map(|m| m.as_str());
    let inner = groups.find(|text| !text.is_empty());
    let whole = found.get(0).map_or("", |m| m.as_str());
    inner.unwrap_or(whole).trim().to_string()
}

/// An answer or a target as it is compared: without white space around it.
fn normal(task: &Task, text: &str) -> String {
    let mut text = text.to_string();
    for pattern in &task.ignore {
        text = pattern.replace_all(&text, "").into_owned();
    }
    let text = text.trim();
    match task.config.answer.ignore_case {
        true => text.to_lowercase(),
        false => text.to_string(),
    }
}
