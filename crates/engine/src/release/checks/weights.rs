//! Every tensor is present with the right shape, there are no others, and all values are finite. Reads all weights once,
//! piece by piece.

use super::super::subject::{Form, Subject};
use super::Check;
use crate::base::finding::Finding;
use crate::base::human;
use crate::hf::{self, safetensors::TensorFile};
use crate::models::ModelSource;
use std::path::Path;

pub(super) const CHECK: Check = Check {
    id: "weights",
    title: "Weights",
    run,
};

/// Values that are held at once.
const PIECE: usize = 1 << 20;

fn run(subject: &Subject) -> Vec<Finding> {
    let mut findings = match subject.form {
        Form::Gguf => subject.models().iter().filter_map(|path| gguf(subject, path)).collect(),
        Form::Model => folder(subject),
        Form::Adapter => Vec::new(),
    };
    let mut values = 0;
    for file in subject.files.iter().filter(|file| file.ending() == "safetensors" && file.can_be_read()) {
        match finite(&subject.folder.join(&file.name)) {
            Ok(n) => values += n,
            Err(found) => findings.push((*found).at(&file.name)),
        }
    }
    if findings.is_empty() {
        let seen = match subject.form {
            Form::Gguf => "all tensors present, all values finite".into(),
            Form::Adapter => format!("{} values, all finite", human::grouped(values)),
            Form::Model => format!(
                "all tensors present with the right shapes, none extra, all {} values finite",
                human::grouped(values)
            ),
        };
        findings.push(Finding::pass(seen));
    }
    findings
}

/// Names, shapes and types against config.json.
fn folder(subject: &Subject) -> Vec<Finding> {
    // A description that cannot be read is another check's finding.
    let checked = match hf::read_config(&subject.folder) {
        Ok(config) => hf::check_weights(&subject.folder, &config),
        Err(_) => return vec![undescribed()],
    };
    let mut findings = Vec::new();
    if let Err(error) = checked {
        findings.push(
            Finding::fail(
                error.to_string(),
                "loading fails, or fills missing tensors with random values",
                "export the model again: llmtui export CHECKPOINT --to DIR",
            )
            .at(hf::CONFIG),
        );
    }
    let two = subject.entry(hf::WEIGHTS).is_some() && subject.entry(hf::INDEX).is_some();
    if two {
        findings.push(
            Finding::warn(
                format!("both {} and {} exist", hf::WEIGHTS, hf::INDEX),
                "programs load one of them, and not all the same one",
                "delete the older one",
            )
            .at(hf::INDEX),
        );
    }
    findings
}

fn undescribed() -> Finding {
    Finding::unknown(
        "the expected tensors are unknown",
        "fix config.json first",
    )
}

/// How many values a file has.
fn finite(path: &Path) -> Result<u64, Box<Finding>> {
    let unreadable = |what: String| {
        let found = Finding::fail(what, "the file is damaged or cut", "write or download it again");
        Box::new(found)
    };
    let file = TensorFile::open(path).map_err(|e| unreadable(e.to_string()))?;
    let mut names: Vec<&str> = file.names().collect();
    names.sort_unstable();
    let (mut values, mut piece) = (0, vec![0.0; PIECE]);
    for name in names {
        let shape = file.shape(name).unwrap_or_default().to_vec();
        let len: usize = shape.iter().product();
        let mut first = 0;
        while first < len {
            let part = &mut piece[..PIECE.min(len - first)];
            file.read_part(name, &shape, first, part).map_err(|e| unreadable(e.to_string()))?;
            if let Some(at) = part.iter().position(|x| !x.is_finite()) {
                return Err(Box::new(Finding::fail(
                    format!("{name}: value {} is {}", first + at, part[at]),
                    "every output of the model is NaN: it comes from a diverged run, or is damaged",
                    "use an older checkpoint of the run, or download the model again",
                )));
            }
            first += part.len();
        }
        values += len as u64;
    }
    Ok(values)
}

/// The fault of a GGUF file; its metadata are checked elsewhere.
fn gguf(subject: &Subject, path: &Path) -> Option<Finding> {
    let place = subject.place(path);
    let ModelSource::Gguf(file) = ModelSource::open(path).ok()? else {
        return None;
    };
    // Reading them tests every value: those of f32 are copied.
    if file.weight_bytes() > subject.here.room {
        let seen = format!("{} of weights were not checked", human::bytes(file.weight_bytes()));
        let fix = format!("check it on a machine with more than {} free", human::bytes(subject.here.room));
        return Some(Finding::unknown(seen, fix).at(place));
    }
    let error = file.quantized().err()?;
    Some(
        Finding::fail(
            error.to_string(),
            "the file is damaged, or comes from a diverged run",
            "quantize the model again",
        )
        .at(place),
    )
}
