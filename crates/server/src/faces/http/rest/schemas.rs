//! Schemas of the types of bodies and answers.

use std::collections::BTreeMap;

use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema as AnySchema};

/// Schemas by name.
pub(super) type Schemas = BTreeMap<String, RefOr<AnySchema>>;
/// Adds the schemas of a type, and returns its name.
pub(super) type Schema = fn(&mut Schemas) -> String;

/// Adds the schemas of `T`.
pub(super) fn schema<T: ToSchema>(schemas: &mut Schemas) -> String {
    let name = T::name().into_owned();
    if !schemas.contains_key(&name) {
        schemas.insert(name.clone(), T::schema());
        let mut nested = Vec::new();
        T::schemas(&mut nested);
        schemas.extend(nested);
    }
    name
}
