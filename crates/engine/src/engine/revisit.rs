//! Recomputes a past step: its rows and the loss of each of their tokens. Rows are a function of (seed, step), so none have
//! to be stored; weights are those of the nearest checkpoint before the step.

use super::checkpoint::fingerprint::Match;
use super::checkpoint::{self, Fingerprint, Manifest};
use super::examine::answer;
use super::start_weights::{arithmetic, blank_policy, start_weights};
use super::{EngineError, micro_step_of};
use crate::data::{Batch, Dataset, Unit};
use crate::hf;
use crate::methods::tokens;
use crate::nn::{HeadKind, Model, Params};
use crate::run::revisit::{Row, ScoredRow};
use crate::run::{CheckpointEntry, RunDir};
use crate::spec::RunSpec;

/// Whose rows: a spec and its data, and of a run the batches that rescues passed over.
pub struct Revisit<'a> {
    spec: &'a RunSpec,
    data: &'a Dataset,
    skips: Vec<(u64, u64)>,
}

/// Weights to score rows with.
pub struct Weights {
    model: Model,
    /// Step of their checkpoint; 0 are those before the first step.
    pub step: u64,
}

impl Weights {
    pub fn params(&self) -> &Params {
        self.model.params()
    }
}

impl<'a> Revisit<'a> {
    /// The rows of a spec that no run has trained yet.
    pub fn of_spec(spec: &'a RunSpec, data: &'a Dataset) -> Revisit<'a> {
        Revisit {
            spec,
            data,
            skips: Vec::new(),
        }
    }

    /// The rows of a run, by what its newest checkpoint says of batches that were passed over.
    ///
    /// # Errors
    /// An unreadable checkpoint; data that have changed since the run.
    pub fn of_run(
        run: &RunDir,
        spec: &'a RunSpec,
        data: &'a Dataset,
    ) -> Result<Revisit<'a>, EngineError> {
        let mut revisit = Revisit::of_spec(spec, data);
        if let Some(newest) = run.checkpoints().last() {
            let saved = checkpoint::read_state(&newest.path)?;
            if let Match::Different(why) = saved.fingerprint.compare(&Fingerprint::of(spec, data)) {
                return Err(EngineError::Setup(format!(
                    "the rows of past steps cannot be recomputed: {why}; restore the data"
                )));
            }
            revisit.skips = saved.progress.skips;
        }
        Ok(revisit)
    }

    /// Why tokens of this run have no loss, where they have none.
    pub fn without_losses(&self) -> Option<&'static str> {
        let needs = self.spec.method.needs();
        match (needs.unit, needs.head) {
            (Unit::Prompt, _) => Some(
                "this method trains on the model's own completions; see the Examples pane and the run's folder rollouts/",
            ),
            (_, HeadKind::Score) => Some("a reward model scores whole answers, not tokens"),
            _ => None,
        }
    }

    /// The rows of a step, counted from 1, in the order in which it read them.
    ///
    /// # Errors
    /// A batch that the weights refuse.
    pub fn rows(
        &self,
        step: u64,
        mut weights: Option<&mut Weights>,
    ) -> Result<Vec<Row>, EngineError> {
        let train = &self.spec.train;
        let accum = train.accum(step) as u64;
        let first = micro_step_of(step, train, &self.skips);
        let mut rows = Vec::new();
        for micro_step in first..first + accum {
            let batch = self
                .data
                .train_batch(self.spec.seed, micro_step, train.micro_batch_size);
            let place = Row {
                step: Some(step),
                micro_step: Some(micro_step),
                ..Row::default()
            };
            rows.extend(self.described(&batch, &place, weights.as_deref_mut())?);
        }
        Ok(rows)
    }

    /// Rows of the validation split from row number `first` on, as many as a micro-batch has; none after its end.
    ///
    /// # Errors
    /// A batch that the weights refuse.
    pub fn held_out(
        &self,
        first: usize,
        weights: Option<&mut Weights>,
    ) -> Result<Vec<Row>, EngineError> {
        let left = self.data.val_windows().saturating_sub(first);
        if left == 0 {
            return Ok(Vec::new());
        }
        let batch = self
            .data
            .val_batch(first, self.spec.train.micro_batch_size.min(left));
        let place = Row {
            held_out: true,
            row: first,
            ..Row::default()
        };
        self.described(&batch, &place, weights)
    }

    fn described(
        &self,
        batch: &Batch,
        place: &Row,
        weights: Option<&mut Weights>,
    ) -> Result<Vec<Row>, EngineError> {
        let scores = match weights {
            Some(weights) => {
                let out = weights.model.score(&tokens(batch))?;
                let logp: Vec<f32> = out.logp.flatten_all()?.to_vec1()?;
                Some((weights.step, logp))
            }
            None => None,
        };
        let rows = (0..batch.batch_size).map(|row| {
            let mut described = self.row(batch, row, place);
            if let Some((step, logp)) = &scores {
                let logp = &logp[row * batch.seq_len..(row + 1) * batch.seq_len];
                described.scored = Some(self.scored(&described, *step, logp));
            }
            described
        });
        Ok(rows.collect())
    }

    fn row(&self, batch: &Batch, row: usize, place: &Row) -> Row {
        let at = row * batch.seq_len..(row + 1) * batch.seq_len;
        let ids = &batch.inputs[at.clone()];
        let mask = match batch.mask.get(at.clone()) {
            Some(mask) => mask.to_vec(),
            None => vec![true; ids.len()],
        };
        Row {
            row: place.row + row / batch.unit.sequences(),
            label: answer(batch, row).map(String::from),
            supervised: mask.iter().filter(|counts| **counts).count(),
            mask,
            ids: ids.to_vec(),
            targets: batch.targets[at.clone()].to_vec(),
            text: self.data.tokenizer.decode(ids),
            first: batch.first.get(at.clone()).map(<[u32]>::to_vec),
            start: batch.starts.get(row).copied(),
            sources: self.sources(batch, at),
            ..place.clone()
        }
    }

    /// Names of the sources whose documents lie at these places.
    fn sources(&self, batch: &Batch, at: std::ops::Range<usize>) -> Vec<String> {
        let known = self.data.sources();
        if let ([only], true) = (&known[..], batch.starts.is_empty()) {
            return vec![only.name.clone()];
        }
        let sequences = batch.sequence.get(at).unwrap_or_default();
        let mut names: Vec<String> = Vec::new();
        for sequence in sequences {
            let origin = batch.origins.get(*sequence as usize);
            let source = origin.and_then(|origin| known.get(origin.source as usize));
            if let Some(source) = source
                && !names.contains(&source.name)
            {
                names.push(source.name.clone());
            }
        }
        names
    }

    fn scored(&self, row: &Row, weights_of: u64, logp: &[f32]) -> ScoredRow {
        let counted = || {
            let all = logp.iter().zip(&row.mask);
            all.filter(|(_, counts)| **counts)
                .map(|(x, _)| -f64::from(*x))
        };
        let n = counted().count();
        let tokenizer = &self.data.tokenizer;
        ScoredRow {
            weights_of,
            losses: logp.iter().map(|x| -x).collect(),
            loss: (n > 0).then(|| counted().sum::<f64>() / n as f64),
            pieces: row
                .targets
                .iter()
                .map(|id| tokenizer.decode(&[*id]))
                .collect(),
            firsts: firsts(row)
                .map(|at| (at, tokenizer.decode(&row.ids[at..=at])))
                .collect(),
        }
    }

    /// The weights of a checkpoint; without one those before the first step.
    ///
    /// # Errors
    /// A damaged checkpoint, a start model that is gone, a method whose tokens have no loss.
    pub fn weights(&self, from: Option<&CheckpointEntry>) -> Result<Weights, EngineError> {
        if let Some(why) = self.without_losses() {
            return Err(EngineError::Setup(format!("no per-token loss: {why}")));
        }
        let mut model = blank_policy(self.spec, self.data)?;
        model.set_compute_dtype(arithmetic(self.spec)?)?;
        let Some(from) = from else {
            start_weights(&mut model, self.spec, self.data)?;
            return Ok(Weights { model, step: 0 });
        };
        Manifest::verify(&from.path).map_err(checkpoint::CheckpointError::from)?;
        if model.params().is_present() {
            hf::read_weights(&from.path, &mut model).map_err(checkpoint::CheckpointError::from)?;
        }
        if model.adapter().is_some() {
            hf::read_adapter(&from.path, &mut model).map_err(checkpoint::CheckpointError::from)?;
        }
        Ok(Weights {
            model,
            step: from.step,
        })
    }
}

/// The newest checkpoint that a step, counted from 1, began at or after.
pub fn before(run: &RunDir, step: u64) -> Option<CheckpointEntry> {
    let kept = run.checkpoints();
    kept.into_iter().rev().find(|entry| entry.step < step)
}

/// Places whose input token is no target: the row's first, and the first of each later document that none before it predicts.
fn firsts(row: &Row) -> impl Iterator<Item = usize> + '_ {
    let begins = |at: usize| {
        let first = row.first.as_ref().and_then(|first| first.get(at));
        first.is_some_and(|first| *first as usize == at)
    };
    (0..row.ids.len())
        .filter(move |at| *at == 0 || begins(*at) && row.targets[at - 1] != row.ids[*at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tests::tiny;
    use crate::methods::evaluate;
    use crate::metrics::Readings;

    #[test]
    fn the_rows_of_a_step_are_its_batches_and_their_mean_loss_is_the_method_s() {
        let (spec, data) = tiny(&["train.grad_accum_steps=2"]);
        let revisit = Revisit::of_spec(&spec, &data);
        let mut weights = revisit.weights(None).unwrap();
        let rows = revisit.rows(3, Some(&mut weights)).unwrap();
        let size = spec.train.micro_batch_size;
        assert_eq!(rows.len(), 2 * size);
        let (mut sum, mut n) = (0.0, 0);
        for micro_step in 4..6 {
            let batch = data.train_batch(spec.seed, micro_step, size);
            let out = weights.model.score(&tokens(&batch)).unwrap();
            let mut readings = Readings::default();
            sum += evaluate(&*spec.method, &batch, &out, 1.0, &mut readings).unwrap();
            n += batch.supervised();
            for (at, row) in (0..size).zip(&rows[(micro_step as usize - 4) * size..]) {
                let places = at * batch.seq_len..(at + 1) * batch.seq_len;
                assert_eq!(row.ids, batch.inputs[places.clone()]);
                assert_eq!(row.targets, batch.targets[places]);
                assert_eq!((row.micro_step, row.step), (Some(micro_step), Some(3)));
                assert_eq!(data.tokenizer.encode(&row.text).unwrap(), row.ids);
            }
        }
        let end = data.val_windows();
        assert_eq!(revisit.held_out(end, Some(&mut weights)).unwrap(), []);
        assert_eq!(
            revisit.held_out(end - 1, Some(&mut weights)).unwrap().len(),
            1
        );
        let mean = crate::run::revisit::mean_loss(&rows).unwrap();
        assert!((mean - sum / n as f64).abs() < 1e-6, "{mean}");
    }

    /// The numbers of held-out examples, one after the other over micro-batches, and their labels.
    fn held_out(preset: &str) -> Vec<(usize, String)> {
        let words = ["train.micro_batch_size=2".to_string()];
        let loaded = crate::spec::load(preset, &words, &Default::default()).unwrap();
        let data = loaded.spec.open_data(&Default::default()).unwrap();
        let revisit = Revisit::of_spec(&loaded.spec, &data);
        let rows = [0, 2].map(|first| revisit.held_out(first, None).unwrap());
        let rows = rows.into_iter().flatten();
        rows.map(|row| (row.row, row.label.unwrap_or_default()))
            .collect()
    }

    #[test]
    fn both_answers_of_a_pair_have_the_number_of_their_example() {
        let rows = held_out("dpo-demo");
        let numbers: Vec<usize> = rows.iter().map(|(row, _)| *row).collect();
        assert_eq!(numbers, [0, 0, 1, 1, 2, 2, 3, 3]);
        let labels: Vec<&str> = rows.iter().map(|(_, label)| label.as_str()).collect();
        assert_eq!(labels, ["chosen", "rejected"].repeat(4));
    }

    #[test]
    fn judged_rows_say_how_they_were_judged() {
        let rows = held_out("kto-demo");
        let numbers: Vec<usize> = rows.iter().map(|(row, _)| *row).collect();
        assert_eq!(numbers, [0, 1, 2, 3]);
        let known = |label: &String| ["desirable", "undesirable"].contains(&label.as_str());
        assert!(rows.iter().all(|(_, label)| known(label)), "{rows:?}");
    }
}
