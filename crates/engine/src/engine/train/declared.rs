//! Which metrics a run declares: those that it will measure, and no others.

use super::Trainer;
use crate::metrics::id;
use crate::wire::MetricInfo;

/// What says nothing of a model that is evaluated by its answers.
const NOT_OF_ANSWERS: [&str; 4] = [
    id::VAL_LOSS,
    id::VAL_PPL,
    id::VAL_BPB,
    id::VAL_TOKEN_ACCURACY,
];

impl Trainer<'_, '_> {
    /// In the order of their charts: the method's own readings come first.
    pub(super) fn declared(&mut self) -> Vec<MetricInfo> {
        let spec = self.cx.spec;
        let rollouts = self.stepper.experience().rollouts();
        let of_answers = rollouts.is_some();
        let mut metrics = rollouts.map_or_else(Vec::new, |r| r.declarations());
        for metric in spec.method.readings() {
            metrics.push(metric.info());
            // Methods that learn from their own answers are evaluated by answers.
            let validation = metric.validation_info();
            metrics.extend(spec.method.on_policy().is_none().then_some(validation));
        }
        for known in crate::metrics::declarations() {
            if self.is_measured(&known.id) && metrics.iter().all(|metric| metric.id != known.id) {
                metrics.push(self.of_method(known));
            }
        }
        if of_answers {
            metrics.retain(|metric| !NOT_OF_ANSWERS.contains(&metric.id.as_str()));
        }
        let cx = &self.cx;
        metrics.extend(cx.extras.declarations());
        metrics.extend(self.tasks.declarations());
        metrics.extend(self.stepper.declarations());
        if let Some(remote) = &cx.state.models.remote {
            metrics.extend(crate::metrics::ranks::declarations(remote.ranks()));
        }
        metrics
    }

    /// Whether this run has a reading of those that all share.
    fn is_measured(&self, id: &str) -> bool {
        let (spec, data) = (self.cx.spec, &self.cx.data);
        let likelihood = spec.method.is_likelihood();
        match id {
            id::VAL_PPL => likelihood,
            id::VAL_BPB => likelihood && data.val_bytes_per_token().is_some(),
            // Methods that measure it declare it themselves.
            id::UNCLIPPED => spec.optimizer.needs_curvature(),
            id::TOKEN_ACCURACY | id::VAL_TOKEN_ACCURACY => false,
            _ => !id::OF_EXPERTS.contains(&id) || spec.model.moe.is_some(),
        }
    }

    /// The meaning of the loss depends on the method.
    fn of_method(&self, known: MetricInfo) -> MetricInfo {
        let method = &self.cx.spec.method;
        let which = match known.id.as_str() {
            id::TRAIN_LOSS => "the step's examples",
            id::VAL_LOSS => "held-out examples",
            _ => return known,
        };
        // Steps that learn from answers have a loss of another name; a cold start learns texts.
        if method.is_likelihood() || method.on_policy().is_some() {
            return known;
        }
        MetricInfo {
            source: format!("mean loss of method {} over {which}", method.entry().id),
            ..known
        }
    }
}
