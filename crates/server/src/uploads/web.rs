//! Visit to a storage element over HTTPS, with the same questions as over root://.

use exacat_model::ChecksumAlgorithm;
use hyper::HeaderMap;

use super::visit::{Question, Visited};
use crate::data_server::{WebClient, WebFile};

/// Checks a file. A storage element that cannot be reached counts as "not yet".
pub(super) async fn visit(question: &Question, file: &WebFile, web: &WebClient) -> Visited {
    try_visit(question, file, web).await.unwrap_or_else(Visited::NotYet)
}

async fn try_visit(question: &Question, file: &WebFile, web: &WebClient) -> Result<Visited, String> {
    let none = HeaderMap::new();
    let nothing = || Visited::NotYet("nothing is there".to_owned());
    let Some(before) = web.stat(file, &none).await? else { return Ok(nothing()) };
    if before.size < question.size {
        return Ok(Visited::NotYet(format!("{} of {} bytes are there", before.size, question.size)));
    }
    if !web.is_closed(file, before.size).await? {
        return Ok(Visited::NotYet("it cannot be read: it may be being written".to_owned()));
    }
    if before.size > question.size {
        return Ok(Visited::Never(format!(
            "{} bytes are there, {} were reserved",
            before.size, question.size
        )));
    }
    let asked = match question.reserved.as_slice() {
        [] => &[ChecksumAlgorithm::Adler32][..],
        reserved => reserved,
    };
    let mut checksums = Vec::new();
    for algorithm in asked {
        // One is enough: for each the storage element reads the whole file.
        if checksums.is_empty() {
            checksums.extend(web.checksum(file, &none, *algorithm).await?);
        }
    }
    if checksums.is_empty() && !question.reserved.is_empty() {
        let why = "the storage element tells none of the checksums that were reserved";
        return Ok(Visited::NotYet(why.to_owned()));
    }
    match web.stat(file, &none).await? {
        Some(after) if after == before => Ok(Visited::Whole(checksums)),
        Some(_) => Ok(Visited::NotYet("it changed while its checksum was made".to_owned())),
        None => Ok(nothing()),
    }
}
