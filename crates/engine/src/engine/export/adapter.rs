//! Exports the adapter of a run alone, for PEFT: adapter_config.json, adapter_model.safetensors, tokenizer, card. The base is
//! referenced, not included; neither its weights nor the adapter's are loaded.

use super::adapter_source::AdapterSource;
use super::card::{self, About};
use super::folder::Restated;
use super::{
    ExportError, FLOATS, Folder, NO_PADDING, Options, Written, float, has_type, in_folder,
};
use crate::base::text::one_line;
use crate::hf;
use std::path::Path;

/// Its word after `--format`, its sentence, its types, the default first.
pub const PEFT: (&str, &str, &[&str]) = (
    "peft",
    "only the adapter of a LoRA, DoRA or QLoRA run, for PEFT and the hub; every other format merges it into its base",
    FLOATS,
);

/// Writes an adapter to the folder `to`, with a card, and lists the files.
///
/// # Errors
/// As [`super::export`].
pub fn export_adapter(
    source: &AdapterSource,
    options: &Options,
    about: &About,
    to: &Path,
) -> Result<Vec<Written>, ExportError> {
    let (word, _, dtypes) = PEFT;
    has_type(word, dtypes, &options.dtype)?;
    let dtype = float(word, options)?;
    let (peft, base) = (&source.peft, source.base.as_deref());
    let tied = source.tied.as_deref();
    in_folder(to, &mut |folder: &mut Folder| {
        let config = peft
            .config_json(base, tied, &source.joins)
            .map_err(|e| ExportError::Adapter(e.into()))?;
        folder.text(hf::ADAPTER_CONFIG, &config)?;
        folder.file(hf::ADAPTER_WEIGHTS, &mut |out| {
            peft.write(dtype, tied, &source.joins, out)
        })?;
        // The tokens that end a turn of its training, which the base's own settings may not name.
        folder.copy(peft.folder(), hf::GENERATION)?;
        let pad = source.pad.as_ref().map(|(_, text)| text.as_str());
        let restated = Restated {
            pad,
            ..Restated::default()
        };
        folder.tokenizer(peft.folder(), restated)?;
        if peft.scores() && source.pad.is_none() {
            folder.note(vec![NO_PADDING.into()]);
        }
        let text = card::adapter_card(source, &options.dtype, about);
        folder.text(card::FILE, &text)?;
        if let Some(rows) = source.grown {
            folder.note(vec![format!(
                "it was trained on a vocabulary of {rows} tokens, but its base has fewer rows: with PEFT, \
                 call base.resize_token_embeddings({rows}) first, as the card says"
            )]);
        }
        if let Some(arguments) = &source.longer {
            folder.note(vec![format!(
                "it was trained at stretched positions: with PEFT, load its base with {arguments}, as the card says"
            )]);
        }
        if let Some(class) = source.taken_for_experts() {
            folder.note(vec![format!(
                "PEFT 0.21 takes gate_proj, up_proj and down_proj of {class} for its experts and does not load this adapter as it is: \
                 --format hf exports base and adapter as one model"
            )]);
        }
        if !source.base_is_public() {
            folder.note(vec![match base {
                Some(base) => local_base(base),
                None => "its base model is not named: set it with --base-model ORG/NAME".into(),
            }]);
        }
        Ok(())
    })
}

/// What to do about a base that is a place of this machine. PEFT puts an adapter on a whole model, and never on an adapter.
fn local_base(base: &str) -> String {
    let shown = one_line(base);
    match Path::new(base).join(hf::ADAPTER_CONFIG).is_file() {
        true => format!(
            "its base is {shown}, a model with an adapter of its own, on which PEFT cannot put another one: `llmtui merge --base {shown} --to DIR` makes that base, and --base-model ORG/NAME names it once it is published"
        ),
        false => format!(
            "its base is {shown}, a path on this machine: name it for others with --base-model ORG/NAME"
        ),
    }
}
