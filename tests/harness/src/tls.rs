//! A certificate authority that lives as long as the test.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// A CA and a server certificate for `localhost` and `127.0.0.1`, as PEM files in one directory.
///
/// Two certificates, because rustls refuses a CA certificate that is used as a server certificate.
#[derive(Clone, Debug)]
pub struct Authority {
    dir: PathBuf,
}

impl Authority {
    /// Makes the certificates and writes them to `dir`, which must exist.
    #[must_use]
    pub fn make(dir: &Path) -> Self {
        let mut ca = params(&[]);
        ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        ca.distinguished_name.push(rcgen::DnType::CommonName, "redlock test authority");
        let ca_key = key();
        let ca_pem = ca.self_signed(&ca_key).expect("an authority can sign itself").pem();
        let issuer = Issuer::new(ca, ca_key);

        let mut leaf = params(&["localhost", "127.0.0.1"]);
        leaf.distinguished_name.push(rcgen::DnType::CommonName, "localhost");
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        leaf.use_authority_key_identifier_extension = true;
        let leaf_key = key();
        let leaf_pem = leaf.signed_by(&leaf_key, &issuer).expect("an authority can sign a certificate").pem();

        let authority = Self { dir: dir.to_owned() };
        write(&authority.ca(), &ca_pem);
        write(&authority.certificate(), &leaf_pem);
        write(&authority.key(), &leaf_key.serialize_pem());
        authority
    }

    /// The CA's certificate: what a client has to trust.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    /// The server's certificate.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.dir.join("server.pem")
    }

    /// The server's private key.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.dir.join("server.key")
    }
}

fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    CertificateParams::new(names).expect("the names are valid")
}

fn key() -> KeyPair {
    KeyPair::generate().expect("the system gives random bytes")
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}
