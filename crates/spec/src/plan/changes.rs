//! The ladder of changes that shrink a request, cheapest first; each with its savings and its cost.

use super::request::{
    AttentionKind, BaseFormat, Checkpointing, Estimator, Logits, Lora, LoraTargets, Method,
    Preflight, Request,
};
use super::scheme::{Precision, UpdateState};
use super::solve::with_seq_len;
use super::{Part, Verdict, plan, reference};
use serde::Serialize;

/// One rung.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// Stable, for scripts.
    pub id: &'static str,
    /// The change, with its numbers.
    pub what: String,
    /// Bytes saved after the rungs before it.
    pub saves_bytes: u64,
    /// Bytes needed after it.
    pub needs_bytes: u64,
    /// Its cost to the user.
    pub cost: &'static str,
    /// The command-line flag; empty if there is none.
    pub flag: String,
}

/// A sequence of changes that makes a request fit.
#[derive(Debug, Clone, PartialEq)]
pub struct Ladder {
    pub changes: Vec<Change>,
    /// False if even all changes together are not enough.
    pub fits: bool,
    /// The request after all changes.
    pub request: Request,
}

/// How a rung changes a request: description and flag, or `None` if it does not apply.
type Apply = fn(&mut Request) -> Option<(String, String)>;

struct Rung {
    id: &'static str,
    cost: &'static str,
    apply: Apply,
}

const fn rung(id: &'static str, cost: &'static str, apply: Apply) -> Rung {
    Rung { id, cost, apply }
}

const PREFLIGHT: &str = "preflight";

/// In order of cost.
const RUNGS: &[Rung] = &[
    rung(
        "micro_batch",
        "same loss: the same batch in smaller micro-batches",
        smaller_portions,
    ),
    rung("chunked_loss", "negligible", chunked_loss),
    rung("flash_attention", "none: faster and exact", flash),
    rung(
        "checkpointing",
        "about 30 % more time: activations are recomputed",
        checkpointing,
    ),
    rung(
        PREFLIGHT,
        "errors that preflight would find appear during training; `llmtui preflight` finds them on a machine with more memory",
        no_preflight,
    ),
    rung(
        "shard",
        "communication every step: 3 × the weights with ZeRO-3",
        shard,
    ),
    rung(
        "bf16",
        "small updates are lost to bf16 rounding without master weights",
        pure_bf16,
    ),
    rung(
        "optimizer_8bit",
        "8-bit moments: a little noise",
        eight_bits,
    ),
    rung("shorter", "long examples are truncated or packed", shorter),
    rung(
        "lora",
        "adapters have less capacity than full fine-tuning; enough for most tasks",
        lora,
    ),
    rung(
        "qlora",
        "about 30 % more time, slight quality loss: the base is dequantized for every matmul",
        qlora,
    ),
    rung(
        "offload",
        "two to four times slower: what is trained moves between main memory and the GPU at every step",
        offload,
    ),
];

/// The cheapest changes, in order, after which the request fits its device with its margin; empty if it already fits
/// or if the device's memory is unknown.
pub fn ladder(request: &Request) -> Ladder {
    let mut chosen = cheapest(request);
    if chosen.iter().any(|rung| rung.id == PREFLIGHT) {
        // Its peak hides what the others save: they are chosen for training, which is left without it.
        let mut training = request.clone();
        training.extras.preflight = Preflight::Off;
        chosen = with_preflight(request, &cheapest(&training));
        if fits(&climb(request, &chosen).1) {
            drop_redundant(request, &mut chosen);
        }
    }
    let (changes, request) = climb(request, &chosen);
    Ladder {
        changes,
        fits: fits(&request),
        request,
    }
}

fn fits(request: &Request) -> bool {
    matches!(plan(request).verdict(), Some(Verdict::Fits) | None)
}

fn cheapest(request: &Request) -> Vec<&'static Rung> {
    let mut chosen: Vec<&Rung> = Vec::new();
    let mut now = request.clone();
    for rung in RUNGS {
        if fits(&now) {
            break;
        }
        let mut next = now.clone();
        if (rung.apply)(&mut next).is_some() && saves(&now, &next) {
            chosen.push(rung);
            now = next;
        }
    }
    if fits(&now) {
        drop_redundant(request, &mut chosen);
    }
    chosen
}

/// The changes that training needs, with that of preflight where each of them saves something.
fn with_preflight(request: &Request, training: &[&'static Rung]) -> Vec<&'static Rung> {
    let off = RUNGS.iter().find(|rung| rung.id == PREFLIGHT);
    let at = |place: usize| {
        let (before, after) = training.split_at(place);
        [before, off.as_slice(), after].concat()
    };
    let all_save = |rungs: &Vec<&Rung>| climb(request, rungs).0.len() == rungs.len();
    let found = (0..=training.len()).map(at).find(all_save);
    found.unwrap_or_else(|| at(training.len()))
}

/// Each change by itself, needed or not: what it would save from here.
pub fn rungs(request: &Request) -> Vec<Change> {
    RUNGS
        .iter()
        .flat_map(|rung| climb(request, &[rung]).0)
        .collect()
}

/// A saving below one percent is not a rung.
fn saves(before: &Request, after: &Request) -> bool {
    let (before, after) = (plan(before).p50_bytes(), plan(after).p50_bytes());
    after < before && (before - after) * 100 >= before
}

/// A later rung may make others unnecessary; the costliest is dropped first.
fn drop_redundant(request: &Request, chosen: &mut Vec<&'static Rung>) {
    for rung in RUNGS.iter().rev() {
        let mut fewer = chosen.clone();
        fewer.retain(|it| it.id != rung.id);
        if fewer.len() < chosen.len() && fits(&climb(request, &fewer).1) {
            *chosen = fewer;
        }
    }
}

/// Applies the rungs one after another.
fn climb(request: &Request, rungs: &[&Rung]) -> (Vec<Change>, Request) {
    let mut now = request.clone();
    let mut changes = Vec::new();
    for rung in rungs {
        let before = plan(&now).p50_bytes();
        let mut next = now.clone();
        let Some((what, flag)) = (rung.apply)(&mut next) else {
            continue;
        };
        next.assume();
        let needs_bytes = plan(&next).p50_bytes();
        if needs_bytes < before {
            let saves_bytes = before - needs_bytes;
            changes.push(Change {
                id: rung.id,
                what,
                saves_bytes,
                needs_bytes,
                cost: rung.cost,
                flag,
            });
            now = next;
        }
    }
    (changes, now)
}

/// Whether training fits, the checks before it aside: those read two rows of any micro-batch.
fn training_fits(r: &Request) -> bool {
    let mut r = r.clone();
    r.extras.preflight = Preflight::Off;
    plan(&r).verdict() == Some(Verdict::Fits)
}

/// Halves the micro-batch until training fits or it is the least that the method takes; the batch per step is unchanged.
fn smaller_portions(r: &mut Request) -> Option<(String, String)> {
    let (before, ranks) = (r.micro_batch, r.n_devices.max(1));
    // Of rows that ranks cannot share evenly no smaller share keeps the batch.
    let step = r.micro_rows() * r.grad_accum;
    if !step.is_multiple_of(ranks) {
        return None;
    }
    let all = step / ranks;
    // Judged answers are compared with the others of their micro-batch.
    let least = if r.is_judged() { 2_u64 } else { 1 };
    let least = match by_ranks(r) {
        true => least.div_ceil(ranks),
        false => least,
    };
    while !training_fits(r) {
        let half = r.micro_batch.div_ceil(2).min(r.micro_batch - 1);
        let Some(part) = (least..=half).rev().find(|n| all.is_multiple_of(*n)) else {
            break;
        };
        (r.micro_batch, r.grad_accum) = (part, all / part);
        r.extras.eval_batch = r.extras.eval_batch.min(r.micro_batch);
    }
    let (now, accum) = (r.micro_batch, r.grad_accum);
    if let Some(of) = &mut r.extras.ranks {
        of.rows = of.rows.map(|_| now * ranks);
    }
    (now < before).then(|| {
        let what = match by_ranks(r) && ranks > 1 {
            true => format!("micro-batch of a rank {before} → {now}, accumulate {accum}"),
            false => format!("micro-batch {before} → {now}, accumulate {accum}"),
        };
        let flag = match has_spec(r) {
            false => format!("--batch {now} --grad-accum {accum}"),
            true => {
                // That of a spec is the total of its ranks.
                let rows = if by_ranks(r) { now * ranks } else { now };
                format!("-s train.micro_batch_size={rows} -s train.grad_accum_steps={accum}")
            }
        };
        (what, flag)
    })
}

/// Another trainer: what it can do beyond this program's engines.
fn general(r: &Request) -> Option<()> {
    (r.estimator == Estimator::General && !by_ranks(r)).then_some(())
}

/// Whether ranks of PyTorch train it on GPUs.
fn by_ranks(r: &Request) -> bool {
    r.estimator == Estimator::General && r.extras.ranks.is_some()
}

/// Whether it is changed with `-s`: options of `plan` would leave its engine.
fn has_spec(r: &Request) -> bool {
    r.estimator == Estimator::Engine || by_ranks(r)
}

fn chunked_loss(r: &mut Request) -> Option<(String, String)> {
    general(r)?;
    (r.logits == Logits::Whole).then(|| {
        r.logits = Logits::Chunked(reference::CHUNK);
        (
            "loss in chunks of 1,024 tokens".into(),
            "--logits chunked".into(),
        )
    })
}

fn flash(r: &mut Request) -> Option<(String, String)> {
    (r.attention == AttentionKind::Eager).then(|| {
        r.attention = AttentionKind::Flash;
        ("flash attention".into(), "--attention flash".into())
    })
}

fn checkpointing(r: &mut Request) -> Option<(String, String)> {
    (r.checkpointing == Checkpointing::Off).then(|| {
        r.checkpointing = Checkpointing::Full;
        let flag = match has_spec(r) {
            false => "--checkpointing full",
            true => "-s train.activation_checkpointing=full",
        };
        ("activation checkpointing".into(), flag.into())
    })
}

/// Where a copy of the model, which the checks train, takes more than training.
fn no_preflight(r: &mut Request) -> Option<(String, String)> {
    (plan(r).memory.bytes(Part::Preflight) > 0).then(|| {
        r.extras.preflight = Preflight::Off;
        (
            "no checks before step 1".into(),
            "-s preflight.enabled=false".into(),
        )
    })
}

fn shard(r: &mut Request) -> Option<(String, String)> {
    if by_ranks(r) && r.n_devices > 1 && r.zero < 3 {
        r.zero = 3;
        if let Some(ranks) = &mut r.extras.ranks {
            ranks.sharded = true;
        }
        let what = format!(
            "weights, gradients and moments sharded over {} GPUs",
            r.n_devices
        );
        return Some((what, "-s engine.torch.shard=fsdp2".into()));
    }
    general(r)?;
    if r.n_devices < 2 || r.zero >= 3 {
        return None;
    }
    let first = (r.zero + 1).max(1);
    for stage in first..=3 {
        r.zero = stage;
        if plan(r).verdict() == Some(Verdict::Fits) {
            break;
        }
    }
    Some((
        format!("ZeRO-{} over {} GPUs", r.zero, r.n_devices),
        format!("--zero {}", r.zero),
    ))
}

fn pure_bf16(r: &mut Request) -> Option<(String, String)> {
    general(r)?;
    (r.precision != Precision::Bf16 && r.lora.is_none()).then(|| {
        r.precision = Precision::Bf16;
        (
            "weights, gradients and moments in bf16".into(),
            "--precision bf16".into(),
        )
    })
}

fn eight_bits(r: &mut Request) -> Option<(String, String)> {
    if has_spec(r) && r.lora.is_none() && r.update.word() == UpdateState::AdamW.word() {
        r.update = r.update.in_8_bits(&r.param_infos())?;
        let flag = format!("-s optimizer=adamw8bit{}", r.rates_in_8_bits);
        return Some(("8-bit AdamW".into(), flag));
    }
    general(r)?;
    (r.update == UpdateState::AdamW && r.lora.is_none()).then(|| {
        r.update = UpdateState::AdamW8bit;
        ("8-bit AdamW".into(), "--optimizer adamw8bit".into())
    })
}

/// Halves the length until it fits, but not below 512 (or a quarter of a short one), nor to that of an answer without its prompt.
fn shorter(r: &mut Request) -> Option<(String, String)> {
    let before = r.seq_len;
    let answer = r.answers().map_or(0, |answers| answers.max_new_tokens);
    let floor = 512.min(before / 4).max(answer + 1);
    while r.seq_len / 2 >= floor && plan(r).verdict() != Some(Verdict::Fits) {
        *r = with_seq_len(r, r.seq_len / 2);
    }
    let now = r.seq_len;
    (now < before).then(|| {
        (
            format!("sequences of {before} → {now} tokens"),
            match has_spec(r) {
                false => format!("--seq-len {now}"),
                true => format!("-s model.seq_len={now}"),
            },
        )
    })
}

fn lora(r: &mut Request) -> Option<(String, String)> {
    // Adapters on random weights learn little, whatever another trainer starts from.
    if r.estimator == Estimator::Engine && !r.extras.has_base {
        return None;
    }
    let flag = match (has_spec(r), r.frozen.is_empty()) {
        (false, _) => "--lora-rank 8",
        (true, true) => "-s adapter.lora.rank=8",
        // Beside adapters nothing is frozen by name.
        (true, false) => "-s adapter.lora.rank=8 -s train.freeze=[]",
    };
    (r.lora.is_none() && r.method != Method::Pretrain).then(|| {
        r.frozen.clear();
        r.lora = Some(Lora {
            rank: 8,
            targets: LoraTargets::All,
        });
        ("LoRA of rank 8 on all linear layers".into(), flag.into())
    })
}

fn qlora(r: &mut Request) -> Option<(String, String)> {
    general(r)?;
    let is_whole = r.base == BaseFormat::Whole && r.extras.packed_bytes.is_none();
    (r.lora.is_some() && is_whole).then(|| {
        r.base = BaseFormat::Nf4Double;
        ("base model in 4 bits (NF4)".into(), "--quantize nf4".into())
    })
}

fn offload(r: &mut Request) -> Option<(String, String)> {
    if !by_ranks(r) {
        return None;
    }
    let several = r.n_devices > 1;
    let ranks = r.extras.ranks.as_mut().filter(|ranks| !ranks.offloaded)?;
    (ranks.sharded, ranks.offloaded) = (true, true);
    r.zero = if several { 3 } else { 0 };
    Some((
        "weights, gradients and moments in main memory".into(),
        "-s engine.torch.shard=fsdp2 -s engine.torch.offload=true".into(),
    ))
}

#[cfg(test)]
mod tests;
