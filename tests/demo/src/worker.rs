//! One process that fights for the lock.

use std::fmt::Display;
use std::io::Write;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use history::{Kind, Record};

use crate::clock::now_ns;
use crate::counter::Counter;
use crate::line::Line;

/// The lock they fight for.
const NAME: &str = "demo";
/// What a dead holder would cost the others; short, so that a restarted node soon counts again.
pub(crate) const TTL: Duration = Duration::from_secs(3);
/// Nobody should have to wait this long, whatever happens to two nodes of five.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long the file is kept open between reading and writing: time enough for another holder to do damage.
const WORK: Duration = Duration::from_millis(2);
/// After a call that failed.
const BREATH: Duration = Duration::from_millis(100);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The name in the report.
    #[arg(long)]
    pub(crate) name: String,
    /// Which of the library's faces to use.
    #[arg(long)]
    pub(crate) face: Face,
    /// The file that the lock protects.
    #[arg(long)]
    pub(crate) file: PathBuf,
    /// When to stop, in nanoseconds of the shared clock.
    #[arg(long)]
    pub(crate) until: u64,
    /// The nodes.
    pub(crate) nodes: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Face {
    Async,
    Blocking,
}

impl Face {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Async => "async",
            Self::Blocking => "blocking",
        }
    }
}

pub(crate) fn run(args: &Args) {
    match args.face {
        Face::Async => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime can be built").block_on(fight_async(args));
        }
        Face::Blocking => fight_blocking(args),
    }
}

async fn fight_async(args: &Args) {
    let redlock = redlock::Redlock::builder().nodes(&args.nodes).ttl(TTL).build().expect("the nodes' URLs are valid");
    while now_ns() < args.until {
        let invoke_ns = now_ns();
        match redlock.lock(NAME).timeout(TIMEOUT).acquire().await {
            Ok(guard) => {
                let fence = guard.fence();
                args.acquired(invoke_ns, fence, || guard.remaining());
                if let Some(counter) = args.read(fence) {
                    tokio::time::sleep(WORK).await;
                    args.write(counter);
                }
                let invoke_ns = now_ns();
                args.released(invoke_ns, fence, guard.release().await);
                tokio::time::sleep(args.pause(fence)).await;
            }
            Err(error) => {
                args.denied(invoke_ns, error);
                tokio::time::sleep(BREATH).await;
            }
        }
    }
}

fn fight_blocking(args: &Args) {
    let redlock =
        redlock::blocking::Redlock::builder().nodes(&args.nodes).ttl(TTL).build().expect("the nodes' URLs are valid");
    while now_ns() < args.until {
        let invoke_ns = now_ns();
        match redlock.lock(NAME).timeout(TIMEOUT).acquire() {
            Ok(guard) => {
                let fence = guard.fence();
                args.acquired(invoke_ns, fence, || guard.remaining());
                if let Some(counter) = args.read(fence) {
                    thread::sleep(WORK);
                    args.write(counter);
                }
                let invoke_ns = now_ns();
                args.released(invoke_ns, fence, guard.release());
                thread::sleep(args.pause(fence));
            }
            Err(error) => {
                args.denied(invoke_ns, error);
                thread::sleep(BREATH);
            }
        }
    }
}

/// What both faces do around the lock.
impl Args {
    fn acquired(&self, invoke_ns: u64, fence: u64, remaining: impl FnOnce() -> Duration) {
        // The clock first: the end of validity must not be recorded later than the library means it.
        let return_ns = now_ns();
        let remaining_ns = u64::try_from(remaining().as_nanos()).expect("less than 500 years");
        let valid_until_ns = Some(return_ns + remaining_ns);
        self.record(Kind::Acquire, invoke_ns, return_ns, true, Some(fence), valid_until_ns);
    }

    fn denied(&self, invoke_ns: u64, error: impl Display) {
        self.record(Kind::Acquire, invoke_ns, now_ns(), false, None, None);
        say(&Line::Failed(format!("worker {}: acquire: {error}", self.name)));
    }

    fn released(&self, invoke_ns: u64, fence: u64, result: Result<(), impl Display>) {
        self.record(Kind::Release, invoke_ns, now_ns(), result.is_ok(), Some(fence), None);
        if let Err(error) = result {
            say(&Line::Failed(format!("worker {}: release: {error}", self.name)));
        }
    }

    fn record(
        &self,
        kind: Kind,
        invoke_ns: u64,
        return_ns: u64,
        ok: bool,
        fence: Option<u64>,
        valid_until_ns: Option<u64>,
    ) {
        let (client, name) = (self.name.clone(), NAME.to_owned());
        say(&Line::Call(Record { client, name, kind, invoke_ns, return_ns, ok, fence, valid_until_ns }));
    }

    /// What to write next; `None` where the file must not be touched, as any fenced resource would see to.
    fn read(&self, fence: u64) -> Option<Counter> {
        match Counter::read(&self.file) {
            Ok(last) if last.fence < fence => Some(Counter { count: last.count + 1, fence }),
            Ok(last) => {
                self.damage(&format!("holds fence {fence}, but the file has seen {} already", last.fence));
                None
            }
            Err(damage) => {
                self.damage(&damage);
                None
            }
        }
    }

    fn write(&self, counter: Counter) {
        match counter.write(&self.file) {
            Ok(()) => say(&Line::Increased),
            Err(damage) => self.damage(&damage),
        }
    }

    fn damage(&self, what: &str) {
        say(&Line::Damage(format!("worker {}: {what}", self.name)));
    }

    /// 0 to 4 ms, different for every worker and round, so that they do not fall into step.
    fn pause(&self, fence: u64) -> Duration {
        let worker = self.name.bytes().map(u64::from).sum::<u64>();
        Duration::from_millis((fence ^ worker) * 31 % 5)
    }
}

fn say(line: &Line) {
    let mut text = serde_json::to_string(line).expect("a line can be written as JSON");
    text.push('\n');
    // Nobody reads any more: then there is nothing left to fight for either.
    if std::io::stdout().write_all(text.as_bytes()).is_err() {
        std::process::exit(1);
    }
}
