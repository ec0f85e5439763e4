//! Content of a file: a redirection to a replica, as WebDAV gives it.

use exacat_model::{Error, ErrorKind, Lfn, Result};
use hyper::header::CONTENT_DISPOSITION;
use hyper::{Response, StatusCode};

use super::super::answers::{Body, set};
use super::super::dav;
use super::visit::Visit;

/// Sends the browser to a replica. A small file that the server relays is a download, whatever it holds.
pub(super) async fn download(visit: Visit<'_>, lfn: &Lfn) -> Result<Response<Body>> {
    let Visit { conversation, head, call, .. } = visit;
    let mut response = dav::content(conversation, head, call, lfn.clone()).await?;
    if response.status() == StatusCode::OK {
        set(&mut response, CONTENT_DISPOSITION, "attachment");
        if response.headers().get("content-type").is_some_and(|kind| kind == "httpd/unix-directory") {
            return Err(Error::new(ErrorKind::NotFile, format!("{lfn} is a directory")));
        }
    }
    Ok(response)
}
