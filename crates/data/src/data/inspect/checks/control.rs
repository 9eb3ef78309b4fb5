//! Control characters and invisible characters: bells, escapes, NULs, direction overrides. U+0080 to U+009F are mostly dashes and
//! curly quotes of Windows-1252 that were read as Latin-1: such rows are converted again and not dropped.

use super::mojibake::WINDOWS;
use super::{Check, Kind, Severity};
use crate::data::inspect::row::{Row, parts};

pub const KIND: Kind = Kind {
    id: "control",
    title: "Control characters",
    severity: Severity::Warning,
    cleans: true,
    cause: "leftovers of a terminal, a PDF or another encoding: the model learns to generate them, and they can control a reader's terminal",
    fix: "llmtui data clean IN --drop control --out OUT",
    make: |_| Some(Box::new(Control::default())),
};

const CONVERT: &str = "convert the original again: iconv -f windows-1252 -t utf-8 IN > OUT";

/// Rows by what they have first.
#[derive(Default)]
struct Control {
    windows: u64,
    other: u64,
}

impl Check for Control {
    fn row(&mut self, row: &Row) -> Option<String> {
        let parts = parts(&row.example);
        let all = || parts.iter().flat_map(|part| part.text.chars());
        let first = all().find(|c| is_debris(*c))?;
        let n = all().filter(|c| is_debris(*c)).count();
        let meant = windows(first).map(|c| format!(", {c} in Windows-1252"));
        match meant {
            Some(_) => self.windows += 1,
            None => self.other += 1,
        }
        let first = format!("U+{:04X}{}", u32::from(first), meant.unwrap_or_default());
        Some(match n {
            1 => first,
            n => format!("{first} and {} more", n - 1),
        })
    }

    fn evidence(&self) -> Option<String> {
        let words = "Windows-1252 that was read as Latin-1: dashes and quotes became control characters";
        (self.windows > 0).then(|| words.into())
    }

    fn fix(&self) -> Option<String> {
        match (self.windows, self.other) {
            (0, _) => None,
            (_, 0) => Some(CONVERT.into()),
            _ => Some(format!("{CONVERT}; then {}", KIND.fix)),
        }
    }
}

/// The letter of Windows-1252 that a control character was, where it has one.
fn windows(c: char) -> Option<char> {
    let at = u32::from(c).checked_sub(0x80)?;
    let meant = *WINDOWS.get(at as usize)?;
    (meant != c).then_some(meant)
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
    use super::KIND;

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
        assert_eq!(check.fix(), None);
    }

    /// `–` and `“”` of a Windows-1252 file that was converted as Latin-1: dropping the rows emptied it.
    #[test]
    fn rows_of_windows_1252_are_to_be_converted_again_and_not_dropped() {
        let mut check = testing::make("control", Setup::default());
        let found = check.row(&testing::text("1990\u{96}95 \u{93}good\u{94}"));
        assert_eq!(found.unwrap(), "U+0096, – in Windows-1252 and 2 more");
        let fix = check.fix().unwrap();
        assert!(fix.contains("iconv -f windows-1252") && !fix.contains("--drop"), "{fix}");
        assert!(check.evidence().unwrap().contains("read as Latin-1"));
        // Other debris is still dropped, after the text is right.
        check.row(&testing::text("\u{1b}[31m")).unwrap();
        assert!(check.fix().unwrap().ends_with(KIND.fix));
    }
}
