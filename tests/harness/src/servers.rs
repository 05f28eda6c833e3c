//! One real server process, started, disturbed and ended by the test that owns it.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use redis::{FromRedisValue, IntoConnectionInfo, RedisResult, Value};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tempfile::TempDir;

use crate::{Authority, LIMIT, Program, ports, spawner};

/// How many ports are tried when others take them between our look and the server's start.
const PORT_ATTEMPTS: usize = 20;

/// One real Redis or Valkey server, alone in a temporary directory.
///
/// It always listens on a unix socket, where the methods here talk to it; [`Server::url`] names the address that the
/// code under test should use. All methods take `&self`, so threads can share a server. Dropping it kills the process
/// and removes its data; so does the death of the test process.
#[derive(Debug)]
pub struct Server {
    setup: Builder,
    dir: TempDir,
    port: Option<u16>,
    authority: Option<Authority>,
    child: Mutex<Option<Child>>,
}

/// What a [`Server`] is started with; made by [`Server::builder`].
#[derive(Clone, Debug, Default)]
pub struct Builder {
    program: Option<Program>,
    args: Vec<String>,
    tcp: bool,
    tls: bool,
    client_certificates: bool,
    /// What it monitors, if it is a sentinel.
    monitored: Option<String>,
}

impl Builder {
    /// Whether the server also listens on a TCP port of 127.0.0.1 and [`Server::url`] names that. Off by default.
    #[must_use]
    pub fn tcp(mut self, tcp: bool) -> Self {
        self.tcp = tcp;
        self
    }

    /// Whether the TCP port speaks TLS, with a certificate of [`Server::authority`]. Off by default.
    #[must_use]
    pub fn tls(mut self, tls: bool) -> Self {
        self.tls = tls;
        self
    }

    /// Whether clients need a certificate of [`Server::authority`]. Off by default.
    #[must_use]
    pub fn client_certificates(mut self, client_certificates: bool) -> Self {
        self.client_certificates = client_certificates;
        self
    }

    /// Makes it a sentinel, by the text of its file.
    #[must_use]
    pub fn sentinel(mut self, monitored: impl Into<String>) -> Self {
        self.monitored = Some(monitored.into());
        self
    }

    /// More arguments for the server's command line, such as `["--maxmemory", "1mb"]`; later ones win.
    #[must_use]
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// The program to run; without this call [`Program::default`], or with TLS [`Program::with_tls`].
    #[must_use]
    pub fn program(mut self, program: Program) -> Self {
        self.program = Some(program);
        self
    }

    /// Starts the server and waits until it answers.
    #[must_use]
    pub fn start(mut self) -> Server {
        if self.program.is_none() {
            self.program = Some(if self.tls {
                Program::with_tls().expect("no server with TLS: install redis-server, or ask Program::with_tls first")
            } else {
                Program::default()
            });
        }
        let dir = tempfile::Builder::new().prefix("redlock-").tempdir().expect("a temporary directory can be made");
        let authority = self.tls.then(|| Authority::make(dir.path()));
        let with_port = self.tcp || self.tls;
        let mut server = Server { setup: self, dir, port: None, authority, child: Mutex::default() };
        for _ in 0..PORT_ATTEMPTS {
            server.port = with_port.then(|| ports::port(&ports::listen()));
            if server.launch() == Launch::Ready {
                return server;
            }
        }
        panic!("the server found every port in use:\n{}", server.log());
    }
}

#[derive(PartialEq, Eq)]
enum Launch {
    Ready,
    PortInUse,
}

impl Server {
    /// Starts a server with the defaults: unix socket only, nothing kept on disk.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// What to start it with.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The address for the code under test: `unix:///…/redis.sock`, `redis://127.0.0.1:port/` or `rediss://…`.
    #[must_use]
    pub fn url(&self) -> String {
        match self.port {
            Some(port) => format!("{}://127.0.0.1:{port}/", if self.setup.tls { "rediss" } else { "redis" }),
            None => format!("unix://{}", self.socket().display()),
        }
    }

    /// The TCP port; panics where the server has none.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.expect("this server has no TCP port: start it with .tcp(true)")
    }

    /// The unix socket, which every server has.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("redis.sock")
    }

    /// The directory of its socket, log, certificates and data.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The certificates of a server with TLS; panics for one without.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        self.authority.as_ref().expect("this server has no TLS: start it with .tls(true)")
    }

    /// The program it runs.
    #[must_use]
    pub fn program(&self) -> &Program {
        self.setup.program.as_ref().expect("start() chose one")
    }

    /// Stops the process without ending it (SIGSTOP): connections stay open, nothing is answered. Returns when it
    /// has stopped.
    pub fn freeze(&self) {
        let pid = self.process();
        kill_process(pid, Signal::STOP).expect("our own child can be stopped");
        // NOWAIT: should the process have died instead, its end is still there for `kill` to collect.
        let states = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(pid), states).expect("our own child can be waited for");
    }

    /// Lets a frozen server go on (SIGCONT), with everything that arrived in between.
    pub fn thaw(&self) {
        kill_process(self.process(), Signal::CONT).expect("our own child can be continued");
    }

    /// Ends the process at once (SIGKILL) and waits for its end. Its data is gone.
    pub fn kill(&self) {
        if let Some(mut child) = self.child().take() {
            // The only error is that it has ended already.
            let _ = child.kill();
            child.wait().expect("our own child can be waited for");
        }
    }

    /// Starts it again on the same socket, port and directory; kills it first if it runs.
    pub fn restart(&self) {
        self.kill();
        let end = Instant::now() + LIMIT;
        while self.launch() == Launch::PortInUse {
            assert!(Instant::now() < end, "somebody else took port {}:\n{}", self.port(), self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills it, deletes what it kept on disk and starts it again, empty.
    pub fn wipe(&self) {
        self.kill();
        fs::remove_dir_all(self.data()).expect("our own directory can be removed");
        self.restart();
    }

    /// What the server has written so far, over all its starts.
    #[must_use]
    pub fn log(&self) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// A plain blocking connection for the test's own questions; waits until the server accepts one.
    #[must_use]
    pub fn connect(&self) -> redis::Connection {
        let end = Instant::now() + LIMIT;
        loop {
            match self.open() {
                Ok(connection) => return connection,
                Err(error) if Instant::now() > end => panic!("cannot connect: {error}\n{}", self.log()),
                Err(_) => thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    /// Runs one command over a connection of its own; panics with the server's log when it fails.
    pub fn command(&self, command: &[impl AsRef<[u8]>]) -> Value {
        self.try_command(command).unwrap_or_else(|error| {
            let words: Vec<_> = command.iter().map(|word| String::from_utf8_lossy(word.as_ref())).collect();
            panic!("{}: {error}\nlog of the server:\n{}", words.join(" "), self.log())
        })
    }

    /// Ends the connections of all clients but the one that asks for this.
    pub fn end_connections(&self) {
        self.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    }

    /// How many scripts the server has been asked to run, by their text or their hash.
    #[must_use]
    pub fn scripts_asked(&self) -> u64 {
        self.asked(&["eval", "evalsha"])
    }

    /// How many of these commands the server has been sent, or has run in scripts.
    #[must_use]
    pub fn asked(&self, commands: &[&str]) -> u64 {
        let stats: String = redis::from_redis_value(self.command(&["INFO", "commandstats"])).expect("a text");
        let calls = |line: &str| {
            let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            rest.split(',').next()?.parse::<u64>().ok().filter(|_| commands.contains(&command))
        };
        stats.lines().filter_map(calls).sum()
    }

    /// A number of this name among the server's statistics.
    #[must_use]
    pub fn counted(&self, name: &str) -> u64 {
        let stats: String = redis::from_redis_value(self.command(&["INFO", "stats"])).expect("a text");
        let number = |line: &str| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok();
        stats.lines().find_map(number).expect("a statistic of this name")
    }

    /// Runs one command over a connection of its own: at once, without waiting for a server that is down.
    pub fn try_command(&self, command: &[impl AsRef<[u8]>]) -> RedisResult<Value> {
        let (name, args) = command.split_first().expect("a command has a name");
        let mut request = redis::cmd(&String::from_utf8_lossy(name.as_ref()));
        for arg in args {
            request.arg(arg.as_ref());
        }
        request.query(&mut self.open()?)
    }

    /// The value of a string key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        let value = self.command(&[b"GET", key.as_ref()]);
        Option::from_redis_value(value).expect("GET answers a string or nothing")
    }

    fn open(&self) -> RedisResult<redis::Connection> {
        let info = redis::ConnectionAddr::Unix(self.socket()).into_connection_info()?;
        let connection = redis::Client::open(info)?.get_connection_with_timeout(LIMIT)?;
        connection.set_read_timeout(Some(LIMIT))?;
        connection.set_write_timeout(Some(LIMIT))?;
        Ok(connection)
    }

    /// Starts the process and waits until it answers; panics when it ends for another reason than its port.
    fn launch(&self) -> Launch {
        fs::create_dir_all(self.data()).expect("a directory can be made in our own");
        let log = OpenOptions::new().create(true).append(true).open(self.log_path()).expect("the log can be opened");
        let written = self.log().len();
        let mut child = spawner::spawn(self.command_line(log))
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", self.program().path().display()));
        let end = Instant::now() + LIMIT;
        while !answers(&self.socket()) {
            if let Some(status) = child.try_wait().expect("our own child can be waited for") {
                let log = &self.log()[written..];
                assert!(self.port.is_some() && log.contains("in use"), "the server ended with {status}:\n{log}");
                return Launch::PortInUse;
            }
            if Instant::now() > end {
                let _ = child.kill();
                let _ = child.wait();
                panic!("the server did not answer within {LIMIT:?}:\n{}", self.log());
            }
            thread::sleep(Duration::from_millis(2));
        }
        *self.child() = Some(child);
        Launch::Ready
    }

    fn command_line(&self, log: File) -> Command {
        let mut command = Command::new(self.program().path());
        if let Some(monitored) = &self.setup.monitored {
            // A sentinel writes what it learns into its file.
            let file = self.data().join("sentinel.conf");
            if !file.exists() {
                fs::write(&file, monitored).expect("a file can be written in our own directory");
            }
            command.arg(file);
        }
        let (tcp, tls) = if self.setup.tls { (None, self.port) } else { (self.port, None) };
        command
            .args(["--daemonize", "no", "--save", "", "--bind", "127.0.0.1"])
            .args(["--port", &tcp.unwrap_or(0).to_string()])
            .args(["--unixsocket".as_ref(), self.socket().as_os_str()])
            .args(["--dir".as_ref(), self.data().as_os_str()]);
        if let (Some(port), Some(authority)) = (tls, &self.authority) {
            command
                .args(["--tls-port", &port.to_string()])
                .args(["--tls-auth-clients", if self.setup.client_certificates { "yes" } else { "no" }])
                .args(["--tls-cert-file".as_ref(), authority.certificate().as_os_str()])
                .args(["--tls-key-file".as_ref(), authority.key().as_os_str()])
                .args(["--tls-ca-cert-file".as_ref(), authority.ca().as_os_str()]);
        }
        if self.setup.monitored.is_some() {
            command.arg("--sentinel");
        }
        command.args(&self.setup.args);
        let errors = log.try_clone().expect("an open file can be shared");
        command.stdin(Stdio::null()).stdout(log).stderr(errors).current_dir(self.dir.path());
        command
    }

    fn process(&self) -> Pid {
        Pid::from_child(self.child().as_ref().expect("the server is not running"))
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("log")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The addresses of servers, in their order.
pub fn urls<'a>(servers: impl IntoIterator<Item = &'a Server>) -> Vec<String> {
    servers.into_iter().map(Server::url).collect()
}

/// Starts `n` servers at the same time.
#[must_use]
pub fn cluster(n: usize) -> Vec<Server> {
    thread::scope(|scope| {
        let starts: Vec<_> = (0..n).map(|_| scope.spawn(Server::start)).collect();
        starts.into_iter().map(|start| start.join().expect("every server starts")).collect()
    })
}

/// Whether the server at `socket` answers a PING with anything but "still loading"; "who are you" counts too.
fn answers(socket: &Path) -> bool {
    let ask = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 64];
        let n = stream.read(&mut answer)?;
        std::io::Result::Ok(n > 0 && !answer.starts_with(b"-LOADING"))
    };
    ask().unwrap_or(false)
}
