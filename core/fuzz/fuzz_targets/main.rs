//! What callers and servers should not send. One program, because the engine is compiled into each.

mod addresses;
mod connection;
mod names;
mod options;
mod server;
