//! A test that runs in a process of its own: it starts its own program again.

use std::process::Command;

/// Returns the command that runs the test `name` of the module alone, given its `module_path!()`. The command also
/// succeeds without such a test; [`ran`] checks that one test ran.
#[must_use]
pub fn this_test(module: &str, name: &str) -> Command {
    let test = match module.split_once("::") {
        Some((_, module)) => format!("{module}::{name}"),
        None => name.to_owned(),
    };
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    command.args(["--exact", &test, "--include-ignored", "--nocapture"]);
    command
}

/// Gives the rest of the test a process of its own, with this program in it and no other test.
#[macro_export]
macro_rules! alone {
    () => {
        fn here() {}
        if !$crate::is_alone($crate::test_around(std::any::type_name_of_val(&here))) {
            return;
        }
    };
}

/// Returns the command that runs the test in which there is the function with this name. Between both may be closures.
#[doc(hidden)]
#[must_use]
pub fn test_around(function: &str) -> Command {
    let mut path: Vec<_> = function.split("::").filter(|part| *part != "{{closure}}").collect();
    path.pop();
    let test = path.pop().expect("a function is in a test");
    this_test(&path.join("::"), test)
}

/// Returns the same for a process that gets no threads: each would have more stack than there is memory.
#[must_use]
pub fn this_test_without_threads(module: &str, name: &str) -> Command {
    let mut command = this_test(module, name);
    command.args(["--test-threads", "1"]).env("RUST_MIN_STACK", (1_u64 << 46).to_string());
    command
}

/// Returns true in the process of such a command. Else runs the command to its end, which must be a success.
#[must_use]
pub fn is_alone(mut command: Command) -> bool {
    const ALONE: &str = "REDLOCK_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    command.env(ALONE, "1");
    ran(command);
    false
}

/// Runs such a command to its end, which must be a success; returns what it printed.
#[allow(clippy::must_use_candidate, reason = "a test may ask for the success alone")]
pub fn ran(mut command: Command) -> String {
    let output = command.output().expect("this program starts");
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && printed.contains("running 1 test\n"), "{printed}");
    printed
}
