//! Glob patterns for names, by the rules of `KEYS` in Redis: `*` is any number of bytes, `?` one, `[a-z]` and `[^a-z]` one
//! of these or none of them, and a backslash takes the meaning of the next byte.

/// Returns whether a name matches a pattern as a whole.
pub(crate) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut place) = (0, 0);
    // Behind the last star, and where in the name it was tried to end: a later star makes earlier ones never longer.
    let mut last_star = None;
    loop {
        let step = match pattern.get(at) {
            Some(b'*') => {
                at += 1;
                last_star = Some((at, place));
                continue;
            }
            Some(_) => name.get(place).and_then(|byte| one(&pattern[at..], *byte)),
            None if place == name.len() => return true,
            None => None,
        };
        if let Some(length) = step {
            (at, place) = (at + length, place + 1);
        } else {
            let Some((after, tried)) = last_star.filter(|(_, tried)| *tried < name.len()) else { return false };
            (at, place) = (after, tried + 1);
            last_star = Some((after, place));
        }
    }
}

/// Returns the length of the pattern for one byte that `pattern` begins with, if it is for this byte.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', wanted, ..] => (*wanted == byte).then_some(2),
        [b'[', class @ ..] => {
            let (length, is_in) = class_has(class, byte);
            is_in.then_some(1 + length)
        }
        [wanted, ..] => (*wanted == byte).then_some(1),
        [] => None,
    }
}

/// Returns the length of a class behind its bracket, and whether the byte is for it. A class without an end reaches to the
/// end of the pattern.
fn class_has(class: &[u8], byte: u8) -> (usize, bool) {
    let is_negated = class.first() == Some(&b'^');
    let mut at = usize::from(is_negated);
    let mut is_in = false;
    loop {
        match &class[at..] {
            [] => return (at, is_in != is_negated),
            [b']', ..] => return (at + 1, is_in != is_negated),
            [b'\\', wanted, ..] => {
                is_in |= *wanted == byte;
                at += 2;
            }
            [one, b'-', other, ..] => {
                is_in |= (*one.min(other)..=*one.max(other)).contains(&byte);
                at += 3;
            }
            [wanted, ..] => {
                is_in |= *wanted == byte;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use harness::redis::cmd;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, is_match) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("job", "job", true),
            ("job", "jobs", false),
            ("job:*", "job:17", true),
            ("*:1?", "job:17", true),
            ("*:1?", "job:1", false),
            ("[a-c]x[^0-9]", "bxz", true),
            ("[a-c]x[^0-9]", "bx9", false),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("*a*b*c", "xaybzbc", true),
            ("*ab", "aab", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), is_match, "{pattern} {name}");
        }
        assert!(matches(b"[\xf0-\xff]", b"\xf3"), "names are bytes");
    }

    #[test]
    fn many_stars_take_no_longer() {
        assert!(!matches("*a".repeat(200).as_bytes(), &[b'a'; 190]));
    }

    /// A server decides what its own patterns mean.
    #[test]
    fn a_server_matches_the_same() {
        let server = harness::Server::start();
        let mut connection = server.connect();
        let byte = || prop::sample::select(b"ab-]".as_slice());
        let piece = prop_oneof![
            4 => byte().prop_map(|byte| vec![byte]),
            2 => Just(b"*".to_vec()),
            1 => Just(b"?".to_vec()),
            1 => Just(b"\\*".to_vec()),
            2 => ("\\^?", "[ab]", "(-[ab])?").prop_map(|(not, one, range)| format!("[{not}{one}{range}]").into_bytes()),
        ];
        let pattern = prop::collection::vec(piece, 1..6).prop_map(|pieces| pieces.concat());
        let name = prop::collection::vec(prop::sample::select(b"ab*-]".as_slice()), 1..6);
        let mut runner = proptest::test_runner::TestRunner::default();
        let run = runner.run(&(pattern, name), |(pattern, name)| {
            let connection = &mut server.connect();
            let _: () = cmd("SET").arg(&name).arg("1").query(connection).unwrap();
            let found: Vec<Vec<u8>> = cmd("KEYS").arg(&pattern).query(connection).unwrap();
            let _: () = cmd("DEL").arg(&name).query(connection).unwrap();
            prop_assert_eq!(matches(&pattern, &name), !found.is_empty(), "{:?} {:?}", pattern, name);
            Ok(())
        });
        let _: String = cmd("PING").query(&mut connection).unwrap();
        run.unwrap();
    }
}
