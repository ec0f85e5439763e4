//! Entries of a run's journal. `docs/internals/replay-journal.md` has every byte.

use exacat_model::codec::{DecodeError, Reader, put_bytes, put_varint};

use super::outcome::{AccessResult, Outcome};
use super::queue::{AgentName, HandedItem};
use super::shapes::RunState;

/// One entry. A record of the journal has one or more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The run was created: its settings as JSON, and the fingerprint of its trace.
    Created {
        /// Settings.
        settings: String,
        /// Hash of the bytes of the trace's file.
        trace: u64,
    },
    /// An agent asked for the first time, or reads from another cache now.
    Agent {
        /// Its number.
        number: u32,
        /// Its names.
        name: AgentName,
    },
    /// Items were handed out.
    Handed {
        /// Number of the agent.
        agent: u32,
        /// Time of the run.
        elapsed_us: u64,
        /// Items and their attempts.
        items: Vec<(u64, u32)>,
    },
    /// Results came.
    Results {
        /// Number of the agent.
        agent: u32,
        /// Time of the run.
        elapsed_us: u64,
        /// Final and late ones.
        results: Vec<AccessResult>,
    },
    /// The run reached a state.
    State {
        /// State.
        state: RunState,
        /// Time of the run.
        elapsed_us: u64,
        /// The date, in microseconds since 1970.
        date_us: u64,
        /// Reason, for a person.
        reason: String,
    },
}

impl Entry {
    /// Makes the entry of items that were handed out.
    pub fn handed(agent: u32, elapsed_us: u64, items: &[HandedItem]) -> Entry {
        let items = items.iter().map(|handed| (handed.item, handed.attempt)).collect();
        Entry::Handed { agent, elapsed_us, items }
    }

    /// Appends the bytes of the entry.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Entry::Created { settings, trace } => {
                out.push(1);
                put_bytes(out, settings.as_bytes());
                out.extend_from_slice(&trace.to_le_bytes());
            }
            Entry::Agent { number, name } => {
                out.push(2);
                put_varint(out, u64::from(*number));
                for text in [&name.name, &name.cache, &name.driver] {
                    put_bytes(out, text.as_bytes());
                }
            }
            Entry::Handed { agent, elapsed_us, items } => {
                out.push(3);
                put_varint(out, u64::from(*agent));
                put_varint(out, *elapsed_us);
                put_varint(out, items.len() as u64);
                for (item, attempt) in items {
                    put_varint(out, *item);
                    put_varint(out, u64::from(*attempt));
                }
            }
            Entry::Results { agent, elapsed_us, results } => {
                out.push(4);
                put_varint(out, u64::from(*agent));
                put_varint(out, *elapsed_us);
                put_varint(out, results.len() as u64);
                results.iter().for_each(|result| encode_result(result, out));
            }
            Entry::State { state, elapsed_us, date_us, reason } => {
                out.push(5);
                out.push(code_of(*state));
                put_varint(out, *elapsed_us);
                put_varint(out, *date_us);
                put_bytes(out, reason.as_bytes());
            }
        }
    }

    /// Reads the entries of a record.
    ///
    /// # Errors
    /// Says where the bytes are none.
    pub fn read_all(bytes: &[u8]) -> Result<Vec<Entry>, DecodeError> {
        let mut reader = Reader::new(bytes);
        let mut entries = Vec::new();
        while !reader.is_empty() {
            entries.push(Entry::read(&mut reader)?);
        }
        Ok(entries)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Entry, DecodeError> {
        Ok(match reader.byte()? {
            1 => {
                let settings = reader.text()?.to_owned();
                let trace = reader.take(8)?;
                Entry::Created { settings, trace: u64::from_le_bytes(trace.try_into().unwrap_or_default()) }
            }
            2 => {
                let number = number(reader)?;
                let mut text = || reader.text().map(str::to_owned);
                let name = AgentName { name: text()?, cache: text()?, driver: text()? };
                Entry::Agent { number, name }
            }
            3 => {
                let (agent, elapsed_us) = (number(reader)?, reader.varint()?);
                let count = reader.length()?;
                let mut items = Vec::with_capacity(count);
                for _ in 0..count {
                    items.push((reader.varint()?, number(reader)?));
                }
                Entry::Handed { agent, elapsed_us, items }
            }
            4 => {
                let (agent, elapsed_us) = (number(reader)?, reader.varint()?);
                let count = reader.length()?;
                let mut results = Vec::new();
                for _ in 0..count {
                    results.push(read_result(reader)?);
                }
                Entry::Results { agent, elapsed_us, results }
            }
            5 => {
                let code = reader.byte()?;
                let state = state_of(code).ok_or_else(|| reader.error("no state of a run"))?;
                let (elapsed_us, date_us) = (reader.varint()?, reader.varint()?);
                Entry::State { state, elapsed_us, date_us, reason: reader.text()?.to_owned() }
            }
            _ => return Err(reader.error("no kind of entry")),
        })
    }
}

fn number(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    let value = reader.varint()?;
    u32::try_from(value).map_err(|_| reader.error("a number beyond 32 bits"))
}

fn code_of(state: RunState) -> u8 {
    match state {
        RunState::Planned => 1,
        RunState::Running => 2,
        RunState::Paused => 3,
        RunState::Done => 4,
        RunState::Stopped => 5,
    }
}

fn state_of(code: u8) -> Option<RunState> {
    [RunState::Planned, RunState::Running, RunState::Paused, RunState::Done, RunState::Stopped]
        .into_iter()
        .find(|state| code_of(*state) == code)
}

/// Appends a result. Its bytes are those of its fingerprint too.
pub fn encode_result(result: &AccessResult, out: &mut Vec<u8>) {
    let AccessResult { item, attempt, outcome, number, late_us, duration_us, bytes, redirects, .. } = *result;
    put_varint(out, item);
    put_varint(out, u64::from(attempt));
    out.push(Outcome::ALL.iter().position(|other| *other == outcome).unwrap_or(0) as u8);
    let flags = u8::from(result.first_byte_us.is_some()) | u8::from(result.adler32.is_some()) << 1;
    out.push(flags);
    for value in [number.into(), late_us, duration_us, bytes, redirects.into()] {
        put_varint(out, value);
    }
    if let Some(first) = result.first_byte_us {
        put_varint(out, first);
    }
    if let Some(sum) = result.adler32 {
        out.extend_from_slice(&sum.to_le_bytes());
    }
}

fn read_result(reader: &mut Reader<'_>) -> Result<AccessResult, DecodeError> {
    let (item, attempt) = (reader.varint()?, number(reader)?);
    let outcome = reader.byte()?;
    let outcome = Outcome::ALL.get(usize::from(outcome)).copied();
    let outcome = outcome.ok_or_else(|| reader.error("no outcome of an access"))?;
    let flags = reader.byte()?;
    if flags > 3 {
        return Err(reader.error("flags of a result that nobody sets"));
    }
    let error = number(reader)?;
    let (late_us, duration_us, bytes) = (reader.varint()?, reader.varint()?, reader.varint()?);
    let redirects = number(reader)?;
    let first_byte_us = (flags & 1 != 0).then(|| reader.varint()).transpose()?;
    let adler32 = match flags & 2 {
        0 => None,
        _ => Some(u32::from_le_bytes(reader.take(4)?.try_into().unwrap_or_default())),
    };
    Ok(AccessResult {
        item,
        attempt,
        outcome,
        number: error,
        late_us,
        first_byte_us,
        duration_us,
        bytes,
        adler32,
        redirects,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Entry> {
        let result = AccessResult {
            item: 300,
            attempt: 2,
            outcome: Outcome::Checksum,
            number: 3019,
            late_us: 7,
            first_byte_us: Some(1000),
            duration_us: 123_456,
            bytes: 1 << 33,
            adler32: Some(0x1234_5678),
            redirects: 1,
        };
        let name = AgentName { name: "a:1".into(), cache: "root://c:1094".into(), driver: "xrootd".into() };
        vec![
            Entry::Created { settings: "{}".into(), trace: 0x0102_0304_0506_0708 },
            Entry::Agent { number: 3, name },
            Entry::Handed { agent: 3, elapsed_us: 9, items: vec![(0, 1), (300, 2)] },
            Entry::Results { agent: 3, elapsed_us: 10, results: vec![result, AccessResult::default()] },
            Entry::State { state: RunState::Paused, elapsed_us: 11, date_us: 12, reason: "noon".into() },
        ]
    }

    /// Property: entries come back as they were, and a cut or damaged record is refused or another one.
    #[test]
    fn entries_come_back_and_cut_ones_are_refused() {
        let mut bytes = Vec::new();
        let mut ends = vec![0];
        for entry in samples() {
            entry.encode(&mut bytes);
            ends.push(bytes.len());
        }
        assert_eq!(Entry::read_all(&bytes), Ok(samples()));
        for end in 0..bytes.len() {
            assert_eq!(Entry::read_all(&bytes[..end]).is_ok(), ends.contains(&end), "{end}");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x41;
            if let Ok(read) = Entry::read_all(&damaged) {
                assert_ne!(read, samples(), "{at}");
            }
        }
    }

    /// Property: the bytes of an entry are those of earlier releases.
    #[test]
    fn bytes_of_entries_are_those_of_earlier_releases() {
        let mut bytes = Vec::new();
        samples()[2].encode(&mut bytes);
        assert_eq!(bytes, [3, 3, 9, 2, 0, 1, 0xac, 2, 2]);
        bytes.clear();
        samples()[4].encode(&mut bytes);
        assert_eq!(bytes, [5, 3, 11, 12, 4, b'n', b'o', b'o', b'n']);
        bytes.clear();
        encode_result(
            &AccessResult { item: 5, attempt: 1, bytes: 200, ..AccessResult::default() },
            &mut bytes,
        );
        assert_eq!(bytes, [5, 1, 0, 0, 0, 0, 0, 0xc8, 1, 0]);
    }
}
