//! Rows that several formats fit, or none.

use super::*;

/// Rows of several shapes: what each is, and never a mapping that would not help.
#[test]
fn rows_of_several_formats_are_counted_by_format() {
    let text = || record(json!({"text": "a"}));
    let chat = || {
        record(json!({"messages": [
            {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}))
    };
    let error = detect(&[text(), chat()], &Columns::default(), None).unwrap_err();
    let said = error.to_string();
    assert!(
        said.contains("1 of 2 text") && said.contains("1 of 2 messages"),
        "{said}"
    );
    assert!(said.contains("; the first that differs is "), "{said}");
    assert!(error.hint().contains("data.on_bad_row: skip"), "{error}");
    // Answers that are null leave prompts behind, which only a method with rewards wants.
    let answered = || record(json!({"prompt": "a", "completion": "b"}));
    let open = || record(json!({"prompt": "a", "completion": null}));
    let rows = [open(), open(), answered()];
    let error = detect(&rows, &Columns::default(), None).unwrap_err();
    let said = error.to_string();
    assert!(said.contains("1 of 3 prompt_completion"), "{said}");
    let found = detect(&rows, &Columns::default(), Some(Unit::Prompt)).unwrap();
    assert_eq!(found.format, FormatId::PromptOnly);
}

/// Pairs whose `chosen` is misspelt are prompts by their other columns: the advice was to train by rewards.
#[test]
fn a_misspelt_column_is_named_where_the_method_needs_it() {
    let mistaken = |row: serde_json::Value, unit| {
        let error = detect(&[record(row)], &Columns::default(), Some(unit)).unwrap_err();
        format!("{error}; {}", error.hint())
    };
    let pair = json!({"prompt": "a", "choosen": "b", "rejected": "c"});
    let said = mistaken(pair.clone(), Unit::Pair);
    for words in [
        "prompt",
        "rejected",
        "read as prompt_only",
        "data.columns: {chosen: choosen}",
    ] {
        assert!(said.contains(words), "{said}");
    }
    let columns: Columns = [("chosen", "choosen")].into_iter().collect();
    let found = detect(&[record(pair.clone())], &columns, Some(Unit::Pair)).unwrap();
    assert_eq!(found.format, FormatId::Preference);
    let said = mistaken(json!({"prompt": "a", "completoin": "b"}), Unit::Text);
    assert!(said.contains("{completion: completoin}"), "{said}");
    // Prompts alone, and pairs where prompts are asked for, are what they are.
    let prompts = json!({"prompt": "a", "source": "b"});
    assert!(detect(&[record(prompts)], &Columns::default(), Some(Unit::Pair)).is_ok());
    assert!(detect(&[record(pair)], &Columns::default(), Some(Unit::Prompt)).is_ok());
}

/// Such rows were in doubt: earlier rounds made a prompt alone as close a match.
#[test]
fn earlier_rounds_do_not_decide_between_formats() {
    for history in [json!([]), json!([["a", "b"]])] {
        let rows = [record(
            json!({"prompt": "p", "completion": "x", "history": history}),
        )];
        for unit in [None, Some(Unit::Prompt)] {
            let found = detect(&rows, &Columns::default(), unit).unwrap();
            assert_eq!(found.format, FormatId::PromptCompletion);
        }
    }
}

/// The advice was Alpaca's format with another column as the instruction.
#[test]
fn rows_of_an_input_and_an_output_are_advised_to_be_a_question_and_its_answer() {
    let rows = [record(json!({"id": 1, "input": "p", "output": "r"}))];
    let error = detect(&rows, &Columns::default(), None).unwrap_err();
    let hint = "data.format: instruction_response with data.columns: {instruction: input, response: output}";
    assert_eq!(error.hint(), hint);
    let columns: Columns = [("instruction", "input"), ("response", "output")]
        .into_iter()
        .collect();
    let found = detect(&rows, &columns, None).unwrap();
    assert_eq!(found.format, FormatId::InstructionResponse);
}

/// The advice for a table of texts and their labels was to read the text alone.
#[test]
fn a_table_of_texts_and_labels_is_advised_to_learn_the_labels() {
    let guess = |fields: Value| {
        let rows = [record(fields)];
        detect(&rows, &Columns::default(), None)
            .unwrap_err()
            .hint()
            .to_string()
    };
    let told = guess(json!({"Text": "Fine food.", "Sentiment": "good"}));
    assert!(
        told.contains("instruction_response")
            && told.contains("{instruction: Text, response: Sentiment}"),
        "{told}"
    );
    // Two texts beside a label: which one is meant, nobody knows.
    let told = guess(json!({"Text": "Fine food.", "Notes": "none", "Sentiment": "good"}));
    assert!(!told.contains("response: Sentiment"), "{told}");
}

/// Problems and solutions for RL beside conversations, as in NuminaMath-CoT: the method that learns answers gets those.
#[test]
fn a_format_that_the_method_cannot_learn_from_goes_behind_one_that_it_can() {
    let turns = json!([{"role": "user", "content": "1+1"}, {"role": "assistant", "content": "2"}]);
    let row = json!({"source": "olympiads", "problem": "1+1", "solution": "2", "messages": turns});
    let rows = [record(row)];
    let found = |unit| detect(&rows, &Columns::default(), unit).unwrap();
    let learned = found(Some(Unit::Text));
    assert_eq!(
        learned.to_string(),
        "messages (messages), by the first row, as the method needs; could also be prompt_only"
    );
    assert_eq!(found(Some(Unit::Prompt)).format, FormatId::PromptOnly);
    assert_eq!(found(None).format, FormatId::PromptOnly);
    // Answers with labels that were meant for KTO are a pair too.
    let row = json!({"prompt": "p", "chosen": "a", "rejected": "b", "completion": "a", "label": true, "system": "s"});
    let rows = [record(row)];
    let found = |unit| detect(&rows, &Columns::default(), Some(unit)).unwrap();
    assert_eq!(found(Unit::Pair).format, FormatId::Preference);
}

/// SFT learned to write the users' turns of OpenAssistant's trees.
#[test]
fn messages_of_a_tree_are_no_plain_text() {
    let message = |id: &str, parent: Value, role: &str| {
        record(
            json!({"message_id": id, "parent_id": parent, "role": role, "text": "a", "lang": "en"}),
        )
    };
    let rows = [
        message("1", Value::Null, "prompter"),
        message("2", json!("1"), "assistant"),
    ];
    for unit in [None, Some(Unit::Text)] {
        let error = detect(&rows, &Columns::default(), unit).unwrap_err();
        assert!(error.to_string().contains("conversation trees"), "{error}");
        assert!(error.hint().contains("--trees"), "{error}");
    }
    // Who says so gets it.
    let columns: Columns = [("text", "text")].into_iter().collect();
    let found = detect(&rows, &columns, Some(Unit::Text)).unwrap();
    assert_eq!(found.format, FormatId::Text);
    // A thread's number alone is no tree.
    let row = record(json!({"message_id": "1", "role": "x", "text": "a"}));
    assert!(detect(&[row], &Columns::default(), None).is_ok());
}

/// Labels of steps were dropped, and the rows were prompts.
#[test]
fn lists_of_completions_are_no_bare_prompts() {
    let step =
        || record(json!({"prompt": "1+1", "completions": ["a", "b"], "labels": [true, false]}));
    let scored = || record(json!({"prompt": "1+1", "completions": ["a", "b"], "scores": [1, 2]}));
    let error = detect(&[step()], &Columns::default(), None).unwrap_err();
    assert!(error.to_string().contains("stepwise"), "{error}");
    let error = detect(&[scored()], &Columns::default(), None).unwrap_err();
    assert!(error.to_string().contains("several completions"), "{error}");
    assert!(error.hint().contains("data.format: prompt_only"), "{error}");
    // A method that writes its own answers wants the prompts.
    let found = detect(&[step()], &Columns::default(), Some(Unit::Prompt)).unwrap();
    assert_eq!(found.format, FormatId::PromptOnly);
}
