//! Summaries of a server or cache (`xrd.report`): one line of XML with counters since its start.
//!
//! Release 5.5.3 writes a sign too many in the part of a cache (`<hits>0></hits>`), and leaves most counters
//! there at 0. So what a cache fetched is not here: the records of the g-stream have it.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::DATAGRAM_BYTES_MAX;

/// Depth of elements.
const DEPTH_MAX: usize = 16;
/// Bytes of a name in a summary.
const NAME_BYTES_MAX: usize = 256;
/// Elements of a summary. A real one has about 150.
const ELEMENTS_MAX: usize = 4096;

/// Summary of a server. Counters are since its start; those that it does not send are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Address, as the server sees it: host and port.
    pub source: String,
    /// Site.
    pub site: String,
    /// Instance.
    pub instance: String,
    /// Program.
    pub program: String,
    /// Version.
    pub version: String,
    /// Number of the process.
    pub process: u64,
    /// Time of the summary, in seconds since 1970.
    pub taken: u64,
    /// Start of the server, in seconds since 1970. Another start means that all counters began anew.
    pub started: u64,
    /// Connections now.
    pub links: u64,
    /// Most connections at once.
    pub links_max: u64,
    /// Connections so far.
    pub links_total: u64,
    /// Bytes received from clients. Those of a connection may be added when it ends.
    pub bytes_in: u64,
    /// Bytes sent to clients; the same holds.
    pub bytes_out: u64,
    /// Opens.
    pub opens: u64,
    /// Reads.
    pub reads: u64,
    /// Vector reads.
    pub vector_reads: u64,
    /// Ranges of vector reads.
    pub ranges: u64,
    /// Writes.
    pub writes: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Requests redirected.
    pub redirects: u64,
    /// Requests that had to wait.
    pub delays: u64,
    /// Logins.
    pub logins: u64,
    /// Opens at the origin, of a cache or proxy.
    pub origin_opens: u64,
    /// Opens among them that failed.
    pub origin_open_errors: u64,
    /// Bytes of the disk of a cache.
    pub store_bytes: u64,
    /// Bytes of the memory of a cache.
    pub memory_bytes: u64,
    /// Processor time in user mode, in microseconds.
    pub user_us: u64,
    /// Processor time in the kernel, in microseconds.
    pub system_us: u64,
    /// Threads.
    pub threads: u64,
}

impl Summary {
    /// Returns the counter of an element, by the names from its part on.
    fn counter(&mut self, path: &[&str]) -> Option<&mut u64> {
        Some(match path {
            ["link", "num"] => &mut self.links,
            ["link", "maxn"] => &mut self.links_max,
            ["link", "tot"] => &mut self.links_total,
            ["link", "in"] => &mut self.bytes_in,
            ["link", "out"] => &mut self.bytes_out,
            ["xrootd", "ops", "open"] => &mut self.opens,
            ["xrootd", "ops", "rd"] => &mut self.reads,
            ["xrootd", "ops", "rv"] => &mut self.vector_reads,
            ["xrootd", "ops", "rs"] => &mut self.ranges,
            ["xrootd", "ops", "wr"] => &mut self.writes,
            ["xrootd", "err"] => &mut self.errors,
            ["xrootd", "rdr"] => &mut self.redirects,
            ["xrootd", "dly"] => &mut self.delays,
            ["xrootd", "lgn", "num"] => &mut self.logins,
            ["pss", "open"] => &mut self.origin_opens,
            ["pss", "open", "errs"] => &mut self.origin_open_errors,
            ["cache", "store", "size"] => &mut self.store_bytes,
            ["cache", "mem", "size"] => &mut self.memory_bytes,
            ["sched", "threads"] => &mut self.threads,
            _ => return None,
        })
    }

    /// Takes a value in.
    fn put(&mut self, path: &[&str], text: &str) {
        // The sign too many of release 5.5.3 ends up in the text.
        let digits = text.trim_matches(|letter: char| letter.is_ascii_whitespace() || letter == '>');
        let Ok(value) = digits.parse::<u64>() else { return };
        match path {
            ["proc", "usr", "s"] => {
                self.user_us = self.user_us.saturating_add(value.saturating_mul(1_000_000))
            }
            ["proc", "usr", "u"] => self.user_us = self.user_us.saturating_add(value),
            ["proc", "sys", "s"] => {
                self.system_us = self.system_us.saturating_add(value.saturating_mul(1_000_000));
            }
            ["proc", "sys", "u"] => self.system_us = self.system_us.saturating_add(value),
            path => {
                if let Some(counter) = self.counter(path) {
                    *counter = value;
                }
            }
        }
    }

    /// Takes the attributes of the whole in.
    fn describe(&mut self, tag: &BytesStart<'_>) -> Result<(), &'static str> {
        for attribute in tag.attributes() {
            let attribute = attribute.map_err(|_| "an attribute of the summary is malformed")?;
            let value = attribute.value.trim();
            let number = || value.parse().map_err(|_| "a time or number of the summary is none");
            let text = || match value.len() > NAME_BYTES_MAX || value.chars().any(char::is_control) {
                true => Err("a name in the summary is too long, or has control characters"),
                false => Ok(value.to_owned()),
            };
            match attribute.key.into_inner() {
                "src" => self.source = text()?,
                "site" => self.site = text()?,
                "ins" => self.instance = text()?,
                "pgm" => self.program = text()?,
                "ver" => self.version = text()?,
                "pid" => self.process = number()?,
                "tod" => self.taken = number()?,
                "tos" => self.started = number()?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns the name of an element: of a part of the summary, its id.
fn name_of(tag: &BytesStart<'_>, depth: usize) -> Result<String, &'static str> {
    let name = match depth {
        // `<stats id="link">`
        1 => {
            let mut attributes = tag.attributes().filter_map(Result::ok);
            let id = attributes.find(|attribute| attribute.key.into_inner() == "id");
            id.map(|id| id.value.into_owned()).unwrap_or_default()
        }
        _ => tag.name().into_inner().to_owned(),
    };
    if name.len() > NAME_BYTES_MAX { Err("a name in the summary is too long") } else { Ok(name) }
}

/// Reads a summary. A zero byte at its end belongs to the datagram.
///
/// # Errors
/// It is no summary of a server, or too long.
pub fn parse(datagram: &[u8]) -> Result<Summary, &'static str> {
    if datagram.len() > DATAGRAM_BYTES_MAX {
        return Err("the summary is longer than a datagram");
    }
    let text = std::str::from_utf8(datagram).map_err(|_| "the summary is not UTF-8")?;
    let mut reader =
        Reader::from_str(text.trim_matches(|one: char| one == '\0' || one.is_ascii_whitespace()));
    reader.config_mut().expand_empty_elements = true;
    let (mut summary, mut path) = (Summary::default(), Vec::<String>::new());
    let (mut has_root, mut elements) = (false, 0);
    loop {
        match reader.read_event().map_err(|_| "the summary is malformed XML")? {
            Event::Start(tag) => {
                elements += 1;
                if path.len() >= DEPTH_MAX || elements > ELEMENTS_MAX {
                    return Err("the summary has too many elements, or they are nested too deep");
                }
                if path.is_empty() {
                    if has_root || tag.name().into_inner() != "statistics" {
                        return Err("the document is no summary of a server");
                    }
                    has_root = true;
                    summary.describe(&tag)?;
                }
                path.push(name_of(&tag, path.len())?);
            }
            Event::End(_) => {
                path.pop();
            }
            Event::Text(text) if path.len() > 1 => {
                let names: Vec<&str> = path[1..].iter().map(String::as_str).collect();
                summary.put(&names, &text);
            }
            Event::Eof if has_root && path.is_empty() => return Ok(summary),
            Event::Eof => return Err("the summary is cut off"),
            Event::DocType(_) => return Err("the summary declares a document type"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUMMARY: &str = "<statistics tod=\"1795425791\" ver=\"v5.5.3\" src=\"cache.example.org:1094\" \
tos=\"1795423701\" pgm=\"xrootd\" ins=\"xc\" pid=\"77\" site=\"HERE\"><stats id=\"link\"><num>1</num><maxn>8</maxn>\
<tot>9</tot><in>10</in><out>11</out></stats><stats id=\"proc\"><usr><s>6</s><u>5</u></usr><sys><s>1</s><u>2</u></sys>\
</stats><stats id=\"xrootd\"><num>9</num><ops><open>12</open><rd>13</rd><rv>2</rv><rs>8</rs><wr>0</wr></ops><err>3</err>\
<rdr>4</rdr><dly>5</dly><lgn><num>9</num></lgn></stats><stats id=\"pss\"><open>208<errs>1</errs></open></stats>\
<stats id=\"cache\" type=\"pfc\"><rd><in>0</in><out>0</out><hits>0></hits><miss>0</miss></rd><store><size>99</size>\
</store><mem><size>98</size></mem></stats><stats id=\"sched\"><threads>49</threads></stats></statistics>\n\0";

    /// Property: counters are read where a server has them, whatever sign is too many.
    #[test]
    fn counters_are_read() {
        let summary = parse(SUMMARY.as_bytes()).unwrap();
        let expected = Summary {
            source: "cache.example.org:1094".to_owned(),
            site: "HERE".to_owned(),
            instance: "xc".to_owned(),
            program: "xrootd".to_owned(),
            version: "v5.5.3".to_owned(),
            process: 77,
            taken: 1_795_425_791,
            started: 1_795_423_701,
            links: 1,
            links_max: 8,
            links_total: 9,
            bytes_in: 10,
            bytes_out: 11,
            opens: 12,
            reads: 13,
            vector_reads: 2,
            ranges: 8,
            writes: 0,
            errors: 3,
            redirects: 4,
            delays: 5,
            logins: 9,
            origin_opens: 208,
            origin_open_errors: 1,
            store_bytes: 99,
            memory_bytes: 98,
            user_us: 6_000_005,
            system_us: 1_000_002,
            threads: 49,
        };
        assert_eq!(summary, expected);
    }

    /// Property: a value that is no number is left out, and changes nothing else.
    #[test]
    fn values_that_are_no_numbers_are_left_out() {
        let text = SUMMARY.replace("<in>10</in>", "<in>-10</in>").replace("<out>11</out>", "<out/>");
        let summary = parse(text.as_bytes()).unwrap();
        assert_eq!((summary.bytes_in, summary.bytes_out, summary.links_total), (0, 0, 9));
    }

    /// Property: anything else is an error, whatever the bytes.
    #[test]
    fn garbage_is_refused() {
        let end = SUMMARY.find("</statistics>").unwrap();
        for at in 0..end {
            assert!(parse(&SUMMARY.as_bytes()[..at]).is_err(), "cut at {at}");
        }
        let deep = format!("<statistics>{}", "<a>".repeat(100_000 / 4));
        let many = format!("<statistics>{}</statistics>", "<a/>".repeat(ELEMENTS_MAX));
        let long = format!("<statistics src=\"{}\"/>", "x".repeat(NAME_BYTES_MAX + 1));
        let bad = [
            "<a/>",
            "<statistics tod=\"now\"/>",
            "<statistics/><statistics/>",
            "<!DOCTYPE statistics><statistics/>",
            &deep,
            &many,
            &long,
        ];
        for text in bad {
            assert!(parse(text.as_bytes()).is_err(), "{:.40}", text);
        }
        assert!(parse(b"<statistics src=\"\xff\"/>").is_err());
        assert!(parse(&[b' '; DATAGRAM_BYTES_MAX + 1]).is_err());
        assert_eq!(parse(b"<statistics/>"), Ok(Summary::default()));
    }
}
