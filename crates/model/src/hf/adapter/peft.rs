//! An adapter in PEFT's format, written by PEFT or by this program: attached to a model's weights, or merged into them.

use super::super::safetensors::TensorFile;
use super::super::{HfError, positions_in, read_config};
use super::description::{Description, MAX_BYTES};
use super::factors::{Change, Factors};
use super::stacked::Stack;
use super::{A, ADAPTER_CONFIG, ADAPTER_WEIGHTS, B, FINGERPRINT, MAGNITUDE, PREFIX, SCORE, joined};
use crate::base::files::read_small;
use crate::base::text::{one_line, shown};
use crate::kernels::low_rank;
use crate::nn::adapter::{Adapter, Lora, RankAlpha, Target, Targets, Whole};
use crate::nn::{AdapterConfig, Model, ModelConfig, ParamInfo, Role, Table, module_name};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub(super) const HEAD: &str = "lm_head.weight";
/// The same in adapters of GPT-NeoX before transformers 5.
const OLD_HEAD: &str = "embed_out.weight";
/// Embeddings, by their names in the families.
pub(super) const TABLES: [&str; 3] = [
    "model.embed_tokens.weight",
    "transformer.wte.weight",
    "gpt_neox.embed_in.weight",
];

/// An adapter on disk.
#[derive(Debug)]
pub struct Peft {
    pub(super) folder: PathBuf,
    pub(super) file: TensorFile,
    pub(super) description: Description,
    base: Option<String>,
}

/// Why an adapter cannot be opened or used.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    #[error("{}: no adapter here: there is no {ADAPTER_CONFIG}", .0.display())]
    Absent(PathBuf),
    /// Its own files contain something unsupported, or cannot be read.
    #[error(transparent)]
    Unread(HfError),
    /// It belongs to a reward model, but the model is a language model.
    #[error("{} is the adapter of a reward model: it scores completions and cannot generate", shown(.0))]
    Scores(PathBuf),
    /// It does not match the model.
    #[error(transparent)]
    Wrong(#[from] HfError),
}

impl AdapterError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            AdapterError::Absent(_) => {
                "name a folder with adapter_config.json and adapter_model.safetensors: a checkpoint of a run with adapters, or PEFT's".into()
            }
            AdapterError::Unread(_) => {
                "merge it with PEFT (merge_and_unload) and name the merged folder; docs/models.md lists what is supported".into()
            }
            AdapterError::Scores(folder) => {
                format!("llmtui score {} FILE scores completions with it", shown(folder))
            }
            AdapterError::Wrong(_) => "name the model that the adapter was trained on".into(),
        }
    }
}

/// The changes of an adapter to a model.
#[derive(Default)]
pub(super) struct Changes {
    pub products: Vec<Change>,
    /// Of all experts of a block.
    pub stacks: Vec<Stack>,
    /// Parameters that it contains in full.
    pub whole: Vec<(ParamInfo, Vec<f32>)>,
}

impl Changes {
    /// All low-rank terms, one for each matrix, by their places in the weights.
    pub fn by_matrix(&mut self) -> &[Change] {
        let stacks = std::mem::take(&mut self.stacks);
        self.products
            .extend(stacks.iter().flat_map(Stack::by_matrix));
        self.products.sort_by_key(|change| change.offset);
        &self.products
    }
}

impl Peft {
    /// Reads the config of the adapter in a folder.
    ///
    /// # Errors
    /// There is none, or its kind is unsupported.
    pub fn find(folder: &Path) -> Result<Peft, AdapterError> {
        match folder.join(ADAPTER_CONFIG).is_file() {
            true => Peft::open(folder).map_err(AdapterError::Unread),
            false => Err(AdapterError::Absent(folder.into())),
        }
    }

    pub(super) fn open(folder: &Path) -> Result<Peft, HfError> {
        let path = folder.join(ADAPTER_CONFIG);
        let text = read_small(&path, MAX_BYTES).map_err(|source| HfError::Io {
            path: path.clone(),
            source,
        })?;
        let wrong = |what: String| HfError::Config {
            path: path.clone(),
            what,
        };
        let config: Value =
            serde_json::from_slice(&text).map_err(|e| wrong(one_line(&e.to_string())))?;
        Ok(Peft {
            folder: folder.into(),
            description: Description::of(&config).map_err(wrong)?,
            base: config["base_model_name_or_path"].as_str().map(String::from),
            file: TensorFile::open(&folder.join(ADAPTER_WEIGHTS))?,
        })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether it belongs to a reward model: then it contains the score that replaces its base's head.
    pub fn scores(&self) -> bool {
        let whole = format!("{PREFIX}{SCORE}");
        self.file.contains(&whole) || self.file.contains(SCORE)
    }

    /// The path or hub id of its base, if recorded.
    pub fn base(&self) -> Option<&str> {
        self.base.as_deref()
    }

    /// The digest of the weights that it was trained on, if recorded: see [`Model::base_fingerprint`].
    pub fn base_fingerprint(&self) -> Option<&str> {
        self.file.word(FINGERPRINT)
    }

    pub(super) fn wrong(&self, what: String) -> HfError {
        HfError::Config {
            path: self.folder.join(ADAPTER_CONFIG),
            what,
        }
    }

    /// Checks that it can be attached to a model and detached again.
    ///
    /// # Errors
    /// It belongs to another model, or contains more than an embedding and a head in full.
    pub fn check_detachable(&self, model: &Model) -> Result<(), HfError> {
        let changes = self.changes(model.config(), model.params().base())?;
        self.config_for(&changes, model.config())?;
        self.swappable(&changes)
    }

    fn swappable(&self, changes: &Changes) -> Result<(), HfError> {
        let is_table = |info: &ParamInfo| matches!(info.role, Role::Embedding | Role::Head);
        let other = changes
            .whole
            .iter()
            .find(|(info, _)| info.name == SCORE || !is_table(info));
        match other {
            None => Ok(()),
            Some((info, _)) => Err(self.wrong(format!(
                "it has its own {}, so it cannot be switched: merge it with llmtui merge",
                one_line(&info.name)
            ))),
        }
    }

    /// Checks that every matrix that it changes exists with its shape.
    ///
    /// # Errors
    /// It belongs to another model.
    pub fn fits(&self, model: &Model) -> Result<(), HfError> {
        self.changes(model.config(), model.params().base())
            .map(|_| ())
    }

    /// Vocabulary size of the model of this width that it was trained on, if its folder records it: by tables saved in full, or
    /// by the config.json of a checkpoint.
    pub fn vocab_size(&self, d_model: usize) -> Option<usize> {
        let config = read_config(&self.folder).ok();
        let config = config.filter(|config| config.d_model == d_model);
        let said = config.and_then(|config| config.vocab_size);
        let tables = self.file.names().filter(|name| {
            let name: &str = &in_text_model(name.strip_prefix(PREFIX).unwrap_or(name));
            [HEAD, OLD_HEAD].contains(&name) || TABLES.contains(&name)
        });
        let rows = tables.filter_map(|name| match *self.file.shape(name)? {
            [rows, width] if width == d_model => Some(rows),
            _ => None,
        });
        rows.max().max(said)
    }

    /// Gives a model without adapters the positions of the adapter's training, where the run had stretched them, and grows its
    /// vocabulary to that of the training, if it is smaller: the base's vocabulary had been extended. The rows of the new tokens come from its tables; those of frozen tables are newly
    /// initialized.
    ///
    /// # Errors
    /// Quantized weights: their tables cannot grow.
    pub fn make_room(&self, model: &mut Model) -> Result<(), HfError> {
        if let Some(config) = positions_in(&self.folder, model.config()) {
            model.set_positions(&config);
        }
        let shape = model.shape();
        let Some(rows) = self.vocab_size(shape.d_model) else {
            return Ok(());
        };
        let own = shape.vocab_size;
        if rows > own && !model.params().is_present() {
            return Err(self.wrong(format!(
                "it was trained on {rows} tokens, but the quantized base has {own}: use it on the unquantized base"
            )));
        }
        Ok(model.grow_vocabulary(rows)?)
    }

    /// The scale of a low-rank term of this size.
    pub(super) fn scale_of(&self, size: RankAlpha) -> f64 {
        self.description.lora.scale_of(size)
    }

    /// Its changes to a model with these parameters.
    pub(super) fn changes(
        &self,
        config: &ModelConfig,
        infos: &[ParamInfo],
    ) -> Result<Changes, HfError> {
        let by_name: BTreeMap<&str, &ParamInfo> =
            infos.iter().map(|i| (i.name.as_str(), i)).collect();
        let joined = joined::matrices(config, infos);
        // A table that a class names otherwise.
        let table = |name: &str| match &joined.get(module_name(name))?.parts[..] {
            [info] => Some(*info),
            _ => None,
        };
        let mut found = Changes::default();
        let parameters = self.parameters();
        if self.description.lora.dora && !parameters.is_empty() {
            return Err(self.wrong("use_dora is set, and experts have no magnitudes".into()));
        }
        for name in self.file.names() {
            let said = name.strip_prefix(PREFIX).unwrap_or(name);
            let module: &str = &in_text_model(said);
            if let Some(start) = name.strip_suffix(B) {
                self.must_have(name, &format!("{start}{A}"))?;
            } else if module.contains(MAGNITUDE) {
                if !self.description.lora.dora {
                    return Err(
                        self.wrong(format!("use_dora is false, but {} exists", one_line(name)))
                    );
                }
            } else if let Some(parameter) = said.strip_suffix(A).and_then(|of| parameters.get(of)) {
                let parameter = in_text_model(parameter);
                found
                    .stacks
                    .push(self.stack((name, &*parameter), config, infos)?);
            } else if let Some(module) = module.strip_suffix(A) {
                let said = said.strip_suffix(A).unwrap_or(said);
                if !self.description.targets.finds(said) {
                    return Err(self.untargeted(said));
                }
                let own = by_name.get(format!("{module}.weight").as_str());
                let fused = joined.get(module);
                // A fused matrix may have the name of one of its parts: the rows tell the two apart.
                let rows = self.rows_of(name);
                let fused = fused.filter(|fused| {
                    own.is_none_or(|own| rows == fused.shape().0 && rows != own.shape[0])
                });
                if let (Some(info), None) = (own, fused) {
                    found.products.push(self.change(name, info)?);
                } else if let Some(fused) = fused {
                    let factors = self.factors(name, fused.shape())?;
                    let lora = &self.description.lora;
                    found.products.extend(joined::split(lora, &factors, fused));
                } else {
                    return Err(self.wrong(format!(
                        "it belongs to another model: this one has no {}",
                        one_line(module)
                    )));
                }
            } else if let Some(info) = by_name.get(module).copied().or_else(|| table(module)) {
                let values = self.file.read(name, &info.shape)?;
                found.whole.push((info.clone(), values));
            } else if [HEAD, OLD_HEAD].contains(&module)
                && TABLES.iter().any(|table| by_name.contains_key(table))
            {
                self.is_the_table(name)?;
            } else {
                return Err(self.wrong(format!("{} is not a LoRA factor", one_line(name))));
            }
        }
        self.head_stays_tied(infos, &found.whole)?;
        // Files have no fixed tensor order.
        found.products.sort_by_key(|change| change.offset);
        found.stacks.sort_by(|a, b| a.module.cmp(&b.module));
        let twice = found
            .products
            .windows(2)
            .find(|pair| pair[0].offset == pair[1].offset);
        match twice {
            Some(pair) => Err(self.wrong(format!(
                "it has two adapters for {}, one of them in a matrix that holds it with others",
                one_line(&pair[0].module)
            ))),
            None => Ok(found),
        }
    }

    /// The rows of the matrix of a first factor, by the shape of the second; 0 if there is none.
    fn rows_of(&self, name: &str) -> usize {
        let module = name.strip_suffix(A).unwrap_or(name);
        let shape = self.file.shape(&format!("{module}{B}"));
        shape.and_then(|shape| shape.first()).copied().unwrap_or(0)
    }

    pub(super) fn must_have(&self, name: &str, other: &str) -> Result<(), HfError> {
        match self.file.contains(other) {
            true => Ok(()),
            false => Err(self.wrong(format!(
                "{} exists but {} does not",
                one_line(name),
                one_line(other)
            ))),
        }
    }

    /// PEFT omits such tensors with a warning.
    pub(super) fn untargeted(&self, module: &str) -> HfError {
        let is_router = [".gate", ".router"].iter().any(|end| module.ends_with(end));
        if is_router {
            return self.wrong(format!(
                "it adapts the router {}, which is not supported: train it without, as by a list of target_modules in place of all-linear",
                one_line(module)
            ));
        }
        self.wrong(format!(
            "target_modules, with exclude_modules and layers_to_transform, does not name {}, which the file has factors of",
            one_line(module)
        ))
    }

    /// PEFT trains a copy of the embeddings and leaves the head at the base's, unless configured to keep the two tied; here they
    /// are one table. Adapters with a base fingerprint are this program's, and mean one table.
    fn head_stays_tied(
        &self,
        infos: &[ParamInfo],
        whole: &[(ParamInfo, Vec<f32>)],
    ) -> Result<(), HfError> {
        let tied = infos.iter().all(|info| info.role != Role::Head);
        let table = whole.iter().find(|(info, _)| info.role == Role::Embedding);
        let has_head = || {
            let is_head = |name: &str| name.ends_with(HEAD) || name.ends_with(OLD_HEAD);
            self.file.names().any(is_head)
        };
        match table {
            Some((table, _)) if tied && !self.description.keeps_tied && self.base_fingerprint().is_none() && !has_head() => {
                Err(self.wrong(format!(
                    "it saves {} alone, and in this model embeddings and head are one table: PEFT leaves the head at the base's (ensure_weight_tying is not true); merge this adapter with PEFT first",
                    one_line(table.module())
                )))
            }
            _ => Ok(()),
        }
    }

    /// Checks the head of a tied base: PEFT has a copy of both.
    fn is_the_table(&self, head: &str) -> Result<(), HfError> {
        let table = self.file.names().find(|name| {
            let name: &str = &in_text_model(name.strip_prefix(PREFIX).unwrap_or(name));
            TABLES.contains(&name)
        });
        let Some(table) = table else {
            return Err(self.wrong(format!(
                "it has {} and no embeddings, and in this model the two are one table: they differ; merge this adapter with PEFT first",
                one_line(head)
            )));
        };
        let shape = self.file.shape(head).unwrap_or_default().to_vec();
        match self.file.read(head, &shape)? == self.file.read(table, &shape)? {
            true => Ok(()),
            false => Err(self.wrong(format!(
                "{} and {} differ, and in this model they are one table; merge this adapter with PEFT first",
                one_line(head),
                one_line(table)
            ))),
        }
    }

    fn change(&self, name: &str, info: &ParamInfo) -> Result<Change, HfError> {
        let &[rows, cols] = info.shape.as_slice() else {
            return Err(self.wrong(format!("{} is not a matrix", one_line(name))));
        };
        Ok(Change {
            module: info.module().into(),
            offset: info.offset,
            shape: (rows, cols),
            factors: self.factors(name, (rows, cols))?,
        })
    }

    /// The factors of a matrix (rows, cols), by the name of the first one.
    pub(super) fn factors(
        &self,
        name: &str,
        (rows, cols): (usize, usize),
    ) -> Result<Factors, HfError> {
        let module = name.strip_suffix(A).unwrap_or(name);
        let size = self.size_of(name)?;
        let magnitude = match self.description.lora.dora {
            true => {
                let plain = format!("{module}{MAGNITUDE}");
                // PEFT before 0.12 appends `.weight`.
                let name = match self.file.contains(&plain) {
                    true => plain,
                    false => format!("{plain}.weight"),
                };
                let shape = self.file.shape(&name).unwrap_or(&[rows]).to_vec();
                if shape.iter().product::<usize>() != rows {
                    return Err(self.wrong(format!("{} is not of {rows} rows", one_line(&name))));
                }
                Some(self.file.read(&name, &shape)?)
            }
            false => None,
        };
        Ok(Factors {
            size,
            a: self.file.read(name, &[size.rank, cols])?,
            b: self
                .file
                .read(&format!("{module}{B}"), &[rows, size.rank])?,
            magnitude,
        })
    }

    /// The size that the config gives for a factor; it must be present.
    pub(super) fn size_of(&self, name: &str) -> Result<RankAlpha, HfError> {
        let plain = name.strip_prefix(PREFIX).unwrap_or(name);
        let (module, side) = match plain.strip_suffix(A) {
            Some(module) => (module, 0),
            None => (plain.strip_suffix(B).unwrap_or(plain), 1),
        };
        let size = self.description.size_of(module);
        let shape = self.file.shape(name).unwrap_or_default();
        match shape.get(side) == Some(&size.rank) {
            true => Ok(size),
            false => Err(self.wrong(format!(
                "{} is {}, and {} has shape {shape:?}",
                self.description.key_of_rank(module),
                size.rank,
                one_line(name)
            ))),
        }
    }

    /// Whether it has magnitudes (DoRA): then its effect depends on the weights, and adapters cannot be summed.
    pub fn has_magnitudes(&self) -> bool {
        self.description.lora.dora
    }

    /// Merges the adapter, `weight` times, into the weights of its base, in f32: W + weight · scale · B A.
    ///
    /// # Errors
    /// It belongs to another model; it has magnitudes or full tables, which cannot be scaled; quantized
    /// weights.
    pub fn merge_into(&self, model: &mut Model, weight: f64) -> Result<(), HfError> {
        self.make_room(model)?;
        let infos = model.params().base().to_vec();
        self.merge_into_parts(model, &infos, weight)
    }

    /// The same for these parameters of the model.
    ///
    /// # Errors
    /// As [`Peft::merge_into`].
    pub(super) fn merge_into_parts(
        &self,
        model: &mut Model,
        infos: &[ParamInfo],
        weight: f64,
    ) -> Result<(), HfError> {
        let mut changes = self.changes(model.config(), infos)?;
        if weight != 1.0 && (self.description.lora.dora || !changes.whole.is_empty()) {
            let what = "magnitudes (DoRA) and replaced modules cannot be scaled: remove its weight";
            return Err(self.wrong(what.into()));
        }
        model.params_mut().write_weights(|weights| {
            for (info, values) in &changes.whole {
                weights[info.offset..][..values.len()].copy_from_slice(values);
            }
            for change in changes.by_matrix() {
                let ((rows, cols), factors) = (change.shape, &change.factors);
                let scale = (weight * self.scale_of(factors.size)) as f32;
                let weights = &mut weights[change.offset..change.offset + rows * cols];
                low_rank::merge(scale, (&factors.b, &factors.a), change.shape, weights);
                if let Some(lengths) = &factors.magnitude {
                    low_rank::rescale(lengths, cols, weights);
                }
            }
        })?;
        Ok(())
    }

    /// The adapter as a spec's config, for a model of this config.
    ///
    /// # Errors
    /// It targets matrices on which no adapter can be trained here.
    pub(super) fn config_for(
        &self,
        changes: &Changes,
        model: &ModelConfig,
    ) -> Result<AdapterConfig, HfError> {
        let products = changes.products.iter();
        let products = products.map(|change| (&change.module, change.factors.size));
        let stacks = changes.stacks.iter();
        let stacks = stacks.map(|stack| (&stack.module, stack.factors.size));
        let all: BTreeMap<String, RankAlpha> = products
            .chain(stacks)
            .map(|(module, size)| (module.clone(), size))
            .collect();
        let names: BTreeSet<String> = all.keys().cloned().collect();
        let adapts =
            |lora: &Lora| -> BTreeSet<String> { lora.modules_of(model).into_iter().collect() };
        // A tied head trains with the embeddings.
        let lora = &self.description.lora;
        let common = RankAlpha {
            rank: lora.rank,
            alpha: lora.alpha,
        };
        let sizes = all.into_iter();
        let modules: BTreeMap<String, RankAlpha> =
            sizes.filter(|(_, size)| *size != common).collect();
        let whole = lora.modules_to_save.iter().copied();
        let whole = whole.filter(|whole| *whole != Whole::Head || !model.ties_head());
        let modules_to_save: Vec<Whole> = whole.collect();
        let of = |targets, custom: &[Target], patterns: Vec<String>| Lora {
            targets,
            custom: custom.to_vec(),
            patterns,
            modules_to_save: modules_to_save.clone(),
            modules: modules.clone(),
            ..lora.clone()
        };
        use Target::{Down, Experts, Gate, Key, Output, Query, Up, Value};
        let each = [Query, Key, Value, Output, Gate, Up, Down, Experts];
        let has = |target: &Target| {
            let one = adapts(&of(Targets::Custom, &[*target], Vec::new()));
            !one.is_disjoint(&names)
        };
        let listed: Vec<Target> = each.into_iter().filter(has).collect();
        let words = [
            Targets::All,
            Targets::AllAndExperts,
            Targets::Minimal,
            Targets::AttentionOnly,
            Targets::FfnOnly,
        ];
        let choices = words
            .map(|targets| of(targets, &[], Vec::new()))
            .into_iter();
        // If the three are one matrix they are named together.
        let mut fused = listed.clone();
        fused.extend(
            [Key, Value]
                .into_iter()
                .filter(|target| !listed.contains(target)),
        );
        let mut choices = choices.chain([
            of(Targets::Custom, &listed, Vec::new()),
            of(Targets::Custom, &fused, Vec::new()),
            of(Targets::Pattern, &[], names.iter().cloned().collect()),
        ]);
        match choices.find(|lora| adapts(lora) == names && lora.faults(model).is_empty()) {
            Some(lora) => Ok(AdapterConfig::Lora(lora)),
            None => Err(self.wrong(
                "it is on matrices that cannot have adapters here (a head, a single expert): merge it instead".into(),
            )),
        }
    }

    /// Attaches the adapter to a model without adapters; its weights stay unchanged, in any format.
    ///
    /// # Errors
    /// It belongs to another model, or targets matrices without adapter support; the model has adapters, or quantized
    /// tables that the adapter replaces.
    pub fn attach(&self, model: &mut Model) -> Result<(), HfError> {
        self.make_room(model)?;
        let changes = self.changes(model.config(), model.params().base())?;
        let config = self.config_for(&changes, model.config())?;
        model.adapt(&config)?;
        let params = model.params_mut();
        let held = params.first_held();
        params.write_held(|weights| {
            for (info, values) in &changes.whole {
                weights[info.offset - held..][..values.len()].copy_from_slice(values);
            }
        })?;
        fill(&changes, model)
    }

    /// Attaches the adapter to an inference-only model with weights in any format, and replaces the model's tables by the
    /// adapter's. Returns the replaced ones: [`Model::remove_adapters`] and [`Model::replace_table`] undo it.
    ///
    /// # Errors
    /// As [`Peft::check_detachable`]; a model that has adapters.
    pub fn attach_for_inference(
        &self,
        model: &mut Model,
    ) -> Result<Vec<(ParamInfo, Table)>, HfError> {
        self.make_room(model)?;
        let changes = self.changes(model.config(), model.params().base())?;
        let AdapterConfig::Lora(lora) = self.config_for(&changes, model.config())?;
        self.swappable(&changes)?;
        // Tables for inference need no gradients.
        model.adapt(&AdapterConfig::Lora(Lora {
            modules_to_save: Vec::new(),
            ..lora
        }))?;
        fill(&changes, model)?;
        let tables = changes.whole.into_iter().map(|(info, values)| {
            let table = Table::dense(values, &info.shape)?;
            let replaced = model.replace_table(&info, table)?;
            Ok((info, replaced))
        });
        tables.collect()
    }
}

/// A module of a text model by its name there, where the adapter was trained on one with vision (Qwen 3.5).
pub(super) fn in_text_model(module: &str) -> Cow<'_, str> {
    match module.strip_prefix("model.language_model.") {
        Some(rest) => format!("model.{rest}").into(),
        None => module.into(),
    }
}

/// Writes factors and magnitudes to their positions in a model with matching adapters.
fn fill(changes: &Changes, model: &mut Model) -> Result<(), HfError> {
    let products = changes.products.iter();
    let products = products.map(|change| (change.module.as_str(), &change.factors));
    let stacks = changes.stacks.iter();
    let stacks = stacks.map(|stack| (stack.module.as_str(), &stack.factors));
    let by_module: BTreeMap<&str, &Factors> = products.chain(stacks).collect();
    let params = model.params_mut();
    let (infos, held) = (params.adapters().to_vec(), params.first_held());
    params.write_held(|weights| {
        for info in &infos {
            let Some((module, part)) = super::part_of(&info.name) else {
                continue;
            };
            let values = by_module.get(module).and_then(|factors| match part {
                A => Some(&factors.a),
                B => Some(&factors.b),
                _ => factors.magnitude.as_ref(),
            });
            if let Some(values) = values {
                weights[info.offset - held..][..info.len].copy_from_slice(values);
            }
        }
    })?;
    Ok(())
}
