//! Names given as arguments or read from standard input, in batches as they come.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Stdin};

use crate::failure::Failure;

/// Names handled together: many enough to hide the round trip, few enough to bound memory.
pub(crate) const BATCH_NAMES: usize = 1000;

/// Bytes of one line of standard input; a longer one is no name.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Argument that stands for standard input.
const STDIN: &str = "-";

/// Names to work on, in the given order.
pub(crate) struct Names {
    arguments: VecDeque<String>,
    stdin: Option<Lines<BufReader<Stdin>>>,
    end: u8,
}

impl Names {
    /// Reads `arguments`; `-` stands for the lines of standard input (ended by NUL if `null`).
    pub(crate) fn new(arguments: &[String], null: bool) -> Self {
        Names {
            arguments: arguments.iter().cloned().collect(),
            stdin: None,
            end: if null { 0 } else { b'\n' },
        }
    }

    /// Returns the next names, at most [`BATCH_NAMES`]; none at the end. It does not hold names
    /// from standard input back to fill a batch.
    pub(crate) async fn next_batch(&mut self) -> Result<Option<Vec<String>>, Failure> {
        loop {
            if let Some(mut lines) = self.stdin.take() {
                let joined = tokio::task::spawn_blocking(move || {
                    let batch = lines.batch();
                    (lines, batch)
                });
                let (lines, batch) = joined
                    .await
                    .map_err(|error| Failure::local(format!("reading standard input failed: {error}")))?;
                let batch =
                    batch.map_err(|error| Failure::local(format!("cannot read standard input: {error}")))?;
                if !batch.is_empty() {
                    self.stdin = Some(lines);
                    return Ok(Some(batch));
                }
            }
            if self.arguments.front().is_some_and(|name| name == STDIN) {
                self.arguments.pop_front();
                self.stdin = Some(Lines { reader: BufReader::new(io::stdin()), end: self.end });
                continue;
            }
            let mut batch = Vec::new();
            while batch.len() < BATCH_NAMES && self.arguments.front().is_some_and(|name| name != STDIN) {
                batch.extend(self.arguments.pop_front());
            }
            return Ok(if batch.is_empty() { None } else { Some(batch) });
        }
    }

    /// Says whether there are several names, or may be.
    pub(crate) fn may_be_several(&self) -> bool {
        self.arguments.len() > 1 || self.arguments.front().is_some_and(|name| name == STDIN)
    }
}

/// Lines, or records that end with another byte.
struct Lines<R> {
    reader: R,
    end: u8,
}

impl<R: io::Read> Lines<BufReader<R>> {
    /// Waits for a line, and takes the lines that came with it. Empty at the end.
    fn batch(&mut self) -> io::Result<Vec<String>> {
        let mut batch = Vec::new();
        loop {
            match self.line()? {
                None => return Ok(batch),
                Some(line) if line.is_empty() => {}
                Some(line) => batch.push(line),
            }
            let more = self.reader.buffer().contains(&self.end);
            if !batch.is_empty() && (batch.len() >= BATCH_NAMES || !more) {
                return Ok(batch);
            }
        }
    }

    fn line(&mut self) -> io::Result<Option<String>> {
        let mut bytes = Vec::new();
        let mut limited = io::Read::take(&mut self.reader, LINE_BYTES_MAX as u64 + 1);
        if limited.read_until(self.end, &mut bytes)? == 0 {
            return Ok(None);
        }
        if bytes.last() == Some(&self.end) {
            bytes.pop();
        } else if bytes.len() > LINE_BYTES_MAX {
            return Err(io::Error::other(format!("a line has more than {LINE_BYTES_MAX} bytes")));
        }
        String::from_utf8(bytes).map(Some).map_err(|error| {
            let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
            io::Error::other(format!("a line is not UTF-8: {}", crate::quoting::quoted(&text)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8], end: u8) -> Vec<Vec<String>> {
        let mut lines = Lines { reader: BufReader::new(bytes), end };
        let mut batches = Vec::new();
        loop {
            let batch = lines.batch().unwrap();
            if batch.is_empty() {
                return batches;
            }
            batches.push(batch);
        }
    }

    #[test]
    fn lines_come_in_batches_and_blank_ones_not_at_all() {
        assert_eq!(lines(b"", b'\n'), Vec::<Vec<String>>::new());
        assert_eq!(lines(b"\n\n", b'\n'), Vec::<Vec<String>>::new());
        assert_eq!(lines(b"/a\n\n/b c", b'\n').concat(), ["/a", "/b c"]);
        assert_eq!(lines(b"/a\n1\0/b", 0).concat(), ["/a\n1", "/b"]);
        let many = "/x\n".repeat(BATCH_NAMES * 2 + 1);
        let batches = lines(many.as_bytes(), b'\n');
        assert_eq!(batches.concat().len(), BATCH_NAMES * 2 + 1);
        assert!(batches.iter().all(|batch| batch.len() <= BATCH_NAMES));
    }

    #[test]
    fn lines_that_are_no_text_or_too_long_are_errors() {
        let mut bad = Lines { reader: BufReader::new(&b"/\xff\n"[..]), end: b'\n' };
        assert!(bad.batch().unwrap_err().to_string().contains("not UTF-8"));
        let edge = "x".repeat(LINE_BYTES_MAX);
        assert_eq!(lines(edge.as_bytes(), b'\n').concat(), std::slice::from_ref(&edge));
        assert_eq!(lines(format!("{edge}\n").as_bytes(), b'\n').concat(), std::slice::from_ref(&edge));
        let long = format!("{edge}xx\n");
        let mut long = Lines { reader: BufReader::new(long.as_bytes()), end: b'\n' };
        assert!(long.batch().is_err());
    }
}
