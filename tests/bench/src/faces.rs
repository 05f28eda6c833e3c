//! The variants that are compared: the bare socket and every way into the library.

use redlock_harness::Server;
use tokio::runtime::Builder;

use crate::Failure;
use crate::bare::Bare;

/// Who takes the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Face {
    /// Nobody's library: what all the others are divided by.
    Bare,
    /// Nobody's library, with the library's scripts instead of a plain SET: the price of fences alone.
    Scripted,
    /// `redlock::blocking`.
    Blocking,
    /// `redlock` on a tokio runtime of one thread, all pairs inside one `block_on`.
    CurrentThread,
    /// `redlock` on a tokio runtime of two worker threads, all pairs inside one spawned task.
    MultiThread,
}

impl Face {
    /// The bare socket comes first.
    pub(crate) const ALL: [Self; 5] =
        [Self::Bare, Self::Scripted, Self::Blocking, Self::CurrentThread, Self::MultiThread];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare socket",
            Self::Scripted => "bare, our scripts",
            Self::Blocking => "blocking",
            Self::CurrentThread => "async, current_thread",
            Self::MultiThread => "async, multi_thread(2)",
        }
    }
}

/// How the nodes are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Tcp,
    Unix,
}

impl Route {
    pub(crate) const ALL: [Self; 2] = [Self::Tcp, Self::Unix];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Unix => "unix",
        }
    }

    /// The server's address on this route.
    pub(crate) fn address(self, server: &Server) -> String {
        match self {
            Self::Tcp => format!("redis://127.0.0.1:{}", server.port()),
            Self::Unix => format!("unix://{}", server.socket().display()),
        }
    }
}

/// What `--only` looks at: `5 nodes tcp blocking`.
pub(crate) fn name(nodes: usize, route: Route, face: Face) -> String {
    let plural = if nodes == 1 { "" } else { "s" };
    format!("{nodes} node{plural} {} {}", route.name().to_lowercase(), face.name())
}

/// Acquires and releases so many times.
type Run = Box<dyn FnMut(u32) -> Result<(), Failure>>;

/// One variant, connected.
pub(crate) struct Contender {
    pub(crate) nodes: usize,
    pub(crate) route: Route,
    pub(crate) face: Face,
    run: Run,
}

impl Contender {
    /// Acquires and releases so many times.
    pub(crate) fn run(&mut self, pairs: u32) -> Result<(), Failure> {
        (self.run)(pairs).map_err(|error| format!("{}: {error}", name(self.nodes, self.route, self.face)).into())
    }
}

/// The wanted faces on these servers behind their bare socket; empty if none is wanted.
pub(crate) fn group(
    servers: &[Server],
    route: Route,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Contender>, Failure> {
    let nodes = servers.len();
    let addresses: Vec<String> = servers.iter().map(|server| route.address(server)).collect();
    let is_wanted = |face: &Face| wanted(&name(nodes, route, *face));
    if !Face::ALL.iter().any(is_wanted) {
        return Ok(Vec::new());
    }
    let faces = Face::ALL.into_iter().filter(|face| *face == Face::Bare || is_wanted(face));
    faces
        .map(|face| {
            let run = match face {
                Face::Bare => bare(&addresses)?,
                Face::Scripted => scripted(&addresses)?,
                Face::Blocking => blocking(addresses.clone())?,
                Face::CurrentThread => current_thread(addresses.clone())?,
                Face::MultiThread => multi_thread(addresses.clone())?,
            };
            Ok(Contender { nodes, route, face, run })
        })
        .collect()
}

// Every variant has a lock of its own, with names of one length: the releases that one still owes to a minority of the
// nodes when its turn is over must not deny the next one.

fn bare(addresses: &[String]) -> Result<Run, Failure> {
    let mut bare = Bare::connect(addresses, "bench:b")?;
    Ok(Box::new(move |pairs| (0..pairs).try_for_each(|_| bare.pair())))
}

fn scripted(addresses: &[String]) -> Result<Run, Failure> {
    let mut bare = Bare::scripted(addresses, "bench:f")?;
    Ok(Box::new(move |pairs| (0..pairs).try_for_each(|_| bare.pair())))
}

fn blocking(addresses: Vec<String>) -> Result<Run, Failure> {
    let client = redlock::blocking::Redlock::new(addresses)?;
    Ok(Box::new(move |pairs| {
        for _ in 0..pairs {
            client.lock("bench:s").acquire()?.release()?;
        }
        Ok(())
    }))
}

fn current_thread(addresses: Vec<String>) -> Result<Run, Failure> {
    let client = redlock::Redlock::new(addresses)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    Ok(Box::new(move |pairs| runtime.block_on(acquire_and_release(&client, "bench:c", pairs))))
}

fn multi_thread(addresses: Vec<String>) -> Result<Run, Failure> {
    let client = redlock::Redlock::new(addresses)?;
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    Ok(Box::new(move |pairs| {
        let client = client.clone();
        let task = runtime.spawn(async move { acquire_and_release(&client, "bench:m", pairs).await });
        runtime.block_on(task)?
    }))
}

async fn acquire_and_release(client: &redlock::Redlock, name: &str, pairs: u32) -> Result<(), Failure> {
    for _ in 0..pairs {
        client.lock(name).acquire().await?.release().await?;
    }
    Ok(())
}
