//! The setters of options, as macros for builders and locks.

/// Makes setters on a struct with a method `options_mut`.
macro_rules! setters {
    ($($(#[$doc:meta])+ $option:ident: $type:ty => $value:expr;)+) => {$(
        $(#[$doc])+
        pub fn $option(mut self, $option: $type) -> Self {
            self.options_mut().$option = Some($value);
            self
        }
    )+};
}

pub(crate) use setters;

/// Makes the setters of the options that only builders have.
macro_rules! client_setters {
    () => {
        crate::api::setters::setters! {
            /// Sets the longest time for one connection, from the look-up of the host's name to the node's first
            /// answers: 50 ms to 60 s, default 2 s. A connection takes up to four round trips. Only a client has this
            /// option.
            connect_timeout: Duration => connect_timeout;
            /// Sets after how long without traffic a TCP connection is probed, in whole seconds: 1 s to 9 h, default 60 s,
            /// zero for never. So what is between here and the node does not take it for unused, and one that was dropped
            /// without a word ends. Only a client has this option.
            keepalive: Duration => keepalive;
            /// Sets how many connections to each node blocking callers may have: 1 to 64, default 8. More callers at a time
            /// share those of the background, of which there are two. Callers with a runtime of their own have one for
            /// each runtime. Only a client has this option.
            max_connections: u32 => max_connections;
            /// Sets the text before each name: the key of a lock is this text and then the lock's name; 0 to 511 bytes,
            /// default none. The limits of names apply to the whole. Errors and inspection show the whole. Only a
            /// client has this option.
            key_prefix: impl AsRef<str> => key_prefix.as_ref().into();
            /// Sets the file with the password for nodes whose address has none. It is read at every connect, without
            /// one line end at its end. The user is the address's; by default the default user.
            password_file: impl AsRef<Path> => password_file.as_ref().into();
            /// Sets the PEM file with the certificates of the only CAs to trust, for nodes with TLS. By default the
            /// system's are trusted. A server whose own certificate is in the file is trusted under every name, also if
            /// it is self-signed. An address may name another one with `?tls_ca=`; the same holds for the other
            /// options of TLS. The files are read when the client is built, and again at a connect that finds them
            /// changed. A new version that cannot be used leaves the old one in force.
            tls_ca: impl AsRef<Path> => tls_ca.as_ref().into();
            /// Sets the PEM file with the client's certificate and its chain, for nodes with TLS. Needs `tls_key`.
            tls_cert: impl AsRef<Path> => tls_cert.as_ref().into();
            /// Sets the PEM file with the private key of `tls_cert`, not encrypted.
            tls_key: impl AsRef<Path> => tls_key.as_ref().into();
            /// Sets the name that a node's certificate must have, where the address has another host, as through a
            /// tunnel.
            tls_server_name: impl AsRef<str> => tls_server_name.as_ref().into();
        }
    };
}

pub(crate) use client_setters;

/// Makes the setters that a client's builder and a lock have in common.
macro_rules! option_setters {
    () => {
        crate::api::setters::setters! {
            /// Sets how long the nodes keep the lock unless it is extended: 100 ms to 24 h, default 10 s. A crashed
            /// holder blocks others for at most this long.
            ttl: Duration => ttl;
            /// Sets how long acquire may wait; zero is one try. By default it waits for as long as others hold the
            /// lock.
            timeout: Duration => Some(timeout);
            /// Sets whether the background extends the lock every third of its ttl until it is released; default true.
            /// A hung holder then blocks others forever, unless `max_hold` ends the lock.
            auto_renew: bool => auto_renew;
            /// Ends the lock this long after it was acquired, even if it was extended; at least the ttl. By default
            /// there is no such limit.
            max_hold: Duration => max_hold;
            /// Sets the least time before others can have the lock, counted from the acquire, even if it is released before:
            /// at most 7 days, default zero. So a job that many hosts start at about the same time runs once. If it is longer
            /// than the ttl, a crashed holder keeps others out until then, too. Not for several names.
            at_least: Duration => at_least;
            /// Sets by how much the lock counts as lost before others can have it: at most half the ttl, default zero.
            /// A holder that cannot renew it has this long to stop. The lock is renewed sooner for it.
            margin: Duration => margin;
            /// Sets the longest wait for one node's vote; default a quarter of the ttl, from 50 ms to 500 ms.
            node_timeout: Duration => node_timeout;
            /// Sets for how long a node's grants do not count after this process saw the node restart, which a process that
            /// starts later has not; default the ttl. Zero turns this off, for nodes that have each write on the disk
            /// before they answer (`appendfsync always`).
            restart_delay: Duration => restart_delay;
            /// Sets how long a node remembers a name's fence after the last acquire or renewal: at least twice the ttl,
            /// default the larger of 1 h and twice the ttl.
            fence_ttl: Duration => fence_ttl;
            /// Sets the label that inspection shows: at most 128 bytes without control characters; default `host:pid`,
            /// empty for none.
            label: impl AsRef<str> => label.as_ref().into();
        }

        /// Lets acquire wait forever, even if the client has a timeout.
        pub fn no_timeout(mut self) -> Self {
            self.options_mut().timeout = Some(None);
            self
        }

        /// Sets all options at once. Hidden: for the bindings. Their options include the protocol; in Rust, the type of
        /// the lock decides it.
        #[doc(hidden)]
        pub fn options(mut self, options: crate::options::Options) -> Self {
            *self.options_mut() = options;
            self
        }
    };
}

pub(crate) use option_setters;

/// Makes the setters of a candidate, which waits forever and is renewed.
macro_rules! candidate_setters {
    () => {
        crate::api::setters::setters! {
            /// Sets how long the nodes keep the term unless it is renewed: 100 ms to 24 h, default 10 s. Nobody leads for
            /// at most this long after a leader has crashed.
            ttl: Duration => ttl;
            /// Sets how long a leader that cannot renew its term has to stop before another can lead: at most half the
            /// ttl, default zero.
            margin: Duration => margin;
            /// Sets the longest wait for one node's vote; default a quarter of the ttl, from 50 ms to 500 ms.
            node_timeout: Duration => node_timeout;
            /// Sets for how long a node's grants do not count after this process saw the node restart, which a process that
            /// starts later has not; default the ttl. Zero turns this off, for nodes that have each write on the disk
            /// before they answer (`appendfsync always`).
            restart_delay: Duration => restart_delay;
            /// Sets how long a node remembers the term after the last renewal: at least twice the ttl, default the larger
            /// of 1 h and twice the ttl.
            fence_ttl: Duration => fence_ttl;
            /// Sets the label that [`leader`](Self::leader) and inspection show: at most 128 bytes without control
            /// characters; default `host:pid`, empty for none.
            label: impl AsRef<str> => label.as_ref().into();
        }
    };
}

pub(crate) use candidate_setters;

/// Makes the setters of a lock in the older protocol, on a struct around a lock.
macro_rules! setnx_setters {
    () => {
        /// Sets for how long the holder may rely on the lock: 100 ms to 24 h, default 10 s. The lock is not renewed:
        /// choose a ttl longer than the work, and the same as the older clients. A crashed holder blocks others for at
        /// most 3 s longer.
        pub fn ttl(self, ttl: Duration) -> Self {
            Self(self.0.ttl(ttl))
        }

        /// Sets how long acquire may wait; zero is one try. By default it waits for as long as others hold the lock.
        pub fn timeout(self, timeout: Duration) -> Self {
            Self(self.0.timeout(timeout))
        }

        /// Lets acquire wait forever, even if the client has a timeout.
        pub fn no_timeout(self) -> Self {
            Self(self.0.no_timeout())
        }

        /// Sets the longest wait for the node's answer; default a quarter of the ttl, from 50 ms to 500 ms.
        pub fn node_timeout(self, node_timeout: Duration) -> Self {
            Self(self.0.node_timeout(node_timeout))
        }

        /// Sets for how long the node's grants do not count after this process saw the node restart, which a process that
        /// starts later has not; default the ttl. Zero turns this off, for a node that has each write on the disk before
        /// it answers (`appendfsync always`).
        pub fn restart_delay(self, restart_delay: Duration) -> Self {
            Self(self.0.restart_delay(restart_delay))
        }
    };
}

pub(crate) use setnx_setters;
