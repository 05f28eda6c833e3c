//! The native half of the Python package `redlock`.
//!
//! Converts what Python gave, calls the engine, converts what came back. Whatever is decided about a lock is decided in
//! `redlock-core`. No class here is mutable, no thread of the engine ever enters the interpreter, and a call that may
//! block lets go of it first.

mod calls;
mod client;
mod convert;
mod error;
mod inspect;
mod interpreter;
mod lock;
mod notifier;
mod signals;

use pyo3::prelude::*;

/// The engine, for the Python modules of this package alone.
// The interpreter lock is asked for because nothing here was ever run without it.
#[pymodule(name = "_native", gil_used = true)]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    interpreter::claim(module.py())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<client::Client>()?;
    module.add_class::<lock::Handle>()?;
    module.add_class::<lock::Lock>()?;
    module.add_class::<calls::Queue>()?;
    module.add_function(wrap_pyfunction!(shutdown, module)?)
}

/// Stops new waits, releases everything that this process holds and waits at most 500 ms for the answers.
#[pyfunction]
fn shutdown(py: Python<'_>) {
    py.detach(redlock::shutdown);
}
