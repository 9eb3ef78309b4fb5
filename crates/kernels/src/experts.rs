//! Mixture-of-experts operations other than the experts' matmuls: top-k routing, gathering the tokens
//! of each expert and combining their outputs (Shazeer et al. 2017; Jiang et al. 2024, Mixtral, arXiv 2401.04088).
//!
//! A row of *routing* is the n_expert scores, with sigmoid scores n_expert probabilities after them, then the log-sum-exp of the
//! logits, and the indices of the top_k experts, highest first; indices are stored as f32, which represents them exactly. The
//! probabilities are the softmax of the logits: with softmax scores the scores themselves, with sigmoid ones only the z-loss needs
//! them.

use super::gate::{sigmoid, sigmoid_composite};
use super::math::{exp, max, sum1, sum2};
use super::threads;
use candle_core::{D, DType, Result, Tensor};

/// How logits become the scores that select experts and weight their outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scoring {
    Softmax,
    /// Each expert for itself (DeepSeek-V3, arXiv 2412.19437).
    Sigmoid,
}

impl Scoring {
    /// Added to the sums that normalize gates and shares: sigmoid scores may all be near zero (the value of LFM2's class in transformers).
    fn eps(self) -> f32 {
        match self {
            Scoring::Softmax => 0.0,
            Scoring::Sigmoid => 1e-6,
        }
    }
}

/// Routing options.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Router {
    pub n_expert: usize,
    pub top_k: usize,
    pub scoring: Scoring,
    /// Renormalize the top-k scores to sum to 1.
    pub norm_topk: bool,
    /// Factor of the gates, after that.
    pub scale: f32,
    pub groups: Option<Groups>,
}

/// Groups of equally many experts, of which a token reaches those of the `top` best groups (DeepSeek-V2, arXiv 2405.04434; V3, arXiv
/// 2412.19437).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Groups {
    pub n: usize,
    pub top: usize,
}

/// `logits` (N, E), `bias` (E) for the selection only → gates (N, E), 0 for unselected experts; the shares of the balancing loss
/// (N, E), which are the scores over their sum; the selection (N, E), 1 or 0 and detached; the log-sum-exp of each row (N).
///
/// # Errors
/// candle's own: shapes or dtypes that do not match.
pub fn composite(router: Router, logits: &Tensor, bias: Option<&Tensor>) -> Result<[Tensor; 4]> {
    let top = logits.max_keepdim(D::Minus1)?.detach();
    let powers = logits.broadcast_sub(&top)?.exp()?;
    let sum = powers.sum_keepdim(D::Minus1)?;
    let lse = (sum.log()? + top)?.squeeze(D::Minus1)?;
    let scores = match router.scoring {
        Scoring::Softmax => powers.broadcast_div(&sum)?,
        Scoring::Sigmoid => sigmoid_composite(logits)?,
    };
    let shares = match router.scoring {
        Scoring::Softmax => scores.clone(),
        Scoring::Sigmoid => {
            let sum = (scores.sum_keepdim(D::Minus1)? + f64::from(router.scoring.eps()))?;
            scores.broadcast_div(&sum)?
        }
    };
    let mut wanted = scores.detach();
    if let Some(bias) = bias {
        wanted = wanted.broadcast_add(&bias.detach())?;
    }
    let wanted = wanted.to_dtype(DType::F64)?.to_vec2::<f64>()?;
    let mut mask = Vec::with_capacity(wanted.len() * router.n_expert);
    for row in &wanted {
        let mut open = Vec::new();
        router.open(|e| row[e], &mut open);
        let closed = |(e, x): (usize, &f64)| if open[e] { *x } else { f64::NEG_INFINITY };
        let chosen = best(router.top_k, row.iter().enumerate().map(closed));
        mask.extend((0..row.len()).map(|e| f64::from(u8::from(chosen.contains(&e)))));
    }
    let mask = Tensor::from_vec(mask, scores.shape(), &candle_core::Device::Cpu)?
        .to_dtype(scores.dtype())?
        .to_device(scores.device())?;
    let mut gates = (&scores * &mask)?;
    if router.norm_topk {
        let sum = (gates.sum_keepdim(D::Minus1)? + f64::from(router.scoring.eps()))?;
        gates = gates.broadcast_div(&sum)?;
    }
    let gates = (gates * f64::from(router.scale))?;
    Ok([gates, shares, mask, lse])
}

/// Indices of the `k` largest values, in descending order; ties go to the earlier one.
fn best<T: PartialOrd>(k: usize, values: impl Iterator<Item = T>) -> Vec<usize> {
    let mut chosen: Vec<(T, usize)> = Vec::with_capacity(k + 1);
    for (e, value) in values.enumerate() {
        let at = chosen.partition_point(|(other, _)| *other >= value);
        if at < k {
            chosen.insert(at, (value, e));
            chosen.truncate(k);
        }
    }
    chosen.into_iter().map(|(_, e)| e).collect()
}

impl Router {
    /// Fills `open` with whether a token reaches each expert, by what they are chosen by. A group counts by its best expert with softmax
    /// scores, and by the sum of its two best with sigmoid scores. Ties go to the earlier group.
    fn open(&self, wanted: impl Fn(usize) -> f64, open: &mut Vec<bool>) {
        open.clear();
        let Some(Groups { n, top }) = self.groups else {
            open.resize(self.n_expert, true);
            return;
        };
        open.resize(self.n_expert, false);
        let len = self.n_expert / n.max(1);
        let of_group = |group: usize| {
            let mut two = [f64::NEG_INFINITY; 2];
            for x in (group * len..(group + 1) * len).map(&wanted) {
                if x > two[0] {
                    two = [x, two[0]];
                } else if x > two[1] {
                    two[1] = x;
                }
            }
            match self.scoring {
                Scoring::Sigmoid if len > 1 => two[0] + two[1],
                _ => two[0],
            }
        };
        for group in best(top, (0..n).map(of_group)) {
            open[group * len..(group + 1) * len].fill(true);
        }
    }

    /// Values per row of routing.
    pub fn width(&self) -> usize {
        self.lse() + 1 + self.top_k
    }

    /// The place of the log-sum-exp in a row.
    fn lse(&self) -> usize {
        match self.scoring {
            Scoring::Softmax => self.n_expert,
            Scoring::Sigmoid => 2 * self.n_expert,
        }
    }

    /// The softmax of the logits: the last n_expert values before the log-sum-exp.
    fn probabilities<'a>(&self, row: &'a [f32]) -> &'a [f32] {
        &row[self.lse() - self.n_expert..self.lse()]
    }

    fn chosen<'a>(&self, row: &'a [f32]) -> &'a [f32] {
        &row[self.lse() + 1..]
    }

    /// What the scores of the selected experts are divided by.
    #[inline]
    fn norm(&self, row: &[f32]) -> f32 {
        if !self.norm_topk {
            return 1.0;
        }
        let sum: f32 = self.chosen(row).iter().map(|&e| row[e as usize]).sum();
        sum + self.scoring.eps()
    }

    /// What the scores of all experts are divided by in the balancing loss.
    fn share_norm(&self, row: &[f32]) -> f32 {
        match self.scoring {
            Scoring::Softmax => 1.0,
            Scoring::Sigmoid => sum1(&row[..self.n_expert], |x| x) + self.scoring.eps(),
        }
    }

    /// Gates of the selected experts, in selection order.
    #[inline]
    fn gates<'a>(&self, row: &'a [f32]) -> impl Iterator<Item = f32> + use<'a> {
        let share = self.scale / self.norm(row);
        let chosen = self.chosen(row).iter();
        chosen.map(move |&e| row[e as usize] * share)
    }
}

/// `logits` (N, n_expert), `bias` (n_expert) → `routing` (N, width). A NaN among the logits makes its whole row NaN and
/// selects the first experts.
pub fn route(router: Router, logits: &[f32], bias: Option<&[f32]>, routing: &mut [f32]) {
    let (n, width) = (router.n_expert, router.width());
    threads::rows1(routing, width, 30 * n, |first, routing| {
        let mut open = Vec::new();
        for (i, row) in routing.chunks_exact_mut(width).enumerate() {
            let logits = &logits[(first + i) * n..][..n];
            let (scores, rest) = row.split_at_mut(router.lse());
            let top = max(logits);
            let probs = &mut scores[router.lse() - n..];
            for (p, &x) in probs.iter_mut().zip(logits) {
                *p = exp(x - top);
            }
            let sum = sum1(probs, |x| x);
            let share = 1.0 / sum;
            probs.iter_mut().for_each(|p| *p *= share);
            if router.scoring == Scoring::Sigmoid {
                for (score, &x) in scores.iter_mut().zip(logits) {
                    *score = sigmoid(x);
                }
            }
            rest[0] = top + sum.ln();
            choose(router, &scores[..n], bias, (&mut open, &mut rest[1..]));
        }
    });
}

/// Fills `chosen` with the indices of the largest `scores` + `bias` among the experts that a token reaches, in descending order; ties go
/// to the earlier one.
fn choose(
    router: Router,
    scores: &[f32],
    bias: Option<&[f32]>,
    (open, chosen): (&mut Vec<bool>, &mut [f32]),
) {
    let wanted = |e: usize| scores[e] + bias.map_or(0.0, |bias| bias[e]);
    router.open(|e| f64::from(wanted(e)), open);
    for k in 0..chosen.len() {
        let (before, rest) = chosen.split_at_mut(k);
        let free = (0..scores.len()).filter(|e| open[*e] && !before.contains(&(*e as f32)));
        let best = free.reduce(|a, b| if wanted(b) > wanted(a) { b } else { a });
        rest[0] = best.unwrap_or_default() as f32;
    }
}

/// Tokens sorted by expert: each token occurs top_k times, and those of one expert are contiguous.
#[derive(Debug, Default)]
pub struct Order {
    /// Start of each expert's segment, and the end.
    starts: Vec<usize>,
    /// The token at each position.
    tokens: Vec<u32>,
    /// For each token its top_k positions, in selection order.
    places: Vec<u32>,
}

impl Order {
    /// Sorts tokens by a routing; memory is reused.
    pub fn arrange(&mut self, router: Router, routing: &[f32]) {
        let rows = routing.len() / router.width();
        let all = |f: &mut dyn FnMut(usize, usize)| {
            for (token, row) in routing.chunks_exact(router.width()).enumerate() {
                router
                    .chosen(row)
                    .iter()
                    .for_each(|&e| f(token, e as usize));
            }
        };
        self.starts.clear();
        self.starts.resize(router.n_expert + 1, 0);
        all(&mut |_, e| self.starts[e + 1] += 1);
        for e in 0..router.n_expert {
            self.starts[e + 1] += self.starts[e];
        }
        self.tokens.resize(rows * router.top_k, 0);
        self.places.clear();
        let mut next = std::mem::take(&mut self.starts);
        all(&mut |token, e| {
            self.tokens[next[e]] = token as u32;
            self.places.push(next[e] as u32);
            next[e] += 1;
        });
        // Each expert's cursor now points to the start of the next expert's segment.
        next.rotate_right(1);
        next[0] = 0;
        if let Some(end) = next.last_mut() {
            *end = rows * router.top_k;
        }
        self.starts = next;
    }

    /// Positions of expert `e`.
    pub fn of(&self, e: usize) -> std::ops::Range<usize> {
        self.starts[e]..self.starts[e + 1]
    }

    fn places(&self, token: usize, top_k: usize) -> &[u32] {
        &self.places[token * top_k..(token + 1) * top_k]
    }
}

/// `out` (places, D) = the rows of `x` (N, D) in this order.
pub fn gather(order: &Order, d: usize, x: &[f32], out: &mut [f32]) {
    threads::rows1(out, d, d, |first, out| {
        for (out, &token) in out.chunks_exact_mut(d).zip(&order.tokens[first..]) {
            out.copy_from_slice(&x[token as usize * d..][..d]);
        }
    });
}

/// `y` (N, D) = `residual` + Σ gate · the token's rows of `outs` (positions, D).
pub fn combine(
    router: Router,
    order: &Order,
    routing: &[f32],
    outs: &[f32],
    residual: Option<&[f32]>,
    y: &mut [f32],
) {
    let d = y.len() * router.width() / routing.len();
    threads::rows1(y, d, 2 * router.top_k * d, |first, y| {
        for (i, y) in y.chunks_exact_mut(d).enumerate() {
            let token = first + i;
            match residual {
                Some(residual) => y.copy_from_slice(&residual[token * d..][..d]),
                None => y.fill(0.0),
            }
            let row = &routing[token * router.width()..][..router.width()];
            let places = order.places(token, router.top_k);
            for (gate, &place) in router.gates(row).zip(places) {
                let out = &outs[place as usize * d..][..d];
                for (y, &x) in y.iter_mut().zip(out) {
                    *y += gate * x;
                }
            }
        }
    });
}

/// For `dy` (N, D): replaces `outs` (positions, D), the experts' outputs, by the gradient with respect to them; `dgates`
/// (N, top_k) = the gradient with respect to the gates.
pub fn combine_backward(
    router: Router,
    order: &Order,
    routing: &[f32],
    dy: &[f32],
    outs: &mut [f32],
    dgates: &mut [f32],
) {
    let width = router.width();
    let d = dy.len() * width / routing.len();
    threads::rows1(
        dgates,
        router.top_k,
        2 * router.top_k * d,
        |first, dgates| {
            for (i, dgates) in dgates.chunks_exact_mut(router.top_k).enumerate() {
                let dy = &dy[(first + i) * d..][..d];
                let places = order.places(first + i, router.top_k);
                for (dgate, &place) in dgates.iter_mut().zip(places) {
                    *dgate = sum2(dy, &outs[place as usize * d..][..d], |a, b| a * b);
                }
            }
        },
    );
    threads::rows1(outs, d, 2 * d, |first, outs| {
        for (i, out) in outs.chunks_exact_mut(d).enumerate() {
            let token = order.tokens[first + i] as usize;
            let row = &routing[token * width..][..width];
            let places = order.places(token, router.top_k);
            let mut gates = router.gates(row).zip(places);
            let own = gates.find(|(_, place)| **place as usize == first + i);
            let gate = own.map_or(0.0, |(gate, _)| gate);
            for (out, &dy) in out.iter_mut().zip(&dy[token * d..]) {
                *out = gate * dy;
            }
        }
    });
}

/// `dx` (N, D) = (or +=) the sum of the token's rows of `dgathered` (positions, D).
pub fn gather_backward(order: &Order, top_k: usize, dgathered: &[f32], dx: &mut [f32], add: bool) {
    let d = dx.len() * top_k / order.tokens.len();
    threads::rows1(dx, d, top_k * d, |first, dx| {
        for (i, dx) in dx.chunks_exact_mut(d).enumerate() {
            if !add {
                dx.fill(0.0);
            }
            for &place in order.places(first + i, top_k) {
                for (dx, &x) in dx.iter_mut().zip(&dgathered[place as usize * d..]) {
                    *dx += x;
                }
            }
        }
    });
}

/// Gradient contributions of the load-balancing losses, per token.
#[derive(Debug, Clone, Copy)]
pub struct Balance<'a> {
    /// Gradient with respect to each expert's share of a token, (n_expert).
    pub by_share: &'a [f32],
    /// Gradient with respect to each squared log-sum-exp.
    pub by_lse: f32,
    pub counted: Counted<'a>,
}

/// Which tokens count in load statistics and balancing losses; padding does not.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counted<'a> {
    /// Positions per row; unused if `filled` is empty.
    pub seq_len: usize,
    /// For each row, the number of leading positions that are not padding. Empty: all tokens count.
    pub filled: &'a [u32],
}

impl Counted<'_> {
    /// Whether token `at` of all rows counts.
    pub fn has(&self, at: usize) -> bool {
        let filled = self.filled.get(at / self.seq_len.max(1));
        filled.is_none_or(|filled| at % self.seq_len.max(1) < *filled as usize)
    }
}

/// `dlogits` (N, n_expert) = the gradient with respect to the router's logits, for `dgates` (N, top_k) and the balancing losses.
pub fn route_backward(
    router: Router,
    routing: &[f32],
    dgates: &[f32],
    balance: Balance,
    dlogits: &mut [f32],
) {
    let (n, width) = (router.n_expert, router.width());
    threads::rows1(dlogits, n, 10 * n, |first, dlogits| {
        for (i, dlogits) in dlogits.chunks_exact_mut(n).enumerate() {
            let row = &routing[(first + i) * width..][..width];
            let dgates = &dgates[(first + i) * router.top_k..][..router.top_k];
            let scores = &row[..n];
            // First with respect to the scores.
            let counts = balance.counted.has(first + i);
            match counts {
                true => dlogits.copy_from_slice(balance.by_share),
                false => dlogits.fill(0.0),
            }
            if router.scoring == Scoring::Sigmoid && counts {
                let norm = router.share_norm(row);
                let mean = sum2(scores, dlogits, |s, d| s * d) / norm;
                dlogits.iter_mut().for_each(|d| *d = (*d - mean) / norm);
            }
            let along: f32 = match router.norm_topk {
                true => router.gates(row).zip(dgates).map(|(g, d)| g * d).sum(),
                false => 0.0,
            };
            let norm = router.norm(row);
            for (&e, &dgate) in router.chosen(row).iter().zip(dgates) {
                dlogits[e as usize] += (router.scale * dgate - along) / norm;
            }
            let by_lse = match counts {
                true => 2.0 * balance.by_lse * row[router.lse()],
                false => 0.0,
            };
            match router.scoring {
                Scoring::Softmax => {
                    let mean = sum2(scores, dlogits, |p, d| p * d);
                    for (d, &p) in dlogits.iter_mut().zip(scores) {
                        *d = p * (*d - mean + by_lse);
                    }
                }
                Scoring::Sigmoid => {
                    let pairs = scores.iter().zip(router.probabilities(row));
                    for (d, (&s, &p)) in dlogits.iter_mut().zip(pairs) {
                        *d = *d * s * (1.0 - s) + by_lse * p;
                    }
                }
            }
        }
    });
}

/// Load statistics of a routing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    /// Tokens per expert, without padding.
    pub counts: Vec<f64>,
    /// Σ over tokens of each expert's share: its score over the sum of all.
    pub shares: Vec<f64>,
    /// Σ over tokens of log-sum-exp².
    pub lse_squares: f64,
    pub tokens: f64,
}

impl Tally {
    pub fn clear(&mut self, n_expert: usize) {
        self.counts.clear();
        self.counts.resize(n_expert, 0.0);
        self.shares.clear();
        self.shares.resize(n_expert, 0.0);
        self.lse_squares = 0.0;
        self.tokens = 0.0;
    }

    /// Accumulates a routing, in row order.
    pub fn add(&mut self, router: Router, routing: &[f32], counted: Counted) {
        let rows = routing.chunks_exact(router.width()).enumerate();
        for (_, row) in rows.filter(|(at, _)| counted.has(*at)) {
            for &e in router.chosen(row) {
                self.counts[e as usize] += 1.0;
            }
            let norm = router.share_norm(row);
            for (sum, &score) in self.shares.iter_mut().zip(row) {
                *sum += f64::from(score / norm);
            }
            self.lse_squares += f64::from(row[router.lse()]).powi(2);
            self.tokens += 1.0;
        }
    }

    /// Adds another micro-step's counts.
    pub fn join(&mut self, other: &Tally) {
        for (sums, more) in [
            (&mut self.counts, &other.counts),
            (&mut self.shares, &other.shares),
        ] {
            sums.resize(sums.len().max(more.len()), 0.0);
            sums.iter_mut().zip(more).for_each(|(sum, x)| *sum += x);
        }
        self.lse_squares += other.lse_squares;
        self.tokens += other.tokens;
    }

    /// E · Σ f_e P_e: top_k if perfectly balanced.
    pub fn aux(&self) -> f64 {
        let pairs = self.counts.iter().zip(&self.shares);
        let sum: f64 = pairs.map(|(f, p)| f * p).sum();
        self.counts.len() as f64 * sum / self.tokens.powi(2).max(1.0)
    }

    /// Mean of log-sum-exp².
    pub fn z(&self) -> f64 {
        self.lse_squares / self.tokens.max(1.0)
    }
}

#[cfg(test)]
mod tests;
