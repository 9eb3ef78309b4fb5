//! What is printed of an answer.

use super::*;

#[test]
fn a_pipe_gets_the_words_and_a_terminal_gets_them_harmless() {
    let events = || {
        vec![vec![
            token(0, "a\x1b[2J"),
            token(5, "of another answer"),
            token(0, "b"),
            end(StopReason::Length),
        ]]
    };
    let heard = talked(None, events(), ChatOptions::default(), &["pro\x1bmpt"]);
    heard.result.unwrap();
    assert_eq!(heard.out, "a\x1b[2Jb\n");
    let terminal = ChatOptions {
        terminal: true,
        ..ChatOptions::default()
    };
    let heard = talked(None, events(), terminal, &["pro\x1bmpt"]);
    assert_eq!(heard.out, "pro·mpta·[2Jb\n");
}

/// The error stood behind the last word, in the same line, and a failure put an empty line among the objects of --json.
#[test]
fn an_answer_that_an_error_broke_off_ends_its_line() {
    let death = || vec![vec![token(0, "half")]];
    let failure = || vec![vec![token(0, "half"), end(StopReason::Failed)]];
    for events in [death(), failure()] {
        let heard = talked(None, events, ChatOptions::default(), &["x"]);
        assert!(heard.result.is_err());
        assert_eq!(heard.out, "half\n");
    }
    for events in [death(), failure()] {
        let json = ChatOptions {
            json: true,
            ..ChatOptions::default()
        };
        let heard = talked(None, events, json, &["x"]);
        assert!(heard.result.is_err());
        assert_eq!(heard.out, "");
    }
    // A terminal shows the prompt of a text, which the answer would have continued.
    let terminal = ChatOptions {
        terminal: true,
        ..ChatOptions::default()
    };
    let heard = talked(None, vec![Vec::new()], terminal, &["x"]);
    assert_eq!(heard.out, "x\n");
}

#[test]
fn json_has_the_speeds_and_the_rendered_prompt() {
    let options = ChatOptions {
        json: true,
        show_prompt: true,
        ..ChatOptions::default()
    };
    let prompted = Event::Prompted {
        command: 0,
        text: "<user>hi".into(),
        prompt_tokens: 10,
        tool_calls: None,
    };
    let answers = vec![vec![prompted, token(0, "ho"), end(StopReason::Stop)]];
    let heard = talked(Some("chatml"), answers, options, &["hi"]);
    let object: serde_json::Value = serde_json::from_str(&heard.out).unwrap();
    assert_eq!(object["text"], "ho");
    assert_eq!(object["rendered"], "<user>hi");
    assert_eq!(object["reason"], "stop");
    assert_eq!(object["prefill_tok_per_sec"], 100.0);
    assert_eq!(object["decode_tok_per_sec"], 5.0);
    assert_eq!(object["kv_cache"], "bf16");
    // No adapter: the base alone answered.
    assert!(object.as_object().unwrap().contains_key("adapter") && object["adapter"].is_null());
}

/// It was the text "NaN" among numbers.
#[test]
fn a_piece_of_text_without_a_token_has_no_log_probability() {
    let options = ChatOptions {
        json: true,
        ..ChatOptions::default()
    };
    let mut rest = token(0, " rest");
    if let Event::Token { logprob, id, .. } = &mut rest {
        (*logprob, *id) = (Num(f64::NAN), None);
    }
    let answers = vec![vec![token(0, "ho"), rest, end(StopReason::Stop)]];
    let heard = talked(None, answers, options, &["hi"]);
    let object: serde_json::Value = serde_json::from_str(&heard.out).unwrap();
    let expected = json!([
        {"id": 7, "text": "ho", "logprob": -1.0},
        {"id": null, "text": " rest", "logprob": null},
    ]);
    assert_eq!(object["tokens"], expected);
}
