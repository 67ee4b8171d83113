//! `metav1.Status`: what the API server answers when a request fails, in its own words.
//!
//! The wordings are those of `k8s.io/apimachinery/pkg/api/errors` 0.36. Must not know: the store, HTTP.

use serde_json::{Value, json};

use super::resource::Resource;

/// A failure as the API server reports it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{code} {reason}: {message}")]
pub struct Status {
    /// The HTTP status code.
    pub code: u16,
    /// `reason`, for example `NotFound`.
    pub reason: String,
    /// `message`.
    pub message: String,
    /// `details`, if any.
    pub details: Option<Value>,
    /// `metadata.continue`, for an expired list that may be continued inconsistently.
    pub continue_token: Option<String>,
}

impl Status {
    /// A status with a code, a reason and a message.
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self { code, reason: reason.to_owned(), message: message.into(), details: None, continue_token: None }
    }

    fn about(mut self, resource: &Resource, name: &str) -> Self {
        let mut details = json!({"kind": resource.plural});
        if !resource.group.is_empty() {
            details["group"] = resource.group.into();
        }
        if !name.is_empty() {
            details["name"] = name.into();
        }
        self.details = Some(details);
        self
    }

    /// 404 for an object.
    pub(crate) fn not_found(resource: &Resource, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", resource.qualified()))
            .about(resource, name)
    }

    /// 409 for a name that is taken.
    pub(crate) fn already_exists(resource: &Resource, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} \"{name}\" already exists", resource.qualified()))
            .about(resource, name)
    }

    /// 409 for a write against another version of the object.
    pub(crate) fn modified(resource: &Resource, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {} \"{name}\": {why}", resource.qualified()),
        )
        .about(resource, name)
    }

    /// 409 for a precondition of a delete; the API server names the kind here, not the resource.
    pub(crate) fn precondition(resource: &Resource, name: &str, why: &str) -> Self {
        let qualified = if resource.group.is_empty() {
            resource.kind.to_owned()
        } else {
            format!("{}.{}", resource.kind, resource.group)
        };
        let mut status = Self::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {qualified} \"{name}\": {why}"),
        );
        let mut details = json!({"kind": resource.kind, "name": name});
        if !resource.group.is_empty() {
            details["group"] = resource.group.into();
        }
        status.details = Some(details);
        status
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403 with the resource's name and the rest of the sentence.
    pub(crate) fn forbidden(resource: Option<&Resource>, name: &str, why: &str) -> Self {
        match resource {
            None => {
                Self { details: Some(json!({})), ..Self::new(403, "Forbidden", format!("forbidden: {why}")) }
            }
            Some(resource) if name.is_empty() => {
                Self::new(403, "Forbidden", format!("{} is forbidden: {why}", resource.qualified()))
                    .about(resource, name)
            }
            Some(resource) => Self::new(
                403,
                "Forbidden",
                format!("{} \"{name}\" is forbidden: {why}", resource.qualified()),
            )
            .about(resource, name),
        }
    }

    /// The same with a cause in its details, as a denial by admission policy has one.
    pub(crate) fn with_cause(mut self, message: &str) -> Self {
        if let Some(details) = &mut self.details {
            details["causes"] = json!([{"message": message}]);
        }
        self
    }

    /// 405.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        Self {
            details: Some(json!({})),
            ..Self::new(
                405,
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
            )
        }
    }

    /// 410 for a resource version or continue token whose history is gone.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 415 of the server's own resources.
    pub(crate) fn unsupported_media_type() -> Self {
        Self {
            details: Some(json!({})),
            ..Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type")
        }
    }

    /// 415 of custom resources.
    pub(crate) fn unknown_format() -> Self {
        let why = "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
        Self::new(415, "UnsupportedMediaType", why)
    }

    /// 504 for a resource version of the future.
    pub(crate) fn too_large_version(wanted: u64, current: u64) -> Self {
        let causes = json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]);
        let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
        let details = json!({"causes": causes, "retryAfterSeconds": 1});
        Self { details: Some(details), ..Self::new(504, "Timeout", message) }
    }

    /// 422 for a custom resource that is written without its version; it is named by its plural here.
    pub(crate) fn version_required(resource: &Resource, name: &str) -> Self {
        let field = "metadata.resourceVersion";
        let body = "Invalid value: 0: must be specified for an update";
        let mut status = Self::invalid(resource, name, field, "FieldValueInvalid", body);
        status.message = format!("{} \"{name}\" is invalid: {field}: {body}", resource.qualified());
        if let Some(details) = &mut status.details {
            details["kind"] = resource.plural.into();
        }
        status
    }

    /// 409 for a write that names another UID.
    pub(crate) fn other_uid(resource: &Resource, key: &str, name: &str, wanted: &str, present: &str) -> Self {
        let group = if resource.group.is_empty() { String::new() } else { format!("{}/", resource.group) };
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{group}{}/{key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object meta: {present}",
            resource.plural
        );
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", resource.qualified());
        Self::new(409, "Conflict", message).about(resource, name)
    }

    /// 404 where a group is served and the resource is not.
    pub(crate) fn no_resource() -> Self {
        Self {
            details: Some(json!({})),
            ..Self::new(404, "NotFound", "the server could not find the requested resource")
        }
    }

    /// 422 for one field.
    pub(crate) fn invalid(resource: &Resource, name: &str, field: &str, cause: &str, body: &str) -> Self {
        let kind = if resource.is_custom() { resource.plural } else { resource.kind };
        let qualified =
            if resource.group.is_empty() { kind.to_owned() } else { format!("{kind}.{}", resource.group) };
        let message = format!("{qualified} \"{name}\" is invalid: {field}: {body}");
        let mut details =
            json!({"kind": kind, "causes": [{"reason": cause, "message": body, "field": field}]});
        if !resource.group.is_empty() {
            details["group"] = resource.group.into();
        }
        if !name.is_empty() {
            details["name"] = name.into();
        }
        Self { details: Some(details), ..Self::new(422, "Invalid", message) }
    }

    /// 422 for a field that never changes; the server names it twice.
    pub(crate) fn immutable(resource: &Resource, name: &str, field: &str, value: &str) -> Self {
        let body = format!("Invalid value: \"{value}\": field is immutable");
        let mut status = Self::invalid(resource, name, field, "FieldValueInvalid", &body);
        if let Some(causes) = status.details.as_mut().and_then(|d| d["causes"].as_array_mut()) {
            causes.extend(causes.first().cloned());
        }
        status
    }

    /// 422 for list options.
    pub(crate) fn invalid_list_options(field: &str, body: &str) -> Self {
        let message = format!("ListOptions.meta.k8s.io \"\" is invalid: {field}: {body}");
        let cause = json!({"reason": "FieldValueForbidden", "message": body, "field": field});
        let details = json!({"group": "meta.k8s.io", "kind": "ListOptions", "causes": [cause]});
        Self { details: Some(details), ..Self::new(422, "Invalid", message) }
    }

    /// The usual status for a code that a fault asks for.
    #[must_use]
    pub fn for_code(code: u16) -> Self {
        match code {
            400 => Self::bad_request("the server rejected our request for an unknown reason"),
            401 => Self::unauthorized(),
            403 => {
                Self::new(403, "Forbidden", "forbidden: User \"system:anonymous\" cannot access this path")
            }
            404 => Self::new(404, "NotFound", "the server could not find the requested resource"),
            409 => Self::new(409, "Conflict", "the server reported a conflict"),
            410 => Self::expired("The resourceVersion for the provided list is too old."),
            429 => Self {
                details: Some(json!({"retryAfterSeconds": 1})),
                ..Self::new(429, "TooManyRequests", "Too many requests, please try again later.")
            },
            500 => Self {
                details: Some(json!({"causes": [{"message": "etcdserver: request timed out"}]})),
                ..Self::new(500, "InternalError", "Internal error occurred: etcdserver: request timed out")
            },
            503 => {
                Self::new(503, "ServiceUnavailable", "the server is currently unable to handle the request")
            }
            504 => Self {
                details: Some(json!({})),
                ..Self::new(504, "Timeout", "Timeout: request did not complete within the allotted timeout")
            },
            other => Self::new(
                other,
                "",
                format!(
                    "the server responded with the status code {other} but did not return more information"
                ),
            ),
        }
    }

    /// The object on the wire.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut metadata = json!({});
        if let Some(token) = &self.continue_token {
            metadata["continue"] = token.as_str().into();
        }
        let mut value = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata,
            "status": "Failure", "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            value["reason"] = self.reason.as_str().into();
        }
        if let Some(details) = &self.details {
            value["details"] = details.clone();
        }
        value
    }
}

/// The success that a delete answers where the API server does not return the object.
pub(crate) fn deleted(resource: &Resource, name: &str, uid: &str) -> Value {
    let mut details = json!({"name": name, "kind": resource.plural, "uid": uid});
    if !resource.group.is_empty() {
        details["group"] = resource.group.into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
