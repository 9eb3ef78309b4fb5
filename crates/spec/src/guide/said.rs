//! What a question says of a training: the model, the method, the memory or the GPU.

use super::Trainer;
use crate::base::text::one_line;
use crate::plan::models::{self, MODELS, ReferenceModel};
use crate::plan::quantity::{parse_bytes, parse_count};
use crate::plan::request::Method;
use crate::plan::{Device, gpus};

/// A size is counted as a reference model that is so much larger or smaller at most.
const ALIKE: f64 = 1.35;
/// Words of the name of a GPU at most: `RTX 4090`, `a100 80gb pcie`.
const GPU_WORDS: usize = 3;

/// The first model of a question, with what else it says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Said {
    /// As the question has it.
    pub model: (String, &'static ReferenceModel),
    /// The way of training that it names, by its number.
    pub wanted: Option<usize>,
    /// It asks for fine-tuning.
    pub tunes: bool,
    pub method: Option<Method>,
    pub device: Option<Named>,
}

/// A device that a question names.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Named {
    pub trainer: Trainer,
    pub device: Device,
    /// As an option of `llmtui plan`, with a blank before it; empty for a processor's memory.
    pub option: String,
}

/// `None` where no model is named.
pub(super) fn read(question: &str) -> Option<Said> {
    let model = named(question).or_else(|| sized(question))?;
    let (wanted, tunes) = wish(question);
    Some(Said {
        model,
        wanted,
        tunes,
        method: method(question),
        device: device(question),
    })
}

/// Whether a question is how much a model needs: it names one, and asks whether it can be or where.
pub(super) fn asks_for_room(question: &str) -> bool {
    const ASKS: [&str; 7] = ["can", "could", "fit", "fits", "possible", "enough", "able"];
    let asks = words(question)
        .iter()
        .any(|word| ASKS.contains(&word.as_str()));
    read(question).is_some_and(|said| asks || said.device.is_some())
}

/// Lower-case words without marks around them.
fn words(question: &str) -> Vec<String> {
    question
        .split_whitespace()
        .map(|word| bare(word).to_lowercase())
        .filter(|word| !word.is_empty())
        .collect()
}

/// The method that a question names; a `reward` is one only as a reward model.
fn method(question: &str) -> Option<Method> {
    let words = words(question);
    words.iter().enumerate().find_map(|(at, word)| {
        let next = words.get(at + 1).map_or("", String::as_str);
        match word.as_str() {
            "reward" if next.starts_with("model") => Some(Method::Reward),
            "reward" => None,
            "distillation" | "distilling" => Some(Method::Distill),
            "rlhf" => Some(Method::Ppo),
            "pretraining" => Some(Method::Pretrain),
            word => Method::by_word(word),
        }
    })
}

/// The GPU or the memory that a question names; an amount of data is none.
fn device(question: &str) -> Option<Named> {
    let words = words(question);
    let has = |known: &[&str]| words.iter().any(|word| known.contains(&word.as_str()));
    let gpu = (1..=GPU_WORDS).rev().find_map(|n| {
        let mut names = words.windows(n);
        names.find_map(|name| gpus::find(&name.concat()))
    });
    if let Some(gpu) = gpu {
        return Some(Named {
            trainer: Trainer::Gpu,
            device: Device::of(gpu),
            option: format!(" --gpu {}", gpu.name),
        });
    }
    let (text, bytes) = words.iter().enumerate().find_map(|(at, word)| {
        let after = |n: usize| words.get(at + n).map_or("", String::as_str);
        let (text, next) = match after(1) {
            unit @ ("gb" | "gib" | "gigabyte" | "gigabytes") => {
                let unit = if unit == "gib" { "GiB" } else { "GB" };
                (format!("{word}{unit}"), 2)
            }
            _ => (word.to_uppercase().replace("GIB", "GiB"), 1),
        };
        let is_memory = ["GB", "GiB"].iter().any(|unit| text.ends_with(unit));
        let of_data = [
            "of", "data", "text", "texts", "corpus", "dataset", "file", "files",
        ];
        let of_memory = ["memory", "vram", "ram"].contains(&after(next + 1));
        if !is_memory || (of_data.contains(&after(next)) && !of_memory) {
            return None;
        }
        Some((text.clone(), parse_bytes(&text).ok()?))
    })?;
    let processor = has(&["ram", "cpu", "processor", "laptop"]) && !has(&["vram", "gpu", "card"]);
    Some(Named {
        trainer: match processor {
            true => Trainer::Processor,
            false => Trainer::Gpu,
        },
        device: Device::limit(&text, Some(bytes)),
        option: match processor {
            true => String::new(),
            false => format!(" --memory {text}"),
        },
    })
}

/// The way that a question names, by its number, and whether it asks for fine-tuning.
pub(super) fn wish(question: &str) -> (Option<usize>, bool) {
    let words: Vec<String> = question
        .split(|c: char| !c.is_alphanumeric())
        .map(str::to_lowercase)
        .collect();
    let any = |known: &[&str]| words.iter().any(|word| known.contains(&&**word));
    let adapts = any(&["lora", "dora", "peft", "adapter", "adapters"]);
    let packed = any(&["qlora", "nf4", "gguf", "4bit", "quantized", "quantised"])
        || words
            .windows(2)
            .any(|pair| pair[0] == "4" && pair[1].starts_with("bit"));
    let way = match (any(&["qlora"]) || (adapts && packed), adapts) {
        (true, _) => Some(2),
        (false, true) => Some(1),
        (false, false) => None,
    };
    let tuned = |word: &String| word.starts_with("finetun") || word.starts_with("tun");
    let tunes = way.is_some() || any(&["sft"]) || words.iter().any(tuned);
    (way, tunes)
}

/// Words without the marks around them.
fn bare(word: &str) -> &str {
    word.trim_matches(|c: char| !c.is_alphanumeric())
}

/// A model by its name.
fn named(question: &str) -> Option<(String, &'static ReferenceModel)> {
    question
        .split_whitespace()
        .map(bare)
        .find_map(|word| Some((one_line(word), models::find(word)?)))
}

/// A model by its size: `7B`, `500M`, `7 billion`; a number of tokens is none.
fn sized(question: &str) -> Option<(String, &'static ReferenceModel)> {
    let words: Vec<String> = question
        .split_whitespace()
        .map(|word| bare(word).to_lowercase())
        .collect();
    words.iter().enumerate().find_map(|(at, word)| {
        let next = words.get(at + 1).map_or("", String::as_str);
        let head = word.split('-').next().unwrap_or(word);
        let (text, behind) = match next {
            "billion" | "million" => (
                format!("{head}{}", &next[..1]),
                words.get(at + 2).map_or("", String::as_str),
            ),
            _ => (head.to_string(), next),
        };
        let counts = text.ends_with(['b', 'm']) && text.starts_with(|c: char| c.is_ascii_digit());
        if !counts || behind.starts_with("token") || word.contains("-token") {
            return None;
        }
        let n = parse_count(&text).ok()? as f64;
        let apart = |model: &ReferenceModel| (model.arch.n_params() as f64 / n).ln().abs();
        let dense = MODELS
            .iter()
            .filter(|model| model.arch.n_active() == model.arch.n_params());
        let nearest = dense.min_by(|a, b| apart(a).total_cmp(&apart(b)))?;
        (apart(nearest) < ALIKE.ln()).then(|| (text.to_uppercase(), nearest))
    })
}
