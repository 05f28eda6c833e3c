//! The program: its input, its output and its exit codes.

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn run(options: &[&str], input: &str) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_redlock-history"))
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    program.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("the program reads");
    program.wait_with_output().expect("the program ends")
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

const ACQUIRE: &str = r#"{"client":"a","name":"foo","kind":"acquire","invoke_ns":0,"return_ns":10,"ok":true,"fence":1,"valid_until_ns":1000000}"#;
const OVERLAP: &str = r#"{"client":"b","name":"foo","kind":"acquire","invoke_ns":0,"return_ns":20,"ok":true,"fence":2,"valid_until_ns":1000000}"#;
const DENIED: &str = r#"{"client":"b","name":"foo","kind":"acquire","invoke_ns":0,"return_ns":9000000,"ok":false,"fence":null,"valid_until_ns":null}"#;

#[test]
fn a_good_history_exits_0() {
    let (code, output, error) = said(&run(&[], &format!("{ACQUIRE}\n\n{DENIED}\n")));
    assert_eq!((code, error.as_str()), (Some(0), ""), "{output}");
    assert!(output.contains("1 acquisitions") && output.ends_with(" 0 violations\n"), "{output}");
}

#[test]
fn a_bad_history_exits_1_with_a_line_for_each_violation() {
    let (code, output, error) = said(&run(&[], &format!("{ACQUIRE}\n{OVERLAP}")));
    assert_eq!((code, error.as_str()), (Some(1), ""), "{output}");
    assert_eq!(output.lines().count(), 2, "{output}");
    assert!(output.contains("two holders at once"), "{output}");
}

#[test]
fn options_are_rules() {
    let overlap = format!("{ACQUIRE}\n{OVERLAP}");
    assert_eq!(run(&["--no-exclusion"], &overlap).status.code(), Some(0));
    let silence = format!("{ACQUIRE}\n{DENIED}");
    assert_eq!(run(&["--told-late-ms", "8"], &silence).status.code(), Some(0));
    let (code, output, _) = said(&run(&["--told-late-ms", "7"], &silence));
    assert_eq!(code, Some(1));
    assert!(output.contains("never told"), "{output}");
    let disorder = format!("{}\n{ACQUIRE}", OVERLAP.replace("\"return_ns\":20", "\"return_ns\":5"));
    let disorder = disorder.replace("\"return_ns\":10", "\"return_ns\":2000000").replace(
        "\"kind\":\"acquire\",\"invoke_ns\":0,\"return_ns\":2000000",
        "\"kind\":\"acquire\",\"invoke_ns\":1500000,\"return_ns\":2000000",
    );
    assert_eq!(run(&[], &disorder).status.code(), Some(1));
    assert_eq!(run(&["--no-order"], &disorder).status.code(), Some(0));
}

#[test]
fn options_are_rules_about_what_else_was_seen() {
    let call = |values: &str| format!("{{\"client\":\"a\",\"name\":\"foo\",\"ok\":true,{values}}}");
    let released = call(r#""kind":"release","invoke_ns":20,"return_ns":30,"fence":1"#);
    let key = call(r#""kind":"key","invoke_ns":2000030,"return_ns":2000030,"fence":1"#);
    let leak = format!("{ACQUIRE}\n{released}\n{key}");
    assert_eq!(run(&["--settle-ms", "2"], &leak).status.code(), Some(0));
    let (code, output, _) = said(&run(&["--settle-ms", "1"], &leak));
    assert_eq!(code, Some(1));
    assert!(output.contains("leaked"), "{output}");

    let waits = DENIED.replace("\"return_ns\":9000000", "\"return_ns\":null");
    let hang = format!("{ACQUIRE}\n{waits}\n{key}");
    assert_eq!(run(&["--limit-ms", "3", "--settle-ms", "2"], &hang).status.code(), Some(0));
    let (code, output, _) = said(&run(&["--limit-ms", "1", "--settle-ms", "2"], &hang));
    assert_eq!(code, Some(1));
    assert!(output.contains("stuck"), "{output}");

    let idle = format!("{ACQUIRE}\n{released}\n{DENIED}");
    assert_eq!(run(&["--idle-ms", "9"], &idle).status.code(), Some(0));
    let (code, output, _) = said(&run(&["--idle-ms", "8"], &idle));
    assert_eq!(code, Some(1));
    assert!(output.contains("idle"), "{output}");

    let granted = call(r#""kind":"granted","invoke_ns":5,"return_ns":5,"fence":1,"token":"5f""#);
    let grants = format!("{ACQUIRE}\n{released}\n{granted}");
    assert_eq!(run(&["--quorum", "1"], &grants).status.code(), Some(0));
    let (code, output, _) = said(&run(&["--quorum", "2"], &grants));
    assert_eq!(code, Some(1));
    assert!(output.contains("the grants of 1 nodes"), "{output}");
}

#[test]
fn every_kind_is_read_and_judged() {
    let line = |kind: &str, more: &str| {
        format!(r#"{{"client":"a","name":"foo","kind":"{kind}","invoke_ns":40,"return_ns":50,"ok":true,{more}}}"#)
    };
    let lines = [
        ACQUIRE.to_owned(),
        line("extend", r#""fence":1,"valid_until_ns":2000000"#),
        line("write", r#""fence":1,"count":1"#),
        line("read", r#""count":1"#),
        line("granted", r#""fence":1,"token":null"#),
        line("key", r#""fence":1,"count":null"#),
        line("lapse", r#""fence":null"#),
        line("outage", r#""fence":null"#),
        line("stopped", r#""fence":null"#),
        line("release", r#""fence":1,"valid_until_ns":null"#),
        line("lost", r#""fence":1"#),
    ];
    let (code, output, error) = said(&run(&["--told-late-ms", "0", "--limit-ms", "1"], &lines.join("\n")));
    assert_eq!((code, error.as_str()), (Some(0), ""), "{output}");
    assert!(output.starts_with("11 records, 1 clients, 1 name: 1 acquisitions"), "{output}");
}

#[test]
fn a_line_that_is_no_record_exits_2_with_its_number() {
    for (line, why) in [
        ("{", "EOF"),
        ("acquire", "expected value"),
        (&ACQUIRE.replace("acquire", "steal"), "unknown variant `steal`"),
        (&ACQUIRE.replace("\"ok\":true,", ""), "missing field `ok`"),
        // Only a record that says so has not returned.
        (&ACQUIRE.replace("\"return_ns\":10,", ""), "missing field `return_ns`"),
        // A typo in the name of an optional field must not go unnoticed.
        (&ACQUIRE.replace("valid_until_ns", "valid_until"), "unknown field `valid_until`"),
    ] {
        let (code, output, error) = said(&run(&[], &format!("{ACQUIRE}\n\n{line}\n{DENIED}\n")));
        assert_eq!((code, output.as_str()), (Some(2), ""), "{error}");
        assert!(error.starts_with("redlock-history: line 3: ") && error.contains(why), "{error}");
    }
}

#[test]
fn an_empty_history_exits_2() {
    let (code, output, error) = said(&run(&[], "\n"));
    assert_eq!((code, output.as_str()), (Some(2), ""));
    assert!(error.contains("proves nothing"), "{error}");
}
