//! The commands for operators, by the real program on real servers: what they show, what they end with, and that they
//! never show what could release a lock, or log in.

use std::fmt::Write;
use std::process::{Command, Output};
use std::time::Duration;

use harness::redis::Value as Answer;
use harness::{Sentinels, Server, Shards, all_have};
use redlock::{LostReason, Redlock, blocking};
use serde_json::Value;

const TTL: Duration = Duration::from_secs(60);

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

fn urls(servers: &[Server]) -> Vec<String> {
    servers.iter().map(Server::url).collect()
}

fn client(urls: &[String]) -> blocking::Redlock {
    Redlock::builder().nodes(urls).ttl(TTL).build().unwrap().into()
}

/// The names in the answer of `list`.
fn names(ended: &Ended) -> Vec<String> {
    let document = ended.json();
    let locks = document["locks"].as_array().unwrap().iter();
    locks
        .map(|lock| {
            let mut name = lock["name"].as_str().unwrap().to_owned();
            if let Some(slot) = lock["slot"].as_u64() {
                write!(name, "/{slot}").unwrap();
            }
            name
        })
        .collect()
}

#[test]
fn a_lock_from_its_holder_to_its_end() {
    let servers = harness::cluster(3);
    let urls = urls(&servers);
    let redlock = client(&urls);
    run(&urls, &["status", "job"]).expect(1);
    run(&urls, &["wait", "job"]).expect(0);
    assert!(names(&run(&urls, &["list", "--json"]).expect(0)).is_empty());

    let guard = redlock.lock("job").label("web-3").acquire().unwrap();
    let other = redlock.semaphore("pool", 2).acquire().unwrap();
    let slot = other.slot().unwrap();
    all_have(&servers, "job");
    let status = run(&urls, &["status", "job", "--json"]).expect(0).json();
    let lock = &status["locks"][0];
    assert_eq!((lock["state"].as_str(), lock["label"].as_str()), (Some("held"), Some("web-3")));
    assert_eq!((lock["fence"].as_u64(), lock["holders"].as_u64()), (Some(guard.fence()), Some(3)));
    assert_eq!((lock["quorum"].as_u64(), lock["slot"].as_u64()), (Some(2), None));
    assert!(lock["ttl_left_ms"].as_u64().unwrap() > 0);
    assert!(lock["since"].as_str().unwrap().ends_with('Z') && lock["until"].as_str() > lock["since"].as_str());
    assert_eq!(lock["nodes"][2]["fence"].as_u64(), Some(guard.fence()));
    let text = run(&urls, &["status", "job"]).expect(0).out;
    assert!(text.starts_with("job: held on 3 of 3 nodes\n  holder   web-3\n"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80 || line.contains("unix://")), "{text}");
    assert_eq!(names(&run(&urls, &["list", "--json"]).expect(0)), ["job", &format!("pool/{slot}")]);
    assert_eq!(names(&run(&urls, &["list", "--json", "--match", "j?b"]).expect(0)), ["job"]);
    run(&urls, &["status", "pool", "--permits", "1"]).expect(i32::from(slot != 0));
    run(&urls, &["status", "pool", "--permits", "2"]).expect(1);
    let held = run(&urls, &["wait", "job", "-w", "300ms"]).expect(75);
    assert!(held.err.contains("still held after 300 ms"), "{}", held.err);
    assert_eq!(run(&urls, &["wait", "job", "-q", "-w", "0"]).expect(75).err, "");

    run(&urls, &["release", "job"]).expect(64);
    run(&urls, &["release", "job", "--force"]).expect(64);
    run(&urls, &["release", "job", "--force", "--slot", "32"]).expect(64);
    let released = run(&urls, &["release", "job", "--force", "--yes"]).expect(0);
    assert!(released.out.starts_with("job: held on 3 of 3 nodes\n"), "{}", released.out);
    assert!(released.out.ends_with("job: released on 3 of 3 nodes\n"), "{}", released.out);
    run(&urls, &["release", "job", "--force", "--yes"]).expect(1);
    assert_eq!(guard.extend().unwrap_err().reason(), Some(LostReason::Deleted));
    let slot = slot.to_string();
    run(&urls, &["release", "pool", "--slot", &slot, "--force", "--yes"]).expect(0);
    assert!(names(&run(&urls, &["list", "--json"]).expect(0)).is_empty());
    assert_eq!(names(&run(&urls, &["list", "--json", "--all", "--match", "job"]).expect(0)), ["job"]);
}

#[test]
fn nodes_that_are_down_or_frozen() {
    let servers = harness::cluster(3);
    let urls = urls(&servers);
    let guard = client(&urls).lock("job").acquire().unwrap();
    all_have(&servers, "job");
    servers[0].freeze();
    let status = run(&urls, &["status", "job", "--json", "--connect-timeout", "300ms"]).expect(0).json();
    assert_eq!(status["locks"][0]["holders"].as_u64(), Some(2));
    assert_eq!(status["locks"][0]["nodes"][0]["state"].as_str(), Some("unavailable"));
    let list = run(&urls, &["list", "--connect-timeout", "300ms"]).expect(0);
    assert!(list.err.contains("was not scanned: no answer"), "{}", list.err);
    servers[1].kill();
    for command in [&["status", "job"][..], &["wait", "job"], &["list"], &["release", "job", "--force", "--yes"]] {
        let ended = run(&urls, &[command, &["--connect-timeout", "300ms"]].concat()).expect(69);
        assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    }
    let list = run(&urls, &["list", "--json", "--connect-timeout", "300ms"]).expect(69).json();
    assert_eq!((list["complete"].as_bool(), list["unscanned"].as_array().map(Vec::len)), (Some(false), Some(2)));
    let check = run(&urls, &["check", "--json", "--connect-timeout", "300ms"]).expect(2).json();
    assert_eq!(check["level"].as_str(), Some("unusable"));
    servers[0].thaw();
    assert!(servers[2].get("job").is_some(), "nothing was released without a quorum");
    drop(guard);
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
fn a_cluster_with_a_slot_on_its_way() {
    let shards = Shards::start(3, 0);
    let urls = [shards.url()];
    let redlock = client(&urls);
    let all: Vec<String> = (0..30).map(|number| format!("job:{number:02}")).collect();
    let guards: Vec<_> = all.iter().map(|name| redlock.lock(name).acquire().unwrap()).collect();
    let pool = redlock.semaphore("pool", 1).acquire().unwrap();
    let owners: std::collections::BTreeSet<_> = all.iter().map(|name| shards.owner(name).port()).collect();
    assert_eq!(owners.len(), 3, "each primary has some");
    let found = names(&run(&urls, &["list", "--json"]).expect(0));
    assert_eq!(found, [&all[..], &["pool/0".to_owned()]].concat());
    let name = all[0].as_str();
    let (from, to) = (shards.owner(name), shards.other(name));
    shards.open(name, from, to);
    run(&urls, &["status", name]).expect(0);
    shards.move_all(name, from, to);
    run(&urls, &["status", name]).expect(0);
    run(&urls, &["wait", name, "-w", "0"]).expect(75);
    run(&urls, &["release", name, "--force", "--yes"]).expect(0);
    shards.close(name, from, to);
    run(&urls, &["status", name]).expect(1);
    run(&urls, &["release", "pool", "--slot", "0", "--force", "--yes"]).expect(0);
    run(&urls, &["check"]).expect(1);
    drop((guards, pool));
}

#[test]
fn a_primary_that_sentinels_name() {
    let all = Sentinels::start();
    let urls = [all.url()];
    let guard = client(&urls).lock("job").acquire().unwrap();
    assert_eq!(names(&run(&urls, &["list", "--json"]).expect(0)), ["job"]);
    run(&urls, &["status", "job"]).expect(0);
    run(&urls, &["release", "job", "--force", "--yes"]).expect(0);
    run(&urls, &["wait", "job"]).expect(0);
    assert_eq!(guard.extend().unwrap_err().reason(), Some(LostReason::Deleted));
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

#[test]
fn nothing_shows_a_token() {
    let servers = harness::cluster(3);
    let urls = urls(&servers);
    let redlock = client(&urls);
    let (guard, slot) = (redlock.lock("job").acquire().unwrap(), redlock.semaphore("pool", 1).acquire().unwrap());
    all_have(&servers, "job");
    all_have(&servers, "redlock:slot:0:{pool}");
    servers[0].command(&["SET", "theirs", "S3CR3T-value"]);
    let value = |key: &str| String::from_utf8(servers[0].get(key).unwrap()).unwrap();
    let secrets = [value("job")[..8].to_owned(), value("redlock:slot:0:{pool}")[..8].to_owned(), "S3CR3T".to_owned()];
    let one = urls[0].as_str();
    for args in [
        &["status", "job", "theirs"][..],
        &["status", "job", "theirs", "--json"],
        &["status", "pool", "--permits", "1"],
        &["list", "--all"],
        &["list", "--json"],
        &["wait", "job", "-w", "0"],
        &["check"],
        &["release", "job", "--force", "--yes"],
        &["release", "pool", "--slot", "0", "--force", "--yes"],
        &["release", "theirs", "--force", "--yes", "--node", one],
    ] {
        let Ended { out, err, .. } = run(&urls, args);
        assert!(!secrets.iter().any(|secret| out.contains(secret) || err.contains(secret)), "{args:?}: {out}{err}");
    }
    assert!(matches!(servers[0].command(&["EXISTS", "job", "theirs"]), Answer::Int(0)));
    drop((guard, slot));
}
