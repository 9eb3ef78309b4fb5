//! The chat without a screen: turns, streams, columns, cancelling, lost engines, saving.

mod calls;

use super::column::Download;
use super::*;
use crate::ui::panes::Pane;
use crate::ui::rows::CheckpointRow;
use crate::wire::{Num, Prompt, StopReason, Turn};

fn model(step: u64) -> ChatModel {
    ChatModel::of_row(CheckpointRow {
        rows: None,
        on_all: None,
        path: format!("/r/{}", crate::run::checkpoints::path_in_run(step)).into(),
        run: "2026-11-21-1422-shakespeare-k3qf".into(),
        step,
        val_loss: Some(2.0),
        by: None,
        best: true,
        phase: None,
        generates: true,
    })
}

fn loaded(template: Option<&str>) -> Event {
    Event::Loaded {
        architecture: "llama".into(),
        n_params: 1_000,
        vocab_size: 60,
        context: 64,
        template: template.map(String::from),
        quantized: None,
        kv_cache: None,
        seconds: 0.1,
        notes: Vec::new(),
        adapters: Vec::new(),
        stop: Vec::new(),
        trained_by: None,
        parallel: None,
    }
}

/// A chat with loaded models in slots 1, 2, …; each with a template or not.
fn ready(templates: &[Option<&str>]) -> ChatPane {
    let mut chat = ChatPane::default();
    for (i, template) in templates.iter().enumerate() {
        let slot = Slot(i as u32 + 1);
        chat.picking = Picking::Add;
        chat.place(model(500 * (i as u64 + 1)), slot, UnixMillis(0));
        chat.opened(slot, Ok(()));
        chat.apply(slot, &loaded(*template), UnixMillis(0));
    }
    chat
}

fn token(command: CommandId, text: &str) -> Event {
    Event::Token {
        command,
        text: text.into(),
        logprob: Num(-1.0),
        entropy: Some(Num(1.5)),
        id: None,
        bytes: None,
        top: Vec::new(),
    }
}

fn done(command: CommandId, reason: StopReason) -> Event {
    Event::Generated {
        command,
        n_tokens: 3,
        prompt_tokens: 10,
        kept_tokens: 0,
        seconds: 0.75,
        prefill_seconds: 0.25,
        reason,
        message: String::new(),
        broken: false,
    }
}

/// Says a text; returns what each engine is asked.
fn say(chat: &mut ChatPane, text: &str) -> Vec<Sent> {
    chat.field().set(text);
    chat.send(UnixMillis(0))
}

/// The engine of `slot` answers the command that was sent last.
fn answer(chat: &mut ChatPane, slot: u32, id: CommandId, text: &str) -> Vec<Sent> {
    chat.sent(Slot(slot), Ok(id));
    chat.apply(Slot(slot), &token(id, text), UnixMillis(100));
    chat.apply(Slot(slot), &done(id, StopReason::Length), UnixMillis(200))
}

fn prompt((_, command): &Sent) -> &Prompt {
    match command {
        Command::Generate { prompt, .. } => prompt,
        other => panic!("{other:?}"),
    }
}

fn turns(sent: &Sent) -> Vec<(String, String)> {
    match prompt(sent) {
        Prompt::Turns(turns) => turns
            .iter()
            .map(|t: &Turn| (t.role.clone(), t.content.clone()))
            .collect(),
        other => panic!("{other:?}"),
    }
}

fn pair(role: &str, content: &str) -> (String, String) {
    (role.into(), content.into())
}

#[test]
fn a_base_model_continues_a_text_and_an_empty_line_goes_on() {
    let mut chat = ready(&[None]);
    let sent = say(&mut chat, "ROMEO:");
    assert_eq!(*prompt(&sent[0]), "ROMEO:".into());
    assert!(say(&mut chat, "x").is_empty(), "one answer at a time");
    chat.field().clear();
    chat.sent(Slot(1), Ok(3));
    chat.apply(Slot(1), &token(3, " What"), UnixMillis(100));
    chat.apply(Slot(1), &token(9, " not mine"), UnixMillis(100));
    chat.apply(Slot(1), &token(3, " say"), UnixMillis(200));
    let streaming = chat.focused().unwrap().streaming().unwrap();
    assert_eq!(streaming.decode_rate(), Some(10.0));
    chat.apply(Slot(1), &done(3, StopReason::Length), UnixMillis(300));
    let reply = &chat.columns()[0].replies[0];
    assert_eq!(reply.decode_rate(), Some(4.0));
    assert_eq!(reply.prefill_rate(64), Some(40.0));
    let sent = chat.send(UnixMillis(0));
    assert_eq!(*prompt(&sent[0]), "ROMEO: What say".into());
    assert_eq!(chat.columns()[0].replies.len(), 1);
}

#[test]
fn a_chat_model_gets_the_turns_and_a_cut_answer_goes_on() {
    let mut chat = ready(&[Some("chatml")]);
    let settings = Settings {
        sampling: Sampling::default(),
        system: "Be short.".into(),
        tools: String::new(),
    };
    chat.set(settings);
    let sent = say(&mut chat, "hi");
    let first = [pair("system", "Be short."), pair("user", "hi")];
    assert_eq!(turns(&sent[0]), first);
    answer(&mut chat, 1, 7, "ho");
    let sent = say(&mut chat, "and?");
    let second = [pair("assistant", "ho"), pair("user", "and?")];
    assert_eq!(turns(&sent[0]), [first.as_slice(), &second].concat());
    answer(&mut chat, 1, 8, "so");
    let sent = chat.send(UnixMillis(0));
    assert_eq!(turns(&sent[0]).last(), Some(&pair("assistant", "so")));
    answer(&mut chat, 1, 9, " on");
    assert_eq!(chat.columns()[0].replies[1].text, "so on");
}

#[test]
fn models_side_by_side_get_the_same_turn_each_in_its_own_way() {
    let mut chat = ready(&[None, Some("chatml")]);
    let sent = say(&mut chat, "hi");
    assert_eq!(sent.len(), 2);
    assert_eq!(*prompt(&sent[0]), "hi".into());
    assert_eq!(turns(&sent[1]), [pair("user", "hi")]);
    let seeds = sent.iter().map(|(_, c)| match c {
        Command::Generate { sampling, .. } => sampling.clone(),
        other => panic!("{other:?}"),
    });
    assert!(seeds.into_iter().all(|s| s == Sampling::default()));
}

#[test]
fn a_model_that_comes_later_works_through_the_conversation() {
    let mut chat = ready(&[Some("chatml")]);
    say(&mut chat, "one");
    answer(&mut chat, 1, 1, "first");
    say(&mut chat, "two");
    answer(&mut chat, 1, 2, "second");
    chat.picking = Picking::Add;
    assert_eq!(chat.place(model(900), Slot(5), UnixMillis(0)), None);
    assert!(chat.loading());
    let sent = chat.apply(Slot(5), &loaded(Some("chatml")), UnixMillis(0));
    assert_eq!(turns(&sent[0]), [pair("user", "one")]);
    let sent = answer(&mut chat, 5, 3, "eins");
    let expected = [
        pair("user", "one"),
        pair("assistant", "eins"),
        pair("user", "two"),
    ];
    assert_eq!(turns(&sent[0]), expected);
    assert!(answer(&mut chat, 5, 4, "zwei").is_empty());
}

#[test]
fn what_is_asked_while_a_model_loads_is_sent_when_it_is_there() {
    let mut chat = ChatPane::default();
    chat.place(model(500), Slot(1), UnixMillis(0));
    assert!(say(&mut chat, "hello").is_empty());
    chat.opened(Slot(1), Ok(()));
    let sent = chat.apply(Slot(1), &loaded(None), UnixMillis(5));
    assert_eq!(*prompt(&sent[0]), "hello".into());
}

#[test]
fn escape_cancels_all_and_then_leaves_the_input() {
    let mut chat = ready(&[None, None]);
    say(&mut chat, "x");
    chat.sent(Slot(1), Ok(3));
    chat.sent(Slot(2), Ok(4));
    let cancel = |slot, target| (Slot(slot), Command::Cancel { target });
    assert_eq!(chat.stop(), [cancel(1, 3), cancel(2, 4)]);
    chat.apply(Slot(1), &done(3, StopReason::Cancelled), UnixMillis(1));
    chat.apply(Slot(2), &done(4, StopReason::Cancelled), UnixMillis(1));
    assert!(chat.stop().is_empty() && !chat.typing);
    assert!(
        chat.send(UnixMillis(0)).is_empty() && chat.typing,
        "enter comes back to the input"
    );
}

#[test]
fn a_turn_that_was_stopped_while_it_was_read_stays_and_the_foot_tells_what_was_read() {
    let mut chat = ready(&[Some("chatml")]);
    say(&mut chat, "a long text");
    chat.sent(Slot(1), Ok(3));
    let prompted = Event::Prompted {
        command: 3,
        text: "a long text".into(),
        prompt_tokens: 4_884,
        tool_calls: None,
    };
    let read = Event::PromptRead {
        command: 3,
        tokens: 536,
        kept: 24,
    };
    let cut = Event::Generated {
        command: 3,
        n_tokens: 0,
        prompt_tokens: 4_884,
        kept_tokens: 24,
        seconds: 0.5,
        prefill_seconds: 0.0,
        reason: StopReason::Cancelled,
        message: String::new(),
        broken: false,
    };
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
    let foot = |chat: &ChatPane| {
        let rows = rows::rows(&chat.columns[0], &chat.conversation, look, 50);
        rows.iter().map(|row| row.to_string() + "\n").collect::<String>()
    };
    let steps = [
        (prompted, 1_000, "reading the prompt: 4,884 tokens\n"),
        (read, 1_500, "reading the prompt: 536 of 4,884 tokens · 1.02k tok/s\n"),
        (cut, 2_000, "stopped"),
    ];
    for (event, millis, told) in steps {
        chat.apply(Slot(1), &event, UnixMillis(millis));
        assert!(foot(&chat).contains(told), "{}", foot(&chat));
    }
    let told = foot(&chat);
    assert!(told.contains("read 536 of 4,884 tokens · stopped"), "{told}");
    assert!(!told.contains("4,860"), "{told}");
    let sent = say(&mut chat, "and a question");
    assert_eq!(turns(&sent[0]), [pair("user", "a long text\n\nand a question")]);
    // What the model could not take is left out, and that is said.
    chat.sent(Slot(1), Ok(4));
    let why = "too long".to_string();
    chat.apply(Slot(1), &Event::Rejected { id: 4, why }, UnixMillis(2));
    assert!(foot(&chat).contains("later turns are sent without this one"));
    let sent = say(&mut chat, "next");
    assert_eq!(turns(&sent[0]), [pair("user", "a long text\n\nnext")]);
    // The cause was told, and not what to do.
    chat.sent(Slot(1), Ok(5));
    let why = format!("the template has no tools; {}", crate::data::chat::ASK_WITHOUT_TOOLS);
    chat.apply(Slot(1), &Event::Rejected { id: 5, why }, UnixMillis(3));
    let told = foot(&chat).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("ask without the tools: ctrl-s, and empty the field tools"), "{told}");
}

#[test]
fn a_lost_engine_is_told_and_earlier_prompts_come_back() {
    let mut chat = ready(&[None]);
    say(&mut chat, "one");
    chat.lost(Slot(1), "killed");
    let column = &chat.columns()[0];
    assert_eq!(column.replies[0].answer, Answer::Failed("killed".into()));
    assert_eq!(column.engine, Engine::Failed("killed".into()));
    assert!(chat.recall(true));
    assert_eq!(chat.field().text(), "one");
    chat.recall(false);
    assert_eq!(chat.field().text(), "");
    assert!(say(&mut chat, "again").is_empty());
    let mut chat = ready(&[None]);
    chat.lost(Slot(1), "llmtui: x: no model\n  try: another\n");
    let told = Engine::Failed("x: no model; try: another".into());
    assert_eq!(chat.columns()[0].engine, told);
}

#[test]
fn what_is_being_typed_is_below_the_newest_prompt() {
    let mut chat = ready(&[Some("chatml")]);
    for (i, text) in ["one", "two"].into_iter().enumerate() {
        say(&mut chat, text);
        answer(&mut chat, 1, i as u64 + 1, "yes");
    }
    chat.field().set("a long question");
    assert!(!chat.recall(false), "there is nothing below it");
    assert_eq!(chat.field().text(), "a long question");
    for earlier in [true, true, true, false, false] {
        assert!(chat.recall(earlier));
    }
    assert_eq!(chat.field().text(), "a long question");
    assert!(!chat.recall(false));
    // A turn that is changed takes its place for a while, after a recalled prompt too.
    chat.recall(true);
    chat.edit();
    chat.edit();
    assert_eq!(chat.field().text(), "one");
    chat.stop();
    assert_eq!(chat.field().text(), "a long question");
    chat.edit();
    chat.recall(true);
    chat.recall(false);
    assert_eq!(chat.field().text(), "two", "the turn that is being changed");
    chat.send(UnixMillis(3));
    assert_eq!(chat.field().text(), "a long question");
}

#[test]
fn an_earlier_turn_is_changed_and_what_followed_is_forgotten() {
    let mut chat = ready(&[Some("chatml")]);
    for (i, text) in ["one", "two"].into_iter().enumerate() {
        say(&mut chat, text);
        answer(&mut chat, 1, i as u64 + 1, "yes");
    }
    chat.edit();
    assert_eq!(chat.field().text(), "two");
    chat.edit();
    assert_eq!(chat.field().text(), "one");
    let sent = say(&mut chat, "uno");
    assert_eq!(turns(&sent[0]), [pair("user", "uno")]);
    assert_eq!(chat.conversation.said, [Said::Text("uno".into())]);
    answer(&mut chat, 1, 5, "si");
    chat.edit();
    chat.stop();
    assert_eq!(chat.field().text(), "");
    assert!(chat.typing, "escape leaves the turn first");
}

#[test]
fn resending_replaces_the_last_answers() {
    let mut chat = ready(&[None, None]);
    say(&mut chat, "x");
    answer(&mut chat, 1, 1, "a");
    answer(&mut chat, 2, 2, "b");
    let sent = chat.resend(UnixMillis(0));
    assert_eq!(sent.len(), 2);
    assert_eq!(*prompt(&sent[1]), "x".into());
    assert_eq!(chat.columns()[1].replies.len(), 1);
}

#[test]
fn columns_come_and_go() {
    let mut chat = ready(&[None, None, None]);
    chat.picking = Picking::Add;
    chat.focus(1);
    // A fourth takes the focused one's place.
    assert_eq!(chat.place(model(9), Slot(9), UnixMillis(0)), Some(Slot(2)));
    assert_eq!(chat.drop_focused(), Some(Slot(9)));
    assert_eq!(chat.drop_focused(), Some(Slot(3)));
    assert_eq!(chat.drop_focused(), None, "the last one stays");
    assert!(chat.owns(Slot(1)));
}

#[test]
fn a_saved_conversation_is_rows_that_a_run_can_learn_from() {
    use crate::data::source::ReadContext;
    let mut chat = ready(&[Some("chatml"), None]);
    assert_eq!(chat.save(), None);
    let settings = Settings {
        sampling: Sampling::default(),
        system: "Be short.".into(),
        tools: String::new(),
    };
    chat.set(settings);
    say(&mut chat, "hi\nthere");
    answer(&mut chat, 1, 1, "ho");
    answer(&mut chat, 2, 2, ", said he");
    let saved = chat.save().unwrap();
    assert_eq!(saved.jsonl.lines().count(), 2);
    for part in ["## system", "## user\n\nhi\nthere", "step 1,000"] {
        assert!(saved.markdown.contains(part), "{}", saved.markdown);
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chat.jsonl");
    std::fs::write(&path, &saved.jsonl).unwrap();
    let source = crate::data::source::SourceConfig::path(path.display().to_string());
    let read = ReadContext::default();
    let format = Default::default();
    let rows: Vec<_> = crate::data::examples(&source, format, Default::default(), &read)
        .unwrap()
        .map(|row| row.unwrap().1.content)
        .collect();
    let message = |role: &str, content: &str| crate::data::Message::new(role, content);
    let crate::data::Content::Chat(turns) = &rows[0] else {
        panic!("{rows:?}")
    };
    let expected = [
        message("system", "Be short."),
        message("user", "hi\nthere"),
        message("assistant", "ho"),
    ];
    assert_eq!(turns[..], expected);
}

fn seeds(sent: &[Sent]) -> Vec<u64> {
    let seed = |(_, command): &Sent| match command {
        Command::Generate { sampling, .. } => sampling.seed,
        other => panic!("{other:?}"),
    };
    sent.iter().map(seed).collect()
}

/// The file had the first seed, with which the answer could not be had again.
#[test]
fn a_saved_answer_has_the_settings_that_it_was_drawn_with() {
    let mut chat = ready(&[Some("chatml")]);
    chat.sampling.stop = vec!["END".into()];
    let seed = chat.sampling.seed;
    say(&mut chat, "one");
    answer(&mut chat, 1, 1, "first");
    let saved = chat.save().unwrap();
    assert!(saved.markdown.contains("stop at \"END\", context auto, seed"), "{}", saved.markdown);
    say(&mut chat, "two");
    answer(&mut chat, 1, 2, "second");
    assert_eq!(seeds(&chat.resend(UnixMillis(0))), [seed + 1]);
    answer(&mut chat, 1, 3, "third");
    let saved = chat.save().unwrap();
    let row: serde_json::Value = serde_json::from_str(&saved.jsonl).unwrap();
    assert_eq!(row["sampling"]["seed"], seed + 1);
    let by_answer = &row["sampling_of_answers"];
    assert_eq!((&by_answer[0]["seed"], &by_answer[1]["seed"]), (&seed.into(), &(seed + 1).into()));
    for drawn in [seed, seed + 1] {
        assert!(saved.markdown.contains(&format!("context auto, seed {drawn}*")), "{}", saved.markdown);
    }
    // A model that comes later is asked each turn as the first one was.
    chat.picking = Picking::Add;
    chat.place(model(900), Slot(5), UnixMillis(0));
    let sent = chat.apply(Slot(5), &loaded(Some("chatml")), UnixMillis(0));
    assert_eq!(seeds(&sent), [seed]);
    assert_eq!(seeds(&answer(&mut chat, 5, 4, "eins")), [seed + 1]);
}

#[test]
fn a_saved_turn_is_what_the_model_was_asked() {
    let mut chat = ready(&[Some("chatml")]);
    say(&mut chat, "first");
    chat.sent(Slot(1), Ok(3));
    chat.apply(Slot(1), &done(3, StopReason::Cancelled), UnixMillis(1));
    let sent = say(&mut chat, "second");
    assert_eq!(turns(&sent[0]), [pair("user", "first\n\nsecond")]);
    answer(&mut chat, 1, 4, "yes");
    let row: serde_json::Value = serde_json::from_str(&chat.save().unwrap().jsonl).unwrap();
    assert_eq!(row["messages"][0]["content"], "first\n\nsecond");
    assert!(row.get("sampling_of_answers").is_none());
}

/// The next turn was asked with it, and the file had neither.
#[test]
fn what_a_lost_engine_had_written_is_saved_and_not_lost_without_a_question() {
    let mut chat = ready(&[Some("chatml")]);
    say(&mut chat, "count");
    chat.sent(Slot(1), Ok(3));
    chat.apply(Slot(1), &token(3, "one two"), UnixMillis(100));
    assert_eq!(chat.save(), None, "it is still being written");
    assert!(!chat.unsaved.any());
    chat.lost(Slot(1), "killed by signal 9");
    assert!(chat.unsaved.any() && chat.confirm_quit().is_some());
    let saved = chat.save().unwrap();
    let row: serde_json::Value = serde_json::from_str(&saved.jsonl).unwrap();
    assert_eq!(row["messages"][1]["content"], "one two");
    let said = "one two\n\n*broken off: killed by signal 9*\n";
    assert!(saved.markdown.ends_with(said), "{}", saved.markdown);
    // Nothing was written: there is no answer.
    let mut chat = ready(&[Some("chatml")]);
    say(&mut chat, "count");
    chat.lost(Slot(1), "killed");
    assert!(chat.save().is_none() && !chat.unsaved.any());
}

#[test]
fn a_download_is_told_and_can_be_stopped() {
    let mut chat = ChatPane::default();
    chat.place(
        ChatModel::of_path("org/name".into()),
        Slot(1),
        UnixMillis(0),
    );
    chat.opened(Slot(1), Ok(()));
    assert!(chat.stop_downloads().is_empty(), "loading is no download");
    let event = |bytes| Event::Downloading {
        file: "org/name/model.safetensors".into(),
        bytes,
        total: 5 << 20,
        bytes_per_sec: Some((2 << 20) as f64),
    };
    chat.apply(Slot(1), &event(1 << 20), UnixMillis(10));
    let column = &chat.columns()[0];
    assert_eq!(
        column.download.as_ref().map(Download::words),
        Some("downloading model.safetensors: 1 MiB of 5 MiB, 2 MiB/s".into())
    );
    assert_eq!(chat.stop_downloads(), [Slot(1)]);
    let Engine::Failed(why) = &chat.columns()[0].engine else {
        panic!("stopped")
    };
    assert!(why.contains("1 MiB of 5 MiB"), "{why}");
    // What the process still says is nobody's matter.
    chat.apply(Slot(1), &event(2 << 20), UnixMillis(20));
    chat.lost(Slot(1), "killed");
    assert!(matches!(&chat.columns()[0].engine, Engine::Failed(why) if why.contains("stopped")));
}

#[test]
fn adapters_are_answered_with_in_turn_and_then_the_base_alone() {
    let mut event = loaded(Some("chatml"));
    if let Event::Loaded { adapters, .. } = &mut event {
        *adapters = vec!["sft".into(), "dpo".into()];
    }
    let mut column = ready(&[Some("chatml")]).columns()[0].clone();
    column.apply(&event, UnixMillis(0));
    let mut used = |name: Option<&str>| {
        let event = Event::AdapterUsed {
            command: 3,
            name: name.map(String::from),
        };
        column.apply(&event, UnixMillis(0));
        let about = column.about.clone().unwrap();
        (about.words("·"), about.next_adapter().map(String::from))
    };
    let (words, next) = used(Some("sft"));
    assert!(words.contains("adapter sft"), "{words}");
    assert_eq!(next.as_deref(), Some("dpo"));
    assert_eq!(used(Some("dpo")).1, None);
    let (words, next) = used(None);
    assert!(words.contains("no adapter"), "{words}");
    assert_eq!(next.as_deref(), Some("sft"));
}
