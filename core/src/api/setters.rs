//! The setters of options, as macros for the structs that have them.

/// Setters on a struct with a field `options`.
macro_rules! setters {
    ($($(#[$doc:meta])+ $option:ident: $type:ty => $value:expr;)+) => {$(
        $(#[$doc])+
        pub fn $option(mut self, $option: $type) -> Self {
            self.options.$option = Some($value);
            self
        }
    )+};
}

pub(crate) use setters;

/// The option that both builders have and no lock.
macro_rules! connect_timeout_setter {
    () => {
        crate::api::setters::setters! {
            /// Longest time for one connection, from the look-up of the name to the node's first answers: 50 ms to 60
            /// s, default 2 s. It takes up to four round trips. An option of the client alone.
            connect_timeout: Duration => connect_timeout;
        }
    };
}

pub(crate) use connect_timeout_setter;

/// The options that a client's builder and a lock have in common.
macro_rules! option_setters {
    () => {
        crate::api::setters::setters! {
            /// How long the nodes keep the lock unless it is extended: 100 ms to 24 h, default 10 s. A crashed holder
            /// blocks others for at most this long.
            ttl: Duration => ttl;
            /// How long acquire may wait; zero is one try. By default it waits for as long as others hold the lock.
            timeout: Duration => Some(timeout);
            /// Whether the background extends the lock every third of its ttl until it is released; default true. A
            /// hung holder then blocks others for ever, unless `max_hold` ends it.
            auto_renew: bool => auto_renew;
            /// The lock ends this long after it was acquired, however often it was extended; at least the ttl. By
            /// default nothing ends it.
            max_hold: Duration => max_hold;
            /// Longest wait for one node's vote; default a quarter of the ttl, from 50 ms to 500 ms.
            node_timeout: Duration => node_timeout;
            /// How long the grants of a node do not count after this process saw it restart; default the ttl. Zero
            /// turns that off, for nodes whose data survives.
            restart_delay: Duration => restart_delay;
            /// How long a node remembers a name's fence after the last acquire or renewal; default the larger of 1 h
            /// and twice the ttl, at least twice the ttl.
            fence_ttl: Duration => fence_ttl;
            /// The label that inspection shows: at most 128 bytes without control characters; default `host:pid`, empty
            /// for none.
            label: impl AsRef<str> => label.as_ref().into();
        }

        /// Lets acquire wait without end, where the client has a timeout.
        pub fn no_timeout(mut self) -> Self {
            self.options.timeout = Some(None);
            self
        }

        /// Hidden: for the bindings, which give all options at once. They have an option for the protocol, too: in Rust
        /// the type decides.
        #[doc(hidden)]
        pub fn options(mut self, options: crate::options::Options) -> Self {
            self.options = options;
            self
        }
    };
}

pub(crate) use option_setters;

/// The options of a lock in the older protocol, on a struct around a lock.
macro_rules! setnx_setters {
    () => {
        /// How long the holder may rely on the lock: 100 ms to 24 h, default 10 s. There is no renewal: choose it longer
        /// than the work takes, and the same as the older clients. A crashed holder blocks others for at most 3 s longer.
        pub fn ttl(self, ttl: Duration) -> Self {
            Self(self.0.ttl(ttl))
        }

        /// How long acquire may wait; zero is one try. By default it waits for as long as others hold the lock.
        pub fn timeout(self, timeout: Duration) -> Self {
            Self(self.0.timeout(timeout))
        }

        /// Lets acquire wait without end, where the client has a timeout.
        pub fn no_timeout(self) -> Self {
            Self(self.0.no_timeout())
        }

        /// Longest wait for the node's answer; default a quarter of the ttl, from 50 ms to 500 ms.
        pub fn node_timeout(self, node_timeout: Duration) -> Self {
            Self(self.0.node_timeout(node_timeout))
        }

        /// How long the grants of the node do not count after this process saw it restart; default the ttl. Zero turns
        /// that off, for a node whose data survives.
        pub fn restart_delay(self, restart_delay: Duration) -> Self {
            Self(self.0.restart_delay(restart_delay))
        }
    };
}

pub(crate) use setnx_setters;
