//! TLS to a node: what is trusted, the client's own certificate, and the handshake.
//!
//! The configuration is this library's own, with ring or AWS-LC. No process-wide provider is installed, and none of the host
//! program's is used. There is no insecure mode: `verifier.rs` checks every server.
//!
//! The files are read when a client is made, which fails if one cannot be used. Each connect looks whether they
//! changed, and reads them again if so. States:
//!
//! - *in force*: the last version that could be used;
//! - *refused*: the files have a newer version that cannot be used. The version in force stays, one warning is logged
//!   for each refused version, and the next connect reads again.
//!
//! A certificate and its key are one version. Files that change while they are read count as not read.
//!
//! All connects that need the files wait for one reading of them. What may interrupt it: a connect that is cancelled leaves
//! the reading to its thread, which finishes it for the next connect. Without `tls_ca`, the system's roots are trusted. They are read once per process, at the first connect that
//! needs them.

mod verifier;

use std::borrow::Cow;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::address::TlsOptions;
use crate::error::Error;
use crate::protocol::certificate::Validity;
use crate::sys::file_version::{self, FileVersion};
use crate::sys::fork::{PerProcess, Pid};
use crate::sys::log::log;
use crate::sys::mutex::Mutex;
use crate::sys::shared_calls::SharedCalls;
use crate::transport::failure::Failure;
use crate::transport::socket::{Socket, Transport};
use crate::transport::tls::verifier::Verifier;

/// How often files are read again because they changed meanwhile.
const READS_MOST: u32 = 3;

/// Why a handshake ended without a word of TLS.
const HUNG_UP: &str = "connection closed during the TLS handshake; does the server speak TLS 1.2 or newer there, and \
                       has it connections left?";

/// The system's roots, once they were read. Locked while they are, only by threads that may wait for files.
static SYSTEM_ROOTS: PerProcess<Mutex<Option<Arc<RootCertStore>>>> = PerProcess::new();

/// TLS to one host.
pub(crate) struct Tls {
    options: TlsOptions,
    server_name: ServerName<'static>,
    /// Shared by all hosts that use the same files.
    state: Arc<Mutex<State>>,
    readings: Arc<SharedCalls<(), Result<Arc<ClientConfig>, Failure>>>,
}

struct State {
    in_force: Material,
    version: Version,
    /// Made of the version in force at the first connect.
    config: Option<Arc<ClientConfig>>,
    /// The last version for which a warning was logged.
    refused: Option<Version>,
}

/// The content of the files.
#[derive(Clone)]
struct Material {
    /// What is trusted; `None` for the system's roots.
    trusted: Option<Arc<Verifier>>,
    /// The client's own certificate with its key.
    client: Option<Arc<CertifiedKey>>,
}

/// The version of all files together.
type Version = Vec<Option<FileVersion>>;

/// A reason why a file cannot be used: the option that names it, and the rest of the message.
struct Refusal {
    option: &'static str,
    reason: String,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files of `options` for connections to `host`.
    pub(crate) fn new(options: &TlsOptions, host: &str) -> Result<Self, Error> {
        let server_name = server_name(options, host)?;
        let (in_force, version) = read(options).map_err(|refusal| Error::about(refusal.option, refusal.reason))?;
        let state = State { in_force, version, config: None, refused: None };
        let (state, readings) = (Arc::new(Mutex::new(state)), Arc::default());
        Ok(Self { options: options.clone(), server_name, state, readings })
    }

    /// Makes the same for connections to another `host`, with the files in force.
    pub(crate) fn to(&self, host: &str) -> Result<Self, Error> {
        let server_name = server_name(&self.options, host)?;
        let (state, readings) = (Arc::clone(&self.state), Arc::clone(&self.readings));
        Ok(Self { options: self.options.clone(), server_name, state, readings })
    }

    /// Returns the configuration for a connect now. Reads files that changed. Cancel safe.
    pub(crate) async fn config(self: Arc<Self>) -> Result<Arc<ClientConfig>, Failure> {
        // A thread that holds the lock may wait for files.
        if self.options.files().next().is_none()
            && let Some(state) = self.state.try_lock()
            && let Some(config) = &state.config
        {
            return Ok(Arc::clone(config));
        }
        let readings = Arc::clone(&self.readings);
        let read = readings.call((), move |running| {
            let (config, refusal) = self.renewed();
            // A log may block, and no connect waits for it.
            running.end(config);
            if let Some(Refusal { option, reason }) = refusal {
                log!(TLS_FILES_KEPT, option, "{option}{reason}; the files read before stay in force");
            }
        });
        read.await.unwrap_or(Err(Failure::Closed))
    }

    /// Reads files that changed. Returns the configuration in force, and the refusal of a new version the first time.
    fn renewed(&self) -> (Result<Arc<ClientConfig>, Failure>, Option<Refusal>) {
        let known = self.state.lock().version.clone();
        let version = version(&self.options);
        // Without the lock, because it may hang, and a later one not.
        let renewed = (version != known).then(|| read(&self.options));
        let mut state = self.state.lock();
        let mut refusal = None;
        match renewed {
            Some(Ok((in_force, version))) => *state = State { in_force, version, config: None, refused: None },
            Some(Err(why)) if state.refused.as_ref() != Some(&version) => {
                state.refused = Some(version);
                refusal = Some(why);
            }
            Some(Err(_)) | None => {}
        }
        let config = match &state.config {
            Some(config) => Ok(Arc::clone(config)),
            None => config(&state.in_force),
        };
        state.config = config.as_ref().ok().cloned();
        (config, refusal)
    }

    /// Encrypts `tcp`. Cancel safe.
    pub(crate) async fn shake_hands(
        &self,
        config: Arc<ClientConfig>,
        socket: Socket,
    ) -> Result<TlsStream<Socket>, Failure> {
        let connected = TlsConnector::from(config).connect(self.server_name.clone(), socket).await;
        connected.map_err(|error| failure(&error).unwrap_or(Failure::Unreachable(HUNG_UP.into())))
    }
}

/// Returns the name that the certificate of `host` must have.
fn server_name(options: &TlsOptions, host: &str) -> Result<ServerName<'static>, Error> {
    let name = options.server_name.as_deref().unwrap_or(host);
    // A host may not be a name for a certificate: `a_b`.
    ServerName::try_from(name.to_owned()).map_err(|_| {
        Error::about("tls_server_name", format!(" {name:?} is not a host name that a certificate can have"))
    })
}

/// It cannot tell whether there is something to read, for it may have decrypted more than was read.
impl Transport for TlsStream<Socket> {
    fn socket(&mut self) -> Option<&mut Socket> {
        Some(self.get_mut().0)
    }

    fn certificate(&self) -> Option<Validity> {
        Validity::of(self.get_ref().1.peer_certificates()?.first()?)
    }
}

/// Sorts an I/O error of an encrypted stream; `None` if TLS is not its cause.
pub(crate) fn failure(error: &io::Error) -> Option<Failure> {
    let tls = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(Failure::Tls(Cow::Owned(format!("{tls}{}", advice(tls)))))
}

/// Returns the advice about an error of TLS.
fn advice(error: &rustls::Error) -> &'static str {
    match error {
        rustls::Error::InvalidCertificate(why) => match why {
            // Another CA of the same name has another signature.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "; set tls_ca to the file of the CA that signed the server's certificate, or of a self-signed one itself"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "; set tls_server_name to a name in the server's certificate"
            }
            CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
                "; set tls_ca to the file of this certificate, or give the server one that is not a CA's"
            }
            _ => "",
        },
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::HandshakeFailure,
        ) => "; does the server ask for a certificate? set tls_cert and tls_key",
        rustls::Error::InvalidMessage(_) => "; does the server speak TLS on this port?",
        _ => "",
    }
}

/// AWS-LC is there only for who has asked for it.
fn provider() -> Arc<CryptoProvider> {
    #[cfg(feature = "tls-aws-lc")]
    use rustls::crypto::aws_lc_rs::default_provider;
    #[cfg(not(feature = "tls-aws-lc"))]
    use rustls::crypto::ring::default_provider;
    Arc::new(default_provider())
}

fn config(material: &Material) -> Result<Arc<ClientConfig>, Failure> {
    let trusted = match &material.trusted {
        Some(trusted) => Arc::clone(trusted),
        None => Arc::new(Verifier::of_roots(system_roots()?, provider())),
    };
    let unusable = |error: rustls::Error| Failure::Tls(error.to_string().into());
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .dangerous()
        .with_custom_certificate_verifier(trusted);
    Ok(Arc::new(match &material.client {
        Some(client) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(client)))),
        None => builder.with_no_client_auth(),
    }))
}

/// Returns the roots that the system trusts: those of `SSL_CERT_FILE` and `SSL_CERT_DIR`, or of the usual places.
fn system_roots() -> Result<Arc<RootCertStore>, Failure> {
    let read = SYSTEM_ROOTS.of(Pid::now(), Mutex::default);
    let mut read = read.lock();
    if let Some(roots) = &*read {
        return Ok(Arc::clone(roots));
    }
    let mut roots = RootCertStore::empty();
    // Certificates that cannot be read or parsed are skipped, as every program on the system does.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        let reason = "the system trusts no certificate that can be read; set tls_ca, or SSL_CERT_FILE";
        return Err(Failure::Tls(reason.into()));
    }
    Ok(Arc::clone(read.insert(Arc::new(roots))))
}

/// Returns the version of the files as they are now. A file that cannot be looked at has none.
fn version(options: &TlsOptions) -> Version {
    options.files().map(|(_, path)| file_version::of(path)).collect()
}

/// Reads all files, as one version.
fn read(options: &TlsOptions) -> Result<(Material, Version), Refusal> {
    for _ in 0..READS_MOST {
        let before = version(options);
        let material = read_once(options);
        if version(options) == before {
            return Ok((material?, before));
        }
    }
    let (option, path) = options.files().next().expect("without files, their version does not change");
    Err(Refusal { option, reason: format!(" ({}) changed while it was read", path.display()) })
}

fn read_once(options: &TlsOptions) -> Result<Material, Refusal> {
    let trusted = options.ca.as_deref().map(|path| {
        let unusable = |error| refusal("tls_ca", path, &format!("has a certificate that cannot be used: {error}"));
        Verifier::of(certificates("tls_ca", path)?, provider()).map(Arc::new).map_err(unusable)
    });
    let client = options.cert.as_deref().zip(options.key.as_deref()).map(|(cert, key)| {
        let chain = certificates("tls_cert", cert)?;
        let private_key = PrivateKeyDer::from_pem_slice(&content("tls_key", key)?).map_err(|_| {
            refusal("tls_key", key, "has no private key in PEM form (PKCS #8, PKCS #1 or SEC 1, not encrypted)")
        })?;
        let client = CertifiedKey::from_der(chain, private_key, &provider()).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                refusal("tls_key", key, &format!("does not belong to the certificate in {}", cert.display()))
            }
            // The text is fixed and does not repeat the key.
            error => refusal("tls_key", key, &format!("cannot be used: {error}")),
        })?;
        Ok(Arc::new(client))
    });
    Ok(Material { trusted: trusted.transpose()?, client: client.transpose()? })
}

fn certificates(option: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Refusal> {
    let content = content(option, path)?;
    let certificates = CertificateDer::pem_slice_iter(&content).collect::<Result<Vec<_>, _>>();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(refusal(option, path, "has no certificate in PEM form")),
        // The parser's text may repeat a line of the file, which may be a key.
        Err(_) => Err(refusal(option, path, "is not in PEM form")),
    }
}

fn content(option: &'static str, path: &Path) -> Result<Vec<u8>, Refusal> {
    fs::read(path).map_err(|error| refusal(option, path, &format!("cannot be read: {error}")))
}

fn refusal(option: &'static str, path: &Path, reason: &str) -> Refusal {
    Refusal { option, reason: format!(" ({}) {reason}", path.display()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_roots_are_read_once() {
        // A system may trust nobody.
        if let (Ok(first), Ok(second)) = (system_roots(), system_roots()) {
            assert!(Arc::ptr_eq(&first, &second));
        }
    }

    #[test]
    fn each_refusal_of_a_handshake_has_its_advice() {
        let other = |text: &str| {
            let other = rustls::OtherError(Arc::new(io::Error::other(text.to_owned())));
            rustls::Error::InvalidCertificate(CertificateError::Other(other))
        };
        for (error, advised) in [
            (rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer), "tls_ca"),
            (rustls::Error::InvalidCertificate(CertificateError::BadSignature), "tls_ca"),
            (rustls::Error::InvalidCertificate(CertificateError::NotValidForName), "tls_server_name"),
            (other("CaUsedAsEndEntity"), "not a CA's"),
            (rustls::Error::AlertReceived(AlertDescription::CertificateRequired), "tls_cert and tls_key"),
            (rustls::Error::AlertReceived(AlertDescription::HandshakeFailure), "tls_cert and tls_key"),
            (rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType), "speak TLS"),
            (rustls::Error::InvalidCertificate(CertificateError::Expired), "Expired"),
        ] {
            let Some(Failure::Tls(text)) = failure(&io::Error::new(io::ErrorKind::InvalidData, error)) else {
                panic!("not a failure of TLS");
            };
            assert!(text.contains(advised), "{text}");
        }
        assert_eq!(failure(&io::Error::other("another")), None);
    }
}
