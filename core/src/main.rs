//! The program `redlock`: `cargo install redlock-core --features cli`.
#![forbid(unsafe_code)]

fn main() {
    redlock::cli::program(std::env::args_os())
}
