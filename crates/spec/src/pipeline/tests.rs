//! Pipelines as written, found and kept.

use super::*;
use crate::base::clock::ManualClock;
use crate::spec::SpecSources;
use serde_json::json;

fn parse(stages: &str) -> Result<Pipeline, PipelineError> {
    Pipeline::parse("mine.yaml", "mine", stages)
}

fn from(pipeline: &Pipeline, name: &str) -> StageModel {
    match &pipeline.stage(name).unwrap().1.work {
        Work::Train(train) => train.from.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stage_starts_from_the_newest_model_unless_it_says_otherwise() {
    let text = "stages:
  - {name: vocabulary, tokenizer: {files: [a.txt], vocab_size: 300}}
  - {name: base, train: quickstart}
  - {name: sft, train: sft, set: {lr: 1e-3}}
  - {name: exam, eval: {tasks: [made_sort]}}
  - {name: dpo, train: dpo, from: sft}
  - {name: other, train: dpo, from: base}
  - {name: fresh, train: quickstart, from: scratch}
  - {name: gguf, export: {format: gguf, model: dpo}}
  - {name: report, report: {}}";
    let pipeline = parse(text).unwrap();
    assert_eq!((pipeline.name.as_str(), pipeline.stages.len()), ("mine", 9));
    let stage = |name: &str| StageModel::Stage(name.into());
    for (name, expected) in [
        ("base", StageModel::Spec),
        ("sft", stage("base")),
        ("dpo", stage("sft")),
        ("other", stage("base")),
        ("fresh", StageModel::Spec),
    ] {
        assert_eq!(from(&pipeline, name), expected, "{name}");
    }
    // Written and read back it is the same: a resume reads what was written.
    assert_eq!(parse(&pipeline.to_yaml()).unwrap(), pipeline);
}

#[test]
fn what_is_wrong_is_said_with_its_stage() {
    for (text, expected) in [
        ("stages: []", "the list is empty"),
        (
            "name: a\n\nstages:\n  base: {train: quickstart}",
            "mine.yaml:3: stages is a list, and this is a section",
        ),
        (
            "stages: quickstart",
            "mine.yaml:1: stages is a list, and this is the text",
        ),
        (
            "name: a\nstages:",
            "mine.yaml:2: stages is a list, and this is nothing",
        ),
        (
            "name: a\nabout: b",
            "a pipeline has stages, and this has none",
        ),
        (
            "name: [a]\nstages: [{name: x, train: a}]",
            "mine.yaml:1: name is one line of text, and this is a list",
        ),
        ("- a", "a pipeline has keys, and this is a list"),
        (
            "name: a b\nstages: [{name: x, train: quickstart}]",
            "letters, digits and dashes",
        ),
        (
            "stages: [{name: scratch, train: a}, {name: y, train: b}]",
            "stage 1 (scratch): name: scratch is reserved by `from` for random weights",
        ),
        ("stages: [{name: x}]", "stage 1 (x): it does nothing"),
        (
            "stages: [{name: x, train: a, eval: {}}]",
            "several things at once",
        ),
        ("stages: [{name: x, train: a, lr: 1}]", "unknown key `lr`"),
        (
            "stages: [{name: x, train: 3}]",
            "neither a preset name nor a spec",
        ),
        (
            "stages: [{name: x, train: a}, {name: x, train: a}]",
            "its name is taken",
        ),
        (
            "stages: [{name: x, train: a, from: y}]",
            "\"y\" is not an earlier training stage",
        ),
        (
            "stages: [{name: x, eval: {}}]",
            "no earlier stage produces a model",
        ),
        (
            "stages: [{name: x, train: a}, {name: y, eval: {model: z}}]",
            "unknown key `model`",
        ),
        (
            "stages: [{name: x, train: a}, {name: y, export: {model: z}}]",
            "\"z\" is not an earlier training stage",
        ),
        (
            "stages: [{name: x, train: a}, {name: y, report: {format: pdf}}]",
            "neither html nor md",
        ),
        (
            "stages: [{name: x, report: {}, from: y}]",
            "only for training stages",
        ),
        ("stages: {", "mine.yaml: "),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.to_string().contains(expected), "{text}: {error}");
        assert!(!error.hint().is_empty() && !error.is_outage(), "{text}");
    }
}

/// `stages: invalid type: map, expected a sequence` of serde had no line, and a hint about something else.
#[test]
fn stages_by_name_are_shown_how_to_become_a_list() {
    let error =
        parse("stages:\n  base: {train: quickstart}\n  chat: {train: sft-lora}").unwrap_err();
    assert!(error.hint().contains("`- name: base`"), "{}", error.hint());
    let plain = parse("about:\nstages: [{name: x, train: a}]").unwrap();
    assert_eq!(plain.about, "", "a key without a value says nothing");
}

/// "try: scratch" for a model's file and for a run: followed, the stage trained random weights.
#[test]
fn what_no_stage_makes_is_named_as_the_start_model() {
    let hint = |text: &str| parse(text).unwrap_err().hint().to_string();
    for name in ["models/smol.gguf", "sft1"] {
        let first = hint(&format!("stages: [{{name: x, train: a, from: {name}}}]"));
        let set = format!("set: {{train.from: {name}}} for a model or a run");
        assert!(
            first.starts_with(&set) && !first.contains("scratch"),
            "{first}"
        );
        let later = hint(&format!(
            "stages: [{{name: base, train: a}}, {{name: y, train: a, from: {name}}}]"
        ));
        let both = format!("base; or from: scratch with {set}");
        assert!(later.starts_with(&both), "{later}");
    }
    let none = hint("stages: [{name: x, eval: {models: [y]}}]");
    assert_eq!(none, "put it after a training stage");
}

/// What could be read of a faulty stage, and all of the others, was looked at only once the file was right.
#[test]
fn a_faulty_file_is_read_as_far_as_it_goes() {
    let text = "name: mine
stages:
  - {name: base, train: smoke, lr: 1}
  - {name: exam, eval: {tasks: [made_srt], limt: 5}}
  - {name: exam, train: smoke}
  - {name: rep, report: {format: pdf}}
  - {name: more, train: smoke, from: base}
  - {name: last, export: {format: gguff}}";
    let parsed = Parsed::of("mine.yaml", "mine", text).unwrap();
    let at: Vec<usize> = parsed.faults.iter().map(|(at, _)| *at).collect();
    assert_eq!(at, [0, 1, 2, 3]);
    assert_eq!(parsed.unread, ["stage 3", "rep"]);
    let names = parsed.pipeline.stages.iter().map(|stage| &stage.name);
    let names: Vec<&String> = names.collect();
    assert_eq!(names, ["base", "exam", "stage 3", "rep", "more", "last"]);
    let Work::Eval(exam) = &parsed.pipeline.stages[1].work else {
        panic!("{parsed:?}");
    };
    assert_eq!(exam.tasks, ["made_srt"]);
    assert_eq!(
        from(&parsed.pipeline, "more"),
        StageModel::Stage("base".into())
    );
}

#[test]
fn everything_that_is_wrong_is_said_at_once_with_its_line() {
    let text = "name: mine
stages:
  - {name: base, tran: quickstart}
  - name: more
    train: sft
    lr: 1e-3
    from: bas
  - {name: exam, eval: {task: [made_sort], limit: many}}
  - {name: gguf, export: {model: bsae}}
  - {name: fine, report: {}}";
    let error = parse(text).unwrap_err();
    let PipelineError::Invalid(faults) = &error else {
        panic!("{error}")
    };
    let said: Vec<String> = faults
        .iter()
        .map(|fault| format!("{}: {}; {}", fault.place, fault.what, fault.hint))
        .collect();
    assert_eq!(
        said,
        [
            "mine.yaml:3: stage 1 (base): unknown key `tran`; did you mean train?",
            "mine.yaml:6: stage 2 (more): unknown key `lr`; set: {lr: …}",
            "mine.yaml:7: stage 2 (more): \"bas\" is not an earlier training stage; did you mean base?",
            "mine.yaml:8: stage 3 (exam): eval: unknown key `task`; did you mean tasks?",
            "mine.yaml:8: stage 3 (exam): eval.limit: invalid type: string \"many\", expected u64; docs/pipelines.md lists its values",
            "mine.yaml:9: stage 4 (gguf): \"bsae\" is not an earlier training stage; did you mean base?",
        ]
    );
    let listed = error.to_string();
    assert!(
        listed.starts_with("6 problems in the pipeline:\n  mine.yaml:3: stage 1 (base)\n      unknown key `tran`\n      try: "),
        "{listed}"
    );
    // A misspelt `stages` makes it no spec.
    let text = "name: mine\nstage:\n  - {name: base, train: quickstart}";
    assert!(Pipeline::is_one(text) && !Pipeline::is_one("method: sft"));
    let error = parse(text).unwrap_err();
    assert_eq!(error.to_string(), "mine.yaml:2: unknown key `stage`");
    assert_eq!(error.hint(), "did you mean stages?");
}

#[test]
fn values_of_a_stage_can_be_changed() {
    let mut pipeline =
        parse("stages: [{name: base, train: quickstart}, {name: r, report: {}}]").unwrap();
    assert_eq!(pipeline.set("base.max_steps=5").unwrap(), "base");
    pipeline
        .set("base.data.tokenizer={bpe: {vocab_size: 300}}")
        .unwrap();
    let Work::Train(train) = &pipeline.stages[0].work else {
        panic!("{pipeline:?}");
    };
    assert_eq!(
        train.words(),
        [
            "max_steps=5",
            "data.tokenizer={\"bpe\":{\"vocab_size\":300}}"
        ]
    );
    for (word, expected) in [
        ("max_steps=5", "which stage? There are base"),
        ("x.max_steps=5", "\"x\" is not a stage; there are base, r"),
        ("r.max_steps=5", "max_steps"),
        ("r.format=pdf", "neither html nor md"),
        ("base.max_steps", "there is no `=`"),
    ] {
        let error = pipeline.set(word).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// The newest word lost to one of the file with another spelling, and `epochs` contradicted the file's steps.
#[test]
fn the_newest_word_for_a_stage_counts_whatever_the_file_says() {
    let text = "stages:
  - {name: base, train: smoke, set: {max_steps: 30, optimizer.adamw.lr: 1.0e-3, batch_size: 2, warmup_steps: 3}}";
    let mut pipeline = parse(text).unwrap();
    for word in [
        "base.lr=1e-5",
        "base.learning_rate=2e-5",
        "base.lr=3e-5",
        "base.micro-batch-size=4",
        "base.warmup_ratio=0.1",
        "base.epochs=0.5",
    ] {
        pipeline.set(word).unwrap();
    }
    let load = |pipeline: &Pipeline| {
        let Work::Train(train) = &pipeline.stages[0].work else {
            panic!("{pipeline:?}");
        };
        let loaded = crate::spec::load("smoke", &train.words(), &SpecSources::default());
        loaded.unwrap_or_else(|e| panic!("{e}")).spec
    };
    // Also as a later resume reads it.
    for pipeline in [&pipeline, &parse(&pipeline.to_yaml()).unwrap()] {
        let spec = load(pipeline);
        assert_eq!(spec.optimizer.lr(), 3e-5);
        let train = &spec.train;
        assert_eq!((train.micro_batch_size, train.epochs), (4, Some(0.5)));
        assert_eq!(train.warmup_ratio, Some(0.1));
    }
    pipeline.set("base.optimizer=lion").unwrap();
    pipeline.set("base.steps=7").unwrap();
    let spec = load(&pipeline);
    assert_eq!(spec.optimizer.entry().id, "lion");
    assert_eq!((spec.train.epochs, spec.train.max_steps), (None, 7));
}

#[test]
fn values_of_a_stage_that_does_not_train_can_be_changed() {
    let text = "stages:
  - {name: base, train: quickstart}
  - {name: exam, eval: {tasks: [nosuch], limit: 3}}
  - {name: gguf, export: {format: ggufx}}
  - {name: late, train: dpo}";
    let mut pipeline = parse(text).unwrap();
    assert_eq!(pipeline.set("exam.tasks=[made_sort]").unwrap(), "exam");
    pipeline.set("gguf.format=gguf").unwrap();
    let Work::Eval(exam) = &pipeline.stages[1].work else {
        panic!("{pipeline:?}");
    };
    assert_eq!(
        (&exam.tasks[..], exam.limit),
        (&["made_sort".to_string()][..], Some(3))
    );
    let Work::Export(export) = &pipeline.stages[2].work else {
        panic!("{pipeline:?}");
    };
    assert_eq!(export.format, "gguf");
    // A model that is not there yet is refused here, too.
    let error = pipeline.set("exam.models=[late]").unwrap_err().to_string();
    assert!(error.contains("not an earlier training stage"), "{error}");
}

#[test]
fn a_word_of_a_stage_is_read_back_as_the_value_that_was_written() {
    let texts = [
        "plain", "2024", "true", "~", "null", "1e-3", "1 + 1 = ", " a", "a: b", "a #b", "'a'",
        "{a", "a\n", "", " ", "ä\u{1b}",
    ];
    let set = texts.iter().enumerate();
    let set = set.map(|(at, text)| (format!("k{at}"), json!(text)));
    let train = Train {
        spec: json!("quickstart"),
        set: set.collect(),
        from: StageModel::Spec,
    };
    for (key, expected) in &train.set {
        let words = train.words();
        let word = words
            .iter()
            .find_map(|word| word.strip_prefix(&format!("{key}=")));
        let value = crate::spec::yaml::parse_value(word.unwrap()).unwrap();
        assert_eq!(&value, expected, "{word:?}");
    }
    assert!(train.words().contains(&"k0=plain".to_string()));
}

#[test]
fn stages_that_were_added_to_a_begun_pipeline_are_told() {
    let runs = tempfile::tempdir().unwrap();
    let text = "stages: [{name: base, train: quickstart}]";
    let pipeline = parse(text).unwrap();
    let dir = PipelineDir::create(runs.path(), &pipeline, text, &ManualClock::at(0)).unwrap();
    assert_eq!(dir.load().unwrap().0.stages, pipeline.stages);
    for changed in [
        "stages: [{name: base, train: quickstart}, {name: more, train: quickstart}]",
        "stages: [{name: other, train: quickstart}]",
    ] {
        dir.write("pipeline.yaml", changed.as_bytes()).unwrap();
        let error = dir.load().unwrap_err();
        assert!(error.to_string().contains("its stages are"), "{error}");
        assert!(error.hint().contains("stages: base"), "{}", error.hint());
    }
}

#[test]
fn shipped_pipelines_are_whole_and_files_of_other_kinds_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let sources = SpecSources {
        project_dir: folder.path().into(),
        ..SpecSources::default()
    };
    let names = names(&sources);
    assert!(names.contains_key("speedrun"), "{names:?}");
    for name in names.keys() {
        let pipeline = find(name, &sources).unwrap().unwrap();
        assert_eq!(&pipeline.name, name);
        assert!(pipeline.trained().count() > 0 && !pipeline.about.is_empty());
    }
    assert!(find("quickstart", &sources).unwrap().is_none());
    std::fs::write(folder.path().join("spec.yaml"), "method: sft\n").unwrap();
    assert!(find("spec.yaml", &sources).unwrap().is_none());
    assert!(find("absent.yaml", &sources).unwrap().is_none());
    // The project's own comes before the shipped one of its name.
    std::fs::create_dir(folder.path().join("pipelines")).unwrap();
    let mine = folder.path().join("pipelines/speedrun.yaml");
    std::fs::write(
        &mine,
        "about: mine\nstages: [{name: base, train: quickstart}]",
    )
    .unwrap();
    assert_eq!(find("speedrun", &sources).unwrap().unwrap().about, "mine");
}

#[test]
fn a_tilde_in_a_pipeline_is_the_users_home() {
    let home = tempfile::tempdir().unwrap();
    let text = "stages:
  - {name: words, tokenizer: {files: [~/a.txt, b.txt]}}
  - {name: base, train: ~/spec.yaml, set: {data.path: ~/rows.jsonl}}
  - {name: exam, eval: {tasks: [made_sort, ~/mine.yaml, ~/mine.yml]}}";
    std::fs::write(home.path().join("p.yaml"), text).unwrap();
    let sources = SpecSources {
        home: Some(home.path().into()),
        ..SpecSources::default()
    };
    let pipeline = find("~/p.yaml", &sources).unwrap().unwrap();
    let at = |name: &str| home.path().join(name);
    let Work::Tokenizer(words) = &pipeline.stages[0].work else {
        panic!("{pipeline:?}")
    };
    assert_eq!(words.files, [at("a.txt"), "b.txt".into()]);
    let Work::Eval(exam) = &pipeline.stages[2].work else {
        panic!("{pipeline:?}")
    };
    let said = |name: &str| at(name).display().to_string();
    assert_eq!(
        exam.tasks,
        ["made_sort".into(), said("mine.yaml"), said("mine.yml")]
    );

    let file = said("p.yaml");
    std::fs::write(&file, text.replace("~/a.txt", "~root/a.txt")).unwrap();
    let error = find(&file, &sources).unwrap_err();
    let place = "p.yaml: stage 1 (words): `~root` is not expanded";
    assert!(error.to_string().contains(place), "{error}");
    assert_eq!(error.hint(), "write the whole path");
}

/// Looking takes the lock for an instant: `train --resume` said that another process drives the pipeline.
#[test]
fn looking_at_a_pipeline_does_not_keep_its_driver_out() {
    let runs = tempfile::tempdir().unwrap();
    let pipeline = parse("stages: [{name: base, train: quickstart}]").unwrap();
    let clock = ManualClock::default();
    let dir = PipelineDir::create(runs.path(), &pipeline, &pipeline.to_yaml(), &clock).unwrap();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let watched = dir.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                watched.is_live();
            }
        });
        for _ in 0..50 {
            drop(dir.claim().unwrap());
        }
        drop(stop);
    });
}

#[test]
fn a_folder_is_found_by_its_names_and_driven_by_one_process() {
    let runs = tempfile::tempdir().unwrap();
    let pipeline =
        parse("stages: [{name: base, train: quickstart}, {name: r, report: {}}]").unwrap();
    let clock = ManualClock::default();
    let dir = PipelineDir::create(runs.path(), &pipeline, &pipeline.to_yaml(), &clock).unwrap();
    let mut state = dir.state().unwrap();
    assert_eq!((state.word(false), state.word(true)), ("stopped", "live"));
    for word in [state.id.as_str(), "mine", &state.id[state.id.len() - 4..]] {
        assert_eq!(
            PipelineDir::resolve(runs.path(), word).unwrap(),
            dir,
            "{word}"
        );
    }
    let path = dir.path().to_string_lossy().into_owned();
    assert_eq!(PipelineDir::resolve(runs.path(), &path).unwrap(), dir);
    let unknown = PipelineDir::resolve(runs.path(), "other").unwrap_err();
    assert!(
        matches!(unknown, PipelineError::Unknown { .. }),
        "{unknown}"
    );
    assert_eq!(dir.pipeline().unwrap(), pipeline);
    let file = dir.path().join("state.json");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, "{").unwrap();
    for word in ["mine", &state.id, &path] {
        let dir = PipelineDir::resolve(runs.path(), word);
        let said = dir.and_then(|dir| dir.state()).unwrap_err().to_string();
        assert!(said.contains("state.json"), "{word}: {said}");
    }
    std::fs::write(&file, whole).unwrap();

    assert_eq!(
        newest_unfinished(runs.path(), Some("mine")),
        Some(dir.clone())
    );
    assert_eq!(newest_unfinished(runs.path(), Some("other")), None);
    let lock = dir.claim().unwrap();
    assert!(dir.is_live() && matches!(dir.claim(), Err(PipelineError::Busy(_))));
    assert_eq!(newest_unfinished(runs.path(), None), None);
    drop(lock);

    (state.stages[0].status, state.stages[0].run) = (Status::Running, Some("x".into()));
    dir.save(&state).unwrap();
    assert_eq!(
        (dir.running().as_deref(), state.word(false)),
        (Some("x"), "crashed")
    );
    state
        .stages
        .iter_mut()
        .for_each(|stage| stage.status = Status::Done);
    dir.save(&state).unwrap();
    assert_eq!((dir.running(), state.word(false)), (None, "finished"));
    assert_eq!(newest_unfinished(runs.path(), None), None);

    let newer =
        json!({"format": 2, "id": "x", "name": "x", "about": "", "created": 0, "stages": []});
    dir.write("state.json", newer.to_string().as_bytes())
        .unwrap();
    assert!(dir.state().unwrap_err().to_string().contains("format 2"));
}

fn judged(stages: &str) -> Result<Pipeline, PipelineError> {
    let pipeline = parse(stages)?;
    let sources = SpecSources::default();
    pipeline
        .check_judges(&Places::default(), &sources)
        .map(|()| pipeline)
}

#[test]
fn a_reward_model_of_an_earlier_stage_is_named_by_its_stage() {
    let pipeline = judged(
        "stages:
  - {name: rm, train: reward-demo}
  - {name: one, train: grpo-sort, from: scratch, set: {rewards: [exact, {model: {path: rm}, weight: 0.5}]}}
  - {name: two, train: {extends: ppo-demo, rewards: [{model: {path: ./rm}}], method: {ppo: {critic_from: rm}}}, from: one}
  - {name: three, train: ppo-demo, from: one, set: {method.ppo.critic_from: rm}}",
    )
    .unwrap();
    for at in [1, 2, 3] {
        let names: Vec<&str> = pipeline
            .judges_of(at, &SpecSources::default())
            .iter()
            .map(|s| s.name.as_str())
            .collect();
        assert_eq!(names, ["rm"], "stage {at}");
    }
    let Work::Train(two) = &pipeline.stages[2].work else {
        panic!("it trains");
    };
    assert_eq!(two.judges().len(), 2, "a path with a slash is a folder");
    let mut place = |word: &str| Ok::<_, String>((word == "rm").then(|| "/made/rm".to_string()));
    let placed = two.with_judges(&mut place).unwrap();
    assert_eq!(placed.spec["method"]["ppo"]["critic_from"], "/made/rm");
    assert_eq!(placed.spec["rewards"][0]["model"]["path"], "./rm");
    let mut none = |_: &str| Err::<Option<String>, _>("gone".to_string());
    assert_eq!(two.with_judges(&mut none), Err("gone".to_string()));
    // The file keeps the name, so that a stage that is done again is read anew.
    assert_eq!(parse(&pipeline.to_yaml()).unwrap(), pipeline);
}

#[test]
fn a_reward_model_in_the_specs_own_file_is_named_by_its_stage_too() {
    let dir = tempfile::tempdir().unwrap();
    let sources = SpecSources {
        project_dir: dir.path().to_path_buf(),
        ..SpecSources::default()
    };
    let file = "extends: ppo-demo
rewards: [exact, {model: {path: rm}, weight: 0.5}]
method: {ppo: {critic_from: rm}}
";
    std::fs::write(dir.path().join("mine.yaml"), file).unwrap();
    let pipeline = parse(
        "stages:
  - {name: rm, train: reward-demo}
  - {name: one, train: mine.yaml, from: scratch}
  - {name: two, train: {extends: mine.yaml, seed: 3}, from: one}
  - {name: three, train: mine.yaml, from: one, set: {rewards: [exact], method: {ppo: {critic_from: ./rm}}}}
  - {name: four, train: mine.yaml, from: one, set: {method: grpo}}",
    )
    .unwrap();
    pipeline.check_judges(&Places::default(), &sources).unwrap();
    for (at, words) in [(1, 2), (2, 2), (3, 0), (4, 1)] {
        let train = pipeline.training(at, &sources).unwrap();
        let judges = train.judges();
        let of_stage = judges.iter().filter(|word| *word == "rm").count();
        assert_eq!(of_stage, words, "stage {at}: {judges:?}");
        let named = pipeline.judges_of(at, &sources).len();
        assert_eq!(named, words, "stage {at}");
    }
    let one = pipeline.training(1, &sources).unwrap();
    let mut place = |word: &str| Ok::<_, String>((word == "rm").then(|| "/made/rm".to_string()));
    let words = one.with_judges(&mut place).unwrap().words();
    assert!(
        words.contains(&"method.ppo.critic_from=/made/rm".to_string()),
        "{words:?}"
    );
    let rewards = words
        .iter()
        .find(|word| word.starts_with("rewards="))
        .unwrap();
    assert!(
        rewards.contains("exact") && rewards.contains("/made/rm"),
        "{rewards}"
    );
    // A stage that comes later is told as one.
    let late = "stages: [{name: a, train: mine.yaml}, {name: rm, train: reward-demo}]";
    let error = parse(late)
        .unwrap()
        .check_judges(&Places::default(), &sources)
        .unwrap_err();
    assert!(
        error.to_string().contains("stage rm comes after it"),
        "{error}"
    );
    // Where no stage is called so, it is a folder.
    let none = "stages: [{name: a, train: mine.yaml}, {name: b, train: reward-demo}]";
    assert!(
        parse(none)
            .unwrap()
            .check_judges(&Places::default(), &sources)
            .is_ok()
    );
}

#[test]
fn a_reward_model_that_no_earlier_stage_trains_is_refused_with_the_stage() {
    for (text, says) in [
        (
            "stages: [{name: a, train: grpo-sort, set: {rewards: [{model: {path: rm}}]}}, {name: rm, train: reward-demo}]",
            "stage 1 (a): its reward model: stage rm comes after it",
        ),
        (
            "stages: [{name: rm, train: reward-demo}, {name: a, train: grpo-sort, set: {rewards: [{model: {path: mr}}]}}]",
            "stage 2 (a): its reward model: \"mr\" is neither an earlier training stage",
        ),
        (
            "stages: [{name: a, train: grpo-sort, set: {rewards: [{model: {path: a}}]}}]",
            "cannot use itself",
        ),
        (
            "stages: [{name: b, train: x}, {name: rm, export: {}}, {name: a, train: x, set: {method.ppo.critic_from: rm}}]",
            "stage rm trains no model",
        ),
    ] {
        let error = judged(text).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn the_newest_value_of_a_key_is_what_a_begun_stage_goes_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let text = "stages: [{name: base, train: quickstart}]";
    let clock = crate::base::clock::ManualClock::at(0);
    let dir = PipelineDir::create(folder.path(), &parse(text).unwrap(), text, &clock).unwrap();
    let mut state = dir.state().unwrap();
    let stage = &mut state.stages[0];
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    stage.begin("a");
    stage.amend(&words(&["max_steps=9", "engine=torch"]), true);
    stage.amend(&words(&["max_steps=12"]), true);
    assert_eq!(stage.amended, ["engine=torch", "max_steps=12"]);
    // The run's own value again.
    stage.amend(&words(&["max_steps=5"]), false);
    assert_eq!(stage.amended, ["engine=torch"]);
    let again = stage.clone();
    dir.save(&state).unwrap();
    assert_eq!(dir.state().unwrap().stages[0], again);
    // Another run begins with the pipeline's values.
    state.stages[0].begin("b");
    assert!(state.stages[0].amended.is_empty());
}
