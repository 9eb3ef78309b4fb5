//! Tool calls in answers, and results that are typed.

use super::*;
use serde_json::json;

const CALL: &str = "Both.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"note\": \"a sum of many numbers that is quite long to read on one line\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\"}\n</tool_call>";

/// The engine of `slot` answers the command that was sent last, by a template whose calls are Hermes'.
fn called(chat: &mut ChatPane, slot: u32, id: CommandId, text: &str) -> Vec<Sent> {
    chat.sent(Slot(slot), Ok(id));
    let prompted = Event::Prompted {
        command: id,
        text: "rendered".into(),
        prompt_tokens: 10,
        tool_calls: Some("hermes".into()),
    };
    chat.apply(Slot(slot), &prompted, UnixMillis(50));
    chat.apply(Slot(slot), &token(id, text), UnixMillis(100));
    chat.apply(Slot(slot), &done(id, StopReason::Stop), UnixMillis(200))
}

fn with_tools(templates: &[Option<&str>]) -> ChatPane {
    let mut chat = ready(templates);
    chat.set_tools("tools.json".as_ref(), vec![json!({"name": "add"}), json!({"name": "now"})]);
    chat
}

#[test]
fn results_go_back_once_each_call_has_one() {
    let mut chat = with_tools(&[Some("chatml"), Some("chatml")]);
    let sent = say(&mut chat, "add and look");
    assert!(matches!(prompt(&sent[0]), Prompt::WithTools { tools, .. } if tools.len() == 2));
    assert_eq!(chat.waiting_call(), None);
    called(&mut chat, 1, 1, CALL);
    called(&mut chat, 2, 2, "No call.");
    assert_eq!(chat.waiting_call(), Some(("add".into(), 1, 2)));
    assert_eq!(chat.give_result(UnixMillis(0)), Resulted::Not("type the result of the tool call first"));
    chat.field().set("3");
    assert_eq!(chat.give_result(UnixMillis(0)), Resulted::Next("now".into()));
    chat.field().set("noon");
    let Resulted::Sent(sent) = chat.give_result(UnixMillis(0)) else {
        panic!("both have a result");
    };
    let messages = |sent: &Sent| match prompt(sent) {
        Prompt::WithTools { messages, .. } => messages.clone(),
        other => panic!("{other:?}"),
    };
    let own = messages(&sent[0]);
    let roles: Vec<&str> = own.iter().map(|turn| turn.role.as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool"]);
    assert_eq!(own[1].content, "Both.");
    assert_eq!(own[1].extra["tool_calls"][1]["function"], json!({"name": "now", "arguments": {}}));
    assert_eq!(own[3].content, "noon");
    assert_eq!(own[3].extra["tool_call_id"], own[1].extra["tool_calls"][1]["id"]);
    // The other model called nothing: it reads them as a text.
    assert_eq!(messages(&sent[1])[2], Turn::new("user", "3\nnoon"));
    assert_eq!(chat.give_result(UnixMillis(0)), Resulted::Not("no tool call waits for a result"));
    called(&mut chat, 1, 3, "3, at noon.");
    called(&mut chat, 2, 4, "I see.");
    let saved = chat.save().unwrap();
    let row: serde_json::Value = serde_json::from_str(saved.jsonl.lines().next().unwrap()).unwrap();
    assert_eq!(row["messages"][2], json!({"role": "tool", "content": "3", "name": "add", "tool_call_id": "call00000"}));
    assert_eq!(row["tools"], json!([{"name": "add"}, {"name": "now"}]));
    assert!(saved.markdown.contains("## tool\n\n3\nnoon"), "{}", saved.markdown);
    assert!(saved.markdown.contains("```\ncall add\n  a: 1\n"), "{}", saved.markdown);
    // A result that is changed is one again.
    chat.edit();
    assert_eq!(chat.field().text(), "3\nnoon");
    chat.field().set("4\nnight");
    let sent = chat.send(UnixMillis(0));
    assert_eq!(messages(&sent[0])[2].content, "4");
    assert_eq!(messages(&sent[0])[3].content, "night");
}

#[test]
fn a_call_is_no_text_and_not_shown_while_it_is_written() {
    let tools = [json!({"name": "add"})];
    let mut chat = with_tools(&[Some("chatml")]);
    say(&mut chat, "add");
    called(&mut chat, 1, 1, CALL);
    let reply = &chat.columns()[0].replies[0];
    assert_eq!(reply.calls(&tools).len(), 2);
    let mut begun = reply.clone();
    begun.answer = Answer::Streaming;
    begun.text.truncate("Both.\n<tool_call>\n{\"na".len());
    assert_eq!(begun.parts(&tools), [crate::data::chat::tool_calls::Part::Text("Both.".into())]);
}

#[test]
fn an_answer_that_begins_with_a_call_shows_nothing_of_it_before_it_is_whole() {
    let mut chat = with_tools(&[Some("chatml")]);
    say(&mut chat, "add");
    let prompted = Event::Prompted {
        command: 1,
        text: "rendered".into(),
        prompt_tokens: 10,
        tool_calls: Some("hermes".into()),
    };
    let whole = "<tool_call>\n{\"name\": \"now\"}\n</tool_call>";
    let theme = crate::ui::theme::Theme::ansi();
    let keymap = crate::ui::keymap::Keymap::embedded();
    let look = rows::Look {
        theme: &theme,
        keymap: &keymap,
        width: 80,
        heat: Heat::Off,
        shows_prompt: false,
        shows_thoughts: false,
    };
    let shown = |chat: &ChatPane| {
        let rows = rows::rows(&chat.columns[0], &chat.conversation, look, 50);
        rows.iter()
            .map(|row| row.to_string() + "\n")
            .collect::<String>()
    };
    chat.sent(Slot(1), Ok(1));
    chat.apply(Slot(1), &prompted, UnixMillis(50));
    let (begun, rest) = whole.split_at(20);
    chat.apply(Slot(1), &token(1, begun), UnixMillis(100));
    assert!(!shown(&chat).contains("tool_call"), "{}", shown(&chat));
    chat.apply(Slot(1), &token(1, rest), UnixMillis(150));
    chat.apply(Slot(1), &done(1, StopReason::Stop), UnixMillis(200));
    assert!(shown(&chat).contains("call now"), "{}", shown(&chat));
}

#[test]
fn results_of_calls_that_are_forgotten_are_dropped() {
    let mut chat = with_tools(&[Some("chatml")]);
    say(&mut chat, "add and look");
    called(&mut chat, 1, 1, CALL);
    chat.field().set("3");
    assert_eq!(
        chat.give_result(UnixMillis(0)),
        Resulted::Next("now".into())
    );
    chat.resend(UnixMillis(0));
    called(&mut chat, 1, 2, CALL);
    assert_eq!(chat.waiting_call(), Some(("add".into(), 1, 2)));
    // Nor is a turn that is being changed a result.
    chat.edit();
    assert_eq!(chat.waiting_call(), None);
    chat.stop();
    // Fewer lines than results leave the last ones empty.
    for text in ["3", "noon"] {
        chat.field().set(text);
        chat.give_result(UnixMillis(0));
    }
    called(&mut chat, 1, 3, "3, at noon.");
    chat.edit();
    chat.field().set("4");
    let sent = chat.send(UnixMillis(0));
    let Prompt::WithTools { messages, .. } = prompt(&sent[0]) else {
        panic!("{sent:?}");
    };
    let results = messages.iter().filter(|turn| turn.role == "tool");
    let results: Vec<&str> = results.map(|turn| turn.content.as_str()).collect();
    assert_eq!(results, ["4", ""]);
}

/// gpt-oss's messages: the thought stands before the answer, and goes back as such.
#[test]
fn a_thought_is_shown_apart_and_is_no_part_of_the_text() {
    let written = "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>It is 4.";
    let prompted = Event::Prompted {
        command: 1,
        text: "<|start|>assistant".into(),
        prompt_tokens: 10,
        tool_calls: Some("harmony".into()),
    };
    let mut chat = ready(&[Some("gpt_oss")]);
    say(&mut chat, "2 + 2?");
    let theme = crate::ui::theme::Theme::ansi();
    let keymap = crate::ui::keymap::Keymap::embedded();
    let look = rows::Look {
        theme: &theme,
        keymap: &keymap,
        width: 80,
        heat: Heat::Off,
        shows_prompt: false,
        shows_thoughts: false,
    };
    let shown = |chat: &ChatPane| {
        let look = rows::Look {
            shows_thoughts: chat.shows_thoughts,
            heat: chat.heat,
            ..look
        };
        let rows = rows::rows(&chat.columns[0], &chat.conversation, look, 50);
        rows.iter().map(|row| row.to_string().trim().to_string() + "\n").collect::<String>()
    };
    chat.sent(Slot(1), Ok(1));
    chat.apply(Slot(1), &prompted, UnixMillis(50));
    let (begun, rest) = written.split_at(34);
    let (ends, rest) = rest.split_at(rest.find("It").unwrap());
    chat.apply(Slot(1), &token(1, begun), UnixMillis(100));
    assert!(shown(&chat).contains("thinking\nEasy") && !shown(&chat).contains("<|"), "{}", shown(&chat));
    chat.apply(Slot(1), &token(1, ends), UnixMillis(3_300));
    assert!(shown(&chat).contains("thinking\nEasy"), "nothing is said yet");
    // What is said folds the thought away; the key shows it, and folds it again.
    chat.apply(Slot(1), &token(1, rest), UnixMillis(3_500));
    chat.apply(Slot(1), &done(1, StopReason::Stop), UnixMillis(3_600));
    let folded = "thought for 3.2 s · 2 tokens; ctrl-f shows it\nIt is 4.\n";
    assert!(shown(&chat).contains(folded), "{}", shown(&chat));
    chat.toggle_thoughts();
    let open = "2 tokens; ctrl-f folds it\nEasy.\n\nIt is 4.\n";
    assert!(shown(&chat).contains(open), "{}", shown(&chat));
    chat.toggle_thoughts();
    // In the colours of tokens, too.
    chat.next_heat();
    let coloured = shown(&chat);
    assert!(coloured.contains("shows it\nIt is 4.") && !coloured.contains("Easy"), "{coloured}");
    while chat.heat != Heat::Off {
        chat.next_heat();
    }
    assert!(chat.columns[0].has_thoughts());
    let sent = say(&mut chat, "3 + 3?");
    let Prompt::Turns(turns) = prompt(&sent[0]) else {
        panic!("{sent:?}");
    };
    assert_eq!(turns[1].content, "It is 4.");
    assert_eq!(turns[1].extra["reasoning_content"], "Easy.");
    let saved = chat.save().unwrap();
    assert!(saved.markdown.contains("> Easy.\n\nIt is 4."), "{}", saved.markdown);
    let row: serde_json::Value = serde_json::from_str(saved.jsonl.lines().next().unwrap()).unwrap();
    assert_eq!(row["messages"][1]["reasoning_content"], "Easy.");
}

/// An answer that was cut in its thoughts goes on from there: the model reads it as it wrote it.
#[test]
fn an_answer_in_messages_goes_on_as_it_was_written() {
    let begun = "<|channel|>analysis<|message|>Ea";
    let mut chat = ready(&[Some("gpt_oss")]);
    say(&mut chat, "2 + 2?");
    chat.sent(Slot(1), Ok(1));
    let prompted = |command| Event::Prompted {
        command,
        text: "<|start|>assistant".into(),
        prompt_tokens: 10,
        tool_calls: Some("harmony".into()),
    };
    chat.apply(Slot(1), &prompted(1), UnixMillis(50));
    chat.apply(Slot(1), &token(1, begun), UnixMillis(100));
    chat.apply(Slot(1), &done(1, StopReason::Length), UnixMillis(200));
    chat.field().set("");
    let sent = chat.send(UnixMillis(300));
    let Prompt::Turns(turns) = prompt(&sent[0]) else {
        panic!("{sent:?}");
    };
    assert_eq!(turns[1], Turn::new("assistant", begun));
    let reply = &chat.columns()[0].replies[0];
    let thought = crate::data::chat::tool_calls::Part::Thought("Ea".into());
    assert_eq!(reply.parts(&[]), [thought], "before the engine says how it writes");
}

/// A thought that the prompt has begun; cut there, it goes on from there.
#[test]
fn a_thought_in_the_text_is_shown_apart_and_goes_on_as_it_was_written() {
    for (word, begun, within) in [
        ("think+hermes", "<think>\nEa", "thinking+hermes"),
        ("thinking+hermes", "Ea", "thinking+hermes"),
    ] {
        let mut chat = ready(&[Some("qwen3")]);
        say(&mut chat, "2 + 2?");
        let prompted = |command, word: &str| Event::Prompted {
            command,
            text: "rendered".into(),
            prompt_tokens: 10,
            tool_calls: Some(word.into()),
        };
        chat.sent(Slot(1), Ok(1));
        chat.apply(Slot(1), &prompted(1, word), UnixMillis(50));
        chat.apply(Slot(1), &token(1, begun), UnixMillis(100));
        chat.apply(Slot(1), &done(1, StopReason::Length), UnixMillis(200));
        chat.field().set("");
        let sent = chat.send(UnixMillis(300));
        let Prompt::Turns(turns) = prompt(&sent[0]) else {
            panic!("{sent:?}");
        };
        assert_eq!(turns[1], Turn::new("assistant", begun));
        chat.sent(Slot(1), Ok(2));
        chat.apply(Slot(1), &prompted(2, within), UnixMillis(350));
        chat.apply(Slot(1), &token(2, "sy.\n</think>\n\nIt is 4."), UnixMillis(400));
        chat.apply(Slot(1), &done(2, StopReason::Stop), UnixMillis(500));
        let turn = chat.columns()[0].replies[0].turn(&[], 0);
        assert_eq!(turn.content, "It is 4.", "{word}");
        assert_eq!(turn.extra["reasoning_content"], "Easy.");
        let saved = chat.save().unwrap();
        assert!(saved.markdown.contains("> Easy.\n\nIt is 4."), "{}", saved.markdown);
    }
}
