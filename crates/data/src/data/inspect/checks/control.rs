//! Control characters and invisible characters: bells, escapes, NULs, direction overrides.

use super::{Check, Kind, Severity};
use crate::data::inspect::row::{Row, parts};

pub const KIND: Kind = Kind {
    id: "control",
    title: "Control characters",
    severity: Severity::Warning,
    cleans: true,
    cause: "leftovers of a terminal, a PDF or another encoding: the model learns to generate them, and they can control a reader's terminal",
    fix: "llmtui data clean IN --drop control --out OUT",
    make: |_| Some(Box::new(Control)),
};

struct Control;

impl Check for Control {
    fn row(&mut self, row: &Row) -> Option<String> {
        let parts = parts(&row.example);
        let all = || parts.iter().flat_map(|part| part.text.chars());
        let first = all().find(|c| is_debris(*c))?;
        let n = all().filter(|c| is_debris(*c)).count();
        Some(match n {
            1 => format!("U+{:04X}", u32::from(first)),
            n => format!("U+{:04X} and {} more", u32::from(first), n - 1),
        })
    }
}

/// Controls other than tab and line ends, byte-order marks, direction overrides, tag characters. Joiners stay: Persian,
/// Hindi and emoji need them.
fn is_debris(c: char) -> bool {
    match c {
        '\n' | '\t' | '\r' => false,
        c if c.is_control() => true,
        c => matches!(c, '\u{feff}' | '\u{200b}' | '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Setup, testing};

    #[test]
    fn debris_is_named_by_its_number_and_joiners_are_none() {
        let mut check = testing::make("control", Setup::default());
        let row = testing::text("a\u{1b}[31mred\u{0}");
        assert_eq!(check.row(&row).unwrap(), "U+001B and 1 more");
        assert_eq!(check.row(&testing::text("x\u{202e}y")).unwrap(), "U+202E");
        assert_eq!(
            check.row(&testing::text("tab\tline\r\n👩\u{200d}🚀 می\u{200c}خواهم")),
            None
        );
    }
}
