//! The models that ranks hold, as the engine knows them: the policy, and a separate critic of it. Requests go to one of them at a time.

use super::Remote;
use super::build::build;
use crate::nn::Model;
use crate::optim::UpdateRule;
use crate::spec::RunSpec;
use crate::workers::{Frame, torch};
use candle_core::{Result, bail};
use serde_json::{Value, json};

/// The engine's copy of the weights beside that of the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyState {
    Same,
    /// The ranks' weights are newer.
    Behind,
    /// The engine's weights are newer.
    Ahead,
}

/// One model on the ranks.
#[derive(Debug)]
pub(super) struct Twin {
    role: &'static str,
    /// What builds it.
    pub build: Value,
    pub copy: CopyState,
    pub moments_ahead: bool,
}

/// How many ranks there are, on which device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub device: &'a str,
    /// Ranks of each machine.
    pub each: usize,
    pub ranks: usize,
}

impl Twin {
    /// What is trained.
    pub fn policy(spec: &RunSpec, model: &Model, settings: &torch::Config, at: Place) -> Twin {
        let mut build = build(spec, model, settings, at);
        build["average"] = spec.train.ema_decay.is_some().into();
        Twin::new("policy", build)
    }

    /// A critic, of whose weights no average is kept.
    pub fn critic(spec: &RunSpec, model: &Model, settings: &torch::Config, at: Place) -> Twin {
        let mut build = build(spec, model, settings, at);
        build["average"] = false.into();
        Twin::new("critic", build)
    }

    fn new(role: &'static str, mut build: Value) -> Twin {
        build["role"] = role.into();
        Twin {
            role,
            build,
            copy: CopyState::Ahead,
            moments_ahead: true,
        }
    }

    /// The engine's copy was changed.
    pub fn copy_changed(&mut self) {
        self.copy = CopyState::Ahead;
        self.moments_ahead = true;
    }

    /// What ranks call it.
    pub fn role(&self) -> &'static str {
        self.role
    }

    /// A request to it.
    pub fn ask(&self, mut header: Value) -> Value {
        header["role"] = self.role.into();
        header
    }
}

impl Remote {
    /// What `work` asks of the ranks it asks of the critic.
    ///
    /// # Errors
    /// Those of `work`; ranks without a critic.
    pub fn for_critic<R>(&mut self, work: impl FnOnce(&mut Remote) -> Result<R>) -> Result<R> {
        let Some(critic) = self.critic.take() else {
            bail!("the ranks have no critic")
        };
        let policy = std::mem::replace(&mut self.model, critic);
        let found = work(self);
        self.critic = Some(std::mem::replace(&mut self.model, policy));
        found
    }

    /// Switches policy and optimizer to averaged weights, or back to the trained ones, wherever they are.
    ///
    /// # Errors
    /// The ranks are gone; those of the optimizer.
    pub fn show_average(
        &mut self,
        policy: &mut Model,
        optimizer: &mut dyn UpdateRule,
        show: bool,
    ) -> Result<()> {
        let Some(average) = optimizer.average() else {
            return optimizer.show_average(policy.params_mut(), show);
        };
        if average.is_shown() == show {
            return Ok(());
        }
        // Ranks that have not got the average yet get it with everything else.
        let theirs = self.model.copy != CopyState::Ahead && !self.model.moments_ahead;
        if theirs {
            let ask = self.model.ask(json!({"type": "average"}));
            self.ask(|_| Frame::new(ask.clone()), &mut |_| {})?;
        }
        if theirs && self.model.copy == CopyState::Behind {
            average.mark_shown(show);
            return Ok(());
        }
        optimizer.show_average(policy.params_mut(), show)?;
        if !theirs {
            // What they have of either is old now.
            self.model.copy_changed();
        }
        Ok(())
    }
}
