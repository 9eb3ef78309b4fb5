//! Token positions: offset by the cached prefix, and restarting at zero in each document of a packed row. How a model uses
//! positions is up to embeddings and RoPE.

/// Positions of the rows of a (B · T, …) matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Positions<'a> {
    /// Tokens per row, T.
    pub seq_len: usize,
    /// Cached tokens before each row; 0 if documents are given.
    pub start: usize,
    /// (B, T): the index in its row at which each token's document begins; at most the token's own.
    pub first: Option<&'a [u32]>,
}

impl<'a> Positions<'a> {
    /// Rows of one text each, starting at position 0.
    pub fn whole_rows(seq_len: usize) -> Self {
        Positions {
            seq_len,
            start: 0,
            first: None,
        }
    }

    /// The position of token `token` of B · T.
    #[inline]
    pub fn at(&self, token: usize) -> usize {
        let first = self.first.map_or(0, |first| first[token] as usize);
        self.start + token % self.seq_len - first
    }

    /// Positions of all tokens if documents are given.
    pub fn by_document(&self) -> Option<Vec<u32>> {
        let first = self.first?;
        Some(
            (0..first.len())
                .map(|token| self.at(token) as u32)
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_restart_in_each_document_and_row() {
        let plain = Positions {
            start: 5,
            ..Positions::whole_rows(3)
        };
        assert_eq!(
            (0..6).map(|i| plain.at(i)).collect::<Vec<_>>(),
            [5, 6, 7, 5, 6, 7]
        );
        assert_eq!(plain.by_document(), None);
        let packed = Positions {
            first: Some(&[0, 0, 2, 0, 1, 1]),
            ..Positions::whole_rows(3)
        };
        assert_eq!(packed.by_document().unwrap(), [0, 1, 0, 0, 0, 1]);
    }
}
