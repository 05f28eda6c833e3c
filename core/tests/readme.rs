//! What the README says is what the code does: its quick start is the example, which runs against a real server, and
//! its promise is the one in the API documentation.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::process::Command;

use harness::Server;

const README: &str = include_str!("../../README.md");

#[test]
fn the_quick_start_is_the_example() {
    let example = include_str!("../examples/quickstart.rs");
    let code = example.split_once("\n\n").unwrap().1;
    assert!(
        README.contains(&format!("```rust\n{code}```\n")),
        "README's quick start and core/examples/quickstart.rs differ"
    );
}

#[test]
fn the_quick_start_runs() {
    let server = Server::start();
    // Whoever tests the whole package has just built it, beside the directory of test programs.
    let built = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("examples/quickstart");
    let mut example = Command::new(&built);
    if !built.exists() {
        example = Command::new(env!("CARGO"));
        example.args(["run", "--quiet", "--locked", "--example", "quickstart"]);
    }
    let output = example.current_dir(env!("CARGO_MANIFEST_DIR")).env("REDLOCK_URLS", server.url()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("held for ") && said.contains("3 lines") && said.contains("held by another owner"), "{said}");
}

#[test]
fn the_promise_is_the_one_in_the_documentation() {
    let page = include_str!("../docs/promise.md").split_once("\n\n").unwrap().1;
    assert!(README.contains(page), "README's promise and core/docs/promise.md differ");
}
