//! Malicious programs in the sandbox: each is a script for /bin/sh, so that no machine skips it. Where the
//! kernel gives no namespaces, the tests of isolation print that and skip; the limits are tested everywhere.

#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use llmtui::sandbox::{End, Isolation, Job, Limits, Outcome, Sandbox, SandboxError};
use std::path::PathBuf;

fn sandbox(isolation: Isolation) -> Sandbox {
    Sandbox {
        program: PathBuf::from(env!("CARGO_BIN_EXE_llmtui")),
        isolation,
        limits: Limits {
            seconds: 30.0,
            ..Limits::default()
        },
    }
}

/// Full isolation, if this machine supports it.
fn isolated() -> Option<Sandbox> {
    let isolated = sandbox(Isolation::Walls);
    match isolated.check() {
        Ok(()) => Some(isolated),
        Err(SandboxError::Unavailable(why)) => {
            eprintln!("skipped: no isolation on this machine: {why}");
            None
        }
        Err(other) => panic!("{other}"),
    }
}

fn script(sandbox: &Sandbox, text: &str) -> Outcome {
    let job = Job {
        command: vec!["/bin/sh".into(), "main.sh".into()],
        files: vec![("main.sh".into(), text.into())],
    };
    sandbox.run(&job).unwrap()
}

fn exited(outcome: &Outcome, words: &str) {
    assert_eq!(outcome.end, End::Exited(0), "{outcome:?}");
    assert_eq!(outcome.stdout, words, "{outcome:?}");
}

#[test]
fn a_program_runs_to_its_end_with_its_output_and_status() {
    for isolation in [Some(sandbox(Isolation::Limits)), isolated()]
        .into_iter()
        .flatten()
    {
        exited(&script(&isolation, "echo one; echo two >&2"), "one\n");
        assert_eq!(script(&isolation, "echo two >&2; exit 3").stderr, "two\n");
        assert_eq!(script(&isolation, "exit 3").end, End::Exited(3));
        // It starts in its own folder, without this process's environment.
        let own = script(
            &isolation,
            "echo x > new; cat new; echo $CARGO_MANIFEST_DIR; echo $HOME | grep -c sandbox",
        );
        exited(&own, "x\n\n1\n");
    }
}

#[test]
fn a_missing_program_is_an_error_with_its_name() {
    let job = Job {
        command: vec!["no-such-program".into()],
        ..Job::default()
    };
    for isolation in [Some(sandbox(Isolation::Limits)), isolated()]
        .into_iter()
        .flatten()
    {
        let error = isolation.run(&job).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("no-such-program cannot be started"),
            "{error}"
        );
        let outside = Job {
            files: vec![("../x".into(), String::new())],
            ..job.clone()
        };
        assert!(isolation.run(&outside).is_err());
    }
    let mut gone = sandbox(Isolation::Limits);
    gone.program = PathBuf::from("/no/such/llmtui");
    assert!(matches!(gone.run(&job), Err(SandboxError::Broken(_))));
}

#[test]
fn an_endless_loop_ends_at_its_deadline() {
    for isolation in [Some(sandbox(Isolation::Limits)), isolated()]
        .into_iter()
        .flatten()
    {
        let mut short = isolation;
        short.limits.seconds = 0.5;
        assert_eq!(script(&short, "while :; do :; done").end, End::Late);
        assert_eq!(script(&short, "sleep 1000").end, End::Late);
    }
}

#[test]
fn excessive_output_ends_the_program_and_is_truncated() {
    for isolation in [Some(sandbox(Isolation::Limits)), isolated()]
        .into_iter()
        .flatten()
    {
        let flood = script(&isolation, "while :; do echo flood; done");
        assert_eq!(flood.end, End::Flooded);
        assert_eq!(flood.stdout.len() as u64, isolation.limits.output);
    }
}

#[test]
fn memory_and_files_are_limited() {
    for isolation in [Some(sandbox(Isolation::Limits)), isolated()]
        .into_iter()
        .flatten()
    {
        let mut small = isolation;
        small.limits.memory = 64 << 20;
        small.limits.files = 1 << 20;
        // A variable that doubles: 2^40 bytes if not stopped.
        let hoard = script(
            &small,
            "x=x; i=0; while [ $i -lt 40 ]; do x=$x$x; i=$((i+1)); done; echo all",
        );
        assert_ne!(hoard.stdout, "all\n", "{:?}", hoard.end);
        assert!(
            matches!(hoard.end, End::Exited(1..) | End::Signalled(_)),
            "{hoard:?}"
        );
        let fill = script(&small, "head -c 4194304 /dev/zero > big; wc -c < big");
        let size: u64 = fill.stdout.trim().parse().unwrap_or(0);
        assert!(size <= 1 << 20, "{fill:?}");
    }
}

/// All descendants must end with the program, including those that left its group and its session.
#[test]
fn no_descendant_outlives_the_program() {
    let Some(isolated) = isolated() else { return };
    // A unique duration, to find the process by.
    let odd = 70_000 + std::process::id() % 10_000;
    let outcome = script(
        &isolated,
        &format!(
            "i=0; while [ $i -lt 12 ]; do (setsid sleep {odd} >/dev/null 2>&1 &) ; i=$((i+1)); done; echo started"
        ),
    );
    exited(&outcome, "started\n");
    let sleeps = || {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let mut lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        lines.any(|line| String::from_utf8_lossy(&line).contains(&format!("sleep\0{odd}")))
    };
    while sleeps() {
        std::thread::yield_now();
    }
}

/// It sees no processes, no network and no services, and can write only to its folder.
#[test]
fn isolation_hides_the_machine() {
    let Some(isolated) = isolated() else { return };
    let outside = tempfile::tempdir().unwrap();
    let place = outside.path().display();
    std::fs::write(outside.path().join("kept"), "kept").unwrap();
    let outcome = script(
        &isolated,
        &format!(
            "echo x > {place}/new && echo wrote
             echo x > {place}/kept && echo changed
             rm -f {place}/kept && echo deleted
             mkdir {place}/folder && echo made
             echo x > /etc/llmtui-was-here && echo wrote
             echo x > /dev/shm/llmtui-was-here && echo wrote
             chmod 777 {place} && echo opened
             exit 0"
        ),
    );
    exited(&outcome, "");
    let names = std::fs::read_dir(outside.path()).unwrap().count();
    let kept = std::fs::read_to_string(outside.path().join("kept")).unwrap();
    assert_eq!((names, kept.as_str()), (1, "kept"));

    let interfaces = script(
        &isolated,
        "tail -n +3 /proc/net/dev 2>/dev/null | grep -vc ' lo:'; exit 0",
    );
    exited(&interfaces, "0\n");
    let others = script(
        &isolated,
        &format!("kill -0 {} && echo seen; exit 0", std::process::id()),
    );
    exited(&others, "");
    let devices = script(
        &isolated,
        "for d in /dev/*; do [ -b $d ] && echo $d; done; echo fine > /dev/null; exit 0",
    );
    exited(&devices, "");
    let privileges = script(
        &isolated,
        "mount -t tmpfs none /mnt 2>/dev/null && echo mounted
         mount -o remount,rw / 2>/dev/null && echo writable
         echo 1 > /proc/sys/kernel/panic 2>/dev/null && echo set
         exit 0",
    );
    exited(&privileges, "");
}

/// Python, if installed: the language of answers' tests.
#[test]
fn python_runs_in_isolation() {
    let Some(isolated) = isolated() else { return };
    let Some(python) = llmtui::sandbox::find("python3") else {
        eprintln!("skipped: there is no python3 in PATH");
        return;
    };
    let python = |text: &str| {
        let job = Job {
            command: vec![python.display().to_string(), "-I".into(), "main.py".into()],
            files: vec![("main.py".into(), text.into())],
        };
        isolated.run(&job).unwrap()
    };
    exited(&python("print(sum(range(10)))"), "45\n");
    let network = python(
        "import socket\ntry:\n    socket.create_connection(('1.1.1.1', 53), 2)\n    print('reached')\nexcept OSError:\n    print('alone')",
    );
    exited(&network, "alone\n");
    // A service of this user on a socket path, as tmux has: a read-only file system alone would permit connections.
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("service");
    let service = std::os::unix::net::UnixListener::bind(&place).unwrap();
    service.set_nonblocking(true).unwrap();
    let local = python(&format!(
        "import socket\ntry:\n    socket.socket(socket.AF_UNIX).connect({place:?})\n    print('reached')\nexcept OSError:\n    print('alone')"
    ));
    exited(&local, "alone\n");
    assert!(service.accept().is_err());
    let memory = python("x = bytearray(4 << 30)\nprint('all')");
    assert!(memory.stderr.contains("MemoryError"), "{memory:?}");
    let bomb = python(
        "import os\nfor i in range(200):\n    try:\n        if os.fork() == 0:\n            os.setsid()\n            import time\n            time.sleep(1000)\n    except OSError:\n        break\nprint('done', flush=True)",
    );
    assert!(bomb.stdout.contains("done"), "{bomb:?}");
}
