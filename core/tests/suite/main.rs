//! The library as programs use it. Most of its tests share this one program, because the engine is compiled into each
//! program anew; a test that needs a process of its own starts [`this_test`] again. Beside it stand those that watch
//! the whole process, those whose crowds would keep its background thread from others, and those that look at what
//! blocking calls leave on the runtimes of the process.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod cluster;
mod connecting;
mod credentials;
mod delete_follows_create;
mod diagnose;
mod diagnose_cluster;
mod errors;
mod hold;
mod layers;
mod log;
mod nodes;
mod objects;
mod processes;
mod readme;
mod round_trips;
mod send_sync;
mod sentinel;
mod setnx;
mod single;
#[cfg(all(feature = "metrics", feature = "testing"))]
mod surface;
#[cfg(feature = "testing")]
mod testing;
mod tls;
mod waiting;

/// The command that runs the test `name` of `module` alone, in a process of its own. It succeeds too if there is no
/// such test, so whoever starts it asks for what only the test prints; [`ran`] does.
fn this_test(module: &str, name: &str) -> std::process::Command {
    let (_, module) = module.split_once("::").unwrap();
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("{module}::{name}"), "--nocapture"]);
    command
}

/// Runs such a command to its end, which must be a success; returns what it printed.
fn ran(mut command: std::process::Command) -> String {
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && printed.contains("running 1 test\n"), "{printed}");
    printed
}
