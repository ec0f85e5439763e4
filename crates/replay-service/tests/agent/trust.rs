//! Certificates for servers of tests.

use std::sync::Arc;

use exacat_replay_service::agent::trusting;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio_rustls::TlsAcceptor;

/// Certificate of `localhost`, and a client that trusts it.
pub(crate) struct Trust {
    pub acceptor: TlsAcceptor,
    pub client: Arc<rustls::ClientConfig>,
}

/// Makes a certificate, and a client that trusts it alone.
pub(crate) fn trust() -> Trust {
    let key = rcgen::KeyPair::generate().unwrap();
    let own = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let secret = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.der().clone()], secret)
        .unwrap();
    let directory = tempfile::tempdir().unwrap();
    let authorities = directory.path().join("ca.pem");
    std::fs::write(&authorities, own.pem()).unwrap();
    Trust { acceptor: TlsAcceptor::from(Arc::new(config)), client: trusting(Some(&authorities)).unwrap() }
}
