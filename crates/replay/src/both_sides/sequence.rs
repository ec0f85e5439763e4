//! Numbers of datagrams: tells lost, late and doubled ones.

use crate::limits::SEQUENCE_WINDOW;

/// Numbers of a stream, which begin again after the largest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sequence {
    modulus: u32,
    last: u32,
    /// A bit for each number up to the last: received or not. The lowest is the last.
    received: u64,
    /// Numbers before the last that are of this stream.
    known: u32,
}

/// Arrival of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// In its turn.
    InTurn,
    /// After so many that are missing.
    After {
        /// Number of missing ones.
        missing: u32,
    },
    /// After later ones. True if it was taken for missing.
    Late {
        /// Whether it was counted as missing.
        was_missing: bool,
    },
    /// A second time.
    Doubled,
}

impl Sequence {
    /// Begins with the first number that was received.
    pub(super) fn new(modulus: u32, first: u32) -> Self {
        Sequence { modulus, last: first % modulus, received: 1, known: 1 }
    }

    /// Takes the number of a datagram.
    pub(super) fn take(&mut self, number: u32) -> Arrival {
        let number = number % self.modulus;
        let ahead = (number + self.modulus - self.last) % self.modulus;
        let behind = (self.modulus - ahead) % self.modulus;
        if behind < SEQUENCE_WINDOW.min(self.modulus / 2) {
            let bit = 1_u64.checked_shl(behind).unwrap_or_default();
            if self.received & bit != 0 {
                return Arrival::Doubled;
            }
            self.received |= bit;
            return Arrival::Late { was_missing: behind < self.known };
        }
        self.received = self.received.checked_shl(ahead).unwrap_or_default() | 1;
        self.known = self.known.saturating_add(ahead);
        self.last = number;
        match ahead {
            1 => Arrival::InTurn,
            more => Arrival::After { missing: more - 1 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_turn_lose_nothing() {
        for modulus in [256, 1000] {
            let mut sequence = Sequence::new(modulus, modulus - 2);
            for number in (0..5000).map(|number| (number + modulus - 1) % modulus) {
                assert_eq!(sequence.take(number), Arrival::InTurn, "{number}");
            }
        }
    }

    /// Property: lost datagrams are counted once, whatever order the others come in.
    #[test]
    fn late_and_doubled_numbers_are_told_apart() {
        let mut sequence = Sequence::new(1000, 998);
        assert_eq!(sequence.take(998), Arrival::Doubled);
        assert_eq!(sequence.take(3), Arrival::After { missing: 4 });
        assert_eq!(sequence.take(1), Arrival::Late { was_missing: true });
        assert_eq!(sequence.take(1), Arrival::Doubled);
        assert_eq!(sequence.take(998), Arrival::Doubled);
        assert_eq!(sequence.take(999), Arrival::Late { was_missing: true });
        // One from before the begin was never missed.
        assert_eq!(sequence.take(997), Arrival::Late { was_missing: false });
        assert_eq!(sequence.take(4), Arrival::InTurn);
        assert_eq!(sequence.take(904), Arrival::After { missing: 899 });
        assert_eq!(sequence.take(905), Arrival::InTurn);
    }

    /// Property: a seeded loss is found exactly as long as fewer are lost together than the numbers allow.
    #[test]
    fn losses_are_counted_exactly() {
        let mut random = fastrand::Rng::with_seed(5);
        for modulus in [256, 1000] {
            let (mut sequence, mut lost, mut counted) = (Sequence::new(modulus, 0), 0, 0);
            let mut number = 0;
            for _ in 0..2000 {
                let gap = if random.u8(..) < 50 { random.u32(1..modulus - SEQUENCE_WINDOW - 1) } else { 0 };
                lost += gap;
                number += gap + 1;
                if let Arrival::After { missing } = sequence.take(number % modulus) {
                    counted += missing;
                }
            }
            assert_eq!(counted, lost);
        }
    }
}
