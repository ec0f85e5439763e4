//! Simulated connections: bytes in order, in pieces, late, cut in the middle.

use std::collections::{BTreeMap, VecDeque};

use exacat_testkit::simulated::Random;

/// End of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Producer,
    Service,
}

/// Bytes on their way, or the end of a direction.
#[derive(Debug)]
struct Flight {
    at: u64,
    /// None is the end.
    bytes: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
struct Direction {
    flights: VecDeque<Flight>,
    is_ended: bool,
}

impl Direction {
    fn push(&mut self, at: u64, bytes: Option<Vec<u8>>) {
        if self.is_ended {
            return;
        }
        self.is_ended = bytes.is_none();
        // A connection keeps its order.
        let at = self.flights.back().map_or(at, |last| last.at.max(at));
        self.flights.push_back(Flight { at, bytes });
    }
}

/// All connections, by number.
pub(crate) struct Network {
    connections: BTreeMap<u64, BTreeMap<Side, Direction>>,
    /// Longest delay in milliseconds.
    delay_max: u64,
}

impl Network {
    /// Makes a network with a longest delay.
    pub(crate) fn new(delay_max: u64) -> Self {
        Network { connections: BTreeMap::new(), delay_max }
    }

    /// Begins a connection.
    pub(crate) fn begin(&mut self, connection: u64) {
        let both = [Side::Producer, Side::Service].map(|side| (side, Direction::default()));
        self.connections.insert(connection, both.into());
    }

    /// Sends bytes towards a side.
    pub(crate) fn send(&mut self, connection: u64, to: Side, bytes: Vec<u8>, now: u64, random: &mut Random) {
        let at = now + 1 + random.next(self.delay_max);
        if let Some(direction) = self.connections.get_mut(&connection).and_then(|both| both.get_mut(&to)) {
            direction.push(at, Some(bytes));
        }
    }

    /// Ends a connection for the side that is told later. Bytes on their way may still arrive there.
    pub(crate) fn end(&mut self, connection: u64, to: Side, now: u64, random: &mut Random) {
        let late = random.next(20 * self.delay_max + 1);
        if let Some(both) = self.connections.get_mut(&connection)
            && let Some(direction) = both.get_mut(&to)
        {
            direction.push(now + 1 + late, None);
            let other = if to == Side::Producer { Side::Service } else { Side::Producer };
            if let Some(back) = both.get_mut(&other) {
                back.flights.clear();
                back.is_ended = true;
            }
        }
    }

    /// Cuts a connection: each side gets some of what is on its way, up to the middle of a frame.
    pub(crate) fn cut(&mut self, connection: u64, now: u64, random: &mut Random) {
        let Some(both) = self.connections.get_mut(&connection) else { return };
        for direction in both.values_mut() {
            let kept = random.next(direction.flights.len() as u64 + 1) as usize;
            direction.flights.truncate(kept);
            if let Some(Flight { bytes: Some(bytes), .. }) = direction.flights.back_mut() {
                let length = random.next(bytes.len() as u64 + 1) as usize;
                bytes.truncate(length);
            }
            direction.push(now + 1 + random.next(200), None);
        }
    }

    /// Returns the next bytes that arrive at a side, or the end. None if nothing is due.
    pub(crate) fn arrive(
        &mut self,
        now: u64,
        can_hear: impl Fn(u64, Side) -> bool,
    ) -> Option<(u64, Side, Option<Vec<u8>>)> {
        for (connection, both) in &mut self.connections {
            for (side, direction) in both {
                let is_due = direction.flights.front().is_some_and(|flight| flight.at <= now);
                if is_due && can_hear(*connection, *side) {
                    let flight = direction.flights.pop_front()?;
                    return Some((*connection, *side, flight.bytes));
                }
            }
        }
        None
    }

    /// Returns the numbers of all connections.
    pub(crate) fn all(&self) -> Vec<u64> {
        self.connections.keys().copied().collect()
    }
}
