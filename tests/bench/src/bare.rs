//! The limit: sockets without a library.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::Failure;

/// Compare and delete, as every client of the plain protocol does it.
const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

const TOKEN: &str = "00112233445566778899aabbccddeeff";

/// How long a server may be silent before the benchmark gives up.
const PATIENCE: Duration = Duration::from_secs(5);

/// One connection to each node, and the two commands of a pair, ready to be sent.
pub(crate) struct Bare {
    nodes: Vec<Socket>,
    acquire: Vec<u8>,
    release: Vec<u8>,
}

impl Bare {
    /// Connects to every address (as [`crate::faces::Route::address`] writes it).
    pub(crate) fn connect(addresses: &[String], key: &str) -> Result<Self, Failure> {
        let mut nodes = addresses.iter().map(|address| Socket::connect(address)).collect::<Result<Vec<_>, _>>()?;
        let mut digest = String::new();
        for node in &mut nodes {
            digest = node.ask(&["SCRIPT", "LOAD", RELEASE])?;
        }
        let acquire = command(&["SET", key, TOKEN, "NX", "PX", "10000"]);
        let release = command(&["EVALSHA", &digest, "1", key, TOKEN]);
        Ok(Self { nodes, acquire, release })
    }

    /// Takes and gives back the lock: every node is sent a command before the first reply is read.
    pub(crate) fn pair(&mut self) -> Result<(), Failure> {
        for (request, reply) in [(&self.acquire, &b"+OK\r\n"[..]), (&self.release, b":1\r\n")] {
            for node in &mut self.nodes {
                node.write_all(request)?;
            }
            for node in &mut self.nodes {
                node.expect(reply)?;
            }
        }
        Ok(())
    }

    /// What the first node says it is: `Redis 7.0.15`.
    pub(crate) fn version(&mut self) -> Result<String, Failure> {
        let info = self.nodes.first_mut().ok_or("no node")?.ask(&["INFO", "server"])?;
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        match (field("valkey_version:"), field("redis_version:")) {
            (Some(version), _) => Ok(format!("Valkey {version}")),
            (None, Some(version)) => Ok(format!("Redis {version}")),
            (None, None) => Err("the server does not say its version".into()),
        }
    }
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

    /// Reads one short reply, which has to be this one.
    fn expect(&mut self, reply: &[u8]) -> Result<(), Failure> {
        let mut buffer = [0; 64];
        let start = &mut buffer[..reply.len()];
        self.read_exact(start)?;
        if start == reply {
            return Ok(());
        }
        let more = self.read(&mut buffer[reply.len()..])?;
        let said = String::from_utf8_lossy(&buffer[..reply.len() + more]);
        Err(format!("a node answered {said:?} instead of {:?}", String::from_utf8_lossy(reply)).into())
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
