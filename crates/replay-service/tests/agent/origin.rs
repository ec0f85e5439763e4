//! Agent and origin together: both sides of the protocol, and the sums of both.

use std::time::Duration;

use exacat_replay::run::outcome::Outcome;
use exacat_replay::run::shapes::ReplayItem;
use exacat_replay_service::agent::{AgentSettings, ReadMethod};
use exacat_replay_service::origin::{Faults, FilePattern, Origin, OriginFileList, OriginSettings};

use crate::world::{item, result_of, results_of};

const SIZE: u64 = (3 << 20) + 12_345;

async fn origin_with(faults: Faults) -> Origin {
    let mut files = OriginFileList::default();
    files.add_pattern(FilePattern { below: "/any".to_owned(), size: Some(SIZE) }).unwrap();
    let mut settings = OriginSettings::new(([127, 0, 0, 1], 0).into(), files);
    settings.faults = faults;
    Origin::start(settings).await.unwrap()
}

fn url(origin: &Origin) -> String {
    format!("root://{}", origin.address())
}

/// Property: all ways of reading give the bytes of the file, and both sides count the same.
#[tokio::test]
async fn agent_and_origin_count_the_same_bytes() {
    let origin = origin_with(Faults::default()).await;
    let ranged = |number, reads: &str| ReplayItem { reads: reads.to_owned(), ..item(number, "/any/b", SIZE) };
    let mut bytes = 0;
    for method in [ReadMethod::Plain, ReadMethod::Pages] {
        let mut items: Vec<ReplayItem> = (0..20).map(|at| item(at, &format!("/any/{at}"), SIZE)).collect();
        items.extend([
            ranged(20, "5+1000000"),
            ranged(21, "1+9,3000000+145728,0+1"),
            ranged(22, "1000/5000"),
        ]);
        let results = results_of(&url(&origin), items, |settings| settings.cache.method = method).await;
        assert!(results.iter().all(|result| result.outcome == Outcome::Ok), "{results:?}");
        bytes += results.iter().map(|result| result.bytes).sum::<u64>();
    }
    assert_eq!(origin.counters().bytes_out, bytes);
}

/// Property: faults of the origin have their classes at the agent.
#[tokio::test]
async fn faults_of_the_origin_have_their_classes() {
    let named = |name: &str| std::iter::once(name.to_owned()).collect();
    let one = || item(1, "/any/a", SIZE);
    for (faults, outcome) in [
        (Faults { absent: named("/any/a"), ..Faults::default() }, Outcome::NotFound),
        (Faults { failing_opens: 1.0, ..Faults::default() }, Outcome::Server),
        (Faults { failing_reads: 1.0, ..Faults::default() }, Outcome::Server),
        (Faults { wrong: named("/any/a"), ..Faults::default() }, Outcome::Checksum),
        (Faults { open_delay: Duration::from_secs(50), ..Faults::default() }, Outcome::Timeout),
    ] {
        let origin = origin_with(faults).await;
        for is_verified in [false, true] {
            let set = |settings: &mut AgentSettings| {
                settings.cache.verify_content = is_verified;
                if outcome == Outcome::Timeout {
                    settings.access_time.base = Duration::from_millis(200);
                    settings.access_time.bytes_per_second = u64::MAX;
                }
            };
            assert_eq!(result_of(&url(&origin), one(), set).await.outcome, outcome);
        }
    }
}
