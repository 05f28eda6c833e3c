//! `rediss://`: encrypted, with a certificate that is checked.
#![allow(clippy::disallowed_methods, reason = "real servers live in real time")]

use std::future::IntoFuture;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use harness::{Authority, LIMIT, Program, Proxy, Server, eventually, ran, this_test};
use redlock::blocking::Builder;
use redlock::{ErrorKind, Redlock, blocking};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;

use super::log::of_all_threads;

fn server() -> Option<Server> {
    let program = Program::with_tls();
    if program.is_none() {
        println!("skipped: no server with TLS on this machine");
    }
    Some(Server::builder().program(program?).tls(true).start())
}

/// Runs `test` of this file in a process that trusts `authority` alone: what is trusted is read once per process.
fn child(test: &str, authority: &Path, url: &str) {
    let mut command = this_test(module_path!(), test);
    command.env("REDLOCK_TEST_CHILD", url).env("SSL_CERT_FILE", authority).env_remove("SSL_CERT_DIR");
    ran(command);
}

#[test]
fn a_trusted_certificate_works() {
    if let Ok(url) = std::env::var("REDLOCK_TEST_CHILD") {
        works(&blocking::Redlock::new(url).unwrap());
        return;
    }
    let Some(server) = server() else { return };
    let authority = server.authority().ca();
    for url in [server.url(), server.url().replace("127.0.0.1", "localhost")] {
        child("a_trusted_certificate_works", &authority, &url);
    }
    assert_eq!(server.get("foo"), None);
}

/// A server with TLS that is not trusted by the system, and a copy of its files in a directory of their own.
fn private() -> Option<(Server, TempDir)> {
    let server = server()?;
    Some((server, tempfile::tempdir().unwrap()))
}

fn builder(server: &Server) -> Builder {
    blocking::Redlock::builder().nodes(server.url()).timeout(Duration::ZERO)
}

/// Why a lock cannot be acquired.
fn answer(redlock: &blocking::Redlock) -> String {
    redlock.lock("foo").acquire().unwrap_err().nodes()[0].answer.clone()
}

fn works(redlock: &blocking::Redlock) {
    redlock.lock("foo").acquire().unwrap().release().unwrap();
}

#[test]
fn one_clients_certificates_are_not_anothers() {
    let (Some(server), Some(other)) = (server(), server()) else { return };
    let wrong = builder(&server).tls_ca(other.authority().ca()).build().unwrap();
    let right = builder(&server).tls_ca(server.authority().ca()).build().unwrap();
    for _ in 0..3 {
        assert!(answer(&wrong).contains("TLS"));
        server.end_connections();
        works(&right);
    }
}

#[test]
fn files_that_cannot_be_used_are_named_when_the_client_is_made() {
    let Some((server, dir)) = private() else { return };
    let authority = server.authority();
    let empty = dir.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    let missing = dir.path().join("missing.pem");
    let (ca, cert, key) = (authority.ca(), authority.client_certificate(), authority.client_key());
    let refused = |builder: Builder, option: &str, file: Option<&Path>, reason: &str| {
        let error = builder.build().unwrap_err();
        assert_eq!((error.kind(), error.option()), (ErrorKind::InvalidArgument, Some(option)), "{error}");
        let text = error.to_string();
        assert!(text.contains(reason), "{text} lacks {reason}");
        assert!(file.is_none_or(|file| text.contains(&file.display().to_string())), "{text} lacks the file");
    };
    let b = || builder(&server);
    refused(b().tls_ca(&missing), "tls_ca", Some(&missing), "cannot be read");
    refused(b().tls_ca(&empty), "tls_ca", Some(&empty), "no certificate");
    refused(b().tls_cert(&cert).tls_key(&missing), "tls_key", Some(&missing), "cannot be read");
    refused(b().tls_cert(&cert).tls_key(&cert), "tls_key", Some(&cert), "no private key");
    refused(b().tls_cert(&cert).tls_key(authority.key()), "tls_key", Some(&cert), "does not belong");
    refused(b().tls_cert(&cert), "tls_cert", None, "needs tls_key");
    refused(b().tls_key(&key), "tls_key", None, "needs tls_cert");
    refused(b().tls_server_name("not a name"), "tls_server_name", None, "not a host name");
    refused(b().nodes("redis://127.0.0.1").tls_ca(&ca), "tls_ca", None, "without TLS");
    let in_url = blocking::Redlock::new(format!("redis://127.0.0.1?tls_ca={}", ca.display())).unwrap_err();
    assert!(in_url.to_string().contains("without TLS"), "{in_url}");
}

/// The authority's files, as a secret of Kubernetes is mounted: each name leads through a link to a directory.
fn mount(dir: &Path, version: &str, files: &[(&str, PathBuf)]) {
    let target = dir.join(version);
    std::fs::create_dir(&target).unwrap();
    for (name, file) in files {
        std::fs::copy(file, target.join(name)).unwrap();
    }
    let link = dir.join("new");
    symlink(version, &link).unwrap();
    std::fs::rename(link, dir.join("data")).unwrap();
}

#[test]
fn files_are_read_again_when_they_change() {
    let (Some(server), Some(other)) = (server(), server()) else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data").join("ca.pem");
    mount(dir.path(), "1", &[("ca.pem", other.authority().ca())]);
    let (redlock, said) = (builder(&server).tls_ca(&path).build().unwrap(), of_all_threads());
    assert!(answer(&redlock).contains("tls_ca"));
    // The whole directory is exchanged at once.
    mount(dir.path(), "2", &[("ca.pem", server.authority().ca())]);
    let acquired = |redlock: &blocking::Redlock| redlock.lock("foo").acquire().is_ok();
    eventually("the new authority is trusted", || acquired(&redlock));
    // A version that cannot be used leaves the old one in force. Written in place, the file would have one more version:
    // it is empty for a moment.
    let broken = dir.path().join("broken.pem");
    std::fs::write(&broken, "-----BEGIN CERTIFICATE-----").unwrap();
    mount(dir.path(), "3", &[("ca.pem", broken)]);
    for _ in 0..3 {
        server.end_connections();
        eventually("the old version stays in force", || acquired(&redlock));
    }
    let is_about = |line: &str| line.contains("tls_files_kept") && line.contains(path.to_str().unwrap());
    eventually("it is logged", || said.text().lines().any(is_about));
    assert_eq!(said.text().lines().filter(|line| is_about(line)).count(), 1, "once for each version");
    std::fs::remove_file(&path).unwrap();
    server.end_connections();
    eventually("as it does without the file", || acquired(&redlock));
    std::fs::copy(other.authority().ca(), &path).unwrap();
    server.end_connections();
    eventually("a good version is taken again", || !acquired(&redlock));
}

#[test]
fn a_certificate_and_its_key_are_one_version() {
    let Some(program) = Program::with_tls() else { return };
    let server = Server::builder().program(program).tls(true).client_certificates(true).start();
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = (dir.path().join("client.pem"), dir.path().join("client.key"));
    let authority = server.authority();
    std::fs::copy(authority.client_certificate(), &cert).unwrap();
    std::fs::copy(authority.client_key(), &key).unwrap();
    let redlock = builder(&server).tls_ca(authority.ca()).tls_cert(&cert).tls_key(&key).build().unwrap();
    works(&redlock);
    // Half of an exchange: the new key does not belong to the old certificate.
    std::fs::copy(authority.key(), &key).unwrap();
    server.end_connections();
    eventually("the old version stays in force", || redlock.lock("foo").acquire().is_ok());
}

#[test]
fn no_provider_of_the_process_is_touched() {
    let Some(server) = server() else { return };
    works(&builder(&server).tls_ca(server.authority().ca()).build().unwrap());
    assert!(rustls::crypto::CryptoProvider::get_default().is_none());
    // The program's own, with which no handshake succeeds, is not relied on.
    let useless =
        rustls::crypto::CryptoProvider { cipher_suites: Vec::new(), ..rustls::crypto::ring::default_provider() };
    useless.install_default().unwrap();
    server.end_connections();
    works(&builder(&server).tls_ca(server.authority().ca()).build().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_far_away_has_time_for_tries_and_waiters() {
    let Some(server) = server() else { return };
    let proxy = Proxy::to(&server);
    proxy.delay(Duration::from_millis(200));
    // More than a round trip, and less than those of a connect.
    let builder = Redlock::builder().nodes(proxy.url()).connect_timeout(LIMIT).node_timeout(Duration::from_secs(1));
    let redlock = builder.tls_ca(server.authority().ca()).build().unwrap();
    let holder = redlock.lock("foo").try_acquire().await.unwrap().unwrap();
    let waiter = tokio::spawn(redlock.lock("foo").timeout(LIMIT).into_future());
    eventually("the waiter has asked", || server.get("redlock:waiters:{foo}").is_some());
    holder.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

/// A server that shakes hands, and closes each connection without a word.
fn silent(authority: &Authority) -> u16 {
    let certificates = CertificateDer::pem_file_iter(authority.certificate()).unwrap().collect::<Result<Vec<_>, _>>();
    let key = PrivateKeyDer::from_pem_file(authority.key()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = builder.with_no_client_auth().with_single_cert(certificates.unwrap(), key).unwrap();
    let config = Arc::new(config);
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut tls) = (stream.unwrap(), rustls::ServerConnection::new(Arc::clone(&config)).unwrap());
            while tls.is_handshaking() && tls.complete_io(&mut stream).is_ok() {}
        }
    });
    port
}

#[test]
fn a_hang_up_after_the_handshake_says_what_it_may_mean() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::make(dir.path());
    let builder = || {
        let url = format!("rediss://127.0.0.1:{}", silent(&authority));
        blocking::Redlock::builder().nodes(url).timeout(Duration::ZERO).tls_ca(authority.ca())
    };
    let refused = answer(&builder().build().unwrap());
    assert!(refused.contains("tls_cert and tls_key"), "{refused}");
    let with_certificate = builder().tls_cert(authority.client_certificate()).tls_key(authority.client_key());
    let refused = answer(&with_certificate.build().unwrap());
    assert!(refused.contains("closed") && !refused.contains("tls_cert"), "{refused}");
    assert!(refused.contains("this client's certificate"), "{refused}");
}

#[test]
fn a_hang_up_during_the_handshake_does_not_ask_for_tls() {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("rediss://127.0.0.1:{}", listener.local_addr().unwrap().port());
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let dir = tempfile::tempdir().unwrap();
    let redlock =
        blocking::Redlock::builder().nodes(url).timeout(Duration::ZERO).tls_ca(Authority::make(dir.path()).ca());
    let refused = answer(&redlock.build().unwrap());
    assert!(refused.contains("during the TLS handshake") && !refused.contains("rediss"), "{refused}");
}
