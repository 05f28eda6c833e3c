//! Whether a server is the one that is meant: its certificate is signed by a trusted authority and has its name, or is
//! itself in the file of those.
//!
//! Who lists the very certificate of a server, which is often self-signed, means this server. Its name proves nothing
//! more, and neither does what the certificate says about itself: the default of `openssl req -x509` is an authority's,
//! and version 1 says nothing. The time in which it is valid counts, and the server has to sign the handshake with its key.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, PeerMisbehaved, RootCertStore, SignatureScheme};

use crate::protocol::certificate::{PublicKey, Validity};

/// What is trusted.
#[derive(Debug)]
pub(super) struct Verifier {
    /// `None` if no certificate can be an authority's.
    authorities: Option<Arc<WebPkiServerVerifier>>,
    /// The certificates that were listed.
    listed: Vec<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    /// Trusts those whose certificates are signed by one of `listed`, or are one of them.
    ///
    /// # Errors
    ///
    /// A certificate can be neither an authority's nor a server's.
    pub(super) fn of(listed: Vec<CertificateDer<'static>>, provider: Arc<CryptoProvider>) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in &listed {
            let added = roots.add(certificate.clone());
            if PublicKey::of(certificate).is_none() || Validity::of(certificate).is_none() {
                added?;
            }
        }
        Ok(Self { listed, ..Self::of_roots(Arc::new(roots), provider) })
    }

    /// Trusts those whose certificates are signed by one of `roots`.
    pub(super) fn of_roots(roots: Arc<RootCertStore>, provider: Arc<CryptoProvider>) -> Self {
        let algorithms = provider.signature_verification_algorithms;
        // It is refused without roots, and for nothing else here.
        let authorities = WebPkiServerVerifier::builder_with_provider(roots, provider).build().ok();
        Self { authorities, listed: Vec::new(), algorithms }
    }

    /// Returns the public key of a certificate that was listed.
    fn listed_key<'a>(&self, certificate: &'a CertificateDer<'_>) -> Option<PublicKey<'a>> {
        self.listed.contains(certificate).then(|| PublicKey::of(certificate)).flatten()
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.listed_key(certificate).is_some() {
            let validity = Validity::of(certificate).ok_or(CertificateError::BadEncoding)?;
            return match validity.covers(now.as_secs()) {
                Ok(()) => Ok(ServerCertVerified::assertion()),
                Err(std::cmp::Ordering::Less) => Err(CertificateError::NotValidYet.into()),
                Err(_) => Err(CertificateError::Expired.into()),
            };
        }
        let authorities = self.authorities.as_ref().ok_or(CertificateError::UnknownIssuer)?;
        authorities.verify_server_cert(certificate, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let Some(key) = self.listed_key(certificate) else {
            return verify_tls12_signature(message, certificate, signed, &self.algorithms);
        };
        // What rustls does, but for version 1 of certificates, which it does not read.
        let mut of_scheme = self.algorithms.mapping.iter().filter(|(scheme, _)| *scheme == signed.scheme);
        let algorithm = of_scheme
            .find_map(|(_, all)| all.iter().find(|one| one.public_key_alg_id().as_ref() == key.algorithm))
            .ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
        algorithm
            .verify_signature(key.bits, message, signed.signature())
            .map(|()| HandshakeSignatureValid::assertion())
            .map_err(|_| CertificateError::BadSignature.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let Some(key) = self.listed_key(certificate) else {
            return verify_tls13_signature(message, certificate, signed, &self.algorithms);
        };
        let info = SubjectPublicKeyInfoDer::from(key.info);
        verify_tls13_signature_with_raw_key(message, &info, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use harness::Authority;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::pem::PemObject;
    use rustls::sign::{CertifiedKey, SingleCertAndKey};
    use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, SupportedProtocolVersion, version};

    use super::super::provider;
    use super::*;

    /// A file of the tests in other languages.
    fn shared(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/support/tls").join(name)
    }

    fn certificate(path: &Path) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(path).unwrap()
    }

    /// Shakes hands, as a client that trusts what is in the file `ca`, with a server named `localhost`.
    fn handshake(
        ca: &Path,
        (chain, key): (&Path, &Path),
        version: &'static SupportedProtocolVersion,
    ) -> Result<(), Error> {
        let key = PrivateKeyDer::from_pem_file(key).unwrap();
        let key = provider().key_provider.load_private_key(key).unwrap();
        // It does not look whether they belong together.
        let server = SingleCertAndKey::from(CertifiedKey::new(vec![certificate(chain)], key));
        let server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(server));
        let verifier = Verifier::of(vec![certificate(ca)], provider())?;
        let client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[version])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        let mut client = ClientConnection::new(Arc::new(client), "localhost".try_into().unwrap()).unwrap();
        let mut server = ServerConnection::new(Arc::new(server)).unwrap();
        while client.is_handshaking() {
            let mut sent = Vec::new();
            client.write_tls(&mut sent).unwrap();
            server.read_tls(&mut sent.as_slice()).unwrap();
            server.process_new_packets()?;
            let mut sent = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut sent).unwrap();
            }
            let mut sent = sent.as_slice();
            while !sent.is_empty() {
                client.read_tls(&mut sent).unwrap();
                client.process_new_packets()?;
            }
        }
        Ok(())
    }

    #[test]
    fn a_listed_certificate_is_its_servers_alone() {
        for version in [&version::TLS12, &version::TLS13] {
            for name in ["self-signed", "v1"] {
                let [pem, key] = ["pem", "key"].map(|kind| shared(&format!("{name}.{kind}")));
                assert_eq!(handshake(&pem, (&pem, &key), version), Ok(()), "{name} {version:?}");
                let other = shared(if name == "v1" { "self-signed.pem" } else { "v1.pem" });
                let refused = handshake(&other, (&pem, &key), version).unwrap_err();
                assert!(matches!(refused, Error::InvalidCertificate(_)), "{name} {version:?}: {refused}");
            }
            // To show the certificate is not enough.
            let dir = tempfile::tempdir().unwrap();
            let (pem, key) = (shared("self-signed.pem"), Authority::make(dir.path()).key());
            assert_eq!(
                handshake(&pem, (&pem, &key), version),
                Err(CertificateError::BadSignature.into()),
                "{version:?}"
            );
        }
    }

    #[test]
    fn the_time_of_a_listed_certificate_counts_and_its_name_does_not() {
        let listed = certificate(&shared("self-signed.pem"));
        let verifier = Verifier::of(vec![listed.clone()], provider()).unwrap();
        let verify = |second| {
            let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(second));
            verifier.verify_server_cert(&listed, &[], &"another.name".try_into().unwrap(), &[], now).map(|_| ())
        };
        assert_eq!(verify(2_000_000_000), Ok(()));
        assert_eq!(verify(1), Err(CertificateError::NotValidYet.into()));
        assert_eq!(verify(99_000_000_000), Err(CertificateError::Expired.into()));
    }

    #[test]
    fn a_signed_certificate_works_as_ever() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::make(dir.path());
        let pair = (&*authority.certificate(), &*authority.key());
        for version in [&version::TLS12, &version::TLS13] {
            assert_eq!(handshake(&authority.ca(), pair, version), Ok(()));
            let refused = handshake(&authority.client_certificate(), pair, version).unwrap_err();
            assert_eq!(refused, CertificateError::UnknownIssuer.into());
            let pair = (&*authority.certificate(), &*authority.client_key());
            assert!(handshake(&authority.ca(), pair, version).is_err(), "it signs with another key");
        }
    }

    /// As one with an extension that is marked as critical and not known.
    #[test]
    fn a_certificate_that_could_not_be_judged_may_be_listed() {
        let dir = tempfile::tempdir().unwrap();
        let [pem, key] = ["strange.pem", "strange.key"].map(|name| dir.path().join(name));
        harness::self_signed_with_a_strange_extension(&pem, &key);
        for version in [&version::TLS12, &version::TLS13] {
            assert_eq!(handshake(&pem, (&pem, &key), version), Ok(()));
        }
        let authority = Authority::make(dir.path());
        let pair = (&*authority.certificate(), &*authority.key());
        assert_eq!(handshake(&pem, pair, &version::TLS13), Err(CertificateError::UnknownIssuer.into()));
        assert!(Verifier::of(vec![vec![0x30, 0].into()], provider()).is_err());
    }
}
