//! A list of Python's calls with keyword arguments that are literals: `[f(a=1, b=["x", None]), g()]`.

use serde_json::{Map, Value};

/// Deepest nesting of a literal.
const MAX_DEPTH: usize = 64;

/// Name and arguments of each call; `None` if the text is something else. One call may stand without its list.
pub(super) fn calls(text: &str) -> Option<Vec<(String, Value)>> {
    let mut rest = Rest(text.trim());
    let calls = match rest.take('[') {
        true => rest.items(']', Rest::call)?,
        false => vec![rest.call()?],
    };
    rest.0.trim().is_empty().then_some(calls)
}

/// Whether a name may have this letter.
pub(super) fn is_name_part(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.' | '-')
}

/// What is not read yet.
struct Rest<'a>(&'a str);

impl Rest<'_> {
    fn take(&mut self, c: char) -> bool {
        let rest = self.0.trim_start().strip_prefix(c);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// Items with commas between them, up to `end`.
    fn items<T>(
        &mut self,
        end: char,
        mut item: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let mut items = Vec::new();
        while !self.take(end) {
            items.push(item(self)?);
            if !self.take(',') {
                return self.take(end).then_some(items);
            }
        }
        Some(items)
    }

    fn call(&mut self) -> Option<(String, Value)> {
        let name = self.name()?;
        if !self.take('(') {
            return None;
        }
        let arguments = self.items(')', |rest| {
            let key = rest.name()?;
            let is_said = rest.take('=');
            is_said.then_some(())?;
            Some((key, rest.literal(MAX_DEPTH)?))
        })?;
        Some((name, Value::Object(arguments.into_iter().collect())))
    }

    fn name(&mut self) -> Option<String> {
        let text = self.0.trim_start();
        let len = text.find(|c| !is_name_part(c)).unwrap_or(text.len());
        let (name, rest) = text.split_at(len);
        self.0 = rest;
        (!name.is_empty()).then(|| name.to_string())
    }

    fn literal(&mut self, depth: usize) -> Option<Value> {
        let depth = depth.checked_sub(1)?;
        if self.take('[') {
            return Some(self.items(']', |rest| rest.literal(depth))?.into());
        }
        if self.take('{') {
            let pairs = self.items('}', |rest| {
                let key = rest.text()?;
                rest.take(':').then_some(())?;
                Some((key, rest.literal(depth)?))
            })?;
            return Some(Value::Object(pairs.into_iter().collect::<Map<_, _>>()));
        }
        if self.0.trim_start().starts_with(['"', '\'']) {
            return self.text().map(Value::String);
        }
        let text = self.0.trim_start();
        let len =
            text.find(|c: char| matches!(c, ',' | ')' | ']' | '}' | ':') || c.is_whitespace());
        let (word, rest) = text.split_at(len.unwrap_or(text.len()));
        self.0 = rest;
        match word {
            "None" | "null" => Some(Value::Null),
            "True" | "true" => Some(true.into()),
            "False" | "false" => Some(false.into()),
            number => serde_json::from_str(number).ok().filter(Value::is_number),
        }
    }

    /// A text in single or double quotes.
    fn text(&mut self) -> Option<String> {
        let whole = self.0.trim_start();
        let quote = whole.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let mut text = String::new();
        let mut chars = whole.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                c if c == quote => {
                    self.0 = &whole[at + quote.len_utf8()..];
                    return Some(text);
                }
                '\\' => match chars.next()?.1 {
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    'r' => text.push('\r'),
                    'b' => text.push('\u{8}'),
                    'f' => text.push('\u{c}'),
                    known @ ('\\' | '"' | '\'' | '/') => text.push(known),
                    kind @ ('x' | 'u') => match character(&mut chars, kind) {
                        Some(c) => text.push(c),
                        None => text.extend(['\\', kind]),
                    },
                    other => text.extend(['\\', other]),
                },
                c => text.push(c),
            }
        }
        None
    }
}

/// The character of `\x` and two digits or of `\u` and four, of which two may be a pair of surrogates; `None` takes nothing.
fn character(
    chars: &mut (impl Iterator<Item = (usize, char)> + Clone),
    kind: char,
) -> Option<char> {
    let mut ahead = chars.clone();
    let n = if kind == 'x' { 2 } else { 4 };
    let code = number(&mut ahead, n)?;
    let code = match code {
        0xd800..=0xdbff => {
            let follows = ahead.next()?.1 == '\\' && ahead.next()?.1 == 'u';
            follows.then_some(())?;
            let second = number(&mut ahead, 4)?;
            let low = second.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
            0x10000 + ((code - 0xd800) << 10) + low
        }
        code => code,
    };
    let c = char::from_u32(code)?;
    *chars = ahead;
    Some(c)
}

/// The number of so many hexadecimal digits.
fn number(chars: &mut impl Iterator<Item = (usize, char)>, n: usize) -> Option<u32> {
    (0..n).try_fold(0, |number, _| {
        Some(16 * number + chars.next()?.1.to_digit(16)?)
    })
}
