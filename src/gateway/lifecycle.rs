//! Lifecycle rules: what a bucket may ask for, and when a rule makes something due.
//!
//! Objects expire, older versions and lone delete markers go, uploads that nobody completes are
//! aborted. There is one storage class, so that transitions are refused. Rules are applied by
//! [`sweep`], at the interval that the gateway is started with.
//!
//! <https://docs.aws.amazon.com/AmazonS3/latest/userguide/intro-lifecycle-rules.html>

mod check;
pub(crate) mod sweep;

use std::time::SystemTime;

use s3s::dto::{LifecycleRule, Tag};
use time::{Duration, OffsetDateTime, Time};

pub(crate) use check::checked;

/// The bucket attribute with the rules, XML. Not one of versitygw, which has no lifecycles.
pub(crate) const ATTRIBUTE: &str = "vgwrdma.lifecycle";

/// Which objects a rule is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    prefix: String,
    tags: Vec<(String, String)>,
    larger_than: Option<u64>,
    smaller_than: Option<u64>,
}

fn size(bytes: Option<i64>) -> Option<u64> {
    bytes.map(|n| u64::try_from(n).unwrap_or(0))
}

fn pairs(tags: &[Tag]) -> Vec<(String, String)> {
    tags.iter().map(|t| (t.key.clone().unwrap_or_default(), t.value.clone().unwrap_or_default())).collect()
}

impl Filter {
    /// Of a rule that was [`checked`].
    fn of(rule: &LifecycleRule) -> Self {
        let old_style = rule.prefix.clone();
        let Some(filter) = &rule.filter else {
            return Self { prefix: old_style.unwrap_or_default(), ..Self::default() };
        };
        match &filter.and {
            Some(and) => Self {
                prefix: and.prefix.clone().unwrap_or_default(),
                tags: pairs(and.tags.as_deref().unwrap_or_default()),
                larger_than: size(and.object_size_greater_than),
                smaller_than: size(and.object_size_less_than),
            },
            None => Self {
                prefix: filter.prefix.clone().or(old_style).unwrap_or_default(),
                tags: pairs(filter.tag.as_slice()),
                larger_than: size(filter.object_size_greater_than),
                smaller_than: size(filter.object_size_less_than),
            },
        }
    }

    /// Whether an object of that name and size may be meant; its tags are another question.
    fn takes(&self, key: &str, size: u64) -> bool {
        key.starts_with(&self.prefix)
            && self.larger_than.is_none_or(|limit| size > limit)
            && self.smaller_than.is_none_or(|limit| size < limit)
    }

    /// Whether only names decide: delete markers have neither size nor tags.
    fn is_by_name(&self) -> bool {
        self.tags.is_empty() && self.larger_than.is_none() && self.smaller_than.is_none()
    }
}

/// When something is due that may last for `days` from `start`: at the midnight (UTC) after that.
fn due(start: SystemTime, days: i32) -> OffsetDateTime {
    let end = OffsetDateTime::from(start).checked_add(Duration::days(i64::from(days)));
    let Some(end) = end else { return OffsetDateTime::new_utc(time::Date::MAX, Time::MIDNIGHT) };
    let midnight = end.replace_time(Time::MIDNIGHT);
    if midnight == end { end } else { midnight.checked_add(Duration::DAY).unwrap_or(end) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;
    use time::macros::datetime;

    #[test_case(datetime!(2026-01-01 10:30 UTC), 3 => datetime!(2026-01-05 0:00 UTC))]
    #[test_case(datetime!(2026-01-01 0:00 UTC), 3 => datetime!(2026-01-04 0:00 UTC))]
    fn rounding(start: OffsetDateTime, days: i32) -> OffsetDateTime {
        due(start.into(), days)
    }
}
