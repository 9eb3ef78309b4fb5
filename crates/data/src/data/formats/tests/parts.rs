//! Optional parts: what a row without them, or with an empty one, becomes.

use super::*;

fn turns_of(row: Value) -> Vec<Turns> {
    let (_, example) = both(row);
    match example.content {
        Content::Preference {
            prompt,
            chosen,
            rejected,
        } => vec![prompt, chosen, rejected],
        Content::Labelled {
            prompt, completion, ..
        } => vec![prompt, completion],
        Content::Prompt { prompt, .. } => vec![prompt],
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_empty_system_prompt_leaves_the_row_what_the_others_are() {
    let rows = [
        json!({"prompt": "p", "chosen": "a", "rejected": "b"}),
        json!({"prompt": "p", "completion": "a", "label": true}),
        json!({"prompt": "p", "answer": "a"}),
    ];
    for row in rows {
        let with = |system: Value| {
            let mut row = row.clone();
            row["system"] = system;
            turns_of(row)
        };
        let texts = turns_of(row.clone());
        assert!(
            texts.iter().all(|side| matches!(side, Turns::Text(_))),
            "{row}"
        );
        let told = with(json!("Be kind."));
        assert_eq!(told[0], chat(&[("system", "Be kind."), ("user", "p")]));
        for empty in [with(json!("")), with(Value::Null)] {
            assert_eq!(empty[0], chat(&[("user", "p")]), "{row}");
            assert_eq!(empty[1..], told[1..]);
        }
    }
}

#[test]
fn earlier_rounds_precede_the_prompt_in_every_format_that_has_one() {
    let history = json!([["a", "b"], ["c", "d"]]);
    let before = [
        ("user", "a"),
        ("assistant", "b"),
        ("user", "c"),
        ("assistant", "d"),
    ];
    let whole = |system: &[(&str, &str)], asked| {
        let asked = [("user", asked)];
        chat(&[system, &before[..], &asked[..]].concat())
    };
    for row in [
        json!({"instruction": "p", "input": "q", "chosen": "x", "rejected": "y"}),
        json!({"instruction": "p", "input": "q", "output": "x", "kto_tag": true}),
    ] {
        let mut row = row;
        row["history"] = history.clone();
        row["system"] = json!("s");
        let (_, example) = both(row.clone());
        assert!(!example.extra.contains_key("history"));
        assert_eq!(turns_of(row)[0], whole(&[("system", "s")], "p\nq"));
    }
    for row in [
        json!({"prompt": "p", "chosen": "x", "rejected": "y"}),
        json!({"prompt": "p", "completion": "x", "label": false}),
        json!({"prompt": "p", "answer": "x"}),
    ] {
        let mut row = row;
        row["history"] = history.clone();
        assert_eq!(turns_of(row.clone())[0], whole(&[], "p"));
        // A first round: a turn as in the other rows.
        row["history"] = json!([]);
        assert_eq!(turns_of(row)[0], chat(&[("user", "p")]));
    }
    let row = record(json!({"question": "p", "answer": "x", "history": history}));
    let example = read(FormatId::InstructionResponse, &row, &Columns::default()).unwrap();
    let Content::Completion { prompt, .. } = example.content else {
        panic!("an answer")
    };
    assert_eq!(prompt, whole(&[], "p"));
}

/// Such a column broke every row.
#[test]
fn a_history_of_another_shape_is_a_column_like_others() {
    let rows = [
        (
            FormatId::Preference,
            json!({"prompt": "p", "chosen": "x", "rejected": "y"}),
        ),
        (
            FormatId::Kto,
            json!({"prompt": "p", "completion": "x", "label": true}),
        ),
        (FormatId::PromptOnly, json!({"prompt": "p", "answer": "x"})),
        (
            FormatId::InstructionResponse,
            json!({"question": "p", "response": "x"}),
        ),
    ];
    let others = [
        json!("a, then b"),
        json!([{"role": "user", "content": "a"}]),
        json!([["a", "b"], ["c"]]),
    ];
    for (format, row) in rows {
        let plain = read(format, &record(row.clone()), &Columns::default()).unwrap();
        for history in &others {
            let mut row = row.clone();
            row["history"] = history.clone();
            let row = record(row);
            let example = read(format, &row, &Columns::default()).unwrap();
            assert_eq!(example.content, plain.content, "{format} {history}");
            assert_eq!(example.extra["history"], *history);
            // Named, it is the part, and at fault.
            let named: Columns = [("history", "history")].into_iter().collect();
            assert!(read(format, &row, &named).is_err(), "{format} {history}");
        }
    }
    let row = json!({"instruction": "p", "output": "x", "history": "a"});
    assert!(read(FormatId::Alpaca, &record(row), &Columns::default()).is_err());
}

#[test]
fn a_history_that_another_part_is_read_from_is_not_earlier_rounds() {
    let row = record(json!({"prompt": "p", "history": [], "answer": "x"}));
    let example = |columns: &Columns| read(FormatId::PromptOnly, &row, columns).unwrap();
    let prompt = |example: Example| match example.content {
        Content::Prompt { prompt, .. } => prompt,
        other => panic!("{other:?}"),
    };
    assert_eq!(prompt(example(&Columns::default())), chat(&[("user", "p")]));
    let mapped: Columns = [("tools", "history")].into_iter().collect();
    assert_eq!(prompt(example(&mapped)), Turns::Text("p".into()));
}

/// Texts named `prompt` could not be had as turns, but by another name in the file.
#[test]
fn a_prompt_that_is_mapped_as_a_question_is_a_user_turn() {
    let asked: Columns = [("question", "prompt")].into_iter().collect();
    let turns = |format, row: &Value, columns: &Columns| {
        let row = record(row.clone());
        let found = detect(std::slice::from_ref(&row), columns, None).unwrap();
        assert_eq!(found.format, format);
        match read(format, &row, columns).unwrap().content {
            Content::Completion { prompt, completion }
            | Content::Labelled {
                prompt, completion, ..
            } => vec![prompt, completion],
            Content::Preference {
                prompt,
                chosen,
                rejected,
            } => vec![prompt, chosen, rejected],
            Content::Prompt { prompt, .. } => vec![prompt],
            other => panic!("{other:?}"),
        }
    };
    for (format, row, answers) in [
        (
            FormatId::PromptCompletion,
            json!({"prompt": "p", "completion": "a"}),
            vec!["a"],
        ),
        (
            FormatId::Preference,
            json!({"prompt": "p", "chosen": "a", "rejected": "b"}),
            vec!["a", "b"],
        ),
        (
            FormatId::Kto,
            json!({"prompt": "p", "completion": "a", "label": true}),
            vec!["a"],
        ),
        (
            FormatId::PromptOnly,
            json!({"prompt": "p", "answer": "a"}),
            vec![],
        ),
    ] {
        let raw = turns(format, &row, &Columns::default());
        assert!(raw.iter().all(|side| matches!(side, Turns::Text(_))));
        let answers = answers.iter().map(|answer| chat(&[("assistant", answer)]));
        let expected: Vec<Turns> = [chat(&[("user", "p")])]
            .into_iter()
            .chain(answers)
            .collect();
        assert_eq!(turns(format, &row, &asked), expected, "{row}");
    }
    // A column that is not there is named, as for other parts.
    let gone: Columns = [("question", "promt")].into_iter().collect();
    let row = record(json!({"prompt": "p", "completion": "a"}));
    let fault = read(FormatId::PromptCompletion, &row, &gone).unwrap_err();
    assert!(fault.what.contains("no column promt"), "{fault}");
}

/// `input` mapped to `instruction` was asked for twice.
#[test]
fn a_column_plays_one_part() {
    let row = record(json!({"input": "p", "output": "r"}));
    let mapped: Columns = [("instruction", "input")].into_iter().collect();
    let example = read(FormatId::Alpaca, &row, &mapped).unwrap();
    let expected = Content::Completion {
        prompt: chat(&[("user", "p")]),
        completion: chat(&[("assistant", "r")]),
    };
    assert_eq!(example.content, expected);
    // Nor is it what a part that is missing was looked for in.
    let mapped: Columns = [("instruction", "output")].into_iter().collect();
    let fault = read(FormatId::Alpaca, &row, &mapped).unwrap_err();
    assert!(fault.what.contains("no column for `output`"), "{fault}");
}

#[test]
fn members_of_other_rows_are_not_part_of_a_call_or_a_tool() {
    let call = |arguments: Value| json!({"type": "function", "id": null, "function": {"name": "w", "arguments": arguments}});
    let row = |tools: Value| {
        json!({
            "messages": [
                {"role": "user", "content": "weather?"},
                {"role": "assistant", "content": null, "tool_calls": [
                    call(json!({"city": "Ulm", "ticker": null, "when": {"day": 1, "hour": null}})),
                    call(json!("{\"city\": null}"))]}],
            "tools": tools,
        })
    };
    let tool = json!([{"type": "function", "function": {"name": "w", "description": null,
        "parameters": {"properties": {"city": {"type": "string", "enum": null}, "ticker": null}}}}]);
    let (_, example) = both(row(tool.clone()));
    let Content::Chat(turns) = &example.content else {
        panic!("a conversation")
    };
    let calls = &turns[1].extra["tool_calls"];
    let arguments = |at: usize| &calls[at]["function"]["arguments"];
    assert_eq!(arguments(0), &json!({"city": "Ulm", "when": {"day": 1}}));
    assert_eq!(arguments(1), &json!({"city": null}));
    let kept = json!([{"type": "function", "function": {"name": "w",
        "parameters": {"properties": {"city": {"type": "string"}}}}}]);
    assert_eq!(example.tools, Some(kept));
    // The text of JSON has its own.
    let (_, example) = both(row(json!(tool.to_string())));
    assert_eq!(example.tools, Some(tool));
}
