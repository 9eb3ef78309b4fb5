//! A task with its templates compiled, and its rows read.

use super::answers::Written;
use super::config::{Kind, TaskConfig};
use super::error::TaskError;
use super::items::{self, Item};
use super::programs::Tester;
use super::record::Record as Judged;
use super::rewarded::{self, Rewarder};
use super::summary;
use crate::base::digest::hex;
use crate::base::human;
use crate::base::paths::expand_home;
use crate::data::chat::{Formula, RowTemplate};
use crate::data::source::{Origin, ReadContext, SourceConfig, is_data_file, rows};
use crate::data::{DataError, Record};
use regex::Regex;
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Counts up with every change of how answers are judged: those that were judged in another way are asked anew.
const JUDGING: u32 = 3;

/// A compiled pattern that finds an answer.
#[derive(Debug, Clone)]
pub(super) struct Finder {
    pub name: String,
    pub pattern: Option<Regex>,
    pub last: bool,
}

/// Something looked for in answers.
#[derive(Debug, Clone)]
pub(super) struct Counter {
    pub name: String,
    pub absent: bool,
    /// Where the pattern depends on the row.
    pub template: Option<RowTemplate>,
    pub pattern: String,
}

/// One task, checked.
#[derive(Debug, Clone)]
pub struct Task {
    pub(super) config: TaskConfig,
    pub(super) description: RowTemplate,
    pub(super) prompt: RowTemplate,
    pub(super) measured: Option<RowTemplate>,
    pub(super) target: Option<RowTemplate>,
    pub(super) prompts: Option<Formula>,
    pub(super) choices: Option<Formula>,
    pub(super) gold: Option<Formula>,
    pub(super) labels: Option<Formula>,
    pub(super) group: Option<Formula>,
    pub(super) same: Option<Formula>,
    pub(super) finders: Vec<Finder>,
    pub(super) counters: Vec<Counter>,
    pub(super) ignore: Vec<Regex>,
    /// What `answer.python` runs.
    pub(super) program: Option<RowTemplate>,
    /// What the assistant's turn begins with.
    pub(super) prefix: Option<RowTemplate>,
    digest: String,
    /// Where it was read; `None` for one of this program's.
    pub(super) file: Option<PathBuf>,
}

/// A task whose rows have been read: nothing can be missing any more.
#[derive(Debug)]
pub struct Prepared {
    pub task: Task,
    pub items: Vec<Item>,
    /// Runs the programs of answers, where the task has tests for them.
    pub(super) tester: Option<Tester>,
    /// Scores answers, where the task has rewards.
    pub(super) rewarder: Option<Rewarder>,
    /// Of everything that is asked, prompts, continuations, targets, and of what judges the answers.
    pub digest: String,
    /// The task has more rows than were asked for.
    pub limited: bool,
}

/// Who designed a task's prompts and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskOrigin {
    /// They are those of lm-evaluation-harness.
    Harness,
    /// This program, for rows that others published.
    Program,
    /// This program, which makes up the rows, too.
    Synthetic,
    /// A file of the user's.
    Own,
}

/// Compiles the texts of the task of this name.
struct Compiler<'a>(&'a str);

impl Compiler<'_> {
    fn template(&self, what: &str, source: &str) -> Result<RowTemplate, String> {
        RowTemplate::new(&self.named(what), source).map_err(|e| e.to_string())
    }

    fn optional(&self, what: &str, source: Option<&String>) -> Result<Option<RowTemplate>, String> {
        source.map(|source| self.template(what, source)).transpose()
    }

    fn formula(&self, what: &str, source: Option<&String>) -> Result<Option<Formula>, String> {
        let made = source.map(|source| Formula::new(&self.named(what), source));
        made.transpose().map_err(|e| e.to_string())
    }

    fn counters(&self, config: &TaskConfig) -> Result<Vec<Counter>, String> {
        let counters = config.answer.counts.iter().map(|count| {
            let template = match count.pattern.contains("{{") {
                true => Some(self.template(&count.name, &count.pattern)?),
                false => pattern(&count.pattern).map(|_| None)?,
            };
            Ok(Counter {
                name: count.name.clone(),
                absent: count.absent,
                template,
                pattern: count.pattern.clone(),
            })
        });
        counters.collect()
    }

    fn named(&self, what: &str) -> String {
        format!("{}, {what}", self.0)
    }
}

fn pattern(source: &str) -> Result<Regex, String> {
    Regex::new(source).map_err(|e| format!("{source}: {e}"))
}

fn finders(config: &TaskConfig) -> Result<Vec<Finder>, String> {
    let compared = config.answer.extract.iter();
    let finders = compared.filter(|_| config.target.is_some()).map(|extract| {
        Ok(Finder {
            name: extract.name.clone(),
            pattern: extract.pattern.as_deref().map(pattern).transpose()?,
            last: extract.take == super::config::Take::Last,
        })
    });
    finders.collect()
}

fn check_name(name: &str) -> Result<(), String> {
    let plain = name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    match name.is_empty() || !plain || name.starts_with('.') {
        true => Err("`name` may have letters, digits, `_`, `-` and `.`".into()),
        false => Ok(()),
    }
}

/// Each kind has what it needs, and nothing that is another's.
fn check_kind(config: &TaskConfig) -> Result<(), String> {
    let need = |there: bool, what: &str| match there {
        true => Ok(()),
        false => Err(format!("a task of this kind needs {what}")),
    };
    match config.kind {
        Kind::Choice => {
            need(config.gold.is_some(), "`gold`")?;
            match config.prompts {
                Some(_) => need(config.target.is_some(), "`target` beside `prompts`")?,
                None => need(config.choices.is_some(), "`choices` (or `prompts`)")?,
            }
        }
        Kind::Continuation => need(config.target.is_some(), "`target`")?,
        Kind::Answer => {
            let how = &config.answer;
            let judged = config.target.is_some()
                || !how.counts.is_empty()
                || how.check.is_some()
                || how.python.is_some()
                || !how.rewards.is_empty();
            need(
                judged,
                "`target`, `answer.counts`, `answer.check`, `answer.python` or `answer.rewards`",
            )?;
            rewarded::fault(how).map_or(Ok(()), Err)?;
            let python = how.python.as_ref();
            need(
                python.is_none_or(|python| python.run.contains("completion")),
                "`{{ completion }}` in `answer.python.run`",
            )?;
        }
        Kind::Text => need(!config.prompt.is_empty(), "`prompt`, the text of a row")?,
    }
    if config.measured.is_some() && config.kind != Kind::Text {
        return Err("`measured` is for tasks of kind `text`".into());
    }
    if config.answer.prefix.is_some() && !config.chat {
        return Err(
            "`answer.prefix` begins the assistant's turn of `chat: true`; else write it at the end of `prompt`"
                .into(),
        );
    }
    if config.chat && config.kind != Kind::Answer {
        return Err(
            "`chat` is only for tasks of kind `answer`: others score texts as they are".into(),
        );
    }
    Ok(())
}

fn check_headline(config: &TaskConfig) -> Result<(), String> {
    if let Some(headline) = &config.headline {
        let known = summary::metrics(config);
        if !known.contains(headline) {
            return Err(format!(
                "`headline`: {headline:?} is not a metric of this task; it has {}",
                known.join(", ")
            ));
        }
    }
    Ok(())
}

impl Task {
    /// # Errors
    /// What is wrong with the file, in one sentence.
    pub(super) fn new(config: TaskConfig, text: &str) -> Result<Task, String> {
        check_name(&config.name)?;
        check_kind(&config)?;
        check_headline(&config)?;
        let of = Compiler(&config.name);
        let same = config.shots.as_ref().and_then(|shots| shots.same.as_ref());
        let how = &config.answer;
        let python = how.python.as_ref().map(|python| &python.run);
        let ignore = how.ignore.iter().map(|source| pattern(source));
        Ok(Task {
            description: of.template("description", &config.description)?,
            prompt: of.template("prompt", &config.prompt)?,
            measured: of.optional("measured", config.measured.as_ref())?,
            target: of.optional("target", config.target.as_ref())?,
            prompts: of.formula("prompts", config.prompts.as_ref())?,
            choices: of.formula("choices", config.choices.as_ref())?,
            gold: of.formula("gold", config.gold.as_ref())?,
            labels: of.formula("labels", config.labels.as_ref())?,
            group: of.formula("group", config.group.as_ref())?,
            same: of.formula("shots.same", same)?,
            finders: finders(&config)?,
            counters: of.counters(&config)?,
            program: of.optional("answer.python.run", python)?,
            prefix: of.optional("answer.prefix", how.prefix.as_ref())?,
            ignore: ignore.collect::<Result<_, _>>()?,
            digest: hex(&Sha256::digest(text.as_bytes())),
            file: None,
            config,
        })
    }

    pub fn config(&self) -> &TaskConfig {
        &self.config
    }

    /// The same with another number of worked examples.
    ///
    /// # Errors
    /// The task names no source of examples.
    pub fn with_shots(mut self, count: usize) -> Result<Task, TaskError> {
        match &mut self.config.shots {
            Some(shots) => shots.count = count,
            None if count == 0 => {}
            None => {
                return Err(TaskError::File {
                    place: self.config.name.clone(),
                    what: "it has no source of few-shot examples (`shots`)".into(),
                });
            }
        }
        Ok(self)
    }

    /// The same with another longest length of answers, in tokens; others than those that write answers have none.
    ///
    /// # Errors
    /// An answer of no tokens.
    pub fn with_max_new_tokens(mut self, tokens: usize) -> Result<Task, TaskError> {
        if tokens == 0 {
            return Err(TaskError::File {
                place: self.config.name.clone(),
                what: "an answer has at least one token (`answer.max_new_tokens`)".into(),
            });
        }
        if self.config.kind == Kind::Answer && self.config.answer.max_new_tokens != tokens {
            self.config.answer.max_new_tokens = tokens;
            // Items do not say it, and other answers are another evaluation.
            let text = format!("{} {tokens}", self.digest);
            self.digest = hex(&Sha256::digest(text.as_bytes()));
        }
        Ok(self)
    }

    /// The same with its prompts as a user's turns, where it writes answers.
    pub fn as_turns(mut self) -> Task {
        if self.config.kind == Kind::Answer && !self.config.chat {
            self.config.chat = true;
            self.digest = hex(&Sha256::digest(format!("{} chat", self.digest).as_bytes()));
        }
        self
    }

    /// Who designed it.
    pub fn origin(&self) -> TaskOrigin {
        match self.config.source.origin {
            _ if self.file.is_some() => TaskOrigin::Own,
            Origin::Synthetic(_) => TaskOrigin::Synthetic,
            // The harness has no tasks that count refusals.
            _ if !self.config.answer.counts.is_empty() => TaskOrigin::Program,
            _ => TaskOrigin::Harness,
        }
    }

    /// The file of a task that is not one of this program's.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Relative paths of its sources start at `base`, and `~` is `home`.
    ///
    /// # Errors
    /// A `~` that cannot be expanded: what is wrong, and what to do.
    pub(super) fn relative_to(
        &mut self,
        base: &Path,
        home: Option<&Path>,
    ) -> Result<(), (String, String)> {
        let fault = RefCell::new(None);
        let absolute = |path: &Path| match expand_home(path, base, home) {
            Ok(path) => base.join(path),
            Err(found) => {
                fault.borrow_mut().get_or_insert(found);
                path.to_path_buf()
            }
        };
        let shots = self.config.shots.as_mut().map(|shots| &mut shots.source);
        for source in std::iter::once(&mut self.config.source).chain(shots) {
            // A file beside the task, also where it is missing: the message then names the place where it was looked for.
            if let Origin::Named(name) = &source.origin
                && is_data_file(Path::new(name))
            {
                source.origin = Origin::Path(name.clone());
            }
            source.make_absolute(&absolute);
        }
        for reward in &mut self.config.answer.rewards {
            reward.reward.fix_paths(&absolute);
        }
        fault.into_inner().map_or(Ok(()), Err)
    }

    /// Reads the rows, at most `limit`, and makes of each what is asked.
    ///
    /// # Errors
    /// Rows that cannot be had, or do not fit the task.
    pub fn prepare(self, limit: Option<usize>, read: &ReadContext) -> Result<Prepared, TaskError> {
        let python = self.config.answer.python.as_ref();
        let tester = python.map(|python| Tester::new(&self.config.name, python));
        let tester = tester.transpose()?;
        let how = &self.config.answer;
        let rewarder = (!how.rewards.is_empty()).then(|| Rewarder::new(&self.config.name, how));
        let rewarder = rewarder.transpose()?;
        // What belongs to a group is known of a row that was read.
        let most = limit.filter(|_| self.group.is_none());
        let (rows, more) = self.read(&self.config.source, most, read)?;
        let n_rows = rows.len();
        let asked = items::limited(&self, rows, limit)?;
        let limited = more || asked.len() < n_rows;
        let shots = match &self.config.shots {
            Some(shots) if shots.count > 0 => {
                // Examples that go by the row asked may stand anywhere.
                let most = shots.same.is_none().then_some(shots.skip + shots.count + 1);
                self.read(&shots.source, most, read)?.0
            }
            _ => Vec::new(),
        };
        if asked.is_empty() {
            return Err(TaskError::Rows {
                task: self.config.name.clone(),
                why: DataError::source(&self.config.source, "has no rows", "name another source"),
            });
        }
        let items = items::items(&self, &asked, &shots)?;
        let mut hash = Sha256::new();
        hash.update(self.digest.as_bytes());
        if self.config.kind == Kind::Answer {
            hash.update(JUDGING.to_le_bytes());
            rewarded::add_judges(&mut hash, &self.config.answer);
        }
        for item in &items {
            hash.update(serde_json::to_string(item).unwrap_or_default());
        }
        Ok(Prepared {
            digest: hex(&hash.finalize()),
            task: self,
            items,
            tester,
            rewarder,
            limited,
        })
    }

    /// The first rows of a source, and whether there are more.
    fn read(
        &self,
        source: &SourceConfig,
        limit: Option<usize>,
        read: &ReadContext,
    ) -> Result<(Vec<Record>, bool), TaskError> {
        let failed = |why| TaskError::Rows {
            task: self.config.name.clone(),
            why,
        };
        let mut rows = rows(source, read).map_err(failed)?.fuse();
        let asked: Result<Vec<Record>, _> = rows
            .by_ref()
            .take(limit.unwrap_or(usize::MAX))
            .map(|row| row.map_err(|fault| failed(fault.into())))
            .collect();
        Ok((asked?, rows.next().is_some()))
    }
}

impl Prepared {
    /// How many rows there are, and of how many groups where a task has them: `100 rows, of 57 groups`.
    pub fn extent(&self) -> String {
        let groups: BTreeSet<&String> = (self.items.iter())
            .filter_map(|item| item.group.as_ref())
            .collect();
        let rows = human::counted(self.items.len() as u64, "row");
        match groups.len() {
            0 => rows,
            n => format!("{rows}, of {}", human::counted(n as u64, "group")),
        }
    }

    /// Names of rewards that a program gives: what it reads besides the files that its command line names is not known.
    pub fn scored_by_programs(&self) -> Vec<&str> {
        let rewards = self.task.config.answer.rewards.iter();
        let programs = rewards.filter(|reward| reward.reward.program().is_some());
        programs.map(|reward| reward.name.as_str()).collect()
    }

    /// What answers are worth that only a program, a sandbox or a model can tell.
    ///
    /// # Errors
    /// One of those broke.
    pub(super) fn judged(
        &self,
        items: &[&Item],
        mut written: Vec<Written>,
    ) -> Result<Vec<Judged>, TaskError> {
        if let Some(rewarder) = &self.rewarder {
            rewarder.judge(items, &mut written)?;
        }
        let mut records: Vec<Judged> = written.into_iter().map(|w| w.record).collect();
        if let Some(tester) = &self.tester {
            tester.judge(items, &mut records)?;
        }
        Ok(records)
    }
}
