//! The real app on a test backend: real keys, a clock that stands still, scripted links.

mod charts;
mod chat;
mod data;
mod deleting;
mod ended;
mod home;
mod keys;
mod narrow;
mod newcomer;
mod opening;
mod overlays;
mod painting;
mod queue;
mod scenes;
mod silence;
mod slow_steps;
mod stages;
mod sweep;

use super::*;
use crate::link::Incoming;
use crate::run::index::{RunStatus, RunSummary};
use crate::spec::PresetGroup;
use crate::ui::msg::{Asked, Holder, Opened, PipelineStatus, StageOf};
use crate::ui::panes::chat::ChatPane;
use crate::ui::rows::{CheckpointRow, PresetKind};
use crate::ui::tape;
use crate::wire::{Command, CommandId, Envelope, Event, Num, Phase, StopReason, StopWhen};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::any::Any;

/// 2026-11-21 10:42:00 UTC.
const NOW: UnixMillis = UnixMillis(1_795_257_720_000);

struct Bench {
    app: App,
    now: UnixMillis,
    /// By how many milliseconds somebody set the machine's clock forward.
    set_forward: u64,
    effects: Vec<Effect>,
    /// What was drawn last, while nothing asked for another draw.
    shown: Option<ratatui::buffer::Buffer>,
}

fn options(theme: &str, depth: ColorDepth, ascii: bool) -> AppOptions {
    let preset = |name: &str, about: &str| PresetRow {
        name: name.into(),
        about: about.into(),
        kind: PresetKind::Run(PresetGroup::Demo),
        is_template: false,
    };
    AppOptions {
        runs_dir: "runs".into(),
        home: None,
        presets: vec![
            preset(
                "quickstart",
                "A 0.8M-parameter GPT learns to write Shakespeare, character by character.",
            ),
            preset(
                "shakespeare",
                "A 10M-parameter GPT with a longer memory; about an hour on two cores.",
            ),
        ],
        keymap: Keymap::embedded(),
        themes: Themes::embedded(),
        theme: theme.into(),
        depth,
        ascii,
        utc_offset: 0,
        complaints: Vec::new(),
    }
}

impl Bench {
    fn new() -> Bench {
        Bench::with(options("ansi", ColorDepth::Ansi16, false))
    }

    fn with(options: AppOptions) -> Bench {
        let (app, effects) = App::new(options, StartScreen::Home, NOW);
        Bench {
            app,
            now: NOW,
            set_forward: 0,
            effects,
            shown: None,
        }
    }

    fn msg(&mut self, msg: Msg) -> &mut Bench {
        // Its clock may have been set.
        let at = Moment {
            now: UnixMillis(self.now.0 + self.set_forward),
            elapsed: self.now.since(NOW),
        };
        let said = format!("{msg:.60?}");
        self.effects = self.app.update(msg, at);
        self.is_painted(&said);
        self
    }

    /// Nothing that was drawn is out of date unless a draw was asked for: no screen waits for the next key.
    fn is_painted(&mut self, after: &str) {
        let stale = self.app.freshness() != Freshness::Fresh;
        let Some(shown) = self.shown.take().filter(|_| !stale) else {
            return;
        };
        let area = *shown.area();
        let now = self.draw(area.width, area.height);
        let rows = |buffer: &ratatui::buffer::Buffer| -> Vec<String> {
            let row = |y| (0..area.width).map(|x| buffer[(x, y)].symbol()).collect();
            (0..area.height).map(row).collect()
        };
        let (before, now) = (rows(&shown), rows(&now));
        for (before, now) in before.iter().zip(&now) {
            assert_eq!(before, now, "not drawn after {after}");
        }
    }

    fn click(&mut self, column: u16, row: u16) -> &mut Bench {
        self.msg(Msg::Mouse(MouseEvent {
            kind: MouseEventKind::Down(MouseButton::Left),
            column,
            row,
            modifiers: KeyModifiers::NONE,
        }))
    }

    /// Presses keys written as in a keymap, with blanks in between.
    fn press(&mut self, keys: &str) -> &mut Bench {
        for key in keys.split(' ') {
            let combination = crokey::parse(key).unwrap();
            let crokey::OneToThree::One(code) = combination.codes else {
                panic!("{key}")
            };
            self.msg(Msg::Key(KeyEvent::new(code, combination.modifiers)));
        }
        self
    }

    fn write(&mut self, text: &str) -> &mut Bench {
        for c in text.chars() {
            self.msg(Msg::Key(KeyEvent::new(
                KeyCode::Char(c),
                KeyModifiers::NONE,
            )));
        }
        self
    }

    fn wait(&mut self, millis: u64) -> &mut Bench {
        self.now = UnixMillis(self.now.0 + millis);
        self.msg(Msg::Tick)
    }

    /// The wizard on a machine of two cores, with the presets of the program.
    fn wizard(&mut self) -> &mut Bench {
        let sources = crate::spec::SpecSources::default();
        let summary = crate::hardware::Summary {
            cores: 2,
            ram_bytes: 24 << 30,
            ..Default::default()
        };
        let known = crate::plan::calibration::Machine {
            speed: Some(crate::plan::probe::Speed {
                on: "2 cores".into(),
                f32: Some(1.4e11),
                bf16: Some(1.4e11),
                times: 3,
                newest: Default::default(),
            }),
            ..Default::default()
        };
        let machine = crate::advisor::inspection::Machine::of(summary, known);
        let context = crate::advisor::wizard::Context::gather(&sources, None, machine);
        if self.app.opening.is_none() {
            self.app.ask(Effect::OpenWizard);
        }
        self.msg(Msg::Wizard(Box::new(context), Box::default()))
    }

    fn editor(&mut self) -> &mut Bench {
        let sources = crate::spec::SpecSources::default();
        let draft = crate::spec::Draft::open("quickstart", &sources);
        self.app.ask(Effect::OpenEditor("quickstart".into()));
        self.msg(Msg::Editor {
            target: "quickstart".into(),
            draft: draft.map(Box::new).map_err(|e| e.to_string()),
        })
    }

    /// The hardware pane of a recorded machine that was watched for `seconds`.
    fn machine(&mut self, recording: &str, seconds: usize) -> &mut Bench {
        use crate::hardware::{Provider, Recorded, Recording};
        let mut recorded = Recorded::new(Recording::parse(recording, "x").unwrap());
        self.press("6");
        for second in 0..seconds {
            let machine = (second == 0).then(|| Box::new(recorded.machine()));
            let values = recorded.sample();
            self.now = UnixMillis(self.now.0 + 1000);
            self.msg(Msg::Hardware { machine, values });
        }
        self
    }

    fn runs(&mut self) -> &mut Bench {
        self.msg(Msg::Runs(Ok((runs(), Vec::new()))))
    }

    /// Opens a run whose link brings `events`; it goes on when `holder` is an engine.
    fn hold(&mut self, events: Vec<Envelope>, holder: Holder) -> Slot {
        self.hold_at("runs/2026-11-21-1040-shakespeare-k3qf", events, holder)
    }

    /// [`Bench::hold`] of a run in another directory: a copy has the same log.
    fn hold_at(&mut self, path: &str, events: Vec<Envelope>, holder: Holder) -> Slot {
        self.app.open_run(path.into());
        let slot = self.app.run_slot().unwrap();
        self.msg(Msg::Opened {
            slot,
            result: Ok(Opened::new(path, holder)),
        });
        let mut batch: Vec<Incoming> = events
            .into_iter()
            .map(|mut e| {
                // What `auto` means, and with it the planned memory, differs from machine to machine.
                if let Event::Started { spec, .. } = &mut e.event {
                    spec["train"]["precision"] = "f32".into();
                }
                Incoming::Event(Box::new(e))
            })
            .collect();
        batch.push(Incoming::CaughtUp);
        self.msg(Msg::Incoming { slot, batch });
        slot
    }

    fn live(&mut self) -> Slot {
        let slot = self.hold(tape::until(5, 1_240), Holder::Detached);
        // The tape ends a minute before it is seen, and yet its step has just begun.
        let held = self.app.store.held.as_mut().unwrap();
        held.taken_before = std::time::Duration::ZERO;
        slot
    }

    /// An event behind those of the run on the screen.
    fn event(&mut self, event: Event) -> &mut Bench {
        let held = self.app.store.held.as_ref().unwrap();
        let envelope = Envelope {
            v: 1,
            seq: held.state.last_seq + 1,
            t: self.now,
            event,
        };
        let slot = held.slot;
        self.msg(Msg::Incoming {
            slot,
            batch: vec![Incoming::Event(Box::new(envelope))],
        })
    }

    fn draw(&mut self, width: u16, height: u16) -> ratatui::buffer::Buffer {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| self.app.draw(frame)).unwrap();
        self.app.drawn();
        self.shown = Some(terminal.backend().buffer().clone());
        terminal.backend().buffer().clone()
    }

    fn picture(&mut self, width: u16, height: u16) -> String {
        let buffer = self.draw(width, height);
        let row = |y| {
            (0..width)
                .map(|x| buffer[(x, y)].symbol())
                .collect::<String>()
        };
        (0..height)
            .map(|y| row(y).trim_end().to_string())
            .collect::<Vec<_>>()
            .join("\n")
    }

    fn chat(&self) -> &ChatPane {
        let panes = self.app.panes.iter();
        let mut chats = panes.filter_map(|pane| (&**pane as &dyn Any).downcast_ref());
        chats.next().unwrap()
    }

    fn sent(&self) -> Vec<&Command> {
        let mut commands = Vec::new();
        for effect in &self.effects {
            if let Effect::Send { command, .. } = effect {
                commands.push(command);
            }
        }
        commands
    }
}

fn runs() -> Vec<RunSummary> {
    let run = |id: &str, status, step, val: Option<f64>, minutes: u64| RunSummary {
        id: id.into(),
        created_as: id.into(),
        name: "shakespeare".into(),
        path: format!("runs/{id}").into(),
        status,
        phase: (status == RunStatus::Live).then_some(Phase::Training),
        method: "pretrain".into(),
        step,
        max_steps: 2_000,
        n_params: 800_000,
        train_loss: val,
        val_loss: val,
        best_val_loss: val,
        created: UnixMillis(NOW.0 - minutes * 60_000),
        updated: UnixMillis(NOW.0 - minutes * 30_000),
        seconds: 90.0,
        verdict: match status {
            RunStatus::Finished => Some("LEARNING".into()),
            RunStatus::Failed => Some("DIVERGED".into()),
            _ => None,
        },
        curve: (1..=24).map(|i| 1.5 + 2.5 / f64::from(i)).collect(),
        ..RunSummary::default()
    };
    vec![
        run(
            "2026-11-21-1040-shakespeare-k3qf",
            RunStatus::Live,
            1_240,
            Some(1.886),
            0,
        ),
        run(
            "2026-11-21-0912-quickstart-a2b7",
            RunStatus::Finished,
            2_000,
            Some(1.893),
            90,
        ),
        run(
            "2026-11-20-1801-my-poems-x9zz",
            RunStatus::Stopped,
            700,
            Some(2.412),
            1_000,
        ),
        run(
            "2026-11-19-1801-wild-lr-p0p0",
            RunStatus::Failed,
            31,
            None,
            2_400,
        ),
    ]
}

fn checkpoint_rows() -> Vec<CheckpointRow> {
    let row = |run: &str, step, val_loss, best, live: bool| CheckpointRow {
        rows: None,
        on_all: None,
        path: format!("runs/{run}/{}", crate::run::checkpoints::path_in_run(step)).into(),
        run: run.into(),
        step,
        val_loss: Some(val_loss),
        by: None,
        best,
        phase: live.then_some(Phase::Training),
        generates: true,
    };
    vec![
        row("2026-11-21-1040-shakespeare-k3qf", 1_000, 1.93, true, true),
        row("2026-11-21-1040-shakespeare-k3qf", 500, 2.21, false, true),
        row("2026-11-21-0912-quickstart-a2b7", 2_000, 1.893, true, false),
    ]
}

/// An event of an inference engine.
fn said(event: Event) -> Incoming {
    Incoming::Event(Box::new(Envelope {
        v: 1,
        seq: 1,
        t: NOW,
        event,
    }))
}

fn loaded(template: Option<&str>) -> Incoming {
    said(Event::Loaded {
        architecture: if template.is_some() { "llama" } else { "gpt2" }.into(),
        n_params: if template.is_some() {
            134_515_008
        } else {
            804_000
        },
        vocab_size: 65,
        context: if template.is_some() { 8_192 } else { 64 },
        template: template.map(String::from),
        quantized: template.map(|_| "Q4_1".into()),
        kv_cache: None,
        seconds: 0.4,
        notes: Vec::new(),
        adapters: Vec::new(),
        stop: Vec::new(),
        trained_by: None,
        parallel: None,
    })
}

fn token(id: CommandId, text: &str, logprob: f64) -> Incoming {
    said(Event::Token {
        command: id,
        text: text.into(),
        logprob: Num(logprob),
        entropy: Some(Num(-1.5 * logprob)),
        id: None,
        bytes: None,
        top: Vec::new(),
    })
}

fn end(id: CommandId, n_tokens: u64, reason: StopReason) -> Incoming {
    said(Event::Generated {
        command: id,
        n_tokens,
        prompt_tokens: 36,
        kept_tokens: 0,
        seconds: 0.62,
        prefill_seconds: 0.12,
        reason,
        message: String::new(),
        broken: false,
    })
}

/// The engine of the newest column is there.
fn model_is_there(bench: &mut Bench, template: Option<&str>) -> Slot {
    let slot = bench.chat().focused().and_then(|c| c.slot()).unwrap();
    let opened = Opened::new("x", Holder::Detached);
    bench.msg(Msg::Opened {
        slot,
        result: Ok(opened),
    });
    bench.msg(Msg::Incoming {
        slot,
        batch: vec![loaded(template)],
    });
    slot
}

/// The engine answers its last command under this id.
fn answer(bench: &mut Bench, slot: Slot, id: CommandId, batch: Vec<Incoming>) {
    bench.msg(Msg::Sent {
        slot,
        asked: Asked::Generate,
        result: Ok(id),
    });
    bench.msg(Msg::Incoming { slot, batch });
}

/// A chat with one finished and one streaming answer of a base model.
fn chatting(bench: &mut Bench) {
    bench.press("3").msg(Msg::Checkpoints(checkpoint_rows()));
    let slot = model_is_there(bench, None);
    bench.write("ROMEO:").press("enter");
    let text = "\nWhat say'st thou to my lord the duke of heaven,\nAnd that the world shall be the common of the\x1b[2J people?";
    answer(
        bench,
        slot,
        1,
        vec![token(1, text, -1.0), end(1, 96, StopReason::Length)],
    );
    bench.write("JULIET:").press("enter");
    answer(
        bench,
        slot,
        2,
        vec![token(2, " O", -1.0), token(2, ", what", -0.1)],
    );
}

const FRANCE: &str = "The capital of France is";

/// A base model and two chat models beside it, which have answered.
fn side_by_side(bench: &mut Bench) {
    bench.press("3").msg(Msg::Checkpoints(checkpoint_rows()));
    let base = model_is_there(bench, None);
    let mut slots = vec![base];
    for name in ["SmolLM2-135M-Instruct.Q4_1.gguf", "models/smollm2-sft"] {
        bench.press("ctrl-n").write("path or hub").press("enter");
        bench.write(name).press("enter");
        slots.push(model_is_there(bench, Some("the tokenizer's")));
    }
    bench.write(FRANCE).press("enter");
    let prompt = |id| {
        said(Event::Prompted {
            command: id,
            text: format!(
                "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n{FRANCE}<|im_end|>\n<|im_start|>assistant\n"
            ),
            prompt_tokens: 36,
            tool_calls: None,
        })
    };
    let words = |id| {
        vec![
            prompt(id),
            token(id, "The", -0.05),
            token(id, " capital", -0.3),
            token(id, " of", -0.01),
            token(id, " France", -0.9),
            token(id, " is", -0.02),
            token(id, " Paris", -1.6),
            token(id, ", a", -3.5),
            token(id, " city", -0.7),
        ]
    };
    answer(
        bench,
        slots[0],
        1,
        vec![
            token(1, " the common of the people", -2.5),
            end(1, 6, StopReason::Length),
        ],
    );
    let mut batch = words(2);
    batch.push(end(2, 8, StopReason::Stop));
    answer(bench, slots[1], 2, batch);
    answer(bench, slots[2], 3, words(3));
}
