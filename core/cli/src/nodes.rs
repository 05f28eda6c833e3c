//! The nodes: options that every command has, the client that they give, and what is said of nodes that refuse it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use redlock::bindings::operator::password_files;
use redlock::{AnswerKind, Builder, Error, ErrorKind, Fixed, Level, Lock, Redlock};

use crate::duration;
use crate::exit::{Exit, Failure, spelled};

/// How the address of a node inside the process begins.
const MEMORY: &str = "memory://";

const USUAL_TTL: Duration = Duration::from_secs(10);
const LONGEST_TTL: Duration = Duration::from_secs(86_400);

/// Options for the nodes.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Nodes")]
#[group(skip)]
pub(crate) struct Args {
    /// Address of a node; give it once for each of several
    ///
    /// redis://[user:password@]host[:port][/db], rediss:// for TLS, unix:///path, redis+sentinel://host,host/master or
    /// redis+cluster://host,host; valkey instead of redis is the same. All programs that share locks list the same
    /// nodes. Other users of this machine can read the command line: keep passwords in REDLOCK_URLS or in a
    /// --password-file.
    ///
    /// Default: the addresses in REDLOCK_URLS, with commas between them, or redis://127.0.0.1:6379.
    #[arg(long = "node", value_name = "URL", value_parser = NonEmptyStringValueParser::new())]
    node: Vec<String>,

    /// Text before each name: the key of a lock is this and then its name
    #[arg(long, value_name = "TEXT")]
    key_prefix: Option<String>,

    /// File with the password, for nodes whose address has none
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,

    /// File with the certificates of the only authorities to trust, or of servers [default: those of the system]
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,

    /// File with the certificate of this client
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// File with the private key of that certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Name in the nodes' certificates, if it is not the host of the address
    #[arg(long, value_name = "NAME")]
    tls_server_name: Option<String>,

    /// Longest time for a connection [default: 2s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    connect_timeout: Option<Duration>,

    /// Time without traffic after which a TCP connection is probed; 0s for never [default: 60s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    keepalive: Option<Duration>,

    /// Longest wait for the answer of a node [default: 500ms, or a quarter of the ttl]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    node_timeout: Option<Duration>,
}

impl Args {
    /// Makes the client for locks with this ttl, by which options are checked; `None` if the command takes no lock. Then
    /// the ttl, which is also that of a quarantine, is longer than usual only for a node that may take as long.
    ///
    /// # Errors
    ///
    /// A usage error for wrong addresses, also for those of a node inside the process, and for wrong options.
    pub(crate) fn client(&self, ttl: Option<Duration>) -> Result<Redlock, Failure> {
        let ttl = ttl.or(self.node_timeout.map(|most| most.saturating_mul(2).clamp(USUAL_TTL, LONGEST_TTL)));
        let mut builder = with(Redlock::builder(), ttl, Builder::ttl);
        if !self.node.is_empty() {
            builder = builder.nodes(&self.node);
        }
        builder = with(builder, self.key_prefix.as_ref(), Builder::key_prefix);
        builder = with(builder, self.password_file.as_ref(), Builder::password_file);
        builder = with(builder, self.tls_ca.as_ref(), Builder::tls_ca);
        builder = with(builder, self.tls_cert.as_ref(), Builder::tls_cert);
        builder = with(builder, self.tls_key.as_ref(), Builder::tls_key);
        builder = with(builder, self.tls_server_name.as_ref(), Builder::tls_server_name);
        builder = with(builder, self.connect_timeout, Builder::connect_timeout);
        builder = with(builder, self.keepalive, Builder::keepalive);
        builder = with(builder, self.node_timeout, Builder::node_timeout);
        let redlock = builder.build()?;
        password_files(&redlock).try_for_each(check_password)?;
        match redlock.shown_addresses().iter().find(|address| address.starts_with(MEMORY)) {
            None => Ok(redlock),
            Some(address) => Err(Failure::usage(format!(
                "{address} is a store inside one process: a lock in it does not exclude other programs; name a server instead"
            ))),
        }
    }
}

/// Refuses a file that is not there: the library would wait for it, because it may change while a program runs. Each of its
/// connections reads the file, so a pipe would leave the second one without a password.
fn check_password(file: &Path) -> Result<(), Failure> {
    let wrong = match file.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => "the file does not exist",
        Ok(found) if found.file_type().is_fifo() => "a pipe can be read only once; name a file",
        _ => return Ok(()),
    };
    Err(Failure::usage(format!("the password at {}: {wrong}", file.display())))
}

/// Returns the lock on these names.
pub(crate) fn lock(redlock: &Redlock, names: &[OsString], permits: Option<u32>) -> Result<Lock<Fixed>, Failure> {
    match (permits, names) {
        (_, [name]) => Ok(one(redlock, name, permits)),
        (None, _) => Ok(redlock.lock_all(names.iter().map(|name| name.as_bytes()))),
        (Some(_), _) => Err(Failure::usage("--permits is for one name, but there are several")),
    }
}

/// Returns the lock or semaphore with this name.
pub(crate) fn one(redlock: &Redlock, name: &OsStr, permits: Option<u32>) -> Lock<Fixed> {
    match permits {
        None => redlock.lock(name.as_bytes()).into(),
        Some(permits) => redlock.semaphore(name.as_bytes(), permits),
    }
}

/// Returns a lock that is waited for so long: not at all, up to a limit, or for ever.
pub(crate) fn waiting(lock: Lock<Fixed>, no_wait: bool, wait: Option<Duration>) -> Lock<Fixed> {
    match wait.or(no_wait.then_some(Duration::ZERO)) {
        Some(wait) => lock.timeout(wait),
        None => lock.no_timeout(),
    }
}

/// Returns `builder` with a value, if there is one.
fn with<T>(builder: Builder, value: Option<T>, set: impl FnOnce(Builder, T) -> Builder) -> Builder {
    match value {
        Some(value) => set(builder, value),
        None => builder,
    }
}

/// Returns what a call returned, or how the program fails with its error; see [`failure`].
pub(crate) async fn explained<T>(redlock: &Redlock, result: Result<T, Error>) -> Result<T, Failure> {
    match result {
        Ok(value) => Ok(value),
        Err(error) => Err(failure(redlock, error).await),
    }
}

/// Returns the failure of a call. If nodes refuse this user, it names the rights that are missing, which it asks them for.
pub(crate) async fn failure(redlock: &Redlock, error: Error) -> Failure {
    // A timeout may end before a node has answered. It does not mean that others hold the lock then.
    let is_unanswered = error.kind() == ErrorKind::Timeout
        && !error.nodes().iter().any(|node| matches!(node.kind, AnswerKind::Held | AnswerKind::Done));
    let exit = if is_unanswered { Exit::UNAVAILABLE } else { Exit::of(error.kind()) };
    let mut failure = Failure::new(exit, spelled(&error));
    if error.kind() == ErrorKind::Forbidden
        && let (Some(message), Ok(diagnoses)) = (&mut failure.message, redlock.diagnose().await)
    {
        let findings = diagnoses.into_iter().flat_map(|diagnosis| diagnosis.findings);
        let missing = findings.filter(|finding| finding.check == "rights" && finding.level == Level::Unusable);
        let mut said: Vec<_> = missing.map(|finding| finding.message).collect();
        said.sort();
        said.dedup();
        for missing in said {
            *message += "; ";
            *message += &missing;
        }
    }
    failure
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        nodes: Args,
    }

    fn client(args: &[&str]) -> Result<Redlock, Failure> {
        Program::parse_from(std::iter::once("redlock").chain(args.iter().copied())).nodes.client(None)
    }

    #[test]
    fn the_client_has_the_nodes_and_options() {
        let redlock = client(&["--node", "redis://a", "--node", "redis://b,c", "--key-prefix", "app:"]);
        assert_eq!(redlock.unwrap_err().exit, Exit::USAGE, "commas are for REDLOCK_URLS");
        let redlock =
            client(&["--node", "redis://u:S3CR3T@a", "--node", "rediss://b", "--connect-timeout", "1s"]).unwrap();
        assert_eq!(redlock.shown_addresses(), ["redis://a:6379", "rediss://b:6379"]);
        client(&["--node", "redis://a", "--node-timeout", "15s"]).expect("it is longer than the usual ttl");
    }

    #[tokio::test]
    async fn a_short_node_timeout_leaves_the_ttl_as_it_is() {
        let redlock = client(&["--node", "unix:///no/where.sock", "--node-timeout", "4s"]).unwrap();
        let margin = redlock.lock("job").margin(Duration::from_secs(6)).try_acquire().await.unwrap_err();
        assert_eq!(margin.kind(), ErrorKind::InvalidArgument, "it is more than half of 10 s");
    }

    #[test]
    fn wrong_nodes_and_options_are_named_as_typed() {
        for (args, option) in [
            (&["--node", "http://u:S3CR3T@a"][..], "address"),
            (&["--node", "redis://a", "--connect-timeout", "1ms"], "--connect-timeout"),
            (&["--node", "redis://a", "--node-timeout", "24h"], "--node-timeout"),
            (&["--node", "redis://a", "--key-prefix", "redlock:fence:"], "--key-prefix"),
            (&["--node", "redis://a", "--tls-server-name", "a b"], "--tls-server-name"),
            (&["--node", "redis://a", "--node", "memory://b"], "memory://b"),
        ] {
            let failure = client(args).unwrap_err();
            let message = failure.message.unwrap();
            assert_eq!(failure.exit, Exit::USAGE, "{message}");
            assert!(message.contains(option) && !message.contains("S3CR3T"), "{message}");
        }
    }
}
