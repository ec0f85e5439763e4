//! Times of a waiting request in the steps of its commit.

use std::time::{Duration, Instant};

use exacat_activity::RequestState;

/// Times of the steps. The rest of a request's wait is in the queue of its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    /// For another server, which carries the request out or has its turn to append.
    pub peer: Duration,
    /// Deciding its group on cached rows.
    pub decide: Duration,
    /// Reading rows and the end of the log.
    pub read: Duration,
    /// For the tables, which lag behind the log.
    pub tables: Duration,
    /// Appending its group to the log.
    pub append: Duration,
}

impl Spent {
    /// Adds the times of a group that the request was in.
    pub(crate) fn add(&mut self, group: &Spent) {
        self.peer += group.peer;
        self.decide += group.decide;
        self.read += group.read;
        self.tables += group.tables;
        self.append += group.append;
    }

    /// Returns the states that the wait of a request is divided into.
    pub(crate) fn parts(&self) -> [(RequestState, Duration); 5] {
        [
            (RequestState::ClusterPeer, self.peer),
            (RequestState::Decide, self.decide),
            (RequestState::ClusterRead, self.read),
            (RequestState::Backpressure, self.tables),
            (RequestState::ClusterAppend, self.append),
        ]
    }
}

/// Adds the time of a step.
pub(crate) async fn timed<T>(spent: &mut Duration, step: impl Future<Output = T>) -> T {
    let began = Instant::now();
    let done = step.await;
    *spent += began.elapsed();
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use exacat_activity::Activity;

    /// A request has the times of each group that it was in. Its wait is divided into them, the rest is in
    /// the queue, and the sum stays.
    #[test]
    fn wait_is_divided_into_the_steps() {
        let ms = Duration::from_millis;
        let group = Spent { peer: ms(1), decide: ms(2), read: ms(3), tables: ms(4), append: ms(5) };
        let mut spent = Spent { peer: ms(10), ..Spent::default() };
        spent.add(&group);
        spent.add(&group);
        let (activity, start) = (Activity::default(), Instant::now());
        use RequestState::{Backpressure, ClusterAppend, ClusterPeer, ClusterRead, CommitQueue, Decide};
        activity.begin(CommitQueue, start);
        activity.enter_at(RequestState::Execute, start + ms(50));
        activity.split(CommitQueue, &spent.parts());
        let (times, life) = activity.end(start + ms(50));
        assert_eq!(times.iter().sum::<u64>(), life);
        let ms = |state| times[state as usize] / 1_000_000;
        let states = [CommitQueue, ClusterPeer, Decide, ClusterRead, Backpressure, ClusterAppend];
        assert_eq!(states.map(ms), [10, 12, 4, 6, 8, 10]);
    }
}
