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
    let call = |values: &str| format!("{{\"client\":\"a\",\"name\":\"foo\",\"ok\":true,{values}}}");
    let released = call(r#""kind":"release","invoke_ns":20,"return_ns":30,"fence":1"#);
    let later = call(r#""kind":"acquire","invoke_ns":25,"return_ns":30,"fence":0,"valid_until_ns":30"#);
    let key = call(r#""kind":"key","invoke_ns":2000030,"return_ns":2000030,"fence":1"#);
    let granted = call(r#""kind":"granted","invoke_ns":5,"return_ns":5,"fence":1,"token":"5f""#);
    let waits = DENIED.replace("\"return_ns\":9000000", "\"return_ns\":null");
    for (records, good, bad, says) in [
        ([ACQUIRE, OVERLAP, ""], "--no-exclusion", "", "two holders at once"),
        ([ACQUIRE, &released, &later], "--no-order", "", "the smaller fence"),
        ([ACQUIRE, DENIED, ""], "--told-late-ms 8", "--told-late-ms 7", "never told"),
        ([ACQUIRE, &released, &key], "--settle-ms 2", "--settle-ms 1", "leaked"),
        ([ACQUIRE, &waits, &key], "--settle-ms 2 --limit-ms 3", "--settle-ms 2 --limit-ms 1", "stuck"),
        ([ACQUIRE, &released, DENIED], "--idle-ms 9", "--idle-ms 8", "idle"),
        ([ACQUIRE, &released, &granted], "--quorum 1", "--quorum 2", "the grants of 1 nodes only"),
    ] {
        let judged = |options: &str| said(&run(&options.split_whitespace().collect::<Vec<_>>(), &records.join("\n")));
        assert_eq!(judged(good).0, Some(0), "{good}");
        let (code, output, _) = judged(bad);
        assert_eq!(code, Some(1), "{bad}");
        assert!(output.contains(says), "{output}");
    }
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
