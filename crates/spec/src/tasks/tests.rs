//! Against lm-evaluation-harness: `tests/oracle/tasks_oracle.py` made the rows, the model and the expectations.

mod thoughts;

use super::config::Kind;
use super::items::{Asked, Item};
use super::*;
use crate::base::paths::Env;
use crate::data::chat::tool_calls::Answers;
use crate::data::source::{ReadContext, SourceConfig};
use crate::data::tokenizer;
use crate::models::ModelSource;
use crate::nn::generate::{
    BrokenLogit, Continuing, GenerateError, Generated, GeneratedToken, Prompt,
};
use serde_json::Value;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

fn oracle() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/oracle/tasks")
}

fn expected() -> Value {
    let text = std::fs::read_to_string(oracle().join("expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn subject() -> Loaded {
    subject_of(|_| {})
}

/// The same with a change to its tokenizer.json.
fn subject_of(change: impl Fn(&mut Value)) -> Loaded {
    let path = oracle().join("model");
    let source = ModelSource::open(&path).unwrap();
    // The fixture is ours: no child process is needed to read it.
    let json = std::fs::read_to_string(path.join("tokenizer.json")).unwrap();
    let marks = tokenizer::Marks {
        bos: Some("<s>".into()),
        eos: Some("</s>".into()),
        ..Default::default()
    };
    let mut json: Value = serde_json::from_str(&json).unwrap();
    change(&mut json);
    let tokenizer = tokenizer::Tokenizer::from_json(&json.to_string()).unwrap();
    Loaded::load(&source, tokenizer.with_marks(marks).unwrap()).unwrap()
}

/// A shipped task on the rows of the fixture.
fn made(name: &str) -> Prepared {
    let rows = |split: &str| {
        let file = oracle().join(format!("rows/{name}-{split}.jsonl"));
        SourceConfig::path(file.to_string_lossy())
    };
    let mut task = load(name, &Env::default()).unwrap();
    task.config.source = rows("test");
    if let Some(shots) = &mut task.config.shots {
        shots.source = rows("dev");
    }
    task.prepare(None, &ReadContext::default()).unwrap()
}

fn answered(prepared: &Prepared, folder: &Path) -> Outcome {
    let request = Request {
        prepared,
        folder,
        model: "tiny",
        fingerprint: "f",
    };
    let mut run = Run::open(request).unwrap();
    if !run.is_whole() {
        run.evaluate(&mut subject().subject(), &mut |_| ControlFlow::Continue(()))
            .unwrap();
    }
    run.finish()
}

const TASKS: [&str; 8] = [
    "arc_easy",
    "hellaswag",
    "winogrande",
    "boolq",
    "lambada",
    "mmlu",
    "piqa",
    "openbookqa",
];

#[test]
fn prompts_log_likelihoods_and_accuracies_are_those_of_the_harness() {
    let expected = expected();
    let dir = tempfile::tempdir().unwrap();
    for name in TASKS {
        let prepared = made(name);
        let outcome = answered(&prepared, dir.path());
        let items = expected[name]["items"].as_array().unwrap();
        assert_eq!(outcome.records.len(), items.len(), "{name}");
        for (record, item) in outcome.records.iter().zip(items) {
            let asked: Vec<(String, String)> =
                serde_json::from_value(item["arguments"].clone()).unwrap();
            for (at, (context, continuation)) in asked.iter().enumerate() {
                let own = record.prompts.get(at).unwrap_or(&record.prompt);
                assert_eq!(own, context, "{name} {}", record.place);
                assert_eq!(&record.scored[at].text, continuation, "{name}");
                let logp = item["logps"][at].as_f64().unwrap();
                let off = (record.scored[at].logp - logp).abs();
                assert!(off < 1e-4, "{name} {}: {off}", record.place);
                let greedy = item["greedy"][at].as_bool().unwrap();
                assert_eq!(record.scored[at].greedy, greedy, "{name}");
            }
            for metric in ["acc", "acc_norm"] {
                if let Some(value) = item.get(metric) {
                    assert_eq!(record.scores[metric], value.as_f64().unwrap(), "{name}");
                }
            }
        }
        let summary = summarize(prepared.task.config(), &outcome.records);
        for (metric, value) in expected[name]["results"].as_object().unwrap() {
            let of_all = |r: &&Reading| r.group.is_none() && &r.metric == metric;
            let Some(reading) = summary.readings.iter().find(of_all) else {
                continue;
            };
            let value = value.as_f64().unwrap();
            assert!(
                (reading.value - value).abs() < 1e-4 * value.max(1.0),
                "{name} {metric}"
            );
            if let Some(stderr) = expected[name]["stderr"][metric].as_f64() {
                assert!(
                    (reading.stderr.unwrap() - stderr).abs() < 1e-9,
                    "{name} {metric}"
                );
            }
        }
    }
}

#[test]
fn answers_of_gsm8k_are_found_as_the_harness_finds_them() {
    let task = load("gsm8k", &Env::default()).unwrap();
    for case in expected()["gsm8k"].as_array().unwrap() {
        let said = |key: &str| case[key].as_str().unwrap().to_string();
        let item = Item {
            number: 0,
            place: String::new(),
            group: None,
            asked: Asked::Answer {
                prompt: String::new(),
                prefix: None,
                target: said("target"),
                patterns: Vec::new(),
                instructions: Vec::new(),
                program: None,
                metadata: Default::default(),
            },
        };
        let record = answers::judged(&task, &item, said("answer").into(), 0);
        assert_eq!(record.scores["strict"], case["strict-match"], "{case}");
        assert_eq!(
            record.scores["flexible"], case["flexible-extract"],
            "{case}"
        );
    }
}

#[test]
fn what_was_broken_off_goes_on_and_nothing_is_asked_twice() {
    let dir = tempfile::tempdir().unwrap();
    let prepared = made("piqa");
    let first = answered(&prepared, dir.path());
    assert_eq!((first.kept, first.records.len()), (0, 10));
    let text = std::fs::read_to_string(&first.file).unwrap();
    let kept: String = text.split_inclusive('\n').take(5).collect();
    std::fs::write(&first.file, kept + "{\"item\":").unwrap();
    let second = answered(&prepared, dir.path());
    assert_eq!(second.kept, 4);
    let scores = |o: &Outcome| {
        o.records
            .iter()
            .map(|r| r.scores.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(scores(&first), scores(&second));
    assert_eq!(answered(&prepared, dir.path()).kept, 10);
}

#[test]
fn made_up_tasks_are_answered_by_any_model() {
    let dir = tempfile::tempdir().unwrap();
    for name in [
        "made_arithmetic",
        "made_sort",
        "made_recall",
        "made_needle_256",
    ] {
        let prepared = load(name, &Env::default()).unwrap();
        let prepared = prepared.prepare(Some(5), &ReadContext::default()).unwrap();
        let outcome = answered(&prepared, dir.path());
        assert_eq!(outcome.records.len(), 5, "{name}");
        let summary = summarize(prepared.task.config(), &outcome.records);
        assert_eq!(summary.headline().unwrap().n, 5);
        // Lists of 256 pairs are longer than the model's context.
        assert_eq!(summary.cut, if name == "made_needle_256" { 5 } else { 0 });
        if prepared.task.config().kind == Kind::Answer {
            assert!(outcome.records.iter().all(|r| r.answer.is_some()));
        }
    }
}

#[test]
fn a_text_is_read_in_windows_and_each_of_its_tokens_is_predicted_once() {
    let dir = tempfile::tempdir().unwrap();
    let text = "the red dog runs under the tree. ".repeat(40);
    let file = dir.path().join("rows.jsonl");
    std::fs::write(&file, format!("{}\n", serde_json::json!({"page": text}))).unwrap();
    let mut task = load("wikitext", &Env::default()).unwrap();
    task.config.source = SourceConfig::path(file.to_string_lossy());
    let prepared = task.prepare(None, &ReadContext::default()).unwrap();
    let outcome = answered(&prepared, dir.path());
    let scores = &outcome.records[0].scores;
    let tokens = subject().subject().tokenizer.encode(&text).unwrap().len();
    assert!(tokens > 320, "{tokens} tokens are fewer than two windows");
    assert_eq!(
        (scores["tokens"], scores["bytes"]),
        (tokens as f64, text.len() as f64)
    );
    let summary = summarize(prepared.task.config(), &outcome.records);
    let bits = -scores["logp"] / std::f64::consts::LN_2 / text.len() as f64;
    assert!((summary.headline().unwrap().value - bits).abs() < 1e-9);
}

/// A tokenizer whose own file begins texts: that token is given, as the one is that stands in for it elsewhere.
#[test]
fn the_token_that_begins_texts_is_given_once_and_never_predicted() {
    let mut plain = subject();
    let mut leading = subject_of(|json| {
        json["post_processor"]["single"] = serde_json::json!([
            {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
        ]);
        json["post_processor"]["special_tokens"] =
            serde_json::json!({"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}});
    });
    assert_eq!(leading.subject().tokenizer.lead(), [0]);
    for text in ["the red dog runs", &"the red dog. ".repeat(200)] {
        let windows = plain.subject().windows(text).unwrap();
        assert_eq!(leading.subject().windows(text).unwrap(), windows);
        assert_eq!(windows[0].context, [0]);
    }
}

/// Expected: what `wikitext_detokenizer` of lm-evaluation-harness makes of the page.
#[test]
fn pages_of_wikitext_are_read_as_in_the_harness_and_measured_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let page = " \n = Robert Boulter = \n \n Robert Boulter is an English film , television and theatre actor . He had a guest @-@ starring role in \" Herons \" ( 2001 ) ; it cost $ 1 @,@ 000 @.@ 5 : why ? So ! \n \n = = Career = = \n \n = = = 2000 – 2005 = = = \n \n The actors ' work { sic } was [ see note ] called ' the best ' by the BBC 's Jones at 90 ° N or N times . /' 4/ \n";
    let file = dir.path().join("rows.jsonl");
    std::fs::write(&file, format!("{}\n", serde_json::json!({"page": page}))).unwrap();
    let mut task = load("wikitext", &Env::default()).unwrap();
    task.config.source = SourceConfig::path(file.to_string_lossy());
    let prepared = task.prepare(None, &ReadContext::default()).unwrap();
    let wanted = "\n= Robert Boulter =\n\nRobert Boulter is an English film, television and theatre actor. He had a guest-starring role in \"Herons\" (2001); it cost $ 1,000.5: why? So!\n\n== Career ==\n\n=== 2000 – 2005 ===\n\nThe actors'work {sic} was [see note] called' the best 'by the BBC's Jones at 90°N or 1 times. /'[0-9]/\n";
    let Asked::Text { text, bytes } = &prepared.items[0].asked else {
        panic!("no text")
    };
    assert_eq!(text, wanted);
    assert_eq!(*bytes, Some(page.len()));
}

#[test]
fn what_cannot_be_had_is_said_with_its_task() {
    let error = load("arc_easy", &Env::default())
        .unwrap()
        .prepare(None, &ReadContext::default());
    let error = error.unwrap_err();
    assert!(error.to_string().contains("arc_easy"), "{error}");
    assert!(!error.hint().is_empty());
}

/// A task of three fixed prompts over a file of rows.
fn turns(dir: &Path, answer: &str) -> Task {
    let rows = dir.join("prompts.jsonl");
    let row = |ask: &str, expect: &str| serde_json::json!({"ask": ask, "expect": expect});
    let text = format!(
        "{}\n{}\n",
        row("who runs?", "(?i)dog"),
        row("where?", "tree|house")
    );
    std::fs::write(&rows, text).unwrap();
    let file = dir.join("fixed.yaml");
    let yaml = format!(
        "name: fixed\nversion: 1\nsummary: s\nkind: answer\nchat: true\nsource: prompts.jsonl\nprompt: '{{{{ ask }}}}'\nanswer: {answer}\n"
    );
    std::fs::write(&file, yaml).unwrap();
    load(&file.to_string_lossy(), &Env::default()).unwrap()
}

#[test]
fn fixed_prompts_are_turns_and_their_patterns_depend_on_the_row() {
    let dir = tempfile::tempdir().unwrap();
    let task = turns(
        dir.path(),
        "{until: [], max_new_tokens: 4, counts: [{name: passed, pattern: '{{ expect }}'}, {name: silent, pattern: '.', absent: true}]}",
    );
    let prepared = task.prepare(None, &ReadContext::default()).unwrap();
    let record = |at: usize, answer: &str| {
        answers::judged(&prepared.task, &prepared.items[at], answer.into(), 0).scores
    };
    let scores = |passed: f64, silent: f64| {
        [
            ("passed".to_string(), passed),
            ("silent".to_string(), silent),
        ]
        .into()
    };
    assert_eq!(record(0, "A Dog."), scores(1.0, 0.0));
    assert_eq!(record(1, "A Dog."), scores(0.0, 0.0));
    assert_eq!(record(1, ""), scores(0.0, 1.0));

    // A base model brings no template: it is left out, with the reason.
    let ask = |loaded: &mut Loaded, name: &str| {
        let request = Request {
            prepared: &prepared,
            folder: &dir.path().join(name),
            model: "tiny",
            fingerprint: "f",
        };
        let mut run = Run::open(request).unwrap();
        let asked = run.evaluate(&mut loaded.subject(), &mut |_| ControlFlow::Continue(()));
        asked.map(|()| run.finish())
    };
    let error = ask(&mut subject(), "base").unwrap_err();
    assert!(
        error.is_of_the_model() && error.to_string().contains("base model"),
        "{error}"
    );
    let template = crate::data::chat::Template::from_jinja(
        "t",
        "{% for m in messages %}the {{ m.content }} {% endfor %}",
    );
    let mut chat = subject().with_template(template.ok());
    let outcome = ask(&mut chat, "chat").unwrap();
    assert_eq!(chat.subject().as_turn("dog", None).unwrap(), "the dog ");
    // The assistant's turn is begun, and its end is left to the model.
    let begun = chat.subject().as_turn("dog", Some("cat:\n")).unwrap();
    assert_eq!(begun, "the dog the cat:\n");
    let stripping = crate::data::chat::Template::from_jinja(
        "t",
        "{% for m in messages %}<{{ m.content | trim }}>{% endfor %}",
    );
    let mut chat = subject().with_template(stripping.ok());
    let begun = chat.subject().as_turn("dog", Some("cat:\n")).unwrap();
    assert_eq!(begun, "<dog><cat:");
    let summary = summarize(prepared.task.config(), &outcome.records);
    assert_eq!((summary.headline.as_str(), summary.items), ("passed", 2));
    assert!(
        outcome
            .records
            .iter()
            .all(|r| r.target.is_none() && r.answer.is_some())
    );
}

#[test]
fn instructions_of_a_prompt_are_counted_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let rows = serde_json::json!({
        "prompt": "Write ten words without commas.",
        "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
        "kwargs": [{}, {"num_words": 10.0, "relation": "at least", "num_bullets": null}],
    });
    let file = dir.path().join("rows.jsonl");
    std::fs::write(&file, format!("{rows}\n")).unwrap();
    let mut task = load("ifeval", &Env::default()).unwrap();
    task.config.source = SourceConfig::path(file.to_string_lossy());
    let prepared = task.prepare(None, &ReadContext::default()).unwrap();
    let judged =
        |answer: &str| answers::judged(&prepared.task, &prepared.items[0], answer.into(), 0);
    let short = judged("Too short");
    assert_eq!(short.found["1 punctuation:no_comma"], "followed");
    assert_eq!(
        short.found["2 length_constraints:number_words"],
        "not followed"
    );
    let whole = judged("Sure, here:\none two three four five six seven eight nine ten");
    assert_eq!(whole.found["1 punctuation:no_comma"], "followed loosely");
    let summary = summarize(prepared.task.config(), &[short, whole]);
    let value = |metric: &str| {
        let reading = summary.readings.iter().find(|r| r.metric == metric);
        reading.unwrap().value
    };
    assert_eq!(value("prompt_level_strict_acc"), 0.0);
    assert_eq!(value("inst_level_strict_acc"), 0.5);
    assert_eq!(value("prompt_level_loose_acc"), 0.5);
    assert_eq!(value("inst_level_loose_acc"), 0.75);
}

#[test]
fn a_task_that_judges_nothing_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let said = |answer: &str, kind: &str| {
        let file = dir.path().join("t.yaml");
        let yaml = format!(
            "name: t\nversion: 1\nsummary: s\nkind: {kind}\nchat: true\nsource: x.jsonl\nprompt: p\n{answer}"
        );
        std::fs::write(&file, yaml).unwrap();
        load(&file.to_string_lossy(), &Env::default())
            .unwrap_err()
            .to_string()
    };
    assert!(said("", "answer").contains("answer.counts"));
    assert!(said("answer: {counts: [{name: a, pattern: '('}]}", "answer").contains("("));
    assert!(said("", "text").contains("`chat`"));
}

/// A task of one's own: `rest` follows its name, over these rows.
fn own(dir: &Path, rest: &str, rows: &[Value]) -> Task {
    let rows: Vec<String> = rows.iter().map(|row| format!("{row}\n")).collect();
    std::fs::write(dir.join("rows.jsonl"), rows.concat()).unwrap();
    let file = dir.join("own.yaml");
    let yaml = format!("name: own\nversion: 1\nsummary: s\nsource: rows.jsonl\n{rest}");
    std::fs::write(&file, yaml).unwrap();
    load(&file.to_string_lossy(), &Env::default()).unwrap()
}

/// Completions of rows begin with a blank as often as not; so do answers.
#[test]
fn white_space_around_a_target_is_no_part_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let rows = [(" 46", 1), ("2\n", 2)];
    let rows = rows.map(|(target, n)| serde_json::json!({"prompt": n, "completion": target}));
    let rest = "kind: answer\nprompt: '{{ prompt }}'\ntarget: '{{ completion }}'\n\
                answer: {extract: [{name: exact}, {name: number, pattern: '[0-9]+'}], ignore: ['dollars']}\n";
    let task = own(dir.path(), rest, &rows);
    let prepared = task.prepare(None, &ReadContext::default()).unwrap();
    let of = |answers: [&str; 2]| -> Vec<f64> {
        let records = judge(&prepared, answers.map(String::from).to_vec()).unwrap();
        let scores = records.iter().flat_map(|r| r.scores.values());
        scores.copied().collect()
    };
    assert_eq!(of([" 46", "2"]), [1.0; 4]);
    assert_eq!(of(["46 dollars", " 2"]), [1.0; 4]);
    assert_eq!(of(["4 6", "3"]), [0.0; 4]);
}

/// Subjects stand one after another in MMLU: the first 100 rows are one of 57.
#[test]
fn a_limit_takes_as_many_rows_of_each_group() {
    let dir = tempfile::tempdir().unwrap();
    let groups = ["z", "z", "z", "z", "a", "a", "m"].iter().enumerate();
    let rows = groups.map(|(n, of)| serde_json::json!({"n": n, "of": of}));
    let rows: Vec<Value> = rows.collect();
    let prepared = |group: &str, limit: usize| {
        let rest = format!("kind: continuation\nprompt: '{{{{ n }}}}'\ntarget: x\n{group}");
        let task = own(dir.path(), &rest, &rows);
        task.prepare(Some(limit), &ReadContext::default()).unwrap()
    };
    let asked = |prepared: &Prepared| -> Vec<String> {
        let context = |item: &Item| match &item.asked {
            Asked::Continuation { context, .. } => context.clone(),
            other => panic!("{other:?}"),
        };
        prepared.items.iter().map(context).collect()
    };
    let group = "group: of\n";
    assert_eq!(asked(&prepared(group, 3)), ["0", "4", "6"]);
    assert_eq!(asked(&prepared(group, 2)), ["0", "4"]);
    let six = prepared(group, 6);
    assert_eq!(asked(&six), ["0", "1", "2", "4", "5", "6"]);
    assert_eq!(six.extent(), "6 rows, of 3 groups");
    assert!(
        six.items
            .iter()
            .enumerate()
            .all(|(at, item)| item.number == at)
    );
    assert_eq!(asked(&prepared(group, 9)).len(), 7);
    let plain = prepared("", 3);
    assert_eq!(asked(&plain), ["0", "1", "2"]);
    assert_eq!(plain.extent(), "3 rows");
}

/// A model whose activations overflow.
struct Diverged<'a>(&'a mut dyn AskedModel);

impl AskedModel for Diverged<'_> {
    fn shape(&self) -> &crate::nn::ModelShape {
        self.0.shape()
    }

    fn config(&self) -> &crate::nn::ModelConfig {
        self.0.config()
    }

    fn score(
        &mut self,
        groups: &[crate::nn::continuations::Group],
    ) -> Result<Vec<Vec<crate::nn::continuations::Scores>>, String> {
        let mut scores = self.0.score(groups)?;
        if let Some(logp) = scores
            .iter_mut()
            .flatten()
            .flat_map(|s| &mut s.logps)
            .last()
        {
            *logp = f32::NAN;
        }
        Ok(scores)
    }

    fn answer(
        &mut self,
        _: &[Prompt],
        _: Continuing,
        _: &mut dyn FnMut(usize, GeneratedToken) -> ControlFlow<()>,
    ) -> Result<Vec<Generated>, GenerateError> {
        let (token, value) = (0, f32::NAN);
        Err(GenerateError::NotFinite(BrokenLogit { token, value }))
    }
}

#[test]
fn a_likelihood_or_a_logit_that_is_nan_is_no_accuracy() {
    let dir = tempfile::tempdir().unwrap();
    let written = load("made_arithmetic", &Env::default()).unwrap();
    let written = written.prepare(Some(2), &ReadContext::default()).unwrap();
    for prepared in [&made("piqa"), &written] {
        let request = Request {
            prepared,
            folder: dir.path(),
            model: "tiny",
            fingerprint: "f",
        };
        let mut loaded = subject();
        let Subject {
            model, tokenizer, ..
        } = loaded.subject();
        let mut model = Diverged(model);
        let mut subject = Subject::new(&mut model, tokenizer, &[]);
        let mut run = Run::open(request).unwrap();
        let error = run.evaluate(&mut subject, &mut |_| ControlFlow::Continue(()));
        let error = error.unwrap_err();
        assert!(matches!(error, TaskError::NotFinite), "{error}");
        assert!(!error.is_of_the_model() && !run.is_whole());
    }
}

/// Expected: humaneval.yaml, humaneval_instruct.yaml and mbpp.yaml of lm-evaluation-harness 0.4.13.
#[test]
fn programs_are_asked_for_as_in_the_harness() {
    let rows = |dir: &Path, name: &str, rows: &[Value]| {
        let file = dir.join(name);
        let rows: Vec<String> = rows.iter().map(|row| format!("{row}\n")).collect();
        std::fs::write(&file, rows.concat()).unwrap();
        SourceConfig::path(file.to_string_lossy())
    };
    let asked = |task: &Task, row: &Value, shots: &[Value]| {
        let mut task = task.clone();
        // Whether programs can be run here does not matter.
        task.config.answer.python = None;
        let dir = tempfile::tempdir().unwrap();
        task.config.source = rows(dir.path(), "rows.jsonl", std::slice::from_ref(row));
        if let Some(own) = &mut task.config.shots {
            own.source = rows(dir.path(), "shots.jsonl", shots);
        }
        let mut prepared = task.prepare(None, &ReadContext::default()).unwrap();
        match prepared.items.remove(0).asked {
            Asked::Answer {
                prompt,
                prefix,
                program,
                ..
            } => (prompt, prefix, program.unwrap()),
            other => panic!("{other:?}"),
        }
    };
    let load = |name: &str| load(name, &Env::default()).unwrap();
    let row = serde_json::json!({"prompt": "def f():\n", "test": "def check(c): pass\n", "entry_point": "f"});
    let base = load("humaneval");
    assert_eq!(base.config.answer.max_new_tokens, 1024);
    assert_eq!(asked(&base, &row, &[]).0, "def f():\n");
    let instruct = load("humaneval_instruct");
    assert_eq!(instruct.config.answer.until, base.config.answer.until);
    let (prompt, prefix, program) = asked(&instruct, &row, &[]);
    let begin =
        "Write a solution to the following problem and make sure that it passes the tests:\n";
    assert_eq!(prompt, format!("{begin}```python\ndef f():\n\n```\n"));
    let begun = "Here is the completed function:\n```python\ndef f():\n\n";
    assert_eq!(prefix.as_deref(), Some(begun));
    assert!(program.starts_with("def f():\n") && program.ends_with("check(f)\n"));
    let code = |task: &Task, answer| {
        let python = task.config.answer.python.as_ref().unwrap();
        python.code.of(answer).to_string()
    };
    let answer = "    return 1\n```\nso\n```\nx\n```";
    assert_eq!(code(&instruct, answer), "    return 1\n");
    assert_eq!(code(&base, answer), answer);

    let mbpp = load("mbpp");
    assert_eq!(mbpp.config.answer.max_new_tokens, 256);
    assert_eq!(code(&mbpp, answer), answer);
    let problem = |n: usize| {
        let tests: Vec<String> = (0..4).map(|t| format!("assert f({t}) == {n}")).collect();
        serde_json::json!({"text": format!("Problem {n}."), "code": format!("code {n}"), "test_list": tests,
            "test_setup_code": "", "task_id": n})
    };
    let shots: Vec<Value> = (1..=10).map(problem).collect();
    let (prompt, _, program) = asked(&mbpp, &problem(11), &shots);
    let one = |n: usize| {
        format!(
            "You are an expert Python programmer, and here is your task: Problem {n}. Your code should pass these tests:\n\n\
             assert f(0) == {n}\nassert f(1) == {n}\nassert f(2) == {n}\n[BEGIN]\n"
        )
    };
    let worked = [2, 3, 4].map(|n| format!("{}code {n}\n[DONE]\n\n", one(n)));
    assert_eq!(prompt, format!("{}{}", worked.concat(), one(11)));
    assert!(!program.contains("f(3)"), "{program}");
}
