//! Routing of statements: as the driver does, but around unresponsive nodes, and when to try
//! another node as well.
//!
//! A node that is paused, or whose disk hangs, keeps its connections. The driver goes on choosing
//! it, and each statement waits until it is sent elsewhere as well. So a node that has a statement
//! and answered nothing for a while is asked last until it answers. A read tries it now and then.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use scylla::cluster::{ClusterState, NodeRef};
use scylla::errors::RequestAttemptError;
use scylla::policies::load_balancing::{FallbackPlan, LoadBalancingPolicy, RoutingInfo};
use scylla::policies::speculative_execution::{Context, SpeculativeExecutionPolicy};
use scylla::routing::Shard;

use crate::limits::{ELSEWHERE_MAX, ELSEWHERE_TIMES};
use crate::nodes::Nodes;

/// The driver's policy, with the statistics of nodes.
#[derive(Debug)]
pub(crate) struct AroundUnresponsive {
    inner: Arc<dyn LoadBalancingPolicy>,
    nodes: Arc<Nodes>,
    /// True if a statement may try a node that seems unresponsive.
    tries: bool,
}

impl AroundUnresponsive {
    pub(crate) fn new(inner: Arc<dyn LoadBalancingPolicy>, nodes: Arc<Nodes>, tries: bool) -> Arc<Self> {
        Arc::new(AroundUnresponsive { inner, nodes, tries })
    }

    fn is_avoided(&self, address: SocketAddr) -> bool {
        if self.tries { self.nodes.to_be_avoided(address) } else { self.nodes.is_unresponsive(address) }
    }
}

/// Delay before a statement is sent to another node as well: a few times the usual response time,
/// within bounds.
#[derive(Debug)]
pub(crate) struct Patience {
    pub nodes: Arc<Nodes>,
    pub least: Duration,
    pub most: Duration,
}

impl SpeculativeExecutionPolicy for Patience {
    fn max_retry_count(&self, _: &Context) -> usize {
        ELSEWHERE_MAX
    }

    fn retry_interval(&self, _: &Context) -> Duration {
        self.interval()
    }
}

impl Patience {
    fn interval(&self) -> Duration {
        let usual = self.nodes.usual().map_or(self.most, |usual| usual.saturating_mul(ELSEWHERE_TIMES));
        usual.clamp(self.least, self.most)
    }
}

fn address(node: NodeRef<'_>) -> SocketAddr {
    SocketAddr::new(node.address.ip(), node.address.port())
}

impl LoadBalancingPolicy for AroundUnresponsive {
    fn pick<'a>(
        &'a self,
        request: &'a RoutingInfo<'_>,
        cluster: &'a ClusterState,
    ) -> Option<(NodeRef<'a>, Option<Shard>)> {
        let first = self.inner.pick(request, cluster)?;
        if !self.is_avoided(address(first.0)) {
            return Some(first);
        }
        let mut others = self.inner.fallback(request, cluster);
        let other = others.find(|(node, _)| !self.nodes.is_unresponsive(address(node)));
        other.or(Some(first))
    }

    fn fallback<'a>(&'a self, request: &'a RoutingInfo<'_>, cluster: &'a ClusterState) -> FallbackPlan<'a> {
        let (unresponsive, others): (Vec<_>, Vec<_>) = self
            .inner
            .fallback(request, cluster)
            .partition(|(node, _)| self.nodes.is_unresponsive(address(node)));
        Box::new(others.into_iter().chain(unresponsive))
    }

    fn on_request_success(&self, request: &RoutingInfo<'_>, latency: Duration, node: NodeRef<'_>) {
        self.inner.on_request_success(request, latency, node);
    }

    fn on_request_failure(
        &self,
        request: &RoutingInfo<'_>,
        latency: Duration,
        node: NodeRef<'_>,
        error: &RequestAttemptError,
    ) {
        self.inner.on_request_failure(request, latency, node, error);
    }

    fn name(&self) -> String {
        format!("{}, around unresponsive nodes", self.inner.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_bounded() {
        let (least, most) = (Duration::from_millis(50), Duration::from_millis(400));
        let nodes: Arc<Nodes> = Arc::default();
        let patience = Patience { nodes: nodes.clone(), least, most };
        assert_eq!(patience.interval(), most, "nothing is known yet");
        nodes.seem(Duration::from_millis(1));
        assert_eq!(patience.interval(), least);
        nodes.seem(Duration::from_millis(30));
        assert_eq!(patience.interval(), Duration::from_millis(30) * ELSEWHERE_TIMES);
        nodes.seem(Duration::from_secs(3));
        assert_eq!(patience.interval(), most);
    }
}
