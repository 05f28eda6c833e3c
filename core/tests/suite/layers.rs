//! The folders of `core/src` form layers: imports point downwards only, and no files import each other in a circle, nor do
//! those of the packages for Python and Node.
//!
//! This reads the sources as text: every path that begins with `crate::`, `super::` or a module beside it counts, outside of
//! tests. A path is of the file that defines the longest module in it.

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

/// Every path in `code` that begins with `crate::`, `super::` or the name of a module in a file beside it, with the groups
/// in braces spelled out.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let beside = code.lines().filter_map(|line| line.rsplit_once("mod ")?.1.strip_suffix(';'));
    for root in ["crate", "super"].into_iter().chain(beside) {
        for (index, _) in code.match_indices(&format!("{root}::")) {
            // `super::super::` is one path.
            if !code[..index].ends_with(|before: char| before.is_alphanumeric() || ":_".contains(before)) {
                spell_out(&code[index..], &[], &mut found);
            }
        }
    }
    found
}

/// Adds the paths of one entry of an import, which ends where its text does not go on as a path. Returns the rest.
fn spell_out<'a>(text: &'a str, before: &[String], found: &mut Vec<Vec<String>>) -> &'a str {
    let mut path = before.to_vec();
    let mut rest = text.trim_start();
    loop {
        if let Some(mut group) = rest.strip_prefix('{') {
            while !group.trim_start().starts_with('}') {
                let after = spell_out(group, &path, found);
                group = &after[after.find([',', '}']).expect("a group ends")..];
                group = group.strip_prefix(',').unwrap_or(group);
            }
            return &group.trim_start()[1..];
        }
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        path.push(rest[..end].to_owned());
        rest = &rest[end..];
        match rest.strip_prefix("::") {
            Some(after) if after.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '{') => rest = after,
            _ => break,
        }
    }
    found.push(path);
    rest
}

/// The file whose module is the longest beginning of `path`; the crate's root if there is none.
fn definer(files: &BTreeMap<Vec<&str>, &str>, path: &[String]) -> String {
    let beginnings = (1..=path.len()).rev().map(|length| path[..length].iter().map(String::as_str).collect::<Vec<_>>());
    beginnings
        .filter_map(|module| files.get(&module))
        .map(|file| (*file).to_owned())
        .next()
        .unwrap_or("lib.rs".to_owned())
}

fn imports(sources: &Sources) -> Imports {
    let files: BTreeMap<_, _> = sources.keys().map(|file| (module(file), file.as_str())).collect();
    let of = |file: &str, text: &str| {
        let absolute = |path: Vec<String>| {
            if path[0] == "crate" {
                return path[1..].to_vec();
            }
            let ups = path.iter().take_while(|segment| *segment == "super").count();
            let own = module(file);
            let kept = own[..own.len().saturating_sub(ups)].iter().map(|segment| (*segment).to_owned());
            kept.chain(path[ups..].iter().cloned()).collect()
        };
        let paths = paths(&code(text)).into_iter().map(absolute);
        paths.map(|path| definer(&files, &path)).filter(|other| other != file).collect()
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

/// The files that import each other in circles, each circle with everything that hangs together in it.
fn circles(imports: &Imports) -> Vec<BTreeSet<String>> {
    let reached = |from: &str| {
        let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(file) = next.pop() {
            for other in imports.get(file).into_iter().flatten() {
                if reached.insert(other.clone()) {
                    next.push(other);
                }
            }
        }
        reached
    };
    let reach: BTreeMap<_, _> = imports.keys().map(|file| (file, reached(file))).collect();
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for (file, reached) in &reach {
        if reached.contains(*file) && !found.iter().any(|circle| circle.contains(*file)) {
            let is_in = |other: &&String| reach.get(other).is_some_and(|back| back.contains(*file));
            found.push(reached.iter().filter(is_in).cloned().collect());
        }
    }
    found
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
        let found = circles(&imports_of(package));
        assert!(found.is_empty(), "these import each other in {package}/src: {found:#?}");
    }
}

/// The names after `from "./`, without the end of a file.
fn typescript(line: &str) -> Vec<&str> {
    let name = line.split_once("from \"./").and_then(|(_, name)| name.split_once('.'));
    name.map(|(name, _)| name).into_iter().collect()
}

/// The modules of the package in `from redlock import a, b` and `from redlock.a import B`.
fn python(line: &str) -> Vec<&str> {
    let Some(rest) = line.trim_start().strip_prefix("from redlock") else { return Vec::new() };
    match rest.split_once(" import ") {
        Some(("", names)) => names.split([',', ' ']).collect(),
        Some((module, _)) => module.strip_prefix('.').into_iter().collect(),
        None => Vec::new(),
    }
}

/// What each file of a folder imports from others of it, by the names in its lines.
fn face_imports(folder: &str, endings: &[&str], names: fn(&str) -> Vec<&str>) -> Imports {
    let folder = source_dir().join("../..").join(folder);
    let files: Sources = endings.iter().flat_map(|ending| sources(&folder, ending)).collect();
    let stem = |file: &str| file.split('.').next().unwrap_or(file).to_owned();
    let by_stem: BTreeMap<String, &String> = files.keys().map(|file| (stem(file), file)).collect();
    let of = |(file, text): (&String, &String)| {
        let others = text.lines().flat_map(names).filter_map(|name| by_stem.get(name));
        (file.clone(), others.filter(|other| **other != file).map(|other| (*other).clone()).collect())
    };
    files.iter().map(of).collect()
}

#[test]
fn no_files_of_a_face_import_each_other_in_a_circle() {
    let typescript = face_imports("node/ts", &["ts", "mts"], typescript);
    let python = face_imports("python/redlock", &["py", "pyi"], python);
    assert!(
        typescript["client.ts"].contains("options.ts") && python["asyncio.py"].contains("_calls.py"),
        "they are read"
    );
    for (folder, imports) in [("node/ts", typescript), ("python/redlock", python)] {
        assert!(circles(&imports).is_empty(), "{folder}: {:#?}", circles(&imports));
    }
    for folder in ["node/src", "python/src"] {
        let found = circles(&imports(&sources(&source_dir().join("../..").join(folder), "rs")));
        assert!(found.is_empty(), "{folder}: {found:#?}");
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
    let round = ("net/round.rs", "");
    for text in [
        "use crate::net::round::Round;",
        "use crate::{error::{self, Error}, net::round};",
        "use crate::{\n    error::Error,\n    net::round::{Round, Vote},\n};",
        "fn f() { crate::net::round::run() }",
        "use super::super::net::round;",
        "#[cfg(test)]\nuse crate::net::round;",
    ] {
        let found = arrows_up(&small(&[("error.rs", ""), round, ("protocol/name.rs", text)]));
        let expected = "core/src/protocol/name.rs imports from core/src/net/round.rs, but net stands above protocol";
        assert_eq!(found, [expected], "{text}");
    }
    for text in [
        "use crate::error::Error;\nuse crate::{error, protocol::{token::{Token, round}}};",
        "/// See [`crate::net::round`].\n// crate::net::round\npub(crate) fn f() {}",
        "#[cfg(test)]\nmod tests { use crate::net::round; }",
        "#[cfg(test)]\n#[expect(clippy::x)]\nmod tests { use crate::net::round; }",
    ] {
        let files = [("error.rs", ""), ("protocol/token.rs", ""), round, ("protocol/name.rs", text)];
        assert!(arrows_up(&small(&files)).is_empty(), "{text}");
    }
    assert!(arrows_up(&small(&[("net/round.rs", "use crate::Error;")]))[0].contains("the file that defines the name"));
    assert!(arrows_up(&small(&[("other.rs", "")]))[0].contains("is in no layer"));
}

#[test]
fn a_circle_is_found() {
    let one = ("net/one.rs", "use super::two::Two;");
    let two = ("net/two.rs", "use crate::net::three;");
    let three = ("net/three.rs", "fn f() -> crate::net::one::One {}");
    let aside = ("net/aside.rs", "use crate::net::one::One;");
    let parent = ("net/mod.rs", "mod one;\nuse one::One;");
    let child = ("net/one.rs", "use super::Parent;");
    assert_eq!(circles(&small(&[parent, child])), [BTreeSet::from(["net/mod.rs", "net/one.rs"].map(str::to_owned))]);
    let found = circles(&small(&[one, two, three, aside]));
    assert_eq!(found, [BTreeSet::from(["net/one.rs", "net/three.rs", "net/two.rs"].map(str::to_owned))]);
    assert!(circles(&small(&[one, two, ("net/three.rs", ""), aside])).is_empty());
}
