//! Files match the manifest or the list of checksums.

use super::super::card::NAME as CARD;
use super::super::files::sha256_of;
use super::super::layout::SUMS;
use super::super::subject::Subject;
use super::Check;
use crate::base::files::read_small_text;
use crate::base::finding::Finding;
use crate::engine::checkpoint::Manifest;
use crate::engine::checkpoint::manifest::FILE as MANIFEST;

pub(super) const CHECK: Check = Check {
    id: "checksums",
    title: "Checksums",
    run,
};

const MAX_BYTES: u64 = 4 << 20;
const EDITED: &str = "it was edited after the list was written: the list no longer matches what people download";
const CHANGED: &str = "a file was truncated, damaged or edited after the list was written";

fn run(subject: &Subject) -> Vec<Finding> {
    let mut findings = Vec::new();
    if subject.entry(MANIFEST).is_some() {
        findings.push(match Manifest::verify(&subject.folder) {
            Ok(manifest) => Finding::pass(format!("{} files match {MANIFEST}", manifest.files.len())),
            Err(fault) => Finding::fail(
                fault.to_string(),
                CHANGED,
                crate::engine::checkpoint::Fault::HINT,
            ),
        });
    }
    if subject.entry(SUMS).is_some() {
        findings.extend(sums(subject));
    }
    if findings.is_empty() {
        findings.push(Finding::not_applicable(format!(
            "there is no list of checksums; --to DIR writes {SUMS}"
        )));
    }
    findings
}

fn sums(subject: &Subject) -> Vec<Finding> {
    let fail = |what: String, place: String| {
        let fix = format!(
            "download the file again; if the change is yours, delete {SUMS}: llmtui release FOLDER --to DIR writes a new one"
        );
        Finding::fail(what, CHANGED, fix).at(place)
    };
    let text = match read_small_text(&subject.folder.join(SUMS), MAX_BYTES) {
        Ok(text) => text,
        Err(error) => return vec![fail(error.to_string(), SUMS.into())],
    };
    let (mut findings, mut n) = (Vec::new(), 0);
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let place = format!("{SUMS}:{}", at + 1);
        // As sha256sum writes it: two blanks, or a blank and a star.
        let Some((sum, name)) = line.split_once(' ') else {
            findings.push(fail("not a checksum and a name".into(), place));
            continue;
        };
        let name = name.strip_prefix([' ', '*']).unwrap_or(name);
        let Some(file) = subject.entry(name).filter(|file| file.can_be_read()) else {
            findings.push(fail(format!("{name} is not there"), place));
            continue;
        };
        match sha256_of(&subject.folder.join(&file.name)) {
            Ok((found, _)) if found.eq_ignore_ascii_case(sum) => n += 1,
            // A card is there to be edited, and loads nothing.
            Ok(_) if name == CARD => {
                let what = format!("{name} does not match its SHA-256");
                let fix = "llmtui release FOLDER --to DIR writes a list without it";
                findings.push(Finding::warn(what, EDITED, fix).at(place));
            }
            Ok(_) => findings.push(fail(format!("{name} does not match its SHA-256"), place)),
            Err(error) => findings.push(fail(format!("{name}: {error}"), place)),
        }
    }
    if findings.is_empty() {
        findings.push(Finding::pass(format!("{n} files match {SUMS}")));
    }
    findings
}
