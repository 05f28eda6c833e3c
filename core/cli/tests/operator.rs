//! The commands for operators, by the real program on real servers: which right is missing, and names that are not for the
//! eye.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::process::{Command, Output};

use harness::Server;
use serde_json::Value;

/// What the program wrote, and its exit status.
struct Ended {
    status: i32,
    out: String,
    err: String,
}

impl Ended {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {} {}", self.out, self.err))
    }

    #[track_caller]
    fn expect(self, status: i32) -> Self {
        assert_eq!(self.status, status, "{}{}", self.out, self.err);
        assert!(self.err.lines().all(|line| line.starts_with("redlock: ")), "{}", self.err);
        self
    }
}

/// Runs the program.
fn run(urls: &[String], args: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
    command.args(args).env("REDLOCK_URLS", urls.join(",")).env("RUST_BACKTRACE", "0");
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { status: status.code().unwrap(), out: text(stdout), err: text(stderr) }
}

/// The names in the answer of `list`.
fn names(ended: &Ended) -> Vec<String> {
    let document = ended.json();
    let locks = document["locks"].as_array().unwrap().iter();
    locks.map(|lock| lock["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn rights_that_are_missing_are_named() {
    let all = "+eval +evalsha +get +set +del +pexpire +pttl +time +incr +getex +getdel +type +zadd +zrem +zrange +zscore \
               +zremrangebyscore +zcount +info +client|tracking +scan";
    let with = |rights: &str| {
        let server = Server::start();
        let rules = format!("on >S3CR3T resetkeys ~* resetchannels nocommands {rights}");
        let mut command = vec!["ACL", "SETUSER", "operator"];
        command.extend(rules.split(' '));
        server.command(&command);
        server.command(&["SET", "job", &format!("{}:17:web-3", "a".repeat(32)), "PX", "60000"]);
        server.command(&["SET", "redlock:fence:{job}", "17", "PX", "60000"]);
        let url = format!("{}?user=operator&pass=S3CR3T", server.url());
        (server, vec![url])
    };
    let release = ["release", "job", "--force", "--yes"];
    let (_server, urls) = with(all);
    run(&urls, &["status", "job"]).expect(0);
    assert_eq!(names(&run(&urls, &["list", "--json"]).expect(0)), ["job"]);
    run(&urls, &["check"]).expect(0);
    run(&urls, &release).expect(0);
    for (right, args) in [
        ("+get", &["status", "job"][..]),
        ("+get", &["list"]),
        ("+pttl", &["wait", "job"]),
        ("+scan", &["list"]),
        ("+get", &release),
        ("+del", &release),
        ("+eval", &release),
    ] {
        let others: Vec<_> = all.split(' ').filter(|other| *other != right).collect();
        let (server, urls) = with(&others.join(" "));
        let ended = run(&urls, args).expect(77);
        assert!(ended.err.contains(&format!("grant {right}")), "{right}: {}", ended.err);
        assert!(!format!("{}{}", ended.out, ended.err).contains("S3CR3T"));
        assert!(server.get("job").is_some());
    }
    let (_server, urls) = with(all);
    let wrong = [urls[0].replace("S3CR3T", "0TH3R")];
    for args in [&["status", "job"][..], &["list"], &release] {
        let ended = run(&wrong, args).expect(77);
        assert!(ended.err.contains("WRONGPASS") && !ended.err.contains("0TH3R"), "{}", ended.err);
    }
    let check = run(&wrong, &["check"]).expect(2);
    assert!(check.out.contains("WRONGPASS") && !check.out.contains("0TH3R"), "{}", check.out);
}

#[test]
fn names_and_labels_that_are_not_for_the_eye() {
    let server = Server::start();
    let urls = [server.url()];
    let name = b"a\n\x1b[2J\xff\"b";
    server.command(&[&b"SET"[..], name, format!("{}:17:x\x1b[31m", "a".repeat(32)).as_bytes()]);
    server.command(&[&b"SET"[..], &[b"redlock:fence:{", &name[..], b"}"].concat(), b"17"]);
    let list = run(&urls, &["list"]).expect(0).out;
    assert!(list.contains("a\\n\\u{1b}[2J\u{fffd}\"b") && !list.contains('\x1b'), "{list:?}");
    assert!(list.contains("forever"), "{list:?}");
    assert_eq!(names(&run(&urls, &["list", "--json"]).expect(0)), ["a\n\x1b[2J\u{fffd}\"b"]);
    assert_eq!(names(&run(&urls, &["list", "--json", "--match", "a\n*[b-c]"]).expect(0)).len(), 1);
}
