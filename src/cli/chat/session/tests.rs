//! A conversation with a scripted engine.

mod messages;
mod printed;

use super::*;
use crate::base::clock::UnixMillis;
use crate::wire::{Envelope, Num, VERSION};
use serde_json::json;
use tokio::sync::mpsc;

/// What the engine was asked, what was printed, and how it ended. Each inner list answers one command.
struct Talked {
    asked: Vec<Command>,
    out: String,
    result: anyhow::Result<()>,
}

fn talked(
    template: Option<&str>,
    answers: Vec<Vec<Event>>,
    options: ChatOptions,
    said: &[&str],
) -> Talked {
    let (send, incoming) = mpsc::channel(64);
    let (commands, mut inbox) = mpsc::channel(4);
    let mut link = Link::new(incoming, Some(commands));
    let loaded = Event::Loaded {
        architecture: "llama".into(),
        n_params: 1,
        vocab_size: 1,
        context: 64,
        template: template.map(String::from),
        quantized: None,
        kv_cache: Some("bf16".into()),
        seconds: 0.1,
        notes: Vec::new(),
        adapters: Vec::new(),
        stop: Vec::new(),
        trained_by: None,
        parallel: None,
    };
    let engine = std::thread::spawn(move || {
        let say = |event| {
            let envelope = Envelope {
                v: VERSION,
                seq: 1,
                t: UnixMillis(0),
                event,
            };
            let _ = send.blocking_send(Incoming::Event(Box::new(envelope)));
        };
        say(loaded);
        let mut asked = Vec::new();
        for events in answers {
            let request = inbox.blocking_recv().unwrap();
            for mut event in events {
                if let Event::Token { command, .. }
                | Event::Generated { command, .. }
                | Event::Prompted { command, .. } = &mut event
                {
                    *command += request.id;
                }
                say(event);
            }
            asked.push(request.command);
        }
        let last = "llmtui: it broke\n  try: again\n".to_string();
        // Who has heard enough is gone.
        let _ = send.blocking_send(Incoming::Closed(Some(last)));
        asked
    });
    let mut out = Vec::new();
    let result = ChatSession::begin(&mut link, &mut out, options).and_then(|mut talk| {
        said.iter()
            .try_for_each(|text| match text.strip_prefix("/tool ") {
                Some(_) => match talk.handle_line(text)? {
                    LineResult::Results(results) => talk.send_results(results),
                    other => panic!("{other:?}"),
                },
                None => talk.send_turn(text),
            })
    });
    drop(link);
    Talked {
        asked: engine.join().unwrap(),
        out: String::from_utf8(out).unwrap(),
        result,
    }
}

fn token(offset: u64, text: &str) -> Event {
    Event::Token {
        command: offset,
        text: text.into(),
        logprob: Num(-1.0),
        entropy: None,
        id: Some(7),
        bytes: None,
        top: Vec::new(),
    }
}

fn end(reason: StopReason) -> Event {
    Event::Generated {
        command: 0,
        n_tokens: 3,
        prompt_tokens: 10,
        kept_tokens: 0,
        seconds: 0.5,
        prefill_seconds: 0.1,
        reason,
        message: "bad luck".into(),
        broken: false,
    }
}

#[test]
fn failures_and_deaths_are_told_in_one_sentence() {
    let failed = vec![vec![end(StopReason::Failed)]];
    let heard = talked(None, failed, ChatOptions::default(), &["x"]);
    assert_eq!(heard.result.unwrap_err().to_string(), "bad luck");
    let heard = talked(None, vec![Vec::new()], ChatOptions::default(), &["x"]);
    let error = heard.result.unwrap_err();
    let failure = error.downcast_ref::<Failure>().unwrap();
    assert_eq!(
        (failure.what.as_str(), failure.hint.as_str()),
        ("it broke", "again")
    );
}

#[test]
fn lines_are_turns_of_one_conversation_where_the_model_has_a_template() {
    let answer = |text| vec![token(0, text), end(StopReason::Stop)];
    let options = ChatOptions {
        system: Some("Be short.".into()),
        ..ChatOptions::default()
    };
    let answers = vec![answer("ho"), answer("bye")];
    let heard = talked(Some("chatml"), answers, options, &["hi", "go"]);
    heard.result.unwrap();
    assert_eq!(heard.out, "ho\nbye\n");
    let Command::Generate {
        prompt: Prompt::Turns(turns),
        ..
    } = &heard.asked[1]
    else {
        panic!("{:?}", heard.asked)
    };
    let told: Vec<_> = turns.iter().map(|t| (&*t.role, &*t.content)).collect();
    assert_eq!(
        told,
        [
            ("system", "Be short."),
            ("user", "hi"),
            ("assistant", "ho"),
            ("user", "go")
        ]
    );
}

#[test]
fn raw_lines_are_prompts_of_their_own() {
    let options = ChatOptions {
        raw: true,
        ..ChatOptions::default()
    };
    let answers = vec![vec![end(StopReason::Length)], vec![end(StopReason::Length)]];
    let heard = talked(Some("chatml"), answers, options, &["hi", "go"]);
    let prompts: Vec<_> = heard
        .asked
        .iter()
        .map(|c| match c {
            Command::Generate { prompt, .. } => prompt.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(prompts, ["hi".into(), "go".into()]);
}

#[test]
fn a_model_without_a_template_has_no_place_for_a_system_prompt() {
    let options = ChatOptions {
        system: Some("Be short.".into()),
        ..ChatOptions::default()
    };
    let heard = talked(None, Vec::new(), options, &[]);
    let error = heard.result.unwrap_err().to_string();
    assert!(error.contains("no chat template"), "{error}");
}

#[test]
fn what_lies_beyond_the_context_is_neither_read_nor_cached() {
    let answer = |prompt_tokens, kept_tokens| Answer {
        n_tokens: 3,
        prompt_tokens,
        kept_tokens,
        context: 64,
        seconds: 1.0,
        prefill_seconds: 0.5,
        ..Answer::default()
    };
    let long = answer(600, 0);
    assert_eq!(long.speeds().0, Some(128.0));
    assert!(
        long.figures()
            .ends_with("read 64 of 600 tokens at 128 tok/s"),
        "{}",
        long.figures()
    );
    assert!(
        answer(60, 40)
            .figures()
            .contains("read 20 of 60 tokens at 40 tok/s")
    );
    assert!(answer(60, 0).figures().contains("prompt 60 at 120 tok/s"));
}

#[test]
fn a_slash_and_a_word_are_a_command_and_no_text_for_the_model() {
    for (line, expected) in [
        ("/help", ParsedLine::Help),
        ("/new", ParsedLine::New),
        ("/quit", ParsedLine::Quit),
        ("/quit now", ParsedLine::Quit),
        ("/adapter", ParsedLine::Adapter(None)),
        ("/adapter sft", ParsedLine::Adapter(Some("sft"))),
        ("/adaptor off", ParsedLine::Unknown("/adaptor")),
        ("/Help", ParsedLine::Unknown("/Help")),
        // Texts, as they are or without what marks them as such.
        (
            "//adapter is a word",
            ParsedLine::Text("/adapter is a word"),
        ),
        (" /adapter", ParsedLine::Text(" /adapter")),
        (
            "/etc/hosts names what?",
            ParsedLine::Text("/etc/hosts names what?"),
        ),
        ("/ and \\", ParsedLine::Text("/ and \\")),
        ("1/2", ParsedLine::Text("1/2")),
        ("", ParsedLine::Text("")),
    ] {
        assert_eq!(line::parse(line), expected, "{line:?}");
    }
    for command in ["/adapter", "/help", "/new", "/quit", "//"] {
        assert!(HELP.contains(command), "{command}");
    }
}

fn talk(link: &mut Link, adapters: Vec<String>) -> ChatSession<'_, Vec<u8>> {
    ChatSession {
        in_use: None,
        link,
        out: Vec::new(),
        flow: Flow::new(None),
        options: ChatOptions::default(),
        converses: true,
        turns: Vec::new(),
        calls: Calls::default(),
        last: None,
        context: 64,
        kv_cache: None,
        notes: Vec::new(),
        adapters,
    }
}

#[test]
fn a_refused_line_never_reaches_the_model() {
    let (_send, incoming) = mpsc::channel(4);
    let (commands, mut inbox) = mpsc::channel(4);
    let mut link = Link::new(incoming, Some(commands));
    let mut talk = talk(&mut link, Vec::new());
    assert_eq!(
        talk.handle_line("/adaptor off").unwrap(),
        LineResult::Refused
    );
    assert_eq!(talk.handle_line("/help").unwrap(), LineResult::Obeyed);
    // Without adapters there is nothing to switch, and the model is not asked about it.
    assert_eq!(
        talk.handle_line("/adapter off").unwrap(),
        LineResult::Obeyed
    );
    assert_eq!(
        talk.handle_line("/adapter nope").unwrap(),
        LineResult::Refused
    );
    assert_eq!(talk.handle_line("/quit").unwrap(), LineResult::Quit);
    assert_eq!(
        talk.handle_line("Hello").unwrap(),
        LineResult::Text("Hello")
    );
    // A blank line is skipped, whatever the model.
    for converses in [true, false] {
        talk.converses = converses;
        for line in ["", "  "] {
            assert_eq!(talk.handle_line(line).unwrap(), LineResult::Obeyed);
        }
        assert_eq!(
            talk.handle_line(" Hello").unwrap(),
            LineResult::Text(" Hello")
        );
    }
    assert!(inbox.try_recv().is_err() && talk.adapter_hint().is_none());
}

/// What follows in a pipe is answered by another adapter than was asked for.
#[test]
fn an_adapter_that_there_is_not_is_a_refused_line() {
    let (send, incoming) = mpsc::channel(4);
    let (commands, mut inbox) = mpsc::channel(4);
    let mut link = Link::new(incoming, Some(commands));
    let mut talk = talk(&mut link, vec!["tuned".into()]);
    let engine = std::thread::spawn(move || {
        let asked = inbox.blocking_recv().unwrap();
        let envelope = Envelope {
            v: VERSION,
            seq: 1,
            t: UnixMillis(0),
            event: Event::Rejected {
                id: asked.id,
                why: "there is no adapter `nope`; it has tuned".into(),
            },
        };
        send.blocking_send(Incoming::Event(envelope.into()))
            .unwrap();
    });
    assert_eq!(
        talk.handle_line("/adapter nope").unwrap(),
        LineResult::Refused
    );
    engine.join().unwrap();
    assert_eq!(talk.handle_line("/adapter").unwrap(), LineResult::Obeyed);
}

#[test]
fn an_adapter_is_named_by_its_run_its_number_or_a_part_that_only_it_has() {
    let adapters = [
        "2026-11-27-0757-lo-7z99",
        "2026-11-27-0801-lo2-d38e",
        "style",
    ];
    let adapters = adapters.map(String::from);
    let meant = |word| super::adapters::find(&adapters, word);
    assert_eq!(meant("style"), Some("style"));
    assert_eq!(meant("2"), Some("2026-11-27-0801-lo2-d38e"));
    assert_eq!(meant("lo"), Some("2026-11-27-0757-lo-7z99"));
    assert_eq!(meant("d38e"), Some("2026-11-27-0801-lo2-d38e"));
    for none in ["2026", "4", "0", "nobody"] {
        assert_eq!(meant(none), None, "{none}");
    }
}

#[test]
fn the_list_of_adapters_marks_the_one_that_answers() {
    let adapters = ["tone".to_string(), "facts".to_string()];
    let list = super::adapters::list(&adapters, Some("facts"));
    assert_eq!(list, ["1  tone", "2  facts  answers now"]);
    let list = super::adapters::list(&adapters, None);
    assert_eq!(list[2], "the base model answers without an adapter now");
}

/// Who types goes on without a turn that does not fit; the text is no part of what is asked next.
#[test]
fn a_refused_turn_is_taken_back_and_a_new_conversation_keeps_the_system_prompt() {
    let (send, incoming) = mpsc::channel(4);
    let (commands, mut inbox) = mpsc::channel(4);
    let mut link = Link::new(incoming, Some(commands));
    let mut talk = talk(&mut link, Vec::new());
    talk.turns = vec![Turn::new("system", "Be short.")];
    let engine = std::thread::spawn(move || {
        let mut asked = Vec::new();
        for answer in ["ho", "", "fine"] {
            let request = inbox.blocking_recv().unwrap();
            let id = request.id;
            let why = "the prompt has 121 tokens".into();
            let mut events = vec![token(id, answer), end(StopReason::Stop)];
            if let Event::Generated { command, .. } = &mut events[1] {
                *command = id;
            }
            if answer.is_empty() {
                events = vec![Event::Rejected { id, why }];
            }
            for event in events {
                let envelope = Envelope {
                    v: VERSION,
                    seq: 1,
                    t: UnixMillis(0),
                    event,
                };
                send.blocking_send(Incoming::Event(envelope.into()))
                    .unwrap();
            }
            asked.push(request.command);
        }
        asked
    });
    assert!(matches!(
        talk.said("hi", None).unwrap(),
        TurnResult::Answered
    ));
    let TurnResult::Refused(why) = talk.said("too long", None).unwrap() else {
        panic!("it was answered")
    };
    let told = talk.refused(&why);
    assert!(
        told.contains("121 tokens") && told.contains("/new"),
        "{told}"
    );
    talk.send_turn("go").unwrap();
    assert_eq!(talk.handle_line("/new").unwrap(), LineResult::Obeyed);
    assert_eq!(talk.turns, [Turn::new("system", "Be short.")]);
    let asked = engine.join().unwrap();
    let Command::Generate {
        prompt: Prompt::Turns(turns),
        ..
    } = &asked[2]
    else {
        panic!("{asked:?}")
    };
    let told: Vec<_> = turns.iter().map(|turn| &*turn.content).collect();
    assert_eq!(told, ["Be short.", "hi", "ho", "go"]);
}

/// Models of SFT and DPO runs were said to complete text, and nothing said where an answer ends.
#[test]
fn a_model_of_a_run_without_a_template_tells_its_method_and_its_stop() {
    let said = completes(Some("DPO"), &["\n".into()]);
    assert!(
        said.contains("DPO trained it on prompts without one"),
        "{said}"
    );
    assert!(
        said.contains("ends at \"\\n\"") && said.contains("--stop"),
        "{said}"
    );
    let base = completes(None, &[]);
    assert_eq!(base, "this model has no chat template: it completes text");
}

#[test]
fn a_call_is_shown_as_one_and_its_result_goes_back() {
    let call = "I look.\n<tool_call>\n{\"name\": \"find\", \"arguments\": {\"what\": \"it\"}}\n</tool_call>";
    let answers = |tokens: usize| {
        let prompted = Event::Prompted {
            command: 0,
            text: "rendered".into(),
            prompt_tokens: 10,
            tool_calls: Some("hermes".into()),
        };
        let pieces: Vec<char> = call.chars().collect();
        let pieces = pieces
            .chunks(tokens)
            .map(|piece| token(0, &piece.iter().collect::<String>()));
        let first = std::iter::once(prompted.clone())
            .chain(pieces)
            .chain([end(StopReason::Stop)]);
        vec![
            first.collect(),
            vec![prompted, token(0, "It is here."), end(StopReason::Stop)],
        ]
    };
    let tools = vec![json!({"name": "find"})];
    let terminal = ChatOptions {
        terminal: true,
        columns: Some(80),
        tools: tools.clone(),
        ..ChatOptions::default()
    };
    for size in [1, 5, 500] {
        let heard = talked(
            Some("t"),
            answers(size),
            terminal.clone(),
            &["where?", "/tool in the box"],
        );
        heard.result.unwrap();
        assert_eq!(
            heard.out,
            "I look.\ncall find\n    what: \"it\"\nIt is here.\n"
        );
        let Command::Generate {
            prompt: Prompt::WithTools { messages, .. },
            ..
        } = &heard.asked[1]
        else {
            panic!("{:?}", heard.asked);
        };
        let said: Vec<_> = messages
            .iter()
            .map(|m| (m.role.as_str(), m.content.as_str()))
            .collect();
        assert_eq!(
            said,
            [
                ("user", "where?"),
                ("assistant", "I look."),
                ("tool", "in the box")
            ]
        );
        assert_eq!(
            messages[1].extra["tool_calls"][0]["function"]["arguments"],
            json!({"what": "it"})
        );
        assert_eq!(
            messages[2].extra["tool_call_id"],
            messages[1].extra["tool_calls"][0]["id"]
        );
    }
    // A pipe gets what the model wrote.
    let pipe = ChatOptions {
        tools: tools.clone(),
        ..ChatOptions::default()
    };
    let heard = talked(Some("t"), answers(3), pipe, &["where?", "/tool x"]);
    assert_eq!(heard.out, format!("{call}\nIt is here.\n"));
    let json = ChatOptions {
        tools,
        json: true,
        ..ChatOptions::default()
    };
    let heard = talked(Some("t"), answers(3), json, &["where?", "/tool x"]);
    let object: Value = serde_json::from_str(heard.out.lines().next().unwrap()).unwrap();
    assert_eq!(object["text"], call);
    assert_eq!(object["tool_calls"][0]["function"]["name"], "find");
    // Under the id by which the model has it.
    let Command::Generate {
        prompt: Prompt::WithTools { messages, .. },
        ..
    } = &heard.asked[1]
    else {
        panic!("{:?}", heard.asked);
    };
    assert_eq!(messages[1].extra["tool_calls"], object["tool_calls"]);
}
