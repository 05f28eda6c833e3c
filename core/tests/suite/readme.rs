//! What the README and the pages say is what the code does: their programs are the examples, which run against a real
//! server, and the promise is the one in the API documentation.

use std::process::Command;

use harness::Server;

#[test]
fn the_quick_start_is_the_example() {
    let code = include_str!("../../examples/quickstart.rs").split_once("\n\n").unwrap().1;
    let page = include_str!("../../docs/quick-start.md");
    assert!(page.contains(&format!("```rust\n{code}```\n")), "docs/quick-start.md and examples/quickstart.rs differ");
}

/// Runs an example, which must succeed; returns its output.
fn output(example: &str, features: &[&str]) -> String {
    let server = Server::start();
    // Whoever tests the whole package has just built it, beside the directory of test programs.
    let built = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("examples").join(example);
    let mut command = Command::new(&built);
    if !built.exists() {
        command = Command::new(env!("CARGO"));
        command.args(["run", "--quiet", "--locked", "--example", example]).args(features);
    }
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).env("REDLOCK_URLS", server.url()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[test]
fn the_quick_start_runs() {
    let said = output("quickstart", &[]);
    assert!(said.contains("held for ") && said.contains("3 lines") && said.contains("held by another owner"), "{said}");
}

#[test]
fn the_program_for_prometheus_is_the_example() {
    let code = include_str!("../../examples/prometheus.rs").split_once("\n\n").unwrap().1;
    let page = include_str!("../../docs/observing.md");
    assert!(page.contains(&format!("```rs\n{code}```\n")), "docs/observing.md and examples/prometheus.rs differ");
}

#[test]
fn prometheus_scrapes_the_names_of_the_page() {
    let said = output("prometheus", &["--features", "metrics"]);
    let has = |start: &str, end: &str| said.lines().any(|line| line.starts_with(start) && line.ends_with(end));
    assert!(has("redlock_held ", " 0"), "{said}");
    assert!(has("redlock_lost_total{", "} 0"), "{said}");
    assert!(has("redlock_node_up{", "} 1"), "{said}");
    for metric in ["redlock_acquire_duration_seconds", "redlock_hold_duration_seconds"] {
        assert!(has(&format!("{metric}_count_total{{"), "} 1"), "{said}");
        assert!(has(&format!("{metric}_bucket_total{{"), "le=\"+Inf\"} 1"), "{said}");
        assert!(has(&format!("{metric}_sum_total{{"), ""), "{said}");
    }
}

#[test]
fn the_readme_says_the_promise_of_the_page() {
    let section =
        |text: &'static str, title: &str| text.split_once(title).unwrap().1.split("\n\n").nth(1).unwrap().to_owned();
    let said = section(include_str!("../../../README.md"), "## What it promises");
    let page = section(include_str!("../../docs/promise.md"), "## In short");
    assert_eq!(said, page, "README's promise and docs/promise.md differ");
    assert_eq!(said.matches("- **").count(), 4);
}
