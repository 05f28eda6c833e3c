//! The limit: sockets without a library.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use redlock_bench_worker::{Args, Failure, Tally, Until, answer_each, cold, cpu_ns, now_ns, wall_us};
use serde_json::{Value, json};

/// Compare and delete, as every client of the plain protocol does it.
const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// The library's own acquire.
const ACQUIRE: &str = include_str!("../../../core/src/protocol/lua/acquire.lua");

/// The scripts for comparison: a plainly written fence, and no fence.
const FENCED: &str = include_str!("fenced.lua");
const SET: &str = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])";

/// The ttl that the library's acquire knows by itself.
const USUAL_TTL_MS: &str = "10000";

const TOKEN: &str = "00112233445566778899aabbccddeeff";

/// How far a proposed fence may be from the server's clock, in microseconds, and how long a node remembers a fence.
const SLACK_US: &str = "60000000";
const FENCE_TTL_MS: &str = "3600000";

/// How long a server may be silent before the benchmark gives up.
const PATIENCE: Duration = Duration::from_secs(5);

/// The commands that acquire and release a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Plan {
    /// `SET NX PX`, and compare and delete: the least that a lock over this network needs.
    Plain,
    /// The library's own scripts, with the fence: the rest of a face's ratio is then the library's own cost.
    Ours,
}

/// Answers `pairs` and `script`, the only ops of a socket, or starts cold.
pub(crate) fn serve(args: &Args, begun_ns: u64, plan: Plan) -> Result<(), Failure> {
    let mut bare = Bare::connect(&args.urls, plan, args.ttl_ms)?;
    if args.cold {
        let (acquire, release) = bare.pair("bench:cold");
        bare.exchange(&[acquire], bare.granted)?;
        cold(begun_ns)?;
        return bare.exchange(&[release], DELETED);
    }
    answer_each(&json!({"ready": {"version": null}}), |request| match request["op"].as_str() {
        Some("pairs") => bare.pairs(request),
        Some("script") => bare.script(request),
        op => Err(format!("a bare socket does not do this: {op:?}").into()),
    })
}

/// The reply to a release of what was held.
const DELETED: &[&[u8]] = &[b":1\r\n"];

/// One connection to each node.
struct Bare {
    nodes: Vec<Socket>,
    plan: Plan,
    ttl_ms: String,
    acquire: String,
    release: String,
    /// How the reply to an acquire that got the lock begins.
    granted: &'static [&'static [u8]],
}

impl Bare {
    fn connect(urls: &[String], plan: Plan, ttl_ms: u64) -> Result<Self, Failure> {
        let mut nodes = urls.iter().map(|url| Socket::connect(url)).collect::<Result<Vec<_>, _>>()?;
        let (mut acquire, mut release) = (String::new(), String::new());
        for node in &mut nodes {
            match plan {
                Plan::Plain => release = node.ask(&["SCRIPT", "LOAD", RELEASE])?,
                Plan::Ours => {
                    acquire = node.ask(&["SCRIPT", "LOAD", ACQUIRE])?;
                    release =
                        node.ask(&["SCRIPT", "LOAD", include_str!("../../../core/src/protocol/lua/release.lua")])?;
                }
            }
        }
        let granted: &[&[u8]] = match plan {
            Plan::Plain => &[b"+OK\r\n"],
            Plan::Ours => &[b":"],
        };
        Ok(Self { nodes, plan, ttl_ms: ttl_ms.to_string(), acquire, release, granted })
    }

    /// The two commands for a name.
    fn pair(&self, name: &str) -> (Vec<u8>, Vec<u8>) {
        let release = command(&["EVALSHA", &self.release, "1", name, TOKEN]);
        let acquire = match self.plan {
            Plan::Plain => command(&["SET", name, TOKEN, "NX", "PX", &self.ttl_ms]),
            // The proposal is by the clock of the node, because an accepted proposal costs the node as much.
            Plan::Ours => fenced(&self.acquire, name, TOKEN, &ours("bench:1", &self.ttl_ms)),
        };
        (acquire, release)
    }

    /// Acquires and releases the locks of all names at once, repeatedly.
    fn pairs(&mut self, request: &Value) -> Result<Value, Failure> {
        let names: Vec<String> = serde_json::from_value(request["names"].clone())?;
        let until = Until::of(request, names.len())?;
        let (acquires, releases): (Vec<_>, Vec<_>) = names.iter().map(|name| self.pair(name)).unzip();
        let mut tally = Tally::default();
        let (begun_ns, cpu) = (now_ns(), cpu_ns());
        while until.goes_on(tally.count / names.len() as u64) {
            let asked_ns = now_ns();
            self.exchange(&acquires, self.granted)?;
            self.exchange(&releases, DELETED)?;
            for _ in &names {
                tally.add_since(asked_ns);
            }
        }
        Ok(tally.json(now_ns() - begun_ns, cpu_ns() - cpu))
    }

    /// Acquires the locks of all names at once by one of three scripts, and deletes them without any.
    fn script(&mut self, request: &Value) -> Result<Value, Failure> {
        let names: Vec<String> = serde_json::from_value(request["names"].clone())?;
        let which = request["script"].as_str();
        let (text, reply): (_, &[&[u8]]) = match which {
            Some("ours") => (ACQUIRE, &[b":"]),
            Some("fenced") => (FENCED, &[b"*2\r\n", b":1\r\n", b":"]),
            Some("set") => (SET, &[b"+OK\r\n"]),
            _ => return Err(format!("no such script: {which:?}").into()),
        };
        let mut sha = String::new();
        for node in &mut self.nodes {
            sha = node.ask(&["SCRIPT", "LOAD", text])?;
        }
        let acquire = |name| match text {
            SET => command(&["EVALSHA", &sha, "1", name, TOKEN, &self.ttl_ms]),
            // The server accepts these proposals as they are.
            FENCED => fenced(&sha, name, TOKEN, &[&self.ttl_ms, &wall_us().to_string(), SLACK_US, FENCE_TTL_MS]),
            _ => fenced(&sha, name, &format!("{TOKEN}:{}", wall_us()), &ours("", &self.ttl_ms)),
        };
        let acquires: Vec<_> = names.iter().map(|name| acquire(name)).collect();
        let deletes: Vec<_> = names.iter().map(|name| command(&["DEL", name])).collect();
        self.exchange(&acquires, reply)?;
        self.exchange(&deletes, DELETED)?;
        Ok(json!({"count": names.len()}))
    }

    /// Every node is sent all commands before the first reply is read; the lines of each have to begin like this.
    fn exchange(&mut self, commands: &[Vec<u8>], reply: &[&[u8]]) -> Result<(), Failure> {
        let bytes = commands.concat();
        for node in &mut self.nodes {
            node.write_all(&bytes)?;
        }
        for node in &mut self.nodes {
            node.expect(commands.len(), reply)?;
        }
        Ok(())
    }
}

/// What the library sends behind the token: a ttl only if it is not the script's own.
fn ours<'a>(label: &'a str, ttl_ms: &'a str) -> Vec<&'a str> {
    let arguments = [label, if ttl_ms == USUAL_TTL_MS { "" } else { ttl_ms }];
    let sent = arguments.iter().rposition(|argument| !argument.is_empty()).map_or(0, |last| last + 1);
    arguments[..sent].to_vec()
}

/// An acquire with a fence; behind the token, or the value, stands what such a script needs.
fn fenced(sha: &str, name: &str, token: &str, needs: &[&str]) -> Vec<u8> {
    let fence_key = format!("redlock:fence:{{{name}}}");
    command(&[&["EVALSHA", sha, "2", name, &fence_key, token], needs].concat())
}

fn command(arguments: &[&str]) -> Vec<u8> {
    let bulk = |argument: &&str| format!("${}\r\n{argument}\r\n", argument.len());
    let bulks: String = arguments.iter().map(bulk).collect();
    format!("*{}\r\n{bulks}", arguments.len()).into_bytes()
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn connect(address: &str) -> Result<Self, Failure> {
        if let Some(path) = address.strip_prefix("unix://") {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            return Ok(Self::Unix(stream));
        }
        let host = address.strip_prefix("redis://").ok_or_else(|| format!("no plain address: {address}"))?;
        let stream = TcpStream::connect(host.trim_end_matches('/'))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self::Tcp(stream))
    }

    /// Reads so many replies of short lines, which have to begin like this.
    fn expect(&mut self, replies: usize, reply: &[&[u8]]) -> Result<(), Failure> {
        let mut buffer = [0; 4096];
        let (mut read, mut seen) = (0, 0);
        while seen < replies * reply.len() {
            match self.read(&mut buffer[read..])? {
                0 => return Err("a node ended its reply early".into()),
                more => read += more,
            }
            let whole = buffer[..read].iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
            for line in buffer[..whole].split_inclusive(|&byte| byte == b'\n') {
                let start = reply[seen % reply.len()];
                if !line.starts_with(start) {
                    let (said, start) = (String::from_utf8_lossy(line), String::from_utf8_lossy(start));
                    return Err(format!("a node answered {said:?} instead of {start:?}").into());
                }
                seen += 1;
            }
            buffer.copy_within(whole..read, 0);
            read -= whole;
        }
        Ok(())
    }

    /// Sends a command whose reply is a bulk string and reads that; not for measured loops.
    fn ask(&mut self, arguments: &[&str]) -> Result<String, Failure> {
        self.write_all(&command(arguments))?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n") {
            let mut byte = [0];
            self.read_exact(&mut byte)?;
            head.extend(byte);
        }
        let head = String::from_utf8(head)?;
        let length = head.strip_prefix('$').ok_or_else(|| format!("{arguments:?}: {}", head.trim_end()))?;
        let mut body = vec![0; length.trim_end().parse::<usize>()? + 2];
        self.read_exact(&mut body)?;
        body.truncate(body.len() - 2);
        Ok(String::from_utf8(body)?)
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
