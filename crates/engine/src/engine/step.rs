//! One optimizer step: micro-batches forward and backward, the norm, the update, and its line in the log.

use super::EngineError;
use super::broken::NonFinite;
use super::context::RunContext;
use super::due::log_is_due;
use super::experience::Experience;
use super::mix::Mix;
use super::own_answers::OWN_LOSS;
use super::probing::emit_layers;
use super::rescue::{self, StepOutcome};
use super::roles::Models;
use super::rollouts::{Parts, SHARE, WRITING};
use super::state::{TrainState, Unlogged};
use super::update::{At, Gradients, Rates, apply, curvature, gradients_seen};
use super::utilization::Utilization;
use crate::base::stats::median;
use crate::metrics::{id, ranks};
use crate::optim::clip_scale;
use crate::probes::{Probes, SharedProbes};
use crate::wire::{Event, MetricInfo, Num, Values};
use std::time::Duration;

/// The readings of one step.
#[derive(Debug, Clone, Default)]
struct Step {
    gradients: Gradients,
    /// The critic's gradients from the same completions.
    critic: Option<Gradients>,
    /// Tokens of the step that are not padding.
    tokens: u64,
    lr: f64,
    clipped: bool,
    /// Its update was left out.
    skipped: bool,
}

/// What has piled up since the last `Stepped` event.
#[derive(Debug, Default)]
struct StepLog {
    last: Step,
    steps: u32,
    tokens: u64,
    /// Tokens of each source in the step in hand.
    by_source: Vec<u64>,
    busy: Duration,
    waited: Duration,
    /// The reference model's forward passes over batches of the data set.
    referring: Duration,
    /// Timings of the completions: generation, scoring, and log-probabilities of the reference.
    answering: Duration,
    parts: Parts,
}

/// Takes the steps of a run: where their batches come from, and what the next line of the log will report.
pub(super) struct Stepper {
    experience: Box<dyn Experience>,
    mix: Mix,
    /// What looks inside the model.
    probes: Probes,
    utilization: Option<Utilization>,
    log: StepLog,
}

impl Stepper {
    pub fn new(
        experience: Box<dyn Experience>,
        mix: Mix,
        probes: Probes,
        utilization: Option<Utilization>,
    ) -> Stepper {
        Stepper {
            experience,
            mix,
            probes,
            utilization,
            log: StepLog::default(),
        }
    }

    /// Where its batches come from.
    pub fn experience(&mut self) -> &mut dyn Experience {
        &mut *self.experience
    }

    /// The past of its probes, for checkpoints.
    pub fn carrier(&self) -> SharedProbes {
        self.probes.carrier()
    }

    /// The metrics of the sources of a mix, and of probes.
    pub fn declarations(&self) -> Vec<MetricInfo> {
        let mut all = self.mix.declarations();
        all.extend(self.probes.declarations());
        all.extend(self.experience.declarations());
        all
    }

    /// Does one update, unless the guard says otherwise. After a spike or a value that is non-finite the step is not done.
    pub fn one_step(&mut self, cx: &mut RunContext<'_, '_>) -> Result<StepOutcome, EngineError> {
        let begun = cx.port.clock.elapsed();
        let step = cx.step() + 1;
        // A stop in between, and with it the line of its step, must not move what is measured afterwards.
        let train = &cx.spec.train;
        let is_measured = log_is_due(step, train.log_every, train.max_steps);
        self.probes.begin(step, is_measured);
        let last = match self.gradients(cx) {
            // The answers of the step cannot be written.
            Err(EngineError::NotFinite(logit)) => {
                return Ok(StepOutcome::Broken(cx.broken_logit(logit)));
            }
            found => found?,
        };
        let Some(last) = last else {
            return Ok(StepOutcome::BrokenOff);
        };
        self.log.last = last;
        if let Some(broken) = self.non_finite(cx) {
            return Ok(StepOutcome::Broken(broken));
        }
        let found = &self.log.last.gradients;
        self.probes.step(found.loss, found.norm);
        let taken = rescue::judge(
            cx,
            (found.loss, found.norm),
            self.experience.rollouts().is_none() && !self.experience.has_own_answers(),
        );
        if let StepOutcome::Spike(_) = taken {
            return Ok(taken);
        }
        let skipped = matches!(taken, StepOutcome::Skipped);
        if !skipped {
            self.update_critic(cx)?;
        }
        self.log.last.skipped = skipped || (self.log.last.critic.is_some() && warms_up(cx));
        if !self.log.last.skipped {
            self.update(cx)?;
        }

        self.count(cx);
        move_reference_if_due(cx)?;
        self.log.busy += cx.port.clock.elapsed() - begun;
        Ok(taken)
    }

    /// Counts the step just done.
    fn count(&mut self, cx: &mut RunContext<'_, '_>) {
        let tokens = self.log.last.tokens;
        let by_source = std::mem::take(&mut self.log.by_source);
        let begins_rl = begins_rl(cx);
        let progress = &mut cx.state.progress;
        if by_source.len() > 1 {
            progress.source_tokens.resize(by_source.len(), 0);
            for (sum, tokens) in progress.source_tokens.iter_mut().zip(by_source) {
                *sum += tokens;
            }
        }
        progress.step += 1;
        progress.tokens += tokens;
        progress.advance(cx.spec.train.accum(progress.step) as u64);
        let loss = self.log.last.gradients.loss;
        progress.train_loss = Some(Num(loss));
        if begins_rl {
            progress.unlogged = Unlogged::default();
        }
        match self.experience.other_loss() {
            Some(_) => progress.unlogged_other.add(loss),
            None => progress.unlogged.add(loss),
        }
        self.log.steps += 1;
        self.log.tokens += tokens;
    }

    /// Discards readings since the last log line: the state was rolled back.
    pub fn forget(&mut self) {
        self.log = StepLog::default();
    }

    fn update(&mut self, cx: &mut RunContext<'_, '_>) -> Result<(), EngineError> {
        let rates = Rates {
            lr: self.log.last.lr,
            clip_norm: cx.state.clip_norm(cx.spec),
        };
        let norm = self.log.last.gradients.norm;
        let (model, optimizer) = (&mut cx.state.models.policy, &mut *cx.state.optimizer);
        let scale = clip_scale(norm, rates.clip_norm);
        if let Some(remote) = &mut cx.state.models.remote {
            self.log.last.clipped = scale < 1.0;
            return Ok(remote.apply(rates.lr, scale, optimizer)?);
        }
        self.probes.gradient(model, optimizer, scale)?;
        self.log.last.clipped = apply(model, optimizer, norm, rates)?;
        self.probes.update(model, optimizer)?;
        Ok(())
    }

    /// The critic is trained beside the policy, with its own learning rate.
    fn update_critic(&mut self, cx: &mut RunContext<'_, '_>) -> Result<(), EngineError> {
        let clip_norm = cx.state.clip_norm(cx.spec);
        let (Some(found), Some(critic)) = (&self.log.last.critic, &mut cx.state.critic) else {
            return Ok(());
        };
        let method = cx.spec.method.on_policy().and_then(|m| m.critic());
        let rates = Rates {
            lr: self.log.last.lr * method.map_or(1.0, |m| m.critic_lr_scale),
            clip_norm,
        };
        critic.update(found.norm, rates)
    }

    /// Takes the batches of the step and sums the gradient over them.
    fn gradients(&mut self, cx: &mut RunContext<'_, '_>) -> Result<Option<Step>, EngineError> {
        let asked = cx.port.clock.elapsed();
        let at = At {
            seed: cx.spec.seed,
            micro_step: cx.state.progress.micro_step,
        };
        cx.state.show_average(false)?;
        let (state, port) = (&mut cx.state, &mut *cx.port);
        let broken_off = &mut || port.stop_pending();
        let Some(mut step) = (self.experience).step(at.micro_step, state, broken_off)? else {
            return Ok(None);
        };
        let waited = cx.port.clock.elapsed() - asked;
        match self.experience.rollouts() {
            Some(rollouts) => {
                self.log.answering += waited;
                self.log.parts.add(&rollouts.take_parts());
            }
            None => {
                let writing = self.experience.take_writing().unwrap_or_default();
                self.log.answering += writing;
                self.log.waited += waited.saturating_sub(writing);
                for batch in &mut step.batches {
                    cx.state.models.add_reference(batch)?;
                }
                self.log.referring += cx.port.clock.elapsed() - asked - waited;
            }
        }
        let method = &*cx.spec.method;
        let models = &mut cx.state.models;
        let model = &mut models.policy;
        let found = match &mut models.remote {
            Some(remote) => {
                remote.push(model)?;
                remote.gradients(method, &step.batches, at)?
            }
            None => {
                let optimizer = &mut *cx.state.optimizer;
                curvature(method, model, optimizer, &step.batches, at)?;
                gradients_seen(method, model, &step.batches, at, &mut self.probes)?
            }
        };
        let critic = match (
            method.on_policy().and_then(|m| m.critic()),
            &mut cx.state.critic,
        ) {
            (Some(method), Some(critic)) => critic.gradients(method, &step.batches, at)?,
            _ => None,
        };
        self.log.by_source = step.by_source();
        let tokens = step.n_tokens();
        self.experience.recycle(step);
        Ok(Some(Step {
            gradients: found,
            critic,
            tokens,
            lr: cx.state.lr(cx.spec),
            clipped: false,
            skipped: false,
        }))
    }

    /// A loss or gradient that is not finite: the weights are still those of the step before.
    fn non_finite(&mut self, cx: &mut RunContext<'_, '_>) -> Option<NonFinite> {
        let Step { gradients, lr, .. } = &self.log.last;
        let (loss, grad_norm, lr) = (gradients.loss, gradients.norm, *lr);
        let of_critic = self.log.last.critic.as_ref();
        let (what, value) = if !loss.is_finite() {
            ("the training loss", loss)
        } else if !grad_norm.is_finite() {
            ("the gradient norm", grad_norm)
        } else if let Some(found) = of_critic.filter(|found| !found.are_finite()) {
            (
                "the critic's loss or gradient norm",
                found.loss + found.norm,
            )
        } else {
            return None;
        };
        let step = cx.step() + 1;
        // The point itself belongs in the log: charts mark where it happened.
        let tokens = cx.state.progress.tokens + self.log.last.tokens;
        let kind = self.experience.other_loss().unwrap_or(id::TRAIN_LOSS);
        let values = self.values(cx, &[(kind, loss)]);
        cx.port.emit(Event::Stepped {
            step,
            tokens,
            values,
        });
        Some(NonFinite {
            what,
            value,
            step,
            lr,
        })
    }

    /// Sends the `Stepped` event of the step just done, when its turn has come.
    pub fn emit_step_if_due(&mut self, cx: &mut RunContext<'_, '_>) {
        if let Some(remote) = &mut cx.state.models.remote {
            cx.port.add_readings(remote.take_memory());
        }
        cx.port.emit_telemetry();
        self.keep_rollout(cx);
        if !is_logged(cx, cx.step()) {
            return;
        }
        let seen = self.probes.report();
        let losses = take_losses(cx);
        let mut values = self.values(cx, &losses);
        let log = std::mem::take(&mut self.log);
        let seconds = log.busy.as_secs_f64().max(1e-9);
        let mut set = |id: &str, value: f64| values.insert(id.to_string(), Num(value));
        let tok_per_sec = log.tokens as f64 / seconds;
        set(id::TOK_PER_SEC, tok_per_sec);
        if let Some(utilization) = self.utilization {
            set(id::MFU, utilization.at(tok_per_sec));
        }
        set(id::STEP_MS, 1e3 * seconds / f64::from(log.steps.max(1)));
        set(id::DATA_WAIT, log.waited.as_secs_f64() / seconds);
        if cx.state.models.runs_reference() && self.experience.rollouts().is_none() {
            set(id::REFERENCE_SHARE, log.referring.as_secs_f64() / seconds);
        }
        if !log.last.skipped
            && let Some(ratio) = update_ratio(&cx.state)
        {
            set(id::UPDATE_RATIO, ratio);
        }
        if !log.last.skipped
            && let Some(share) = cx.state.optimizer.unclipped()
        {
            set(id::UNCLIPPED, share);
        }
        if self.experience.has_own_answers() {
            set(WRITING, log.answering.as_secs_f64() / seconds);
        }
        if self.experience.rollouts().is_some() {
            set(SHARE, log.answering.as_secs_f64() / seconds);
            for (id, time) in log.parts.shares() {
                set(id, time.as_secs_f64() / seconds);
            }
        }
        let (done, train) = (&cx.state.progress, &cx.spec.train);
        let epochs = match self.experience.rollouts() {
            Some(rollouts) => rollouts.epochs(done.micro_step),
            None => {
                let pass = cx.data.micro_steps_per_epoch(train.micro_batch_size);
                done.micro_step as f64 / pass
            }
        };
        set(id::EPOCHS, epochs);
        for (metric, value) in self.mix.readings(&cx.state.progress.source_tokens) {
            set(&metric, value);
        }
        values.extend(seen.values);
        values.extend(of_ranks(&mut cx.state.models, f64::from(log.steps.max(1))));
        let (step, tokens) = (cx.step(), cx.state.progress.tokens);
        cx.port.emit(Event::Stepped {
            step,
            tokens,
            values,
        });
        emit_layers(cx, seen.layers);
    }

    /// Stores new completions for inspection. A disk error loses only that.
    fn keep_rollout(&mut self, cx: &mut RunContext<'_, '_>) {
        let rollouts = self.experience.rollouts();
        if let Some(Err(e)) = rollouts.map(|r| r.keep(cx.job.run_dir.path())) {
            let what = format!("the completions of this step were not saved: {e}");
            let hint = "free disk space, or set rollout.keep=0";
            cx.port.warn(cx.step(), "rollout_file", what, hint);
        }
    }

    /// The repeatable readings of the last step, with the losses to log by their metrics.
    fn values(&mut self, cx: &RunContext<'_, '_>, losses: &[(&str, f64)]) -> Values {
        let rollouts = self.experience.rollouts();
        let answers = rollouts.and_then(|r| r.readings());
        let last = &self.log.last;
        let found = &last.gradients;
        let named = |(id, loss): &(&str, f64)| {
            let id = match answers {
                Some(_) if *id == id::TRAIN_LOSS => id::POLICY_LOSS,
                _ => id,
            };
            (id.to_string(), Num(*loss))
        };
        let mut values: Values = [
            (id::GRAD_NORM, found.norm),
            (id::LR, last.lr),
            (id::CLIPPED, f64::from(u8::from(last.clipped))),
        ]
        .map(|(id, value)| (id.to_string(), Num(value)))
        .into();
        values.extend(losses.iter().map(named));
        let answers = answers.into_iter().flatten();
        values.extend(answers.map(|(id, value)| (id.clone(), Num(*value))));
        let told = self.experience.readings().iter();
        values.extend(told.map(|(id, value)| (id.clone(), Num(*value))));
        if let Some(experts) = found.experts {
            let readings = [
                (id::EXPERT_LOAD, experts.busiest),
                (id::EXPERT_ENTROPY, experts.entropy),
                (id::AUX_LOSS, experts.aux_loss),
                (id::Z_LOSS, experts.z_loss),
            ];
            values.extend(readings.map(|(id, value)| (id.to_string(), Num(value))));
        }
        let own = cx.spec.method.readings().iter().map(|metric| metric.id);
        for id in [id::ENTROPY].into_iter().chain(own) {
            let of_critic = || last.critic.as_ref()?.readings.mean(id);
            if let Some(mean) = found.readings.mean(id).or_else(of_critic) {
                values.insert(id.into(), Num(mean));
            }
        }
        values
    }
}

/// Where the reference moves with the policy, it does after every so many steps, as TRL's `SyncRefModelCallback`; not in a cold start,
/// which compares nothing.
fn move_reference_if_due(cx: &mut RunContext<'_, '_>) -> Result<(), EngineError> {
    let (train, step) = (&cx.spec.train, cx.step());
    let is_due = step.is_multiple_of(train.ref_model_sync_steps.max(1));
    if train.sync_ref_model && is_due && step > cx.spec.cold_start_steps() {
        cx.state.move_reference(train.ref_model_mixup_alpha)?;
        cx.state.progress.guard.reference_moved();
    }
    Ok(())
}

/// Whether the critic alone learns yet.
fn warms_up(cx: &RunContext<'_, '_>) -> bool {
    let method = cx.spec.method.on_policy().and_then(|m| m.critic());
    let learned = cx.step().saturating_sub(cx.spec.rollout.cold_start_steps);
    method.is_some_and(|m| learned < m.critic_warmup_steps)
}

/// Whether the next step is the first one of RL after a cold start: its loss is another one.
fn begins_rl(cx: &RunContext<'_, '_>) -> bool {
    cx.spec.method.on_policy().is_some() && cx.step() == cx.spec.rollout.cold_start_steps
}

/// The mean losses of the steps since the last line, by their metrics; they begin anew. A line that only a stop caused does not end
/// them.
fn take_losses(cx: &mut RunContext<'_, '_>) -> Vec<(&'static str, f64)> {
    let train = &cx.spec.train;
    let ends = log_is_due(cx.step(), train.log_every, train.max_steps);
    let progress = &mut cx.state.progress;
    let means = [
        (id::TRAIN_LOSS, progress.unlogged.mean()),
        (OWN_LOSS, progress.unlogged_other.mean()),
    ];
    if ends {
        progress.unlogged = Unlogged::default();
        progress.unlogged_other = Unlogged::default();
    }
    let known = |(id, mean): (_, Option<f64>)| Some((id, mean?));
    means.into_iter().filter_map(known).collect()
}

/// Whether this step has a line in the log: also the one that the process was to stop after.
fn is_logged(cx: &RunContext<'_, '_>, step: u64) -> bool {
    let train = &cx.spec.train;
    let last = cx.job.stop_after.unwrap_or(u64::MAX).min(train.max_steps);
    log_is_due(step, train.log_every, last)
}

/// How far the last update moved the matrices relative to their size, the median of them; none where the optimizer
/// does not measure it.
fn update_ratio(state: &TrainState) -> Option<f64> {
    let infos = state.models.policy.params().trainable();
    let norms = state.optimizer.last_norms();
    let matrices = infos.zip(norms).filter(|(info, _)| info.has_update_ratio());
    let ratios: Vec<f64> = matrices
        .filter_map(|(_, norms)| norms.update_ratio())
        .collect();
    median(&ratios)
}

/// Milliseconds of each rank's forward passes, by step, where there are several.
fn of_ranks(models: &mut Models, steps: f64) -> Values {
    let remote = models.remote.as_mut().filter(|remote| remote.ranks() > 1);
    let seconds = remote.map_or_else(Vec::new, |remote| remote.take_forward_seconds());
    let of = |(rank, seconds): (usize, f64)| (ranks::forward(rank), Num(1e3 * seconds / steps));
    let seconds = seconds.into_iter().take(ranks::MOST);
    seconds.enumerate().map(of).collect()
}
