//! 1 if the completion is an expression over the given numbers, each used at most once, that evaluates to the target. The
//! numbers are in the row: columns `nums` and `target`, or the numbers and the value of its own answer.

use super::{Answer, Reward};
use crate::base::registry::Entry;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub const ENTRY: Entry = Entry {
    id: "countdown",
    title: "Countdown",
    summary: "1 if an expression uses only the row's numbers, each at most once, and equals its target; else 0.",
    source: "Gandhi et al. 2024, arXiv 2404.03683; TinyZero's verifier",
};

/// Characters of an expression, and how deep its brackets may nest.
const MAX_CHARS: usize = 400;
const MAX_DEPTH: usize = 32;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Only what stands between `<answer>` and `</answer>` counts, at its last occurrence.
    pub tags: bool,
    /// Every number must be used.
    pub all: bool,
}

impl Reward for Config {
    fn reads(&self, answer: &Answer) -> Option<bool> {
        Some(self.expression(&answer.text).is_some())
    }

    fn score(&self, answer: &Answer) -> Result<f64, String> {
        let (mut given, target) = given(answer)?;
        let Some(said) = self.expression(&answer.text) else {
            return Ok(0.0);
        };
        for number in &said.numbers {
            let Some(at) = given.iter().position(|x| x == number) else {
                return Ok(0.0);
            };
            given.swap_remove(at);
        }
        let whole = !self.all || given.is_empty();
        Ok(f64::from(u8::from(
            whole && said.value == Fraction::whole(target),
        )))
    }
}

impl Config {
    /// The expression of an answer: the last line that is one, in front of a sign of equality. A number alone that only
    /// repeats what the expression before it makes is no expression of its own.
    fn expression(&self, text: &str) -> Option<Expression> {
        let text = match self.tags {
            true => text.rsplit_once("<answer>")?.1.split_once("</answer>")?.0,
            false => text,
        };
        let lines = text
            .lines()
            .rev()
            .filter(|line| self.tags || !is_item(line));
        let lines = lines.map(|line| line.split('=').next().unwrap_or(line));
        let mut said = lines.filter_map(parse);
        let last = said.next()?;
        let before = said.next().filter(|before| before.numbers.len() > 1);
        match before {
            Some(before) if last.numbers.len() == 1 && last.value == before.value => Some(before),
            _ => Some(last),
        }
    }
}

/// Whether a line of running text is an item of a list rather than the negative of what follows: `- 3*8 = 24`.
fn is_item(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with(['-', '+', '\u{2212}']) && line.chars().nth(1).is_some_and(char::is_whitespace)
}

/// Numbers and target of a row.
fn given(answer: &Answer) -> Result<(Vec<i64>, i64), String> {
    let metadata = &answer.reference.metadata;
    if let (Some(nums), Some(target)) = (metadata.get("nums"), metadata.get("target")) {
        let whole = |value: &Value| {
            value
                .as_i64()
                .or_else(|| value.as_str()?.trim().parse().ok())
        };
        let nums: Option<Vec<i64>> = nums
            .as_array()
            .and_then(|all| all.iter().map(whole).collect());
        return nums.zip(whole(target)).ok_or_else(|| {
            "the columns nums and target are not a list of integers and an integer".into()
        });
    }
    let right = super::right_answer(answer)?;
    let said = parse(right.split('=').next().unwrap_or(right));
    let said = said.ok_or_else(|| {
        format!("the row's answer {right:?} is not an expression; columns nums and target work too")
    })?;
    match said.value.as_whole() {
        Some(target) => Ok((said.numbers, target)),
        None => Err(format!(
            "the row's answer {right:?} does not give an integer"
        )),
    }
}

/// What an expression makes and the numbers in it.
#[derive(Debug, PartialEq)]
struct Expression {
    value: Fraction,
    numbers: Vec<i64>,
}

/// Exact: 8 / (3 − 8 / 3) is 24.
#[derive(Debug, Clone, Copy)]
struct Fraction {
    above: i128,
    below: i128,
}

impl PartialEq for Fraction {
    fn eq(&self, other: &Fraction) -> bool {
        let (left, right) = (
            self.above.checked_mul(other.below),
            other.above.checked_mul(self.below),
        );
        left.is_some() && left == right
    }
}

impl Fraction {
    fn whole(x: i64) -> Fraction {
        Fraction {
            above: x.into(),
            below: 1,
        }
    }

    fn as_whole(self) -> Option<i64> {
        (self.above % self.below == 0).then(|| i64::try_from(self.above / self.below).ok())?
    }

    /// `None` where it divides by zero or leaves 128 bits.
    fn with(self, sign: char, other: Fraction) -> Option<Fraction> {
        let times = |a: i128, b: i128| a.checked_mul(b);
        let (above, below) = match sign {
            '+' => (
                times(self.above, other.below)?.checked_add(times(other.above, self.below)?)?,
                times(self.below, other.below)?,
            ),
            '-' => (
                times(self.above, other.below)?.checked_sub(times(other.above, self.below)?)?,
                times(self.below, other.below)?,
            ),
            '*' => (
                times(self.above, other.above)?,
                times(self.below, other.below)?,
            ),
            _ => (
                times(self.above, other.below)?,
                times(self.below, other.above)?,
            ),
        };
        (below != 0).then_some(Fraction { above, below })
    }
}

fn parse(text: &str) -> Option<Expression> {
    let chars: Vec<char> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| match c {
            '×' | '·' => '*',
            '÷' => '/',
            '−' => '-',
            c => c,
        })
        .take(MAX_CHARS + 1)
        .collect();
    if chars.len() > MAX_CHARS {
        return None;
    }
    let mut parser = Parser {
        chars: &chars,
        at: 0,
        depth: 0,
        numbers: Vec::new(),
    };
    let value = parser.sum()?;
    (parser.at == chars.len()).then_some(Expression {
        value,
        numbers: parser.numbers,
    })
}

struct Parser<'a> {
    chars: &'a [char],
    at: usize,
    depth: usize,
    numbers: Vec<i64>,
}

impl Parser<'_> {
    fn sign(&mut self, signs: [char; 2]) -> Option<char> {
        let found = self
            .chars
            .get(self.at)
            .copied()
            .filter(|c| signs.contains(c))?;
        self.at += 1;
        Some(found)
    }

    fn sum(&mut self) -> Option<Fraction> {
        let mut value = self.product()?;
        while let Some(sign) = self.sign(['+', '-']) {
            value = value.with(sign, self.product()?)?;
        }
        Some(value)
    }

    fn product(&mut self) -> Option<Fraction> {
        let mut value = self.factor()?;
        while let Some(sign) = self.sign(['*', '/']) {
            value = value.with(sign, self.factor()?)?;
        }
        Some(value)
    }

    /// With signs of its own, which bind as in Python: `3*-7`, `25--3`.
    fn factor(&mut self) -> Option<Fraction> {
        let mut negative = false;
        while let Some(sign) = self.sign(['+', '-']) {
            negative ^= sign == '-';
        }
        let value = self.atom()?;
        match negative {
            true => Fraction::whole(0).with('-', value),
            false => Some(value),
        }
    }

    fn atom(&mut self) -> Option<Fraction> {
        if self.chars.get(self.at) == Some(&'(') {
            self.at += 1;
            self.depth += 1;
            let value = (self.depth <= MAX_DEPTH).then(|| self.sum())??;
            self.depth -= 1;
            let closed = self.chars.get(self.at) == Some(&')');
            self.at += 1;
            return closed.then_some(value);
        }
        let digits: String = self.chars[self.at..]
            .iter()
            .take_while(|c| c.is_ascii_digit())
            .collect();
        self.at += digits.len();
        let number: i64 = digits.parse().ok()?;
        self.numbers.push(number);
        Some(Fraction::whole(number))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Reference;
    use super::*;
    use serde_json::json;

    fn score(
        config: &Config,
        text: &str,
        answer: Option<&str>,
        columns: Value,
    ) -> Result<f64, String> {
        let metadata = columns.as_object().cloned().unwrap_or_default();
        config.score(&Answer {
            prompt: String::new(),
            text: text.into(),
            tokens: 1,
            ended: true,
            behind: None,
            thinking: None,
            reference: Reference {
                answer: answer.map(str::to_string),
                metadata,
            },
        })
    }

    #[test]
    fn expressions_are_exact_and_use_each_number_once() {
        let plain = Config::default();
        let row = |text: &str| {
            score(
                &plain,
                text,
                None,
                json!({"nums": [3, 8, 8, 3], "target": 24}),
            )
            .unwrap()
        };
        for right in [
            "8/(3-8/3)",
            "8 / (3 - 8/3) = 24",
            "3*8",
            "So:\n(8 × 3)\n",
            "3*8*(8/8)",
            "8/(3-8/3)\n\n24",
        ] {
            let wanted = f64::from(u8::from(right != "3*8*(8/8)"));
            assert_eq!(row(right), wanted, "{right}");
        }
        for wrong in [
            "",
            "24",
            "8+8+8",
            "3*8+0",
            "8/0",
            "(3*8",
            "3*8)",
            "3**8",
            "-8",
            "3*8 or so",
            "3*8\n25",
        ] {
            assert_eq!(row(wrong), 0.0, "{wrong}");
        }
        let all = Config {
            all: true,
            ..Config::default()
        };
        let columns = json!({"nums": ["3", "8"], "target": "24"});
        assert_eq!(score(&all, "3*8", None, columns.clone()).unwrap(), 1.0);
        assert_eq!(
            score(&all, "24", None, json!({"nums": [24, 1], "target": 24})).unwrap(),
            0.0
        );
        assert_eq!(
            score(
                &Config::default(),
                "24",
                None,
                json!({"nums": [24, 1], "target": 24})
            )
            .unwrap(),
            1.0
        );
    }

    #[test]
    fn signs_of_numbers_and_brackets_are_those_of_python() {
        let columns = || json!({"nums": [3, 7, 25], "target": 46});
        let of = |tags, text: &str| {
            let config = Config { tags, all: true };
            score(&config, text, None, columns()).unwrap()
        };
        for right in [
            "25+3*7",
            "25-(-3)*7",
            "-(-25-3*7)",
            "3*7--25",
            "3*7 - -25",
            "+25 + +3*7",
            "-3*-7+25",
            "25-3*-7",
            "25\u{2212}\u{2212}3*7",
            "3*7+25\n- 3*7 = 21",
        ] {
            assert_eq!(of(false, right), 1.0, "{right}");
        }
        for wrong in ["-25-3*7", "3*7-", "25-(-)3*7", "25*-", "- 25+3*7", "--"] {
            assert_eq!(of(false, wrong), 0.0, "{wrong}");
        }
        assert_eq!(of(true, "<answer>- (-25 - 3*7)</answer>"), 1.0);
        // A negative result that is repeated is no expression of its own.
        let below = json!({"nums": [3, 8], "target": -5});
        let said = score(&Config::default(), "3-8 = -5\n-5", None, below).unwrap();
        assert_eq!(said, 1.0);
    }

    #[test]
    fn a_row_s_own_answer_says_what_is_given() {
        let plain = Config::default();
        assert_eq!(
            score(&plain, "5*(2+7)", Some("(7+2)*5"), Value::Null).unwrap(),
            1.0
        );
        assert_eq!(
            score(&plain, "40+5", Some("(7+2)*5"), Value::Null).unwrap(),
            0.0
        );
        let wrong = score(&plain, "1", Some("forty-five"), Value::Null).unwrap_err();
        assert!(
            wrong.contains("not an expression") && wrong.contains("nums"),
            "{wrong}"
        );
        assert!(
            score(&plain, "1", Some("1/2"), Value::Null)
                .unwrap_err()
                .contains("integer")
        );
    }

    #[test]
    fn tags_and_what_cannot_be_read() {
        let tags = Config {
            tags: true,
            ..Config::default()
        };
        let columns = || json!({"nums": [3, 8], "target": 24});
        let said = "<think>8*8? no</think><answer> 3 * 8 </answer>";
        assert_eq!(score(&tags, said, None, columns()).unwrap(), 1.0);
        assert_eq!(score(&tags, "3*8", None, columns()).unwrap(), 0.0);
        let deep = format!("{}1{}", "(".repeat(500), ")".repeat(500));
        assert_eq!(parse(&deep), None);
        let large = ["9999999999999999999"; 3].join("*");
        assert_eq!(parse(&large), None);
    }
}
