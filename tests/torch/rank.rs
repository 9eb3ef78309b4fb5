//! One rank that implements the protocol, and fails where its play says so.

use llmtui::workers::{Frame, bytes_of, floats};
use serde_json::{Value, json};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

/// The first weight, which rank 0 distributes: through a file, because ranks on other "machines" are other processes.
fn first() -> f32 {
    let text = std::fs::read_to_string(first_file()).unwrap_or_default();
    text.parse().map_or(0.0, f32::from_bits)
}

fn hand_out(first: f32) {
    let part = first_file().with_extension("part");
    std::fs::write(&part, first.to_bits().to_string()).unwrap();
    std::fs::rename(&part, first_file()).unwrap();
}

fn first_file() -> PathBuf {
    Path::new(&std::env::var("LLMTUI_PLAY").unwrap()).join("first")
}

/// A rank whose "model" is just its weights: log-probabilities are a function of them, and updates change them.
pub struct Fake {
    rank: usize,
    world: usize,
    stream: UnixStream,
    play: String,
    weights: Vec<f32>,
    moments: [Vec<f32>; 2],
    teacher: Vec<f32>,
    updates: u64,
    vocab_size: usize,
}

/// Numbers of a model's parameters.
fn n_params(model: &Value) -> usize {
    let params = model["params"].as_array().unwrap();
    let len = |p: &Value| {
        let shape = p["shape"].as_array().unwrap().iter();
        shape.map(|n| n.as_u64().unwrap()).product::<u64>() as usize
    };
    params.iter().map(len).sum()
}

impl Fake {
    pub fn new(rank: usize, world: usize, socket: &str, play: &str) -> Fake {
        let stream = UnixStream::connect(socket).unwrap();
        let mut fake = Fake {
            rank,
            world,
            stream,
            play: play.into(),
            weights: Vec::new(),
            moments: [Vec::new(), Vec::new()],
            teacher: Vec::new(),
            updates: 0,
            vocab_size: 0,
        };
        let protocol = if play == "old protocol" { 99 } else { 4 };
        fake.say(json!({"type": "hello", "protocol": protocol, "rank": rank, "world": world, "pid": std::process::id()}), Vec::new());
        fake.say(
            json!({"type": "ready", "torch": "2.15.0", "gpus": 0}),
            Vec::new(),
        );
        fake
    }

    fn say(&mut self, header: Value, payload: Vec<u8>) {
        // The engine may already have disconnected.
        let _ = Frame::with(header, payload).write(&mut self.stream);
    }

    pub fn serve(mut self) {
        let (send, frames) = channel();
        let mut input = self.stream.try_clone().unwrap();
        std::thread::spawn(move || {
            while let Ok(Some(frame)) = Frame::read(&mut input) {
                if send.send(frame).is_err() {
                    return;
                }
            }
        });
        loop {
            let frame = match frames.recv_timeout(Duration::from_millis(200)) {
                Ok(frame) => frame,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                    self.say(json!({"type": "beat", "phase": "waiting"}), Vec::new());
                    continue;
                }
                Err(_) => return,
            };
            let ask = frame.header.clone();
            let part = ask["part"].as_str().unwrap_or_default().to_string();
            let (mut answer, mut payload) = (json!({"type": "done"}), Vec::new());
            match frame.kind() {
                "stop" => return,
                "load" => {
                    if self.rank == 0 {
                        let n = self.length(&part);
                        let mut bytes = Vec::new();
                        while bytes.len() < 4 * n {
                            bytes.extend(frames.recv().unwrap().payload);
                        }
                        *self.part(&part) = floats(&bytes).unwrap();
                    }
                    if part != "weights" && part != "teacher" {
                        self.updates = ask["steps"].as_u64().unwrap();
                    }
                }
                "save" if self.rank == 0 => {
                    let bytes = bytes_of(self.part(&part));
                    self.say(json!({"type": "piece"}), bytes);
                }
                "forward" => {
                    let n =
                        (ask["rows"].as_u64().unwrap() * ask["seq_len"].as_u64().unwrap()) as usize;
                    let ids = &frame.payload[..4 * n];
                    let sum: u64 = ids.iter().map(|b| u64::from(*b)).sum();
                    // Dropped features: a function of the micro-step, in any generation.
                    let drawn = match ask["train"] == true {
                        true => ask["draws"].as_u64().unwrap() % 13,
                        false => 0,
                    };
                    let logp =
                        -4.0 + 6.4 * first() + (sum % 97) as f32 * 1e-3 + drawn as f32 * 1e-3;
                    let mut values = [vec![logp; n], vec![1.0; n], vec![0.0; n]].concat();
                    if ask["distill"].is_object() {
                        // Only what its weights say.
                        let there = self.teacher.iter().any(|x| *x != 0.0) || self.rank != 0;
                        assert!(there && !self.teacher.is_empty(), "the teacher came");
                        values.extend([vec![-logp; n], vec![2.0; n], vec![1.0; n]].concat());
                    }
                    payload = bytes_of(&values);
                    answer["seconds"] = json!(0.001);
                    if self.play == "slow" {
                        llmtui::base::clock::pause(Duration::from_millis(60));
                    }
                    if self.misbehave(ask["train"] == true) {
                        return;
                    }
                }
                "read" => {
                    let lengths = ask["pieces"].as_array().unwrap();
                    let mut ids = frame.payload.as_chunks::<4>().0.iter();
                    for piece in lengths {
                        let (text, new) = (
                            piece[0].as_u64().unwrap() as usize,
                            piece[1].as_u64().unwrap(),
                        );
                        assert!(text < ask["texts"].as_u64().unwrap() as usize);
                        // Taken from the front: `next_back` of a `take` would consume the ids after them.
                        let piece: Vec<&[u8; 4]> = ids.by_ref().take(new as usize).collect();
                        let last = u32::from_le_bytes(**piece.last().unwrap()) as usize;
                        // The next token depends on the last token and on the weights.
                        let mut logits = vec![0.0_f32; self.vocab_size];
                        logits[(last + 1) % self.vocab_size] = 2.0 + first();
                        payload.extend(bytes_of(&logits));
                    }
                    assert!(ids.next().is_none());
                }
                "reference" if self.play == "no reference" && self.rank + 1 == self.world => {
                    self.stream.shutdown(std::net::Shutdown::Both).unwrap();
                    return;
                }
                "norm" => {
                    answer["norm"] = json!(if self.play == "nan" && self.updates == 3 {
                        "nan"
                    } else {
                        "0.5"
                    })
                }
                "apply" => {
                    // As a rank with a GPU would report it, with made-up numbers.
                    answer["memory"] =
                        json!({"reserved_bytes": 1000 + self.rank, "rss_bytes": 2000 + self.rank});
                    self.updates += 1;
                    for x in self
                        .weights
                        .iter_mut()
                        .chain(self.moments.iter_mut().flatten())
                    {
                        *x += 1.0 / 64.0;
                    }
                }
                "teacher" => self.teacher = vec![0.0; n_params(&ask["model"])],
                "build" => {
                    self.vocab_size =
                        ask["model"]["shape"]["vocab_size"].as_u64().unwrap() as usize;
                    let n = n_params(&ask["model"]);
                    self.weights = vec![0.0; n];
                    self.moments = [vec![0.0; n], vec![0.0; n]];
                }
                _ => {}
            }
            if self.rank == 0 && !self.weights.is_empty() {
                hand_out(self.weights[0]);
            }
            self.say(answer, payload);
        }
    }

    fn part(&mut self, name: &str) -> &mut Vec<f32> {
        match name {
            "weights" | "trained" => &mut self.weights,
            "teacher" => &mut self.teacher,
            "exp_avg" => &mut self.moments[0],
            _ => &mut self.moments[1],
        }
    }

    fn length(&mut self, name: &str) -> usize {
        self.part(name).len()
    }

    /// The failure in the step after the fifth update, by rank 1; true if the rank is gone.
    fn misbehave(&mut self, training: bool) -> bool {
        if !training || self.rank + 1 != self.world || self.updates != 5 {
            return false;
        }
        match self.play.as_str() {
            "crash" => {
                eprintln!("Segmentation fault");
                self.stream.shutdown(std::net::Shutdown::Both).unwrap();
                true
            }
            "hang" => loop {
                // Heartbeats prove a live process, not progress.
                self.say(json!({"type": "beat", "phase": "forward"}), Vec::new());
                llmtui::base::clock::pause(Duration::from_millis(100));
            },
            "frozen" => loop {
                llmtui::base::clock::pause(Duration::from_millis(100));
            },
            "memory" => {
                self.say(json!({"type": "error", "class": "memory", "message": "OutOfMemoryError: CUDA out of memory. Tried 2 GiB"}), Vec::new());
                true
            }
            "bug" => {
                self.say(
                    json!({"type": "error", "class": "bug", "message": "KeyError: \u{1b}[31m'x'"}),
                    Vec::new(),
                );
                true
            }
            _ => false,
        }
    }
}
