//! The folders of `core/src` form layers: imports point downwards only, and no files import each other in a circle, nor do
//! those of the program and of the crates behind the packages for Python and Node.
//!
//! This reads the sources as text: every path that begins with `crate::`, `super::` or a module beside it counts, outside of
//! tests. A path is of the file that defines the longest module in it, and ends where a group in braces begins.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Folders and files of the crate's root, from the lowest to the highest. Each imports from its own folder and from
/// what stands before it.
const LAYERS: [&str; 18] = [
    "texts",
    "error",
    "event",
    "sys",
    "options",
    "credentials",
    "address",
    "protocol",
    "transport",
    "node",
    "net",
    "process",
    "hold",
    "acquire",
    "api",
    "bindings",
    "testing",
    "lib",
];

/// The text of every source by its path below `core/src`.
type Sources = BTreeMap<String, String>;

/// Which files each file imports from.
type Imports = BTreeMap<String, BTreeSet<String>>;

fn source_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Every file below `root` whose name ends in `extension`.
fn sources(root: &Path, extension: &str) -> Sources {
    let (mut found, mut folders) = (Sources::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("a readable folder").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == extension) {
                let shown = path.strip_prefix(root).expect("a path below the root").display().to_string();
                found.insert(shown, fs::read_to_string(&path).expect("UTF-8"));
            }
        }
    }
    found
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

/// The module of a file, in segments.
fn module(file: &str) -> Vec<&str> {
    let path = file.strip_suffix(".rs").unwrap_or(file);
    path.strip_suffix("/mod").unwrap_or(path).split('/').collect()
}

/// Every path in `code` that begins with `crate::`, `super::` or the name of a module in a file beside it.
fn paths(code: &str) -> Vec<Vec<&str>> {
    let is_in_path = |c: char| c.is_alphanumeric() || "_:".contains(c);
    let beside = code.lines().filter_map(|line| line.rsplit_once("mod ")?.1.strip_suffix(';'));
    let mut found = Vec::new();
    for root in ["crate", "super"].into_iter().chain(beside) {
        for (index, _) in code.match_indices(&format!("{root}::")) {
            // `super::super::` is one path.
            if !code[..index].ends_with(is_in_path) {
                let path = code[index..].split(|c| !is_in_path(c)).next().unwrap_or_default();
                found.push(path.split("::").filter(|segment| !segment.is_empty()).collect());
            }
        }
    }
    found
}

/// The file whose module is the longest beginning of `path`; the crate's root if there is none.
fn definer(files: &BTreeMap<Vec<&str>, &str>, path: &[&str]) -> String {
    let file = (1..=path.len()).rev().find_map(|length| files.get(&path[..length]));
    (*file.unwrap_or(&"lib.rs")).to_owned()
}

fn imports(sources: &Sources) -> Imports {
    let files: BTreeMap<_, _> = sources.keys().map(|file| (module(file), file.as_str())).collect();
    let of = |file: &str, text: &str| {
        let code = code(text);
        let absolute = |path: Vec<&str>| {
            let ups = path.iter().take_while(|segment| **segment == "super").count();
            let own = module(file);
            let (base, rest) = if path[0] == "crate" { (0, 1) } else { (own.len().saturating_sub(ups), ups) };
            definer(&files, &[&own[..base], &path[rest..]].concat())
        };
        paths(&code).into_iter().map(absolute).filter(|other| other != file).collect()
    };
    sources.iter().map(|(file, text)| (file.clone(), of(file, text))).collect()
}

fn layer(file: &str) -> Option<usize> {
    let name = file.split(['/', '.']).next().unwrap_or(file);
    LAYERS.iter().position(|layer| *layer == name)
}

/// What is wrong with single imports.
fn arrows_up(imports: &Imports) -> Vec<String> {
    let mut found = Vec::new();
    for (file, others) in imports {
        let Some(own) = layer(file) else {
            found.push(format!(
                "core/src/{file} is in no layer: put it into a folder of LAYERS in core/tests/suite/layers.rs"
            ));
            continue;
        };
        for other in others {
            match layer(other) {
                _ if other == "lib.rs" => found
                    .push(format!("core/src/{file} imports from lib.rs: import from the file that defines the name")),
                Some(layer) if layer > own => found.push(format!(
                    "core/src/{file} imports from core/src/{other}, but {} stands above {}",
                    LAYERS[layer], LAYERS[own]
                )),
                _ => {}
            }
        }
    }
    found
}

/// The files that import themselves through others.
fn circular(imports: &Imports) -> Vec<&String> {
    let is_circular = |file: &&String| {
        let (mut reached, mut next) = (BTreeSet::new(), vec![*file]);
        while let Some(file) = next.pop() {
            next.extend(imports.get(file).into_iter().flatten().filter(|other| reached.insert(*other)));
        }
        reached.contains(*file)
    };
    imports.keys().filter(is_circular).collect()
}

/// The imports of a crate in the repository.
fn imports_of(package: &str) -> Imports {
    // The list of public names imports from everywhere.
    let root = source_dir().join("../..").join(package).join("src");
    let mut sources = sources(&root, "rs");
    assert!(sources.remove("lib.rs").is_some());
    imports(&sources)
}

#[test]
fn imports_point_downwards() {
    let found = arrows_up(&imports_of("core"));
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn imports_form_no_circle() {
    for package in ["core", "core/cli", "python", "node"] {
        let imports = imports_of(package);
        let found = circular(&imports);
        assert!(found.is_empty(), "these import each other in {package}/src: {found:#?}");
    }
}

#[test]
fn every_file_says_what_it_is_for() {
    for (extension, mark) in [("rs", "//! "), ("lua", "-- ")] {
        for (file, text) in sources(&source_dir(), extension) {
            let first = text.lines().next().unwrap_or_default();
            assert!(first.starts_with(mark), "core/src/{file} does not begin with a line `{mark}what it is for`");
        }
    }
}

#[test]
fn only_what_asks_the_system_differs_between_systems() {
    let asks = ["boot_time", "descriptor", "file_version", "host", "limits", "local_socket"];
    let asks = asks.map(|question| format!("sys/{question}.rs"));
    for (file, text) in sources(&source_dir(), "rs").into_iter().filter(|(file, _)| !asks.contains(file)) {
        let found =
            ["target_os", "(unix)", "std::os::", "rustix::"].into_iter().find(|mark| code(&text).contains(mark));
        assert_eq!(found, None, "core/src/{file}: such questions are for {asks:?}");
    }
}

#[test]
fn every_folder_says_what_it_may_import() {
    for folder in LAYERS.iter().filter(|layer| source_dir().join(layer).is_dir()) {
        let text = fs::read_to_string(source_dir().join(folder).join("mod.rs")).expect("a folder has a mod.rs");
        assert!(text.contains("\n//! May import "), "core/src/{folder}/mod.rs does not say what it may import");
    }
}

/// The arrows of these files.
fn small(files: &[(&str, &str)]) -> Imports {
    imports(&files.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect())
}

#[test]
fn an_arrow_up_is_found() {
    let from_name = |text| arrows_up(&small(&[("net/round.rs", ""), ("protocol/name.rs", text)]));
    for text in [
        "use crate::net::round::{Round, Vote};",
        "fn f() { crate::net::round::run() }",
        "use super::super::net::round;",
    ] {
        let expected = "core/src/protocol/name.rs imports from core/src/net/round.rs, but net stands above protocol";
        assert_eq!(from_name(text), [expected], "{text}");
    }
    for text in
        ["/// See [`crate::net::round`].", "#[cfg(test)]\n#[expect(clippy::x)]\nmod tests { use crate::net::round; }"]
    {
        assert!(from_name(text).is_empty(), "{text}");
    }
    assert!(arrows_up(&small(&[("net/round.rs", "use crate::Error;")]))[0].contains("the file that defines the name"));
    assert!(arrows_up(&small(&[("other.rs", "")]))[0].contains("is in no layer"));
}

#[test]
fn a_circle_is_found() {
    let (parent, child) = (("net/mod.rs", "mod one;\nuse one::One;"), ("net/one.rs", "use super::Parent;"));
    let aside = ("net/aside.rs", "use crate::net::one::One;");
    assert_eq!(circular(&small(&[parent, child, aside])), ["net/mod.rs", "net/one.rs"]);
    assert!(circular(&small(&[parent, ("net/one.rs", ""), aside])).is_empty());
}
