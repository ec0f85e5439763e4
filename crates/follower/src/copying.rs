//! Receives a copy of the source's files. Files that an interrupted copy left whole are not received again.

use std::sync::Arc;

use exacat_http::HttpConnection;
use exacat_model::{Error, ErrorKind, Result};
use exacat_store::FixedFile;
use exacat_store_embedded::{FollowerFiles, on_blocking_thread};
use hyper::Method;
use xxhash_rust::xxh3::Xxh3;

use crate::limits::FILE_PIECE_BYTES;
use crate::protocol::{COPIES, HASH_BYTES};
use crate::source::{Source, next_bytes};

/// Receives all files of the source as they are now, beside the catalogue of the follower. Calls `progress`
/// with the bytes received and all bytes. [`FollowerFiles::switch`] lets the copy count.
pub async fn receive_copy(
    source: &Source,
    files: &Arc<FollowerFiles>,
    mut progress: impl FnMut(u64, u64),
) -> Result<Vec<FixedFile>> {
    let info = source.copy().await?;
    let wanted: Vec<FixedFile> = info.files.iter().map(|file| file.file()).collect::<Result<_>>()?;
    let all = wanted.iter().map(|file| file.bytes).sum();
    let mut connection = source.connect().await?;
    let mut done = 0;
    for (number, file) in wanted.iter().enumerate() {
        let (own, one) = (Arc::clone(files), file.clone());
        if !on_blocking_thread(move || own.has(&one)).await? {
            receive(&mut connection, files, info.copy, (number, file)).await?;
        }
        done += file.bytes;
        progress(done, all);
    }
    // The source lets the files go by itself as well, only later.
    if let Err(error) = source.drop_copy(info.copy).await {
        tracing::debug!(%error, "the source still holds the files of the copy");
    }
    Ok(wanted)
}

async fn receive(
    connection: &mut HttpConnection,
    files: &Arc<FollowerFiles>,
    copy: u64,
    (number, file): (usize, &FixedFile),
) -> Result<()> {
    let (own, one) = (Arc::clone(files), file.clone());
    let transit = Arc::new(on_blocking_thread(move || own.receive(&one)).await?);
    let response = connection.send(Method::GET, &format!("{COPIES}/{copy}/{number}")).await?;
    let mut body = response.into_body();
    let mut hash = Xxh3::new();
    let (mut buffer, mut left) = (Vec::new(), file.bytes);
    loop {
        let bytes = next_bytes(&mut body).await?;
        let is_end = bytes.is_none();
        buffer.extend_from_slice(&bytes.unwrap_or_default());
        let content = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        if content > 0 && (content >= FILE_PIECE_BYTES || content as u64 == left || is_end) {
            let rest = buffer.split_off(content);
            let piece = std::mem::replace(&mut buffer, rest);
            hash.update(&piece);
            left -= content as u64;
            let transit = Arc::clone(&transit);
            on_blocking_thread(move || transit.write(&piece)).await?;
        }
        if buffer.len() > FILE_PIECE_BYTES + HASH_BYTES && left == 0 {
            return Err(damaged(file));
        }
        if is_end {
            break;
        }
    }
    if left > 0 || buffer != hash.digest128().to_be_bytes() {
        return Err(damaged(file));
    }
    let transit = Arc::into_inner(transit);
    let transit = transit.ok_or_else(|| Error::new(ErrorKind::Internal, "a file is still being written"))?;
    on_blocking_thread(move || transit.finish()).await
}

fn damaged(file: &FixedFile) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{} did not come as the source sent it", file.name))
}
