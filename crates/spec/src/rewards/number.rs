//! 1 if the completion's number equals the reference's, however the two are written.

use super::{Answer, Reward, right_answer};
use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};

pub const ENTRY: Entry = Entry {
    id: "number",
    title: "Right number",
    summary: "1 if the number after ####, in \\boxed{} or at the end equals the row's; else 0.",
    source: "GSM8K, arXiv 2110.14168; MATH, arXiv 2103.03874",
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How far the number may be off, relative to the right one.
    #[schemars(range(min = 0.0))]
    pub tolerance: f64,
    /// Without #### or \boxed{} the answer is wrong; otherwise its last number counts.
    pub marked: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            tolerance: 1e-6,
            marked: false,
        }
    }
}

impl Config {
    fn said(&self, text: &str) -> Option<f64> {
        match (marked(text), self.marked) {
            (Some(said), _) => one_number(&said),
            (None, true) => None,
            (None, false) => numbers(&plain(text)).last(),
        }
    }
}

impl Reward for Config {
    fn reads(&self, answer: &Answer) -> Option<bool> {
        Some(self.said(&answer.text).is_some())
    }

    fn score(&self, answer: &Answer) -> Result<f64, String> {
        let right = right_answer(answer)?;
        let number = match marked(right) {
            Some(marked) => one_number(&marked),
            None if right.contains('\\') => one_number(&Marked::Boxed(right)),
            None => numbers(&plain(right)).last(),
        };
        let right = number.ok_or_else(|| {
            let holds = match numbers(&plain(right)).next() {
                Some(_) => "has more than one number",
                None => "holds no number",
            };
            format!("the row's answer {right:?} {holds}; use the reward `exact`")
        })?;
        let said = self.said(&answer.text);
        // Around 0, where nothing is relative, what rounding leaves.
        let most = (self.tolerance * right.abs()).max(f64::EPSILON);
        let near = |said: f64| (said - right).abs() <= most;
        Ok(f64::from(u8::from(said.is_some_and(near))))
    }
}

/// What an answer marks as its result.
enum Marked<'a> {
    /// Behind `####`, as GSM8K writes it: `18 dollars`.
    Behind(&'a str),
    /// In `\boxed{…}`, as MATH writes it: LaTeX.
    Boxed(&'a str),
}

/// What stands behind the last `####`, or in the last `\boxed{…}`.
fn marked(text: &str) -> Option<Marked<'_>> {
    if let Some((_, said)) = text.rsplit_once("####") {
        return Some(Marked::Behind(said));
    }
    let (_, said) = text.rsplit_once("\\boxed")?;
    let said = said.trim_start();
    // An answer that ended inside its box is taken as far as it goes.
    Some(Marked::Boxed(
        braced(said).map_or(said.trim_start_matches('{'), |(inside, _)| inside),
    ))
}

/// The number that a mark names. In a box nothing may stand beside it that changes it, such as a root or a second number.
fn one_number(marked: &Marked) -> Option<f64> {
    match marked {
        Marked::Behind(said) => numbers(&plain(said)).next(),
        Marked::Boxed(said) => {
            let said = plain(said);
            let said = said.rsplit('=').next().unwrap_or(&said);
            if said.contains(['\\', '^', '_']) {
                return None;
            }
            let mut numbers = numbers(said);
            numbers.next().filter(|_| numbers.next().is_none())
        }
    }
}

/// The content of the braces that a text begins with, and what follows them.
fn braced(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        match depth {
            0 if c == '}' => return Some((&text[1..at], &text[at + 1..])),
            0 => return None,
            _ => {}
        }
    }
    None
}

/// LaTeX's ways to write a number as plain text: `\frac{3}{4}` is 3/4, `1{,}234` is 1,234, `50\%` is 50%.
fn plain(text: &str) -> String {
    /// What is only space or decoration around a number.
    const NOTHING: [&str; 12] = [
        "\\!",
        "\\,",
        "\\;",
        "\\ ",
        "\\left",
        "\\right",
        "\\%",
        "\\$",
        "^\\circ",
        "^{\\circ}",
        "\\(",
        "\\)",
    ];
    let mut text = text.replace('\u{2212}', "-").replace("{,}", ",");
    for decoration in NOTHING {
        text = text.replace(decoration, "");
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find('\\') {
        out += &rest[..at];
        let command = &rest[at + 1..];
        let length = command
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(command.len());
        let (name, after) = command.split_at(length);
        rest = match (name, after) {
            ("frac" | "dfrac" | "tfrac", after) => match fraction(after) {
                Some((above, below, after)) => {
                    join(&mut out, above, below);
                    after
                }
                None => {
                    out += "\\frac";
                    after
                }
            },
            // Words and units.
            ("text" | "mbox" | "mathrm" | "textbf", after) => {
                out.push(' ');
                braced(after).map_or(after, |(_, after)| after)
            }
            _ => {
                out.push('\\');
                command
            }
        };
    }
    out + rest
}

/// Numerator and denominator of `{3}{4}` or `34`, and what follows.
fn fraction(text: &str) -> Option<(&str, &str, &str)> {
    fn part(text: &str) -> Option<(&str, &str)> {
        let text = text.trim_start();
        match text.starts_with('{') {
            true => braced(text),
            false => text.split_at_checked(1),
        }
    }
    let (above, rest) = part(text)?;
    let (below, rest) = part(rest)?;
    Some((above.trim(), below.trim(), rest))
}

/// Writes `above/below`; behind a whole number it is a mixed one, `3\frac{1}{2}` being 7/2.
fn join(out: &mut String, above: &str, below: &str) {
    let whole = out.trim_end();
    let begin = whole.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| {
        at + whole[at..].chars().next().map_or(1, char::len_utf8)
    });
    let parts = (
        whole[begin..].parse::<i64>(),
        above.parse::<i64>(),
        below.parse::<i64>(),
    );
    let mixed = |(whole, above, below): (i64, i64, i64)| {
        Some(whole.checked_mul(below)?.checked_add(above)?.to_string())
    };
    let above = match parts {
        (Ok(whole), Ok(above), Ok(below)) => {
            mixed((whole, above, below)).inspect(|_| out.truncate(begin))
        }
        _ => None,
    }
    .unwrap_or_else(|| above.to_string());
    *out += &format!("{above}/{below}");
}

/// Numbers in a text, commas between thousands left out; a dot or comma at the end belongs to the sentence.
fn numbers(text: &str) -> impl Iterator<Item = f64> + '_ {
    let of_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | '-' | '+' | '/');
    let words = text.split(move |c| !of_number(c));
    words.flat_map(listed).filter_map(|word| {
        let word = word.trim_matches('/');
        match word.rsplit_once('/') {
            // `1/2/3` is a date or a path: its last number counts.
            Some((above, below)) if !above.contains('/') => {
                let value = last_of_sum(above)? / below.parse::<f64>().ok()?;
                value.is_finite().then_some(value)
            }
            Some((_, last)) => last_of_sum(last),
            None => last_of_sum(word),
        }
    })
}

/// `3-1` is a difference: its last number counts.
fn last_of_sum(word: &str) -> Option<f64> {
    let begin = word.rfind(['-', '+']).unwrap_or(0);
    word[begin..].parse::<f64>().ok().filter(|x| x.is_finite())
}

/// The numbers of `3,4`, or the one of `1,234.5`: commas with three digits behind each stand between thousands.
fn listed(word: &str) -> Vec<String> {
    let word = word.trim_end_matches(['.', ',', '-', '+', '/']);
    let mut parts = word.split(',');
    let first = parts.next().unwrap_or_default();
    let digits = |part: &str| part.bytes().take_while(u8::is_ascii_digit).count();
    let begins = digits(first.trim_start_matches(['-', '+']));
    let thousands = (1..=3).contains(&begins) && parts.all(|part| digits(part) == 3);
    match thousands {
        true => vec![word.replace(',', "")],
        false => word.split(',').map(str::to_string).collect(),
    }
}
