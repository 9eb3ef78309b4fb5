//! The matrix that keys and values of latent attention come from, in files of two tensors: of each head what its queries are
//! multiplied with, transposed (`attn_k_b`), and what gives its values (`attn_v_b`). Earlier files have ours, `attn_kv_b`.

use crate::nn::{ModelConfig, ParamInfo};

/// Widths of a head's rows in our matrix, (n_head · (nope + v), rank).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Latents {
    n_head: usize,
    nope: usize,
    v: usize,
    rank: usize,
}

/// Which of the two tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Half {
    Keys,
    Values,
}

impl Latents {
    /// Of a parameter that is such a matrix.
    pub fn of(config: &ModelConfig, info: &ParamInfo) -> Option<Latents> {
        let mla = config.mla.as_ref()?;
        info.name.ends_with(".kv_b_proj.weight").then_some(Latents {
            n_head: config.n_head,
            nope: mla.nope_dim,
            v: mla.v_dim,
            rank: mla.kv_rank,
        })
    }

    /// The name of a half, of the tensor for both.
    pub fn name(whole: &str, half: Half) -> String {
        whole.replace(
            ".attn_kv_b.",
            match half {
                Half::Keys => ".attn_k_b.",
                Half::Values => ".attn_v_b.",
            },
        )
    }

    /// The dimensions of a half, the fastest first.
    pub fn dims(self, half: Half) -> Vec<u64> {
        let dims = match half {
            Half::Keys => [self.nope, self.rank, self.n_head],
            Half::Values => [self.rank, self.v, self.n_head],
        };
        dims.map(|n| n as u64).to_vec()
    }

    /// A half of our matrix `whole`, in its order in a file.
    pub fn half(self, whole: &[f32], half: Half) -> Vec<f32> {
        let mut values = Vec::with_capacity(whole.len());
        for head in whole.chunks_exact((self.nope + self.v) * self.rank) {
            let (keys, own) = head.split_at(self.nope * self.rank);
            match half {
                Half::Values => values.extend_from_slice(own),
                Half::Keys => values.extend(
                    (0..self.rank)
                        .flat_map(|c| (0..self.nope).map(move |r| keys[r * self.rank + c])),
                ),
            }
        }
        values
    }

    /// Our matrix from both halves.
    pub fn join(self, keys: &[f32], values: &[f32]) -> Vec<f32> {
        let mut whole = Vec::with_capacity(keys.len() + values.len());
        let keys = keys.chunks_exact(self.nope * self.rank);
        for (keys, values) in keys.zip(values.chunks_exact(self.v * self.rank)) {
            let row = |r: usize| (0..self.rank).map(move |c| keys[c * self.nope + r]);
            whole.extend((0..self.nope).flat_map(row));
            whole.extend_from_slice(values);
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_joined_again() {
        let latents = Latents {
            n_head: 2,
            nope: 2,
            v: 1,
            rank: 3,
        };
        let whole: Vec<f32> = (0..18).map(|x| x as f32).collect();
        let keys = latents.half(&whole, Half::Keys);
        assert_eq!(keys[..6], [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        let values = latents.half(&whole, Half::Values);
        assert_eq!(values[..3], [6.0, 7.0, 8.0]);
        assert_eq!(latents.join(&keys, &values), whole);
    }
}
