//! The conformance suite on the embedded store.

use exacat_testkit::EmbeddedFactory;

exacat_testkit::conformance_suite!(EmbeddedFactory::LARGE);
