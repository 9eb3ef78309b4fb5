//! The chat by its keys: models side by side, saving, what is shown of a turn.

use super::*;

/// `llmtui chat RUN` takes it too, and stands beside the key on the last page of a run.
#[test]
fn the_chat_takes_the_best_checkpoint_of_the_run_although_there_is_a_newer_one() {
    let mut rows = checkpoint_rows();
    (rows[0].best, rows[1].best) = (false, true);
    let best = rows[1].path.clone();
    for keys in ["c", "3"] {
        let mut bench = Bench::new();
        bench.msg(Msg::Runs(Ok((runs(), Vec::new()))));
        if keys == "3" {
            bench.live();
        }
        bench.press(keys);
        bench.msg(Msg::Checkpoints(rows.clone()));
        let opened = &bench.effects[..];
        assert!(
            matches!(opened, [Effect::OpenChat { model, .. }] if *model == best),
            "{opened:?}"
        );
    }
}

#[test]
fn the_chat_takes_the_checkpoint_of_the_run_and_sends() {
    let mut bench = Bench::new();
    bench.live();
    bench.press("3");
    let lists = [Effect::ListCheckpoints, Effect::ListModelFiles];
    assert_eq!(bench.effects, lists);
    bench.msg(Msg::Checkpoints(checkpoint_rows()));
    let checkpoint: PathBuf =
        "runs/2026-11-21-1040-shakespeare-k3qf/checkpoints/step-001000".into();
    assert!(matches!(&bench.effects[..], [Effect::OpenChat { model, .. }] if *model == checkpoint));
    bench.write("q1?").press("enter");
    assert!(
        bench.effects.is_empty(),
        "letters are text, and the model is still on its way"
    );
    model_is_there(&mut bench, None);
    assert!(
        matches!(bench.sent()[..], [Command::Generate { prompt, .. }] if *prompt == "q1?".into())
    );
}

/// A run may save, and prune, faster than a model is read.
#[test]
fn a_checkpoint_that_its_run_pruned_is_replaced_by_the_one_that_is_there() {
    let mut bench = Bench::new();
    bench.live();
    bench.press("3");
    bench.msg(Msg::Checkpoints(checkpoint_rows()));
    bench.write("KING:").press("enter");
    let slot = bench.chat().focused().and_then(|c| c.slot()).unwrap();
    let closed = Incoming::Closed(Some("llmtui: it cannot be read".into()));
    let batch = vec![closed];
    bench.msg(Msg::Incoming { slot, batch });
    assert_eq!(bench.effects, [Effect::ListCheckpoints]);

    // It is there, and does not load: that is what is said, and nothing is tried again.
    bench.msg(Msg::Checkpoints(checkpoint_rows()));
    assert_eq!(bench.effects, []);

    let mut rows = checkpoint_rows();
    rows[0].step = 1_500;
    rows[0].path = "runs/2026-11-21-1040-shakespeare-k3qf/checkpoints/step-001500".into();
    let newer = rows[0].path.clone();
    bench.msg(Msg::Checkpoints(rows));
    assert!(matches!(&bench.effects[..], [Effect::OpenChat { model, .. }] if *model == newer));
    let said = bench.picture(80, 24);
    assert!(said.contains("step 1,000 was pruned"), "{said}");
    model_is_there(&mut bench, None);
    assert!(
        matches!(bench.sent()[..], [Command::Generate { prompt, .. }] if *prompt == "KING:".into()),
        "what was said meanwhile is asked of it"
    );
}

#[test]
fn pasted_lines_are_lines_whatever_the_terminal_sends_for_their_ends() {
    let mut bench = Bench::new();
    bench.live();
    bench.press("3");
    bench.msg(Msg::Checkpoints(checkpoint_rows()));
    model_is_there(&mut bench, None);
    bench.msg(Msg::Paste("The cat\rsat\r\non".into()));
    bench.press("enter");
    let wanted = "The cat\nsat\non".into();
    assert!(matches!(bench.sent()[..], [Command::Generate { prompt, .. }] if *prompt == wanted));
}

/// What is dropped at the end is often the question.
#[test]
fn a_paste_that_is_cut_says_so() {
    let mut bench = Bench::new();
    bench.live();
    bench.press("3");
    bench.msg(Msg::Checkpoints(checkpoint_rows()));
    model_is_there(&mut bench, None);
    bench.msg(Msg::Paste("a".repeat(100 << 10)));
    let picture = bench.picture(160, 48);
    assert!(
        picture.contains("the paste is cut: the first 64 KiB of 100"),
        "{picture}"
    );
}

/// A reward model has no head that generates: where one is the newest, the chat began with an engine that refused to load it.
#[test]
fn a_reward_model_is_opened_for_nobody_and_who_names_it_is_told_why() {
    let mut rows = checkpoint_rows();
    rows[0].generates = false;
    rows[1].generates = false;
    let (judge, writer) = (rows[0].path.clone(), rows[2].path.clone());
    let opens = |bench: &Bench, path: &PathBuf| matches!(&bench.effects[..], [Effect::OpenChat { model, .. }] if model == path);
    for held in [false, true] {
        let mut bench = Bench::new();
        if held {
            bench.live();
        }
        bench.press("3");
        bench.msg(Msg::Checkpoints(rows.clone()));
        assert!(opens(&bench, &writer), "{:?}", bench.effects);
    }
    let mut bench = Bench::new();
    bench.press("3 ctrl-o");
    bench.msg(Msg::Checkpoints(rows.clone()));
    let list = bench.picture(120, 30);
    assert!(
        list.contains("a reward model, which cannot generate"),
        "{list}"
    );
    bench.write("k3qf").press("enter");
    assert!(!opens(&bench, &judge), "{:?}", bench.effects);
    let told = bench.picture(120, 30);
    assert!(told.contains("is a reward model: it scores"), "{told}");
    // The newest run is the one that Home selects.
    let mut bench = Bench::new();
    bench.msg(Msg::Runs(Ok((runs(), Vec::new()))));
    bench.press("c");
    bench.msg(Msg::Checkpoints(rows));
    assert!(bench.effects.is_empty(), "{:?}", bench.effects);
    let told = bench.picture(120, 30);
    assert!(told.contains("is a reward model: it scores"), "{told}");
}

#[test]
fn models_stand_side_by_side_and_are_switched_where_it_is_narrow() {
    let mut bench = Bench::new();
    side_by_side(&mut bench);
    let wide = bench.picture(160, 48);
    assert!(wide.contains("same turns, same seed"), "{wide}");
    for name in [
        "shakespeare-k3qf",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "smollm2-sft",
    ] {
        assert!(wide.contains(name), "{wide}");
    }
    let narrow = bench.picture(80, 24);
    assert!(narrow.contains("Paris"), "{narrow}");
    bench.press("tab");
    let first = bench.picture(80, 24);
    assert!(first.contains("the common of the people"), "{first}");
    assert!(!first.contains("Paris"), "{first}");
    let slots: Vec<Slot> = bench
        .chat()
        .columns()
        .iter()
        .filter_map(|c| c.slot())
        .collect();
    for (slot, id) in slots.into_iter().zip(1..) {
        let batch = vec![end(id, 8, StopReason::Stop)];
        bench.msg(Msg::Incoming { slot, batch });
    }
    bench.press("esc x");
    assert_eq!(bench.effects, [], "its answers are in no file");
    bench.press("up enter");
    assert!(matches!(bench.effects[..], [Effect::Detach { .. }]));
}

#[test]
fn a_fourth_model_is_refused_and_a_model_that_cannot_load_says_why() {
    let mut bench = Bench::new();
    side_by_side(&mut bench);
    bench.press("ctrl-n");
    assert!(bench.picture(160, 48).contains("three models"));
    let slot = bench.chat().focused().and_then(|c| c.slot()).unwrap();
    let why = Some("x.gguf: byte 8: it claims 9e18 tensors".into());
    bench.msg(Msg::Incoming {
        slot,
        batch: vec![Incoming::Closed(why)],
    });
    bench.wait(10_000);
    let picture = bench.picture(160, 48);
    assert!(picture.contains("cannot be used"), "{picture}");
    assert!(picture.contains("it claims 9e18 tensors"), "{picture}");
}

/// In the first seconds of a run the chat was a dead end.
#[test]
fn a_live_run_without_a_checkpoint_is_asked_for_one_and_the_chat_takes_it() {
    let mut bench = Bench::new();
    bench.live();
    bench.press("3").msg(Msg::Checkpoints(Vec::new()));
    let picture = bench.picture(100, 30);
    assert!(picture.contains("enter asks it for one"), "{picture}");
    bench.press("enter");
    assert_eq!(bench.sent(), [&Command::Checkpoint]);
    let picture = bench.picture(100, 30);
    assert!(picture.contains("was asked for a checkpoint"), "{picture}");
    bench.event(Event::Checkpointed {
        step: 1_241,
        path: "checkpoints/step-001241".into(),
        bytes: 1,
        seconds: 0.1,
        best: false,
        val_loss: None,
        by: None,
    });
    assert_eq!(bench.effects, [Effect::ListCheckpoints]);
    bench.msg(Msg::Checkpoints(checkpoint_rows()));
    assert!(
        matches!(&bench.effects[..], [Effect::OpenChat { .. }]),
        "{:?}",
        bench.effects
    );
}

#[test]
fn a_model_that_does_not_load_is_no_column_beside_another() {
    let mut bench = Bench::new();
    bench.press("3").msg(Msg::Checkpoints(checkpoint_rows()));
    model_is_there(&mut bench, None);
    bench.press("ctrl-n").write("a2b7").press("enter");
    assert_eq!(bench.chat().columns().len(), 2);
    let slot = bench.chat().focused().and_then(|c| c.slot()).unwrap();
    let why = Some("it claims 9e18 tensors".into());
    let batch = vec![Incoming::Closed(why)];
    bench.msg(Msg::Incoming { slot, batch });
    assert_eq!(bench.chat().columns().len(), 1);
    let picture = bench.picture(160, 48);
    assert!(
        picture.contains("could not be loaded: it claims"),
        "{picture}"
    );
}

#[test]
fn the_start_model_is_offered_first_and_an_untrained_checkpoint_last() {
    let mut log = tape::until(5, 1_240);
    for envelope in &mut log {
        if let Event::Started { spec, .. } = &mut envelope.event {
            spec["train"]["from"] = "models/smollm2".into();
        }
    }
    let mut rows = checkpoint_rows();
    (rows[0].step, rows[0].best) = (0, true);
    let trained = rows[1].path.clone();
    let mut bench = Bench::new();
    bench.hold(log, Holder::Detached);
    bench.press("3").msg(Msg::Checkpoints(rows));
    assert!(
        matches!(&bench.effects[..], [Effect::OpenChat { model, .. }] if *model == trained),
        "{:?}",
        bench.effects
    );
    model_is_there(&mut bench, None);
    let list = bench.press("ctrl-n").picture(120, 40);
    let at = |words: &str| {
        list.find(words)
            .unwrap_or_else(|| panic!("{words}: {list}"))
    };
    assert!(at("start model: smollm2") < at("quickstart-a2b7"), "{list}");
    assert!(at("quickstart-a2b7") < at("step 0"), "{list}");
}

#[test]
fn a_slash_and_a_word_are_no_question_to_a_model() {
    let mut bench = Bench::new();
    bench.press("3").msg(Msg::Checkpoints(checkpoint_rows()));
    model_is_there(&mut bench, None);
    bench.write("/help").press("enter");
    assert!(bench.sent().is_empty());
    assert!(bench.picture(160, 48).contains("commands are keys here"));
    bench.write(" me").press("enter");
    assert!(!bench.sent().is_empty(), "a sentence is one");
}

#[test]
fn the_conversation_is_saved_and_said_where() {
    let mut bench = Bench::new();
    bench.press("3").write("hi").press("enter");
    assert!(bench.picture(100, 30).contains("choose a model first"));
    bench.wait(10_000).press("ctrl-y");
    assert!(bench.effects.is_empty());
    assert!(bench.picture(100, 30).contains("no answers yet"));
    let mut bench = Bench::new();
    side_by_side(&mut bench);
    bench.press("ctrl-y");
    assert!(
        matches!(&bench.effects[..], [Effect::SaveChat(saved)] if saved.jsonl.lines().count() == 2)
    );
    let paths = vec!["chats/a.md".into(), "chats/a.jsonl".into()];
    bench.msg(Msg::ChatSaved(Ok(paths)));
    let picture = bench.picture(100, 30);
    assert!(picture.contains("chats/a.md"), "{picture}");
}

/// A base model that has answered once.
fn answered() -> Bench {
    let mut bench = Bench::new();
    bench.press("3").msg(Msg::Checkpoints(checkpoint_rows()));
    let slot = model_is_there(&mut bench, None);
    bench.write("ROMEO:").press("enter");
    let batch = vec![token(1, " What", -1.0), end(1, 3, StopReason::Length)];
    answer(&mut bench, slot, 1, batch);
    bench.press("esc");
    bench
}

#[test]
fn a_conversation_that_is_not_saved_is_lost_only_after_a_question() {
    let said = |bench: &Bench| bench.chat().columns()[0].replies.len();
    for keys in ["q", "ctrl-x"] {
        let mut bench = answered();
        bench.press(keys);
        assert_eq!(bench.effects, []);
        let picture = bench.picture(80, 24);
        assert!(
            picture.contains("One answer of this chat is not saved."),
            "{picture}"
        );
        bench.press("enter");
        assert_eq!(
            (bench.effects.len(), said(&bench)),
            (0, 1),
            "no is the default"
        );
        // Saved first, then what was asked for is done.
        bench.press(keys).press("home enter");
        assert!(matches!(bench.effects[..], [Effect::SaveChat(_)]));
        bench.msg(Msg::ChatSaved(Err("no room".into())));
        assert_eq!(
            (bench.effects.len(), said(&bench)),
            (0, 1),
            "it is not in a file"
        );
        bench.press(keys).press("home enter");
        bench.msg(Msg::ChatSaved(Ok(vec!["chats/a.md".into()])));
        assert!(bench.effects == [Effect::Quit] || said(&bench) == 0);
    }
    let mut bench = answered();
    bench.press("q up enter");
    assert_eq!(bench.effects, [Effect::Quit], "as asked");
    let mut bench = answered();
    bench
        .press("w")
        .msg(Msg::ChatSaved(Ok(vec!["chats/a.md".into()])));
    bench.press("q");
    assert_eq!(bench.effects, [Effect::Quit], "it is saved");
}

#[test]
fn another_model_takes_the_place_of_one_with_unsaved_answers_after_a_question() {
    let mut bench = answered();
    bench.press("ctrl-o enter");
    assert!(bench.picture(80, 24).contains("is not saved"));
    bench.press("up enter");
    let opens = |e: &Effect| matches!(e, Effect::OpenChat { .. });
    assert!(bench.effects.iter().any(opens), "{:?}", bench.effects);
}

#[test]
fn the_rendered_prompt_and_the_colours_are_a_key_away() {
    let mut bench = Bench::new();
    side_by_side(&mut bench);
    bench.press("ctrl-b");
    let picture = bench.picture(160, 48);
    assert!(picture.contains("rendered prompt: 36 tokens"), "{picture}");
    assert!(picture.contains("<|im_start|>assistant"), "{picture}");
    bench.press("ctrl-b ctrl-v");
    assert!(bench.picture(160, 48).contains("probability  90 % and up"));
    bench.press("ctrl-v");
    assert!(bench.picture(160, 48).contains("entropy, nats"));
}

#[test]
fn a_tool_call_is_shown_as_one_and_its_result_is_typed() {
    let mut bench = Bench::new();
    bench.live();
    bench.press("3");
    bench.msg(Msg::Checkpoints(checkpoint_rows()));
    let slot = model_is_there(&mut bench, Some("chatml"));
    bench.press("ctrl-s");
    for _ in 0..10 {
        bench.press("down");
    }
    bench.write("tools.json").press("enter");
    assert_eq!(bench.effects, [Effect::ReadTools("tools.json".into())]);
    let result = Ok(vec![serde_json::json!({"name": "find"})]);
    bench.msg(Msg::Tools {
        path: "tools.json".into(),
        result,
    });
    bench.write("find it").press("enter");
    let prompted = said(Event::Prompted {
        command: 1,
        text: "rendered".into(),
        prompt_tokens: 10,
        tool_calls: Some("hermes".into()),
    });
    let call = "I look.\n<tool_call>\n{\"name\": \"find\", \"arguments\": {\"n\": 2, \"what\": \"some words that are together too long for a row of the screen\"}}\n</tool_call>";
    let events = vec![prompted, token(1, call, -0.5), end(1, 9, StopReason::Stop)];
    answer(&mut bench, slot, 1, events);
    let screen = bench.picture(80, 24);
    for row in [
        " I look.",
        " call find",
        "     n: 2",
        "     what: \"some words that are together too long for a row of the screen\"",
        "your turn; ctrl-k sends it as the result of find",
    ] {
        assert!(
            screen.lines().any(|line| line.contains(row)),
            "{row}\n{screen}"
        );
    }
    assert!(!screen.contains("tool_call"), "{screen}");
    bench.write("/tool 4").press("enter");
    assert!(bench.sent().is_empty(), "commands are keys");
    bench.press("ctrl-u").write("in the box").press("ctrl-k");
    let sent = bench.sent();
    let [
        Command::Generate {
            prompt: crate::wire::Prompt::WithTools { messages, .. },
            ..
        },
    ] = &sent[..]
    else {
        panic!("{sent:?}");
    };
    let last = messages.last().unwrap();
    assert_eq!(
        (last.role.as_str(), last.content.as_str()),
        ("tool", "in the box")
    );
    assert!(bench.picture(80, 24).contains("result of find: in the box"));
}
