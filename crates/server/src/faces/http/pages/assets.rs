//! The style sheet, the script and the icon. Their names have digests of their content, so a browser
//! keeps them for ever.

use std::sync::LazyLock;

use hyper::header::CACHE_CONTROL;
use hyper::{Response, StatusCode};
use ring::digest::{SHA256, digest};

use super::super::answers::{Body, answer, set};

/// Start of the paths.
pub(super) const PREFIX: &str = "/static/";
/// Bytes of the digest in a name.
const DIGEST_BYTES: usize = 8;

/// A file that pages use.
pub(super) struct Asset {
    /// Its path.
    pub path: String,
    content_type: &'static str,
    content: &'static str,
}

impl Asset {
    fn new(ending: &str, content_type: &'static str, content: &'static str) -> Self {
        let digest = digest(&SHA256, content.as_bytes());
        let hex: String = digest.as_ref()[..DIGEST_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
        Asset { path: format!("{PREFIX}exacat.{hex}.{ending}"), content_type, content }
    }
}

/// The style sheet.
pub(super) static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("css", "text/css; charset=utf-8", include_str!("../../../../templates/static/exacat.css"))
});
/// The script.
pub(super) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("js", "text/javascript; charset=utf-8", include_str!("../../../../templates/static/exacat.js"))
});
/// The icon.
pub(super) static ICON: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("svg", "image/svg+xml", include_str!("../../../../templates/static/exacat.svg"))
});

/// Answers a request for a file; none if there is no such file.
pub(super) fn find(path: &str) -> Option<Response<Body>> {
    let asset = [&STYLE, &SCRIPT, &ICON].into_iter().find(|asset| asset.path == path)?;
    let mut response = answer(StatusCode::OK, asset.content_type, asset.content);
    set(&mut response, CACHE_CONTROL, "public, max-age=31536000, immutable");
    Some(response)
}
