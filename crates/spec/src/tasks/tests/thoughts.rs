//! Answers of models that think first: the final message is judged.

use super::*;
use crate::data::chat::Template;
use crate::nn::generate::Finish;

/// A model that writes these answers, one to each prompt, and ends each where its task lets it.
struct Scripted<'a> {
    model: &'a mut dyn AskedModel,
    tokenizer: &'a tokenizer::Tokenizer,
    answers: Vec<&'static str>,
}

impl AskedModel for Scripted<'_> {
    fn shape(&self) -> &crate::nn::ModelShape {
        self.model.shape()
    }

    fn config(&self) -> &crate::nn::ModelConfig {
        self.model.config()
    }

    fn score(
        &mut self,
        groups: &[crate::nn::continuations::Group],
    ) -> Result<Vec<Vec<crate::nn::continuations::Scores>>, String> {
        self.model.score(groups)
    }

    fn answer(
        &mut self,
        prompts: &[Prompt],
        how: Continuing,
        on_token: &mut dyn FnMut(usize, GeneratedToken) -> ControlFlow<()>,
    ) -> Result<Vec<Generated>, GenerateError> {
        assert_eq!(prompts.len(), self.answers.len());
        let answers = self.answers.iter().enumerate();
        let all = answers.map(|(text, answer)| {
            let ids = self.tokenizer.encode(answer).unwrap();
            let (mut tokens, mut finish) = (Vec::new(), Finish::Eos);
            for id in ids {
                tokens.push(id);
                let zero = 0.0;
                let token = GeneratedToken {
                    id,
                    logprob: zero,
                    entropy: zero,
                    tempered: zero,
                };
                if on_token(text, token).is_break() {
                    finish = Finish::Stopped;
                    break;
                }
                if tokens.len() == how.sampling.max_new_tokens {
                    finish = Finish::Length;
                    break;
                }
            }
            Generated {
                tokens,
                finish,
                end: None,
                end_alternatives: Vec::new(),
            }
        });
        Ok(all.collect())
    }
}

const ANSWERS: [&str; 4] = [
    // Neither the 7 nor the empty line of the thoughts counts.
    "<think>\nIs it 7?\n\nNo: 2 + 2.\n</think>\n\nIt is 4.\n\nAnd more.",
    "It is 4.",
    "<think>\nIt is 4</think>\n\nIt is 5.",
    "<think>\nIt is 4, or is it not? Let me think about it again and again and again and again and again, \
     and then once more, and once more, until nothing is left of what I wanted to say, which was not much at all",
];

/// A task with every way to judge: a pattern for the target, one whose absence counts, and a reward.
fn sums(dir: &Path) -> Task {
    let rows = [4; 4].map(|sum| serde_json::json!({"ask": "2 + 2", "sum": sum}));
    let rest = "kind: answer\nchat: true\nprompt: '{{ ask }}'\ntarget: '{{ sum }}'\n\
                answer: {until: [\"\\n\\n\"], max_new_tokens: 80, extract: [{name: found, pattern: '[0-9]'}], \
                counts: [{name: calm, pattern: 'again', absent: true}], rewards: [number]}\n";
    own(dir, rest, &rows)
}

fn asked(template: &str, answers: &[&'static str; 4]) -> (Summary, Vec<Record>) {
    let dir = tempfile::tempdir().unwrap();
    let prepared = sums(dir.path()).prepare(None, &ReadContext::default());
    let prepared = prepared.unwrap();
    let request = Request {
        prepared: &prepared,
        folder: dir.path(),
        model: "scripted",
        fingerprint: "f",
    };
    let mut loaded = subject();
    let Subject {
        model, tokenizer, ..
    } = loaded.subject();
    let mut model = Scripted {
        model,
        tokenizer,
        answers: answers.to_vec(),
    };
    let template = Template::from_jinja("t", template).unwrap();
    let answers = Answers::of(Some(&template), tokenizer);
    let mut subject =
        Subject::new(&mut model, tokenizer, &[]).with_template(Some((&template, answers)));
    let mut run = Run::open(request).unwrap();
    run.evaluate(&mut subject, &mut |_| ControlFlow::Continue(()))
        .unwrap();
    let records = run.finish().records;
    (summarize(prepared.task.config(), &records), records)
}

const THINKS: &str = "{% for m in messages %}{{ m.role }}: {{ m.content.split('</think>')[-1] }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}";

#[test]
fn the_final_message_is_judged_and_answers_that_end_in_their_thoughts_are_counted() {
    let (summary, records) = asked(THINKS, &ANSWERS);
    let texts: Vec<_> = records
        .iter()
        .map(|r| r.answer.as_deref().unwrap())
        .collect();
    assert_eq!(texts, ["It is 4.", "It is 4.", "It is 5.", ""]);
    let first = "Is it 7?\n\nNo: 2 + 2.";
    assert_eq!(records[0].thought.as_deref(), Some(first));
    assert_eq!(records[1].thought, None);
    for metric in ["found", "number"] {
        let scores: Vec<f64> = records.iter().map(|r| r.scores[metric]).collect();
        assert_eq!(scores, [1.0, 1.0, 0.0, 0.0], "{metric}");
    }
    // Silence is no answer, whatever it does not say.
    let calm: Vec<f64> = records.iter().map(|r| r.scores["calm"]).collect();
    assert_eq!(calm, [1.0, 1.0, 1.0, 0.0]);
    assert_eq!((summary.unfinished, summary.truncated), (1, 1));
    assert!(records[3].unfinished && records[3].thought.is_some());
    let line = serde_json::to_string(&records[3]).unwrap();
    assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), records[3]);
}

/// A template that knows no thoughts writes texts: marks in them are text, and a stop text ends them wherever it is.
#[test]
fn answers_of_other_models_are_read_as_they_are() {
    let plain = THINKS.replace(".split('</think>')[-1]", "");
    let (summary, records) = asked(&plain, &ANSWERS);
    assert_eq!(records[0].answer.as_deref(), Some("<think>\nIs it 7?"));
    assert_eq!(records[0].scores["found"], 0.0);
    assert_eq!((summary.unfinished, summary.truncated), (0, 1));
    assert!(records.iter().all(|record| record.thought.is_none()));
}

/// Answers of another program, as lm-evaluation-harness reads them with `think_end_token=</think>`.
#[test]
fn answers_of_a_file_are_read_by_their_marks() {
    let dir = tempfile::tempdir().unwrap();
    let prepared = sums(dir.path()).prepare(None, &ReadContext::default());
    let prepared = prepared.unwrap();
    let mut answers = ANSWERS;
    answers[2] = "It is 7.\n\nOr not.\n</think>\n\nIt is 4.";
    let records = judge(&prepared, answers.map(String::from).to_vec()).unwrap();
    let found: Vec<f64> = records.iter().map(|r| r.scores["found"]).collect();
    assert_eq!(found, [1.0, 1.0, 1.0, 0.0]);
    assert_eq!(summarize(prepared.task.config(), &records).unfinished, 1);
}

#[test]
fn longer_answers_and_prompts_as_turns_are_other_evaluations() {
    let dir = tempfile::tempdir().unwrap();
    let rest = "kind: answer\nprompt: p\ntarget: t\n";
    let row = [serde_json::json!({"x": 1})];
    let task = || own(dir.path(), rest, &row);
    let digest = |task: Task| task.prepare(None, &ReadContext::default()).unwrap().digest;
    let longer = || task().with_max_new_tokens(4096).unwrap();
    assert_eq!(longer().config.answer.max_new_tokens, 4096);
    assert!(task().as_turns().config.chat);
    let digests = [
        digest(task()),
        digest(longer()),
        digest(task().as_turns()),
        digest(longer().as_turns()),
    ];
    let different: std::collections::HashSet<_> = digests.iter().collect();
    assert_eq!(different.len(), 4);
    let same = task().with_max_new_tokens(256).unwrap();
    assert_eq!(digest(same), digests[0]);
    assert!(task().with_max_new_tokens(0).is_err());
    // Log-likelihoods do not change.
    let scored = own(
        dir.path(),
        "kind: continuation\nprompt: p\ntarget: t\n",
        &row,
    );
    let before = digest(scored.clone());
    assert_eq!(
        digest(scored.with_max_new_tokens(9).unwrap().as_turns()),
        before
    );
}
