//! The Store contract: the clauses that every store keeps, and the table of mutations.
//!
//! The conformance suite (`exacat_testkit::conformance`) has at least one test per clause, named
//! after it: the tests whose names begin with `a3_` prove clause A3. A test of testkit checks that
//! every clause and every mutation has one. No clause is optional.
//!
//! # Applying
//!
//! * **A1 one outcome each.** `apply` returns one outcome per mutation, in order. The store decides
//!   the mutations of a request in order, each on the state after the previous ones. A refused
//!   mutation does not stop the others. `apply_each` returns for each of its requests what `apply`
//!   would, one after the other.
//! * **A2 all or nothing.** A mutation is applied wholly (entry, indices, counters, queues,
//!   changefeed) or not at all. No reader sees a part of one.
//! * **A3 exactly one winner.** Of all creates, moves, restores and commits that want one name, the
//!   store applies one and refuses the others with `Exists`. The same holds for one GUID
//!   (`GuidInUse`) and one record name (`InUse`).
//! * **A4 total order.** Applied mutations have increasing revisions. Applying them in that order
//!   gives the state.
//! * **A5 durable.** Every answered change survives the end of the process and of the machine.
//! * **A6 asked again.** If the store knows a request's operation id, each of its mutations that
//!   was applied before gets its old outcome. Mutations that were refused or changed nothing are
//!   decided anew.
//!
//!   - The fingerprint says whether it is the same request. If it differs from that of the first
//!     applied mutation, the answer is `Conflict`, and nothing is done. An unknown fingerprint
//!     differs from none.
//!   - The store recognises an applied mutation by the id and its position in the request. The
//!     mutation now at that position does not matter. So a caller who finds the work of the first
//!     request done can still ask for its outcomes.
//!   - A store knows every id made at most `OPERATION_AGE_MAX_MS` ago, across restarts. This
//!     requires that no id is applied that is further ahead of the clock than
//!     `OPERATION_AHEAD_MAX_MS`; the catalogue refuses such ids.
//!   - If the store no longer keeps the history that would tell, the answer is `Unknown`, and
//!     nothing is done.
//! * **A7 unavailable means not done.** After `ApplyError::Unavailable`, `TooLarge` or `Conflict`,
//!   nothing of the request was or will be done. Any other answer without outcomes is `Unknown`.
//! * **A8 limits.** A request with more than `BATCH_MUTATIONS_MAX` mutations, or whose encoded
//!   bytes exceed `BATCH_BYTES_MAX`, is `TooLarge`. A mutation that exceeds a limit of entries is
//!   refused with `Limit`. So is one whose change is larger than the store's log accepts in one
//!   piece, which is 3 MiB or more.
//! * **A9 refusals in order.** If several refusals apply, the store returns the first in the
//!   mutation's list below.
//! * **A10 nothing in use is queued for deletion.** A physical copy is an SE and a PFN, whether
//!   derived or explicit.
//!
//!   - Some changes make a copy a replica that takes space (`Create`, `Update`, `Commit`) or
//!     reserve one (`Reserve`). Such a change takes the copy's deletions, of whichever file, off the
//!     SE's queue: a client that registers a copy says that it exists and is wanted.
//!   - Other changes give a copy up (`Update`, `Purge`, `Release`, a `Reserve` in place of another).
//!     Such a change does not queue the copy if, after it, the GUID still uses the copy. The GUID
//!     uses it if its file has it as a replica that takes space, or an upload reservation has it
//!     pending.
//!   - A change of an SE's prefix takes the copies that are in use under the new prefix off the
//!     queue.
//!   - The store does not relate two files of different GUIDs at one explicit PFN. It queues the
//!     copy of both when one of them gives it up. Nor does a store know which deletions a deleter
//!     has read already.
//!
//! * **A11 judged as committed.** A request may carry the facts that its caller's permission was
//!   judged by ([`Judged`](crate::Judged)). The store compares them with the state on which it
//!   decides the request's first mutation. A store that decides a request in parts compares with
//!   the state of each part, without what the request itself changed. It refuses all mutations with
//!   `Outdated`, but for those that were applied before (A6), in any of these cases:
//!
//!   - a record has another revision;
//!   - a directory above a changed place has another owner, group or mode than was judged, or was
//!     not judged at all;
//!   - an entry to be changed has another owner, group or mode than was judged.
//!
//! # Reading
//!
//! * **R1 one state.** Each answer is computed from one committed state.
//! * **R2 read your writes.** A read that begins after an outcome was returned sees it. For a store
//!   made by `Store::with_bounded_staleness`, this holds for outcomes that the same server returned.
//!
//!   - At `Quorum`, such a read may lack what other servers committed within a time before the read
//!     began; the store names that time.
//!   - At `LocalQuorum` and `One`, it may also lack what the replicas that it read from lack.
//!   - Its answers, too, show one state (R1), never an older one than an earlier such answer on
//!     that server. Its `apply` is that of the store.
//! * **R3 pages.** A page has at most `limit` items; `more` is false only if nothing follows. An
//!   item that exists during the whole of a listing appears exactly once, whatever other items
//!   appear or vanish. One exception: a file that moves during a listing of its SE's files, also to
//!   or from the trash, may appear more than once. It is never missing. An order that no
//!   move changes would need an index by file and SE, with more memory than a replica takes.
//! * **R4 order.** Children are ordered by the bytes of their names, members by GUID, trash and
//!   deletions by id, records by key, changes by revision.
//! * **R5 usage.** Counters equal the sums of a full scan, at every revision.
//! * **R6 resolve.** Ancestors are the directories on the path, root first; a path ends `Found`, `Missing`
//!   or `Stopped`. `files` returns the same for paths that end at a file, and nothing for others.
//! * **R7 locate.** An entry is found by its id after any move, and in the trash; and by its place
//!   (`standing`), also below an item of the trash.
//! * **R8 due.** Expired items come longest ago first, at most `limit` upload reservations and as
//!   many entries. Items in the trash are not due.
//! * **R9 bounds.** A `limit` above `PAGE_ITEMS_MAX` counts as `PAGE_ITEMS_MAX`; more keys than
//!   `READ_BATCH_MAX` are refused with `Limit`. After `close`, reads fail with `Unavailable`, and
//!   `apply` with `ApplyError::Unavailable`.
//!
//!   - The item that brings a page to `PAGE_MEMORY_MAX` bytes ([`Measured`](exacat_model::Measured))
//!     is its last. So a page may have fewer items than `limit` although more follow. If any
//!     follows, it has at least one, unless `limit` is 0. The same holds for `changes` and `trail`;
//!     a store may count the bytes of its log instead. It holds for each list of `due`.
//!   - A read of keys that finds entries of more than `READ_MEMORY_MAX` bytes is refused with
//!     `Limit`. One key is never too much.
//!
//! # History
//!
//! * **H1 complete.** Every applied mutation has one change; there are no other changes.
//! * **H2 ordered and resumable.** `changes(after)` returns changes in order, without gap or
//!   repeat, for any page size; beyond the end it returns none. An operator may have a store drop
//!   its oldest changes. From a position before `oldest` it returns those that are kept.
//! * **H3 replayable.** The state is a function of the changes: applying them to an empty store
//!   gives it again.
//! * **H4 time.** The times of changes never go back, whatever the clock does.
//! * **H5 timelines.** A store may assign revisions a second time, as after a restore. Each time it
//!   begins another current timeline, and records where that parted from those before. A revision
//!   with a timeline names one change for ever.
//! * **H6 trail.** A change of an entry names the previous change of that entry. `trail` follows
//!   these names back through moves, trash and purge. It ends at the change that created the entry,
//!   or at the oldest change that is kept. It reads the entry's changes and no others. Upload
//!   reservations are no changes of an entry.
//! * **H7 traces.** `traces` returns the last change that took an entry from a name (`Move`,
//!   `Remove`, `Purge` of `Below`), and the last `Purge` of an identity. It does so as long as the
//!   history has the change.
//!
//! # A new store
//!
//! * **N1** A new store has exactly three items. The root directory has number 1, owner and group 0,
//!   mode 755, and was created at revision 0. The user `admin` has number 0, group 0 and role admin.
//!   The group `admin` has number 0. Both records have revision 0. The root counts as a directory of
//!   its owner and its group.
//!
//! # Mutations
//!
//! | mutation | purpose |
//! |---|---|
//! | `Create` | makes an entry |
//! | `Update` | changes an entry by edits |
//! | `Move` | moves or renames an entry |
//! | `Remove` | moves an entry to the trash |
//! | `Restore` | restores an item of the trash |
//! | `RestoreBelow` | restores an entry from inside an item of the trash |
//! | `Purge` | ends an entry in the trash for good |
//! | `Reserve` | makes an upload reservation |
//! | `Commit` | makes a reserved replica visible |
//! | `Release` | ends an upload reservation, or one replica of it |
//! | `Dequeue` | removes completed deletions from a queue |
//! | `SetRecord` | sets a record of the registry |
//! | `DropRecord` | drops a record of the registry |
//!
//! The sections below list the preconditions of each mutation with their refusals, in the order of
//! the checks, and its effects. They use these terms:
//!
//! * *Alive*: a directory is alive if the way up from it leads to the root; otherwise it is in the
//!   trash.
//! * *Counted*: the usage of the entry is added to (taken from) its owner, its group, every
//!   directory above it, and each replica's SE.
//! * *Commit's time*: the time that the clock trusts, but never before the last change's.
//! * *Depth*: an entry has at most `DEPTH_MAX` components. The check does not cover entries below a
//!   moved directory.
//! * *Expired*: its time is the commit's time or before.
//! * *Outcome's id*: the id of the entry that the effect names (for an upload reservation: its
//!   GUID).
//! * *Reservation*: an upload reservation.
//!
//! Some rules hold for all of them:
//!
//! * An entry that is created, changed, moved, removed or restored gets the change's revision.
//! * The root is at `(1, "/")` and can be updated there; no other entry can have that name.
//! * The members of a collection are GUIDs: one stays a member when its file is purged.
//! * Well-formedness is checked in the order written; each store has its own texts in refusals.
//! * Quotas limit `objects()` (files), `bytes` + `member_bytes` (bytes) and `replica_bytes`. Each
//!   limits the sum of usage, reservations and the increase. A mutation that does not increase a
//!   sum is not refused for it, even if the sum exceeds its limit already.
//!
//! ## `Create`
//!
//! Preconditions:
//!
//! 1. Well-formed (name not the root's; tags sorted, one per key, ≤ `TAGS_PER_ENTRY_MAX`, each
//!    value checks; replicas ≤ `REPLICAS_PER_FILE_MAX`, one per SE, each checks, a member alone;
//!    size ≤ `FILE_BYTES_MAX`): `Invalid`/`Limit`
//! 2. Parent alive: `ParentGone`
//! 3. Depth below `DEPTH_MAX`: `Limit`
//! 4. Name free: `Exists`
//! 5. GUID free (tree, trash, reservations): `GuidInUse`
//! 6. Each SE registered: `NoSuchSe`
//! 7. Usage + reservations + the entry within the quotas of owner and group: `Quota`
//!
//! Effects:
//!
//! * The entry is made, counted, and indexed by GUID, SE and expiry.
//! * A directory gets the next number.
//! * `created` and `modified` default to the commit's time.
//! * Replicas are sorted by SE.
//! * Deletions of its replicas are dequeued (A10).
//!
//! ## `Update`
//!
//! Preconditions:
//!
//! 1. ≤ `EDITS_PER_UPDATE_MAX`: `Limit`
//! 2. Parent alive: `ParentGone`
//! 3. An entry exists: `NotFound`
//! 4. As expected: `Stale`
//! 5. Then each edit in order, all or none, on the state after the previous edits; see below.
//!
//! Effects:
//!
//! * One field change for each edit that changes something, in order.
//! * The revision is set, and usage moves.
//! * If no edit changes anything: `Unchanged`.
//!
//! Preconditions and effects of the edits:
//!
//! * `Owner`, `Group`: the new account's quota has room: `Quota`.
//! * `Mode`, `Modified`, `Expires`: none. `Expires` on a directory is allowed: all of it goes to
//!   the trash.
//! * `Job`, `Size`, `Checksum`, `PutReplica`, `DropReplica`, `ReplicaState`: the entry is a file:
//!   `WrongKind`. Deletions of one change are numbered from 0 in the order of their edits, with the
//!   size known by then.
//! * `Size`: ≤ `FILE_BYTES_MAX`: `Limit`; unknown or the same: `Mismatch`; quota: `Quota`.
//! * `Checksum`: no other one of the algorithm is known: `Mismatch`; ≤ `CHECKSUMS_PER_FILE_MAX`:
//!   `Limit`.
//! * `PutReplica`, preconditions in order:
//!
//!   - the replica checks: `Invalid`/`Limit`;
//!   - an archive member is alone (no replica on another SE beside it): `Invalid`;
//!   - SE registered: `NoSuchSe`;
//!   - no replica on it at another location: `ReplicaExists`;
//!   - ≤ `REPLICAS_PER_FILE_MAX`: `Limit`;
//!   - quota: `Quota`.
//!
//!   The replica is added, or its state set. Its deletions are dequeued if it takes space (A10).
//! * `DropReplica`, `ReplicaState`: the replica exists: `NotFound`; quota (a state may make it take
//!   space again): `Quota`. With `delete`, a replica that takes space is queued for deletion (A10).
//! * `SetTag`: the value checks: `Invalid`/`Limit`; ≤ `TAGS_PER_ENTRY_MAX`: `Limit`.
//! * `UnsetTag`, `RemoveMember`: none (if it is absent, nothing changes).
//! * `AddMember`, `RemoveMember`: the entry is a collection: `WrongKind`.
//! * `AddMember`: the GUID is that of a file, in the tree or the trash: `NotFound`.
//!
//! ## `Move`
//!
//! Preconditions:
//!
//! 1. Source parent alive: `ParentGone`
//! 2. An entry exists: `NotFound`
//! 3. As expected: `Stale`
//! 4. Target is not the source: `Unchanged`
//! 5. New name not the root's: `Invalid`
//! 6. Target parent alive: `ParentGone`
//! 7. Depth: `Limit`
//! 8. Target not below the source: `Loop`
//! 9. Name free: `Exists`
//!
//! Effects:
//!
//! * The entry moves, with everything below it.
//! * Usage moves from the directories above the source to those above the target.
//!
//! ## `Remove`
//!
//! Preconditions:
//!
//! 1. Parent alive: `ParentGone`
//! 2. An entry exists: `NotFound`
//! 3. As expected: `Stale`
//! 4. Not the root: `Invalid`
//! 5. With `only_empty`, a directory: `WrongKind`, and empty: `NotEmpty`
//!
//! Effects:
//!
//! * The entry becomes a trash item of this revision.
//! * It no longer counts in the directories above, but still for owner, group and SE.
//! * It is no longer due.
//!
//! ## `Restore`
//!
//! Preconditions:
//!
//! 1. Item exists: `NotFound`
//! 2. New name not the root's: `Invalid`
//! 3. Parent alive: `ParentGone`
//! 4. Depth: `Limit`
//! 5. Name free: `Exists`
//!
//! Effects:
//!
//! * The item is in the tree at `to` and counts there again.
//!
//! ## `RestoreBelow`
//!
//! Preconditions:
//!
//! 1. Source parent in the trash: `ParentGone`
//! 2. An entry exists: `NotFound`
//! 3. As expected: `Stale`
//! 4. New name not the root's: `Invalid`
//! 5. Target parent alive: `ParentGone`
//! 6. Depth: `Limit`
//! 7. Name free: `Exists`
//!
//! Effects:
//!
//! * The entry moves out of the item to `to`. Its change is that of a move.
//! * Usage moves from the directories above the source to those above the target.
//!
//! ## `Purge`
//!
//! Preconditions:
//!
//! 1. `Item`: the item exists: `NotFound`. `Below`: parent in the trash: `ParentGone`, an entry
//!    exists: `NotFound`, as expected: `Stale`
//! 2. A directory is empty: `NotEmpty`
//!
//! Effects:
//!
//! * The entry is gone everywhere and no longer counted; its GUID is free.
//! * Each replica that takes space is queued for deletion (A10), numbered from 0 in their order.
//! * A collection's members are dropped.
//!
//! ## `Reserve`
//!
//! Preconditions:
//!
//! 1. Well-formed (at least 1 and at most `REPLICAS_PER_RESERVATION_MAX` pending, one per SE, none on
//!    SE 0, not members; size ≤ `FILE_BYTES_MAX`): `Invalid`/`Limit`
//! 2. No reservation of the GUID by another owner: `GuidInUse`
//! 3. If an entry has the GUID: it is a file, not in the trash: `GuidInUse`; its size is known and
//!    the same, and no checksum differs: `Mismatch`; no replica on a pending SE: `ReplicaExists`
//! 4. Each SE registered and online: `NoSuchSe`
//! 5. Fewer than `RESERVATIONS_PER_USER_MAX` of the owner (a replaced one does not count): `Limit`
//! 6. Within the quotas of owner and group, without the part that a replaced reservation holds:
//!    `Quota`
//!
//! Effects:
//!
//! * The reservation is kept. `exists` says whether the file exists, `created` is the commit's
//!   time, pending replicas are sorted by SE.
//! * The quotas of owner and group hold its size.
//! * Deletions of its pending replicas are dequeued (A10).
//! * Pending replicas of the replaced reservation are queued for deletion (A10), with its size,
//!   numbered from 0 in its order.
//!
//! ## `Commit`
//!
//! Preconditions:
//!
//! 1. The reservation exists and the SE is pending in it: `NotFound`
//! 2. Not expired by the commit's time: `Expired`
//! 3. Size equal and checksums not contradicting the reservation's: `Mismatch`
//! 4. If the file exists:
//!    - it is at `at`: `Stale`;
//!    - reserved and given checksums do not contradict its own: `Mismatch`;
//!    - it is no archive member: `Invalid`;
//!    - no replica on the SE at another location: `ReplicaExists`;
//!    - ≤ `REPLICAS_PER_FILE_MAX`: `Limit`.
//! 5. Otherwise:
//!    - name not the root's: `Invalid`;
//!    - parent alive: `ParentGone`;
//!    - depth: `Limit`;
//!    - name free: `Exists`.
//!
//! Effects:
//!
//! * The file is made (`created` and `modified` the commit's time) with this replica, available; an
//!   existing file gets the replica.
//! * The file has the checksums reserved and given.
//! * The file or replica is counted. There is no quota check, because its size was reserved.
//! * The quotas hold less for the reservation, and its `exists` is set.
//! * The reservation ends with its last replica.
//! * Deletions of the replica are dequeued (A10).
//!
//! ## `Release`
//!
//! Preconditions:
//!
//! 1. The reservation exists, and the SE is pending in it: `NotFound`
//! 2. With `only_expired`, it has expired: `Stale`
//!
//! Effects:
//!
//! * The quotas hold less for the reservation.
//! * Its pending replicas (or the named one) are queued for deletion (A10), numbered from 0 in
//!   their order.
//! * The reservation ends if none is pending.
//!
//! ## `Dequeue`
//!
//! Preconditions:
//!
//! 1. ≤ `EDITS_PER_UPDATE_MAX`: `Limit`
//! 2. At least one of the deletions is in the queue: `NotFound`
//!
//! Effects:
//!
//! * Those in the queue are removed.
//! * The effect lists these, each once, in the order given.
//!
//! ## `SetRecord`
//!
//! Preconditions:
//!
//! 1. Well-formed (an SE checks; a user's groups ≤ `GROUPS_PER_USER_MAX`): `Invalid`/`Limit`
//! 2. As expected: `Stale`
//! 3. Unique name free: `InUse`
//! 4. A user's groups and group, a token's user, a quota's subject registered: `NotFound`
//!
//! Effects:
//!
//! * The record is set. If it is the same already: `Unchanged`.
//!
//! ## `DropRecord`
//!
//! Preconditions:
//!
//! 1. The record exists: `NotFound`
//! 2. As expected: `Stale`
//! 3. Not the admin user or group: `InUse`
//! 4. A user or group has no usage and reservations, no user is in a group, an SE has no replicas
//!    (of any state), deletions and reservations: `InUse`
//!
//! Effects:
//!
//! * The record is dropped: with a user its tokens and quota, with a group its quota.
