//! The servers do what tests rely on.

use std::process::Command;
use std::time::{Duration, Instant};

use redlock_harness::{Program, Server, cluster, eventually, this_test};

#[test]
fn a_server_answers_on_its_unix_socket() {
    let server = Server::start();
    assert_eq!(server.url(), format!("unix://{}", server.socket().display()));
    server.command(&["SET", "a", "b"]);
    assert_eq!(server.get("a"), Some(b"b".to_vec()));
    assert_eq!(server.get("c"), None);
    assert!(server.log().contains("eady to accept connections"));
    assert!(server.try_command(&["NO-SUCH-COMMAND"]).is_err());
}

#[test]
fn a_server_answers_on_tcp_when_asked() {
    let server = Server::builder().tcp(true).start();
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}/", server.port()));
    assert!((20_000..30_000).contains(&server.port()));
    let client = redis::Client::open(server.url()).expect("the URL is valid");
    let mut connection = client.get_connection().expect("the server accepts");
    redis::cmd("SET").arg("a").arg("b").exec(&mut connection).expect("the server answers");
    assert_eq!(server.get("a"), Some(b"b".to_vec()));
}

#[test]
fn a_frozen_server_is_silent_until_it_thaws() {
    let server = Server::start();
    let mut connection = server.connect();
    server.freeze();
    assert!(server.running());
    connection.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout can be set");
    assert!(redis::cmd("PING").exec(&mut connection).is_err());
    server.thaw();
    server.command(&["PING"]);
    // A second time: nothing is left over from the first.
    server.freeze();
    server.thaw();
    server.command(&["PING"]);
    server.freeze();
    server.restart();
    server.command(&["PING"]);
}

#[test]
fn a_killed_server_comes_back_empty_on_the_same_address() {
    let server = Server::builder().tcp(true).start();
    let (url, pid) = (server.url(), server.pid());
    server.command(&["SET", "a", "b"]);
    server.kill();
    assert!(!server.running());
    assert!(server.try_command(&["PING"]).is_err());
    server.restart();
    assert_eq!((server.url(), server.get("a")), (url, None));
    assert_ne!(server.pid(), pid);
}

#[test]
fn a_persistent_server_keeps_its_data_until_it_is_wiped() {
    let server = Server::builder().persist(true).start();
    server.command(&["SET", "a", "b"]);
    server.kill();
    server.restart();
    assert_eq!(server.get("a"), Some(b"b".to_vec()));
    server.wipe();
    assert_eq!(server.get("a"), None);
}

#[test]
fn arguments_reach_the_server() {
    let server = Server::builder().args(["--maxmemory", "3mb"]).args(["--databases", "2"]).start();
    let answer = format!("{:?}", server.command(&["CONFIG", "GET", "maxmemory"]));
    assert!(answer.contains("3145728"), "{answer}");
    assert!(server.try_command(&["SELECT", "2"]).is_err());
}

#[test]
#[should_panic(expected = "no-such-directive")]
fn a_server_that_cannot_start_shows_its_log() {
    let _ = Server::builder().args(["--no-such-directive", "yes"]).start();
}

#[test]
fn servers_of_a_cluster_are_independent() {
    let servers = cluster(5);
    servers[0].command(&["SET", "a", "b"]);
    assert!(servers[1..].iter().all(|server| server.get("a").is_none()));
}

#[test]
fn ports_taken_by_others_are_passed_over() {
    let servers: Vec<Server> = (0..3).map(|_| Server::builder().tcp(true).start()).collect();
    let mut ports: Vec<u16> = servers.iter().map(Server::port).collect();
    ports.dedup();
    assert_eq!(ports.len(), 3);
}

#[test]
fn a_server_outlives_the_thread_that_started_it_but_not_its_owner() {
    let server = std::thread::spawn(Server::start).join().expect("the thread starts a server");
    server.command(&["PING"]);
    let pid = server.pid();
    let exists = || Command::new("kill").args(["-0", &pid.to_string()]).output().is_ok_and(|out| out.status.success());
    assert!(exists());
    drop(server);
    assert!(!exists());
}

/// Runs itself as a child that starts a server and is killed: no destructor gets a chance.
#[test]
#[cfg(target_os = "linux")]
fn a_server_dies_with_the_process_that_started_it() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    if std::env::var_os("REDLOCK_HARNESS_CHILD").is_some() {
        let server = Server::start();
        eprintln!("pid {}", server.pid());
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    // The killed child cannot clean up its directory, so it gets one inside ours.
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let mut child = this_test(module_path!(), "a_server_dies_with_the_process_that_started_it")
        .env("REDLOCK_HARNESS_CHILD", "1")
        .env("TMPDIR", dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a test can run itself");
    let errors = BufReader::new(child.stderr.take().expect("it is piped"));
    let pid = errors.lines().map_while(Result::ok).find_map(|line| line.strip_prefix("pid ").map(str::to_owned));
    let process = format!("/proc/{}/stat", pid.expect("the child says its server's pid"));
    assert!(std::path::Path::new(&process).exists());
    child.kill().expect("our own child can be killed");
    child.wait().expect("our own child can be waited for");
    // Whoever adopts orphans may leave it as a zombie ("Z"): that is dead enough.
    eventually("the server dies", || std::fs::read_to_string(&process).map_or(true, |stat| stat.contains(") Z ")));
}

#[test]
fn a_tls_server_shows_a_certificate_of_its_authority() {
    let Some(program) = Program::with_tls() else {
        eprintln!("skipped: no server with TLS on this machine");
        return;
    };
    let server = Server::builder().program(program).tls(true).start();
    assert_eq!(server.url(), format!("rediss://127.0.0.1:{}/", server.port()));
    assert!(server.authority().ca().is_file());
    server.command(&["PING"]);
}

#[test]
fn only_servers_with_tls_say_so() {
    // The embedded one is built without; nothing is known of the system's, but asking must not hang.
    let start = Instant::now();
    if let Some(embedded) = Program::embedded() {
        assert!(!embedded.has_tls());
    }
    let _ = Program::system().map(|system| system.has_tls());
    assert!(start.elapsed() < Duration::from_secs(10));
}
