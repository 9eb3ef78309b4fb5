//! One source's share of a split: its documents as they are laid out, and the rows of an epoch.

use crate::data::pack::packed::Packed;
use crate::data::pack::padded::Padded;
use crate::data::pack::pieces::{self, Account, Piece};
use crate::data::pack::stream::Stream;
use crate::data::pack::{Packing, TooLong};
use crate::data::store::Store;
use crate::data::{Order, Unit};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// One source's share of a split.
#[derive(Debug)]
pub(crate) struct Portion {
    pub name: String,
    /// A chat template writes its rows.
    pub templated: bool,
    pub(super) store: Arc<Store>,
    pub(super) layout: Layout,
    /// Predictions of an epoch.
    pub tokens: u64,
    pub documents: u64,
}

#[derive(Debug)]
pub(super) enum Layout {
    Stream(Stream),
    Packed(Vec<Piece>, Packed),
    Padded(Vec<Piece>, Padded),
}

/// How documents are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layouting {
    pub packing: Packing,
    pub too_long: TooLong,
    pub order: Order,
    pub seq_len: usize,
    pub unit: Unit,
}

impl Portion {
    /// The documents of `spans` (first token and length) of a store.
    pub fn new(
        name: &str,
        store: &Arc<Store>,
        spans: &[(u64, u64)],
        how: Layouting,
    ) -> (Portion, Account) {
        let cut = || pieces::cut(store, spans, how.seq_len, how.too_long);
        let predictions = |pieces: &[Piece]| pieces.iter().map(|p| p.places() as u64).sum();
        let (layout, tokens, account) = match how.packing {
            Packing::Stream => {
                let stream = Stream::new(spans.iter().copied(), how.seq_len);
                let tokens = stream.windows() * how.seq_len as u64;
                (Layout::Stream(stream), tokens, Account::default())
            }
            Packing::Packed => {
                let (pieces, account) = cut();
                let (tokens, packed) = (predictions(&pieces), Packed::new(&pieces, how.seq_len));
                (Layout::Packed(pieces, packed), tokens, account)
            }
            Packing::Padded => {
                let (pieces, account) = cut();
                let (tokens, padded) = match how.unit {
                    Unit::Prompt => {
                        let prompts: Vec<Piece> = pieces.iter().copied().step_by(2).collect();
                        (predictions(&prompts), Padded::unsorted(prompts.len()))
                    }
                    unit => {
                        let texts: Vec<Piece> = texts(&pieces, unit).copied().collect();
                        (
                            predictions(&texts),
                            Padded::new(&pieces, unit.documents())
                                .without_lone(unit == Unit::Judged),
                        )
                    }
                };
                (Layout::Padded(pieces, padded), tokens, account)
            }
        };
        let portion = Portion {
            name: name.to_string(),
            templated: false,
            store: store.clone(),
            layout,
            tokens,
            documents: (spans.len() / how.unit.documents()) as u64,
        };
        (portion, account)
    }

    /// Numbers of the first `n` rows in the file, longest first where rows are padded. Packed rows hold documents of all the file.
    pub(super) fn first_rows(&self, n: u64) -> Vec<u64> {
        match &self.layout {
            Layout::Padded(_, padded) => padded.first(n as usize).map(|row| row as u64).collect(),
            Layout::Stream(_) | Layout::Packed(..) => (0..n).collect(),
        }
    }

    /// The row of the source that a token is of, from 0: the same one in every split and epoch.
    pub fn row_at(&self, token: u64) -> u64 {
        self.store.row_at(token)
    }

    /// The same of rows that a chat template writes, where it does.
    pub fn with_template(self, templated: bool) -> Portion {
        Portion { templated, ..self }
    }

    /// The unit of shuffling in an epoch: rows, or batches of rows of similar length.
    pub(super) fn draws(&self, batch_size: usize) -> u64 {
        match &self.layout {
            Layout::Stream(stream) => stream.windows(),
            Layout::Packed(_, packed) => packed.rows() as u64,
            Layout::Padded(_, padded) => padded.batches(batch_size) as u64,
        }
    }

    /// Rows that cover everything once, for evaluation; of examples with several sequences, the examples.
    pub fn rows(&self) -> u64 {
        match &self.layout {
            Layout::Padded(_, padded) => padded.examples() as u64,
            _ => self.draws(1),
        }
    }

    /// Share of the places of rows that hold tokens.
    pub(super) fn filled(&self, seq_len: usize) -> f64 {
        match &self.layout {
            Layout::Packed(..) => self.tokens as f64 / (self.rows() * seq_len as u64).max(1) as f64,
            _ => 1.0,
        }
    }

    /// A hash of each piece.
    pub(super) fn hashes(&self) -> Option<Vec<u64>> {
        let (Layout::Packed(pieces, _) | Layout::Padded(pieces, _)) = &self.layout else {
            return None;
        };
        let mut ids = Vec::new();
        let hashes = texts(pieces, self.store.unit).map(|piece| {
            ids.clear();
            self.store.copy(piece.start, piece.len as usize, &mut ids);
            let mut hash = DefaultHasher::new();
            ids.hash(&mut hash);
            hash.finish()
        });
        Some(hashes.collect())
    }

    /// Whether some tokens are read and not supervised.
    pub fn masked(&self) -> bool {
        self.store.masked()
    }

    /// Predictions that count in a loss over tokens.
    pub fn supervised(&self) -> u64 {
        match &self.layout {
            Layout::Packed(pieces, _) | Layout::Padded(pieces, _) if self.masked() => {
                let of = |piece: &Piece| self.store.supervised(piece.start + 1, piece.places());
                texts(pieces, self.store.unit)
                    .map(|piece| of(piece) as u64)
                    .sum()
            }
            _ => self.tokens,
        }
    }

    /// What is predicted together, up to about `limit` tokens: the first token of each stretch is given.
    pub fn visit(&self, limit: usize, visit: &mut dyn FnMut(&[u32])) {
        let mut ids = Vec::new();
        let (Layout::Packed(pieces, _) | Layout::Padded(pieces, _)) = &self.layout else {
            self.flat(limit, &mut ids);
            return visit(&ids);
        };
        let mut seen = 0;
        for piece in texts(pieces, self.store.unit).take_while(|piece| {
            seen += piece.len as usize;
            seen <= limit.max(piece.len as usize)
        }) {
            ids.clear();
            self.store.copy(piece.start, piece.len as usize, &mut ids);
            visit(&ids);
        }
    }

    /// Tokens in order, up to `limit`.
    pub(super) fn flat(&self, limit: usize, out: &mut Vec<u32>) {
        match &self.layout {
            Layout::Stream(stream) => stream.flat(&self.store, limit, out),
            Layout::Packed(pieces, _) | Layout::Padded(pieces, _) => {
                for piece in texts(pieces, self.store.unit) {
                    if out.len() >= limit {
                        return;
                    }
                    self.store.copy(piece.start, piece.len as usize, out);
                }
            }
        }
    }
}

/// Pieces that hold text: all but labels, margins and references.
fn texts(pieces: &[Piece], unit: Unit) -> impl Iterator<Item = &Piece> {
    let is_text = move |at: usize| at % unit.documents() < unit.sequences();
    let numbered = pieces.iter().enumerate();
    numbered.filter_map(move |(at, piece)| is_text(at).then_some(piece))
}
