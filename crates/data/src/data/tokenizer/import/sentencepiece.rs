//! SentencePiece models (sentencepiece_model.proto): Unigram, and BPE with byte fallback as in Llama 2.

use super::assemble::{Pieces, Spaces, check_ids, sentencepiece};
use super::{Imported, bytes, fault};
use crate::base::protobuf::{Field, fields};
use crate::data::DataError;
use crate::data::tokenizer::marks::{Added, Marks};
use crate::data::tokenizer::to_gguf;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Kinds of a piece, whose numbers llama.cpp took over.
pub const UNKNOWN: u64 = to_gguf::UNKNOWN as u64;
pub const CONTROL: u64 = to_gguf::CONTROL as u64;
pub const USER_DEFINED: u64 = to_gguf::USER_DEFINED as u64;
pub const UNUSED: u64 = to_gguf::UNUSED as u64;

#[derive(Debug, Clone)]
struct Piece {
    text: String,
    score: f32,
    kind: u64,
}

/// The parts of a model that matter, with the defaults of the format.
#[derive(Debug)]
struct Model {
    pieces: Vec<Piece>,
    /// 1 Unigram, 2 BPE.
    model_type: u64,
    unk_id: i64,
    bos_id: i64,
    eos_id: i64,
    pad_id: i64,
    byte_fallback: bool,
    space_behind: bool,
    charsmap: Vec<u8>,
    dummy_prefix: bool,
    collapse: bool,
    escape: bool,
}

impl Default for Model {
    fn default() -> Model {
        Model {
            pieces: Vec::new(),
            model_type: 1,
            unk_id: 0,
            bos_id: 1,
            eos_id: 2,
            pad_id: -1,
            byte_fallback: false,
            space_behind: false,
            charsmap: Vec::new(),
            dummy_prefix: true,
            collapse: true,
            escape: true,
        }
    }
}

/// `beside`: the special tokens of the folder's other files, and `more` the tokens that these add.
pub(super) fn read(path: &Path, beside: Marks, more: Vec<Added>) -> Result<Imported, DataError> {
    let bytes = bytes(path)?;
    let model = Model::parse(&bytes)
        .map_err(|what| fault(path, format!("not a SentencePiece model: {what}")))?;
    model.import(beside, more).map_err(|what| fault(path, what))
}

impl Model {
    fn parse(bytes: &[u8]) -> Result<Model, String> {
        let mut model = Model::default();
        let cut = |at: usize| format!("damaged at byte {at}");
        for field in fields(bytes) {
            match field.map_err(cut)? {
                (1, Field::Bytes(piece)) => model.pieces.push(Piece::parse(piece)?),
                (2, Field::Bytes(trainer)) => model.parse_trainer(trainer)?,
                (3, Field::Bytes(normalizer)) => model.parse_normalizer(normalizer)?,
                _ => {}
            }
        }
        if model.pieces.is_empty() {
            return Err("it has no pieces".into());
        }
        Ok(model)
    }

    fn parse_trainer(&mut self, bytes: &[u8]) -> Result<(), String> {
        for field in fields(bytes) {
            // Negative numbers of 32 bits are written with 64.
            match field.map_err(|at| format!("its trainer's part is damaged at byte {at}"))? {
                (3, Field::Varint(x)) => self.model_type = x,
                (24, Field::Varint(x)) => self.space_behind = x != 0,
                (35, Field::Varint(x)) => self.byte_fallback = x != 0,
                (40, Field::Varint(x)) => self.unk_id = x as i64,
                (41, Field::Varint(x)) => self.bos_id = x as i64,
                (42, Field::Varint(x)) => self.eos_id = x as i64,
                (43, Field::Varint(x)) => self.pad_id = x as i64,
                _ => {}
            }
        }
        Ok(())
    }

    fn parse_normalizer(&mut self, bytes: &[u8]) -> Result<(), String> {
        for field in fields(bytes) {
            match field.map_err(|at| format!("its normalizer's part is damaged at byte {at}"))? {
                (2, Field::Bytes(charsmap)) => self.charsmap = charsmap.to_vec(),
                (3, Field::Varint(x)) => self.dummy_prefix = x != 0,
                (4, Field::Varint(x)) => self.collapse = x != 0,
                (5, Field::Varint(x)) => self.escape = x != 0,
                _ => {}
            }
        }
        Ok(())
    }

    fn token(&self, id: i64) -> Option<String> {
        let piece = self.pieces.get(usize::try_from(id).ok()?)?;
        Some(piece.text.clone())
    }

    /// Its pieces that stand for themselves in any text, and the tokens that other files add: pieces of the model, or behind them.
    fn added(&self, more: Vec<Added>) -> Result<Vec<Added>, String> {
        let pieces = self.pieces.iter().enumerate();
        let mut added: Vec<Added> = pieces
            .filter(|(_, piece)| matches!(piece.kind, UNKNOWN | CONTROL | USER_DEFINED))
            .map(|(id, piece)| Added {
                id,
                content: piece.text.clone(),
                special: piece.kind != USER_DEFINED,
            })
            .collect();
        let texts = self.pieces.iter().zip(0..);
        let ids: HashMap<&str, usize> = texts.map(|(piece, id)| (&*piece.text, id)).collect();
        let id_of = |text: &str| ids.get(text).copied();
        check_ids(&more, &id_of, self.pieces.len())?;
        let known: HashSet<usize> = added.iter().map(|token| token.id).collect();
        added.extend(more.into_iter().filter(|token| !known.contains(&token.id)));
        Ok(added)
    }

    fn import(self, beside: Marks, more: Vec<Added>) -> Result<Imported, String> {
        if self.space_behind || !self.escape {
            return Err("it puts spaces where tokenizer.json cannot (treat_whitespace_as_suffix, escape_whitespaces)".into());
        }
        let scores = self.pieces.iter().map(|piece| piece.score).collect();
        let pieces = match self.model_type {
            1 => Pieces::Unigram {
                unk: usize::try_from(self.unk_id).map_err(|_| "it has no unknown token")?,
                scores,
            },
            2 => Pieces::Bpe {
                unk: self.token(self.unk_id),
                scores,
            },
            other => {
                return Err(format!(
                    "its model type is {other}; Unigram (1) and BPE (2) are known"
                ));
            }
        };
        let added = self.added(more)?;
        let spaces = Spaces {
            charsmap: self.charsmap.clone(),
            dummy_prefix: self.dummy_prefix,
            collapse: self.collapse,
            byte_fallback: self.byte_fallback,
        };
        let marks = Marks {
            bos: self.token(self.bos_id),
            eos: self.token(self.eos_id),
            pad: self.token(self.pad_id),
            unk: self.token(self.unk_id),
            ..Marks::default()
        };
        let marks = marks.overridden_by(beside);
        let origin = match self.model_type {
            1 => "a SentencePiece model (Unigram)",
            _ => "a SentencePiece model (BPE)",
        };
        let tokens: Vec<String> = self.pieces.into_iter().map(|piece| piece.text).collect();
        let tokenizer = sentencepiece(&tokens, &pieces, &spaces, &added);
        Ok(Imported::assembled(tokenizer, marks, origin.into()))
    }
}

impl Piece {
    fn parse(bytes: &[u8]) -> Result<Piece, String> {
        let mut piece = Piece {
            text: String::new(),
            score: 0.0,
            kind: 1,
        };
        for field in fields(bytes) {
            match field.map_err(|at| format!("a piece is damaged at byte {at}"))? {
                (1, Field::Bytes(text)) => {
                    piece.text = String::from_utf8(text.to_vec())
                        .map_err(|_| "a piece that is not UTF-8")?;
                }
                (2, Field::Fixed32(score)) => piece.score = f32::from_le_bytes(score),
                (3, Field::Varint(kind)) => piece.kind = kind,
                _ => {}
            }
        }
        match piece.score.is_finite() {
            true => Ok(piece),
            false => Err(format!("the piece {:?} has no finite score", piece.text)),
        }
    }
}
