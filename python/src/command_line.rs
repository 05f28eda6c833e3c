//! The program `redlock`, which is a crate of its own.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Run the program `redlock` with these arguments, the first of which is its name, and end the process.
#[pyfunction]
pub(crate) fn command_line(py: Python<'_>, arguments: Vec<OsString>) {
    py.detach(|| redlock_cli::main(arguments));
}
