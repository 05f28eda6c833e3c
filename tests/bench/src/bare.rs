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
    /// How the reply to an acquire that got the lock begins.
    granted: &'static [u8],
}

impl Bare {
    /// Connects to every address (as [`crate::faces::Route::address`] writes it), to send the plain protocol.
    pub(crate) fn connect(addresses: &[String], key: &str) -> Result<Self, Failure> {
        let mut nodes = addresses.iter().map(|address| Socket::connect(address)).collect::<Result<Vec<_>, _>>()?;
        let mut digest = String::new();
        for node in &mut nodes {
            digest = node.ask(&["SCRIPT", "LOAD", RELEASE])?;
        }
        let acquire = command(&["SET", key, TOKEN, "NX", "PX", "10000"]);
        let release = command(&["EVALSHA", &digest, "1", key, TOKEN]);
        Ok(Self { nodes, acquire, release, granted: b"+OK\r\n" })
    }

    /// As [`Bare::connect`], to send the library's own scripts, fence included: what is left of a face's ratio then is
    /// the library's own doing.
    pub(crate) fn scripted(addresses: &[String], key: &str) -> Result<Self, Failure> {
        let mut nodes = addresses.iter().map(|address| Socket::connect(address)).collect::<Result<Vec<_>, _>>()?;
        let (mut acquire, mut release) = (String::new(), String::new());
        for node in &mut nodes {
            acquire = node.ask(&["SCRIPT", "LOAD", include_str!("../../../core/src/lua/acquire.lua")])?;
            release = node.ask(&["SCRIPT", "LOAD", include_str!("../../../core/src/lua/release.lua")])?;
        }
        let fence_key = format!("redlock:fence:{{{key}}}");
        // A server raises a proposal that is too low, as a client's would be after the first time.
        let arguments = ["2", key, &fence_key, TOKEN, "10000", "1", "60000000", "3600000", "bench:1"];
        let acquire = command(&[&["EVALSHA", acquire.as_str()][..], &arguments].concat());
        let release = command(&["EVALSHA", &release, "1", key, TOKEN]);
        Ok(Self { nodes, acquire, release, granted: b":" })
    }

    /// Takes and gives back the lock: every node is sent a command before the first reply is read.
    pub(crate) fn pair(&mut self) -> Result<(), Failure> {
        for (request, reply) in [(&self.acquire, self.granted), (&self.release, b":1\r\n")] {
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

    /// Reads one short line, which has to begin like this.
    fn expect(&mut self, start: &[u8]) -> Result<(), Failure> {
        let mut buffer = [0; 64];
        let mut read = 0;
        while !buffer[..read].ends_with(b"\r\n") {
            match self.read(&mut buffer[read..])? {
                0 => return Err("a node ended its reply early".into()),
                more => read += more,
            }
        }
        if buffer[..read].starts_with(start) {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&buffer[..read]);
        Err(format!("a node answered {said:?} instead of {:?}", String::from_utf8_lossy(start)).into())
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
