//! Generations of ranks: their machines, and how they are started.

use super::Remote;
use super::twin::{Place, Twin};
use crate::base::clock::Clock;
use crate::base::paths::Env;
use crate::engine::EngineJob;
use crate::engine::update::At;
use crate::nn::Model;
use crate::wire::Values;
use crate::workers::node::{self, Ask, Bridge, Machine, NodeRequest};
use crate::workers::{
    Environment, FailureKind, Frame, Launch, Limits, NodeLaunch, Rendezvous, WorkerDirs,
    WorkerFailure, WorkerGroup, environment, torch, unpack,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Reading PyTorch, waking devices, compiling.
const START: Duration = Duration::from_secs(15 * 60);
/// A rank beats every second; one that is silent for so long is stopped.
const SILENCE: Duration = Duration::from_secs(30);

/// A machine that has answered.
enum Reached {
    Here(Environment),
    There(Box<node::NodeInfo>, Bridge),
}

impl Reached {
    fn environment(&self) -> &environment::PythonInfo {
        match self {
            Reached::Here(own) => &own.about,
            Reached::There(about, _) => &about.environment,
        }
    }

    fn about(&self) -> Option<node::NodeInfo> {
        match self {
            Reached::Here(_) => None,
            Reached::There(about, _) => Some((**about).clone()),
        }
    }
}

fn fault(what: impl Into<String>) -> WorkerFailure {
    WorkerFailure {
        kind: FailureKind::Start,
        rank: None,
        what: what.into(),
    }
}

impl Remote {
    /// Finds a Python for the run on every machine and starts the first generation; `None` where the run computes here.
    ///
    /// # Errors
    /// There is no Python with PyTorch, or the ranks do not connect.
    pub fn begin(
        job: &EngineJob,
        (model, critic): (&Model, Option<&Model>),
        clock: &Arc<dyn Clock>,
        broken_off: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Remote>, WorkerFailure> {
        let Some(settings) = job.spec.engine.torch() else {
            return Ok(None);
        };
        if !model.params().is_present() {
            return Err(fault(
                "engine: torch cannot train adapters on a quantized base: set train.dequantize=true, engine: candle, or use the unquantized base",
            ));
        }
        let machines = node::machines(settings, &job.env).map_err(fault)?;
        let logs = job.run_dir.path().join("torch");
        let generation = std::fs::read_dir(&logs).map_or(0, |entries| entries.count() as u64);
        let mut env = job.env.clone();
        // Without a cache the worker's files lie beside the run.
        env.cache_dir.get_or_insert_with(|| logs.clone());
        let place = WorkerDirs {
            runtime: env.runtime_dir.clone(),
            logs: logs.join(format!("gen-{}", generation + 1)),
        };
        let reached = reach(settings, &machines, &env, &place.logs, clock, broken_off)?;
        let each = ranks_of_each(settings, &machines, &reached)?;
        let first = reached[0].environment();
        let device = settings.device(first.gpus);
        let ranks = each * reached.len();
        let at = Place {
            device,
            each,
            ranks,
        };
        let mut remote = Remote {
            model: Twin::policy(&job.spec, model, settings, at),
            critic: critic.map(|critic| Twin::critic(&job.spec, critic, settings, at)),
            torch: first.torch.clone(),
            settings: settings.clone(),
            clock: clock.clone(),
            env,
            place: WorkerDirs { logs, ..place },
            run: job.run_dir.id().into(),
            machines,
            ranks,
            workers: None,
            generation,
            lost: None,
            of: 1,
            micro: 0,
            at: At::default(),
            forward: vec![0.0; ranks],
            memory: Values::new(),
            memory_news: Values::new(),
            usual: Vec::new(),
            varied: false,
            not_compiled: None,
            teacher: None,
            taught: false,
        };
        remote.generation += 1;
        remote.start(reached, broken_off)?;
        Ok(Some(remote))
    }

    /// Starts a new generation with its own rendezvous. It gets the engine's weights at the first request. Without an answer of
    /// every machine it has not begun, and the next attempt has its number.
    ///
    /// # Errors
    /// A machine does not answer; the ranks do not come.
    pub fn restart(&mut self, broken_off: &mut dyn FnMut() -> bool) -> Result<(), WorkerFailure> {
        self.workers = None;
        self.lost = None;
        self.copy_changed();
        let (settings, machines) = (&self.settings, &self.machines);
        let logs = self.logs_of(self.generation + 1);
        let reached = reach(
            settings,
            machines,
            &self.env,
            &logs,
            &self.clock,
            broken_off,
        )?;
        let each = ranks_of_each(settings, machines, &reached)?;
        if each * reached.len() != self.ranks {
            return Err(fault(format!(
                "the machines now have GPUs for {} ranks, but the run started with {}: resume it with -s engine.torch.ranks={}",
                each * reached.len(),
                self.ranks,
                each * reached.len()
            )));
        }
        self.generation += 1;
        self.start(reached, broken_off)
    }

    /// Where a generation's logs go.
    fn logs_of(&self, generation: u64) -> PathBuf {
        self.place.logs.join(format!("gen-{generation}"))
    }

    fn start(
        &mut self,
        reached: Vec<Reached>,
        broken_off: &mut dyn FnMut() -> bool,
    ) -> Result<(), WorkerFailure> {
        let id = format!("{}-g{}", self.run, self.generation);
        let each = self.ranks / reached.len();
        let node_launches = self.node_launches(reached, each, &id)?;
        let place = WorkerDirs {
            logs: self.logs_of(self.generation),
            ..self.place.clone()
        };
        let patience = Duration::from_secs_f64(self.settings.patience);
        let limits = Limits {
            start: START,
            answer: patience,
            silence: SILENCE.min(patience),
        };
        let clock = self.clock.clone();
        let mut workers =
            WorkerGroup::start(node_launches, each, &id, &place, limits, clock, broken_off)?;
        let why = |header: &serde_json::Value| header["not_compiled"].as_str().map(String::from);
        for twin in std::iter::once(&self.model).chain(&self.critic) {
            let mut ask = twin.build.clone();
            ask["port"] = workers.about(0)["port"].clone();
            workers.send_each(|_| Frame::new(ask.clone()))?;
            let answers = workers.answers(Some(START), broken_off, &mut |_| {})?;
            self.not_compiled = answers.iter().find_map(|answer| why(&answer.frame.header));
        }
        self.workers = Some(workers);
        self.taught = false;
        Ok(())
    }

    /// What every machine starts.
    fn node_launches(
        &self,
        reached: Vec<Reached>,
        each: usize,
        id: &str,
    ) -> Result<Vec<NodeLaunch>, WorkerFailure> {
        let abouts: Vec<_> = reached.iter().map(Reached::about).collect();
        let address = match self.machines.is_empty() {
            true => None,
            false => Some(node::address(&self.settings, &self.machines, &abouts).map_err(fault)?),
        };
        let cache = self.env.cache_dir.as_deref().unwrap_or(Path::new("."));
        let node_launch = |(node, reached): (usize, Reached)| {
            let alone = Rendezvous::loopback(self.ranks);
            let meeting = match &address {
                None => alone,
                Some(address) => Rendezvous {
                    interface: node::interface(address, &self.env),
                    address: address.clone(),
                    first: node * each,
                    ..alone
                },
            };
            Ok(match reached {
                Reached::Here(own) => NodeLaunch::Local(Launch {
                    python: own.python,
                    package: unpack(cache)
                        .map_err(|e| fault(format!("{}: {e}", cache.display())))?,
                    ranks: each,
                    id: id.into(),
                    logs: PathBuf::new(),
                    socket: PathBuf::new(),
                    meeting,
                }),
                Reached::There(_, bridge) => {
                    NodeLaunch::Remote(bridge.with_orders(NodeRequest::Launch {
                        ranks: each,
                        id: id.into(),
                        meeting,
                    }))
                }
            })
        };
        reached.into_iter().enumerate().map(node_launch).collect()
    }
}

/// Calls every machine, all at once, and asks this one, where it has ranks.
fn reach(
    settings: &torch::Config,
    machines: &[Machine],
    env: &Env,
    logs: &Path,
    clock: &Arc<dyn Clock>,
    broken_off: &mut dyn FnMut() -> bool,
) -> Result<Vec<Reached>, WorkerFailure> {
    let here = || {
        let found = environment::python(settings, env).and_then(|python| Environment::ask(&python));
        found.map_err(|e| fault(format!("engine.torch: {e}")))
    };
    if machines.is_empty() {
        return Ok(vec![Reached::Here(here()?)]);
    }
    let own = std::env::current_exe().map_err(|e| fault(format!("this program's path: {e}")))?;
    std::fs::create_dir_all(logs).map_err(|e| fault(format!("{}: {e}", logs.display())))?;
    let ask = Ask::of(Some(settings));
    let mut called = Vec::new();
    for (node, machine) in machines.iter().enumerate() {
        let errors = logs.join(format!("node-{node}.log"));
        called.push(match machine.line(settings, &own, env) {
            None => None,
            Some(line) => Some(Bridge::dial(
                machine.name(),
                &line,
                &ask,
                &errors,
                clock.clone(),
            )?),
        });
    }
    let answer = |bridge: Option<Bridge>| match bridge {
        None => Ok(Reached::Here(here()?)),
        Some(mut bridge) => {
            let about = bridge.about(START, broken_off)?;
            Ok(Reached::There(Box::new(about), bridge))
        }
    };
    called.into_iter().map(answer).collect()
}

/// How many ranks every machine has: its GPUs, or as the spec shares them out.
fn ranks_of_each(
    settings: &torch::Config,
    machines: &[Machine],
    reached: &[Reached],
) -> Result<usize, WorkerFailure> {
    let count = reached.len();
    let name = |node: usize| machines.get(node).map_or("this machine", Machine::name);
    let gpus: Vec<usize> = reached.iter().map(|it| it.environment().gpus).collect();
    let device = settings.device(gpus[0]);
    if let Some(node) = (0..count).find(|node| device == "cuda" && gpus[*node] == 0) {
        return Err(fault(format!(
            "engine.torch.device: the PyTorch of {} sees no GPU; set it to cpu or auto",
            name(node)
        )));
    }
    let each = match settings.ranks {
        None if device == "cuda" => {
            if let Some(node) = (0..count).find(|node| gpus[*node] != gpus[0]) {
                return Err(fault(format!(
                    "{} has {} GPUs and {} has {}: set engine.torch.ranks, split evenly over the machines",
                    name(0),
                    gpus[0],
                    name(node),
                    gpus[node]
                )));
            }
            gpus[0]
        }
        None => 1,
        Some(ranks) if ranks % count != 0 => {
            return Err(fault(format!(
                "engine.torch.ranks {ranks} cannot be split evenly over {count} machines"
            )));
        }
        Some(ranks) => ranks / count,
    };
    match (0..count).find(|node| device == "cuda" && gpus[*node] < each) {
        None => Ok(each),
        Some(node) if machines.is_empty() => Err(fault(format!(
            "engine.torch.ranks is {each}, but there are {} GPUs",
            gpus[node]
        ))),
        Some(node) => Err(fault(format!(
            "engine.torch.ranks needs {each} GPUs on {}, which has {}",
            name(node),
            gpus[node]
        ))),
    }
}
