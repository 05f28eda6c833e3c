//! Credentials: the user and the password of connections, and a program's own provider of them.

use std::any::type_name;
use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::texts::opaque;

/// Text that is never shown.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Secret(Arc<str>);

impl Secret {
    /// Treats an empty text as absent.
    pub(crate) fn some(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(text.into()))
    }

    /// Returns the text, for the server and comparisons, never for a message.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

/// A user and a password for the nodes, as a provider returns them; see [`Credentials`]. `Debug` shows neither.
///
/// # Examples
///
/// ```
/// use redlock::Login;
/// use std::time::Duration;
///
/// let login = Login::new("app", "a token").lasting(Duration::from_secs(900));
/// assert!(!format!("{login:?}").contains("token"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    pub(crate) username: Option<Secret>,
    pub(crate) password: Option<Secret>,
    pub(crate) lasts: Option<Duration>,
}

impl Login {
    /// Makes a login that does not end. An empty user is the default user.
    #[must_use]
    pub fn new(username: impl AsRef<str>, password: impl AsRef<str>) -> Self {
        let (username, password) = (Secret::some(username.as_ref()), Secret::some(password.as_ref()));
        Self { username, password, lasts: None }
    }

    /// Sets how long the servers accept this login, from when the provider was called. The provider is called again at
    /// 70 to 80 % of this time.
    #[must_use]
    pub fn lasting(mut self, duration: Duration) -> Self {
        self.lasts = Some(duration);
        self
    }
}

/// A provider of logins for a client; see [`Builder::credentials`](crate::Builder::credentials).
///
/// Every closure that returns a future of a login is one. The future runs in a tokio runtime on a thread of its own, the
/// same one for all calls. A call may take 10 s, then its future is dropped. There is one call at a time. A call that
/// blocks the thread for longer keeps the next ones from it. A connect that needs the first login waits for it within
/// its `connect_timeout`. After a failed call, the login before stays in use, and the call is repeated after 1 s,
/// doubling to 30 s.
///
/// A provider must not use a lock of its own client: that call fails with `invalid_argument`.
///
/// # Examples
///
/// ```
/// use redlock::{Login, Redlock};
/// use std::time::Duration;
///
/// async fn token() -> Result<String, std::io::Error> {
///     Ok("from a service".to_owned())
/// }
///
/// let redlock = Redlock::builder()
///     .nodes("rediss://cache.internal:6379")
///     .credentials(|| async { Ok::<_, std::io::Error>(Login::new("app", token().await?).lasting(Duration::from_secs(900))) })
///     .build()?;
/// # Ok::<(), redlock::Error>(())
/// ```
pub trait Credentials: Send + Sync + 'static {
    /// The error of a failed call. Messages and logs show only its type. It is the source of the error that an acquire
    /// then returns.
    type Error: Into<AnyError>;

    /// Returns the login for connections from now on.
    fn login(&self) -> impl Future<Output = Result<Login, Self::Error>> + Send;
}

impl<F, R, E> Credentials for F
where
    F: Fn() -> R + Send + Sync + 'static,
    R: Future<Output = Result<Login, E>> + Send,
    E: Into<AnyError>,
{
    type Error = E;

    fn login(&self) -> impl Future<Output = Result<Login, E>> + Send {
        self()
    }
}

/// An error of any type.
type AnyError = Box<dyn StdError + Send + Sync>;

/// One call of a provider.
pub(crate) type Call = Pin<Box<dyn Future<Output = Result<Login, ProviderError>> + Send>>;

/// A provider of any type. Two are the same if they are clones.
#[derive(Clone)]
pub(crate) struct Provider(Arc<dyn Fn() -> Call + Send + Sync>);

impl Provider {
    pub(crate) fn new(credentials: impl Credentials) -> Self {
        let credentials = Arc::new(credentials);
        Self(Arc::new(move || {
            let credentials = Arc::clone(&credentials);
            Box::pin(async move { credentials.login().await.map_err(ProviderError::of) })
        }))
    }

    pub(crate) fn call(&self) -> Call {
        (self.0)()
    }
}

impl PartialEq for Provider {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Provider {}

impl Hash for Provider {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).cast::<()>().hash(state);
    }
}

opaque!(Provider);

/// A failed call of a provider. Shows the error's type alone, because its text may contain secrets. Hidden: for the
/// bindings.
#[doc(hidden)]
#[derive(Clone)]
pub struct ProviderError {
    kind: Arc<str>,
    /// The provider's own error; `None` if the call failed without one.
    pub(crate) source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl ProviderError {
    /// Makes a failure of a type of error that another language names. Hidden: for the bindings.
    #[doc(hidden)]
    #[must_use]
    pub fn named(kind: &str, source: impl StdError + Send + Sync + 'static) -> Self {
        Self { kind: kind.into(), source: Some(Arc::new(source)) }
    }

    /// Makes a failure without an error of the provider.
    pub(crate) fn without_source(kind: &str) -> Self {
        Self { kind: kind.into(), source: None }
    }

    fn of<E: Into<AnyError>>(error: E) -> Self {
        let kind = type_name::<E>();
        match error.into().downcast::<Self>() {
            Ok(named) => *named,
            Err(error) => Self { kind: kind.into(), source: Some(error.into()) },
        }
    }
}

impl PartialEq for ProviderError {
    fn eq(&self, other: &Self) -> bool {
        let pointer = |error: &Self| error.source.as_ref().map(|source| Arc::as_ptr(source).cast::<()>());
        self.kind == other.kind && pointer(self) == pointer(other)
    }
}

impl Eq for ProviderError {}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the credentials provider failed: {}", self.kind)
    }
}

impl fmt::Debug for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProviderError({})", self.kind)
    }
}

impl StdError for ProviderError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_type_of_a_providers_error_is_shown() {
        let provider =
            Provider::new(|| async { Err::<Login, _>(std::io::Error::other("the token s3cr3t has expired")) });
        let error = provider.call().await.unwrap_err();
        assert_eq!(error.to_string(), "the credentials provider failed: std::io::error::Error");
        assert!(!format!("{error:?} {provider:?}").contains("s3cr3t"));
        assert!(error.source().unwrap().to_string().contains("s3cr3t"), "the error itself is the cause");
        assert_eq!(error, error.clone());
        assert_ne!(error, provider.call().await.unwrap_err());
        assert_eq!(provider, provider.clone());
        assert_ne!(provider, Provider::new(|| async { Ok::<_, std::io::Error>(Login::new("", "")) }));
    }

    #[test]
    fn a_login_shows_no_secret() {
        let login = Login::new("s3cr3t user", "s3cr3t").lasting(Duration::from_secs(1));
        assert!(!format!("{login:?}").contains("s3cr3t"));
        assert_eq!(Login::new("", ""), Login { username: None, password: None, lasts: None });
    }
}
