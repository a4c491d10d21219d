//! What every service's OpenAPI description says besides its own routes: who it is, and what an error looks like.

use utoipa::openapi::path::Operation;
use utoipa::openapi::{ContentBuilder, InfoBuilder, OpenApi, Ref, ResponseBuilder};
use utoipa::{PartialSchema as _, ToSchema as _};

use crate::problem::{FieldError, ProblemBody};

pub(super) fn complete(name: &str, mut description: OpenApi) -> OpenApi {
    description.info = InfoBuilder::new().title(name).version(env!("CARGO_PKG_VERSION")).build();
    let schemas = &mut description.components.get_or_insert_default().schemas;
    schemas.insert(ProblemBody::name().into_owned(), ProblemBody::schema());
    schemas.insert(FieldError::name().into_owned(), FieldError::schema());
    for item in description.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch];
        operations.into_iter().flatten().for_each(add_problem);
    }
    description
}

fn add_problem(operation: &mut Operation) {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(ProblemBody::name()))).build();
    let problem = ResponseBuilder::new()
        .description("An error: its code is for programs, its detail for people")
        .content("application/problem+json", content)
        .build();
    operation.responses.responses.entry("default".to_owned()).or_insert_with(|| problem.into());
}
