//! A random workload from a seed: every kind of mutation, on few names, so that mutations meet.

use exacat_model::{
    Checksum, Checksums, DirId, Edit, Expect, File, GroupId, Lfn, Location, Mode, Mutation, NewBody,
    PurgeTarget, Replica, ReplicaState, Reservation, ReservedReplica, Revision, SeNumber, Tag, TimeMs,
    TrashId, UserId,
};
use exacat_store::Request;

use super::{at, guid, mkdir, new_entry, remove, request, se};
use exacat_testkit::simulated::Random;

/// Makes requests. It ignores their outcomes: refusals are part of the workload.
pub(crate) struct Workload {
    random: Random,
    requests: u64,
    guids: u64,
}

impl Workload {
    pub(crate) fn new(seed: u64) -> Self {
        Workload { random: Random(seed), requests: 0, guids: 0 }
    }

    /// Returns the next request.
    pub(crate) fn request(&mut self) -> Request {
        self.requests += 1;
        let count = 1 + self.random.next(12);
        let mut mutations: Vec<Mutation> = (0..count).map(|_| self.mutation()).collect();
        if self.requests == 1 {
            mutations.splice(0..0, [se(1), se(2), se(3)]);
        }
        request(self.requests, mutations)
    }

    fn directory(&mut self) -> DirId {
        DirId(1 + self.random.next(12))
    }

    fn name(&mut self) -> String {
        format!("name-{}", self.random.next(24))
    }

    fn replicas(&mut self) -> Vec<Replica> {
        let first = 1 + self.random.next(2) as u16;
        (first..=3)
            .map(|number| Replica {
                se: SeNumber(number),
                state: ReplicaState::Available,
                location: Location::Derived,
            })
            .collect()
    }

    fn mutation(&mut self) -> Mutation {
        let (directory, other) = (self.directory(), self.directory());
        let (name, other_name) = (self.name(), self.name());
        let old_guid = guid(self.random.next(self.guids + 1));
        match self.random.next(20) {
            0..3 => mkdir(directory, &name),
            3..8 => {
                self.guids += 1;
                let size = self.random.next(1 << 30);
                let replicas = self.replicas();
                let checksum =
                    Checksum::new(exacat_model::ChecksumAlgorithm::Md5, &[size as u8; 16]).unwrap();
                let guid = guid(self.guids);
                let checksums = Checksums::one(checksum);
                let file = File { guid, size: Some(size), checksums, job: None, replicas };
                new_entry(directory, &name, NewBody::File(file))
            }
            8 => {
                self.guids += 1;
                new_entry(directory, &name, NewBody::Collection { guid: guid(self.guids) })
            }
            9..12 => {
                let edits = (0..1 + self.random.next(3)).map(|_| self.edit(old_guid)).collect();
                Mutation::Update { at: at(directory, &name), expect: Expect::ANY, edits }
            }
            12..14 => {
                let to = at(other, &other_name);
                Mutation::Move { from: at(directory, &name), expect: Expect::ANY, to }
            }
            14 => remove(directory, &name),
            15 => {
                let trash = TrashId(Revision(self.random.next(self.requests * 6)));
                Mutation::Restore { trash, to: at(directory, &name) }
            }
            16 => {
                let trash = TrashId(Revision(self.random.next(self.requests * 6)));
                match self.random.chance(2) {
                    true => Mutation::Purge(PurgeTarget::Item(trash)),
                    false => {
                        Mutation::Purge(PurgeTarget::Below { at: at(directory, &name), expect: Expect::ANY })
                    }
                }
            }
            17 => {
                self.guids += 1;
                Mutation::Reserve(Box::new(Reservation {
                    guid: guid(self.guids),
                    lfn: Lfn::parse("/up/load").unwrap(),
                    owner: UserId(0),
                    group: GroupId(0),
                    mode: Mode::FILE,
                    size: 77,
                    checksums: Checksums::none(),
                    job: Some(5),
                    created: TimeMs(0),
                    expires: TimeMs(u64::MAX),
                    pending: vec![
                        ReservedReplica { se: SeNumber(2), location: Location::Derived },
                        ReservedReplica { se: SeNumber(1), location: Location::Derived },
                    ],
                    exists: false,
                }))
            }
            18 => {
                let se = SeNumber(1 + self.random.next(2) as u16);
                let at = at(directory, &name);
                Mutation::Commit { guid: old_guid, se, at, size: 77, checksums: Checksums::none() }
            }
            _ => Mutation::Release { guid: old_guid, se: None, only_expired: false },
        }
    }

    fn edit(&mut self, old_guid: exacat_model::Guid) -> Edit {
        let number = SeNumber(1 + self.random.next(3) as u16);
        match self.random.next(8) {
            0 => Edit::Mode(Mode::new(self.random.next(0o777) as u16).unwrap()),
            1 => Edit::Expires(Some(TimeMs(self.random.next(1 << 40)))),
            2 => Edit::Owner(UserId(self.random.next(3) as u32)),
            3 => Edit::SetTag(Tag::parse(&format!("run={}", self.random.next(1000))).unwrap()),
            4 => Edit::DropReplica { se: number, delete: true },
            5 => Edit::ReplicaState { se: number, state: ReplicaState::Lost },
            6 => Edit::AddMember(old_guid),
            _ => Edit::RemoveMember(old_guid),
        }
    }
}
