//! Numbers in plain text: digits with commas between thousands, fractions, exponents.

use std::ops::Range;

/// A number, and what it is exactly where it is a whole one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Number {
    pub value: f64,
    pub whole: Option<i128>,
}

impl Number {
    fn parse(text: &str) -> Option<Number> {
        let value = text.parse::<f64>().ok().filter(|x| x.is_finite())?;
        let whole = text.parse().ok().or_else(|| whole(value));
        Some(Number { value, whole })
    }

    fn over(self, below: Number) -> Option<Number> {
        let value = self.value / below.value;
        value.is_finite().then(|| Number {
            value,
            whole: whole(value),
        })
    }
}

/// A whole number, unless it is so large that an `f64` stands for several.
fn whole(value: f64) -> Option<i128> {
    let exact = value.fract() == 0.0 && value.abs() < (1u64 << f64::MANTISSA_DIGITS) as f64;
    exact.then_some(value as i128)
}

/// Numbers in a text, commas between thousands left out; a dot or comma at the end belongs to the sentence.
pub(super) fn numbers(text: &str) -> impl Iterator<Item = Number> + '_ {
    let words = runs(text).map(|run| &text[run]);
    words.flat_map(listed).filter_map(|word| {
        let word = word.trim_matches('/');
        match word.rsplit_once('/') {
            // `1/2/3` is a date or a path: its last number counts.
            Some((above, below)) if !above.contains('/') => {
                last_of_sum(above)?.over(Number::parse(below)?)
            }
            Some((_, last)) => last_of_sum(last),
            None => last_of_sum(word),
        }
    })
}

/// The number of a text in which nothing changes it: words and units may stand beside it, no second number, no operation and
/// no variable.
pub(super) fn only_number(text: &str) -> Option<Number> {
    let mut with_digits =
        runs(text).filter(|run| text[run.clone()].contains(|c: char| c.is_ascii_digit()));
    let run = with_digits.next()?;
    if with_digits.next().is_some() {
        return None;
    }
    let said = text[run.clone()].trim_end_matches(['.', ',']);
    // `5/day`: a unit stands below.
    let per = said.ends_with('/') && text[run.end..].starts_with(char::is_alphabetic);
    let said = if per {
        said.trim_end_matches('/')
    } else {
        said
    };
    let words = listed(said);
    let [word] = words.as_slice() else {
        return None;
    };
    let number = match (said.ends_with(['-', '+', '/']), word.split_once('/')) {
        (true, _) => None,
        (false, Some((above, below))) => Number::parse(above)?.over(Number::parse(below)?),
        (false, None) => Number::parse(word),
    };
    let (before, after) = (&text[..run.start], &text[run.start + said.len()..]);
    let after = if per {
        after.trim_start_matches('/')
    } else {
        after
    };
    number.filter(|_| !is_changed(before, after))
}

/// Whether a number means something else because of what stands around it.
fn is_changed(before: &str, after: &str) -> bool {
    const OPERATIONS: &str = "+*^_\\|<>=√∞π×÷·±";
    let operates = |text: &str| text.contains(|c| OPERATIONS.contains(c)) || subtracts(text);
    let is_listed = before.contains(',') || after.trim_start().starts_with(',');
    let in_brackets = before.contains(['(', '[', '{']);
    let is_argument = before.ends_with('(')
        && before
            .trim_end_matches('(')
            .ends_with(char::is_alphanumeric);
    operates(before)
        || operates(after)
        || before.ends_with(char::is_alphabetic)
        || is_argument
        || after.starts_with('!')
        || begins_with_variable(after)
        || is_listed && in_brackets
}

/// A minus that is not the hyphen of a word, or a slash that is not that of `km/h`.
fn subtracts(text: &str) -> bool {
    text.match_indices(['-', '/']).any(|(at, _)| {
        let hyphen = text[..at].ends_with(char::is_alphabetic)
            && text[at + 1..].starts_with(char::is_alphabetic);
        !hyphen
    })
}

/// `3x`, not the unit of `3 m` or `3 cm`.
fn begins_with_variable(after: &str) -> bool {
    let mut letters = after.trim_start().chars();
    let is_variable = letters
        .next()
        .is_some_and(|c| "abciknpqrtuvwxyz".contains(c));
    // `p.m.`
    let word = letters.as_str().trim_start_matches('.');
    is_variable && !word.starts_with(char::is_alphabetic)
}

/// The parts of a text that consist of what numbers consist of.
fn runs(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() && piece(bytes, at) == 0 {
            at += 1;
        }
        let begin = at;
        loop {
            match bytes.get(at).map_or(0, |_| piece(bytes, at)) {
                0 => break,
                length => at += length,
            }
        }
        (begin < at).then_some(begin..at)
    })
}

/// How many bytes from here on belong to a number: one of its characters, or an exponent behind a digit.
fn piece(bytes: &[u8], at: usize) -> usize {
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    if is_digit(at) || b".,-+/".contains(&bytes[at]) {
        return 1;
    }
    if !matches!(bytes[at], b'e' | b'E') || at == 0 || !is_digit(at - 1) {
        return 0;
    }
    let sign = usize::from(matches!(bytes.get(at + 1), Some(b'-' | b'+')));
    let digits = (at + 1 + sign..).take_while(|at| is_digit(*at)).count();
    let end = at + 1 + sign + digits;
    // Of `3e5f` it is none.
    match digits > 0 && !bytes.get(end).is_some_and(u8::is_ascii_alphabetic) {
        true => end - at,
        false => 0,
    }
}

/// `3-1` is a difference: its last number counts.
fn last_of_sum(word: &str) -> Option<Number> {
    let signs = word.rmatch_indices(['-', '+']);
    let begin = signs
        .map(|(at, _)| at)
        .find(|at| !word[..*at].ends_with(['e', 'E']));
    Number::parse(&word[begin.unwrap_or(0)..])
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
