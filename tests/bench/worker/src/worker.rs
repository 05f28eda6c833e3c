//! The requests.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::subject::Subject;
use crate::tally::{Tally, Until};
use crate::{Failure, cpu_ns, now_ns};

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
        let (wall_ns, cpu) = (now_ns(), cpu_ns());
        let works = names.into_iter().map(|name| pairs::<S>(self.client.clone(), name, until));
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
        let (client, name) = (self.client.clone(), text(request, "name")?);
        let nap = Duration::from_millis(number(request, "hold_ms")?);
        one::<S, _>(async move {
            S::sleep(Duration::from_nanos(start_ns.saturating_sub(now_ns()))).await;
            let (mut waits, cpu, mut in_time, mut held_ns) = (Tally::default(), cpu_ns(), 0, 0);
            while now_ns() < end_ns {
                let asked_ns = now_ns();
                let held = S::acquire(&client, &name).await?;
                let since_ns = waits.add_since(asked_ns);
                S::sleep(nap).await;
                if since_ns < end_ns {
                    in_time += 1;
                    held_ns += now_ns() - since_ns;
                }
                S::release(held).await?;
            }
            let mut answer = waits.json(end_ns - start_ns, cpu_ns() - cpu);
            answer["count"] = json!(in_time);
            answer["held_ns"] = json!(held_ns);
            Ok(answer)
        })
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

async fn pairs<S: Subject>(client: S::Client, name: String, until: Until) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    while until.goes_on(tally.count) {
        let begun_ns = now_ns();
        let held = S::acquire(&client, &name).await?;
        S::release(held).await?;
        tally.add_since(begun_ns);
    }
    Ok(tally)
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
