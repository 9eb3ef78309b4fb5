//! Ranks on several machines: "machines" behind a fake `ssh` or `srun`, which run the command here with another home.

use super::{Bench, ending, text, warnings};
use llmtui::base::clock::pause;
use llmtui::run::RunState;
use llmtui::wire::Outcome;
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// No wait here takes longer, however busy the machine is.
const TIMEOUT: Duration = Duration::from_secs(300);

/// `down` refuses, `mute` has no program, `fragile` is lost once, after the run has saved, and `rebooting` refuses two calls
/// after that.
const SSH: &str = r#"#!/bin/sh
while [ "$1" != -- ]; do shift; done
host=$2
shift 2
mkdir -p "$FAKE_ROOT/$host"
cd "$FAKE_ROOT/$host" || exit 1
export HOME=$PWD XDG_RUNTIME_DIR=$PWD SSH_CONNECTION='127.0.0.1 50000 127.0.0.1 22'
case $host in
    down) echo "ssh: connect to host $host port 22: Connection refused" >&2; exit 255 ;;
    mute) echo 'bash: llmtui: command not found' >&2; exit 127 ;;
    rude) echo 'Last login: yesterday'; echo 'This account is not available.'; exit 1 ;;
    fragile|rebooting) if [ ! -e lost ]; then
            touch lost calls
            exec 3<&0
            sh -c "exec $*" <&3 &
            while ! ls "$FAKE_ROOT"/runs/*/checkpoints/step-*; do sleep 0.1; done > /dev/null 2>&1
            kill -9 $!
            exit 255
        elif [ $host = rebooting ] && [ "$(wc -l < calls)" -lt 2 ]; then
            echo call >> calls
            echo "ssh: connect to host $host port 22: No route to host" >&2
            exit 255
        fi ;;
esac
echo "Welcome to $host"
exec sh -c "$*"
"#;

/// Every step has the `SSH_CONNECTION` of the shell that submitted the job.
const SRUN: &str = r#"#!/bin/sh
for word; do
    case $word in
        --nodelist=*) host=${word#--nodelist=} ;;
        -*) ;;
        *) break ;;
    esac
    shift
done
mkdir -p "$FAKE_ROOT/$host"
cd "$FAKE_ROOT/$host" || exit 1
export HOME=$PWD XDG_RUNTIME_DIR=$PWD SSH_CONNECTION='203.0.113.7 50000 203.0.113.8 22'
echo "$host $*" >> "$FAKE_ROOT/steps"
echo $$ > pid
exec "$@"
"#;

const SCONTROL: &str = r#"#!/bin/sh
case $3 in
    'n[1-2]') printf 'n1\nn2\n' ;;
    here,n2) uname -n; echo n2 ;;
    *) exit 1 ;;
esac
"#;

/// Some steps take a while, so that a machine is lost in the middle.
const LONG: &[&str] = &["-s", "max_steps=40", "-s", "checkpoint.every=5"];

impl Bench {
    /// Installs the fake programs that reach the machines.
    fn machines(&self) {
        let bin = self.path("bin");
        std::fs::create_dir_all(&bin).unwrap();
        for (name, script) in [("ssh", SSH), ("srun", SRUN), ("scontrol", SCONTROL)] {
            let path = bin.join(name);
            std::fs::write(&path, script).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    fn with_machines(&self, args: &[&str], more: &[(&str, &str)]) -> Output {
        self.command(args, more).output().unwrap()
    }

    /// This program where those machines are.
    fn command(&self, args: &[&str], more: &[(&str, &str)]) -> Command {
        self.machines();
        let path = format!("{}:/usr/bin:/bin", self.path("bin").display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_llmtui"));
        command
            .args(args)
            .current_dir(self.dir.path())
            .env_clear()
            .env("HOME", self.dir.path())
            .env("XDG_RUNTIME_DIR", self.dir.path())
            .env("PATH", path)
            .env("FAKE_ROOT", self.dir.path())
            .envs(more.iter().copied())
            .stdin(Stdio::null());
        command
    }

    /// `tiny` on PyTorch ranks, wherever `more` places them.
    fn train_there(&self, more: &[&str], env: &[(&str, &str)]) -> Output {
        self.training_there(more, env).output().unwrap()
    }

    fn training_there(&self, more: &[&str], env: &[(&str, &str)]) -> Command {
        let python = format!("engine.torch.python={}", self.path("venv").display());
        let program = format!("engine.torch.program={}", env!("CARGO_BIN_EXE_llmtui"));
        let own = [
            "train",
            "tiny.yaml",
            "--headless",
            "-s",
            "engine=torch",
            "-s",
            &python,
            "-s",
            &program,
        ];
        self.command(&[&own[..], more].concat(), env)
    }

    /// Waits until the only run has a checkpoint of this step or a later one.
    fn wait_for_checkpoint(&self, step: u64) {
        let begun = Instant::now();
        let saved = || {
            let runs = std::fs::read_dir(self.path("runs")).ok()?;
            let newest = |run: PathBuf| {
                let all = std::fs::read_dir(run.join("checkpoints")).ok()?;
                let names = all
                    .flatten()
                    .map(|e| text(e.file_name().as_encoded_bytes()));
                names
                    .filter_map(|n| n.strip_prefix("step-")?.parse::<u64>().ok())
                    .max()
            };
            runs.flatten().filter_map(|run| newest(run.path())).max()
        };
        while saved().is_none_or(|newest| newest < step) {
            assert!(begun.elapsed() < TIMEOUT, "no checkpoint of step {step}");
            pause(Duration::from_millis(50));
        }
    }
}

/// The losses of two ranks on this machine.
fn quiet(more: &[&str]) -> Vec<(u64, f64)> {
    let bench = Bench::new(&["well"]);
    let out = bench.train(more);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    bench.losses()
}

#[test]
fn ranks_on_two_machines_train_like_two_on_one_and_their_logs_are_copied() {
    let bench = Bench::new(&["well"]);
    let out = bench.train_there(&["--nodes", "alpha,beta"], &[]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let events = bench.events();
    let state = RunState::from_events(&events);
    assert_eq!((state.step, state.word()), (8, "finished"));
    let printed: Vec<&str> = state.log.iter().map(|line| line.text.as_str()).collect();
    let phrase = "PyTorch 2.15.0: 2 processes (ddp) on 2 machines (alpha, beta) on cpu";
    assert!(
        printed.iter().any(|line| line.contains(phrase)),
        "{printed:?}"
    );
    assert_eq!(bench.losses(), quiet(&[]));
    for node in ["node-0", "node-1"] {
        let log = bench
            .run()
            .join("torch/gen-1")
            .join(node)
            .join("launcher.log");
        let log = std::fs::read_to_string(&log).unwrap();
        assert!(log.contains("running 1 test"), "{node}: {log}");
    }
    bench.assert_no_processes_left();
}

#[test]
fn this_machine_may_be_among_the_nodes() {
    let bench = Bench::new(&["well"]);
    let out = bench.train_there(
        &["--nodes", "localhost,beta", "-s", "engine.torch.ranks=4"],
        &[],
    );
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let state = RunState::from_events(&bench.events());
    assert_eq!((state.step, state.word()), (8, "finished"));
    assert!(state.metric("rank/3/forward_ms").is_some());
    bench.assert_no_processes_left();
}

#[test]
fn a_lost_rank_or_machine_is_named_and_the_run_continues() {
    for (plays, nodes, settings, phrase) in [
        (["crash", "well"], "alpha,beta", &[][..], "on beta"),
        (
            ["hang", "well"],
            "alpha,beta",
            &[][..],
            "rank 1 did not answer",
        ),
        (["slow", "well"], "alpha,fragile", LONG, "rank 1"),
    ] {
        let bench = Bench::new(&plays);
        let patience = ["--nodes", nodes, "-s", "engine.torch.patience=2"];
        let out = bench.train_there(&[&patience[..], settings].concat(), &[]);
        assert_eq!(
            out.status.code(),
            Some(0),
            "{plays:?} {nodes}: {}",
            text(&out.stderr)
        );
        let warned = warnings(&bench.events());
        assert!(
            warned
                .iter()
                .any(|w| w.starts_with("ranks_lost") && w.contains(phrase)),
            "{plays:?} {nodes}: {warned:?}"
        );
        assert_eq!(bench.losses(), quiet(settings), "{plays:?} {nodes}");
        bench.assert_no_processes_left();
    }
}

/// Two calls within seconds were all that it got.
#[test]
fn a_machine_that_reboots_is_waited_for() {
    let bench = Bench::new(&["slow", "well"]);
    let settings = [
        "--nodes",
        "alpha,rebooting",
        "-s",
        "engine.torch.patience=2",
    ];
    let out = bench.train_there(&[&settings[..], LONG].concat(), &[]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let warned = warnings(&bench.events());
    let told = |code: &str, phrase: &str| {
        let mut warned = warned.iter();
        warned.any(|w| w.starts_with(code) && w.contains(phrase))
    };
    assert!(told("ranks_lost", "rank 1"), "{warned:?}");
    assert!(
        told("machine_unreachable", "rebooting: ssh: connect to host"),
        "{warned:?}"
    );
    assert_eq!(bench.losses(), quiet(LONG));
    // Calls without an answer have no generation of their own.
    let generations = std::fs::read_dir(bench.run().join("torch")).unwrap();
    assert_eq!(generations.count(), 2);
    bench.assert_no_processes_left();
}

#[test]
fn unreachable_machines_are_reported_with_the_output_of_ssh() {
    for (nodes, phrases) in [
        (
            "alpha,down",
            ["down: ssh: connect to host down", "engine check --nodes"],
        ),
        ("mute", ["mute: bash: llmtui: command not found", "PATH"]),
        ("rude", ["not available", "rude"]),
    ] {
        let bench = Bench::new(&["well"]);
        let out = bench.train_there(&["--nodes", nodes], &[]);
        assert_eq!(out.status.code(), Some(3), "{nodes}: {}", text(&out.stderr));
        let (found, message) = ending(&bench.events());
        assert_eq!(found, Outcome::Starved, "{nodes}: {message}");
        for phrase in phrases {
            assert!(message.contains(phrase), "{nodes}: {phrase}: {message}");
        }
        bench.assert_no_processes_left();
    }
}

#[test]
fn a_public_rendezvous_address_is_rejected() {
    let bench = Bench::new(&["well"]);
    let settings = [
        "--nodes",
        "alpha,beta",
        "-s",
        "engine.torch.address=8.8.8.8",
    ];
    let out = bench.train_there(&settings, &[]);
    let (found, message) = ending(&bench.events());
    assert_eq!(found, Outcome::Starved, "{}", text(&out.stderr));
    assert!(message.contains("public Internet"), "{message}");
    bench.assert_no_processes_left();
}

#[test]
fn a_slurm_job_has_ranks_on_its_nodes() {
    let bench = Bench::new(&["well"]);
    let job = [
        ("SLURM_JOB_NODELIST", "n[1-2]"),
        ("SLURM_CPUS_PER_TASK", "3"),
    ];
    let out = bench.train_there(&["-s", "engine.torch.launcher=srun"], &job);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!(bench.losses(), quiet(&[]));
    let steps = std::fs::read_to_string(bench.path("steps")).unwrap();
    let mut steps: Vec<&str> = steps.lines().collect();
    steps.sort();
    assert!(
        steps.len() == 2 && steps[0].starts_with("n1 /") && steps[1].ends_with(" engine node"),
        "{steps:?}"
    );
    bench.assert_no_processes_left();
}

/// The batch step is on the first node, as SLURM places it.
#[test]
fn a_slurm_job_has_this_machine_as_its_first_node() {
    let bench = Bench::new(&["well"]);
    let job = [("SLURM_JOB_NODELIST", "here,n2")];
    let out = bench.train_there(&["-s", "engine.torch.launcher=srun"], &job);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!(bench.losses(), quiet(&[]));
    let steps = std::fs::read_to_string(bench.path("steps")).unwrap();
    assert!(
        steps.lines().count() == 1 && steps.starts_with("n2 /"),
        "{steps}"
    );
    bench.assert_no_processes_left();
}

/// SLURM signals the steps of a job that it cancels, too: their ranks were gone before the checkpoint was saved.
#[test]
fn a_cancelled_slurm_job_saves_what_its_ranks_have_trained() {
    let bench = Bench::new(&["slow"]);
    let settings = [
        "-s",
        "engine.torch.launcher=srun",
        "-s",
        "max_steps=4000",
        "-s",
        "checkpoint.every=5",
    ];
    let mut train = bench
        .training_there(&settings, &[("SLURM_JOB_NODELIST", "n[1-2]")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let terminate = |pid: u32| {
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
    };
    bench.wait_for_checkpoint(5);
    for node in ["n1", "n2"] {
        let pid = std::fs::read_to_string(bench.path(node).join("pid")).unwrap();
        terminate(pid.trim().parse().unwrap());
    }
    // They train on.
    bench.wait_for_checkpoint(15);
    terminate(train.id());
    assert_eq!(train.wait().unwrap().code(), Some(0));
    let events = bench.events();
    let warned = warnings(&events);
    let lost = warned.iter().find(|w| w.starts_with("ranks_lost"));
    assert_eq!(lost, None);
    assert_eq!(ending(&events).0, Outcome::Stopped);
    let step = RunState::from_events(&events).step;
    let folder = llmtui::run::checkpoints::path_in_run(step);
    let last = format!("{folder}/manifest.json");
    assert!(bench.run().join(&last).exists(), "{last}");
    bench.assert_no_processes_left();
}

#[test]
fn slurm_nodes_are_available_only_inside_its_jobs() {
    let bench = Bench::new(&["well"]);
    let out = bench.train_there(&["-s", "engine.torch.launcher=srun"], &[]);
    assert_eq!(out.status.code(), Some(3));
    let (_, message) = ending(&bench.events());
    assert!(message.contains("SLURM_JOB_NODELIST"), "{message}");
}

#[test]
fn a_run_continues_on_another_number_of_machines() {
    let bench = Bench::new(&["well", "well"]);
    let out = bench.train_there(&["--nodes", "alpha,beta", "--stop-after", "4"], &[]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let run = bench.run();
    let more = [
        "train",
        "--resume",
        run.to_str().unwrap(),
        "--headless",
        "--nodes",
        "alpha,beta,gamma",
    ];
    let out = bench.with_machines(&more, &[]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(
        text(&out.stderr).contains("continues from step 4 with engine.torch.nodes="),
        "{}",
        text(&out.stderr)
    );
    let state = RunState::from_events(&bench.events());
    assert_eq!((state.step, state.word()), (8, "finished"));
    let spec = std::fs::read_to_string(run.join("spec.yaml")).unwrap();
    assert!(spec.contains("gamma"), "{spec}");
    assert!(state.metric("rank/2/forward_ms").is_some());
    bench.assert_no_processes_left();
}

#[test]
fn machines_are_checked_like_in_the_doctor() {
    let bench = Bench::new(&[]);
    let python = bench.path("venv").display().to_string();
    let check = |nodes: &str| {
        let words = [
            "engine",
            "check",
            "--nodes",
            nodes,
            "--python",
            &python,
            "--program",
            env!("CARGO_BIN_EXE_llmtui"),
        ];
        let out = bench.with_machines(&words, &[]);
        (out.status.code(), text(&out.stdout) + &text(&out.stderr))
    };
    let (code, printed) = check("alpha,beta");
    assert_eq!(code, Some(0), "{printed}");
    assert!(
        printed.matches("PyTorch 2.15.0").count() == 2 && printed.contains("127.0.0.1, the first"),
        "{printed}"
    );
    let (code, printed) = check("alpha,down");
    assert_eq!(code, Some(3), "{printed}");
    assert!(printed.contains("Connection refused"), "{printed}");
    let (code, printed) = check("-oProxyCommand=x");
    assert_eq!(code, Some(2), "{printed}");
}

/// Real PyTorch ranks with a rendezvous address, and not only on the loopback like those of one machine: the losses equal those
/// of this program's own engine, both replicated and sharded; and bit-exactly those of an undisturbed run if a machine is lost.
#[test]
#[ignore = "needs PyTorch: LLMTUI_TORCH_PYTHON"]
fn real_ranks_of_two_machines_give_the_same_losses() {
    let python = format!("engine.torch.python={}", super::real::real());
    let program = format!("engine.torch.program={}", env!("CARGO_BIN_EXE_llmtui"));
    let run = |more: &[&str]| {
        let bench = Bench::new(&[]);
        let own = ["train", "tiny.yaml", "--headless", "-s", "max_steps=30"];
        let out = bench.with_machines(&[&own[..], more].concat(), &[]);
        assert_eq!(
            out.status.code(),
            Some(0),
            "{more:?}: {}",
            text(&out.stderr)
        );
        (bench.losses(), warnings(&bench.events()))
    };
    let (here, _) = run(&[]);
    let there = |nodes: &str, more: &[&str]| {
        let own = [
            "-s",
            "engine=torch",
            "-s",
            &python,
            "-s",
            &program,
            "--nodes",
            nodes,
        ];
        run(&[&own[..], more].concat())
    };
    let eight = ["-s", "optimizer=adamw8bit"];
    let (eight_here, _) = run(&eight);
    let (eight_there, _) = there("alpha,beta", &eight);
    let apart = eight_here
        .iter()
        .zip(&eight_there)
        .map(|(a, b)| (a.1 - b.1).abs());
    let apart = apart.fold(0.0, f64::max);
    println!("adamw8bit: max |dloss| {apart:.2e}");
    // A code that is rounded to the other side changes by a whole step.
    assert!(
        eight_here.len() == 30 && apart < 1e-4,
        "{eight_here:?} {eight_there:?}"
    );
    let alone = there("localhost", &["-s", "engine.torch.ranks=1"]).0;
    for (settings, nodes, ranks) in [
        ("shard=ddp", "alpha,beta", 2),
        ("shard=ddp", "localhost,beta", 4),
        ("shard=fsdp2", "alpha,beta", 2),
        ("shard=fsdp2", "localhost,beta", 4),
        ("shard=fsdp2 offload=true", "alpha,beta", 2),
        ("shard=fsdp2 offload=true", "localhost", 1),
    ] {
        let mut words = vec!["-s".to_string(), format!("engine.torch.ranks={ranks}")];
        for word in settings.split(' ') {
            words.extend(["-s".into(), format!("engine.torch.{word}")]);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (losses, _) = there(nodes, &words);
        let apart = here.iter().zip(&losses).map(|(a, b)| (a.1 - b.1).abs());
        let apart = apart.fold(0.0, f64::max);
        println!(
            "{nodes}, {ranks} ranks, {settings}: {} steps, max |dloss| {apart:.2e}",
            losses.len()
        );
        assert!(
            losses.len() == 30 && apart < 1e-5,
            "{nodes} {settings}: {here:?} {losses:?}"
        );
        // A single rank holds and computes the same, wherever its weights are.
        assert!(ranks > 1 || losses == alone, "{losses:?} {alone:?}");
    }
    let long = ["-s", "max_steps=400", "-s", "checkpoint.every=20"];
    let (whole, _) = there("alpha,beta", &long);
    let (broken, warned) = there("alpha,fragile", &long);
    println!("{warned:?}");
    assert!(
        warned.iter().any(|w| w.starts_with("ranks_lost")),
        "{warned:?}"
    );
    assert_eq!(whole.len(), 400);
    assert_eq!(whole, broken);
}
