//! Plays fuzz targets: random inputs until the time is over, or until one fails, which is then made small.
#![allow(clippy::disallowed_methods, reason = "how long a target plays is real time")]

use std::alloc::System;
use std::env;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use cap::Cap;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

/// An input that makes the library use more memory ends the program.
const MEMORY_MOST: usize = 512 << 20;

#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, MEMORY_MOST);

/// The password in every address. No output may show it.
pub const SECRET: &str = "S3CR3T";

/// Gives `inputs` to `check` until the time is over.
///
/// # Panics
///
/// If one fails, or `FUZZ_SECONDS` is not a number.
pub fn play<S: Strategy>(target: &str, inputs: &S, check: impl Fn(S::Value) -> Result<(), TestCaseError>)
where
    S::Value: Debug,
{
    let seconds = env::var("FUZZ_SECONDS").map_or(1.0, |text| text.parse().expect("a number of seconds"));
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let config = Config { cases: 16, failure_persistence: None, ..Config::default() };
    let mut played = 0;
    while Instant::now() < until {
        if let Err(failure) = TestRunner::new(config.clone()).run(inputs, &check) {
            panic!("{target}: {failure}");
        }
        played += config.cases;
    }
    println!("{target}: {played} inputs in {seconds} s");
}

/// Fails if `shown` has the password.
///
/// # Errors
///
/// With the text.
pub fn hides_secret(shown: &str) -> Result<(), TestCaseError> {
    if shown.contains(SECRET) { Err(TestCaseError::fail(format!("shows the password: {shown}"))) } else { Ok(()) }
}
