//! Protocol between servers: requests one way and answers back, over TLS, many in flight at once.
//!
//! ```text
//!   asks                                   takes
//!   "exacatP1", number of the server u64 ►
//!                                  ◄────── "exacatP1"
//!   length u32, number u64, request ─────►
//!                                  ◄────── length u32, number u64, kind u8, outcomes or a message
//! ```
//! Both sides show certificates that the other one knows: see `identity`. Numbers are
//! little-endian; requests and outcomes have their canonical form. Bytes that do not parse end the
//! connection. The asking server then carries out the unanswered requests itself, under the same
//! operation ids.

use exacat_model::codec::{Decode, Encode};
use exacat_model::{Error, ErrorKind, Result};
use exacat_store::{ApplyError, Outcome};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::deciding::Answer;
use crate::limits::LINK_FRAME_BYTES_MAX;

/// First bytes of either side: the protocol and its version.
pub(super) const HELLO: [u8; 8] = *b"exacatP1";

pub(super) fn broken(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, format!("another server: {what}"))
}

pub(super) async fn read_frame(from: &mut (impl AsyncRead + Unpin)) -> Result<(u64, Vec<u8>)> {
    let bytes = from.read_u32_le().await.map_err(broken)? as usize;
    if bytes > LINK_FRAME_BYTES_MAX {
        return Err(broken(format!("{bytes} bytes at once, the limit is {LINK_FRAME_BYTES_MAX}")));
    }
    let number = from.read_u64_le().await.map_err(broken)?;
    // Grows as bytes arrive, whatever length was announced.
    let mut frame = Vec::new();
    let read = from.take(bytes as u64).read_to_end(&mut frame).await.map_err(broken)?;
    if read < bytes { Err(broken("it was cut off")) } else { Ok((number, frame)) }
}

pub(super) async fn write_frame(to: &mut (impl AsyncWrite + Unpin), number: u64, frame: &[u8]) -> Result<()> {
    let bytes = u32::try_from(frame.len()).map_err(broken)?;
    to.write_u32_le(bytes).await.map_err(broken)?;
    to.write_u64_le(number).await.map_err(broken)?;
    to.write_all(frame).await.map_err(broken)
}

pub(super) fn answer_frame(answer: &Answer) -> Vec<u8> {
    let (kind, rest) = match answer {
        Ok(outcomes) => (0, outcomes.to_bytes()),
        Err(ApplyError::TooLarge(why)) => (1, why.clone().into_bytes()),
        Err(ApplyError::Unavailable(why)) => (2, why.clone().into_bytes()),
        Err(ApplyError::Unknown(why)) => (3, why.clone().into_bytes()),
        Err(ApplyError::Conflict(why)) => (4, why.clone().into_bytes()),
    };
    [&[kind][..], &rest].concat()
}

pub(super) fn answer_of(frame: &[u8]) -> Result<Answer> {
    let (kind, rest) = frame.split_first().ok_or_else(|| broken("an empty answer"))?;
    let why = || String::from_utf8_lossy(rest).into_owned();
    Ok(match kind {
        0 => Ok(Vec::<Outcome>::from_bytes(rest).map_err(broken)?),
        1 => Err(ApplyError::TooLarge(why())),
        2 => Err(ApplyError::Unavailable(why())),
        3 => Err(ApplyError::Unknown(why())),
        4 => Err(ApplyError::Conflict(why())),
        other => return Err(broken(format!("an answer of kind {other}"))),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use exacat_model::{OperationId, Revision, UserId};
    use exacat_store::{Refusal, Request};

    use super::*;

    #[tokio::test]
    async fn frames_have_a_limit_and_an_end() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, 7, b"abc").await.unwrap();
        assert_eq!(read_frame(&mut &bytes[..]).await.unwrap(), (7, b"abc".to_vec()));
        for cut in 0..bytes.len() {
            assert!(read_frame(&mut &bytes[..cut]).await.is_err(), "{cut}");
        }
        let most = vec![1; LINK_FRAME_BYTES_MAX];
        bytes.clear();
        write_frame(&mut bytes, 8, &most).await.unwrap();
        assert_eq!(read_frame(&mut &bytes[..]).await.unwrap().1.len(), most.len());
        bytes[..4].copy_from_slice(&(LINK_FRAME_BYTES_MAX as u32 + 1).to_le_bytes());
        bytes.push(1);
        assert!(read_frame(&mut &bytes[..]).await.is_err());
    }

    #[test]
    fn answers_come_back_as_they_were() {
        let outcomes = vec![
            Outcome::Applied { revision: Revision(7), id: None },
            Outcome::Unchanged,
            Outcome::Refused(Refusal::Limit("too long".to_owned())),
        ];
        for answer in [
            Ok(outcomes),
            Err(ApplyError::TooLarge("a".to_owned())),
            Err(ApplyError::Unavailable("b".to_owned())),
            Err(ApplyError::Unknown(String::new())),
            Err(ApplyError::Conflict("c".to_owned())),
        ] {
            let frame = answer_frame(&answer);
            assert_eq!(answer_of(&frame).unwrap(), answer);
        }
        for bad in [&b""[..], b"\x05", b"\x00", b"\x00\xff\xff\xff\xff\xff"] {
            assert!(answer_of(bad).is_err(), "{bad:?}");
        }
        let request = Request::new(OperationId([7; 16]), UserId(3), Vec::new());
        assert_eq!(Request::from_bytes(&request.to_bytes()).unwrap(), request);
    }
}
