//! A spec at the start of its run: the choice of `engine: auto`, the memory check, and the run's folder.

use super::engines::{Gpus, choose};
use super::ranks::{have_gpus, known, on_ranks};
use super::request::Checkpointing;
use super::target::{DataSize, of_spec};
use super::{Estimator, Request, plan, room};
use crate::base::clock::Clock;
use crate::base::human;
use crate::base::paths::{Env, expand_home};
use crate::base::text::one_line;
use crate::data::source::Origin;
use crate::data::tokenizer::TokenizerConfig;
use crate::data::{DataEnv, DataError};
use crate::hardware::{GpuSummary, Memory};
use crate::models::{self, SourceError};
use crate::run::index::checkpoint_named;
use crate::run::lineage::parent_of;
use crate::run::{Parent, RunDir, RunError};
use crate::spec::{Loaded, PrecisionError, RunSpec, torch_is_installed};
use std::path::{Path, PathBuf};

/// Why a run does not start, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Refusal {
    pub what: String,
    pub hint: String,
}

impl Refusal {
    fn new(what: String, hint: &str) -> Refusal {
        let hint = hint.into();
        Refusal { what, hint }
    }
}

/// The checkpoint of a run that is named in a model's place (`my-sft`, `my-sft@500`, its folder): the best one, or that of the
/// step. `None` for a model, for a hub id and for what means no run.
pub fn model_of_run(
    runs_dir: &Path,
    said: &str,
    home: Option<&Path>,
) -> Option<Result<PathBuf, String>> {
    let full = expand_home(Path::new(said), Path::new(""), home).ok()?;
    let may_be_a_run = match models::kind(&full) {
        Ok(_) => false,
        Err(SourceError::Absent(_)) => models::repo(said).is_none(),
        Err(_) => full.join("run.json").is_file(),
    };
    may_be_a_run.then(|| checkpoint_named(runs_dir, &full.to_string_lossy()))?
}

/// Where in the hub's cache the model lies that is named by its id; an error says how to get one that is not there. `None` for what is no id,
/// or lies at that path.
pub fn model_of_hub(
    said: &str,
    home: Option<&Path>,
    hub_cache: Option<&Path>,
) -> Option<Result<PathBuf, String>> {
    let full = expand_home(Path::new(said), Path::new(""), home).ok()?;
    if full.exists() || models::repo(said).is_none() {
        return None;
    }
    let found = hub_cache.and_then(|cache| models::cached(cache, said));
    let said = one_line(said);
    Some(found.ok_or_else(|| {
        format!(
            "{said} is not on this machine: `llmtui model pull {said}` downloads it from the hub"
        )
    }))
}

/// A new run of a spec. Its header names what it came from: `parent`, or else the run whose checkpoint it starts from.
///
/// # Errors
/// The disk.
pub fn new_run(
    runs_dir: &Path,
    loaded: &Loaded,
    parent: Option<Parent>,
    clock: &dyn Clock,
) -> Result<RunDir, RunError> {
    let spec = &loaded.spec;
    let run = RunDir::create(runs_dir, &spec.name, &spec.to_yaml(), &loaded.asked, clock)?;
    let from = || parent_of(spec.train.from.as_deref()?);
    if let Some(parent) = parent.or_else(from) {
        run.record_parent(parent)?;
    }
    Ok(run)
}

/// Largest data that are read before their run is made, bytes.
const MAX_SMALL: u64 = 1 << 20;
/// A token stands for fewer bytes of a text on average.
const MOST_BYTES_PER_TOKEN: f64 = 16.0;

/// Reads data that are so small that a split by a fraction may lack a row, and the first rows of larger files, so that no run is made
/// which could not begin. What is wrong further on, and with a split by rows or files, the run itself reports.
///
/// # Errors
/// A text shorter than a row, no row to validate on, or whatever else is wrong with them.
pub fn check_small_data(spec: &RunSpec, env: &Env) -> Result<(), DataError> {
    let share = spec.data.val_share().unwrap_or(0.0).clamp(0.0, 0.5);
    let window = spec.model.seq_len as f64 + 1.0;
    let enough = MOST_BYTES_PER_TOKEN * window / if share > 0.0 { share } else { 1.0 };
    let sources = spec.data.all_sources();
    let sizes = sources.iter().map(|source| match &source.origin {
        Origin::Path(path) | Origin::Named(path) => size_of_file(Path::new(path)),
        Origin::Hub(_) | Origin::Synthetic(_) => None,
    });
    let is_small = |bytes: u64| bytes <= MAX_SMALL && (bytes as f64) < enough;
    match sizes.sum::<Option<u64>>() {
        Some(bytes) if !sources.is_empty() && (is_small(bytes) || first_rows_fail(spec)) => {
            spec.open_data(&DataEnv::from_env(env)).map(drop)
        }
        _ => Ok(()),
    }
}

/// Whether the first rows cannot become tokens: conversations without a chat template, say. A tokenizer of the run's own is trained on
/// all of the data first.
fn first_rows_fail(spec: &RunSpec) -> bool {
    const ROWS: u64 = 2;
    let is_there = matches!(spec.data.tokenizer, TokenizerConfig::File(_));
    is_there && matches!(spec.open_sample(ROWS), Err(DataError::Row(_)))
}

fn size_of_file(path: &Path) -> Option<u64> {
    let found = std::fs::metadata(path).ok()?;
    found.is_file().then_some(found.len())
}

/// Gives `engine: auto` an engine for this machine: in the spec, and as a comment on what was asked for. The sentence says which
/// and why; `None` where the spec names one.
pub fn resolve_auto_engine(loaded: &mut Loaded, env: &Env) -> Option<String> {
    // Looking for GPUs loads their driver: only where it is asked for.
    let open = loaded.spec.engine.is_open();
    open.then(|| decide(loaded, &gpus_here(env), torch_is_installed(env)))
}

/// [`resolve_auto_engine`] on a machine with these GPUs, for a spec that leaves it open.
pub fn decide(loaded: &mut Loaded, gpus: &[GpuSummary], torch_installed: bool) -> String {
    let (spec, why) = engine_for(&loaded.spec, gpus, torch_installed);
    loaded.spec = spec;
    let why = format!("engine auto is {why}");
    loaded.asked.push_str(&format!("# {}\n", one_line(&why)));
    why
}

fn engine_for(spec: &RunSpec, gpus: &[GpuSummary], torch_installed: bool) -> (RunSpec, String) {
    let own = spec.clone().on_candle();
    let request = of_spec(&own, least_data(spec));
    let why = match choose(&request, Gpus::of(gpus).as_ref()) {
        None => "this machine's GPUs are unknown".into(),
        Some(choice) if choice.engine != "torch" || !choice.fits => choice.why,
        Some(_) if !torch_installed => {
            "PyTorch, which would train on the GPU, is not installed: llmtui engine install torch"
                .into()
        }
        Some(choice) => {
            // Each rank has a row of a micro-batch at least.
            let rows = spec.train.micro_batch_size;
            let ranks = (rows < gpus.len()).then_some(rows);
            let shares = choice.shard == Some("fsdp2");
            let spec = spec.clone().on_torch(ranks, shares, choice.recomputes);
            return (spec, format!("torch: {}", choice.why));
        }
    };
    (own, format!("candle: {why}"))
}

/// Whether a run can start here: room for what it holds, a GPU for each rank, a processor that has its number format.
///
/// # Errors
/// What is needed, what is there, and the cheapest changes.
pub fn check(spec: &RunSpec, env: &Env) -> Result<(), Refusal> {
    let served = spec.data.serves(spec.method.needs().unit);
    served.map_err(|e| Refusal::new(e.to_string(), &e.hint()))?;
    if spec.engine.torch().is_some() {
        let gpus = gpus_here(env);
        let request = on_ranks(of_spec(spec, least_data(spec)), &gpus);
        if request.estimator == Estimator::General {
            check_gpu_count(&request, gpus.len())?;
            fits(&request)?;
            return check_host_memory(&request, &crate::hardware::memory(), spec.train.threads);
        }
    }
    spec.computes_here()
        .map_err(|e| Refusal::new(format!("train.precision: {e}"), PrecisionError::HINT))?;
    room::check(spec, &crate::hardware::memory()).map_err(|shortage| {
        let hint = match shortage.is_preflight {
            false => "a change above; llmtui plan shows every part; train --force starts anyway",
            true => {
                "a change above; llmtui plan shows every part; train --force does not help, as its preflight takes the same memory"
            }
        };
        Refusal::new(shortage.to_string(), hint)
    })
}

/// How many ranks a spec has, where the spec or the GPUs of this machine say it.
pub fn known_ranks(spec: &RunSpec, env: &Env) -> Option<u64> {
    spec.engine.torch()?;
    known(&on_ranks(of_spec(spec, least_data(spec)), &gpus_here(env)))
}

/// Whether there is a GPU for every rank.
///
/// # Errors
/// There are fewer.
pub fn check_gpu_count(request: &Request, gpus: usize) -> Result<(), Refusal> {
    if have_gpus(request, gpus) {
        return Ok(());
    }
    let machines = request.extras.ranks.and_then(|ranks| ranks.machines);
    let there = match machines {
        Some(n) if n > 1 => format!("{n} machines like this one have {}", n * gpus as u64),
        _ => format!("this machine has {gpus}"),
    };
    let what = format!(
        "{}: {} PyTorch ranks need one GPU each, but {there}",
        request.name, request.n_devices
    );
    let hint = "-s engine.torch.ranks=N, or -s engine.torch.device=cpu; llmtui engine check shows what PyTorch sees";
    Err(Refusal::new(what, hint))
}

/// Whether a GPU holds what its rank needs; yes where its memory is unknown.
///
/// # Errors
/// It is too little, even without a margin.
pub fn fits(request: &Request) -> Result<(), Refusal> {
    let needs = plan(request).p50_bytes();
    let Some(there) = request.device.memory.filter(|there| needs > *there) else {
        return Ok(());
    };
    let what = format!(
        "{} needs about {} on each of {} GPUs, and {} has {}",
        request.name,
        human::bytes(needs),
        request.n_devices,
        request.device.name,
        human::bytes(there)
    );
    let ways = memory_options(request).join(", or ");
    let hint = format!("{ways}; train --force starts anyway");
    Err(Refusal::new(what, &hint))
}

/// Whether main memory holds what the engine that drives the ranks needs at least, on so many threads.
///
/// # Errors
/// It is too little.
fn check_host_memory(
    request: &Request,
    memory: &Memory,
    threads: Option<usize>,
) -> Result<(), Refusal> {
    let Some(ledger) = plan(request).host else {
        return Ok(());
    };
    let ((there, bound), needs) = (room::there(memory, threads), ledger.total());
    if needs <= there {
        return Ok(());
    }
    let largest = ledger.parts().iter().max_by_key(|part| part.bytes);
    let largest = largest.map_or(String::new(), |part| {
        format!(" ({}: {})", part.part.title(), part.how)
    });
    let what = format!(
        "{} trains on GPUs, and the engine that drives them needs at least {} of main memory{largest}; {} are {bound}",
        request.name,
        human::bytes(needs),
        human::bytes(there)
    );
    let hint = format!(
        "more main memory, -s adapter.lora.rank=16 (no moments of the base), -s optimizer=adamw8bit{}, or no engine.torch.offload; \
         train --force starts anyway",
        request.rates_in_8_bits
    );
    Err(Refusal::new(what, &hint))
}

/// Main memory of a process of PyTorch that computes on a GPU, beside what it shares with others: its libraries and the driver's buffers.
const RANK: u64 = 6 << 30;
/// The system, the shell, data in the page cache that a job is charged for.
const JOB: u64 = 4 << 30;

/// Main memory that a job should ask for on each node, GiB, with so many ranks of GPUs there: the plan, half as much again, and what is
/// around it. `None` where data that cannot be read here decide.
pub fn job_memory(spec: &RunSpec, gpus: usize) -> Option<u64> {
    let size = super::target::measure(spec).ok()?;
    let mut request = of_spec(spec, size);
    if gpus > 0 {
        let gpu = GpuSummary {
            name: String::new(),
            memory_bytes: 0,
        };
        request = on_ranks(request, &vec![gpu; gpus]);
    }
    let planned = plan(&request);
    let own = planned
        .host
        .as_ref()
        .map_or(planned.p90_bytes(), |host| host.total());
    let all = own + own / 2 + gpus as u64 * RANK + JOB;
    Some(all.div_ceil(1 << 30))
}

/// What lowers the memory of a GPU and is not set yet.
fn memory_options(request: &Request) -> Vec<&'static str> {
    let ranks = request.extras.ranks;
    let sharded = ranks.is_some_and(|ranks| ranks.sharded);
    let offloaded = ranks.is_some_and(|ranks| ranks.offloaded);
    let ways = [
        (request.micro_batch > 1, "lower train.micro_batch_size"),
        (
            request.checkpointing == Checkpointing::Off,
            "-s train.activation_checkpointing=full",
        ),
        (
            request.n_devices > 1 && !sharded,
            "-s engine.torch.shard=fsdp2",
        ),
        (
            !offloaded,
            "-s engine.torch.shard=fsdp2 -s engine.torch.offload=true (slower: what a GPU shares lies in main memory)",
        ),
        (request.lora.is_none(), "-s adapter.lora.rank=16"),
        (true, "a shorter model.seq_len or a smaller model"),
    ];
    let open = ways.iter().filter(|(open, _)| *open);
    open.map(|(_, way)| *way).collect()
}

fn gpus_here(env: &Env) -> Vec<GpuSummary> {
    let machine = crate::hardware::summary(None, env);
    machine.map(|machine| machine.gpus).unwrap_or_default()
}

/// Before the data are read nothing is known of them but a vocabulary's least size.
pub(super) fn least_data(spec: &RunSpec) -> DataSize {
    DataSize {
        vocab_size: room::least_vocabulary(spec),
        ..DataSize::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::ManualClock;
    use crate::spec::{SpecSources, load};

    fn loaded(words: &[&str]) -> Loaded {
        let mut words: Vec<String> = words.iter().map(ToString::to_string).collect();
        if !words.iter().any(|word| word.starts_with("engine=")) {
            words.push("engine=auto".into());
        }
        load("quickstart", &words, &SpecSources::default()).unwrap()
    }

    fn gpus(count: usize, bytes: u64) -> Vec<GpuSummary> {
        let one = GpuSummary {
            name: "H100".into(),
            memory_bytes: bytes,
        };
        vec![one; count]
    }

    #[test]
    fn a_new_run_names_the_run_whose_checkpoint_it_starts_from() {
        use crate::base::clock::ManualClock;
        let runs = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(0);
        let base = new_run(runs.path(), &loaded(&[]), None, &clock).unwrap();
        assert_eq!(base.header().unwrap().parent, None);
        let checkpoint = base.checkpoints_path().join("step-000010");
        std::fs::create_dir(&checkpoint).unwrap();
        std::fs::write(checkpoint.join("manifest.json"), "{}").unwrap();
        let text = format!("name: next\ntrain: {{from: {}}}\n", checkpoint.display());
        let next = Loaded {
            spec: RunSpec::from_yaml(&text).unwrap(),
            ..loaded(&[])
        };
        let parent = |said: Option<Parent>| {
            let run = new_run(runs.path(), &next, said, &clock).unwrap();
            run.header().unwrap().parent.unwrap()
        };
        let of = |run: &str, step| Parent {
            run: run.into(),
            step,
        };
        assert_eq!(parent(None), of(base.id(), 10));
        assert_eq!(parent(Some(of("other", 3))), of("other", 3));
    }

    #[test]
    fn a_text_without_a_row_is_refused_before_its_run_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("short.txt");
        let check = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let spec = loaded(&[&format!("data.path={}", path.display())]).spec;
            check_small_data(&spec, &Env::default()).map_err(|e| e.to_string())
        };
        let error = check("too short\n").unwrap_err();
        assert!(error.contains("one window takes 65"), "{error}");
        let error = check(&"a sentence\n".repeat(40)).unwrap_err();
        assert!(
            error.contains("the validation split has 44 tokens"),
            "{error}"
        );
        assert_eq!(check(&"a sentence\n".repeat(100)), Ok(()));
        assert_eq!(
            check_small_data(&loaded(&[]).spec, &Env::default()).ok(),
            Some(())
        );
    }

    /// Of a file that is no small one, conversations without a template ended the run that was made for them.
    #[test]
    fn conversations_without_a_template_are_refused_before_their_run_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("chats.jsonl");
        let turns = r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}"#;
        std::fs::write(&path, format!("{turns}\n").repeat(2_000)).unwrap();
        let tokenizer = dir.path().join("tokenizer.json");
        let json = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
            "model": {"type": "WordLevel", "vocab": {"?": 0, "a": 1, "b": 2}, "unk_token": "?"},
        });
        std::fs::write(&tokenizer, json.to_string()).unwrap();
        let check = |more: &[&str]| {
            let words = [
                format!("data.path={}", path.display()),
                format!("data.tokenizer.file.path={}", tokenizer.display()),
                "method=sft".into(),
            ];
            let words = words.iter().map(String::as_str).chain(more.iter().copied());
            let spec = loaded(&words.collect::<Vec<_>>()).spec;
            check_small_data(&spec, &Env::default()).map_err(|e| e.to_string())
        };
        let error = check(&[]).unwrap_err();
        assert!(error.contains("chat template"), "{error}");
        assert_eq!(check(&["data.template=plain"]), Ok(()));
    }

    #[test]
    fn gpus_an_installed_pytorch_and_a_spec_that_it_can_train_make_it_torch() {
        let mut two = loaded(&[]);
        let why = decide(&mut two, &gpus(2, 80 << 30), true);
        let torch = two.spec.engine.torch().expect("torch");
        assert_eq!((torch.ranks, torch.shard_word()), (None, "ddp"), "{why}");
        // What the run writes down can be read again, and says why.
        assert!(RunSpec::from_yaml(&two.spec.to_yaml()).is_ok());
        assert!(two.asked.ends_with(&format!("# {why}\n")), "{}", two.asked);
        // No rank without a row.
        let mut narrow = loaded(&["micro_batch_size=2"]);
        decide(&mut narrow, &gpus(8, 80 << 30), true);
        assert_eq!(narrow.spec.engine.torch().and_then(|t| t.ranks), Some(2));
    }

    #[test]
    fn whatever_is_missing_is_said_and_the_own_engine_trains() {
        let told = |words: &[&str], gpus: &[GpuSummary], installed| {
            let mut loaded = loaded(words);
            let why = decide(&mut loaded, gpus, installed);
            assert_eq!(loaded.spec.engine.entry().id, "candle", "{why}");
            why
        };
        assert!(told(&[], &[], true).contains("no GPU here"));
        assert!(told(&[], &gpus(1, 80 << 30), false).contains("engine install torch"));
        let why = decide(
            &mut loaded(&["optimizer=adamw8bit"]),
            &gpus(2, 80 << 30),
            true,
        );
        assert!(why.starts_with("engine auto is torch"), "{why}");
        // A model that two GPUs would have to share.
        let large = [
            "optimizer=adamw8bit",
            "model.n_layer=64",
            "model.d_model=2048",
            "model.n_head=16",
        ];
        let why = told(&large, &gpus(8, 20 << 30), true);
        assert!(why.contains("8-bit moments"), "{why}");
        let lion = told(&["optimizer=lion"], &gpus(1, 80 << 30), true);
        assert!(lion.contains("adamw"), "{lion}");
    }

    #[test]
    fn a_run_is_that_of_its_open_spec_whatever_engine_it_got() {
        let open = loaded(&[]).spec;
        for (count, installed) in [(0, false), (2, true)] {
            let mut run = loaded(&[]);
            decide(&mut run, &gpus(count, 80 << 30), installed);
            assert_ne!(run.spec, open);
            assert_eq!(open.clone().with_engine_of(&run.spec), run.spec);
        }
        // A spec that names its engine keeps it.
        let named = loaded(&["engine=candle"]).spec;
        let torch = loaded(&["engine=torch"]).spec;
        assert_eq!(named.clone().with_engine_of(&torch), named);
    }

    #[test]
    fn main_memory_has_to_hold_the_engines_copy() {
        let spec = loaded(&["engine=torch", "d_model=1024", "n_head=16", "n_layer=12"]).spec;
        let request = on_ranks(of_spec(&spec, least_data(&spec)), &gpus(2, 80 << 30));
        let memory = |bytes: u64| Memory {
            total: bytes,
            available: bytes,
            ..Memory::default()
        };
        let needs = plan(&request).host.unwrap().total();
        assert!(needs > 16 * request.arch.n_params());
        assert_eq!(check_host_memory(&request, &memory(needs), None), Ok(()));
        let refused = check_host_memory(&request, &memory(needs - 1), None).unwrap_err();
        assert!(refused.what.contains("main memory (optimizer"), "{refused}");
        assert!(
            refused.what.ends_with("are available on this machine"),
            "{refused}"
        );
    }

    #[test]
    fn a_job_asks_for_the_plan_and_more() {
        let spec = |words: &[&str]| loaded(words).spec;
        let small = job_memory(&spec(&["engine=candle"]), 0).unwrap();
        assert!((5..8).contains(&small), "{small}");
        let words = ["engine=torch", "d_model=2048", "n_head=16", "n_layer=24"];
        let large = spec(&words);
        let n = of_spec(&large, least_data(&large)).arch.n_params();
        let [one, four] = [1, 4].map(|gpus| job_memory(&large, gpus).unwrap());
        // 12 B a parameter stay, 4 are on their way.
        assert!(
            one >= (16 * n) >> 30 && four == one + 3 * (RANK >> 30),
            "{one} {four}"
        );
    }

    #[test]
    fn a_refusal_names_what_is_not_set_yet() {
        let hint = |words: &[&str]| {
            let spec = loaded(
                &[
                    &["engine=torch", "d_model=8192", "n_layer=40", "n_head=64"],
                    words,
                ]
                .concat(),
            )
            .spec;
            let request = on_ranks(of_spec(&spec, least_data(&spec)), &gpus(2, 8 << 30));
            fits(&request).unwrap_err().hint
        };
        let plain = hint(&[]);
        for way in [
            "micro_batch_size",
            "checkpointing=full",
            "shard=fsdp2",
            "offload=true",
        ] {
            assert!(plain.contains(way), "{way}: {plain}");
        }
        let shared = hint(&[
            "engine.torch.shard=fsdp2",
            "train.activation_checkpointing=full",
            "micro_batch_size=2",
        ]);
        for way in ["micro_batch_size", "checkpointing=full"] {
            assert!(!shared.contains(way), "{way}: {shared}");
        }
        assert!(shared.contains("offload=true"), "{shared}");
    }

    #[test]
    fn a_run_is_its_best_checkpoint_where_a_model_is_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path(), "sft", "", "", &ManualClock::at(0)).unwrap();
        let found = |said: &str| model_of_run(dir.path(), said, None);
        assert!(
            found("sft")
                .unwrap()
                .unwrap_err()
                .contains("has no checkpoint")
        );
        for step in ["step-000010", "step-000020"] {
            let folder = run.checkpoints_path().join(step);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("manifest.json"), "{}").unwrap();
        }
        let at = |step: &str| Some(Ok(run.checkpoints_path().join(step)));
        assert_eq!(found("sft"), at("step-000020"));
        assert_eq!(found("sft@10"), at("step-000010"));
        assert_eq!(found(&run.path().display().to_string()), at("step-000020"));
        let gone = found("sft@15").unwrap().unwrap_err();
        assert!(gone.contains("keeps 10, 20"), "{gone}");
        // Words for models, and for nothing.
        let checkpoint = run
            .checkpoints_path()
            .join("step-000010")
            .display()
            .to_string();
        for other in ["org/sft", "nothing", checkpoint.as_str()] {
            assert_eq!(found(other), None, "{other}");
        }
    }

    #[test]
    fn a_spec_that_names_its_engine_is_not_asked() {
        let env = Env::default();
        for engine in ["candle", "torch"] {
            let mut loaded = loaded(&[&format!("engine={engine}")]);
            assert!(resolve_auto_engine(&mut loaded, &env).is_none());
        }
    }
}
