//! Answers that the model writes, greedily and side by side, and what is found in them.

use super::error::TaskError;
use super::items::{Asked, Item};
use super::record::Record;
use super::subject::Subject;
use super::task::{Finder, Task};
use crate::base::sampling::Sampling;
use crate::nn::generate::{Continuing, Prompt, WhenFull, generate_batch};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Answers written side by side.
pub(super) const SIDE_BY_SIDE: usize = 16;
/// What stands where nothing was found, as in lm-evaluation-harness.
const NOTHING: &str = "[invalid]";

/// Lets the model answer some items.
///
/// # Errors
/// Text that the tokenizer refuses; the model cannot compute.
pub(super) fn write(
    subject: &mut Subject,
    task: &Task,
    items: &[&Item],
) -> Result<Vec<Record>, TaskError> {
    let how = &task.config.answer;
    let context = subject.model.shape().seq_len;
    // A short context is shared by prompt and answer.
    let max_new_tokens = how.max_new_tokens.min(context / 2).max(1);
    let (mut prompts, mut cuts) = (Vec::new(), Vec::new());
    for item in items {
        let Asked::Answer { prompt, .. } = &item.asked else {
            continue;
        };
        let ids = subject.framed(prompt);
        let mut ids =
            ids.map_err(|e| TaskError::item(&task.config.name, &item.place, e.to_string()))?;
        if ids.is_empty() {
            ids.extend(subject.prefix);
        }
        let cut = ids.len().saturating_sub(context - max_new_tokens);
        cuts.push(cut);
        prompts.push(ids.split_off(cut));
    }
    let sampling = Sampling {
        temperature: 0.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        repetition_penalty: 1.0,
        max_new_tokens,
        ..Sampling::default()
    };
    let Subject {
        model,
        tokenizer,
        ends,
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
    let mut written: Vec<Vec<u32>> = vec![Vec::new(); side.len()];
    let reach = how.until.iter().map(String::len).max().unwrap_or(0);
    generate_batch(model, &side, continuing, &mut |text, token| {
        written[text].push(token.id);
        // A stop text of n bytes lies in the last n tokens.
        let last = written[text].len().saturating_sub(reach + 1);
        match until(&tokenizer.decode(&written[text][last..]), &how.until) {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    })
    .map_err(|e| TaskError::Model(e.to_string()))?;
    let records = items
        .iter()
        .zip(written)
        .zip(cuts)
        .map(|((item, ids), cut)| {
            let mut answer = tokenizer.decode(&ids);
            if let Some(at) = until(&answer, &how.until) {
                answer.truncate(at);
            }
            judged(task, item, answer, cut)
        });
    Ok(records.collect())
}

/// Where the earliest of some texts begins.
fn until(text: &str, stops: &[String]) -> Option<usize> {
    let places = stops.iter().filter(|stop| !stop.is_empty());
    places.filter_map(|stop| text.find(stop.as_str())).min()
}

pub(super) fn judged(task: &Task, item: &Item, answer: String, cut: usize) -> Record {
    let (prompt, target) = match &item.asked {
        Asked::Answer { prompt, target } => (prompt.clone(), target.clone()),
        _ => Default::default(),
    };
    let (mut found, mut scores) = (BTreeMap::new(), BTreeMap::new());
    let wanted = normal(task, &target);
    for finder in &task.finders {
        let text = find(finder, &answer);
        let right = normal(task, &text) == wanted;
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
        found,
        target: Some(target),
        cut,
        scores,
    }
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

fn normal(task: &Task, text: &str) -> String {
    let mut text = text.to_string();
    for pattern in &task.ignore {
        text = pattern.replace_all(&text, "").into_owned();
    }
    match task.config.answer.ignore_case {
        true => text.to_lowercase(),
        false => text,
    }
}
