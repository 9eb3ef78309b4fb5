//! Attention scores of single queries, for probes: the fused forms never hold a whole row.

use super::Sizes;

/// Fills `scores` with the scores, before the softmax, of query `t` of head `h` in sequence `b` for each key it attends to, in
/// order; without the head's sink. `qkv` (B · T, qkv_width) is rotated. Returns the position of the first of these keys.
pub fn scores_of(
    sizes: Sizes,
    qkv: &[f32],
    (b, t, h): (usize, usize, usize),
    scores: &mut Vec<f32>,
) -> usize {
    let (heads, width) = (sizes.heads, sizes.heads.qkv_width());
    let d = heads.head_dim;
    let row = |position: usize| &qkv[(b * sizes.seq_len + position) * width..][..width];
    let query = &row(t)[h * d..(h + 1) * d];
    let key = heads.q_width() + h / (heads.n_head / heads.n_kv_head) * d;
    let first = sizes.mask.first_visible(b, t, sizes.seq_len);
    let scale = sizes.scores.scale(d);
    scores.clear();
    scores.extend((first..=t).map(|position| {
        let key = &row(position)[key..key + d];
        scale * query.iter().zip(key).map(|(q, k)| q * k).sum::<f32>()
    }));
    sizes.scores.finish(h, (t - first) as isize, scores);
    first
}
