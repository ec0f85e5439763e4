//! Tests of the history checker: it passes what is in order, and finds what is not.

use std::sync::Arc;

use exacat_testkit::TestClock;
use exacat_testkit::faults::LostAnswers;
use exacat_testkit::history::{
    Action, Applied, Clients, Event, NotExplained, STEPS_MAX, Seen, check, check_with_changes, record,
};
use exacat_testkit::memory::MemoryStore;

/// Makes events from `(asked, answered, action, seen)`.
fn history(events: &[(u64, u64, Action, Seen)]) -> Vec<Event> {
    let event = |(client, (asked, answered, action, seen)): (usize, &(u64, u64, Action, Seen))| Event {
        client,
        number: 0,
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
        // A lost answer that happened, as only a move that could not be made shows.
        vec![(0, 1, Create(0, 1), Done(1)), (2, 3, Create(1, 2), Lost), (4, 5, Move(1, 0), Taken(1))],
        // Another name does not matter.
        vec![(0, 1, Create(0, 1), Done(1)), (2, 3, Create(5, 2), Done(2)), (4, 5, Read(5), Value(Some(2)))],
    ] {
        assert!(check(&history(&good), STEPS_MAX).is_ok(), "{good:?}");
    }
}

#[test]
fn what_is_not_in_order_is_found() {
    for bad in [
        // Two winners.
        vec![(0, 9, Create(0, 1), Done(1)), (1, 8, Create(0, 2), Done(2))],
        // An answered create is not there.
        vec![(0, 1, Create(0, 1), Done(1)), (2, 3, Read(0), Value(None))],
        // Read before it was requested.
        vec![(0, 1, Read(0), Value(Some(1))), (2, 3, Create(0, 1), Done(1))],
        // Seen, then not, though nothing removed it.
        vec![(0, 9, Create(0, 1), Done(1)), (1, 2, Read(0), Value(Some(1))), (3, 4, Read(0), Value(None))],
        // A move that left it at both names; one that left it at none.
        vec![(0, 1, Create(0, 1), Done(1)), (2, 3, Move(0, 1), Done(1)), (4, 5, Read(0), Value(Some(1)))],
        vec![(0, 1, Create(0, 1), Done(1)), (2, 3, Move(0, 1), Done(1)), (4, 5, Read(1), Value(None))],
        // Removed twice.
        vec![(0, 1, Create(0, 1), Done(1)), (2, 9, Remove(0), Done(1)), (3, 8, Remove(0), Done(1))],
        // Refused, and no file has it.
        vec![(0, 1, Create(0, 1), Taken(2))],
        // A lost answer that happened twice.
        vec![(0, 1, Create(0, 1), Lost), (2, 3, Remove(0), Done(1)), (4, 5, Read(0), Value(Some(1)))],
        // A lost answer that happened, and then had not.
        vec![(0, 1, Create(0, 1), Lost), (2, 3, Read(0), Value(Some(1))), (4, 5, Read(0), Value(None))],
    ] {
        let verdict = check(&history(&bad), STEPS_MAX);
        assert!(matches!(verdict, Err(NotExplained::NoOrder(_))), "{verdict:?} of {bad:?}");
    }
}

/// Goal: a search that is given up says neither that there is an order, nor that there is none.
#[test]
fn a_search_that_is_given_up_has_not_judged() {
    let good = history(&[(0, 1, Create(0, 1), Done(1)), (2, 3, Read(0), Value(Some(1)))]);
    assert_eq!(check(&good, 2), Ok(2));
    assert!(matches!(check(&good, 1), Err(NotExplained::Undecided(_))));
    // Another group of names without an order is still found.
    let mut bad = good;
    bad.extend(history(&[(4, 5, Read(7), Value(Some(2)))]));
    assert!(matches!(check(&bad, 1), Err(NotExplained::NoOrder(_))));
}

// ---- with the changes ----

/// Events as `(asked, answered, action, seen)`; the events that are changes, with their files, in
/// order.
type WithChanges = (Vec<(u64, u64, Action, Seen)>, Vec<(usize, u32)>);

fn judge((events, changes): &WithChanges) -> Result<(), String> {
    let events = history(events);
    let applied: Vec<Applied> = changes
        .iter()
        .map(|(at, file)| Applied { client: *at, number: 0, action: events[*at].action, file: *file })
        .collect();
    check_with_changes(&events, &applied)
}

#[test]
fn what_the_changes_explain_passes() {
    let good: Vec<WithChanges> = vec![
        (vec![], vec![]),
        (vec![(0, 1, Read(0), Value(None)), (2, 3, Move(0, 1), Nothing)], vec![]),
        (vec![(0, 1, Create(0, 1), Done(1)), (2, 3, Read(0), Value(Some(1)))], vec![(0, 1)]),
        // At once, in either order.
        (vec![(0, 9, Create(0, 1), Done(1)), (1, 8, Remove(0), Done(1))], vec![(0, 1), (1, 1)]),
        (vec![(0, 9, Create(0, 1), Done(1)), (1, 8, Remove(0), Nothing)], vec![(0, 1)]),
        (vec![(0, 9, Create(0, 1), Done(1)), (1, 8, Create(0, 2), Taken(1))], vec![(0, 1)]),
        // It stood there twice, and is read the second time.
        (
            vec![
                (0, 1, Create(0, 1), Done(1)),
                (2, 3, Move(0, 1), Done(1)),
                (4, 5, Read(0), Value(None)),
                (6, 7, Move(1, 0), Done(1)),
                (8, 9, Read(0), Value(Some(1))),
                (10, 11, Create(1, 2), Done(2)),
                (12, 13, Move(0, 1), Taken(2)),
            ],
            vec![(0, 1), (1, 1), (3, 1), (5, 2)],
        ),
        // A lost answer: it happened, it did not, it happened late.
        (vec![(0, 1, Create(0, 1), Lost), (2, 3, Read(0), Value(Some(1)))], vec![(0, 1)]),
        (vec![(0, 1, Create(0, 1), Lost), (2, 3, Read(0), Value(None))], vec![]),
        (vec![(0, 1, Create(0, 1), Lost), (2, 3, Read(0), Value(None))], vec![(0, 1)]),
    ];
    for good in good {
        assert_eq!(judge(&good), Ok(()), "{good:?}");
    }
}

#[test]
fn what_the_changes_do_not_explain_is_found() {
    let bad: Vec<(&str, &str, WithChanges)> = vec![
        ("a lost write", "a change is missing", (vec![(0, 1, Create(0, 1), Done(1))], vec![])),
        (
            "a doubled effect",
            "applied twice",
            (vec![(0, 1, Create(0, 1), Done(1)), (2, 3, Remove(0), Done(1))], vec![(0, 1), (1, 1), (0, 1)]),
        ),
        (
            "a lost answer applied twice",
            "applied twice",
            (vec![(0, 1, Create(0, 1), Lost), (2, 3, Remove(0), Done(1))], vec![(0, 1), (1, 1), (0, 1)]),
        ),
        (
            "a lost answer applied before it was asked",
            "against real time",
            (vec![(0, 1, Remove(0), Done(1)), (2, 3, Create(0, 1), Lost)], vec![(1, 1), (0, 1)]),
        ),
        (
            "a refusal applied",
            "applied was",
            (vec![(0, 1, Create(0, 1), Done(1)), (2, 3, Remove(0), Nothing)], vec![(0, 1), (1, 1)]),
        ),
        ("another file than answered", "applied was", (vec![(0, 1, Create(0, 1), Done(1))], vec![(0, 2)])),
        (
            "two winners",
            "not possible",
            (vec![(0, 9, Create(0, 1), Done(1)), (1, 8, Create(0, 2), Done(2))], vec![(0, 1), (1, 2)]),
        ),
        (
            "an order against real time",
            "against real time",
            (vec![(0, 1, Create(0, 1), Done(1)), (2, 3, Create(1, 2), Done(2))], vec![(1, 2), (0, 1)]),
        ),
        (
            "a stale read",
            "nowhere",
            (vec![(0, 1, Create(0, 1), Done(1)), (2, 3, Read(0), Value(None))], vec![(0, 1)]),
        ),
        (
            "a read of what was not asked for yet",
            "nowhere",
            (vec![(0, 1, Read(0), Value(Some(1))), (2, 3, Create(0, 1), Done(1))], vec![(1, 1)]),
        ),
        (
            "a read that goes back behind another",
            "nowhere",
            (
                vec![
                    (0, 9, Create(0, 1), Done(1)),
                    (1, 2, Read(0), Value(Some(1))),
                    (3, 4, Read(0), Value(None)),
                ],
                vec![(0, 1)],
            ),
        ),
        (
            "a read that goes back behind another, of another name",
            "nowhere",
            (
                vec![
                    (0, 9, Create(0, 1), Done(1)),
                    (0, 9, Create(1, 2), Done(2)),
                    (1, 2, Read(1), Value(Some(2))),
                    (3, 4, Read(0), Value(None)),
                ],
                vec![(0, 1), (1, 2)],
            ),
        ),
        ("a refusal by what never was there", "nowhere", (vec![(0, 1, Create(0, 1), Taken(2))], vec![])),
        (
            "a move refused by a file that came when the other was gone",
            "nowhere",
            (
                vec![
                    (0, 1, Create(0, 1), Done(1)),
                    (2, 3, Remove(0), Done(1)),
                    (4, 5, Create(1, 2), Done(2)),
                    (0, 9, Move(0, 1), Taken(2)),
                ],
                vec![(0, 1), (1, 1), (2, 2)],
            ),
        ),
    ];
    for (what, why, bad) in bad {
        let found = judge(&bad).expect_err(what);
        assert!(found.contains(why), "{what}: {found}");
    }
}

// ---- real histories ----

async fn real(ask_again: bool) -> (Vec<Event>, Vec<Applied>) {
    let plan = Clients { seed: 5, clients: 6, actions: 60, names: 3, moves: true, ask_again };
    let store = Arc::new(MemoryStore::new(TestClock::new().shared()));
    record(Arc::new(LostAnswers::of(store, 5, if ask_again { 0 } else { 20 })), plan).await
}

/// Goal: a real history passes; with one fault (a value nobody wrote, a file removed twice) it does
/// not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_false_note_in_a_real_history_is_found() {
    let (events, applied) = real(true).await;
    assert!(check(&events, STEPS_MAX).is_ok());
    assert_eq!(check_with_changes(&events, &applied), Ok(()));
    let no_order = |events: &[Event]| matches!(check(events, STEPS_MAX), Err(NotExplained::NoOrder(_)));
    let reads: Vec<usize> =
        (0..events.len()).filter(|at| matches!(events[*at].seen, Value(Some(_)))).collect();
    assert!(reads.len() > 10, "the history has something in it");
    for at in reads {
        let mut false_note = events.clone();
        false_note[at].seen = Value(Some(u32::MAX));
        assert!(no_order(&false_note), "event {at}: {:?}", false_note[at]);
        assert!(check_with_changes(&false_note, &applied).is_err(), "event {at}: {:?}", false_note[at]);
    }
    // A file is removed once, and made once.
    let done: Vec<usize> = (0..events.len())
        .filter(|at| matches!((events[*at].action, events[*at].seen), (Remove(_), Done(_))))
        .collect();
    for at in done {
        let again =
            Event { client: 99, number: 0, asked: events[at].answered, answered: u64::MAX - 1, ..events[at] };
        let mut twice = events.clone();
        twice.push(again);
        assert!(no_order(&twice), "a file is removed once");
        assert!(check_with_changes(&twice, &applied).is_err(), "a file is removed once");
    }
}

/// Goal: each change of a real history with lost answers that is removed, doubled or swapped is
/// found. The exception is a swap that does not show in any answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_false_change_in_a_real_history_is_found() {
    let (events, applied) = real(false).await;
    assert!(events.iter().any(|event| event.seen == Lost));
    assert_eq!(check_with_changes(&events, &applied), Ok(()));
    let mut swapped = 0;
    for at in 0..applied.len() {
        let lost = events.iter().any(|event| {
            (event.client, event.number) == (applied[at].client, applied[at].number) && event.seen == Lost
        });
        let mut missing = applied.clone();
        missing.remove(at);
        // A change whose answer was lost may have left no other trace.
        assert!(lost || check_with_changes(&events, &missing).is_err(), "change {at} is missing");
        for to in [0, at, applied.len()] {
            let mut doubled = applied.clone();
            doubled.insert(to, applied[at]);
            assert!(check_with_changes(&events, &doubled).is_err(), "change {at} is also at {to}");
        }
        let mut turned = applied.clone();
        turned.swap(at, 0);
        swapped += usize::from(check_with_changes(&events, &turned).is_err());
    }
    assert!(swapped * 10 > applied.len() * 9, "{swapped} of {} are found", applied.len());
}
