//! Shared by fused one-pass updates: splitting flat buffers into chunks, and the norms that are by-products.
#![allow(unsafe_code)]

use super::lanes::{Lanes, Vector};
use super::threads::{self, Shared, SharedSlice};

/// One parameter tensor of an update. Parts are in the order of their gradients, which have no gaps; moments have the
/// gradients' layout.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// First element in the flat weights, and in the flat gradients.
    pub weights: usize,
    pub grads: usize,
    pub len: usize,
    /// The learning rate of this tensor relative to that of the update.
    pub lr_scale: f64,
    /// Decoupled weight decay: each update multiplies weights by 1 − lr · weight_decay.
    pub weight_decay: f64,
}

impl Part {
    /// The learning rate of this tensor if that of the update is `lr`.
    pub fn lr(&self, lr: f64) -> f64 {
        lr * self.lr_scale
    }

    /// The factor that weight decay applies to a weight.
    pub fn keep(&self, lr: f64) -> f64 {
        1.0 - self.lr(lr) * self.weight_decay
    }
}

/// L2 norms of one parameter tensor in one update.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Norms {
    /// Of the gradient, before it is scaled.
    pub grad: f64,
    /// Of the change made by the update, weight decay included.
    pub update: f64,
    /// Of the updated weights, before the update.
    pub weight: f64,
}

impl Norms {
    /// How far the update moved the tensor, relative to its size: about 1e-3 in healthy pretraining (Karpathy, CS231n).
    /// `None` for a tensor that was 0, like LoRA's second matrix before its first step.
    pub fn update_ratio(&self) -> Option<f64> {
        (self.weight != 0.0).then(|| self.update / self.weight)
    }
}

/// Elements whose squares are summed in f32, in sixteen lanes.
const CHUNK: usize = 1 << 13;

/// Elements of one task, in whole chunks.
const TASK: usize = 1 << 16;

/// The partition of the flat buffers: the same for any number of threads, so that norms do not depend on it.
#[derive(Debug)]
pub struct Chunks {
    parts: Vec<Part>,
    chunks: Vec<Chunk>,
    /// First chunk of each task, and the number of chunks at the end.
    tasks: Vec<usize>,
    norms: Vec<Norms>,
    /// Ends of the weights and gradients that parts cover.
    ends: [usize; 2],
}

/// A piece of one tensor and the sums of squares of its last update: gradient, change, weight.
#[derive(Debug, Clone, Copy)]
struct Chunk {
    /// First element within the part.
    from: usize,
    len: usize,
    part: usize,
    squares: [f32; 3],
}

/// What an update does to the elements of one chunk.
pub struct Piece<'a, const STATE: usize> {
    pub weights: *mut f32,
    pub state: [*mut f32; STATE],
    pub grads: &'a [f32],
    /// Sums of squares of gradient, change and weight, to be filled.
    pub squares: &'a mut [f32; 3],
}

impl Chunks {
    pub fn new(parts: Vec<Part>) -> Self {
        let (mut chunks, mut tasks, mut task_start) = (Vec::new(), vec![0], 0);
        let mut ends = [0; 2];
        for (number, part) in parts.iter().enumerate() {
            for from in (0..part.len).step_by(CHUNK) {
                if part.grads + from - task_start >= TASK {
                    tasks.push(chunks.len());
                    task_start = part.grads + from;
                }
                chunks.push(Chunk {
                    from,
                    len: CHUNK.min(part.len - from),
                    part: number,
                    squares: [0.0; 3],
                });
            }
            let reached = [part.weights + part.len, part.grads + part.len];
            for (end, reached) in ends.iter_mut().zip(reached) {
                *end = reached.max(*end);
            }
        }
        tasks.push(chunks.len());
        Chunks {
            norms: Vec::with_capacity(parts.len()),
            parts,
            chunks,
            tasks,
            ends,
        }
    }

    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Norms of the last update, one per part; empty before the first, and on devices without the fused form.
    pub fn norms(&self) -> &[Norms] {
        &self.norms
    }

    /// Calls `update` for every piece of every part, on all threads, and sums up the norms.
    pub fn update<const STATE: usize>(
        &mut self,
        weights: &mut [f32],
        grads: &[f32],
        state: [&mut [f32]; STATE],
        update: impl Fn(&Part, Piece<STATE>) + Sync,
    ) {
        let [weights_end, grads_end] = self.ends;
        assert!(weights_end <= weights.len(), "parts of the flat weights");
        assert_eq!(grads.len(), grads_end, "parts of the flat gradients");
        let fits = state.iter().all(|s| s.len() == grads_end);
        assert!(fits, "parts of the flat moments");
        let weights = Shared(weights.as_mut_ptr());
        let state = state.map(|s| Shared(s.as_mut_ptr()));
        let (parts, tasks) = (&self.parts, &self.tasks);
        let all = SharedSlice::new(&mut self.chunks);
        threads::tasks(tasks.len() - 1, TASK, |task| {
            // SAFETY: each task has its own chunks.
            let own = unsafe { all.range(tasks[task]..tasks[task + 1]) };
            for chunk in own {
                let part = &parts[chunk.part];
                let at = part.grads + chunk.from;
                // SAFETY: chunks do not overlap and lie within the slices, whose lengths were checked.
                let piece = unsafe {
                    Piece {
                        weights: weights.at(part.weights + chunk.from),
                        state: state.map(|s| s.at(at)),
                        grads: &grads[at..at + chunk.len],
                        squares: &mut chunk.squares,
                    }
                };
                update(part, piece);
            }
        });
        self.sum_up();
    }

    fn sum_up(&mut self) {
        self.norms.clear();
        self.norms.resize(self.parts.len(), Norms::default());
        for chunk in &self.chunks {
            let norms = &mut self.norms[chunk.part];
            let sums = [&mut norms.grad, &mut norms.update, &mut norms.weight];
            for (sum, squares) in sums.into_iter().zip(chunk.squares) {
                *sum += f64::from(squares);
            }
        }
        for norms in &mut self.norms {
            for norm in [&mut norms.grad, &mut norms.update, &mut norms.weight] {
                *norm = norm.sqrt();
            }
        }
    }
}

/// An update rule, element by element. Products and sums are rounded one by one, so that every machine gives the same bits.
pub(super) trait Elementwise<const STATE: usize> {
    /// The new weight and state for a raw gradient, an old weight and its state.
    ///
    /// # Safety
    /// The machine has the instructions of `V`.
    unsafe fn next<V: Vector>(&self, grad: V, weight: V, state: [V; STATE]) -> (V, [V; STATE]);
}

/// Updates one piece in place and sums up its squares.
///
/// # Safety
/// A piece has as many weights and state values as gradients; the machine has the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn apply<V: Vector, const STATE: usize>(
    rule: &impl Elementwise<STATE>,
    piece: Piece<STATE>,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let grads = piece.grads;
        let mut sums = [Lanes::<V>::all(0.0); 3];
        for at in (0..grads.len()).step_by(V::LANES) {
            let left = grads.len() - at;
            let grad = V::load_first(grads.as_ptr().add(at), left);
            let (weight, state) = (piece.weights.add(at), piece.state.map(|s| s.add(at)));
            let mut now = [V::all(0.0); STATE];
            for (now, from) in now.iter_mut().zip(state) {
                *now = V::load_first(from, left);
            }
            let old = V::load_first(weight, left);
            let (new, next) = rule.next(grad, old, now);
            for (to, next) in state.into_iter().zip(next) {
                next.store_first(to, left);
            }
            new.store_first(weight, left);
            // The results for the zeros beyond the end are not counted.
            let moved = new.minus(old).keep_first(left, 0.0);
            for (sum, x) in sums.iter_mut().zip([grad, moved, old]) {
                *sum.at(at) = x.fused(x, *sum.at(at));
            }
        }
        for (squares, sum) in piece.squares.iter_mut().zip(sums) {
            *squares = sum.total();
        }
    }
}

/// Compares norms of an update with sums in f64. `before` and `after` are all weights.
#[cfg(test)]
pub(super) fn assert_norms(chunks: &Chunks, grads: &[f32], before: &[f32], after: &[f32]) {
    assert_eq!(chunks.norms.len(), chunks.parts.len());
    for (norms, part) in chunks.norms.iter().zip(&chunks.parts) {
        let norm = |f: &dyn Fn(usize) -> f32| {
            let squares = (0..part.len).map(|i| f64::from(f(i)).powi(2));
            squares.sum::<f64>().sqrt()
        };
        let w = |i: usize| part.weights + i;
        for (norm, exact) in [
            (norms.grad, norm(&|i| grads[part.grads + i])),
            (norms.update, norm(&|i| after[w(i)] - before[w(i)])),
            (norms.weight, norm(&|i| before[w(i)])),
        ] {
            assert!((norm - exact).abs() <= 1e-5 * exact, "{norm} {exact}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_update_ratio_is_change_over_size() {
        let norms = Norms {
            grad: 0.0,
            update: 0.005,
            weight: 5.0,
        };
        assert!((norms.update_ratio().unwrap() - 1e-3).abs() < 1e-9);
        let from_zero = Norms {
            weight: 0.0,
            ..norms
        };
        assert_eq!(from_zero.update_ratio(), None);
    }

    #[test]
    fn only_the_weights_of_parts_are_touched() {
        let part = |weights, grads, len| Part {
            weights,
            grads,
            len,
            lr_scale: 1.0,
            weight_decay: 0.0,
        };
        let mut chunks = Chunks::new(vec![part(3, 0, 2), part(20_000, 2, CHUNK + 5)]);
        let mut weights = vec![0.0; 40_000];
        let grads: Vec<f32> = (0..CHUNK + 7).map(|i| 1.0 + i as f32).collect();
        chunks.update(&mut weights, &grads, [], |_, piece| {
            for (i, g) in piece.grads.iter().enumerate() {
                // SAFETY: a piece has as many weights as gradients.
                unsafe { *piece.weights.add(i) = *g };
            }
        });
        let mut expected = vec![0.0; 40_000];
        expected[3..5].copy_from_slice(&grads[..2]);
        expected[20_000..20_000 + CHUNK + 5].copy_from_slice(&grads[2..]);
        assert!(weights == expected);
    }
}
