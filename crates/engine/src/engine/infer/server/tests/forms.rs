//! Answers of a form, which threads of their own make.

use super::*;

/// A prompt whose answer has a form.
fn formed(id: CommandId, prompt: &str, max_new_tokens: usize) -> InboxItem {
    let wanted = Wanted {
        json_schema: Some(Box::new(serde_json::json!({}))),
        ..Wanted::default()
    };
    let mut item = generate(id, prompt, max_new_tokens);
    if let Ok(Request {
        command: Command::Generate { wanted: own, .. },
        ..
    }) = &mut item
    {
        *own = wanted;
    }
    item
}

/// Serves these with so many rows; `at_token` gets what lets forms be made.
fn served_with_forms(
    rows: usize,
    before: Vec<InboxItem>,
    mut at_token: impl FnMut(usize, &SyncSender<InboxItem>, &Receiver<MakeForm>),
) -> Vec<Event> {
    let (send, inbox) = sync_channel(64);
    for heard in before {
        send.send(heard).unwrap();
    }
    let (forms, asked) = sync_channel(8);
    let mut events = Vec::new();
    let mut hook = |n: usize| at_token(n, &send, &asked);
    let mut model = Parrot::new(rows, &mut hook);
    model.forms = Some(forms);
    serve(&mut model, &inbox, &ManualClock::at(0), &mut |event| {
        events.push(event);
    });
    events
}

#[test]
fn others_are_written_while_a_form_is_made() {
    let before = vec![formed(1, "f", 1), generate(2, "ab", 1_000_000)];
    let mut first_tokens = 0;
    let events = served_with_forms(2, before, |n, send, forms| match n {
        1 if first_tokens == 1 => send.send(ask(9, Command::Detach)).unwrap(),
        1 => first_tokens += 1,
        30 => forms.recv().unwrap().send(Ok(())).unwrap(),
        _ => {}
    });
    let of = |id: CommandId| {
        let is_its = move |e: &Event| matches!(e, Event::Token { command, .. } if *command == id);
        events
            .iter()
            .enumerate()
            .filter(move |(_, e)| is_its(e))
            .map(|(at, _)| at)
    };
    let formed = of(1).next().unwrap();
    assert!(of(2).take_while(|at| *at < formed).count() >= 30);
    assert_eq!(texts(&events, 1), "f");
}

#[test]
fn a_form_that_cannot_be_made_ends_its_answer_and_gives_the_row_back() {
    let most = 1_000_000;
    let before = vec![
        formed(1, "f", 1),
        generate(2, "c", most),
        generate(3, "d", most),
    ];
    let mut first_tokens = 0;
    let events = served_with_forms(2, before, |n, send, forms| {
        if n == 1 {
            first_tokens += 1;
            match first_tokens {
                1 => forms
                    .recv()
                    .unwrap()
                    .send(Err("no such form".into()))
                    .unwrap(),
                _ => send.send(ask(9, Command::Detach)).unwrap(),
            }
        }
    });
    let refused = (StopReason::Failed, "no such form".to_string());
    assert_eq!(reason(&events, 1), Some(refused));
    assert_eq!(texts(&events, 3), "d");
}

#[test]
fn an_answer_whose_form_is_being_made_can_be_cancelled() {
    let cancel = ask(5, Command::Cancel { target: 1 });
    let before = vec![formed(1, "f", 1), generate(2, "c", 1), cancel];
    // One row, which is kept for the first.
    let events = served_with_forms(1, before, |_, send, _| {
        send.send(ask(9, Command::Detach)).unwrap();
    });
    assert_eq!(
        reason(&events, 1),
        Some((StopReason::Cancelled, String::new()))
    );
    assert_eq!(texts(&events, 2), "c");
}

#[test]
fn an_answer_whose_form_is_being_made_ends_with_the_engine() {
    let before = vec![formed(1, "f", 1), detach(2)];
    let events = served_with_forms(1, before, |_, _, _| {});
    assert_eq!(
        reason(&events, 1),
        Some((StopReason::Cancelled, String::new()))
    );
}

/// A thread that makes a form cannot be stopped: whoever asks and cancels, again and again, would have had one for each.
#[test]
fn a_form_waits_for_the_thread_of_one_that_was_cancelled() {
    let (_send, inbox) = sync_channel(1);
    let (forms, begun) = sync_channel(8);
    let (mut nothing, mut emit) = (|_: usize| {}, |_: Event| {});
    let mut model = Parrot::new(1, &mut nothing);
    model.forms = Some(forms);
    let clock = ManualClock::at(0);
    let mut server = InferenceServer {
        inbox: &inbox,
        emit: &mut emit,
        clock: &clock,
        waiting: VecDeque::new(),
        preparing: Vec::new(),
        abandoned: Vec::new(),
        rows: vec![None],
        open: true,
    };
    server.handle(formed(1, "f", 1));
    server.begin_next(&mut model);
    let first = begun.try_recv().unwrap();
    server.handle(ask(5, Command::Cancel { target: 1 }));
    server.handle(formed(2, "f", 1));
    server.begin_next(&mut model);
    assert!(begun.try_recv().is_err() && server.waiting.len() == 1);
    first.send(Ok(())).unwrap();
    while !server.waiting.is_empty() {
        server.wait();
        server.begin_next(&mut model);
    }
    // The prompt is read once the form is there.
    let second = begun.try_recv().unwrap();
    clock.advance(Duration::from_secs(2));
    second.send(Ok(())).unwrap();
    while server.rows[0].is_none() {
        server.wait();
        server.begin_next(&mut model);
    }
    let own = server.rows[0].as_ref().unwrap();
    assert_eq!(own.read_from, Duration::from_secs(2));
}
