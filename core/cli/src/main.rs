//! The program `redlock`: `cargo install redlock-cli`.
#![forbid(unsafe_code)]

fn main() {
    redlock_cli::program(std::env::args_os())
}
