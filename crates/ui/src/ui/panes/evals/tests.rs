//! The pane with tables and items made by hand: what stands on the screen, what keys do, late answers. Reading is the jobs'.

use super::*;
use crate::tasks::{Comparison, Flip, ModelAnswer, Question, Reading, TaskCell};
use crate::ui::panes::bench::TestContext;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn cell(value: f64, difference: Option<(f64, f64)>) -> Option<TaskCell> {
    let flip = |item, won| Flip {
        item,
        won,
        place: String::new(),
    };
    Some(TaskCell {
        reading: Reading {
            metric: "acc".into(),
            group: None,
            value,
            stderr: Some(0.02),
            n: 500,
        },
        model: "2026-11-21-1422-sft-k3qf step-000100".into(),
        file: "answers.jsonl".into(),
        against: difference.map(|(difference, p)| Comparison {
            metric: "acc".into(),
            n: 500,
            difference,
            stderr: Some(0.02),
            p,
            interval: Some([difference - 0.04, difference + 0.04]),
            flips: vec![flip(0, true), flip(2, true), flip(1, false)],
            better: 2,
            worse: 1,
            win_rate: 0.501,
            win_rate_stderr: Some(0.001),
        }),
        other_rows: false,
    })
}

fn row(task: &str, cells: Vec<Option<TaskCell>>) -> TaskRow {
    TaskRow {
        task: task.into(),
        version: 1,
        metric: "acc".into(),
        lower_is_better: false,
        cells,
    }
}

fn table() -> TaskTable {
    let other = cell(0.9, None).map(|cell| TaskCell {
        other_rows: true,
        ..cell
    });
    TaskTable {
        models: vec!["2026-11-21-1422-base-aaaa".into(), "2026-11-21-1422-sft-k3qf".into()],
        rows: vec![
            row("hellaswag", vec![cell(0.35, None), cell(0.31, Some((-0.04, 0.002)))]),
            row("piqa", vec![cell(0.6, None), cell(0.61, Some((0.01, 0.6)))]),
            row("yours", vec![cell(0.5, None), other]),
            row("alone", vec![None, cell(1.0, None)]),
        ],
    }
}

fn question(item: usize, scores: [f64; 2]) -> Question {
    let given = |score: &f64| {
        Some(ModelAnswer {
            text: format!("answer {score} to {item}"),
            score: *score,
        })
    };
    Question {
        item,
        prompt: format!("Question {item}:\n{}Which?", "a long text ".repeat(80)),
        target: "the right one".into(),
        given: scores.iter().map(given).collect(),
    }
}

fn screen(pane: &mut EvalsPane, around: &mut TestContext, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| pane.draw(frame, frame.area(), &mut around.context()))
        .unwrap();
    terminal.backend().to_string()
}

/// A pane that was told two runs and got their table.
fn filled(around: &mut TestContext) -> EvalsPane {
    let mut pane = EvalsPane::default();
    assert!(screen(&mut pane, around, 80, 22).contains("mark runs with space and press V"));
    let subjects: Vec<PathBuf> = vec!["runs/base".into(), "runs/sft".into()];
    let asked = pane.answered("models", Answer::Paths(subjects.clone()), &mut around.context());
    assert!(matches!(&asked[..], [Request::Do(Effect::ReadEvals(s))] if *s == subjects));
    let result = Ok(Box::new(table()));
    pane.incoming(&Msg::Evals { subjects, result }, &mut around.context());
    pane
}

fn opened(pane: &mut EvalsPane, around: &mut TestContext) {
    let asked = pane.act(Action::Accept, &mut around.context());
    let [Request::Do(Effect::ReadQuestions(row))] = &asked[..] else {
        panic!("{asked:?}");
    };
    let scores = [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [1.0, 1.0]];
    let all = scores.iter().enumerate();
    let msg = Msg::Questions {
        row: row.clone(),
        result: Ok(all.map(|(item, scores)| question(item, *scores)).collect()),
    };
    pane.incoming(&msg, &mut around.context());
}

#[test]
fn tasks_stand_beside_each_other_and_differences_that_count_are_marked() {
    let mut around = TestContext::new();
    let mut pane = filled(&mut around);
    let text = screen(&mut pane, &mut around, 80, 22);
    for words in ["A base-aaaa", "B sft-k3qf", "-0.040*", "+0.010 ", "2 items won, 1 lost", "p = 0.0020"] {
        assert!(text.contains(words), "{words}:\n{text}");
    }
    pane.act(Action::Down, &mut around.context());
    pane.act(Action::Down, &mut around.context());
    let text = screen(&mut pane, &mut around, 80, 22);
    assert!(text.contains("other rows than A"), "{text}");
    pane.act(Action::Bottom, &mut around.context());
    let text = screen(&mut pane, &mut around, 160, 46);
    assert!(text.contains("A  has no result for it"), "{text}");
    // Read again, the mark stays on its task.
    let msg = Msg::Evals {
        subjects: pane.subjects.clone(),
        result: Ok(Box::new(table())),
    };
    pane.incoming(&msg, &mut around.context());
    assert_eq!(pane.row, 3);
    let late = Msg::Evals {
        subjects: vec!["runs/old".into()],
        result: Ok(Box::default()),
    };
    pane.incoming(&late, &mut around.context());
    assert_eq!(pane.table.rows.len(), 4);
}

#[test]
fn items_are_listed_by_what_became_of_them_and_read_in_full() {
    let mut around = TestContext::new();
    let mut pane = filled(&mut around);
    opened(&mut pane, &mut around);
    let text = screen(&mut pane, &mut around, 80, 22);
    assert!(text.contains("all items: 5 of 5"), "{text}");
    // The answers lie under the long prompt.
    assert!(!text.contains("answer 1 to 0"), "{text}");
    for _ in 0..4 {
        pane.act(Action::PageDown, &mut around.context());
        screen(&mut pane, &mut around, 80, 22);
    }
    let text = screen(&mut pane, &mut around, 80, 22);
    for words in ["the right one", "answer 0 to 0", "answer 1 to 0"] {
        assert!(text.contains(words), "{words}:\n{text}");
    }
    let mut counts = Vec::new();
    for _ in 0..5 {
        pane.act(Action::EvalsOnly, &mut around.context());
        counts.push(screen(&mut pane, &mut around, 160, 46));
    }
    for (text, words) in counts.iter().zip([
        "flipped: 3 of 5",
        "fails and another solves: 2 of 5",
        "solves and another fails: 1 of 5",
        "solved by none: 1 of 5",
        "all items: 5 of 5",
    ]) {
        assert!(text.contains(words), "{words}:\n{text}");
    }
    for size in [(24, 4), (40, 9)] {
        screen(&mut pane, &mut around, size.0, size.1);
    }
    pane.act(Action::Cancel, &mut around.context());
    assert!(screen(&mut pane, &mut around, 80, 22).contains("hellaswag"));
}

#[test]
fn items_of_a_task_that_is_no_longer_marked_do_not_come_up() {
    let mut around = TestContext::new();
    let mut pane = filled(&mut around);
    let msg = Msg::Questions {
        row: Box::new(row("gone", Vec::new())),
        result: Ok(vec![question(0, [0.0, 1.0])]),
    };
    pane.incoming(&msg, &mut around.context());
    assert!(pane.items.is_none());
    for left in [1, 0] {
        pane.act(Action::EvalsDrop, &mut around.context());
        assert_eq!(pane.subjects.len(), left);
    }
    assert!(screen(&mut pane, &mut around, 80, 22).contains("No model is chosen"));
}
