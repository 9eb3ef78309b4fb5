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

/// Numbers in a text, commas between thousands left out; a dot or comma at the end belongs to the sentence. A power such as `2^8` is
/// none: what it comes to is not said.
pub(super) fn numbers(text: &str) -> impl Iterator<Item = Number> + '_ {
    let runs = runs(text).filter(|run| !is_power(text, run));
    let words = runs.flat_map(|run| words(text, run));
    words.filter_map(|word| {
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

/// The numbers of a run, with their signs: a hyphen behind a letter or digit is none, as in `GPT-4`, `5-10` and `2020-01-15`, and a dot
/// there begins no number: `No.5`.
fn words(text: &str, run: Range<usize>) -> Vec<String> {
    let touches = |c: char| c.is_alphanumeric() || ")]}%°".contains(c);
    let is_joined = text[..run.start].ends_with(touches);
    let mut said = &text[run];
    let rest = said.trim_start_matches('.');
    if said.len() - rest.len() > usize::from(!is_joined) {
        said = rest;
    }
    if is_joined {
        said = said.strip_prefix(['-', '+']).unwrap_or(said);
    }
    let parts = said.split("..").enumerate();
    let parts = parts.map(|(n, part)| match n {
        0 => part,
        _ => part.trim_start_matches('.'),
    });
    parts.flat_map(listed).collect()
}

/// Whether a run is the exponent behind a `^`, or has one.
fn is_power(text: &str, run: &Range<usize>) -> bool {
    let (before, after) = (&text[..run.start], &text[run.end..]);
    let before = before.strip_suffix(['{', '(']).unwrap_or(before);
    let exponent = after.strip_prefix('^').map(|exponent| {
        let exponent = exponent.strip_prefix(['{', '(']).unwrap_or(exponent);
        exponent.strip_prefix(['-', '+']).unwrap_or(exponent)
    });
    before.ends_with('^')
        || exponent.is_some_and(|said| said.starts_with(|c: char| c.is_ascii_digit()))
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
    // `5/day`: a unit stands below. `16-bit`: a unit is joined.
    let unit =
        |sign: char| said.ends_with(sign) && text[run.end..].starts_with(char::is_alphabetic);
    let joint = ['/', '-'].into_iter().find(|sign| unit(*sign));
    let said = match joint {
        Some(sign) => said.strip_suffix(sign).unwrap_or(said),
        None => said,
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
    let after = match joint {
        Some(sign) => after.strip_prefix(sign).unwrap_or(after),
        None => after,
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

/// `3-1` is a difference or a range: its last number counts, whose sign the hyphen is not. The sign of `3--1` is its own.
fn last_of_sum(word: &str) -> Option<Number> {
    let signs = word.rmatch_indices(['-', '+']);
    let begin = signs
        .map(|(at, _)| at)
        .find(|at| !word[..*at].ends_with(['e', 'E']));
    let joins = |at: &usize| word[..*at].ends_with(|c: char| c.is_ascii_digit() || c == '.');
    let begin = begin.map_or(0, |at| at + usize::from(joins(&at)));
    Number::parse(&word[begin..])
}

/// The numbers of `3,4`, or the one of `1,234.5`: commas with three digits behind each stand between thousands. Of `1.234,5` and
/// `1.234.567` dots do.
fn listed(word: &str) -> Vec<String> {
    let word = word.trim_end_matches(['.', ',', '-', '+', '/']);
    let mut parts = word.split(',');
    let first = parts.next().unwrap_or_default();
    let digits = |part: &str| part.bytes().take_while(u8::is_ascii_digit).count();
    let begins = digits(first.trim_start_matches(['-', '+']));
    let thousands = (1..=3).contains(&begins) && parts.all(|part| digits(part) == 3);
    match (thousands, with_dots(word)) {
        (_, Some(number)) => vec![number],
        (true, None) => vec![word.replace(',', "")],
        (false, None) => word.split(',').map(str::to_string).collect(),
    }
}

/// `1.234,5` as `1234.5`, and `1.234.567` as `1234567`: two dots, or one and a comma, which no other number has.
fn with_dots(word: &str) -> Option<String> {
    let (whole, fraction) = match word.split_once(',') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (word, None),
    };
    let mut groups = whole.trim_start_matches(['-', '+']).split('.');
    let all_digits = |part: &str| part.bytes().all(|c| c.is_ascii_digit());
    let first = groups.next()?;
    let behind: Vec<&str> = groups.collect();
    let well_formed = (1..=3).contains(&first.len())
        && all_digits(first)
        && behind
            .iter()
            .all(|group| group.len() == 3 && all_digits(group))
        && fraction.is_none_or(|digits| !digits.is_empty() && all_digits(digits));
    let enough = behind.len() + usize::from(fraction.is_some()) > 1 && !behind.is_empty();
    let mut number = whole.replace('.', "");
    if let Some(digits) = fraction {
        number = format!("{number}.{digits}");
    }
    (well_formed && enough).then_some(number)
}
