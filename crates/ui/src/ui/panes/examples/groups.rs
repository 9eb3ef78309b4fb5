//! A page of answers: what the step was worth, its groups, and the answers of one of them with their tokens coloured; or the
//! answers to one prompt over the steps; or how two steps compare.

use super::browser::{Browser, Colours};
use crate::base::human;
use crate::base::text::{one_line, sanitize};
use crate::run::rollouts::{Answer, Group, Rollout, Token, mean};
use crate::ui::keymap::Keymap;
use crate::ui::panes::chat::heat;
use crate::ui::theme::{Meaning, Theme};
use crate::ui::widgets::text::{self, Word, muted, word};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Share of the rows that the list of groups takes at most, and rows of an answer in the list of a prompt.
const LIST_SHARE: usize = 2;
/// Nats from which on the distance from the reference is coloured.
const APART: f32 = 0.1;
pub struct Page<'a> {
    pub browser: &'a Browser,
    pub now: &'a Rollout,
    /// Groups that are shown.
    pub order: &'a [usize],
}

/// What drawing needs besides the page.
#[derive(Clone, Copy)]
pub struct Look<'a> {
    pub theme: &'a Theme,
    pub keymap: &'a Keymap,
}

type Lines = Vec<Vec<Word>>;

/// What a step is measured by, each with what is better: more (1), less (−1), or neither.
fn measures(rollout: &Rollout) -> Vec<(String, f64, f64)> {
    let groups = || rollout.groups.iter();
    let answers = || groups().flat_map(|group| &group.answers);
    let share = |is: fn(&Answer) -> bool| mean(answers().map(|a| f64::from(u8::from(is(a)))));
    let flat = mean(groups().map(|group| f64::from(u8::from(group.is_flat()))));
    let mut all = vec![("reward".to_string(), mean(answers().map(|a| a.reward.0)), 1.0)];
    let names = answers().next().map_or(&[][..], |a| &a.rewards);
    for (at, (name, _)) in names.iter().enumerate() {
        let part = mean(answers().filter_map(|a| Some(a.rewards.get(at)?.1.0)));
        all.push((format!("  {name}"), part, 1.0));
    }
    all.push(("groups with equal rewards".into(), flat, -1.0));
    all.push(("completion length, tokens".into(), mean(answers().map(|a| a.tokens.len() as f64)), 0.0));
    all.push(("truncated".into(), share(|a| a.cut), -1.0));
    all.push(("NLL, nats per token".into(), mean(answers().map(Answer::nll)), 0.0));
    all
}

impl Browser {
    pub fn draw(&mut self, buffer: &mut Buffer, area: Rect, look: Look) {
        let order = self.order();
        self.marked = self.marked.min(order.len().saturating_sub(1));
        let Some(now) = &self.now else {
            let why = self.fault.as_deref().unwrap_or("Reading the completions.");
            let words = sanitize(why);
            text::paragraph(buffer, area, &words, Meaning::Muted, look.theme);
            return;
        };
        let page = Page {
            browser: self,
            now,
            order: &order,
        };
        (self.most, self.page) = page.draw(buffer, area, look);
        self.scroll = self.scroll.min(self.most);
    }
}

impl Page<'_> {
    /// Gives the lines of answers that could be scrolled away, and those of a page.
    pub fn draw(&self, buffer: &mut Buffer, area: Rect, look: Look) -> (usize, usize) {
        let Look { theme, keymap } = look;
        let width = usize::from(area.width);
        let mut rows = area.y..area.bottom();
        let mut put = |buffer: &mut Buffer, words: &[Word]| {
            if let Some(y) = rows.next() {
                text::draw(buffer, area.x, y, area.width, words, theme);
            }
        };
        for line in self.head() {
            put(buffer, &line);
        }
        let listed = !self.browser.full && self.browser.pinned.is_none();
        if listed {
            let room = usize::from(area.height).saturating_sub(5) / LIST_SHARE;
            for line in self.list(room.max(2), keymap) {
                put(buffer, &line);
            }
        }
        let lines = match (&self.browser.pinned, &self.browser.base) {
            (Some((prompt, rollouts)), _) => self.pinned(prompt, rollouts, width, theme),
            (None, Some(base)) => {
                let mut lines = self.comparison(base);
                lines.extend(self.answers(width, theme));
                lines
            }
            (None, None) => self.answers(width, theme),
        };
        let page = rows.len();
        let most = lines.len().saturating_sub(page);
        let shown = lines.iter().skip(self.browser.scroll.min(most)).take(page);
        for (y, line) in rows.zip(shown) {
            text::draw(buffer, area.x, y, area.width, line, theme);
        }
        (most, page)
    }

    fn head(&self) -> Lines {
        let (now, browser) = (self.now, self.browser);
        let title = format!("completions at step {}", human::grouped(now.step));
        let mut first = vec![word(title, Meaning::Title)];
        let at = browser.steps.iter().position(|step| *step == now.step);
        let place = at.map_or(String::new(), |at| {
            let newest = if browser.follows { ", the newest" } else { "" };
            format!("  kept step {} of {}{newest}", at + 1, browser.steps.len())
        });
        first.push(muted(place));
        let mut second = Vec::new();
        let groups = now.groups.iter();
        let flat = groups.filter(|group| group.is_flat()).count();
        let size = now.groups.first().map_or(0, |group| group.answers.len());
        let reward = measures(now).first().map_or(0.0, |(_, value, _)| *value);
        let n = now.groups.len();
        second.push(word(
            match size {
                1 => human::counted(n as u64, "completion"),
                size => format!("{} of {size}", human::counted(n as u64, "group")),
            },
            Meaning::Text,
        ));
        second.push(muted("  reward "));
        second.push(word(format!("{reward:.3}"), Meaning::Text));
        let meaning = if flat > 0 { Meaning::Warn } else { Meaning::Muted };
        // With the step's mean as baseline they teach, too.
        let idle = |group: &Group| group.answers.iter().all(|answer| answer.advantage.0 == 0.0);
        let nothing = match now.groups.iter().filter(|g| g.is_flat()).all(idle) {
            true => ": no learning signal",
            false => "",
        };
        // A single answer has no others to be compared with.
        if size > 1 {
            second.push(word(format!("  {flat} with equal rewards{nothing}"), meaning));
        }
        if now.left_out > 0 {
            second.push(muted(format!("  {} not kept", now.left_out)));
        }
        let mut third = vec![muted(format!("{}, {}", browser.only.word(), browser.sort.word()))];
        if !browser.search.is_empty() {
            let found = format!(", with \"{}\": {}", one_line(&browser.search), self.order.len());
            third.push(word(found, Meaning::Accent));
        }
        if let Some(fault) = &browser.fault {
            third.push(word(format!("  {}", one_line(fault)), Meaning::Bad));
        }
        vec![first, second, third]
    }

    /// The groups around the marked one, `rows` lines with the names of the columns.
    fn list(&self, rows: usize, keymap: &Keymap) -> Lines {
        let mut lines = vec![vec![muted(
            "    group  reward   range  tokens       NLL  prompt",
        )]];
        let rows = rows.saturating_sub(1).max(1);
        let marked = self.browser.marked;
        let from = (marked + 1).saturating_sub(rows);
        for (at, number) in self.order.iter().enumerate().skip(from).take(rows) {
            let group = &self.now.groups[*number];
            let mark = if at == marked { "> " } else { "  " };
            let meaning = match group.is_flat() {
                true => Meaning::Warn,
                false => Meaning::Text,
            };
            let flat = if group.is_flat() { "=" } else { " " };
            let mut line = vec![
                word(mark, Meaning::Accent),
                word(
                    format!(
                        "{flat} {:>5}  {:>6.2}  {:>6.2}  {:>6.1}  {:>8.2}  ",
                        number + 1,
                        group.mean_reward(),
                        group.range(),
                        group.length(),
                        group.nll()
                    ),
                    meaning,
                ),
            ];
            let name = match at == marked {
                true => Meaning::Accent,
                false => meaning,
            };
            line.push(word(text::asked(&group.prompt), name));
            line.extend(group.right.iter().map(|r| muted(format!("  reference: {}", one_line(r)))));
            lines.push(line);
        }
        if self.order.is_empty() {
            let words = "    no group matches: {rollout-filter} changes the filter, {rollout-search} the search";
            lines.push(vec![muted(keymap.fill(words))]);
        }
        lines.push(Vec::new());
        lines
    }

    /// The answers of the marked group, the best first.
    fn answers(&self, width: usize, theme: &Theme) -> Lines {
        let Some(group) = self.browser.group() else {
            return Vec::new();
        };
        let mut lines: Lines = Vec::new();
        let names: Vec<&str> = group.answers.first().map_or(Vec::new(), |answer| {
            answer.rewards.iter().map(|(name, _)| name.as_str()).collect()
        });
        let parts = match names.is_empty() {
            true => String::new(),
            false => format!("  [{}]", one_line(&names.join(", "))),
        };
        let mut title = vec![muted(format!("advantage  reward{parts}  tokens  completion   "))];
        title.extend(self.legend(group));
        lines.push(title);
        if self.browser.full {
            for row in text::wrap(&group.prompt, width, usize::MAX, theme.ascii) {
                lines.push(vec![word(row, Meaning::Accent)]);
            }
        }
        let mut order: Vec<&Answer> = group.answers.iter().collect();
        order.sort_by(|a, b| b.reward.0.total_cmp(&a.reward.0));
        for answer in order {
            lines.extend(self.answer(answer, width));
        }
        lines
    }

    /// One answer: on the line of its numbers where it fits, else below it.
    fn answer(&self, answer: &Answer, width: usize) -> Lines {
        let advantage = answer.advantage.0;
        let meaning = match advantage {
            a if a > 0.0 => Meaning::Good,
            a if a < 0.0 => Meaning::Bad,
            _ => Meaning::Muted,
        };
        let mut first = vec![
            word(format!("{advantage:>+9.2}"), meaning),
            word(format!("  {:>6}", human::reward(answer.reward.0)), Meaning::Text),
        ];
        let parts = answer.rewards.iter().map(|(_, x)| human::reward(x.0));
        let parts: Vec<String> = parts.collect();
        if !parts.is_empty() {
            first.push(muted(format!("  [{}]", parts.join(", "))));
        }
        let truncated = if answer.cut { " truncated" } else { "" };
        first.push(muted(format!("  {}{truncated}  ", answer.tokens.len())));
        let words = self.coloured(answer);
        let (room, one) = (width.saturating_sub(text::width(&first)), text::width(&words));
        let breaks = answer.text().trim_end().contains('\n');
        if one <= room && !breaks {
            first.extend(words);
            return vec![first];
        }
        let mut lines = vec![first];
        lines.extend(text::broken(words, width.saturating_sub(4)).into_iter().map(|mut line| {
            line.insert(0, muted("    "));
            line
        }));
        lines
    }

    fn coloured(&self, answer: &Answer) -> Vec<Word> {
        let meaning = |token: &Token| match (self.browser.colours, token.2) {
            (Colours::Off, _) | (Colours::Reference, None) => Meaning::Text,
            (Colours::Probability, _) => heat::of_probability(token.1.exp()),
            (Colours::Reference, Some(ratio)) if ratio > APART => Meaning::Good,
            (Colours::Reference, Some(ratio)) if ratio < -APART => Meaning::Bad,
            (Colours::Reference, Some(_)) => Meaning::Text,
            (Colours::Advantage, _) if answer.advantage.0 > 0.0 => Meaning::Good,
            (Colours::Advantage, _) if answer.advantage.0 < 0.0 => Meaning::Bad,
            (Colours::Advantage, _) => Meaning::Muted,
        };
        let tokens = answer.tokens.iter();
        tokens.map(|token| word(token.0.clone(), meaning(token))).collect()
    }

    fn legend(&self, group: &Group) -> Vec<Word> {
        match self.browser.colours {
            Colours::Off => Vec::new(),
            Colours::Probability => heat::legend_of_probability(),
            Colours::Reference => {
                let known = group.answers.iter().flat_map(|a| &a.tokens).any(|t| t.2.is_some());
                match known {
                    false => vec![muted("no reference: beta is 0")],
                    true => vec![
                        word("more", Meaning::Good),
                        muted(" or "),
                        word("less", Meaning::Bad),
                        muted(" probable than by the reference"),
                    ],
                }
            }
            Colours::Advantage => vec![
                word("made more", Meaning::Good),
                muted(" or "),
                word("less", Meaning::Bad),
                muted(" probable"),
            ],
        }
    }

    /// The answers to one prompt over the steps.
    fn pinned(&self, prompt: &str, rollouts: &[Rollout], width: usize, theme: &Theme) -> Lines {
        let mut lines: Lines = Vec::new();
        for (at, row) in text::wrap(&text::asked(prompt), width, 3, theme.ascii).into_iter().enumerate() {
            let first = if at == 0 { "pinned: " } else { "        " };
            lines.push(vec![muted(first), word(row, Meaning::Accent)]);
        }
        let steps = rollouts.len();
        let of = format!("answered at {steps} of {} kept steps", self.browser.steps.len());
        lines.push(vec![muted(of)]);
        for rollout in rollouts {
            for group in &rollout.groups {
                let flat = if group.is_flat() { "  equal rewards" } else { "" };
                lines.push(vec![
                    word(format!("step {}", human::grouped(rollout.step)), Meaning::Title),
                    muted(format!("  reward {:.2}", group.mean_reward())),
                    word(flat, Meaning::Warn),
                ]);
                let answers = group.answers.iter();
                lines.extend(answers.flat_map(|answer| self.answer(answer, width)));
            }
        }
        lines
    }

    /// How the step compares with the base.
    fn comparison(&self, base: &Rollout) -> Lines {
        let (before, now) = (human::grouped(base.step), human::grouped(self.now.step));
        let title = format!("{:<24}  {:>10}  {:>10}  change", "", before, now);
        let mut lines = vec![vec![word(title, Meaning::Title)]];
        if base.step == self.now.step {
            lines.push(vec![muted("left and right choose the step to compare with")]);
        }
        let others = measures(base);
        for (name, value, better) in measures(self.now) {
            let before = others.iter().find(|(other, ..)| *other == name);
            let before = before.map_or(0.0, |(_, value, _)| *value);
            let change = value - before;
            let meaning = match change * better {
                x if x > 0.0 => Meaning::Good,
                x if x < 0.0 => Meaning::Bad,
                _ => Meaning::Muted,
            };
            lines.push(vec![
                muted(format!("{:<24}", one_line(&name))),
                word(format!("  {before:>10.3}  {value:>10.3}"), Meaning::Text),
                word(format!("  {change:+.3}"), meaning),
            ]);
        }
        lines.push(Vec::new());
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::super::browser::{Only, Sort};
    use super::*;
    use crate::run::rollouts::Found;
    use crate::run::rollouts::RolloutQuery;
    use crate::ui::action::Action;
    use crate::wire::Num;
    use std::path::Path;

    fn group(prompt: &str, rewards: [f64; 2], text: &str) -> Group {
        let answer = |(at, reward): (usize, f64)| Answer {
            index: at as u32,
            cut: at == 1 && rewards[0] == rewards[1],
            reward: Num(reward),
            rewards: vec![("exact".into(), Num(reward))],
            advantage: Num(if rewards[0] == rewards[1] { 0.0 } else { reward - 0.5 }),
            tokens: vec![Token(text.into(), -0.05, Some(0.5)), Token("7\n".into(), -3.0, None)],
        };
        Group {
            prompt: prompt.into(),
            right: Some("17".into()),
            answers: rewards.into_iter().enumerate().map(answer).collect(),
            ..Group::default()
        }
    }

    fn rollout(step: u64) -> Rollout {
        Rollout {
            step,
            groups: vec![group("9+8=", [0.0, 1.0], "1"), group("2+3=", [1.0, 1.0], "xyz")],
            left_out: 0,
        }
    }

    fn browser() -> Browser {
        let mut browser = Browser {
            steps: vec![3, 4],
            now: Some(rollout(4)),
            ..Browser::default()
        };
        assert_eq!(browser.order(), [0, 1]);
        browser.act(Action::Top);
        browser
    }

    fn screen(browser: &mut Browser, width: u16, height: u16) -> String {
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        let look = Look {
            theme: &Theme::ansi(),
            keymap: &Keymap::embedded(),
        };
        browser.draw(&mut buffer, area, look);
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| row(y).trim_end().to_string() + "\n").collect()
    }

    #[test]
    fn a_step_shows_its_groups_and_the_answers_of_the_marked_one() {
        let mut browser = browser();
        let text = screen(&mut browser, 80, 24);
        assert!(text.contains("completions at step 4  kept step 2 of 2"), "{text}");
        assert!(text.contains("2 groups of 2  reward 0.750  1 with equal rewards: no learning signal"), "{text}");
        assert!(text.contains(">       1    0.50    1.00     2.0      1.53  9+8=  reference: 17"), "{text}");
        assert!(text.contains("  =     2    1.00    0.00"), "{text}");
        // The best answer comes first.
        let good = text.find("+0.50       1  [1]  2  17").unwrap();
        assert!(good < text.find("-0.50       0  [0]  2  17").unwrap(), "{text}");
        browser.act(Action::Down);
        assert!(screen(&mut browser, 80, 24).contains("2 truncated  xyz7"));
    }

    /// Every line began with the same system prompt, and the question was cut off.
    #[test]
    fn prompts_of_a_chat_template_are_told_apart_by_their_questions() {
        let mut browser = browser();
        let prompt = "<|im_start|>system\nYou are a helpful AI assistant.<|im_end|>\n<|im_start|>user\nWhat is 1+1?<|im_end|>\n<|im_start|>assistant\n";
        for group in &mut browser.now.as_mut().unwrap().groups {
            group.prompt = prompt.replace("1+1", &group.prompt);
        }
        for width in [80, 160] {
            let text = screen(&mut browser, width, 24);
            for question in ["  What is 9+8=?", "  What is 2+3=?"] {
                assert!(text.contains(question), "{text}");
            }
            assert!(!text.contains("im_start"), "{text}");
        }
        // The whole of it is a key away.
        browser.full = true;
        assert!(screen(&mut browser, 80, 24).contains("<|im_start|>system"));
        browser.pinned = Some((prompt.into(), Vec::new()));
        let text = screen(&mut browser, 80, 24);
        assert!(text.contains("pinned: What is 1+1?"), "{text}");
    }

    #[test]
    fn groups_are_sorted_filtered_and_searched() {
        let mut browser = browser();
        browser.act(Action::RolloutFilter);
        assert_eq!((browser.only, browser.order()), (Only::Teaching, vec![0]));
        browser.act(Action::RolloutFilter);
        assert_eq!((browser.only, browser.order()), (Only::Flat, vec![1]));
        browser.act(Action::RolloutFilter);
        assert_eq!((browser.only, browser.order()), (Only::Cut, vec![1]));
        browser.only = Only::All;
        browser.sort = Sort::Reward;
        assert_eq!(browser.order(), [0, 1]);
        browser.act(Action::RolloutSort);
        assert_eq!((browser.sort, browser.order()), (Sort::Range, vec![0, 1]));
        browser.search = "xyz".into();
        assert_eq!(browser.order(), [1]);
        browser.search = "none".into();
        let text = screen(&mut browser, 80, 24);
        assert!(text.contains("no group matches"), "{text}");
        browser.act(Action::Cancel);
        assert_eq!(browser.order().len(), 2);
    }

    #[test]
    fn a_pinned_prompt_shows_its_answers_over_the_steps_and_two_steps_compare() {
        let mut browser = browser();
        let found = Found {
            steps: vec![3, 4],
            rollouts: vec![rollout(3), rollout(4)],
        };
        // Without a run nothing is asked; what comes for another run is dropped.
        assert!(browser.act(Action::PinPrompt).is_empty());
        let wanted = RolloutQuery::Prompt("9+8=".into());
        browser.take(Path::new("/elsewhere"), &wanted, &Ok(Box::new(found.clone())));
        assert!(browser.pinned.is_none());
        browser.pinned = Some(("9+8=".into(), found.rollouts));
        let text = screen(&mut browser, 80, 24);
        assert!(text.contains("pinned: 9+8=") && text.contains("answered at 2 of 2"), "{text}");
        assert!(text.contains("step 3  reward 0.50") && text.contains("step 4  "), "{text}");
        browser.act(Action::PinPrompt);
        browser.base = Some(Rollout {
            step: 3,
            groups: vec![group("1+1=", [0.0, 0.0], "1")],
            left_out: 0,
        });
        let text = screen(&mut browser, 80, 30);
        assert!(text.contains("reward                         0.000       0.750  +0.750"), "{text}");
    }

    #[test]
    fn any_size_is_drawn() {
        for (width, height) in [(1, 1), (3, 2), (24, 4), (200, 60)] {
            for full in [false, true] {
                let mut browser = browser();
                browser.full = full;
                screen(&mut browser, width, height);
            }
        }
    }

    #[test]
    fn long_answers_are_broken_where_lines_end() {
        let words = ["ab", "c\nd", "ef"].map(|text| word(text, Meaning::Text));
        let lines = text::broken(Vec::from(words), 3);
        let text = |line: &Vec<Word>| line.iter().map(|w| w.text.as_str()).collect::<String>();
        assert_eq!(lines.iter().map(text).collect::<Vec<_>>(), ["abc", "def"]);
    }
}
