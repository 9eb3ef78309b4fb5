//! An adapter to export: read, verified, and the name of its base.

use super::{ExportError, pads};
use crate::engine::checkpoint::Manifest;
use crate::hf::{self, JoinError, Joins, Peft};
use crate::hub;
use crate::models::{self, ModelSource};
use std::collections::BTreeSet;
use std::path::Path;

/// An adapter that is exported.
pub struct AdapterSource {
    pub peft: Peft,
    /// The base as the files name it to others: its id on the hub where one is known, else its place on this machine.
    pub base: Option<String>,
    /// The embeddings in its file that are the base's head, too.
    pub(super) tied: Option<String>,
    /// Its base's class in transformers, where it lies beside the base's config.
    pub(super) class: Option<&'static str>,
    /// Which of its matrices its base's class in transformers keeps as one.
    pub(super) joins: Joins,
    /// How many tokens its base must be given, which has fewer: it was trained on tables that had grown.
    pub(super) grown: Option<usize>,
    /// The arguments that give its base the positions of its training, where these were stretched.
    pub(super) longer: Option<String>,
    /// What pads, of a reward model: transformers learns it from its base's config, which does not name it.
    pub(super) pad: Option<(u32, String)>,
}

impl AdapterSource {
    /// The adapter of a checkpoint, or of a folder of PEFT's. `base` is the base's id on the hub, where the files do not tell.
    ///
    /// # Errors
    /// There is none; a checkpoint that is damaged; files that contradict each other; a base that has no class in transformers,
    /// or one in whose matrices the adapter's have no place.
    pub fn open(path: &Path, base: Option<&str>) -> Result<AdapterSource, ExportError> {
        Manifest::verify_if_any(path)?;
        let peft = Peft::find(path)?;
        peft.check().map_err(hf::AdapterError::from)?;
        peft.check_values().map_err(hf::AdapterError::from)?;
        // A folder of PEFT's has no config.json, and what PEFT needs.
        let (mut tied, mut joins, mut class) = (None, Joins::default(), None);
        if path.join(hf::CONFIG).is_file() {
            let fits = fits_transformers(path, &peft)?;
            (class, joins) = (Some(fits.0), fits.1);
            tied = peft.tied_table(path).map_err(hf::AdapterError::from)?;
        }
        let said = peft.base().map(|said| {
            let place = Path::new(said);
            // The id alone does not say which file of a repository: PEFT would look for its safetensors.
            let is_file = place
                .extension()
                .is_some_and(|end| end.eq_ignore_ascii_case("gguf"));
            let id = hub::id_of_cached(place).filter(|_| !is_file);
            id.unwrap_or_else(|| said.to_string())
        });
        Ok(AdapterSource {
            grown: grown(&peft),
            longer: longer(path, &peft),
            pad: padding_of(path, &peft),
            base: base.map(String::from).or(said),
            peft,
            tied,
            class,
            joins,
        })
    }

    /// Its name: run and step, or its folder.
    pub fn name(&self) -> String {
        models::name_of(self.peft.folder())
    }

    /// The ends of the names of the matrices that it changes, as PEFT will know them.
    pub fn targets(&self) -> BTreeSet<String> {
        self.peft.targets(&self.joins)
    }

    /// The base's class, where PEFT takes the feed-forward matrices of its dense blocks and shared experts for those of its experts.
    pub(super) fn taken_for_experts(&self) -> Option<&'static str> {
        let of_blocks = ["gate_proj", "up_proj", "down_proj"];
        let targets = self.targets();
        let any = targets.iter().any(|name| {
            let last = name.rsplit('.').next().unwrap_or(name);
            of_blocks.contains(&last)
        });
        let family = |class: &str| class.split("For").next().unwrap_or_default().to_string();
        self.class
            .filter(|class| any && TAKEN.contains(&family(class).as_str()))
    }

    /// Whether others find the base by the name that the files give it.
    pub fn base_is_public(&self) -> bool {
        self.base.as_deref().is_some_and(is_public)
    }
}

/// Models whose `gate_proj`, `up_proj` and `down_proj` PEFT 0.21 turns into parameters of experts, wherever they are
/// (`peft/utils/transformers_weight_conversion.py`).
const TAKEN: [&str; 4] = ["DeepseekV2", "DeepseekV3", "Qwen3Moe", "Qwen3Next"];

/// A hub id that is not also a local folder: PEFT looks for a folder first.
pub(super) fn is_public(base: &str) -> bool {
    hub::is_repo_id(base) && !Path::new(base).exists()
}

/// The token that pads, of a reward model; its checkpoint names it.
fn padding_of(path: &Path, peft: &Peft) -> Option<(u32, String)> {
    let said = || hf::token_ids(path).ok().and_then(|ids| ids.pad);
    let folder = peft.folder();
    peft.scores().then(|| pads(folder, said())).flatten()
}

/// Tokens of the model under the adapter as it trained, where the base that it names is here and has fewer.
fn grown(peft: &Peft) -> Option<usize> {
    let base = ModelSource::open(Path::new(peft.base()?)).ok()?;
    let config = base.config();
    let rows = peft.vocab_size(config.d_model)?;
    (Some(rows) > config.vocab_size).then_some(rows)
}

/// Arguments of `from_pretrained` for a base whose positions were stretched while the adapter was trained.
fn longer(path: &Path, peft: &Peft) -> Option<String> {
    let base = ModelSource::open(Path::new(peft.base()?)).ok()?;
    let config = hf::positions_in(path, base.config())?;
    let table = hf::rope_parameters(&config)?;
    let items = table
        .as_object()?
        .iter()
        .filter(|(_, value)| !value.is_null());
    let items: Vec<String> = items
        .map(|(key, value)| format!("\"{key}\": {}", python(value)))
        .collect();
    Some(format!(
        "max_position_embeddings={}, rope_parameters={{{}}}",
        config.context(),
        items.join(", ")
    ))
}

/// A value of JSON as Python has it.
fn python(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Bool(true) => "True".into(),
        serde_json::Value::Bool(false) => "False".into(),
        other => other.to_string(),
    }
}

fn fits_transformers(path: &Path, peft: &Peft) -> Result<(&'static str, Joins), ExportError> {
    let wrong = |error: hf::HfError| ExportError::Adapter(error.into());
    let merged = "--format hf exports base and adapter as one model";
    let Some(class) = hf::class_in(path).map_err(wrong)? else {
        return Err(ExportError::Cannot {
            what: "no transformers class implements this adapter's base, so PEFT cannot load it"
                .into(),
            fix: "--format safetensors exports base and adapter as one model, for llmtui".into(),
        });
    };
    let joins = peft.joins(path).map_err(|error| match error {
        JoinError::Unread(error) => wrong(error),
        JoinError::Impossible(why) => ExportError::Cannot {
            what: format!("{why} ({class})"),
            fix: merged.into(),
        },
    });
    Ok((class, joins?))
}
