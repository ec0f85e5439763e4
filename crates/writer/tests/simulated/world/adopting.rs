//! Adoption in the simulated world: the first service is lost, and the second one takes its volumes.

use exacat_wire::writer::ServiceId;

use super::{FAULTS_END, Node, World};

/// Time between the end of a service and the adoption of its volumes.
const ADOPTION_AFTER: u64 = 3_000;

impl World {
    /// Gives the volumes of the lost service to another one, once it is time.
    pub(super) fn adopt(&mut self) {
        if self.plan.adopts && self.now == FAULTS_END + ADOPTION_AFTER {
            let lost = self.nodes[0].disk.clone();
            self.kill(1, false);
            self.nodes[1].starts_at = self.now;
            self.nodes[1].adopted.push(lost);
        }
    }

    /// Says whether no adoption is to come.
    pub(super) fn is_adopted(&self) -> bool {
        !self.plan.adopts || self.nodes[1].adopted.len() == 1
    }

    /// Returns the node that has the volumes of a service.
    pub(super) fn home_of(&self, service: ServiceId) -> &Node {
        let node = self.nodes.iter().find(|node| node.id == service).unwrap();
        if node.starts_at == u64::MAX { &self.nodes[1] } else { node }
    }
}
