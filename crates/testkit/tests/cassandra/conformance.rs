//! The conformance suite on a ring.

use exacat_testkit::cassandra::{CassandraFactory, ring};

exacat_testkit::conformance_suite!(ring().map(CassandraFactory::on), if there is one);
