//! Compiles only if every Rust name of `tests/conformance/tables/surface.json` is there, with what its callers rely on; and every one
//! of them is named here.

use std::collections::BTreeSet;
use std::time::Duration;

use redlock::bindings::options::{OPTIONS, Scope};
use redlock::{
    AnswerKind, Builder, Credentials, DetachedLock, Diagnosis, Election, Error, ErrorKind, Finding, Fixed, Guard,
    IntoNodes, Leader, Level, Lock, LockListing, LockState, LockView, Login, LostReason, Metric, MetricKind, Named,
    NodeAddress, NodeAnswer, NodeState, NodeView, Point, PointValue, Redlock, SetnxGuard, SetnxLock, Stats, blocking,
    count_by_name, publish_metrics, shutdown, shutdown_async, stats, testing,
};
use serde_json::Value;

/// Reads a public field, so that its name stands here as in the table.
macro_rules! field {
    ($type:ident.$field:ident) => {
        |value: &$type| std::hint::black_box(&value.$field).clone()
    };
    ($type:ident::$variant:ident.$field:ident) => {
        |value: &$type| matches!(value, $type::$variant { $field: _, .. })
    };
}

fn nodes() -> [&'static str; 1] {
    ["memory://surface"]
}

fn are_nodes<Kind>(_: impl IntoNodes<Kind>) {}

#[test]
fn texts_and_what_is_iterated_over_texts_are_nodes() {
    let (one, text) = (String::from("memory://surface"), "memory://surface");
    are_nodes(text);
    are_nodes(&one);
    are_nodes(std::borrow::Cow::from(text));
    are_nodes(std::sync::Arc::<str>::from(text));
    are_nodes([text]);
    let several = vec![one.clone()];
    are_nodes(&several);
    are_nodes(several);
    are_nodes([text].as_slice());
    are_nodes(BTreeSet::from([one]));
    are_nodes(text.split(','));
}

#[tokio::test]
async fn tests_of_programs() -> Result<(), Error> {
    let server: testing::MemoryServer = testing::MemoryServer::new();
    testing::MemoryServer::hold(&server, "job", Some(Duration::from_secs(1)))?;
    testing::MemoryServer::release(&server, "job")?;
    testing::MemoryServer::wipe(&server);
    testing::MemoryServer::advance(&server, Duration::from_secs(1));
    testing::MemoryServer::set_available(&server, true);
    assert!(testing::MemoryServer::is_available(&server));
    let redlock = Redlock::new(testing::MemoryServer::url(&server))?;
    let guard: Guard = redlock.lock("plain").acquire().await?;
    Guard::lose(&guard, LostReason::Taken);
    let guard: SetnxGuard = redlock.setnx_lock("setnx").acquire().await?;
    SetnxGuard::lose(&guard, LostReason::Taken);
    Ok(())
}

#[test]
fn metrics() {
    let snapshot: Stats = stats();
    let metric: &Metric = Stats::metric(&snapshot, "redlock_held").unwrap();
    let _: &'static str = MetricKind::as_str(metric.kind);
    let _: String = Stats::to_openmetrics(&snapshot);
    let _: fn(usize) = count_by_name;
    let _: fn() = publish_metrics;
    let _ = (field!(Stats.metrics), field!(Metric.name), field!(Metric.kind), field!(Metric.about));
    let _ = (field!(Metric.points), field!(Point.labels), field!(Point.value));
    let _ = |value: PointValue| matches!(value, PointValue::Number(_) | PointValue::Histogram { .. });
    let _ = [MetricKind::Counter, MetricKind::Gauge, MetricKind::Histogram];
    let _ =
        (field!(PointValue::Histogram.count), field!(PointValue::Histogram.sum), field!(PointValue::Histogram.buckets));
}

#[test]
fn tests_of_blocking_programs() -> Result<(), Error> {
    let redlock = blocking::Redlock::new(testing::MemoryServer::new().url())?;
    let guard: blocking::Guard = redlock.lock("plain").acquire()?;
    blocking::Guard::lose(&guard, LostReason::Taken);
    let guard: blocking::SetnxGuard = redlock.setnx_lock("setnx").acquire()?;
    blocking::SetnxGuard::lose(&guard, LostReason::Taken);
    Ok(())
}

#[tokio::test]
async fn client_and_lock() -> Result<(), Error> {
    drop::<Result<Redlock, Error>>(Redlock::from_env());
    let address = redis::Client::open("redis://localhost").unwrap().get_connection_info().clone();
    drop::<Result<Redlock, Error>>(Redlock::new(NodeAddress::try_from(address)?));
    let redlock: Redlock = Redlock::new(nodes())?;
    let builder: Builder = Redlock::builder();
    let builder = Builder::nodes(builder, nodes());
    let builder = Builder::connect_timeout(builder, Duration::from_secs(1));
    let builder = Builder::keepalive(builder, Duration::ZERO);
    let builder = Builder::max_connections(builder, 4);
    let builder = Builder::key_prefix(builder, "surface:");
    let builder = Builder::password_file(builder, "password");
    let builder = Builder::tls_ca(builder, "ca.pem");
    let builder = Builder::tls_cert(builder, "client.pem");
    let builder = Builder::tls_key(builder, "client.key");
    let builder = Builder::tls_server_name(builder, "localhost");
    drop(builder.clone());
    let builder = Builder::nodes(Redlock::builder(), nodes());
    let builder = Builder::credentials(builder, login);
    let builder = Builder::ttl(builder, Duration::from_secs(10));
    let builder = Builder::timeout(builder, Duration::ZERO);
    let builder = Builder::no_timeout(builder);
    let builder = Builder::auto_renew(builder, true);
    let builder = Builder::max_hold(builder, Duration::from_secs(60));
    let builder = Builder::at_least(builder, Duration::ZERO);
    let builder = Builder::margin(builder, Duration::ZERO);
    let builder = Builder::node_timeout(builder, Duration::from_secs(1));
    let builder = Builder::restart_delay(builder, Duration::ZERO);
    let builder = Builder::fence_ttl(builder, Duration::from_secs(60));
    let builder = Builder::label(builder, "surface");
    drop::<Redlock>(Builder::build(builder)?);

    let lock: Lock<Named> = Redlock::lock(&redlock, "async");
    let lock = Lock::ttl(lock, Duration::from_secs(10));
    let lock = Lock::timeout(lock, Duration::ZERO);
    let lock = Lock::no_timeout(lock);
    let lock = Lock::auto_renew(lock, true);
    let lock = Lock::max_hold(lock, Duration::from_secs(60));
    let lock = Lock::at_least(lock, Duration::ZERO);
    let lock = Lock::margin(lock, Duration::from_secs(1));
    let lock = Lock::node_timeout(lock, Duration::from_secs(1));
    let lock = Lock::restart_delay(lock, Duration::ZERO);
    let lock = Lock::fence_ttl(lock, Duration::from_secs(60));
    let lock = Lock::label(lock, "surface");
    let _: u64 = Lock::run(&lock, async |guard: &Guard| Guard::fence(guard)).await?;
    Lock::try_run(&lock, async |guard: &Guard| Guard::check(guard)).await?;
    Guard::release(Lock::into_future(lock.clone()).await?).await?;
    Guard::release(Lock::acquire(&lock).await?).await?;
    let guard: Guard = Lock::try_acquire(&lock).await?.unwrap();
    let _: bool = Lock::is_locked(&lock).await?;
    let _: &[u8] = Guard::name(&guard);
    let _: Vec<&[u8]> = Guard::names(&guard);
    let _: Option<u32> = Guard::slot(&guard);
    let _: bool = Guard::is_held(&guard);
    let _: Duration = Guard::remaining(&guard);
    Guard::check(&guard)?;
    Guard::extend(&guard).await?;
    Guard::extend_for(&guard, Duration::from_secs(20)).await?;
    let lost = Guard::lost(&guard);
    drop::<LockView>(Redlock::inspect(&redlock, "async").await?);
    let mut listed: LockListing = Redlock::list_locks(&redlock, "*");
    drop::<Option<LockView>>(LockListing::next(&mut listed).await?);
    let _: bool = Redlock::wait_free(&redlock, "other", Some(Duration::ZERO)).await?;
    drop::<Option<LockView>>(Redlock::break_lock(&redlock, "other", Some(1)).await?);
    drop::<Vec<Diagnosis>>(Redlock::diagnose(&redlock).await?);
    Guard::release(guard).await?;
    Redlock::close(redlock.clone(), Duration::ZERO).await;
    drop::<std::pin::Pin<Box<dyn Future<Output = Error>>>>(Box::pin(lost));
    Ok(())
}

#[tokio::test]
async fn several_names_semaphores_and_elections() -> Result<(), Error> {
    let redlock: Redlock = Redlock::new(nodes())?;
    let lock: Lock<Fixed> = Redlock::lock_all(&redlock, ["a", "b"]);
    Guard::release(Lock::acquire(&lock).await?).await?;
    let lock: Lock<Fixed> = Lock::shared(Redlock::lock(&redlock, "shared"));
    Guard::release(Lock::acquire(&lock).await?).await?;
    let lock: Lock<Fixed> = Redlock::semaphore(&redlock, "pool", 2);
    Guard::release(Lock::acquire(&lock).await?).await?;
    drop::<Vec<LockView>>(Redlock::inspect_semaphore(&redlock, "pool", 2).await?);
    let guard: Guard = Lock::acquire(&Redlock::lock(&redlock, "job")).await?;
    let text: DetachedLock = Guard::detach(&guard).await?;
    let guard: Guard = Lock::acquire(&Redlock::attach(&redlock, DetachedLock::as_str(&text))).await?;
    let text: String = Guard::detach_for(&guard, Duration::from_secs(20)).await?.into();
    Guard::release(Lock::acquire(&Redlock::attach(&redlock, &text)).await?).await?;
    let election: Election = Redlock::election(&redlock, "leader");
    let election = Election::ttl(election, Duration::from_secs(10));
    let election = Election::margin(election, Duration::from_secs(1));
    let election = Election::node_timeout(election, Duration::from_secs(1));
    let election = Election::restart_delay(election, Duration::ZERO);
    let election = Election::fence_ttl(election, Duration::from_secs(60));
    let election = Election::label(election, "surface");
    let _: Option<u64> = Election::run(&election, async |guard: &Guard| Guard::fence(guard)).await?;
    Guard::release(Election::campaign(&election).await?.unwrap()).await?;
    drop::<Option<Leader>>(Election::leader(&election).await?);
    Election::stop(&election);
    let _: bool = Election::is_stopped(&election);
    let _ = (field!(Leader.label), field!(Leader.term));
    Ok(())
}

#[test]
fn blocking_several_names_semaphores_and_elections() -> Result<(), Error> {
    let redlock: blocking::Redlock = blocking::Redlock::new(nodes())?;
    let lock: blocking::Lock<Fixed> = blocking::Redlock::lock_all(&redlock, ["a", "b"]);
    blocking::Guard::release(blocking::Lock::acquire(&lock)?)?;
    let lock: blocking::Lock<Fixed> = blocking::Lock::shared(blocking::Redlock::lock(&redlock, "blocking shared"));
    blocking::Guard::release(blocking::Lock::acquire(&lock)?)?;
    let lock: blocking::Lock<Fixed> = blocking::Redlock::semaphore(&redlock, "blocking pool", 2);
    blocking::Guard::release(blocking::Lock::acquire(&lock)?)?;
    drop::<Vec<LockView>>(blocking::Redlock::inspect_semaphore(&redlock, "blocking pool", 2)?);
    let guard: blocking::Guard = blocking::Lock::acquire(&blocking::Redlock::lock(&redlock, "blocking job"))?;
    let text: DetachedLock = blocking::Guard::detach(&guard)?;
    let lock: blocking::Lock<Fixed> = blocking::Redlock::attach(&redlock, text.as_ref());
    let guard: blocking::Guard = blocking::Lock::acquire(&lock)?;
    let text: DetachedLock = blocking::Guard::detach_for(&guard, Duration::from_secs(20))?;
    blocking::Guard::release(blocking::Lock::acquire(&blocking::Redlock::attach(&redlock, text.as_str()))?)?;
    let election: blocking::Election = blocking::Redlock::election(&redlock, "blocking leader");
    let election = blocking::Election::ttl(election, Duration::from_secs(10));
    let election = blocking::Election::margin(election, Duration::from_secs(1));
    let election = blocking::Election::node_timeout(election, Duration::from_secs(1));
    let election = blocking::Election::restart_delay(election, Duration::ZERO);
    let election = blocking::Election::fence_ttl(election, Duration::from_secs(60));
    let election = blocking::Election::label(election, "surface");
    let _: Option<u64> = blocking::Election::run(&election, |guard: &blocking::Guard| blocking::Guard::fence(guard))?;
    blocking::Guard::release(blocking::Election::campaign(&election)?.unwrap())?;
    drop::<Option<Leader>>(blocking::Election::leader(&election)?);
    blocking::Election::stop(&election);
    let _: bool = blocking::Election::is_stopped(&election);
    Ok(())
}

#[tokio::test]
async fn lock_of_the_older_protocol() -> Result<(), Error> {
    let redlock: Redlock = Redlock::new("memory://surface")?;
    let lock: SetnxLock = Redlock::setnx_lock(&redlock, "setnx");
    let lock = SetnxLock::ttl(lock, Duration::from_secs(10));
    let lock = SetnxLock::timeout(lock, Duration::ZERO);
    let lock = SetnxLock::no_timeout(lock);
    let lock = SetnxLock::node_timeout(lock, Duration::from_secs(1));
    let lock = SetnxLock::restart_delay(lock, Duration::ZERO);
    let _: bool = SetnxLock::run(&lock, async |guard: &SetnxGuard| SetnxGuard::is_held(guard)).await?;
    SetnxGuard::release(SetnxLock::into_future(lock.clone()).await?).await?;
    SetnxGuard::release(SetnxLock::acquire(&lock).await?).await?;
    let guard: SetnxGuard = SetnxLock::try_acquire(&lock).await?.unwrap();
    let _: &[u8] = SetnxGuard::name(&guard);
    let _: Duration = SetnxGuard::remaining(&guard);
    SetnxGuard::check(&guard)?;
    let lost = SetnxGuard::lost(&guard);
    SetnxGuard::release(guard).await?;
    drop::<std::pin::Pin<Box<dyn Future<Output = Error>>>>(Box::pin(lost));
    Ok(())
}

#[test]
fn blocking_lock_of_the_older_protocol() -> Result<(), Error> {
    let redlock: blocking::Redlock = blocking::Redlock::new("memory://surface")?;
    let lock: blocking::SetnxLock = blocking::Redlock::setnx_lock(&redlock, "blocking setnx");
    let lock = blocking::SetnxLock::ttl(lock, Duration::from_secs(10));
    let lock = blocking::SetnxLock::timeout(lock, Duration::ZERO);
    let lock = blocking::SetnxLock::no_timeout(lock);
    let lock = blocking::SetnxLock::node_timeout(lock, Duration::from_secs(1));
    let lock = blocking::SetnxLock::restart_delay(lock, Duration::ZERO);
    let _: bool = blocking::SetnxLock::run(&lock, |guard: &blocking::SetnxGuard| blocking::SetnxGuard::is_held(guard))?;
    blocking::SetnxGuard::release(blocking::SetnxLock::acquire(&lock)?)?;
    let guard: blocking::SetnxGuard = blocking::SetnxLock::try_acquire(&lock)?.unwrap();
    let _: &[u8] = blocking::SetnxGuard::name(&guard);
    let _: Duration = blocking::SetnxGuard::remaining(&guard);
    blocking::SetnxGuard::check(&guard)?;
    drop::<Option<Error>>(blocking::SetnxGuard::wait_lost(&guard, Duration::ZERO));
    blocking::SetnxGuard::release(guard)
}

#[test]
fn blocking_client_and_lock() -> Result<(), Error> {
    drop::<Result<blocking::Redlock, Error>>(blocking::Redlock::from_env());
    drop::<blocking::Redlock>(blocking::Redlock::from(Redlock::new(nodes())?));
    let redlock: blocking::Redlock = blocking::Redlock::new(nodes())?;
    let builder: blocking::Builder = blocking::Redlock::builder();
    let builder = blocking::Builder::nodes(builder, nodes());
    let builder = blocking::Builder::connect_timeout(builder, Duration::from_secs(1));
    let builder = blocking::Builder::keepalive(builder, Duration::ZERO);
    let builder = blocking::Builder::max_connections(builder, 4);
    let builder = blocking::Builder::key_prefix(builder, "surface:");
    let builder = blocking::Builder::password_file(builder, "password");
    let builder = blocking::Builder::tls_ca(builder, "ca.pem");
    let builder = blocking::Builder::tls_cert(builder, "client.pem");
    let builder = blocking::Builder::tls_key(builder, "client.key");
    let builder = blocking::Builder::tls_server_name(builder, "localhost");
    drop(builder.clone());
    let builder = blocking::Builder::nodes(blocking::Redlock::builder(), nodes());
    let builder = blocking::Builder::credentials(builder, login);
    let builder = blocking::Builder::ttl(builder, Duration::from_secs(10));
    let builder = blocking::Builder::timeout(builder, Duration::ZERO);
    let builder = blocking::Builder::no_timeout(builder);
    let builder = blocking::Builder::auto_renew(builder, true);
    let builder = blocking::Builder::max_hold(builder, Duration::from_secs(60));
    let builder = blocking::Builder::at_least(builder, Duration::ZERO);
    let builder = blocking::Builder::margin(builder, Duration::ZERO);
    let builder = blocking::Builder::node_timeout(builder, Duration::from_secs(1));
    let builder = blocking::Builder::restart_delay(builder, Duration::ZERO);
    let builder = blocking::Builder::fence_ttl(builder, Duration::from_secs(60));
    let builder = blocking::Builder::label(builder, "surface");
    drop::<blocking::Redlock>(blocking::Builder::build(builder)?);

    let lock: blocking::Lock = blocking::Redlock::lock(&redlock, "blocking");
    let lock = blocking::Lock::ttl(lock, Duration::from_secs(10));
    let lock = blocking::Lock::timeout(lock, Duration::ZERO);
    let lock = blocking::Lock::no_timeout(lock);
    let lock = blocking::Lock::auto_renew(lock, true);
    let lock = blocking::Lock::max_hold(lock, Duration::from_secs(60));
    let lock = blocking::Lock::at_least(lock, Duration::ZERO);
    let lock = blocking::Lock::margin(lock, Duration::from_secs(1));
    let lock = blocking::Lock::node_timeout(lock, Duration::from_secs(1));
    let lock = blocking::Lock::restart_delay(lock, Duration::ZERO);
    let lock = blocking::Lock::fence_ttl(lock, Duration::from_secs(60));
    let lock = blocking::Lock::label(lock, "surface");
    let _: u64 = blocking::Lock::run(&lock, |guard: &blocking::Guard| blocking::Guard::fence(guard))?;
    blocking::Lock::try_run(&lock, |guard: &blocking::Guard| blocking::Guard::check(guard))?;
    blocking::Guard::release(blocking::Lock::acquire(&lock)?)?;
    let guard: blocking::Guard = blocking::Lock::try_acquire(&lock)?.unwrap();
    let _: bool = blocking::Lock::is_locked(&lock)?;
    let _: &[u8] = blocking::Guard::name(&guard);
    let _: Vec<&[u8]> = blocking::Guard::names(&guard);
    let _: Option<u32> = blocking::Guard::slot(&guard);
    let _: bool = blocking::Guard::is_held(&guard);
    let _: Duration = blocking::Guard::remaining(&guard);
    blocking::Guard::check(&guard)?;
    blocking::Guard::extend(&guard)?;
    blocking::Guard::extend_for(&guard, Duration::from_secs(20))?;
    drop::<Option<Error>>(blocking::Guard::wait_lost(&guard, Duration::ZERO));
    let view: LockView = blocking::Redlock::inspect(&redlock, "blocking")?;
    let _: &'static str = LockState::as_str(view.state);
    let listed: blocking::LockListing = blocking::Redlock::list_locks(&redlock, "*");
    drop::<Vec<LockView>>(listed.collect::<Result<_, Error>>()?);
    let _: bool = blocking::Redlock::wait_free(&redlock, "other", None)?;
    drop::<Option<LockView>>(blocking::Redlock::break_lock(&redlock, "other", None)?);
    let diagnoses: Vec<Diagnosis> = blocking::Redlock::diagnose(&redlock)?;
    let level: Level = Diagnosis::level(&diagnoses[0]);
    let _: &'static str = Level::as_str(level);
    blocking::Guard::release(guard)?;
    blocking::Redlock::close(redlock.clone(), Duration::ZERO);
    Ok(())
}

#[test]
fn end() {
    // Not called: it is for good.
    let _: fn() = shutdown;
    drop(shutdown_async());
}

#[test]
fn errors_and_views() {
    let error: Error = Redlock::new("nowhere").unwrap_err();
    let kind: ErrorKind = Error::kind(&error);
    let _: [&'static str; 2] = [Error::code(&error), ErrorKind::code(kind)];
    let _: bool = ErrorKind::is_retryable(kind);
    let _: bool = Error::is_retryable(&error);
    let _: Option<&str> = Error::name(&error);
    let _: &[NodeAnswer] = Error::nodes(&error);
    let _: Option<&str> = Error::option(&error);
    let _: Option<&str> = Error::holder_label(&error);
    let _: Option<Duration> = Error::holder_ttl_left(&error);
    let _: bool = Error::is_held_by_this_process(&error);
    let reason: Option<LostReason> = Error::reason(&error);
    let _: Option<&'static str> = reason.map(LostReason::as_str);
    let kinds = [
        ErrorKind::Timeout,
        ErrorKind::Unavailable,
        ErrorKind::Forbidden,
        ErrorKind::Lost,
        ErrorKind::NotHeld,
        ErrorKind::AlreadyHeld,
        ErrorKind::Closed,
        ErrorKind::InvalidArgument,
        ErrorKind::Internal,
    ];
    assert_eq!(kinds, ErrorKind::ALL);
    let reasons =
        [LostReason::Expired, LostReason::Taken, LostReason::Unreachable, LostReason::MaxHold, LostReason::Deleted];
    assert_eq!(reasons, LostReason::ALL);
    let _ = |answer: AnswerKind| match answer {
        AnswerKind::Done | AnswerKind::Held | AnswerKind::Free | AnswerKind::Pending | AnswerKind::Unreachable => 0,
        AnswerKind::Silent | AnswerKind::Refused(_) | AnswerKind::Forbidden(_) | AnswerKind::Quarantined(_) => 1,
        AnswerKind::Uncounted => 2,
        _ => 3,
    };
    assert_eq!([Level::Ok, Level::Warning, Level::Unusable], Level::ALL);
    let _ = (field!(Diagnosis.node), field!(Diagnosis.findings));
    let _ = (field!(Finding.check), field!(Finding.level), field!(Finding.message));
    let _ = (field!(NodeAnswer.node), field!(NodeAnswer.kind), field!(NodeAnswer.answer));
    let _ = (field!(LockView.name), field!(LockView.key), field!(LockView.state), field!(LockView.label));
    let _ = (field!(LockView.fence), field!(LockView.since), field!(LockView.ttl_left), field!(LockView.holders));
    let _ = (field!(LockView.quorum), field!(LockView.waiting), field!(LockView.nodes));
    let _ = (field!(LockView.slot), field!(LockView.readers), field!(LockView.labels));
    let _ = |state: LockState| match state {
        LockState::Free | LockState::Held | LockState::Shared => 0,
        LockState::Foreign | LockState::Unknown => 1,
        _ => 2,
    };
    let _ = (field!(NodeView.node), field!(NodeView.key), field!(NodeView.state));
    let _ = (field!(NodeState::Held.label), field!(NodeState::Held.fence), field!(NodeState::Held.ttl_left));
    let _ = (field!(NodeState::Shared.readers), field!(NodeState::Shared.labels));
    let _ = (field!(NodeState::Shared.fence), field!(NodeState::Shared.ttl_left));
    let _ = (field!(NodeState::Foreign.ttl_left), field!(NodeState::Unavailable.error));
    let _ = |state: &NodeState| match state {
        NodeState::Free | NodeState::Held { .. } | NodeState::Shared { .. } => 0,
        NodeState::Foreign { .. } | NodeState::Unavailable { .. } => 1,
        _ => 2,
    };
}

/// A provider of logins.
async fn login() -> Result<Login, Error> {
    Ok(Login::lasting(Login::new("user", "password"), Duration::from_secs(60)))
}

#[tokio::test]
async fn providers() {
    assert_eq!(Credentials::login(&login).await.unwrap(), login().await.unwrap());
}

fn rows() -> Vec<Value> {
    let mut table: Value =
        serde_json::from_str(include_str!("../../../tests/conformance/tables/surface.json")).unwrap();
    serde_json::from_value(table["cases"].take()).unwrap()
}

fn listed() -> BTreeSet<String> {
    rows()
        .iter()
        .flat_map(|row| [&row["rust"], &row["blocking"]])
        .flat_map(|names| names.as_array().map_or(std::slice::from_ref(names), Vec::as_slice))
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect()
}

/// Python and Node take the options of the core's table, so their types have to list these and no others.
#[test]
fn options_are_those_of_the_table() {
    let rows = rows();
    let typed = rows.iter().filter_map(|row| row["python"].as_str()?.split_once("Options."));
    // A provider is a function, and whether a lock is shared is its shape: neither is a value of the table.
    let typed = typed.filter(|(_, option)| !["credentials", "shared"].contains(option));
    let typed: Vec<_> = typed.map(|(owner, option)| (option, owner == "Client")).collect();
    let known: Vec<_> = OPTIONS.iter().map(|row| (row.name, row.scope == Scope::Client)).collect();
    assert_eq!(BTreeSet::from_iter(typed), BTreeSet::from_iter(known));
}

#[test]
fn every_listed_name_is_used_here() {
    let code = include_str!("surface.rs").lines().filter(|line| !line.trim_start().starts_with("//"));
    let used: BTreeSet<String> = code
        .flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && !"_:.".contains(c)))
        .map(|name| name.trim_matches([':', '.']).to_owned())
        .collect();
    let missing: Vec<_> = listed().difference(&used).cloned().collect();
    assert!(missing.is_empty(), "not used in this file: {missing:?}");
}

/// What follows one of these words at the start of a line, up to the end of the name.
fn named<'a>(line: &'a str, words: &[&str]) -> Option<&'a str> {
    let rest = words.iter().find_map(|word| line.strip_prefix(word))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// The setters that a macro stands for, written out or as rows; those of the bindings, hidden as well, are left out.
fn setters(member: &str) -> Option<Vec<&str>> {
    let name = member.strip_prefix("crate::api::setters::")?.strip_suffix("!();")?;
    let macros = include_str!("../../src/api/setters.rs");
    let (_, source) = macros.split_once(&format!("macro_rules! {name} {{")).expect("a macro of this name");
    let (source, _) = source.split_once("\n}").expect("the end of the macro");
    let lines = source.lines().zip(source.lines().skip(1));
    let open = lines.filter(|(before, _)| before.trim() != "#[doc(hidden)]").map(|(_, line)| line);
    let start = |line: &str| if line.contains(" => ") { "            " } else { "        pub fn " };
    Some(open.filter_map(|line| named(line, &[start(line)])).collect())
}

/// The public items, methods, constants, variants and fields of a source file, hidden ones left out. Relies on rustfmt.
fn public(source: &str, module: &str) -> BTreeSet<String> {
    const MEMBERS: [&str; 5] = ["pub fn ", "pub async fn ", "pub const fn ", "pub const ", "pub "];
    let (mut found, mut owner, mut hidden, mut hidden_types) = (BTreeSet::new(), None, false, BTreeSet::new());
    for line in source.lines() {
        // Deeper down it is about what a macro makes.
        if matches!(line, "#[doc(hidden)]" | "    #[doc(hidden)]") {
            hidden = true;
        } else if let Some(member) = line.strip_prefix("    ") {
            let field =
                owner.filter(|_| !member.starts_with("pub(")).and_then(|owner| Some((owner, named(member, &MEMBERS)?)));
            if let Some(((owner, item), name)) = field {
                let separator = if item == "struct" { "." } else { "::" };
                if !std::mem::take(&mut hidden) {
                    found.insert(format!("{module}{owner}{separator}{name}"));
                }
            } else if let (Some((owner, "enum")), Some(name)) = (owner, named(member, &[""])) {
                if name.starts_with(char::is_uppercase) {
                    found.insert(format!("{module}{owner}::{name}"));
                }
            } else if let Some(setters) = setters(member) {
                let (owner, _) = owner.unwrap();
                found.extend(setters.iter().map(|setter| format!("{module}{owner}::{setter}")));
            }
        } else if let Some((item, name)) = ["struct", "enum", "trait", "fn", "async fn"]
            .iter()
            .find_map(|item| Some((*item, named(line, &[&format!("pub {item} ")])?)))
        {
            owner = (item == "struct" || item == "enum").then_some((name, item));
            if std::mem::take(&mut hidden) {
                hidden_types.insert(name);
                owner = None;
            } else {
                found.insert(format!("{module}{name}"));
            }
        } else if line.starts_with("impl") && !line.contains(" for ") {
            owner = named(line, &["impl ", "impl<Kind> "])
                .filter(|name| !hidden_types.contains(name))
                .map(|name| (name, "impl"));
        } else if line == "}" {
            owner = None;
        }
        // An attribute is over with what it stands before, be that found here or not.
        hidden &= matches!(line.trim().get(..2), Some("#[" | "//"));
    }
    found
}

#[test]
fn nothing_else_is_public() {
    let mut found = public(include_str!("../../src/api/blocking.rs"), "blocking::");
    for source in [
        include_str!("../../src/api/client.rs"),
        include_str!("../../src/api/diagnose.rs"),
        include_str!("../../src/credentials.rs"),
        include_str!("../../src/protocol/diagnosis.rs"),
        include_str!("../../src/protocol/quorum.rs"),
        include_str!("../../src/error.rs"),
        include_str!("../../src/api/openmetrics.rs"),
        include_str!("../../src/api/publish.rs"),
        include_str!("../../src/api/redis_1.rs"),
        include_str!("../../src/api/shutdown.rs"),
        include_str!("../../src/api/stats.rs"),
        include_str!("../../src/api/election.rs"),
        include_str!("../../src/api/guard.rs"),
        include_str!("../../src/api/inspect.rs"),
        include_str!("../../src/api/listing.rs"),
        include_str!("../../src/api/lock.rs"),
        include_str!("../../src/api/operator.rs"),
        include_str!("../../src/api/setnx.rs"),
    ] {
        found.extend(public(source, ""));
    }
    let for_tests = public(include_str!("../../src/testing/memory_server.rs"), "testing::");
    let unlisted: Vec<_> = found.union(&for_tests).filter(|name| !listed().contains(*name)).cloned().collect();
    assert!(unlisted.is_empty(), "not in tests/conformance/tables/surface.json: {unlisted:?}");
    // What traits give, and what stands within a variant, is not found so.
    assert!(found.len() > 90, "only {} public names were found", found.len());

    let modules = include_str!("../../src/lib.rs");
    let exported: BTreeSet<_> = modules
        .lines()
        .filter_map(|line| line.strip_prefix("pub use ")?.strip_suffix(';')?.rsplit_once("::"))
        .flat_map(|(_, names)| names.trim_matches(['{', '}']).split(", "))
        .map(str::to_owned)
        .collect();
    let types = found.into_iter().filter(|name| !name.contains([':', '.']));
    assert_eq!(exported, types.chain(["blocking".to_owned()]).collect());
    let hidden_before = |line: &str| modules.contains(&format!("#[doc(hidden)]\n{line}"));
    let open: Vec<_> = modules.lines().filter(|line| line.starts_with("pub mod ") && !hidden_before(line)).collect();
    // The guide exists in the documentation alone.
    assert_eq!(open, ["pub mod testing;", "pub mod guide {"]);
}
