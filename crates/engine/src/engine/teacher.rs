//! The teacher of a distillation: read once, frozen, in the formats of its file, and held against the run's tokens.

use super::EngineError;
use super::checkpoint::FrozenModel;
use super::checkpoint::manifest::{Fault, Manifest};
use super::start_weights::{arithmetic, tokens_of};
use crate::base::child::Child;
use crate::base::human::{counted, grouped, short};
use crate::base::text::{one_line, shown};
use crate::data::Dataset;
use crate::data::tokenizer::{self, Tokenizer};
use crate::models::ModelSource;
use crate::nn::Teacher;
use crate::spec::RunSpec;

/// A teacher, and what the log says of it.
pub(super) struct Loaded {
    pub teacher: Teacher,
    pub identity: FrozenModel,
    pub words: String,
}

/// The teacher of a spec; `None` where its method learns from none.
///
/// # Errors
/// [`EngineError::Setup`]: no model, one that reads other tokens or shorter texts, or no room for it.
pub(super) fn load(spec: &RunSpec, data: &Dataset) -> Result<Option<Loaded>, EngineError> {
    let Some(distill) = spec.method.distills() else {
        return Ok(None);
    };
    let fault = |what: String| EngineError::Setup(format!("method.distill.teacher: {what}"));
    let Some(place) = &distill.teacher else {
        return Err(fault("not set; name a model".into()));
    };
    let name = shown(place);
    let source = ModelSource::open(place).map_err(|e| fault(format!("{e}; {}", e.hint())))?;
    let config = source.config();
    if config.seq_len < spec.model.seq_len {
        let (most, rows) = (grouped(config.seq_len as u64), spec.model.seq_len);
        return Err(fault(format!(
            "{name} reads at most {most} tokens, and this run's rows have up to {}; set model.seq_len={}",
            grouped(rows as u64),
            config.seq_len
        )));
    }
    if let Some(what) = unlike(&source, &data.tokenizer) {
        return Err(fault(format!(
            "the tokens of {name} are not this run's: {what}; a student learns from a teacher of its own tokenizer: choose a model of \
             the same family, or train a fresh student with data.tokenizer={{file: {{path: {name}}}}}"
        )));
    }
    Manifest::verify_if_any(place)
        .map_err(|e| fault(format!("the checkpoint is damaged: {e}; {}", Fault::HINT)))?;
    // Ranks get it in f32.
    let there = spec.engine.torch().is_some();
    let model = match there && !config.is_reward_model() {
        true => source.load(),
        // It refuses a model that cannot write.
        false => source.load_for_inference(),
    };
    let mut model = model.map_err(|e| fault(format!("{e}; {}", e.hint())))?;
    model.set_compute_dtype(arithmetic(spec)?)?;
    let identity = FrozenModel {
        place: place.display().to_string(),
        weights: model.base_fingerprint()?,
    };
    let (n, rows) = (model.n_params(), model.shape().vocab_size);
    let own = (spec.model.vocab_size).unwrap_or_else(|| data.tokenizer.vocab_size());
    let teacher = Teacher::new(model, distill.divergence());
    let formats = source.formats().filter(|_| !there);
    let formats = formats.map(|formats| formats.join(", "));
    let formats = formats.map_or_else(String::new, |formats| format!(" in {formats}"));
    let mut words = format!(
        "teacher: {name}, {} parameters{formats}, frozen",
        short(n as f64)
    );
    // Rows of padding, or tokens that only one of them has.
    if rows != own {
        let (most, which) = match rows > own {
            true => (rows, "teacher"),
            false => (own, "student"),
        };
        let more = counted((most - rows.min(own)) as u64, "row");
        words += &format!(
            "; the {} tokens that both have are compared, the {which}'s {more} more are not",
            grouped(rows.min(own) as u64)
        );
    }
    Ok(Some(Loaded {
        teacher,
        identity,
        words,
    }))
}

/// The first token that differs; `None` where all of the run's are the teacher's of the same number.
fn unlike(source: &ModelSource, ours: &Tokenizer) -> Option<String> {
    let theirs = tokenizer::load(source.tokenizer_path(), &Child::of_this_program());
    let listed = match source.chain().0 {
        ModelSource::Gguf(file) => tokens_of(file),
        ModelSource::Folder(_) => None,
    };
    let token = |id: u32| match (&theirs, listed) {
        (Ok(theirs), _) => theirs.token(id),
        (Err(_), Some(listed)) => listed.get(id as usize).cloned(),
        (Err(_), None) => None,
    };
    if let (Err(error), None) = (&theirs, listed) {
        return Some(format!("its tokenizer cannot be read: {error}"));
    }
    let quoted = |token: &str| format!("`{}`", one_line(token));
    (0..ours.vocab_size() as u32).find_map(|id| {
        // Numbers without a token are never read.
        let own = ours.token(id)?;
        match token(id) {
            Some(theirs) if theirs == own => None,
            Some(theirs) => Some(format!(
                "token {id} is {} here and {} there",
                quoted(&own),
                quoted(&theirs)
            )),
            None => Some(format!(
                "token {id} is {} here, and the teacher has none of that number",
                quoted(&own)
            )),
        }
    })
}
