//! Parameters of a node's URL, with those that other libraries have: taken as ours, or refused with what to write.
//!
//! Messages show the name of a parameter only if it cannot be the rest of a password, and never a value.

use std::borrow::Cow;

use url::Url;

use crate::error::Error;

/// A refusal's reason, which completes a sentence that begins with `the address`.
#[derive(Debug)]
pub(super) struct Refusal {
    text: Cow<'static, str>,
    /// The end of the sentence, with the client's options in braces.
    hint: &'static str,
}

impl Refusal {
    /// Begins the sentence.
    pub(super) fn of(self, which: &str) -> Self {
        Self { text: format!("{which} {}", self.text).into(), ..self }
    }

    /// Makes the error, whose message ends with `more`.
    pub(super) fn error(self, more: &str) -> Error {
        Error::invalid(self.text).hint(self.hint).and(more)
    }
}

impl From<&'static str> for Refusal {
    fn from(text: &'static str) -> Self {
        Self { text: text.into(), hint: "" }
    }
}

impl From<String> for Refusal {
    fn from(text: String) -> Self {
        Self { text: text.into(), hint: "" }
    }
}

/// A parameter with its decoded value.
#[derive(Debug)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    /// The name as it was written, which another library may have.
    pub(super) written: &'static str,
    pub(super) value: String,
}

/// Names that other libraries have for our parameters. Those that stand for themselves are theirs alone.
const ALIASES: [(&str, &str); 8] = [
    ("ssl_ca_certs", "tls_ca"),
    ("ssl_certfile", "tls_cert"),
    ("ssl_keyfile", "tls_key"),
    ("ssl_cert_reqs", "ssl_cert_reqs"),
    ("socket_connect_timeout", "socket_connect_timeout"),
    ("db", "db"),
    ("username", "user"),
    ("password", "pass"),
];

/// Parameters of other libraries that are refused, in lower case without underscores, with a
/// hint that has the client's options in braces.
const FOREIGN: [(&str, &str); 15] = [
    ("sockettimeout timeout commandtimeout", "use {node_timeout}, an option of the client"),
    ("connecttimeout connectiontimeout", "use {connect_timeout}, an option of the client"),
    ("maxconnections poolsize", "use {max_connections}, an option of the client"),
    ("keepalive socketkeepalive tcpkeepalive", "use {keepalive}, an option of the client"),
    ("clientname name connectionname", "use {label}, an option of the client"),
    ("keyprefix globalkeyprefix prefix namespace", "use {key_prefix}, an option of the client"),
    ("virtualhost", "write the database into the path, or as ?db= behind the path of a socket"),
    ("sentinelmasterid", "write the name of the master into the path: redis+sentinel://host1,host2/mymaster"),
    ("family", "remove it: the addresses of a host are tried in turn, IPv6 and IPv4"),
    (
        "retryontimeout retryonerror healthcheckinterval socketreadsize maxidletime decoderesponses encoding \
         encodingerrors libname libversion lazyconnect maxretriesperrequest enablereadycheck visibilitytimeout poolclass",
        "remove it: redlock opens and keeps its own connections",
    ),
    ("ssl tls", "remove it, and write the scheme with a second s: rediss://host:6380 is with TLS, redis:// without"),
    (
        "sslcheckhostname rejectunauthorized insecure skipverify",
        "remove it: the name in a certificate is always checked; `tls_server_name` sets another one",
    ),
    ("sslcapath sslcadata", "name one file with all certificates of the CAs: `tls_ca`"),
    ("sslpassword sslkeyfilepassword", "remove it, and name a key that is not encrypted: `tls_key`"),
    ("sslminversion sslciphers", "remove it: TLS 1.2 and 1.3 are used, with the ciphers that are safe"),
];

/// Returns a URL's parameters with decoded values. Refuses unknown and repeated ones. `known` are ours. `theirs` are
/// those of other libraries that are taken too.
pub(super) fn parameters(
    url: &Url,
    known: &[&'static str],
    theirs: &[&'static str],
    advice: &str,
) -> Result<Vec<Parameter>, Refusal> {
    let mut found: Vec<Parameter> = Vec::new();
    let pairs = url.query().filter(|query| !query.is_empty()).into_iter().flat_map(|query| query.split('&'));
    for (index, pair) in pairs.enumerate() {
        let (given, value) = pair.split_once('=').unwrap_or((pair, ""));
        let ours = known.iter().find(|known| **known == given).map(|name| (*name, *name));
        let takes = |name| known.contains(&name) || theirs.contains(&name);
        let alias = || ALIASES.into_iter().find(|(alias, ours)| *alias == given && takes(*ours));
        let Some((written, name)) = ours.or_else(alias) else {
            return Err(unknown(url, index, given, known, advice));
        };
        if found.iter().any(|earlier| earlier.name == name) {
            return Err(format!("has the parameter `{written}` twice").into());
        }
        // Forms read it as a blank and people do not, so a password would change silently.
        if value.contains('+') {
            return Err(format!("has a + in the parameter `{written}`; write it as %2B, or a blank as %20").into());
        }
        found.push(Parameter { name, written, value: decoded(value, written)? });
    }
    Ok(found)
}

fn unknown(url: &Url, index: usize, name: &str, known: &[&str], advice: &str) -> Refusal {
    let sought = name.replace('_', "").to_ascii_lowercase();
    let foreign = FOREIGN.iter().find(|(names, _)| names.split(' ').any(|name| name == sought));
    if let Some((_, hint)) = foreign {
        return Refusal { text: format!("has the unknown parameter `{name}`; ").into(), hint };
    }
    let which = if index == 0 && may_repeat(url, name) {
        format!("the unknown parameter `{name}`")
    } else {
        format!("an unknown parameter (number {} of its query)", index + 1)
    };
    format!("has {which}; known: {}; {advice}", known.join(", ")).into()
}

/// Whether the name of an unknown first parameter can be shown. Without an `@` it cannot be the rest of a password with
/// a `?`, and it must look like a name.
fn may_repeat(url: &Url, name: &str) -> bool {
    !url.as_str().contains('@') && !name.is_empty() && name.len() <= 32 && is_plain(name)
}

/// Whether a name has only letters, digits, `.`, `-` and `_`.
pub(super) fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
}

/// Decodes percent-encoding. Every `%` has its two digits.
pub(super) fn decoded(text: &str, what: &str) -> Result<String, Refusal> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if let (b'%', Some(code)) = (byte, code) {
            bytes.push(code);
            rest = &after[2..];
        } else {
            bytes.push(byte);
            rest = after;
        }
    }
    String::from_utf8(bytes).map_err(|_| format!("has a {what} that is not UTF-8").into())
}
