//! A validated spec. Only `load` and `RunSpec::from_yaml` create one; a half-checked one does not exist.

use super::issue::{Origin, Origins, SpecErrors};
use super::review::Sizes;
use super::schema::{Kind, Node, root};
use super::{RunConfig, config_paths, load, yaml};
use crate::base::finding::Finding;
use crate::data::{DataConfig, DataEnv, DataError, Dataset, Request, Tokenizer, TrainOn};
use crate::methods::LossMask;
use crate::models::is_gguf;
use crate::nn::{
    ActivationCheckpointing, HeadKind, ParamInfo, PrecisionError, Regularizers, TrainableSet,
};
use crate::optim::schedule::ScheduleConfig;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A validated config with derived values filled in. Dereferences to [`RunConfig`].
#[derive(Debug, Clone, PartialEq)]
pub struct RunSpec {
    config: RunConfig,
}

impl std::ops::Deref for RunSpec {
    type Target = RunConfig;
    fn deref(&self) -> &RunConfig {
        &self.config
    }
}

impl RunSpec {
    /// The same training with so many threads; `None` leaves it to the machine.
    pub fn on_threads(mut self, threads: Option<usize>) -> RunSpec {
        self.config.train.threads = threads;
        self
    }

    /// The same training on another engine.
    pub(super) fn on_engine(mut self, engine: crate::workers::EngineConfig) -> RunSpec {
        self.config.engine = engine;
        self
    }

    /// The same training with other activations computed again in the backward pass.
    pub(super) fn recomputing_as(mut self, which: ActivationCheckpointing) -> RunSpec {
        self.config.train.activation_checkpointing = which;
        self
    }

    /// The same training with another last step.
    pub fn to_step(mut self, max_steps: u64) -> RunSpec {
        self.config.train.max_steps = max_steps;
        self.config.warm_up();
        self
    }

    /// The same training with its epochs turned into steps, where it has any: a pass over the data takes so many micro-steps.
    pub fn on_data(self, pass: f64) -> RunSpec {
        match self.config.train.epochs {
            Some(epochs) => {
                // A product such as 3 × 12.000000000000002 is no further step.
                let micro_steps = (epochs * pass - 1e-6).ceil().max(1.0);
                let steps = self.config.train.steps_of(micro_steps as u64);
                self.to_step(steps)
            }
            None => self,
        }
    }

    /// The same training, which says steps and no epochs: those of a run whose data were read.
    pub fn in_steps(mut self) -> RunSpec {
        self.config.train.epochs = None;
        self
    }

    /// Bytes of what the update rule, and an average of the weights beside it, keep for those of the parameters that train.
    pub fn update_bytes(&self, infos: &[ParamInfo]) -> u64 {
        self.config.optimizer.state_bytes(infos) + self.average_bytes(infos)
    }

    /// Bytes of the same in a checkpoint.
    pub fn saved_update_bytes(&self, infos: &[ParamInfo]) -> u64 {
        self.config.optimizer.saved_bytes(infos) + self.average_bytes(infos)
    }

    fn average_bytes(&self, infos: &[ParamInfo]) -> u64 {
        let trained = infos.iter().filter(|info| info.trains());
        match self.config.train.ema_decay {
            Some(_) => trained
                .map(|info| (info.len * size_of::<f32>()) as u64)
                .sum(),
            None => 0,
        }
    }

    /// What of its model trains.
    pub fn trained(&self) -> TrainableSet<'_> {
        TrainableSet {
            adapter: self.config.adapter.as_ref(),
            frozen: &self.config.train.freeze,
        }
    }

    /// Steps on the data's own answers before the first rollout; 0 where the method has none.
    pub fn cold_start_steps(&self) -> u64 {
        match self.config.method.on_policy() {
            Some(_) => self.config.rollout.cold_start_steps,
            None => 0,
        }
    }

    /// What training adds to the loss and to its inputs.
    pub fn regularizers(&self) -> Regularizers {
        Regularizers {
            z_loss: self.config.train.z_loss,
            embedding_noise: self.config.method.embedding_noise(),
        }
    }

    /// Fills in derived values, so that the written spec does not depend on a later version's defaults.
    pub(super) fn resolve(mut config: RunConfig) -> RunSpec {
        let shape = config.model.shape(0);
        config.model.n_kv_head = Some(shape.n_kv_head);
        config.model.d_ff = Some(shape.d_ff);
        if config.method.needs().head == HeadKind::Score {
            config.model.head = HeadKind::Score;
        }
        config.model.value_head = config.method.needs().value_head;
        config.warm_up();
        let lr = config.optimizer.lr();
        match &mut config.schedule {
            ScheduleConfig::Cosine(c) => c.min_lr = c.min_lr.or(Some(lr / 10.0)),
            ScheduleConfig::Linear(c) => c.min_lr = c.min_lr.or(Some(lr / 10.0)),
            ScheduleConfig::Polynomial(c) => c.min_lr = c.min_lr.or(Some(lr / 10.0)),
            ScheduleConfig::Wsd(c) => c.min_lr = c.min_lr.or(Some(lr / 10.0)),
            ScheduleConfig::Constant(_)
            | ScheduleConfig::InverseSqrt(_)
            | ScheduleConfig::Unscheduled(_) => {}
        }
        RunSpec { config }
    }

    /// The file whose weights stay in its formats under the adapters that train (QLoRA); `None` where the base is in f32.
    pub fn packed_base(&self) -> Option<&Path> {
        let from = self.config.train.from.as_deref()?;
        let wanted = self.config.adapter.is_some()
            && !self.config.train.dequantize
            && !self.config.model.is_reward_model();
        (wanted && is_gguf(from)).then_some(from)
    }

    /// Every path that the spec names: data and their cache, models it starts from or is judged by, tokenizer, tasks, PyTorch.
    pub fn paths(&self) -> Vec<PathBuf> {
        config_paths::paths_of(&self.config)
    }

    /// Target tokens of one optimizer step, behind a batch-size ramp.
    pub fn batch_tokens(&self) -> u64 {
        self.micro_tokens() * self.config.train.grad_accum_steps as u64
    }

    /// Target tokens of all steps.
    pub fn run_tokens(&self) -> u64 {
        let train = &self.config.train;
        self.micro_tokens()
            .saturating_mul(train.micro_steps(train.max_steps))
    }

    /// Target tokens of one micro-step.
    fn micro_tokens(&self) -> u64 {
        (self.config.train.micro_batch_size * self.config.model.seq_len) as u64
    }

    /// The tokens of a text that are supervised unless `data.train_on` says so: of completions alone where the method masks
    /// prompts.
    pub fn usual_train_on(&self) -> TrainOn {
        match self.config.method.needs().mask {
            LossMask::AllTokens => TrainOn::All,
            LossMask::CompletionOnly => TrainOn::Auto,
        }
    }

    /// This run's data requirements.
    pub fn data_request(&self, surroundings: &DataEnv) -> Request<'static> {
        Request {
            unit: self.config.method.needs().unit,
            train_on: self.usual_train_on(),
            surroundings: surroundings.clone(),
            ..Request::new(self.config.model.seq_len)
        }
    }

    /// Its data, ready for training.
    ///
    /// # Errors
    /// As [`Dataset::open`].
    pub fn open_data(&self, surroundings: &DataEnv) -> Result<Dataset, DataError> {
        Dataset::open(&self.config.data, self.data_request(surroundings))
    }

    /// The same of the first `rows` rows of each source, with this machine's files alone.
    ///
    /// # Errors
    /// As [`Dataset::open`].
    pub fn open_sample(&self, rows: u64) -> Result<Dataset, DataError> {
        let most = self
            .config
            .data
            .max_rows
            .map_or(rows, |most| most.min(rows));
        let config = DataConfig {
            max_rows: Some(most),
            ..self.config.data.clone()
        };
        Dataset::open(&config, self.data_request(&DataEnv::default()))
    }

    /// The same as the tokenizer of its base model reads them, which is still to be trained.
    ///
    /// # Errors
    /// As [`Dataset::open`].
    pub fn open_data_by(
        &self,
        tokenizer: &Tokenizer,
        surroundings: &DataEnv,
    ) -> Result<Dataset, DataError> {
        let request = Request {
            tokenizer: Some(tokenizer.clone()),
            ..self.data_request(surroundings)
        };
        Dataset::open(&self.config.data, request)
    }

    /// The whole spec as plain data, floats in their shortest exact form.
    pub fn to_value(&self) -> Value {
        let mut value = serde_json::to_value(&self.config).unwrap_or_default();
        shorten(root(), &mut value);
        value
    }

    /// The text of `spec.yaml`: [`RunSpec::from_yaml`] reads back an equal spec, bit for bit.
    pub fn to_yaml(&self) -> String {
        yaml::write(&self.to_value())
    }

    /// Reads a written spec and validates it by the same rules, except that referenced files need not exist.
    ///
    /// # Errors
    /// All issues of the text.
    pub fn from_yaml(text: &str) -> Result<RunSpec, SpecErrors> {
        load::reread(text)
    }

    /// Whether this machine computes as `train.precision` asks. A plan may ask for more than the machine that makes it, and
    /// PyTorch's ranks have a precision of their own.
    ///
    /// # Errors
    /// bf16 on a processor without it.
    pub fn computes_here(&self) -> Result<(), PrecisionError> {
        match self.engine.torch() {
            Some(_) => Ok(()),
            None => self.train.precision.resolve().map(|_| ()),
        }
    }

    /// Legal settings that are probably unintended, as far as the spec alone shows.
    pub fn advice(&self) -> Vec<Finding> {
        self.review(Sizes {
            here: true,
            ..Sizes::default()
        })
    }

    /// The same against data that are here, source by source, and so many ranks, where that is known.
    pub fn review_on(&self, data: &Dataset, ranks: Option<u64>) -> Vec<Finding> {
        let sequences = self.method.needs().unit.sequences() as u64;
        let micro_steps = self.train.micro_steps(self.train.max_steps);
        let batch_size = self.train.micro_batch_size;
        let epochs = data.epochs(self.seed, micro_steps, batch_size);
        let overall = micro_steps as f64 / data.micro_steps_per_epoch(batch_size);
        let sources = data.sources();
        let sources = sources.iter().map(|source| &*source.name).zip(epochs);
        let mut found = self.review(Sizes {
            step_tokens: Some(self.batch_tokens() * sequences),
            pass_tokens: Some(data.pass_tokens()),
            padded: data.is_padded(),
            val_tokens: Some(data.val_loss_tokens()),
            held_out: Some(data.held_out_share()),
            val_prompts: data.val_prompts(),
            labels: data.labels(),
            long_prompts: data.longer_prompts(self.longest_prompt()),
            plain_prompts: data.plain_prompts,
            ranks,
            here: true,
        });
        found.extend(super::review::repeated(self, overall, sources));
        found.extend(super::review::cut_marks(&self.data, &data.cut_marks));
        if data.replaces_template && self.train.from.is_some() {
            found.push(super::review::other_template(&self.data));
        }
        found
    }

    /// The same against the sizes of data and steps.
    pub fn review(&self, sizes: Sizes) -> Vec<Finding> {
        super::review::review(self, sizes)
    }
}

/// For each line of a written spec, the origin of its value; `None` for lines that only open a section.
pub fn line_origins(yaml_text: &str, origins: &Origins) -> Vec<Option<Origin>> {
    let mut per_line = vec![None; yaml_text.lines().count()];
    for (path, line) in yaml::key_lines(yaml_text) {
        let Some(node) = root().at(&path) else {
            continue;
        };
        if !node.children().is_empty() {
            continue;
        }
        let derived = matches!(
            path.as_str(),
            "model.n_kv_head"
                | "model.d_ff"
                | "schedule.cosine.min_lr"
                | "schedule.linear.min_lr"
                | "schedule.polynomial.min_lr"
                | "schedule.wsd.min_lr"
        );
        // `position: {rope: {}}` selected a member without settings: the selection is the origin.
        let choice = path
            .rsplit_once('.')
            .map(|(registry, _)| origins.get(registry));
        let origin = match (origins.get(&path), choice) {
            (Origin::Default, Some(choice)) if matches!(node.kind, Kind::Object(_)) => choice,
            (Origin::Default, _) if derived => Origin::Derived,
            (origin, _) => origin,
        };
        per_line[line - 1] = Some(origin);
    }
    per_line
}

/// Single-precision floats print as written (0.8, not 0.800000011920929) and read back to the same bits.
pub(super) fn shorten(node: &Node, value: &mut Value) {
    if let (Kind::Number { single: true, .. }, Some(x)) = (&node.kind, value.as_f64())
        && let Ok(short) = (x as f32).to_string().parse::<f64>()
    {
        *value = Value::from(short);
    }
    for (name, child) in node.children() {
        if let Some(inner) = value.get_mut(name) {
            shorten(child, inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_models_that_a_spec_names_are_among_its_paths() {
        let text = "name: rl
method: {ppo: {critic_from: /a/critic}}
rewards: [{model: {path: /a/judge}}, {length: {}}]
rollout: {max_new_tokens: 8}
train: {from: /a/start}
data: {path: /a/rows.jsonl, tokenizer: {file: {path: /a/tokens.json}}}
";
        let paths = RunSpec::from_yaml(text).unwrap().paths();
        for named in ["critic", "judge", "start", "rows.jsonl", "tokens.json"] {
            assert!(
                paths.contains(&PathBuf::from("/a").join(named)),
                "{named}: {paths:?}"
            );
        }
    }
}
