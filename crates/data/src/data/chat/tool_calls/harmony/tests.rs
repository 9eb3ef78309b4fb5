//! Answers compared with what OpenAI's parser reads of them (`tests/oracle/harmony_oracle.py`), in any pieces.

use super::super::*;
use proptest::prelude::*;
use serde_json::Value;

const ORACLE: &str = include_str!("../../../../../../../tests/fixtures/chat/harmony.json");
const TEMPLATE: &str = include_str!("../../../../../../../tests/fixtures/chat/gpt_oss.jinja");

fn format() -> &'static Format {
    Format::named("harmony").unwrap()
}

/// The parts of an answer that arrives in pieces of so many characters.
fn read_in(size: usize, answer: &str) -> ReadAnswer {
    let mut reader = AnswerReader::new(format(), Tools::default());
    let chars: Vec<char> = answer.chars().collect();
    let pieces = chars.chunks(size).map(|piece| piece.iter().collect());
    let mut parts: Vec<Part> = pieces
        .flat_map(|piece: String| reader.push(&piece))
        .collect();
    parts.extend(reader.finish());
    parts.into_iter().collect()
}

/// The same however it is cut.
fn read(answer: &str) -> ReadAnswer {
    let whole = read_in(usize::MAX, answer);
    for size in [1, 2, 3, 7] {
        assert_eq!(
            read_in(size, answer),
            whole,
            "in pieces of {size}: {answer}"
        );
    }
    whole
}

fn answer(thought: &str, text: &str, calls: &[(&str, &str)]) -> ReadAnswer {
    let call = |(name, arguments): &(&str, &str)| Call {
        name: (*name).into(),
        arguments: (*arguments).into(),
        id: None,
    };
    ReadAnswer {
        thought: thought.into(),
        text: text.into(),
        calls: calls.iter().map(call).collect(),
    }
}

/// What messages of OpenAI's parser are to a reader.
fn expected(messages: &[Value]) -> ReadAnswer {
    let mut answer = ReadAnswer::default();
    for message in messages {
        let content = message["content"].as_str().unwrap();
        if let Some(name) = message["recipient"].as_str() {
            answer.calls.push(Call {
                name: name.strip_prefix("functions.").unwrap().into(),
                arguments: json::compact(content),
                id: None,
            });
            continue;
        }
        let text = match message["channel"] == "analysis" {
            true => &mut answer.thought,
            false => &mut answer.text,
        };
        if !text.is_empty() && !content.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(content);
    }
    answer
}

fn oracle(name: &str) -> Vec<Value> {
    let oracle: Value = serde_json::from_str(ORACLE).unwrap();
    oracle[name].as_array().unwrap().clone()
}

#[test]
fn answers_are_read_as_openais_parser_does() {
    let answers = oracle("answers");
    assert_eq!(answers.len(), 13);
    for case in answers {
        let text = case["text"].as_str().unwrap();
        let messages = case["messages"].as_array().unwrap();
        assert_eq!(read(text), expected(messages), "{text}");
        // The engine passes the token on that ends an answer, but not its text.
        let stopped = text
            .trim_end_matches("<|return|>")
            .trim_end_matches("<|call|>");
        assert_eq!(read(stopped), expected(messages), "{stopped}");
    }
}

#[test]
fn an_answer_that_a_limit_cuts_has_what_was_written_by_then() {
    let parts = oracle("parts");
    assert_eq!(parts.len(), 78);
    for case in parts {
        let text = case["text"].as_str().unwrap();
        let mut messages = case["messages"].as_array().unwrap().clone();
        let begun = &case["begun"];
        let read = read(text);
        let content = begun["content"].as_str().unwrap();
        let is_whole = serde_json::from_str::<Value>(content).is_ok();
        if begun["channel"].is_string() && (begun["recipient"].is_null() || is_whole) {
            messages.push(begun.clone());
            assert_eq!(read, expected(&messages), "{text}");
        } else {
            let whole = expected(&messages);
            assert_eq!((&read.thought, &read.calls), (&whole.thought, &whole.calls));
            // A call that is cut stays as it was written, and a header that is cut says nothing.
            let rest = read.text.strip_prefix(&whole.text).unwrap();
            match begun["recipient"].is_string() {
                true => assert!(rest.ends_with(&format!("<|message|>{content}")), "{text}"),
                false => assert_eq!(rest, "", "{text}"),
            }
        }
    }
}

#[test]
fn what_does_not_follow_the_format_stays_text() {
    for text in [
        "4.",
        "to=be or not",
        " total",
        "<b>bold</b> <|",
        "assistant: 4",
        "",
    ] {
        assert_eq!(read(text), answer("", text, &[]));
    }
    let said = "<|channel|>final<|message|>4.<|end|>";
    // Another turn that the model makes up.
    let user = "<|start|>user<|message|>So?<|end|>";
    assert_eq!(
        read(&format!("{said}{user}")),
        answer("", "4.\n\n<|start|>user<|message|>So?", &[])
    );
    let broken =
        "<|channel|>commentary to=functions.add <|constrain|>json<|message|>{\"a\": <|call|>";
    assert_eq!(read(broken), answer("", broken, &[]));
    let list = "<|channel|>commentary to=functions.add<|message|>[1]";
    assert_eq!(read(list), answer("", list, &[]));
    // The end of a message may be missing, and a channel may follow without a start.
    let open = "<|channel|>analysis<|message|>Hm.<|start|>assistant<|channel|>final<|message|>4.";
    assert_eq!(read(open), answer("Hm.", "4.", &[]));
    let bare = "<|channel|>analysis<|message|>Hm.<|end|>\n<|channel|>final<|message|>4.<|return|>";
    assert_eq!(read(bare), answer("Hm.", "4.", &[]));
    let tool = "<|channel|>analysis to=browser.search code<|message|>{\"query\": \"x\"}<|call|>";
    assert_eq!(
        read(tool),
        answer("", "", &[("browser.search", "{\"query\":\"x\"}")])
    );
    let mark = "<|channel|>final<|message|>a <|channel| b <|message|> c <|en<|end|>";
    assert_eq!(
        read(mark),
        answer("", "a <|channel| b <|message|> c <|en", &[])
    );
}

#[test]
fn nothing_is_a_call_without_tools() {
    let call = "<|channel|>commentary to=functions.add <|constrain|>json<|message|>{\"a\": 1}";
    let mut reader = AnswerReader::behind("", format(), None);
    let mut parts = reader.push(call);
    parts.extend(reader.finish());
    let read: ReadAnswer = parts.into_iter().collect();
    assert_eq!(read, answer("", call, &[]));
}

#[test]
fn an_answer_goes_on_where_its_prompt_ends() {
    let from = |prompt: &str, text: &str| {
        let mut reader = AnswerReader::behind(prompt, format(), Some(Tools::default()));
        let mut parts = reader.push(text);
        parts.extend(reader.finish());
        parts.into_iter().collect::<ReadAnswer>()
    };
    let asked = "<|start|>user<|message|>2 + 2?<|end|><|start|>assistant";
    let begun = |text: &str, thought| format!("{asked}{}", format().begun(text, thought, ""));
    assert_eq!(from(&begun("It is", None), " 4."), answer("", " 4.", &[]));
    assert_eq!(
        from(&begun("It is", Some("Hm.")), " 4."),
        answer("", " 4.", &[])
    );
    let cut = begun("<|channel|>analysis<|message|>Ea", None);
    assert!(cut.ends_with("assistant<|channel|>analysis<|message|>Ea"));
    let rest = "sy.<|end|><|start|>assistant<|channel|>final<|message|>4.";
    assert_eq!(from(&cut, rest), answer("sy.", "4.", &[]));
    let header = begun("<|channel|>ana", None);
    assert_eq!(from(&header, "lysis<|message|>Hm."), answer("Hm.", "", &[]));
    assert_eq!(
        from(asked, "<|channel|>final<|message|>4."),
        answer("", "4.", &[])
    );
    assert_eq!(
        format().opening(&cut),
        "<|start|>assistant<|channel|>analysis<|message|>Ea"
    );
}

#[test]
fn the_format_is_that_of_the_template_and_its_turns_end_with_their_marks() {
    let template = Template::from_jinja("t", TEMPLATE).unwrap();
    let found = Format::written_by(&template).unwrap();
    assert_eq!(found.word, "harmony");
    assert_eq!(found.turn_ends(), ["<|return|>", "<|call|>"]);
    assert_eq!(found.message_end(), Some("<|end|>"));
    assert!(!Format::named("hermes").unwrap().has_messages());
}

proptest! {
    /// Nothing breaks and nothing is lost but marks and headers, whatever a model writes and however it arrives.
    #[test]
    fn any_text_is_read(size in 1usize..5, text in r#"(<\|start\|>|<\|channel\|>|<\|message\|>|<\|end\|>|<\|call\|>|<\|return\|>|<\|constrain\|>|<\||assistant|analysis|final|commentary| to=|functions\.add|json|\{|\}|"a": 1|ä|a| |\n){0,24}"#) {
        let whole = read_in(usize::MAX, &text);
        prop_assert_eq!(&whole, &read_in(size, &text));
        if !text.contains("<|") {
            prop_assert_eq!(whole, answer("", &text, &[]));
        }
    }
}
