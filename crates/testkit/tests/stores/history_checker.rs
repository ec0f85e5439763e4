//! That the history checker is worth its word: what is in order passes, what is not is found.

use std::sync::Arc;

use exacat_store::memory::MemoryStore;
use exacat_testkit::TestClock;
use exacat_testkit::history::{Action, Clients, Event, Seen, check, record};

/// Events as `(asked, answered, action, seen)`.
fn history(events: &[(u64, u64, Action, Seen)]) -> Vec<Event> {
    let event = |(client, (asked, answered, action, seen)): (usize, &(u64, u64, Action, Seen))| Event {
        client,
        action: *action,
        seen: *seen,
        asked: *asked,
        answered: *answered,
    };
    events.iter().enumerate().map(event).collect()
}

use Action::{Create, Move, Read, Remove};
use Seen::{Done, Lost, Nothing, Taken, Value};

#[test]
fn what_is_in_order_passes() {
    for good in [
        vec![],
        vec![(0, 1, Create(0, 1), Done(1)), (2, 3, Read(0), Value(Some(1)))],
        // At once: the read may come first or last.
        vec![(0, 9, Create(0, 1), Done(1)), (1, 2, Read(0), Value(None)), (3, 4, Read(0), Value(Some(1)))],
        vec![(0, 9, Create(0, 1), Done(1)), (1, 8, Create(0, 2), Taken(1)), (10, 11, Remove(0), Done(1))],
        vec![
            (0, 1, Create(0, 1), Done(1)),
            (2, 3, Move(0, 1), Done(1)),
            (4, 5, Read(0), Value(None)),
            (6, 7, Read(1), Value(Some(1))),
            (8, 9, Move(0, 1), Nothing),
        ],
        // A lost answer: it happened, it did not, it happened late.
        vec![(0, 1, Create(0, 1), Lost), (2, 3, Read(0), Value(Some(1)))],
        vec![(0, 1, Create(0, 1), Lost), (2, 3, Read(0), Value(None))],
        vec![(0, 1, Create(0, 1), Lost), (2, 3, Read(0), Value(None)), (4, 5, Read(0), Value(Some(1)))],
        // Another name is another matter.
        vec![(0, 1, Create(0, 1), Done(1)), (2, 3, Create(5, 2), Done(2)), (4, 5, Read(5), Value(Some(2)))],
    ] {
        assert!(check(&history(&good)).is_ok(), "{good:?}");
    }
}

#[test]
fn what_is_not_in_order_is_found() {
    for bad in [
        // Two winners.
        vec![(0, 9, Create(0, 1), Done(1)), (1, 8, Create(0, 2), Done(2))],
        // An answered create is not there.
        vec![(0, 1, Create(0, 1), Done(1)), (2, 3, Read(0), Value(None))],
        // Read before it was asked for.
        vec![(0, 1, Read(0), Value(Some(1))), (2, 3, Create(0, 1), Done(1))],
        // Seen, then not, though nothing took it away.
        vec![(0, 9, Create(0, 1), Done(1)), (1, 2, Read(0), Value(Some(1))), (3, 4, Read(0), Value(None))],
        // A move that left it at both names; one that left it at none.
        vec![(0, 1, Create(0, 1), Done(1)), (2, 3, Move(0, 1), Done(1)), (4, 5, Read(0), Value(Some(1)))],
        vec![(0, 1, Create(0, 1), Done(1)), (2, 3, Move(0, 1), Done(1)), (4, 5, Read(1), Value(None))],
        // Removed twice.
        vec![(0, 1, Create(0, 1), Done(1)), (2, 9, Remove(0), Done(1)), (3, 8, Remove(0), Done(1))],
        // Refused, and nobody has it.
        vec![(0, 1, Create(0, 1), Taken(2))],
        // A lost answer that happened twice.
        vec![(0, 1, Create(0, 1), Lost), (2, 3, Remove(0), Done(1)), (4, 5, Read(0), Value(Some(1)))],
        // A lost answer that happened, and then had not.
        vec![(0, 1, Create(0, 1), Lost), (2, 3, Read(0), Value(Some(1))), (4, 5, Read(0), Value(None))],
    ] {
        assert!(check(&history(&bad)).is_err(), "{bad:?}");
    }
}

/// A real history passes; with one answered read made wrong - a value nobody wrote - it does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_false_note_in_a_real_history_is_found() {
    let plan = Clients { seed: 5, clients: 6, actions: 60, names: 3, moves: true, ask_again: true };
    let events = record(Arc::new(MemoryStore::new(TestClock::new().shared())), plan).await;
    assert!(check(&events).is_ok());
    let reads: Vec<usize> =
        (0..events.len()).filter(|at| matches!(events[*at].seen, Value(Some(_)))).collect();
    assert!(reads.len() > 10, "the history has something in it");
    for at in reads {
        let mut false_note = events.clone();
        false_note[at].seen = Value(Some(u32::MAX));
        assert!(check(&false_note).is_err(), "event {at}: {:?}", false_note[at]);
    }
    // Of two clients that made a file under one name in turn, both cannot have been at the same instant first.
    let done: Vec<usize> = (0..events.len())
        .filter(|at| matches!((events[*at].action, events[*at].seen), (Remove(_), Done(_))))
        .collect();
    for at in done {
        let mut twice = events.clone();
        twice.push(Event { client: 99, asked: events[at].answered, answered: u64::MAX - 1, ..events[at] });
        assert!(check(&twice).is_err(), "a file is removed once");
    }
}
