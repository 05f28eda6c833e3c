//! Node addresses: from URLs to what a connection needs, and back to a text without credentials.
//!
//! The redis crate ignores unknown parts of a URL. Here they are refused before anything is sent. Messages never repeat
//! a URL: a password with an unescaped `@`, `/` or `#` can end up in any part of it.
//!
//! May import `credentials`, `options`, `event`, `error` and `texts`.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use url::{Host, ParseError, Url};

use crate::credentials::{Provider, Secret};
use crate::error::Error;
use crate::options::{
    CONNECT_TIMEOUT_DEFAULT, KEEPALIVE_DEFAULT, MAX_CONNECTIONS_DEFAULT, Options, check_paths, checked_connect_timeout,
    checked_keepalive, checked_max_connections,
};
use crate::texts::texts;

mod parameters;
mod target;

use parameters::{Parameter, Refusal, decoded, is_plain, parameters};
pub(crate) use target::{Target, TlsOptions, shown};

/// The address of an unconfigured server.
const DEFAULT_URL: &str = "redis://127.0.0.1:6379";
const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26379;

/// Most nodes: every acquisition asks all, and more are slower, not safer.
const MOST_NODES: usize = 15;

const NO_HOST: &str = "has no host; write it like redis://host:6379 (in a password, percent-encode / ? # and @)";

const USER_ALONE: &str = "has a user without a password, so neither would be sent; write user:password@ (any password for \
                          a user who needs none), :password@ for the default user, or name a password_file";

const CLUSTER_DB: &str = "has a database or a path; a cluster has database 0 alone";

/// The parameters of addresses over TCP, and those that other libraries have.
const OF_TCP: [&str; 6] = ["protocol", "password_file", "tls_ca", "tls_cert", "tls_key", "tls_server_name"];
const OF_TCP_ELSEWHERE: [&str; 3] = ["db", "ssl_cert_reqs", "socket_connect_timeout"];

/// One node's location and login.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    pub(crate) target: Target,
    /// The database to select.
    pub(crate) db: i64,
    /// The user to log in as.
    pub(crate) username: Option<Secret>,
    pub(crate) password: Option<Secret>,
    /// Read at every connect, instead of `password`.
    pub(crate) password_file: Option<Arc<Path>>,
    /// Gives the logins, if the client has a provider and the address does not have its own login.
    pub(crate) provider: Option<Provider>,
    /// The requested RESP version, 2 or 3.
    pub(crate) protocol: Option<u8>,
    tls: TlsOptions,
    /// After how long an idle connection is probed; zero if it is not.
    pub(crate) keepalive: Duration,
    /// The limit for one connection, until a client has it.
    connect_timeout: Option<Duration>,
    /// The login at sentinels.
    pub(crate) sentinel_user: Option<Secret>,
    pub(crate) sentinel_password_file: Option<Arc<Path>>,
}

/// Where a client has its addresses from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// They were given to it.
    Argument,
    /// The variable `REDLOCK_URLS` of the environment.
    Environment,
    /// Neither, which leaves the local server.
    Default,
}

texts! {
    Origin:
    as_str: Argument = "the addresses are those given to the client",
    Environment = "the addresses are those of REDLOCK_URLS",
    Default =
        "the address is the default, because REDLOCK_URLS is not set; for tests, memory://name needs no server",
}

/// One client's nodes in the given order, 1 to 15 without duplicates, the limit for one connection, and how many callers
/// may have connections. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Addresses {
    nodes: Arc<[Address]>,
    /// The limit for one connection. It is part of the nodes' identity: clients with different limits do not share
    /// connections.
    pub(crate) connect_timeout: Duration,
    /// How many callers that drive themselves may have connections, which is part of the identity too.
    pub(crate) max_connections: usize,
}

impl Address {
    fn at(target: Target) -> Self {
        Self {
            target,
            db: 0,
            username: None,
            password: None,
            password_file: None,
            provider: None,
            protocol: None,
            tls: TlsOptions::default(),
            keepalive: KEEPALIVE_DEFAULT,
            connect_timeout: None,
            sentinel_user: None,
            sentinel_password_file: None,
        }
    }

    /// Makes the address of a target, with the login before the host and the parameters of `url`. `known` and `theirs` as
    /// in [`parameters`].
    fn of_url(
        target: Target,
        db: i64,
        url: &Url,
        (known, theirs): (&[&'static str], &[&'static str]),
        advice: &str,
    ) -> Result<Self, Refusal> {
        let user = decoded(url.username(), "user")?;
        let password = decoded(url.password().unwrap_or_default(), "password")?;
        let (username, password) = (Secret::some(&user), Secret::some(&password));
        let mut address = Self { db, username, password, ..Self::at(target) };
        for parameter in parameters(url, known, theirs, advice)? {
            address.set(parameter)?;
        }
        if address.password.is_some() && address.password_file.is_some() {
            return Err("has a password and the parameter `password_file`; remove one".into());
        }
        Ok(address)
    }

    /// Sets a parameter.
    fn set(&mut self, Parameter { name, written, value }: Parameter) -> Result<(), Refusal> {
        if (written.starts_with("tls_") || written.starts_with("ssl_")) && self.tls().is_none() {
            return Err(format!("has the parameter `{written}` without TLS; write it like rediss://host:6380").into());
        }
        match name {
            "protocol" => self.protocol = Some(protocol(&value)?),
            "user" => self.username = Secret::some(&value),
            "pass" => self.password = Secret::some(&value),
            "password_file" => self.password_file = Some(file(written, &value)?),
            "sentinel_user" => self.sentinel_user = Secret::some(&value),
            "sentinel_password_file" => self.sentinel_password_file = Some(file(written, &value)?),
            "db" => self.set_db(db(&value)?)?,
            "socket_connect_timeout" => self.connect_timeout = Some(seconds(&value)?),
            "ssl_cert_reqs" => check_cert_reqs(&value)?,
            "tls_ca" => self.tls.ca = Some(file(written, &value)?),
            "tls_cert" => self.tls.cert = Some(file(written, &value)?),
            "tls_key" => self.tls.key = Some(file(written, &value)?),
            _ => self.tls.server_name = Some(value.into()),
        }
        Ok(())
    }

    /// Sets the database of the parameter. The path may have it too.
    fn set_db(&mut self, db: i64) -> Result<(), Refusal> {
        if self.db != 0 && self.db != db {
            return Err("has a database in its path and another one in the parameter `db`; remove one".into());
        }
        if self.is_cluster() && db != 0 {
            return Err(CLUSTER_DB.into());
        }
        self.db = db;
        Ok(())
    }

    /// Whether it leads to a cluster.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.target, Target::Cluster { .. })
    }

    /// Returns the options of TLS; `None` without TLS.
    pub(crate) fn tls(&self) -> Option<&TlsOptions> {
        let is_encrypted = match self.target {
            Target::Tcp { tls, .. } | Target::Sentinel { tls, .. } | Target::Cluster { tls, .. } => tls,
            Target::Unix { .. } | Target::Memory { .. } => false,
        };
        is_encrypted.then_some(&self.tls)
    }

    /// Returns the address of a server of this cluster, with the same login and options.
    pub(crate) fn of_server(&self, host: &str, port: u16) -> Self {
        let tls = self.tls().is_some();
        Self { target: Target::Tcp { host: host.to_owned(), port, tls }, ..self.clone() }
    }

    /// Returns what the sentinels of an address are told apart by.
    pub(crate) fn sentinel_key(&self) -> Self {
        Self {
            tls: self.tls.clone(),
            keepalive: self.keepalive,
            sentinel_user: self.sentinel_user.clone(),
            sentinel_password_file: self.sentinel_password_file.clone(),
            ..Self::at(self.target.clone())
        }
    }
}

/// Without user and password. All spellings of one location give the same text.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.target)?;
        match &self.target {
            _ if self.db == 0 => Ok(()),
            Target::Unix { .. } => write!(f, "?db={}", self.db),
            _ => write!(f, "/{}", self.db),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

impl Addresses {
    /// Reads one URL per node.
    pub(crate) fn parse<I>(urls: I) -> Result<Self, Error>
    where
        I: IntoIterator<Item: AsRef<str>>,
    {
        let urls: Vec<_> = urls.into_iter().collect();
        Self::read(&urls).map_err(|refusal| refusal.error(""))
    }

    /// Reads the value of `REDLOCK_URLS`: URLs separated by commas. Defaults to the local server.
    pub(crate) fn from_env_value(value: Option<&str>) -> Result<Self, Error> {
        let Some(value) = value else { return Self::parse([DEFAULT_URL]) };
        // An empty variable is more often a broken template than a wish for the local server.
        if value.trim().is_empty() {
            return Err(Error::invalid(format!(
                "REDLOCK_URLS is empty; list the nodes in it, or unset it to use {DEFAULT_URL}"
            )));
        }
        let urls = pieces(value);
        let torn = urls.iter().any(|url| !url.is_empty() && !url.contains("://"));
        let hint = if torn { "; a comma in a password is written %2C" } else { "" };
        Self::read(&urls).map_err(|refusal| refusal.of("REDLOCK_URLS:").error(hint))
    }

    fn read<S: AsRef<str>>(urls: &[S]) -> Result<Self, Refusal> {
        let count = urls.len();
        if count == 0 || count > MOST_NODES {
            return Err(format!("{count} node addresses were given; give 1 to {MOST_NODES}").into());
        }
        let mut nodes: Vec<Address> = Vec::with_capacity(count);
        for (index, url) in urls.iter().enumerate() {
            let which = if count == 1 { "the address".into() } else { format!("address {} of {count}", index + 1) };
            let node = read(url.as_ref()).map_err(|refusal| refusal.of(&which))?;
            let shown = node.to_string();
            if let Some(earlier) = nodes.iter().position(|other| other.to_string() == shown) {
                let earlier = earlier + 1;
                let which = format!("{which} is a duplicate of address {earlier} ({shown}); list each node once");
                return Err(which.into());
            }
            nodes.push(node);
        }
        Ok(Self {
            nodes: nodes.into(),
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
            max_connections: MAX_CONNECTIONS_DEFAULT,
        })
    }

    /// Returns the same nodes with a client's options, which count where an address leaves something out.
    pub(crate) fn with_options(self, options: &Options, provider: Option<&Provider>) -> Result<Self, Error> {
        if provider.is_some() && options.password_file.is_some() {
            let error = Error::about("credentials", " and ").mention("password_file", " are both given; remove one");
            return Err(error);
        }
        let keepalive = checked_keepalive(options.keepalive)?;
        let max_connections = checked_max_connections(options.max_connections)?;
        let longest = self.iter().filter_map(|node| node.connect_timeout).max();
        let connect_timeout = checked_connect_timeout(options.connect_timeout.or(longest))?;
        check_paths(options)?;
        let defaults = TlsOptions {
            ca: options.tls_ca.clone(),
            cert: options.tls_cert.clone(),
            key: options.tls_key.clone(),
            server_name: options.tls_server_name.clone(),
        };
        if let Some(option) = defaults.first_given()
            && self.iter().all(|node| node.tls().is_none())
        {
            return Err(Error::about(option, " means nothing without TLS; write the address as rediss://…"));
        }
        let nodes = self.iter().cloned().map(|mut node| {
            node.keepalive = keepalive;
            node.connect_timeout = None;
            node.tls = if node.tls().is_some() { node.tls.or(&defaults).check()? } else { TlsOptions::default() };
            let is_in_memory = matches!(node.target, Target::Memory { .. });
            if node.password.is_none() && node.password_file.is_none() && !is_in_memory {
                node.password_file.clone_from(&options.password_file);
                node.provider = provider.cloned();
            }
            if node.username.is_some() && node.password.is_none() && node.password_file.is_none() {
                return Err(Error::invalid(format!("the address {node} {USER_ALONE}")).with_option("nodes"));
            }
            Ok(node)
        });
        Ok(Self { nodes: nodes.collect::<Result<_, _>>()?, connect_timeout, max_connections })
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Address> {
        self.nodes.iter()
    }
}

impl std::ops::Index<usize> for Addresses {
    type Output = Address;

    fn index(&self, index: usize) -> &Address {
        &self.nodes[index]
    }
}

impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

fn read(raw: &str) -> Result<Address, Refusal> {
    if raw.is_empty() {
        return Err("is empty; write it like redis://host:6379".into());
    }
    // The parser drops tabs and line ends and trims blanks, so a stray one would change a password silently.
    if raw.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("contains a blank or a control character; percent-encode it (a blank is %20)".into());
    }
    if raw.contains('#') {
        return Err(
            "contains a #, which has no meaning here (certificates are always checked, there is no #insecure); \
                    in a password write it as %23"
                .into(),
        );
    }
    if !percents_are_whole(raw) {
        return Err("contains a % without two hexadecimal digits after it; write a plain % as %25".into());
    }
    let Some((scheme, rest)) = raw.split_once("://") else {
        return Err("has no scheme; write it like redis://host:6379 or unix:///run/redis.sock".into());
    };
    let address = match scheme.to_ascii_lowercase().as_str() {
        "redis" | "valkey" => read_tcp(raw, rest, false),
        "rediss" | "valkeys" => read_tcp(raw, rest, true),
        "unix" | "redis+unix" | "valkey+unix" => read_unix(raw, rest),
        "redis+sentinel" | "valkey+sentinel" => read_sentinel(rest, false),
        "rediss+sentinel" | "valkeys+sentinel" => read_sentinel(rest, true),
        "redis+cluster" | "valkey+cluster" => read_cluster(rest, false),
        "rediss+cluster" | "valkeys+cluster" => read_cluster(rest, true),
        "memory" => read_memory(rest),
        other => Err(unknown_scheme(other).into()),
    }?;
    match missing_feature(&address) {
        None => Ok(address),
        Some(feature) => {
            Err(format!("needs the feature `{feature}` of redlock-core, with which it was not built").into())
        }
    }
}

/// Returns the feature that this build lacks for an address.
fn missing_feature(address: &Address) -> Option<&'static str> {
    let needed = match address.target {
        Target::Sentinel { .. } => ("sentinel", cfg!(feature = "sentinel")),
        Target::Cluster { .. } => ("cluster", cfg!(feature = "cluster")),
        Target::Memory { .. } => ("memory", cfg!(feature = "memory")),
        Target::Tcp { .. } | Target::Unix { .. } => ("", true),
    };
    let missing = |(feature, is_there): (&'static str, bool)| (!is_there).then_some(feature);
    let tls = ("tls", cfg!(feature = "__tls") || address.tls().is_none());
    missing(needed).or_else(|| missing(tls))
}

fn unknown_scheme(scheme: &str) -> &'static str {
    if scheme.contains("sentinel") {
        "uses Sentinel; write it like redis+sentinel://host1:26379,host2:26379/mymaster"
    } else if scheme.contains("cluster") {
        "asks for a cluster; write it like redis+cluster://host1:6379,host2:6379"
    } else if scheme.contains("socket") {
        "is that of a Unix socket; write it like unix:///run/redis.sock?db=2"
    } else if scheme == "http" || scheme == "https" {
        "begins with http, which no node speaks; write it like redis://host:6379"
    } else {
        "has an unknown scheme; use redis://, rediss://, valkey://, valkeys://, unix://, redis+unix://, valkey+unix://, \
         redis+sentinel://, redis+cluster:// or memory://"
    }
}

/// Splits the value of `REDLOCK_URLS`. A piece without a scheme is another host of the URL before it if that one lists
/// hosts.
fn pieces(value: &str) -> Vec<String> {
    let mut urls: Vec<String> = Vec::new();
    for piece in value.split(',').map(str::trim) {
        match urls.last_mut() {
            Some(url) if !piece.is_empty() && !piece.contains("://") && lists_hosts(url) => {
                url.push(',');
                url.push_str(piece);
            }
            _ => urls.push(piece.to_owned()),
        }
    }
    urls
}

/// Whether more hosts may follow.
fn lists_hosts(url: &str) -> bool {
    let is_meant = |scheme: &str| {
        let scheme = scheme.to_ascii_lowercase();
        scheme.ends_with("+sentinel") || scheme.ends_with("+cluster")
    };
    url.split_once("://").is_some_and(|(scheme, rest)| is_meant(scheme) && !rest.contains(['/', '?']))
}

/// Reads the URL of a primary that sentinels name: `user:password@host,host/master/db`.
fn read_sentinel(rest: &str, tls: bool) -> Result<Address, Refusal> {
    const FORM: &str = "redis+sentinel://host1:26379,host2:26379/mymaster";
    let (sentinels, url) = several(rest, DEFAULT_SENTINEL_PORT, "sentinel")?;
    let path = url.path();
    let mut parts = path.strip_prefix('/').unwrap_or(path).splitn(2, '/');
    let master = decoded(parts.next().unwrap_or_default(), "name of a master")?;
    if master.is_empty() {
        return Err(format!("names no master; write it like {FORM}").into());
    }
    if !is_plain(&master) {
        return Err("has a name of a master with other characters than letters, digits, `.`, `-` and `_`".into());
    }
    let db = parts.next().filter(|db| !db.is_empty()).map_or(Ok(0), db)?;
    let target = Target::Sentinel { sentinels, master, tls };
    let advice = "the database goes behind the name of the master, the rest into options";
    let known = [&OF_TCP[..], &["sentinel_user", "sentinel_password_file"]].concat();
    let address = Address::of_url(target, db, &url, (&known, &OF_TCP_ELSEWHERE), advice)?;
    if address.sentinel_user.is_some() && address.sentinel_password_file.is_none() {
        return Err("has the parameter `sentinel_user` without `sentinel_password_file`; name that too".into());
    }
    Ok(address)
}

/// Reads the URL of a cluster: `user:password@host,host`.
fn read_cluster(rest: &str, tls: bool) -> Result<Address, Refusal> {
    let (seeds, url) = several(rest, DEFAULT_PORT, "server")?;
    if !matches!(url.path(), "" | "/" | "/0") {
        return Err(CLUSTER_DB.into());
    }
    let advice = "user and password go before the hosts, the rest into options";
    Address::of_url(Target::Cluster { seeds, tls }, 0, &url, (&OF_TCP, &OF_TCP_ELSEWHERE), advice)
}

/// Reads a URL of several servers of a `kind`: their hosts and ports, sorted, and the URL with one host for all of them.
fn several(rest: &str, default_port: u16, kind: &str) -> Result<(Vec<(String, u16)>, Url), Refusal> {
    let authority = authority(rest);
    let (login, hosts) = authority.rsplit_once('@').map_or(("", authority), |(login, hosts)| (login, hosts));
    let mut listed = Vec::new();
    for piece in hosts.split(',') {
        if piece.ends_with(':') {
            return Err(format!("has a colon but no port; leave the colon out for port {default_port}").into());
        }
        let url = Url::parse(&format!("redis://{piece}")).map_err(unreadable)?;
        if url.port() == Some(0) {
            return Err("has port 0; ports are 1 to 65535".into());
        }
        listed.push((host(&url)?, url.port().unwrap_or(default_port)));
    }
    listed.sort();
    if listed.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(format!("lists a {kind} twice; list each once").into());
    }
    if listed.len() > MOST_NODES {
        return Err(format!("lists {} {kind}s; list up to {MOST_NODES}", listed.len()).into());
    }
    let url = Url::parse(&format!("redis://{login}@host{}", &rest[authority.len()..])).map_err(unreadable)?;
    Ok((listed, url))
}

fn read_tcp(raw: &str, rest: &str, tls: bool) -> Result<Address, Refusal> {
    if authority(rest).ends_with(':') {
        return Err(
            "has a colon but no port; leave the colon out for port 6379, and give several nodes as a list of URLs"
                .into(),
        );
    }
    let url = Url::parse(raw).map_err(unreadable)?;
    let db = if let "" | "/" = url.path() { 0 } else { db(&url.path()[1..])? };
    let target = Target::Tcp { host: host(&url)?, port: url.port().unwrap_or(DEFAULT_PORT), tls };
    if url.port() == Some(0) {
        return Err("has port 0; ports are 1 to 65535".into());
    }
    let advice = "the database goes into the path, user and password before the host, the rest into options";
    Address::of_url(target, db, &url, (&OF_TCP, &OF_TCP_ELSEWHERE), advice)
}

/// Reads the path of a file.
fn file(name: &str, value: &str) -> Result<Arc<Path>, Refusal> {
    if value.is_empty() || value.contains('\0') {
        return Err(format!("has the parameter `{name}` without the path of a file").into());
    }
    Ok(Path::new(value).into())
}

fn read_unix(raw: &str, rest: &str) -> Result<Address, Refusal> {
    if !authority(rest).is_empty() {
        return Err("has something between // and the path of its socket; write it like unix:///run/redis.sock, with \
                    user and password as ?user=..&pass=.."
            .into());
    }
    let url = Url::parse(raw).map_err(unreadable)?;
    let path = decoded(url.path(), "path")?;
    if path.is_empty() || path.ends_with('/') || path.contains('\0') {
        return Err("has no path of a socket; write it like unix:///run/redis.sock".into());
    }
    // Uses components, because `//run` and `/run/.` name the same place.
    let path = Path::new(&path).components().collect();
    let known = ["db", "user", "pass", "protocol", "password_file"];
    let names: (&[_], &[_]) = (&known, &["socket_connect_timeout"]);
    Address::of_url(Target::Unix { path }, 0, &url, names, "the rest goes into options")
}

fn read_memory(rest: &str) -> Result<Address, Refusal> {
    let name = rest.strip_suffix('/').unwrap_or(rest);
    if name.is_empty() {
        return Err("has no name; write it like memory://a".into());
    }
    if !is_plain(name) {
        return Err("has more than a name of letters, digits, `.`, `-` and `_` after memory://; a node in memory has \
                    no user, port, database or parameter"
            .into());
    }
    Ok(Address::at(Target::Memory { name: name.into() }))
}

fn unreadable(error: ParseError) -> Refusal {
    match error {
        ParseError::EmptyHost => NO_HOST.into(),
        ParseError::InvalidPort => {
            "has a port that is not a number from 1 to 65535 (in a password, percent-encode / ? # and @)".into()
        }
        // These texts are fixed and do not repeat the URL.
        other => format!("cannot be read: {other}").into(),
    }
}

/// Returns the text between `://` and the path or query.
fn authority(rest: &str) -> &str {
    rest.split(['/', '?']).next().unwrap_or_default()
}

fn host(url: &Url) -> Result<String, Refusal> {
    let wildcard = Err("uses a wildcard host (0.0.0.0 or ::), which cannot be connected to; name one host".into());
    match url.host() {
        None | Some(Host::Domain("")) => Err(NO_HOST.into()),
        Some(Host::Domain(name)) if !is_plain(name) => {
            Err("has a host with characters that host names cannot have; give several nodes as a list of URLs, and \
                 an international name in its xn-- form"
                .into())
        }
        Some(Host::Domain(name)) if is_zero(name) => wildcard,
        Some(Host::Domain(name)) => Ok(name.to_ascii_lowercase()),
        // The parser treats it as a name in schemes other than the web's.
        Some(Host::Ipv4(ip)) => Ok(ip.to_string()),
        Some(Host::Ipv6(ip)) if is_unspecified(ip) => wildcard,
        Some(Host::Ipv6(ip)) => Ok(ip.to_string()),
    }
}

/// Whether resolvers read this as 0.0.0.0, as they do `0`, `0.0`, `0x0` and the like.
fn is_zero(host: &str) -> bool {
    host.split('.').all(|part| part.starts_with('0') && part.bytes().all(|byte| b"0xX".contains(&byte)))
}

fn is_unspecified(ip: Ipv6Addr) -> bool {
    ip.is_unspecified() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_unspecified())
}

fn db(digits: &str) -> Result<i64, Refusal> {
    let refusal = "has a database that is not a number from 0 on; write it like redis://host:6379/2 or \
                   unix:///run/redis.sock?db=2";
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(refusal.into());
    }
    digits.parse().map_err(|_| refusal.into())
}

/// Reads a time in seconds, such as `1.5`.
fn seconds(value: &str) -> Result<Duration, Refusal> {
    let seconds = value.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "has a `socket_connect_timeout` that is not a number of seconds".into())
}

/// Refuses what redis-py and Celery write to accept any certificate.
fn check_cert_reqs(value: &str) -> Result<(), Refusal> {
    if matches!(value, "required" | "CERT_REQUIRED") {
        return Ok(());
    }
    Err("has another `ssl_cert_reqs` than required, but certificates are always checked; remove it, and name the CA's \
         file, or that of a self-signed certificate, with `tls_ca`, and another name in it with `tls_server_name`"
        .into())
}

fn protocol(value: &str) -> Result<u8, Refusal> {
    match value {
        "2" | "resp2" => Ok(2),
        "3" | "resp3" => Ok(3),
        _ => Err("has a protocol other than 2, 3, resp2 or resp3".into()),
    }
}

fn percents_are_whole(text: &str) -> bool {
    text.split('%').skip(1).all(|after| after.len() >= 2 && after.bytes().take(2).all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    impl Address {
        /// Reads one URL.
        pub(crate) fn parse(url: &str) -> Result<Self, Error> {
            read(url).map_err(|refusal| refusal.of("the address").error(""))
        }
    }

    impl Addresses {
        pub(crate) fn len(&self) -> usize {
            self.nodes.len()
        }
    }

    #[derive(Deserialize)]
    struct Table {
        cases: Vec<Case>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Case {
        url: Option<String>,
        urls: Option<Vec<String>>,
        env: Option<String>,
        ok: Option<Accepted>,
        error: Option<Refused>,
        #[serde(default)]
        never: Vec<String>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Accepted {
        shown: Vec<String>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Refused {
        code: String,
        mentions: Vec<String>,
    }

    #[test]
    fn table() {
        let table: Table =
            serde_json::from_str(include_str!("../../../tests/conformance/tables/addresses.json")).unwrap();
        for case in table.cases {
            let (what, result) = match (case.url, case.urls, case.env) {
                (Some(url), None, None) => (url.clone(), Addresses::parse([url])),
                (None, Some(urls), None) => (urls.join(" "), Addresses::parse(urls)),
                (None, None, Some(env)) => (env.clone(), Addresses::from_env_value(Some(&env))),
                _ => panic!("a row has one of url, urls and env"),
            };
            let result = result.and_then(|nodes| nodes.with_options(&Options::default(), None));
            let texts = match &result {
                Ok(nodes) => [format!("{:?}", &nodes[0]), format!("{nodes:?}")],
                Err(error) => [error.to_string(), format!("{error:?}")],
            };
            for (text, never) in texts.iter().flat_map(|text| case.never.iter().map(move |never| (text, never))) {
                assert!(!text.to_lowercase().contains(&never.to_lowercase()), "{what}: {text} shows {never}");
            }
            match (result, case.ok, case.error) {
                (Ok(nodes), Some(ok), None) => {
                    assert_eq!(nodes.iter().map(ToString::to_string).collect::<Vec<_>>(), ok.shown, "{what}");
                    for shown in ok.shown {
                        assert_eq!(Address::parse(&shown).unwrap().to_string(), shown, "shown addresses can be given");
                    }
                }
                (Err(error), None, Some(refused)) => {
                    assert_eq!(error.code(), refused.code, "{what}");
                    for text in refused.mentions {
                        assert!(error.to_string().contains(&text), "{what}: {error} does not mention {text:?}");
                    }
                }
                (result, ..) => panic!("{what}: {result:?}"),
            }
        }
    }

    fn address(url: &str) -> Address {
        Address::parse(url).unwrap()
    }

    fn login(address: &Address) -> (Option<&str>, Option<&str>) {
        (address.username.as_ref().map(Secret::expose), address.password.as_ref().map(Secret::expose))
    }

    #[test]
    fn pieces_of_a_tcp_address() {
        let node = address("valkeys://us%65r:p%40%2Fss@EXAMPLE.com:7000/3?protocol=resp2");
        assert_eq!(&node.target, &Target::Tcp { host: "example.com".into(), port: 7000, tls: true });
        assert_eq!((node.db, node.protocol), (3, Some(2)));
        assert_eq!(login(&node), (Some("user"), Some("p@/ss")));
        assert_eq!(format!("{node} {node:?}"), "rediss://example.com:7000/3 Address(rediss://example.com:7000/3)");
        let node = address("redis://[::1]");
        assert_eq!(&node.target, &Target::Tcp { host: "::1".into(), port: 6379, tls: false });
        assert_eq!((node.db, node.protocol, login(&node)), (0, None, (None, None)));
    }

    #[test]
    fn pieces_of_a_unix_address() {
        let node = address("valkey+unix:////run//a%20b.sock?db=2&user=u&pass=%2B%26%3D&protocol=2");
        assert_eq!(&node.target, &Target::Unix { path: "/run/a b.sock".into() });
        assert_eq!((node.db, node.protocol), (2, Some(2)));
        assert_eq!(login(&node), (Some("u"), Some("+&=")));
        assert_eq!(node.to_string(), "unix:///run/a%20b.sock?db=2");
    }

    #[test]
    fn pieces_of_a_memory_address() {
        assert_eq!(&address("memory://A").target, &Target::Memory { name: "A".into() });
        assert_ne!(address("memory://A"), address("memory://a"));
    }

    #[test]
    fn parameters_of_other_libraries_are_taken() {
        let node = address(
            "rediss://h?ssl_ca_certs=/ca&ssl_certfile=/cert&ssl_keyfile=/key&ssl_cert_reqs=required&db=2&socket_connect_timeout=1.5",
        );
        assert_eq!(node, address("rediss://h/2?tls_ca=/ca&tls_cert=/cert&tls_key=/key&socket_connect_timeout=1.5"));
        let nodes = |urls: &[&str], options: Options| Addresses::parse(urls)?.with_options(&options, None);
        let urls = ["redis://a?socket_connect_timeout=1.5", "redis://b?socket_connect_timeout=3", "redis://c"];
        assert_eq!(nodes(&urls, Options::default()).unwrap().connect_timeout, Duration::from_secs(3));
        let own = || Options { connect_timeout: Some(Duration::from_secs(1)), ..Options::default() };
        let limited = nodes(&urls, own()).unwrap();
        assert_eq!(limited.connect_timeout, Duration::from_secs(1));
        assert_eq!(limited, nodes(&["redis://a", "redis://b", "redis://c"], own()).unwrap());
        assert_eq!(login(&address("unix:///s?username=u&password=p")), (Some("u"), Some("p")));
    }

    #[test]
    fn lists_keep_their_order() {
        let nodes = Addresses::parse(["redis://b", "redis://a"]).unwrap();
        assert_eq!((nodes.len(), nodes[1].to_string().as_str()), (2, "redis://a:6379"));
        assert_eq!(format!("{nodes:?}"), "[Address(redis://b:6379), Address(redis://a:6379)]");
        assert_ne!(nodes, Addresses::parse(["redis://a", "redis://b"]).unwrap());
        let none: [&str; 0] = [];
        assert!(Addresses::parse(none).unwrap_err().to_string().contains("1 to 15"));
    }

    #[test]
    fn without_an_environment_the_local_server() {
        assert_eq!(Addresses::from_env_value(None).unwrap()[0].to_string(), DEFAULT_URL);
    }

    #[test]
    fn keys_differ_where_logins_do() {
        let urls = [
            "redis://h",
            "redis://:p@h",
            "redis://:q@h",
            "redis://u:p@h",
            "redis://up:p@h",
            "redis://u:pp@h",
            "redis://u:p%20-@h",
            "redis://h?protocol=3",
            "redis://h/1",
            "rediss://h",
        ];
        let places: std::collections::HashSet<_> = urls.iter().map(|url| address(url)).collect();
        assert_eq!(places.len(), urls.len());
        assert_eq!(address("redis://u:p@H/0?protocol=3"), address("valkey://u:%70@h:6379?protocol=3"));
        assert!(!format!("{places:?}").contains("pp"));
    }

    fn percent_encoded(text: &str) -> String {
        text.bytes().flat_map(|byte| format!("%{byte:02x}").into_bytes()).map(char::from).collect()
    }

    /// Passwords pasted between `:` and `@`, with every character that means something in URLs.
    fn pasted() -> impl Strategy<Value = String> {
        "[a1:@/?#%&=+,\\[\\]. ]{0,5}S3CR3T[a1:@/?#%&=+,\\[\\]. ]{0,5}"
    }

    proptest! {
        #[test]
        fn credentials_survive_percent_encoding(user in any::<String>(), password in ".+") {
            let (user_encoded, password_encoded) = (percent_encoded(&user), percent_encoded(&password));
            for url in [
                format!("redis://{user_encoded}:{password_encoded}@h"),
                format!("unix:///s?user={user_encoded}&pass={password_encoded}"),
            ] {
                let node = address(&url);
                let user = (!user.is_empty()).then_some(user.as_str());
                prop_assert_eq!(login(&node), (user, Some(password.as_str())));
            }
        }

        #[test]
        fn a_pasted_password_is_never_shown(password in pasted(), form in 0..6) {
            let url = match form {
                0 => format!("redis://user:{password}@host:6379/2"),
                1 => format!("redis://:{password}@[::1]"),
                2 => format!("{password}@host:6379"),
                3 => format!("unix:///run/s?pass={password}&db=1"),
                4 => format!("memory://user:{password}@a"),
                _ => format!("user:{password}://x@host"),
            };
            let env = format!("redis://a,{url},redis://b");
            for result in [Addresses::parse([&url]), Addresses::parse(["redis://a", &url]), Addresses::from_env_value(Some(&env))] {
                let shown = match result {
                    Ok(nodes) => format!("{nodes:?}"),
                    Err(error) => format!("{error} {error:?}"),
                };
                prop_assert!(!shown.to_lowercase().contains("s3cr3t"), "{} shows it: {}", url, shown);
            }
        }

        #[test]
        fn any_text_is_answered(text in any::<String>(), odd in "(redis|unix|memory)://[a:@/?#%&=0\\[\\]]{0,20}") {
            let _ = Address::parse(&text);
            if let Ok(node) = Address::parse(&odd) {
                let again = address(&node.to_string());
                prop_assert_eq!((&again.target, again.db), (&node.target, node.db));
            }
        }
    }
}
