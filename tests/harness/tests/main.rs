//! Servers and proxies do what tests rely on.

mod proxy;
mod servers;
