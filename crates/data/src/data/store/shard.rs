//! One shard: the token ids of some documents, which of them are supervised, and where documents end, as bytes that can be
//! mapped from a file. All numbers are little-endian.
//!
//! ```text
//! magic (8) · length of the head (8) · head (JSON) · ids (2 or 4 bytes each) · supervised (a bit each) · ends (8 bytes each)
//! ```
//!
//! Each part begins at a multiple of 8. Where every token but the first of each document is supervised, the bits are skipped.

use crate::base::mapped::Mapped;
use crate::data::Document;
use crate::data::render::RenderCounts;
use serde::{Deserialize, Serialize};
use std::ops::Range;

const MAGIC: [u8; 8] = *b"llmtok\x00\x01";

/// Faulty rows that are kept word for word.
const KEPT_FAULTS: usize = 20;

/// Counts up to the end of a shard, from the beginning of the source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    /// Rows taken from the source, faulty ones included.
    pub rows: u64,
    /// Bytes of UTF-8 that became tokens.
    pub text_bytes: u64,
    /// Faulty rows that were passed over.
    pub skipped: u64,
    /// The first of them.
    pub faults: Vec<String>,
    /// Rows that came to no token at all.
    pub empty: u64,
    /// Rows with tools of which the template writes nothing.
    pub without_tools: u64,
    /// Turns of the assistant, and those that only call a tool and come out empty.
    pub answers: u64,
    pub empty_calls: u64,
    /// Rows with an answer whose thoughts the template does not write.
    pub without_thoughts: u64,
    /// What was noticed while rendering.
    pub rendered: RenderCounts,
}

impl Tally {
    /// Counts a faulty row.
    pub fn skip(&mut self, fault: String) {
        self.skipped += 1;
        if self.faults.len() < KEPT_FAULTS {
            self.faults.push(fault);
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Head {
    documents: usize,
    tokens: usize,
    /// Bytes of an id.
    width: usize,
    /// Whether the bits are there.
    masked: bool,
    /// CRC-32 of what follows the head.
    crc: u32,
    tally: Tally,
}

/// Documents being gathered into a shard.
#[derive(Debug, Default)]
pub(super) struct Draft {
    ids: Vec<u32>,
    supervised: Vec<bool>,
    ends: Vec<u64>,
    masked: bool,
}

impl Draft {
    pub fn tokens(&self) -> usize {
        self.ids.len()
    }

    pub fn push(&mut self, document: &Document) {
        self.masked |= document
            .supervised
            .iter()
            .skip(1)
            .any(|supervised| !supervised);
        self.ids.extend_from_slice(&document.ids);
        self.supervised.extend_from_slice(&document.supervised);
        self.ends.push(self.ids.len() as u64);
    }

    /// Removes the last document's last token if it is `id`: the document continues in the next one.
    pub fn reopen(&mut self, id: u32) {
        let begin = self.ends.iter().rev().nth(1).copied().unwrap_or(0);
        let Some(end) = self.ends.last_mut() else {
            return;
        };
        if self.ids.last() == Some(&id) && *end > begin + 1 {
            self.ids.pop();
            self.supervised.pop();
            *end -= 1;
        }
    }

    /// The bytes of the shard; the draft is empty afterwards.
    pub fn finish(&mut self, width: usize, tally: &Tally) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.ids.len() * (width + 1) + 8 * self.ends.len());
        match width {
            2 => body.extend(self.ids.iter().flat_map(|id| (*id as u16).to_le_bytes())),
            _ => body.extend(self.ids.iter().flat_map(|id| id.to_le_bytes())),
        }
        align(&mut body);
        if self.masked {
            for bits in self.supervised.chunks(8) {
                let byte = bits.iter().enumerate();
                body.push(byte.fold(0, |byte, (i, bit)| byte | (u8::from(*bit) << i)));
            }
            align(&mut body);
        }
        body.extend(self.ends.iter().flat_map(|end| end.to_le_bytes()));
        let head = Head {
            documents: self.ends.len(),
            tokens: self.ids.len(),
            width,
            masked: self.masked,
            crc: crc(&body),
            tally: tally.clone(),
        };
        let json = serde_json::to_vec(&head).unwrap_or_default();
        let mut bytes = Vec::with_capacity(24 + json.len() + body.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&(json.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&json);
        align(&mut bytes);
        bytes.append(&mut body);
        *self = Draft::default();
        bytes
    }
}

fn crc(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

fn align(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
}

#[derive(Debug)]
enum Bytes {
    Held(Vec<u8>),
    Mapped(Mapped),
}

impl Bytes {
    fn get(&self) -> &[u8] {
        match self {
            Bytes::Held(bytes) => bytes,
            Bytes::Mapped(bytes) => bytes,
        }
    }
}

/// A shard to read from.
#[derive(Debug)]
pub(super) struct Shard {
    bytes: Bytes,
    head: Head,
    ids: usize,
    supervised: usize,
    ends: usize,
}

impl Shard {
    pub fn held(bytes: Vec<u8>) -> Result<Shard, String> {
        Shard::new(Bytes::Held(bytes))
    }

    pub fn mapped(bytes: Mapped) -> Result<Shard, String> {
        Shard::new(Bytes::Mapped(bytes))
    }

    fn new(bytes: Bytes) -> Result<Shard, String> {
        let all = bytes.get();
        let word = |at: usize| -> Option<u64> {
            let word = all.get(at..at.checked_add(8)?)?;
            word.try_into().ok().map(u64::from_le_bytes)
        };
        if all.get(..8) != Some(&MAGIC) {
            return Err("it is not a token shard".into());
        }
        let json = word(8)
            .and_then(|len| usize::try_from(len).ok())
            .and_then(|len| all.get(16..len.checked_add(16)?));
        let json = json.ok_or("its head is cut off")?;
        let head: Head = serde_json::from_slice(json).map_err(|e| format!("its head: {e}"))?;
        if !matches!(head.width, 2 | 4) {
            return Err(format!("ids of {} bytes", head.width));
        }
        let sizes = || {
            let ids = (16 + json.len()).next_multiple_of(8);
            let supervised = ids.checked_add(head.tokens.checked_mul(head.width)?)?;
            let supervised = supervised.checked_next_multiple_of(8)?;
            let bits = if head.masked {
                head.tokens.div_ceil(8)
            } else {
                0
            };
            let ends = supervised.checked_add(bits.next_multiple_of(8))?;
            let len = ends.checked_add(head.documents.checked_mul(8)?)?;
            Some((ids, supervised, ends, len))
        };
        let (ids, supervised, ends, len) = sizes().ok_or("its sizes overflow")?;
        if all.len() != len {
            return Err(format!("it has {} bytes instead of {len}", all.len()));
        }
        let last = match head.documents {
            0 => Some(0),
            n => word(ends + 8 * (n - 1)),
        };
        if last != Some(head.tokens as u64) {
            return Err("its documents do not end where its tokens do".into());
        }
        Ok(Shard {
            bytes,
            head,
            ids,
            supervised,
            ends,
        })
    }

    /// Identifies these tokens: their number and checksum.
    pub fn identity(&self) -> String {
        format!(
            "{}:{}:{:08x}",
            self.head.documents, self.head.tokens, self.head.crc
        )
    }

    /// Reads everything once and holds it against the checksum.
    pub fn verify(&self) -> Result<(), String> {
        let found = crc(&self.bytes.get()[self.ids..]);
        if found == self.head.crc {
            return Ok(());
        }
        Err(format!(
            "its checksum is {found:08x} instead of {:08x}",
            self.head.crc
        ))
    }

    pub fn documents(&self) -> usize {
        self.head.documents
    }

    pub fn tokens(&self) -> usize {
        self.head.tokens
    }

    pub fn masked(&self) -> bool {
        self.head.masked
    }

    pub fn tally(&self) -> &Tally {
        &self.head.tally
    }

    /// Where each document ends, in tokens of this shard.
    pub fn ends(&self) -> impl Iterator<Item = u64> + '_ {
        let words = self.bytes.get()[self.ends..].chunks_exact(8);
        words.map(|word| word.try_into().map_or(0, u64::from_le_bytes))
    }

    /// How many documents end at this token of the shard or before it.
    pub fn documents_until(&self, token: u64) -> usize {
        let (ends, _) = self.bytes.get()[self.ends..].as_chunks::<8>();
        ends.partition_point(|end| u64::from_le_bytes(*end) <= token)
    }

    /// Appends the ids of some tokens.
    pub fn copy(&self, tokens: Range<usize>, out: &mut Vec<u32>) {
        let width = self.head.width;
        let bytes =
            &self.bytes.get()[self.ids + tokens.start * width..self.ids + tokens.end * width];
        match width {
            2 => out.extend(
                bytes
                    .chunks_exact(2)
                    .map(|id| u32::from(u16::from_le_bytes([id[0], id[1]]))),
            ),
            _ => out.extend(
                bytes
                    .chunks_exact(4)
                    .map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]])),
            ),
        }
    }

    /// Whether the token is supervised where documents are kept apart. Without bits: all but the first of each document, which
    /// is the caller's to know.
    pub fn supervised(&self, token: usize) -> bool {
        !self.head.masked || {
            let byte = self.bytes.get()[self.supervised + token / 8];
            byte >> (token % 8) & 1 == 1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(ids: &[u32], supervised: &[bool]) -> Document {
        Document {
            ids: ids.to_vec(),
            supervised: supervised.to_vec(),
        }
    }

    #[test]
    fn what_goes_in_comes_out_at_either_width_masked_or_not() {
        for width in [2, 4] {
            for masked in [false, true] {
                let mut draft = Draft::default();
                draft.push(&Document::all_supervised(vec![1, 2, 65_535]));
                draft.push(&document(&[7, 8], &[false, !masked]));
                draft.push(&Document::all_supervised(vec![9]));
                let tally = Tally {
                    rows: 4,
                    ..Tally::default()
                };
                let shard = Shard::held(draft.finish(width, &tally)).unwrap();
                assert_eq!(
                    (shard.documents(), shard.tokens(), shard.masked()),
                    (3, 6, masked)
                );
                assert_eq!(shard.ends().collect::<Vec<_>>(), [3, 5, 6]);
                let mut ids = Vec::new();
                shard.copy(1..5, &mut ids);
                assert_eq!(ids, [2, 65_535, 7, 8]);
                assert_eq!((shard.supervised(1), shard.supervised(4)), (true, !masked));
                assert_eq!(shard.tally(), &tally);
                assert_eq!(draft.tokens(), 0);
            }
        }
    }

    #[test]
    fn a_document_that_goes_on_loses_the_end_that_was_put_behind_it() {
        let mut draft = Draft::default();
        draft.reopen(0);
        draft.push(&Document::all_supervised(vec![5, 6, 0]));
        draft.reopen(0);
        draft.reopen(0);
        draft.push(&Document::all_supervised(vec![0]));
        draft.reopen(0);
        let shard = Shard::held(draft.finish(4, &Tally::default())).unwrap();
        assert_eq!(shard.ends().collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let mut draft = Draft::default();
        draft.push(&Document::all_supervised(vec![1, 2, 3]));
        let whole = draft.finish(4, &Tally::default());
        for cut in 0..whole.len() {
            assert!(Shard::held(whole[..cut].to_vec()).is_err(), "{cut}");
        }
        let mut other = whole.clone();
        other[0] = b'X';
        assert!(Shard::held(other).is_err());
        let mut other = whole.clone();
        *other.last_mut().unwrap() = 9;
        assert!(Shard::held(other).unwrap_err().contains("do not end"));
        assert_eq!(Shard::held(whole.clone()).unwrap().verify(), Ok(()));
        let mut other = whole;
        let ids = other.len() - 24;
        other[ids] ^= 1;
        let flipped = Shard::held(other).unwrap();
        assert!(flipped.verify().unwrap_err().contains("checksum"));
    }
}
