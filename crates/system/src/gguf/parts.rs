//! A model in several files, as llama.cpp's `llama-gguf-split` writes it: `NAME-00001-of-00003.gguf` and so on. The first part has
//! the model's keys, and tensors or none; each part has `split.no` (from 0), `split.count`, `split.tensors.count` (of all parts)
//! and its share of the tensors (llama.cpp, tools/gguf-split/gguf-split.cpp and src/llama-model-loader.cpp).

use super::Gguf;
use crate::base::text::{one_line, shown};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

const NO: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";
/// llama.cpp keeps the count in 16 bits.
const MAX_PARTS: u64 = u16::MAX as u64;
/// Most missing parts that an error names.
const NAMED: usize = 4;

/// One file of a model, without its weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    pub path: PathBuf,
    pub head: Gguf,
}

/// Why the files of a model cannot be read together.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", shown(.path))]
pub struct PartsError {
    /// The file that is at fault, or the one that was named where another is missing.
    pub path: PathBuf,
    pub what: String,
}

/// The name of one file of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartName {
    path: PathBuf,
    stem: String,
    /// From 1 on.
    pub number: u64,
    pub count: u64,
}

impl PartName {
    /// Reads `NAME-00002-of-00003.gguf`, as llama.cpp writes it: five digits, more only where five do not hold the number.
    pub fn of(path: &Path) -> Option<PartName> {
        let is_gguf = path.extension()?.eq_ignore_ascii_case("gguf");
        let (name, whole) = (path.file_name()?.to_str()?, path.file_stem()?.to_str()?);
        let (rest, count) = whole.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let found = PartName {
            path: path.into(),
            stem: stem.into(),
            number: number.parse().ok()?,
            count: count.parse().ok()?,
        };
        let is_one = is_gguf && name == found.name(found.number) && !stem.is_empty();
        (is_one && (1..=found.count).contains(&found.number)).then_some(found)
    }

    /// The name without number and ending.
    pub fn stem(&self) -> &str {
        &self.stem
    }

    /// The path of another part, from 1 on.
    pub fn part(&self, number: u64) -> PathBuf {
        match number == self.number {
            true => self.path.clone(),
            false => self.path.with_file_name(self.name(number)),
        }
    }

    fn name(&self, number: u64) -> String {
        let ending = self.path.extension().unwrap_or_default();
        let (stem, count) = (&self.stem, self.count);
        format!(
            "{stem}-{number:05}-of-{count:05}.{}",
            ending.to_string_lossy()
        )
    }
}

/// What the keys of a part say of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// From 1 on.
    number: u64,
    count: u64,
}

impl Place {
    /// `None` of a file that is a whole model.
    fn of(part: &Part) -> Result<Option<Place>, PartsError> {
        let keys = &part.head.metadata;
        let Some(count) = keys.u64(COUNT).filter(|count| *count > 1) else {
            return Ok(None);
        };
        if count > MAX_PARTS {
            let what = format!("{COUNT} is {count}; a model has at most {MAX_PARTS} parts");
            return Err(fault(&part.path, what));
        }
        match keys.u64(NO) {
            Some(no) if no < count => Ok(Some(Place {
                number: no + 1,
                count,
            })),
            Some(no) => Err(fault(
                &part.path,
                format!("{NO} is {no}, but {COUNT} is {count}"),
            )),
            None => Err(fault(
                &part.path,
                format!("{COUNT} is {count}, but {NO} is missing"),
            )),
        }
    }

    /// The name of the part's file, by which the others are found.
    fn name(self, path: &Path) -> Result<PartName, PartsError> {
        let Place { number, count } = self;
        let is = format!("it is part {number} of {count} of a model ({NO}, {COUNT})");
        match PartName::of(path) {
            Some(name) if (name.number, name.count) == (number, count) => Ok(name),
            Some(name) => Err(fault(
                path,
                format!(
                    "{is}, but its name says part {} of {}: it was renamed",
                    name.number, name.count
                ),
            )),
            None => Err(fault(
                path,
                format!(
                    "{is}, but its name does not end in -{number:05}-of-{count:05}.gguf, by which the other parts are found: rename it"
                ),
            )),
        }
    }
}

fn fault(path: &Path, what: String) -> PartsError {
    PartsError {
        path: path.into(),
        what: one_line(&what),
    }
}

fn open_one(path: &Path) -> Result<Part, PartsError> {
    let head = Gguf::open(path).map_err(|e| fault(path, format!("not a valid GGUF file: {e}")))?;
    Ok(Part {
        path: path.into(),
        head,
    })
}

/// Reads everything before the weights of the model that a file belongs to: of the file alone, or of all parts of the model, in order.
/// They lie in one folder; any of them may be named. The first has the model's keys.
///
/// # Errors
/// A file is invalid, parts are missing, or they are not parts of one model.
pub fn open_parts(path: &Path) -> Result<Vec<Part>, PartsError> {
    let named = open_one(path)?;
    let Some(place) = Place::of(&named)? else {
        return Ok(vec![named]);
    };
    let name = place.name(path)?;
    present(&name, 1..=place.count)?;
    let mut parts: Vec<Part> = Vec::new();
    let mut named = Some(named);
    for number in 1..=place.count {
        let part = match named.take_if(|_| number == place.number) {
            Some(named) => named,
            None => open_part(&name, number)?,
        };
        parts.push(part);
    }
    check_tensors(&parts)?;
    Ok(parts)
}

/// The same of the part with the model's keys alone.
///
/// # Errors
/// As [`open_parts`], of the named part and the first.
pub fn open_first(path: &Path) -> Result<Part, PartsError> {
    let named = open_one(path)?;
    match Place::of(&named)? {
        Some(place) if place.number > 1 => {
            let name = place.name(path)?;
            present(&name, 1..=1)?;
            open_part(&name, 1)
        }
        _ => Ok(named),
    }
}

fn open_part(name: &PartName, number: u64) -> Result<Part, PartsError> {
    let part = open_one(&name.part(number))?;
    let count = name.count;
    let says = match Place::of(&part)? {
        Some(place) if (place.number, place.count) == (number, count) => return Ok(part),
        Some(place) => format!("says that it is part {} of {}", place.number, place.count),
        None => "says that it is a whole model".into(),
    };
    let what = format!(
        "it {says} ({NO}, {COUNT}) where part {number} of {count} was expected: it is of another model, or was renamed"
    );
    Err(fault(&part.path, what))
}

/// Whether these parts lie where they are expected.
fn present(name: &PartName, numbers: RangeInclusive<u64>) -> Result<(), PartsError> {
    let count = name.count;
    let absent = |number: &u64| !name.part(*number).exists();
    let missing: Vec<u64> = numbers.filter(absent).collect();
    let Some((last, before)) = missing.split_last() else {
        return Ok(());
    };
    let list = |numbers: &[u64]| {
        let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
        numbers.join(", ")
    };
    let which = match before {
        [] => format!("part {last} of {count} is missing"),
        _ if missing.len() > NAMED => {
            let more = missing.len() - NAMED;
            let first = list(&missing[..NAMED]);
            format!("parts {first} and {more} more of {count} are missing")
        }
        _ => format!("parts {} and {last} of {count} are missing", list(before)),
    };
    let files: Vec<String> = missing
        .iter()
        .take(NAMED)
        .map(|number| name.name(*number))
        .collect();
    let folder = name
        .path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let what = format!(
        "{which}: no {} in {}; all parts of a model lie in one folder",
        files.join(", "),
        shown(folder)
    );
    Err(fault(&name.path, what))
}

/// Whether the parts hold as many tensors as they say, each once.
fn check_tensors(parts: &[Part]) -> Result<(), PartsError> {
    let declared = |part: &Part| part.head.metadata.u64(TENSORS);
    let mut said = None;
    let mut seen: BTreeMap<&str, &Part> = BTreeMap::new();
    for part in parts {
        match (said, declared(part)) {
            (Some((first, n)), Some(own)) if n != own => {
                let what = format!(
                    "{TENSORS} is {own}, but {n} in {}: parts of different models",
                    shown(first)
                );
                return Err(fault(&part.path, what));
            }
            (None, Some(own)) => said = Some((part.path.as_path(), own)),
            _ => {}
        }
        for tensor in &part.head.tensors {
            if let Some(other) = seen.insert(&tensor.name, part) {
                let what = format!(
                    "tensor {} is in {}, too: parts of different models",
                    tensor.name,
                    shown(&other.path)
                );
                return Err(fault(&part.path, what));
            }
        }
    }
    match said {
        Some((first, n)) if n != seen.len() as u64 => Err(fault(
            first,
            format!(
                "{TENSORS} is {n}, but its {} parts hold {}: a part is of another model",
                parts.len(),
                seen.len()
            ),
        )),
        _ => Ok(()),
    }
}

/// The first part of the model that a file belongs to, where it is there; any other file is its own.
pub fn first_part(path: &Path) -> PathBuf {
    let name = PartName::of(path).filter(|name| name.number > 1);
    let first = name
        .map(|name| name.part(1))
        .filter(|first| first.is_file());
    match first {
        Some(first) if is_part(path) => first,
        _ => path.into(),
    }
}

/// Whether the keys of a file say that it is one of several. A name alone is no proof: two whole models may be called like parts.
fn is_part(path: &Path) -> bool {
    Gguf::open(path).is_ok_and(|head| head.metadata.u64(COUNT) > Some(1))
}

/// The files of the model that a file belongs to, in order, up to the first that is missing; of a file that is not a part by its own
/// keys, which are read where its name is one of several, itself alone.
pub fn files_of(path: &Path) -> Vec<PathBuf> {
    match files_by_name(path) {
        named if named.len() > 1 && is_part(path) => named,
        _ => vec![path.into()],
    }
}

/// The files that may be those of the model, by their names alone, in order, up to the first that is missing: nothing is opened.
pub fn files_by_name(path: &Path) -> Vec<PathBuf> {
    let Some(name) = PartName::of(path) else {
        return vec![path.into()];
    };
    let parts = (1..=name.count).map(|number| name.part(number));
    let parts: Vec<PathBuf> = parts.take_while(|part| part.exists()).collect();
    match parts.is_empty() {
        true => vec![path.into()],
        false => parts,
    }
}

/// What the first file of a model is called, by the name of any of its files: the same for all parts of a model.
pub fn first_name(path: &Path) -> PathBuf {
    PartName::of(path).map_or_else(|| path.into(), |name| name.part(1))
}

/// Files by name, of each model one: its first part, or the first of those that are listed.
pub fn one_per_model(mut files: Vec<PathBuf>) -> Vec<PathBuf> {
    files.sort();
    let mut seen = BTreeSet::new();
    files.retain(|file| seen.insert(first_name(file)));
    files
}

#[cfg(test)]
mod tests;
