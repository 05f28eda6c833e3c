//! What the README and the pages say is what the code does: their programs are the examples, which run against a real
//! server, and the promise is the one in the API documentation.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use harness::{LIMIT, Server, eventually};

#[test]
fn the_quick_start_is_the_example() {
    let code = include_str!("../../examples/quickstart.rs").split_once("\n\n").unwrap().1;
    let page = include_str!("../../docs/quick-start.md");
    assert!(page.contains(&format!("```rust\n{code}```\n")), "docs/quick-start.md and examples/quickstart.rs differ");
}

/// Returns the command that runs an example with locks on `server`.
fn example(example: &str, features: &[&str], server: &Server) -> Command {
    // Whoever tests the whole package has just built it, beside the directory of test programs.
    let built = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("examples").join(example);
    let mut command = Command::new(&built);
    if !built.exists() {
        command = Command::new(env!("CARGO"));
        command.args(["run", "--quiet", "--locked", "--example", example]).args(features).arg("--");
    }
    command.current_dir(env!("CARGO_MANIFEST_DIR")).env("REDLOCK_URLS", server.url());
    command
}

#[test]
fn the_quick_start_runs() {
    let server = Server::start();
    let output = example("quickstart", &[], &server).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("held for ") && said.contains("3 lines") && said.contains("held by this process"), "{said}");
}

#[test]
fn the_lines_for_prometheus_are_those_of_the_example() {
    let example = include_str!("../../examples/prometheus.rs");
    let (_, rest) = include_str!("../../docs/observing.md").split_once("```rs\n").unwrap();
    let mut lines = rest.lines().take_while(|line| *line != "```").filter(|line| !line.starts_with("//"));
    assert!(lines.all(|line| example.contains(line)), "docs/observing.md and examples/prometheus.rs differ");
}

/// A running program, which is killed in the end.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks for a page over HTTP, as Prometheus does. Returns its text.
fn get(url: &str) -> String {
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with(&format!("Content-Length: {}", body.len())), "{head}");
    body.to_owned()
}

/// The names and the kinds of the metrics, as the page lists them.
fn metrics_of_the_page() -> Vec<(&'static str, &'static str)> {
    let table = include_str!("../../docs/observing.md").split_once("| name | kind |").unwrap().1;
    let rows = table.lines().take_while(|line| !line.is_empty());
    rows.filter_map(|row| row.strip_prefix("| `")?.split_once("` | "))
        .map(|(name, rest)| (name, rest.split_once(' ').unwrap().0))
        .collect()
}

#[test]
fn prometheus_scrapes_every_metric_of_the_page_while_a_lock_is_held() {
    let server = Server::start();
    let mut command = example("prometheus", &["--features", "metrics-0_24"], &server);
    let mut running = Running(command.arg("127.0.0.1:0").stdout(Stdio::piped()).spawn().unwrap());
    let mut url = String::new();
    BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let known = metrics_of_the_page();
    assert_eq!(known.len(), 14);
    let series: Vec<_> = known
        .iter()
        .flat_map(|(name, kind)| match *kind {
            "histogram" => ["bucket", "count", "sum"].map(|part| format!("{name}_{part}")).to_vec(),
            _ => vec![(*name).to_owned()],
        })
        .collect();
    let mut said = String::new();
    // The margin of a renewal is the last one, after a third of the ttl.
    eventually("each metric of the page has a series", || {
        said = get(url.trim_end());
        let has = |name: &String| {
            said.lines().any(|line| line.starts_with(&format!("{name} ")) || line.starts_with(&format!("{name}{{")))
        };
        series.iter().all(has)
    });
    let has = |start: &str, end: &str| said.lines().any(|line| line.starts_with(start) && line.ends_with(end));
    assert!(has("redlock_held ", " 1"), "{said}");
    assert!(has("redlock_lost_total{", "} 0"), "{said}");
    assert!(has("redlock_node_up{", "} 1"), "{said}");
    assert!(has("redlock_hold_duration_seconds_bucket{", "le=\"+Inf\"} 1"), "{said}");
    assert!(has("redlock_acquire_duration_seconds_count{", "} 2"), "{said}");
}

/// That of the crate is compiled with its documentation.
#[test]
fn the_readmes_show_one_program() {
    let program = |text: &'static str| text.split_once("```rust,no_run\n").unwrap().1.split_once("```").unwrap().0;
    assert_eq!(program(include_str!("../../../README.md")), program(include_str!("../../README.md")));
}

#[test]
fn the_readme_says_the_promise_of_the_page() {
    let section =
        |text: &'static str, title: &str| text.split_once(title).unwrap().1.split("\n\n").nth(1).unwrap().to_owned();
    let said = section(include_str!("../../../README.md"), "## What it promises");
    let page = section(include_str!("../../docs/promise.md"), "## In short");
    assert_eq!(said, page, "README's promise and docs/promise.md differ");
    assert_eq!(said.matches("- **").count(), 4);
    let words = |text: &str| text.split_whitespace().filter(|word| *word != "//!").collect::<Vec<_>>().join(" ");
    assert!(words(include_str!("../../src/lib.rs")).contains(&words(&page)), "src/lib.rs promises something else");
}
