//! Pictures of every screen, and what holds for all of them: sizes, ASCII, no colour.

use super::*;
use crate::advisor::wizard::Step;
use crate::ui::panes::plan::PlanPane;

/// The wizard, with Enter pressed up to a question.
fn wizard_at(bench: &mut Bench, step: Step) {
    bench.wizard();
    // Nobody is asked for a reward here.
    let asked = Step::ALL.iter().filter(|s| **s != Step::Reward);
    for _ in asked.take_while(|s| **s < step) {
        bench.press("enter");
    }
}

/// Recorded machines: without a GPU, with one, with eight, in trouble.
const MACHINES: [(&str, &str); 5] = [
    (
        "hardware-0",
        include_str!("../../../../../../tests/machines/cpu.json"),
    ),
    (
        "hardware-1",
        include_str!("../../../../../../tests/machines/healthy.json"),
    ),
    (
        "hardware-8",
        include_str!("../../../../../../tests/machines/eight.json"),
    ),
    (
        "hardware-hot",
        include_str!("../../../../../../tests/machines/throttled.json"),
    ),
    (
        "hardware-lost",
        include_str!("../../../../../../tests/machines/lost.json"),
    ),
];

/// A screen by its name, and how it is reached.
type Scene = (&'static str, fn(&mut Bench));

/// Home, help, the palette and the themes.
const HOME: &[Scene] = &[
    ("home-empty", |b| {
        b.msg(Msg::Runs(Ok((Vec::new(), Vec::new()))));
    }),
    ("home", |b| {
        b.runs().press("down");
    }),
    ("home-filter", |b| {
        b.runs().press("/").write("shake");
    }),
    ("help", |b| {
        b.runs().press("?");
    }),
    ("palette", |b| {
        b.runs().press(":").write("st");
    }),
    ("themes", |b| {
        b.runs().press("shift-t");
    }),
    ("toasts", |b| {
        b.live();
        b.event(Event::Checkpointed {
            step: 1_240,
            path: "checkpoints/step-001240".into(),
            bytes: 9_700_000,
            seconds: 0.1,
            best: true,
            val_loss: Some(Num(1.87)),
            by: None,
        });
        b.event(Event::Warned {
            step: 1_240,
            code: "spike".into(),
            message: "the gradient norm jumped to 41".into(),
            hint: "lower the learning rate".into(),
        });
    }),
];

/// The wizard and the editor.
const MAKING: &[Scene] = &[
    ("wizard-goal", |b| wizard_at(b, Step::Goal)),
    ("wizard-method", |b| wizard_at(b, Step::Method)),
    ("wizard-settings-wrong", |b| {
        wizard_at(b, Step::Settings);
        b.press("down").write("x").press("enter");
    }),
    ("wizard-plan", |b| wizard_at(b, Step::Plan)),
    ("wizard-finish", |b| wizard_at(b, Step::Finish)),
    ("wizard-advice", |b| {
        b.wizard().press("down enter down enter down enter enter");
    }),
    ("editor", |b| {
        b.editor().press("down down");
    }),
    ("editor-changed", |b| {
        b.editor()
            .press("/")
            .write("max_steps")
            .press("enter enter");
        b.press("backspace").press("enter v");
    }),
];

/// The run and what is asked of it.
const RUN: &[Scene] = &[
    ("run-none", |b| {
        b.press("2");
    }),
    ("run-live", |b| {
        b.live();
    }),
    ("run-stage", |b| {
        b.live();
        b.app.store.held.as_mut().unwrap().stage = Some(StageOf {
            id: "speedrun-x7ka".into(),
            pipeline: "speedrun".into(),
            stage: "chat".into(),
            number: 2,
            n_stages: 5,
            is_over: false,
            standing: PipelineStatus::Running,
            next: Some("rl".into()),
            live: None,
            outputs: Vec::new(),
        });
    }),
    ("run-queued", |b| {
        b.hold(tape::until(5, 0)[..1].to_vec(), Holder::Detached);
        b.event(Event::Queued {
            after: "2026-11-21-1040-shakespeare-zzzz".into(),
        });
    }),
    ("run-finished", |b| {
        b.hold(tape::standard(5), Holder::Log);
    }),
    ("run-end", |b| {
        b.hold(tape::standard(5), Holder::Log);
        b.press("r");
    }),
    ("leave", |b| {
        b.live();
        b.press("q");
    }),
    ("tune", |b| {
        b.live();
        b.press("t");
    }),
    ("sample-prompt", |b| {
        b.live();
        b.press("s").write("ROMEO:");
    }),
];

/// The chat.
const CHAT: &[Scene] = &[
    ("chat-empty", |b| {
        b.press("3").msg(Msg::Checkpoints(Vec::new()));
    }),
    ("chat", chatting),
    ("chat-beside", side_by_side),
    ("chat-colours", |b| {
        side_by_side(b);
        b.press("ctrl-v");
    }),
    ("chat-prompt", |b| {
        side_by_side(b);
        b.press("ctrl-b");
    }),
    ("chat-edit", |b| {
        chatting(b);
        let slot = b.chat().focused().and_then(|c| c.slot()).unwrap();
        let batch = vec![end(2, 2, StopReason::Cancelled)];
        b.msg(Msg::Incoming { slot, batch });
        b.press("ctrl-e");
    }),
    ("chat-settings", |b| {
        chatting(b);
        b.press("ctrl-s");
    }),
    ("chat-checkpoints", |b| {
        chatting(b);
        b.press("ctrl-o").msg(Msg::Checkpoints(checkpoint_rows()));
    }),
];

/// Data and plans.
const DATA: &[Scene] = &[
    ("data-empty", |b| {
        b.press("4");
    }),
    ("data", |b| {
        b.data().press("n n");
    }),
    ("data-finding", |b| {
        b.data().press("down enter");
    }),
    ("data-pair", |b| {
        b.data().press("r").write("24").press("enter");
    }),
    ("plan-empty", |b| {
        b.press("5");
    }),
    ("plan", |b| planning(b, "quickstart", None)),
    ("plan-gpu", |b| {
        planning(b, "llama-3.1-8b", Some("rtx-4090"));
        b.press("down down down down down right");
    }),
    ("plan-edit", |b| {
        planning(b, "quickstart", None);
        b.press("down down down enter").write("x");
        b.press("enter");
    }),
    ("plan-devices", |b| {
        planning(b, "quickstart", None);
        b.press("d");
    }),
];

/// The screens of the workbench outside the dashboard, by name.
fn scenes(new: impl Fn() -> Bench) -> Vec<(&'static str, Bench)> {
    let scene = |(name, reach): &Scene| {
        let mut bench = new();
        reach(&mut bench);
        (*name, bench)
    };
    let machine = |(name, recording): (&'static str, &str)| {
        let mut bench = new();
        bench.machine(recording, 150);
        (name, bench)
    };
    let all = [HOME, MAKING, RUN, CHAT, DATA].into_iter().flatten();
    all.map(scene).chain(MACHINES.map(machine)).collect()
}

#[test]
fn every_screen_at_80x24_and_160x48() {
    for (name, mut bench) in scenes(Bench::new) {
        let [small, large] = [(80, 24), (160, 48)].map(|(w, h)| steady(&bench.picture(w, h)));
        insta::assert_snapshot!(format!("{name}-80x24"), small);
        insta::assert_snapshot!(format!("{name}-160x48"), large);
    }
}

/// With the memory that the wizard plans in f32, 75.8 and 81.1 MiB: where `auto` is bf16, less is kept between matmuls, 65 and 70.
fn steady(picture: &str) -> String {
    let request = crate::plan::target::resolve("quickstart", &[], &Default::default()).unwrap();
    if request.precision.matmul_dtype() != "bf16" {
        return picture.into();
    }
    let in_f32 = |part: &str| {
        let Some((bytes, rest)) = part.split_once(" MiB of 24 GiB") else {
            return part.to_string();
        };
        let bytes: f64 = bytes.parse().unwrap();
        let planned = if bytes < 67.5 { "75.8" } else { "81.1" };
        format!("{planned} MiB of 24 GiB{rest}")
    };
    let mut parts = picture.split("fits: ");
    let first = parts.next().unwrap_or_default().to_string();
    let parts = parts.map(in_f32);
    std::iter::once(first)
        .chain(parts)
        .collect::<Vec<_>>()
        .join("fits: ")
}

#[test]
fn ascii_means_ascii() {
    for (name, mut bench) in scenes(|| Bench::with(options("ansi", ColorDepth::Ansi16, true))) {
        let picture = bench.picture(80, 24);
        let foreign: String = picture.chars().filter(|c| !c.is_ascii()).collect();
        // A control sequence of the model's text becomes a dot.
        assert!(
            foreign.is_empty() || name.starts_with("chat") && foreign == "·",
            "{name}: {foreign:?}\n{picture}"
        );
        if matches!(name, "home" | "chat" | "leave") {
            insta::assert_snapshot!(format!("{name}-ascii"), picture);
        }
    }
}

/// What is not drawn word by word kept its arrows.
#[test]
fn toasts_questions_and_guide_pages_are_ascii_too() {
    use crate::ui::overlays::Question;
    use crate::ui::panes::chat;
    let signs = "lr 1.00e-3 → 5.00e-4 · a “cut” word… × 2 ± 0.1";
    let plain = |bench: &mut Bench| {
        let picture = bench.picture(80, 24);
        assert!(picture.is_ascii(), "{picture}");
        picture
    };
    let mut bench = Bench::with(options("ansi", ColorDepth::Ansi16, true));
    bench.runs();
    bench.app.toast(crate::run::state::Level::Info, signs);
    assert!(plain(&mut bench).contains("1.00e-3 -> 5.00e-4"));
    let question = Question::new(
        signs,
        vec![signs.into()],
        ["do it", "keep it"],
        chat::WITH_RUN,
    );
    bench.app.open(Box::new(question));
    assert!(plain(&mut bench).contains("1.00e-3 -> 5.00e-4"));
    bench.press("esc");
    let guide = crate::ui::overlays::GuideSheet::new(&bench.app.store);
    bench.app.open(Box::new(guide));
    for _ in 0..40 {
        plain(&mut bench);
        bench.press("enter");
        plain(&mut bench);
        bench.press("esc").press("down");
    }
}

#[test]
fn no_color_means_no_colour() {
    use ratatui::style::Style;
    for (name, mut bench) in scenes(|| Bench::with(options("dark", ColorDepth::None, false))) {
        let buffer = bench.draw(100, 30);
        for cell in buffer.content() {
            let style = cell.style();
            let plain = Style::reset();
            assert_eq!(
                (style.fg, style.bg),
                (plain.fg, plain.bg),
                "{name}: {}",
                cell.symbol()
            );
        }
    }
}

#[test]
fn every_size_down_to_one_cell_draws() {
    for (_, mut bench) in scenes(Bench::new) {
        for (w, h) in (1..=200)
            .step_by(13)
            .flat_map(|w| (1..=60).step_by(4).map(move |h| (w, h)))
        {
            bench.draw(w, h);
        }
        for size in [
            (1, 1),
            (2, 1),
            (1, 2),
            (24, 6),
            (23, 6),
            (24, 5),
            (60, 15),
            (59, 14),
        ] {
            bench.draw(size.0, size.1);
        }
    }
}

/// A plan of this name on the screen, on this machine or on a GPU.
fn planning(b: &mut Bench, name: &str, gpu: Option<&str>) {
    use crate::plan::{Device, calibration, gpus, target};
    // What `auto` means differs from machine to machine.
    let set: &[String] = match name {
        "quickstart" => &["precision=f32".to_string()],
        _ => &[],
    };
    let mut request = target::resolve(name, set, &Default::default()).unwrap();
    if let Some(gpu) = gpu.and_then(gpus::find) {
        request = target::on_gpu(request, Device::of(gpu));
    }
    b.press("5 o").write(name).press("enter");
    b.msg(Msg::Planned {
        name: name.into(),
        result: Ok(Box::new(request)),
    });
    let machine = calibration::Machine {
        memory: Some(16 << 30),
        ..calibration::Machine::default()
    };
    b.msg(Msg::Machine(Box::new(machine)));
}

#[test]
fn a_small_window_says_whether_a_plan_fits_and_the_editor_how_to_train() {
    let mut bench = Bench::new();
    planning(&mut bench, "quickstart", None);
    for (width, height) in [(40, 12), (80, 24)] {
        let picture = bench.picture(width, height);
        assert!(
            picture.contains("fits: 89.1 MiB, 98.0 with margin"),
            "{picture}"
        );
    }
    let mut bench = Bench::new();
    let picture = bench.editor().picture(80, 24);
    assert!(
        picture.lines().last().unwrap().contains("t train"),
        "{picture}"
    );
}

/// A run on its own answers is told in prompts and answers, which were cut behind `16 prompts × 8`.
#[test]
fn the_length_of_a_run_on_its_own_answers_is_told_whole_in_a_small_window() {
    let request = crate::plan::target::resolve("grpo-arithmetic", &[], &Default::default());
    let request = request.unwrap();
    let length = request.rollout_length().unwrap();
    let passes = length.passes_words(request.prompts().unwrap());
    let mut bench = Bench::new();
    let panes = bench.app.panes.iter_mut();
    let mut plans =
        panes.filter_map(|pane| (&mut **pane as &mut dyn Any).downcast_mut::<PlanPane>());
    plans.next().unwrap().show(request, None);
    bench.press("5");
    for (width, height) in [(80, 24), (100, 30), (160, 48)] {
        let picture = bench.picture(width, height);
        let form = usize::from(width * 3 / 8).clamp(28, 46);
        let right: String = picture
            .lines()
            .map(|line| line.chars().skip(form).chain(['\n']).collect::<String>())
            .collect();
        let words = right.split_whitespace().collect::<Vec<_>>().join(" ");
        let cold_start = length.cold_start().unwrap();
        for whole in [&length.learned(), &cold_start, &passes, "checkpoint"] {
            assert!(words.contains(whole), "{whole}\n{picture}");
        }
    }
}
