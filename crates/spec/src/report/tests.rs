//! A report of a run whose every text is hostile.

use super::*;
use crate::diagnosis::diagnose;
use crate::tasks;
use crate::wire::{Envelope, Event};
use serde_json::json;

const HOSTILE: &str = "<script src=\"http://evil.example/x.js\">'&`| [x](http://evil.example)";

fn envelope(seq: u64, event: serde_json::Value) -> Envelope {
    let event: Event = serde_json::from_value(event).unwrap();
    serde_json::from_value(json!({"v": 1, "seq": seq, "t": 1000 * seq, "event": event})).unwrap()
}

fn state() -> RunState {
    let mut events = vec![
        json!({"type": "Started", "name": HOSTILE, "method": "pretrain", "spec": {"data": {"path": HOSTILE}},
            "n_params": 1000, "vocab_size": 64, "max_steps": 60, "batch_tokens": 32, "epoch_tokens": 640}),
        json!({"type": "MetricsDeclared", "metrics": [{"id": "grad_norm", "title": HOSTILE, "unit": HOSTILE,
            "direction": "lower", "source": ""},
            {"id": "dead/layer", "title": HOSTILE, "unit": HOSTILE, "direction": "lower", "source": "", "per_layer": true},
            {"id": "epochs/chats", "title": "Epochs of chats", "unit": "", "direction": "neutral", "source": ""},
            {"id": "tokens/chats", "title": "Tokens of chats", "unit": "", "direction": "neutral", "source": ""},
            {"id": "tokens/second", "title": "Speed", "unit": "", "direction": "neutral", "source": ""}]}),
    ];
    for step in 1..=60 {
        events.push(json!({"type": "Stepped", "step": step, "tokens": 32 * step,
            "values": {"train/loss": 4.0 / f64::from(step), "grad_norm": 1.0, "lr": 0.001, "epochs/chats": 0.05 * f64::from(step),
            "tokens/chats": 32 * step, "tokens/second": 100.0}}));
    }
    // Block 1 dies, block 2 was never finite.
    for step in [10, 20, 30] {
        events.push(json!({"type": "Probed", "step": step,
            "layers": {"dead/layer": [0.01, f64::from(step) / 30.0, "NaN"]}}));
    }
    events.push(json!({"type": "Noted", "step": 31, "text": HOSTILE}));
    events.push(
        json!({"type": "Sampled", "step": 60, "prompt": HOSTILE, "text": HOSTILE, "seconds": 0.1}),
    );
    let events: Vec<Envelope> = (1..).zip(events).map(|(seq, e)| envelope(seq, e)).collect();
    let mut state = RunState::from_events(&events);
    state.run = HOSTILE.into();
    state
}

fn sheet<'a>(state: &'a RunState, diagnosis: &'a Diagnosis) -> RunReport<'a> {
    let reading = |metric: &str, stderr| tasks::Reading {
        metric: metric.into(),
        group: None,
        value: 0.5,
        stderr,
        n: 4,
    };
    let summary = tasks::Summary {
        task: HOSTILE.into(),
        version: 1,
        shots: 0,
        items: 4,
        headline: "acc".into(),
        readings: vec![reading("acc", Some(0.25)), reading(HOSTILE, None)],
        cut: 0,
        truncated: 0,
        unfinished: 0,
    };
    RunReport {
        state,
        diagnosis,
        spec: format!("name: {HOSTILE}\n"),
        asked: HOSTILE.into(),
        trained: Some(", of which 40 train (4 %): LoRA rank 8 (all)".into()),
        predicted_bytes: Some(1 << 20),
        results: vec![tasks::Kept {
            model: HOSTILE.into(),
            summary,
            limited: false,
            origin: tasks::TaskOrigin::Own,
        }],
        price: Some(Price {
            dollars: 2.5,
            source: HOSTILE.into(),
        }),
    }
}

/// No element and no attribute that makes a browser ask for anything, no style that does, and a policy that forbids the rest.
fn fetches_nothing(page: &str) {
    const ELEMENTS: &[&str] = &[
        "script",
        "link",
        "img",
        "image",
        "iframe",
        "frame",
        "object",
        "embed",
        "audio",
        "video",
        "source",
        "base",
        "use",
        "form",
        "portal",
        "feimage",
        "foreignobject",
    ];
    const ATTRIBUTES: &[&str] = &[
        "http:",
        "https:",
        "src",
        "href",
        "data=",
        "action",
        "poster",
        "ping",
        "background",
        "onload",
        "onerror",
        "evil",
    ];
    // Names of elements and of attributes are ours; a hostile text stands in an attribute's quotes alone.
    for tag in page.split('<').skip(1) {
        let tag = tag.split('>').next().unwrap();
        let outside: String = tag.split('"').step_by(2).collect::<String>().to_lowercase();
        let element = outside
            .trim_start_matches('/')
            .split([' ', '/'])
            .next()
            .unwrap();
        assert!(!ELEMENTS.contains(&element), "<{tag}>");
        for word in ATTRIBUTES {
            assert!(!outside.contains(word), "<{tag}>");
        }
        // The one attribute with a place in it asks for no page: it refreshes nothing.
        assert!(
            !tag.contains("http-equiv") || tag.contains("Content-Security-Policy"),
            "<{tag}>"
        );
    }
    for style in page.split("<style>").skip(1) {
        let style = style.split("</style>").next().unwrap().to_lowercase();
        for word in [
            "url(",
            "@import",
            "@font-face",
            "image(",
            "image-set(",
            "//",
        ] {
            assert!(!style.contains(word), "{word}");
        }
    }
    assert!(!page.contains(" style=") && page.matches("<style>").count() == 1);
    assert!(page.contains("content=\"default-src 'none'; style-src 'unsafe-inline'\""));
}

#[test]
fn a_page_fetches_nothing_and_shows_every_text_as_text() {
    let state = state();
    let diagnosis = diagnose(&state);
    let page = html(&sheet(&state, &diagnosis));
    assert!(page.contains("&lt;script src=&quot;http://evil.example/x.js&quot;&gt;&#39;&amp;"));
    fetches_nothing(&page);
    assert!(page.contains("0.5000 ± 0.2500") && page.contains("prefers-color-scheme:dark"));
    assert!(page.matches("<svg").count() >= 3, "curves are missing");
    assert!(
        !page.contains("NaN"),
        "a picture has places that are non-finite"
    );
}

#[test]
fn the_page_of_a_pipeline_fetches_nothing_either() {
    let state = state();
    let diagnosis = diagnose(&state);
    let stages: State = serde_json::from_value(json!({
        "format": 1, "id": HOSTILE, "name": HOSTILE, "about": HOSTILE, "created": 0, "stages": [],
    }))
    .unwrap();
    let page = pipeline_html(&PipelineReport {
        state: &stages,
        sheets: vec![sheet(&state, &diagnosis), sheet(&state, &diagnosis)],
    });
    assert!(page.contains("&lt;script src=") && page.matches("<svg").count() >= 6);
    fetches_nothing(&page);
}

#[test]
fn blocks_have_a_map_whose_darkest_cell_is_the_highest_value() {
    let state = state();
    let diagnosis = diagnose(&state);
    let page = html(&sheet(&state, &diagnosis));
    let map = page
        .split("<h2>By block</h2>")
        .nth(1)
        .unwrap()
        .split("</figure>")
        .next()
        .unwrap();
    assert!(
        map.contains("1.00e-2 to 1.000") && map.contains("by logarithm"),
        "{map}"
    );
    // Three looks at two finite blocks: six cells, one of them (block 1 at step 30) in the darkest shade.
    assert_eq!(map.matches("h196.7v18.0").count(), 6, "{map}");
    let darkest = map.split("fill-opacity=\"1.00\" d=\"").nth(1).unwrap();
    let darkest = darkest.split('"').next().unwrap();
    assert_eq!(darkest, "M433.3 24.0h196.7v18.0h-196.7z");
    assert!(map.contains(">10</text>") && map.contains(">30</text>") && map.contains(">2</text>"));
    let text = markdown(&sheet(&state, &diagnosis));
    assert!(text.contains("| 1.00e-2 (block 0) |"), "{text}");
    assert!(text.contains("(block 1) | 30 |"), "{text}");
}

#[test]
fn a_sheet_of_pictures_stands_alone_and_holds_them_all() {
    let state = state();
    let diagnosis = diagnose(&state);
    let page = html(&sheet(&state, &diagnosis));
    let paper = picture(&sheet(&state, &diagnosis));
    let pictures = page.matches("<svg").count();
    assert_eq!(paper.matches("<svg").count(), pictures + 1);
    assert_eq!(paper.matches("</svg>").count(), pictures + 1);
    // Placed in two columns below the name, each at its own height; nothing that a converter does not know, nothing hostile.
    for place in [
        "<svg x=\"24\" y=\"106\" width=\"640\" height=\"267\" viewBox=",
        "<svg x=\"688\" y=\"106\" ",
    ] {
        assert!(paper.contains(place), "{place}: {paper}");
    }
    for word in ["<script", "href", "var(", "NaN", "height=\"0\""] {
        assert!(!paper.contains(word), "{word}");
    }
    assert!(paper.contains("&lt;script src=") && paper.contains("by logarithm"));
    let stages: State = serde_json::from_value(json!({
        "format": 1, "id": "x", "name": "x", "about": "", "created": 0, "stages": [],
    }))
    .unwrap();
    let both = pipeline_picture(&PipelineReport {
        state: &stages,
        sheets: vec![sheet(&state, &diagnosis), sheet(&state, &diagnosis)],
    });
    assert_eq!(both.matches("<svg").count(), 2 * pictures + 1);
}

#[test]
fn the_sheet_in_pixels_has_its_size_and_the_colours_of_lines_and_letters() {
    use std::io::Read as _;
    let state = state();
    let diagnosis = diagnose(&state);
    let png = picture_png(&sheet(&state, &diagnosis)).unwrap();
    let paper = picture(&sheet(&state, &diagnosis));
    let sides = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap()) as usize;
    let (width, height) = (sides(16), sides(20));
    assert!(
        paper.contains(&format!(
            "width=\"{}\" height=\"{}\" viewBox",
            width / 2,
            height / 2
        )),
        "two pixels for one of the SVG: {width} × {height}"
    );
    let start = png.windows(4).position(|w| w == b"IDAT").unwrap();
    let length = u32::from_be_bytes(png[start - 4..start].try_into().unwrap()) as usize;
    let mut rows = Vec::new();
    flate2::read::ZlibDecoder::new(&png[start + 4..start + 4 + length])
        .read_to_end(&mut rows)
        .unwrap();
    assert_eq!(rows.len(), height * (3 * width + 1));
    let pixel = |x: usize, y: usize| &rows[y * (3 * width + 1) + 1 + 3 * x..][..3];
    let count = |color: [u8; 3], (from, to): (usize, usize)| {
        let all = (from..to).flat_map(|y| (0..width).map(move |x| (x, y)));
        all.filter(|(x, y)| pixel(*x, *y) == color).count()
    };
    assert!(count([0, 0, 0], (0, 100)) > 200, "the name");
    assert!(count([0x05, 0x50, 0xae], (100, height)) > 200, "lines");
    assert!(count([0x44, 0x44, 0x44], (100, height)) > 200, "numbers");
    assert!(
        count([255, 255, 255], (0, height)) > width * height / 2,
        "paper"
    );
}

#[test]
fn what_was_done_and_what_it_cost_are_told() {
    let mut state = state();
    let diagnosis = diagnose(&state);
    assert!(
        !html(&sheet(&state, &diagnosis)).contains(">cost<"),
        "no time has passed"
    );
    state.seconds = 1800.0;
    for page in [
        html(&sheet(&state, &diagnosis)),
        markdown(&sheet(&state, &diagnosis)),
    ] {
        assert!(page.contains("$1.25: 0.500 hours at $2.50"), "{page}");
        assert!(page.contains("Procedure") && page.contains("step 31"));
    }
}

/// A run with adapters had a report of all its parameters, and no word of those that train.
#[test]
fn what_trains_stands_beside_the_parameters() {
    let state = state();
    let diagnosis = diagnose(&state);
    let text = markdown(&sheet(&state, &diagnosis));
    assert!(text.contains("1,000, of which 40 train"), "{text}");
    assert!(text.contains("LoRA rank 8"), "{text}");
}

#[test]
fn a_run_that_has_hardly_begun_has_a_report_too() {
    let state = RunState::new();
    let diagnosis = diagnose(&state);
    let sheet = RunReport {
        state: &state,
        diagnosis: &diagnosis,
        spec: String::new(),
        asked: String::new(),
        trained: None,
        predicted_bytes: None,
        results: Vec::new(),
        price: None,
    };
    assert!(html(&sheet).ends_with("</body></html>\n"));
    assert!(markdown(&sheet).starts_with("# "));
}

/// Two evaluations of one task are told apart.
#[test]
fn results_say_how_many_examples_and_which_rows_were_used() {
    let state = state();
    let diagnosis = diagnose(&state);
    let mut sheet = sheet(&state, &diagnosis);
    let kept = &mut sheet.results[0];
    (kept.summary.task, kept.summary.shots, kept.limited) = ("capitals".into(), 2, true);
    let said = markdown(&sheet);
    let expected = "capitals v1, 2 worked examples, only 4 items (--limit)";
    assert!(said.contains(expected), "{said}");
}

/// The last evaluation reads the whole split, those that checkpoints are compared by a part of it.
#[test]
fn two_losses_of_the_best_checkpoint_say_what_they_were_measured_on() {
    let said = |whole: f64| {
        let loss = |value: f64| json!({"val/loss": value});
        let events = [
            json!({"type": "Started", "name": "r", "method": "pretrain", "spec": {}, "n_params": 1, "vocab_size": 1,
                "max_steps": 2, "batch_tokens": 1, "epoch_tokens": 1}),
            json!({"type": "Stepped", "step": 2, "tokens": 2, "values": {"train/loss": 1.0}}),
            json!({"type": "Evaluated", "step": 2, "tokens": 2, "values": loss(whole), "n_windows": 9, "whole": true, "seconds": 0.1}),
            json!({"type": "Checkpointed", "step": 2, "path": "checkpoints/step-000002", "bytes": 1, "seconds": 0.1,
                "best": true, "val_loss": whole,
                "by": {"step": 2, "metric": "val/loss", "value": 3.563, "direction": "lower"}}),
        ];
        let events: Vec<Envelope> = (1..).zip(events).map(|(seq, e)| envelope(seq, e)).collect();
        let state = RunState::from_events(&events);
        let diagnosis = diagnose(&state);
        let text = markdown(&sheet(&state, &diagnosis));
        let line = text.lines().find(|line| line.contains("best checkpoint"));
        line.unwrap().to_string()
    };
    let other = said(3.5676);
    let expected =
        "val/loss 3.5630 on the rows of all evaluations (3.5676 on the whole validation split)";
    assert!(other.contains(expected), "{other}");
    let same = said(3.563);
    assert!(
        same.contains("val/loss 3.5630") && !same.contains("rows of all"),
        "{same}"
    );
}

/// As the dashboard: with the processes that the run started; the prediction is of the training process alone.
#[test]
fn the_peak_of_memory_is_that_of_all_processes() {
    let said = |values: [serde_json::Value; 3]| {
        let started = json!({"type": "Started", "name": "r", "method": "dpo", "spec": {},
            "n_params": 1, "vocab_size": 1, "max_steps": 3, "batch_tokens": 1, "epoch_tokens": 1});
        let mut events = vec![envelope(1, started)];
        for (at, values) in (1..).zip(values) {
            let sampled = json!({"type": "HardwareSampled", "values": values});
            let stepped =
                json!({"type": "Stepped", "step": at, "tokens": at, "values": {"train/loss": 1.0}});
            events.extend([envelope(2 * at, sampled), envelope(2 * at + 1, stepped)]);
        }
        let state = RunState::from_events(&events);
        let diagnosis = diagnose(&state);
        let text = markdown(&sheet(&state, &diagnosis));
        let line = text.lines().find(|line| line.contains("peak memory"));
        line.unwrap().to_string()
    };
    let mib = |own: u64, started: u64| json!({"host/rss_bytes": own << 20, "host/started_bytes": started << 20});
    let all = said([mib(10, 90), mib(60, 60), mib(50, 20)]);
    assert!(
        all.contains("120 MiB (the training process 60 MiB, +5900.0 % of the prediction)"),
        "{all}"
    );
    let alone = [10, 60, 50].map(|own: u64| json!({"host/rss_bytes": own << 20}));
    let alone = said(alone);
    assert!(
        alone.contains("60 MiB (+5900.0 % of the prediction)"),
        "{alone}"
    );
}

/// Of a preference's or a reward's loss no perplexity is told: IPO's 20.1 would be one of 547 million.
#[test]
fn only_a_likelihood_has_a_perplexity() {
    let said = |values: serde_json::Value| {
        let started = json!({"type": "Started", "name": "r", "method": "dpo", "spec": {},
            "n_params": 1, "vocab_size": 1, "max_steps": 1, "batch_tokens": 1, "epoch_tokens": 1});
        let evaluated = json!({"type": "Evaluated", "step": 1, "tokens": 1, "values": values,
            "n_windows": 1, "whole": true, "seconds": 0.1});
        let state = RunState::from_events(&[envelope(1, started), envelope(2, evaluated)]);
        let diagnosis = diagnose(&state);
        let text = markdown(&sheet(&state, &diagnosis));
        let line = text
            .lines()
            .find(|line| line.contains("best validation loss"));
        line.unwrap().to_string()
    };
    let ipo = said(json!({"val/loss": 20.1191}));
    assert!(ipo.contains("20.1") && !ipo.contains("perplexity"), "{ipo}");
    let text = said(json!({"val/loss": 1.77, "val/ppl": 5.871}));
    assert!(text.contains("(perplexity 5.871)"), "{text}");
}

#[test]
fn markdown_shows_texts_as_they_are() {
    let state = state();
    let diagnosis = diagnose(&state);
    let text = markdown(&sheet(&state, &diagnosis));
    assert!(!text.contains("<script src") || text.contains("```"));
    let outside: String = text.split("```").step_by(2).collect();
    assert!(
        !outside.contains("<script") && !outside.contains("[x](http"),
        "{outside}"
    );
}

#[test]
fn what_was_read_of_a_source_is_a_number_and_not_a_curve() {
    let state = state();
    let data = sections::data(&state);
    assert!(
        data.contains(&("epochs of chats".into(), "3.00".into())),
        "{data:?}"
    );
    let drawn = sections::curves(&state);
    let drawn: Vec<&str> = drawn
        .iter()
        .flat_map(|c| &c.series)
        .map(|(_, id)| id.as_str())
        .collect();
    assert!(drawn.contains(&"tokens/second"), "{drawn:?}");
    assert!(
        !drawn.contains(&"epochs/chats") && !drawn.contains(&"tokens/chats"),
        "{drawn:?}"
    );
}

#[test]
fn readings_are_said_in_their_units() {
    let declared = json!({"type": "MetricsDeclared", "metrics": [{"id": "mine", "title": "Mine", "unit": "bytes",
        "direction": "lower", "source": ""}]});
    let stepped = |step: u64| json!({"type": "Stepped", "step": step, "tokens": step, "values": {"mine": 4e9}});
    let events = [declared, stepped(1), stepped(2)];
    let events: Vec<Envelope> = (1..).zip(events).map(|(seq, e)| envelope(seq, e)).collect();
    let state = RunState::from_events(&events);
    let text = markdown(&sheet(&state, &diagnose(&state)));
    assert!(text.contains("3.73 GiB … 3.73 GiB"), "{text}");
}

/// "tokens 150, 128 a step" beside two steps; a corpus that was not read; a loss of the cold start as the last one.
#[test]
fn the_overview_says_what_was_read_and_which_checkpoint_is_the_best() {
    let started = |data: serde_json::Value| {
        json!({"type": "Started", "name": "x", "method": "dpo", "spec": {"data": data}, "n_params": 1, "vocab_size": 1,
            "max_steps": 2, "batch_tokens": 128, "epoch_tokens": 1})
    };
    let stepped = |step: u64, tokens: u64, values: serde_json::Value| json!({"type": "Stepped", "step": step, "tokens": tokens, "values": values});
    let saved = json!({"type": "Checkpointed", "step": 2, "path": "checkpoints/step-000002", "bytes": 1, "seconds": 0.0, "best": true,
        "by": {"step": 2, "metric": "val/rewards/accuracies", "value": 0.75, "direction": "higher"}});
    let text = |events: Vec<serde_json::Value>| {
        let events: Vec<Envelope> = (1..).zip(events).map(|(seq, e)| envelope(seq, e)).collect();
        let state = RunState::from_events(&events);
        markdown(&sheet(&state, &diagnose(&state)))
    };
    let own = text(vec![
        started(json!({"path": "mine.jsonl", "corpus": "tinyshakespeare"})),
        stepped(1, 70, json!({"train/loss": 1.0})),
        stepped(2, 150, json!({"train/loss": 0.5})),
        saved,
    ]);
    for words in [
        "150, 75 a step",
        "val/rewards/accuracies 0.75",
        "training loss of the newest steps",
    ] {
        assert!(own.contains(words), "{words}: {own}");
    }
    assert!(
        !own.contains("128 a step") && !own.contains("tinyshakespeare"),
        "{own}"
    );
    let uneven = text(vec![
        started(json!({"path": null, "corpus": "tinyshakespeare"})),
        stepped(1, 70, json!({"train/loss": 1.0})),
        stepped(2, 151, json!({"reward": 0.5})),
    ]);
    for words in [
        "151, 75 a step on average",
        "tinyshakespeare",
        "of the cold start",
    ] {
        assert!(uneven.contains(words), "{words}: {uneven}");
    }
}

#[test]
fn a_report_in_any_form_says_whose_it_is() {
    let mut state = state();
    let stages: State = serde_json::from_value(json!({
        "format": 1, "id": "2026-mine-x1", "name": "x", "about": "", "created": 0, "stages": [],
    }))
    .unwrap();
    for id in [HOSTILE, "2026-11-21-1422-a--b-k3qf"] {
        state.run = id.into();
        let diagnosis = diagnose(&state);
        let sheet = || sheet(&state, &diagnosis);
        let album = || PipelineReport {
            state: &stages,
            sheets: vec![sheet()],
        };
        let forms = [
            html(&sheet()).into_bytes(),
            markdown(&sheet()).into_bytes(),
            picture(&sheet()).into_bytes(),
            picture_png(&sheet()).unwrap(),
        ];
        let of_all = [
            pipeline_html(&album()).into_bytes(),
            pipeline_markdown(&album()).into_bytes(),
            pipeline_picture(&album()).into_bytes(),
            pipeline_png(&album()).unwrap(),
        ];
        for (form, all) in forms.iter().zip(&of_all) {
            let [form, all] = [form, all].map(|bytes| &bytes[..bytes.len().min(HEAD as usize)]);
            assert!(is_report_of(id, form) && is_report_of(&stages.id, all));
            assert!(!is_report_of(&id[..id.len() - 1], form) && !is_report_of(id, all));
        }
    }
}
