//! The limit: a socket without a library.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use redlock_bench_worker::{Args, Failure, Tally, Until, answer_each, cpu_ns, now_ns};
use serde_json::{Value, json};

/// Compare and delete, as every client of the plain protocol does it.
const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

const TOKEN: &str = "00112233445566778899aabbccddeeff";

/// How long a server may be silent before the benchmark gives up.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers `pairs`, the only op of a socket: `SET NX PX`, and compare and delete, the least that a lock needs.
pub(crate) fn serve(args: &Args) -> Result<(), Failure> {
    let mut bare = Bare::connect(&args.urls, args.ttl_ms)?;
    answer_each(&json!({"ready": {"version": null}}), |request| match request["op"].as_str() {
        Some("pairs") => bare.pairs(request),
        op => Err(format!("a bare socket does not do this: {op:?}").into()),
    })
}

/// One connection to each node.
struct Bare {
    nodes: Vec<Socket>,
    ttl_ms: String,
    release: String,
}

impl Bare {
    fn connect(urls: &[String], ttl_ms: u64) -> Result<Self, Failure> {
        let mut nodes = urls.iter().map(|url| Socket::connect(url)).collect::<Result<Vec<_>, _>>()?;
        let mut release = String::new();
        for node in &mut nodes {
            release = node.ask(&["SCRIPT", "LOAD", RELEASE])?;
        }
        Ok(Self { nodes, ttl_ms: ttl_ms.to_string(), release })
    }

    /// Acquires and releases the locks of all names at once, repeatedly.
    fn pairs(&mut self, request: &Value) -> Result<Value, Failure> {
        let names: Vec<String> = serde_json::from_value(request["names"].clone())?;
        let until = Until::of(request, names.len())?;
        let acquire = |name| command(&["SET", name, TOKEN, "NX", "PX", &self.ttl_ms]);
        let release = |name| command(&["EVALSHA", &self.release, "1", name, TOKEN]);
        let acquires: Vec<_> = names.iter().map(|name| acquire(name)).collect();
        let releases: Vec<_> = names.iter().map(|name| release(name)).collect();
        let mut tally = Tally::default();
        let (begun_ns, cpu) = (now_ns(), cpu_ns());
        while until.goes_on(tally.count / names.len() as u64) {
            let asked_ns = now_ns();
            self.exchange(&acquires, b"+OK\r\n")?;
            self.exchange(&releases, b":1\r\n")?;
            for _ in &names {
                tally.add_since(asked_ns);
            }
        }
        Ok(tally.json(now_ns() - begun_ns, cpu_ns() - cpu))
    }

    /// Every node is sent all commands before the first reply is read; each reply has to be this one.
    fn exchange(&mut self, commands: &[Vec<u8>], reply: &[u8]) -> Result<(), Failure> {
        let bytes = commands.concat();
        for node in &mut self.nodes {
            node.0.write_all(&bytes)?;
        }
        let expected = reply.repeat(commands.len());
        let mut replies = vec![0; expected.len()];
        for node in &mut self.nodes {
            node.0.read_exact(&mut replies)?;
            if replies != expected {
                return Err(format!("a node answered {:?}", String::from_utf8_lossy(&replies)).into());
            }
        }
        Ok(())
    }
}

fn command(arguments: &[&str]) -> Vec<u8> {
    let bulk = |argument: &&str| format!("${}\r\n{argument}\r\n", argument.len());
    let bulks: String = arguments.iter().map(bulk).collect();
    format!("*{}\r\n{bulks}", arguments.len()).into_bytes()
}

struct Socket(TcpStream);

impl Socket {
    fn connect(address: &str) -> Result<Self, Failure> {
        let host = address.strip_prefix("redis://").ok_or_else(|| format!("no plain address: {address}"))?;
        let stream = TcpStream::connect(host.trim_end_matches('/'))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(stream))
    }

    /// Sends a command whose reply is a bulk string and reads that; not for measured loops.
    fn ask(&mut self, arguments: &[&str]) -> Result<String, Failure> {
        self.0.write_all(&command(arguments))?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte)?;
            head.extend(byte);
        }
        let head = String::from_utf8(head)?;
        let length = head.strip_prefix('$').ok_or_else(|| format!("{arguments:?}: {}", head.trim_end()))?;
        let mut body = vec![0; length.trim_end().parse::<usize>()? + 2];
        self.0.read_exact(&mut body)?;
        body.truncate(body.len() - 2);
        Ok(String::from_utf8(body)?)
    }
}
