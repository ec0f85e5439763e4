//! The Store contract: clauses every store keeps, and the table of mutations.
//!
//! The conformance suite (`exacat_testkit::conformance`) has one test or more per clause, named after it:
//! clause A3 is proven by the tests whose names begin with `a3_`. A test of this module checks that every
//! clause has one. There are no optional clauses.
//!
//! # Applying
//!
//! * **A1 one outcome each.** `apply` gives one outcome per mutation, in order. Mutations of one request are
//!   decided in order, each on the state the ones before it left; a refused one does not stop the others.
//!   `apply_each` gives each of its requests what `apply` would, one after the other.
//! * **A2 all or nothing.** A mutation is applied wholly - entry, indices, counters, queues, changefeed - or
//!   not at all. No reader sees a part of one.
//! * **A3 exactly one winner.** Of all creates, moves, restores and commits that want one name, one is applied;
//!   the others are refused with `Exists`. The same for one GUID (`GuidInUse`) and one record name (`InUse`).
//! * **A4 total order.** Applied mutations have increasing revisions, and the state is what they give when
//!   applied in that order.
//! * **A5 durable.** What was answered survives the end of the process and of the machine. (The memory store
//!   has nothing to survive in.)
//! * **A6 asked again.** A request whose operation id was seen gets, for each mutation that was
//!   applied, the outcome it had; mutations that were refused or changed nothing are decided anew.
//!   The fingerprint tells whether it is the same request: with another one than that of the first
//!   applied mutation the answer is `Conflict`, and nothing is done. An unknown fingerprint differs
//!   from none. What was applied is known by the id and the position in the request: what stands at
//!   that position the second time does not matter, so that a caller who finds the first request's
//!   work done can ask what came of it. A store knows every id that was made at most
//!   `OPERATION_AGE_MAX_MS` ago, across restarts, as long as no id is applied that is further ahead
//!   of the clock than `OPERATION_AHEAD_MAX_MS`; the catalogue refuses others. Where the history
//!   that would tell is not kept the answer is `Unknown`, and nothing is done.
//! * **A7 unavailable means not done.** After `ApplyError::Unavailable`, `TooLarge` or `Conflict`
//!   nothing of the request was or will be done. Anything else that is not an outcome is `Unknown`.
//! * **A8 limits.** A request with more than `BATCH_MUTATIONS_MAX` mutations, or whose encoded bytes exceed
//!   `BATCH_BYTES_MAX`, is `TooLarge`. Limits of entries are refused by mutation, with `Limit`; so is a mutation whose
//!   change is larger than the store's log takes in one piece, which is 3 MiB or more.
//! * **A9 refusals in order.** Where several refusals are due, the first in the mutation's row below is given.
//! * **A10 nothing in use is queued for deletion.** A physical copy is an SE and a PFN, whether derived or explicit.
//!   Whatever makes one a replica that takes space (`Create`, `Update`, `Commit`) or books one (`Book`) takes its
//!   deletions, of whichever file, off the SE's queue, in the same change: who registers a copy says that it is there
//!   and wanted. What gives a copy up (`Update`, `Purge`, `Release`, a `Book` in place of another) does not queue it as
//!   long as the file of its GUID has it as a replica that takes space, or a booking of the GUID has it pending, after
//!   the change. A change of an SE's prefix takes off what is in use by that. Two files of different GUIDs at one
//!   explicit PFN are not told of each other: the copy of both is queued when one of them gives it up. Nor does a store
//!   know what a deleter was told before.
//!
//! * **A11 judged as committed.** A request may carry what its caller's permission was judged by
//!   ([`Judged`](crate::Judged)). It is compared with the state that the request's first mutation
//!   is decided on; on a store that decides a request in parts, with that of each part, but for
//!   what the request changed itself. If a record has another revision, if a directory above a
//!   place that is changed has another owner, group or mode than was judged, or was not judged at
//!   all, or if an entry that is changed has another than was judged, all mutations are refused
//!   with `Outdated`, but for those that were applied before (A6).
//!
//! # Reading
//!
//! * **R1 one state.** Each answer is computed from one committed state.
//! * **R2 read your writes.** A read that begins after an outcome was given sees it. What is read of a store made by `Store::relaxed` sees
//!   it if the same server gave it; of what another server gave it may lack what was committed within a time before the read began that the store names.
//!   That is so for `Quorum`; with `LocalQuorum` and `One` it may also lack what the replicas that were asked lack. A relaxed answer
//!   is of one state as well (R1), never of an older one than a relaxed answer before it on that server; its `apply` is no other than the store's.
//! * **R3 pages.** A page has at most `limit` items; `more` is false only if nothing comes after. An item that is
//!   there during the whole of a listing is given exactly once, whatever comes and goes meanwhile. But a file that is
//!   moved or removed to the trash or restored while the files of its SE are listed may be given more than once, never
//!   not at all: an order that no move changes would take an index by file and SE, more memory than a replica takes.
//! * **R4 order.** Children come in the order of their names' bytes, members by GUID, trash and deletions by id,
//!   records by key, changes by revision.
//! * **R5 usage.** Counters equal what a full scan adds up, at every revision.
//! * **R6 walk.** Gates are the directories passed, root first; a path ends `Found`, `Missing` or `Stopped`. `files`
//!   gives the same of the paths that end at a file, and nothing of others.
//! * **R7 locate.** An entry is found by its id wherever it was moved, and in the trash; and by its
//!   place (`standing`), also below an item of the trash.
//! * **R8 due.** What has expired comes longest ago first, at most `limit` bookings and as many entries; what is in
//!   the trash is not due.
//! * **R9 bounds.** A `limit` above `PAGE_ITEMS_MAX` is taken as that; more keys than `READ_BATCH_MAX` are refused with
//!   `Limit`. After `close`, reads fail with `Unavailable`, and `apply` with `ApplyError::Unavailable`.
//!
//! # History
//!
//! * **H1 complete.** Every applied mutation has one change; nothing else has.
//! * **H2 ordered and resumable.** `changes(after)` gives changes in order, without gap or repeat, whatever the
//!   page size; beyond the end it gives none. A store may be told not to keep the oldest changes: from before `oldest`
//!   on it gives those that are kept.
//! * **H3 replayable.** The state is a function of the changes: applied to an empty store they give it again.
//! * **H4 time.** The times of changes never go back, whatever the clock does.
//! * **H5 timelines.** A store whose revisions may be given a second time, as after a restore, has
//!   another current timeline after each time, and says where it parted from those before. A
//!   revision with a timeline names one change for ever.
//! * **H6 trail.** A change of an entry names the change of that entry before it; `trail` follows
//!   these names back to the change that made the entry, through moves, trash and purge, or to the
//!   oldest change that is kept. It reads the entry's changes and no others. Bookings are no
//!   changes of an entry.
//! * **H7 traces.** `traces` gives the last change that took an entry from a name (`Move`,
//!   `Remove`, `Purge` of `Below`), and the last `Purge` of an identity, for as long as the history
//!   has the change.
//!
//! # A new store
//!
//! * **N1** has the root directory (number 1, owner and group 0, mode 755, created at revision 0), the user
//!   `admin` (number 0, group 0, role admin), the group `admin` (number 0), both records of revision 0, and nothing
//!   else. The root is counted as a directory of its owner and its group.
//!
//! # Mutations
//!
//! *Alive*: a directory is alive if the way up from it leads to the root; otherwise it is in the
//! trash. *Counted*: usage of the entry is added to (taken from) its owner, its group, every
//! directory above it, and each replica's SE. Every entry created, changed, moved, removed or
//! restored gets the change's revision as its own. *Commit's time*: the one the clock trusts, but
//! never before the last change's. *Depth*: an entry's number of components is at most `DEPTH_MAX`;
//! what lies below a moved directory is not looked at. *Expired*: its time is the commit's time or
//! before. *Outcome's id*: that of the entry the effect names (a booking's: its GUID). The root is
//! at `(1, "/")`: it can be updated there; no other entry can have that name. A collection's
//! members are GUIDs: one stays a member when its file is purged. Well-formedness is checked in the
//! order written; the texts in refusals are each store's own.
//!
//! | mutation | preconditions, in order: refusal | effects |
//! |---|---|---|
//! | `Create` | well-formed (name not the root's; tags sorted, one per key, ≤ `TAGS_PER_ENTRY_MAX`, each value checks; replicas ≤ `REPLICAS_PER_FILE_MAX`, one per SE, each checks, a member alone; size ≤ `FILE_BYTES_MAX`): `Invalid`/`Limit` · parent alive: `ParentGone` · depth below `DEPTH_MAX`: `Limit` · name free: `Exists` · GUID free (tree, trash, bookings): `GuidInUse` · each SE registered: `NoSuchSe` · usage + reserved + it within the quotas of owner and group: `Quota` | entry made; a directory gets the next number; `created` and `modified` default to the commit's time; replicas sorted by SE; counted; indexed by GUID, SE, expiry; deletions of its replicas dequeued (A10) |
//! | `Update` | ≤ `EDITS_PER_UPDATE_MAX`: `Limit` · parent alive: `ParentGone` · something there: `NotFound` · as expected: `Stale` · then each edit in order, all or none, on what the edits before it left: see below | one field change for each edit that changes something, in order, revision set, usage moved. No edit changes anything: `Unchanged` |
//! | · `Owner`, `Group` | new one's quota has room: `Quota` | |
//! | · `Mode`, `Modified`, `Expires` | none | `Expires` on a directory is allowed: the whole goes to the trash |
//! | · `Job`, `Size`, `Checksum`, `PutReplica`, `DropReplica`, `ReplicaState` | a file: `WrongKind` | deletions of one change are numbered from 0 in the order of their edits, with the size known by then |
//! | · `Size` | ≤ `FILE_BYTES_MAX`: `Limit` · unknown or the same: `Mismatch` · quota: `Quota` | |
//! | · `Checksum` | no other known of the algorithm: `Mismatch` · ≤ `CHECKSUMS_PER_FILE_MAX`: `Limit` | |
//! | · `PutReplica` | checks: `Invalid`/`Limit` · a member stands alone (no replica on another SE beside it): `Invalid` · SE registered: `NoSuchSe` · none there at another location: `ReplicaExists` · ≤ `REPLICAS_PER_FILE_MAX`: `Limit` · quota: `Quota` | added, or its state set; its deletions dequeued if it takes space (A10) |
//! | · `DropReplica`, `ReplicaState` | replica there: `NotFound` · quota (a state may make it take space again): `Quota` | with `delete`, one that takes space is queued for deletion (A10) |
//! | · `SetTag` | value checks: `Invalid`/`Limit` · ≤ `TAGS_PER_ENTRY_MAX`: `Limit` | |
//! | · `UnsetTag`, `RemoveMember` | none (absent: nothing changes) | |
//! | · `AddMember`, `RemoveMember` | a collection: `WrongKind` | |
//! | · `AddMember` | GUID of a file, in the tree or the trash: `NotFound` | |
//! | `Move` | source parent alive: `ParentGone` · something there: `NotFound` · as expected: `Stale` · target is the source: `Unchanged` · new name not the root's: `Invalid` · target parent alive: `ParentGone` · depth: `Limit` · target not below the source: `Loop` · name free: `Exists` | moved; counted from the directories above the source to those above the target |
//! | `Remove` | parent alive: `ParentGone` · something there: `NotFound` · as expected: `Stale` · not the root: `Invalid` · with `only_empty`, a directory: `WrongKind`, and empty: `NotEmpty` | a trash item of this revision; no longer counted in the directories above, still counted for owner, group and SE; no longer due |
//! | `Restore` | item there: `NotFound` · new name not the root's: `Invalid` · parent alive: `ParentGone` · depth: `Limit` · name free: `Exists` | back in the tree at `to`, counted there again |
//! | `RestoreBelow` | source parent in the trash: `ParentGone` · something there: `NotFound` · as expected: `Stale` · new name not the root's: `Invalid` · target parent alive: `ParentGone` · depth: `Limit` · name free: `Exists` | moved out of the item to `to`, with the change of a move; counted from the directories above the source to those above the target |
//! | `Purge` | `Item`: there: `NotFound`. `Below`: parent in the trash: `ParentGone`, something there: `NotFound`, as expected: `Stale` · a directory is empty: `NotEmpty` | gone from everything; no longer counted; each replica that takes space queued for deletion (A10), those numbered from 0 in their order; a collection's members forgotten; the GUID is free |
//! | `Book` | well-formed (at least 1 and at most `REPLICAS_PER_BOOKING_MAX` pending, one per SE, none on SE 0, not members; size ≤ `FILE_BYTES_MAX`): `Invalid`/`Limit` · a booking of the GUID by another owner: `GuidInUse` · a file of the GUID: in the trash or not a file: `GuidInUse`; size not known or another, or a checksum another: `Mismatch`; replica on a pending SE: `ReplicaExists` · each SE registered and online: `NoSuchSe` · fewer than `BOOKINGS_PER_USER_MAX` of the owner (a replaced one does not count): `Limit` · quota of owner and group, the replaced booking's reservation given back first: `Quota` | booking kept, `exists` set to whether the file exists, `created` to the commit's time, pending sorted by SE; reserved from owner and group; deletions of what is pending dequeued (A10); what the replaced booking had pending queued for deletion (A10), with its size, numbered from 0 in its order |
//! | `Commit` | booking there and SE pending in it: `NotFound` · not expired by the commit's time: `Expired` · size equal and checksums not contradicting the booking's: `Mismatch` · if the file exists: it stands at `at`: `Stale`; booked and given checksums do not contradict its: `Mismatch`; it is no member: `Invalid`; no replica on the SE at another location: `ReplicaExists`; ≤ `REPLICAS_PER_FILE_MAX`: `Limit`. Otherwise: name not the root's: `Invalid` · parent alive: `ParentGone` · depth: `Limit` · name free: `Exists` | the file is made (`created` and `modified` the commit's time) with this replica, available, or gets it; it has the checksums booked and given; counted; reservation reduced, the booking's `exists` set; the booking ends with its last replica; deletions of the replica dequeued (A10). No quota check: it was reserved |
//! | `Release` | booking there, and SE pending in it: `NotFound` · with `only_expired`, expired: `Stale` | reservation given back; pending replicas (or the one) queued for deletion (A10), numbered from 0 in their order; the booking ends when none is pending |
//! | `Dequeue` | ≤ `EDITS_PER_UPDATE_MAX`: `Limit` · one of them in the queue: `NotFound` | those in the queue are taken off; the effect has these, each once, in the order given |
//! | `SetRecord` | well-formed (an SE checks; a user's groups ≤ `GROUPS_PER_USER_MAX`): `Invalid`/`Limit` · as expected: `Stale` · unique name free: `InUse` · a user's groups and group, a token's user, a quota's subject registered: `NotFound` | record set. The same already: `Unchanged` |
//! | `DropRecord` | there: `NotFound` · as expected: `Stale` · not the admin user or group: `InUse` · a user or group without usage and reservation, a group that is in no user, an SE without replicas (of any state), deletions and bookings: `InUse` | record dropped; with a user its tokens and quota, with a group its quota |
//!
//! Quotas limit `objects()` (files), `bytes` + `member_bytes` (bytes) and `replica_bytes`, each of usage plus reserved plus the
//! increase. A mutation that does not increase a figure is not refused for it, even where the figure is
//! over its limit already.
