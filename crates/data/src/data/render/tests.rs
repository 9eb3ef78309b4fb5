//! Documents compared with those of TRL's trainer (`tests/oracle/masks_oracle.py`), and what is rejected.

mod messages;

use super::*;
use crate::data::Unit;
use serde_json::json;

const TOKENIZER: &str = include_str!("../../../../../tests/fixtures/chat/tokenizer.json");
const MASKS: &str = include_str!("../../../../../tests/fixtures/chat/masks.json");

fn tokenizer() -> Arc<Tokenizer> {
    Arc::new(Tokenizer::from_json(TOKENIZER).unwrap())
}

pub(super) fn place() -> Place {
    Place {
        file: "chat.jsonl".into(),
        row: 7,
    }
}

pub(super) fn renderer(template: &str, train_on: TrainOn) -> Renderer {
    Renderer::new(
        tokenizer(),
        Some(Template::builtin(template).unwrap()),
        train_on,
    )
}

fn chat(turns: &[(&str, &str)]) -> Example {
    Example::new(Content::Chat(messages(turns)))
}

fn messages(turns: &[(&str, &str)]) -> Vec<Message> {
    turns
        .iter()
        .map(|(role, text)| Message::new(*role, *text))
        .collect()
}

pub(super) fn supervised(renderer: &Renderer, document: &Document) -> String {
    let ids = document.ids.iter().zip(&document.supervised);
    let ids: Vec<u32> = ids
        .filter(|(_, supervised)| **supervised)
        .map(|(id, _)| *id)
        .collect();
    renderer.tokenizer().decode(&ids)
}

fn example(case: &Value) -> Example {
    let row = &case["row"];
    let side = |name: &str| serde_json::from_value::<Turns>(row[name].clone()).unwrap();
    Example::new(match case["kind"].as_str().unwrap() {
        "chat" => Content::Chat(serde_json::from_value(row["messages"].clone()).unwrap()),
        "completion" => Content::Completion {
            prompt: side("prompt"),
            completion: side("completion"),
        },
        _ => Content::Text(row["text"].as_str().unwrap().to_string()),
    })
}

#[test]
fn ids_and_masks_are_those_of_trl() {
    let cases: Vec<Value> = serde_json::from_str(MASKS).unwrap();
    assert_eq!(cases.len(), 62);
    for case in &cases {
        let train_on = serde_json::from_value(case["train_on"].clone()).unwrap();
        let template = case["template"]
            .as_str()
            .map(|t| Template::builtin(t).unwrap());
        let renderer = Renderer::new(tokenizer(), template, train_on);
        let document = renderer.document(&example(case), &place()).unwrap();
        let ids: Vec<u32> = serde_json::from_value(case["ids"].clone()).unwrap();
        assert_eq!(document.ids, ids, "{case}");
        let mut theirs: Vec<bool> = serde_json::from_value(case["supervised"].clone()).unwrap();
        // TRL leaves the first token's label where it is: its trainer drops it when it shifts.
        theirs[0] = false;
        assert_eq!(
            document.supervised,
            theirs,
            "{case}\n{}",
            renderer.tokenizer().decode(&ids)
        );
    }
}

#[test]
fn a_template_whose_turns_end_otherwise_than_texts_has_both_ends() {
    let source =
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
    let template = Template::from_jinja("t", source)
        .unwrap()
        .with_variable("eos_token", "<|endoftext|>");
    let tokenizer = tokenizer();
    let names = |ids: Vec<u32>| -> Vec<String> {
        ids.iter().map(|id| tokenizer.token(*id).unwrap()).collect()
    };
    let ends = end_tokens(&tokenizer, Some(&template));
    assert_eq!(names(ends), ["<|im_end|>", "<|endoftext|>"]);
    // Where nothing special stands after an answer, its author's word counts.
    let plain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
    let plain = Template::from_jinja("t", plain)
        .unwrap()
        .with_variable("eos_token", "<|endoftext|>");
    assert_eq!(names(turn_ends(&plain, &tokenizer)), ["<|endoftext|>"]);
}

#[test]
fn the_token_that_ends_a_turn_or_a_text_is_supervised() {
    for builtin in BUILTIN {
        let renderer = renderer(builtin.name, TrainOn::Auto);
        let document = renderer
            .document(&chat(&[("user", "QQ"), ("assistant", "hello")]), &place())
            .unwrap();
        let said = supervised(&renderer, &document);
        let end = format!("hello{}", builtin.turn_end);
        assert!(
            said.ends_with(&end) && !said.contains("QQ"),
            "{}: {said}",
            builtin.name
        );
        let ends = renderer.end_tokens();
        let ids = document.ids.iter().zip(&document.supervised);
        assert!(
            ids.into_iter()
                .any(|(id, supervised)| *supervised && ends.contains(id))
        );
    }
    let plain = Renderer::new(tokenizer(), None, TrainOn::Auto);
    let document = plain
        .document(&Example::new(Content::Text("hello".into())), &place())
        .unwrap();
    assert_eq!(document.ids.last().copied(), plain.tokenizer().eos());
}

#[test]
fn a_templates_first_token_is_not_doubled() {
    let renderer = renderer("llama3", TrainOn::Auto);
    let document = renderer
        .document(&chat(&[("user", "hi"), ("assistant", "ho")]), &place())
        .unwrap();
    let bos = renderer.tokenizer().id("<|begin_of_text|>").unwrap();
    assert_eq!(document.ids.iter().filter(|id| **id == bos).count(), 1);
    assert_eq!(document.ids[0], bos);
}

/// Llama's tokenizers put `<s>` in front of every text; a template writes it itself.
#[test]
fn a_tokenizers_own_first_token_begins_texts_and_completions_once() {
    let mut json: Value = serde_json::from_str(TOKENIZER).unwrap();
    let id = tokenizer().id("<s>").unwrap();
    json["post_processor"] = json!({
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [id], "tokens": ["<s>"]}},
    });
    let tokenizer = Arc::new(Tokenizer::from_json(&json.to_string()).unwrap());
    assert_eq!(tokenizer.lead(), [id]);
    let template = Template::builtin("mistral").unwrap();
    let renderer = Renderer::new(tokenizer, Some(template), TrainOn::Auto);
    let rows = [
        Content::Text("one".into()),
        Content::Text("<s>one".into()),
        Content::Completion {
            prompt: Turns::Text("one".into()),
            completion: Turns::Text(" two".into()),
        },
        Content::Chat(messages(&[("user", "hi"), ("assistant", "ho")])),
    ];
    for content in rows {
        let document = renderer.document(&Example::new(content), &place()).unwrap();
        assert_eq!(
            document.ids.iter().filter(|i| **i == id).count(),
            1,
            "{document:?}"
        );
        assert_eq!((document.ids[0], document.supervised[0]), (id, false));
    }
    // A file of several MiB comes in pieces.
    let mut piece = Example::new(Content::Text("one".into()));
    piece.extra.insert(CONTINUES.into(), Value::Bool(true));
    let piece = renderer.document(&piece, &place()).unwrap();
    assert!(!piece.ids.contains(&id), "{piece:?}");
    let prompt = renderer
        .prompt(&Turns::Text("one".into()), None, &place())
        .unwrap();
    assert_eq!(prompt[0], id);
}

/// The Qwen 2.5 and Gemma templates as their models bring them, without marks: a built-in one knows the same text.
#[test]
fn a_foreign_template_that_prints_what_a_built_in_one_prints_is_masked_like_it() {
    let source = "{{ bos_token }}{% for m in messages %}{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' + m.content | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}";
    let foreign = Template::from_jinja("folder", source)
        .unwrap()
        .with_variable("bos_token", "<bos>");
    assert!(!foreign.marks_generation());
    let ours = renderer("gemma", TrainOn::Assistant);
    let theirs = Renderer::new(tokenizer(), Some(foreign), TrainOn::Assistant);
    assert_eq!(theirs.twin.as_ref().map(Template::name), Some("gemma"));
    let row = chat(&[
        ("user", "a"),
        ("assistant", " b "),
        ("user", "c"),
        ("assistant", "d"),
    ]);
    assert_eq!(
        theirs.document(&row, &place()),
        ours.document(&row, &place())
    );
}

#[test]
fn a_template_that_forgets_is_refused_and_told_how_to_mend() {
    let source = "{% for m in messages %}[{{ m.role }}]{% if loop.last %}({{ m.content }}){% else %}{{ m.content }}{% endif %}{% endfor %}";
    let template = Template::from_jinja("t", source).unwrap();
    let renderer = Renderer::new(tokenizer(), Some(template), TrainOn::Auto);
    let fault = renderer
        .document(
            &chat(&[
                ("user", "a"),
                ("assistant", "b"),
                ("user", "c"),
                ("assistant", "d"),
            ]),
            &place(),
        )
        .unwrap_err();
    assert!(fault.to_string().starts_with("chat.jsonl:7: "), "{fault}");
    assert!(fault.fix.contains("{% generation %}"), "{}", fault.fix);
}

#[test]
fn only_the_last_answer_is_learnt_where_the_completion_of_a_conversation_is_asked_for() {
    let row = chat(&[
        ("user", "a"),
        ("assistant", "one"),
        ("user", "b"),
        ("assistant", "two"),
    ]);
    let renderer = renderer("chatml", TrainOn::Completion);
    let document = renderer.document(&row, &place()).unwrap();
    assert_eq!(supervised(&renderer, &document), "two<|im_end|>");
}

#[test]
fn special_tokens_in_data_are_tokens_and_are_counted() {
    let renderer = renderer("chatml", TrainOn::Auto);
    let row = chat(&[("user", "a<|im_end|>"), ("assistant", "b")]);
    let document = renderer.document(&row, &place()).unwrap();
    let end = renderer.end_tokens()[0];
    assert_eq!(document.ids.iter().filter(|id| **id == end).count(), 3);
    renderer
        .document(&chat(&[("user", "a"), ("assistant", "b")]), &place())
        .unwrap();
    let counts = renderer.counts();
    assert_eq!((counts.documents, counts.special_tokens_in_data), (2, 1));
}

#[test]
fn rows_without_an_answer_are_counted_and_merged_boundaries_too() {
    let renderer = renderer("chatml", TrainOn::Auto);
    let document = renderer
        .document(&chat(&[("user", "a")]), &place())
        .unwrap();
    assert_eq!(document.supervised_tokens(), 0);
    let merging = Example::new(Content::Completion {
        prompt: Turns::Text("th".into()),
        completion: Turns::Text("e".into()),
    });
    renderer.document(&merging, &place()).unwrap();
    let silent = Example::new(Content::Completion {
        prompt: Turns::Text("th\n".into()),
        completion: Turns::Text(" ".into()),
    });
    renderer.document(&silent, &place()).unwrap();
    let counts = renderer.counts();
    assert_eq!(
        (counts.nothing_supervised, counts.merged_boundaries),
        (1, 1)
    );
    assert_eq!(counts.empty_answers, 1);
}

#[test]
fn what_cannot_be_a_document_says_what_to_do() {
    let without = Renderer::new(tokenizer(), None, TrainOn::Auto);
    let fault = without
        .document(&chat(&[("user", "a")]), &place())
        .unwrap_err();
    assert!(fault.fix.contains("data.template"), "{}", fault.fix);
    let of_a_verb = without.with_template_fix("name one with --template");
    let fault = of_a_verb
        .document(&chat(&[("user", "a")]), &place())
        .unwrap_err();
    assert_eq!(fault.fix, "name one with --template");
    let renderer = renderer("chatml", TrainOn::Auto);
    let fault = renderer.document(&chat(&[]), &place()).unwrap_err();
    assert!(fault.what.contains("without turns"), "{fault}");
    let prompt = Example::new(Content::Prompt {
        prompt: Turns::Text("a".into()),
        answer: None,
    });
    assert!(renderer.document(&prompt, &place()).is_err());
    let fault = renderer
        .post_training(&chat(&[("user", "a")]), &place(), Unit::Pair)
        .unwrap_err();
    assert!(
        fault.what.contains("a chosen and a rejected answer"),
        "{}",
        fault.what
    );
    assert!(fault.fix.contains("sft"), "{}", fault.fix);
}

#[test]
fn preferences_labels_and_prompts_become_sides() {
    let renderer = renderer("chatml", TrainOn::All);
    let turn = |role: &str, text: &str| Turns::Messages(messages(&[(role, text)]));
    let sides = renderer.post_training(
        &Example::new(Content::Preference {
            prompt: turn("user", "q"),
            chosen: turn("assistant", "good"),
            rejected: turn("assistant", "bad"),
        }),
        &place(),
        Unit::Pair,
    );
    let Ok(PostTrainingExample::Preference { chosen, rejected }) = sides else {
        panic!("{sides:?}");
    };
    assert_eq!(supervised(&renderer, &chosen), "good<|im_end|>\n");
    assert_eq!(supervised(&renderer, &rejected), "bad<|im_end|>\n");
    let prompt = renderer.prompt(&turn("user", "q"), None, &place()).unwrap();
    assert_eq!(chosen.ids[..prompt.len()], prompt);
    let labelled = Example::new(Content::Labelled {
        prompt: Turns::Text("one".into()),
        completion: Turns::Text(" two".into()),
        desirable: false,
    });
    let Ok(PostTrainingExample::Labelled {
        answer,
        desirable: false,
    }) = renderer.post_training(&labelled, &place(), Unit::Judged)
    else {
        panic!("a labelled row has one answer");
    };
    assert_eq!(supervised(&renderer, &answer), " two<|endoftext|>");
    let asked = Example::new(Content::Prompt {
        prompt: turn("user", "1+1"),
        answer: Some("2".into()),
    });
    let Ok(PostTrainingExample::Prompt { prompt, answer }) =
        renderer.post_training(&asked, &place(), Unit::Prompt)
    else {
        panic!("a prompt stays one");
    };
    assert!(
        renderer
            .tokenizer()
            .decode(&prompt)
            .ends_with("<|im_start|>assistant\n")
    );
    assert_eq!(answer.as_deref(), Some("2"));
}

#[test]
fn a_tool_call_is_learnt_as_the_object_that_it_is() {
    let mut asks = Message::new("assistant", "");
    let call =
        json!([{"type": "function", "function": {"name": "add", "arguments": "{\"a\": 1}"}}]);
    asks.extra.insert("tool_calls".into(), call);
    let row = Example::new(Content::Chat(vec![Message::new("user", "1+?"), asks]));
    let renderer = renderer("qwen", TrainOn::Auto);
    let document = renderer.document(&row, &place()).unwrap();
    assert_eq!(
        supervised(&renderer, &document),
        "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call><|im_end|>"
    );
}

/// A conversation's supervised tokens, decoded, are its answers, whatever the turns hold.
#[test]
fn every_answer_and_nothing_else_is_supervised() {
    let texts = [
        "plain",
        " spaced ",
        "",
        "two\nlines\n",
        "東京 😀",
        "e\u{301}",
        "{{ x }} {% y %}",
        "a  b",
    ];
    let renderer = renderer("chatml", TrainOn::Auto);
    for first in texts {
        for second in texts {
            let turns = [
                ("user", second),
                ("assistant", first),
                ("user", first),
                ("assistant", second),
            ];
            let document = renderer.document(&chat(&turns), &place()).unwrap();
            let expected = format!("{first}<|im_end|>{second}<|im_end|>");
            assert_eq!(
                supervised(&renderer, &document),
                expected,
                "{first:?} {second:?}"
            );
        }
    }
}

/// As DeepSeek-R1's distilled models have it, in short: a generation prompt that goes on with `<think>`, calls only in turns whose
/// content is none, and arguments as the text of JSON.
const THINKING: &str = "{% for m in messages %}{% if m.role == 'user' %}<U>{{ m.content }}{% elif m.role == 'tool' %}<T>{{ m.content }}{% elif m.content is none %}<A>{% for call in m.tool_calls %}<C>{{ call.function.name + ' ' + call.function.arguments }}</C>{% endfor %}{% else %}<A>{{ m.content.split('</think>')[-1] }}<|endoftext|>{% endif %}{% endfor %}{% if add_generation_prompt %}<A><think>\n{% endif %}";

fn thinking() -> Renderer {
    let template = Template::from_jinja("t", THINKING)
        .unwrap()
        .with_variable("eos_token", "<|endoftext|>");
    Renderer::new(tokenizer(), Some(template), TrainOn::Auto)
}

#[test]
fn what_is_asked_does_not_depend_on_the_answer_that_is_known() {
    for renderer in [thinking(), renderer("chatml", TrainOn::Auto)] {
        for prompt in [
            Turns::Messages(messages(&[("user", "1+1")])),
            Turns::Text("th".into()),
            Turns::Text("a ".into()),
            Turns::Text("1+1=".into()),
        ] {
            let documents = ["", "e", "2", "the", "a far longer answer"].map(|text| {
                let answer = Some(text.to_string()).filter(|answer| !answer.is_empty());
                let known = answer.is_some();
                let asked = Example::new(Content::Prompt {
                    prompt: prompt.clone(),
                    answer,
                });
                let [document, _] = renderer.prompt_and_reference(&asked, &place()).unwrap();
                let learned = supervised(&renderer, &document);
                assert_eq!(
                    known,
                    learned.ends_with("<|endoftext|>") || learned.contains("<|im_end|>")
                );
                assert!(learned.starts_with(text), "{learned:?}");
                // Nothing of the text stands in it twice.
                if let Turns::Text(prompt) = &prompt {
                    let end = if known { "<|endoftext|>" } else { "" };
                    let whole = renderer.tokenizer().decode(&document.ids);
                    assert_eq!(whole, format!("{prompt}{text}{end}"));
                }
                let asked = document.supervised.iter().take_while(|on| !**on).count();
                assert!(document.supervised[asked..].iter().all(|on| *on));
                document.ids[..asked].to_vec()
            });
            let alone = renderer.prompt(&prompt, None, &place()).unwrap();
            assert!(documents.iter().all(|ids| *ids == alone), "{prompt:?}");
        }
        let counts = renderer.counts();
        assert_eq!((counts.merged_boundaries, counts.other_openings), (0, 0));
    }
    let asked = Turns::Messages(messages(&[("user", "1+1")]));
    let ids = thinking().prompt(&asked, None, &place()).unwrap();
    assert!(tokenizer().decode(&ids).ends_with("<A><think>\n"));
}

#[test]
fn answers_are_found_where_the_generation_prompt_goes_on_beyond_their_header() {
    let renderer = thinking();
    let turns = [
        ("user", "a"),
        ("assistant", "thought</think>b"),
        ("user", "c"),
        ("assistant", "d"),
    ];
    let document = renderer.document(&chat(&turns), &place()).unwrap();
    let said = supervised(&renderer, &document);
    assert_eq!(said, "b<|endoftext|>d<|endoftext|>");
    let completion = Example::new(Content::Completion {
        prompt: Turns::Messages(messages(&turns[..1])),
        completion: Turns::Messages(messages(&turns[1..2])),
    });
    renderer.document(&completion, &place()).unwrap();
    // After `<think>`, nothing was learned.
    let counts = renderer.counts();
    assert_eq!((counts.other_openings, counts.merged_boundaries), (2, 0));
}

/// A row may have its thoughts in a field; in the last answer they are supervised as in its text.
#[test]
fn thoughts_in_a_field_are_those_in_the_text() {
    let renderer = renderer("qwen3", TrainOn::Auto);
    let written = "<think>\nHm.\n</think>\n\n4";
    let in_text = chat(&[("user", "2+2?"), ("assistant", written)]);
    let in_text = renderer.document(&in_text, &place()).unwrap();
    assert_eq!(
        supervised(&renderer, &in_text),
        format!("{written}<|im_end|>")
    );
    for field in ["reasoning_content", "thinking", "reasoning"] {
        let mut turns = messages(&[("user", "2+2?"), ("assistant", "4")]);
        turns[1].extra.insert(field.into(), "Hm.".into());
        let in_field = Example::new(Content::Chat(turns));
        let in_field = renderer.document(&in_field, &place()).unwrap();
        assert_eq!(in_field.ids, in_text.ids, "{field}");
        assert_eq!(in_field.supervised, in_text.supervised, "{field}");
    }
}
