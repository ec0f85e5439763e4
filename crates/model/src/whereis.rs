//! Answers of `whereis`, the most frequent operation, and a borrowed form for encoding at once
//! without copies.

use crate::canonical_struct;
use crate::checksum::Checksums;
use crate::codec::{Encode, put_varint};
use crate::entry::ReplicaState;
use crate::guid::Guid;
use crate::se::SeName;

/// Location of one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaAt {
    /// The storage element; none for an archive member whose archive has no replica.
    pub se: Option<SeName>,
    /// State of the replica.
    pub state: ReplicaState,
    /// URL of the replica. For an archive member: the archive's URL with `?ZIP=member` at its end.
    /// Empty if it follows from the prefix of a storage element whose address is unknown.
    pub pfn: String,
}

canonical_struct!(ReplicaAt { se, state, pfn });

/// Location of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whereis {
    /// Its identity.
    pub guid: Guid,
    /// Bytes, if known.
    pub size: Option<u64>,
    /// Checksums, if known.
    pub checksums: Checksums,
    /// Its replicas, best first: available before suspect, online before offline, near before far.
    /// Lost ones are left out.
    pub replicas: Vec<ReplicaAt>,
}

canonical_struct!(Whereis { guid, size, checksums, replicas });

/// Borrowed [`ReplicaAt`] with the same canonical bytes.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaAtRef<'a> {
    /// Storage element, see [`ReplicaAt::se`].
    pub se: Option<&'a SeName>,
    /// State, see [`ReplicaAt::state`].
    pub state: ReplicaState,
    /// URL, see [`ReplicaAt::pfn`], in pieces to concatenate.
    pub pfn: [&'a str; 4],
}

/// Borrowed [`Whereis`] with the same canonical bytes.
#[derive(Clone, Copy, Debug)]
pub struct WhereisRef<'a> {
    /// Identity, see [`Whereis::guid`].
    pub guid: Guid,
    /// Bytes, see [`Whereis::size`].
    pub size: Option<u64>,
    /// Checksums, see [`Whereis::checksums`].
    pub checksums: &'a Checksums,
    /// Replicas, see [`Whereis::replicas`].
    pub replicas: &'a [ReplicaAtRef<'a>],
}

impl ReplicaAtRef<'_> {
    /// Copies into an owned value.
    pub fn to_owned(&self) -> ReplicaAt {
        ReplicaAt { se: self.se.cloned(), state: self.state, pfn: self.pfn.concat() }
    }
}

impl WhereisRef<'_> {
    /// Copies into an owned value.
    pub fn to_owned(&self) -> Whereis {
        let replicas = self.replicas.iter().map(ReplicaAtRef::to_owned).collect();
        Whereis { guid: self.guid, size: self.size, checksums: self.checksums.clone(), replicas }
    }
}

impl Encode for ReplicaAtRef<'_> {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.se.encode(out);
        self.state.encode(out);
        put_varint(out, self.pfn.iter().map(|piece| piece.len() as u64).sum());
        for piece in self.pfn {
            out.extend_from_slice(piece.as_bytes());
        }
    }
}

impl Encode for WhereisRef<'_> {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.guid.encode(out);
        self.size.encode(out);
        self.checksums.encode(out);
        self.replicas.encode(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{Answer, WhereisBytes};
    use crate::checksum::Checksum;
    use crate::codec::Decode;

    /// Goal: encoding an answer from its parts gives the bytes of the answer. Cases: no fields, all
    /// fields, empty pieces of a PFN, and pieces whose sum needs a longer length than each of them.
    #[test]
    fn the_borrowed_twin_has_the_same_canonical_bytes() {
        let se = SeName::parse("ALICE::CERN::EOS").unwrap();
        let sums = Checksums::one(Checksum::parse("md5:d41d8cd98f00b204e9800998ecf8427e").unwrap());
        let long = "x".repeat(100);
        let of = |pfn| ReplicaAtRef { se: Some(&se), state: ReplicaState::Available, pfn };
        let replicas = [
            of(["root://h/", "/05/12345/", "", ""]),
            of([&long, &long, "?ZIP=", "a/b"]),
            ReplicaAtRef { se: None, state: ReplicaState::Suspect, pfn: [""; 4] },
        ];
        for count in 0..=replicas.len() {
            for (size, checksums) in [(None, Checksums::none()), (Some(u64::MAX), sums.clone())] {
                let twin = WhereisRef {
                    guid: Guid([7; 16]),
                    size,
                    checksums: &checksums,
                    replicas: &replicas[..count],
                };
                let whole = twin.to_owned();
                assert_eq!(twin.to_bytes(), whole.to_bytes());
                assert_eq!(Whereis::from_bytes(&twin.to_bytes()).unwrap(), whole);
                assert_eq!(whole.replicas.len(), count);
                let mut items = Vec::new();
                for number in [0, 1, 130] {
                    let error = || crate::error::Error::not_found("x");
                    let each = |at| if at % 3 == 0 { Err(error()) } else { Ok(whole.clone()) };
                    let answer = Answer::Whereis((0..number).map(each).collect());
                    items.clear();
                    for at in 0..number {
                        if at % 3 == 0 { Err(error()) } else { Ok(&twin) }.encode(&mut items);
                    }
                    let bytes = WhereisBytes { count: number, items: &items };
                    assert_eq!(bytes.to_bytes(), answer.to_bytes());
                }
            }
        }
    }
}
