//! From a spec to training data: sources are opened, rows rendered and tokenized into stores (from the cache if they are in
//! it), split, and laid out.

mod bytes;
mod emptied;
mod fitted;
mod held;
mod tokenize;

use crate::base::paths::Env;
use crate::data::chat::{SplitMarker, Template};
use crate::data::corpus::{Corpus, sha256};
use crate::data::dataset::Splits;
use crate::data::documents::{Documents, Layouting, Portion};
use crate::data::formats::FormatId;
use crate::data::hold_out::{self, Span, Split};
use crate::data::mix::Wanted;
use crate::data::pack::pieces::{Account, needed};
use crate::data::pack::{Packing, TooLong};
use crate::data::render::{TrainOn, end_tokens};
use crate::data::source::{ReadContext, SourceConfig};
use crate::data::store::Progress;
use crate::data::tokenizer::TokenizerConfig;
use crate::data::{
    DataConfig, DataError, Dataset, Loss, Mix, Tokenizer, TrainingCounts, Unit, vocabulary,
};
use crate::hub::HubConfig;
use emptied::{SourceSpans, no_validation, nothing_left, one_row};
use held::{divided, fills_no_row, held_rows, not_held_out};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use tokenize::{Ready, Tokenizing};

/// A run's requirements for its data besides the spec's `data`.
pub struct Request<'a> {
    /// Tokens of the longest row.
    pub seq_len: usize,
    /// What is supervised if the spec says `auto`.
    pub train_on: TrainOn,
    /// The method's unit.
    pub unit: Unit,
    /// In the place of the one that `data.tokenizer` names: that of a model which is still to be trained.
    pub tokenizer: Option<Tokenizer>,
    /// Where files and the hub are.
    pub surroundings: DataEnv,
    /// Hears how far tokenizing has come.
    pub progress: Option<&'a mut dyn FnMut(&Progress)>,
}

/// Where data are found and where tokens are kept.
#[derive(Debug, Clone, Default)]
pub struct DataEnv {
    pub read: ReadContext,
    /// The folder of the cache; none: tokens stay in memory unless the spec names a folder.
    pub cache: Option<PathBuf>,
}

impl DataEnv {
    /// As the environment says.
    pub fn from_env(env: &Env) -> DataEnv {
        DataEnv {
            read: ReadContext {
                hub: HubConfig::from_env(env),
                ..ReadContext::default()
            },
            cache: env.cache_dir.as_ref().map(|dir| dir.join("tokens")),
        }
    }
}

impl Request<'_> {
    /// For pretraining, in memory.
    pub fn new(seq_len: usize) -> Request<'static> {
        Request {
            seq_len,
            train_on: TrainOn::All,
            unit: Unit::Text,
            tokenizer: None,
            surroundings: DataEnv::default(),
            progress: None,
        }
    }
}

impl Dataset {
    /// Reads, splits and tokenizes data for pretraining, in memory.
    ///
    /// # Errors
    /// Bad text, a bad tokenizer, or a split shorter than one window.
    pub fn prepare(config: &DataConfig, seq_len: usize) -> Result<Dataset, DataError> {
        Dataset::open(config, Request::new(seq_len))
    }

    /// The same as the request has it: for a method, with a cache, telling progress.
    ///
    /// # Errors
    /// Bad text, a bad tokenizer, or a split shorter than one window.
    pub fn open(config: &DataConfig, mut request: Request<'_>) -> Result<Dataset, DataError> {
        if request.unit == Unit::Text && config.is_corpus(&request.surroundings.read.base) {
            return corpus(config, request);
        }
        config.serves(request.unit)?;
        let Tokens {
            tokenizer,
            ends,
            template,
            behind_answers,
            plain_prompts,
            cut_marks,
            replaces_template,
            train,
            val,
            mut notes,
        } = tokens(config, &mut request)?;
        let how = layout(config, &train, &request)?;
        let (mut documents, learning) = build_splits(config, &train, &val, how, &mut notes)?;
        documents.bytes_per_token = bytes::per_prediction(&documents.val, &tokenizer);
        Ok(Dataset {
            fingerprint: fingerprint(config, &train, &val, how),
            tokenizer_fingerprint: of_tokenizer(&tokenizer),
            tokenizer: Arc::unwrap_or_clone(tokenizer),
            place: place(&train),
            notes,
            ends,
            template,
            answers: OnceLock::new(),
            behind_answers,
            plain_prompts,
            cut_marks,
            replaces_template,
            learning: Some(learning),
            seq_len: request.seq_len,
            splits: Splits::Documents(documents),
        })
    }

    /// Rows to validate on alone, read as those of `like` are, by its tokenizer: a second validation set of a run.
    ///
    /// # Errors
    /// Rows that cannot be read, text that the tokenizer cannot write, nothing to predict.
    pub fn held_out(
        config: &DataConfig,
        source: &SourceConfig,
        like: &Dataset,
        mut request: Request<'_>,
    ) -> Result<Dataset, DataError> {
        let tokenizer = Arc::new(like.tokenizer.clone());
        let template = vocabulary::template(config, &tokenizer)?;
        let mut silent = |_: &Progress| {};
        let mut work = Tokenizing {
            config,
            tokenizer: tokenizer.clone(),
            template,
            train_on: match config.train_on {
                TrainOn::Auto => request.train_on,
                said => said,
            },
            unit: request.unit,
            cache: config.cache_folder(request.surroundings.cache.as_deref()),
            read: read(&request),
            progress: match &mut request.progress {
                Some(progress) => &mut **progress,
                None => &mut silent,
            },
            notes: Vec::new(),
        };
        let ready = work.source(source)?;
        let behind_answers = work.template.as_ref().map(Template::answer_suffix);
        let mut notes = work.notes;
        let how = layout(config, std::slice::from_ref(&ready), &request)?;
        let spans: Vec<Span> = ready.store.spans().collect();
        let (portion, account) = Portion::new(&ready.name, &ready.store, &spans, how);
        notes.extend(account.notes(&ready.name, portion.documents, how.seq_len));
        if portion.rows() == 0 {
            return Err(nothing_left(&ready, how, &spans));
        }
        let mut documents = Documents {
            train: Vec::new(),
            val: vec![portion.with_template(ready.templated)],
            stages: Vec::new(),
            passes: None,
            how,
            bytes_per_token: None,
        };
        documents.bytes_per_token = bytes::per_prediction(&documents.val, &tokenizer);
        Ok(Dataset {
            fingerprint: sha256(ready.key.as_bytes()),
            tokenizer_fingerprint: like.tokenizer_fingerprint.clone(),
            tokenizer: Arc::unwrap_or_clone(tokenizer),
            place: ready.name,
            notes,
            ends: like.ends.clone(),
            template: like.template.clone(),
            answers: OnceLock::new(),
            behind_answers,
            plain_prompts: None,
            cut_marks: Vec::new(),
            replaces_template: false,
            learning: None,
            seq_len: request.seq_len,
            splits: Splits::Documents(documents),
        })
    }
}

fn corpus(config: &DataConfig, request: Request<'_>) -> Result<Dataset, DataError> {
    let mut corpus = Corpus::prepare(config, request.tokenizer, request.seq_len)?;
    let train_on = match config.train_on {
        TrainOn::Auto => request.train_on,
        said => said,
    };
    let note = unanswered(&corpus.place, train_on);
    corpus.notes.extend(note);
    Ok(Dataset {
        tokenizer_fingerprint: of_tokenizer(&corpus.tokenizer),
        tokenizer: corpus.tokenizer.clone(),
        fingerprint: corpus.fingerprint.clone(),
        place: corpus.place.clone(),
        notes: corpus.notes.clone(),
        ends: end_tokens(&corpus.tokenizer, None),
        template: None,
        answers: OnceLock::new(),
        behind_answers: None,
        plain_prompts: None,
        cut_marks: Vec::new(),
        replaces_template: false,
        learning: None,
        seq_len: request.seq_len,
        splits: Splits::Corpus(Box::new(corpus)),
    })
}

/// What a method that learns answers makes of a plain text.
fn unanswered(name: &str, train_on: TrainOn) -> Option<String> {
    (train_on != TrainOn::All).then(|| {
        format!("{name}: plain text has no prompts and answers: every token of it is supervised")
    })
}

/// How rows are read for the method of the request.
fn read(request: &Request<'_>) -> ReadContext {
    ReadContext {
        unit: Some(request.unit),
        ..request.surroundings.read.clone()
    }
}

/// All sources in tokens.
struct Tokens {
    tokenizer: Arc<Tokenizer>,
    /// The tokens that end a turn or a text.
    ends: Vec<u32>,
    /// As [`Dataset`] has it.
    template: Option<Template>,
    /// The tokens that the template puts after an answer.
    behind_answers: Option<String>,
    /// As [`Dataset`] has them.
    plain_prompts: Option<FormatId>,
    cut_marks: Vec<SplitMarker>,
    replaces_template: bool,
    train: Vec<Ready>,
    val: Vec<Ready>,
    /// Notices.
    notes: Vec<String>,
}

fn tokens(config: &DataConfig, request: &mut Request<'_>) -> Result<Tokens, DataError> {
    let (sources, val_sources) = (config.all_sources(), config.val_source());
    let cache = config.cache_folder(request.surroundings.cache.as_deref());
    let read = read(request);
    let every: Vec<_> = sources.iter().chain(&val_sources).cloned().collect();
    let (tokenizer, template) = match request.tokenizer.take() {
        Some(tokenizer) => {
            let template = vocabulary::template(config, &tokenizer)?;
            (tokenizer, template)
        }
        None => vocabulary::tokenizer(config, &every, &read, cache.as_deref())?,
    };
    let tokenizer = Arc::new(tokenizer);
    let ends = end_tokens(&tokenizer, template.as_ref());
    let mut silent = |_: &Progress| {};
    let mut work = Tokenizing {
        config,
        tokenizer: tokenizer.clone(),
        template: template.clone(),
        train_on: match config.train_on {
            TrainOn::Auto => request.train_on,
            said => said,
        },
        unit: request.unit,
        read,
        cache,
        progress: match &mut request.progress {
            Some(progress) => &mut **progress,
            None => &mut silent,
        },
        notes: Vec::new(),
    };
    let train: Vec<Ready> = sources
        .iter()
        .map(|s| work.source(s))
        .collect::<Result<_, _>>()?;
    let val = val_sources
        .iter()
        .map(|s| work.source(s))
        .collect::<Result<_, _>>()?;
    let notes = work.notes;
    // What conversations were written in goes with the model.
    let templated = train.iter().any(|source| source.templated);
    let plain_prompts = train.iter().find_map(|source| source.plain_prompts);
    let behind_answers = template.as_ref().map(Template::answer_suffix);
    let supervised_in = template.filter(|_| templated);
    // One that is trained for the run has the markers of its template, or none by its settings.
    let of_file = matches!(config.tokenizer, TokenizerConfig::File(_));
    let brought = supervised_in.as_ref().filter(|_| of_file);
    let replaces_template = brought.is_some_and(|template| template.replaces_that_of(&tokenizer));
    let cut_marks = brought.map_or_else(Vec::new, |template| template.cut_marks(&tokenizer));
    let tokenizer = match &supervised_in {
        Some(template) => Arc::new(Arc::unwrap_or_clone(tokenizer).with_template(template)),
        None => tokenizer,
    };
    Ok(Tokens {
        tokenizer,
        ends,
        template: supervised_in,
        behind_answers,
        plain_prompts,
        cut_marks,
        replaces_template,
        train,
        val,
        notes,
    })
}

fn layout(
    config: &DataConfig,
    train: &[Ready],
    request: &Request<'_>,
) -> Result<Layouting, DataError> {
    let conversations = train.iter().any(|source| source.conversations);
    let packing = match (request.unit, conversations) {
        (Unit::Text, true) => Packing::Packed,
        (Unit::Text, false) => Packing::Stream,
        _ => Packing::Padded,
    };
    let how = Layouting {
        packing: config.packing.or(packing),
        too_long: too_long(config, request.unit, conversations),
        order: config.order,
        seq_len: request.seq_len,
        unit: request.unit,
    };
    let of_answers = matches!(how.unit, Unit::Pair | Unit::Ranked | Unit::Judged);
    if of_answers && how.packing != Packing::Padded {
        return Err(DataError::source(
            "data.packing",
            "pairs and judged answers are placed one sequence per row",
            "remove data.packing, or set it to padded",
        ));
    }
    if how.unit == Unit::Prompt && (how.packing, how.too_long) != (Packing::Padded, TooLong::Drop) {
        return Err(DataError::source(
            "data.packing, data.too_long",
            "prompts are kept separate and whole; too long ones are dropped",
            "remove both",
        ));
    }
    if of_answers && how.too_long == TooLong::Split {
        return Err(DataError::source(
            "data.too_long",
            "the parts of an answer cannot be judged separately",
            "remove data.too_long, or set it to truncate, truncate_start or drop",
        ));
    }
    Ok(how)
}

/// What becomes of long documents: as the spec says, or as suits them. Packing is one for all sources of a mix, and this
/// is each source's own: a text beside conversations is still split.
fn too_long(config: &DataConfig, unit: Unit, conversations: bool) -> TooLong {
    config.too_long.or(match (unit, conversations) {
        (Unit::Pair | Unit::Judged, _) | (Unit::Text, true) => TooLong::Truncate,
        (Unit::Prompt | Unit::Ranked, _) => TooLong::Drop,
        (Unit::Text, false) => TooLong::Split,
    })
}

/// Splits every source and lays its documents into rows.
fn build_splits(
    config: &DataConfig,
    train: &[Ready],
    val: &[Ready],
    how: Layouting,
    notes: &mut Vec<String>,
) -> Result<(Documents, TrainingCounts), DataError> {
    let mut splits = SplitBuilder {
        config,
        how,
        divides: val.is_empty() && config.val_share() != Some(0.0),
        counted: held_rows(config, train)?,
        is_mix: train.len() > 1,
        documents: Documents {
            train: Vec::new(),
            val: Vec::new(),
            stages: stages(config, train),
            passes: None,
            how,
            bytes_per_token: None,
        },
        learning: TrainingCounts::default(),
        tried: Vec::new(),
        notes,
    };
    for (at, source) in train.iter().enumerate() {
        splits.add_train(at, source)?;
    }
    for source in val {
        splits.add_val(source);
    }
    let SplitBuilder {
        mut documents,
        learning,
        tried,
        notes,
        ..
    } = splits;
    if config.mix == Mix::Concatenate {
        documents.concatenate();
    }
    if documents.val_rows() == 0 {
        if let ([only], [], false) = (train, val, how.packing == Packing::Stream)
            && only.store.documents() as usize <= only.store.documents_of_row()
        {
            return Err(one_row(&only.name));
        }
        return Err(no_validation(&tried, config.val_rows.is_some()));
    }
    if how.packing == Packing::Packed {
        let filled = 100.0 * documents.filled();
        notes.push(format!(
            "rows are {filled:.1} % full; the rest is padding, which is masked"
        ));
    }
    Ok((documents, learning))
}

/// The splits, source by source.
struct SplitBuilder<'a> {
    config: &'a DataConfig,
    how: Layouting,
    /// Part of the training sources is held out.
    divides: bool,
    /// Rows to hold out of each source, where the spec counts them.
    counted: Option<Vec<u64>>,
    /// There are several training sources.
    is_mix: bool,
    documents: Documents,
    learning: TrainingCounts,
    /// What was held out, for the error if it fills no row.
    tried: Vec<SourceSpans>,
    notes: &'a mut Vec<String>,
}

impl SplitBuilder<'_> {
    fn how_of(&self, source: &Ready) -> Layouting {
        Layouting {
            too_long: too_long(self.config, self.how.unit, source.conversations),
            ..self.how
        }
    }

    /// Adds training source `at`, and what is held out of it.
    fn add_train(&mut self, at: usize, source: &Ready) -> Result<(), DataError> {
        let how = self.how_of(source);
        let (kept, held) = self.divide(at, source, how);
        let (portion, account) = Portion::new(&source.name, &source.store, &kept, how);
        count(&mut self.learning, source, &portion, &account);
        let unit = how.unit;
        let texts = kept.chunks(unit.documents()).flat_map(|example| {
            let sequences = unit.sequences().min(example.len());
            example[..sequences].iter()
        });
        let longest = texts.map(|span| needed(&source.store, *span)).max();
        self.learning.longest = self.learning.longest.max(longest.unwrap_or(0));
        self.notes
            .extend(account.notes(&source.name, portion.documents, how.seq_len));
        if portion.rows() == 0 {
            return Err(nothing_left(source, how, &kept));
        }
        self.documents
            .train
            .push(portion.with_template(source.templated));
        // Of a small source beside large ones no row may be counted.
        if self.divides && (self.counted.is_none() || !held.is_empty()) {
            let (portion, _) = Portion::new(&source.name, &source.store, &held, how);
            let portion = portion.with_template(source.templated);
            self.documents.val.push(portion);
            self.tried.push(SourceSpans::new(how, source, held));
        }
        Ok(())
    }

    /// What of a source is trained on and what is held out, with a note on it.
    fn divide(&mut self, at: usize, source: &Ready, how: Layouting) -> (Vec<Span>, Vec<Span>) {
        let (config, row) = (self.config, how.seq_len as u64 + 1);
        let row = (how.packing == Packing::Stream).then_some(row);
        let Split {
            train: kept,
            val: held,
            is_cut,
        } = match &self.counted {
            Some(rows) => hold_out::split_rows(&source.store, rows[at]),
            None if self.divides => hold_out::split(&source.store, config.val_fraction, row),
            None => hold_out::split(&source.store, 0.0, row),
        };
        if self.is_mix && fills_no_row(&held, row) {
            let note = not_held_out(config, source, &held, how.seq_len);
            self.notes.push(note);
            self.tried.push(SourceSpans::new(how, source, held));
            return (source.store.spans().collect(), Vec::new());
        }
        if self.divides {
            let size = source.store.documents_of_row();
            let parts = [kept.len(), held.len()].map(|spans| (spans / size) as u64);
            self.notes.push(divided(source, parts, is_cut));
        }
        (kept, held)
    }

    /// Adds a source that is validated on as a whole.
    fn add_val(&mut self, source: &Ready) {
        let spans: Vec<Span> = source.store.spans().collect();
        let how = self.how_of(source);
        let (portion, account) = Portion::new(&source.name, &source.store, &spans, how);
        self.notes
            .extend(account.notes(&source.name, portion.documents, how.seq_len));
        let portion = portion.with_template(source.templated);
        self.documents.val.push(portion);
        self.tried.push(SourceSpans::new(how, source, spans));
    }
}

/// Adds what is learned from a source, and what is lost of it.
fn count(learning: &mut TrainingCounts, source: &Ready, portion: &Portion, account: &Account) {
    learning.documents += portion.documents;
    learning.nothing_supervised += account.nothing_supervised;
    learning.cut_off += account.cut_off;
    learning.too_long += account.split + account.truncated + account.dropped + account.cut_off;
    learning.lost_tokens += account.lost_tokens;
    let tally = source.store.tally();
    learning.without_tools += tally.without_tools;
    learning.without_thoughts += tally.without_thoughts;
    learning.answers += tally.answers;
    learning.empty_calls += tally.empty_calls;
    learning.rows += tally.rows - tally.skipped;
    learning.empty_answers += tally.rendered.empty_answers;
    if account.lost_tokens + account.cut_off > 0 {
        learning.losses.push(Loss {
            source: source.name.clone(),
            conversations: source.conversations,
            documents: portion.documents,
            cut: account.truncated + account.dropped + account.cut_off,
            tokens: account.lost_tokens,
        });
    }
}

/// Shares over the run: the curriculum, then the sources' own weights.
fn stages(config: &DataConfig, train: &[Ready]) -> Vec<Wanted> {
    let said = config.curriculum.iter().map(|stage| Wanted {
        until_tokens: Some(stage.until_tokens),
        weights: stage.weights.clone(),
    });
    let last = Wanted {
        until_tokens: None,
        weights: train.iter().map(|source| source.weight).collect(),
    };
    said.chain([last]).collect()
}

/// Of a tokenizer.json, and of what the files beside it say otherwise.
fn of_tokenizer(tokenizer: &Tokenizer) -> String {
    let beside = tokenizer.sidecar_note().unwrap_or_default();
    sha256([tokenizer.to_json(), &beside].concat().as_bytes())
}

/// Everything that decides on the batches besides the seed and the batch size.
fn fingerprint(config: &DataConfig, train: &[Ready], val: &[Ready], how: Layouting) -> String {
    let keys: Vec<&str> = train.iter().chain(val).map(|source| &*source.key).collect();
    let stages = stages(config, train);
    // What is as it always was adds nothing: fingerprints of older runs stay the same.
    let word = |holds: bool, word: &'static str| if holds { word } else { "" };
    let held_out = val.is_empty();
    let mix = word(config.mix == Mix::Concatenate, " concatenate");
    // `whole`: few examples were once divided otherwise, and another part of them is held out now. `cut`: of a few texts, far more than
    // the share was once held out.
    let share = config.val_fraction;
    let row = (how.packing == Packing::Stream).then_some(how.seq_len as u64 + 1);
    let few = |s: &&Ready| hold_out::few(&s.store, share);
    let cut = |s: &Ready| hold_out::split(&s.store, share, row).is_cut;
    let whole = match held_out && train.iter().filter(few).any(cut) {
        true => " cut",
        false => word(held_out && train.iter().any(|s| few(&s)), " whole"),
    };
    // The answers of a pair that are judged one by one were once held out apart.
    let apart = |s: &Ready| s.store.examples_of_row > 1;
    let pairs = word(held_out && train.iter().any(apart), " pairs");
    // Texts beside conversations were once cut as those are.
    let otherwise = |s: &Ready| too_long(config, how.unit, s.conversations) != how.too_long;
    let each = word(train.iter().chain(val).any(otherwise), " each");
    // Held-out rows that fill no window were once in neither split.
    let rows = held_rows(config, train).ok().flatten();
    let short = |(at, s): (usize, &Ready)| {
        let split = match &rows {
            Some(rows) => hold_out::split_rows(&s.store, rows[at]),
            None => hold_out::split(&s.store, share, row),
        };
        fills_no_row(&split.val, row)
    };
    let several = held_out && train.len() > 1;
    let back = word(several && train.iter().enumerate().any(short), " back");
    // A count takes the place of the share.
    let counted = config.val_rows.map(|rows| format!(" {rows} rows"));
    let counted = counted.unwrap_or_default();
    sha256(
        format!("{keys:?} {how:?} {stages:?} {share}{mix}{whole}{pairs}{each}{counted}{back}")
            .as_bytes(),
    )
}

fn place(train: &[Ready]) -> String {
    let names: Vec<&str> = train.iter().map(|source| &*source.name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests;
