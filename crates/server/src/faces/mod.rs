//! Faces: one protocol each, translating into operations of the catalogue and back.

pub mod errors;
pub(crate) mod http;
pub(crate) mod jalien;
pub(crate) mod native;
pub(crate) mod xrootd;

/// After an error of accepting, such as too many open files, a little time for it to pass.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

async fn pause_after_accept_error(face: &str, error: &std::io::Error) {
    tracing::warn!(face, %error, "cannot accept a connection");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}
