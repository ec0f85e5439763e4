//! Dispatch of requests to the functions that answer them, and the encoding of their responses.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use exacat_wire::xrootd::numbers::{error, open as options};
use exacat_wire::xrootd::{Request, RequestHeader, StreamId, response};

use super::request::{Conversation, Outcome, Refusal, RequestContext, Response, ResponsePart};
use super::{about, files, names, opening};
use crate::instruments::count;

/// Seconds after which a client that must wait repeats its request.
const WAIT_SECONDS: u32 = 1;
/// Seconds after which it asks a drained server again.
const DRAINED_SECONDS: u32 = 10;

/// Answers a request; returns the last part of its answer.
pub(super) async fn answer(with: Arc<Conversation>, header: RequestHeader, carried: Bytes) -> ResponsePart {
    let (mut out, mut room) = (Vec::new(), None);
    let counts = &with.face.service.instruments.counts;
    count(&counts.xrootd_requests);
    match admitted(&with, &header, &carried).await {
        Ok(Response::Written(bytes, its)) => (out, room) = (bytes, Some(its)),
        Ok(response) => write(&mut out, header.stream, response),
        Err(refusal) => {
            match &refusal {
                Refusal::Wait(_) | Refusal::Drained(_) => count(&counts.xrootd_waits),
                Refusal::Error(..) => count(&counts.xrootd_failed),
            }
            refuse(&mut out, header.stream, &refusal);
        }
    }
    ResponsePart { bytes: out, last: true, room }
}

fn write(out: &mut Vec<u8>, stream: StreamId, answer: Response) {
    match answer {
        Response::Done => response::write_ok(out, stream, &[]),
        Response::Text(text) => response::write_text(out, stream, &text),
        Response::Bytes(bytes) => response::write_ok(out, stream, &bytes),
        Response::Written(bytes, _) => *out = bytes,
        Response::Host(host, port, fields) => {
            response::write_redirect_host(out, stream, &host, port, &fields);
        }
        Response::Url(url) => response::write_redirect_url(out, stream, &url),
    }
}

/// Writes a refusal.
pub(super) fn refuse(out: &mut Vec<u8>, stream: StreamId, refusal: &Refusal) {
    match refusal {
        Refusal::Wait(sentence) => response::write_wait(out, stream, WAIT_SECONDS, sentence),
        Refusal::Drained(sentence) => response::write_wait(out, stream, DRAINED_SECONDS, sentence),
        Refusal::Error(number, sentence) => response::write_error(out, stream, *number, sentence),
    }
}

async fn admitted(with: &Arc<Conversation>, header: &RequestHeader, carried: &Bytes) -> Outcome {
    let service = &with.face.service;
    let busy = crate::admission::busy;
    let Some(bytes) = service.admission.request_bytes.take(carried.len()) else {
        return Err(busy("bytes of requests").into());
    };
    let held = service.admit(&with.requester, 1, crate::admission::Share::Catalogue)?;
    let request = Request::parse(header, carried)?;
    if service.is_drained()
        && !matches!(request, Request::Ping | Request::EndSession | Request::Set)
        && let Some(error) = service.closed_to_network()
    {
        return Err(Refusal::Drained(error.message));
    }
    let deadline = Instant::now() + service.limits.deadline_max;
    let context = RequestContext {
        with: Arc::clone(with),
        requester: with.requester.clone(),
        stream: header.stream,
        deadline,
    };
    let done = carry_out(context, request, header).await;
    drop((held, bytes));
    done
}

async fn carry_out(mut context: RequestContext, request: Request<'_>, header: &RequestHeader) -> Outcome {
    let unsupported =
        |what: &str| Err(Refusal::new(error::UNSUPPORTED, format!("this server does not support {what}")));
    match request {
        Request::Ping | Request::EndSession | Request::Set => Ok(Response::Done),
        Request::Stat { vfs: true, asked } => {
            context.whose(asked.map(|asked| asked.fields).unwrap_or_default()).await?;
            Ok(about::file_system(&context))
        }
        Request::Stat { asked: None, .. } | Request::OfOpenFile => Err(Refusal::new(
            error::FILE_NOT_OPEN,
            "no file is open here: open it, and be sent to where it is",
        )),
        Request::Stat { asked: Some(asked), .. } => {
            let lfn = context.path(&asked).await?;
            names::stat(&context, lfn).await
        }
        Request::Statx { asked } => {
            let mut lfns = Vec::with_capacity(asked.len());
            for asked in &asked {
                lfns.push(context.path(asked).await?);
            }
            names::kinds(&context, lfns).await
        }
        Request::Dirlist { stat, checksum, asked } => {
            let lfn = context.path(&asked).await?;
            let checksum = if checksum { Some(files::wanted(&asked)?) } else { None };
            names::list(&context, lfn, stat, checksum).await
        }
        Request::Locate { any, sources, asked } => {
            let lfn = context.path(&asked).await?;
            files::locate(&context, lfn, any, sources).await
        }
        Request::Open { options: how, asked } => {
            context.whose(asked.fields).await?;
            match how & options::WRITING {
                0 => files::open(&context, &asked).await,
                _ => opening::open(&context, how, &asked).await,
            }
        }
        Request::Checksum(asked) => {
            let lfn = context.path(&asked).await?;
            files::checksum(&context, lfn, &asked).await
        }
        Request::Config { names } => Ok(Response::Text(about::config(&context, &names))),
        Request::Space(asked) => {
            let lfn = context.path(&asked).await?;
            about::space(&context, lfn).await
        }
        Request::Mkdir { parents, mode, asked } => {
            let lfn = context.path(&asked).await?;
            names::mkdir(&context, lfn, parents, mode).await
        }
        Request::Rmdir(asked) => {
            let lfn = context.path(&asked).await?;
            names::remove(&context, lfn, true).await
        }
        Request::Rm(asked) => {
            let lfn = context.path(&asked).await?;
            names::remove(&context, lfn, false).await
        }
        Request::Mv { from, to } => {
            let to = to.lfn()?;
            let from = context.path(&from).await?;
            names::rename(&context, from, to).await
        }
        Request::Chmod { mode, asked } => {
            let lfn = context.path(&asked).await?;
            names::chmod(&context, lfn, mode).await
        }
        Request::OtherQuery(kind) => {
            let name = exacat_wire::xrootd::numbers::query::name(kind).unwrap_or("UNKNOWN");
            unsupported(&format!("a query of the kind {name}"))
        }
        Request::Unsupported => Err(Refusal::new(error::UNSUPPORTED, about::not_done(header.request))),
        // Valid only before authentication, where the connection answers them.
        Request::Protocol { .. } | Request::Login { .. } | Request::Auth(_) | Request::Unknown => {
            Err(Refusal::new(error::INVALID_REQUEST, format!("{} makes no sense here", header.name())))
        }
    }
}
