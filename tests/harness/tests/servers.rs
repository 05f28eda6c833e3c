//! The servers do what tests rely on.

use std::time::Duration;

use redlock_harness::{Server, eventually, this_test};

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
