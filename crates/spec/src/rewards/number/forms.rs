//! Other ways to write a number than in ASCII digits and LaTeX, as plain text: emphasis of Markdown, Unicode's digits, signs,
//! fractions and exponents, blanks between thousands, powers of ten, mixed fractions.

/// Fractions of one character.
const FRACTIONS: [(char, &str); 15] = [
    ('½', "1/2"),
    ('⅓', "1/3"),
    ('⅔', "2/3"),
    ('¼', "1/4"),
    ('¾', "3/4"),
    ('⅕', "1/5"),
    ('⅖', "2/5"),
    ('⅗', "3/5"),
    ('⅘', "4/5"),
    ('⅙', "1/6"),
    ('⅚', "5/6"),
    ('⅛', "1/8"),
    ('⅜', "3/8"),
    ('⅝', "5/8"),
    ('⅞', "7/8"),
];
const SUPERSCRIPTS: &str = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺";
const OF_SUPERSCRIPTS: &[u8] = b"0123456789-+";

/// Unicode's digits, signs, fractions and exponents in ASCII: `３½` is `3 1/2`, `m²` is `m^2`, `1 000` with a thin space `1000`.
pub(super) fn ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut raised, mut digit) = (false, false);
    // Where the digits of a group end behind a separator that was left out.
    let mut group_ends = None;
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let superscript = SUPERSCRIPTS.chars().position(|s| s == c);
        let fraction = FRACTIONS.iter().find(|(fraction, _)| *fraction == c);
        if let Some(at) = superscript {
            if !raised {
                out.push('^');
            }
            out.push(char::from(OF_SUPERSCRIPTS[at]));
        } else if let Some((_, fraction)) = fraction {
            if digit {
                out.push(' ');
            }
            out.push_str(fraction);
        } else if separates(c) && is_group(&out, group_ends, rest.as_str()) {
            group_ends = Some(out.len() + 3);
        } else {
            out.push(match c {
                // Minus, hyphen, non-breaking hyphen.
                '\u{2212}' | '\u{2010}' | '\u{2011}' => '-',
                '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c),
                _ => c,
            });
        }
        (raised, digit) = (
            superscript.is_some(),
            out.ends_with(|c: char| c.is_ascii_digit()),
        );
    }
    out
}

/// What stands between thousands beside the comma: no-break, thin and narrow blanks, apostrophes, Python's underscore.
fn separates(c: char) -> bool {
    "\u{a0}\u{2009}\u{202f}'’_".contains(c)
}

/// Whether thousands go on behind a separator: one to three digits or a group before it, and three digits after it.
fn is_group(before: &str, group_ends: Option<usize>, after: &str) -> bool {
    let digits = |c: &char| c.is_ascii_digit();
    let begun = before.chars().rev().take_while(digits).count();
    let first = &before[..before.len() - begun];
    let is_first = (1..=3).contains(&begun)
        && !first.ends_with(|c: char| c.is_alphanumeric() || ".,_'’".contains(c));
    after.chars().take_while(digits).count() == 3 && (is_first || group_ends == Some(before.len()))
}

/// Without the marks of Markdown around words: `**42**`, `_42_`, `` `42` ``. A `*` between two factors stays.
pub(super) fn unemphasized(text: &str) -> String {
    let lines = text.split_inclusive('\n');
    lines.map(|line| line_unemphasized(line, DEPTH)).collect()
}

/// Marks that may lie in one another: bold, italic, code.
const DEPTH: usize = 3;
/// Bytes within which an emphasis ends.
const FAR: usize = 1_000;

fn line_unemphasized(line: &str, depth: usize) -> String {
    if depth == 0 {
        return line.into();
    }
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(['*', '_', '`']) {
        let (before, marked) = rest.split_at(at);
        out += before;
        let mark = &marked[..run_of(marked)];
        let behind = &marked[mark.len()..];
        let joins = |c: char| c.is_alphanumeric() || ")]}".contains(c);
        let opens = !out.ends_with(joins) && !behind.starts_with(char::is_whitespace);
        let closed = opens.then(|| closing(behind, mark)).flatten();
        match closed {
            Some(end) => {
                out += &line_unemphasized(&behind[..end], depth - 1);
                rest = &behind[end + mark.len()..];
            }
            None => {
                out += mark;
                rest = behind;
            }
        }
    }
    out + rest
}

/// Bytes of the run of one mark that a text begins with.
fn run_of(text: &str) -> usize {
    let first = text.chars().next();
    text.chars()
        .take_while(|c| Some(*c) == first)
        .map(char::len_utf8)
        .sum()
}

/// Where the mark that closes an emphasis stands: not behind a blank, and not before a word.
fn closing(text: &str, mark: &str) -> Option<usize> {
    let text = &text[..text.floor_char_boundary(FAR)];
    let mut at = 0;
    while let Some(found) = text[at..].find(mark) {
        let begin = at + found;
        let run = run_of(&text[begin..]);
        let (inside, behind) = (&text[..begin], &text[begin + run..]);
        let closes = !inside.is_empty()
            && !inside.ends_with(char::is_whitespace)
            && !behind.starts_with(char::is_alphanumeric);
        if run == mark.len() && closes {
            return Some(begin);
        }
        at = begin + run;
    }
    None
}

/// `3 × 10^5` is `3e5` and `10^{-2}` is `1e-2`; the power of a unit, as in `m^2`, is left out.
pub(super) fn powers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('^') {
        out += &rest[..at];
        rest = &rest[at..];
        let Some((exponent, behind)) = exponent(&rest[1..]) else {
            out.push('^');
            rest = &rest[1..];
            continue;
        };
        match ten(&out) {
            Some((keep, factor)) => {
                out.truncate(keep);
                out += if factor { "e" } else { "1e" };
                out += exponent;
                // Letters behind an exponent would make it none.
                if behind.starts_with(char::is_alphabetic) {
                    out.push(' ');
                }
                rest = behind;
            }
            None if out.ends_with(char::is_alphabetic) => rest = behind,
            None => {
                out.push('^');
                rest = &rest[1..];
            }
        }
    }
    out + rest
}

/// The exponent behind a `^`, with or without brackets, and what follows it.
fn exponent(text: &str) -> Option<(&str, &str)> {
    let (closing, inside) = match text.chars().next()? {
        '{' => (Some('}'), &text[1..]),
        '(' => (Some(')'), &text[1..]),
        _ => (None, text),
    };
    let sign = usize::from(inside.starts_with(['-', '+']));
    let digits = inside[sign..]
        .bytes()
        .take_while(u8::is_ascii_digit)
        .count();
    let (found, behind) = inside.split_at(sign + digits);
    let behind = match closing {
        Some(c) => behind.strip_prefix(c)?,
        None => behind,
    };
    (digits > 0).then_some((found, behind))
}

/// Where the 10 that a text ends with begins, and whether a factor stands before it: then from behind that factor.
fn ten(text: &str) -> Option<(usize, bool)> {
    let before = text.strip_suffix("10")?;
    if before.ends_with(|c: char| c.is_ascii_digit() || ".,".contains(c)) {
        return None;
    }
    let blank = |text: &str| text.trim_end_matches([' ', '\t']).len();
    let times = &before[..blank(before)];
    let factor = ["×", "·", "*", "x", "\\times", "\\cdot"]
        .iter()
        .find_map(|sign| times.strip_suffix(*sign));
    let factor = factor.map(|factor| &factor[..blank(factor)]);
    match factor.filter(|factor| factor.ends_with(|c: char| c.is_ascii_digit())) {
        Some(factor) => Some((factor.len(), true)),
        None => Some((before.len(), false)),
    }
}

/// `3 1/2` is `7/2`: a whole number before a fraction below 1.
pub(super) fn mixed(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('/') {
        let (before, behind) = (&rest[..at], &rest[at + 1..]);
        out += before;
        rest = behind;
        let below = behind.bytes().take_while(u8::is_ascii_digit).count();
        let ends = !behind[below..].starts_with(['/', '.', ',', '^']);
        let read = || {
            let above = digits_at_the_end(&out)?;
            let blank = out[..above].strip_suffix(' ')?;
            let whole = digits_at_the_end(blank)?;
            let begins =
                !blank[..whole].ends_with(|c: char| c.is_alphanumeric() || "/.,^".contains(c));
            let parse = |text: &str| text.parse::<u32>().ok();
            let parts = (
                parse(&blank[whole..])?,
                parse(&out[above..])?,
                parse(&behind[..below])?,
            );
            (begins && ends && parts.1 < parts.2).then_some((whole, parts))
        };
        if let Some((begin, (whole, above, below))) = read() {
            let above = u64::from(whole) * u64::from(below) + u64::from(above);
            out.truncate(begin);
            out += &above.to_string();
        }
        out.push('/');
    }
    out + rest
}

/// Where the digits begin that a text ends with.
fn digits_at_the_end(text: &str) -> Option<usize> {
    let digits = text.bytes().rev().take_while(u8::is_ascii_digit).count();
    (digits > 0).then_some(text.len() - digits)
}
