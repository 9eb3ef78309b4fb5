//! A plan as text: the memory ledger with bars, then work, what fits, changes, advice.

use super::style::{BAR, Style};
use crate::base::finding::Status;
use crate::base::human::{self, percent, short};
use crate::cli::progress::adapter_words;
use crate::plan::changes::ladder;
use crate::plan::engines::EngineChoice;
use crate::plan::quantity::capacity;
use crate::plan::request::{Checkpointing, Request, RowLengths, ValueSource};
use crate::plan::scheme::Precision;
use crate::plan::solve::{ANY_BATCH, what_fits};
use crate::plan::{Estimator, Ledger, Plan, Verdict, scaling};
use crate::spec::BatchStage;

/// Columns of the label, of an amount.
const LABEL: usize = 20;
const AMOUNT: usize = 9;

/// The whole report.
pub fn render(
    plan: &Plan,
    engine: Option<&EngineChoice>,
    here: Option<&Plan>,
    style: &Style,
) -> String {
    let mut out = head(plan, style);
    out.push('\n');
    out.push_str(&memory(plan, style));
    out.push('\n');
    out.push_str(&work(plan, style));
    out.push_str(&engine.map_or_else(String::new, |choice| chosen(choice, style)));
    out.push_str(&here.map_or_else(String::new, |here| on_this_machine(here, style)));
    out.push_str(&fitting(plan, style));
    out.push_str(&changes(plan, style));
    out.push_str(&advice(plan, style));
    out
}

/// ```text
/// llama-2-7b · pretraining · all weights · AdamW, mixed · 6,738,415,616 parameters
/// ```
fn head(plan: &Plan, style: &Style) -> String {
    let r = &plan.request;
    let trained = adapter_words(r).unwrap_or_else(|| match r.has_frozen_parts() {
        true => "all weights but those of train.freeze".into(),
        false => "all weights".into(),
    });
    let engine = match r.estimator {
        Estimator::Engine => format!(
            "llmtui's engine on a CPU, matmuls in {}",
            r.precision.matmul_dtype()
        ),
        Estimator::General => format!("{}, {}", r.update.word(), r.precision.word()),
    };
    let mut out = style.line(&format!(
        "{} · {} · {trained} · {engine}",
        r.name,
        r.method.word()
    ));
    let devices = match (r.n_devices, r.zero) {
        (1, _) => r.device.name.clone(),
        (n, 0) => format!("{n} × {}", r.device.name),
        (n, zero) => format!("{n} × {}, ZeRO-{zero}", r.device.name),
    };
    let checkpointing = match (r.estimator, r.checkpointing) {
        (Estimator::General, Checkpointing::Full) => ", checkpointing".to_string(),
        (_, Checkpointing::EveryN(n)) => format!(", checkpointing every {n} blocks"),
        _ => String::new(),
    };
    let up_to = match r.extras.rows {
        RowLengths::Full | RowLengths::Packed { .. } => "",
        RowLengths::Assumed | RowLengths::Read(_) => "up to ",
    };
    out.push_str(&style.line(&format!(
        "{} · {} × {up_to}{} tokens at once{checkpointing} · {devices}",
        parameters(plan),
        r.micro_batch * r.method.sequences(),
        human::grouped(r.seq_len)
    )));
    out
}

/// How many parameters there are, how many a token meets, and how many train.
fn parameters(plan: &Plan) -> String {
    let r = &plan.request;
    let n = human::grouped(plan.params.total());
    let active = match plan.n_active < plan.params.total() {
        true => format!(" ({} active)", short(plan.n_active as f64)),
        false => String::new(),
    };
    // Adapters come on top of the model's own.
    let all: usize = r.param_infos().iter().map(|info| info.len).sum();
    let share = percent(plan.n_trainable as f64 / all.max(1) as f64, 2);
    let count = short(plan.n_trainable as f64);
    let trained = match r.lora {
        Some(_) => format!(", {count} train ({share} with the adapters)"),
        None if r.has_frozen_parts() => format!(", {count} train ({share})"),
        None => String::new(),
    };
    format!("{n} parameters{active}{trained}")
}

fn memory(plan: &Plan, style: &Style) -> String {
    let whose = match (plan.request.estimator, plan.request.n_devices) {
        (Estimator::Engine, _) => "memory",
        (_, 1) => "memory of the GPU",
        _ => "memory of each GPU",
    };
    let parts = plan.memory.parts();
    let least = parts
        .iter()
        .map(|part| part.bytes)
        .filter(|bytes| *bytes > 0);
    let unit = Unit::of(plan.p90_bytes(), least.min().unwrap_or(0));
    let gap = " ".repeat(BAR);
    let [ten, two] = unit.names;
    let mut out = style.line(&format!(
        "{whose:<LABEL$}  {gap} {ten:>AMOUNT$}  {two:>AMOUNT$}"
    ));
    let total = plan.p50_bytes().max(1);
    for part in plan.memory.parts() {
        out.push_str(&style.line(&format!(
            "  {:<LABEL$}{} {}  {}",
            part.part.title(),
            style.bar(part.bytes as f64 / total as f64),
            unit.both(part.bytes),
            part.how
        )));
    }
    let verdict = match (plan.verdict(), plan.request.device.memory) {
        (Some(Verdict::Fits), Some(limit)) => format!("fits in {}", capacity(limit)),
        (Some(Verdict::Tight), Some(limit)) => format!("tight: {} available", capacity(limit)),
        (Some(Verdict::TooLarge), Some(limit)) => format!("TOO LARGE for {}", capacity(limit)),
        _ => "no limit; set --gpu or --memory".into(),
    };
    let both = unit.both(plan.p50_bytes());
    out.push_str(&style.line(&format!("  {:<LABEL$}{gap} {both}  {verdict}", "total")));
    out.push_str(&leeway(plan, style));
    if let Some(host) = &plan.host {
        out.push_str(&main_memory(host, style));
    }
    out
}

/// How far a run may be from the total: the margin that must fit beside it, and what earlier runs took.
fn leeway(plan: &Plan, style: &Style) -> String {
    let total = plan.p50_bytes().max(1);
    let (margin, sum) = (plan.p90_bytes(), human::bytes(plan.p90_bytes()));
    let more = percent(margin as f64 / total as f64 - 1.0, 0);
    let fits = match (plan.verdict(), plan.request.device.memory) {
        (Some(Verdict::Fits), _) => ", which fits too".to_string(),
        (Some(_), Some(limit)) => format!(", more than {}", capacity(limit)),
        _ => String::new(),
    };
    let words = format!("{more} for what no estimate sees, {sum} with it{fits}");
    let mut out = style.paragraph(&format!("  {:<LABEL$}", "margin"), &words);
    if let Some(bytes) = plan.corrected_bytes() {
        let words = format!(
            "earlier runs of this size took {:.2} × the total here (median): {}",
            bytes as f64 / total as f64,
            human::bytes(bytes)
        );
        out.push_str(&style.paragraph(&format!("  {:<LABEL$}", "measured"), &words));
    }
    out
}

/// A model that is planned for another device, on this machine: whether it fits, and how long one waits.
fn on_this_machine(here: &Plan, style: &Style) -> String {
    let needs = human::bytes(here.p90_bytes());
    let there = here.request.device.memory.map(capacity);
    let fit = match (here.verdict(), there) {
        (Some(Verdict::Fits), Some(there)) => {
            format!("no GPU; fits in its main memory: {needs} with the margin, {there} free")
        }
        (Some(Verdict::Tight), Some(there)) => {
            format!("no GPU; tight in its main memory: {needs} with the margin, {there} free")
        }
        (_, Some(there)) => {
            let ladder = ladder(&here.request);
            let changes: Vec<&str> = ladder.changes.iter().map(|c| c.what.as_str()).collect();
            let would = match ladder.fits && !changes.is_empty() {
                true => format!("; would fit with {}", changes.join(", ")),
                false => String::new(),
            };
            format!(
                "no GPU; does NOT fit in its main memory: {needs} with the margin, {there} free{would}"
            )
        }
        (_, None) => format!("no GPU; takes {needs} of main memory with the margin"),
    };
    let pace = match (step_words(here), time_of(here, 1e6)) {
        (Some(step), Some(million)) => {
            let million = hours_words(million);
            format!("; on its CPU a step takes {step}, 1M tokens {million}")
        }
        _ => String::new(),
    };
    style.paragraph(
        &format!("  {:<LABEL$}", "this machine"),
        &format!("{fit}{pace}"),
    )
}

/// Hours for so many tokens.
fn time_of(plan: &Plan, tokens: f64) -> Option<f64> {
    let all = plan.request.tokens.max(1) as f64;
    plan.work.hours.map(|hours| hours / all * tokens)
}

/// `21 s for 4 × 2,048 tokens`; nothing where steps differ in their tokens.
fn step_words(plan: &Plan) -> Option<String> {
    let r = &plan.request;
    if r.method.rolls_out() || !r.batch_ramp.is_empty() {
        return None;
    }
    let rows = r.all_rows() * r.grad_accum * r.method.sequences();
    let rows = match r.estimator {
        // Each GPU has a micro-batch of its own.
        Estimator::General if r.extras.ranks.is_none() => rows * r.n_devices,
        _ => rows,
    };
    let seconds = 3600.0 * time_of(plan, rows as f64 * r.row_tokens())?;
    let took = match seconds {
        s if s < 1.0 => format!("{} ms", human::few(1e3 * s)),
        s if s < 100.0 => format!("{} s", human::few(s)),
        s => human::hours(s / 3600.0),
    };
    let up_to = match r.extras.rows {
        RowLengths::Full | RowLengths::Packed { .. } => "",
        RowLengths::Assumed | RowLengths::Read(_) => "up to ",
    };
    let length = human::grouped(r.seq_len);
    Some(format!("{took} for {rows} × {up_to}{length} tokens"))
}

/// What the engine that drives the ranks holds, largest first.
fn main_memory(host: &Ledger, style: &Style) -> String {
    let mut parts: Vec<_> = host.parts().iter().collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    let words: Vec<String> = parts
        .iter()
        .take(3)
        .map(|part| {
            format!(
                "{} {} ({})",
                part.part.title(),
                human::bytes(part.bytes),
                part.how
            )
        })
        .collect();
    let text = format!(
        "{} for the engine that drives the ranks: {}",
        human::bytes(host.total()),
        words.join(", ")
    );
    style.paragraph(&format!("  {:<LABEL$}", "main memory"), &text)
}

/// The units of a column of amounts and their decimals: the same in every row, so that decimal points align.
struct Unit {
    names: [&'static str; 2],
    scales: [f64; 2],
    decimals: usize,
}

impl Unit {
    /// The unit for amounts from `least` up to `most`: a small one shows its digits, as long as the large ones stay readable.
    fn of(most: u64, least: u64) -> Unit {
        let (names, scales) = match most {
            0..1_000_000_000 => (["MB", "MiB"], [1e6, 1_048_576.0]),
            0..10_000_000_000 if (1..5_000_000).contains(&least) => {
                (["MB", "MiB"], [1e6, 1_048_576.0])
            }
            _ => (["GB", "GiB"], [1e9, 1_073_741_824.0]),
        };
        let decimals = if most as f64 / scales[0] >= 100.0 {
            1
        } else {
            2
        };
        Unit {
            names,
            scales,
            decimals,
        }
    }

    fn both(&self, bytes: u64) -> String {
        let [ten, two] = self.scales.map(|scale| bytes as f64 / scale);
        let decimals = self.decimals;
        format!("{ten:>AMOUNT$.decimals$}  {two:>AMOUNT$.decimals$}")
    }
}

/// `micro-steps of a step: 1 until step 10, 2 until step 20, then 4`: the tokens are fewer than those of as many whole steps.
fn ramp(request: &Request) -> Option<String> {
    let stage = |stage: &BatchStage| {
        let until = human::grouped(stage.until_step);
        format!("{} until step {until}", stage.grad_accum_steps)
    };
    let stages: Vec<String> = request.batch_ramp.iter().map(stage).collect();
    (!stages.is_empty()).then(|| {
        format!(
            "micro-steps of a step: {}, then {}",
            stages.join(", "),
            request.grad_accum
        )
    })
}

fn work(plan: &Plan, style: &Style) -> String {
    let (r, work) = (&plan.request, &plan.work);
    let mut rows: Vec<(&str, String)> = Vec::new();
    let length = r.rollout_length();
    rows.extend(length.map(|length| ("steps", length.words())));
    if let (Some(length), Some(prompts)) = (length, r.prompts()) {
        rows.push(("prompts", length.passes_words(prompts)));
    }
    rows.extend(ramp(r).map(|words| ("batch ramp", words)));
    rows.push(tokens(plan));
    rows.push(("compute", work.compute_words()));
    rows.push(("time", time(plan)));
    rows.extend(step_words(plan).map(|words| ("step", words)));
    rows.extend(cost(plan).map(|words| ("cost", words)));
    if let Some(loss) = plan
        .predicted_loss
        .filter(|_| plan.params.total() > 10_000_000)
    {
        rows.push(("loss", format!("{loss:.3} predicted, {}", scaling::CAVEAT)));
    }
    rows.push((
        "disk",
        format!(
            "{} per checkpoint, {} for {} at once",
            human::bytes(plan.checkpoint_bytes),
            human::bytes(plan.disk_bytes),
            plan.n_checkpoints()
        ),
    ));
    rows.iter()
        .map(|(label, text)| style.paragraph(&format!("  {label:<LABEL$}"), text))
        .collect()
}

/// The row of the tokens: its label and their number, with how it is known.
fn tokens(plan: &Plan) -> (&'static str, String) {
    let r = &plan.request;
    let assumed = match r.tokens_source {
        ValueSource::Assumed => " (assumed)",
        _ => "",
    };
    let rows = match r.extras.rows {
        RowLengths::Full => String::new(),
        RowLengths::Packed { filled: None } => " if rows are full: they were not read".into(),
        RowLengths::Packed {
            filled: Some(share),
        } => format!(" in packed rows that are {} filled", percent(share, 1)),
        RowLengths::Assumed => format!(
            " if every row has all {} tokens: rows were not read, and shorter ones take less",
            human::grouped(r.seq_len)
        ),
        RowLengths::Read(rows) if r.method.rolls_out() => format!(
            ": rows of {:.0} on average if every answer is as long as it may be",
            rows.tokens
        ),
        RowLengths::Read(rows) => format!(
            " in rows of {:.0} on average, {:.0} with padding",
            rows.tokens, rows.places
        ),
    };
    let (label, per) = match (r.method.rolls_out(), r.is_from_scratch()) {
        // What a prompt and its answer may take; answers that end sooner are shorter.
        (true, _) => ("tokens at most", String::new()),
        (false, true) => (
            "tokens",
            format!(
                ", {:.1} per parameter; Chinchilla-optimal is 20",
                plan.tokens_per_param
            ),
        ),
        (false, false) => ("tokens", String::new()),
    };
    let n = short(r.tokens as f64);
    (label, format!("{n}{assumed}{rows}{per}"))
}

/// What the device-hours cost, or that no price is known.
fn cost(plan: &Plan) -> Option<String> {
    let (r, work) = (&plan.request, &plan.work);
    if let (Some(cost), Some(price)) = (work.cost, r.device.price_per_hour) {
        let basis = match r.device.price_source {
            Some(source) => format!("; {}: set yours with --price", source.words()),
            None => String::new(),
        };
        let dollars = money(cost);
        return Some(format!("${dollars} at ${price:.2} per device-hour{basis}"));
    }
    let unknown = work.hours.is_some() && r.estimator == Estimator::General;
    unknown.then(|| "no price known: set --price DOLLARS per device-hour".into())
}

fn time(plan: &Plan) -> String {
    let r = &plan.request;
    let (Some(hours), Some(peak)) = (plan.work.hours, r.peak_flops()) else {
        return "unknown: set --gpu, or --tflops".into();
    };
    let gpus = match r.n_devices {
        1 => String::new(),
        n => format!(" on {n} GPUs"),
    };
    // Answers that end sooner take less.
    let at_most = if r.is_timed_at_most() { "at most " } else { "" };
    let basis = match r.mfu_source {
        ValueSource::Learned => {
            return format!(
                "{at_most}{}, at the speed of earlier runs here ({}FLOP/s)",
                hours_words(hours),
                scaled_flops(peak)
            );
        }
        ValueSource::Probed => {
            return format!(
                "{at_most}{}, at the {}FLOP/s of a matmul benchmark here; real runs will refine it",
                hours_words(hours),
                scaled_flops(peak * r.mfu)
            );
        }
        ValueSource::Assumed => " (assumed)",
        ValueSource::Stated => "",
    };
    let format = match (r.estimator, r.precision) {
        (Estimator::General, Precision::Fp32) => " in f32",
        _ => "",
    };
    let writing = match plan.work.writing_share {
        Some(share) => format!("; {} of it is generation", percent(share, 0)),
        None if r.estimator == Estimator::General && r.method.rolls_out() => {
            "; generation is not counted, as the bandwidth is unknown: set --gpu".into()
        }
        None => String::new(),
    };
    let writing = match r.scores_on_cpu() {
        true => writing + "; scoring by reward models, on the CPU, is not counted",
        false => writing,
    };
    format!(
        "{at_most}{}{gpus} at {} of {}FLOP/s{format}{basis}{writing}",
        hours_words(hours),
        percent(r.mfu, 0),
        scaled_flops(peak)
    )
}

fn scaled_flops(x: f64) -> String {
    match x {
        x if x >= 1e15 => format!("{:.2} P", x / 1e15),
        x if x >= 1e12 => format!("{:.0} T", x / 1e12),
        x => format!("{:.0} G", x / 1e9),
    }
}

/// `engine    torch: one GPU here (H100 of 79.6 GiB): …; -s engine=torch`
fn chosen(choice: &EngineChoice, style: &Style) -> String {
    let set = match choice.settings.is_empty() {
        true => String::new(),
        false => format!("; {}", choice.settings),
    };
    let text = format!("{}: {}{set}", choice.engine, choice.why);
    style.paragraph(&format!("  {:<LABEL$}", "engine"), &text)
}

/// `84.3 h`, `12 min`, `5,103 h (213 days)`: a price is counted in hours.
fn hours_words(hours: f64) -> String {
    match hours {
        h if h < 100.0 => human::hours(h),
        h => format!("{} h ({})", human::grouped(h as u64), human::hours(h)),
    }
}

fn money(x: f64) -> String {
    match x {
        x if x < 100.0 => format!("{x:.2}"),
        x => human::grouped(x.round() as u64),
    }
}

fn fitting(plan: &Plan, style: &Style) -> String {
    let Some(fits) = what_fits(&plan.request) else {
        return String::new();
    };
    let mut parts = Vec::new();
    parts.push(match fits.micro_batch {
        // Answers go through the model a few at a time, however many a step has.
        Some(ANY_BATCH) if plan.request.method.rolls_out() => "any micro-batch".into(),
        Some(ANY_BATCH) => format!("micro-batch {} or more", human::grouped(ANY_BATCH)),
        Some(n) => format!("micro-batch {}", human::grouped(n)),
        None => "this does not fit at micro-batch 1".into(),
    });
    // Where nothing of this model fits, the rest is what else would.
    let or = if fits.micro_batch.is_some() {
        "or"
    } else {
        "would fit:"
    };
    if let Some(n) = fits.seq_len {
        parts.push(format!("{or} {} tokens", human::grouped(n)));
    }
    if let Some(rank) = fits.lora_rank {
        parts.push(format!("{or} rank {rank}"));
    }
    if let Some(model) = fits.model {
        parts.push(format!(
            "{or} {} ({})",
            model.name,
            short(model.params as f64)
        ));
    }
    style.paragraph(&format!("  {:<LABEL$}", "at most"), &parts.join(", "))
}

fn changes(plan: &Plan, style: &Style) -> String {
    let ladder = ladder(&plan.request);
    if ladder.changes.is_empty() {
        return String::new();
    }
    let mut out = String::from("\n");
    out.push_str(&style.line("ways to make it fit, cheapest first"));
    for (i, change) in ladder.changes.iter().enumerate() {
        out.push_str(&style.line(&format!(
            "  {} {:<42} {:>9} → {:>8}   {}",
            i + 1,
            change.what,
            format!("−{}", human::bytes(change.saves_bytes)),
            human::bytes(change.needs_bytes),
            change.flag
        )));
        out.push_str(&style.paragraph("      ", &format!("costs {}", change.cost)));
    }
    if !ladder.fits {
        let more = "Even all of these together are not enough: use more GPUs (--gpus), a larger GPU or a smaller model.";
        out.push_str(&style.paragraph("  ", more));
    }
    out
}

fn advice(plan: &Plan, style: &Style) -> String {
    if plan.advice.is_empty() {
        return String::new();
    }
    let mut out = String::from("\n");
    for advice in &plan.advice {
        let mark = match advice.status {
            Status::Fail => "!!",
            Status::Warn => "! ",
            _ => "· ",
        };
        let fix = match advice.fix.is_empty() {
            true => String::new(),
            false => format!("; {}", advice.fix),
        };
        let text = format!("{}{fix} [{}]", advice.evidence, advice.source);
        out.push_str(&style.paragraph(&format!("  {mark} "), &text));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Device, gpus, models, plan, reference_request};
    use unicode_width::UnicodeWidthStr;

    fn page(width: Option<usize>, ascii: bool) -> String {
        let mut request = reference_request(models::find("llama-2-7b").unwrap());
        request.device = Device::of(gpus::find("h100").unwrap());
        let gpus = crate::plan::engines::Gpus {
            name: "H100".into(),
            memory: 80_000_000_000,
            count: None,
            here: false,
        };
        let engine = crate::plan::engines::choose(&request, Some(&gpus));
        render(
            &plan(&request),
            engine.as_ref(),
            None,
            &Style { ascii, width },
        )
    }

    /// 0.00 GB of weights beside a gigabyte of CUDA.
    #[test]
    fn a_small_part_is_shown_with_digits_and_a_ramp_is_told() {
        let mut request = reference_request(models::find("gpt2").unwrap());
        request.device = Device::of(gpus::find("h100").unwrap());
        let all = plan(&request);
        let least = 1_700_000;
        assert_eq!(Unit::of(1_200_000_000, least).names, ["MB", "MiB"]);
        assert_eq!(Unit::of(1_200_000_000, 200_000_000).names, ["GB", "GiB"]);
        assert_eq!(Unit::of(100_000_000_000, least).names, ["GB", "GiB"]);
        assert!(ramp(&all.request).is_none());
        request.grad_accum = 4;
        request.batch_ramp = vec![BatchStage {
            grad_accum_steps: 1,
            until_step: 10,
        }];
        let text = render(
            &plan(&request),
            None,
            None,
            &Style {
                ascii: true,
                width: None,
            },
        );
        assert!(
            text.contains("micro-steps of a step: 1 until step 10, then 4"),
            "{text}"
        );
    }

    /// The head said that all weights train.
    #[test]
    fn frozen_parts_are_told_in_the_head() {
        let mut request = reference_request(models::find("gpt2").unwrap());
        request.frozen = vec!["mlp".into()];
        let style = Style {
            ascii: true,
            width: None,
        };
        let text = head(&plan(&request), &style);
        assert!(text.contains("all weights but those of train.freeze"));
        assert!(text.contains(" train ("), "{text}");
    }

    #[test]
    fn the_page_fits_its_terminal_and_tells_what_matters() {
        let text = page(Some(80), false);
        assert!(text.lines().all(|line| line.width() <= 80), "{text}");
        for wanted in [
            "6,738,415,616",
            "110.7",
            "TOO LARGE for 79.6 GiB",
            "optimizer",
            "Chinchilla",
            "bf16",
            "engine.torch.shard=fsdp2",
        ] {
            assert!(
                page(None, false).contains(wanted) || text.contains(wanted),
                "{wanted}\n{text}"
            );
        }
        assert!(page(Some(80), true).is_ascii(), "{}", page(Some(80), true));
    }

    #[test]
    fn times_are_told_in_the_unit_that_one_waits_in() {
        assert_eq!(
            [0.001, 0.2, 84.26, 5103.0, 18_469_680.0].map(hours_words),
            [
                "4 s",
                "12 min",
                "84.3 h",
                "5,103 h (213 days)",
                "18,469,680 h (2,107 years)"
            ]
        );
        assert_eq!([money(0.5), money(15_309.4)], ["0.50", "15,309"]);
    }
}
