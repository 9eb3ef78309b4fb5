//! Documents split or truncated to the row length, and a count of what was lost.

use super::TooLong;
use crate::base::human::grouped;
use crate::data::Unit;
use crate::data::store::Store;

/// A document, or a part of one. The first is given, the others are predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// In the store.
    pub start: u64,
    /// At least 2; a label has 1.
    pub len: u32,
}

impl Piece {
    /// Places that it takes in a row: one for each prediction.
    pub fn places(&self) -> usize {
        self.len as usize - 1
    }
}

/// What did not come through whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Account {
    pub split: u64,
    pub truncated: u64,
    pub dropped: u64,
    /// Tokens that went with the documents counted as truncated or dropped.
    pub lost_tokens: u64,
    /// Documents of which nothing is supervised: too short, without an answer, or their answer was cut off.
    pub nothing_supervised: u64,
    /// Those of them that are longer than a row and whose supervised tokens lie beyond it.
    pub cut_off: u64,
    /// Prompts whose reference answer, as a text to learn, goes on beyond the row.
    pub cut_references: u64,
}

impl Account {
    /// Counts the sequences of one example, added since `before`, once: by the worst outcome.
    fn of_example(self, before: Account) -> Account {
        let now = Account {
            lost_tokens: self.lost_tokens,
            ..before
        };
        let Account {
            split,
            truncated,
            dropped,
            nothing_supervised,
            cut_off,
            ..
        } = before;
        match () {
            () if self.dropped > dropped => Account {
                dropped: dropped + 1,
                ..now
            },
            () if self.nothing_supervised > nothing_supervised => Account {
                // Its tokens are not among those of the truncated documents, as it is not.
                nothing_supervised: nothing_supervised + 1,
                cut_off: cut_off + u64::from(self.cut_off > cut_off),
                ..before
            },
            () if self.truncated > truncated => Account {
                truncated: truncated + 1,
                ..now
            },
            () if self.split > split => Account {
                split: split + 1,
                ..now
            },
            () => now,
        }
    }

    /// One line for each kind of loss; `source` and `seq_len` are for people.
    pub fn notes(&self, source: &str, documents: u64, seq_len: usize) -> Vec<String> {
        let documents = grouped(documents);
        let row = grouped(seq_len as u64);
        let longer = format!("of {documents} documents are longer than a row of {row} tokens");
        let lost = format!("{} tokens are not supervised", grouped(self.lost_tokens));
        let mut notes = Vec::new();
        if self.split > 0 {
            notes.push(format!(
                "{source}: {} {longer} and continue in further rows",
                grouped(self.split)
            ));
        }
        if self.truncated > 0 {
            notes.push(format!(
                "{source}: {} {longer} and are truncated: {lost}; raise model.seq_len or change data.too_long to keep them",
                grouped(self.truncated)
            ));
        }
        if self.dropped > 0 {
            notes.push(format!(
                "{source}: {} {longer} and are dropped: {lost}",
                grouped(self.dropped)
            ));
        }
        if self.cut_off > 0 {
            notes.push(format!(
                "{source}: {} {longer} and are dropped: truncation leaves nothing of their answers; a larger model.seq_len, or data.too_long=truncate_start, keeps them",
                grouped(self.cut_off)
            ));
        }
        if self.nothing_supervised > self.cut_off {
            notes.push(format!(
                "{source}: {} of {documents} documents are dropped because nothing in them is supervised",
                grouped(self.nothing_supervised - self.cut_off)
            ));
        }
        if self.cut_references > 0 {
            notes.push(format!(
                "{source}: {} of {documents} reference answers go on beyond a row of {row} tokens: a cold start learns how they begin; rewards compare with all of them",
                grouped(self.cut_references)
            ));
        }
        notes
    }
}

/// Tokens of a document, given by first token and length, that a row must hold: of a prompt those before its reference answer.
pub(crate) fn needed(store: &Store, (start, len): (u64, u64)) -> u64 {
    if store.unit != Unit::Prompt {
        return len;
    }
    let mut mask = Vec::new();
    store.mask(start, len as usize, &mut mask);
    let head = mask.iter().take_while(|supervised| !**supervised).count();
    head as u64
}

/// Cuts documents, given by first token and length, to at most `seq_len` predictions each. An example of several sequences
/// stays whole: if one of them has no supervised tokens left, all are skipped.
pub(crate) fn cut(
    store: &Store,
    documents: &[(u64, u64)],
    seq_len: usize,
    too_long: TooLong,
) -> (Vec<Piece>, Account) {
    let mut cutter = Cutter {
        store,
        seq_len,
        too_long,
        masked: store.masked(),
        pieces: Vec::new(),
        account: Account::default(),
    };
    if store.unit == Unit::Prompt {
        documents
            .chunks_exact(2)
            .for_each(|example| cutter.prompt(example[0], example[1]));
        return (cutter.pieces, cutter.account);
    }
    if store.unit == Unit::Judged {
        let judged = documents.chunks_exact(2);
        judged.for_each(|example| cutter.judged(example[0], example[1]));
        return (cutter.pieces, cutter.account);
    }
    let sequences = store.unit.sequences();
    for example in documents.chunks(store.unit.documents()) {
        let (before, account) = (cutter.pieces.len(), cutter.account);
        let (texts, margin) = example.split_at(sequences.min(example.len()));
        texts.iter().for_each(|span| cutter.document(*span));
        cutter.account = cutter.account.of_example(account);
        if sequences > 1 && cutter.pieces.len() != before + sequences {
            cutter.pieces.truncate(before);
            continue;
        }
        let beside = margin.iter().map(|(start, len)| Piece {
            start: *start,
            len: *len as u32,
        });
        cutter.pieces.extend(beside);
    }
    (cutter.pieces, cutter.account)
}

struct Cutter<'a> {
    store: &'a Store,
    seq_len: usize,
    too_long: TooLong,
    masked: bool,
    pieces: Vec<Piece>,
    account: Account,
}

impl Cutter<'_> {
    /// A prompt stays whole or is dropped, and its reference with it: its last token takes a place too, after which the answer is
    /// written. Its known answer, which only a cold start learns, takes the room that is left: what is asked does not depend on
    /// what is known.
    fn prompt(&mut self, (start, len): (u64, u64), (reference, bytes): (u64, u64)) {
        let longest = self.seq_len as u64 + 1;
        let asked = needed(self.store, (start, len));
        if asked >= longest {
            self.account.dropped += 1;
            self.account.lost_tokens += asked;
            return;
        }
        if len < 2 {
            self.account.nothing_supervised += 1;
            return;
        }
        self.account.cut_references += u64::from(len > longest);
        let piece = |start, len: u64| Piece {
            start,
            len: len as u32,
        };
        let asked = piece(start, len.min(longest));
        self.pieces.extend([asked, piece(reference, bytes)]);
    }

    /// An answer with its label after it, or neither.
    fn judged(&mut self, answer: (u64, u64), (start, len): (u64, u64)) {
        let (before, account) = (self.pieces.len(), self.account);
        self.document(answer);
        self.account = self.account.of_example(account);
        if self.pieces.len() > before {
            let len = len as u32;
            self.pieces.push(Piece { start, len });
        }
    }

    fn document(&mut self, (start, len): (u64, u64)) {
        let (before, longest) = (self.pieces.len(), self.seq_len as u64 + 1);
        match self.too_long {
            _ if len <= longest => self.push(start, len),
            TooLong::Split => {
                self.account.split += 1;
                // The last token of a part is the first of the next: each but the first is predicted once.
                for at in (0..len - 1).step_by(self.seq_len) {
                    self.push(start + at, longest.min(len - at));
                }
            }
            TooLong::Drop => {
                self.account.dropped += 1;
                self.account.lost_tokens += len;
                return;
            }
            TooLong::Truncate | TooLong::TruncateStart => {
                self.account.truncated += 1;
                self.account.lost_tokens += len - longest;
                let end = self.too_long == TooLong::TruncateStart;
                self.push(start + if end { len - longest } else { 0 }, longest);
            }
        }
        if self.pieces.len() == before {
            let answered = || self.store.supervised(start + 1, len as usize - 1) > 0;
            self.account.nothing_supervised += 1;
            self.account.cut_off += u64::from(len > longest && answered());
        }
    }

    /// Keeps a piece of which something is supervised.
    fn push(&mut self, start: u64, len: u64) {
        let supervised = || !self.masked || self.store.supervised(start + 1, len as usize - 1) > 0;
        if len >= 2 && supervised() {
            let len = len as u32;
            self.pieces.push(Piece { start, len });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Document;
    use crate::data::store::of_documents as store;

    fn of(lens: &[u32], too_long: TooLong) -> (Vec<(u64, u32)>, Account) {
        let documents: Vec<Document> = lens
            .iter()
            .map(|n| Document::all_supervised((0..*n).collect()))
            .collect();
        let store = store(&[&documents]);
        let (pieces, account) = cut(&store, &store.spans().collect::<Vec<_>>(), 4, too_long);
        (pieces.iter().map(|p| (p.start, p.len)).collect(), account)
    }

    #[test]
    fn a_pair_counts_once_by_the_worst_that_became_of_it() {
        let of = |split, truncated, dropped, nothing_supervised| Account {
            split,
            truncated,
            dropped,
            nothing_supervised,
            ..Account::default()
        };
        let before = of(1, 1, 1, 1);
        assert_eq!(of(1, 3, 1, 1).of_example(before), of(1, 2, 1, 1));
        assert_eq!(of(1, 2, 2, 2).of_example(before), of(1, 1, 2, 1));
        assert_eq!(of(1, 2, 1, 2).of_example(before), of(1, 1, 1, 2));
        assert_eq!(before.of_example(before), before);
    }

    #[test]
    fn each_way_with_long_documents_is_counted() {
        let lens = [3, 12, 5, 1];
        let (pieces, account) = of(&lens, TooLong::Split);
        assert_eq!(pieces, [(0, 3), (3, 5), (7, 5), (11, 4), (15, 5)]);
        assert_eq!((account.split, account.nothing_supervised), (1, 1));
        let (pieces, account) = of(&lens, TooLong::Truncate);
        assert_eq!(pieces, [(0, 3), (3, 5), (15, 5)]);
        assert_eq!((account.truncated, account.lost_tokens), (1, 7));
        let (pieces, _) = of(&lens, TooLong::TruncateStart);
        assert_eq!(pieces, [(0, 3), (10, 5), (15, 5)]);
        let (pieces, account) = of(&lens, TooLong::Drop);
        assert_eq!(pieces, [(0, 3), (15, 5)]);
        assert_eq!((account.dropped, account.lost_tokens), (1, 12));
        let notes = account.notes("a", 4, 4);
        assert!(
            notes.len() == 2 && notes[0].contains("1 of 4 documents are longer"),
            "{notes:?}"
        );
    }

    #[test]
    fn a_document_whose_answer_was_cut_off_is_left_out() {
        let document = Document {
            ids: (0..8).collect(),
            supervised: (0..8).map(|i| i >= 6).collect(),
        };
        let store = store(&[&[document]]);
        let spans: Vec<_> = store.spans().collect();
        let (pieces, account) = cut(&store, &spans, 4, TooLong::Truncate);
        assert!(pieces.is_empty() && account.nothing_supervised == 1);
        // One document, counted once: its tokens are not those of a truncated one.
        assert_eq!((account.truncated, account.lost_tokens), (0, 0));
        let notes = account.notes("a", 1, 4);
        assert!(
            notes[0].contains("1 of 1 documents are longer"),
            "{notes:?}"
        );
        assert_eq!((account.cut_off, notes.len()), (1, 1));
        let (pieces, _) = cut(&store, &spans, 4, TooLong::TruncateStart);
        assert_eq!(pieces.len(), 1);
        // One without an answer lost none, however long it is.
        let unanswered = Document {
            ids: (0..8).collect(),
            supervised: vec![false; 8],
        };
        let answered = Document {
            ids: (0..3).collect(),
            supervised: vec![true; 3],
        };
        let store = self::store(&[&[unanswered, answered]]);
        let spans: Vec<_> = store.spans().collect();
        let (_, account) = cut(&store, &spans, 4, TooLong::Truncate);
        assert_eq!((account.nothing_supervised, account.cut_off), (1, 0));
    }

    /// A prompt of one token more than the context was kept, and ended the run that asked it.
    #[test]
    fn a_prompt_without_an_answer_fits_the_row_as_a_whole() {
        let prompt = |asked: usize, answer: usize| Document {
            ids: (0..(asked + answer) as u32).collect(),
            supervised: (0..asked + answer).map(|at| at >= asked).collect(),
        };
        let reference = || Document {
            ids: vec![7, 8],
            supervised: vec![false; 2],
        };
        let documents = [(4, 0), (5, 0), (4, 1), (3, 3)]
            .map(|(asked, answer)| [prompt(asked, answer), reference()])
            .concat();
        let mut store = store(&[&documents]);
        store.unit = Unit::Prompt;
        let spans: Vec<_> = store.spans().collect();
        let (pieces, account) = cut(&store, &spans, 4, TooLong::Drop);
        let prompts: Vec<_> = pieces.iter().step_by(2).map(|p| (p.start, p.len)).collect();
        assert_eq!(prompts, [(0, 4), (13, 5), (20, 5)]);
        assert_eq!((account.dropped, account.lost_tokens), (1, 5));
    }

    #[test]
    fn a_prompt_is_measured_without_its_reference_answer() {
        let prompt = |asked: usize, answer: usize| Document {
            ids: (0..(asked + answer) as u32).collect(),
            supervised: (0..asked + answer).map(|at| at >= asked).collect(),
        };
        let reference = || Document {
            ids: vec![7; 30],
            supervised: vec![false; 30],
        };
        let documents = [(2, 2), (3, 40), (5, 9), (6, 1), (1, 0)]
            .map(|(asked, answer)| [prompt(asked, answer), reference()])
            .concat();
        let mut store = store(&[&documents]);
        store.unit = Unit::Prompt;
        let spans: Vec<_> = store.spans().collect();
        let (pieces, account) = cut(&store, &spans, 4, TooLong::Drop);
        let prompts: Vec<u32> = pieces.iter().step_by(2).map(|piece| piece.len).collect();
        assert_eq!(prompts, [4, 5]);
        assert!(
            pieces
                .iter()
                .skip(1)
                .step_by(2)
                .all(|piece| piece.len == 30)
        );
        let expected = Account {
            dropped: 2,
            lost_tokens: 11,
            cut_references: 1,
            nothing_supervised: 1,
            ..Account::default()
        };
        assert_eq!(account, expected);
        let notes = account.notes("a", 5, 4).join("\n");
        assert!(notes.contains("1 of 5 reference answers go on"), "{notes}");
    }

    #[test]
    fn a_pair_goes_out_whole_when_one_side_has_nothing_left() {
        let sides = [3, 4, 1, 3, 9, 2].map(|n| Document::all_supervised((0..n).collect()));
        let mut store = store(&[&sides]);
        store.unit = crate::data::Unit::Pair;
        let spans: Vec<_> = store.spans().collect();
        let (pieces, _) = cut(&store, &spans, 4, TooLong::Truncate);
        let found: Vec<_> = pieces.iter().map(|p| (p.start, p.len)).collect();
        assert_eq!(found, [(0, 3), (3, 4), (11, 5), (20, 2)]);
        let (pieces, account) = cut(&store, &spans, 4, TooLong::Drop);
        assert_eq!((pieces.len(), account.dropped), (2, 1));
    }
}
