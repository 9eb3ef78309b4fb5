//! The GGUF files of a hub repository: which of them a word means, and which one is taken where none is named. Decided by their names
//! and sizes in the listing; nothing is downloaded here.

use crate::base::human;
use crate::base::text::{one_line, shown};
use crate::hub::{HubError, Listing, Repo};
use crate::llama_cpp::{PartName, one_per_model, reads_format};
use std::path::{Path, PathBuf};

const ENDING: &str = ".gguf";
/// The quantizations that are taken where none is named, the first that is there: those of llama.cpp (common/download.cpp).
const USUAL: [&str; 2] = ["Q4_K_M", "Q8_0"];
/// Other programs' word for "none named".
const LATEST: &str = "latest";
/// Most files that a message lists.
const LISTED: usize = 16;
/// What may follow the number of a quantization, between underscores: Q4_K_M, IQ2_XXS, IQ4_NL, Q4_0_8_8, MXFP4_MOE.
const SUFFIXES: [&str; 12] = [
    "0", "1", "4", "8", "K", "S", "M", "L", "XS", "XXS", "XL", "NL",
];
/// Formats of llama.cpp and its forks that this build lacks; a size or a layout may follow: IQ2_XXS. Another word in a name may
/// mean anything (`q4`, `q8`), and only the file's header says what its tensors are in.
const UNREAD: [&str; 13] = [
    "IQ1",
    "IQ2",
    "IQ3",
    "IQ4_K",
    "IQ5",
    "IQ6",
    "TQ1",
    "TQ2",
    "NVFP4",
    "Q4_0_4_4",
    "Q4_0_4_8",
    "Q4_0_8_8",
    "IQ4_NL_4_4",
];
const FLOATS: [&str; 5] = ["BF16", "F16", "F32", "FP16", "FP32"];
/// Precedes the quantizations that Unsloth chooses by layer: a file of its own beside the plain one.
const DYNAMIC: &str = "UD-";
/// The names of models that draft tokens begin with these in llama.cpp.
const DRAFTS: [&str; 2] = ["mtp-", "eagle3-"];

/// The files of one model, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chosen {
    pub parts: Vec<String>,
    /// Which one was chosen, where the user named none of several.
    pub notice: Option<String>,
}

/// A model in one GGUF file, or in several.
#[derive(Debug, Clone, PartialEq)]
struct Candidate {
    /// Those that are there, in order.
    parts: Vec<String>,
    /// The first that is not.
    missing: Option<String>,
    bytes: Option<u64>,
    /// Its quantization by its name, as the name has it.
    quant: Option<String>,
}

impl Candidate {
    fn name(&self) -> &str {
        self.parts
            .first()
            .or(self.missing.as_ref())
            .map_or("", |name| name)
    }

    /// The part of its name that says which one it is: without folders, ending and number of the part.
    fn stem(&self) -> &str {
        stem(self.name())
    }

    /// Whether its name has exactly this quantization.
    fn is_in(&self, quant: &str) -> bool {
        let own = self.quant.as_deref();
        own.is_some_and(|own| own.eq_ignore_ascii_case(quant))
    }

    /// Whether this build may read its weights: whether its name says nothing else.
    fn is_read(&self) -> bool {
        self.quant.as_deref().is_none_or(is_read)
    }
}

/// What names a file; `latest` does not.
pub(super) fn named(word: Option<&str>) -> Option<&str> {
    word.filter(|word| !word.eq_ignore_ascii_case(LATEST))
}

/// Whether a file is a GGUF file by its name.
pub(super) fn is_gguf_name(name: &str) -> bool {
    let at = name.len().checked_sub(ENDING.len());
    at.and_then(|at| name.get(at..))
        .is_some_and(|end| end.eq_ignore_ascii_case(ENDING))
}

/// Whether a repository has GGUF files with models.
pub(super) fn has_models(names: &[String]) -> bool {
    names
        .iter()
        .any(|name| is_gguf_name(name) && companion(name).is_none())
}

/// The files of the model that `word` names, as `Q4_K_M` or `FILE.gguf`, or of the one that is taken without a word.
///
/// # Errors
/// There is none or more than one such file, parts of it are missing, or its name says a number format that this build does not read.
pub(super) fn choose(
    repo: &Repo,
    word: Option<&str>,
    listing: &Listing,
) -> Result<Chosen, HubError> {
    let all = Files {
        repo,
        word,
        candidates: candidates(listing),
    };
    let named = named(word);
    if all.candidates.is_empty() {
        return Err(all.none(named));
    }
    let (found, notice) = match named {
        Some(word) => (all.named(word, listing)?, None),
        None => match &all.candidates[..] {
            [only] => (only, None),
            _ => {
                let usual = all.usual()?;
                (usual, Some(all.notice(usual)))
            }
        },
    };
    all.check(found)?;
    let parts = found.parts.clone();
    Ok(Chosen { parts, notice })
}

/// Where only files in the cache are known and none is named: which one the whole repository would give is not known then.
pub(super) fn unsaid(repo: &Repo, listing: &Listing) -> HubError {
    let all = Files {
        repo,
        word: None,
        candidates: candidates(listing),
    };
    let names: Vec<String> = all.candidates.iter().map(name_of).collect();
    let whole = all.candidates.iter().find(|c| c.missing.is_none());
    let like = whole.map_or_else(|| all.say("FILE.gguf"), |c| all.say(c.name()));
    let why = listing.from_cache.as_deref().unwrap_or("it was not asked");
    all.error(
        format!(
            "which of its files is meant is not known: the hub is not available ({why}), and the cache may have only some of them ({})",
            shortened(&names)
        ),
        format!("name one, as in {like}, or go online once (unset HF_HUB_OFFLINE)"),
    )
}

/// The candidates of a repository, and what was asked for.
struct Files<'a> {
    repo: &'a Repo,
    word: Option<&'a str>,
    candidates: Vec<Candidate>,
}

impl Files<'_> {
    fn named(&self, word: &str, listing: &Listing) -> Result<&Candidate, HubError> {
        if is_gguf_name(word) {
            return self.file(word, listing);
        }
        let by = |text: fn(&Candidate) -> &str| -> Vec<&Candidate> {
            let has = |c: &&Candidate| has_word(text(c), word);
            self.candidates.iter().filter(has).collect()
        };
        let mut found = by(Candidate::stem);
        if found.is_empty() {
            found = by(Candidate::name);
        }
        // Beside UD-Q4_K_M there is a plain Q4_K_M.
        if found.len() > 1 {
            let exact = found.iter().filter(|c| c.is_in(word)).copied();
            let exact: Vec<&Candidate> = exact.collect();
            if exact.len() == 1 {
                found = exact;
            }
        }
        match found[..] {
            [only] => Ok(only),
            [] => Err(self.absent(word)),
            [first, ..] => {
                let names: Vec<String> = found.iter().map(|c| name_of(c)).collect();
                Err(self.error(
                    format!(
                        "`{}` fits {} of its files: {}",
                        one_line(word),
                        found.len(),
                        shortened(&names)
                    ),
                    format!("name the file: {}", self.say(first.name())),
                ))
            }
        }
    }

    /// By the name of a file, of several parts of any; without its folder where no other is called so.
    fn file(&self, word: &str, listing: &Listing) -> Result<&Candidate, HubError> {
        let is = |name: &str| {
            let inner = name.rsplit('/').next().unwrap_or(name);
            name.eq_ignore_ascii_case(word) || inner.eq_ignore_ascii_case(word)
        };
        let whole = |c: &&Candidate| c.parts.iter().any(|part| part == word);
        if let Some(found) = self.candidates.iter().find(whole) {
            return Ok(found);
        }
        let fits = |c: &&Candidate| c.parts.iter().any(|part| is(part));
        let found: Vec<&Candidate> = self.candidates.iter().filter(fits).collect();
        match found[..] {
            [only] => Ok(only),
            [] => {
                let other = listing.files.iter().find(|file| is(&file.name));
                match other.and_then(|file| companion(&file.name)) {
                    Some(what) => Err(self.error(
                        format!("{} is no model: {what}", one_line(word)),
                        self.others(),
                    )),
                    None => Err(self.absent(word)),
                }
            }
            [first, ..] => Err(self.error(
                format!("{} files of it are called {}", found.len(), one_line(word)),
                format!("name it with its folder: {}", self.say(first.name())),
            )),
        }
    }

    /// Where none is named: the quantization that others take, too.
    fn usual(&self) -> Result<&Candidate, HubError> {
        let of = |quant: &&str| -> Vec<&Candidate> {
            let is = |c: &&Candidate| c.is_in(quant);
            self.candidates.iter().filter(is).collect()
        };
        let found = USUAL.iter().map(of).find(|found| !found.is_empty());
        match found.unwrap_or_default()[..] {
            [only] if only.is_read() && only.missing.is_none() => Ok(only),
            _ => Err(self.error(
                format!(
                    "it has {} GGUF files and nothing else: choose one",
                    self.candidates.len()
                ),
                self.others(),
            )),
        }
    }

    /// Whether it can be had and read.
    fn check(&self, found: &Candidate) -> Result<(), HubError> {
        if let Some(missing) = &found.missing {
            return Err(self.error(
                format!("it has no {}, a part of the model", one_line(missing)),
                "the repository is not complete: inform its owner, or take another file".into(),
            ));
        }
        // A name may be wrong, and whoever says all of it wants this file.
        let is_named = self.word.is_some_and(is_gguf_name);
        match &found.quant {
            Some(quant) if !is_named && !is_read(quant) => Err(self.error(
                format!(
                    "{} is in {}, which this build does not read",
                    name_of(found),
                    one_line(quant)
                ),
                format!(
                    "{}; if its name is wrong, {} takes it",
                    self.others(),
                    self.say(found.name())
                ),
            )),
            _ => Ok(()),
        }
    }

    fn absent(&self, word: &str) -> HubError {
        let what = format!("it has no GGUF file `{}`", one_line(word));
        // `org/name:Q4_K_M@v1`
        match word.split_once('@') {
            Some((file, revision)) => {
                let word = format!("{}@{revision}:{file}", self.bare_id());
                self.error(
                    what,
                    format!("the revision goes first: {}", one_line(&word)),
                )
            }
            None => self.error(what, self.others()),
        }
    }

    /// There is no GGUF file with a model.
    fn none(&self, word: Option<&str>) -> HubError {
        let what = match word {
            Some(word) => format!("it has no GGUF files, so none that is `{}`", one_line(word)),
            None => "it has no GGUF files with a model".into(),
        };
        let whole = match self.word {
            Some(_) => format!("{} alone is the whole model, if it has one", self.id()),
            None => "name another repository".into(),
        };
        self.error(what, whole)
    }

    /// The files that can be named, with their sizes, and those that cannot be read.
    fn others(&self) -> String {
        let (read, unread): (Vec<_>, Vec<_>) = self.candidates.iter().partition(|c| c.is_read());
        let listed = |c: &&Candidate| {
            let size = c
                .bytes
                .map_or(String::new(), |n| format!(" ({})", human::bytes(n)));
            format!("{}{size}", self.word_of(c))
        };
        let names: Vec<String> = read.iter().map(listed).collect();
        let unread: Vec<String> = unread.iter().map(|c| self.word_of(c)).collect();
        let unread = shortened(&unread);
        match &read[..] {
            [] => format!(
                "name another repository: none of its files is in a format that this build reads ({unread})"
            ),
            [first, ..] => {
                let like = self.say(&self.word_of(first));
                let others = match unread.as_str() {
                    "" => String::new(),
                    unread => format!("; not read by this build: {unread}"),
                };
                format!(
                    "add one of these, as in {like}: {}{others}",
                    shortened(&names)
                )
            }
        }
    }

    /// The shortest word that names it alone.
    fn word_of(&self, candidate: &Candidate) -> String {
        let alone = |word: &&String| {
            let has = |c: &&Candidate| has_word(c.stem(), word);
            let mut others = self.candidates.iter().filter(has);
            others.all(|other| other == candidate)
        };
        let quant = candidate.quant.as_ref().filter(alone).cloned();
        one_line(&quant.unwrap_or_else(|| candidate.name().to_string()))
    }

    fn notice(&self, chosen: &Candidate) -> String {
        let size = chosen
            .bytes
            .map_or(String::new(), |n| format!(", {}", human::bytes(n)));
        let others = self
            .candidates
            .iter()
            .filter(|c| *c != chosen && c.is_read());
        let others: Vec<String> = others.map(|c| self.word_of(c)).collect();
        let others = match &others[..] {
            [] => String::new(),
            [first, ..] => format!(
                "; {} takes another: {}",
                self.say(first),
                shortened(&others)
            ),
        };
        format!(
            "{}: {}{size}, one of its {} GGUF files{others}",
            self.id(),
            name_of(chosen),
            self.candidates.len()
        )
    }

    /// The repository as it is typed.
    fn bare_id(&self) -> String {
        match self.repo.id.contains('/') {
            true => self.repo.id.clone(),
            false => format!("hf:{}", self.repo.id),
        }
    }

    /// The same with its revision.
    fn id(&self) -> String {
        let id = self.bare_id();
        match self.repo.revision.as_str() {
            "main" => id,
            revision => format!("{id}@{}", one_line(revision)),
        }
    }

    /// The repository with a word behind it, as it is typed.
    fn say(&self, word: &str) -> String {
        format!("{}:{}", self.id(), one_line(word))
    }

    fn error(&self, what: String, fix: String) -> HubError {
        HubError::Choice {
            repo: self.repo.id.clone(),
            what,
            fix,
        }
    }
}

/// All models in GGUF files, by name.
fn candidates(listing: &Listing) -> Vec<Candidate> {
    let names = || listing.files.iter().map(|file| file.name.as_str());
    let models = names().filter(|name| is_gguf_name(name) && companion(name).is_none());
    let models = one_per_model(models.map(PathBuf::from).collect());
    models.iter().map(|name| candidate(name, listing)).collect()
}

fn candidate(name: &Path, listing: &Listing) -> Candidate {
    let file = |name: &str| listing.files.iter().find(|file| file.name == name);
    let word = |path: PathBuf| path.to_string_lossy().into_owned();
    let wanted: Box<dyn Iterator<Item = String>> = match PartName::of(name) {
        Some(part) => Box::new((1..=part.count).map(move |number| word(part.part(number)))),
        None => Box::new(std::iter::once(word(name.into()))),
    };
    let (mut parts, mut bytes, mut missing) = (Vec::new(), Some(0_u64), None);
    // A count is anything: the first that is missing ends it.
    for name in wanted {
        let Some(file) = file(&name) else {
            missing = Some(name);
            break;
        };
        let sum = bytes.zip(file.size);
        bytes = sum.map(|(sum, size)| sum.saturating_add(size));
        parts.push(name);
    }
    let quant = quant_in(stem(&name.to_string_lossy())).map(String::from);
    Candidate {
        parts,
        missing,
        bytes,
        quant,
    }
}

/// For messages, with how many parts there are.
fn name_of(candidate: &Candidate) -> String {
    let name = shown(Path::new(candidate.name()));
    match candidate.parts.len() {
        0 | 1 => name,
        n => format!("{name} (part 1 of {n})"),
    }
}

/// What a GGUF file holds that is not a model of its own; `None` of a model.
fn companion(name: &str) -> Option<&'static str> {
    let inner = name.rsplit('/').next().unwrap_or(name).to_lowercase();
    if inner.contains("mmproj") {
        return Some("it projects images or sound into the embeddings of a model");
    }
    if DRAFTS.iter().any(|draft| inner.starts_with(draft)) {
        return Some("it drafts tokens for another model");
    }
    let is_matrix = inner.contains("imatrix") && quant_in(stem(&inner)).is_none();
    is_matrix.then_some("it holds statistics for quantizing one")
}

fn stem(name: &str) -> &str {
    let inner = name.rsplit('/').next().unwrap_or(name);
    let own = match is_gguf_name(inner) {
        true => &inner[..inner.len() - ENDING.len()],
        false => inner,
    };
    // `-00001-of-00003`
    match PartName::of(Path::new(inner)) {
        Some(part) => &own[..part.stem().len()],
        None => own,
    }
}

/// Whether a text has a word: no letter or digit before it, and behind it neither these nor `_`, so that Q4_K is neither in Q4_K_M nor
/// in IQ4_K. F16 and FP16 are one word.
fn has_word(text: &str, word: &str) -> bool {
    let upper = word.to_uppercase();
    let also = match upper.as_str() {
        "F16" => "FP16",
        "FP16" => "F16",
        "F32" => "FP32",
        "FP32" => "F32",
        _ => "",
    };
    let text = text.to_uppercase();
    let has = |word: &str| {
        let mut places = text.match_indices(word);
        !word.is_empty() && places.any(|(at, _)| is_whole(&text, at, at + word.len()))
    };
    has(&upper) || has(also)
}

fn is_whole(text: &str, from: usize, to: usize) -> bool {
    let before = text[..from].chars().next_back();
    let after = text[to..].chars().next();
    !before.is_some_and(char::is_alphanumeric)
        && !after.is_some_and(|c| c.is_alphanumeric() || c == '_')
}

/// The quantization in a name: the last word that looks like one.
fn quant_in(text: &str) -> Option<&str> {
    let whole = |from: usize| {
        let length = quant_at(&text[from..])?;
        is_whole(text, from, from + length).then_some((from, from + length))
    };
    let starts = text.char_indices().map(|(at, _)| at);
    let (from, to) = starts.filter_map(whole).next_back()?;
    let dynamic = from.checked_sub(DYNAMIC.len()).filter(|at| {
        let before = text.get(*at..from);
        before.is_some_and(|before| before.eq_ignore_ascii_case(DYNAMIC)) && is_whole(text, *at, to)
    });
    text.get(dynamic.unwrap_or(from)..to)
}

/// The length of a quantization at the beginning of a text: Q8_0, Q4_K_M, IQ3_XXS, TQ1_0, MXFP4, BF16.
fn quant_at(text: &str) -> Option<usize> {
    let starts = |word: &str| {
        let begin = text.get(..word.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(word))
    };
    if let Some(float) = FLOATS.iter().find(|float| starts(float)) {
        return Some(float.len());
    }
    if starts("MXFP4_MOE") {
        return Some("MXFP4_MOE".len());
    }
    let letters = ["IQ", "TQ", "Q", "MXFP", "NVFP"];
    let letters = letters.iter().find(|letters| starts(letters))?.len();
    let digits = text[letters..]
        .bytes()
        .take_while(u8::is_ascii_digit)
        .count();
    let mut end = letters + digits;
    while digits > 0
        && let Some(rest) = text[end..].strip_prefix('_')
    {
        let length = rest.bytes().take_while(u8::is_ascii_alphanumeric).count();
        let suffix = &rest[..length];
        if !SUFFIXES
            .iter()
            .any(|known| known.eq_ignore_ascii_case(suffix))
        {
            break;
        }
        end += 1 + length;
    }
    (digits > 0).then_some(end)
}

/// Whether this build may read weights of a quantization: all but those that it is known not to read.
fn is_read(quant: &str) -> bool {
    let upper = quant.to_uppercase();
    let plain = upper.strip_prefix(DYNAMIC).unwrap_or(&upper);
    let is_unread = UNREAD.iter().any(|unread| {
        let rest = plain.strip_prefix(*unread);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    });
    reads_format(plain) || !is_unread
}

fn shortened(names: &[String]) -> String {
    let first = names[..names.len().min(LISTED)].join(", ");
    match names.len().saturating_sub(LISTED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests;
