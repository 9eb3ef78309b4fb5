//! The model on PyTorch ranks. The engine keeps a copy of weights and moments and tracks which side is newer; they are synchronized
//! before a read: a checkpoint, a sample, a step after a rollback. Losses are the methods' own, computed on log-probabilities that
//! the ranks return.

mod asked;
mod build;
mod experts;
mod held;
mod start;
mod teacher;
mod texts;
mod twin;
mod values;

use super::update::{At, Gradients};
use crate::base::clock::Clock;
use crate::base::paths::Env;
use crate::base::rng::{Rng, Stream};
use crate::data::Batch;
use crate::methods::{Method, Pass, micro_step, of_batches};
use crate::nn::{
    DistilledGradient, Model, Teacher, TokenBatch, TokenOutputs, TokenValues, Upstream,
};
use crate::optim::{EMA_BEGUN, StatePart, UpdateRule};
use crate::wire::Values;
use crate::workers::node::Machine;
use crate::workers::{
    Answer, Frame, WorkerDirs, WorkerFailure, WorkerGroup, bytes_of, bytes_of_ids, floats, numbers,
    pieces, torch,
};
use candle_core::{Error, Result, bail};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use twin::{CopyState, Twin};
use values::{Parts, TokenRows};

/// A request may take this many times the median step time (or the configured patience, if longer) before it counts as hung.
const TIMES_USUAL: f64 = 20.0;
/// Steps whose durations define the typical one.
const USUAL: usize = 32;
/// Behind the rule's name: the part of its state that counts updates.
const STEPS: &str = ".steps";

/// Which weights score a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScoringWeights {
    Policy,
    /// The policy without its adapters.
    AdapterOff,
    /// The frozen copy.
    Reference,
}

fn computes_on(shard: &str, ranks: usize, build: &Value, torch: &str, compiled: bool) -> String {
    let device = build["device"].as_str().unwrap_or_default();
    let torch = crate::base::text::one_line(torch);
    let compiled = if compiled { ", compiled" } else { "" };
    format!("torch ({shard}, ranks {ranks}, {device}, PyTorch {torch}{compiled})")
}

/// Ranks at work for one run.
pub struct Remote {
    settings: torch::Config,
    clock: Arc<dyn Clock>,
    env: Env,
    place: WorkerDirs,
    run: String,
    /// The machines that have ranks; none where only this one does.
    machines: Vec<Machine>,
    /// PyTorch's version, on the first of them.
    torch: String,
    /// The one that requests go to: the policy, but in [`Remote::for_critic`].
    model: Twin,
    critic: Option<Twin>,
    ranks: usize,
    workers: Option<WorkerGroup>,
    generation: u64,
    /// Why the last generation ended.
    lost: Option<WorkerFailure>,
    /// Micro-batches of the step, and the one under way.
    of: usize,
    micro: usize,
    /// The position of the current micro-batch in the run.
    at: At,
    /// Seconds of forward passes of each rank since they were asked for.
    forward: Vec<f64>,
    /// The memory that each rank held after the last update, and what of it was not asked for yet.
    memory: Values,
    memory_news: Values,
    usual: Vec<f64>,
    /// Whether rows are of ever other lengths just now, which ranks do not compile for.
    varied: bool,
    /// Why ranks that were to compile the model do without.
    not_compiled: Option<String>,
    /// What a distillation learns from, and whether the ranks have it.
    teacher: Option<Teacher>,
    taught: bool,
}

impl Remote {
    /// What computes, in words.
    pub fn words(&self) -> String {
        let torch = crate::base::text::one_line(&self.torch);
        let (device, precision) = (
            self.model.build["device"].as_str(),
            self.model.build["precision"].as_str(),
        );
        let (device, precision) = (device.unwrap_or_default(), precision.unwrap_or_default());
        let ranks = match self.ranks {
            1 => "1 process".to_string(),
            n => format!("{n} processes ({})", self.settings.shard_word()),
        };
        let names: Vec<&str> = self.machines.iter().map(Machine::name).collect();
        let ranks = match names.len() {
            0 => ranks,
            n => format!("{ranks} on {n} machines ({})", names.join(", ")),
        };
        let compiled = match &self.not_compiled {
            Some(why) => format!(", not compiled ({})", crate::base::text::one_line(why)),
            None if self.model.build["compile"] == true => ", compiled".into(),
            None => String::new(),
        };
        format!(
            "PyTorch {torch}: {ranks} on {device}, {precision}{compiled}, generation {}",
            self.generation
        )
    }

    /// All of the ranks that losses depend on to the bit.
    pub fn computes(&self) -> String {
        let compiled = self.not_compiled.is_none() && self.model.build["compile"] == true;
        computes_on(
            self.settings.shard_word(),
            self.ranks,
            &self.model.build,
            &self.torch,
            compiled,
        )
    }

    /// Whether GPUs compute, and not processors.
    pub fn are_on_gpus(&self) -> bool {
        self.model.build["device"] == "cuda"
    }

    /// The number format of matmuls.
    pub fn precision(&self) -> &str {
        self.model.build["precision"].as_str().unwrap_or("f32")
    }

    /// Why the ranks are gone, if they are; later requests are refused.
    pub fn lost(&self) -> Option<&WorkerFailure> {
        self.lost.as_ref()
    }

    /// The engine's copy was changed: a checkpoint was read, or weights were drawn.
    pub fn copy_changed(&mut self) {
        self.model.copy_changed();
        self.critic_changed();
    }

    /// The same of its copy of the critic.
    pub fn critic_changed(&mut self) {
        self.critic.iter_mut().for_each(Twin::copy_changed);
    }

    /// How many processes there are.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Seconds of forward passes of each rank since this was asked last: where ranks wait for none other.
    pub fn take_forward_seconds(&mut self) -> Vec<f64> {
        std::mem::replace(&mut self.forward, vec![0.0; self.ranks])
    }

    /// Brings the ranks' weights and moments into the engine's copy, where they are newer.
    ///
    /// # Errors
    /// The ranks are gone.
    pub fn pull(&mut self, model: &mut Model, optimizer: &mut dyn UpdateRule) -> Result<()> {
        if self.model.copy != CopyState::Behind {
            return Ok(());
        }
        self.pull_weights(model)?;
        for part in optimizer.state().iter().filter(|part| is_moment(part)) {
            let values = self.fetch(theirs(part), part.len)?;
            optimizer.write_state(part.name, &mut |own| own.copy_from_slice(&values))?;
        }
        self.model.copy = CopyState::Same;
        Ok(())
    }

    /// The weights alone: the copy of the moments stays as old as it is. Frozen ones are what they were, and ranks may hold them rounded.
    ///
    /// # Errors
    /// The ranks are gone.
    pub fn pull_weights(&mut self, model: &mut Model) -> Result<()> {
        if self.model.copy == CopyState::Behind {
            let trained = self.fetch("trained", model.params().n_trainable())?;
            model.params_mut().write_trained(&trained)?;
        }
        Ok(())
    }

    fn fetch(&mut self, part: &str, len: usize) -> Result<Vec<f32>> {
        let mut values = Vec::with_capacity(len);
        let mut bytes = 0;
        let ask = self.model.ask(json!({"type": "save", "part": part}));
        self.ask(|_| Frame::new(ask.clone()), &mut |piece| {
            bytes += piece.len();
            if bytes <= 4 * len {
                values.extend(numbers(piece));
            }
        })?;
        if bytes != 4 * len || values.len() != len {
            bail!("{part}: the ranks sent {bytes} bytes for {len} numbers");
        }
        Ok(values)
    }

    /// Brings the engine's weights to the ranks, where they are newer.
    ///
    /// # Errors
    /// The ranks are gone.
    pub fn push(&mut self, model: &Model) -> Result<()> {
        if self.model.copy != CopyState::Ahead {
            return Ok(());
        }
        // As they lie there: a second copy of a large model would not fit beside the first.
        let params = model.params();
        params.read_weights(|weights| self.send("weights", weights, 0))??;
        self.model.copy = CopyState::Same;
        Ok(())
    }

    /// The same for moments and the count of updates.
    fn push_moments(&mut self, optimizer: &dyn UpdateRule) -> Result<()> {
        if !std::mem::take(&mut self.model.moments_ahead) {
            return Ok(());
        }
        let steps = updates_of(optimizer)?;
        for part in optimizer.state().iter().filter(|part| is_moment(part)) {
            let mut sent = Ok(());
            optimizer.read_state(part.name, &mut |own| {
                sent = self.send(theirs(part), own, steps);
            })?;
            sent?;
        }
        Ok(())
    }

    fn send(&mut self, part: &str, values: &[f32], steps: u64) -> Result<()> {
        self.send_parts(part, [values, &[]], steps)
    }

    /// The same of a buffer whose values lie in two places.
    fn send_parts(&mut self, part: &str, values: [&[f32]; 2], steps: u64) -> Result<()> {
        let ask = self
            .model
            .ask(json!({"type": "load", "part": part, "steps": steps}));
        self.with_workers(|workers| {
            workers.send_each(|_| Frame::new(ask.clone()))?;
            for piece in values.into_iter().flat_map(pieces) {
                workers.send_to(0, &piece)?;
            }
            workers.answers(None, &mut || false, &mut |_| {})
        })?;
        Ok(())
    }

    /// The ranks keep a frozen copy of the weights as they are.
    ///
    /// # Errors
    /// They cannot.
    pub fn keep_reference(&mut self) -> Result<()> {
        let ask = self.model.ask(json!({"type": "reference"}));
        self.ask(|_| Frame::new(ask.clone()), &mut |_| {})?;
        Ok(())
    }

    /// The ranks keep this model, which is the policy's shape without adapters, as the frozen copy; the policy goes out again before
    /// the next pass.
    ///
    /// # Errors
    /// They cannot.
    pub fn put_reference(&mut self, model: &Model, policy: &Model) -> Result<()> {
        // As they lie there, too; adapters come after the base.
        let (base, all) = (model.params(), policy.params());
        base.read_weights(|base| {
            all.read_weights(|all| self.send_parts("weights", [base, &all[base.len()..]], 0))
        })???;
        self.model.copy = CopyState::Ahead;
        self.keep_reference()
    }

    /// Log-probabilities, entropies and top-1 marks of a batch, without a gradient.
    ///
    /// # Errors
    /// The ranks are gone.
    pub fn score(&mut self, batch: &TokenBatch, who: ScoringWeights) -> Result<TokenOutputs> {
        // Rows of tasks have nothing to learn.
        let beside = match who {
            ScoringWeights::Policy if !self.varied => self.beside(false)?,
            _ => None,
        };
        let values = self.forward(batch, &[], Some(who), beside)?;
        values.outputs((batch.batch_size, batch.seq_len))
    }

    /// The gradient over the micro-batches of a step; it stays on the ranks.
    ///
    /// # Errors
    /// The ranks are gone; a batch that the method refuses.
    pub fn gradients(
        &mut self,
        method: &dyn Method,
        batches: &[Batch],
        at: At,
    ) -> Result<Gradients> {
        let begun = self.clock.elapsed();
        let method = of_batches(method, batches);
        let normalizer = method.normalizer().count(batches).max(1) as f64;
        let mut found = Gradients::default();
        (self.of, self.micro) = (batches.len(), 0);
        for (micro, batch) in batches.iter().enumerate() {
            self.at = At {
                micro_step: at.micro_step + micro as u64,
                ..at
            };
            found.loss += micro_step(method, self, batch, normalizer, &mut found.readings)?;
            self.micro += 1;
        }
        let ask = self.model.ask(json!({"type": "norm"}));
        let answers = self.ask(|_| Frame::new(ask.clone()), &mut |_| {})?;
        let norm = answers[0].frame.header["norm"]
            .as_str()
            .and_then(|word| word.parse().ok());
        found.norm = norm.unwrap_or(f64::NAN);
        found.experts = self.expert_load(&answers[0].frame.payload)?;
        self.record_duration((self.clock.elapsed() - begun).as_secs_f64());
        Ok(found)
    }

    /// One update with the gradient on the ranks.
    ///
    /// # Errors
    /// The ranks are gone.
    pub fn apply(&mut self, lr: f64, scale: f64, optimizer: &mut dyn UpdateRule) -> Result<()> {
        self.push_moments(optimizer)?;
        let average = optimizer.average().map(|average| {
            let (begins, gain) = average.count_update();
            json!({"begins": begins, "gain": gain})
        });
        let ask = json!({"type": "apply", "lr": lr, "scale": scale, "average": average});
        let ask = self.model.ask(ask);
        let answers = self.ask(|_| Frame::new(ask.clone()), &mut |_| {})?;
        self.record_memory(&answers);
        self.model.copy = CopyState::Behind;
        let steps = updates_of(optimizer)?;
        let Some(name) = steps_of(optimizer) else {
            return Ok(());
        };
        optimizer.write_state(name, &mut |pieces| {
            for (i, piece) in pieces.iter_mut().enumerate() {
                *piece = (((steps + 1) >> (16 * i)) & 0xffff) as f32;
            }
        })
    }

    /// Ends the ranks in order.
    pub fn end(&mut self) {
        if let Some(workers) = self.workers.take() {
            workers.end();
        }
    }

    fn record_duration(&mut self, seconds: f64) {
        if self.usual.len() == USUAL {
            self.usual.remove(0);
        }
        self.usual.push(seconds);
    }

    /// How long one answer may take: the patience, or 20 usual steps.
    fn patience(&self) -> Duration {
        let usual = crate::base::stats::median(&self.usual).unwrap_or(0.0);
        Duration::from_secs_f64(self.settings.patience.max(TIMES_USUAL * usual))
    }

    fn ask(
        &mut self,
        frame: impl FnMut(usize) -> Frame,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<Vec<Answer>> {
        let patience = self.patience();
        self.with_workers(|workers| {
            workers.send_each(frame)?;
            workers.answers(Some(patience), &mut || false, take)
        })
    }

    /// Lost ranks stay lost until a new generation is started.
    fn with_workers<R>(
        &mut self,
        work: impl FnOnce(&mut WorkerGroup) -> std::result::Result<R, WorkerFailure>,
    ) -> Result<R> {
        let result = match &mut self.workers {
            Some(workers) => work(workers),
            None => bail!(
                "{}",
                self.lost
                    .as_ref()
                    .map_or("the ranks have ended", |lost| lost.what.as_str())
            ),
        };
        result.map_err(|lost| {
            // Ends the processes, whatever state they are in.
            self.workers = None;
            self.lost.get_or_insert(lost.clone());
            Error::wrap(lost)
        })
    }

    /// A forward pass over rows that are shared among the ranks, `beside` a teacher where that is described; with coefficients of
    /// log-probabilities, and of divergences from the teacher, also the backward pass of their sum.
    fn forward(
        &mut self,
        batch: &TokenBatch,
        coefficients: &[&[f32]],
        who: Option<ScoringWeights>,
        beside: Option<Value>,
    ) -> Result<TokenRows> {
        let (rows, length, ranks) = (batch.batch_size, batch.seq_len, self.ranks);
        let share = rows.div_ceil(ranks);
        let n_expert = self.n_expert();
        let mut header = json!({
            "type": "forward", "rows": share, "seq_len": length, "first": batch.first.is_some(), "linear": !coefficients.is_empty(),
            "train": who.is_none(), "varied": self.varied, "draws": draws(self.at), "micro": self.micro, "of": self.of,
            "model": if who == Some(ScoringWeights::Reference) { "reference" } else { "policy" }, "adapters": matches!(who, None | Some(ScoringWeights::Policy)),
            "temperature": batch.temperature,
        });
        let parts = Parts {
            value: self.model.build["model"]["config"]["value_head"] == true,
            teacher: beside.is_some(),
        };
        if let Some(beside) = beside {
            header["distill"] = beside;
        }
        let header = self.model.ask(header);
        let frame = |rank: usize| {
            let mut payload = Vec::with_capacity(5 * share * length * 4);
            let mut header = header.clone();
            if n_expert > 0 {
                header["filled"] = experts::filled(batch, rank, share).into();
            }
            // A rank with fewer rows is padded with the first row, at weight 0.
            let own =
                || (rank * share..(rank + 1) * share).map(|row| if row < rows { row } else { 0 });
            let ids = [Some(batch.inputs), Some(batch.targets), batch.first];
            for ids in ids.into_iter().flatten() {
                own().for_each(|row| {
                    payload.extend(bytes_of_ids(&ids[row * length..(row + 1) * length]))
                });
            }
            for c in coefficients {
                payload.extend(bytes_of(&shared(c, rank, share, length, rows)));
            }
            Frame::with(header, payload)
        };
        let answers = self.ask(frame, &mut |_| {})?;
        let mut values = TokenRows::default();
        for (rank, answer) in answers.iter().enumerate() {
            if who.is_none() {
                self.forward[rank] += answer.frame.header["seconds"].as_f64().unwrap_or(0.0);
            }
            let all = floats(&answer.frame.payload);
            let all = all.filter(|all| all.len() == parts.count() * share * length);
            let Some(all) = all else {
                bail!("rank {rank} answered {} bytes", answer.frame.payload.len())
            };
            let kept = rows.saturating_sub(rank * share).min(share) * length;
            for (part, values) in all.chunks(share * length).zip(values.parts(parts)) {
                values.extend_from_slice(&part[..kept]);
            }
        }
        Ok(values)
    }
}

impl Pass for Remote {
    fn linear(
        &mut self,
        batch: &TokenBatch,
        dlogp: &[f32],
        read: &mut dyn FnMut(TokenValues) -> f64,
    ) -> Result<f64> {
        let values = self.forward(batch, &[dlogp], None, None)?;
        Ok(read(values.view()))
    }

    fn any(
        &mut self,
        batch: &TokenBatch,
        loss: &mut dyn FnMut(TokenValues, &mut Upstream) -> Result<f64>,
    ) -> Result<f64> {
        let values = self.forward(batch, &[], None, None)?;
        let (rows, length) = (batch.batch_size, batch.seq_len);
        let share = rows.div_ceil(self.ranks);
        let mut upstream = Upstream {
            dlogp: vec![0.0; rows * length],
            dentropy: vec![0.0; rows * length],
            ..Upstream::default()
        };
        let loss = loss(values.view(), &mut upstream)?;
        let header = json!({"type": "backward", "entropy": upstream.uses_entropy});
        let header = self.model.ask(header);
        let given = [
            Some(&upstream.dlogp),
            upstream.uses_entropy.then_some(&upstream.dentropy),
            upstream.uses_value.then_some(&upstream.dvalue),
        ];
        let frame = |rank: usize| {
            let own = |of: &Vec<f32>| bytes_of(&shared(of, rank, share, length, rows));
            let payload = given.into_iter().flatten().flat_map(own).collect();
            Frame::with(header.clone(), payload)
        };
        self.ask(frame, &mut |_| {})?;
        Ok(loss)
    }

    fn distilled(
        &mut self,
        batch: &TokenBatch,
        gradient: DistilledGradient,
        read: &mut dyn FnMut(TokenValues) -> Result<f64>,
    ) -> Result<f64> {
        let ce = gradient.dlogp.iter().any(|c| *c != 0.0);
        let Some(beside) = self.beside(ce)? else {
            bail!("distillation: the ranks have no teacher")
        };
        let coefficients = [gradient.dlogp, gradient.ddivergence];
        read(
            self.forward(batch, &coefficients, None, Some(beside))?
                .view(),
        )
    }
}

/// What ranks seed their draws with at a micro-step, each with its number added. PyTorch draws by its own generators: what is
/// dropped differs from what this program's engine drops, as two seeds do.
fn draws(at: At) -> u64 {
    // 62 bits: below what PyTorch and JSON readers take, whatever is added.
    Rng::new(at.seed, Stream::Dropout, at.micro_step, 0).next_u64() >> 2
}

/// A rank's rows of values (B, T); zeros where it has more than there are.
fn shared(values: &[f32], rank: usize, share: usize, length: usize, rows: usize) -> Vec<f32> {
    let begin = (rank * share).min(rows) * length;
    let end = ((rank + 1) * share).min(rows) * length;
    let mut own = values[begin..end].to_vec();
    own.resize(share * length, 0.0);
    own
}

/// Whether a part of an update rule's state lies on the ranks.
fn is_moment(part: &StatePart) -> bool {
    !part.name.ends_with(STEPS) && part.name != EMA_BEGUN
}

/// How ranks call it: without the rule's name in front.
fn theirs(part: &StatePart) -> &'static str {
    part.name
        .split_once('.')
        .map_or(part.name, |(_, name)| name)
}

/// The part that counts updates, of a rule that does.
fn steps_of(optimizer: &dyn UpdateRule) -> Option<&'static str> {
    let parts = optimizer.state();
    let mut counts = parts.iter().filter(|part| part.name.ends_with(STEPS));
    counts.next().map(|part| part.name)
}

/// How many updates it has counted.
fn updates_of(optimizer: &dyn UpdateRule) -> Result<u64> {
    let mut steps = 0;
    if let Some(name) = steps_of(optimizer) {
        optimizer.read_state(name, &mut |pieces| steps = count(pieces))?;
    }
    Ok(steps)
}

/// A step count in pieces of 16 bits.
fn count(pieces: &[f32]) -> u64 {
    pieces
        .iter()
        .rev()
        .fold(0, |sum, piece| (sum << 16) | *piece as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of ranks, device, PyTorch version and compilation determine the bits, so a resume with others is reported.
    #[test]
    fn what_ranks_compute_on_is_named_in_full() {
        let gpu = json!({"device": "cuda"});
        let all = [
            computes_on("ddp", 2, &gpu, "2.15.0", false),
            computes_on("ddp", 4, &gpu, "2.15.0", false),
            computes_on("ddp", 2, &json!({"device": "cpu"}), "2.15.0", false),
            computes_on("ddp", 2, &gpu, "2.16.0", false),
            computes_on("ddp", 2, &gpu, "2.15.0", true),
        ];
        let mut named = all.to_vec();
        named.sort();
        named.dedup();
        assert_eq!(named.len(), all.len());
        assert_eq!(all[0], "torch (ddp, ranks 2, cuda, PyTorch 2.15.0)");
    }
}
