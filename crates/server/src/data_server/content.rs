//! Content of small files, read or written whole, for commands that need it.

use exacat_wire::xrootd::numbers::{open, request};
use exacat_wire::xrootd::write_request;

use super::{
    ANSWER_TIME, CONTENT_PART_BYTES, Outcome, REDIRECTS_MAX, Session, Target, Trouble, failed, in_time,
    sent_on,
};

/// Mode of a new file on the data server.
const MODE: u16 = 0o644;

/// Reads a file of `size` bytes. `envelope` is the URL field with its token.
pub(crate) async fn read(pfn: &str, envelope: &str, size: u64) -> Result<Vec<u8>, String> {
    let mut way = Way::to(pfn);
    loop {
        match read_at(&way.pfn, envelope, size).await {
            Ok(content) => return Ok(content),
            Err(trouble) => way.go_on(trouble)?,
        }
    }
}

/// Writes a new file.
pub(crate) async fn write(pfn: &str, envelope: &str, content: &[u8]) -> Result<(), String> {
    let mut way = Way::to(pfn);
    loop {
        match write_at(&way.pfn, envelope, content).await {
            Ok(()) => return Ok(()),
            Err(trouble) => way.go_on(trouble)?,
        }
    }
}

/// The data server of a PFN, or the one that it redirects to.
struct Way {
    pfn: String,
    left: u32,
}

impl Way {
    fn to(pfn: &str) -> Self {
        Way { pfn: pfn.to_owned(), left: REDIRECTS_MAX }
    }

    /// Follows a redirection of a data server; any other trouble is an error.
    fn go_on(&mut self, trouble: Trouble) -> Result<(), String> {
        match trouble {
            Trouble::Failed(why) => Err(why),
            Trouble::Elsewhere(..) if self.left == 0 => {
                Err(format!("it sends on more than {REDIRECTS_MAX} times"))
            }
            Trouble::Elsewhere(port, place) => {
                self.left -= 1;
                self.pfn = sent_on(&self.pfn, port, &place)
                    .ok_or("it sends on to a place that cannot be understood")?;
                Ok(())
            }
        }
    }
}

fn reachable(pfn: &str) -> Outcome<Target<'_>> {
    match Target::parse(pfn) {
        Some(target) if target.secure => Err(failed("it is reached by roots:// only")),
        Some(target) => Ok(target),
        None => Err(failed("it is not reached by root://")),
    }
}

fn path(target: &Target<'_>, envelope: &str) -> String {
    let fields = target.with(envelope);
    let mark = if fields.is_empty() { "" } else { "?" };
    format!("{}{mark}{fields}", target.path)
}

async fn read_at(pfn: &str, envelope: &str, size: u64) -> Outcome<Vec<u8>> {
    let target = reachable(pfn)?;
    let mut session = Session::begin(&target).await?;
    let handle = session.open(open::READ, &path(&target, envelope)).await?;
    let mut content = Vec::new();
    while (content.len() as u64) < size {
        let left = size - content.len() as u64;
        let part = u32::try_from(left).unwrap_or(u32::MAX).min(CONTENT_PART_BYTES);
        let bytes = session.read(handle, content.len() as u64, part).await?;
        if bytes.is_empty() {
            return Err(failed(format!("it ends after {} of {size} bytes", content.len())));
        }
        content.extend_from_slice(&bytes);
    }
    session.close(handle).await?;
    Ok(content)
}

async fn write_at(pfn: &str, envelope: &str, content: &[u8]) -> Outcome<()> {
    let target = reachable(pfn)?;
    let mut session = Session::begin(&target).await?;
    let size = format!("oss.asize={}", content.len());
    let fields = if envelope.is_empty() { size } else { format!("{envelope}&{size}") };
    let how = open::NEW | open::UPDATE | open::MAKE_PATH;
    let handle = session.open(how, &path(&target, &fields)).await?;
    let mut at = 0u64;
    for part in content.chunks(CONTENT_PART_BYTES as usize) {
        let mut body = [0; 16];
        body[..4].copy_from_slice(&handle);
        body[4..12].copy_from_slice(&at.to_be_bytes());
        session.done(request::WRITE, body, part).await?;
        at += part.len() as u64;
    }
    session.close(handle).await
}

impl Session {
    /// Opens a file, and returns its handle.
    async fn open(&mut self, how: u16, path: &str) -> Outcome<[u8; 4]> {
        let mut body = [0; 16];
        body[..2].copy_from_slice(&MODE.to_be_bytes());
        body[2..4].copy_from_slice(&how.to_be_bytes());
        let response = self.done(request::OPEN, body, path.as_bytes()).await?;
        response.first_chunk().copied().ok_or_else(|| failed("a file was opened without a handle"))
    }

    async fn read(&mut self, handle: [u8; 4], at: u64, bytes: u32) -> Outcome<Vec<u8>> {
        let mut body = [0; 16];
        body[..4].copy_from_slice(&handle);
        body[4..12].copy_from_slice(&at.to_be_bytes());
        body[12..].copy_from_slice(&bytes.to_be_bytes());
        let mut request = Vec::new();
        write_request(&mut request, self.next(), request::READ, body, b"");
        self.send(&request).await?;
        let mut content = Vec::new();
        loop {
            let (more, part) = in_time(ANSWER_TIME, self.part()).await??;
            content.extend_from_slice(&part);
            if content.len() > bytes as usize {
                return Err(failed("more bytes than were asked for"));
            }
            if !more {
                return Ok(content);
            }
        }
    }

    async fn close(&mut self, handle: [u8; 4]) -> Outcome<()> {
        let mut body = [0; 16];
        body[..4].copy_from_slice(&handle);
        self.done(request::CLOSE, body, b"").await.map(|_| ())
    }
}
