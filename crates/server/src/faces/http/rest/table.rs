//! All endpoints, in one list.

use super::element_endpoints::element_endpoints;
use super::endpoints::{Endpoint, catalogue_endpoints};
use super::feed_endpoints::feed_endpoints;

/// Returns all endpoints.
pub(super) fn endpoints() -> Vec<Endpoint> {
    let mut all = catalogue_endpoints();
    all.extend(element_endpoints());
    all.extend(feed_endpoints());
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::openapi::{body_example, path_text};
    use exacat_model::{Lfn, Operation};

    use super::super::arguments::Arguments;
    use super::super::endpoints::Run;
    use super::super::streams::Bulk;
    use super::super::variables;
    use super::*;

    fn operations(endpoint: &Endpoint) -> Vec<&'static str> {
        let (mut lfn, mut text) = (None, None);
        for name in variables(endpoint.path) {
            let example = path_text(endpoint, name).2;
            match name {
                "lfn" => lfn = Some(Lfn::parse(&format!("/{example}")).unwrap()),
                _ => text = Some(example.to_owned()),
            }
        }
        let mut arguments = Arguments::new(endpoint.name, lfn, text, "", |_| true).unwrap();
        let mut schemas = std::collections::BTreeMap::new();
        let named = endpoint.body.map(|(body, _)| body(&mut schemas));
        if let Some(name) = named {
            arguments.body = body_example(endpoint, &schemas, &name).unwrap().to_string().into();
        }
        match &endpoint.run {
            Run::Operation(make) => {
                let mut names = vec![make(&arguments).unwrap().name()];
                if endpoint.name == "restoreTrash" {
                    arguments.body = "{\"lfn\": \"/a\"}".into();
                    names.push(make(&arguments).unwrap().name());
                }
                names
            }
            Run::Find => vec!["find"],
            Run::Changes => vec!["changes"],
            Run::Lines(lines) => vec![Bulk::new(*lines, &arguments).unwrap().name()],
            Run::NewId | Run::Document => Vec::new(),
        }
    }

    #[test]
    fn every_operation_of_the_catalogue_is_reachable() {
        let reachable: BTreeSet<&str> = endpoints().iter().flat_map(operations).collect();
        assert_eq!(reachable, Operation::NAMES.into_iter().collect());
    }
}
