//! The list of states, with their classes, meanings and remedies.

macro_rules! classes {
    ($( $class:ident $name:literal $meaning:literal )*) => {
        /// Classes of states: each tells who can mend it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Class {
            $( #[doc = $meaning] $class, )*
        }

        impl Class {
            /// All classes.
            pub const ALL: &'static [Class] = &[$( Class::$class, )*];

            /// Returns its name in metrics and reports.
            pub fn name(self) -> &'static str {
                match self { $( Class::$class => $name, )* }
            }

            /// Returns its meaning, for documents.
            pub fn meaning(self) -> &'static str {
                match self { $( Class::$class => $meaning, )* }
            }
        }
    };
}

classes! {
    Cpu "cpu" "On a processor, or ready to run."
    Commit "commit" "Until a change is durable."
    Io "io" "Reads from the disk."
    Queue "queue" "Behind other requests of this server."
    Backpressure "backpressure" "Behind background work that must go first."
    Network "network" "For the client, or a storage element."
    Cluster "cluster" "For the database below the store."
    Idle "idle" "Because the client asked to wait."
    Unaccounted "unaccounted" "Without a name."
}

macro_rules! states {
    ($( $state:ident $name:literal $class:ident $meaning:literal $remedy:literal )*) => {
        /// State of a request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum RequestState {
            $( #[doc = $meaning] $state, )*
        }

        impl RequestState {
            /// All states, in the order of their numbers.
            pub const ALL: &'static [RequestState] = &[$( RequestState::$state, )*];

            /// Returns its name in metrics and reports.
            pub fn name(self) -> &'static str {
                match self { $( RequestState::$state => $name, )* }
            }

            /// Returns its class.
            pub fn class(self) -> Class {
                match self { $( RequestState::$state => Class::$class, )* }
            }

            /// Returns its meaning, for documents.
            pub fn meaning(self) -> &'static str {
                match self { $( RequestState::$state => $meaning, )* }
            }

            /// Returns advice for an operator who finds much time in it.
            pub fn remedy(self) -> &'static str {
                match self { $( RequestState::$state => $remedy, )* }
            }
        }
    };
}

states! {
    Decode "decode" Cpu
        "The server reads the request and judges its credentials."
        "Send batches instead of single requests. More processors help."
    Execute "execute" Cpu
        "The catalogue resolves paths, judges permissions and looks up entries."
        "Send batches. More processors help; look for operations with many items."
    Encode "encode" Cpu
        "The server writes the answer."
        "Ask for smaller pages, or for fewer fields. More processors help."
    Decide "decide" Cpu
        "The writer thread decides the changes of the commit group, and applies values of elements."
        "One thread decides all changes. Send several files in one register, and fewer other changes."
    CommitQueue "commit_queue" Commit
        "The change waits until the writer takes it up."
        "The writer is busy: see decide, log_sync and backpressure of the same time."
    CommitGroup "commit_group" Commit
        "The decided change waits until the commit group before it is durable."
        "The disk bounds the rate: see log_sync. Larger groups form by themselves."
    LogSync "log_sync" Commit
        "The commit group is written to the log and synced."
        "Compare with a flush of the disk itself, in the report. A disk with power-loss protection syncs in 0.1 ms."
    StandbySync "standby_sync" Commit
        "The durable change waits until enough standbys have it durably too."
        "See the standbys' distance in status, their log_sync, and the network between."
    DurableRead "durable_read" Commit
        "The answer of a read waits until the changes that it shows are durable."
        "The read saw a change whose sync is not over: see log_sync."
    PageRead "page_read" Io
        "The store or the history of elements reads sorted runs from the disk."
        "Give the cache more memory, or use a faster disk. See the cache's hit ratio."
    HistoryRead "history_read" Io
        "The store reads old changes from segments of the log."
        "Ask for a shorter part of the history. A faster disk helps."
    Admission "admission" Queue
        "A long read or a bulk write waits for its turn among others of its kind."
        "Many long requests at a time: see the users with most of them. Raise the slots of the lane."
    Throttle "throttle" Queue
        "The request waits because an operator limits its user, its group, or everybody."
        "exacat throttle ls shows the limits. The client can send fewer items a second."
    Scheduler "scheduler" Queue
        "The request waits for a thread for long work."
        "The processors are busy, or many long requests run at a time."
    StateLock "state_lock" Queue
        "A read waits for the lock of the state while the writer applies changes."
        "Large changes hold the lock in steps. See decide of the same time."
    Snapshot "snapshot" Backpressure
        "The request waits for a snapshot, a backup or a restore."
        "Take snapshots at quiet times."
    Backpressure "backpressure" Backpressure
        "The writer waits for compaction, so that sorted runs do not pile up; on a cluster for its tables, which lag behind the log."
        "The disk or the database is too slow for the rate of changes, or something else uses it."
    ClientRead "client_read" Network
        "The server waits for the rest of the request's body."
        "The client or its network is slow."
    ClientWrite "client_write" Network
        "The answer waits for room: the client has not read what was sent before."
        "The client or its network is slow. Its other requests wait too."
    StorageElement "storage_element" Network
        "The server asks a storage element about an upload, or relays a body to it."
        "See the errors of this storage element, and its own monitoring."
    ClusterRead "cluster_read" Cluster
        "The server reads rows, or the end of the log, from the database."
        "See the database's own read latency, time-outs and compaction."
    ClusterAppend "cluster_append" Cluster
        "The commit group is appended to the log in the database, by a conditional write."
        "See conditional writes in the database's monitoring, and the clocks and the network of its nodes."
    ClusterPeer "cluster_peer" Cluster
        "Another server carries the change out, or has its turn to append before this one."
        "See the states of that server, and the network between servers. Write through one server."
    Change "change" Idle
        "The client asked to wait for a change."
        "Nothing: the client wants to wait. Percentages leave it out."
    Unaccounted "unaccounted" Unaccounted
        "The request waits for something without a name."
        "Report it if it exceeds 5 % of the time: a wait has no name yet."
}

impl RequestState {
    /// Number of states.
    pub const COUNT: usize = Self::ALL.len();

    /// True if a processor works on the request.
    pub fn is_on_cpu(self) -> bool {
        self.class() == Class::Cpu
    }

    /// Returns the state with this name, as metrics and reports have it.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|state| state.name() == name)
    }

    /// Returns the state with this number; the last one if there is none.
    pub(crate) fn at(number: usize) -> Self {
        Self::ALL.get(number).copied().unwrap_or(RequestState::Unaccounted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names are unique, fit metric labels, and at most 20 of them are waits, as operators can
    /// remember. Time without a name is no such wait.
    #[test]
    fn states_have_names_of_their_own_and_waits_are_few() {
        let names: std::collections::BTreeSet<&str> =
            RequestState::ALL.iter().map(|one| one.name()).collect();
        assert_eq!(names.len(), RequestState::COUNT);
        for (number, state) in RequestState::ALL.iter().enumerate() {
            assert_eq!(*state as usize, number);
            assert_eq!(RequestState::at(number), *state);
            assert_eq!(RequestState::named(state.name()), Some(*state));
            assert!(state.name().bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase()));
        }
        let is_wait = |state: &&RequestState| !state.is_on_cpu() && **state != RequestState::Unaccounted;
        assert!(RequestState::ALL.iter().filter(is_wait).count() <= 20);
        assert_eq!(RequestState::at(RequestState::COUNT), RequestState::Unaccounted);
    }
}
