//! The pane by itself: editing, refusing, fitting.

use super::*;
use crate::plan::{Device, models, reference_request, target};
use crate::ui::action::Action;
use crate::ui::panes::Pane;
use crate::ui::panes::bench::TestContext;
use crate::ui::request::Request;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

fn pane(name: &str) -> PlanPane {
    let mut pane = PlanPane::default();
    let mut request = reference_request(models::find(name).unwrap());
    request.device = Device::of(crate::plan::gpus::find("rtx-4090").unwrap());
    pane.show(request, None);
    pane
}

fn act(pane: &mut PlanPane, action: Action) -> Vec<Request> {
    pane.act(action, &mut TestContext::new().context())
}

/// What the overlay that is asked for is about.
fn asks(requests: &[Request]) -> Option<&str> {
    match requests {
        [Request::Open(overlay)] => overlay.topic().map(|topic| topic.about),
        _ => None,
    }
}

fn select(pane: &mut PlanPane, field: Field) {
    pane.selected = pane.fields().iter().position(|f| *f == field).unwrap();
}

fn write(pane: &mut PlanPane, text: &str) {
    if let Some(editing) = &mut pane.editing {
        editing.text.clear();
    }
    for c in text.chars() {
        let key = KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE);
        pane.key(key, &mut TestContext::new().context());
    }
}

#[test]
fn a_number_is_typed_in_place_and_nonsense_is_refused_there() {
    let mut pane = pane("qwen2.5-0.5b");
    select(&mut pane, Field::Batch);
    act(&mut pane, Action::Accept);
    assert!(pane.typing());
    write(&mut pane, "many");
    act(&mut pane, Action::Accept);
    assert!(pane.editing.as_ref().unwrap().error.is_some());
    write(&mut pane, "8");
    act(&mut pane, Action::Accept);
    assert!(!pane.typing());
    assert_eq!(pane.request().unwrap().micro_batch, 8);
    act(&mut pane, Action::PlanReset);
    assert_eq!(pane.request().unwrap().micro_batch, 1);
}

#[test]
fn leaving_a_field_by_an_arrow_takes_it_and_escape_does_not() {
    let mut pane = pane("qwen2.5-0.5b");
    select(&mut pane, Field::Batch);
    act(&mut pane, Action::Accept);
    write(&mut pane, "4");
    act(&mut pane, Action::Down);
    assert_eq!(pane.request().unwrap().micro_batch, 4);
    select(&mut pane, Field::Batch);
    act(&mut pane, Action::Accept);
    write(&mut pane, "9");
    act(&mut pane, Action::Cancel);
    assert_eq!(pane.request().unwrap().micro_batch, 4);
}

#[test]
fn this_machine_after_a_gpu_is_the_engine_again() {
    let mut pane = PlanPane::default();
    let request = target::resolve("quickstart", &[], &Default::default()).unwrap();
    pane.show(request, None);
    let before = pane.request().unwrap().clone();
    let around = TestContext::new();
    pane.on("rtx-4090", &around.store);
    assert_eq!(pane.request().unwrap().estimator, Estimator::General);
    pane.on("", &around.store);
    assert_eq!(*pane.request().unwrap(), before);
}

/// Another model was planned for this machine again, and its numbers taken for the chosen GPU's.
#[test]
fn another_model_is_planned_on_the_chosen_device() {
    let resolve = |name: &str| target::resolve(name, &[], &Default::default()).unwrap();
    let mut pane = PlanPane::default();
    let around = TestContext::new();
    pane.show(resolve("quickstart"), None);
    pane.on("h200", &around.store);
    pane.change(|mut request| {
        request.n_devices = 4;
        request.device.set_price(2.5);
        request
    });
    let chosen = pane.request().unwrap().device.clone();
    for name in ["size-7b", "smoke"] {
        pane.read(name);
        pane.planned(name, Ok(Box::new(resolve(name))));
        let shown = pane.request().unwrap();
        assert_eq!((&shown.name[..], &shown.device, shown.n_devices), (name, &chosen, 4));
        assert_eq!(shown.estimator, Estimator::General);
    }
    act(&mut pane, Action::PlanReset);
    assert_eq!(*pane.request().unwrap(), resolve("smoke"));
    // As it came: nothing was chosen, and nothing is carried on.
    pane.read("size-7b");
    pane.planned("size-7b", Ok(Box::new(resolve("size-7b"))));
    assert_eq!(*pane.request().unwrap(), resolve("size-7b"));
}

/// 70 % of a matmul benchmark of this machine, or all of what earlier runs reached, is no share of a GPU's peak.
#[test]
fn the_speed_of_this_machine_is_not_that_of_a_gpu() {
    use crate::plan::request::ValueSource;
    for source in [ValueSource::Learned, ValueSource::Probed, ValueSource::Stated] {
        let mut pane = PlanPane::default();
        let mut request = target::resolve("quickstart", &[], &Default::default()).unwrap();
        request.device.peak_flops = Some(1e11);
        (request.mfu, request.mfu_source) = (0.97, source);
        pane.show(request, None);
        let around = TestContext::new();
        let on_one = |pane: &PlanPane| {
            let request = pane.request().unwrap();
            (request.mfu, request.mfu_source)
        };
        pane.on("rtx-4090", &around.store);
        let wanted = match source {
            ValueSource::Stated => (0.97, source),
            _ => (0.4, ValueSource::Assumed),
        };
        assert_eq!(on_one(&pane), wanted);
        pane.on("", &around.store);
        assert_eq!(on_one(&pane), (0.97, source));
    }
}

#[test]
fn one_key_makes_it_fit() {
    let mut pane = pane("llama-3.1-8b");
    select(&mut pane, Field::Method);
    act(&mut pane, Action::More);
    assert_eq!(
        pane.shown.as_ref().unwrap().plan.verdict(),
        Some(crate::plan::Verdict::TooLarge)
    );
    act(&mut pane, Action::PlanApply);
    let shown = pane.shown.as_ref().unwrap();
    assert_eq!(shown.plan.verdict(), Some(crate::plan::Verdict::Fits));
    assert!(shown.ladder.changes.is_empty());
    // A second time there is nothing to do, which is said.
    let said = act(&mut pane, Action::PlanApply);
    let [Request::Toast(_, words)] = said.as_slice() else {
        panic!("{said:?}");
    };
    assert!(words.contains("it fits: nothing"), "{words}");
}

/// What is chosen from a list has no smaller and no larger one, and the bar offered both.
#[test]
fn keys_that_do_nothing_in_a_row_are_not_offered() {
    let mut pane = pane("qwen2.5-0.5b");
    let mut offers = |field: Field| {
        select(&mut pane, field);
        let hints = pane.hints(TestContext::new().context().store);
        let actions = hints.own.iter().map(|(action, _)| *action);
        actions
            .filter(|a| [Action::Less, Action::More].contains(a))
            .count()
    };
    assert_eq!(offers(Field::Target), 0);
    assert_eq!(offers(Field::Device), 0);
    assert_eq!(offers(Field::Batch), 2);
    assert_eq!(offers(Field::Method), 2);
}

#[test]
fn a_run_on_its_own_answers_is_told_in_prompts_until_the_batch_changes() {
    let mut pane = PlanPane::default();
    let request = target::resolve("grpo-arithmetic", &[], &Default::default()).unwrap();
    pane.show(request, None);
    let facts = |pane: &PlanPane| facts::facts(&pane.shown.as_ref().unwrap().plan);
    let said = |facts: &[(&str, String)], label: &str| {
        let found = facts.iter().find(|fact| fact.0 == label);
        found.map(|fact| fact.1.clone())
    };
    let before = facts(&pane);
    let steps = said(&before, "steps").unwrap();
    assert!(
        steps.starts_with("550 steps of 16 prompts × 8 answers"),
        "{steps}"
    );
    let cold = said(&before, "cold start").unwrap();
    assert!(cold.starts_with("350 supervised steps"), "{cold}");
    let prompts = said(&before, "prompts").unwrap();
    assert!(prompts.ends_with("epochs of 7,158 prompts"), "{prompts}");
    assert!(said(&before, "tokens").unwrap().starts_with("at most "));
    select(&mut pane, Field::Batch);
    act(&mut pane, Action::Accept);
    write(&mut pane, "8");
    act(&mut pane, Action::Accept);
    let after = facts(&pane);
    assert_eq!(
        (said(&after, "steps"), said(&after, "prompts")),
        (None, None)
    );
    assert!(said(&after, "tokens").unwrap().starts_with("at most "));
}

#[test]
fn lists_are_asked_for_and_late_answers_are_dropped() {
    let mut pane = PlanPane::default();
    assert!(pane.idle());
    assert_eq!(asks(&act(&mut pane, Action::Accept)), Some("target"));
    pane.read("quickstart");
    let request = || {
        Ok(Box::new(
            target::resolve("quickstart", &[], &Default::default()).unwrap(),
        ))
    };
    pane.planned("gpt2", request());
    assert!(pane.request().is_none());
    pane.planned("quickstart", request());
    assert_eq!(pane.request().unwrap().name, "quickstart");
    select(&mut pane, Field::Device);
    assert_eq!(asks(&act(&mut pane, Action::Accept)), Some("device"));
    pane.read("gone.yaml");
    pane.planned("gone.yaml", Err("no such file".into()));
    assert!(pane.error.is_some() && pane.request().is_some());
}

#[test]
fn what_fits_and_the_advice_are_wrapped_and_not_cut() {
    let mut pane = PlanPane::default();
    let mut request = reference_request(models::find("llama-3.1-8b").unwrap());
    request.device = Device::of(crate::plan::gpus::find("rtx-4090").unwrap());
    request.tokens = 1_000_000;
    pane.show(request, None);
    let shown = pane.shown.as_ref().unwrap();
    let advice = shown.plan.advice.iter().filter(|a| a.id != "too_large");
    let advice: Vec<String> = advice.map(|a| a.evidence.to_string()).collect();
    let costs: Vec<String> = shown
        .ladder
        .changes
        .iter()
        .map(|c| c.cost.to_string())
        .collect();
    assert!(!advice.is_empty() && !costs.is_empty());
    let area = ratatui::layout::Rect::new(0, 0, 80, 120);
    let mut terminal = ratatui::Terminal::new(ratatui::backend::TestBackend::new(80, 120)).unwrap();
    let mut around = TestContext::new();
    terminal
        .draw(|frame| pane.draw(frame, area, &mut around.context()))
        .unwrap();
    let picture = terminal.backend().to_string();
    let lines: Vec<&str> = picture
        .lines()
        .map(|line| line.trim_matches(['"', ' ']))
        .collect();
    let said = lines.join(" ");
    for words in advice.iter().chain(&costs) {
        assert!(said.contains(words.as_str()), "{words}:\n{picture}");
    }
}

#[test]
fn on_a_small_screen_fields_come_first_and_the_rest_of_the_advice_has_a_command() {
    let mut pane = pane("llama-3.1-8b");
    let labels: Vec<&str> = pane.fields().iter().map(|field| field.label()).collect();
    let area = ratatui::layout::Rect::new(0, 0, 80, 22);
    let backend = ratatui::backend::TestBackend::new(80, 22);
    let mut terminal = ratatui::Terminal::new(backend).unwrap();
    let mut around = TestContext::new();
    terminal
        .draw(|frame| pane.draw(frame, area, &mut around.context()))
        .unwrap();
    let picture = terminal.backend().to_string();
    let stands = |label: &&&str| picture.contains(&format!(" {label} "));
    // All rows but the heading, a row of help and four of what fits.
    let standing = labels.iter().filter(stands).count();
    assert!(standing >= labels.len().min(16), "{picture}");
    let more = "more lines: enlarge the screen, or llmtui plan llama-3.1-8b";
    assert!(picture.contains(more), "{picture}");
}
