//! Tells the linker what an extension of Python needs, which on macOS looks up Python's symbols when it is loaded.

fn main() {
    pyo3_build_config::add_extension_module_link_args();
}
