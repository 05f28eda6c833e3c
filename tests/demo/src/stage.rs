//! Starts servers and workers, makes the faults, listens to the workers and judges.

use std::env;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use harness::{Program, Server};
use history::Kind;

use crate::clock::now_ns;
use crate::counter::Counter;
use crate::faults::{Fault, plan};
use crate::line::Line;
use crate::report::{Fight, Worker};
use crate::worker::Face;

const NODES: usize = 5;
/// How often the state of the fight is shown: overwritten on a terminal, a line each otherwise.
const TICK_TERMINAL: Duration = Duration::from_millis(500);
const TICK_PLAIN: Duration = Duration::from_secs(2);
/// How long after the end the last worker may still be busy: its own timeout and some.
const GRACE: Duration = Duration::from_secs(15);

/// Runs the whole demo; `true` if every promise held.
pub(crate) fn run(workers: u64, whole: Duration) -> bool {
    println!(
        "{workers} processes fight for one lock on {NODES} servers ({}) for {} s.\n",
        Program::default().path().file_name().unwrap_or_default().display(),
        whole.as_secs(),
    );
    let servers = harness::cluster(NODES);
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let file = dir.path().join("counter");
    Counter::default().write(&file).expect("a file can be written in our own directory");

    let (lines, heard) = channel();
    let start_ns = now_ns();
    let until_ns = start_ns + u64::try_from(whole.as_nanos()).expect("at most an hour");
    let mut children = Vec::new();
    let mut fight = Fight::new(start_ns, plan(whole));
    for i in 1..=workers {
        let face = if i % 2 == 1 { Face::Async } else { Face::Blocking };
        let (child, worker) = start(i, face, &file, until_ns, &servers, lines.clone());
        children.push(child);
        fight.workers.push(worker);
    }
    drop(lines);

    watch(&servers, &heard, whole, &mut fight);
    for child in &mut children {
        fight.crashed += u64::from(!ended_well(child));
    }
    fight.counter = Counter::read(&file);
    fight.report(&mut io::stdout().lock()).expect("the report can be written")
}

/// Starts one worker and a thread that passes its lines on.
fn start(i: u64, face: Face, file: &Path, until_ns: u64, servers: &[Server], lines: Sender<Line>) -> (Child, Worker) {
    let name = i.to_string();
    let mut command = Command::new(env::current_exe().expect("a running program has a path"));
    command
        .args(["worker", "--name", &name, "--face", face.name(), "--until", &until_ns.to_string()])
        .args(["--file".as_ref(), file.as_os_str()])
        .args(servers.iter().map(Server::url))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = harness::spawn(command).expect("a program can start itself");
    let output = BufReader::new(child.stdout.take().expect("it is piped"));
    thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            let line = serde_json::from_str(&line).unwrap_or_else(|_| Line::Damage(format!("worker said: {line}")));
            if lines.send(line).is_err() {
                return;
            }
        }
    });
    let pid = child.id();
    (child, Worker { name, face, pid })
}

/// Makes the faults and listens until every worker has closed its output.
fn watch(servers: &[Server], heard: &Receiver<Line>, whole: Duration, fight: &mut Fight) {
    let terminal = io::stdout().is_terminal();
    let tick = if terminal { TICK_TERMINAL } else { TICK_PLAIN };
    let start = Instant::now();
    let mut faults: Vec<Fault> = fight.spans.iter().flat_map(|span| [span.from, span.to]).collect();
    faults.reverse();
    let mut next_tick = tick;
    let mut held = 0_u64;
    loop {
        let now = start.elapsed();
        if let Some(fault) = faults.pop_if(|fault| fault.at <= now) {
            fault.commit(servers);
            show(terminal, start.elapsed(), &fault.text(), true);
            continue;
        }
        if now >= next_tick {
            next_tick += tick;
            show(terminal, now, &format!("{held} acquisitions"), !terminal);
        }
        if now > whole + GRACE {
            fight.failed.push("a worker did not come to its end".to_owned());
            return;
        }
        let wake = faults.last().map_or(next_tick, |fault| fault.at.min(next_tick));
        match heard.recv_timeout(wake.saturating_sub(now)) {
            Ok(Line::Call(record)) => {
                held += u64::from(record.kind == Kind::Acquire && record.ok);
                fight.history.push(record);
            }
            Ok(Line::Failed(text)) => fight.failed.push(text),
            Ok(Line::Damage(text)) => fight.damage.push(text),
            Ok(Line::Increased) => fight.increased += 1,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    show(terminal, start.elapsed(), "all workers are done", true);
    println!();
}

/// One line of the fight; on a terminal the next one overwrites it unless it is to `stay`.
fn show(terminal: bool, at: Duration, text: &str, stay: bool) {
    let (before, after) = if terminal { ("\r\x1b[K", if stay { "\n" } else { "" }) } else { ("", "\n") };
    print!("{before}{:>6.1} s   {text}{after}", at.as_secs_f64());
    // A reader that has gone takes nothing away from the verdict.
    let _ = io::stdout().flush();
}

/// Whether the child ended by itself and with success; ends it otherwise.
fn ended_well(child: &mut Child) -> bool {
    // Its output is closed, or it had all the time there is.
    let end = Instant::now() + Duration::from_secs(1);
    loop {
        match child.try_wait().expect("our own child can be waited for") {
            Some(status) => return status.success(),
            None if Instant::now() < end => thread::sleep(Duration::from_millis(5)),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}
