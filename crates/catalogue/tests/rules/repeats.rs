//! Every operation that changes something is asked again under the same operation id: it gets the same answer, and
//! nothing changes a second time. So a lost answer costs nothing.

use crate::fixture::Fixture;
use crate::operations::{Target, World, operation, outcome};
use exacat_model::{Answer, Operation};

const TARGET: Target = Target { directory_mode: 0o755, file_mode: 0o644 };

/// Who may do it.
fn caller<'a>(world: &'a World, name: &str) -> &'a exacat_catalogue::Caller {
    match name {
        "se-set" | "se-drop" | "se-deleted" | "user-set" | "user-drop" | "group-add" | "group-drop"
        | "quota-set" => &world.fixture.admin,
        _ => &world.fixture.alice,
    }
}

#[tokio::test]
async fn every_write_asked_twice_is_done_once() {
    let mut writes = 0;
    for name in Operation::NAMES {
        let world = World::new(Fixture::new().await, TARGET).await;
        let asked = operation(&world, name);
        // The reference store keeps no snapshots; the embedded one's tests do these.
        if !asked.writes() || name.starts_with("snapshot-") || *name == *"backup" {
            continue;
        }
        writes += 1;
        let f = &world.fixture;
        let who = caller(&world, name);
        let id = f.operation_id();
        let first = f.catalogue.execute(who, id, asked.clone()).await;
        assert!(outcome(&first).starts_with("ok"), "{name}: {first:?}");
        let revision = f.catalogue.store().revision().await.unwrap();
        for _ in 0..3 {
            let again = f.catalogue.execute(who, id, asked.clone()).await;
            match (&first, &again) {
                // The secret is kept nowhere, so it cannot be given again: another takes its place.
                (
                    Ok(Answer::TokenIssued { token, secret }),
                    Ok(Answer::TokenIssued { token: same, secret: other }),
                ) => {
                    assert_eq!(token, same);
                    assert_ne!(secret, other);
                    assert!(f.catalogue.authenticate(secret).await.is_err());
                    assert!(f.catalogue.authenticate(other).await.is_ok());
                    continue;
                }
                // How many entries ended is told once; that the purge is through, each time.
                (Ok(Answer::Purged { .. }), Ok(Answer::Purged { entries: 0, next: None })) => {}
                (Ok(Answer::CollectionEdited { .. }), Ok(Answer::CollectionEdited { refused, .. })) => {
                    assert!(refused.is_empty(), "{name}: {refused:?}");
                }
                _ => assert_eq!(first, again, "{name}"),
            }
            assert_eq!(
                f.catalogue.store().revision().await.unwrap(),
                revision,
                "{name} changed something again"
            );
        }
        f.audit().await;
    }
    assert!(writes > 20, "{writes}");
}

/// The same after others have changed the world in between: an answer that was given stays what it was.
#[tokio::test]
async fn a_repeat_gets_its_answer_whatever_happened_since() {
    let world = World::new(Fixture::new().await, TARGET).await;
    let f = &world.fixture;
    for name in ["register", "mkdir", "link", "collection-create"] {
        let asked = operation(&world, name);
        let id = f.operation_id();
        let first = f.catalogue.execute(&f.alice, id, asked.clone()).await;
        assert_eq!(outcome(&first), "ok", "{name}");
        f.remove(&f.alice, "/place/here/new").await.unwrap();
        let again = f.catalogue.execute(&f.alice, id, asked).await;
        assert_eq!(first, again, "{name}");
        assert!(!f.is_there("/place/here/new").await, "{name} was done twice");
    }
    f.audit().await;
}
