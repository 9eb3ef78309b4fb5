//! A license is named, by the hub's identifier.

use super::super::subject::{Form, Subject};
use super::Check;
use crate::base::finding::Finding;
use crate::models::ModelSource;

pub(super) const CHECK: Check = Check {
    id: "license",
    title: "License",
    run,
};

/// Identifiers that the hub knows, besides `other` (huggingface.co/docs/hub/repositories-licenses).
const KNOWN: &[&str] = &[
    "apache-2.0", "mit", "openrail", "bigscience-openrail-m", "creativeml-openrail-m", "bigscience-bloom-rail-1.0",
    "bigcode-openrail-m", "afl-3.0", "artistic-2.0", "bsl-1.0", "bsd", "bsd-2-clause", "bsd-3-clause", "bsd-3-clause-clear",
    "c-uda", "cc", "cc0-1.0", "cc-by-2.0", "cc-by-2.5", "cc-by-3.0", "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0",
    "cc-by-nc-2.0", "cc-by-nc-3.0", "cc-by-nc-4.0", "cc-by-nd-4.0", "cc-by-nc-nd-3.0", "cc-by-nc-nd-4.0", "cc-by-nc-sa-2.0",
    "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0", "cdla-sharing-1.0", "cdla-permissive-1.0", "cdla-permissive-2.0", "wtfpl",
    "ecl-2.0", "epl-1.0", "epl-2.0", "etalab-2.0", "eupl-1.1", "eupl-1.2", "agpl-3.0", "gfdl", "gpl", "gpl-2.0", "gpl-3.0",
    "lgpl", "lgpl-2.1", "lgpl-3.0", "isc", "h-research", "intel-research", "lppl-1.3c", "ms-pl", "apple-ascl",
    "apple-amlr", "mpl-2.0", "odc-by", "odbl", "openmdw-1.0", "openrail++", "osl-3.0", "postgresql", "ofl-1.1", "ncsa",
    "unlicense", "zlib", "pddl", "lgpl-lr", "deepfloyd-if-license", "fair-noncommercial-research-license", "llama2",
    "llama3", "llama3.1", "llama3.2", "llama3.3", "llama4", "grok2-community", "gemma", "unknown",
];

/// Whether the hub lists an identifier.
///
/// # Errors
/// It does not: the listed one that is written most alike, if one is.
pub fn is_listed(id: &str) -> Result<(), Option<&'static str>> {
    match id == "other" || KNOWN.contains(&id) {
        true => Ok(()),
        false => Err(crate::base::near::nearest(id, KNOWN.iter().copied())),
    }
}

fn run(subject: &Subject) -> Vec<Finding> {
    let place = format!("{}: license", super::super::card::NAME);
    let said = subject.card.as_ref().map(|card| card.words("license")).unwrap_or_default();
    let inside = in_file(subject);
    let fix = "write `license: apache-2.0` (or mit, cc-by-4.0 …) into README.md's metadata; llmtui card RUN --license ID writes it";
    let found = match &said[..] {
        [] => match inside {
            Some(inside) => Finding::warn(
                format!("the GGUF file says {inside}, but the card names no license"),
                "the hub only shows the card's license",
                fix,
            ),
            None => Finding::fail(
                "no license is named",
                "without one nobody may use the model, even if it is public",
                fix,
            ),
        },
        [one] if one == "other" => other(subject),
        [one] if one == "unknown" => Finding::warn(
            "the license is `unknown`",
            "users cannot know what they may do with the model",
            fix,
        ),
        [one] if !KNOWN.contains(&one.as_str()) => Finding::warn(
            format!("`{one}` is not a hub license identifier"),
            "the hub cannot filter by it, and users cannot look it up",
            "use an identifier of the list (lowercase: apache-2.0), or `other` with license_name and license_link",
        ),
        _ => match inside {
            Some(inside) if !said.contains(&inside) => Finding::warn(
                format!("the card says {}, the GGUF file {inside}", said.join(", ")),
                "one of the two is wrong",
                "make them match",
            ),
            _ => Finding::pass(said.join(", ")),
        },
    };
    vec![found.at(place)]
}

fn other(subject: &Subject) -> Finding {
    let named = |key| subject.card.as_ref().and_then(|card| card.get(key)).is_some();
    let file = subject.files.iter().any(|f| f.name.to_uppercase().starts_with("LICENSE"));
    match named("license_name") && (named("license_link") || file) {
        true => Finding::pass("other, with its name and text"),
        false => Finding::warn(
            "`other` without its name or its text",
            "users cannot know which license that is",
            "add license_name, and license_link or a LICENSE file",
        ),
    }
}

/// The license in a GGUF file's keys.
fn in_file(subject: &Subject) -> Option<String> {
    if subject.form != Form::Gguf {
        return None;
    }
    subject.models().iter().find_map(|path| match ModelSource::open(path).ok()? {
        ModelSource::Gguf(file) => file.metadata().str("general.license").map(String::from),
        ModelSource::Folder(_) => None,
    })
}
