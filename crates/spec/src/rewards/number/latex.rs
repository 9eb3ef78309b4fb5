//! LaTeX's ways to write a number, as plain text. What the numbers are is read elsewhere.

use super::forms::{ascii, mixed, powers, unemphasized};

/// The content of the braces that a text begins with, and what follows them.
pub(super) fn braced(text: &str) -> Option<(&str, &str)> {
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

/// `\frac{3}{4}` is 3/4, `1{,}234` is 1,234, `50\%` is 50%, `- 5` is -5, `**5**` is 5, `\text{12 cm}` is 12 cm.
pub(super) fn plain(text: &str) -> String {
    read(text, true)
}

/// The same of what is in a box. Words that begin with a number are the answer only where no other number is: `\text{12 cm}`, but
/// `\text{2 roots, sum }5` is 5.
pub(super) fn boxed(text: &str) -> String {
    let bare = read(text, false);
    let result = bare.rsplit('=').next().unwrap_or_default();
    match result.contains(|c: char| c.is_ascii_digit()) {
        true => bare,
        false => plain(text),
    }
}

fn read(text: &str, amounts: bool) -> String {
    /// What is only space or decoration around a number.
    const NOTHING: [&str; 10] = [
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
    ];
    let mut text = ascii(text).replace("\\text{,}", ",").replace("{,}", ",");
    for decoration in NOTHING {
        text = text.replace(decoration, "");
    }
    for bracket in ["\\(", "\\)"] {
        text = text.replace(bracket, "$");
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find('\\') {
        out += &rest[..at];
        rest = command(&mut out, &rest[at + 1..], amounts);
    }
    with_signs(&mixed(&powers(&unemphasized(&(out + rest)))))
}

/// Writes what a command stands for; returns what follows it.
fn command<'a>(out: &mut String, text: &'a str, amounts: bool) -> &'a str {
    let length = text
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (name, after) = text.split_at(length);
    match name {
        "frac" | "dfrac" | "tfrac" => match fraction(after) {
            Some((above, below, after)) => {
                join(out, above, below);
                after
            }
            None => {
                *out += "\\frac";
                after
            }
        },
        "text" | "mbox" | "mathrm" | "textbf" | "textrm" | "textit" => match braced(after) {
            Some((inside, after)) if is_number(inside) => {
                *out += inside;
                after
            }
            // A number with its unit, whose power is the unit's: `\text{12 cm}^2`.
            Some((inside, after)) if amounts && is_amount(inside) => {
                out.push(' ');
                *out += inside;
                without_exponent(after)
            }
            // Words and units.
            found => {
                out.push(' ');
                found.map_or(after, |(_, after)| without_exponent(after))
            }
        },
        "mathbf" | "mathsf" | "mathit" | "boldsymbol" | "bm" => match braced(after) {
            Some((inside, after)) if is_number(inside) => {
                *out += inside;
                after
            }
            _ => {
                out.push('\\');
                text
            }
        },
        _ => {
            out.push('\\');
            text
        }
    }
}

/// Whether braces hold a number and nothing else.
fn is_number(inside: &str) -> bool {
    let of_number = |c: char| c.is_ascii_digit() || ",.-+/%$ ".contains(c);
    inside.chars().all(of_number) && inside.contains(|c: char| c.is_ascii_digit())
}

/// Whether braces begin with a number and hold no other: `12 cm`, `$5 per day`, `5 m^2`.
fn is_amount(inside: &str) -> bool {
    let number = inside.trim_start_matches([' ', '$', '€', '£', '¥', '+', '-']);
    let unit = number.trim_start_matches(|c: char| c.is_ascii_digit() || ".,/".contains(c));
    number.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && unit.len() < number.len()
        && !without_powers(unit).contains(|c: char| c.is_ascii_digit())
}

fn without_powers(unit: &str) -> String {
    let mut out = String::new();
    let mut rest = unit;
    while let Some(at) = rest.find('^') {
        out += &rest[..at];
        rest = without_exponent(&rest[at..]);
    }
    out + rest
}

/// The power of a unit belongs to the unit: `\text{cm}^2`.
fn without_exponent(text: &str) -> &str {
    let Some(power) = text.trim_start_matches(' ').strip_prefix('^') else {
        return text;
    };
    match braced(power) {
        Some((_, after)) => after,
        None => power.get(1..).unwrap_or(text),
    }
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

/// Writes `above/below`; behind a whole number on its line it is a mixed one, `3\frac{1}{2}` being 7/2.
fn join(out: &mut String, above: &str, below: &str) {
    let whole = out.trim_end_matches([' ', '\t']);
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

/// Moves a sign to its number, over blanks and a currency: `- 5` and `-$5`. Between two terms it is an operation, at the beginning
/// of a line it lists something. A dash is a minus only where it touches its number.
fn with_signs(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['-', '+', DASH]) {
        out += &rest[..at];
        let sign = &rest[at..][..rest[at..].chars().next().map_or(1, char::len_utf8)];
        let behind = &rest[at + sign.len()..];
        let is_dash = sign.starts_with(DASH);
        let number = behind.trim_start_matches([' ', '\t', '$', '€', '£', '¥']);
        let is_number = number
            .trim_start_matches('.')
            .starts_with(|c: char| c.is_ascii_digit());
        let touches = number.len() == behind.len();
        let is_sign = is_number
            && (!is_dash || touches)
            && (is_sign_behind(&out) || is_sign_of_amount(&out, behind));
        rest = match is_sign {
            true => number,
            false => behind,
        };
        out += match is_dash && is_sign {
            true => "-",
            false => sign,
        };
    }
    out + rest
}

const DASH: char = '\u{2013}';

/// Whether a sign behind this belongs to a number, and does not join two terms.
fn is_sign_behind(before: &str) -> bool {
    // A `$` that opens mathematics.
    let opens = before.ends_with('$') && before.matches('$').count() % 2 == 1;
    let last = before.trim_end_matches([' ', '\t']).chars().last();
    opens || last.is_none_or(|c| "=({[,:<>|~*≈".contains(c))
}

/// Whether a sign stands right before a currency, behind a word: `it costs -$5`, not `$10 -$5`.
fn is_sign_of_amount(before: &str, behind: &str) -> bool {
    let word = before.trim_end_matches([' ', '\t']);
    behind.starts_with(['$', '€', '£', '¥'])
        && word.len() < before.len()
        && word.ends_with(char::is_alphabetic)
}
