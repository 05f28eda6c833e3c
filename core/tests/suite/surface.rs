//! The public names of the crate are those of `tests/conformance/tables/surface.json`.

use std::collections::BTreeSet;

use redis::ConnectionInfo;
use redlock::{
    ErrorKind, Guard, Level, Lock, LockState, LostReason, MetricKind, NodeAddress, Redlock, SetnxGuard, SetnxLock,
    blocking,
};
use serde_json::Value;

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
    let mut variant = "";
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
                    variant = name;
                    found.insert(format!("{module}{owner}::{name}"));
                } else if let Some(field) = named(member, &["    "]).filter(|field| !field.is_empty()) {
                    found.insert(format!("{module}{owner}::{variant}.{field}"));
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

/// The public names of the sources.
fn found() -> BTreeSet<String> {
    let mut found = public(include_str!("../../src/api/blocking.rs"), "blocking::");
    found.extend(public(include_str!("../../src/testing/memory_server.rs"), "testing::"));
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
        include_str!("../../src/api/wait_free.rs"),
    ] {
        found.extend(public(source, ""));
    }
    found
}

/// Names that a macro or a trait gives, and so no source has as they are here.
#[test]
fn what_macros_and_traits_give() {
    let _ = (ErrorKind::ALL, ErrorKind::code, Level::ALL, Level::as_str, LostReason::ALL, LostReason::as_str);
    let _ = (Guard::check, Guard::fence, Guard::is_held, Guard::lose, Guard::name, Guard::names, Guard::remaining);
    let _ = (Guard::slot, SetnxGuard::check, SetnxGuard::is_held, SetnxGuard::lose, SetnxGuard::name);
    let _ = (SetnxGuard::remaining, LockState::as_str, MetricKind::as_str);
    let _ = (blocking::Guard::check, blocking::Guard::fence, blocking::Guard::is_held, blocking::Guard::lose);
    let _ = (blocking::Guard::name, blocking::Guard::names, blocking::Guard::remaining, blocking::Guard::slot);
    let _ = (blocking::SetnxGuard::check, blocking::SetnxGuard::is_held, blocking::SetnxGuard::lose);
    let _ = (blocking::SetnxGuard::name, blocking::SetnxGuard::remaining);
    let _ = |lock: Lock, older: SetnxLock| (Lock::into_future(lock), SetnxLock::into_future(older));
    let _ = |client: Redlock, to: ConnectionInfo| (blocking::Redlock::from(client), NodeAddress::try_from(to));
}

#[test]
fn every_listed_name_is_there() {
    let code = include_str!("surface.rs").lines().map(str::trim_start).filter(|line| line.starts_with("let _ = "));
    let given = code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && !"_:".contains(c)));
    let known: BTreeSet<_> = found().into_iter().chain(given.map(str::to_owned)).collect();
    assert_eq!(listed().difference(&known).collect::<Vec<_>>(), <[&String; 0]>::default());
}

#[test]
fn nothing_else_is_public() {
    let found = found();
    let unlisted: Vec<_> = found.difference(&listed()).cloned().collect();
    assert!(unlisted.is_empty(), "not in tests/conformance/tables/surface.json: {unlisted:?}");

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
