//! Rows in the formats of public data sets, each detected by its columns and read.

mod detection;
mod parts;

use super::*;
use crate::data::{Message, Place, Turns, Unit};
use serde_json::json;

fn record(value: Value) -> Record {
    let Value::Object(fields) = value else {
        panic!("a row is an object")
    };
    Record {
        place: Place {
            file: "a.jsonl".into(),
            row: 1,
        },
        fields,
    }
}

/// Detects and reads one row.
fn both(value: Value) -> (FormatId, Example) {
    let record = record(value);
    let detection = detect(std::slice::from_ref(&record), &Columns::default(), None).unwrap();
    let example = read(detection.format, &record, &Columns::default()).unwrap();
    (detection.format, example)
}

fn fault(format: FormatId, value: Value) -> (String, String) {
    let fault = read(format, &record(value), &Columns::default()).unwrap_err();
    (fault.to_string(), fault.fix)
}

fn messages(turns: &[(&str, &str)]) -> Vec<Message> {
    turns
        .iter()
        .map(|(role, text)| Message::new(*role, *text))
        .collect()
}

fn chat(turns: &[(&str, &str)]) -> Turns {
    Turns::Messages(messages(turns))
}

#[test]
fn turns_in_a_cell_of_text_are_named_instead_of_another_format() {
    for text in [
        r#"[{"role": "user", "content": "Hi"}]"#,
        "[{'from': 'human', 'value': 'Hi'}]",
    ] {
        let row = record(json!({"conversations": text, "id": "1"}));
        let fault = detect(std::slice::from_ref(&row), &Columns::default(), None).unwrap_err();
        assert!(
            fault
                .to_string()
                .contains("text in the column conversations"),
            "{fault}"
        );
        assert!(fault.hint().contains(".jsonl"), "{}", fault.hint());
    }
}

#[test]
fn every_format_has_an_entry_that_fits_its_word() {
    for id in FormatId::ALL {
        let format = id.format();
        assert_eq!(format.entry.id, id.word());
        assert_eq!(serde_json::to_value(id).unwrap(), json!(id.word()));
        assert_eq!(
            serde_json::from_value::<FormatChoice>(json!(id.word()))
                .unwrap()
                .id(),
            Some(*id)
        );
        assert!(format.entry.summary.ends_with('.') && !format.entry.source.is_empty());
    }
}

#[test]
fn openai_messages_with_tools() {
    let (format, example) = both(json!({
        "messages": [
            {"role": "user", "content": "weather?"},
            {"role": "assistant", "content": null, "name": null, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "w", "arguments": "{\"city\": \"Ulm\"}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "rain"}]},
            {"role": "assistant", "content": "It rains."}],
        "tools": [{"type": "function", "function": {"name": "w"}}],
        "source": "me"
    }));
    assert_eq!(format, FormatId::Messages);
    let Content::Chat(turns) = &example.content else {
        panic!("{example:?}")
    };
    assert_eq!(
        turns[1].extra["tool_calls"][0]["function"]["arguments"]["city"],
        "Ulm"
    );
    assert_eq!(turns[1].extra["tool_calls"][0]["id"], "c1");
    assert!(!turns[1].extra.contains_key("name"));
    assert_eq!(
        (
            turns[2].content.as_str(),
            turns[2].extra["tool_call_id"].as_str()
        ),
        ("rain", Some("c1"))
    );
    assert_eq!(example.tools.unwrap()[0]["function"]["name"], "w");
    assert_eq!(example.extra.keys().collect::<Vec<_>>(), ["source"]);
}

#[test]
fn sharegpt_with_calls_observations_and_tools_in_a_text() {
    let (format, example) = both(json!({
        "conversations": [
            {"from": "human", "value": "hi"},
            {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"},
            {"from": "observation", "value": "2"},
            {"from": "gpt", "value": "two"}],
        "system": "be brief",
        "tools": "[{\"name\": \"f\", \"parameters\": {}}]"
    }));
    assert_eq!(format, FormatId::Sharegpt);
    let Content::Chat(turns) = example.content else {
        panic!()
    };
    let roles: Vec<&str> = turns.iter().map(|t| t.role.as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "assistant"]);
    assert_eq!(
        turns[2].extra["tool_calls"][0]["function"]["arguments"]["x"],
        1
    );
    assert_eq!(example.tools.unwrap()[0]["function"]["name"], "f");
}

#[test]
fn alpaca_with_everything() {
    let (format, example) = both(json!({
        "instruction": "Add.", "input": "1 and 2", "output": "3", "system": "You add.", "history": [["a", "b"]], "text": "rendered"
    }));
    assert_eq!(format, FormatId::Alpaca);
    assert_eq!(
        example.content,
        Content::Completion {
            prompt: chat(&[
                ("system", "You add."),
                ("user", "a"),
                ("assistant", "b"),
                ("user", "Add.\n1 and 2")
            ]),
            completion: chat(&[("assistant", "3")]),
        }
    );
    let (_, example) = both(json!({"instruction": "Hi", "input": "", "output": "Hello"}));
    assert_eq!(
        example.content,
        Content::Completion {
            prompt: chat(&[("user", "Hi")]),
            completion: chat(&[("assistant", "Hello")]),
        }
    );
}

#[test]
fn prompts_with_completions_and_questions_with_responses() {
    let (format, example) = both(json!({"prompt": "2+2=", "completion": " 4"}));
    assert_eq!(format, FormatId::PromptCompletion);
    assert_eq!(
        example.content,
        Content::Completion {
            prompt: Turns::Text("2+2=".into()),
            completion: Turns::Text(" 4".into()),
        }
    );
    let turns = json!([{"role": "user", "content": "a"}]);
    let (format, _) =
        both(json!({"prompt": turns, "completion": [{"role": "assistant", "content": "b"}]}));
    assert_eq!(format, FormatId::PromptCompletion);
    let (format, example) = both(
        json!({"instruction": "Who?", "context": "Ada wrote.", "response": "Ada", "category": "qa"}),
    );
    assert_eq!(format, FormatId::InstructionResponse);
    assert_eq!(
        example.content,
        Content::Completion {
            prompt: chat(&[("user", "Who?\nAda wrote.")]),
            completion: chat(&[("assistant", "Ada")]),
        }
    );
}

#[test]
fn preferences_with_a_prompt() {
    let (format, example) = both(json!({"prompt": "p", "chosen": " a", "rejected": " b"}));
    assert_eq!(format, FormatId::Preference);
    assert_eq!(
        example.content,
        Content::Preference {
            prompt: Turns::Text("p".into()),
            chosen: Turns::Text(" a".into()),
            rejected: Turns::Text(" b".into()),
        }
    );
    // LLaMA-Factory's ranking, and its Alpaca spelling.
    let expected = Content::Preference {
        prompt: chat(&[("user", "hi")]),
        chosen: chat(&[("assistant", "a")]),
        rejected: chat(&[("assistant", "b")]),
    };
    let (format, example) = both(json!({
        "conversations": [{"from": "human", "value": "hi"}],
        "chosen": {"from": "gpt", "value": "a"}, "rejected": {"from": "gpt", "value": "b"}
    }));
    assert_eq!(
        (format, example.content),
        (FormatId::Preference, expected.clone())
    );
    let (format, example) =
        both(json!({"instruction": "hi", "input": "", "chosen": "a", "rejected": "b"}));
    assert_eq!(
        (format, example.content),
        (FormatId::Preference, expected.clone())
    );
    // UltraFeedback: the prompt is repeated at the start of both sides.
    let side = |answer: &str| json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": answer}]);
    let (_, example) = both(
        json!({"prompt": "hi", "chosen": side("a"), "rejected": side("b"), "messages": side("a")}),
    );
    assert_eq!(example.content, expected);
    // A system prompt in its own column is part of the prompt, whatever the form of the prompt.
    let told = json!({"system": "Be kind.", "chosen": side("a"), "rejected": side("b")});
    let mut repeated = told.clone();
    repeated["prompt"] = json!("hi");
    for row in [told, repeated] {
        let (_, example) = both(row);
        let Content::Preference { prompt, .. } = example.content else {
            panic!("no pair")
        };
        assert_eq!(prompt, chat(&[("system", "Be kind."), ("user", "hi")]));
    }
}

#[test]
fn preferences_without_a_prompt_part_where_they_differ() {
    let (format, example) =
        both(json!({"chosen": "The sky is blue.", "rejected": "The sky is green."}));
    assert_eq!(format, FormatId::PreferenceImplicit);
    assert_eq!(
        example.content,
        Content::Preference {
            prompt: Turns::Text("The sky is".into()),
            chosen: Turns::Text(" blue.".into()),
            rejected: Turns::Text(" green.".into()),
        }
    );
    // One is the beginning of the other: both keep an end.
    let (_, example) = both(json!({"chosen": "äöü", "rejected": "äö"}));
    assert_eq!(
        example.content,
        Content::Preference {
            prompt: Turns::Text("ä".into()),
            chosen: Turns::Text("öü".into()),
            rejected: Turns::Text("ö".into()),
        }
    );
    let same = json!({"chosen": "a", "rejected": "a"});
    assert!(
        fault(FormatId::PreferenceImplicit, same)
            .0
            .contains("are the same")
    );
}

#[test]
fn transcripts_of_hh_rlhf() {
    let (format, example) = both(json!({
        "chosen": "\n\nHuman: hi\n\nAssistant: hello\n\nHuman: bye\n\nAssistant: take care",
        "rejected": "\n\nHuman: hi\n\nAssistant: hello\n\nHuman: bye\n\nAssistant: no"
    }));
    assert_eq!(format, FormatId::HhRlhf);
    assert_eq!(
        example.content,
        Content::Preference {
            prompt: chat(&[("user", "hi"), ("assistant", "hello"), ("user", "bye")]),
            chosen: chat(&[("assistant", "take care")]),
            rejected: chat(&[("assistant", "no")]),
        }
    );
}

#[test]
fn labelled_answers_in_all_spellings() {
    let (format, example) = both(json!({"prompt": "p", "completion": "c", "label": true}));
    assert_eq!(format, FormatId::Kto);
    assert!(matches!(
        example.content,
        Content::Labelled {
            desirable: true,
            prompt: Turns::Text(_),
            ..
        }
    ));
    let (format, example) = both(json!({
        "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "kto_tag": 0
    }));
    assert_eq!(format, FormatId::Kto);
    assert_eq!(
        example.content,
        Content::Labelled {
            prompt: chat(&[("user", "q")]),
            completion: chat(&[("assistant", "a")]),
            desirable: false,
        }
    );
    let (format, _) =
        both(json!({"instruction": "q", "input": "", "output": "a", "kto_tag": "false"}));
    assert_eq!(format, FormatId::Kto);
    // A class of a classifier is no judgement.
    let (format, _) = both(json!({"text": "news", "label": 3}));
    assert_eq!(format, FormatId::Text);
}

#[test]
fn prompts_alone_and_with_answers() {
    let (format, example) = both(json!({"prompt": "p"}));
    assert_eq!(
        (format, example.content),
        (
            FormatId::PromptOnly,
            Content::Prompt {
                prompt: Turns::Text("p".into()),
                answer: None
            }
        )
    );
    let gsm8k = json!({"question": "How many?", "answer": "500 + 500 = 1000\n#### 1,000"});
    let example = read(
        FormatId::PromptOnly,
        &record(gsm8k.clone()),
        &Columns::default(),
    )
    .unwrap();
    assert_eq!(
        example.content,
        Content::Prompt {
            prompt: Turns::Messages(vec![Message::new("user", "How many?")]),
            answer: Some("1000".into()),
        }
    );
    // The same rows serve two purposes: the user decides, or what the method learns from.
    let rows = [record(gsm8k.clone())];
    for (unit, format, said) in [
        (
            Unit::Prompt,
            FormatId::PromptOnly,
            "prompt_only (prompt from question, answer), by the first row, as the method needs; could also be instruction_response",
        ),
        (
            Unit::Text,
            FormatId::InstructionResponse,
            "instruction_response (instruction from question, response from answer), by the first row, as the method needs; \
             could also be prompt_only",
        ),
    ] {
        let found = detect(&rows, &Columns::default(), Some(unit)).unwrap();
        assert_eq!((found.format, found.to_string().as_str()), (format, said));
    }
    let error = detect(&rows, &Columns::default(), Some(Unit::Pair)).unwrap_err();
    let (what, fix) = (error.to_string(), error.hint());
    assert!(
        what.contains("the method needs a prompt with a chosen"),
        "{what}"
    );
    assert!(!fix.contains("choose one"), "{fix}");
    let error = detect(&[record(gsm8k)], &Columns::default(), None).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("could be instruction_response or prompt_only"),
        "{error}"
    );
    assert!(error.hint().contains("data.format: prompt_only"));
    let (format, example) = both(json!({"problem": "1+1", "answer": 2}));
    assert_eq!(format, FormatId::PromptOnly);
    assert!(matches!(example.content, Content::Prompt { answer: Some(a), .. } if a == "2"));
}

#[test]
fn a_conversation_beats_the_prompt_that_it_repeats() {
    let turns = json!([{"role": "user", "content": "p"}, {"role": "assistant", "content": "a"}]);
    let (format, example) = both(json!({"prompt": "p", "prompt_id": "7", "messages": turns}));
    assert_eq!(format, FormatId::Messages);
    assert_eq!(
        example.content,
        Content::Chat(messages(&[("user", "p"), ("assistant", "a")]))
    );
    let error = detect(
        &[record(json!({"text": "t", "messages": turns}))],
        &Columns::default(),
        None,
    )
    .unwrap_err();
    assert!(
        error
            .hint()
            .contains("data.format: text, or data.format: messages"),
        "{}",
        error.hint()
    );
}

#[test]
fn a_named_column_that_the_rows_lack_is_told() {
    let row = record(json!({"question": "a", "ansver": "b"}));
    let named = |pairs: [(&str, &str); 2]| {
        let columns: Columns = pairs.into_iter().collect();
        detect(std::slice::from_ref(&row), &columns, None).unwrap_err()
    };
    let slip = named([("instruction", "question"), ("response", "answer")]);
    let what = slip.to_string();
    assert!(what.contains("has no column answer") && what.contains("it has question, ansver"));
    assert_eq!(slip.hint(), "data.columns: {response: ansver}");
    let gone = named([("instruction", "question"), ("response", "zzz")]);
    assert!(gone.hint().contains("data.sources"), "{}", gone.hint());
}

#[test]
fn unknown_columns_get_the_mapping_that_would_fix_them() {
    let error = |value: Value| detect(&[record(value)], &Columns::default(), None).unwrap_err();
    let wrong = error(
        json!({"id": 1, "dialog": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}),
    );
    assert!(wrong.to_string().contains("id, dialog"), "{wrong}");
    assert!(
        wrong
            .hint()
            .contains("data.format: sharegpt with data.columns: {conversations: dialog}"),
        "{}",
        wrong.hint()
    );
    let wrong = error(json!({"Instructions": "a", "outputs": "b"}));
    assert!(
        wrong
            .hint()
            .contains("alpaca with data.columns: {instruction: Instructions, output: outputs}"),
        "{}",
        wrong.hint()
    );
    let wrong = error(json!({"x\u{1b}[2J": 1}));
    assert!(
        !wrong.to_string().contains('\u{1b}') && wrong.hint().contains("formats: text"),
        "{wrong}"
    );
}

#[test]
fn a_mapping_is_used_for_detection_and_reading() {
    let columns: Columns = [("conversations", "dialog")].into_iter().collect();
    let row = record(
        json!({"dialog": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}], "text": "x"}),
    );
    let found = detect(std::slice::from_ref(&row), &columns, None).unwrap();
    assert_eq!(found.format, FormatId::Sharegpt);
    assert!(
        found.to_string().contains("conversations from dialog"),
        "{found}"
    );
    assert!(read(found.format, &row, &columns).is_ok());
    let missing = read(
        FormatId::Sharegpt,
        &record(json!({"dialogue": []})),
        &columns,
    )
    .unwrap_err();
    assert!(
        missing.to_string().contains("no column dialog"),
        "{missing}"
    );
    assert_eq!(missing.fix, "data.columns: {conversations: dialogue}");
}

#[test]
fn wrong_turns_say_which_and_what_would_be_right() {
    let chat = |turn: Value| json!({"messages": [{"role": "user", "content": "a"}, turn]});
    let wrong = |turn: Value| fault(FormatId::Messages, chat(turn));
    let (what, fix) = wrong(json!({"role": "asistant", "content": "b"}));
    assert_eq!(what, "a.jsonl:1: messages [2]: unknown role `asistant`");
    assert_eq!(fix, "did you mean assistant?");
    assert!(
        wrong(json!({"speaker": "x", "words": "b"}))
            .0
            .contains("without role; found: speaker, words")
    );
    assert!(
        wrong(json!({"role": "assistant"}))
            .0
            .contains("without content")
    );
    assert!(
        wrong(json!({"role": "assistant", "content": 7}))
            .0
            .contains("found the number 7")
    );
    assert!(wrong(json!("hello")).0.contains("found the text `hello`"));
    assert!(
        wrong(json!({"role": "assistant", "content": [{"type": "image_url"}]}))
            .0
            .contains("`image_url`")
    );
    assert!(
        wrong(json!({"role": "user", "content": "b"}))
            .0
            .contains("without an assistant turn")
    );
    assert!(
        fault(FormatId::Messages, json!({"messages": []}))
            .0
            .contains("is empty")
    );
    assert!(
        fault(FormatId::Messages, json!({"messages": null}))
            .0
            .contains("is null")
    );
    let (what, _) = fault(
        FormatId::Messages,
        json!({"messages": [{"role": "assistant", "content": "a"}], "images": ["a.png"]}),
    );
    assert!(what.contains("has images"), "{what}");
}

#[test]
fn a_known_column_without_a_value_is_named() {
    let rows = [record(json!({"text": null})), record(json!({"text": null}))];
    let error = detect(&rows, &Columns::default(), None).unwrap_err();
    let words = error.to_string();
    assert!(words.contains("only null in the column text"), "{words}");
}

#[test]
fn one_bad_row_among_good_ones_does_not_change_the_format() {
    let good = json!({"messages": [{"role": "assistant", "content": "a"}]});
    let sample = [
        record(good.clone()),
        record(json!({"messages": 3})),
        record(good),
    ];
    let found = detect(&sample, &Columns::default(), None).unwrap();
    assert_eq!(
        (found.format, found.fitting, found.looked_at),
        (FormatId::Messages, 2, 3)
    );
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    /// Any JSON, not too large.
    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
            prop_oneof!["user", "assistant", "human", "gpt", "function_call"].prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            let name = prop_oneof![
                "role",
                "from",
                "content",
                "value",
                "tool_calls",
                "type",
                "text",
                ".{0,6}"
            ];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((name, inner), 0..4)
                    .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
            ]
        })
    }

    fn any_row() -> impl Strategy<Value = Record> {
        let known: Vec<&str> = FormatId::ALL
            .iter()
            .flat_map(|f| f.format().parts)
            .flat_map(|p| p.columns)
            .copied()
            .collect();
        let name = prop_oneof![prop::sample::select(known).prop_map(String::from), ".{0,6}"];
        prop::collection::vec((name, any_json()), 0..6)
            .prop_map(|pairs| record(Value::Object(pairs.into_iter().collect())))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

        /// Whatever a row holds, each format gives an example or a fault that says where, what and how to mend it; no
        /// column is lost.
        #[test]
        fn any_row_is_read_or_explained(row in any_row()) {
            for id in FormatId::ALL {
                match read(*id, &row, &Columns::default()) {
                    Ok(example) => {
                        let claimed = Row::new(&row, id.format(), &Columns::default()).claimed().len();
                        let unclaimed = row.fields.len() - claimed;
                        prop_assert_eq!(example.extra.len(), unclaimed);
                    }
                    Err(fault) => {
                        prop_assert!(!fault.what.is_empty() && !fault.fix.is_empty());
                        let shown = format!("{} {}", fault.what, fault.fix);
                        prop_assert!(!shown.chars().any(char::is_control));
                    }
                }
            }
            if let Err(error) = detect(std::slice::from_ref(&row), &Columns::default(), None) {
                prop_assert!(!error.hint().is_empty());
            }
        }

        /// A prompt and its two ends are the two texts again.
        #[test]
        fn the_common_beginning_loses_nothing(start in ".{0,20}", a in ".{1,10}", b in ".{1,10}") {
            let (chosen, rejected) = (format!("{start}{a}"), format!("{start}{b}"));
            prop_assume!(chosen != rejected);
            let row = record(json!({"chosen": chosen, "rejected": rejected}));
            let example = read(FormatId::PreferenceImplicit, &row, &Columns::default()).unwrap();
            let Content::Preference { prompt: Turns::Text(p), chosen: Turns::Text(c), rejected: Turns::Text(r) } = example.content else {
                panic!("texts stay texts")
            };
            prop_assert!(!c.is_empty() && !r.is_empty());
            prop_assert_eq!(format!("{p}{c}"), chosen);
            prop_assert_eq!(format!("{p}{r}"), rejected);
        }

        /// Turns come back in order, with their texts.
        #[test]
        fn conversations_keep_their_turns(texts in prop::collection::vec(".{0,30}", 1..8)) {
            let turns: Vec<Value> = texts.iter().enumerate().map(|(i, text)| {
                json!({"from": if i % 2 == 0 { "gpt" } else { "human" }, "value": text})
            }).collect();
            let row = record(json!({"conversations": turns}));
            let example = read(FormatId::Sharegpt, &row, &Columns::default()).unwrap();
            let Content::Chat(messages) = example.content else { panic!("a chat") };
            let read: Vec<&str> = messages.iter().map(|m| m.content.as_str()).collect();
            prop_assert_eq!(read, texts);
        }
    }
}
