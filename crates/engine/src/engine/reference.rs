//! `reference: precomputed`: log-probabilities of every sequence under the starting weights. Computing them takes a full pass over the
//! data, so it can be stopped, reports progress, and is stored in the run's folder for a resume.

use super::emit::Port;
use super::roles::{Models, Reference, Table};
use super::{EngineError, EngineJob};
use crate::base::digest::hex;
use crate::base::files::{open_plain, write_atomic};
use crate::base::human;
use crate::base::text::shown;
use crate::data::{Dataset, Origin};
use crate::methods::ReferenceChoice;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// In a run's folder.
pub const FILE: &str = "reference.json.zst";
/// How often progress is reported.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// How often what is done is kept: so much is lost by a kill.
const KEEP_EVERY: Duration = Duration::from_secs(60);
/// Bounds what is read of a damaged file; about 200 million sequences.
const MAX_BYTES: u64 = 8 << 30;
const LEVEL: i32 = 3;

/// The form in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    /// Of the data and the starting weights.
    key: String,
    /// (held out, source, start, bits of the log-probability)
    values: Vec<(bool, u32, u64, u32)>,
}

/// Gives the method of a run the reference that it needs. The policy must be as it is before the first step.
///
/// # Errors
/// A reference that this model cannot give, or [`EngineError::Stopped`]: what was computed so far is kept.
pub(super) fn attach(
    job: &EngineJob,
    port: &mut Port<'_>,
    (models, data): (&mut Models, &Dataset),
    step: u64,
) -> Result<(), EngineError> {
    let spec = &job.spec;
    let size = spec.train.micro_batch_size;
    if spec.method.needs().reference != Some(ReferenceChoice::Precomputed) {
        models.attach_reference(&*spec.method, data, size)?;
        return models.let_reference_move(spec);
    }
    let key = key(job, models, data)?;
    let path = job.run_dir.path().join(FILE);
    let mut table = read(&path, &key).unwrap_or_default();
    let (known, sequences) = (table.len(), spec.method.needs().unit.sequences());
    let examples = |table: &Table| human::grouped((table.len() / sequences) as u64);
    let all = human::grouped(data.examples());
    if table.len() as u64 >= data.examples() * sequences as u64 {
        port.note(step, format!("reference: {FILE} has all {all} examples"));
    } else {
        let begun = match known {
            0 => String::new(),
            _ => format!(", {} of which {FILE} has", examples(&table)),
        };
        let words = format!("reference: computing log-probabilities of {all} examples{begun}");
        port.note(step, words);
    }
    let keep = |table: &Table, port: &mut Port<'_>| {
        if let Err(e) = write(&path, &key, table) {
            let what = format!("{}: {e}", shown(&path));
            let hint = "the reference is computed again at a resume; make room on the disk";
            port.warn(step, "reference_not_kept", what, hint);
        }
    };
    let now = port.clock.elapsed();
    let (mut told, mut kept) = (now, now);
    models.precompute(data, size, &mut table, &mut |table| {
        let now = port.clock.elapsed();
        if now - told >= TELL_EVERY {
            told = now;
            port.note(step, format!("reference: {} of {all}", examples(table)));
        }
        let stops = port.stop_requested();
        if stops || now - kept >= KEEP_EVERY {
            kept = now;
            keep(table, port);
        }
        match stops {
            true => Err(EngineError::Stopped),
            false => Ok(()),
        }
    })?;
    if table.len() > known {
        keep(&table, port);
    }
    models.reference = Reference::Precomputed(table);
    Ok(())
}

/// A key that identifies the data and the weights.
fn key(job: &EngineJob, models: &Models, data: &Dataset) -> Result<String, EngineError> {
    let spec = &job.spec;
    let from = spec
        .train
        .from
        .as_ref()
        .map(|from| from.display().to_string());
    let parts = [
        data.fingerprint.clone(),
        data.tokenizer_fingerprint.clone(),
        spec.model.seq_len.to_string(),
        from.unwrap_or_default(),
        models.policy.base_fingerprint()?,
    ];
    let mut hash = Sha256::new();
    for part in &parts {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    Ok(hex(&hash.finalize()))
}

/// `None` where there is no file, or none of this key: it is computed again.
fn read(path: &Path, key: &str) -> Option<Table> {
    let text = zstd::Decoder::new(open_plain(path).ok()?).ok()?;
    let saved: Saved = serde_json::from_reader(text.take(MAX_BYTES)).ok()?;
    let values = saved.values.into_iter();
    let value = |(held_out, source, start, bits)| {
        let origin = Origin {
            held_out,
            source,
            start,
        };
        (origin, f32::from_bits(bits))
    };
    (saved.key == key).then(|| values.map(value).collect())
}

fn write(path: &Path, key: &str, table: &Table) -> std::io::Result<()> {
    let values = table.iter();
    let mut values: Vec<_> = values
        .map(|(at, x)| (at.held_out, at.source, at.start, x.to_bits()))
        .collect();
    values.sort_unstable();
    let saved = Saved {
        key: key.into(),
        values,
    };
    let bytes = zstd::encode_all(&*serde_json::to_vec(&saved)?, LEVEL)?;
    write_atomic(path, &bytes)
}
