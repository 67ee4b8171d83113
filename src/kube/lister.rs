//! Lists of a whole cluster or a part of it, page by page, for who reads once and keeps nothing of a page but what it needs.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::api::ListParams;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::guard::GuardedPod;
use super::pod::PodObject;
use super::reader::{MOST, Reader, undecodable};
use crate::domain::Read;

/// Objects of one page: a page of ordinary pods has some 5 MB.
const PAGE: u32 = 500;

/// What is listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListScope {
    /// One namespace; `None`: all of them.
    pub namespace: Option<String>,
    /// A field selector; empty: none.
    pub fields: String,
    /// A label selector; empty: none.
    pub labels: String,
}

/// A pod that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MalformedPod {
    /// Its namespace, where it has one.
    pub namespace: Option<String>,
    /// Its name, where it has one.
    pub name: Option<String>,
    /// What is wrong with it.
    pub why: String,
}

impl ListScope {
    fn what(&self, plural: &str) -> String {
        let mut what = format!("LIST {plural}");
        if let Some(namespace) = &self.namespace {
            what.extend([" in ", namespace]);
        }
        for selector in [&self.fields, &self.labels].into_iter().filter(|selector| !selector.is_empty()) {
            what.extend([" ", selector]);
        }
        what
    }
}

impl Reader {
    /// All objects of a scope, one by one. What was given out before a failure is not all there is.
    pub async fn list<K>(&self, scope: &ListScope, mut each: impl FnMut(K)) -> Read<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    {
        let what = scope.what(&K::plural(&()));
        let api: Api<K> = match &scope.namespace {
            Some(namespace) => Api::namespaced(self.client(), namespace),
            None => Api::all(self.client()),
        };
        let mut params = ListParams::default().fields(&scope.fields).labels(&scope.labels).limit(PAGE);
        let mut read = 0;
        loop {
            let list = self.bounded(&what, api.list(&params)).await?;
            read += list.items.len();
            list.items.into_iter().for_each(&mut each);
            if read > MOST {
                return Err(undecodable(&what, "too many objects"));
            }
            match list.metadata.continue_ {
                Some(token) if !token.is_empty() => params = params.continue_token(&token),
                _ => return Ok(()),
            }
        }
    }

    /// All pods of a scope, also those that cannot be decoded: one of them must not hide the others.
    pub async fn list_pods(
        &self,
        scope: &ListScope,
        mut each: impl FnMut(Result<PodObject, MalformedPod>),
    ) -> Read<()> {
        self.list(scope, |pod: GuardedPod| {
            let meta = pod.meta();
            let (namespace, name) = (meta.namespace.clone(), meta.name.clone());
            each(pod.into_pod().map_err(|why| MalformedPod { namespace, name, why }));
        })
        .await
    }
}
