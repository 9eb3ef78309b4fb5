//! Experts on ranks: which tokens count in the balance of their load, and how many tokens each got.

use super::Remote;
use crate::kernels::experts::Tally;
use crate::nn::{ExpertLoad, TokenBatch};
use crate::workers::floats;
use candle_core::{Result, bail};

/// For each of a rank's `share` rows, the number of leading positions that are not padding; 0 for rows that it has too many.
pub(super) fn filled(batch: &TokenBatch, rank: usize, share: usize) -> Vec<usize> {
    let of_row = |row: usize| match batch.filled {
        _ if row >= batch.batch_size => 0,
        Some(filled) => filled[row] as usize,
        None => batch.seq_len,
    };
    (rank * share..(rank + 1) * share).map(of_row).collect()
}

impl Remote {
    /// Experts of a block; 0 without any.
    pub(super) fn n_expert(&self) -> usize {
        let n = self.model.build["model"]["config"]["moe"]["n_expert"].as_u64();
        n.unwrap_or(0) as usize
    }

    /// The load of a step over all ranks, of the worker's `Balance`: a row of each block with experts.
    pub(super) fn expert_load(&self, payload: &[u8]) -> Result<Option<ExpertLoad>> {
        let n = self.n_expert();
        if n == 0 {
            return Ok(None);
        }
        let width = 2 * n + 2;
        let rows = floats(payload).filter(|rows| rows.len().is_multiple_of(width));
        let Some(rows) = rows else {
            bail!("rank 0 answered {} bytes of loads", payload.len())
        };
        let tally = |row: &[f32]| {
            let wide = |values: &[f32]| values.iter().map(|x| f64::from(*x)).collect();
            Tally {
                counts: wide(&row[..n]),
                shares: wide(&row[n..2 * n]),
                lse_squares: f64::from(row[2 * n]),
                tokens: f64::from(row[2 * n + 1]),
            }
        };
        let tallies: Vec<Tally> = rows.chunks_exact(width).map(tally).collect();
        Ok(ExpertLoad::over(&tallies))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_does_not_count_and_rows_that_fill_a_rank_up_neither() {
        let ids = [0; 15];
        let mut batch = TokenBatch::plain(&ids, &ids, 3, 5);
        assert_eq!(filled(&batch, 0, 2), [5, 5]);
        assert_eq!(filled(&batch, 1, 2), [5, 0]);
        batch.filled = Some(&[4, 2, 3]);
        assert_eq!(filled(&batch, 0, 2), [4, 2]);
        assert_eq!(filled(&batch, 1, 2), [3, 0]);
    }
}
