//! Plain text as rows: paragraphs separated by empty lines, or lines if there are none. A document of a gigabyte can neither
//! be browsed nor have duplicates; its paragraphs can.

/// What ends a row of a plain text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// An empty line.
    Paragraph,
    /// Every line.
    Line,
}

impl Cut {
    /// By the beginning of a text.
    pub fn of(beginning: &str) -> Cut {
        match beginning.contains("\n\n") || beginning.contains("\n\r\n") {
            true => Cut::Paragraph,
            false => Cut::Line,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Cut::Paragraph => "plain text, by paragraph",
            Cut::Line => "plain text, by line",
        }
    }
}

/// Cuts pieces of a text that come one after the other.
#[derive(Debug)]
pub struct Paragraphs {
    cut: Cut,
    held: String,
    /// Line of the held text's beginning, from 1; line of the next piece.
    begun: u64,
    line: u64,
}

impl Paragraphs {
    pub fn new(cut: Cut, line: u64) -> Paragraphs {
        Paragraphs {
            cut,
            held: String::new(),
            begun: line,
            line,
        }
    }

    /// Takes lines in and hands out the rows that are whole, each with its first line.
    pub fn push(&mut self, piece: &str, rows: &mut Vec<(u64, String)>) {
        for line in piece.split_inclusive('\n') {
            let blank = line.trim().is_empty();
            match self.cut {
                Cut::Paragraph if blank => self.end(rows),
                Cut::Line => {
                    self.take(line);
                    if line.ends_with('\n') {
                        self.end(rows);
                    }
                }
                Cut::Paragraph => self.take(line),
            }
            self.line += u64::from(line.ends_with('\n'));
        }
    }

    fn take(&mut self, line: &str) {
        if self.held.is_empty() {
            self.begun = self.line;
        }
        self.held.push_str(line);
    }

    /// Returns the held text.
    pub fn end(&mut self, rows: &mut Vec<(u64, String)>) {
        let text = self.held.trim_end_matches(['\n', '\r']);
        if !text.trim().is_empty() {
            rows.push((self.begun, text.to_string()));
        }
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(pieces: &[&str]) -> Vec<(u64, String)> {
        let mut rows = Vec::new();
        let mut paragraphs = Paragraphs::new(Cut::of(&pieces.concat()), 1);
        for piece in pieces {
            paragraphs.push(piece, &mut rows);
        }
        paragraphs.end(&mut rows);
        rows
    }

    fn row(line: u64, text: &str) -> (u64, String) {
        (line, text.to_string())
    }

    #[test]
    fn paragraphs_know_their_first_line_and_pieces_do_not_show() {
        let expected = [row(1, "ROMEO:\nAy me!"), row(5, "JULIET:"), row(7, "end")];
        assert_eq!(cut(&["ROMEO:\nAy me!\n\n\nJULIET:\n \nend"]), expected);
        assert_eq!(
            cut(&["ROMEO:\n", "Ay me!\n\n\nJULIET:\n", " \nend"]),
            expected
        );
    }

    #[test]
    fn without_empty_lines_every_line_is_a_row() {
        assert_eq!(
            cut(&["one\ntwo\r\n", "three"]),
            [row(1, "one"), row(2, "two"), row(3, "three")]
        );
        assert!(cut(&["\n", ""]).is_empty());
    }
}
