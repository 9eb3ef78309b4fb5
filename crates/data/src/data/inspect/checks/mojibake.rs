//! UTF-8 that was read as Windows-1252 or Latin-1 and written as UTF-8 again: `â€™` for `’`, `Ã©` for `é`.

use super::broken_unicode::around;
use super::{Check, Kind, Severity};
use crate::data::inspect::row::{Row, parts};

pub const KIND: Kind = Kind {
    id: "mojibake",
    title: "Text decoded wrongly (mojibake)",
    severity: Severity::Warning,
    cleans: true,
    cause: "UTF-8 was read as Windows-1252 and saved again: the model learns the garbled characters",
    fix: "read the original as UTF-8, or repair it, e.g. with ftfy; or llmtui data clean IN --drop mojibake --out OUT",
    make: |_| Some(Box::new(Mojibake)),
};

struct Mojibake;

impl Check for Mojibake {
    fn row(&mut self, row: &Row) -> Option<String> {
        let parts = parts(&row.example);
        let found = parts.iter().find_map(|part| {
            let (at, meant) = first(&part.text)?;
            Some((around(&part.text, at, 10), meant))
        });
        found.map(|(piece, meant)| format!("“{piece}” was “{meant}”"))
    }
}

/// Windows-1252's letters for the bytes 0x80 to 0x9F; five of them have none and pass as they are.
pub(super) const WINDOWS: [char; 32] = [
    '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}',
    '\u{90}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
];

/// The byte of a letter in Windows-1252 or Latin-1, from 0x80 on.
fn byte(c: char) -> Option<u8> {
    match u32::from(c) {
        c @ 0x80..=0xff => Some(c as u8),
        _ => WINDOWS
            .iter()
            .position(|w| *w == c)
            .map(|i| 0x80 + i as u8),
    }
}

/// The first place where letters are the bytes of one letter, and which.
fn first(text: &str) -> Option<(usize, char)> {
    let (mut previous, mut other_script) = (' ', false);
    for (at, c) in text.char_indices() {
        let rest = &text[at + c.len_utf8()..];
        let lead = byte(c).filter(|b| *b >= 0xc2);
        let meant = lead.and_then(|lead| decode(lead, rest));
        match (lead, meant) {
            (Some(0xc2 | 0xc3), Some(_)) if ends_a_shout(previous, rest) => {}
            // Leads of Latin letters, marks and emoji precede such a byte in no language.
            (Some(0xc2 | 0xc3 | 0xe2 | 0xef | 0xf0), Some(meant)) => return Some((at, meant)),
            // Those of other scripts may, once; text of such a script has them one after the other.
            (Some(_), Some(meant)) if other_script => return Some((at, meant)),
            (Some(_), Some(_)) => other_script = true,
            _ if byte(c).is_some_and(|b| b < 0xc0) => {}
            _ => other_script = false,
        }
        previous = c;
    }
    None
}

/// `“AMANHÃ”`: a capital letter in front, a closing mark after.
fn ends_a_shout(previous: char, rest: &str) -> bool {
    previous.is_uppercase() && rest.starts_with(['”', '’', '»', '…', '–', '—'])
}

/// The letter that `lead` and the bytes after it make.
fn decode(lead: u8, rest: &str) -> Option<char> {
    let behind = match lead {
        0xc2..=0xdf => 1,
        0xe0..=0xef => 2,
        0xf0..=0xf4 => 3,
        _ => return None,
    };
    let mut bytes = vec![lead];
    for c in rest.chars().take(behind) {
        bytes.push(byte(c).filter(|b| (0x80..0xc0).contains(b))?);
    }
    let letter = std::str::from_utf8(&bytes).ok()?.chars().next()?;
    // A control character is nobody's letter.
    (!letter.is_control() || letter == '\u{a0}').then_some(letter)
}

#[cfg(test)]
mod tests {
    use super::super::{Setup, testing};
    use super::*;

    /// A text decoded with the wrong encoding.
    fn broken(text: &str) -> String {
        let letter = |b: u8| match b {
            0x80..=0x9f => WINDOWS[usize::from(b - 0x80)],
            b => char::from(b),
        };
        text.bytes().map(letter).collect()
    }

    #[test]
    fn wrongly_read_texts_are_found_with_what_was_meant() {
        for (text, meant) in [
            ("It’s", '’'),
            ("café au lait", 'é'),
            ("“quoted”", '“'),
            ("5 °C", '°'),
            ("\u{feff}start", '\u{feff}'),
            ("fun 😀", '😀'),
            ("привет, мир", 'р'),
            ("naïve", 'ï'),
        ] {
            let found = first(&broken(text));
            assert_eq!(found.map(|(_, c)| c), Some(meant), "{text}: {}", broken(text));
        }
        let mut check = testing::make("mojibake", Setup::default());
        let words = check.row(&testing::text("don\u{e2}\u{20ac}\u{2122}t")).unwrap();
        assert_eq!(words, "“donâ€™t” was “’”");
    }

    #[test]
    fn honest_text_is_left_alone() {
        for text in [
            "It’s a café in São Paulo, 5 °C, «naïve», ÂGE, Ça va, âme, ÃO",
            "Größe, Ærøskøbing, Ålesund, Íslensku, Škoda, Œuvre",
            "“ÉTÉ” – l’été, « CAFÉ », “AMANHÃ”",
            "привет, мир, 日本語, العربية, 😀",
            "ð and þ in Old English: ðæt",
        ] {
            assert_eq!(first(text), None, "{text}");
        }
    }
}
