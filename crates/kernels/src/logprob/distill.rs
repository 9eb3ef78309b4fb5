//! The head beside a teacher's: the divergence between both distributions at each row, and its gradient. Logits of student and
//! teacher exist for one chunk of rows at a time. `divergence` has the computation of a row.

use super::divergence::{self, Compared, Divergence, SUMS};
use super::rows::{OUTPUTS, fill_outputs, row_to_gradient};
use super::{COST, Head, Inputs, Outputs, Sizes, Upstream, make_room};
use crate::aligned::Aligned;
use crate::matmul::{Accumulation, Compute, ComputeDtype, Mat, Plus};
use crate::matrix::Matrix;
use crate::numbers::ValuesMut;
use crate::{softcap, threads};

/// The frozen side of a distillation: the hidden states (rows, d) that another model has for the same tokens, and its head.
#[derive(Debug, Clone, Copy)]
pub struct Teacher<'a> {
    pub hidden: &'a [f32],
    pub d: usize,
    /// (vocab, d). Of two vocabularies, the first tokens that both have are compared.
    pub table: Matrix<'a>,
    pub vocab: usize,
    /// As in [`Inputs`].
    pub cap: Option<f32>,
    pub divergence: Divergence,
}

/// What is learned of each row: the gradient of a loss Σ dlogp · logp + Σ ddivergence · divergence.
#[derive(Debug)]
pub struct Learned<'a> {
    /// Its `dentropy` is not read.
    pub tokens: Upstream<'a>,
    pub ddivergence: &'a [f32],
    /// (rows, d), overwritten.
    pub dhidden: &'a mut [f32],
    /// (vocab, d); `None` if the table is frozen.
    pub dtable: Option<(&'a mut [f32], Accumulation)>,
}

/// What a head gives beside a teacher, for each row.
#[derive(Debug, Default)]
pub struct TeacherOutputs {
    /// Divergence between the two distributions, nats, at least 0.
    pub divergence: Vec<f32>,
    /// Entropy of the teacher's distribution at the divergence's temperature, nats.
    pub entropy: Vec<f32>,
    /// 1 where both have the same top-1 token, else 0.
    pub agrees: Vec<f32>,
    /// The teacher's logits of one chunk.
    logits: Aligned,
    /// Results of one chunk's rows, side by side.
    row_outputs: Vec<f32>,
}

/// Results of a row: those of a head alone, then those of the comparison.
const WIDE: usize = OUTPUTS + SUMS;

impl TeacherOutputs {
    fn resize(&mut self, sizes: Sizes, vocab: usize) {
        for part in [&mut self.divergence, &mut self.entropy, &mut self.agrees] {
            make_room(part, sizes.rows);
        }
        let logits = sizes.chunk_rows * vocab;
        if self.logits.len() < logits {
            self.logits = Aligned::default();
            self.logits = Aligned::zeros(logits);
        }
        make_room(&mut self.row_outputs, sizes.chunk_rows * WIDE);
    }

    /// Forgets the rows of an earlier pass; its memory stays.
    pub fn clear(&mut self) {
        for part in [&mut self.divergence, &mut self.entropy, &mut self.agrees] {
            part.clear();
        }
    }

    /// Bytes that stay allocated.
    pub(super) fn bytes(&self) -> u64 {
        let parts = [
            &self.divergence,
            &self.entropy,
            &self.agrees,
            &self.row_outputs,
        ];
        let numbers: usize = parts.into_iter().map(Vec::capacity).sum();
        ((numbers + self.logits.len()) * size_of::<f32>()) as u64
    }
}

/// Bytes of [`TeacherOutputs`] beside a head of these sizes, for a teacher of `vocab` tokens.
pub fn bytes_beside(sizes: Sizes, vocab: usize) -> u64 {
    let numbers = sizes.chunk_rows * (vocab + WIDE) + sizes.rows * 3;
    (numbers * size_of::<f32>()) as u64
}

/// Fills `outputs`, those of the teacher too; with `learned` also the gradient: one pass over the chunks, whose logits become their
/// gradient as soon as both distributions are known.
pub fn distill(
    arithmetic: ComputeDtype,
    sizes: Sizes,
    inputs: Inputs,
    teacher: Teacher,
    outputs: &mut Outputs,
    mut learned: Option<Learned>,
) {
    let head = Head::new(arithmetic, sizes, inputs);
    debug_assert_eq!(teacher.hidden.len(), sizes.rows * teacher.d);
    outputs.resize(sizes);
    outputs.teacher.resize(sizes, teacher.vocab);
    let (vocab, common) = (sizes.vocab, sizes.vocab.min(teacher.vocab));
    for rows in head.chunks() {
        let logits = &mut outputs.logits[..rows.len() * vocab];
        head.logits(&rows, logits);
        let theirs = &mut outputs.teacher.logits[..rows.len() * teacher.vocab];
        teacher_logits(&teacher, head.compute, &rows, theirs);

        // The student's logits stay; the teacher's become log-probabilities of the common tokens.
        let results = &mut outputs.teacher.row_outputs[..rows.len() * WIDE];
        let (own, targets) = (&*logits, &inputs.targets[rows.clone()]);
        let both = ((&mut *theirs, teacher.vocab), (&mut *results, WIDE));
        threads::rows2(
            both.0,
            both.1,
            4 * COST * vocab,
            |first, theirs, results| {
                let pairs = theirs.chunks_exact_mut(teacher.vocab);
                for (i, (theirs, result)) in pairs.zip(results.chunks_exact_mut(WIDE)).enumerate() {
                    let row = &own[(first + i) * vocab..][..vocab];
                    let (alone, compared) = result.split_at_mut(OUTPUTS);
                    fill_outputs(row, vocab, &targets[first + i..first + i + 1], alone);
                    let sums = teacher
                        .divergence
                        .compare(&row[..common], &mut theirs[..common]);
                    compared.copy_from_slice(&sums.to_array());
                }
            },
        );

        if let Some(learned) = &mut learned {
            let (tokens, weights) = (learned.tokens, learned.ddivergence);
            let results = &*results;
            let both = ((&mut *logits, vocab), (&mut *theirs, teacher.vocab));
            threads::rows2(both.0, both.1, 3 * COST * vocab, |first, logits, theirs| {
                let pairs = logits.chunks_exact_mut(vocab);
                for (i, (row, theirs)) in pairs
                    .zip(theirs.chunks_exact_mut(teacher.vocab))
                    .enumerate()
                {
                    let at = rows.start + first + i;
                    let (alone, compared) = results[(first + i) * WIDE..][..WIDE].split_at(OUTPUTS);
                    let theirs = &mut theirs[..common];
                    let sums = Compared::from_array(compared);
                    (teacher.divergence).gradient(&row[..common], theirs, &sums, weights[at]);
                    if let Some(cap) = inputs.cap {
                        softcap::uncap(theirs, &row[..common], 1.0 / cap);
                    }
                    // Without a cross entropy there is nothing to take from all of the row.
                    match tokens.dlogp[at] == 0.0 {
                        true => row.fill(0.0),
                        false => {
                            let of = tokens.constants(at, inputs.targets[at], alone[2], alone[1]);
                            row_to_gradient(row, of, inputs.cap);
                        }
                    }
                    divergence::add(&mut row[..common], theirs);
                }
            });
            let dtable = learned.dtable.as_mut();
            let dtable = dtable.map(|(dtable, into)| (&mut **dtable, *into));
            head.backward_matmuls(&rows, logits, learned.dhidden, dtable);
        }
        note(outputs, rows);
    }
}

/// The teacher's logits (rows, its vocabulary).
fn teacher_logits(
    teacher: &Teacher,
    compute: Compute,
    rows: &std::ops::Range<usize>,
    logits: &mut [f32],
) {
    let hidden = &teacher.hidden[rows.start * teacher.d..rows.end * teacher.d];
    let hidden = Mat::new(hidden, rows.len(), teacher.d);
    let to = ValuesMut::F32(logits);
    teacher
        .table
        .product(to, hidden, teacher.vocab, Plus::default(), compute);
    if let Some(cap) = teacher.cap {
        threads::rows1(logits, teacher.vocab, COST * teacher.vocab, |_, logits| {
            softcap::apply(logits, cap)
        });
    }
}

/// Copies the results of one chunk of rows to their columns.
fn note(outputs: &mut Outputs, rows: std::ops::Range<usize>) {
    let results = &outputs.teacher.row_outputs;
    for (at, result) in rows.zip(results.chunks_exact(WIDE)) {
        outputs.logp[at] = result[0];
        outputs.entropy[at] = result[1];
        outputs.lse[at] = result[2];
        outputs.top1[at] = result[3];
        let compared = Compared::from_array(&result[OUTPUTS..]);
        outputs.teacher.divergence[at] = compared.divergence;
        outputs.teacher.entropy[at] = compared.teacher_entropy;
        outputs.teacher.agrees[at] = compared.agrees;
    }
}
