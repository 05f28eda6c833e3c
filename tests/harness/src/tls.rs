//! A certificate authority that lives as long as the test.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// A CA, a server certificate for `localhost` and `127.0.0.1`, and a client certificate, as PEM files in one directory.
///
/// The server has its own: the CA's own certificate would be accepted only because it is listed.
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

        let authority = Self { dir: dir.to_owned() };
        write(&authority.ca(), &ca_pem);
        let mut server = params(&["localhost", "127.0.0.1"]);
        server.distinguished_name.push(rcgen::DnType::CommonName, "localhost");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        sign(server, &issuer, &authority.certificate(), &authority.key());
        let mut client = params(&[]);
        client.distinguished_name.push(rcgen::DnType::CommonName, "redlock test client");
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        sign(client, &issuer, &authority.client_certificate(), &authority.client_key());
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

    /// A client's certificate.
    #[must_use]
    pub fn client_certificate(&self) -> PathBuf {
        self.dir.join("client.pem")
    }

    /// The client's private key.
    #[must_use]
    pub fn client_key(&self) -> PathBuf {
        self.dir.join("client.key")
    }
}

/// Writes a self-signed certificate of a server, and its key. It has a critical extension that nobody knows.
pub fn self_signed_with_a_strange_extension(certificate: &Path, private_key: &Path) {
    let (mut server, server_key) = (params(&["localhost"]), key());
    let mut strange = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99_999, 1], vec![5, 0]);
    strange.set_criticality(true);
    server.custom_extensions.push(strange);
    write(certificate, &server.self_signed(&server_key).expect("a server can sign itself").pem());
    write(private_key, &server_key.serialize_pem());
}

/// Signs a certificate, and writes it and its new key.
fn sign(mut leaf: CertificateParams, issuer: &Issuer<'_, KeyPair>, certificate: &Path, private_key: &Path) {
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.use_authority_key_identifier_extension = true;
    let leaf_key = key();
    let pem = leaf.signed_by(&leaf_key, issuer).expect("an authority can sign a certificate").pem();
    write(certificate, &pem);
    write(private_key, &leaf_key.serialize_pem());
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
