//! A policy's document, and the verdict over a request.

use super::condition::Condition;
use super::json::Json;
use super::pattern::Pattern;
use super::principal::{Caller, Name, Principals};
use super::statement::{Effect, Statement, Who};
use super::values::Values;
use super::{MOST_BYTES, bucket_arn};

/// Why a document is no policy, in a sentence for who wrote it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Malformed(String);

impl Malformed {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

pub(super) fn malformed<T>(what: impl Into<String>) -> Result<T, Malformed> {
    Err(Malformed::new(what))
}

/// A bucket's policy.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub(super) statements: Vec<Statement>,
}

/// What is asked of a policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    /// Who asks.
    pub(crate) caller: Caller<'a>,
    /// The action, with `s3:`.
    pub(crate) action: &'a str,
    /// ARN of the bucket or object.
    pub(crate) resource: &'a str,
    /// What conditions look at.
    pub(crate) values: &'a Values,
}

/// What a policy says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A statement denies it, whatever others say.
    Deny,
    /// A statement allows it and none denies it.
    Allow,
    /// No statement is about it.
    Silent,
}

impl Policy {
    /// Reads the policy that is to be set on a bucket, strictly.
    ///
    /// # Errors
    /// What is wrong with it. Whatever could not be judged later is refused.
    pub(crate) fn new(text: &[u8], bucket: &str) -> Result<Self, Malformed> {
        if text.len() > MOST_BYTES {
            return malformed(format!("Policies may have {MOST_BYTES} bytes and this has {}", text.len()));
        }
        let policy = Self::stored(text)?;
        for statement in &policy.statements {
            if let Some(doubt) = statement.doubts.first() {
                return malformed(doubt);
            }
            if !statement.resource.patterns.iter().all(|pattern| pattern.is_about(bucket)) {
                return malformed(format!(
                    "Policy has invalid resource: resources must be {} or objects in it",
                    bucket_arn(bucket)
                ));
            }
        }
        Ok(policy)
    }

    /// Reads a policy that is stored with a bucket, by whomever. Statements that cannot be judged
    /// allow nothing.
    ///
    /// # Errors
    /// When it is no policy at all.
    pub(crate) fn stored(text: &[u8]) -> Result<Self, Malformed> {
        if !text.starts_with(b"{") {
            return malformed("Policies must be valid JSON and the first byte must be '{'");
        }
        let json: Json = serde_json::from_slice(text)
            .or_else(|error| malformed(format!("Policies must be valid JSON: {error}")))?;
        let Json::Object(members) = json else { return malformed("Policies must be a JSON object") };
        let (mut variables, mut statements) = (false, None);
        for (name, value) in members {
            match (name.as_str(), value) {
                ("Version", Json::Text(version)) => match version.as_str() {
                    "2012-10-17" => variables = true,
                    "2008-10-17" => {}
                    _ => return malformed("The policy must contain a valid version string: 2012-10-17"),
                },
                ("Id", Json::Text(_)) => {}
                ("Statement", Json::List(list)) => statements = Some(list),
                ("Statement", one @ Json::Object(_)) => statements = Some(vec![one]),
                (name, _) => return malformed(format!("The policy has an invalid element {name:?}")),
            }
        }
        let Some(statements) = statements.filter(|s| !s.is_empty()) else {
            return malformed("Missing required field Statement");
        };
        let statements: Result<_, _> = statements.iter().map(|s| Statement::new(s, variables)).collect();
        Ok(Self { statements: statements? })
    }

    /// What it says to a request.
    pub(crate) fn verdict(&self, question: &Question<'_>) -> Verdict {
        let applies =
            |effect| self.statements.iter().filter(|s| s.effect == effect).any(|s| s.applies(question));
        if applies(Effect::Deny) {
            Verdict::Deny
        } else if applies(Effect::Allow) {
            Verdict::Allow
        } else {
            Verdict::Silent
        }
    }

    /// Whether a verdict may hang on the tags that an object has.
    pub(crate) fn asks_for_existing_tags(&self) -> bool {
        self.statements.iter().flat_map(|s| &s.conditions).any(Condition::is_about_existing_tags)
    }

    /// Accounts that it gives by their names as principals.
    pub(crate) fn named_accounts(&self) -> impl Iterator<Item = &str> {
        self.statements
            .iter()
            .filter_map(|statement| match &statement.who {
                Who::Are(Principals::Named(names)) | Who::AreNot(Principals::Named(names)) => Some(names),
                _ => None,
            })
            .flatten()
            .filter_map(|name| match name {
                Name::Account(name) => Some(name.as_str()),
                _ => None,
            })
    }
}

impl Pattern {
    /// Whether a resource can be this bucket or in it.
    fn is_about(&self, bucket: &str) -> bool {
        let values = Values::default();
        // A variable may stand for anything, but not in the name of the bucket.
        let head = bucket_arn(bucket);
        self.is_everything() || self.matches(&head, &values) || self.matches_start_of(&format!("{head}/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::policy::object_arn;
    use test_case::test_case;

    const ANN: Caller<'_> = Caller::Account("ann");

    /// A statement's elements beside the usual ones.
    fn policy(statements: &[&str]) -> String {
        format!("{{\"Version\":\"2012-10-17\",\"Statement\":[{}]}}", statements.join(","))
    }

    const ALLOW: &str =
        r#"{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/*"}"#;

    fn verdict(document: &str, caller: Caller<'_>, action: &str, key: &str) -> Verdict {
        let mut values = Values::default();
        values.set("aws:username", "ann");
        values.set("s3:prefix", "p");
        let policy = Policy::stored(document.as_bytes()).unwrap();
        policy.verdict(&Question { caller, action, resource: &object_arn("b", key), values: &values })
    }

    #[test]
    fn deny_comes_first() {
        let deny = r#"{"Effect":"Deny","NotPrincipal":{"AWS":"ann"},"Action":"*","Resource":"arn:aws:s3:::b/secret/*"}"#;
        let document = policy(&[ALLOW, deny]);
        let get = |caller, key| verdict(&document, caller, "s3:GetObject", key);
        assert_eq!(get(Caller::Anonymous, "open"), Verdict::Allow);
        assert_eq!(get(Caller::Anonymous, "secret/x"), Verdict::Deny);
        assert_eq!(get(ANN, "secret/x"), Verdict::Allow);
        assert_eq!(verdict(&document, ANN, "s3:PutObject", "open"), Verdict::Silent);
        assert_eq!(verdict(&document, ANN, "S3:getobject", "open"), Verdict::Allow);
    }

    #[test]
    fn negated_actions_and_resources() {
        let one = r#"{"Effect":"Allow","Principal":{"AWS":["arn:aws:iam::ann:root"]},"NotAction":["s3:Put*","s3:Delete*"],"NotResource":"arn:aws:s3:::b/x*"}"#;
        let document = policy(&[one]);
        assert_eq!(verdict(&document, ANN, "s3:GetObject", "y"), Verdict::Allow);
        assert_eq!(verdict(&document, ANN, "s3:PutObject", "y"), Verdict::Silent);
        assert_eq!(verdict(&document, ANN, "s3:GetObject", "xy"), Verdict::Silent);
        assert_eq!(verdict(&document, Caller::Account("bob"), "s3:GetObject", "y"), Verdict::Silent);
        assert_eq!(verdict(&document, Caller::Anonymous, "s3:GetObject", "y"), Verdict::Silent);
    }

    #[test]
    fn variables_only_since_2012() {
        let home = r#"{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/${aws:username}/*"}"#;
        assert_eq!(verdict(&policy(&[home]), ANN, "s3:GetObject", "ann/x"), Verdict::Allow);
        assert_eq!(verdict(&policy(&[home]), ANN, "s3:GetObject", "bob/x"), Verdict::Silent);
        let old = policy(&[home]).replace("2012", "2008");
        assert_eq!(verdict(&old, ANN, "s3:GetObject", "ann/x"), Verdict::Silent);
    }

    #[test]
    fn what_cannot_be_judged_allows_nothing_and_denies() {
        for condition in
            [r#"{"StringSounds":{"s3:prefix":"p"}}"#, r#"{"StringEquals":{"aws:PrincipalOrgID":"o-1"}}"#]
        {
            let with = |effect: &str| {
                let statement = ALLOW.replace("\"Allow\"", &format!("\"{effect}\""));
                policy(&[&format!("{},\"Condition\":{condition}}}", &statement[..statement.len() - 1])])
            };
            assert_eq!(verdict(&with("Allow"), ANN, "s3:GetObject", "k"), Verdict::Silent);
            assert_eq!(verdict(&with("Deny"), ANN, "s3:GetObject", "k"), Verdict::Deny);
            assert!(Policy::new(with("Allow").as_bytes(), "b").is_err());
        }
    }

    #[test_case("", "first byte"; "empty")]
    #[test_case("[]", "first byte"; "a list")]
    #[test_case("{\"Statement\":[],}", "valid JSON"; "no JSON")]
    #[test_case("{}", "Missing required field Statement")]
    #[test_case("{\"Statement\":[]}", "Missing required field Statement"; "no statements")]
    #[test_case("{\"Version\":\"2020-01-01\",\"Statement\":[]}", "version")]
    #[test_case("{\"Statements\":[]}", "Statements")]
    fn no_policies(text: &str, says: &str) {
        let error = Policy::new(text.as_bytes(), "b").unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }

    #[test_case(r#""Effect":"Allow""#, r#""Effect":"allow""#, "Invalid effect")]
    #[test_case(r#""Effect":"Allow","#, "", "field Effect")]
    #[test_case(r#""Principal":"*","#, "", "field Principal")]
    #[test_case(r#""Action":"s3:GetObject","#, "", "field Action")]
    #[test_case(r#","Resource":"arn:aws:s3:::b/*""#, "", "field Resource")]
    #[test_case(r#""Principal":"*""#, r#""Principal":"ann""#, "Invalid principal")]
    #[test_case(r#""Principal":"*""#, r#""Principal":{"AWS":[]}"#, "Invalid principal")]
    #[test_case(r#""Principal":"*""#, r#""Principal":{"AWS":"arn:aws:iam::x:user/*"}"#, "Invalid principal")]
    #[test_case(r#""Principal":"*""#, r#""Principal":{"King":"x"}"#, "King")]
    #[test_case(r#""Principal":"*""#, r#""NotPrincipal":{"AWS":"x"}"#, "NotPrincipal")]
    #[test_case(r#""Principal":"*""#, r#""Principal":"*","NotPrincipal":{"AWS":"x"}"#, "more than one")]
    #[test_case("s3:GetObject", "s3:FetchObject", "invalid action")]
    #[test_case("s3:GetObject", "iam:*", "invalid action")]
    #[test_case("arn:aws:s3:::b/*", "b/*", "invalid resource")]
    #[test_case("arn:aws:s3:::b/*", "arn:aws:s3:::c/*", "invalid resource")]
    #[test_case("arn:aws:s3:::b/*", "arn:aws:s3:::${aws:username}/*", "invalid resource")]
    #[test_case(r#""Principal":"*""#, r#""Principal":"*","Sidd":"x""#, "Sidd")]
    #[test_case(r#""Principal":"*""#, r#""Principal":"*","Condition":[]"#, "Condition")]
    #[test_case(r#""Principal":"*""#, r#""Principal":"*","Condition":{"StringEquals":"x"}"#, "StringEquals")]
    #[test_case(
        r#""Principal":"*""#,
        r#""Principal":"*","Condition":{"Bool":{"aws:SecureTransport":[{}]}}"#,
        "SecureTransport"
    )]
    #[test_case(
        r#""Principal":"*""#,
        r#""Principal":"*","Condition":{"Bool":{}},"Condition":{}"#,
        "given twice"
    )]
    fn mistakes_are_told(from: &str, to: &str, says: &str) {
        let text = policy(&[ALLOW]);
        assert!(Policy::new(text.as_bytes(), "b").is_ok() && text.contains(from));
        let error = Policy::new(text.replace(from, to).as_bytes(), "b").unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }

    #[test_case("arn:aws:s3:::b")]
    #[test_case("arn:aws:s3:::b/x")]
    #[test_case("arn:aws:s3:::*")]
    #[test_case("arn:aws:s3:::*/*")]
    #[test_case("arn:aws:s3:::b*")]
    #[test_case("arn:aws:s3:::b/${aws:username}/*")]
    #[test_case("*")]
    fn resources_of_a_bucket(resource: &str) {
        let text = policy(&[&ALLOW.replace("arn:aws:s3:::b/*", resource)]);
        assert!(Policy::new(text.as_bytes(), "b").is_ok());
    }

    #[test]
    fn limits_and_names() {
        let long = policy(&[
            &ALLOW.replace("GetObject\"", &format!("GetObject\",\"Sid\":\"{}\"", "x".repeat(MOST_BYTES)))
        ]);
        assert!(Policy::new(long.as_bytes(), "b").unwrap_err().to_string().contains("20480"));
        let named = policy(&[&ALLOW
            .replace("\"*\"", r#"{"AWS":["bob","arn:aws:iam:::user/ann"],"Service":"x.amazonaws.com"}"#)]);
        let named = Policy::new(named.as_bytes(), "b").unwrap();
        assert_eq!(named.named_accounts().collect::<Vec<_>>(), ["bob"]);
        assert!(!named.is_public() && !named.asks_for_existing_tags());
    }

    #[test_case(r#""Principal":"*""#, r#""Principal":{"AWS":"*"}"# => true)]
    #[test_case(r#""Principal":"*""#, r#""Principal":{"AWS":"ann"}"# => false)]
    #[test_case(r#""Effect":"Allow""#, r#""Effect":"Deny""# => false; "it lets nobody in")]
    #[test_case(r#""Principal":"*""#, r#""Principal":"*","Condition":{"IpAddress":{"aws:SourceIp":"10.0.0.0/24"}}"# => false)]
    #[test_case(r#""Principal":"*""#, r#""Principal":"*","Condition":{"StringLike":{"aws:Referer":"x"}}"# => true)]
    fn public(from: &str, to: &str) -> bool {
        Policy::new(policy(&[ALLOW]).replace(from, to).as_bytes(), "b").unwrap().is_public()
    }

    #[test]
    fn existing_tags() {
        let tagged = ALLOW
            .replace("\"Effect\"", r#""Condition":{"StringEquals":{"s3:ExistingObjectTag/a":"b"}},"Effect""#);
        assert!(Policy::new(policy(&[&tagged]).as_bytes(), "b").unwrap().asks_for_existing_tags());
    }
}
