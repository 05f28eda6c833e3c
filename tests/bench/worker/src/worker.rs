//! The requests.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use crate::subject::Subject;
use crate::tally::{Tally, Until};
use crate::{Failure, cpu_ns, now_ns};

#[global_allocator]
static HEAP: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

/// How many tasks acquire the locks for `hold`.
const HANDS: usize = 64;

/// One client of a subject, and the locks that it holds.
pub(crate) struct Worker<S: Subject> {
    client: S::Client,
    held: Vec<S::Held>,
}

impl<S: Subject> Worker<S> {
    /// A client for these nodes.
    pub(crate) fn open(urls: &[String], ttl: Duration) -> Result<Self, Failure> {
        Ok(Self { client: S::open(urls, ttl)?, held: Vec::new() })
    }

    /// Performs a request.
    pub(crate) fn perform(&mut self, request: &Value) -> Result<Value, Failure> {
        match request["op"].as_str() {
            Some("pairs") => self.pairs(request),
            Some("allocations") => allocations(|| self.pairs(request)),
            Some("acquire") => self.acquire(request),
            Some("release") => self.release(),
            Some("contend") => self.contend(request),
            Some("hold") => self.hold(request),
            Some("wait") => self.wait(request),
            Some("usage") => Ok(json!({"cpu_ns": cpu_ns()})),
            op => Err(format!("no such op: {op:?}").into()),
        }
    }

    fn pairs(&self, request: &Value) -> Result<Value, Failure> {
        let names: Vec<String> = serde_json::from_value(request["names"].clone())?;
        let until = Until::of(request, names.len())?;
        let want = if request["shared"].as_bool() == Some(true) { Want::Shared } else { Want::Lock };
        let (wall_ns, cpu) = (now_ns(), cpu_ns());
        let works = names.into_iter().map(|name| pairs::<S>(self.client.clone(), name, want, until));
        let tallies = each::<S, _, _>(works)?;
        let (wall_ns, cpu) = (now_ns() - wall_ns, cpu_ns() - cpu);
        let mut all = Tally::default();
        for tally in tallies {
            all.merge(tally);
        }
        Ok(all.json(wall_ns, cpu))
    }

    fn acquire(&mut self, request: &Value) -> Result<Value, Failure> {
        let (client, name) = (self.client.clone(), text(request, "name")?);
        let (asked_ns, held, held_ns) = one::<S, _>(async move {
            let asked_ns = now_ns();
            let held = S::acquire(&client, &name).await?;
            Ok((asked_ns, held, now_ns()))
        })?;
        self.held.push(held);
        Ok(json!({"asked_ns": asked_ns, "held_ns": held_ns}))
    }

    fn release(&mut self) -> Result<Value, Failure> {
        let held = self.held.pop().ok_or("nothing is held")?;
        let (asked_ns, released_ns) = one::<S, _>(async move {
            let asked_ns = now_ns();
            S::release(held).await?;
            Ok((asked_ns, now_ns()))
        })?;
        Ok(json!({"asked_ns": asked_ns, "released_ns": released_ns}))
    }

    fn contend(&self, request: &Value) -> Result<Value, Failure> {
        let (start_ns, end_ns) = (number(request, "start_ns")?, number(request, "end_ns")?);
        let tasks = request["tasks"].as_u64().unwrap_or(1);
        let writers = request["writers"].as_u64();
        let permits = request["permits"].as_u64().map(u32::try_from).transpose()?;
        let contest = Contest {
            name: text(request, "name")?,
            want: permits.map_or(Want::Lock, Want::Permit),
            end_ns,
            nap: Duration::from_millis(number(request, "hold_ms")?),
        };
        let works = (0..tasks).map(|task| {
            let want = if task < writers.unwrap_or(tasks) { contest.want } else { Want::Shared };
            compete::<S>(self.client.clone(), Contest { want, ..contest.clone() })
        });
        one::<S, _>(async move {
            S::sleep(Duration::from_nanos(start_ns.saturating_sub(now_ns()))).await;
            Ok(())
        })?;
        let cpu = cpu_ns();
        let results = each::<S, _, _>(works)?;
        let cpu = cpu_ns() - cpu;
        let (mut waits, mut holds) = (Tally::default(), Vec::new());
        let (mut read, mut written) = (Vec::new(), Vec::new());
        for (want, turns) in results {
            for [asked_ns, since_ns, _] in &turns {
                waits.add(since_ns - asked_ns);
            }
            holds.extend(turns.iter().map(|[_, since_ns, until_ns]| [*since_ns, *until_ns]));
            if want == Want::Shared { &mut read } else { &mut written }.extend(turns);
        }
        let in_time = holds.iter().filter(|[since_ns, _]| *since_ns < end_ns);
        let mut answer = waits.json(end_ns - start_ns, cpu);
        answer["count"] = in_time.clone().count().into();
        answer["held_ns"] = in_time.map(|[since_ns, until_ns]| until_ns - since_ns).sum::<u64>().into();
        if permits.is_some() {
            answer["holds_ns"] = json!(holds);
        }
        if writers.is_some() {
            answer["reads_ns"] = json!(read);
            answer["writes_ns"] = json!(written);
        }
        Ok(answer)
    }

    fn hold(&mut self, request: &Value) -> Result<Value, Failure> {
        let (prefix, count) = (text(request, "prefix")?, number(request, "count")?);
        let begun_ns = now_ns();
        let hands = (0..HANDS).map(|hand| {
            let (client, prefix) = (self.client.clone(), prefix.clone());
            async move {
                let mut held = Vec::new();
                for i in (0..count).skip(hand).step_by(HANDS) {
                    held.push(S::acquire(&client, &format!("{prefix}{i}")).await?);
                }
                Ok(held)
            }
        });
        let held = each::<S, _, _>(hands)?;
        self.held.extend(held.into_iter().flatten());
        Ok(json!({"held": self.held.len(), "wall_ns": now_ns() - begun_ns}))
    }

    /// The waiters are never asked again: the process is killed with them.
    fn wait(&self, request: &Value) -> Result<Value, Failure> {
        let names: Vec<String> = serde_json::from_value(request["names"].clone())?;
        let waiting = names.len();
        for name in names {
            let client = self.client.clone();
            let _ = S::spawn(async move {
                if let Err(error) = S::acquire(&client, &name).await {
                    eprintln!("a waiter gave up: {error}");
                }
            });
        }
        Ok(json!({"waiting": waiting}))
    }
}

/// What a task acquires by a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Want {
    /// The lock.
    Lock,
    /// The lock, as one of its readers.
    Shared,
    /// One of so many permits of a semaphore.
    Permit(u32),
}

/// A name that many want at the same time, until when, and how long each keeps it.
#[derive(Clone, Debug)]
struct Contest {
    name: String,
    want: Want,
    end_ns: u64,
    nap: Duration,
}

async fn take<S: Subject>(client: &S::Client, name: &str, want: Want) -> Result<S::Held, Failure> {
    match want {
        Want::Lock => S::acquire(client, name).await,
        Want::Shared => S::acquire_shared(client, name).await,
        Want::Permit(permits) => S::acquire_permit(client, name, permits).await,
    }
}

/// Acquires, holds and releases repeatedly. Returns what it wanted, and of each hold the instants at which it was asked
/// for, began and ended.
async fn compete<S: Subject>(client: S::Client, contest: Contest) -> Result<(Want, Vec<[u64; 3]>), Failure> {
    let mut turns = Vec::new();
    while now_ns() < contest.end_ns {
        let asked_ns = now_ns();
        let held = take::<S>(&client, &contest.name, contest.want).await?;
        let since_ns = now_ns();
        S::sleep(contest.nap).await;
        turns.push([asked_ns, since_ns, now_ns()]);
        S::release(held).await?;
    }
    Ok((contest.want, turns))
}

async fn pairs<S: Subject>(client: S::Client, name: String, want: Want, until: Until) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    while until.goes_on(tally.count) {
        let begun_ns = now_ns();
        let held = take::<S>(&client, &name, want).await?;
        S::release(held).await?;
        tally.add_since(begun_ns);
    }
    Ok(tally)
}

fn allocations(perform: impl FnOnce() -> Result<Value, Failure>) -> Result<Value, Failure> {
    let region = Region::new(HEAP);
    let answer = perform()?;
    let seen = region.change();
    Ok(json!({
        "count": answer["count"],
        "allocations": seen.allocations,
        "bytes": seen.bytes_allocated,
        "counted": "calls of the allocator and the bytes asked for",
    }))
}

/// Runs all of these concurrently; returns their results, or the first failure.
fn each<S: Subject, T: Send + 'static, F>(works: impl Iterator<Item = F>) -> Result<Vec<T>, Failure>
where
    F: Future<Output = Result<T, Failure>> + Send + 'static,
{
    let results = Arc::new(Mutex::new(Vec::new()));
    let waits: Vec<_> = works
        .map(|work| {
            let results = Arc::clone(&results);
            S::spawn(async move {
                let result = work.await;
                results.lock().unwrap_or_else(PoisonError::into_inner).push(result);
            })
        })
        .collect();
    for wait in waits {
        wait();
    }
    std::mem::take(&mut *results.lock().unwrap_or_else(PoisonError::into_inner)).into_iter().collect()
}

/// Runs this where the subject's tasks run.
fn one<S: Subject, T: Send + 'static>(
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    each::<S, T, _>(std::iter::once(work))?.pop().ok_or_else(|| "the task has no result".into())
}

fn text(request: &Value, field: &str) -> Result<String, Failure> {
    Ok(request[field].as_str().ok_or_else(|| format!("no {field}"))?.to_owned())
}

fn number(request: &Value, field: &str) -> Result<u64, Failure> {
    Ok(request[field].as_u64().ok_or_else(|| format!("no {field}"))?)
}
