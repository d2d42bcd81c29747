//! Conditions of statements.

use std::net::IpAddr;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

use super::Values;
use super::pattern::{Pattern, Wildcards};
use super::values;
use crate::gateway::rdma::policy::Network;

/// How several values of a key count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantifier {
    /// The key has one value.
    One,
    /// `ForAnyValue:`.
    Any,
    /// `ForAllValues:`.
    All,
}

/// What relation an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// What a request's value is compared with.
#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Text(Pattern),
    TextIgnoringCase(Pattern),
    /// The six parts of an ARN.
    Arn(Vec<Pattern>),
    Number(Order, f64),
    Date(Order, OffsetDateTime),
    Bool(bool),
    Network(Network),
}

/// One operator with one key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Condition {
    key: String,
    quantifier: Quantifier,
    /// Whether a request without the key meets it.
    if_exists: bool,
    /// Whether it is the operator's `Not` form.
    negated: bool,
    test: Test,
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    /// `Null`: whether the key must be absent.
    Absent(bool),
    /// Any of these.
    AnyOf(Vec<Operand>),
}

/// A comparison, without quantifier, negation and `IfExists`.
#[derive(Clone, Copy)]
enum Kind {
    Text(Wildcards),
    TextIgnoringCase,
    Arn,
    Number(Order),
    Date(Order),
    Bool,
    Network,
    Null,
}

/// The comparison of an operator's name, and whether it is negated.
fn kind(name: &str) -> Option<(Kind, bool)> {
    let order = |name: &str| {
        Some(match name {
            "Equals" | "NotEquals" => Order::Equal,
            "LessThan" => Order::Less,
            "LessThanEquals" => Order::LessOrEqual,
            "GreaterThan" => Order::Greater,
            "GreaterThanEquals" => Order::GreaterOrEqual,
            _ => return None,
        })
    };
    let numbers = name.strip_prefix("Numeric").and_then(order).map(Kind::Number);
    let dates = name.strip_prefix("Date").and_then(order).map(Kind::Date);
    let kind = match name {
        "StringEquals" | "StringNotEquals" => Kind::Text(Wildcards::Literal),
        "StringLike" | "StringNotLike" => Kind::Text(Wildcards::Match),
        "StringEqualsIgnoreCase" | "StringNotEqualsIgnoreCase" => Kind::TextIgnoringCase,
        "ArnEquals" | "ArnLike" | "ArnNotEquals" | "ArnNotLike" => Kind::Arn,
        "Bool" => Kind::Bool,
        "IpAddress" | "NotIpAddress" => Kind::Network,
        "Null" => Kind::Null,
        _ => numbers.or(dates)?,
    };
    Some((kind, name.contains("Not")))
}

/// A date as policies write it: RFC 3339, a day, or seconds since 1970.
fn date(text: &str) -> Option<OffsetDateTime> {
    let day = format_description!("[year]-[month]-[day]");
    let seconds = || OffsetDateTime::from_unix_timestamp(text.parse().ok()?).ok();
    OffsetDateTime::parse(text, &Rfc3339)
        .ok()
        .or_else(|| Some(time::Date::parse(text, day).ok()?.midnight().assume_utc()))
        .or_else(seconds)
}

fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

fn arn_parts(text: &str) -> Vec<&str> {
    // A variable holds a colon too, but not the sixth one of an ARN: split where no brace is open.
    let (mut parts, mut start, mut open) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            '{' => open = true,
            '}' => open = false,
            ':' if !open && parts.len() < 5 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

impl Condition {
    /// Reads one key of one operator.
    ///
    /// # Errors
    /// A sentence about an unknown operator or key, or a value that is not of the operator's kind.
    pub(super) fn new(operator: &str, key: &str, texts: &[&str], variables: bool) -> Result<Self, String> {
        let (quantifier, rest) = match operator.split_once(':') {
            None => (Quantifier::One, operator),
            Some(("ForAnyValue", rest)) => (Quantifier::Any, rest),
            Some(("ForAllValues", rest)) => (Quantifier::All, rest),
            Some(_) => return Err(format!("Invalid condition operator {operator:?}")),
        };
        let (name, if_exists) = match rest.strip_suffix("IfExists") {
            Some(name) => (name, true),
            None => (rest, false),
        };
        let (kind, negated) = kind(name)
            .filter(|(kind, _)| !(if_exists && matches!(kind, Kind::Null)))
            .ok_or_else(|| format!("Invalid condition operator {operator:?}"))?;
        if !values::is_known(key) {
            return Err(format!("Policy has an invalid condition key: {key:?} is not known here"));
        }
        if texts.is_empty() {
            return Err(format!("The condition key {key:?} has no values"));
        }
        let invalid = |text: &str| format!("Invalid value {text:?} for the condition operator {operator:?}");
        let test = if let Kind::Null = kind {
            let [text] = texts else { return Err(invalid("several values")) };
            Test::Absent(truth(text).ok_or_else(|| invalid(text))?)
        } else {
            let operands: Option<Vec<Operand>> =
                texts.iter().map(|text| Operand::new(kind, text, variables)).collect();
            Test::AnyOf(operands.ok_or_else(|| invalid(&texts.join(", ")))?)
        };
        Ok(Self { key: key.to_owned(), quantifier, if_exists, negated, test })
    }

    /// Whether it asks about the tags an object has.
    pub(super) fn is_about_existing_tags(&self) -> bool {
        let variables = match &self.test {
            Test::Absent(_) => false,
            Test::AnyOf(operands) => operands.iter().any(|operand| match operand {
                Operand::Text(pattern) | Operand::TextIgnoringCase(pattern) => {
                    pattern.variables().any(values::is_existing_tag)
                }
                _ => false,
            }),
        };
        variables || values::is_existing_tag(&self.key)
    }

    /// Whether a request with these values meets it.
    pub(super) fn is_met(&self, values: &Values) -> bool {
        let found = values.get(&self.key);
        let operands = match &self.test {
            Test::Absent(absent) => return found.is_none() == *absent,
            Test::AnyOf(operands) => operands,
        };
        let met = |value: &String| operands.iter().any(|o| o.holds(value, values)) != self.negated;
        match (found, self.quantifier) {
            (None, _) if self.if_exists => true,
            (None, Quantifier::One) => self.negated,
            (None, Quantifier::Any) => false,
            (None, Quantifier::All) => true,
            // Of a key with several values that is asked as if it had one, one value meets a
            // condition, and all have to for it not to.
            (Some(found), Quantifier::One) if self.negated => found.iter().all(met),
            (Some(found), Quantifier::One | Quantifier::Any) => found.iter().any(met),
            (Some(found), Quantifier::All) => found.iter().all(met),
        }
    }

    /// Whether it confines requests to fixed values of a key by which AWS tells that a policy is not
    /// public: <https://docs.aws.amazon.com/AmazonS3/latest/userguide/access-control-block-public-access.html>.
    pub(super) fn confines(&self) -> bool {
        const KEYS: [&str; 5] = [
            "aws:sourceip",
            "aws:userid",
            "aws:principalarn",
            "aws:principalaccount",
            "s3:x-amz-server-side-encryption-aws-kms-key-id",
        ];
        let Test::AnyOf(operands) = &self.test else { return false };
        // Of no value at all, all are right.
        let strict = !self.if_exists && !self.negated && self.quantifier != Quantifier::All;
        strict
            && KEYS.contains(&self.key.to_ascii_lowercase().as_str())
            && operands.iter().all(|operand| match operand {
                Operand::Text(pattern) | Operand::TextIgnoringCase(pattern) => pattern.is_fixed(),
                Operand::Arn(parts) => parts.iter().all(Pattern::is_fixed),
                Operand::Network(network) => !network.is_broad(),
                _ => false,
            })
    }
}

impl Operand {
    fn new(kind: Kind, text: &str, variables: bool) -> Option<Self> {
        Some(match kind {
            Kind::Text(wildcards) => Self::Text(Pattern::new(text, wildcards, variables)),
            Kind::TextIgnoringCase => {
                Self::TextIgnoringCase(Pattern::new(text, Wildcards::Literal, variables))
            }
            Kind::Arn => {
                let parts = arn_parts(text).into_iter();
                Self::Arn(parts.map(|part| Pattern::new(part, Wildcards::Match, variables)).collect())
            }
            Kind::Number(order) => Self::Number(order, text.parse().ok().filter(|n: &f64| n.is_finite())?),
            Kind::Date(order) => Self::Date(order, date(text)?),
            Kind::Bool => Self::Bool(truth(text)?),
            Kind::Network => Self::Network(text.parse().ok()?),
            Kind::Null => return None,
        })
    }

    /// Whether a value of the request is what this asks for. One that is not of the kind is not.
    fn holds(&self, value: &str, values: &Values) -> bool {
        match self {
            Self::Text(pattern) => pattern.matches(value, values),
            Self::TextIgnoringCase(pattern) => pattern.matches_ignoring_case(value, values),
            Self::Arn(patterns) => {
                let parts = arn_parts(value);
                parts.len() == patterns.len() && patterns.iter().zip(parts).all(|(p, t)| p.matches(t, values))
            }
            Self::Number(order, operand) => {
                value.parse::<f64>().is_ok_and(|v| order.holds(v.partial_cmp(operand)))
            }
            Self::Date(order, operand) => date(value).is_some_and(|v| order.holds(Some(v.cmp(operand)))),
            Self::Bool(operand) => truth(value) == Some(*operand),
            Self::Network(network) => value.parse::<IpAddr>().is_ok_and(|ip| network.contains(ip)),
        }
    }
}

impl Order {
    fn holds(self, found: Option<std::cmp::Ordering>) -> bool {
        found.is_some_and(|found| match self {
            Self::Equal => found.is_eq(),
            Self::Less => found.is_lt(),
            Self::LessOrEqual => found.is_le(),
            Self::Greater => found.is_gt(),
            Self::GreaterOrEqual => found.is_ge(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn met(operator: &str, key: &str, texts: &[&str], found: &[&str]) -> Result<bool, String> {
        let mut values = Values::default();
        if !found.is_empty() {
            values.set_all(key, found.iter().map(|f| (*f).to_owned()).collect());
        }
        values.set("aws:username", "ann");
        Ok(Condition::new(operator, key, texts, true)?.is_met(&values))
    }

    #[test_case("StringEquals", &["a", "b"], &["b"] => true)]
    #[test_case("StringEquals", &["a*"], &["ab"] => false)]
    #[test_case("StringEquals", &["a"], &[] => false)]
    #[test_case("StringEqualsIfExists", &["a"], &[] => true)]
    #[test_case("StringEqualsIfExists", &["a"], &["b"] => false)]
    #[test_case("StringNotEquals", &["a", "b"], &["b"] => false)]
    #[test_case("StringNotEquals", &["a", "b"], &["c"] => true)]
    #[test_case("StringNotEquals", &["a"], &[] => true; "absent is not equal")]
    #[test_case("StringLike", &["a*"], &["ab"] => true)]
    #[test_case("StringNotLike", &["a*"], &["ab"] => false)]
    #[test_case("StringEqualsIgnoreCase", &["AB"], &["ab"] => true)]
    #[test_case("StringNotEqualsIgnoreCase", &["AB"], &["ab"] => false)]
    #[test_case("StringLike", &["home/${aws:username}/*"], &["home/ann/x"] => true)]
    #[test_case("ArnLike", &["arn:aws:iam::*:user/a*"], &["arn:aws:iam::1:user/ann"] => true)]
    #[test_case("ArnLike", &["arn:*"], &["arn:aws:iam::1:user/ann"] => false; "no wildcard over parts")]
    #[test_case("ArnNotEquals", &["arn:aws:iam:::user/ann"], &["arn:aws:iam:::user/bob"] => true)]
    #[test_case("Null", &["true"], &[] => true)]
    #[test_case("Null", &["true"], &["x"] => false)]
    #[test_case("Null", &["false"], &["x"] => true)]
    #[test_case("ForAllValues:StringEquals", &["a", "b"], &["a", "b"] => true)]
    #[test_case("ForAllValues:StringEquals", &["a", "b"], &["a", "c"] => false)]
    #[test_case("ForAllValues:StringEquals", &["a"], &[] => true)]
    #[test_case("ForAnyValue:StringEquals", &["a", "b"], &["c", "a"] => true)]
    #[test_case("ForAnyValue:StringEquals", &["a"], &["b", "c"] => false)]
    #[test_case("ForAnyValue:StringEquals", &["a"], &[] => false)]
    #[test_case("ForAnyValue:StringNotEquals", &["a"], &["a", "b"] => true)]
    #[test_case("ForAllValues:StringNotEquals", &["a"], &["a", "b"] => false)]
    #[test_case("StringNotEquals", &["a"], &["a", "b"] => false)]
    fn texts(operator: &str, texts: &[&str], found: &[&str]) -> bool {
        met(operator, "s3:RequestObjectTagKeys", texts, found).unwrap()
    }

    #[test_case("NumericEquals", &["10"], "10" => true)]
    #[test_case("NumericNotEquals", &["10"], "10" => false)]
    #[test_case("NumericLessThan", &["10"], "9.5" => true)]
    #[test_case("NumericLessThanEquals", &["10"], "10" => true)]
    #[test_case("NumericGreaterThan", &["10"], "10" => false)]
    #[test_case("NumericGreaterThanEquals", &["10"], "x" => false; "no number")]
    #[test_case("DateLessThan", &["2020-01-01T00:00:00Z"], "2019-12-31T23:59:59Z" => true)]
    #[test_case("DateGreaterThan", &["2020-01-01"], "2020-01-01T00:00:00Z" => false)]
    #[test_case("DateGreaterThanEquals", &["2020-01-01"], "2020-01-01T00:00:00Z" => true)]
    #[test_case("DateEquals", &["86400"], "1970-01-02T00:00:00Z" => true)]
    #[test_case("Bool", &["true"], "TRUE" => true)]
    #[test_case("Bool", &["false"], "true" => false)]
    #[test_case("IpAddress", &["10.0.0.0/8", "192.168.1.1"], "10.2.3.4" => true)]
    #[test_case("IpAddress", &["10.0.0.0/8"], "::ffff:10.2.3.4" => true; "mapped")]
    #[test_case("NotIpAddress", &["10.0.0.0/8"], "10.2.3.4" => false)]
    #[test_case("NotIpAddress", &["2001:db8::/32"], "2001:db9::1" => true)]
    fn other_kinds(operator: &str, texts: &[&str], found: &str) -> bool {
        met(operator, "s3:max-keys", texts, &[found]).unwrap()
    }

    #[test_case("StringSounds", "s3:prefix", &["a"], "StringSounds")]
    #[test_case("ForSome:StringEquals", "s3:prefix", &["a"], "ForSome")]
    #[test_case("NullIfExists", "s3:prefix", &["true"], "NullIfExists")]
    #[test_case("BinaryEquals", "s3:prefix", &["a"], "BinaryEquals")]
    #[test_case("StringEquals", "aws:Nonsense", &["a"], "invalid condition key")]
    #[test_case("StringEquals", "s3:prefix", &[], "no values")]
    #[test_case("NumericEquals", "s3:max-keys", &["ten"], "ten")]
    #[test_case("DateEquals", "aws:CurrentTime", &["soon"], "soon")]
    #[test_case("Bool", "aws:SecureTransport", &["yes"], "yes")]
    #[test_case("IpAddress", "aws:SourceIp", &["10.0.0.0/99"], "10.0.0.0/99")]
    #[test_case("Null", "s3:prefix", &["true", "false"], "several")]
    fn mistakes_are_told(operator: &str, key: &str, texts: &[&str], says: &str) {
        let text = met(operator, key, texts, &[]).unwrap_err();
        assert!(text.contains(says), "{text}");
    }

    #[test_case("IpAddress", "aws:SourceIp", "10.0.0.0/24" => true)]
    #[test_case("IpAddress", "aws:SourceIp", "0.0.0.0/0" => false)]
    #[test_case("IpAddress", "aws:SourceIp", "0.0.0.0/1" => false)]
    #[test_case("NotIpAddress", "aws:SourceIp", "10.0.0.0/24" => false)]
    #[test_case("StringEquals", "aws:userid", "ann" => true)]
    #[test_case("StringLike", "aws:userid", "a*" => false)]
    #[test_case("StringEqualsIfExists", "aws:userid", "ann" => false)]
    #[test_case("StringEquals", "aws:Referer", "x" => false; "anybody can say it")]
    fn confining(operator: &str, key: &str, text: &str) -> bool {
        Condition::new(operator, key, &[text], true).unwrap().confines()
    }
}
