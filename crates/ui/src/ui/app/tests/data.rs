//! A small data set on the screen, and what keys do with it.

use super::*;
use crate::data::inspect::{
    Inspected, Inspector, Options, Progress, RenderedDocument, Subject, View, parts,
};
use crate::data::{Content, Document, Example, Message, Place, RowFault, Turns};
use std::sync::{Arc, Mutex};

/// A token a word, its blank in front; ChatML around turns.
#[derive(Default)]
struct Words(Mutex<Vec<String>>);

impl Words {
    fn id(&self, word: &str) -> u32 {
        let mut words = self.0.lock().unwrap();
        if words.is_empty() {
            words.extend(["<|im_start|>", "<|im_end|>"].map(String::from));
        }
        let at = words.iter().position(|w| w == word).unwrap_or_else(|| {
            words.push(word.to_string());
            words.len() - 1
        });
        at as u32
    }

    fn push(&self, text: &str, supervised: bool, document: &mut Document) {
        let mut start = 0;
        for (i, c) in text.char_indices().skip(1).chain([(text.len(), ' ')]) {
            if (c == ' ' || c == '\n' || i == text.len()) && i > start {
                document.ids.push(self.id(&text[start..i]));
                document.supervised.push(supervised);
                start = i;
            }
        }
    }

    fn document(&self, turns: &[(String, String, bool)]) -> Document {
        let mut document = Document::default();
        for (role, text, supervised) in turns {
            self.push("<|im_start|>", false, &mut document);
            self.push(role, false, &mut document);
            self.push("\n", false, &mut document);
            self.push(text, *supervised, &mut document);
            self.push("<|im_end|>", *supervised, &mut document);
            self.push("\n", false, &mut document);
        }
        document
    }
}

impl View for Words {
    fn name(&self) -> &str {
        "words, template chatml"
    }

    fn render(&self, example: &Example, _place: &Place) -> Result<Vec<RenderedDocument>, RowFault> {
        let all: Vec<(String, String, bool)> = parts(example)
            .iter()
            .map(|p| (p.role.to_string(), p.text.to_string(), p.answer))
            .collect();
        let side = |label, leave: &str| RenderedDocument {
            label,
            document: self.document(
                &all.iter()
                    .filter(|(role, ..)| role != leave)
                    .cloned()
                    .collect::<Vec<_>>(),
            ),
        };
        Ok(match example.content {
            Content::Preference { .. } => {
                vec![side("chosen", "rejected"), side("rejected", "chosen")]
            }
            _ => vec![side("", "")],
        })
    }

    fn pieces(&self, ids: &[u32]) -> Vec<String> {
        let words = self.0.lock().unwrap();
        ids.iter().map(|id| words[*id as usize].clone()).collect()
    }

    fn vocab_size(&self) -> usize {
        4096
    }

    fn ends(&self) -> Vec<u32> {
        vec![1]
    }

    fn specials(&self) -> Vec<u32> {
        vec![0, 1]
    }
}

fn chat(user: &str, assistant: &str) -> Example {
    Example::new(Content::Chat(vec![
        Message::new("user", user),
        Message::new("assistant", assistant),
    ]))
}

/// A hundred rows of two files, with some faults.
pub(super) fn inspected() -> Arc<Inspected> {
    let view: Arc<dyn View> = Arc::new(Words::default());
    let options = Options {
        name: "chats".into(),
        seq_len: Some(48),
        keep_bytes: 1 << 20,
        ..Options::default()
    };
    let mut inspector = Inspector::new(options, Some(view.clone()));
    inspector.set_format("messages: conversations of role and content");
    let measure = inspector.measure();
    for i in 0..100_u64 {
        let file = if i < 70 {
            "chats/kitchen.jsonl"
        } else {
            "chats/garden.jsonl"
        };
        let place = Place {
            file: file.into(),
            row: i % 70 + 1,
        };
        let steps: String = (0..i % 17)
            .map(|n| format!(" Then stir for {} minutes.", n + i))
            .collect();
        let example = match i {
            7 => {
                inspector.observe(Err(RowFault::new(
                    &place,
                    "no `messages`",
                    "name the column",
                )));
                continue;
            }
            11 => chat("How long do I boil an egg?", ""),
            23 => Example::new(Content::Preference {
                prompt: Turns::Messages(vec![Message::new("user", "Is basil a herb?")]),
                chosen: Turns::Messages(vec![Message::new("assistant", "Yes, it is.")]),
                rejected: Turns::Messages(vec![Message::new("assistant", "No idea \u{1b}[31m!")]),
            }),
            _ => chat(
                &format!("How do I cook dish number {}?", i % 60),
                &format!(
                    "Heat {} spoons of oil in a pan.{steps}\nServe it warm.",
                    i % 60
                ),
            ),
        };
        let row = measure.row(place, file.into(), example);
        inspector.observe(Ok(row));
    }
    let (report, kept) = inspector.finish();
    Arc::new(Inspected {
        report,
        kept,
        view: Some(view),
    })
}

impl Bench {
    /// The data pane with a set on it.
    pub(super) fn data(&mut self) -> &mut Bench {
        self.press("4 o").write("chats").press("enter");
        self.msg(Msg::DataInspected {
            name: "chats".into(),
            result: Ok(inspected()),
        })
    }
}

#[test]
fn a_path_is_asked_for_and_read_away_from_the_screen() {
    let mut bench = Bench::new();
    bench.press("4");
    assert!(bench.picture(80, 24).contains("No dataset open"));
    bench.press("enter").write("chats").press("enter");
    assert_eq!(
        bench.effects,
        [Effect::InspectData(Box::new(Subject::of_path("chats")))]
    );
    let progress = Progress {
        rows: 12_400,
        share: Some(0.38),
    };
    let name = || "chats".to_string();
    bench.msg(Msg::DataProgress {
        name: name(),
        progress,
    });
    let picture = bench.picture(80, 24);
    assert!(
        picture.contains("reading chats  12,400 rows  38 %"),
        "{picture}"
    );
    bench.msg(Msg::DataInspected {
        name: name(),
        result: Err("chats does not exist".into()),
    });
    assert!(bench.picture(80, 24).contains("chats does not exist"));
    // The answer of a cancelled inspection.
    bench.msg(Msg::DataInspected {
        name: "other".into(),
        result: Ok(inspected()),
    });
    assert!(bench.picture(80, 24).contains("chats does not exist"));
}

/// The reason was cut off, and there was no way to map the columns here.
#[test]
fn columns_that_no_format_knows_can_be_mapped() {
    let mut bench = Bench::new();
    bench.data().press("o enter");
    let options = "--format instruction_response --column 'instruction=My question'";
    bench.msg(Msg::DataInspected {
        name: "chats".into(),
        result: Err(format!(
            "chats:2 columns match no known format: My question; try: {options}"
        )),
    });
    let picture = bench.picture(100, 30);
    assert!(
        picture.contains("opens it with its columns mapped"),
        "{picture}"
    );
    bench.press("o enter");
    let mapped = Subject::of_words(&format!("chats {options}")).unwrap();
    assert_eq!(bench.effects, [Effect::InspectData(Box::new(mapped))]);
}

#[test]
fn rows_are_walked_searched_and_jumped_to() {
    let mut bench = Bench::new();
    bench.data();
    assert!(bench.picture(100, 30).contains(" 1 of 100 "));
    bench.press("n n p");
    assert!(bench.picture(100, 30).contains(" 2 of 100 "));
    bench.press("r").write("24").press("enter");
    let picture = bench.picture(100, 30);
    assert!(
        picture.contains(" 24 of 100 ") && picture.contains("rejected:"),
        "{picture}"
    );
    assert!(!picture.contains('\u{1b}'));
    bench.press("r").write("many").press("enter");
    assert!(
        bench
            .picture(100, 30)
            .contains("`many` is not a row number")
    );
    bench.press("/").write("boil an EGG").press("enter");
    let picture = bench.picture(100, 30);
    assert!(picture.contains(" 1 of 1 with “boil an egg”"), "{picture}");
    bench.press("/").write("zzz").press("enter");
    assert!(bench.picture(100, 30).contains("No row matches"));
    bench.press("esc");
    assert!(bench.picture(100, 30).contains("of 100 "));
}

#[test]
fn a_finding_shows_its_rows_and_all_again() {
    let mut bench = Bench::new();
    bench.data().press("enter");
    let picture = bench.picture(100, 30);
    assert!(picture.contains(" 1 of 1 with unreadable"), "{picture}");
    assert!(picture.contains("no `messages`"), "{picture}");
    bench.press("enter down enter");
    assert!(!bench.picture(100, 30).contains("with unreadable"));
    bench.press("esc");
    assert!(bench.picture(100, 30).contains("of 100 "));
}

#[test]
fn another_tokenizer_reads_the_same_data_again() {
    let mut bench = Bench::new();
    bench.data().press("t").write("models/qwen").press("enter");
    let mut subject = Subject::of_path("chats");
    subject.tokenizer = Some("models/qwen".into());
    assert_eq!(bench.effects, [Effect::InspectData(Box::new(subject))]);
    // What was there stays on the screen meanwhile.
    let picture = bench.picture(100, 30);
    assert!(
        picture.contains("reading chats") && picture.contains("of 100 "),
        "{picture}"
    );
}

#[test]
fn the_view_changes_and_long_rows_scroll() {
    let mut bench = Bench::new();
    bench.data().press("r").write("16").press("enter");
    assert!(bench.picture(80, 24).contains("⏎"));
    bench.press("v");
    let rendered = bench.picture(80, 24);
    assert!(
        rendered.contains("as text") && !rendered.contains("⏎"),
        "{rendered}"
    );
    bench.press("v");
    assert!(bench.picture(80, 24).contains("── user"));
    bench.press("v");
    bench.picture(80, 12);
    bench.press("pagedown pagedown");
    let scrolled = bench.picture(80, 12);
    assert!(
        scrolled.contains("100 %") && !scrolled.contains("<|im_start|>user"),
        "{scrolled}"
    );
}

#[test]
fn the_data_of_the_open_run_are_shown_by_themselves() {
    let mut bench = Bench::new();
    bench.live();
    let held = bench.app.store.held.as_mut().unwrap();
    let head = held.state.head.as_mut().unwrap();
    head.spec["data"] = serde_json::to_value(crate::data::DataConfig::default()).unwrap();
    bench.press("4");
    assert!(
        matches!(&bench.effects[..], [Effect::InspectData(subject)] if subject.path().is_none()),
        "{:?}",
        bench.effects
    );
    bench.press("3 4");
    assert_eq!(bench.effects, [], "once is enough");
}

/// The data and the plan of one's own stand beside the run's charts: going there and back must not lose them.
#[test]
fn what_was_opened_instead_of_the_runs_own_stays_while_the_run_is_the_same() {
    let loaded = crate::spec::load("quickstart", &[], &Default::default()).unwrap();
    let mut events = tape::standard(5);
    for envelope in &mut events {
        if let Event::Started { spec, .. } = &mut envelope.event {
            *spec = loaded.spec.to_value();
        }
    }
    let mut bench = Bench::new();
    bench.hold_at("runs/one", events, Holder::Log);
    bench
        .press("4")
        .press("o")
        .write("other.jsonl")
        .press("enter");
    bench.effects.clear();
    bench.press("home").press("4");
    let reads = |effect: &Effect| matches!(effect, Effect::InspectData(_));
    assert!(!bench.effects.iter().any(reads), "{:?}", bench.effects);
    bench
        .press("5")
        .press("o")
        .write("llama-3.1-8b")
        .press("enter");
    let asked = |effect: &Effect| matches!(effect, Effect::PlanTarget { .. });
    assert!(bench.effects.iter().any(asked), "{:?}", bench.effects);
    let request = crate::plan::models::find("llama-3.1-8b").map(crate::plan::reference_request);
    bench.msg(Msg::Planned {
        name: "llama-3.1-8b".into(),
        result: Ok(Box::new(request.unwrap())),
    });
    assert!(bench.picture(120, 40).contains("llama-3.1-8b"));
    let picture = bench.press("home").press("5").picture(120, 40);
    assert!(picture.contains("llama-3.1-8b"), "{picture}");
}
