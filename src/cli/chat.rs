//! `llmtui chat`: talk to a checkpoint.

use super::{
    Context,
    args::SamplingArgs,
    attach,
    exit::{Exit, Failure},
};
use crate::base::sampling::Sampling;
use crate::base::text::sanitize;
use crate::link::launch::Launcher;
use crate::link::{Incoming, Link};
use crate::wire::{Command, CommandId, Event, StopReason};
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

/// Continue text with a checkpoint: one prompt, or line by line
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A checkpoint folder, or a run (its best checkpoint)
    #[arg(value_name = "CHECKPOINT")]
    pub checkpoint: String,
    /// Continue this text, print the answer and stop
    #[arg(long, value_name = "P")]
    pub prompt: Option<String>,
    #[command(flatten)]
    pub sampling: SamplingArgs,
}

pub fn run(args: Args, cx: &Context) -> anyhow::Result<Exit> {
    let checkpoint = find(&args.checkpoint, cx)?;
    let mut link = Launcher::this_program(&cx.env)?.infer(&checkpoint)?;
    let mut chat = Chat {
        link: &mut link,
        out: std::io::stdout().lock(),
        sampling: args.sampling.sampling(),
        terminal: cx.stdout_is_terminal,
    };
    match args.prompt {
        Some(prompt) => chat.continue_text(&prompt)?,
        None => converse(&mut chat, &checkpoint, cx)?,
    }
    Ok(Exit::Done)
}

/// The checkpoint folder that a word means: itself, or the best one of a run.
fn find(word: &str, cx: &Context) -> anyhow::Result<PathBuf> {
    let path = Path::new(word);
    if path.join("config.json").is_file() {
        return Ok(path.into());
    }
    if path.is_dir() && !path.join("run.json").is_file() {
        let what = format!("{word} is neither a checkpoint folder (no config.json) nor a run");
        return Err(Failure::yours(what, "llmtui runs").into());
    }
    let run = attach::named(word, cx)?;
    match run.best_checkpoint() {
        Some(checkpoint) => Ok(checkpoint.path),
        None => {
            let what = format!("the run {} has no checkpoint yet", run.id());
            let hint = "wait for its first one, or lower checkpoint.every";
            Err(Failure::yours(what, hint).into())
        }
    }
}

/// Each line of standard input is a prompt. A terminal is asked for lines; a pipe is read as it is.
fn converse<W: Write>(chat: &mut Chat<W>, checkpoint: &Path, cx: &Context) -> anyhow::Result<()> {
    let asking = cx.stdin_is_terminal;
    if asking {
        let name = checkpoint.display();
        eprintln!("{name}: each line is continued by the model; Ctrl-D ends");
    }
    let mut lines = std::io::stdin().lock().lines();
    loop {
        if asking {
            eprint!("> ");
        }
        let Some(line) = lines.next() else {
            return Ok(());
        };
        chat.continue_text(&line?)?;
    }
}

struct Chat<'a, W> {
    link: &'a mut Link,
    out: W,
    sampling: Sampling,
    /// Standard output is a terminal: the prompt is shown in front of its continuation, nothing may steer it.
    terminal: bool,
}

impl<W: Write> Chat<'_, W> {
    /// Prints the continuation as it comes, and a newline behind it.
    fn continue_text(&mut self, prompt: &str) -> anyhow::Result<()> {
        if self.terminal {
            self.print(prompt)?;
        }
        let asked = self.link.send(Command::Generate {
            prompt: prompt.into(),
            sampling: self.sampling.clone(),
        })?;
        loop {
            match self.link.blocking_recv() {
                Incoming::Event(envelope) => {
                    if self.take(asked, envelope.event)? {
                        return Ok(());
                    }
                }
                Incoming::CaughtUp => {}
                Incoming::Closed(why) => return Err(gone(why.as_deref()).into()),
            }
        }
    }

    /// True when the answer is complete.
    fn take(&mut self, asked: CommandId, event: Event) -> anyhow::Result<bool> {
        match event {
            Event::Token { command, text, .. } if command == asked => {
                self.print(&text)?;
                Ok(false)
            }
            Event::Generated {
                command,
                reason,
                message,
                ..
            } if command == asked => {
                writeln!(self.out)?;
                if reason == StopReason::Failed {
                    return Err(Failure::yours(sanitize(&message), "").into());
                }
                Ok(true)
            }
            Event::Rejected { id, why } if id == asked => {
                Err(Failure::yours(sanitize(&why), "").into())
            }
            _ => Ok(false),
        }
    }

    /// A pipe gets the model's very words; a terminal gets them without control sequences.
    fn print(&mut self, text: &str) -> std::io::Result<()> {
        if self.terminal {
            self.out.write_all(sanitize(text).as_bytes())?;
        } else {
            self.out.write_all(text.as_bytes())?;
        }
        self.out.flush()
    }
}

/// What the process said when it died; its own prefix is cut, ours comes in front.
fn gone(why: Option<&str>) -> Failure {
    let why = why.unwrap_or("the model's process ended");
    let mut lines = why.lines();
    let first = lines.next().unwrap_or_default();
    let what = first.strip_prefix("llmtui: ").unwrap_or(first);
    let hint = lines
        .next()
        .and_then(|line| line.trim().strip_prefix("try: "))
        .unwrap_or_default();
    Failure::yours(what, hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::UnixMillis;
    use crate::wire::{Envelope, Num, VERSION};
    use tokio::sync::mpsc;

    fn answered(events: Vec<Event>, terminal: bool) -> (String, anyhow::Result<()>) {
        let (send, incoming) = mpsc::channel(64);
        let (commands, mut asked) = mpsc::channel(4);
        let mut link = Link::new(incoming, Some(commands));
        let answer = std::thread::spawn(move || {
            let id = asked.blocking_recv().unwrap().id;
            for mut event in events {
                if let Event::Token { command, .. } | Event::Generated { command, .. } = &mut event
                {
                    *command += id;
                }
                let envelope = Envelope {
                    v: VERSION,
                    seq: 1,
                    t: UnixMillis(0),
                    event,
                };
                send.blocking_send(Incoming::Event(Box::new(envelope)))
                    .unwrap();
            }
            send.blocking_send(Incoming::Closed(Some(
                "llmtui: it broke\n  try: again\n".into(),
            )))
            .unwrap();
        });
        let mut out = Vec::new();
        let result = Chat {
            link: &mut link,
            out: &mut out,
            sampling: Sampling::default(),
            terminal,
        }
        .continue_text("pro\x1bmpt");
        answer.join().unwrap();
        (String::from_utf8(out).unwrap(), result)
    }

    fn token(offset: u64, text: &str) -> Event {
        Event::Token {
            command: offset,
            text: text.into(),
            logprob: Num(-1.0),
        }
    }

    fn end(reason: StopReason) -> Event {
        Event::Generated {
            command: 0,
            n_tokens: 2,
            prompt_tokens: 1,
            seconds: 0.1,
            reason,
            message: "bad luck".into(),
        }
    }

    #[test]
    fn a_pipe_gets_the_words_and_a_terminal_gets_them_harmless() {
        let events = || {
            vec![
                token(0, "a\x1b[2J"),
                token(5, "of another answer"),
                token(0, "b"),
                end(StopReason::Length),
            ]
        };
        let (text, result) = answered(events(), false);
        result.unwrap();
        assert_eq!(text, "a\x1b[2Jb\n");
        let (text, _) = answered(events(), true);
        assert_eq!(text, "pro·mpta·[2Jb\n");
    }

    #[test]
    fn failures_and_deaths_are_told_in_one_sentence() {
        let (_, result) = answered(vec![end(StopReason::Failed)], false);
        assert_eq!(result.unwrap_err().to_string(), "bad luck");
        let (_, result) = answered(Vec::new(), false);
        let error = result.unwrap_err();
        let failure = error.downcast_ref::<Failure>().unwrap();
        assert_eq!(
            (failure.what.as_str(), failure.hint.as_str()),
            ("it broke", "again")
        );
    }
}
