//! From a request's facts to its admission, looking at the object only where that matters.

use s3s::S3Result;

use super::action::{Action, Also, On};
use super::admission::{Admission, EXISTING_TAGS, denied};
use super::decision::{Case, Decision, needs_object};
use super::facts::ObjectFacts;
use crate::store::{Error, Store};

/// What a request asks for.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) action: Action,
    pub(super) also: Also,
    pub(super) key: Option<String>,
    pub(super) version: Option<String>,
    /// Id of the multipart upload that it is about.
    pub(super) upload: Option<String>,
}

/// Decides about one request. Blocks.
pub(super) struct Judge<'a> {
    pub(super) store: &'a Store,
    pub(super) admission: &'a mut Admission,
}

impl Judge<'_> {
    /// Decides, and notes in the admission what it rested on.
    ///
    /// # Errors
    /// `AccessDenied`; or why the object is not there, to who may know.
    pub(super) fn settle(&mut self, asked: &Asked) -> S3Result<()> {
        let is_about_object = asked.action.on == On::Object;
        self.admission.hides_absence = is_about_object && !self.may_list(asked)?;
        let mut object = None;
        if needs_object(asked.action, self.admission.account(), self.admission.bucket()?) {
            object = Some(self.object(asked)?);
            if let Some(Ok(object)) = &object {
                self.admission.values.set_tags(EXISTING_TAGS, &object.tags);
            }
        }
        let found = object.as_ref().and_then(|object| object.as_ref().ok());
        let decision = self.decide(asked, asked.action, found)?;
        let allowed =
            decision == Decision::Allow || decision == Decision::Refused && self.is_initiator(asked)?;
        for action in &asked.also.needed {
            if self.decide(asked, *action, found)? != Decision::Allow {
                return Err(denied());
            }
        }
        for action in &asked.also.not_denied {
            if self.decide(asked, *action, found)? == Decision::Denied {
                return Err(denied());
            }
        }
        if !allowed {
            if decision == Decision::Denied || !is_about_object || self.admission.hides_absence {
                return Err(denied());
            }
            // Who may list the bucket is told that there is no such object, also without a right to it.
            object = Some(match object {
                Some(object) => object,
                None => self.object(asked)?,
            });
        }
        match object {
            Some(Err(error)) if !self.admission.hides_absence => Err(error.into()),
            Some(Err(_)) => Err(denied()),
            _ if !allowed => Err(denied()),
            Some(Ok(object)) => {
                self.admission.judged = Some((asked.action, object));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Decides about the tags of an object that a copy takes along: none need no right.
    ///
    /// # Errors
    /// `AccessDenied` when there are some and the caller may not read them.
    pub(super) fn settle_tags(&mut self, asked: &Asked) -> S3Result<()> {
        let action = Action::get_object_tagging(asked.version.is_some());
        let found = self.admission.judged.as_ref().map(|(_, object)| object);
        if self.decide(asked, action, found)? == Decision::Allow {
            return Ok(());
        }
        match self.object(asked)? {
            Ok(object) if !object.tags.is_empty() => Err(denied()),
            _ => Ok(()),
        }
    }

    fn decide(&self, asked: &Asked, action: Action, object: Option<&ObjectFacts>) -> S3Result<Decision> {
        let admission = &*self.admission;
        let case = Case {
            account: admission.account(),
            bucket: admission.bucket()?,
            key: asked.key.as_deref(),
            object,
            values: &admission.values,
        };
        Ok(case.decide(action))
    }

    /// Whether the caller may know which keys (or versions) like this one there are.
    fn may_list(&self, asked: &Asked) -> S3Result<bool> {
        let admission = &*self.admission;
        let mut values = admission.values.clone();
        if let Some(key) = &asked.key {
            values.set("s3:prefix", key);
        }
        let (account, bucket) = (admission.account(), admission.bucket()?);
        let case = Case { account, bucket, key: None, object: None, values: &values };
        let action = if asked.version.is_some() { Action::LIST_VERSIONS } else { Action::LIST_BUCKET };
        Ok(case.decide(action) == Decision::Allow)
    }

    /// The object asked about, or why there is none.
    fn object(&self, asked: &Asked) -> S3Result<Result<ObjectFacts, Error>> {
        let key = asked.key.as_deref().unwrap_or_default();
        let bucket = self.admission.bucket()?;
        match self.store.head_object(&bucket.name, key, asked.version.as_deref()) {
            Ok(info) => Ok(Ok(ObjectFacts::of(bucket, &info)?)),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Whether the caller started the upload that is to be looked at or aborted, who may do both.
    fn is_initiator(&self, asked: &Asked) -> S3Result<bool> {
        let (Some(caller), Some(upload), Some(key)) = (self.admission.caller(), &asked.upload, &asked.key)
        else {
            return Ok(false);
        };
        if !matches!(asked.action.name, "s3:AbortMultipartUpload" | "s3:ListMultipartUploadParts") {
            return Ok(false);
        }
        let claims = self.store.upload_claims(&self.admission.bucket()?.name, key, upload);
        Ok(claims.is_ok_and(|claims| claims.initiator.as_deref() == Some(caller)))
    }
}
