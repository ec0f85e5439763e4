//! A connection to a server that takes InfluxDB's line protocol over HTTP.

use exacat_bench::kept::{KeptConnection, KeptRequest};

use crate::Client;
use crate::reads::{Read, Reader};
use crate::rows::Rows;

/// A connection that sends a request and waits for its answer.
pub(crate) struct Http {
    connection: KeptConnection,
    reader: Reader,
    group: String,
}

impl Http {
    pub(crate) fn open(url: &str, reader: Reader, group: String) -> Self {
        let token = std::env::var("EXACAT_TOKEN").ok();
        let connection = KeptConnection::open(url, token.as_deref());
        let connection = connection.unwrap_or_else(|error| panic!("{url}: {error}"));
        Http { connection, reader, group }
    }

    /// Creates the group.
    pub(crate) fn create(&mut self) {
        let path = format!("/query?q=CREATE+DATABASE+%22{}%22", self.group);
        self.ask("POST", &path, b"");
    }

    /// Sends a request. Returns the status and the body of its answer.
    fn ask(&mut self, method: &str, path: &str, body: &[u8]) -> (u16, &[u8]) {
        let request = KeptRequest { method, path, content_type: "text/plain", body };
        let (status, body) = self.connection.ask(request).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(status < 300 || status == 503, "{status}: {}", String::from_utf8_lossy(body));
        (status, body)
    }
}

impl Client for Http {
    fn put(&self, rows: &Rows, batch: &[(u64, u64)], out: &mut Vec<u8>) {
        for (element, step) in batch {
            rows.put_line(out, *element, *step);
        }
    }

    fn send(&mut self, body: &[u8]) -> bool {
        let path = format!("/write?db={}&precision=ms", self.group);
        self.ask("POST", &path, body).0 != 503
    }

    fn settle(&mut self) {
        if self.reader == Reader::Victoria {
            self.ask("GET", "/internal/force_flush", b"");
        }
    }

    fn read(&mut self, read: &Read) -> u64 {
        let path = self.reader.path(&self.group, read);
        let reader = self.reader;
        let (status, body) = self.ask("GET", &path, b"");
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(body));
        reader.rows(body)
    }
}
