//! The files of `core/src` form layers, and imports point downwards only.
//!
//! This reads the sources as text: every path that begins with `crate::` or `super::` outside of tests counts.

use std::fs;
use std::path::{Path, PathBuf};

/// From the lowest layer to the highest. A new file is listed here, in the lowest layer that it can live in.
const LAYERS: [(&str, &[&str]); 4] = [
    (
        "leaves",
        &[
            "given", "quorum", "script", "options", "address", "name", "token", "random", "clock", "spawn", "fault",
            "backoff", "error", "log", "line", "outage",
        ],
    ),
    ("i/o", &["lane", "round", "node", "footprint", "deadline", "model"]),
    (
        "engine",
        &[
            "process",
            "background",
            "pool",
            "attempt",
            "cleanup",
            "owed",
            "setnx",
            "held",
            "extend",
            "restore",
            "release",
            "renew",
            "wait",
            "gate",
            "watch",
            "lookout",
            "inspect",
            "farewell",
        ],
    ),
    ("faces", &["lib", "client", "lock", "setnx_lock", "guard", "holder", "queue", "blocking", "simulation"]),
];

const TOP: usize = LAYERS.len() - 1;

fn source_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|(_, modules)| modules.contains(&module))
}

/// Every file below `dir` whose name ends in `extension`, as its path below `core/src` and its text.
fn files(dir: &Path, extension: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a folder of sources") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|end| end == extension) {
            let shown = path.strip_prefix(source_dir()).expect("a path below src").display().to_string();
            found.push((shown, fs::read_to_string(&path).expect("UTF-8")));
        }
    }
    found.sort();
    found
}

/// The module that a file belongs to: `node` for everything in `node/`.
fn module_of(file: &str) -> &str {
    file.split(['/', '.']).next().unwrap_or(file)
}

/// The text without tests and without lines that are only a comment.
fn code(text: &str) -> String {
    let mut kept = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        // Attributes may stand between the two; a test module ends the file.
        let opens = |next: &str| next.starts_with("mod ") && next.contains('{');
        if line == "#[cfg(test)]" && lines.clone().find(|next| !next.starts_with("#[")).is_some_and(opens) {
            break;
        }
        if !line.trim_start().starts_with("//") {
            kept.push(line);
        }
    }
    kept.join("\n")
}

/// The first segment behind every `root` (`crate::` or `super::`), groups in braces included.
fn imports(code: &str, root: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (index, _) in code.match_indices(root) {
        let after = code[index + root.len()..].trim_start();
        match after.strip_prefix('{') {
            Some(group) => found.extend(first_segments(group)),
            None => found.push(identifier(after)),
        }
    }
    found.retain(|name| !["", "self", "super"].contains(&name.as_str()));
    found
}

/// The first identifier of every entry of a group, up to the brace that closes it.
fn first_segments(group: &str) -> Vec<String> {
    let mut found = vec![identifier(group)];
    let mut depth = 0;
    for (index, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => found.push(identifier(&group[index + 1..])),
            _ => {}
        }
    }
    found
}

fn identifier(text: &str) -> String {
    text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// What is wrong with the imports of one file.
fn faults(file: &str, text: &str) -> Vec<String> {
    let Some(own) = layer_of(module_of(file)) else {
        return vec![format!("core/src/{file} is in no layer: list it in LAYERS of core/tests/layers.rs")];
    };
    let fault = |name: String, in_folder: bool| match layer_of(&name) {
        Some(layer) if layer <= own => None,
        Some(layer) => {
            Some(format!("core/src/{file} ({}) imports {name} from the {} above it", LAYERS[own].0, LAYERS[layer].0))
        }
        // A name that is no module belongs to the folder, or else to the crate's root, which is the top layer.
        None if own == TOP || in_folder => None,
        None => Some(format!(
            "core/src/{file} imports {name} from lib.rs: import it from the file that defines it, and if it is a new \
             file, list it in LAYERS of core/tests/layers.rs"
        )),
    };
    let code = code(text);
    let from_crate = imports(&code, "crate::").into_iter().filter_map(|name| fault(name, false));
    let from_above = imports(&code, "super::").into_iter().filter_map(|name| fault(name, file.contains('/')));
    from_crate.chain(from_above).collect()
}

#[test]
fn imports_point_downwards() {
    let sources = files(&source_dir(), "rs");
    assert!(!sources.is_empty());
    let faults: Vec<_> = sources.iter().flat_map(|(file, text)| faults(file, text)).collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn every_file_says_what_it_is_for() {
    for (extension, mark) in [("rs", "//! "), ("lua", "-- ")] {
        for (file, text) in files(&source_dir(), extension) {
            let first = text.lines().next().unwrap_or_default();
            assert!(first.starts_with(mark), "core/src/{file} does not begin with a line `{mark}what it is for`");
        }
    }
}

#[test]
fn this_test_bites() {
    let upward = "core/src/name.rs (leaves) imports round from the i/o above it";
    for text in [
        "use crate::round::Round;",
        "use crate::{error::{self, Error}, round};",
        "use crate::{\n    error::Error,\n    round::{Round, Vote},\n};",
        "fn f() { crate::round::run() }",
        "use super::round;",
        "#[cfg(test)]\nuse crate::round;",
    ] {
        assert_eq!(faults("name.rs", text), [upward], "{text}");
    }
    for text in [
        "use crate::error::Error;\nuse crate::{options, token::{Token, lane}};",
        "/// See [`crate::round`].\n// crate::round\npub(crate) fn f() {}",
        "#[cfg(test)]\nmod tests { use crate::round; }",
        "#[cfg(test)]\n#[expect(clippy::x)]\nmod tests { use crate::round; }",
    ] {
        assert!(faults("name.rs", text).is_empty(), "{text}");
    }
    assert!(faults("name.rs", "use crate::Error;")[0].contains("from the file that defines it"));
    assert!(faults("other.rs", "")[0].contains("LAYERS"));
    assert_eq!(faults("node/redis.rs", "use super::super::held; use super::Node; use crate::error::Error;").len(), 1);
    assert_eq!(faults("node/redis.rs", "use crate::Error;").len(), 1);
    assert!(faults("held.rs", "use crate::round; use crate::attempt;").is_empty());
    assert!(faults("lib.rs", "pub use crate::round::Vote; crate::Redlock").is_empty());
}
