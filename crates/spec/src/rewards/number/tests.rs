//! What models and data sets really write, and the number that it says.

use super::*;
use crate::rewards::Reference;

fn answer(text: &str, right: &str) -> Answer {
    Answer {
        prompt: "p".into(),
        text: text.into(),
        tokens: 1,
        ended: true,
        behind: None,
        reference: Reference {
            answer: Some(right.into()),
            ..Reference::default()
        },
    }
}

/// Answer, the row's, worth.
#[rustfmt::skip]
const TABLE: &[(&str, &str, f64)] = &[
    ("**42**", "42", 1.0),
    ("The answer is **$42**.", "42", 1.0),
    ("**Answer:** 42", "42", 1.0),
    ("***42***", "42", 1.0),
    ("_42_", "42", 1.0),
    ("`42`", "42", 1.0),
    ("#### **18**", "18", 1.0),
    ("#### `18`", "18", 1.0),
    ("#### ≈ 18", "18", 1.0),
    ("\\boxed{**42**}", "42", 1.0),
    ("**5 * 3 = 15**", "15", 1.0),
    ("5*3*2 = 30", "30", 1.0),
    ("2**3 = 8", "8", 1.0),
    ("~~41~~ 42", "42", 1.0),
    // LaTeX.
    ("$\\boxed{42}$", "42", 1.0),
    ("\\boxed{\\$42}", "42", 1.0),
    ("\\boxed{42.}", "42", 1.0),
    ("\\boxed{1\\,234}", "1234", 1.0),
    ("\\boxed{1\\text{,}234}", "1234", 1.0),
    ("\\boxed{42\\text{ m}^2}", "42", 1.0),
    ("\\boxed{16\\text{-bit}}", "16", 1.0),
    ("\\boxed{90^\\circ}", "90", 1.0),
    ("\\[ x = \\boxed{42} \\]", "42", 1.0),
    ("\\boxed{5x}", "5", 0.0),
    ("\\boxed{5 or 6}", "5", 0.0),
    ("\\boxed{5-10}", "10", 0.0),
    ("\\boxed{2^3}", "3", 0.0),
    ("\\boxed{\\text{forty-two}}", "42", 0.0),
    // Money, shares, units.
    ("$1,234.50", "1234.5", 1.0),
    ("The total is $1,234.50.", "1234.5", 1.0),
    ("It costs -$5.", "-5", 1.0),
    ("it is 10 -$5", "5", 1.0),
    ("-€5", "-5", 1.0),
    ("50%", "50", 1.0),
    ("50%", "0.5", 0.0),
    ("12.5 %.", "12.5", 1.0),
    ("42kg", "42", 1.0),
    ("42 m²", "42", 1.0),
    ("5 m^2", "5", 1.0),
    ("-5°C", "-5", 1.0),
    // Hyphens, signs and ranges.
    ("a 16-bit number", "16", 1.0),
    ("COVID-19", "19", 1.0),
    ("COVID-19", "-19", 0.0),
    ("GPT-4", "-4", 0.0),
    ("x = \u{2212}5", "-5", 1.0),
    ("\u{2212}5", "-5", 1.0),
    ("\u{2013}5", "-5", 1.0),
    ("5\u{2013}10", "10", 1.0),
    ("5 \u{2013} 3 = 2", "2", 1.0),
    ("5-10", "10", 1.0),
    ("5 - -3", "-3", 1.0),
    ("50%-60%", "60", 1.0),
    ("from \u{2212}10 to \u{2212}5", "-5", 1.0),
    ("between 5 and 10", "10", 1.0),
    ("1..10", "10", 1.0),
    ("+5", "5", 1.0),
    // Dates and versions.
    ("2020-01-15", "15", 1.0),
    ("2020-01-15", "-15", 0.0),
    ("01/15/2020", "2020", 1.0),
    ("January 5, 2020", "2020", 1.0),
    ("version 1.2.3", "3", 0.0),
    ("No.5", "5", 1.0),
    // Fractions.
    ("3/4", "0.75", 1.0),
    ("½", "0.5", 1.0),
    ("3½", "3.5", 1.0),
    ("3 1/2", "3.5", 1.0),
    ("2 + 1 1/2 = 3 1/2", "3.5", 1.0),
    ("5 3/2", "1.5", 1.0),
    ("on 5 1/2/2020", "2020", 1.0),
    // Powers.
    ("1e-3", "0.001", 1.0),
    ("3 × 10^5", "300000", 1.0),
    ("3 \\times 10^{5}", "300000", 1.0),
    ("3×10⁵ m", "300000", 1.0),
    ("1.5·10⁻³", "0.0015", 1.0),
    ("\\boxed{3\\times 10^{-3}}", "0.003", 1.0),
    ("10^3", "1000", 1.0),
    ("10^3", "3", 0.0),
    ("2^10", "10", 0.0),
    ("x^2 = 9", "9", 1.0),
    // Thousands.
    ("1\u{a0}000", "1000", 1.0),
    ("1\u{2009}000", "1000", 1.0),
    ("12\u{202f}345.67", "12345.67", 1.0),
    ("1\u{2009}000\u{2009}000", "1000000", 1.0),
    ("in 2020\u{a0}300", "300", 1.0),
    ("1'000", "1000", 1.0),
    ("1_000", "1000", 1.0),
    ("1.234,56", "1234.56", 1.0),
    ("1.234.567", "1234567", 1.0),
    ("1.234", "1.234", 1.0),
    ("1,2.3", "2.3", 1.0),
    // Ends of a sentence.
    ("42.", "42", 1.0),
    ("42!", "42", 1.0),
    ("The answer is...42", "42", 1.0),
    (".5", "0.5", 1.0),
    ("(42)", "42", 1.0),
    ("\"42\".", "42", 1.0),
    ("<answer>42</answer>", "42", 1.0),
    ("42</s>", "42", 1.0),
    // Words and other scripts.
    ("forty-two", "42", 0.0),
    ("１２", "12", 1.0),
    ("NaN", "0", 0.0),
    ("1e400", "1", 0.0),
    ("5x", "5", 1.0),
    ("x = 5", "5", 1.0),
    ("x_2 = 5", "5", 1.0),
    // What is read as the number of the row.
    ("42", "**42**", 1.0),
    ("42", "`42`", 1.0),
    ("16", "16-bit", 1.0),
    ("42", "42 m²", 1.0),
    ("0.5", "½", 1.0),
    ("3.5", "3 1/2", 1.0),
    ("1000", "10^3", 1.0),
    ("2500", "$2,500", 1.0),
];

#[test]
fn numbers_are_read_however_they_are_written() {
    for (text, right, worth) in TABLE {
        let score = Config::default().score(&answer(text, right));
        assert_eq!(score, Ok(*worth), "{text:?} for {right:?}");
    }
}

/// No single number: a row of which no answer could be right ends the run.
#[test]
fn rows_that_are_no_single_number_are_refused() {
    for right in [
        "2020-01-15",
        "5-10",
        "5\u{2013}10",
        "5x",
        "2^10",
        "1.2.3",
        "x-5",
        "-bit",
    ] {
        let score = Config::default().score(&answer("5", right));
        assert!(score.is_err(), "{right}: {score:?}");
    }
}

/// Degenerate answers repeat a mark thousands of times.
#[test]
fn many_marks_take_no_time_and_no_stack() {
    for mark in ["*", "*_", "`a *b ", "1_000_", "10^", "1'000'", "/1 "] {
        let text = mark.repeat(5_000) + " 7";
        let said = Config::default().said(&text).map(|said| said.value);
        assert_eq!(said, Some(7.0), "{mark}");
    }
}
