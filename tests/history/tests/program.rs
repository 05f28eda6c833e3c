//! The program: what it reads, what it says and how it exits.

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
fn a_line_that_is_no_record_exits_2_with_its_number() {
    for (line, why) in [
        ("{", "EOF"),
        ("acquire", "expected value"),
        (&ACQUIRE.replace("acquire", "steal"), "unknown variant `steal`"),
        (&ACQUIRE.replace("\"ok\":true,", ""), "missing field `ok`"),
        // A slip in the name of a field that may be missing must not go unnoticed.
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
