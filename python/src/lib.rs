//! The native half of the Python package `redlock`.
//!
//! It converts Python's arguments, calls the engine, and converts the results. `redlock-core` makes all decisions about
//! a lock. Classes are immutable here. Threads of the engine never enter the interpreter, and a call that may block
//! detaches from it first.

mod call;
mod client;
mod command_line;
mod convert;
mod credentials;
mod ending;
mod error;
mod events;
mod inspect;
mod interpreter;
mod listing;
mod lock;
mod metrics;
mod notifier;
mod queue;
mod shape;
mod signals;
mod testing;

use pyo3::prelude::*;

/// The engine, only for the Python modules of this package.
// It requires the interpreter lock, because it was never run without one.
#[pymodule(name = "_native", gil_used = true)]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    interpreter::require_first(module.py())?;
    // A lock may be asked for while the interpreter ends, when nothing can be imported.
    signals::Signals::here(module.py())?;
    error::of_code(module.py())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<client::Client>()?;
    module.add_class::<lock::Handle>()?;
    module.add_class::<lock::Lock>()?;
    module.add_class::<shape::Shape>()?;
    module.add_class::<listing::Listing>()?;
    module.add_class::<call::Call>()?;
    module.add_class::<queue::Queue>()?;
    module.add_class::<credentials::Thread>()?;
    module.add_class::<events::Events>()?;
    module.add_class::<testing::MemoryServer>()?;
    module.add_function(wrap_pyfunction!(events::begin_with_next_call, module)?)?;
    module.add_function(wrap_pyfunction!(command_line::command_line, module)?)?;
    module.add_function(wrap_pyfunction!(testing::lose, module)?)?;
    module.add_function(wrap_pyfunction!(metrics::stats, module)?)?;
    module.add_function(wrap_pyfunction!(metrics::count_by_name, module)?)?;
    module.add_function(wrap_pyfunction!(ending::shutdown, module)?)
}
