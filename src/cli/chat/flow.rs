//! Words of a stream on a terminal: a line breaks before the word that does not fit, not inside it.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// What has been printed of the line, and the word that may still grow.
#[derive(Debug, Default)]
pub struct Flow {
    /// Columns of the terminal; without it text passes as it is.
    columns: Option<usize>,
    /// Columns that the line has taken.
    at: usize,
    /// Blanks before the word, and the word.
    blanks: String,
    word: String,
}

impl Flow {
    pub fn new(columns: Option<usize>) -> Flow {
        Flow {
            columns,
            ..Flow::default()
        }
    }

    /// What can be printed now that this piece is there.
    pub fn push(&mut self, piece: &str) -> String {
        let Some(columns) = self.columns else {
            return piece.to_string();
        };
        let mut out = String::new();
        for c in piece.chars() {
            match c {
                '\n' => {
                    out.push_str(&self.rest());
                    out.push(c);
                    self.at = 0;
                }
                ' ' | '\t' => {
                    if !self.word.is_empty() {
                        out.push_str(&self.rest());
                    }
                    self.blanks.push(c);
                }
                c => {
                    self.word.push(c);
                    // A word that no line holds is not waited for.
                    if self.word.width() >= columns {
                        out.push_str(&self.rest());
                    }
                }
            }
        }
        out
    }

    /// What was held back.
    pub fn rest(&mut self) -> String {
        let columns = self.columns.unwrap_or(usize::MAX);
        let (blanks, word) = (
            std::mem::take(&mut self.blanks),
            std::mem::take(&mut self.word),
        );
        // A tab goes to the next eighth column.
        let behind = blanks.chars().fold(self.at, |at, c| match c {
            '\t' => (at / 8 + 1) * 8,
            c => at + c.width().unwrap_or(0),
        });
        let end = behind + word.width();
        if end > columns && self.at > 0 && !blanks.is_empty() {
            self.at = word.width();
            return match word.is_empty() {
                true => String::new(),
                false => format!("\n{word}"),
            };
        }
        self.at = match end > columns {
            // A full line ends at its last column, not at the next line's first.
            true => (end - 1) % columns + 1,
            false => end,
        };
        blanks + &word
    }

    /// The cursor stands at the beginning of a line again.
    pub fn newline(&mut self) {
        self.at = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flowed(columns: usize, pieces: &[&str]) -> String {
        let mut flow = Flow::new(Some(columns));
        let mut out: String = pieces.iter().map(|piece| flow.push(piece)).collect();
        out.push_str(&flow.rest());
        out
    }

    #[test]
    fn lines_break_at_blanks_whatever_the_pieces_are() {
        let text = "to be or not to be";
        assert_eq!(flowed(8, &[text]), "to be or\nnot to\nbe");
        let letters: Vec<String> = text.chars().map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        assert_eq!(flowed(8, &letters), "to be or\nnot to\nbe");
        assert_eq!(
            flowed(40, &["fn a() {\n", "    b\n}"]),
            "fn a() {\n    b\n}"
        );
        assert_eq!(flowed(4, &["abcdefgh ij"]), "abcdefgh\nij");
        assert_eq!(flowed(4, &["日本 語"]), "日本\n語");
        let mut pipe = Flow::new(None);
        assert_eq!(pipe.push("a long line"), "a long line");
        assert_eq!(pipe.rest(), "");
    }
}
