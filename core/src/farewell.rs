//! What a process does before it ends. Hidden: for the bindings.
#![allow(missing_docs, clippy::todo)]

pub fn farewell() { todo!() }
