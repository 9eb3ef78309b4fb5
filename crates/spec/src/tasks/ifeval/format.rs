//! Instructions about the form of an answer.

use super::Args;
use super::keywords::{found, pattern};
use serde::de::IgnoredAny;

/// The answers that a constrained response may give.
const OPTIONS: [&str; 3] = [
    "My answer is yes.",
    "My answer is no.",
    "My answer is maybe.",
];

pub fn constrained_response(_: &Args, answer: &str) -> bool {
    OPTIONS.iter().any(|option| answer.contains(option))
}

/// `[name]`
pub fn placeholders(args: &Args, answer: &str) -> bool {
    found(r"\[.*?\]", answer) >= args.number("num_placeholders")
}

/// Lines that begin with `* ` or `-`, exactly so many.
pub fn bullets(args: &Args, answer: &str) -> bool {
    let count = found(r"(?m)^\s*\*[^*].*$", answer) + found(r"(?m)^\s*-.*$", answer);
    count == args.number("num_bullets")
}

/// `*text*` and `**text**`
pub fn highlights(args: &Args, answer: &str) -> bool {
    let count = |source: &str| {
        let Some(pattern) = pattern(source) else {
            return 0;
        };
        let matches = pattern.find_iter(answer);
        let filled = |m: &regex::Match| !m.as_str().trim_matches('*').trim().is_empty();
        matches.filter(filled).count()
    };
    count(r"\*[^\n*]*\*") + count(r"\*\*[^\n*]*\*\*") >= args.number("num_highlights")
}

/// `SECTION 1`, `SECTION 2`
pub fn sections(args: &Args, answer: &str) -> bool {
    let source = format!(r"\s?{}\s?\d+\s?", args.text("section_spliter").trim());
    found(&source, answer) >= args.number("num_sections")
}

pub fn postscript(args: &Args, answer: &str) -> bool {
    let marker = args.text("postscript_marker").trim();
    let source = match marker {
        "P.P.S" => r"p\.\s?p\.\s?s.*$".to_string(),
        "P.S." => r"p\.\s?s\..*$".to_string(),
        other => other.to_lowercase() + ".*$",
    };
    found(&format!(r"(?m)\s*{source}"), &answer.to_lowercase()) > 0
}

/// JSON alone, in a fence or not.
pub fn json(_: &Args, answer: &str) -> bool {
    let mut text = answer.trim();
    for fence in ["```json", "```Json", "```JSON", "```"] {
        text = text.strip_prefix(fence).unwrap_or(text);
    }
    let text = text.strip_suffix("```").unwrap_or(text).trim();
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// `<<a title>>`
pub fn title(_: &Args, answer: &str) -> bool {
    let Some(pattern) = pattern("<<[^\n]+>>") else {
        return false;
    };
    pattern.find_iter(answer).any(|title| {
        let text = title.as_str().trim_start_matches('<');
        !text.trim_end_matches('>').trim().is_empty()
    })
}

/// Two different answers with six asterisks in between.
pub fn two_responses(_: &Args, answer: &str) -> bool {
    let parts: Vec<&str> = answer.split("******").map(str::trim).collect();
    let inner = parts.get(1..parts.len() - 1).unwrap_or_default();
    let filled: Vec<&str> = parts
        .iter()
        .copied()
        .filter(|part| !part.is_empty())
        .collect();
    inner.iter().all(|part| !part.is_empty()) && filled.len() == 2 && filled[0] != filled[1]
}

pub fn repeats_prompt(args: &Args, answer: &str) -> bool {
    let prompt = args.text("prompt_to_repeat").trim().to_lowercase();
    answer.trim().to_lowercase().starts_with(&prompt)
}

pub fn ends_with(args: &Args, answer: &str) -> bool {
    let answer = answer.trim().trim_matches('"').to_lowercase();
    answer.ends_with(&args.text("end_phrase").trim().to_lowercase())
}

pub fn quoted(_: &Args, answer: &str) -> bool {
    let answer = answer.trim();
    answer.chars().count() > 1 && answer.starts_with('"') && answer.ends_with('"')
}

pub fn no_comma(_: &Args, answer: &str) -> bool {
    !answer.contains(',')
}
